// Walking through windows and elements by keyboard.
import type { WindowViewInfo } from "../protocol/messages";

/** The cell that is looked at, as a full index of the output or the input. */
export type Focus = { side: "input" | "output"; index: number[] };

export function dimsOf(info: WindowViewInfo, side: Focus["side"]): number[] {
  return info.tensors[side].dims;
}

/** The axes of the tensor that rows and columns stand for; null where there is one row only. */
export function planeAxes(info: WindowViewInfo): [number | null, number] {
  const column = info.spatial.at(-1) ?? 0;
  return [info.spatial.length > 1 ? (info.spatial.at(-2) ?? null) : null, column];
}

/** Moves by rows and columns; at the end of a row it goes on in the next one. */
export function moved(info: WindowViewInfo, focus: Focus, rows: number, columns: number): Focus {
  const dims = dimsOf(info, focus.side);
  const [rowAxis, columnAxis] = planeAxes(info);
  const index = [...focus.index];
  const width = dims[columnAxis] ?? 1;
  const height = rowAxis === null ? 1 : (dims[rowAxis] ?? 1);
  let row = (rowAxis === null ? 0 : (index[rowAxis] ?? 0)) + rows;
  let column = (index[columnAxis] ?? 0) + columns;
  if (column < 0 || column >= width) {
    const next = row + Math.sign(columns);
    if (next < 0 || next >= height) return focus;
    row = next;
    column = column < 0 ? width - 1 : 0;
  }
  if (row < 0 || row >= height) return focus;
  if (rowAxis !== null) index[rowAxis] = row;
  index[columnAxis] = column;
  return { ...focus, index };
}

/** The focus for a cell of the planes that are shown: `at` says where all axes of the input stand. */
export function focusAt(
  info: WindowViewInfo,
  side: Focus["side"],
  row: number,
  column: number,
  at: readonly number[],
  windows: readonly number[],
): Focus {
  const index = [...at];
  const [rowAxis, columnAxis] = planeAxes(info);
  if (side === "output") {
    info.spatial.slice(0, -2).forEach((axis, i) => {
      index[axis] = windows[i] ?? 0;
    });
  }
  if (rowAxis !== null) index[rowAxis] = row;
  index[columnAxis] = column;
  return { side, index };
}

/** Axes that are stepped with sliders: all that are neither rows nor columns. */
export function sliderAxes(info: WindowViewInfo): { axis: number; letter: string; size: number; name: string }[] {
  const shown = new Set(planeAxes(info));
  const names: Record<string, string> = { N: "image", C: "channel", D: "slice", H: "row", W: "column" };
  return info.tensors.input.dims.flatMap((size, axis) => {
    const letter = info.layout[axis] ?? "";
    return shown.has(axis) ? [] : [{ axis, letter, size, name: names[letter] ?? `axis ${axis}` }];
  });
}
