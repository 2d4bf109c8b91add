// A wire with the shape and dtype that flows through it, known before anything runs.
import { BaseEdge, type Edge, type EdgeProps, getBezierPath } from "@xyflow/react";
import { memo } from "react";
import { shapeText } from "../draw/number";
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
  const { id, source, sourceHandleId, sourceX, sourceY, sourcePosition, targetX, targetY, targetPosition } = props;
  const spec = useStudio((state) => state.inference.outputs[`${source}.${sourceHandleId}`]);
  const [path, x, y] = getBezierPath({ sourceX, sourceY, sourcePosition, targetX, targetY, targetPosition });
  const integer = spec?.dtype?.includes("int") ?? false;
  const label = spec && labelFor(spec, Math.hypot(targetX - sourceX, targetY - sourceY));
  return (
    <g className={integer ? "wire-int" : ""}>
      <BaseEdge
        id={id}
        path={path}
        interactionWidth={16}
        {...(props.markerEnd ? { markerEnd: props.markerEnd } : {})}
      />
      {label && props.data?.label && (
        <text className="wire-label" x={x} y={y} textAnchor="middle" dominantBaseline="central">
          {label}
        </text>
      )}
    </g>
  );
});
