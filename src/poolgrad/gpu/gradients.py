"""Kernels of gradients, in gather form: an element collects from the windows that contain it and is written once."""

# mypy: ignore-errors
# ruff: noqa: RET505, RUF005, SIM108 (Triton decides conditions on constants while compiling and wants both branches;
# its tuples grow by addition)

import triton
import triton.language as tl

from .sums import add, inverse, rounded, share, widen
from .tiles import along, beside, clamp, joined, kernel, lengths, pair, place
from .winners import comparable, consider, first_nan, real_code


@triton.jit
def _window(o, count):
    """A window that exists, in the place of o."""
    return clamp(o, 0, count - 1)


@triton.jit
def _load(pointer, c, inner, FULL: tl.constexpr, HINT: tl.constexpr):
    if FULL:
        return tl.load(pointer, eviction_policy=HINT)
    else:
        return tl.load(pointer, mask=c < inner, other=0, eviction_policy=HINT)


@triton.jit
def _windows(
    row, images, wb, size, FILL: tl.constexpr, FIRST: tl.constexpr, REACH: tl.constexpr, CHUNK: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, IDX: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """What a row of windows that lie side by side has for the windows p + FIRST, ... of each cell p. Each is loaded by
    one thread only, CHUNK neighbours at once, and those beside a chunk one by one; FILL outside [0, size)."""
    N: tl.constexpr = CHUNK if CHUNK <= BW else BW
    at = wb.to(IDX) * BW + tl.arange(0, BW).to(IDX)[:, None, None]
    inside = (at < size).broadcast_to(BW, R, 1)
    own = tl.load(row + (images + at), mask=inside, other=FILL, eviction_policy=HINT)
    chunk = wb.to(IDX) * (BW // N) + tl.arange(0, BW // N).to(IDX)[:, None, None]
    windows = ()
    for k in tl.static_range(REACH):
        value = own
        if FIRST + k != 0:
            at = chunk * N + (N if FIRST + k > 0 else -1)
            inside = ((at >= 0) & (at < size)).broadcast_to(BW // N, R, 1)
            other = tl.load(row + (images + at), mask=inside, other=FILL, eviction_policy=HINT)
            value = beside(own, other, FIRST + k > 0, R, BW, N)
        windows = windows + (value,)
    return windows


@kernel
def put(
    g, code_in, gx, divisors_d, divisors_h, divisors_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, qd, qh, qw, bd, bh, bw, kd, kh, kw, eh, ew,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    PHASE_D: tl.constexpr, PHASE_H: tl.constexpr, PHASE_W: tl.constexpr, PAIRS: tl.constexpr,
    CHUNK: tl.constexpr, FIRST: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, MEAN: tl.constexpr,
    DIVISORS: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """For regular windows without dilation: from the windows that chose an element, or (MEAN) its share of each.

    The result is cut into cells of one stride. Element s * p + e lies in window o = p + q + t at local position
    e + phase - s * t, where before = s * q + phase: all but p and q is known while compiling, so nothing is divided.
    First the windows that reach into the cell are read, each once; then the elements of the cell are added up. CHUNK:
    rows of windows are read so many at once; the first of those on a row that reach into cell p is p + FIRST.
    """
    block, cd, ch, wb, ib = place(ni, nw, ph, pd, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    p = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (c < inner)
    r = tl.minimum(r, outer - 1)
    out_images = r * (md.to(IDX) * mh * mw * inner)
    images = r * (d.to(IDX) * h * w * inner)
    row_length = w.to(tl.int64) * inner
    # Windows p + q + t reach into the cell for t in [LOW, LOW + REACH).
    LOW_D: tl.constexpr = -((KD - 1 - PHASE_D) // SD)
    LOW_H: tl.constexpr = -((KH - 1 - PHASE_H) // SH)
    LOW_W: tl.constexpr = -((KW - 1 - PHASE_W) // SW)
    REACH_D: tl.constexpr = (SD - 1 + PHASE_D) // SD + 1 - LOW_D
    REACH_H: tl.constexpr = (SH - 1 + PHASE_H) // SH + 1 - LOW_H
    REACH_W: tl.constexpr = (SW - 1 + PHASE_W) // SW + 1 - LOW_W

    codes = ()
    values = ()
    rests = ()
    for i in tl.static_range(REACH_D):
        for j in tl.static_range(REACH_H):
            od = cd + qd + LOW_D + i
            oh = ch + qh + LOW_H + j
            on_row = (od >= 0) & (od < md) & (oh >= 0) & (oh < mh)
            od = _window(od, md)
            oh = _window(oh, mh)
            row = (od.to(tl.int64) * mh + oh) * mw * inner
            if CHUNK > 0:
                size = tl.where(on_row, mw, 0)
                gradients = _windows(g + row, out_images, wb, size, 0, FIRST, REACH_W, CHUNK, R, BW, IDX, HINT)
                if not MEAN:
                    choices = _windows(
                        code_in + row, out_images, wb, size, 255, FIRST, REACH_W, CHUNK, R, BW, IDX, HINT
                    )
            for k in tl.static_range(REACH_W):
                ow = p + qw + LOW_W + k
                there = (ow >= 0) & (ow < mw) & on_row
                ow = _window(ow, mw)
                at = out_images + ow * inner + c
                if CHUNK > 0:
                    value = gradients[k]
                else:
                    value = _load(g + row + at, c, inner, FULL, HINT)
                if MEAN:
                    if DIVISORS:
                        count_d = tl.load(divisors_d + od)
                        count_h = tl.load(divisors_h + oh)
                        count_w = tl.load(divisors_w + ow)
                    else:
                        count_d = tl.minimum(od * SD - bd + kd, d) - tl.maximum(od * SD - bd, 0)
                        count_h = tl.minimum(oh * SH - bh + kh, h) - tl.maximum(oh * SH - bh, 0)
                        count_w = tl.minimum(ow * SW - bw + kw, w) - tl.maximum(ow * SW - bw, 0)
                    more, rest = widen(value, SUM, TWOFOLD)
                    if TWOFOLD:
                        more, rest = share(more, rest, count_d.to(tl.int64) * count_h * count_w, SUM, TWOFOLD)
                    else:
                        # One inverse per axis: on the row it serves all rows of the cell.
                        more = more * (inverse(count_d, SUM) * inverse(count_h, SUM) * inverse(count_w, SUM))
                    if CHUNK == 0:
                        more = tl.where(there, more, 0)
                        rest = tl.where(there, rest, 0)
                    values = values + (more,)
                    rests = rests + (rest,)
                else:
                    if CHUNK > 0:
                        chosen = choices[k].to(tl.int32)
                    else:
                        chosen = tl.where(there, _load(code_in + row + at, c, inner, FULL, HINT).to(tl.int32), -1)
                    codes = codes + (chosen,)
                    values = values + (value.to(SUM),)

    KIND: tl.constexpr = tl.float64 if TWOFOLD else SUM
    for e_d in tl.static_range(SD):
        for e_h in tl.static_range(SH):
            at_d = cd * SD + e_d
            at_h = ch * SH + e_h
            on_array = (at_d < d) & (at_h < h)
            row = gx + (at_d.to(tl.int64) * h + at_h) * row_length
            results = ()
            for e_w in tl.static_range(SW):
                high = tl.zeros([BW, R, BI], KIND)
                low = tl.zeros([BW, R, BI], KIND)
                for i in tl.static_range(REACH_D):
                    for j in tl.static_range(REACH_H):
                        for k in tl.static_range(REACH_W):
                            if (
                                (e_d + PHASE_D - SD * (LOW_D + i) >= 0) and (e_d + PHASE_D - SD * (LOW_D + i) < KD)
                                and (e_h + PHASE_H - SH * (LOW_H + j) >= 0) and (e_h + PHASE_H - SH * (LOW_H + j) < KH)
                                and (e_w + PHASE_W - SW * (LOW_W + k) >= 0) and (e_w + PHASE_W - SW * (LOW_W + k) < KW)
                            ):  # fmt: skip
                                if MEAN:
                                    high, low = add(
                                        high, low, values[(i * REACH_H + j) * REACH_W + k],
                                        rests[(i * REACH_H + j) * REACH_W + k], TWOFOLD,
                                    )  # fmt: skip
                                else:
                                    here = (
                                        (e_d + PHASE_D - SD * (LOW_D + i)) * eh + e_h + PHASE_H - SH * (LOW_H + j)
                                    ) * ew + e_w + PHASE_W - SW * (LOW_W + k)  # fmt: skip
                                    chosen = codes[(i * REACH_H + j) * REACH_W + k]
                                    high += tl.where(chosen == here, values[(i * REACH_H + j) * REACH_W + k], 0)
                results = results + (rounded(high, low, TWOFOLD, WHOLE).to(gx.dtype.element_ty),)
            if PAIRS:
                at_w = wb.to(IDX) * (2 * BW) + tl.arange(0, 2 * BW).to(IDX)[:, None, None]
                both = joined(results[0], results[1], R, BW)
                tl.store(row + (images + at_w), both, mask=(at_w < w) & tile_mask & on_array)
            else:
                for e_w in tl.static_range(SW):
                    at_w = p * SW + e_w
                    mask = (at_w < w) & on_array & tile_mask
                    tl.store(row + (images + at_w * inner + c), results[e_w], mask=mask)


@kernel
def max_put(
    x, equal, g, gx,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, bd, bh, bw,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    PAIRS: tl.constexpr, PADDED: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, COMPUTE: tl.constexpr, LOWEST: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr,
    EQUAL: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """choose and put in one, for regular windows that do not overlap: x and g are read once, gx is written once."""
    block, od, oh, wb, ib = place(ni, nw, ph, pd, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (c < inner)
    row_length = w.to(tl.int64) * inner
    there = (od < md) & (oh < mh) & (ow < mw) & tile_mask
    r = tl.minimum(r, outer - 1)
    out = (od.to(tl.int64) * mh + oh) * mw * inner
    spot = r * (md.to(IDX) * mh * mw * inner) + ow * inner + c
    images = r * (d.to(IDX) * h * w * inner)
    gradient = tl.load(g + out + spot, mask=there, other=0, eviction_policy=HINT)

    LOW: tl.constexpr = float("nan") if (FLOAT and (IGNORE or EQUAL)) else LOWEST
    best = tl.full([BW, R, BI], LOW, COMPUTE)
    code = tl.full([BW, R, BI], -1 if EQUAL else 0, tl.int32)
    if EQUAL:
        target = tl.load(equal + out + spot, mask=there, other=0).to(COMPUTE)
    else:
        target = best
    for i in tl.static_range(KD * KH):
        # EQUAL runs backward
        ld = (KD * KH - 1 - i if EQUAL else i) // KH
        lh = (KD * KH - 1 - i if EQUAL else i) % KH
        at_d = clamp(od * SD - bd + ld, 0, d - 1)
        at_h = clamp(oh * SH - bh + lh, 0, h - 1)
        row = x + (at_d.to(tl.int64) * h + at_h) * row_length
        if PAIRS:
            low, high = pair(row, images, wb.to(IDX) * BW, w, LOW, PADDED, R, BW, IDX, HINT)
            at = (ld * KH + lh) * KW
            if EQUAL and KW > 1:
                best, code = consider(
                    best, code, high.to(COMPUTE), at + 1, 2 * ow + 1 < w, target, EQUAL, FLOAT, IGNORE
                )
            best, code = consider(best, code, low.to(COMPUTE), at, 2 * ow < w, target, EQUAL, FLOAT, IGNORE)
            if not EQUAL and KW > 1:
                best, code = consider(
                    best, code, high.to(COMPUTE), at + 1, 2 * ow + 1 < w, target, EQUAL, FLOAT, IGNORE
                )
        else:
            for j in tl.static_range(KW):
                lw = KW - 1 - j if EQUAL else j
                at_w = clamp(ow * SW - bw + lw, 0, w - 1)
                value = _load(row + (images + at_w * inner + c), c, inner, FULL, HINT)
                at = (ld * KH + lh) * KW + lw
                best, code = consider(best, code, value.to(COMPUTE), at, True, target, EQUAL, FLOAT, IGNORE)
    first_d = tl.maximum(bd - od * SD, 0)
    first_h = tl.maximum(bh - oh * SH, 0)
    first_w = tl.maximum(bw - ow * SW, 0)
    if PADDED:
        code = real_code(code, first_d, first_h, first_w, KH, KW)
    if EQUAL and FLOAT:
        code = first_nan(
            code, target, x, images, c, inner, h, row_length, od * SD - bd, oh * SH - bh, ow * SW - bw,
            first_d, first_h, first_w, d - 1 - od * SD + bd, h - 1 - oh * SH + bh, w - 1 - ow * SW + bw,
            1, 1, 1, KD, KH, KW, there,
        )  # fmt: skip

    zero = tl.zeros_like(gradient)
    for ld in tl.static_range(SD):
        for lh in tl.static_range(SH):
            at_d = od * SD - bd + ld
            at_h = oh * SH - bh + lh
            on_array = (at_d >= 0) & (at_d < d) & (at_h >= 0) & (at_h < h)
            row = gx + (at_d.to(tl.int64) * h + at_h) * row_length
            results = ()
            for lw in tl.static_range(SW):
                if ld < KD and lh < KH and lw < KW:
                    results = results + (tl.where(code == (ld * KH + lh) * KW + lw, gradient, zero),)
                else:
                    results = results + (zero,)
            if PAIRS:
                at_w = wb.to(IDX) * (2 * BW) + tl.arange(0, 2 * BW).to(IDX)[:, None, None]
                both = joined(results[0], results[1], R, BW)
                tl.store(row + (images + at_w), both, mask=(at_w < w) & tile_mask & on_array)
            else:
                for lw in tl.static_range(SW):
                    at_w = ow * SW - bw + lw
                    mask = (at_w >= 0) & (at_w < w) & on_array & tile_mask
                    tl.store(row + (images + at_w * inner + c), results[lw], mask=mask)


NOWHERE = tl.constexpr(-(2**29))
"""A local position that no code names, also not after another one is added."""


@triton.jit
def _entry(table, at, size, IDX: tl.constexpr):
    """An entry of a table, or its last one."""
    return tl.load(table + tl.minimum(at, size - 1)).to(IDX)


@kernel
def put_listed(
    g, code_in, gx, origins_d, origins_h, origins_w, divisors_d, divisors_h, divisors_w,
    from_d, from_h, from_w, to_d, to_h, to_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, eh, ew,
    OWN: tl.constexpr, MOST_D: tl.constexpr, MOST_H: tl.constexpr, MOST_W: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """For windows without dilation that are looked up in tables, few of which contain an element: from the windows that
    chose it, or (MEAN) its share of each.

    A program owns OWN rows: what the tables say about their columns is the same for all of them. Whether a window has
    anything to do with a row is a plain condition, so windows that are not there cost nothing.
    """
    block, at_d, block_h, wb, ib = place(ni, nw, ph, pd, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    at_w = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (at_w < w) & (c < inner)
    first_w = _entry(from_w, at_w, w, IDX)
    last_w = _entry(to_w, at_w, w, IDX)
    out_images = tl.minimum(r, outer - 1) * (md.to(IDX) * mh * mw * inner)
    gradients = g + out_images
    choices = code_in + out_images
    results = gx + r * (d.to(IDX) * h * w * inner)
    spots = ()
    ways = ()
    shares = ()
    for k in tl.static_range(MOST_W):
        ow = tl.minimum(first_w + k, mw - 1)
        there = first_w + k < last_w
        spots = spots + (ow * inner + tl.minimum(c, inner - 1),)
        ways = ways + (tl.where(there, at_w - _entry(origins_w, ow, mw, IDX), NOWHERE).to(tl.int32),)
        if MEAN:
            shares = shares + (tl.where(there, inverse(tl.load(divisors_w + ow), SUM), 0),)
    first_d = tl.load(from_d + at_d)
    last_d = tl.load(to_d + at_d)

    for j in tl.static_range(OWN):
        at_h = block_h * OWN + j
        first_h = _entry(from_h, at_h, h, tl.int32)
        last_h = _entry(to_h, at_h, h, tl.int32)
        total = tl.zeros([BW, R, BI], SUM)
        for n in tl.static_range(MOST_D * MOST_H):
            od = first_d + n // MOST_H
            oh = first_h + n % MOST_H
            if (od < last_d) & (oh < last_h):
                row = (od.to(IDX) * mh + oh) * mw * inner
                if MEAN:
                    share_of_row = inverse(tl.load(divisors_d + od), SUM) * inverse(tl.load(divisors_h + oh), SUM)
                else:
                    way_d = at_d - tl.load(origins_d + od).to(tl.int32)
                    way = (way_d * eh + at_h - tl.load(origins_h + oh).to(tl.int32)) * ew
                for k in tl.static_range(MOST_W):
                    part = tl.load(gradients + (row + spots[k])).to(SUM)
                    if MEAN:
                        part = tl.where(ways[k] >= 0, part * (share_of_row * shares[k]), 0)
                    else:
                        chosen = tl.load(choices + (row + spots[k])).to(tl.int32)
                        part = tl.where(chosen == ways[k] + way, part, 0)
                    total += part
        row = (at_d.to(IDX) * h + at_h) * w * inner
        tl.store(results + (row + at_w * inner + c), total.to(gx.dtype.element_ty), mask=tile_mask & (at_h < h))


@triton.jit
def _collect(
    high, low, mine, g, code_in, y, counts, origins_d, origins_h, origins_w, divisors_d, divisors_h, divisors_w,
    stops_d, stops_h, stops_w, row, at, at_d, at_h, at_w, od, oh, ow, reached, tile_mask, dd, dh, dw, eh, ew,
    SUM: tl.constexpr, TWOFOLD: tl.constexpr, MODE: tl.constexpr, DILATED: tl.constexpr, IDX: tl.constexpr,
):  # fmt: skip
    """What an element gets from one of the windows that may contain it."""
    way_d = at_d - tl.load(origins_d + od).to(IDX)
    way_h = at_h - tl.load(origins_h + oh).to(IDX)
    way_w = at_w - tl.load(origins_w + ow).to(IDX)
    if DILATED:
        reached = reached & (way_w % dw == 0) & (way_h % dh == 0) & (way_d % dd == 0)
        reached = reached & (at_w < tl.load(stops_w + ow))
        reached = reached & (at_h < tl.load(stops_h + oh)) & (at_d < tl.load(stops_d + od))
        reached = reached & (way_w >= 0) & (way_h >= 0) & (way_d >= 0)
    mask = reached & tile_mask
    value = tl.load(g + row + at, mask=mask, other=0)
    if MODE == "put" or MODE == "assign":
        chosen = tl.load(code_in + row + at, mask=mask, other=0).to(IDX)
        if DILATED:
            here = chosen == ((way_d // dd) * eh + way_h // dh) * ew + way_w // dw
        else:
            here = chosen == (way_d * eh + way_h) * ew + way_w
        if MODE == "assign":
            return tl.where(here & mask, value.to(SUM), high), low
        else:
            return high + tl.where(here, value.to(SUM), 0), low
    else:
        more, rest = widen(value, SUM, TWOFOLD)
        if MODE == "mean":
            count = tl.load(divisors_d + od) * tl.load(divisors_h + oh) * tl.load(divisors_w + ow)
            more, rest = share(more, rest, count, SUM, TWOFOLD)
        else:
            theirs = comparable(tl.load(y + row + at, mask=mask, other=0))
            member = ((mine == theirs) | ((mine != mine) & (theirs != theirs))) & mask
            if MODE == "split":
                count = tl.load(counts + row + at, mask=mask, other=1)
                if TWOFOLD:
                    more, rest = share(more, rest, count, SUM, TWOFOLD)
                else:
                    more = more / count.to(SUM)
            if TWOFOLD:
                rest = tl.where(member, rest, 0.0)
            more = tl.where(member, more, 0)
        return add(high, low, more, rest, TWOFOLD)


@kernel
def put_any(
    g, code_in, gx, x, y, counts,
    origins_d, origins_h, origins_w, divisors_d, divisors_h, divisors_w,
    from_d, from_h, from_w, to_d, to_h, to_w, stops_d, stops_h, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, dd, dh, dw, eh, ew, most_w,
    MOST_D: tl.constexpr, MOST_H: tl.constexpr, MOST_W: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, MODE: tl.constexpr,
    DILATED: tl.constexpr,
):  # fmt: skip
    """For any windows, which are looked up in tables: `from` and `to` hold the windows that reach an element.

    MODE: "put", "assign" (the last window sets the element), "mean", "ties" or "split" (who equals y has been chosen).
    MOST: at most how many windows reach an element, where they are few.
    """
    block, at_d, at_h, wb, ib = place(ni, nw, h, d, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    at_w = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (at_w < w) & (c < inner)
    out_images = r * (md.to(IDX) * mh * mw * inner)
    spot = r * (d.to(IDX) * h * w * inner) + at_w * inner + c
    line = (at_d.to(tl.int64) * h + at_h) * (w.to(tl.int64) * inner)
    KIND: tl.constexpr = tl.float64 if TWOFOLD else SUM
    high = tl.zeros([BW, R, BI], KIND)
    low = tl.zeros([BW, R, BI], KIND)
    mine = high
    if MODE == "ties" or MODE == "split":
        mine = comparable(tl.load(x + line + spot, mask=tile_mask, other=0))
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
                row = (od.to(tl.int64) * mh + oh) * mw * inner
                for k in tl.static_range(MOST_W):
                    ow = tl.minimum(first_w + k, mw - 1)
                    high, low = _collect(
                        high, low, mine, g, code_in, y, counts, origins_d, origins_h, origins_w, divisors_d, divisors_h,
                        divisors_w, stops_d, stops_h, stops_w, row, out_images + ow * inner + c, at_d, at_h, at_w,
                        od, oh, ow, on_row & (first_w + k < last_w), tile_mask, dd, dh, dw, eh, ew,
                        SUM, TWOFOLD, MODE, DILATED, IDX,
                    )  # fmt: skip
    else:
        od = first_d
        while od < last_d:
            oh = first_h
            while oh < last_h:
                row = (od.to(tl.int64) * mh + oh) * mw * inner
                step = 0
                while step < most_w:
                    ow = tl.minimum(first_w + step, mw - 1)
                    high, low = _collect(
                        high, low, mine, g, code_in, y, counts, origins_d, origins_h, origins_w, divisors_d, divisors_h,
                        divisors_w, stops_d, stops_h, stops_w, row, out_images + ow * inner + c, at_d, at_h, at_w,
                        od, oh, ow, first_w + step < last_w, tile_mask, dd, dh, dw, eh, ew,
                        SUM, TWOFOLD, MODE, DILATED, IDX,
                    )  # fmt: skip
                    step += 1
                oh += 1
            od += 1
    total = rounded(high, low, TWOFOLD, WHOLE)
    tl.store(gx + line + spot, total.to(gx.dtype.element_ty), mask=tile_mask)


@kernel
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
