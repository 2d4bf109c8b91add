// One editor: its connection, its document and its store. Actions are grouped by what a person does with a page:
// editing (this.edit), running (this.runs), keeping and opening (this.files).
import { createStore, type StoreApi } from "zustand/vanilla";
import { paletteOf } from "../model/page";
import { Client } from "../protocol/client";
import type { Changed, Header, Inference, OpenedPage, Peer, SaveState, Welcome } from "../protocol/messages";
import type { ConnectionState, Transport } from "../protocol/transport";
import { Editing } from "./editing";
import { Files } from "./files";
import { Runs } from "./runs";
import { FRESH_PAGE, initial, type Notice, type State, type Theme } from "./state";
import { Sync } from "./sync";

export type Options = { embedded: boolean; theme: Theme; client: string; page?: string };

export class Studio {
  readonly store: StoreApi<State>;
  readonly client: Client;
  readonly sync: Sync;
  readonly edit: Editing;
  readonly runs: Runs;
  readonly files: Files;
  /** The element it is drawn in: there may be several editors in one notebook. */
  root: ParentNode | null = null;
  /** A page that runs as soon as it is open. */
  runWhenOpen: string | null = null;
  private noticeId = 1;

  constructor(
    transport: Transport,
    private readonly options: Options,
  ) {
    this.store = createStore<State>(() => initial(options.theme, options.embedded));
    this.client = new Client(transport);
    this.client.onState((state) => this.connection(state));
    this.client.onEvent((message, payload) => this.event(message, payload));
    this.sync = new Sync({
      send: (edit) => this.client.request("edit", edit),
      changed: (doc) => this.store.setState({ doc, unsaved: this.sync.unsaved }),
      conflict: (mine, theirs) => this.store.setState({ conflict: { mine, theirs } }),
      reopen: () => void this.open(this.state.page ?? "", "again"),
      refused: (_, error) => this.complain(error),
    });
    this.edit = new Editing(this);
    this.runs = new Runs(this);
    this.files = new Files(this);
  }

  get state(): State {
    return this.store.getState();
  }

  set(part: Partial<State>): void {
    this.store.setState(part);
  }

  notify(kind: Notice["kind"], text: string, action?: Notice["action"]): void {
    const id = this.noticeId++;
    const notice: Notice = action ? { id, kind, text, action } : { id, kind, text };
    this.set({ notices: [...this.state.notices.filter((other) => other.text !== text), notice].slice(-4) });
    if (kind === "info") globalThis.setTimeout(() => this.dismiss(id), 5000);
  }

  dismiss(id: number): void {
    this.set({ notices: this.state.notices.filter((notice) => notice.id !== id) });
  }

  complain(error: unknown): void {
    const { code, message } = error as { code?: string; message?: string };
    if (code !== "lost") this.notify("bad", message ?? String(error));
  }

  /** Asks the server; a refusal becomes a notice and the answer null. */
  async ask<T>(type: string, fields: object = {}): Promise<T | null> {
    try {
      return await this.client.request<T>(type, fields);
    } catch (error) {
      this.complain(error);
      return null;
    }
  }

  /** Asks about the page as it is on the screen: edits that are on their way arrive first. */
  async askAboutPage<T>(type: string, fields: object = {}): Promise<T | null> {
    if (this.state.connection === "open") await this.sync.settled();
    return this.ask<T>(type, fields);
  }

  /**
   * Opens a page: a "fresh" one; the same one "again", whole, because it is no longer known how the server's came about;
   * or to "resume" it after a lost connection with what was missed. Until it is here nothing can be edited.
   */
  async open(page: string, how: "fresh" | "again" | "resume"): Promise<void> {
    if (how === "fresh") {
      this.sync.clear();
      this.set({ ...FRESH_PAGE, page });
    }
    if (how !== "resume") this.set({ loading: true });
    const have = how === "resume" ? { have: { version: this.sync.version, token: this.sync.token } } : {};
    try {
      const opened = await this.client.request<OpenedPage>("open", { page, ...have });
      if (this.state.page === page) this.opened(opened);
    } catch (error) {
      // What was lost is asked for again as soon as there is a connection.
      if ((error as { code?: string }).code === "lost" || this.state.page !== page) return;
      this.set({ loading: false });
      this.complain(error);
      this.files.go({ view: "gallery" });
    }
  }

  private opened(opened: OpenedPage): void {
    const { inference, run, peers, saved, version, token, live } = opened;
    this.set({ page: opened.page, inference, run, peers, saved, live: live ?? false, loading: false });
    if (opened.doc) this.sync.start(opened.doc, version, token);
    else this.sync.resume(opened.since ?? [], version);
    this.runs.known(opened.results, opened.stale ?? []);
    if (this.runWhenOpen === opened.page) void this.runs.runAndFit();
    this.runWhenOpen = null;
  }

  private connection(state: ConnectionState): void {
    if (state !== "open") {
      this.sync.lost();
      this.set({ connection: state });
      return;
    }
    void this.greet();
  }

  private async greet(): Promise<void> {
    const welcome = await this.ask<Welcome>("hello", { client: this.options.client });
    if (!welcome) return;
    this.set({ connection: "open", welcome, palette: paletteOf(welcome.catalog) });
    const { page, route } = this.state;
    if (this.options.page !== undefined && page === null) await this.open(this.options.page, "fresh");
    else if (page !== null && route.view === "page" && route.page === page) await this.open(page, "resume");
    else await this.files.follow();
  }

  private event(message: Header, payload: ArrayBuffer | null): void {
    // Until a page is here, what comes is about the one before.
    if (this.state.loading && message.type !== "gallery" && message.type !== "error") return;
    switch (message.type) {
      case "changed":
        this.edit.foreign(message as unknown as Changed);
        break;
      case "inference":
        this.set({ inference: (message as unknown as { inference: Inference }).inference });
        break;
      case "saved":
        this.set({ saved: message as unknown as SaveState });
        break;
      case "peers":
        this.set({ peers: message.peers as Peer[] });
        break;
      case "gallery":
        void this.files.gallery();
        break;
      case "error":
        this.notify("bad", String(message.message));
        break;
      default:
        this.runs.event(message, payload);
    }
  }

  close(): void {
    this.client.close();
  }
}
