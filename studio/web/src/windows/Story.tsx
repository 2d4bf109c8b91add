// What happens at the cell that is looked at, in words and figures.
import type { InputCell, OutputCell, WindowViewInfo } from "../protocol/messages";
import { same } from "./Column";
import type { Focus } from "./stepping";
import type { Cell } from "./WindowView";

type Props = {
  info: WindowViewInfo;
  focus: Focus;
  cell: Cell | null;
  at: readonly number[];
  go: (axis: number, value: number) => void;
};

const MOST = 64;

export function Story({ info, focus, cell, at, go }: Props) {
  const current = cell && cell.side === focus.side && same(cell.index, focus.index) ? cell : null;
  return (
    <aside className="windows-story" aria-label="What happens here" data-testid="window-story">
      <h3>
        {focus.side === "output" ? "Window" : "Element"} {place(info, focus.index)}
      </h3>
      <div aria-live="polite">
        {current?.side === "output" && <WindowStory info={info} cell={current} at={at} go={go} />}
        {current?.side === "input" && <ElementStory info={info} cell={current} />}
      </div>
      <Key info={info} />
      <p className="help">
        Point at a cell of an output to see what it reads, at a cell of an input to see who sends gradient to it. A
        click holds the cell, a double click lets go. Arrow keys step, Enter changes sides
        {info.spatial.length > 2 ? ", Page Up and Page Down change the slice" : ""}.
      </p>
    </aside>
  );
}

/** "h 1, w 2" in the letters of the layout. */
function place(info: WindowViewInfo, index: readonly number[]): string {
  return info.spatial.map((axis) => `${(info.layout[axis] ?? "").toLowerCase()} ${index[axis]}`).join(", ");
}

function WindowStory({
  info,
  cell,
  at,
  go,
}: {
  info: WindowViewInfo;
  cell: OutputCell;
  at: readonly number[];
  go: Props["go"];
}) {
  const chosen = cell.elements.filter((element) => element.chosen);
  const depth = info.spatial.length > 2 ? info.spatial[0] : undefined;
  const elsewhere = depth === undefined ? undefined : chosen.find((element) => element.index[0] !== at[depth]);
  return (
    <>
      <p data-testid="explain">{cell.explain}</p>
      <p className="formula" data-testid="formula">
        {formula(info, cell)}
      </p>
      {elsewhere && depth !== undefined && (
        <button type="button" className="button small outlined" onClick={() => go(depth, elsewhere.index[0] ?? 0)}>
          {chosen.length > 1 ? "Another" : "The"} chosen element is in slice {elsewhere.index[0]}: show it
        </button>
      )}
      <table>
        <thead>
          <tr>
            <th scope="col">element</th>
            <th scope="col">value</th>
            <th scope="col">share</th>
            <th scope="col">gets</th>
          </tr>
        </thead>
        <tbody>
          {cell.elements.slice(0, MOST).map((element) => (
            <tr key={element.index.join()} className={element.chosen ? "chosen" : element.tie ? "tie" : ""}>
              <td>({element.index.join(", ")})</td>
              <td>{element.value ?? "?"}</td>
              <td>{shareText(element.share)}</td>
              <td>{product(element.share, cell.grad)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {cell.count > MOST && <p className="help">and {cell.count - MOST} more elements</p>}
    </>
  );
}

function ElementStory({ info, cell }: { info: WindowViewInfo; cell: InputCell }) {
  return (
    <>
      <p data-testid="explain">{cell.explain}</p>
      <p className="formula" data-testid="formula">
        {cell.value !== null && (
          <>
            value {cell.value}
            <br />
          </>
        )}
        gradient = {sum(cell)}
      </p>
      {cell.windows.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">window</th>
              <th scope="col">share</th>
              <th scope="col">arrives</th>
              <th scope="col">sends</th>
            </tr>
          </thead>
          <tbody>
            {cell.windows.slice(0, MOST).map((window) => (
              <tr key={window.index.join()} className={window.share !== 0 ? "chosen" : ""}>
                <td>({info.spatial.map((axis) => window.index[axis]).join(", ")})</td>
                <td>{shareText(window.share)}</td>
                <td>{window.grad}</td>
                <td>{window.sends}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function formula(info: WindowViewInfo, cell: OutputCell): string {
  const values = cell.elements.map(({ value }) => value ?? "?");
  const listed = values.length > 9 ? [...values.slice(0, 8), "…"] : values;
  const value = cell.value ?? "?";
  if (info.kind === "max") return `max(${listed.join(", ")}) = ${value}`;
  return `(${listed.join(" + ")}) / ${cell.count} = ${value}`;
}

function sum(cell: InputCell): string {
  const sent = cell.windows.filter(({ share }) => share !== 0).map(({ sends }) => sends);
  if (sent.length < 2) return cell.total;
  return `${sent.length > 9 ? [...sent.slice(0, 8), "…"].join(" + ") : sent.join(" + ")} = ${cell.total}`;
}

/** Shares are often fractions of whole numbers: 1/4 says more than 0.25. */
export function shareText(share: number): string {
  if (share === 0 || share === 1) return String(share);
  const parts = Math.round(1 / share);
  return parts > 1 && Math.abs(share - 1 / parts) < 1e-6 ? `1/${parts}` : String(Number(share.toPrecision(4)));
}

function product(share: number, grad: string): string {
  if (share === 0) return "0";
  if (share === 1) return grad;
  const value = Number(grad) * share;
  return Number.isFinite(value) ? String(Number(value.toPrecision(5))) : grad;
}

function Key({ info }: { info: WindowViewInfo }) {
  const padding = info.axes.some(({ before, after }) => before + after > 0);
  return (
    <div className="key">
      <span>
        <i className="k-window" /> window
      </span>
      {info.kind === "max" && (
        <>
          <span>
            <i className="k-chosen" /> chosen
          </span>
          <span>
            <i className="k-tie" /> tied
          </span>
        </>
      )}
      {padding && (
        <span>
          <i className="k-pad" /> padding
        </span>
      )}
    </div>
  );
}
