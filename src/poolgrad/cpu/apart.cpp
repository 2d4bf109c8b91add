// Gradients and second-order gradients of maxima over windows that lie apart, no element in two of them: of two elements along a row of one
// channel and any number of rows, or of any shape in vectors of channels. Windows are found and used in registers, so every array is read or
// written once. And the gradients of averages over those that lie side by side.
#include <type_traits>
#include <utility>

#include "gather.hpp"
#include "kernels.hpp"

namespace poolgrad {
namespace {

constexpr int64_t most_taps = most_apart / 2 + 1;
constexpr int64_t most_windows = 4096;               // of a row at a time
constexpr int64_t together_bytes = int64_t{1} << 11;   // of results that are made before they are written past the caches
constexpr int64_t some_windows = 1024;               // in several rows, which begin once and are all done again if a NaN is met

// Elements are compared as they are; whether one was NaN is seen in the sum of all.
template <class T> struct AsFloat {
    using Key = T;
    template <class V> POOLGRAD_INLINE auto keys(V bits) const { return reinterpret_cast<Vec<T, sizeof(V) / sizeof(T)>>(bits); }
};

// Integers of the same width: floats with every NaN above or below all numbers and both zeros the same,
template <class I> struct AsInteger {
    using Key = I;
    I infinity, nan_key;
    template <class V> POOLGRAD_INLINE V keys(V bits) const {
        const V magnitude = bits & static_cast<I>(~(I{1} << (8 * sizeof(I) - 1))), sign = bits >> (8 * sizeof(I) - 1);
        const V key = (magnitude ^ sign) - sign;
        return magnitude > infinity ? V{} + nan_key : key;
    }
    POOLGRAD_INLINE I key(I bits) const {
        const I magnitude = bits & static_cast<I>(~(I{1} << (8 * sizeof(I) - 1)));
        return magnitude > infinity ? nan_key : bits < 0 ? static_cast<I>(-magnitude) : magnitude;
    }
};

// or integers, with the sign bit flipped if they have no sign.
template <class I> struct Integer {
    using Key = I;
    I flip;
    template <class V> POOLGRAD_INLINE V keys(V bits) const { return bits ^ flip; }
};

template <class V, int... i> POOLGRAD_INLINE V swap_pairs(V v, std::integer_sequence<int, i...>) { return __builtin_shufflevector(v, v, (i ^ 1)...); }
template <class V, int... i> POOLGRAD_INLINE auto each_twice(V half, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(half, half, (i / 2)...);
}
template <class V, int... i> POOLGRAD_INLINE auto every_second(V v, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(v, v, (2 * i)...);
}

// A part of a job, and how its elements are compared. I is the integer type of their width.
template <class I, bool put> struct Part {
    const Apart& job;
    const Geometry& g;
    const Axis& axis;
    const Box& box;
    const bool floats;
    const AsInteger<I> order;
    const Integer<I> plain;
    const I quiet;               // what makes a NaN quiet; 0 for integers
    const int64_t ahead;

    static constexpr I sign = static_cast<I>(I{1} << (8 * sizeof(I) - 1)), most = static_cast<I>(~sign);

    static I infinity_of(DType type) {
        switch (type) {
            case DType::f16: return static_cast<I>(0x7c00);
            case DType::bf16: return static_cast<I>(0x7f80);
            case DType::f32: return static_cast<I>(0x7f800000);
            case DType::f64: return static_cast<I>(0x7ff0000000000000);
            default: return most;
        }
    }

    Part(const Apart& job, const Box& box)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          box(box),
          floats(job.type <= DType::f64),
          order{infinity_of(job.type), job.ignore_nan ? sign : most},
          plain{job.type >= DType::u8 ? sign : I{0}},
          quiet(floats ? static_cast<I>((order.infinity & -order.infinity) >> 1) : I{0}),
          ahead(read_ahead<I>(g, put ? job.x : job.given, 2)) {}
};

template <class I, bool put> struct Rows : Part<I, put> {
    static constexpr int lanes = vector_bytes / static_cast<int>(sizeof(I)), half = lanes / 2;
    using Bits = Vec<I, lanes>;
    using Natural = Vec<typename IntOf<sizeof(I)>::natural, half>;
    static constexpr std::make_integer_sequence<int, lanes> all{};
    static constexpr std::make_integer_sequence<int, half> halves{};
    static constexpr I none = most_apart;   // larger than the code of every row

    using Common = Part<I, put>;
    using Common::ahead, Common::axis, Common::box, Common::floats, Common::g, Common::job, Common::order, Common::plain, Common::quiet;
    int64_t first, count;        // whole windows of a row
    int64_t low, high;           // columns that belong to the windows of the box
    int64_t column;              // of the first whole window
    LineWriter<I> lines;         // of take
    I* room;                     // for the gradients of some rows, which are written past the caches together
    bool direct = false;         // or directly
    bool in_order = false;       // whether take asks for rows of x and v in pairs, each as one (see FreshRows)

    // From a row of windows to the one below: in x, in v or the result of put, in what put is given, and in other arrays of windows.
    struct Steps {
        int64_t x, other, given, windows;
    };
    Steps below{};

    // A row of windows: where the whole ones begin in x, v and the result, what belongs to each, and the codes of its input rows.
    template <int64_t room_for_taps> struct Row {
        int64_t taps;
        const I *given, *wanted;
        const uint8_t* codes;
        const I *x[room_for_taps], *v[room_for_taps];
        I* to[room_for_taps];
        I code[room_for_taps];
    };
    Row<most_taps> row;

    Rows(const Apart& job, const Box& box, Scratch& scratch)
        : Common(job, box),
          lines(!put && job.streaming ? 1 : 0, room_for(box), scratch, 0),
          room(put && job.streaming ? static_cast<I*>(reserve(scratch, 1, sizeof(I) * static_cast<size_t>(room_for(box)))) : nullptr) {
        const int last = g.rank - 1;
        first = larger(box.low[last], axis.whole_begin);
        count = larger(0, smaller(box.high[last], axis.whole_end) - first);
        if (2 * count < lanes) count = 0;
        low = owned(axis, box.low[last]), high = owned(axis, box.high[last]);
        column = count > 0 ? 2 * first - axis.before : low;
        if (count == 0) first = box.low[last];
        if (last == 0) return;
        const int64_t stride = g.axes[last - 1].stride;
        below = {stride * job.x.step[last - 1], stride * (put ? job.result : job.given).step[last - 1], job.given.step[last - 1],
                 (put ? job.wanted : job.result).step[last - 1]};
    }

    // Results that are made together, in elements: some rows, or the inputs of one row of windows.
    int64_t room_for(const Box& box) const {
        const int last = g.rank - 1;
        const int64_t row = put ? (owned(axis, box.high[last]) - owned(axis, box.low[last])) * most_window_taps(g) : box.high[last] - box.low[last];
        return larger(row, together_bytes / static_cast<int64_t>(sizeof(I)));
    }

    // The inputs [owned(o), owned(o + 1)) belong to window o and no other.
    static POOLGRAD_INLINE int64_t owned(const Axis& a, int64_t o) {
        return o == 0 ? 0 : o == a.count ? a.size : smaller(a.size, o * a.stride - a.before);
    }

    // What belongs to the windows, for both of their columns.
    template <class V> static POOLGRAD_INLINE Bits twice(V of_windows) {
        if constexpr (sizeof(V) < sizeof(Natural) || sizeof(I) <= 2) {
            if constexpr (sizeof(I) == 8) {
                return reinterpret_cast<Bits>(each_twice(convert<uint64_t, half>(of_windows), all));
            } else {
                const auto wide = convert<typename IntOf<2 * sizeof(I)>::natural, half>(of_windows);
                return reinterpret_cast<Bits>(wide | wide << 8 * sizeof(I));
            }
        } else {
            return reinterpret_cast<Bits>(each_twice(of_windows, all));
        }
    }

    // As they are after having been added to zero.
    template <class V> static POOLGRAD_INLINE V added(V g, I infinity, I quiet) {
        if (quiet == 0) return g;
        if constexpr (sizeof(I) >= 4) {
            using Floats = Vec<std::conditional_t<sizeof(I) == 4, float, double>, sizeof(V) / sizeof(I)>;
            return reinterpret_cast<V>(reinterpret_cast<Floats>(g) + Floats{});
        } else {
            const V positive = g == Common::sign ? V{} : g;
            return (g & Common::most) > infinity ? g | quiet : positive;
        }
    }

    // One of two where an element is its window's choice, and the other elsewhere.
    static POOLGRAD_INLINE Bits pick(Bits chosen, I code, Bits yes, Bits no) { return chosen == code ? yes : no; }
#if defined(__AVX512BW__)
    // Codes that are given stay bytes there: whole vectors of the others take twice as long.
    static constexpr bool in_bytes = sizeof(I) > 1;
    static POOLGRAD_INLINE Bits pick(Vec<uint8_t, lanes> chosen, I code, Bits yes, Bits no) {
        return keep_lanes<I>(yes, equal_bytes<lanes>(&chosen, static_cast<uint8_t>(code)), no);
    }
#else
    static constexpr bool in_bytes = false;
#endif

    // For every element of the vectors i further in x, in windows o further, the code of its window's choice less what its own column adds.
    template <class Find, Mode mode, int64_t fixed>
    static POOLGRAD_INLINE auto choice(const Row<fixed>& r, const Find& find, int64_t i, int64_t o, Vec<typename Find::Key, lanes>& sum) {
        constexpr bool adds = !__is_same(typename Find::Key, I);
        Bits parity;
        for (int u = 0; u < lanes; ++u) parity[u] = u % 2;
        const int64_t taps = fixed < most_taps ? fixed : r.taps;
        const auto key_at = [&](int64_t t) __attribute__((always_inline)) { return find.keys(load<Bits>(r.x[t] + i)); };
        if constexpr (mode == Mode::choice && in_bytes) {
            Vec<uint8_t, lanes> parity_bytes;
            for (int u = 0; u < lanes; ++u) parity_bytes[u] = u % 2;
            return each_twice(load<Vec<uint8_t, half>>(r.codes + o), all) - parity_bytes;
        } else if constexpr (mode == Mode::choice) {
            return Bits(twice(load<Vec<uint8_t, half>>(r.codes + o)) - parity);
        } else {
            Bits at;
            if constexpr (mode == Mode::maximum) {
                auto best = key_at(0);
                if constexpr (adds) sum += best;
                at = Bits{} + r.code[0];
                for (int64_t t = 1; t < taps; ++t) {
                    const auto key = key_at(t);
                    if constexpr (adds) sum += key;
                    at = key > best ? Bits{} + r.code[t] : at;
                    best = larger_lanes(key, best);
                }
                const auto top = larger_lanes(swap_pairs(best, all), best);
                at = best == top ? at + parity : Bits{} + none;
            } else {
                const auto want = find.keys(twice(load<Natural>(r.wanted + o)));
                if constexpr (adds) sum += want;
                at = Bits{} + none;
                for (int64_t t = taps - 1; t >= 0; --t) at = key_at(t) == want ? Bits{} + r.code[t] : at;
                at += parity;
            }
            const Bits other = swap_pairs(at, all);
            return Bits((other < at ? other : at) - parity);
        }
    }

    // The whole windows of some rows. False if a NaN was met that `Find` cannot compare.
    template <class Find, Mode mode, int64_t fixed> __attribute__((noinline)) bool windows(const Find& given_find, int64_t rows) const {
        const int64_t taps = fixed < most_taps ? fixed : row.taps, end = count, distance = ahead;
        Row<fixed> r{taps, row.given, row.wanted, row.codes, {}, {}, {}, {}};   // in a place that no store can change, like all else
        for (int64_t t = 0; t < taps; ++t) r.x[t] = row.x[t], r.v[t] = row.v[t], r.to[t] = row.to[t], r.code[t] = row.code[t];
        const Find find = given_find;
        const I infinity = order.infinity, quiet_nan = quiet;
        const bool streaming = direct;
        const bool pairs = in_order;
        const Steps step = below;
        Steps at{};   // the row
        Vec<typename Find::Key, lanes> sum{};
        for (int64_t q = 0; q < rows; ++q) {
            for (int64_t w = 0; w < end; w += half) {
                w = smaller(w, end - half);   // the last vectors overlap those before
                const int64_t in_x = at.x + 2 * w, other = at.other + 2 * w, o = at.windows + w;
                if (!put && distance && pairs)
                    for (int64_t t = 0; t < taps; t += 2) {
                        if constexpr (mode != Mode::choice) ask_for(r.x[t] + at.x + 4 * w + distance, 2 * lanes);
                        ask_for(r.v[t] + at.other + 4 * w + distance, 2 * lanes);
                    }
                else if (distance)
                    for (int64_t t = 0; t < taps; ++t) {
                        if constexpr (mode != Mode::choice) ask_for_line(r.x[t] + in_x + distance);
                        if constexpr (!put) ask_for_line(r.v[t] + other + distance);
                    }
                const auto chosen = choice<Find, mode, fixed>(r, find, in_x, o, sum);
                if constexpr (put) {
                    const Bits value = twice(reinterpret_cast<Natural>(added(load<Vec<I, half>>(r.given + at.given + w), infinity, quiet_nan)));
                    for (int64_t t = 0; t < taps; ++t) {
                        const Bits result = pick(chosen, r.code[t], value, Bits{});
                        if (streaming) stream(r.to[t] + other, result);
                        else store(r.to[t] + other, result);
                    }
                } else {
                    Bits found{};
                    for (int64_t t = 0; t < taps; ++t) found = pick(chosen, r.code[t], load<Bits>(r.v[t] + other), found);
                    const auto result = every_second(found | swap_pairs(found, all), halves);
                    store(r.to[0] + o, result);
                }
            }
            at = {at.x + step.x, at.other + step.other, at.given + step.given, at.windows + step.windows};
        }
        if constexpr (__is_same(typename Find::Key, I)) return true;
        else return !any_nan(sum);
    }

    // An input row that is read twice changes nothing.
    template <class Find, Mode mode> bool by_taps(const Find& find, int64_t rows) {
        const int64_t last = row.taps - 1;
        if (last == 0 || last == 2)
            row.x[last + 1] = row.x[last], row.v[last + 1] = row.v[last], row.to[last + 1] = row.to[last], row.code[last + 1] = row.code[last];
        if (last < 2) return windows<Find, mode, 2>(find, rows);
        if (last < 4) return windows<Find, mode, 4>(find, rows);
        return windows<Find, mode, most_taps>(find, rows);
    }

    template <Mode mode> void search(int64_t rows) {
        if (!floats) by_taps<Integer<I>, mode>(plain, rows);
        else if constexpr (sizeof(I) >= 4) {
            using Float = std::conditional_t<sizeof(I) == 4, float, double>;
            if (!by_taps<AsFloat<Float>, mode>({}, rows)) windows<AsInteger<I>, mode, most_taps>(order, rows);
        } else if constexpr (sizeof(I) == 2) {
            by_taps<AsInteger<I>, mode>(order, rows);
        }
    }

    void whole_windows(int64_t rows) {
        if (count == 0) return;
        if (job.mode == Mode::choice) by_taps<AsInteger<I>, Mode::choice>(order, rows);
        else if (job.mode == Mode::maximum) search<Mode::maximum>(rows);
        else search<Mode::equal>(rows);
    }

    POOLGRAD_INLINE I key(I bits) const { return floats ? order.key(bits) : plain.keys(bits); }

    // The windows [from, end), which may be cut short.
    void one_by_one(int64_t from, int64_t end) const {
        for (int64_t o = from; o < end; ++o) {
            const Window window = window_of(axis, o);
            const int64_t beside = window.position - column, at = o - first, length = window.length;
            I best = job.mode == Mode::equal ? key(row.wanted[at]) : I{0};
            int64_t chosen = -1;   // counted through all taps
            for (int64_t i = 0; i < row.taps * length; ++i) {
                const int64_t t = length == 1 ? i : i / length, j = i - t * length;
                const I mine = job.mode == Mode::choice ? I{0} : key(row.x[t][beside + j]);
                const bool hit = job.mode == Mode::choice  ? row.codes[at] == row.code[t] + window.first + j
                                 : job.mode == Mode::equal ? (chosen < 0) & (mine == best)
                                                           : (chosen < 0) | (mine > best);
                best = hit ? mine : best, chosen = hit ? i : chosen;
            }
            if constexpr (put) {
                const I value = added(Bits{} + row.given[at], order.infinity, quiet)[0];
                for (int64_t i = 0; i < row.taps * length; ++i) row.to[i / length][beside + i % length] = i == chosen ? value : I{0};
            } else {
                row.to[0][at] = chosen < 0 ? I{0} : row.v[chosen / length][beside + chosen % length];
            }
        }
    }

    // Rows of windows one below the other.
    void windows_of_rows(int64_t rows) {
        const int last = g.rank - 1;
        const int64_t end = 2 * box.high[last] - axis.before;   // columns from here on are in no window
        const bool all_whole = count == box.high[last] - box.low[last] && (!put || end >= high);
        const int64_t most = !all_whole || ahead ? 1 : job.mode == Mode::choice ? rows : larger(1, some_windows / count);
        for (int64_t n; rows > 0; rows -= n, move_down(n)) {
            n = smaller(most, rows);
            one_by_one(box.low[last], first);
            whole_windows(n);
            one_by_one(first + count, box.high[last]);
            for (int64_t t = 0; put && t < row.taps; ++t)
                for (int64_t c = end; c < high; ++c) row.to[t][c - column] = 0;
        }
    }

    template <class T> T* row_in(const View& view, int64_t n, const RowWalk& walk) const {
        return static_cast<T*>(view.data) + row_offset(view, n, walk, g.rank);
    }

    void begin_rows(int64_t n, const RowWalk& walk) {
        Tap taps[most_taps];
        const auto rows_in = [&](const View& view, auto& found) {
            row.taps = window_taps(g, walk.at, view.step, taps);
            for (int64_t t = 0; t < row.taps; ++t) {
                found[t] = static_cast<I*>(view.data) + outer_offset(view, n) + taps[t].offset + column;
                row.code[t] = static_cast<I>(taps[t].code);
            }
        };
        const bool follow = rows_follow(g, job.given.step) && (job.mode == Mode::choice || rows_follow(g, job.x.step));
        in_order = !put && ahead && follow && span(g.axes[g.rank - 2], walk.at[g.rank - 2]).length == 2;
        if (job.mode != Mode::choice) rows_in(job.x, row.x);
        if (job.mode == Mode::equal) row.wanted = row_in<I>(job.wanted, n, walk) + first;
        if (job.mode == Mode::choice) row.codes = row_in<uint8_t>(job.wanted, n, walk) + first;
        if constexpr (put) {
            rows_in(job.result, row.to);
            row.given = row_in<I>(job.given, n, walk) + first;
        } else {
            rows_in(job.given, row.v);
            row.to[0] = row_in<I>(job.result, n, walk) + first;
        }
    }

    // On to a row of windows below.
    void move_down(int64_t rows) {
        for (int64_t t = 0; t < row.taps; ++t) {
            if (job.mode != Mode::choice) row.x[t] += rows * below.x;
            if (!put) row.v[t] += rows * below.other;
            if (put) row.to[t] += rows * below.other;
        }
        if (put) row.given += rows * below.given;
        else row.to[0] += rows * below.windows;
        if (job.mode == Mode::equal) row.wanted += rows * below.windows;
        if (job.mode == Mode::choice) row.codes += rows * below.windows;
    }

    // Input rows that belong to a row of windows but lie in none of them. Returns whether there are any.
    bool clear_others(int64_t n, const RowWalk& walk) const {
        Box rows;
        int64_t total = 1;
        for (int a = 0; a < g.rank - 1; ++a) {
            rows.low[a] = owned(g.axes[a], walk.at[a]), rows.high[a] = owned(g.axes[a], walk.at[a] + 1);
            total *= rows.high[a] - rows.low[a];
        }
        if (total == row.taps) return false;
        rows.low[g.rank - 1] = 0, rows.high[g.rank - 1] = 1;
        RowWalk at;
        if (!first_row(rows, g.rank, at)) return true;
        do {
            bool real = true;
            for (int a = 0; a < g.rank - 1; ++a) real = real && at.at[a] < origin(g.axes[a], walk.at[a]) + g.axes[a].window;
            if (!real) __builtin_memset(row_in<I>(job.result, n, at) + low, 0, sizeof(I) * static_cast<size_t>(high - low));
        } while (next_row(rows, g.rank, at));
        return true;
    }

    bool aligned() const {
        bool all_are = 2 * count % lanes == 0 && count > 0;
        for (int64_t t = 0; t < row.taps; ++t) all_are = all_are && reinterpret_cast<uintptr_t>(row.to[t]) % 64 == 0;
        for (int a = 0; a < g.rank - 1; ++a) all_are = all_are && job.result.step[a] * static_cast<int64_t>(sizeof(I)) % 64 == 0;
        return all_are;
    }

    // Rows of windows one below the other that read alike, `below` input rows of each plane; `alone` if no other inputs belong to them.
    void some_rows(int64_t rows, int64_t below, bool alone) {
        const int a = g.rank - 2;
        const int64_t bytes = static_cast<int64_t>(sizeof(I));
        if (!job.streaming || (put && (direct = aligned())) || (put && !alone)) {
            windows_of_rows(rows);
            return;
        }
        const int64_t width = put ? high - low : box.high[g.rank - 1] - box.low[g.rank - 1], step = a < 0 ? width : job.result.step[a];
        const bool joined = step == width && (!put || a < 0 || rows == 1 || below == g.axes[a].stride);
        const int64_t most = joined ? larger(1, together_bytes / (width * bytes * (put ? row.taps : 1))) : 1;
        for (int64_t q = 0, n; q < rows; q += n) {
            n = smaller(most, rows - q);
            const Row<most_taps> real = row;
            if constexpr (put) {
                const int64_t run = n * below * width;
                for (int64_t t = 0; t < row.taps; ++t) row.to[t] = room + t / below * run + t % below * width + column - low;
                windows_of_rows(n);
                for (int64_t t = 0; t < row.taps; ++t) {
                    if (joined && t % below) continue;   // all of them follow the first
                    write_row(real.to[t] - column + low, room + t / below * run + t % below * width, joined ? run : width, true);
                }
                for (int64_t t = 0; t < row.taps; ++t) row.to[t] = real.to[t] + n * (a < 0 ? 0 : g.axes[a].stride * step);
            } else {
                const int64_t before = first - box.low[g.rank - 1];
                row.to[0] = lines.open(0, real.to[0] - before) + before;
                windows_of_rows(n);
                lines.close(n * width);
                row.to[0] = real.to[0] + n * step;
            }
        }
    }

    void run() {
        const int a = g.rank - 2;
        for (int64_t n = box.n; n < box.n_end; ++n) {
            RowWalk walk;
            if (!first_row(box, g.rank, walk)) return;
            do {
                begin_rows(n, walk);
                const bool others = put && clear_others(n, walk);
                int64_t rows = 1;
                if (a >= 0 && !others && walk.at[a] >= g.axes[a].whole_begin) {
                    const Axis& down = g.axes[a];
                    const bool more = put && owned(down, down.count) != owned(down, down.count - 1) + down.window;
                    rows = larger(1, smaller(smaller(box.high[a], down.whole_end), down.count - more) - walk.at[a]);
                }
                some_rows(rows, a < 0 ? 1 : span(g.axes[a], walk.at[a]).length, !others);
                if (rows > 1) walk.at[a] += rows - 1;
            } while (next_row(box, g.rank, walk));
        }
        if (job.streaming) stream_fence();
    }
};

// ---- vectors of channels --------------------------------------------------------------------------------------------

// Once, not for every type.
__attribute__((noinline)) int64_t taps_of(const Geometry& g, const int64_t* at, const int64_t* step, Tap* taps) {
    return window_taps(g, at, step, taps);
}

// Windows of any shape, where there are enough channels for vectors. put: of windows that leave no element between them.
template <class I, bool put> struct RowOfChannels : Part<I, put> {
    using Row = Rows<I, put>;

    // The elements of a window: where they are in x, and in v or the result, from the column that it begins in; and their codes.
    struct Elements {
        int64_t count;
        int64_t x[most_apart], other[most_apart];
        I code[most_apart];
    };

    using Common = Part<I, put>;
    using Common::ahead, Common::axis, Common::box, Common::floats, Common::g, Common::job, Common::order, Common::plain, Common::quiet;
    const int asks;                // how often (see asks_twice)
    const I *x = nullptr, *given = nullptr, *wanted = nullptr;   // of the image, or of the row of windows
    const uint8_t* codes = nullptr;
    I* result = nullptr;
    Tap x_taps[most_apart], other_taps[most_apart];
    int64_t taps = 0;
    Elements whole;                // of windows that are not cut short along the row
    RowsAhead soon;

    RowOfChannels(const Apart& job, const Box& box)
        : Common(job, box),
          asks(ahead ? 1 + static_cast<int>(asks_twice(axis, put ? job.x : job.given)) : 0) {}

    // The elements of windows that are like this one.
    __attribute__((noinline)) void list(Elements& e, const Window& window) const {
        e.count = 0;
        for (int64_t t = 0; t < taps; ++t)
            for (int64_t i = 0; i < window.length; ++i, ++e.count) {
                e.x[e.count] = job.mode == Mode::choice ? 0 : x_taps[t].offset + i * g.inner;
                e.other[e.count] = other_taps[t].offset + i * g.inner;
                e.code[e.count] = static_cast<I>(other_taps[t].code + window.first + i);
            }
    }

    void clear(I* to, int64_t columns) const { __builtin_memset(to, 0, sizeof(I) * static_cast<size_t>(columns * g.inner)); }

    // Input rows behind the last windows of an axis.
    __attribute__((noinline)) void clear_behind(int64_t n, const RowWalk& walk) const {
        const int last = g.rank - 1;
        Box rows;
        int64_t total = 1;
        for (int a = 0; a < last; ++a) {
            rows.low[a] = Row::owned(g.axes[a], walk.at[a]), rows.high[a] = Row::owned(g.axes[a], walk.at[a] + 1);
            total *= rows.high[a] - rows.low[a];
        }
        rows.low[last] = 0, rows.high[last] = 1;
        RowWalk at;
        if (total == taps || !first_row(rows, g.rank, at)) return;
        do {
            bool real = true;
            for (int a = 0; a < last; ++a) real = real && at.at[a] < nominal_origin(g.axes[a], walk.at[a]) + g.axes[a].window;
            const int64_t low = Row::owned(axis, box.low[last]), high = Row::owned(axis, box.high[last]);
            if (!real) clear(static_cast<I*>(job.result.data) + row_offset(job.result, n, at, g.rank) + low * g.inner, high - low);
        } while (next_row(rows, g.rank, at));
    }

    __attribute__((noinline)) void begin_rows(int64_t n, const RowWalk& walk) {
        const auto image_in = [&](const View& view) { return static_cast<I*>(view.data) + outer_offset(view, n); };
        const auto row_in = [&](const View& view, auto* data) { return data + row_offset(view, n, walk, g.rank); };
        taps = taps_of(g, walk.at, (put ? job.result : job.given).step, other_taps);
        if (job.mode != Mode::choice) taps_of(g, walk.at, job.x.step, x_taps), x = image_in(job.x);
        if (job.mode == Mode::equal) wanted = row_in(job.wanted, static_cast<const I*>(job.wanted.data));
        if (job.mode == Mode::choice) codes = row_in(job.wanted, static_cast<const uint8_t*>(job.wanted.data));
        given = put ? row_in(job.given, static_cast<const I*>(job.given.data)) : image_in(job.given);
        result = put ? image_in(job.result) : row_in(job.result, static_cast<I*>(job.result.data));
        list(whole, {0, 0, 0, axis.window});
        const View& read = put ? job.x : job.given;
        if (ahead) soon = RowsAhead(ahead, axis.size * g.inner, g.axes[g.rank - 2].stride * read.step[g.rank - 2], (put ? 1 : 2) * taps, sizeof(I));
    }

    // On to the row of windows below.
    void next_row_of_windows() {
        const int a = g.rank - 2;
        const int64_t stride = g.axes[a].stride;
        if (job.mode != Mode::choice) x += stride * job.x.step[a];
        if (job.mode == Mode::equal) wanted += job.wanted.step[a];
        if (job.mode == Mode::choice) codes += job.wanted.step[a];
        given += (put ? 1 : stride) * job.given.step[a];
        result += (put ? stride : 1) * job.result.step[a];
    }
};

// Their vectors have so many bytes.
template <class I, bool put, int bytes> struct Channels : RowOfChannels<I, put> {
    using Base = RowOfChannels<I, put>;
    using Base::Base, Base::job, Base::g, Base::axis, Base::box, Base::floats, Base::order, Base::plain, Base::quiet, Base::ahead, Base::asks;
    using Base::x, Base::soon, Base::given, Base::wanted, Base::codes, Base::result, Base::other_taps, Base::taps, Base::whole;
    using typename Base::Row, typename Base::Elements;
    static constexpr int lanes = bytes / static_cast<int>(sizeof(I));
    using Bits = Vec<I, lanes>;
    static constexpr bool in_lines = vector_bytes == 32;   // two vectors fill a line of the cache, which is written past the caches at once
    static constexpr int64_t often = 8;
    int64_t careful = 0;   // where a NaN was met, so many rows are not compared as floats first

    // Keeps a load from being merged with the choice that follows: it would wait for the code, which may still be on its way from memory.
    static POOLGRAD_INLINE Bits loaded(Bits bits) { return read_once(bits); }

    // `count` windows from `output` on, the first of which begins in `column`. False if a NaN was met that `Find` cannot compare.
    template <class Find, Mode mode, int64_t fixed>
    __attribute__((noinline)) bool windows(const Find& given_find, const Elements& e, int64_t output, int64_t column, int64_t count) const {
        constexpr bool adds = !__is_same(typename Find::Key, I);
        using Other = std::conditional_t<put, I, const I>;
        const int64_t n = fixed < most_apart ? fixed : e.count, inner = g.inner, next = (axis.stride - 1) * inner, first = column * inner;
        const RowsAhead near = soon;
        const I* at[fixed];   // where the elements of the first window are; in a place that no store can change, like all else
        Other* other[fixed];
        I code[fixed];
        for (int64_t i = 0; i < n; ++i) {
            if constexpr (mode != Mode::choice) at[i] = x + column * inner + e.x[i];
            if constexpr (put) other[i] = result + column * inner + e.other[i];
            else other[i] = given + column * inner + e.other[i];
            code[i] = e.code[i];
        }
        const Find find = given_find;
        const I infinity = order.infinity, quiet_nan = quiet, negative_zero = floats ? Row::sign : I{0};
        const bool streaming = job.streaming;
        const int times = asks;
        const I* const values = put ? given + output * inner : nullptr;
        const I* const want = mode == Mode::equal ? wanted + output * inner : nullptr;
        const uint8_t* const chosen = mode == Mode::choice ? codes + output * inner : nullptr;
        I* const to = put ? nullptr : result + output * inner;
        const auto write = [streaming](I* p, Bits bits) __attribute__((always_inline)) {
            if (streaming) stream(p, bits);
            else store(p, bits);
        };
        Vec<typename Find::Key, lanes> sum{};
        // Some vectors of channels of one window, o further than the first, whose elements lie f further than those of the first.
        const auto channels = [&](auto some, int64_t o, int64_t f) __attribute__((always_inline)) {
            constexpr int vectors = decltype(some)::value;
            const auto key_at = [&](int64_t i, int u) __attribute__((always_inline)) { return find.keys(load<Bits>(at[i] + f + u * lanes)); };
            const int64_t distance = near.from(first + f);
            for (int time = 0; time < times; ++time)
                for (int64_t i = 0; i < n; ++i) {
                    if constexpr (mode != Mode::choice) ask_for_line(at[i] + f + distance);
                    if constexpr (!put) ask_for_line(other[i] + f + distance);
                }
            Bits choice[vectors];
            if constexpr (mode == Mode::choice) {
                for (int u = 0; u < vectors; ++u) choice[u] = load_codes<I, lanes>(chosen + o + u * lanes, 1);
            } else if constexpr (mode == Mode::maximum) {
                Vec<typename Find::Key, lanes> best[vectors], all[vectors];
                for (int u = 0; u < vectors; ++u) best[u] = all[u] = key_at(0, u), choice[u] = Bits{} + code[0];
                for (int64_t i = 1; i < n; ++i)
                    for (int u = 0; u < vectors; ++u) {
                        const auto key = key_at(i, u);
                        if constexpr (adds) all[u] += key;
                        choice[u] = key > best[u] ? Bits{} + code[i] : choice[u];
                        best[u] = larger_lanes(key, best[u]);
                    }
                for (int u = 0; adds && u < vectors; ++u) sum += all[u];
            } else {
                Vec<typename Find::Key, lanes> key[vectors];
                for (int u = 0; u < vectors; ++u) {
                    key[u] = find.keys(load<Bits>(want + o + u * lanes));
                    if constexpr (adds) sum += key[u];
                    choice[u] = Bits{} + Row::none;
                }
                for (int64_t i = n - 1; i >= 0; --i)
                    for (int u = 0; u < vectors; ++u) choice[u] = key_at(i, u) == key[u] ? Bits{} + code[i] : choice[u];
            }
            if constexpr (put) {
                Bits value[vectors];
                for (int u = 0; u < vectors; ++u) {   // as Row::added makes them
                    const Bits added = load<Bits>(values + o + u * lanes), positive = added == negative_zero ? Bits{} : added;
                    value[u] = (added & Row::most) > infinity ? added | quiet_nan : positive;
                }
                for (int64_t i = 0; i < n; ++i)
                    for (int u = 0; u < vectors; ++u) write(other[i] + f + u * lanes, choice[u] == code[i] ? value[u] : Bits{});
            } else {
                Bits found[vectors] = {};
                for (int64_t i = 0; i < n; ++i)
                    for (int u = 0; u < vectors; ++u) {
                        const Bits element = loaded(load<Bits>(other[i] + f + u * lanes));
                        found[u] = choice[u] == code[i] ? element : found[u];
                    }
                for (int u = 0; u < vectors; ++u) write(to + o + u * lanes, found[u]);
            }
        };
        for (int64_t o = 0, f = 0, left = inner; o < count * inner;) {   // channels of the window are left
            if (in_lines && left >= 2 * lanes) {
                channels(Vectors<2>{}, o, f);
                left -= 2 * lanes, o += 2 * lanes, f += 2 * lanes;
            } else {
                channels(Vectors<1>{}, o, f);
                left -= lanes, o += lanes, f += lanes;
            }
            if (left == 0) left = inner, f += next;
            else if (left < lanes) o += left - lanes, f += left - lanes, left = lanes;   // the last vector overlaps the one before
        }
        if constexpr (adds) return !any_nan(sum);
        else return true;
    }

    template <class Find, Mode mode> bool by_size(const Find& find, const Elements& e, const Window& first, int64_t count) const {
        if (e.count == 4) return windows<Find, mode, 4>(find, e, first.output, first.position, count);
        return windows<Find, mode, most_apart>(find, e, first.output, first.position, count);
    }

    template <Mode mode> void search(const Elements& e, const Window& first, int64_t count) {
        if (!floats) by_size<Integer<I>, mode>(plain, e, first, count);
        else if constexpr (sizeof(I) >= 4) {
            using Float = std::conditional_t<sizeof(I) == 4, float, double>;
            if (careful > 0) --careful;
            else if (by_size<AsFloat<Float>, mode>({}, e, first, count)) return;
            else careful = often;
            windows<AsInteger<I>, mode, most_apart>(order, e, first.output, first.position, count);
        } else if constexpr (sizeof(I) == 2) {
            by_size<AsInteger<I>, mode>(order, e, first, count);
        }
    }

    // Windows that are like the first.
    __attribute__((noinline)) void some_windows(const Elements& e, const Window& first, int64_t count) {
        if (job.mode == Mode::choice) by_size<AsInteger<I>, Mode::choice>(order, e, first, count);
        else if (job.mode == Mode::maximum) search<Mode::maximum>(e, first, count);
        else search<Mode::equal>(e, first, count);
    }

    __attribute__((noinline)) void cut_windows(int64_t o, int64_t end) {
        for (; o < end; ++o) {
            Elements e;
            const Window window = window_of(axis, o);
            Base::list(e, window);
            some_windows(e, window, 1);
        }
    }

    void row() {
        const int last = g.rank - 1;
        const int64_t low = box.low[last], high = box.high[last];
        const int64_t begin = smaller(high, larger(low, axis.whole_begin)), end = larger(begin, smaller(high, axis.whole_end));
        cut_windows(low, begin);
        if (begin < end) some_windows(whole, window_of(axis, begin), end - begin);
        cut_windows(end, high);
        const int64_t behind = high * axis.stride - axis.before;   // columns from here on are in no window
        for (int64_t t = 0; put && high == axis.count && behind < axis.size && t < taps; ++t)
            Base::clear(result + other_taps[t].offset + behind * g.inner, axis.size - behind);
    }

    void run() {
        const int a = g.rank - 2;
        for (int64_t n = box.n; n < box.n_end; ++n) {
            RowWalk walk;
            if (!first_row(box, g.rank, walk)) return;
            do {
                Base::begin_rows(n, walk);
                int64_t rows = 1;
                if (a >= 0 && walk.at[a] >= g.axes[a].whole_begin) rows = larger(1, smaller(box.high[a], g.axes[a].whole_end) - walk.at[a]);
                for (;;) {
                    row();
                    if constexpr (put) Base::clear_behind(n, walk);
                    if (--rows == 0) break;
                    ++walk.at[a];
                    Base::next_row_of_windows();
                }
            } while (next_row(box, g.rank, walk));
        }
        if (job.streaming) stream_fence();
    }
};

template <class I> void run(const Apart& job, const Box& box, Scratch& scratch) {
    if (job.geometry->inner > 1) {
        const auto in_vectors = [&](auto bytes) {
            if (job.put) Channels<I, true, bytes()>(job, box).run();
            else Channels<I, false, bytes()>(job, box).run();
        };
        if (job.geometry->inner * static_cast<int64_t>(sizeof(I)) >= vector_bytes) return in_vectors([] { return vector_bytes; });
        if constexpr (vector_bytes == 64) return in_vectors([] { return vector_bytes / 2; });
    }
    const int last = job.geometry->rank - 1;
    for (Box some = box; some.low[last] < box.high[last]; some.low[last] = some.high[last]) {   // so that room for a row stays small
        some.high[last] = smaller(some.low[last] + most_windows, box.high[last]);
        if (job.put) Rows<I, true>(job, some, scratch).run();
        else Rows<I, false>(job, some, scratch).run();
    }
}

// A row of windows is read once, and written from registers to all rows of elements that lie in it.
template <class E> void fill(const Spread& job, const Box& box) {
    using Stored = typename E::Stored;
    using Sums = typename E::Sums;
    constexpr int lanes = E::lanes;
    constexpr bool as_it_is = __is_same(Stored, float) && __is_same(typename E::Sum, float);   // else sums are made from 0 once more
    constexpr bool streams = 2 * lanes * sizeof(Stored) >= vector_bytes;   // longer rows than the others are for
    const Geometry& g = *job.geometry;
    const int last = g.rank - 1, above = last > 0 ? last - 1 : 0;   // the axis of the rows, if there is one
    int64_t offsets[most_beside] = {}, divided_by = divisor(g.axes[last], 0), rows = 1;
    for (int a = 0; a < last; ++a) {
        const int64_t all = rows * g.axes[a].stride;
        for (int64_t i = rows; i < all; ++i) offsets[i] = offsets[i % rows] + i / rows * job.gx.step[a];
        rows = all, divided_by *= divisor(g.axes[a], 0);
    }
    const auto weight = E::weigh(divided_by);
    const bool streaming = job.streaming;   // rows are whole lines then, and so are the pairs of a vector
    const int64_t first = box.low[last], count = box.high[last] - first, down = last > 0 ? box.high[above] - box.low[above] : 1;
    const int64_t step = job.g.step[above], step_to = g.axes[above].stride * job.gx.step[above];
    Box planes = box;
    if (last > 0) planes.high[above] = planes.low[above] + 1;
    for (int64_t n = box.n; n < box.n_end; ++n) {
        RowWalk walk;
        if (!first_row(planes, g.rank, walk)) return;
        do {
            const Stored* from = static_cast<const Stored*>(job.g.data) + row_offset(job.g, n, walk, g.rank) + first;
            Stored* to = static_cast<Stored*>(job.gx.data) + outer_offset(job.gx, n) + 2 * first;
            for (int a = 0; a < last; ++a) to += walk.at[a] * g.axes[a].stride * job.gx.step[a];
            for (int64_t h = 0; h < down; ++h, from += step, to += step_to) {
                for (int64_t o = 0; count < lanes && o < count; ++o) {
                    auto share = E::share_one(typename E::Sum{} + E::widen_one(from[o]), weight);
                    if constexpr (!as_it_is) share = typename E::Sum{} + share;
                    for (int64_t i = 0; i < 2 * rows; ++i) to[offsets[i / 2] + 2 * o + i % 2] = E::narrow_one(share);
                }
                for (int64_t next = 0; count >= lanes && next < count; next += lanes) {
                    const int64_t o = smaller(next, count - lanes), known = next - o;   // the last vectors overlap those before
                    Sums share = E::share_lanes(Sums{} + E::widen_lanes(from + o), weight);
                    if constexpr (!as_it_is) share = Sums{} + share;
                    const auto store_pairs = [&](Stored* pairs) __attribute__((always_inline)) {
                        if constexpr (__is_same(E, BrainSum)) E::template store_pairs<lanes>(pairs, share, share);
                        else store_interleaved<Stored, lanes>(pairs, E::narrow_lanes(share), E::narrow_lanes(share));
                    };
                    if constexpr (streams) {
                        if (streaming) {
                            alignas(64) Stored made[2 * lanes];
                            store_pairs(made);
                            for (int64_t r = 0; r < rows; ++r) stream_vectors(to + offsets[r] + 2 * next, made + 2 * known, 2 * (lanes - known));
                            continue;
                        }
                    }
                    for (int64_t r = 0; r < rows; ++r) store_pairs(to + offsets[r] + 2 * o);
                }
            }
        } while (next_row(planes, g.rank, walk));
    }
    if (streaming) stream_fence();
}

}  // namespace

void POOLGRAD_KERNEL(spread_beside)(const Spread& job, const Box& box) {
    const int last = job.geometry->rank - 1;
    const int64_t count = box.high[last] - box.low[last];
    const bool narrow = count < vector_bytes / 4;   // exact shares are the same in any type; wide ones need fewer windows for a vector
    switch (job.type) {
        case DType::f16: return job.exact && narrow ? fill<LongHalfSum>(job, box) : fill<HalfSum>(job, box);
        case DType::bf16: return fill<BrainSum>(job, box);   // whose smallest shares vanish before they are rounded, with their sign
        case DType::f64: return job.exact ? fill<Plain<double, double>>(job, box) : fill<DoubleSum>(job, box);
        default: return job.exact && !narrow ? fill<Plain<float, float>>(job, box) : fill<Plain<float, double>>(job, box);
    }
}

void POOLGRAD_KERNEL(apart)(const Apart& job, const Box& box, Scratch& scratch) {
    switch (dtype_bytes(job.type)) {
        case 1: return run<int8_t>(job, box, scratch);
        case 2: return run<int16_t>(job, box, scratch);
        case 4: return run<int32_t>(job, box, scratch);
        default: return run<int64_t>(job, box, scratch);
    }
}

}  // namespace poolgrad
