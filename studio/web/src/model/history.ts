// Undo and redo in whole steps. A step remembers what it changed and what was there before; undoing leaves alone the
// entries that somebody else has changed since.
import { type Change, type Doc, entry, same } from "./doc";

export type Step = { label: string; changes: readonly Change[]; before: readonly Change[] };

export type History = { past: readonly Step[]; future: readonly Step[] };

export const NO_HISTORY: History = { past: [], future: [] };

const KEPT = 500;

export function record(history: History, step: Step): History {
  return { past: [...history.past.slice(-KEPT + 1), step], future: [] };
}

export type Move = { history: History; step: Step; changes: Change[]; kept: Change[] };

/** The changes that undo the last step, and those left out because the entry is no longer as the step left it. */
export function undo(history: History, doc: Doc): Move | null {
  const step = history.past.at(-1);
  if (!step) return null;
  const [changes, kept] = applicable(doc, step.changes, step.before);
  return { step, changes, kept, history: { past: history.past.slice(0, -1), future: [step, ...history.future] } };
}

export function redo(history: History, doc: Doc): Move | null {
  const step = history.future[0];
  if (!step) return null;
  const [changes, kept] = applicable(doc, step.before, step.changes);
  return { step, changes, kept, history: { past: [...history.past, step], future: history.future.slice(1) } };
}

/** Splits `next` into entries that still are as `now` says, and others. The last word on an entry counts. */
function applicable(doc: Doc, now: readonly Change[], next: readonly Change[]): [Change[], Change[]] {
  const expected = new Map(now.map(([kind, key, value]) => [`${kind} ${key}`, value]));
  const changes: Change[] = [];
  const kept: Change[] = [];
  for (const change of next) {
    const [kind, key] = change;
    const fits = same(entry(doc, kind, key), expected.get(`${kind} ${key}`) ?? null);
    (fits ? changes : kept).push(change);
  }
  return [changes, kept];
}
