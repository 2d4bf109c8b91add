// Where the cells of the window view are. A column of the view shows an input-shaped plane above an output-shaped one,
// both with the same cells; padding stands around the input as cells of its own. All in pixels of the column.
import type { AxisWindows } from "../protocol/messages";

export type Rect = { x: number; y: number; w: number; h: number };

/** A plane of rows by columns; `from` is the index of its first row and column in the tensor. */
export type PlaneSize = { rows: number; columns: number; from: [number, number] };

export type Stage = {
  cell: number;
  width: number;
  height: number;
  input: PlaneSize & Rect;
  output: PlaneSize & Rect;
  /** Cells of padding around the input: above, below, left, right. */
  padding: { above: number; below: number; left: number; right: number };
};

export const MARGIN = 22;
const GAP = 56;
const LARGEST = 72;
const MOST_PADDING = 12;

/** The two axes that are seen; a pooling along one axis has one row. */
export function shownAxes(axes: readonly AxisWindows[]): [AxisWindows | null, AxisWindows | null] {
  return [axes.at(-2) ?? null, axes.at(-1) ?? null];
}

export function stageFor(
  axes: readonly AxisWindows[],
  input: PlaneSize,
  output: PlaneSize,
  room: { width: number; height: number },
): Stage {
  const padding = paddingOf(axes, input);
  const wide = Math.max(input.columns + padding.left + padding.right, output.columns);
  const high = input.rows + padding.above + padding.below + output.rows;
  const cell = Math.max(
    1,
    Math.min(LARGEST, (room.width - 2 * MARGIN) / wide, (room.height - GAP - 2 * MARGIN) / Math.max(1, high)),
  );
  const side = cell >= 2 ? Math.floor(cell) : cell;
  const width = wide * side + 2 * MARGIN;
  const left = MARGIN + (wide - input.columns - padding.left - padding.right) * side * 0.5;
  const top = MARGIN + padding.above * side;
  const bottom = top + (input.rows + padding.below) * side + GAP;
  return {
    cell: side,
    width,
    height: bottom + output.rows * side + MARGIN,
    padding,
    input: { ...input, x: left + padding.left * side, y: top, w: input.columns * side, h: input.rows * side },
    output: {
      ...output,
      x: MARGIN + ((wide - output.columns) * side) / 2,
      y: bottom,
      w: output.columns * side,
      h: output.rows * side,
    },
  };
}

/** Padding is shown where the plane reaches the tensor's border. */
function paddingOf(axes: readonly AxisWindows[], { rows, columns, from }: PlaneSize): Stage["padding"] {
  const [row, column] = shownAxes(axes);
  const limit = (n: number) => Math.min(MOST_PADDING, n);
  return {
    above: row && from[0] === 0 ? limit(row.before) : 0,
    below: row && from[0] + rows === row.size ? limit(row.after) : 0,
    left: column && from[1] === 0 ? limit(column.before) : 0,
    right: column && from[1] + columns === column.size ? limit(column.after) : 0,
  };
}

/** The rectangle of rows [r0, r1) and columns [c0, c1), given in the tensor's own indices. */
export function area(stage: Stage, side: "input" | "output", r0: number, r1: number, c0: number, c1: number): Rect {
  const plane = stage[side];
  return {
    x: plane.x + (c0 - plane.from[1]) * stage.cell,
    y: plane.y + (r0 - plane.from[0]) * stage.cell,
    w: (c1 - c0) * stage.cell,
    h: (r1 - r0) * stage.cell,
  };
}

export type Hit = { side: "input" | "output"; row: number; column: number };

/** The cell at a point of the column, in the tensor's indices. */
export function hit(stage: Stage, x: number, y: number): Hit | null {
  for (const side of ["input", "output"] as const) {
    const plane = stage[side];
    const column = Math.floor((x - plane.x) / stage.cell);
    const row = Math.floor((y - plane.y) / stage.cell);
    if (row >= 0 && row < plane.rows && column >= 0 && column < plane.columns) {
      return { side, row: row + plane.from[0], column: column + plane.from[1] };
    }
  }
  return null;
}

/** A rectangle cut off at the borders of another. */
export function clip(rect: Rect, box: Rect): Rect {
  const x = Math.max(rect.x, box.x);
  const y = Math.max(rect.y, box.y);
  return {
    x,
    y,
    w: Math.max(0, Math.min(rect.x + rect.w, box.x + box.w) - x),
    h: Math.max(0, Math.min(rect.y + rect.h, box.y + box.h) - y),
  };
}

/** The input plane with its padding. */
export function padded(stage: Stage): Rect {
  const { input, padding, cell } = stage;
  return {
    x: input.x - padding.left * cell,
    y: input.y - padding.above * cell,
    w: input.w + (padding.left + padding.right) * cell,
    h: input.h + (padding.above + padding.below) * cell,
  };
}
