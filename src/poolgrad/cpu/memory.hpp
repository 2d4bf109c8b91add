// Memory for results: 64-byte aligned, huge pages where large, and reused once the previous owner is gone.
#pragma once

#include <cstddef>

namespace poolgrad {

struct Block {
    void* data;
    size_t bytes;      // as asked for
    size_t capacity;   // as taken from the system
};

Block take_block(size_t bytes);   // contents undefined; throws std::bad_alloc
void give_block(Block block);
void release_blocks();            // gives every unused block back to the system

}  // namespace poolgrad
