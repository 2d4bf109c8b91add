// Copy and paste. What is copied is a page in the form of the page file, so it pastes into other pages, into a text
// editor and back.
import type { Change, Doc } from "./doc";
import { freshNote, wires } from "./edits";
import {
  type Block,
  endText,
  type Json,
  type Note,
  type Palette,
  type Position,
  parseWire,
  uniqueName,
  type Wire,
  wireText,
} from "./page";

type FileBlock = { name: string; type: string; attributes?: Record<string, Json> };
export type Fragment = {
  "poolgrad-page": 1;
  blocks: FileBlock[];
  wires: string[];
  layout: Record<string, Position>;
  notes?: Note[];
};

export function fragment(doc: Doc, names: ReadonlySet<string>, notes: ReadonlySet<string>): Fragment {
  const inside = wires(doc).filter(({ source, target }) => names.has(source.block) && names.has(target.block));
  return {
    "poolgrad-page": 1,
    blocks: [...names].flatMap((name) => {
      const block = doc.block[name];
      return block ? [{ name, ...block } as FileBlock] : [];
    }),
    wires: gapless(inside).map(wireText),
    layout: Object.fromEntries(
      [...names].flatMap((name) => {
        const at = doc.position[name];
        return at ? [[name, at] as const] : [];
      }),
    ),
    notes: [...notes].flatMap((id) => {
      const note = doc.note[id];
      return note ? [within(note, names)] : [];
    }),
  };
}

function within(note: Note, names: ReadonlySet<string>): Note {
  return note.blocks ? { ...note, blocks: note.blocks.filter((name) => names.has(name)) } : note;
}

/** Copying some of a numbered pin's wires leaves gaps: count anew. */
function gapless(inside: readonly Wire[]): Wire[] {
  const count = new Map<string, number>();
  return [...inside]
    .sort((a, b) => (a.target.index ?? 0) - (b.target.index ?? 0))
    .map((wire) => {
      if (wire.target.index === null) return wire;
      const pin = `${wire.target.block}.${wire.target.pin}`;
      const index = count.get(pin) ?? 0;
      count.set(pin, index + 1);
      return { ...wire, target: { ...wire.target, index } };
    });
}

/** The fragment in a text, or a sentence that says why there is none. */
export function parseFragment(text: string): Fragment | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "The clipboard holds no blocks";
  }
  const page = value as Partial<Fragment> | null;
  if (typeof page !== "object" || page === null || !Array.isArray(page.blocks)) return "The clipboard holds no blocks";
  const sound = page.blocks.every((block) => typeof block?.name === "string" && typeof block.type === "string");
  if (!sound) return "A block in the clipboard has no name or no type";
  const list = <T>(of: readonly T[] | undefined, fits: (one: T) => boolean) =>
    Array.isArray(of) ? of.filter(fits) : [];
  const places = Object.entries(page.layout ?? {}).filter(([, at]) => isPlace(at));
  return {
    "poolgrad-page": 1,
    wires: list(page.wires, (wire) => typeof wire === "string"),
    layout: Object.fromEntries(places),
    notes: list(page.notes, (note) => isPlace(note?.at) && isPlace(note.size)),
    blocks: page.blocks,
  };
}

function isPlace(at: unknown): at is Position {
  return Array.isArray(at) && at.length === 2 && at.every(Number.isFinite);
}

export type Pasted = { names: string[]; notes: string[]; changes: Change[]; unknown: string[] };

/** The changes that add a fragment at an offset, with names made unique. Unknown block types are left out and named. */
export function paste(doc: Doc, palette: Palette, from: Fragment, offset: { x: number; y: number }): Pasted {
  const renamed = new Map<string, string>();
  const changes: Change[] = [];
  const unknown: string[] = [];
  const taken = (name: string) => name in doc.block || [...renamed.values()].includes(name);
  for (const { name, type, attributes } of from.blocks) {
    if (!palette.types.has(type)) {
      unknown.push(type);
      continue;
    }
    const fresh = uniqueName(name, taken);
    renamed.set(name, fresh);
    const block: Block = attributes ? { type, attributes } : { type };
    const [x, y] = from.layout[name] ?? [0, 0];
    changes.push(["block", fresh, block], ["position", fresh, [x + offset.x, y + offset.y]]);
  }
  for (const text of from.wires) {
    const { source, target } = parseWire(text);
    const [a, b] = [renamed.get(source.block), renamed.get(target.block)];
    if (a && b) changes.push(["wire", endText({ ...target, block: b }), endText({ ...source, block: a })]);
  }
  const notes: string[] = [];
  for (const note of from.notes ?? []) {
    const id = freshNote(doc);
    notes.push(id);
    changes.push(["note", id, pastedNote(note, renamed, offset)]);
  }
  return { names: [...renamed.values()], notes, changes, unknown };
}

function pastedNote(note: Note, renamed: ReadonlyMap<string, string>, offset: { x: number; y: number }): Note {
  return {
    ...note,
    at: [note.at[0] + offset.x, note.at[1] + offset.y],
    ...(note.blocks ? { blocks: note.blocks.flatMap((name) => renamed.get(name) ?? []) } : {}),
  };
}
