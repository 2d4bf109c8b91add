// Running a page and what comes back: progress block by block, results with their small pictures.
import type { BlockProgress, Header, RunState, Summary } from "../protocol/messages";
import type { Result } from "./state";
import type { Studio } from "./studio";

/** Milliseconds between two times that news is shown: more on pages with many blocks, which take long to draw. */
const PAUSE = 80;
const LONGEST_PAUSE = 500;

export class Runs {
  /** Results and progress come in bursts; they are shown some times a second, and at once when the run ends. */
  private arrived = new Map<string, Result>();
  private reported: Record<string, BlockProgress> = {};
  private timer: ReturnType<typeof setTimeout> | null = null;
  private fitWhenDone = false;
  private starting = false;

  constructor(private readonly studio: Studio) {}

  /** Asking twice, as with a double click, starts one run. */
  async run(fetch?: string[]): Promise<void> {
    const { engine, run } = this.studio.state;
    if (this.starting || run?.state === "running") return;
    this.starting = true;
    this.reported = {};
    // What the last run came to is no longer said.
    this.studio.set({ progress: {}, run: null });
    const started = await this.studio.askAboutPage("run", {
      ...(fetch ? { fetch } : {}),
      ...(engine ? { engine } : {}),
    });
    this.starting = false;
    if (!started && this.studio.state.run === null) this.studio.set({ run });
  }

  /** Runs a page that was just opened; with the pictures its blocks grow, so it is fitted once more. */
  async runAndFit(): Promise<void> {
    this.fitWhenDone = true;
    await this.run();
  }

  async stop(): Promise<void> {
    await this.studio.ask("stop");
  }

  async live(on: boolean): Promise<void> {
    this.studio.set({ live: on });
    if (!(await this.studio.ask("live", { on }))) this.studio.set({ live: !on });
  }

  async clear(): Promise<void> {
    if (await this.studio.ask("clear")) this.forget();
  }

  /** Results that a page already has; their pictures follow as events. */
  known(summaries: readonly Summary[], stale: readonly string[]): void {
    const results = new Map(this.studio.state.results);
    const keys = new Set(summaries.map(({ key }) => key));
    for (const key of results.keys()) if (!keys.has(key)) results.delete(key);
    for (const summary of summaries) {
      const values = results.get(summary.key)?.values ?? null;
      results.set(summary.key, { summary, values, stale: stale.includes(summary.key) });
    }
    this.studio.set({ results });
  }

  event(message: Header, payload: ArrayBuffer | null): void {
    switch (message.type) {
      case "run":
        this.studio.set({ run: message as unknown as RunState });
        if (message.state !== "running") this.ended();
        break;
      case "progress":
        this.progress(message.blocks as Record<string, BlockProgress>);
        break;
      case "result":
        if (payload) this.result(message as unknown as Summary, payload);
        break;
      case "stale":
        this.stale(message.keys as string[]);
        break;
      case "live":
        this.studio.set({ live: message.on === true });
        break;
      case "results_lost":
        this.forget();
        this.studio.notify("bad", String(message.message));
        break;
    }
  }

  private ended(): void {
    this.show();
    if (this.fitWhenDone) this.studio.edit.canvas?.overview();
    this.fitWhenDone = false;
  }

  private progress(blocks: Record<string, BlockProgress>): void {
    Object.assign(this.reported, blocks);
    this.soon();
  }

  private result(summary: Summary, payload: ArrayBuffer): void {
    this.arrived.set(summary.key, { summary, values: new Float32Array(payload), stale: false });
    this.soon();
  }

  private soon(): void {
    const pause = Math.min(LONGEST_PAUSE, PAUSE + Object.keys(this.studio.state.doc.block).length);
    this.timer ??= globalThis.setTimeout(() => this.show(), pause);
  }

  private show(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    if (this.arrived.size === 0 && Object.keys(this.reported).length === 0) return;
    const results = this.arrived.size
      ? new Map([...this.studio.state.results, ...this.arrived])
      : this.studio.state.results;
    const progress = { ...this.studio.state.progress, ...this.reported };
    this.arrived = new Map();
    this.reported = {};
    this.studio.set({ results, progress });
  }

  /** Exactly these results are out of date. */
  private stale(keys: readonly string[]): void {
    const out = new Set(keys);
    const marked = (of: ReadonlyMap<string, Result>) =>
      new Map(
        [...of].map(([key, result]) => [
          key,
          result.stale === out.has(key) ? result : { ...result, stale: out.has(key) },
        ]),
      );
    this.arrived = marked(this.arrived);
    this.studio.set({ results: marked(this.studio.state.results) });
  }

  private forget(): void {
    this.arrived = new Map();
    this.reported = {};
    this.studio.set({ results: new Map(), progress: {} });
  }
}
