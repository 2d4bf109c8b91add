// Draws one column of the window view: the plane above, the plane below, and between them the light that falls from a
// window onto its cell, or from a cell back onto its window.
import { colourOf, css, inkOn, NAN_COLOUR, type Scale } from "../draw/colour";
import { brief } from "../draw/number";
import type { AxisWindows } from "../protocol/messages";
import { area, clip, padded, type Rect, type Stage, shownAxes } from "./geometry";

export type Ink = {
  ground: string;
  line: string;
  text: string;
  mark: string;
  halo: string;
  point: string;
  hatch: string;
};

export const LIGHT_INK: Ink = {
  ground: "#ffffff",
  line: "#b5bcb9",
  text: "#4b5755",
  mark: "#e8590c",
  halo: "#ffffff",
  point: "#111111",
  hatch: "#c4cbc8",
};

export const DARK_INK: Ink = {
  ground: "#1a2120",
  line: "#4c5956",
  text: "#b3bebb",
  mark: "#ff922b",
  halo: "#0b0f0e",
  point: "#ffffff",
  hatch: "#3b4644",
};

export type Plane = { values: Float32Array; scale: Scale } | null;

/** Rows and columns of a rectangle of cells: [from, to). */
export type Span = { rows: [number, number]; columns: [number, number] };

export type Mark = { row: number; column: number; style: "chosen" | "tie" };

export type Scene = {
  stage: Stage;
  ink: Ink;
  axes: readonly AxisWindows[];
  fractional: boolean;
  above: Plane;
  below: Plane;
  /** Windows to outline on the plane above, with their cell below; strong ones send or receive something. */
  windows: { nominal: Span; real: Span; cell: [number, number]; strong: boolean }[];
  /** The cell that is looked at. */
  focus: { side: "input" | "output"; row: number; column: number } | null;
  marks: Mark[];
  /** Which way values flow: down from the input, or up from the output. */
  flow: "down" | "up";
};

const READABLE = 24;

export function paintScene(context: CanvasRenderingContext2D, scene: Scene): void {
  const { stage } = scene;
  context.clearRect(0, 0, stage.width, stage.height);
  paintPadding(context, scene);
  paintPlane(context, scene, "input", scene.above);
  paintPlane(context, scene, "output", scene.below);
  paintCuts(context, scene);
  paintRulers(context, scene);
  if (scene.focus?.side === "output") dimOutside(context, scene);
  for (const window of scene.windows) paintBeam(context, scene, window);
  for (const window of scene.windows) outlineWindow(context, scene, window);
  for (const mark of scene.marks) paintMark(context, scene, mark);
  paintFocus(context, scene);
}

function paintPlane(context: CanvasRenderingContext2D, scene: Scene, side: "input" | "output", plane: Plane): void {
  const box = scene.stage[side];
  if (!plane) {
    hatch(context, box, scene.ink);
    return;
  }
  const { cell } = scene.stage;
  for (let row = 0; row < box.rows; row++) {
    for (let column = 0; column < box.columns; column++) {
      const value = plane.values[row * box.columns + column] ?? Number.NaN;
      const colour = colourOf(value, plane.scale);
      context.fillStyle = css(colour);
      const [x, y] = [box.x + column * cell, box.y + row * cell];
      const seam = cell >= 8 ? 1 : 0;
      context.fillRect(x, y, Math.max(1, cell - seam), Math.max(1, cell - seam));
      if (cell >= READABLE) writeValue(context, value, colour, x, y, cell);
    }
  }
}

function writeValue(
  context: CanvasRenderingContext2D,
  value: number,
  colour: number,
  x: number,
  y: number,
  cell: number,
): void {
  const text = brief(value, cell >= 36 ? 3 : 2);
  const size = Math.min(cell * 0.34, (cell * 1.55) / Math.max(2, text.length));
  context.font = `${Math.max(8, size)}px ui-monospace, Menlo, Consolas, monospace`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = colour === NAN_COLOUR ? "#fff" : inkOn(colour);
  context.fillText(text, x + cell / 2 - 0.5, y + cell / 2 + 0.5);
}

function paintPadding(context: CanvasRenderingContext2D, scene: Scene): void {
  const { stage, ink } = scene;
  const { above, below, left, right } = stage.padding;
  if (above + below + left + right === 0) return;
  const box = padded(stage);
  hatch(context, box, ink);
  context.strokeStyle = ink.line;
  context.setLineDash([3, 3]);
  context.lineWidth = 1;
  context.strokeRect(box.x - 0.5, box.y - 0.5, box.w, box.h);
  context.setLineDash([]);
}

function hatch(context: CanvasRenderingContext2D, box: Rect, ink: Ink): void {
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.w, box.h);
  context.clip();
  context.strokeStyle = ink.hatch;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = box.x - box.h; x < box.x + box.w; x += 7) {
    context.moveTo(x, box.y + box.h);
    context.lineTo(x + box.h, box.y);
  }
  context.stroke();
  context.restore();
}

/** The borders of irregular windows: where rows and columns are cut. */
function paintCuts(context: CanvasRenderingContext2D, scene: Scene): void {
  if (!scene.fractional || scene.stage.cell < 5) return;
  const { stage, ink } = scene;
  const [row, column] = shownAxes(scene.axes);
  const box = stage.input;
  context.strokeStyle = ink.halo;
  context.lineWidth = 3;
  for (let pass = 0; pass < 2; pass++) {
    context.beginPath();
    for (const cut of column?.start.slice(1) ?? []) {
      const x = area(stage, "input", 0, 0, cut, cut).x - 0.5;
      if (x > box.x && x < box.x + box.w) line(context, x, box.y, x, box.y + box.h);
    }
    for (const cut of row?.start.slice(1) ?? []) {
      const y = area(stage, "input", cut, cut, 0, 0).y - 0.5;
      if (y > box.y && y < box.y + box.h) line(context, box.x, y, box.x + box.w, y);
    }
    context.stroke();
    context.strokeStyle = ink.text;
    context.lineWidth = 1.25;
  }
}

function line(context: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
}

/** Indices along the edges, as many as can be read. */
function paintRulers(context: CanvasRenderingContext2D, scene: Scene): void {
  const { stage, ink } = scene;
  context.font = "10px ui-monospace, Menlo, Consolas, monospace";
  context.fillStyle = ink.text;
  for (const side of ["input", "output"] as const) {
    const box = stage[side];
    const outer = side === "input" ? padded(stage) : box;
    const every = Math.max(1, Math.ceil(26 / stage.cell));
    context.textAlign = "center";
    context.textBaseline = "bottom";
    for (let c = 0; c < box.columns; c += every) {
      context.fillText(String(c + box.from[1]), box.x + (c + 0.5) * stage.cell, outer.y - 4);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let r = 0; r < box.rows; r += every) {
      context.fillText(String(r + box.from[0]), outer.x - 5, box.y + (r + 0.5) * stage.cell);
    }
  }
}

function spanRect(stage: Stage, span: Span): Rect {
  return area(stage, "input", span.rows[0], span.rows[1], span.columns[0], span.columns[1]);
}

/** All but the window steps back. */
function dimOutside(context: CanvasRenderingContext2D, scene: Scene): void {
  const window = scene.windows[0];
  if (!window) return;
  const { stage, ink } = scene;
  const box = padded(stage);
  const inside = clip(spanRect(stage, window.nominal), box);
  context.save();
  context.globalAlpha = 0.55;
  context.fillStyle = ink.ground;
  context.beginPath();
  context.rect(box.x, box.y, box.w, box.h);
  context.rect(inside.x, inside.y, inside.w, inside.h);
  context.fill("evenodd");
  context.restore();
}

/** The light between a window and its cell, brighter towards where the values arrive. */
function paintBeam(context: CanvasRenderingContext2D, scene: Scene, window: Scene["windows"][number]): void {
  const { stage, ink, flow } = scene;
  const from = clip(spanRect(stage, window.nominal), padded(stage));
  const [row, column] = window.cell;
  const to = area(stage, "output", row, row + 1, column, column + 1);
  const gradient = context.createLinearGradient(0, from.y + from.h, 0, to.y);
  const [near, far] = flow === "down" ? ["14", "50"] : ["50", "14"];
  gradient.addColorStop(0, ink.mark + near);
  gradient.addColorStop(1, ink.mark + far);
  context.save();
  context.globalAlpha = window.strong ? 1 : 0.3;
  context.fillStyle = gradient;
  context.beginPath();
  context.moveTo(from.x, from.y + from.h);
  context.lineTo(from.x + from.w, from.y + from.h);
  context.lineTo(to.x + to.w, to.y);
  context.lineTo(to.x, to.y);
  context.fill();
  context.restore();
}

function outlineWindow(context: CanvasRenderingContext2D, scene: Scene, window: Scene["windows"][number]): void {
  const { stage, ink } = scene;
  const box = padded(stage);
  const [row, column] = window.cell;
  const cell = area(stage, "output", row, row + 1, column, column + 1);
  frame(context, clip(spanRect(stage, window.nominal), box), ink, window.strong ? 2.5 : 1.25, !window.strong);
  if (window.strong) frame(context, spanRect(stage, window.real), ink, 2.5, false);
  frame(context, cell, ink, window.strong ? 2.5 : 1.25, !window.strong);
}

function frame(context: CanvasRenderingContext2D, rect: Rect, ink: Ink, width: number, dashed: boolean): void {
  context.setLineDash(dashed ? [4, 3] : []);
  context.strokeStyle = ink.halo;
  context.lineWidth = width + 2;
  context.strokeRect(rect.x - 0.5, rect.y - 0.5, rect.w, rect.h);
  context.strokeStyle = ink.mark;
  context.lineWidth = width;
  context.strokeRect(rect.x - 0.5, rect.y - 0.5, rect.w, rect.h);
  context.setLineDash([]);
}

/** A ring around the chosen element; a broken ring around its equals. */
function paintMark(context: CanvasRenderingContext2D, scene: Scene, mark: Mark): void {
  const { stage, ink } = scene;
  const rect = area(stage, "input", mark.row, mark.row + 1, mark.column, mark.column + 1);
  const radius = Math.max(2.5, stage.cell * 0.44 - 1);
  const [x, y] = [rect.x + rect.w / 2 - 0.5, rect.y + rect.h / 2 - 0.5];
  context.setLineDash(mark.style === "tie" ? [3, 3] : []);
  for (const [style, width] of [
    [ink.halo, 5],
    [ink.mark, 2.75],
  ] as const) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.strokeStyle = style;
    context.lineWidth = width;
    context.stroke();
  }
  context.setLineDash([]);
}

function paintFocus(context: CanvasRenderingContext2D, scene: Scene): void {
  if (scene.focus?.side !== "input") return;
  const { row, column } = scene.focus;
  const rect = area(scene.stage, "input", row, row + 1, column, column + 1);
  context.strokeStyle = scene.ink.halo;
  context.lineWidth = 5;
  context.strokeRect(rect.x - 0.5, rect.y - 0.5, rect.w, rect.h);
  context.strokeStyle = scene.ink.point;
  context.lineWidth = 2.5;
  context.strokeRect(rect.x - 0.5, rect.y - 0.5, rect.w, rect.h);
}
