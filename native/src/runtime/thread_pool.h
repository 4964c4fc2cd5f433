// A few threads that wait for work. Not OpenMP: torch's wheels bring a runtime of their own, two in one process fight
// over the cores, and libgomp hangs after fork.
#pragma once
#include <cstdint>

namespace torchcaps {

// Calls job(context, k) for k = 0 .. count - 1, on up to `threads` threads (the caller is one of them), and returns when
// all are done. Which thread runs which k is left open, so a result may depend on k only. When another caller has the
// pool, this one runs everything itself. job must not throw.
void run_parallel(int64_t count, int threads, void (*job)(void* context, int64_t k), void* context);

template <class Fn>
void parallel_for(int64_t count, int threads, Fn& fn) {
    run_parallel(count, threads, [](void* context, int64_t k) { (*static_cast<Fn*>(context))(k); }, &fn);
}

}  // namespace torchcaps
