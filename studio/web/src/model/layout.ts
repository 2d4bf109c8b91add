// Auto-layout from left to right. dagre chooses columns; it does not know where on a block a pin sits, so the order
// inside each column is then improved with the pins' true places until no swap of neighbours removes a crossing.
// A long chain goes on in the next row, as text does, cut where the fewest wires are.
import { layout as dagre, Graph } from "@dagrejs/dagre";
import type { Doc } from "./doc";
import type { Place } from "./edits";
import { wires } from "./edits";

export type Size = { width: number; height: number };

/** Where the pins of a block are, measured from its top. */
export type PinHeights = (block: string, pin: string, side: "in" | "out") => number;

const COLUMN_GAP = 136;
const ROW_GAP = 36;
/** Between the rows of a page that is wrapped. */
const BAND_GAP = 120;
/** Pages wider than this cannot be read as a whole: they are wrapped, if they are so much wider than high, into a shape. */
const WIDEST = 1900;
const FLATTEST = 2;
const SHAPE = 1.5;
const SWEEPS = 12;
/** A wire that passes a column takes room there like a low block, and bends less readily than a block moves. */
const PASSAGE: Size = { width: 0, height: 4 };
const STIFFNESS = 8;

type Link = { from: string; to: string; out: number; in: number };
type SizeOf = (name: string) => Size;

export function arrange(doc: Doc, names: readonly string[], size: SizeOf, pinAt: PinHeights): Map<string, Place> {
  const links = linksOf(doc, new Set(names), pinAt);
  const columns = columnsOf(names, size, links);
  const whole = band(columns, links, size);
  const { width, height } = extent(whole, size);
  if (width <= Math.max(WIDEST, FLATTEST * height)) return whole;
  const rows = Math.max(2, Math.round(Math.sqrt(width / (SHAPE * (height + BAND_GAP)))));
  const places = new Map<string, Place>();
  let top = 0;
  for (const part of wrapped(columns, links, rows)) {
    const row = band(part, links, size);
    for (const [name, { x, y }] of row) places.set(name, { x, y: y + top });
    top += extent(row, size).height + BAND_GAP;
  }
  return places;
}

/** Columns side by side, as one row of the page; wires from and to other rows do not count. */
function band(columns: readonly (readonly string[])[], links: readonly Link[], size: SizeOf): Map<string, Place> {
  const real = new Set(columns.flat());
  const inside = links.filter(({ from, to }) => real.has(from) && real.has(to));
  const filled = columns.map((column) => [...column]);
  const ties = tiesOf(throughColumns(filled, inside));
  const sizeOf: SizeOf = (name) => (real.has(name) ? size(name) : PASSAGE);
  order(filled, ties, sizeOf);
  return place(filled, ties, sizeOf, real);
}

function extent(places: ReadonlyMap<string, Place>, size: SizeOf): Size {
  const boxes = [...places].map(([name, at]) => ({ ...at, ...size(name) }));
  return {
    width: Math.max(0, ...boxes.map(({ x, width }) => x + width)),
    height: Math.max(0, ...boxes.map(({ y, height }) => y + height)),
  };
}

/** The columns in so many rows of about equal length, cut where the fewest wires go on into the next row. */
function wrapped(columns: readonly string[][], links: readonly Link[], rows: number): string[][][] {
  const columnOf = new Map(columns.flatMap((column, c) => column.map((name) => [name, c] as const)));
  const cut = (at: number) => {
    const across = links.filter(({ from, to }) => (columnOf.get(from) ?? 0) < at && (columnOf.get(to) ?? 0) >= at);
    return new Set(across.map(({ from, out }) => `${from} ${out}`)).size;
  };
  const fair = columns.length / rows;
  const breaks = [0];
  for (let row = 1; row < rows; row++) {
    const [middle, first] = [Math.round(row * fair), (breaks.at(-1) ?? 0) + 1];
    const near = [0, 1, -1].map((by) => middle + by).filter((at) => at >= first && at < columns.length);
    breaks.push(near.reduce((best, at) => (cut(at) < cut(best) ? at : best), near[0] ?? first));
  }
  return breaks.map((from, i) => columns.slice(from, breaks[i + 1])).filter((part) => part.length > 0);
}

/** Cuts wires that skip columns into pieces; in every column they pass they get a passage of their own. */
function throughColumns(columns: string[][], links: readonly Link[]): Link[] {
  const columnOf = new Map(columns.flatMap((column, c) => column.map((name) => [name, c] as const)));
  const pieces: Link[] = [];
  for (const link of links) {
    let [from, out] = [link.from, link.out];
    for (let c = (columnOf.get(link.from) ?? 0) + 1; c < (columnOf.get(link.to) ?? 0); c++) {
      // Wires from one pin share their way.
      const passage = `~${link.from} ${link.out} ${c}`;
      if (!columnOf.has(passage)) {
        columnOf.set(passage, c);
        columns[c]?.push(passage);
        pieces.push({ from, to: passage, out, in: 0 });
      }
      [from, out] = [passage, 0];
    }
    pieces.push({ from, to: link.to, out, in: link.in });
  }
  return pieces;
}

function linksOf(doc: Doc, names: ReadonlySet<string>, pinAt: PinHeights): Link[] {
  return wires(doc)
    .filter(({ source, target }) => names.has(source.block) && names.has(target.block))
    .map(({ source, target }) => ({
      from: source.block,
      to: target.block,
      out: pinAt(source.block, source.pin, "out"),
      in: pinAt(target.block, target.pin, "in") + (target.index ?? 0) * 0.01,
    }));
}

/** Blocks by column, each column from top to bottom as dagre orders them. */
function columnsOf(names: readonly string[], size: SizeOf, links: readonly Link[]): string[][] {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", ranksep: COLUMN_GAP, nodesep: ROW_GAP, ranker: "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const name of names) graph.setNode(name, { ...size(name) });
  links.forEach(({ from, to }, i) => {
    graph.setEdge(from, to, {}, String(i));
  });
  dagre(graph);
  const found = names.map((name) => ({ name, ...(graph.node(name) as { x?: number; y?: number; rank?: number }) }));
  const ranks = new Map(found.map(({ name, x = 0, rank }) => [name, rank ?? Math.round(x)]));
  early(ranks, links);
  const byRank = new Map<number, { name: string; y: number }[]>();
  for (const { name, y = 0 } of found) {
    const column = ranks.get(name) ?? 0;
    byRank.set(column, [...(byRank.get(column) ?? []), { name, y }]);
  }
  return [...byRank.entries()]
    .sort(([a], [b]) => a - b)
    .map(([, column]) => column.sort((a, b) => a.y - b.y).map(({ name }) => name));
}

/** Where it makes no wire longer, a block stands right behind what feeds it rather than before what reads it. */
function early(ranks: Map<string, number>, links: readonly Link[]): void {
  const sources = new Map<string, string[]>();
  const readers = new Map<string, number>();
  for (const { from, to } of links) {
    sources.set(to, [...(sources.get(to) ?? []), from]);
    readers.set(from, (readers.get(from) ?? 0) + 1);
  }
  for (const [name] of [...ranks].sort(([, a], [, b]) => a - b)) {
    const feeding = sources.get(name) ?? [];
    if (feeding.length === 0 || feeding.length < (readers.get(name) ?? 0)) continue;
    const behind = Math.max(...feeding.map((source) => ranks.get(source) ?? 0));
    const next = Math.min(...[...ranks.values()].filter((rank) => rank > behind));
    ranks.set(name, Math.min(ranks.get(name) ?? next, next));
  }
}

/** What a block is wired to on either side: the other block, the pin's height there, and our own pin's. */
type Tie = { other: string; there: number; here: number };
type Ties = ReadonlyMap<string, { left: Tie[]; right: Tie[] }>;

function tiesOf(links: readonly Link[]): Ties {
  const ties = new Map<string, { left: Tie[]; right: Tie[] }>();
  const of = (name: string) => {
    const found = ties.get(name) ?? { left: [], right: [] };
    ties.set(name, found);
    return found;
  };
  for (const link of links) {
    of(link.to).left.push({ other: link.from, there: link.out, here: link.in });
    of(link.from).right.push({ other: link.to, there: link.in, here: link.out });
  }
  return ties;
}

/** The order in the columns, improved until it stays as it is. */
function order(columns: string[][], ties: Ties, size: SizeOf): void {
  const row = new Map(columns.flatMap((column) => column.map((name, i) => [name, i] as const)));
  const count = (column: readonly string[]) =>
    column.forEach((name, i) => {
      row.set(name, i);
    });
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const before = columns.join(";");
    const side = sweep % 2 === 0 ? "left" : "right";
    for (const column of side === "left" ? columns : [...columns].reverse()) {
      sortByNeighbours(column, side, ties, row, size);
      count(column);
    }
    for (const column of columns) {
      swapNeighbours(column, ties, row);
      count(column);
    }
    if (columns.join(";") === before) break;
  }
}

/** Sorts a column by the mean place of the pins that its blocks are wired to on one side. */
function sortByNeighbours(
  column: string[],
  side: "left" | "right",
  ties: Ties,
  row: ReadonlyMap<string, number>,
  size: SizeOf,
): void {
  const pull = new Map<string, number>();
  for (const name of column) {
    const places = (ties.get(name)?.[side] ?? []).map(
      ({ other, there }) => (row.get(other) ?? 0) + there / (size(other).height + 1),
    );
    pull.set(name, places.length ? places.reduce((a, b) => a + b, 0) / places.length : (row.get(name) ?? 0));
  }
  column.sort((a, b) => (pull.get(a) ?? 0) - (pull.get(b) ?? 0));
}

function swapNeighbours(column: string[], ties: Ties, row: ReadonlyMap<string, number>): void {
  for (let i = 0; i + 1 < column.length; i++) {
    const [above, below] = [column[i], column[i + 1]];
    if (above === undefined || below === undefined) continue;
    if (crossings(below, above, ties, row) < crossings(above, below, ties, row))
      [column[i], column[i + 1]] = [below, above];
  }
}

/** Crossings of the wires of two blocks if `above` stands above `below`. */
function crossings(above: string, below: string, ties: Ties, row: ReadonlyMap<string, number>): number {
  let count = 0;
  for (const side of ["left", "right"] as const) {
    const places = (name: string) =>
      (ties.get(name)?.[side] ?? []).map(({ other, there }) => (row.get(other) ?? 0) * 1e4 + there);
    const others = places(below);
    for (const a of places(above)) for (const b of others) if (a > b) count++;
  }
  return count;
}

/** Coordinates: columns side by side, every block as near as the order allows to the pins it is wired to. */
function place(columns: readonly string[][], ties: Ties, size: SizeOf, real: ReadonlySet<string>): Map<string, Place> {
  const y = new Map<string, number>(
    columns.flatMap((column) => [
      ...settled(
        column,
        column.map(() => 0),
        size,
        real,
      ),
    ]),
  );
  for (const side of ["left", "right", "left", "right", "both"] as const) {
    for (const column of side === "right" ? [...columns].reverse() : columns) {
      const ideal = column.map((name) => wanted(name, side, ties, y));
      for (const [name, at] of settled(column, ideal, size, real)) y.set(name, at);
    }
  }
  const places = new Map<string, Place>();
  let x = 0;
  for (const column of columns) {
    for (const name of column) if (real.has(name)) places.set(name, { x, y: y.get(name) ?? 0 });
    x += Math.max(...column.map((name) => size(name).width)) + COLUMN_GAP;
  }
  return fromOrigin(places);
}

/** Where a block would stand if all its wires on a side were straight. */
function wanted(name: string, side: "left" | "right" | "both", ties: Ties, y: ReadonlyMap<string, number>): number {
  const { left = [], right = [] } = ties.get(name) ?? {};
  const found = side === "both" ? [...left, ...right] : side === "left" ? left : right;
  if (found.length === 0) return y.get(name) ?? 0;
  return found.reduce((sum, { other, there, here }) => sum + (y.get(other) ?? 0) + there - here, 0) / found.length;
}

/** The places nearest to the wanted ones that keep the order and the gaps: neighbours that collide move together. */
function settled(
  column: readonly string[],
  ideal: readonly number[],
  size: SizeOf,
  real: ReadonlySet<string>,
): Map<string, number> {
  const groups: { sum: number; weight: number; names: string[] }[] = [];
  const offsets = new Map<string, number>();
  let offset = 0;
  column.forEach((name, i) => {
    offsets.set(name, offset);
    const weight = real.has(name) ? 1 : STIFFNESS;
    groups.push({ sum: ((ideal[i] ?? 0) - offset) * weight, weight, names: [name] });
    offset += size(name).height + ROW_GAP;
    for (
      let last = groups.at(-1), before = groups.at(-2);
      last && before;
      last = groups.at(-1), before = groups.at(-2)
    ) {
      if (before.sum / before.weight <= last.sum / last.weight) break;
      groups.splice(-2, 2, {
        sum: before.sum + last.sum,
        weight: before.weight + last.weight,
        names: [...before.names, ...last.names],
      });
    }
  });
  return new Map(
    groups.flatMap(({ sum, weight, names }) =>
      names.map((name) => [name, sum / weight + (offsets.get(name) ?? 0)] as const),
    ),
  );
}

function fromOrigin(places: Map<string, Place>): Map<string, Place> {
  const top = Math.min(...[...places.values()].map(({ y }) => y));
  return new Map([...places].map(([name, { x, y }]) => [name, { x: Math.round(x), y: Math.round(y - top) }]));
}

export type Box = Place & Size & { name: string };

/** Lines up the chosen edges or middles, or spaces the boxes evenly. */
export function align(
  boxes: readonly Box[],
  how: "left" | "centre" | "right" | "top" | "middle" | "bottom" | "rows" | "columns",
): Map<string, Place> {
  const left = Math.min(...boxes.map(({ x }) => x));
  const right = Math.max(...boxes.map(({ x, width }) => x + width));
  const top = Math.min(...boxes.map(({ y }) => y));
  const bottom = Math.max(...boxes.map(({ y, height }) => y + height));
  if (how === "rows") return spaced(boxes, "y", "height", top, bottom);
  if (how === "columns") return spaced(boxes, "x", "width", left, right);
  return new Map(
    boxes.map(({ name, x, y, width, height }) => {
      const at = {
        left: { x: left, y },
        centre: { x: (left + right - width) / 2, y },
        right: { x: right - width, y },
        top: { x, y: top },
        middle: { x, y: (top + bottom - height) / 2 },
        bottom: { x, y: bottom - height },
      }[how];
      return [name, at];
    }),
  );
}

function spaced(
  boxes: readonly Box[],
  axis: "x" | "y",
  extent: "width" | "height",
  from: number,
  to: number,
): Map<string, Place> {
  const sorted = [...boxes].sort((a, b) => a[axis] - b[axis]);
  const free = to - from - sorted.reduce((sum, box) => sum + box[extent], 0);
  const gap = sorted.length > 1 ? free / (sorted.length - 1) : 0;
  let at = from;
  return new Map(
    sorted.map((box) => {
      const place = { x: box.x, y: box.y, [axis]: at };
      at += box[extent] + gap;
      return [box.name, place];
    }),
  );
}
