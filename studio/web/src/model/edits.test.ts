import { expect, test } from "vitest";
import { PAGE, PALETTE } from "../test/blocks";
import { apply, difference, inverse } from "./doc";
import { addBlock, connect, disconnect, move, remove, rename, setAttributes } from "./edits";
import { parseEnd } from "./page";

const none = new Set<string>();

test("a fresh pooling block gets windows of two along the image, not along batch and channels", () => {
  const type = PALETTE.types.get("MaxPool");
  if (!type) throw new Error("no MaxPool");
  const { name, changes } = addBlock(PAGE, type, [10, 20]);
  expect(name).toBe("MaxPool");
  expect(changes).toEqual([
    [
      "block",
      "MaxPool",
      { type: "MaxPool", attributes: { ksize: [1, 2, 2, 1], strides: [1, 2, 2, 1], padding: "SAME" } },
    ],
    ["position", "MaxPool", [10, 20]],
  ]);
});

test("names stay unique", () => {
  const type = PALETTE.types.get("MaxPool");
  if (!type) throw new Error("no MaxPool");
  expect(addBlock(PAGE, type, [0, 0], "pool").name).toBe("pool_1");
});

test("deleting a block takes its wires along and closes the gap in a numbered pin", () => {
  const after = apply(PAGE, remove(PAGE, new Set(["pool"]), none, none));
  expect(Object.keys(after.block)).toEqual(["x", "grad", "session"]);
  expect(after.wire).toEqual({ "grad.orig_input": "x.output", "session.fetch_outputs[0]": "grad.output" });
  expect(after.position).not.toHaveProperty("pool");
});

test("a pin takes one wire: the old one gives way", () => {
  const after = apply(PAGE, connect(PAGE, PALETTE, parseEnd("grad.output"), parseEnd("pool.input")));
  expect(after.wire["pool.input"]).toBe("grad.output");
});

test("a pin that takes many gets one more", () => {
  const after = apply(PAGE, connect(PAGE, PALETTE, parseEnd("x.output"), parseEnd("session.fetch_outputs")));
  expect(after.wire["session.fetch_outputs[2]"]).toBe("x.output");
});

test("wiring a typed pin removes what was typed", () => {
  const doc = apply(PAGE, [["block", "v2", { type: "MaxPoolV2", attributes: { ksize: "1,2,2,1", padding: "SAME" } }]]);
  const after = apply(doc, connect(doc, PALETTE, parseEnd("x.output"), parseEnd("v2.ksize")));
  expect(after.block.v2?.attributes).toEqual({ padding: "SAME" });
});

test("taking a wire away numbers the others anew", () => {
  const after = apply(PAGE, disconnect(PAGE, "session.fetch_outputs[0]"));
  expect(after.wire["session.fetch_outputs[0]"]).toBe("grad.output");
  expect(after.wire).not.toHaveProperty("session.fetch_outputs[1]");
});

test("a renamed block keeps its wires, its place and its groups", () => {
  const doc = apply(PAGE, [["note", "n", { text: "", at: [0, 0], size: [1, 1], blocks: ["x", "pool"] }]]);
  const after = apply(doc, rename(doc, "pool", "layer1/pool"));
  expect(after.wire["layer1/pool.input"]).toBe("x.output");
  expect(after.wire["grad.orig_output"]).toBe("layer1/pool.output");
  expect(after.position["layer1/pool"]).toEqual([300, 0]);
  expect(after.note.n?.blocks).toEqual(["x", "layer1/pool"]);
  expect(after.block).not.toHaveProperty("pool");
});

test("an attribute that is taken away goes back to its default", () => {
  const after = apply(PAGE, setAttributes(PAGE, "pool", { ksize: undefined, padding: "SAME" }));
  expect(after.block.pool?.attributes).toEqual({ padding: "SAME" });
});

test("a move that moves nothing is no step", () => {
  expect(move(PAGE, new Map([["x", { x: 0.2, y: -0.1 }]]))).toEqual([]);
  expect(move(PAGE, new Map([["x", { x: 8, y: 0 }]]))).toEqual([["position", "x", [8, 0]]]);
});

test.each([
  ["delete", remove(PAGE, new Set(["pool", "x"]), none, none)],
  ["rename", rename(PAGE, "pool", "p")],
  ["disconnect", disconnect(PAGE, "session.fetch_outputs[0]")],
])("%s and its inverse leave the page as it was", (_, changes) => {
  expect(apply(apply(PAGE, changes), inverse(PAGE, changes))).toEqual(PAGE);
});

test("the difference of two pages leads from one to the other", () => {
  const other = apply(PAGE, remove(PAGE, new Set(["pool"]), none, none));
  expect(apply(PAGE, difference(PAGE, other))).toEqual(other);
});
