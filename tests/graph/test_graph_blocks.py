"""What the blocks beside pooling compute, and that no block, however wired and typed, fails in any way but ours."""

import random

import ml_dtypes
import numpy as np
import pytest

from poolgrad.errors import PoolgradError
from poolgrad.graph import ClientSession, Page, PageError, Scope, block_types, ops
from poolgrad.graph.values import DTYPES


def result(build, engine="cpu"):
    root = Scope.new_root()
    session = ClientSession(root, engine)
    return session.engine.to_numpy(session.run(build(root)))


ENGINES = pytest.mark.parametrize("engine", ["cpu", "torch"])


@ENGINES
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_short_floats_are_rounded_once(engine, dtype):
    """Added up in the dtype itself, 4096 times 0.1 would stop growing long before the end."""
    numbers = np.full(4096, 0.1).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    exact = numbers.astype(np.float64).sum()
    for build, expected in ((ops.Sum, exact), (ops.Mean, exact / 4096)):
        found = result(lambda root, build=build: build(root, numbers), engine)
        assert found.dtype.name == dtype
        assert float(found) == pytest.approx(expected, rel=2**-8)


@ENGINES
def test_averages_of_integers_are_truncated_toward_zero(engine):
    for numbers, mean in (([1, 2, 2], 1), ([-1, -2, -2], -1), ([200, 200, 201], 200)):
        found = result(lambda root, n=numbers: ops.Mean(root, np.array(n, np.int16)), engine)
        assert (found.dtype, found.tolist()) == (np.int16, mean)


@ENGINES
def test_sums_of_integers_wrap(engine):
    assert result(lambda root: ops.Sum(root, np.array([100, 100], np.int8)), engine).tolist() == -56


@ENGINES
@pytest.mark.parametrize(("nan", "expected"), [("propagate", [np.nan, 3]), ("ignore", [2, 3])])
def test_nan_in_maxima(engine, nan, expected):
    numbers = np.array([[1, np.nan, 2], [1, 3, 2]], np.float32)
    found = result(lambda root: ops.Max(root, numbers, [1], nan=nan), engine)
    np.testing.assert_array_equal(found, np.float32(expected))
    low = result(lambda root: ops.Min(root, -numbers, [1], nan=nan), engine)
    np.testing.assert_array_equal(-low, np.float32(expected))


@ENGINES
def test_equality_within_a_tolerance(engine):
    x = np.array([1, 1, np.nan, np.inf, np.inf, np.nan])
    y = np.array([1.01, 1.2, np.nan, np.inf, -np.inf, 0])
    found = result(lambda root: ops.ApproximateEqual(root, x, y, tolerance=0.1), engine)
    assert found.tolist() == [True, False, True, True, False, False]


@ENGINES
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("uint16", "uint32", "uint64")])
def test_casts(engine, dtype):
    """A fraction loses what an integer cannot hold, toward zero."""
    found = result(lambda root: ops.Cast(root, np.array([0, 1.75, 3.0]), dtype), engine)
    assert found.dtype.name == dtype
    whole = dtype == "bool" or "int" in dtype
    assert found.astype(float).tolist() == ([0, 1, 1] if dtype == "bool" else [0, 1, 3] if whole else [0, 1.75, 3])


@ENGINES
def test_slices_pads_and_joins(engine):
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert result(lambda r: ops.Slice(r, x, [1, 0], [-1, 2]), engine).tolist() == [[4, 5], [8, 9]]
    padded = result(lambda r: ops.Pad(r, x[:1, :2], [1, 0, 0, 1], constant_values=-7), engine)
    assert padded.tolist() == [[-7, -7, -7], [0, 1, -7]]
    joined = result(lambda r: ops.Concat(r, [ops.Const(r, x), ops.Const(r, x[:, :1])], -1), engine)
    assert joined.tolist() == np.concatenate([x, x[:, :1]], 1).tolist()
    assert result(lambda r: ops.Transpose(r, x), engine).tolist() == x.T.tolist()
    assert result(lambda r: ops.Shape(r, x), engine).tolist() == [3, 4]


# ---------------------------------------------------------------------------------------------------------------------
# Random numbers


def test_random_numbers_depend_on_the_seeds_alone():
    normal = lambda root, **seeds: ops.RandomNormal(root, "1000", "float64", **seeds)  # noqa: E731
    first, again = (result(lambda root: normal(root, seed=1)) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() == result(lambda root: normal(root, seed=1), "torch").tobytes()
    others = [result(lambda root, s=s: normal(root, **s)) for s in ({}, {"seed": 2}, {"seed2": 1}, {"seed": -1})]
    assert len({a.tobytes() for a in (first, *others)}) == 5
    assert first[:3].tolist() == [1.02028797736073, 0.7597131895605167, -0.24583790273512823], "for ever"


def test_random_numbers_have_their_distribution():
    normal = result(lambda r: ops.RandomNormal(r, "100000", "float32", mean=3.0, stddev=2.0))
    assert abs(normal.mean() - 3) < 0.05
    assert abs(normal.std() - 2) < 0.05
    uniform = result(lambda r: ops.RandomUniform(r, "100000", "float64", minval=-1.0, maxval=1.0))
    assert -1 <= uniform.min() < -0.99
    assert 0.99 < uniform.max() < 1
    whole = result(lambda r: ops.RandomUniformInt(r, "10000", -2, 3, dtype="int8"))
    assert sorted(set(whole.tolist())) == [-2, -1, 0, 1, 2]


def test_ranges_that_are_none():
    for low, high, dtype in ((3, 3, "int32"), (5, 2, "int32"), (0, 300, "uint8"), (-1, 5, "uint8")):
        with pytest.raises(PoolgradError, match="not a range"):
            result(lambda r, a=(low, high, dtype): ops.RandomUniformInt(r, "5", a[0], a[1], dtype=a[2]))


# ---------------------------------------------------------------------------------------------------------------------
# Any block, wired and typed at random

SHAPES = [(), (3,), (2, 3), (1, 4, 4, 2), (1, 4, 4, 4, 1), (0, 3), (1, 5, 6, 1), (2, 1)]


def typed(rng, kind):
    """Something to type into an attribute: often right, sometimes absurd."""
    if kind.choices and rng.random() < 0.9:
        return rng.choice(kind.choices)
    some = [rng.choice([0, 1, 1, 2, 2, 3, -1, 4, -2]) for _ in range(rng.choice([0, 1, 2, 4, 5, 8]))]
    values = {
        "ints": [some, [1, 2, 2, 1], [1, 2, 2, 2, 1], "1,2,2,1"],
        "shape": [some, [1, 4, 4, 2], [-1]],
        "sequence": [some, [0, 2, 4], [0, 1, 2, 4]],
        "floats": [[1, 1.5, 1.5, 1], [1, 1.44, 1.73, 1], [1, 0.5, 2, 1]],
        "int": [0, 1, 2, -1, 100, 2**70],
        "float": [0, 1, -1.5, 1e30],
        "bool": [True, False],
        "array": [1, [1.5, 2], [[1, 2], [3, 4]], []],
    }
    return rng.choice(values.get(kind.name, ["", "x"]))


def random_page(rng):
    page, outputs = Page(), []
    dtype = rng.choice(DTYPES)
    for _ in range(3):
        shape = rng.choice(SHAPES)
        numbers = np.round(np.random.default_rng(rng.randrange(999)).normal(size=shape) * 3)
        numbers = abs(numbers) % 2 if dtype[0] in "ub" else numbers
        block = page.add("Const", None, {"value": numbers.tolist(), "dtype": dtype, "shape": shape})
        outputs.append(f"{block.name}.output")
    for _ in range(rng.randint(1, 6)):
        block = page.add(rng.choice([t for t in block_types if t not in ("Load", "Save")]))
        for setting in block.type.settings.values():
            if setting.default is None or rng.random() < 0.3:
                try:
                    page.set(block.name, setting.name, typed(rng, setting.kind))
                except PageError:
                    continue
        for pin in block.type.inputs:
            if not pin.text or rng.random() < 0.3:
                for _ in range(rng.randint(1, 3) if pin.many else 1):
                    page.wire(rng.choice(outputs[-4:]), f"{block.name}.{pin.name}")
        outputs += [f"{block.name}.{output}" for output in block.type.outputs]
    return page


@ENGINES
@pytest.mark.parametrize("seed", [*range(3), pytest.param(range(3, 60), marks=pytest.mark.full)])
def test_any_page_of_any_blocks(engine, seed):
    """It comes back from its file, what was said of it is so, each block ends in a result or in one of our errors."""
    for each in seed if isinstance(seed, range) else [seed]:
        rng = random.Random(each)
        for _ in range(100):
            check_random_page(random_page(rng), engine)


def check_random_page(page, engine):
    text = page.dumps()
    assert Page.loads(text).dumps() == text
    found = page.infer()
    session = ClientSession(page, engine, max_memory=2**26, threads=1)
    wrong = {problem.block for problem in found.problems}
    for name, outcome in session.evaluate().blocks.items():
        assert outcome.status != "failed" or name in wrong or isinstance(outcome.error, PoolgradError), outcome
        for output, array in outcome.outputs.items():
            spec = found.outputs[f"{name}.{output}"]
            assert spec.dtype in (None, session.engine.dtype_name(array)), (page[name], spec)
            assert spec.shape is None or len(spec.shape) == array.ndim
            assert spec.shape is None or all(n is None or n == m for n, m in zip(spec.shape, array.shape))
