"""PyTorch's arguments, turned into the geometry of a pooling or refused as PyTorch refuses them.

Sizes may be symbolic (`torch.compile` with dynamic shapes, `torch.export`): only arithmetic is done with them, so that
one traced graph serves all sizes. What PyTorch answers with a RuntimeError or a ValueError is refused with an error
that is both, and an `InvalidArgument` too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
import torch

from ..backends.torch import geometry
from ..backends.torch.geometry import Encoded
from ..cache import exact, keep, plain
from ..errors import InvalidArgument, InvalidType
from ..policy import resolve

Size: TypeAlias = int | Sequence[int]
PaddingLike: TypeAlias = int | Sequence[int] | Sequence[tuple[int, int]] | str
Pair: TypeAlias = tuple[int, int]


class Refused(InvalidArgument, RuntimeError):
    """An argument that PyTorch would refuse too."""


def refuse(name: str, argument: str, given: object, rule: str) -> NoReturn:
    """Says that an argument of the function `name` breaks a rule."""
    raise Refused(f"{argument} is {given}, {rule}", operator=name, argument=argument, given=given, expected=rule)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def rule_of(ties: str | None, nan: str | None) -> tuple[str, str]:
    """Who wins on ties and NaN. A compiled graph keeps the policy that was in force when it was compiled."""
    chosen = resolve(ties, nan)
    return chosen.ties, chosen.nan


def shape_of(name: str, x: torch.Tensor) -> Sequence[int]:
    """The shape of the input. `torch.jit.trace` shows sizes as tensors: what it records holds for these sizes alone."""
    if not isinstance(x, torch.Tensor):
        raise InvalidType(f"input is a {type(x).__name__}, expected a tensor", operator=name, argument="input")
    if not torch.compiler.is_compiling() and torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return tuple(int(n) for n in x.shape)
    return x.shape


def expect_input(name: str, shape: Sequence[int], axes: int) -> None:
    """Refuses what is not a batch of images, or one image, with `axes` spatial axes and something in it."""
    if len(shape) not in (axes + 1, axes + 2) or any(n == 0 for n in shape[-axes - 1 :]):
        expected = f"expected {axes + 1} or {axes + 2} dimensions (with a batch), none empty but the batch"
        refuse(name, "input", f"a tensor of shape {tuple(shape)}", expected)


def whole(name: str, argument: str, value: Any) -> int:
    """An integer, NumPy's included; other kinds of value are refused."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise InvalidType(
            f"{argument} has {value!r}, expected an integer", operator=name, argument=argument, given=value
        )
    return value  # type: ignore[return-value]


def per_axis(name: str, argument: str, value: Size, axes: int, at_least: int) -> list[int]:
    """One integer for every spatial axis."""
    given: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(given) not in (1, axes):
        refuse(name, argument, value, f"expected one integer or {axes}, one per spatial axis")
    values = [whole(name, argument, number) for number in given]
    for number in values:
        if number < at_least:
            least = "greater than zero" if at_least == 1 else "non-negative"
            refuse(name, argument, value, f"it must be {least}")
    return values * axes if len(values) == 1 else values


def regular(
    name: str,
    x: torch.Tensor,
    axes: int,
    kernel_size: Size,
    stride: Size | None,
    padding: PaddingLike,
    dilation: Size = 1,
    ceil_mode: bool = False,
    divide: str = "real",
    divisor: int = 1,
) -> Encoded:
    """The geometry of windows of one size at one distance.

    divide  what averages divide by: "real" elements, "padded" ones too, or the "constant" `divisor`
    """
    given = (axes, kernel_size, stride, padding, dilation, ceil_mode, divide, divisor)
    return _once(_regular, name, shape_of(name, x), *given)


_geometries: dict[bytes, Encoded] = {}
_SINGLE: Final = frozenset({int, bool, str, type(None)})


def _once(make: Callable[..., Encoded], name: str, shape: Sequence[int], *given: Any) -> Encoded:
    """What is made of these arguments; found again where they are plain values, which symbolic sizes are not."""
    if torch.compiler.is_compiling():
        return make(name, shape, *given)
    values = [name, *shape, *given]
    for value in values:
        if type(value) not in _SINGLE and not plain(value):
            return make(name, shape, *given)
    key = exact(values)
    found = _geometries.get(key)
    return keep(_geometries, key, make(name, shape, *given)) if found is None else found


def _regular(
    name: str,
    shape: Sequence[int],
    axes: int,
    kernel_size: Size,
    stride: Size | None,
    padding: PaddingLike,
    dilation: Size,
    ceil_mode: bool,
    divide: str,
    divisor: int,
) -> Encoded:
    expect_input(name, shape, axes)
    window = per_axis(name, "kernel_size", kernel_size, axes, 1)
    strides = window if stride is None or stride in ([], ()) else per_axis(name, "stride", stride, axes, 1)
    dilations = per_axis(name, "dilation", dilation, axes, 1)
    sizes = list(shape[-axes:])
    pads = _paddings(name, padding, sizes, window, strides, dilations)
    encoded = []
    for i, (n, k, s, d, (before, after)) in enumerate(zip(sizes, window, strides, dilations, pads, strict=True)):
        count = _count(name, n, k, s, d, before, after, ceil_mode)
        divided = geometry.REAL
        if divide == "padded":
            divided = geometry.padded(n + after)
        elif divide == "constant":
            divided = geometry.constant(divisor if i == 0 else 1)
        encoded.append(geometry.regular_axis(n, count, k, s, before, d, divided))
    return geometry.joined(0, len(shape) - axes, encoded)


def _count(name: str, n: int, k: int, s: int, d: int, before: int, after: int, ceil_mode: bool) -> int:
    """How many windows there are. With ceil_mode one may hang over the end, but must not begin in the padding there."""
    room = n + before + after - (k - 1) * d - 1
    count = (room + s - 1 if ceil_mode else room) // s + 1
    if ceil_mode and (count - 1) * s >= n + before:
        count -= 1
    if count < 1:
        refuse(name, "kernel_size", k, f"but an axis of length {n} with padding ({before}, {after}) gives no output")
    return count


def _paddings(
    name: str, padding: PaddingLike, sizes: list[int], window: list[int], strides: list[int], dilations: list[int]
) -> list[Pair]:
    axes = len(sizes)
    if isinstance(padding, str):
        if padding == "valid":
            return [(0, 0)] * axes
        if padding != "same":
            refuse(name, "padding", repr(padding), "expected 'same', 'valid', integers or (before, after) pairs")
        return [_same(n, k, s, d) for n, k, s, d in zip(sizes, window, strides, dilations, strict=True)]
    if isinstance(padding, (list, tuple)) and any(isinstance(pair, (list, tuple)) for pair in padding):
        return _pairs(name, padding, window, dilations)
    amounts = per_axis(name, "padding", padding, axes, 0)  # type: ignore[arg-type]
    for amount, k, d in zip(amounts, window, dilations, strict=True):
        if amount > ((k - 1) * d + 1) // 2:
            refuse(
                name, "padding", padding, f"it should be at most half of the effective kernel size {(k - 1) * d + 1}"
            )
    return [(amount, amount) for amount in amounts]


def _same(n: int, k: int, s: int, d: int) -> Pair:
    """Padding that gives ceil(n / s) windows; the odd one goes behind, as in TensorFlow."""
    missing = ((n + s - 1) // s - 1) * s + (k - 1) * d + 1 - n
    # While torch.compile traces, max makes a symbol too.
    total: int = torch.sym_max(0, missing) if isinstance(missing, torch.SymInt) else max(0, missing)
    return total // 2, total - total // 2


def _pairs(name: str, padding: Sequence[object], window: list[int], dilations: list[int]) -> list[Pair]:
    pairs = [tuple(pair) if isinstance(pair, (list, tuple)) else () for pair in padding]
    if len(pairs) != len(window) or any(len(pair) != 2 for pair in pairs):
        refuse(name, "padding", padding, f"expected {len(window)} pairs (before, after)")
    checked = []
    for (before, after), k, d in zip(pairs, window, dilations, strict=True):
        per_axis(name, "padding", [before, after], 2, 0)
        if max(before, after) > (k - 1) * d:
            refuse(name, "padding", padding, f"it must be less than the window's reach of {(k - 1) * d + 1}")
        checked.append((before, after))
    return checked


def adaptive(name: str, x: torch.Tensor, axes: int, output_size: int | Sequence[int | None] | None) -> Encoded:
    """The geometry of windows that cover each axis evenly. None keeps an axis as long as it is."""
    return _once(_adaptive, name, shape_of(name, x), axes, output_size)


def _adaptive(name: str, shape: Sequence[int], axes: int, output_size: int | Sequence[int | None] | None) -> Encoded:
    expect_input(name, shape, axes)
    wanted: list[Any] = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size]
    if len(wanted) not in (1, axes):
        refuse(name, "output_size", output_size, f"expected one integer or {axes}, one per spatial axis")
    wanted = wanted * axes if len(wanted) == 1 else wanted
    sizes = list(shape[-axes:])
    counts = [n if size is None else size for n, size in zip(sizes, wanted, strict=True)]
    counts = per_axis(name, "output_size", counts, axes, 0)
    encoded = [geometry.adaptive_axis(n, count) for n, count in zip(sizes, counts, strict=True)]
    return geometry.joined(0, len(shape) - axes, encoded)
