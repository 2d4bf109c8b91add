"""The values that travel through a graph: what is known of a tensor before the run, dtypes, and constants.

A `Spec` never says more than is certain: an unknown dimension or dtype is None, and stays None until the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from .. import catalog
from ..errors import InvalidArgument, InvalidType, PoolgradError

DTYPES: Final = (*catalog.DTYPES, "bool")
"""The dtypes of tensors on a page."""

FLOATING: Final = tuple(name for name in DTYPES if "float" in name)

Dims: TypeAlias = tuple[int | None, ...]
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

MOST_KNOWN: Final = 4096
"""How many values of a tensor inference keeps: shapes, axes, the cells of fractional pooling."""


class Spec(NamedTuple):
    """What is known of a tensor: its shape (None: not even the rank), its dtype, and of short lists of integers the
    values.

    >>> Spec((1, None, 4), "float32").text()
    'float32 [1, ?, 4]'
    """

    shape: Dims | None = None
    dtype: str | None = None
    value: Dims | None = None

    @property
    def known(self) -> bool:
        """Whether nothing is open."""
        return self.dtype is not None and self.shape is not None and None not in self.shape

    def text(self) -> str:
        """The short form that stands on a wire."""
        dims = "?" if self.shape is None else ", ".join("?" if n is None else str(n) for n in self.shape)
        return f"{self.dtype or '?'} [{'...' if self.shape is None else dims}]"

    def elements(self) -> int:
        """How many elements it has, as far as that is known."""
        return 0 if self.shape is None else math.prod(n or 0 for n in self.shape)

    def bytes(self) -> int:
        """The memory it takes, as far as that is known."""
        return self.elements() * itemsize(self.dtype or "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        shape = None if self.shape is None else list(self.shape)
        return {"shape": shape, "dtype": self.dtype, "text": self.text()}


def itemsize(dtype: str) -> int:
    """Bytes per element.

    >>> itemsize("bfloat16"), itemsize("bool")
    (2, 1)
    """
    return catalog.DTYPES.get(dtype, 1)


def shown_bytes(size: int) -> str:
    """A number of bytes as a person reads it.

    >>> shown_bytes(3 * 2**29), shown_bytes(17)
    ('1.5 GiB', '17 bytes')
    """
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size} bytes"


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name; bfloat16 is ml_dtypes'."""
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise InvalidType("bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from None
        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(name)


class Values:
    """The numbers of a constant: an array that does not change, with its digest worked out once.

    >>> Values([[1, 2], [3, 4]]).to_json()
    [[1, 2], [3, 4]]
    >>> Values(np.array([0.1, -0.0, np.nan], np.float32)).to_json()
    [0.1, '-0', 'nan']
    """

    def __init__(self, numbers: object) -> None:
        self.array = read_only(_own_copy(numbers) if isinstance(numbers, np.ndarray) else _from_lists(numbers))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Values({self.array.dtype} {list(self.array.shape)})"

    @cached_property
    def digest(self) -> str:
        """Tells two arrays apart by dtype, shape and bits."""
        return digest_of(self.array)

    def identity(self, dtype: str) -> str:
        """Tells two constants of this dtype apart: 1 and 1.0 are the same there."""
        try:
            return digest_of(self.cast(dtype))
        except PoolgradError:
            return self.digest

    def to_json(self) -> Any:
        """Nested lists. Numbers that JSON or a browser would change are written as texts."""
        return _to_lists(self.array)

    def cast(self, dtype: str, shape: Sequence[int] = ()) -> Array:
        """The constant: in its dtype, and in its shape, which a single value fills."""
        numbers = self.array
        target = numpy_dtype(dtype)
        result = numbers if numbers.dtype == target else _converted(numbers, dtype, target)
        if not shape or tuple(shape) == result.shape:
            return read_only(result)
        if result.size == 1:
            return read_only(np.broadcast_to(result.reshape(()), tuple(shape)))
        if math.prod(shape) != result.size:
            problem = f"shape {list(shape)} has {math.prod(shape)} elements, but value has {result.size}"
            raise InvalidArgument(problem, argument="shape", given=shape)
        return read_only(result.reshape(shape))


def digest_of(array: Array) -> str:
    """A digest of dtype, shape and contents."""
    found = blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def read_only(array: Array) -> Array:
    """The same memory, not to be written to through this array."""
    view: Array = array.view()
    view.flags.writeable = False
    return view


def _own_copy(array: Array) -> Array:
    if array.dtype.name not in DTYPES:
        problem = f"value has dtype {array.dtype}, expected one of {', '.join(DTYPES)}"
        raise InvalidType(problem, argument="value", given=array.dtype)
    return array.astype(array.dtype.newbyteorder("="))


def _from_lists(numbers: object) -> Array:
    """An array of float64, int64, uint64 or bool with exactly these numbers."""
    quick = _converted_at_once(numbers)
    return _converted_singly(numbers) if quick is None else quick


def _converted_at_once(numbers: object) -> Array | None:
    """What NumPy makes of the lists, if that is surely exact: no texts in them, no integers beyond what floats hold."""
    try:
        array = np.asarray(numbers)
    except (ValueError, OverflowError):
        return None
    whole = array.dtype in (np.int64, np.bool_)
    exact = array.dtype == np.float64 and array.size > 0 and np.abs(array).max() < 2**53
    return array if whole or exact else None


def _converted_singly(numbers: object) -> Array:
    shape = _shape(numbers)
    flat = [_number(n) for n in _flat(numbers)]
    exact = np.array(flat or [0.0], object)[: len(flat)].reshape(shape)
    if not flat or any(isinstance(n, float) for n in flat):
        return exact.astype(np.float64)
    if all(isinstance(n, bool) for n in flat):
        return exact.astype(np.bool_)
    low, high = min(flat), max(flat)
    if low >= -(2**63) and high < 2**63:
        return exact.astype(np.int64)
    if low >= 0 and high < 2**64:
        return exact.astype(np.uint64)
    raise InvalidArgument("value has integers that do not fit 64 bits", argument="value")


def _shape(numbers: object) -> tuple[int, ...]:
    if not isinstance(numbers, (list, tuple)):
        return ()
    inner = {_shape(n) for n in numbers} or {()}
    if len(inner) > 1:
        raise InvalidArgument("value has lists of different lengths side by side", argument="value")
    return (len(numbers), *inner.pop())


def _flat(numbers: object) -> Iterator[Any]:
    if isinstance(numbers, (list, tuple)):
        for n in numbers:
            yield from _flat(n)
    else:
        yield numbers


def _number(n: object) -> int | float | bool:
    if isinstance(n, (bool, int, float)):
        return n
    if isinstance(n, (np.integer, np.floating, np.bool_)):
        return n.item()
    if isinstance(n, str) and len(n) <= 400:
        for read in (int, float):
            try:
                return -0.0 if n.strip() == "-0" else read(n)
            except ValueError:
                continue
    raise InvalidArgument(f"value has {n!r}, expected a number", argument="value", given=n)


def _to_lists(array: Array) -> Any:
    if array.ndim == 0:
        return _to_number(array[()])
    return [_to_lists(part) for part in array] if array.ndim > 1 else [_to_number(n) for n in array]


def _to_number(n: Any) -> int | float | bool | str:
    if n.dtype.kind == "b":
        return bool(n)
    if n.dtype.kind in "iu":
        whole = int(n)
        return whole if abs(whole) <= 2**53 else str(whole)
    if n != n:
        return "nan"
    if n in (np.inf, -np.inf):
        return "inf" if n > 0 else "-inf"
    wide = float(n)
    if wide == 0:
        return "-0" if math.copysign(1, wide) < 0 else 0
    if wide.is_integer() and abs(wide) <= 2**53:
        return int(wide)
    short = float(str(n))
    return short if np.float64(short).astype(n.dtype) == n else wide


def _converted(numbers: Array, name: str, target: np.dtype[Any]) -> Array:
    """Refuses a number that the dtype cannot hold; fractions are rounded in floating dtypes only."""
    with np.errstate(all="ignore"):
        result = numbers.astype(target)
        if name in FLOATING:
            return result
        wrong = (result != numbers) | ((result < 0) != (numbers < 0)) if name != "bool" else result != numbers
    if np.any(wrong):
        first = numbers[wrong].flat[0]
        raise InvalidArgument(f"value has {first}, which {name} cannot hold", argument="value", given=first)
    return result
