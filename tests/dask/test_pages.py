"""Pages on Dask: the same results as on NumPy, whatever the chunks."""

import sys
from pathlib import Path

import dask
import numpy as np
import pytest
from hypothesis import given, settings

from poolgrad.graph import ClientSession, Page, add_symbolic_gradients

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
