// A result in figures.
import { brief, bytesText } from "../draw/number";
import { type Statistics, strict } from "../protocol/messages";
import type { Result } from "../state/state";
import { useAsk } from "./useAsk";

export function StatisticsView({ result }: { result: Result }) {
  const { key } = result.summary;
  const found = useAsk<Statistics>("statistics", JSON.stringify({ key }), result);
  const stats = found ?? result.summary.stats;
  if (!stats) return <p className="nothing">Counting…</p>;
  const at = (index: number[] | undefined) => (index ? ` at [${index.join(", ")}]` : "");
  const rows: [string, string][] = [
    ["elements", stats.count.toLocaleString("en")],
    ["minimum", brief(strict(stats.min), 7) + at(stats.argmin)],
    ["maximum", brief(strict(stats.max), 7) + at(stats.argmax)],
    ["mean", brief(strict(stats.mean), 7)],
    ["standard deviation", brief(strict(stats.std), 7)],
    ["median", brief(strict(stats.median), 7)],
    ["zeros", stats.zeros.toLocaleString("en")],
    ["NaN", stats.nan.toLocaleString("en")],
    ["infinite", stats.inf.toLocaleString("en")],
    ["memory", stats.bytes === undefined ? "…" : bytesText(stats.bytes)],
  ];
  return (
    <dl className="stats" data-testid="statistics">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
