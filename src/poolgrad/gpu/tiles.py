"""Which part of the result a GPU program owns, and where the windows of that part lie.

An array is seen as [outer, D, H, W, inner], contiguous. A program owns a tile [BW, R, BI] of its result (BW
neighbours on the last pooled axis, R images, BI channels) at one place on the two axes before it, so that their
borders are plain numbers. It writes its tile completely and nothing else: no atomics, no zeros beforehand, one order
of additions. Neighbours come first, because that is where the compiler puts neighbouring threads if it cannot see which
elements lie side by side.

Sizes are ordinary arguments: a kernel is compiled once per operation, dtype and window, not per shape. (Tiles are
powers of two that small arrays cut short, alignment is a constant, and so are the longest of listed windows and how
many of them share an element: some classes of shape have their own kernel.)
"""

# mypy: ignore-errors
# ruff: noqa: RET505, RUF005, SIM108 (Triton decides conditions on constants while compiling and wants both branches;
# its tuples grow by addition)

import triton
import triton.language as tl

SIZES = [
    "outer", "inner", "d", "h", "w", "md", "mh", "mw", "nw", "ni", "sd", "sh", "sw", "bd", "bh", "bw", "dd", "dh", "dw",
    "ed", "eh", "ew", "kd", "kh", "kw", "pd", "ph", "qd", "qh", "most_w", "images", "count",
]  # fmt: skip
"""Arguments whose value must not lead to another compilation."""

kernel = triton.jit(do_not_specialize=SIZES)


@triton.jit
def place(ni, nw, nh, nd, ORDER: tl.constexpr, ONE_W: tl.constexpr, ONE_I: tl.constexpr):
    """Which tile this program owns: blocks of images, of rows and of channels, and the place on the first two axes.

    Neighbouring programs are neighbours on H, then on D: they find each other's rows in the cache. ORDER "across": they
    are neighbours on a row first. "flat": the grid has one dimension, because one of the three would be too long.
    ONE_W, ONE_I: there is only one block to find.
    """
    if ORDER == "across":
        row = tl.program_id(0)
        h = tl.program_id(1)
        d = tl.program_id(2) % nd
        rest = tl.program_id(2) // nd
    elif ORDER == "flat":
        h = tl.program_id(0) % nh
        d = tl.program_id(0) // nh % nd
        row = tl.program_id(0) // nh // nd
    else:
        h = tl.program_id(0)
        d = tl.program_id(1)
        row = tl.program_id(2)
    i = row * 0
    w = row * 0
    if not ONE_I:
        i = row % ni
        row = row // ni
    if not ONE_W:
        w = row % nw
        row = row // nw
    if ORDER == "across":
        row = rest
    return row, d, h, w, i


@triton.jit
def lengths(w, mw, inner, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, BI: tl.constexpr):
    """The lengths of the contiguous axes. They come divided by powers of two that are known to divide them, so that the
    compiler knows too and lets threads read 16 bytes at once."""
    if BI == 1:
        return w * ALIGN, mw * ALIGN_OUT, 1
    else:
        return w, mw, inner * ALIGN


@triton.jit
def along(block, SIZE: tl.constexpr, axis: tl.constexpr, IDX: tl.constexpr):
    """Positions block * SIZE, ... along one axis of a tile."""
    at = block.to(IDX) * SIZE + tl.arange(0, SIZE).to(IDX)
    if axis == 0:
        return at[:, None, None]
    elif axis == 1:
        return at[None, :, None]
    else:
        return at[None, None, :]


@triton.jit
def origin_of(o, origins, stride, before, LISTED: tl.constexpr, IDX: tl.constexpr):
    """Where local position 0 of window o lies."""
    if LISTED:
        return tl.load(origins + o).to(IDX)
    else:
        return o.to(IDX) * stride - before


@triton.jit
def span_of(o, origin, stops, size, dilation, LISTED: tl.constexpr, DILATED: tl.constexpr):
    """The first and the last local position of window o that are real. (The extent bounds the last one too.)"""
    if LISTED:
        end = tl.load(stops + o).to(origin.dtype) - 1 - origin
    else:
        end = size - 1 - origin
    if DILATED:
        return tl.where(origin < 0, (dilation - 1 - origin) // dilation, 0), end // dilation
    else:
        return tl.maximum(-origin, 0), end


@triton.jit
def divisor_of(o, origin, divisors, size, window, DIVISORS: tl.constexpr):
    """What the sum of window o is divided by, on one axis."""
    if DIVISORS:
        return tl.load(divisors + o)
    else:
        return tl.minimum(origin + window, size) - tl.maximum(origin, 0)


@triton.jit
def clamp(at, low, high):
    return tl.minimum(tl.maximum(at, low), high)


@triton.jit
def element_of(origin, local, first, last, dilation, FIT: tl.constexpr):
    """Where a local position of a window lies. One that is not real stands for the nearest one that is; where all
    windows FIT into the array there is none, and nothing to compute."""
    if FIT:
        return origin + local * dilation
    else:
        return origin + clamp(local, first, last) * dilation


@triton.jit
def pair(
    row, images, p, size, fill, PADDED: tl.constexpr, R: tl.constexpr, BW: tl.constexpr, IDX: tl.constexpr,
    HINT: tl.constexpr,
):  # fmt: skip
    """Elements 2p and 2p + 1 of a row for neighbouring p, read as what they are: neighbours.

    Without padding only places beyond the result lie outside, and what they get does not matter.
    """
    at = 2 * p + tl.arange(0, 2 * BW).to(IDX)[:, None, None]
    if PADDED:
        inside = ((at >= 0) & (at < size)).broadcast_to(2 * BW, R, 1)
        both = tl.load(row + (images + at), mask=inside, other=fill, eviction_policy=HINT)
    else:
        both = tl.load(row + (images + at), mask=(at < size).broadcast_to(2 * BW, R, 1), eviction_policy=HINT)
    return tl.split(tl.permute(tl.reshape(both, [BW, 2, R, 1]), (0, 2, 3, 1)))


@triton.jit
def joined(low, high, R: tl.constexpr, BW: tl.constexpr):
    """The other way: low, high, low, high, ..."""
    return tl.reshape(tl.permute(tl.join(low, high), (0, 3, 1, 2)), [2 * BW, R, 1])


@triton.jit
def halves(x, R: tl.constexpr, N: tl.constexpr):
    """Every second of 2N neighbours, and the others."""
    return tl.split(tl.permute(tl.reshape(x, [N, 2, R, 1]), (0, 2, 3, 1)))


@triton.jit
def beside(x, other, AFTER: tl.constexpr, R: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr):
    """What lies before each of N neighbours (AFTER: behind it), where a thread holds them in chunks and `other` is what
    lies beside each chunk. Only registers change their names: nothing is loaded again, no other thread is asked."""
    STEPS: tl.constexpr = 3 if CHUNK == 8 else 2 if CHUNK == 4 else 1 if CHUNK == 2 else 0
    moved = ()
    for i in tl.static_range(STEPS):
        even, odd = halves(x, R, N >> (i + 1))
        if AFTER:
            moved = moved + (odd,)
            x = even
        else:
            moved = moved + (even,)
            x = odd
    x = other
    for i in tl.static_range(STEPS):
        if AFTER:
            x = joined(moved[STEPS - 1 - i], x, R, N >> (STEPS - i))
        else:
            x = joined(x, moved[STEPS - 1 - i], R, N >> (STEPS - i))
    return x
