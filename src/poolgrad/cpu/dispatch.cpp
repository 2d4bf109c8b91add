// Chooses the kernels at run time: the same sources are compiled for several instruction sets.
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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
#if defined(POOLGRAD_HAS_zen5)
POOLGRAD_DECLARE(zen5)
#endif

namespace {

#if defined(__x86_64__)
// The family of AMD's processors, 0 of others. To ask takes long where the processor is shared out by another system.
unsigned amd_family() {
    static const unsigned found = [] {
        unsigned a = 0, b = 0, c = 0, d = 0;
        if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &a, &b, &c, &d)) return 0u;
        return (a >> 8 & 15) + (a >> 20 & 255);
    }();
    return found;
}
[[maybe_unused]] bool is_zen_5_or_later() { return amd_family() >= 0x1A; }
#endif

// The last one is the quickest on this processor.
struct Available {
    const Kernels* table[5] = {};
    const char* names[5] = {};
    int count = 0;

    void add(const Kernels& kernels) {
        table[count] = &kernels;
        names[count++] = kernels.name;
    }
    Available() {
        add(kernels_baseline);
#if defined(__x86_64__)
        __builtin_cpu_init();
#if defined(POOLGRAD_HAS_avx2)
        if (__builtin_cpu_supports("x86-64-v3")) add(kernels_avx2);
#endif
        [[maybe_unused]] const bool wide = __builtin_cpu_supports("x86-64-v4");
#if defined(POOLGRAD_HAS_zen5)
        if (wide && !is_zen_5_or_later()) add(kernels_zen5);
#endif
#if defined(POOLGRAD_HAS_avx512)
        if (wide) add(kernels_avx512);
#endif
#if defined(POOLGRAD_HAS_zen5)
        if (wide && is_zen_5_or_later()) add(kernels_zen5);
#endif
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

// The processor is known by now: see Available.
bool gathers_are_quick() {
#if defined(__x86_64__)
    return __builtin_cpu_is("amd");
#else
    return true;
#endif
}

bool lines_apart_are_quick() {
#if defined(__x86_64__)
    return amd_family() == 0x19 && kernels().vector_bytes == 64;   // Zen 4: Zen 3 has no such vectors
#else
    return false;
#endif
}

}  // namespace poolgrad
