// What CUDA gives to a kernel, on a processor: so that `listed.cu` can be compiled and tested where there is no GPU.
//
// Blocks run one after the other. The threads of a block are fibers, which run one after the other up to the next barrier,
// forwards or (BACKWARDS) the other way round: where two of them get in each other's way between barriers, results differ.
// Copies into shared memory happen at once or (LATE) when they are waited for: the first and the last moment a GPU has.
// Shared memory, and what lies behind it, is full of NaN when a block begins.
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <type_traits>
#include <utility>
#include <vector>

#define POOLGRAD_EMULATED
#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __syncthreads() meet(__LINE__)

using std::max, std::min;
struct int2 { int x, y; };
struct __align__(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }

constexpr unsigned MOST_THREADS = 256, MOST_SHARED = 1 << 18, STACK = 1 << 16;
enum Mode { BACKWARDS = 1, LATE = 2 };
enum Fault { NONE, BEHIND_SHARED_MEMORY, MISALIGNED_COPY, COPY_FROM_OUTSIDE, DIFFERENT_BARRIERS };
extern "C" {   // what tests set
int mode;
const char *array_begin, *array_end;   // between which copies read
}
struct { unsigned x; } threadIdx, blockIdx;
__align__(16) unsigned char shared[MOST_SHARED];
static unsigned asked;   // how many bytes of it
static Fault fault;
static void (*kernel)(void**);
static void** arguments;

// Barriers

static ucontext_t outside, inside[MOST_THREADS];
static std::vector<char> stacks(MOST_THREADS* STACK);
static int line_of[MOST_THREADS];   // where each thread waits; 0 at its end
struct Copy { void* to; const void* from; int bytes; };
static std::deque<std::vector<Copy>> groups[MOST_THREADS];   // the last one is not yet complete

static void meet(int line) {
    line_of[threadIdx.x] = line;
    swapcontext(&inside[threadIdx.x], &outside);
}

static void run_thread() {
    kernel(arguments);
    line_of[threadIdx.x] = 0;
}

static void run_block(unsigned threads) {
    std::memset(shared, 0xff, MOST_SHARED);
    for (unsigned i = 0; i < threads; i++) {
        getcontext(&inside[i]);
        inside[i].uc_stack.ss_sp = stacks.data() + i * STACK, inside[i].uc_stack.ss_size = STACK;
        inside[i].uc_link = &outside;
        makecontext(&inside[i], run_thread, 0);
        groups[i].assign(1, {});
    }
    do {
        for (unsigned i = 0; i < threads; i++) {
            threadIdx.x = mode & BACKWARDS ? threads - 1 - i : i;
            swapcontext(&outside, &inside[threadIdx.x]);
        }
        if (std::count(line_of, line_of + threads, line_of[0]) != threads) fault = DIFFERENT_BARRIERS;
    } while (line_of[0] && !fault);
    if (std::count(shared + asked, shared + MOST_SHARED, 0xff) != MOST_SHARED - asked) fault = BEHIND_SHARED_MEMORY;
}

// As the driver's function: what it returns is 0 unless something went wrong.
extern "C" int cuLaunchKernel(void (*f)(void**), unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                              unsigned bytes, void*, void** given, void**) {
    kernel = f, arguments = given, asked = bytes, fault = NONE;
    for (blockIdx.x = 0; blockIdx.x < blocks && !fault; blockIdx.x++) run_block(threads);
    return fault;
}

template <typename... A> void call(void (*f)(A...), void** given) {
    [&]<std::size_t... I>(std::index_sequence<I...>) { f(*(A*)given[I]...); }(std::index_sequence_for<A...>{});
}

// Instructions

struct Half;   // defined by the kernel
struct Brain;

template <typename T> float wide(T v) {
    if constexpr (std::is_same_v<T, Brain>) return std::bit_cast<float>((unsigned)v.bits << 16);
    const int e = v.bits >> 10 & 31, m = v.bits & 1023;
    const float size = e == 31 ? (m ? NAN : INFINITY) : std::ldexp((float)(e ? m + 1024 : m), max(e, 1) - 25);
    return v.bits >> 15 ? -size : size;
}

template <typename T> void narrow(float v, T& out) {   // to the nearest; of two, to the even one
    const unsigned bits = std::bit_cast<unsigned>(v), sign = bits >> 31 << 15;
    const float size = std::fabs(v);
    const int e = size > 0 && size < 65520 ? max(std::ilogb(size), -14) : -14;
    if (std::isnan(v)) out.bits = 0x7fff;
    else if (std::is_same_v<T, Brain>) out.bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    else if (size < 65520) out.bits = sign | ((e + 14) * 1024 + (int)std::nearbyint(std::ldexp(size, 10 - e)));
    else out.bits = sign | 31 << 10;
}

inline float larger(float a, float b) {
    if (std::isnan(a) || std::isnan(b)) return NAN;
    return a > b || (a == b && std::signbit(b)) ? a : b;
}

template <int BYTES> void copy_later(void* to, const void* from) {
    if ((std::uintptr_t)to % BYTES || (std::uintptr_t)from % BYTES) fault = MISALIGNED_COPY;
    else if (from < array_begin || from > array_end - BYTES) fault = COPY_FROM_OUTSIDE;
    else if (to > shared + asked - BYTES) fault = BEHIND_SHARED_MEMORY;
    else if (mode & LATE) groups[threadIdx.x].back().push_back({to, from, BYTES});
    else std::memcpy(to, from, BYTES);
}
inline void end_group() { groups[threadIdx.x].emplace_back(); }
template <int MISSING> void wait_for_all_groups_but() {
    for (auto& its = groups[threadIdx.x]; its.size() > MISSING + 1; its.pop_front())
        for (const Copy& copy : its.front()) std::memcpy(copy.to, copy.from, copy.bytes);
}
