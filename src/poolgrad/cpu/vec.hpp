// Vectors of the instruction set this file is compiled for, and the three ways of ordering numbers that a maximum needs.
// Everything here has internal linkage: the same source is compiled once per instruction set.
#pragma once

#include <type_traits>

#include "geometry.hpp"
#include "kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POOLGRAD_INLINE inline __attribute__((always_inline))
#define POOLGRAD_JOIN_(a, b) a##b
#define POOLGRAD_JOIN(a, b) POOLGRAD_JOIN_(a, b)
#define POOLGRAD_KERNEL(name) POOLGRAD_JOIN(name, POOLGRAD_JOIN(_, POOLGRAD_ISA))   // scan -> scan_avx512

namespace poolgrad {
namespace {

#if defined(__AVX512BW__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

constexpr bool hurries = hurried(vector_bytes);

// Asks for the cache line at p, to have it in the second cache. Zen 5 reads from memory up to 1.3 times as fast if it comes into the nearest one
// (or the next, where that has no room). Zen 4 would take up to 1.5 times as long: its nearest cache keeps track of few lines that are on their way.
// Which it is must be known to the compiler: a branch in the innermost loops takes a tenth of some.
POOLGRAD_INLINE void ask_for_line(const void* p) {
#if defined(POOLGRAD_ASKS_NEAREST)
    __builtin_prefetch(p);
#else
    __builtin_prefetch(p, 0, 2);
#endif
}

// So many bytes are on their way at a time: of all rows that are read side by side, at the most in rows of channels, and at the most of small planes.
#if defined(POOLGRAD_ASKS_NEAREST)
constexpr int64_t asked_rows = int64_t{1} << 13, asked_channels = int64_t{1} << 14, asked_planes = 0;
#else
constexpr int64_t asked_rows = int64_t{1} << 14, asked_channels = int64_t{1} << 15, asked_planes = int64_t{1} << 18;
#endif

template <class T, int lanes> struct VectorOf {
    typedef T type __attribute__((vector_size(sizeof(T) * lanes)));
};
template <class T, int lanes> using Vec = typename VectorOf<T, lanes>::type;

template <class T> struct Bare {
    using type = T;
};
template <class T> struct Bare<T&> {
    using type = T;
};

template <int bytes> struct IntOf;
template <> struct IntOf<1> {
    using type = int8_t;
    using natural = uint8_t;
};
template <> struct IntOf<2> {
    using type = int16_t;
    using natural = uint16_t;
};
template <> struct IntOf<4> {
    using type = int32_t;
    using natural = uint32_t;
};
template <> struct IntOf<8> {
    using type = int64_t;
    using natural = uint64_t;
};

template <class V> POOLGRAD_INLINE V load(const void* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

template <class V> POOLGRAD_INLINE void store(void* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

// Keeps what was loaded in a register. Compilers like to load it again for every instruction that uses it, and loads are what there is most of.
template <class V> POOLGRAD_INLINE V read_once(V v) {
#if defined(__AVX512F__) && !defined(POOLGRAD_EMULATED)
    __asm__("" : "+v"(v));
#endif
    return v;
}

// The first `count` lanes only.
template <class T, class V> POOLGRAD_INLINE void store_some(T* p, V v, int64_t count) {
#if defined(__AVX512BW__)
    const uint64_t mask = (uint64_t{1} << count) - 1;
    if constexpr (sizeof(V) == 64 && sizeof(T) == 8) return _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(mask), reinterpret_cast<__m512i>(v));
    if constexpr (sizeof(V) == 64 && sizeof(T) == 4) return _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), reinterpret_cast<__m512i>(v));
    if constexpr (sizeof(V) == 64 && sizeof(T) == 2) return _mm512_mask_storeu_epi16(p, static_cast<__mmask32>(mask), reinterpret_cast<__m512i>(v));
    if constexpr (sizeof(V) == 64 && sizeof(T) == 1) return _mm512_mask_storeu_epi8(p, mask, reinterpret_cast<__m512i>(v));
    if constexpr (sizeof(V) == 32 && sizeof(T) == 1) return _mm256_mask_storeu_epi8(p, static_cast<__mmask32>(mask), reinterpret_cast<__m256i>(v));
    if constexpr (sizeof(V) == 16 && sizeof(T) == 1) return _mm_mask_storeu_epi8(p, static_cast<__mmask16>(mask), reinterpret_cast<__m128i>(v));
#endif
    __builtin_memcpy(p, &v, sizeof(T) * static_cast<size_t>(count));
}

#if defined(__AVX512BW__)
// The lanes whose bits are set; the others are zero and not touched in memory.
template <class V, class T> POOLGRAD_INLINE V load_lanes(const T* p, uint64_t bits) {
    static_assert(sizeof(V) == 64);
    if constexpr (sizeof(T) == 2) return reinterpret_cast<V>(_mm512_maskz_loadu_epi16(static_cast<__mmask32>(bits), p));
    else if constexpr (sizeof(T) == 4) return reinterpret_cast<V>(_mm512_maskz_loadu_epi32(static_cast<__mmask16>(bits), p));
    else return reinterpret_cast<V>(_mm512_maskz_loadu_epi64(static_cast<__mmask8>(bits), p));
}

// The lanes whose bits are set; the others are those of another vector, and not touched in memory.
template <class T, class V> POOLGRAD_INLINE V load_over(V other, const T* p, uint64_t bits) {
    static_assert(sizeof(V) == 64);
    const __m512i a = reinterpret_cast<__m512i>(other);
    if constexpr (sizeof(T) == 2) return reinterpret_cast<V>(_mm512_mask_loadu_epi16(a, static_cast<__mmask32>(bits), p));
    else if constexpr (sizeof(T) == 4) return reinterpret_cast<V>(_mm512_mask_loadu_epi32(a, static_cast<__mmask16>(bits), p));
    else return reinterpret_cast<V>(_mm512_mask_loadu_epi64(a, static_cast<__mmask8>(bits), p));
}

// v in the lanes whose bits are set, `other` in the others; lanes are as wide as T.
template <class T, class V> POOLGRAD_INLINE V keep_lanes(V v, uint64_t bits, V other) {
    const __m512i a = reinterpret_cast<__m512i>(other), b = reinterpret_cast<__m512i>(v);
    if constexpr (sizeof(T) == 2) return reinterpret_cast<V>(_mm512_mask_blend_epi16(static_cast<__mmask32>(bits), a, b));
    else if constexpr (sizeof(T) == 4) return reinterpret_cast<V>(_mm512_mask_blend_epi32(static_cast<__mmask16>(bits), a, b));
    else return reinterpret_cast<V>(_mm512_mask_blend_epi64(static_cast<__mmask8>(bits), a, b));
}
#endif

// Writes past the caches; p must be aligned to the vector.
template <class V> POOLGRAD_INLINE void stream(void* p, V v) {
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(p), reinterpret_cast<__m512i>(v));
        return;
    }
#endif
#if defined(__AVX__)
    if constexpr (sizeof(V) == 32) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(v));
        return;
    }
#endif
#if defined(__x86_64__)
    if constexpr (sizeof(V) == 16) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(p), reinterpret_cast<__m128i>(v));
        return;
    }
#endif
    store(p, v);
}

POOLGRAD_INLINE void stream_fence() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

// Copies pieces of at most 64 bytes, `phases` of them in each of `places`: to + place * to_step + phase * to_phase, and
// likewise from. What is shorter than 16, 32 or 64 bytes is copied with what follows it: both sides need room behind, and
// what is written too much is overwritten by the next piece.
template <class V> void copy_as(char* to, int64_t to_step, int64_t to_phase, const char* from, int64_t from_step, int64_t from_phase, int64_t places,
                                int64_t phases) {
    for (int64_t i = 0; phases == 2 && i < places; ++i, to += to_step, from += from_step)
        store(to, load<V>(from)), store(to + to_phase, load<V>(from + from_phase));
    for (int64_t i = 0; phases != 2 && i < places; ++i, to += to_step, from += from_step)
        for (int64_t p = 0; p < phases; ++p) store(to + p * to_phase, load<V>(from + p * from_phase));
}
[[maybe_unused]] void copy_pieces(void* to, int64_t to_step, int64_t to_phase, const void* from, int64_t from_step, int64_t from_phase,
                                  int64_t places, int64_t phases, int64_t bytes) {
    char* const target = static_cast<char*>(to);
    const char* const source = static_cast<const char*>(from);
    if (bytes <= 16) copy_as<Vec<uint8_t, 16>>(target, to_step, to_phase, source, from_step, from_phase, places, phases);
    else if (bytes <= 32) copy_as<Vec<uint8_t, 32>>(target, to_step, to_phase, source, from_step, from_phase, places, phases);
    else copy_as<Vec<uint8_t, 64>>(target, to_step, to_phase, source, from_step, from_phase, places, phases);
}

// Lane by lane to another type. Compilers turn only some of these into one instruction, so those that matter are named.
template <class T, int lanes, class V> POOLGRAD_INLINE Vec<T, lanes> convert(V v) {
    using From [[maybe_unused]] = typename Bare<decltype(v[0])>::type;
#define POOLGRAD_CONVERT(from, to, count, register_from, call) \
    if constexpr (__is_same(From, from) && __is_same(T, to) && lanes == count) return reinterpret_cast<Vec<T, lanes>>(call(register_from(v)));
#if defined(__AVX512BW__)
#define POOLGRAD_512(r) reinterpret_cast<__m512i>(r)
#define POOLGRAD_256(r) reinterpret_cast<__m256i>(r)
#define POOLGRAD_128(r) reinterpret_cast<__m128i>(r)
#define POOLGRAD_64(r) _mm_cvtsi64_si128(static_cast<long long>(reinterpret_cast<uint64_t>(r)))
    POOLGRAD_CONVERT(uint8_t, uint16_t, 32, POOLGRAD_256, _mm512_cvtepu8_epi16)
    POOLGRAD_CONVERT(uint8_t, uint32_t, 16, POOLGRAD_128, _mm512_cvtepu8_epi32)
    POOLGRAD_CONVERT(uint8_t, uint64_t, 8, POOLGRAD_64, _mm512_cvtepu8_epi64)
    POOLGRAD_CONVERT(uint16_t, uint32_t, 16, POOLGRAD_256, _mm512_cvtepu16_epi32)
    POOLGRAD_CONVERT(uint16_t, uint64_t, 8, POOLGRAD_128, _mm512_cvtepu16_epi64)
    POOLGRAD_CONVERT(uint32_t, uint64_t, 8, POOLGRAD_256, _mm512_cvtepu32_epi64)
    POOLGRAD_CONVERT(uint8_t, int32_t, 8, POOLGRAD_64, _mm256_cvtepu8_epi32)
    POOLGRAD_CONVERT(int8_t, int32_t, 8, POOLGRAD_64, _mm256_cvtepi8_epi32)
    POOLGRAD_CONVERT(uint8_t, int64_t, 8, POOLGRAD_64, _mm512_cvtepu8_epi64)
    POOLGRAD_CONVERT(int8_t, int64_t, 8, POOLGRAD_64, _mm512_cvtepi8_epi64)
    POOLGRAD_CONVERT(uint16_t, uint8_t, 32, POOLGRAD_512, _mm512_cvtepi16_epi8)
    POOLGRAD_CONVERT(uint32_t, uint8_t, 16, POOLGRAD_512, _mm512_cvtepi32_epi8)
    POOLGRAD_CONVERT(uint32_t, uint16_t, 16, POOLGRAD_512, _mm512_cvtepi32_epi16)
    POOLGRAD_CONVERT(uint64_t, uint16_t, 8, POOLGRAD_512, _mm512_cvtepi64_epi16)
    POOLGRAD_CONVERT(uint64_t, uint32_t, 8, POOLGRAD_512, _mm512_cvtepi64_epi32)
    if constexpr (__is_same(From, uint64_t) && __is_same(T, uint8_t) && lanes == 8)
        return reinterpret_cast<Vec<T, lanes>>(static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_cvtepi64_epi8(POOLGRAD_512(v)))));
    if constexpr (__is_same(From, float) && __is_same(T, double) && lanes == 8)
        return reinterpret_cast<Vec<T, lanes>>(_mm512_cvtps_pd(reinterpret_cast<__m256>(v)));
    if constexpr (__is_same(From, double) && __is_same(T, float) && lanes == 8)
        return reinterpret_cast<Vec<T, lanes>>(_mm512_cvtpd_ps(reinterpret_cast<__m512d>(v)));
#elif defined(__AVX2__)
#define POOLGRAD_128(r) reinterpret_cast<__m128i>(r)
#define POOLGRAD_64(r) _mm_cvtsi64_si128(static_cast<long long>(reinterpret_cast<uint64_t>(r)))
#define POOLGRAD_32(r) _mm_cvtsi32_si128(static_cast<int>(reinterpret_cast<uint32_t>(r)))
    POOLGRAD_CONVERT(uint8_t, uint16_t, 16, POOLGRAD_128, _mm256_cvtepu8_epi16)
    POOLGRAD_CONVERT(uint8_t, uint32_t, 8, POOLGRAD_64, _mm256_cvtepu8_epi32)
    POOLGRAD_CONVERT(uint8_t, uint64_t, 4, POOLGRAD_32, _mm256_cvtepu8_epi64)
    POOLGRAD_CONVERT(uint8_t, int32_t, 4, POOLGRAD_32, _mm_cvtepu8_epi32)
    POOLGRAD_CONVERT(int8_t, int32_t, 4, POOLGRAD_32, _mm_cvtepi8_epi32)
    POOLGRAD_CONVERT(uint16_t, uint32_t, 8, POOLGRAD_128, _mm256_cvtepu16_epi32)
    POOLGRAD_CONVERT(uint16_t, uint64_t, 4, POOLGRAD_64, _mm256_cvtepu16_epi64)
    POOLGRAD_CONVERT(uint32_t, uint64_t, 4, POOLGRAD_128, _mm256_cvtepu32_epi64)
    if constexpr (__is_same(From, float) && __is_same(T, double) && lanes == 4)
        return reinterpret_cast<Vec<T, lanes>>(_mm256_cvtps_pd(reinterpret_cast<__m128>(v)));
    if constexpr (__is_same(From, double) && __is_same(T, float) && lanes == 4)
        return reinterpret_cast<Vec<T, lanes>>(_mm256_cvtpd_ps(reinterpret_cast<__m256d>(v)));
    if constexpr (__is_same(From, uint32_t) && __is_same(T, uint8_t) && lanes == 8) {   // values fit: pack without saturation
        const __m256i w = reinterpret_cast<__m256i>(v);
        const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
        return reinterpret_cast<Vec<T, lanes>>(static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(h, h))));
    }
    if constexpr (__is_same(From, uint32_t) && __is_same(T, uint16_t) && lanes == 8) {
        const __m256i w = reinterpret_cast<__m256i>(v);
        return reinterpret_cast<Vec<T, lanes>>(_mm_packus_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
    }
    if constexpr (__is_same(From, uint16_t) && __is_same(T, uint8_t) && lanes == 16) {
        const __m256i w = reinterpret_cast<__m256i>(v);
        return reinterpret_cast<Vec<T, lanes>>(_mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
    }
#endif
    return __builtin_convertvector(v, Vec<T, lanes>);
}

template <class T, int lanes> POOLGRAD_INLINE Vec<T, lanes> splat(T value) { return Vec<T, lanes>{} + value; }

template <class T, int lanes> POOLGRAD_INLINE Vec<T, lanes> iota() {
    Vec<T, lanes> v;
    for (int i = 0; i < lanes; ++i) v[i] = static_cast<T>(i);
    return v;
}

// x > best ? x : best, also in what it does with NaN and the zeros; one instruction where there is one.
template <class V> POOLGRAD_INLINE V larger_lanes(V x, V best) {
    using T [[maybe_unused]] = typename Bare<decltype(x[0])>::type;
#if defined(__AVX512F__)
    if constexpr (__is_same(T, float) && sizeof(V) == 64)
        return reinterpret_cast<V>(_mm512_max_ps(reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(best)));
    if constexpr (__is_same(T, double) && sizeof(V) == 64)
        return reinterpret_cast<V>(_mm512_max_pd(reinterpret_cast<__m512d>(x), reinterpret_cast<__m512d>(best)));
#elif defined(__AVX__)
    if constexpr (__is_same(T, float) && sizeof(V) == 32)
        return reinterpret_cast<V>(_mm256_max_ps(reinterpret_cast<__m256>(x), reinterpret_cast<__m256>(best)));
    if constexpr (__is_same(T, double) && sizeof(V) == 32)
        return reinterpret_cast<V>(_mm256_max_pd(reinterpret_cast<__m256d>(x), reinterpret_cast<__m256d>(best)));
#elif defined(__x86_64__)
    if constexpr (__is_same(T, float) && sizeof(V) == 16)
        return reinterpret_cast<V>(_mm_max_ps(reinterpret_cast<__m128>(x), reinterpret_cast<__m128>(best)));
    if constexpr (__is_same(T, double) && sizeof(V) == 16)
        return reinterpret_cast<V>(_mm_max_pd(reinterpret_cast<__m128d>(x), reinterpret_cast<__m128d>(best)));
#endif
    return x > best ? x : best;
}

template <class V> POOLGRAD_INLINE bool any_nan(V v) {
    using T [[maybe_unused]] = typename Bare<decltype(v[0])>::type;
#if defined(__AVX512F__)
    if constexpr (__is_same(T, float) && sizeof(V) == 64)
        return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(v), reinterpret_cast<__m512>(v), _CMP_UNORD_Q);
    if constexpr (__is_same(T, double) && sizeof(V) == 64)
        return _mm512_cmp_pd_mask(reinterpret_cast<__m512d>(v), reinterpret_cast<__m512d>(v), _CMP_UNORD_Q);
#elif defined(__AVX__)
    if constexpr (sizeof(V) == 32) return _mm256_movemask_epi8(reinterpret_cast<__m256i>(v != v));
#elif defined(__x86_64__)
    if constexpr (sizeof(V) == 16) return _mm_movemask_epi8(reinterpret_cast<__m128i>(v != v));
#endif
    bool any = false;
    for (unsigned i = 0; i < sizeof(V) / sizeof(T); ++i) any |= v[i] != v[i];
    return any;
}

// Whether any lane of a comparison holds.
template <class V> POOLGRAD_INLINE bool any_lane(V v) {
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64) return _mm512_test_epi64_mask(reinterpret_cast<__m512i>(v), reinterpret_cast<__m512i>(v));
#endif
#if defined(__AVX2__)
    if constexpr (sizeof(V) == 32) return _mm256_movemask_epi8(reinterpret_cast<__m256i>(v));
#endif
#if defined(__x86_64__)
    if constexpr (sizeof(V) == 16) return _mm_movemask_epi8(reinterpret_cast<__m128i>(v));
#endif
    bool any = false;
    for (unsigned i = 0; i < sizeof(V) / sizeof(v[0]); ++i) any |= v[i] != 0;
    return any;
}

// Whether one of the vectors that pass by in pairs holds a NaN: a comparison tells of two.
template <class V> struct NanWatch {
    static constexpr bool single = __is_same(typename Bare<decltype(V{}[0])>::type, float);
#if defined(__AVX512F__)
    using Lanes = std::conditional_t<single, __mmask16, __mmask8>;
    Lanes none = static_cast<Lanes>(~Lanes{0});   // one instruction compares and remembers
    POOLGRAD_INLINE void see(V a, V b) {
        if constexpr (single) none = _mm512_mask_cmp_ps_mask(none, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), _CMP_ORD_Q);
        else none = _mm512_mask_cmp_pd_mask(none, reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), _CMP_ORD_Q);
    }
    POOLGRAD_INLINE bool any() const { return none != static_cast<Lanes>(~Lanes{0}); }
#else
    using Met = decltype(V{} != V{});
    Met met{};
    POOLGRAD_INLINE void see(V a, V b) {
#if defined(__AVX__)
        if constexpr (single) met |= reinterpret_cast<Met>(_mm256_cmp_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), _CMP_UNORD_Q));
        else met |= reinterpret_cast<Met>(_mm256_cmp_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b), _CMP_UNORD_Q));
#elif defined(__x86_64__)
        if constexpr (single) met |= reinterpret_cast<Met>(_mm_cmpunord_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b)));
        else met |= reinterpret_cast<Met>(_mm_cmpunord_pd(reinterpret_cast<__m128d>(a), reinterpret_cast<__m128d>(b)));
#else
        met |= (a != a) | (b != b);
#endif
    }
    POOLGRAD_INLINE bool any() const { return any_lane(met); }
#endif
};

#if defined(__AVX512BW__)
// A bit for every lane: whether x is above y, and whether they differ or cannot be compared.
template <class V> POOLGRAD_INLINE auto lanes_above(V x, V y) {
    using T = typename Bare<decltype(x[0])>::type;
    const __m512i a = reinterpret_cast<__m512i>(x), b = reinterpret_cast<__m512i>(y);
    if constexpr (__is_same(T, float)) return _mm512_cmp_ps_mask(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), _CMP_GT_OQ);
    else if constexpr (__is_same(T, double)) return _mm512_cmp_pd_mask(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b), _CMP_GT_OQ);
    else if constexpr (sizeof(T) == 2) return _mm512_cmpgt_epi16_mask(a, b);
    else if constexpr (sizeof(T) == 4) return _mm512_cmpgt_epi32_mask(a, b);
    else return _mm512_cmpgt_epi64_mask(a, b);
}
template <class V> POOLGRAD_INLINE auto lanes_differing(V x, V y) {
    using T = typename Bare<decltype(x[0])>::type;
    const __m512i a = reinterpret_cast<__m512i>(x), b = reinterpret_cast<__m512i>(y);
    if constexpr (__is_same(T, float)) return _mm512_cmp_ps_mask(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), _CMP_NEQ_UQ);
    else if constexpr (__is_same(T, double)) return _mm512_cmp_pd_mask(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b), _CMP_NEQ_UQ);
    else if constexpr (sizeof(T) == 2) return _mm512_cmpneq_epi16_mask(a, b);
    else if constexpr (sizeof(T) == 4) return _mm512_cmpneq_epi32_mask(a, b);
    else return _mm512_cmpneq_epi64_mask(a, b);
}

// For each of 8, 16 or 32 bytes a bit: whether it has this value.
template <int count> POOLGRAD_INLINE uint32_t equal_bytes(const void* p, uint8_t value) {
    if constexpr (count == 32) return _mm256_cmpeq_epi8_mask(load<__m256i>(p), _mm256_set1_epi8(static_cast<char>(value)));
    __m128i bytes;
    if constexpr (count == 16) bytes = load<__m128i>(p);
    else bytes = _mm_cvtsi64_si128(static_cast<long long>(load<uint64_t>(p)));
    return _mm_cmpeq_epi8_mask(bytes, _mm_set1_epi8(static_cast<char>(value)));
}

// b in the lanes whose bits are set, a in the others.
template <class V> POOLGRAD_INLINE V choose_lanes(uint16_t bits, V a, V b) {
    using T = typename Bare<decltype(a[0])>::type;
    static_assert(sizeof(V) == 64);
    if constexpr (__is_same(T, float))
        return reinterpret_cast<V>(_mm512_mask_blend_ps(bits, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
    else if constexpr (__is_same(T, double))
        return reinterpret_cast<V>(_mm512_mask_blend_pd(static_cast<__mmask8>(bits), reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b)));
    else if constexpr (sizeof(T) == 4)
        return reinterpret_cast<V>(_mm512_mask_blend_epi32(bits, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
    else return reinterpret_cast<V>(_mm512_mask_blend_epi64(static_cast<__mmask8>(bits), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
#endif

// All ones in the lanes [low, high).
template <class T, int lanes> POOLGRAD_INLINE auto lane_mask(int64_t low, int64_t high) {
    const auto lane = iota<T, lanes>();
    const T from = static_cast<T>(larger(0, smaller(low, lanes))), to = static_cast<T>(larger(0, smaller(high, lanes)));
    return (lane >= from) & (lane < to);
}

// Lanes of two vectors, one after the other, in the order of `pick`.
template <class V, class I> POOLGRAD_INLINE V shuffle(V a, V b, I pick) {
#if defined(__clang__)
    constexpr unsigned lanes = sizeof(V) / sizeof(a[0]);
    V r;
    for (unsigned i = 0; i < lanes; ++i) r[i] = static_cast<unsigned>(pick[i]) < lanes ? a[pick[i]] : b[pick[i] - static_cast<int>(lanes)];
    return r;
#else
    return __builtin_shuffle(a, b, pick);
#endif
}

// Every second element of 2 * lanes consecutive ones, beginning with the first.
template <class T, int lanes> POOLGRAD_INLINE Vec<T, lanes> load_even(const T* p) {
    using I = typename IntOf<sizeof(T)>::type;
    const auto a = load<Vec<T, lanes>>(p), b = load<Vec<T, lanes>>(p + lanes);
#if defined(__AVX512BW__)
    if constexpr (sizeof(T) == 1 && lanes == 64) {   // bytes have no such shuffle, but halves of wider lanes can be dropped
        const __m256i low = _mm512_cvtepi16_epi8(reinterpret_cast<__m512i>(a)), high = _mm512_cvtepi16_epi8(reinterpret_cast<__m512i>(b));
        return reinterpret_cast<Vec<T, lanes>>(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    }
#endif
    Vec<I, lanes> pick;
    for (int i = 0; i < lanes; ++i) pick[i] = static_cast<I>(2 * i);
    return shuffle(a, b, pick);
}

// The elements of p that the indices name, one by one: see gathers_are_quick.
template <class T, int lanes> POOLGRAD_INLINE Vec<T, lanes> gather(const T* p, const int32_t* index) {
    using V = Vec<T, lanes>;
    V v;
    for (int i = 0; i < lanes; ++i) v[i] = p[index[i]];
    return v;
}

#if defined(__AVX512F__)
// Writes the 16 elements of p that the indices name past the caches. Where a key is not below the limit, nothing is read and the
// result is zero.
template <class T> POOLGRAD_INLINE void stream_gathered(T* to, const T* p, Vec<int32_t, 16> index, Vec<uint32_t, 16> key, uint32_t limit) {
    const __mmask16 mask = _mm512_cmplt_epu32_mask(reinterpret_cast<__m512i>(key), _mm512_set1_epi32(static_cast<int>(limit)));
    const __m512i at = reinterpret_cast<__m512i>(index), none = _mm512_setzero_si512();
    if constexpr (sizeof(T) == 4) {
        stream(to, _mm512_mask_i32gather_epi32(none, mask, at, p, 4));
    } else {
        stream(to, _mm512_mask_i32gather_epi64(none, static_cast<__mmask8>(mask), _mm512_castsi512_si256(at), p, 8));
        stream(to + 8, _mm512_mask_i32gather_epi64(none, static_cast<__mmask8>(mask >> 8), _mm512_extracti64x4_epi64(at, 1), p, 8));
    }
}
#endif

// Stores a0 b0 a1 b1 ..., past the caches if asked to.
template <class T, int lanes> POOLGRAD_INLINE void store_interleaved(T* p, Vec<T, lanes> a, Vec<T, lanes> b, bool streaming = false) {
    using I = typename IntOf<sizeof(T)>::type;
    Vec<I, lanes> low, high;
    for (int i = 0; i < lanes; ++i) {
        low[i] = static_cast<I>(i / 2 + (i % 2) * lanes);
        high[i] = static_cast<I>(lanes / 2 + i / 2 + (i % 2) * lanes);
    }
    const Vec<T, lanes> first = shuffle(a, b, low), second = shuffle(a, b, high);
    if (streaming) stream(p, first), stream(p + lanes, second);
    else store(p, first), store(p + lanes, second);
}

// ---- float16 and bfloat16, kept as their bits -----------------------------------------------------------------------

POOLGRAD_INLINE float bits_float(uint32_t u) {
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
POOLGRAD_INLINE uint32_t float_bits(float f) {
    uint32_t u;
    __builtin_memcpy(&u, &f, 4);
    return u;
}

struct Half {   // IEEE binary16
    uint16_t bits;
};
struct Brain {  // bfloat16
    uint16_t bits;
};

POOLGRAD_INLINE float widen(Brain b) { return bits_float(static_cast<uint32_t>(b.bits) << 16); }

POOLGRAD_INLINE float widen(Half h) {
    const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16, rest = h.bits & 0x7fffu;
    if (rest >= 0x7c00u) return bits_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    const float magnitude = bits_float((rest << 13)) * 0x1p112f;   // exact, also for subnormals
    return bits_float(float_bits(magnitude) | sign);
}

POOLGRAD_INLINE Brain narrow_brain(float f) {
    const uint32_t u = float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(u >> 16 | 0x40u)};
    return {static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}

POOLGRAD_INLINE Half narrow_half(float f) {
    const uint32_t u = float_bits(f), sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu;
    if (rest > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x1ffu))};
    if (rest >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};               // rounds to infinity
    if (rest < 0x38800000u) {                                                              // subnormal or zero
        const float shifted = bits_float(rest) + 0.5f;                                     // the addition rounds to even
        return {static_cast<uint16_t>(sign | (float_bits(shifted) - 0x3f000000u))};
    }
    return {static_cast<uint16_t>(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13)};
}

// ---- how a maximum compares -----------------------------------------------------------------------------------------
// An Order turns stored elements into keys and says which key wins. Ties never win, so the first maximum stays.

template <class T> struct FloatOrder {
    using Stored = T;
    using Key = T;
    static constexpr bool key_is_value = true;
    static constexpr bool has_nan = true;
    bool ignore_nan;
    POOLGRAD_INLINE T key(T v) const { return v; }
    // Wins against nothing, and what is real and first stays the choice.
    POOLGRAD_INLINE T lowest() const { return ignore_nan ? static_cast<T>(__builtin_nan("")) : static_cast<T>(-__builtin_inf()); }
    template <class V> POOLGRAD_INLINE V keys(V v) const { return v; }
    POOLGRAD_INLINE T value(T k) const { return k; }
    template <class V> POOLGRAD_INLINE V values(V k) const { return k; }
    template <class V> POOLGRAD_INLINE auto wins(V x, V best) const {
        if (ignore_nan) return (x > best) | ((best != best) & (x == x));
        return ~(x <= best) & (best == best);
    }
    POOLGRAD_INLINE bool wins_one(T x, T best) const {
        if (ignore_nan) return x > best || (best != best && x == x);
        return !(x <= best) && best == best;
    }
    template <class V> POOLGRAD_INLINE auto equals(V x, V y) const { return (x == y) | ((x != x) & (y != y)); }
    POOLGRAD_INLINE bool equals_one(T x, T y) const { return x == y || (x != x && y != y); }
};

// Unsigned numbers are compared as signed ones with the sign bit flipped.
template <class T> struct IntOrder {
    using Stored = T;   // the signed type of the width
    using Key = T;
    static constexpr bool key_is_value = true;
    static constexpr bool has_nan = false;
    T flip;
    static POOLGRAD_INLINE T lowest() { return static_cast<T>(T{1} << (8 * sizeof(T) - 1)); }
    POOLGRAD_INLINE T key(T v) const { return static_cast<T>(v ^ flip); }
    template <class V> POOLGRAD_INLINE V keys(V v) const { return v ^ flip; }
    POOLGRAD_INLINE T value(T k) const { return static_cast<T>(k ^ flip); }
    template <class V> POOLGRAD_INLINE V values(V k) const { return k ^ flip; }
    template <class V> POOLGRAD_INLINE auto wins(V x, V best) const { return x > best; }
    POOLGRAD_INLINE bool wins_one(T x, T best) const { return x > best; }
    template <class V> POOLGRAD_INLINE auto equals(V x, V y) const { return x == y; }
    POOLGRAD_INLINE bool equals_one(T x, T y) const { return x == y; }
};

// 16-bit floats are compared as integers: the magnitude with the sign applied, every NaN the same key above (propagate)
// or below (ignore) all numbers. Both zeros have key 0.
struct HalfOrder {
    using Stored = int16_t;
    using Key = int16_t;
    static constexpr bool key_is_value = false;
    static constexpr bool has_nan = false;   // its keys have none
    int16_t infinity, nan_key;
    static POOLGRAD_INLINE int16_t lowest() { return INT16_MIN; }
    POOLGRAD_INLINE int16_t key(int16_t v) const {
        const int16_t magnitude = v & 0x7fff;
        return magnitude > infinity ? nan_key : v < 0 ? static_cast<int16_t>(-magnitude) : magnitude;
    }
    template <class V> POOLGRAD_INLINE V keys(V v) const {
        const V magnitude = v & int16_t{0x7fff}, sign = v >> 15;
        const V key = (magnitude ^ sign) - sign;
        return magnitude > infinity ? V{} + nan_key : key;
    }
    POOLGRAD_INLINE int16_t value(int16_t k) const { return k; }
    // The bits of a key that is no NaN, except that of the two zeros it is the positive one.
    template <class V> POOLGRAD_INLINE V values(V k) const {
        using Bits = Vec<uint16_t, sizeof(V) / sizeof(uint16_t)>;
        return k < 0 ? reinterpret_cast<V>((Bits{} - reinterpret_cast<Bits>(k)) | uint16_t{0x8000}) : k;
    }
    template <class V> POOLGRAD_INLINE auto wins(V x, V best) const { return x > best; }
    POOLGRAD_INLINE bool wins_one(int16_t x, int16_t best) const { return x > best; }
    template <class V> POOLGRAD_INLINE auto equals(V x, V y) const { return x == y; }
    POOLGRAD_INLINE bool equals_one(int16_t x, int16_t y) const { return x == y; }
};

// Calls f with the Order of a type.
template <class F> POOLGRAD_INLINE void with_order(DType type, bool ignore_nan, F&& f) {
    const auto unsigned_order = [&](auto zero) {
        using T = decltype(zero);
        f(IntOrder<T>{static_cast<T>(T{1} << (8 * sizeof(T) - 1))});
    };
    const int16_t nan_key = ignore_nan ? INT16_MIN : INT16_MAX;
    switch (type) {
        case DType::f16: return f(HalfOrder{0x7c00, nan_key});
        case DType::bf16: return f(HalfOrder{0x7f80, nan_key});
        case DType::f32: return f(FloatOrder<float>{ignore_nan});
        case DType::f64: return f(FloatOrder<double>{ignore_nan});
        case DType::i8: return f(IntOrder<int8_t>{0});
        case DType::i16: return f(IntOrder<int16_t>{0});
        case DType::i32: return f(IntOrder<int32_t>{0});
        case DType::i64: return f(IntOrder<int64_t>{0});
        case DType::u8: return unsigned_order(int8_t{});
        case DType::u16: return unsigned_order(int16_t{});
        case DType::u32: return unsigned_order(int32_t{});
        case DType::u64: return unsigned_order(int64_t{});
    }
}

// ---- codes ----------------------------------------------------------------------------------------------------------

// Codes are worked on in lanes as wide as the data they belong to, and stored in the narrowest type that holds them.
// A lane is never narrower than the stored code.
template <class I, int lanes> POOLGRAD_INLINE void store_codes(void* p, int width, Vec<I, lanes> codes) {
    const auto u = reinterpret_cast<Vec<typename IntOf<sizeof(I)>::natural, lanes>>(codes);
    if constexpr (sizeof(I) >= 2) {
        if (width == 1) return store(p, convert<uint8_t, lanes>(u));
    }
    if constexpr (sizeof(I) >= 4) {
        if (width == 2) return store(p, convert<uint16_t, lanes>(u));
    }
    if constexpr (sizeof(I) >= 8) {
        if (width == 4) return store(p, convert<uint32_t, lanes>(u));
    }
    store(p, u);
}

// The first `count` lanes only.
template <class I, int lanes> POOLGRAD_INLINE void store_some_codes(void* p, int width, Vec<I, lanes> codes, int64_t count) {
    if constexpr (sizeof(I) >= 2) {
        const auto u = reinterpret_cast<Vec<typename IntOf<sizeof(I)>::natural, lanes>>(codes);
        if (width == 1) return store_some(static_cast<uint8_t*>(p), convert<uint8_t, lanes>(u), count);
    }
    alignas(64) char some[8 * lanes];
    store_codes<I, lanes>(some, width, codes);
    __builtin_memcpy(p, some, static_cast<size_t>(width * count));
}

template <class I, int lanes> POOLGRAD_INLINE Vec<I, lanes> load_codes(const void* p, int width) {
    using N = typename IntOf<sizeof(I)>::natural;
    using R = Vec<I, lanes>;
    if constexpr (sizeof(I) >= 2) {
        if (width == 1) return reinterpret_cast<R>(convert<N, lanes>(load<Vec<uint8_t, lanes>>(p)));
    }
    if constexpr (sizeof(I) >= 4) {
        if (width == 2) return reinterpret_cast<R>(convert<N, lanes>(load<Vec<uint16_t, lanes>>(p)));
    }
    if constexpr (sizeof(I) >= 8) {
        if (width == 4) return reinterpret_cast<R>(convert<N, lanes>(load<Vec<uint32_t, lanes>>(p)));
    }
    return load<R>(p);
}

POOLGRAD_INLINE void store_code(void* p, int64_t at, int width, uint64_t code) {
    switch (width) {
        case 1: static_cast<uint8_t*>(p)[at] = static_cast<uint8_t>(code); break;
        case 2: static_cast<uint16_t*>(p)[at] = static_cast<uint16_t>(code); break;
        case 4: static_cast<uint32_t*>(p)[at] = static_cast<uint32_t>(code); break;
        default: static_cast<uint64_t*>(p)[at] = code;
    }
}

POOLGRAD_INLINE uint64_t load_code(const void* p, int64_t at, int width) {
    switch (width) {
        case 1: return static_cast<const uint8_t*>(p)[at];
        case 2: return static_cast<const uint16_t*>(p)[at];
        case 4: return static_cast<const uint32_t*>(p)[at];
        default: return static_cast<const uint64_t*>(p)[at];
    }
}

// A code that no element has: the choice of a window in which nothing equals the wanted value.
POOLGRAD_INLINE uint64_t no_code(int width) { return width == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * width)) - 1; }

}  // namespace
}  // namespace poolgrad
