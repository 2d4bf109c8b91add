// The page as a whole: what it is called, what it says of itself, its policies and its engine.
import { useEffect, useId, useState } from "react";
import { useActions, useStudio } from "./context";
import { TextField } from "./TextField";

const POLICIES = {
  ties: [
    ["first", "the first maximum wins"],
    ["all", "every maximum gets the whole gradient"],
    ["split", "maxima share the gradient"],
  ],
  nan: [
    ["propagate", "a NaN wins its window"],
    ["ignore", "a NaN never wins"],
  ],
} as const;

export function PageInspector() {
  const studio = useActions();
  const page = useStudio((state) => state.doc.page);
  const blocks = useStudio((state) => Object.keys(state.doc.block).length);
  const wires = useStudio((state) => Object.keys(state.doc.wire).length);
  const engines = useStudio((state) => state.welcome?.engines) ?? ["cpu"];
  const engine = useStudio((state) => state.engine) ?? "cpu";
  const id = useId();
  const policy = (page.policy ?? {}) as { ties?: string; nan?: string };
  return (
    <div className="scroll">
      <section>
        <h2>Page</h2>
        <TextField
          label="Title"
          value={String(page.title ?? "")}
          commit={(text) => studio.edit.setPage("title", text)}
          testid="page-title-field"
        />
        <Comment />
        <p className="help">
          {blocks} block{blocks === 1 ? "" : "s"}, {wires} wire{wires === 1 ? "" : "s"}
        </p>
      </section>
      <section>
        <h2>Policies</h2>
        {(["ties", "nan"] as const).map((which) => (
          <div className="attribute" key={which}>
            <label htmlFor={`${id}-${which}`}>{which === "ties" ? "Ties" : "NaN"}</label>
            <select
              id={`${id}-${which}`}
              className="field"
              data-testid={`policy-${which}`}
              value={policy[which] ?? POLICIES[which][0][0]}
              onChange={(event) => studio.edit.setPage("policy", { ...policy, [which]: event.target.value })}
              onKeyDown={(event) => event.stopPropagation()}
            >
              {POLICIES[which].map(([value, meaning]) => (
                <option key={value} value={value}>
                  {value}: {meaning}
                </option>
              ))}
            </select>
          </div>
        ))}
      </section>
      {engines.length > 1 && (
        <section>
          <h2>Engine</h2>
          <select
            className="field"
            aria-label="Engine"
            value={engine}
            onChange={(event) => studio.set({ engine: event.target.value })}
          >
            {engines.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </section>
      )}
    </div>
  );
}

function Comment() {
  const studio = useActions();
  const stored = useStudio((state) => String(state.doc.page.comment ?? ""));
  const [text, setText] = useState(stored);
  const id = useId();
  useEffect(() => setText(stored), [stored]);
  return (
    <div className="attribute">
      <label htmlFor={id}>About this page</label>
      <textarea
        id={id}
        className="field"
        rows={4}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onBlur={() => text !== stored && studio.edit.setPage("comment", text)}
        onKeyDown={(event) => event.stopPropagation()}
      />
    </div>
  );
}
