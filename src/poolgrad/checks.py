"""What callers hand in, turned into plain Python values or refused with an error that names the argument.

Integers may be Python or NumPy integers of any size; a bool or a float is not an integer, however whole it looks.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import InvalidArgument, InvalidType

Int64Array: TypeAlias = npt.NDArray[np.int64]

INT64_MAX = 2**63 - 1
LONGEST_INTEGER = 128
"""Bits of the longest integer that is taken for a number at all: far beyond every axis, but quick to print and add."""


def shown(value: object) -> str:
    """A short form of any value, for messages.

    >>> shown([1, 2, 2, 1]), shown(np.zeros((2, 3))), shown("x" * 99)
    ('[1, 2, 2, 1]', 'float64 array of shape (2, 3)', "'xxxxxxxxxxxx...xxxxxxxxxxxxx'")
    """
    try:
        if hasattr(value, "shape") and hasattr(value, "dtype") and value.shape != ():
            return f"{value.dtype} array of shape {tuple(value.shape)}"
        return _repr.repr(value)
    except Exception:  # a value whose repr fails must not hide the error that it caused
        return f"a value of type {type(value).__name__}"


def refuse_type(name: str, given: object, expected: str) -> NoReturn:
    """Says that `name` is of the wrong kind."""
    problem = f"{name} is {shown(given)}, expected {expected}"
    raise InvalidType(problem, argument=name, given=given, expected=expected)


def refuse(name: str, given: object, expected: str) -> NoReturn:
    """Says that `name` has an impossible value."""
    problem = f"{name} is {shown(given)}, expected {expected}"
    raise InvalidArgument(problem, argument=name, given=given, expected=expected)


def integer(name: str, value: object, at_least: int | None = None) -> int:
    """The value as a Python int.

    >>> integer("stride", np.int32(2))
    2
    >>> integer("stride", 2.0)
    Traceback (most recent call last):
    poolgrad.errors.InvalidType: stride is 2.0, expected an integer
    """
    if isinstance(value, bool):
        refuse_type(name, value, "an integer")
    try:
        result = operator.index(value)  # type: ignore[arg-type]
    except Exception:
        refuse_type(name, value, "an integer")
    if result.bit_length() > LONGEST_INTEGER:
        refuse(name, result, f"an integer of at most {LONGEST_INTEGER} bits")
    if at_least is not None and result < at_least:
        refuse(name, result, f"an integer of at least {at_least}")
    return result


def integers(name: str, value: object, at_least: int | None = None) -> tuple[int, ...]:
    """A list, a tuple or a one-dimensional array of integers as a tuple of Python ints.

    >>> integers("strides", np.array([1, 2]))
    (1, 2)
    """
    return tuple(integer(f"{name}[{i}]", item, at_least) for i, item in enumerate(_items(name, value, "integers")))


def flat_integers(name: str, value: object) -> tuple[int, ...]:
    """As `integers`, but the shape does not matter: a 2x2 array is four integers."""
    nested = isinstance(value, (list, tuple)) and any(isinstance(item, (list, tuple)) for item in value)
    if nested or rank(value) > 1:
        value = int64_array(name, value).ravel()
    return integers(name, value)


def rank(value: object) -> int:
    """How many dimensions a value has; 0 for what is no array."""
    try:
        return operator.index(np.ndim(value))  # type: ignore[arg-type]
    except Exception:  # ragged lists, arrays of other libraries that cannot be read
        return 0


def int64_array(name: str, value: object) -> Int64Array:
    """Integers of any shape as a new int64 array."""
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, tuple)) for item in value):
        value = list(integers(name, value))
    try:
        array = np.array(value)
        if array.dtype.kind in "iu" or array.size == 0:
            if array.dtype == np.uint64 and array.size and int(array.max()) > INT64_MAX:
                raise OverflowError
            return array.astype(np.int64)
    except OverflowError:
        refuse(name, value, "integers that fit 64 bits")
    except Exception:  # ragged lists, arrays of other libraries that cannot be read
        refuse_type(name, value, "an array of integers")
    if isinstance(value, list):
        refuse(name, value, "integers that fit 64 bits")
    refuse_type(name, value, "an array of integers")


def number(name: str, value: object, finite: bool = True) -> float:
    """A real number as a float."""
    if isinstance(value, (bool, np.bool_, str, bytes)):
        refuse_type(name, value, "a number")
    try:
        result = float(value)  # type: ignore[arg-type]
    except OverflowError:
        refuse(name, value, "a number that a float can hold")
    except Exception:
        refuse_type(name, value, "a number")
    if math.isnan(result) or (finite and math.isinf(result)):
        refuse(name, value, "a finite number")
    return result


def numbers(name: str, value: object) -> tuple[float, ...]:
    """A list, a tuple or a one-dimensional array of numbers as a tuple of floats."""
    return tuple(number(f"{name}[{i}]", item) for i, item in enumerate(_items(name, value, "numbers")))


def flag(name: str, value: object) -> bool:
    """True or False, nothing that merely counts as such."""
    if not isinstance(value, (bool, np.bool_)):
        refuse_type(name, value, "True or False")
    return bool(value)


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """One of the allowed words, spelled exactly.

    >>> choice("padding", "same", ("SAME", "VALID"))
    Traceback (most recent call last):
    poolgrad.errors.InvalidArgument: padding is 'same', expected one of 'SAME', 'VALID'
    """
    expected = "one of " + ", ".join(map(repr, allowed))
    if not isinstance(value, str):
        refuse_type(name, value, expected)
    if value not in allowed:
        refuse(name, value, expected)
    return str(value)


def dtype_name(name: str, value: object, allowed: Sequence[str]) -> str:
    """The name of a dtype given as a name, a NumPy type or a NumPy dtype."""
    try:
        given = np.dtype(value).name if value is not None else None  # type: ignore[call-overload]
    except Exception:
        given = None
    if given not in allowed:
        refuse_type(name, value, "one of " + ", ".join(map(repr, allowed)))
    return str(given)


def _items(name: str, value: object, of_what: str) -> Sequence[Any]:
    if isinstance(value, (list, tuple, range)):
        return value
    try:
        array = np.asarray(value) if hasattr(value, "shape") else None
    except Exception:  # arrays of other libraries may refuse to be read
        array = None
    if array is None or array.ndim != 1:
        refuse_type(name, value, f"a list of {of_what}")
    return list(array) if array.dtype.kind in "iufb" else array.tolist()


_repr = reprlib.Repr()
_repr.maxlist = _repr.maxtuple = 12
_repr.maxlong = 45
