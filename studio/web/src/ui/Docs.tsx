// An operator's documentation: its docstring, its examples, and what every pin and attribute means.
import type { BlockType } from "../model/page";

export function Docs({ type }: { type: BlockType }) {
  return (
    <div className="docs scroll" data-testid="docs">
      <h2 className="panel-title">{type.group}</h2>
      <h3 className="docs-title">{type.type}</h3>
      {paragraphs(type.doc || type.summary).map((part) =>
        part.code ? <pre key={part.text}>{part.text}</pre> : <p key={part.text}>{part.text}</p>,
      )}
      <Terms title="Inputs" terms={type.inputs} />
      <Terms title="Attributes" terms={type.attributes} />
      <Terms title="Outputs" terms={type.outputs} />
    </div>
  );
}

function Terms({ title, terms }: { title: string; terms: readonly { name: string; doc: string }[] }) {
  if (terms.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <dl>
        {terms.map(({ name, doc }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{doc}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

/** Splits a docstring at blank lines; what begins with >>> is code. */
export function paragraphs(doc: string): { text: string; code: boolean }[] {
  return doc
    .split(/\n\s*\n/)
    .map((part) => part.replace(/\s+$/, ""))
    .filter((part) => part.trim() !== "")
    .map((part) => {
      const code = part.trimStart().startsWith(">>>");
      return { code, text: code ? dedent(part) : part.replace(/\s*\n\s*/g, " ").trim() };
    });
}

function dedent(text: string): string {
  const lines = text.split("\n");
  const indent = Math.min(...lines.filter((line) => line.trim()).map((line) => line.length - line.trimStart().length));
  return lines.map((line) => line.slice(indent)).join("\n");
}
