"""The GPU kernels, in Triton: what the maps compute on one tile of their result.

An array is seen as [outer, D, H, W, inner], contiguous. A program owns a tile [R, BW, BI] of its result - R images, BW
neighbours on the last pooled axis, BI channels - at one place on the two axes before it, whose borders are therefore plain
numbers. It writes its tile completely and nothing else: no atomics, no zeros beforehand, one order of additions.

Sizes are ordinary arguments, so a kernel is compiled once per operation, dtype and window, not per shape. `ALIGN` is a
power of two that divides the length of the contiguous axis; it lets threads read 16 bytes at once.
"""

# mypy: ignore-errors
# ruff: noqa: SIM102, SIM108, RET505 (conditions on constants stand alone and have both branches: Triton decides them
# while compiling, and a function must return one type)

import triton
import triton.language as tl

SIZES = [
    "outer", "inner", "d", "h", "w", "md", "mh", "mw", "nw", "ni", "sd", "sh", "sw", "bd", "bh", "bw", "dd", "dh", "dw",
    "ed", "eh", "ew", "kd", "kh", "kw", "pd", "ph", "qd", "qh", "most_w", "images",
]  # fmt: skip
"""Arguments whose value must not lead to another compilation."""

_kernel = triton.jit(do_not_specialize=SIZES)


# ---------------------------------------------------------------------------------------------------------------------
# Places


@triton.jit
def _place(pid, ni, nw, nh, nd):
    """Which tile a program owns: blocks of images, of rows and of channels, and the place on the first two axes."""
    i = pid % ni
    pid = pid // ni
    w = pid % nw
    pid = pid // nw
    h = pid % nh
    pid = pid // nh
    return pid // nd, pid % nd, h, w, i


@triton.jit
def _lengths(w, mw, inner, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, BI: tl.constexpr):
    """The lengths of the contiguous axes, which come divided by what is known to divide them."""
    if BI == 1:
        return w * ALIGN, mw * ALIGN_OUT, 1
    else:
        return w, mw, inner * ALIGN


@triton.jit
def _along(block, SIZE: tl.constexpr, axis: tl.constexpr, IDX: tl.constexpr):
    """Positions block * SIZE, ... along one axis of a tile."""
    at = block.to(IDX) * SIZE + tl.arange(0, SIZE).to(IDX)
    if axis == 0:
        return at[:, None, None]
    elif axis == 1:
        return at[None, :, None]
    else:
        return at[None, None, :]


@triton.jit
def _edges(o, mask, origins, stops, stride, before, size, LISTED: tl.constexpr, IDX: tl.constexpr):
    """Where local position 0 of window o lies, and where the window ends at the latest."""
    if LISTED:
        return tl.load(origins + o, mask=mask, other=0).to(IDX), tl.load(stops + o, mask=mask, other=0).to(IDX)
    else:
        origin = o.to(IDX) * stride - before
        return origin, origin * 0 + size


@triton.jit
def _first(origin, dilation):
    """The local position of the first real element."""
    return tl.where(origin < 0, (dilation - 1 - origin) // dilation, 0)


@triton.jit
def _count(o, origin, divisors, size, window, LISTED: tl.constexpr):
    """What the sum of window o is divided by, on one axis."""
    if LISTED:
        return tl.load(divisors + o)
    else:
        return tl.minimum(origin + window, size) - tl.maximum(origin, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Winners


@triton.jit
def _consider(best, code, value, at, inside, target, EQUAL: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr):
    """The winner so far, after one more element. An element that is only as good does not win: the first one stays.

    Elements that are not real come as the lowest value (as NaN where NaN never wins), so that they cannot win.
    """
    if EQUAL:
        hit = value == target
        if FLOAT:
            hit = hit | ((value != value) & (target != target))
        return best, tl.where(hit & inside & (code < 0), at, code)
    else:
        if FLOAT:
            if IGNORE:
                better = (value > best) | ((best != best) & (value == value))
            else:
                better = ~(value <= best) & (best == best)
        else:
            better = value > best
        return tl.where(better, value, best), tl.where(better, at, code)


@triton.jit
def _pair(row, p, size, mask, fill, R: tl.constexpr, BW: tl.constexpr, IDX: tl.constexpr):
    """Elements 2p and 2p + 1 of a row for every p of a tile, read as what they are: neighbours."""
    at = 2 * p + tl.arange(0, 2 * BW).to(IDX)[None, :, None]
    both = tl.load(row + at, mask=(at >= 0) & (at < size) & mask, other=fill)
    return tl.split(tl.reshape(both, [R, BW, 1, 2]))


@_kernel
def scan(
    x, equal, y, code_out, v, taken,
    origins_d, stops_d, origins_h, stops_h, origins_w, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, sd, sh, sw, bd, bh, bw, dd, dh, dw, ed, eh, ew, qw,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PAIRS: tl.constexpr, PHASE: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, IDX: tl.constexpr,
    LISTED: tl.constexpr, COMPUTE: tl.constexpr, LOWEST: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr,
    EQUAL: tl.constexpr, VALUE: tl.constexpr, CODE: tl.constexpr, TAKE: tl.constexpr,
):  # fmt: skip
    """Finds the winner of every window: its value, its code, or what another array has in its place.

    KD, KH, KW are the extents of the windows where they are small enough to be written out, else 0. PAIRS: rows with
    stride 2 and one channel are read two elements at a time; PHASE is then the padding's parity, qw half of it.
    """
    block, od, oh, wb, ib = _place(tl.program_id(0), ni, nw, mh, md)
    w, mw, inner = _lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    mw_inner = (mw * inner).to(tl.int64)
    r = _along(block, R, 0, tl.int64)
    ow = _along(wb, BW, 1, IDX)
    c = _along(ib, BI, 2, IDX)
    out_mask = (r < outer) & (ow < mw) & (c < inner)
    out = ((r * md + od) * mh + oh) * mw_inner + ow * inner + c

    origin_d, stop_d = _edges(od, od < md, origins_d, stops_d, sd, bd, d, LISTED, IDX)
    origin_h, stop_h = _edges(oh, oh < mh, origins_h, stops_h, sh, bh, h, LISTED, IDX)
    origin_w, stop_w = _edges(ow, ow < mw, origins_w, stops_w, sw, bw, w, LISTED, IDX)
    row_length = (w * inner).to(tl.int64)
    image = x + r * (row_length * h * d)

    LOW: tl.constexpr = float("nan") if (FLOAT and IGNORE) else LOWEST
    best = tl.full([R, BW, BI], LOW, COMPUTE)
    if EQUAL:
        target = tl.load(equal + out, mask=out_mask, other=0).to(COMPUTE)
        code = tl.full([R, BW, BI], -1, IDX)
    else:
        target = best
        first = (_first(origin_d, dd) * eh + _first(origin_h, dh)) * ew + _first(origin_w, dw)
        code = tl.broadcast_to(first.to(IDX), [R, BW, BI])

    if KW > 0:
        for ld in tl.static_range(KD):
            for lh in tl.static_range(KH):
                at_d = origin_d + ld * dd
                at_h = origin_h + lh * dh
                on_row = (at_d >= 0) & (at_d < stop_d) & (at_h >= 0) & (at_h < stop_h)
                row = image + (at_d.to(tl.int64) * h + at_h) * row_length
                if PAIRS:
                    for t in tl.static_range((PHASE + 1) // 2, (PHASE - KW) // 2, -1):
                        low, high = _pair(row, wb * BW - qw - t, w, (r < outer) & on_row, LOW, R, BW, IDX)
                        if PHASE - 2 * t >= 0:
                            inside = on_row & (2 * (ow - qw - t) >= 0) & (2 * (ow - qw - t) < w)
                            best, code = _consider(
                                best,
                                code,
                                low.to(COMPUTE),
                                (ld * KH + lh) * KW + PHASE - 2 * t,
                                inside,
                                target,
                                EQUAL,
                                FLOAT,
                                IGNORE,
                            )
                        if PHASE - 2 * t + 1 < KW:
                            inside = on_row & (2 * (ow - qw - t) + 1 >= 0) & (2 * (ow - qw - t) + 1 < w)
                            best, code = _consider(
                                best,
                                code,
                                high.to(COMPUTE),
                                (ld * KH + lh) * KW + PHASE - 2 * t + 1,
                                inside,
                                target,
                                EQUAL,
                                FLOAT,
                                IGNORE,
                            )
                else:
                    for lw in tl.static_range(KW):
                        at_w = origin_w + lw * dw
                        inside = (at_w >= 0) & (at_w < stop_w) & on_row
                        value = tl.load(row + (at_w * inner + c), mask=inside & out_mask, other=LOW).to(COMPUTE)
                        best, code = _consider(
                            best, code, value, (ld * KH + lh) * KW + lw, inside, target, EQUAL, FLOAT, IGNORE
                        )
    else:
        ld = 0
        while ld < ed:
            at_d = origin_d + ld * dd
            if (at_d >= 0) & (at_d < stop_d):
                lh = 0
                while lh < eh:
                    at_h = origin_h + lh * dh
                    if (at_h >= 0) & (at_h < stop_h):
                        row = image + (at_d.to(tl.int64) * h + at_h) * row_length
                        lw = 0
                        while lw < ew:
                            at_w = origin_w + lw * dw
                            inside = (at_w >= 0) & (at_w < stop_w)
                            value = tl.load(row + (at_w * inner + c), mask=inside & out_mask, other=LOW).to(COMPUTE)
                            at = ((ld * eh + lh) * ew + lw).to(IDX)
                            best, code = _consider(best, code, value, at, inside, target, EQUAL, FLOAT, IGNORE)

                            lw += 1
                    lh += 1
            ld += 1
    if VALUE:
        tl.store(y + out, best.to(y.dtype.element_ty), mask=out_mask)
    if CODE:
        if EQUAL:
            code = tl.where(code < 0, ed.to(IDX) * eh * ew, code)
        tl.store(code_out + out, code.to(code_out.dtype.element_ty), mask=out_mask)
    if TAKE:
        eh_ = KH if KW > 0 else eh
        ew_ = KW if KW > 0 else ew
        found = code >= 0
        code = tl.where(found, code, 0)
        at_w = origin_w + (code % ew_) * dw
        at_h = origin_h + (code // ew_ % eh_) * dh
        at_d = origin_d + (code // ew_ // eh_) * dd
        chosen = (at_d.to(tl.int64) * h + at_h) * row_length + at_w * inner + c
        picked = tl.load(v + r * (row_length * h * d) + chosen, mask=out_mask & found, other=0)
        tl.store(taken + out, picked, mask=out_mask)


@_kernel
def take(
    v, code_in, y, origins_d, stops_d, origins_h, stops_h, origins_w, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, sd, sh, sw, bd, bh, bw, dd, dh, dw, eh, ew, images,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, IDX: tl.constexpr, LISTED: tl.constexpr,
    INDEX: tl.constexpr, FAULT: tl.constexpr,
):  # fmt: skip
    """What v has in the place of every choice. INDEX: that place itself, counted through the "spatial" block of its
    channel, its "image" or the whole "batch". FAULT: whether a code names no element of its window."""
    block, od, oh, wb, ib = _place(tl.program_id(0), ni, nw, mh, md)
    w, mw, inner = _lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = _along(block, R, 0, tl.int64)
    ow = _along(wb, BW, 1, IDX)
    c = _along(ib, BI, 2, IDX)
    mask = (r < outer) & (ow < mw) & (c < inner)
    out = ((r * md + od) * mh + oh) * (mw * inner).to(tl.int64) + ow * inner + c
    origin_d, stop_d = _edges(od, od < md, origins_d, stops_d, sd, bd, d, LISTED, IDX)
    origin_h, stop_h = _edges(oh, oh < mh, origins_h, stops_h, sh, bh, h, LISTED, IDX)
    origin_w, stop_w = _edges(ow, ow < mw, origins_w, stops_w, sw, bw, w, LISTED, IDX)
    code = tl.load(code_in + out, mask=mask, other=0).to(IDX)
    at_w = origin_w + (code % ew) * dw
    at_h = origin_h + (code // ew % eh) * dh
    at_d = origin_d + (code // ew // eh) * dd
    inside = (code >= 0) & (at_d >= 0) & (at_d < stop_d) & (at_h >= 0) & (at_h < stop_h) & (at_w >= 0) & (at_w < stop_w)
    spot = (at_d.to(tl.int64) * h + at_h) * w + at_w
    if FAULT:
        tl.store(y + out, (~inside).to(tl.int8), mask=mask)
    elif INDEX == "spatial":
        tl.store(y + out, spot.to(y.dtype.element_ty), mask=mask)
    elif INDEX != "":
        before = r if INDEX == "batch" else r % (outer // images)
        spot = (before * (d.to(tl.int64) * h * w) + spot) * inner + c
        tl.store(y + out, spot.to(y.dtype.element_ty), mask=mask)
    else:
        picked = tl.load(v + r * (d.to(tl.int64) * h * w * inner) + spot * inner + c, mask=mask & inside, other=0)
        tl.store(y + out, picked, mask=mask)


# ---------------------------------------------------------------------------------------------------------------------
# Sums


@triton.jit
def _widen(value, SUM: tl.constexpr, TWOFOLD: tl.constexpr):
    """A value as a sum: one number, or two whose sum it is exactly."""
    if TWOFOLD:
        if value.dtype == tl.int64 or value.dtype == tl.uint64:
            high = (value >> 32).to(tl.float64) * 4294967296.0
            low = (value & 0xFFFFFFFF).to(tl.float64)
            return _two(high, low)
        else:
            return value.to(tl.float64), tl.zeros(value.shape, tl.float64)
    else:
        return value.to(SUM), value.to(SUM)


@triton.jit
def _two(a, b):
    """a + b and what the addition lost."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


@triton.jit
def _add(high, low, more, rest, TWOFOLD: tl.constexpr):
    if TWOFOLD:
        total, lost = _two(high, more)
        return total, low + rest + lost
    else:
        return high + more, low


@triton.jit
def _product(a, b):
    """a * b and what the multiplication lost, from halves of both that multiply exactly."""
    product = a * b
    spread_a = a * 134217729.0
    high_a = spread_a - (spread_a - a)
    low_a = a - high_a
    spread_b = b * 134217729.0
    high_b = spread_b - (spread_b - b)
    low_b = b - high_b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


@triton.jit
def _divide(high, low, count):
    """A twofold sum over a number."""
    q = high / count
    product, lost = _product(q, count)
    left = (high - product) - lost
    return q, tl.where(left - left == 0, (left + low) / count, 0.0)


@triton.jit
def _nearest(value):
    """The nearest whole number; beyond 2**51 every float64 is one, or its neighbour is near enough."""
    magic = 6755399441055744.0
    return tl.where(tl.abs(value) < 2251799813685248.0, (value + magic) - magic, value)


@triton.jit
def _whole(high, low):
    """A twofold sum cut toward zero. What lies within 2**-40 of a whole number is that number."""
    front = _nearest(high)
    rest = (high - front) + low
    near = _nearest(rest)
    total = front + near
    left = rest - near
    front = front - tl.floor(front * 5.421010862427522e-20 + 0.5) * 18446744073709551616.0  # 64 bits wrap
    result = front.to(tl.int64) + near.to(tl.int64)
    result = tl.where((left > 9.094947017729282e-13) & (total < 0), result + 1, result)
    return tl.where((left < -9.094947017729282e-13) & (total > 0), result - 1, result)


@triton.jit
def _rounded(high, low, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr):
    if TWOFOLD:
        if WHOLE:
            return _whole(high, low)
        else:
            return tl.where(high - high == 0, high + low, high)
    else:
        return high


@_kernel
def mean(
    x, y, origins_d, stops_d, origins_h, stops_h, origins_w, stops_w, divisors_d, divisors_h, divisors_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, sd, sh, sw, bd, bh, bw, dd, dh, dw, ed, eh, ew, kd, kh, kw, qw,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PAIRS: tl.constexpr, PHASE: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, IDX: tl.constexpr,
    LISTED: tl.constexpr, SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, TOTAL: tl.constexpr,
):  # fmt: skip
    """The average of every window. TOTAL: its sum, undivided."""
    block, od, oh, wb, ib = _place(tl.program_id(0), ni, nw, mh, md)
    w, mw, inner = _lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = _along(block, R, 0, tl.int64)
    ow = _along(wb, BW, 1, IDX)
    c = _along(ib, BI, 2, IDX)
    out_mask = (r < outer) & (ow < mw) & (c < inner)
    out = ((r * md + od) * mh + oh) * (mw * inner).to(tl.int64) + ow * inner + c
    origin_d, stop_d = _edges(od, od < md, origins_d, stops_d, sd, bd, d, LISTED, IDX)
    origin_h, stop_h = _edges(oh, oh < mh, origins_h, stops_h, sh, bh, h, LISTED, IDX)
    origin_w, stop_w = _edges(ow, ow < mw, origins_w, stops_w, sw, bw, w, LISTED, IDX)
    row_length = (w * inner).to(tl.int64)
    image = x + r * (row_length * h * d)
    high = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
    low = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
    if KW > 0:
        for ld in tl.static_range(KD):
            for lh in tl.static_range(KH):
                at_d = origin_d + ld * dd
                at_h = origin_h + lh * dh
                on_row = (at_d >= 0) & (at_d < stop_d) & (at_h >= 0) & (at_h < stop_h)
                row = image + (at_d.to(tl.int64) * h + at_h) * row_length
                if PAIRS:
                    for t in tl.static_range((PHASE + 1) // 2, (PHASE - KW) // 2, -1):
                        even, odd = _pair(row, wb * BW - qw - t, w, (r < outer) & on_row, 0, R, BW, IDX)
                        if PHASE - 2 * t >= 0:
                            more, rest = _widen(even, SUM, TWOFOLD)
                            high, low = _add(high, low, more, rest, TWOFOLD)
                        if PHASE - 2 * t + 1 < KW:
                            more, rest = _widen(odd, SUM, TWOFOLD)
                            high, low = _add(high, low, more, rest, TWOFOLD)
                else:
                    for lw in tl.static_range(KW):
                        at_w = origin_w + lw * dw
                        inside = (at_w >= 0) & (at_w < stop_w) & on_row
                        value = tl.load(row + (at_w * inner + c), mask=inside & out_mask, other=0)
                        more, rest = _widen(value, SUM, TWOFOLD)
                        high, low = _add(high, low, more, rest, TWOFOLD)
    else:
        ld = 0
        while ld < ed:
            at_d = origin_d + ld * dd
            if (at_d >= 0) & (at_d < stop_d):
                lh = 0
                while lh < eh:
                    at_h = origin_h + lh * dh
                    if (at_h >= 0) & (at_h < stop_h):
                        row = image + (at_d.to(tl.int64) * h + at_h) * row_length
                        lw = 0
                        while lw < ew:
                            at_w = origin_w + lw * dw
                            inside = (at_w >= 0) & (at_w < stop_w)
                            value = tl.load(row + (at_w * inner + c), mask=inside & out_mask, other=0)
                            more, rest = _widen(value, SUM, TWOFOLD)
                            high, low = _add(high, low, more, rest, TWOFOLD)
                            lw += 1
                    lh += 1
            ld += 1
    if TOTAL:
        tl.store(y + out, high, mask=out_mask)
    else:
        count = (
            _count(od, origin_d, divisors_d, d, kd, LISTED).to(tl.int64)
            * _count(oh, origin_h, divisors_h, h, kh, LISTED)
            * _count(tl.minimum(ow, mw - 1), origin_w, divisors_w, w, kw, LISTED)
        )
        if TWOFOLD:
            high, low = _divide(high, low, count.to(tl.float64))
            high = _rounded(high, low, TWOFOLD, WHOLE)
        elif WHOLE:
            size = tl.abs(high) // tl.abs(count)
            high = tl.where((high < 0) != (count < 0), -size, size)
        else:
            high = high * (1.0 / count.to(SUM))
        tl.store(y + out, high.to(y.dtype.element_ty), mask=out_mask)


# ---------------------------------------------------------------------------------------------------------------------
# Gradients, in gather form


@_kernel
def put(
    g, code_in, gx, divisors_d, divisors_h, divisors_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, qd, qh, qw, bd, bh, bw, kd, kh, kw, eh, ew,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    PHASE_D: tl.constexpr, PHASE_H: tl.constexpr, PHASE_W: tl.constexpr, PAIRS: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, IDX: tl.constexpr,
    SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, MEAN: tl.constexpr, DIVISORS: tl.constexpr,
):  # fmt: skip
    """Every element collects from the windows that contain it, for regular windows without dilation: from those that
    chose it, or (MEAN) its share of each.

    The result is cut into cells of one stride. Element s * p + e lies in window o = p + q + t at local position
    e + phase - s * t, where before = s * q + phase: all but p and q is known while compiling, so no element divides.
    """
    block, cd, ch, wb, ib = _place(tl.program_id(0), ni, nw, ph, pd)
    w, mw, inner = _lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = _along(block, R, 0, tl.int64)
    p = _along(wb, BW, 1, IDX)
    c = _along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (c < inner)
    out_row = (mw * inner).to(tl.int64)
    row_length = (w * inner).to(tl.int64)
    PARTS: tl.constexpr = 1 if PAIRS else SW
    for e_d in tl.static_range(SD):
        for e_h in tl.static_range(SH):
            at_d = cd * SD + e_d
            at_h = ch * SH + e_h
            on_array = (at_d < d) & (at_h < h)
            row = gx + r * (row_length * h * d) + (at_d.to(tl.int64) * h + at_h) * row_length
            for e_w in tl.static_range(PARTS):
                high = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
                low = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
                high_next = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
                low_next = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
                for t_d in tl.static_range(-((KD - 1 - PHASE_D - e_d) // SD), (e_d + PHASE_D) // SD + 1):
                    for t_h in tl.static_range(-((KH - 1 - PHASE_H - e_h) // SH), (e_h + PHASE_H) // SH + 1):
                        od = cd + qd + t_d
                        oh = ch + qh + t_h
                        on_row = (od >= 0) & (od < md) & (oh >= 0) & (oh < mh)
                        windows = ((r * md + od) * mh + oh) * out_row
                        for t_w in tl.static_range(
                            -((KW - 1 - PHASE_W - e_w) // SW), ((1 if PAIRS else e_w) + PHASE_W) // SW + 1
                        ):
                            ow = p + qw + t_w
                            mask = (ow >= 0) & (ow < mw) & on_row & tile_mask
                            at = windows + (ow * inner + c)
                            value = tl.load(g + at, mask=mask, other=0)
                            if MEAN:
                                more, rest = _widen(value, SUM, TWOFOLD)
                                if DIVISORS:
                                    known = (ow >= 0) & (ow < mw)
                                    count = (
                                        tl.load(divisors_d + od, mask=on_row, other=1)
                                        * tl.load(divisors_h + oh, mask=on_row, other=1)
                                        * tl.load(divisors_w + ow, mask=known, other=1)
                                    )
                                else:
                                    from_d = od * SD - bd
                                    from_h = oh * SH - bh
                                    from_w = ow * SW - bw
                                    count = (
                                        (tl.minimum(from_d + kd, d) - tl.maximum(from_d, 0))
                                        * (tl.minimum(from_h + kh, h) - tl.maximum(from_h, 0))
                                        * (tl.minimum(from_w + kw, w) - tl.maximum(from_w, 0))
                                    )
                                    count = tl.where((ow >= 0) & (ow < mw) & on_row, count, 1)
                                if TWOFOLD:
                                    more, rest = _divide(more, rest, count.to(tl.float64))
                                else:
                                    more = more * (1.0 / count.to(SUM))
                                if e_w + PHASE_W - SW * t_w >= 0 and e_w + PHASE_W - SW * t_w < KW:
                                    high, low = _add(high, low, more, rest, TWOFOLD)
                                if PAIRS:
                                    if e_w + PHASE_W - SW * t_w + 1 < KW:
                                        high_next, low_next = _add(high_next, low_next, more, rest, TWOFOLD)
                            else:
                                chosen = tl.load(code_in + at, mask=mask, other=0).to(tl.int32)
                                value = value.to(SUM)
                                here = (
                                    ((e_d + PHASE_D - SD * t_d) * eh + e_h + PHASE_H - SH * t_h) * ew
                                    + e_w
                                    + PHASE_W
                                    - SW * t_w
                                )
                                if e_w + PHASE_W - SW * t_w >= 0 and e_w + PHASE_W - SW * t_w < KW:
                                    high += tl.where(chosen == here, value, 0)
                                if PAIRS:
                                    if e_w + PHASE_W - SW * t_w + 1 < KW:
                                        high_next += tl.where(chosen == here + 1, value, 0)
                result = _rounded(high, low, TWOFOLD, WHOLE).to(gx.dtype.element_ty)
                if PAIRS:
                    following = _rounded(high_next, low_next, TWOFOLD, WHOLE).to(gx.dtype.element_ty)
                    both = tl.reshape(tl.join(result, following), [R, 2 * BW, 1])
                    at_w = (wb * (2 * BW)).to(IDX) + tl.arange(0, 2 * BW).to(IDX)[None, :, None]
                    tl.store(row + at_w, both, mask=(at_w < w) & (r < outer) & on_array)
                else:
                    at_w = p * SW + e_w
                    tl.store(row + (at_w * inner + c), result, mask=(at_w < w) & on_array & tile_mask)


@triton.jit
def _collect(
    high, low, mine, g, code_in, y, counts, origins_d, origins_h, origins_w, divisors_d, divisors_h, divisors_w,
    stops_d, stops_h, stops_w, windows, c, inner, at_d, at_h, at_w, od, oh, ow, reached, tile_mask,
    dd, dh, dw, eh, ew,
    SUM: tl.constexpr, TWOFOLD: tl.constexpr, MODE: tl.constexpr, DILATED: tl.constexpr, IDX: tl.constexpr,
):  # fmt: skip
    """What an element gets from one of the windows that may contain it."""
    way_d = at_d - tl.load(origins_d + od).to(IDX)
    way_h = at_h - tl.load(origins_h + oh).to(IDX)
    way_w = at_w - tl.load(origins_w + ow, mask=reached, other=0).to(IDX)
    if DILATED:
        reached = reached & (way_w % dw == 0) & (way_h % dh == 0) & (way_d % dd == 0)
        reached = reached & (at_w < tl.load(stops_w + ow, mask=reached, other=0))
        reached = reached & (at_h < tl.load(stops_h + oh)) & (at_d < tl.load(stops_d + od))
        reached = reached & (way_w >= 0) & (way_h >= 0) & (way_d >= 0)
    mask = reached & tile_mask
    at = windows + (ow * inner + c)
    value = tl.load(g + at, mask=mask, other=0)
    if MODE == "put" or MODE == "assign":
        chosen = tl.load(code_in + at, mask=mask, other=0).to(IDX)
        here = chosen == ((way_d // dd) * eh + way_h // dh) * ew + way_w // dw
        if MODE == "assign":
            return tl.where(here & mask, value.to(SUM), high), low
        else:
            return high + tl.where(here, value.to(SUM), 0), low
    else:
        more, rest = _widen(value, SUM, TWOFOLD)
        if MODE == "mean":
            count = tl.load(divisors_d + od) * tl.load(divisors_h + oh)
            count = count * tl.load(divisors_w + ow, mask=reached, other=1)
            if TWOFOLD:
                more, rest = _divide(more, rest, count.to(tl.float64))
            else:
                more = more * (1.0 / count.to(SUM))
        else:
            theirs = tl.load(y + at, mask=mask, other=0)
            member = ((mine == theirs) | ((mine != mine) & (theirs != theirs))) & mask
            if MODE == "split":
                count = tl.load(counts + at, mask=mask, other=1)
                if TWOFOLD:
                    more, rest = _divide(more, rest, count.to(tl.float64))
                else:
                    more = more / count.to(SUM)
            if TWOFOLD:
                rest = tl.where(member, rest, 0.0)
            more = tl.where(member, more, 0)
        return _add(high, low, more, rest, TWOFOLD)


@_kernel
def put_any(
    g, code_in, gx, x, y, counts,
    origins_d, origins_h, origins_w, divisors_d, divisors_h, divisors_w,
    from_d, to_d, from_h, to_h, from_w, to_w, stops_d, stops_h, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, dd, dh, dw, eh, ew, most_w,
    MOST_D: tl.constexpr, MOST_H: tl.constexpr, MOST_W: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, IDX: tl.constexpr,
    SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, MODE: tl.constexpr, DILATED: tl.constexpr,
):  # fmt: skip
    """The same for any windows, which are looked up in tables: `from` and `to` hold the windows that reach an element.

    MODE: "put", "assign" (the last window sets the element), "mean", "ties" or "split" (who equals y belongs to the choice).
    """
    block, at_d, at_h, wb, ib = _place(tl.program_id(0), ni, nw, h, d)
    w, mw, inner = _lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = _along(block, R, 0, tl.int64)
    at_w = _along(wb, BW, 1, IDX)
    c = _along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (at_w < w) & (c < inner)
    out_row = (mw * inner).to(tl.int64)
    row_length = (w * inner).to(tl.int64)
    spot = r * (row_length * h * d) + (at_d.to(tl.int64) * h + at_h) * row_length + (at_w * inner + c)
    high = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
    low = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
    mine = tl.load(x + spot, mask=tile_mask, other=0) if MODE == "ties" or MODE == "split" else high
    first_w = tl.load(from_w + at_w, mask=at_w < w, other=0).to(IDX)
    last_w = tl.load(to_w + at_w, mask=at_w < w, other=0).to(IDX)
    first_d = tl.load(from_d + at_d)
    last_d = tl.load(to_d + at_d)
    first_h = tl.load(from_h + at_h)
    last_h = tl.load(to_h + at_h)
    if MOST_W > 0:
        for i in tl.static_range(MOST_D):
            for j in tl.static_range(MOST_H):
                od = tl.minimum(first_d + i, md - 1)
                oh = tl.minimum(first_h + j, mh - 1)
                on_row = (first_d + i < last_d) & (first_h + j < last_h)
                for k in tl.static_range(MOST_W):
                    high, low = _collect(
                        high, low, mine, g, code_in, y, counts, origins_d, origins_h, origins_w, divisors_d, divisors_h,
                        divisors_w, stops_d, stops_h, stops_w, ((r * md + od) * mh + oh) * out_row, c, inner,
                        at_d, at_h, at_w, od, oh, first_w + k, on_row & (first_w + k < last_w), tile_mask,
                        dd, dh, dw, eh, ew, SUM, TWOFOLD, MODE, DILATED, IDX,
                    )  # fmt: skip
    else:
        od = first_d
        while od < last_d:
            oh = first_h
            while oh < last_h:
                step = 0
                while step < most_w:
                    high, low = _collect(
                        high, low, mine, g, code_in, y, counts, origins_d, origins_h, origins_w, divisors_d, divisors_h,
                        divisors_w, stops_d, stops_h, stops_w, ((r * md + od) * mh + oh) * out_row, c, inner,
                        at_d, at_h, at_w, od, oh, first_w + step, first_w + step < last_w, tile_mask,
                        dd, dh, dw, eh, ew, SUM, TWOFOLD, MODE, DILATED, IDX,
                    )  # fmt: skip
                    step += 1
                oh += 1
            od += 1
    tl.store(gx + spot, _rounded(high, low, TWOFOLD, WHOLE).to(gx.dtype.element_ty), mask=tile_mask)


@_kernel
def max_put(
    x, equal, g, gx,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, bd, bh, bw,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    PAIRS: tl.constexpr, R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, IDX: tl.constexpr,
    COMPUTE: tl.constexpr, LOWEST: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr, EQUAL: tl.constexpr,
):  # fmt: skip
    """choose and put in one, for regular windows that do not overlap: x and g are read once, gx is written once."""
    block, od, oh, wb, ib = _place(tl.program_id(0), ni, nw, ph, pd)
    w, mw, inner = _lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = _along(block, R, 0, tl.int64)
    ow = _along(wb, BW, 1, IDX)
    c = _along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (c < inner)
    row_length = (w * inner).to(tl.int64)
    there = (od < md) & (oh < mh) & (ow < mw) & tile_mask
    out = ((r * md + od) * mh + oh) * (mw * inner).to(tl.int64) + ow * inner + c
    gradient = tl.load(g + out, mask=there, other=0)

    LOW: tl.constexpr = float("nan") if (FLOAT and IGNORE) else LOWEST
    best = tl.full([R, BW, BI], LOW, COMPUTE)
    if EQUAL:
        target = tl.load(equal + out, mask=there, other=0).to(COMPUTE)
        code = tl.full([R, BW, BI], -1, tl.int32)
    else:
        target = best
        first_d = tl.maximum(bd - od * SD, 0)
        first_h = tl.maximum(bh - oh * SH, 0)
        first_w = tl.maximum(bw - ow * SW, 0)
        code = tl.broadcast_to(((first_d * KH + first_h) * KW + first_w).to(tl.int32), [R, BW, BI])
    image = r * (row_length * h * d)
    for ld in tl.static_range(KD):
        for lh in tl.static_range(KH):
            at_d = od * SD - bd + ld
            at_h = oh * SH - bh + lh
            on_row = (at_d >= 0) & (at_d < d) & (at_h >= 0) & (at_h < h)
            row = x + image + (at_d.to(tl.int64) * h + at_h) * row_length
            if PAIRS:
                low, high = _pair(row, wb * BW, w, (r < outer) & on_row, LOW, R, BW, IDX)
                best, code = _consider(
                    best,
                    code,
                    low.to(COMPUTE),
                    (ld * KH + lh) * KW,
                    on_row & (2 * ow < w),
                    target,
                    EQUAL,
                    FLOAT,
                    IGNORE,
                )
                if KW > 1:
                    inside = on_row & (2 * ow + 1 < w)
                    best, code = _consider(
                        best, code, high.to(COMPUTE), (ld * KH + lh) * KW + 1, inside, target, EQUAL, FLOAT, IGNORE
                    )
            else:
                for lw in tl.static_range(KW):
                    at_w = ow * SW - bw + lw
                    inside = (at_w >= 0) & (at_w < w) & on_row
                    value = tl.load(row + (at_w * inner + c), mask=inside & tile_mask, other=LOW).to(COMPUTE)
                    best, code = _consider(
                        best, code, value, (ld * KH + lh) * KW + lw, inside, target, EQUAL, FLOAT, IGNORE
                    )
    zero = tl.zeros_like(gradient)
    for ld in tl.static_range(SD):
        for lh in tl.static_range(SH):
            at_d = od * SD - bd + ld
            at_h = oh * SH - bh + lh
            on_row = (at_d >= 0) & (at_d < d) & (at_h >= 0) & (at_h < h)
            row = gx + image + (at_d.to(tl.int64) * h + at_h) * row_length
            if PAIRS:
                if ld < KD and lh < KH:
                    low = tl.where(code == (ld * KH + lh) * KW, gradient, zero)
                else:
                    low = zero
                if ld < KD and lh < KH and KW > 1:
                    high = tl.where(code == (ld * KH + lh) * KW + 1, gradient, zero)
                else:
                    high = zero
                both = tl.reshape(tl.join(low, high), [R, 2 * BW, 1])
                at_w = (wb * (2 * BW)).to(IDX) + tl.arange(0, 2 * BW).to(IDX)[None, :, None]
                tl.store(row + at_w, both, mask=(at_w < w) & (r < outer) & on_row)
            else:
                for lw in tl.static_range(SW):
                    at_w = ow * SW - bw + lw
                    if ld < KD and lh < KH and lw < KW:
                        mine = tl.where(code == (ld * KH + lh) * KW + lw, gradient, zero)
                    else:
                        mine = zero
                    mask = (at_w >= 0) & (at_w < w) & on_row & tile_mask
                    tl.store(row + (at_w * inner + c), mine, mask=mask)


# ---------------------------------------------------------------------------------------------------------------------
# Ties


@_kernel
def members(
    x, y, v, out_sum, out_count,
    origins_d, stops_d, origins_h, stops_h, origins_w, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, dd, dh, dw, ed, eh, ew,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr, IDX: tl.constexpr,
    SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, COUNT: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Over the elements of a window that equal y: how many there are (COUNT), or the sum or (SPLIT) average of v."""
    block, od, oh, wb, ib = _place(tl.program_id(0), ni, nw, mh, md)
    w, mw, inner = _lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = _along(block, R, 0, tl.int64)
    ow = _along(wb, BW, 1, IDX)
    c = _along(ib, BI, 2, IDX)
    out_mask = (r < outer) & (ow < mw) & (c < inner)
    out = ((r * md + od) * mh + oh) * (mw * inner).to(tl.int64) + ow * inner + c
    origin_d, stop_d = _edges(od, od < md, origins_d, stops_d, 0, 0, d, True, IDX)
    origin_h, stop_h = _edges(oh, oh < mh, origins_h, stops_h, 0, 0, h, True, IDX)
    origin_w, stop_w = _edges(ow, ow < mw, origins_w, stops_w, 0, 0, w, True, IDX)
    row_length = (w * inner).to(tl.int64)
    image = r * (row_length * h * d)
    theirs = tl.load(y + out, mask=out_mask, other=0)
    count = tl.zeros([R, BW, BI], tl.int64)
    high = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
    low = tl.zeros([R, BW, BI], tl.float64 if TWOFOLD else SUM)
    ld = 0
    while ld < ed:
        at_d = origin_d + ld * dd
        if (at_d >= 0) & (at_d < stop_d):
            lh = 0
            while lh < eh:
                at_h = origin_h + lh * dh
                if (at_h >= 0) & (at_h < stop_h):
                    row = image + (at_d.to(tl.int64) * h + at_h) * row_length
                    lw = 0
                    while lw < ew:
                        at_w = origin_w + lw * dw
                        inside = (at_w >= 0) & (at_w < stop_w) & out_mask
                        mine = tl.load(x + row + (at_w * inner + c), mask=inside, other=0)
                        member = ((mine == theirs) | ((mine != mine) & (theirs != theirs))) & inside
                        count += member.to(tl.int64)
                        if not COUNT:
                            value = tl.load(v + row + (at_w * inner + c), mask=member, other=0)
                            more, rest = _widen(value, SUM, TWOFOLD)
                            high, low = _add(high, low, more, rest, TWOFOLD)
                        lw += 1
                lh += 1
        ld += 1
    if COUNT:
        tl.store(out_count + out, count, mask=out_mask)
    else:
        if SPLIT:
            count = tl.maximum(count, 1)
            if TWOFOLD:
                high, low = _divide(high, low, count.to(tl.float64))
            else:
                high = high / count.to(SUM)
        tl.store(out_sum + out, _rounded(high, low, TWOFOLD, WHOLE).to(out_sum.dtype.element_ty), mask=out_mask)


# ---------------------------------------------------------------------------------------------------------------------
# Indices


@triton.jit
def segments(keys, order, g, gx, count, SUM: tl.constexpr, BLOCK: tl.constexpr):
    """Adds g where the sorted keys say. Whoever holds the first of equal keys adds all of them, in their order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, mask=at < count, other=-1)
    before = tl.load(keys + at - 1, mask=(at < count) & (at > 0), other=-1)
    first = (key != before) & (at < count)
    total = tl.zeros([BLOCK], SUM)
    more = first
    step = 0
    while tl.max(more.to(tl.int32), 0) > 0:
        total += tl.load(g + tl.load(order + at + step, mask=more, other=0), mask=more, other=0).to(SUM)
        step += 1
        more = more & (at + step < count)
        more = more & (tl.load(keys + at + step, mask=more, other=-1) == key)
    tl.store(gx + key, total.to(gx.dtype.element_ty), mask=first)
