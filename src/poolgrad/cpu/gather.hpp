// Walks input rows and lets every input element collect from the windows that contain it, in ascending order of the
// windows: gradients in gather form. Each element is written once, so threads cannot change the result.
//
// A Collector says how one window's gradient is added: by its code (put) or by its weight (spread).
#pragma once

#include "reduce.hpp"
#include "sums.hpp"

namespace poolgrad {
namespace {

// Elements [low, high) of the lanes that begin at p; the others are zero and not touched in memory.
template <class T, int lanes> POOLGRAD_INLINE void copy_lanes(T (&lane)[lanes], const T* p, int64_t low, int64_t high) {
    low = larger(low, 0);
    high = smaller(high, lanes);
    for (int i = 0; i < lanes; ++i) lane[i] = T{};
    for (int64_t i = low; i < high; ++i) lane[i] = p[i];
}

// One step back from a phase of the stride: input (output - shift) * stride + phase is local position `code` of `output`.
struct Shift {
    int64_t shift;   // in outputs
    int64_t code;
};

// Writes a finished row: past the caches if asked to.
template <class T> POOLGRAD_INLINE void write_row(T* to, const T* from, int64_t count, bool streaming) {
    if (!streaming) {
        __builtin_memcpy(to, from, sizeof(T) * static_cast<size_t>(count));
        return;
    }
    using V = Vec<uint8_t, vector_bytes>;
    const char* source = reinterpret_cast<const char*>(from);
    char* target = reinterpret_cast<char*>(to);
    int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    const int64_t head = smaller(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(target) & (vector_bytes - 1)));
    __builtin_memcpy(target, source, static_cast<size_t>(head));
    target += head, source += head, bytes -= head;
    for (; bytes >= vector_bytes; target += vector_bytes, source += vector_bytes, bytes -= vector_bytes) stream(target, load<V>(source));
    __builtin_memcpy(target, source, static_cast<size_t>(bytes));
}

template <class Collector> struct Gatherer {
    using Element = typename Collector::Element;
    using Stored = typename Element::Stored;
    using Sum = typename Element::Sum;
    using I = typename IntOf<sizeof(Sum) <= 8 ? sizeof(Sum) : 8>::type;
    static constexpr int lanes = Collector::lanes;

    Collector collector;
    const Geometry& g;
    const Axis& axis;
    const bool streaming;
    const Tap* taps = nullptr;
    int64_t tap_count = 0;

    Gatherer(Collector collector, const Geometry& g, bool streaming) : collector(collector), g(g), axis(g.axes[g.rank - 1]), streaming(streaming) {}

    template <int vectors> POOLGRAD_INLINE void channels(Stored* gx, int64_t w, Cover windows, int64_t c) {
        Vec<Sum, lanes> sum[vectors] = {};
        for (int64_t t = 0; t < tap_count; ++t)
            for (int64_t o = windows.first; o < windows.last; ++o) {
                if (!contains(axis, o, w)) continue;
                const auto rule = collector.rule(taps[t], o, local(axis, o, w));
                const int64_t at = o * g.inner + c;
                for (int u = 0; u < vectors; ++u)
                    sum[u] = collector.template add<lanes>(sum[u], rule, taps[t], at + u * lanes);
            }
        for (int u = 0; u < vectors; ++u) {
            const auto result = Element::template narrow_lanes<lanes>(sum[u]);
            if (streaming) stream(gx + c + u * lanes, result);
            else store(gx + c + u * lanes, result);
        }
    }

    void single(Stored* gx, int64_t w, Cover windows, int64_t c) {
        Sum sum{};
        for (int64_t t = 0; t < tap_count; ++t)
            for (int64_t o = windows.first; o < windows.last; ++o)
                if (contains(axis, o, w)) sum = collector.add_one(sum, taps[t], o, local(axis, o, w), o * g.inner + c);
        gx[c] = Element::narrow_one(sum);
    }

    // Along the row: for each phase of the stride, neighbouring inputs collect from neighbouring outputs.
    void along_row(Stored* gx, int64_t w0, int64_t w1, Scratch& scratch) {
        const int64_t s = axis.stride, inner = g.inner, outputs = axis.count * inner;
        const int64_t first = floor_div(w0 + axis.before, s), last = floor_div(w1 - 1 + axis.before, s) + 1;
        const int64_t begin = first * inner, end = last * inner;
        Stored* row = static_cast<Stored*>(reserve(scratch, 1, sizeof(Stored) * static_cast<size_t>((end - begin + lanes) * s)));
        Shift* shifts = static_cast<Shift*>(reserve(scratch, 2, sizeof(Shift) * static_cast<size_t>(axis.window)));
        const bool pairs = s == 2 && inner == 1;
        Stored* even = static_cast<Stored*>(reserve(scratch, 3, sizeof(Stored) * static_cast<size_t>(end - begin + lanes)));
        for (int64_t phase = 0; phase < s; ++phase) {
            int64_t count = 0;
            for (int64_t j = axis.window - 1; j >= 0; --j)
                if ((phase - j * axis.dilation) % s == 0) shifts[count++] = {(phase - j * axis.dilation) / s, j};
            for (int64_t f = begin; f < end; f += lanes) {
                Vec<Sum, lanes> sum{};
                for (int64_t t = 0; t < tap_count; ++t)
                    for (int64_t k = 0; k < count; ++k) {
                        const int64_t at = f + shifts[k].shift * inner, low = -at, high = outputs - at;
                        if (low >= lanes || high <= 0) continue;
                        if (low <= 0 && high >= lanes)
                            sum = collector.template add_row<lanes, false>(sum, taps[t], shifts[k].code, at, low, high);
                        else
                            sum = collector.template add_row<lanes, true>(sum, taps[t], shifts[k].code, at, low, high);
                    }
                const auto result = Element::template narrow_lanes<lanes>(sum);
                const int64_t q = f - begin;
                if (s == 1) {
                    store(row + q, result);
                } else if (pairs) {
                    if (phase == 0) store(even + q, result);
                    else store_interleaved<Stored, lanes>(row + 2 * q, load<Vec<Stored, lanes>>(even + q), reinterpret_cast<Vec<Stored, lanes>>(result));
                } else {
                    for (int i = 0; i < lanes; ++i) {
                        const int64_t output = (q + i) / inner, c = (q + i) % inner;
                        row[(output * s + phase) * inner + c] = result[i];
                    }
                }
            }
        }
        const int64_t skip = (w0 + axis.before - first * s) * inner;
        write_row(gx + w0 * inner, row + skip, (w1 - w0) * inner, streaming);
    }

    void row(Stored* gx, int64_t w0, int64_t w1, Scratch& scratch) {
        if constexpr (lanes > 1) {
            if (g.inner >= lanes) {
                for (int64_t w = w0; w < w1; ++w) {
                    const Cover windows = cover(axis, w);
                    Stored* to = gx + w * g.inner;
                    int64_t c = 0;
                    for (; c + most_vectors * lanes <= g.inner; c += most_vectors * lanes) channels<most_vectors>(to, w, windows, c);
                    if (most_vectors > 2 && c + 2 * lanes <= g.inner) { channels<2>(to, w, windows, c); c += 2 * lanes; }
                    if (c + lanes <= g.inner) { channels<1>(to, w, windows, c); c += lanes; }
                    if (c < g.inner) channels<1>(to, w, windows, g.inner - lanes);
                }
                return;
            }
            if (axis.uniform && axis.stride <= 16) return along_row(gx, w0, w1, scratch);
        }
        for (int64_t w = w0; w < w1; ++w) {
            const Cover windows = cover(axis, w);
            for (int64_t c = 0; c < g.inner; ++c) single(gx + w * g.inner, w, windows, c);
        }
    }

    void box(const Box& box, const View& gx, Scratch& scratch) {
        Tap* rows = static_cast<Tap*>(reserve(scratch, 0, sizeof(Tap) * static_cast<size_t>(most_taps(g))));
        taps = rows;
        RowWalk walk;
        if (!first_row(box, g.rank, walk)) return;
        collector.begin_image(box.n);
        do {
            tap_count = cover_taps(g, walk.at, collector.steps(), collector.code_steps(), rows);
            row(static_cast<Stored*>(gx.data) + row_offset(gx, box.n, walk, g.rank), box.low[g.rank - 1], box.high[g.rank - 1], scratch);
        } while (next_row(box, g.rank, walk));
        if (streaming) stream_fence();
    }
};

}  // namespace
}  // namespace poolgrad
