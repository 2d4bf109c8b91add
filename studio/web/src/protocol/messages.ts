// The messages between the editor and the server, as types. The server's documentation says what each one means.
import type { Change, Doc } from "../model/doc";
import type { BlockType } from "../model/page";
import type { Spec } from "../model/wiring";

/** Numbers that JSON lacks travel as "nan", "inf" and "-inf". */
export type Loose = number | "nan" | "inf" | "-inf" | null | undefined;

export function strict(value: Loose): number {
  if (typeof value === "number") return value;
  if (value === "inf") return Number.POSITIVE_INFINITY;
  return value === "-inf" ? Number.NEGATIVE_INFINITY : Number.NaN;
}

export type Header = { type: string; id?: number; dtype?: string; shape?: number[]; [field: string]: unknown };

export type Person = { client?: string; name: string; color: string };

export type Welcome = {
  version: string;
  folder: string;
  writable: boolean;
  limits: { upload: number; page: number; table: number };
  engines: string[];
  catalog: BlockType[];
  user: Person;
};

export type Miniature = {
  blocks: { x: number; y: number; w: number; h: number; group: string; type: string; name: string }[];
  wires: [number, number, number, number][];
};

export type Card = {
  page: string;
  title: string;
  description: string;
  modified: number;
  blocks: number;
  miniature: Miniature;
  problem?: string;
};

export type Gallery = { examples: Card[]; pages: Card[]; recent: Card[]; deleted: Card[] };

export type Problem = {
  severity: "error" | "warning";
  block?: string | null;
  place?: string | null;
  message: string;
  position?: number | null;
};

export type Inference = { outputs: Record<string, Spec>; problems: Problem[] };

export type Changed = { version: number; changes: Change[]; label: string; by: Person; at: number };

export type SaveState = { state: "saved" | "saving" | "conflict" | "failed"; at: number; message?: string };

export type Peer = Person & { client: string; selection?: string[] };

export type RunState = {
  run: number;
  state: "idle" | "running" | "done" | "failed" | "stopped" | "lost";
  version?: number;
  started?: number;
  seconds?: number;
  total?: number;
  message?: string;
};

export type BlockProgress = {
  state: "waiting" | "running" | "done" | "cached" | "failed" | "skipped";
  seconds?: number;
  problem?: Problem;
};

export type Statistics = {
  count: number;
  min: Loose;
  max: Loose;
  mean: Loose;
  std: Loose;
  median?: Loose;
  nan: number;
  inf: number;
  zeros: number;
  argmin?: number[];
  argmax?: number[];
  bytes?: number;
};

/** Head of a result; its payload is the small heat map. */
export type Summary = {
  key: string;
  block: string;
  output: string;
  dtype_of: string;
  dims: number[];
  /** Of a large tensor they follow after its picture. */
  stats: Statistics | null;
  shape: [number, number];
  run: number;
};

export type OpenedPage = {
  page: string;
  doc?: Doc;
  since?: Changed[];
  version: number;
  token: string;
  inference: Inference;
  run: RunState | null;
  live?: boolean;
  results: Summary[];
  stale?: string[];
  peers: Peer[];
  saved: SaveState;
};

export type Conflict = {
  version: number;
  entries: { kind: string; key: string; theirs: unknown }[];
  by: Person;
  changes: Changed[];
};

export type HistoryEntry = {
  entry: string;
  at: number;
  label: string;
  blocks?: number;
  bytes: number;
  current: boolean;
};

export type SliceHeader = {
  key: string;
  axes: [number, number];
  index: number[];
  rows: [number, number];
  columns: [number, number];
  reduce: string;
  range: [Loose, Loose];
  shape: [number, number];
};

export type AxisWindows = {
  letter: string;
  axis: number;
  size: number;
  count: number;
  start: number[];
  stop: number[];
  origin: number[];
  end: number[];
  length: number[];
  dilation: number;
  stride: number | null;
  before: number;
  after: number;
  regular: boolean;
};

export type PlaneName = "input" | "output" | "grad" | "grad_out" | "second_in" | "second_out";

export type WindowViewInfo = {
  block: string;
  operator: string;
  order: 0 | 1 | 2;
  spatial: number[];
  kind: "max" | "average";
  rank: number;
  layout: string;
  policy: { ties: string; nan: string };
  tensors: Record<PlaneName, { key: string | null; dims: number[]; dtype: string; there: boolean }>;
  axes: AxisWindows[];
  upstream: "page" | "ones";
  second: "page" | "ones";
  fractional: boolean;
  sequences: { row: number[]; col: number[] } | null;
};

export type PlanesHeader = {
  block: string;
  planes: {
    name: PlaneName;
    shape: [number, number];
    offset: number;
    at: number[];
    from: number[];
    range: [Loose, Loose] | null;
  }[];
  rows: [number, number];
  columns: [number, number];
  index: number[];
  windows: number[];
};

export type OutputCell = {
  side: "output";
  index: number[];
  window: { start: number[]; stop: number[]; origin: number[]; end: number[] };
  elements: { index: number[]; value: string | null; chosen: boolean; tie: boolean; share: number }[];
  truncated?: boolean;
  count: number;
  padding: number;
  value: string | null;
  grad: string;
  second: string;
  explain: string;
};

export type InputCell = {
  side: "input";
  index: number[];
  count: number;
  value: string | null;
  windows: {
    index: number[];
    start: number[];
    stop: number[];
    share: number;
    grad: string;
    sends: string;
    chosen: boolean;
  }[];
  truncated?: boolean;
  total: string;
  explain: string;
};
