// A wire with the shape and dtype that flows through it, known before anything runs.
import { BaseEdge, type Edge, type EdgeProps } from "@xyflow/react";
import { memo } from "react";
import { shapeText } from "../draw/number";
import { wayOf } from "../model/curve";
import { pinHeight } from "../model/geometry";
import type { Spec } from "../model/wiring";
import { useStudio } from "./context";

export type WireEdgeType = Edge<{ label: boolean }, "wire">;

/** Short wires get a short label, the shortest none. */
function labelFor(spec: Spec, length: number): string {
  if (length < 70) return "";
  const dtype = spec.dtype ?? "?";
  return `${shapeText(spec.shape)} ${length > 130 ? dtype : dtype.replace("float", "f").replace("int", "i")}`;
}

export const WireEdge = memo(function WireEdge(props: EdgeProps<WireEdgeType>) {
  const { id, source, sourceHandleId, sourceX, sourceY, target, targetHandleId, targetX, targetY } = props;
  const spec = useStudio((state) => state.inference.outputs[`${source}.${sourceHandleId}`]);
  const type = useStudio((state) => state.palette.types.get(state.doc.block[target]?.type ?? ""));
  const rise = pinHeight(type, targetHandleId ?? "", "in");
  const lane = type?.inputs.findIndex(({ name }) => name === targetHandleId) ?? 0;
  const way = wayOf({ x: sourceX, y: sourceY }, { x: targetX, y: targetY }, rise, lane);
  const integer = spec?.dtype?.includes("int") ?? false;
  const label = spec && labelFor(spec, Math.hypot(targetX - sourceX, targetY - sourceY));
  return (
    <g className={integer ? "wire-int" : ""}>
      <BaseEdge
        id={id}
        path={way.path}
        interactionWidth={16}
        {...(props.markerEnd ? { markerEnd: props.markerEnd } : {})}
      />
      {label && props.data?.label && (
        <text className="wire-label" x={way.label.x} y={way.label.y} textAnchor="middle" dominantBaseline="central">
          {label}
        </text>
      )}
    </g>
  );
});
