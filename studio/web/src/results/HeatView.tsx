// A slice of a result as a heat map with its scale; the value under the pointer, or under the arrow keys, is named.
import { useLayoutEffect, useMemo, useRef, useState } from "react";
import { gradientStops, type Scale, scaleFor } from "../draw/colour";
import { paint } from "../draw/heat";
import { brief } from "../draw/number";
import type { Binary } from "../protocol/client";
import { type SliceHeader, strict } from "../protocol/messages";
import { rangeOf } from "../state/derived";
import type { Result } from "../state/state";
import { useAsk } from "./useAsk";

type Props = { result: Result; axes: [number, number]; index: number[] };

export function HeatView({ result, axes, index }: Props) {
  const { key } = result.summary;
  const [whole, setWhole] = useState(true);
  const fields = JSON.stringify({ key, axes, index, max: [768, 768] });
  const answer = useAsk<Binary<SliceHeader>>("slice", fields, result);
  const values = useMemo(() => (answer ? new Float32Array(answer.payload) : null), [answer]);
  if (!answer || !values) return <div className="heat" />;
  const { header } = answer;
  const [low, high] = whole ? rangeOf(result) : [strict(header.range[0]), strict(header.range[1])];
  const scale = scaleFor(low, high);
  return (
    <div className="heat">
      <HeatCanvas
        values={values}
        header={header}
        scale={scale}
        name={`result_${result.summary.output}`}
        dims={result.summary.dims}
      />
      <div className="legend">
        <span>{brief(scale.high, 3)}</span>
        <Ramp scale={scale} />
        <span>{brief(scale.low, 3)}</span>
        <button
          type="button"
          className="button small outlined"
          aria-pressed={!whole}
          title="Scale of this slice or of the whole result"
          onClick={() => setWhole(!whole)}
        >
          {whole ? "whole" : "slice"}
        </button>
      </div>
    </div>
  );
}

function Ramp({ scale }: { scale: Scale }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !context) return;
    const stops = gradientStops(scale);
    const gradient = context.createLinearGradient(0, canvas.current.height, 0, 0);
    stops.forEach((stop, i) => {
      gradient.addColorStop(i / (stops.length - 1), stop);
    });
    context.fillStyle = gradient;
    context.fillRect(0, 0, canvas.current.width, canvas.current.height);
  }, [scale]);
  return <canvas ref={canvas} width={14} height={256} aria-hidden="true" />;
}

type CanvasProps = { values: Float32Array; header: SliceHeader; scale: Scale; name: string; dims: number[] };

function HeatCanvas({ values, header, scale, name, dims }: CanvasProps) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState<[number, number] | null>(null);
  const [rows, columns] = header.shape;
  useLayoutEffect(() => {
    if (canvas.current) paint(canvas.current, values, rows, columns, scale);
  }, [values, rows, columns, scale]);
  useFill(box, canvas, rows, columns);
  const move = (row: number, column: number) =>
    setAt([Math.max(0, Math.min(rows - 1, row)), Math.max(0, Math.min(columns - 1, column))]);
  return (
    <div className="heat-side">
      <div ref={box} className="heat-canvas">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="img"
          aria-label="Heat map; arrow keys walk through the values"
          data-testid="heat-map"
          onPointerMove={(event) => {
            const area = event.currentTarget.getBoundingClientRect();
            move(
              Math.floor(((event.clientY - area.top) / area.height) * rows),
              Math.floor(((event.clientX - area.left) / area.width) * columns),
            );
          }}
          onPointerLeave={() => setAt(null)}
          onKeyDown={(event) => {
            const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
            if (!step) return;
            event.preventDefault();
            event.stopPropagation();
            move((at?.[0] ?? 0) + (step[0] ?? 0), (at?.[1] ?? 0) + (step[1] ?? 0));
          }}
        />
      </div>
      <p className="readout" role="status" data-testid="heat-readout">
        {at
          ? readout(values, header, name, dims, at)
          : header.reduce === "none"
            ? "Point at a value"
            : `Each pixel is the ${header.reduce} of several values`}
      </p>
    </div>
  );
}

/** "result_output[0][1][0][0]  3" for the cell under the pointer. */
function readout(
  values: Float32Array,
  header: SliceHeader,
  name: string,
  dims: readonly number[],
  [row, column]: [number, number],
): string {
  const value = brief(values[row * header.shape[1] + column] ?? Number.NaN, 7);
  const place = (axis: number) => {
    const [i, range] = axis === header.axes[0] ? [row, header.rows] : [column, header.columns];
    const length = axis === header.axes[0] ? header.shape[0] : header.shape[1];
    return Math.floor(range[0] + (i * (range[1] - range[0])) / length);
  };
  const index = dims.map((_, axis) => `[${header.axes.includes(axis) ? place(axis) : header.index[axis]}]`);
  return `${name}${index.join("")}  ${value}${header.reduce === "none" ? "" : ` (${header.reduce})`}`;
}

/** Gives the canvas the largest size that fits its box with square cells, and no more than 64 pixels a cell. */
function useFill(
  box: React.RefObject<HTMLDivElement | null>,
  canvas: React.RefObject<HTMLCanvasElement | null>,
  rows: number,
  columns: number,
): void {
  useLayoutEffect(() => {
    const resize = () => {
      if (!box.current || !canvas.current || rows === 0 || columns === 0) return;
      const { clientWidth, clientHeight } = box.current;
      const side = Math.min(clientWidth / columns, clientHeight / rows, 64);
      // A very long strip keeps a height that can be seen.
      const height = Math.max(rows * side, Math.min(24, clientHeight));
      canvas.current.style.width = `${columns * side}px`;
      canvas.current.style.height = `${height}px`;
    };
    resize();
    const observer = new ResizeObserver(resize);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, [box, canvas, rows, columns]);
}
