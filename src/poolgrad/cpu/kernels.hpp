// What the kernels are asked to do, and the table of kernels that each instruction set provides.
#pragma once

#include "geometry.hpp"

namespace poolgrad {

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
    View g;
    View gx;
};

// ---- large overlapping windows --------------------------------------------------------------------------------------
// Where windows overlap many times, visiting every element of every window is too slow. Maxima and sums are then built
// axis by axis, on arrays seen as [lines, size, columns], by doubling: log2(window) steps for an axis.

// The maximum along one axis, last axis first. Keys and codes of the axes behind come in, those with this axis go out.
// Without codes_out only the maxima are found, which is quicker.
struct AxisMaximum {
    const Axis* axis;
    DType type;
    bool ignore_nan;
    int64_t columns;
    int64_t code_step;
    const void* raw;             // the elements themselves, for the first axis that is done
    const void* keys;            // else what the axis before gave
    const uint32_t* codes;
    void* keys_out;              // any of these may be null
    uint32_t* codes_out;
    void* values_out;            // what the keys stand for
};

// The sum along one axis: over the windows of every output, or (transposed) over the windows that contain every input.
struct AxisSum {
    const Axis* axis;
    DType type;
    bool transposed;
    int64_t columns;
    const void* sums;
    void* sums_out;
};

struct Columns {
    int64_t line, low, high;
};

// A kernel writes the box of its result, completely, and nothing else. Boxes may run in any order and on any thread.
struct Kernels {
    const char* name;
    void (*scan)(const Scan&, const Box& outputs, Scratch&);
    void (*put)(const Put&, const Box& inputs, Scratch&);
    void (*mean)(const Mean&, const Box& outputs, Scratch&);
    void (*spread)(const Spread&, const Box& inputs, Scratch&);
    // The same results for large windows: by decoding each code, and from sums that were made axis by axis.
    void (*take_coded)(const Scan&, const Box& outputs, Scratch&);
    void (*put_coded)(const Put&, const Box& inputs, Scratch&);   // boxes are cut on the first axis only
    void (*axis_maximum)(const AxisMaximum&, const Columns&, Scratch&);
    void (*axis_sum)(const AxisSum&, const Columns&, Scratch&);
    void (*mean_begin)(const Mean&, const Box& inputs, void* sums);          // x -> sums
    void (*mean_end)(const Mean&, const Box& outputs, const void* sums);     // sums -> y
    void (*spread_begin)(const Spread&, const Box& outputs, void* sums);     // weighted g -> sums
    void (*spread_end)(const Spread&, const Box& inputs, const void* sums);  // sums -> gx
};

// The kernels for this processor, or those of a named instruction set (null if there are none or it cannot run them).
const Kernels& kernels();
const Kernels* find_kernels(const char* name);
void use_kernels(const Kernels& choice);
const char* const* kernel_names();   // null-terminated; only those this processor can run

}  // namespace poolgrad
