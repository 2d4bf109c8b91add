// choose, take and their fusions: the kernels that pick one element of every window.
#include <utility>

#include "around.hpp"
#include "kernels.hpp"
#include "reduce.hpp"
#include "slide.hpp"

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

    // The winners of the columns that a row of windows reads, with room for the padding on both sides.
    struct Columns {
        Key* keys = nullptr;     // null: not this way
        I* codes = nullptr;
        int64_t first, count;    // the real ones, flat
        int64_t begin;           // where they begin in the room
        int64_t pitch;           // from a row to the next, in the room
        int64_t rows = 1;        // there is room for
        Key* split_keys = nullptr;   // the same with the columns of each phase side by side, or null: see split_columns
        I* split_codes = nullptr;
        int64_t split_pitch, phase_pitch;
        int64_t* at = nullptr;   // where the local positions of the first window are there
        bool joined = false;     // rows follow one another without padding, here and in the results
        bool mended = false;     // although windows reach over their ends
        const char *starts = nullptr, *ends = nullptr;   // a bit for every window: 0 for the first and the last of a row (see rows_by_shifts)
    };

    const Scan& job;
    const Geometry& g;
    const Axis& axis;
    const Order order;
    const int64_t ahead;
    const bool twice;   // see asks_twice
    const int32_t* positions = nullptr;   // of listed windows along a row
    const Tap* taps = nullptr;
    int64_t tap_count = 0;
    FreshRows fresh;   // of the taps, if anything is asked for
    RowsAhead soon;    // the same in rows of channels
    const Stored *x = nullptr, *v = nullptr, *wanted = nullptr;
    const char* wanted_code = nullptr;
    Stored* y = nullptr;
    char* code = nullptr;
    Columns columns;
    LineWriter<Stored>* lines = nullptr;   // of rows that are written past the caches
    int64_t first_image = 0, row_begin = 0;
    int64_t x_row = 0, y_row = 0, code_row = 0;   // from a row of windows to the one below
    int64_t most_rows = 1;                        // that are done together without columns
    Key* shared_keys = nullptr;                   // room for the positions that windows share (see threes_apart), or null
    I* shared_codes = nullptr;

    Scanner(const Scan& job, Order order)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          order(order),
          ahead(read_ahead<Stored>(g, source(), mode == Mode::maximum && what != What::take ? 1 : 2)),
          twice(asks_twice(axis, source())) {}

    // ---- column by column -------------------------------------------------------------------------------------------
    // Where vectors lie along the row, the rows of a window are compared first, once for all windows that share a column; then
    // the columns. What that cannot tell (where the first NaN is, which zero came first) is found by visiting every element.
    // Some rows of windows are done together: what was just stored in other pieces than it is read in would have to be waited for.

    static constexpr bool by_columns = hurries && mode == Mode::maximum && what != What::take;
    static constexpr bool two_zeros = Order::has_nan || !Order::key_is_value;
    using Natural = Vec<typename IntOf<sizeof(Key)>::natural, lanes>;   // codes that are compared

    static constexpr int64_t no_column = 64;   // the code of padding: larger than those of the windows that are done this way, and fits any lane
    static constexpr int64_t together_bytes = 1 << 11, mended_bytes = 1 << 13;   // more, and memory waits meanwhile
    static constexpr int64_t paired_bytes = 1 << 14;   // of rows that are done again if a NaN is met

    void prepare_columns(const Box& box, Scratch& scratch) {
        const int a = g.rank - 2;
        if (a >= 0) x_row = g.axes[a].stride * job.x.step[a], y_row = job.y.step[a], code_row = job.code.step[a];
        if (a >= 0 && (has_small_windows() || (g.inner == 1 && ahead == 0 && !job.streaming))) most_rows = box.high[a] - box.low[a];
        if (shares_positions && (vector_bytes < 64 || ahead) && has_small_windows() && axis.window == 3 && axis.stride == 2 && axis.dilation == 1) {
            shared_keys = static_cast<Key*>(reserve(scratch, 2, sizeof(Key) * static_cast<size_t>(2 * g.inner)));
            shared_codes = static_cast<I*>(reserve(scratch, 3, sizeof(I) * static_cast<size_t>(2 * g.inner)));
        }
        const int64_t w0 = box.low[g.rank - 1], w1 = box.high[g.rank - 1], reach = (axis.window - 1) * axis.dilation;
        const bool splits = brought_together(g);
        if (g.inner >= lanes || !axis.uniform || (!splits && (g.rank == 1 || parted(axis.stride, g.inner)))) return;
        if (writes_code && axis.window < 3 && lanes < 8 && !splits) return;   // two codes cost more to merge than two elements to visit
        if (writes_code && g.elements > no_column) return;
        const int64_t from = w0 * axis.stride - axis.before, to = (w1 - 1) * axis.stride - axis.before + reach + 1;
        columns.first = larger(0, from) * g.inner;
        columns.count = smaller(axis.size, to) * g.inner - columns.first;
        columns.begin = columns.first - from * g.inner;
        if (columns.count < lanes) return;
        const int64_t end = (w1 - w0) * g.inner, margin = 2 * axis.stride * lanes;
        columns.joined = !splits && columns.count == end * axis.stride && (!writes_value || y_row == end) && (!writes_code || code_row == end);
        if (columns.joined && reach >= axis.stride) columns.joined = columns.mended = can_mend();
        columns.pitch = columns.joined ? columns.count : (to - from) * g.inner + margin;
        const int64_t most = (columns.mended ? mended_bytes : together_bytes) / (columns.pitch * static_cast<int64_t>(sizeof(Key)));
#if defined(__AVX512BW__)
        if (can_shift_rows(end)) {
            columns.rows = larger(1, smaller(box.high[a] - box.low[a], mended_bytes / (axis.size * static_cast<int64_t>(sizeof(Key)))));
            const int64_t bytes = columns.rows * axis.size / 8 + 8;
            char* const bits = static_cast<char*>(reserve(scratch, 3, static_cast<size_t>(2 * bytes)));
            __builtin_memset(bits, -1, static_cast<size_t>(2 * bytes));
            for (int64_t p = 0; p < columns.rows * axis.size; p += axis.size) {
                const int64_t last = p + axis.size - 1;
                bits[p / 8] = static_cast<char>(bits[p / 8] & ~(1 << p % 8));
                bits[bytes + last / 8] = static_cast<char>(bits[bytes + last / 8] & ~(1 << last % 8));
            }
            columns.starts = bits, columns.ends = bits + bytes;
            columns.keys = reinterpret_cast<Key*>(bits);
            return;
        }
#endif
        if constexpr (can_pair)
            if (a >= 0 && ahead == 0 && !job.streaming && in_pairs(end)) {   // nothing is kept but in registers
                const int64_t row_bytes = columns.count * static_cast<int64_t>(sizeof(Key));
                columns.rows = larger(1, smaller(box.high[a] - box.low[a], paired_bytes / row_bytes));
                columns.keys = static_cast<Key*>(reserve(scratch, 2, 1));
                return;
            }
        columns.rows = a < 0 ? 1 : larger(1, smaller(box.high[a] - box.low[a], most));
        const int64_t room = columns.rows * columns.pitch + reach * g.inner + margin;
        columns.phase_pitch = (w1 - w0 + reach / axis.stride) * g.inner + lanes;
        columns.split_pitch = axis.stride * columns.phase_pitch;
        const int64_t split_room = splits ? columns.rows * columns.split_pitch : 0;
        columns.keys = static_cast<Key*>(reserve(scratch, 2, sizeof(Key) * static_cast<size_t>(room + split_room)));
        columns.codes = static_cast<I*>(reserve(scratch, 3, sizeof(I) * static_cast<size_t>(room + split_room)));
        if (splits) {
            columns.split_keys = columns.keys + room;
            columns.split_codes = columns.codes + room;
            columns.at = static_cast<int64_t*>(reserve(scratch, 4, sizeof(int64_t) * static_cast<size_t>(axis.window)));
            for (int64_t j = 0; j < axis.window; ++j) {
                const int64_t column = j * axis.dilation;
                columns.at[j] = column % axis.stride * columns.phase_pitch + column / axis.stride * g.inner;
            }
        }
        for (int64_t r = 0, i = 0; r <= columns.rows; ++r) {   // what no column fills is padding
            for (const int64_t behind = r < columns.rows ? r * columns.pitch + columns.begin : room; i < behind; ++i) {
                columns.keys[i] = lowest_real();
                if constexpr (writes_code) columns.codes[i] = static_cast<I>(no_column);
            }
            i += columns.count;
        }
    }

    // Winners of columns that are a stride apart are put side by side, so that neighbours read neighbours.
    void split_columns(int64_t rows) const {
        const int64_t s = axis.stride, b = g.inner * static_cast<int64_t>(sizeof(Key)), reach = (axis.window - 1) * axis.dilation;
        const int64_t places = (columns.phase_pitch - lanes) / g.inner, phases = smaller(s, reach + 1);
        const int64_t far = columns.phase_pitch * static_cast<int64_t>(sizeof(Key));
        for (int64_t r = 0; r < rows; ++r) {
            copy_pieces(columns.split_keys + r * columns.split_pitch, b, far, columns.keys + r * columns.pitch, s * b, b, places, phases, b);
            if constexpr (writes_code)
                copy_pieces(columns.split_codes + r * columns.split_pitch, b, far, columns.codes + r * columns.pitch, s * b, b, places, phases, b);
        }
    }

    static POOLGRAD_INLINE Key lowest_real() {
        if constexpr (Order::has_nan) return static_cast<Key>(-__builtin_inf());
        else return Order::lowest();
    }

    // With `two`, also those of the row of windows below, which has all rows but one in common.
    template <int vectors, bool two> POOLGRAD_INLINE void compare_rows(const Stored* p, Key* keys, I* codes, Keys (&sum)[vectors]) const {
        const Tap* const rows = taps;
        const int64_t count = tap_count, pitch = columns.pitch;
        Keys best[vectors];
        Codes at[vectors];
        const auto key_at = [&](const Stored* from, int u) __attribute__((always_inline)) {
            const Values element = load<Values>(from + u * lanes);
            if constexpr (Order::has_nan) sum[u] += element;
            return order.keys(element);
        };
        for (int u = 0; u < vectors; ++u) best[u] = key_at(p + rows[two].offset, u), at[u] = Codes{} + static_cast<I>(rows[0].code);
        for (int64_t t = 1 + two; t < count; ++t)
            for (int u = 0; u < vectors; ++u) {
                const Keys key = key_at(p + rows[t].offset, u);
                if constexpr (writes_code) at[u] = key > best[u] ? Codes{} + static_cast<I>(rows[t].code) : at[u];
                best[u] = larger_lanes(key, best[u]);
            }
        for (int u = 0; u < vectors; ++u) {
            if constexpr (two) {
                store(keys + pitch + u * lanes, larger_lanes(key_at(p + rows[count - 1].offset + x_row, u), best[u]));
                best[u] = larger_lanes(key_at(p + rows[0].offset, u), best[u]);
            }
            store(keys + u * lanes, best[u]);
            if constexpr (writes_code) store(codes + u * lanes, at[u]);
        }
    }

    // The winners of a vector of windows, from those of their columns: of equal ones the one with the smallest code, which is
    // the first in scan order.
    template <class Step, class Offset>
    static POOLGRAD_INLINE Keys compare_columns(const Key* keys, const I* codes, int64_t window, const Offset& offset, Natural& at) {
        Keys best = Step::template get<Key, lanes>(keys);
        for (int64_t j = 1; j < window; ++j) best = larger_lanes(Step::template get<Key, lanes>(keys + offset(j)), best);
        if constexpr (writes_code) {
            at = Natural{} - 1;
            for (int64_t j = 0; j < window; ++j) {
                const Natural mine = reinterpret_cast<Natural>(Step::template get<I, lanes>(codes + offset(j)) + static_cast<I>(j));
                const Codes hit = Step::template get<Key, lanes>(keys + offset(j)) == best;
                const Natural first = mine < at ? mine : at;
                at = hit ? first : at;
            }
        }
        return best;
    }

    // Whether rows of windows that are neighbours read other rows of elements, so that no row is known from the one before.
    bool dilated() const { return g.axes[g.rank - 2].dilation > 1; }

    bool has_negative_zero(int64_t rows) const {
        if constexpr (two_zeros) {
            const Codes sign = splat<I, lanes>(static_cast<I>(I{1} << (8 * sizeof(I) - 1)));
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t t = 0; t < tap_count; ++t)
                    for (int64_t i = 0; (r == 0 || taps[t].fresh || dilated()) && i < columns.count; i += lanes) {
                        const auto at = smaller(i, columns.count - lanes);
                        if (any_lane(load<Codes>(x + columns.first + r * x_row + taps[t].offset + at) == sign)) return true;
                    }
        }
        return false;
    }

    // The winners of the columns of a row of windows, or of two; false if a NaN was met.
    template <bool two> POOLGRAD_INLINE bool compare_all_rows(int64_t r) const {
        const Stored* const from = x + columns.first + r * x_row;
        Key* const keys = columns.keys + r * columns.pitch + columns.begin;
        I* const codes = columns.codes + r * columns.pitch + columns.begin;
        const int64_t count = columns.count;
        Keys sum[2] = {};
        int64_t i = 0;
        for (; i + 2 * lanes <= count; i += 2 * lanes) {
            for (int below = 0; ahead && below <= two; ++below) look_ahead((r + below) * x_row, columns.first + i, 2 * lanes);
            compare_rows<2, two>(from + i, keys + i, codes + i, sum);
        }
        for (; i < count; i += lanes) {
            const int64_t last = smaller(i, count - lanes);   // overlaps the block before
            for (int below = 0; ahead && below <= two; ++below) look_ahead((r + below) * x_row, columns.first + last, lanes);
            Keys more[1] = {};
            compare_rows<1, two>(from + last, keys + last, codes + last, more);
            if constexpr (Order::has_nan) sum[0] += more[0];
        }
        if constexpr (Order::has_nan) return !any_nan(sum[0] + sum[1]);
        return true;
    }

    // What says that winners have to be looked at again.
    struct Marks {
        Codes zeros, nans;
    };

    bool is_certain(const Marks& marks, int64_t rows) const { return !any_lane(marks.nans) && (!any_lane(marks.zeros) || !has_negative_zero(rows)); }

    // Writes what is wanted of a vector of winners, up to the end of the row.
    POOLGRAD_INLINE void store_windows(Stored* values, char* chosen, int64_t f, int64_t end, Keys best, Natural at, Marks& marks) const {
        const int width = job.code_width;
        const Values value = order.values(best);
        Codes zeros{}, nans{};
        if constexpr (writes_value && two_zeros) zeros = best == Keys{};
        if constexpr (writes_value && !Order::key_is_value) nans = best == order.nan_key;
        if (f + lanes <= end) {
            if constexpr (writes_value) store(values + f, value);
            if constexpr (writes_code) store_codes<I, lanes>(chosen + f * width, width, reinterpret_cast<Codes>(at));
        } else {
            const Codes written = lane_mask<I, lanes>(0, end - f);
            zeros &= written, nans &= written;
            if constexpr (writes_code) store_some_codes<I, lanes>(chosen + f * width, width, reinterpret_cast<Codes>(at), end - f);
            if constexpr (writes_value) store_some(values + f, value, end - f);
        }
        marks.zeros |= zeros, marks.nans |= nans;
    }

#if defined(__AVX512BW__)
    // Windows of three columns centred on every element, with codes of a byte, in rows that follow one another: the winners of the columns stay in
    // registers, where they are shifted by one. What is shifted in from another row never wins.
    static constexpr bool can_shift = by_columns && writes_code && sizeof(Key) >= 2;

    struct ColumnWinners {
        Keys best;
        Codes at;
    };

    template <int count> POOLGRAD_INLINE ColumnWinners column_winners(const Stored* p, uint64_t real, bool all_new, Keys& sum) const {
        ColumnWinners w;
        const int64_t n = count ? count : tap_count;
#pragma GCC unroll 3
        for (int64_t t = 0; t < n; ++t) {
            const Values element = count ? load<Values>(p + taps[t].offset) : load_lanes<Values, Stored>(p + taps[t].offset, real);
            if constexpr (Order::has_nan)
                if (all_new || taps[t].fresh) sum += element;
            const Keys key = order.keys(element);
            w.at = t > 0 ? (key > w.best ? Codes{} + static_cast<I>(taps[t].code) : w.at) : Codes{} + static_cast<I>(taps[0].code);
            w.best = t > 0 ? larger_lanes(key, w.best) : key;
        }
        return w;
    }

    // Lanes [from, from + lanes) of two vectors.
    template <int from, class V> static POOLGRAD_INLINE V shifted(V a, V b) {
        return [&]<int... i>(std::integer_sequence<int, i...>)
                   __attribute__((always_inline)) { return __builtin_shufflevector(a, b, (from + i)...); }(std::make_integer_sequence<int, lanes>{});
    }

    bool can_shift_rows(int64_t row) const {
        const int64_t full = axis.size;
        return can_shift && axis.window == 3 && axis.stride == 1 && axis.dilation == 1 && axis.before == 1 && g.inner == 1 && row == full &&
               axis.count == full && x_row == full && code_row == full && (!writes_value || y_row == full) && job.code_width == 1;
    }

    __attribute__((noinline)) bool rows_by_shifts(int64_t rows) {
        const int64_t end = rows * axis.size;
        Keys sum{};
        Marks marks{};
        const auto winners_at = [&](int64_t f) __attribute__((always_inline)) {
            const bool all_new = f < axis.size || dilated();
            if (f + lanes <= end && tap_count == 3) return column_winners<3>(x + f, 0, all_new, sum);
            return column_winners<0>(x + f, ~uint64_t{0} >> (64 - smaller(lanes, end - f)), all_new, sum);
        };
        ColumnWinners before{}, here = winners_at(0);
        for (int64_t f = 0; f < end; f += lanes) {
            if (ahead) look_ahead(0, f, lanes);
            const ColumnWinners after = f + lanes < end ? winners_at(f + lanes) : here;
            const uint64_t has_left = load<uint32_t>(columns.starts + f / 8), has_right = load<uint32_t>(columns.ends + f / 8);
            const Keys none = Keys{} + lowest_real();
            const Codes no_code = Codes{} + static_cast<I>(no_column);
            const Keys left = keep_lanes<Stored>(shifted<lanes - 1>(before.best, here.best), has_left, none);
            const Keys right = keep_lanes<Stored>(shifted<1>(here.best, after.best), has_right, none);
            const Keys best = larger_lanes(right, larger_lanes(here.best, left));
            Natural at = Natural{} - 1;
            const auto meet_column = [&](Keys key, Codes code) __attribute__((always_inline)) {
                const Natural mine = reinterpret_cast<Natural>(code), first = mine < at ? mine : at;
                at = key == best ? first : at;
            };
            meet_column(left, keep_lanes<Stored>(shifted<lanes - 1>(before.at, here.at), has_left, no_code));
            meet_column(here.best, here.at + static_cast<I>(1));
            meet_column(right, keep_lanes<Stored>(shifted<1>(here.at, after.at) + static_cast<I>(2), has_right, no_code));
            store_windows(y, code, f, end, best, at, marks);
            before = here, here = after;
        }
        if constexpr (Order::has_nan)
            if (any_nan(sum)) return false;
        return is_certain(marks, rows);
    }
#endif

    // Those of some rows.
    __attribute__((noinline)) bool compare_some_rows(int64_t rows) const {
        int64_t done = 0;
        if constexpr (!writes_code) {
            const bool in_twos = g.rank == 2 && tap_count > 1 && g.axes[0].stride == g.axes[0].dilation;
            for (; in_twos && done + 2 <= rows; done += 2)
                if (!compare_all_rows<true>(done)) return false;
        }
        for (; done < rows; ++done)
            if (!compare_all_rows<false>(done)) return false;
        return true;
    }

    // `fixed` is the window along the row, or 0 for any.
    template <class Step, int fixed, bool split = false> __attribute__((noinline)) bool rows_by_columns(int64_t w0, int64_t w1, int64_t rows) {
        if (!compare_some_rows(rows)) return false;
        if constexpr (split) split_columns(rows);
        Marks marks{};
        const int64_t row = (w1 - w0) * g.inner, window = fixed ? fixed : axis.window, step = axis.dilation * g.inner;
        const int64_t end = columns.joined ? rows * row : row, lines = columns.joined ? 1 : rows;
        const int width = job.code_width;
        const auto offset = [step, at = columns.at](int64_t j) __attribute__((always_inline)) { return split ? at[j] : j * step; };
        for (int64_t r = 0; r < lines; ++r) {
            const Key* const keys = split ? columns.split_keys + r * columns.split_pitch : columns.keys + r * columns.pitch;
            const I* const codes = split ? columns.split_codes + r * columns.split_pitch : columns.codes + r * columns.pitch;
            Stored* const values = writes_value ? y + r * y_row + w0 * g.inner : nullptr;
            char* const chosen = writes_code ? code + (r * code_row + w0 * g.inner) * width : nullptr;
            for (int64_t f = 0; f < end; f += lanes) {
                if (end >= lanes) f = smaller(f, end - lanes);
                Natural at;
                const Keys best = compare_columns<Step>(keys + f * Step::stride, codes + f * Step::stride, window, offset, at);
                store_windows(values, chosen, f, end, best, at, marks);
            }
        }
        if constexpr (mends && fixed > 0) {
            if (columns.mended && mend_ends<fixed>(rows, row)) marks.zeros = ~Codes{};
        }
        return is_certain(marks, rows);
    }

    // Windows of two or three columns that begin two apart, and only the last of which may lack its third: the winners of the columns stay in
    // registers, where they are taken apart. A column that is missing is like the one before it, which changes nothing.
    static constexpr bool can_pair = by_columns && sizeof(Key) >= 2;
    static constexpr bool can_pair_threes = can_pair && sizeof(Key) >= 4 && vector_bytes >= 32;   // elsewhere that is not quicker

    // Windows of two may fill only a part of a vector where lanes can be picked quickly by numbers that are no constants.
    static constexpr int64_t least_paired = lanes / (vector_bytes == 64 ? 2 : 1);

    bool in_pairs(int64_t windows) const {
        const bool enough = axis.window == 2 ? windows >= least_paired : can_pair_threes && axis.window == 3 && windows >= lanes;
        return enough && axis.stride == 2 && axis.dilation == 1 && g.inner == 1 && columns.begin == 0 && columns.count >= 2 * windows;
    }

    __attribute__((noinline)) bool rows_in_twos(int64_t w0, int64_t w1, int64_t rows) const {
        const Tap* const row_taps = taps;
        const int64_t count = tap_count, end = w1 - w0, block = least_paired == lanes ? lanes : smaller(lanes, end);   // windows at a time
        const int64_t second = 2 * block - lanes;   // where the second vector of columns begins; it may overlap the first
        const Codes lane = iota<I, lanes>(), last = splat<I, lanes>(static_cast<I>(block - 1)), column = 2 * (lane < last ? lane : last);
        const auto lanes_of = [second](Codes columns) __attribute__((always_inline)) {   // of both vectors
            if constexpr (least_paired == lanes) return columns;
            else return columns >= lanes ? columns + static_cast<I>(lanes - second) : columns;
        };
        const Codes even = lanes_of(column), odd = lanes_of(column + 1);
        const Tap &one = row_taps[0], &two = row_taps[count > 1 ? 1 : 0];   // a single row is read twice, which changes nothing
        const int64_t above = one.offset, below = two.offset;
        const I code_above = static_cast<I>(one.code), code_below = static_cast<I>(two.code);
        const int64_t asked = ahead, width = job.code_width, next_x = x_row, next_y = y_row, next_code = code_row * width;
        const Stored* row = x + columns.first;
        Stored* values = writes_value ? y + w0 : nullptr;
        char* chosen = writes_code ? code + w0 * width : nullptr;
        Marks marks{};
        [[maybe_unused]] NanWatch<Keys> nans;   // sooner than a sum, which would have to wait for itself
        for (int64_t r = 0; r < rows; ++r, row += next_x, values += next_y, chosen += next_code)
            for (int64_t f = 0; f < end; f += lanes) {
                f = smaller(f, end - block);   // the last block overlaps the one before
                if (asked) look_ahead(r * next_x, columns.first + 2 * f, 2 * lanes);
                Keys best[2];   // of two vectors of columns
                Codes at[2];
                const auto meet_row = [&](int64_t offset, I row_code, bool is_first) __attribute__((always_inline)) {
                    const Codes tap_code = Codes{} + row_code;
                    Values element[2];
                    for (int u = 0; u < 2; ++u) element[u] = read_once(load<Values>(row + 2 * f + offset + u * second));
                    if constexpr (Order::has_nan) nans.see(element[0], element[1]);
                    for (int u = 0; u < 2; ++u) {
                        const Keys key = order.keys(element[u]);
                        if constexpr (writes_code) at[u] = is_first ? tap_code : key > best[u] ? tap_code : at[u];
                        best[u] = is_first ? key : larger_lanes(key, best[u]);
                    }
                };
                meet_row(above, code_above, true);
                meet_row(below, code_below, false);
                for (int64_t t = 2; t < count; ++t) meet_row(row_taps[t].offset, static_cast<I>(row_taps[t].code), false);
                const Keys left = shuffle(best[0], best[1], even), right = shuffle(best[0], best[1], odd), most = larger_lanes(right, left);
                Natural first{};
                if constexpr (writes_code) {
                    const Natural of_left = reinterpret_cast<Natural>(shuffle(at[0], at[1], even));
                    const Natural of_right = reinterpret_cast<Natural>(shuffle(at[0], at[1], odd) + 1);
                    const Natural smallest = of_right < of_left ? of_right : of_left;   // of two that are equal
                    first = left == most ? (right == most ? smallest : of_left) : of_right;
                }
                store_windows(values, chosen, f, end, most, first, marks);
            }
        if constexpr (Order::has_nan)
            if (nans.any()) return false;
        return is_certain(marks, rows);
    }

    // The winners of some vectors of columns, or of one column in all lanes.
    template <int vectors> struct PairedColumns {
        Keys best[vectors];
        Codes at[vectors];
    };

    template <int vectors, bool one> POOLGRAD_INLINE PairedColumns<vectors> paired_columns(const Stored* from, Keys (&sum)[2]) const {
        const Tap* const row_taps = taps;
        const int64_t count = tap_count;
        PairedColumns<vectors> winners;
        Keys total[vectors];   // of its own, so that blocks need not wait for each other
        const auto key_at = [&](int64_t t, int u) __attribute__((always_inline)) {
            const Stored* const p = from + row_taps[t].offset;
            const Values element = read_once(one ? splat<Stored, lanes>(*p) : load<Values>(p + u * lanes));
            if constexpr (Order::has_nan) {
                if (vector_bytes == 64) sum[u] += element;   // apart, so that they need not wait for each other
                else total[u] = t > 0 ? total[u] + element : element;
            }
            return order.keys(element);
        };
        for (int u = 0; u < vectors; ++u) winners.best[u] = key_at(0, u), winners.at[u] = Codes{} + static_cast<I>(row_taps[0].code);
        for (int64_t t = 1; t < count; ++t) {
            const Codes here = read_once(Codes{} + static_cast<I>(row_taps[t].code));
            for (int u = 0; u < vectors; ++u) {
                const Keys key = key_at(t, u);
                if constexpr (writes_code) winners.at[u] = key > winners.best[u] ? here : winners.at[u];
                winners.best[u] = larger_lanes(key, winners.best[u]);
            }
        }
        for (int u = 0; Order::has_nan && vector_bytes < 64 && u < vectors; ++u) sum[u] += total[u];
        return winners;
    }

    // The even or the odd lanes of two vectors.
    template <int first, class V> static POOLGRAD_INLINE V every_second(V a, V b) {
#if defined(__AVX2__) && !defined(__AVX512BW__)
        if constexpr (sizeof(Key) == 4) {   // two instructions instead of three, which need two constants
            const __m256 mixed = _mm256_shuffle_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), first ? 0xdd : 0x88);
            return reinterpret_cast<V>(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
        }
#endif
        return shuffle(a, b, 2 * iota<I, lanes>() + static_cast<I>(first));
    }

    __attribute__((noinline)) bool rows_in_threes(int64_t w0, int64_t w1, int64_t rows) const {
        const Codes next = iota<I, lanes>() + 1, last_lane = Codes{} + static_cast<I>(lanes - 1);
        const int64_t end = w1 - w0;
        Marks marks{};
        Keys sum[2] = {};
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t begin = columns.first + r * x_row;
            const Stored* const row = x + begin;
            Stored* const values = writes_value ? y + r * y_row + w0 : nullptr;
            char* const chosen = writes_code ? code + (r * code_row + w0) * job.code_width : nullptr;
            const auto pair_at = [&](int64_t f) __attribute__((always_inline)) {
                if (ahead) look_ahead(r * x_row, columns.first + 2 * f, 2 * lanes);
                return paired_columns<2, false>(row + 2 * f, sum);
            };
            PairedColumns<2> now, after = pair_at(0);
            for (int64_t f = 0, to; f < end; f = to) {
                now = after, to = f + lanes;
                if (to < end) {
                    to = smaller(to, end - lanes);   // the last block overlaps the one before
                    after = pair_at(to);
                }
                Keys best[3] = {now.best[0], now.best[1], after.best[0]};   // of two vectors of columns, and of the column behind them
                Codes at[3] = {now.at[0], now.at[1], after.at[0]};
                if (const int64_t behind = 2 * (f + lanes); to < f + lanes || to == end) {
                    if (behind < columns.count) {
                        const PairedColumns<1> column = paired_columns<1, true>(row + behind, sum);
                        best[2] = column.best[0], at[2] = column.at[0];
                    } else {
                        best[2] = shuffle(best[1], best[1], last_lane), at[2] = shuffle(at[1], at[1], last_lane);
                    }
                }
                const auto take_apart = [&](auto& columns) __attribute__((always_inline)) {   // by their place in the window
                    const auto left = every_second<0>(columns[0], columns[1]), right = every_second<1>(columns[0], columns[1]);
                    columns[2] = shuffle(left, columns[2], next);
                    columns[0] = left, columns[1] = right;
                };
                take_apart(best);
                const Keys most = larger_lanes(best[2], larger_lanes(best[1], best[0]));
                Natural first{};
                if constexpr (writes_code) {
                    take_apart(at);
                    first = Natural{} - 1;
                    for (int u = 2; u >= 0; --u) {
                        const Natural mine = reinterpret_cast<Natural>(at[u] + static_cast<I>(u)), smallest = mine < first ? mine : first;
                        first = best[u] == most ? smallest : first;
                    }
                }
                store_windows(values, chosen, f, end, most, first, marks);
            }
        }
        if constexpr (Order::has_nan)
            if (any_nan(sum[0] + sum[1])) return false;
        return is_certain(marks, rows);
    }

    // Stride 1 and as many windows as columns: rows can be joined, and windows that reach over their ends are done again.
    static constexpr bool mends = what == What::value && Order::key_is_value;

    bool can_mend() const {
        const bool odd = axis.window == 3 || axis.window == 5 || axis.window == 7;
        return mends && odd && axis.dilation == 1 && axis.stride == 1 && g.inner == 1 && 2 * axis.before == axis.window - 1 &&
               axis.size > axis.window;
    }

    // Returns whether a maximum is zero.
    template <int window> POOLGRAD_INLINE bool mend_ends(int64_t rows, int64_t row) const {
        constexpr int half = window / 2;
        bool zero = false;
        for (int64_t r = 0; r < rows; ++r) {
            const Key *const left = columns.keys + columns.begin + r * row, *const right = left + row - 1;
            Stored* const to = y + r * row;
            Key low = left[0], high = right[0];
            for (int j = 1; j < half; ++j) low = larger_of(left[j], low), high = larger_of(right[-j], high);
            for (int o = 0; o < half; ++o) {
                low = larger_of(left[o + half], low), high = larger_of(right[-o - half], high);
                to[o] = order.value(low), to[row - 1 - o] = order.value(high);
                zero |= low == 0 || high == 0;
            }
        }
        return zero;
    }

    static POOLGRAD_INLINE Key larger_of(Key a, Key b) { return a > b ? a : b; }

    // How many rows of windows from here on can be done together: those that read alike.
    int64_t rows_together(const Box& box, const RowWalk& walk) const {
        if (g.rank == 1) return 1;
        const int a = g.rank - 2;
        const int64_t row = walk.at[a], end = smaller(box.high[a], g.axes[a].whole_end), most = columns.keys ? columns.rows : most_rows;
        return row < g.axes[a].whole_begin ? 1 : larger(1, smaller(most, end - row));
    }

    // Whole rows of windows, if they can be done this way.
    bool whole_rows(int64_t w0, int64_t w1, int64_t rows) {
        if constexpr (by_columns) {
            if (!columns.keys) return false;
#if defined(__AVX512BW__)
            if constexpr (can_shift)
                if (columns.starts) return rows_by_shifts(rows);
#endif
            if constexpr (can_pair)
                if (in_pairs(w1 - w0)) {
                    if constexpr (can_pair_threes)
                        if (axis.window == 3) return rows_in_threes(w0, w1, rows);
                    return rows_in_twos(w0, w1, rows);
                }
            if constexpr (mends) {
                if (columns.mended && axis.window == 5) return rows_by_columns<EveryElement, 5>(w0, w1, rows);
                if (columns.mended && axis.window == 7) return rows_by_columns<EveryElement, 7>(w0, w1, rows);
            }
            if (columns.split_keys) return rows_by_columns<EveryElement, 0, true>(w0, w1, rows);
            if (axis.stride == 1)
                return axis.window == 3 ? rows_by_columns<EveryElement, 3>(w0, w1, rows) : rows_by_columns<EveryElement, 0>(w0, w1, rows);
            return axis.window == 3 ? rows_by_columns<EverySecond, 3>(w0, w1, rows) : rows_by_columns<EverySecond, 0>(w0, w1, rows);
        }
        return false;
    }

    // On to the row below, where rows are together.
    void next_row() { x += x_row, y += y_row, code += code_row * job.code_width; }

    const View& source() const { return mode == Mode::choice ? job.v : job.x; }

    void begin_row(const Tap* row_taps, int64_t n, int64_t image, const RowWalk& walk) {
        taps = row_taps;
        tap_count = n;
        if (ahead) {
            fresh = FreshRows(g, source().step, taps, n);
            constexpr int arrays = mode != Mode::choice && what == What::take ? 2 : 1;
            const bool near = what == What::take || axis.window > axis.stride;   // maxima of windows that share nothing take longer so
            const int64_t below = g.axes[g.rank - 2].stride * source().step[g.rank - 2];
            soon = RowsAhead(ahead, near ? axis.size * g.inner : 0, below, arrays * fresh.rows(), sizeof(Stored));
        }
        if constexpr (mode != Mode::choice) x = static_cast<const Stored*>(job.x.data) + outer_offset(job.x, image);
        if constexpr (what == What::take) v = static_cast<const Stored*>(job.v.data) + outer_offset(job.v, image);
        if constexpr (mode == Mode::equal) wanted = static_cast<const Stored*>(job.wanted.data) + row_offset(job.wanted, image, walk, g.rank);
        if constexpr (mode == Mode::choice)
            wanted_code = static_cast<const char*>(job.wanted.data) + row_offset(job.wanted, image, walk, g.rank) * job.code_width;
        if constexpr (writes_value) {
            y = static_cast<Stored*>(job.y.data) + row_offset(job.y, image, walk, g.rank);
            if (lines) y = lines->open(image - first_image, y + row_begin) - row_begin;
        }
        if constexpr (writes_code) code = static_cast<char*>(job.code.data) + row_offset(job.code, image, walk, g.rank) * job.code_width;
    }

    // While rows are read for the first time, those that the next output rows need are asked for: of the windows whose rows are `below` further.
    POOLGRAD_INLINE void look_ahead(int64_t below, int64_t at, int64_t count) const {
        if constexpr (mode != Mode::choice) fresh.ask(x + below + ahead, at, count);
        if constexpr (what == What::take) fresh.ask(v + below + ahead, at, count);
    }

    void end_rows(int64_t elements) {
        if (lines) lines->close(elements);
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
                if constexpr (masked) element = real ? element : Values{} + lowest_real();
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
            for (int64_t j = larger(0, window.length - axis.stride); j < window.length; ++j) {
                const int64_t at = (window.position + j * axis.dilation) * g.inner + c, near = soon.from(at) - ahead;
                look_ahead(near, at, vectors * lanes);
                if (twice) look_ahead(near, at, vectors * lanes);
            }
        if constexpr (can_hurry) {
            if (channels_done<vectors, true>(window, c)) return;
            channels_with_care(window, c, vectors);
        } else {
            channels_done<vectors, false>(window, c);
        }
    }

    __attribute__((noinline)) void channels_with_care(const Window& window, int64_t c, int vectors) {
        for (int u = 0; u < vectors; ++u) channels_done<1, false>(window, c + u * lanes);
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

    // Vectors of channels, in windows two or three elements wide: what the whole windows of a row have in common is read once, into
    // places that no store can change. From memory it is quicker to read some vectors that follow one another.
    bool has_small_windows() const { return by_columns && g.rank > 1 && g.inner >= lanes && (axis.window == 2 || axis.window == 3); }

    bool whole_windows(int64_t begin, int64_t end) {
        if constexpr (by_columns) {
            if (!has_small_windows()) return false;
            const int64_t vectors = g.inner / lanes;
            if (axis.window == 2) {
                if (ahead == 0) small_windows<2, 1, false>(begin, end);
                else vectors > 1 ? small_windows<2, 2, true>(begin, end) : small_windows<2, 1, true>(begin, end);
            } else {
                if (shared_keys && end - begin > 1) vectors > 1 ? threes_apart<2>(begin, end) : threes_apart<1>(begin, end);
                else if (ahead == 0) small_windows<3, 1, false>(begin, end);
                else if (vectors < most_vectors) vectors > 1 ? small_windows<3, 2, true>(begin, end) : small_windows<3, 1, true>(begin, end);
                else small_windows<3, most_vectors, true>(begin, end);
            }
            return true;
        }
        if constexpr (mode == Mode::choice && vector_bytes == 32) {
            if (g.inner < 2 * lanes || (axis.window != 2 && axis.window != 3)) return false;
            axis.window == 2 ? small_takes<2>(begin, end) : small_takes<3>(begin, end);
            return true;
        }
        return false;
    }

    // The same where codes are given: those of a row of the window are compared with numbers that stay in registers.
    template <int length> __attribute__((noinline)) void small_takes(int64_t begin, int64_t end) {
        constexpr int vectors = 2;
        const int64_t inner = g.inner, step = axis.dilation * inner, stride = axis.stride * inner, count = tap_count;
        const int64_t known = larger(0, length - axis.stride), far = ahead;   // positions that the window before has read
        const Tap* const rows = taps;
        Stored* const values = y;
        const char* const codes = wanted_code;
        const int width = job.code_width, asks = 1 + twice;
        const bool streaming = job.streaming;
        const FreshRows next = far ? fresh : FreshRows();
        const Stored* from = v + (begin * axis.stride - axis.before) * inner;
        for (int64_t o = begin, to = begin * inner; o < end; ++o, from += stride, to += inner)
            for (int64_t c = 0; c < inner; c += vectors * lanes) {
                c = smaller(c, inner - vectors * lanes);   // the last block overlaps the one before
                for (int64_t j = known; far && j < length; ++j)
                    for (int again = 0; again < asks; ++again) next.template ask<1>(from + c + j * step + far, 0, vectors * lanes);
                Codes at[vectors];
                Values value[vectors] = {};
                for (int u = 0; u < vectors; ++u) at[u] = load_codes<I, lanes>(codes + (to + c + u * lanes) * width, width);
                for (int64_t t = 0; t < count; ++t) {
                    const Stored* const p = from + c + rows[t].offset;
                    const Codes first = Codes{} + static_cast<I>(rows[t].code);
                    for (int u = 0; u < vectors; ++u) {
                        const Codes place = at[u] - first;
                        for (int j = 0; j < length; ++j) value[u] = place == static_cast<I>(j) ? load<Values>(p + j * step + u * lanes) : value[u];
                    }
                }
                for (int u = 0; u < vectors; ++u) {
                    if (streaming) stream(values + to + c + u * lanes, value[u]);
                    else store(values + to + c + u * lanes, value[u]);
                }
            }
    }

    template <int length, int vectors, bool in_memory> __attribute__((noinline)) void small_windows(int64_t begin, int64_t end) {
        const int64_t inner = g.inner, step = axis.dilation * inner, stride = axis.stride * inner, count = tap_count;
        const int64_t known = larger(0, length - axis.stride);   // positions that the window before has read
        [[maybe_unused]] const RowsAhead next_rows = soon;
        const Tap* const rows = taps;
        Stored* const values = y;
        char* const codes = code;
        const int width = job.code_width, asks = 1 + twice;
        const bool streaming = in_memory && job.streaming;
        constexpr bool listed = length > 2 && in_memory;   // windows of two have few rows, most of them fresh
        [[maybe_unused]] const FreshRows next = listed ? fresh : FreshRows();
        const int64_t column = (begin * axis.stride - axis.before) * inner;
        const Stored* from = x + column;
        for (int64_t o = begin, to = begin * inner, f = column; o < end; ++o, from += stride, to += inner, f += stride)
            for (int64_t c = 0; c < inner; c += vectors * lanes) {
                c = smaller(c, inner - vectors * lanes);   // the last block overlaps the one before
                const int64_t far = in_memory ? next_rows.from(f + c) : 0;
                for (int64_t j = known; in_memory && j < length; ++j)
                    for (int again = 0; again < asks; ++again) {
                        if constexpr (listed) next.template ask<1>(from + c + j * step + far, 0, vectors * lanes);
                        for (int64_t t = 0; !listed && t < count; ++t)
                            if (rows[t].fresh) ask_for(from + c + rows[t].offset + j * step + far, vectors * lanes);
                    }
                State s[vectors];
                constexpr bool adds = vector_bytes == 32 && length > 2;   // comparing takes the place of finding maxima there, adding does not
                [[maybe_unused]] NanWatch<Keys> nans;       // elsewhere it is sooner than the sum, which would have to wait for itself
                [[maybe_unused]] Keys sum[vectors];
                const auto visit = [&](const Tap& row, bool first) __attribute__((always_inline)) {
                    const Stored* const p = from + c + row.offset;
                    Values element[length][vectors];
                    for (int j = 0; j < length; ++j)
                        for (int u = 0; u < vectors; ++u) element[j][u] = load<Values>(p + j * step + u * lanes);
                    for (int u = 0; u < vectors; ++u) {
                        if constexpr (can_hurry && !adds) {
                            nans.see(element[0][u], element[1][u]);
                            if (length > 2) nans.see(element[length - 1][u], element[length - 1][u]);
                        }
                        if constexpr (can_hurry && adds) {
                            const Keys few = element[0][u] + element[1][u], all = length > 2 ? few + element[length - 1][u] : few;
                            sum[u] = first ? all : sum[u] + all;
                        }
                        for (int j = 0; j < length; ++j) {
                            const I element_code = static_cast<I>(row.code + j);
                            if (first && j == 0) start(s[u], element[j][u], Values{}, element_code);
                            else meet<false, can_hurry>(s[u], element[j][u], Values{}, element_code, Codes{});
                        }
                    }
                };
                visit(rows[0], true);
                for (int64_t t = 1; t < count; ++t) visit(rows[t], false);
                if constexpr (can_hurry) {
                    for (int u = 1; adds && u < vectors; ++u) sum[0] += sum[u];
                    if (adds ? any_nan(sum[0]) : nans.any()) {
                        windows_with_care(o, c, vectors);
                        continue;
                    }
                }
                const auto write_codes = [&](int u) __attribute__((always_inline)) {
                    if constexpr (writes_code) store_codes<I, lanes>(codes + (to + c + u * lanes) * width, width, s[u].at);
                };
                for (int u = 0; u < vectors; ++u) {
                    const int64_t at = to + c + u * lanes;
                    if constexpr (writes_value) {
                        if (streaming) stream(values + at, result(s[u]));
                        else store(values + at, result(s[u]));
                    }
                    if (vector_bytes == 64) write_codes(u);
                }
                for (int u = 0; vector_bytes < 64 && u < vectors; ++u) write_codes(u);   // not between the parts of a line
            }
    }

    // Windows of three positions that begin two apart: the winner of the position that one shares with the next is found once. (In the cache
    // comparing is quicker than keeping it, with AVX-512.)
    static constexpr bool shares_positions = by_columns && Order::key_is_value && sizeof(Key) >= 4;

    template <int vectors> __attribute__((noinline)) void threes_apart(int64_t begin, int64_t end) {
        struct Position {
            Keys best[vectors], sum[vectors];
            Codes at[vectors];
        };
        const int64_t inner = g.inner, count = tap_count;
        const RowsAhead next_rows = soon;
        const Stored* const image = x;
        const Tap* const rows = taps;
        Key* const keys_kept = shared_keys;
        I* const codes_kept = shared_codes;
        Stored* const values = y;
        char* const codes = code;
        const int width = job.code_width;
        const bool streaming = job.streaming;
        const FreshRows next = ahead ? fresh : FreshRows();
        const auto winners_at = [&](const Stored* p) __attribute__((always_inline)) {
            if (next_rows) next.template ask<1>(p + next_rows.from(p - image), 0, vectors * lanes);
            Position w;
            for (int u = 0; u < vectors; ++u) {
                const Values element = load<Values>(p + rows[0].offset + u * lanes);
                w.best[u] = order.keys(element), w.at[u] = Codes{} + static_cast<I>(rows[0].code);
                if constexpr (Order::has_nan) w.sum[u] = element;
            }
            for (int64_t t = 1; t < count; ++t) {
                const Codes here = Codes{} + static_cast<I>(rows[t].code);
                for (int u = 0; u < vectors; ++u) {
                    const Values element = load<Values>(p + rows[t].offset + u * lanes);
                    const Keys key = order.keys(element);
                    if constexpr (Order::has_nan) w.sum[u] += element;
                    if constexpr (writes_code) w.at[u] = key > w.best[u] ? here : w.at[u];
                    w.best[u] = larger_lanes(key, w.best[u]);
                }
            }
            return w;
        };
        // A position with a NaN is kept as one.
        const auto keep = [&](const Position& w, int64_t slot, bool with_care) __attribute__((always_inline)) {
            for (int u = 0; u < vectors; ++u) {
                Keys best = w.best[u];
                if constexpr (Order::has_nan)
                    if (with_care) best = w.sum[u] == w.sum[u] ? best : w.sum[u];
                store(keys_kept + slot + u * lanes, best);
                if constexpr (writes_code) store(codes_kept + slot + u * lanes, w.at[u]);
            }
        };
        const auto each_block = [&](auto&& f) __attribute__((always_inline)) {
            for (int64_t c = 0; c < inner; c += vectors * lanes)
                f(c = smaller(c, inner - vectors * lanes));   // the last block overlaps the one before
        };
        const Stored* from = x + (2 * begin - axis.before) * inner;
        each_block([&](int64_t c) __attribute__((always_inline)) { keep(winners_at(from + c), c, true); });
        int64_t old_slot = 0, new_slot = inner;   // nothing is written where it is read
        int64_t zeros = 0;                        // blocks of windows that are looked through again
        for (int64_t o = begin, to = begin * inner; o < end; ++o, from += 2 * inner, to += inner, std::swap(old_slot, new_slot))
            each_block([&](int64_t c) __attribute__((always_inline)) {
                const Position middle = winners_at(from + inner + c), right = winners_at(from + 2 * inner + c);
                Keys left[vectors], most[vectors];
                [[maybe_unused]] Keys sum{};
                [[maybe_unused]] Codes zero{};
                for (int u = 0; u < vectors; ++u) {
                    left[u] = load<Keys>(keys_kept + old_slot + c + u * lanes);
                    most[u] = larger_lanes(right.best[u], larger_lanes(middle.best[u], left[u]));
                    if constexpr (Order::has_nan) {
                        const Keys all = left[u] + (middle.sum[u] + right.sum[u]);
                        sum = u > 0 ? sum + all : all;
                        if constexpr (writes_value) zero |= most[u] == Keys{};
                    }
                }
                if constexpr (Order::has_nan) {
                    if (any_nan(sum)) {
                        keep(right, new_slot + c, true);
                        return windows_with_care(o, c, vectors);
                    }
                    if constexpr (writes_value)
                        if (any_lane(zero)) {
                            ++zeros;
                            if (block_has_negative_zero(from + c, vectors)) {
                                keep(right, new_slot + c, false);
                                return windows_with_care(o, c, vectors);
                            }
                        }
                }
                keep(right, new_slot + c, false);
                for (int u = 0; writes_value && u < vectors; ++u) {
                    const int64_t at = to + c + u * lanes;
                    if (streaming) stream(values + at, order.values(most[u]));
                    else store(values + at, order.values(most[u]));
                }
                if constexpr (writes_code)
                    for (int u = 0; u < vectors; ++u) {
                        Natural at = Natural{} - 1;
                        const auto meet_position = [&](Keys key, Codes where) __attribute__((always_inline)) {
                            const Natural mine = reinterpret_cast<Natural>(where), first = mine < at ? mine : at;
                            at = key == most[u] ? first : at;
                        };
                        meet_position(left[u], load<Codes>(codes_kept + old_slot + c + u * lanes));
                        meet_position(middle.best[u], middle.at[u] + static_cast<I>(1));
                        meet_position(right.best[u], right.at[u] + static_cast<I>(2));
                        store_codes<I, lanes>(codes + (to + c + u * lanes) * width, width, reinterpret_cast<Codes>(at));
                    }
            });
        // Where many maxima are zero, element by element is quicker: so the rows below are done.
        if (16 * zeros > (end - begin) * ceil_div(inner, vectors * lanes)) shared_keys = nullptr;
    }

    // Whether a window of three positions, of which the first is at p, holds a -0 in some vectors of channels.
    __attribute__((noinline)) bool block_has_negative_zero(const Stored* p, int vectors) const {
        const Codes sign = splat<I, lanes>(static_cast<I>(I{1} << (8 * sizeof(I) - 1)));
        Codes found{};
        for (int64_t t = 0; t < tap_count; ++t)
            for (int j = 0; j < 3; ++j)
                for (int u = 0; u < vectors; ++u) found |= load<Codes>(p + taps[t].offset + j * g.inner + u * lanes) == sign;
        return any_lane(found);
    }

    __attribute__((noinline)) void windows_with_care(int64_t o, int64_t c, int vectors) { channels_with_care(window_of(axis, o), c, vectors); }

    template <class Step, bool masked, int vectors> POOLGRAD_INLINE void row(const RowBlock& block) {
        if (ahead && Step::stride > 0) look_ahead(0, block.position, vectors * lanes * Step::stride);
        if constexpr (can_hurry && (!masked || lowers || mode == Mode::equal)) {
            if (row_done<Step, masked, true, vectors>(block)) return;
            row_with_care<Step, masked>(block, vectors);
        } else {
            row_done<Step, masked, false, vectors>(block);
        }
    }

    template <class Step, bool masked> __attribute__((noinline)) void row_with_care(RowBlock block, int vectors) {
        block.count = vectors > 1 ? lanes : block.count;
        for (int u = 0; u < vectors; ++u, block.output += lanes, block.position += lanes * Step::stride) row_done<Step, masked, false, 1>(block);
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
                        s[u].best = Keys{} + (hurried ? lowest_real() : order.lowest());
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
            if constexpr (writes_value) store_some(y + block.output, result(s[0]), block.count);
            if constexpr (writes_code) store_some_codes<I, lanes>(code + block.output * job.code_width, job.code_width, s[0].at, block.count);
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
#if defined(__AVX2__)
    if constexpr (mode == Mode::maximum && Around<Order, what>::exists) {
        using Neighbours = Around<Order, what>;
        if (Neighbours::suits(job, box))
            return Neighbours(job, order).run(box, scratch, [&](const Box& some) {
                Vectors r(job, order);
                if constexpr (Vectors::by_columns) r.prepare_columns(some, scratch);
                reduce_box(r, *job.geometry, some, scratch);
            });
    }
#endif
    if (job.declined) {
        *job.declined = true;
        return;
    }
    if constexpr (Vectors::writes_code || mode == Mode::choice) {
        if (sizeof(typename Order::Stored) < 8 && job.code_width > static_cast<int>(sizeof(typename Order::Stored))) {
            OneByOne<Vectors> r(job, order);
            return reduce_box(r, *job.geometry, box, scratch);
        }
    }
    Vectors r(job, order);
    const Geometry& g = *job.geometry;
    if constexpr (hurries && mode == Mode::maximum && what != What::take && Order::key_is_value) {
#if defined(__AVX2__)
        if constexpr (sizeof(typename Order::Key) >= 4) {
            using Threes = SlidingThrees<Order, what>;
            if (Threes::suits(job, box)) return Threes(job, order).run(box, [&](const Box& some) { reduce_box(r, g, some, scratch); });
        }
#endif
        using Neighbours = Sliding<Order, what>;
        if (Neighbours::suits(g)) return Neighbours(job, order).run(box, scratch, [&](const Box& some) { reduce_box(r, g, some, scratch); });
    }
    if constexpr (Vectors::by_columns) {
        constexpr int64_t most_windows = 1024;   // of a single row, so that its columns stay in the cache
        if (g.rank == 1 && brought_together(g) && box.high[0] - box.low[0] > most_windows) {
            for (Box part = box; part.low[0] < box.high[0]; part.low[0] = part.high[0]) {
                part.high[0] = smaller(box.high[0], part.low[0] + most_windows);
                run<Order, mode, what>(job, part, scratch, order);
            }
            return;
        }
        r.prepare_columns(box, scratch);
    }
    const bool in_lines = Vectors::writes_value && job.streaming && g.inner < Vectors::lanes;
    const int64_t row_begin = box.low[g.rank - 1] * g.inner, row_end = box.high[g.rank - 1] * g.inner;
    if (in_lines && g.rank > 1 && job.y.step[g.rank - 2] != row_end - row_begin) r.columns.rows = 1;
    LineWriter<typename Order::Stored> lines(in_lines ? box.n_end - box.n : 0, r.columns.rows * (row_end - row_begin), scratch, 6);
    if (in_lines) r.lines = &lines, r.first_image = box.n, r.row_begin = row_begin;
    constexpr int64_t small_image = int64_t{1} << 15;   // bytes
    const int64_t image_bytes = g.axes[0].size * job.x.step[0] * static_cast<int64_t>(sizeof(typename Order::Stored));
    const bool in_order = r.ahead || (r.columns.keys && image_bytes <= small_image);
    if (!in_order) return reduce_box(r, g, box, scratch);
    for (Box image = box; image.n < box.n_end; ++image.n) {   // one after the other, as they lie in memory
        image.n_end = image.n + 1;
        reduce_box(r, g, image, scratch);
    }
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
