"""The five maps as a public module: what they compute, and that they refuse what they cannot."""

import numpy as np
import pytest
from generate import array_of
from judge import assert_same_bits

import poolgrad as pg
from poolgrad import maps
from poolgrad.errors import InvalidArgument, InvalidType
from poolgrad.windows import Pool, regular

POOL = Pool.of((6,), "X", [regular(6, 3, 2, "SAME")])  # windows [0 1 2] [2 3 4] [4 5]
X = np.array([3, 1, 4, 1, 5, 9], np.float32)


def test_choose():
    assert maps.choose(POOL, X).tolist() == [2, 2, 1]
    assert maps.choose(POOL, X).dtype == np.uint8


def test_take_and_put():
    choice = maps.choose(POOL, X)
    assert maps.take(POOL, X, choice).tolist() == [4, 5, 9]
    assert maps.take(POOL, X * 10, choice).tolist() == [40, 50, 90]
    assert maps.put(POOL, np.array([1, 2, 3], np.float32), choice).tolist() == [0, 0, 1, 0, 2, 3]


def test_put_adds_where_windows_meet_and_assigns_on_request():
    choice = np.array([2, 0, 0], np.uint8)  # both first windows choose element 2
    g = np.array([1, 2, 3], np.float32)
    assert maps.put(POOL, g, choice).tolist() == [0, 0, 3, 0, 3, 0]
    assert maps.put(POOL, g, choice, assign=True).tolist() == [0, 0, 2, 0, 3, 0]


def test_mean_and_spread():
    assert maps.mean(POOL, X).tolist() == pytest.approx([8 / 3, 10 / 3, 7])
    assert maps.spread(POOL, np.array([6, 6, 6], np.float32)).tolist() == [2, 2, 4, 2, 5, 3]


def test_nan_policy():
    x = np.array([1, np.nan, 2, 3, 4, np.nan], np.float32)
    assert maps.choose(POOL, x).tolist() == [1, 2, 1]
    assert maps.choose(POOL, x, nan="ignore").tolist() == [2, 2, 0]


def test_out():
    choice = maps.choose(POOL, X)
    for call in (
        lambda **o: maps.choose(POOL, X, **o),
        lambda **o: maps.take(POOL, X, choice, **o),
        lambda **o: maps.put(POOL, X[:3], choice, **o),
        lambda **o: maps.mean(POOL, X, **o),
        lambda **o: maps.spread(POOL, X[:3], **o),
    ):
        fresh = call()
        out = np.full_like(fresh, 99)
        assert call(out=out) is out
        assert_same_bits(out, fresh)


def test_a_choice_may_lie_anywhere():
    """With gaps, backwards, off its alignment: it is copied where the kernels need that, and checked all the same."""
    pool = Pool.of((300,), "X", [regular(300, 300, 1, "SAME")])
    x = np.arange(300, dtype=np.float32) % 97
    dense = maps.choose(pool, x)
    gaps, memory = np.zeros(600, np.uint16)[::2], np.zeros(601, np.uint8)
    for choice in (gaps, gaps[::-1], memory[1:].view(np.uint16)):
        choice[:] = dense
        assert_same_bits(maps.take(pool, x, choice), maps.take(pool, x, dense))
        assert_same_bits(maps.put(pool, x, choice), maps.put(pool, x, dense))
        choice[7] = 60000
        with pytest.raises(InvalidArgument, match=r"choice at \(7,\) is 60000"):
            maps.take(pool, x, choice)


def test_out_may_lie_beside_an_input_but_not_in_it():
    memory, choice = np.zeros(9, np.float32), maps.choose(POOL, X)
    maps.take(POOL, memory[:6], choice, out=memory[6:])
    for out in (memory[5:8], memory[:3]):
        with pytest.raises(InvalidArgument, match="overlaps"):
            maps.take(POOL, memory[:6], choice, out=out)
    with pytest.raises(InvalidArgument, match="overlaps"):
        maps.spread(POOL, memory[8:2:-2], out=memory[:6])


@pytest.mark.parametrize("code", [3, 4, 255])
def test_a_choice_beyond_the_window_is_refused(code):
    """Never an access outside the array: codes past the window, and codes that fall on the last window's padding."""
    for place in range(3):
        choice = maps.choose(POOL, X)
        choice[place] = code
        for call in (lambda c: maps.take(POOL, X, c), lambda c: maps.put(POOL, X[:3], c)):
            with pytest.raises(InvalidArgument, match="choice"):
                call(choice)
    padding = np.array([0, 0, 2], np.uint8)
    with pytest.raises(InvalidArgument, match="choice"):
        maps.take(POOL, X, padding)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "a",
        np.zeros(2, np.uint8),
        np.zeros((3, 1), np.uint8),
        np.zeros(3, np.int64),
        np.zeros(3, np.float32),
        np.zeros(3, object),
    ],
)
def test_a_choice_of_the_wrong_kind_is_refused(wrong):
    with pytest.raises((InvalidArgument, InvalidType)):
        maps.take(POOL, X, wrong)


@pytest.mark.parametrize(
    "wrong", [None, "a", X[:5], X.reshape(2, 3), X.astype(complex), X.astype(object), X.astype(bool), 1.0]
)
def test_data_of_the_wrong_kind_are_refused(wrong):
    for call in (maps.choose, maps.mean):
        with pytest.raises((InvalidArgument, InvalidType)):
            call(POOL, wrong)


@pytest.mark.parametrize("wrong", [None, 5, "pool", (6,)])
def test_a_pool_of_the_wrong_kind_is_refused(wrong):
    with pytest.raises((InvalidArgument, InvalidType)):
        maps.mean(wrong, X)


def test_strided_data_give_the_same(rng):
    x = array_of(rng, (12,), "float32", "plain")
    big = np.zeros(24, np.float32)
    big[::2] = x
    pool = Pool.of((12,), "X", [regular(12, 3, 2, "SAME")])
    for call in (maps.mean, maps.choose):
        assert_same_bits(call(pool, big[::2]), call(pool, x))
        assert_same_bits(call(pool, x[::-1].copy()[::-1]), call(pool, x))


@pytest.mark.parametrize(
    "windows",
    [
        pg.windows.Windows(6, 10**7, window=3, stride=1),
        pg.windows.Windows(6, 3, window=3, stride=50),
        pg.windows.Windows(6, 3, window=2, stride=1, before=4),
    ],
)
def test_windows_that_miss_the_input_are_refused(windows: pg.windows.Windows) -> None:
    """`Windows` is a plain value that anyone can fill; the kernels check what they rely on."""
    with pytest.raises(pg.errors.InvalidArgument, match="cannot work on"):
        pg.maps.choose(pg.maps.Pool((6,), 0, (windows,)), np.zeros(6))
