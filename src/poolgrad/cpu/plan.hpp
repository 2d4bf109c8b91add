// A pooling problem made ready for the kernels, and the operations on whole arrays that the rest of the library calls.
#pragma once

#include <memory>
#include <vector>

#include "kernels.hpp"

namespace poolgrad {

struct AxisSpec {
    int64_t size, count, window, stride, before, dilation, extent;
    std::vector<int64_t> starts, stops;   // empty for regular windows
    std::vector<int64_t> divisors;        // empty: averages divide by the number of real elements
};

class Plan {
public:
    Plan(int64_t outer, int64_t inner, int64_t image_outer, const std::vector<AxisSpec>& axes);
    Plan(const Plan&) = delete;

    const Geometry& geometry() const { return g_; }
    View dense(const void* data, bool outputs, int64_t bytes) const;   // a contiguous array of the input or output shape
    int64_t inputs() const { return inputs_; }                         // elements of the whole input and output
    int64_t outputs() const { return outputs_; }

    // The five maps and their fusions. Null pointers in `code` or `y` of maximum mean: not wanted.
    void maximum(DType type, const View& x, void* y, void* code, int code_width, bool ignore_nan) const;
    void take(DType type, const View& v, const void* code, int code_width, void* y) const;
    void put(DType type, const View& g, const void* code, int code_width, void* gx, bool assign) const;
    void mean(DType type, const View& x, void* y) const;
    void spread(DType type, const View& g, void* gx) const;
    // choose + put and choose + take; with `equal`, the first element equal to it is chosen.
    void max_put(DType type, const View& x, const View& g, const void* equal, void* gx, bool ignore_nan) const;
    void max_take(DType type, const View& x, const View& v, const void* equal, void* y, bool ignore_nan) const;
    // The same where every element equal to y belongs to the choice.
    void ties_put(DType type, const View& x, const void* y, const View& g, void* gx, bool split) const;
    void ties_take(DType type, const View& x, const void* y, const View& v, void* out, bool split) const;

    // Flat indices: scope 0 counts within the spatial block, 1 within an image, 2 within the whole array.
    void code_to_index(const void* code, int code_width, int scope, void* index, int index_width) const;
    // The first output whose code or index names no element (of its window; of its image), or -1.
    int64_t find_bad_code(const void* code, int code_width) const;
    int64_t find_bad_index(const void* index, int index_width, int scope) const;
    void index_put(DType type, const View& g, const void* index, int index_width, int scope, void* gx) const;
    void index_take(DType type, const View& v, const void* index, int index_width, int scope, void* y) const;

private:
    Geometry g_;
    std::vector<std::vector<int64_t>> lists_;
    int64_t inputs_, outputs_;
    // Whether windows overlap so often that maxima, their codes and sums are made axis by axis.
    bool large_, large_coded_, large_sums_;
    bool few_visits_;   // even where large_ says otherwise, if visits of rows and of columns add up
    bool listed_ = false;        // the windows of some axis
    double overlap_, visits_;   // per element: of all windows, and if the rows of windows are done first
    bool exact_shares_; // every input has one share at most, and all are halves of halves
    int64_t in_size(int a) const { return g_.axes[a].size; }
    int64_t out_size(int a) const { return g_.axes[a].count; }

    std::unique_ptr<const Plan> joined_;   // all images as one, if they are small and can be

    struct Tiles;
    Tiles tiles(bool outputs, int64_t bytes, double scratch_bytes, bool slides) const;
    bool alone(int64_t bytes) const;
    template <class F> void each_box(bool outputs, int64_t bytes, double scratch_bytes, F&& f, int64_t grouped = 0, bool slides = false) const;
    int64_t streams() const;
    template <class F> void each_slab(F&& f) const;
    // What is done with planes that are turned first (see turned.hpp).
    enum class Map { maximum, take, max_take, put, max_put, mean, spread };
    bool turns(Map map, DType type) const;
    const Plan* joined(Map map, DType type, const View* in, const View* out) const;
    bool all_threes() const;
    bool cut_turned(bool outputs, int64_t element_bytes, int in_arrays, int out_arrays, double most, Tiles& t) const;
    template <class F> bool each_turned(bool outputs, int64_t bytes, int in_arrays, int out_arrays, F&& f) const;
    template <class Job, class Kernel> bool sum_turned(const Job& job, View Job::* from, View Job::* to, bool outputs, Kernel kernel) const;
    template <class F> void each_group(int64_t bytes, F&& f) const;
    bool streaming(const void* data, int64_t elements, int64_t bytes) const;
    int equal_width() const;
    bool no_windows(void* gx, int64_t bytes) const;
    bool beside_in_lines(DType type, const void* gx) const;
    bool lie_apart(DType type) const;
    bool apart(Apart job, const void* wanted, void* result) const;
    bool by_slabs(DType type) const;
    bool follows_codes(DType type) const;
    bool in_lines(int64_t bytes) const;
    bool in_threes(DType type) const;
    bool by_columns(int64_t bytes) const;
    bool only_by_columns(int64_t bytes) const;
    bool by_neighbours(DType type, bool ignore_nan) const;
    bool slides() const { return g_.rank == 2 || g_.rank == 3; }   // put that follows codes: along the first axis
    bool slides_over(const Scan& job) const;
    bool overlaps_boxes(int64_t bytes, double scratch_bytes, bool slides) const;
    View room_of(const Box& outputs, int64_t bytes, Scratch& scratch, int slot) const;
    void choose_all(Scan job, const void* equal, void* codes) const;
    void choose(Scan job, const void* equal, const Box& box, Scratch& scratch) const;
    Scan scan_job(DType type, bool ignore_nan) const;
    int innermost(const View& view) const;
    int outermost() const;
    bool choose_large(DType type, const View& x, bool ignore_nan, Carry carry, const View& v, void* result, int code_width = 0,
                      const void* expected = nullptr, void* maxima = nullptr) const;
    void sum_large(DType type, bool transposed, const View& elements, void* result) const;
    void match_large(DType type, const View& x, const void* equal, bool ignore_nan, void* codes, int width) const;
};

}  // namespace poolgrad
