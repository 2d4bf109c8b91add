"""A real cluster on this machine: a scheduler, two worker processes, and a client on the command line, which are
killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client

import poolgrad as pg
from poolgrad.graph import Page

PATIENCE = 180
CHUNKS = 8 * 8 * 10


def started(*arguments, stdout=subprocess.DEVNULL):
    """A Python process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "POOLGRAD_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed(process):
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()


def wait_until(condition, what):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < PATIENCE, f"waited too long for {what}"
        time.sleep(0.01)


class Cluster:
    def __init__(self, folder):
        self.file = folder / "scheduler.json"
        local = ("--host", "127.0.0.1", "--scheduler-file", self.file)
        self.scheduler = started("dask", "scheduler", "--port", 0, "--no-dashboard", *local)
        wait_until(self.file.exists, "the scheduler")
        one = ("--nworkers", 1, "--nthreads", 1, "--no-nanny", "--no-dashboard", "--local-directory", folder)
        self.workers = [
            started("dask", "worker", "--host", "127.0.0.1", "--scheduler-file", self.file, *one) for _ in range(2)
        ]
        with self.client() as client:
            client.wait_for_workers(2, timeout=PATIENCE)
            self.address = client.scheduler.address

    def client(self):
        return Client(scheduler_file=str(self.file), timeout=PATIENCE, set_as_default=False)

    def end(self):
        for process in (*self.workers, self.scheduler):
            killed(process)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.end()


def pool_on(cluster, folder, *options):
    """The command line as a client; a task is one chunk."""
    return started(
        "poolgrad.cli", "pool", folder / "x.zarr", folder / "y.zarr", "--op", "max", "--window", 3, "--strides", 2,
        "--padding", "same", "--cluster", cluster.address, "--memory", "20KiB", *options,
    )  # fmt: skip


def written(folder):
    """Every chunk that is there, with what tells whether it was written anew."""
    found = {}
    for path in (folder / "y.zarr" / "c").rglob("*"):
        if path.is_file() and path.suffix != ".partial":
            about = path.stat()
            found[path] = (about.st_ino, about.st_mtime_ns)
    return found


def test_arrays_on_a_cluster(cluster):
    """Tasks and their errors travel."""
    x = np.random.default_rng(1).normal(size=(20, 20, 20)).astype(np.float32)
    lazy = pg.max_pool(da.from_array(x, chunks=7), 3, 2, "same", layout="ZYX")
    with cluster.client() as client:
        found = client.compute(lazy).result(timeout=PATIENCE)
        bad = pg.max_unpool(da.ones((2, 2)), da.full((2, 2), 16), (4, 4), layout="YX")
        with pytest.raises(pg.errors.InvalidArgument, match="max_unpool: indices has an entry 16"):
            client.compute(bad).result(timeout=PATIENCE)
    np.testing.assert_array_equal(found, pg.max_pool(x, 3, 2, "same", layout="ZYX"))


def test_pages_on_a_cluster(cluster):
    page = Path(__file__).resolve().parents[2] / "examples" / "maxpool3dgrad.page.json"
    there = started("poolgrad.cli", "run", page, "--cluster", cluster.address, "--json", stdout=subprocess.PIPE)
    here = started("poolgrad.cli", "run", page, "--json", stdout=subprocess.PIPE)
    results = []
    for process in (there, here):
        answer, problems = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, problems
        results.append(without_seconds(json.loads(answer)))
    assert results[0] == results[1]


@pytest.mark.parametrize("file", ["x.npy", "x.zarr"])
def test_workers_read_large_files_of_a_page_themselves(file, cluster, tmp_path, rng):
    x = rng.normal(size=(1, 64, 64, 64, 1)).astype(np.float32)
    if file == "x.npy":
        np.save(tmp_path / file, x)
    else:
        zarr.create_array(tmp_path / file, shape=x.shape, chunks=(1, 16, 64, 64, 1), dtype=x.dtype)[...] = x
    page = Page(folder=tmp_path)
    page.add("Load", "x", {"file": file})
    page.add("MaxPool3D", "y", {"ksize": "1,2,2,2,1", "strides": "1,1,1,1,1", "padding": "SAME"})
    page.add("Save", "saved", {"file": "y.npy"})
    page.wire("x.output", "y.input")
    page.wire("y.output", "saved.input")
    page.save(tmp_path / "p.page.json")
    command = ("poolgrad.cli", "run", tmp_path / "p.page.json", "--cluster", cluster.address, "--max-memory", "1MiB")
    ran = started(*command, "--json", stdout=subprocess.PIPE)
    answer, problems = ran.communicate(timeout=PATIENCE)
    assert ran.returncode == 0, problems
    assert json.loads(answer)["blocks"]["x"]["outputs"]["output"]["computed"] == "in parts"
    expected = pg.max_pool(x, 2, 1, "same", layout="NDHWC")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def without_seconds(answer):
    if isinstance(answer, dict):
        return {key: without_seconds(value) for key, value in answer.items() if key != "seconds"}
    return [without_seconds(value) for value in answer] if isinstance(answer, list) else answer


def test_workers_and_clients_may_die(cluster, tmp_path, rng):
    """A worker is killed in the middle: the run goes on without it. The client is killed: `--resume` goes on where it
    stopped. The result is complete and right, and nothing is written twice."""
    x = rng.integers(1, 255, (128, 128, 160)).astype(np.uint8)
    zarr.create_array(tmp_path / "x.zarr", shape=x.shape, chunks=(16, 16, 16), dtype=x.dtype)[:] = x
    client = pool_on(cluster, tmp_path, "--chunks", 8)
    wait_until(lambda: len(written(tmp_path)) >= 30, "the first chunks")
    killed(cluster.workers[0])
    at_death = len(written(tmp_path))
    wait_until(lambda: len(written(tmp_path)) >= at_death + 30, "chunks of the worker that is left")
    assert client.poll() is None
    killed(client)
    before = written(tmp_path)
    assert 60 <= len(before) < CHUNKS

    again = pool_on(cluster, tmp_path, "--chunks", 8, "--resume")
    _, problems = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, problems
    after = written(tmp_path)
    assert len(after) == CHUNKS
    assert {path: after[path] for path in before} == before
    y = zarr.open_array(tmp_path / "y.zarr")
    assert y.attrs["poolgrad"]["complete"]
    np.testing.assert_array_equal(y[:], pg.max_pool(x, 3, 2, "same", layout="ZYX"))
