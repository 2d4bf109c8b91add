// put: the transpose of take. An input element collects the gradients of the windows whose code names it.
#include "gather.hpp"
#include "kernels.hpp"
#if defined(__AVX2__)
#include "threes.hpp"
#endif

namespace poolgrad {
namespace {

// Elements [low, high) of the lanes that begin at p; the others are zero and not touched in memory.
template <class T, int lanes> POOLGRAD_INLINE const T* copy_lanes(T (&lane)[lanes], const T* p, int64_t low, int64_t high) {
    for (int i = 0; i < lanes; ++i) lane[i] = i >= low && i < high ? p[i] : T{};
    return lane;
}

template <class E, class Code> struct Putter {
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    using I = typename IntOf<sizeof(Sum)>::type;
    static constexpr int lanes = E::lanes;
    static constexpr bool in_vectors = sizeof(Code) <= sizeof(Sum);   // a code wider than the sums does not fit their lanes
    static constexpr int together = vector_bytes == 64 ? 4 : 2;       // inputs whose sums fit registers
    using Sums = typename E::Sums;
    using Codes = Vec<I, lanes>;

    // A window that may have chosen us: where its gradient and its code are in their images, and the code that names us.
    struct Source {
        int64_t grad, code;
        int64_t wanted;
        int64_t shift;   // of the output, in elements
    };

    const Put& job;
    const Geometry& g;
    const Axis& axis;
    Scratch& scratch;
    const Stored* grad = nullptr;   // the image's
    const Code* code = nullptr;
    const Tap* taps = nullptr;
    int64_t tap_count = 0;
    const int64_t grads_ahead, codes_ahead;   // see read_ahead
    const Sum kept;                           // see after

    Putter(const Put& job, Scratch& scratch)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          scratch(scratch),
          grads_ahead(read_ahead<Stored>(g, job.g, 1, 2)),
          codes_ahead(read_ahead<Code>(g, job.code, 1, 2)),
          kept(kept_by_put<Sum>(job.assign)) {}

    static POOLGRAD_INLINE Codes widen_codes(const Code* p) {
        if constexpr (sizeof(Code) == sizeof(I)) return load<Codes>(p);
        else return reinterpret_cast<Codes>(convert<typename IntOf<sizeof(I)>::natural, lanes>(load<Vec<Code, lanes>>(p)));
    }

    // What windows whose code is `wanted` add to some vectors.
    template <int vectors>
    static POOLGRAD_INLINE void add_wanted(Sums (&sum)[vectors], const Code* codes, const Stored* grads, int64_t wanted, Sum kept) {
#if defined(__AVX512BW__)
        if constexpr (sizeof(Code) == 1 && sizeof(Sums) == 64 && sizeof(Sum) >= 4) {   // compared without being widened
            for (int u = 0; u < vectors; ++u) {
                const Sums value = E::widen_lanes(grads + u * lanes);
                sum[u] = choose_lanes(equal_bytes<lanes>(codes + u * lanes, static_cast<uint8_t>(wanted)), sum[u], after(sum[u], value, kept));
            }
            return;
        }
#endif
        const Codes all = splat<I, lanes>(static_cast<I>(wanted));
        for (int u = 0; u < vectors; ++u)
            sum[u] = widen_codes(codes + u * lanes) == all ? after(sum[u], E::widen_lanes(grads + u * lanes), kept) : sum[u];
    }

    static POOLGRAD_INLINE void write(Stored* to, Sums sum, bool streaming) {
        const auto result = E::narrow_lanes(sum);
        if (streaming) stream(to, result);
        else store(to, result);
    }

    // ---- vectors of channels ----------------------------------------------------------------------------------------

    // What all vectors of a row need, in a place that no store can change.
    struct Rows {
        const Stored* grad;
        const Code* code;
        int64_t inner;
        bool streaming;
        int64_t grads_ahead, codes_ahead;
        Sum kept;

        // Asks for what an output row later takes the place of this.
        POOLGRAD_INLINE void ask(int64_t grads, int64_t codes, int64_t count) const {
            if (grads_ahead) ask_for(grad + grads + grads_ahead, count);
            if (codes_ahead) ask_for(code + codes + codes_ahead, count);
        }
    };

    template <int vectors>
    static POOLGRAD_INLINE void channels(const Rows& rows, Stored* gx, const Source* sources, int64_t n, int64_t output, int64_t c) {
        Sums sum[vectors] = {};
        const int64_t at = output * rows.inner + c;
        if (n) rows.ask(sources[n - 1].grad + at, sources[n - 1].code + at, vectors * lanes);
        for (int64_t k = 0; k < n; ++k)
            add_wanted<vectors>(sum, rows.code + sources[k].code + at, rows.grad + sources[k].grad + at, sources[k].wanted, rows.kept);
        for (int u = 0; u < vectors; ++u) write(gx + c + u * lanes, sum[u], rows.streaming);
    }

    static POOLGRAD_INLINE void all_channels(const Rows& rows, Stored* gx, const Source* sources, int64_t n, int64_t output) {
        blocks_of_channels<lanes>(rows.inner, [=](auto vectors, int64_t c) __attribute__((always_inline)) {
            channels<decltype(vectors)::value>(rows, gx, sources, n, output, c);
        });
    }

    // Some inputs side by side, of windows with `size` elements that begin `step` apart: every window is read once for all of them.
    // The first input is where window `output` begins.
    template <int size, int step, int count> void some_inputs(const Rows& rows, Stored* gx, int64_t output) const {
        const Tap* const taps = this->taps;
        const int64_t n = tap_count, begin = output * rows.inner;
        blocks_of_channels<lanes>(rows.inner, [=](auto some, int64_t c) __attribute__((always_inline)) {
            constexpr int vectors = decltype(some)::value;
            Sums sum[count][vectors] = {};
            for (int o = 0; o < count / step; ++o)
                rows.ask(taps[n - 1].offset + begin + o * rows.inner + c, taps[n - 1].code_offset + begin + o * rows.inner + c, vectors * lanes);
            for (int64_t t = 0; t < n; ++t) {
                const Code* const codes = rows.code + taps[t].code_offset + begin + c;
                const Stored* const grads = rows.grad + taps[t].offset + begin + c;
#if defined(__AVX2__) && !defined(__AVX512BW__)
                if constexpr (sizeof(Code) == 1 && sizeof(Sum) >= 4 && Sum{1} / 2 != 0) {   // codes are widened once for all comparisons
#pragma GCC unroll 16
                    for (int o = -((size - 1) / step); o <= (count - 1) / step; ++o)
                        for (int u = 0; u < vectors; ++u) {
                            const Codes chosen = widen_codes(codes + o * rows.inner + u * lanes);
                            const Sums value = E::widen_lanes(grads + o * rows.inner + u * lanes);
#pragma GCC unroll 16
                            for (int i = 0; i < count; ++i)
                                if (i >= o * step && i < o * step + size)
                                    sum[i][u] = add_where(sum[i][u], chosen == splat<I, lanes>(static_cast<I>(taps[t].code + i - o * step)), value);
                        }
                    continue;
                }
#endif
#pragma GCC unroll 16
                for (int o = -((size - 1) / step); o <= (count - 1) / step; ++o)
#pragma GCC unroll 16
                    for (int i = 0; i < count; ++i)
                        if (i >= o * step && i < o * step + size)
                            add_wanted<vectors>(sum[i], codes + o * rows.inner, grads + o * rows.inner, taps[t].code + i - o * step, rows.kept);
            }
#pragma GCC unroll 16
            for (int i = 0; i < count; ++i)
                for (int u = 0; u < vectors; ++u) write(gx + i * rows.inner + c + u * lanes, sum[i][u], rows.streaming);
        });
    }

    // The sources of input w, whatever the axis.
    int64_t sources_of(int64_t w, Source* sources) const {
        const Cover windows = cover(axis, w);
        int64_t n = 0;
        for (int64_t t = 0; t < tap_count; ++t)
            for (int64_t o = windows.first; o < windows.last; ++o)
                if (contains(axis, o, w))
                    sources[n++] = {taps[t].offset + o * g.inner, taps[t].code_offset + o * g.inner, taps[t].code + local(axis, o, w), 0};
        return n;
    }

    // Windows [first, last) side by side, none cut short: each is read once and gives to one of the elements that it has alone.
    void whole_windows(Stored* gx, int64_t first, int64_t last) const {
        const int64_t s = axis.stride, inner = g.inner;
        const bool streaming = job.streaming;
        const I base = static_cast<I>(taps[0].code);
        const Stored* values = grad + taps[0].offset + first * inner;
        const Code* codes = code + taps[0].code_offset + first * inner;
        gx += (first * s - axis.before) * inner;
        for (int64_t o = first; o < last; ++o, values += inner, codes += inner, gx += s * inner)
            blocks_of_channels<lanes>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                constexpr int vectors = decltype(n)::value;
                Sums value[vectors];
                Codes at[vectors];
                for (int u = 0; u < vectors; ++u) {
                    value[u] = Sums{} + E::widen_lanes(values + c + u * lanes);   // a sum is never -0
                    at[u] = widen_codes(codes + c + u * lanes) - base;
                }
                for (int64_t p = 0; p < s; ++p)
                    for (int u = 0; u < vectors; ++u)
                        write(gx + p * inner + c + u * lanes, at[u] == static_cast<I>(p) ? value[u] : Sums{}, streaming);
            });
    }

    // `sources` are those of the phases, or room for those of one input; `room` is always room.
    void row_of_channels(Stored* gx, int64_t w0, int64_t w1, const Phases* phases, const Source* sources, Source* room) {
        int64_t w = w0;
        const int64_t s = axis.stride;
        const Rows rows{grad, code, g.inner, job.streaming, grads_ahead, codes_ahead, kept};
        if (phases && tap_count == 1 && axis.window == s && axis.dilation == 1) {
            const int64_t first = larger(axis.whole_begin, ceil_div(w0 + axis.before, s));
            const int64_t last = smaller(axis.whole_end, floor_div(w1 + axis.before, s));
            if (first < last) {
                for (; w < first * s - axis.before; ++w) all_channels(rows, gx + w * g.inner, room, sources_of(w, room), 0);
                whole_windows(gx, first, last);
                w = last * s - axis.before;
            }
        } else if (phases) {
            // From here to there all windows of the phases exist.
            const int64_t begin = smaller(w1, larger(w0, -phases->lowest * s - axis.before));
            const int64_t end = larger(begin, smaller(w1, (axis.count - phases->highest) * s - axis.before));
            for (; w < begin; ++w) all_channels(rows, gx + w * g.inner, room, sources_of(w, room), 0);
            const bool threes = sizeof(Code) == 1 && tap_count > 0 && axis.window == 3 && s <= 2 && axis.dilation == 1;
            for (; threes && w < end && (w + axis.before) % s; ++w) all_channels(rows, gx + w * g.inner, room, sources_of(w, room), 0);
            for (; threes && w + together <= end; w += together) {
                if (s == 1) some_inputs<3, 1, together>(rows, gx + w * g.inner, w + axis.before);
                else some_inputs<3, 2, together>(rows, gx + w * g.inner, (w + axis.before) / 2);
            }
            for (int64_t phase = 0; !threes && phase < s; ++phase) {
                const int64_t first = ceil_div(begin + axis.before - phase, s), last = ceil_div(end + axis.before - phase, s);
                const Source* from = sources + phases->begin[phase] * tap_count;
                const int64_t n = (phases->begin[phase + 1] - phases->begin[phase]) * tap_count;
                Stored* to = gx + (first * s + phase - axis.before) * g.inner;
                for (int64_t j = first; j < last; ++j, to += s * g.inner) all_channels(rows, to, from, n, j);
            }
            if (!threes) w = end;
        }
        for (; w < w1; ++w) all_channels(rows, gx + w * g.inner, room, sources_of(w, room), 0);
    }

    // ---- vectors along the row --------------------------------------------------------------------------------------

    // The sources of all phases, relative to output 0, in ascending order of the windows.
    void phase_sources(const Phases& phases, Source* sources) const {
        for (int64_t phase = 0; phase < axis.stride; ++phase)
            for (int64_t t = 0; t < tap_count; ++t)
                for (int64_t k = phases.begin[phase]; k < phases.begin[phase + 1]; ++k) {
                    const Shift& s = phases.shifts[k];
                    *sources++ = {taps[t].offset + s.shift * g.inner, taps[t].code_offset + s.shift * g.inner, taps[t].code + s.code,
                                  s.shift * g.inner};
                }
    }

    template <int vectors> POOLGRAD_INLINE void collect(Sums (&sum)[vectors], const Source* sources, int64_t n, int64_t f) const {
        for (int u = 0; u < vectors; ++u) sum[u] = Sums{};
        for (int64_t k = 0; k < n; ++k) add_wanted<vectors>(sum, code + sources[k].code + f, grad + sources[k].grad + f, sources[k].wanted, kept);
    }

    // The same where some lanes lie outside the row of outputs.
    __attribute__((noinline)) Sums collect_at_border(const Source* sources, int64_t n, int64_t f) const {
        Sums sum{};
        const int64_t outputs = axis.count * g.inner;
        for (int64_t k = 0; k < n; ++k) {
            const int64_t low = -(f + sources[k].shift), high = outputs + low;
            if (low >= lanes || high <= 0) continue;
            const Stored* values = grad + sources[k].grad + f;
            const Code* codes = code + sources[k].code + f;
            alignas(64) Stored value_lanes[lanes];
            alignas(64) Code code_lanes[lanes];
            if (values < static_cast<const Stored*>(job.g.begin) || values + lanes > static_cast<const Stored*>(job.g.end))
                values = copy_lanes(value_lanes, values, low, high);
            if (codes < static_cast<const Code*>(job.code.begin) || codes + lanes > static_cast<const Code*>(job.code.end))
                codes = copy_lanes(code_lanes, codes, low, high);
            const Codes hit = (widen_codes(codes) == static_cast<I>(sources[k].wanted)) & lane_mask<I, lanes>(low, high);
            sum = hit ? after(sum, E::widen_lanes(values), kept) : sum;
        }
        return sum;
    }

    // Some vectors of every phase; at the border one.
    template <int vectors, bool border>
    POOLGRAD_INLINE void block_of_row(const PhasedRow<Stored>& row, const Source* sources, const Phases& phases, int64_t begin, int64_t f) const {
        using Narrow = Vec<Stored, lanes>;
        const auto of_phase = [&](int64_t phase, Narrow(&result)[vectors]) __attribute__((always_inline)) {
            const Source* from = sources + phases.begin[phase] * tap_count;
            const int64_t n = (phases.begin[phase + 1] - phases.begin[phase]) * tap_count;
            Sums sum[vectors];
            if constexpr (border) sum[0] = collect_at_border(from, n, f);
            else collect<vectors>(sum, from, n, f);
            for (int u = 0; u < vectors; ++u) result[u] = E::narrow_lanes(sum[u]);
        };
        row.template put<lanes, vectors>(f - begin, of_phase);
    }

    // What all rows of a box have in common.
    struct RowPlan {
        int64_t begin, end;         // flat (output, channel) range of the phases
        int64_t inside, outside;    // in between, all windows of the phases exist
        int64_t skip;               // what the first phases write before the box
        PhasedRow<Stored> row;
    };

    RowPlan row_plan(const Phases& phases, int64_t w0, int64_t w1) const {
        const int64_t s = axis.stride, inner = g.inner;
        const int64_t first = floor_div(w0 + axis.before, s), last = floor_div(w1 - 1 + axis.before, s) + 1;
        const int64_t count = (last - first) * inner;
        Stored* row = static_cast<Stored*>(reserve(scratch, 1, sizeof(Stored) * static_cast<size_t>(PhasedRow<Stored>::room(count, s))));
        return {first * inner,
                last * inner,
                -phases.lowest * inner,
                (axis.count - phases.highest) * inner,
                (w0 + axis.before - first * s) * inner,
                {row, count, inner, s}};
    }

    void row_of_elements(Stored* gx, int64_t count, const RowPlan& plan, const Phases& phases, const Source* sources, int64_t furthest_grad,
                         int64_t furthest_code) {
        // Lanes that no result depends on may be read outside the row, but never outside the arrays.
        const int64_t safe =
            smaller(static_cast<const Stored*>(job.g.end) - grad - furthest_grad, static_cast<const Code*>(job.code.end) - code - furthest_code);
        int64_t f = plan.begin;
        for (; f < plan.end && f < plan.inside; f += lanes) block_of_row<1, true>(plan.row, sources, phases, plan.begin, f);
        const int64_t whole = smaller(plan.outside, safe);
        for (; f + 2 * lanes <= smaller(plan.end, whole); f += 2 * lanes) block_of_row<2, false>(plan.row, sources, phases, plan.begin, f);
        for (; f < plan.end; f += lanes) {
            if (smaller(f + lanes, plan.end) <= plan.outside && f + lanes <= safe) block_of_row<1, false>(plan.row, sources, phases, plan.begin, f);
            else block_of_row<1, true>(plan.row, sources, phases, plan.begin, f);
        }
        plan.row.finish();
        write_row(gx, plan.row.row + plan.skip, count, job.streaming);
    }

    // ---- one by one -------------------------------------------------------------------------------------------------

    void row_one_by_one(Stored* gx, int64_t w0, int64_t w1, Source* sources) {
        for (int64_t w = w0; w < w1; ++w) {
            const int64_t n = sources_of(w, sources);
            for (int64_t c = 0; c < g.inner; ++c) {
                Sum sum{};
                for (int64_t k = 0; k < n; ++k) {
                    if (static_cast<int64_t>(code[sources[k].code + c]) != sources[k].wanted) continue;
                    sum = after(sum, E::widen_one(grad[sources[k].grad + c]), kept);
                }
                gx[w * g.inner + c] = E::narrow_one(sum);
            }
        }
    }

    void box(const Box& box) {
        const int last = g.rank - 1;
        const int64_t w0 = box.low[last], w1 = box.high[last];
        RowWalk walk;
        if (!first_row(box, g.rank, walk)) return;
        Tap* rows = static_cast<Tap*>(reserve(scratch, 0, sizeof(Tap) * static_cast<size_t>(most_cover_taps(g))));
        taps = rows;
        const bool by_phase = axis.uniform && axis.stride <= 16 && axis.window <= 4096;
        int64_t most = axis.window;   // of the sources of one input, or of all phases together
        if (axis.starts)
            for (int64_t w = w0; w < w1; ++w) most = larger(most, cover(axis, w).last - cover(axis, w).first);
        Source* sources = static_cast<Source*>(reserve(scratch, 2, sizeof(Source) * static_cast<size_t>(most * most_cover_taps(g))));
        const Phases phases = by_phase ? Phases(axis, scratch, 6) : Phases();
        Source* room = static_cast<Source*>(reserve(scratch, 4, sizeof(Source) * static_cast<size_t>(most * most_cover_taps(g))));
        const bool along_row = in_vectors && by_phase && g.inner < lanes;
        const RowPlan plan = along_row ? row_plan(phases, w0, w1) : RowPlan{};
        do {
            tap_count = cover_taps(g, walk.at, job.g.step, job.code.step, rows);
            if (by_phase) phase_sources(phases, sources);
            int64_t furthest_grad = 0, furthest_code = 0;
            for (int64_t k = 0; along_row && k < phases.begin[axis.stride] * tap_count; ++k) {
                furthest_grad = larger(furthest_grad, sources[k].grad);
                furthest_code = larger(furthest_code, sources[k].code);
            }
            for (int64_t n = box.n; n < box.n_end; ++n) {   // the same rows of all images
                grad = static_cast<const Stored*>(job.g.data) + outer_offset(job.g, n);
                code = static_cast<const Code*>(job.code.data) + outer_offset(job.code, n);
                Stored* to = static_cast<Stored*>(job.gx.data) + row_offset(job.gx, n, walk, g.rank);
                if constexpr (sizeof(Code) == 4) {   // the kernel sees to it that there are vectors of channels
                    row_of_channels(to, w0, w1, by_phase ? &phases : nullptr, sources, room);
                } else if constexpr (in_vectors) {
                    if (g.inner >= lanes) row_of_channels(to, w0, w1, by_phase ? &phases : nullptr, sources, room);
                    else if (along_row) row_of_elements(to + w0 * g.inner, (w1 - w0) * g.inner, plan, phases, sources, furthest_grad, furthest_code);
                    else row_one_by_one(to, w0, w1, room);
                } else {
                    row_one_by_one(to, w0, w1, room);
                }
            }
        } while (next_row(box, g.rank, walk));
        if (job.streaming) stream_fence();
    }
};

}  // namespace

void POOLGRAD_KERNEL(put_coded)(const Put&, const Box&, Scratch&);

// Whether every element lies in one window at most, and at least so many channels in each element.
static bool one_each(const Geometry& g, int64_t lanes) {
    bool alone = g.inner >= lanes;
    for (int d = 0; d < g.rank; ++d)
        alone &= g.axes[d].count <= 1 || (g.axes[d].uniform && (g.axes[d].window - 1) * g.axes[d].dilation < g.axes[d].stride);
    return alone;
}

void POOLGRAD_KERNEL(put)(const Put& job, const Box& box, Scratch& scratch) {
    with_put_sum(job.type, job.assign, [&](auto element) {
        using E = decltype(element);
        if (job.code_width > 2) {   // windows of so many elements are better not visited
            if constexpr (sizeof(typename E::Stored) >= 4)
                if (job.code_width == 4 && one_each(*job.geometry, E::lanes)) return Putter<E, uint32_t>(job, scratch).box(box);
            return POOLGRAD_KERNEL(put_coded)(job, box, scratch);
        }
#if defined(__AVX2__)
        if constexpr (E::lanes <= 16 && typename E::Sum{1} / 2 != 0) {   // where halves exist
            const int apart = job.code_width == 1 ? threes_apart(*job.geometry) : 0;
            const bool flat = job.geometry->rank == 2;
            if (apart == 1 && flat) return Threes<E, 1>(job, box, scratch).run();
            if (apart == 2 && (flat || Threes<E, 2>::crosses_planes)) return Threes<E, 2>(job, box, scratch).run();
        }
#endif
        if (job.code_width == 1) Putter<E, uint8_t>(job, scratch).box(box);
        else Putter<E, uint16_t>(job, scratch).box(box);
    });
}

}  // namespace poolgrad
