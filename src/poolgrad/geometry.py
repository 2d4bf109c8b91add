"""From the arguments of an operator to its `Pool`, with every check of shapes on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple, NoReturn, TypeAlias

from . import checks, sequences, windows
from .checks import Int64Array
from .declare import Tensor
from .errors import InvalidArgument
from .windows import Pool, Windows, spatial_axes


class Grid(NamedTuple):
    """Windows on a regular grid."""

    ksize: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    explicit_paddings: tuple[int, ...]
    data_format: str
    depthwise: bool = False
    """Whether windows may lie along the channels instead."""

    def over(self, x: Tensor) -> Pool:
        """The pool over x."""
        expect_rank(x, self.data_format)
        x.expect_countable()
        self._expect_positive("ksize", self.ksize)
        self._expect_positive("strides", self.strides)
        self._expect_paddings()
        channel = self.data_format.index("C")
        if self.depthwise and self.ksize[channel] > 1:
            return self._over_channels(x, channel)
        self._expect_ones((0, channel), "pooling over batch or channels is not possible here")
        axes = spatial_axes(self.data_format)
        return Pool.of(x.shape, self.data_format, [self._windows(axis, x.shape[axis]) for axis in axes])

    def describe(self, x: Tensor) -> str:
        """The pooling in words, up to the shape that it gives."""
        paddings = f" {list(self.explicit_paddings)}" if self.explicit_paddings else ""
        sizes = f"ksize {list(self.ksize)}, strides {list(self.strides)}"
        return f"pooling {x.name} {x.shape} with {sizes}, padding {self.padding}{paddings}, {self.data_format} gives"

    def _windows(self, axis: int, n: int) -> Windows:
        k, s = self.ksize[axis], self.strides[axis]
        try:
            if self.padding == "EXPLICIT":
                return windows.explicit(n, k, s, self.explicit_paddings[2 * axis], self.explicit_paddings[2 * axis + 1])
            return windows.regular(n, k, s, self.padding)
        except InvalidArgument as error:
            problem = f"ksize {list(self.ksize)}: on axis {self.data_format[axis]}, {error}"
            raise InvalidArgument(problem, argument="ksize", given=self.ksize) from None

    def _over_channels(self, x: Tensor, channel: int) -> Pool:
        """Groups of adjacent channels. The channels are the one spatial axis; all others lie before or behind it."""
        group, channels = self.ksize[channel], x.shape[channel]
        others = [axis for axis in range(len(self.ksize)) if axis != channel]
        self._expect_ones(others, f"pooling over channels (ksize {list(self.ksize)}) excludes all other axes")
        if self.strides[channel] != group:
            refuse_entry("strides", self.strides, channel, f"must equal the channel window of {group}")
        if self.padding == "EXPLICIT":
            checks.refuse("padding", self.padding, "'SAME' or 'VALID' when pooling over channels")
        if channels % group:
            refuse_entry("ksize", self.ksize, channel, f"must divide the {channels} channels of {x.name}")
        return Pool(x.shape, channel, (windows.regular(channels, group),), batch=x.shape[0])

    def _expect_positive(self, name: str, values: tuple[int, ...]) -> None:
        if len(values) != len(self.data_format):
            checks.refuse(name, values, f"{len(self.data_format)} integers, one per axis of {self.data_format}")
        for axis, value in enumerate(values):
            if value < 1:
                refuse_entry(name, values, axis, "must be at least 1")

    def _expect_ones(self, axes: Iterable[int], why: str) -> None:
        for axis in axes:
            for name, values in (("ksize", self.ksize), ("strides", self.strides)):
                if values[axis] != 1:
                    refuse_entry(name, values, axis, f"must be 1: {why}")

    def _expect_paddings(self) -> None:
        given, rank = self.explicit_paddings, len(self.data_format)
        if self.padding != "EXPLICIT":
            if given:
                checks.refuse("explicit_paddings", given, f"nothing with padding {self.padding!r}")
            return
        if len(given) != 2 * rank:
            checks.refuse("explicit_paddings", given, f"{2 * rank} integers with padding 'EXPLICIT'")
        for i, amount in enumerate(given):
            k = self.ksize[i // 2]
            if i // 2 not in spatial_axes(self.data_format) and amount != 0:
                refuse_entry("explicit_paddings", given, i, "must be 0: batch and channels take no padding")
            if not 0 <= amount < k:
                refuse_entry("explicit_paddings", given, i, f"must be at least 0 and less than the window of {k}")


class Cells(NamedTuple):
    """The cells of two pooling sequences."""

    rows: Int64Array
    columns: Int64Array
    overlapping: bool
    data_format: str

    def over(self, x: Tensor) -> Pool:
        """The pool over x."""
        expect_rank(x, self.data_format)
        x.expect_countable()
        expect_filled(x)
        axes = spatial_axes(self.data_format)
        names = ("row_pooling_sequence", "col_pooling_sequence")
        for name, edges, axis in zip(names, (self.rows, self.columns), axes, strict=True):
            fault = windows.sequence_fault(x.shape[axis], edges)
            if fault is not None:
                raise InvalidArgument(f"{name} {fault}", argument=name, given=edges)
        height, width = (x.shape[axis] for axis in axes)
        rows = windows.fractional(height, self.rows, self.overlapping)
        return Pool.of(x.shape, self.data_format, [rows, windows.fractional(width, self.columns, self.overlapping)])

    def describe(self, x: Tensor) -> str:
        """The pooling in words, up to the shape that it gives."""
        return f"pooling {x.name} {x.shape} into {self.rows.size - 1} x {self.columns.size - 1} cells gives"


Drawing: TypeAlias = Callable[[], tuple[Cells, Pool]]


class Ratios(NamedTuple):
    """Cells drawn at random, given how much longer the input is than the output."""

    ratios: tuple[float, ...]
    pseudo_random: bool
    overlapping: bool
    deterministic: bool
    seed: int
    seed2: int
    data_format: str

    def drawing(self, x: Tensor, owner: str) -> Drawing:
        """What draws the cells over x: new ones in every call, or, if deterministic, the same again and again.

        Deterministic cells without seeds are the same for all calls that `owner` makes with these attributes, for as
        long as the process lives.
        """
        self._expect_sound(x)
        if not self.deterministic:
            return lambda: self._draw(x, sequences.fresh_seeds())
        unseeded = (self.seed, self.seed2) == (0, 0)
        drawn = self._draw(x, _seeds_of_this_process(owner, self) if unseeded else (self.seed, self.seed2))
        return lambda: drawn

    def counts(self, x: Tensor) -> tuple[int, ...]:
        """How many cells every spatial axis is cut into."""
        axes = spatial_axes(self.data_format)
        return tuple(sequences.output_size(x.shape[axis], self.ratios[axis]) for axis in axes)

    def out_shape(self, x: Tensor) -> tuple[int, ...]:
        """The shape of the result."""
        axes = spatial_axes(self.data_format)
        return x.shape[: axes.start] + self.counts(x) + x.shape[axes.stop :]

    def _draw(self, x: Tensor, seeds: tuple[int, int]) -> tuple[Cells, Pool]:
        axes = spatial_axes(self.data_format)
        rows, columns = sequences.fractional_axes(
            [x.shape[axis] for axis in axes],
            [self.ratios[axis] for axis in axes],
            pseudo_random=self.pseudo_random,
            seed=seeds[0],
            seed2=seeds[1],
        )
        cells = Cells(rows, columns, self.overlapping, self.data_format)
        return cells, cells.over(x)

    def _expect_sound(self, x: Tensor) -> None:
        expect_rank(x, self.data_format)
        x.expect_countable()
        expect_filled(x)
        if len(self.ratios) != len(self.data_format):
            checks.refuse("pooling_ratio", self.ratios, f"{len(self.data_format)} numbers, one per axis")
        for axis, ratio in enumerate(self.ratios):
            if axis not in spatial_axes(self.data_format) and ratio != 1:
                refuse_entry("pooling_ratio", self.ratios, axis, "must be 1: batch and channels are not pooled")
            try:
                sequences.output_size(x.shape[axis], ratio)
            except InvalidArgument as error:
                problem = f"pooling_ratio[{axis}]: {error}"
                raise InvalidArgument(problem, argument="pooling_ratio", given=self.ratios) from None
        if not self.deterministic and (self.seed, self.seed2) != (0, 0):
            checks.refuse("seed, seed2", (self.seed, self.seed2), "(0, 0) unless deterministic=True")


@cache
def _seeds_of_this_process(owner: str, ratios: Ratios) -> tuple[int, int]:
    return sequences.fresh_seeds()


def expect_rank(x: Tensor, data_format: str) -> None:
    """Refuses an array that has another number of axes than its format."""
    if len(x.shape) != len(data_format):
        problem = f"{x.name} has shape {x.shape}, expected {len(data_format)} dimensions ({data_format})"
        raise InvalidArgument(problem, argument=x.name, given=x.shape, expected=data_format)


def expect_filled(x: Tensor) -> None:
    """Refuses an array without elements: a pooling sequence cannot begin at 0 and end there."""
    if 0 in x.shape:
        problem = f"{x.name} has shape {x.shape}, but fractional pooling needs every dimension to be at least 1"
        raise InvalidArgument(problem, argument=x.name, given=x.shape)


def expect_shape(x: Tensor, expected: tuple[int, ...], source: Callable[[], str]) -> None:
    """Refuses any other shape; `source` says where the expected one comes from."""
    if x.shape != expected:
        problem = f"{x.name} has shape {x.shape}, but {source()} {expected}"
        raise InvalidArgument(problem, argument=x.name, given=x.shape, expected=expected)


def refuse_entry(name: str, values: tuple[object, ...], at: int, rule: str) -> NoReturn:
    """Says which entry of a list breaks which rule."""
    problem = f"{name} is {checks.shown(list(values))}, but {name}[{at}] {rule}"
    raise InvalidArgument(problem, argument=name, given=values, expected=rule)
