import { expect, test } from "vitest";
import { PAGE, PALETTE } from "../test/blocks";
import { apply } from "./doc";
import { parseEnd, parseWire, wireText } from "./page";
import { givers, openOutputs, openPins, refusal, takersOf } from "./wiring";

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

const named = (found: { type: { type: string }; pin: string }[]) => found.map(({ type, pin }) => `${type.type}.${pin}`);

test("at the end of a wire from an output stand only blocks with a pin that takes it", () => {
  expect(named(takersOf(PALETTE, specs, parseEnd("x.output")))).not.toContain("Gather.index");
  expect(named(takersOf(PALETTE, specs, parseEnd("x.output")))).toContain("MaxPool.input");
  expect(named(takersOf(PALETTE, {}, parseEnd("x.output")))).toContain("Gather.index");
});

test("at the beginning of a wire into a pin stand only blocks with an output that fits, the particular ones first", () => {
  const fits = named(givers(doc, PALETTE, specs, parseEnd("gather.index")));
  expect(fits[0]).toBe("Winner.index");
  expect(fits).toContain("Const.output");
  expect(fits).not.toContain("Normal.output");
  expect(fits.join()).not.toContain("ClientSession");
  // An index is no size, though both are integers.
  const sizes = apply(doc, [["block", "v2", { type: "MaxPoolV2" }]]);
  expect(named(givers(sizes, PALETTE, specs, parseEnd("v2.ksize")))).not.toContain("Winner.index");
});

test("a pin whose sibling is wired takes what the sibling takes", () => {
  const ints = { "x.output": { dtype: "int32", shape: null } };
  expect(named(givers(doc, PALETTE, specs, parseEnd("grad.grad")))).toContain("Normal.output");
  expect(named(givers(doc, PALETTE, ints, parseEnd("grad.grad")))).not.toContain("Normal.output");
});

test("wires as the page file writes them", () => {
  const wire = parseWire("a/b.output -> session.fetch_outputs[2]");
  expect(wire.target).toEqual({ block: "session", pin: "fetch_outputs", index: 2 });
  expect(wire.source.block).toBe("a/b");
  expect(wireText(wire)).toBe("a/b.output -> session.fetch_outputs[2]");
});
