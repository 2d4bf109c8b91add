// The bar above the window view: which block, which columns, which slice, how much of it.
import { useMemo } from "react";
import { shapeText } from "../draw/number";
import type { WindowViewInfo } from "../protocol/messages";
import { useActions, useStudio } from "../ui/context";
import { Icon } from "../ui/Icon";
import { COLUMNS, type ColumnId } from "./columns";
import { planeAxes, sliderAxes } from "./stepping";

type ViewBarProps = {
  block: string;
  info: WindowViewInfo;
  at: readonly number[];
  go: (axis: number, value: number) => void;
  shown: ReadonlySet<ColumnId>;
  setShown: (shown: ReadonlySet<ColumnId>) => void;
  corner: readonly [number, number];
  setCorner: (corner: [number, number]) => void;
  region: number;
  setRegion: (region: number) => void;
};

/** How many rows and columns are shown at once; larger planes are shown part by part. */
const REGIONS = [8, 12, 24, 48, 96, 128];
const SMALL = 32;

function longest(info: WindowViewInfo): number {
  return Math.max(...planeAxes(info).map((axis) => (axis === null ? 1 : (info.tensors.input.dims[axis] ?? 1))));
}

/** Small planes are shown whole, of large ones a part whose cells can be told apart. */
export function startingRegion(info: WindowViewInfo): number {
  return longest(info) <= SMALL ? SMALL : 24;
}

const NAMES: Record<ColumnId, string> = { forward: "Forward", gradient: "Gradient", second: "Second order" };

export function ViewBar({ block, info, at, go, shown, setShown, corner, setCorner, region, setRegion }: ViewBarProps) {
  const [row, column] = planeAxes(info);
  const dims = info.tensors.input.dims;
  const regions = [
    { label: "rows from", axis: row, which: 0 },
    { label: "columns from", axis: column, which: 1 },
  ].flatMap(({ label, axis, which }) => {
    const size = axis === null ? 1 : (dims[axis] ?? 1);
    return size > region ? [{ label, which, size }] : [];
  });
  return (
    <div className="result-bar">
      <BlockChoice block={block} />
      <span className="facts">
        {info.operator} {shapeText(dims)} → {shapeText(info.tensors.output.dims)}
      </span>
      {info.kind === "max" && (
        <span className="facts" title="The policies in force: who wins a tie, what a NaN does">
          ties {info.policy.ties}, NaN {info.policy.nan}
        </span>
      )}
      <fieldset className="segments" aria-label="Columns">
        {COLUMNS.map(({ id }) => (
          <button
            key={id}
            type="button"
            aria-pressed={shown.has(id)}
            data-testid={`column-${id}`}
            onClick={() => setShown(toggled(shown, id))}
          >
            {NAMES[id]}
          </button>
        ))}
      </fieldset>
      <div className="sliders">
        {sliderAxes(info).map(({ axis, name, size }) =>
          size > 1 ? (
            <label key={axis} className="slider">
              {name}
              <input
                type="range"
                min={0}
                max={size - 1}
                value={at[axis] ?? 0}
                data-testid={`window-${name}`}
                onChange={(event) => go(axis, event.target.valueAsNumber)}
              />
              <output>
                {at[axis]} / {size - 1}
              </output>
            </label>
          ) : null,
        )}
        {longest(info) > 8 && <Zoom region={region} setRegion={setRegion} longest={longest(info)} />}
        {regions.map(({ label, which, size }) => (
          <label key={label} className="slider">
            {label}
            <input
              type="range"
              min={0}
              max={size - region}
              value={corner[which] ?? 0}
              onChange={(event) =>
                setCorner(
                  which === 0 ? [event.target.valueAsNumber, corner[1]] : [corner[0], event.target.valueAsNumber],
                )
              }
            />
            <output>{corner[which]}</output>
          </label>
        ))}
      </div>
    </div>
  );
}

/** Fewer and larger cells, or more and smaller ones. */
function Zoom({
  region,
  setRegion,
  longest,
}: {
  region: number;
  setRegion: (region: number) => void;
  longest: number;
}) {
  const nearer = REGIONS.filter((size) => size < Math.min(region, longest)).at(-1);
  const farther = region < longest ? REGIONS.find((size) => size > region) : undefined;
  const button = (label: string, icon: "plus" | "minus", size: number | undefined) => (
    <button
      type="button"
      className="button small square outlined"
      aria-label={label}
      title={label}
      disabled={size === undefined}
      data-testid={icon === "plus" ? "windows-nearer" : "windows-farther"}
      onClick={() => size !== undefined && setRegion(size)}
    >
      <Icon name={icon} size={13} />
    </button>
  );
  return (
    <span className="slider">
      cells
      {button("Larger cells", "plus", nearer)}
      {button("More cells", "minus", farther)}
    </span>
  );
}

function toggled(shown: ReadonlySet<ColumnId>, id: ColumnId): ReadonlySet<ColumnId> {
  const next = new Set(shown);
  if (!next.delete(id)) next.add(id);
  return next.size ? next : shown;
}

function BlockChoice({ block }: { block: string }) {
  const studio = useActions();
  const blocks = useStudio((state) => state.doc.block);
  const palette = useStudio((state) => state.palette);
  const pooling = useMemo(
    () => Object.keys(blocks).filter((name) => palette.types.get(blocks[name]?.type ?? "")?.pooling),
    [blocks, palette],
  );
  return (
    <select
      className="field"
      aria-label="Pooling block"
      value={block}
      style={{ width: "auto" }}
      onChange={(event) => studio.set({ windowBlock: event.target.value })}
    >
      {pooling.map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}
