"""JAX and CuPy arrays in the raw operators: the same kind of array comes out, with the bits that NumPy gets."""

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import poolgrad
from poolgrad.catalog import operators

sys.path.insert(0, str(Path(__file__).parents[1]))
from malformed import GOOD

torch = pytest.importorskip("torch")


def good(name):
    """A good call, and its result: by NumPy, or without CPU kernels by PyTorch on the GPU."""
    try:
        given = dict(GOOD[name]())
        return given, getattr(poolgrad.raw_ops, name)(**given)
    except poolgrad.errors.MissingKernels:
        pass
    try:
        given = dict(GOOD[name]())
    except poolgrad.errors.MissingKernels:
        pytest.skip("the arguments take a pooling on the CPU")
    tensors = {k: torch.from_numpy(np.array(v)).cuda() if isinstance(v, np.ndarray) else v for k, v in given.items()}
    found = getattr(poolgrad.raw_ops, name)(**tensors)
    return given, tuple(t.cpu().numpy() for t in found) if isinstance(found, tuple) else found.cpu().numpy()


def check(name, into, out_of, kind):
    given, expected = good(name)
    handed = {key: into(value) if isinstance(value, np.ndarray) else value for key, value in given.items()}
    found = getattr(poolgrad.raw_ops, name)(**handed)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for result, value in pairs:
        assert isinstance(result, kind)
        if value.dtype.kind == "f":
            np.testing.assert_allclose(out_of(result), value, rtol=1e-6, atol=1e-6)
        else:
            assert np.array_equal(out_of(result), value)


@pytest.mark.parametrize("name", list(operators))
def test_jax(name):
    """On the device that JAX puts arrays on: a GPU, if it has one."""
    jax = pytest.importorskip("jax")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module="poolgrad")
        check(name, jax.numpy.asarray, np.asarray, jax.Array)


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
@pytest.mark.parametrize("name", list(operators) if find_spec("cupy") else [])
def test_cupy(name):
    import cupy

    check(name, cupy.asarray, cupy.asnumpy, cupy.ndarray)


def test_jax_bfloat16(numpy_works):
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.arange(16, dtype=jnp.bfloat16).reshape(1, 4, 4, 1)
    y = poolgrad.raw_ops.AvgPool(value=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    assert y.dtype == jnp.bfloat16
    assert np.asarray(y, np.float32).ravel().tolist() == [2.5, 4.5, 10.5, 12.5]


def test_traced_jax_arrays_are_refused():
    jax = pytest.importorskip("jax")

    def pool(x):
        return poolgrad.raw_ops.AvgPool(value=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")

    with pytest.raises(TypeError, match="inside jit"):
        jax.jit(pool)(jax.numpy.zeros((1, 4, 4, 1)))


def test_maps_on_jax_arrays(numpy_works):
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.asarray([3.0, 1, 4, 1, 5, 9])
    y, indices = poolgrad.max_pool(x, 2, layout="X", return_indices=True)
    assert np.asarray(y).tolist() == [3, 4, 9]
    assert np.asarray(indices).tolist() == [0, 2, 5]
