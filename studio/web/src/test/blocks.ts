// A small palette and pages for tests, in the form the server sends them.
import { type Doc, EMPTY } from "../model/doc";
import { type AttributeType, type BlockType, type PinType, paletteOf } from "../model/page";

const pin = (name: string, more: Partial<PinType> = {}): PinType => ({
  name,
  kind: "tensor",
  required: true,
  many: false,
  text: false,
  dtypes: ["float32", "int32"],
  doc: "",
  ...more,
});

const output = (name: string, dtypes: string[], kind = "tensor") => ({ name, kind, dtypes, doc: "" });

const attribute = (name: string, more: Partial<AttributeType> = {}): AttributeType => ({
  name,
  kind: "ints",
  required: true,
  default: null,
  text: "",
  choices: [],
  doc: "",
  ...more,
});

const type = (name: string, group: string, more: Partial<BlockType>): BlockType => ({
  type: name,
  group,
  summary: `${name}.`,
  doc: "",
  inputs: [],
  outputs: [output("output", ["float32", "int32"])],
  attributes: [],
  pooling: group.includes("pooling"),
  differentiable: [],
  ...more,
});

const geometry = [
  attribute("ksize"),
  attribute("strides"),
  attribute("padding", { kind: "string", choices: ["SAME", "VALID"] }),
  attribute("data_format", {
    kind: "string",
    required: false,
    default: "NHWC",
    text: "NHWC",
    choices: ["NHWC", "NCHW"],
  }),
];

export const PALETTE = paletteOf([
  type("Const", "Data", { attributes: [attribute("value", { kind: "array", required: false })] }),
  type("MaxPool", "2-D pooling", { inputs: [pin("input")], attributes: geometry }),
  type("MaxPoolGrad", "2-D pooling", {
    inputs: [pin("orig_input"), pin("orig_output"), pin("grad")],
    attributes: geometry,
  }),
  type("MaxPoolV2", "2-D pooling", {
    inputs: [pin("input"), pin("ksize", { text: true, kind: "ints", dtypes: ["int32"] })],
    attributes: geometry.slice(3),
  }),
  type("Gather", "Shape", { inputs: [pin("index", { dtypes: ["int32"], kind: "index" })] }),
  type("Normal", "Data", { outputs: [output("output", ["float32"])] }),
  type("Winner", "Shape", {
    inputs: [pin("input")],
    outputs: [output("output", []), output("index", ["int32"], "index")],
  }),
  type("ClientSession", "Session", { inputs: [pin("fetch_outputs", { many: true, required: false })], outputs: [] }),
]);

/** x -> pool -> session, x and pool -> grad -> session. */
export const PAGE: Doc = {
  ...EMPTY,
  block: {
    x: { type: "Const", attributes: { value: [1, 2] } },
    pool: { type: "MaxPool", attributes: { ksize: [1, 2, 2, 1] } },
    grad: { type: "MaxPoolGrad", attributes: {} },
    session: { type: "ClientSession" },
  },
  wire: {
    "pool.input": "x.output",
    "grad.orig_input": "x.output",
    "grad.orig_output": "pool.output",
    "session.fetch_outputs[0]": "pool.output",
    "session.fetch_outputs[1]": "grad.output",
  },
  position: { x: [0, 0], pool: [300, 0], grad: [600, 0], session: [900, 0] },
};
