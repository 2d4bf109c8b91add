// mean and spread: averages over the real elements of every window, and their transpose.
//
// float16 and bfloat16 are summed in float32, float32 in float64, integers in 64 or 128 bits; each result is rounded once.
#include "gather.hpp"
#include "kernels.hpp"

namespace poolgrad {
namespace {

template <class E> struct Averager {
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    static constexpr bool vectors_exist = sizeof(Sum) <= 8;
    static constexpr int lanes = vectors_exist ? vector_bytes / sizeof(Sum) : 1;
    using Values = Vec<Stored, lanes>;
    using I = typename IntOf<vectors_exist ? sizeof(Sum) : 8>::type;

    const Mean& job;
    const Geometry& g;
    const Axis& axis;
    const Tap* taps = nullptr;
    int64_t tap_count = 0;
    const Stored* x = nullptr;
    Stored* y = nullptr;

    explicit Averager(const Mean& job) : job(job), g(*job.geometry), axis(g.axes[g.rank - 1]) {}

    const View& source() const { return job.x; }

    void begin_row(const Tap* row_taps, int64_t n, int64_t image, const RowWalk& walk) {
        taps = row_taps;
        tap_count = n;
        x = static_cast<const Stored*>(job.x.data) + outer_offset(job.x, image);
        y = static_cast<Stored*>(job.y.data) + row_offset(job.y, image, walk, g.rank);
    }

    void finish() { if (job.streaming) stream_fence(); }

    template <int vectors> POOLGRAD_INLINE void channels(const Window& window, int64_t c) {
        Vec<Sum, lanes> sum[vectors] = {};
        const int64_t step = axis.dilation * g.inner;
        for (int64_t t = 0; t < tap_count; ++t) {
            const Stored* p = x + taps[t].offset + window.position * g.inner + c;
            for (int64_t j = 0; j < window.length; ++j, p += step)
                for (int u = 0; u < vectors; ++u) sum[u] += E::template widen_lanes<lanes>(p + u * lanes);
        }
        const Sum count = static_cast<Sum>(tap_count * window.length);
        Stored* to = y + window.output * g.inner + c;
        for (int u = 0; u < vectors; ++u) {
            const auto result = E::template narrow_lanes<lanes>(sum[u] / count);
            if (job.streaming) stream(to + u * lanes, result);
            else store(to + u * lanes, result);
        }
    }

    template <class Step, bool masked> POOLGRAD_INLINE void row(const RowBlock& block) {
        Vec<Sum, lanes> sum{}, count{};
        const int64_t step = axis.dilation * g.inner;
        for (int64_t t = 0; t < tap_count; ++t)
            for (int64_t j = 0; j < axis.window; ++j) {
                const Values lanes_read = Step::template get<Stored, lanes>(x + taps[t].offset + block.position + j * step);
                const auto value = E::template widen_lanes<lanes>(reinterpret_cast<const Stored*>(&lanes_read));
                if constexpr (masked) {
                    const auto real = real_lanes<I, lanes>(axis, g.inner, block, j);
                    sum = real ? sum + value : sum;
                    count = real ? count + Sum{1} : count;
                } else {
                    sum += value;
                }
            }
        if constexpr (masked) count = count == Sum{0} ? count + Sum{1} : count;   // lanes that are not written
        else count += static_cast<Sum>(tap_count * axis.window);
        const auto result = E::template narrow_lanes<lanes>(sum / count);
        __builtin_memcpy(y + block.output, &result, sizeof(Stored) * static_cast<size_t>(block.count));
    }

    void single(const Window& window, int64_t c) {
        Sum sum{};
        const int64_t step = axis.dilation * g.inner;
        for (int64_t t = 0; t < tap_count; ++t) {
            const Stored* p = x + taps[t].offset + window.position * g.inner + c;
            for (int64_t j = 0; j < window.length; ++j) sum += E::widen_one(p[j * step]);
        }
        y[window.output * g.inner + c] = E::narrow_one(sum / static_cast<Sum>(tap_count * window.length));
    }
};

template <class E> void run_mean(const Mean& job, const Box& box, Scratch& scratch) {
    Averager<E> r(job);
    reduce_box(r, *job.geometry, box, scratch);
}

// ---- spread ---------------------------------------------------------------------------------------------------------

template <class E> struct SpreadCollector {
    using Element = E;
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    using I = typename IntOf<sizeof(Sum)>::type;
    static constexpr int lanes = vector_bytes / sizeof(Sum);

    const Spread& job;
    const Geometry& g;
    const Axis& axis;
    const Stored* grad = nullptr;

    void begin_image(int64_t n) { grad = static_cast<const Stored*>(job.g.data) + outer_offset(job.g, n); }
    const int64_t* steps() const { return job.g.step; }
    const int64_t* code_steps() const { return job.g.step; }

    POOLGRAD_INLINE Sum rule(const Tap& tap, int64_t o, int64_t) const { return Sum{1} / static_cast<Sum>(tap.count * span(axis, o).length); }

    template <int n> POOLGRAD_INLINE Vec<Sum, n> add(Vec<Sum, n> sum, Sum weight, const Tap& tap, int64_t at) const {
        return sum + E::template widen_lanes<n>(grad + tap.offset + at) * weight;
    }

    template <int n, bool partly> POOLGRAD_INLINE Vec<Sum, n> add_row(Vec<Sum, n> sum, const Tap& tap, int64_t, int64_t at, int64_t low, int64_t high) const {
        const Stored* values = grad + tap.offset + at;
        const int64_t o0 = (at + larger(low, 0)) / g.inner, o1 = (at + smaller(high, n) - 1) / g.inner;
        alignas(64) Stored value_lanes[n];
        if constexpr (partly) {
            copy_lanes(value_lanes, values, low, high);
            values = value_lanes;
        }
        const auto value = E::template widen_lanes<n>(values);
        if (o0 * axis.stride >= axis.before && o1 * axis.stride - axis.before + (axis.window - 1) * axis.dilation < axis.size)
            return sum + value * (Sum{1} / static_cast<Sum>(tap.count * axis.window));
        Vec<Sum, n> count = splat<Sum, n>(1);
        for (int64_t i = larger(low, 0); i < smaller(high, n); ++i) count[i] = static_cast<Sum>(tap.count * span(axis, (at + i) / g.inner).length);
        return sum + value * (Sum{1} / count);
    }

    POOLGRAD_INLINE Sum add_one(Sum sum, const Tap& tap, int64_t o, int64_t local, int64_t at) const {
        return sum + E::widen_one(grad[tap.offset + at]) * rule(tap, o, local);
    }
};

// Integers are shared out one by one.
template <class E> struct IntegerSpread {
    using Element = E;
    static constexpr int lanes = 1;

    const Spread& job;
    const Geometry& g;
    const Axis& axis;
    const typename E::Stored* grad = nullptr;

    void begin_image(int64_t n) { grad = static_cast<const typename E::Stored*>(job.g.data) + outer_offset(job.g, n); }
    const int64_t* steps() const { return job.g.step; }
    const int64_t* code_steps() const { return job.g.step; }

    Double2 add_one(Double2 sum, const Tap& tap, int64_t o, int64_t, int64_t at) const {
        return sum + E::share(grad[tap.offset + at], tap.count * span(axis, o).length);
    }
};

template <class E> constexpr bool is_integer_share = __is_same(typename E::Sum, Double2);

template <class E> void run_spread(const Spread& job, const Box& box, Scratch& scratch) {
    const Geometry& g = *job.geometry;
    const Axis& axis = g.axes[g.rank - 1];
    if constexpr (is_integer_share<E>) Gatherer<IntegerSpread<E>>({job, g, axis}, g, false).box(box, job.gx, scratch);
    else Gatherer<SpreadCollector<E>>({job, g, axis}, g, job.streaming).box(box, job.gx, scratch);
}

}  // namespace

void POOLGRAD_KERNEL(mean)(const Mean& job, const Box& box, Scratch& scratch) {
    with_exact_sum(job.type, [&](auto element) { run_mean<decltype(element)>(job, box, scratch); });
}

void POOLGRAD_KERNEL(spread)(const Spread& job, const Box& box, Scratch& scratch) {
    with_share(job.type, [&](auto element) { run_spread<decltype(element)>(job, box, scratch); });
}

}  // namespace poolgrad
