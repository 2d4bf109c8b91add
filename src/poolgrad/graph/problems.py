"""What can be wrong with a page, said so that an editor can show it at the block: errors, and problems as values.

An error refuses an action and leaves everything as it was. A `Problem` is a remark on a block that stays on the page:
a pin that is not wired yet, a text that cannot be read, shapes that do not fit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import InvalidArgument, PoolgradError


class Problem(NamedTuple):
    """Something wrong with one block; `place` is its pin or attribute, `position` a character of the attribute's text.

    >>> print(Problem("pool", "ksize", "expected an integer"))
    pool.ksize: expected an integer
    """

    block: str
    place: str | None
    message: str
    position: int | None = None
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.block}{'.' + self.place if self.place else ''}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return self._asdict()


class PageError(PoolgradError, ValueError):
    """A page, or a change to one, is refused. `line` and `column` count from 1, `path` is where in the file it is."""

    def __init__(
        self, reason: str, *, line: int | None = None, column: int | None = None, path: str = "", source: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line, self.column, self.path, self.source = line, column, path, source

    def __str__(self) -> str:
        place = [self.source] * bool(self.source) + [f"line {self.line}"] * (self.line is not None)
        return ", ".join(place) + ": " * bool(place) + self.reason


class TextError(InvalidArgument):
    """An attribute's text cannot be read. `position` is the offending character, counted from 0.

    >>> print(TextError("expected a number", "1,2,x", 4))
    expected a number at character 5:
        1,2,x
            ^
    """

    def __init__(self, problem: str, text: str, position: int, *, argument: str | None = None) -> None:
        shown = "".join(c if c.isprintable() else " " for c in text)
        from_, to = max(0, position - 60), position + 60
        at = f"{problem} at character {position + 1}:\n    {shown[from_:to]}\n    {' ' * (position - from_)}^"
        super().__init__(at, argument=argument, given=text)
        self.problem = problem
        self.text = text
        self.position = position


class BlockError(PoolgradError):
    """A block failed; `problem` says where and why, `cause` is what its operator raised."""

    def __init__(self, problem: Problem, cause: BaseException | None = None) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.block = problem.block
        self.cause = cause


class Cancelled(PoolgradError):
    """The run was stopped before it was done."""


class EngineError(PoolgradError):
    """An engine cannot be used here; the message says what is missing."""
