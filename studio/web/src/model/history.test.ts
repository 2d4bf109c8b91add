import { expect, test } from "vitest";
import { PAGE } from "../test/blocks";
import { apply, type Change, inverse } from "./doc";
import { type History, NO_HISTORY, record, redo, undo } from "./history";

function step(history: History, doc: typeof PAGE, label: string, changes: Change[]) {
  return { history: record(history, { label, changes, before: inverse(doc, changes) }), doc: apply(doc, changes) };
}

test("undo takes back whole steps, redo does them again", () => {
  const one = step(NO_HISTORY, PAGE, "Move", [
    ["position", "x", [1, 1]],
    ["position", "pool", [2, 2]],
  ]);
  const two = step(one.history, one.doc, "Delete", [["block", "session", null]]);
  const back = undo(two.history, two.doc);
  expect(back?.step.label).toBe("Delete");
  const doc = apply(two.doc, back?.changes ?? []);
  expect(doc).toEqual(one.doc);
  const further = undo(back?.history ?? NO_HISTORY, doc);
  expect(apply(doc, further?.changes ?? [])).toEqual(PAGE);
  const again = redo(further?.history ?? NO_HISTORY, PAGE);
  expect(apply(PAGE, again?.changes ?? [])).toEqual(one.doc);
});

test("undo leaves alone what somebody else has changed since", () => {
  const mine = step(NO_HISTORY, PAGE, "Move", [
    ["position", "x", [1, 1]],
    ["position", "pool", [2, 2]],
  ]);
  const theirs = apply(mine.doc, [["position", "x", [9, 9]]]);
  const back = undo(mine.history, theirs);
  expect(back?.kept).toEqual([["position", "x", [0, 0]]]);
  expect(apply(theirs, back?.changes ?? []).position).toMatchObject({ x: [9, 9], pool: [300, 0] });
});

test("a new step forgets what could have been redone", () => {
  const one = step(NO_HISTORY, PAGE, "A", [["position", "x", [1, 1]]]);
  const back = undo(one.history, one.doc);
  const other = step(back?.history ?? NO_HISTORY, PAGE, "B", [["position", "x", [2, 2]]]);
  expect(other.history.future).toEqual([]);
  expect(undo(NO_HISTORY, PAGE)).toBeNull();
});
