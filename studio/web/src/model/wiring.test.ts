import { expect, test } from "vitest";
import { PAGE, PALETTE } from "../test/blocks";
import { apply } from "./doc";
import { parseEnd, parseWire, wireText } from "./page";
import { openOutputs, openPins, refusal } from "./wiring";

const specs = { "x.output": { dtype: "float32", shape: [1, 4, 4, 1] } };
const doc = apply(PAGE, [["block", "gather", { type: "Gather" }]]);

test("a wire that would close a circle is refused with the reason", () => {
  expect(refusal(doc, PALETTE, specs, parseEnd("grad.output"), parseEnd("pool.input"))).toMatch(/circle/);
  expect(refusal(doc, PALETTE, specs, parseEnd("pool.output"), parseEnd("pool.input"))).toMatch(/circle/);
});

test("a pin refuses a dtype that it does not take, and says which it takes", () => {
  const why = refusal(doc, PALETTE, specs, parseEnd("x.output"), parseEnd("gather.index"));
  expect(why).toBe("index takes int32, but x.output is float32");
});

test("what is not known yet is not refused", () => {
  expect(refusal(doc, PALETTE, {}, parseEnd("x.output"), parseEnd("gather.index"))).toBeNull();
});

test("the pins that a wire could go to: unwired ones first, none upstream", () => {
  const pins = openPins(doc, PALETTE, specs, parseEnd("pool.output")).map(({ block, pin }) => `${block}.${pin}`);
  expect(pins[0]).toBe("grad.grad");
  expect(pins).not.toContain("pool.input");
  expect(pins).toContain("session.fetch_outputs");
});

test("the outputs that may feed a pin", () => {
  const found = openOutputs(doc, PALETTE, specs, parseEnd("pool.input")).map(({ block }) => block);
  expect(found).toEqual(["x", "gather"]);
});

test("wires as the page file writes them", () => {
  const wire = parseWire("a/b.output -> session.fetch_outputs[2]");
  expect(wire.target).toEqual({ block: "session", pin: "fetch_outputs", index: 2 });
  expect(wire.source.block).toBe("a/b");
  expect(wireText(wire)).toBe("a/b.output -> session.fetch_outputs[2]");
});
