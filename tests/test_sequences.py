"""Fractional pooling sequences: TensorFlow's for the same seeds, and sound whatever the seeds."""

import numpy as np
import philox
import pytest
from generate import array_of
from judge import assert_same_bits

import poolgrad as pg
from poolgrad import sequences
from poolgrad.errors import InvalidArgument, InvalidType


@pytest.mark.parametrize("pseudo_random", [False, True])
def test_sequences_follow_their_description(rng, pseudo_random):
    """Against Philox and the two cutting rules in plain Python (tests/philox.py); TensorFlow itself judges in
    test_tensorflow."""
    for _ in range(300):
        sizes = rng.integers(1, 300, 2).tolist()
        ratios = [float(rng.uniform(1, n)) for n in sizes]
        seed, seed2 = (int(v) for v in rng.integers(-(1 << 63), 1 << 63, 2))
        outs = [int(np.float32(n) / np.float32(r)) for n, r in zip(sizes, ratios)]
        wanted = philox.sequences(sizes, outs, seed, seed2, pseudo_random)
        ours = sequences.fractional_axes(sizes, ratios, pseudo_random=pseudo_random, seed=seed, seed2=seed2)
        for one, want in zip(ours, wanted):
            assert one.tolist() == want, (sizes, ratios, seed, seed2)


@pytest.mark.parametrize("pseudo_random", [False, True])
def test_sequences_are_sound(rng, pseudo_random):
    """Start at 0, end at n, every step n // out or one more."""
    for _ in range(300):
        n = int(rng.integers(1, 500))
        edges = sequences.fractional(
            n, float(rng.uniform(1, n)), pseudo_random=pseudo_random, seed=int(rng.integers(1 << 62))
        )
        steps, out = np.diff(edges), len(edges) - 1
        assert edges.dtype == np.int64 and edges[0] == 0 and edges[-1] == n
        assert set(steps.tolist()) <= {n // out, n // out + 1}


def test_known_answers_of_philox():
    """Random123's published vectors for Philox4x32-10 (counter and key all zero, all ones)."""
    assert [hex(w) for w in philox.block(0, 0)] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    ones = (1 << 128) - 1
    assert [hex(w) for w in philox.block(ones, (1 << 64) - 1)] == [
        "0x408f276d",
        "0x41c83b0e",
        "0xa20bc7c6",
        "0x6d5451fd",
    ]
    assert [hex(int(w)) for w in sequences.Philox(0, 0).words(4)] == [hex(w) for w in philox.block(0, 0)]


def test_the_division_is_done_in_float32():
    assert sequences.output_size(11, 1.1) == 10


def call(**changes):
    a = {"value": np.zeros((1, 40, 30, 2), np.float32), "pooling_ratio": [1.0, 1.7, 2.3, 1.0]} | changes
    return pg.raw_ops.FractionalMaxPool(**a)


def edges(result):
    return result.row_pooling_sequence.tolist(), result.col_pooling_sequence.tolist()


def test_the_same_seeds_give_the_same_sequence():
    """... on every call, in max and in average pooling, whatever batch, channels and data."""
    a = {"deterministic": True, "seed": 12, "seed2": 34}
    wanted = edges(call(**a))
    assert edges(call(**a)) == wanted
    assert edges(call(**a, value=np.ones((3, 40, 30, 5), np.float64))) == wanted
    averaged = pg.raw_ops.FractionalAvgPool(
        value=np.zeros((1, 40, 30, 2), np.float32), pooling_ratio=[1.0, 1.7, 2.3, 1.0], **a
    )
    assert edges(averaged) == wanted
    assert edges(call(**a | {"seed": 13})) != wanted and edges(call(**a | {"seed2": 35})) != wanted


def test_without_deterministic_every_call_draws_afresh():
    assert len({str(edges(call())) for _ in range(20)}) > 1


def test_deterministic_without_seeds_draws_once_per_process():
    """As TensorFlow in eager mode: random, then the same for all calls with the same attributes."""
    assert len({str(edges(call(deterministic=True))) for _ in range(20)}) == 1


def test_seeds_without_deterministic_are_refused():
    for seed in ("seed", "seed2"):
        with pytest.raises(InvalidArgument, match=r"FractionalMaxPool.*(seed|deterministic)"):
            call(**{seed: 1})


def test_a_sequence_is_a_value(rng):
    """It can be passed on: to gradients, to other data, to windows.fractional."""
    x = array_of(rng, (2, 40, 30, 2), "float64")
    r = call(value=x, deterministic=True, seed=5)
    again = np.stack([x[:, a:b].max(1) for a, b in zip(r.row_pooling_sequence, r.row_pooling_sequence[1:])], 1)
    again = np.stack([again[:, :, a:b].max(2) for a, b in zip(r.col_pooling_sequence, r.col_pooling_sequence[1:])], 2)
    assert_same_bits(r.output, again)
    assert pg.windows.fractional(40, r.row_pooling_sequence).count == r.output.shape[1]


@pytest.mark.parametrize(
    ("n", "ratio"),
    [
        (0, 1.0),
        (5, 0.5),
        (5, 6.0),
        (5, float("nan")),
        (5, float("inf")),
        (5, None),
        (5, "2"),
        ("5", 2.0),
        (5.5, 2.0),
        (-5, 1.0),
        (5, -1.0),
    ],
)
def test_impossible_arguments_are_refused(n, ratio):
    with pytest.raises((InvalidArgument, InvalidType)):
        sequences.fractional(n, ratio)
