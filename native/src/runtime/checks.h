// From arrays as they arrive to a Problem whose every address is known to lie inside them.
#pragma once
#include <string>
#include <vector>

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
    Array grad_pose, grad_activation, grad_weight, grad_first, grad_second, grad_bandwidth;
};

// Throw std::invalid_argument with the name of the array, what came and what was wanted.
Problem check_forward(const Options& options, const ForwardArrays& arrays);
Problem check_backward(const Options& options, const ForwardArrays& arrays, const BackwardArrays& gradients);
// What is added to the votes of each input capsule, [inputs][16].
void check_offset(Problem& problem, const Array& offset);
// For inference: the problem's poses are written as scale pose + shift, [16 outputs] each.
void check_affine(Problem& problem, const Array& scale, const Array& shift);
void check_threads(int64_t threads);

using Shape = std::vector<int64_t>;
[[noreturn]] void refuse(const std::string& message);
int64_t product(int64_t a, int64_t b);   // refuses an overflow
void check_dimensions(const Array& array, int64_t wanted, const char* name);
void check_dense(const Array& array, const Shape& wanted, const char* name);

}  // namespace torchcaps
