// Which two axes of a tensor are shown, and where one stands on the others.
import { type ReactNode, useState } from "react";

export type Plane = { axes: [number, number]; index: number[]; sliders: ReactNode };

/** The two longest axes that follow each other best make the picture: for images height and width, not channels. */
export function startingAxes(dims: readonly number[]): [number, number] {
  if (dims.length === 0) return [-1, -1];
  if (dims.length === 1) return [-1, 0];
  let best: [number, number] = [dims.length - 2, dims.length - 1];
  let most = -1;
  for (let a = 0; a + 1 < dims.length; a++) {
    const [h, w] = [dims[a] ?? 0, dims[a + 1] ?? 0];
    const score = Math.min(h, w) * 1e6 + Math.min(1e5, h * w);
    // Of equal pairs the later wins, but a last axis of channels does not beat height and width.
    if (score >= most && !(a + 2 === dims.length && score === most && dims.length >= 4))
      [best, most] = [[a, a + 1], score];
  }
  return best;
}

export function usePlane(dims: readonly number[]): Plane {
  const [axes, setAxes] = useState<[number, number]>(() => startingAxes(dims));
  const [index, setIndex] = useState<number[]>(() => dims.map(() => 0));
  const others = dims.flatMap((size, axis) => (axes.includes(axis) || size < 2 ? [] : [{ axis, size }]));
  const at = dims.map((size, axis) => Math.min(index[axis] ?? 0, Math.max(0, size - 1)));
  const sliders =
    dims.length > 2 ? (
      <div className="result-bar sliders">
        <AxisChoice
          label="Rows"
          dims={dims}
          value={axes[0]}
          other={axes[1]}
          choose={(axis) => setAxes([axis, axes[1]])}
        />
        <AxisChoice
          label="Columns"
          dims={dims}
          value={axes[1]}
          other={axes[0]}
          choose={(axis) => setAxes([axes[0], axis])}
        />
        {others.map(({ axis, size }) => (
          <label key={axis} className="slider">
            axis {axis}
            <input
              type="range"
              min={0}
              max={Math.max(0, size - 1)}
              value={at[axis]}
              data-testid={`slider-${axis}`}
              onChange={(event) => setIndex(at.map((old, i) => (i === axis ? event.target.valueAsNumber : old)))}
            />
            <output>
              {at[axis]} / {size - 1}
            </output>
          </label>
        ))}
      </div>
    ) : null;
  return { axes, index: at, sliders };
}

type AxisChoiceProps = {
  label: string;
  dims: readonly number[];
  value: number;
  other: number;
  choose: (axis: number) => void;
};

function AxisChoice({ label, dims, value, other, choose }: AxisChoiceProps) {
  return (
    <label className="slider">
      {label}
      <select className="field" value={value} onChange={(event) => choose(Number(event.target.value))}>
        {dims.map((size, axis) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: an axis is its number
          <option key={axis} value={axis} disabled={axis === other}>
            axis {axis} ({size})
          </option>
        ))}
      </select>
    </label>
  );
}
