// How array elements are stored, what sums of them are kept in, and the way between.
//
// Floating-point sums are kept in the next wider type and rounded once. Sums of integer gradients wrap; averages of
// integers are exact and cut toward zero.
#pragma once

#include <type_traits>
#include <utility>

#include "vec.hpp"

namespace poolgrad {
namespace {

// Sums that no vector holds are added up one by one; their vectors are only named.
template <class Sum> struct Lane {
    using type = Sum;
};
template <> struct Lane<__int128> {
    using type = int64_t;
};

// a - q * count, rounded once.
POOLGRAD_INLINE double residual(double a, double q, double count) { return __builtin_fma(-q, count, a); }
template <class V> POOLGRAD_INLINE V residual(V a, V q, V count) {
#if defined(__AVX512F__)
    return reinterpret_cast<V>(_mm512_fnmadd_pd(reinterpret_cast<__m512d>(q), reinterpret_cast<__m512d>(count), reinterpret_cast<__m512d>(a)));
#elif defined(__FMA__)
    return reinterpret_cast<V>(_mm256_fnmadd_pd(reinterpret_cast<__m256d>(q), reinterpret_cast<__m256d>(count), reinterpret_cast<__m256d>(a)));
#else
    V r;
    for (unsigned i = 0; i < sizeof(V) / sizeof(double); ++i) r[i] = __builtin_fma(-q[i], count[i], a[i]);
    return r;
#endif
}
template <class V> POOLGRAD_INLINE V residual(V a, V q, double count) { return residual(a, q, count - V{}); }   // which takes no subtraction

// a * b + c rounded once, or a + b by the units that multiply: those that add are busy with conversions.
template <class V> POOLGRAD_INLINE V fused([[maybe_unused]] V a, [[maybe_unused]] V b, V c) {
    using S [[maybe_unused]] = typename Bare<decltype(c[0])>::type;
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64 && __is_same(S, double))
        return reinterpret_cast<V>(_mm512_fmadd_pd(reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), reinterpret_cast<__m512d>(c)));
    if constexpr (sizeof(V) == 64 && __is_same(S, float))
        return reinterpret_cast<V>(_mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#endif
#if defined(__FMA__)
    if constexpr (sizeof(V) == 32 && __is_same(S, double))
        return reinterpret_cast<V>(_mm256_fmadd_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b), reinterpret_cast<__m256d>(c)));
    if constexpr (sizeof(V) == 32 && __is_same(S, float))
        return reinterpret_cast<V>(_mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#endif
    return c;   // not reached
}
template <class V> POOLGRAD_INLINE V plus(V a, V b) {
#if defined(__FMA__)
    using S = typename Bare<decltype(a[0])>::type;
    if constexpr (sizeof(V) == vector_bytes && (__is_same(S, double) || __is_same(S, float))) return fused(a, S{1} - V{}, b);
#endif
    return a + b;
}

// What averages are divided by, made ready for many of them. Multiplying by the inverse is dividing if that is exact. If it is not, the
// product of a float64 with an inverse of two parts, which is off by less than 2**-100, is rounded as the quotient is: of a small divisor, no
// quotient comes that near to where rounding changes. Both parts are positive, so that infinities stay and zeros keep their sign.
template <class S> struct Denominator {
    int64_t count;
    S value, inverse, rest;   // of float64, 1 / value is inverse + rest unless the inverse is exact
    bool exact, small;        // a power of two; another small number
    explicit Denominator(int64_t n)
        : count(n),
          value(static_cast<S>(n)),
          inverse(S{1} / value),
          rest{},
          exact(S{1} / S{2} != 0 && n > 0 && (n & (n - 1)) == 0),   // where halves exist
          small(!exact && n > 0 && n < int64_t{1} << 40) {
#if defined(__FMA__)
        if constexpr (__is_same(S, double)) {
            if (small) inverse *= 1 - 0x1p-53;   // the number below, so that the rest is positive
            if (small) rest = residual(1.0, inverse, value) / value;
        }
#endif
    }
};

template <class V, class S> POOLGRAD_INLINE V quotient(V sum, const Denominator<S>& by) {
    if (by.exact) return sum * by.inverse;
#if defined(__FMA__)
    if constexpr (__is_same(S, double)) {
        if (by.small) return fused(sum, by.inverse - V{}, sum * by.rest);
    }
#endif
    return sum / by.value;
}
template <class V> POOLGRAD_INLINE V quotient(V sum, V by) { return sum / by; }

// An Element says how an array element is stored (`Stored`), what sums of it are kept in (`Sum`, in vectors `Sums`), and the
// way between. An average is `average(sum, count)`, in vectors `average(sum, Count(count))` or by a vector of counts; a share of a sum, to be added to
// other shares, `share(sum, weigh(count))`.

template <class T, class S> struct Plain {
    using Stored = T;
    using Sum = S;
    using Count = Denominator<S>;
    static constexpr int lanes = sizeof(S) <= 8 ? vector_bytes / static_cast<int>(sizeof(S)) : 1;
    using Sums = Vec<typename Lane<S>::type, lanes>;
    static POOLGRAD_INLINE S widen_one(T v) { return static_cast<S>(v); }
    static POOLGRAD_INLINE T narrow_one(S v) { return static_cast<T>(v); }
    static POOLGRAD_INLINE T average_one(S sum, int64_t count) { return static_cast<T>(sum / static_cast<S>(count)); }
    static POOLGRAD_INLINE S weigh(int64_t count) { return S{1} / static_cast<S>(count); }
    static POOLGRAD_INLINE S share_one(S sum, S weight) { return sum * weight; }
    static POOLGRAD_INLINE Sums widen_lanes(const T* p) {
        if constexpr (__is_same(T, S)) return load<Sums>(p);
        else return convert<S, lanes>(load<Vec<T, lanes>>(p));
    }
    static POOLGRAD_INLINE auto narrow_lanes(Sums v) {
        if constexpr (__is_same(T, S)) return v;
        else return convert<T, lanes>(v);
    }
    template <class By> static POOLGRAD_INLINE auto average_lanes(Sums sum, const By& by) { return narrow_lanes(quotient(sum, by)); }
    template <class Weight> static POOLGRAD_INLINE Sums share_lanes(Sums sum, Weight weight) { return sum * weight; }
    // 0 + the share, which is not -0.
    template <class Weight> static POOLGRAD_INLINE Sums share_from_zero(Sums sum, Weight weight) {
#if defined(__FMA__)
        if constexpr (__is_same(T, float) && __is_same(S, double))
            return fused(sum, weight - Sums{}, Sums{});   // nothing is so small that it vanishes
#endif
        return Sums{} + sum * weight;
    }
};

// Sums of windows of more elements are kept in wider types.
constexpr int64_t long_window = 2048;

// Averages of short integers, and of 32 bits in windows that are not long: their sums are whole numbers that float64 holds exactly,
// and quotients of such are never rounded up to a whole number.
template <class T> struct IntegerMean : Plain<T, double> {
    using Base = Plain<T, double>;
    using Base::lanes;
    using typename Base::Sums, typename Base::Count;
    static POOLGRAD_INLINE T narrow_one(double v) { return static_cast<T>(static_cast<int64_t>(v)); }   // what does not fit wraps
    static POOLGRAD_INLINE T average_one(double sum, int64_t count) { return narrow_one(sum / static_cast<double>(count)); }
    static POOLGRAD_INLINE Sums widen_lanes(const T* p) {
        if constexpr (sizeof(T) == 4) return convert<double, lanes>(load<Vec<T, lanes>>(p));
        else return convert<double, lanes>(convert<int32_t, lanes>(load<Vec<T, lanes>>(p)));
    }
    static POOLGRAD_INLINE auto narrow_lanes(Sums v) { return convert<T, lanes>(convert<int64_t, lanes>(v)); }
    template <class By> static POOLGRAD_INLINE auto average_lanes(Sums sum, const By& by) { return narrow_lanes(quotient(sum, by)); }
};

// What 16-bit floats have in common: sums in float32, or in float64 where windows are so long that float32 would stagnate.

template <class Conversion, class S> struct Sixteen : Conversion {
    using Stored = uint16_t;
    using Sum = S;
    using Count = Denominator<S>;
    static constexpr int lanes = vector_bytes / static_cast<int>(sizeof(S));
    using Sums = Vec<S, lanes>;
    static POOLGRAD_INLINE S widen_one(uint16_t v) { return static_cast<S>(Conversion::widen_one(v)); }
    static POOLGRAD_INLINE uint16_t narrow_one(S v) { return Conversion::narrow_one(static_cast<float>(v)); }
    static POOLGRAD_INLINE uint16_t average_one(S sum, int64_t count) { return narrow_one(sum / static_cast<S>(count)); }
    static POOLGRAD_INLINE S weigh(int64_t count) { return S{1} / static_cast<S>(count); }
    static POOLGRAD_INLINE S share_one(S sum, S weight) { return sum * weight; }
    static POOLGRAD_INLINE Sums widen_lanes(const uint16_t* p) {
        if constexpr (sizeof(S) == 4) return Conversion::template widen_vector<lanes>(p);
        else return convert<S, lanes>(Conversion::template widen_vector<lanes>(p));
    }
    static POOLGRAD_INLINE auto narrow_lanes(Sums v) {
        if constexpr (sizeof(S) == 4) return Conversion::template narrow_vector<lanes>(v);
        else return Conversion::template narrow_vector<lanes>(convert<float, lanes>(v));
    }
    template <class By> static POOLGRAD_INLINE auto average_lanes(Sums sum, const By& by) { return narrow_lanes(quotient(sum, by)); }
    template <class Weight> static POOLGRAD_INLINE Sums share_lanes(Sums sum, Weight weight) { return sum * weight; }
    template <class Weight> static POOLGRAD_INLINE Sums share_from_zero(Sums sum, Weight weight) { return Sums{} + sum * weight; }
};

struct HalfConversion {
#if defined(__F16C__)
    static POOLGRAD_INLINE float widen_one(uint16_t v) { return _cvtsh_ss(v); }
    static POOLGRAD_INLINE uint16_t narrow_one(float v) { return _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT); }
#else
    static POOLGRAD_INLINE float widen_one(uint16_t v) { return widen(Half{v}); }
    static POOLGRAD_INLINE uint16_t narrow_one(float v) { return narrow_half(v).bits; }
#endif
    template <int lanes> static POOLGRAD_INLINE Vec<float, lanes> widen_vector(const uint16_t* p) {
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
    template <int lanes> static POOLGRAD_INLINE Vec<uint16_t, lanes> narrow_vector(Vec<float, lanes> v) {
#if defined(__AVX512F__)
        if constexpr (lanes == 16)
            return reinterpret_cast<Vec<uint16_t, 16>>(_mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(__F16C__)
        if constexpr (lanes == 8) return reinterpret_cast<Vec<uint16_t, 8>>(_mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#endif
        Vec<uint16_t, lanes> h;
        for (int i = 0; i < lanes; ++i) h[i] = narrow_one(v[i]);
        return h;
    }
};

struct BrainConversion {
    static POOLGRAD_INLINE float widen_one(uint16_t v) { return widen(Brain{v}); }
    static POOLGRAD_INLINE uint16_t narrow_one(float v) { return narrow_brain(v).bits; }
    template <int lanes> static POOLGRAD_INLINE Vec<float, lanes> widen_vector(const uint16_t* p) {
        return reinterpret_cast<Vec<float, lanes>>(convert<uint32_t, lanes>(load<Vec<uint16_t, lanes>>(p)) << 16);
    }
    // Of a pair of elements the second is a float already, if the first is cleared.
    template <int lanes> static POOLGRAD_INLINE void widen_pairs(const uint16_t* p, Vec<float, lanes>& first, Vec<float, lanes>& second) {
        const auto pairs = load<Vec<uint32_t, lanes>>(p);
        first = reinterpret_cast<Vec<float, lanes>>(pairs << 16);
        second = reinterpret_cast<Vec<float, lanes>>(pairs & 0xffff0000u);
    }
    // The result in the upper half of each lane.
    template <int lanes> static POOLGRAD_INLINE Vec<uint32_t, lanes> round_lanes(Vec<float, lanes> v) {
        const auto u = reinterpret_cast<Vec<uint32_t, lanes>>(v);
        return v != v ? u | 0x400000u : u + 0x7fffu + ((u >> 16) & 1u);
    }
    template <int lanes> static POOLGRAD_INLINE Vec<uint16_t, lanes> narrow_vector(Vec<float, lanes> v) {
        return convert<uint16_t, lanes>(round_lanes<lanes>(v) >> 16);
    }
    template <int lanes> static POOLGRAD_INLINE void store_pairs(uint16_t* p, Vec<float, lanes> first, Vec<float, lanes> second) {
        store(p, (round_lanes<lanes>(first) >> 16) | (round_lanes<lanes>(second) & 0xffff0000u));
    }
};

using HalfSum = Sixteen<HalfConversion, float>;
using BrainSum = Sixteen<BrainConversion, float>;
using LongHalfSum = Sixteen<HalfConversion, double>;
using LongBrainSum = Sixteen<BrainConversion, double>;

// A sum of two float64 parts, the second holding what the first could not: nothing is lost on the way, so that sums of
// float64 come out right to the last place and averages of integers are cut in the right place.
template <class V> struct Twofold {
    V high, low;
};
using Double2 = Twofold<double>;

template <class V> POOLGRAD_INLINE Twofold<V> operator+(Twofold<V> a, Twofold<V> b) {
    const V sum = a.high + b.high, back = sum - a.high;
    return {sum, a.low + b.low + ((a.high - (sum - back)) + (b.high - back))};
}
template <class V> POOLGRAD_INLINE Twofold<V> plus(Twofold<V> a, Twofold<V> b) { return a + b; }
template <class V> POOLGRAD_INLINE Twofold<V>& operator+=(Twofold<V>& a, Twofold<V> b) { return a = a + b; }

template <class V, class Count> POOLGRAD_INLINE Twofold<V> divide(Twofold<V> sum, Count count) {
    const V q = sum.high / count;
    return {q, (residual(sum.high, q, count) + sum.low) / count};
}
template <class V> POOLGRAD_INLINE Twofold<V> divide(Twofold<V> sum, const Denominator<double>& by) {
    if (!by.exact) return divide(sum, by.value);
    const V q = sum.high * by.inverse;
    return {q, (residual(sum.high, q, by.value) + sum.low) * by.inverse};
}

POOLGRAD_INLINE double rounded(Double2 sum) { return sum.high - sum.high == 0 ? sum.high + sum.low : sum.high; }   // not beyond infinity
template <class V> POOLGRAD_INLINE V rounded(Twofold<V> sum) { return sum.high - sum.high == 0 ? sum.high + sum.low : sum.high; }

struct DoubleSum {
    using Stored = double;
    using Sum = Double2;
    using Count = Denominator<double>;
    static constexpr int lanes = vector_bytes / 8;
    using Sums = Twofold<Vec<double, lanes>>;
    static POOLGRAD_INLINE Double2 widen_one(double v) { return {v, 0}; }
    static POOLGRAD_INLINE double narrow_one(Double2 v) { return rounded(v); }
    static POOLGRAD_INLINE double average_one(Double2 sum, int64_t count) { return rounded(divide(sum, static_cast<double>(count))); }
    static POOLGRAD_INLINE double weigh(int64_t count) { return static_cast<double>(count); }
    static POOLGRAD_INLINE Double2 share_one(Double2 sum, double count) { return divide(sum, count); }
    static POOLGRAD_INLINE Sums widen_lanes(const double* p) { return {load<Vec<double, lanes>>(p), Vec<double, lanes>{}}; }
    static POOLGRAD_INLINE Vec<double, lanes> narrow_lanes(Sums v) { return rounded(v); }
    template <class By> static POOLGRAD_INLINE Vec<double, lanes> average_lanes(Sums sum, const By& by) { return rounded(divide(sum, by)); }
    template <class Count> static POOLGRAD_INLINE Sums share_lanes(Sums sum, Count count) { return divide(sum, count); }
    template <class Count> static POOLGRAD_INLINE Sums share_from_zero(Sums sum, Count count) { return Sums{} + divide(sum, count); }
};

// Shares of integers, one by one.
template <class T> struct IntegerShare {
    using Stored = T;
    using Sum = Double2;
    static constexpr int lanes = 1;
    using Sums = Vec<double, 1>;   // not used
    using Whole = std::conditional_t<sizeof(T) == 8, __int128, int64_t>;   // the wider one is slow
    static POOLGRAD_INLINE Double2 widen_one(T value) {
        const double high = static_cast<double>(value);
        if constexpr (sizeof(T) < 8) return {high, 0};
        return {high, static_cast<double>(static_cast<__int128>(value) - static_cast<__int128>(high))};
    }
    static POOLGRAD_INLINE double weigh(int64_t count) { return static_cast<double>(count); }
    static POOLGRAD_INLINE Double2 share_one(Double2 sum, double count) { return divide(sum, count); }
    // Toward zero, of the exact sum: what lies within 2**-40 of an integer is that integer.
    static POOLGRAD_INLINE T narrow_one(Double2 sum) {
        const double high = __builtin_rint(sum.high);
        const double rest = (sum.high - high) + sum.low, near = __builtin_rint(rest);
        Whole result = static_cast<Whole>(high) + static_cast<Whole>(near);
        const double left = rest - near;
        if (left > 0x1p-40 && result < 0) ++result;
        if (left < -0x1p-40 && result > 0) --result;
        return static_cast<T>(result);
    }
};

#if defined(__AVX2__)
// Vectors of them, where windows are not long.
template <class T> struct IntegerShares : IntegerShare<T> {
    static constexpr int lanes = vector_bytes / 8;
    using Doubles = Vec<double, lanes>;
    using Sums = Twofold<Doubles>;
    static POOLGRAD_INLINE Sums widen_lanes(const T* p) { return {IntegerMean<T>::widen_lanes(p), Doubles{}}; }
    template <class Count> static POOLGRAD_INLINE Sums share_lanes(Sums sum, Count count) { return divide(sum, count); }
    static POOLGRAD_INLINE auto narrow_lanes(Sums sum) {   // as narrow_one does
        const Doubles high = nearest(sum.high), rest = (sum.high - high) + sum.low, near = nearest(rest), left = rest - near;
        auto result = convert<int64_t, lanes>(high) + convert<int64_t, lanes>(near);
        result -= (left > 0x1p-40) & (result < 0);   // all ones is -1
        result += (left < -0x1p-40) & (result > 0);
        return convert<T, lanes>(result);
    }
    static POOLGRAD_INLINE Doubles nearest(Doubles v) {
#if defined(__AVX512F__)
        return reinterpret_cast<Doubles>(_mm512_roundscale_pd(reinterpret_cast<__m512d>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
        return reinterpret_cast<Doubles>(_mm256_round_pd(reinterpret_cast<__m256d>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    }
};
#endif

// Elements whose windows are long, so that they are not small along a row either.
template <class E> constexpr bool for_long_windows = __is_same(E, LongHalfSum) || __is_same(E, LongBrainSum) || __is_same(typename E::Sum, int64_t);

// What two vectors of sums become, part by part.
template <class V, class F> POOLGRAD_INLINE V by_parts(V a, V b, F&& f) { return f(a, b); }
template <class V, class F> POOLGRAD_INLINE Twofold<V> by_parts(Twofold<V> a, Twofold<V> b, F&& f) { return {f(a.high, b.high), f(a.low, b.low)}; }

// The sums from lane `by` on, then those of the vector behind.
template <int by, int lanes, class Sums> POOLGRAD_INLINE Sums lanes_from(Sums sums, Sums behind) {
    return by_parts(sums, behind, [](auto a, auto b) __attribute__((always_inline)) {
        return [&]<int... i>(std::integer_sequence<int, i...>)
                   __attribute__((always_inline)) { return __builtin_shufflevector(a, b, (i + by)...); }(std::make_integer_sequence<int, lanes>{});
    });
}

// Two vectors side by side in one.
template <class V> POOLGRAD_INLINE auto beside(V a, V b) {
    constexpr int lanes = sizeof(V) / sizeof(a[0]);
    return [&]<int... i>(std::integer_sequence<int, i...>)
               __attribute__((always_inline)) { return __builtin_shufflevector(a, b, i...); }(std::make_integer_sequence<int, 2 * lanes>{});
}

// Four sums of every second column are gathered with AVX2 so that the middle two are exchanged: to put them right takes as long as all the rest.
// Their neighbours are found accordingly, and only the results put in order.
template <int lanes, int stride> constexpr bool crossed = vector_bytes == 32 && lanes == 4 && stride == 2;

// Every second one of two vectors of sums, beginning with `first`.
template <int first, int lanes, class Sums> POOLGRAD_INLINE Sums every_second(Sums sums, Sums behind) {
    return by_parts(sums, behind, [](auto a, auto b) __attribute__((always_inline)) {
        if constexpr (crossed<lanes, 2>) return __builtin_shufflevector(a, b, first, 4 + first, 2 + first, 6 + first);
        else
            return [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
                return __builtin_shufflevector(a, b, (2 * i + first)...);
            }(std::make_integer_sequence<int, lanes>{});
    });
}

// What lies right of each, if `behind` follows; and left of each, if they follow `before`.
template <int lanes, int stride, class Sums> POOLGRAD_INLINE Sums from_right(Sums sums, Sums behind) {
#if defined(__AVX2__)
    if constexpr (crossed<lanes, stride>)
        return by_parts(sums, behind, [](auto a, auto b) __attribute__((always_inline)) {
            const __m256d here = reinterpret_cast<__m256d>(a), ends = _mm256_shuffle_pd(here, reinterpret_cast<__m256d>(b), 1);
            return reinterpret_cast<decltype(a)>(_mm256_permute2f128_pd(here, ends, 0x21));   // lanes 2, 3 and 1 of a, 0 of b
        });
#endif
    return lanes_from<1, lanes>(sums, behind);
}
template <int lanes, int stride, class Sums> POOLGRAD_INLINE Sums from_left(Sums before, Sums sums) {
#if defined(__AVX2__)
    if constexpr (crossed<lanes, stride>)
        return by_parts(before, sums, [](auto a, auto b) __attribute__((always_inline)) {
            const __m256d here = reinterpret_cast<__m256d>(b), ends = _mm256_shuffle_pd(reinterpret_cast<__m256d>(a), here, 4);
            return reinterpret_cast<decltype(a)>(_mm256_permute2f128_pd(ends, here, 0x21));   // lane 3 of a, lanes 2, 0 and 1 of b
        });
#endif
    return lanes_from<lanes - 1, lanes>(before, sums);
}
template <int lanes, int stride, class V> POOLGRAD_INLINE V in_order(V results) {
    if constexpr (crossed<lanes, stride>) return __builtin_shufflevector(results, results, 0, 2, 1, 3);
    else return results;
}

template <bool condition, class A, class B> struct If {
    using type = A;
};
template <class A, class B> struct If<false, A, B> {
    using type = B;
};

// A row of sums in memory. Twofold sums lie in two planes, so that vectors can be read from any place.
template <class E> struct SumRow {
    using Sum = typename E::Sum;
    using Sums = typename E::Sums;
    static constexpr int lanes = E::lanes;
    static constexpr bool twofold = __is_same(Sum, Double2) && lanes > 1;
    using Part = typename If<twofold, double, Sum>::type;
    Part *high, *low;

    static size_t bytes(int64_t count) { return sizeof(Part) * static_cast<size_t>(count) * (twofold ? 2 : 1); }
    SumRow(void* memory, int64_t count) : high(static_cast<Part*>(memory)), low(high + (twofold ? count : 0)) {}

    POOLGRAD_INLINE Sum get(int64_t i) const {
        if constexpr (twofold) return {high[i], low[i]};
        else return high[i];
    }
    POOLGRAD_INLINE void set(int64_t i, Sum sum) const {
        if constexpr (twofold) high[i] = sum.high, low[i] = sum.low;
        else high[i] = sum;
    }
    POOLGRAD_INLINE Sums lanes_at(int64_t i) const {
        if constexpr (twofold) return {load<Vec<double, lanes>>(high + i), load<Vec<double, lanes>>(low + i)};
        else return load<Sums>(high + i);
    }
    POOLGRAD_INLINE Sums every_second(int64_t i) const {
        if constexpr (twofold) return {load_even<double, lanes>(high + i), load_even<double, lanes>(low + i)};
        else return load_even<Part, lanes>(high + i);
    }
    POOLGRAD_INLINE void set_lanes(int64_t i, Sums sums) const {
        if constexpr (twofold) store(high + i, sums.high), store(low + i, sums.low);
        else store(high + i, sums);
    }
};

// Calls f with the Element of a type: sums that wrap (put), exact sums (mean), shares (spread); `is_long` for long windows.
template <class F> POOLGRAD_INLINE void with_wrapping_sum(DType type, F&& f) {
    switch (type) {
        case DType::f16: return f(HalfSum{});
        case DType::bf16: return f(BrainSum{});
        case DType::f32: return f(Plain<float, float>{});
        case DType::f64: return f(Plain<double, double>{});
        case DType::i8:
        case DType::u8: return f(Plain<uint8_t, uint8_t>{});
        case DType::i16:
        case DType::u16: return f(Plain<uint16_t, uint16_t>{});
        case DType::i32:
        case DType::u32: return f(Plain<uint32_t, uint32_t>{});
        case DType::i64:
        case DType::u64: return f(Plain<uint64_t, uint64_t>{});
    }
}

// What put adds up in. Where it assigns instead, so that the last window sets the element, only the width of elements matters.
template <class F> POOLGRAD_INLINE void with_put_sum(DType type, bool assign, F&& f) {
    if (!assign) return with_wrapping_sum(type, f);
    switch (dtype_bytes(type)) {
        case 1: return f(Plain<uint8_t, uint8_t>{});
        case 2: return f(Plain<uint16_t, uint16_t>{});
        case 4: return f(Plain<uint32_t, uint32_t>{});
        default: return f(Plain<uint64_t, uint64_t>{});
    }
}

// The sum of put after a value, one or a vector: integers keep nothing of what was there if `kept` is 0, which assigns, or all of it.
template <class S, class Kept> POOLGRAD_INLINE S after(S sum, S value, Kept kept) {
    if constexpr (Kept{1} / 2 == 0) return static_cast<S>((sum & kept) + value);
    else return sum + value;
}
template <class Sum> POOLGRAD_INLINE Sum kept_by_put(bool assign) { return assign ? Sum{0} : static_cast<Sum>(-1); }

template <class F> POOLGRAD_INLINE void with_exact_sum(DType type, bool is_long, F&& f) {
    const auto bytes = [&](auto zero) {
        if constexpr (vector_bytes == 64)   // only there whole numbers are quicker
            if (is_long) return f(Plain<decltype(zero), int64_t>{});
        return f(IntegerMean<decltype(zero)>{});
    };
    switch (type) {
        case DType::f16: return is_long ? f(LongHalfSum{}) : f(HalfSum{});
        case DType::bf16: return is_long ? f(LongBrainSum{}) : f(BrainSum{});
        case DType::f32: return f(Plain<float, double>{});
        case DType::f64: return f(DoubleSum{});
        case DType::i8: return bytes(int8_t{});
        case DType::i16: return f(IntegerMean<int16_t>{});
        case DType::i32: return is_long ? f(Plain<int32_t, int64_t>{}) : f(IntegerMean<int32_t>{});
        case DType::i64: return f(Plain<int64_t, __int128>{});
        case DType::u8: return bytes(uint8_t{});
        case DType::u16: return f(IntegerMean<uint16_t>{});
        case DType::u32: return is_long ? f(Plain<uint32_t, int64_t>{}) : f(IntegerMean<uint32_t>{});
        case DType::u64: return f(Plain<uint64_t, __int128>{});
    }
}

template <class F> POOLGRAD_INLINE void with_share(DType type, bool is_long, F&& f) {
    const auto integers = [&](auto zero) {
#if defined(__AVX2__)
        if (!is_long) return f(IntegerShares<decltype(zero)>{});
#endif
        return f(IntegerShare<decltype(zero)>{});
    };
    switch (type) {
        case DType::f16: return is_long ? f(LongHalfSum{}) : f(HalfSum{});
        case DType::bf16: return is_long ? f(LongBrainSum{}) : f(BrainSum{});
        case DType::f32: return f(Plain<float, double>{});
        case DType::f64: return f(DoubleSum{});
        case DType::i8: return integers(int8_t{});
        case DType::i16: return integers(int16_t{});
        case DType::i32: return integers(int32_t{});
        case DType::i64: return f(IntegerShare<int64_t>{});
        case DType::u8: return integers(uint8_t{});
        case DType::u16: return integers(uint16_t{});
        case DType::u32: return integers(uint32_t{});
        case DType::u64: return f(IntegerShare<uint64_t>{});
    }
}

}  // namespace
}  // namespace poolgrad
