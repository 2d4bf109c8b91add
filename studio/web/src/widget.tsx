// The studio inside a notebook, as an anywidget: the same editor over the notebook's own connection.
import { createRoot } from "react-dom/client";
import { type NotebookModel, NotebookTransport } from "./protocol/transport";
import { Studio } from "./state/studio";
import { App } from "./ui/App";

type Model = NotebookModel & { get(name: string): unknown };

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  // Notebooks style their own element as they like.
  const frame = document.createElement("div");
  frame.style.height = `${Number(model.get("height") ?? 640)}px`;
  el.append(frame);
  const client = Math.random().toString(36).slice(2);
  const page = String(model.get("page_name") ?? "");
  const studio = new Studio(new NotebookTransport(model), { embedded: true, theme: "system", client, page });
  const root = createRoot(frame);
  root.render(<App studio={studio} />);
  return () => {
    root.unmount();
    frame.remove();
    studio.close();
  };
}

export default { render };
