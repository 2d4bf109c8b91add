// The studio in a browser tab.
import "./tab.css";
import { createRoot } from "react-dom/client";
import { SocketTransport } from "./protocol/transport";
import type { Theme } from "./state/state";
import { Studio } from "./state/studio";
import { App } from "./ui/App";

function remembered(storage: Storage, key: string, otherwise: () => string): string {
  try {
    const value = storage.getItem(key) ?? otherwise();
    storage.setItem(key, value);
    return value;
  } catch {
    return otherwise();
  }
}

const theme = ((): Theme => {
  try {
    const kept = localStorage.getItem("poolgrad-theme");
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system";
  }
})();

const scheme = window.location.protocol === "https:" ? "wss" : "ws";
const client = remembered(sessionStorage, "poolgrad-client", () => Math.random().toString(36).slice(2));
const studio = new Studio(new SocketTransport(`${scheme}://${window.location.host}/socket`), {
  embedded: false,
  theme,
  client,
});
window.addEventListener("hashchange", () => void studio.files.follow());
window.addEventListener("beforeunload", (event) => {
  if (studio.sync.unsaved > 0) event.preventDefault();
});

const root = document.getElementById("root");
if (root) createRoot(root).render(<App studio={studio} />);
