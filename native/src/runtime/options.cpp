#include "options.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace torchcaps {
namespace {

constexpr int64_t kLargestSize = std::numeric_limits<int32_t>::max();   // so that sums of a few sizes cannot overflow

[[noreturn]] void refuse(const std::string& name, const std::string& got, const std::string& wanted) {
    throw std::invalid_argument(name + ": got " + got + ", expected " + wanted);
}

void read_pair(int64_t* to, const Pair& from, const char* name, int64_t least) {
    to[0] = from.first, to[1] = from.second;
    for (int k = 0; k < 2; ++k)
        if (to[k] < least || to[k] > kLargestSize)
            refuse(name, "(" + std::to_string(to[0]) + ", " + std::to_string(to[1]) + ")",
                   "two numbers from " + std::to_string(least) + " to " + std::to_string(kLargestSize));
}

float read_number(double value, const char* name, bool positive) {
    const float result = float(value);
    // The smallest normal number: its reciprocal is still finite.
    if (!std::isfinite(result) || (positive && result < std::numeric_limits<float>::min()))
        refuse(name, std::to_string(value), positive ? "a positive float32 number" : "a finite float32 number");
    return result;
}

// The plain name means clipped where a sum normalises, as everywhere in torchcaps.
Kernel read_kernel(const std::string& value, const char* name, bool clipped) {
    if (value == "epanechnikov") return clipped ? Kernel::epanechnikov_clipped : Kernel::epanechnikov;
    if (value == "epanechnikov-unclipped") return Kernel::epanechnikov;
    if (value == "epanechnikov-clipped") return Kernel::epanechnikov_clipped;
    if (value == "gaussian") return Kernel::gaussian;
    refuse(name, "'" + value + "'", "'epanechnikov', 'epanechnikov-clipped', 'epanechnikov-unclipped' or 'gaussian'");
}

}  // namespace

Options make_options(const OptionValues& v) {
    Options o = {};
    read_pair(o.kernel_size, v.kernel_size, "kernel_size", 1);
    read_pair(o.stride, v.stride, "stride", 1);
    read_pair(o.padding, v.padding, "padding", 0);

    if (v.method == "frms") o.method = Method::frms;
    else if (v.method == "frem") o.method = Method::frem;
    else if (v.method == "em") o.method = Method::em;
    else refuse("method", "'" + v.method + "'", "'frms', 'frem' or 'em'");

    if (v.normalize == "softmax") o.normalize = Normalize::softmax;
    else if (v.normalize == "sum") o.normalize = Normalize::sum;
    else refuse("normalize", "'" + v.normalize + "'", "'softmax' or 'sum'");

    o.kernel = read_kernel(v.kernel, "kernel", o.normalize == Normalize::sum);
    o.activation_kernel = read_kernel(v.activation_kernel, "activation_kernel", false);

    if (v.distance == "l1") o.distance = Distance::l1;
    else if (v.distance == "l2") o.distance = Distance::l2;
    else refuse("distance", "'" + v.distance + "'", "'l1' or 'l2'");

    if (v.iterations < 1 || v.iterations > kLargestSize)
        refuse("iterations", std::to_string(v.iterations), "at least 1");
    o.iterations = v.iterations;
    if (v.vote_budget < 0) refuse("vote_budget", std::to_string(v.vote_budget), "a number of bytes, at least 0");
    o.vote_budget = v.vote_budget;

    o.bandwidth = read_number(v.bandwidth, "bandwidth", true);
    o.activation_bandwidth = read_number(v.activation_bandwidth, "activation_bandwidth", true);
    o.step = read_number(v.step, "step", false);
    o.final_lambda = read_number(v.final_lambda, "final_lambda", false);
    o.lambda_decay = read_number(v.lambda_decay, "lambda_decay", false);
    o.variance_floor = read_number(v.variance_floor, "variance_floor", true);
    return o;
}

}  // namespace torchcaps
