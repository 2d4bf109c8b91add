// What a person does to a page. Every method is one whole step: one edit on the server, one undo.
import { fragment, parseFragment, paste } from "../model/clipboard";
import { type Change, difference, inverse } from "../model/doc";
import * as edits from "../model/edits";
import { type Move, record, redo, undo } from "../model/history";
import { align, arrange, type Box, type PinHeights, type Size } from "../model/layout";
import { type BlockType, type End, endText, type Json, type Note, type Position } from "../model/page";
import { refusal } from "../model/wiring";
import type { Changed } from "../protocol/messages";
import { NOTHING, type Selection } from "./state";
import type { Studio } from "./studio";

/** What only the canvas knows: how large things are and what part of the page is in view. */
export type Canvas = {
  size(name: string): Size;
  pinAt: PinHeights;
  centre(): { x: number; y: number };
  /** The whole page, however small. */
  fit(): void;
  /** The whole page or, where nothing could be read then, these blocks or the first ones. */
  overview(names?: readonly string[]): void;
  reveal(names: readonly string[]): void;
  /** Moves the view just so far that this rectangle is in it. */
  show(place: { x: number; y: number }, size: Size): void;
  /** Where blocks stand that have no place of their own. */
  loose(): ReadonlyMap<string, Position>;
};

/** How far apart blocks stand that feed each other, and the room a new one takes. */
const STEP = 368;
const WIDTH = 232;
const HEIGHT = 150;
/** The picture of a result below a block. */
const PICTURE = 120;

export class Editing {
  canvas: Canvas | null = null;
  private pasted = { text: "", times: 0 };

  constructor(private readonly studio: Studio) {}

  private get doc() {
    return this.studio.sync.doc;
  }

  /** Applies changes as one step that can be undone. */
  step(label: string, wanted: readonly Change[]): boolean {
    if (wanted.length === 0 || this.studio.state.loading) return false;
    const changes = [...this.settling(wanted), ...wanted];
    const before = inverse(this.doc, changes);
    this.studio.set({ history: record(this.studio.state.history, { label, changes, before }) });
    this.studio.sync.submit(changes, label);
    this.prune();
    return true;
  }

  /** Blocks without a place of their own get the one they are seen at with the first edit. */
  private settling(wanted: readonly Change[]): Change[] {
    const touched = new Set(
      wanted.flatMap(([kind, key, value]) => (kind === "position" || value === null ? [key] : [])),
    );
    return [...(this.canvas?.loose() ?? [])].flatMap(([name, at]): Change[] =>
      name in this.doc.block && !(name in this.doc.position) && !touched.has(name) ? [["position", name, at]] : [],
    );
  }

  undo(): void {
    this.travel("Undo", undo(this.studio.state.history, this.doc));
  }

  redo(): void {
    this.travel("Redo", redo(this.studio.state.history, this.doc));
  }

  private travel(word: string, found: Move | null): void {
    if (!found) return;
    this.studio.set({ history: found.history });
    if (found.changes.length) this.studio.sync.submit(found.changes, `${word} ${found.step.label}`);
    if (found.kept.length) {
      this.studio.notify("info", `${word}: what somebody else changed since stays as it is (${found.kept.length})`);
    }
    this.prune();
  }

  /** A step of somebody else, or of the server on our behalf; the latter can be undone like our own. */
  foreign(changed: Changed): void {
    const own = changed.by?.client === this.studio.state.welcome?.user.client;
    const before = inverse(this.doc, changed.changes);
    if (own && changed.version > this.studio.sync.version) {
      const step = { label: changed.label, changes: changed.changes, before };
      this.studio.set({ history: record(this.studio.state.history, step) });
    }
    this.studio.sync.receive(changed);
    this.prune();
  }

  /** The selection never names what is no longer there. */
  private prune(): void {
    const { selection } = this.studio.state;
    const there = (set: ReadonlySet<string>, of: object) => new Set([...set].filter((key) => key in of));
    const next = {
      blocks: there(selection.blocks, this.doc.block),
      wires: there(selection.wires, this.doc.wire),
      notes: there(selection.notes, this.doc.note),
    };
    const size = ({ blocks, wires, notes }: Selection) => blocks.size + wires.size + notes.size;
    if (size(next) !== size(selection)) this.studio.set({ selection: next });
  }

  select(blocks: Iterable<string>, wires: Iterable<string> = [], notes: Iterable<string> = []): void {
    this.studio.set({ selection: { blocks: new Set(blocks), wires: new Set(wires), notes: new Set(notes) } });
    this.studio.client.tell("presence", { selection: [...blocks] });
  }

  selectAll(): void {
    this.select(Object.keys(this.doc.block), Object.keys(this.doc.wire), Object.keys(this.doc.note));
  }

  /** Adds a block, wired to an end where one is given. Returns its name. */
  add(type: BlockType, at?: { x: number; y: number } | null, from?: { end: End; pin: string; toPin: boolean }): string {
    const place = at ?? this.free(this.beside() ?? this.canvas?.centre() ?? { x: 0, y: 0 });
    const { name, changes } = edits.addBlock(this.doc, type, [Math.round(place.x), Math.round(place.y)]);
    const all = [...changes];
    if (from) {
      const fresh: End = { block: name, pin: from.pin, index: null };
      all.push(...this.connection(from, fresh, type));
    }
    if (this.step(`Add ${type.type}`, all)) {
      this.select([name]);
      this.showAll([name]);
    }
    return name;
  }

  private connection(from: { end: End; toPin: boolean }, fresh: End, type: BlockType): Change[] {
    if (from.toPin) return edits.connect(this.doc, this.studio.state.palette, fresh, from.end);
    const many = type.inputs.find(({ name }) => name === fresh.pin)?.many ?? false;
    return [["wire", endText({ ...fresh, index: many ? 0 : null }), endText(from.end)]];
  }

  /** To the right of the one selected block, where the next one belongs. */
  private beside(): { x: number; y: number } | null {
    const [name, ...more] = this.studio.state.selection.blocks;
    const at = name === undefined || more.length ? undefined : this.doc.position[name];
    return at ? { x: at[0] + STEP, y: at[1] } : null;
  }

  /** The first place below the wanted one where a block covers no other. */
  private free({ x, y }: { x: number; y: number }): { x: number; y: number } {
    const taken = Object.entries(this.doc.position).map(([name, [left, top]]) => ({ left, top, ...this.sizeOf(name) }));
    const covers = (top: number) =>
      taken.find(
        (box) =>
          x < box.left + box.width && x + WIDTH > box.left && top < box.top + box.height && top + HEIGHT > box.top,
      );
    for (let tries = taken.length, box = covers(y); box && tries > 0; tries--, box = covers(y))
      y = box.top + box.height + 24;
    return { x, y };
  }

  private sizeOf(name: string): Size {
    return this.canvas?.size(name) ?? { width: WIDTH, height: HEIGHT };
  }

  /** Draws a wire, or says why not. */
  connect(source: End, target: End): boolean {
    const { palette, inference } = this.studio.state;
    const why = refusal(this.doc, palette, inference.outputs, source, target);
    if (why !== null) {
      this.studio.notify("bad", why);
      return false;
    }
    const label = `Wire ${source.block} to ${target.block}`;
    return this.step(label, edits.connect(this.doc, palette, source, target));
  }

  /** Moves one end of a wire; dropping it nowhere takes it away. */
  reconnect(old: string, source: End, target: End): void {
    const { palette, inference } = this.studio.state;
    const gone = edits.disconnect(this.doc, old);
    const without = {
      ...this.doc,
      wire: Object.fromEntries(Object.entries(this.doc.wire).filter(([key]) => key !== old)),
    } as typeof this.doc;
    const why = refusal(without, palette, inference.outputs, source, target);
    if (why !== null) this.studio.notify("bad", why);
    else this.step("Move a wire", [...gone, ...edits.connect(without, palette, source, target)]);
  }

  disconnect(wire: string): void {
    this.step("Remove a wire", edits.disconnect(this.doc, wire));
  }

  removeSelected(): void {
    const { blocks, notes, wires } = this.studio.state.selection;
    const count = blocks.size + notes.size + wires.size;
    const label = count === 1 ? `Delete ${[...blocks, ...notes, ...wires][0]}` : `Delete ${count} things`;
    if (this.step(label, edits.remove(this.doc, blocks, notes, wires))) this.studio.set({ selection: NOTHING });
  }

  setAttributes(name: string, values: Record<string, Json | undefined>): void {
    this.step(`Set ${Object.keys(values).join(", ")} of ${name}`, edits.setAttributes(this.doc, name, values));
  }

  rename(old: string, name: string): void {
    if (this.step(`Rename ${old} to ${name}`, edits.rename(this.doc, old, name))) this.select([name]);
  }

  setPage(field: string, value: Json): void {
    this.step(`Set ${field}`, [["page", field, value]]);
  }

  move(places: ReadonlyMap<string, { x: number; y: number }>): void {
    const label = places.size === 1 ? `Move ${[...places.keys()][0]}` : `Move ${places.size} things`;
    this.step(label, edits.move(this.doc, places));
  }

  /** Lays out the selection, or the whole page where less than two blocks are selected. */
  layout(): void {
    const { canvas } = this;
    if (!canvas) return;
    const chosen = [...this.studio.state.selection.blocks];
    const names = chosen.length > 1 ? chosen : Object.keys(this.doc.block);
    if (names.length === 0) return;
    const places = arrange(this.doc, names, canvas.size, canvas.pinAt);
    const corner = (axis: 0 | 1) => Math.min(...names.map((name) => this.doc.position[name]?.[axis] ?? 0));
    const origin = { x: corner(0), y: corner(1) };
    const moved = new Map([...places].map(([name, { x, y }]) => [name, { x: x + origin.x, y: y + origin.y }]));
    this.step("Lay out", edits.move(this.doc, moved));
    if (chosen.length <= 1) canvas.fit();
  }

  align(how: Parameters<typeof align>[1]): void {
    const { canvas } = this;
    if (!canvas) return;
    const boxes: Box[] = [...this.studio.state.selection.blocks].flatMap((name) => {
      const at = this.doc.position[name];
      return at ? [{ name, x: at[0], y: at[1], ...canvas.size(name) }] : [];
    });
    if (boxes.length > 1) this.step(`Align ${boxes.length} blocks`, edits.move(this.doc, align(boxes, how)));
  }

  comment(): void {
    const at = this.canvas?.centre() ?? { x: 0, y: 0 };
    const note: Note = { text: "Double-click to write", at: [Math.round(at.x), Math.round(at.y)], size: [240, 88] };
    const { id, changes } = edits.addNote(this.doc, note);
    this.step("Add a comment", changes);
    this.select([], [], [id]);
  }

  /** A frame around the selected blocks. */
  group(): void {
    const names = [...this.studio.state.selection.blocks];
    const { canvas } = this;
    if (names.length === 0 || !canvas) return;
    const boxes = names.map((name) => ({ at: this.doc.position[name] ?? [0, 0], size: canvas.size(name) }));
    const x = Math.min(...boxes.map(({ at }) => at[0])) - 24;
    const y = Math.min(...boxes.map(({ at }) => at[1])) - 24;
    const w = Math.max(...boxes.map(({ at, size }) => at[0] + size.width)) + 24 - x;
    const h = Math.max(...boxes.map(({ at, size }) => at[1] + size.height)) + 24 - y;
    const note: Note = { text: "Group", at: [x, y], size: [w, h], blocks: names };
    const { id, changes } = edits.addNote(this.doc, note);
    this.step(`Group ${names.length} blocks`, changes);
    this.select([], [], [id]);
  }

  setNote(id: string, values: Partial<Note>): void {
    this.step("Edit a comment", edits.setNote(this.doc, id, values));
  }

  /** The selection as JSON text; empty when nothing is selected. */
  copied(): string {
    const { blocks, notes } = this.studio.state.selection;
    if (blocks.size + notes.size === 0) return "";
    return JSON.stringify(fragment(this.doc, blocks, notes), null, 2);
  }

  paste(text: string): void {
    const found = parseFragment(text);
    if (typeof found === "string") {
      this.studio.notify("bad", found);
      return;
    }
    const times = this.pasted.text === text ? this.pasted.times + 1 : 1;
    this.pasted = { text, times };
    const { names, notes, changes, unknown } = paste(this.doc, this.studio.state.palette, found, {
      x: 32 * times,
      y: 32 * times,
    });
    if (unknown.length) this.studio.notify("bad", `There is no block type ${unknown.join(", ")} here`);
    if (this.step(names.length === 1 ? `Paste ${names[0]}` : `Paste ${names.length} blocks`, changes)) {
      this.select(names, [], notes);
      this.showAll(names);
    }
  }

  /** Brings blocks into view. */
  private showAll(names: readonly string[]): void {
    const boxes = names.map((name) => ({ at: this.doc.position[name] ?? [0, 0], size: this.sizeOf(name) }));
    if (boxes.length === 0) return;
    const x = Math.min(...boxes.map(({ at }) => at[0]));
    const y = Math.min(...boxes.map(({ at }) => at[1]));
    const width = Math.max(...boxes.map(({ at, size }) => at[0] + size.width)) - x;
    const height = Math.max(...boxes.map(({ at, size }) => at[1] + size.height)) - y;
    this.canvas?.show({ x, y }, { width, height });
  }

  duplicate(): void {
    const text = this.copied();
    if (text) this.paste(text);
  }

  async gradients(outputs: string[], inputs: string[]): Promise<boolean> {
    this.step("Lay out", this.settling([]));
    const done = await this.studio.askAboutPage<{ blocks?: string[] }>("gradients", { outputs, inputs });
    if (!done) return false;
    const blocks = (done.blocks ?? []).filter((name) => name in this.doc.block);
    this.placeBelow(blocks);
    this.studio.notify("info", `Added ${blocks.length} gradient block${blocks.length === 1 ? "" : "s"}`);
    this.select(blocks);
    this.canvas?.overview(blocks);
    return true;
  }

  /** Lays out blocks that have just been added in rows of their own below the others; part of the step that added them. */
  private placeBelow(names: readonly string[]): void {
    const { canvas } = this;
    const { past, future } = this.studio.state.history;
    const last = past.at(-1);
    const others = Object.entries(this.doc.position).filter(([name]) => !names.includes(name));
    if (!canvas || !last || names.length === 0 || others.length === 0) return;
    const left = Math.min(...others.map(([, [x]]) => x));
    const bottom = Math.max(...others.map(([name, [, y]]) => y + canvas.size(name).height));
    const size = (name: string) => ({ ...canvas.size(name), height: canvas.size(name).height + PICTURE });
    const places = new Map(
      [...arrange(this.doc, names, size, canvas.pinAt)].map(([name, { x, y }]) => [
        name,
        { x: x + left, y: y + bottom + 96 },
      ]),
    );
    const changes = edits.move(this.doc, places);
    this.studio.set({
      history: { past: [...past.slice(0, -1), { ...last, changes: [...last.changes, ...changes] }], future },
    });
    this.studio.sync.submit(changes, "Lay out the gradients");
  }

  /** After a conflict: send my version again on top of theirs, or let theirs stand. */
  resolve(keep: "mine" | "theirs"): void {
    const { conflict } = this.studio.state;
    this.studio.set({ conflict: null });
    if (!conflict || keep === "theirs") return;
    const wanted = conflict.mine.changes;
    this.step(conflict.mine.label, wanted);
  }

  /** Takes over another state of the whole page as one step. */
  replace(label: string, doc: typeof this.doc): void {
    this.step(label, difference(this.doc, doc));
  }
}
