// The words of a page: blocks, wires, notes, and the palette they come from. One name for one thing, as in Python.

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

export type Block = { type: string; attributes?: Readonly<Record<string, Json>> };

export type Position = readonly [x: number, y: number];

/** A comment; with `blocks` the frame of a group. */
export type Note = {
  text: string;
  at: readonly [number, number];
  size: readonly [number, number];
  color?: string;
  blocks?: string[];
};

export type PinType = {
  name: string;
  kind: string;
  required: boolean;
  many: boolean;
  text: boolean;
  dtypes?: string[];
  doc: string;
};

/** `dtypes` are those that it may have; none means any. */
export type OutputType = { name: string; kind: string; dtypes: string[]; doc: string };

export type AttributeType = {
  name: string;
  kind: "ints" | "floats" | "int" | "float" | "bool" | "string" | "type" | "array" | "file" | (string & {});
  required: boolean;
  default: Json;
  text: string;
  choices: string[];
  doc: string;
};

export type BlockType = {
  type: string;
  group: string;
  summary: string;
  doc: string;
  inputs: PinType[];
  outputs: OutputType[];
  attributes: AttributeType[];
  pooling: boolean;
  differentiable: string[];
};

export type Palette = { list: BlockType[]; types: ReadonlyMap<string, BlockType> };

export function paletteOf(list: BlockType[]): Palette {
  return { list, types: new Map(list.map((type) => [type.type, type])) };
}

/** One end of a wire. `index` counts the wires of a pin that takes many. */
export type End = { block: string; pin: string; index: number | null };

/** A wire is known by the pin it ends at, since a pin takes one wire (or one for each index). */
export type Wire = { id: string; source: End; target: End };

const ARROW = " -> ";

export function parseEnd(text: string): End {
  const dot = text.indexOf(".");
  const match = /^(.*?)(?:\[(\d+)\])?$/.exec(text.slice(dot + 1));
  return {
    block: text.slice(0, dot),
    pin: match?.[1] ?? "",
    index: match?.[2] === undefined ? null : Number(match[2]),
  };
}

export function endText(end: End): string {
  return `${end.block}.${end.pin}${end.index === null ? "" : `[${end.index}]`}`;
}

export function wireOf(source: string, target: string): Wire {
  return { id: target, source: parseEnd(source), target: parseEnd(target) };
}

/** As the page file writes it: "x.output -> pool.input". */
export function wireText({ source, target }: Pick<Wire, "source" | "target">): string {
  return endText(source) + ARROW + endText(target);
}

export function parseWire(text: string): Wire {
  const [source = "", target = ""] = text.split(ARROW);
  return wireOf(source, target);
}

const NAME = /^[\p{L}\p{N}_-]+(\/[\p{L}\p{N}_-]+)*$/u;

/** Why a block may not have this name; null where it may. */
export function nameFault(name: string, taken: (name: string) => boolean): string | null {
  if (name === "") return "A block needs a name";
  if (name.length > 200) return "A name has at most 200 characters";
  if (!NAME.test(name)) return "Letters, digits, _ and -; / for sub-scopes";
  return taken(name) ? "Another block has this name" : null;
}

/** The name itself, or with the first free number behind it. */
export function uniqueName(name: string, taken: (name: string) => boolean): string {
  if (!taken(name)) return name;
  const stem = name.replace(/_\d+$/, "");
  for (let n = 1; ; n++) if (!taken(`${stem}_${n}`)) return `${stem}_${n}`;
}

/** The hue of a block: what family it belongs to. */
export function family(type: string, group: string): string {
  if (type.startsWith("Fractional")) return "fractional";
  if (group.includes("pooling")) return type.startsWith("Avg") ? "avg" : "max";
  if (group === "Data") return "data";
  return group === "Session" ? "session" : "math";
}
