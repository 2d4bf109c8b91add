import { expect, test } from "vitest";
import { PALETTE } from "../test/blocks";
import { attrsText, axesOf, filled, numbersOf, parseAttrs, textOf } from "./attributes";
import { nameFault } from "./page";
import { match, search } from "./search";

const pool = PALETTE.types.get("MaxPool");

test("values read as the original's texts", () => {
  expect(textOf([1, 2, 2, 1])).toBe("1,2,2,1");
  expect(textOf("SAME")).toBe("SAME");
  expect(textOf(true)).toBe("true");
  expect(
    textOf([
      [1, 2],
      ["nan", 4],
    ]),
  ).toBe('[[1,2],["nan",4]]');
  expect(numbersOf("[1, 2.5]")).toEqual([1, 2.5]);
  expect(numbersOf("1,,2")).toBeNull();
});

test("all optional attributes in one text, there and back", () => {
  if (!pool) throw new Error("no MaxPool");
  expect(attrsText(pool, { type: "MaxPool", attributes: { data_format: "NCHW", ksize: [1] } })).toBe(
    "data_format_ = NCHW;",
  );
  expect(parseAttrs(pool, " data_format_ = NCHW ; ")).toEqual({ data_format: "NCHW" });
  expect(parseAttrs(pool, "")).toEqual({ data_format: undefined });
  expect(parseAttrs(pool, "ksize_ = 1;")).toMatch(/no attribute ksize/);
  expect(parseAttrs(pool, "nonsense")).toMatch(/not of the form/);
});

test("numbers of ksize stand for the axes of the data format", () => {
  if (!pool) throw new Error("no MaxPool");
  const [ksize] = pool.attributes;
  if (!ksize) throw new Error("no ksize");
  expect(axesOf(pool, { type: "MaxPool", attributes: { data_format: "NCHW" } }, ksize, 4)).toEqual([
    "N",
    "C",
    "H",
    "W",
  ]);
  expect(axesOf(pool, { type: "MaxPool" }, ksize, 3)).toBeNull();
});

test("a shape can be filled, unless it is none or would make the page heavy", () => {
  expect(filled([2, 2], "count")).toEqual([
    [0, 1],
    [2, 3],
  ]);
  expect(filled([], "ones")).toBe(1);
  expect(filled([64, 65], "zeros")).toBeNull();
  expect(filled([2, -1], "zeros")).toBeNull();
});

test("block names", () => {
  const taken = (name: string) => name === "x";
  expect(nameFault("layer1/pool-2", taken)).toBeNull();
  expect(nameFault("Größe", taken)).toBeNull();
  for (const bad of ["", "a.b", "a b", "/a", "x", "a".repeat(201)]) expect(nameFault(bad, taken)).not.toBeNull();
});

test("a few letters find a block: word beginnings count most", () => {
  const names = ["MaxPool", "MaxPoolGrad", "MaxPool3DGrad", "AvgPool3DGrad", "Maximum"];
  const found = (query: string) => search(query, names, (name) => name).map(({ item }) => item);
  expect(found("m3g")[0]).toBe("MaxPool3DGrad");
  expect(found("maxpool")[0]).toBe("MaxPool");
  expect(found("avg")).toEqual(["AvgPool3DGrad"]);
  expect(found("zzz")).toEqual([]);
  expect(match("pool", "MaxPool")?.marks).toEqual([3, 4, 5, 6]);
});
