// Everything the editor shows, in one store. Components read the part they need; only actions change it.
import { type Doc, EMPTY } from "../model/doc";
import { type History, NO_HISTORY } from "../model/history";
import { type End, type Palette, paletteOf } from "../model/page";
import type {
  BlockProgress,
  Conflict,
  Gallery,
  Inference,
  Peer,
  RunState,
  SaveState,
  Summary,
  Welcome,
} from "../protocol/messages";
import type { Pending } from "./sync";

export type Result = { summary: Summary; values: Float32Array | null; stale: boolean };

export type Selection = { blocks: ReadonlySet<string>; wires: ReadonlySet<string>; notes: ReadonlySet<string> };

export const NOTHING: Selection = { blocks: new Set(), wires: new Set(), notes: new Set() };

export type Notice = { id: number; kind: "info" | "bad"; text: string; action?: { label: string; run: () => void } };

/** What the block finder is open for: a block to add, or the other end of a wire. Screen and canvas places. */
export type Finder = {
  purpose: "add" | "wire-from" | "wire-to";
  end: End | null;
  screen: { x: number; y: number };
  canvas: { x: number; y: number } | null;
};

export type Dialog = "shortcuts" | "history" | "save-as" | "gradients" | "picture" | "python" | "page" | null;

export type DockTab = "result" | "windows" | "problems";

export type Theme = "light" | "dark" | "system";

export type Route = { view: "gallery" } | { view: "page"; page: string };

export type State = {
  connection: "connecting" | "open" | "closed" | "expired";
  welcome: Welcome | null;
  palette: Palette;
  route: Route;
  embedded: boolean;
  gallery: Gallery | null;

  page: string | null;
  loading: boolean;
  doc: Doc;
  inference: Inference;
  history: History;
  selection: Selection;
  results: ReadonlyMap<string, Result>;
  progress: Readonly<Record<string, BlockProgress>>;
  run: RunState | null;
  live: boolean;
  engine: string | null;
  saved: SaveState | null;
  unsaved: number;
  peers: Peer[];
  conflict: { mine: Pending; theirs: Conflict } | null;

  notices: Notice[];
  theme: Theme;
  dialog: Dialog;
  finder: Finder | null;
  dock: DockTab | null;
  dockTall: boolean;
  dockHeight: number;
  /** The window view wants more room than a list: its height, once somebody has pulled it. */
  windowsHeight: number | null;
  inspectorTab: "block" | "docs";
  resultKey: string | null;
  windowBlock: string | null;
  refusal: string | null;
  /** The output from which a wire is being drawn. */
  drawing: End | null;
  showPalette: boolean;
  showInspector: boolean;
};

export const NO_INFERENCE: Inference = { outputs: {}, problems: [] };

/** What a page brings along; opening another page begins here. */
export const FRESH_PAGE = {
  doc: EMPTY,
  inference: NO_INFERENCE,
  history: NO_HISTORY,
  selection: NOTHING,
  results: new Map() as ReadonlyMap<string, Result>,
  progress: {} as Readonly<Record<string, BlockProgress>>,
  run: null,
  live: false,
  saved: null,
  unsaved: 0,
  peers: [],
  conflict: null,
  finder: null,
  dock: null,
  dockTall: false,
  resultKey: null,
  windowBlock: null,
  refusal: null,
  drawing: null,
} satisfies Partial<State>;

export function initial(theme: Theme, embedded: boolean): State {
  return {
    ...FRESH_PAGE,
    connection: "connecting",
    welcome: null,
    palette: paletteOf([]),
    route: { view: "gallery" },
    embedded,
    gallery: null,
    page: null,
    loading: false,
    engine: null,
    notices: [],
    theme,
    dialog: null,
    dockHeight: 360,
    windowsHeight: null,
    inspectorTab: "block",
    showPalette: true,
    showInspector: true,
  };
}
