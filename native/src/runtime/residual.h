// The residual block's weight gradient: checks, partition among threads, reduction.
#pragma once
#include "checks.h"

namespace torchcaps {

struct ResidualArrays {
    Array pose, grad;                  // [batch, height, width, channels]
    Array grad_weight, grad_bias;      // [channels, kernel, kernel, channels]; [channels]
};

// Throws std::invalid_argument, as check_forward does.
Residual check_residual(const ResidualArrays& arrays);

void run_residual_backward(const Residual& residual, float* grad_weight, float* grad_bias, int threads);

}  // namespace torchcaps
