// A page being worked on: palette, canvas, inspector, the dock below, and the keyboard for all of it.
import { ReactFlowProvider, useReactFlow } from "@xyflow/react";
import { type RefObject, useEffect } from "react";
import { Canvas } from "./Canvas";
import { useActions, useStudio } from "./context";
import { Dock } from "./Dock";
import { ConflictDialog, Dialogs } from "./dialogs";
import { Finder } from "./Finder";
import { Guard } from "./Guard";
import { Inspector } from "./Inspector";
import { Notices } from "./Notices";
import { Palette } from "./Palette";
import { handleKey } from "./shortcuts";
import { TopBar } from "./TopBar";

export function Editor({ root }: { root: RefObject<HTMLElement | null> }) {
  const loading = useStudio((state) => state.loading);
  return (
    <ReactFlowProvider>
      <TopBar />
      <Banners />
      <main className="workspace" data-testid="editor" aria-busy={loading} inert={loading}>
        <Palette />
        <div className="centre">
          <Guard part="the canvas">
            <Canvas />
          </Guard>
          <Dock />
          <ConflictDialog />
          <Notices />
        </div>
        <Guard part="the inspector">
          <Inspector />
        </Guard>
        <Finder />
      </main>
      <Dialogs />
      <Keyboard root={root} />
    </ReactFlowProvider>
  );
}

function Banners() {
  const studio = useActions();
  const connection = useStudio((state) => state.connection);
  const saved = useStudio((state) => state.saved);
  return (
    <>
      {connection === "closed" && (
        <div className="banner" role="status" data-testid="offline">
          The connection to the server is lost. Your edits are kept here and sent as soon as it is back.
        </div>
      )}
      {saved?.state === "conflict" && (
        <div className="banner" role="alert" data-testid="disk-conflict">
          <span className="grow">{saved.message ?? "The file was changed outside of the studio."}</span>
          <button type="button" className="button small outlined" onClick={() => void studio.files.resolveDisk("disk")}>
            Take the file
          </button>
          <button type="button" className="button small outlined" onClick={() => void studio.files.resolveDisk("mine")}>
            Keep mine
          </button>
        </div>
      )}
      {saved?.state === "failed" && (
        <div className="banner" role="alert">
          The page could not be saved: {saved.message}
        </div>
      )}
    </>
  );
}

const TYPING = "input, textarea, select, [contenteditable], dialog, [role=menu]";

/** Keys and clipboard. In a notebook only while the editor has the focus. */
function Keyboard({ root }: { root: RefObject<HTMLElement | null> }) {
  const studio = useActions();
  const flow = useReactFlow();
  const embedded = useStudio((state) => state.embedded);
  useEffect(() => {
    const target: HTMLElement | Document = embedded && root.current ? root.current : document;
    const typing = (event: Event) => (event.target as Element | null)?.closest?.(TYPING);
    const onKey = (event: Event) => {
      const key = event as KeyboardEvent;
      if (typing(key) || key.defaultPrevented) return;
      const view = { zoomIn: () => void flow.zoomIn(), zoomOut: () => void flow.zoomOut() };
      if (handleKey(studio, key, view)) key.preventDefault();
    };
    const onCopy = (event: Event) => {
      const { clipboardData, type } = event as ClipboardEvent;
      const text = typing(event) || window.getSelection()?.toString() ? "" : studio.edit.copied();
      if (!text || !clipboardData) return;
      clipboardData.setData("text/plain", text);
      event.preventDefault();
      if (type === "cut") studio.edit.removeSelected();
    };
    const onPaste = (event: Event) => {
      const text = (event as ClipboardEvent).clipboardData?.getData("text/plain");
      if (typing(event) || !text) return;
      event.preventDefault();
      studio.edit.paste(text);
    };
    const listeners = [
      ["keydown", onKey],
      ["copy", onCopy],
      ["cut", onCopy],
      ["paste", onPaste],
    ] as const;
    for (const [name, listener] of listeners) target.addEventListener(name, listener);
    return () => {
      for (const [name, listener] of listeners) target.removeEventListener(name, listener);
    };
  }, [studio, flow, embedded, root]);
  return null;
}
