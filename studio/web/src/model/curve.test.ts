import { expect, test } from "vitest";
import { wayOf } from "./curve";

const from = { x: 232, y: 57 };

test("a wire to a neighbour is one curve", () => {
  expect(wayOf(from, { x: 368, y: 57 }, 57, 0).path).toMatch(/^M232 57C/);
  expect(wayOf(from, { x: 368, y: 700 }, 57, 0).path).toMatch(/C/);
});

test("a wire into the next row runs above the block it leads to, not behind it", () => {
  const { path, label } = wayOf({ x: 2000, y: 57 }, { x: 0, y: 557 }, 57, 0);
  expect(path).not.toMatch(/C/);
  expect(label.y).toBeLessThan(500);
  expect(path).toMatch(/H0$/);
});

test("wires to two pins of one block do not lie on each other", () => {
  const [a, b] = [0, 1].map((lane) => wayOf({ x: 2000, y: 57 }, { x: 0, y: 557 + 21 * lane }, 57 + 21 * lane, lane));
  expect(a?.label.y).not.toBe(b?.label.y);
});
