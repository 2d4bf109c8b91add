"""Attributes as the texts that blocks show: `1,2,2,2,1`, `SAME`, `data_format_ = NDHWC;seed_ = 7;`.

Lists may stand in brackets or braces, words in quotes; an option's name may end in an underscore, as in C++.
What cannot be read is refused at the offending character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from .problems import TextError
from .values import Values

_NUMBER: Final = re.compile(
    r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE
)
_NAME: Final = re.compile(r"[A-Za-z]\w*")
_OPEN: Final = {"[": "]", "{": "}", "(": ")"}
_DEEPEST: Final = 32


class Reader:
    """A text with a position in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def refuse(self, problem: str, at: int | None = None) -> TextError:
        """The error that points at a character: the next one, if nothing else is said."""
        return TextError(problem, self.text, self.at if at is None else at)

    def skip(self) -> str:
        """Goes past spaces; the next character, or an empty string at the end."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def take(self, pattern: re.Pattern[str]) -> str | None:
        """What matches here, if anything does."""
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found.group()

    def expect_end(self) -> None:
        """Refuses whatever is left."""
        if self.skip():
            raise self.refuse("expected nothing more")

    def number(self, whole: bool = False) -> int | float:
        """A number; with `whole` an integer."""
        self.skip()
        begin = self.at
        found = self.take(_NUMBER)
        expected = "an integer" if whole else "a number"
        if found is None:
            raise self.refuse(f"expected {expected}")
        try:
            return -0.0 if found == "-0" and not whole else int(found)
        except ValueError:
            if whole:
                raise self.refuse(f"expected {expected}", begin) from None
            return float(found)

    def items(self, read: Callable[[], Any]) -> list[Any]:
        """A list, with or without brackets."""
        closing = _OPEN.get(self.skip(), "")
        self.at += bool(closing)
        found: list[Any] = []
        while self.skip() != closing:
            if found:
                self.comma(closing)
            found.append(read())
        self.at += bool(closing)
        return found

    def comma(self, closing: str) -> None:
        """Goes past the comma between two items."""
        if self.skip() != ",":
            raise self.refuse(f"expected a comma{' or ' + closing if closing else ''}")
        self.at += 1

    def nested(self, depth: int = 0) -> Any:
        """A number or a bracketed list of such."""
        if depth > _DEEPEST:
            raise self.refuse("the lists are nested too deeply")
        if self.skip() in _OPEN:
            return self.items(lambda: self.nested(depth + 1))
        word = self.take(re.compile("true|false", re.IGNORECASE))
        return word.lower() == "true" if word else self.number()

    def array(self) -> Any:
        """Numbers in nested lists; the outermost brackets may be left out."""
        found = [self.nested()]
        while self.skip() == ",":
            self.at += 1
            found.append(self.nested())
        return found[0] if len(found) == 1 else found


def _flag(reader: Reader) -> bool:
    word = reader.take(_NAME) or ""
    if word.lower() not in ("true", "false"):
        raise reader.refuse("expected true or false", reader.at - len(word))
    return word.lower() == "true"


def _word(reader: Reader, choices: tuple[str, ...]) -> str:
    begin = reader.at
    word = _unquoted(reader.text[begin:].strip())
    reader.at = len(reader.text)
    if choices and word not in choices:
        offset = len(reader.text) - len(reader.text[begin:].lstrip())
        raise reader.refuse(f"expected one of {', '.join(c for c in choices if c)}", offset)
    return word


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word


def parse(kind: str, text: str, choices: tuple[str, ...] = ()) -> Any:
    """The value that a text means, for an attribute of this kind.

    >>> parse("ints", "1,2,2,1"), parse("floats", "{1.0, 1.44}"), parse("bool", "true"), parse("string", '"SAME"')
    ((1, 2, 2, 1), (1.0, 1.44), True, 'SAME')
    >>> parse("ints", "1,2,,1")
    Traceback (most recent call last):
    poolgrad.graph.problems.TextError: expected an integer at character 5:
        1,2,,1
            ^
    """
    reader = Reader(text)

    def lists() -> tuple[int, ...]:
        return tuple(reader.items(lambda: reader.number(whole=True)))

    readers: Mapping[str, Callable[[], Any]] = {
        "floats": lambda: tuple(reader.items(reader.number)),
        "int": lambda: reader.number(whole=True),
        "float": reader.number,
        "bool": lambda: _flag(reader),
        "array": lambda: Values(reader.array()),
        "string": lambda: _word(reader, choices),
        "type": lambda: _word(reader, choices),
        "file": lambda: _word(reader, ()),
    }
    value = readers.get(kind, lists)()
    reader.expect_end()
    return value


def options(text: str) -> list[tuple[str, int, str]]:
    """The options of an `attrs` text: name, where its value begins, and the value's text.

    >>> options("pseudo_random_ = false; seed_ = 7;")
    [('pseudo_random', 17, 'false'), ('seed', 32, '7')]
    """
    reader = Reader(text)
    found: list[tuple[str, int, str]] = []
    while reader.skip():
        begin = reader.at
        name = reader.take(_NAME)
        if name is None:
            raise reader.refuse("expected the name of an option")
        if reader.skip() != "=":
            raise reader.refuse("expected =")
        reader.at += 1
        reader.skip()
        where, end = reader.at, _end_of_value(text, reader.at)
        name = name.removesuffix("_")
        if any(name == other for other, _, _ in found):
            raise reader.refuse(f"{name} is given twice", begin)
        found.append((name, where, text[where:end].rstrip()))
        reader.at = end + 1
    return found


def _end_of_value(text: str, begin: int) -> int:
    quote = text[begin : begin + 1]
    if quote and quote in "\"'" and quote in text[begin + 1 :]:
        begin = text.index(quote, begin + 1)
    end = text.find(";", begin)
    return len(text) if end < 0 else end


def written(value: Any) -> str:
    """A value as its block shows it.

    >>> written((1, 2, 2, 1)), written(False), written("SAME"), written(Values([[1, 2]]))
    ('1,2,2,1', 'false', 'SAME', '[[1, 2]]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Values):
        return str(value.to_json()).replace("'", "")
    if isinstance(value, (list, tuple)):
        return ",".join(map(written, value))
    return str(value)
