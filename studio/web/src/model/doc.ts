// A page as the editor keeps it: a flat map of entries, so that an edit touches as little as possible. Nothing here
// changes a document in place; every function returns a new one that shares what stayed the same.
import type { Block, Note, Position } from "./page";

export type Doc = {
  page: Readonly<Record<string, unknown>>;
  block: Readonly<Record<string, Block>>;
  /** The output that feeds a pin, by the pin: {"pool.input": "x.output"}. */
  wire: Readonly<Record<string, string>>;
  position: Readonly<Record<string, Position>>;
  note: Readonly<Record<string, Note>>;
};

export type Kind = keyof Doc;

/** One entry and its new value; null removes it. */
export type Change = readonly [kind: Kind, key: string, value: unknown];

export const EMPTY: Doc = { page: {}, block: {}, wire: {}, position: {}, note: {} };

export function entry(doc: Doc, kind: Kind, key: string): unknown {
  return doc[kind][key] ?? null;
}

export function apply(doc: Doc, changes: readonly Change[]): Doc {
  const next: Record<Kind, Record<string, unknown>> = { ...doc };
  const copied = new Set<Kind>();
  for (const [kind, key, value] of changes) {
    if (!copied.has(kind)) {
      next[kind] = { ...next[kind] };
      copied.add(kind);
    }
    if (value === null || value === undefined) delete next[kind][key];
    else next[kind][key] = value;
  }
  return next as Doc;
}

/** The changes that take `apply(doc, changes)` back to `doc`. */
export function inverse(doc: Doc, changes: readonly Change[]): Change[] {
  const seen = new Set<string>();
  const back: Change[] = [];
  for (const [kind, key] of changes) {
    if (seen.has(`${kind} ${key}`)) continue;
    seen.add(`${kind} ${key}`);
    back.push([kind, key, entry(doc, kind, key)]);
  }
  return back;
}

/** What turns `from` into `to`, entry by entry. */
export function difference(from: Doc, to: Doc): Change[] {
  const changes: Change[] = [];
  for (const kind of Object.keys(EMPTY) as Kind[]) {
    if (from[kind] === to[kind]) continue;
    for (const key of Object.keys(from[kind])) if (!(key in to[kind])) changes.push([kind, key, null]);
    for (const [key, value] of Object.entries(to[kind])) {
      if (!same(from[kind][key], value)) changes.push([kind, key, value]);
    }
  }
  return changes;
}

/** Whether two JSON values are equal. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const left = Object.entries(a);
  const right = b as Record<string, unknown>;
  return left.length === Object.keys(b).length && left.every(([key, value]) => key in right && same(value, right[key]));
}
