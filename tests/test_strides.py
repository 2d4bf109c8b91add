"""Inputs that are views: every view of the rows gives what its copy gives, and no byte outside the view is touched.

The arrays lie against pages that cannot be read, so that a read too far ends the process: each case has its own.
"""

import ctypes
import mmap
import os

import numpy as np
import pytest

import poolgrad as pg

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(size: int, at_end: bool) -> np.ndarray:
    """Bytes with an unreadable page right behind them, or right in front."""
    pages = -(-size // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, pages + 1):
        assert LIBC.mprotect(ctypes.c_void_p(start + page * PAGE), PAGE, 0) == 0
    offset = PAGE + (pages * PAGE - size if at_end else 0)
    return np.frombuffer(memory, np.uint8, size, offset)


def placed(x: np.ndarray, view: str, at_end: bool) -> np.ndarray:
    """A view with the values of x (its outer part repeated for "broadcast"), against an unreadable page."""
    if view == "flipped":
        target = guarded(x.nbytes, at_end).view(x.dtype).reshape(x.shape)
        target[...] = x[:, :, ::-1]
        return target[:, :, ::-1]
    if view == "broadcast":
        target = guarded(x[:1].nbytes, at_end).view(x.dtype).reshape(x[:1].shape)
        target[...] = x[:1]
        return np.broadcast_to(target, x.shape)
    if view == "sliced":
        wide = (*x.shape[:2], 2 * x.shape[2] - 1, *x.shape[3:])
        target = guarded(int(np.prod(wide)) * x.itemsize, at_end).view(x.dtype).reshape(wide)
        target[:, :, ::2] = x
        return target[:, :, ::2]
    target = guarded(x.nbytes, at_end).view(x.dtype).reshape(x.shape)
    target[...] = x
    return target


def survives(check) -> bool:
    """Whether the check passes in a process of its own."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            check()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
@pytest.mark.parametrize("at_end", [True, False], ids=["end", "start"])
@pytest.mark.parametrize("other", ["plain", "broadcast", "sliced"])
@pytest.mark.parametrize("view", ["plain", "flipped", "broadcast", "sliced"])
def test_views_are_read_as_they_are(view: str, other: str, at_end: bool, dtype: str) -> None:
    rng = np.random.default_rng(5)

    def check() -> None:
        for layout, shape in (("NCHW", (2, 3, 9, 37)), ("NHWC", (2, 9, 11, 33)), ("NCHW", (2, 2, 5, 70))):
            for window, strides in ((3, 1), (3, 2), (2, 2), (5, 3)):
                given = {"window": window, "strides": strides, "padding": "same", "layout": layout}
                x = placed(rng.integers(0, 9, shape).astype(dtype), view, at_end)
                v = placed(rng.integers(0, 9, shape).astype(dtype), other, at_end)
                y, choice = pg.max_pool(x.copy(), **given, return_choice=True)
                g = placed(rng.integers(0, 9, y.shape).astype(dtype), other, at_end)
                pool = pg.pool(shape, **given)
                for function, arrays in (
                    (pg.max_pool, (x,)),
                    (pg.avg_pool, (x,)),
                    (pg.max_pool_grad, (x, g)),
                    (pg.max_pool_grad_grad, (x, v)),
                ):
                    copies = [a.copy() for a in arrays]
                    np.testing.assert_array_equal(function(*arrays, **given), function(*copies, **given))
                np.testing.assert_array_equal(pg.maps.take(pool, v, choice), pg.maps.take(pool, v.copy(), choice))
                np.testing.assert_array_equal(pg.maps.put(pool, g, choice), pg.maps.put(pool, g.copy(), choice))
                np.testing.assert_array_equal(pg.maps.spread(pool, g), pg.maps.spread(pool, g.copy()))

    assert survives(check)
