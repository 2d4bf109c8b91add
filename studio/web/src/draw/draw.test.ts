import { expect, test } from "vitest";
import { PAGE, PALETTE } from "../test/blocks";
import { colour, colourOf, inkOn, NAN_COLOUR, scaleFor } from "./colour";
import { brief, bytesText, shapeText } from "./number";
import { pageSvg } from "./picture";

test("values of both signs get a scale with zero in the middle", () => {
  expect(scaleFor(-1, 3)).toEqual({ kind: "diverging", low: -3, high: 3 });
  expect(scaleFor(1, 3)).toEqual({ kind: "sequential", low: 1, high: 3 });
  expect(scaleFor(Number.NaN, Number.NaN).kind).toBe("sequential");
});

test("NaN and infinities have colours that no value has", () => {
  const scale = scaleFor(0, 1);
  const pixels = new Uint32Array(5);
  colour([0, 1, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY], scale, pixels);
  expect(new Set(pixels).size).toBe(5);
  expect(pixels[2]).toBe(NAN_COLOUR);
  expect(pixels[0]).toBe(colourOf(0, scale));
});

test("a constant tensor is drawn in one colour", () => {
  const pixels = new Uint32Array(2);
  colour([4, 4], scaleFor(4, 4), pixels);
  expect(pixels[0]).toBe(pixels[1]);
  expect(pixels[0]).toBe(colourOf(4, scaleFor(4, 4)));
});

test("letters on a colour can be read", () => {
  expect(inkOn(0xff000000)).toBe("#fff");
  expect(inkOn(0xffffffff)).toBe("#000");
});

test.each([
  [3, "3"],
  [0.25, "0.25"],
  [-1.23456, "−1.235"],
  [1234567, "1.23e6"],
  [1e-7, "1e−7"],
  [Number.NaN, "NaN"],
  [Number.NEGATIVE_INFINITY, "−∞"],
])("%d in short is %s", (value, text) => {
  expect(brief(value)).toBe(text);
});

test("shapes and sizes", () => {
  expect(shapeText([1, null, 4])).toBe("1×?×4");
  expect(shapeText([])).toBe("scalar");
  expect(shapeText(null)).toBe("?");
  expect(bytesText(536870912)).toBe("537 MB");
});

test("the picture of a page holds its blocks and cannot be broken by a name", () => {
  const doc = { ...PAGE, note: { n: { text: "</text><script>", at: [0, -90] as const, size: [10, 10] as const } } };
  const svg = pageSvg({ doc, palette: PALETTE, specs: {}, pictures: new Map(), dark: false });
  expect(svg).toContain("MaxPoolGrad");
  expect(svg).not.toContain("<script");
  expect(svg.match(/<path d="M[^"]*C/g)).toHaveLength(5);
});
