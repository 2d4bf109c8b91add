import { expect, test } from "vitest";
import type { AxisWindows, WindowViewInfo } from "../protocol/messages";
import { area, hit, padded, stageFor } from "./geometry";
import { shareText } from "./Story";
import { focusAt, moved, sliderAxes } from "./stepping";

/** Windows of 3 with stride 2 over 5 elements, SAME: one cell of padding on either side. */
const axis = (letter: string, number: number): AxisWindows => ({
  letter,
  axis: number,
  size: 5,
  count: 3,
  start: [0, 1, 3],
  stop: [2, 4, 5],
  origin: [-1, 1, 3],
  end: [2, 4, 6],
  length: [3, 3, 3],
  dilation: 1,
  stride: 2,
  before: 1,
  after: 1,
  regular: true,
});

const tensor = (dims: number[]) => ({ key: null, dims, dtype: "float32", there: true });

const flat = {
  spatial: [1, 2],
  layout: "NHWC",
  axes: [axis("H", 1), axis("W", 2)],
  tensors: { input: tensor([2, 5, 5, 3]), output: tensor([2, 3, 3, 3]) },
} as unknown as WindowViewInfo;

const deep = {
  spatial: [1, 2, 3],
  layout: "NDHWC",
  axes: [axis("D", 1), axis("H", 2), axis("W", 3)],
  tensors: { input: tensor([1, 5, 5, 5, 1]), output: tensor([1, 3, 3, 3, 1]) },
} as unknown as WindowViewInfo;

const stage = stageFor(
  flat.axes,
  { rows: 5, columns: 5, from: [0, 0] },
  { rows: 3, columns: 3, from: [0, 0] },
  { width: 400, height: 600 },
);

test("padding stands around the input as cells of its own", () => {
  expect(stage.padding).toEqual({ above: 1, below: 1, left: 1, right: 1 });
  expect(padded(stage).w).toBe(7 * stage.cell);
  expect(stage.width).toBeLessThanOrEqual(400);
  expect(stage.height).toBeLessThanOrEqual(600);
});

test("a part of a large plane has padding only at the tensor's border", () => {
  const part = stageFor(
    flat.axes,
    { rows: 2, columns: 5, from: [2, 0] },
    { rows: 2, columns: 3, from: [1, 0] },
    { width: 400, height: 400 },
  );
  expect(part.padding).toEqual({ above: 0, below: 0, left: 1, right: 1 });
});

test("the cell under the pointer is the one that is drawn there", () => {
  for (const [side, row, column] of [
    ["input", 4, 2],
    ["output", 2, 0],
  ] as const) {
    const { x, y, w, h } = area(stage, side, row, row + 1, column, column + 1);
    expect(hit(stage, x + w / 2, y + h / 2)).toEqual({ side, row, column });
  }
  expect(hit(stage, 1, 1)).toBeNull();
});

test("arrow keys go on in the next row and stop at the end", () => {
  const first = focusAt(flat, "output", 0, 0, [1, 0, 0, 2], []);
  expect(first.index).toEqual([1, 0, 0, 2]);
  expect(moved(flat, first, 0, -1)).toEqual(first);
  expect(moved(flat, { side: "output", index: [1, 0, 2, 2] }, 0, 1).index).toEqual([1, 1, 0, 2]);
  expect(moved(flat, { side: "output", index: [1, 2, 2, 2] }, 0, 1).index).toEqual([1, 2, 2, 2]);
  expect(moved(flat, { side: "input", index: [1, 3, 2, 2] }, 1, 0).index).toEqual([1, 4, 2, 2]);
});

test("in a volume a cell of the output belongs to the slice that is shown", () => {
  expect(focusAt(deep, "output", 1, 2, [0, 3, 0, 0, 0], [2]).index).toEqual([0, 2, 1, 2, 0]);
  expect(focusAt(deep, "input", 1, 2, [0, 3, 0, 0, 0], [2]).index).toEqual([0, 3, 1, 2, 0]);
  expect(sliderAxes(deep).map(({ name }) => name)).toEqual(["image", "slice", "channel"]);
});

test("shares read as fractions where they are", () => {
  expect([1, 0, 0.25, 1 / 3, 0.3].map(shareText)).toEqual(["1", "0", "1/4", "1/3", "0.3"]);
});
