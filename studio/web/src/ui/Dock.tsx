// What opens below the canvas: results, the window view, the list of problems. It can be pulled up to any height or
// cover the canvas.
import type { DockTab, State } from "../state/state";
import { WindowView } from "../windows/WindowView";
import { useActions, useStudio } from "./context";
import { Guard } from "./Guard";
import { Problems } from "./Problems";
import { ResultPanel } from "./ResultPanel";
import { BarButton } from "./TopBar";

const TABS: [DockTab, string][] = [
  ["result", "Result"],
  ["windows", "Window view"],
  ["problems", "Problems"],
];

/** Three columns of two planes are readable from here on. */
const WINDOWS_SHARE = 0.62;

function heightOf({ dock, dockHeight, windowsHeight }: State): number {
  return dock === "windows" ? (windowsHeight ?? Math.round(window.innerHeight * WINDOWS_SHARE)) : dockHeight;
}

export function Dock() {
  const studio = useActions();
  const dock = useStudio((state) => state.dock);
  const tall = useStudio((state) => state.dockTall);
  const height = useStudio(heightOf);
  const problems = useStudio((state) => state.inference.problems.length);
  if (!dock) return <DockHandle problems={problems} />;
  return (
    <section
      className={`dock ${tall ? "tall" : ""}`}
      style={tall ? undefined : { height }}
      aria-label="Results and windows"
      data-testid="dock"
    >
      {!tall && <Grip height={height} />}
      <div className="dock-head">
        <DockTabs dock={dock} problems={problems} />
        <span className="grow" />
        <BarButton
          icon={tall ? "collapse" : "expand"}
          label={tall ? "Make it smaller" : "Cover the canvas"}
          testid="dock-tall"
          onClick={() => studio.set({ dockTall: !tall })}
        />
        <BarButton
          icon="close"
          label="Close the panel"
          testid="dock-close"
          onClick={() => studio.set({ dock: null, dockTall: false })}
        />
      </div>
      <div className="dock-body" role="tabpanel" aria-label={TABS.find(([tab]) => tab === dock)?.[1]}>
        <Guard key={dock} part="this panel">
          {dock === "result" && <ResultPanel />}
          {dock === "windows" && <WindowView />}
          {dock === "problems" && <Problems />}
        </Guard>
      </div>
    </section>
  );
}

function DockTabs({ dock, problems }: { dock: DockTab; problems: number }) {
  const studio = useActions();
  return (
    <div className="tabs" role="tablist" aria-label="Panel">
      {TABS.map(([tab, label]) => (
        <button
          key={tab}
          type="button"
          role="tab"
          aria-selected={dock === tab}
          data-testid={`dock-${tab}`}
          onClick={() => studio.set({ dock: tab })}
        >
          {label}
          {tab === "problems" && problems > 0 && <span className="badge bad">{problems}</span>}
        </button>
      ))}
    </div>
  );
}

/** The closed dock: a strip that says whether there are problems. */
function DockHandle({ problems }: { problems: number }) {
  const studio = useActions();
  return (
    <div className="dock-closed">
      <button
        type="button"
        className="button small"
        onClick={() => studio.set({ dock: "result" })}
        data-testid="dock-result"
      >
        Result
      </button>
      <button
        type="button"
        className="button small"
        onClick={() => studio.set({ dock: "windows", dockTall: true })}
        data-testid="dock-windows"
      >
        Window view
      </button>
      <button
        type="button"
        className="button small"
        onClick={() => studio.set({ dock: "problems" })}
        data-testid="dock-problems"
      >
        Problems
        <span className={`badge ${problems ? "bad" : ""}`}>{problems}</span>
      </button>
    </div>
  );
}

function Grip({ height }: { height: number }) {
  const studio = useActions();
  const pull = (wanted: number) => {
    const reached = Math.max(140, Math.min(window.innerHeight - 220, wanted));
    studio.set(studio.state.dock === "windows" ? { windowsHeight: reached } : { dockHeight: reached });
  };
  return (
    <button
      type="button"
      className="dock-grip"
      aria-label="Height of the panel; arrow keys change it"
      onKeyDown={(event) => {
        const step = { ArrowUp: 24, ArrowDown: -24 }[event.key];
        if (step === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        pull(height + step);
      }}
      onPointerDown={(event) => {
        const from = event.clientY;
        event.currentTarget.setPointerCapture(event.pointerId);
        event.currentTarget.onpointermove = (move) => pull(height + from - move.clientY);
        event.currentTarget.onpointerup = (up) => {
          (up.currentTarget as HTMLElement).onpointermove = null;
        };
      }}
    />
  );
}
