// Maxima of windows that begin at every position, where vectors hold channels: first along the rows of the input, once for all
// windows that share a row, then down the columns of what that gave. Neighbours have most of their elements in common, so a few
// windows are done together. Of equal elements the first in scan order stays, since what comes first is always on the left.
#pragma once

#include "kernels.hpp"
#include "reduce.hpp"

namespace poolgrad {
namespace {

template <class Order, What what> struct Sliding {
    using Stored = typename Order::Stored;
    using Key = typename Order::Key;
    using I = typename IntOf<sizeof(Key)>::type;
    static constexpr int lanes = vector_bytes / sizeof(Key);
    static constexpr bool writes_code = what == What::code || what == What::both, writes_value = what != What::code;
    static constexpr int64_t kept_bytes = int64_t{1} << 19;   // of what the rows hand to the columns
    using Keys = Vec<Key, lanes>;
    using Code = typename IntOf<sizeof(Key)>::natural;   // may wrap
    using Codes = Vec<Code, lanes>;

    struct Item {
        Keys key;
        Codes code;
    };

    const Scan& job;
    const Geometry& g;
    const Axis &rows, &axis;
    const Order order;
    const int64_t ahead;
    int64_t width = 0, pitch = 0;   // from a row to the next, of those that are kept: in windows and in elements
    Key* keys = nullptr;            // their maxima
    uint8_t* codes = nullptr;       // and where these are, along the row
    uint8_t* nans = nullptr;        // which windows of the rows have met a NaN
    bool nan[2 * most_everywhere];  // whether any window of a row has
    int64_t kept = 0;               // rows
    const Stored* x = nullptr;      // the image's
    int64_t w0 = 0, w1 = 0;         // the windows that are worked on

    Sliding(const Scan& job, Order order)
        : job(job),
          g(*job.geometry),
          rows(g.axes[0]),
          axis(g.axes[g.rank - 1]),
          order(order),
          ahead(read_ahead<Stored>(g, job.x)) {}

    static bool suits(const Geometry& g) { return g.inner >= lanes && begins_everywhere(g); }

    static POOLGRAD_INLINE Item merge(const Item& left, const Item& right) {
        Item winner;
        if constexpr (writes_code) winner.code = right.key > left.key ? right.code : left.code;
        winner.key = larger_lanes(right.key, left.key);
        return winner;
    }

    // `count` neighbouring windows; of(i) is the item i from the beginning of the first, out(i, item) takes the winner of window i.
    template <int count, class Of, class Out> static POOLGRAD_INLINE void neighbours(int64_t window, Of&& of, Out&& out) {
        Item inside[count];   // of every window what the first reaches
        inside[count - 1] = of(count - 1);
        for (int64_t i = count; i < window; ++i) inside[count - 1] = merge(inside[count - 1], of(i));
        for (int i = count - 2; i >= 0; --i) inside[i] = merge(of(i), inside[i + 1]);
        out(0, inside[0]);
        if constexpr (count > 1) {
            Item beyond = of(window);
            out(1, merge(inside[1], beyond));
            for (int i = 2; i < count; ++i) {
                beyond = merge(beyond, of(window + i - 1));
                out(i, merge(inside[i], beyond));
            }
        }
    }

    // Windows from o on along a row, of whose local positions only `real` are.
    template <int count> POOLGRAD_INLINE void windows_of_row(const Stored* row, int64_t h, int64_t o, Span real) {
        const int64_t inner = g.inner, at = (o - axis.before + real.first) * inner, begin = h % kept * pitch + (o - w0) * inner, far = ahead;
        Keys sum{};
        Key* const to_keys = keys + begin;
        uint8_t* const to_codes = codes + begin;
        for (int64_t c = 0; c < inner; c += lanes) {
            c = smaller(c, inner - lanes);   // the last block overlaps the one before
            if (far)
                for (int i = 0; i < count; ++i) ask_for(row + (o + i) * inner + c + far, lanes);
            Keys total{};   // of its own, so that blocks need not wait for each other
            const auto of = [&](int64_t i) __attribute__((always_inline)) {
                const auto element = load<Vec<Stored, lanes>>(row + at + i * inner + c);
                if constexpr (Order::has_nan) total += element;
                return Item{order.keys(element), Codes{} + static_cast<Code>(real.first + i)};
            };
            neighbours<count>(real.length, of, [&](int i, const Item& winner) __attribute__((always_inline)) {
                store(to_keys + i * inner + c, winner.key);
                if constexpr (writes_code)
                    store_codes<I, lanes>(to_codes + i * inner + c, 1, reinterpret_cast<Vec<I, lanes>>(winner.code - static_cast<Code>(i)));
            });
            if constexpr (Order::has_nan) sum += total;
        }
        if constexpr (Order::has_nan) {
            const bool met = any_nan(sum);
            nan[h % kept] |= met;
            __builtin_memset(nans + h % kept * width + o - w0, met, count);
        }
    }

    template <int count> void along(int64_t h) {
        const Stored* const row = x + h * job.x.step[0];
        nan[h % kept] = false;
        int64_t o = w0;
        while (o < w1) {
            if (o >= axis.whole_begin && o + count <= smaller(w1, axis.whole_end)) {
                windows_of_row<count>(row, h, o, {0, axis.window});
                o += count;
            } else {
                windows_of_row<1>(row, h, o, span(axis, o));
                ++o;
            }
        }
    }

    // The results of `count` rows of windows from o on, the first of which reads from row h on.
    template <int count> void down(int64_t n, int64_t o, int64_t h, Span real) const {
        int64_t from[2 * most_everywhere];
        for (int64_t i = 0; i < real.length + count - 1; ++i) from[i] = (h + i) % kept * pitch;
        const int64_t size = (w1 - w0) * g.inner, step = g.code_step[0], y_step = job.y.step[0], code_step = job.code.step[0];
        const Key* const keys = this->keys;
        const uint8_t* const codes = this->codes;
        const int width = job.code_width;
        const bool streaming = job.streaming;
        Stored* y = nullptr;
        char* code = nullptr;
        if constexpr (writes_value) y = static_cast<Stored*>(job.y.data) + outer_offset(job.y, n) + o * y_step + w0 * g.inner;
        if constexpr (writes_code) code = static_cast<char*>(job.code.data) + (outer_offset(job.code, n) + o * code_step + w0 * g.inner) * width;
        const auto windows_at = [&](int64_t f, auto&& write) __attribute__((always_inline)) {
            const auto of = [&](int64_t i) __attribute__((always_inline)) {
                Item item{load<Keys>(keys + from[i] + f), {}};
                if constexpr (writes_code)
                    item.code = reinterpret_cast<Codes>(load_codes<I, lanes>(codes + from[i] + f, 1)) + static_cast<Code>((real.first + i) * step);
                return item;
            };
            neighbours<count>(real.length, of, [&](int i, const Item& winner) __attribute__((always_inline)) {
                if constexpr (writes_value) write(i, order.values(winner.key));
                if constexpr (writes_code)
                    store_codes<I, lanes>(code + (i * code_step + f) * width, width,
                                          reinterpret_cast<Vec<I, lanes>>(winner.code - static_cast<Code>(i * step)));
            });
        };
        if (vector_bytes < 64 && writes_value && streaming) {
            constexpr int some = 128 / sizeof(Stored);
            alignas(64) Stored kept[count][some];
            for (int64_t f = 0; f < size; f += some) {
                const int64_t filled = smaller(some, size - f);
                for (int64_t j = 0; j < filled; j += lanes)
                    windows_at(f + j, [&](int i, auto value) __attribute__((always_inline)) { store(&kept[i][j], value); });
                for (int i = 0; i < count; ++i) stream_vectors(y + i * y_step + f, kept[i], filled);
            }
            return;
        }
        for (int64_t f = 0; f < size; f += lanes) {
            f = smaller(f, size - lanes);
            windows_at(f, [&](int i, auto value) __attribute__((always_inline)) {
                Stored* const to = y + i * y_step + f;
                if (streaming) stream(to, value);
                else store(to, value);
            });
        }
    }

    // Calls with_care(box) for windows that have met a NaN.
    template <class WithCare> void image(int64_t n, const Box& box, WithCare&& with_care) {
        x = static_cast<const Stored*>(job.x.data) + outer_offset(job.x, n);
        int64_t next = 0;   // row of the input
        for (int64_t o = box.low[0], count; o < box.high[0]; o += count) {
            const Span real = span(rows, o);
            const int64_t h = o - rows.before + real.first;
            const int64_t group = rows.window >= 4 ? 4 : 2;
            count = o >= rows.whole_begin && o + group <= smaller(box.high[0], rows.whole_end) ? group : 1;
            next = larger(next, h);
            for (; next < h + real.length + count - 1; ++next) axis.window >= 4 ? along<4>(next) : along<2>(next);
            if (count == 4) down<4>(n, o, h, real);
            else if (count == 2) down<2>(n, o, h, real);
            else down<1>(n, o, h, real);
            bool care = false;
            for (int64_t i = h; i < next; ++i) care |= nan[i % kept];
            const auto met = [&](int64_t w) {
                for (int64_t i = h; i < next; ++i)
                    if (nans[i % kept * width + w - w0]) return true;
                return false;
            };
            for (int64_t from = w0, to; care && from < w1; from = to) {
                for (to = from; to < w1 && met(to);) ++to;
                Box some = box;
                some.n = n, some.n_end = n + 1;
                some.low[0] = o, some.high[0] = o + count, some.low[1] = from, some.high[1] = to;
                if (from < to) with_care(some);
                while (to < w1 && !met(to)) ++to;
            }
        }
    }

    template <class WithCare> void run(const Box& box, Scratch& scratch, WithCare&& with_care) {
        constexpr int64_t item = sizeof(Key) + writes_code;
        kept = rows.window + 3;
        const int64_t most = larger(columns_everywhere, kept_bytes / (kept * g.inner * item)), all = box.high[1] - box.low[1];
        width = ceil_div(all, ceil_div(all, most));
        pitch = width * g.inner;
        keys = static_cast<Key*>(reserve(scratch, 2, static_cast<size_t>(kept * (pitch * item + width))));
        codes = reinterpret_cast<uint8_t*>(keys + kept * pitch);
        nans = codes + (writes_code ? kept * pitch : 0);
        for (int64_t n = box.n; n < box.n_end; ++n)
            for (w0 = box.low[1]; w0 < box.high[1]; w0 = w1) {
                w1 = smaller(box.high[1], w0 + width);
                image(n, box, with_care);
            }
        if (job.streaming) stream_fence();
    }
};

#if defined(__AVX2__)
// The same for windows of 3 x 3 elements, where what is handed from the rows to the columns would leave the nearest cache: two rows of two
// windows at a time stay in registers. What is missing at the border is like the element next to it, which changes nothing but the code.
template <class Order, What what> struct SlidingThrees {
    using Stored = typename Order::Stored;
    using Key = typename Order::Key;
    using I = typename IntOf<sizeof(Key)>::type;
    static constexpr int lanes = vector_bytes / sizeof(Key), many = 2;   // windows of a row
    static constexpr bool writes_code = what == What::code || what == What::both, writes_value = what != What::code;
    using Keys = Vec<Key, lanes>;
    using Codes = Vec<I, lanes>;

    struct Item {
        Keys key;
        Codes code;
    };

    // Where the elements of the rows or columns of neighbouring windows are, and their local positions in the first window.
    template <int count> struct Places {
        int64_t at[count];
        I local[count];

        Places(const Axis& axis, int64_t o, int64_t step) {
            for (int i = 0; i < count; ++i) {
                const int64_t position = larger(0, smaller(axis.size - 1, o - axis.before + i));
                at[i] = position * step, local[i] = static_cast<I>(position - o + axis.before);
            }
        }
    };

    const Scan& job;
    const Geometry& g;
    const Axis &rows, &axis;
    const Order order;
    const int64_t ahead;

    SlidingThrees(const Scan& job, Order order)
        : job(job),
          g(*job.geometry),
          rows(g.axes[0]),
          axis(g.axes[1]),
          order(order),
          ahead(read_ahead<Stored>(g, job.x)) {}

    static bool suits(const Scan& job, const Box& box) {
        const Geometry& g = *job.geometry;
        return g.inner >= lanes && begins_everywhere(g) && g.axes[0].window == 3 && g.axes[1].window == 3 && box.high[0] - box.low[0] >= 2 &&
               box.high[1] - box.low[1] >= many && (!writes_code || job.code_width == 1);
    }

    static POOLGRAD_INLINE Item merge(const Item& left, const Item& right) {
        Item winner;
        if constexpr (writes_code) winner.code = right.key > left.key ? right.code : left.code;
        winner.key = larger_lanes(right.key, left.key);
        return winner;
    }

    // The windows of two rows from o on and w on; false if a NaN was met.
    __attribute__((noinline)) bool block(int64_t n, int64_t o, int64_t w) const {
        const int64_t inner = g.inner, y_step = job.y.step[0], code_step = job.code.step[0], far = ahead ? 2 * job.x.step[0] : 0;
        const Places<4> down(rows, o, job.x.step[0]);
        const Places<many + 2> along(axis, w, inner);
        const Stored* const x = static_cast<const Stored*>(job.x.data) + outer_offset(job.x, n);
        const Stored* const row[4] = {x + down.at[0], x + down.at[1], x + down.at[2], x + down.at[3]};
        Stored* y = nullptr;
        char* code = nullptr;
        if constexpr (writes_value) y = static_cast<Stored*>(job.y.data) + outer_offset(job.y, n) + o * y_step + w * inner;
        if constexpr (writes_code) code = static_cast<char*>(job.code.data) + outer_offset(job.code, n) + o * code_step + w * inner;
        Keys sum{};
        const auto block_at = [&](int64_t c, Stored* to, int64_t to_step, int64_t to_row) __attribute__((always_inline)) {
            const auto winners = [&](int r, Item(&winner)[many]) __attribute__((always_inline)) {
                Item item[many + 2];
                Keys total{};   // of its own, so that rows need not wait for each other
                for (int i = 0; i < many + 2; ++i) {
                    const auto element = load<Vec<Stored, lanes>>(row[r] + along.at[i] + c);
                    if constexpr (Order::has_nan) total += element;
                    item[i] = {order.keys(element), Codes{} + static_cast<I>(3 * down.local[r] + along.local[i])};
                }
                if constexpr (Order::has_nan) sum += total;
                const Item both = merge(item[1], item[2]);
                winner[0] = merge(item[0], both), winner[1] = merge(both, item[3]);
            };
            const auto write = [&](int r, int i, const Item& winner) __attribute__((always_inline)) {
                if constexpr (writes_value) store(to + r * to_row + i * to_step, order.values(winner.key));
                if constexpr (writes_code) store_codes<I, lanes>(code + r * code_step + i * inner + c, 1, winner.code - static_cast<I>(3 * r + i));
            };
            Item middle[many], outer[many];
            winners(1, middle);
            winners(2, outer);
            for (int i = 0; i < many; ++i) middle[i] = merge(middle[i], outer[i]);
            winners(0, outer);
            for (int i = 0; i < many; ++i) write(0, i, merge(outer[i], middle[i]));
            winners(3, outer);
            for (int i = 0; i < many; ++i) write(1, i, merge(middle[i], outer[i]));
        };
        const auto ask = [&](int64_t c, int64_t count) __attribute__((always_inline)) {   // for what the rows below read first
            for (int i = 1; far && i <= many; ++i) ask_for(row[2] + far + along.at[i] + c, count), ask_for(row[3] + far + along.at[i] + c, count);
        };
        if (writes_value && job.streaming) {
            constexpr int some = 256 / sizeof(Stored);
            alignas(64) Stored kept[2 * many][some];   // so that lines are written at once
            for (int64_t c = 0; c < inner; c += some) {
                const int64_t size = smaller(some, inner - c);
                ask(c, size);
                for (int64_t i = 0; i < size; i += lanes) block_at(c + i, &kept[0][i], some, many * some);
                for (int i = 0; i < 2 * many; ++i) stream_vectors(y + i / many * y_step + i % many * inner + c, kept[i], size);
            }
        } else {
            for (int64_t c = 0; c < inner; c += lanes) {
                c = smaller(c, inner - lanes);   // the last block overlaps the one before
                ask(c, lanes);
                block_at(c, y + c, inner, y_step);
            }
        }
        if constexpr (Order::has_nan) return !any_nan(sum);
        return true;
    }

    // Calls with_care(box) for windows that have met a NaN.
    template <class WithCare> void run(const Box& box, WithCare&& with_care) const {
        for (int64_t n = box.n; n < box.n_end; ++n)
            for (int64_t o = box.low[0]; o < box.high[0]; o += 2) {
                o = smaller(o, box.high[0] - 2);   // the last rows overlap those before, and so do the last windows
                for (int64_t w = box.low[1]; w < box.high[1]; w += many) {
                    w = smaller(w, box.high[1] - many);
                    if (block(n, o, w)) continue;
                    Box some = box;
                    some.n = n, some.n_end = n + 1;
                    some.low[0] = o, some.high[0] = o + 2, some.low[1] = w, some.high[1] = w + many;
                    with_care(some);
                }
            }
        if (job.streaming) stream_fence();
    }
};
#endif

}  // namespace
}  // namespace poolgrad
