// How large a block is and where its pins are, before the browser has measured it. Layout and pictures use it.
import { isSet } from "./attributes";
import type { Block, BlockType } from "./page";

export const BLOCK_WIDTH = 232;
export const HEAD = 46;
export const ROW = 21;
export const TYPED_ROW = 19;

/** The height of a block without a result. */
export function blockHeight(type: BlockType, block: Block): number {
  const rows = Math.max(type.inputs.length, type.outputs.length);
  const typed = type.attributes.filter(({ name, required }) => required || isSet(block, name)).length;
  return HEAD + rows * ROW + 5 + (typed ? typed * TYPED_ROW + 9 : 0);
}

export function pinHeight(type: BlockType | undefined, pin: string, side: "in" | "out"): number {
  const pins = side === "in" ? type?.inputs : type?.outputs;
  const row = Math.max(0, pins?.findIndex(({ name }) => name === pin) ?? 0);
  return HEAD + row * ROW + ROW / 2;
}
