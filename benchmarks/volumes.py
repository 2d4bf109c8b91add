"""Larger than memory: Dask arrays and Zarr volumes, against what people use today. `python -m benchmarks.volumes`

All take turns in one process, round after round, and ratios are taken within a round, so that a busy machine slows all
of them alike. Every result is compared with ours before it is timed. `--json FILE` keeps the figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import zarr
from distributed import Client
from rich.console import Console
from rich.table import Table
from skimage.measure import block_reduce

import poolgrad as pg
from poolgrad import volumes

try:
    import tinybrain
except ImportError:  # it is not for every platform
    tinybrain = None

ROUNDS = 5
Case = dict[str, Callable[[], Any]]


def in_memory(x: np.ndarray, chunks: int, op: str) -> Case:
    """Windows of 2 x 2 x 2 on a Dask array whose chunks are in memory: no input or output, only scheduling."""
    lazy = da.from_array(x, chunks=chunks).map_blocks(np.ascontiguousarray).persist()  # not views of x
    ours = {"max": pg.max_pool, "avg": pg.avg_pool}[op]
    reduce = {"max": np.max, "avg": np.mean}[op]

    def blocks(f: Callable[[np.ndarray], np.ndarray]) -> Any:
        halved = tuple(tuple(n // 2 for n in axis) for axis in lazy.chunks)
        return lazy.map_blocks(f, chunks=halved, dtype=x.dtype).persist()

    cases = {
        "in-memory kernel": lambda: ours(x, 2, layout="ZYX"),
        "poolgrad": lambda: ours(lazy, 2, layout="ZYX").persist(),
        "dask coarsen": lambda: da.coarsen(reduce, lazy, {0: 2, 1: 2, 2: 2}).astype(x.dtype).persist(),
        "skimage block_reduce": lambda: blocks(lambda b: block_reduce(b, (2, 2, 2), reduce).astype(x.dtype)),
    }
    if tinybrain is not None and op == "avg":
        cases["tinybrain"] = lambda: blocks(partial(_tinybrain, tinybrain.downsample_with_averaging))
    return cases


def _tinybrain(downsample: Callable[..., Any], block: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(
        downsample(np.asfortranarray(block), (2, 2, 2), 1)[0].reshape([n // 2 for n in block.shape])
    )


def overlapping(x: np.ndarray, chunks: int) -> Case:
    """Windows of 3 x 3 x 3 with strides of 2 across chunk borders, and gradients: only we can."""
    lazy = da.from_array(x, chunks=chunks).map_blocks(np.ascontiguousarray).persist()  # not views of x
    y = pg.max_pool(x, 3, 2, "same", layout="ZYX")
    lazy_y = da.from_array(y, chunks=chunks // 2).map_blocks(np.ascontiguousarray).persist()
    return {
        "in-memory max": lambda: pg.max_pool(x, 3, 2, "same", layout="ZYX"),
        "chunked max": lambda: pg.max_pool(lazy, 3, 2, "same", layout="ZYX").persist(),
        "in-memory gradient": lambda: pg.max_pool_grad(x, y, 3, 2, "same", layout="ZYX"),
        "chunked gradient": lambda: pg.max_pool_grad(lazy, lazy_y, 3, 2, "same", layout="ZYX").persist(),
    }


def zarr_to_zarr(x: np.ndarray, chunks: int, op: str, folder: Path) -> Case:
    """From a Zarr array to a new one, compressed, on this machine's storage."""
    source = zarr.create_array(
        folder / f"x-{op}.zarr", shape=x.shape, chunks=(chunks,) * 3, dtype=x.dtype, overwrite=True
    )
    source[:] = x
    reduce = {"max": np.max, "avg": np.mean}[op]

    def stored(lazy: Any, name: str) -> Any:
        target = zarr.create_array(
            folder / f"{name}-{op}.zarr", shape=lazy.shape, chunks=lazy.chunksize, dtype=x.dtype, overwrite=True
        )
        da.store(lazy, target, lock=False)
        return target

    def mapped(f: Callable[[np.ndarray], np.ndarray], name: str) -> Any:
        lazy = da.from_zarr(source)
        halved = tuple(tuple(n // 2 for n in axis) for axis in lazy.chunks)
        return stored(lazy.map_blocks(f, chunks=halved, dtype=x.dtype), name)

    cases = {
        "poolgrad pool": lambda: volumes.pool(
            source, str(folder / f"ours-{op}.zarr"), op, 2, chunks=chunks // 2, overwrite=True
        ),
        "poolgrad on Dask": lambda: stored(
            {"max": pg.max_pool, "avg": pg.avg_pool}[op](da.from_zarr(source), 2, layout="ZYX"), "ours-dask"
        ),
        "dask coarsen": lambda: stored(
            da.coarsen(reduce, da.from_zarr(source), {0: 2, 1: 2, 2: 2}).astype(x.dtype), "coarsen"
        ),
        "skimage block_reduce": lambda: mapped(lambda b: block_reduce(b, (2, 2, 2), reduce).astype(x.dtype), "skimage"),
    }
    if tinybrain is not None and op == "avg":
        cases["tinybrain"] = lambda: mapped(partial(_tinybrain, tinybrain.downsample_with_averaging), "tinybrain")
    return cases


def race(title: str, cases: Case, size: int, first: str, check: bool = True) -> dict[str, Any]:
    """Times all in turns. The ratio is the time of each over that of `first` in the same round, the median of them."""
    expected = np.asarray(cases[first]())
    for name, run in cases.items():
        if check and not np.allclose(np.asarray(run()), expected, atol=1):  # others round averages of integers
            raise SystemExit(f"{title}: {name} does not compute the same")
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, run in cases.items():
            begun = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begun)
    figures = {}
    table = Table("", "best", "input per second", f"time over {first}", title=title, title_justify="left")
    for name, taken in times.items():
        ratio = statistics.median(t / f for t, f in zip(taken, times[first], strict=True))
        figures[name] = {"seconds": min(taken), "ratio": ratio}
        table.add_row(name, f"{min(taken) * 1e3:.0f} ms", f"{size / 2**30 / min(taken):.2f} GiB/s", f"{ratio:.2f}")
    Console().print(table)
    return {"title": title, "figures": figures}


def graphs() -> dict[str, Any]:
    """Processor time to make graphs of 100,000 chunks, and to schedule tasks that do next to nothing."""
    x = da.zeros((47 * 64, 47 * 64, 46 * 64), chunks=64, dtype=np.uint8)
    y = pg.max_pool(x, 3, 2, "same", layout="ZYX")
    figures = {}
    for title, make in {
        "max 2 x 2 x 2": lambda: pg.max_pool(x, 2, layout="ZYX"),
        "max 3 x 3 x 3, strides 2": lambda: pg.max_pool(x, 3, 2, "same", layout="ZYX"),
        "its gradient": lambda: pg.max_pool_grad(x, y, 3, 2, "same", layout="ZYX"),
    }.items():
        begun = time.process_time()
        lazy = make()
        figures[title] = {"seconds": time.process_time() - begun, "chunks": lazy.npartitions}
    small = pg.max_pool(da.zeros((512, 512), chunks=8, dtype=np.uint8).persist(), 2, layout="YX")
    begun = time.process_time()
    dask.compute(small, scheduler="threads")
    figures["a task, on threads"] = {"seconds": (time.process_time() - begun) / small.npartitions}
    table = Table("", "seconds", title=f"Graphs of {x.npartitions} chunks", title_justify="left")
    for title, found in figures.items():
        table.add_row(title, f"{found['seconds']:.2g}")
    Console().print(table)
    return {"title": "graphs", "figures": figures}


def scheduling(folder: Path, tasks: int = 4096) -> dict[str, Any]:
    """Processor time per task of a real cluster: scheduler, client and two workers, with next to nothing to compute."""
    n = round(tasks ** (1 / 3)) * 16
    zarr.create_array(folder / "s.zarr", shape=(n, n, n), chunks=(16,) * 3, dtype="uint8", overwrite=True)
    file = folder / "scheduler.json"

    def started(*arguments: object) -> psutil.Popen:
        return psutil.Popen([sys.executable, "-m", "dask", *map(str, arguments)], stderr=subprocess.DEVNULL)

    processes = {
        "scheduler": started(
            "scheduler", "--port", 0, "--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", file
        )
    }
    for i in (1, 2):
        one = ("--nworkers", 1, "--nthreads", 1, "--no-nanny", "--no-dashboard", "--local-directory", folder)
        processes[f"worker {i}"] = started("worker", "--scheduler-file", file, "--host", "127.0.0.1", *one)
    try:
        with Client(scheduler_file=str(file), timeout=120, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            address = client.scheduler.address
        watched = {**processes, "client": psutil.Process()}
        before = {name: sum(process.cpu_times()[:2]) for name, process in watched.items()}
        begun = time.perf_counter()
        volumes.pool(folder / "s.zarr", folder / "t.zarr", "max", 2, chunks=8, cluster=address, memory=3 * 5000)
        spent = time.perf_counter() - begun
        figures = {
            name: {"seconds": (sum(process.cpu_times()[:2]) - before[name]) / tasks}
            for name, process in watched.items()
        }
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    table = Table("", "per task", title=f"A cluster with {tasks} tasks, {spent:.1f} s", title_justify="left")
    for name, found in figures.items():
        table.add_row(name, f"{found['seconds'] * 1e3:.2f} ms")
    Console().print(table)
    return {"title": "scheduling", "figures": figures, "tasks": tasks, "seconds": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="keep the figures in this file")
    parser.add_argument("--dtype", nargs="*", default=["uint8", "float32"], help="which elements")
    parser.add_argument("--size", type=int, default=512, help="edge of the volume")
    options = parser.parse_args()
    n = options.size
    rng = np.random.default_rng(1)
    found = [graphs()]
    with TemporaryDirectory() as folder:
        found.append(scheduling(Path(folder)))
    for dtype in options.dtype:
        x = rng.integers(0, 255, (n, n, n), dtype=np.uint8).astype(dtype)
        for op in ("max", "avg"):
            title = f"{op} 2 x 2 x 2, {dtype}, {n}^3 in chunks of {n // 2}^3, in memory"
            found.append(race(title, in_memory(x, n // 2, op), x.nbytes, "poolgrad"))
        title = f"max 3 x 3 x 3, strides 2, {dtype}, {n}^3 in chunks of {n // 2}^3, in memory"
        found.append(race(title, overlapping(x, n // 2), x.nbytes, "in-memory max", check=False))
        with TemporaryDirectory() as folder:
            for op in ("max", "avg"):
                title = f"{op} 2 x 2 x 2, {dtype}, Zarr to Zarr (zstd), chunks of 128^3"
                found.append(race(title, zarr_to_zarr(x, 128, op, Path(folder)), x.nbytes, "poolgrad pool"))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
