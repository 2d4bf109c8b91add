"""GPU sums, as exact as those on the CPU, and the kernel of averages.

Sums of 16-bit floats are kept in float32 and those of float32 in float64. float64, and shares of integers, are kept
twofold: as two float64 whose sum is meant, so that nothing is lost on the way. Every result is rounded once.
"""

# mypy: ignore-errors
# ruff: noqa: RET505 (Triton decides conditions on constants while compiling and wants both branches)

import triton
import triton.language as tl

from .tiles import along, divisor_of, element_of, kernel, lengths, origin_of, pair, place, span_of


@triton.jit
def widen(value, SUM: tl.constexpr, TWOFOLD: tl.constexpr):
    """A value as a sum: one number, or two whose sum it is exactly."""
    if TWOFOLD:
        if value.dtype == tl.int64 or value.dtype == tl.uint64:
            high = (value >> 32).to(tl.float64) * 4294967296.0
            low = (value & 0xFFFFFFFF).to(tl.float64)
            return two(high, low)
        else:
            return value.to(tl.float64), tl.zeros(value.shape, tl.float64)
    else:
        return value.to(SUM), value.to(SUM)


@triton.jit
def two(a, b):
    """a + b and what the addition lost."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


@triton.jit
def add(high, low, more, rest, TWOFOLD: tl.constexpr):
    if TWOFOLD:
        total, lost = two(high, more)
        return total, low + rest + lost
    else:
        return high + more, low


@triton.jit
def product(a, b):
    """a * b and what the multiplication lost, from halves of both that multiply exactly."""
    whole = a * b
    spread_a = a * 134217729.0
    high_a = spread_a - (spread_a - a)
    low_a = a - high_a
    spread_b = b * 134217729.0
    high_b = spread_b - (spread_b - b)
    low_b = b - high_b
    return whole, ((high_a * high_b - whole) + high_a * low_b + low_a * high_b) + low_a * low_b


@triton.jit
def divide(high, low, count):
    """A twofold sum over a number."""
    q = high / count
    back, lost = product(q, count)
    left = (high - back) - lost
    return q, tl.where(left - left == 0, (left + low) / count, 0.0)


@triton.jit
def nearest(value):
    """The nearest whole number. From 2**51 on, float64 has no halves."""
    magic = 6755399441055744.0
    return tl.where(tl.abs(value) < 2251799813685248.0, (value + magic) - magic, value)


@triton.jit
def whole(high, low):
    """A twofold sum cut toward zero, in 64 bits that wrap. What lies within 2**-40 of a whole number is that number."""
    front = nearest(high)
    rest = (high - front) + low
    near = nearest(rest)
    left = rest - near
    total = front + near
    front = front - tl.floor(front * 5.421010862427522e-20 + 0.5) * 18446744073709551616.0
    result = front.to(tl.int64) + near.to(tl.int64)
    result = tl.where((left > 9.094947017729282e-13) & (total < 0), result + 1, result)
    return tl.where((left < -9.094947017729282e-13) & (total > 0), result - 1, result)


@triton.jit
def rounded(high, low, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr):
    if TWOFOLD:
        if WHOLE:
            return whole(high, low)
        else:
            return tl.where(high - high == 0, high + low, high)
    else:
        return high


@triton.jit
def share(high, low, count, SUM: tl.constexpr, TWOFOLD: tl.constexpr):
    """A sum over a number, to be added to others."""
    if TWOFOLD:
        return divide(high, low, count.to(tl.float64))
    else:
        return high * inverse(count, SUM), low


@triton.jit
def inverse(count, SUM: tl.constexpr):
    return 1.0 / count.to(SUM)


@kernel
def mean(
    x, y, origins_d, origins_h, origins_w, stops_d, stops_h, stops_w, divisors_d, divisors_h, divisors_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, sd, sh, sw, bd, bh, bw, dd, dh, dw, ed, eh, ew, kd, kh, kw, qw,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PAIRS: tl.constexpr, PHASE: tl.constexpr,
    PADDED: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, LISTED: tl.constexpr, DILATED: tl.constexpr, DIVISORS: tl.constexpr, SUM: tl.constexpr,
    TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """The average of every window. Rows outside the array are read as their nearest neighbours, and left out."""
    block, od, oh, wb, ib = place(ni, nw, mh, md, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    out_mask = (r < outer) & (ow < mw) & (c < inner)
    r = tl.minimum(r, outer - 1)
    row_length = w.to(tl.int64) * inner
    images = r * (d.to(IDX) * h * w * inner)
    out_row = (od.to(tl.int64) * mh + oh) * mw * inner
    out = r * (md.to(IDX) * mh * mw * inner) + ow * inner + c
    window = tl.minimum(ow, mw - 1)
    origin_d = origin_of(od, origins_d, sd, bd, LISTED, IDX)
    origin_h = origin_of(oh, origins_h, sh, bh, LISTED, IDX)
    origin_w = origin_of(window, origins_w, sw, bw, LISTED, IDX)
    first_d, last_d = span_of(od, origin_d, stops_d, d, dd, LISTED, DILATED)
    first_h, last_h = span_of(oh, origin_h, stops_h, h, dh, LISTED, DILATED)
    first_w, last_w = span_of(window, origin_w, stops_w, w, dw, LISTED, DILATED)
    KIND: tl.constexpr = tl.float64 if TWOFOLD else SUM
    FIT: tl.constexpr = not PADDED and not LISTED
    high = tl.zeros([BW, R, BI], KIND)
    low = tl.zeros([BW, R, BI], KIND)
    if KW > 0:
        for ld in tl.static_range(KD):
            for lh in tl.static_range(KH):
                on_row = (ld >= first_d) & (ld <= last_d) & (lh >= first_h) & (lh <= last_h)
                at_d = element_of(origin_d, ld, first_d, last_d, dd, FIT)
                at_h = element_of(origin_h, lh, first_h, last_h, dh, FIT)
                row = x + (at_d.to(tl.int64) * h + at_h) * row_length
                row_high = tl.zeros([BW, R, BI], KIND)
                row_low = tl.zeros([BW, R, BI], KIND)
                if PAIRS:
                    for t in tl.static_range((PHASE + 1) // 2, (PHASE - KW) // 2, -1):
                        even, odd = pair(row, images, wb.to(IDX) * BW - qw - t, w, 0, PADDED, R, BW, IDX, HINT)
                        if PHASE - 2 * t >= 0:
                            more, rest = widen(even, SUM, TWOFOLD)
                            row_high, row_low = add(row_high, row_low, more, rest, TWOFOLD)
                        if PHASE - 2 * t + 1 < KW:
                            more, rest = widen(odd, SUM, TWOFOLD)
                            row_high, row_low = add(row_high, row_low, more, rest, TWOFOLD)
                else:
                    for lw in tl.static_range(KW):
                        at = images + (origin_w + lw * dw) * inner + c
                        if FIT and FULL:
                            value = tl.load(row + at, eviction_policy=HINT)
                        else:
                            inside = (lw >= first_w) & (lw <= last_w) & (c < inner)
                            inside = inside.broadcast_to(BW, R, BI)
                            value = tl.load(row + at, mask=inside, other=0, eviction_policy=HINT)
                        more, rest = widen(value, SUM, TWOFOLD)
                        row_high, row_low = add(row_high, row_low, more, rest, TWOFOLD)
                if not FIT:
                    row_high = tl.where(on_row, row_high, 0)
                    row_low = tl.where(on_row, row_low, 0)
                high, low = add(high, low, row_high, row_low, TWOFOLD)
    else:
        ld = first_d
        while ld < tl.minimum(last_d + 1, ed):
            lh = first_h
            while lh < tl.minimum(last_h + 1, eh):
                row = x + ((origin_d + ld * dd).to(tl.int64) * h + (origin_h + lh * dh)) * row_length
                lw = 0
                while lw < ew:
                    inside = (lw >= first_w) & (lw <= last_w) & out_mask
                    at = images + (origin_w + lw * dw) * inner + c
                    value = tl.load(row + at, mask=inside, other=0)
                    more, rest = widen(value, SUM, TWOFOLD)
                    high, low = add(high, low, more, rest, TWOFOLD)
                    lw += 1
                lh += 1
            ld += 1
    if FIT and KW > 0 and not DIVISORS:
        count = tl.full([], KD * KH * KW, tl.int64)
    else:
        count = (
            divisor_of(od, origin_d, divisors_d, d, kd, DIVISORS).to(tl.int64)
            * divisor_of(oh, origin_h, divisors_h, h, kh, DIVISORS)
            * divisor_of(window, origin_w, divisors_w, w, kw, DIVISORS)
        )
    if WHOLE and not TWOFOLD:
        size = tl.abs(high) // tl.abs(count)
        high = tl.where((high < 0) != (count < 0), -size, size)
    else:
        high, low = share(high, low, count, SUM, TWOFOLD)
        high = rounded(high, low, TWOFOLD, WHOLE)
    tl.store(y + out_row + out, high.to(y.dtype.element_ty), mask=out_mask)
