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
      reopen: () => void this.open(this.state.page ?? "", false),
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

  /** Opens a page. `resume` asks only for what was missed since the connection was lost. */
  async open(page: string, resume: boolean): Promise<void> {
    if (!resume) this.set({ ...FRESH_PAGE, page, loading: true });
    const have = resume ? { have: { version: this.sync.version, token: this.sync.token } } : {};
    try {
      this.opened(await this.client.request<OpenedPage>("open", { page, ...have }));
    } catch (error) {
      this.set({ loading: false });
      this.complain(error);
      if ((error as { code?: string }).code !== "lost") this.files.go({ view: "gallery" });
    }
  }

  private opened(opened: OpenedPage): void {
    const { inference, run, peers, saved, version, token, live } = opened;
    this.set({ page: opened.page, inference, run, peers, saved, live: live ?? false, loading: false });
    if (opened.doc) this.sync.start(opened.doc, version, token, this.sync.token !== "" && this.sync.unsaved > 0);
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
    if (this.options.page !== undefined && page === null) await this.open(this.options.page, false);
    else if (page !== null && route.view === "page" && route.page === page) await this.open(page, true);
    else await this.files.follow();
  }

  private event(message: Header, payload: ArrayBuffer | null): void {
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
