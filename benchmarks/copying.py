"""The memory limit: the quickest copy this machine offers that moves a given number of bytes with all threads.

A copy of n bytes reads n and writes n, so moving B bytes means copying B / 2. Several ways of copying are raced in
every round and the best counts: plain memmove, PyTorch's parallel copy, and a streaming copy that bypasses the cache.

Memory does not write as fast as it reads, so beside the limit stands plain traffic: loops that read and write as much
as the operator and do nothing with it, of which the best counts too.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

Way = Callable[[], object]
Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"

LEAST_THREADED = 1 << 20
LEAST_TRAFFIC = 16 << 20
"""Bytes from which plain traffic is measured: below, going past the caches is not the quickest way."""

MEMMOVE, STREAMING = -1, 0  # instead of a number of places (copying.c)
PLACES = (1, 2, 4)
"""From how many places each thread reads in turns: which is quickest depends on the processor and the amounts."""


class Share(ctypes.Structure):
    """What one thread moves; the struct of copying.c."""

    _fields_ = (
        ("to", ctypes.c_void_p),
        ("origin", ctypes.c_void_p),
        ("written", ctypes.c_size_t),
        ("read", ctypes.c_size_t),
        ("places", ctypes.c_ssize_t),
    )


def ways(moved: int, threads: int) -> dict[str, Way]:
    """Callables that each move `moved` bytes between two warm buffers of their own."""
    half = max(moved // 2, 1)
    found: dict[str, Way] = {"memmove": _memmove(half)}
    compiled = library()
    if compiled and half >= LEAST_THREADED:
        found["memmove, threads"] = _shared_out(compiled, half, half, threads, MEMMOVE)
        found["streaming, threads"] = _shared_out(compiled, half, half, threads, STREAMING)
    try:
        import torch

        target, source = (torch.from_numpy(buffer) for buffer in _buffers(half, half))
        found["torch"] = partial(target.copy_, source)
    except ImportError:
        pass
    return found


def traffic(read: int, written: int, threads: int) -> dict[str, Way]:
    """Callables that read and write so many bytes; none where there is no telling."""
    compiled = library()
    if compiled is None or not compiled.can_stream() or read + written < LEAST_TRAFFIC:
        return {}
    return {str(places): _shared_out(compiled, written, read, threads, places) for places in PLACES}


def _buffers(written: int, read: int) -> tuple[Bytes, Bytes]:
    """Target and source, touched. Each way has its own, so that none finds in the caches what another left."""
    target, source = _aligned(written), _aligned(read)
    target[:], source[:] = 0, 1
    return target, source


def _aligned(size: int) -> Bytes:
    raw = np.empty(size + 64, np.uint8)
    shift = -raw.ctypes.data % 64
    return raw[shift : shift + size]


def _memmove(size: int) -> Way:
    target, source = _buffers(size, size)

    def run() -> None:
        ctypes.memmove(target.ctypes.data, source.ctypes.data, size)

    return run


def _shared_out(compiled: ctypes.CDLL, written: int, read: int, threads: int, places: int) -> Way:
    """A share for every thread."""
    target, source = _buffers(written, read)
    parts = zip(_parts(target, threads), _parts(source, threads), strict=True)
    shares = (Share * threads)(*(Share(to, origin, size, length, places) for (to, size), (origin, length) in parts))

    def run() -> None:
        if not compiled.run_shares(shares, threads):
            raise RuntimeError(f"copying with {threads} threads: they could not be started")
        _ = target, source  # they live as long as the way

    return run


def _parts(array: Bytes, threads: int) -> list[tuple[int, int]]:
    """(address, length) of every thread's part."""
    part = -(-array.size // threads) // 256 * 256 or array.size
    edges = [*range(0, part * (threads - 1) + 1, part), array.size]
    return [(array.ctypes.data + start, stop - start) for start, stop in pairwise(edges)]


@lru_cache
def library() -> ctypes.CDLL | None:
    """copying.c compiled, or None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("no C compiler: the limit is memmove's and PyTorch's, and there is no plain traffic", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copying.so"
        source = Path(__file__).with_name("copying.c")
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-pthread", str(source), "-o", str(path)]
        if subprocess.run(command, check=False).returncode:
            print(f"{source.name} does not compile here: the limit is memmove's and PyTorch's", file=sys.stderr)
            return None
        compiled = ctypes.CDLL(str(path))
    compiled.run_shares.argtypes = (ctypes.POINTER(Share), ctypes.c_size_t)
    compiled.wait_cycles.argtypes, compiled.wait_cycles.restype = (ctypes.c_size_t,), ctypes.c_size_t
    return compiled
