// A small picture of a page for its card: blocks as rectangles in the colours of their families, wires as curves.
import { family } from "../model/page";
import type { Miniature } from "../protocol/messages";

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
      {wires.map(([x1, y1, x2, y2]) => {
        const bend = Math.max(30, Math.abs(x2 - x1) / 2);
        return (
          <path
            key={`${x1} ${y1} ${x2} ${y2}`}
            d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`}
            className="miniature-wire"
            fill="none"
            vectorEffect="non-scaling-stroke"
          />
        );
      })}
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
