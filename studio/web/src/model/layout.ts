// Auto-layout from left to right. dagre chooses columns; it does not know where on a block a pin sits, so the order
// inside each column is then improved with the pins' true places until no swap of neighbours removes a crossing.
import { layout as dagre, Graph } from "@dagrejs/dagre";
import type { Doc } from "./doc";
import type { Place } from "./edits";
import { wires } from "./edits";

export type Size = { width: number; height: number };

/** Where the pins of a block are, measured from its top. */
export type PinHeights = (block: string, pin: string, side: "in" | "out") => number;

const COLUMN_GAP = 136;
const ROW_GAP = 36;
const SWEEPS = 12;

type Link = { from: string; to: string; out: number; in: number };

export function arrange(
  doc: Doc,
  names: readonly string[],
  size: (name: string) => Size,
  pinAt: PinHeights,
): Map<string, Place> {
  const links = linksOf(doc, new Set(names), pinAt);
  const columns = columnsOf(names, size, links);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const before = columns.map((column) => column.join()).join(";");
    sortByNeighbours(columns, links, size, sweep % 2 === 0);
    swapNeighbours(columns, links);
    if (columns.map((column) => column.join()).join(";") === before) break;
  }
  return place(columns, links, size);
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
function columnsOf(names: readonly string[], size: (name: string) => Size, links: readonly Link[]): string[][] {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", ranksep: COLUMN_GAP, nodesep: ROW_GAP, ranker: "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const name of names) graph.setNode(name, { ...size(name) });
  links.forEach(({ from, to }, i) => {
    graph.setEdge(from, to, {}, String(i));
  });
  dagre(graph);
  const byRank = new Map<number, { name: string; y: number }[]>();
  for (const name of names) {
    const { x = 0, y = 0, rank } = graph.node(name) as { x?: number; y?: number; rank?: number };
    const column = rank ?? Math.round(x);
    byRank.set(column, [...(byRank.get(column) ?? []), { name, y }]);
  }
  return [...byRank.entries()]
    .sort(([a], [b]) => a - b)
    .map(([, column]) => column.sort((a, b) => a.y - b.y).map(({ name }) => name));
}

function rows(columns: readonly string[][]): Map<string, number> {
  return new Map(columns.flatMap((column) => column.map((name, i) => [name, i] as const)));
}

/** Sorts every column by the mean place of the pins its blocks are wired to. */
function sortByNeighbours(
  columns: string[][],
  links: readonly Link[],
  size: (name: string) => Size,
  forward: boolean,
): void {
  const order = forward ? columns.keys() : [...columns.keys()].reverse();
  for (const c of order) {
    const row = rows(columns);
    const pull = new Map<string, number>();
    for (const name of columns[c] ?? []) {
      const places = links.flatMap((link) => {
        if (forward && link.to === name) return [(row.get(link.from) ?? 0) + link.out / (size(link.from).height + 1)];
        if (!forward && link.from === name) return [(row.get(link.to) ?? 0) + link.in / (size(link.to).height + 1)];
        return [];
      });
      pull.set(name, places.length ? places.reduce((a, b) => a + b, 0) / places.length : (row.get(name) ?? 0));
    }
    columns[c]?.sort((a, b) => (pull.get(a) ?? 0) - (pull.get(b) ?? 0));
  }
}

function swapNeighbours(columns: string[][], links: readonly Link[]): void {
  for (const column of columns) {
    for (let i = 0; i + 1 < column.length; i++) {
      const [above, below] = [column[i], column[i + 1]];
      if (above === undefined || below === undefined) continue;
      const now = between(above, below, columns, links);
      const swapped = between(below, above, columns, links);
      if (swapped < now) [column[i], column[i + 1]] = [below, above];
    }
  }
}

/** Crossings of the wires of two blocks if `above` stands above `below`. */
function between(above: string, below: string, columns: readonly string[][], links: readonly Link[]): number {
  const row = rows(columns);
  const ends = (name: string, incoming: boolean) =>
    links
      .filter((link) => (incoming ? link.to : link.from) === name)
      .map((link) => (incoming ? (row.get(link.from) ?? 0) * 1e4 + link.out : (row.get(link.to) ?? 0) * 1e4 + link.in));
  let count = 0;
  for (const incoming of [true, false]) {
    for (const a of ends(above, incoming)) for (const b of ends(below, incoming)) if (a > b) count++;
  }
  return count;
}

/** How many pairs of wires between neighbouring columns cross. */
export function crossings(links: readonly { y1: number; y2: number; x1: number; x2: number }[]): number {
  let count = 0;
  links.forEach((a, i) => {
    for (const b of links.slice(i + 1)) {
      if (a.x1 === b.x1 && a.x2 === b.x2 && (a.y1 - b.y1) * (a.y2 - b.y2) < 0) count++;
    }
  });
  return count;
}

/** Coordinates: columns side by side, every block as near as the order allows to the pins it is wired from. */
function place(columns: readonly string[][], links: readonly Link[], size: (name: string) => Size): Map<string, Place> {
  const places = new Map<string, Place>();
  let x = 0;
  for (const column of columns) {
    let bottom = Number.NEGATIVE_INFINITY;
    for (const name of column) {
      const wanted = links
        .filter((link) => link.to === name)
        .map((link) => (places.get(link.from)?.y ?? 0) + link.out - link.in);
      const ideal = wanted.length ? wanted.reduce((a, b) => a + b, 0) / wanted.length : Number.NEGATIVE_INFINITY;
      const y = Math.max(ideal, bottom);
      places.set(name, { x, y: Number.isFinite(y) ? y : 0 });
      bottom = (places.get(name)?.y ?? 0) + size(name).height + ROW_GAP;
    }
    x += Math.max(...column.map((name) => size(name).width)) + COLUMN_GAP;
  }
  pullLeft(columns, links, size, places);
  return fromOrigin(places);
}

/** A second look from the right: sources stand opposite what they feed, as far as their neighbours leave room. */
function pullLeft(
  columns: readonly string[][],
  links: readonly Link[],
  size: (name: string) => Size,
  places: Map<string, Place>,
): void {
  for (const column of [...columns].reverse()) {
    let floor = Number.POSITIVE_INFINITY;
    for (const name of [...column].reverse()) {
      const at = places.get(name);
      if (!at) continue;
      const wanted = links
        .filter((link) => link.from === name)
        .map((link) => (places.get(link.to)?.y ?? 0) + link.in - link.out);
      const hasSources = links.some((link) => link.to === name);
      const ideal = wanted.length && !hasSources ? wanted.reduce((a, b) => a + b, 0) / wanted.length : at.y;
      const y = Math.min(Math.max(ideal, at.y), floor - size(name).height - ROW_GAP);
      places.set(name, { x: at.x, y: Math.max(y, at.y) });
      floor = places.get(name)?.y ?? floor;
    }
  }
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
