// Attributes as the texts that people type: "1,2,2,2,1", "SAME", "data_format_ = NDHWC;".
import type { AttributeType, Block, BlockType, Json } from "./page";

/** A value as text. Flat lists lose their brackets, as the blocks of the original write them. */
export function textOf(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return value;
  if (Array.isArray(value)) {
    if (value.every((item) => !Array.isArray(item))) return value.map((item) => textOf(item)).join(",");
    return JSON.stringify(value);
  }
  return String(value);
}

export function attributeText(type: AttributeType, block: Block): string {
  const value = block.attributes?.[type.name];
  return value === undefined ? type.text : textOf(value);
}

export function isSet(block: Block, name: string): boolean {
  return block.attributes?.[name] !== undefined;
}

/** The optional attributes in one text, as the original's grey `attrs` pin holds them. */
export function attrsText(type: BlockType, block: Block): string {
  return type.attributes
    .filter(({ name, required, kind }) => !required && kind !== "array" && isSet(block, name))
    .map((attribute) => `${attribute.name}_ = ${attributeText(attribute, block)};`)
    .join(" ");
}

/** Reads such a text. Every optional attribute that it does not name goes back to its default. */
export function parseAttrs(type: BlockType, text: string): Record<string, string | undefined> | string {
  const optional = type.attributes.filter(({ required, kind }) => !required && kind !== "array");
  const values: Record<string, string | undefined> = Object.fromEntries(optional.map(({ name }) => [name, undefined]));
  for (const part of text.split(";")) {
    if (part.trim() === "") continue;
    const match = /^\s*(\w+?)_?\s*=\s*(.*?)\s*$/.exec(part);
    if (!match) return `"${part.trim()}" is not of the form name_ = value`;
    const [, name = "", value = ""] = match;
    if (!optional.some((attribute) => attribute.name === name)) return `There is no attribute ${name}`;
    values[name] = value;
  }
  return values;
}

/** The numbers of a text such as "1,2,2,1"; null where it is something else. */
export function numbersOf(text: string): number[] | null {
  const parts = text.replace(/^\s*[[({]|[\])}]\s*$/g, "").split(",");
  const numbers = parts.map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
  return numbers.every(Number.isFinite) ? numbers : null;
}

/** The letters of the axes that the numbers of an attribute stand for; null where they do not. */
export function axesOf(type: BlockType, block: Block, attribute: AttributeType, count: number): string[] | null {
  const format = type.attributes.find(({ name }) => name === "data_format");
  if (!format || !["ksize", "strides", "pooling_ratio", "explicit_paddings"].includes(attribute.name)) return null;
  const letters = [...attributeText(format, block)];
  if (attribute.name === "explicit_paddings") {
    return letters.length * 2 === count ? letters.flatMap((letter) => [`${letter} before`, `${letter} after`]) : null;
  }
  return letters.length === count ? letters : null;
}

export type Filling = "zeros" | "ones" | "count" | "random";

/** Nested lists of a shape; null when the shape is not one or the page would become too large. */
export function filled(shape: readonly number[], how: Filling, random: () => number = Math.random): Json | null {
  const count = shape.reduce((product, n) => product * n, 1);
  if (!shape.every((n) => Number.isInteger(n) && n > 0) || count > 4096) return null;
  let next = 0;
  const value = () => {
    if (how === "zeros") return 0;
    if (how === "ones") return 1;
    return how === "count" ? next++ : Math.round(random() * 100) / 10;
  };
  const build = (depth: number): Json =>
    depth === shape.length ? value() : Array.from({ length: shape[depth] ?? 0 }, () => build(depth + 1));
  return build(0);
}
