"""What a call on Dask arrays promises before it is computed: lazy, small graphs, known chunks, clear errors."""

import pickle
import re
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest

import poolgrad as pg
from poolgrad import maps, parts

GRID = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
CELLS = {"row_pooling_sequence": [0, 2, 4, 8], "col_pooling_sequence": [0, 1, 4, 8]}


def never(shape, dtype=np.float32, chunks=4):
    """An array whose chunks cannot be computed."""

    def fail(block_info=None):
        raise AssertionError("this was to stay lazy")

    return da.map_blocks(fail, chunks=da.core.normalize_chunks(chunks, shape), dtype=dtype, meta=np.empty(0, dtype))


def test_nothing_is_computed_by_a_call():
    x, y = never((2, 8, 8, 3)), never((2, 4, 4, 3))
    pg.raw_ops.MaxPool(input=x, **GRID)
    pg.raw_ops.MaxPoolWithArgmax(input=x, **GRID)
    pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=y, **GRID)
    pg.raw_ops.MaxPoolGradWithArgmax(input=x, grad=y, argmax=never((2, 4, 4, 3), np.int64), **GRID)
    pg.raw_ops.FractionalMaxPoolGrad(
        orig_input=x, orig_output=never((2, 3, 3, 3)), out_backprop=never((2, 3, 3, 3)), **CELLS
    )
    pool = pg.pool((2, 8, 8, 3), 3, 2, "same")
    maps.put(pool, y, never((2, 4, 4, 3), np.uint8))
    pg.max_unpool(y, never((2, 4, 4, 3), np.int64), (2, 8, 8, 3))


def test_what_only_lends_its_shape_is_not_computed():
    """MaxPoolGrad does not look at orig_output, MaxPoolGradWithArgmax not at its input."""
    x = da.ones((2, 8, 8, 3), chunks=4, dtype=np.float32)
    y, argmax = pg.raw_ops.MaxPoolWithArgmax(input=x, **GRID)
    pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=never(y.shape), grad=y, **GRID).compute()
    pg.raw_ops.MaxPoolGradWithArgmax(input=never(x.shape), grad=y, argmax=argmax, **GRID).compute()


def own_tasks(array):
    """The tasks of our layers, per chunk of the result."""
    layers = [layer for name, layer in array.dask.layers.items() if name.startswith("poolgrad")]
    return sum(map(len, layers)) / array.npartitions


def test_one_task_per_chunk():
    x = da.zeros((2, 64, 64, 64, 2), chunks=(1, 16, 16, 16, 2), dtype=np.float32)
    grid = {"ksize": [1, 3, 3, 3, 1], "strides": [1, 1, 1, 1, 1], "padding": "SAME"}
    y = pg.raw_ops.MaxPool3D(input=x, **grid)
    assert own_tasks(y) == 1
    grad = pg.raw_ops.MaxPool3DGrad(orig_input=x, orig_output=da.zeros_like(x), grad=da.ones_like(x), **grid)
    assert own_tasks(grad) == 1
    assert own_tasks(pg.raw_ops.MaxPoolWithArgmax(input=x[:, 0], **GRID).argmax) == 2


def test_a_chunk_needs_its_neighbours_and_no_more():
    x = da.zeros((64, 64), chunks=8, dtype=np.float32)
    y = pg.max_pool(x, 3, 1, "same", layout="YX")
    inside = y.dask.layers[y.name][(y.name, 3, 4)]
    assert {key[1:] for key in inside.dependencies} == {(i, j) for i in (2, 3, 4) for j in (3, 4, 5)}
    disjoint = pg.max_pool(x, 2, layout="YX")
    assert {key[1:] for key in disjoint.dask.layers[disjoint.name][(disjoint.name, 3, 4)].dependencies} == {(3, 4)}


def test_chunks_follow_the_windows():
    x = da.zeros((64, 50), chunks=(16, 20), dtype=np.float32)
    assert pg.max_pool(x, 3, 2, "same", layout="YX").chunks == ((8, 8, 8, 8), (10, 10, 5))
    assert pg.max_pool(x, 3, 1, "same", layout="YX").chunks == ((16, 16, 16, 16), (20, 20, 10))
    assert pg.avg_pool_grad((64, 50), pg.avg_pool(x, 2, layout="YX"), 2, layout="YX").chunks == x.chunks
    assert pg.adaptive_max_pool(x, 8, layout="YX").chunks == ((2, 2, 2, 2), (4, 3, 1))


def test_the_gradient_of_a_global_average_has_chunks_of_a_bearable_size():
    with dask.config.set({"array.chunk-size": "1MiB"}):
        shape = (1024, 1024, 1024)
        gx = pg.avg_pool_grad(shape, da.ones((1, 1, 1), dtype=np.float32), 1024, layout="ZYX")
        assert max(np.prod(gx.chunksize) * 4, 1) <= 2 * 2**20
        assert gx[500, 500, :3].compute().tolist() == [2.0**-30] * 3


def test_large_graphs_are_made_quickly_and_small_tasks_travel():
    x = da.zeros((30 * 64, 30 * 64, 28 * 64), chunks=64, dtype=np.float32)
    begun = time.process_time()
    y = pg.max_pool(x, 3, 2, "same", layout="ZYX")
    spent = time.process_time() - begun
    assert y.npartitions == 25200
    assert spent < 7.5, "100,000 chunks in 30 s"
    task = y.dask.layers[y.name][(y.name, 3, 4, 5)]
    assert len(pickle.dumps(task)) < 4000


def test_the_same_call_has_the_same_name():
    x = da.zeros((8, 8), chunks=4, dtype=np.float32)
    assert pg.max_pool(x, 2, layout="YX").name == pg.max_pool(x, 2, layout="YX").name
    assert pg.max_pool(x, 2, layout="YX").name != pg.max_pool(x, 4, layout="YX").name
    assert pg.max_pool(x, 2, layout="YX").name != pg.max_pool(x, 2, layout="YX", nan="ignore").name


def test_fractional_cells_are_drawn_once():
    """Also without a seed every chunk, and every later computation, has the same cells."""
    x = da.random.default_rng(1).random((1, 40, 40, 1), chunks=(1, 7, 7, 1)).astype(np.float32)
    r = pg.raw_ops.FractionalMaxPool(value=x, pooling_ratio=[1, 1.7, 1.7, 1])
    rows, columns = r.row_pooling_sequence.compute(), r.col_pooling_sequence.compute()
    whole = pg.fractional_max_pool(x.compute(), sequences=[rows, columns])
    for _ in range(2):
        np.testing.assert_array_equal(r.output.compute(), whole)


def test_numpy_and_dask_together():
    x = np.arange(64, dtype=np.float32).reshape(1, 8, 8, 1)
    y = pg.raw_ops.MaxPool(input=x, **GRID)
    lazy = pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=da.from_array(y, chunks=2), **GRID)
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=y, **GRID))
    assert isinstance(pg.max_pool_grad(x, da.from_array(y), 3, 2, "same"), da.Array)
    assert isinstance(pg.max_pool_grad(da.from_array(x), y, 3, 2, "same"), da.Array)


def test_foreign_byte_order():
    x = np.arange(16, dtype=">f4").reshape(4, 4)
    assert pg.max_pool(da.from_array(x, chunks=2), 2, layout="YX").compute().tolist() == [[5, 7], [13, 15]]


class TestErrors:
    """Named like those of in-memory arrays; what the data shows, when it is computed."""

    def test_unknown_chunks(self):
        x = da.ones((8, 8), chunks=4)
        with pytest.raises(pg.errors.PoolgradError, match=r"max_pool: x: .*unknown sizes; x.compute_chunk_sizes"):
            pg.max_pool(x[x[:, 0] > 0], 2, layout="YX")

    def test_shapes_are_checked_at_once(self):
        x = never((1, 8, 8, 1))
        with pytest.raises(pg.errors.InvalidArgument, match=r"MaxPoolGrad: grad has shape \(1, 3, 3, 1\)"):
            pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=never((1, 4, 4, 1)), grad=never((1, 3, 3, 1)), **GRID)

    def test_dtypes(self):
        with pytest.raises(pg.errors.InvalidType, match="complex128"):
            pg.max_pool(da.zeros((4, 4), dtype=complex), 2, layout="YX")
        with pytest.raises(pg.errors.InvalidType, match="they must be the same"):
            pg.raw_ops.MaxPoolGrad(
                orig_input=never((1, 8, 8, 1)),
                orig_output=never((1, 4, 4, 1)),
                grad=never((1, 4, 4, 1), np.float64),
                **GRID,
            )

    def test_chunks_that_are_no_numpy_arrays(self):
        """A mask would be lost without a word."""
        x = da.ma.masked_equal(da.zeros((4, 4), dtype=np.float32), 0)
        with pytest.raises(pg.errors.InvalidType, match="chunks that are NumPy arrays, got MaskedArray"):
            pg.max_pool(x, 2, layout="YX")

    @pytest.mark.filterwarnings("ignore:.*may_share_memory:FutureWarning")
    def test_out(self):
        with pytest.raises(pg.errors.InvalidArgument, match=r"max_pool: out .*dask.array.store"):
            pg.max_pool(da.zeros((4, 4)), 2, layout="YX", out=np.empty((2, 2)))

    def test_an_orig_output_that_is_no_maximum(self):
        x = da.zeros((1, 8, 8, 1), chunks=4, dtype=np.float32)
        y = da.from_array(np.eye(3, dtype=np.float32).reshape(1, 3, 3, 1), chunks=2)
        lazy = pg.raw_ops.FractionalMaxPoolGrad(orig_input=x, orig_output=y, out_backprop=y, **CELLS)
        with pytest.raises(pg.errors.InvalidArgument, match="FractionalMaxPoolGrad: orig_output is not the maximum"):
            lazy.compute()

    @pytest.mark.parametrize("stray", [-1, 64, 63])
    def test_an_argmax_outside_its_window(self, stray):
        """In memory it may lie anywhere in its image; chunks would need the whole image to follow it."""
        x = da.zeros((1, 8, 8, 1), chunks=4, dtype=np.float32)
        y, argmax = pg.raw_ops.MaxPoolWithArgmax(input=x, **GRID)
        argmax = argmax.compute()
        argmax[0, 1, 2, 0] = stray
        lazy = pg.raw_ops.MaxPoolGradWithArgmax(input=x, grad=y, argmax=da.from_array(argmax, chunks=2), **GRID)
        problem = rf"MaxPoolGradWithArgmax: argmax at \(0, 1, 2, 0\) is {stray}, outside its window"
        with pytest.raises(pg.errors.InvalidArgument, match=problem):
            lazy.compute()

    def test_a_choice_outside_its_window(self):
        pool = pg.pool((8, 8), 2, layout="YX")
        choice = da.from_array(np.full((4, 4), 4, np.uint8), chunks=(1, 2))
        with pytest.raises(pg.errors.InvalidArgument, match=r"choice at \(\d, \d\) is 4, outside its window"):
            maps.put(pool, da.ones((4, 4)), choice).compute()

    def test_an_index_outside_the_array(self):
        lazy = pg.max_unpool(da.ones((2, 2)), da.full((2, 2), 16), (4, 4), layout="YX")
        with pytest.raises(pg.errors.InvalidArgument, match="max_unpool: indices has an entry 16, expected 0 to 15"):
            lazy.compute()


@pytest.mark.parametrize(
    ("source", "name", "known"),
    [
        ("plan.cpp", "double large_additions", parts.LARGE_ADDITIONS),
        ("sums.hpp", "int64_t long_window", parts.LONG_WINDOW),
    ],
)
def test_parts_add_up_by_the_limits_of_the_kernels(source, name, known):
    """The limits stand in the kernels' sources; parts of a pooling must follow when they move."""
    text = (Path(__file__).parents[2] / "src/poolgrad/cpu" / source).read_text()
    found = re.search(rf"constexpr {name} = ([\d.]+);", text)
    assert found is not None, f"{source} has no {name} any more: see poolgrad.parts.sums_of"
    assert float(found[1]) == known
