"""The geometry of pooling: which elements every output reads.

Pooling is a product of per-axis interval lists. `Windows` is the list of one axis; `regular`, `explicit`, `fractional`
and `adaptive` make it. A `Pool` is the windows of all spatial axes and their place in an array. Both are immutable
values that compare and hash by content, and no window is ever empty: kernels can rely on both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from . import checks
from .checks import INT64_MAX, Int64Array
from .errors import InvalidArgument, OutOfMemory

MAX_AXES: Final = 30
"""The largest number of spatial axes a `Pool` may have."""


class Windows:
    """The windows of one axis, clipped to the input.

    Output o reads the real ones among the positions `origin[o] + j * dilation` (j = 0, 1, ...). A regular list is kept
    as four numbers, so an axis may be longer than memory; a listed one (fractional, adaptive) keeps its borders,
    unless they happen to be regular.

    size      length of the input axis
    count     number of windows
    window    elements of a window, padding included         (regular)
    stride    distance of neighbouring windows               (regular)
    before    padding in front of the first element          (regular)
    dilation  distance of neighbouring elements of a window
    extent    local positions (i - origin) // dilation of real elements lie in [0, extent)

    >>> w = regular(5, window=3, stride=2, padding="SAME")
    >>> w
    Windows(size=5, count=3, window=3, stride=2, before=1)
    >>> w.origin, w.start, w.stop, w.length
    (array([-1,  1,  3]), array([0, 1, 3]), array([2, 4, 5]), array([2, 3, 2]))
    """

    __slots__ = ("_hash", "_starts", "_stops", "before", "count", "dilation", "extent", "size", "stride", "window")

    def __init__(
        self,
        size: int,
        count: int,
        window: int = 1,
        stride: int = 1,
        before: int = 0,
        dilation: int = 1,
        starts: Int64Array | None = None,
        stops: Int64Array | None = None,
        extent: int | None = None,
    ) -> None:
        self.size: Final = size
        self.count: Final = count
        self.window: Final = window
        self.stride: Final = stride
        self.before: Final = before
        self.dilation: Final = dilation
        self._starts: Final = _frozen(starts)
        self._stops: Final = _frozen(stops)
        # A part of a longer list keeps the extent of the whole, so that its choice codes are the whole's.
        self.extent: Final = self._largest_local_position() + 1 if extent is None else extent
        self._hash: Final = hash(self._identity())

    @property
    def regular(self) -> bool:
        """Whether the windows are all alike, up to clipping."""
        return self._starts is None

    @property
    def origin(self) -> Int64Array:
        """Where local position 0 lies: the nominal start of each window.

        It may lie in the padding, but never further out than 1 - size: it is moved up in steps of the dilation.
        """
        if self._starts is not None:
            return self._starts
        nominal = np.arange(self.count, dtype=np.int64) * self.stride - self.before
        missing = np.maximum(1 - self.size - nominal, 0)
        return _read_only(nominal + -(-missing // self.dilation) * self.dilation)

    @property
    def start(self) -> Int64Array:
        """The first real element of each window."""
        if self._starts is not None:
            return self._starts
        origin = self.origin
        return _read_only(np.where(origin < 0, origin % self.dilation, origin))

    @property
    def stop(self) -> Int64Array:
        """One past the last real element of each window."""
        if self._stops is not None:
            return self._stops
        start = np.arange(self.count, dtype=np.int64) * self.stride - self.before
        last = start + (self.window - 1) * self.dilation
        inside = self.size - 1 - (self.size - 1 - start) % self.dilation
        return _read_only(np.minimum(last, inside) + 1)

    @property
    def length(self) -> Int64Array:
        """How many real elements each window has."""
        return _read_only((self.stop - self.start + self.dilation - 1) // self.dilation)

    def _largest_local_position(self) -> int:
        if self.count == 0:
            return -1
        if self._starts is not None and self._stops is not None:
            return int((self._stops - self._starts).max()) - 1
        return max(self._last_local_position(o) for o in self._longest_candidates())

    def _last_local_position(self, o: int) -> int:
        nominal = o * self.stride - self.before
        moved = max(0, -((nominal + self.size - 1) // self.dilation))
        return min(self.window - 1, (self.size - 1 - nominal) // self.dilation) - moved

    def _longest_candidates(self) -> set[int]:
        """The longest window is among these. From left to right, windows first grow while their origin is moved up,
        then (both ends clipped) depend only on their phase in the dilation, then shrink at the end of the axis."""
        reach = (self.window - 1) * self.dilation
        moved = min(max(0, -((self.size - 1 - self.before) // self.stride)), self.count - 1)
        growing = min(max(0, (self.size - 1 + self.before - reach) // self.stride + 1), moved)
        return {max(growing - 1, 0), moved, *range(growing, min(moved, growing + self.dilation))}

    def _identity(self) -> tuple[object, ...]:
        borders = [edge.tobytes() for edge in (self._starts, self._stops) if edge is not None]
        return (self.size, self.count, self.window, self.stride, self.before, self.dilation, self.extent, *borders)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Windows):
            return NotImplemented
        return self is other or (self._hash == other._hash and self._identity() == other._identity())

    def __hash__(self) -> int:
        return self._hash

    def __len__(self) -> int:
        return self.count

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (
            self.size,
            self.count,
            self.window,
            self.stride,
            self.before,
            self.dilation,
            self._starts,
            self._stops,
            self.extent,
        )
        return (Windows, fields)

    def __repr__(self) -> str:
        head = f"Windows(size={self.size}, count={self.count}, "
        if self._starts is not None and self._stops is not None:
            cells = [f"[{start}, {stop})" for start, stop in zip(self._starts[:6], self._stops[:6], strict=True)]
            return head + ", ".join(cells + ["..."] * (self.count > 6)) + ")"
        dilated = f", dilation={self.dilation}" if self.dilation > 1 else ""
        return head + f"window={self.window}, stride={self.stride}, before={self.before}{dilated})"


def regular(n: int, window: int, stride: int | None = None, padding: str = "VALID", dilation: int = 1) -> Windows:
    """Windows of one size at one distance, with TensorFlow's padding "VALID" or "SAME".

    >>> regular(7, window=3, stride=2)
    Windows(size=7, count=3, window=3, stride=2, before=0)
    >>> regular(7, window=3, stride=2, padding="SAME").count
    4
    """
    n, window, stride, dilation = _checked(n, window, stride, dilation)
    if checks.choice("padding", padding, ("VALID", "SAME")) == "VALID":
        return _build(n, regular_count(n, window, stride, 0, 0, dilation), window, stride, 0, dilation)
    count = -(-n // stride)
    total = max(0, (count - 1) * stride + _reach(window, dilation) - n)
    return _build(n, count, window, stride, total // 2, dilation)


def explicit(
    n: int,
    window: int,
    stride: int | None = None,
    before: int = 0,
    after: int = 0,
    dilation: int = 1,
    ceil: bool = False,
) -> Windows:
    """Windows of one size at one distance, with `before` and `after` padding.

    With `ceil` a last window that hangs over the end is kept, as long as it begins in the input or its leading padding.

    >>> explicit(6, window=3, stride=2, before=1, after=1).start
    array([0, 1, 3])
    >>> explicit(6, window=3, stride=2, ceil=True).stop
    array([3, 5, 6])
    """
    n, window, stride, dilation = _checked(n, window, stride, dilation)
    reach = _reach(window, dilation)
    for name, padding in (("before", before), ("after", after)):
        if checks.integer(name, padding, at_least=0) >= reach:
            checks.refuse(name, padding, f"less than the window's reach of {reach}")
    count = regular_count(n, window, stride, int(before), int(after), dilation, ceil)
    return _build(n, count, window, stride, int(before), dilation)


def regular_count(
    n: int, window: int, stride: int, before: int, after: int, dilation: int = 1, ceil: bool = False
) -> int:
    """How many windows fit. A window that misses the input by less than two strides gives none, as in TensorFlow.

    >>> regular_count(4, window=7, stride=2, before=0, after=0)
    0
    >>> regular_count(4, window=8, stride=2, before=0, after=0)
    Traceback (most recent call last):
    poolgrad.errors.InvalidArgument: a window of 8 with stride 2 does not fit an axis of length 4
    """
    room = n + before + after - _reach(window, dilation)
    if n == 0 or -2 * stride < room < 0:
        return 0
    if room < 0:
        span = f"a window of {window}" + (f" with dilation {dilation}" if dilation > 1 else "")
        padded = f" and padding {before} + {after}" if before or after else ""
        raise InvalidArgument(
            f"{span} with stride {stride} does not fit an axis of length {n}{padded}", argument="window", given=window
        )
    if checks.flag("ceil", ceil):
        hanging = -(-room // stride) + 1
        return hanging - 1 if (hanging - 1) * stride >= n + before else hanging
    return room // stride + 1


def fractional(n: int, sequence: Sequence[int] | Int64Array, overlapping: bool = False) -> Windows:
    """The cells of a pooling sequence: cell i is [sequence[i], sequence[i + 1]), one longer (inside n) if overlapping.

    The sequence must begin at 0, rise strictly and end at n.

    >>> fractional(5, [0, 2, 3, 5])
    Windows(size=5, count=3, [0, 2), [2, 3), [3, 5))
    >>> fractional(5, [0, 2, 3, 5], overlapping=True)
    Windows(size=5, count=3, [0, 3), [2, 4), [3, 5))
    """
    n = checks.integer("n", n, at_least=1)
    edges = checks.int64_array("sequence", sequence)
    fault = sequence_fault(n, edges)
    if fault is not None:
        raise InvalidArgument(f"sequence {fault}", argument="sequence", given=edges, expected=f"0 < ... < {n}")
    shared, count = int(checks.flag("overlapping", overlapping)), len(edges) - 1
    if n % count == 0 and bool((np.diff(edges) == n // count).all()):
        return _build(n, count, n // count + shared, n // count, 0, 1)
    return Windows(n, count, starts=edges[:-1], stops=np.minimum(edges[1:] + shared, n))


def sequence_fault(n: int, edges: Int64Array) -> str | None:
    """What is wrong with a pooling sequence for an axis of length n, in words; None if it is sound."""
    if edges.ndim != 1 or edges.size < 2:
        return f"has shape {edges.shape}, expected one dimension with at least two entries"
    if edges[0] != 0:
        return f"begins with {edges[0]}, expected 0"
    falls = np.flatnonzero(edges[1:] <= edges[:-1])
    if falls.size:
        at = int(falls[0])
        return f"goes from {edges[at]} to {edges[at + 1]} at position {at + 1}, expected a strict rise"
    if edges[-1] != n:
        return f"ends with {edges[-1]}, expected {n}, the length of the axis"
    return None


def adaptive(n: int, count: int) -> Windows:
    """`count` windows that cover the axis evenly: window i is [floor(i * n / count), ceil((i + 1) * n / count)).

    >>> adaptive(5, 3)
    Windows(size=5, count=3, [0, 2), [1, 4), [3, 5))
    """
    n = checks.integer("n", n, at_least=0)
    count = checks.integer("count", count, at_least=0)
    if n == 0 and count > 0:
        checks.refuse("count", count, "0 windows on an empty axis")
    if count == 0 or n % count == 0:
        return _build(n, count, n // max(count, 1), n // max(count, 1), 0, 1)
    if n * (count + 1) > INT64_MAX:
        checks.refuse("count", count, "fewer windows")
    try:
        return _adaptive(n, count)
    except MemoryError:
        raise OutOfMemory(f"{count} windows do not fit memory", argument="count", given=count) from None


@lru_cache(maxsize=256)
def _adaptive(n: int, count: int) -> Windows:
    edges = np.arange(count + 1, dtype=np.int64) * n
    return Windows(n, count, starts=edges[:-1] // count, stops=-(-edges[1:] // count))


def _checked(n: int, window: int, stride: int | None, dilation: int) -> tuple[int, int, int, int]:
    window = checks.integer("window", window, at_least=1)
    stride = window if stride is None else checks.integer("stride", stride, at_least=1)
    return checks.integer("n", n, at_least=0), window, stride, checks.integer("dilation", dilation, at_least=1)


def _reach(window: int, dilation: int) -> int:
    return (window - 1) * dilation + 1


@lru_cache(maxsize=1024)
def _build(n: int, count: int, window: int, stride: int, before: int, dilation: int) -> Windows:
    """Regular windows with numbers no larger than the input warrants, so that 64 bits hold them whatever was asked."""
    if n == 0 or count == 0:
        return Windows(n, 0)
    _refuse_empty_windows(n, count, window, stride, before, dilation)
    # Padding so deep that every origin is moved up anyway: shorten it and the windows by the same number of elements.
    surplus = max(0, (before - (count - 1) * stride - n + 1) // dilation)
    before -= surplus * dilation
    window = min(window - surplus, (n - 1 + before) // dilation + 1)
    if count == 1:
        stride = min(stride, n)
    if window == 1:
        dilation = 1
    if max(count * stride, n + before + window * dilation) > INT64_MAX // 2:
        raise InvalidArgument(f"{count} windows of {window} with stride {stride} are beyond 64-bit arithmetic")
    return Windows(n, count, window, stride, before, dilation)


def _refuse_empty_windows(n: int, count: int, window: int, stride: int, before: int, dilation: int) -> None:
    """Every window must hold a real element. Only the first, the last, or a dilation longer than the axis can miss."""
    empty = None
    if (window - 1) * dilation < before:
        empty = 0
    elif (count - 1) * stride - before >= n:
        empty = count - 1
    elif dilation > n:
        # Among n + 1 windows that begin in the padding two have the same phase or one steps over the whole axis.
        begin_in_padding = min(-(-before // stride), count, n + 1)
        empty = next((o for o in range(begin_in_padding) if (o * stride - before) % dilation >= n), None)
    if empty is not None:
        problem = (
            f"window {empty} would hold padding only (axis of length {n}, window {window}, padding {before} in front)"
        )
        raise InvalidArgument(problem, argument="window", given=window)


class Pool:
    """A pooling of an array: the windows of its spatial axes, which lie side by side, and the shapes that follow.

    shape, out_shape                  of the input and of the result
    spatial_shape, out_spatial_shape  their spatial part
    axis                              the first spatial axis
    outer, inner                      how many elements lie before and behind the spatial block
    batch                             how many images; they are the first of `outer`
    extents, elements                 local positions per axis, and their product: the number of choice codes
    choice_dtype                      the smallest unsigned dtype that holds every choice code
    divisors                          what averages divide by: per axis one number for every window, whose products are
                                      taken; None for the number of real elements

    A choice code is the chosen element's local position, counted in scan order over `extents`.

    >>> pool = Pool.of((2, 6, 6, 3), "NHWC", [regular(6, 2), regular(6, 3)])
    >>> pool.out_shape, pool.outer, pool.inner, pool.elements, pool.choice_dtype
    ((2, 3, 2, 3), 2, 3, 6, dtype('uint8'))
    """

    __slots__ = (
        "_hash", "_native", "axis", "batch", "choice_dtype", "divisors", "elements", "extents", "inner", "out_shape",
        "out_spatial_shape", "outer", "shape", "spatial_shape", "windows",
    )  # fmt: skip

    def __init__(
        self,
        shape: tuple[int, ...],
        axis: int,
        windows: tuple[Windows, ...],
        batch: int = 1,
        divisors: Sequence[Sequence[int] | Int64Array] | None = None,
    ) -> None:
        end = axis + len(windows)
        self.shape: Final = shape
        self.axis: Final = axis
        self.windows: Final = windows
        self.batch: Final = batch
        self.spatial_shape: Final = shape[axis:end]
        self.out_spatial_shape: Final = tuple(w.count for w in windows)
        self.out_shape: Final = shape[:axis] + self.out_spatial_shape + shape[end:]
        self.outer: Final = math.prod(shape[:axis])
        self.inner: Final = math.prod(shape[end:])
        self.extents: Final = tuple(max(w.extent, 1) for w in windows)
        self.elements: Final = math.prod(self.extents)
        self.choice_dtype: Final = _smallest_unsigned(self.elements)
        self.divisors: Final = None if divisors is None else _checked_divisors(windows, divisors)
        self._hash: Final = hash(self._identity())
        self._native: Any = None  # what a kernel library keeps for this pool

    @classmethod
    def of(cls, shape: Sequence[int], layout: str, windows: Sequence[Windows]) -> Pool:
        """The pool of an array whose axes are named by `layout`, with one `Windows` per spatial axis.

        In a layout N is the batch (first), C the channels (last, or first but for N), every other letter a spatial
        axis: "NHWC", "NCDHW", "ZYX".
        """
        shape = checks.integers("shape", shape, at_least=0)
        axes = spatial_axes(layout)
        windows = tuple(windows)
        if len(shape) != len(layout):
            checks.refuse("shape", shape, f"{len(layout)} dimensions, one per letter of layout {layout!r}")
        if len(windows) != len(axes):
            checks.refuse("windows", windows, f"{len(axes)}, one per spatial axis of layout {layout!r}")
        for letter, w, n in zip(layout[axes.start :], windows, shape[axes.start :], strict=False):
            if not isinstance(w, Windows):
                checks.refuse_type("windows", w, "Windows")
            if w.size != n:
                checks.refuse("windows", w, f"windows over axis {letter} of length {n}")
        return cls(shape, axes.start, windows, shape[0] if layout.startswith("N") else 1)

    def divided_by(self, divisors: Sequence[Sequence[int] | Int64Array] | None) -> Pool:
        """The same windows with these divisors: per axis one integer for every window, positive or negative.

        >>> pool = Pool.of((3,), "X", [regular(3, 2, 2, "SAME")])
        >>> pool.divided_by([[2, 2]]) == pool
        False
        """
        return Pool(self.shape, self.axis, self.windows, self.batch, divisors)

    def _identity(self) -> tuple[object, ...]:
        divisors = () if self.divisors is None else tuple(axis.tobytes() for axis in self.divisors)
        return (self.shape, self.axis, self.windows, self.batch, divisors)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pool):
            return NotImplemented
        return self is other or (self._hash == other._hash and self._identity() == other._identity())

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return (Pool, (self.shape, self.axis, self.windows, self.batch, self.divisors))

    def __repr__(self) -> str:
        divided = "" if self.divisors is None else f", divisors={[axis.tolist() for axis in self.divisors]}"
        return f"Pool({self.shape} -> {self.out_shape}, windows={list(self.windows)}{divided})"


def _checked_divisors(
    windows: tuple[Windows, ...], divisors: Sequence[Sequence[int] | Int64Array]
) -> tuple[Int64Array, ...]:
    if len(divisors) != len(windows):
        checks.refuse("divisors", divisors, f"{len(windows)} lists, one per spatial axis")
    axes = [checks.int64_array(f"divisors[{i}]", axis) for i, axis in enumerate(divisors)]
    largest = 1
    for i, (w, axis) in enumerate(zip(windows, axes, strict=True)):
        if axis.shape != (w.count,):
            checks.refuse(f"divisors[{i}]", axis, f"{w.count} integers, one per window")
        if not axis.all():
            checks.refuse(f"divisors[{i}]", axis, "no zero")
        largest *= max(abs(int(axis.min())), abs(int(axis.max()))) if axis.size else 1
    if largest > INT64_MAX:
        checks.refuse("divisors", divisors, "products that 64 bits hold")
    return tuple(map(_read_only, axes))


def spatial_axes(layout: str) -> range:
    """Where the spatial axes of a layout are.

    >>> spatial_axes("NCDHW"), spatial_axes("HWC"), spatial_axes("ZYX")
    (range(2, 5), range(0, 2), range(0, 3))
    """
    if not isinstance(layout, str):
        checks.refuse_type("layout", layout, "a string such as 'NHWC'")
    return _spatial_axes(layout)


@lru_cache(maxsize=256)
def _spatial_axes(layout: str) -> range:
    start = len(layout) - len(layout.removeprefix("N"))
    stop = len(layout)
    if layout.startswith("C", start):
        start += 1
    elif layout.endswith("C"):
        stop -= 1
    spatial = layout[start:stop]
    if not spatial.isalpha() or len(set(layout)) < len(layout) or set(spatial) & set("NCnc"):
        checks.refuse("layout", layout, "letters for distinct axes; N comes first, C last or after N, both as capitals")
    if len(spatial) > MAX_AXES:
        checks.refuse("layout", layout, f"at most {MAX_AXES} spatial axes")
    return range(start, stop)


def _smallest_unsigned(values: int) -> np.dtype[Any]:
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        if values - 1 <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise InvalidArgument(f"windows of {values} elements are beyond 64-bit arithmetic")


def _read_only(array: Int64Array) -> Int64Array:
    array.flags.writeable = False
    return array


def _frozen(array: Int64Array | None) -> Int64Array | None:
    return None if array is None else _read_only(np.ascontiguousarray(array, np.int64).copy())
