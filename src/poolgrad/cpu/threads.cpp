#include "threads.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace poolgrad {

void* reserve(Scratch& scratch, int slot, size_t bytes) {
    if (bytes > scratch.bytes[slot] || !scratch.memory[slot]) {
        std::free(scratch.memory[slot]);
        scratch.memory[slot] = nullptr;
        scratch.bytes[slot] = 0;
        const size_t rounded = (bytes + bytes / 4 + 4096) / 64 * 64;
        scratch.memory[slot] = std::aligned_alloc(64, rounded);
        if (!scratch.memory[slot]) throw std::bad_alloc();
        scratch.bytes[slot] = rounded;
    }
    return scratch.memory[slot];
}

namespace {

constexpr size_t kept_scratch = size_t{4} << 20;   // a slot larger than this is given back after the call

struct OwnScratch : Scratch {
    OwnScratch() : Scratch{} {}
    ~OwnScratch() { shrink(0); }
    void shrink(size_t limit) {
        for (int slot = 0; slot < slots; ++slot)
            if (bytes[slot] > limit) {
                std::free(memory[slot]);
                memory[slot] = nullptr;
                bytes[slot] = 0;
            }
    }
};

thread_local OwnScratch own_scratch;

struct Job {
    void (*task)(void*, int64_t, Scratch&);
    void* context;
    int64_t count;
    int helpers;   // workers that may join
    std::atomic<int64_t> next{0};
    std::atomic<bool> out_of_memory{false};

    void work() {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
            try {
                task(context, i, own_scratch);
            } catch (const std::bad_alloc&) { out_of_memory.store(true); }
        }
        own_scratch.shrink(kept_scratch);
    }
};

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

// Some kernels wake a thread on the processor of the one that wakes it, where it waits behind the caller while others
// idle: the job takes as long as with one thread. So workers keep off the caller's processor.
struct Worker {
#if defined(__linux__)
    pthread_t thread;
    int kept_off = -1;   // this processor

    void keep_off(int cpu, const cpu_set_t& others) {
        if (cpu != kept_off && pthread_setaffinity_np(thread, sizeof others, &others) == 0) kept_off = cpu;
    }
#endif
};

struct Pool {
    std::mutex in_use;                 // held by the caller whose job runs
    std::atomic<Job*> job{nullptr};
    std::atomic<int> inside{0};        // workers that may hold a pointer to the job
    std::atomic<uint32_t> epoch{0};    // changes with every job
    std::vector<Worker> workers;

    void start_workers(size_t wanted) {
        while (workers.size() < wanted) {
            const int index = static_cast<int>(workers.size());
            Worker& worker = workers.emplace_back();
            try {
                std::thread started([this, index] { serve(index); });
#if defined(__linux__)
                worker.thread = started.native_handle();
#endif
                started.detach();
            } catch (const std::system_error&) {   // the system gives no more: those that are there will do
                workers.pop_back();
                return;
            }
        }
    }

    void serve(int index) {
        uint32_t seen = 0;   // a worker that starts late joins the job that is running
        for (;;) {
            for (int spin = 0; spin < 2000 && epoch.load() == seen; ++spin) pause();
            epoch.wait(seen);
            seen = epoch.load();
            inside.fetch_add(1);
            Job* current = job.load();
            if (current && index < current->helpers) current->work();
            inside.fetch_sub(1);
        }
    }

    void keep_off_caller(size_t helpers) {
#if defined(__linux__)
        const int here = sched_getcpu();
        helpers = std::min(helpers, workers.size());
        if (std::all_of(workers.begin(), workers.begin() + helpers, [=](const Worker& w) { return w.kept_off == here; })) return;
        cpu_set_t others;
        if (here < 0 || sched_getaffinity(0, sizeof others, &others) != 0) return;
        CPU_CLR(here, &others);
        if (CPU_COUNT(&others) == 0) return;
        for (size_t i = 0; i < helpers; ++i) workers[i].keep_off(here, others);
#else
        (void)helpers;
#endif
    }

    void run(Job& mine) {
        start_workers(mine.helpers);
        keep_off_caller(mine.helpers);
        job.store(&mine);
        epoch.fetch_add(1);
        epoch.notify_all();
        mine.work();
        job.store(nullptr);
        for (int spin = 0; inside.load() != 0; ++spin) spin < 4000 ? pause() : std::this_thread::yield();
    }
};

int default_threads() {
    if (const char* text = std::getenv("POOLGRAD_NUM_THREADS")) {
        const long n = std::strtol(text, nullptr, 10);
        if (n >= 1) return static_cast<int>(std::min(n, 1024L));
    }
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

std::atomic<int> thread_count{0};

// Never destroyed: workers may outlive main. After a fork the child has none of the workers, so it starts afresh.
std::atomic<Pool*> the_pool{nullptr};

Pool& pool() {
    static const int registered = [] {
        the_pool.store(new Pool);
        return pthread_atfork(nullptr, nullptr, [] { the_pool.store(new Pool); });
    }();
    (void)registered;
    return *the_pool.load();
}

}  // namespace

int get_num_threads() {
    int n = thread_count.load();
    if (n == 0) thread_count.store(n = default_threads());
    return n;
}

void set_num_threads(int n) { thread_count.store(std::clamp(n, 1, 1024)); }

void run_tasks(int64_t count, void (*task)(void*, int64_t, Scratch&), void* context) {
    Job job{task, context, count, static_cast<int>(std::min<int64_t>(get_num_threads(), count)) - 1};
    if (job.helpers <= 0) {
        job.work();
    } else {
        Pool& shared = pool();
        std::unique_lock lock(shared.in_use, std::try_to_lock);
        if (lock.owns_lock()) shared.run(job);
        else job.work();
    }
    if (job.out_of_memory.load()) throw std::bad_alloc();
}

}  // namespace poolgrad
