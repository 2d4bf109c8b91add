"""The memory limit: the quickest copy this machine offers that moves a given number of bytes with all threads.

A copy of n bytes reads n and writes n, so moving B bytes means copying B / 2. Several ways of copying are raced in
every round and the best counts: plain memmove, PyTorch's parallel copy, and a streaming copy that bypasses the cache.
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

import numpy as np

Way = Callable[[], object]
MoveBytes = Callable[[int, int, int], object]


def ways(moved: int, threads: int) -> dict[str, Way]:
    """Callables that each move `moved` bytes between two warm buffers."""
    half = max(moved // 2, 1)
    source, target = _aligned(half), _aligned(half)
    source[:], target[:] = 1, 0
    found: dict[str, Way] = {"memmove": partial(ctypes.memmove, target.ctypes.data, source.ctypes.data, half)}
    if half >= 1 << 20:
        found["memmove, threads"] = _split(ctypes.memmove, target, source, threads)
        streaming = _streaming()
        if streaming:
            found["streaming, threads"] = _split(streaming, target, source, threads)
    try:
        import torch

        found["torch"] = partial(torch.from_numpy(target).copy_, torch.from_numpy(source))
    except ImportError:
        pass
    return found


def _aligned(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    raw = np.empty(size + 64, np.uint8)
    shift = -raw.ctypes.data % 64
    return raw[shift : shift + size]


def _split(move: MoveBytes, target: np.ndarray, source: np.ndarray, threads: int) -> Way:
    """The copy in `threads` equal parts; the caller does the last one itself."""
    part = -(-target.size // threads) // 256 * 256 or target.size
    edges = [*range(0, part * (threads - 1) + 1, part), target.size]
    jobs = [(start, stop - start) for start, stop in pairwise(edges)]
    pool = _pool(threads)
    to, origin = target.ctypes.data, source.ctypes.data

    def run() -> None:
        waiting = [pool.submit(move, to + start, origin + start, size) for start, size in jobs[:-1]]
        start, size = jobs[-1]
        move(to + start, origin + start, size)
        for job in waiting:
            job.result()
        _ = target, source  # the buffers live as long as the copy

    return run


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


@lru_cache
def _streaming() -> MoveBytes | None:
    """The compiled streaming copy, or None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "copying.so"
        source = Path(__file__).with_name("copying.c")
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        function = ctypes.CDLL(str(library)).copy_streaming
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = None
    return function
