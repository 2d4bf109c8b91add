// take and put by following codes: every window looks at its own code once and goes where it points, however many elements
// it has. put adds up in scratch memory that only its box touches, window after window in ascending order, so the sums are
// those of the gather form to the bit.
#include "gather.hpp"
#include "kernels.hpp"

namespace poolgrad {
namespace {

constexpr int64_t table_entries = 4096;   // windows up to this many elements keep a table; codes of larger ones are decoded

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
template <class Entry> void fill_table(const Geometry& g, const int64_t* step, const Span* inside, Entry astray, Entry* table) {
    table[0] = 0;
    int64_t n = 1;
    for (int a = 0; a < g.rank; ++a) {
        const Axis& axis = g.axes[a];
        for (int64_t t = n - 1; t >= 0; --t) {   // from the back, so that the table can grow in place
            const Entry offset = table[t];
            for (int64_t j = axis.extent - 1; j >= 0; --j) {
                const bool stays = offset != astray && j >= inside[a].first && j < inside[a].first + inside[a].length;
                table[t * axis.extent + j] = stays ? static_cast<Entry>(offset + j * axis.dilation * step[a]) : astray;
            }
        }
        n *= axis.extent;
    }
}

// ---- take -----------------------------------------------------------------------------------------------------------

// A row of windows is one flat list of (output, channel) pairs. Tables say where each pair has local position 0 and where
// each code points from there, so the cost of a window does not depend on its size.
template <class T, class Code> struct CodedTake {
    static constexpr int lanes = 16;
    static constexpr int32_t astray = INT32_MIN;
    const Scan& job;
    const Geometry& g;
    const Axis& axis;
    const int64_t w0, w1;
    const int64_t ahead;                   // see read_ahead
    Tap* fresh;                            // the input rows that no row of windows before has read
    int64_t fresh_count;
    int64_t whole_begin, whole_end;        // flat: pairs whose windows are not cut short along the row
    int32_t *begins, *firsts, *lengths;    // per pair; null: codes are decoded
    int32_t *offsets, *columns;            // per code: where it points in this row of windows, and its position along the row
    LineWriter<T> lines;
    Span spans[max_axes], known[max_axes];
    bool cut;                              // some codes of this row of windows name nothing

    CodedTake(const Scan& job, const Box& box, Scratch& scratch)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          w0(box.low[g.rank - 1]),
          w1(box.high[g.rank - 1]),
          ahead(read_ahead<T>(g, job.v)),
          fresh_count(0),
          begins(nullptr),
          lines(job.streaming ? box.n_end - box.n : 0, (w1 - w0) * g.inner, scratch, 2) {
        fresh = static_cast<Tap*>(reserve(scratch, 1, sizeof(Tap) * static_cast<size_t>(most_window_taps(g))));
        if (g.elements > table_entries || sizeof(Code) > 4 || !near()) return;
        const int64_t pairs = (w1 - w0) * g.inner + lanes, codes = g.elements + lanes;
        begins = static_cast<int32_t*>(reserve(scratch, 0, sizeof(int32_t) * static_cast<size_t>(3 * pairs + 2 * codes + 64)));
        firsts = begins + pairs, lengths = firsts + pairs, offsets = lengths + pairs, columns = offsets + codes;
        for (int64_t o = w0, f = 0; o < w1; ++o)
            for (int64_t c = 0; c < g.inner; ++c, ++f) {
                const Span s = span(axis, o);
                begins[f] = static_cast<int32_t>(origin(axis, o) * g.inner + c);
                firsts[f] = static_cast<int32_t>(s.first), lengths[f] = static_cast<int32_t>(s.length);
            }
        for (int64_t code = 0; code < codes; ++code) columns[code] = static_cast<int32_t>(code % axis.extent);
        const bool even = axis.uniform && axis.window == axis.extent;
        whole_begin = even ? (smaller(w1, larger(w0, axis.whole_begin)) - w0) * g.inner : pairs;
        whole_end = even ? (smaller(w1, axis.whole_end) - w0) * g.inner : 0;
        known[0].length = -1;
    }

    // Whether all that a row of windows reads is so near its begin that 32 bits tell where.
    bool near() const {
        int64_t reach = (axis.size + axis.extent * axis.dilation) * g.inner;
        for (int a = 0; a < g.rank; ++a) {
            const int64_t step = job.v.step[a] < 0 ? -job.v.step[a] : job.v.step[a];
            if (step > INT32_MAX || g.axes[a].extent * g.axes[a].dilation > INT32_MAX) return false;
            reach += g.axes[a].extent * g.axes[a].dilation * step;
            if (reach > INT32_MAX) return false;
        }
        return true;
    }

    // The offsets of this row of windows: made anew where other local positions are real than in the row before.
    void know_row() {
        const int last = g.rank - 1;
        bool same = known[0].length >= 0;
        for (int a = 0; a < last; ++a) same = same && spans[a].first == known[a].first && spans[a].length == known[a].length;
        if (same) return;
        cut = false;
        spans[last] = {0, axis.extent};
        for (int a = 0; a <= last; ++a) {
            known[a] = spans[a];
            cut = cut || spans[a].length < g.axes[a].extent;
        }
        fill_table(g, job.v.step, spans, astray, offsets);
    }

#if defined(__AVX512BW__)
    // 16 codes, of which `mask` are real.
    static POOLGRAD_INLINE __m512i load_some(const Code* p, __mmask16 mask) {
        if constexpr (sizeof(Code) == 1) return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, p));
        else if constexpr (sizeof(Code) == 2) return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
        else return _mm512_maskz_loadu_epi32(mask, p);
    }

    // What a table says for 16 codes: from registers while it fits four of them.
    template <int registers> static POOLGRAD_INLINE __m512i look_up(const int32_t* table, __m512i codes, __mmask16 mask) {
        if constexpr (registers == 0) return _mm512_mask_i32gather_epi32(codes, mask, codes, table, 4);
        __m512i found = _mm512_permutexvar_epi32(codes, _mm512_loadu_si512(table));
        if constexpr (registers > 1) found = _mm512_permutex2var_epi32(_mm512_loadu_si512(table), codes, _mm512_loadu_si512(table + 16));
        if constexpr (registers > 2) {
            const __m512i others = _mm512_permutex2var_epi32(_mm512_loadu_si512(table + 32), codes, _mm512_loadu_si512(table + 48));
            found = _mm512_mask_mov_epi32(found, _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(32)), others);
        }
        return found;
    }

    // Pairs [f, f + 16), of which `mask` are wanted. Elsewhere nothing is read.
    template <int registers, bool checked> POOLGRAD_INLINE void block(T* y, const Code* codes, const T* v, int64_t f, __mmask16 mask) const {
        const __m512i code = load_some(codes + f, mask);
        __mmask16 real = _mm512_mask_cmplt_epu32_mask(mask, code, _mm512_set1_epi32(static_cast<int>(g.elements)));
        const __m512i offset = look_up<registers>(offsets, code, real);
        if constexpr (checked) {
            const __m512i column = look_up<registers>(columns, code, real);
            real = _mm512_mask_cmpneq_epi32_mask(real, offset, _mm512_set1_epi32(astray));
            real = _mm512_mask_cmplt_epu32_mask(real, _mm512_sub_epi32(column, _mm512_loadu_si512(firsts + f)), _mm512_loadu_si512(lengths + f));
        }
        const __m512i at = _mm512_add_epi32(offset, _mm512_loadu_si512(begins + f)), zero = _mm512_setzero_si512();
        if constexpr (sizeof(T) == 4) {
            _mm512_mask_storeu_epi32(y + f, mask, _mm512_mask_i32gather_epi32(zero, real, at, v, 4));
        } else if constexpr (sizeof(T) == 8) {
            const auto half = [&](int64_t from, __m256i half_at, int shift) __attribute__((always_inline)) {
                const __mmask8 half_real = static_cast<__mmask8>(real >> shift), half_mask = static_cast<__mmask8>(mask >> shift);
                _mm512_mask_storeu_epi64(y + from, half_mask, _mm512_mask_i32gather_epi64(zero, half_real, half_at, v, 8));
            };
            half(f, _mm512_castsi512_si256(at), 0);
            half(f + 8, _mm512_extracti64x4_epi64(at, 1), 8);
        } else {
            alignas(64) int32_t index[lanes];
            _mm512_store_si512(index, at);
            for (int i = 0; i < lanes; ++i)
                if (mask >> i & 1) y[f + i] = real >> i & 1 ? v[index[i]] : T{};
        }
    }

    template <int registers> void flat_row(T* y, const Code* codes, const T* v) const {
        const int64_t end = (w1 - w0) * g.inner;
        for (int64_t f = 0; f < end; f += lanes) {
            const __mmask16 mask = static_cast<__mmask16>(end - f >= lanes ? 0xffff : (1 << (end - f)) - 1);
            for (int64_t t = 0; t < fresh_count; ++t) ask_for(v + fresh[t].offset + begins[f] + ahead, lanes * axis.stride);
            if (!cut && f >= whole_begin && smaller(f + lanes, end) <= whole_end) block<registers, false>(y, codes, v, f, mask);
            else block<registers, true>(y, codes, v, f, mask);
        }
    }

    void by_table(T* y, const Code* codes, const T* v) const {
        if (g.elements <= 16) flat_row<1>(y, codes, v);
        else if (g.elements <= 32) flat_row<2>(y, codes, v);
        else if (g.elements <= 64) flat_row<4>(y, codes, v);
        else flat_row<0>(y, codes, v);
    }
#else
    void by_table(T* y, const Code* codes, const T* v) const {
        const int64_t end = (w1 - w0) * g.inner;
        const uint64_t elements = static_cast<uint64_t>(g.elements);
#pragma GCC unroll 4
        for (int64_t f = 0; f < end; ++f) {
            const uint64_t code = codes[f];
            const uint64_t entry = code < elements ? code : 0;
            const bool real =
                code < elements && offsets[entry] != astray && static_cast<uint32_t>(columns[entry] - firsts[f]) < static_cast<uint32_t>(lengths[f]);
            y[f] = real ? v[begins[f] + offsets[entry]] : T{};
        }
    }
#endif

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

    // The same row of windows of all images.
    void row(const RowWalk& walk, int64_t n, int64_t n_end) {
        int64_t base = 0;
        for (int a = 0; a < g.rank - 1; ++a) {
            spans[a] = span(g.axes[a], walk.at[a]);
            base += origin(g.axes[a], walk.at[a]) * job.v.step[a];
        }
        if (begins) know_row();
        if (ahead) {
            const int64_t rows = window_taps(g, walk.at, job.v.step, fresh);
            fresh_count = 0;
            for (int64_t t = 0; t < rows; ++t)
                if (fresh[t].fresh) fresh[fresh_count++] = fresh[t];
            for (int64_t t = 0; t < fresh_count; ++t) fresh[t].offset -= base;
        }
        const int64_t first = n;
        for (; n < n_end; ++n) {
            T* const to = static_cast<T*>(job.y.data) + row_offset(job.y, n, walk, g.rank) + w0 * g.inner;
            T* const y = job.streaming ? lines.open(n - first, to) : to;
            const Code* codes = static_cast<const Code*>(job.wanted.data) + row_offset(job.wanted, n, walk, g.rank) + w0 * g.inner;
            const T* v = static_cast<const T*>(job.v.data) + outer_offset(job.v, n) + base;
            if (begins) by_table(y, codes, v);
            else by_decoding(y, codes, v);
            if (job.streaming) lines.close((w1 - w0) * g.inner);
        }
    }
};

template <class T, class Code> void take_run(const Scan& job, const Box& box, Scratch& scratch) {
    RowWalk walk;
    const int rank = job.geometry->rank;
    if (!first_row(box, rank, walk)) return;
    CodedTake<T, Code> take(job, box, scratch);
    do take.row(walk, box.n, box.n_end);
    while (next_row(box, rank, walk));
}

// ---- put ------------------------------------------------------------------------------------------------------------

template <class E, class Code, bool assign> struct CodedPut {
    using Stored = typename E::Stored;
    using Sum = typename E::Sum;

    const Put& job;
    const Geometry& g;
    const Axis& axis;
    const Box& box;
    Scratch& scratch;
    Box outputs;                  // the windows that reach into the box
    int64_t low, high;            // of the last axis, those that do not cross a border between boxes
    int64_t step[max_axes];       // of the sums
    int64_t total;                // sums of the box
    int64_t astray;               // from any window to a place that nobody reads
    Sum* sums;
    int64_t *inside, *at_border;  // tables: of windows whose rows all lie in the box, and of those where only `kept` do
    Span kept[max_axes];

    CodedPut(const Put& job, const Box& box, Scratch& scratch)
        : job(job),
          g(*job.geometry),
          axis(g.axes[g.rank - 1]),
          box(box),
          scratch(scratch),
          total(g.inner),
          inside(nullptr),
          at_border(nullptr) {
        for (int a = g.rank - 1; a >= 0; --a) {
            step[a] = total;
            total *= box.high[a] - box.low[a];
            outputs.low[a] = cover(g.axes[a], box.low[a]).first;
            outputs.high[a] = larger(outputs.low[a], cover(g.axes[a], box.high[a] - 1).last);
        }
        const int last = g.rank - 1;
        const bool cut_low = box.low[last] > 0, cut_high = box.high[last] < axis.size;
        low = outputs.low[last], high = outputs.high[last];
        while (cut_low && low < high && origin(axis, low) < box.low[last]) ++low;
        while (cut_high && low < high && origin(axis, high - 1) + (axis.extent - 1) * axis.dilation >= box.high[last]) --high;
        // Codes that change while they are read may point a window's length out of the row, but not out of this memory.
        const int64_t margin = (2 * axis.size + axis.extent * axis.dilation) * g.inner;
        int64_t reach = 0;   // how far windows begin before the box
        for (int a = 0; a < last; ++a) reach += g.axes[a].extent * g.axes[a].dilation * step[a];
        const bool tables = g.elements <= table_entries;
        astray = total + margin + reach;
        const int64_t room = tables ? astray + total + margin : total;
        sums = static_cast<Sum*>(reserve(scratch, 0, sizeof(Sum) * static_cast<size_t>(margin + room))) + margin;
        if (!tables) return;
        inside = static_cast<int64_t*>(reserve(scratch, 1, sizeof(int64_t) * 2 * (table_entries + 1)));
        at_border = inside + table_entries + 1;
        for (int a = 0; a < g.rank; ++a) kept[a] = {0, g.axes[a].extent};
        fill_table(g, step, kept, astray, inside);
        // Codes that name nothing have entries too.
        for (int64_t n = g.elements; n < larger(257, g.elements + 1); ++n) inside[n] = at_border[n] = astray;
        kept[0].length = -1;   // no table of a border yet
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
            fill_table(g, step, kept, astray, at_border);
        }
        return at_border;
    }

    POOLGRAD_INLINE void add(Sum& sum, Stored value) const {
        const Sum wide = E::widen_one(value);
        sum = assign ? wide : static_cast<Sum>(sum + wide);
    }

    // Every code that one byte can hold has an entry. Others beyond the number of elements share the last one.
    static POOLGRAD_INLINE int64_t entry(const int64_t* table, int64_t none, Code code) {
        if constexpr (sizeof(Code) == 1) return table[code];
        else return table[smaller(static_cast<int64_t>(code), none)];
    }

    // Windows of a row; `to` is where position 0 of the row would have its sum.
    void by_table(Sum* to, const Code* codes, const Stored* grads, const int64_t* table) const {
        const int64_t none = g.elements, inner = g.inner, end = high;
        if (axis.uniform && inner == 1) {
            const int64_t stride = axis.stride;
            Sum* at = to + low * stride - axis.before;
#pragma GCC unroll 4
            for (int64_t o = low; o < end; ++o, at += stride) add(at[entry(table, none, codes[o])], grads[o]);
            return;
        }
        for (int64_t o = low; o < end; ++o) {
            Sum* at = to + origin(axis, o) * inner;
#pragma GCC unroll 4
            for (int64_t c = 0; c < inner; ++c) add(at[c + entry(table, none, codes[o * inner + c])], grads[o * inner + c]);
        }
    }

    void by_decoding(Sum* to, const Code* codes, const Stored* grads, Span* spans, const int64_t* at, int64_t from, int64_t end) const {
        const int last = g.rank - 1;
        int64_t local_at[max_axes];
        for (int64_t o = from; o < end; ++o) {
            spans[last] = span(axis, o);
            for (int64_t c = 0; c < g.inner; ++c) {
                if (!decode(g, spans, codes[o * g.inner + c], local_at)) continue;
                int64_t offset = origin(axis, o) * g.inner + c;
                bool in_box = true;
                for (int a = 0; a <= last; ++a) {
                    const int64_t distance = local_at[a] * g.axes[a].dilation;
                    const int64_t position = origin(g.axes[a], a < last ? at[a] : o) + distance;
                    in_box = in_box && position >= box.low[a] && position < box.high[a];
                    offset += distance * step[a];
                }
                if (in_box) add(to[offset], grads[o * g.inner + c]);
            }
        }
    }

    void row(int64_t n, const RowWalk& walk) {
        const int last = g.rank - 1;
        Span spans[max_axes], in_box[max_axes];
        int64_t base = -box.low[last] * g.inner;
        bool all_inside = true;
        for (int a = 0; a < last; ++a) {
            const Axis& other = g.axes[a];
            const int64_t start = origin(other, walk.at[a]), d = other.dilation;
            spans[a] = span(other, walk.at[a]);
            base += (start - box.low[a]) * step[a];
            const int64_t first = start < box.low[a] ? (box.low[a] - start + d - 1) / d : 0;
            const int64_t behind =
                smaller(other.extent, start + (other.extent - 1) * d < box.high[a] ? other.extent : (box.high[a] - start + d - 1) / d);
            in_box[a] = {first, larger(0, behind - first)};
            all_inside = all_inside && in_box[a].length == other.extent;
        }
        const Code* codes = static_cast<const Code*>(job.code.data) + row_offset(job.code, n, walk, g.rank);
        const Stored* grads = static_cast<const Stored*>(job.g.data) + row_offset(job.g, n, walk, g.rank);
        Sum* to = sums + base;
        const bool short_row = g.elements > (high - low) * g.inner;   // a table of its own would not pay
        if (!inside || (!all_inside && short_row)) return by_decoding(to, codes, grads, spans, walk.at, outputs.low[last], outputs.high[last]);
        by_decoding(to, codes, grads, spans, walk.at, outputs.low[last], low);
        by_table(to, codes, grads, table_of(in_box));
        by_decoding(to, codes, grads, spans, walk.at, high, outputs.high[last]);
    }

    // The finished sums of an image, in runs that lie together.
    void write(int64_t n) const {
        int axes = g.rank - 1;   // those before the run
        while (axes > 0 && box.low[axes] == 0 && box.high[axes] == g.axes[axes].size) --axes;
        const int64_t run = step[axes] * (box.high[axes] - box.low[axes]);
        Box runs = box;
        for (int a = axes; a < g.rank; ++a) runs.high[a] = box.low[a] + 1;
        RowWalk walk;
        const Sum* from = sums;
        if (!first_row(runs, g.rank, walk)) return;
        do {
            int64_t to = outer_offset(job.gx, n);
            for (int a = 0; a < g.rank; ++a) to += walk.at[a] * job.gx.step[a];
            write_sums(static_cast<Stored*>(job.gx.data) + to, from, run);
            from += run;
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

    void run() {
        for (int64_t n = box.n; n < box.n_end; ++n) {
            __builtin_memset(static_cast<void*>(sums), 0, sizeof(Sum) * static_cast<size_t>(total));
            RowWalk walk;
            if (first_row(outputs, g.rank, walk)) {
                do row(n, walk);
                while (next_row(outputs, g.rank, walk));
            }
            write(n);
        }
        if (job.streaming) stream_fence();
    }
};

template <class E, class Code> void put_run(const Put& job, const Box& box, Scratch& scratch) {
    if (job.assign) CodedPut<E, Code, true>(job, box, scratch).run();
    else CodedPut<E, Code, false>(job, box, scratch).run();
}

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
    with_code(job.code_width,
              [&](auto code) { with_wrapping_sum(job.type, [&](auto element) { put_run<decltype(element), decltype(code)>(job, box, scratch); }); });
}

}  // namespace poolgrad
