// Every action by keyboard. The sheet that lists them and the handler stand side by side, so neither can forget one.
import { parseEnd } from "../model/page";
import type { Studio } from "../state/studio";
import { isDark } from "./theme";

export const SHORTCUTS: { title: string; rows: [string, string][] }[] = [
  {
    title: "Build",
    rows: [
      ["A", "Add a block"],
      ["/", "Search the palette"],
      ["W", "Wire from the selected block"],
      ["I", "Wire into the selected block"],
      ["C", "Add a comment"],
      ["G", "Group the selected blocks"],
      ["D", "Add gradients"],
    ],
  },
  {
    title: "Edit",
    rows: [
      ["Ctrl+Z", "Undo"],
      ["Ctrl+Shift+Z", "Redo"],
      ["Ctrl+C  X  V", "Copy, cut, paste"],
      ["Ctrl+D", "Duplicate"],
      ["Ctrl+A", "Select all"],
      ["Delete", "Delete the selection"],
      ["Arrow keys", "Move the selected blocks"],
      ["N  P", "Next, previous block"],
      ["E", "Edit the selected block"],
      ["L", "Lay out"],
      ["Ctrl+Shift+arrows", "Align the selected blocks"],
      ["J  K", "Align their centres, their middles"],
      ["X  Y", "Space them evenly across, down"],
    ],
  },
  {
    title: "Run and look",
    rows: [
      ["Ctrl+Enter", "Run, from a field too"],
      ["Shift+Enter", "Run to the selected block"],
      ["R", "Live: run after every edit"],
      ["Escape", "Stop, close, deselect"],
      ["T", "Values of the selected block"],
      ["V", "Window view of the selected block"],
      ["B", "List of problems"],
    ],
  },
  {
    title: "Page",
    rows: [
      ["F", "Zoom to fit"],
      ["+  −", "Zoom"],
      ["Space+drag", "Move the canvas"],
      ["Shift+drag", "Select an area"],
      ["H", "History"],
      ["M", "Light or dark"],
      ["Ctrl+Shift+S", "Save as"],
      ["?", "This sheet"],
    ],
  },
];

export type ViewPort = { zoomIn(): void; zoomOut(): void };

/** Does what a key means; true when it meant something. */
export function handleKey(studio: Studio, event: KeyboardEvent, view: ViewPort): boolean {
  const command = event.ctrlKey || event.metaKey;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.altKey) return false;
  if (command) return handleCommand(studio, key, event.shiftKey);
  if (event.shiftKey && key === "Enter") return runToSelection(studio);
  return handlePlain(studio, key, view);
}

function handleCommand(studio: Studio, key: string, shift: boolean): boolean {
  const { edit } = studio;
  switch (key) {
    case "z":
      if (shift) edit.redo();
      else edit.undo();
      return true;
    case "y":
      edit.redo();
      return true;
    case "d":
      edit.duplicate();
      return true;
    case "a":
      edit.selectAll();
      return true;
    case "s":
      if (shift) studio.set({ dialog: "save-as" });
      else studio.notify("info", "Pages are saved as you work");
      return true;
    case "Enter":
      void studio.runs.run();
      return true;
    default:
      return shift && alignTo(studio, key);
  }
}

const EDGES = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "top", ArrowDown: "bottom" } as const;

function alignTo(studio: Studio, key: string): boolean {
  if (!(key in EDGES)) return false;
  studio.edit.align(EDGES[key as keyof typeof EDGES]);
  return true;
}

function handlePlain(studio: Studio, key: string, view: ViewPort): boolean {
  const { edit } = studio;
  const actions: Record<string, () => unknown> = {
    a: () => openFinder(studio, "add"),
    "/": () => studio.root?.querySelector<HTMLElement>('[data-testid="palette-search"]')?.focus(),
    w: () => openFinder(studio, "wire-from"),
    i: () => openFinder(studio, "wire-to"),
    c: () => edit.comment(),
    g: () => edit.group(),
    d: () => studio.set({ dialog: "gradients" }),
    l: () => edit.layout(),
    j: () => edit.align("centre"),
    k: () => edit.align("middle"),
    x: () => edit.align("columns"),
    y: () => edit.align("rows"),
    r: () => void studio.runs.live(!studio.state.live),
    h: () => studio.state.embedded || studio.set({ dialog: "history" }),
    m: () => switchTheme(studio),
    f: () => edit.canvas?.fit(),
    t: () => showResult(studio),
    v: () => showWindows(studio),
    b: () => studio.set({ dock: "problems" }),
    e: () => studio.root?.querySelector<HTMLElement>(".inspector input, .inspector textarea")?.focus(),
    n: () => step(studio, 1),
    p: () => step(studio, -1),
    "?": () => studio.set({ dialog: "shortcuts" }),
    "+": () => view.zoomIn(),
    "=": () => view.zoomIn(),
    "-": () => view.zoomOut(),
    Delete: () => removeSeen(studio),
    Backspace: () => removeSeen(studio),
    Escape: () => leave(studio),
  };
  const action = actions[key];
  if (!action) return false;
  action();
  return true;
}

export function switchTheme(studio: Studio): void {
  studio.set({ theme: isDark(studio.state.theme) ? "light" : "dark" });
}

function selected(studio: Studio): string | undefined {
  return [...studio.state.selection.blocks][0];
}

function typeOf(studio: Studio, name: string) {
  return studio.state.palette.types.get(studio.state.doc.block[name]?.type ?? "");
}

/** Behind a panel that covers the canvas nobody sees what would go. */
function removeSeen(studio: Studio): void {
  const { dock, dockTall } = studio.state;
  if (!(dock && dockTall)) studio.edit.removeSelected();
}

function runToSelection(studio: Studio): boolean {
  const names = [...studio.state.selection.blocks];
  if (names.length) void studio.runs.run(names);
  return true;
}

function openFinder(studio: Studio, purpose: "add" | "wire-from" | "wire-to"): void {
  const name = selected(studio);
  const type = name === undefined ? undefined : typeOf(studio, name);
  const wired = (pin: string) => `${name}.${pin}` in studio.state.doc.wire;
  const open = type?.inputs.find((pin) => !wired(pin.name)) ?? type?.inputs[0];
  const pin = purpose === "wire-from" ? type?.outputs[0]?.name : open?.name;
  if (purpose !== "add" && (name === undefined || pin === undefined)) {
    studio.notify(
      "info",
      purpose === "wire-from" ? "Select a block with an output first" : "Select a block with an input first",
    );
    return;
  }
  const box = studio.root?.querySelector(".canvas")?.getBoundingClientRect();
  const screen = { x: (box?.left ?? 300) + (box?.width ?? 600) / 2 - 150, y: (box?.top ?? 100) + 90 };
  studio.set({
    finder: {
      purpose,
      end: purpose === "add" ? null : parseEnd(`${name}.${pin}`),
      screen,
      canvas: beside(studio, name, purpose),
    },
  });
}

/** Where a block wired to the selected one goes: to its right, or to its left. */
function beside(studio: Studio, name: string | undefined, purpose: string): { x: number; y: number } | null {
  const at = name === undefined ? undefined : studio.state.doc.position[name];
  if (!at) return null;
  return { x: at[0] + (purpose === "wire-to" ? -304 : 304), y: at[1] };
}

function showResult(studio: Studio): void {
  const name = selected(studio);
  const output = name === undefined ? undefined : typeOf(studio, name)?.outputs[0]?.name;
  studio.set({ dock: "result", ...(output ? { resultKey: `${name}.${output}` } : {}) });
}

function showWindows(studio: Studio): void {
  const name = selected(studio);
  if (name !== undefined && typeOf(studio, name)?.pooling)
    studio.set({ dock: "windows", windowBlock: name, dockTall: true });
  else studio.notify("info", "Select a pooling block to see its windows");
}

/** Walks through the blocks from left to right. */
function step(studio: Studio, by: number): void {
  const { doc, selection } = studio.state;
  const names = Object.keys(doc.block).sort((a, b) => {
    const [p, q] = [doc.position[a], doc.position[b]];
    return (p?.[0] ?? 0) - (q?.[0] ?? 0) || (p?.[1] ?? 0) - (q?.[1] ?? 0);
  });
  if (names.length === 0) return;
  const now = names.indexOf([...selection.blocks][0] ?? "");
  const next = names[(now + by + names.length) % names.length] ?? names[0];
  if (next === undefined) return;
  studio.edit.select([next]);
  const [x, y] = doc.position[next] ?? studio.edit.canvas?.loose().get(next) ?? [0, 0];
  studio.edit.canvas?.show({ x, y }, studio.edit.canvas.size(next));
}

function leave(studio: Studio): void {
  const { finder, dockTall, dock, run, selection } = studio.state;
  if (finder) studio.set({ finder: null });
  else if (run?.state === "running") void studio.runs.stop();
  else if (dockTall && dock === "windows") studio.set({ dock: null, dockTall: false });
  else if (selection.blocks.size + selection.wires.size + selection.notes.size > 0) studio.edit.select([]);
  else if (dock) studio.set({ dock: null, dockTall: false });
}
