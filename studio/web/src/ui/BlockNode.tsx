// A block on the page: its pins with what is wired and typed, what is known of its outputs, and its result. It reads
// only its own part of the store, so dragging one block draws no other one again.
import { Handle, type Node, type NodeProps, Position } from "@xyflow/react";
import { memo } from "react";
import { brief, secondsText, shapeText } from "../draw/number";
import { attributeText, isSet } from "../model/attributes";
import { type AttributeType, type Block, type BlockType, family, type PinType } from "../model/page";
import { refusal } from "../model/wiring";
import type { BlockProgress, Problem } from "../protocol/messages";
import { elements, placeOf, problemsOf, problemText, rangeOf, wiredOf } from "../state/derived";
import type { Result } from "../state/state";
import { useActions, useStudio } from "./context";
import { Heat } from "./Heat";
import { Icon } from "./Icon";

export type BlockNodeType = Node<Record<string, never>, "block">;

const NO_PROBLEMS: Problem[] = [];

export const BlockNode = memo(function BlockNode({ id }: NodeProps<BlockNodeType>) {
  const block = useStudio((state) => state.doc.block[id]);
  const type = useStudio((state) => (block ? state.palette.types.get(block.type) : undefined));
  const problems = useStudio((state) => problemsOf(state.inference).get(id)) ?? NO_PROBLEMS;
  const progress = useStudio((state) => state.progress[id]);
  const peer = useStudio((state) => state.peers.find(({ selection }) => selection?.includes(id)));
  if (!block || !type) return null;
  const failed = progress?.state === "failed" ? progress.problem : undefined;
  const shown = failed ? [failed, ...problems] : problems;
  const bad = shown.some(({ severity }) => severity === "error");
  const classes = ["block", `family-${family(type.type, type.group)}`, bad ? "bad" : "", progress?.state ?? ""];
  return (
    <div
      className={classes.join(" ")}
      data-testid={`block-${id}`}
      data-type={type.type}
      data-state={progress?.state ?? "idle"}
      style={peer ? { outline: `2px dashed ${peer.color}`, outlineOffset: 3 } : undefined}
    >
      <div className="block-head">
        <span className="name" title={`${id} (${type.type})`}>
          {id}
          {id !== type.type && <span className="kind">{type.type}</span>}
        </span>
        <State progress={progress} problems={shown} />
      </div>
      <Pins id={id} block={block} type={type} problems={shown} />
      {shown[0] && (
        <div className={`block-problem ${bad ? "" : "warning"}`} data-testid={`problem-${id}`}>
          {problemText(shown.find(({ severity }) => severity === "error") ?? shown[0])}
        </div>
      )}
      {type.outputs[0] && <BlockResult id={id} output={type.outputs[0].name} />}
    </div>
  );
});

function State({ progress, problems }: { progress: BlockProgress | undefined; problems: readonly Problem[] }) {
  if (progress?.state === "running") return <span className="spinner" role="img" aria-label="running" />;
  if (problems.length > 0) {
    const bad = problems.some(({ severity }) => severity === "error");
    return (
      <span className={`block-state ${bad ? "bad" : ""}`} role="img" aria-label={bad ? "error" : "warning"}>
        <Icon name={bad ? "error" : "warning"} size={15} />
      </span>
    );
  }
  if (progress?.state === "waiting") return <span className="block-state">waiting</span>;
  if (progress?.state === "skipped") return <span className="block-state">skipped</span>;
  if (progress?.state === "cached") return <span className="block-state">kept</span>;
  if (progress?.state !== "done") return null;
  return (
    <span className="block-state good">
      <Icon name="check" size={12} />
      {progress.seconds === undefined ? "" : secondsText(progress.seconds)}
    </span>
  );
}

function Pins({
  id,
  block,
  type,
  problems,
}: {
  id: string;
  block: Block;
  type: BlockType;
  problems: readonly Problem[];
}) {
  const wired = useStudio((state) => wiredOf(state.doc.wire).get(id)) ?? "";
  const marks = new Set(wired.split(" "));
  const faults = new Set(problems.map(placeOf));
  const rows = Math.max(type.inputs.length, type.outputs.length);
  const typed = type.attributes.filter(({ name, required }) => required || isSet(block, name));
  return (
    <>
      <div className={`pins ${type.outputs.length ? "" : "single"}`}>
        {Array.from({ length: rows }, (_, i) => {
          const [input, output] = [type.inputs[i], type.outputs[i]];
          return [
            input ? (
              <InputPin
                key={`<${input.name}`}
                id={id}
                pin={input}
                block={block}
                wired={marks.has(`<${input.name}`)}
                bad={faults.has(input.name)}
              />
            ) : (
              <span key={`<${output?.name}`} />
            ),
            output ? (
              <div key={`>${output.name}`} className="pin out" title={output.doc}>
                <span className="pin-name">{output.name}</span>
                <Handle
                  type="source"
                  position={Position.Right}
                  id={output.name}
                  className={marks.has(`>${output.name}`) ? "" : "unwired"}
                  data-testid={`pin-${id}.${output.name}`}
                  role="img"
                  aria-label={`output ${output.name} of ${id}`}
                />
              </div>
            ) : (
              type.outputs.length > 0 && <span key={`>${input?.name}`} />
            ),
          ];
        })}
      </div>
      {typed.length > 0 && (
        <div className="typed-pins">
          {typed.map((attribute) => (
            <Typed key={attribute.name} attribute={attribute} block={block} bad={faults.has(attribute.name)} />
          ))}
        </div>
      )}
    </>
  );
}

type InputPinProps = { id: string; pin: PinType; block: Block; wired: boolean; bad: boolean };

function InputPin({ id, pin, block, wired, bad }: InputPinProps) {
  const fits = usePinFits(id, pin.name);
  const typed = pin.text ? block.attributes?.[pin.name] : undefined;
  const looks = [pin.text ? "text" : "", !wired && !pin.text ? "unwired" : "", fits];
  return (
    <div className={`pin in ${bad ? "bad" : ""}`} title={pin.doc}>
      <Handle
        type="target"
        position={Position.Left}
        id={pin.name}
        className={looks.join(" ")}
        data-testid={`pin-${id}.${pin.name}`}
        role="img"
        aria-label={`input ${pin.name} of ${id}`}
      />
      <span className="pin-name">{pin.name}</span>
      {typed !== undefined && !wired && (
        <span className="typed">{attributeText({ name: pin.name, text: "" } as AttributeType, block)}</span>
      )}
    </div>
  );
}

/** While a wire is drawn from an output: whether this pin would take it. */
function usePinFits(block: string, pin: string): "" | "accepts" | "refuses" {
  return useStudio(({ drawing, doc, palette, inference }) => {
    if (!drawing) return "";
    const why = refusal(doc, palette, inference.outputs, drawing, { block, pin, index: null });
    return why === null ? "accepts" : "refuses";
  });
}

function Typed({ attribute, block, bad }: { attribute: AttributeType; block: Block; bad: boolean }) {
  const text = attributeText(attribute, block);
  return (
    <div className={`pin in ${bad ? "bad" : ""}`} title={attribute.doc}>
      <span className="text-mark" aria-hidden="true" />
      <span className="pin-name">{attribute.name}</span>
      <span className={`typed ${bad ? "bad" : ""}`}>{text === "" ? "—" : text.slice(0, 60)}</span>
    </div>
  );
}

function BlockResult({ id, output }: { id: string; output: string }) {
  const key = `${id}.${output}`;
  const studio = useActions();
  const result = useStudio((state) => state.results.get(key));
  if (!result) return null;
  const { summary } = result;
  const show = () => {
    studio.edit.select([id]);
    studio.set({ dock: "result", resultKey: key });
  };
  return (
    <button
      type="button"
      className={`block-result nodrag ${result.stale ? "stale" : ""}`}
      onClick={show}
      data-testid={`result-${key}`}
    >
      <span className="hidden-label">Result of {key}:</span>
      {elements(summary) === 1 ? <Scalar result={result} /> : <Picture result={result} />}
      <span className="facts">
        <span>
          {shapeText(summary.dims)} {summary.dtype_of}
        </span>
        <span>{rangeText(result)}</span>
      </span>
    </button>
  );
}

/** Its room is kept while the picture is on its way, so that the page does not grow after it was shown. */
function Picture({ result }: { result: Result }) {
  return result.values ? <Heat result={result} /> : <span className="picture-room" />;
}

function Scalar({ result }: { result: Result }) {
  return <span className="scalar">{brief(result.values?.[0] ?? rangeOf(result)[1], 6)}</span>;
}

function rangeText(result: Result): string {
  if (elements(result.summary) === 0) return "empty";
  const [low, high] = rangeOf(result);
  const { nan = 0, inf = 0 } = result.summary.stats ?? {};
  const odd = `${inf > 0 ? ", ∞" : ""}${nan > 0 ? ", NaN" : ""}`;
  return Number.isNaN(low) && odd ? odd.slice(2) : `${brief(low, 3)} … ${brief(high, 3)}${odd}`;
}
