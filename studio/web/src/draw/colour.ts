// Colours of tensors. Values of one sign go through viridis, values of both signs through a blue-white-red map with
// white at zero; both are even in lightness and safe for colour-blind readers. NaN and infinities have their own colours.
import { interpolateRdBu, interpolateViridis } from "d3-scale-chromatic";

export type Scale = { kind: "sequential" | "diverging"; low: number; high: number };

const STEPS = 256;

/** NaN is magenta and infinities are black or white: none of them occurs in the maps. */
export const NAN_COLOUR = 0xffc832c8;
const ABOVE = 0xffffffff;
const BELOW = 0xff000000;

function ramp(colour: (t: number) => string): Uint32Array {
  const table = new Uint32Array(STEPS);
  for (let i = 0; i < STEPS; i++) table[i] = packed(colour(i / (STEPS - 1)));
  return table;
}

/** "#rrggbb" or "rgb(r, g, b)" as the 32 bits that ImageData keeps on a little-endian machine. */
export function packed(css: string): number {
  const [r, g, b] = channels(css);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

function channels(css: string): [number, number, number] {
  if (css.startsWith("#")) {
    const n = Number.parseInt(css.slice(1), 16);
    return [n >> 16, (n >> 8) & 255, n & 255];
  }
  const [r = 0, g = 0, b = 0] = css.match(/[\d.]+/g)?.map(Number) ?? [];
  return [Math.round(r), Math.round(g), Math.round(b)];
}

const SEQUENTIAL = ramp(interpolateViridis);
const DIVERGING = ramp((t) => interpolateRdBu(1 - t));

/** The scale that fits values from `low` to `high`: symmetric about zero as soon as both signs occur. */
export function scaleFor(low: number, high: number): Scale {
  if (!(low <= high)) return { kind: "sequential", low: 0, high: 1 };
  if (low < 0 && high > 0) {
    const reach = Math.max(-low, high);
    return { kind: "diverging", low: -reach, high: reach };
  }
  return { kind: "sequential", low, high };
}

function table(scale: Scale): Uint32Array {
  return scale.kind === "diverging" ? DIVERGING : SEQUENTIAL;
}

/** The packed colour of one value. A constant tensor takes the middle of its map. */
export function colourOf(value: number, scale: Scale): number {
  if (Number.isNaN(value)) return NAN_COLOUR;
  if (value === Number.POSITIVE_INFINITY) return ABOVE;
  if (value === Number.NEGATIVE_INFINITY) return BELOW;
  const span = scale.high - scale.low;
  const t = span > 0 ? (value - scale.low) / span : 0.5;
  const step = Math.min(STEPS - 1, Math.max(0, Math.round(t * (STEPS - 1))));
  return table(scale)[step] ?? NAN_COLOUR;
}

export function css(colour: number): string {
  return `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
}

/** Black or white, whichever can be read on the colour (relative luminance as WCAG has it). */
export function inkOn(colour: number): "#000" | "#fff" {
  const light = (shift: number) => {
    const c = ((colour >> shift) & 255) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * light(0) + 0.7152 * light(8) + 0.0722 * light(16) > 0.179 ? "#000" : "#fff";
}

/** Fills `pixels` with the colours of `values`. */
export function colour(values: ArrayLike<number>, scale: Scale, pixels: Uint32Array): void {
  const map = table(scale);
  const span = scale.high - scale.low;
  const factor = span > 0 ? (STEPS - 1) / span : 0;
  const offset = span > 0 ? 0.5 : STEPS / 2;
  for (let i = 0; i < pixels.length; i++) {
    const value = values[i] ?? Number.NaN;
    const step = (value - scale.low) * factor + offset;
    if (step >= 0 && step < STEPS) pixels[i] = map[step | 0] ?? NAN_COLOUR;
    else pixels[i] = colourOf(value, scale);
  }
}

/** A CSS gradient of the map, for legends. */
export function gradientStops(scale: Scale): string[] {
  const map = table(scale);
  return [0, 32, 64, 96, 128, 160, 192, 224, 255].map((i) => css(map[i] ?? 0));
}
