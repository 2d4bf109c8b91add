// The studio: the gallery or a page, in light or dark.
import "@xyflow/react/dist/style.css";
import "../studio.css";
import { type RefObject, useEffect, useRef } from "react";
import type { Studio } from "../state/studio";
import { StudioContext, useActions, useStudio } from "./context";
import { Editor } from "./Editor";
import { Gallery } from "./Gallery";
import { Notices } from "./Notices";
import { Mark } from "./TopBar";
import { isDark } from "./theme";

export function App({ studio }: { studio: Studio }) {
  return (
    <StudioContext.Provider value={studio}>
      <Frame />
    </StudioContext.Provider>
  );
}

function Frame() {
  const theme = useStudio((state) => state.theme);
  const route = useStudio((state) => state.route);
  const connection = useStudio((state) => state.connection);
  const embedded = useStudio((state) => state.embedded);
  const root = useRef<HTMLDivElement>(null);
  useTheme(theme);
  useFocusKept(root, embedded);
  const studio = useActions();
  useEffect(() => {
    studio.root = root.current;
  }, [studio]);
  return (
    <div
      ref={root}
      className={`studio ${isDark(theme) ? "dark" : ""}`}
      tabIndex={embedded ? -1 : undefined}
      // JupyterLab takes no key that is pressed in here for one of its own: D D would delete the cell.
      data-lm-suppress-shortcuts={embedded ? "true" : undefined}
    >
      {connection === "expired" ? (
        <Expired />
      ) : route.view === "page" || embedded ? (
        <Editor root={root} />
      ) : (
        <>
          <Gallery />
          <Notices />
        </>
      )}
    </div>
  );
}

function Expired() {
  return (
    <main className="expired" role="alert">
      <div>
        <Mark />
        <h1>This link has expired</h1>
        <p>Open the link that the terminal shows now.</p>
      </div>
    </main>
  );
}

/**
 * In a notebook, when what had the focus goes away (a search that is done, a block that is deleted), the focus would fall
 * to the notebook, and the next key would be meant for its cells. It stays with the editor instead.
 */
function useFocusKept(root: RefObject<HTMLElement | null>, embedded: boolean): void {
  useEffect(() => {
    const element = root.current;
    if (!embedded || !element) return;
    let inside = false;
    const note = (event: Event) => {
      inside = element.contains(event.target as globalThis.Node);
    };
    const observer = new MutationObserver(() => {
      if (inside && document.activeElement === document.body) element.focus({ preventScroll: true });
    });
    observer.observe(element, { childList: true, subtree: true });
    for (const name of ["pointerdown", "focusin"]) document.addEventListener(name, note, true);
    return () => {
      observer.disconnect();
      for (const name of ["pointerdown", "focusin"]) document.removeEventListener(name, note, true);
    };
  }, [root, embedded]);
}

/** The choice of colours is remembered on this machine. */
function useTheme(theme: "light" | "dark" | "system"): void {
  useEffect(() => {
    try {
      if (theme !== "system") localStorage.setItem("poolgrad-theme", theme);
    } catch {
      // Without storage the choice lasts as long as the tab.
    }
  }, [theme]);
}
