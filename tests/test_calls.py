"""Calls that come again: they are recognised, and what is recognised is never taken for something else."""

import gc
import pickle
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from judge import assert_same_bits
from malformed import GOOD

import poolgrad as pg
from poolgrad import cpu, raw_ops
from poolgrad.cache import MOST_KEPT
from poolgrad.policy import current

X = np.random.default_rng(0).standard_normal((2, 6, 6, 3)).astype(np.float32)
WINDOWS = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("op", raw_ops.__all__)
def test_a_repeated_call_gives_the_same(op):
    """The first call goes through Python, the others are recognised."""
    extra = {"deterministic": True, "seed": 1} if op in ("FractionalMaxPool", "FractionalAvgPool") else {}
    call = getattr(raw_ops, op)
    first = call(**GOOD[op](), **extra)
    for _ in range(3):
        again = call(**GOOD[op](), **extra)
        assert type(again) is type(first)
        for a, b in zip(outputs(first), outputs(again), strict=True):
            assert_same_bits(a, b)
            assert a.dtype is b.dtype and a is not b
            assert b.flags.c_contiguous and b.flags.writeable


@pytest.mark.parametrize("op", raw_ops.__all__)
def test_a_repeated_call_is_checked_as_before(op):
    """What was recognised once does not let a fault pass, and a fault does not spoil what was recognised."""
    call, good = getattr(raw_ops, op), GOOD[op]()
    for _ in range(3):
        call(**good)
        with pytest.raises(pg.errors.PoolgradError, match=op):
            call(**{**good, "data_format": "NXYZ"})
        with pytest.raises(pg.errors.PoolgradError, match=op):
            call(**{**good, "data_format": None, next(iter(good)): "nonsense"})


def test_results_are_aligned_and_their_own():
    kept = [raw_ops.MaxPool(input=X[: i % 2 + 1], **WINDOWS) for i in range(200)]
    assert all(y.ctypes.data % 64 == 0 and type(y.base) is cpu.Block for y in kept)
    assert len({y.ctypes.data for y in kept}) == len(kept)
    for i, y in enumerate(kept):
        assert_same_bits(y, kept[i % 2])


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 192, 255, 257, 4095, 5000, 2**18 - 1, 2**18, 2**18 + 1])
def test_new_arrays_of_any_size(size):
    for _ in range(3):
        arrays = [cpu.new_array((size,), np.dtype(np.uint8)) for _ in range(9)]
        for i, a in enumerate(arrays):
            a[...] = i
        assert all(a.ctypes.data % 64 == 0 and (a == i).all() and a.size == size for i, a in enumerate(arrays))


def test_new_arrays_that_cannot_be():
    for shape, error in (((2**62, 4), MemoryError), ((-1,), MemoryError), (("x",), Exception), ((1,) * 65, ValueError)):
        with pytest.raises(error):
            cpu.new_array(shape, np.dtype(np.float32))


def test_a_list_that_is_changed_is_another_call():
    ksize, strides = [1, 2, 2, 1], [1, 2, 2, 1]
    pooled = [raw_ops.MaxPool(input=X, ksize=ksize, strides=strides, padding="VALID").shape for _ in range(3)]
    ksize[1], strides[2] = 3, 1
    changed = [raw_ops.MaxPool(input=X, ksize=ksize, strides=strides, padding="VALID").shape for _ in range(3)]
    assert set(pooled) == {(2, 3, 3, 3)} and set(changed) == {(2, 2, 5, 3)}
    window = np.array([1, 2, 2, 1], np.int32)
    assert raw_ops.MaxPoolV2(input=X, ksize=window, strides=window, padding="VALID").shape == (2, 3, 3, 3)
    window[1] = 3
    assert raw_ops.MaxPoolV2(input=X, ksize=window, strides=window, padding="VALID").shape == (2, 2, 3, 3)
    window[1] = 0
    with pytest.raises(pg.errors.InvalidArgument):
        raw_ops.MaxPoolV2(input=X, ksize=window, strides=window, padding="VALID")


def test_equal_is_not_the_same():
    """1, True and 1.0 are equal, but only the first is a length. The right call stands before and after each."""
    y = raw_ops.MaxPool(input=X, **WINDOWS)
    for ksize in (
        [True, 2, 2, 1],
        [1, 2.0, 2, 1],
        [1, "2", 2, 1],
        [1, None, 2, 1],
        [1, [2], 2, 1],
        [1, 2, 2],
        [2**70, 2, 2, 1],
    ):
        with pytest.raises(pg.errors.PoolgradError):
            raw_ops.MaxPool(input=X, **{**WINDOWS, "ksize": ksize})
        assert_same_bits(raw_ops.MaxPool(input=X, **WINDOWS), y)
    endless = [1]
    endless.append(endless)
    with pytest.raises(pg.errors.PoolgradError):
        raw_ops.MaxPool(input=X, **{**WINDOWS, "ksize": endless})
    for ksize in ((1, 2, 2, 1), [1, np.int64(2), 2, 1], np.array([1, 2, 2, 1]), iter_of(1, 2, 2, 1)):
        for _ in range(2):
            assert_same_bits(raw_ops.MaxPool(input=X, **{**WINDOWS, "ksize": ksize}), y)


def iter_of(*values):
    class Sequence(list):
        pass

    return Sequence(values)


def test_words_are_known_by_their_letters():
    y = raw_ops.MaxPool(input=X, **WINDOWS)
    assert_same_bits(raw_ops.MaxPool(input=X, **{**WINDOWS, "padding": "".join(["VA", "LID"])}), y)
    for word in ("VALIDE", "VALID\0", "\udc80", "", "valid ", "SAMÉ"):
        with pytest.raises(pg.errors.PoolgradError):
            raw_ops.MaxPool(input=X, **{**WINDOWS, "padding": word})


def test_types_of_indices():
    for given, dtype in (
        ("int32", np.int32),
        (np.int32, np.int32),
        (np.dtype("int64"), np.int64),
        (np.int64, np.int64),
    ) * 2:
        assert raw_ops.MaxPoolWithArgmax(input=X, **WINDOWS, Targmax=given).argmax.dtype == dtype
    for _ in range(3):
        with pytest.raises(pg.errors.PoolgradError):
            raw_ops.MaxPoolWithArgmax(input=X, **WINDOWS, Targmax=type("Other", (), {}))


@pytest.mark.parametrize("dtype", [*pg.catalog.DTYPES])
def test_one_place_may_be_called_with_anything(dtype):
    x = (X * 20).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    wide = np.zeros((2, 6, 6, 7), x.dtype)
    wide[..., 2:5] = x
    odd = np.frombuffer(b"." + x.tobytes(), x.dtype, offset=1).reshape(x.shape)
    locked = x.copy()
    locked.flags.writeable = False
    unpickled, swapped = pickle.loads(pickle.dumps(x)), x.astype(x.dtype.newbyteorder())
    expected = {}
    for _ in range(3):
        for nan in ("propagate", "ignore"):
            for array in (
                x,
                wide[..., 2:5],
                odd,
                locked,
                unpickled,
                swapped,
                x.view(Sub),
                np.asfortranarray(x),
                x[::-1][::-1],
            ):
                with pg.policy(nan=nan):
                    y = raw_ops.MaxPool(input=array, **WINDOWS)
                assert type(y) is np.ndarray and y.dtype == x.dtype
                assert_same_bits(y, expected.setdefault("y", y))
        assert raw_ops.MaxPool(input=x[:1], **WINDOWS).shape == (1, 3, 3, 3)
        assert raw_ops.MaxPool(input=x[:0], **WINDOWS).shape == (0, 3, 3, 3)
    marked = np.dtype(x.dtype, metadata={"unit": "m"}) if dtype != "bfloat16" else x.dtype
    for array in (x, x.view(marked), x):
        assert raw_ops.MaxPool(input=array, **WINDOWS).dtype is array.dtype


class Sub(np.ndarray):
    pass


def test_policies():
    x, g = np.ones((1, 2, 2, 1), np.float32), np.full((1, 1, 1, 1), 4, np.float32)
    expected = {"first": [4, 0, 0, 0], "all": [4, 4, 4, 4], "split": [1, 1, 1, 1]}
    for _ in range(3):
        for ties, gx in expected.items():
            with pg.policy(ties=ties):
                assert (
                    raw_ops.MaxPoolGrad(orig_input=x, orig_output=x[:, :1, :1], grad=g, **WINDOWS).ravel().tolist()
                    == gx
                )


def test_indices_are_looked_at_every_time():
    g, good = np.ones((2, 3, 3, 3), np.float32), raw_ops.MaxPoolWithArgmax(input=X, **WINDOWS).argmax
    bad = good.copy()
    bad[1, 2, 0, 1] = 108
    for _ in range(3):
        for op, grad in (("MaxPoolGradWithArgmax", g), ("MaxPoolGradGradWithArgmax", X)):
            call = getattr(raw_ops, op)
            call(input=X, grad=grad, argmax=good, **WINDOWS)
            with pytest.raises(pg.errors.InvalidArgument, match=rf"{op}: argmax at \(1, 2, 0, 1\) is 108"):
                call(input=X, grad=grad, argmax=bad, **WINDOWS)


def test_many_threads_and_many_shapes():
    """More different calls than are kept, from several threads: everybody gets what a lone caller gets."""
    x = np.arange(80 * 80, dtype=np.float32).reshape(1, 80, 80, 1)
    barrier = threading.Barrier(4)

    def work(seed):
        rng = np.random.default_rng(seed)
        barrier.wait()
        for _ in range(2500):
            h, w = rng.integers(2, 80, 2)
            y = raw_ops.MaxPool(input=x[:, :h, :w], **{**WINDOWS, "ksize": [1, 2, 2, 1]})
            assert y.shape == (1, h // 2, w // 2, 1) and y[0, -1, -1, 0] == (h // 2 * 2 - 1) * 80 + w // 2 * 2 - 1
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))
    assert MOST_KEPT < 78 * 78


def test_nothing_is_leaked_and_no_array_is_kept():
    k, y = [1, 2, 2, 1], raw_ops.MaxPool(input=X, **WINDOWS)
    arrays = {"orig_input": X.copy(), "orig_output": y, "grad": y.copy()}
    attributes = {"ksize": k, "strides": k, "padding": "VALID"}
    index = raw_ops.MaxPoolWithArgmax(input=arrays["orig_input"], **attributes).argmax

    def calls(n):
        for _ in range(n):
            raw_ops.MaxPoolGrad(**arrays, **attributes)
            raw_ops.MaxPoolWithArgmax(input=arrays["orig_input"], **attributes)
            raw_ops.MaxPoolGradWithArgmax(input=arrays["orig_input"], grad=y, argmax=index, **attributes)

    calls(100)
    watched = [*arrays.values(), index, k, k[1], X.dtype, current(), True, None]
    gc.collect()  # what other tests left holds None and numbers too
    before = [sys.getrefcount(o) for o in watched]
    tracemalloc.start()
    calls(1000)
    gc.collect()
    start = tracemalloc.get_traced_memory()[0]
    calls(30_000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert grown < 20_000
    after = [sys.getrefcount(o) for o in watched]
    assert max(a - b for a, b in zip(after, before, strict=True)) < 10_000  # fewer than calls
    assert max(abs(a - b) for a, b in zip(after[:5], before[:5], strict=True)) < 100  # nobody else has these
