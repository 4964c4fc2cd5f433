#include "thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define TORCHCAPS_HAS_FORK 1
#endif

namespace torchcaps {
namespace {

class Pool {
public:
    ~Pool() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        work_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    void run(int64_t count, int threads, void (*job)(void*, int64_t), void* context) {
        grow(threads - 1);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            job_ = job, context_ = context, count_ = count;
            next_.store(0, std::memory_order_relaxed);
            helpers_ = threads - 1 < int(threads_.size()) ? threads - 1 : int(threads_.size());
            running_ = helpers_;
            ++round_;
        }
        work_.notify_all();
        take_work();
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return running_ == 0; });
    }

private:
    void grow(int helpers) {
        while (int(threads_.size()) < helpers) {
            try {
                const int index = int(threads_.size());
                threads_.reserve(threads_.size() + 1);
                threads_.emplace_back([this, index, seen = round_] { serve(index, seen); });
            } catch (const std::system_error&) {
                return;   // the system gives no more threads: fewer do the same work
            } catch (const std::bad_alloc&) {
                return;
            }
        }
    }

    void take_work() {
        for (int64_t k; (k = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) job_(context_, k);
    }

    void serve(int index, uint64_t seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            work_.wait(lock, [&] { return stopping_ || round_ != seen; });
            if (stopping_) return;
            seen = round_;
            if (index >= helpers_) continue;   // this call asked for fewer threads
            lock.unlock();
            take_work();
            lock.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable work_, done_;
    std::atomic<int64_t> next_{0};
    uint64_t round_ = 0;
    int helpers_ = 0, running_ = 0;
    bool stopping_ = false;
    void (*job_)(void*, int64_t) = nullptr;
    void* context_ = nullptr;
    int64_t count_ = 0;
};

// One pool a process, made at first use, joined at exit.
struct Owner {
    std::mutex in_use;
    Pool* pool = nullptr;

    Owner();
    ~Owner() {
        std::lock_guard<std::mutex> lock(in_use);   // a daemon thread may still be in a call
        delete pool;
        pool = nullptr;
        gone = true;
    }
    bool gone = false;
};

Owner& owner() {
    static Owner instance;
    return instance;
}

#ifdef TORCHCAPS_HAS_FORK
// The child has the pool's memory but not its threads, and perhaps a mutex another thread held at the fork: leave the
// pool to rot, and make the mutex new.
void after_fork_in_child() {
    Owner& o = owner();
    new (&o.in_use) std::mutex;
    o.pool = nullptr;
}
#endif

Owner::Owner() {
#ifdef TORCHCAPS_HAS_FORK
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
#endif
}

}  // namespace

void run_parallel(int64_t count, int threads, void (*job)(void*, int64_t), void* context) {
    if (count < threads) threads = int(count);
    if (threads > 1) {
        Owner& o = owner();
        std::unique_lock<std::mutex> lock(o.in_use, std::try_to_lock);
        if (lock.owns_lock() && !o.gone) {
            if (!o.pool) o.pool = new Pool;
            o.pool->run(count, threads, job, context);
            return;
        }
    }
    for (int64_t k = 0; k < count; ++k) job(context, k);
}

}  // namespace torchcaps
