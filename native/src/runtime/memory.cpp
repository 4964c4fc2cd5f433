#include "memory.h"

#include "thread_pool.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace torchcaps {

void prefer_large_pages(float* data, size_t floats) {
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t page = uintptr_t(2) << 20;
    const uintptr_t start = reinterpret_cast<uintptr_t>(data);
    const uintptr_t begin = round_up(start, page), end = (start + floats * sizeof(float)) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);   // advice: it may fail
#else
    (void)data, (void)floats;
#endif
}

void add_parts(float* sums, size_t size, int64_t parts, int threads) {
    auto add = [&](int64_t k) {
        const Range range = part(int64_t(size), threads, k);
        for (int64_t other = 1; other < parts; ++other) {
            const float* from = sums + size_t(other) * size;
            for (int64_t at = range.begin; at < range.end; ++at) sums[at] += from[at];
        }
    };
    parallel_for(threads, threads, add);
}

}  // namespace torchcaps
