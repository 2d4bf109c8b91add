// Whether a wire may be drawn, and why not: said at once while it is dragged. What needs shapes is the server's word.
import type { Doc } from "./doc";
import { wires } from "./edits";
import type { End, Palette, PinType } from "./page";

export type Spec = { dtype: string | null; shape: (number | null)[] | null };
export type Specs = Readonly<Record<string, Spec>>;

export function pinOf(doc: Doc, palette: Palette, end: End): PinType | undefined {
  const type = doc.block[end.block]?.type;
  return type === undefined ? undefined : palette.types.get(type)?.inputs.find(({ name }) => name === end.pin);
}

/** Why `source` may not be wired to `target`; null where it may. */
export function refusal(doc: Doc, palette: Palette, specs: Specs, source: End, target: End): string | null {
  const pin = pinOf(doc, palette, target);
  if (!doc.block[source.block] || !pin) return "There is no such pin";
  if (source.block === target.block || reaches(doc, target.block, source.block)) {
    return `This wire would close a circle: ${source.block} already depends on ${target.block}`;
  }
  const dtype = specs[`${source.block}.${source.pin}`]?.dtype ?? null;
  return dtypeRefusal(pin, dtype, `${source.block}.${source.pin}`);
}

function dtypeRefusal(pin: PinType, dtype: string | null, source: string): string | null {
  const allowed = pin.dtypes;
  if (dtype === null || !allowed?.length || allowed.includes(dtype)) return null;
  return `${pin.name} takes ${allowed.length > 4 ? `${allowed.slice(0, 4).join(", ")}, …` : allowed.join(" or ")}, but ${source} is ${dtype}`;
}

/** Whether data flows from one block to another. */
export function reaches(doc: Doc, from: string, to: string): boolean {
  const next = new Map<string, string[]>();
  for (const { source, target } of wires(doc)) {
    const list = next.get(source.block);
    if (list) list.push(target.block);
    else next.set(source.block, [target.block]);
  }
  const seen = new Set([from]);
  const queue = [from];
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    if (name === to) return true;
    for (const other of next.get(name) ?? []) {
      if (!seen.has(other)) {
        seen.add(other);
        queue.push(other);
      }
    }
  }
  return false;
}

/** Pins of a page that a source can be wired to, unwired ones first. */
export function openPins(doc: Doc, palette: Palette, specs: Specs, source: End): End[] {
  const wired = new Set(wires(doc).map(({ target }) => `${target.block}.${target.pin}`));
  const found: { end: End; taken: boolean }[] = [];
  for (const [block, { type }] of Object.entries(doc.block)) {
    for (const pin of palette.types.get(type)?.inputs ?? []) {
      const end = { block, pin: pin.name, index: null };
      if (refusal(doc, palette, specs, source, end) !== null) continue;
      found.push({ end, taken: wired.has(`${block}.${pin.name}`) && !pin.many });
    }
  }
  return found.sort((a, b) => Number(a.taken) - Number(b.taken)).map(({ end }) => end);
}

/** Outputs of a page that may be wired to a pin. */
export function openOutputs(doc: Doc, palette: Palette, specs: Specs, target: End): End[] {
  const found: End[] = [];
  for (const [block, { type }] of Object.entries(doc.block)) {
    for (const output of palette.types.get(type)?.outputs ?? []) {
      const end = { block, pin: output.name, index: null };
      if (refusal(doc, palette, specs, end, target) === null) found.push(end);
    }
  }
  return found;
}
