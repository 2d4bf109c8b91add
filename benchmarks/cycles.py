"""`python -m benchmarks.cycles`: the cycles that one core needs for 64 bytes of float32 input in its second cache.

The table of docs/limits.md. All arrays lie in that cache, so what is not arithmetic hardly shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from time import perf_counter

import numpy as np

import poolgrad as pg
from poolgrad import backends, windows

from . import copying, machine

kernels = backends.of(np.empty(0))
FORMATS = {("last", 2): "NHWC", ("first", 2): "NCHW", ("last", 3): "NDHWC", ("first", 3): "NCDHW"}

# windows, channels, shape, window, stride
GEOMETRIES = (
    ("2-D k2 s2", "last", (1, 28, 28, 64), 2, 2),
    ("2-D k3 s2", "last", (1, 28, 28, 64), 3, 2),
    ("2-D k3 s1", "last", (1, 14, 14, 256), 3, 1),
    ("3-D k2 s2", "last", (1, 8, 16, 16, 32), 2, 2),
    ("3-D k3 s2", "last", (1, 8, 16, 16, 32), 3, 2),
    ("2-D k2 s2", "first", (1, 64, 8, 112), 2, 2),
    ("2-D k3 s2", "first", (1, 64, 8, 112), 3, 2),
    ("2-D k3 s1", "first", (1, 64, 16, 56), 3, 1),
    ("3-D k2 s2", "first", (1, 16, 4, 16, 64), 2, 2),
    ("3-D k3 s2", "first", (1, 16, 4, 16, 64), 3, 2),
    ("volume k2 s2", "one", (1, 4, 64, 256, 1), 2, 2),
    ("volume k3 s2", "one", (1, 4, 64, 256, 1), 3, 2),
)
COLUMNS = ("max forward", "max gradient", "max second order", "average", "its gradient")


def main() -> None:
    machine.bind(1)
    pg.set_num_threads(1)
    print(f"| windows | channels | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    way_in = [_cycles(call) for call in _calls((1, 2, 2, 1), "last", 2, 2)]  # from Python
    for name, channels, shape, window, stride in GEOMETRIES:
        calls = _calls(shape, "first" if channels == "first" else "last", window, stride)
        lines = prod(shape) * 4 / 64
        taken = [_cycles(call) - less for call, less in zip(calls, way_in, strict=True)]
        cells = [f"{cycles / lines:.0f}" for cycles in taken]
        print(f"| {name} | {channels} | {' | '.join(cells)} |", flush=True)


def _calls(shape: tuple[int, ...], layout: str, window: int, stride: int) -> list[Callable[[], object]]:
    """In the order of the columns. As with TensorFlow's operators, a given maximum decides in 3-D and second order."""
    rank = len(shape) - 2
    spatial = shape[1:-1] if layout == "last" else shape[2:]
    axes = tuple(windows.regular(n, window, stride, "SAME") for n in spatial)
    pool = windows.Pool.of(shape, FORMATS[layout, rank], axes)
    random = np.random.default_rng(0)
    x, v = (random.standard_normal(shape, dtype=np.float32) for _ in range(2))
    y = kernels.maximum(pool, x, "propagate")
    g, gx, result = np.ones_like(y), np.zeros_like(x), np.zeros_like(y)
    return [
        partial(kernels.maximum, pool, x, "propagate", out=result),
        partial(kernels.max_put, pool, x, g, "first", "propagate", equal_to=y if rank == 3 else None, out=gx),
        partial(kernels.max_take, pool, x, v, "first", "propagate", equal_to=y, out=result),
        partial(kernels.mean, pool, x, out=result),
        partial(kernels.spread, pool, g, out=gx),
    ]


def _cycles(call: Callable[[], object]) -> float:
    """Of many samples one of the best; the clock is measured beside every sample, since it changes."""
    compiled = copying.library()
    assert compiled is not None, "a C compiler is needed to count cycles"
    count, found = 100_000, []
    for _ in range(500):
        call()
        start = perf_counter()
        call()
        middle = perf_counter()
        compiled.wait_cycles(count)
        found.append((middle - start) / (perf_counter() - middle) * count)
    return sorted(found)[len(found) // 10]


if __name__ == "__main__":
    main()
