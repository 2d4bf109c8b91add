import { expect, test } from "vitest";
import { PAGE, PALETTE } from "../test/blocks";
import { fragment, parseFragment, paste } from "./clipboard";
import { apply } from "./doc";

test("what is copied is a page: blocks, the wires between them, their places", () => {
  const copied = fragment(PAGE, new Set(["x", "grad", "session"]), new Set());
  expect(copied.blocks.map(({ name }) => name)).toEqual(["x", "grad", "session"]);
  expect(copied.wires).toEqual(["x.output -> grad.orig_input", "grad.output -> session.fetch_outputs[0]"]);
  expect(copied.layout.grad).toEqual([600, 0]);
});

test("pasting makes names unique and wires the copies to each other", () => {
  const text = JSON.stringify(fragment(PAGE, new Set(["x", "pool"]), new Set()));
  const found = parseFragment(text);
  if (typeof found === "string") throw new Error(found);
  const { names, changes } = paste(PAGE, PALETTE, found, { x: 32, y: 32 });
  expect(names).toEqual(["x_1", "pool_1"]);
  const after = apply(PAGE, changes);
  expect(after.wire["pool_1.input"]).toBe("x_1.output");
  expect(after.position.pool_1).toEqual([332, 32]);
});

test("a whole page file can be pasted, unknown block types are named and left out", () => {
  const text =
    '{"poolgrad-page": 1, "blocks": [{"name": "a", "type": "Const"}, {"name": "b", "type": "Nope"}], "wires": ["a.output -> b.x"]}';
  const found = parseFragment(text);
  if (typeof found === "string") throw new Error(found);
  const { names, unknown, changes } = paste(PAGE, PALETTE, found, { x: 0, y: 0 });
  expect([names, unknown]).toEqual([["a"], ["Nope"]]);
  expect(changes.filter(([kind]) => kind === "wire")).toEqual([]);
});

test.each(["hello", "[1, 2]", '{"blocks": [{"name": 3}]}', "null"])("%s is no fragment", (text) => {
  expect(typeof parseFragment(text)).toBe("string");
});

test("what does not belong in a page is left out, the rest is pasted", () => {
  const block = { name: "a", type: "Const" };
  const odd = { blocks: [block], wires: [5, null], layout: { a: "left", b: [1] }, notes: [7, { text: "no place" }] };
  const found = parseFragment(JSON.stringify(odd));
  if (typeof found === "string") throw new Error(found);
  const { names, notes, changes } = paste(PAGE, PALETTE, found, { x: 8, y: 8 });
  expect([names, notes]).toEqual([["a"], []]);
  expect(apply(PAGE, changes).position.a).toEqual([8, 8]);
});
