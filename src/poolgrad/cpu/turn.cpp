// Turns planes: elements that lie in one plane after the other are laid side by side, and back.
//
// A vector then holds one element of every plane. A square of vectors is turned in registers, in log2 steps, each of which
// swaps two corners of all squares of one size. Where there are more planes than a square has rows, or room in the vectors
// because elements are narrow, several squares are turned at once.
#include <utility>

#include "kernels.hpp"
#include "vec.hpp"

namespace poolgrad {
namespace {

// Every second run of `step` elements of a and of b in turns: the first of each pair of runs, or the second.
template <bool second, int step, class V, int... at> POOLGRAD_INLINE V every_second_run(V a, V b, std::integer_sequence<int, at...>) {
    constexpr int lanes = sizeof...(at);
    return __builtin_shufflevector(a, b, (at / step % 2 == 0 ? at + (second ? step : 0) : lanes + at - (second ? 0 : step))...);
}

// Two rows that are `step` apart exchange the corners of their squares of 2 x 2 x `step` elements.
template <class T, int lanes, int step> POOLGRAD_INLINE void swap_corners(Vec<T, lanes>& a, Vec<T, lanes>& b) {
    if constexpr (step > 1 && sizeof(T) < 8) {
        using Wide = typename IntOf<2 * sizeof(T)>::natural;
        using W = Vec<Wide, lanes / 2>;
        W wide_a = reinterpret_cast<W>(a), wide_b = reinterpret_cast<W>(b);
        swap_corners<Wide, lanes / 2, step / 2>(wide_a, wide_b);
        a = reinterpret_cast<Vec<T, lanes>>(wide_a), b = reinterpret_cast<Vec<T, lanes>>(wide_b);
    } else if constexpr (sizeof(T) < 4) {   // not every instruction set shuffles these
        using Wide = typename IntOf<2 * sizeof(T)>::natural;
        using W = Vec<Wide, lanes / 2>;
        constexpr int bits = 8 * sizeof(T);
        constexpr Wide low = static_cast<Wide>((Wide{1} << bits) - 1), high = static_cast<Wide>(~low);
        const W wide_a = reinterpret_cast<W>(a), wide_b = reinterpret_cast<W>(b);
        a = reinterpret_cast<Vec<T, lanes>>((wide_a & low) | (wide_b << bits));
        b = reinterpret_cast<Vec<T, lanes>>((wide_a >> bits) | (wide_b & high));
    } else {
        constexpr std::make_integer_sequence<int, lanes> all;
        const Vec<T, lanes> first = every_second_run<false, step>(a, b, all);
        b = every_second_run<true, step>(a, b, all);
        a = first;
    }
}

template <class T, int lanes, int rows> POOLGRAD_INLINE void turn_squares(Vec<T, lanes> (&v)[rows]) {
    const auto steps = [&]<int step>(auto&& self, std::integral_constant<int, step>) __attribute__((always_inline)) {
        if constexpr (step > 0) {
            for (int i = 0; i < rows; ++i)
                if ((i & step) == 0) swap_corners<T, lanes, step>(v[i], v[i + step]);
            self(self, std::integral_constant<int, step / 2>{});
        }
    };
    steps(steps, std::integral_constant<int, rows / 2>{});
}

// Parts of a vector: each has its own place in memory.
template <class T, int lanes, int part, class At> POOLGRAD_INLINE Vec<T, lanes> load_parts(At&& at, int first) {
    if constexpr (lanes == part) {
        return load<Vec<T, lanes>>(at(first));
    } else {
        const auto low = load_parts<T, lanes / 2, part>(at, first), high = load_parts<T, lanes / 2, part>(at, first + lanes / 2 / part);
        return [&]<int... i>(std::integer_sequence<int, i...>)
                   __attribute__((always_inline)) { return __builtin_shufflevector(low, high, i...); }(std::make_integer_sequence<int, lanes>{});
    }
}

template <class T, int lanes, int part, class At> POOLGRAD_INLINE void store_parts(At&& at, int first, Vec<T, lanes> v) {
    if constexpr (lanes == part) {
        at(first, v);
    } else {
        [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
            store_parts<T, lanes / 2, part>(at, first, __builtin_shufflevector(v, v, i...));
            store_parts<T, lanes / 2, part>(at, first + lanes / 2 / part, __builtin_shufflevector(v, v, (i + lanes / 2)...));
        }(std::make_integer_sequence<int, lanes / 2>{});
    }
}

// Elements of type T of so many planes that those of type Widest would fill a vector.
template <class T, class Widest> struct Turner {
    static constexpr int lanes = vector_bytes / sizeof(T), planes = vector_bytes / sizeof(Widest);
    static constexpr int rows = planes < 16 ? planes : 16;
    static constexpr int plane_squares = planes / rows, column_squares = lanes / planes;
    static constexpr int columns = rows * column_squares;   // in one block
    using V = Vec<T, lanes>;

    const Turn& job;
    T* const* const plane;
    T* const turned;

    explicit Turner(const Turn& job) : job(job), plane(reinterpret_cast<T* const*>(job.planes)), turned(static_cast<T*>(job.turned)) {}

    POOLGRAD_INLINE void block_forth(int64_t f) const {
        V v[rows];
        for (int i = 0; i < rows; ++i) {
            v[i] = load_parts<T, lanes, rows>(
                [&](int part) __attribute__((always_inline)) {
                    const T* p = plane[i + rows * (part % plane_squares)] + f;
                    if (job.ahead) ask_for_line(p + job.ahead / static_cast<int64_t>(sizeof(T)));
                    return p + rows * (part / plane_squares);
                },
                0);
        }
        turn_squares<T, lanes, rows>(v);
        for (int i = 0; i < rows; ++i)
            store_parts<T, lanes, planes>(
                [&](int part, auto some) __attribute__((always_inline)) { store(turned + (f + rows * part + i) * job.pitch, some); }, 0, v[i]);
    }

    template <bool streaming> POOLGRAD_INLINE void block_back(int64_t f) const {
        V v[rows];
        for (int i = 0; i < rows; ++i)
            v[i] =
                load_parts<T, lanes, planes>([&](int part) __attribute__((always_inline)) { return turned + (f + rows * part + i) * job.pitch; }, 0);
        turn_squares<T, lanes, rows>(v);
        for (int i = 0; i < rows; ++i)
            store_parts<T, lanes, rows>(
                [&](int part, auto some) __attribute__((always_inline)) {
                    const int p = i + rows * (part % plane_squares);
                    if (p >= job.real) return;
                    T* to = plane[p] + f + rows * (part / plane_squares);
                    if (streaming) stream(to, some);
                    else store(to, some);
                },
                0, v[i]);
    }

    // The first element that begins a cache line in all planes, or -1.
    int64_t first_aligned() const {
        const uintptr_t begin = reinterpret_cast<uintptr_t>(plane[0]) % 64;
        for (int p = 1; p < job.real; ++p)
            if (reinterpret_cast<uintptr_t>(plane[p]) % 64 != begin) return -1;
        return begin % sizeof(T) ? -1 : static_cast<int64_t>((64 - begin) % 64 / sizeof(T));
    }

    template <class Block> POOLGRAD_INLINE void blocks(int64_t f, Block&& block) const {
        for (; f + columns <= job.count; f += columns) block(f);
    }

    void run() const {
        if (job.count < columns) {
            for (int p = 0; p < job.real; ++p)
                for (int64_t i = 0; i < job.count; ++i) job.back ? plane[p][i] = turned[i * job.pitch + p] : turned[i * job.pitch + p] = plane[p][i];
            if (!job.back)
                for (int p = job.real; p < planes; ++p)
                    for (int64_t i = 0; i < job.count; ++i) turned[i * job.pitch + p] = plane[p][i];
            return;
        }
        const auto any = [&](int64_t f) __attribute__((always_inline)) { job.back ? block_back<false>(f) : block_forth(f); };
        const int64_t aligned = first_aligned(), begin = aligned < 0 ? 0 : aligned % columns;
        if (begin > 0) any(0);
        if (job.back && job.streaming && aligned >= 0 && plane_squares == 1 && column_squares == 1) {
            blocks(begin, [&](int64_t f) __attribute__((always_inline)) { block_back<true>(f); });
            stream_fence();
        } else if (job.back) blocks(begin, [&](int64_t f) __attribute__((always_inline)) { block_back<false>(f); });
        else blocks(begin, [&](int64_t f) __attribute__((always_inline)) { block_forth(f); });
        if ((job.count - begin) % columns) any(job.count - columns);   // overlaps the block before
    }
};

template <class Widest> void run(const Turn& job) {
    if (job.bytes == 1) return Turner<uint8_t, Widest>(job).run();
    if constexpr (sizeof(Widest) >= 2)
        if (job.bytes == 2) return Turner<uint16_t, Widest>(job).run();
    if constexpr (sizeof(Widest) >= 4)
        if (job.bytes == 4) return Turner<uint32_t, Widest>(job).run();
    if constexpr (sizeof(Widest) == 8) Turner<uint64_t, Widest>(job).run();
}

}  // namespace

extern const int POOLGRAD_KERNEL(vector_bytes) = vector_bytes;   // for the table of kernels

void POOLGRAD_KERNEL(turn)(const Turn& job) {
    switch (job.widest) {
        case 1: return run<uint8_t>(job);
        case 2: return run<uint16_t>(job);
        case 4: return run<uint32_t>(job);
        default: return run<uint64_t>(job);
    }
}

}  // namespace poolgrad
