// The kernels for large overlapping windows: maxima and sums by doubling along one axis.
#include "kernels.hpp"
#include "sums.hpp"

namespace poolgrad {
namespace {

POOLGRAD_INLINE int log2_floor(int64_t n) { return 63 - __builtin_clzll(static_cast<unsigned long long>(n)); }

// How many columns are worked on together: enough to fill vectors, few enough to stay in the cache.
POOLGRAD_INLINE int64_t columns_at_once(int64_t size, int64_t bytes) {
    return larger(16, smaller(256, (int64_t{1} << 18) / larger(1, size * bytes)));
}

// ---- maximum --------------------------------------------------------------------------------------------------------

// Keys of narrow types are widened to 32 bits, so that a key and a position have lanes of one width.
template <class Key> struct Widened {
    using type = Key;
};
template <> struct Widened<int8_t> {
    using type = int32_t;
};
template <> struct Widened<int16_t> {
    using type = int32_t;
};

// Windows that follow each other at a distance of one and are equally long lie side by side in memory: how many from `o` on.
POOLGRAD_INLINE int64_t side_by_side(const Axis& axis, int64_t o) {
    if (!axis.uniform || axis.stride != 1 || o < axis.whole_begin || o >= axis.whole_end) return 1;
    return axis.whole_end - o;
}

template <class Order, bool with_codes> void axis_maximum_run(const AxisMaximum& job, const Columns& at, Scratch& scratch, Order order) {
    using Narrow = typename Order::Key;
    using Key = typename Widened<Narrow>::type;
    using Position = typename IntOf<sizeof(Key)>::type;
    constexpr int lanes = vector_bytes / sizeof(Key);
    using Keys = Vec<Key, lanes>;
    using Positions = Vec<Position, lanes>;
    const Axis& axis = *job.axis;
    const int64_t n = axis.size, m = axis.count, d = axis.dilation;
    const int64_t block = columns_at_once(n, sizeof(Key) + sizeof(Position));
    const auto wins = [&](Key x, Key best) { return order.wins_one(static_cast<Narrow>(x), static_cast<Narrow>(best)); };
    const auto give = [&](int64_t to, Key key) {
        if (job.keys_out) static_cast<Key*>(job.keys_out)[to] = key;
        if (job.values_out) static_cast<typename Order::Stored*>(job.values_out)[to] = order.value(static_cast<Narrow>(key));
    };
    for (int64_t c0 = at.low; c0 < at.high; c0 += block) {
        const int64_t width = smaller(block, at.high - c0), total = n * width;
        Key* keys = static_cast<Key*>(reserve(scratch, 0, sizeof(Key) * static_cast<size_t>(total + lanes)));
        Position* from = static_cast<Position*>(reserve(scratch, 1, sizeof(Position) * static_cast<size_t>(total + lanes)));
        Key* best = static_cast<Key*>(reserve(scratch, 2, sizeof(Key) * static_cast<size_t>(m * width + lanes)));
        for (int64_t i = 0; i < n; ++i) {
            const int64_t source = (at.line * n + i) * job.columns + c0;
            for (int64_t c = 0; c < width; ++c) {
                if (job.raw) keys[i * width + c] = order.key(static_cast<const typename Order::Stored*>(job.raw)[source + c]);
                else keys[i * width + c] = static_cast<const Key*>(job.keys)[source + c];
                if constexpr (with_codes) from[i * width + c] = static_cast<Position>(i);
            }
        }
        int64_t longest = 1;
        for (int level = 0; (int64_t{1} << level) <= longest; ++level) {
            const int64_t half = int64_t{1} << level;   // keys[i] is the maximum of `half` elements from i on
            for (int64_t o = 0; o < m;) {
                const Span s = span(axis, o);
                const int64_t run = with_codes ? 1 : side_by_side(axis, o);
                if (s.length > longest) longest = s.length;
                const int64_t here = o;
                o += run;
                if (log2_floor(s.length) != level) continue;
                const int64_t start = origin(axis, here) + s.first * d, first = start * width, second = (start + (s.length - half) * d) * width;
                if constexpr (with_codes) {
                    const int64_t to = (at.line * m + here) * job.columns + c0;
                    for (int64_t c = 0; c < width; ++c) {
                        const bool later = wins(keys[second + c], keys[first + c]);
                        const int64_t chosen = (later ? second : first) + c, position = from[chosen];
                        const int64_t code = (d == 1 ? position - start : (position - start) / d) + s.first;
                        const uint32_t behind = job.codes ? job.codes[(at.line * n + position) * job.columns + c0 + c] : 0;
                        job.codes_out[to + c] = static_cast<uint32_t>(code * job.code_step) + behind;
                        give(to + c, keys[chosen]);
                    }
                } else {
                    int64_t q = 0;
                    Key* to = best + here * width;
                    for (; q + lanes <= run * width; q += lanes) {
                        const Keys a = load<Keys>(keys + first + q), b = load<Keys>(keys + second + q);
                        store(to + q, Positions(order.wins(b, a)) ? b : a);
                    }
                    for (; q < run * width; ++q) to[q] = wins(keys[second + q], keys[first + q]) ? keys[second + q] : keys[first + q];
                }
            }
            const int64_t shift = half * d * width;
            int64_t t = 0;   // what is read ahead is written later, so this can be done in place
            for (; t + shift + lanes <= total; t += lanes) {
                const Keys a = load<Keys>(keys + t), b = load<Keys>(keys + t + shift);
                const Positions later = order.wins(b, a);
                store(keys + t, later ? b : a);
                if constexpr (with_codes) store(from + t, later ? load<Positions>(from + t + shift) : load<Positions>(from + t));
            }
            for (; t + shift < total; ++t)
                if (wins(keys[t + shift], keys[t])) keys[t] = keys[t + shift], from[t] = from[t + shift];
        }
        if constexpr (!with_codes) {
            for (int64_t o = 0; o < m; ++o)
                for (int64_t c = 0; c < width; ++c) give((at.line * m + o) * job.columns + c0 + c, best[o * width + c]);
        }
    }
}

// ---- sum ------------------------------------------------------------------------------------------------------------

template <class Sum> void axis_sum_run(const AxisSum& job, const Columns& at, Scratch& scratch) {
    const Axis& axis = *job.axis;
    const int64_t n = job.transposed ? axis.count : axis.size, m = job.transposed ? axis.size : axis.count;
    const int64_t d = job.transposed ? 1 : axis.dilation, block = columns_at_once(n + m, sizeof(Sum));
    const Sum* in = static_cast<const Sum*>(job.sums);
    Sum* out = static_cast<Sum*>(job.sums_out);
    const auto interval = [&](int64_t o, int64_t& start, int64_t& length) {
        if (job.transposed) {
            const Cover c = cover(axis, o);
            start = c.first, length = c.last - c.first;
        } else {
            const Span s = span(axis, o);
            start = origin(axis, o) + s.first * d, length = s.length;
        }
    };
    for (int64_t c0 = at.low; c0 < at.high; c0 += block) {
        const int64_t width = smaller(block, at.high - c0), total = n * width;
        Sum* sums = static_cast<Sum*>(reserve(scratch, 0, sizeof(Sum) * static_cast<size_t>(total + 64)));
        for (int64_t i = 0; i < n; ++i)
            __builtin_memcpy(sums + i * width, in + (at.line * n + i) * job.columns + c0, sizeof(Sum) * static_cast<size_t>(width));
        for (int64_t o = 0; o < m; ++o)
            __builtin_memset(static_cast<void*>(out + (at.line * m + o) * job.columns + c0), 0, sizeof(Sum) * static_cast<size_t>(width));
        int64_t longest = 1;
        for (int level = 0; (int64_t{1} << level) <= longest; ++level) {
            const int64_t half = int64_t{1} << level;   // sums[i] is the sum of `half` elements from i on
            for (int64_t o = 0; o < m;) {               // a window is a sum of such pieces, the shortest first
                int64_t start, length;
                interval(o, start, length);
                const int64_t run = job.transposed || width != job.columns ? 1 : side_by_side(axis, o), here = o;
                o += run;
                if (length > longest) longest = length;
                if (!(length >> level & 1)) continue;
                const Sum* __restrict piece = sums + (start + (length & (half - 1)) * d) * width;
                Sum* __restrict to = out + (at.line * m + here) * job.columns + c0;
                for (int64_t c = 0; c < run * width; ++c) to[c] = to[c] + piece[c];
            }
            const int64_t shift = half * d * width;
            int64_t t = 0;
            if constexpr (sizeof(Sum) <= 8) {
                constexpr int lanes = vector_bytes / sizeof(Sum);
                using V = Vec<Sum, lanes>;
                for (; t + shift + lanes <= total; t += lanes) store(sums + t, load<V>(sums + t) + load<V>(sums + t + shift));
            }
            for (; t + shift < total; ++t) sums[t] = sums[t] + sums[t + shift];
        }
    }
}

// ---- from elements to sums and back ---------------------------------------------------------------------------------

// Calls visit(position in the view, position in the dense array of sums, the window's divisor) for every element.
template <class Visit> POOLGRAD_INLINE void every_element(const Geometry& g, const Box& box, const View& view, bool outputs, Visit&& visit) {
    const int last = g.rank - 1;
    RowWalk walk;
    if (!first_row(box, g.rank, walk)) return;
    do {
        int64_t dense = box.n, divided_by = 1;
        for (int a = 0; a < last; ++a) {
            dense = dense * (outputs ? g.axes[a].count : g.axes[a].size) + walk.at[a];
            if (outputs) divided_by *= divisor(g.axes[a], walk.at[a]);
        }
        dense *= (outputs ? g.axes[last].count : g.axes[last].size);
        const int64_t row = row_offset(view, box.n, walk, g.rank);
        for (int64_t w = box.low[last]; w < box.high[last]; ++w) {
            const int64_t here = outputs ? divided_by * divisor(g.axes[last], w) : 1;
            for (int64_t c = 0; c < g.inner; ++c) visit(row + w * g.inner + c, (dense + w) * g.inner + c, here);
        }
    } while (next_row(box, g.rank, walk));
}

template <class E> void mean_begin_run(const Mean& job, const Box& box, void* sums) {
    every_element(*job.geometry, box, job.x, false, [&](int64_t from, int64_t to, int64_t) {
        static_cast<typename E::Sum*>(sums)[to] = E::widen_one(static_cast<const typename E::Stored*>(job.x.data)[from]);
    });
}

template <class E> void mean_end_run(const Mean& job, const Box& box, const void* sums) {
    every_element(*job.geometry, box, job.y, true, [&](int64_t to, int64_t from, int64_t divisor) {
        static_cast<typename E::Stored*>(job.y.data)[to] = E::average_one(static_cast<const typename E::Sum*>(sums)[from], divisor);
    });
}

template <class E> void spread_begin_run(const Spread& job, const Box& box, void* sums) {
    every_element(*job.geometry, box, job.g, true, [&](int64_t from, int64_t to, int64_t divisor) {
        static_cast<typename E::Sum*>(sums)[to] =
            E::share_one(E::widen_one(static_cast<const typename E::Stored*>(job.g.data)[from]), E::weigh(divisor));
    });
}

template <class E> void spread_end_run(const Spread& job, const Box& box, const void* sums) {
    every_element(*job.geometry, box, job.gx, false, [&](int64_t to, int64_t from, int64_t) {
        static_cast<typename E::Stored*>(job.gx.data)[to] = E::narrow_one(static_cast<const typename E::Sum*>(sums)[from]);
    });
}

}  // namespace

void POOLGRAD_KERNEL(axis_maximum)(const AxisMaximum& job, const Columns& at, Scratch& scratch) {
    with_order(job.type, job.ignore_nan, [&](auto order) {
        if (job.codes_out) axis_maximum_run<decltype(order), true>(job, at, scratch, order);
        else axis_maximum_run<decltype(order), false>(job, at, scratch, order);
    });
}

void POOLGRAD_KERNEL(axis_sum)(const AxisSum& job, const Columns& at, Scratch& scratch) {
    if (job.type == DType::f64 || (job.type >= DType::i8 && job.transposed)) return axis_sum_run<Double2>(job, at, scratch);
    switch (job.type) {
        case DType::f16:
        case DType::bf16:
        case DType::f32: return axis_sum_run<double>(job, at, scratch);
        case DType::i64:
        case DType::u64: return axis_sum_run<__int128>(job, at, scratch);
        default: return axis_sum_run<int64_t>(job, at, scratch);
    }
}

void POOLGRAD_KERNEL(mean_begin)(const Mean& job, const Box& box, void* sums) {
    with_exact_sum(job.type, true, [&](auto element) { mean_begin_run<decltype(element)>(job, box, sums); });
}
void POOLGRAD_KERNEL(mean_end)(const Mean& job, const Box& box, const void* sums) {
    with_exact_sum(job.type, true, [&](auto element) { mean_end_run<decltype(element)>(job, box, sums); });
}
void POOLGRAD_KERNEL(spread_begin)(const Spread& job, const Box& box, void* sums) {
    with_share(job.type, true, [&](auto element) { spread_begin_run<decltype(element)>(job, box, sums); });
}
void POOLGRAD_KERNEL(spread_end)(const Spread& job, const Box& box, const void* sums) {
    with_share(job.type, true, [&](auto element) { spread_end_run<decltype(element)>(job, box, sums); });
}

}  // namespace poolgrad
