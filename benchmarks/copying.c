/* A streaming copy: the memory limit the benchmarks compare with. Compiled when they start. */
#include <stddef.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define VECTOR 64
static void stream(char *to, const char *from) { _mm512_stream_si512((void *)to, _mm512_loadu_si512(from)); }
#elif defined(__AVX2__)
#include <immintrin.h>
#define VECTOR 32
static void stream(char *to, const char *from) {
  _mm256_stream_si256((__m256i *)to, _mm256_loadu_si256((const __m256i *)from));
}
#endif

/* `to` is aligned to 64 bytes. */
void copy_streaming(char *to, const char *from, size_t bytes) {
#ifdef VECTOR
  size_t i = 0;
  for (; i + 256 <= bytes; i += 256) {
    _mm_prefetch(from + i + 4096, _MM_HINT_T0);
    for (size_t j = 0; j < 256; j += VECTOR) stream(to + i + j, from + i + j);
  }
  _mm_sfence();
  memcpy(to + i, from + i, bytes - i);
#else
  memcpy(to, from, bytes);
#endif
}
