/* What memory gives, without any pooling: a streaming copy, and reading and writing of different amounts. Compiled when the benchmarks start. */
#include <stddef.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define VECTOR 64
typedef __m512i vector;
static vector load(const char *from) { return _mm512_loadu_si512(from); }
static vector add(vector a, vector b) { return _mm512_add_epi64(a, b); }
static void stream(char *to, vector v) { _mm512_stream_si512((void *)to, v); }
#elif defined(__AVX2__)
#include <immintrin.h>
#define VECTOR 32
typedef __m256i vector;
static vector load(const char *from) { return _mm256_loadu_si256((const __m256i *)from); }
static vector add(vector a, vector b) { return _mm256_add_epi64(a, b); }
static void stream(char *to, vector v) { _mm256_stream_si256((__m256i *)to, v); }
#endif

/* `to` is aligned to 64 bytes. */
void copy_streaming(char *to, const char *from, size_t bytes) {
#ifdef VECTOR
  size_t i = 0;
  for (; i + 256 <= bytes; i += 256) {
    _mm_prefetch(from + i + 4096, _MM_HINT_T0);
    for (size_t j = 0; j < 256; j += VECTOR) stream(to + i + j, load(from + i + j));
  }
  _mm_sfence();
  memcpy(to + i, from + i, bytes - i);
#else
  memcpy(to, from, bytes);
#endif
}

/* Reads whole lines from four places in turns, which is quicker than from one, and writes sums of them, in proportion. `to` is aligned to 64 bytes. */
void move_streaming(char *to, size_t written, const char *from, size_t read) {
#ifdef VECTOR
  enum { places = 4, step = 256 };
  const size_t part = read / places / 64 * 64;
  vector sums[places] = {{0}};
  size_t w = 0;
  for (size_t i = 0; i < part; i += step) {
    const size_t end = i + step < part ? i + step : part;
    for (size_t p = 0; p < places; ++p)
      for (size_t j = i; j < end; j += VECTOR) sums[p] = add(sums[p], load(from + p * part + j));
    const size_t w_end = (size_t)((double)end / (double)part * (double)written) / 64 * 64;
    for (; w < w_end; w += VECTOR) stream(to + w, add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  }
  _mm_sfence();
#else
  (void)to, (void)written, (void)from, (void)read;
#endif
}
