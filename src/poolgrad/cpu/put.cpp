// put: the transpose of take. An input element collects the gradients of the windows whose code names it.
#include "gather.hpp"
#include "kernels.hpp"

namespace poolgrad {
namespace {

template <class E, class Code, bool assign> struct PutCollector {
    using Element = E;
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    using I = typename IntOf<sizeof(Sum)>::type;
    // A code wider than the sums does not fit their lanes.
    static constexpr int lanes = sizeof(Code) <= sizeof(Sum) ? vector_bytes / sizeof(Sum) : 1;

    const Put& job;
    const Geometry& g;
    const Stored* grad = nullptr;
    const Code* code = nullptr;

    void begin_image(int64_t n) {
        grad = static_cast<const Stored*>(job.g.data) + outer_offset(job.g, n);
        code = static_cast<const Code*>(job.code.data) + outer_offset(job.code, n);
    }
    const int64_t* steps() const { return job.g.step; }
    const int64_t* code_steps() const { return job.code.step; }

    POOLGRAD_INLINE I rule(const Tap& tap, int64_t, int64_t local) const { return static_cast<I>(tap.code + local); }

    template <int n> static POOLGRAD_INLINE Vec<I, n> widen_codes(const Code* p) {
        using U = Vec<typename IntOf<sizeof(I)>::natural, n>;
        if constexpr (sizeof(Code) == sizeof(I)) return load<Vec<I, n>>(p);
        else return reinterpret_cast<Vec<I, n>>(convert<U>(load<Vec<Code, n>>(p)));
    }

    template <int n> static POOLGRAD_INLINE Vec<Sum, n> select(Vec<Sum, n> sum, Vec<I, n> hit, Vec<Sum, n> value) {
        if constexpr (assign) return hit ? value : sum;
        else return hit ? sum + value : sum;
    }

    template <int n> POOLGRAD_INLINE Vec<Sum, n> add(Vec<Sum, n> sum, I wanted, const Tap& tap, int64_t at) const {
        const Vec<I, n> hit = widen_codes<n>(code + tap.code_offset + at) == wanted;
        return select<n>(sum, hit, E::template widen_lanes<n>(grad + tap.offset + at));
    }

    template <int n, bool partly> POOLGRAD_INLINE Vec<Sum, n> add_row(Vec<Sum, n> sum, const Tap& tap, int64_t local, int64_t at, int64_t low, int64_t high) const {
        const Stored* values = grad + tap.offset + at;
        const Code* codes = code + tap.code_offset + at;
        const I wanted = rule(tap, 0, local);
        if constexpr (!partly) {
            return select<n>(sum, widen_codes<n>(codes) == wanted, E::template widen_lanes<n>(values));
        } else {
            alignas(64) Stored value_lanes[n];
            alignas(64) Code code_lanes[n];
            if (values < static_cast<const Stored*>(job.g.begin) || values + n > static_cast<const Stored*>(job.g.end)) {
                copy_lanes(value_lanes, values, low, high);
                values = value_lanes;
            }
            if (codes < static_cast<const Code*>(job.code.begin) || codes + n > static_cast<const Code*>(job.code.end)) {
                copy_lanes(code_lanes, codes, low, high);
                codes = code_lanes;
            }
            const Vec<I, n> hit = (widen_codes<n>(codes) == wanted) & lane_mask<I, n>(low, high);
            return select<n>(sum, hit, E::template widen_lanes<n>(values));
        }
    }

    POOLGRAD_INLINE Sum add_one(Sum sum, const Tap& tap, int64_t, int64_t local, int64_t at) const {
        if (static_cast<int64_t>(code[tap.code_offset + at]) != tap.code + local) return sum;
        const Sum value = E::widen_one(grad[tap.offset + at]);
        return assign ? value : static_cast<Sum>(sum + value);
    }
};

template <class E, class Code> void run(const Put& job, const Box& box, Scratch& scratch) {
    const Geometry& g = *job.geometry;
    if (job.assign) Gatherer<PutCollector<E, Code, true>>({job, g}, g, job.streaming).box(box, job.gx, scratch);
    else Gatherer<PutCollector<E, Code, false>>({job, g}, g, job.streaming).box(box, job.gx, scratch);
}

template <class E> void run_element(const Put& job, const Box& box, Scratch& scratch) {
    switch (job.code_width) {
        case 1: return run<E, uint8_t>(job, box, scratch);
        case 2: return run<E, uint16_t>(job, box, scratch);
        case 4: return run<E, uint32_t>(job, box, scratch);
        default: return run<E, uint64_t>(job, box, scratch);
    }
}

}  // namespace

void POOLGRAD_KERNEL(put)(const Put& job, const Box& box, Scratch& scratch) {
    with_wrapping_sum(job.type, [&](auto element) { run_element<decltype(element)>(job, box, scratch); });
}

}  // namespace poolgrad
