"""Keys and bounds for what is worked out once and found again.

Equal is not enough for a key: 1, True and 1.0 are equal, yet only the first is an integer that a window can have.
`exact` therefore keys plain values by their marshalled bytes, which tell them apart and are quick to make.
"""

from __future__ import annotations

from marshal import dumps
from typing import Any, Final, TypeVar

_V = TypeVar("_V")

MOST_KEPT: Final = 4096
"""How many entries a cache may have."""

LONGEST_KEPT: Final = 4096
"""How long an array may be to be part of what is kept."""


def exact(values: Any) -> bytes:
    """A key for plain values; ValueError for what cannot be one. Only `plain` values make a key that is theirs alone.

    >>> exact((1, [2, 3])) == exact((1, [2, 3])), exact((1,)) == exact((True,))
    (True, False)
    """
    return dumps(values, 2)


def plain(value: object) -> bool:
    """Whether a value is made of nothing but Python's own numbers, strings, lists and tuples."""
    if type(value) in (list, tuple):
        return all(map(plain, value))  # type: ignore[call-overload]
    return value is None or type(value) in (int, float, bool, str)


def keep(cache: dict[Any, _V], key: Any, value: _V) -> _V:
    """Keeps the value under the key. A full cache forgets everything: simple, safe between threads, and rare."""
    if len(cache) >= MOST_KEPT:
        cache.clear()
    cache[key] = value
    return value
