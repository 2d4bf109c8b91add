"""GPU kernels that find the winner of every window, and those that use one: scan, take, members."""

# mypy: ignore-errors
# ruff: noqa: RET505, SIM108 (Triton decides conditions on constants while compiling and wants both branches)

import triton
import triton.language as tl

from .sums import add, divide, rounded, widen
from .tiles import along, element_of, kernel, lengths, origin_of, pair, place, span_of


@triton.jit
def comparable(value):
    """The value in a type that it can be compared in: Triton's interpreter has only the bits of bfloat16."""
    if value.dtype == tl.bfloat16:
        return value.to(tl.float32)
    else:
        return value


@triton.jit
def beats(value, best, FLOAT: tl.constexpr, IGNORE: tl.constexpr):
    """Whether a later element wins. One that is only as good does not; NaN does, or (IGNORE) never does."""
    if FLOAT:
        if IGNORE:
            return (value > best) | ((best != best) & (value == value))
        else:
            return ~(value <= best) & (best == best)
    else:
        return value > best


@triton.jit
def consider(best, code, value, at, inside, target, EQUAL: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr):
    """The winner so far, after one more element. An element that is only as good does not win: the first one stays.

    EQUAL: the element that equals the target wins. Elements come in descending order then, and the last one stays. A
    NaN equals nothing; `first_nan` looks after those.
    """
    if EQUAL:
        hit = value == target
        if not FLOAT:
            hit = hit & inside
        return best, tl.where(hit, at, code)
    else:
        better = beats(value, best, FLOAT, IGNORE)
        return tl.where(better, value, best), tl.where(better, at, code)


@triton.jit
def first_nan(
    code, target, x, images, c, inner, h, row_length, origin_d, origin_h, origin_w, first_d, first_h, first_w,
    last_d, last_h, last_w, dd, dh, dw, ed, eh, ew, mask,
):  # fmt: skip
    """The code of the first NaN of those windows whose target is NaN."""
    if tl.max(tl.max(tl.max((target != target).to(tl.int32), 2), 1), 0) > 0:
        found = code * 0 - 1
        ld = first_d
        while ld < tl.minimum(last_d + 1, ed):
            lh = first_h
            while lh < tl.minimum(last_h + 1, eh):
                row = x + ((origin_d + ld * dd).to(tl.int64) * h + (origin_h + lh * dh)) * row_length
                lw = 0
                while lw < ew:
                    inside = (lw >= first_w) & (lw <= last_w) & mask
                    value = tl.load(row + (images + (origin_w + lw * dw) * inner + c), mask=inside, other=0)
                    value = value.to(target.dtype)
                    local = ((ld * eh + lh) * ew + lw).to(code.dtype)
                    found = tl.where((value != value) & (found < 0), local, found)
                    lw += 1
                lh += 1
            ld += 1
        code = tl.where(target != target, found, code)
    return code


@triton.jit
def real_code(code, first_d, first_h, first_w, KH: tl.constexpr, KW: tl.constexpr):
    """The code of the same element, where a local position in the padding stands for the nearest real one."""
    lw = tl.maximum(code % KW, first_w)
    lh = tl.maximum(code // KW % KH, first_h)
    ld = tl.maximum(code // (KW * KH), first_d)
    return tl.where(code < 0, code, (ld * KH + lh) * KW + lw)


@triton.jit
def _over_row(
    best, code, row, way, images, origin_w, first_w, last_w, ow, wb, c, w, inner, dw, qw, target, START: tl.constexpr,
    KW: tl.constexpr, PAIRS: tl.constexpr, PHASE: tl.constexpr, PADDED: tl.constexpr, LOW: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, FULL: tl.constexpr, FIT: tl.constexpr, IDX: tl.constexpr, COMPUTE: tl.constexpr,
    EQUAL: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr, LOOSE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """The winner so far after one row of the window, whose first code is START. Its elements lie `way` and some from
    `row`: what differs between images is in the one, what differs between rows in the other.

    LOOSE: only the code is wanted, so the value may forget the sign of zero; NaN is looked after at the end.
    """
    if PAIRS:
        # Pair o - t holds the local positions PHASE - 2t and the next one.
        for j in tl.static_range((PHASE + 1) // 2 - (PHASE - KW) // 2):
            if EQUAL:
                t = (PHASE - KW) // 2 + 1 + j
            else:
                t = (PHASE + 1) // 2 - j
            low, high = pair(row, images, wb.to(IDX) * BW - qw - t, w, LOW, PADDED, R, BW, IDX, HINT)
            after_low = (ow - qw - t >= 0) & (2 * (ow - qw - t) + 1 < w)
            if EQUAL and PHASE - 2 * t + 1 < KW:
                at = START + PHASE - 2 * t + 1
                best, code = consider(best, code, high.to(COMPUTE), at, after_low, target, EQUAL, FLOAT, IGNORE)
            if PHASE - 2 * t >= 0:
                inside = (ow - qw - t >= 0) & (2 * (ow - qw - t) < w)
                at = START + PHASE - 2 * t
                best, code = consider(best, code, low.to(COMPUTE), at, inside, target, EQUAL, FLOAT, IGNORE)
            if not EQUAL and PHASE - 2 * t + 1 < KW:
                at = START + PHASE - 2 * t + 1
                best, code = consider(best, code, high.to(COMPUTE), at, after_low, target, EQUAL, FLOAT, IGNORE)
    else:
        for j in tl.static_range(KW):
            lw = KW - 1 - j if EQUAL else j
            spot = element_of(origin_w, lw, first_w, last_w, dw, FIT) * inner + c
            if FULL:
                value = tl.load(row + (way + spot), eviction_policy=HINT)
            else:
                value = tl.load(row + (way + spot), mask=c < inner, other=0, eviction_policy=HINT)
            if LOOSE:
                value = value.to(COMPUTE)
                code = tl.where(value > best, START + lw, code)
                best = tl.maximum(best, value, propagate_nan=tl.PropagateNan.ALL)
            else:
                best, code = consider(best, code, value.to(COMPUTE), START + lw, True, target, EQUAL, FLOAT, IGNORE)
    return best, code


@kernel
def scan(
    x, equal, y, code_out, v, taken,
    origins_d, origins_h, origins_w, stops_d, stops_h, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, sd, sh, sw, bd, bh, bw, dd, dh, dw, ed, eh, ew, qw,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PAIRS: tl.constexpr, PHASE: tl.constexpr,
    PADDED: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, LISTED: tl.constexpr, DILATED: tl.constexpr, COMPUTE: tl.constexpr, LOWEST: tl.constexpr,
    FLOAT: tl.constexpr, IGNORE: tl.constexpr, EQUAL: tl.constexpr, VALUE: tl.constexpr, CODE: tl.constexpr,
    TAKE: tl.constexpr, SKIP: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """Finds the winner of every window: its value, its code, or what another array has in its place.

    KD, KH, KW are the extents of the windows where they are small enough to be written out, else 0. Local positions in
    the padding then read the nearest real element instead: it cannot win twice, and its code is put right at the end.
    PAIRS: rows with stride 2 and one channel are read two elements at a time; PHASE is the padding's parity, qw half
    of it. SKIP: windows differ, and rows that one of them does not have are not read.
    """
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

    FIT: tl.constexpr = not PADDED and not LISTED
    LOW: tl.constexpr = float("nan") if (FLOAT and (IGNORE or EQUAL)) else LOWEST
    LOOSE: tl.constexpr = SKIP and KW > 0 and FLOAT and not (IGNORE or EQUAL or VALUE)
    best = tl.full([BW, R, BI], LOW, COMPUTE)
    code = tl.full([BW, R, BI], -1 if EQUAL else 0, IDX)
    if EQUAL:
        target = tl.load(equal + out_row + out, mask=out_mask, other=0).to(COMPUTE)
    else:
        target = best

    if KW > 0:
        for i in tl.static_range(KD * KH):
            # EQUAL runs backward
            ld = (KD * KH - 1 - i if EQUAL else i) // KH
            lh = (KD * KH - 1 - i if EQUAL else i) % KH
            at_d = element_of(origin_d, ld, first_d, last_d, dd, FIT)
            at_h = element_of(origin_h, lh, first_h, last_h, dh, FIT)
            if SKIP:
                if (ld <= last_d) & (lh <= last_h):
                    best, code = _over_row(
                        best, code, x + images, (at_d * h + at_h) * w * inner, images, origin_w, first_w, last_w,
                        ow, wb, c, w, inner, dw, qw, target, (ld * KH + lh) * KW, KW, PAIRS, PHASE, PADDED, LOW, R, BW,
                        FULL, FIT, IDX, COMPUTE, EQUAL, FLOAT, IGNORE, LOOSE, HINT,
                    )  # fmt: skip
            else:
                row = x + (at_d.to(tl.int64) * h + at_h) * row_length
                best, code = _over_row(
                    best, code, row, images, images, origin_w, first_w, last_w, ow, wb, c, w, inner, dw, qw, target,
                    (ld * KH + lh) * KW, KW, PAIRS, PHASE, PADDED, LOW, R, BW, FULL, FIT, IDX, COMPUTE, EQUAL, FLOAT,
                    IGNORE, LOOSE, HINT,
                )  # fmt: skip
        if PADDED:
            code = real_code(code, first_d, first_h, first_w, KH, KW).to(IDX)
    else:
        if not EQUAL:
            code = tl.broadcast_to(((first_d * eh + first_h) * ew + first_w).to(IDX), [BW, R, BI])
        ld = first_d
        while ld < tl.minimum(last_d + 1, ed):
            lh = first_h
            while lh < tl.minimum(last_h + 1, eh):
                row = x + ((origin_d + ld * dd).to(tl.int64) * h + (origin_h + lh * dh)) * row_length
                lw = 0
                while lw < ew:
                    inside = (lw >= first_w) & (lw <= last_w)
                    at = images + (origin_w + lw * dw) * inner + c
                    value = tl.load(row + at, mask=inside & out_mask, other=LOW).to(COMPUTE)
                    local = ((ld * eh + lh) * ew + lw).to(IDX)
                    if EQUAL:
                        code = tl.where((value == target) & inside & (code < 0), local, code)
                    else:
                        best, code = consider(best, code, value, local, inside, target, EQUAL, FLOAT, IGNORE)
                    lw += 1
                lh += 1
            ld += 1

    if (EQUAL and FLOAT) or LOOSE:
        code = first_nan(
            code, best if LOOSE else target, x, images, c, inner, h, row_length, origin_d, origin_h, origin_w,
            first_d, first_h, first_w, last_d, last_h, last_w, dd, dh, dw, ed, eh, ew, out_mask,
        )  # fmt: skip
    if VALUE:
        tl.store(y + out_row + out, best.to(y.dtype.element_ty), mask=out_mask)
    if CODE:
        if EQUAL:
            code = tl.where(code < 0, ed.to(IDX) * eh * ew, code)
        tl.store(code_out + out_row + out, code.to(code_out.dtype.element_ty), mask=out_mask)
    if TAKE:
        found = code >= 0
        code = tl.where(found, code, (first_d * eh + first_h) * ew + first_w)
        if KW > 0:
            at_w = origin_w + (code % KW) * dw
            at_h = origin_h + (code // KW % KH) * dh
            at_d = origin_d + (code // (KW * KH)) * dd
        else:
            at_w = origin_w + (code % ew) * dw
            at_h = origin_h + (code // ew % eh) * dh
            at_d = origin_d + (code // ew // eh) * dd
        chosen = images + ((at_d * h + at_h) * w + at_w) * inner + c
        picked = tl.load(v + chosen, mask=out_mask & found, other=0)
        tl.store(taken + out_row + out, picked, mask=out_mask)


@kernel
def take(
    v, code_in, y, origins_d, origins_h, origins_w, stops_d, stops_h, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, sd, sh, sw, bd, bh, bw, dd, dh, dw, eh, ew, images,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, LISTED: tl.constexpr, INDEX: tl.constexpr, FAULT: tl.constexpr,
):  # fmt: skip
    """What v has in the place of every choice. INDEX: that place itself, counted through the "spatial" block of its
    channel, its "image" or the whole "batch". FAULT: whether a code names no element of its window."""
    block, od, oh, wb, ib = place(ni, nw, mh, md, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    mask = (r < outer) & (ow < mw) & (c < inner)
    out_row = (od.to(tl.int64) * mh + oh) * mw * inner
    out = r * (md.to(IDX) * mh * mw * inner) + ow * inner + c
    window = tl.minimum(ow, mw - 1)
    origin_d = origin_of(od, origins_d, sd, bd, LISTED, IDX)
    origin_h = origin_of(oh, origins_h, sh, bh, LISTED, IDX)
    origin_w = origin_of(window, origins_w, sw, bw, LISTED, IDX)
    code = tl.load(code_in + out_row + out, mask=mask, other=0).to(IDX)
    at_w = origin_w + (code % ew) * dw
    at_h = origin_h + (code // ew % eh) * dh
    at_d = origin_d + (code // ew // eh) * dd
    spot = (at_d * h + at_h) * w + at_w
    if FAULT:
        if LISTED:
            stop_d = tl.load(stops_d + od)
            stop_h = tl.load(stops_h + oh)
            stop_w = tl.load(stops_w + window)
        else:
            stop_d = d
            stop_h = h
            stop_w = w
        wrong = (
            (code < 0) | (at_d < 0) | (at_d >= stop_d) | (at_h < 0) | (at_h >= stop_h) | (at_w < 0) | (at_w >= stop_w)
        )
        tl.store(y + out_row + out, wrong.to(tl.int8), mask=mask)
    elif INDEX == "spatial":
        tl.store(y + out_row + out, spot.to(y.dtype.element_ty), mask=mask)
    elif INDEX != "":
        before = r if INDEX == "batch" else r % (outer // images)
        spot = (before.to(tl.int64) * d * h * w + spot) * inner + c
        tl.store(y + out_row + out, spot.to(y.dtype.element_ty), mask=mask)
    else:
        chosen = r * (d.to(IDX) * h * w * inner) + spot * inner + c
        # A code may come from anywhere: one that leads out of the array reads nothing.
        picked = tl.load(v + chosen, mask=mask & (spot >= 0) & (spot < d.to(IDX) * h * w), other=0)
        tl.store(y + out_row + out, picked, mask=mask)


@kernel
def members(
    x, y, v, out_sum, out_count, origins_d, origins_h, origins_w, stops_d, stops_h, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, dd, dh, dw, ed, eh, ew,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, COUNT: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Over the elements of a window that equal y: how many there are (COUNT), or the sum or (SPLIT) average of v."""
    block, od, oh, wb, ib = place(ni, nw, mh, md, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    out_mask = (r < outer) & (ow < mw) & (c < inner)
    out_row = (od.to(tl.int64) * mh + oh) * mw * inner
    out = r * (md.to(IDX) * mh * mw * inner) + ow * inner + c
    window = tl.minimum(ow, mw - 1)
    origin_d = origin_of(od, origins_d, 0, 0, True, IDX)
    origin_h = origin_of(oh, origins_h, 0, 0, True, IDX)
    origin_w = origin_of(window, origins_w, 0, 0, True, IDX)
    first_d, last_d = span_of(od, origin_d, stops_d, d, dd, True, True)
    first_h, last_h = span_of(oh, origin_h, stops_h, h, dh, True, True)
    first_w, last_w = span_of(window, origin_w, stops_w, w, dw, True, True)
    row_length = w.to(tl.int64) * inner
    images = r * (d.to(IDX) * h * w * inner)
    theirs = comparable(tl.load(y + out_row + out, mask=out_mask, other=0))
    count = tl.zeros([BW, R, BI], tl.int64)
    high = tl.zeros([BW, R, BI], tl.float64 if TWOFOLD else SUM)
    low = tl.zeros([BW, R, BI], tl.float64 if TWOFOLD else SUM)
    ld = first_d
    while ld <= last_d:
        lh = first_h
        while lh <= last_h:
            row = ((origin_d + ld * dd).to(tl.int64) * h + (origin_h + lh * dh)) * row_length
            lw = 0
            while lw < ew:
                inside = (lw >= first_w) & (lw <= last_w) & out_mask
                at = images + (origin_w + lw * dw) * inner + c
                mine = comparable(tl.load(x + row + at, mask=inside, other=0))
                member = ((mine == theirs) | ((mine != mine) & (theirs != theirs))) & inside
                count += member.to(tl.int64)
                if not COUNT:
                    value = tl.load(v + row + at, mask=member, other=0)
                    more, rest = widen(value, SUM, TWOFOLD)
                    high, low = add(high, low, more, rest, TWOFOLD)
                lw += 1
            lh += 1
        ld += 1
    if COUNT:
        tl.store(out_count + out_row + out, count, mask=out_mask)
    else:
        if SPLIT:
            count = tl.maximum(count, 1)
            if TWOFOLD:
                high, low = divide(high, low, count.to(tl.float64))
            else:
                high = high / count.to(SUM)
        total = rounded(high, low, TWOFOLD, WHOLE)
        tl.store(out_sum + out_row + out, total.to(out_sum.dtype.element_ty), mask=out_mask)
