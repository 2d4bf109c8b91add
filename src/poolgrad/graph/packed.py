"""How large a packed piece of a file would become, found out without unpacking it into memory.

A few bytes can be packed so that they become gigabytes. Libraries unpack what they are given, so files from elsewhere
are looked at first: a piece that would become far more than a piece of its array has is refused.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from ..errors import InvalidArgument

RATIOS: Final = {"gzip": 1032, "zlib": 1032, "bz2": 2**21, "lzma": 2**15}
"""How much smaller than its contents a packed piece can be, at most, where the format has a bound."""

DECLARING: Final = frozenset({"zstd", "blosc", "lz4"})
"""Formats that say at their beginning how much they become, and whose readers believe it."""

PACKING: Final = frozenset(RATIOS) | DECLARING

SLACK: Final = 2**18
"""Filters may change the size of a piece by a little, and its elements at most from a bit to a byte. A frame of
Zstandard that does not say what it becomes is only known to a block of 128 KiB."""

HEAD: Final = 18
"""So many bytes from the beginning say what a piece becomes, where it says so."""

_STEP: Final = 2**20
_LOOK: Final = 2**12
_BLOCK: Final = 2**17
_ZSTD, _SKIPPED = 0xFD2FB528, 0x184D2A50


class Read(Protocol):
    """Gives so many bytes of a piece from a place on, or what there is of them."""

    def __call__(self, count: int, at: int = 0, /) -> bytes: ...


def expect_honest(name: str, codec: str, size: int, read: Read, whole: int, memory: int) -> None:
    """Refuses a piece of a file that would become much more than `whole` bytes.

    name    of the piece, for the message
    size    of the packed piece
    read    gives bytes of it
    memory  what can become no more than this need not be looked at closely
    """
    if codec in RATIOS and size * RATIOS[codec] <= memory:
        return
    most = 8 * whole + SLACK
    found = unpacked(codec, size, read, most)
    if found > most:
        at_least = "at least " if codec in RATIOS else ""
        problem = (
            f"{name} would be unpacked from {size} bytes to {at_least}{found}, but holds {whole} bytes of the array"
        )
        raise InvalidArgument(problem, argument="file", given=found, expected=whole)


def unpacked(codec: str, size: int, read: Read, most: int) -> int:
    """How many bytes come out, counted no further than just beyond `most`.

    >>> data = zlib.compress(bytes(10**6))
    >>> len(data) < 1000, unpacked("zlib", len(data), lambda n, at=0: data[at : at + n], 2**30)
    (True, 1000000)
    """
    if codec == "blosc":
        head = read(8)
        return int.from_bytes(head[4:8], "little") if len(head) == 8 else 0
    if codec == "lz4":
        return int.from_bytes(read(4), "little")
    if codec == "zstd":
        return _zstd(read, most)
    return _counted(codec, read(size), most) if codec in RATIOS else size


def _decompressor(codec: str) -> Any:
    if codec in ("gzip", "zlib"):
        return zlib.decompressobj(47)  # either, whichever it is
    return bz2.BZ2Decompressor() if codec == "bz2" else lzma.LZMADecompressor()


def _counted(codec: str, data: bytes, most: int) -> int:
    """Unpacks step by step and forgets what comes out. Several streams may stand one behind the other."""
    total = 0
    while data and total <= most:
        stream = _decompressor(codec)
        try:
            while total <= most:
                out = stream.decompress(data, _STEP)
                data = stream.unconsumed_tail if codec in ("gzip", "zlib") else b""
                total += len(out)
                if stream.eof or not (out or data):
                    break
        except (zlib.error, lzma.LZMAError, OSError):
            return total  # its reader will say so
        data = stream.unused_data if stream.eof else b""
    return total


def _zstd(read: Read, most: int) -> int:
    """What all frames together say that they become; if one does not say so, what can come out of them at most."""
    said = possible = 0
    told = True
    for declared, bound in _zstd_frames(_looking(read)):
        possible += bound
        told = told and declared is not None
        said += declared or 0
        if said > most or (not told and possible > most):
            break
    return said if told else max(said, possible)


def _zstd_frames(look: Callable[[int, int], bytes]) -> Iterator[tuple[int | None, int]]:
    """For every frame what it says that it becomes, and what can come out: a block becomes at most 128 KiB."""
    at = 0
    while len(head := look(at, HEAD)) >= 6:
        (magic,) = struct.unpack_from("<I", head)
        if magic & ~15 == _SKIPPED:
            at += 8 + int.from_bytes(head[4:8], "little")
            continue
        if magic != _ZSTD:
            return
        declared, length = _zstd_declared(head)
        at, bound = _zstd_blocks(look, at + length)
        at += 4 * (head[4] >> 2 & 1)
        yield declared, bound


def _zstd_declared(head: bytes) -> tuple[int | None, int]:
    """What a frame says that it becomes, and how long its header is."""
    single = head[4] >> 5 & 1
    at = 5 + (not single) + (0, 1, 2, 4)[head[4] & 3]
    length = (single, 2, 4, 8)[head[4] >> 6]
    declared = int.from_bytes(head[at : at + length], "little") + 256 * (length == 2)
    return declared if length else None, at + length


def _zstd_blocks(look: Callable[[int, int], bytes], at: int) -> tuple[int, int]:
    """Where the blocks of a frame end, and what can come out of them."""
    total, last = 0, False
    while not last and len(found := look(at, 3)) == 3:
        header = int.from_bytes(found, "little")
        last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
        total += _BLOCK if kind == 2 else length
        at += 3 + (1 if kind == 1 else length)
    return at, total


def _looking(read: Read) -> Callable[[int, int], bytes]:
    """Reads ahead a little, since what is looked at next is often near."""
    start, known = 0, b""

    def look(at: int, count: int) -> bytes:
        nonlocal start, known
        if not start <= at <= at + count <= start + len(known):
            start, known = at, read(_LOOK, at)
        return known[at - start : at - start + count]

    return look
