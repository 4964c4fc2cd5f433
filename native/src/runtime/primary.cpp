#include "primary.h"

#include <cstring>

#include "dispatch.h"
#include "memory.h"
#include "thread_pool.h"

namespace torchcaps {
namespace {

// Sizes from the weight [n, 16 n, 1, 1] and a map; all arrays are dense.
Primary sizes_of(const Array& weight, const Array& map) {
    Primary p = {};
    check_dimensions(weight, 4, "weight");
    check_dimensions(map, 4, "pose");
    p.capsules = weight.shape[0];
    if (p.capsules < 1) refuse("weight: got " + std::to_string(p.capsules) + " capsules, expected at least 1");
    p.positions = product(product(map.shape[0], map.shape[1]), map.shape[2]);
    check_dense(weight, {p.capsules, product(kPoseSize, p.capsules), 1, 1}, "weight");
    p.weight = weight.data;
    return p;
}
Shape like(const Array& map, int64_t channels) { return {map.shape[0], map.shape[1], map.shape[2], channels}; }

}  // namespace

Primary check_primary(const PrimaryArrays& a) {
    Primary p = sizes_of(a.weight, a.map);
    const int64_t channels = kPoseSize * p.capsules;
    check_dense(a.map, like(a.map, channels), "map");
    check_dense(a.bias, {p.capsules}, "bias");
    check_dense(a.pose, like(a.map, channels), "pose");
    check_dense(a.activation, like(a.map, p.capsules), "activation");
    p.map = a.map.data, p.bias = a.bias.data, p.pose = a.pose.data, p.activation = a.activation.data;
    return p;
}

Primary check_primary_gradient(const PrimaryGradientArrays& a) {
    Primary p = sizes_of(a.weight, a.pose);
    const int64_t channels = kPoseSize * p.capsules;
    check_dense(a.pose, like(a.pose, channels), "pose");
    check_dense(a.activation, like(a.pose, p.capsules), "activation");
    check_dense(a.grad_pose, like(a.pose, channels), "grad_pose");
    check_dense(a.grad_activation, like(a.pose, p.capsules), "grad_activation");
    check_dense(a.grad_map, like(a.pose, channels), "grad_map");
    check_dense(a.grad_weight, {p.capsules, channels, 1, 1}, "grad_weight");
    check_dense(a.grad_bias, {p.capsules}, "grad_bias");
    p.pose = a.pose.data, p.activation = a.activation.data;
    p.grad_pose = a.grad_pose.data, p.grad_activation = a.grad_activation.data, p.grad_map = a.grad_map.data;
    return p;
}

void run_primary_forward(const Primary& p, int threads) {
    const Kernels& kernels = kernels_in_use();
    prefer_large_pages(p.pose, size_t(p.positions * p.capsules) * kPoseSize);
    const int64_t parts = std::min<int64_t>(p.positions, int64_t(threads) * kPartsOfAThread);
    auto job = [&](int64_t k) {
        const Range range = part(p.positions, parts, k);
        kernels.primary_forward(p, range.begin, range.end);
    };
    parallel_for(parts, threads, job);
}

void run_primary_backward(const Primary& p, float* grad_weight, float* grad_bias, int threads) {
    const Kernels& kernels = kernels_in_use();
    prefer_large_pages(p.grad_map, size_t(p.positions * p.capsules) * kPoseSize);
    const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(p.positions, int64_t(threads) * kPartsOfAThread));
    const size_t weights = size_t(p.capsules * p.capsules) * kPoseSize, biases = size_t(p.capsules);
    const size_t size = round_up(weights + biases * (1 + kPrimaryRows), 16);
    Buffer sums(size * size_t(parts));
    auto job = [&](int64_t k) {
        float* own = sums.data() + size_t(k) * size;
        std::memset(own, 0, size * sizeof(float));
        const Range range = part(p.positions, parts, k);
        kernels.primary_backward(p, {own, own + weights, own + weights + biases}, range.begin, range.end);
    };
    parallel_for(parts, threads, job);
    add_parts(sums.data(), size, parts, threads);
    std::memcpy(grad_weight, sums.data(), weights * sizeof(float));
    std::memcpy(grad_bias, sums.data() + weights, biases * sizeof(float));
}

}  // namespace torchcaps
