import { expect, test } from "vitest";
import { problemText } from "./derived";

const problem = (place: string | null, message: string) =>
  problemText({ severity: "error", block: "pool", place, message });

test("a problem says where it is, once", () => {
  expect(problem("ksize", "expected an integer")).toBe("ksize: expected an integer");
  expect(problem("input", "input must be wired")).toBe("input must be wired");
  expect(problem("fetch_outputs[1]", "has no result")).toBe("fetch_outputs: has no result");
  expect(problem(null, "the block failed")).toBe("the block failed");
});
