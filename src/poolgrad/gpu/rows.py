"""GPU kernels for regular windows that share rows because they overlap.

A program owns a few neighbouring rows of its result, OWN_D planes of OWN_H. Together they have to do with SPAN_D by
SPAN_H rows of the array: those are read once, in order, and each is handed to the owned rows it belongs to. This reads
much less than every result on its own would. Which rows belong to which owned row is known while compiling, and
everything is written out, so that all loads can be on their way at once.
"""

# mypy: ignore-errors
# ruff: noqa: RET505, SIM102, SIM108 (Triton decides conditions on constants while compiling and wants them by themselves)
# ruff: noqa: RUF005 (its tuples grow by addition)

import triton
import triton.language as tl

from .sums import share
from .tiles import along, beside, clamp, divisor_of, halves, kernel, lengths, place
from .winners import beats, first_nan, real_code


@triton.jit
def _spots(origin_w, w, image, inner, KW: tl.constexpr):
    """Where the elements of a row of the windows lie. Positions outside the array stand for the nearest inside."""
    spots = ()
    for lw in tl.static_range(KW):
        spots = spots + (image + clamp(origin_w + lw, 0, w - 1) * inner,)
    return spots


@triton.jit
def _chunks(
    row, images, wb, size, w, FILL: tl.constexpr, KW: tl.constexpr, BEFORE: tl.constexpr, CHUNK: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, IDX: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """The elements of a row of windows with stride 2 that lie side by side: each element is loaded by one thread only,
    CHUNK pairs at once, and what windows have from the chunk beside theirs one by one.

    From `size` on elements are zeros if FILL, and so is what lies outside the array; otherwise the nearest element is
    taken in its place.
    """
    N: tl.constexpr = 2 * (CHUNK if CHUNK <= BW else BW)
    at = wb.to(IDX) * (2 * BW) + tl.arange(0, 2 * BW).to(IDX)[:, None, None]
    inside = (at < size).broadcast_to(2 * BW, R, 1)
    if FILL:
        both = tl.load(row + (images + at), mask=inside, other=0, eviction_policy=HINT)
    else:
        both = tl.load(row + (images + at), mask=inside, eviction_policy=HINT)
    parts = halves(both, R, BW)
    chunk = wb.to(IDX) * (2 * BW // N) + tl.arange(0, 2 * BW // N).to(IDX)[:, None, None]
    elements = ()
    for lw in tl.static_range(KW):
        value = parts[(lw - BEFORE) % 2]
        if lw < BEFORE or lw > BEFORE + 1:
            at = chunk * N + (lw - BEFORE + (N - 2 if lw > BEFORE else 0))
            if FILL:
                inside = ((at >= 0) & (at < size)).broadcast_to(2 * BW // N, R, 1)
                other = tl.load(row + (images + at), mask=inside, other=0, eviction_policy=HINT)
            else:
                other = tl.load(row + (images + clamp(at, 0, w - 1)), eviction_policy=HINT)
            value = beside(value, other, lw > BEFORE, R, BW, N // 2)
        elements = elements + (value,)
    return elements


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


@triton.jit
def _one_more(
    bests, codes, nans, n: tl.constexpr, value, code, nan, at: tl.constexpr, COUNT: tl.constexpr, STEP: tl.constexpr,
    FLOAT: tl.constexpr, IGNORE: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """The n-th winner so far after one more value, the at-th of its COUNT. Before the first one, anything."""
    if at <= 0:
        return value, code, nan
    elif at < COUNT:
        return _next(bests[n], codes[n], nans[n], value, code, nan, at * STEP, FLOAT, IGNORE, PACKED)
    else:
        return bests[n], codes[n], nans[n]


@triton.jit
def _sooner(best, code, nan, value, its_code, its_nan, IGNORE: tl.constexpr, PACKED: tl.constexpr):
    """The winner of two, where the lower code wins between equals."""
    if PACKED:
        KIND: tl.constexpr = "bf16x2" if best.dtype == tl.bfloat16 else "f16x2"
        # Small codes are ordered like the tiny floats with the same bits.
        return tl.inline_asm_elementwise(
            "{ .reg .b32 better, same, sooner;"
            " set.gt.u32." + KIND + " better, $3, $4;"
            " set.eq.u32." + KIND + " same, $3, $4;"
            " set.lt.u32.f16x2 sooner, $5, $6;"
            " lop3.b32 better, better, same, sooner, 0xf8;"
            " lop3.b32 $0, $3, $4, better, 0xe4;"
            " lop3.b32 $1, $5, $6, better, 0xe4;"
            " max.NaN." + KIND + " $2, $7, $8; }",
            "=&r,=&r,=&r,r,r,r,r,r,r",
            [value, best, its_code, code, nan, its_nan],
            dtype=(best.dtype, tl.int16, best.dtype),
            is_pure=True,
            pack=2,
        )
    else:
        same = (value == best) | ((value != value) & (best != best))
        better = beats(value, best, True, IGNORE) | (same & (its_code < code))
        return tl.where(better, value, best), tl.where(better, its_code, code), nan


@triton.jit
def _any_nan(nans):
    """Whether any of these is NaN anywhere."""
    nan = nans[0]
    for n in tl.static_range(1, len(nans)):
        nan += nans[n]
    return tl.max(tl.max(tl.max((nan != nan).to(tl.int32), 2), 1), 0) > 0


@triton.jit
def _write(
    best, code, nan, any_nan, x, y, code_out, v, taken, r, ow, c, tile_mask, od, oh, images, image, origin_w,
    d, h, w, md, mh, mw, inner, bd, bh, SD: tl.constexpr, SH: tl.constexpr,
    KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PADDED: tl.constexpr, IDX: tl.constexpr,
    VALUE: tl.constexpr, CODE: tl.constexpr, TAKE: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """One row of winners, or what another array has in their place, after their codes have been put right."""
    mask = tile_mask & (od < md) & (oh < mh)
    row = (od.to(tl.int64) * mh + oh) * mw * inner
    out = r * (md.to(IDX) * mh * mw * inner) + ow * inner + c
    begin_d = od * SD - bd
    begin_h = oh * SH - bh
    real_d = tl.maximum(-begin_d, 0)
    real_h = tl.maximum(-begin_h, 0)
    code = code.to(tl.int32)
    if PADDED and (CODE or TAKE):
        if real_d + real_h > 0:
            code = real_code(code, real_d, real_h, 0, KH, KW).to(tl.int32)
    if PACKED:
        if any_nan:
            best = tl.where(nan != nan, nan, best)
            if CODE or TAKE:
                code = first_nan(
                    code, nan, x, images, c, inner, h, w.to(tl.int64) * inner, begin_d, begin_h, origin_w,
                    real_d, real_h, tl.maximum(-origin_w, 0).to(tl.int32),
                    d - 1 - begin_d, h - 1 - begin_h, w - 1 - origin_w, 1, 1, 1, KD, KH, KW, mask,
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
def scan_rows(
    x, y, code_out, v, taken, outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, bd, bh, bw,
    OWN_D: tl.constexpr, OWN_H: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PADDED: tl.constexpr,
    CHUNK: tl.constexpr, BEFORE: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, COMPUTE: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr,
    VALUE: tl.constexpr, CODE: tl.constexpr, TAKE: tl.constexpr, PACKED: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """The winner of every window: its value, its code, or what another array has in its place.

    Positions outside the array read the nearest element instead: it cannot win twice, and its code is put right at the
    end. PACKED: 16-bit floats go two at a time, and windows with NaN are looked after at the end.
    """
    block, block_d, block_h, wb, ib = place(ni, nw, ph, pd, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (ow < mw) & (c < inner)
    origin_w = tl.minimum(ow, mw - 1) * SW - bw
    images = tl.minimum(r, outer - 1) * (d.to(IDX) * h * w * inner)
    image = images + c if FULL else images + tl.minimum(c, inner - 1)
    row_length = w.to(tl.int64) * inner
    if CHUNK == 0:
        spots = _spots(origin_w, w, image, inner, KW)

    KIND: tl.constexpr = x.dtype.element_ty if PACKED else COMPUTE
    WHICH: tl.constexpr = tl.int16 if PACKED else tl.int32
    first_w = tl.maximum(-origin_w, 0).to(tl.int32)
    zero = tl.zeros([BW, R, BI], WHICH)
    # How far behind a position on the row the first real one lies.
    behind = ()
    for lw in tl.static_range(KW):
        if PADDED:
            behind = behind + (tl.maximum(first_w - lw, 0).to(WHICH).broadcast_to(BW, R, BI),)
        else:
            behind = behind + (zero,)
    od = block_d * OWN_D
    oh = block_h * OWN_H
    first_d = od * SD - bd
    first_h = oh * SH - bh
    bests = ()
    codes = ()
    nans = ()
    for s_d in tl.static_range((OWN_D - 1) * SD + KD):
        for s_h in tl.static_range((OWN_H - 1) * SH + KH):
            at_d = clamp(first_d + s_d, 0, d - 1)
            at_h = clamp(first_h + s_h, 0, h - 1)
            row = x + (at_d.to(tl.int64) * h + at_h) * row_length
            if CHUNK > 0:
                elements = _chunks(row, images, wb, w, w, False, KW, BEFORE, CHUNK, R, BW, IDX, HINT)
                best = elements[0].to(KIND)
            else:
                best = tl.load(row + spots[0], eviction_policy=HINT).to(KIND)
            code = behind[0]
            nan = best
            for lw in tl.static_range(1, KW):
                if CHUNK > 0:
                    value = elements[lw].to(KIND)
                else:
                    value = tl.load(row + spots[lw], eviction_policy=HINT).to(KIND)
                best, code, nan = _next(best, code, nan, value, behind[lw], value, lw, FLOAT, IGNORE, PACKED)
            now_bests = ()
            now_codes = ()
            now_nans = ()
            for i in tl.static_range(OWN_D):
                for j in tl.static_range(OWN_H):
                    if s_d == i * SD and s_h == j * SH:
                        now_bests = now_bests + (best,)
                        now_codes = now_codes + (code,)
                        now_nans = now_nans + (nan,)
                    elif s_d < i * SD or (s_d == i * SD and s_h < j * SH):
                        now_bests = now_bests + (best,)  # nothing yet: its first row is still to come
                        now_codes = now_codes + (code,)
                        now_nans = now_nans + (nan,)
                    else:
                        won = bests[i * OWN_H + j]
                        at = codes[i * OWN_H + j]
                        lost = nans[i * OWN_H + j]
                        if s_d < i * SD + KD and j * SH <= s_h and s_h < j * SH + KH:
                            won, at, lost = _next(
                                won, at, lost, best, code, nan, ((s_d - i * SD) * KH + s_h - j * SH) * KW,
                                FLOAT, IGNORE, PACKED,
                            )  # fmt: skip
                        now_bests = now_bests + (won,)
                        now_codes = now_codes + (at,)
                        now_nans = now_nans + (lost,)
            bests = now_bests
            codes = now_codes
            nans = now_nans

    if PACKED:
        any_nan = _any_nan(nans)
    else:
        any_nan = od < 0
    for i in tl.static_range(OWN_D):
        for j in tl.static_range(OWN_H):
            _write(
                bests[i * OWN_H + j], codes[i * OWN_H + j], nans[i * OWN_H + j], any_nan, x, y, code_out, v, taken,
                r, ow, c, tile_mask, od + i, oh + j, images, image, origin_w, d, h, w, md, mh, mw, inner, bd, bh,
                SD, SH, KD, KH, KW, PADDED, IDX, VALUE, CODE, TAKE, PACKED,
            )  # fmt: skip


@triton.jit
def _element(
    columns, lw: tl.constexpr, n: tl.constexpr, COUNT: tl.constexpr, BEFORE: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Of the columns, COUNT of each, the n-th at local position lw."""
    part = halves(columns[n], R, BW)[(lw - BEFORE) % 2]
    if lw < BEFORE:
        part = beside(part, halves(columns[COUNT + n], R, 2 * BW // N)[(lw - BEFORE) % 2], False, R, BW, N // 2)
    elif lw > BEFORE + 1:
        other = halves(columns[(2 if BEFORE > 0 else 1) * COUNT + n], R, 2 * BW // N)[(lw - BEFORE) % 2]
        part = beside(part, other, True, R, BW, N // 2)
    return part


@kernel
def scan_chunks(
    x, y, code_out, v, taken, outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, bd, bh, bw,
    OWN_D: tl.constexpr, OWN_H: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PADDED: tl.constexpr,
    CHUNK: tl.constexpr, BEFORE: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, COMPUTE: tl.constexpr, FLOAT: tl.constexpr, IGNORE: tl.constexpr,
    VALUE: tl.constexpr, CODE: tl.constexpr, TAKE: tl.constexpr, PACKED: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """The same for 16-bit floats whose rows are read in chunks: first over the rows, every column by itself, as they
    lie in the registers; then over the columns. Among equal winners of columns the one with the lowest code came
    first."""
    block, block_d, block_h, wb, ib = place(ni, nw, ph, pd, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (ow < mw) & (c < inner)
    origin_w = tl.minimum(ow, mw - 1) * SW - bw
    images = tl.minimum(r, outer - 1) * (d.to(IDX) * h * w * inner)
    row_length = w.to(tl.int64) * inner
    od = block_d * OWN_D
    oh = block_h * OWN_H

    KIND: tl.constexpr = x.dtype.element_ty if PACKED else COMPUTE
    LOWER: tl.constexpr = float("nan") if IGNORE else float("-inf")
    N: tl.constexpr = 2 * (CHUNK if CHUNK <= BW else BW)
    BEHIND: tl.constexpr = 2 if BEFORE > 0 else 1
    COLUMNS: tl.constexpr = BEHIND + (1 if KW > BEFORE + 2 else 0)
    # The pairs of the windows, and those before and behind each chunk, if windows reach them.
    at = wb.to(IDX) * (2 * BW) + tl.arange(0, 2 * BW).to(IDX)[:, None, None]
    spots = (images + at,)
    insides = ((at < w).broadcast_to(2 * BW, R, 1),)
    pairs = tl.arange(0, 4 * BW // N).to(IDX)[:, None, None]
    pairs = wb.to(IDX) * (2 * BW) + pairs // 2 * N + pairs % 2
    for m in tl.static_range(1, COLUMNS):
        at = pairs + (N if m == BEHIND else -2)
        spots = spots + (images + at,)
        insides = insides + (((at >= 0) & (at < w)).broadcast_to(4 * BW // N, R, 1),)

    # Over the rows, every column by itself.
    bests = ()
    codes = ()
    nans = ()
    for s_d in tl.static_range((OWN_D - 1) * SD + KD):
        plane_bests = ()
        plane_codes = ()
        plane_nans = ()
        for s_h in tl.static_range((OWN_H - 1) * SH + KH):
            at_d = clamp(od * SD - bd + s_d, 0, d - 1)
            at_h = clamp(oh * SH - bh + s_h, 0, h - 1)
            row = x + (at_d.to(tl.int64) * h + at_h) * row_length
            now_bests = ()
            now_codes = ()
            now_nans = ()
            for m in tl.static_range(COLUMNS):
                if m == 0:  # beyond the last window anything will do
                    value = tl.load(row + spots[0], mask=insides[0], eviction_policy=HINT).to(KIND)
                else:
                    value = tl.load(row + spots[m], mask=insides[m], other=LOWER, eviction_policy=HINT).to(KIND)
                code = tl.zeros(value.shape, tl.int16)
                for j in tl.static_range(OWN_H):
                    best, at, nan = _one_more(
                        plane_bests, plane_codes, plane_nans, m * OWN_H + j, value, code, value, s_h - j * SH, KH, KW,
                        FLOAT, IGNORE, PACKED,
                    )  # fmt: skip
                    now_bests = now_bests + (best,)
                    now_codes = now_codes + (at,)
                    now_nans = now_nans + (nan,)
            plane_bests = now_bests
            plane_codes = now_codes
            plane_nans = now_nans
        now_bests = ()
        now_codes = ()
        now_nans = ()
        for n in tl.static_range(COLUMNS * OWN_H):
            for i in tl.static_range(OWN_D):
                best, at, nan = _one_more(
                    bests, codes, nans, n * OWN_D + i, plane_bests[n], plane_codes[n], plane_nans[n], s_d - i * SD, KD,
                    KH * KW, FLOAT, IGNORE, PACKED,
                )  # fmt: skip
                now_bests = now_bests + (best,)
                now_codes = now_codes + (at,)
                now_nans = now_nans + (nan,)
        bests = now_bests
        codes = now_codes
        nans = now_nans

    # Over the columns.
    first_w = tl.maximum(-origin_w, 0).to(tl.int32)
    wins = ()
    ways = ()
    losses = ()
    for i in tl.static_range(OWN_D):
        for j in tl.static_range(OWN_H):
            for lw in tl.static_range(KW):
                best = _element(bests, lw, j * OWN_D + i, OWN_D * OWN_H, BEFORE, R, BW, N)
                code = _element(codes, lw, j * OWN_D + i, OWN_D * OWN_H, BEFORE, R, BW, N)
                nan = _element(nans, lw, j * OWN_D + i, OWN_D * OWN_H, BEFORE, R, BW, N)
                if PADDED and lw < BEFORE:
                    code += tl.maximum(first_w, lw).to(tl.int16)
                else:
                    code += lw
                if lw == 0:
                    won, way, lost = best, code, nan
                else:
                    won, way, lost = _sooner(won, way, lost, best, code, nan, IGNORE, PACKED)
            wins = wins + (won,)
            ways = ways + (way,)
            losses = losses + (lost,)
    if PACKED:
        any_nan = _any_nan(losses)
    else:
        any_nan = od < 0
    for i in tl.static_range(OWN_D):
        for j in tl.static_range(OWN_H):
            _write(
                wins[i * OWN_H + j], ways[i * OWN_H + j], losses[i * OWN_H + j], any_nan, x, y, code_out, v, taken,
                r, ow, c, tile_mask, od + i, oh + j, images, images + c, origin_w, d, h, w, md, mh, mw, inner, bd, bh,
                SD, SH, KD, KH, KW, PADDED, IDX, VALUE, CODE, TAKE, PACKED,
            )  # fmt: skip


@kernel
def mean_rows(
    x, y, divisors_d, divisors_h, divisors_w,
    outer, inner, d, h, w, md, mh, mw, nw, ni, pd, ph, bd, bh, bw, kd, kh, kw,
    OWN_D: tl.constexpr, OWN_H: tl.constexpr, KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PADDED: tl.constexpr,
    CHUNK: tl.constexpr, BEFORE: tl.constexpr,
    R: tl.constexpr, BW: tl.constexpr, BI: tl.constexpr, FULL: tl.constexpr, ORDER: tl.constexpr,
    ONE_W: tl.constexpr, ONE_I: tl.constexpr, ALIGN: tl.constexpr, ALIGN_OUT: tl.constexpr,
    IDX: tl.constexpr, SUM: tl.constexpr, TWOFOLD: tl.constexpr, WHOLE: tl.constexpr, DIVISORS: tl.constexpr,
    HINT: tl.constexpr,
):  # fmt: skip
    """The average of every window: rows first, each once, then over the rows."""
    block, block_d, block_h, wb, ib = place(ni, nw, ph, pd, ORDER, ONE_W, ONE_I)
    w, mw, inner = lengths(w, mw, inner, ALIGN, ALIGN_OUT, BI)
    r = along(block, R, 1, IDX)
    ow = along(wb, BW, 0, IDX)
    c = along(ib, BI, 2, IDX)
    tile_mask = (r < outer) & (ow < mw) & (c < inner)
    window = tl.minimum(ow, mw - 1)
    origin_w = window * SW - bw
    images = tl.minimum(r, outer - 1) * (d.to(IDX) * h * w * inner)
    image = images + c if FULL else images + tl.minimum(c, inner - 1)
    if CHUNK == 0:
        spots = _spots(origin_w, w, image, inner, KW)
    od = block_d * OWN_D
    oh = block_h * OWN_H
    first_d = od * SD - bd
    first_h = oh * SH - bh
    totals = ()
    for _ in tl.static_range(OWN_D * OWN_H):
        totals = totals + (tl.zeros([BW, R, BI], SUM),)
    for s_d in tl.static_range((OWN_D - 1) * SD + KD):
        for s_h in tl.static_range((OWN_H - 1) * SH + KH):
            at_d = clamp(first_d + s_d, 0, d - 1)
            at_h = clamp(first_h + s_h, 0, h - 1)
            row = x + (at_d.to(tl.int64) * h + at_h) * (w.to(tl.int64) * inner)
            total = tl.zeros([BW, R, BI], SUM)
            # Rows in the padding are read as rows without elements.
            real = (at_d == first_d + s_d) & (at_h == first_h + s_h) if PADDED else at_h == at_h
            if CHUNK > 0:
                size = tl.where(real, w, 0)
                elements = _chunks(row, images, wb, size, w, True, KW, BEFORE, CHUNK, R, BW, IDX, HINT)
            for lw in tl.static_range(KW):
                if CHUNK > 0:
                    total += elements[lw].to(SUM)
                elif PADDED:
                    inside = (origin_w + lw >= 0) & (origin_w + lw < w) & real
                    inside = inside.broadcast_to(BW, R, BI)
                    total += tl.load(row + spots[lw], mask=inside, other=0, eviction_policy=HINT).to(SUM)
                else:
                    total += tl.load(row + spots[lw], eviction_policy=HINT).to(SUM)
            now = ()
            for i in tl.static_range(OWN_D):
                for j in tl.static_range(OWN_H):
                    if i * SD <= s_d and s_d < i * SD + KD and j * SH <= s_h and s_h < j * SH + KH:
                        now = now + (totals[i * OWN_H + j] + total,)
                    else:
                        now = now + (totals[i * OWN_H + j],)
            totals = now

    for i in tl.static_range(OWN_D):
        for j in tl.static_range(OWN_H):
            if DIVISORS:
                count_d = tl.load(divisors_d + tl.minimum(od + i, md - 1))
                count_h = tl.load(divisors_h + tl.minimum(oh + j, mh - 1))
            else:
                count_d = tl.minimum(first_d + i * SD + kd, d) - tl.maximum(first_d + i * SD, 0)
                count_h = tl.minimum(first_h + j * SH + kh, h) - tl.maximum(first_h + j * SH, 0)
            count = count_d.to(tl.int64) * count_h * divisor_of(window, origin_w, divisors_w, w, kw, DIVISORS)
            mean, _ = share(totals[i * OWN_H + j], totals[i * OWN_H + j], count, SUM, TWOFOLD)
            mask = tile_mask & (od + i < md) & (oh + j < mh)
            row = ((od + i).to(tl.int64) * mh + oh + j) * mw * inner
            out = r * (md.to(IDX) * mh * mw * inner) + ow * inner + c
            tl.store(y + row + out, mean.to(y.dtype.element_ty), mask=mask)
