// Maxima over windows of 3 x 3 elements around those of a plane. Rows are compared along themselves first and with each other then: that is the
// order in which windows are read, so of equal elements the first stays, and no codes have to be compared. Vectors go down the plane, where
// two rows of windows at a time share what they have in common, and nothing leaves the registers but results. With AVX-512 masks tell what is
// missing at the ends of rows, with AVX2 vectors there are shifted.
#pragma once

#include "kernels.hpp"
#include "reduce.hpp"

namespace poolgrad {
namespace {

#if defined(__AVX2__)
template <class Order, What what> struct Around {
    using Stored = typename Order::Stored;
    using Key = typename Order::Key;
    static constexpr int lanes = vector_bytes / sizeof(Key);
    static constexpr bool writes_code = what == What::code || what == What::both, writes_value = what != What::code;
    static constexpr bool carries = what == What::take || (writes_value && !Order::key_is_value);   // values that the keys do not tell
    static constexpr int64_t band_bytes = int64_t{1} << 13, least_band = 8;   // bytes and rows that are done together
    static constexpr int64_t most_bytes = what == What::value ? 1600 : 2560;  // of a row: going down longer ones, each element is far from the last
    using Keys = Vec<Key, lanes>;
    using Values = Vec<Stored, lanes>;
#if defined(__AVX512BW__)
    static constexpr bool exists = sizeof(Key) > 1;
    using Bytes = Vec<uint8_t, lanes == 32 ? 32 : 16>;
#else
    static constexpr bool exists = sizeof(Key) >= 4 && what != What::take;
    using Bytes = Vec<typename IntOf<sizeof(Key)>::type, lanes>;   // masks are as wide as the keys, and so are codes
#endif

    // The winners of all three neighbours along a row.
    struct Winners {
        Keys key;
        Values value;  // where carried
        Bytes code;
    };

    // A vector of windows: the middle of the first, and which of them have neighbours on the left and on the right.
    struct Block {
        int64_t column, done;  // and how many windows were done before
        uint64_t has_left, has_right;
        Bytes first_code;  // 1 where nothing is on the left
    };

    const Scan& job;
    const Geometry& g;
    const Axis &down, &along;
    const Order order;
    const bool asks;
    const Stored *x = nullptr, *v = nullptr, *wanted = nullptr;  // of the first row of middles, and of windows
    Stored* y = nullptr;
    uint8_t* code = nullptr;
    bool met_nan = false;  // in a band
    bool differs = false;  // whether a maximum is not the wanted value

    Around(const Scan& job, Order order)
        : job(job),
          g(*job.geometry),
          down(g.axes[0]),
          along(g.axes[1]),
          order(order),
          asks(read_ahead<Stored>(g, job.x) > 0) {}

    static bool suits(const Scan& job, const Box& box) {
        const Geometry& g = *job.geometry;
        return around_elements(g) && g.axes[1].count >= lanes && g.axes[1].size * static_cast<int64_t>(sizeof(Stored)) <= most_bytes &&
               box.low[1] == 0 && box.high[1] == g.axes[1].count && (!writes_code || job.code_width == 1) && (vector_bytes == 64 || !job.declined);
    }

#if defined(__AVX512BW__)
    static POOLGRAD_INLINE Values load_left(Values own, const Stored* p, uint64_t has) { return load_over<Stored>(own, p - 1, has); }
    static POOLGRAD_INLINE Values load_right(Values own, const Stored* p, uint64_t has) { return load_over<Stored>(own, p + 1, has); }
#else
    static constexpr uint64_t all_lanes = ~uint64_t{0} >> (64 - lanes);
    static POOLGRAD_INLINE auto lanes_above(Keys x, Keys y) { return x > y; }
    static POOLGRAD_INLINE Values load_left(Values own, const Stored* p, uint64_t has) {
        const Bytes lane = iota<typename IntOf<sizeof(Key)>::type, lanes>();
        return has == all_lanes ? load<Values>(p - 1) : shuffle(own, own, lane - (lane > 0 ? Bytes{} + 1 : Bytes{}));
    }
    static POOLGRAD_INLINE Values load_right(Values own, const Stored* p, uint64_t has) {
        const Bytes lane = iota<typename IntOf<sizeof(Key)>::type, lanes>();
        return has == all_lanes ? load<Values>(p + 1) : shuffle(own, own, lane + (lane < lanes - 1 ? Bytes{} + 1 : Bytes{}));
    }
#endif

    // What is missing at the ends of a row is like the element next to it, which changes nothing but the code.
    POOLGRAD_INLINE Winners winners_of(const Stored* p, const Stored* q, const Block& block, NanWatch<Keys>& nans) const {
        const Values own = read_once(load<Values>(p));
        const Values before = read_once(load_left(own, p, block.has_left)), behind = read_once(load_right(own, p, block.has_right));
        Winners w;
        if constexpr (Order::has_nan) nans.see(before, behind);
        const Keys left = order.keys(before), middle = order.keys(own), right = order.keys(behind), first = larger_lanes(middle, left);
        w.key = larger_lanes(right, first);
        if constexpr (writes_code || carries) {
            const auto second = lanes_above(middle, left), third = lanes_above(right, first);
            if constexpr (writes_code) w.code = plus_where(third, plus_where(second, block.first_code, Bytes{}, 1), Bytes{}, 2);
            if constexpr (what == What::take) {
                const Values taken = load<Values>(q);
                const Values other = keep_lanes<Stored>(taken, second, load_over<Stored>(taken, q - 1, block.has_left));
                w.value = keep_lanes<Stored>(load_over<Stored>(taken, q + 1, block.has_right), third, other);
            } else if constexpr (carries) {
                w.value = keep_lanes<Stored>(behind, third, keep_lanes<Stored>(own, second, before));
            }
        }
        return w;
    }

    // Codes, or in some lanes others plus some number.
    template <class Mask> static POOLGRAD_INLINE Bytes plus_where(Mask bits, Bytes codes, Bytes others, uint8_t more) {
        const Bytes sums = others + more;
#if !defined(__AVX512BW__)
        return bits ? sums : codes;
#else
        if constexpr (lanes == 32)
            return reinterpret_cast<Bytes>(_mm256_mask_mov_epi8(reinterpret_cast<__m256i>(codes), bits, reinterpret_cast<__m256i>(sums)));
        else return reinterpret_cast<Bytes>(_mm_mask_mov_epi8(reinterpret_cast<__m128i>(codes), bits, reinterpret_cast<__m128i>(sums)));
#endif
    }

    // The winners of rows and of those that follow them, whose rows are `rows` below.
    static POOLGRAD_INLINE Winners better(const Winners& first, const Winners& then, uint8_t rows) {
        Winners w;
        w.key = larger_lanes(then.key, first.key);
        if constexpr (writes_code || carries) {
            const auto bits = lanes_above(then.key, first.key);
            if constexpr (writes_code) w.code = plus_where(bits, first.code, then.code, static_cast<uint8_t>(3 * rows));
            if constexpr (carries) w.value = keep_lanes<Stored>(then.value, bits, first.value);
        }
        return w;
    }

    // Some rows of windows in a vector of columns, the first of which has its middle in row `row`. While they are read, those of the next band are
    // asked for: a part of them with each vector.
    __attribute__((noinline)) void go_down(int64_t row, int64_t count, const Block& given) {
        const Block block = given;  // in a place that no store can change, like all that follows
        const int64_t step = job.x.step[0], v_step = job.v.step[0], y_step = along.count, code_step = job.code.step[0], rows = down.size - row;
        const int64_t first = block.column - 1 + along.before, asked = asks ? count * (step + block.done) : 0;
        const Stored *const own = x, *const taken = v, *const expected = wanted;
        Stored* const values = y;
        uint8_t* const codes = code;
        NanWatch<Keys> nans;
        uint64_t unlike = 0;
        const auto row_at = [&](int64_t r) __attribute__((always_inline)) {
            const Stored* q = nullptr;
            if constexpr (what == What::take) q = taken + r * v_step + block.column;
            return winners_of(own + r * step + block.column, q, block, nans);
        };
        const auto write = [&](const Winners& w, int64_t r) __attribute__((always_inline)) {
            const int64_t to = r * y_step + first;
            if constexpr (carries) store(values + to, w.value);
            else if constexpr (writes_value) store(values + to, order.values(w.key));
#if defined(__AVX512BW__)
            if constexpr (writes_code) __builtin_memcpy(codes + r * code_step + first, &w.code, lanes);
            if constexpr (what == What::code || what == What::take)
                if (expected) unlike |= lanes_differing(w.key, order.keys(load<Values>(expected + to)));
#else
            if constexpr (writes_code) store_codes<typename IntOf<sizeof(Key)>::type, lanes>(codes + r * code_step + first, 1, w.code);
#endif
        };
        Winners here = row_at(0), above = here;
        if (row > 0) above = row_at(-1);
        else if constexpr (writes_code) above.code += 3;  // there is none: like the first, which changes nothing
        for (int64_t i = 0; i < count; i += 2) {
            if (asked) {
                const int64_t next = asked + i * lanes;
                ask_for(own + next, 2 * lanes);
                if constexpr (what == What::take) ask_for(taken + next, 2 * lanes);
                if (expected) ask_for(expected + next, 2 * lanes);
            }
            const Winners below = i + 1 < rows ? row_at(i + 1) : here, last = i + 2 < rows ? row_at(i + 2) : below;
            const Winners both = better(here, below, 1);
            write(better(above, both, 1), i);
            if (i + 1 < count) write(better(both, last, 2), i + 1);
            above = below, here = last;
        }
        if constexpr (Order::has_nan) met_nan |= nans.any();
        differs |= unlike != 0;
    }

    // Returns false if a NaN was met.
    bool band(int64_t row, int64_t count) {
        const int64_t end = 1 - along.before + along.count;
        constexpr uint64_t all = ~uint64_t{0} >> (64 - lanes);
        met_nan = false;
        for (int64_t c = 1 - along.before, done = 0; c < end; c += lanes, done += lanes) {
            c = smaller(c, end - lanes);  // the last vector overlaps the one before
            Block block{c, done, c > 0 ? all : all - 1, c + lanes < along.size ? all : all >> 1, {}};
            if (c == 0) block.first_code[0] = 1;
            go_down(row, count, block);
        }
        return !met_nan;
    }

    // with_care does a box that holds a NaN.
    template <class WithCare> void run(const Box& box, Scratch& scratch, WithCare&& with_care) {
        const int64_t most = larger(least_band, band_bytes / (along.size * static_cast<int64_t>(sizeof(Stored))));
        const int64_t bands = ceil_div(box.high[0] - box.low[0], most), rows = ceil_div(ceil_div(box.high[0] - box.low[0], bands), 2) * 2;
        const bool in_lines = writes_value && job.streaming;
        LineWriter<Stored> lines(in_lines ? 1 : 0, rows * along.count, scratch, 6);
        for (int64_t n = box.n; n < box.n_end; ++n)
            for (int64_t o = box.low[0], end; o < box.high[0]; o = end) {
                end = smaller(box.high[0], o + rows);
                const int64_t row = o - down.before + 1;
                x = static_cast<const Stored*>(job.x.data) + outer_offset(job.x, n) + row * job.x.step[0];
                if constexpr (what == What::take) v = static_cast<const Stored*>(job.v.data) + outer_offset(job.v, n) + row * job.v.step[0];
                if constexpr (writes_code) code = static_cast<uint8_t*>(job.code.data) + outer_offset(job.code, n) + o * job.code.step[0];
                if (job.declined && job.wanted.data)
                    wanted = static_cast<const Stored*>(job.wanted.data) + outer_offset(job.wanted, n) + o * job.wanted.step[0];
                if constexpr (writes_value) {
                    y = static_cast<Stored*>(job.y.data) + outer_offset(job.y, n) + o * job.y.step[0];
                    if (in_lines) y = lines.open(0, y);
                }
                const bool done = band(row, end - o);
                if (job.declined && (!done || differs)) {
                    *job.declined = true;
                    return;
                }
                if (done) {
                    if (in_lines) lines.close((end - o) * along.count);
                    continue;
                }
                Box some = box;
                some.n = n, some.n_end = n + 1, some.low[0] = o, some.high[0] = end;
                with_care(some);
            }
        if (job.streaming) stream_fence();
    }
};
#endif

}  // namespace
}  // namespace poolgrad
