// What the kernels are asked to do, and the table of kernels that each instruction set provides.
#pragma once

#include "geometry.hpp"

namespace poolgrad {

// Whether the windows that are used most have ways of their own in the kernels with such vectors. On x86-64 those without AVX2 are built
// quickly instead, in half the time.
static constexpr bool hurried([[maybe_unused]] int vector_bytes) {
#if defined(__x86_64__)
    return vector_bytes > 16;
#else
    return true;
#endif
}

// What picks the element of a window: its maximum, equality with a given value, or a given code.
enum class Mode : int { maximum, equal, choice };
// What is written for a window: the element itself, its code, both, or the element of another array at the same place.
enum class What : int { value, code, both, take };

// choose, take and their fusions: one element per window.
struct Scan {
    const Geometry* geometry;
    DType type;
    Mode mode;
    What what;
    bool ignore_nan;
    bool streaming;    // write past the caches
    View x;            // input-shaped: compared
    View v;            // input-shaped: taken from (What::take)
    View wanted;       // output-shaped: values (Mode::equal) or codes (Mode::choice)
    View y;            // output-shaped result
    View code;         // output-shaped result
    int code_width;
    bool* declined;    // if not null, the job is only done in the quickest way; set if that is not open, or if maxima are not the wanted values
};

// put: every input element adds the gradients of the windows that chose it; with `assign` the last of them replaces.
struct Put {
    const Geometry* geometry;
    DType type;
    bool assign;
    bool streaming;
    View g;            // output-shaped
    View code;         // output-shaped
    int code_width;
    View gx;           // input-shaped result
};

// take and put over windows that lie apart (apart.cpp), from a choice or with the winners found on the way. The boxes are of outputs; put
// writes all inputs that belong to them.
struct Apart {
    const Geometry* geometry = nullptr;
    DType type;
    Mode mode;
    bool put = false;
    bool ignore_nan = false;
    bool streaming = false;
    View x = {};         // input-shaped: compared
    View wanted = {};    // output-shaped: values (Mode::equal) or codes of one byte (Mode::choice)
    View given;          // output-shaped for put, input-shaped for take
    View result = {};    // and the other way round
};

constexpr int64_t most_apart = 64;   // elements of such a window

constexpr int64_t threes_together = int64_t{1} << 11;   // bytes of rows that are written together (threes.hpp)

// How many rows of so many bytes are whole lines of the cache.
static inline int64_t rows_in_lines(int64_t bytes) {
    int64_t rows = 1;
    while (rows * bytes % 64 != 0) rows *= 2;
    return rows;
}

// How far windows of 3 x 3 elements on the last two axes are apart: 1, 2 or 0 for other windows, and where more than two planes of them
// share an element (threes.hpp).
static inline int threes_apart(const Geometry& g) {
    constexpr int64_t most_columns = 4096;   // so that some rows fit the first caches
    if (g.inner != 1 || g.rank < 2 || g.elements > 27 || g.axes[g.rank - 1].size > most_columns) return 0;
    const int64_t stride = g.axes[g.rank - 1].stride;
    int64_t planes = 1;
    for (int a = 0; a < g.rank; ++a) {
        const Axis& axis = g.axes[a];
        if (!axis.uniform) return 0;
        if (a < g.rank - 2) planes *= (axis.window - 1) * axis.dilation / axis.stride + 1;
        else if (axis.window != 3 || axis.extent != 3 || axis.dilation != 1 || axis.stride != stride) return 0;
    }
    return stride <= 2 && planes <= 2 ? static_cast<int>(stride) : 0;
}

// Whether windows are of 3 x 3 elements in planes of one channel, one apart, and have a real element in their middle (around.hpp).
static inline bool around_elements(const Geometry& g) {
    if (g.rank != 2 || threes_apart(g) != 1) return false;
    const auto real = [](const Axis& axis) { return axis.before >= 0 && axis.before <= 1 && axis.count - axis.before < axis.size; };
    return real(g.axes[0]) && real(g.axes[1]);
}

// Whether there is one around every element.
static inline bool around_all(const Geometry& g) {
    return around_elements(g) && g.axes[0].count == g.axes[0].size && g.axes[1].count == g.axes[1].size && g.axes[0].before == 1 &&
           g.axes[1].before == 1;
}

// How many rows of elements lie in each row of windows, if these have two elements along a row of one channel, lie side by side without
// padding, and all averages over them are divided alike; 0 for other windows, and where it is many rows.
constexpr int64_t most_beside = 16;

static inline int64_t rows_beside(const Geometry& g) {
    int64_t rows = g.inner == 1 && g.axes[g.rank - 1].stride == 2 ? 1 : 0;
    for (int a = 0; a < g.rank && rows <= most_beside; ++a) {
        const Axis& axis = g.axes[a];
        const bool beside = axis.uniform && axis.dilation == 1 && axis.before == 0 && axis.window == axis.stride;
        if (!beside || axis.size != axis.count * axis.stride || axis.even_begin != 0 || axis.even_end != axis.count) return 0;
        if (a < g.rank - 1) rows *= axis.stride;
    }
    return rows <= most_beside ? rows : 0;
}

// Whether windows overlap, but are so few that most elements lie in the same ones as their neighbours.
static inline bool few_windows(const Axis& axis) { return axis.uniform && axis.window > axis.stride && axis.count <= axis.size / 32; }

// mean: the sum of the real elements of every window over its divisor, which is their number unless the axes say otherwise.
struct Mean {
    const Geometry* geometry;
    DType type;
    bool streaming;
    View x;
    View y;
};

// spread, the transpose of mean.
struct Spread {
    const Geometry* geometry;
    DType type;
    bool streaming;
    bool exact;        // no element lies in two windows, and all divisors are powers of two
    View g;
    View gx;
};

// turn: the elements [0, count) of several planes side by side, turned[i * pitch + p] = planes[p][i]; or back.
// There are as many planes as elements of `widest` bytes in a vector.
struct Turn {
    int bytes, widest;
    int64_t count;
    void* const* planes;
    void* turned;
    int64_t pitch;
    bool back;
    bool streaming;
    int real;          // how many planes are written
    int64_t ahead;     // how far ahead planes are asked for, in bytes; 0 for not
};

// ---- large overlapping windows --------------------------------------------------------------------------------------
// Where windows overlap many times, visiting every element of every window is too slow. Maxima and sums are then built
// axis by axis, on arrays seen as [lines, size, columns], by doubling: log2(window) steps for an axis.

// A part of such a pass: of one line the results [low, high) along the axis, in the columns [left, right).
struct Part {
    int64_t line, low, high, left, right;
};

// What travels with a maximum: nothing, the code of the element, or the element of another array at the same place.
enum class Carry : int { nothing, codes, elements };

// The maximum along one axis, last axis first: from elements or from what the axis before gave, to what the next axis needs
// or to the result. Between axes, keys and what they carry have lanes of one width (at least 32 bits).
struct AxisMaximum {
    const Axis* axis;
    DType type;
    bool ignore_nan;
    Carry carry;
    int64_t columns;
    int64_t code_step;
    const Geometry* geometry;    // of the elements x and v, for the first axis that is done; else null
    View x, v;
    int64_t first_line;          // of x and v
    const void *keys, *carried;
    void *keys_out, *carried_out;
    void* result;                // maxima, codes, or elements of v
    int code_width;              // of the codes in bytes
    void* maxima;                // next to codes, or null
    const void* expected;        // the maxima, if somebody knows them; for the last axis
    bool* unexpected;            // set if they are others
};

// What averages divide by on other axes: the product at a position, which stays the same up to `until`.
struct Divisor {
    int64_t value, until;
};

// The sum along one axis: over the windows of every output, or (transposed) over the windows that contain every input.
struct AxisSum {
    const Axis* axis;
    DType type;
    bool transposed;
    int64_t columns, inner, lines;
    const Geometry* geometry;        // of the elements, for the first axis that is done; else null
    View elements;
    int64_t first_line;              // of the elements
    const void* sums;
    void* sums_out;
    void* result;                    // for the last axis that is done
    const int64_t* line_divisors;    // of the axes before, one for every line of an image
    int64_t lines_of_image;
    const Divisor* divisors;         // of the axes behind, one for every `inner` columns; or null
};

// A kernel writes the box of its result, completely, and nothing else. Boxes may run in any order and on any thread.
struct Kernels {
    const char* name;
    int vector_bytes;
    void (*scan)(const Scan&, const Box& outputs, Scratch&);
    void (*put)(const Put&, const Box& inputs, Scratch&);
    void (*apart)(const Apart&, const Box& outputs, Scratch&);
    void (*mean)(const Mean&, const Box& outputs, Scratch&);
    void (*spread)(const Spread&, const Box& inputs, Scratch&);
    void (*spread_beside)(const Spread&, const Box& outputs);   // floats only; see rows_beside
    // The same results for large windows: by decoding each code, and axis by axis.
    void (*take_coded)(const Scan&, const Box& outputs, Scratch&);
    void (*put_coded)(const Put&, const Box& inputs, Scratch&);   // from windows to elements
    void (*axis_maximum)(const AxisMaximum&, const Part&, Scratch&);
    void (*axis_sum)(const AxisSum&, const Part&, Scratch&);
    void (*turn)(const Turn&);
};

// The kernels for this processor, or those of a named instruction set (null if there are none or it cannot run them).
const Kernels& kernels();
const Kernels* find_kernels(const char* name);
void use_kernels(const Kernels& choice);
const char* const* kernel_names();   // null-terminated; only those this processor can run

// Whether one instruction that reads many places is quicker than many that read one. Measured on an Ice Lake it is up to nine times as slow
// (probably for the microcode that keeps gathers from leaking data), so Intel's processors do without.
bool gathers_are_quick();
// Whether a few channels of every position are read from memory as quickly as all of them in the order they lie in: on a Zen 4.
bool lines_apart_are_quick();

}  // namespace poolgrad
