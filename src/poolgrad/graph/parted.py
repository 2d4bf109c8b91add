"""Files larger than memory, for the engine that computes chunk by chunk: .npy and .zarr files are read when a chunk is
computed, by whoever computes it, and written one chunk after the other. What is small is read at once as everywhere.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import dask
import dask.array as da
import numpy as np
from dask.array.core import normalize_chunks
from dask.base import tokenize
from dask.utils import parse_bytes

from ..errors import InvalidArgument, OutOfMemory
from .files import Files, _state, _with_key, _zarr_array, placed
from .values import Array, shown_bytes

FORMATS: Final = (".npy", ".zarr")
"""What can be read and written in parts."""


class PartedFiles(Files):
    """The files of a page, as Dask arrays where they are larger than one chunk."""

    def in_parts(self, name: str, key: str = "") -> bool:
        """Whether the array is read when its chunks are computed."""
        stem, _ = _with_key(name, key)
        return stem.lower().endswith(FORMATS) and self.describe(name, key).bytes > self.chunk_bytes()

    def chunk_bytes(self) -> int:
        """How large a chunk may be, so that all that is computed at a time leaves room for results."""
        cores = os.cpu_count() or 1
        wanted: int = parse_bytes(dask.config.get("array.chunk-size"))
        return min(wanted, max(2**16, self.memory // (16 * cores)))

    def read(self, name: str, key: str = "") -> Any:
        """The array: a Dask array if it is read in parts."""
        if not self.in_parts(name, key):
            return super().read(name, key)
        name, key = _with_key(name, key)
        return self._guarded(name, lambda path, form: self._parts(form, path, key))

    def _parts(self, form: Any, path: Path, key: str) -> Any:
        form.expect_honest(path, key, self)
        source = ZarrFile(path, key) if path.suffix.lower() == ".zarr" else NpyFile(path)
        chunks = self._chunks(source)
        token = tokenize(str(path), key, _state(path), chunks)
        array = da.from_array(source, chunks, name=f"load-{token}", lock=False)
        native = source.dtype.newbyteorder("=")
        return array if native == source.dtype else array.astype(native)

    def _chunks(self, source: Any) -> Any:
        size, limit = source.dtype.itemsize, self.chunk_bytes()
        if isinstance(source, NpyFile):
            return rows(source.shape, size, limit)
        return normalize_chunks("auto", source.shape, limit, source.dtype, previous_chunks=source.chunks)

    def _write(self, name: str, array: Any) -> None:
        if not isinstance(array, da.Array):
            super()._write(name, array)
            return
        path = self.target(name)
        if path.suffix.lower() not in FORMATS or array.nbytes <= self.chunk_bytes():
            super()._write(name, in_memory(array, self.memory))
            return
        if self._makes_room(name, path, lambda: self._holds_parts(name, array)):
            write_parts(path, array)

    def _holds_parts(self, name: str, array: Any) -> bool:
        try:
            found = self.describe(name)
            if found != (tuple(array.shape), array.dtype.name):
                return False
            there = self.read(name)
        except InvalidArgument:
            return False
        return all(np.asarray(there[place]).tobytes() == part.tobytes() for place, part in computed_parts(array))


class Source:
    """An array in a file, read part by part, and only while the file is the one that it was in the beginning: later
    parts of another file would make results that no file has."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    written: tuple[int, int]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> Array:
        try:
            return self._part(index)
        finally:  # whatever was read, or could not be
            self._expect_same()

    def _expect_same(self) -> None:
        if not self.path.exists() or _written(self.path) != self.written:
            problem = f"{self.path.name} was replaced while it was read in parts; save under another name, or run again"
            raise InvalidArgument(problem, argument="file", given=self.path.name)

    def _part(self, index: Any) -> Array:
        raise NotImplementedError


class NpyFile(Source):
    """An array in a .npy file. It travels to other processes as a name: they read the parts that they need."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, _written(path)
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        self.shape, self.dtype = found.shape, found.dtype

    def _part(self, index: Any) -> Array:
        part: Array = np.array(np.load(self.path, mmap_mode="r", allow_pickle=False)[index])
        return part


class ZarrFile(Source):
    """An array in a .zarr file."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.written = path, _written(path)
        self.array = _zarr_array(path, key)
        self.shape, self.dtype, self.chunks = self.array.shape, self.array.dtype, self.array.chunks

    def _part(self, index: Any) -> Array:
        return np.asarray(self.array[index])


def _written(path: Path) -> tuple[int, int]:
    """What changes when a file is replaced, and is the same on all machines that share it. Of a folder it is the
    metadata, which is written when the folder is made."""
    names = ("zarr.json", ".zarray", ".zgroup") if path.is_dir() else ("",)
    found = next((path / name for name in names if (path / name).exists()), path).stat()
    return found.st_mtime_ns, found.st_size


def rows(shape: tuple[int, ...], itemsize: int, limit: int) -> tuple[int, ...]:
    """Chunks that lie in one piece on the disk and have no more than `limit` bytes.

    >>> rows((8, 100, 100), 4, 100_000), rows((8, 100, 100), 4, 8_000)
    ((2, 100, 100), (1, 20, 100))
    """
    inner = [math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape))]
    return tuple(max(1, min(n, limit // max(rest, 1))) for n, rest in zip(shape, inner, strict=True))


def in_memory(array: Any, memory: int) -> Array:
    """All chunks in one NumPy array, if there is memory for it."""
    if array.nbytes > memory:
        sizes = f"{shown_bytes(array.nbytes)}; {shown_bytes(memory)} are allowed"
        raise OutOfMemory(f"this is computed in parts and takes {sizes}; save it as .npy or .zarr, or reduce it")
    found: Array = array.compute()
    return found


def computed_parts(array: Any) -> Iterator[tuple[tuple[slice, ...], Array]]:
    """The chunks of an array with their places, a few computed at a time."""
    numbers, at_once = np.ndindex(array.numblocks), os.cpu_count() or 1
    ends = [[0, *itertools.accumulate(sizes)] for sizes in array.chunks]
    while batch := list(itertools.islice(numbers, at_once)):
        parts = dask.compute(*(array.blocks[number] for number in batch))
        for number, part in zip(batch, parts, strict=True):
            yield tuple(slice(end[i], end[i + 1]) for i, end in zip(number, ends, strict=True)), part


def write_parts(path: Path, array: Any) -> None:
    """Writes a Dask array to a .npy or .zarr file, one chunk after the other; then it is put in its place."""
    write = _write_npy if path.suffix.lower() == ".npy" else _write_zarr
    with placed(path) as made:
        write(made, array)


def _write_npy(path: Path, array: Any) -> None:
    target = np.lib.format.open_memmap(path, "w+", array.dtype, array.shape)
    _fill(target, array)
    target.flush()


def _write_zarr(path: Path, array: Any) -> None:
    import zarr

    chunks = tuple(max(1, max(sizes)) for sizes in array.chunks)
    _fill(zarr.create_array(str(path), shape=array.shape, chunks=chunks, dtype=array.dtype), array)


def _fill(target: Any, array: Any) -> None:
    for place, part in computed_parts(array):
        target[place] = part
