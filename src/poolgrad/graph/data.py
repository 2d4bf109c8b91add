"""Blocks that bring data onto a page and take it away: Const, Placeholder, random numbers, files, ClientSession.

Random numbers are drawn by NumPy from the seeds alone, so a page gives the same numbers on every engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import checks
from ..errors import InvalidArgument
from .arithmetic import like
from .blocktypes import (
    Call,
    Dtype,
    FileName,
    FloatType,
    HostShape,
    Ints,
    Numbers,
    OneFloat,
    OneInt,
    Tensor,
    Tensors,
    WholeType,
    Word,
    block,
)
from .files import Files, expect_storable
from .reduction import expect_sizes
from .values import MOST_KNOWN, Spec, Values, numpy_dtype

# ---------------------------------------------------------------------------------------------------------------------
# Const, Placeholder


class _Nothing(Values):
    """The value of a constant that has none yet."""


_NOTHING = _Nothing(np.zeros(0))


def _const(call: Call) -> Spec:
    value, file, dtype, shape = call["value"], call["file"], call["dtype"], call["shape"]
    expect_sizes(shape, "shape")
    if file:
        if value.array.size:
            raise InvalidArgument("give either value or file", argument="file", given=file)
        found = _files(call).describe(file)
        return Spec(found.shape, found.dtype)
    if value is _NOTHING:
        raise InvalidArgument("value is missing", argument="value")
    if shape and value.array.size == 1:
        value.cast(dtype)
        return Spec(shape, dtype)
    numbers = value.cast(dtype, shape)
    short = numbers.ndim <= 1 and numbers.size <= MOST_KNOWN and numbers.dtype.kind in "iu"
    return Spec(numbers.shape, dtype, tuple(numbers.reshape(-1).tolist()) if short else None)


def _files(call: Call) -> Files:
    return call.files or Files(None)


@block("Data", _const, reads="file")
def Const(
    xp: Any, files: Files, value: Numbers = _NOTHING, dtype: Dtype = "float32", shape: Ints = (), file: FileName = ""
) -> Any:
    """A tensor that does not change: numbers on the page, or an array in a file beside it."""
    return files.read(file) if file else value.cast(dtype, shape)


def _placeholder(call: Call) -> Spec:
    shape = call["shape"]
    if any(n < -1 for n in shape):
        raise InvalidArgument(f"shape is {list(shape)}, expected lengths, or -1 where it is open", argument="shape")
    return Spec(tuple(None if n == -1 else n for n in shape) if shape else None, call["dtype"])


@block("Data", _placeholder)
def Placeholder(xp: Any, dtype: Dtype, shape: Ints = ()) -> Any:
    """A tensor that is given when the page is run: a feed."""
    raise InvalidArgument("nothing was fed to this placeholder")


# ---------------------------------------------------------------------------------------------------------------------
# Random numbers


def _random(call: Call) -> Spec:
    shape = call.ints("shape")
    if shape is not None:
        expect_sizes(shape, "shape")
    for name in ("seed", "seed2"):
        if not -(2**63) <= call[name] < 2**63:
            checks.refuse(name, call[name], "an integer of 64 bits")
    return Spec(shape, call["dtype"])


def generator(seed: int, seed2: int) -> np.random.Generator:
    """Where the numbers of these two seeds come from."""
    key = np.array([seed % 2**64, seed2 % 2**64], np.uint64)  # from a list, NumPy would lose large ones
    return np.random.Generator(np.random.Philox(key=key))


@block("Data", _random, scratch=16)
def RandomNormal(
    xp: Any, shape: HostShape, dtype: FloatType, seed: OneInt = 0, seed2: OneInt = 0, mean: OneFloat = 0.0,
    stddev: OneFloat = 1.0,
) -> Any:  # fmt: skip
    """Random numbers with a normal distribution. The same seeds give the same numbers, everywhere and every time."""
    return (generator(seed, seed2).standard_normal(tuple(shape)) * stddev + mean).astype(numpy_dtype(dtype))


@block("Data", _random, scratch=16)
def RandomUniform(
    xp: Any, shape: HostShape, dtype: FloatType, seed: OneInt = 0, seed2: OneInt = 0, minval: OneFloat = 0.0,
    maxval: OneFloat = 1.0,
) -> Any:  # fmt: skip
    """Random numbers spread evenly over a range. The same seeds give the same numbers, everywhere and every time."""
    return (generator(seed, seed2).random(tuple(shape)) * (maxval - minval) + minval).astype(numpy_dtype(dtype))


def _random_int(call: Call) -> Spec:
    info = np.iinfo(call["dtype"])
    low, high = call["minval"], call["maxval"]
    if not info.min <= low < high <= info.max + 1:
        problem = f"minval {low} and maxval {high} are not a range of {call['dtype']}"
        raise InvalidArgument(problem, argument="maxval", given=high)
    return _random(call)


@block("Data", _random_int)
def RandomUniformInt(
    xp: Any, shape: HostShape, minval: OneInt, maxval: OneInt, dtype: WholeType = "int32", seed: OneInt = 0,
    seed2: OneInt = 0,
) -> Any:  # fmt: skip
    """Random integers from minval up to, but not including, maxval. The same seeds give the same numbers."""
    return generator(seed, seed2).integers(minval, maxval, tuple(shape), dtype=dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Files


def _load(call: Call) -> Spec:
    if not call["file"]:
        raise InvalidArgument("file is missing", argument="file")
    found = _files(call).describe(call["file"], call["key"])
    return Spec(found.shape, found.dtype)


@block("Data", _load, reads="file")
def Load(xp: Any, files: Files, file: FileName, key: Word = "") -> Any:
    """An array from a file: .npy, .npz, .zarr, .png or .tif."""
    return files.read(file, key)


def _save(call: Call) -> Spec | tuple[Spec, ...]:
    if not call["file"]:
        raise InvalidArgument("file is missing", argument="file")
    _files(call).target(call["file"])
    expect_storable(call.spec("input").dtype, call["file"])
    return like("input")(call)


@block("Data", _save, lambda site, gradients: {"input": gradients["output"]}, to=["input"], effect=True)
def Save(xp: Any, files: Files, input: Tensor, file: FileName) -> Any:
    """Writes the tensor to a file in the folder of the page, .npy, .npz, .zarr, .png or .tif, and hands it on."""
    return files.write(file, input)


# ---------------------------------------------------------------------------------------------------------------------
# ClientSession


@block("Session", lambda call: (), outputs="")
def ClientSession(xp: Any, fetch_outputs: Tensors) -> Any:
    """What the page is for: a run computes what is wired here first, and shows it."""
    return ()
