// The options of a call, read from what Python passes. Throws std::invalid_argument, which becomes ValueError.
#pragma once
#include <string>
#include <utility>

#include "../problem.h"

namespace torchcaps {

using Pair = std::pair<int64_t, int64_t>;   // rows, columns

struct OptionValues {
    Pair kernel_size{1, 1}, stride{1, 1}, padding{0, 0};
    std::string method = "frem";
    int64_t iterations = 2;
    std::string kernel = "epanechnikov", activation_kernel = "epanechnikov", distance = "l1", normalize = "softmax";
    double bandwidth = 1.0, activation_bandwidth = 1.0, step = 1.0, final_lambda = 0.01, lambda_decay = 0.95, variance_floor = 1e-8;
    int64_t vote_budget = 1 << 20;
};

Options make_options(const OptionValues& values);

}  // namespace torchcaps
