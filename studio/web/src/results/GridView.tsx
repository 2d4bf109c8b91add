// A slice of a result as a grid of exact values; cells are fetched as they come into sight.
import { defaultRangeExtractor, type Range as Seen, useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import type { Result } from "../state/state";
import { useActions } from "../ui/context";

const HEIGHT = 24;
const WIDTH = 92;
const TILE = 64;
/** The numbers of rows and columns stay in sight. */
const withHead = (seen: Seen) => [0, ...defaultRangeExtractor(seen).filter((i) => i > 0)];

type Props = { result: Result; axes: [number, number]; index: number[] };

export function GridView({ result, axes, index }: Props) {
  const { dims, key } = result.summary;
  const rows = axes[0] < 0 ? 1 : (dims[axes[0]] ?? 1);
  const columns = axes[1] < 0 ? 1 : (dims[axes[1]] ?? 1);
  const box = useRef<HTMLDivElement>(null);
  const down = useVirtualizer({
    count: rows + 1,
    getScrollElement: () => box.current,
    estimateSize: () => HEIGHT,
    overscan: 6,
    rangeExtractor: withHead,
  });
  const across = useVirtualizer({
    count: columns + 1,
    horizontal: true,
    getScrollElement: () => box.current,
    estimateSize: (i) => (i === 0 ? 56 : WIDTH),
    overscan: 3,
    rangeExtractor: withHead,
  });
  const [r, c] = [down.getVirtualItems(), across.getVirtualItems()];
  const cells = useTiles(
    result,
    axes,
    index,
    [r[1]?.index ?? 0, r.at(-1)?.index ?? 0],
    [c[1]?.index ?? 0, c.at(-1)?.index ?? 0],
    rows,
    columns,
  );
  return (
    <div
      ref={box}
      className="scroll grid-box"
      tabIndex={0}
      role="table"
      aria-label={`Slice of ${key}`}
      aria-rowcount={rows}
      aria-colcount={columns}
      data-testid="value-grid"
    >
      <div role="rowgroup" style={{ height: down.getTotalSize(), width: across.getTotalSize(), position: "relative" }}>
        {r.map((row) => (
          <div
            key={row.key}
            role="row"
            aria-rowindex={row.index + 1}
            className={row.index === 0 ? "grid-head" : "grid-row"}
            style={{ top: row.start, height: row.size, width: across.getTotalSize() }}
          >
            {c.map((column) => {
              const head = row.index === 0 || column.index === 0;
              const text = head
                ? headText(row.index, column.index)
                : (cells.get(`${row.index - 1},${column.index - 1}`) ?? "…");
              return (
                <div
                  key={column.key}
                  role={head ? (row.index === 0 ? "columnheader" : "rowheader") : "cell"}
                  className={`grid-cell ${head ? "head" : ""} ${column.index === 0 ? "first" : ""}`}
                  style={{ left: column.start, width: column.size, height: row.size }}
                >
                  {text}
                </div>
              );
            })}
          </div>
        ))}
      </div>
    </div>
  );
}

function headText(row: number, column: number): string {
  if (row === 0 && column === 0) return "[ , ]";
  return String((row === 0 ? column : row) - 1);
}

type Range = [number, number];

function useTiles(
  result: Result,
  axes: [number, number],
  index: number[],
  rowRange: Range,
  columnRange: Range,
  rows: number,
  columns: number,
): ReadonlyMap<string, string> {
  const studio = useActions();
  const [cells, setCells] = useState<ReadonlyMap<string, string>>(new Map());
  const asked = useRef(new Set<string>());
  const { key } = result.summary;
  const plane = JSON.stringify({ key, axes, index });
  const { summary } = result;
  // biome-ignore lint/correctness/useExhaustiveDependencies: another plane or new values begin anew
  useEffect(() => {
    asked.current = new Set();
    setCells(new Map());
  }, [plane, summary]);
  const [r0, r1, c0, c1] = [rowRange[0], rowRange[1], columnRange[0], columnRange[1]].map((i) =>
    Math.floor(Math.max(0, i - 1) / TILE),
  ) as [number, number, number, number];
  // biome-ignore lint/correctness/useExhaustiveDependencies: new values ask again
  useEffect(() => {
    for (let a = r0; a <= r1; a++) {
      for (let b = c0; b <= c1; b++) {
        if (asked.current.has(`${a},${b}`)) continue;
        asked.current.add(`${a},${b}`);
        const area = {
          rows: [a * TILE, Math.min(rows, (a + 1) * TILE)],
          columns: [b * TILE, Math.min(columns, (b + 1) * TILE)],
        };
        studio.client.request<{ values: string[][] }>("cells", { ...(JSON.parse(plane) as object), ...area }).then(
          ({ values }) =>
            setCells((old) => {
              const next = new Map(old);
              values.forEach((line, i) => {
                line.forEach((text, j) => {
                  next.set(`${a * TILE + i},${b * TILE + j}`, text);
                });
              });
              return next;
            }),
          () => asked.current.delete(`${a},${b}`),
        );
      }
    }
  }, [studio, plane, r0, r1, c0, c1, rows, columns, summary]);
  return cells;
}
