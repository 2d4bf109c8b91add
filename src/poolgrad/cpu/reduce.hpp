// Walks output rows and hands their windows to a reducer (a maximum or a sum) in blocks as wide as a vector:
// along the channels where there are enough of them, else along the row.
//
// A Reducer says: `lanes`; begin_row(taps, n, image, walk); channels<vectors>(window, c); row<Step, masked, vectors>(block);
// whole_windows(w0, w1) and whole_rows(w0, w1, rows), which may decline; single(window, c); rows_together(box, walk);
// next_row(); end_rows(elements).
#pragma once

#include "vec.hpp"

namespace poolgrad {
namespace {

#if defined(__AVX512BW__)
constexpr int most_vectors = 4;
#else
constexpr int most_vectors = 2;
#endif

// One window of a row: the position of its first real element, that element's local position, and how many follow.
struct Window {
    int64_t output, position, first, length;
};

POOLGRAD_INLINE Window window_of(const Axis& axis, int64_t o) {
    const Span s = span(axis, o);
    return {o, origin(axis, o) + s.first * axis.dilation, s.first, s.length};
}

// How far ahead of the rows that are read the next ones are asked for, in elements: processors do that by themselves only
// within a page, and not in time. So much is asked for in all `places` together that are read in turns. 0 where the input lies in the cache anyway.
template <class T> POOLGRAD_INLINE int64_t read_ahead(const Geometry& g, const View& x, int64_t stride, int64_t places) {
    constexpr int64_t cache = int64_t{1} << 20;
    if (g.rank < 2 || static_cast<const char*>(x.end) - static_cast<const char*>(x.begin) < cache) return 0;
    const int64_t rows = larger(1, stride * x.step[g.rank - 2]);   // from one output row to the next
    return rows * larger(1, asked_rows / places / (rows * static_cast<int64_t>(sizeof(T))));
}

// Of `arrays` that windows read at the same places, this one: in planes of rows that follow one another. What is next after the rows of a plane are those
// of the plane that takes its place. Where planes are small, these are asked for from the first row on, else only rows of the same plane are.
template <class T> POOLGRAD_INLINE int64_t read_ahead(const Geometry& g, const View& x, int64_t arrays = 1) {
    if (g.rank < 2) return 0;
    int64_t places = arrays;
    for (int a = 0; a < g.rank - 2; ++a) places *= larger(1, g.axes[a].extent);
    const int64_t ahead = read_ahead<T>(g, x, g.axes[g.rank - 2].stride, places);
    const int64_t planes = g.rank < 3 ? 0 : g.axes[g.rank - 3].stride * x.step[g.rank - 3];   // from one plane of outputs to the next
    const bool small = planes > 0 && places * planes * static_cast<int64_t>(sizeof(T)) <= asked_planes;
    return ahead && small ? planes : ahead;
}

// The same in rows of channels, which may be long: there it is nearer, a part of `asked_channels` for each of the `rows` that are read side by side.
// Towards the end of a row what is so near lies in the one that takes its place, `below` from it.
struct RowsAhead {
    int64_t near = 0, beyond = 0, edge = 0;

    RowsAhead() = default;
    RowsAhead(int64_t ahead, int64_t row, int64_t below, int64_t rows, int64_t element_bytes) : near(ahead), beyond(ahead) {
        const int64_t some = asked_channels / (larger(1, rows) * element_bytes);
        if (ahead == 0 || row <= some) return;
        near = some, beyond = some + below - row, edge = row - some;
    }
    explicit operator bool() const { return near != 0; }
    POOLGRAD_INLINE int64_t from(int64_t column) const { return column < edge ? near : beyond; }   // an element of the row
};

// Whether they are asked for twice: windows that lie apart ask for so much of a large array that not all of it seems to be heard. Asked
// again, they take a twentieth to a fifth less. (Windows that share elements lose a little.)
POOLGRAD_INLINE bool asks_twice(const Axis& axis, const View& x) {
    constexpr int64_t large = int64_t{1} << 25;
    return axis.uniform && axis.window <= axis.stride && static_cast<const char*>(x.end) - static_cast<const char*>(x.begin) >= large;
}

// Asks for the cache lines of `count` elements from p on.
template <class T> POOLGRAD_INLINE void ask_for(const T* p, int64_t count) {
    for (int64_t i = 0; i < count; i += 64 / static_cast<int64_t>(sizeof(T))) ask_for_line(p + i);
}

// The rows that an output row reads and the one before has not: while they are read, those are asked for that take their place further on. Short
// ones that follow one another are asked for as one, in the order of memory, which processors follow better than rows of a page in turns. What
// asks is part of the innermost loops, so that there must be little of it.
struct FreshRows {
    static constexpr int most = 32;   // others come when they are read
    int64_t offset[most];
    int count = 0;
    bool follow = false;    // short rows that do
    int64_t together = 1;   // so many rows from each offset on

    FreshRows() = default;
    FreshRows(const Geometry& g, const int64_t* step, const Tap* taps, int64_t tap_count) : follow(rows_follow(g, step)) {
        const int64_t rows = g.rank > 1 ? g.axes[g.rank - 2].stride : 1;
        bool joined = follow;
        for (int64_t t = 0; joined && t < tap_count; t += taps[t].fresh ? rows : 1)
            if (taps[t].fresh) joined = t + rows <= tap_count && taps[t + rows - 1].offset == taps[t].offset + (rows - 1) * step[g.rank - 2];
        if (joined) together = rows;   // else a window is cut short, or leaves some out
        for (int64_t t = 0; t < tap_count && count < most; ++t)
            if (taps[t].fresh && !taps[t].known) offset[count++] = taps[t].offset, t += together - 1;
    }

    int64_t rows() const { return count * together; }

    // While `elements` are read that lie `at` from the beginning of their row. `from` is where the image lies, so far ahead.
    template <class T> POOLGRAD_INLINE void ask(const T* from, int64_t at, int64_t elements) const {
        if (together == 1) ask<1>(from, at, elements);
        else if (together == 2) ask<2>(from, at, elements);
        else
            for (int i = 0; i < count; ++i) ask_for(from + offset[i] + together * at, together * elements);
    }
    template <int rows, class T> POOLGRAD_INLINE void ask(const T* from, int64_t at, int64_t elements) const {
        for (int i = 0; i < count; ++i) ask_for(from + offset[i] + rows * at, rows * elements);
    }
};

// Writes whole vectors past the caches, one after the other: a line of which something else is written between its parts takes long.
template <class T> POOLGRAD_INLINE void stream_vectors(T* to, const T* from, int64_t count) {
    constexpr int lanes = vector_bytes / sizeof(T);
    for (int64_t i = 0; i < count; i += lanes) stream(to + i, load<Vec<T, lanes>>(from + i));
}

// Writes rows that follow one another in memory, past the caches and in whole cache lines, although rows end anywhere. Several
// images may take turns: each keeps the begin of its next line until the row that completes it.
template <class T> class LineWriter {
    static constexpr int64_t line = 64;
    struct Run {
        char* to;       // where the kept bytes belong
        int64_t kept;
        alignas(line) char bytes[line];
    };
    Run *runs, *run;
    int64_t count;
    char* row;

    void finish(Run& r) {
        if (r.kept) __builtin_memcpy(r.to, r.bytes, static_cast<size_t>(r.kept));
        r.kept = 0;
    }

public:
    // Room for rows of up to `longest` elements and a vector is taken from a slot of the scratch memory.
    LineWriter(int64_t images, int64_t longest, Scratch& scratch, int slot) : count(images) {
        const size_t kept = sizeof(Run) * static_cast<size_t>(images);
        runs = static_cast<Run*>(reserve(scratch, slot, kept + static_cast<size_t>(longest) * sizeof(T) + 3 * line));
        row = reinterpret_cast<char*>(runs) + kept;
        for (int64_t i = 0; i < images; ++i) runs[i].to = nullptr, runs[i].kept = 0;
    }

    // Where to put the row of an image that belongs at `to`.
    T* open(int64_t image, T* to) {
        run = runs + image;
        if (run->to + run->kept != reinterpret_cast<char*>(to)) {
            finish(*run);
            run->to = reinterpret_cast<char*>(to);
        }
        char* begin = row + reinterpret_cast<uintptr_t>(run->to) % line;
        __builtin_memcpy(begin, run->bytes, line);
        return reinterpret_cast<T*>(begin + run->kept);
    }

    // The row is complete.
    void close(int64_t elements) {
        const int64_t before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(run->to) % line);
        int64_t bytes = run->kept + elements * static_cast<int64_t>(sizeof(T));
        const char* from = row + before;
        char* to = run->to;
        if (before) {   // the first row of a run may begin within a line
            const int64_t head = smaller(bytes, line - before);
            __builtin_memcpy(to, from, static_cast<size_t>(head));
            to += head, from += head, bytes -= head;
        }
        const int64_t whole = bytes / line * line;
        stream_vectors(to, from, whole);
        to += whole, from += whole, bytes -= whole;
        __builtin_memcpy(run->bytes, from, line);
        run->to = to, run->kept = bytes;
    }

    ~LineWriter() {
        for (int64_t i = 0; i < count; ++i) finish(runs[i]);
        stream_fence();
    }
    LineWriter(const LineWriter&) = delete;
};

// How consecutive lanes of a row block are read: neighbours, or every second element.
struct EveryElement {
    static constexpr int stride = 1;
    template <class T, int lanes> static POOLGRAD_INLINE Vec<T, lanes> get(const T* p) { return load<Vec<T, lanes>>(p); }
};
struct EverySecond {
    static constexpr int stride = 2;
    template <class T, int lanes> static POOLGRAD_INLINE Vec<T, lanes> get(const T* p) { return load_even<T, lanes>(p); }
};

// Or wherever a table says. Windows that are shorter than others read their last element again, which changes nothing.
struct Listed {
    static constexpr int stride = 0;
};

// A block of consecutive (output, channel) pairs of one row, read at `position + local * dilation * inner` and up.
struct RowBlock {
    int64_t output;      // flat (output, channel) index of lane 0
    int64_t position;    // flat (input, channel) index that lane 0 reads at local position 0; may be negative
    int count;           // lanes to be written
};

template <class Reducer> POOLGRAD_INLINE void channel_blocks(Reducer& r, const Window& window, int64_t inner) {
    constexpr int lanes = Reducer::lanes;
    int64_t c = 0;
    for (; c + most_vectors * lanes <= inner; c += most_vectors * lanes) r.template channels<most_vectors>(window, c);
    if (most_vectors > 2 && c + 2 * lanes <= inner) {
        r.template channels<2>(window, c);
        c += 2 * lanes;
    }
    for (; c < inner; c += lanes) r.template channels<1>(window, smaller(c, inner - lanes));   // the last block overlaps the one before
}

// Reads of lanes that no result depends on may fall outside the row, but never outside the array.
template <class Step, class Reducer>
void row_blocks(Reducer& r, const Axis& axis, int64_t inner, int64_t w0, int64_t w1, int64_t rows_low, int64_t rows_high, int64_t array_low,
                int64_t array_high) {
    constexpr int lanes = Reducer::lanes;
    const int64_t end = w1 * inner, reach = (axis.window - 1) * axis.dilation;
    for (int64_t f = w0 * inner; f < end; f += lanes) {
        RowBlock block{f, Step::stride * f - axis.before * inner, static_cast<int>(smaller(lanes, end - f))};
        if (f >= axis.whole_begin * inner && f + 2 * lanes <= smaller(end, axis.whole_end * inner) &&
            rows_high + block.position + reach * inner + 2 * Step::stride * lanes <= array_high) {
            block.count = 2 * lanes;
            r.template row<Step, false, 2>(block);
            f += lanes;
            continue;
        }
        const bool whole = f >= axis.whole_begin * inner && f + block.count <= axis.whole_end * inner;
        const bool safe = rows_low + block.position >= array_low && rows_high + block.position + reach * inner + Step::stride * lanes <= array_high;
        if (whole && safe) {
            r.template row<Step, false, 1>(block);
        } else if (safe) {
            r.template row<Step, true, 1>(block);
        } else {
            for (int64_t q = f; q < f + block.count; ++q) r.single(window_of(axis, q / inner), q % inner);
        }
    }
}

// The lanes of a block for which local position j is a real element.
template <class I, int lanes> POOLGRAD_INLINE auto real_lanes(const Axis& axis, int64_t inner, const RowBlock& block, int64_t j) {
    const int64_t ahead = axis.before - j * axis.dilation;
    const int64_t low = larger(0, ceil_div(ahead, axis.stride)), high = ceil_div(axis.size + ahead, axis.stride);
    return lane_mask<I, lanes>(low * inner - block.output, high * inner - block.output);
}

template <class Reducer> void reduce_row(Reducer& r, const Geometry& g, int64_t w0, int64_t w1, int64_t rows_low, int64_t rows_high,
                                         int64_t array_low, int64_t array_high) {
    const Axis& axis = g.axes[g.rank - 1];
    if constexpr (Reducer::lanes > 1) {
        if (g.inner >= Reducer::lanes) {
            for (int64_t o = w0, end = smaller(w1, axis.whole_end); o < w1; ++o) {
                if (o >= axis.whole_begin && o < end && r.whole_windows(o, end)) o = end - 1;
                else channel_blocks(r, window_of(axis, o), g.inner);
            }
            return;
        }
        if (axis.uniform && axis.stride == 1) return row_blocks<EveryElement>(r, axis, g.inner, w0, w1, rows_low, rows_high, array_low, array_high);
        if (axis.uniform && axis.stride == 2 && g.inner == 1)
            return row_blocks<EverySecond>(r, axis, 1, w0, w1, rows_low, rows_high, array_low, array_high);
    }
    if constexpr (Reducer::lanes > 1) {
        if (r.positions) {
            for (int64_t f = w0 * g.inner; f < w1 * g.inner; f += Reducer::lanes)
                r.template row<Listed, false, 1>({f, 0, static_cast<int>(smaller(Reducer::lanes, w1 * g.inner - f))});
            return;
        }
    }
    for (int64_t o = w0; o < w1; ++o) {
        const Window window = window_of(axis, o);
        for (int64_t c = 0; c < g.inner; ++c) r.single(window, c);
    }
}

// Where each window of a row has its elements: for every local position one index per (output, channel). Null where the
// windows are not listed, or vectors hold channels.
template <int lanes> const int32_t* listed_positions(const Geometry& g, Scratch& scratch, int slot) {
    const Axis& axis = g.axes[g.rank - 1];
    if (!axis.starts || g.inner >= lanes || axis.size * g.inner > INT32_MAX || axis.extent > 64) return nullptr;
    const int64_t row = axis.count * g.inner + lanes;
    int32_t* table = static_cast<int32_t*>(reserve(scratch, slot, sizeof(int32_t) * static_cast<size_t>(axis.extent * row)));
    for (int64_t j = 0; j < axis.extent; ++j)
        for (int64_t f = 0; f < row; ++f) {
            const int64_t o = smaller(f / g.inner, axis.count - 1);
            table[j * row + f] = static_cast<int32_t>(smaller(axis.starts[o] + j, axis.stops[o] - 1) * g.inner + f % g.inner);
        }
    return table;
}

// Calls reduce_row for every output row of a box. The Reducer's view `x` is the one its taps point into.
template <class Reducer> void reduce_box(Reducer& r, const Geometry& g, const Box& box, Scratch& scratch) {
    using Stored = typename Reducer::Stored;
    Tap* taps = static_cast<Tap*>(reserve(scratch, 0, sizeof(Tap) * static_cast<size_t>(most_window_taps(g))));
    RowWalk walk;
    if (!first_row(box, g.rank, walk)) return;
    if constexpr (Reducer::lanes > 1) r.positions = listed_positions<Reducer::lanes>(g, scratch, 1);
    const View& x = r.source();
    const int64_t low = static_cast<const Stored*>(x.begin) - static_cast<const Stored*>(x.data);
    const int64_t high = static_cast<const Stored*>(x.end) - static_cast<const Stored*>(x.data);
    do {
        const int64_t n = window_taps(g, walk.at, x.step, taps, follows_plane(g, box, walk.at, Reducer::lanes)), rows = r.rows_together(box, walk);
        for (int64_t i = box.n; i < box.n_end; ++i) {   // the same rows of all images: what is known of one holds for the others
            const int64_t image = outer_offset(x, i);
            r.begin_row(taps, n, i, walk);
            const int64_t w0 = box.low[g.rank - 1], w1 = box.high[g.rank - 1];
            if (!r.whole_rows(w0, w1, rows))
                for (int64_t q = 0; q < rows; ++q, r.next_row()) {
                    const int64_t from = image + q * r.x_row;
                    if (rows == 1 || !r.whole_rows(w0, w1, 1)) reduce_row(r, g, w0, w1, from + taps[0].offset, from + taps[n - 1].offset, low, high);
                }
            r.end_rows(rows * (w1 - w0) * g.inner);
        }
        if (rows > 1) walk.at[g.rank - 2] += rows - 1;
    } while (next_row(box, g.rank, walk));
    r.finish();
}

}  // namespace
}  // namespace poolgrad
