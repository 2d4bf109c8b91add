// Binary frames: a length, a JSON header padded to eight bytes, and the payload that follows it.
import type { Header } from "./messages";

export type Frame = { header: Header; payload: ArrayBuffer };

export function decode(frame: ArrayBuffer): Frame {
  const length = new DataView(frame).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(frame, 4, length))) as Header;
  return { header, payload: frame.slice(4 + length) };
}

export function encode(header: object, payload: ArrayBuffer): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = Math.ceil((4 + text.length) / 8) * 8 - 4;
  const frame = new Uint8Array(4 + length + payload.byteLength).fill(0x20, 4, 4 + length);
  new DataView(frame.buffer).setUint32(0, length, true);
  frame.set(text, 4);
  frame.set(new Uint8Array(payload), 4 + length);
  return frame.buffer;
}
