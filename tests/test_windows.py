"""Windows: which elements every output reads, against lists written down from the definition."""

import itertools
import pickle

import numpy as np
import pytest
import reference as ref

import poolgrad as pg
from poolgrad import windows as pw
from poolgrad.errors import InvalidArgument, InvalidType
from poolgrad.windows import Pool


def assert_reads(w, lists):
    """A Windows describes exactly these lists of positions."""
    assert w.count == len(lists) and len(w.start) == len(w.stop) == len(w.length) == len(w.origin) == len(lists)
    for o, members in enumerate(lists):
        start, stop, origin = int(w.start[o]), int(w.stop[o]), int(w.origin[o])
        assert list(range(start, stop, w.dilation)) == members, (w, o)
        assert int(w.length[o]) == len(members)
        assert stop == members[-1] + 1
        assert (start - origin) % w.dilation == 0 and origin <= start and origin >= min(1 - w.size, start)
    if lists:
        assert w.extent == max((members[-1] - int(w.origin[o])) // w.dilation + 1 for o, members in enumerate(lists))


def test_regular_windows_read_what_the_definition_says():
    for n, k, s, padding in itertools.product(range(10), range(1, 12), range(1, 6), ("VALID", "SAME")):
        try:
            lists = ref.regular(n, k, s, padding)
        except ref.Refused:
            with pytest.raises(InvalidArgument):
                pw.regular(n, k, s, padding)
            continue
        assert_reads(pw.regular(n, k, s, padding), lists)


def test_dilated_windows_read_every_dth_element():
    for n, k, s, d, padding in itertools.product(
        range(1, 14), range(1, 5), range(1, 4), range(2, 5), ("VALID", "SAME")
    ):
        try:
            lists = ref.regular(n, k, s, padding, d)
        except ref.Refused:  # among them: windows that would lie in the padding entirely
            with pytest.raises(InvalidArgument):
                pw.regular(n, k, s, padding, dilation=d)
            continue
        assert_reads(pw.regular(n, k, s, padding, dilation=d), lists)


def test_explicit_padding():
    for n, k, s in itertools.product(range(1, 8), range(1, 5), range(1, 4)):
        for before, after in itertools.product(range(k), range(k)):
            try:
                lists = ref.regular(n, k, s, "EXPLICIT", 1, before, after)
            except ref.Refused:
                with pytest.raises(InvalidArgument):
                    pw.explicit(n, k, s, before, after)
                continue
            assert_reads(pw.explicit(n, k, s, before, after), lists)


def test_the_stride_defaults_to_the_window():
    assert pw.regular(10, 3) == pw.regular(10, 3, 3, "VALID")


def test_odd_padding_goes_behind():
    """SAME on 4 elements with a window of 2 and stride 1 pads one element, after the input."""
    w = pw.regular(4, 2, 1, "SAME")
    assert w.start.tolist() == [0, 1, 2, 3] and w.stop.tolist() == [2, 3, 4, 4]


def test_same_never_shifts_the_grid():
    """n=7, k=1, s=4 reads 0 and 4; TensorFlow's 3-D kernels read 1 and 5."""
    assert pw.regular(7, 1, 4, "SAME").start.tolist() == [0, 4]


def test_truncated_division_leaves_an_empty_result():
    """n=4, s=2: a window of 7 gives an empty result, a window of 8 an error, as in TensorFlow."""
    assert pw.regular(4, 7, 2, "VALID").count == 0
    with pytest.raises(InvalidArgument):
        pw.regular(4, 8, 2, "VALID")


def test_ceil_follows_torch():
    import torch

    for n, k, s, d in itertools.product(range(1, 12), range(1, 5), range(1, 5), (1, 2)):
        for pad in range(k // 2 + 1):
            if n + 2 * pad < (k - 1) * d + 1:
                continue
            x = torch.zeros(1, 1, n)
            for ceil in (False, True):
                theirs = torch.nn.functional.max_pool1d(x, k, s, pad, d, ceil_mode=ceil).shape[-1]
                try:
                    ours = pw.explicit(n, k, s, pad, pad, dilation=d, ceil=ceil).count
                except InvalidArgument:
                    # Only a window of nothing but padding may be refused: torch would return -inf for it.
                    members = [[o * s - pad + j * d for j in range(k)] for o in range(theirs)]
                    assert any(not any(0 <= i < n for i in m) for m in members), (n, k, s, d, pad, ceil)
                    continue
                assert ours == theirs, (n, k, s, d, pad, ceil)


def test_fractional_cells():
    for edges in ([0, 5], [0, 2, 5], [0, 1, 2, 3, 4, 5], [0, 4, 5]):
        for overlapping in (False, True):
            assert_reads(pw.fractional(5, edges, overlapping), ref.fractional(5, edges, overlapping))
            assert_reads(pw.fractional(5, np.array(edges), overlapping), ref.fractional(5, edges, overlapping))


@pytest.mark.parametrize(
    "edges",
    [
        [],
        [0],
        [5],
        [1, 5],
        [0, 4],
        [0, 6],
        [0, 3, 3, 5],
        [0, 4, 2, 5],
        [-1, 5],
        [0, 5, 5],
        [[0, 5]],
        [0, 2**63],
        None,
        "05",
        [0.0, 2.5, 5.0],
        [0, None, 5],
    ],
)
def test_impossible_sequences_are_refused(edges):
    with pytest.raises((InvalidArgument, InvalidType)):
        pw.fractional(5, edges)


def test_adaptive_cells():
    for n, m in itertools.product(range(1, 12), range(1, 25)):
        assert_reads(pw.adaptive(n, m), ref.adaptive(n, m))


def test_windows_of_one_element_axes_and_huge_windows():
    for k in (1, 2, 3, 2**31 - 1, 2**62):
        assert_reads(pw.regular(1, k, 1, "SAME"), [[0]])
    for n in (2, 3, 5):
        assert_reads(pw.regular(n, 2**31 - 1, 1, "SAME"), [list(range(n))] * n)


def test_long_axes_cost_nothing():
    """A regular axis is a few numbers: 2**40 elements are described at once."""
    w = pw.regular(2**40, 3, 2, "SAME")
    assert (w.size, w.count, w.regular) == (2**40, 2**39, True)
    assert not pw.fractional(5, [0, 2, 5]).regular


@pytest.mark.parametrize(
    "arguments",
    [
        (5, 0), (5, -1), (5, 2, 0), (5, 2, -1), (-1, 2), (5, 2.5), (5, None), (5, "2"), (5, 2, 1.5), (5, 2, 1, "same"),
        (5, 2, 1, "FULL"), (5, 2, 1, None),
        (5, 2, 1, "VALID", 0), (5, 2, 1, "VALID", -1), (5, 2, 1, "VALID", 1.5), ("5", 2), (5, [2]), (5, 2**64, 1),
        (2**63, 2),
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises((InvalidArgument, InvalidType)):
        pw.regular(*arguments)


@pytest.mark.parametrize(("before", "after"), [(3, 0), (0, 3), (-1, 0), (0, -1), (2**63, 0), (0.5, 0), (None, 0)])
def test_padding_stays_below_the_window(before, after):
    with pytest.raises((InvalidArgument, InvalidType)):
        pw.explicit(5, 3, 1, before, after)


def test_windows_are_values():
    """Equal by content, hashable, immutable, and they survive pickling."""
    a, b = pw.regular(9, 3, 2, "SAME"), pw.regular(9, 3, 2, "SAME")
    assert a == b and hash(a) == hash(b) and a != pw.regular(9, 3, 2, "VALID")
    f = pw.fractional(9, [0, 4, 9])
    assert f == pw.fractional(9, np.array([0, 4, 9])) and hash(f) == hash(pw.fractional(9, [0, 4, 9]))
    assert f != pw.fractional(9, [0, 4, 9], overlapping=True)
    for w in (a, f):
        assert pickle.loads(pickle.dumps(w)) == w
        for field in (w.start, w.stop, w.origin, w.length):
            assert field.dtype == np.int64
            with pytest.raises(ValueError):
                field[0] = 1


def test_a_sequence_is_copied():
    """Changing the array a Windows was made from does not change the Windows."""
    edges = np.array([0, 4, 9])
    w = pw.fractional(9, edges)
    edges[1] = 5
    assert w.start.tolist() == [0, 4]


# Pool ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "shape", "outer", "inner", "spatial"),
    [
        ("NHWC", (2, 6, 8, 3), 2, 3, (6, 8)),
        ("NCHW", (2, 3, 6, 8), 6, 1, (6, 8)),
        ("NDHWC", (2, 6, 8, 4, 3), 2, 3, (6, 8, 4)),
        ("NCDHW", (2, 3, 6, 8, 4), 6, 1, (6, 8, 4)),
        ("ZYX", (6, 8, 4), 1, 1, (6, 8, 4)),
        ("HW", (6, 8), 1, 1, (6, 8)),
        ("NCW", (2, 3, 6), 6, 1, (6,)),
        ("WC", (6, 3), 1, 3, (6,)),
        ("CW", (3, 6), 3, 1, (6,)),
        ("NW", (2, 6), 2, 1, (6,)),
    ],
)
def test_a_pool_knows_its_place(layout, shape, outer, inner, spatial):
    pool = Pool.of(shape, layout, tuple(pw.regular(n, 2, 2, "VALID") for n in spatial))
    assert (tuple(pool.shape), pool.outer, pool.inner) == (shape, outer, inner)
    assert tuple(pool.spatial_shape) == spatial and tuple(pool.out_spatial_shape) == tuple(n // 2 for n in spatial)
    halved = iter(n // 2 for n in spatial)
    assert tuple(pool.out_shape) == tuple(n if letter in "NC" else next(halved) for letter, n in zip(layout, shape))
    assert tuple(pool.extents) == (2,) * len(spatial) and pool.elements == 2 ** len(spatial)
    assert pool == Pool.of(shape, layout, pool.windows) and hash(pool) == hash(Pool.of(shape, layout, pool.windows))


@pytest.mark.parametrize(
    ("k", "dtype"), [(1, np.uint8), (16, np.uint8), (17, np.uint16), (256, np.uint16), (257, np.uint32)]
)
def test_a_choice_is_stored_in_the_smallest_type_that_fits(k, dtype):
    pool = Pool.of((k, k), "HW", (pw.regular(k, k),) * 2)
    assert pool.elements == k * k and pool.choice_dtype == dtype


@pytest.mark.parametrize(
    ("shape", "layout", "sizes"),
    [
        ((2, 6, 3), "NHWC", (6, 3)),
        ((2, 6, 8, 3), "NHWC", (6,)),
        ((2, 6, 8, 3), "NHWC", (6, 7)),
        ((2, 6, 8, 3), "NHHC", (6, 8)),
        ((2, 6, 8, 3), "HNWC", (6, 8)),
        ((2, 6, 8, 3), "NHCW", (6, 8)),
        ((2, 3), "NC", ()),
        ((2, 6, 8, 3), "", (6, 8)),
        ((2, 6, 8, 3), None, (6, 8)),
        ((-2, 6, 8, 3), "NHWC", (6, 8)),
        ((2.5, 6, 8, 3), "NHWC", (6, 8)),
    ],
)
def test_impossible_pools_are_refused(shape, layout, sizes):
    with pytest.raises((InvalidArgument, InvalidType)):
        Pool.of(shape, layout, tuple(pw.regular(n, 2) for n in sizes))


def test_divisors_are_part_of_a_pool():
    """They compare, hash and pickle with it; the windows, and everything that is no average, stay the same."""
    pool = Pool.of((2, 6, 6, 3), "NHWC", (pw.regular(6, 3), pw.regular(6, 2)))
    divided = pool.divided_by([[2, -3], [1, 1, 5]])
    assert pool.divisors is None and [axis.tolist() for axis in divided.divisors] == [[2, -3], [1, 1, 5]]
    assert divided != pool and divided == pool.divided_by(divided.divisors) and divided.divided_by(None) == pool
    assert hash(divided) == hash(pool.divided_by(divided.divisors)) != hash(pool)
    assert divided != pool.divided_by([[2, -3], [1, 1, 4]]) and divided.out_shape == pool.out_shape
    again = pickle.loads(pickle.dumps(divided))
    assert again == divided and pickle.loads(pickle.dumps(pool)) == pool
    assert not any(axis.flags.writeable for axis in divided.divisors)
    assert "divisors=[[2, -3], [1, 1, 5]]" in repr(divided)


@pytest.mark.parametrize(
    "divisors",
    [
        [[1, 1]],
        [[1, 1], [1, 1]],
        [[1, 1], [1, 0, 1]],
        [[1, 1], [1, 1.5, 1]],
        [[1, 1], [1, 1, 2**63]],
        [[1, 2**32], [1, 1, 2**32]],
        [[1, 1], [-(2**63), 1, 1]],
        [[1, 1], [[1], [1], [1]]],
    ],
)
def test_impossible_divisors_are_refused(divisors):
    pool = Pool.of((2, 6, 6, 3), "NHWC", (pw.regular(6, 3), pw.regular(6, 2)))
    with pytest.raises((InvalidArgument, InvalidType), match="divisors"):
        pool.divided_by(divisors)


def test_windows_are_public():
    assert pg.windows is pw
