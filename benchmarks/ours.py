"""poolgrad as a contender: raw ops with TensorFlow's signatures, and the maps put and take from a stored choice.

With `reuse` the kernels behind the raw ops are called with `out`, which TensorFlow's signatures do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import poolgrad as pg
from poolgrad import backends, maps, windows

from .cases import Cell
from .data import Array, Data, last
from .peers import Call, Peer, fractional_attributes
from .records import OURS

kernels = backends.of(np.empty(0))
FORMATS = {("last", 2): "NHWC", ("first", 2): "NCHW", ("last", 3): "NDHWC", ("first", 3): "NCDHW"}


class Poolgrad(Peer):
    """One layout of poolgrad."""

    def __init__(self, layout: str, threads: int) -> None:
        self.name = OURS + layout
        self.layout = layout
        pg.set_num_threads(threads)

    def supports(self, cell: Cell) -> bool:
        return True

    def fetch(self, result: Any) -> Array:
        array = np.asarray(result)
        return array if self.layout == "last" else last(array)

    def pool(self, cell: Cell, data: Data) -> windows.Pool:
        case = cell.case
        if case.ratio:
            listed = zip(case.spatial, data.sequences(), strict=True)
            axes = [windows.fractional(n, sequence, case.overlapping) for n, sequence in listed]
        else:
            sizes = zip(case.spatial, case.window, case.stride, strict=True)
            axes = [windows.regular(n, k, s, case.padding) for n, k, s in sizes]
        return windows.Pool.of(data.array("x", self.layout).shape, FORMATS[self.layout, case.rank], tuple(axes))

    def op(self, cell: Cell, data: Data, name: str, **arrays: str) -> Callable[..., Any]:
        """A raw op on the named arrays; {D} in its name is 3D for volumes."""
        case = cell.case
        function = getattr(pg.raw_ops, name.replace("{D}", "3D" if case.rank == 3 else ""))
        arguments: dict[str, Any] = {key: data.array(value, self.layout) for key, value in arrays.items()}
        arguments["data_format"] = FORMATS[self.layout, case.rank]
        if not case.ratio:
            around = (1, *case.window, 1), (1, *case.stride, 1)
            ordered = around if self.layout == "last" else tuple((1, *sizes[:-1]) for sizes in around)
            arguments |= {"ksize": list(ordered[0]), "strides": list(ordered[1]), "padding": case.padding}
        return partial(function, **arguments)

    def sequences(self, cell: Cell, data: Data) -> dict[str, Any]:
        rows, cols = data.sequences()
        return {"row_pooling_sequence": rows, "col_pooling_sequence": cols, "overlapping": cell.case.overlapping}

    def empty(self, data: Data, like: str) -> Array:
        """Memory for a result that has been touched."""
        wanted = data.array(like, self.layout)
        made = kernels.empty(wanted.shape, wanted.dtype)
        made[...] = 0
        return made

    def max_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        if cell.case.ratio:
            return self._fractional("FractionalMaxPool", cell, data)
        if reuse:
            x, out = data.array("x", self.layout), self.empty(data, "g")
            return Call(partial(kernels.maximum, self.pool(cell, data), x, "propagate", out=out), self.fetch)
        return Call(self.op(cell, data, "MaxPool{D}", input="x"), self.fetch)

    def max_forward_choice(self, cell: Cell, data: Data, reuse: bool) -> Call:
        run = partial(kernels.maximum_and_choice, self.pool(cell, data), data.array("x", self.layout), "propagate")
        if reuse:
            y, choice = run()
            run = partial(run, out=y, choice_out=choice)
        return Call(run, lambda result: self.fetch(result[0]))

    def max_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        if cell.case.ratio:
            op = self.op(cell, data, "FractionalMaxPoolGrad", orig_input="x", orig_output="y", out_backprop="g")
            return Call(partial(op, **self.sequences(cell, data)), self.fetch)
        if reuse:
            x, g = data.array("x", self.layout), data.array("g", self.layout)
            equal_to = data.array("y", self.layout) if cell.case.rank == 3 else None
            run = partial(kernels.max_put, self.pool(cell, data), x, g, "first", "propagate")
            return Call(partial(run, equal_to=equal_to, out=self.empty(data, "x")), self.fetch)
        return Call(self.op(cell, data, "MaxPool{D}Grad", orig_input="x", orig_output="y", grad="g"), self.fetch)

    def max_gradgrad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        if cell.case.ratio:
            op = self.op(cell, data, "FractionalMaxPoolGradGrad", orig_input="x", orig_output="y", grad="v")
            return Call(partial(op, **self.sequences(cell, data)), self.fetch)
        if reuse:
            x, v, y = (data.array(name, self.layout) for name in ("x", "v", "y"))
            run = partial(kernels.max_take, self.pool(cell, data), x, v, "first", "propagate")
            return Call(partial(run, equal_to=y, out=self.empty(data, "g")), self.fetch)
        return Call(self.op(cell, data, "MaxPool{D}GradGrad", orig_input="x", orig_output="y", grad="v"), self.fetch)

    def max_grad_choice(self, cell: Cell, data: Data, reuse: bool) -> Call:
        out = self.empty(data, "x") if reuse else None
        return self._from_choice(maps.put, "g", out, cell, data)

    def max_gradgrad_choice(self, cell: Cell, data: Data, reuse: bool) -> Call:
        out = self.empty(data, "g") if reuse else None
        return self._from_choice(maps.take, "v", out, cell, data)

    def avg_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        if cell.case.ratio:
            return self._fractional("FractionalAvgPool", cell, data)
        if reuse:
            x, out = data.array("x", self.layout), self.empty(data, "g")
            return Call(partial(kernels.mean, self.pool(cell, data), x, out=out), self.fetch)
        argument = "input" if cell.case.rank == 3 else "value"
        return Call(self.op(cell, data, "AvgPool{D}", **{argument: "x"}), self.fetch)

    def avg_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        shape = data.array("x", self.layout).shape
        if cell.case.ratio:
            op = self.op(cell, data, "FractionalAvgPoolGrad", out_backprop="g")
            arguments = {"orig_input_tensor_shape": np.array(shape, np.int64), **self.sequences(cell, data)}
            return Call(partial(op, **arguments), self.fetch)
        if reuse:
            g, out = data.array("g", self.layout), self.empty(data, "x")
            return Call(partial(kernels.spread, self.pool(cell, data), g, out=out), self.fetch)
        op = self.op(cell, data, "AvgPool{D}Grad", grad="g")
        return Call(partial(op, orig_input_shape=np.array(shape, np.int32)), self.fetch)

    def _fractional(self, name: str, cell: Cell, data: Data) -> Call:
        run = partial(self.op(cell, data, name, value="x"), **fractional_attributes(cell, self.layout))
        return Call(run, lambda result: self.fetch(result.output))

    def _from_choice(self, map: Callable[..., Any], values: str, out: Array | None, cell: Cell, data: Data) -> Call:
        pool = self.pool(cell, data)
        choice = maps.choose(pool, data.array("x", self.layout))
        return Call(partial(map, pool, data.array(values, self.layout), choice, out=out), self.fetch)
