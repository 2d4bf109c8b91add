"""The window view: what a pooling block reads, chooses and sends back, cell by cell.

Everything shown is computed by the operators' own kernels, over the part of the array that is looked at: a window, or
the windows that touch a plane. So a cell of a volume of any size is answered in a moment, with the same bits that the
whole operator gives, whatever the ties, the NaN or the cells of a fractional pooling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from poolgrad import backends
from poolgrad.catalog import Operator, Tensor, operators
from poolgrad.geometry import Cells
from poolgrad.policy import Policy
from poolgrad.windows import Pool, Windows

from .frames import Message, number
from .problems import Refused
from .tensors import finite_range, region, texts

Array: TypeAlias = npt.NDArray[Any]

INPUTS: Final = ("input", "value", "orig_input")
GRADIENTS: Final = ("grad", "out_backprop")
SHAPES: Final = ("orig_input_shape", "orig_input_tensor_shape")
MOST_ELEMENTS: Final = 4096
MOST_WINDOWS: Final = 1024
LARGEST_SIDE: Final = 512
LONGEST_AXIS: Final = 100_000


def _order(operator: Operator) -> int:
    """0 for a pooling, 1 for its gradient, 2 for the gradient of that."""
    if not any(i.name in GRADIENTS for i in operator.inputs):
        return 0
    return 1 if operator.name in _FIRST else 2


def _next(operator: Operator) -> Operator:
    """The operator of the derivative."""
    return operators[next(iter(operator.derivatives.values())).operator]


_FIRST: Final = frozenset(
    _next(operator).name
    for operator in operators.values()
    if not any(i.name in GRADIENTS for i in operator.inputs) and operator.derivatives
)


class Box(NamedTuple):
    """A part of the input, and the windows that belong to it: [from, to) per spatial axis."""

    inside: tuple[tuple[int, int], ...]
    windows: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Pooling:
    """The pooling behind a block: its geometry, and the arrays that there are.

    x, y      the input and the output; None where a gradient knows only shapes
    g, v      the gradients that arrive at the gradient and at its gradient; None stands for ones
    """

    operator: Operator
    pool: Pool
    policy: Policy
    layout: str
    arguments: Mapping[str, Any]
    dtype: np.dtype[Any]
    x: Array | None
    y: Array | None
    g: Array | None
    v: Array | None
    argmax: Array | None

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any], outputs: Mapping[str, Array], policy: Policy) -> Pooling:
        """The pooling of a block with these arguments and results."""
        operator = operators.get(name)
        if operator is None:
            raise Refused("bad_request", f"{name} is no pooling operator")
        arguments = {p.name: given.get(p.name, getattr(p, "default", None)) for p in operator.parameters}
        arguments |= {key: value for key, value in outputs.items() if "sequence" in key}
        order = _order(operator)
        x = _first(arguments, INPUTS)
        gradient = _first(arguments, GRADIENTS)
        data = x if x is not None else gradient
        if data is None:
            raise Refused("no_result", "the block has no input yet: run it first")
        layout = str(arguments["data_format"])
        return cls(
            operator,
            _geometry(operator, arguments, outputs, layout),
            policy,
            layout,
            arguments,
            data.dtype,
            x,
            outputs.get("output") if order == 0 else arguments.get("orig_output"),
            gradient if order == 1 else None,
            gradient if order == 2 else None,
            outputs["argmax"] if "argmax" in outputs else arguments.get("argmax"),
        )

    def beside(self, others: Sequence[Pooling]) -> Pooling:
        """With the gradients of other blocks of the page that pool the same array through the same windows."""
        found = self
        for other in others:
            if other.pool != self.pool or (self.x is not None and other.x is not None and other.x is not self.x):
                continue
            if found.g is None and other.g is not None and other.operator is found.first:
                found = replace(found, g=other.g)
            if found.v is None and other.v is not None and other.operator is found.second:
                found = replace(found, v=other.v)
        return found

    @property
    def order(self) -> int:
        """Which derivative the block is."""
        return _order(self.operator)

    @property
    def first(self) -> Operator:
        """The operator that gives the gradient."""
        return self.operator if self.order == 1 else _next(self.operator)

    @property
    def second(self) -> Operator:
        """The operator that gives the gradient of the gradient."""
        return self.operator if self.order == 2 else _next(self.first)

    @property
    def selects(self) -> bool:
        """Whether one element of a window wins, instead of all being averaged."""
        return any(i.name in ("orig_output", "argmax") for i in self.first.inputs)

    @property
    def spatial(self) -> range:
        """The axes that windows lie along."""
        return range(self.pool.axis, self.pool.axis + len(self.pool.windows))

    @cached_property
    def spans(self) -> tuple[tuple[Array, Array], ...]:
        """First and one past the last element of every window, per spatial axis."""
        return tuple((w.start, w.stop) for w in self.pool.windows)

    # -- boxes --------------------------------------------------------------------------------------------------------

    def box_of_window(self, at: Sequence[int]) -> Box:
        """One window and what it reads."""
        inside = tuple((int(s[o]), int(e[o])) for (s, e), o in zip(self.spans, at, strict=True))
        return Box(inside, tuple((o, o + 1) for o in at))

    def box_of_part(self, part: Sequence[tuple[int, int]]) -> Box:
        """A part of the input with all windows that touch it, and all that these read."""
        inside, touching = [], []
        for (starts, stops), (a, b) in zip(self.spans, part, strict=True):
            hits = np.flatnonzero((starts < b) & (stops > a))
            first, last = (int(hits[0]), int(hits[-1]) + 1) if hits.size else (0, 0)
            inside.append((min([a, *starts[first:last].tolist()]), max([b, *stops[first:last].tolist()])))
            touching.append((first, last))
        return Box(tuple(inside), tuple(touching))

    def _pool(self, box: Box, shape: tuple[int, ...]) -> Pool:
        windows = tuple(
            Windows(b - a, last - first, starts=starts[first:last] - a, stops=stops[first:last] - a)
            for (starts, stops), (a, b), (first, last) in zip(self.spans, box.inside, box.windows, strict=True)
        )
        return Pool(shape, self.pool.axis, windows)

    def _cut(self, array: Array | None, ranges: Sequence[tuple[int, int]], fixed: Sequence[int]) -> Array | None:
        """A part of an array; every axis that is not spatial at one index. Ones where there is no array."""
        if array is None:
            return None
        parts = [slice(i, i + 1) for i in fixed]
        for axis, (a, b) in zip(self.spatial, ranges, strict=True):
            parts[axis] = slice(a, b)
        return np.ascontiguousarray(array[tuple(parts)])

    def _ones(self, ranges: Sequence[tuple[int, int]], rank: int, dtype: Any = None) -> Array:
        shape = [1] * rank
        for axis, (a, b) in zip(self.spatial, ranges, strict=True):
            shape[axis] = b - a
        return np.ones(shape, dtype or self.dtype)

    # -- the two gradients over a box ---------------------------------------------------------------------------------

    def gradient(self, box: Box, fixed: Sequence[int], g: Array | None = None, exact: bool = True) -> Array:
        """The gradient of the input over the box, of the windows of the box alone."""
        return self._computed(self.first, box, fixed, g, self.g, box.windows, exact)

    def second_gradient(self, box: Box, fixed: Sequence[int]) -> Array:
        """The gradient of the gradient at the windows of the box."""
        return self._computed(self.second, box, fixed, None, self.v, box.inside, exact=True)

    def _computed(
        self,
        operator: Operator,
        box: Box,
        fixed: Sequence[int],
        arriving: Array | None,
        whole: Array | None,
        ranges: Sequence[tuple[int, int]],
        exact: bool,
    ) -> Array:
        rank = len(self.pool.shape)
        if arriving is None:
            arriving = self._cut(whole, ranges, fixed)
        if arriving is None:
            arriving = self._ones(ranges, rank)
        if self.argmax is not None:
            return self._by_index(operator, box, fixed, arriving, whole)
        x, y = self._cut(self.x, box.inside, fixed), self._cut(self.y, box.windows, fixed)
        shape = (x if x is not None else self._ones(box.inside, rank)).shape
        arrays = [self._role(operator, i.name, x, y, arriving) for i in operator.inputs if not i.host]
        if not exact and self.dtype.kind in "iu":
            arrays = [array.astype(np.float64) for array in arrays]
        kernel = self._plan(operator).kernel
        return np.asarray(kernel(backends.of(*arrays), self._pool(box, shape), self.policy, *arrays))

    @staticmethod
    def _role(operator: Operator, name: str, x: Array | None, y: Array | None, arriving: Array) -> Array:
        """The array for an input. The second derivative of an average is the average of what arrives."""
        arrives = name in GRADIENTS or _order(operator) == 0
        found = arriving if arrives else y if name == "orig_output" else x
        if found is None:
            raise Refused("no_result", f"the block has no {name}: run it first")
        return found

    def _by_index(
        self, operator: Operator, box: Box, fixed: Sequence[int], arriving: Array, whole: Array | None
    ) -> Array:
        """With stored indices, which need not lie in their window: each window hands over to the element it names."""
        assert self.argmax is not None
        first = operator is self.first
        named = np.ascontiguousarray(self._cut(self.argmax, box.windows, fixed)).reshape(-1)
        places = [np.unravel_index(index, self._index_shape) for index in named.tolist()]
        spatial = [tuple(int(place[self._index_axis(axis)]) for axis in self.spatial) for place in places]
        if not first:
            taken = [self._value(whole, fixed, at) for at in spatial]
            return np.array(taken, self.dtype).reshape(arriving.shape[:0] + self._out_shape(box))
        result = np.zeros([b - a for a, b in box.inside], self.dtype)
        for at, value in zip(spatial, arriving.reshape(-1), strict=True):
            local = tuple(i - a for i, (a, _) in zip(at, box.inside, strict=True))
            if all(0 <= i < n for i, n in zip(local, result.shape, strict=True)):
                result[local] += value
        return result.reshape(self._ones(box.inside, len(self.pool.shape)).shape)

    @property
    def _index_shape(self) -> tuple[int, ...]:
        whole = self.arguments.get("include_batch_in_index")
        return self.pool.shape if whole else self.pool.shape[1:]

    def _index_axis(self, axis: int) -> int:
        return axis - (len(self.pool.shape) - len(self._index_shape))

    def _value(self, array: Array | None, fixed: Sequence[int], at: tuple[int, ...]) -> Any:
        if array is None:
            return 1
        index = list(fixed)
        for axis, i in zip(self.spatial, at, strict=True):
            index[axis] = i
        return array[tuple(index)]

    def _out_shape(self, box: Box) -> tuple[int, ...]:
        return self._ones(box.windows, len(self.pool.shape)).shape

    def _plan(self, operator: Operator) -> Any:
        """The plan of an operator of the family; its kernel computes over any pool."""
        arriving = self.pool.out_shape if operator is self.first else self.pool.shape
        shapes: dict[str, Any] = dict.fromkeys((*INPUTS, *SHAPES), self.pool.shape)
        shapes |= dict.fromkeys(GRADIENTS, arriving) | {"orig_output": self.pool.out_shape}
        dtype = self.dtype.name
        given: dict[str, Any] = {}
        for parameter in operator.parameters:
            if parameter.name in SHAPES:
                given[parameter.name] = self.pool.shape
            elif parameter.name in shapes:
                given[parameter.name] = Tensor(shapes[parameter.name], dtype, parameter.name)
            elif self.arguments.get(parameter.name) is not None:
                given[parameter.name] = self.arguments[parameter.name]
        return operator.plan(**given)


def _geometry(operator: Operator, given: Mapping[str, Any], outputs: Mapping[str, Array], layout: str) -> Pool:
    tensors = {
        i.name: Tensor(tuple(given[i.name].shape), given[i.name].dtype.name, i.name)
        if not i.host and given[i.name] is not None
        else given[i.name]
        for i in operator.inputs
    }
    if any(value is None for value in tensors.values()):
        raise Refused("no_result", "the block's inputs have no values yet: run it first")
    attributes = {a.name: given[a.name] for a in operator.attributes if given[a.name] is not None}
    plan = operator.plan(**tensors, **attributes)
    if plan.pool is not None:
        return plan.pool
    rows, columns = (outputs.get(name) for name in ("row_pooling_sequence", "col_pooling_sequence"))
    if rows is None or columns is None:
        raise Refused("no_result", "the cells are drawn in the run: run the block first")
    x = next(tensor for tensor in tensors.values() if isinstance(tensor, Tensor))
    return Cells(np.asarray(rows), np.asarray(columns), bool(given["overlapping"]), layout).over(x)


def _first(given: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((given[name] for name in names if given.get(name) is not None), None)


# ---------------------------------------------------------------------------------------------------------------------
# Answers


def describe(pooling: Pooling, keys: Mapping[str, str | None]) -> Message:
    """The geometry, and which tensors there are."""
    pool = pooling.pool
    shapes = {"input": pool.shape, "output": pool.out_shape, "grad": pool.out_shape, "grad_out": pool.shape}
    shapes |= {"second_in": pool.shape, "second_out": pool.out_shape}
    there = {name for name in shapes if name not in ("input", "output")}
    there |= ({"input"} if pooling.x is not None else set()) | ({"output"} if pooling.y is not None else set())
    rows, columns = (pooling.arguments.get(f"{axis}_pooling_sequence") for axis in ("row", "col"))
    return {
        "operator": pooling.operator.name,
        "order": pooling.order,
        "kind": "max" if pooling.selects else "average",
        "rank": len(pool.windows),
        "layout": pooling.layout,
        "spatial": list(pooling.spatial),
        "policy": pooling.policy._asdict(),
        "tensors": {
            name: {"key": keys.get(name), "dims": list(shape), "dtype": str(pooling.dtype), "there": name in there}
            for name, shape in shapes.items()
        },
        "axes": [_axis(pooling, axis, w) for axis, w in zip(pooling.spatial, pool.windows, strict=True)],
        "upstream": "ones" if pooling.g is None else "page",
        "second": "ones" if pooling.v is None else "page",
        "fractional": rows is not None,
        "sequences": None if rows is None else {"row": _ints(rows), "col": _ints(columns)},
    }


def _axis(pooling: Pooling, axis: int, w: Windows) -> Message:
    if w.count > LONGEST_AXIS or w.size > LONGEST_AXIS:
        raise Refused("too_large", f"the window view shows axes of up to {LONGEST_AXIS} elements")
    origin = _nominal_origin(w)
    length = np.full(w.count, w.window) if w.regular else w.stop - w.start
    end = origin + length
    return {
        "letter": pooling.layout[axis], "axis": axis, "size": w.size, "count": w.count,
        "start": _ints(w.start), "stop": _ints(w.stop), "origin": _ints(origin), "end": _ints(end),
        "length": _ints(length), "dilation": w.dilation, "stride": w.stride if w.regular else None,
        "before": max(0, -int(origin.min())) if w.count else 0,
        "after": max(0, int(end.max()) - w.size) if w.count else 0, "regular": w.regular,
    }  # fmt: skip


def _nominal_origin(w: Windows) -> Array:
    return np.arange(w.count) * w.stride - w.before if w.regular else w.start


def planes(pooling: Pooling, ask: Message) -> tuple[Message, bytes]:
    """The planes side by side: input and output, and what the gradients do, at one index of all other axes."""
    fixed = _index(pooling, ask)
    axes = list(pooling.spatial)
    shown = axes[-2:]
    part = [(fixed[axis], fixed[axis] + 1) for axis in axes[:-2]]
    for axis, name in zip(shown, ("rows", "columns")[-len(shown) :], strict=True):
        a, b = region(ask.get(name), pooling.pool.shape[axis])
        part.append((a, min(b, a + LARGEST_SIDE)))
    box = pooling.box_of_part(part)
    deep = [_nearest(pooling, k, fixed[axis]) for k, axis in enumerate(axes[:-2])]
    window_part = [*((o, o + 1) for o in deep), *box.windows[len(axes) - len(shown) :]]
    wanted = ask.get("which") or ["input", "output", "grad", "grad_out", "second_in", "second_out"]
    answers, payload, offset = [], [], 0
    for name in wanted:
        values = _plane(pooling, str(name), box, part, window_part, fixed)
        if values is None:
            continue
        over_input = name in ("input", "grad_out", "second_in")
        squeezed = np.ascontiguousarray(values.reshape(_plane_shape(part if over_input else window_part)), np.float32)
        ranges = part if over_input else window_part
        answers.append({
            "name": name, "dtype": "float32", "shape": list(squeezed.shape), "offset": offset,
            "at": [a for a, _ in ranges[:-2]], "from": [a for a, _ in ranges[-2:]],
            "range": finite_range(squeezed),
        })  # fmt: skip
        payload.append(squeezed.tobytes())
        payload.append(b"\0" * (-squeezed.nbytes % 8))
        offset += squeezed.nbytes + len(payload[-1])
    rows, columns = ([0, 1], list(part[-1])) if len(shown) == 1 else (list(part[-2]), list(part[-1]))
    return {"planes": answers, "rows": rows, "columns": columns, "index": fixed, "windows": deep}, b"".join(payload)


def _plane(
    pooling: Pooling, name: str, box: Box, part: list[tuple[int, int]], window_part: list[tuple[int, int]],
    fixed: list[int],
) -> Array | None:  # fmt: skip
    within = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(part, box.inside, strict=True))
    among = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(window_part, box.windows, strict=True))
    if name == "input":
        return pooling._cut(pooling.x, part, fixed)
    if name == "output":
        return pooling._cut(pooling.y, window_part, fixed)
    rank = len(pooling.pool.shape)
    if name == "grad":
        found = pooling._cut(pooling.g, window_part, fixed)
        return found if found is not None else pooling._ones(window_part, rank)
    if name == "second_in":
        found = pooling._cut(pooling.v, part, fixed)
        return found if found is not None else pooling._ones(part, rank)
    if name == "grad_out":
        return pooling.gradient(box, fixed)[_spatially(pooling, within)]
    if name == "second_out":
        return pooling.second_gradient(box, fixed)[_spatially(pooling, among)]
    raise Refused("bad_request", f"there is no plane {name!r}")


def _spatially(pooling: Pooling, parts: tuple[slice, ...]) -> tuple[slice, ...]:
    index = [slice(None)] * len(pooling.pool.shape)
    for axis, part in zip(pooling.spatial, parts, strict=True):
        index[axis] = part
    return tuple(index)


def _plane_shape(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    lengths = [b - a for a, b in ranges[-2:]]
    return (lengths[0], lengths[1]) if len(lengths) == 2 else (1, lengths[0])


def _nearest(pooling: Pooling, axis: int, at: int) -> int:
    """The window whose middle is nearest to an input position."""
    starts, stops = pooling.spans[axis]
    return int(np.argmin(np.abs(starts + stops - 1 - 2 * at)))


def _index(pooling: Pooling, ask: Message) -> list[int]:
    """Where all axes stand, in coordinates of the input: `index`, or `batch`, `channel` and `at`."""
    shape = pooling.pool.shape
    index = ask.get("index")
    if index is None:
        index = [0] * len(shape)
        others = [axis for axis in range(len(shape)) if axis not in pooling.spatial]
        for axis in others:
            index[axis] = ask.get("batch", 0) if axis == 0 else ask.get("channel", 0)
        for axis, at in zip(pooling.spatial, ask.get("at") or (), strict=False):
            index[axis] = at
    return _checked_index(index, shape)


def _checked_index(index: object, shape: Sequence[int]) -> list[int]:
    if not (isinstance(index, list) and len(index) == len(shape) and all(type(i) is int for i in index)):
        raise Refused("bad_request", f"index {index!r} is not one number for each of {len(shape)} axes")
    if not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise Refused("bad_request", f"index {index} is outside {list(shape)}")
    return index


def cell(pooling: Pooling, ask: Message) -> Message:
    """One cell: of the output its window, of the input the windows that send gradient to it."""
    side = ask.get("side")
    if side == "output":
        return _output_cell(pooling, _checked_index(ask.get("index"), pooling.pool.out_shape))
    if side == "input":
        return _input_cell(pooling, _checked_index(ask.get("index"), pooling.pool.shape))
    raise Refused("bad_request", f"a cell is on the input or the output side, not on {side!r}")


def _output_cell(pooling: Pooling, index: list[int]) -> Message:
    at = [index[axis] for axis in pooling.spatial]
    box = pooling.box_of_window(at)
    count = math.prod(b - a for a, b in box.inside)
    origin = [int(_nominal_origin(w)[o]) for w, o in zip(pooling.pool.windows, at, strict=True)]
    end = [
        first + w.window if w.regular else stop
        for w, first, (_, stop) in zip(pooling.pool.windows, origin, box.inside, strict=True)
    ]
    nominal = math.prod(b - a for a, b in zip(origin, end, strict=True))
    answer: Message = {
        "side": "output", "index": index, "count": count, "padding": max(0, nominal - count),
        "window": _span(box) | {"origin": origin, "end": end},
        "value": _text(pooling.y, index), "grad": _text(pooling.g, index, "1"), "truncated": count > MOST_ELEMENTS,
    }  # fmt: skip
    answer["second"] = texts(pooling.second_gradient(box, index).reshape(-1)[:1])[0]
    elements = _elements(pooling, box, index) if count <= MOST_ELEMENTS else []
    return answer | {"elements": elements, "explain": _explain_window(pooling, answer, elements)}


def _span(box: Box) -> Message:
    return {"start": [a for a, _ in box.inside], "stop": [b for _, b in box.inside]}


def _elements(pooling: Pooling, box: Box, fixed: list[int]) -> list[Message]:
    shares = _shares(pooling, box, fixed).reshape(-1)
    cut = pooling._cut(pooling.x, box.inside, fixed)
    values = None if cut is None else cut.reshape(-1)
    shown = [None] * shares.size if values is None else texts(values)
    ties = _ties(pooling, values, shares)
    lengths = [b - a for a, b in box.inside]
    found = []
    for flat, (share, value) in enumerate(zip(shares.tolist(), shown, strict=True)):
        local = np.unravel_index(flat, lengths)
        place = [int(i) + a for i, (a, _) in zip(local, box.inside, strict=True)]
        chosen = pooling.selects and share != 0
        found.append(
            {"index": place, "value": value, "share": number(share), "chosen": chosen, "tie": bool(ties[flat])}
        )
    return found


def _shares(pooling: Pooling, box: Box, fixed: list[int]) -> Array:
    """Which part of the window's gradient each of its elements gets."""
    kind = np.float64 if pooling.dtype.kind in "iu" else pooling.dtype
    one = pooling._ones(box.windows, len(pooling.pool.shape), kind)
    return pooling.gradient(box, fixed, one, exact=False).astype(np.float64)


def _ties(pooling: Pooling, values: Array | None, shares: Array) -> Array:
    """Which elements are as large as the one that was chosen."""
    if values is None or not pooling.selects or not shares.any():
        return np.zeros(shares.size, bool)
    winner = values[int(np.flatnonzero(shares)[0])]
    equal = values != values if winner != winner else values == winner
    return equal if int(equal.sum()) > 1 else np.zeros(shares.size, bool)


def _input_cell(pooling: Pooling, index: list[int]) -> Message:
    at = [(index[axis], index[axis] + 1) for axis in pooling.spatial]
    box = pooling.box_of_part(at)
    ranges = [range(a, b) for a, b in box.windows]
    count = math.prod(map(len, ranges))
    found = []
    for o in np.ndindex(*map(len, ranges)) if count <= MOST_WINDOWS else ():
        window = [r[i] for r, i in zip(ranges, o, strict=True)]
        sent = _sent(pooling, window, index)
        if sent is not None:
            found.append(sent)
    touched = pooling.gradient(box, index) if count else None
    local = tuple(slice(a - low, a - low + 1) for (a, _), (low, _) in zip(at, box.inside, strict=True))
    total = "0" if touched is None else texts(touched[_spatially(pooling, local)].reshape(-1))[0]
    answer: Message = {
        "side": "input", "index": index, "value": _text(pooling.x, index), "windows": found, "count": count,
        "total": total, "truncated": count > MOST_WINDOWS,
    }  # fmt: skip
    return answer | {"explain": _explain_element(pooling, answer)}


def _sent(pooling: Pooling, window: list[int], index: list[int]) -> Message | None:
    """What one window sends to an element; None if the element is not in it."""
    box = pooling.box_of_window(window)
    place = [index[axis] for axis in pooling.spatial]
    if not all(a <= i < b for i, (a, b) in zip(place, box.inside, strict=True)):
        return None
    local = tuple(slice(i - a, i - a + 1) for i, (a, _) in zip(place, box.inside, strict=True))
    out_index = list(index)
    for axis, o in zip(pooling.spatial, window, strict=True):
        out_index[axis] = o
    share = float(_shares(pooling, box, out_index)[_spatially(pooling, local)].reshape(()))
    sends = pooling.gradient(box, out_index)[_spatially(pooling, local)].reshape(-1)
    return {
        "index": out_index, **_span(box),
        "share": number(share), "grad": _text(pooling.g, out_index, "1"), "sends": texts(sends)[0],
        "chosen": pooling.selects and share != 0,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Sentences


def _explain_window(pooling: Pooling, answer: Message, elements: list[Message]) -> str:
    window = answer["window"]
    spans = ", ".join(
        f"{pooling.layout[axis]} {a}" if b - a == 1 else f"{pooling.layout[axis]} {a} to {b - 1}"
        for axis, a, b in zip(pooling.spatial, window["start"], window["stop"], strict=True)
    )
    said = f"Reads {spans}: {_count(answer['count'], 'element')}"
    said += f", and {_count(answer['padding'], 'cell')} of padding that take no part. " if answer["padding"] else ". "
    if not pooling.selects:
        return said + f"Each gets 1/{answer['count']} of the window's gradient."
    chosen = [element for element in elements if element["chosen"]]
    if not chosen:
        return said + ("" if answer["truncated"] else "No element is chosen, so no gradient goes back.")
    ties = sum(element["tie"] for element in elements)
    if len(chosen) > 1:
        each = "the whole gradient" if pooling.policy.ties == "all" else f"1/{len(chosen)} of the gradient"
        return said + f"{len(chosen)} elements are tied, and each gets {each}."
    place = f"({', '.join(map(str, chosen[0]['index']))})"
    if ties:
        return said + f"{ties} elements are tied; the first of them in scan order, at {place}, is chosen."
    return said + f"The element at {place} is chosen."


def _explain_element(pooling: Pooling, answer: Message) -> str:
    if answer["truncated"]:
        return f"{answer['count']} windows read this element: too many to list."
    reading = len(answer["windows"])
    if not reading:
        return "No window reads this element, so its gradient is 0."
    readers = f"{_count(reading, 'window')} read{'s' * (reading == 1)}"
    sending = sum(window["share"] != 0 for window in answer["windows"])
    if not pooling.selects:
        return f"{readers} this element; its gradient is {answer['total']}."
    if not sending:
        return f"{readers} this element, but none chose it: its gradient is 0."
    return f"{sending} of {_count(reading, 'window')} chose this element; its gradient is {answer['total']}."


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _text(array: Array | None, index: Sequence[int], otherwise: str | None = None) -> str | None:
    return otherwise if array is None else texts(np.asarray(array[tuple(index)]).reshape(1))[0]


def _ints(values: Any) -> list[int]:
    return [int(value) for value in np.asarray(values).tolist()]
