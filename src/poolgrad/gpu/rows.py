"""GPU kernels for windows that share rows: overlapping ones, and those that are looked up in tables.

A program owns a few neighbouring rows of its result, OWN_D planes of OWN_H. Together they have to do with at most
SPAN_D by SPAN_H rows on the other side: those are read once, in order, and each is handed to the owned rows it belongs
to. Windows that follow each other overlap or are cut from the same rows, so this reads much less than every result on
its own would. Which rows can belong to owned row i at all is known while compiling: LOW[i] to HIGH[i], counted from the
first. Everything is written out, so that all loads can be on their way at once.
"""

# mypy: ignore-errors
# ruff: noqa: RET505, SIM102 (Triton decides conditions on constants while compiling and wants them by themselves)
# ruff: noqa: RUF005 (its tuples grow by addition)

import triton
import triton.language as tl

from .sums import inverse, share
from .tiles import along, clamp, divisor_of, kernel, lengths, pair, place
from .winners import beats, first_nan, real_code

NOWHERE = tl.constexpr(-(2**29))
"""A local position that no code names, also not after another one is added."""


@triton.jit
def _entry(table, at, size, IDX: tl.constexpr):
    """An entry of a table, or its last one."""
    return tl.load(table + tl.minimum(at, size - 1)).to(IDX)


@triton.jit
def _begin(o, origins, count, S: tl.constexpr, before, UNIFORM: tl.constexpr, IDX: tl.constexpr):
    """Where local position 0 of window o lies."""
    if UNIFORM:
        return o.to(IDX) * S - before
    else:
        return _entry(origins, o, count, IDX)


@triton.jit
def _ways(first, at, begins, ends, size, origins, count, OWN: tl.constexpr, SPAN: tl.constexpr, WINDOWS: tl.constexpr):
    """For each owned row and each row of the span: the local position that one has in a window of the other, or NOWHERE
    if it is not in it. `begins` and `ends` are those of the owned rows, which are windows (WINDOWS) or elements."""
    ways = ()
    for i in tl.static_range(OWN):
        begin = _entry(begins, at + i, size, tl.int32)
        end = _entry(ends, at + i, size, tl.int32)
        for s in tl.static_range(SPAN):
            way = first + s - begin if WINDOWS else at + i - _entry(origins, first + s, count, tl.int32)
            ways = ways + (tl.where((first + s >= begin) & (first + s < end), way, NOWHERE),)
    return ways


@triton.jit
def _spots(origin_w, last_w, w, image, inner, KW: tl.constexpr, UNIFORM: tl.constexpr):
    """Where the elements of a row of the windows lie. Positions outside a window stand for the nearest inside."""
    spots = ()
    for lw in tl.static_range(KW):
        at = tl.minimum(origin_w + lw, last_w)
        if UNIFORM:
            at = tl.maximum(at, 0)
        spots = spots + (image + at * inner,)
    return spots


@triton.jit
def _two_at_once(best, code, nan, value, its_code, its_nan, PLUS: tl.constexpr, BRAIN: tl.constexpr):
    """The winner so far after one more value with code its_code + PLUS, for two 16-bit floats in one register. A NaN
    never wins; `nan` is NaN from the first one on."""
    KIND: tl.constexpr = "bf16x2" if BRAIN else "f16x2"
    return tl.inline_asm_elementwise(
        "{ .reg .b32 better, at;"
        " set.gt.u32." + KIND + " better, $3, $4;"
        " add.u32 at, $5, $8;"
        " lop3.b32 $0, $3, $4, better, 0xe4;"
        " lop3.b32 $1, at, $6, better, 0xe4;"
        " max.NaN." + KIND + " $2, $7, $9; }",
        "=&r,=&r,=&r,r,r,r,r,r,r,r",
        [value, best, its_code, code, nan, tl.full(code.shape, PLUS, tl.int16), its_nan],
        dtype=(best.dtype, tl.int16, best.dtype),
        is_pure=True,
        pack=2,
    )


@triton.jit
def _next(
    best, code, nan, value, its_code, its_nan, PLUS: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """The winner so far after one more value with code its_code + PLUS."""
    if PACKED:
        best, code, nan = _two_at_once(best, code, nan, value, its_code, its_nan, PLUS, best.dtype == tl.bfloat16)
    else:
        better = beats(value, best, FLOAT, IGNORE)
        best, code = tl.where(better, value, best), tl.where(better, its_code + PLUS, code)
    return best, code, nan


@kernel
def scan_rows(
    x, y, code_out, v, taken, origins_d, origins_h, origins_w, stops_d, stops_h, stops_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, bd, bh, bw, qw,
    OWN_D: tl.constexpr, OWN_H: tl.constexpr, SPAN_D: tl.constexpr, SPAN_H: tl.constexpr,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    LOW_D: tl.constexpr, LOW_H: tl.constexpr, HIGH_D: tl.constexpr, HIGH_H: tl.constexpr,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, UNIFORM: tl.constexpr, PADDED: tl.constexpr,
    PAIRS: tl.constexpr, PHASE: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, FLAT: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, COMPUTE: tl.constexpr, LOWEST: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr,
    VALUE: tl.constexpr, CODE: tl.constexpr, TAKE: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """The winner of every window: its value, its code, or what another array has in its place.

    Positions outside a window read its nearest element instead: it cannot win twice, and its code is put right at the
    end. PACKED: 16-bit floats go two at a time, and windows with NaN are looked after at the end.
    """
    block, block_d, block_h, wb, ib = place(ni, nw, ph, pd, FLAT, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (ow < mw) & (c < inner)
    origin_w = _begin(tl.minimum(ow, mw - 1), origins_w, mw, SW, bw, UNIFORM, IDX)
    last_w = w.to(IDX) - 1 if UNIFORM else _entry(stops_w, ow, mw, IDX) - 1
    images = tl.minimum(r, outer - 1) * (d.to(IDX) * h * w * inner)
    image = images + c if FULL else images + tl.minimum(c, inner - 1)
    spots = _spots(origin_w, last_w, w, image, inner, KW, UNIFORM)
    row_length = w.to(tl.int64) * inner

    KIND: tl.constexpr = x.dtype.element_ty if PACKED else COMPUTE
    WHICH: tl.constexpr = tl.int16 if PACKED else tl.int32
    LOWER: tl.constexpr = float("nan") if (FLOAT and IGNORE) else LOWEST
    nothing = tl.full([BW, R, BI], LOWER, KIND)
    first_w = tl.maximum(-origin_w, 0).to(tl.int32)
    zero = tl.zeros([BW, R, BI], WHICH)
    # The first real position of a row, and how far behind a position it lies.
    first = (zero + first_w).to(WHICH) if PADDED and UNIFORM else zero
    behind = ()
    for lw in tl.static_range(KW):
        if PADDED and UNIFORM and not PAIRS:
            behind = behind + (tl.maximum(first_w - lw, 0).to(WHICH).broadcast_to(BW, R, BI),)
        else:
            behind = behind + (zero,)
    od = block_d * OWN_D
    oh = block_h * OWN_H
    first_d = _begin(od, origins_d, md, SD, bd, UNIFORM, IDX)
    first_h = _begin(oh, origins_h, mh, SH, bh, UNIFORM, IDX)
    if not UNIFORM:
        ways_d = _ways(first_d, od, origins_d, stops_d, md, origins_d, md, OWN_D, SPAN_D, True)
        ways_h = _ways(first_h, oh, origins_h, stops_h, mh, origins_h, mh, OWN_H, SPAN_H, True)
    bests = ()
    codes = ()
    nans = ()
    for _ in tl.static_range(OWN_D * OWN_H):
        bests = bests + (nothing,)
        codes = codes + (first,)
        nans = nans + (nothing,)
    for s_d in tl.static_range(SPAN_D):
        for s_h in tl.static_range(SPAN_H):
            at_d = clamp(first_d + s_d, 0, d - 1)
            at_h = clamp(first_h + s_h, 0, h - 1)
            row = x + (at_d.to(tl.int64) * h + at_h) * row_length
            best = nothing
            code = first
            nan = nothing
            if PAIRS:
                for t in tl.static_range((PHASE + 1) // 2, (PHASE - KW) // 2, -1):
                    low, high = pair(row, images, wb.to(IDX) * BW - qw - t, w, LOWER, PADDED, R, BW, IDX)
                    if PHASE - 2 * t >= 0:
                        value = low.to(KIND)
                        best, code, nan = _next(
                            best, code, nan, value, zero, value, PHASE - 2 * t, FLOAT, IGNORE, PACKED
                        )
                    if PHASE - 2 * t + 1 < KW:
                        value = high.to(KIND)
                        best, code, nan = _next(
                            best, code, nan, value, zero, value, PHASE - 2 * t + 1, FLOAT, IGNORE, PACKED
                        )
            else:
                for lw in tl.static_range(KW):
                    value = tl.load(row + spots[lw]).to(KIND)
                    best, code, nan = _next(best, code, nan, value, behind[lw], value, lw, FLOAT, IGNORE, PACKED)
            now_bests = ()
            now_codes = ()
            now_nans = ()
            for i in tl.static_range(OWN_D):
                for j in tl.static_range(OWN_H):
                    won = bests[i * OWN_H + j]
                    at = codes[i * OWN_H + j]
                    lost = nans[i * OWN_H + j]
                    if LOW_D[i] <= s_d and s_d < HIGH_D[i] and LOW_H[j] <= s_h and s_h < HIGH_H[j]:
                        if UNIFORM:
                            won, at, lost = _next(
                                won, at, lost, best, code, nan, ((s_d - i * SD) * KH + s_h - j * SH) * KW,
                                FLOAT, IGNORE, PACKED,
                            )  # fmt: skip
                        else:
                            way_d = ways_d[i * SPAN_D + s_d]
                            way_h = ways_h[j * SPAN_H + s_h]
                            better = beats(best, won, FLOAT, IGNORE) & ((way_d >= 0) & (way_h >= 0))
                            won = tl.where(better, best, won)
                            at = tl.where(better, code + (way_d * KH + way_h) * KW, at)
                    now_bests = now_bests + (won,)
                    now_codes = now_codes + (at,)
                    now_nans = now_nans + (lost,)
            bests = now_bests
            codes = now_codes
            nans = now_nans

    if PACKED:
        nan = nans[0]
        for n in tl.static_range(1, OWN_D * OWN_H):
            nan += nans[n]
        any_nan = tl.max(tl.max(tl.max((nan != nan).to(tl.int32), 2), 1), 0) > 0
    for i in tl.static_range(OWN_D):
        for j in tl.static_range(OWN_H):
            mask = tile_mask & (od + i < md) & (oh + j < mh)
            row = ((od + i).to(tl.int64) * mh + oh + j) * mw * inner
            out = r * (md.to(IDX) * mh * mw * inner) + ow * inner + c
            begin_d = _begin(od + i, origins_d, md, SD, bd, UNIFORM, IDX)
            begin_h = _begin(oh + j, origins_h, mh, SH, bh, UNIFORM, IDX)
            real_d = tl.maximum(-begin_d, 0)
            real_h = tl.maximum(-begin_h, 0)
            best = bests[i * OWN_H + j]
            code = codes[i * OWN_H + j].to(tl.int32)
            if UNIFORM and PADDED and (CODE or TAKE):
                if real_d + real_h > 0:
                    code = real_code(code, real_d, real_h, 0, KH, KW).to(tl.int32)
            if PACKED:
                if any_nan:
                    nan = nans[i * OWN_H + j]
                    best = tl.where(nan != nan, nan, best)
                    if CODE or TAKE:
                        code = first_nan(
                            code, nan, x, images, c, inner, h, row_length, begin_d, begin_h, origin_w,
                            real_d, real_h, first_w, d - 1 - begin_d, h - 1 - begin_h, last_w - origin_w,
                            1, 1, 1, KD, KH, KW, mask,
                        )  # fmt: skip
            if VALUE:
                tl.store(y + row + out, best.to(y.dtype.element_ty), mask=mask)
            if CODE:
                tl.store(code_out + row + out, code.to(code_out.dtype.element_ty), mask=mask)
            if TAKE:
                at_d = begin_d + code // (KW * KH)
                at_h = begin_h + code // KW % KH
                chosen = image + ((at_d * h + at_h) * w + origin_w + code % KW) * inner
                tl.store(taken + row + out, tl.load(v + chosen, mask=mask, other=0), mask=mask)


@kernel
def mean_rows(
    x, y, origins_d, origins_h, origins_w, stops_d, stops_h, stops_w, divisors_d, divisors_h, divisors_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, bd, bh, bw, kd, kh, kw, qw,
    OWN_D: tl.constexpr, OWN_H: tl.constexpr, SPAN_D: tl.constexpr, SPAN_H: tl.constexpr, KW: tl.constexpr,
    LOW_D: tl.constexpr, LOW_H: tl.constexpr, HIGH_D: tl.constexpr, HIGH_H: tl.constexpr,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, UNIFORM: tl.constexpr, PADDED: tl.constexpr,
    PAIRS: tl.constexpr, PHASE: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, FLAT: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, DIVISORS: tl.constexpr,
):  # fmt: skip
    """The average of every window: rows first, each once, then over the rows."""
    block, block_d, block_h, wb, ib = place(ni, nw, ph, pd, FLAT, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (ow < mw) & (c < inner)
    window = tl.minimum(ow, mw - 1)
    origin_w = _begin(window, origins_w, mw, SW, bw, UNIFORM, IDX)
    last_w = w.to(IDX) - 1 if UNIFORM else _entry(stops_w, ow, mw, IDX) - 1
    images = tl.minimum(r, outer - 1) * (d.to(IDX) * h * w * inner)
    image = images + c if FULL else images + tl.minimum(c, inner - 1)
    spots = _spots(origin_w, last_w, w, image, inner, KW, UNIFORM)
    od = block_d * OWN_D
    oh = block_h * OWN_H
    first_d = _begin(od, origins_d, md, SD, bd, UNIFORM, IDX)
    first_h = _begin(oh, origins_h, mh, SH, bh, UNIFORM, IDX)
    if not UNIFORM:
        ways_d = _ways(first_d, od, origins_d, stops_d, md, origins_d, md, OWN_D, SPAN_D, True)
        ways_h = _ways(first_h, oh, origins_h, stops_h, mh, origins_h, mh, OWN_H, SPAN_H, True)
    totals = ()
    for _ in tl.static_range(OWN_D * OWN_H):
        totals = totals + (tl.zeros([BW, R, BI], SUM),)
    for s_d in tl.static_range(SPAN_D):
        for s_h in tl.static_range(SPAN_H):
            at_d = clamp(first_d + s_d, 0, d - 1)
            at_h = clamp(first_h + s_h, 0, h - 1)
            row = x + (at_d.to(tl.int64) * h + at_h) * (w.to(tl.int64) * inner)
            total = tl.zeros([BW, R, BI], SUM)
            # Rows in the padding are read as rows without elements.
            real = (at_d == first_d + s_d) & (at_h == first_h + s_h) if UNIFORM and PADDED else at_h == at_h
            if PAIRS:
                size = tl.where(real, w, 0)
                for t in tl.static_range((PHASE + 1) // 2, (PHASE - KW) // 2, -1):
                    even, odd = pair(row, images, wb.to(IDX) * BW - qw - t, size, 0, PADDED, R, BW, IDX)
                    if PHASE - 2 * t >= 0:
                        total += even.to(SUM)
                    if PHASE - 2 * t + 1 < KW:
                        total += odd.to(SUM)
            else:
                for lw in tl.static_range(KW):
                    if PADDED or not UNIFORM:
                        inside = (origin_w + lw >= 0) & (origin_w + lw <= last_w) & real
                        total += tl.load(row + spots[lw], mask=inside.broadcast_to(BW, R, BI), other=0).to(SUM)
                    else:
                        total += tl.load(row + spots[lw]).to(SUM)
            now = ()
            for i in tl.static_range(OWN_D):
                for j in tl.static_range(OWN_H):
                    sofar = totals[i * OWN_H + j]
                    if LOW_D[i] <= s_d and s_d < HIGH_D[i] and LOW_H[j] <= s_h and s_h < HIGH_H[j]:
                        if UNIFORM:
                            sofar += total
                        else:
                            inside = (ways_d[i * SPAN_D + s_d] >= 0) & (ways_h[j * SPAN_H + s_h] >= 0)
                            sofar += tl.where(inside, total, 0)
                    now = now + (sofar,)
            totals = now

    for i in tl.static_range(OWN_D):
        for j in tl.static_range(OWN_H):
            window_d = tl.minimum(od + i, md - 1)
            window_h = tl.minimum(oh + j, mh - 1)
            begin_d = _begin(window_d, origins_d, md, SD, bd, UNIFORM, IDX)
            begin_h = _begin(window_h, origins_h, mh, SH, bh, UNIFORM, IDX)
            count = (
                divisor_of(window_d, begin_d, divisors_d, d, kd, DIVISORS).to(tl.int64)
                * divisor_of(window_h, begin_h, divisors_h, h, kh, DIVISORS)
                * divisor_of(window, origin_w, divisors_w, w, kw, DIVISORS)
            )
            mean, _ = share(totals[i * OWN_H + j], totals[i * OWN_H + j], count, SUM, TWOFOLD)
            mask = tile_mask & (od + i < md) & (oh + j < mh)
            row = ((od + i).to(tl.int64) * mh + oh + j) * mw * inner
            out = r * (md.to(IDX) * mh * mw * inner) + ow * inner + c
            tl.store(y + row + out, mean.to(y.dtype.element_ty), mask=mask)


@kernel
def put_rows(
    g, code_in, gx, origins_d, origins_h, origins_w, divisors_d, divisors_h, divisors_w,
    from_d, from_h, from_w, to_d, to_h, to_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, eh, ew,
    OWN_D: tl.constexpr, OWN_H: tl.constexpr, SPAN_D: tl.constexpr, SPAN_H: tl.constexpr, MOST_W: tl.constexpr,
    LOW_D: tl.constexpr, LOW_H: tl.constexpr, HIGH_D: tl.constexpr, HIGH_H: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, FLAT: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """From the windows that chose an element, or (MEAN) its share of each that contains it."""
    block, block_d, block_h, wb, ib = place(ni, nw, ph, pd, FLAT, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    at_w = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (at_w < w) & (c < inner)
    first_w = _entry(from_w, at_w, w, IDX)
    last_w = _entry(to_w, at_w, w, IDX)
    image = tl.minimum(r, outer - 1) * (md.to(IDX) * mh * mw * inner) + tl.minimum(c, inner - 1)
    spots = ()
    ways = ()
    for k in tl.static_range(MOST_W):
        ow = tl.minimum(first_w + k, mw - 1)
        way = (at_w - _entry(origins_w, ow, mw, IDX)).to(tl.int32)
        spots = spots + (image + ow * inner,)
        ways = ways + (tl.where(first_w + k < last_w, way, NOWHERE),)

    at_d = block_d * OWN_D
    at_h = block_h * OWN_H
    first_d = _entry(from_d, at_d, d, tl.int32)
    first_h = _entry(from_h, at_h, h, tl.int32)
    ways_d = _ways(first_d, at_d, from_d, to_d, d, origins_d, md, OWN_D, SPAN_D, False)
    ways_h = _ways(first_h, at_h, from_h, to_h, h, origins_h, mh, OWN_H, SPAN_H, False)
    totals = ()
    for _ in tl.static_range(OWN_D * OWN_H):
        totals = totals + (tl.zeros([BW, R, BI], SUM),)
    for s_d in tl.static_range(SPAN_D):
        for s_h in tl.static_range(SPAN_H):
            od = tl.minimum(first_d + s_d, md - 1)
            oh = tl.minimum(first_h + s_h, mh - 1)
            row = (od.to(tl.int64) * mh + oh) * mw * inner
            for k in tl.static_range(MOST_W):
                part = tl.load(g + row + spots[k]).to(SUM)
                chosen = ways[k]
                if MEAN:
                    ow = tl.minimum(first_w + k, mw - 1)
                    count = tl.load(divisors_d + od) * tl.load(divisors_h + oh) * tl.load(divisors_w + ow)
                    part = tl.where(chosen >= 0, part * inverse(count, SUM), 0)
                else:
                    chosen = tl.load(code_in + row + spots[k]).to(tl.int32)
                now = ()
                for i in tl.static_range(OWN_D):
                    for j in tl.static_range(OWN_H):
                        total = totals[i * OWN_H + j]
                        if LOW_D[i] <= s_d and s_d < HIGH_D[i] and LOW_H[j] <= s_h and s_h < HIGH_H[j]:
                            way_d = ways_d[i * SPAN_D + s_d]
                            way_h = ways_h[j * SPAN_H + s_h]
                            contained = (way_d >= 0) & (way_h >= 0)
                            if MEAN:
                                total += tl.where(contained, part, 0)
                            else:
                                row_way = tl.where(contained, (way_d * eh + way_h) * ew, NOWHERE)
                                total += tl.where(chosen == ways[k] + row_way, part, 0)
                        now = now + (total,)
                totals = now

    images = r * (d.to(IDX) * h * w * inner) + at_w * inner + c
    for i in tl.static_range(OWN_D):
        for j in tl.static_range(OWN_H):
            row = ((at_d + i).to(tl.int64) * h + at_h + j) * (w.to(tl.int64) * inner)
            mask = tile_mask & (at_d + i < d) & (at_h + j < h)
            tl.store(gx + row + images, totals[i * OWN_H + j].to(gx.dtype.element_ty), mask=mask)
