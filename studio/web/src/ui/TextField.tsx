// A labelled text that is checked while typing and taken over with Enter or when the field is left; Ctrl+Enter runs the
// page with it.
import { useEffect, useId, useState } from "react";
import { useActions } from "./context";

type Props = {
  label: string;
  value: string;
  commit: (text: string) => void;
  fault?: (text: string) => string | null;
  mono?: boolean;
  testid?: string;
};

export function TextField({ label, value, commit, fault, mono, testid }: Props) {
  const id = useId();
  const studio = useActions();
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const wrong = text === value ? null : (fault?.(text) ?? null);
  const finish = () => {
    if (text !== value && wrong === null) commit(text);
    else if (wrong !== null) setText(value);
  };
  return (
    <div>
      <label htmlFor={id} className="attribute-name">
        {label}
      </label>
      <input
        id={id}
        className={`field ${mono ? "mono" : ""}`}
        value={text}
        spellCheck={false}
        autoComplete="off"
        aria-invalid={wrong !== null}
        data-testid={testid}
        onChange={(event) => setText(event.target.value)}
        onBlur={finish}
        onKeyDown={(event) => {
          event.stopPropagation();
          if (event.key === "Enter" && wrong === null) {
            finish();
            if (event.ctrlKey || event.metaKey) void studio.runs.run();
          }
          if (event.key === "Escape") setText(value);
        }}
      />
      {wrong && <p className="fault">{wrong}</p>}
    </div>
  );
}
