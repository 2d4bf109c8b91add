"""What a Zarr array is known by without reading it: a run that goes on must go on with the source that it began with.

A fingerprint is made of what says how the array is stored (shape, dtype, chunks, codecs, fill value) and of a list of
its chunks: names, sizes and when they were written, or what else a store tells without opening them. It changes when a
chunk is written, also with the same contents, and when chunks come or go. The attributes of the array do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, NamedTuple

from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ZipStore

from .arrays import ZarrArray, innermost
from .blocks import MARKERS

METADATA: Final = ("zarr.json", ".zarray", ".zattrs", ".zmetadata")
_STORED: Final = (
    "shape", "data_type", "dtype", "chunk_grid", "chunks", "chunk_key_encoding", "dimension_separator", "codecs",
    "compressor", "filters", "order", "fill_value",
)  # fmt: skip


class Entry(NamedTuple):
    """A stored chunk: its key below the array, its size, and what changes when it is written again."""

    key: str
    size: int
    version: str


def fingerprint(array: ZarrArray) -> dict[str, Any]:
    """The number of chunks and their bytes, and a digest of all that the array is known by."""
    metadata = array.metadata.to_dict()
    stored = {name: metadata[name] for name in _STORED if name in metadata}
    total = _number(json.dumps(stored, sort_keys=True, default=str))
    count = size = 0
    for entry in _entries(array):
        if entry.key not in METADATA and not entry.key.startswith(f"{MARKERS}/"):
            count, size = count + 1, size + entry.size
            total += _number(f"{entry.key}\n{entry.size}\n{entry.version}")  # a sum: stores list in any order
    return {"chunks": count, "bytes": size, "digest": f"{total % 2**64:016x}"}


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _entries(array: ZarrArray) -> Iterator[Entry]:
    store = innermost(array.store_path.store)
    if isinstance(store, LocalStore):
        return _files(os.path.join(store.root, array.path), "")
    if isinstance(store, ZipStore):
        return _members(store, _prefix(array))
    return iter(sync(_listed(store, _prefix(array))))


def _prefix(array: ZarrArray) -> str:
    return f"{array.path}/" if array.path else ""


def _files(folder: str, prefix: str) -> Iterator[Entry]:
    if not os.path.isdir(folder):
        return  # the tasks will say so
    with os.scandir(folder) as found:
        for item in found:
            if item.is_dir():
                yield from _files(item.path, f"{prefix}{item.name}/")
            else:
                known = item.stat()
                yield Entry(prefix + item.name, known.st_size, str(known.st_mtime_ns))


def _members(store: ZipStore, prefix: str) -> Iterator[Entry]:
    with zipfile.ZipFile(store.path) as archive:
        for member in archive.infolist():
            if member.filename.startswith(prefix):
                yield Entry(member.filename.removeprefix(prefix), member.file_size, f"{member.CRC:08x}")


async def _listed(store: Any, prefix: str) -> list[Entry]:
    found = _remote(store, prefix) if isinstance(store, FsspecStore) else _asked(store, prefix)
    return [entry async for entry in found]


async def _remote(store: FsspecStore, prefix: str) -> AsyncIterator[Entry]:
    """Object stores and file systems tell everything in one listing. Web servers have none, and a bucket may be open to
    readers of known names alone: metadata must do."""
    protocols = store.fs.protocol if isinstance(store.fs.protocol, (list, tuple)) else (store.fs.protocol,)
    if {"http", "https"}.intersection(protocols):
        return
    root = f"{store.path}/{prefix}"
    try:
        found = await store.fs._find(root, detail=True)
    except (PermissionError, NotImplementedError):
        return
    for path, known in found.items():
        version = next(
            (known[name] for name in ("ETag", "etag", "md5Hash", "LastModified", "mtime") if name in known), ""
        )
        yield Entry(path.removeprefix(root), int(known.get("size") or 0), str(version))


async def _asked(store: Any, prefix: str) -> AsyncIterator[Entry]:
    """Stores that tell no more than sizes; those in memory are quickly read."""
    if not store.supports_listing:
        return
    async for key in store.list_prefix(prefix):
        if isinstance(store, MemoryStore):
            found = await store.get(key, default_buffer_prototype())
            data = b"" if found is None else found.to_bytes()
            yield Entry(key.removeprefix(prefix), len(data), f"{zlib.crc32(data):08x}")
        else:
            yield Entry(key.removeprefix(prefix), await store.getsize(key), "")
