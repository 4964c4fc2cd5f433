#include "residual.h"

#include <atomic>
#include <cstring>

#include "dispatch.h"
#include "memory.h"
#include "thread_pool.h"

namespace torchcaps {
namespace {

// Sizes from the weight and a map, which are dense.
Residual sizes_of(const Array& map, const char* name, const Array& weight, const char* weight_name) {
    Residual p = {};
    check_dimensions(map, 4, name);
    check_dimensions(weight, 4, weight_name);
    p.batch = map.shape[0], p.height = map.shape[1], p.width = map.shape[2], p.channels = map.shape[3], p.kernel = weight.shape[2];
    if (p.batch < 0 || p.height < 1 || p.width < 1) refuse(std::string(name) + ": only the batch may be empty");
    if (p.channels < 1 || p.channels % kPoseSize != 0)
        refuse(std::string(name) + ": got " + std::to_string(p.channels) + " channels, expected a multiple of " + std::to_string(kPoseSize));
    if (p.kernel != 3 && p.kernel != 5)
        refuse(std::string(weight_name) + ": got kernel size " + std::to_string(p.kernel) + ", expected 3 or 5");
    check_dense(map, {p.batch, p.height, p.width, p.channels}, name);
    check_dense(weight, {p.channels, p.channels, p.kernel, p.kernel}, weight_name);
    product(product(p.channels, p.channels), 64 * sizeof(float));   // filters at 36 points; all else is smaller or bounded
    return p;
}
Shape map_of(const Residual& p) { return {p.batch, p.height, p.width, p.channels}; }

}  // namespace

Residual check_residual(const ResidualArrays& a, bool reversed, bool skip) {
    Residual p = sizes_of(a.input, "input", a.weight, "weight");
    check_dense(a.bias, {p.channels}, "bias");
    check_dense(a.output, map_of(p), "output");
    p.input = a.input.data, p.weight = a.weight.data, p.bias = a.bias.data, p.output = a.output.data;
    p.reversed = reversed, p.skip = skip;
    return p;
}

Residual check_residual_gradient(const ResidualGradientArrays& a) {
    Residual p = sizes_of(a.pose, "pose", a.grad_weight, "grad_weight");
    check_dense(a.grad, map_of(p), "grad");
    p.input = a.pose.data, p.grad = a.grad.data;
    return p;
}

void run_residual_forward(const Residual& p, int threads) {
    const Kernels& kernels = kernels_in_use();
    const ResidualSizes sizes = kernels.residual_sizes(p);
    if (sizes.tiles == 0) return;
    prefer_large_pages(p.output, size_t(p.batch * p.height * p.width * p.channels));
    Buffer filters(sizes.filters);
    prefer_large_pages(filters.data(), sizes.filters);
    auto evaluate = [&](int64_t panel) { kernels.residual_filters(p, filters.data(), panel); };
    parallel_for(sizes.panels, threads, evaluate);
    // As even as can be, and as many for each thread: a rest of a few tiles would cost as much as a block.
    const int64_t needed = int64_t(round_up(size_t((sizes.tiles + sizes.block - 1) / sizes.block), size_t(threads)));
    const int64_t blocks = std::min(needed, (sizes.tiles + sizes.least - 1) / sizes.least);
    const int workers = int(std::min<int64_t>(threads, blocks));
    const size_t scratch_size = round_up(sizes.scratch, 16);
    Buffer scratch(scratch_size * size_t(workers));
    std::atomic<int64_t> next{0};
    auto job = [&](int64_t worker) {
        for (int64_t k; (k = next.fetch_add(1, std::memory_order_relaxed)) < blocks;) {
            const Range tiles = part(sizes.tiles, blocks, k);
            kernels.residual_forward(p, filters.data(), scratch.data() + size_t(worker) * scratch_size, tiles.begin, tiles.end);
        }
    };
    parallel_for(workers, workers, job);
}

// Block by block: all threads bring its tiles to the points, then add it up, each thread at points of its own. So the sums
// are there only once, and their bits do not depend on the number of threads.
void run_residual_backward(const Residual& p, float* grad_weight, int threads) {
    const Kernels& kernels = kernels_in_use();
    const ResidualSizes sizes = kernels.residual_sizes(p);
    Buffer sums(sizes.filters), inputs(sizes.shared), grads(sizes.shared);
    prefer_large_pages(sums.data(), sizes.filters);
    prefer_large_pages(inputs.data(), sizes.shared), prefer_large_pages(grads.data(), sizes.shared);
    std::memset(sums.data(), 0, sizes.filters * sizeof(float));
    const int64_t blocks = (sizes.tiles + sizes.shared_block - 1) / sizes.shared_block;
    for (int64_t k = 0; k < blocks; ++k) {
        const Range tiles = part(sizes.tiles, blocks, k);
        auto bring = [&](int64_t t) { kernels.residual_tile(p, inputs.data(), grads.data(), tiles.begin, tiles.begin + t); };
        parallel_for(tiles.end - tiles.begin, threads, bring);
        auto add = [&](int64_t point) {
            kernels.residual_point(p, inputs.data(), grads.data(), tiles.end - tiles.begin, sums.data(), point);
        };
        parallel_for(sizes.points, threads, add);
    }
    auto collect = [&](int64_t panel) { kernels.residual_weight(p, sums.data(), grad_weight, panel); };
    parallel_for(sizes.panels, threads, collect);
}

}  // namespace torchcaps
