// take and put by following codes: every window looks at its own code once and goes where it points, however many elements
// it has. put adds up in scratch memory that only its box touches, window after window in ascending order, so the sums are
// those of the gather form to the bit.
#include <utility>

#include "gather.hpp"
#include "kernels.hpp"

namespace poolgrad {
namespace {

constexpr int64_t table_entries = 4096;   // windows up to this many elements keep a table; codes of larger ones are decoded
template <class Code> constexpr bool tabled = sizeof(Code) < 4;   // windows whose codes need more never are that small

// The local positions that a code stands for. False if it stands for none of the window's real elements.
POOLGRAD_INLINE bool decode(const Geometry& g, const Span* spans, uint64_t code, int64_t* local_at) {
    for (int a = 0; a < g.rank; ++a) {
        const uint64_t step = static_cast<uint64_t>(g.code_step[a]), at = code / step;
        code -= at * step;
        if (at - static_cast<uint64_t>(spans[a].first) >= static_cast<uint64_t>(spans[a].length)) return false;
        local_at[a] = static_cast<int64_t>(at);
    }
    return true;
}

// Where every code points, relative to the origin of its window. Local positions outside `inside` (one range per axis) point
// to `astray`.
inline void fill_table(const Geometry& g, const int64_t* step, const Span* inside, int64_t astray, int64_t* table) {
    table[0] = 0;
    int64_t n = 1;
    for (int a = 0; a < g.rank; ++a) {
        const Axis& axis = g.axes[a];
        for (int64_t t = n - 1; t >= 0; --t) {   // from the back, so that the table can grow in place
            const int64_t offset = table[t];
            for (int64_t j = axis.extent - 1; j >= 0; --j) {
                const bool stays = offset != astray && j >= inside[a].first && j < inside[a].first + inside[a].length;
                table[t * axis.extent + j] = stays ? offset + j * axis.dilation * step[a] : astray;
            }
        }
        n *= axis.extent;
    }
}

// ---- take -----------------------------------------------------------------------------------------------------------

// A table says where each code points from the origin of its window, so the cost of a window does not depend on its size.
// Codes are followed one by one, which is as quick as a gather unless nothing but streams is written between gathers (and unless they are slow).
template <class T, class Code> struct CodedTake {
    static constexpr int lanes = 16;   // windows in one block
    static constexpr int64_t piece = 1024;
    static constexpr int64_t astray = INT64_MIN;

    const Scan& job;
    const Geometry& g;
    const Axis& axis;
    const int64_t w0, w1;
    const int64_t ahead;               // see read_ahead
    FreshRows fresh;                   // from the origins of a row of windows, if anything is asked for
    int64_t* offsets;                  // per code; null: codes are decoded
    int64_t lowest, highest;           // of the offsets
    int32_t* columns;                  // per code: its position along the row
    bool* named;                       // per code: whether it names an element, as far as the axes before the last are concerned
    LineWriter<T> lines;
    T *held, *held_for;                // results that are written past the caches together, and where they belong
    int64_t held_count;
    Span spans[max_axes], known[max_axes];
    int64_t together;                  // windows that are looked up in registers at once, or 0
    bool gathers;                      // whether codes are followed by gathers, for which the offsets are kept in registers:
    alignas(64) int32_t narrow[64];

    static constexpr int wide = vector_bytes / static_cast<int>(sizeof(T));
    static constexpr bool in_registers = vector_bytes == 64 && (sizeof(T) == 2 || sizeof(T) == 4) && sizeof(Code) == 1;
    static constexpr int64_t most_rows = 9;                        // of a window
    static constexpr int position_bits = sizeof(T) == 4 ? 5 : 6;   // of a place in two vectors
    using Elements = Vec<T, wide>;
    Elements along;                    // from the first of them to each
    int64_t row_count;                 // rows of a window,
    int64_t row_offsets[most_rows];    // where they are; missing ones like the last
    uint16_t row_inverse;              // what codes are multiplied with to divide them by the length of a row

#if defined(__AVX512F__)
    static constexpr bool can_gather = sizeof(T) >= 4 && tabled<Code>;
    static constexpr int64_t most_gathered = 4 * lanes;   // codes whose offsets fit registers
#else
    static constexpr bool can_gather = false;
    static constexpr int64_t most_gathered = 0;
#endif

    CodedTake(const Scan& job, const Box& box, Scratch& scratch)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          w0(box.low[g.rank - 1]),
          w1(box.high[g.rank - 1]),
          ahead(read_ahead<T>(g, job.v, 2)),
          offsets(nullptr),
          lines(job.streaming ? 1 : 0, 2 * piece + (w1 - w0) * g.inner, scratch, 2),
          held_for(nullptr),
          held_count(0),
          together(0),
          gathers(false) {
        if (!tabled<Code> || g.elements > table_entries) return;
        constexpr size_t entries = table_entries + 1;
        offsets = static_cast<int64_t*>(reserve(scratch, 0, (sizeof(int64_t) + sizeof(int32_t) + sizeof(bool)) * entries));
        columns = reinterpret_cast<int32_t*>(offsets + entries);
        named = reinterpret_cast<bool*>(columns + entries);
        for (int a = 0; a < g.rank; ++a) spans[a] = {0, g.axes[a].extent};
        fill_table(g, job.v.step, spans, astray, offsets);
        lowest = highest = 0;
        for (int64_t code = 0; code < g.elements; ++code) {
            lowest = smaller(lowest, offsets[code]), highest = larger(highest, offsets[code]);
            columns[code] = static_cast<int32_t>(code % axis.extent);
        }
        for (int64_t code = g.elements; code < larger(256, g.elements + 1); ++code) offsets[code] = 0, columns[code] = 0, named[code] = false;
        known[0].length = -1;
        gathers = can_gather && gathers_are_quick() && job.streaming && axis.uniform && axis.stride == 1 && g.inner % lanes == 0 &&
                  g.elements <= most_gathered && lowest >= 0 && highest < INT32_MAX - lanes;
        for (int64_t i = 0; gathers && i < most_gathered; ++i) narrow[i] = i < g.elements ? static_cast<int32_t>(offsets[i]) : 0;
        if (in_registers && axis.uniform && g.inner == 1 && axis.dilation == 1 && axis.extent > 1 &&
            g.elements <= (axis.stride == 1 ? most_rows : most_rows - 2) * axis.extent)
            together = smaller(wide, floor_div(2 * wide - axis.extent, axis.stride) + 1);
        if (together < 8) together = 0;
        row_count = g.elements / axis.extent;
        for (int64_t r = 0; together && r < most_rows; ++r) row_offsets[r] = offsets[smaller(r, row_count - 1) * axis.extent];
        row_inverse = static_cast<uint16_t>(65535 / axis.extent + 1);
        for (int i = 0; i < wide; ++i) along[i] = static_cast<T>(i * axis.stride);
        if (!ahead) return;
        const Axis& rows = g.axes[g.rank - 2];
        Tap* const taps = static_cast<Tap*>(reserve(scratch, 1, sizeof(Tap) * static_cast<size_t>(most_window_taps(g))));
        for (int64_t t = 0; t < row_count; ++t) taps[t] = {offsets[t * axis.extent], 0, 0, 0, t % rows.extent >= rows.extent - rows.stride};
        fresh = FreshRows(g, job.v.step, taps, row_count);
    }

    // Where to write `count` results that belong at `to`.
    POOLGRAD_INLINE T* place(T* to, int64_t count) {
        if (!job.streaming) return to;
        if (held_count > piece || to != held_for + held_count) {
            write_held();
            held = lines.open(0, held_for = to);
        }
        held_count += count;
        return held + held_count - count;
    }

    void write_held() {
        if (held_count > 0) lines.close(held_count);
        held_count = 0;
    }

    // Every code that one byte can hold has an entry. Others beyond the number of elements share the last one.
    POOLGRAD_INLINE int64_t entry(Code code) const {
        if constexpr (sizeof(Code) == 1) return code;
        else return static_cast<uint64_t>(code) < static_cast<uint64_t>(g.elements) ? static_cast<int64_t>(code) : g.elements;
    }

    static POOLGRAD_INLINE bool all_below(const Code* codes, int64_t elements) {
        if (elements > static_cast<int64_t>(static_cast<Code>(-1))) return true;
        return !any_lane(load<Vec<Code, lanes>>(codes) >= static_cast<Code>(elements));
    }

#if defined(__AVX512F__)
    // Vectors of channels, one after the other. Nothing else is stored meanwhile: a gather waits for the stores before it.
    __attribute__((noinline)) void by_gather(T* y, const Code* codes, const T* v, int64_t count) const {
        using Offsets = Vec<int32_t, lanes>;
        const Offsets along = iota<int32_t, lanes>(), a = load<Offsets>(narrow), b = load<Offsets>(narrow + lanes),
                      c = load<Offsets>(narrow + 2 * lanes), d = load<Offsets>(narrow + 3 * lanes);
        const uint32_t elements = static_cast<uint32_t>(g.elements);
        const T* const row = v;
        for (int64_t n; count > 0; count -= n) {
            n = smaller(16 * lanes, count);
            fresh.ask(row + ahead, v - row, n);
#pragma GCC unroll 4
            for (const T* const end = y + n; y < end; y += lanes, codes += lanes, v += lanes) {
                const auto code = convert<uint32_t, lanes>(load<Vec<Code, lanes>>(codes));
                const Offsets low = shuffle(a, b, code & 31), high = shuffle(c, d, code & 31);
                stream_gathered(y, v, ((code & 32) != 0 ? high : low) + along, code, elements);
            }
        }
    }
#endif

    static constexpr int64_t by_axis = 0, by_list = -1;

    // Windows whose origins are `fixed` apart, or as far as the axis says, or listed. Codes that name nothing read what they do not return.
    template <int64_t fixed> POOLGRAD_INLINE void windows(T* y, const Code* codes, const T* v, int64_t count) const {
        const int64_t* const table = offsets;
        const int64_t* const starts = axis.starts + (fixed == by_list ? w0 : 0);
        const int64_t step = fixed > 0 ? fixed : axis.stride, apart = g.inner > 1 ? axis.stride : 1;   // in positions, where vectors hold channels
        const auto at = [&](int64_t f) __attribute__((always_inline)) { return fixed == by_list ? starts[f] : f * step; };
        const int64_t far = ahead;
        const bool joined = fixed != 1 && fresh.together > 1;
        for (int64_t f = 0; f < count; f += lanes) {
            if (count >= lanes) f = smaller(f, count - lanes);   // the last block overlaps the one before
            if (joined) fresh.ask(v + far, at(f), lanes * step);
            else
                for (int t = 0; t < fresh.count; ++t)
                    for (int64_t j = 0; j < apart; ++j) ask_for(v + far + fresh.offset[t] + j * g.inner + at(f), lanes * step);
            if (count >= lanes && all_below(codes + f, g.elements)) {
#pragma GCC unroll 16
                for (int i = 0; i < lanes; ++i) y[f + i] = v[at(f + i) + table[entry(codes[f + i])]];
            } else {
                for (int64_t i = f; i < smaller(f + lanes, count); ++i) {
                    const T value = v[at(i) + table[entry(codes[i])]];
                    y[i] = static_cast<int64_t>(codes[i]) < g.elements ? value : T{};
                }
            }
        }
    }

#if defined(__AVX512BW__)
    template <int n> struct RowNumber {
        static constexpr int value = n;
    };

    // b in the lanes that have `bit`, a in the others.
    template <int bit> static POOLGRAD_INLINE __m512i choose_by_bit(__m512i at, __m512i a, __m512i b) {
        if constexpr (sizeof(T) == 4) return _mm512_mask_blend_epi32(_mm512_test_epi32_mask(at, _mm512_set1_epi32(1 << bit)), a, b);
        else return _mm512_mask_blend_epi16(_mm512_test_epi16_mask(at, _mm512_set1_epi16(static_cast<short>(1 << bit))), a, b);
    }

    // Zero in the lanes whose codes are above the last.
    static POOLGRAD_INLINE __m512i zero_above(__m512i lanes, const Code* codes, uint8_t last) {
        if constexpr (sizeof(T) == 4) {
            const __mmask16 named = _mm_cmple_epu8_mask(load<__m128i>(codes), _mm_set1_epi8(static_cast<char>(last)));
            return _mm512_maskz_mov_epi32(named, lanes);
        } else {
            const __mmask32 named = _mm256_cmple_epu8_mask(load<__m256i>(codes), _mm256_set1_epi8(static_cast<char>(last)));
            return _mm512_maskz_mov_epi16(named, lanes);
        }
    }

    // The quotients of codes, from the inverse of the divisor.
    static POOLGRAD_INLINE Vec<uint16_t, wide> divide(Vec<uint16_t, wide> codes, uint16_t inverse) {
        using V = Vec<uint16_t, wide>;
        if constexpr (wide == 16)
            return reinterpret_cast<V>(_mm256_mulhi_epu16(reinterpret_cast<__m256i>(codes), _mm256_set1_epi16(static_cast<short>(inverse))));
        else return reinterpret_cast<V>(_mm512_mulhi_epu16(reinterpret_cast<__m512i>(codes), _mm512_set1_epi16(static_cast<short>(inverse))));
    }

    // What row(n) gives in the lanes whose bits say n, for as many n from `from` on as there are rows and numbers of `bit + 1` bits.
    template <int count, int from, int bit, class Row> static POOLGRAD_INLINE __m512i choose_row(__m512i at, Row&& row) {
        if constexpr (bit < 0) {
            return row(RowNumber<from>{});
        } else {
            const __m512i low = choose_row<count, from, bit - 1>(at, row);
            if constexpr (from + (1 << bit) >= count) return low;
            else return choose_by_bit<position_bits + bit>(at, low, choose_row<count, from + (1 << bit), bit - 1>(at, row));
        }
    }

    // As many of the windows as possible, some at a time whose elements in a row fit two vectors: every row is looked up in registers.
    template <int count, bool follows> __attribute__((noinline)) int64_t by_rows(T* y, const Code* codes, const T* v, int64_t windows) const {
        const Code* const last_codes = static_cast<const Code*>(job.wanted.end) - wide;
        const T* const last_v = static_cast<const T*>(job.v.end) - 2 * wide - highest;
        const uint8_t last = static_cast<uint8_t>(smaller(g.elements - 1, 255));
        const int64_t most = follows ? wide : together, step = follows ? wide : most * axis.stride;
        const int64_t *const from = row_offsets, far = ahead;
        const FreshRows asked = fresh;   // where no store can change it
        const T* const row = v;
        const Elements steps = along;
        using Narrow = Vec<uint16_t, wide>;
        const uint16_t inverse = row_inverse, apart = static_cast<uint16_t>(2 * wide - axis.extent);
        __m512i left[follows ? count : 1];
        int64_t f = 0;
        const auto fits = [&] { return f < windows && codes + f <= last_codes && v <= last_v; };
        if (follows && fits())
            [&]<int... r>(std::integer_sequence<int, r...>) __attribute__((always_inline)) {
                (..., (left[r] = load<__m512i>(v + from[r])));
            }(std::make_integer_sequence<int, follows ? count : 1>{});
        for (; fits(); f += most, v += step) {
            if (asked.count) asked.ask(row + far, v - row, step);
            const Narrow code = convert<uint16_t, wide>(load<Vec<Code, wide>>(codes + f));
            const Narrow row_and_column = code + divide(code, inverse) * apart;   // in its upper and its lower bits
            const __m512i at = reinterpret_cast<__m512i>(convert<T, wide>(row_and_column) + steps);
            constexpr int bits = count > 8 ? 4 : count > 4 ? 3 : count > 2 ? 2 : count - 1;
            const __m512i chosen = choose_row<count, 0, bits - 1>(at, [&](auto number) __attribute__((always_inline)) {
                constexpr int r = decltype(number)::value;
                const __m512i a = follows ? left[follows ? r : 0] : load<__m512i>(v + from[r]), b = load<__m512i>(v + from[r] + wide);
                if constexpr (follows) left[r] = b;
                if constexpr (sizeof(T) == 4) return _mm512_permutex2var_epi32(a, at, b);
                else return _mm512_permutex2var_epi16(a, at, b);
            });
            const __m512i found = zero_above(chosen, codes + f, last);
            if (f + wide <= windows) store(y + f, found);
            else store_some(y + f, found, smaller(most, windows - f));
        }
        return smaller(f, windows);
    }

    int64_t by_rows(T* y, const Code* codes, const T* v, int64_t windows) const {
        const bool follows = axis.stride == 1 && together == wide;   // what one vector of windows reads last, the next reads first
        const auto with = [&](auto number) {
            constexpr int count = decltype(number)::value;
            return follows ? by_rows<count, true>(y, codes, v, windows) : by_rows<count, false>(y, codes, v, windows);
        };
        if (row_count == 1) return with(RowNumber<1>{});
        if (row_count == 2) return with(RowNumber<2>{});
        if (row_count == 3) return with(RowNumber<3>{});
        if (row_count <= 5) return with(RowNumber<5>{});
        return row_count <= 7 ? with(RowNumber<7>{}) : with(RowNumber<9>{});
    }
#else
    int64_t by_rows(T*, const Code*, const T*, int64_t) const { return 0; }
#endif

    // Whether no code can lead out of the array, not even from a window that is cut short.
    bool safe(const T* first, const T* last) const {
        return (axis.uniform || axis.starts) && first + lowest >= static_cast<const T*>(job.v.begin) &&
               last + highest < static_cast<const T*>(job.v.end);
    }

    // `count` windows, the first of which has its origin at v; or, if they are listed, a row of them that begins there.
    void by_table(T* to, const Code* codes, const T* v, int64_t count) {
        const int64_t inner = g.inner;
        const bool even = axis.stride == 1 || inner == 1;
        if constexpr (can_gather)
            if (gathers) return by_gather(to, codes, v, count);
        if (axis.starts && inner == 1) return windows<by_list>(place(to, count), codes, v, count);
        for (int64_t o = w0, i = 0; axis.starts && o < w1; ++o, i += inner)
            windows<1>(place(to + i, inner), codes + i, v + axis.starts[o] * inner, inner);
        for (int64_t i = 0, n; !axis.starts && i < count; i += n) {
            n = smaller(even ? piece : inner, count - i);
            T* y = place(to + i, n);
            if constexpr (in_registers)
                if (together) {
                    const int64_t done = by_rows(y, codes + i, v + i * axis.stride, n);
                    if (done == n) continue;
                    i += done, n -= done, y += done;
                }
            if (axis.stride == 1 || !even) windows<1>(y, codes + i, v + i * axis.stride, n);
            else if (axis.stride == 2) windows<2>(y, codes + i, v + i * 2, n);
            else windows<by_axis>(y, codes + i, v + i * axis.stride, n);
        }
    }

    // Which codes name elements of this row of windows.
    void know_row() {
        bool same = known[0].length >= 0;
        for (int a = 0; a < g.rank - 1; ++a) same = same && spans[a].first == known[a].first && spans[a].length == known[a].length;
        if (same) return;
        for (int a = 0; a < g.rank; ++a) known[a] = spans[a];
        spans[g.rank - 1] = {0, axis.extent};
        int64_t local_at[max_axes];
        for (int64_t code = 0; code < g.elements; ++code) named[code] = decode(g, spans, static_cast<uint64_t>(code), local_at);
    }

    // The windows of a row that no code leads out of the array from; the origins of its ends lie around `first` and `last`.
    Span safe_windows(const T* first, const T* last) const {
        if (safe(first, last)) return {w0, w1 - w0};
        if (!axis.uniform) return {w0, 0};
        const int64_t step = axis.stride * g.inner;
        const int64_t before = ceil_div(larger(0, static_cast<const T*>(job.v.begin) - (first + lowest)), step);
        const int64_t behind = ceil_div(larger(0, last + highest + 1 - static_cast<const T*>(job.v.end)), step);
        return {smaller(w0 + before, w1), larger(0, w1 - w0 - before - behind)};
    }

    // The same for windows [from, end) that are not alike, or where nothing may be read that is not theirs.
    void with_care(T* y, const Code* codes, const T* v, int64_t from, int64_t end) {
        if (from >= end) return;
        know_row();
        y = place(y + (from - w0) * g.inner, (end - from) * g.inner);
        codes += (from - w0) * g.inner;
        for (int64_t o = from; o < end; ++o) {
            const Span s = span(axis, o);
            const T* const begin = v + origin(axis, o) * g.inner;
            for (int64_t c = 0; c < g.inner; ++c, ++y, ++codes) {
                const int64_t at = entry(*codes);
                const bool real = named[at] && static_cast<uint64_t>(columns[at] - s.first) < static_cast<uint64_t>(s.length);
                *y = real ? begin[c + offsets[at]] : T{};
            }
        }
    }

    void by_decoding(T* y, const Code* codes, const T* v) {
        int64_t local_at[max_axes];
        for (int64_t o = w0; o < w1; ++o) {
            spans[g.rank - 1] = span(axis, o);
            const T* from = v + origin(axis, o) * g.inner;
            for (int64_t c = 0; c < g.inner; ++c, ++y, ++codes) {
                T value{};
                if (decode(g, spans, *codes, local_at)) {
                    int64_t offset = c;
                    for (int a = 0; a < g.rank; ++a) offset += local_at[a] * g.axes[a].dilation * job.v.step[a];
                    value = from[offset];
                }
                *y = value;
            }
        }
    }

    // `count` rows of windows that are neighbours on the axis before the last.
    void rows(int64_t n, const RowWalk& walk, int64_t count) {
        const int64_t inner = g.inner, elements = (w1 - w0) * inner;
        int64_t base = 0;
        for (int a = 0; a < g.rank - 1; ++a) base += origin(g.axes[a], walk.at[a]) * job.v.step[a];
        T* to = static_cast<T*>(job.y.data) + row_offset(job.y, n, walk, g.rank) + w0 * inner;
        const Code* codes = static_cast<const Code*>(job.wanted.data) + row_offset(job.wanted, n, walk, g.rank) + w0 * inner;
        const T* const v = static_cast<const T*>(job.v.data) + outer_offset(job.v, n) + base;
        const T* first = axis.starts ? v : v + (w0 * axis.stride - axis.before) * inner;
        const T* const last = axis.starts ? v + axis.size * inner - 1 : first + (w1 - w0 - 1) * axis.stride * inner + inner - 1;
        if (count > 1) {
            const int a = g.rank - 2;
            const int64_t v_step = g.axes[a].stride * job.v.step[a], y_step = job.y.step[a], code_step = job.wanted.step[a];
            if (tabled<Code> && offsets && g.axes[a].uniform && safe(first, last) &&
                safe(first + (count - 1) * v_step, last + (count - 1) * v_step)) {
                // With strides of one, rows as long as those of the input are like a single row.
                if (!axis.starts && axis.stride == 1 && v_step == elements && y_step == elements && code_step == elements)
                    return by_table(to, codes, first, count * elements);
                for (int64_t i = 0; i < count; ++i, to += y_step, codes += code_step, first += v_step) by_table(to, codes, first, elements);
            } else {
                RowWalk each = walk;
                for (int64_t i = 0; i < count; ++i, ++each.at[a]) rows(n, each, 1);
            }
            return;
        }
        for (int a = 0; a < g.rank - 1; ++a) spans[a] = span(g.axes[a], walk.at[a]);
        if (!tabled<Code> || !offsets) return by_decoding(place(to, elements), codes, v);
        const Span table = safe_windows(first, last);
        const int64_t skipped = (table.first - w0) * inner;
        with_care(to, codes, v, w0, table.first);
        if (table.length > 0) by_table(to + skipped, codes + skipped, first + skipped * axis.stride, table.length * inner);
        with_care(to, codes, v, table.first + table.length, w1);
    }
};

template <class T, class Code> void take_run(const Scan& job, const Box& box, Scratch& scratch) {
    RowWalk walk;
    const int rank = job.geometry->rank;
    if (!first_row(box, rank, walk)) return;
    CodedTake<T, Code> take(job, box, scratch);
    const int64_t count = rank > 1 ? box.high[rank - 2] - box.low[rank - 2] : 1;
    Box heads = box;   // the first of `count` rows each
    if (rank > 1) heads.high[rank - 2] = box.low[rank - 2] + 1;
    for (int64_t n = box.n; n < box.n_end; ++n) {
        first_row(heads, rank, walk);
        do take.rows(n, walk, count);
        while (next_row(heads, rank, walk));
    }
    take.write_held();
}

// ---- put ------------------------------------------------------------------------------------------------------------

template <class E, class Code> struct CodedPut {
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    static constexpr int64_t kept_bytes = int64_t{1} << 19;
    static constexpr int64_t fewest_channels = 64 / sizeof(Sum);
    static constexpr int most_images = 3;   // as there are registers for
    static constexpr int64_t long_runs = 16;   // windows that an element lies in, along a row

    const Put& job;
    const Geometry& g;
    const Axis& axis;
    const Box& box;
    Box outputs;                  // the windows that reach into the box
    int64_t low, high;            // of the last axis, those that do not cross a border between boxes
    Span uncut[max_axes];         // the origins of windows that lie in the box, as far as they lie in the array
    int64_t images;               // that are worked on at once,
    int64_t channels;             // channels,
    int64_t rows;                 // and positions on the first axis: sums before the origin of a window are finished
    int64_t channel, begin;       // the first of them
    int64_t step[max_axes];       // of the sums
    int64_t total;                // sums of an image
    int64_t astray;               // from any window to a place that nobody reads
    const Sum kept_sum;           // see after
    bool joinable;                // see joins
    Sum* sums;
    int64_t *inside, *at_border;  // tables: of windows whose rows all lie in the box, and of those where only `kept` do
    Span kept[max_axes];

    CodedPut(const Put& job, const Box& box, Scratch& scratch)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          box(box),
          kept_sum(kept_by_put<Sum>(job.assign)),
          inside(nullptr),
          at_border(nullptr) {
        const int last = g.rank - 1;
        int64_t row = 1;   // elements of a channel at one position on the first axis
        for (int a = last; a >= 0; --a) {
            const int64_t first = box.low[a] > 0 ? box.low[a] : -g.axes[a].size;
            const int64_t behind = box.high[a] < g.axes[a].size ? box.high[a] - (g.axes[a].extent - 1) * g.axes[a].dilation : g.axes[a].size;
            uncut[a] = {first, larger(0, behind - first)};
            if (a > 0) row *= box.high[a] - box.low[a];
            outputs.low[a] = cover(g.axes[a], box.low[a]).first;
            outputs.high[a] = larger(outputs.low[a], cover(g.axes[a], box.high[a] - 1).last);
        }
        // As many channels as leave room for some windows one after the other, and as many positions as there is room for.
        const int64_t size = box.high[0] - box.low[0], reach = g.rank > 1 ? (g.axes[0].extent - 1) * g.axes[0].dilation + 1 : size;
        const int64_t room = kept_bytes / static_cast<int64_t>(sizeof(Sum));
        channels = g.inner;
        while (channels >= 2 * fewest_channels && smaller(size, 3 * reach) * row * channels > room)
            channels = ceil_div(channels, 2 * fewest_channels) * fewest_channels;
        rows = size * row * channels <= 2 * room ? size : smaller(size, larger(2 * reach, room / (row * channels)));
        images = axis.uniform && g.inner == 1 && rows == size && axis.extent > 3 * axis.stride ? smaller(most_images, box.n_end - box.n) : 1;
        total = channels;
        for (int a = last; a >= 0; --a) {
            step[a] = total;
            total *= a > 0 ? box.high[a] - box.low[a] : rows;
        }
        const bool cut_low = box.low[last] > 0, cut_high = box.high[last] < axis.size;
        low = outputs.low[last], high = outputs.high[last];
        while (cut_low && low < high && origin(axis, low) < box.low[last]) ++low;
        while (cut_high && low < high && origin(axis, high - 1) + (axis.extent - 1) * axis.dilation >= box.high[last]) --high;
        joinable = joins();
        // Codes that change while they are read may point a window's length out of the row, but not out of this memory.
        const int64_t margin = (2 * axis.size + axis.extent * axis.dilation) * channels;
        int64_t reach_out = 0;   // how far windows begin before the box, or end behind it
        for (int a = 0; a < last; ++a) reach_out += g.axes[a].extent * g.axes[a].dilation * step[a];
        const bool tables = tabled<Code> && g.elements <= table_entries;
        const int64_t around = tables ? ceil_div(margin + reach_out, 64) * 64 : 0;   // sums begin on a cache line
        astray = images * total + around;
        const int64_t memory = around + images * total + (tables ? images * total + 2 * around : 0);
        sums = static_cast<Sum*>(reserve(scratch, 0, sizeof(Sum) * static_cast<size_t>(memory))) + around;
        if (!tables) return;
        inside = static_cast<int64_t*>(reserve(scratch, 1, sizeof(int64_t) * 2 * (table_entries + 1)));
        at_border = inside + table_entries + 1;
        for (int a = 0; a < g.rank; ++a) kept[a] = {0, g.axes[a].extent};
        fill_bytes(inside);
        // Codes that name nothing have entries too.
        for (int64_t n = g.elements; n < larger(257, g.elements + 1); ++n) inside[n] = at_border[n] = astray * static_cast<int64_t>(sizeof(Sum));
        kept[0].length = -1;   // no table of a border yet
    }

    // In bytes, so that no shift is left for those who look up.
    void fill_bytes(int64_t* table) const {
        fill_table(g, step, kept, astray, table);
        for (int64_t n = 0; n < g.elements; ++n) table[n] *= static_cast<int64_t>(sizeof(Sum));
    }

    // The table of a row of windows, of whose local positions only `real` are in the box.
    const int64_t* table_of(const Span* real) {
        bool known = true, all = true;
        for (int a = 0; a < g.rank - 1; ++a) {
            all = all && real[a].length == g.axes[a].extent;
            known = known && real[a].first == kept[a].first && real[a].length == kept[a].length;
        }
        if (all) return inside;
        if (!known) {
            for (int a = 0; a < g.rank - 1; ++a) kept[a] = real[a];
            fill_bytes(at_border);
        }
        return at_border;
    }

    POOLGRAD_INLINE void add(Sum& sum, Stored value) const {
        const Sum wide = E::widen_one(value);
        sum = after(sum, wide, kept_sum);
    }

    // Where a code points from the origin of its window. Every code that one byte can hold has an entry. Others beyond the number of
    // elements share the last one.
    static POOLGRAD_INLINE Sum& sum_of(Sum* window, const int64_t* table, int64_t none, Code code) {
        const int64_t entry = sizeof(Code) == 1 ? static_cast<int64_t>(code) : smaller(static_cast<int64_t>(code), none);
        return *reinterpret_cast<Sum*>(reinterpret_cast<char*>(window) + table[entry]);
    }

    // A row of windows of some images: their codes and gradients, and where position 0 of the row would have its sum.
    struct Row {
        const Code* codes;
        const Stored* grads;
        Sum* to;
    };

    // Neighbours often choose the same element and have to wait for each other's sums; those of other images need not. With `in_runs`
    // many do, one after the other, and their sum stays in a register.
    template <int count, bool in_runs> __attribute__((noinline)) void by_table(const Row* row, const int64_t* table, int64_t windows) const {
        const int64_t none = g.elements, stride = axis.stride, image = total;
        const Code* codes[count];
        const Stored* grads[count];
        Sum *to = row[0].to + low * stride - axis.before, *chosen[count], sum[count], unchosen{};
        for (int u = 0; u < count; ++u) {
            codes[u] = row[u].codes + low, grads[u] = row[u].grads + low;
            chosen[u] = &unchosen, sum[u] = Sum{};
        }
        int64_t o = 0;
        if constexpr (sizeof(Code) == 1 && !in_runs)
            for (; o + 8 <= windows; o += 8) {   // one load for eight codes, the first of them lowest
                uint64_t some[count];
                for (int u = 0; u < count; ++u) some[u] = load<uint64_t>(codes[u] + o);
#pragma GCC unroll 8
                for (int i = 0; i < 8; ++i, to += stride)
                    for (int u = 0; u < count; ++u, some[u - 1] >>= 8)
                        add(sum_of(to + u * image, table, none, static_cast<Code>(some[u])), grads[u][o + i]);
            }
        for (; o < windows; ++o, to += stride)
            for (int u = 0; u < count; ++u) {
                Sum& here = sum_of(to + u * image, table, none, codes[u][o]);
                if constexpr (in_runs) {
                    if (&here != chosen[u]) {
                        *chosen[u] = sum[u];
                        chosen[u] = &here, sum[u] = here;
                    }
                    add(sum[u], grads[u][o]);
                } else {
                    add(here, grads[u][o]);
                }
            }
        for (int u = 0; in_runs && u < count; ++u) *chosen[u] = sum[u];
    }

    __attribute__((noinline)) void of_channels(const Row& row, const int64_t* table) const {
        const int64_t none = g.elements, end = high, count = channels;
        const bool strided = count < g.inner;
        for (int64_t o = low; o < end; ++o) {
            Sum* at = row.to + origin(axis, o) * count;
            const Code* const codes = row.codes + o * g.inner;
            const Stored* const grads = row.grads + o * g.inner;
            if (strided) {   // what comes next does not follow in memory
                ask_for(codes + 8 * g.inner, channels);
                ask_for(grads + 8 * g.inner, channels);
            }
            int64_t c = 0;
            for (; sizeof(Code) == 1 && c + 8 <= count; c += 8, at += 8) {   // one load for eight codes, the first of them lowest
                uint64_t some = load<uint64_t>(codes + c);
#pragma GCC unroll 8
                for (int i = 0; i < 8; ++i, some >>= 8) add(sum_of(at + i, table, none, static_cast<Code>(some)), grads[c + i]);
            }
            for (; c < count; ++c, ++at) add(sum_of(at, table, none, codes[c]), grads[c]);
        }
    }

    void by_decoding(const Row& row, Span* spans, const int64_t* at, int64_t from, int64_t end) const {
        const int last = g.rank - 1;
        int64_t local_at[max_axes];
        for (int64_t o = from; o < end; ++o) {
            spans[last] = span(axis, o);
            for (int64_t c = 0; c < channels; ++c) {
                if (!decode(g, spans, row.codes[o * g.inner + c], local_at)) continue;
                int64_t offset = origin(axis, o) * channels + c;
                bool in_box = true;
                for (int a = 0; a <= last; ++a) {
                    const int64_t distance = local_at[a] * g.axes[a].dilation;
                    const int64_t position = origin(g.axes[a], a < last ? at[a] : o) + distance;
                    in_box = in_box && position >= box.low[a] && position < box.high[a];
                    offset += distance * step[a];
                }
                if (in_box) add(row.to[offset], row.grads[o * g.inner + c]);
            }
        }
    }

    // With `joined`, that many rows of windows that lie together.
    void follow(const Row* rows, int64_t count, const int64_t* table, int64_t joined = 1) const {
        if (!axis.uniform || g.inner > 1) return of_channels(rows[0], table);
        const int64_t windows = joined * (high - low);
        const auto of_some = [&](auto in_runs) {
            if (count == 1) by_table<1, in_runs()>(rows, table, windows);
            else if (count == 2) by_table<2, in_runs()>(rows, table, windows);
            else by_table<most_images, in_runs()>(rows, table, windows);
        };
        if (axis.extent >= long_runs * axis.stride) of_some([] { return true; });
        else of_some([] { return false; });
    }

    // Windows of which some elements may lie in other boxes.
    __attribute__((noinline)) void cut_row(const Row* rows, int64_t count, const RowWalk& walk) {
        const int last = g.rank - 1;
        Span spans[max_axes], in_box[max_axes];
        bool all_inside = true;
        for (int a = 0; a < last; ++a) {
            const Axis& other = g.axes[a];
            const int64_t start = origin(other, walk.at[a]), d = other.dilation;
            spans[a] = span(other, walk.at[a]);
            const bool cut_low = start < uncut[a].first, cut_high = box.high[a] < other.size && start + (other.extent - 1) * d >= box.high[a];
            const int64_t first = cut_low ? (box.low[a] - start + d - 1) / d : 0;
            const int64_t behind = cut_high ? smaller(other.extent, larger(0, box.high[a] - start + d - 1) / d) : other.extent;
            in_box[a] = {first, larger(0, behind - first)};
            all_inside = all_inside && in_box[a].length == other.extent;
        }
        const auto decode_all = [&](int64_t from, int64_t end) {
            for (int64_t u = 0; from < end && u < count; ++u) by_decoding(rows[u], spans, walk.at, from, end);
        };
        const bool short_row = g.elements > (high - low) * g.inner;   // a table of its own would not pay
        if (!tabled<Code> || !inside || (!all_inside && short_row)) return decode_all(outputs.low[last], outputs.high[last]);
        decode_all(outputs.low[last], low);
        follow(rows, count, table_of(in_box));
        decode_all(high, outputs.high[last]);
    }

    // With strides of one, rows of windows as long as those of the elements are like a single row.
    bool joins() const {
        const int last = g.rank - 1;
        if (last == 0 || g.inner > 1 || !axis.uniform || axis.stride != 1 || g.axes[last - 1].stride != 1 || rows < box.high[0] - box.low[0])
            return false;
        const int64_t length = high - low;
        return low == outputs.low[last] && high == outputs.high[last] && g.axes[last - 1].uniform && step[last - 1] == length &&
               job.code.step[last - 1] == length && job.g.step[last - 1] == length;
    }

    // The same row of windows of `count` images, and those below that are like it. Returns how many.
    int64_t row(int64_t n, int64_t count, const RowWalk& walk) {
        const int last = g.rank - 1;
        int64_t base = -(last > 0 ? box.low[last] : begin) * channels;
        bool whole = low == outputs.low[last] && high == outputs.high[last];
        for (int a = 0; a < last; ++a) {
            const int64_t start = origin(g.axes[a], walk.at[a]);
            base += (start - (a > 0 ? box.low[a] : begin)) * step[a];
            whole = whole && static_cast<uint64_t>(start - uncut[a].first) < static_cast<uint64_t>(uncut[a].length);
        }
        Row rows[most_images];
        for (int64_t u = 0; u < count; ++u)
            rows[u] = {static_cast<const Code*>(job.code.data) + row_offset(job.code, n + u, walk, g.rank) + channel,
                       static_cast<const Stored*>(job.g.data) + row_offset(job.g, n + u, walk, g.rank) + channel, sums + u * total + base};
        if (tabled<Code> && inside && whole) {
            const int above = last - 1;
            const int64_t joined = joinable ? smaller(outputs.high[above] - walk.at[above],
                                                      uncut[above].first + uncut[above].length - origin(g.axes[above], walk.at[above]))
                                            : 1;
            follow(rows, count, inside, joined);
            return joined;
        }
        cut_row(rows, count, walk);
        return 1;
    }

    // The finished sums of an image up to a position on the first axis, in runs that lie together.
    void write(int64_t n, const Sum* from, int64_t end) const {
        const bool some = channels < g.inner;
        int axes = g.rank - 1;   // those before the run
        while (!some && axes > 0 && box.low[axes] == 0 && box.high[axes] == g.axes[axes].size) --axes;
        Box runs = box;
        runs.low[0] = begin, runs.high[0] = end;
        const int64_t size = step[axes] * (runs.high[axes] - runs.low[axes]), run = some ? channels : size;
        for (int a = axes; a < g.rank; ++a) runs.high[a] = runs.low[a] + 1;
        RowWalk walk;
        if (!first_row(runs, g.rank, walk)) return;
        do {
            int64_t to = outer_offset(job.gx, n) + channel;
            for (int a = 0; a < g.rank; ++a) to += walk.at[a] * job.gx.step[a];
            for (int64_t i = 0; i < size; i += run, from += run, to += g.inner) write_sums(static_cast<Stored*>(job.gx.data) + to, from, run);
        } while (next_row(runs, g.rank, walk));
    }

    void write_sums(Stored* to, const Sum* from, int64_t count) const {
        if constexpr (__is_same(Stored, Sum)) {
            write_row(to, from, count, job.streaming);
        } else {
            constexpr int lanes = E::lanes;
            int64_t i = 0;
            for (; i + lanes <= count; i += lanes) store(to + i, E::narrow_lanes(load<typename E::Sums>(from + i)));
            for (; i < count; ++i) to[i] = E::narrow_one(from[i]);
        }
    }

    // Goes on to windows that begin at `start`: all before it is finished.
    void advance(int64_t n, int64_t start) {
        while (begin < start) {
            const int64_t end = smaller(start, begin + rows), finished = (end - begin) * step[0];
            write(n, sums, end);
            __builtin_memmove(static_cast<void*>(sums), sums + finished, sizeof(Sum) * static_cast<size_t>(total - finished));
            __builtin_memset(static_cast<void*>(sums + total - finished), 0, sizeof(Sum) * static_cast<size_t>(finished));
            begin = end;
        }
    }

    void some_images(int64_t n, int64_t count) {
        const Axis& first = g.axes[0];
        const int64_t reach = (first.extent - 1) * first.dilation;
        begin = box.low[0];
        __builtin_memset(static_cast<void*>(sums), 0, sizeof(Sum) * static_cast<size_t>(count * total));
        RowWalk walk;
        if (first_row(outputs, g.rank, walk)) {
            do {
                const int64_t start = origin(first, walk.at[0]);
                if (smaller(start + reach, box.high[0] - 1) >= begin + rows) advance(n, smaller(start, box.high[0]));
                const int64_t done = row(n, count, walk);
                if (done > 1) walk.at[g.rank - 2] += done - 1;
            } while (next_row(outputs, g.rank, walk));
        }
        advance(n, box.high[0] - rows);
        for (int64_t u = 0; u < count; ++u) write(n + u, sums + u * total, box.high[0]);
    }

    void run() {
        for (int64_t n = box.n; n < box.n_end; n += images)
            for (int64_t c = 0; c < g.inner; c += channels) {
                channel = smaller(c, g.inner - channels);   // the last ones overlap those before
                some_images(n, smaller(images, box.n_end - n));
            }
        if (job.streaming) stream_fence();
    }
};

// Calls f with a value of the type that codes are stored in.
template <class F> POOLGRAD_INLINE void with_code(int width, F&& f) {
    switch (width) {
        case 1: return f(uint8_t{});
        case 2: return f(uint16_t{});
        case 4: return f(uint32_t{});
        default: return f(uint64_t{});
    }
}

}  // namespace

void POOLGRAD_KERNEL(take_coded)(const Scan& job, const Box& box, Scratch& scratch) {
    with_code(job.code_width, [&](auto code) {
        using Code = decltype(code);
        switch (dtype_bytes(job.type)) {
            case 1: return take_run<uint8_t, Code>(job, box, scratch);
            case 2: return take_run<uint16_t, Code>(job, box, scratch);
            case 4: return take_run<uint32_t, Code>(job, box, scratch);
            default: return take_run<uint64_t, Code>(job, box, scratch);
        }
    });
}

void POOLGRAD_KERNEL(put_coded)(const Put& job, const Box& box, Scratch& scratch) {
    with_code(job.code_width, [&](auto code) {
        with_put_sum(job.type, job.assign, [&](auto element) { CodedPut<decltype(element), decltype(code)>(job, box, scratch).run(); });
    });
}

}  // namespace poolgrad
