// Numbers as people read them: short in cells and on blocks. Exact texts come from the server.

/** At most about `digits` significant digits, without trailing zeros: 3, 0.25, 1.2e-7, NaN, ∞. */
export function brief(value: number, digits = 4): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return minus(String(value));
  if (size >= 1e6 || size < 1e-4)
    return minus(
      value
        .toExponential(Math.max(0, digits - 2))
        .replace(/\.?0*e/, "e")
        .replace("e+", "e"),
    );
  return minus(String(Number(value.toPrecision(digits))));
}

function minus(text: string): string {
  return text.replaceAll("-", "−");
}

/** 1,3,4,4,2 becomes "1×3×4×4×2"; no axes "scalar"; unknown axes "?". */
export function shapeText(shape: readonly (number | null)[] | null | undefined): string {
  if (shape === null || shape === undefined) return "?";
  return shape.length === 0 ? "scalar" : shape.map((n) => (n === null ? "?" : String(n))).join("×");
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytesText(bytes: number): string {
  let unit = 0;
  let size = bytes;
  while (size >= 1000 && unit < UNITS.length - 1) {
    size /= 1000;
    unit++;
  }
  return `${unit === 0 ? size : size.toPrecision(3)} ${UNITS[unit]}`;
}

export function secondsText(seconds: number): string {
  if (seconds < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toPrecision(3)} ms`;
  return `${seconds.toPrecision(3)} s`;
}
