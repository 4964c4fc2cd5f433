#include "engine.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "dispatch.h"
#include "memory.h"
#include "thread_pool.h"

namespace torchcaps {
namespace {

constexpr size_t kGradientBudget = size_t(8) << 20;   // bytes

// Sizes of the parameters in the kernels' packed layout, in floats, each a whole number of cache lines.
struct PackedSizes {
    size_t weight, first, second, bandwidth;
    PackedSizes(const Problem& p, const Kernels& k) {
        const size_t rows = round_up(size_t(p.inputs), size_t(k.row_block)), lanes = round_up(size_t(p.outputs), size_t(k.width));
        weight = round_up(rows * lanes * kPoseSize, 16);
        first = round_up(lanes * kPoseSize, 16);
        second = round_up(lanes, 16);
        bandwidth = round_up(size_t(k.width), 16);
    }
    size_t total() const { return weight + first + second + bandwidth; }
    ParameterGradients split(float* data) const {
        float *to_first = data + weight, *to_second = to_first + first;
        return {data, to_first, to_second, to_second + second};
    }
};

bool fields_overlap(const Problem& p) {
    const Options& o = p.options;
    return (o.kernel_size[0] > o.stride[0] && p.out_height > 1) || (o.kernel_size[1] > o.stride[1] && p.out_width > 1);
}

class PackedParameters {
public:
    PackedParameters(const Problem& p, const Kernels& k) : sizes(p, k), memory(sizes.total()), parameters(sizes.split(memory.data())) {
        std::memset(memory.data(), 0, sizes.total() * sizeof(float));
        k.pack(p, parameters.weight, parameters.first, parameters.second);
    }
    PackedSizes sizes;

private:
    Buffer memory;

public:
    ParameterGradients parameters;
};

}  // namespace

void run_forward(const Problem& p, int threads) {
    const Kernels& kernels = kernels_in_use();
    const int64_t fields = p.batch * p.out_height * p.out_width;
    if (fields == 0) return;
    const PackedParameters packed(p, kernels);
    prefer_large_pages(p.out_pose.data, size_t(fields * p.outputs) * kPoseSize);
    // Fields do not depend on each other, so the parts may be small and taken as threads come free.
    threads = int(std::min<int64_t>(threads, fields));
    const int64_t parts = std::min<int64_t>(fields, int64_t(threads) * kPartsOfAThread);
    const size_t scratch_size = round_up(kernels.scratch_size(p, false), 16);
    Buffer scratch(scratch_size * size_t(threads));
    std::atomic<int64_t> next{0};
    auto job = [&](int64_t worker) {
        for (int64_t k; (k = next.fetch_add(1, std::memory_order_relaxed)) < parts;) {
            const Range range = part(fields, parts, k);
            kernels.forward(p, packed.parameters, scratch.data() + size_t(worker) * scratch_size, range.begin, range.end);
        }
    };
    parallel_for(threads, threads, job);
}

void run_backward(const Problem& p, float* grad_weight, float* grad_first, float* grad_second, float* grad_bandwidth,
                  int threads) {
    const Kernels& kernels = kernels_in_use();
    const int64_t per_image = p.out_height * p.out_width;
    // Where fields overlap, one image's input gradients are added up by one thread only, in a fixed order.
    const int64_t unit = fields_overlap(p) ? per_image : 1, units = p.batch * per_image / unit;

    const PackedParameters packed(p, kernels);
    prefer_large_pages(p.grad_pose.data, size_t(p.batch * p.height * p.width * p.capsules) * kPoseSize);
    const size_t scratch_size = round_up(kernels.scratch_size(p, true), 16), gradient_size = packed.sizes.total();
    // Each part adds up parameter gradients of its own; where the parameters are many, one part a thread must do.
    const bool small = gradient_size * sizeof(float) * size_t(threads) * kPartsOfAThread <= kGradientBudget;
    const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(int64_t(threads) * (small ? kPartsOfAThread : 1), units));
    threads = int(std::min<int64_t>(threads, parts));
    Buffer scratch(scratch_size * size_t(threads)), gradients(gradient_size * size_t(parts));

    if (!p.every_position_once) {
        const size_t positions = size_t(p.batch * p.height * p.width * p.capsules) * sizeof(float);
        if (positions > 0) {
            std::memset(p.grad_pose.data, 0, positions * kPoseSize);
            std::memset(p.grad_activation.data, 0, positions);
        }
    }
    std::atomic<int64_t> next{0};
    auto job = [&](int64_t worker) {
        for (int64_t k; (k = next.fetch_add(1, std::memory_order_relaxed)) < parts;) {
            float* own = gradients.data() + size_t(k) * gradient_size;
            std::memset(own, 0, gradient_size * sizeof(float));
            const Range range = part(units, parts, k);
            kernels.backward(p, packed.parameters, packed.sizes.split(own), scratch.data() + size_t(worker) * scratch_size,
                             range.begin * unit, range.end * unit);
        }
    };
    parallel_for(threads, threads, job);

    add_parts(gradients.data(), gradient_size, parts, threads);
    kernels.unpack(p, packed.sizes.split(gradients.data()), grad_weight, grad_first, grad_second, grad_bandwidth);
}

}  // namespace torchcaps
