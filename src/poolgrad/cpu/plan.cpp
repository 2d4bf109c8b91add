#include "plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "sums.hpp"
#include "threads.hpp"
#include "turned.hpp"

namespace poolgrad {
namespace {

constexpr int64_t small_work = int64_t{1} << 19;      // bytes below which threads cost more than they bring, if windows share nothing
constexpr int64_t tile_bytes = int64_t{1} << 18;      // of work in one task, at least
constexpr int64_t cache_bytes = int64_t{1} << 19;     // what neighbouring windows should find still in the cache
constexpr int64_t most_streams = 6;                   // large images read side by side: as many as a processor follows ahead,
constexpr int64_t few_streams = 2;                    // or as pay with AVX2 where no rows are shared by many
constexpr int64_t large_work = int64_t{1} << 21;      // bytes that do not stay in the cache between calls
constexpr int64_t small_image = int64_t{1} << 14;     // bytes that count as one stream however many images they hold
constexpr int64_t streaming_bytes = int64_t{1} << 23; // results larger than this are written past the caches
constexpr int64_t turned_bytes = int64_t{1} << 19;    // of planes that are turned at a time,
constexpr int64_t most_planes = 64;                   // and how many of them, unless a vector has more lanes
constexpr int64_t table_limit = int64_t{1} << 20;     // axes up to this length keep a table of covering windows
constexpr int64_t part_bytes = int64_t{1} << 16;      // of one part of an axis that is worked on by doubling
constexpr int64_t part_columns = 64;
constexpr int64_t between_bytes = int64_t{1} << 22;   // of what one axis hands to the next
constexpr double large_overlap = 24.0;                // visits per element from which doubling pays: for maxima,
constexpr double large_coded_overlap = 64.0;          // for their codes if windows have several rows,
constexpr double large_additions = 32.0;              // and additions per element (rows first, then along the row) for sums
constexpr double shared_overlap = 2.0;                // windows per element from which a maximum is found sooner than a given value,
constexpr double crowded_overlap = 100.0;             // and from which nothing but following codes pays for put
constexpr int64_t many_elements = 25;                 // elements of a window from which following codes pays in vectors of channels
constexpr int64_t many_bytes = 54;                    // unless the elements are so narrow that vectors hold many of them
constexpr double many_sums = 80.0;                    // and bytes of the sums that an element takes part in from which put does
constexpr int64_t most_by_columns = 64;               // elements of windows whose codes are found column by column (scan.cpp)
constexpr int64_t joined_inputs = int64_t{1} << 17;   // elements of images that are done as one,
constexpr int64_t joined_rows = int64_t{1} << 12;     // and rows of it
constexpr int64_t few_elements = 9;                   // from which following codes pays along rows although they have to be found first

// Scratch arrays of a whole operation.
struct Buffer {
    Block block;
    explicit Buffer(int64_t bytes) : block(take_block(static_cast<size_t>(bytes))) {}
    ~Buffer() { give_block(block); }
    Buffer(const Buffer&) = delete;
    template <class T> T* as() const { return static_cast<T*>(block.data); }
};

bool sixteen_bits(DType type) { return type == DType::f16 || type == DType::bf16; }

// What put adds up in.
int64_t sum_bytes(DType type) { return sixteen_bits(type) ? 4 : dtype_bytes(type); }

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

int width_for(uint64_t values) { return values <= 256 ? 1 : values <= 65536 ? 2 : values <= (uint64_t{1} << 32) ? 4 : 8; }

}  // namespace

Plan::Plan(int64_t outer, int64_t inner, int64_t image_outer, const std::vector<AxisSpec>& axes) : g_{} {
    g_.outer = outer;
    g_.inner = inner;
    g_.image_outer = std::max<int64_t>(1, image_outer);
    g_.rank = static_cast<int>(axes.size());
    g_.elements = 1;
    inputs_ = outputs_ = outer * inner;
    double overlap = 1, rows = 1, along = 1;   // visits per element: of all windows, of rows of them, and along a row
    for (int a = g_.rank - 1; a >= 0; --a) {
        const AxisSpec& spec = axes[static_cast<size_t>(a)];
        Axis& axis = g_.axes[a];
        const bool listed = !spec.starts.empty();
        axis = {};
        axis.size = spec.size;
        axis.count = spec.count;
        axis.stride = listed ? 1 : spec.stride;
        axis.before = spec.before;
        axis.dilation = spec.dilation;
        axis.extent = std::max<int64_t>(1, spec.extent);
        // What lies beyond the end of the axis for every window need not be visited.
        axis.window = listed ? spec.extent : std::min(spec.window, (spec.size - 1 + spec.before) / spec.dilation + 1);
        axis.uniform = !listed && spec.before <= spec.size - 1;
        if (axis.uniform) {
            axis.whole_begin = std::min(axis.count, ceil_div(axis.before, axis.stride));
            const int64_t reach = (axis.window - 1) * axis.dilation;
            axis.whole_end = std::max(axis.whole_begin, std::min(axis.count, floor_div(axis.size - 1 - reach + axis.before, axis.stride) + 1));
        }
        axis.even_begin = axis.whole_begin;
        axis.even_end = axis.whole_end;
        if (!spec.divisors.empty()) {
            const int64_t* divisors = axis.divisors = lists_.emplace_back(spec.divisors).data();
            const int64_t middle = (axis.whole_begin + axis.whole_end) / 2;
            axis.even_begin = axis.even_end = middle;
            while (axis.even_begin > axis.whole_begin && divisors[axis.even_begin - 1] == divisors[middle]) --axis.even_begin;
            while (axis.even_end < axis.whole_end && divisors[axis.even_end] == divisors[middle]) ++axis.even_end;
        }
        listed_ = listed_ || listed;
        if (listed) {
            axis.starts = lists_.emplace_back(spec.starts).data();
            axis.stops = lists_.emplace_back(spec.stops).data();
        }
        if (listed || axis.size <= table_limit) {
            std::vector<int64_t> firsts(static_cast<size_t>(axis.size)), lasts(firsts);
            int64_t first = 0, last = 0;
            for (int64_t i = 0; i < axis.size; ++i) {
                if (listed) {
                    while (first < axis.count && spec.stops[static_cast<size_t>(first)] <= i) ++first;
                    while (last < axis.count && spec.starts[static_cast<size_t>(last)] <= i) ++last;
                } else {
                    const Cover c = cover(axis, i);
                    first = c.first, last = c.last;
                }
                firsts[static_cast<size_t>(i)] = first;
                lasts[static_cast<size_t>(i)] = std::max(first, last);
            }
            axis.firsts = lists_.emplace_back(std::move(firsts)).data();
            axis.lasts = lists_.emplace_back(std::move(lasts)).data();
        }
        g_.code_step[a] = g_.elements;
        g_.elements *= axis.extent;
        inputs_ *= axis.size;
        outputs_ *= axis.count;
        const double reach = static_cast<double>(std::min(axis.window, axis.extent));
        const double visits = axis.size == 0 ? 1 : std::max(1.0, reach * static_cast<double>(axis.count) / static_cast<double>(axis.size));
        (a < g_.rank - 1 ? rows : along) *= visits;
        overlap *= visits;
    }
    // Positions and codes of the axis-by-axis kernels have 32 bits.
    bool fits = g_.elements < (int64_t{1} << 32);
    for (int a = 0; a < g_.rank; ++a) fits = fits && g_.axes[a].size < (int64_t{1} << 31);
    large_ = overlap > large_overlap && fits;
    overlap_ = overlap;
    visits_ = rows + along;
    few_visits_ = visits_ <= large_overlap;
    large_coded_ = overlap > (rows > 1 ? large_coded_overlap : large_overlap) && fits;
    large_sums_ = rows + along > large_additions && fits;
    exact_shares_ = true;
    for (int a = 0; a < g_.rank; ++a) {
        const Axis& axis = g_.axes[a];
        exact_shares_ = exact_shares_ && !axis.starts && axis.dilation == 1 && axis.window <= axis.stride;
        for (int64_t o = 0; exact_shares_ && o < axis.count; ++o) {
            exact_shares_ = is_power_of_two(divisor(axis, o));
            if (o >= axis.even_begin && o < axis.even_end) o = axis.even_end - 1;   // the others are divided alike
        }
    }
    // Whether windows side by side fill small images. (Wider ones are put quicker one by one.)
    bool filled = g_.rank > 1 && inner == 1 && outer > 1 && inputs_ <= joined_inputs && outer * g_.axes[0].size <= joined_rows &&
                  g_.axes[g_.rank - 1].window == 2;
    for (int a = 0; a < g_.rank; ++a) {
        const Axis& axis = g_.axes[a];
        const bool beside = axis.uniform && axis.before == 0 && axis.dilation == 1 && axis.window == axis.stride && axis.window == axis.extent;
        filled = filled && beside && axis.size == axis.count * axis.stride && !axis.divisors;
    }
    if (!filled) return;
    std::vector<AxisSpec> longer = axes;
    longer[0].size *= outer, longer[0].count *= outer;
    joined_ = std::make_unique<Plan>(1, inner, 1, longer);
}

// The same with all images as one, or null: where windows fill them, nothing tells where an image ends, and small ones need not begin one
// by one. `in` has the shape of the inputs, `out` that of the outputs; either may be missing.
const Plan* Plan::joined(Map map, DType type, const View* in, const View* out) const {
    const bool single = map == Map::maximum || map == Map::mean || map == Map::spread;   // else apart() comes first
    if (!joined_ || (turns(map, type) && (single || kernels().vector_bytes < 32 || !lie_apart(type)))) return nullptr;
    const auto follow = [](const View* v, int64_t size) { return !v || (v->outer_split == 1 && v->outer_step[0] == size * v->step[0]); };
    return follow(in, in_size(0)) && follow(out, out_size(0)) ? joined_.get() : nullptr;
}

View Plan::dense(const void* data, bool outputs, int64_t bytes) const {
    View v{};
    v.data = const_cast<void*>(data);
    v.outer_split = 1;
    int64_t step = g_.inner;
    for (int a = g_.rank - 1; a >= 0; --a) {
        v.step[a] = step;
        step *= outputs ? out_size(a) : in_size(a);
    }
    v.outer_step[0] = step;
    v.begin = data;
    v.end = static_cast<const char*>(data) + (outputs ? outputs_ : inputs_) * bytes;
    return v;
}

// ---- tiles ----------------------------------------------------------------------------------------------------------

struct Plan::Tiles {
    int rank;
    int64_t size[max_axes], tile[max_axes], count[max_axes], total;

    Box box(int64_t i) const {
        Box b;
        for (int a = rank - 1; a >= 0; --a) {
            const int64_t at = i % count[a];
            i /= count[a];
            b.low[a] = at * tile[a];
            b.high[a] = std::min(size[a], b.low[a] + tile[a]);
        }
        b.n = i;
        b.n_end = i + 1;
        return b;
    }
};

// Cuts the result into boxes: narrow on the middle axes, so that windows that are neighbours on the first axis find their
// common input in the cache, if they have any; never so small that starting a task shows. Kernels that slide along the first axis have room for some
// positions of it only, so their boxes may be long there; and neighbours should not both do the same windows. Others need
// `scratch_bytes` for every element of a box.
Plan::Tiles Plan::tiles(bool outputs, int64_t bytes, double scratch_bytes, bool slides) const {
    Tiles t{};
    t.rank = g_.rank;
    const int last = g_.rank - 1;
    for (int a = 0; a <= last; ++a) t.size[a] = t.tile[a] = outputs ? out_size(a) : in_size(a);
    const auto elements = [&](int from) {
        int64_t n = g_.inner;
        for (int a = from; a <= last; ++a) n *= t.tile[a];
        return n;
    };
    const auto halve = [&](int a) { t.tile[a] = (t.tile[a] + 1) / 2; };
    // Inputs per result element, roughly: what a box of results touches.
    double ratio = 1;
    for (int a = 0; a <= last; ++a)
        if (outputs && out_size(a) > 0) ratio *= std::max(1.0, static_cast<double>(in_size(a)) / static_cast<double>(out_size(a)));
    const auto work = [&](int from) { return static_cast<int64_t>(static_cast<double>(elements(from)) * ratio) * bytes; };
    int64_t rows = g_.outer;
    for (int a = 0; a < last; ++a) rows *= t.size[a];
    const int64_t longest = rows < 2 * get_num_threads() ? tile_bytes / 2 : int64_t{1} << 20;   // bytes; threads share few rows
    while (last >= 1 && t.tile[last] > 4096 && work(last) > longest) halve(last);
    const Axis& first = g_.axes[0];
    const bool shares = first.starts || first.extent * first.dilation > first.stride;
    const int64_t threads = get_num_threads();
    const bool whole_planes = outputs && !slides && !shares && g_.outer * t.size[0] >= 8 * threads;   // enough for all threads
    for (int a = 1; !whole_planes && a < last; ++a)
        while (t.tile[a] > 8 && work(1) * std::min<int64_t>(g_.axes[0].extent, 4) > (slides ? cache_bytes / 4 : cache_bytes)) halve(a);
    if (slides) scratch_bytes = 0;
    const auto boxes = [&] {
        int64_t n = g_.outer;
        for (int a = 0; a <= last; ++a) n *= ceil_div(std::max<int64_t>(t.size[a], 1), std::max<int64_t>(t.tile[a], 1));
        return n;
    };
    const int64_t least = last == 0 ? 1024 : 2;
    while (t.tile[0] > least && ((boxes() < 4 * threads && work(0) > tile_bytes) || static_cast<double>(elements(0)) * scratch_bytes > tile_bytes))
        halve(0);
    for (int a = 1; a <= last; ++a)
        while (t.tile[a] > (a == last ? 1024 : 2) && static_cast<double>(elements(0)) * scratch_bytes > 4 * tile_bytes) halve(a);
    t.total = g_.outer;
    for (int a = 0; a <= last; ++a) {
        t.tile[a] = std::max<int64_t>(t.tile[a], 1);
        t.count[a] = ceil_div(t.size[a], t.tile[a]);
        t.total *= t.count[a];
    }
    return t;
}

// Large images that maxima and averages read side by side.
int64_t Plan::streams() const {
    const bool few = kernels().vector_bytes == 32 && g_.rank > 1 && g_.axes[g_.rank - 2].stride > 1;
    return few ? few_streams : most_streams;
}

// Whether one thread does this many bytes sooner than several that have to be called.
bool Plan::alone(int64_t bytes) const { return static_cast<double>(bytes) * visits_ < 2.0 * static_cast<double>(small_work); }

// Calls f for every box. Kernels that can are given several images at once: small ones, or up to `grouped` of any size.
template <class F> void Plan::each_box(bool outputs, int64_t bytes, double scratch_bytes, F&& f, int64_t grouped, bool slides) const {
    if ((outputs ? outputs_ : inputs_) == 0) return;
    Tiles t = tiles(outputs, bytes, scratch_bytes, slides);
    const int64_t work = std::max(inputs_, outputs_) * bytes;
    int64_t images = 1;   // in one box
    const int64_t boxes = t.total / g_.outer;
    if (grouped && boxes == 1) {
        // What windows that are neighbours on the first axis have in common should stay in the cache for all of them.
        const int64_t image = work / g_.outer;
        const int64_t shared = g_.rank == 1 ? image : image / std::max<int64_t>(1, t.size[0]) * std::min<int64_t>(2 * g_.axes[0].extent, 16);
        const int64_t most = std::max<int64_t>(grouped, (work < large_work ? tile_bytes : small_image) / std::max<int64_t>(1, image));
        images = std::clamp<int64_t>(cache_bytes / std::max<int64_t>(1, shared), 1, std::min(g_.outer, most));
        const double kept = static_cast<double>(std::max<int64_t>(1, outputs_ / g_.outer)) * std::max(1.0, scratch_bytes);
        if (scratch_bytes > 0) images = std::clamp<int64_t>(static_cast<int64_t>(tile_bytes / kept), 1, images);
        if (!alone(work)) images = std::max<int64_t>(1, std::min(images, g_.outer / (4 * get_num_threads())));
        t.total = ceil_div(g_.outer, images);
    }
    int64_t group = 1;   // boxes in one task
    if (alone(work)) group = t.total;
    else group = std::max<int64_t>(1, std::min(t.total / (4 * get_num_threads()), tile_bytes / std::max<int64_t>(1, work / t.total)));
    parallel(ceil_div(t.total, group), [&](int64_t task, Scratch& scratch) {
        for (int64_t i = task * group; i < std::min(t.total, (task + 1) * group); ++i) {
            Box box = t.box(i);
            box.n *= images;
            box.n_end = std::min(g_.outer, box.n + images);
            f(box, scratch);
        }
    });
}

// Whole images, or slabs of them that are cut on one axis only, the first on which there is something to cut.
template <class F> void Plan::each_slab(F&& f) const {
    if (inputs_ == 0) return;
    Tiles t{};
    t.rank = g_.rank;
    for (int a = 0; a < g_.rank; ++a) t.size[a] = t.tile[a] = in_size(a), t.count[a] = 1;
    const int cut = outermost();
    // A slab visits all windows that reach into it, so it should be longer than the reach of a window.
    const int64_t reach = g_.axes[cut].extent * g_.axes[cut].dilation;
    const int64_t wanted = std::max<int64_t>(1, 2 * get_num_threads() / std::max<int64_t>(1, g_.outer));
    const int64_t image_bytes = inputs_ / g_.outer * 4;
    const int64_t most = std::min(in_size(cut), in_size(cut) / std::max<int64_t>(1, 2 * reach));
    const int64_t slabs = std::max<int64_t>(1, std::min(cut < g_.rank - 1 ? wanted : std::max(wanted, image_bytes >> 21), most));
    t.tile[cut] = ceil_div(in_size(cut), image_bytes < small_work / 4 ? 1 : slabs);
    t.count[cut] = ceil_div(in_size(cut), t.tile[cut]);
    t.total = g_.outer * t.count[cut];
    const int64_t group = std::max<int64_t>(1, std::min(t.total, tile_bytes / std::max<int64_t>(1, inputs_ * 4 / t.total)));
    parallel(ceil_div(t.total, group), [&](int64_t task, Scratch& scratch) {
        for (int64_t i = task * group; i < std::min(t.total, (task + 1) * group); ++i) f(t.box(i), scratch);
    });
}

// What the windows [first, last) of an axis read, and all windows that read of its inputs [first, last).
static Span read_by(const Axis& axis, int64_t first, int64_t last) {
    if (first >= last) return {0, 0};
    const int64_t low = std::clamp<int64_t>(nominal_origin(axis, first), 0, axis.size);
    const int64_t end = axis.starts ? axis.stops[last - 1] : nominal_origin(axis, last - 1) + (axis.window - 1) * axis.dilation + 1;
    return {low, std::clamp(end, low, axis.size) - low};
}

static Span readers_of(const Axis& axis, int64_t first, int64_t last) {
    const int64_t low = cover(axis, first).first;
    return {low, std::max(low, cover(axis, last - 1).last) - low};
}

static Box on_axes(int rank, const Axis* axes, Span (*span_of)(const Axis&, int64_t, int64_t), const Box& box) {
    Box found;
    found.n = box.n, found.n_end = box.n_end;
    for (int a = 0; a < rank; ++a) {
        const Span here = span_of(axes[a], box.low[a], box.high[a]);
        found.low[a] = here.first, found.high[a] = here.first + here.length;
    }
    return found;
}

// Cuts results into boxes whose arrays of both shapes fit the cache together; first on axes where neighbours share least, and along
// rows only if nothing else is left. False if that makes more than `most` times the work.
bool Plan::cut_turned(bool outputs, int64_t element_bytes, int in_arrays, int out_arrays, double most, Tiles& t) const {
    // How much of the other shape belongs to a tile of the results.
    const auto others = [&](int a, int64_t tile) -> double {
        const Axis& axis = g_.axes[a];
        if (tile >= t.size[a]) return static_cast<double>(outputs ? axis.size : axis.count);
        int64_t most_read = 0;
        for (int64_t low = 0; axis.starts && low < t.size[a]; low += tile)
            most_read = std::max(most_read, (outputs ? read_by : readers_of)(axis, low, std::min(t.size[a], low + tile)).length);
        if (axis.starts) return static_cast<double>(std::max<int64_t>(1, most_read));
        const double stride = static_cast<double>(axis.stride), part = static_cast<double>(tile);
        const double common = std::max(0.0, static_cast<double>((axis.window - 1) * axis.dilation + 1) - stride);   // of neighbours
        return outputs ? part * stride + common : (part + common) / stride;
    };
    const auto shared = [&](int a, int64_t tile) {
        return others(a, tile) / static_cast<double>(tile) * static_cast<double>(t.size[a]) / others(a, t.size[a]);
    };
    const auto room = [&] {   // bytes
        double mine = static_cast<double>(element_bytes), theirs = mine;
        for (int a = 0; a < g_.rank; ++a) mine *= static_cast<double>(t.tile[a]), theirs *= others(a, t.tile[a]);
        return mine * (outputs ? out_arrays : in_arrays) + theirs * (outputs ? in_arrays : out_arrays);
    };
    const int64_t least_boxes =
        std::max(inputs_, outputs_) * element_bytes / std::max<int64_t>(1, g_.outer) >= small_work ? 4 * get_num_threads() : 1;
    while (room() > static_cast<double>(turned_bytes) || (t.total < least_boxes && room() > static_cast<double>(turned_bytes / 4))) {
        int best = -1;
        for (int a = 0; a < g_.rank; ++a) {
            const bool first = best < 0 || (a < g_.rank - 1 && shared(a, (t.tile[a] + 1) / 2) < shared(best, (t.tile[best] + 1) / 2));
            if (t.tile[a] > 1 && first) best = a;
        }
        if (best < 0) return false;
        t.total /= t.count[best];
        t.tile[best] = (t.tile[best] + 1) / 2;
        t.count[best] = ceil_div(t.size[best], t.tile[best]);
        t.total *= t.count[best];
        double work = 1;
        for (int a = 0; a < g_.rank; ++a) work *= shared(a, t.tile[a]);
        if (work > most) return false;
    }
    return true;
}

// Calls f for boxes of some vectors of planes, as many as there are and fit. Returns whether it did.
template <class F> bool Plan::each_turned(bool outputs, int64_t bytes, int in_arrays, int out_arrays, F&& f) const {
    if (inputs_ == 0 || outputs_ == 0) return false;
    const Kernels& k = kernels();
    const int64_t work = std::max(inputs_, outputs_) * bytes, tasks = work < small_work ? 1 : 4 * get_num_threads();
    const int64_t lanes = k.vector_bytes / bytes;
    for (int64_t planes = std::max(lanes, most_planes); planes >= lanes; planes /= 2) {
        const int64_t groups = ceil_div(g_.outer, planes);
        if (groups * planes > g_.outer + g_.outer / (planes > lanes ? 8 : 2)) continue;
        Tiles t{};
        t.rank = g_.rank;
        t.total = groups;
        for (int a = 0; a < g_.rank; ++a) t.size[a] = t.tile[a] = outputs ? out_size(a) : in_size(a), t.count[a] = 1;
        if (!cut_turned(outputs, planes * bytes, in_arrays, out_arrays, planes > lanes ? 1.15 : 1.5, t)) continue;
        const int64_t group = std::max<int64_t>(1, std::min(t.total / tasks, tile_bytes / std::max<int64_t>(1, work / t.total)));
        parallel(ceil_div(t.total, group), [&](int64_t task, Scratch& scratch) {
            for (int64_t i = task * group; i < std::min(t.total, (task + 1) * group); ++i) {
                Turned turned(g_, planes, bytes, i / (t.total / groups) * planes, k, scratch);
                Box box = t.box(i);
                box.n = 0, box.n_end = 1;
                turned.inputs = outputs ? on_axes(g_.rank, g_.axes, read_by, box) : box;
                turned.outputs = outputs ? box : on_axes(g_.rank, g_.axes, readers_of, box);
                f(turned);
            }
        });
        return true;
    }
    return false;
}

// Whether windows of three elements are centred on every element.
bool Plan::all_threes() const {
    for (int a = 0; a < g_.rank; ++a) {
        const Axis& axis = g_.axes[a];
        if (axis.starts || axis.window != 3 || axis.stride != 1 || axis.dilation != 1 || axis.before != 1 || axis.count != axis.size) return false;
    }
    return true;
}

// Whether planes are turned for a map: where windows are listed, rows are short for vectors, or elements are narrow or lie in many
// windows. Elsewhere the kernels that work along the rows are as quick. The limits are measured.
bool Plan::turns(Map map, DType type) const {
    if (g_.inner != 1) return false;
    const int64_t bytes = dtype_bytes(type), vector_bytes = kernels().vector_bytes, lanes = vector_bytes / bytes, row = in_size(g_.rank - 1);
    const bool sums = map == Map::mean || map == Map::spread, integer_sums = sums && type > DType::f64, flat = g_.rank == 2;
    const bool shorter = row < (integer_sums ? vector_bytes / 2 : 2 * lanes);   // integers are added in 64 bits
    const bool gradient = map == Map::put || map == Map::max_put;
    if ((gradient || map == Map::take) && vector_bytes < 32) return false;   // selecting lanes takes too long there
    // Following codes costs by the window, turning by the element.
    const double elements = static_cast<double>(inputs_) * bytes / std::max<double>(1, outputs_);
    if (map == Map::take ? elements > 24 : map == Map::put && sum_bytes(type) >= 4 && elements > 32) return false;
    if (listed_) return true;
    int64_t plane = bytes;
    for (int a = 0; a < g_.rank; ++a) plane *= in_size(a);
    if (bytes == 1 && row >= lanes && !(shorter && gradient && visits_ > 6) && plane % 4096 == 0)
        return false;   // planes so far apart fall into one set of the first cache
    if (!sums && overlap_ > 16 && bytes > 1) return false;
    const Axis& along = g_.axes[g_.rank - 1];
    const bool in_pairs = along.stride == 2 && along.window == 3 && along.dilation == 1;   // shares stay in registers
    const bool special = hurried(static_cast<int>(vector_bytes)), wide = vector_bytes == 64;
    const bool in_twos = flat && all_threes() && row >= vector_bytes / 2 && special;   // sums do, two rows at a time
    const bool few = flat && g_.outer < most_planes && bytes >= 4;                    // one vector of planes or two at a time
    // Of short rows too, columns are compared in registers (in_pairs in scan.cpp).
    const bool twos = along.stride == 2 && along.window == 2 && along.dilation == 1 && along.before == 0;
    const bool paired = twos && wide && bytes >= 2 && 2 * along.count >= lanes;
    // Sums of them stay in registers too, if they fill one (in_registers in mean.cpp).
    const bool fill = special && visits_ <= 4 && along.count * (bytes == 2 ? 4 : 8) >= vector_bytes;
    const bool added =
        fill && (flat || (wide && g_.outer > 16)) && (type == DType::f32 ? twos && 2 * along.count == row : sixteen_bits(type) && (twos || in_pairs));
    // Rows of codes that follow one another are looked up as one (by_rows in coded.cpp).
    const bool looked_up = wide && bytes > 1 && g_.rank > 1 && along.stride == 1 && along.count == row && row * bytes >= 18;
    const bool around = wide && bytes > 1 && around_elements(g_) && out_size(1) >= lanes;   // winners are found on the way
    const bool in_rows = vector_bytes == 32 && bytes == 4 && along.stride == 1 && visits_ > 5;            // which share most of their work
    const bool repeated = few_windows(along) && few_windows(g_.axes[std::max(0, g_.rank - 2)]);   // rows are, and most of what they hold
    switch (map) {
        case Map::mean:
            if (few && type == DType::f32 && (all_threes() || (visits_ <= 2 && row > lanes))) return false;
            return !in_twos && !added && (shorter || (g_.rank > 1 && visits_ > 4.5));
        case Map::spread:
            return !repeated && (integer_sums || (!in_twos && (shorter || (g_.rank > 1 && visits_ > (bytes < 4 ? 3.5 : 2.5) && !in_pairs))));
        case Map::put:
        case Map::max_put:
            // In volumes of 16-bit floats following codes is as quick along rows that fill a vector.
            if (g_.rank == 3 && bytes == 2 && wide && along.stride == 2 && row >= lanes && (map == Map::put || visits_ <= 4)) return false;
            return shorter || (flat && bytes == 1) || (bytes == 4 && wide && (flat ? visits_ > 5 : g_.rank == 1 && visits_ > 2.25));
        case Map::take: return (row < lanes && !looked_up) || (bytes == 1 && g_.rank <= 2);
        case Map::max_take: return !around && (shorter || (flat && !in_rows && visits_ > (bytes == 1 || (bytes <= 4 && row < 64) ? 2.5 : 5)));
        default:
            return row < lanes || (flat && (bytes == 1 ? visits_ > 2.5 && !(wide && along.window == 3 && along.stride == 1)
                                                       : shorter && visits_ < 4 && !paired && !(few && visits_ <= 2)));
    }
}

// Past the caches if the result is large. Vectors of channels must then be aligned.
bool Plan::streaming(const void* data, int64_t elements, int64_t bytes) const {
    if (elements * bytes < streaming_bytes) return false;
    return g_.inner == 1 || (g_.inner * bytes % 64 == 0 && reinterpret_cast<uintptr_t>(data) % 64 == 0);
}

// ---- the maps -------------------------------------------------------------------------------------------------------

Scan Plan::scan_job(DType type, bool ignore_nan) const {
    Scan job{};
    job.geometry = &g_;
    job.type = type;
    job.ignore_nan = ignore_nan;
    return job;
}

// A code for every element, and one that stands for none.
int Plan::equal_width() const { return width_for(static_cast<uint64_t>(g_.elements) + 1); }

void Plan::maximum(DType type, const View& x, void* y, void* code, int code_width, bool ignore_nan) const {
    if (const Plan* const one = joined(Map::maximum, type, &x, nullptr)) return one->maximum(type, x, y, code, code_width, ignore_nan);
    const int64_t bytes = dtype_bytes(type);
    const bool keys_tell = !sixteen_bits(type);   // 16-bit floats are taken along with their keys
    if (y && (code ? large_coded_ && !keys_tell : large_ && !by_columns(bytes) && !by_neighbours(type, ignore_nan))) {
        choose_large(type, x, ignore_nan, keys_tell ? Carry::nothing : Carry::elements, x, y);
        if (!code) return;
        y = nullptr;
    }
    if (code && large_coded_ && !by_neighbours(type, ignore_nan)) {
        choose_large(type, x, ignore_nan, Carry::codes, x, code, code_width, nullptr, y);
        return;
    }
    Scan job = scan_job(type, ignore_nan);
    job.mode = Mode::maximum;
    job.what = y && code ? What::both : y ? What::value : What::code;
    job.x = x;
    job.code_width = code_width;
    if (y) job.y = dense(y, true, bytes), job.streaming = streaming(y, outputs_, bytes);
    if (code) job.code = dense(code, true, code_width);
    const Kernels& k = kernels();
    if (turns(Map::maximum, type) && (!code || code_width <= bytes) && each_turned(true, bytes, 1, 1, [&](Turned& t) {
            Scan mine = job;
            mine.geometry = &t.geometry;
            mine.streaming = false;
            mine.x = t.in(x, t.inputs, bytes);
            if (y) mine.y = t.room(t.outputs, bytes);
            if (code) mine.code = t.room(t.outputs, code_width);
            k.scan(mine, t.outputs, t.scratch);
            if (y) t.out(mine.y, job.y, t.outputs, bytes, job.streaming);
            if (code) t.out(mine.code, job.code, t.outputs, code_width, false);
        }))
        return;
    each_box(true, bytes, 0, [&](const Box& box, Scratch& scratch) { k.scan(job, box, scratch); }, streams());
}

// Whether windows lie apart and there are enough channels for vectors (apart.cpp), or one, with two elements of each window along a row
// that is long enough.
bool Plan::lie_apart(DType type) const {
    const int64_t bytes = dtype_bytes(type), vector_bytes = kernels().vector_bytes;
    if (g_.elements > most_apart || (g_.inner > 1 ? g_.inner * bytes < smaller(vector_bytes, 32) : vector_bytes < 4 * bytes)) return false;
    for (int a = 0; a < g_.rank; ++a) {
        const Axis& axis = g_.axes[a];
        if (!axis.uniform || axis.dilation != 1 || axis.window > axis.stride || axis.before >= axis.window || axis.count == 0) return false;
        if (nominal_origin(axis, axis.count - 1) >= axis.size) return false;   // nothing of it is real
    }
    if (g_.inner > 1) return true;
    const Axis& along = g_.axes[g_.rank - 1];
    const int64_t row = 2 * (along.whole_end - along.whole_begin) * bytes;
    // Below that starting a row takes too long, with windows at its ends that are cut short, or as an image of its own.
    const int64_t least = g_.rank == 1 ? 64 : row < 2 * along.count * bytes ? 8 : bytes < 4 ? 4 : g_.rank + 3;   // quarters of a vector
    return along.window == 2 && along.extent == 2 && along.stride == 2 && 4 * row >= least * vector_bytes;
}

// take or put, with what is looked for or codes of one byte in `wanted`, if windows lie apart. Returns whether it did.
bool Plan::apart(Apart job, const void* wanted, void* result) const {
    const int64_t bytes = dtype_bytes(job.type);
    const bool shuffled = bytes > 1 || job.mode == Mode::choice || kernels().vector_bytes >= 32;   // quickly
    if ((g_.inner == 1 && !shuffled) || !lie_apart(job.type)) return false;
    // Every element is looked at. Where windows are large it is quicker to find winners along rows first, and to follow codes.
    const bool wide = kernels().vector_bytes >= 64 && g_.inner * bytes >= 64, gradient = job.put && job.mode != Mode::choice;
    if (g_.inner > 1 && g_.elements > (wide || gradient ? 16 : 8)) return false;
    for (int a = 0; job.put && g_.inner > 1 && a < g_.rank; ++a)
        if (g_.axes[a].window != g_.axes[a].stride) return false;   // there are elements between them
    const Kernels& k = kernels();
    job.geometry = &g_;
    if (wanted) job.wanted = dense(wanted, true, job.mode == Mode::choice ? 1 : bytes);
    job.result = dense(result, !job.put, bytes);
    job.streaming = streaming(result, job.put ? inputs_ : outputs_, bytes);
    each_box(true, bytes, 0, [&](const Box& box, Scratch& scratch) { k.apart(job, box, scratch); }, most_streams);
    return true;
}

void Plan::take(DType type, const View& v, const void* code, int code_width, void* y) const {
    if (const Plan* const one = joined(Map::take, type, &v, nullptr)) return one->take(type, v, code, code_width, y);
    const int64_t bytes = dtype_bytes(type);
    // Elsewhere following codes is as quick.
    const Axis& along = g_.axes[g_.rank - 1];
    const bool whole = along.whole_end - along.whole_begin == along.count, narrow = bytes < 4 || (bytes == 4 && g_.rank == 2);
    // Of large images, scan.cpp is a little quicker with AVX-512.
    const bool channels = g_.inner > 1 && (g_.rank > 2 || kernels().vector_bytes == 32 || !streaming(y, outputs_, bytes));
    if (code_width == 1 && (channels || (g_.inner == 1 && whole && narrow && g_.rank > 1 && kernels().vector_bytes >= 32)) &&
        apart({.type = type, .mode = Mode::choice, .given = v}, code, y))
        return;
    Scan job = scan_job(type, false);
    job.mode = Mode::choice;
    job.what = What::take;
    job.v = v;
    job.wanted = dense(code, true, code_width);
    job.code_width = code_width;
    job.y = dense(y, true, bytes);
    const bool many = g_.elements >= many_elements && g_.elements * bytes >= many_bytes;
    const bool coded = g_.inner * bytes < 64 || many || code_width > bytes;
    job.streaming = streaming(y, outputs_, bytes);
    const Kernels& k = kernels();
    if (turns(Map::take, type) && code_width <= bytes && each_turned(true, bytes, 1, 2, [&](Turned& t) {
            Scan mine = job;
            mine.geometry = &t.geometry;
            mine.streaming = false;
            mine.v = t.in(v, t.inputs, bytes);
            mine.wanted = t.in(job.wanted, t.outputs, code_width);
            mine.y = t.room(t.outputs, bytes);
            k.scan(mine, t.outputs, t.scratch);
            t.out(mine.y, job.y, t.outputs, bytes, streaming(y, outputs_, bytes));
        }))
        return;
    each_box(true, bytes, 0, [&](const Box& box, Scratch& scratch) { (coded ? k.take_coded : k.scan)(job, box, scratch); }, most_streams);
}

// Without any window nothing flows back.
bool Plan::no_windows(void* gx, int64_t bytes) const {
    if (outputs_ > 0 || inputs_ == 0) return false;
    std::memset(gx, 0, static_cast<size_t>(inputs_ * bytes));
    return true;
}

void Plan::put(DType type, const View& g, const void* code, int code_width, void* gx, bool assign) const {
    if (const Plan* const one = joined(Map::put, type, nullptr, &g)) return one->put(type, g, code, code_width, gx, assign);
    const int64_t bytes = dtype_bytes(type);
    if (no_windows(gx, bytes)) return;
    // Where no windows share an element, what is assigned is what integers add to nothing: the bits of the value.
    const DType bits = bytes == 1 ? DType::u8 : bytes == 2 ? DType::u16 : bytes == 4 ? DType::u32 : DType::u64;
    if (code_width == 1 && apart({.type = assign ? bits : type, .mode = Mode::choice, .put = true, .given = g}, code, gx)) return;
    Put job{};
    job.geometry = &g_;
    job.type = type;
    job.assign = assign;
    job.g = g;
    job.code = dense(code, true, code_width);
    job.code_width = code_width;
    job.gx = dense(gx, false, bytes);
    const Kernels& k = kernels();
    job.streaming = streaming(gx, inputs_, bytes);
    if (by_slabs(type)) {
        each_slab([&](const Box& box, Scratch& scratch) { k.put_coded(job, box, scratch); });
    } else {
        const bool threes = code_width == 1 && !assign && in_threes(type);
        job.streaming = job.streaming && (!threes || in_lines(bytes));
        if (!threes && turns(Map::put, type) && code_width <= bytes && each_turned(false, bytes, 1, 2, [&](Turned& t) {
                Put mine = job;
                mine.geometry = &t.geometry;
                mine.streaming = false;
                mine.g = t.in(g, t.outputs, bytes);
                mine.code = t.in(job.code, t.outputs, code_width);
                mine.gx = t.room(t.inputs, bytes);
                k.put(mine, t.inputs, t.scratch);
                t.out(mine.gx, job.gx, t.inputs, bytes, job.streaming);
            }))
            return;
        const bool coded = !threes && follows_codes(type);
        each_box(
            false, bytes, coded ? sum_bytes(type) : 0, [&](const Box& box, Scratch& scratch) { (coded ? k.put_coded : k.put)(job, box, scratch); },
            most_streams, coded && slides());
    }
}

// Whether put goes from windows to elements slab by slab: where elements lie in so many windows that nothing else is as quick.
bool Plan::by_slabs(DType type) const {
    const int64_t bytes = sum_bytes(type);
    if (overlap_ > crowded_overlap || g_.inner * bytes < 64) return overlap_ > crowded_overlap;
    int64_t kept = 2 * g_.axes[0].extent * g_.axes[0].dilation * 64;   // of as few channels as possible
    for (int a = 1; a < g_.rank; ++a) kept *= in_size(a);
    return overlap_ * static_cast<double>(bytes) >= many_sums && kept <= between_bytes;
}

// Whether the rows that are written together (threes.hpp) begin and end with a line of the cache, if the array does.
bool Plan::in_lines(int64_t bytes) const {
    const int64_t row = in_size(g_.rank - 1) * bytes, rows = rows_in_lines(row);
    return row % 64 == 0 || (in_size(g_.rank - 2) % rows == 0 && rows * row <= threes_together);
}

// Whether put knows which windows of 3 x 3 elements an element lies in (threes.hpp), and rows are long enough for that to pay.
bool Plan::in_threes(DType type) const {
    if (type > DType::f64 || kernels().vector_bytes < 32) return false;
    const int apart = threes_apart(g_);
    const int64_t bytes = dtype_bytes(type), lanes = kernels().vector_bytes / sum_bytes(type), row = out_size(g_.rank - 1);
    if (apart == 1) return g_.rank == 2 && row >= (around_all(g_) ? lanes : 3 * lanes);
    // In volumes two planes of windows are compared for each plane of elements: that pays along long rows of whole lines.
    if (g_.rank > 2) return apart == 2 && bytes == 4 && row >= 80 && in_size(g_.rank - 1) * bytes % 64 == 0;
    return apart == 2 && 4 * row >= (bytes < 4 ? 7 : bytes > 4 ? 12 : 4) * lanes;
}

// Whether put goes from windows to elements box by box. Elements that collect from their windows are quicker where vectors hold
// channels, where they hold many narrow elements of a row, and where every row lies in one row of windows.
bool Plan::follows_codes(DType type) const {
    if (g_.inner * sum_bytes(type) >= 64 || sum_bytes(type) < 4) return false;
    const Axis& along = g_.axes[g_.rank - 1];
    const bool neighbours = g_.rank == 2 && along.uniform && along.stride == 1 && along.size >= 40 && g_.inner > 1;   // share a vector
    if (neighbours && g_.elements <= few_elements && sum_bytes(type) == 4 && kernels().vector_bytes == 64) return false;
    bool shared = !along.uniform;
    for (int a = 0; a < g_.rank; ++a) shared = shared || g_.axes[a].extent > g_.axes[a].stride;
    return shared || g_.rank > 2;
}

// Whether maxima are found row by row and then column by column, so that visits add up instead of multiplying, and are few.
bool Plan::by_columns(int64_t bytes) const {
    const Axis& axis = g_.axes[g_.rank - 1];
    const bool together = brought_together(g_);   // also in a single row
    if (!hurried(kernels().vector_bytes)) return false;
    return few_visits_ && g_.inner * bytes < 64 && axis.uniform && (together || (g_.rank > 1 && !parted(axis.stride, g_.inner)));
}

// Whether nothing but that is done in vectors.
bool Plan::only_by_columns(int64_t bytes) const {
    return by_columns(bytes) && brought_together(g_) && g_.elements <= most_by_columns && g_.inner * bytes < kernels().vector_bytes;
}

// Whether maxima of vectors of channels are found some neighbours at a time (slide.hpp), which is quicker than doubling. Windows near
// a NaN are then visited element by element, so where NaN are to be expected only small ones.
bool Plan::by_neighbours(DType type, bool ignore_nan) const {
    if (!hurried(kernels().vector_bytes) || sixteen_bits(type) || g_.inner * dtype_bytes(type) < 64 || !begins_everywhere(g_)) return false;
    return larger(g_.axes[0].window, g_.axes[1].window) <= (ignore_nan ? 4 : 8);
}

// Whether that is how the maxima of large windows are found.
bool Plan::slides_over(const Scan& job) const { return large_ && by_neighbours(job.type, job.ignore_nan); }

// Whether boxes of the input share so many windows that choosing box by box would do the work several times.
bool Plan::overlaps_boxes(int64_t bytes, double scratch_bytes, bool slides) const {
    const Tiles t = tiles(false, bytes, scratch_bytes, slides);
    double work = 1;
    for (int a = 0; a < g_.rank; ++a)
        if (t.tile[a] < t.size[a]) work *= 1 + static_cast<double>((g_.axes[a].extent - 1) * g_.axes[a].dilation) / static_cast<double>(t.tile[a]);
    return work > 1.5;
}

// Room for a box of windows, with `bytes` for each.
View Plan::room_of(const Box& outputs, int64_t bytes, Scratch& scratch, int slot) const {
    View room{};
    room.outer_split = 1;
    int64_t step = g_.inner, offset = 0;
    for (int a = g_.rank - 1; a >= 0; --a) {
        room.step[a] = step;
        offset += outputs.low[a] * step;
        step *= outputs.high[a] - outputs.low[a];
    }
    room.outer_step[0] = step;
    offset += outputs.n * step;
    const int64_t total = step * (outputs.n_end - outputs.n);
    constexpr int64_t margin = 64;   // vectors may read a little to both sides
    char* memory = static_cast<char*>(reserve(scratch, slot, static_cast<size_t>((total + 2 * margin) * bytes)));
    room.data = memory + (margin - offset) * bytes;
    room.begin = memory;
    room.end = memory + (total + 2 * margin) * bytes;
    return room;
}

// Whether all elements of a box are equal, NaN to NaN.
static bool all_equal(const Geometry& g, DType type, const View& a, const View& b, const Box& box) {
    const int64_t bytes = dtype_bytes(type), from = box.low[g.rank - 1] * g.inner, count = box.high[g.rank - 1] * g.inner - from;
    bool equal = true;
    for (int64_t n = box.n; equal && n < box.n_end; ++n) {
        RowWalk walk;
        if (!first_row(box, g.rank, walk)) return true;
        do {
            const char* left = static_cast<const char*>(a.data) + (row_offset(a, n, walk, g.rank) + from) * bytes;
            const char* right = static_cast<const char*>(b.data) + (row_offset(b, n, walk, g.rank) + from) * bytes;
            if (std::memcmp(left, right, static_cast<size_t>(count * bytes)) == 0) continue;
            with_order(type, false, [&](auto order) {
                using T = typename decltype(order)::Stored;
                const T *p = reinterpret_cast<const T*>(left), *q = reinterpret_cast<const T*>(right);
                for (int64_t i = 0; i < count; ++i) equal = equal && order.equals_one(order.key(p[i]), order.key(q[i]));
            });
        } while (equal && next_row(box, g.rank, walk));
    }
    return equal;
}

// Whether the floats of a box are finite, and none is -0: otherwise maxima are not certain column by column.
static bool all_ordinary(const Geometry& g, DType type, const View& a, const Box& box) {
    const int64_t from = box.low[g.rank - 1] * g.inner, count = box.high[g.rank - 1] * g.inner - from;
    const auto in_box = [&](auto exponent) {   // all ones in it: infinite or NaN
        using Bits = decltype(exponent);
        constexpr Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
        Bits special = 0;
        for (int64_t n = box.n; !special && n < box.n_end; ++n) {
            RowWalk walk;
            if (!first_row(box, g.rank, walk)) return true;
            do {
                const char* const row =
                    static_cast<const char*>(a.data) + (row_offset(a, n, walk, g.rank) + from) * static_cast<int64_t>(sizeof(Bits));
                for (int64_t i = 0; i < count; ++i) {
                    Bits bits;
                    std::memcpy(&bits, row + i * static_cast<int64_t>(sizeof bits), sizeof bits);
                    special |= static_cast<Bits>((bits & exponent) == exponent) | static_cast<Bits>(bits == sign);
                }
            } while (!special && next_row(box, g.rank, walk));
        }
        return !special;
    };
    switch (type) {
        case DType::f16: return in_box(uint16_t{0x7C00});
        case DType::bf16: return in_box(uint16_t{0x7F80});
        case DType::f32: return in_box(uint32_t{0x7F800000});
        case DType::f64: return in_box(uint64_t{0x7FF0000000000000});
        default: return true;
    }
}

// Whether a kernel has done the job in the quickest way it has, and the maxima are the wanted values.
static bool done_quickly(Scan job, const Box& box, Scratch& scratch) {
    bool declined = false;
    job.declined = &declined;
    kernels().scan(job, box, scratch);
    return !declined;
}

// The codes of a box. What the chosen elements should equal is nearly always the maximum. Along rows that share much, and where only
// columns are done in vectors, it is found sooner than anything else: so it is looked for first.
void Plan::choose(Scan job, const void* equal, const Box& box, Scratch& scratch) const {
    const Kernels& k = kernels();
    const int64_t bytes = dtype_bytes(job.type);
    job.streaming = false;
    job.what = What::code;
    if (equal) {
        job.wanted = dense(equal, true, bytes);
        Scan maximum = job;
        maximum.mode = Mode::maximum;
        if (done_quickly(maximum, box, scratch)) return;
    }
    const bool shared = g_.inner * bytes < 64 && overlap_ > (g_.inner == 1 ? shared_overlap : 1.5 * shared_overlap);
    if (equal && (shared || slides_over(job) || (only_by_columns(bytes) && all_ordinary(g_, job.type, job.wanted, box)))) {
        job.mode = Mode::maximum;
        job.what = What::both;
        job.y = room_of(box, bytes, scratch, 7);
        k.scan(job, box, scratch);
        if (all_equal(g_, job.type, job.y, job.wanted, box)) return;
        job.what = What::code;
    }
    job.mode = equal ? Mode::equal : Mode::maximum;
    k.scan(job, box, scratch);
}

// The codes of all windows. Boxes with neighbours that share much are longer than what they keep has room for in the cache.
void Plan::choose_all(Scan job, const void* equal, void* codes) const {
    const int64_t bytes = dtype_bytes(job.type);
    const double kept = equal ? static_cast<double>(bytes) / (slides_over(job) ? 4 : 1) : 0;
    job.code = dense(codes, true, job.code_width);
    each_box(true, bytes, kept, [&](const Box& box, Scratch& scratch) { choose(job, equal, box, scratch); }, most_streams);
}

void Plan::max_put(DType type, const View& x, const View& g, const void* equal, void* gx, bool ignore_nan) const {
    if (const Plan* const one = joined(Map::max_put, type, &x, &g)) return one->max_put(type, x, g, equal, gx, ignore_nan);
    const int64_t bytes = dtype_bytes(type);
    if (no_windows(gx, bytes)) return;
    const Mode mode = equal ? Mode::equal : Mode::maximum;
    if (apart({.type = type, .mode = mode, .put = true, .ignore_nan = ignore_nan, .x = x, .given = g}, equal, gx)) return;
    Scan find = scan_job(type, ignore_nan);
    find.mode = mode;
    find.what = What::code;
    find.x = x;
    if (equal) find.wanted = dense(equal, true, bytes);
    find.code_width = equal ? equal_width() : width_for(static_cast<uint64_t>(g_.elements));
    const Kernels& k = kernels();
    const bool threes = find.code_width == 1 && in_threes(type), coded = !threes && follows_codes(type);
    const double windows = static_cast<double>(outputs_) / static_cast<double>(std::max<int64_t>(1, inputs_));   // for an element
    const double scratch_bytes = coded ? static_cast<double>(sum_bytes(type)) : windows * find.code_width / 2;   // codes may fill half the cache
    const bool large = large_coded_ && (equal || !by_neighbours(type, ignore_nan));
    if (large || by_slabs(type) || overlaps_boxes(bytes, scratch_bytes, coded && slides())) {
        const int width = find.code_width;
        Buffer codes(outputs_ * width);
        if (large) {
            const bool found = choose_large(type, x, ignore_nan, Carry::codes, x, codes.as<void>(), width, equal);
            if (!found) match_large(type, x, equal, ignore_nan, codes.as<void>(), width);
        } else {
            choose_all(find, equal, codes.as<void>());
        }
        return put(type, g, codes.as<void>(), width, gx, false);
    }
    // Box by box: first the codes of all windows that reach into the box, which stay in the cache, then the gradients.
    Put put{};
    put.geometry = &g_;
    put.type = type;
    put.g = g;
    put.code_width = find.code_width;
    put.gx = dense(gx, false, bytes);
    put.streaming = streaming(gx, inputs_, bytes) && (!threes || in_lines(bytes));
    if (!threes && turns(Map::max_put, type) && find.code_width <= bytes && each_turned(false, bytes, 2, 2, [&](Turned& t) {
            Scan mine = find;
            Put then = put;
            mine.geometry = then.geometry = &t.geometry;
            mine.streaming = then.streaming = false;
            mine.x = t.in(x, on_axes(g_.rank, g_.axes, read_by, t.outputs), bytes);
            if (equal) mine.wanted = t.in(find.wanted, t.outputs, bytes);
            mine.code = then.code = t.room(t.outputs, find.code_width);
            k.scan(mine, t.outputs, t.scratch);
            then.g = t.in(g, t.outputs, bytes);
            then.gx = t.room(t.inputs, bytes);
            k.put(then, t.inputs, t.scratch);
            t.out(then.gx, put.gx, t.inputs, bytes, put.streaming);
        }))
        return;
    each_box(
        false, bytes, scratch_bytes,
        [&](const Box& box, Scratch& scratch) {
            Box outputs;
            outputs.n = box.n;
            outputs.n_end = box.n_end;
            for (int a = 0; a < g_.rank; ++a) {
                outputs.low[a] = cover(g_.axes[a], box.low[a]).first;
                outputs.high[a] = std::max(outputs.low[a], cover(g_.axes[a], box.high[a] - 1).last);
            }
            Scan mine = find;
            mine.code = room_of(outputs, find.code_width, scratch, 5);
            choose(mine, equal, outputs, scratch);
            Put then = put;
            then.code = mine.code;
            (coded ? k.put_coded : k.put)(then, box, scratch);
        },
        most_streams, coded && slides());
}

void Plan::max_take(DType type, const View& x, const View& v, const void* equal, void* y, bool ignore_nan) const {
    if (const Plan* const one = joined(Map::max_take, type, &x, nullptr)) return one->max_take(type, x, v, equal, y, ignore_nan);
    const int64_t bytes = dtype_bytes(type);
    const Mode mode = equal ? Mode::equal : Mode::maximum;
    if ((g_.rank > 1 || g_.inner > 1) && apart({.type = type, .mode = mode, .ignore_nan = ignore_nan, .x = x, .given = v}, equal, y)) return;
    const bool quick = by_columns(bytes) && g_.elements <= most_by_columns, large = large_ && !quick;
    Scan job = scan_job(type, ignore_nan);
    job.x = x;
    if (large && slides_over(job)) {   // codes are found and followed sooner than elements are carried along
        job.code_width = equal ? equal_width() : width_for(static_cast<uint64_t>(g_.elements));
        Buffer codes(outputs_ * job.code_width);
        choose_all(job, equal, codes.as<void>());
        return take(type, v, codes.as<void>(), job.code_width, y);
    }
    if (large && choose_large(type, x, ignore_nan, Carry::elements, v, y, 0, equal)) return;
    if (large && large_coded_) {   // and something else than the maximum is looked for
        const int width = equal_width();
        Buffer codes(outputs_ * width);
        choose_large(type, x, ignore_nan, Carry::codes, x, codes.as<void>(), width);
        match_large(type, x, equal, ignore_nan, codes.as<void>(), width);
        return take(type, v, codes.as<void>(), width, y);
    }
    job.mode = mode;
    job.what = What::take;
    job.v = v;
    if (equal) job.wanted = dense(equal, true, bytes);
    job.y = dense(y, true, bytes);
    job.code_width = 1;
    job.streaming = streaming(y, outputs_, bytes);
    const Kernels& k = kernels();
    if (turns(Map::max_take, type) && each_turned(true, bytes, 2, 2, [&](Turned& t) {
            Scan mine = job;
            mine.geometry = &t.geometry;
            mine.streaming = false;
            mine.x = t.in(x, t.inputs, bytes);
            mine.v = t.in(v, t.inputs, bytes);
            if (equal) mine.wanted = t.in(job.wanted, t.outputs, bytes);
            mine.y = t.room(t.outputs, bytes);
            k.scan(mine, t.outputs, t.scratch);
            t.out(mine.y, job.y, t.outputs, bytes, job.streaming);
        }))
        return;
    // Along rows it is quicker to choose first and then to follow the codes, which stay in the cache.
    const bool many_lanes = bytes == 1 || (bytes == 2 && g_.inner > 1);
    const bool in_two = only_by_columns(bytes) || (g_.inner * bytes < 64 && g_.elements >= (many_lanes ? 3 * few_elements : few_elements));
    job.streaming = job.streaming && (in_two || g_.inner * bytes >= 64);
    if (in_two) job.code_width = equal ? equal_width() : width_for(static_cast<uint64_t>(g_.elements));
    each_box(
        true, 2 * bytes, in_two ? job.code_width + (equal ? bytes : 0) : 0,
        [&](const Box& box, Scratch& scratch) {
            if (!in_two) return k.scan(job, box, scratch);
            Scan mine = job;
            mine.mode = Mode::maximum;
            if (done_quickly(mine, box, scratch)) return;
            mine.mode = mode;
            mine.code = room_of(box, job.code_width, scratch, 5);
            choose(mine, equal, box, scratch);
            mine.wanted = mine.code;
            k.take_coded(mine, box, scratch);
        },
        most_streams);
}

// Calls f for every part of a pass along an axis. A part stays in the cache with all that it reads, unless windows are so long
// that neighbouring parts would do most of the work twice.
template <class F> static void each_part(const Axis& axis, bool transposed, int64_t lines, int64_t columns, int64_t bytes, F&& f) {
    const int64_t in = transposed ? axis.count : axis.size, out = transposed ? axis.size : axis.count;
    const int64_t width = columns < 2 * part_columns ? columns : part_columns;
    const int64_t shared = transposed ? axis.extent * axis.count / axis.size : axis.extent * axis.dilation;
    const int64_t read = std::min(in, std::max(part_bytes / (width * bytes), 3 * shared));
    const int64_t pieces = ceil_div(in, read), size = ceil_div(out, pieces), blocks = ceil_div(columns, width), parts = lines * pieces * blocks;
    // Threads pay earlier than elsewhere, as every byte is worked on several times.
    const int64_t fair = std::min(parts / (4 * get_num_threads()), tile_bytes / (read * width * bytes));
    const int64_t group = std::max<int64_t>(1, lines * in * columns * bytes < small_work / 4 ? parts : fair);
    parallel(ceil_div(parts, group), [&](int64_t task, Scratch& scratch) {
        for (int64_t i = task * group; i < std::min(parts, (task + 1) * group); ++i) {
            const int64_t low = i / blocks % pieces * size, left = i % blocks * width;
            if (low < out) f(Part{i / blocks / pieces, low, std::min(out, low + size), left, std::min(columns, left + width)}, scratch);
        }
    });
}

// Whether there is nothing to choose or add along an axis.
static bool is_single(const Axis& axis) { return axis.size == 1 && axis.count == 1; }

// The axis that a pass begins with: the last, or one before it if those behind are single and lines lie together in memory.
int Plan::innermost(const View& view) const {
    int a = g_.rank - 1;
    while (a > 0 && is_single(g_.axes[a]) && view.step[a - 1] == g_.inner) --a;
    return a;
}

// And the axis that it ends with.
int Plan::outermost() const {
    int a = 0;
    while (a < g_.rank - 1 && is_single(g_.axes[a])) ++a;
    return a;
}

// Calls f(first image, number of images) for as many at once as keep what passes from axis to axis in the cache.
template <class F> void Plan::each_group(int64_t bytes, F&& f) const {
    const int64_t image = std::max(inputs_, outputs_) / g_.outer * bytes;
    const int64_t images = g_.rank == 1 ? g_.outer : std::clamp<int64_t>(between_bytes / std::max<int64_t>(1, image), 1, g_.outer);
    for (int64_t n = 0; n < g_.outer; n += images) f(n, std::min(images, g_.outer - n));
}

// The windows of a large pooling, axis by axis, last axis first: the maxima, their codes, or the elements of v in their places.
// With codes, the maxima too if they are wanted. Returns whether the maxima are those that are expected, if any are.
bool Plan::choose_large(DType type, const View& x, bool ignore_nan, Carry carry, const View& v, void* result, int code_width, const void* expected,
                        void* maxima) const {
    if (outputs_ == 0) return true;
    const Kernels& k = kernels();
    const int64_t bytes = dtype_bytes(type), key_bytes = std::max<int64_t>(4, bytes), part = carry == Carry::nothing ? key_bytes : 2 * key_bytes;
    const int first = std::max(innermost(x), innermost(v)), last = std::min(first, outermost());
    const int64_t image_out = outputs_ / g_.outer;
    bool unexpected = false;
    each_group(part, [&](int64_t n, int64_t images) {
        std::unique_ptr<Buffer> keys, carried;
        int64_t columns = g_.inner;
        for (int a = first; a >= last; --a) {
            int64_t before = 1;
            for (int b = 0; b < a; ++b) before *= in_size(b);
            const int64_t lines = images * before;
            AxisMaximum job{};
            job.axis = &g_.axes[a];
            job.type = type;
            job.ignore_nan = ignore_nan;
            job.carry = carry;
            job.columns = columns;
            job.code_step = g_.code_step[a];
            if (keys) job.keys = keys->as<void>();
            else job.geometry = &g_, job.x = x, job.v = v, job.first_line = n * before;
            if (carried) job.carried = carried->as<void>();
            std::unique_ptr<Buffer> next_keys, next_carried;
            if (a > last) {
                const int64_t room = lines * out_size(a) * columns * key_bytes;
                next_keys = std::make_unique<Buffer>(room);
                job.keys_out = next_keys->as<void>();
                if (carry != Carry::nothing) next_carried = std::make_unique<Buffer>(room), job.carried_out = next_carried->as<void>();
            } else {
                job.result = static_cast<char*>(result) + n * image_out * (carry == Carry::codes ? code_width : bytes);
                job.code_width = code_width;
                if (maxima) job.maxima = static_cast<char*>(maxima) + n * image_out * bytes;
                if (expected) job.expected = static_cast<const char*>(expected) + n * image_out * bytes;
                job.unexpected = &unexpected;
            }
            each_part(*job.axis, false, lines, columns, part, [&](const Part& here, Scratch& scratch) { k.axis_maximum(job, here, scratch); });
            keys = std::move(next_keys);
            carried = std::move(next_carried);
            columns *= out_size(a);
        }
    });
    return !unexpected;
}

// Corrects codes of maxima where the wanted value is not the maximum: the first equal element, or none.
void Plan::match_large(DType type, const View& x, const void* equal, bool ignore_nan, void* codes, int width) const {
    const int64_t bytes = dtype_bytes(type);
    Buffer found(outputs_ * bytes);
    take(type, x, codes, width, found.as<void>());
    Scan job = scan_job(type, ignore_nan);
    job.mode = Mode::equal;
    job.what = What::code;
    job.x = x;
    job.wanted = dense(equal, true, bytes);
    job.code = dense(codes, true, width);
    job.code_width = width;
    const Kernels& k = kernels();
    each_box(true, bytes, 0, [&](const Box& box, Scratch& scratch) {
        RowWalk walk;
        if (!first_row(box, g_.rank, walk)) return;
        do {
            const int64_t row = row_offset(job.code, box.n, walk, g_.rank);
            for (int64_t o = box.low[g_.rank - 1]; o < box.high[g_.rank - 1]; ++o) {
                bool known = true;
                with_order(type, ignore_nan, [&](auto order) {
                    using T = typename decltype(order)::Stored;
                    const T *a = found.as<T>() + row + o * g_.inner, *b = static_cast<const T*>(equal) + row + o * g_.inner;
                    for (int64_t c = 0; c < g_.inner; ++c) {
                        const auto most = order.key(a[c]), want = order.key(b[c]);
                        if (order.equals_one(most, want)) continue;
                        if (want > most) store_code(codes, row + o * g_.inner + c, width, no_code(width));   // nothing is that large
                        else known = false;
                    }
                });
                if (known) continue;
                Box one;
                one.n = box.n, one.n_end = box.n + 1;
                for (int a = 0; a < g_.rank; ++a) one.low[a] = a < g_.rank - 1 ? walk.at[a] : o, one.high[a] = one.low[a] + 1;
                k.scan(job, one, scratch);
            }
        } while (next_row(box, g_.rank, walk));
    });
}

// mean or spread of planes that are turned. Returns whether they were.
template <class Job, class Kernel> bool Plan::sum_turned(const Job& job, View Job::* from, View Job::* to, bool outputs, Kernel kernel) const {
    const int64_t bytes = dtype_bytes(job.type);
    return each_turned(outputs, bytes, 1, 1, [&](Turned& t) {
        const Box &read = outputs ? t.inputs : t.outputs, &made = outputs ? t.outputs : t.inputs;
        Job mine = job;
        mine.geometry = &t.geometry;
        mine.streaming = false;
        mine.*from = t.in(job.*from, read, bytes);
        mine.*to = t.room(made, bytes);
        kernel(mine, made, t.scratch);
        t.out(mine.*to, job.*to, made, bytes, job.streaming);
    });
}

void Plan::mean(DType type, const View& x, void* y) const {
    if (const Plan* const one = joined(Map::mean, type, &x, nullptr)) return one->mean(type, x, y);
    const int64_t bytes = dtype_bytes(type);
    Mean job{};
    job.geometry = &g_;
    job.type = type;
    job.x = x;
    job.y = dense(y, true, bytes);
    const Kernels& k = kernels();
    if (!large_sums_) {
        job.streaming = streaming(y, outputs_, bytes);
        if (turns(Map::mean, type) && sum_turned(job, &Mean::x, &Mean::y, true, k.mean)) return;
        each_box(true, bytes, 0, [&](const Box& box, Scratch& scratch) { k.mean(job, box, scratch); }, streams());
        return;
    }
    if (outputs_ > 0) sum_large(type, false, x, y);
}

void Plan::spread(DType type, const View& g, void* gx) const {
    if (const Plan* const one = joined(Map::spread, type, nullptr, &g)) return one->spread(type, g, gx);
    const int64_t bytes = dtype_bytes(type);
    if (no_windows(gx, bytes)) return;
    Spread job{};
    job.geometry = &g_;
    job.type = type;
    job.g = g;
    job.gx = dense(gx, false, bytes);
    job.exact = exact_shares_;
    const Kernels& k = kernels();
    bool dilated = false;
    for (int a = 0; a < g_.rank; ++a) dilated = dilated || g_.axes[a].dilation > 1;
    if (!large_sums_ || dilated) {
        job.streaming = streaming(gx, inputs_, bytes);
        const int64_t lanes = k.vector_bytes / (type == DType::bf16 || (type == DType::f16 && !job.exact) ? 4 : 8);   // of sums
        if (type <= DType::f64 && out_size(g_.rank - 1) >= lanes && rows_beside(g_) && (!job.streaming || beside_in_lines(type, gx)))
            return each_box(true, bytes, 0, [&](const Box& box, Scratch&) { k.spread_beside(job, box); }, most_streams);
        if (turns(Map::spread, type) && sum_turned(job, &Spread::g, &Spread::gx, false, k.spread)) return;
        each_box(false, bytes, 0, [&](const Box& box, Scratch& scratch) { k.spread(job, box, scratch); }, most_streams);
        return;
    }
    if (inputs_ > 0) sum_large(type, true, g, gx);
}

// Whether what spread_beside makes of a vector of windows is whole lines of the cache, and so are the rows, which are not cut.
bool Plan::beside_in_lines(DType type, const void* gx) const {
    const int64_t bytes = dtype_bytes(type), vector_bytes = kernels().vector_bytes, count = out_size(g_.rank - 1);
    const bool narrow_sums = type == DType::f64 || (type == DType::f32 && exact_shares_);   // no wider than elements
    const int64_t made = narrow_sums ? 2 * vector_bytes : vector_bytes;
    return 2 * count * bytes % 64 == 0 && 2 * count <= 4096 && made % 64 == 0 && reinterpret_cast<uintptr_t>(gx) % 64 == 0;
}

// The sums of a large pooling, axis by axis, last axis first; transposed, the sums of the windows' shares.
void Plan::sum_large(DType type, bool transposed, const View& elements, void* result) const {
    const Kernels& k = kernels();
    const bool twofold = type == DType::f64 || type == DType::i64 || type == DType::u64 || (transposed && type > DType::f64);
    const int64_t bytes = twofold ? 16 : 8;
    const int first = innermost(elements), last = std::min(first, outermost());
    // Averages are divided in the end, shares in the beginning: by what this axis says, and what the others do.
    const auto products = [&](int from, int to) {
        std::vector<int64_t> all{1};
        for (int a = from; a < to; ++a) {
            const std::vector<int64_t> before = std::move(all);
            all.clear();
            for (const int64_t value : before)
                for (int64_t o = 0; o < out_size(a); ++o) all.push_back(value * divisor(g_.axes[a], o));
        }
        return all;
    };
    std::vector<Divisor> columns_divisors;
    std::vector<int64_t> line_divisors = products(0, transposed ? first : last);
    if (!transposed && last < first) {
        for (const int64_t value : products(last + 1, g_.rank)) columns_divisors.push_back({value, 0});
        for (size_t i = columns_divisors.size(), until = i; i-- > 0;) {
            if (i + 1 < columns_divisors.size() && columns_divisors[i].value != columns_divisors[i + 1].value) until = i + 1;
            columns_divisors[i].until = static_cast<int64_t>(until);
        }
    } else {
        for (int64_t& value : line_divisors) value *= products(first + 1, g_.rank)[0];   // these axes are single
    }
    const int64_t image_out = (transposed ? inputs_ : outputs_) / g_.outer;
    each_group(bytes, [&](int64_t n, int64_t images) {
        std::unique_ptr<Buffer> sums;
        int64_t columns = g_.inner;
        for (int a = first; a >= last; --a) {
            const Axis& axis = g_.axes[a];
            AxisSum job{};
            job.axis = &axis;
            job.type = type;
            job.transposed = transposed;
            job.columns = columns;
            job.inner = g_.inner;
            int64_t before = 1;
            for (int b = 0; b < a; ++b) before *= transposed ? out_size(b) : in_size(b);
            job.lines = images * before;
            if (sums) job.sums = sums->as<void>();
            else job.geometry = &g_, job.elements = elements, job.first_line = n * before;
            if (a == (transposed ? first : last)) {
                job.line_divisors = line_divisors.data();
                job.lines_of_image = static_cast<int64_t>(line_divisors.size());
                if (!columns_divisors.empty()) job.divisors = columns_divisors.data();
            }
            const int64_t results = transposed ? axis.size : axis.count;
            std::unique_ptr<Buffer> next;
            if (a > last) next = std::make_unique<Buffer>(job.lines * results * columns * bytes), job.sums_out = next->as<void>();
            else job.result = static_cast<char*>(result) + n * image_out * dtype_bytes(type);
            each_part(axis, transposed, job.lines, columns, bytes, [&](const Part& part, Scratch& scratch) { k.axis_sum(job, part, scratch); });
            sums = std::move(next);
            columns *= results;
        }
    });
}

// ---- ties: every element equal to y belongs to the choice ------------------------------------------------------------

// How many elements of each window equal y: 0 where none does.
static void count_ties(const Geometry& g, DType type, const View& x, const View& y, const Box& box, int64_t* counts, const View& counted,
                       Scratch& scratch) {
    const int last = g.rank - 1;
    const Axis& axis = g.axes[last];
    Tap* taps = static_cast<Tap*>(reserve(scratch, 0, sizeof(Tap) * static_cast<size_t>(most_window_taps(g))));
    RowWalk walk;
    if (!first_row(box, g.rank, walk)) return;
    with_order(type, false, [&](auto order) {
        using T = typename decltype(order)::Stored;
        do {
            const int64_t n = window_taps(g, walk.at, x.step, taps);
            const int64_t row = row_offset(y, box.n, walk, g.rank), to = row_offset(counted, box.n, walk, g.rank);
            for (int64_t o = box.low[last]; o < box.high[last]; ++o) {
                const Span s = span(axis, o);
                const int64_t from = outer_offset(x, box.n) + (origin(axis, o) + s.first * axis.dilation) * g.inner;
                for (int64_t c = 0; c < g.inner; ++c) {
                    const auto wanted = order.key(static_cast<const T*>(y.data)[row + o * g.inner + c]);
                    int64_t count = 0;
                    for (int64_t t = 0; t < n; ++t)
                        for (int64_t j = 0; j < s.length; ++j)
                            count += order.equals_one(
                                order.key(static_cast<const T*>(x.data)[from + taps[t].offset + j * axis.dilation * g.inner + c]), wanted);
                    counts[to + o * g.inner + c] = count;
                }
            }
        } while (next_row(box, g.rank, walk));
    });
}

void Plan::ties_put(DType type, const View& x, const void* y, const View& g, void* gx, bool split) const {
    const int64_t bytes = dtype_bytes(type);
    if (no_windows(gx, bytes)) return;
    const int last = g_.rank - 1;
    const Axis& axis = g_.axes[last];
    const View wanted = dense(y, true, bytes), to = dense(gx, false, bytes);
    Buffer counts(split ? outputs_ * 8 : 0);
    const View counted = dense(counts.as<void>(), true, 8);
    if (split)
        each_box(true, bytes, 0,
                 [&](const Box& box, Scratch& scratch) { count_ties(g_, type, x, wanted, box, counts.as<int64_t>(), counted, scratch); });
    each_box(false, bytes, 0, [&](const Box& box, Scratch& scratch) {
        Tap* taps = static_cast<Tap*>(reserve(scratch, 0, sizeof(Tap) * static_cast<size_t>(most_cover_taps(g_))));
        RowWalk walk;
        if (!first_row(box, g_.rank, walk)) return;
        with_order(type, false, [&](auto order) {
            using T = typename decltype(order)::Stored;
            const auto collect = [&](auto element) {
                using E = decltype(element);
                using Stored = typename E::Stored;
                using Sum = typename E::Sum;
                if constexpr (sizeof(T) == sizeof(Stored)) {
                    do {
                        const int64_t n = cover_taps(g_, walk.at, wanted.step, g.step, taps);
                        const int64_t row = row_offset(x, box.n, walk, g_.rank), result = row_offset(to, box.n, walk, g_.rank);
                        for (int64_t w = box.low[last]; w < box.high[last]; ++w) {
                            const Cover windows = cover(axis, w);
                            for (int64_t c = 0; c < g_.inner; ++c) {
                                const auto mine = order.key(static_cast<const T*>(x.data)[row + w * g_.inner + c]);
                                Sum sum{};
                                for (int64_t t = 0; t < n; ++t)
                                    for (int64_t o = windows.first; o < windows.last; ++o) {
                                        if (!contains(axis, o, w)) continue;
                                        const int64_t at = outer_offset(wanted, box.n) + taps[t].offset + o * g_.inner + c;
                                        if (!order.equals_one(mine, order.key(static_cast<const T*>(y)[at]))) continue;
                                        Sum share = E::widen_one(
                                            static_cast<const Stored*>(g.data)[outer_offset(g, box.n) + taps[t].code_offset + o * g_.inner + c]);
                                        if (split) share = E::share_one(share, E::weigh(counts.as<int64_t>()[at]));
                                        sum = static_cast<Sum>(sum + share);
                                    }
                                static_cast<Stored*>(gx)[result + w * g_.inner + c] = E::narrow_one(sum);
                            }
                        }
                    } while (next_row(box, g_.rank, walk));
                }
            };
            if (split) with_share(type, true, collect);
            else with_wrapping_sum(type, collect);
        });
    });
}

void Plan::ties_take(DType type, const View& x, const void* y, const View& v, void* out, bool split) const {
    const int64_t bytes = dtype_bytes(type);
    const int last = g_.rank - 1;
    const Axis& axis = g_.axes[last];
    const View wanted = dense(y, true, bytes);
    each_box(true, bytes, 0, [&](const Box& box, Scratch& scratch) {
        Tap* taps = static_cast<Tap*>(reserve(scratch, 0, sizeof(Tap) * static_cast<size_t>(most_window_taps(g_))));
        Tap* others = static_cast<Tap*>(reserve(scratch, 1, sizeof(Tap) * static_cast<size_t>(most_window_taps(g_))));
        RowWalk walk;
        if (!first_row(box, g_.rank, walk)) return;
        with_order(type, false, [&](auto order) {
            using T = typename decltype(order)::Stored;
            with_exact_sum(type, true, [&](auto element) {
                using E = decltype(element);
                using Stored = typename E::Stored;
                using Sum = typename E::Sum;
                if constexpr (sizeof(T) == sizeof(Stored)) {
                    do {
                        const int64_t n = window_taps(g_, walk.at, x.step, taps);
                        window_taps(g_, walk.at, v.step, others);
                        const int64_t row = row_offset(wanted, box.n, walk, g_.rank);
                        for (int64_t o = box.low[last]; o < box.high[last]; ++o) {
                            const Span s = span(axis, o);
                            const int64_t from = (origin(axis, o) + s.first * axis.dilation) * g_.inner;
                            for (int64_t c = 0; c < g_.inner; ++c) {
                                const auto mine = order.key(static_cast<const T*>(y)[row + o * g_.inner + c]);
                                Sum sum{};
                                int64_t count = 0;
                                for (int64_t t = 0; t < n; ++t)
                                    for (int64_t j = 0; j < s.length; ++j) {
                                        const int64_t at = from + j * axis.dilation * g_.inner + c;
                                        if (!order.equals_one(order.key(static_cast<const T*>(x.data)[outer_offset(x, box.n) + taps[t].offset + at]),
                                                              mine))
                                            continue;
                                        sum = sum + E::widen_one(static_cast<const Stored*>(v.data)[outer_offset(v, box.n) + others[t].offset + at]);
                                        ++count;
                                    }
                                static_cast<Stored*>(out)[row + o * g_.inner + c] =
                                    split && count > 1 ? E::average_one(sum, count) : E::narrow_one(sum);
                            }
                        }
                    } while (next_row(box, g_.rank, walk));
                }
            });
        });
    });
}

// ---- flat indices ---------------------------------------------------------------------------------------------------

namespace {

int64_t load_index(const void* p, int64_t at, int width) {
    return width == 4 ? static_cast<const int32_t*>(p)[at] : static_cast<const int64_t*>(p)[at];
}

// Calls visit(output position, spans, origins, output index per axis, channel) for every output of a box.
template <class Visit> void every_output(const Geometry& g, const Box& box, const View& view, Visit&& visit) {
    const int last = g.rank - 1;
    RowWalk walk;
    if (!first_row(box, g.rank, walk)) return;
    Span spans[max_axes];
    int64_t origins[max_axes];
    do {
        for (int a = 0; a < last; ++a) spans[a] = span(g.axes[a], walk.at[a]), origins[a] = origin(g.axes[a], walk.at[a]);
        const int64_t row = row_offset(view, box.n, walk, g.rank);
        for (int64_t o = box.low[last]; o < box.high[last]; ++o) {
            spans[last] = span(g.axes[last], o), origins[last] = origin(g.axes[last], o);
            for (int64_t c = 0; c < g.inner; ++c) visit(row + o * g.inner + c, spans, origins, c);
        }
    } while (next_row(box, g.rank, walk));
}

// The input position a code stands for; false if it stands for none of the window's real elements.
bool decode(const Geometry& g, const Span* spans, const int64_t* origins, uint64_t code, int64_t* at) {
    for (int a = 0; a < g.rank; ++a) {
        const uint64_t step = static_cast<uint64_t>(g.code_step[a]), local_at = code / step;
        code -= local_at * step;
        if (local_at - static_cast<uint64_t>(spans[a].first) >= static_cast<uint64_t>(spans[a].length)) return false;
        at[a] = origins[a] + static_cast<int64_t>(local_at) * g.axes[a].dilation;
    }
    return true;
}

template <class T> uint64_t largest_of(const T* codes, int64_t count) {
    T largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, codes[i]);
    return largest;
}

uint64_t largest_code(const void* codes, int64_t at, int64_t count, int width) {
    switch (width) {
        case 1: return largest_of(static_cast<const uint8_t*>(codes) + at, count);
        case 2: return largest_of(static_cast<const uint16_t*>(codes) + at, count);
        case 4: return largest_of(static_cast<const uint32_t*>(codes) + at, count);
        default: return largest_of(static_cast<const uint64_t*>(codes) + at, count);
    }
}

// The windows of an axis by which of their local positions are real. Kind 0 is a whole one.
struct Kinds {
    struct Cut {
        int64_t window;
        size_t kind;
    };
    std::vector<Span> spans;              // of every kind
    int64_t whole_begin = 0, whole_end = 0;
    std::vector<uint32_t> others;         // the kinds of the windows before and after
    std::vector<Cut> cut;                 // the windows that are not whole

    size_t of(int64_t o) const {
        if (o < whole_begin) return others[static_cast<size_t>(o)];
        return o < whole_end ? 0 : others[static_cast<size_t>(o - whole_end + whole_begin)];
    }
};

Kinds kinds_of(const Axis& axis) {
    Kinds found;
    found.spans.push_back({0, axis.extent});
    if (axis.uniform && axis.whole_begin < axis.whole_end && axis.window == axis.extent)
        found.whole_begin = axis.whole_begin, found.whole_end = axis.whole_end;
    std::map<std::pair<int64_t, int64_t>, uint32_t> known{{{0, axis.extent}, 0}};
    for (int64_t o = 0; o < axis.count; ++o) {
        if (o == found.whole_begin) o = found.whole_end;
        if (o == axis.count) break;
        const Span s = span(axis, o);
        const auto [entry, fresh] = known.try_emplace({s.first, s.length}, static_cast<uint32_t>(found.spans.size()));
        if (fresh) found.spans.push_back(s);
        if (entry->second) found.cut.push_back({o, entry->second});
        found.others.push_back(entry->second);
    }
    return found;
}

// For every combination of kinds and every code of a byte: whether it names a real element.
std::vector<uint8_t> real_codes(const Geometry& g, const Kinds* kinds) {
    const size_t elements = static_cast<size_t>(g.elements);
    std::vector<uint8_t> real(256);
    std::fill_n(real.begin(), elements, uint8_t{1});
    for (int a = 0; a < g.rank; ++a) {
        int local_at[256];
        for (int64_t code = 0; code < g.elements; ++code) local_at[code] = static_cast<int>(code / g.code_step[a] % g.axes[a].extent);
        std::vector<uint8_t> finer(real.size() * kinds[a].spans.size());
        uint8_t* to = finer.data();
        for (const uint8_t* from = real.data(); from < real.data() + real.size(); from += 256)
            for (const Span& s : kinds[a].spans) {
                const int first = static_cast<int>(s.first), end = first + static_cast<int>(s.length);
                for (size_t code = 0; code < elements; ++code) to[code] = from[code] & (local_at[code] >= first) & (local_at[code] < end);
                to += 256;
            }
        real = std::move(finer);
    }
    return real;
}

// Whether every `step`th code is allowed, four at a time.
bool all_allowed(const uint8_t* allowed, const uint8_t* codes, int64_t count, int64_t step) {
    for (; count >= 4; count -= 4, codes += 4 * step)
        if (!(allowed[codes[0]] & allowed[codes[step]] & allowed[codes[2 * step]] & allowed[codes[3 * step]])) return false;
    for (; count > 0; --count, codes += step)
        if (!allowed[*codes]) return false;
    return true;
}

void keep_smaller(std::atomic<int64_t>& least, int64_t value) {
    int64_t now = least.load();
    while (value < now && !least.compare_exchange_weak(now, value)) {}
}

}  // namespace

// An index is where the window begins plus what the code adds; a code too large for the window gives -1.
void Plan::code_to_index(const void* code, int code_width, int scope, void* index, int index_width) const {
    const View view = dense(code, true, code_width);
    const int last = g_.rank - 1;
    int64_t move[max_axes];   // what one position on an axis adds to an index
    int64_t block = scope == 0 ? 1 : g_.inner;
    for (int a = last; a >= 0; block *= in_size(a), --a) move[a] = block;
    const auto added = [&](uint64_t rest) {
        int64_t sum = 0;
        for (int a = 0; a < g_.rank; ++a) {
            const uint64_t step = static_cast<uint64_t>(g_.code_step[a]), local_at = rest / step;
            rest -= local_at * step;
            sum += static_cast<int64_t>(local_at) * g_.axes[a].dilation * move[a];
        }
        return sum;
    };
    const uint64_t elements = static_cast<uint64_t>(g_.elements);
    std::vector<int64_t> known(std::min<uint64_t>({elements, static_cast<uint64_t>(outputs_), 1 << 16}));
    for (size_t i = 0; i < known.size(); ++i) known[i] = added(i);
    each_box(true, index_width, 0, [&](const Box& box, Scratch&) {
        RowWalk walk;
        if (!first_row(box, g_.rank, walk)) return;
        do {
            int64_t base = scope == 0 ? 0 : (scope == 1 ? box.n % g_.image_outer : box.n) * block;
            for (int a = 0; a < last; ++a) base += origin(g_.axes[a], walk.at[a]) * move[a];
            const int64_t row = row_offset(view, box.n, walk, g_.rank);
            for (int64_t o = box.low[last]; o < box.high[last]; ++o) {
                const int64_t begin = base + origin(g_.axes[last], o) * move[last];
                for (int64_t c = 0; c < g_.inner; ++c) {
                    const int64_t to = row + o * g_.inner + c;
                    const uint64_t at = load_code(code, to, code_width);
                    const int64_t beside = scope == 0 ? 0 : c;
                    const int64_t flat = at < known.size() ? begin + known[at] + beside : at < elements ? begin + added(at) + beside : -1;
                    if (index_width == 4) static_cast<int32_t*>(index)[to] = static_cast<int32_t>(flat);
                    else static_cast<int64_t*>(index)[to] = flat;
                }
            }
        } while (next_row(box, g_.rank, walk));
    });
}

// Codes that are too large are looked for everywhere. Others can only be wrong in windows that are cut short.
int64_t Plan::find_bad_code(const void* code, int code_width) const {
    bool whole = true;   // no window is cut short
    for (int a = 0; a < g_.rank; ++a) {
        const Axis& axis = g_.axes[a];
        whole = whole && axis.uniform && axis.whole_begin == 0 && axis.whole_end == axis.count && axis.window == axis.extent;
    }
    std::vector<Kinds> of_axes(whole ? 0 : static_cast<size_t>(g_.rank));
    Kinds* const kinds = of_axes.data();
    int64_t combinations = 1;
    bool cut = false;
    for (int a = 0; !whole && a < g_.rank; ++a) {
        kinds[a] = kinds_of(g_.axes[a]);
        combinations *= static_cast<int64_t>(kinds[a].spans.size());
        cut = cut || !kinds[a].cut.empty();
        if (combinations > outputs_) combinations = outputs_ + 1;
    }
    const auto fit = [&](int64_t at, int64_t count) { return largest_code(code, at, count, code_width) < static_cast<uint64_t>(g_.elements); };
    std::vector<uint8_t> real;
    if (cut && code_width == 1 && g_.elements <= 256 && combinations * g_.elements <= outputs_ / 4) real = real_codes(g_, kinds);
    std::atomic<bool> all_fit{true};   // as far as they are not compared with what is real
    if (real.empty()) {
        const int64_t part = std::max<int64_t>(tile_bytes, outputs_ / 64);
        parallel(ceil_div(outputs_, part), [&](int64_t i, Scratch&) {
            if (!fit(i * part, std::min(part, outputs_ - i * part))) all_fit = false;
        });
        if (all_fit && !cut) return -1;
    }
    const View view = dense(code, true, code_width);
    const int last = g_.rank - 1;
    std::atomic<int64_t> bad{INT64_MAX};
    const auto verify = [&](const Box& box) {
        every_output(g_, box, view, [&](int64_t o, const Span* spans, const int64_t* origins, int64_t) {
            int64_t at[max_axes];
            if (!decode(g_, spans, origins, load_code(code, o, code_width), at)) keep_smaller(bad, o);
        });
    };
    each_box(true, code_width, 0, [&](const Box& box, Scratch&) {
        if (!all_fit) return verify(box);
        const Kinds& columns = kinds[last];
        const auto before = [](const Kinds::Cut& cut, int64_t o) { return cut.window < o; };
        const auto cut_begin = std::lower_bound(columns.cut.begin(), columns.cut.end(), box.low[last], before);
        const auto cut_end = std::lower_bound(cut_begin, columns.cut.end(), box.high[last], before);
        const int64_t step = last > 0 ? view.step[last - 1] : 0, length = (box.high[last] - box.low[last]) * g_.inner;
        RowWalk walk;
        if (!first_row(box, g_.rank, walk)) return;
        do {
            size_t kind = 0;
            for (int a = 0; a < last; ++a) kind = kind * kinds[a].spans.size() + kinds[a].of(walk.at[a]);
            int64_t rows = 1;   // of this kind, one below the other
            if (last > 0 && walk.at[last - 1] >= kinds[last - 1].whole_begin)
                rows = std::max<int64_t>(1, std::min(box.high[last - 1], kinds[last - 1].whole_end) - walk.at[last - 1]);
            bool good = !real.empty();
            if (good) {
                const int64_t row = row_offset(view, box.n, walk, g_.rank), begin = row + box.low[last] * g_.inner;
                const uint8_t* const codes = static_cast<const uint8_t*>(code) + row;
                const uint8_t* const allowed = &real[kind * columns.spans.size() * 256];
                const auto check = [&](int64_t from, int64_t to, size_t column_kind) {   // windows of one kind
                    const uint8_t *const these = allowed + column_kind * 256, *const first = codes + from * g_.inner;
                    const int64_t count = (to - from) * g_.inner;
                    if (count == 1) good = good && all_allowed(these, first, rows, step);
                    else
                        for (int64_t r = 0; r < rows; ++r) good = good && all_allowed(these, first + r * step, count, 1);
                };
                int64_t o = box.low[last];
                for (auto cut = cut_begin; cut != cut_end; o = cut++->window + 1) {
                    if (kind != 0) check(o, cut->window, 0);
                    check(cut->window, cut->window + 1, cut->kind);
                }
                if (kind != 0) check(o, box.high[last], 0);
                else if (length == step) good = good && fit(begin, rows * step);
                else
                    for (int64_t r = 0; r < rows; ++r) good = good && fit(begin + r * step, length);
            }
            if (!good) {
                Box some = box;
                for (int a = 0; a < last; ++a) some.low[a] = walk.at[a], some.high[a] = walk.at[a] + (a == last - 1 ? rows : 1);
                const bool only_cut = real.empty() && kind == 0;
                if (!only_cut) verify(some);
                for (auto cut = cut_begin; only_cut && cut != cut_end; ++cut) {
                    some.low[last] = cut->window, some.high[last] = cut->window + 1;
                    verify(some);
                }
            }
            if (rows > 1) walk.at[last - 1] += rows - 1;
        } while (next_row(box, g_.rank, walk));
    });
    return bad.load() == INT64_MAX ? -1 : bad.load();
}

int64_t Plan::find_bad_index(const void* index, int index_width, int scope) const {
    if (outputs_ == 0) return -1;
    const int64_t spatial = inputs_ / (g_.outer * g_.inner), per_outer = outputs_ / g_.outer, per_image = spatial * g_.inner * g_.image_outer;
    std::atomic<int64_t> bad{INT64_MAX};
    parallel(g_.outer, [&](int64_t n, Scratch&) {
        const int64_t low = scope == 2 ? n / g_.image_outer * per_image : 0, high = low + (scope == 0 ? spatial : per_image);
        for (int64_t o = n * per_outer; o < (n + 1) * per_outer; ++o) {
            const int64_t at = load_index(index, o, index_width);
            if (at < low || at >= high) return keep_smaller(bad, o);
        }
    });
    return bad.load() == INT64_MAX ? -1 : bad.load();
}

// Indices are free to name any element of their image, so each image is one task, its outputs in ascending order.
void Plan::index_put(DType type, const View& g, const void* index, int index_width, int scope, void* gx) const {
    if (inputs_ == 0) return;
    const int64_t images = g_.outer / g_.image_outer, per_image = inputs_ / images;
    const int64_t spatial = inputs_ / (g_.outer * g_.inner), block = spatial * g_.inner;
    const int64_t per_outer = outputs_ / g_.outer;
    parallel(images, [&](int64_t image, Scratch& scratch) {
        with_wrapping_sum(type, [&](auto element) {
            using E = decltype(element);
            using Stored = typename E::Stored;
            using Sum = typename E::Sum;
            Stored* to = static_cast<Stored*>(gx) + image * per_image;
            Sum* sums;
            if constexpr (__is_same(Stored, Sum)) sums = to;
            else sums = static_cast<Sum*>(reserve(scratch, 0, sizeof(Sum) * static_cast<size_t>(per_image)));
            std::fill(sums, sums + per_image, Sum{});
            for (int64_t m = 0; m < g_.image_outer; ++m) {
                const int64_t n = image * g_.image_outer + m;
                Box all;
                all.n = n, all.n_end = n + 1;
                for (int a = 0; a < g_.rank; ++a) all.low[a] = 0, all.high[a] = out_size(a);
                RowWalk walk;
                if (per_outer == 0 || !first_row(all, g_.rank, walk)) continue;
                int64_t o = n * per_outer;
                do {
                    const Stored* from = static_cast<const Stored*>(g.data) + row_offset(g, n, walk, g_.rank);
                    for (int64_t i = 0; i < out_size(g_.rank - 1) * g_.inner; ++i, ++o) {
                        int64_t at = load_index(index, o, index_width);
                        if (scope == 0) at = m * block + at * g_.inner + i % g_.inner;
                        if (scope == 2) at -= image * per_image;
                        if (static_cast<uint64_t>(at) >= static_cast<uint64_t>(per_image)) continue;   // changed since it was checked
                        sums[at] = static_cast<Sum>(sums[at] + E::widen_one(from[i]));
                    }
                } while (next_row(all, g_.rank, walk));
            }
            if constexpr (!__is_same(Stored, Sum))
                for (int64_t i = 0; i < per_image; ++i) to[i] = E::narrow_one(sums[i]);
        });
    });
}

void Plan::index_take(DType type, const View& v, const void* index, int index_width, int scope, void* y) const {
    if (outputs_ == 0) return;
    const int64_t bytes = dtype_bytes(type), per_outer = outputs_ / g_.outer, spatial = inputs_ / (g_.outer * g_.inner), block = spatial * g_.inner;
    parallel(g_.outer, [&](int64_t n, Scratch&) {
        for (int64_t o = n * per_outer; o < (n + 1) * per_outer; ++o) {
            int64_t at = load_index(index, o, index_width);
            if (scope == 0) at = n * block + at * g_.inner + o % g_.inner;
            if (scope == 1) at += n / g_.image_outer * g_.image_outer * block;
            if (static_cast<uint64_t>(at) >= static_cast<uint64_t>(inputs_)) at = 0;   // changed since it was checked
            std::memcpy(static_cast<char*>(y) + o * bytes, static_cast<const char*>(v.data) + at * bytes, static_cast<size_t>(bytes));
        }
    });
}

}  // namespace poolgrad
