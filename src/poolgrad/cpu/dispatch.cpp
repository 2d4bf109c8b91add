// Chooses the kernels at run time: the same sources are compiled for several instruction sets.
#include <atomic>
#include <cstring>

#include "kernels.hpp"

namespace poolgrad {

#define POOLGRAD_DECLARE(isa) \
    extern const int vector_bytes_##isa; \
    void scan_##isa(const Scan&, const Box&, Scratch&); \
    void put_##isa(const Put&, const Box&, Scratch&); \
    void apart_##isa(const Apart&, const Box&, Scratch&); \
    void mean_##isa(const Mean&, const Box&, Scratch&); \
    void spread_##isa(const Spread&, const Box&, Scratch&); \
    void spread_beside_##isa(const Spread&, const Box&); \
    void take_coded_##isa(const Scan&, const Box&, Scratch&); \
    void put_coded_##isa(const Put&, const Box&, Scratch&); \
    void axis_maximum_##isa(const AxisMaximum&, const Part&, Scratch&); \
    void axis_sum_##isa(const AxisSum&, const Part&, Scratch&); \
    void turn_##isa(const Turn&); \
    static const Kernels kernels_##isa = {#isa,         vector_bytes_##isa,  scan_##isa,       put_##isa,       apart_##isa,        mean_##isa, \
                                          spread_##isa, spread_beside_##isa, take_coded_##isa, put_coded_##isa, axis_maximum_##isa, axis_sum_##isa, \
                                          turn_##isa};

POOLGRAD_DECLARE(baseline)
#if defined(POOLGRAD_HAS_avx2)
POOLGRAD_DECLARE(avx2)
#endif
#if defined(POOLGRAD_HAS_avx512)
POOLGRAD_DECLARE(avx512)
#endif

namespace {

struct Available {
    const Kernels* table[4] = {};
    const char* names[4] = {};
    int count = 0;

    void add(const Kernels& kernels) {
        table[count] = &kernels;
        names[count++] = kernels.name;
    }
    Available() {
        add(kernels_baseline);
#if defined(__x86_64__)
        __builtin_cpu_init();
#endif
#if defined(POOLGRAD_HAS_avx2)
        if (__builtin_cpu_supports("x86-64-v3")) add(kernels_avx2);
#endif
#if defined(POOLGRAD_HAS_avx512)
        if (__builtin_cpu_supports("x86-64-v4")) add(kernels_avx512);
#endif
    }
};

const Available& available() {
    static const Available found;
    return found;
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

const Kernels& kernels() {
    const Kernels* k = chosen.load(std::memory_order_relaxed);
    if (!k) chosen.store(k = available().table[available().count - 1]);
    return *k;
}

const Kernels* find_kernels(const char* name) {
    for (int i = 0; i < available().count; ++i)
        if (std::strcmp(available().names[i], name) == 0) return available().table[i];
    return nullptr;
}

void use_kernels(const Kernels& choice) { chosen.store(&choice); }

const char* const* kernel_names() { return available().names; }

bool gathers_are_quick() {
#if defined(__x86_64__)
    return __builtin_cpu_is("amd");   // the processor is known by now: see Available
#else
    return true;
#endif
}

}  // namespace poolgrad
