// The page as an SVG document that needs nothing else: blocks, pins, typed texts, wires with their shapes, notes, and
// the small heat maps as embedded images.

import { attributeText, isSet } from "../model/attributes";
import { wayOf } from "../model/curve";
import type { Doc } from "../model/doc";
import { wires } from "../model/edits";
import { BLOCK_WIDTH, blockHeight, HEAD, pinHeight, ROW, TYPED_ROW } from "../model/geometry";
import { type Block, type BlockType, family, type Palette } from "../model/page";
import type { Specs } from "../model/wiring";
import { shapeText } from "./number";

export type Picture = { url: string; facts: string };

type Look = { ground: string; surface: string; line: string; ink: string; soft: string; wire: string; comment: string };

const LIGHT: Look = {
  ground: "#f4f5f3",
  surface: "#fff",
  line: "#b5bcb9",
  ink: "#16211f",
  soft: "#4b5755",
  wire: "#7a8b88",
  comment: "#fff8df",
};
const DARK: Look = {
  ground: "#121716",
  surface: "#202827",
  line: "#4c5956",
  ink: "#e8eeec",
  soft: "#b3bebb",
  wire: "#748582",
  comment: "#2f2b1b",
};

const FAMILIES: Record<string, string> = {
  max: "#2f6f9f",
  avg: "#1d8a6e",
  fractional: "#8250c4",
  data: "#b07d10",
  math: "#6b7674",
  session: "#b4487b",
};

const PICTURE = 92;
const FACTS = 22;
const SANS = "system-ui, sans-serif";
const MONO = "ui-monospace, monospace";

export type Source = {
  doc: Doc;
  palette: Palette;
  specs: Specs;
  pictures: ReadonlyMap<string, Picture>;
  dark: boolean;
};

export function pageSvg({ doc, palette, specs, pictures, dark }: Source): string {
  const look = dark ? DARK : LIGHT;
  const blocks = Object.entries(doc.block).flatMap(([name, block]) => {
    const type = palette.types.get(block.type);
    const [x, y] = doc.position[name] ?? [0, 0];
    const at = { x, y };
    if (!type) return [];
    const picture = pictures.get(name);
    const height = blockHeight(type, block) + (picture ? PICTURE + FACTS : 0);
    return [{ name, block, type, at, picture, height }];
  });
  const notes = Object.values(doc.note);
  const x0 = Math.min(...blocks.map(({ at }) => at.x), ...notes.map((note) => note.at[0])) - 32;
  const y0 = Math.min(...blocks.map(({ at }) => at.y), ...notes.map((note) => note.at[1])) - 40;
  const x1 =
    Math.max(...blocks.map(({ at }) => at.x + BLOCK_WIDTH), ...notes.map((note) => note.at[0] + note.size[0])) + 32;
  const y1 =
    Math.max(...blocks.map(({ at, height }) => at.y + height), ...notes.map((note) => note.at[1] + note.size[1])) + 32;
  const [width, height] = Number.isFinite(x0) ? [x1 - x0, y1 - y0] : [400, 240];
  const box = Number.isFinite(x0) ? `${x0} ${y0} ${width} ${height}` : `0 0 ${width} ${height}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="${box}" font-family="${SANS}" font-size="12">`,
    `<rect x="${box.split(" ")[0]}" y="${box.split(" ")[1]}" width="${width}" height="${height}" fill="${look.ground}"/>`,
    ...notes.map((note) => noteSvg(note, look)),
    ...wiresSvg(doc, palette, specs, look),
    ...blocks.map((one) => blockSvg(one.name, one.block, one.type, one.at, one.height, one.picture, look)),
    "</svg>",
  ].join("\n");
}

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

function noteSvg(note: Doc["note"][string], look: Look): string {
  const [[x, y], [w, h]] = [note.at, note.size];
  const text = escaped(note.text);
  if (note.blocks) {
    return `<rect x="${x}" y="${y}" width="${w}" height="${h}" rx="12" fill="none" stroke="${look.line}" stroke-dasharray="5 4"/><text x="${x + 4}" y="${y - 8}" fill="${look.soft}" font-weight="600">${text}</text>`;
  }
  const lines = text.split("\n").map((line, i) => `<tspan x="${x + 12}" dy="${i === 0 ? 0 : 17}">${line}</tspan>`);
  return `<rect x="${x}" y="${y}" width="${w}" height="${h}" rx="8" fill="${look.comment}" stroke="${look.line}"/><text x="${x + 12}" y="${y + 22}" fill="${look.ink}">${lines.join("")}</text>`;
}

function wiresSvg(doc: Doc, palette: Palette, specs: Specs, look: Look): string[] {
  const typeOf = (name: string) => palette.types.get(doc.block[name]?.type ?? "");
  const labelled = new Set<string>();
  const paths: string[] = [];
  const labels: string[] = [];
  for (const { source, target } of wires(doc)) {
    const [from, to] = [doc.position[source.block] ?? [0, 0], doc.position[target.block] ?? [0, 0]];
    const rise = pinHeight(typeOf(target.block), target.pin, "in");
    const lane = typeOf(target.block)?.inputs.findIndex(({ name }) => name === target.pin) ?? 0;
    const start = { x: from[0] + BLOCK_WIDTH, y: from[1] + pinHeight(typeOf(source.block), source.pin, "out") };
    const { path, label } = wayOf(start, { x: to[0], y: to[1] + rise }, rise, lane);
    paths.push(`<path d="${path}" fill="none" stroke="${look.wire}" stroke-width="2"/>`);
    const spec = specs[`${source.block}.${source.pin}`];
    const way = `${source.block}.${source.pin} ${target.block}`;
    if (!spec || labelled.has(way)) continue;
    labelled.add(way);
    labels.push(labelSvg(`${shapeText(spec.shape)} ${spec.dtype ?? "?"}`, label.x, label.y, look));
  }
  return [...paths, ...labels];
}

function labelSvg(text: string, x: number, y: number, look: Look): string {
  const style = `fill="${look.soft}" stroke="${look.ground}" stroke-width="5" paint-order="stroke" stroke-linejoin="round"`;
  return `<text x="${x}" y="${y + 3.5}" text-anchor="middle" font-family="${MONO}" font-size="10.5" ${style}>${escaped(text)}</text>`;
}

function blockSvg(
  name: string,
  block: Block,
  type: BlockType,
  at: { x: number; y: number },
  height: number,
  picture: Picture | undefined,
  look: Look,
): string {
  const { x, y } = at;
  const parts = [
    `<rect x="${x}" y="${y}" width="${BLOCK_WIDTH}" height="${height}" rx="9" fill="${FAMILIES[family(type.type, type.group)]}"/>`,
    `<path d="${belowBand(x, y, height)}" fill="${look.surface}"/>`,
    `<rect x="${x}" y="${y}" width="${BLOCK_WIDTH}" height="${height}" rx="9" fill="none" stroke="${look.line}"/>`,
    `<text x="${x + 11}" y="${y + 22}" fill="${look.ink}" font-size="13" font-weight="650">${escaped(clip(name, 28))}</text>`,
    name === type.type
      ? ""
      : `<text x="${x + 11}" y="${y + 36}" fill="${look.soft}" font-size="11">${escaped(type.type)}</text>`,
  ];
  type.inputs.forEach((pin, i) => {
    const py = y + HEAD + i * ROW + ROW / 2;
    parts.push(
      pin.text
        ? `<rect x="${x - 4.5}" y="${py - 4.5}" width="9" height="9" rx="2" fill="#b9bfbd" stroke="#68726f"/>`
        : `<circle cx="${x}" cy="${py}" r="5.5" fill="#f4c20d" stroke="#7c5e00"/>`,
      `<text x="${x + 12}" y="${py + 4}" fill="${look.soft}">${escaped(pin.name)}</text>`,
    );
  });
  type.outputs.forEach((output, i) => {
    const py = y + HEAD + i * ROW + ROW / 2;
    parts.push(
      `<circle cx="${x + BLOCK_WIDTH}" cy="${py}" r="5.5" fill="#f4c20d" stroke="#7c5e00"/>`,
      `<text x="${x + BLOCK_WIDTH - 12}" y="${py + 4}" text-anchor="end" fill="${look.soft}">${escaped(output.name)}</text>`,
    );
  });
  const top = y + HEAD + Math.max(type.inputs.length, type.outputs.length) * ROW + 9;
  type.attributes
    .filter((attribute) => attribute.required || isSet(block, attribute.name))
    .forEach((attribute, i) => {
      const py = top + i * TYPED_ROW + TYPED_ROW / 2;
      parts.push(
        `<rect x="${x - 4.5}" y="${py - 4.5}" width="9" height="9" rx="2" fill="#b9bfbd" stroke="#68726f"/>`,
        `<text x="${x + 12}" y="${py + 4}" fill="${look.soft}">${escaped(attribute.name)}</text>`,
        `<text x="${x + BLOCK_WIDTH - 12}" y="${py + 4}" text-anchor="end" fill="${look.ink}" font-family="${MONO}" font-size="11">${escaped(clip(attributeText(attribute, block), 18))}</text>`,
      );
    });
  if (picture) {
    const py = y + height - PICTURE - FACTS;
    parts.push(
      `<image x="${x + 1}" y="${py}" width="${BLOCK_WIDTH - 2}" height="${PICTURE}" href="${picture.url}" style="image-rendering:pixelated"/>`,
      `<text x="${x + 10}" y="${y + height - 8}" fill="${look.soft}" font-family="${MONO}" font-size="10.5">${escaped(picture.facts)}</text>`,
    );
  }
  return `<g>${parts.join("")}</g>`;
}

/** The body of a block: all but the coloured band at its top. */
function belowBand(x: number, y: number, height: number): string {
  const [right, bottom] = [x + BLOCK_WIDTH, y + height];
  return `M${x} ${y + 4}H${right}V${bottom - 9}a9 9 0 0 1 -9 9H${x + 9}a9 9 0 0 1 -9 -9z`;
}

function clip(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** The SVG as pixels. */
export async function rasterise(svg: string, scale: number): Promise<Blob> {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.min(16384, image.width * scale);
    canvas.height = Math.min(16384, image.height * scale);
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture is too large"))), "image/png");
    });
  } finally {
    URL.revokeObjectURL(url);
  }
}
