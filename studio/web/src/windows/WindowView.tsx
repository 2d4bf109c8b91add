// The window view: point at an output cell and see the window it reads, its padding, the element it chose and that
// element's equals; point at an input cell and see which windows send gradient to it, and how much. Forward, gradient
// and second-order gradient stand side by side and always show the same window.
import { useCallback, useEffect, useRef, useState } from "react";
import type { InputCell, OutputCell, PlaneName, PlanesHeader, WindowViewInfo } from "../protocol/messages";
import { useActions, useStudio } from "../ui/context";
import { Icon } from "../ui/Icon";
import { isDark } from "../ui/theme";
import { Column } from "./Column";
import { COLUMNS, type ColumnId } from "./columns";
import { type PlaneSize, stageFor } from "./geometry";
import { DARK_INK, LIGHT_INK } from "./paint";
import { Story } from "./Story";
import { type Focus, focusAt, moved, planeAxes } from "./stepping";
import { startingRegion, ViewBar } from "./ViewBar";

export type Cell = OutputCell | InputCell;

/** What the words above and below a column take of its height. */
const CAPTIONS = 74;

const PLANES: PlaneName[] = ["input", "output", "grad", "grad_out", "second_in", "second_out"];

export function WindowView() {
  const block = useChosenBlock();
  if (block === null) return <p className="nothing">Select a pooling block to see its windows.</p>;
  return <Loaded key={block} block={block} />;
}

/** The block that was asked for, or the selected one, or the first pooling block of the page. */
function useChosenBlock(): string | null {
  const asked = useStudio((state) => state.windowBlock);
  const doc = useStudio((state) => state.doc);
  const selection = useStudio((state) => state.selection.blocks);
  const palette = useStudio((state) => state.palette);
  const pools = (name: string) => palette.types.get(doc.block[name]?.type ?? "")?.pooling ?? false;
  if (asked !== null && pools(asked)) return asked;
  return [...selection].find(pools) ?? Object.keys(doc.block).find(pools) ?? null;
}

function Loaded({ block }: { block: string }) {
  const studio = useActions();
  const { info, error } = useInfo(block);
  if (error !== null) {
    return (
      <div className="nothing" data-testid="windows-missing">
        <p>{error}</p>
        <button type="button" className="button small primary" onClick={() => void studio.runs.run([block])}>
          <Icon name="play" size={14} /> Run {block}
        </button>
      </div>
    );
  }
  // Another shape begins anew: the cell that was looked at may not be there any more.
  return info ? (
    <View key={shapeOf(info)} block={block} info={info} />
  ) : (
    <p className="nothing">Looking at the windows of {block}…</p>
  );
}

function shapeOf(info: WindowViewInfo): string {
  return JSON.stringify([info.layout, info.tensors.input.dims, info.tensors.output.dims]);
}

/** What the server knows of the block's windows; asked again after every run of it. */
function useInfo(block: string): { info: WindowViewInfo | null; error: string | null } {
  const studio = useActions();
  const result = useStudio((state) => state.results.get(`${block}.output`)?.summary);
  const run = useStudio((state) => (state.run?.state === "running" ? -1 : (state.run?.run ?? 0)));
  const [answer, setAnswer] = useState<{ info: WindowViewInfo | null; error: string | null }>({
    info: null,
    error: null,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new result or run asks again
  useEffect(() => {
    let current = true;
    if (run === -1) return;
    studio.client.request<WindowViewInfo>("window_view", { block }).then(
      (info) => current && setAnswer({ info, error: null }),
      (error: Error) => current && setAnswer({ info: null, error: error.message }),
    );
    return () => {
      current = false;
    };
  }, [studio, block, result, run]);
  return answer;
}

function View({ block, info }: { block: string; info: WindowViewInfo }) {
  const [at, setAt] = useState<number[]>(() => info.tensors.input.dims.map(() => 0));
  const [corner, setCorner] = useState<[number, number]>([0, 0]);
  const [shown, setShown] = useState<ReadonlySet<ColumnId>>(new Set(COLUMNS.map(({ id }) => id)));
  const [region, setRegion] = useState(() => startingRegion(info));
  const planes = usePlanes(block, info, at, corner, region);
  const windows = planes?.header.windows ?? [];
  const [focus, setFocus] = useState<Focus>(() =>
    focusAt(
      info,
      "output",
      0,
      0,
      at,
      info.spatial.slice(0, -2).map(() => 0),
    ),
  );
  const [pinned, setPinned] = useState(false);
  const cell = useCell(block, info, focus);
  const stage = useRef<HTMLDivElement>(null);
  const room = useRoom(stage, shown.size);
  useFocusFromCanvas(stage);

  const go = (axis: number, value: number) => {
    const next = at.map((old, i) => (i === axis ? value : old));
    setAt(next);
    // The cell that is looked at stays in the slice that is shown.
    const depth = info.spatial.indexOf(axis);
    const nearest = depth >= 0 ? nearestWindow(info, depth, value) : value;
    setFocus((old) => ({
      ...old,
      index: old.index.map((i, j) => (j === axis ? (old.side === "output" ? nearest : value) : i)),
    }));
  };
  const point = useCallback(
    (side: Focus["side"], row: number, column: number) => setFocus(focusAt(info, side, row, column, at, windows)),
    [info, at, windows],
  );
  useCornerFollows(info, focus, region, setCorner);

  const keys = (event: React.KeyboardEvent) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const depth = info.spatial.length > 2 ? info.spatial[0] : undefined;
    if (step) {
      setPinned(true);
      setFocus((old) => moved(info, old, step[0] ?? 0, step[1] ?? 0));
    } else if (event.key === "Tab" || event.key === "Escape") return;
    else if (event.key === "Enter" || event.key === " ") setFocus(otherSide(info, focus, cell));
    else if ((event.key === "PageUp" || event.key === "PageDown") && depth !== undefined) {
      const size = info.tensors.input.dims[depth] ?? 1;
      go(depth, Math.max(0, Math.min(size - 1, (at[depth] ?? 0) + (event.key === "PageDown" ? 1 : -1))));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const theme = useStudio((state) => state.theme);
  const ink = isDark(theme) ? DARK_INK : LIGHT_INK;
  const sizes = planes ? planeSizes(planes.header) : null;
  const geometry = sizes ? stageFor(info.axes, sizes.input, sizes.output, room) : null;
  return (
    <div className="windows" data-testid="window-view">
      <div className="windows-main">
        <ViewBar
          block={block}
          info={info}
          at={at}
          go={go}
          shown={shown}
          setShown={setShown}
          corner={corner}
          setCorner={setCorner}
          region={region}
          setRegion={setRegion}
        />
        <div
          ref={stage}
          className="windows-stage"
          role="application"
          aria-label="Windows. Arrow keys step through them, Enter changes between output and input, Page Up and Page Down change the slice."
          tabIndex={0}
          onKeyDown={keys}
          data-testid="window-stage"
          data-side={focus.side}
          data-index={focus.index.join(",")}
        >
          {geometry &&
            planes &&
            COLUMNS.filter(({ id }) => shown.has(id)).map((column) => (
              <Column
                key={column.id}
                column={column}
                info={info}
                stage={geometry}
                ink={ink}
                planes={planes}
                focus={focus}
                cell={cell}
                pinned={pinned}
                point={point}
                pin={setPinned}
              />
            ))}
        </div>
      </div>
      <Story info={info} focus={focus} cell={cell} at={at} go={go} />
    </div>
  );
}

export type Planes = { header: PlanesHeader; values: Map<PlaneName, Float32Array> };

function usePlanes(
  block: string,
  info: WindowViewInfo,
  at: readonly number[],
  corner: readonly [number, number],
  region: number,
): Planes | null {
  const studio = useActions();
  const [planes, setPlanes] = useState<Planes | null>(null);
  const [row, column] = planeAxes(info);
  const dims = info.tensors.input.dims;
  const question = JSON.stringify({
    block,
    index: at,
    which: PLANES,
    rows: row === null ? undefined : [corner[0], Math.min(dims[row] ?? 1, corner[0] + region)],
    columns: [corner[1], Math.min(dims[column] ?? 1, corner[1] + region)],
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: new information means new values
  useEffect(() => {
    let current = true;
    studio.client.fetch<PlanesHeader>("window_planes", JSON.parse(question) as object).then(
      ({ header, payload }) => current && setPlanes({ header, values: split(header, payload) }),
      // A run may have changed the shape after the question was asked. That is no mistake: the view begins anew.
      (error) =>
        studio.client.request<WindowViewInfo>("window_view", { block }).then(
          (now) => current && shapeOf(now) === shapeOf(info) && studio.complain(error),
          () => {},
        ),
    );
    return () => {
      current = false;
    };
  }, [studio, question, info]);
  return planes;
}

function split(header: PlanesHeader, payload: ArrayBuffer): Map<PlaneName, Float32Array> {
  return new Map(
    header.planes.map(({ name, shape, offset }) => [name, new Float32Array(payload, offset, shape[0] * shape[1])]),
  );
}

function planeSizes({ planes }: PlanesHeader): { input: PlaneSize; output: PlaneSize } | null {
  const size = (names: readonly PlaneName[]): PlaneSize | null => {
    const plane = planes.find(({ name }) => names.includes(name));
    if (!plane) return null;
    const from = plane.from.length > 1 ? plane.from : [0, plane.from[0] ?? 0];
    return { rows: plane.shape[0], columns: plane.shape[1], from: [from[0] ?? 0, from[1] ?? 0] };
  };
  const input = size(["input", "grad_out", "second_in"]);
  const output = size(["output", "grad", "second_out"]);
  return input && output ? { input, output } : null;
}

/** What the server says of one cell. The question is only asked when the last one was answered. */
function useCell(block: string, info: WindowViewInfo, focus: Focus): Cell | null {
  const studio = useActions();
  const [cell, setCell] = useState<Cell | null>(null);
  const wanted = useRef<Focus | null>(null);
  const busy = useRef(false);
  const ask = useCallback(() => {
    const next = wanted.current;
    if (busy.current || !next) return;
    busy.current = true;
    wanted.current = null;
    studio.client
      .request<Cell>("window_cell", { block, ...next })
      .then(setCell, () => setCell(null))
      .finally(() => {
        busy.current = false;
        ask();
      });
  }, [studio, block]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new information means a new answer
  useEffect(() => {
    wanted.current = focus;
    ask();
  }, [focus, ask, info]);
  return cell;
}

/** The room for one column. */
function useRoom(stage: React.RefObject<HTMLDivElement | null>, columns: number): { width: number; height: number } {
  const [size, setSize] = useState({ width: 900, height: 600 });
  useEffect(() => {
    const element = stage.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, [stage]);
  const count = Math.max(1, columns);
  return { width: (size.width - 32 - 20 * (count - 1)) / count, height: size.height - CAPTIONS };
}

/** Whoever comes from the canvas steps through windows at once, and does not move the blocks behind them. */
function useFocusFromCanvas(stage: React.RefObject<HTMLDivElement | null>): void {
  useEffect(() => {
    const active = document.activeElement;
    if (!active || active === document.body || active.closest(".canvas")) stage.current?.focus({ preventScroll: true });
  }, [stage]);
}

function nearestWindow(info: WindowViewInfo, depth: number, at: number): number {
  const axis = info.axes[depth];
  if (!axis) return 0;
  const distance = (i: number) => Math.abs((axis.start[i] ?? 0) + (axis.stop[i] ?? 0) - 1 - 2 * at);
  let best = 0;
  for (let i = 1; i < axis.count; i++) if (distance(i) < distance(best)) best = i;
  return best;
}

/** From a window to the element it chose, from an element to the first window that reads it. */
function otherSide(info: WindowViewInfo, focus: Focus, cell: Cell | null): Focus {
  const index = [...focus.index];
  if (cell?.side === "output" && focus.side === "output") {
    const element = cell.elements.find(({ chosen }) => chosen) ?? cell.elements[0];
    info.spatial.forEach((axis, i) => {
      index[axis] = element?.index[i] ?? 0;
    });
    return { side: "input", index };
  }
  if (cell?.side === "input" && focus.side === "input") {
    const window = cell.windows.find(({ share }) => share !== 0) ?? cell.windows[0];
    return window ? { side: "output", index: window.index } : focus;
  }
  return focus;
}

/** Planes larger than the region move along with the cell that is looked at. */
function useCornerFollows(
  info: WindowViewInfo,
  focus: Focus,
  region: number,
  setCorner: (change: (old: [number, number]) => [number, number]) => void,
): void {
  const [row, column] = planeAxes(info);
  const dims = info.tensors.input.dims;
  useEffect(() => {
    const place = (axis: number | null) => {
      if (axis === null) return [0, 1];
      const size = dims[axis] ?? 1;
      if (size <= region) return [0, size];
      const windows = info.axes.find((one) => one.axis === axis);
      const i = focus.index[axis] ?? 0;
      return [focus.side === "input" ? i : (windows?.start[i] ?? 0), size];
    };
    const follow = (old: number, [i = 0, size = 1]: number[]) => {
      if (size <= region) return 0;
      const held = Math.min(old, size - region);
      return i >= held && i < held + region ? held : Math.max(0, Math.min(size - region, i - region / 2));
    };
    setCorner((old) => {
      const next: [number, number] = [follow(old[0], place(row)), follow(old[1], place(column))];
      return next[0] === old[0] && next[1] === old[1] ? old : next;
    });
  }, [info, focus, region, row, column, dims, setCorner]);
}
