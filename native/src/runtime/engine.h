// Runs a checked problem: scratch, partition among threads, and the reduction of the parameters' gradients.
#pragma once
#include "../problem.h"

namespace torchcaps {

void run_forward(const Problem& problem, int threads);
// Writes the gradients of poses and activations into the problem's maps, those of the parameters here.
void run_backward(const Problem& problem, float* grad_weight, float* grad_first, float* grad_second, float* grad_bandwidth,
                  int threads);

}  // namespace torchcaps
