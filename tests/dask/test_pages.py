"""Pages on Dask: the same results as on NumPy, whatever the chunks."""

import json
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, settings

import poolgrad as pg
from poolgrad.errors import OutOfMemory
from poolgrad.graph import BlockError, ClientSession, Page, Scope, add_symbolic_gradients, ops
from poolgrad.graph.values import DTYPES

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "graph"))

from graphs import pages  # noqa: E402

EXAMPLES = sorted((ROOT / "examples").glob("*.page.json"))


def results(page, engine):
    session = ClientSession(page, engine)
    report = session.evaluate()
    assert report.ok, report.problems
    return {key: session.engine.to_numpy(value) for key, value in report.results().items()}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
@pytest.mark.parametrize("chunk_size", ["128MiB", "64B"])
def test_examples(path, chunk_size):
    whole = results(Page.load(path), "cpu")
    with dask.config.set({"array.chunk-size": chunk_size}):
        chunked = results(Page.load(path), "dask")
    assert chunked.keys() == whole.keys()
    for key, value in whole.items():
        assert (chunked[key].dtype, chunked[key].shape) == (value.dtype, value.shape), key
        if value.dtype.kind == "f":  # sums of whole arrays are added up chunk by chunk
            np.testing.assert_allclose(chunked[key], value, rtol=1e-13 if value.dtype == np.float64 else 1e-6)
        else:
            np.testing.assert_array_equal(chunked[key], value)


@settings(max_examples=25)
@given(pages())
def test_random_pages_and_their_gradients(made):
    scope, inputs, loss, _ = made
    gradients = [g for g in add_symbolic_gradients(scope, [loss], inputs) if g is not None]
    whole = ClientSession(scope).run([loss, *gradients])
    session = ClientSession(scope, "dask")
    with dask.config.set({"array.chunk-size": "100B"}):
        chunked = [session.engine.to_numpy(value) for value in session.run([loss, *gradients])]
    for value, expected in zip(chunked, whole):
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(dtype):
    root = Scope.new_root()
    x = ops.Const(root, np.array([0.0, 1.5, 3.0]), dtype="float64")
    ops.Cast(root.with_name("y"), x, dtype)
    whole, chunked = (results(root.page, engine)["y.result_output"] for engine in ("cpu", "dask"))
    assert chunked.dtype.name == dtype
    np.testing.assert_array_equal(chunked, whole)


def test_a_fault_is_at_its_block():
    page = Page.load(ROOT / "examples" / "fractionalmaxpoolgrad.page.json")
    block = next(name for name, b in page.blocks.items() if b.type.name == "FractionalMaxPoolGrad")
    source = page.blocks[block].inputs["orig_output"][0].partition(".")[0]
    shape = page.infer().outputs[f"{source}.output"].shape
    page.set(source, "value", 77)
    page.set(source, "shape", list(shape))
    report = ClientSession(page, "dask").evaluate()
    assert report.blocks[block].status == "failed"
    assert "orig_output is not the maximum of every cell" in report.blocks[block].problem.message


# ---------------------------------------------------------------------------------------------------------------------
# Files larger than memory


def pooling_page(folder, file, save):
    """A volume from a file, pooled, its square summed up, and its gradient; the pooled volume goes to a file."""
    root = Scope.new_root()
    root.page.folder = folder
    x = ops.Load(root.with_name("x"), file)
    y = ops.MaxPool3D(root.with_name("y"), x, "1,2,2,2,1", "1,2,2,2,1", "SAME")
    total = ops.Sum(root.with_name("total"), ops.Square(root, y))
    ops.Save(root.with_name("saved"), y, save)
    (gx,) = add_symbolic_gradients(root, [total], [x])
    ops.Sum(root.with_name("gradient"), gx, "1,2,3", keep_dims=True)
    root.page.save(folder / "volume.page.json")
    return root.page


@pytest.fixture
def numbers(rng):
    return rng.normal(size=(1, 17, 12, 10, 2)).astype(np.float32)


def written(folder, file, numbers):
    if file.endswith(".npy"):
        np.save(folder / file, numbers)
    else:
        array = zarr.create_array(folder / file, shape=numbers.shape, chunks=(1, 4, 4, 4, 1), dtype=numbers.dtype)
        array[...] = numbers


@pytest.mark.parametrize("file", ["x.npy", "x.zarr"])
def test_a_file_that_is_replaced_is_not_read_on(file, numbers, tmp_path):
    """What was loaded is not in memory; the numbers that took its place are not taken for it."""
    written(tmp_path, file, numbers)
    root = Scope.new_root()
    root.page.folder = tmp_path
    saved = ops.Save(root.with_name("saved"), ops.Square(root, ops.Load(root.with_name("x"), file)), file)
    ops.Sum(root.with_name("total"), saved)
    with dask.config.set({"array.chunk-size": "1KiB"}):
        report = ClientSession(root.page, "dask", max_memory=numbers.nbytes, overwrite=True).evaluate()
        assert report.blocks["saved"].status == "done"
        assert f"{file} was replaced while it was read in parts" in report.blocks["total"].problem.message
        session = ClientSession(root.page, "dask", max_memory=numbers.nbytes)
        there = session.engine.to_numpy(session.run("x"))
    np.testing.assert_array_equal(there, numbers**2)


@pytest.mark.parametrize("file", ["x.npy", "x.zarr"])
@pytest.mark.parametrize("save", ["y.npy", "y.zarr"])
def test_files_are_read_and_written_in_parts(file, save, numbers, tmp_path):
    """Nothing that is large is ever there as a whole, and the results are those of the whole."""
    written(tmp_path, file, numbers)
    page = pooling_page(tmp_path, file, save)
    whole = ClientSession(page, overwrite=True)
    names = ["saved", "total", "gradient"]
    expected = [np.array(value) for value in whole.run(names)]
    session = ClientSession(page, "dask", max_memory=2**12, overwrite=True)  # the volume has 16 KiB
    with dask.config.set({"array.chunk-size": "2KiB"}):
        report = session.evaluate()
        assert report.ok, report.problems
        assert session.engine.deferred(report.result("x")) and report.result("x").npartitions > 8
        with pytest.raises(OutOfMemory, match="this is computed in parts and takes"):
            session.engine.to_numpy(report.result("x"))
        for name, value in zip(names[1:], expected[1:]):
            np.testing.assert_allclose(session.engine.to_numpy(report.result(name)), value, rtol=1e-5)
        assert ClientSession(page, "dask", max_memory=2**12).evaluate().ok, "the same contents may be saved again"
        page.set("y", "ksize", "1,1,2,2,1")
        again = ClientSession(page, "dask", max_memory=2**12).evaluate()
        assert "exists with other contents" in again.blocks["saved"].problem.message
    saved = np.load(tmp_path / save) if save.endswith(".npy") else zarr.open_array(tmp_path / save, mode="r")[...]
    assert saved.tobytes() == expected[0].tobytes()
    assert not list(tmp_path.glob(".writing-*"))


@pytest.mark.parametrize("dtype", [">f4", "int16"])
def test_parts_of_other_orders_and_types(dtype, numbers, tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(numbers.astype(dtype)))
    page = Page(folder=tmp_path)
    page.add("Load", "x", {"file": "x.npy"})
    with dask.config.set({"array.chunk-size": "1KiB"}):
        found = ClientSession(page, "dask").run("x")
    assert found.npartitions > 1
    assert found.dtype.isnative
    np.testing.assert_array_equal(found.compute(), numbers.astype(dtype))


def test_what_can_only_be_read_as_a_whole_needs_the_memory(numbers, tmp_path):
    np.savez(tmp_path / "x.npz", numbers)
    page = Page(folder=tmp_path)
    page.add("Load", "x", {"file": "x.npz"})
    with pytest.raises(BlockError, match=r"this takes 15\.9 KiB; 0 bytes of 4\.0 KiB are in use"):
        ClientSession(page, "dask", max_memory=2**12).run("x")


def test_a_feed_in_parts(numbers, tmp_path, capsys):
    from poolgrad.cli import main

    np.save(tmp_path / "x.npy", numbers)
    root = Scope.new_root()
    x = ops.Placeholder(root.with_name("x"), "float32", shape="1,-1,-1,-1,2")
    ops.MaxPool3D(root.with_name("y"), x, "1,2,2,2,1", "1,2,2,2,1", "SAME")
    root.page.save(tmp_path / "p.page.json")
    command = ["run", tmp_path / "p.page.json", "--feed", f"x={tmp_path / 'x.npy'}", "--device", "dask"]
    with dask.config.set({"array.chunk-size": "1KiB"}), pytest.raises(SystemExit) as ended:
        main([str(a) for a in [*command, "--max-memory", "4KiB", "--json", "--save", tmp_path / "out"]])
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["blocks"]["y"]["outputs"]["output"] == {
        "dtype": "float32", "shape": [1, 9, 6, 5, 2], "computed": "in parts"
    }  # fmt: skip
    found = np.load(tmp_path / "out" / "y.output.npy")
    np.testing.assert_array_equal(found, pg.max_pool(numbers, 2, padding="same", layout="NDHWC"))


LARGE = """
import resource, sys
import numpy as np, poolgrad.graph as graph
from pathlib import Path
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
page = graph.Page.load(Path(sys.argv[1]))
report = graph.ClientSession(page, "dask", max_memory=160 * 2**20).evaluate(["saved", "total"])
assert report.ok, report.problems
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, float(report.result("total").compute()))
"""


@pytest.mark.parametrize("file", ["x.npy", "x.zarr"])
def test_a_page_over_more_data_than_memory(file, tmp_path):
    """768 MiB with 160 MiB of memory, in a process of its own whose peak is measured."""
    shape = (1, 384, 512, 1024, 1)
    if file == "x.npy":
        np.lib.format.open_memmap(tmp_path / file, "w+", np.float32, shape)[0, 7, 9, 11, 0] = 3
    else:
        array = zarr.create_array(tmp_path / file, shape=shape, chunks=(1, 32, 512, 512, 1), dtype="float32")
        array[0, 7, 9, 11, 0] = 3
    pooling_page(tmp_path, file, "y.zarr")
    command = [sys.executable, "-c", LARGE, str(tmp_path / "volume.page.json")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    before, peak, total = map(float, ran.stdout.split())
    assert total == 9
    assert (peak - before) / 2**10 < 240, "MiB, the libraries that were loaded meanwhile included"
    assert zarr.open_array(tmp_path / "y.zarr", mode="r")[0, 3, 4, 5, 0] == 3
