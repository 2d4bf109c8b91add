import { beforeEach, expect, test, vi } from "vitest";
import type { Changed, Conflict } from "../protocol/messages";
import { PAGE } from "../test/blocks";
import { type Outbox, type Pending, Sync, type Verdict } from "./sync";

/** A server that answers when the test says so. */
class Line implements Outbox {
  sent: { edit: Pending; answer: (verdict: Verdict) => void; fail: (error: Error) => void }[] = [];
  conflicts: { mine: Pending; theirs: Conflict }[] = [];
  reopened = 0;
  refusals: string[] = [];
  send(edit: Pending): Promise<Verdict> {
    return new Promise((answer, fail) => this.sent.push({ edit, answer, fail }));
  }
  changed(): void {}
  conflict(mine: Pending, theirs: Conflict): void {
    this.conflicts.push({ mine, theirs });
  }
  reopen(): void {
    this.reopened++;
  }
  refused(_: Pending, error: Error): void {
    this.refusals.push(error.message);
  }
}

let line: Line;
let sync: Sync;
const somebody = { client: "b", name: "B", color: "#000" };
const theirs = (version: number, x: number): Changed => ({
  version,
  changes: [["position", "x", [x, 0]]],
  label: "Move x",
  by: somebody,
  at: 0,
});
const settle = () => vi.waitFor(() => Promise.resolve());

beforeEach(() => {
  line = new Line();
  sync = new Sync(line);
  sync.start(PAGE, 5, "token");
});

test("an edit is seen at once and confirmed later", async () => {
  sync.submit([["position", "x", [1, 1]]], "Move x");
  expect(sync.doc.position.x).toEqual([1, 1]);
  expect(sync.unsaved).toBe(1);
  line.sent[0]?.answer({ type: "accepted", version: 6 });
  await settle();
  expect([sync.version, sync.unsaved]).toEqual([6, 0]);
  expect(sync.doc.position.x).toEqual([1, 1]);
});

test("one edit is in flight at a time, so that none collides with our own", async () => {
  sync.submit([["position", "x", [1, 1]]], "A");
  sync.submit([["position", "x", [2, 2]]], "B");
  expect(line.sent).toHaveLength(1);
  line.sent[0]?.answer({ type: "accepted", version: 6 });
  await settle();
  expect(line.sent[1]?.edit.label).toBe("B");
});

test("what others change is merged below our own edits", () => {
  sync.submit([["position", "pool", [7, 7]]], "Move pool");
  sync.receive(theirs(6, 99));
  expect(sync.doc.position).toMatchObject({ x: [99, 0], pool: [7, 7] });
});

test("a change that overtakes the verdict on our edit waits for it", async () => {
  sync.submit([["position", "pool", [7, 7]]], "Move pool");
  sync.receive(theirs(7, 99));
  expect(line.reopened).toBe(0);
  line.sent[0]?.answer({ type: "accepted", version: 6 });
  await settle();
  expect(sync.version).toBe(7);
  expect(sync.doc.position).toMatchObject({ x: [99, 0], pool: [7, 7] });
});

test("a gap means that the page has to be opened again", () => {
  sync.receive(theirs(8, 99));
  expect(line.reopened).toBe(1);
});

test("in a conflict theirs stands and ours is handed back, with all that was built on it", async () => {
  sync.submit([["position", "x", [1, 1]]], "Move x");
  sync.submit([["position", "x", [2, 2]]], "Move x again");
  line.sent[0]?.answer({
    type: "conflict",
    version: 6,
    entries: [{ kind: "position", key: "x", theirs: [99, 0] }],
    by: somebody,
    changes: [theirs(6, 99)],
  });
  await settle();
  expect(sync.doc.position.x).toEqual([99, 0]);
  expect(line.conflicts[0]?.mine.changes).toHaveLength(2);
  expect([sync.version, sync.unsaved]).toEqual([6, 0]);
});

test("after a lost connection the edit is sent again under the same name", async () => {
  sync.submit([["position", "x", [1, 1]]], "Move x");
  sync.lost();
  line.sent[0]?.fail(Object.assign(new Error("lost"), { code: "lost" }));
  await settle();
  expect(sync.unsaved).toBe(1);
  sync.resume([], 5);
  expect(line.sent[1]?.edit.edit).toBe(line.sent[0]?.edit.edit);
});

test("what others changed while we were away is news to our edit: the server must be able to see that", () => {
  sync.lost();
  sync.submit([["position", "x", [1, 1]]], "Move x");
  sync.resume([theirs(6, 99)], 6);
  expect(line.sent[0]?.edit.base).toBe(5);
});

test("a server that has forgotten us: edits that collide are handed back, others are sent again", () => {
  sync.lost();
  sync.submit([["position", "x", [1, 1]]], "Move x");
  sync.start({ ...PAGE, position: { ...PAGE.position, x: [99, 0] } }, 1, "another");
  expect(line.conflicts[0]?.theirs.entries).toEqual([{ kind: "position", key: "x", theirs: [99, 0] }]);
  expect(sync.doc.position.x).toEqual([99, 0]);
  sync.lost();
  sync.submit([["position", "pool", [1, 1]]], "Move pool");
  sync.start({ ...PAGE, position: { ...PAGE.position, x: [77, 0] } }, 1, "a third");
  expect(line.conflicts).toHaveLength(1);
  expect(line.sent.at(-1)?.edit).toMatchObject({ label: "Move pool", base: 1 });
});

test("an edit that had arrived before the connection was lost is not applied over what came later", async () => {
  sync.submit([["position", "x", [1, 1]]], "Move x");
  sync.lost();
  sync.resume([{ ...theirs(6, 0), changes: [["position", "x", [1, 1]]] }, theirs(7, 99)], 7);
  line.sent[1]?.answer({ type: "accepted", version: 6 });
  await settle();
  expect(sync.doc.position.x).toEqual([99, 0]);
  expect(sync.version).toBe(7);
});

test("an edit that the server refuses is taken back and said so", async () => {
  sync.submit([["position", "x", [1, 1]]], "Move x");
  line.sent[0]?.fail(Object.assign(new Error("no such block"), { code: "refused" }));
  await settle();
  expect(line.refusals).toEqual(["no such block"]);
  expect(sync.doc).toEqual(PAGE);
});

test("what the server tidied up is taken over", async () => {
  sync.submit([["block", "session", null]], "Delete session");
  line.sent[0]?.answer({ type: "accepted", version: 6, also: [["wire", "session.fetch_outputs[0]", null]] });
  await settle();
  expect(sync.doc.wire).not.toHaveProperty("session.fetch_outputs[0]");
});

test("a verdict on an edit of the page before does not touch the page that is open now", async () => {
  sync.submit([["position", "x", [1, 1]]], "Move x");
  sync.clear();
  expect([sync.unsaved, sync.doc.position]).toEqual([0, {}]);
  sync.submit([["position", "new", [2, 2]]], "Too early, kept until the page is here");
  expect(line.sent).toHaveLength(1);
  sync.start(PAGE, 3, "another page");
  line.sent[0]?.answer({ type: "accepted", version: 6 });
  await settle();
  expect([sync.version, sync.unsaved, line.sent.length]).toEqual([3, 1, 2]);
  expect(sync.doc.position).toMatchObject({ x: PAGE.position.x, new: [2, 2] });
});

test("whoever wants to leave waits until every edit has its verdict", async () => {
  let left = false;
  await sync.settled();
  sync.submit([["position", "x", [1, 1]]], "A");
  sync.submit([["position", "x", [2, 2]]], "B");
  void sync.settled().then(() => {
    left = true;
  });
  line.sent[0]?.answer({ type: "accepted", version: 6 });
  await settle();
  expect(left).toBe(false);
  line.sent[1]?.answer({ type: "accepted", version: 7 });
  await settle();
  expect(left).toBe(true);
});
