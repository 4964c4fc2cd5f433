// From arrays as they arrive to a Problem whose every address is known to lie inside them.
#pragma once
#include "../problem.h"

namespace torchcaps {

struct Array {
    float* data;
    int64_t dimensions;
    int64_t shape[4], stride[4];   // in elements
};

struct ForwardArrays {
    Array pose, activation, weight, first, second, out_pose, out_activation;
};
struct BackwardArrays {
    Array grad_out_pose, grad_out_activation;
    Array grad_pose, grad_activation, grad_weight, grad_first, grad_second;
};

// Throw std::invalid_argument with the name of the array, what came and what was wanted.
Problem check_forward(const Options& options, const ForwardArrays& arrays);
Problem check_backward(const Options& options, const ForwardArrays& arrays, const BackwardArrays& gradients);
void check_threads(int64_t threads);

}  // namespace torchcaps
