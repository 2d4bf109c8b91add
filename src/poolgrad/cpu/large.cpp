// The kernels for large overlapping windows: maxima and sums by doubling along one axis, a part of it at a time that stays in
// the cache. What is combined with what follows from the window alone, so parts and layouts change no bit.
#include "kernels.hpp"
#include "sums.hpp"

namespace poolgrad {
namespace {

// Windows at one distance from each other, whose lengths are the same, or grow or shrink by one where the axis cuts them.
struct Run {
    int64_t output, count;    // the first of them, and how many
    int64_t origin;           // where its local position 0 lies
    int64_t start, step;      // where its first real element lies, and how far on the next window's
    int64_t length, growth;   // how many elements it has, and how many more the next
};

// The windows from `o` on, before `end`. Transposed, o is an element, and what it reads are the windows that contain it.
POOLGRAD_INLINE Run run_at(const Axis& axis, bool transposed, int64_t o, int64_t end) {
    if (axis.uniform && axis.stride == 1 && axis.dilation == 1) {
        const int64_t size = transposed ? axis.count : axis.size, at = o - (transposed ? axis.window - 1 - axis.before : axis.before);
        const int64_t room = size - axis.window - at;   // how far on the windows meet the end
        if (at >= size) return {o, end - o, at, 0, 0, 0, 0};   // no window contains these elements
        const bool cut_low = at < 0, cut_high = room <= 0;
        const int64_t count = smaller(end - o, smaller(cut_low ? -at : size - at, cut_high ? end : room));
        return {o, count, at, larger(0, at), !cut_low, smaller(size, at + axis.window) - larger(0, at), cut_low - cut_high};
    }
    if (transposed) {
        const Cover c = cover(axis, o);
        return {o, 1, 0, c.first, 1, c.last - c.first, 0};
    }
    const Span s = span(axis, o);
    const bool whole = o >= axis.whole_begin && o < axis.whole_end;
    const int64_t begin = origin(axis, o);
    return {o, whole ? smaller(end, axis.whole_end) - o : 1, begin, begin + s.first * axis.dilation, axis.stride, s.length, 0};
}

// Some windows of an axis, and the positions [begin, end) they read.
struct Stretch {
    Run* runs;
    int64_t count = 0, begin = INT64_MAX, end = 0, longest = 0, shortest = INT64_MAX;   // windows

    Stretch(const Axis& axis, bool transposed, const Part& part, Scratch& scratch) {
        const int64_t d = transposed ? 1 : axis.dilation;
        runs = static_cast<Run*>(reserve(scratch, 0, sizeof(Run) * static_cast<size_t>(part.high - part.low)));
        for (int64_t o = part.low; o < part.high; o += runs[count++].count) {
            const Run& run = runs[count] = run_at(axis, transposed, o, part.high);
            const int64_t last = run.start + (run.count - 1) * run.step, length = run.length + (run.count - 1) * run.growth;
            longest = larger(longest, larger(run.length, length));
            shortest = smaller(shortest, smaller(run.length, length));
            if (run.length > 0) begin = smaller(begin, run.start), end = larger(end, run.start + (run.length - 1) * d + 1);
            if (length > 0) end = larger(end, last + (length - 1) * d + 1);
        }
        begin = smaller(begin, end);
    }
};

// Where a line along `axis` begins in an array of elements.
POOLGRAD_INLINE int64_t line_offset(const Geometry& g, const Axis& axis, const View& v, int64_t line, bool outputs) {
    int64_t offset = 0;
    for (int64_t a = &axis - g.axes - 1; a >= 0; --a) {
        const int64_t size = outputs ? g.axes[a].count : g.axes[a].size;
        offset += line % size * v.step[a];
        line /= size;
    }
    return offset + outer_offset(v, line);
}

// Calls f(from, to, count) for what lies together in the rows [low, high) of a part and in rows of `width`.
template <class F> POOLGRAD_INLINE void each_stretch(const Part& part, int64_t columns, int64_t low, int64_t high, F&& f) {
    const int64_t width = part.right - part.left;
    if (width == columns) return f(low * columns, 0, (high - low) * columns);
    for (int64_t i = low; i < high; ++i) f(i * columns + part.left, (i - low) * width, width);
}

// ---- maximum --------------------------------------------------------------------------------------------------------

// Keys of narrow types are widened to 32 bits, so that a key and what it carries have lanes of one width.
template <class Key> struct Widened {
    using type = Key;
};
template <> struct Widened<int8_t> {
    using type = int32_t;
};
template <> struct Widened<int16_t> {
    using type = int32_t;
};

template <class Order, Carry carry> struct Doubling {
    using Stored = typename Order::Stored;
    using Narrow = typename Order::Key;
    using Key = typename Widened<Narrow>::type;
    using Load = typename IntOf<sizeof(Key)>::natural;   // what a key carries
    using Bits = typename IntOf<sizeof(Stored)>::natural;
    static constexpr bool carries = carry != Carry::nothing;
    static constexpr int lanes = vector_bytes / sizeof(Key);
    using Keys = Vec<Key, lanes>;
    using Loads = Vec<Load, lanes>;

    struct Row {
        Key* keys;
        Load* loads;   // null if nothing is carried
    };

    const AxisMaximum& job;
    const Order order;
    const Axis& axis;
    const Part& part;
    const Stretch stretch;
    const int64_t width, total;   // positions times width
    const Row row, best;          // of elements, and of windows

    Doubling(const AxisMaximum& job, const Part& part, Scratch& scratch, Order order)
        : job(job),
          order(order),
          axis(*job.axis),
          part(part),
          stretch(axis, false, part, scratch),
          width(part.right - part.left),
          total((stretch.end - stretch.begin) * width),
          row(room(scratch, 1, total)),
          best(room(scratch, 3, (part.high - part.low) * width)) {}

    static Row room(Scratch& scratch, int slot, int64_t count) {
        const size_t bytes = sizeof(Key) * static_cast<size_t>(count);
        return {static_cast<Key*>(reserve(scratch, slot, bytes)), carries ? static_cast<Load*>(reserve(scratch, slot + 1, bytes)) : nullptr};
    }

    void read() const {
        if (job.geometry) {
            const Stored* x = static_cast<const Stored*>(job.x.data) + line_offset(*job.geometry, axis, job.x, job.first_line + part.line, false);
            each_stretch(part, job.columns, stretch.begin, stretch.end, [&](int64_t from, int64_t to, int64_t count) {
                for (int64_t i = 0; i < count; ++i) row.keys[to + i] = order.key(x[from + i]);
            });
        } else {
            const Key* x = static_cast<const Key*>(job.keys) + part.line * axis.size * job.columns;
            each_stretch(part, job.columns, stretch.begin, stretch.end, [&](int64_t from, int64_t to, int64_t count) {
                __builtin_memcpy(row.keys + to, x + from, sizeof(Key) * static_cast<size_t>(count));
            });
        }
        if constexpr (carries) read_loads();
    }

    // Codes count from the beginning of the axis until a window is known: local positions are differences of positions.
    void read_loads() const {
        if (job.geometry && carry == Carry::elements) {
            const Bits* v = static_cast<const Bits*>(job.v.data) + line_offset(*job.geometry, axis, job.v, job.first_line + part.line, false);
            each_stretch(part, job.columns, stretch.begin, stretch.end, [&](int64_t from, int64_t to, int64_t count) {
                for (int64_t i = 0; i < count; ++i) row.loads[to + i] = static_cast<Load>(v[from + i]);
            });
            return;
        }
        if (job.carried) {
            const Load* v = static_cast<const Load*>(job.carried) + part.line * axis.size * job.columns;
            each_stretch(part, job.columns, stretch.begin, stretch.end, [&](int64_t from, int64_t to, int64_t count) {
                __builtin_memcpy(row.loads + to, v + from, sizeof(Load) * static_cast<size_t>(count));
            });
        } else {
            __builtin_memset(row.loads, 0, sizeof(Load) * static_cast<size_t>(total));
        }
        if constexpr (carry == Carry::codes) {
            if (width == 1 && axis.dilation == 1) {
                for (int64_t i = 0; i < total; ++i) row.loads[i] += static_cast<Load>((stretch.begin + i) * job.code_step);
            } else {
                for (int64_t i = 0; i < stretch.end - stretch.begin; ++i) {
                    const Load code = static_cast<Load>((stretch.begin + i) / axis.dilation * job.code_step);
                    for (int64_t c = 0; c < width; ++c) row.loads[i * width + c] += code;
                }
            }
        }
    }

    struct Item {
        Keys key;
        Loads carried;
    };

    static POOLGRAD_INLINE Item item(const Row& row, int64_t at) {
        Item found{load<Keys>(row.keys + at), {}};
        if constexpr (carries) found.carried = load<Loads>(row.loads + at);
        return found;
    }

    // The larger, with what it carries; the first if they are equal.
    POOLGRAD_INLINE Item merge(const Item& first, const Item& second) const {
        const auto later = order.wins(second.key, first.key);
        return {later ? second.key : first.key, later ? second.carried : first.carried};
    }

    // result[to...] = the first of the largest among `ways` keys that are `shift` apart, the first of them at a.
    template <int ways> POOLGRAD_INLINE void choose(const Row& result, int64_t to, int64_t a, int64_t shift, int64_t count) const {
        const Row from = row;   // in registers, which no store can change
        const auto [keys, loads] = result;
        int64_t q = 0;
        for (; q + lanes <= count; q += lanes) {
            const int64_t at = a + q;
            Item best = merge(item(from, at), item(from, at + shift));
            if constexpr (ways == 4) best = merge(best, merge(item(from, at + 2 * shift), item(from, at + 3 * shift)));
            store(keys + to + q, best.key);
            if constexpr (carries) store(loads + to + q, best.carried);
        }
        for (; q < count; ++q) {
            int64_t best = a + q;
            for (int64_t at = best + shift; at < a + q + ways * shift; at += shift)
                if (order.wins_one(static_cast<Narrow>(from.keys[at]), static_cast<Narrow>(from.keys[best]))) best = at;
            keys[to + q] = from.keys[best];
            if constexpr (carries) loads[to + q] = from.loads[best];
        }
    }

    // The windows with at least `half` elements and fewer than twice that: the maximum of their first and last half elements.
    void finish(const Run& run, int64_t half) const {
        int64_t low = 0, high = run.length >= half && run.length < 2 * half ? run.count : 0;
        if (run.growth > 0) low = half - run.length, high = 2 * half - run.length;
        if (run.growth < 0) low = run.length - 2 * half + 1, high = run.length - half + 1;
        low = larger(low, 0), high = smaller(high, run.count);
        if (low >= high) return;
        const int64_t to = (run.output + low - part.low) * width, length = run.length + low * run.growth, d = axis.dilation;
        const int64_t first = (run.start + low * run.step - stretch.begin) * width, second = first + (length - half) * d * width;
        if (run.step == 1 && run.growth == 0) {
            choose<2>(best, to, first, second - first, (high - low) * width);
        } else {
            const int64_t step = run.step * width, shift = second - first, growth = run.growth * width;
            for (int64_t k = 0; k < high - low; ++k) choose<2>(best, to + k * width, first + k * step, shift + k * growth, width);
        }
        if constexpr (carry == Carry::codes) {
            Load* code = best.loads + to;
            if (width == 1 && d == 1) {
                for (int64_t k = low; k < high; ++k) code[k - low] -= static_cast<Load>((run.origin + k * axis.stride) * job.code_step);
                return;
            }
            for (int64_t k = low; k < high; ++k) {
                const Load origin = static_cast<Load>(floor_div(run.origin + k * axis.stride, d) * job.code_step);
                for (int64_t c = 0; c < width; ++c) code[(k - low) * width + c] -= origin;
            }
        }
    }

    template <class To, class From> void write(void* to, const From* from) const {
        To* out = static_cast<To*>(to) + part.line * axis.count * job.columns;
        each_stretch(part, job.columns, part.low, part.high, [&](int64_t at, int64_t source, int64_t count) {
            for (int64_t i = 0; i < count; ++i) out[at + i] = static_cast<To>(from[source + i]);
        });
    }

    void write_maxima(void* to) const {
        for (int64_t i = 0; i < (part.high - part.low) * width; ++i) best.keys[i] = order.value(static_cast<Narrow>(best.keys[i]));
        write<Stored>(to, best.keys);
    }

    // Whether the maxima are those that are expected.
    bool as_expected() const {
        const Stored* expected = static_cast<const Stored*>(job.expected) + part.line * axis.count * job.columns;
        auto same = Keys{} == Keys{};
        bool others = true;
        each_stretch(part, job.columns, part.low, part.high, [&](int64_t at, int64_t from, int64_t count) {
            int64_t i = 0;
            for (; i + lanes <= count; i += lanes) {
                Keys wanted;
                for (int j = 0; j < lanes; ++j) wanted[j] = order.key(expected[at + i + j]);
                same &= order.equals(load<Keys>(best.keys + from + i), wanted);
            }
            for (; i < count; ++i) others &= order.equals_one(static_cast<Narrow>(best.keys[from + i]), order.key(expected[at + i]));
        });
        for (int j = 0; j < lanes; ++j) others &= same[j] != 0;
        return others;
    }

    void run() {
        read();
        for (int64_t half = 1; half <= stretch.longest; half *= 2) {   // a key is the maximum of `half` elements from there on
            for (int64_t r = 0; r < stretch.count; ++r) finish(stretch.runs[r], half);
            const int64_t shift = half * axis.dilation * width;
            // What is read ahead is written later.
            if (carries && 4 * half <= stretch.shortest) choose<4>(row, 0, 0, shift, total - 3 * shift), half *= 2;   // two steps at once
            else if (2 * half <= stretch.longest) choose<2>(row, 0, 0, shift, total - shift);
        }
        if (job.expected && !as_expected()) __atomic_store_n(job.unexpected, true, __ATOMIC_RELAXED);
        if (job.keys_out) {
            write<Key>(job.keys_out, best.keys);
            if constexpr (carries) write<Load>(job.carried_out, best.loads);
        } else if constexpr (carry == Carry::codes) {
            switch (job.code_width) {
                case 1: write<uint8_t>(job.result, best.loads); break;
                case 2: write<uint16_t>(job.result, best.loads); break;
                case 4: write<uint32_t>(job.result, best.loads); break;
                default: write<uint64_t>(job.result, best.loads);
            }
            if (job.maxima) write_maxima(job.maxima);
        } else if constexpr (carry == Carry::elements) {
            write<Bits>(job.result, best.loads);
        } else {
            write_maxima(job.result);
        }
    }
};

// ---- sum ------------------------------------------------------------------------------------------------------------

// The same words for one sum and for a vector of them.
template <class E, bool wide> struct Sums {
    using Stored = typename E::Stored;
    static POOLGRAD_INLINE auto get(const SumRow<E>& row, int64_t i) {
        if constexpr (wide) return row.lanes_at(i);
        else return row.get(i);
    }
    template <class S> static POOLGRAD_INLINE void set(const SumRow<E>& row, int64_t i, S sum) {
        if constexpr (wide) row.set_lanes(i, sum);
        else row.set(i, sum);
    }
    static POOLGRAD_INLINE auto widen(const Stored* p) {
        if constexpr (wide) return E::widen_lanes(p);
        else return E::widen_one(*p);
    }
    template <class S, class W> static POOLGRAD_INLINE auto share(S sum, W weight) {
        if constexpr (wide) return E::share_lanes(sum, weight);
        else return E::share_one(sum, weight);
    }
    template <class S> static POOLGRAD_INLINE void narrow(Stored* to, S sum) {
        if constexpr (wide) store(to, E::narrow_lanes(sum));
        else *to = E::narrow_one(sum);
    }
    template <class S, class C> static POOLGRAD_INLINE void average(Stored* to, S sum, const C& by) {
        if constexpr (wide) store(to, E::average_lanes(sum, by));
        else *to = E::average_one(sum, by.count);
    }
};

// Calls f(words, i) for `count` sums, a vector at a time as long as there are enough.
template <class E, class F> POOLGRAD_INLINE void each_sum(int64_t count, F&& f) {
    int64_t i = 0;
    if constexpr (E::lanes > 1)
        for (; i + E::lanes <= count; i += E::lanes) f(Sums<E, true>{}, i);
    for (; i < count; ++i) f(Sums<E, false>{}, i);
}

template <class E, bool transposed> struct Adding {
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    static constexpr int lanes = E::lanes;

    const AxisSum& job;
    const Axis& axis;
    const Part& part;
    const Stretch stretch;
    const int64_t in_size, out_size, dilation, width, total;
    const SumRow<E> sums, result;

    Adding(const AxisSum& job, const Part& part, Scratch& scratch)
        : job(job),
          axis(*job.axis),
          part(part),
          stretch(axis, transposed, part, scratch),
          in_size(transposed ? axis.count : axis.size),
          out_size(transposed ? axis.size : axis.count),
          dilation(transposed ? 1 : axis.dilation),
          width(part.right - part.left),
          total((stretch.end - stretch.begin) * width),
          sums(room(scratch, 1, total)),
          result(room(scratch, 2, (part.high - part.low) * width)) {}

    static SumRow<E> room(Scratch& scratch, int slot, int64_t count) {
        return {reserve(scratch, slot, SumRow<E>::bytes(count + lanes)), count + lanes};
    }

    // Windows [low, high) and columns of the part, in stretches with one divisor: f(window, column, count, divisor).
    template <class F> POOLGRAD_INLINE void each_divisor(int64_t low, int64_t high, F&& f) const {
        const int64_t rows = job.line_divisors[part.line % job.lines_of_image];
        for (int64_t o = low; o < high;) {
            const int64_t here = divisor(axis, o);
            if (!job.divisors) {   // the same for all columns
                const bool even = width == job.columns && o >= axis.even_begin && o < axis.even_end;
                const int64_t count = even ? smaller(high, axis.even_end) - o : 1;
                f(o, part.left, count * width, here * rows);
                o += count;
                continue;
            }
            for (int64_t c = part.left; c < part.right;) {
                const Divisor& behind = job.divisors[c / job.inner];
                const int64_t end = smaller(part.right, behind.until * job.inner);
                f(o, c, end - c, here * rows * behind.value);
                c = end;
            }
            ++o;
        }
    }

    void read() const {
        if (!job.geometry) {
            const SumRow<E> from(const_cast<void*>(job.sums), job.lines * in_size * job.columns);
            const int64_t base = part.line * in_size * job.columns;
            each_stretch(part, job.columns, stretch.begin, stretch.end, [&](int64_t at, int64_t to, int64_t count) {
                each_sum<E>(count, [&](auto s, int64_t i) { s.set(sums, to + i, s.get(from, base + at + i)); });
            });
            return;
        }
        const Stored* x =
            static_cast<const Stored*>(job.elements.data) + line_offset(*job.geometry, axis, job.elements, job.first_line + part.line, transposed);
        if constexpr (transposed) {
            each_divisor(stretch.begin, stretch.end, [&](int64_t o, int64_t c, int64_t count, int64_t divisor) {
                const auto weight = E::weigh(divisor);
                const int64_t from = o * job.columns + c, to = (o - stretch.begin) * width + c - part.left;
                each_sum<E>(count, [&](auto s, int64_t i) { s.set(sums, to + i, s.share(s.widen(x + from + i), weight)); });
            });
        } else {
            each_stretch(part, job.columns, stretch.begin, stretch.end, [&](int64_t from, int64_t to, int64_t count) {
                each_sum<E>(count, [&](auto s, int64_t i) { s.set(sums, to + i, s.widen(x + from + i)); });
            });
        }
    }

    // result[to...] += sums[from...], or 0 + sums[from...]
    POOLGRAD_INLINE void add(int64_t to, int64_t from, int64_t count, bool first) const {
        const SumRow<E> results = result, pieces = sums;   // in registers, which no store can change
        if (first) each_sum<E>(count, [=](auto s, int64_t i) { s.set(results, to + i, decltype(s.get(pieces, i)){} + s.get(pieces, from + i)); });
        else each_sum<E>(count, [=](auto s, int64_t i) { s.set(results, to + i, s.get(results, to + i) + s.get(pieces, from + i)); });
    }

    // Sums of twice as many elements, or four times: two steps at once.
    template <int ways> void join(int64_t shift) const {
        const SumRow<E> row = sums;
        each_sum<E>(total - (ways - 1) * shift, [=](auto s, int64_t i) {   // what is read ahead is written later
            auto sum = s.get(row, i) + s.get(row, i + shift);
            if constexpr (ways == 4) sum = sum + (s.get(row, i + 2 * shift) + s.get(row, i + 3 * shift));
            s.set(row, i, sum);
        });
    }

    // The last piece of windows that are alike, to be added as they are written: its halves are `half` sums apart, and the first of the first
    // window is at `at`. `alone` if it is their only piece.
    struct Last {
        int64_t at = 0, half = 0;
        bool alone = false;
    };

    void write(const Last& last) const {
        if (job.sums_out) {
            const SumRow<E> out(job.sums_out, job.lines * out_size * job.columns);
            const int64_t base = part.line * out_size * job.columns;
            each_stretch(part, job.columns, part.low, part.high, [&](int64_t at, int64_t from, int64_t count) {
                each_sum<E>(count, [&](auto s, int64_t i) { s.set(out, base + at + i, s.get(result, from + i)); });
            });
            return;
        }
        Stored* out = static_cast<Stored*>(job.result) + part.line * out_size * job.columns;
        if constexpr (transposed) {
            each_stretch(part, job.columns, part.low, part.high, [&](int64_t at, int64_t from, int64_t count) {
                each_sum<E>(count, [&](auto s, int64_t i) { s.narrow(out + at + i, s.get(result, from + i)); });
            });
        } else {
            const SumRow<E> results = result, pieces = sums;   // in registers, which no store can change
            each_divisor(part.low, part.high, [&](int64_t o, int64_t c, int64_t count, int64_t divisor) {
                Stored* const to = out + o * job.columns + c;
                const int64_t from = (o - part.low) * width + c - part.left, near = from + last.at, far = near + last.half;
                const typename E::Count by(divisor);
                if (!last.half) return each_sum<E>(count, [=](auto s, int64_t i) { s.average(to + i, s.get(results, from + i), by); });
                each_sum<E>(count, [=, alone = last.alone](auto s, int64_t i) {
                    const auto piece = s.get(pieces, near + i) + s.get(pieces, far + i);
                    s.average(to + i, (alone ? decltype(s.get(pieces, i)){} : s.get(results, from + i)) + piece, by);
                });
            });
        }
    }

    // A window is a sum of pieces, one for each binary digit of its length, the shortest first. Windows whose lengths have the
    // same digits from this one up take theirs from places that follow each other.
    void add_pieces(const Run& run, int64_t half) const {
        for (int64_t k = 0, count; k < run.count; k += count) {
            const int64_t length = run.length + k * run.growth, below = length & (half - 1);
            count = smaller(run.count - k, run.growth == 0 ? run.count : run.growth > 0 ? half - below : below + 1);
            if (!(length & half)) continue;
            const int64_t to = (run.output + k - part.low) * width, step = run.step + run.growth;
            const int64_t piece = run.start + k * run.step - stretch.begin + below * dilation;
            const bool first = below == 0 && run.growth == 0;
            if (step == 1) add(to, piece * width, count * width, first);
            else
                for (int64_t i = 0; i < count; ++i) add(to + i * width, (piece + i * step) * width, width, first);
        }
    }

    void run() const {
        read();
        for (int64_t r = 0; r < stretch.count; ++r)
            if (const Run& run = stretch.runs[r]; run.growth != 0 || run.length == 0)   // others begin with their first piece
                for (int64_t i = 0, to = (run.output - part.low) * width; i < run.count * width; ++i) result.set(to + i, Sum{});
        const int64_t longest = stretch.longest;
        const bool alike = longest == stretch.shortest;
        const Run& first = stretch.runs[0];
        const bool in_order = !transposed && !job.sums_out && alike && stretch.count == 1 && first.step == 1;
        for (int64_t half = 1; half <= longest; half *= 2) {   // sums of `half` elements from there on
            for (int64_t r = 0; r < stretch.count; ++r) add_pieces(stretch.runs[r], half);
            const int64_t shift = half * dilation * width;
            if (in_order && longest >= 2 * half && longest < 4 * half)
                return write({(first.start - stretch.begin + (longest - 2 * half) * dilation) * width, shift, longest == 2 * half});
            const bool between = !alike || (longest & 2 * half) || (in_order && longest < 8 * half);   // a piece is needed
            if (4 * half <= longest && !between) join<4>(shift), half *= 2;
            else if (2 * half <= longest) join<2>(shift);
        }
        write({});
    }
};

}  // namespace

void POOLGRAD_KERNEL(axis_maximum)(const AxisMaximum& job, const Part& part, Scratch& scratch) {
    with_order(job.type, job.ignore_nan, [&](auto order) {
        using Order = decltype(order);
        switch (job.carry) {
            case Carry::nothing: return Doubling<Order, Carry::nothing>(job, part, scratch, order).run();
            case Carry::codes: return Doubling<Order, Carry::codes>(job, part, scratch, order).run();
            case Carry::elements: return Doubling<Order, Carry::elements>(job, part, scratch, order).run();
        }
    });
}

void POOLGRAD_KERNEL(axis_sum)(const AxisSum& job, const Part& part, Scratch& scratch) {
    if (job.transposed) with_share(job.type, true, [&](auto element) { Adding<decltype(element), true>(job, part, scratch).run(); });
    else with_exact_sum(job.type, true, [&](auto element) { Adding<decltype(element), false>(job, part, scratch).run(); });
}

}  // namespace poolgrad
