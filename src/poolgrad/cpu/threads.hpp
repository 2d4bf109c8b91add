// A small pool of threads. The caller works too, and never waits for a worker that has not begun.
// Safe after fork, from several threads at once (one of them gets the workers, the others run alone) and at exit.
#pragma once

#include <cstdint>

#include "geometry.hpp"

namespace poolgrad {

int get_num_threads();
void set_num_threads(int n);   // at least 1

// Calls task(context, i, scratch) for every i in [0, count), each exactly once, in any order.
// Rethrows std::bad_alloc if a task ran out of memory.
void run_tasks(int64_t count, void (*task)(void* context, int64_t i, Scratch& scratch), void* context);

template <class F> void parallel(int64_t count, F&& f) {
    run_tasks(count, [](void* context, int64_t i, Scratch& scratch) { (*static_cast<F*>(context))(i, scratch); }, &f);
}

}  // namespace poolgrad
