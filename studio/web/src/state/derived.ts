// What many blocks ask of the same document or inference, computed once for each of them.
import type { Doc } from "../model/doc";
import { parseEnd, type Wire, wireOf } from "../model/page";
import { type Inference, type Problem, type Summary, strict } from "../protocol/messages";
import type { Result } from "./state";

function once<K extends object, V>(compute: (key: K) => V): (key: K) => V {
  const known = new WeakMap<K, V>();
  return (key) => {
    let value = known.get(key);
    if (value === undefined) {
      value = compute(key);
      known.set(key, value);
    }
    return value;
  };
}

/** Wires by the pin they end at, "block.pin". */
export const wiresInto = once((wire: Doc["wire"]): ReadonlyMap<string, Wire[]> => {
  const found = new Map<string, Wire[]>();
  for (const [target, source] of Object.entries(wire)) {
    const parsed = wireOf(source, target);
    const pin = `${parsed.target.block}.${parsed.target.pin}`;
    found.set(pin, [...(found.get(pin) ?? []), parsed]);
  }
  return found;
});

/** The wired pins and outputs of every block, as one text each: equal texts mean that nothing has to be drawn again. */
export const wiredOf = once((wire: Doc["wire"]): ReadonlyMap<string, string> => {
  const found = new Map<string, Set<string>>();
  const add = (block: string, mark: string) => {
    const marks = found.get(block) ?? new Set();
    found.set(block, marks.add(mark));
  };
  for (const [pin, output] of Object.entries(wire)) {
    const { source, target } = wireOf(output, pin);
    add(source.block, `>${source.pin}`);
    add(target.block, `<${target.pin}`);
  }
  return new Map([...found].map(([block, marks]) => [block, [...marks].sort().join(" ")]));
});

export const problemsOf = once((inference: Inference): ReadonlyMap<string, Problem[]> => {
  const found = new Map<string, Problem[]>();
  for (const problem of inference.problems) {
    const { block } = problem;
    if (block) found.set(block, [...(found.get(block) ?? []), problem]);
  }
  return found;
});

export function placeOf(problem: Problem): string | null {
  return problem.place === undefined || problem.place === null ? null : parseEnd(`x.${problem.place}`).pin;
}

/** What is wrong, with the pin or attribute where it is. */
export function problemText(problem: Problem): string {
  const place = placeOf(problem);
  return place === null || problem.message.includes(place) ? problem.message : `${place}: ${problem.message}`;
}

/** What a run found again was known before it: each problem is listed once. */
export function distinct(problems: readonly Problem[]): Problem[] {
  const known = new Map(problems.map((problem) => [`${problem.block} ${problem.message}`, problem]));
  return [...known.values()];
}

export function elements({ dims }: Summary): number {
  return dims.reduce((product, n) => product * n, 1);
}

/** Smallest and largest value; of the picture alone as long as the statistics are not there. */
export const rangeOf = once(({ summary, values }: Result): [number, number] => {
  if (summary.stats) return [strict(summary.stats.min), strict(summary.stats.max)];
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values ?? []) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
});
