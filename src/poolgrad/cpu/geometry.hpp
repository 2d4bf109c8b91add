// The plain data every kernel works on: windows per axis, arrays, boxes of work. No kernel knows more geometry than this.
//
// This header is compiled once per instruction set, so it holds data and `static inline` functions only: nothing that
// a linker could merge between translation units built for different processors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace poolgrad {

constexpr int max_axes = 30;

enum class DType : int { f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64 };

static inline int64_t dtype_bytes(DType type) {
    switch (type) {
        case DType::i8:
        case DType::u8: return 1;
        case DType::f16:
        case DType::bf16:
        case DType::i16:
        case DType::u16: return 2;
        case DType::f32:
        case DType::i32:
        case DType::u32: return 4;
        default: return 8;
    }
}

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }

// The windows of one axis. Output o reads positions origin(o) + j * dilation, j = 0, 1, ..., as far as they are real.
struct Axis {
    int64_t size;      // length of the input axis
    int64_t count;     // number of windows
    int64_t window;    // nominal elements per window     (regular windows)
    int64_t stride;    //                                 (regular windows)
    int64_t before;    // padding in front                (regular windows)
    int64_t dilation;
    int64_t extent;    // local positions lie in [0, extent)
    const int64_t *starts, *stops;   // listed windows; null for regular ones
    const int64_t *firsts, *lasts;   // the windows that contain i are [firsts[i], lasts[i]); null on very long regular axes
    int64_t whole_begin, whole_end;  // the windows that no padding cuts short (uniform axes)
    const int64_t* divisors;         // what averages divide by; null for the number of real elements
    int64_t even_begin, even_end;    // whole windows with one divisor
    bool uniform;      // origin(o) == o * stride - before for every window, so local positions repeat with the stride
};

static inline int64_t nominal_origin(const Axis& a, int64_t o) { return a.starts ? a.starts[o] : o * a.stride - a.before; }

// Where local position 0 of window o lies; may be negative where padding is. Never below 1 - size, so that codes stay small.
static inline int64_t origin(const Axis& a, int64_t o) {
    int64_t at = nominal_origin(a, o);
    if (at < 1 - a.size) at += ceil_div(1 - a.size - at, a.dilation) * a.dilation;
    return at;
}

// The real elements of window o: local positions [first, first + length).
struct Span {
    int64_t first, length;
};

static inline Span span(const Axis& a, int64_t o) {
    if (o >= a.whole_begin && o < a.whole_end) return {0, a.window};
    if (a.starts) return {0, a.stops[o] - a.starts[o]};
    const int64_t nominal = o * a.stride - a.before, start = origin(a, o);
    const int64_t first = start < 0 ? (-start + a.dilation - 1) / a.dilation : 0;
    const int64_t skipped = start == nominal ? 0 : (start - nominal) / a.dilation;
    int64_t stop = a.window - skipped;
    const int64_t room = a.size - start;   // positions before the end of the axis
    const int64_t fits = a.dilation == 1 ? room : (room + a.dilation - 1) / a.dilation;
    if (fits < stop) stop = fits;
    return {first, stop - first};
}

// What an average over window o divides by, as far as this axis is concerned.
static inline int64_t divisor(const Axis& a, int64_t o) { return a.divisors ? a.divisors[o] : span(a, o).length; }

// The windows that may contain input i: [first, last). With a dilation, contains() says which of them do.
struct Cover {
    int64_t first, last;
};

static inline Cover cover(const Axis& a, int64_t i) {
    if (a.firsts) return {a.firsts[i], a.lasts[i]};
    const int64_t at = i + a.before, reach = (a.window - 1) * a.dilation;
    const int64_t last = smaller(at / a.stride + 1, a.count);
    const int64_t first = at > reach ? smaller((at - reach + a.stride - 1) / a.stride, a.count) : 0;
    return {first, larger(first, last)};
}

static inline bool contains(const Axis& a, int64_t o, int64_t i) { return a.dilation == 1 || (i - nominal_origin(a, o)) % a.dilation == 0; }

static inline int64_t local(const Axis& a, int64_t o, int64_t i) {
    const int64_t distance = i - origin(a, o);
    return a.dilation == 1 ? distance : distance / a.dilation;
}

// A pooling problem: `outer` independent images, `rank` spatial axes, `inner` contiguous channels.
// The last axis together with the channels is called a row.
struct Geometry {
    int64_t outer;
    int64_t inner;
    int rank;
    int64_t image_outer;            // outer positions that belong to one image (for indices into an image)
    int64_t elements;               // product of the extents
    Axis axes[max_axes];
    int64_t code_step[max_axes];    // what one local position on an axis adds to a code
};

// Whether neighbours in a row lie so far apart that no vector holds them as they are. It does if they begin everywhere, and
// can leave out every second of single elements.
static inline bool parted(int64_t stride, int64_t inner) { return stride > 1 && (stride > 2 || inner > 1); }

// Whether such windows are brought together first: what is a stride apart is copied side by side.
static inline bool brought_together(const Geometry& g) {
    const Axis& axis = g.axes[g.rank - 1];
    return axis.uniform && parted(axis.stride, g.inner) && axis.stride <= 2 * axis.window;   // else most would be copied in vain
}

// Whether windows begin at every position of two axes and are small: neighbours have most elements in common. What the rows hand
// to the columns (slide.hpp) must fit a cache.
constexpr int64_t most_everywhere = 16;                // elements of a window on an axis
constexpr int64_t columns_everywhere = 16;             // windows of a row that are worked on together, at least
constexpr int64_t kept_everywhere = int64_t{1} << 19;  // elements that are kept for them, at most

static inline bool begins_everywhere(const Geometry& g) {
    bool all = g.rank == 2 && g.inner <= kept_everywhere / columns_everywhere / (g.axes[0].window + 3);
    for (int a = 0; all && a < 2; ++a)
        all = g.axes[a].uniform && g.axes[a].stride == 1 && g.axes[a].dilation == 1 && g.axes[a].window > 1 && g.axes[a].window <= most_everywhere;
    return all;
}

// An array seen as [outer..., axes..., inner]: rows are contiguous, everything before them has a stride (in elements).
struct View {
    void* data;
    int64_t outer_split;            // outer index n is (n / outer_split, n % outer_split)
    int64_t outer_step[2];
    int64_t step[max_axes];         // one per axis; step[rank - 1] is `inner`
    const void *begin, *end;        // the memory that may be read
};

static inline int64_t outer_offset(const View& v, int64_t n) {
    return v.outer_split == 1 ? n * v.outer_step[0] : n / v.outer_split * v.outer_step[0] + n % v.outer_split * v.outer_step[1];
}

// A box of work: a range of images and a range on every axis.
struct Box {
    int64_t n, n_end;
    int64_t low[max_axes], high[max_axes];
};

// Walks the rows of a box in scan order; `at` holds the position on all axes but the last.
struct RowWalk {
    int64_t at[max_axes];
};

static inline bool first_row(const Box& box, int rank, RowWalk& walk) {
    for (int a = 0; a < rank; ++a) {
        if (box.low[a] >= box.high[a]) return false;
        walk.at[a] = box.low[a];
    }
    return true;
}

static inline bool next_row(const Box& box, int rank, RowWalk& walk) {
    for (int a = rank - 2; a >= 0; --a) {
        if (++walk.at[a] < box.high[a]) return true;
        walk.at[a] = box.low[a];
    }
    return false;
}

static inline int64_t row_offset(const View& v, int64_t n, const RowWalk& walk, int rank) {
    int64_t offset = outer_offset(v, n);
    for (int a = 0; a < rank - 1; ++a) offset += walk.at[a] * v.step[a];
    return offset;
}

// One row that takes part in a result row: where it starts (relative to its image), what it adds to a code, and what an
// average divides by on the axes before the last.
struct Tap {
    int64_t offset;
    int64_t code_offset;   // the same row in the array of codes (gradients only)
    int64_t code;
    int64_t divisor;
    bool fresh;            // the output row before has not read it
    bool known = false;    // but the plane of outputs before has
};

// How many input rows an output row reads at most, and how many output rows an input row collects from.
static inline int64_t most_window_taps(const Geometry& g) {
    int64_t taps = 1;
    for (int a = 0; a < g.rank - 1; ++a) taps *= g.axes[a].extent;
    return taps;
}

static inline int64_t most_cover_taps(const Geometry& g) {
    int64_t taps = 1;
    for (int a = 0; a < g.rank - 1; ++a) {
        const Axis& axis = g.axes[a];
        int64_t windows = smaller(axis.count, ((axis.window - 1) * axis.dilation) / axis.stride + 1);
        if (axis.starts) {
            windows = 1;
            for (int64_t i = 0; i < axis.size; ++i) windows = larger(windows, axis.lasts[i] - axis.firsts[i]);
        }
        taps *= windows;
    }
    return taps;
}

// Whether the output row at `at` follows a plane of outputs in its box, and what they both read is not worth asking for again: the second
// cache has it. (Along rows of one channel it is: the processor follows them better so.)
static inline bool follows_plane(const Geometry& g, const Box& box, const int64_t* at, int64_t lanes) {
    return g.rank > 2 && g.inner >= lanes && at[g.rank - 3] > box.low[g.rank - 3];
}

// Whether rows, of one channel, are short and follow one another in memory: several of them lie in a page.
static inline bool rows_follow(const Geometry& g, const int64_t* step) {
    constexpr int64_t most = 1024;   // elements
    const int64_t row = g.axes[g.rank - 1].size;
    return g.rank > 1 && g.inner == 1 && row <= most && step[g.rank - 2] == row && g.axes[g.rank - 2].dilation == 1;
}

// The input rows that output row `at` reads, in scan order. With `after_plane` a plane of outputs came before.
static inline int64_t window_taps(const Geometry& g, const int64_t* at, const int64_t* step, Tap* taps, bool after_plane = false) {
    taps[0] = {0, 0, 0, 1, true};
    int64_t n = 1;
    for (int a = 0; a < g.rank - 1; ++a) {
        const Axis& axis = g.axes[a];
        const Span s = span(axis, at[a]);
        const int64_t shared = s.length - axis.stride, old_rows = a == g.rank - 2 ? shared : 0,
                      old_planes = after_plane && a == g.rank - 3 ? shared : 0;
        const int64_t start = (origin(axis, at[a]) + s.first * axis.dilation) * step[a], code = s.first * g.code_step[a];
        for (int64_t t = n - 1; t >= 0; --t) {   // from the back, so that the list can grow in place
            const Tap tap = taps[t];
            for (int64_t j = s.length - 1; j >= 0; --j)
                taps[t * s.length + j] = {tap.offset + start + j * axis.dilation * step[a],
                                          0,
                                          tap.code + code + j * g.code_step[a],
                                          tap.divisor * divisor(axis, at[a]),
                                          j >= old_rows,
                                          tap.known || j < old_planes};
        }
        n *= s.length;
    }
    return n;
}

// The output rows whose windows contain input row `at`, in ascending order, in two arrays of that shape.
static inline int64_t cover_taps(const Geometry& g, const int64_t* at, const int64_t* step, const int64_t* code_step, Tap* taps) {
    taps[0] = {0, 0, 0, 1, false};
    int64_t n = 1;
    for (int a = 0; a < g.rank - 1; ++a) {
        const Axis& axis = g.axes[a];
        const Cover c = cover(axis, at[a]);
        int64_t hits = 0;
        for (int64_t o = c.first; o < c.last; ++o) hits += contains(axis, o, at[a]);
        for (int64_t t = n - 1; t >= 0; --t) {
            const Tap tap = taps[t];
            int64_t j = hits;
            for (int64_t o = c.last - 1; o >= c.first; --o) {
                if (!contains(axis, o, at[a])) continue;
                taps[t * hits + --j] = {tap.offset + o * step[a], tap.code_offset + o * code_step[a],
                                        tap.code + local(axis, o, at[a]) * g.code_step[a], tap.divisor * divisor(axis, o), false};
            }
        }
        n *= hits;
    }
    return n;
}

// Growing scratch memory of one worker thread; contents are undefined. Slots do not disturb each other.
struct Scratch {
    static constexpr int slots = 13;   // the first 8 are the kernels'
    void* memory[slots];
    size_t bytes[slots];
};

void* reserve(Scratch& scratch, int slot, size_t bytes);   // 64-byte aligned; throws std::bad_alloc

}  // namespace poolgrad
