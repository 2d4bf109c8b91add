"""The windows of fractional pooling: PyTorch's, which every image and channel draws for itself, or those of a seed.

PyTorch's windows differ from channel to channel, so they are no `Pool`. They are kept as starting points, and pooled
through flat indices; with a seed all channels share one list of windows and the ordinary maps apply.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..backends.torch import geometry
from ..backends.torch.geometry import Encoded
from .arguments import Size, expect_input, per_axis, refuse, shape_of, whole


class Planes(NamedTuple):
    """Windows of one size whose beginnings differ from channel to channel.

    starts    per spatial axis the beginnings, a tensor [..., windows] behind the axes of the batch and the channels
    sizes     the spatial sizes of the input
    window    elements of a window per axis
    geometry  the shapes, for the operators that work with flat indices
    """

    starts: list[Tensor]
    sizes: list[int]
    window: list[int]
    geometry: Encoded

    def elements(self) -> Iterator[Tensor]:
        """The flat index of the first element of every window, of the second, and so on in scan order."""
        for offsets in itertools.product(*map(range, self.window)):
            index: Tensor | None = None
            for axis, (start, offset, n) in enumerate(zip(self.starts, offsets, self.sizes, strict=True)):
                behind = len(self.sizes) - 1 - axis
                place = (start + offset).reshape(*start.shape[:-1], *(1,) * axis, start.shape[-1], *(1,) * behind)
                index = place if index is None else index * n + place
            assert index is not None
            yield index

    def winners(self, x: Tensor, nan: str) -> Tensor:
        """The flat index of the first maximum of every window."""
        flat = x.flatten(-len(self.sizes))
        best: Tensor | None = None
        winner: Tensor | None = None
        for index in self.elements():
            value = flat.gather(-1, index.flatten(-len(self.sizes))).reshape(index.shape)
            if best is None or winner is None:
                best, winner = value, index
                continue
            better = (value > best) | _overrules(value, best, nan)
            best, winner = torch.where(better, value, best), torch.where(better, index, winner)
        assert winner is not None
        return winner


def _overrules(value: Tensor, best: Tensor, nan: str) -> Tensor:
    """Where a NaN decides: it wins over numbers, or gives way to them."""
    if nan == "propagate":
        return value.isnan() & ~best.isnan()
    return best.isnan() & ~value.isnan()


def drawn(
    name: str,
    x: Tensor,
    axes: int,
    kernel_size: Size | None,
    output_size: Size | None,
    output_ratio: float | Sequence[float] | None,
    samples: Tensor | None,
    seed: int | tuple[int, int] | None,
    overlapping: bool,
    pseudo_random: bool,
) -> Planes | Encoded:
    """The windows over x: a geometry if there is a seed."""
    shape = shape_of(name, x)
    expect_input(name, shape, axes)
    sizes = list(shape[-axes:])
    counts = _counts(name, sizes, output_size, output_ratio)
    if seed is None:
        if kernel_size is None or overlapping or pseudo_random:
            refuse(name, "seed", None, "but kernel_size=None, overlapping and pseudo_random need a seed")
        window = per_axis(name, "kernel_size", kernel_size, axes, 1)
        return _planes(name, x, sizes, counts, window, samples)
    if samples is not None:
        refuse(name, "_random_samples", "given", "expected either samples or a seed")
    length = None if kernel_size is None else per_axis(name, "kernel_size", kernel_size, axes, 1)
    if length is not None and overlapping:
        refuse(name, "overlapping", overlapping, "expected only with kernel_size=None")
    return _seeded(name, x, sizes, counts, length, seed, overlapping, pseudo_random)


def _counts(
    name: str, sizes: list[int], output_size: Size | None, output_ratio: float | Sequence[float] | None
) -> list[int]:
    if (output_size is None) == (output_ratio is None):
        refuse(name, "output_size", output_size, "expected either an output_size or an output_ratio")
    if output_size is not None:
        return per_axis(name, "output_size", output_size, len(sizes), 1)
    ratios: list[Any] = list(output_ratio) if isinstance(output_ratio, (list, tuple)) else [output_ratio] * len(sizes)
    if len(ratios) != len(sizes):
        refuse(name, "output_ratio", output_ratio, f"expected one number or {len(sizes)}, one per spatial axis")
    counts: list[int] = [torch.sym_int(n * ratio) for n, ratio in zip(sizes, ratios, strict=True)]  # type: ignore[no-untyped-call]
    if any(not 0 < ratio <= 1 for ratio in ratios) or min(counts) < 1:
        refuse(name, "output_ratio", output_ratio, f"expected numbers between 0 and 1 that leave something of {sizes}")
    return counts


# ---------------------------------------------------------------------------------------------------------------------
# PyTorch's windows


def _planes(
    name: str, x: Tensor, sizes: list[int], counts: list[int], window: list[int], samples: Tensor | None
) -> Planes:
    axes = len(sizes)
    for n, m, k in zip(sizes, counts, window, strict=True):
        if m + k - 1 > n:
            refuse(name, "kernel_size", window, f"too large for output_size {counts} of an input of {sizes}")
    planes = x.shape[:-axes]
    if samples is None:
        images = 1 if x.dim() == axes + 1 else x.shape[0]
        samples = torch.rand(images, x.shape[-axes - 1], axes, dtype=x.dtype, device=x.device)
    elif samples.dtype != x.dtype or samples.numel() != math.prod(planes) * axes:
        given = f"{samples.dtype} of shape {tuple(samples.shape)}"
        refuse(name, "_random_samples", given, f"expected {x.dtype} of shape (batch, channels, {axes})")
    places = samples.reshape(*planes, axes)
    # In two dimensions the first sample belongs to the width; in three the samples follow the axes.
    order = (1, 0) if axes == 2 else range(axes)
    starts = [_starts(places[..., i], n, m, k) for i, n, m, k in zip(order, sizes, counts, window, strict=True)]
    encoded = [geometry.adaptive_axis(n, m) for n, m in zip(sizes, counts, strict=True)]
    return Planes(starts, sizes, window, geometry.joined(0, x.dim() - axes, encoded))


def _starts(sample: Tensor, n: int, count: int, window: int) -> Tensor:
    """Where the windows begin: evenly spaced with a random phase, in the samples' precision; the last at the end."""
    last = torch.full((*sample.shape, 1), n - window, dtype=torch.int64, device=sample.device)
    if count == 1:
        return last
    sample = sample.unsqueeze(-1)
    spacing = sample.new_full((), n - window) / sample.new_full((), count - 1)
    steps = torch.arange(count - 1, dtype=sample.dtype, device=sample.device)
    begun = ((steps + sample) * spacing).to(torch.int64) - (sample * spacing).to(torch.int64)
    return torch.cat([begun, last], -1)


# ---------------------------------------------------------------------------------------------------------------------
# The windows of a seed


def _seeded(
    name: str,
    x: Tensor,
    sizes: list[int],
    counts: list[int],
    window: list[int] | None,
    seed: int | tuple[int, int],
    overlapping: bool,
    pseudo_random: bool,
) -> Encoded:
    if any(m > n for n, m in zip(sizes, counts, strict=True)):
        refuse(name, "output_size", counts, f"expected at most one window per element of {sizes}")
    seeds = seed if isinstance(seed, (list, tuple)) else (seed, 0)
    if len(seeds) != 2:
        refuse(name, "seed", seed, "expected one integer or two")
    first, second = (whole(name, "seed", number) for number in seeds)
    lengths = [0] * len(sizes) if window is None else window
    encoded = [
        geometry.drawn_axis(n, m, k, overlapping, pseudo_random, first, second)
        for n, m, k in zip(sizes, counts, lengths, strict=True)
    ]
    return geometry.joined(0, x.dim() - len(sizes), encoded)
