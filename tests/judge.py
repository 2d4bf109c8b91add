"""How results are compared: selections bit for bit, sums against the exact value in units in the last place."""

import numpy as np
from reference import exact, is_nan, narrow

PRECISION = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
SMALLEST = {"float16": -24, "bfloat16": -133, "float32": -149, "float64": -1074}  # exponent of the last subnormal bit


def bits(x):
    """The array as unsigned integers, every NaN alike (a NaN's sign and payload carry no meaning)."""
    x = np.ascontiguousarray(x)
    if x.dtype.kind in "iub":
        return x
    x = np.where(is_nan(x), np.array(np.nan, np.float32).astype(x.dtype), x)
    return x.view(f"u{x.dtype.itemsize}")


def assert_same_bits(ours, theirs, note=""):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.dtype == theirs.dtype, f"{note}: dtype {ours.dtype}, expected {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{note}: shape {ours.shape}, expected {theirs.shape}"
    if not np.array_equal(bits(ours), bits(theirs)):
        at = tuple(np.argwhere(bits(ours) != bits(theirs))[0].tolist())
        wrong = int((bits(ours) != bits(theirs)).sum())
        raise AssertionError(
            f"{note}: {wrong} of {ours.size} differ, first at {at}: {ours[at]!r}, expected {theirs[at]!r}"
        )


def ulp(value, dtype):
    """The distance between neighbours of the type at the exact value."""
    name = np.dtype(dtype).name
    _, exponent = np.frexp(np.asarray(value, np.float64))
    return np.ldexp(1.0, np.maximum(exponent - PRECISION[name], SMALLEST[name]))


def error_of(x, truth):
    """|x - truth|, with equal infinities and NaN against NaN counting as no error."""
    x = np.asarray(x)
    if truth.dtype == object:
        finite = np.isfinite(x.astype(np.float64))
        out = np.full(x.shape, np.inf)
        if finite.any():
            difference = exact(x[finite]) - truth[finite]
            out[finite] = np.abs(difference).astype(np.float64)
        return out
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(
            (x == truth) | (np.isnan(x) & np.isnan(truth)), 0.0, np.nan_to_num(np.abs(x - truth), nan=np.inf)
        )


def assert_sum(ours, truth, dtype, theirs=None, note="", scale=None):
    """A sum is right if it is within one unit in the last place of the exact value, or as close to it as `theirs`,
    another
    implementation's. Without another one, `scale` (the sum of the terms' absolute values) says what a plain sum may
    lose:
    four roundings of it. Integers are exact: truncated toward zero at the end, wrapped."""
    ours = np.asarray(ours)
    assert ours.dtype == np.dtype(dtype), f"{note}: dtype {ours.dtype}, expected {np.dtype(dtype)}"
    assert ours.shape == truth.shape, f"{note}: shape {ours.shape}, expected {truth.shape}"
    if ours.size == 0:
        return
    if ours.dtype.kind in "iu":
        assert_same_bits(ours, narrow(truth, dtype), note)
        return
    off = error_of(ours, truth)
    approximate = truth.astype(np.float64)
    allowed = ulp(np.where(np.isfinite(approximate), approximate, 0.0), dtype)
    if theirs is not None:
        allowed = np.maximum(allowed, error_of(theirs, truth))
    elif scale is not None:
        allowed = np.maximum(allowed, scale * 4 * 2.0 ** -PRECISION[np.dtype(dtype).name])
    if (off > allowed).any():
        at = tuple(np.argwhere(off > allowed)[0].tolist())
        raise AssertionError(
            f"{note}: {int((off > allowed).sum())} of {ours.size} too far, first at {at}: "
            f"{ours[at]!r}, exact {float(truth[at])!r}, off by {off[at]:.3g}, allowed {allowed[at]:.3g}"
            + ("" if theirs is None else f", theirs {theirs[at]!r}")
        )


def assert_outcomes(results, outcomes, note="", theirs=None):
    """Every output of an operator against its expectation; `theirs` are another implementation's outputs."""
    results = list(results) if isinstance(results, tuple) else [results]
    assert len(results) >= len(outcomes), f"{note}: {len(results)} outputs, expected {len(outcomes)}"
    for i, (ours, want) in enumerate(zip(results, outcomes)):
        if want.is_sum:
            assert_sum(
                ours, want.value, want.dtype, None if theirs is None else theirs[i], f"{note} output {i}", want.scale
            )
        else:
            assert_same_bits(ours, want.value.astype(want.dtype, copy=False), f"{note} output {i}")
