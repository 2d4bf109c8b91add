// One column of the window view: two planes on one canvas, with the mouse for pointing.
import { useLayoutEffect, useMemo, useRef } from "react";
import { scaleFor } from "../draw/colour";
import { shapeText } from "../draw/number";
import { type PlaneName, strict, type WindowViewInfo } from "../protocol/messages";
import type { COLUMNS, ColumnId } from "./columns";
import { hit, type Stage, shownAxes } from "./geometry";
import { type Ink, type Mark, type Plane, paintScene, type Scene, type Span } from "./paint";
import { type Focus, planeAxes } from "./stepping";
import type { Cell, Planes } from "./WindowView";

type Props = {
  column: (typeof COLUMNS)[number];
  info: WindowViewInfo;
  stage: Stage;
  ink: Ink;
  planes: Planes;
  focus: Focus;
  cell: Cell | null;
  pinned: boolean;
  point: (side: Focus["side"], row: number, column: number) => void;
  pin: (pinned: boolean) => void;
};

export function Column({ column, info, stage, ink, planes, focus, cell, pinned, point, pin }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scene = useMemo<Scene>(
    () => ({
      stage,
      ink,
      axes: info.axes,
      fractional: info.fractional,
      flow: column.flow,
      above: planeOf(planes, column.above, column.below),
      below: planeOf(planes, column.below, column.above),
      focus: focusOf(info, focus),
      windows: windowsOf(info, focus, cell, planes),
      marks: marksOf(info, focus, cell, planes),
    }),
    [stage, ink, info, column, planes, focus, cell],
  );
  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context) return;
    const density = window.devicePixelRatio || 1;
    element.width = Math.ceil(stage.width * density);
    element.height = Math.ceil(stage.height * density);
    element.style.width = `${stage.width}px`;
    element.style.height = `${stage.height}px`;
    context.setTransform(density, 0, 0, density, 0, 0);
    paintScene(context, scene);
  }, [scene, stage]);
  const find = (event: React.PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    return hit(stage, event.clientX - box.left, event.clientY - box.top);
  };
  const words = captions(column.id, info);
  return (
    <figure className="tensor-figure" data-testid={`column-${column.id}-figure`}>
      <figcaption>
        <b title={words.title}>{words.title}</b>
        <span title={words.above}>{words.above}</span>
      </figcaption>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${words.title}: ${words.above}, ${words.below}`}
        data-testid={`plane-${column.id}`}
        onPointerMove={(event) => {
          const found = pinned ? null : find(event);
          if (found) point(found.side, found.row, found.column);
        }}
        onPointerDown={(event) => {
          const found = find(event);
          if (!found) {
            pin(false);
            return;
          }
          point(found.side, found.row, found.column);
          pin(!pinned || found !== null);
        }}
        onDoubleClick={() => pin(false)}
      />
      <figcaption className="below">
        <span title={words.below}>{words.below}</span>
      </figcaption>
    </figure>
  );
}

function captions(id: ColumnId, info: WindowViewInfo): { title: string; above: string; below: string } {
  const [inside, outside] = [shapeText(info.tensors.input.dims), shapeText(info.tensors.output.dims)];
  const max = info.kind === "max";
  const source = (from: "page" | "ones") => (from === "ones" ? ", all ones" : "");
  switch (id) {
    case "forward":
      return {
        title: max ? "Forward ↓ each window’s maximum" : "Forward ↓ each window’s average",
        above: `input ${inside}`,
        below: info.tensors.output.there ? `output ${outside}` : "output: not on the page",
      };
    case "gradient":
      return {
        title: max ? "Gradient ↑ to the chosen element" : "Gradient ↑ spread over the window",
        above: `gradient of the input ${inside}`,
        below: `arriving gradient ${outside}${source(info.upstream)}`,
      };
    case "second":
      return {
        title: max ? "Second order ↓ from the chosen" : "Second order ↓ averaged again",
        above: `direction ${inside}${source(info.second)}`,
        below: `second-order gradient ${outside}`,
      };
  }
}

/** The planes of a column share their colours: a value that moves keeps its colour. */
function planeOf(planes: Planes, name: PlaneName, other: PlaneName): Plane {
  const values = planes.values.get(name);
  if (!values) return null;
  const ranges = planes.header.planes.flatMap((plane) =>
    plane.name === name || plane.name === other ? (plane.range ?? []) : [],
  );
  const numbers = ranges.map(strict).filter(Number.isFinite);
  return { values, scale: scaleFor(Math.min(...numbers), Math.max(...numbers)) };
}

function rowAndColumn(info: WindowViewInfo, index: readonly number[]): [number, number] {
  const [row, column] = planeAxes(info);
  return [row === null ? 0 : (index[row] ?? 0), index[column] ?? 0];
}

function focusOf(info: WindowViewInfo, focus: Focus): Scene["focus"] {
  const [row, column] = rowAndColumn(info, focus.index);
  return { side: focus.side, row, column };
}

/** The rows and columns of a window, from its bounds per spatial axis. */
function spanOf(info: WindowViewInfo, from: readonly number[], to: readonly number[]): Span {
  const deep = info.spatial.length;
  const columns: [number, number] = [from[deep - 1] ?? 0, to[deep - 1] ?? 1];
  return { rows: deep > 1 ? [from[deep - 2] ?? 0, to[deep - 2] ?? 1] : [0, 1], columns };
}

function windowsOf(info: WindowViewInfo, focus: Focus, cell: Cell | null, planes: Planes): Scene["windows"] {
  if (focus.side === "output") return [windowAt(info, focus.index, true)];
  if (cell?.side !== "input" || !same(cell.index, focus.index)) return [];
  const inSlice = cell.windows.filter(({ index }) =>
    info.spatial.slice(0, -2).every((axis, i) => index[axis] === planes.header.windows[i]),
  );
  const found = inSlice.map(({ index, share }) => windowAt(info, index, share !== 0));
  // Those that send something are drawn last, on top.
  return found.sort((a, b) => Number(a.strong) - Number(b.strong));
}

/** The geometry is known without asking, so the outline follows the pointer at once. */
function windowAt(info: WindowViewInfo, index: readonly number[], strong: boolean): Scene["windows"][number] {
  const per = (of: "start" | "stop" | "origin" | "end") =>
    info.axes.map((axis) => axis[of][index[axis.axis] ?? 0] ?? 0);
  return {
    nominal: spanOf(info, per("origin"), per("end")),
    real: spanOf(info, per("start"), per("stop")),
    cell: rowAndColumn(info, index),
    strong,
  };
}

/** Chosen elements and their equals, as far as they lie in the slice that is shown. */
function marksOf(info: WindowViewInfo, focus: Focus, cell: Cell | null, planes: Planes): Mark[] {
  if (cell?.side !== "output" || focus.side !== "output" || !same(cell.index, focus.index)) return [];
  const [row] = shownAxes(info.axes);
  const deep = info.spatial.length;
  return cell.elements.flatMap(({ index, chosen, tie }) => {
    const here = info.spatial.slice(0, -2).every((axis, i) => index[i] === planes.header.index[axis]);
    if (!here || (!chosen && !tie)) return [];
    return [
      {
        row: row && deep > 1 ? (index[deep - 2] ?? 0) : 0,
        column: index[deep - 1] ?? 0,
        style: chosen ? "chosen" : "tie",
      } as const,
    ];
  });
}

export function same(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((value, i) => value === b[i]);
}
