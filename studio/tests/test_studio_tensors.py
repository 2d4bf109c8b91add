"""Looking at arrays: what the screen shows is the array's own values, and nothing larger than the screen."""

from __future__ import annotations

import numpy as np
import pytest

import poolgrad
from poolgrad_studio import tensors
from poolgrad_studio.problems import Refused


@pytest.fixture
def volume():
    return np.random.default_rng(1).normal(size=(2, 3, 40, 50, 2)).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "axes", "index"),
    [
        ((), (-1, -1), ()),
        ((7,), (-1, 0), (0,)),
        ((1, 4, 4, 1), (1, 2), (0, 0, 0, 0)),
        ((8, 3, 32, 32), (2, 3), (0, 0, 0, 0)),
        ((1, 16, 32, 32, 1), (2, 3), (0, 8, 0, 0, 0)),
        ((64, 10, 10, 3), (1, 2), (0, 0, 0, 0)),
    ],
)
def test_the_first_view_shows_the_image_not_the_batch(shape, axes, index):
    assert tensors.first_view(shape) == tensors.View(axes, index)


@pytest.mark.parametrize("axes", [[2, 3], [3, 2], [0, 4], [4, 1]])
def test_a_slice_is_the_plane_that_was_asked_for(volume, axes):
    header, values = tensors.slice_of(volume, {"axes": axes, "index": [1, 2, 30, 40, 1]})
    moved = np.moveaxis(volume, axes, (0, 1))
    others = [axis for axis in range(5) if axis not in axes]
    expected = moved[(slice(None), slice(None), *([1, 2, 30, 40, 1][axis] for axis in others))]
    assert np.array_equal(values, expected)
    assert header["reduce"] == "none"
    assert header["range"] == [expected.min(), expected.max()]


@pytest.mark.parametrize("reduce", ["mean", "max", "min"])
def test_a_large_plane_is_pooled_by_poolgrad(reduce):
    plane = np.random.default_rng(2).normal(size=(100, 90)).astype(np.float32)
    header, values = tensors.slice_of(plane, {"axes": [0, 1], "max": [10, 9], "reduce": reduce})
    blocks = plane.reshape(10, 10, 9, 10)
    expected = {"mean": blocks.mean((1, 3)), "max": blocks.max((1, 3)), "min": blocks.min((1, 3))}[reduce]
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    assert header["reduce"] == reduce


def test_a_part_of_a_plane(volume):
    ask = {"axes": [2, 3], "index": [0, 0, 0, 0, 0], "rows": [10, 20], "columns": [-5, 7]}
    header, values = tensors.slice_of(volume, ask)
    assert (header["rows"], header["columns"]) == ([10, 20], [0, 7])
    assert np.array_equal(values, volume[0, 0, 10:20, 0:7, 0])


@pytest.mark.parametrize(
    "ask",
    [
        {"axes": [0, 0]},
        {"axes": [0, 9]},
        {"axes": "all"},
        {"axes": [2, 3], "index": [5, 0, 0, 0, 0]},
        {"axes": [2, 3], "index": [0]},
        {"axes": [2, 3], "index": [0, 0, 0, 0, True]},
        {"axes": [2, 3], "rows": "all"},
        {"axes": [2, 3], "max": [0, 1]},
        {"axes": [2, 3], "reduce": "sum"},
    ],
)
def test_a_view_that_does_not_exist_is_refused(volume, ask):
    with pytest.raises(Refused):
        tensors.slice_of(volume, ask)


def test_cells_and_tables_are_exact():
    values = np.array([[0.1, np.nan], [-np.inf, 16777217]], np.float64)
    assert tensors.cells(values, {"axes": [0, 1]})["values"] == [["0.1", "nan"], ["-inf", "16777217.0"]]
    large = np.array([2**63 - 1, -(2**63)], np.int64)
    assert tensors.table(large, {})["values"] == ["9223372036854775807", "-9223372036854775808"]
    assert tensors.texts(np.array([0.1], np.float16)) == ["0.1"]
    assert tensors.texts(np.array([True, False])) == ["True", "False"]


def test_a_table_of_a_strided_array_is_in_c_order():
    array = np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)
    found = tensors.table(array, {"start": 5, "count": 7})["values"]
    assert found == [str(v) for v in array.reshape(-1)[5:12]]
    assert tensors.table(array, {"start": 100, "count": 7})["values"] == []


@pytest.mark.parametrize("count", [-1, 5001, True, "1"])
def test_a_table_has_a_limit(count):
    with pytest.raises(Refused):
        tensors.table(np.zeros(3), {"start": 0, "count": count})


def test_statistics_agree_with_numpy_and_count_what_is_odd():
    values = np.random.default_rng(3).normal(5, 2, 3_000_000).astype(np.float32)
    values[:3], values[3:5], values[5:9] = np.nan, [np.inf, -np.inf], 0
    finite = values[np.isfinite(values)].astype(np.float64)
    found = tensors.all_statistics(values)
    assert (found["nan"], found["inf"], found["zeros"], found["count"]) == (3, 2, 4, values.size)
    assert (found["min"], found["max"]) == (finite.min(), finite.max())
    assert found["mean"] == pytest.approx(finite.mean())
    assert found["std"] == pytest.approx(finite.std())
    assert found["argmax"] == [int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))]


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.full(4, np.nan), np.array(7), np.array([True, False])])
def test_nothing_is_too_odd_to_be_shown(array):
    header, picture = tensors.summary(array)
    assert header["dims"] == list(array.shape)
    assert picture.ndim == 2
    tensors.all_statistics(array)
    tensors.histogram(array, {})


def test_a_histogram_counts_every_value_once():
    values = np.random.default_rng(4).normal(size=10_000)
    values[:7] = np.nan
    found = tensors.histogram(values, {"bins": 10, "range": [-1, 1]})
    assert sum(found["counts"]) + found["nan"] + found["below"] + found["above"] == values.size
    assert len(found["edges"]) == 11


def test_a_summary_is_small(volume):
    header, picture = tensors.summary(np.zeros((1, 512, 700, 1), np.float32))
    assert picture.shape == (64, 64)
    assert header["picture"]["columns"] == [0, 700]
    assert np.array_equal(
        tensors.summary(volume)[1], poolgrad.adaptive_avg_pool(volume[0, 0, :, :, 0], [40, 50], layout="HW")
    )


def test_files_hold_the_whole_array(tmp_path, volume):
    path, _ = tensors.write_file(volume, {"format": "npy"}, tmp_path)
    assert np.array_equal(np.load(path), volume)
    path, _ = tensors.write_file(volume, {"format": "csv"}, tmp_path)
    rows = [line.split(",") for line in path.read_text().splitlines()]
    assert rows[0][:4] == ["0", "0", "0", "0"]
    assert np.array_equal(np.array([row[4:] for row in rows], np.float32).reshape(volume.shape), volume)
    path, _ = tensors.write_file(volume, {"format": "png", "axes": [2, 3], "index": [0] * 5}, tmp_path)
    assert path.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(Refused):
        tensors.write_file(volume, {"format": "../evil"}, tmp_path)


def test_text_for_the_clipboard():
    array = np.array([[1.5, 2], [3, 4]], np.float32)
    listed = tensors.as_text(array, {"format": "list"}, "result_output")["text"].splitlines()
    assert listed[1] == "result_output[0][1]\t2.0"
    assert tensors.as_text(array, {"format": "csv"}, "")["text"].split() == ["1.5,2.0", "3.0,4.0"]
    assert np.array_equal(eval(tensors.as_text(array, {"format": "python"}, "")["text"], {"np": np}), array)


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1234567890123456, np.nan, -np.inf]),
        np.array([[True, False]]),
        np.array(7, np.int64),
        np.zeros((0, 3), np.float32),
        np.random.default_rng(0).normal(size=(40, 50)),
    ],
    ids=["odd", "bool", "scalar", "empty", "long"],
)
def test_python_for_the_clipboard_is_exactly_the_array(array):
    found = eval(tensors.as_text(array, {"format": "python"}, "")["text"], {"np": np})
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")
