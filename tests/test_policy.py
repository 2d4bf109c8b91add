"""Policies: which element wins, chosen for a block of code, a thread or a task."""

import asyncio
import concurrent.futures
import contextvars
import sys
import threading

import numpy as np
import pytest

import poolgrad as pg

X = np.array([2, 2, 1, 2], np.float32).reshape(1, 4, 1, 1)
ALL4 = {"ksize": [1, 4, 1, 1], "strides": [1, 4, 1, 1], "padding": "VALID"}


def gradient():
    """Which of X's elements gets how much of a gradient of 6."""
    y = np.full((1, 1, 1, 1), 2, np.float32)
    return pg.raw_ops.MaxPoolGrad(orig_input=X, orig_output=y, grad=3 * y, **ALL4).ravel().tolist()


def maximum(*values):
    x = np.array(values, np.float32).reshape(1, -1, 1, 1)
    n = len(values)
    return pg.raw_ops.MaxPool(input=x, ksize=[1, n, 1, 1], strides=[1, n, 1, 1], padding="VALID").item()


def current():
    """The policy in force, as a plain pair."""
    return tuple(sys.modules["poolgrad.policy"].current())  # `poolgrad.policy` itself is the context manager


def test_ties():
    assert gradient() == [6, 0, 0, 0], "the first of the equal maxima, unless told otherwise"
    with pg.policy(ties="all"):
        assert gradient() == [6, 6, 0, 6], "each the whole gradient"
    with pg.policy(ties="split"):
        assert gradient() == [2, 2, 0, 2], "equal shares"
    with pg.policy(ties="first"):
        assert gradient() == [6, 0, 0, 0]


def test_ties_in_three_dimensions():
    """TensorFlow's eager 3-D gradient is ties="all"; ours is the same first element as in two dimensions."""
    x = np.ones((1, 2, 2, 2, 1), np.float32)
    a = {
        "orig_input": x,
        "orig_output": x[:, :1, :1, :1],
        "grad": 5 * x[:, :1, :1, :1],
        "ksize": [1, 2, 2, 2, 1],
        "strides": [1, 2, 2, 2, 1],
        "padding": "VALID",
    }
    assert pg.raw_ops.MaxPool3DGrad(**a).ravel().tolist() == [5, 0, 0, 0, 0, 0, 0, 0]
    with pg.policy(ties="all"):
        assert pg.raw_ops.MaxPool3DGrad(**a).ravel().tolist() == [5] * 8
    with pg.policy(ties="split"):
        assert pg.raw_ops.MaxPool3DGrad(**a).ravel().tolist() == [5 / 8] * 8


def test_second_derivatives_follow():
    y = np.full((1, 1, 1, 1), 2, np.float32)
    v = np.array([1, 10, 100, 1000], np.float32).reshape(1, 4, 1, 1)
    want = {"first": 1, "all": 1011, "split": 337}
    for ties, value in want.items():
        with pg.policy(ties=ties):
            assert pg.raw_ops.MaxPoolGradGrad(orig_input=X, orig_output=y, grad=v, **ALL4).item() == value


def test_argmax_is_one_element_under_every_policy():
    """An index names one element: the first."""
    for ties in ("first", "all", "split"):
        with pg.policy(ties=ties):
            assert pg.raw_ops.MaxPoolWithArgmax(input=X, **ALL4).argmax.item() == 0


def test_nan_propagates_by_default():
    assert np.isnan(maximum(1, np.nan, 3)) and np.isnan(maximum(np.nan, 1)) and np.isnan(maximum(1, np.nan))
    x = np.array([5, np.nan, 7, np.nan], np.float32).reshape(1, 4, 1, 1)
    y, index = pg.raw_ops.MaxPoolWithArgmax(input=x, **ALL4)
    assert np.isnan(y.item()) and index.item() == 1, "the first NaN is the choice"


def test_nan_can_be_ignored():
    with pg.policy(nan="ignore"):
        assert maximum(1, np.nan, 3) == 3 and maximum(np.nan, 1) == 1 and maximum(-np.inf, np.nan) == -np.inf
        assert np.isnan(maximum(np.nan, np.nan)), "a window of nothing but NaN is NaN"
        x = np.array([np.nan, 5, np.nan, 7], np.float32).reshape(1, 4, 1, 1)
        y, index = pg.raw_ops.MaxPoolWithArgmax(input=x, **ALL4)
        assert (y.item(), index.item()) == (7, 3)


def test_infinities_and_zeros_are_ordinary():
    assert maximum(-np.inf, -np.inf) == -np.inf and maximum(1, np.inf) == np.inf
    assert np.signbit(maximum(-0.0, 0.0)) and not np.signbit(maximum(0.0, -0.0)), "equal zeros: the first one's sign"


def test_blocks_nest_and_end():
    with pg.policy(ties="split"):
        with pg.policy(nan="ignore"):
            assert current() == ("split", "ignore"), "what is not given stays"
            with pg.policy(ties="all", nan="propagate"):
                assert current() == ("all", "propagate")
            assert current() == ("split", "ignore")
        assert current() == ("split", "propagate")
    assert current() == ("first", "propagate")


def test_a_block_ends_with_an_exception_too():
    with pytest.raises(KeyError), pg.policy(ties="all"):
        raise KeyError
    assert current() == ("first", "propagate")


@pytest.mark.parametrize(
    "wrong", [{"ties": "last"}, {"ties": "FIRST"}, {"nan": "keep"}, {"ties": 1}, {"nan": True}, {"ties": ["all"]}]
)
def test_unknown_policies_are_refused(wrong):
    with pytest.raises((pg.errors.InvalidArgument, pg.errors.InvalidType), match="|".join(wrong)), pg.policy(**wrong):
        pass
    assert current() == ("first", "propagate")


def test_a_policy_belongs_to_its_thread():
    inside, done = threading.Event(), threading.Event()
    seen = []

    def other():
        inside.wait()
        seen.append((current(), gradient()))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with pg.policy(ties="all", nan="ignore"):
        inside.set()
        done.wait()
        assert gradient() == [6, 6, 0, 6]
    thread.join()
    assert seen == [(("first", "propagate"), [6, 0, 0, 0])]


def test_a_policy_belongs_to_its_task():
    async def task(ties, wanted):
        with pg.policy(ties=ties):
            await asyncio.sleep(0)
            assert gradient() == wanted
            await asyncio.sleep(0)
            assert current()[0] == ties

    async def main():
        wanted = {"first": [6, 0, 0, 0], "all": [6, 6, 0, 6], "split": [2, 2, 0, 2]}
        await asyncio.gather(*(task(ties, want) for ties, want in wanted.items() for _ in range(5)))
        assert current() == ("first", "propagate")

    with concurrent.futures.ThreadPoolExecutor(1) as thread:  # another test's event loop may be running in this one
        thread.submit(asyncio.run, main()).result()


def test_a_policy_travels_with_a_copied_context():
    with pg.policy(ties="all"):
        context = contextvars.copy_context()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(context.run, gradient).result() == [6, 6, 0, 6]
        assert pool.submit(gradient).result() == [6, 0, 0, 0]


def test_repeated_calls_see_a_changed_policy():
    """A cached plan must not freeze the policy it was made under."""
    for _ in range(3):
        assert gradient() == [6, 0, 0, 0]
        with pg.policy(ties="all"):
            assert gradient() == [6, 6, 0, 6]
