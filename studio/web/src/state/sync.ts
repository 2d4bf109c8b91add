// Keeps a document in step with the server. The document shown is what the server has confirmed plus the edits that are
// on their way, so typing never waits. One edit is in flight at a time; after a lost connection it is sent again under
// the same name, which the server recognises.
import { apply, type Change, type Doc, EMPTY, entry, same } from "../model/doc";
import type { Changed, Conflict } from "../protocol/messages";

/** An edit on its way. `base` is the version that the person saw when making it: what others changed since is news. */
export type Pending = { edit: string; label: string; changes: readonly Change[]; base: number };

export type Verdict = { type: "accepted"; version: number; also?: Change[] } | ({ type: "conflict" } & Conflict);

export type Outbox = {
  /** Sends one edit; the promise ends with the server's verdict or fails when the connection is lost. */
  send(edit: Pending): Promise<Verdict>;
  changed(doc: Doc): void;
  conflict(mine: Pending, theirs: Conflict): void;
  /** The server no longer knows how we got here: the page has to be opened again. */
  reopen(): void;
  /** The server refused an edit for good. */
  refused(edit: Pending, error: Error): void;
};

const newId = (): string => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

export class Sync {
  private confirmed: Doc = EMPTY;
  private pending: Pending[] = [];
  private early: Changed[] = [];
  private flying = false;
  private online = true;
  /** Which page or connection an edit was sent on: a verdict from before is no longer ours. */
  private round = 0;
  private waiting: (() => void)[] = [];
  version = 0;
  token = "";
  doc: Doc = EMPTY;

  constructor(private readonly outbox: Outbox) {}

  get unsaved(): number {
    return this.pending.length;
  }

  /** Another page is on its way: nothing of this one counts any more, and nothing is sent until it is here. */
  clear(): void {
    this.confirmed = EMPTY;
    this.pending = [];
    this.version = 0;
    this.token = "";
    this.lost();
    this.show();
  }

  /** Ends when every edit has its verdict. */
  settled(): Promise<void> {
    return this.pending.length === 0 ? Promise.resolve() : new Promise((done) => this.waiting.push(done));
  }

  /** Begins with a page as the server has it. Edits that the server has not confirmed stay in line. */
  start(doc: Doc, version: number, token: string): void {
    const before = this.confirmed;
    this.confirmed = doc;
    this.version = version;
    this.token = token;
    const waiting = this.pending;
    const clash = waiting.flatMap(({ changes }) => changes).filter((change) => collides(change, before, doc));
    this.pending = clash.length ? [] : waiting.map((edit) => ({ ...edit, base: version }));
    this.goOn();
    const [first] = waiting;
    if (first && clash.length) this.giveBack(first, waiting, clash);
  }

  /** The server's memory is another one and the same entries were changed there: a person has to decide. */
  private giveBack(first: Pending, waiting: readonly Pending[], clash: readonly Change[]): void {
    const changes = waiting.flatMap((edit) => edit.changes);
    const entries = clash.map(([kind, key]) => ({ kind, key, theirs: entry(this.confirmed, kind, key) }));
    const by = { name: "Somebody", color: "#666" };
    this.outbox.conflict({ ...first, changes }, { version: this.version, entries, by, changes: [] });
  }

  /** Goes on after a reconnection with the changes that were missed. */
  resume(since: readonly Changed[], version: number): void {
    for (const changed of since) this.takeOver(changed);
    this.version = version;
    this.goOn();
  }

  private goOn(): void {
    this.round++;
    this.early = [];
    this.online = true;
    this.flying = false;
    this.show();
    void this.pump();
  }

  lost(): void {
    this.round++;
    this.early = [];
    this.online = false;
    this.flying = false;
  }

  submit(changes: readonly Change[], label: string): void {
    this.pending.push({ edit: newId(), label, changes, base: this.version });
    this.show();
    void this.pump();
  }

  /** A change that came from elsewhere. */
  receive(changed: Changed): void {
    if (!this.online || changed.version <= this.version) return;
    if (changed.version > this.version + 1) {
      // The version between is our own edit, whose verdict is still on its way; otherwise something was missed.
      if (this.flying) this.early.push(changed);
      else this.outbox.reopen();
      return;
    }
    this.takeOver(changed);
    this.show();
  }

  private catchUp(): void {
    const early = this.early;
    this.early = [];
    for (const changed of early) this.receive(changed);
  }

  private takeOver(changed: Changed): void {
    if (changed.version <= this.version) return;
    this.confirmed = apply(this.confirmed, changed.changes);
    this.version = changed.version;
  }

  private show(): void {
    this.doc = this.pending.reduce((doc, { changes }) => apply(doc, changes), this.confirmed);
    this.outbox.changed(this.doc);
    if (this.pending.length > 0) return;
    const waiting = this.waiting;
    this.waiting = [];
    for (const done of waiting) done();
  }

  private async pump(): Promise<void> {
    const edit = this.pending[0];
    if (this.flying || !this.online || !edit) return;
    const { round } = this;
    this.flying = true;
    try {
      const verdict = await this.outbox.send(edit);
      if (round !== this.round) return;
      this.flying = false;
      this.settle(edit, verdict);
    } catch (error) {
      if (round !== this.round) return;
      this.flying = false;
      if ((error as { code?: string }).code === "lost") return;
      this.pending = this.pending.filter((other) => other !== edit);
      this.show();
      this.outbox.refused(edit, error as Error);
    }
    void this.pump();
  }

  private settle(edit: Pending, verdict: Verdict): void {
    this.pending = this.pending.filter((other) => other !== edit);
    if (verdict.type === "accepted") {
      // An edit that was sent twice is answered with the version it got the first time: then it is in already.
      if (verdict.version > this.version) {
        this.confirmed = apply(this.confirmed, [...edit.changes, ...(verdict.also ?? [])]);
        this.version = verdict.version;
      }
      this.show();
      this.catchUp();
      return;
    }
    for (const changed of verdict.changes) this.takeOver(changed);
    this.version = Math.max(this.version, verdict.version);
    this.early = [];
    // What was built on the refused edit cannot stand without it.
    const orphans = this.pending.flatMap(({ changes }) => changes);
    this.pending = [];
    this.show();
    this.outbox.conflict({ ...edit, changes: [...edit.changes, ...orphans] }, verdict);
  }
}

/** Whether an entry that we want to change was changed by somebody else, and not to the same. */
function collides([kind, key, value]: Change, before: Doc, after: Doc): boolean {
  const theirs = entry(after, kind, key);
  return !same(theirs, entry(before, kind, key)) && !same(theirs, value ?? null);
}
