// What the gradients have in common: input rows collect from the output rows that cover them, in ascending order of the
// windows, and every element is written once. Threads cannot change the result.
#pragma once

#include "reduce.hpp"
#include "sums.hpp"

namespace poolgrad {
namespace {

// On an axis whose windows repeat with the stride, input `j * stride + phase - before` is local position `code` of the
// outputs j + shift, for the few (shift, code) of its phase.
struct Shift {
    int64_t shift, code;
};

struct Phases {
    Shift* shifts;       // of all phases, one after the other, in ascending order of the outputs
    int64_t* begin;      // phase p has the shifts [begin[p], begin[p + 1])
    int64_t lowest, highest;

    Phases() : shifts(nullptr), begin(nullptr), lowest(0), highest(0) {}

    // Room is taken from two slots of the scratch memory.
    Phases(const Axis& axis, Scratch& scratch, int slot) : lowest(0), highest(0) {
        shifts = static_cast<Shift*>(reserve(scratch, slot, sizeof(Shift) * static_cast<size_t>(axis.window)));
        begin = static_cast<int64_t*>(reserve(scratch, slot + 1, sizeof(int64_t) * static_cast<size_t>(axis.stride + 1)));
        int64_t n = 0;
        for (int64_t phase = 0; phase < axis.stride; ++phase) {
            begin[phase] = n;
            for (int64_t j = axis.window - 1; j >= 0; --j) {
                const int64_t distance = phase - j * axis.dilation;
                if (distance % axis.stride != 0) continue;
                shifts[n++] = {distance / axis.stride, j};
                lowest = smaller(lowest, distance / axis.stride);
                highest = larger(highest, distance / axis.stride);
            }
        }
        begin[axis.stride] = n;
    }
};

#if defined(__AVX2__) && !defined(__AVX512BW__)
// Sums of floats after values in the lanes that are hit. A sum is never -0, so that it stays the same where 0 is added. Of two NaN, the one
// in the sum stays: compilers would exchange the two.
template <class Sums, class Hit> POOLGRAD_INLINE Sums add_where(Sums sum, Hit hit, Sums value) {
    const Sums added = reinterpret_cast<Sums>(hit & reinterpret_cast<Hit>(value));
    Sums result;
    if constexpr (sizeof(sum[0]) == 4) __asm__("vaddps %2, %1, %0" : "=x"(result) : "x"(sum), "x"(added));
    else __asm__("vaddpd %2, %1, %0" : "=x"(result) : "x"(sum), "x"(added));
    return result;
}
#endif

// Calls f(vectors, c) for blocks of channels; the last block may overlap the one before.
template <int vectors> struct Vectors {
    static constexpr int value = vectors;
};

template <int lanes, class F> POOLGRAD_INLINE void blocks_of_channels(int64_t inner, F&& f) {
    int64_t c = 0;
    for (; c + 4 * lanes <= inner; c += 4 * lanes) f(Vectors<4>{}, c);
    if (c + 2 * lanes <= inner) f(Vectors<2>{}, c), c += 2 * lanes;
    for (; c < inner; c += lanes) f(Vectors<1>{}, smaller(c, inner - lanes));
}

// Writes a finished row: past the caches if asked to.
template <class T> POOLGRAD_INLINE void write_row(T* to, const T* from, int64_t count, bool streaming) {
    if (!streaming) {
        __builtin_memcpy(to, from, sizeof(T) * static_cast<size_t>(count));
        return;
    }
    const char* source = reinterpret_cast<const char*>(from);
    char* target = reinterpret_cast<char*>(to);
    int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    const int64_t head = smaller(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(target) & (vector_bytes - 1)));
    __builtin_memcpy(target, source, static_cast<size_t>(head));
    target += head, source += head, bytes -= head;
    const int64_t whole = bytes / vector_bytes * vector_bytes;
    stream_vectors(target, source, whole);
    __builtin_memcpy(target + whole, source + whole, static_cast<size_t>(bytes - whole));
}

// A row of results that is made phase by phase, `count` elements of each. Unless two phases of single elements take turns,
// they lie one behind the other until all of them are there.
template <class T> struct PhasedRow {
    static constexpr int64_t behind = 64;   // elements, for what vectors write too much
    T* row;
    int64_t count, inner, stride;

    static int64_t room(int64_t count, int64_t stride) { return 2 * stride * (count + behind); }   // elements

    POOLGRAD_INLINE T* phase_at(int64_t phase) const { return row + (stride + phase) * (count + behind); }

    // Some vectors of every phase, the first lane at q; of_phase(phase, vectors) makes those of one.
    template <int lanes, int vectors, class OfPhase> POOLGRAD_INLINE void put(int64_t q, OfPhase&& of_phase) const {
        Vec<T, lanes> result[vectors], odd[vectors];
        if (stride == 1) {
            of_phase(0, result);
            for (int u = 0; u < vectors; ++u) store(row + q + u * lanes, result[u]);
        } else if (stride == 2 && inner == 1) {
            of_phase(0, result);
            of_phase(1, odd);
            for (int u = 0; u < vectors; ++u) store_interleaved<T, lanes>(row + 2 * (q + u * lanes), result[u], odd[u]);
        } else {
            for (int64_t phase = 0; phase < stride; ++phase) {
                of_phase(phase, result);
                for (int u = 0; u < vectors; ++u) store(phase_at(phase) + q + u * lanes, result[u]);
            }
        }
    }

    // All vectors of all phases are there.
    POOLGRAD_INLINE void finish() const {
        if (!parted(stride, inner)) return;
        const int64_t piece = inner * static_cast<int64_t>(sizeof(T)), phase = (count + behind) * static_cast<int64_t>(sizeof(T));
        copy_pieces(row, stride * piece, piece, phase_at(0), piece, phase, count / inner, stride, piece);
    }
};

}  // namespace
}  // namespace poolgrad
