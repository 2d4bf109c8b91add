#include "memory.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace poolgrad {
namespace {

// Fresh pages cost more than most kernels: a page fault per 4 KiB. So large blocks ask for huge pages, and blocks that
// are no longer needed are kept for the next result of about the same size. Small ones come and go so often that they have shelves:
// a few blocks of each of four sizes per power of two, found without a search.
constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t small = size_t{1} << 18;   // bytes of a block without a shelf
constexpr size_t most_on_shelf = 4;

struct Shelf {
    void* blocks[most_on_shelf];
    size_t count = 0;
};

// The step between sizes of blocks of about this size.
size_t step(size_t bytes) { return std::max<size_t>(std::bit_floor(bytes) / 4, 64); }

size_t rounded(size_t bytes, size_t unit) { return (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit; }

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
    Shelf shelves[4 * std::bit_width(small)];
    size_t bytes = 0;

    Shelf& shelf(size_t capacity) { return shelves[4 * (std::bit_width(capacity) - 1) + (capacity - std::bit_floor(capacity)) / step(capacity)]; }
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
    const size_t unit = bytes >= 2 * huge_page ? huge_page : bytes < small ? step(bytes) : 64;
    const size_t capacity = rounded(bytes, unit);
    Cache& kept = cache();
    if (capacity < small) {
        const std::lock_guard guard(kept.lock);
        if (Shelf& shelf = kept.shelf(capacity); shelf.count) {
            kept.bytes -= capacity;
            return {shelf.blocks[--shelf.count], bytes, capacity};
        }
    } else {
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
    void* data = std::aligned_alloc(unit == huge_page ? unit : 64, capacity);
    if (!data) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (unit == huge_page) madvise(data, capacity, MADV_HUGEPAGE);
#endif
    return {data, bytes, capacity};
}

void give_block(Block block) {
    Cache& kept = cache();
    if (block.capacity < small) {
        const std::lock_guard guard(kept.lock);
        Shelf& shelf = kept.shelf(block.capacity);
        if (shelf.count < most_on_shelf && kept.bytes + block.capacity <= keep_limit()) {
            shelf.blocks[shelf.count++] = block.data;
            kept.bytes += block.capacity;
            return;
        }
    } else if (block.capacity <= keep_limit()) {
        const std::lock_guard guard(kept.lock);
        kept.blocks.push_back(block);
        kept.bytes += block.capacity;
        while (kept.bytes > keep_limit() && !kept.blocks.empty()) {
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
    for (Shelf& shelf : kept.shelves)
        while (shelf.count) std::free(shelf.blocks[--shelf.count]);
    kept.bytes = 0;
}

}  // namespace poolgrad
