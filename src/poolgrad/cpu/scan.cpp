// choose, take and their fusions: the kernels that pick one element of every window.
#include "kernels.hpp"
#include "reduce.hpp"

namespace poolgrad {
namespace {

template <class Order, Mode mode, What what> struct Scanner {
    using Stored = typename Order::Stored;
    using Key = typename Order::Key;
    using I = typename IntOf<sizeof(Key)>::type;
    static constexpr int lanes = vector_bytes / sizeof(Key);
    static constexpr bool writes_code = what == What::code || what == What::both;
    static constexpr bool writes_value = what != What::code;
    // The winner's bits are carried along where they cannot be had back from the key.
    static constexpr bool carries = what == What::take || (writes_value && !Order::key_is_value);
    using Keys = Vec<Key, lanes>;
    using Values = Vec<Stored, lanes>;
    using Codes = Vec<I, lanes>;

    const Scan& job;
    const Geometry& g;
    const Axis& axis;
    const Order order;
    const int64_t ahead;
    const int32_t* positions = nullptr;   // of listed windows along a row
    const Tap* taps = nullptr;
    int64_t tap_count = 0;
    const Stored *x = nullptr, *v = nullptr, *wanted = nullptr;
    const char* wanted_code = nullptr;
    Stored* y = nullptr;
    char* code = nullptr;

    Scanner(const Scan& job, Order order)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          order(order),
          ahead(read_ahead<Stored>(g, source())) {}

    const View& source() const { return mode == Mode::choice ? job.v : job.x; }

    void begin_row(const Tap* row_taps, int64_t n, int64_t image, const RowWalk& walk) {
        taps = row_taps;
        tap_count = n;
        if constexpr (mode != Mode::choice) x = static_cast<const Stored*>(job.x.data) + outer_offset(job.x, image);
        if constexpr (what == What::take) v = static_cast<const Stored*>(job.v.data) + outer_offset(job.v, image);
        if constexpr (mode == Mode::equal) wanted = static_cast<const Stored*>(job.wanted.data) + row_offset(job.wanted, image, walk, g.rank);
        if constexpr (mode == Mode::choice)
            wanted_code = static_cast<const char*>(job.wanted.data) + row_offset(job.wanted, image, walk, g.rank) * job.code_width;
        if constexpr (writes_value) y = static_cast<Stored*>(job.y.data) + row_offset(job.y, image, walk, g.rank);
        if constexpr (writes_code) code = static_cast<char*>(job.code.data) + row_offset(job.code, image, walk, g.rank) * job.code_width;
    }

    // While rows are read for the first time, those that the next output rows need are asked for.
    POOLGRAD_INLINE void look_ahead(int64_t at, int64_t count) const {
        for (int64_t t = 0; t < tap_count; ++t) {
            if (!taps[t].fresh) continue;
            if constexpr (mode != Mode::choice) ask_for(x + taps[t].offset + at + ahead, count);
            if constexpr (what == What::take) ask_for(v + taps[t].offset + at + ahead, count);
        }
    }

    void finish() {
        if (job.streaming) stream_fence();
    }

    // Without NaN one comparison is all that is needed. So each block is first done as if there were none. Where a maximum is
    // looked for, the sum of the elements tells: it is NaN if one of them is. Then the block is done again with care.
    static constexpr bool can_hurry = mode != Mode::choice && Order::has_nan;

    // The state of one vector of windows while their elements pass by.
    struct State {
        Keys best;       // the winner so far, or the wanted value
        Codes at;        // the winner's code, or the wanted code
        Values value;    // the winner's bits, where carried
        Codes seen;      // lanes that have met a real element (masked blocks only)
        Keys sum;        // of all elements (hurried blocks only)
    };

    // In a masked block, elements that are not real are given a key that never wins. Where bits are carried along, the first
    // real element has to be met instead.
    static constexpr bool lowers = mode == Mode::maximum && !carries;

    POOLGRAD_INLINE void expect(State& s, int64_t output) const {
        if constexpr (mode == Mode::equal) {
            s.best = order.keys(load<Values>(wanted + output));
            if constexpr (writes_code) s.at = splat<I, lanes>(static_cast<I>(no_code(job.code_width)));
        }
        if constexpr (mode == Mode::choice) s.at = load_codes<I, lanes>(wanted_code + output * job.code_width, job.code_width);
        if constexpr (mode != Mode::maximum && carries) s.value = Values{};
    }

    template <bool masked, bool hurried> POOLGRAD_INLINE void meet(State& s, Values element, Values other, I element_code, Codes real) const {
        Codes hit;
        Keys key;
        if constexpr (hurried) {
            if constexpr (mode == Mode::maximum) {
                if constexpr (masked) element = real ? element : Values{} + order.lowest();
                s.sum += element;
                if constexpr (writes_code || carries) hit = element > s.best;
                s.best = larger_lanes(element, s.best);
            } else {
                hit = element == s.best;
                if constexpr (masked) hit &= real;
            }
            if constexpr (writes_code) s.at = hit ? Codes{} + element_code : s.at;
            if constexpr (carries) s.value = hit ? (what == What::take ? other : element) : s.value;
            return;
        }
        if constexpr (mode == Mode::choice) {
            hit = s.at == element_code;
        } else {
            key = order.keys(element);
            if constexpr (masked && lowers) key = real ? key : Keys{} + order.lowest();
            hit = mode == Mode::equal ? Codes(order.equals(key, s.best)) : Codes(order.wins(key, s.best));
        }
        if constexpr (masked && !lowers) {
            if constexpr (mode == Mode::maximum) {
                hit |= ~s.seen;
                s.seen |= real;
            }
            hit &= real;
        }
        if constexpr (mode == Mode::maximum) s.best = hit ? key : s.best;
        if constexpr (writes_code) s.at = hit ? Codes{} + element_code : s.at;
        if constexpr (carries) s.value = hit ? (what == What::take ? other : element) : s.value;
    }

    template <int vectors> static POOLGRAD_INLINE bool wants_nan(const State (&s)[vectors]) {
        bool any = false;
        for (int u = 0; u < vectors; ++u) any |= any_nan(s[u].best);
        return any;
    }

    template <int vectors> static POOLGRAD_INLINE bool met_nan(const State (&s)[vectors]) {
        if constexpr (mode != Mode::maximum) return false;
        Keys sum = s[0].sum;
        for (int u = 1; u < vectors; ++u) sum += s[u].sum;
        return any_nan(sum);
    }

    // The first element of the window, which wins against nothing.
    POOLGRAD_INLINE void start(State& s, Values element, Values other, I element_code) const {
        s.best = order.keys(element);
        if constexpr (can_hurry) s.sum = element;
        if constexpr (writes_code) s.at = Codes{} + element_code;
        if constexpr (carries) s.value = what == What::take ? other : element;
    }

    POOLGRAD_INLINE Values result(const State& s) const {
        if constexpr (carries) return s.value;
        else return order.values(s.best);
    }

    template <int vectors> POOLGRAD_INLINE void channels(const Window& window, int64_t c) {
        if (ahead)   // the positions that the window before has not read
            for (int64_t j = larger(0, window.length - axis.stride); j < window.length; ++j)
                look_ahead((window.position + j * axis.dilation) * g.inner + c, vectors * lanes);
        if constexpr (can_hurry) {
            if (channels_done<vectors, true>(window, c)) return;
            channels_with_care<vectors>(window, c);
        } else {
            channels_done<vectors, false>(window, c);
        }
    }

    template <int vectors> __attribute__((noinline)) void channels_with_care(const Window& window, int64_t c) {
        channels_done<vectors, false>(window, c);
    }

    template <int vectors, bool hurried> POOLGRAD_INLINE bool channels_done(const Window& window, int64_t c) {
        State s[vectors];
        const int64_t from = window.position * g.inner + c, step = axis.dilation * g.inner, to = window.output * g.inner + c;
        const auto visit = [&](int64_t t, int64_t j, bool first) __attribute__((always_inline)) {
            const int64_t at = taps[t].offset + from + j * step;
            const I element_code = static_cast<I>(taps[t].code + window.first + j);
            for (int u = 0; u < vectors; ++u) {
                const Values element = mode == Mode::choice ? Values{} : load<Values>(x + at + u * lanes);
                Values other{};
                if constexpr (what == What::take) other = load<Values>(v + at + u * lanes);
                if (first) start(s[u], element, other, element_code);
                else meet<false, hurried>(s[u], element, other, element_code, Codes{});
            }
        };
        if constexpr (mode == Mode::maximum) {
            visit(0, 0, true);
            for (int64_t j = 1; j < window.length; ++j) visit(0, j, false);
            for (int64_t t = 1; t < tap_count; ++t)
                for (int64_t j = 0; j < window.length; ++j) visit(t, j, false);
        } else {   // backwards: what is met last is the first in scan order
            for (int u = 0; u < vectors; ++u) expect(s[u], to + u * lanes);
            if (hurried && wants_nan<vectors>(s)) return false;
            for (int64_t t = tap_count - 1; t >= 0; --t)
                for (int64_t j = window.length - 1; j >= 0; --j) visit(t, j, false);
        }
        if (hurried && met_nan<vectors>(s)) return false;
        for (int u = 0; u < vectors; ++u) {
            if constexpr (writes_value) {
                if (job.streaming) stream(y + to + u * lanes, result(s[u]));
                else store(y + to + u * lanes, result(s[u]));
            }
            if constexpr (writes_code) store_codes<I, lanes>(code + (to + u * lanes) * job.code_width, job.code_width, s[u].at);
        }
        return true;
    }

    template <class Step, bool masked, int vectors> POOLGRAD_INLINE void row(const RowBlock& block) {
        if (ahead && Step::stride > 0) look_ahead(block.position, vectors * lanes * Step::stride);
        if constexpr (can_hurry && (!masked || lowers || mode == Mode::equal)) {
            if (row_done<Step, masked, true, vectors>(block)) return;
            row_with_care<Step, masked, vectors>(block);
        } else {
            row_done<Step, masked, false, vectors>(block);
        }
    }

    template <class Step, bool masked, int vectors> __attribute__((noinline)) void row_with_care(const RowBlock& block) {
        row_done<Step, masked, false, vectors>(block);
    }

    // Which lanes of a block are real at each local position; kept, since it is the same for all rows of a box.
    static constexpr int kept_positions = 8;
    struct RealLanes {
        int64_t output = -1;
        Codes first;   // the first real local position of each lane
        Codes at[kept_positions];
    };
    RealLanes first_block, last_block;

    POOLGRAD_INLINE const RealLanes& real_at(const RowBlock& block) {
        RealLanes& kept = block.position < 0 ? first_block : last_block;
        if (kept.output != block.output) {
            kept.output = block.output;
            kept.first = Codes{};
            for (int64_t j = 0; j < axis.window; ++j) {
                const Codes real = real_lanes<I, lanes>(axis, g.inner, block, j);
                if (j < kept_positions) kept.at[j] = real;
                if (block.position + j * axis.dilation * g.inner < 0) kept.first -= ~real & (kept.first == static_cast<I>(j));   // all ones is -1
            }
        }
        return kept;
    }

    template <class Step, bool masked, bool hurried, int vectors> POOLGRAD_INLINE bool row_done(const RowBlock& block) {
        State s[vectors];
        if constexpr (mode != Mode::maximum) {
            if (vectors > 1 || block.count == lanes) {
                for (int u = 0; u < vectors; ++u) expect(s[u], block.output + u * lanes);
            } else {   // the wanted values end before the block does
                Scanner partial = *this;
                alignas(64) Stored values[lanes] = {};
                alignas(64) char codes[8 * lanes] = {};
                if constexpr (mode == Mode::equal) {
                    __builtin_memcpy(values, wanted + block.output, sizeof(Stored) * static_cast<size_t>(block.count));
                    partial.wanted = values;
                }
                if constexpr (mode == Mode::choice) {
                    __builtin_memcpy(codes, wanted_code + block.output * job.code_width, static_cast<size_t>(job.code_width * block.count));
                    partial.wanted_code = codes;
                }
                partial.expect(s[0], 0);
            }
        }
        if constexpr (mode == Mode::equal) {
            if (hurried && wants_nan<vectors>(s)) return false;
        }
        const RealLanes* kept = nullptr;
        if constexpr (masked) {
            s[0].seen = Codes{};
            kept = &real_at(block);
        }
        const int64_t step = axis.dilation * g.inner;
        const auto visit = [&](int64_t t, int64_t j, bool first) __attribute__((always_inline)) {
            const int64_t at = taps[t].offset + block.position + j * step;
            const I element_code = static_cast<I>(taps[t].code + j);
            for (int u = 0; u < vectors; ++u) {
                Values element{}, other{};
                const auto get = [&](const Stored* p) __attribute__((always_inline)) {
                    if constexpr (Step::stride == 0)
                        return gather<Stored, lanes>(p + taps[t].offset, positions + j * (axis.count * g.inner + lanes) + block.output);
                    else return Step::template get<Stored, lanes>(p + at + u * lanes * Step::stride);
                };
                if constexpr (mode != Mode::choice) element = get(x);
                if constexpr (what == What::take) other = get(v);
                if (first) {
                    start(s[u], element, other, element_code);
                    if constexpr (masked && lowers) {
                        s[u].best = Keys{} + order.lowest();
                        if constexpr (can_hurry) s[u].sum = Keys{};
                        if constexpr (writes_code) s[u].at = kept->first + static_cast<I>(taps[0].code);
                    }
                }
                if (!first || masked) {
                    Codes real{};
                    if constexpr (masked) real = j < kept_positions ? kept->at[j] : Codes(real_lanes<I, lanes>(axis, g.inner, block, j));
                    meet<masked, hurried>(s[u], element, other, element_code, real);
                }
            }
        };
        if constexpr (mode == Mode::maximum) {
            visit(0, 0, true);
            for (int64_t j = 1; j < axis.window; ++j) visit(0, j, false);
            for (int64_t t = 1; t < tap_count; ++t)
                for (int64_t j = 0; j < axis.window; ++j) visit(t, j, false);
        } else {
            for (int64_t t = tap_count - 1; t >= 0; --t)
                for (int64_t j = axis.window - 1; j >= 0; --j) visit(t, j, false);
        }
        if (hurried && met_nan<vectors>(s)) return false;
        if (vectors > 1 || block.count == lanes) {
            for (int u = 0; u < vectors; ++u) {
                const int64_t to = block.output + u * lanes;
                if constexpr (writes_value) store(y + to, result(s[u]));
                if constexpr (writes_code) store_codes<I, lanes>(code + to * job.code_width, job.code_width, s[u].at);
            }
        } else {
            if constexpr (writes_value) {
                const Values r = result(s[0]);
                __builtin_memcpy(y + block.output, &r, sizeof(Stored) * static_cast<size_t>(block.count));
            }
            if constexpr (writes_code) {
                alignas(64) char codes[8 * lanes];
                store_codes<I, lanes>(codes, job.code_width, s[0].at);
                __builtin_memcpy(code + block.output * job.code_width, codes, static_cast<size_t>(job.code_width * block.count));
            }
        }
        return true;
    }

    void single(const Window& window, int64_t c) {
        const int64_t from = window.position * g.inner + c, step = axis.dilation * g.inner, to = window.output * g.inner + c;
        uint64_t found = no_code(job.code_width);
        Stored value{};
        if constexpr (mode == Mode::choice) {
            const uint64_t want = load_code(wanted_code, to, job.code_width);
            for (int64_t t = 0; t < tap_count; ++t) {
                const int64_t j = static_cast<int64_t>(want) - taps[t].code - window.first;
                if (j >= 0 && j < window.length) {
                    value = v[taps[t].offset + from + j * step];
                    break;
                }
            }
        } else {
            Key best = mode == Mode::equal ? order.key(wanted[to]) : order.key(x[taps[0].offset + from]);
            bool first = true;
            for (int64_t t = 0; t < tap_count; ++t) {
                const Stored* p = x + taps[t].offset + from;
                for (int64_t j = 0; j < window.length; ++j) {
                    const Key key = order.key(p[j * step]);
                    if (!(mode == Mode::equal ? order.equals_one(key, best) : first || order.wins_one(key, best))) continue;
                    first = false;
                    best = key;
                    found = static_cast<uint64_t>(taps[t].code + window.first + j);
                    value = what == What::take ? v[taps[t].offset + from + j * step] : p[j * step];
                    if (mode == Mode::equal) {
                        t = tap_count;
                        break;
                    }
                }
            }
        }
        if constexpr (writes_value) y[to] = value;
        if constexpr (writes_code) store_code(code, to, job.code_width, found);
    }
};

// Codes that do not fit the lanes are found one by one.
template <class Base> struct OneByOne : Base {
    using Base::Base;
    static constexpr int lanes = 1;
};

template <class Order, Mode mode, What what> void run(const Scan& job, const Box& box, Scratch& scratch, Order order) {
    using Vectors = Scanner<Order, mode, what>;
    if constexpr (Vectors::writes_code || mode == Mode::choice) {
        if (job.code_width > static_cast<int>(sizeof(typename Order::Stored))) {
            OneByOne<Vectors> r(job, order);
            return reduce_box(r, *job.geometry, box, scratch);
        }
    }
    Vectors r(job, order);
    reduce_box(r, *job.geometry, box, scratch);
}

template <class Order> void run_order(const Scan& job, const Box& box, Scratch& scratch, Order order) {
    if (job.mode == Mode::maximum) {
        switch (job.what) {
            case What::value: return run<Order, Mode::maximum, What::value>(job, box, scratch, order);
            case What::code: return run<Order, Mode::maximum, What::code>(job, box, scratch, order);
            case What::both: return run<Order, Mode::maximum, What::both>(job, box, scratch, order);
            case What::take: return run<Order, Mode::maximum, What::take>(job, box, scratch, order);
        }
    }
    if (job.what == What::code) return run<Order, Mode::equal, What::code>(job, box, scratch, order);
    run<Order, Mode::equal, What::take>(job, box, scratch, order);
}

}  // namespace

void POOLGRAD_KERNEL(scan)(const Scan& job, const Box& box, Scratch& scratch) {
    if (job.mode == Mode::choice) {   // nothing is compared: only the width matters
        switch (dtype_bytes(job.type)) {
            case 1: return run<IntOrder<int8_t>, Mode::choice, What::take>(job, box, scratch, {0});
            case 2: return run<IntOrder<int16_t>, Mode::choice, What::take>(job, box, scratch, {0});
            case 4: return run<IntOrder<int32_t>, Mode::choice, What::take>(job, box, scratch, {0});
            default: return run<IntOrder<int64_t>, Mode::choice, What::take>(job, box, scratch, {0});
        }
    }
    with_order(job.type, job.ignore_nan, [&](auto order) { run_order(job, box, scratch, order); });
}

}  // namespace poolgrad
