#include "threads.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
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

constexpr int most_threads = 1024;
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
    int share_count;
    std::atomic<size_t> finished{0};   // workers that took part and are through
    std::atomic<bool> out_of_memory{false};

    // Tasks that follow one another mostly read memory that does: so each thread has a share of neighbours, and helps with the others'
    // when it is through.
    static constexpr int most_shares = 16;
    struct alignas(64) Share {
        std::atomic<int64_t> next;
        int64_t end;
    };
    Share shares[most_shares];

    Job(void (*task)(void*, int64_t, Scratch&), void* context, int64_t count, int64_t threads)
        : task(task),
          context(context),
          share_count(static_cast<int>(std::clamp<int64_t>(threads, 1, most_shares))) {
        for (int s = 0; s < share_count; ++s) {
            shares[s].next.store(count * s / share_count, std::memory_order_relaxed);
            shares[s].end = count * (s + 1) / share_count;
        }
    }

    void work(int thread) {
        for (int s = 0; s < share_count; ++s) {
            Share& share = shares[(thread + s) % share_count];
            for (int64_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) {
                try {
                    task(context, i, own_scratch);
                } catch (const std::bad_alloc&) { out_of_memory.store(true); }
            }
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

struct alignas(64) Worker {
    std::atomic<Job*> job{nullptr};   // the worker takes it, or its caller takes it back
    std::atomic<uint32_t> calls{0};
    int number = 0;                     // its caller is thread 0
    std::thread::native_handle_type thread{};
    int kept_off = -1;                  // this processor
    const void* kept_by = nullptr;      // for this thread, whose processors it may use

    void call(Job& one) {
        job.store(&one);
        calls.fetch_add(1);
        calls.notify_one();
    }

    void serve() {
        for (uint32_t seen = 0;;) {
            for (int spin = 0; spin < 2000 && calls.load() == seen; ++spin) pause();
            calls.wait(seen);
            seen = calls.load();
            if (Job* const mine = job.exchange(nullptr)) {
                mine->work(number);
                mine->finished.fetch_add(1);   // from here on it may be gone
            }
        }
    }
};

struct Pool {
    std::mutex in_use;   // held by the caller whose job runs
    std::vector<std::unique_ptr<Worker>> workers;

    // As many as wanted, or as the system gives.
    std::span<const std::unique_ptr<Worker>> start_workers(size_t wanted) {
        try {
            workers.reserve(wanted);
            while (workers.size() < wanted) {
                auto worker = std::make_unique<Worker>();
                worker->number = static_cast<int>(workers.size()) + 1;
                std::thread started(&Worker::serve, worker.get());
                worker->thread = started.native_handle();
                started.detach();
                workers.push_back(std::move(worker));
            }
        } catch (const std::system_error&) {
        } catch (const std::bad_alloc&) {}
        return {workers.data(), std::min(wanted, workers.size())};
    }

    void run(Job& mine, size_t helpers) {
        const auto called = start_workers(helpers);
        keep_off_caller(called);
        for (const auto& worker : called) worker->call(mine);
        mine.work(0);
        size_t joined = 0;
        for (const auto& worker : called) joined += worker->job.exchange(nullptr) == nullptr;
        for (int spin = 0; mine.finished.load() != joined; ++spin) spin < 4000 ? pause() : std::this_thread::yield();
    }

    // Some kernels wake a thread on the processor of the one that wakes it, where it waits behind the caller while others
    // idle: the job takes as long as with one thread. So workers keep off the caller's processor.
    static void keep_off_caller(std::span<const std::unique_ptr<Worker>> called) {
#if defined(__linux__)
        const int here = sched_getcpu();
        const void* const caller = &own_scratch;
        const auto is_off = [=](const auto& worker) { return worker->kept_off == here && worker->kept_by == caller; };
        cpu_set_t others;
        if (here < 0 || std::all_of(called.begin(), called.end(), is_off) || sched_getaffinity(0, sizeof others, &others) != 0) return;
        CPU_CLR(here, &others);
        if (CPU_COUNT(&others) == 0) return;
        for (const auto& worker : called) {
            pthread_setaffinity_np(worker->thread, sizeof others, &others);   // where that is forbidden all goes on as it was
            worker->kept_off = here;
            worker->kept_by = caller;
        }
#else
        (void)called;
#endif
    }
};

int default_threads() {
    if (const char* text = std::getenv("POOLGRAD_NUM_THREADS")) {
        const long n = std::strtol(text, nullptr, 10);
        if (n >= 1) return static_cast<int>(std::min<long>(n, most_threads));
    }
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, unsigned{most_threads}));
}

std::atomic<int> thread_count{0};

// Never destroyed: workers may outlive main. After a fork the child has none of the workers, so it starts afresh.
std::atomic<Pool*> pool{new Pool};
[[maybe_unused]] const int at_fork = pthread_atfork(nullptr, nullptr, [] { pool.store(new Pool); });

}  // namespace

int get_num_threads() {
    int n = thread_count.load();
    if (n == 0) thread_count.store(n = default_threads());
    return n;
}

void set_num_threads(int n) { thread_count.store(std::clamp(n, 1, most_threads)); }

void run_tasks(int64_t count, void (*task)(void*, int64_t, Scratch&), void* context) {
    const int64_t helpers = std::min<int64_t>(get_num_threads(), count) - 1;
    if (helpers <= 0) {   // nothing is shared, and small calls should not pay for it
        OwnScratch& mine = own_scratch;
        for (int64_t i = 0; i < count; ++i) task(context, i, mine);
        return mine.shrink(kept_scratch);
    }
    Job job(task, context, count, helpers + 1);
    Pool& shared = *pool.load();
    std::unique_lock lock(shared.in_use, std::defer_lock);
    if (lock.try_lock()) shared.run(job, static_cast<size_t>(helpers));
    else job.work(0);
    if (job.out_of_memory.load()) throw std::bad_alloc();
}

}  // namespace poolgrad
