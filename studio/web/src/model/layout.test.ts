import { expect, test } from "vitest";
import { apply, type Change, type Doc, EMPTY } from "./doc";
import { align, arrange } from "./layout";

const size = () => ({ width: 200, height: 120 });
const pinAt = (_: string, pin: string) => 40 + 20 * Number(pin.slice(1));

/** A page of blocks and wires "a.o0 -> b.i1". */
function page(blocks: string, wires: Record<string, string>): Doc {
  const changes: Change[] = [...blocks].map((name) => ["block", name, { type: "T" }]);
  return apply(EMPTY, [...changes, ...Object.entries(wires).map(([pin, from]): Change => ["wire", pin, from])]);
}

test("data flows from left to right and no two blocks overlap", () => {
  const doc = page("abcd", { "b.i0": "a.o0", "c.i0": "a.o0", "d.i0": "b.o0", "d.i1": "c.o0" });
  const places = arrange(doc, [..."abcd"], size, pinAt);
  const x = (name: string) => places.get(name)?.x ?? 0;
  expect(x("a")).toBeLessThan(x("b"));
  expect(x("b")).toBeLessThan(x("d"));
  const boxes = [...places.values()];
  for (const a of boxes)
    for (const b of boxes) if (a !== b && a.x === b.x) expect(Math.abs(a.y - b.y)).toBeGreaterThan(120);
});

test("blocks stand in the order of the pins they feed, so that wires do not cross", () => {
  // Three sources into one block, deliberately given in the wrong order.
  const doc = page("cabg", { "g.i0": "a.o0", "g.i1": "b.o0", "g.i2": "c.o0" });
  const places = arrange(doc, [..."cabg"], size, pinAt);
  const y = (name: string) => places.get(name)?.y ?? 0;
  expect(y("a")).toBeLessThan(y("b"));
  expect(y("b")).toBeLessThan(y("c"));
});

test("two crossed chains come apart", () => {
  const doc = page("abxy", { "x.i0": "b.o0", "y.i0": "a.o0" });
  const places = arrange(doc, [..."abxy"], size, pinAt);
  const y = (name: string) => places.get(name)?.y ?? 0;
  expect(Math.sign(y("a") - y("b"))).toBe(Math.sign(y("y") - y("x")));
});

test("a wire that skips a column does not run behind the block that stands there", () => {
  const doc = page("abc", { "b.i0": "a.o0", "c.i0": "a.o0", "c.i1": "b.o0" });
  const places = arrange(doc, [..."abc"], size, pinAt);
  const y = (name: string) => places.get(name)?.y ?? 0;
  const passing = (y("a") + y("c")) / 2 + 40;
  expect(passing < y("b") || passing > y("b") + 120).toBe(true);
});

test("two hundred blocks are laid out in a moment", () => {
  const names = Array.from({ length: 200 }, (_, i) => `n${i}`);
  const changes: Change[] = names.map((name) => ["block", name, { type: "T" }]);
  names.slice(1).forEach((name, i) => {
    changes.push(["wire", `${name}.i0`, `n${Math.floor(i / 2)}.o0`]);
  });
  const places = arrange(apply(EMPTY, changes), names, size, pinAt);
  expect(places.size).toBe(200);
});

test("a long chain goes on in the next row, with nothing on top of anything", () => {
  const names = Array.from({ length: 19 }, (_, i) => `n${i}`);
  const changes: Change[] = names.map((name) => ["block", name, { type: "T" }]);
  names.slice(1).forEach((name, i) => {
    changes.push(["wire", `${name}.i0`, `n${i}.o0`]);
  });
  const places = arrange(apply(EMPTY, changes), names, size, pinAt);
  const boxes = [...places.values()];
  const [wide, high] = [Math.max(...boxes.map(({ x }) => x)) + 200, Math.max(...boxes.map(({ y }) => y)) + 120];
  expect(wide / high).toBeLessThan(3);
  for (const a of boxes)
    for (const b of boxes)
      if (a !== b) expect(Math.abs(a.x - b.x) >= 200 || Math.abs(a.y - b.y) >= 120, `${a.x} ${b.x}`).toBe(true);
  // Within a row data still flows to the right.
  names.slice(1).forEach((name, i) => {
    const [from, to] = [places.get(`n${i}`), places.get(name)];
    expect((to?.x ?? 0) > (from?.x ?? 0) || (to?.y ?? 0) > (from?.y ?? 0)).toBe(true);
  });
});

test("a wrapped page is cut where the fewest wires are", () => {
  // Three rows of about four; between c and d there is one wire, between all others there are two.
  const names = ["a0", "a1", "a2", "a3", "c", "d", "b0", "b1", "b2", "b3", "b4", "b5"];
  const changes: Change[] = names.map((name) => ["block", name, { type: "T" }]);
  names.slice(1).forEach((name, i) => {
    changes.push(["wire", `${name}.i0`, `${names[i]}.o0`]);
    if (name !== "d") changes.push(["wire", `${name}.i1`, `${names[i]}.o1`]);
  });
  const places = arrange(apply(EMPTY, changes), names, size, pinAt);
  expect(places.get("d")?.x).toBe(0);
  expect(places.get("d")?.y).toBeGreaterThan(places.get("c")?.y ?? 0);
});

test("aligning lines up edges; spacing leaves equal gaps", () => {
  const boxes = [
    { name: "a", x: 0, y: 0, width: 100, height: 50 },
    { name: "b", x: 40, y: 90, width: 60, height: 50 },
    { name: "c", x: 10, y: 300, width: 80, height: 50 },
  ];
  expect([...align(boxes, "right").values()].map(({ x }) => x)).toEqual([0, 40, 20]);
  expect([...align(boxes, "top").values()].every(({ y }) => y === 0)).toBe(true);
  expect([...align(boxes, "rows").values()].map(({ y }) => y)).toEqual([0, 150, 300]);
});
