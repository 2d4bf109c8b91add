/* What memory gives, without any pooling: a streaming copy, and reading and writing of different amounts, by all threads. Compiled when the
   benchmarks start. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
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

enum { AHEAD = 4096, STEP = 256, MOST_PLACES = 4, MOST_THREADS = 64 };

/* Whether this processor has what move_streaming needs. */
int can_stream(void) {
#ifdef VECTOR
  return 1;
#else
  return 0;
#endif
}

/* `to` is aligned to 64 bytes. */
static void copy_streaming(char *to, const char *from, size_t bytes) {
#ifdef VECTOR
  size_t i = 0;
  for (; i + STEP <= bytes; i += STEP) {
    _mm_prefetch(from + i + AHEAD, _MM_HINT_T0);
    for (size_t j = 0; j < STEP; j += VECTOR) stream(to + i + j, load(from + i + j));
  }
  _mm_sfence();
  memcpy(to + i, from + i, bytes - i);
#else
  memcpy(to, from, bytes);
#endif
}

/* Reads whole lines from some places in turns, and writes sums of them in proportion. `to` is aligned to 64 bytes. */
static void move_streaming(char *to, size_t written, const char *from, size_t read, size_t places) {
#ifdef VECTOR
  const size_t part = read / places / 64 * 64;
  vector sums[MOST_PLACES] = {{0}};
  size_t w = 0;
  for (size_t i = 0; i < part; i += STEP) {
    const size_t end = i + STEP < part ? i + STEP : part;
    for (size_t p = 0; p < places; ++p) {
      if (places == 1) _mm_prefetch(from + i + AHEAD, _MM_HINT_T0);
      for (size_t j = i; j < end; j += VECTOR) sums[p] = add(sums[p], load(from + p * part + j));
    }
    const size_t w_end = (size_t)((double)end / (double)part * (double)written) / 64 * 64;
    for (; w < w_end; w += VECTOR) stream(to + w, add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  }
  _mm_sfence();
#else
  (void)to, (void)written, (void)from, (void)read, (void)places;
#endif
}

/* One thread's share. */
struct share {
  char *to;
  const char *from;
  size_t written, read, places;   /* places 0: a streaming copy; -1: memmove */
};

static void run(const struct share *s) {
  if (s->places == (size_t)-1) memmove(s->to, s->from, s->read);
  else if (s->places == 0) copy_streaming(s->to, s->from, s->read);
  else move_streaming(s->to, s->written, s->from, s->read, s->places);
}

static struct {
  pthread_mutex_t lock;
  pthread_cond_t called;
  const struct share *shares;
  size_t call, share_count, count;   /* of threads, beside the caller */
  atomic_size_t left;
  pthread_t threads[MOST_THREADS];
  int kept_off;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .called = PTHREAD_COND_INITIALIZER, .kept_off = -1};

static void *serve(void *number) {
  for (size_t seen = 0;;) {
    pthread_mutex_lock(&pool.lock);
    while (pool.call == seen) pthread_cond_wait(&pool.called, &pool.lock);
    seen = pool.call;
    const struct share *mine = (size_t)number < pool.share_count ? pool.shares + (size_t)number : NULL;
    pthread_mutex_unlock(&pool.lock);
    if (!mine) continue;
    run(mine);
    atomic_fetch_sub(&pool.left, 1);
  }
  return NULL;
}

/* All shares at once: the caller does the first, threads that keep off its processor the others. Returns 0 if there are no such threads. */
int run_shares(const struct share *shares, size_t count) {
  if (count > MOST_THREADS) return 0;
  for (; pool.count + 1 < count; ++pool.count, pool.kept_off = -1)
    if (pthread_create(&pool.threads[pool.count], NULL, serve, (void *)(pool.count + 1))) return 0;
  const int here = sched_getcpu();
  cpu_set_t others;
  if (here != pool.kept_off && sched_getaffinity(0, sizeof others, &others) == 0) {
    CPU_CLR(here, &others);
    for (size_t i = 0; i < pool.count && CPU_COUNT(&others) > 0; ++i) pthread_setaffinity_np(pool.threads[i], sizeof others, &others);
    pool.kept_off = here;
  }
  pthread_mutex_lock(&pool.lock);
  pool.shares = shares;
  pool.share_count = count;
  atomic_store(&pool.left, count - 1);
  ++pool.call;
  pthread_cond_broadcast(&pool.called);
  pthread_mutex_unlock(&pool.lock);
  run(shares);
  while (atomic_load(&pool.left) > 0) sched_yield();
  return 1;
}

/* Additions that wait for each other: each takes a cycle. */
size_t wait_cycles(size_t count) {
  size_t sum = count;
  for (size_t i = 0; i < count; ++i) {
    __asm__ volatile("" : "+r"(sum));
    sum += i;
  }
  return sum;
}
