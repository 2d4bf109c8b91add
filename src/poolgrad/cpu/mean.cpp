// mean and spread: averages of the real elements of every window, and their transpose.
//
// Both add up in the same order whatever the layout: first over the rows that take part, element by element, then along the
// row. float16 and bfloat16 are summed in float32, float32 in float64, integers in 64 or 128 bits; each result is rounded
// once.
#include <type_traits>
#include "gather.hpp"
#include "kernels.hpp"

namespace poolgrad {
namespace {

// Sums of whole positions of a row, kept until no window needs them: a ring of at least `positions` times the channels.
template <class E> struct Ring {
    int64_t mask, inner;   // one position less than a power of two
    SumRow<E> sums;
    Ring(Scratch& scratch, int slot, int64_t positions, int64_t inner)
        : mask(static_cast<int64_t>(~uint64_t{0} >> __builtin_clzll(static_cast<uint64_t>(positions)))),
          inner(inner),
          sums(reserve(scratch, slot, SumRow<E>::bytes((mask + 1) * inner)), (mask + 1) * inner) {}
    POOLGRAD_INLINE int64_t at(int64_t position, int64_t c) const { return (position & mask) * inner + c; }
};

// A vector of columns of a row, or two: the even and the odd ones apart.
template <class Sums, int stride> struct Columns {
    Sums of[stride];
};

// Calls f with 0, 1, ..., count - 1: numbers the compiler knows, so that what they select stays in registers.
template <int count, class F> POOLGRAD_INLINE void each(F&& f) {
    [&]<int... i>(std::integer_sequence<int, i...>)
        __attribute__((always_inline)) { (f(std::integral_constant<int, i>{}), ...); }(std::make_integer_sequence<int, count>{});
}

// The sums of some rows side by side, where rows that several of them read are read once.
template <class Sums, int rows> struct Several {
    Sums of[rows];
};
template <class Sums, int rows, class F>
POOLGRAD_INLINE Several<Sums, rows> by_parts(const Several<Sums, rows>& a, const Several<Sums, rows>& b, F&& f) {
    Several<Sums, rows> result;
    each<rows>([&](auto r) __attribute__((always_inline)) { result.of[r] = by_parts(a.of[r], b.of[r], f); });
    return result;
}
template <class Sums, int rows> POOLGRAD_INLINE Several<Sums, rows> operator+(const Several<Sums, rows>& a, const Several<Sums, rows>& b) {
    Several<Sums, rows> sum;
    each<rows>([&](auto r) __attribute__((always_inline)) { sum.of[r] = a.of[r] + b.of[r]; });
    return sum;
}

// Walks a row of stride * count columns in vectors that begin with those of output 0, `lanes` outputs at a time; the last vector may overlap
// the one before. at(i) gives the columns from i on; emit(o, left, columns, right) is told those of the outputs from o on, and what lies left
// and right of every output's own. `none` lies around the row.
template <int stride, int lanes, class Sums, class At, class Emit> POOLGRAD_INLINE void whole_row(int64_t count, Sums none, At&& at, Emit&& emit) {
    const int64_t rest = count - lanes;
    int64_t o = 0;
    Columns<Sums, stride> now = at(0);
    Sums left = from_left<lanes, stride>(none, now.of[stride - 1]);
    for (; o + lanes <= rest; o += lanes) {
        const Columns<Sums, stride> next = at(stride * (o + lanes));
        emit(o, left, now, from_right<lanes, stride>(now.of[0], next.of[0]));
        left = from_left<lanes, stride>(now.of[stride - 1], next.of[stride - 1]);
        now = next;
    }
    if (o < rest) {
        emit(o, left, now, at(stride * o + 1).of[stride - 1]);
        now = at(stride * rest), left = at(stride * rest - 1).of[0];
    }
    emit(rest, left, now, from_right<lanes, stride>(now.of[0], none));
}

inline int64_t row_count(const Geometry& g, const Box& box) {
    int64_t rows = box.n_end - box.n;
    for (int a = 0; a < g.rank - 1; ++a) rows *= box.high[a] - box.low[a];
    return rows;
}
constexpr int64_t some_rows = 4;   // from which on it pays to prepare what they have in common
constexpr int64_t small_image = int64_t{1} << 14;   // bytes
constexpr int64_t together_bytes = int64_t{1} << 11;   // of short rows that are made together and written past the caches

// ---- mean -----------------------------------------------------------------------------------------------------------

template <class E> struct Averager {
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    using Sums = typename E::Sums;
    static constexpr int lanes = E::lanes;
    static constexpr bool has_small = lanes > 1 && !for_long_windows<E> && hurries;   // windows that are small along a row
    // Rows of them at once. Sums of two parts take too many registers, and integers are not worth the code.
    static constexpr bool has_several = has_small && (__is_same(Sum, float) || __is_same(Stored, float));

    const Mean& job;
    const Geometry& g;
    const Axis& axis;
    Scratch& scratch;
    const int64_t ahead;
    const bool twice;   // see asks_twice
    const Stored* x = nullptr;   // the image's
    const Tap* taps = nullptr;
    int64_t tap_count = 0;
    FreshRows fresh;   // of the taps, if anything is asked for
    RowsAhead soon;

    // The same in a place that no store can change, but for what is asked for.
    struct Rows {
        const Stored* x;
        const Tap* taps;
        int64_t count, ahead;
        bool twice;
        const FreshRows* fresh;
        RowsAhead soon;   // of channels
    };
    Rows rows() const { return {x, taps, tap_count, ahead, twice, &fresh, soon}; }

    Averager(const Mean& job, Scratch& scratch)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          scratch(scratch),
          ahead(read_ahead<Stored>(g, job.x)),
          twice(asks_twice(axis, job.x)) {}

    template <int vectors> static POOLGRAD_INLINE void add_rows(Sums (&sum)[vectors], const Rows& rows, int64_t at) {
        for (int u = 0; u < vectors; ++u) sum[u] = E::widen_lanes(rows.x + rows.taps[0].offset + at + u * lanes);
        for (int64_t t = 1; t < rows.count; ++t)
            for (int u = 0; u < vectors; ++u) sum[u] = plus(sum[u], E::widen_lanes(rows.x + rows.taps[t].offset + at + u * lanes));
    }

    // Asks for what the next output rows need, while `count` elements are read for the first time.
    static POOLGRAD_INLINE void ask_for_rows(const Rows& rows, int64_t at, int64_t count) {
        for (int asks = rows.ahead ? 1 + rows.twice : 0; asks > 0; --asks) rows.fresh->template ask<1>(rows.x + rows.soon.from(at) + at, 0, count);
    }

    using Count = typename E::Count;
    POOLGRAD_INLINE int64_t count_of(int64_t o) const { return taps[0].divisor * poolgrad::divisor(axis, o); }   // what window o is divided by

    template <int vectors> static POOLGRAD_INLINE void write(Stored* to, const Sums (&sum)[vectors], const Count& by, bool streaming) {
        using Results = decltype(E::average_lanes(sum[0], by));
        Results result[vectors];
        for (int u = 0; u < vectors; ++u) result[u] = E::average_lanes(sum[u], by);
        if constexpr (vectors > 1 && 2 * sizeof(Results) == vector_bytes) {
            for (int u = 0; streaming && u < vectors; u += 2) stream(to + u * lanes, beside(result[u], result[u + 1]));   // whole lines
        } else {
            for (int u = 0; streaming && u < vectors; ++u) stream(to + u * lanes, result[u]);
        }
        for (int u = 0; !streaming && u < vectors; ++u) store(to + u * lanes, result[u]);
    }

    // `count` windows of a row that are as long as the first, which begins at `at`, and divided alike.
    __attribute__((noinline)) void alike_windows(Stored* y, Rows from, int64_t at, int64_t length, int64_t count, Count by) const {
        const int64_t inner = g.inner, step = axis.dilation * inner, stride = axis.stride * inner;
        const bool streaming = job.streaming;
        for (int64_t i = 0; i < count; ++i, at += stride, y += inner)
            blocks_of_channels<lanes>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                constexpr int vectors = decltype(n)::value;
                Sums sum[vectors], column[vectors];
                add_rows<vectors>(sum, from, at + c);
                for (int64_t j = 1; j < length; ++j) {
                    add_rows<vectors>(column, from, at + j * step + c);
                    for (int u = 0; u < vectors; ++u) sum[u] = plus(sum[u], column[u]);
                }
                for (int64_t j = 0; from.ahead && j < length; ++j) ask_for_rows(from, at + j * step + c, vectors * lanes);
                write<vectors>(y + c, sum, by, streaming);
            });
    }

    // The same of windows of three that begin two positions apart: the one that a window shares with the next is kept.
    __attribute__((noinline)) void threes(Stored* y, Rows from, int64_t at, int64_t count, Count by) const {
        const int64_t inner = g.inner;
        constexpr int slots = 2;   // the last block of channels may be read again: nothing is written where it is read
        const SumRow<E> kept(reserve(scratch, 1, SumRow<E>::bytes(slots * inner)), slots * inner);
        const bool streaming = job.streaming;
        blocks_of_channels<lanes>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
            constexpr int vectors = decltype(n)::value;
            Sums column[vectors];
            add_rows<vectors>(column, from, at + c);
            ask_for_rows(from, at + c, vectors * lanes);
            for (int u = 0; u < vectors; ++u) kept.set_lanes(c + u * lanes, column[u]);
        });
        at += inner;
        for (int64_t i = 0; i < count; ++i, at += 2 * inner, y += inner) {
            const int64_t oldest = i % slots * inner, newest = (i + 1) % slots * inner;
            blocks_of_channels<lanes>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                constexpr int vectors = decltype(n)::value;
                Sums sum[vectors], column[vectors];
                for (int u = 0; u < vectors; ++u) sum[u] = kept.lanes_at(oldest + c + u * lanes);
                add_rows<vectors>(column, from, at + c);
                ask_for_rows(from, at + c, vectors * lanes);
                for (int u = 0; u < vectors; ++u) sum[u] = plus(sum[u], column[u]);
                add_rows<vectors>(column, from, at + inner + c);
                ask_for_rows(from, at + inner + c, vectors * lanes);
                for (int u = 0; u < vectors; ++u) {
                    sum[u] = plus(sum[u], column[u]);
                    kept.set_lanes(newest + c + u * lanes, column[u]);
                }
                write<vectors>(y + c, sum, by, streaming);
            });
        }
    }

    // ---- windows that begin at every position, in vectors of channels: neighbours read what they share once ----

    // The sums of `count` windows of `length` items (not fewer), each of which begins an item after the one before. item(i, u) is vector u of
    // the one that is i from the beginning of the first. Unless `first`, they are added to what the sums are.
    template <int count, int vectors, class Item>
    static POOLGRAD_INLINE void neighbours(Sums (&sum)[count][vectors], int64_t length, bool first, Item&& item) {
        each<count>([&](auto i) __attribute__((always_inline)) {
            each<vectors>([&](auto u) __attribute__((always_inline)) {
                const Sums one = item(i, u);
                each<i>([&](auto j) __attribute__((always_inline)) { sum[j][u] = add_in_turn(j, sum[j][u], one); });
                sum[i][u] = first ? one : add_in_turn(i, sum[i][u], one);
            });
        });
        for (int64_t i = count; i < length; ++i)
            each<vectors>([&](auto u) __attribute__((always_inline)) {
                const Sums one = item(i, u);
                each<count>([&](auto j) __attribute__((always_inline)) { sum[j][u] = add_in_turn(j, sum[j][u], one); });
            });
        each<count - 1>([&](auto i) __attribute__((always_inline)) {
            each<vectors>([&](auto u) __attribute__((always_inline)) {
                const Sums one = item(length + i, u);
                each<count - 1 - i>([&](auto j) __attribute__((always_inline)) {
                    constexpr int k = i + 1 + j;
                    sum[k][u] = add_in_turn(k, sum[k][u], one);
                });
            });
        });
    }
    // By the units that add and those that multiply in turn, so that both are busy.
    static POOLGRAD_INLINE Sums add_in_turn(int turn, Sums a, Sums b) { return turn % 2 ? a + b : plus(a, b); }

    // As blocks_of_channels, in blocks of at most `most` vectors.
    template <int most, class F> static POOLGRAD_INLINE void some_channels(int64_t inner, F&& f) {
        int64_t c = 0;
        if constexpr (most > 2)
            for (; c + most * lanes <= inner; c += most * lanes) f(Vectors<most>{}, c);
        for (; c + 2 * lanes <= inner; c += 2 * lanes) f(Vectors<2>{}, c);
        for (; c < inner; c += lanes) f(Vectors<1>{}, smaller(c, inner - lanes));
    }

    // Some vectors of one position, added up over the rows that each of `rows` rows of windows reads. Unless that is 1, these follow one
    // another, `length` of them at a time.
    template <int rows, int vectors>
    static POOLGRAD_INLINE void add_rows_of(Sums (&sum)[rows][vectors], const Rows& from, int64_t length, int64_t step, int64_t at) {
        if constexpr (rows == 1) {
            add_rows<vectors>(sum[0], from, at);
        } else {
            for (int64_t t = 0; t < from.count; t += length) {
                const Stored* const x = from.x + from.taps[t].offset + at;
                neighbours<rows, vectors>(sum, length, t == 0,
                                          [=](int64_t i, int u) __attribute__((always_inline)) { return E::widen_lanes(x + i * step + u * lanes); });
            }
        }
    }

    // Asks for what the next `rows` rows of windows need.
    template <int rows> static POOLGRAD_INLINE void ask_for_rows_of(const Rows& from, int64_t step, int64_t at, int64_t count) {
        if constexpr (rows == 1) return ask_for_rows(from, at, count);
        const int64_t ahead = larger(from.ahead, rows * step);
        for (int r = 0; from.ahead && r < rows; ++r) from.fresh->template ask<1>(from.x + r * step + ahead + at, 0, count);
    }

    // `count` windows of three, divided alike, of `rows` rows, some channels at a time: the sums of positions that they share stay in registers.
    template <int rows>
    __attribute__((noinline, noclone)) void threes_everywhere(Stored* y, Rows from, int64_t at, int64_t count, Count by) const {
        constexpr int most = vector_bytes == 64 && has_several ? 4 : 2;
        const int64_t inner = g.inner, step = rows > 1 ? job.x.step[g.rank - 2] : 0, y_step = rows > 1 ? job.y.step[g.rank - 2] : 0;
        const bool streaming = job.streaming;
        some_channels<most>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
            constexpr int vectors = decltype(n)::value;
            Sums left[rows][vectors], middle[rows][vectors], right[rows][vectors];
            add_rows_of<rows, vectors>(left, from, 3, step, at + c);
            add_rows_of<rows, vectors>(middle, from, 3, step, at + inner + c);
            for (int64_t i = 0; i < count; ++i) {
                add_rows_of<rows, vectors>(right, from, 3, step, at + (i + 2) * inner + c);
                ask_for_rows_of<rows>(from, step, at + (i + 2) * inner + c, vectors * lanes);
                each<rows>([&](auto r) __attribute__((always_inline)) {
                    each<vectors>([&](auto u) __attribute__((always_inline)) { left[r][u] = plus(plus(left[r][u], middle[r][u]), right[r][u]); });
                    write<vectors>(y + r * y_step + i * inner + c, left[r], by, streaming);
                    each<vectors>([&](auto u) __attribute__((always_inline)) { left[r][u] = middle[r][u], middle[r][u] = right[r][u]; });
                });
            }
        });
    }

    // The same, all channels of a position after the other, as they lie in memory: from there that is quicker on most processors. The sums of two
    // positions are kept.
    template <int rows>
    __attribute__((noinline, noclone)) void threes_in_order(Stored* y, Rows from, int64_t at, int64_t count, Count by) const {
        const int64_t inner = g.inner, step = rows > 1 ? job.x.step[g.rank - 2] : 0, y_step = rows > 1 ? job.y.step[g.rank - 2] : 0;
        constexpr int slots = 3;   // nothing is written where it is read
        const SumRow<E> kept(reserve(scratch, 1, SumRow<E>::bytes(slots * rows * inner)), slots * rows * inner);
        const bool streaming = job.streaming;
        for (int64_t i = -2; i < count; ++i, at += inner) {
            const int64_t left = (i + 3) % slots * rows * inner, middle = (i + 4) % slots * rows * inner, newest = (i + 5) % slots * rows * inner;
            some_channels<4>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                constexpr int vectors = decltype(n)::value;
                Sums right[rows][vectors];
                add_rows_of<rows, vectors>(right, from, 3, step, at + c);
                ask_for_rows_of<rows>(from, step, at + c, vectors * lanes);
                each<rows>([&](auto r) __attribute__((always_inline)) {
                    Sums sum[vectors];
                    each<vectors>([&](auto u) __attribute__((always_inline)) {
                        const int64_t place = r * inner + c + u * lanes;
                        sum[u] = plus(plus(kept.lanes_at(left + place), kept.lanes_at(middle + place)), right[r][u]);
                        kept.set_lanes(newest + place, right[r][u]);
                    });
                    if (i >= 0) write<vectors>(y + r * y_step + i * inner + c, sum, by, streaming);
                });
            });
        }
    }

    // The positions [begin, end) of `rows` rows of windows, each added up over the rows of windows.
    template <int rows> __attribute__((noinline, noclone)) void add_rows_once(const Ring<E>& ring, Rows from, int64_t begin, int64_t end) const {
        const int64_t inner = g.inner, step = rows > 1 ? job.x.step[g.rank - 2] : 0, length = rows > 1 ? g.axes[g.rank - 2].window : 1;
        const Ring<E> to = ring;
        for (int64_t position = begin; position < end; ++position)
            some_channels<2>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                constexpr int vectors = decltype(n)::value;
                Sums sum[rows][vectors];
                add_rows_of<rows, vectors>(sum, from, length, step, position * inner + c);
                ask_for_rows_of<rows>(from, step, position * inner + c, vectors * lanes);
                const int64_t at = to.at(position, c);
                each<rows>([&](auto r) __attribute__((always_inline)) {
                    each<vectors>([&](auto u) __attribute__((always_inline)) { to.sums.set_lanes(at + r * inner + u * lanes, sum[r][u]); });
                });
            });
    }

    // `windows` windows of each row, from the first on and as long as that.
    template <int count>
    __attribute__((noinline, noclone)) void add_positions(const Ring<E>& ring, int64_t rows, Stored* to, const Window& first, int64_t windows,
                                                          Count by) const {
        const int64_t inner = g.inner, y_step = rows > 1 ? job.y.step[g.rank - 2] : 0, length = first.length;
        const SumRow<E> sums = ring.sums;
        const bool streaming = job.streaming;
        int64_t* const places = static_cast<int64_t*>(reserve(scratch, 2, sizeof(int64_t) * static_cast<size_t>(windows + length)));
        for (int64_t j = 0; j < windows + length - 1; ++j) places[j] = ring.at(first.position + j, 0);
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t i = 0; i < windows; i += count) {
                const int64_t* const place = places + i;
                Stored* const y = to + r * y_step + i * inner;
                some_channels<2>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                    constexpr int vectors = decltype(n)::value;
                    Sums sum[count][vectors];
                    neighbours<count, vectors>(sum, length, true, [=](int64_t j, int u) __attribute__((always_inline)) {
                        return sums.lanes_at(place[j] + r * inner + c + u * lanes);
                    });
                    each<count>([&](auto q) __attribute__((always_inline)) { write<vectors>(y + q * inner + c, sum[q], by, streaming); });
                });
            }
    }

    // `rows` rows of windows, of which `together` of each at a time: first the sums of their positions, which the second cache keeps, then
    // those of the windows.
    static constexpr int64_t together = 8;
    template <int rows> void everywhere(Stored* y, int64_t w0, int64_t w1, Count& by) {
        const int64_t inner = g.inner;
        const Ring<E> ring(scratch, 1, axis.window + together - 2, rows * inner);
        const Rows from = this->rows();
        int64_t ready = 0;
        for (int64_t o = w0, windows; o < w1; o += windows) {
            Window window = window_of(axis, o);
            if (const int64_t count = count_of(o); count != by.count) by = Count(count);
            windows = o >= axis.even_begin && o < axis.even_end ? smaller(together, smaller(w1, axis.even_end) - o) : 1;
            const int64_t end = window.position + window.length + windows - 1;
            ready = larger(ready, window.position);
            if (ready < end) add_rows_once<rows>(ring, from, ready, end), ready = end;
            Stored* const to = y + o * inner;
            const int64_t count = axis.window >= 4 ? 4 : 2, whole = windows / count * count;
            if (whole && count == 4) add_positions<4>(ring, rows, to, window, whole, by);
            if (whole && count == 2) add_positions<2>(ring, rows, to, window, whole, by);
            window.position += whole;
            if (whole < windows) add_positions<1>(ring, rows, to + whole * inner, window, windows - whole, by);
        }
    }

    // How many rows of windows row_of_channels() does at once, of `alike` rows that read alike.
    int64_t rows_of_channels(int64_t alike) const {
        if (!has_several || g.inner < lanes || g.rank < 2 || !begins_everywhere_along()) return 1;
        const Axis& down = g.axes[g.rank - 2];
        if (down.stride != 1 || down.dilation != 1) return 1;
        if (axis.window == 3) return down.window == 3 && alike >= 2 ? 2 : 1;
        constexpr int64_t cache = int64_t{1} << 18;
        const int64_t most = cache / static_cast<int64_t>(SumRow<E>::bytes(2 * (axis.window + together) * g.inner));   // rows
        return down.window >= 4 && smaller(alike, most) >= 4 ? 4 : down.window >= 2 && smaller(alike, most) >= 2 ? 2 : 1;
    }
    bool begins_everywhere_along() const { return axis.uniform && axis.stride == 1 && axis.dilation == 1 && axis.window > 1; }

    // Where windows overlap, each input position is summed over the rows once.
    void row_of_channels(Stored* y, int64_t w0, int64_t w1, Count& by, int64_t some) {
        if constexpr (has_several) {
            const bool all = tap_count > 1 && axis.window != 3 && begins_everywhere_along();
            if (all) return some == 4 ? everywhere<4>(y, w0, w1, by) : some == 2 ? everywhere<2>(y, w0, w1, by) : everywhere<1>(y, w0, w1, by);
        }
        const int64_t reach = (axis.extent - 1) * axis.dilation + 1, inner = g.inner, step = axis.dilation;
        const Rows from = rows();
        const bool streaming = job.streaming;
        const bool in_threes = has_small && axis.uniform && axis.window == 3 && step == 1 && axis.stride <= 2 && tap_count > 1;
        if (tap_count == 1 || (!axis.starts && axis.stride >= reach) || in_threes) {
            for (int64_t o = w0, end; o < w1; o = end) {
                const Window window = window_of(axis, o);
                if (const int64_t count = count_of(o); count != by.count) by = Count(count);
                end = o >= axis.even_begin && o < axis.even_end ? smaller(w1, axis.even_end) : o + 1;   // of those alike
                if constexpr (has_small) {
                    if (in_threes && end - o > 1) {
                        const int64_t at = window.position * inner, count = end - o;
                        if constexpr (has_several) {
                            if (streaming && axis.stride == 1 && !lines_apart_are_quick()) {
                                some == 2 ? threes_in_order<2>(y + o * inner, from, at, count, by)
                                          : threes_in_order<1>(y + o * inner, from, at, count, by);
                                continue;
                            }
                            if (some == 2) {
                                threes_everywhere<2>(y + o * inner, from, at, count, by);
                                continue;
                            }
                        }
                        axis.stride == 2 ? threes(y + o * inner, from, at, count, by) : threes_everywhere<1>(y + o * inner, from, at, count, by);
                        continue;
                    }
                }
                Rows row = from;
                Stored* to = y + o * inner;
                alike_windows(to, row, window.position * inner, window.length, end - o, by);
                for (int64_t r = 1; r < some; ++r) {
                    to += job.y.step[g.rank - 2], row.x += rows_apart();
                    alike_windows(to, row, window.position * inner, window.length, end - o, by);
                }
            }
            return;
        }
        const Ring<E> ring(scratch, 1, reach + step, inner);
        int64_t ready = first_position(w0, w1);
        for (int64_t o = w0; o < w1; ++o) {
            const Window window = window_of(axis, o);
            if (const int64_t count = count_of(o); count != by.count) by = Count(count);
            const int64_t end = window.position + (window.length - 1) * step + 1;
            for (ready = larger(ready, window.position - step); ready < end; ++ready)
                blocks_of_channels<lanes>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                    constexpr int vectors = decltype(n)::value;
                    Sums sum[vectors];
                    add_rows<vectors>(sum, from, ready * inner + c);
                    ask_for_rows(from, ready * inner + c, vectors * lanes);
                    for (int u = 0; u < vectors; ++u) ring.sums.set_lanes(ring.at(ready, c + u * lanes), sum[u]);
                });
            blocks_of_channels<lanes>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                constexpr int vectors = decltype(n)::value;
                Sums sum[vectors];
                for (int u = 0; u < vectors; ++u) sum[u] = ring.sums.lanes_at(ring.at(window.position, c + u * lanes));
                for (int64_t j = 1; j < window.length; ++j) {
                    const int64_t at = ring.at(window.position + j * step, c);
                    for (int u = 0; u < vectors; ++u) sum[u] = plus(sum[u], ring.sums.lanes_at(at + u * lanes));
                }
                write<vectors>(y + o * inner + c, sum, by, streaming);
            });
        }
    }

    // Where the windows [w0, w1) begin to read. With a dilation the first window need not begin first.
    int64_t first_position(int64_t w0, int64_t w1) const {
        int64_t least = axis.size;
        for (int64_t o = w0; o < smaller(w1, w0 + axis.dilation); ++o) least = smaller(least, window_of(axis, o).position);
        return least;
    }

    // Sums that are a stride apart are put side by side, so that neighbours read neighbours. Returns the window where it
    // ended.
    int64_t split_outputs(Stored* y, const SumRow<E>& row, int64_t low, int64_t w0, int64_t w1) {
        const int64_t begin = smaller(w1, larger(w0, axis.even_begin)), end = larger(begin, smaller(w1, axis.even_end));
        const int64_t inner = g.inner, s = axis.stride;
        for (int64_t o = w0; o < begin; ++o) one_output(y, row, low, o);
        if ((end - begin) * inner < lanes) return begin;
        const int64_t reach = (axis.window - 1) * axis.dilation, places = end - begin + reach / s, pitch = places * inner + lanes;
        const SumRow<E> split(reserve(scratch, 5, SumRow<E>::bytes(s * pitch)), s * pitch);
        const int64_t from = (begin * s - axis.before - low) * inner, part = sizeof(*row.high), piece = inner * part;
        const auto copy = [&](auto* to, const auto* sums) {
            copy_pieces(to, piece, pitch * part, sums + from, s * piece, piece, places, smaller(s, reach + 1), piece);
        };
        copy(split.high, row.high);
        if constexpr (SumRow<E>::twofold) copy(split.low, row.low);
        const Count by(count_of(begin));
        for (int64_t f = 0; f < (end - begin) * inner; f += lanes) {
            f = smaller(f, (end - begin) * inner - lanes);   // the last vector overlaps the one before
            Sums sum = split.lanes_at(f);
            for (int64_t j = 1, phase = 0, at = f; j < axis.window; ++j) {
                for (phase += axis.dilation; phase >= s; phase -= s) at += inner;
                sum += split.lanes_at(phase * pitch + at);
            }
            store(y + begin * inner + f, E::average_lanes(sum, by));
        }
        return end;
    }

    // Sums over the rows for all elements the windows of [w0, w1) read, then along the row.
    void row_of_elements(Stored* y, int64_t w0, int64_t w1) {
        const int64_t inner = g.inner;
        int64_t low = axis.size, high = 0;
        const Window ends[] = {window_of(axis, w0), window_of(axis, w1 - 1)};
        for (const Window& w : ends) low = smaller(low, w.position), high = larger(high, w.position + (w.length - 1) * axis.dilation + 1);
        low = larger(0, low - axis.dilation), high = smaller(axis.size, high + axis.dilation);
        const bool splits = brought_together(g);
        const int64_t count = (high - low) * inner, margin = (splits ? axis.stride + 2 : 2) * lanes;
        const SumRow<E> row(reserve(scratch, 1, SumRow<E>::bytes(count + margin)), count + margin);
        const Rows from = rows();
        int64_t f = 0;
        if constexpr (lanes > 1) {
            for (; f + lanes <= count; f += lanes) {
                Sums sum[1];
                add_rows<1>(sum, from, low * inner + f);
                for (int asks = ahead ? 1 + twice : 0; asks > 0; --asks) fresh.ask(x + ahead, low * inner + f, lanes);
                row.set_lanes(f, sum[0]);
            }
        }
        for (; f < count; ++f) {
            Sum sum = E::widen_one(x[taps[0].offset + low * inner + f]);
            for (int64_t t = 1; t < tap_count; ++t) sum = sum + E::widen_one(x[taps[t].offset + low * inner + f]);
            row.set(f, sum);
        }
        for (f = count; f < count + margin; ++f) row.set(f, Sum{});   // read by the last vector, used by none
        int64_t o = w0;
        if constexpr (lanes > 1) {
            const bool every = axis.stride == 1, second = axis.stride == 2 && inner == 1;
            if (axis.uniform && (every || second)) {
                const int64_t begin = smaller(w1, larger(w0, axis.even_begin)), end = larger(begin, smaller(w1, axis.even_end));
                for (; o < begin; ++o) one_output(y, row, low, o);
                const int64_t step = axis.dilation * inner;
                const Count by(begin < end ? count_of(begin) : 1);
                for (f = o * inner; f < end * inner && (end - begin) * inner >= lanes; f += lanes) {
                    f = smaller(f, end * inner - lanes);   // the last vector overlaps the one before
                    const int64_t at = axis.stride * f - (axis.before + low) * inner;
                    Sums sum = every ? row.lanes_at(at) : row.every_second(at);
                    for (int64_t j = 1; j < axis.window; ++j) sum += every ? row.lanes_at(at + j * step) : row.every_second(at + j * step);
                    store(y + f, E::average_lanes(sum, by));
                }
                o = larger(o, f / inner);
            }
            if (splits) o = split_outputs(y, row, low, w0, w1);
        }
        if constexpr (has_listed) {
            if (listed.starts && in_bits(taps[0].divisor)) return listed_outputs(y, row, low, w0, w1);
        }
        for (; o < w1; ++o) one_output(y, row, low, o);
    }

    // Vectors of listed windows: where each begins in the row, how many elements it has, and what it is divided by.
    struct Listed {
        int32_t *starts = nullptr, *lengths = nullptr;
        Sum* divisors = nullptr;
        int64_t longest = 0;
    };
    // Numbers that every type of sum holds exactly, so that their product is rounded once.
    static bool in_bits(int64_t divisor) { return divisor > -(1 << 24) && divisor < 1 << 24; }
    static constexpr bool has_listed = lanes > 1 && (__is_same(Sum, double) || __is_same(Sum, float));
    Listed listed;

    void list(int64_t w0, int64_t w1) {
        const int64_t count = (w1 - w0) * g.inner;
        if (axis.uniform || g.inner >= lanes || count < lanes || axis.size * g.inner > INT32_MAX) return;
        Listed made;
        made.starts = static_cast<int32_t*>(reserve(scratch, 2, sizeof(int32_t) * static_cast<size_t>(count)));
        made.lengths = static_cast<int32_t*>(reserve(scratch, 3, sizeof(int32_t) * static_cast<size_t>(count)));
        made.divisors = static_cast<Sum*>(reserve(scratch, 4, sizeof(Sum) * static_cast<size_t>(count)));
        for (int64_t o = w0; o < w1; ++o) {
            const Window window = window_of(axis, o);
            made.longest = larger(made.longest, window.length);
            if (!in_bits(divisor(axis, o))) return;
            for (int64_t c = 0; c < g.inner; ++c) {
                const int64_t f = (o - w0) * g.inner + c;
                made.starts[f] = static_cast<int32_t>(window.position * g.inner + c);
                made.lengths[f] = static_cast<int32_t>(window.length);
                made.divisors[f] = static_cast<Sum>(divisor(axis, o));
            }
        }
        listed = made;
    }

    void listed_outputs(Stored* y, const SumRow<E>& row, int64_t low, int64_t w0, int64_t w1) const {
        using Lengths = Vec<int32_t, lanes>;
        const int64_t count = (w1 - w0) * g.inner, step = axis.dilation * g.inner;
        const Sum rows = static_cast<Sum>(taps[0].divisor);
        for (int64_t f = 0; f < count; f += lanes) {
            f = smaller(f, count - lanes);   // the last vector overlaps the one before
            const auto at = load<Lengths>(listed.starts + f) - static_cast<int32_t>(low * g.inner), length = load<Lengths>(listed.lengths + f);
            Sums sum = gather<Sum, lanes>(row.high, reinterpret_cast<const int32_t*>(&at));
            for (int64_t j = 1; j < listed.longest; ++j) {
                const auto more = length > static_cast<int32_t>(j);
                const Lengths next = more ? at + static_cast<int32_t>(j * step) : at;
                const auto real = __builtin_convertvector(more, Vec<typename IntOf<sizeof(Sum)>::type, lanes>);
                sum = real ? sum + gather<Sum, lanes>(row.high, reinterpret_cast<const int32_t*>(&next)) : sum;
            }
            store(y + w0 * g.inner + f, E::narrow_lanes(sum / (load<Sums>(listed.divisors + f) * rows)));
        }
    }

    // ---- small windows of one channel: sums never leave the registers ----

    // Averages of sums that were made of `columns`.
    template <int stride> static POOLGRAD_INLINE void write_outputs(Stored* y, Sums sum, const Count& by) {
        store(y, in_order<lanes, stride>(E::average_lanes(sum, by)));
    }

    // Sums over `count` rows, or any number of them if that is 0. row(t) is where row t begins.
    template <int stride, int count, class Row> static POOLGRAD_INLINE Columns<Sums, stride> columns(Row&& row, int64_t rows, int64_t at) {
        Sums sum[stride];
        const int64_t n = count ? count : rows;
        if constexpr (stride == 2 && __is_same(E, BrainSum)) {
            E::template widen_pairs<lanes>(row(0) + at, sum[0], sum[1]);
            for (int64_t t = 1; t < n; ++t) {
                Sums even, odd;
                E::template widen_pairs<lanes>(row(t) + at, even, odd);
                sum[0] += even, sum[1] += odd;
            }
            return {{sum[0], sum[1]}};
        } else {
            for (int u = 0; u < stride; ++u) sum[u] = E::widen_lanes(row(0) + at + u * lanes);
            for (int64_t t = 1; t < n; ++t)
                for (int u = 0; u < stride; ++u) sum[u] = plus(sum[u], E::widen_lanes(row(t) + at + u * lanes));
            if constexpr (stride == 1) return {{sum[0]}};
            else return {{every_second<0, lanes>(sum[0], sum[1]), every_second<1, lanes>(sum[0], sum[1])}};
        }
    }
    template <int stride> static POOLGRAD_INLINE Columns<Sums, stride> columns(const Rows& rows, int64_t at) {
        return columns<stride, 0>([&](int64_t t) __attribute__((always_inline)) { return rows.x + rows.taps[t].offset; }, rows.count, at);
    }

    // What the rows of a box have in common: the windows that are divided alike, and the few others.
    struct Even {
        struct Other {
            int64_t output, position, length, divisor;
        };
        int64_t begin, end, others;
        Other other[4];
        bool whole;             // the row is one of whole_row(), and the others are at most its first and its last window
    };
    Even even{};

    bool in_registers(int64_t w0, int64_t w1) {
        const bool small = axis.stride <= 2 && (axis.window == 2 || axis.window == 3) && axis.dilation == 1;
        even.begin = larger(w0, axis.even_begin), even.end = smaller(w1, axis.even_end);
        if (!has_small || g.inner != 1 || !small || !axis.uniform || even.begin >= even.end) return false;
        for (int64_t o = w0; o < w1; ++o) {
            if (o == even.begin) o = even.end;
            if (o == w1) break;
            if (even.others == 4) return false;
            const Window window = window_of(axis, o);
            even.other[even.others++] = {o, window.position, window.length, divisor(axis, o)};
        }
        const bool centred = axis.before == 1 && axis.window == 3, begins = axis.before == 0 && axis.window <= axis.stride + 1;
        even.whole = (centred || begins) && w0 == 0 && w1 == axis.count && axis.size == axis.stride * w1 && w1 >= lanes && even.begin <= 1 &&
                     even.end >= w1 - 1;
        if (!even.whole && even.end - even.begin < lanes) return false;
        return true;
    }

    void begin_row(Count& by) {
        if (const int64_t count = count_of(even.begin); count != by.count) by = Count(count);
    }

    static POOLGRAD_INLINE Sums nothing() {
        if constexpr (__is_same(Sum, Double2)) return {-Vec<double, lanes>{}, Vec<double, lanes>{}};
        else return -Sums{};
    }
    static POOLGRAD_INLINE Sum lane_of(Sums sum, int i) {
        if constexpr (__is_same(Sum, Double2)) return {sum.high[i], sum.low[i]};
        else return sum[i];
    }

    // What is called with every vector of outputs that is made, in `rows` rows of windows one below the other, so that what the rows below read is
    // there in time. Where windows two apart share columns, a line is asked for once, else with every vector of it (see asks_twice).
    template <int stride, int window, int rows = 1> POOLGRAD_INLINE auto ask_for_next(const Rows& from) const {
        const int64_t row = g.rank > 1 ? job.x.step[g.rank - 2] : 0, below = stride * row;   // from a row of elements and of windows to the next
        return [x = from.x + larger(ahead, rows > 1 ? rows * below : 0), next = from.fresh, row, below,
                joined = from.fresh->follow && from.fresh->together == stride && stride * rows > 1, begin = even.whole ? 0 : even.begin](int64_t o)
                   __attribute__((always_inline)) {
                       constexpr int64_t line = 64 / sizeof(Stored), step = stride * lanes;
                       if (joined) {   // the rows that all of them need are one
                           constexpr int64_t n = stride * rows;
                           if (n * step < line && n * stride * (o - begin) % line) return;
                           for (int i = 0; i < next->count; ++i) ask_for(x + next->offset[i] + n * stride * o, n * step);
                           return;
                       }
                       constexpr bool once = stride == 2 && window == 3 && line > step;
                       if (once && stride * (o - begin) % line) return;
                       for (int i = 0; i < next->count; ++i)
                           for (int64_t q = 0; q < next->together; ++q)
                               for (int r = 0; r < rows; ++r) ask_for(x + next->offset[i] + q * row + r * below + stride * o, once ? line : step);
                   };
    }

    // A column that a window lacks is -0 here and changes no sum.
    template <int stride, int window, int before, int count> void whole_windows(Stored* y, const Count& given, int64_t some) const {
        const int64_t y_row = some > 1 ? job.y.step[g.rank - 2] : 0, x_row = some > 1 ? rows_apart() : 0;
        Rows from = rows();
        for (; some > 0; --some, y += y_row, from.x += x_row) one_row<stride, window, before, count>(y, given, from);
    }

    template <int stride, int window, int before, int count> POOLGRAD_INLINE void one_row(Stored* y, const Count& given, Rows given_rows) const {
        const Count by = given;
        const Rows from = given_rows;
        const auto ask = ask_for_next<stride, window>(from);
        const Stored* row[count ? count : 1];   // where no store can change it
        for (int t = 0; t < count; ++t) row[t] = from.x + from.taps[t].offset;
        const auto row_at = [&](int64_t t) __attribute__((always_inline)) { return count ? row[t] : from.x + from.taps[t].offset; };
        Sums sum, first;
        whole_row<stride, lanes>(
            axis.count, nothing(), [&](int64_t i) __attribute__((always_inline)) { return columns<stride, count>(row_at, from.count, i); },
            [&](int64_t o, Sums left, const Columns<Sums, stride>& own, Sums right) __attribute__((always_inline)) {
                ask(o);
                sum = before ? left + own.of[0] : own.of[0];
                if constexpr (stride == 2) sum = plus(sum, own.of[1]);
                if constexpr (before + stride < window) sum = plus(sum, right);
                if (before && o == 0) first = sum;
                write_outputs<stride>(y + o, sum, by);
            });
        if (even.begin > 0)
            y[0] = E::average_one(before ? lane_of(first, 0) : sum_of(even.other[0], from.x), taps[0].divisor * even.other[0].divisor);
        if (even.end < axis.count) y[axis.count - 1] = E::average_one(lane_of(sum, lanes - 1), taps[0].divisor * even.other[even.others - 1].divisor);
    }

    int64_t rows_apart() const { return g.axes[g.rank - 2].stride * job.x.step[g.rank - 2]; }   // elements, from a row of windows to the next

    template <int stride, int window> void even_windows(Stored* y, const Count& by) const {
        const Rows from = rows();
        const auto ask = ask_for_next<stride, window>(from);
        const int64_t step = stride * lanes, before = axis.before, end = even.end;
        const int64_t last = smaller(end - lanes, floor_div(axis.size + before - 2 * step, stride));
        int64_t o = even.begin;
        if (o <= last) {   // each column is summed once
            Columns<Sums, stride> now = columns<stride>(from, stride * o - before);
            for (; o <= last; o += lanes) {
                const Columns<Sums, stride> next = columns<stride>(from, stride * (o + lanes) - before);
                ask(o);
                Sums sum = now.of[0];
                if constexpr (stride == 1) sum += lanes_from<1, lanes>(now.of[0], next.of[0]);
                else sum += now.of[1];
                if constexpr (window == 3 && stride == 1) sum += lanes_from<2, lanes>(now.of[0], next.of[0]);
                if constexpr (window == 3 && stride == 2) sum += from_right<lanes, 2>(now.of[0], next.of[0]);
                write_outputs<stride>(y + o, sum, by);
                now = next;
            }
        }
        for (; o < end; o += lanes) {   // what lies behind the last column is not read
            o = smaller(o, end - lanes);
            ask(o);
            const int64_t at = stride * o - before;
            const Columns<Sums, stride> now = columns<stride>(from, at);
            Sums sum = now.of[0];
            if constexpr (stride == 1) sum += columns<1>(from, at + 1).of[0];
            else sum += now.of[1];
            if constexpr (window == 3) sum += columns<stride>(from, at + 3 - stride).of[stride - 1];
            write_outputs<stride>(y + o, sum, by);
        }
    }

    // This row of windows of 3 x 3 and the next: rows that both read are read once. There is one plane of them, or if `planes` is 0 any number.
    using Two = Several<Sums, 2>;
    template <int stride, int planes>
    static POOLGRAD_INLINE Columns<Two, stride> columns_of_two(const Stored* first_row, const Rows& from, int64_t step, int64_t at) {
        Sums sum[2][stride];
        const auto plane = [&](const Stored* row, bool first) __attribute__((always_inline)) {
            each<stride + 3>([&](auto r) __attribute__((always_inline)) {
                Sums one[stride];
                if constexpr (stride == 2 && __is_same(E, BrainSum)) E::template widen_pairs<lanes>(row + r * step, one[0], one[1]);
                else
                    for (int u = 0; u < stride; ++u) one[u] = E::widen_lanes(row + r * step + u * lanes);
                for (int u = 0; u < stride; ++u) {
                    if constexpr (r < 3) sum[0][u] = first && r == 0 ? one[u] : plus(sum[0][u], one[u]);
                    if constexpr (r >= stride) sum[1][u] = first && r == stride ? one[u] : plus(sum[1][u], one[u]);
                }
            });
        };
        plane(first_row + at, true);
        for (int64_t t = 3; planes == 0 && t < from.count; t += 3) plane(from.x + from.taps[t].offset + at, false);
        if constexpr (stride == 1) return {{{{sum[0][0], sum[1][0]}}}};
        else if constexpr (__is_same(E, BrainSum)) return {{{{sum[0][0], sum[1][0]}}, {{sum[0][1], sum[1][1]}}}};
        else
            return {{{{every_second<0, lanes>(sum[0][0], sum[0][1]), every_second<0, lanes>(sum[1][0], sum[1][1])}},
                     {{every_second<1, lanes>(sum[0][0], sum[0][1]), every_second<1, lanes>(sum[1][0], sum[1][1])}}}};
    }

    template <int stride, int before, int planes> void two_rows(Stored* y, const Count& given) const {
        const Count by = given;
        const Rows from = rows();
        const auto ask = ask_for_next<stride, 3, 2>(from);
        const int64_t step = job.x.step[g.rank - 2], count = axis.count;
        const Stored* const row = from.x + from.taps[0].offset;
        Two sum, first;
        whole_row<stride, lanes>(
            count, Two{{nothing(), nothing()}},
            [=](int64_t i) __attribute__((always_inline)) { return columns_of_two<stride, planes>(row, from, step, i); },
            [&](int64_t o, const Two& left, const Columns<Two, stride>& own, const Two& right) __attribute__((always_inline)) {
                ask(o);
                sum = before ? left + own.of[0] : own.of[0];
                if constexpr (stride == 2) sum = sum + own.of[1];
                if constexpr (before + stride < 3) sum = sum + right;
                if (before && o == 0) first = sum;
                write_outputs<stride>(y + o, sum.of[0], by);
                write_outputs<stride>(y + count + o, sum.of[1], by);
            });
        each<2>([&](auto r) __attribute__((always_inline)) {   // not by a variable: what it selects would lie in memory
            const auto at_end = [&](int64_t o, Sum total, const typename Even::Other& window) {
                y[r * count + o] = E::average_one(total, taps[0].divisor * window.divisor);
            };
            if (even.begin > 0) at_end(0, before ? lane_of(first.of[r], 0) : sum_of(even.other[0], x + r * stride * step), even.other[0]);
            if (even.end < count) at_end(count - 1, lane_of(sum.of[r], lanes - 1), even.other[even.others - 1]);
        });
    }
    template <int stride, int before> void two_rows(Stored* y, const Count& by) const {
        tap_count == 3 ? two_rows<stride, before, 1>(y, by) : two_rows<stride, before, 0>(y, by);
    }

    // Two apart that pays for images that do not lie in the caches.
    void two_rows(Stored* y, const Count& by) const {
        if constexpr (has_several)
            if (axis.stride == 2) return axis.before ? two_rows<2, 1>(y, by) : two_rows<2, 0>(y, by);
        two_rows<1, 1>(y, by);
    }
    bool in_twos() const {
        if (g.rank < 2 || !even.whole || job.y.step[g.rank - 2] != axis.count || (axis.stride == 2 && !(has_several && ahead))) return false;
        const Axis& down = g.axes[g.rank - 2];
        return axis.window == 3 && down.uniform && down.window == 3 && down.stride == axis.stride && down.dilation == 1;
    }

    // This row of windows, or some.
    void row_in_registers(Stored* y, const Count& by, int64_t some) const {
        const bool every = axis.stride == 1, two = axis.window == 2;
        if (even.whole) {
            if (two && every) return whole_windows<1, 2, 0, 0>(y, by, some);
            if (two && tap_count == 2) return whole_windows<2, 2, 0, 2>(y, by, some);
            if (two) return tap_count == 4 ? whole_windows<2, 2, 0, 4>(y, by, some) : whole_windows<2, 2, 0, 0>(y, by, some);
            if (tap_count == 3) {
                if (every) return whole_windows<1, 3, 1, 3>(y, by, some);
                return axis.before ? whole_windows<2, 3, 1, 3>(y, by, some) : whole_windows<2, 3, 0, 3>(y, by, some);
            }
            if (every) return whole_windows<1, 3, 1, 0>(y, by, some);
            return axis.before ? whole_windows<2, 3, 1, 0>(y, by, some) : whole_windows<2, 3, 0, 0>(y, by, some);
        }
        for (int64_t i = 0; i < even.others; ++i) {
            const typename Even::Other& window = even.other[i];
            y[window.output] = E::average_one(sum_of(window, x), taps[0].divisor * window.divisor);
        }
        if (every) two ? even_windows<1, 2>(y, by) : even_windows<1, 3>(y, by);
        else two ? even_windows<2, 2>(y, by) : even_windows<2, 3>(y, by);
    }

    Sum sum_of(const typename Even::Other& window, const Stored* x) const {
        const auto column = [&](int64_t at) {
            Sum sum = E::widen_one(x[taps[0].offset + at]);
            for (int64_t t = 1; t < tap_count; ++t) sum = sum + E::widen_one(x[taps[t].offset + at]);
            return sum;
        };
        Sum sum = column(window.position);
        for (int64_t j = 1; j < window.length; ++j) sum = sum + column(window.position + j);
        return sum;
    }

    POOLGRAD_INLINE void one_output(Stored* y, const SumRow<E>& row, int64_t low, int64_t o) const {
        const Window window = window_of(axis, o);
        for (int64_t c = 0; c < g.inner; ++c) {
            const int64_t from = (window.position - low) * g.inner + c;
            Sum sum = row.get(from);
            for (int64_t j = 1; j < window.length; ++j) sum = sum + row.get(from + j * axis.dilation * g.inner);
            y[o * g.inner + c] = E::average_one(sum, taps[0].divisor * divisor(axis, o));
        }
    }

    void box(const Box& box) {
        const int last = g.rank - 1;
        RowWalk walk;
        if (!first_row(box, g.rank, walk)) return;
        Tap* room = static_cast<Tap*>(reserve(scratch, 0, sizeof(Tap) * static_cast<size_t>(most_window_taps(g))));
        taps = room;
        const int64_t w0 = box.low[last], w1 = box.high[last];
        if constexpr (has_listed) {
            if (row_count(g, box) >= some_rows) list(w0, w1);
        }
        const bool in_lines = job.streaming && g.inner < lanes, registers = in_registers(w0, w1);
        // Images that lie in memory are done one after the other, so that what is asked for ahead follows what is read; else, and small ones
        // whose results are written past the caches, they take turns.
        const bool small = g.axes[0].size * job.x.step[0] * static_cast<int64_t>(sizeof(Stored)) <= small_image;
        const int64_t images = ahead && !(small && job.streaming) ? 1 : box.n_end - box.n;
        const int64_t row_bytes = (w1 - w0) * g.inner * static_cast<int64_t>(sizeof(Stored));
        const bool joined = last > 0 && job.y.step[last - 1] == (w1 - w0) * g.inner;   // rows of results follow one another
        const int64_t most = joined ? larger(2, together_bytes / larger(1, row_bytes)) : 2;   // rows in lines
        LineWriter<Stored> lines(in_lines ? images : 0, most * (w1 - w0) * g.inner, scratch, 6);
        const Axis& down = g.axes[larger(0, last - 1)];
        const bool in_pairs = registers && in_twos();
        Count by(1);
        for (int64_t first = box.n; first < box.n_end; first += images) {
            int64_t known = INT64_MAX, moved = 0;   // a row whose taps are those of the rows below it, moved
            first_row(box, g.rank, walk);
            do {
                const int64_t at = walk.at[larger(0, last - 1)];
                moved = at > known && at < down.even_end ? moved + (at - known) * rows_apart() : 0;
                if (moved == 0) {
                    tap_count = window_taps(g, walk.at, job.x.step, room, follows_plane(g, box, walk.at, lanes));
                    if (ahead) {
                        fresh = FreshRows(g, job.x.step, taps, tap_count);
                        const bool shares = axis.window > axis.stride;   // else it takes longer so
                        soon = RowsAhead(ahead, shares ? axis.size * g.inner : 0, rows_apart(), fresh.rows(), sizeof(Stored));
                    }
                    if (registers) begin_row(by);
                }
                known = last > 0 && down.uniform && at >= down.even_begin ? at : INT64_MAX;
                const int64_t alike = known == at ? smaller(down.even_end, box.high[last - 1]) - at : 1;
                const bool two = in_pairs && alike > 1;
                const int64_t channels = rows_of_channels(alike);
                const int64_t some = two                         ? 2
                                     : !registers || !even.whole ? channels
                                     : ahead == 0 && !in_lines   ? larger(1, alike)
                                     : joined && in_lines        ? larger(1, smaller(alike, most))
                                                                 : 1;
                for (int64_t n = first; n < first + images; ++n) {
                    x = static_cast<const Stored*>(job.x.data) + outer_offset(job.x, n) + moved;
                    Stored* y = static_cast<Stored*>(job.y.data) + row_offset(job.y, n, walk, g.rank);
                    if constexpr (lanes > 1) {
                        if (g.inner >= lanes) {
                            row_of_channels(y, w0, w1, by, some);
                            continue;
                        }
                    }
                    if (in_lines) y = lines.open(n - first, y + w0 * g.inner) - w0 * g.inner;
                    if constexpr (has_small) {
                        if (two) two_rows(y, by);
                        else if (registers) row_in_registers(y, by, some);
                        else row_of_elements(y, w0, w1);
                    } else {
                        row_of_elements(y, w0, w1);
                    }
                    if (in_lines) lines.close((w1 - w0) * g.inner * some);
                }
                if (some > 1) walk.at[last - 1] += some - 1;
            } while (next_row(box, g.rank, walk));
        }
        if (job.streaming) stream_fence();
    }
};

// ---- spread ---------------------------------------------------------------------------------------------------------

template <class E> struct Spreader {
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    using Sums = typename E::Sums;
    using Weight = decltype(E::weigh(1));
    static constexpr int lanes = E::lanes;
    // Windows of 3 along a row. Not where windows share nothing (sums as narrow as elements), nor where they are long, nor for integers.
    static constexpr bool has_small = lanes > 1 && sizeof(Sum) == 2 * sizeof(Stored) && hurries;

    const Spread& job;
    const Geometry& g;
    const Axis& axis;
    Scratch& scratch;
    const Stored* grad = nullptr;   // the image's
    const Tap* taps = nullptr;
    int64_t tap_count = 0;
    bool same_divisors = true;   // whether all windows of the row are divided alike
    Weight weights[64] = {};     // of small divisors, as far as they were needed

    Spreader(const Spread& job, Scratch& scratch) : job(job), g(*job.geometry), axis(g.axes[g.rank - 1]), scratch(scratch) {}

    POOLGRAD_INLINE Weight weight(int64_t divisor) {   // divides once
        if (static_cast<uint64_t>(divisor) >= 64) return E::weigh(divisor);
        Weight& known = weights[divisor];
        if (known == 0) known = E::weigh(divisor);
        return known;
    }

    // The rows that take part, in a place that no store can change, and the weight of the windows `output` in them.
    struct Rows {
        const Stored* grad;
        const Tap* taps;
        int64_t count, here;
        bool alike;   // windows of all rows have this weight
        Weight one;
    };
    POOLGRAD_INLINE Rows rows_of(int64_t output) {
        const int64_t here = divisor(axis, output);
        return {
            grad + output * g.inner, taps, tap_count, here, same_divisors, same_divisors && tap_count ? weight(taps[0].divisor * here) : Weight{}};
    }

    // What these windows give to each of their elements.
    template <int vectors> POOLGRAD_INLINE void shares(Sums (&sum)[vectors], const Rows& rows, int64_t c) {
        for (int u = 0; u < vectors; ++u) sum[u] = Sums{};
        if (rows.alike) {
            for (int64_t t = 0; t < rows.count; ++t)
                for (int u = 0; u < vectors; ++u) sum[u] += E::widen_lanes(rows.grad + rows.taps[t].offset + c + u * lanes);
            if (rows.count == 0) return;
            for (int u = 0; u < vectors; ++u) sum[u] = E::share_lanes(sum[u], rows.one);
        } else {
            for (int64_t t = 0; t < rows.count; ++t) {
                const Weight w = weight(rows.taps[t].divisor * rows.here);
                for (int u = 0; u < vectors; ++u) sum[u] += E::share_lanes(E::widen_lanes(rows.grad + rows.taps[t].offset + c + u * lanes), w);
            }
        }
    }

    POOLGRAD_INLINE Sum share(int64_t output, int64_t c) {
        const int64_t here = divisor(axis, output), at = output * g.inner + c;
        Sum sum{};
        if (same_divisors) {
            for (int64_t t = 0; t < tap_count; ++t) sum = sum + E::widen_one(grad[taps[t].offset + at]);
            return tap_count ? E::share_one(sum, weight(taps[0].divisor * here)) : sum;
        }
        for (int64_t t = 0; t < tap_count; ++t) sum = sum + E::share_one(E::widen_one(grad[taps[t].offset + at]), weight(taps[t].divisor * here));
        return sum;
    }

    // The sum of a single share. Sums are never -0. Shares of float32 that stay float32 are what wider ones are rounded to: they may be.
    template <class S> static POOLGRAD_INLINE S alone(S share) {
        if constexpr (std::is_same_v<Stored, float> && std::is_same_v<Sum, float>) return share;
        else return S{} + share;
    }

    template <int vectors> static POOLGRAD_INLINE void write(Stored* to, const Sums (&sum)[vectors], bool streaming) {
        for (int u = 0; u < vectors; ++u) {
            const auto result = E::narrow_lanes(sum[u]);
            if (streaming) stream(to + u * lanes, result);
            else store(to + u * lanes, result);
        }
    }

    void row_of_channels(Stored* gx, int64_t w0, int64_t w1) {
        const Cover start = cover(axis, w0);
        if (!axis.starts && axis.dilation == 1 && axis.stride >= axis.window) {   // every input lies in one window at most
            int64_t w = w0;
            for (int64_t o = start.first; o < axis.count && w < w1; ++o) {
                if (const int64_t count = whole_windows(gx, o, w, w1)) {
                    o += count - 1, w += count * axis.stride;
                    continue;
                }
                const int64_t from = larger(w0, o * axis.stride - axis.before), to = smaller(w1, o * axis.stride - axis.before + axis.window);
                for (; w < smaller(from, w1); ++w) nothing(gx + w * g.inner);
                if (w >= to) continue;
                const Rows rows = rows_of(o);
                blocks_of_channels<lanes>(g.inner, [&](auto n, int64_t c) __attribute__((always_inline)) {
                    constexpr int vectors = decltype(n)::value;
                    Sums sum[vectors];
                    shares<vectors>(sum, rows, c);
                    for (int u = 0; u < vectors; ++u) sum[u] = alone(sum[u]);
                    for (int64_t i = w; i < to; ++i) write<vectors>(gx + i * g.inner + c, sum, job.streaming);
                });
                w = to;
            }
            for (; w < w1; ++w) nothing(gx + w * g.inner);
            return;
        }
        int64_t widest = 1;   // windows that any input needs at once
        for (int64_t w = w0; w < w1; ++w) widest = larger(widest, cover(axis, w).last - cover(axis, w).first);
        const int64_t inner = g.inner;
        const bool streaming = job.streaming, dilated = axis.dilation > 1;
        const Ring<E> ring(scratch, 1, widest, inner);
        int64_t ready = start.first;
        for (int64_t w = w0; w < w1; ++w) {
            const Cover windows = cover(axis, w);
            for (ready = larger(ready, windows.first); ready < windows.last; ++ready) {
                const Rows rows = rows_of(ready);
                blocks_of_channels<lanes>(inner, [=, this](auto n, int64_t c) __attribute__((always_inline)) {
                    constexpr int vectors = decltype(n)::value;
                    Sums sum[vectors];
                    shares<vectors>(sum, rows, c);
                    for (int u = 0; u < vectors; ++u) ring.sums.set_lanes(ring.at(ready, c + u * lanes), sum[u]);
                });
            }
            blocks_of_channels<lanes>(inner, [=, this](auto n, int64_t c) __attribute__((always_inline)) {
                constexpr int vectors = decltype(n)::value;
                Sums sum[vectors] = {};
                for (int64_t o = windows.first; o < windows.last; ++o) {
                    if (dilated && !contains(axis, o, w)) continue;
                    const int64_t from = ring.at(o, c);
                    for (int u = 0; u < vectors; ++u) sum[u] += ring.sums.lanes_at(from + u * lanes);
                }
                write<vectors>(gx + w * inner + c, sum, streaming);
            });
        }
    }

    // Windows side by side from window o on, which begins at w, that end before w1 and are all divided alike: every element of
    // theirs is written once. Returns how many there were.
    int64_t whole_windows(Stored* gx, int64_t o, int64_t w, int64_t w1) {
        const int64_t s = axis.stride, inner = g.inner, count = smaller((w1 - w) / s, axis.even_end - o);
        if (tap_count != 1 || s != axis.window || o < axis.even_begin || w != o * s - axis.before || count < 1) return 0;
        const int64_t divided_by = taps[0].divisor * divisor(axis, o);
        if (divided_by < 0 || divided_by >= 1 << 16) return 0;   // shares might be -0
        const Weight share = weight(divided_by);
        const bool streaming = job.streaming;
        const Stored* from = grad + taps[0].offset + o * inner;
        gx += w * inner;
        for (int64_t i = 0; i < count; ++i, from += inner, gx += s * inner)
            blocks_of_channels<lanes>(inner, [=](auto n, int64_t c) __attribute__((always_inline)) {
                constexpr int vectors = decltype(n)::value;
                Sums sum[vectors];
                for (int u = 0; u < vectors; ++u) sum[u] = alone(E::share_lanes(Sums{} + E::widen_lanes(from + c + u * lanes), share));
                for (int64_t p = 0; p < s; ++p) write<vectors>(gx + p * inner + c, sum, streaming);
            });
        return count;
    }

    void nothing(Stored* gx) const {
        blocks_of_channels<lanes>(g.inner, [&](auto n, int64_t c) {
            const Sums none[decltype(n)::value] = {};
            write<decltype(n)::value>(gx + c, none, job.streaming);
        });
    }

    Stored* finished_row(int64_t count) const { return static_cast<Stored*>(reserve(scratch, 2, sizeof(Stored) * static_cast<size_t>(count))); }

    // The shares of the windows [low, high) side by side, zeros where there are none, and some more behind.
    SumRow<E> shares_of(int64_t low, int64_t high) {
        const int64_t inner = g.inner, real_low = larger(low, 0), real_high = larger(real_low, smaller(high, axis.count)), margin = 2 * lanes;
        const SumRow<E> shared(reserve(scratch, 1, SumRow<E>::bytes((high - low) * inner + margin)), (high - low) * inner + margin);
        for (int64_t f = 0; f < (real_low - low) * inner; ++f) shared.set(f, Sum{});
        for (int64_t f = (real_high - low) * inner; f < (high - low) * inner + margin; ++f) shared.set(f, Sum{});
        all_shares(shared, low, real_low, real_high);
        return shared;
    }

    // Where windows repeat with the stride: the row [w0, w1), in scratch memory, so that it can serve the next ones too.
    const Stored* row_by_phase(int64_t w0, int64_t w1, const Phases& phases) {
        const int64_t inner = g.inner, s = axis.stride, first = floor_div(w0 + axis.before, s), last = floor_div(w1 - 1 + axis.before, s) + 1;
        Stored* row;
        if constexpr (lanes > 1) {
            if (inner == 1 && axis.window == s && axis.dilation == 1) {
                row = finished_row((last - first) * s);
                repeat_shares(row, first, last);
            } else {
                const int64_t count = (last - first) * inner;
                const SumRow<E> shared = shares_of(first + phases.lowest, last + phases.highest);
                row = finished_row(PhasedRow<Stored>::room(count, s));
                const PhasedRow<Stored> phased{row, count, inner, s};
                int64_t q = 0;
                for (; q + 4 * lanes <= count; q += 4 * lanes) along_row<4>(phased, shared, q, phases);
                for (; q < count; q += lanes) along_row<1>(phased, shared, q, phases);
                phased.finish();
            }
            return row + (w0 + axis.before - first * s) * inner;
        }
        return nullptr;   // there are no vectors
    }

    static bool same(Cover a, Cover b) { return a.first == b.first && a.last == b.last; }

    // Neighbours that lie in the same windows are the same.
    void row_of_elements(Stored* gx, int64_t w0, int64_t w1) {
        const int64_t low = cover(axis, w0).first;
        const SumRow<E> shared = shares_of(low, larger(low, cover(axis, w1 - 1).last));
        for (int64_t w = w0; w < w1;) {
            const Cover windows = cover(axis, w);
            Stored* const made = gx + w * g.inner;
            for (int64_t c = 0; c < g.inner; ++c) {
                Sum sum{};
                for (int64_t o = windows.first; o < windows.last; ++o)
                    if (contains(axis, o, w)) sum = sum + shared.get((o - low) * g.inner + c);
                made[c] = E::narrow_one(sum);
            }
            int64_t end = axis.uniform && axis.dilation == 1 ? w1 : w + 1;   // up to where the next window begins, or one ends
            if (windows.last < axis.count) end = smaller(end, windows.last * axis.stride - axis.before);
            if (windows.first < windows.last) end = smaller(end, windows.first * axis.stride - axis.before + axis.window);
            for (++w; w < end; ++w)
                for (int64_t c = 0; c < g.inner; ++c) gx[w * g.inner + c] = made[c];
        }
    }

    // ---- one channel, windows of three that begin one or two apart: shares never leave the registers ----

    // What the rows of a box have in common: pairs of elements [first, last), of which [low, high) begin with a window. If windows begin at
    // every element, these are no pairs.
    struct Pairs {
        int64_t first, last, low, high;
        int64_t room, skip;      // elements of such a row, and how many of them lie before the box,
        Stored* row;             // for rows that do not begin or end with it
        Weight* weights[4];      // of the windows along the row, each at its place,
        int64_t divisor[4];      // if those of the rows are this
    };
    Pairs pairs{};

    // Rows must be some: each window along them has its weight prepared.
    bool in_registers(const Box& box) {
        const int64_t w0 = box.low[g.rank - 1], w1 = box.high[g.rank - 1];
        if (!has_small || g.inner != 1 || !axis.uniform || axis.window != 3 || axis.dilation != 1 || row_count(g, box) < some_rows) return false;
        if (axis.stride == 1) {
            if (axis.before != 1 || axis.count != axis.size || w1 - w0 != axis.size) return false;
            pairs.first = pairs.low = 0, pairs.last = pairs.high = pairs.room = w1, pairs.skip = 0;
        } else if (axis.stride == 2) {
            pairs.first = (w0 + axis.before) / 2, pairs.last = (w1 - 1 + axis.before) / 2 + 1;
            pairs.low = pairs.first, pairs.high = smaller(pairs.last, axis.count);
            pairs.room = 2 * (pairs.last - pairs.first), pairs.skip = w0 + axis.before - 2 * pairs.first;
        }
        const int64_t begin = larger(pairs.low - 1, 0);
        if (pairs.high - pairs.low < lanes) return false;
        const size_t row = (sizeof(Stored) * static_cast<size_t>(4 * pairs.room) + 63) / 64 * 64;
        const int64_t windows = pairs.high - begin;
        pairs.row = static_cast<Stored*>(reserve(scratch, 6, row + sizeof(Weight) * static_cast<size_t>(4 * windows)));
        for (int t = 0; t < 4; ++t) {
            pairs.weights[t] = reinterpret_cast<Weight*>(reinterpret_cast<char*>(pairs.row) + row) + t * windows - begin;
            pairs.divisor[t] = INT64_MIN;   // none yet
        }
        return true;
    }

    static POOLGRAD_INLINE void store_pairs(Stored* to, Sums first, Sums second, bool streaming = false) {
        if constexpr (__is_same(E, BrainSum)) E::template store_pairs<lanes>(to, first, second);
        else store_interleaved<Stored, lanes>(to, E::narrow_lanes(first), E::narrow_lanes(second), streaming);
    }

    // The weights of the windows along a row, whose rows (tap t) are divided by this.
    const Weight* weights_along(int t, int64_t divided_by) {
        Weight* const weights = pairs.weights[t];
        if (pairs.divisor[t] != divided_by)
            for (int64_t o = larger(pairs.low - 1, 0); o < pairs.high; ++o) weights[o] = weight(divided_by * divisor(axis, o));
        pairs.divisor[t] = divided_by;
        return weights;
    }

    // The shares of the windows from o on, in a place that no store can change.
    POOLGRAD_INLINE auto shares_along() {
        return [from = grad, rows = taps, count = tap_count, weigh = weights_along(0, taps[0].divisor)](int64_t o) __attribute__((always_inline)) {
            Sums sum{};
            for (int64_t t = 0; t < count; ++t) sum += E::widen_lanes(from + rows[t].offset + o);
            return E::share_lanes(sum, load<Vec<Weight, lanes>>(weigh + o));
        };
    }

    // Windows that begin at every element: it lies in those before, at and behind it.
    POOLGRAD_INLINE void row_of_threes(Stored* row) {
        const auto shares_from = shares_along();
        whole_row<1, lanes>(
            axis.count, Sums{}, [&](int64_t o) __attribute__((always_inline)) { return Columns<Sums, 1>{{shares_from(o)}}; },
            [&](int64_t o, Sums left, const Columns<Sums, 1>& own, Sums right)
                __attribute__((always_inline)) { store(row + o, E::narrow_lanes(Sums{} + left + own.of[0] + right)); });
    }

    // Windows that begin two apart: odd elements lie in one of them, the others in two.
    POOLGRAD_INLINE void row_of_pairs(Stored* row) {
        const int64_t first = pairs.first, last = pairs.last, low = pairs.low, high = pairs.high;
        const auto shares_from = shares_along();
        const auto write_pairs = [row = row - 2 * first](int64_t o, Sums before, Sums here)
                                     __attribute__((always_inline)) { store_pairs(row + 2 * o, Sums{} + before + here, Sums{} + here); };
        int64_t o = low;
        Sums here = shares_from(o), before = o > 0 ? shares_from(o - 1) : lanes_from<lanes - 1, lanes>(Sums{}, here);
        for (; o + 2 * lanes <= high; o += lanes) {
            write_pairs(o, before, here);
            const Sums next = shares_from(o + lanes);
            before = lanes_from<lanes - 1, lanes>(here, next), here = next;
        }
        write_pairs(o, before, here);
        if (o + lanes < high) write_pairs(high - lanes, shares_from(high - lanes - 1), shares_from(high - lanes));
        for (o = high; o < last; ++o) {   // behind the last window
            row[2 * (o - first)] = E::narrow_one(o == axis.count ? Sum{} + share(o - 1, 0) : Sum{});
            row[2 * (o - first) + 1] = E::narrow_one(Sum{});
        }
    }

    // ---- windows of three on all axes that overlap: rows of elements that lie in the same rows of windows are made together ----

    // Rows two by two, on one axis or on two, and the rows of windows (taps) that they lie in.
    template <int rows_, int stride_> struct Together {
        static constexpr int rows = rows_, stride = stride_, axes = rows / 2, taps = stride == 2 ? rows : rows + 2;
        static constexpr int back = stride == 2 ? 1 : 2;   // windows before the one that begins at an element which contain it too
        static constexpr bool lies_in(int row, int tap) { return stride == 2 ? (tap & row) == row : tap >= row && tap < row + 3; }
    };

    template <class T> struct Group {
        int64_t offset[T::taps], divisor[T::taps];   // in an image of windows
        bool real[T::taps];                          // whether there are such windows
        int tap[T::rows];                            // one of those that the row lies in, if there are any
        bool alike[T::rows], all_alike;              // whether those of a row, and those of all rows, are divided alike
        int64_t row[T::rows];                        // where the rows are, from the first on
    };

    // The group whose first row is at `walk`.
    template <class T> Group<T> group_at(const RowWalk& walk) const {
        const int last = g.rank - 1;
        Group<T> group;
        int64_t offset = 0, product = 1;
        bool any = true, found = false;
        for (int a = 0; a < last - T::axes; ++a) {
            const Cover windows = cover(g.axes[a], walk.at[a]);
            any = any && windows.first < windows.last;
            if (any) offset += windows.first * job.g.step[a], product *= divisor(g.axes[a], windows.first);
        }
        for (int t = 0; t < T::taps; ++t) {
            group.offset[t] = offset, group.divisor[t] = product, group.real[t] = any;
            for (int i = 0; group.real[t] && i < T::axes; ++i) {
                const int a = last - 1 - i;
                const int64_t o = (walk.at[a] + g.axes[a].before) / T::stride - T::back + (T::axes == 1 ? t : t >> i & 1);
                group.real[t] = o >= 0 && o < g.axes[a].count;
                if (group.real[t]) group.offset[t] += o * job.g.step[a], group.divisor[t] *= divisor(g.axes[a], o);
            }
        }
        group.all_alike = true;
        for (int t = 0; t < T::taps; ++t) {
            if (!group.real[t]) continue;
            if (found) group.all_alike = group.all_alike && group.divisor[t] == product;
            else found = true, product = group.divisor[t];
        }
        for (int r = 0; r < T::rows; ++r) {
            group.row[r] = 0;
            for (int i = 0; i < T::axes; ++i) group.row[r] += (r >> i & 1) * job.gx.step[last - 1 - i];
            group.alike[r] = true, group.tap[r] = -1;
            for (int t = 0; t < T::taps; ++t) {
                if (!T::lies_in(r, t) || !group.real[t]) continue;
                if (group.tap[r] < 0) group.tap[r] = t;
                else group.alike[r] = group.alike[r] && group.divisor[t] == group.divisor[group.tap[r]];
            }
            if (group.tap[r] < 0) group.tap[r] = 0;
        }
        for (int t = 0; t < T::taps; ++t)
            if (!group.real[t]) group.divisor[t] = product;
        return group;
    }

    // In place of a row of windows that is not there: of one channel as many, else those of one window.
    int64_t zero_count() const { return g.inner == 1 ? axis.count : g.inner; }
    Stored* zeros() const { return static_cast<Stored*>(reserve(scratch, 5, sizeof(Stored) * static_cast<size_t>(zero_count()))); }

    // Sums over the taps of every row.
    template <class T> static POOLGRAD_INLINE Several<Sums, T::rows> over_taps(const Sums (&of_tap)[T::taps]) {
        Several<Sums, T::rows> sum;
        each<T::rows>([&](auto r) __attribute__((always_inline)) {
            sum.of[r] = of_tap[r];   // the first it lies in
            each<T::taps>([&](auto t) __attribute__((always_inline)) {
                if constexpr (t > r && T::lies_in(r, t)) sum.of[r] = plus(sum.of[r], of_tap[t]);
            });
        });
        return sum;
    }

    // What windows give to the elements of every row. Never -0, so that sums of it need no 0 to begin with. by(t) is the weight of tap t.
    template <class T, class By> static POOLGRAD_INLINE Several<Sums, T::rows> shares_of(Sums (&of_tap)[T::taps], const Group<T>& group, By&& by) {
        Several<Sums, T::rows> own = over_taps<T>(of_tap);
        if (group.all_alike) {
            const auto weights = by(0);
            each<T::rows>([&](auto r) __attribute__((always_inline)) { own.of[r] = E::share_from_zero(own.of[r], weights); });
            return own;
        }
        each<T::taps>([&](auto t) __attribute__((always_inline)) { of_tap[t] = E::share_lanes(of_tap[t], by(t)); });
        const Several<Sums, T::rows> shares = over_taps<T>(of_tap);
        each<T::rows>([&](auto r) __attribute__((always_inline)) {
            own.of[r] = Sums{} + (group.alike[r] ? E::share_lanes(own.of[r], by(group.tap[r])) : shares.of[r]);
        });
        return own;
    }

    // Windows side by side in the rows of a group, from window `o` on, that are divided alike; and the elements that lie in none behind
    // them: one, or two that begin with the window.
    template <class T> struct Run {
        int64_t o, count;
        const Stored* from[T::taps];
        int64_t step[T::taps];
        Stored* to[T::rows];         // the first element
        Sum* before;                 // shares of the windows before
        bool real, first, second;    // whether there are such windows, and elements
        Weight weights[T::taps];
    };

    // Where vectors hold only a part of a line, results that go past the caches are first made in a place of their own: lines that are
    // begun in turn are written in pieces otherwise, which takes several times as long.
    static constexpr bool makes_lines = lanes * sizeof(Stored) < 64;

    template <class T, bool whole> POOLGRAD_INLINE void channels_of(Run<T> run, const Group<T>& group, bool streaming) const {
        constexpr int rows = T::rows, taps = T::taps;
        const int64_t inner = g.inner, row = T::stride * inner;
        const bool apart = makes_lines && streaming;
        Stored* const room = apart ? finished_row(rows * row) : nullptr;
        for (; run.count > 0; --run.count, ++run.o) {
            Sum* before = run.before;
            for (int64_t c = 0; c < inner; c += lanes, before += T::back * rows * lanes) {
                c = smaller(c, inner - lanes);   // the last vector overlaps the one before, but not in what is kept
                Several<Sums, rows> own{};
                if (whole || run.real) {
                    Sums x[taps];
                    each<taps>([&](auto t) __attribute__((always_inline)) { x[t] = E::widen_lanes(run.from[t] + c); });
                    if constexpr (whole) {
                        own = over_taps<T>(x);
                        each<rows>([&](auto r) __attribute__((always_inline)) { own.of[r] = E::share_from_zero(own.of[r], run.weights[0]); });
                    } else {
                        own = shares_of<T>(x, group, [&](int t) __attribute__((always_inline)) { return run.weights[t]; });
                    }
                }
                each<rows>([&](auto r) __attribute__((always_inline)) {
                    Sum* const kept = before + (run.o & (T::back - 1)) * rows * lanes + r * lanes;
                    Sums sum = load<Sums>(kept);
                    if constexpr (T::back == 2) sum = plus(sum, load<Sums>(before + (~run.o & 1) * rows * lanes + r * lanes));
                    store(kept, own.of[r]);
                    const Sums first[1] = {plus(sum, own.of[r])}, second[1] = {own.of[r]};
                    Stored* const to = apart ? room + r * row : run.to[r];
                    if (whole || run.first) write<1>(to + c, first, streaming && !apart);
                    if (T::stride == 2 && (whole || run.second)) write<1>(to + inner + c, second, streaming && !apart);
                });
            }
            const int64_t skip = whole || run.first ? 0 : inner, end = T::stride == 1 || whole || run.second ? row : inner;
            for (int r = 0; apart && r < rows; ++r) write_row(run.to[r] + skip, room + r * row + skip, end - skip, true);
            each<taps>([&](auto t) __attribute__((always_inline)) { run.from[t] += run.step[t]; });
            each<rows>([&](auto r) __attribute__((always_inline)) { run.to[r] += T::stride * inner; });
        }
    }

    template <class T> void group_of_channels(const Group<T>& group, const Stored* image, Stored* to, int64_t w0, int64_t w1) {
        constexpr int rows = T::rows, taps = T::taps;
        const int64_t inner = g.inner, kept = ceil_div(inner, lanes) * T::back * rows * lanes;
        Run<T> run;
        run.before = static_cast<Sum*>(reserve(scratch, 1, sizeof(Sum) * static_cast<size_t>(kept)));
        for (int64_t i = 0; i < kept; ++i) run.before[i] = Sum{};
        const Stored* const none = zeros();
        const int64_t begin = (w0 + axis.before) / T::stride, end = (w1 - 1 + axis.before) / T::stride + 1;
        const int64_t whole_end =
            smaller(axis.even_end, floor_div(w1 - T::stride + axis.before, T::stride) + 1);   // of windows with all their elements
        for (int64_t o = begin - T::back; o < end; o += run.count) {
            const int64_t w = o * T::stride - axis.before;
            run.o = o, run.count = 1;
            run.real = o >= 0 && o < axis.count, run.first = o >= begin && w >= w0, run.second = o >= begin && w + 1 < w1;
            if (o < begin && !run.real) continue;
            if (run.real)
                for (int t = 0; t < taps; ++t) run.weights[t] = weight(group.divisor[t] * divisor(axis, o));
            for (int t = 0; t < taps; ++t)
                run.from[t] = group.real[t] ? image + group.offset[t] + o * inner : none, run.step[t] = group.real[t] ? inner : 0;
            for (int r = 0; r < rows; ++r) run.to[r] = to + group.row[r] + w * inner;
            const bool whole = run.first && o >= axis.even_begin && o < whole_end;
            if (whole) run.count = whole_end - o;
            if (!whole || !group.all_alike) channels_of<T, false>(run, group, job.streaming);
            else if (job.streaming) channels_of<T, true>(run, group, true);
            else channels_of<T, true>(run, group, false);
        }
    }

    // One channel; results in whole vectors may be written past the caches at once.
    template <class T> void group_of_elements(const Group<T>& given, const Stored* image, Stored* const* rows_to, bool streaming) {
        constexpr int rows = T::rows, taps = T::taps;
        using All = Several<Sums, rows>;
        const Group<T> group = given;
        const Stored* from[taps];
        const Weight* weights[taps];
        for (int t = 0; t < taps; ++t) {
            from[t] = group.real[t] ? image + group.offset[t] : zeros();
            int same = 0;
            while (group.divisor[same] != group.divisor[t]) ++same;
            weights[t] = weights_along(same, group.divisor[t]);
        }
        const auto shares_from = [&](int64_t o) __attribute__((always_inline)) {
            Sums x[taps];
            each<taps>([&](auto t) __attribute__((always_inline)) { x[t] = E::widen_lanes(from[t] + o); });
            return shares_of<T>(x, group, [&](int t) __attribute__((always_inline)) { return load<Vec<Weight, lanes>>(weights[t] + o); });
        };
        Stored* to[rows];
        for (int r = 0; r < rows; ++r) to[r] = rows_to[r] - T::stride * pairs.first;
        if constexpr (T::stride == 1) {
            const auto write_all = [&](int64_t o, const All& sum) __attribute__((always_inline)) {
                each<rows>([&](auto r) __attribute__((always_inline)) { store(to[r] + o, E::narrow_lanes(sum.of[r])); });
            };
            whole_row<1, lanes>(
                axis.count, All{}, [&](int64_t o) __attribute__((always_inline)) { return Columns<All, 1>{{shares_from(o)}}; },
                [&](int64_t o, const All& left, const Columns<All, 1>& own, const All& right)
                    __attribute__((always_inline)) { write_all(o, left + own.of[0] + right); });
        } else {
            const auto write_pairs = [&](int64_t o, const All& before, const All& here) __attribute__((always_inline)) {
                each<rows>([&](auto r)
                               __attribute__((always_inline)) { store_pairs(to[r] + 2 * o, plus(before.of[r], here.of[r]), here.of[r], streaming); });
            };
            const int64_t last = pairs.last, low = pairs.low, high = pairs.high;
            int64_t o = low;
            All here = shares_from(o), before = o > 0 ? shares_from(o - 1) : lanes_from<lanes - 1, lanes>(All{}, here);
            for (; o + 2 * lanes <= high; o += lanes) {
                write_pairs(o, before, here);
                const All next = shares_from(o + lanes);
                before = lanes_from<lanes - 1, lanes>(here, next), here = next;
            }
            write_pairs(o, before, here);
            if (o + lanes < high) here = shares_from(high - lanes), write_pairs(high - lanes, shares_from(high - lanes - 1), here);
            for (o = high; o < last; ++o) {   // behind the last window
                for (int r = 0; r < rows; ++r) {
                    to[r][2 * o] = E::narrow_one(o == axis.count ? last_of(here.of[r]) : Sum{});
                    to[r][2 * o + 1] = E::narrow_one(Sum{});
                }
            }
        }
    }
    static POOLGRAD_INLINE Sum last_of(Sums sum) {
        if constexpr (std::is_same_v<Sum, Double2>) return {sum.high[lanes - 1], sum.low[lanes - 1]};
        else return sum[lanes - 1];
    }

    // Of the elements [low, high) of an axis, those that fill groups.
    template <class T> static Span grouped(const Axis& rows, int64_t low, int64_t high) {
        const int64_t skip = T::stride == 2 && (low + rows.before) % 2 ? 1 : 0;
        return {low + skip, larger(0, high - low - skip) / 2 * 2};
    }

    // Makes the groups of a box. What is left, in so many boxes, is not done.
    template <class T> int groups(Box box, bool registers, Box* left) {
        const int last = g.rank - 1;
        int count = 0;
        for (int a = last - 1; a >= last - T::axes; --a) {
            const Span rows = grouped<T>(g.axes[a], box.low[a], box.high[a]);
            if (rows.length == 0) {
                left[count++] = box;
                return count;
            }
            for (const Span part :
                 {Span{box.low[a], rows.first - box.low[a]}, Span{rows.first + rows.length, box.high[a] - rows.first - rows.length}}) {
                if (part.length == 0) continue;
                left[count] = box;
                left[count].low[a] = part.first, left[count++].high[a] = part.first + part.length;
            }
            box.low[a] = rows.first, box.high[a] = rows.first + rows.length;
        }
        const int64_t w0 = box.low[last], w1 = box.high[last], elements = w1 - w0, images = box.n_end - box.n;
        Stored* const none = zeros();
        for (int64_t i = 0; i < zero_count(); ++i) none[i] = Stored{};
        Box steps = box;   // a step is two rows
        for (int a = last - T::axes; a < last; ++a) steps.low[a] = 0, steps.high[a] = (box.high[a] - box.low[a]) / 2;
        const bool whole = registers && pairs.skip == 0 && pairs.room == elements, in_place = whole && !job.streaming;
        const bool joined = whole && T::axes == 1 && job.gx.step[last - 1] == elements;   // the rows of a group follow one another
        const bool in_lines = registers && job.streaming;
        constexpr bool streams = lanes * sizeof(Stored) >= 16 && !__is_same(E, BrainSum);   // vectors of results as they are made
        const bool in_vectors = streams && T::stride == 2 && in_lines && whole && pairs.last == pairs.high && (pairs.high - pairs.low) % lanes == 0;
        LineWriter<Stored> lines(in_lines ? images * T::axes : 0, in_lines ? T::rows * elements : 0, scratch, 7);
        RowWalk step, walk;
        if (!first_row(steps, g.rank, step)) return count;
        do {
            walk = step;
            for (int a = last - T::axes; a < last; ++a) walk.at[a] = box.low[a] + 2 * step.at[a];
            const Group<T> group = group_at<T>(walk);
            for (int64_t n = box.n; n < box.n_end; ++n) {
                const Stored* image = static_cast<const Stored*>(job.g.data) + outer_offset(job.g, n);
                Stored* const gx = static_cast<Stored*>(job.gx.data) + row_offset(job.gx, n, walk, g.rank);
                if (!registers) {
                    group_of_channels<T>(group, image, gx, w0, w1);
                    continue;
                }
                const int64_t together = joined ? T::rows : 1;   // rows that are written as one
                const auto aligned = [=](Stored* to) {
                    return (reinterpret_cast<uintptr_t>(to) | sizeof(Stored) * static_cast<size_t>(together * elements)) % 64 == 0;
                };
                bool at_once = in_vectors;
                for (int r = 0; r < T::rows; ++r) at_once = at_once && aligned(gx + w0 + group.row[r]);
                const bool direct = in_lines && joined && !aligned(gx + w0);
                Stored* const opened = direct ? lines.open(n - box.n, gx + w0) : pairs.row;
                Stored* made[T::rows];
                for (int r = 0; r < T::rows; ++r) made[r] = in_place || at_once ? gx + w0 + group.row[r] : opened + r * pairs.room;
                group_of_elements<T>(group, image, made, at_once);
                if (direct) lines.close(T::rows * elements);
                for (int64_t r = 0; !direct && !in_place && !at_once && r < T::rows; r += together) {
                    const Stored* const from = made[r] + pairs.skip;
                    Stored* const to = gx + w0 + group.row[r];
                    if (!in_lines || aligned(to)) {
                        write_row(to, from, together * elements, job.streaming);
                        continue;
                    }
                    __builtin_memcpy(lines.open((n - box.n) * T::axes + (r >> 1), to), from, sizeof(Stored) * static_cast<size_t>(elements));
                    lines.close(elements);
                }
            }
        } while (next_row(steps, g.rank, step));
        return count;
    }

    // How many rows are made together: 1, 2 or 4.
    int rows_together(bool registers) const {
        constexpr int64_t most_bytes = 1 << 15;   // of shares that are kept: they should stay in the first cache
        const int last = g.rank - 1;
        const auto threes = [&](const Axis& a) { return a.uniform && a.window == 3 && a.dilation == 1 && a.stride == axis.stride; };
        if (!has_small || last < 1 || axis.stride > 2 || !threes(axis) || !threes(g.axes[last - 1])) return 1;
        const bool split = vector_bytes == 32 && sizeof(Stored) == 8;   // twofold sums would be stored and loaded in different pieces
        if (!registers && (split || g.inner < lanes || 4 * static_cast<int64_t>(sizeof(Sum)) * g.inner > most_bytes)) return 1;
        const int rows = last > 1 && axis.stride == 2 && threes(g.axes[last - 2]) ? 4 : 2;
        for (int a = 0; a < last - rows / 2; ++a)
            if (const Axis& other = g.axes[a]; !other.uniform || other.dilation > 1 || other.window > other.stride) return 1;
        return rows;
    }

    void box(const Box& box) {
        const bool registers = in_registers(box);
        Box left[4] = {box};
        int count = 1;
        if constexpr (has_small) {
            const int rows = rows_together(registers);
            if (rows == 4) count = groups<Together<4, 2>>(box, registers, left);
            else if (rows == 2)
                count = axis.stride == 2 ? groups<Together<2, 2>>(box, registers, left) : groups<Together<2, 1>>(box, registers, left);
        }
        for (int i = 0; i < count; ++i) rows_of(left[i], registers);
        if (job.streaming) stream_fence();
    }

    // Some vectors of every phase of a row, from the shares of its windows.
    template <int vectors> POOLGRAD_INLINE void along_row(const PhasedRow<Stored>& row, const SumRow<E>& shared, int64_t q,
                                                          const Phases& phases) const {
        const int64_t inner = g.inner;
        using Narrow = Vec<Stored, lanes>;
        const auto of_phase = [&](int64_t phase, Narrow(&result)[vectors]) __attribute__((always_inline)) {
            Sums sum[vectors] = {};
            for (int64_t k = phases.begin[phase]; k < phases.begin[phase + 1]; ++k) {
                const int64_t from = q + (phases.shifts[k].shift - phases.lowest) * inner;
                for (int u = 0; u < vectors; ++u) sum[u] += shared.lanes_at(from + u * lanes);
            }
            for (int u = 0; u < vectors; ++u) result[u] = E::narrow_lanes(sum[u]);
        };
        row.template put<lanes, vectors>(q, of_phase);
    }

    // Calls f(flat (output, channel) index, shares) for vectors of windows that are all divided by `here` along the row; the last
    // vector overlaps the one before. Returns where it ended: at once if there are too few for a vector.
    template <class F> POOLGRAD_INLINE int64_t even_shares(int64_t low, int64_t high, int64_t here, F&& f) {
        const Stored* const from = grad;   // copies, which no store can change
        const Tap* const rows = taps;
        const int64_t count = tap_count;
        const Weight w = weight(count ? rows[0].divisor * here : 1);
        if (high - low < lanes) return low;
        if (same_divisors) {
            for (int64_t q = low; q < high; q += lanes) {
                q = smaller(q, high - lanes);
                Sums sum{};
                for (int64_t t = 0; t < count; ++t) sum += E::widen_lanes(from + rows[t].offset + q);
                f(q, E::share_lanes(sum, w));
            }
        } else {
            for (int64_t q = low; q < high; q += lanes) {
                q = smaller(q, high - lanes);
                Sums sum{};
                for (int64_t t = 0; t < count; ++t) sum += E::share_lanes(E::widen_lanes(from + rows[t].offset + q), weight(rows[t].divisor * here));
                f(q, sum);
            }
        }
        return high;
    }

    // One channel, windows side by side: every element is the share of its window.
    void repeat_shares(Stored* row, int64_t first, int64_t last) {
        const int64_t s = axis.stride;
        const int64_t begin = smaller(last, larger(first, axis.even_begin)), end = larger(begin, smaller(last, axis.even_end));
        const auto one_window = [&](int64_t o) {
            const Stored value = E::narrow_one(o >= 0 && o < axis.count ? alone(share(o, 0)) : Sum{});
            for (int64_t p = 0; p < s; ++p) row[(o - first) * s + p] = value;
        };
        int64_t o = first;
        for (; o < begin; ++o) one_window(o);
        const int64_t here = begin < end ? divisor(axis, begin) : 1;
        o = even_shares(o, end, here, [&](int64_t at, Sums sum) __attribute__((always_inline)) {
            if (s == 2) return store_pairs(row + (at - first) * 2, alone(sum), alone(sum));
            const auto value = E::narrow_lanes(alone(sum));
            for (int64_t i = 0; i < lanes * s; ++i) row[(at - first) * s + i] = value[i / s];
        });
        for (; o < last; ++o) one_window(o);
    }

    // The shares of the windows [low, high); the row begins with window `base`.
    void all_shares(const SumRow<E>& row, int64_t base, int64_t low, int64_t high) {
        int64_t o = low;
        const auto one_window = [&] {
            for (int64_t c = 0; c < g.inner; ++c) row.set((o - base) * g.inner + c, share(o, c));
        };
        if constexpr (lanes > 1) {
            if (tap_count && axis.uniform) {   // even windows of an output row have one weight
                const int64_t begin = smaller(high, larger(low, axis.even_begin)), end = larger(begin, smaller(high, axis.even_end));
                for (; o < begin; ++o) one_window();
                const int64_t here = begin < end ? divisor(axis, begin) : 1;
                o = even_shares(o * g.inner, end * g.inner, here,
                                [&](int64_t at, Sums sum) __attribute__((always_inline)) { row.set_lanes(at - base * g.inner, sum); }) /
                    g.inner;
            }
        }
        for (; o < high; ++o) one_window();
    }

    POOLGRAD_INLINE void rows_of(const Box& box, bool registers) {   // inline, so that what the struct holds stays in registers
        const int last = g.rank - 1;
        RowWalk walk;
        if (!first_row(box, g.rank, walk)) return;
        Tap* rows = static_cast<Tap*>(reserve(scratch, 0, sizeof(Tap) * static_cast<size_t>(most_cover_taps(g))));
        taps = rows;
        const int64_t w0 = box.low[last], w1 = box.high[last];
        const bool by_phase = lanes > 1 && g.inner < lanes && axis.uniform && axis.stride <= 16 && axis.window <= 4096 && !few_windows(axis);
        const Phases phases = by_phase ? Phases(axis, scratch, 3) : Phases();
        const Axis& rows_axis = g.axes[larger(0, last - 1)];
        const bool repeats = (lanes == 1 || g.inner < lanes) && last > 0 && rows_axis.dilation == 1 &&
                             (rows_axis.starts || few_windows(rows_axis) || (rows_axis.stride > 1 && rows_axis.window % rows_axis.stride == 0));
        const bool in_place = registers && pairs.skip == 0 && pairs.room == w1 - w0;
        const int64_t elements = (w1 - w0) * g.inner;
        const size_t bytes = sizeof(Stored) * static_cast<size_t>(elements);
        const bool may_line = job.streaming && g.inner < lanes;
        LineWriter<Stored> lines(may_line ? box.n_end - box.n : 0, may_line ? elements : 0, scratch, 7);
        do {
            const int64_t at = walk.at[larger(0, last - 1)];
            int64_t copies = 1;   // rows that lie in the same windows, and are the same
            while (repeats && at + copies < box.high[last - 1] && same(cover(rows_axis, at), cover(rows_axis, at + copies))) ++copies;
            tap_count = cover_taps(g, walk.at, job.g.step, job.g.step, rows);
            same_divisors = true;
            for (int64_t t = 1; t < tap_count; ++t) same_divisors = same_divisors && taps[t].divisor == taps[0].divisor;
            for (int64_t n = box.n; n < box.n_end; ++n) {
                grad = static_cast<const Stored*>(job.g.data) + outer_offset(job.g, n);
                Stored* gx = static_cast<Stored*>(job.gx.data) + row_offset(job.gx, n, walk, g.rank);
                if constexpr (lanes > 1) {
                    if (g.inner >= lanes) {
                        row_of_channels(gx, w0, w1);
                        continue;
                    }
                }
                gx += w0 * g.inner;
                const bool aligned = (reinterpret_cast<uintptr_t>(gx) | bytes) % 64 == 0, in_lines = may_line && !aligned;
                const auto row_to = [&]() __attribute__((always_inline)) { return in_lines ? lines.open(n - box.n, gx) : gx; };
                const Stored* made = nullptr;   // the row, if it lies elsewhere
                if (registers && same_divisors && tap_count) {
                    if (!in_place || copies > 1 || (job.streaming && aligned)) made = pairs.row + pairs.skip;
                    Stored* const row = made ? pairs.row : row_to();
                    if constexpr (has_small) axis.stride == 1 ? row_of_threes(row) : row_of_pairs(row);
                } else if (by_phase) {
                    made = row_by_phase(w0, w1, phases);
                } else {
                    Stored* const row = copies > 1 ? finished_row(elements) : row_to();
                    if (copies > 1) made = row;
                    row_of_elements(row - w0 * g.inner, w0, w1);
                }
                for (int64_t i = 0; made && i < copies; ++i, gx += job.gx.step[larger(0, last - 1)]) {
                    if (!in_lines) {
                        write_row(gx, made, elements, job.streaming);
                        continue;
                    }
                    __builtin_memcpy(lines.open(n - box.n, gx), made, bytes);
                    lines.close(elements);
                }
                if (!made && in_lines) lines.close(elements);
            }
            for (int64_t i = copies; i > 1; --i) next_row(box, g.rank, walk);
        } while (next_row(box, g.rank, walk));
    }
};

}  // namespace

void POOLGRAD_KERNEL(mean)(const Mean& job, const Box& box, Scratch& scratch) {
    with_exact_sum(job.type, job.geometry->elements > long_window, [&](auto element) { Averager<decltype(element)>(job, scratch).box(box); });
}

void POOLGRAD_KERNEL(spread)(const Spread& job, const Box& box, Scratch& scratch) {
    const Geometry& g = *job.geometry;
    const Axis& axis = g.axes[g.rank - 1];
    // Exact shares need no wider type where each is written as it is, in whole vectors.
    const bool side_by_side = g.inner == 1 && axis.uniform && axis.window == axis.stride && axis.stride <= 16;
    const int64_t together = side_by_side ? axis.even_end - axis.even_begin : g.inner;
    if (job.exact && together >= vector_bytes / dtype_bytes(job.type)) {
        if (job.type == DType::f32) return Spreader<Plain<float, float>>(job, scratch).box(box);
        if (job.type == DType::f64) return Spreader<Plain<double, double>>(job, scratch).box(box);
    }
    with_share(job.type, g.elements > long_window, [&](auto element) { Spreader<decltype(element)>(job, scratch).box(box); });
}

}  // namespace poolgrad
