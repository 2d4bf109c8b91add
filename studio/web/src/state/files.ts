// Opening and keeping pages: the gallery, where the browser's address points, copies, uploads, downloads, history.
import type { Doc } from "../model/doc";
import type { Gallery, HistoryEntry } from "../protocol/messages";
import type { Route } from "./state";
import type { Studio } from "./studio";

type Created = { page: string };

export class Files {
  constructor(private readonly studio: Studio) {}

  /** Shows what the address says: "#/" is the gallery, "#/page/a.page.json" a page. */
  async follow(): Promise<void> {
    if (this.studio.state.embedded) return;
    const address = window.location.hash;
    const route = parseRoute(address);
    // When it changed meanwhile, the later call goes on.
    if (!(await this.mayLeave(route)) || window.location.hash !== address) return;
    this.studio.set({ route });
    if (route.view === "gallery") {
      if (this.studio.state.page !== null) this.studio.client.tell("close");
      this.studio.set({ page: null, loading: false });
      await this.gallery();
    } else if (this.studio.state.page !== route.page) await this.studio.open(route.page, "fresh");
  }

  /** A page is left when the server has all of its edits. One that collides with somebody else's is decided first. */
  private async mayLeave(route: Route): Promise<boolean> {
    const { page, connection } = this.studio.state;
    if (page === null || (route.view === "page" && route.page === page)) return true;
    if (this.studio.sync.unsaved > 0 && connection !== "open") {
      this.studio.notify("bad", "This page stays open until its last edits have reached the server.");
    }
    await this.studio.sync.settled();
    if (this.studio.state.conflict === null) return true;
    this.go({ view: "page", page });
    return false;
  }

  go(route: Route): void {
    // In a notebook the address is not ours.
    if (this.studio.state.embedded) return;
    const hash = route.view === "gallery" ? "#/" : `#/page/${encodeURIComponent(route.page)}`;
    if (window.location.hash === hash) void this.follow();
    else window.location.hash = hash;
  }

  async gallery(): Promise<void> {
    const gallery = await this.studio.ask<Gallery>("gallery");
    if (gallery) this.studio.set({ gallery });
  }

  /** A page opens as it is; an example opens as a copy of one's own and runs. */
  async openCard(page: string): Promise<void> {
    if (!page.startsWith("example:")) {
      this.go({ view: "page", page });
      return;
    }
    const created = await this.studio.ask<Created>("copy", { from: page });
    if (!created) return;
    this.studio.runWhenOpen = created.page;
    this.go({ view: "page", page: created.page });
  }

  async create(title?: string): Promise<void> {
    const created = await this.studio.ask<Created>("new", title ? { title } : {});
    if (created) this.go({ view: "page", page: created.page });
  }

  /** Saves a copy under another name and goes on there. False when the name is taken and may not be overwritten. */
  async saveAs(page: string, overwrite: boolean): Promise<boolean> {
    const from = this.studio.state.page;
    await this.studio.sync.settled();
    try {
      const created = await this.studio.client.request<Created>("copy", { from, page, overwrite });
      this.go({ view: "page", page: created.page });
      return true;
    } catch (error) {
      if ((error as { code?: string }).code === "exists") return false;
      this.studio.complain(error);
      return true;
    }
  }

  async remove(page: string): Promise<void> {
    if (!(await this.studio.ask("delete", { page }))) return;
    this.studio.notify("info", `${page} is deleted`, { label: "Undo", run: () => void this.undelete(page) });
    await this.gallery();
  }

  async undelete(page: string): Promise<void> {
    if (!(await this.studio.ask("undelete", { page }))) return;
    this.studio.notify("info", `${page} is back`);
    await this.gallery();
  }

  async rename(page: string, to: string): Promise<void> {
    if (!(await this.studio.ask("rename", { page, to }))) return;
    if (this.studio.state.page === page) this.go({ view: "page", page: to });
    else await this.gallery();
  }

  async upload(file: File): Promise<void> {
    try {
      const fields = { name: file.name, kind: "page" };
      const created = await this.studio.client.upload<Created>("upload", fields, await file.arrayBuffer());
      this.go({ view: "page", page: created.page });
    } catch (error) {
      this.studio.complain(error);
    }
  }

  /** Puts an array beside the page; the path is what a Load block wants. */
  async uploadData(file: File): Promise<string | null> {
    try {
      const fields = { name: file.name, kind: "data", page: this.studio.state.page };
      return (await this.studio.client.upload<{ path: string }>("upload", fields, await file.arrayBuffer())).path;
    } catch (error) {
      this.studio.complain(error);
      return null;
    }
  }

  async python(): Promise<{ name: string; text: string } | null> {
    return this.studio.askAboutPage("export", { to: "python" });
  }

  async downloadPage(): Promise<void> {
    const file = await this.studio.askAboutPage<{ name: string; text: string }>("page_text");
    if (file) saveBlob(new Blob([file.text], { type: "application/json" }), file.name);
  }

  /** A result as a file: by its address in the browser, by its bytes in a notebook. */
  async downloadResult(fields: object): Promise<void> {
    const reply = await this.studio.ask<Record<string, unknown>>("download", fields);
    if (!reply) return;
    if ("payload" in reply) {
      const { header, payload } = reply as { header: { name: string }; payload: ArrayBuffer };
      saveBlob(new Blob([payload]), header.name);
    } else follow(String(reply.url), String(reply.name));
  }

  async history(): Promise<HistoryEntry[]> {
    return (await this.studio.ask<{ entries: HistoryEntry[] }>("history"))?.entries ?? [];
  }

  async historyPage(entry: string): Promise<Doc | null> {
    return (await this.studio.ask<{ doc: Doc }>("history_page", { entry }))?.doc ?? null;
  }

  async restore(entry: string): Promise<void> {
    const done = await this.studio.askAboutPage("restore", { entry });
    if (done) this.studio.notify("info", "The earlier state is back. Undo takes you to where you were.");
  }

  async resolveDisk(keep: "mine" | "disk"): Promise<void> {
    await this.studio.ask("resolve_disk", { keep });
  }
}

export function parseRoute(hash: string): Route {
  const match = /^#\/page\/(.+)$/.exec(hash);
  if (!match?.[1]) return { view: "gallery" };
  try {
    return { view: "page", page: decodeURIComponent(match[1]) };
  } catch {
    return { view: "gallery" };
  }
}

function follow(url: string, name: string): void {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
}

export function saveBlob(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  follow(url, name);
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
