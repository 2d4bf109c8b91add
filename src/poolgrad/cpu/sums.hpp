// How array elements are stored, what sums of them are kept in, and the way between.
//
// Floating-point sums are kept in the next wider type and rounded once. Sums of integer gradients wrap; averages of
// integers are exact and cut toward zero.
#pragma once

#include "vec.hpp"

namespace poolgrad {
namespace {

// An Element says how an array element is stored (`Stored`), what sums of it are kept in (`Sum`) and the way between.

template <class T, class S> struct Plain {
    using Stored = T;
    using Sum = S;
    static POOLGRAD_INLINE S widen_one(T v) { return static_cast<S>(v); }
    static POOLGRAD_INLINE T narrow_one(S v) { return static_cast<T>(v); }
    static POOLGRAD_INLINE S share(T v, int64_t count) { return widen_one(v) * (S{1} / static_cast<S>(count)); }
    template <int lanes> static POOLGRAD_INLINE Vec<S, lanes> widen_lanes(const T* p) {
        if constexpr (__is_same(T, S)) return load<Vec<S, lanes>>(p);
        else return convert<Vec<S, lanes>>(load<Vec<T, lanes>>(p));
    }
    template <int lanes> static POOLGRAD_INLINE auto narrow_lanes(Vec<S, lanes> v) {
        if constexpr (__is_same(T, S)) return v;
        else return convert<Vec<T, lanes>>(v);
    }
};

struct HalfSum {
    using Stored = uint16_t;
    using Sum = float;
    static POOLGRAD_INLINE float widen_one(uint16_t v) { return widen(Half{v}); }
    static POOLGRAD_INLINE uint16_t narrow_one(float v) { return narrow_half(v).bits; }
    static POOLGRAD_INLINE float share(uint16_t v, int64_t count) { return widen_one(v) * (1.0f / static_cast<float>(count)); }
    template <int lanes> static POOLGRAD_INLINE Vec<float, lanes> widen_lanes(const uint16_t* p) {
#if defined(__AVX512F__)
        if constexpr (lanes == 16) return reinterpret_cast<Vec<float, 16>>(_mm512_cvtph_ps(load<__m256i>(p)));
#endif
#if defined(__F16C__)
        if constexpr (lanes == 8) return reinterpret_cast<Vec<float, 8>>(_mm256_cvtph_ps(load<__m128i>(p)));
#endif
        Vec<float, lanes> v;
        for (int i = 0; i < lanes; ++i) v[i] = widen_one(p[i]);
        return v;
    }
    template <int lanes> static POOLGRAD_INLINE Vec<uint16_t, lanes> narrow_lanes(Vec<float, lanes> v) {
#if defined(__AVX512F__)
        if constexpr (lanes == 16) return reinterpret_cast<Vec<uint16_t, 16>>(_mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(__F16C__)
        if constexpr (lanes == 8) return reinterpret_cast<Vec<uint16_t, 8>>(_mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#endif
        Vec<uint16_t, lanes> h;
        for (int i = 0; i < lanes; ++i) h[i] = narrow_one(v[i]);
        return h;
    }
};

struct BrainSum {
    using Stored = uint16_t;
    using Sum = float;
    static POOLGRAD_INLINE float widen_one(uint16_t v) { return widen(Brain{v}); }
    static POOLGRAD_INLINE uint16_t narrow_one(float v) { return narrow_brain(v).bits; }
    static POOLGRAD_INLINE float share(uint16_t v, int64_t count) { return widen_one(v) * (1.0f / static_cast<float>(count)); }
    template <int lanes> static POOLGRAD_INLINE Vec<float, lanes> widen_lanes(const uint16_t* p) {
        return reinterpret_cast<Vec<float, lanes>>(convert<Vec<uint32_t, lanes>>(load<Vec<uint16_t, lanes>>(p)) << 16);
    }
    template <int lanes> static POOLGRAD_INLINE Vec<uint16_t, lanes> narrow_lanes(Vec<float, lanes> v) {
        const auto u = reinterpret_cast<Vec<uint32_t, lanes>>(v);
        const auto rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        const auto quiet = (u >> 16) | 0x40u;
        return convert<Vec<uint16_t, lanes>>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
};

// A sum of two float64 parts, for the spread of integers, whose exact value decides where it is cut.
struct Double2 {
    double high, low;
};

POOLGRAD_INLINE Double2 operator+(Double2 a, Double2 b) {
    const double sum = a.high + b.high, back = sum - a.high;
    return {sum, a.low + b.low + ((a.high - (sum - back)) + (b.high - back))};
}

// Shares of integers, value / count, added up exactly enough to be cut in the right place.
template <class T> struct IntegerShare {
    using Stored = T;
    using Sum = Double2;
    static POOLGRAD_INLINE Double2 share(T value, int64_t count) {
        T whole, rest;
        if constexpr (T(-1) < T(0)) {
            whole = static_cast<T>(value / static_cast<__int128>(count));
            rest = static_cast<T>(value % static_cast<__int128>(count));
        } else {
            whole = static_cast<T>(value / static_cast<uint64_t>(count));
            rest = static_cast<T>(value % static_cast<uint64_t>(count));
        }
        const double high = static_cast<double>(whole), fraction = static_cast<double>(rest) / static_cast<double>(count);
        const double low = static_cast<double>(static_cast<__int128>(whole) - static_cast<__int128>(high));
        const double error = __builtin_fma(-fraction, static_cast<double>(count), static_cast<double>(rest)) / static_cast<double>(count);
        return Double2{high, low} + Double2{fraction, error};
    }
    // Toward zero, of the exact sum: what lies within 2**-40 of an integer is that integer.
    static POOLGRAD_INLINE T narrow_one(Double2 sum) {
        const double high = __builtin_rint(sum.high);
        const double rest = (sum.high - high) + sum.low, near = __builtin_rint(rest);
        __int128 result = static_cast<__int128>(high) + static_cast<__int128>(near);
        const double left = rest - near;
        if (left > 0x1p-40 && result < 0) ++result;
        if (left < -0x1p-40 && result > 0) --result;
        return static_cast<T>(result);
    }
};

// Calls f with the Element of a type: sums that wrap (put), exact sums (mean), shares (spread).
template <class F> POOLGRAD_INLINE void with_wrapping_sum(DType type, F&& f) {
    switch (type) {
        case DType::f16: return f(HalfSum{});
        case DType::bf16: return f(BrainSum{});
        case DType::f32: return f(Plain<float, float>{});
        case DType::f64: return f(Plain<double, double>{});
        case DType::i8: case DType::u8: return f(Plain<uint8_t, uint8_t>{});
        case DType::i16: case DType::u16: return f(Plain<uint16_t, uint16_t>{});
        case DType::i32: case DType::u32: return f(Plain<uint32_t, uint32_t>{});
        case DType::i64: case DType::u64: return f(Plain<uint64_t, uint64_t>{});
    }
}

template <class F> POOLGRAD_INLINE void with_exact_sum(DType type, F&& f) {
    switch (type) {
        case DType::f16: return f(HalfSum{});
        case DType::bf16: return f(BrainSum{});
        case DType::f32: return f(Plain<float, double>{});
        case DType::f64: return f(Plain<double, double>{});
        case DType::i8: return f(Plain<int8_t, int64_t>{});
        case DType::i16: return f(Plain<int16_t, int64_t>{});
        case DType::i32: return f(Plain<int32_t, int64_t>{});
        case DType::i64: return f(Plain<int64_t, __int128>{});
        case DType::u8: return f(Plain<uint8_t, int64_t>{});
        case DType::u16: return f(Plain<uint16_t, int64_t>{});
        case DType::u32: return f(Plain<uint32_t, int64_t>{});
        case DType::u64: return f(Plain<uint64_t, __int128>{});
    }
}

template <class F> POOLGRAD_INLINE void with_share(DType type, F&& f) {
    switch (type) {
        case DType::f16: return f(HalfSum{});
        case DType::bf16: return f(BrainSum{});
        case DType::f32: return f(Plain<float, double>{});
        case DType::f64: return f(Plain<double, double>{});
        case DType::i8: return f(IntegerShare<int8_t>{});
        case DType::i16: return f(IntegerShare<int16_t>{});
        case DType::i32: return f(IntegerShare<int32_t>{});
        case DType::i64: return f(IntegerShare<int64_t>{});
        case DType::u8: return f(IntegerShare<uint8_t>{});
        case DType::u16: return f(IntegerShare<uint16_t>{});
        case DType::u32: return f(IntegerShare<uint32_t>{});
        case DType::u64: return f(IntegerShare<uint64_t>{});
    }
}

}  // namespace
}  // namespace poolgrad
