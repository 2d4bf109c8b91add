"""The malformed corpus: calls that must end in a result or in one of our errors, whatever they were given.

Every entry is a name and a Case. `build` makes the arguments (called in the process that runs the case); `expect`
says what must
happen: an Error names the argument to blame, a Result is checked, Either leaves it open but never allows anything else.
"""

import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import golden
import ml_dtypes
import numpy as np


@dataclass
class Error:
    arguments: tuple  # the message must name one of them


@dataclass
class Result:
    check: Callable[[Any, dict], None]


class Either:
    pass


@dataclass
class Case:
    op: str
    build: Callable[[], dict]
    expect: Any


CORPUS: dict[str, Case] = {}


def add(name, op, build, expect):
    assert name not in CORPUS, name
    CORPUS[name] = Case(op, build if callable(build) else lambda: build, expect)


def numbers(shape, dtype=np.float32):
    return (np.arange(int(np.prod(shape))) * 7 % 11).reshape(shape).astype(dtype)


# One good call of every operator; the corpus spoils one argument at a time
# ------------------------------------------------

POOL2 = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
POOL3 = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}
X2, Y2, X3, Y3 = (2, 4, 4, 3), (2, 2, 2, 3), (2, 4, 4, 4, 2), (2, 2, 2, 2, 2)
CELLS = {"row_pooling_sequence": np.array([0, 2, 4]), "col_pooling_sequence": np.array([0, 1, 4])}


def max_of(shape):
    """The VALID 2x2(x2) maximum of numbers(shape)."""
    x = numbers(shape)
    for axis in range(1, len(shape) - 1):
        x = np.maximum(x.take(range(0, shape[axis], 2), axis), x.take(range(1, shape[axis], 2), axis))
    return x


def cell_max():
    x = numbers(X2)
    return np.stack(
        [np.stack([x[:, a:b, c:d].max((1, 2)) for c, d in ((0, 1), (1, 4))], 1) for a, b in ((0, 2), (2, 4))], 1
    )


def argmax_of():
    return np.zeros(Y2, np.int64)


def tensors(kind):
    x, y, make = (X3, Y3, POOL3) if "3D" in kind else (X2, Y2, POOL2)
    grad = {"grad": lambda: numbers(y), "gradgrad": lambda: numbers(x)}[kind.replace("3D", "")]
    return lambda: {"orig_input": numbers(x), "orig_output": max_of(x), "grad": grad(), **make}


def v2(build):
    return lambda: {k: np.array(v, np.int32) if k in ("ksize", "strides") else v for k, v in build().items()}


GOOD = {
    "MaxPool": lambda: {"input": numbers(X2), **POOL2},
    "MaxPoolV2": v2(lambda: {"input": numbers(X2), **POOL2}),
    "MaxPoolGrad": tensors("grad"),
    "MaxPoolGradV2": v2(tensors("grad")),
    "MaxPoolGradGrad": tensors("gradgrad"),
    "MaxPoolGradGradV2": v2(tensors("gradgrad")),
    "MaxPoolWithArgmax": lambda: {"input": numbers(X2), **POOL2},
    "MaxPoolGradWithArgmax": lambda: {"input": numbers(X2), "grad": numbers(Y2), "argmax": argmax_of(), **POOL2},
    "MaxPoolGradGradWithArgmax": lambda: {"input": numbers(X2), "grad": numbers(X2), "argmax": argmax_of(), **POOL2},
    "AvgPool": lambda: {"value": numbers(X2), **POOL2},
    "AvgPoolGrad": lambda: {"orig_input_shape": list(X2), "grad": numbers(Y2), **POOL2},
    "MaxPool3D": lambda: {"input": numbers(X3), **POOL3},
    "MaxPool3DGrad": tensors("3Dgrad"),
    "MaxPool3DGradGrad": tensors("3Dgradgrad"),
    "AvgPool3D": lambda: {"input": numbers(X3), **POOL3},
    "AvgPool3DGrad": lambda: {"orig_input_shape": list(X3), "grad": numbers(Y3), **POOL3},
    "FractionalMaxPool": lambda: {"value": numbers(X2), "pooling_ratio": [1.0, 2.0, 2.0, 1.0]},
    "FractionalAvgPool": lambda: {"value": numbers(X2), "pooling_ratio": [1.0, 2.0, 2.0, 1.0]},
    "FractionalMaxPoolGrad": lambda: {
        "orig_input": numbers(X2), "orig_output": cell_max(), "out_backprop": numbers(Y2), **CELLS
    },
    "FractionalAvgPoolGrad": lambda: {"orig_input_tensor_shape": list(X2), "out_backprop": numbers(Y2), **CELLS},
    "FractionalMaxPoolGradGrad": lambda: {"orig_input": numbers(X2), "orig_output": cell_max(),
    "grad": numbers(X2), **CELLS},
    "FractionalAvgPoolGradGrad": lambda: {"grad": numbers(X2), **CELLS},
}  # fmt: skip


def spoil(op, argument, name, value, expect=None):
    """The good call of an operator with one argument replaced."""

    def build():
        a = GOOD[op]()
        a[argument] = value() if callable(value) else value
        return a

    add(f"{op}-{argument}-{name}", op, build, expect or Error((argument,)))


for op, good in GOOD.items():
    add(f"{op}-good", op, good, Result(lambda result, a: None))


# Things that are not arrays of numbers ------------------------------------------------------------------------------


class Hostile:
    """An object whose conversion fails in its own way."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array here")


class Endless:
    """A sequence without an end."""

    def __len__(self):
        return 1 << 62

    def __getitem__(self, i):
        return 1.0


NOT_TENSORS = {
    "none": None,
    "text": "abc",
    "bytes": b"abc",
    "ragged": lambda: [[1.0, 2.0], [3.0]],
    "objects": lambda: np.array([[1, None], ["a", 2]], object),
    "object-numbers": lambda: numbers(X2).astype(object),
    "text-array": lambda: np.array([["1", "2"]]),
    "complex": lambda: numbers(X2).astype(np.complex64),
    "dates": lambda: np.zeros(X2, "datetime64[s]"),
    "records": lambda: np.zeros(X2, [("a", "f4"), ("b", "i2")]),
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "type": float,
    "function": lambda: print,
    "ellipsis": ...,
    "hostile": Hostile,
    "nested-hostile": lambda: [Hostile()],
    "scalar": 1.0,
    "array-scalar": lambda: np.float32(1.0),
    "rank-1": lambda: numbers((4,)),
    "rank-3": lambda: numbers((4, 4, 3)),
    "rank-6": lambda: numbers((1, 2, 2, 2, 1, 1)),
    "rank-40": lambda: np.zeros((1,) * 40, np.float32),
}
DATA_ARGUMENTS = ("input", "value", "orig_input", "orig_output", "grad", "out_backprop", "argmax")

for op, good in GOOD.items():
    for argument in [name for name in good() if name in DATA_ARGUMENTS]:
        for name, value in NOT_TENSORS.items():
            spoil(op, argument, name, value)
        spoil(op, argument, "booleans", lambda: np.zeros(X2, bool), Either())
        spoil(op, argument, "long-double", lambda: np.zeros(X2, np.longdouble), Either())
        spoil(op, argument, "endless", Endless, Either())
        spoil(op, argument, "array-module", lambda: array.array("f", [1.0, 2.0]), Error((argument,)))


# ksize and strides --------------------------------------------------------------------------------------------------


def with_entry(values, axis, value):
    return [*values[:axis], value, *values[axis + 1 :]]


for op, good in GOOD.items():
    if "ksize" not in good():
        continue
    rank = len(good()["ksize"])
    tensor = op.endswith("V2")
    for argument in ("ksize", "strides"):
        two = [1, *[2] * (rank - 2), 1]
        for name, value in {
            "none": None, "scalar": 2, "text": "2222", "empty": [], "short": two[:-1], "long": [*two, 1],
            "zero": with_entry(two, 1, 0), "all-zero": [0] * rank, "negative": with_entry(two, 2, -1),
            "int-min": with_entry(two, 1, -(2**31)),
            "int64-min": with_entry(two, 1, -(2**63)), "minus-two": with_entry(two, 1, -2),
            "minus-beyond": with_entry(two, 1, -(2**200)), "fraction": with_entry(two, 1, 2.5),
            "nan": with_entry(two, 1, float("nan")),
            "infinite": with_entry(two, 1, float("inf")), "text-inside": with_entry(two, 1, "2"),
            "none-inside": with_entry(two, 1, None),
            "list-inside": with_entry(two, 1, [2]), "batch": with_entry(two, 0, 2), "dict": {"a": 1},
            "hostile": Hostile(), "complex": with_entry(two, 1, 2j),
        }.items():  # fmt: skip
            spoil(op, argument, name, value)
        # A stride beyond 64 bits still has one meaning: a single window. A window does not fit.
        for name, size in (("beyond-int64", 2**63), ("beyond-everything", 2**200)):
            spoil(op, argument, name, with_entry(two, 1, size), Either() if argument == "strides" else None)
        spoil(op, argument, "endless", Endless, Either())
        spoil(op, argument, "floats", [float(v) for v in two], Either())
        spoil(op, argument, "booleans", [True] * rank, Either())
        spoil(op, argument, "generator", lambda two=two: (v for v in two), Either())
        spoil(op, argument, "numpy-int8", lambda two=two: np.array(two, np.int8), Either())
        spoil(op, argument, "numpy-uint64", lambda two=two: np.array(two, np.uint64), Either())
        spoil(op, argument, "numpy-float", lambda two=two: np.array(two, np.float32), Either())
        spoil(op, argument, "column", lambda two=two: np.array(two)[:, None], Either() if tensor else None)
    spoil(op, "ksize", "channels", with_entry([1] * rank, rank - 1, 2), Either() if op.startswith("MaxPool") else None)
    spoil(op, "ksize", "channels-and-space", [1, *[2] * (rank - 1)])
    # Longer than the input plus a stride: the output length would be negative.
    spoil(op, "ksize", "much-too-long", with_entry([1, *[2] * (rank - 2), 1], 1, 2**31 - 1), Error(("ksize",)))
    spoil(op, "ksize", "int64-max", with_entry([1, *[2] * (rank - 2), 1], 1, 2**63 - 1), Error(("ksize",)))

    for name, value in {
        "lower-case": "valid", "unknown": "FULL", "empty": "", "none": None, "number": 1, "bytes": b"VALID",
        "list": ["VALID"], "pairs": [[0, 0]] * rank,
        "hostile": Hostile(), "null": "VALID\0", "array": np.zeros(2), "unhashable": {"a": []},
    }.items():  # fmt: skip
        spoil(op, "padding", name, value)

    for name, value in {
        "none": None, "empty": [], "short": [0, 0, 1, 1], "long": [0] * (2 * rank + 2),
        "negative": with_entry([0] * 2 * rank, 2, -1),
        "as-long-as-the-window": with_entry([0] * 2 * rank, 2, 2), "batch": with_entry([0] * 2 * rank, 0, 1),
        "channel": with_entry([0] * 2 * rank, 2 * rank - 1, 1),
        "huge": with_entry([0] * 2 * rank, 2, 2**31), "beyond": with_entry([0] * 2 * rank, 3, 2**64),
        "fraction": with_entry([0] * 2 * rank, 3, 0.5),
        "text": "00000000", "pairs": [[0, 0]] * rank, "number": 0, "int64-min": with_entry([0] * 2 * rank, 3, -(2**63)),
    }.items():  # fmt: skip

        def build(good=good, value=value):
            return {**good(), "padding": "EXPLICIT", "explicit_paddings": value}

        add(f"{op}-explicit_paddings-{name}", op, build, Error(("explicit_paddings",)))
    add(
        f"{op}-explicit_paddings-without-EXPLICIT",
        op,
        lambda good=good, rank=rank: {**good(), "explicit_paddings": [0] * 2 * rank},
        Either(),
    )

for op in GOOD:
    three = "3D" in op
    for name, value in {
        "lower-case": "nhwc", "unknown": "HWNC", "vectorised": "NCHW_VECT_C", "empty": "", "number": 4,
        "bytes": b"NHWC",
        "other-rank": "NHWC" if three else "NDHWC", "list": ["N", "H", "W", "C"], "hostile": Hostile(),
        "unhashable": {"a": []},
    }.items():  # fmt: skip
        spoil(op, "data_format", name, value)
    spoil(op, "name", "number", 3, Either())


# Shapes that do not fit each other -----------------------------------------------------------------------------------

for op, good in GOOD.items():
    for argument in ("orig_output", "grad", "out_backprop", "argmax", "orig_input", "input"):
        a = good()
        if argument not in a or len([k for k in a if k in DATA_ARGUMENTS]) < 2:
            continue
        shape = a[argument].shape
        for axis in range(len(shape)):
            for name, n in (
                ("smaller", shape[axis] - 1),
                ("larger", shape[axis] + 1),
                ("empty", 0),
                ("much-larger", 70),
            ):
                wrong = with_entry(list(shape), axis, n)
                dtype = a[argument].dtype
                # A different input is blamed on whichever argument no longer fits it.
                names = (
                    tuple(k for k in a if k in DATA_ARGUMENTS or "sequence" in k)
                    if "input" in argument
                    else (argument,)
                )
                # An input that pools to the same output is a good call.
                same_output = (
                    "input" in argument
                    and name == "larger"
                    and axis in range(1, len(shape) - 1)
                    and "Fractional" not in op
                    and "gradgrad" not in op.lower()
                )
                spoil(
                    op,
                    argument,
                    f"axis{axis}-{name}",
                    lambda wrong=wrong, dtype=dtype: numbers(wrong, dtype),
                    Either() if same_output else Error(names),
                )
        spoil(
            op, argument, "flat", lambda shape=shape, a=a, argument=argument: a[argument].ravel(), Error(DATA_ARGUMENTS)
        )
        spoil(op, argument, "nothing", lambda: np.zeros(0, np.float32), Error(DATA_ARGUMENTS))

for op, shape_argument, good_shape in (
    ("AvgPoolGrad", "orig_input_shape", X2),
    ("AvgPool3DGrad", "orig_input_shape", X3),
    ("FractionalAvgPoolGrad", "orig_input_tensor_shape", X2),
):
    shape = list(good_shape)
    for name, value in {
        "none": None, "number": 4, "empty": [], "short": shape[:-1], "long": [*shape, 1], "square": [shape, shape],
        "negative": with_entry(shape, 1, -4),
        "all-negative": [-n for n in shape], "int32-min": [-(2**31)] * len(shape),
        "int64-min": [-(2**63)] * len(shape), "beyond": with_entry(shape, 1, 2**64),
        "fraction": with_entry(shape, 1, 4.5), "nan": with_entry(shape, 1, float("nan")), "text": "2443",
        "text-inside": with_entry(shape, 1, "4"),
        "none-inside": with_entry(shape, 1, None), "ragged": [shape, 1], "hostile": Hostile(),
        "text-array": lambda shape=shape: np.array(["4"] * len(shape)),
        "complex": lambda shape=shape: np.array(shape, np.complex64),
    }.items():  # fmt: skip
        spoil(op, shape_argument, name, value)
    grads = (shape_argument, "grad", "out_backprop", "row_pooling_sequence", "col_pooling_sequence")
    for name, value in {
        "int32-max": [2**31 - 1] * len(shape), "int64-max": [2**63 - 1] * len(shape),
        "product-wraps-to-small": with_entry([2**32] * len(shape), 0, 2),
        "product-wraps-to-zero": [2**16] * len(shape), "huge-batch": with_entry(shape, 0, 2**62),
        "huge-depth": with_entry(shape, len(shape) - 1, 2**62),
        "other-batch": with_entry(shape, 0, 3), "other-depth": with_entry(shape, len(shape) - 1, 7),
        "other-height": with_entry(shape, 1, 9),
        "zero-height": with_entry(shape, 1, 0), "zero-batch": with_entry(shape, 0, 0),
    }.items():  # fmt: skip
        spoil(op, shape_argument, name, value, Error(grads))
        spoil(op, shape_argument, name + "-array", lambda value=value: np.array(value, np.int64), Error(grads))
    spoil(op, shape_argument, "floats", [float(n) for n in shape], Either())
    spoil(op, shape_argument, "booleans", [True] * len(shape), Either())

# A gradient shape that fits, for an input of four tebibytes: refused as memory, at once.
add(
    "AvgPoolGrad-result-too-large",
    "AvgPoolGrad",
    lambda: {
        "orig_input_shape": [1, 2**40, 1, 1],
        "grad": numbers((1, 1, 1, 1)),
        "ksize": [1, 1, 1, 1],
        "strides": [1, 2**40, 1, 1],
        "padding": "SAME",
    },
    Error(("orig_input_shape", "memory", "bytes", "GiB", "TiB")),
)

for op in ("MaxPoolGradWithArgmax", "MaxPoolGradGradWithArgmax"):
    image = int(np.prod(X2[1:]))
    for include in (False, True):
        for name, index in {
            "below": -1, "far-below": -(2**63), "just-past-the-image": image if not include else None,
            "past-the-array": 2 * image, "far-past": 2**63 - 1,
            "wraps-32": 2**32, "other-image": image + 1 if include else None,
        }.items():  # fmt: skip
            if index is None:
                continue
            for at in ("first", "last"):
                # Seen from the last window the other image is the first one.
                wrong = 0 if (name, at) == ("other-image", "last") else index

                def build(op=op, wrong=wrong, at=at, include=include, image=image):
                    a = GOOD[op]()
                    if include:
                        a["argmax"][1] += image
                    a["argmax"].reshape(-1)[0 if at == "first" else -1] = wrong
                    return {**a, "include_batch_in_index": include}

                add(f"{op}-argmax-{name}-{at}-{include}", op, build, Error(("argmax",)))
    spoil(op, "argmax", "floats", lambda: np.zeros(Y2, np.float32))
    spoil(op, "argmax", "fractions", lambda: np.full(Y2, 0.5))
    spoil(op, "argmax", "int32", lambda: np.zeros(Y2, np.int32), Either())
    spoil(op, "argmax", "uint64-max", lambda: np.full(Y2, 2**64 - 1, np.uint64))
    spoil(op, "include_batch_in_index", "text", "yes", Either())
    spoil(op, "include_batch_in_index", "array", lambda: np.zeros(2), Either())

for name, value in {
    "float": np.float32,
    "int8": "int8",
    "unknown": "abc",
    "number": 5,
    "list": [np.int64],
    "hostile": Hostile(),
}.items():
    spoil("MaxPoolWithArgmax", "Targmax", name, value)


# Fractional pooling ---------------------------------------------------------------------------------------------------

for op in ("FractionalMaxPool", "FractionalAvgPool"):
    for name, value in {
        "none": None, "number": 2.0, "empty": [], "short": [1.0, 2.0, 1.0], "long": [1.0, 2.0, 2.0, 1.0, 1.0],
        "below-one": [1.0, 0.9, 2.0, 1.0],
        "zero": [1.0, 0.0, 2.0, 1.0], "negative": [1.0, -2.0, 2.0, 1.0], "nan": [1.0, float("nan"), 2.0, 1.0],
        "infinite": [1.0, float("inf"), 2.0, 1.0],
        "minus-infinite": [1.0, float("-inf"), 2.0, 1.0], "batch": [2.0, 2.0, 2.0, 1.0],
        "channel": [1.0, 2.0, 2.0, 2.0], "above-the-length": [1.0, 4.5, 2.0, 1.0],
        "huge": [1.0, 1e300, 2.0, 1.0], "beyond-float32": [1.0, 1e39, 2.0, 1.0],
        "huge-integer": [1.0, 10**400, 2.0, 1.0], "text": "1221", "text-inside": [1.0, "2", 2.0, 1.0],
        "none-inside": [1.0, None, 2.0, 1.0],
        "ragged": [[1.0], 2.0, 2.0, 1.0], "complex": [1.0, 2j, 2.0, 1.0], "hostile": Hostile(),
    }.items():  # fmt: skip
        spoil(op, "pooling_ratio", name, value)
    for shape in ((0, 4, 4, 3), (2, 0, 4, 3), (2, 4, 0, 3), (2, 4, 4, 0)):
        spoil(
            op,
            "value",
            "empty" + "x".join(map(str, shape)),
            lambda shape=shape: numbers(shape),
            Error(("value", "pooling_ratio")),
        )
    for flag in ("pseudo_random", "overlapping", "deterministic"):
        spoil(op, flag, "text", "yes", Either())
        spoil(op, flag, "array", lambda: np.zeros(2), Either())
        spoil(op, flag, "none", None, Either())
    for seed in ("seed", "seed2"):
        spoil(op, seed, "without-deterministic", 1, Error(("seed", "deterministic")))
        for name, value in {
            "text": "1",
            "fraction": 1.5,
            "nan": float("nan"),
            "list": [1],
            "hostile": Hostile(),
        }.items():

            def build(op=op, seed=seed, value=value):
                return {**GOOD[op](), "deterministic": True, seed: value}

            add(f"{op}-{seed}-{name}", op, build, Error((seed,)))
        for name, value in {"beyond": 2**64, "far-beyond": 2**300, "negative": -(2**63)}.items():

            def build(op=op, seed=seed, value=value):
                return {**GOOD[op](), "deterministic": True, seed: value}

            add(f"{op}-{seed}-{name}", op, build, Either())

for op in ("FractionalMaxPoolGrad", "FractionalAvgPoolGrad", "FractionalMaxPoolGradGrad", "FractionalAvgPoolGradGrad"):
    for argument in ("row_pooling_sequence", "col_pooling_sequence"):
        for name, value in {
            "none": None, "number": 3, "empty": [], "one": [0], "short": [0, 4], "long": [0, 1, 2, 4],
            "negative": [-1, 2, 4], "very-negative": [-(2**63), 2, 4],
            "late-start": [1, 2, 4], "unsorted": [0, 5, 4], "descending": [4, 2, 0], "repeated": [0, 0, 4],
            "repeated-end": [0, 4, 4], "past-the-end": [0, 2, 9],
            "far-past-the-end": [0, 2, 2**63 - 1], "early-end": [0, 2, 3], "beyond-int64": [0, 2, 2**64],
            "minus-beyond": [0, -(2**70), 4], "fractions": [0.0, 2.5, 4.0], "nan": [0.0, float("nan"), 4.0],
            "square": [[0, 2, 4]], "text": "024", "text-array": ["0", "2", "4"], "objects": [0, None, 4],
            "ragged": [[0], 2, 4], "hostile": Hostile(),
            "floats": [0.0, 2.0, 4.5],
        }.items():  # fmt: skip
            names = (argument, "orig_output", "out_backprop", "grad")
            # A shorter or longer sequence is a good one for another output: the output's shape is at fault then.
            expect = Either() if op == "FractionalAvgPoolGradGrad" and name in ("short", "long") else Error(names)
            spoil(op, argument, name, value, expect)
        spoil(op, argument, "int32", lambda argument=argument: CELLS[argument].astype(np.int32), Either())
        spoil(op, argument, "uint8", lambda argument=argument: CELLS[argument].astype(np.uint8), Either())
        spoil(op, argument, "boolean", [False, True, True])
        spoil(op, argument, "endless", Endless, Either())
        spoil(op, argument, "uint64-max", lambda: np.array([0, 2, 2**64 - 1], np.uint64))
for op in ("FractionalMaxPoolGrad", "FractionalMaxPoolGradGrad"):
    spoil(op, "orig_output", "other-values", lambda: cell_max() + 1)
    spoil(op, "orig_output", "one-other-value", lambda: np.where(np.arange(24).reshape(Y2) == 23, 99, cell_max()))
    spoil(op, "orig_output", "nan", lambda: np.full(Y2, np.nan, np.float32))


# Public reproducers (CVE ids and issues) ------------------------------------------------------------------------------


def from_public(value):
    if not isinstance(value, dict):
        return value
    dtype = ml_dtypes.bfloat16 if value["dtype"] == "bfloat16" else value["dtype"]
    shape = value["shape"]
    if "values" in value:
        return np.array(value["values"]).astype(dtype).reshape(shape)
    if "arange" in value:
        return (np.arange(int(np.prod(shape))) + value["arange"]).astype(dtype).reshape(shape)
    return np.full(shape, value.get("fill", 0)).astype(dtype)


# Inputs that are good calls under our rules; all others must be refused.
GOOD_IN_PUBLIC = {
    "CVE-2021-29550": "a ratio of 1.0000014 on one pixel is 1 in float32's eyes or too high for it: both are clean",
    "CVE-2022-35989": "a window larger than the input by less than a stride has an empty result",
    "tensorflow issue 88481": "a window larger than the input by less than a stride has an empty result",
    "CVE-2021-37674": "an empty input has an empty gradient",
}

for number, entry in enumerate(golden.cves()):
    if entry["op"] not in GOOD:  # the quantised operators are not ours
        assert entry["op"] in ("QuantizedMaxPool", "QuantizedAvgPool")
        continue
    add(
        f"{entry['id'].replace(' ', '-')}-{number}",
        entry["op"],
        lambda entry=entry: {k: from_public(v) for k, v in entry["inputs"].items()},
        Either() if entry["id"] in GOOD_IN_PUBLIC else Error(tuple(entry["inputs"])),
    )


# Odd but good: the result is the plain one's
# ----------------------------------------------------------------------------


def same_as_plain(result, a):
    """The call with plain, contiguous copies of the arguments gives the same bits."""
    from judge import assert_same_bits

    import poolgrad

    def plain(v):
        if not isinstance(v, np.ndarray):
            return v
        return np.array(v, v.dtype.newbyteorder("="), order="C", copy=True)

    again = getattr(poolgrad.raw_ops, a.pop("_op"))(**{k: plain(v) for k, v in a.items()})
    for ours, theirs in zip(
        result if isinstance(result, tuple) else [result], again if isinstance(again, tuple) else [again]
    ):
        assert_same_bits(ours, theirs)
        assert ours.flags.writeable and ours.flags.c_contiguous and ours.dtype.isnative


def read_only(x):
    x = x.copy()
    x.setflags(write=False)
    return x


def strided(x):
    big = np.full([2 * n for n in x.shape], 99, x.dtype)
    big[tuple(slice(None, None, 2) for _ in x.shape)] = x
    return big[tuple(slice(None, None, 2) for _ in x.shape)]


def misaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


ODD = {
    "read-only": read_only,
    "strided": strided,
    "backwards": lambda x: np.flip(np.flip(x).copy()),
    "fortran": np.asfortranarray,
    "transposed": lambda x: np.moveaxis(np.moveaxis(x, -1, 0).copy(), 0, -1),
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder("S")),
    "byte-swapped-strided": lambda x: strided(x.astype(x.dtype.newbyteorder("S"))),
    "misaligned": misaligned,
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "subclass": lambda x: x.view(type("Sub", (np.ndarray,), {})),
    "memory-mapped": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
}
for op, good in GOOD.items():
    seeded = {"deterministic": True, "seed": 3, "seed2": 4} if op in ("FractionalMaxPool", "FractionalAvgPool") else {}
    for name, change in ODD.items():
        if name == "broadcast" and "Fractional" in op:
            continue  # changes the values, and orig_output must fit them

        def build(op=op, good=good, change=change, seeded=seeded):
            a = {k: change(v) if isinstance(v, np.ndarray) and v.ndim >= 4 else v for k, v in good().items()}
            return {**a, **seeded, "_op": op}

        add(f"{op}-odd-{name}", op, build, Result(same_as_plain))
    add(
        f"{op}-odd-lists",
        op,
        lambda good=good, seeded=seeded: (
            {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in good().items()} | seeded
        ),
        Result(lambda result, a: None),
    )


# Valid and huge: the work is that of the clipped window
# -----------------------------------------------------------------

HUGE = 2**31 - 1


def equals(value):
    def check(result, a):
        from judge import assert_same_bits

        assert_same_bits(result[0] if isinstance(result, tuple) else result, value(a))

    return Result(check)


def everywhere(a):
    """The maximum of each channel, at every place: the window is larger than the input wherever it stands."""
    x = a["input"]
    space = tuple(range(1, x.ndim - 1))
    return np.broadcast_to(x.max(space, keepdims=True), x.shape)


def first_gets_all(a):
    """Every window chooses the channel's first maximum, which gets every gradient."""
    x, g = a["orig_input"], a["grad"]
    gx = np.zeros_like(x)
    flat, out = x.reshape(x.shape[0], -1, x.shape[-1]), gx.reshape(x.shape[0], -1, x.shape[-1])
    for n in range(x.shape[0]):
        for c in range(x.shape[-1]):
            out[n, flat[n, :, c].argmax(), c] = g[n, ..., c].sum()
    return gx


for op, shape in (("MaxPool", (2, 9, 7, 3)), ("MaxPoolWithArgmax", (2, 9, 7, 3)), ("MaxPool3D", (2, 5, 4, 6, 3))):
    for size in (HUGE, 2**62, 2**63 - 1):
        k = [1, *[size] * (len(shape) - 2), 1]
        add(
            f"{op}-huge-window-{size}",
            op,
            lambda shape=shape, k=k: {
                "input": numbers(shape),
                "ksize": k,
                "strides": [1] * len(shape),
                "padding": "SAME",
            },
            equals(everywhere) if size == HUGE else Either(),
        )
for op, shape in (("MaxPoolGrad", (2, 9, 7, 3)), ("MaxPool3DGrad", (2, 5, 4, 6, 3))):
    k = [1, *[HUGE] * (len(shape) - 2), 1]

    def build(shape=shape, k=k):
        x = numbers(shape)
        y = everywhere({"input": x}).copy()
        return {
            "orig_input": x,
            "orig_output": y,
            "grad": np.ones(shape, np.float32),
            "ksize": k,
            "strides": [1] * len(shape),
            "padding": "SAME",
        }

    add(f"{op}-huge-window", op, build, equals(first_gets_all))


def mean_everywhere(x):
    return np.broadcast_to(x.mean(tuple(range(1, x.ndim - 1)), keepdims=True), x.shape)


for op, shape in (("AvgPool", (2, 8, 4, 3)), ("AvgPool3D", (2, 4, 4, 2, 3))):
    name = "value" if op == "AvgPool" else "input"
    huge = {"ksize": [1, *[HUGE] * (len(shape) - 2), 1], "strides": [1] * len(shape), "padding": "SAME"}
    add(
        f"{op}-huge-window",
        op,
        lambda shape=shape, name=name, huge=huge: {name: numbers(shape), **huge},
        equals(lambda a, name=name: mean_everywhere(a[name])),
    )
    add(
        f"{op}Grad-huge-window",
        op + "Grad",
        lambda shape=shape, huge=huge: {"orig_input_shape": list(shape), "grad": numbers(shape), **huge},
        equals(lambda a: mean_everywhere(a["grad"])),
    )
for op in ("MaxPool", "AvgPool"):
    name = "value" if op == "AvgPool" else "input"
    add(
        f"{op}-huge-stride",
        op,
        lambda name=name: {
            name: numbers((2, 9, 7, 3)),
            "ksize": [1, 1, 1, 1],
            "strides": [1, HUGE, HUGE, 1],
            "padding": "VALID",
        },
        equals(lambda a, name=name: a[name][:, :1, :1]),
    )


def wide_windows(x, over):
    """`over` ("max" or "sum") of 1000x1000 windows at stride 1 under SAME, one axis after the other, by running
    maxima or sums."""
    n, before = 1000, 499
    for axis in (1, 2):
        x = np.moveaxis(x, axis, 0)
        run = np.maximum.accumulate if over == "max" else np.cumsum
        prefix, suffix = run(x, axis=0), run(x[::-1], axis=0)[::-1]
        # Window o is [o - 499, o + 501) cut to [0, 1000): it always touches one end.
        x = np.stack([prefix[min(n, o - before + n) - 1] if o <= before else suffix[o - before] for o in range(n)])
        x = np.moveaxis(x, 0, axis)
    return x


def check_wide_mean(result, a):
    real = np.array([min(1000, o + 501) - max(0, o - 499) for o in range(1000)], np.float64)
    truth = wide_windows(a["value"].astype(np.float64), "sum") / (real[:, None] * real)[None, :, :, None]
    assert np.abs(result - truth).max() <= 1e-6 * np.abs(truth).max()


def peak_at_500():
    slope = -np.abs(np.arange(1000, dtype=np.float32) - 500)
    return slope[None, :, None, None] + slope[None, None, :, None]


WIDE = {"ksize": [1, 1000, 1000, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
add(
    "MaxPool-wide-window",
    "MaxPool",
    lambda: {"input": np.random.default_rng(0).random((1, 1000, 1000, 1), np.float32), **WIDE},
    equals(lambda a: wide_windows(a["input"], "max")),
)
add(
    "AvgPool-wide-window",
    "AvgPool",
    lambda: {"value": np.random.default_rng(0).random((1, 1000, 1000, 1), np.float32), **WIDE},
    Result(check_wide_mean),
)
add(
    "MaxPoolGrad-wide-window",
    "MaxPoolGrad",
    # The maximum stands at (500, 500), and every window [o - 499, o + 501) sees it.
    lambda: {"orig_input": (x := peak_at_500()), "orig_output": np.zeros_like(x), "grad": np.ones_like(x), **WIDE},
    equals(lambda a: np.where(a["orig_input"] == 0, np.float32(1_000_000), np.float32(0))),
)
add(
    "AvgPoolGrad-wide-window",
    "AvgPoolGrad",
    lambda: {
        "orig_input_shape": [1, 1000, 1000, 1],
        "grad": np.random.default_rng(0).random((1, 1000, 1000, 1), np.float32),
        **WIDE,
    },
    Result(
        lambda result, a: np.testing.assert_allclose(
            result.sum(dtype=np.float64), a["grad"].sum(dtype=np.float64), rtol=1e-5
        )
    ),
)
