// The way of a wire. To a neighbour it is a curve. Into another row of the page it goes around: down beside the source,
// along the gap above the target, and into it from the left, so that it runs behind no block.

export type Point = { x: number; y: number };
export type Way = { path: string; label: Point };

const OUT = 26;
const LANE = 7;
const ABOVE = 30;
const CORNER = 10;
/** From here on a target ahead is in another row rather than nearby. */
const FAR = { x: 420, y: 300 };

/** `rise` is how far the pin lies below the top of its block, `lane` the number of the pin: its wires keep apart. */
export function wayOf(from: Point, to: Point, rise: number, lane: number): Way {
  const [right, down] = [to.x - from.x, to.y - rise - from.y];
  const otherRow = right < 0 ? down > 0 : right > FAR.x && down > FAR.y;
  return otherRow ? around(from, to, rise, lane) : across(from, to);
}

function across(from: Point, to: Point): Way {
  const bend = Math.max(40, Math.abs(to.x - from.x) / 2);
  return {
    path: `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x - bend} ${to.y} ${to.x} ${to.y}`,
    label: { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 },
  };
}

function around(from: Point, to: Point, rise: number, lane: number): Way {
  const right = from.x + OUT + LANE * (lane % 4);
  const left = to.x - OUT - LANE * (lane % 4);
  const level = to.y - rise - ABOVE - LANE * (lane % 4);
  const c = Math.max(0, Math.min(CORNER, (level - from.y) / 2));
  const turn = left < right ? -1 : 1;
  const path = [
    `M${from.x} ${from.y}H${right - c}q${c} 0 ${c} ${c}V${level - c}q0 ${c} ${turn * c} ${c}`,
    `H${left - turn * CORNER}q${turn * CORNER} 0 ${turn * CORNER} ${CORNER}`,
    `V${to.y - CORNER}q0 ${CORNER} ${CORNER} ${CORNER}H${to.x}`,
  ].join("");
  return { path, label: { x: (left + right) / 2, y: level } };
}
