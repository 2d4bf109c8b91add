// Maxima over windows that are looked up in tables, for arrays whose last pooled axis is contiguous.
//
// Such windows begin anywhere, so what neighbouring threads want lies scattered. This kernel reads and writes memory in whole
// lines and does the scattered part in shared memory, which Triton does not offer.

struct Half {
    unsigned short bits;
};
struct Brain {
    unsigned short bits;
};   // bfloat16
template <typename T> struct __align__(sizeof(T) * 4) Four {
    T each[4];
};

__device__ __forceinline__ float wide(float v) { return v; }
__device__ __forceinline__ void narrow(float v, float& out) { out = v; }

#ifndef POOLGRAD_EMULATED   // by a processor, which has none of these instructions
__device__ __forceinline__ float wide(Brain v) { return __uint_as_float((unsigned)v.bits << 16); }
__device__ __forceinline__ float wide(Half v) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
    return f;
}
__device__ __forceinline__ void narrow(float v, Half& out) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(v)); }
__device__ __forceinline__ void narrow(float v, Brain& out) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(v)); }

// The larger of two; NaN is the largest.
__device__ __forceinline__ float larger(float a, float b) {
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

// Copies into shared memory that happen beside the computation, in groups.
template <int BYTES> __device__ __forceinline__ void copy_later(void* to, const void* from) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES) : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int MISSING> __device__ __forceinline__ void wait_for_all_groups_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(MISSING) : "memory");
}
#endif

// A window of one axis: where it begins, how long it is, how many elements the one before has too.
struct Window {
    int begin, length, shared;

    __device__ __forceinline__ int end() const { return begin + length; }
};

// The windows of one axis, and between which windows each of its elements lies. Without tables: element i is window i.
struct Axis {
    const int2* windows;
    const int2* cover;

    __device__ __forceinline__ Window operator[](int o) const {
        if (!windows) return {o, 1, 0};
        const int2 its = windows[o];
        return {its.x, its.y & 255, its.y >> 8};
    }
    __device__ __forceinline__ int first(int i) const { return windows ? cover[i].x : i; }
    __device__ __forceinline__ int last(int i) const { return windows ? cover[i].y : i + 1; }
};

// The first element of a window that equals the winner, and its value.
struct Found {
    int d, h, w;
    float value;
};

template <typename T>
__device__ __noinline__ Found first_like(float best, const T* window, long long plane, long long row, int d, int h, int w) {
    for (int ld = 0; ld < d; ld++)
        for (int lh = 0; lh < h; lh++)
            for (int lw = 0; lw < w; lw++) {
                const float value = wide(window[ld * plane + lh * row + lw]);
                if (value == best || (value != value && best != best)) return {ld, lh, lw, value};
            }
    return {0, 0, 0, best};
}

// What is done with the winner of every window: its value or its code is written, or what the window passes on is added to
// it.
enum Wanted { VALUE = 1, CODE = 2, PUT = 4 };

constexpr int THREADS = 256;
constexpr int NOWHERE = -(1 << 30);

// Finds the winner of every window. NaN wins.
//
// Arrays are seen as images of planes of rows; neighbours on the last axis are neighbours in memory, planes and rows lie
// `plane` and `row` elements apart. A block has to do with the windows of some planes, rows and columns: of a tile from d0,
// h0, w0 on. It walks through the planes of the array, each of which it reads once, well ahead of its use. A thread has EACH
// windows of a plane of windows, and at most OPEN such planes are open at a time: the oldest one closes first. On every axis
// each window begins behind the one before and ends not before it. It has LEAST rows at least.
//
// PUT: the block owns a tile of the result instead, and has to do with the windows that reach into it. It keeps KD planes of
// the result. On rows and on columns an element is shared by at most two windows: those which are the element's first on
// both axes add first, those which are its second on the last axis next, and so on. So no two windows add to an element at
// a time, and additions have the order of the windows.
template <typename T, typename Code, int KD, int KH, int KW, int LEAST, int OPEN, int EACH, int STAGES, int PITCH, int VEC, int BLOCKS, int WANTED>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    walk(const T* x, const T* g, T* y, Code* codes, const int2* windows_d, const int2* cover_d, const int2* windows_h, const int2* cover_h,
         const int2* windows_w, const int2* cover_w, long long image, long long plane, long long row, long long out_image, long long out_plane,
         long long out_row, int d, int h, int w, int md, int mh, int mw, int own_d, int own_h, int own_w, int tiles_d, int tiles_h, int tiles_w,
         int rows) {
    constexpr bool LOCATED = WANTED & (CODE | PUT);
    constexpr int BITS = PITCH == 32 ? 5 : PITCH == 64 ? 6 : 7;
    extern __shared__ __align__(16) unsigned char shared[];
    const float lowest = -__int_as_float(0x7f800000);
    const Axis on_d{windows_d, cover_d}, on_h{windows_h, cover_h}, on_w{windows_w, cover_w};

    unsigned block = blockIdx.x;
    const int w0 = block % tiles_w * own_w;
    block /= tiles_w;
    const int h0 = block % tiles_h * own_h;
    block /= tiles_h;
    const int d0 = block % tiles_d * own_d;
    const long long images = block / tiles_d;

    // Its windows, and the elements that they have to do with.
    int od0 = d0, oh0 = h0, ow0 = w0, od1 = min(d0 + own_d, md), oh1 = min(h0 + own_h, mh), ow1 = min(w0 + own_w, mw);
    const int d1 = min(d0 + own_d, d), h1 = min(h0 + own_h, h), w1 = min(w0 + own_w, w);
    if constexpr (WANTED & PUT) {
        od0 = on_d.first(d0), oh0 = on_h.first(h0), ow0 = on_w.first(w0);
        od1 = on_d.last(d1 - 1), oh1 = on_h.last(h1 - 1), ow1 = on_w.last(w1 - 1);
    }
    const bool any = od0 < od1 && oh0 < oh1 && ow0 < ow1;
    const int from_d = any ? on_d[od0].begin : 0, to_d = any ? on_d[od1 - 1].end() : 0;
    const int from_h = any ? on_h[oh0].begin : 0, to_h = any ? on_h[oh1 - 1].end() : 0;
    const int from_w = any ? on_w[ow0].begin / VEC * VEC : 0, to_w = any ? on_w[ow1 - 1].end() : 0;

    // Which part of every plane this thread copies: the same columns of every so many rows.
    constexpr int ACROSS = PITCH / VEC, DOWN = THREADS / ACROSS;
    const int its_row = threadIdx.x / ACROSS, its_column = threadIdx.x % ACROSS * VEC;
    const int until = its_column < to_w - from_w ? to_h - from_h : 0;
    const T* source = x + (images * image + from_d * plane + (from_h + its_row) * row + from_w + its_column);
    const unsigned size = rows * PITCH * sizeof(T), ring = STAGES * size;
    unsigned filled = 0;
    int coming = from_d;
    auto fetch = [&] {
        if (coming < to_d) {
            const T* from = source;
            unsigned to = filled + (its_row * PITCH + its_column) * sizeof(T);
#pragma unroll 1
            for (int r = its_row; r < until; r += DOWN, from += DOWN * row, to += DOWN * PITCH * sizeof(T)) {
                if constexpr (sizeof(T) * VEC >= 4) copy_later<sizeof(T) * VEC>(shared + to, from);
                else *(T*)(shared + to) = *from;
            }
            coming++, source += plane;
            filled = filled + size == ring ? 0 : filled + size;
        }
        end_group();
    };

    // The windows of this thread: where their columns lie in a stage; where their results lie in a plane of results; how many
    // rows they have, and how many columns they share (a byte each); how many rows they share, times PITCH.
    unsigned columns[EACH][KW];
    int out[EACH], shape[EACH], shared_rows[EACH];
    const int across = max(ow1 - ow0, 1), all = any ? (oh1 - oh0) * across : 0;
#pragma unroll
    for (int p = 0; p < EACH; p++) {
        const int at = threadIdx.x + p * THREADS;
        const int oh = at < all ? oh0 + at / across : oh0, ow = at < all ? ow0 + at % across : ow0;
        const Window its_h = any ? on_h[oh] : Window{0, 1, 0}, its_w = any ? on_w[ow] : Window{0, 1, 0};
#pragma unroll
        for (int k = 0; k < KW; k++) columns[p][k] = ((its_h.begin - from_h) * PITCH + its_w.begin - from_w + min(k, its_w.length - 1)) * sizeof(T);
        out[p] = at < all ? (oh - oh0) * (int)out_row + ow : -1;
        shape[p] = its_h.length << 24 | its_w.shared;
        shared_rows[p] = its_h.shared * PITCH;
    }

    // The planes of windows that are open, the oldest first: their best values so far and where they were found. That is the
    // plane (from bit 16 on), the row (from bit BITS on) and the column, counted from where the window begins. PUT: the plane is
    // where its sums begin in the box instead; negative if it is not one of the tile.
    int begin[OPEN], end[OPEN], oldest = od0;
    float best[OPEN][EACH], passed[EACH];
    int place[OPEN][EACH];
    const long long results = images * out_image + oh0 * out_row;
    auto planes = [&](int o) { return o < od1 ? on_d[o] : Window{to_d, 1, 0}; };
    Window next = planes(od0);   // to be opened, looked up well ahead
    auto open = [&](int i) {
        begin[i] = next.begin, end[i] = next.end();
        next = planes(oldest + i + 1);
    };
    const T* passing = g + (results + od0 * out_plane);
    auto pass = [&] {   // what the oldest ones pass on
#pragma unroll
        for (int p = 0; p < EACH; p++) passed[p] = oldest < od1 && out[p] >= 0 ? wide(passing[out[p]]) : 0;
        passing += out_plane;
    };
#pragma unroll
    for (int i = 0; i < OPEN; i++) {
        open(i);
#pragma unroll
        for (int p = 0; p < EACH; p++) best[i][p] = lowest, place[i][p] = 0;
    }

    // Planes of the result, the first of which is `kept`, in turn.
    float* box = (float*)(shared + ring);
    const int area = own_h * PITCH;
    int kept = d0, kept_at = 0;
    auto plane_of_sums = [&](int at) { return at < d0 || at >= d1 ? NOWHERE : (at - d0) % KD * area << 16; };
    auto release = [&] {   // writes it
        float* cell = box + (kept_at * area + its_row * PITCH + its_column);
        T* result = y + (images * image + kept * plane + (h0 + its_row) * row + w0 + its_column);
        const bool there = w0 + its_column < w1;
#pragma unroll 1
        for (int r = its_row; r < own_h; r += DOWN, cell += DOWN * PITCH, result += DOWN * row) {
            if constexpr (VEC > 1) {
#pragma unroll
                for (int k = 0; k < VEC; k += 4) {
                    const float4 sums = *(float4*)(cell + k);
                    *(float4*)(cell + k) = make_float4(0, 0, 0, 0);
                    Four<T> four;
                    narrow(sums.x, four.each[0]), narrow(sums.y, four.each[1]);
                    narrow(sums.z, four.each[2]), narrow(sums.w, four.each[3]);
                    if (there && h0 + r < h1) *(Four<T>*)(result + k) = four;
                }
            } else {
                if (there && h0 + r < h1) narrow(*cell, *result);
                *cell = 0;
            }
        }
        kept++, kept_at = kept_at + 1 == KD ? 0 : kept_at + 1;
    };
    auto complete = [&](int until) {   // planes before every window to come
        while (kept < min(until, d1)) release();
    };
    if constexpr (WANTED & PUT) {
        for (int i = threadIdx.x; i < KD * area; i += THREADS) box[i] = 0;
        __syncthreads();
        complete(any ? begin[0] : d1);
        pass();
    }

    for (int s = 0; s < STAGES - 1; s++) fetch();
    unsigned used = 0;
    for (int at = from_d; at < to_d; at++) {
        wait_for_all_groups_but<STAGES - 2>();
        __syncthreads();
        fetch();
        const int sums = WANTED & PUT ? plane_of_sums(at) : 0;
        float now[EACH];
        int where[EACH];
#pragma unroll
        for (int p = 0; p < EACH; p++) {
            now[p] = wide(*(const T*)(shared + used + columns[p][0])), where[p] = 0;
#pragma unroll
            for (int r = 0; r < KH; r++)
                if (r < LEAST || shape[p] >= (r + 1) << 24) {   // as long as that
#pragma unroll
                    for (int k = r ? 0 : 1; k < KW; k++) {   // columns behind the last repeat it, and do not win again
                        const float value = wide(*(const T*)(shared + used + columns[p][k] + r * PITCH * sizeof(T)));
                        if (LOCATED && value > now[p]) where[p] = r * PITCH + k;
                        now[p] = larger(now[p], value);
                    }
                }
        }
        used = used + size == ring ? 0 : used + size;
#pragma unroll
        for (int i = 0; i < OPEN; i++) {
            const int its_plane = WANTED & PUT ? sums : (at - begin[i]) << 16;
            if (begin[i] == at) {
#pragma unroll
                for (int p = 0; p < EACH; p++) place[i][p] = its_plane + where[p], best[i][p] = now[p];
            } else if (begin[i] < at) {
#pragma unroll
                for (int p = 0; p < EACH; p++) {
                    if (LOCATED && now[p] > best[i][p]) place[i][p] = its_plane + where[p];
                    best[i][p] = larger(best[i][p], now[p]);
                }
            }
        }

        while (end[0] == at + 1 && oldest < od1) {   // the oldest ones close
            const long long to = results + oldest * out_plane;
            int turn[EACH];
            float* target[EACH];
            // NaN is not greater than anything, and zeros may be of either sign.
            auto unsure = [&](int p) { return best[0][p] != best[0][p] || (WANTED & VALUE && best[0][p] == 0); };
            bool any_unsure = false;
#pragma unroll
            for (int p = 0; p < EACH; p++) any_unsure = any_unsure || unsure(p);
            if (any_unsure) {
#pragma unroll
                for (int p = 0; p < EACH; p++)
                    if (out[p] >= 0 && unsure(p)) {
                        const Window its_h = on_h[oh0 + out[p] / (int)out_row], its_w = on_w[out[p] % (int)out_row];
                        const T* window = x + (images * image + begin[0] * plane + its_h.begin * row + its_w.begin);
                        const Found found = first_like(best[0][p], window, plane, row, end[0] - begin[0], its_h.length, its_w.length);
                        place[0][p] = (WANTED & PUT ? plane_of_sums(begin[0] + found.d) : found.d << 16) | found.h << BITS | found.w;
                        best[0][p] = found.value;
                    }
            }
#pragma unroll
            for (int p = 0; p < EACH; p++) {
                const int in_plane = place[0][p] & 65535, lw = in_plane & (PITCH - 1);
                if (out[p] >= 0) {
                    if constexpr (WANTED & VALUE) narrow(best[0][p], (y + to)[out[p]]);
                    if constexpr (WANTED & CODE) (codes + to)[out[p]] = (Code)(((place[0][p] >> 16) * KH + (in_plane >> BITS)) * KW + lw);
                }
                if constexpr (WANTED & PUT) {
                    // Rows, times PITCH, and columns, counted from where the stages and the tile begin.
                    const int in_stage = (int)(columns[p][0] / sizeof(T)) + in_plane, in_tile = in_stage + (from_h - h0) * PITCH;
                    const int column = (in_stage & (PITCH - 1)) + from_w - w0;
                    const bool mine = (out[p] | place[0][p]) >= 0 && (unsigned)in_tile < (h1 - h0) * PITCH && (unsigned)column < w1 - w0;
                    turn[p] = mine ? (KH > 1 && in_plane < shared_rows[p] ? 2 : 0) + (lw < (shape[p] & 255) ? 1 : 0) : -1;
                    target[p] = box + ((place[0][p] >> 16) + in_tile + from_w - w0);
                }
            }
            if constexpr (WANTED & PUT) {
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    if (KH == 1 && t >= 2) break;   // no rows are shared
                    float sum[EACH];
#pragma unroll
                    for (int p = 0; p < EACH; p++) sum[p] = turn[p] == t ? *target[p] : 0;
#pragma unroll
                    for (int p = 0; p < EACH; p++)
                        if (turn[p] == t) *target[p] = sum[p] + passed[p];
                    __syncthreads();
                }
            }
            oldest++;
#pragma unroll
            for (int i = 0; i + 1 < OPEN; i++) {
                begin[i] = begin[i + 1], end[i] = end[i + 1];
#pragma unroll
                for (int p = 0; p < EACH; p++) best[i][p] = best[i + 1][p], place[i][p] = place[i + 1][p];
            }
            open(OPEN - 1);
            if constexpr (WANTED & PUT) {
                pass();
                complete(oldest < od1 ? begin[0] : d1);
            }
        }
    }
}
