"""Errors say which operator refused which argument, what was given and what was expected."""

import pickle

import numpy as np
import pytest

import poolgrad as pg
from poolgrad import errors

X = np.zeros((2, 4, 4, 4, 2), np.float32)
POOL3 = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 4, 4, 4, 1], "padding": "VALID"}
POOL2 = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def caught(call, **arguments):
    with pytest.raises(errors.PoolgradError) as info:
        call(**arguments)
    return info.value


def test_the_classes_are_pythons_own_too():
    assert issubclass(errors.InvalidArgument, ValueError) and issubclass(errors.InvalidType, TypeError)
    assert issubclass(errors.OutOfMemory, MemoryError)
    for kind in (errors.InvalidArgument, errors.InvalidType, errors.OutOfMemory):
        assert issubclass(kind, errors.PoolgradError) and issubclass(kind, Exception)


def test_a_wrong_shape_is_explained():
    """Both shapes are in the message: the one given and the one that pooling gives."""
    wrong = np.zeros((2, 2, 2, 2, 2), np.float32)
    error = caught(pg.raw_ops.MaxPool3DGrad, orig_input=X, orig_output=wrong, grad=wrong, **POOL3)
    assert isinstance(error, errors.InvalidArgument)
    assert str(error).startswith("MaxPool3DGrad: orig_output has shape (2, 2, 2, 2, 2)")
    assert "(2, 4, 4, 4, 2)" in str(error) and "(2, 1, 1, 1, 2)" in str(error)
    assert (error.operator, error.argument) == ("MaxPool3DGrad", "orig_output")
    assert "(2, 2, 2, 2, 2)" in str(error.given) and "(2, 1, 1, 1, 2)" in str(error.expected)


def test_an_error_knows_what_it_is_about():
    error = caught(pg.raw_ops.MaxPool, input=np.zeros((1, 4, 4, 1)), **POOL2 | {"ksize": [1, 0, 2, 1]})
    assert isinstance(error, errors.InvalidArgument)
    assert (error.operator, error.argument) == ("MaxPool", "ksize") and error.given is not None


def test_a_wrong_type_is_a_type_error():
    error = caught(pg.raw_ops.MaxPool, input="picture", **POOL2)
    assert isinstance(error, errors.InvalidType) and (error.operator, error.argument) == ("MaxPool", "input")
    error = caught(pg.raw_ops.MaxPool, input=np.zeros((1, 4, 4, 1), complex), **POOL2)
    assert isinstance(error, errors.InvalidType) and "complex128" in str(error)


def test_a_result_beyond_memory_is_refused_at_once():
    """The gradient's shape is right, but the input would have 2**60 elements."""
    a = {"orig_input_shape": [1, 2**60, 1, 1], "grad": np.ones((1, 1, 1, 1), np.float32)}
    error = caught(pg.raw_ops.AvgPoolGrad, **a, ksize=[1, 1, 1, 1], strides=[1, 2**60, 1, 1], padding="SAME")
    assert isinstance(error, errors.OutOfMemory) and "AvgPoolGrad" in str(error)


def test_sums_of_shapes_that_do_not_fit_are_refused_before_memory_is_touched():
    """A huge shape tensor next to a small gradient is a shape error, not a memory error."""
    a = {"orig_input_shape": [2**20, 2**10, 2**10, 2**10], "grad": np.ones((1, 1, 1, 1), np.float32)}
    assert isinstance(caught(pg.raw_ops.AvgPoolGrad, **a, **POOL2), errors.InvalidArgument)


def test_messages_stay_short_whatever_was_given():
    error = caught(pg.raw_ops.MaxPool, input=np.zeros((1, 4, 4, 1)), **POOL2 | {"ksize": list(range(100000))})
    assert "ksize" in str(error) and len(str(error)) < 1000
    error = caught(pg.raw_ops.MaxPool, input=np.zeros((1, 4, 4, 1)), **POOL2 | {"padding": "x" * 100000})
    assert "padding" in str(error) and len(str(error)) < 1000


def test_an_error_survives_pickling():
    """Errors cross process boundaries in pools of workers."""
    error = caught(pg.raw_ops.MaxPool, input=np.zeros((1, 4, 4, 1)), **POOL2 | {"ksize": [1, 0, 2, 1]})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.argument == "ksize"


def test_a_failed_call_leaves_no_trace():
    """The same good call works before and after a bad one with the same arguments."""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    good = pg.raw_ops.MaxPool(input=x, **POOL2)
    for wrong in ([1, 0, 2, 1], [1, 2, 2], None):
        caught(pg.raw_ops.MaxPool, input=x, **POOL2 | {"ksize": wrong})
    assert np.array_equal(pg.raw_ops.MaxPool(input=x, **POOL2), good)
