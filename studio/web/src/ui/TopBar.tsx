// The bar above a page: where one is, whether it is kept, and what one does with the page as a whole.
import { useState } from "react";
import { useActions, useStudio } from "./context";
import { Icon, type IconName } from "./Icon";
import { Menu, type MenuItem } from "./Menu";
import { switchTheme } from "./shortcuts";
import { isDark } from "./theme";

export function Mark() {
  return (
    <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#14625c" />
      <g fill="#fff">
        <rect x="6" y="6" width="9" height="9" rx="1.5" fillOpacity=".35" />
        <rect x="17" y="6" width="9" height="9" rx="1.5" fillOpacity=".6" />
        <rect x="6" y="17" width="9" height="9" rx="1.5" fillOpacity=".6" />
        <rect x="17" y="17" width="9" height="9" rx="1.5" fill="#f4c20d" />
      </g>
    </svg>
  );
}

export function TopBar() {
  const studio = useActions();
  const embedded = useStudio((state) => state.embedded);
  return (
    <header className="topbar">
      {embedded ? (
        <span className="brand">
          <Mark />
        </span>
      ) : (
        <button
          type="button"
          className="button brand"
          aria-label="All pages"
          title="All pages"
          data-testid="home"
          onClick={() => studio.files.go({ view: "gallery" })}
        >
          <Mark />
        </button>
      )}
      <Title />
      <Status />
      <span className="grow" />
      <RunButtons />
      <span className="grow" />
      <People />
      <EditButtons />
      <span className="divider" />
      <PageMenu />
      <ThemeButton />
      <BarButton
        icon="keyboard"
        label="Keyboard shortcuts"
        keys="?"
        testid="shortcuts"
        onClick={() => studio.set({ dialog: "shortcuts" })}
      />
    </header>
  );
}

type BarButtonProps = {
  icon: IconName;
  label: string;
  keys?: string;
  testid: string;
  disabled?: boolean;
  pressed?: boolean;
  onClick: () => void;
};

export function BarButton({ icon, label, keys, testid, disabled, pressed, onClick }: BarButtonProps) {
  return (
    <button
      type="button"
      className="button square"
      aria-label={label}
      title={keys ? `${label} (${keys})` : label}
      aria-pressed={pressed}
      disabled={disabled}
      data-testid={testid}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}

function Title() {
  const studio = useActions();
  const page = useStudio((state) => state.page);
  const title = useStudio((state) => String(state.doc.page.title ?? ""));
  const [typed, setTyped] = useState<string | null>(null);
  const finish = () => {
    if (typed !== null && typed !== title) studio.edit.setPage("title", typed);
    setTyped(null);
  };
  return (
    <h1>
      <input
        className="title"
        aria-label="Title of the page"
        data-testid="page-title"
        placeholder={page ?? "Untitled"}
        title={page ?? undefined}
        value={typed ?? title}
        onChange={(event) => setTyped(event.target.value)}
        onBlur={finish}
        onKeyDown={(event) => {
          event.stopPropagation();
          if (event.key === "Enter") event.currentTarget.blur();
          if (event.key === "Escape") setTyped(null);
        }}
      />
    </h1>
  );
}

/** Whether what one sees is safe on the disk. */
function Status() {
  const saved = useStudio((state) => state.saved);
  const connection = useStudio((state) => state.connection);
  const unsaved = useStudio((state) => state.unsaved);
  const [bad, text] = statusText(connection, unsaved, saved?.state);
  return (
    <span className={`status ${bad ? "bad" : ""}`} role="status" data-testid="save-status" title={saved?.message}>
      <span className="dot" />
      {text}
    </span>
  );
}

function statusText(connection: string, unsaved: number, saved: string | undefined): [boolean, string] {
  if (connection === "closed") return [true, unsaved ? `Offline, ${unsaved} unsaved` : "Offline"];
  if (connection !== "open") return [false, "Connecting"];
  if (saved === "conflict") return [true, "Changed on disk"];
  if (saved === "failed") return [true, "Not saved"];
  return unsaved > 0 || saved === "saving" ? [false, "Saving…"] : [false, "Saved"];
}

function RunButtons() {
  const studio = useActions();
  const running = useStudio((state) => state.run?.state === "running");
  const live = useStudio((state) => state.live);
  const one = useStudio((state) => (state.selection.blocks.size === 1 ? [...state.selection.blocks][0] : undefined));
  const progress = useStudio((state) => progressText(state.progress, state.run));
  return (
    <div className="run-buttons">
      {running ? (
        <button
          type="button"
          className="button danger"
          data-testid="stop"
          title="Stop (Esc)"
          // The second half of a double click on Run is not meant for Stop.
          onClick={({ detail }) => detail !== 2 && void studio.runs.stop()}
        >
          <Icon name="stop" /> Stop
        </button>
      ) : (
        <button
          type="button"
          className="button primary"
          data-testid="run"
          title="Run the page (Ctrl+Enter)"
          onClick={() => void studio.runs.run()}
        >
          <Icon name="play" /> Run
        </button>
      )}
      <button
        type="button"
        className="button"
        data-testid="run-to"
        disabled={one === undefined || running}
        title="Run only what the selected block needs (Shift+Enter)"
        onClick={() => one !== undefined && void studio.runs.run([one])}
      >
        <Icon name="target" /> Run to here
      </button>
      <button
        type="button"
        className="button"
        aria-pressed={live}
        data-testid="live"
        title="Run again after every edit (R)"
        onClick={() => void studio.runs.live(!live)}
      >
        <Icon name="live" /> Live
      </button>
      <span className="status run-status" role="status" data-testid="run-status">
        {progress}
      </span>
    </div>
  );
}

function progressText(
  progress: Record<string, { state: string }>,
  run: { state: string; seconds?: number; total?: number; message?: string } | null,
): string {
  if (!run) return "";
  const finished = Object.values(progress).filter(({ state }) => state !== "waiting" && state !== "running").length;
  if (run.state === "running") return `${finished} of ${run.total ?? Object.keys(progress).length}`;
  const time =
    run.seconds === undefined
      ? ""
      : run.seconds < 1
        ? `${Math.round(run.seconds * 1000)} ms`
        : `${run.seconds.toFixed(1)} s`;
  return (
    { done: `Done in ${time}`, failed: "Some blocks failed", stopped: "Stopped", lost: "The run was lost" }[
      run.state
    ] ?? ""
  );
}

function People() {
  const peers = useStudio((state) => state.peers);
  const own = useStudio((state) => state.welcome?.user.client);
  const embedded = useStudio((state) => state.embedded);
  const others = peers.filter(({ client }) => client !== own);
  // In a notebook the others are views of the same person, some of them long gone.
  if (others.length === 0 || embedded) return null;
  return (
    <span className="people" data-testid="peers">
      {others.slice(0, 4).map(({ client, name, color }) => (
        <span
          key={client}
          className="person"
          role="img"
          aria-label={`${name} has this page open too`}
          title={`${name} has this page open too`}
          style={{ background: color }}
        >
          {name.slice(0, 1).toUpperCase()}
        </span>
      ))}
    </span>
  );
}

function EditButtons() {
  const studio = useActions();
  const undo = useStudio((state) => state.history.past.at(-1)?.label);
  const redo = useStudio((state) => state.history.future[0]?.label);
  return (
    <>
      <BarButton
        icon="undo"
        label={undo ? `Undo ${undo}` : "Undo"}
        keys="Ctrl+Z"
        testid="undo"
        disabled={!undo}
        onClick={() => studio.edit.undo()}
      />
      <BarButton
        icon="redo"
        label={redo ? `Redo ${redo}` : "Redo"}
        keys="Ctrl+Shift+Z"
        testid="redo"
        disabled={!redo}
        onClick={() => studio.edit.redo()}
      />
      <BarButton icon="layout" label="Lay out" keys="L" testid="layout" onClick={() => studio.edit.layout()} />
      <BarButton icon="comment" label="Add a comment" keys="C" testid="comment" onClick={() => studio.edit.comment()} />
      <BarButton
        icon="gradient"
        label="Add gradients"
        keys="D"
        testid="gradients"
        onClick={() => studio.set({ dialog: "gradients" })}
      />
    </>
  );
}

function PageMenu() {
  const studio = useActions();
  const embedded = useStudio((state) => state.embedded);
  const items: MenuItem[] = [
    {
      label: "Save as…",
      icon: "copy",
      keys: "Ctrl+Shift+S",
      testid: "save-as",
      run: () => studio.set({ dialog: "save-as" }),
    },
    { label: "History…", icon: "history", keys: "H", testid: "history", run: () => studio.set({ dialog: "history" }) },
    "line",
    { label: "Download page", icon: "download", testid: "download-page", run: () => void studio.files.downloadPage() },
    { label: "Export to Python…", icon: "code", testid: "export-python", run: () => studio.set({ dialog: "python" }) },
    {
      label: "Picture of the page…",
      icon: "picture",
      testid: "export-picture",
      run: () => studio.set({ dialog: "picture" }),
    },
    "line",
    { label: "Drop all results", icon: "trash", testid: "clear-results", run: () => void studio.runs.clear() },
  ];
  return <Menu label="Page" icon="more" items={embedded ? items.slice(3) : items} testid="page-menu" />;
}

function ThemeButton() {
  const studio = useActions();
  const theme = useStudio((state) => state.theme);
  const dark = isDark(theme);
  return (
    <BarButton
      icon={dark ? "sun" : "moon"}
      label={dark ? "Light colours" : "Dark colours"}
      keys="M"
      testid="theme"
      onClick={() => switchTheme(studio)}
    />
  );
}
