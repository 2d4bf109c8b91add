"""Looking at arrays of any size: small pictures, slices, cells, histograms, statistics, files.

What leaves here fits a screen. A plane that is larger is pooled down by poolgrad itself; an array is never sent whole.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

import poolgrad

from .frames import Message, number
from .problems import Refused

Array: TypeAlias = npt.NDArray[Any]

PICTURE: Final = 64
LARGEST_PLANE: Final = 1024
MOST_CELLS: Final = 10_000
MOST_ROWS: Final = 5_000
MOST_BINS: Final = 1_000
LONGEST_TEXT: Final = 200_000
LARGEST_CSV: Final = 5_000_000
_CHUNK: Final = 2**20


@dataclass(frozen=True)
class View:
    """A plane through an array: which axes run down and across (-1: none), and where all others stand."""

    axes: tuple[int, int]
    index: tuple[int, ...]

    def header(self) -> Message:
        """The view in a message."""
        return {"axes": list(self.axes), "index": list(self.index)}


# ---------------------------------------------------------------------------------------------------------------------
# Planes


def first_view(shape: Sequence[int]) -> View:
    """The plane to show first: the two longest axes (the batch left out where it can be), the others near their middle.

    >>> first_view((2, 3, 32, 32, 1))
    View(axes=(2, 3), index=(0, 0, 0, 0, 0))
    >>> first_view((5,)), first_view(())
    (View(axes=(-1, 0), index=(0,)), View(axes=(-1, -1), index=()))
    """
    rank = len(shape)
    if rank < 2:
        return View((-1, rank - 1), (0,) * rank)
    candidates = range(1 if rank > 3 else 0, rank)
    down, across = sorted(sorted(candidates, key=lambda axis: (shape[axis], axis))[-2:])
    index = [0 if axis in (0, down, across) or n <= 4 else n // 2 for axis, n in enumerate(shape)]
    return View((down, across), tuple(index))


def read_view(shape: Sequence[int], axes: object, index: object) -> View:
    """The view that a message asks for."""
    rank = len(shape)
    if axes is None:
        return first_view(shape)
    if not (isinstance(axes, list) and len(axes) == 2 and all(_is_int(a) and -1 <= a < rank for a in axes)):
        raise Refused("bad_request", f"axes {axes!r} are not two axes of an array with {rank}")
    if axes[0] == axes[1] != -1:
        raise Refused("bad_request", "down and across must be two different axes")
    index = [0] * rank if index is None else index
    if not (isinstance(index, list) and len(index) == rank and all(map(_is_int, index))):
        raise Refused("bad_request", f"index {index!r} is not one number per axis")
    for axis, (at, n) in enumerate(zip(index, shape, strict=True)):
        if axis not in axes and not 0 <= at < n:
            raise Refused("bad_request", f"index {at} is outside axis {axis} of length {n}")
    return View((axes[0], axes[1]), tuple(index))


def plane(array: Array, view: View) -> Array:
    """The two-dimensional plane, without a copy."""
    down, across = view.axes
    picked = array[tuple(slice(None) if axis in view.axes else at for axis, at in enumerate(view.index))]
    if picked.ndim == 0:
        return picked.reshape(1, 1)
    if picked.ndim == 1:
        return picked[None, :] if across != -1 else picked[:, None]
    return picked if down < across else picked.T


def pooled(values: Array, largest: tuple[int, int], reduce: str = "mean") -> tuple[Array, str]:
    """A plane as float32, no larger than asked for, and how it was made smaller.

    >>> pooled(np.arange(16).reshape(4, 4), (2, 4), "max")
    (array([[ 4.,  5.,  6.,  7.],
           [12., 13., 14., 15.]], dtype=float32), 'max')
    """
    target = [min(n, most) for n, most in zip(values.shape, largest, strict=True)]
    with np.errstate(all="ignore"):
        plain = np.ascontiguousarray(values.real if values.dtype.kind == "c" else values, dtype=np.float32)
    if plain.shape == tuple(target) or 0 in plain.shape:
        return plain, "none"
    if reduce == "min":
        return -poolgrad.adaptive_max_pool(-plain, target, layout="HW"), "min"
    pool = poolgrad.adaptive_max_pool if reduce == "max" else poolgrad.adaptive_avg_pool
    return pool(plain, target, layout="HW"), reduce


def slice_of(array: Array, ask: Message) -> tuple[Message, Array]:
    """A plane, or a part of one, for the screen."""
    view = read_view(array.shape, ask.get("axes"), ask.get("index"))
    whole = plane(array, view)
    rows, columns = region(ask.get("rows"), whole.shape[0]), region(ask.get("columns"), whole.shape[1])
    largest = _largest(ask.get("max"))
    reduce = ask.get("reduce", "mean")
    if reduce not in ("mean", "max", "min"):
        raise Refused("bad_request", f"a plane is reduced by mean, max or min, not by {reduce!r}")
    values, how = pooled(whole[slice(*rows), slice(*columns)], largest, reduce)
    header = view.header() | {"rows": rows, "columns": columns, "reduce": how, "range": finite_range(values)}
    return header, values


def cells(array: Array, ask: Message) -> Message:
    """The exact texts of a part of a plane."""
    view = read_view(array.shape, ask.get("axes"), ask.get("index"))
    whole = plane(array, view)
    rows, columns = region(ask.get("rows"), whole.shape[0]), region(ask.get("columns"), whole.shape[1])
    if (rows[1] - rows[0]) * (columns[1] - columns[0]) > MOST_CELLS:
        raise Refused("too_large", f"at most {MOST_CELLS} cells at a time")
    part = whole[slice(*rows), slice(*columns)]
    return {"rows": rows, "columns": columns, "values": [texts(row) for row in part]}


def table(array: Array, ask: Message) -> Message:
    """Elements in C order, as texts."""
    start, count = ask.get("start", 0), ask.get("count", 100)
    if not (_is_int(start) and _is_int(count) and start >= 0 and 0 <= count <= MOST_ROWS):
        raise Refused("bad_request", f"start must be at least 0, count at most {MOST_ROWS}")
    return {"start": start, "values": texts(flat_part(array, start, start + count)), "total": array.size}


def flat_part(array: Array, start: int, stop: int) -> Array:
    """Elements [start, stop) in C order; a copy no larger than that."""
    stop = min(stop, array.size)
    if start >= stop:
        return array.reshape(-1)[:0] if array.flags.c_contiguous else np.empty(0, array.dtype)
    if array.flags.c_contiguous:
        return array.reshape(-1)[start:stop]
    return np.asarray(array[np.unravel_index(np.arange(start, stop), array.shape)])


def texts(values: Array) -> list[str]:
    """Numbers as they would be typed: exact, in their own precision.

    >>> texts(np.array([1, 0.1, np.nan], np.float32))
    ['1.0', '0.1', 'nan']
    """
    if values.dtype.kind in "fiub" and values.dtype.itemsize != 2:
        return [str(value) for value in (values.tolist() if values.dtype != np.float32 else values)]
    return [str(value) for value in values]


def region(given: object, n: int) -> list[int]:
    """A range of rows or columns, cut to what there is."""
    if given is None:
        return [0, n]
    if not (isinstance(given, list) and len(given) == 2 and all(map(_is_int, given))):
        raise Refused("bad_request", f"a region is [from, to], not {given!r}")
    start = min(max(given[0], 0), n)
    return [start, min(max(given[1], start), n)]


def finite_range(values: Array) -> list[Any] | None:
    """The smallest and the largest finite value; None if there is none."""
    if values.size == 0:
        return None
    low, high = values.min(), values.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        finite = values[np.isfinite(values)]
        if finite.size == 0:
            return None
        low, high = finite.min(), finite.max()
    return [number(low.item()), number(high.item())]


def _largest(given: object) -> tuple[int, int]:
    if given is None:
        return 512, 512
    if not (isinstance(given, list) and len(given) == 2 and all(_is_int(n) and n >= 1 for n in given)):
        raise Refused("bad_request", f"max is [rows, columns], not {given!r}")
    return min(given[0], LARGEST_PLANE), min(given[1], LARGEST_PLANE)


# ---------------------------------------------------------------------------------------------------------------------
# Statistics


def statistics(array: Array) -> Message:
    """Count, range, mean, deviation and oddities, in one pass over memory."""
    total, mean, squares = 0, 0.0, 0.0
    low, high = np.inf, -np.inf
    odd = {"nan": 0, "inf": 0, "zeros": 0}
    for chunk in _chunks(array):
        odd["zeros"] += chunk.size - int(np.count_nonzero(chunk))
        values = chunk.astype(np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            odd["nan"] += int(np.isnan(values).sum())
            odd["inf"] += int(np.isinf(values).sum())
            values = values[finite]
        if values.size == 0:
            continue
        low, high = min(low, values.min()), max(high, values.max())
        here = float(values.mean())
        deviations = values - here
        joined = total + values.size
        squares += float(deviations @ deviations) + (here - mean) ** 2 * total * values.size / joined
        mean += (here - mean) * values.size / joined
        total = joined
    if total == 0:
        return {"count": array.size, "min": None, "max": None, "mean": None, "std": None, **odd}
    exact = (lambda v: int(v)) if array.dtype.kind in "iub" and max(abs(low), abs(high)) < 2**53 else number
    spread = float(np.sqrt(squares / total))
    return {
        "count": array.size,
        "min": exact(low),
        "max": exact(high),
        "mean": number(mean),
        "std": number(spread),
        **odd,
    }


def all_statistics(array: Array) -> Message:
    """Also the median and where the extremes are."""
    found = statistics(array) | {"bytes": array.nbytes, "median": None, "argmin": None, "argmax": None}
    if found["min"] is None:
        return found
    sample = _sample(array, 2**22).astype(np.float64)
    found["median"] = number(float(np.median(sample[np.isfinite(sample)]))) if sample.size else None
    found["median_of_sample"] = sample.size < array.size
    for name, value in (("argmin", found["min"]), ("argmax", found["max"])):
        found[name] = _first(array, value)
    return found


def histogram(array: Array, ask: Message) -> Message:
    """How often values occur."""
    bins = ask.get("bins", 64)
    if not (_is_int(bins) and 1 <= bins <= MOST_BINS):
        raise Refused("bad_request", f"bins must be 1 to {MOST_BINS}")
    low, high = _histogram_range(array, ask.get("range"))
    edges = np.linspace(low, high, bins + 1)
    counts = np.zeros(bins, np.int64)
    odd = {"nan": 0, "below": 0, "above": 0}
    for chunk in _chunks(array):
        values = chunk.astype(np.float64)
        odd["nan"] += int(np.isnan(values).sum())
        odd["below"] += int((values < low).sum())
        odd["above"] += int((values > high).sum())
        counts += np.histogram(values[(values >= low) & (values <= high)], edges)[0]
    return {"edges": [number(edge) for edge in edges.tolist()], "counts": counts.tolist(), **odd}


def _histogram_range(array: Array, given: object) -> tuple[float, float]:
    if given is not None:
        if not (isinstance(given, list) and len(given) == 2 and all(isinstance(v, int | float) for v in given)):
            raise Refused("bad_request", "a range is [from, to]")
        low, high = float(given[0]), float(given[1])
    else:
        found = statistics(array)
        low, high = (0.0, 1.0) if found["min"] is None else (float(found["min"]), float(found["max"]))
    if not (np.isfinite(high - low) and low <= high):
        raise Refused("bad_request", f"there is no histogram from {low} to {high}")
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _chunks(array: Array) -> Iterator[Array]:
    for start in range(0, array.size, _CHUNK):
        yield flat_part(array, start, start + _CHUNK)


def _sample(array: Array, most: int) -> Array:
    step = -(-array.size // most)
    return (
        array.reshape(-1)[::step] if array.flags.c_contiguous else np.concatenate([c[::step] for c in _chunks(array)])
    )


def _first(array: Array, value: Any) -> list[int] | None:
    for number_of_chunk, chunk in enumerate(_chunks(array)):
        hits = np.flatnonzero(chunk == value)
        if hits.size:
            return [int(i) for i in np.unravel_index(number_of_chunk * _CHUNK + int(hits[0]), array.shape)]
    return None


# ---------------------------------------------------------------------------------------------------------------------
# The small picture beside a block, and files


def summary(array: Array, with_statistics: bool = True) -> tuple[Message, Array]:
    """What a block shows of its result: type, shape, range and a small heat map."""
    view = first_view(array.shape)
    whole = plane(array, view)
    values, how = pooled(whole, (PICTURE, PICTURE))
    picture = view.header() | {"rows": [0, whole.shape[0]], "columns": [0, whole.shape[1]], "reduce": how}
    stats = statistics(array) if with_statistics else None
    return {"dtype_of": str(array.dtype), "dims": list(array.shape), "stats": stats, "picture": picture}, values


def write_file(array: Array, ask: Message, folder: Path) -> tuple[Path, str]:
    """Writes the array, or the plane in view, as a file in `folder`; its path and the ending of its name."""
    kind = ask.get("format")
    path = folder / f"download.{kind}"
    if kind == "npy":
        np.save(path, array, allow_pickle=False)
    elif kind == "csv":
        if array.size > LARGEST_CSV:
            raise Refused("too_large", f"a .csv holds at most {LARGEST_CSV} numbers here; take the .npy")
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(csv_rows(array))
    elif kind == "png":
        from .pictures import write_png

        write_png(path, plane(array, read_view(array.shape, ask.get("axes"), ask.get("index"))), ask.get("colormap"))
    else:
        raise Refused("bad_request", f"there is no format {kind!r}: npy, csv or png")
    return path, str(kind)


def csv_rows(array: Array) -> Iterator[list[Any]]:
    """A row for every line of the last axis, with the index of the others in front where there are more than two."""
    if array.ndim < 2:
        yield from ([text] for text in texts(array.reshape(-1)))
        return
    for at in np.ndindex(array.shape[:-1]):
        yield [*(at if array.ndim > 2 else ()), *texts(array[at])]


def as_text(array: Array, ask: Message, name: str) -> Message:
    """The array as text for the clipboard."""
    kind = ask.get("format", "list")
    most = min(ask["limit"], LONGEST_TEXT) if _is_int(ask.get("limit")) else 20_000
    if kind == "list":
        lines = (
            f"{name}{''.join(f'[{i}]' for i in np.unravel_index(at, array.shape))}\t{text}"
            for at, text in enumerate(texts(flat_part(array, 0, most)))
        )
        return {"text": "\n".join(lines), "truncated": array.size > most}
    if array.size > most:
        raise Refused("too_large", f"{array.size} numbers are more than the clipboard should hold; download them")
    if kind == "csv":
        out = io.StringIO()
        csv.writer(out).writerows(csv_rows(array))
        return {"text": out.getvalue(), "truncated": False}
    if kind == "python":
        return {"text": _python_text(array), "truncated": False}
    raise Refused("bad_request", f"there is no format {kind!r}: list, csv or python")


def _python_text(array: Array) -> str:
    """An expression with exactly this value.

    >>> _python_text(np.array([0.1, np.inf]))
    'np.array([0.1, np.inf], dtype="float64")'
    """
    if array.size == 0:
        return f'np.empty({array.shape}, dtype="{array.dtype}")'
    words = {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}
    body = np.array2string(
        array, separator=", ", threshold=array.size + 1, max_line_width=120,
        formatter={"all": lambda value: words.get(str(value), str(value))},
    )  # fmt: skip
    return f'np.array({body}, dtype="{array.dtype}")'


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
