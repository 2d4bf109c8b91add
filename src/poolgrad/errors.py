"""Every error poolgrad raises. Whatever a caller does wrong ends in one of these, before anything large is allocated.

An error says which operator refused which argument, what was given and what was expected, in its message and as
attributes. Code that checks a value rarely knows the operator it works for, so the name is added on the way up:

>>> with within("MaxPool"):
...     raise InvalidArgument("ksize must be positive", argument="ksize", given=(1, 0, 2, 1))
Traceback (most recent call last):
poolgrad.errors.InvalidArgument: MaxPool: ksize must be positive
"""

from __future__ import annotations

from types import TracebackType


class PoolgradError(Exception):
    """What all errors of poolgrad have in common.

    >>> error = InvalidArgument("ksize must be positive", operator="MaxPool", argument="ksize", given=(1, 0, 2, 1))
    >>> str(error), error.argument, error.given
    ('MaxPool: ksize must be positive', 'ksize', (1, 0, 2, 1))
    """

    def __init__(
        self,
        problem: str,
        *,
        operator: str | None = None,
        argument: str | None = None,
        given: object = None,
        expected: object = None,
    ) -> None:
        super().__init__(problem)
        self.operator = operator
        self.argument = argument
        self.given = given
        self.expected = expected

    def __str__(self) -> str:
        problem = super().__str__()
        return problem if self.operator is None else f"{self.operator}: {problem}"


class InvalidArgument(PoolgradError, ValueError):
    """An argument has a value, a shape or a length that the operator cannot take."""


class InvalidType(PoolgradError, TypeError):
    """An argument is of the wrong kind: a float for an integer, an array of objects, two dtypes that differ."""


class OutOfMemory(PoolgradError, MemoryError):
    """The result is too large for this machine."""


class MissingKernels(PoolgradError, ImportError):
    """The compiled kernels that this needs are not installed."""


class Unfinished(PoolgradError, RuntimeError):
    """Parts of a long computation failed; everything else is done. `given` lists what failed, and why."""


class CompilerFault(PoolgradError, RuntimeError):
    """A compiler turned a kernel into one that would compute something else."""


class MissingLibrary(PoolgradError, ImportError):
    """A library that is needed here is not installed; the message says what to install."""


def named(operator: str, error: BaseException) -> BaseException:
    """The error as it should leave `operator`: with the operator's name, a bare `MemoryError` as `OutOfMemory`."""
    if isinstance(error, PoolgradError):
        error.operator = error.operator or operator
    elif isinstance(error, MemoryError):
        return OutOfMemory(str(error) or "the result cannot be allocated", operator=operator)
    return error


class within:
    """Names the operator in every error that leaves the block."""

    __slots__ = ("operator",)

    def __init__(self, operator: str) -> None:
        self.operator = operator

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and named(self.operator, error) is not error:
            raise named(self.operator, error) from None
