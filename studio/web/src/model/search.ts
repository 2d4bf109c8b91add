// Finding a block type by a few letters: the letters must occur in order; word beginnings and runs count most.

export type Match = { score: number; marks: number[] };

/** How well `query` fits `text`, with the places of its letters; null where it does not. */
export function match(query: string, text: string): Match | null {
  const wanted = query.toLowerCase().replace(/\s+/g, "");
  if (wanted === "") return { score: 0, marks: [] };
  const low = text.toLowerCase();
  const run = low.indexOf(wanted);
  if (run >= 0) {
    const marks = Array.from({ length: wanted.length }, (_, i) => run + i);
    return { score: 100 - run - text.length / 10 + (run === 0 ? 20 : 0), marks };
  }
  return scattered(wanted, text, low);
}

function scattered(wanted: string, text: string, low: string): Match | null {
  const marks: number[] = [];
  let score = 0;
  let at = -1;
  for (const letter of wanted) {
    const head = wordStart(text, low, letter, at + 1);
    const next = head >= 0 ? head : low.indexOf(letter, at + 1);
    if (next < 0) return null;
    score += next === at + 1 ? 3 : head >= 0 ? 4 : 0;
    marks.push(next);
    at = next;
  }
  return { score: score - text.length / 10, marks };
}

function wordStart(text: string, low: string, letter: string, from: number): number {
  for (let i = from; i < text.length; i++) {
    if (low[i] !== letter) continue;
    const here = text[i] ?? "";
    const before = text[i - 1] ?? "";
    if (i === 0 || /[A-Z0-9]/.test(here) || /[^A-Za-z0-9]/.test(before)) return i;
  }
  return -1;
}

export type Found<T> = { item: T; marks: number[] };

export function search<T>(
  query: string,
  items: readonly T[],
  name: (item: T) => string,
  more: (item: T) => string = () => "",
): Found<T>[] {
  if (query.trim() === "") return items.map((item) => ({ item, marks: [] }));
  const found: (Found<T> & { score: number })[] = [];
  for (const item of items) {
    const byName = match(query, name(item));
    if (byName) found.push({ item, marks: byName.marks, score: byName.score });
    else if (more(item).toLowerCase().includes(query.toLowerCase())) found.push({ item, marks: [], score: -50 });
  }
  return found.sort((a, b) => b.score - a.score);
}
