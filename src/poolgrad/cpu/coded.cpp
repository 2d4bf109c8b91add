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
// to `astray`, and so do the entries behind them, which are for codes that name nothing.
void fill_table(const Geometry& g, const int64_t* step, const Span* inside, int64_t astray, int64_t* table) {
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
    for (; n < larger(257, g.elements + 1); ++n) table[n] = astray;
}

// ---- take -----------------------------------------------------------------------------------------------------------

template <class T, class Code> struct CodedTake {
    const Scan& job;
    const Geometry& g;
    const Axis& axis;
    const int64_t* table;   // null: codes are decoded
    Span spans[max_axes];

    CodedTake(const Scan& job, Scratch& scratch) : job(job), g(*job.geometry), axis(g.axes[g.rank - 1]), table(nullptr) {
        if (g.elements > table_entries) return;
        int64_t* entries = static_cast<int64_t*>(reserve(scratch, 0, sizeof(int64_t) * (table_entries + 1)));
        for (int a = 0; a < g.rank; ++a) spans[a] = {0, g.axes[a].extent};
        fill_table(g, job.v.step, spans, INT64_MIN, entries);
        table = entries;
    }

    // The outputs [low, high) of a row, whose windows are whole: any code below the number of elements will do.
    void whole(T* y, const Code* codes, const T* v, int64_t low, int64_t high) const {
        const int64_t inner = g.inner, stride = axis.stride * inner;
        const uint64_t elements = static_cast<uint64_t>(g.elements);
        const int64_t* const offset = table;
        const T* from = v + (low * axis.stride - axis.before) * inner;
        const auto take = [&](const T* window, uint64_t code) __attribute__((always_inline)) { return code < elements ? window[offset[code]] : T{}; };
        if (inner == 1) {
#pragma GCC unroll 4
            for (int64_t o = low; o < high; ++o, from += stride) y[o] = take(from, codes[o]);
            return;
        }
        for (int64_t o = low; o < high; ++o, from += stride)
#pragma GCC unroll 4
            for (int64_t c = 0; c < inner; ++c) y[o * inner + c] = take(from + c, codes[o * inner + c]);
    }

    void any(T* y, const Code* codes, const T* v, int64_t low, int64_t high) {
        int64_t local_at[max_axes];
        for (int64_t o = low; o < high; ++o) {
            spans[g.rank - 1] = span(axis, o);
            const T* from = v + origin(axis, o) * g.inner;
            for (int64_t c = 0; c < g.inner; ++c) {
                T value{};
                if (decode(g, spans, codes[o * g.inner + c], local_at)) {
                    int64_t offset = c;
                    for (int a = 0; a < g.rank; ++a) offset += local_at[a] * g.axes[a].dilation * job.v.step[a];
                    value = from[offset];
                }
                y[o * g.inner + c] = value;
            }
        }
    }

    void row(int64_t n, const RowWalk& walk, int64_t w0, int64_t w1) {
        int64_t base = outer_offset(job.v, n);
        bool simple = table && axis.uniform;
        for (int a = 0; a < g.rank - 1; ++a) {
            const Axis& other = g.axes[a];
            spans[a] = span(other, walk.at[a]);
            base += origin(other, walk.at[a]) * job.v.step[a];
            simple = simple && spans[a].length == other.extent;
        }
        T* y = static_cast<T*>(job.y.data) + row_offset(job.y, n, walk, g.rank);
        const Code* codes = static_cast<const Code*>(job.wanted.data) + row_offset(job.wanted, n, walk, g.rank);
        const T* v = static_cast<const T*>(job.v.data) + base;
        const int64_t begin = simple && axis.window == axis.extent ? smaller(w1, larger(w0, axis.whole_begin)) : w1;
        const int64_t end = larger(begin, smaller(w1, axis.whole_end));
        any(y, codes, v, w0, begin);
        whole(y, codes, v, begin, end);
        any(y, codes, v, end, w1);
    }
};

template <class T, class Code> void take_run(const Scan& job, const Box& box, Scratch& scratch) {
    RowWalk walk;
    const int rank = job.geometry->rank;
    if (!first_row(box, rank, walk)) return;
    CodedTake<T, Code> take(job, scratch);
    do {
        for (int64_t n = box.n; n < box.n_end; ++n) take.row(n, walk, box.low[rank - 1], box.high[rank - 1]);
    } while (next_row(box, rank, walk));
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
