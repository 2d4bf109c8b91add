// Channels-first arrays as the kernels like them: some planes at a time are turned into scratch memory, where they lie side by side
// like channels, and the results are turned back. See turn.cpp.
#pragma once

#include <algorithm>

#include "kernels.hpp"

namespace poolgrad {

// A box of planes: at least as many as a vector has lanes, at most 64.
class Turned {
public:
    Geometry geometry;       // of the turned arrays
    Box inputs, outputs;     // of all that takes part; the box of results is one of them
    Scratch& scratch;

    Turned(const Geometry& g, int64_t planes, int64_t bytes, int64_t n, const Kernels& k, Scratch& scratch)
        : geometry(g),
          scratch(scratch),
          kernels_(k),
          planes_(planes),
          widest_(static_cast<int>(bytes)),
          real_(static_cast<int>(std::min(planes, g.outer - n))),
          first_(n) {
        geometry.outer = 1;
        geometry.inner = planes;
        inputs.n = outputs.n = 0;
        inputs.n_end = outputs.n_end = 1;
    }

    // Room for the elements of a box.
    View room(const Box& box, int64_t bytes) {
        View view{};
        view.outer_split = 1;
        int64_t step = planes_, offset = 0;
        for (int a = geometry.rank - 1; a >= 0; --a) {
            view.step[a] = step;
            offset += box.low[a] * step;
            step *= box.high[a] - box.low[a];
        }
        char* memory = static_cast<char*>(reserve(scratch, slot_++, static_cast<size_t>(step * bytes)));
        view.data = memory - offset * bytes;
        view.begin = memory;
        view.end = memory + step * bytes;
        return view;
    }

    View in(const View& array, const Box& box, int64_t bytes) {
        const View turned = room(box, bytes);
        turn(array, turned, box, bytes, false, false);
        return turned;
    }

    void out(const View& turned, const View& array, const Box& box, int64_t bytes, bool streaming) const {
        turn(array, turned, box, bytes, true, streaming);
    }

private:
    const Kernels& kernels_;
    int64_t planes_;
    int widest_, real_, slot_ = 8;
    int64_t first_;

    void turn(const View& array, const View& turned, const Box& box, int64_t bytes, bool back, bool streaming) const {
        const int64_t lanes = kernels_.vector_bytes / widest_;
        void* planes[64];
        const bool cached = static_cast<const char*>(array.end) - static_cast<const char*>(array.begin) < (1 << 20);
        Turn job{static_cast<int>(bytes), widest_, 1, planes, nullptr, planes_, back, streaming, 0, cached ? 0 : 2048};
        // Rows that follow one another in memory are turned as one.
        int axis = geometry.rank - 1;
        int64_t rows = box.high[axis] - box.low[axis];
        while (axis > 0 && rows == array.step[axis - 1]) rows *= box.high[axis - 1] - box.low[axis - 1], --axis;
        job.count = rows;
        RowWalk walk;
        if (!first_row(box, geometry.rank, walk)) return;
        do {
            int64_t offset = 0, to = 0;
            for (int a = 0; a < geometry.rank; ++a) offset += walk.at[a] * array.step[a], to += walk.at[a] * turned.step[a];
            for (int64_t first = 0; first < planes_; first += lanes) {
                for (int64_t p = 0; p < lanes; ++p)
                    planes[p] =
                        static_cast<char*>(array.data) + (outer_offset(array, first_ + std::min<int64_t>(first + p, real_ - 1)) + offset) * bytes;
                job.turned = static_cast<char*>(turned.data) + (to + first) * bytes;
                job.real = static_cast<int>(std::clamp<int64_t>(real_ - first, 0, lanes));
                kernels_.turn(job);
            }
        } while (next_row(box, axis + 1, walk));
    }
};

}  // namespace poolgrad
