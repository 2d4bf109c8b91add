"""Which element wins a maximum: the two questions on which pooling libraries disagree, answered once.

`ties`  "first": the first of equal maxima in scan order; "all": each gets the whole gradient; "split": shared equally
`nan`   "propagate": a NaN wins its window; "ignore": a NaN never wins, but a window of nothing else is NaN

The raw operators have TensorFlow's signatures, which know neither; they follow the policy in force:

>>> import numpy as np, poolgrad as pg
>>> x = np.array([3, 1, np.nan, 2], np.float32).reshape(1, 1, 4, 1)
>>> args = dict(input=x, ksize=[1, 1, 2, 1], strides=[1, 1, 2, 1], padding="VALID")
>>> pg.raw_ops.MaxPool(**args).ravel()
array([ 3., nan], dtype=float32)
>>> with pg.policy(nan="ignore"):
...     pg.raw_ops.MaxPool(**args).ravel()
array([3., 2.], dtype=float32)

A policy belongs to the thread or the asyncio task that entered it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Final, NamedTuple

from .errors import InvalidArgument

TIES: Final = ("first", "all", "split")
NANS: Final = ("propagate", "ignore")


class Policy(NamedTuple):
    """A pair of answers.

    >>> Policy()
    Policy(ties='first', nan='propagate')
    """

    ties: str = "first"
    nan: str = "propagate"


_DEFAULT = Policy()
_active: ContextVar[Policy] = ContextVar("poolgrad.policy", default=_DEFAULT)

_shared = lru_cache(Policy)  # so that calls made under equal policies can tell by the object

current = _active.get
"""The policy in force here: `current() -> Policy`."""


def resolve(ties: str | None = None, nan: str | None = None) -> Policy:
    """The policy in force, with the given answers in place of its own.

    >>> resolve(nan="ignore")
    Policy(ties='first', nan='ignore')
    >>> resolve(ties="last")
    Traceback (most recent call last):
    poolgrad.errors.InvalidArgument: ties is 'last', expected one of 'first', 'all', 'split'
    """
    active = current()
    if ties is None and nan is None:
        return active
    return _shared(_one_of("ties", ties, TIES, active.ties), _one_of("nan", nan, NANS, active.nan))


@contextmanager
def policy(ties: str | None = None, nan: str | None = None) -> Iterator[Policy]:
    """Inside the block the given answers hold; what is not given stays as it was outside.

    >>> with policy(ties="split"):
    ...     with policy(nan="ignore"):
    ...         current()
    Policy(ties='split', nan='ignore')
    >>> current()
    Policy(ties='first', nan='propagate')
    """
    chosen = resolve(ties, nan)
    token = _active.set(chosen)
    try:
        yield chosen
    finally:
        _active.reset(token)


def _one_of(name: str, given: str | None, allowed: tuple[str, ...], otherwise: str) -> str:
    if given is None:
        return otherwise
    if not (isinstance(given, str) and given in allowed):
        choices = ", ".join(map(repr, allowed))
        raise InvalidArgument(
            f"{name} is {given!r}, expected one of {choices}", argument=name, given=given, expected=allowed
        )
    return given
