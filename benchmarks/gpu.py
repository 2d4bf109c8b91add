"""The GPU kernels beside PyTorch, torch.compile and JAX in one run, as fractions of the memory limit.

    python -m benchmarks.gpu                    # all cases; writes docs/benchmarks/gpu.md and gpu.json
    python -m benchmarks.gpu --filter 3-D/k3    # some of them, on the screen only
    python -m benchmarks.gpu --no-peers

Limit: every input is read once and every output written once, at the bandwidth of a copy of a gigabyte measured in the
same run. Times are medians of `triton.testing.do_bench`, which empties the cache before each call, the best of three
rounds in which everybody takes a turn; JAX, which has a stream of its own, is timed over batches of calls. Gradients
start from the original input, as TensorFlow's do: for PyTorch that is the forward with indices and the backward.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import torch
import torch.nn.functional as F
import triton
from triton.testing import do_bench

from poolgrad.backends import of
from poolgrad.windows import Pool, adaptive, explicit, fractional

DOCS = Path(__file__).parents[1] / "docs" / "benchmarks"
SHAPES = {"2-D": (128, 64, 112, 112), "3-D": (8, 32, 64, 128, 128)}
FRACTIONAL = {"2-D": (64, 64, 128, 128), "3-D": (4, 32, 64, 64, 64)}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WINDOWS = {"k2 s2": (2, 2, 0), "k3 s2 p1": (3, 2, 1)}
OPERATIONS = ("max", "max grad", "max gradgrad", "avg", "avg grad")
ROUNDS = 3


@dataclass
class Case:
    """One cell: what is computed on what, by whom."""

    name: str
    bytes: int
    ours: Callable[[], Any]
    peers: dict[str, Callable[[], Any]] = field(default_factory=dict)


def cases(wanted: str, peers: bool) -> Iterator[Case]:
    """All cells whose name contains the filter, made one after the other so that their arrays fit."""
    for rank, shape in SHAPES.items():
        for window, (k, s, p) in WINDOWS.items():
            for layout in ("channels-first", "channels-last"):
                for dtype in DTYPES:
                    for operation in OPERATIONS:
                        name = f"{rank}/{window}/{layout}/{dtype}/{operation}"
                        if wanted in name:
                            yield regular(name, shape, k, s, p, layout, DTYPES[dtype], operation, peers)
    for rank, shape in FRACTIONAL.items():
        for kind in ("fractional", "adaptive"):
            for operation in ("max", "max grad"):
                name = f"{rank}/{kind}/channels-first/float32/{operation}"
                if wanted in name:
                    yield uneven(name, shape, kind, operation, peers)


def regular(
    name: str, shape: tuple[int, ...], k: int, s: int, p: int, layout: str, dtype: torch.dtype, operation: str,
    peers: bool,
) -> Case:  # fmt: skip
    """Windows k, strides s, padding p."""
    rank, last = len(shape) - 2, layout == "channels-last"
    x, v = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
    if last:
        form = torch.channels_last if rank == 2 else torch.channels_last_3d
        x, v = (t.contiguous(memory_format=form) for t in (x, v))
    y = getattr(F, f"max_pool{rank}d")(x, k, s, p)
    g = torch.randn_like(y)
    ax, av, ag = ((t.movedim(1, -1) if last else t) for t in (x, v, g))
    windows = tuple(explicit(size, k, s, p, p) for size in x.shape[2:])
    pool = Pool(tuple(ax.shape), 1 if last else 2, windows, x.shape[0])
    on = of(ax)
    n, m, size = x.numel(), y.numel(), x.element_size()
    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "max": (n + m, lambda: on.maximum(pool, ax, "propagate")),
        "max grad": (2 * n + m, lambda: on.max_put(pool, ax, ag, "first", "propagate")),
        "max gradgrad": (2 * n + m, lambda: on.max_take(pool, ax, av, "first", "propagate")),
        "avg": (n + m, lambda: on.mean(pool, ax)),
        "avg grad": (n + m, lambda: on.spread(pool, ag)),
    }
    count, ours = calls[operation]
    return Case(name, count * size, ours, torch_and_jax(x, v, g, k, s, p, last, operation) if peers else {})


def torch_and_jax(
    x: torch.Tensor, v: torch.Tensor, g: torch.Tensor, k: int, s: int, p: int, last: bool, operation: str
) -> dict[str, Callable[[], Any]]:
    """The same by PyTorch, torch.compile and JAX."""
    rank, aten = x.ndim - 2, torch.ops.aten
    sizes = [[k] * rank, [s] * rank, [p] * rank]
    forward = getattr(aten, f"max_pool{rank}d_with_indices")
    backward = getattr(aten, f"max_pool{rank}d_with_indices_backward")

    def max_grad(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        _, index = forward(x, *sizes)
        return backward(g, x, *sizes, [1] * rank, False, index)

    def max_gradgrad(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        _, index = forward(x, *sizes)
        return v.flatten(2).gather(2, index.flatten(2)).reshape(index.shape)

    def avg_grad(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return getattr(aten, f"avg_pool{rank}d_backward")(g, x, *sizes, False, False, None)

    functions: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
        "max": (lambda x: getattr(F, f"max_pool{rank}d")(x, k, s, p), (x,)),
        "max grad": (max_grad, (x, g)),
        "max gradgrad": (max_gradgrad, (x, v)),
        "avg": (lambda x: getattr(F, f"avg_pool{rank}d")(x, k, s, p, count_include_pad=False), (x,)),
        "avg grad": (avg_grad, (x, g)),
    }
    function, tensors = functions[operation]
    made: dict[str, Callable[[], Any]] = {"torch": lambda: function(*tensors)}
    torch._dynamo.reset()
    compiled = torch.compile(function)
    made["compile"] = lambda: compiled(*tensors)
    made["jax"] = jax_call(x, v, g, k, s, p, last, operation)
    return made


def jax_call(
    x: torch.Tensor, v: torch.Tensor, g: torch.Tensor, k: int, s: int, p: int, last: bool, operation: str
) -> Callable[[], Any]:
    """The same by JAX, on the same memory."""
    import jax
    from jax import lax

    rank = x.ndim - 2

    def around(value: Any, outside: Any) -> Any:
        return (outside, *[value] * rank, outside) if last else (outside, outside, *[value] * rank)

    jx, jv, jg = (jax.dlpack.from_dlpack((t.movedim(1, -1) if last else t).contiguous()) for t in (x, v, g))
    low = np.array(-np.inf, jx.dtype)
    geometry = (around(k, 1), around(s, 1), around((p, p), (0, 0)))

    def highest(a: Any) -> Any:
        return lax.reduce_window(a, low, lax.max, *geometry)

    real = lax.reduce_window(np.ones((1, *jx.shape[1:]), np.float32), 0.0, lax.add, *geometry)

    def average(a: Any, counts: Any) -> Any:
        return (lax.reduce_window(a, np.array(0, a.dtype), lax.add, *geometry) / counts).astype(a.dtype)

    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "max": (highest, (jx,)),
        "max grad": (lambda a, b: jax.vjp(highest, a)[1](b)[0], (jx, jg)),
        "max gradgrad": (lambda a, b: jax.jvp(highest, (a,), (b,))[1], (jx, jv)),
        "avg": (average, (jx, real)),
        "avg grad": (lambda b, c: jax.linear_transpose(lambda a: average(a, c), jx)(b)[0], (jg, real)),
    }
    function, arrays = functions[operation]
    jitted = jax.jit(function)
    return lambda: jitted(*arrays)


def uneven(name: str, shape: tuple[int, ...], kind: str, operation: str, peers: bool) -> Case:
    """Fractional and adaptive windows."""
    rank = len(shape) - 2
    x = torch.randn(shape, device="cuda")
    target = [int(n / 1.44) for n in shape[2:]] if kind == "fractional" else [n * 3 // 7 for n in shape[2:]]
    samples = torch.rand(shape[0], shape[1], rank, device="cuda")
    aten = torch.ops.aten
    if kind == "fractional":
        edges = [np.unique(np.linspace(0, n, m + 1).astype(np.int64)) for n, m in zip(shape[2:], target, strict=True)]
        windows = tuple(fractional(n, e, overlapping=True) for n, e in zip(shape[2:], edges, strict=True))
    else:
        windows = tuple(adaptive(n, m) for n, m in zip(shape[2:], target, strict=True))
    pool = Pool(shape, 2, windows, shape[0])
    on = of(x)
    g = torch.randn(pool.out_shape, device="cuda")
    n, m = x.numel(), math.prod(pool.out_shape)
    ours: Callable[[], Any] = lambda: on.maximum(pool, x, "propagate")  # noqa: E731
    count = n + m
    if operation == "max grad":
        ours, count = lambda: on.max_put(pool, x, g, "first", "propagate"), 2 * n + m
    made: dict[str, Callable[[], Any]] = {}
    if peers:
        ks = [2] * rank
        if kind == "fractional":
            forward = getattr(aten, f"fractional_max_pool{rank}d")
            backward = getattr(aten, f"fractional_max_pool{rank}d_backward")
            index = forward(x, ks, target, samples)[1]
            gt = torch.randn(index.shape, device="cuda")
            made["torch"] = lambda: forward(x, ks, target, samples)
            if operation == "max grad":
                made["torch"] = lambda: (forward(x, ks, target, samples), backward(gt, x, ks, target, index))
        else:
            forward = getattr(aten, f"adaptive_max_pool{rank}d")
            backward = getattr(aten, f"adaptive_max_pool{rank}d_backward")
            index = forward(x, target)[1]
            made["torch"] = lambda: forward(x, target)
            if operation == "max grad":
                made["torch"] = lambda: (forward(x, target), backward(g, x, index))
    return Case(name, count * 4, ours, made)


def timed(call: Callable[[], Any], own_stream: bool) -> float:
    """Milliseconds of a call."""
    if not own_stream:
        return float(do_bench(call, warmup=10, rep=50, return_mode="median"))
    import jax

    jax.block_until_ready(call())
    best = []
    for _ in range(5):
        begin = time.perf_counter()
        jax.block_until_ready([call() for _ in range(8)])
        best.append((time.perf_counter() - begin) / 8 * 1e3)
    return min(best)


def race(case: Case) -> dict[str, float]:
    """Milliseconds of everybody."""
    times: dict[str, float] = {}
    runners = {"poolgrad": case.ours} | case.peers
    for _ in range(ROUNDS):
        for who, call in list(runners.items()):
            try:
                times[who] = min(timed(call, who == "jax"), times.get(who, math.inf))
            except Exception as error:
                if who == "poolgrad":
                    raise
                print(f"{case.name}: {who}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                del runners[who]
    return times


def copy_bandwidth() -> float:
    """Bytes read and written per millisecond by a copy of a gigabyte."""
    a = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * 2**30 / do_bench(lambda: b.copy_(a), warmup=20, rep=200, return_mode="median")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--output", type=Path, default=DOCS)
    options = parser.parse_args()
    speed = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copy {speed / 1e9:.2f} TB/s", flush=True)
    rows = []
    for case in cases(options.filter, not options.no_peers):
        limit = case.bytes / speed
        row: dict[str, Any] = {"case": case.name, "limit_ms": limit} | race(case)
        rows.append(row)
        shown = "  ".join(
            f"{who} {limit / row[who]:.2f}" for who in ("poolgrad", "torch", "compile", "jax") if who in row
        )
        print(f"{case.name:48} {shown}", flush=True)
        torch.cuda.empty_cache()
    if not options.filter and not options.no_peers:
        write(rows, speed, options.output)


def write(rows: list[dict[str, Any]], speed: float, folder: Path) -> None:
    """The table as Markdown and as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = {
        "gpu": torch.cuda.get_device_name(), "copy_tb_s": speed / 1e9, "date": date.today().isoformat(),
        "torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version(),
    }  # fmt: skip
    (folder / "gpu.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    peers = ("torch", "compile", "jax")
    lines = [
        "# On the GPU", "",
        f"{machine['gpu']}, copy {speed / 1e9:.2f} TB/s, PyTorch {machine['torch']}, Triton {machine['triton']}, "
        f"{machine['date']}. Fractions of the memory limit; made by `python -m benchmarks.gpu`, which says how.",
        "",
        "| case | ms | **poolgrad** | torch | torch.compile | JAX | over the best |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        best = min((row[peer] for peer in peers if peer in row), default=None)
        shares = [f"{row['limit_ms'] / row[peer]:.2f}" if peer in row else "" for peer in peers]
        ahead = "" if best is None else f"{best / row['poolgrad']:.1f}x"
        own = f"{row['poolgrad']:.3f} | **{row['limit_ms'] / row['poolgrad']:.2f}**"
        lines.append(f"| {row['case']} | {own} | {' | '.join(shares)} | {ahead} |")
    (folder / "gpu.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
