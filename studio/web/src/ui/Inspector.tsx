// What is selected, with everything that can be changed about it; the page itself when nothing is.
import { useEffect, useId, useState } from "react";
import { shapeText } from "../draw/number";
import { attrsText, parseAttrs } from "../model/attributes";
import { type Block, type BlockType, endText, nameFault, type PinType, parseEnd, wireOf } from "../model/page";
import { openOutputs } from "../model/wiring";
import { distinct, placeOf, problemsOf, problemText, wiresInto } from "../state/derived";
import { AttributeField } from "./AttributeField";
import { useActions, useStudio } from "./context";
import { Docs } from "./Docs";
import { Icon } from "./Icon";
import { PageInspector } from "./PageInspector";
import { TextField } from "./TextField";

export function Inspector() {
  const selection = useStudio((state) => state.selection);
  const [block] = selection.blocks;
  const [wire] = selection.wires;
  const [note] = selection.notes;
  const single = selection.blocks.size === 1 && selection.notes.size === 0 && block !== undefined;
  return (
    <aside className="side right inspector" aria-label="Inspector" data-testid="inspector">
      {single && <BlockInspector key={block} name={block} />}
      {!single && selection.blocks.size > 1 && <ManyInspector count={selection.blocks.size} />}
      {!single && selection.blocks.size === 0 && wire !== undefined && note === undefined && (
        <WireInspector wire={wire} />
      )}
      {!single && selection.blocks.size === 0 && note !== undefined && <NoteInspector id={note} />}
      {selection.blocks.size + selection.wires.size + selection.notes.size === 0 && <PageInspector />}
    </aside>
  );
}

function BlockInspector({ name }: { name: string }) {
  const studio = useActions();
  const block = useStudio((state) => state.doc.block[name]);
  const type = useStudio((state) => state.palette.types.get(block?.type ?? ""));
  const tab = useStudio((state) => state.inspectorTab);
  if (!block || !type) return null;
  return (
    <>
      <div className="tabs" role="tablist" aria-label="Inspector">
        {(["block", "docs"] as const).map((one) => (
          <button
            key={one}
            type="button"
            role="tab"
            aria-selected={tab === one}
            data-testid={`inspector-${one}`}
            onClick={() => studio.set({ inspectorTab: one })}
          >
            {one === "block" ? "Block" : "Documentation"}
          </button>
        ))}
      </div>
      {tab === "docs" ? <Docs type={type} /> : <BlockForm name={name} block={block} type={type} />}
    </>
  );
}

function BlockForm({ name, block, type }: { name: string; block: Block; type: BlockType }) {
  const studio = useActions();
  const problems = useStudio((state) => problemsOf(state.inference).get(name));
  const failed = useStudio((state) =>
    state.progress[name]?.state === "failed" ? state.progress[name]?.problem : undefined,
  );
  const taken = (wanted: string) => wanted !== name && wanted in studio.state.doc.block;
  const required = type.attributes.filter((attribute) => attribute.required);
  const optional = type.attributes.filter((attribute) => !attribute.required);
  const field = (attribute: (typeof required)[number]) => (
    <AttributeField
      key={attribute.name}
      name={name}
      block={block}
      type={type}
      attribute={attribute}
      problem={problems?.find((problem) => placeOf(problem) === attribute.name)}
    />
  );
  return (
    <div className="scroll">
      <section>
        <h2>{type.type}</h2>
        <TextField
          label="Name"
          value={name}
          fault={(text) => nameFault(text, taken)}
          commit={(text) => studio.edit.rename(name, text)}
          testid="inspector-name"
        />
        <p className="help">{type.summary}</p>
        <div className="inspector-actions">
          <button
            type="button"
            className="button small outlined"
            onClick={() => void studio.runs.run([name])}
            data-testid="run-to-here"
          >
            <Icon name="target" size={14} /> Run to here
          </button>
          {type.pooling && (
            <button
              type="button"
              className="button small outlined"
              data-testid="open-windows"
              onClick={() => studio.set({ dock: "windows", windowBlock: name, dockTall: true })}
            >
              <Icon name="windows" size={14} /> Window view
            </button>
          )}
          {type.outputs.length > 0 && (
            <button
              type="button"
              className="button small outlined"
              onClick={() => studio.set({ dialog: "gradients" })}
              data-testid="open-gradients"
            >
              <Icon name="gradient" size={14} /> Gradients
            </button>
          )}
        </div>
        {distinct([...(failed ? [failed] : []), ...(problems ?? [])]).map((problem) => (
          <p
            key={problem.message}
            className={`block-problem ${problem.severity === "warning" ? "warning" : ""}`}
            role="alert"
          >
            {problemText(problem)}
          </p>
        ))}
      </section>
      {type.inputs.length > 0 && (
        <section>
          <h2>Inputs</h2>
          {type.inputs.map((pin) => (
            <PinField key={pin.name} name={name} block={block} type={type} pin={pin} />
          ))}
        </section>
      )}
      {required.length > 0 && (
        <section>
          <h2>Attributes</h2>
          {required.map(field)}
        </section>
      )}
      {optional.length > 0 && (
        <section>
          <h2>Optional attributes</h2>
          {optional.map(field)}
          <AttrsField name={name} block={block} type={type} />
        </section>
      )}
      {type.outputs.length > 0 && (
        <section>
          <h2>Outputs</h2>
          {type.outputs.map((output) => (
            <OutputRow key={output.name} id={`${name}.${output.name}`} label={output.name} />
          ))}
        </section>
      )}
    </div>
  );
}

/** All optional attributes in one line, as the original's attrs pin has them. */
function AttrsField({ name, block, type }: { name: string; block: Block; type: BlockType }) {
  const studio = useActions();
  const fault = (text: string) => {
    const parsed = parseAttrs(type, text);
    return typeof parsed === "string" ? parsed : null;
  };
  const commit = (text: string) => {
    const parsed = parseAttrs(type, text);
    if (typeof parsed !== "string") studio.edit.setAttributes(name, parsed);
  };
  return (
    <div className="attribute">
      <TextField
        label="attrs"
        value={attrsText(type, block)}
        fault={fault}
        commit={commit}
        mono
        testid="attribute-attrs"
      />
      <p className="help">All optional attributes in one text: data_format_ = NHWC;</p>
    </div>
  );
}

function PinField({ name, block, type, pin }: { name: string; block: Block; type: BlockType; pin: PinType }) {
  const studio = useActions();
  const wired = useStudio((state) => wiresInto(state.doc.wire).get(`${name}.${pin.name}`));
  const doc = useStudio((state) => state.doc);
  const palette = useStudio((state) => state.palette);
  const outputs = useStudio((state) => state.inference.outputs);
  const id = useId();
  const end = { block: name, pin: pin.name, index: null };
  const current = wired?.[0] ? endText(wired[0].source) : "";
  const choices = openOutputs(doc, palette, outputs, end).map(endText);
  const connect = (text: string) => {
    if (text !== "") studio.edit.connect(parseEnd(text), end);
    else if (wired?.[0]) studio.edit.disconnect(wired[0].id);
  };
  return (
    <div className="attribute">
      <label htmlFor={id}>
        <span>
          <i className={`pin-mark ${pin.text ? "text" : ""}`} aria-hidden="true" />
          {pin.name}
        </span>
        <span className="meta">
          {pin.kind}
          {pin.required ? " · needed" : ""}
        </span>
      </label>
      {pin.many &&
        wired?.map((wire) => (
          <div key={wire.id} className="many-row">
            <code>{endText(wire.source)}</code>
            <button
              type="button"
              className="button small square"
              aria-label={`Remove ${endText(wire.source)}`}
              onClick={() => studio.edit.disconnect(wire.id)}
            >
              <Icon name="close" size={12} />
            </button>
          </div>
        ))}
      <select
        id={id}
        className="field"
        value={pin.many ? "" : current}
        data-testid={`wire-${pin.name}`}
        onChange={(event) => connect(event.target.value)}
        onKeyDown={(event) => event.stopPropagation()}
      >
        <option value="">{pin.many ? "add a wire…" : "not wired"}</option>
        {[...new Set(current && !pin.many ? [current, ...choices] : choices)].map((text) => (
          <option key={text} value={text}>
            {text}
            {outputs[text] ? `   ${shapeText(outputs[text]?.shape)} ${outputs[text]?.dtype ?? "?"}` : ""}
          </option>
        ))}
      </select>
      {pin.text && !wired?.length && <TypedPin name={name} block={block} type={type} pin={pin} />}
      <p className="help">{pin.doc}</p>
    </div>
  );
}

/** A grey pin may be typed instead of wired. */
function TypedPin({ name, block, type, pin }: { name: string; block: Block; type: BlockType; pin: PinType }) {
  const problem = useStudio((state) =>
    problemsOf(state.inference)
      .get(name)
      ?.find((one) => placeOf(one) === pin.name),
  );
  const attribute = {
    name: pin.name,
    kind: "ints",
    required: false,
    default: null,
    text: "",
    choices: [],
    doc: "or typed here",
  };
  return <AttributeField name={name} block={block} type={type} attribute={attribute} problem={problem} />;
}

function OutputRow({ id, label }: { id: string; label: string }) {
  const studio = useActions();
  const spec = useStudio((state) => state.inference.outputs[id]);
  const has = useStudio((state) => state.results.has(id));
  return (
    <div className="output-row">
      <span>
        <b>{label}</b> <code>{spec ? `${shapeText(spec.shape)} ${spec.dtype ?? "?"}` : "not known yet"}</code>
      </span>
      {has && (
        <button
          type="button"
          className="button small outlined"
          onClick={() => studio.set({ dock: "result", resultKey: id })}
          data-testid={`show-${label}`}
        >
          <Icon name="table" size={14} /> Values
        </button>
      )}
    </div>
  );
}

function WireInspector({ wire }: { wire: string }) {
  const studio = useActions();
  const output = useStudio((state) => state.doc.wire[wire]) ?? "";
  const { source, target } = wireOf(output, wire);
  const spec = useStudio((state) => state.inference.outputs[endText(source)]);
  return (
    <section>
      <h2>Wire</h2>
      <p>
        <code>{endText(source)}</code> → <code>{endText(target)}</code>
      </p>
      <p className="help">{spec ? `${shapeText(spec.shape)} ${spec.dtype ?? "?"}` : "Nothing is known of it yet"}</p>
      <div className="inspector-actions">
        <button type="button" className="button small outlined" onClick={() => studio.edit.disconnect(wire)}>
          <Icon name="trash" size={14} /> Remove
        </button>
      </div>
    </section>
  );
}

const NOTE_COLOURS = ["yellow", "teal", "steelblue", "mediumpurple", "tomato"];

function NoteInspector({ id }: { id: string }) {
  const studio = useActions();
  const note = useStudio((state) => state.doc.note[id]);
  const stored = note?.text ?? "";
  const [text, setText] = useState(stored);
  useEffect(() => setText(stored), [stored]);
  if (!note) return null;
  return (
    <section>
      <h2>{note.blocks ? "Group" : "Comment"}</h2>
      <textarea
        className="field"
        aria-label="Text"
        value={text}
        rows={4}
        onChange={(event) => setText(event.target.value)}
        onBlur={() => text !== stored && studio.edit.setNote(id, { text })}
        onKeyDown={(event) => event.stopPropagation()}
      />
      <fieldset className="inspector-actions" aria-label="Colour">
        {NOTE_COLOURS.map((color) => (
          <button
            key={color}
            type="button"
            className="button small square outlined"
            aria-label={color}
            aria-pressed={note.color === color}
            onClick={() => studio.edit.setNote(id, { color })}
          >
            <span className="colour-dot" style={{ background: color }} />
          </button>
        ))}
      </fieldset>
      <div className="inspector-actions">
        <button type="button" className="button small outlined" onClick={() => studio.edit.removeSelected()}>
          <Icon name="trash" size={14} /> Delete
        </button>
      </div>
    </section>
  );
}

const ALIGNMENTS = [
  ["left", "Left edges", "Ctrl+Shift+←"],
  ["centre", "Centres", "J"],
  ["right", "Right edges", "Ctrl+Shift+→"],
  ["top", "Top edges", "Ctrl+Shift+↑"],
  ["middle", "Middles", "K"],
  ["bottom", "Bottom edges", "Ctrl+Shift+↓"],
  ["columns", "Space across", "X"],
  ["rows", "Space down", "Y"],
] as const;

function ManyInspector({ count }: { count: number }) {
  const studio = useActions();
  return (
    <>
      <section>
        <h2>{count} blocks</h2>
        <div className="inspector-actions">
          <button type="button" className="button small outlined" onClick={() => studio.edit.layout()}>
            <Icon name="layout" size={14} /> Lay out
          </button>
          <button
            type="button"
            className="button small outlined"
            onClick={() => studio.edit.group()}
            data-testid="group"
          >
            <Icon name="group" size={14} /> Group
          </button>
          <button type="button" className="button small outlined" onClick={() => studio.edit.duplicate()}>
            <Icon name="copy" size={14} /> Duplicate
          </button>
          <button type="button" className="button small outlined" onClick={() => studio.set({ dialog: "gradients" })}>
            <Icon name="gradient" size={14} /> Gradients
          </button>
          <button type="button" className="button small outlined" onClick={() => studio.edit.removeSelected()}>
            <Icon name="trash" size={14} /> Delete
          </button>
        </div>
      </section>
      <section>
        <h2>Align</h2>
        <div className="inspector-actions">
          {ALIGNMENTS.map(([how, label, keys]) => (
            <button
              key={how}
              type="button"
              className="button small outlined"
              title={`${label} (${keys})`}
              onClick={() => studio.edit.align(how)}
              data-testid={`align-${how}`}
            >
              {label}
            </button>
          ))}
        </div>
      </section>
    </>
  );
}
