// Whether a wire may be drawn, and why not: said at once while it is dragged. What needs shapes is the server's word.
import type { Doc } from "./doc";
import { wires } from "./edits";
import type { BlockType, End, OutputType, Palette, PinType } from "./page";

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

export type Fit = { type: BlockType; pin: string };

/** Block types for the loose end of a wire that begins at an output, each with the first pin that takes it. */
export function takersOf(palette: Palette, specs: Specs, source: End): Fit[] {
  const dtype = specs[`${source.block}.${source.pin}`]?.dtype ?? null;
  return palette.list.flatMap((type) => {
    const pin = type.inputs.find((input) => dtypeRefusal(input, dtype, "") === null);
    return pin ? [{ type, pin: pin.name }] : [];
  });
}

/** Block types for the loose end of a wire that ends at a pin, each with its first output that fits. Where a pin wants
 * a shape or an index, what is made for that comes first. */
export function givers(doc: Doc, palette: Palette, specs: Specs, target: End): Fit[] {
  const taken = new Set(dtypesAt(doc, palette, specs, target));
  const kind = pinOf(doc, palette, target)?.kind ?? "tensor";
  const particular = kind !== "tensor";
  const fits = ({ dtypes, kind: own }: OutputType) =>
    (!particular || own === "tensor" || own === kind) &&
    (taken.size === 0 || dtypes.length === 0 || dtypes.some((dtype) => taken.has(dtype)));
  const certain = (dtypes: readonly string[]) =>
    particular && dtypes.length > 0 && dtypes.every((dtype) => taken.has(dtype));
  const found = palette.list.flatMap((type) => {
    const outputs = type.outputs.filter(fits);
    const output = outputs.find(({ dtypes }) => certain(dtypes)) ?? outputs[0];
    return output ? [{ type, pin: output.name, sure: certain(output.dtypes) }] : [];
  });
  return found.sort((a, b) => Number(b.sure) - Number(a.sure)).map(({ type, pin }) => ({ type, pin }));
}

/** What a pin takes: if another pin of its kind is wired already, only what comes in there. */
function dtypesAt(doc: Doc, palette: Palette, specs: Specs, target: End): readonly string[] {
  const pin = pinOf(doc, palette, target);
  const type = palette.types.get(doc.block[target.block]?.type ?? "");
  if (!pin || !type) return [];
  for (const other of type.inputs) {
    if (other.name === pin.name || other.dtypes?.join() !== pin.dtypes?.join() || other.kind !== pin.kind) continue;
    const dtype = specs[doc.wire[`${target.block}.${other.name}`] ?? ""]?.dtype;
    if (dtype) return [dtype];
  }
  return pin.dtypes ?? [];
}
