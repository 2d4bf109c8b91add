// How the values of a result are distributed.
import { useState } from "react";
import { brief } from "../draw/number";
import type { Result } from "../state/state";
import { useAsk } from "./useAsk";

type Histogram = { edges: number[]; counts: number[]; nan: number; below: number; above: number };

const WIDTH = 720;
const HEIGHT = 220;

export function HistogramView({ result }: { result: Result }) {
  const [log, setLog] = useState(false);
  const [hover, setHover] = useState<number | null>(null);
  const { key } = result.summary;
  const found = useAsk<Histogram>("histogram", JSON.stringify({ key, bins: 64 }), result);
  if (!found) return null;
  const { counts, edges } = found;
  const height = (count: number) => (log ? Math.log1p(count) : count);
  const most = Math.max(1, ...counts.map(height));
  const bar = WIDTH / Math.max(1, counts.length);
  const said =
    hover === null
      ? null
      : `${brief(edges[hover] ?? 0)} to ${brief(edges[hover + 1] ?? 0)}: ${(counts[hover] ?? 0).toLocaleString("en")}`;
  return (
    <figure className="histogram">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT + 22}`}
        role="img"
        aria-label={`Histogram of ${key}`}
        data-testid="histogram"
      >
        <line x1={0} x2={WIDTH} y1={HEIGHT} y2={HEIGHT} className="axis" />
        {counts.map((count, i) => (
          <g key={edges[i]} onPointerEnter={() => setHover(i)} onPointerLeave={() => setHover(null)}>
            <rect x={i * bar} y={0} width={bar} height={HEIGHT} fill="transparent" />
            <rect
              x={i * bar + 0.5}
              y={HEIGHT - (height(count) / most) * (HEIGHT - 8)}
              width={Math.max(1, bar - 1)}
              height={(height(count) / most) * (HEIGHT - 8)}
              className={`bar ${i === hover ? "hover" : ""}`}
            />
          </g>
        ))}
        <text x={0} y={HEIGHT + 16}>
          {brief(edges[0] ?? 0)}
        </text>
        <text x={WIDTH} y={HEIGHT + 16} textAnchor="end">
          {brief(edges.at(-1) ?? 0)}
        </text>
      </svg>
      <figcaption>
        <label className="switch">
          <input type="checkbox" checked={log} onChange={(event) => setLog(event.target.checked)} /> logarithmic
        </label>
        <span role="status">{said ?? (found.nan > 0 ? `${found.nan.toLocaleString("en")} NaN are left out` : "")}</span>
      </figcaption>
    </figure>
  );
}
