#include "memory.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace poolgrad {
namespace {

// Fresh pages cost more than most kernels: a page fault per 4 KiB. So large blocks ask for huge pages, and blocks that
// are no longer needed are kept for the next result of about the same size.
constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t worth_keeping = size_t{1} << 18;

size_t keep_limit() {
    static const size_t limit = [] {
        if (const char* text = std::getenv("POOLGRAD_CACHE_MIB")) return static_cast<size_t>(std::strtoull(text, nullptr, 10)) << 20;
        return size_t{512} << 20;
    }();
    return limit;
}

struct Cache {
    std::mutex lock;
    std::vector<Block> blocks;   // oldest first
    size_t bytes = 0;
};

Cache* the_cache = new Cache;   // never destroyed: arrays may outlive the module

Cache& cache() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { the_cache = new Cache; });
    (void)registered;
    return *the_cache;
}

}  // namespace

Block take_block(size_t bytes) {
    if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
    const size_t unit = bytes >= 2 * huge_page ? huge_page : 64;
    const size_t capacity = (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit;
    if (bytes >= worth_keeping) {
        Cache& kept = cache();
        const std::lock_guard guard(kept.lock);
        auto best = kept.blocks.end();
        for (auto it = kept.blocks.begin(); it != kept.blocks.end(); ++it)
            if (it->capacity >= capacity && it->capacity <= capacity + capacity / 4 && (best == kept.blocks.end() || it->capacity < best->capacity))
                best = it;
        if (best != kept.blocks.end()) {
            const Block block{best->data, bytes, best->capacity};
            kept.bytes -= best->capacity;
            kept.blocks.erase(best);
            return block;
        }
    }
    void* data = std::aligned_alloc(unit, capacity);
    if (!data) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (unit == huge_page) madvise(data, capacity, MADV_HUGEPAGE);
#endif
    return {data, bytes, capacity};
}

void give_block(Block block) {
    if (block.capacity >= worth_keeping && block.capacity <= keep_limit()) {
        Cache& kept = cache();
        const std::lock_guard guard(kept.lock);
        kept.blocks.push_back(block);
        kept.bytes += block.capacity;
        while (kept.bytes > keep_limit()) {
            kept.bytes -= kept.blocks.front().capacity;
            std::free(kept.blocks.front().data);
            kept.blocks.erase(kept.blocks.begin());
        }
        return;
    }
    std::free(block.data);
}

void release_blocks() {
    Cache& kept = cache();
    const std::lock_guard guard(kept.lock);
    for (const Block& block : kept.blocks) std::free(block.data);
    kept.blocks.clear();
    kept.bytes = 0;
}

}  // namespace poolgrad
