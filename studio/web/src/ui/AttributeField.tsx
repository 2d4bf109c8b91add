// One attribute: as the text the original's users type, checked by the server with every keystroke, and as a control
// that needs no knowledge of the text's form. Enter or leaving the field makes it one step, Ctrl+Enter runs it too.
import { useEffect, useId, useRef, useState } from "react";
import { attributeText, axesOf, type Filling, filled, isSet, numbersOf, textOf } from "../model/attributes";
import type { AttributeType, Block, BlockType, Json } from "../model/page";
import type { Problem } from "../protocol/messages";
import { useActions } from "./context";
import { Icon } from "./Icon";

type Props = { name: string; block: Block; type: BlockType; attribute: AttributeType; problem: Problem | undefined };

type Checked = { ok: boolean; text?: string; problem?: string };

export function AttributeField({ name, block, type, attribute, problem }: Props) {
  const studio = useActions();
  const id = useId();
  const stored = attributeText(attribute, block);
  const { text, setText, fault } = useChecked(block.type, attribute.name, stored);
  const set = isSet(block, attribute.name);
  const commit = (wanted: string) => {
    if (wanted === stored) return;
    if (wanted.trim() === "" && !attribute.required) studio.edit.setAttributes(name, { [attribute.name]: undefined });
    else studio.edit.setAttributes(name, { [attribute.name]: wanted });
  };
  const choose = (value: Json) => studio.edit.setAttributes(name, { [attribute.name]: value });
  const wrong = fault ?? (text === stored ? problem?.message : undefined);
  const long = attribute.kind === "array" || stored.length > 60;
  const shared = {
    id,
    className: "field mono",
    value: text,
    spellCheck: false,
    autoComplete: "off",
    "aria-invalid": wrong !== undefined,
    "aria-describedby": `${id}-help`,
    "data-testid": `attribute-${attribute.name}`,
    placeholder: attribute.required ? "needed" : attribute.text,
    onChange: (event: React.ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => setText(event.target.value),
    onBlur: () => commit(text),
  };
  const keys = (event: React.KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === "Escape") setText(stored);
    if (event.key !== "Enter") return;
    const command = event.ctrlKey || event.metaKey;
    if (long && !command) return;
    event.preventDefault();
    commit(text);
    if (command) void studio.runs.run();
  };
  return (
    <div className="attribute">
      <label htmlFor={id}>
        <span>{attribute.name}</span>
        <span className="meta">
          {attribute.kind}
          {attribute.required ? " · needed" : ""}
          {set && !attribute.required && (
            <button
              type="button"
              className="link"
              onClick={() => studio.edit.setAttributes(name, { [attribute.name]: undefined })}
              aria-label={`Reset ${attribute.name} to its default`}
            >
              reset
            </button>
          )}
        </span>
      </label>
      {long ? <textarea rows={3} {...shared} onKeyDown={keys} /> : <input type="text" {...shared} onKeyDown={keys} />}
      <Friendly block={block} type={type} attribute={attribute} text={text} choose={choose} />
      <p
        id={`${id}-help`}
        className={wrong ? "fault" : "help"}
        data-testid={wrong ? `fault-${attribute.name}` : undefined}
      >
        {wrong ?? attribute.doc}
      </p>
    </div>
  );
}

async function check(studio: ReturnType<typeof useActions>, type: string, attribute: string, text: string) {
  try {
    return await studio.client.request<Checked>("check", { block_type: type, attribute, text });
  } catch {
    return null; // The edit itself will tell.
  }
}

/** The text being typed, and what is wrong with it. */
function useChecked(type: string, attribute: string, stored: string) {
  const studio = useActions();
  const [text, setTyped] = useState(stored);
  const [fault, setFault] = useState<string | undefined>();
  const latest = useRef(stored);
  useEffect(() => {
    setTyped(stored);
    setFault(undefined);
    latest.current = stored;
  }, [stored]);
  const setText = (next: string) => {
    setTyped(next);
    latest.current = next;
    if (next === stored) {
      setFault(undefined);
      return;
    }
    void check(studio, type, attribute, next).then((checked) => {
      if (latest.current !== next || !checked) return;
      setFault(checked.ok ? undefined : (checked.problem ?? "This is not a value"));
    });
  };
  return { text, setText, fault };
}

type FriendlyProps = {
  block: Block;
  type: BlockType;
  attribute: AttributeType;
  text: string;
  choose: (value: Json) => void;
};

function Friendly({ block, type, attribute, text, choose }: FriendlyProps) {
  if (attribute.kind === "bool") return <Switch name={attribute.name} on={text === "true"} choose={choose} />;
  if (attribute.choices.length > 0 && attribute.choices.length <= 4) {
    return (
      <div className="friendly">
        <div className="segments" role="radiogroup" aria-label={attribute.name}>
          {attribute.choices.map((choice) => (
            <button
              key={choice}
              type="button"
              role="radio"
              aria-checked={choice === text}
              onClick={() => choose(choice)}
            >
              {choice === "" ? "page’s" : choice}
            </button>
          ))}
        </div>
      </div>
    );
  }
  if (attribute.choices.length > 4) return <Choices attribute={attribute} text={text} choose={choose} />;
  if (attribute.kind === "ints" || attribute.kind === "floats") {
    return <AxisNumbers block={block} type={type} attribute={attribute} text={text} choose={choose} />;
  }
  if (attribute.kind === "array") return <Fill choose={choose} block={block} />;
  if (attribute.kind === "file") return <FilePicker choose={choose} />;
  return null;
}

function Switch({ name, on, choose }: { name: string; on: boolean; choose: (value: Json) => void }) {
  return (
    <div className="friendly">
      <label className="switch">
        <input type="checkbox" checked={on} onChange={(event) => choose(event.target.checked)} />
        {name} is {on ? "on" : "off"}
      </label>
    </div>
  );
}

function Choices({
  attribute,
  text,
  choose,
}: {
  attribute: AttributeType;
  text: string;
  choose: (value: Json) => void;
}) {
  return (
    <div className="friendly">
      <select
        className="field"
        aria-label={`${attribute.name} as a list`}
        value={text}
        onChange={(event) => choose(event.target.value)}
      >
        {!attribute.choices.includes(text) && <option value={text}>{text}</option>}
        {attribute.choices.map((choice) => (
          <option key={choice} value={choice}>
            {choice}
          </option>
        ))}
      </select>
    </div>
  );
}

/** One number field per axis, where the numbers stand for axes. */
function AxisNumbers({ block, type, attribute, text, choose }: FriendlyProps) {
  const studio = useActions();
  const numbers = numbersOf(text);
  const axes = numbers && axesOf(type, block, attribute, numbers.length);
  if (!numbers || !axes) return null;
  const whole = attribute.kind === "ints";
  return (
    <div className="friendly">
      {axes.map((axis, i) => (
        <label key={axis} className={`axis-field ${whole ? "" : "broken"}`}>
          <input
            className="field"
            type="number"
            step={whole ? 1 : 0.01}
            min={attribute.name === "explicit_paddings" ? 0 : 1}
            value={numbers[i]}
            aria-label={`${attribute.name} along ${axis}`}
            onKeyDown={(event) => {
              event.stopPropagation();
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void studio.runs.run();
            }}
            onChange={(event) => {
              const value = event.target.valueAsNumber;
              if (Number.isFinite(value)) choose(numbers.map((old, j) => (j === i ? value : old)));
            }}
          />
          {axis}
        </label>
      ))}
    </div>
  );
}

/** Makes values of a shape: for trying things out nobody types sixteen numbers. */
function Fill({ choose, block }: { choose: (value: Json) => void; block: Block }) {
  const [shape, setShape] = useState(() => shapeOf(block.attributes?.value) || "1,4,4,1");
  const numbers = numbersOf(shape);
  const fill = (how: Filling) => {
    const value = numbers && filled(numbers, how);
    if (value !== null) choose(value);
  };
  const fits = numbers !== null && filled(numbers, "zeros") !== null;
  return (
    <div className="friendly fill">
      <input
        className="field mono"
        aria-label="Shape to fill"
        aria-invalid={!fits}
        value={shape}
        onChange={(event) => setShape(event.target.value)}
        onKeyDown={(event) => event.stopPropagation()}
      />
      {(["count", "random", "ones", "zeros"] as const).map((how) => (
        <button key={how} type="button" className="button small outlined" disabled={!fits} onClick={() => fill(how)}>
          {{ count: "0, 1, 2…", random: "random", ones: "ones", zeros: "zeros" }[how]}
        </button>
      ))}
    </div>
  );
}

function shapeOf(value: Json | undefined): string {
  const dims: number[] = [];
  for (let inner = value; Array.isArray(inner); inner = inner[0]) dims.push(inner.length);
  return textOf(dims);
}

function FilePicker({ choose }: { choose: (value: Json) => void }) {
  const studio = useActions();
  return (
    <div className="friendly">
      <label className="button small outlined">
        <Icon name="upload" size={14} /> Upload a file
        <input
          type="file"
          className="hidden-label"
          accept=".npy,.npz,.png,.tif,.tiff"
          onChange={async (event) => {
            const file = event.target.files?.[0];
            const path = file && (await studio.files.uploadData(file));
            if (path) choose(path);
          }}
        />
      </label>
    </div>
  );
}
