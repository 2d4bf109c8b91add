"""The memory limit: the quickest copy this machine offers that moves a given number of bytes with all threads.

A copy of n bytes reads n and writes n, so moving B bytes means copying B / 2. Several ways of copying are raced in
every round and the best counts: plain memmove, PyTorch's parallel copy, and a streaming copy that bypasses the cache.

Memory does not read as fast as it writes, so beside the limit stands plain traffic: a loop that reads and writes as
much as the operator and does nothing with it.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

Way = Callable[[], object]
Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
MoveBytes = Callable[[int, int, int], object]

LEAST_TRAFFIC = 16 << 20
"""Bytes from which plain traffic is measured: below, caches decide, and going past them is not the quickest way."""


def ways(moved: int, threads: int) -> dict[str, Way]:
    """Callables that each move `moved` bytes between two warm buffers."""
    half = max(moved // 2, 1)
    source, target = _aligned(half), _aligned(half)
    source[:], target[:] = 1, 0
    found: dict[str, Way] = {"memmove": partial(ctypes.memmove, target.ctypes.data, source.ctypes.data, half)}
    if half >= 1 << 20:
        found["memmove, threads"] = _split(ctypes.memmove, target, source, threads)
        library = _library()
        if library:
            found["streaming, threads"] = _split(library.copy_streaming, target, source, threads)
    try:
        import torch

        found["torch"] = partial(torch.from_numpy(target).copy_, torch.from_numpy(source))
    except ImportError:
        pass
    return found


def _aligned(size: int) -> Bytes:
    raw = np.empty(size + 64, np.uint8)
    shift = -raw.ctypes.data % 64
    return raw[shift : shift + size]


def traffic(read: int, written: int, threads: int) -> Way | None:
    """Reads and writes so many bytes, past the caches; None where there is no telling."""
    library = _library()
    if library is None or read + written < LEAST_TRAFFIC:
        return None
    source, target = _aligned(read), _aligned(written)
    source[:], target[:] = 1, 0
    reads, writes = _parts(read, threads), _parts(written, threads)
    jobs = [
        (target.ctypes.data + to, size, source.ctypes.data + origin, length)
        for (to, size), (origin, length) in zip(writes, reads, strict=True)
    ]
    return _shared_out(library.move_streaming, jobs, (source, target))


def _split(move: MoveBytes, target: Bytes, source: Bytes, threads: int) -> Way:
    """The copy in `threads` equal parts."""
    to, origin = target.ctypes.data, source.ctypes.data
    jobs = [(to + start, origin + start, size) for start, size in _parts(target.size, threads)]
    return _shared_out(move, jobs, (source, target))


def _parts(size: int, threads: int) -> list[tuple[int, int]]:
    """(start, length) of every thread's part."""
    part = -(-size // threads) // 256 * 256 or size
    edges = [*range(0, part * (threads - 1) + 1, part), size]
    return [(start, stop - start) for start, stop in pairwise(edges)]


def _shared_out(move: Callable[..., object], jobs: list[tuple[int, ...]], buffers: tuple[Bytes, ...]) -> Way:
    """A job for every thread; the caller does the last one itself."""
    pool = _pool(len(jobs))

    def run() -> None:
        waiting = [pool.submit(move, *job) for job in jobs[:-1]]
        move(*jobs[-1])
        for job in waiting:
            job.result()
        _ = buffers  # they live as long as the way

    return run


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


@lru_cache
def _library() -> ctypes.CDLL | None:
    """copying.c compiled, or None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copying.so"
        source = Path(__file__).with_name("copying.c")
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(path)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        library = ctypes.CDLL(str(path))
    library.copy_streaming.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    library.move_streaming.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
    library.copy_streaming.restype = library.move_streaming.restype = None
    return library
