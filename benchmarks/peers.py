"""One class per library that can pool: each turns a cell into a call without arguments, or None if it cannot do it.

Every peer runs in its best configuration: inputs already its own tensors in the layout it likes best, compiled where it
compiles, the lowest-level entry it documents. With `reuse` the output goes into memory that exists already, where the
library has a way to say so; elsewhere the process's allocator is tuned to the same effect (see machine.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from textwrap import shorten
from time import perf_counter
from typing import Any

import numpy as np

from .cases import Cell
from .data import Array, Data, aligned, dtype_of, last


@dataclass(frozen=True)
class Call:
    """`run` does the work; `fetch` turns what it returned into a channels-last array, or is None if not comparable."""

    run: Callable[[], Any]
    fetch: Callable[[Any], Array] | None


class Peer:
    """A library in one configuration."""

    name: str

    @cached_property
    def refused(self) -> dict[str, str]:
        """What it raised where it has the operator, but not for this case: cell name -> exception."""
        return {}

    def call(self, cell: Cell, data: Data, reuse: bool) -> Call | None:
        """The call for a cell, warmed up and compiled; None if this library cannot do it."""
        method = getattr(self, cell.operator, None)
        if method is None or not self.supports(cell):
            return None
        try:
            call: Call | None = method(cell, data, reuse)
            if call is not None:
                call.run()
        except Exception as error:  # a missing kernel shows up in a different exception in every library
            said = str(error).strip() or "nothing"
            self.refused[cell.name] = f"{type(error).__name__}: {shorten(said.splitlines()[0], 100)}"
            return None
        return call

    def supports(self, cell: Cell) -> bool:
        return cell.case.ratio is None


class TensorFlow(Peer):
    """Eager raw ops on channels-last tensors; with or without oneDNN is decided when TensorFlow is imported."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        import tensorflow as tf

        self.tf = tf
        if not tf.config.threading.get_intra_op_parallelism_threads():
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(1)

    def supports(self, cell: Cell) -> bool:
        return True

    def op(self, cell: Cell, name: str, **arguments: Any) -> Call:
        """The raw op; {D} in its name is 3D for volumes."""
        case = cell.case
        function = getattr(self.tf.raw_ops, name.replace("{D}", "3D" if case.rank == 3 else ""))
        return Call(partial(function, **arguments), np.asarray)

    def geometry(self, cell: Cell) -> dict[str, Any]:
        case = cell.case
        return {"ksize": [1, *case.window, 1], "strides": [1, *case.stride, 1], "padding": case.padding}

    def tensors(self, data: Data, **names: str) -> dict[str, Any]:
        return {argument: self.tf.constant(data.array(name)) for argument, name in names.items()}

    def max_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        if cell.case.ratio:
            return self._fractional_forward("FractionalMaxPool", cell, data)
        return self.op(cell, "MaxPool{D}", **self.tensors(data, input="x"), **self.geometry(cell))

    def max_forward_choice(self, cell: Cell, data: Data, reuse: bool) -> Call | None:
        if cell.case.rank != 2:
            return None
        call = self.op(cell, "MaxPoolWithArgmax", **self.tensors(data, input="x"), **self.geometry(cell))
        return Call(call.run, lambda result: np.asarray(result.output))

    def max_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        if cell.case.ratio:
            tensors = self.tensors(data, orig_input="x", orig_output="y", out_backprop="g")
            return self.op(cell, "FractionalMaxPoolGrad", **tensors, **self._sequences(cell, data))
        tensors = self.tensors(data, orig_input="x", orig_output="y", grad="g")
        return self.op(cell, "MaxPool{D}Grad", **tensors, **self.geometry(cell))

    def max_gradgrad(self, cell: Cell, data: Data, reuse: bool) -> Call | None:
        if cell.case.ratio:
            return None
        tensors = self.tensors(data, orig_input="x", orig_output="y", grad="v")
        return self.op(cell, "MaxPool{D}GradGrad", **tensors, **self.geometry(cell))

    def max_grad_choice(self, cell: Cell, data: Data, reuse: bool) -> Call | None:
        if cell.case.rank != 2:
            return None
        tensors = self.tensors(data, input="x", grad="g")
        argmax = self.tf.raw_ops.MaxPoolWithArgmax(input=tensors["input"], **self.geometry(cell)).argmax
        return self.op(cell, "MaxPoolGradWithArgmax", argmax=argmax, **tensors, **self.geometry(cell))

    def avg_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        if cell.case.ratio:
            return self._fractional_forward("FractionalAvgPool", cell, data)
        argument = "input" if cell.case.rank == 3 else "value"
        return self.op(cell, "AvgPool{D}", **self.tensors(data, **{argument: "x"}), **self.geometry(cell))

    def avg_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        if cell.case.ratio:
            shape = self.tf.constant(cell.case.shape, self.tf.int64)
            tensors = self.tensors(data, out_backprop="g")
            arguments = {"orig_input_tensor_shape": shape, **tensors, **self._sequences(cell, data)}
            return self.op(cell, "FractionalAvgPoolGrad", **arguments)
        shape = self.tf.constant(cell.case.shape, self.tf.int32)
        arguments = {"orig_input_shape": shape, **self.tensors(data, grad="g")}
        return self.op(cell, "AvgPool{D}Grad", **arguments, **self.geometry(cell))

    def _fractional_forward(self, name: str, cell: Cell, data: Data) -> Call:
        call = self.op(cell, name, **self.tensors(data, value="x"), **fractional_attributes(cell))
        return Call(call.run, lambda result: np.asarray(result.output))

    def _sequences(self, cell: Cell, data: Data) -> dict[str, Any]:
        rows, cols = (self.tf.constant(sequence) for sequence in data.sequences())
        return {"row_pooling_sequence": rows, "col_pooling_sequence": cols, "overlapping": cell.case.overlapping}


class TensorFlowGraph(Peer):
    """Forward and gradient in one `tf.function`: the only way to TensorFlow's oneDNN max gradient."""

    def __init__(self, eager: TensorFlow) -> None:
        self.name = "TF graph"
        self.eager = eager

    def supports(self, cell: Cell) -> bool:
        return cell.case.ratio is None and cell.case.dtype in ("float32", "bfloat16")

    def max_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        tf, geometry = self.eager.tf, self.eager.geometry(cell)
        kind = "MaxPool3D" if cell.case.rank == 3 else "MaxPool"
        forward, gradient = getattr(tf.raw_ops, kind), getattr(tf.raw_ops, f"{kind}Grad")

        def both(x: Any, g: Any) -> Any:
            return gradient(orig_input=x, orig_output=forward(input=x, **geometry), grad=g, **geometry)

        tensors = self.eager.tensors(data, x="x", g="g")
        return Call(partial(tf.function(both), tensors["x"], tensors["g"]), np.asarray)


class Torch(Peer):
    """aten operators called directly, in one memory format; choices are PyTorch's int64 indices."""

    def __init__(self, layout: str, threads: int) -> None:
        self.name = "torch" if layout == "first" else "torch cl"
        self.layout = layout
        import torch

        self.torch, self.aten = torch, torch.ops.aten
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def supports(self, cell: Cell) -> bool:
        case = cell.case
        representable = all(before == after or before == 0 for before, after in case.pads)
        return case.ratio is None and representable and (self.layout == "first" or case.shape[-1] > 1)

    def tensor(self, data: Data, name: str) -> Any:
        """The array as N, C, spatial; in channels_last memory format the bytes lie channels-last."""
        array = data.array(name, self.layout)
        if array.dtype.name == "bfloat16":
            tensor = self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(array)
        return tensor if self.layout == "first" else tensor.movedim(-1, 1)

    def fetch(self, result: Any) -> Array:
        if result.dtype == self.torch.bfloat16:
            view = result.contiguous().view(self.torch.int16).numpy()
            return last(view.view(dtype_of("bfloat16")))
        return last(result.numpy())

    def geometry(self, cell: Cell) -> tuple[list[int], list[int], list[int], bool]:
        """Window, stride, padding, ceil_mode: padding only after the end is what ceil_mode gives."""
        case = cell.case
        ceil = any(before != after for before, after in case.pads)
        return list(case.window), list(case.stride), [before for before, _ in case.pads], ceil

    def _max(self, cell: Cell, data: Data, reuse: bool) -> Callable[[], Any]:
        """Forward with indices."""
        window, stride, padding, ceil = self.geometry(cell)
        arguments = (self.tensor(data, "x"), window, stride, padding, [1] * cell.case.rank, ceil)
        op = getattr(self.aten, f"max_pool{cell.case.rank}d_with_indices")
        if not reuse:
            return partial(op.default, *arguments)
        out, indices = op.default(*arguments)
        return partial(op.out, *arguments, out=out, indices=indices)

    def _put(self, cell: Cell, data: Data, reuse: bool) -> Callable[..., Any]:
        """The gradient from indices."""
        window, stride, padding, ceil = self.geometry(cell)
        x = self.tensor(data, "x")
        arguments = (self.tensor(data, "g"), x, window, stride, padding, [1] * cell.case.rank, ceil)
        op = getattr(self.aten, f"max_pool{cell.case.rank}d_with_indices_backward")
        if not reuse:
            return partial(op.default, *arguments)
        return partial(op.grad_input, *arguments, grad_input=self.torch.empty_like(x))

    def _take(self, cell: Cell, data: Data, reuse: bool) -> tuple[Callable[[Any], Any], Callable[[Any], Array]]:
        """Gathers v at the indices, along the memory order of this format."""
        case, gather = cell.case, self.torch.gather
        batch, count, channels = case.shape[0], prod(case.out_spatial), case.shape[-1]
        v = self.tensor(data, "v")
        if self.layout == "first":
            flat = v.flatten(2)
            out = flat.new_empty(batch, channels, count) if reuse else None
            run = lambda indices: gather(flat, 2, indices.flatten(2), out=out)  # noqa: E731
            return run, lambda result: self.fetch(result.unflatten(2, case.out_spatial))
        flat = v.movedim(1, -1).flatten(1, -2)
        out = flat.new_empty(batch, count, channels) if reuse else None
        run = lambda indices: gather(flat, 1, indices.movedim(1, -1).flatten(1, -2), out=out)  # noqa: E731
        return run, lambda result: self.fetch(result.unflatten(1, case.out_spatial).movedim(-1, 1))

    def max_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        window, stride, padding, ceil = self.geometry(cell)
        if cell.case.rank == 2 and cell.case.shape[1] == 1 and self.layout == "first":
            x = self.tensor(data, "x").flatten(0, -2)
            one = partial(self.torch.max_pool1d, x, window[-1:], stride[-1:], padding[-1:], 1, ceil)
            return Call(one, lambda result: self.fetch(result[None, None]))
        if reuse:
            return Call(self._max(cell, data, reuse), lambda result: self.fetch(result[0]))
        op = self.torch.max_pool3d if cell.case.rank == 3 else self.torch.max_pool2d
        return Call(partial(op, self.tensor(data, "x"), window, stride, padding, 1, ceil), self.fetch)

    def max_forward_choice(self, cell: Cell, data: Data, reuse: bool) -> Call:
        return Call(self._max(cell, data, reuse), lambda result: self.fetch(result[0]))

    def max_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        forward, put = self._max(cell, data, reuse), self._put(cell, data, reuse)
        if reuse:
            return Call(lambda: put(indices=forward()[1]), self.fetch)
        return Call(lambda: put(forward()[1]), self.fetch)

    def max_grad_choice(self, cell: Cell, data: Data, reuse: bool) -> Call:
        indices = self._max(cell, data, False)()[1]
        put = self._put(cell, data, reuse)
        return Call(partial(put, indices=indices) if reuse else partial(put, indices), self.fetch)

    def max_gradgrad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        forward = self._max(cell, data, reuse)
        take, fetch = self._take(cell, data, reuse)
        return Call(lambda: take(forward()[1]), fetch)

    def max_gradgrad_choice(self, cell: Cell, data: Data, reuse: bool) -> Call:
        indices = self._max(cell, data, False)()[1]
        take, fetch = self._take(cell, data, reuse)
        return Call(partial(take, indices), fetch)

    def avg_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        op = getattr(self.aten, f"avg_pool{cell.case.rank}d")
        arguments = (self.tensor(data, "x"), *self.geometry(cell), False, None)
        if not reuse:
            return Call(partial(op.default, *arguments), self.fetch)
        return Call(partial(op.out, *arguments, out=op.default(*arguments)), self.fetch)

    def avg_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        op = getattr(self.aten, f"avg_pool{cell.case.rank}d_backward")
        x = self.tensor(data, "x")
        arguments = (self.tensor(data, "g"), x, *self.geometry(cell), False, None)
        if not reuse:
            return Call(partial(op.default, *arguments), self.fetch)
        return Call(partial(op.grad_input, *arguments, grad_input=self.torch.empty_like(x)), self.fetch)


class Jax(Peer):
    """`lax.reduce_window`, its vjp and jvp, jitted, in one layout."""

    def __init__(self, layout: str) -> None:
        self.name = "JAX"
        self.layout = layout
        import jax

        self.jax: Any = jax
        self.jax.config.update("jax_enable_x64", True)

    def supports(self, cell: Cell) -> bool:
        case = cell.case
        differentiable = case.dtype != "uint8" or cell.operator == "max_forward"
        return case.ratio is None and differentiable and (self.layout == "last" or case.shape[-1] > 1)

    def windows(self, cell: Cell) -> tuple[Any, Any, Any]:
        """Window, stride and padding with those of batch and channel around them."""
        case = cell.case
        triple = ((case.window, 1), (case.stride, 1), (case.pads, (0, 0)))
        if self.layout == "last":
            return tuple((outer, *inner, outer) for inner, outer in triple)  # type: ignore[return-value]
        return tuple((outer, outer, *inner) for inner, outer in triple)  # type: ignore[return-value]

    def maximum(self, cell: Cell) -> Callable[[Any], Any]:
        lax, dtype, windows = self.jax.lax, dtype_of(cell.case.dtype), self.windows(cell)
        lowest = np.array(0 if dtype.kind == "u" else -np.inf, dtype)
        return lambda x: lax.reduce_window(x, lowest, lax.max, *windows)

    def average(self, cell: Cell, data: Data) -> Callable[[Any], Any]:
        lax, windows = self.jax.lax, self.windows(cell)
        zero = np.zeros((), dtype_of(cell.case.dtype))
        shape = data.array("x", self.layout).shape
        ones = np.ones((1, *shape[1:-1], 1) if self.layout == "last" else (1, 1, *shape[2:]), zero.dtype)
        share = 1 / lax.reduce_window(ones, zero, lax.add, *windows)
        return lambda x: lax.reduce_window(x, zero, lax.add, *windows) * share

    def compiled(self, function: Callable[..., Any], data: Data, *names: str) -> Call:
        arguments = [self.jax.device_put(data.array(name, self.layout)) for name in names]
        jitted, ready = self.jax.jit(function), self.jax.block_until_ready
        fetch = np.asarray if self.layout == "last" else lambda result: last(np.asarray(result))
        return Call(lambda: ready(jitted(*arguments)), fetch)

    def max_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        return self.compiled(self.maximum(cell), data, "x")

    def max_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        vjp, maximum = self.jax.vjp, self.maximum(cell)
        return self.compiled(lambda x, g: vjp(maximum, x)[1](g)[0], data, "x", "g")

    def max_gradgrad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        jvp, maximum = self.jax.jvp, self.maximum(cell)
        return self.compiled(lambda x, v: jvp(maximum, (x,), (v,))[1], data, "x", "v")

    def avg_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        return self.compiled(self.average(cell, data), data, "x")

    def avg_grad(self, cell: Cell, data: Data, reuse: bool) -> Call:
        x = data.array("x", self.layout)
        transposed = self.jax.linear_transpose(self.average(cell, data), self.jax.ShapeDtypeStruct(x.shape, x.dtype))
        return self.compiled(lambda g: transposed(g)[0], data, "g")


class Quickest(Peer):
    """Several configurations of one library; for each cell the quicker one runs."""

    def __init__(self, *peers: Peer) -> None:
        self.name = peers[0].name
        self.peers = peers

    @cached_property
    def refused(self) -> dict[str, str]:
        return self.peers[0].refused

    def call(self, cell: Cell, data: Data, reuse: bool) -> Call | None:
        found: list[tuple[float, Call]] = []
        for peer in self.peers:
            call = peer.call(cell, data, reuse)
            if call is not None:
                start = perf_counter()
                call.run()
                found.append((perf_counter() - start, call))
        return min(found, key=lambda pair: pair[0])[1] if found else None


class OnnxRuntime(Peer):
    """A session of one MaxPool or AveragePool node, channels-first, inputs bound to the device."""

    OPSET = 18
    """The newest whose averages run on its quick kernels: from 19 on they go element by element."""

    def __init__(self, threads: int) -> None:
        self.name = "ONNX RT"
        import onnx
        import onnxruntime

        self.onnx, self.runtime = onnx, onnxruntime
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1
        self.options.log_severity_level = 4

    def supports(self, cell: Cell) -> bool:
        return cell.case.ratio is None and cell.case.dtype != "bfloat16"

    def session(
        self, kind: str, cell: Cell, data: Data, reuse: bool, outputs: tuple[str, ...] = ("y",), **more: Any
    ) -> Call:
        helper, case = self.onnx.helper, cell.case
        x = data.array("x", "first")
        pads = [before for before, _ in case.pads] + [after for _, after in case.pads]
        window, stride = list(case.window), list(case.stride)
        node = helper.make_node(kind, ["x"], outputs, kernel_shape=window, strides=stride, pads=pads, **more)
        dtypes = {"x": x.dtype, "y": x.dtype, "indices": np.dtype(np.int64)}
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtypes[name]), None)
            for name in ("x", *outputs)
        ]
        graph = helper.make_graph([node], "pool", values[:1], values[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.OPSET)], ir_version=8)
        session = self.runtime.InferenceSession(
            model.SerializeToString(), self.options, providers=["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", self.runtime.OrtValue.ortvalue_from_numpy(x))
        for name in outputs:
            if reuse:
                out = aligned(np.zeros((case.shape[0], case.shape[-1], *case.out_spatial), dtypes[name]))
                binding.bind_ortvalue_output(name, self.runtime.OrtValue.ortvalue_from_numpy(out))
            else:
                binding.bind_output(name)
        return Call(partial(session.run_with_iobinding, binding), lambda _: last(binding.copy_outputs_to_cpu()[0]))

    def max_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        return self.session("MaxPool", cell, data, reuse)

    def max_forward_choice(self, cell: Cell, data: Data, reuse: bool) -> Call:
        return self.session("MaxPool", cell, data, reuse, ("y", "indices"))

    def avg_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        return self.session("AveragePool", cell, data, reuse, count_include_pad=0)


class SciPy(Peer):
    """`scipy.ndimage` filters on one-channel arrays with stride 1; edges of averages follow another rule, same work."""

    def __init__(self) -> None:
        self.name = "SciPy"
        from scipy import ndimage

        self.filters = ndimage

    def supports(self, cell: Cell) -> bool:
        case = cell.case
        return case.group == "large" and case.shape[0] == case.shape[-1] == 1 and set(case.stride) == {1}

    def max_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        return self._filter("maximum_filter", cell, data, reuse, "nearest")

    def avg_forward(self, cell: Cell, data: Data, reuse: bool) -> Call:
        return Call(self._filter("uniform_filter", cell, data, reuse, "constant").run, None)

    def _filter(self, name: str, cell: Cell, data: Data, reuse: bool, mode: str) -> Call:
        case = cell.case
        x = data.array("x").reshape([n for n in case.spatial if n > 1])
        filter = getattr(self.filters, name if x.ndim > 1 else f"{name}1d")
        output = np.empty_like(x) if reuse else None
        run = partial(filter, x, size=case.window[-1], mode=mode, output=output)
        return Call(run, lambda result: np.asarray(result if result is not None else output).reshape(case.out_shape))


def fractional_attributes(cell: Cell, layout: str = "last") -> dict[str, Any]:
    """Attributes of the fractional forward ops; the seeds make the sequence the same for everybody."""
    ratio = cell.case.ratio or ()
    return {
        "pooling_ratio": [1.0, *ratio, 1.0] if layout == "last" else [1.0, 1.0, *ratio],
        "pseudo_random": True,
        "overlapping": cell.case.overlapping,
        "deterministic": True,
        "seed": 3,
        "seed2": 4,
    }


def available(threads: int) -> list[Peer]:
    """Every peer whose library is installed, in the order of the table's columns."""
    makers: list[Callable[[], list[Peer]]] = [
        lambda: _tensorflow(threads),
        lambda: [Torch("first", threads), Torch("last", threads)],
        lambda: [Quickest(Jax("last"), Jax("first"))],
        lambda: [OnnxRuntime(threads)],
        lambda: [SciPy()],
    ]
    peers: list[Peer] = []
    for make in makers:
        try:
            peers += make()
        except ImportError as error:
            print(f"{error}: that peer does not take part (`make bench` installs all of them)", file=sys.stderr)
    return peers


def _tensorflow(threads: int) -> list[Peer]:
    eager = TensorFlow("TF", threads)
    return [eager, TensorFlowGraph(eager)]
