"""Arrays beyond 2**31 elements: every index is 64 bits wide. Run by `make test-full`; up to 9 GiB of memory."""

import numpy as np
import pytest

import poolgrad as pg

pytestmark = pytest.mark.full

N = 2**31 + 8192  # elements of uint8: two gibibytes
PEAKS = (0, 1, 2**31 - 1, 2**31, 2**31 + 1, N - 1)  # places that a 32-bit index gets wrong


@pytest.fixture(scope="module")
def line():
    """Zeros with a few peaks of different height on either side of 2**31."""
    x = np.zeros(N, np.uint8)
    for height, place in enumerate(PEAKS, 1):
        x[place] = height
    return x


def test_one_long_axis(line):
    """Stride-2 windows of 2 along one axis of more than 2**31 elements: forward, gradient, second derivative."""
    x = line.reshape(1, 1, N, 1)
    pool = {"ksize": [1, 1, 2, 1], "strides": [1, 1, 2, 1], "padding": "VALID"}
    y = pg.raw_ops.MaxPool(input=x, **pool)
    assert y.shape == (1, 1, N // 2, 1)
    assert np.array_equal(y.ravel(), line.reshape(-1, 2).max(axis=1))
    gx = pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=y, **pool)
    # Every window sends its maximum back to where it stood: only the peaks that won keep their value.
    won = {place for place in PEAKS if line[place] == line[place ^ 1 : (place ^ 1) + 1].max(initial=line[place])}
    assert sorted(np.flatnonzero(gx).tolist()) == sorted(won)
    assert all(gx.ravel()[place] == line[place] for place in won)
    del gx
    again = pg.raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=x, **pool)
    assert np.array_equal(again, y)


def test_long_axis_with_a_stride_beyond_32_bits(line):
    x = line.reshape(1, N, 1, 1)
    pool = {"ksize": [1, 4096, 1, 1], "strides": [1, 2**31, 1, 1], "padding": "VALID"}
    y = pg.raw_ops.MaxPool(input=x, **pool)
    assert y.ravel().tolist() == [line[:4096].max(), line[2**31 : 2**31 + 4096].max()]


def test_argmax_beyond_32_bits(line):
    """The flat index of an element past 2**31, and the gradient through it."""
    x = line.reshape(1, N // 4096, 4096, 1)
    pool = {"ksize": [1, 64, 64, 1], "strides": [1, 64, 64, 1], "padding": "SAME"}
    y, index = pg.raw_ops.MaxPoolWithArgmax(input=x, **pool)
    assert index.dtype == np.int64 and int(index.max()) >= 2**31
    peaks = np.flatnonzero(y.ravel())
    assert all(line[i] == v for i, v in zip(index.ravel()[peaks], y.ravel()[peaks]))
    gx = pg.raw_ops.MaxPoolGradWithArgmax(input=x, grad=y, argmax=index, **pool)
    assert sorted(np.flatnonzero(gx).tolist()) == sorted(index.ravel()[peaks].tolist())
    with pytest.raises(pg.errors.PoolgradError, match="MaxPoolWithArgmax"):  # such an index does not fit
        pg.raw_ops.MaxPoolWithArgmax(input=x, Targmax=np.int32, **pool)


@pytest.mark.parametrize("form", ["NHWC", "NCHW"])
def test_an_image_of_more_than_two_gibibytes(line, form):
    """Rows whose offsets need more than 31 bits, in both channel orders."""
    rows = N // 4096
    shape, ksize = ((1, rows, 2048, 2), [1, 2, 2, 1]) if form == "NHWC" else ((1, 2, rows, 2048), [1, 1, 2, 2])
    x = line.reshape(shape)
    pool = {"ksize": ksize, "strides": ksize, "padding": "SAME", "data_format": form}
    y = pg.raw_ops.MaxPool(input=x, **pool)
    want = (
        x.reshape(1, rows // 2, 2, 1024, 2, 2).max((2, 4))
        if form == "NHWC"
        else x.reshape(1, 2, rows // 2, 2, 1024, 2).max((3, 5))
    )
    assert np.array_equal(y, want)
    del want
    mean = pg.raw_ops.AvgPool(value=4 * x, **pool)  # peaks lie far apart, so a window's mean is its maximum
    assert sum(mean.ravel()[i] == y.ravel()[i] for i in np.flatnonzero(y)) >= len(np.flatnonzero(y)) - 2
    assert np.array_equal(mean != 0, y != 0)
    del mean
    gx = pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=y, **pool)
    assert int(gx.sum(dtype=np.int64)) == int(y.sum(dtype=np.int64))
    # A window without a peak sends its zero to its first element, so only peaks carry something.
    assert set(np.flatnonzero(gx).tolist()) <= set(PEAKS)


def test_many_channels(line):
    """More than 2**31 elements through the inner dimension."""
    x = line.reshape(1, 2, 2, N // 4)
    pool = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    y = pg.raw_ops.MaxPool(input=x, **pool)
    assert np.array_equal(y.ravel(), line.reshape(4, -1).max(axis=0))
    gx = pg.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=y, **pool)
    assert int(gx.sum(dtype=np.int64)) == int(y.sum(dtype=np.int64))


def test_spread_over_more_than_two_gibibytes():
    g = np.full((1, 1, N // 2, 1), 4, np.uint8)
    pool = {"ksize": [1, 1, 2, 1], "strides": [1, 1, 2, 1], "padding": "VALID"}
    gx = pg.raw_ops.AvgPoolGrad(orig_input_shape=[1, 1, N, 1], grad=g, **pool)
    assert gx.size == N and gx.min() == gx.max() == 2


def test_more_outputs_than_32_bits():
    """Windows at stride 1: as many outputs as inputs."""
    x = np.zeros((1, N, 1, 1), np.uint8)
    x[0, 2**31 + 7] = 9
    y = pg.raw_ops.MaxPool(input=x, ksize=[1, 3, 1, 1], strides=[1, 1, 1, 1], padding="SAME")
    assert np.flatnonzero(y).tolist() == [2**31 + 6, 2**31 + 7, 2**31 + 8]
