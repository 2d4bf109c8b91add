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
        for (int64_t f = 0; f < size; f += lanes) {
            f = smaller(f, size - lanes);
            const auto of = [&](int64_t i) __attribute__((always_inline)) {
                Item item{load<Keys>(keys + from[i] + f), {}};
                if constexpr (writes_code)
                    item.code = reinterpret_cast<Codes>(load_codes<I, lanes>(codes + from[i] + f, 1)) + static_cast<Code>((real.first + i) * step);
                return item;
            };
            neighbours<count>(real.length, of, [&](int i, const Item& winner) __attribute__((always_inline)) {
                const auto value = order.values(winner.key);
                if constexpr (writes_value) {
                    Stored* const to = y + i * y_step + f;
                    if (streaming) stream(to, value);
                    else store(to, value);
                }
                if constexpr (writes_code)
                    store_codes<I, lanes>(code + (i * code_step + f) * width, width,
                                          reinterpret_cast<Vec<I, lanes>>(winner.code - static_cast<Code>(i * step)));
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

}  // namespace
}  // namespace poolgrad
