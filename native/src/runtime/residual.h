// The residual block: checks, partition among threads.
#pragma once
#include "checks.h"

namespace torchcaps {

struct ResidualArrays {
    Array input, weight, bias, output;   // [batch, height, width, channels]; [channels, kernel, kernel, channels]; [channels]
};
struct ResidualGradientArrays {
    Array pose, grad, grad_weight;
};

// Throw std::invalid_argument, as check_forward does.
Residual check_residual(const ResidualArrays& arrays, bool reversed, bool skip);
Residual check_residual_gradient(const ResidualGradientArrays& arrays);

void run_residual_forward(const Residual& residual, int threads);
void run_residual_backward(const Residual& residual, float* grad_weight, int threads);

}  // namespace torchcaps
