// The editor's actions as changes of a document. Each function returns what one whole step changes, and leaves the
// wires of a page as its file wants them: one per pin, numbered without gaps where a pin takes many.
import { type Change, type Doc, same } from "./doc";
import {
  type Block,
  type BlockType,
  type End,
  endText,
  type Json,
  type Note,
  type Palette,
  type Position,
  uniqueName,
  type Wire,
  wireOf,
} from "./page";

export function wires(doc: Doc): Wire[] {
  return Object.entries(doc.wire).map(([target, source]) => wireOf(source, target));
}

export function addBlock(
  doc: Doc,
  type: BlockType,
  at: Position,
  wanted?: string,
): { name: string; changes: Change[] } {
  const name = uniqueName(wanted ?? type.type, (other) => other in doc.block);
  const block: Block = { type: type.type, attributes: starting(type) };
  return {
    name,
    changes: [
      ["block", name, block],
      ["position", name, at],
    ],
  };
}

/** Attributes with which a fresh pooling block runs at once: windows of 2 along the image, not along batch and channels. */
function starting(type: BlockType): Record<string, Json> {
  const format = String(type.attributes.find(({ name }) => name === "data_format")?.default ?? "");
  const perAxis = (length: number) => [...format].map((axis) => (axis === "N" || axis === "C" ? 1 : length));
  const values: Record<string, Json> = {};
  for (const attribute of type.attributes) {
    if (!attribute.required) continue;
    if (format && (attribute.name === "ksize" || attribute.name === "strides")) values[attribute.name] = perAxis(2);
    else if (attribute.name === "pooling_ratio") values[attribute.name] = perAxis(1.5);
    else if (attribute.choices[0] !== undefined) values[attribute.name] = attribute.choices[0];
  }
  for (const { name, text, required } of type.inputs) {
    if (text && required && (name === "ksize" || name === "strides")) values[name] = perAxis(2);
    else if (text && required && name === "shape" && type.inputs.length === 1) values[name] = [1, 6, 6, 1];
  }
  return values;
}

/** Removes blocks and notes with every wire that ends at them. */
export function remove(
  doc: Doc,
  blocks: ReadonlySet<string>,
  notes: ReadonlySet<string>,
  cut: ReadonlySet<string>,
): Change[] {
  const gone = (wire: Wire) => cut.has(wire.id) || blocks.has(wire.source.block) || blocks.has(wire.target.block);
  const changes: Change[] = rewire(doc, gone);
  for (const name of blocks) {
    changes.push(["block", name, null]);
    if (name in doc.position) changes.push(["position", name, null]);
  }
  for (const id of notes) changes.push(["note", id, null]);
  for (const [id, note] of Object.entries(doc.note)) {
    if (notes.has(id) || !note.blocks?.some((name) => blocks.has(name))) continue;
    changes.push(["note", id, { ...note, blocks: note.blocks.filter((name) => !blocks.has(name)) }]);
  }
  return changes;
}

/** Takes wires away and closes the gaps they leave in numbered pins. */
function rewire(doc: Doc, gone: (wire: Wire) => boolean): Change[] {
  const changes: Change[] = [];
  const touched = new Set<string>();
  const all = wires(doc);
  for (const wire of all) {
    if (!gone(wire)) continue;
    changes.push(["wire", wire.id, null]);
    if (wire.target.index !== null) touched.add(`${wire.target.block}.${wire.target.pin}`);
  }
  for (const pin of touched) {
    const left = all
      .filter((wire) => !gone(wire) && `${wire.target.block}.${wire.target.pin}` === pin)
      .sort((a, b) => (a.target.index ?? 0) - (b.target.index ?? 0));
    changes.push(...renumbered(left));
  }
  return changes;
}

function renumbered(left: readonly Wire[]): Change[] {
  const moved = left
    .map((wire, index) => ({ old: wire.id, next: endText({ ...wire.target, index }), source: endText(wire.source) }))
    .filter(({ old, next }) => old !== next);
  const changes: Change[] = moved.map(({ old }) => ["wire", old, null]);
  // What is removed here may be what another wire becomes, so additions come last.
  return changes.concat(moved.map(({ next, source }) => ["wire", next, source]));
}

/** Draws a wire. What was wired or typed at a single pin gives way; a pin that takes many gets one more. */
export function connect(doc: Doc, palette: Palette, source: End, target: End): Change[] {
  const block = doc.block[target.block];
  const pin = block && palette.types.get(block.type)?.inputs.find(({ name }) => name === target.pin);
  if (!block || !pin) return [];
  const there = wires(doc).filter((wire) => wire.target.block === target.block && wire.target.pin === target.pin);
  const index = pin.many ? (target.index ?? there.length) : null;
  const changes: Change[] = [["wire", endText({ ...target, index }), endText(source)]];
  if (block.attributes && target.pin in block.attributes) {
    changes.push(["block", target.block, without(block, target.pin)]);
  }
  return changes;
}

export function disconnect(doc: Doc, id: string): Change[] {
  return rewire(doc, (wire) => wire.id === id);
}

function without(block: Block, attribute: string): Block {
  const { [attribute]: _, ...attributes } = block.attributes ?? {};
  return { ...block, attributes };
}

/** Sets attributes of a block; undefined means back to the default. */
export function setAttributes(doc: Doc, name: string, values: Record<string, Json | undefined>): Change[] {
  let block = doc.block[name];
  if (!block) return [];
  for (const [attribute, value] of Object.entries(values)) {
    block =
      value === undefined
        ? without(block, attribute)
        : { ...block, attributes: { ...block.attributes, [attribute]: value } };
  }
  return [["block", name, block]];
}

/** Gives a block another name; its wires, its place and the groups it is in follow. */
export function rename(doc: Doc, old: string, name: string): Change[] {
  const block = doc.block[old];
  if (!block || old === name) return [];
  const changes: Change[] = [
    ["block", old, null],
    ["block", name, block],
  ];
  const at = doc.position[old];
  if (at) changes.push(["position", old, null], ["position", name, at]);
  const named = (end: End) => (end.block === old ? { ...end, block: name } : end);
  for (const wire of wires(doc)) {
    if (wire.source.block !== old && wire.target.block !== old) continue;
    if (wire.target.block === old) changes.push(["wire", wire.id, null]);
    changes.push(["wire", endText(named(wire.target)), endText(named(wire.source))]);
  }
  for (const [id, note] of Object.entries(doc.note)) {
    if (!note.blocks?.includes(old)) continue;
    changes.push(["note", id, { ...note, blocks: note.blocks.map((other) => (other === old ? name : other)) }]);
  }
  return changes;
}

export type Place = { x: number; y: number };

/** Moves blocks and notes (keys "note:ID"). A group carries its blocks along when it is moved alone. */
export function move(doc: Doc, places: ReadonlyMap<string, Place>): Change[] {
  const changes: Change[] = [];
  for (const [key, place] of places) {
    const at: Position = [Math.round(place.x), Math.round(place.y)];
    const note = key.startsWith("note:") ? doc.note[key.slice(5)] : undefined;
    if (note) {
      if (!same(note.at, at)) changes.push(["note", key.slice(5), { ...note, at }]);
    } else if (key in doc.block && !same(doc.position[key], at)) changes.push(["position", key, at]);
  }
  return changes;
}

export function addNote(doc: Doc, note: Note): { id: string; changes: Change[] } {
  const id = freshNote(doc);
  return { id, changes: [["note", id, note]] };
}

/** Two tabs must not choose the same. */
export function freshNote(doc: Doc): string {
  const id = `n-${Math.random().toString(36).slice(2, 10)}`;
  return id in doc.note ? freshNote(doc) : id;
}

export function setNote(doc: Doc, id: string, values: Partial<Note>): Change[] {
  const note = doc.note[id];
  return note ? [["note", id, { ...note, ...values }]] : [];
}
