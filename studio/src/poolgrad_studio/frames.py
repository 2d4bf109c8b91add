"""How messages look on the wire, between browser and server and between server and worker.

A message is a JSON object. A binary frame carries one as its header, and bytes behind it:

    header length (u32, little-endian) | header (UTF-8 JSON, padded with spaces) | payload from a multiple of 8 on

JSON has no NaN and no infinity; `number` writes them as words.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
Bytes: TypeAlias = bytes | bytearray | memoryview


class BadFrame(ValueError):
    """What arrived is not a message."""


def pack(header: Message, payload: Bytes = b"") -> bytes:
    """The binary frame of a message.

    >>> frame = pack({"type": "slice"}, b"12345678")
    >>> len(frame) % 8, unpack(frame)[0], bytes(unpack(frame)[1])
    (0, {'type': 'slice'}, b'12345678')
    """
    text = dumps(header).encode()
    text += b" " * (-(4 + len(text)) % 8)
    return b"".join((struct.pack("<I", len(text)), text, payload))


def unpack(frame: Bytes) -> tuple[Message, memoryview]:
    """The header and the payload of a binary frame."""
    view = memoryview(frame)
    if len(view) < 4:
        raise BadFrame("a binary frame begins with the length of its header")
    (length,) = struct.unpack_from("<I", view)
    if length > len(view) - 4:
        raise BadFrame(f"a header of {length} bytes does not fit a frame of {len(view)}")
    return loads(bytes(view[4 : 4 + length])), view[4 + length :]


def dumps(message: Message) -> str:
    """A message as text. A NaN in it is a mistake of ours, see `number`."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False)


def loads(text: str | bytes) -> Message:
    """The message in a text, which may come from anybody."""
    try:
        message = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise BadFrame("a message is a JSON object")
    if _half_character(text):
        try:
            json.dumps(message, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadFrame("half a character is not text") from None
    return message


def _half_character(text: str | bytes) -> bool:
    """Whether there may be half of a surrogate pair, which no file can hold."""
    escaped = b"\\ud" if isinstance(text, bytes) else "\\ud"
    return escaped in text.lower()  # type: ignore[operator]


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def number(value: Any) -> float | int | str:
    """A number for JSON.

    >>> number(1.5), number(float("nan")), number(-math.inf)
    (1.5, 'nan', '-inf')
    """
    if type(value) is int:
        return value
    plain = float(value)
    if math.isfinite(plain):
        return plain
    return "nan" if math.isnan(plain) else "inf" if plain > 0 else "-inf"
