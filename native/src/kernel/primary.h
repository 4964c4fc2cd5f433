// The head of the primary capsules, a position at a time: pose = relu(map), activation = sigmoid(weight pose + bias).
#pragma once
#include "elementary.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

TC_INLINE void sigmoid_in_place(float* values, int64_t count) {
    int64_t k = 0;
    for (; k + Vec::W <= count; k += Vec::W) storeu(values + k, sigmoid(loadu(values + k)));
    float rest[Vec::W] = {};
    for (int64_t r = k; r < count; ++r) rest[r - k] = values[r];
    storeu(rest, sigmoid(loadu(rest)));
    for (int64_t r = k; r < count; ++r) values[r] = rest[r - k];
}

// Four capsules at a time, as the sum over lanes takes four vectors; past the last capsule the last one is computed again.
static void primary_forward(const Primary& p, int64_t begin, int64_t end) {
    const int64_t capsules = p.capsules, channels = kPoseSize * capsules;
    for (int64_t k = begin; k < end; ++k) {
        const float* map = p.map + k * channels;
        float *pose = p.pose + k * channels, *activation = p.activation + k * capsules;
        for (int64_t c = 0; c < channels; c += Vec::W) storeu(pose + c, max(all(0.0f), loadu(map + c)));   // NaN stays NaN
        for (int64_t j = 0; j < capsules; j += 4) {
            const int64_t count = capsules - j < 4 ? capsules - j : 4;
            const float* weight[4];
            Vec sum[4];
            for (int r = 0; r < 4; ++r) weight[r] = p.weight + (j + (r < count ? r : count - 1)) * channels, sum[r] = all(0.0f);
            for (int64_t c = 0; c < channels; c += Vec::W) {
                const Vec x = loadu(pose + c);
#pragma GCC unroll 4
                for (int r = 0; r < 4; ++r) sum[r] = fma(x, loadu(weight[r] + c), sum[r]);
            }
            float logit[4];
            sum_lanes4(sum[0], sum[1], sum[2], sum[3], logit);
            for (int64_t r = 0; r < count; ++r) activation[j + r] = logit[r] + p.bias[j + r];
        }
    }
    sigmoid_in_place(p.activation + begin * capsules, (end - begin) * capsules);
}

// Gradients of `Rows` positions; those of weight and bias are added to the sums of the part.
template <int Rows>
TC_INLINE void primary_gradient(const Primary& p, int64_t first, const PrimarySums& sums) {
    const int64_t capsules = p.capsules, channels = kPoseSize * capsules;
    for (int64_t k = 0; k < Rows * capsules; ++k) {
        const int64_t at = first * capsules + k;
        const float a = p.activation[at];
        sums.logit[k] = p.grad_activation[at] * a * (1.0f - a);
        sums.bias[k % capsules] += sums.logit[k];
    }
    for (int64_t c = 0; c < channels; c += Vec::W) {
        Vec x[Rows], g[Rows];
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
            x[r] = loadu(p.pose + (first + r) * channels + c);
            g[r] = loadu(p.grad_pose + (first + r) * channels + c);
        }
        for (int64_t j = 0; j < capsules; ++j) {
            const Vec w = loadu(p.weight + j * channels + c);
            Vec sum = load(sums.weight + j * channels + c);
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r) {
                const Vec by_logit = broadcast(sums.logit + r * capsules + j);
                g[r] = fma(by_logit, w, g[r]);
                sum = fma(by_logit, x[r], sum);
            }
            store(sums.weight + j * channels + c, sum);
        }
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) storeu(p.grad_map + (first + r) * channels + c, only(less(all(0.0f), x[r]), g[r]));
    }
}

static void primary_backward(const Primary& p, const PrimarySums& sums, int64_t begin, int64_t end) {
    int64_t k = begin;
    for (; k + kPrimaryRows <= end; k += kPrimaryRows) primary_gradient<kPrimaryRows>(p, k, sums);
    for (; k < end; ++k) primary_gradient<1>(p, k, sums);
}

}}  // namespace
