// put for planes with windows of 3 x 3 elements, one or two apart: which windows may have chosen an element is known when this is compiled.
// Rows of windows are kept in the first cache with room on both sides, so that nothing is different at the borders. With AVX-512 codes
// are compared as bytes, which nothing else can use for wider lanes. With AVX2 they are widened once for all elements that a window may have chosen.
#pragma once

#include <utility>

#include "gather.hpp"
#include "kernels.hpp"

namespace poolgrad {
namespace {

// E says how elements are added up; windows are S apart on the last two axes.
template <class E, int S> struct Threes {
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;
    using Sums = typename E::Sums;
    static constexpr int lanes = E::lanes;
    static constexpr int reach = 2 / S;         // windows before its own that an element may lie in
    static constexpr int made = 2;              // rows of elements at a time,
    static constexpr int step = made / S;       // and rows of windows from one time to the next
    static constexpr int kept = 4 * step;       // rows of windows: those that are read, and the next ones
    static constexpr int most_planes = 2;       // of windows that a plane of elements lies in;
    static constexpr bool crosses_planes = S == 2 && __is_same(Stored, float);   // elsewhere following codes is quicker than two of them
    static constexpr uint8_t none = 255;        // no element has this code
    static constexpr int64_t joined_bytes = int64_t{1} << 13, least_joined = 16;   // bytes and rows that are done together where they are joined

    const Put& job;
    const Geometry& g;
    const Axis &down, &along;
    const Box& box;
    const Cover rows;          // of windows that reach into the box,
    const Cover columns;       // and of windows in them
    int64_t first, count;      // those that the vectors are made for
    int64_t pitch;             // of kept rows
    int64_t planes;            // of windows: where they are, if there are any, and what they add to a code
    const Stored* grad[most_planes];
    const uint8_t* code[most_planes];
    uint8_t base[most_planes];
    Sum* sums;                 // kept rows, one plane after the other
    uint8_t* codes;
    Stored* room;              // for results
    int64_t width, most;       // columns, and how many rows of them there is room for

    Threes(const Put& job, const Box& box, Scratch& scratch)
        : job(job),
          g(*job.geometry),
          down(g.axes[g.rank - 2]),
          along(g.axes[g.rank - 1]),
          box(box),
          rows{cover(down, box.low[g.rank - 2]).first, cover(down, box.high[g.rank - 2] - 1).last},
          columns{cover(along, box.low[g.rank - 1]).first, cover(along, box.high[g.rank - 1] - 1).last} {
        const int last = g.rank - 1;
        first = floor_div(box.low[last] + along.before, S);
        count = floor_div(box.high[last] - 1 + along.before, S) + 1 - first;
        pitch = ceil_div(larger(count, lanes) + 2 * lanes, 64) * 64;
        width = box.high[last] - box.low[last];
        const int64_t row = width * static_cast<int64_t>(sizeof(Stored));
        most = joins() ? larger(least_joined, joined_bytes / row) : larger(made, threes_together / row);
        const int64_t in_lines = rows_in_lines(width * static_cast<int64_t>(sizeof(Stored)));
        if (in_lines <= most) most -= most % in_lines;
        const size_t kept_codes = static_cast<size_t>(most_planes * kept * pitch), spare = static_cast<size_t>(made * larger(count, lanes) * S);
        sums = static_cast<Sum*>(reserve(scratch, 0, kept_codes * sizeof(Sum)));
        codes = static_cast<uint8_t*>(reserve(scratch, 1, kept_codes));
        room = static_cast<Stored*>(reserve(scratch, 2, (static_cast<size_t>(most * width) + spare) * sizeof(Stored)));
        __builtin_memset(codes, none, kept_codes);
    }

    // The planes of windows that contain the plane of elements at `at`, in ascending order.
    void find_planes(int64_t n, const RowWalk& at) {
        grad[0] = static_cast<const Stored*>(job.g.data) + outer_offset(job.g, n);
        code[0] = static_cast<const uint8_t*>(job.code.data) + outer_offset(job.code, n);
        base[0] = 0, planes = 1;
        for (int a = 0; a < g.rank - 2; ++a) {
            const Axis& axis = g.axes[a];
            const Cover windows = cover(axis, at.at[a]);
            int64_t hits = 0;
            for (int64_t o = windows.first; o < windows.last; ++o) hits += contains(axis, o, at.at[a]);
            for (int64_t m = planes - 1; m >= 0; --m) {   // from the back, so that the list can grow in place
                const Stored* const from = grad[m];
                const uint8_t *const from_code = code[m], from_base = base[m];
                int64_t to = (m + 1) * hits;
                for (int64_t o = windows.last - 1; o >= windows.first; --o) {
                    if (!contains(axis, o, at.at[a])) continue;
                    --to;
                    grad[to] = from + o * job.g.step[a], code[to] = from_code + o * job.code.step[a];
                    base[to] = static_cast<uint8_t>(from_base + local(axis, o, at.at[a]) * g.code_step[a]);
                }
            }
            planes *= hits;
        }
        if (planes == 0) code[0] = nullptr, planes = 1;   // nothing is chosen
    }

    POOLGRAD_INLINE int64_t place(int64_t plane, int64_t r) const { return (plane * kept + (r & (kept - 1))) * pitch; }

    // Keeps row r of the windows. Where there are none, nothing is chosen.
    void keep(int64_t r) {
        const int a = g.rank - 2;
        const int64_t n = columns.last - columns.first, to = columns.first - first + lanes;
        for (int64_t m = 0; m < planes; ++m) {
            uint8_t* const c = codes + place(m, r) + to;
            Sum* const s = sums + place(m, r) + to;
            if (!code[m] || r < rows.first || r >= rows.last) {
                __builtin_memset(c, none, static_cast<size_t>(n));
                continue;
            }
            const uint8_t* const from_code = code[m] + r * job.code.step[a] + columns.first;
            const Stored* const from = grad[m] + r * job.g.step[a] + columns.first;
            for (int64_t i = 0; n < lanes && i < n; ++i) s[i] = E::widen_one(from[i]), c[i] = from_code[i];
            for (int64_t i = 0; n >= lanes && i < n; i += lanes) {
                i = smaller(i, n - lanes);   // the last vectors overlap those before
                store(s + i, E::widen_lanes(from + i));
                store(c + i, load<Vec<uint8_t, lanes>>(from_code + i));
            }
        }
    }

    // The sums `before` places to the left of p: whole vectors are read quicker where they begin with a line.
    template <int before> static POOLGRAD_INLINE Sums load_before(const Sum* p) {
        if constexpr (before == 0 || vector_bytes < 64) return load<Sums>(p - before);   // half as wide, it is not
        return [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
            return __builtin_shufflevector(load<Sums>(p - lanes), load<Sums>(p), (lanes - before + i)...);
        }(std::make_integer_sequence<int, lanes>{});
    }

#if defined(__AVX512BW__)
    using Codes = __m128i;

    static POOLGRAD_INLINE __m128i codes_at(const uint8_t* p) {
        if constexpr (lanes == 16) return load<__m128i>(p);
        else return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    }

    // The codes before p, where there are none, and from p on; and from p on, those behind the last of a vector.
    static POOLGRAD_INLINE Codes codes_from(const uint8_t* p) {
        return _mm_mask_loadu_epi8(_mm_set1_epi8(static_cast<char>(none)), 0xfffe & ((1 << lanes) - 1), p - 1);
    }
    static POOLGRAD_INLINE Codes codes_behind(const uint8_t* p) {
        return _mm_mask_loadu_epi8(_mm_set1_epi8(static_cast<char>(none)), (1 << (lanes - 1)) - 1, p + 1);
    }

    // Adds to the sums where the code is the wanted one.
    static POOLGRAD_INLINE Sums add_where(Sums sum, __m128i codes, int wanted, Sums value) {
        const __mmask16 hit = _mm_cmpeq_epi8_mask(codes, _mm_set1_epi8(static_cast<char>(wanted)));
        if constexpr (lanes == 16) {
            const __m512 s = reinterpret_cast<__m512>(sum);
            return reinterpret_cast<Sums>(_mm512_mask_add_ps(s, hit, s, reinterpret_cast<__m512>(value)));
        } else {
            const __m512d s = reinterpret_cast<__m512d>(sum);
            return reinterpret_cast<Sums>(_mm512_mask_add_pd(s, static_cast<__mmask8>(hit), s, reinterpret_cast<__m512d>(value)));
        }
    }
#else
    using Bytes = std::conditional_t<lanes == 8, uint64_t, uint32_t>;
    using Lane = typename IntOf<sizeof(Sum)>::natural;
    using Codes = Vec<Lane, lanes>;

    static POOLGRAD_INLINE Codes widened(Bytes codes) { return convert<Lane, lanes>(reinterpret_cast<Vec<uint8_t, lanes>>(codes)); }
    static POOLGRAD_INLINE Codes codes_at(const uint8_t* p) { return widened(load<Bytes>(p)); }
    static POOLGRAD_INLINE Codes codes_from(const uint8_t* p) { return widened(load<Bytes>(p) << 8 | none); }
    static POOLGRAD_INLINE Codes codes_behind(const uint8_t* p) { return widened(load<Bytes>(p) >> 8 | Bytes{none} << 8 * (lanes - 1)); }

    static POOLGRAD_INLINE Sums add_where(Sums sum, Codes codes, int wanted, Sums value) {
        return poolgrad::add_where(sum, codes == splat<Lane, lanes>(static_cast<Lane>(wanted)), value);
    }
#endif

    // Two rows of elements, in all columns, of which the first begins the windows of row r.
    template <int all> __attribute__((noinline)) void two_rows(int64_t r, Stored* const (&to)[made]) const {
        const int64_t end = count, apart = kept * pitch;
        constexpr int read = reach + step;   // rows of windows
        const Sum* s[read];
        const uint8_t* c[read];
        for (int d = 0; d < read; ++d) s[d] = sums + place(0, r - reach + d) + lanes, c[d] = codes + place(0, r - reach + d) + lanes;
        uint8_t bases[all];
        for (int m = 0; m < all; ++m) bases[m] = base[m];
        for (int64_t f = 0; f < end; f += lanes) {
            f = smaller(f, larger(0, end - lanes));   // the last vectors overlap those before
            Sums sum[made][S] = {};                   // by the phase of the column
#pragma GCC unroll 2
            for (int m = 0; m < all; ++m)
#pragma GCC unroll 4
                for (int d = 0; d < read; ++d)
                    [&]<int... left>(std::integer_sequence<int, left...>) __attribute__((always_inline)) {
                        (..., [&] __attribute__((always_inline)) {
                            constexpr int i = 2 - left, before = i / S;   // the column of the window that these columns of elements are
                            const int64_t at = m * apart + f;
                            const Sums value = load_before<before>(s[d] + at);
                            for (int u = 0; u < made; ++u) {
                                const int j = u + S * (reach - d);   // and the row
                                if (j < 0 || j > 2) continue;
                                Sums& mine = sum[u][i % S];
                                mine = add_where(mine, codes_at(c[d] + at - before), bases[m] + 3 * j + i, value);
                            }
                        }());
                    }(std::make_integer_sequence<int, 3>{});
            for (int u = 0; u < made; ++u)
                if constexpr (S == 1) store(to[u] + f, E::narrow_lanes(sum[u][0]));
                else if constexpr (__is_same(E, BrainSum)) E::template store_pairs<lanes>(to[u] + 2 * f, sum[u][0], sum[u][1]);
                else store_interleaved<Stored, lanes>(to[u] + 2 * f, E::narrow_lanes(sum[u][0]), E::narrow_lanes(sum[u][1]));
        }
    }

    // Whether a window begins one before every element, and rows follow one another: then they are as good as one long row. Its windows read
    // beyond the ends of rows, where they have padding and chose nothing. (Of rows as long as a vector both vectors would reach over both ends.)
    bool joins() const {
        return S == 1 && around_all(g) && width == along.size && width > lanes && job.g.step[0] == width && job.code.step[0] == width &&
               job.gx.step[0] == width;
    }

    // Some rows of elements in two vectors of columns from `column` on. Each row of windows is added to the row of elements above it, which is
    // finished then, to its own and to the one below. Beyond the ends of the windows [rows.first, rows.last) nothing is read.
    __attribute__((noinline)) void go_down(const Stored* given, const uint8_t* chosen, int64_t row, int64_t count, int64_t column, Stored* to) const {
        const int64_t length = width, before = rows.first, end = smaller(rows.last, row + count + 1), asked = count * (length + column);
        const int64_t apart = smaller(lanes, length - lanes);   // the second vector may overlap the first
        const bool at_left = column == 0, at_right = column + apart + lanes == length;
        Sums sum[3][2] = {};
        const auto turn = [&]() __attribute__((always_inline)) {
            for (int u = 0; u < 2; ++u) sum[0][u] = sum[1][u], sum[1][u] = sum[2][u], sum[2][u] = Sums{};
        };
        const auto meet = [&](int64_t r) __attribute__((always_inline)) {
            const Stored* const g = given + r * length + column;
            const uint8_t* const c = chosen + r * length + column;
#pragma GCC unroll 3
            for (int d = 0; d < 3; ++d)
#pragma GCC unroll 2
                for (int u = 0; u < 2; ++u) {
                    const int64_t at = u * apart + d - 1;
                    Sums value;
                    Codes code;
                    if (u == 0 && d == 0 && at_left && r == before) [[unlikely]] {
                        value = E::widen_lanes(g), value = lanes_from<lanes - 1, lanes>(value, value);
                        code = codes_from(c);
                    } else if (u == 1 && d == 2 && at_right && r == end - 1 && end == rows.last) [[unlikely]] {
                        value = E::widen_lanes(g + apart), value = lanes_from<1, lanes>(value, value);
                        code = codes_behind(c + apart);
                    } else {
                        value = read_once(E::widen_lanes(g + at)), code = codes_at(c + at);
                    }
#pragma GCC unroll 3
                    for (int j = 0; j < 3; ++j) sum[j][u] = add_where(sum[j][u], code, 3 * j + 2 - d, value);
                }
        };
        const auto write = [&](const Sums(&two)[2]) __attribute__((always_inline)) {
            for (int u = 0; u < 2; ++u) store(to + u * apart, E::narrow_lanes(two[u]));
            to += length;
        };
        if (row > before) meet(row - 1);
        turn();
        meet(row);
        const Stored* next = given + row * length + asked;
        for (int64_t r = row + 1; r < end; ++r) {
            ask_for(next, 2 * lanes), next += 2 * lanes;   // of the rows that follow these
            turn();
            meet(r);
            write(sum[0]);
        }
        if (end == row + count) write(sum[1]);   // there are no windows below
    }

    void joined_plane(int64_t n) {
        const Stored* const given = static_cast<const Stored*>(job.g.data) + outer_offset(job.g, n);
        const uint8_t* const chosen = static_cast<const uint8_t*>(job.code.data) + outer_offset(job.code, n);
        Stored* const gx = static_cast<Stored*>(job.gx.data) + outer_offset(job.gx, n);
        for (int64_t h = box.low[0], end; h < box.high[0]; h = end) {
            end = smaller(box.high[0], h + most);
            Stored* const to = job.streaming ? room : gx + h * width;
            for (int64_t c = 0; c < width; c += 2 * lanes) {
                c = larger(0, smaller(c, width - 2 * lanes));   // the last vectors overlap those before
                go_down(given, chosen, h, end - h, c, to + c);
            }
            if (job.streaming) write_row(gx + h * width, room, (end - h) * width, true);
        }
    }

    void plane(int64_t n, const RowWalk& at) {
        const int a = g.rank - 2, last = g.rank - 1;
        find_planes(n, at);
        Stored* const gx = static_cast<Stored*>(job.gx.data) + row_offset_of(n, at);
        const int64_t skip = box.low[last] + along.before - first * S;   // columns before the box
        const int64_t r0 = floor_div(box.low[a] + down.before, S), r1 = floor_div(box.high[a] - 1 + down.before, S);
        const bool exact = skip == 0 && width == count * S && count >= lanes;
        const bool joined = job.gx.step[a] == width;
        Stored* const spare = room + most * width;
        for (int64_t r = r0 - reach; r < r0 + step; ++r) keep(r);
        int64_t h = box.low[a], in_room = 0;   // the first row in the room, and how many there are
        const auto empty = [&] {
            if (joined) write_row(gx + h * width, room, in_room * width, job.streaming);
            else
                for (int64_t q = 0; q < in_room; ++q) write_row(gx + (h + q) * job.gx.step[a], room + q * width, width, job.streaming);
            h += in_room, in_room = 0;
        };
        for (int64_t r = r0; r <= r1; r += step) {
            for (int next = 0; next < step; ++next) keep(r + step + next);
            Stored* to[made];
            bool mine[made];
            int64_t next_in_room = in_room;
            for (int u = 0; u < made; ++u) {
                const int64_t row = r * S + u - down.before;
                mine[u] = row >= box.low[a] && row < box.high[a];
                to[u] = mine[u] && exact ? room + next_in_room * width : spare + u * larger(count, lanes) * S;
                next_in_room += mine[u];
            }
            if constexpr (crosses_planes) planes == 1 ? two_rows<1>(r, to) : two_rows<2>(r, to);
            else two_rows<1>(r, to);
            for (int u = 0; u < made; ++u) {
                if (!exact && mine[u]) __builtin_memcpy(room + in_room * width, to[u] + skip, sizeof(Stored) * static_cast<size_t>(width));
                in_room += mine[u];
            }
            if (in_room + made > most) empty();
        }
        empty();
    }

    int64_t row_offset_of(int64_t n, const RowWalk& at) const {
        int64_t offset = outer_offset(job.gx, n) + box.low[g.rank - 1];
        for (int a = 0; a < g.rank - 2; ++a) offset += at.at[a] * job.gx.step[a];
        return offset;
    }

    void run() {
        Box all = box;
        const int a = g.rank - 2;
        if constexpr (S == 1)
            if (joins()) {
                for (int64_t n = box.n; n < box.n_end; ++n) joined_plane(n);
                if (job.streaming) stream_fence();
                return;
            }
        all.low[a] = 0, all.high[a] = 1;   // a plane at a time
        for (int64_t n = box.n; n < box.n_end; ++n) {
            RowWalk walk;
            if (!first_row(box, g.rank, walk)) return;
            walk.at[a] = 0;
            do plane(n, walk);
            while (next_row(all, g.rank, walk));
        }
        if (job.streaming) stream_fence();
    }
};

}  // namespace
}  // namespace poolgrad
