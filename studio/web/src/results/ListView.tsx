// The values one below the other, as the original lists them: type, name with index, value. Rows are fetched as they
// come into sight.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { elements } from "../state/derived";
import type { Result } from "../state/state";
import { useActions } from "../ui/context";

const ROW = 22;
const BATCH = 500;
/** Browsers do not scroll further than about this many pixels; longer results begin anew at the row typed above. */
const MOST = 600_000;

export function ListView({ result }: { result: Result }) {
  const { key, dims, dtype_of, output } = result.summary;
  const [first, setFirst] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const total = elements(result.summary);
  const count = Math.min(total - first, MOST);
  const virtual = useVirtualizer({ count, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 12 });
  const items = virtual.getVirtualItems();
  const from = first + (items[0]?.index ?? 0);
  const to = first + (items.at(-1)?.index ?? 0);
  const values = useRows(key, result, from, to);
  return (
    <div className="list-box">
      {total > MOST && (
        <label className="slider jump">
          From element
          <input
            className="field mono"
            type="number"
            min={0}
            max={total - 1}
            value={first}
            onChange={(event) => setFirst(Math.max(0, Math.min(total - 1, event.target.valueAsNumber || 0)))}
          />
          of {total.toLocaleString("en")}
        </label>
      )}
      <div
        ref={box}
        className="scroll"
        tabIndex={0}
        role="table"
        aria-label={`Values of ${key}`}
        aria-rowcount={total}
        data-testid="value-list"
      >
        <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {items.map(({ index, start }) => (
            <div
              key={index}
              role="row"
              aria-rowindex={first + index + 1}
              className={`list-row ${index % 2 ? "odd" : ""}`}
              style={{ transform: `translateY(${start}px)`, height: ROW }}
            >
              <span role="cell" className="kind">
                {dtype_of}
              </span>
              <span role="cell" className="index">
                result_{output}
                {indexText(first + index, dims)}
              </span>
              <span role="cell" className="value">
                {values.get(first + index) ?? "…"}
              </span>
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

/** 5 in an array of 2 by 3 is [1][2]. */
export function indexText(flat: number, dims: readonly number[]): string {
  const index: number[] = [];
  let rest = flat;
  for (let axis = dims.length - 1; axis >= 0; axis--) {
    const size = dims[axis] ?? 1;
    index.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return index.map((i) => `[${i}]`).join("");
}

/** The texts of the rows in sight, fetched in batches and kept. */
function useRows(key: string, result: Result, from: number, to: number): ReadonlyMap<number, string> {
  const studio = useActions();
  const [rows, setRows] = useState<ReadonlyMap<number, string>>(new Map());
  const asked = useRef(new Set<number>());
  const { summary } = result;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new summary means new values
  useEffect(() => {
    asked.current = new Set();
    setRows(new Map());
  }, [summary]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new values ask again
  useEffect(() => {
    for (let batch = Math.floor(from / BATCH); batch <= Math.floor(to / BATCH); batch++) {
      if (asked.current.has(batch)) continue;
      asked.current.add(batch);
      studio.client
        .request<{ start: number; values: string[] }>("table", { key, start: batch * BATCH, count: BATCH })
        .then(
          ({ start, values }) =>
            setRows((old) => new Map([...old, ...values.map((text, i) => [start + i, text] as const)])),
          () => asked.current.delete(batch),
        );
    }
  }, [studio, key, from, to, summary]);
  return rows;
}
