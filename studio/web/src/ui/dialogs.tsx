// The dialogs: shortcuts, save as, history, gradients, Python, picture, conflicts.
import { useEffect, useMemo, useState } from "react";
import { scaleFor } from "../draw/colour";
import { paint } from "../draw/heat";
import { bytesText, shapeText } from "../draw/number";
import { type Picture, pageSvg, rasterise } from "../draw/picture";
import { reaches } from "../model/wiring";
import type { HistoryEntry } from "../protocol/messages";
import { rangeOf } from "../state/derived";
import { saveBlob } from "../state/files";
import type { Result } from "../state/state";
import { useActions, useStudio } from "./context";
import { ago } from "./Gallery";
import { Icon } from "./Icon";
import { Sheet } from "./Sheet";
import { SHORTCUTS } from "./shortcuts";
import { isDark } from "./theme";

export function Dialogs() {
  const dialog = useStudio((state) => state.dialog);
  switch (dialog) {
    case "shortcuts":
      return <Shortcuts />;
    case "save-as":
      return <SaveAs />;
    case "history":
      return <History />;
    case "gradients":
      return <Gradients />;
    case "python":
      return <Python />;
    case "picture":
      return <PagePicture />;
    default:
      return null;
  }
}

function Shortcuts() {
  return (
    <Sheet title="Keyboard shortcuts" testid="shortcut-sheet">
      <div className="shortcuts">
        {SHORTCUTS.map(({ title, rows }) => (
          <section key={title}>
            <h3>{title}</h3>
            <ul>
              {rows.map(([keys, what]) => (
                <li key={what}>
                  <span>{what}</span>
                  <kbd>{keys}</kbd>
                </li>
              ))}
            </ul>
          </section>
        ))}
      </div>
    </Sheet>
  );
}

function SaveAs() {
  const studio = useActions();
  const page = useStudio((state) => state.page) ?? "";
  const [name, setName] = useState(page.replace(/(\.page)?\.json$/, " copy"));
  const [exists, setExists] = useState(false);
  const save = async () => {
    const wanted = /\.page\.json$/.test(name) ? name : `${name.trim()}.page.json`;
    if (await studio.files.saveAs(wanted, exists)) studio.set({ dialog: null });
    else setExists(true);
  };
  return (
    <Sheet title="Save as" testid="save-as-sheet">
      <label className="attribute-name" htmlFor="save-as-name">
        Name of the file
      </label>
      <input
        id="save-as-name"
        className="field"
        value={name}
        data-testid="save-as-name"
        onChange={(event) => {
          setName(event.target.value);
          setExists(false);
        }}
        onKeyDown={(event) => event.key === "Enter" && void save()}
      />
      {exists && (
        <p className="fault" role="alert">
          There is a page of this name. Save again to replace it; its history stays.
        </p>
      )}
      <div className="actions">
        <button
          type="button"
          className="button primary"
          disabled={name.trim() === ""}
          onClick={() => void save()}
          data-testid="save-as-confirm"
        >
          {exists ? "Replace" : "Save"}
        </button>
      </div>
    </Sheet>
  );
}

function History() {
  const studio = useActions();
  const [entries, setEntries] = useState<HistoryEntry[] | null>(null);
  useEffect(() => {
    void studio.files.history().then(setEntries);
  }, [studio]);
  return (
    <Sheet title="History" testid="history-sheet">
      <p className="help">
        Earlier states, one a minute while you work. Going back is a step like any other: it can be undone.
      </p>
      <ul className="history">
        {entries?.map((entry) => (
          <li key={entry.entry}>
            <span className="grow">
              <b>{entry.label || "Saved"}</b>
              <span className="path">
                {[ago(entry.at), entry.blocks === undefined ? "" : `${entry.blocks} blocks`, bytesText(entry.bytes)]
                  .filter(Boolean)
                  .join(" · ")}
              </span>
            </span>
            {entry.current ? (
              <span className="path">now</span>
            ) : (
              <button
                type="button"
                className="button small outlined"
                data-testid={`restore-${entry.entry}`}
                onClick={() => {
                  studio.set({ dialog: null });
                  void studio.files.restore(entry.entry);
                }}
              >
                Go back to this
              </button>
            )}
          </li>
        ))}
        {entries?.length === 0 && <li>Nothing was saved yet.</li>}
      </ul>
    </Sheet>
  );
}

function blockOf(key: string): string {
  return key.split(".")[0] ?? "";
}

/** Which outputs to differentiate, and with respect to which. */
function Gradients() {
  const studio = useActions();
  const doc = useStudio((state) => state.doc);
  const palette = useStudio((state) => state.palette);
  const selection = useStudio((state) => state.selection.blocks);
  const specs = useStudio((state) => state.inference.outputs);
  const keys = useMemo(
    () =>
      Object.entries(doc.block).flatMap(([name, { type }]) =>
        (palette.types.get(type)?.outputs ?? []).map((output) => `${name}.${output.name}`),
      ),
    [doc.block, palette],
  );
  const data = (key: string) =>
    palette.types.get(doc.block[blockOf(key)]?.type ?? "")?.inputs.every((pin) => pin.text) ?? false;
  const differs = (key: string) => specs[key]?.dtype?.includes("float") ?? false;
  const chosen = (key: string) => selection.has(blockOf(key));
  const [outputs, setOutputs] = useState(() => new Set(keys.filter((key) => chosen(key) && !data(key)).slice(0, 1)));
  const [inputs, setInputs] = useState(() => {
    const selected = keys.filter((key) => chosen(key) && data(key));
    const [output] = outputs;
    const feeding = keys.filter(
      (key) => output && data(key) && differs(key) && reaches(doc, blockOf(key), blockOf(output)),
    );
    return new Set(selected.length ? selected : feeding);
  });
  const [busy, setBusy] = useState(false);
  const add = async () => {
    setBusy(true);
    if (await studio.edit.gradients([...outputs], [...inputs])) studio.set({ dialog: null });
    setBusy(false);
  };
  const list = (title: string, set: ReadonlySet<string>, change: (next: Set<string>) => void, testid: string) => (
    <fieldset>
      <legend>{title}</legend>
      <div className="check-list">
        {keys.map((key) => (
          <label key={key}>
            <input
              type="checkbox"
              checked={set.has(key)}
              data-testid={`${testid}-${key}`}
              onChange={(event) => {
                const next = new Set(set);
                if (event.target.checked) next.add(key);
                else next.delete(key);
                change(next);
              }}
            />
            <code>{key}</code>
            <span className="path">
              {specs[key] ? `${shapeText(specs[key]?.shape)} ${specs[key]?.dtype ?? ""}` : ""}
            </span>
          </label>
        ))}
      </div>
    </fieldset>
  );
  return (
    <Sheet title="Add gradients" testid="gradients-sheet">
      <p className="help">
        The blocks that compute the derivative of the outputs with respect to the inputs are added to the page.
      </p>
      <div className="two">
        {list("Differentiate", outputs, setOutputs, "gradient-output")}
        {list("With respect to", inputs, setInputs, "gradient-input")}
      </div>
      <div className="actions">
        <button
          type="button"
          className="button primary"
          disabled={busy || outputs.size === 0 || inputs.size === 0}
          onClick={() => void add()}
          data-testid="gradients-confirm"
        >
          Add gradients
        </button>
      </div>
    </Sheet>
  );
}

function Python() {
  const studio = useActions();
  const [file, setFile] = useState<{ name: string; text: string } | null>(null);
  useEffect(() => {
    void studio.files.python().then((found) => {
      if (found) setFile(found);
      else studio.set({ dialog: null });
    });
  }, [studio]);
  if (!file) return null;
  return (
    <Sheet title="The page as Python" testid="python-sheet" wide>
      <pre className="code" tabIndex={0} data-testid="python-text">
        {file.text}
      </pre>
      <div className="actions">
        <button type="button" className="button outlined" onClick={() => void copyText(studio, file.text)}>
          <Icon name="copy" /> Copy
        </button>
        <button
          type="button"
          className="button primary"
          onClick={() => saveBlob(new Blob([file.text], { type: "text/x-python" }), file.name)}
        >
          <Icon name="download" /> {file.name}
        </button>
      </div>
    </Sheet>
  );
}

export async function copyText(studio: ReturnType<typeof useActions>, text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    studio.notify("info", "Copied");
  } catch {
    studio.notify("bad", "The browser does not let this page write to the clipboard");
  }
}

function PagePicture() {
  const studio = useActions();
  const svg = useMemo(() => {
    const { doc, palette, inference, results, theme } = studio.state;
    return pageSvg({ doc, palette, specs: inference.outputs, pictures: picturesOf(results), dark: isDark(theme) });
  }, [studio]);
  const preview = useMemo(() => URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" })), [svg]);
  useEffect(() => () => URL.revokeObjectURL(preview), [preview]);
  const stem = (studio.state.page ?? "page").replace(/(\.page)?\.json$/, "").replaceAll("/", "-");
  const png = async () => {
    try {
      saveBlob(await rasterise(svg, 2), `${stem}.png`);
    } catch (error) {
      studio.complain(error);
    }
  };
  return (
    <Sheet title="Picture of the page" testid="picture-sheet" wide>
      <img className="page-picture" src={preview} alt="The page with its blocks and wires" />
      <div className="actions">
        <button type="button" className="button outlined" onClick={() => void png()} data-testid="picture-png">
          <Icon name="download" /> PNG
        </button>
        <button
          type="button"
          className="button primary"
          onClick={() => saveBlob(new Blob([svg], { type: "image/svg+xml" }), `${stem}.svg`)}
          data-testid="picture-svg"
        >
          <Icon name="download" /> SVG
        </button>
      </div>
    </Sheet>
  );
}

/** The first result of every block as an image. */
function picturesOf(results: ReadonlyMap<string, Result>): Map<string, Picture> {
  const pictures = new Map<string, Picture>();
  for (const result of results.values()) {
    const { summary, values } = result;
    if (!values || pictures.has(summary.block)) continue;
    const canvas = document.createElement("canvas");
    paint(canvas, values, summary.shape[0], summary.shape[1], scaleFor(...rangeOf(result)));
    pictures.set(summary.block, { url: canvas.toDataURL(), facts: `${shapeText(summary.dims)} ${summary.dtype_of}` });
  }
  return pictures;
}

/** Somebody changed the same thing at the same time: nothing is overwritten before a person has decided. */
export function ConflictDialog() {
  const studio = useActions();
  const conflict = useStudio((state) => state.conflict);
  if (!conflict) return null;
  const { theirs, mine } = conflict;
  return (
    <div className="conflict" role="alertdialog" aria-label="Conflict" data-testid="conflict">
      <Icon name="warning" />
      <div>
        <b>{theirs.by.name} changed the same thing at the same time.</b>
        <p>
          “{mine.label}” was not applied. It concerns {theirs.entries.map(({ key }) => key).join(", ")}.
        </p>
      </div>
      <button
        type="button"
        className="button small outlined"
        onClick={() => studio.edit.resolve("theirs")}
        data-testid="keep-theirs"
      >
        Keep theirs
      </button>
      <button
        type="button"
        className="button small primary"
        onClick={() => studio.edit.resolve("mine")}
        data-testid="keep-mine"
      >
        Keep mine
      </button>
    </div>
  );
}
