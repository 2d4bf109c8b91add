// A small heat map of a result.
import { memo, useLayoutEffect, useRef } from "react";
import { scaleFor } from "../draw/colour";
import { paint } from "../draw/heat";
import { rangeOf } from "../state/derived";
import type { Result } from "../state/state";

export const Heat = memo(function Heat({ result }: { result: Result }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { summary, values } = result;
  const [rows, columns] = summary.shape;
  useLayoutEffect(() => {
    if (!canvas.current || !values) return;
    paint(canvas.current, values, rows, columns, scaleFor(...rangeOf(result)));
  }, [result, values, rows, columns]);
  // A strip keeps to the width; anything nearer to a square keeps its shape.
  const wide = columns > rows * 6 || rows > columns * 6;
  return <canvas ref={canvas} className={wide ? "strip" : ""} aria-hidden="true" />;
});
