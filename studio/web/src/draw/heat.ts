// Paints values as coloured pixels on a canvas: one pixel a value, enlarged by the browser without smoothing.
import { colour, type Scale } from "./colour";

export function paint(
  canvas: HTMLCanvasElement,
  values: ArrayLike<number>,
  rows: number,
  columns: number,
  scale: Scale,
): void {
  if (rows === 0 || columns === 0) return;
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  if (!context) return;
  const image = context.createImageData(columns, rows);
  colour(values, scale, new Uint32Array(image.data.buffer));
  context.putImageData(image, 0, 0);
}
