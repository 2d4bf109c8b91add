// A small picture of a page for its card: blocks as rectangles in the colours of their families, wires as curves.
import { wayOf } from "../model/curve";
import { family } from "../model/page";
import type { Miniature } from "../protocol/messages";

/** Wires of a miniature end at the middle of a block's side. */
const MIDDLE = 75;

export function miniature({ blocks, wires }: Miniature) {
  if (blocks.length === 0) return null;
  const left = Math.min(...blocks.map(({ x }) => x));
  const top = Math.min(...blocks.map(({ y }) => y));
  const width = Math.max(...blocks.map(({ x, w }) => x + w)) - left;
  const height = Math.max(...blocks.map(({ y, h }) => y + h)) - top;
  const margin = Math.max(width, height) * 0.06 + 20;
  const box = [left - margin, top - margin, width + 2 * margin, height + 2 * margin];
  return (
    <svg viewBox={box.join(" ")} preserveAspectRatio="xMidYMid meet" aria-hidden="true">
      {wires.map(([x1, y1, x2, y2]) => (
        <path
          key={`${x1} ${y1} ${x2} ${y2}`}
          d={wayOf({ x: x1, y: y1 }, { x: x2, y: y2 }, MIDDLE, 0).path}
          className="miniature-wire"
          fill="none"
          vectorEffect="non-scaling-stroke"
        />
      ))}
      {blocks.map(({ x, y, w, h, type, group, name }) => (
        <g key={name} className={`family-${family(type, group)}`}>
          <rect
            x={x}
            y={y}
            width={w}
            height={h}
            rx={Math.min(12, h / 4)}
            className="miniature-block"
            vectorEffect="non-scaling-stroke"
          />
          <rect
            x={x}
            y={y}
            width={w}
            height={Math.max(10, h * 0.16)}
            rx={Math.min(8, h / 8)}
            className="miniature-head"
          />
        </g>
      ))}
    </svg>
  );
}
