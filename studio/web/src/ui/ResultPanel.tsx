// A result in full: as the original's list, as a grid, as a heat map with a slider for every axis beyond two, as a
// histogram, in figures; to copy and to download.
import { useEffect, useState } from "react";
import { bytesText, shapeText } from "../draw/number";
import { GridView } from "../results/GridView";
import { HeatView } from "../results/HeatView";
import { HistogramView } from "../results/HistogramView";
import { ListView } from "../results/ListView";
import { usePlane } from "../results/plane";
import { StatisticsView } from "../results/StatisticsView";
import type { Result } from "../state/state";
import { useActions, useStudio } from "./context";
import { copyText } from "./dialogs";
import { Menu, type MenuItem } from "./Menu";

const VIEWS = [
  ["heat", "Heat map"],
  ["list", "List"],
  ["grid", "Grid"],
  ["histogram", "Histogram"],
  ["statistics", "Statistics"],
] as const;

type View = (typeof VIEWS)[number][0];

export function ResultPanel() {
  const key = useFollowedKey();
  const result = useStudio((state) => (key ? state.results.get(key) : undefined));
  const [view, setView] = useState<View>("heat");
  if (!key) return <p className="nothing">Select a block to see its values.</p>;
  if (!result) return <NoResult name={key} />;
  return <Shown key={key} result={result} view={view} setView={setView} />;
}

/** The result of the selected block, or the last one that was asked for. */
function useFollowedKey(): string | null {
  const studio = useActions();
  const block = useStudio((state) => (state.selection.blocks.size === 1 ? [...state.selection.blocks][0] : undefined));
  const key = useStudio((state) => state.resultKey);
  useEffect(() => {
    if (block === undefined || key?.startsWith(`${block}.`)) return;
    const output = studio.state.palette.types.get(studio.state.doc.block[block]?.type ?? "")?.outputs[0]?.name;
    if (output) studio.set({ resultKey: `${block}.${output}` });
  }, [block, key, studio]);
  return key;
}

function NoResult({ name }: { name: string }) {
  const studio = useActions();
  const block = name.split(".")[0] ?? "";
  return (
    <p className="nothing">
      {name} has no values yet.{" "}
      <button type="button" className="button small outlined" onClick={() => void studio.runs.run([block])}>
        Run to here
      </button>
    </p>
  );
}

function Shown({ result, view, setView }: { result: Result; view: View; setView: (view: View) => void }) {
  const { summary } = result;
  const plane = usePlane(summary.dims);
  const planar = view === "heat" || view === "grid";
  return (
    <div className="result" data-testid="result-panel">
      <div className="result-bar">
        <OutputChoice result={result} />
        <span className="facts" data-testid="result-facts">
          {summary.dtype_of} {shapeText(summary.dims)}
          {summary.stats?.bytes ? ` · ${bytesText(summary.stats.bytes)}` : ""}
          {result.stale ? " · out of date" : ""}
        </span>
        <div className="segments" role="tablist" aria-label="View">
          {VIEWS.map(([one, label]) => (
            <button
              key={one}
              type="button"
              role="tab"
              aria-selected={view === one}
              onClick={() => setView(one)}
              data-testid={`view-${one}`}
            >
              {label}
            </button>
          ))}
        </div>
        <span className="grow" />
        <Actions result={result} axes={plane.axes} index={plane.index} />
      </div>
      {planar && plane.sliders}
      <div className="result-view">
        {view === "heat" && <HeatView result={result} axes={plane.axes} index={plane.index} />}
        {view === "list" && <ListView result={result} />}
        {view === "grid" && <GridView result={result} axes={plane.axes} index={plane.index} />}
        {view === "histogram" && <HistogramView result={result} />}
        {view === "statistics" && <StatisticsView result={result} />}
      </div>
    </div>
  );
}

/** A block with several outputs: which of them. */
function OutputChoice({ result }: { result: Result }) {
  const studio = useActions();
  const { block, key } = result.summary;
  const names = useStudio((state) => state.palette.types.get(state.doc.block[block]?.type ?? "")?.outputs);
  if (!names || names.length < 2) return <b>{key}</b>;
  return (
    <select
      className="field"
      aria-label="Output"
      value={key}
      style={{ width: "auto", maxWidth: 190 }}
      onChange={(event) => studio.set({ resultKey: event.target.value })}
    >
      {names.map(({ name }) => (
        <option key={name} value={`${block}.${name}`}>
          {block}.{name}
        </option>
      ))}
    </select>
  );
}

function Actions({ result, axes, index }: { result: Result; axes: [number, number]; index: number[] }) {
  const studio = useActions();
  const { key } = result.summary;
  const download = (format: string): MenuItem => ({
    label: `.${format}`,
    icon: "download",
    testid: `download-${format}`,
    run: () => void studio.files.downloadResult({ key, format, axes, index }),
  });
  const copy = (format: string, label: string): MenuItem => ({
    label,
    icon: "copy",
    testid: `copy-${format}`,
    run: async () => {
      const reply = await studio.ask<{ text: string; truncated: boolean }>("copy_text", { key, format });
      if (!reply) return;
      await copyText(studio, reply.text);
      if (reply.truncated)
        studio.notify("info", "Only the beginning was copied: the whole is too long for the clipboard");
    },
  });
  return (
    <>
      <Menu
        label="Copy the values"
        icon="copy"
        small
        testid="copy-menu"
        items={[copy("list", "As a list"), copy("csv", "As CSV"), copy("python", "As Python")]}
      />
      <Menu
        label="Download the values"
        icon="download"
        small
        testid="download-menu"
        items={[download("npy"), download("csv"), download("png")]}
      />
    </>
  );
}
