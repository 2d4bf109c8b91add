import { expect, test } from "vitest";
import { decode, encode } from "./frame";

test("a frame comes back as it was sent, its payload aligned for any dtype", () => {
  const payload = new Float64Array([1.5, Number.NaN]).buffer;
  for (const name of ["a", "größer.npy", "x".repeat(99)]) {
    const frame = encode({ type: "upload", name }, payload);
    const length = new DataView(frame).getUint32(0, true);
    expect((4 + length) % 8).toBe(0);
    const found = decode(frame);
    expect(found.header).toEqual({ type: "upload", name });
    expect([...new Float64Array(found.payload)]).toEqual([1.5, Number.NaN]);
  }
});
