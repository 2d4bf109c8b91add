// The AVX-512 intrinsics that the kernels use, lane by lane, for processors that have none of them: tools/emulate.sh compiles the kernels with this
// header in front, so that their widest variant is tested anywhere. It computes the same bits, slowly.
#pragma once

#include <immintrin.h>   // first, while the compiler's own header still knows what the processor has

#define POOLGRAD_EMULATED
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512CD__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1

namespace emulated {

#define EMULATED static inline __attribute__((always_inline))

template <class T, int bytes> struct LanesOf {
    typedef T type __attribute__((vector_size(bytes), may_alias));
};
template <class T, int bytes = 64> using Lanes = typename LanesOf<T, bytes>::type;
template <class T, class R> constexpr int count = static_cast<int>(sizeof(R) / sizeof(T));
using Bits = unsigned long long;

EMULATED bool bit(Bits mask, int i) { return mask >> i & 1; }

// A register whose lanes of type T are f(i).
template <class T, class R, class F> EMULATED R each(F f) {
    Lanes<T, sizeof(R)> v{};
    for (int i = 0; i < count<T, R>; ++i) v[i] = f(i);
    return reinterpret_cast<R>(v);
}

template <class T, class R, class F> EMULATED Bits mask_of(R a, R b, F f) {
    const auto x = reinterpret_cast<Lanes<T, sizeof(R)>>(a), y = reinterpret_cast<Lanes<T, sizeof(R)>>(b);
    Bits mask = 0;
    for (int i = 0; i < count<T, R>; ++i) mask |= Bits{f(static_cast<T>(x[i]), static_cast<T>(y[i]))} << i;
    return mask;
}

// Lanes of b where bits are set, of a elsewhere.
template <class T, class R> EMULATED R blend(Bits mask, R a, R b) {
    const auto x = reinterpret_cast<Lanes<T, sizeof(R)>>(a), y = reinterpret_cast<Lanes<T, sizeof(R)>>(b);
    return each<T, R>([&](int i) { return bit(mask, i) ? y[i] : x[i]; });
}

// Memory is touched only where bits are set.
template <class T, class R> EMULATED R load(R other, Bits mask, const void* p) {
    const auto x = reinterpret_cast<Lanes<T, sizeof(R)>>(other);
    return each<T, R>([&](int i) {
        T value = x[i];
        if (bit(mask, i)) __builtin_memcpy(&value, static_cast<const char*>(p) + i * sizeof(T), sizeof(T));
        return value;
    });
}
template <class T, class R> EMULATED void store(void* p, Bits mask, R v) {
    const auto x = reinterpret_cast<Lanes<T, sizeof(R)>>(v);
    for (int i = 0; i < count<T, R>; ++i) {
        const T value = x[i];
        if (bit(mask, i)) __builtin_memcpy(static_cast<char*>(p) + i * sizeof(T), &value, sizeof(T));
    }
}
template <class T, class Index> EMULATED __m512i gather(__m512i other, Bits mask, Index index, const void* p, int scale) {
    const auto x = reinterpret_cast<Lanes<T>>(other);
    const auto at = reinterpret_cast<Lanes<int, sizeof(Index)>>(index);
    return each<T, __m512i>([&](int i) {
        T value = x[i];
        if (bit(mask, i)) __builtin_memcpy(&value, static_cast<const char*>(p) + static_cast<long long>(at[i]) * scale, sizeof(T));
        return value;
    });
}

// As many lanes as both sides have; what is left is zero.
template <class From, class To, class R, class V> EMULATED R convert(V v) {
    const auto x = reinterpret_cast<Lanes<From, sizeof(V)>>(v);
    return each<To, R>([&](int i) { return i < count<From, V> ? static_cast<To>(x[i]) : To{}; });
}

template <class T> EMULATED Bits compare(Lanes<T> a, Lanes<T> b, int how) {
    return mask_of<T>(a, b, [how](T x, T y) {
        if (how == _CMP_UNORD_Q) return x != x || y != y;
        if (how == _CMP_ORD_Q) return x == x && y == y;
        if (how == _CMP_GT_OQ) return x > y;
        if (how == _CMP_NEQ_UQ) return x != y;
        __builtin_trap();
    });
}

struct Halves {
    __m256i low, high;
};
template <class R> EMULATED Halves halves(R v) {
    const auto x = reinterpret_cast<Lanes<long long>>(v);
    return {(__m256i){x[0], x[1], x[2], x[3]}, (__m256i){x[4], x[5], x[6], x[7]}};
}
template <class R, class H> EMULATED R joined(H low, H high) {
    const auto a = reinterpret_cast<__m256i>(low), b = reinterpret_cast<__m256i>(high);
    return reinterpret_cast<R>(Lanes<long long>{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]});
}

EMULATED __m512 fused(__m512 a, __m512 b, __m512 c) {
    const Halves x = halves(a), y = halves(b), z = halves(c);
    return joined<__m512>(_mm256_fmadd_ps(reinterpret_cast<__m256>(x.low), reinterpret_cast<__m256>(y.low), reinterpret_cast<__m256>(z.low)),
                          _mm256_fmadd_ps(reinterpret_cast<__m256>(x.high), reinterpret_cast<__m256>(y.high), reinterpret_cast<__m256>(z.high)));
}
EMULATED __m512d fused(__m512d a, __m512d b, __m512d c) {
    const Halves x = halves(a), y = halves(b), z = halves(c);
    return joined<__m512d>(_mm256_fmadd_pd(reinterpret_cast<__m256d>(x.low), reinterpret_cast<__m256d>(y.low), reinterpret_cast<__m256d>(z.low)),
                           _mm256_fmadd_pd(reinterpret_cast<__m256d>(x.high), reinterpret_cast<__m256d>(y.high), reinterpret_cast<__m256d>(z.high)));
}
EMULATED __m512d rounded(__m512d v) {
    const Halves x = halves(v);
    return joined<__m512d>(_mm256_round_pd(reinterpret_cast<__m256d>(x.low), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                           _mm256_round_pd(reinterpret_cast<__m256d>(x.high), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
EMULATED __m512 widened(__m256i v) {
    return joined<__m512>(_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
}
EMULATED __m256i narrowed(__m512 v) {
    const Halves x = halves(v);
    const __m128i low = _mm256_cvtps_ph(reinterpret_cast<__m256>(x.low), _MM_FROUND_TO_NEAREST_INT);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm256_cvtps_ph(reinterpret_cast<__m256>(x.high), _MM_FROUND_TO_NEAREST_INT), 1);
}
EMULATED void streamed(void* p, __m512i v) {
    const Halves x = halves(v);
    _mm256_stream_si256(static_cast<__m256i*>(p), x.low);
    _mm256_stream_si256(static_cast<__m256i*>(p) + 1, x.high);
}

template <class T> EMULATED __m512i picked(__m512i a, __m512i index, __m512i b) {
    const auto x = reinterpret_cast<Lanes<T>>(a), y = reinterpret_cast<Lanes<T>>(b), at = reinterpret_cast<Lanes<T>>(index);
    constexpr int n = static_cast<int>(64 / sizeof(T));
    return each<T, __m512i>([&](int i) { return at[i] & n ? y[at[i] & (n - 1)] : x[at[i] & (n - 1)]; });
}
template <class T, class R> EMULATED R larger(R a, R b) {
    return each<T, R>([&](int i) { return a[i] > b[i] ? a[i] : b[i]; });
}
template <class T, class R> EMULATED R added(R other, Bits mask, R a, R b) {
    return each<T, R>([&](int i) { return bit(mask, i) ? a[i] + b[i] : other[i]; });
}
EMULATED __m512i high_products(__m512i a, __m512i b) {
    const auto x = reinterpret_cast<Lanes<unsigned short>>(a), y = reinterpret_cast<Lanes<unsigned short>>(b);
    return each<unsigned short, __m512i>([&](int i) { return static_cast<unsigned short>(unsigned{x[i]} * y[i] >> 16); });
}

}  // namespace emulated

#define _mm512_setzero_si512() (__m512i{})
#define _mm512_set1_epi16(value) (emulated::each<short, __m512i>([&](int) { return static_cast<short>(value); }))
#define _mm512_set1_epi32(value) (emulated::each<int, __m512i>([&](int) { return static_cast<int>(value); }))
#define _mm512_castsi512_ps(v) (reinterpret_cast<__m512>(v))
#define _mm512_castsi512_pd(v) (reinterpret_cast<__m512d>(v))
#define _mm512_castsi512_si256(v) (emulated::halves(v).low)
#define _mm512_castsi256_si512(v) (emulated::joined<__m512i>(v, __m256i{}))
#define _mm512_extracti64x4_epi64(v, half) ((half) ? emulated::halves(v).high : emulated::halves(v).low)
#define _mm512_inserti64x4(v, part, half) \
    ((half) ? emulated::joined<__m512i>(emulated::halves(v).low, part) : emulated::joined<__m512i>(part, emulated::halves(v).high))

#define _mm512_cmp_ps_mask(a, b, how) static_cast<__mmask16>(emulated::compare<float>(a, b, how))
#define _mm512_cmp_pd_mask(a, b, how) static_cast<__mmask8>(emulated::compare<double>(a, b, how))
#define _mm512_mask_cmp_ps_mask(mask, a, b, how) static_cast<__mmask16>((mask) & emulated::compare<float>(a, b, how))
#define _mm512_mask_cmp_pd_mask(mask, a, b, how) static_cast<__mmask8>((mask) & emulated::compare<double>(a, b, how))
#define EMULATED_COMPARE(a, b, type, bits, operation) \
    static_cast<__mmask##bits>(emulated::mask_of<type>(a, b, [](type x, type y) { return static_cast<bool>(operation); }))
#define _mm512_cmpgt_epi16_mask(a, b) EMULATED_COMPARE(a, b, short, 32, x > y)
#define _mm512_cmpgt_epi32_mask(a, b) EMULATED_COMPARE(a, b, int, 16, x > y)
#define _mm512_cmpgt_epi64_mask(a, b) EMULATED_COMPARE(a, b, long long, 8, x > y)
#define _mm512_cmpneq_epi16_mask(a, b) EMULATED_COMPARE(a, b, short, 32, x != y)
#define _mm512_cmpneq_epi32_mask(a, b) EMULATED_COMPARE(a, b, int, 16, x != y)
#define _mm512_cmpneq_epi64_mask(a, b) EMULATED_COMPARE(a, b, long long, 8, x != y)
#define _mm512_cmplt_epu32_mask(a, b) EMULATED_COMPARE(a, b, unsigned, 16, x < y)
#define _mm512_test_epi16_mask(a, b) EMULATED_COMPARE(a, b, short, 32, x & y)
#define _mm512_test_epi32_mask(a, b) EMULATED_COMPARE(a, b, int, 16, x & y)
#define _mm512_test_epi64_mask(a, b) EMULATED_COMPARE(a, b, long long, 8, x & y)
#define _mm_cmpeq_epi8_mask(a, b) EMULATED_COMPARE(a, b, unsigned char, 16, x == y)
#define _mm256_cmpeq_epi8_mask(a, b) EMULATED_COMPARE(a, b, unsigned char, 32, x == y)
#define _mm_cmple_epu8_mask(a, b) EMULATED_COMPARE(a, b, unsigned char, 16, x <= y)
#define _mm256_cmple_epu8_mask(a, b) EMULATED_COMPARE(a, b, unsigned char, 32, x <= y)

#define _mm512_mask_blend_epi16(mask, a, b) emulated::blend<short>(mask, a, b)
#define _mm512_mask_blend_epi32(mask, a, b) emulated::blend<int>(mask, a, b)
#define _mm512_mask_blend_epi64(mask, a, b) emulated::blend<long long>(mask, a, b)
#define _mm512_mask_blend_ps(mask, a, b) emulated::blend<float>(mask, a, b)
#define _mm512_mask_blend_pd(mask, a, b) emulated::blend<double>(mask, a, b)
#define _mm_mask_mov_epi8(a, mask, b) emulated::blend<char>(mask, a, b)
#define _mm256_mask_mov_epi8(a, mask, b) emulated::blend<char>(mask, a, b)
#define _mm512_maskz_mov_epi16(mask, a) emulated::blend<short>(mask, __m512i{}, a)
#define _mm512_maskz_mov_epi32(mask, a) emulated::blend<int>(mask, __m512i{}, a)

#define _mm_mask_loadu_epi8(other, mask, p) emulated::load<char>(other, mask, p)
#define _mm512_mask_loadu_epi16(other, mask, p) emulated::load<short>(other, mask, p)
#define _mm512_mask_loadu_epi32(other, mask, p) emulated::load<int>(other, mask, p)
#define _mm512_mask_loadu_epi64(other, mask, p) emulated::load<long long>(other, mask, p)
#define _mm512_maskz_loadu_epi16(mask, p) emulated::load<short>(__m512i{}, mask, p)
#define _mm512_maskz_loadu_epi32(mask, p) emulated::load<int>(__m512i{}, mask, p)
#define _mm512_maskz_loadu_epi64(mask, p) emulated::load<long long>(__m512i{}, mask, p)
#define _mm_mask_storeu_epi8(p, mask, v) emulated::store<char>(p, mask, v)
#define _mm256_mask_storeu_epi8(p, mask, v) emulated::store<char>(p, mask, v)
#define _mm512_mask_storeu_epi8(p, mask, v) emulated::store<char>(p, mask, v)
#define _mm512_mask_storeu_epi16(p, mask, v) emulated::store<short>(p, mask, v)
#define _mm512_mask_storeu_epi32(p, mask, v) emulated::store<int>(p, mask, v)
#define _mm512_mask_storeu_epi64(p, mask, v) emulated::store<long long>(p, mask, v)
#define _mm512_stream_si512(p, v) emulated::streamed(p, v)
#define _mm512_mask_i32gather_epi32(other, mask, index, p, scale) emulated::gather<int>(other, mask, index, p, scale)
#define _mm512_mask_i32gather_epi64(other, mask, index, p, scale) emulated::gather<long long>(other, mask, index, p, scale)

#define _mm512_cvtepu8_epi16(v) emulated::convert<unsigned char, unsigned short, __m512i>(v)
#define _mm512_cvtepu8_epi32(v) emulated::convert<unsigned char, unsigned, __m512i>(v)
#define _mm512_cvtepu8_epi64(v) emulated::convert<unsigned char, unsigned long long, __m512i>(v)
#define _mm512_cvtepu16_epi32(v) emulated::convert<unsigned short, unsigned, __m512i>(v)
#define _mm512_cvtepu16_epi64(v) emulated::convert<unsigned short, unsigned long long, __m512i>(v)
#define _mm512_cvtepu32_epi64(v) emulated::convert<unsigned, unsigned long long, __m512i>(v)
#define _mm512_cvtepi8_epi64(v) emulated::convert<signed char, long long, __m512i>(v)
#define _mm512_cvtepi16_epi8(v) emulated::convert<unsigned short, unsigned char, __m256i>(v)
#define _mm512_cvtepi32_epi8(v) emulated::convert<unsigned, unsigned char, __m128i>(v)
#define _mm512_cvtepi32_epi16(v) emulated::convert<unsigned, unsigned short, __m256i>(v)
#define _mm512_cvtepi64_epi8(v) emulated::convert<unsigned long long, unsigned char, __m128i>(v)
#define _mm512_cvtepi64_epi16(v) emulated::convert<unsigned long long, unsigned short, __m128i>(v)
#define _mm512_cvtepi64_epi32(v) emulated::convert<unsigned long long, unsigned, __m256i>(v)
#define _mm512_cvtps_pd(v) emulated::convert<float, double, __m512d>(v)
#define _mm512_cvtpd_ps(v) emulated::convert<double, float, __m256>(v)
#define _mm512_cvtph_ps(v) emulated::widened(v)
#define _mm512_cvtps_ph(v, rounding) emulated::narrowed(v)

#define _mm512_max_ps(a, b) emulated::larger<float>(a, b)
#define _mm512_max_pd(a, b) emulated::larger<double>(a, b)
#define _mm512_mask_add_ps(other, mask, a, b) emulated::added<float>(other, mask, a, b)
#define _mm512_mask_add_pd(other, mask, a, b) emulated::added<double>(other, mask, a, b)
#define _mm512_fmadd_ps(a, b, c) emulated::fused(a, b, c)
#define _mm512_fmadd_pd(a, b, c) emulated::fused(a, b, c)
#define _mm512_fnmadd_pd(a, b, c) emulated::fused(-(a), b, c)
#define _mm512_roundscale_pd(v, rounding) emulated::rounded(v)
#define _mm512_mulhi_epu16(a, b) emulated::high_products(a, b)
#define _mm512_permutex2var_epi16(a, index, b) emulated::picked<short>(a, index, b)
#define _mm512_permutex2var_epi32(a, index, b) emulated::picked<int>(a, index, b)
