"""What goes through the pipes between the server and a worker: envelopes around messages.

    length (u64) | ticket (u64) | kind (u8: 0 text, 1 binary frame) | the message, as the browser gets it

A reply carries the ticket of its request; ticket 0 is an event. The server passes messages on without opening them.
"""

from __future__ import annotations

import struct
from typing import Final

HEAD: Final = struct.Struct("<QQB")
TEXT: Final = 0
BINARY: Final = 1
LARGEST: Final = 2**30


def envelope(message: str | bytes, ticket: int = 0) -> bytes:
    """A message ready for the pipe.

    >>> HEAD.unpack(envelope("{}", 7)[: HEAD.size])
    (2, 7, 0)
    """
    body, kind = (message.encode(), TEXT) if isinstance(message, str) else (message, BINARY)
    return HEAD.pack(len(body), ticket, kind) + body


def opened(body: bytes, kind: int) -> str | bytes:
    """The message in an envelope."""
    return body.decode() if kind == TEXT else body
