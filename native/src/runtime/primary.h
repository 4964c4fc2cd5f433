// The head of the primary capsules: checks, partition among threads, reduction of the parameters' gradients.
#pragma once
#include "checks.h"

namespace torchcaps {

struct PrimaryArrays {
    Array map, weight, bias, pose, activation;   // [batch, height, width, channels]; [n, 16 n, 1, 1]; [n]
};
struct PrimaryGradientArrays {
    Array pose, activation, weight, grad_pose, grad_activation, grad_map, grad_weight, grad_bias;
};

// Throw std::invalid_argument, as check_forward does.
Primary check_primary(const PrimaryArrays& arrays);
Primary check_primary_gradient(const PrimaryGradientArrays& arrays);

void run_primary_forward(const Primary& primary, int threads);
void run_primary_backward(const Primary& primary, float* grad_weight, float* grad_bias, int threads);

}  // namespace torchcaps
