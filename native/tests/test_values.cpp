// Outputs against the double-precision twin, gradients against its central differences.
#include <cmath>

#include "twin.h"

namespace torchcaps { namespace testing {
namespace {

double largest(const Doubles& values) {
    double result = 0;
    for (double x : values) result = std::max(result, std::fabs(x));
    return result;
}
double largest_difference(const Floats& a, const Doubles& b) {
    double result = 0;
    for (size_t n = 0; n < a.size(); ++n) {
        const double difference = std::fabs(double(a[n]) - b[n]);
        result = std::isfinite(difference) ? std::max(result, difference) : INFINITY;
    }
    return result;
}

// float32 has 1.2e-7; a vote is a sum of 4 products, a distance of 16 terms, a mean of I: errors of a few 1e-6 of the
// largest value. EM divides by variances that shrink with each iteration and amplifies them.
void check_outputs(Case& c, const Outputs& o) {
    const TwinOutputs twin = twin_forward(c, inputs_of(c));
    const double tolerance = c.em() ? 2e-3 : 5e-5;
    const double pose = largest_difference(o.pose, twin.pose), activation = largest_difference(o.activation, twin.activation);
    CHECK(pose <= tolerance * (largest(twin.pose) + 1e-30), "%s: pose off by %g of %g", c.name().c_str(), pose, largest(twin.pose));
    CHECK(activation <= tolerance, "%s: activation off by %g", c.name().c_str(), activation);
}

// The directional derivative along a random direction in one input, by central differences. A kink of l1 or of the clip
// between the two points spoils the difference, not the gradient: so of a few directions and step sizes, most must agree.
void check_gradient(Case& c, const char* what, Doubles TwinInputs::*member, const Floats& gradient, std::mt19937& generator) {
    const TwinInputs at = inputs_of(c);
    std::normal_distribution<double> normal;
    double scale = 0, worst = 0;
    int agree = 0, tries = 5;
    for (int n = 0; n < tries; ++n) {
        Doubles direction(gradient.size());
        double analytic = 0, magnitude = 0;
        for (size_t k = 0; k < direction.size(); ++k) {
            direction[k] = normal(generator);
            analytic += direction[k] * double(gradient[k]);
            magnitude += std::pow(direction[k] * double(gradient[k]), 2);
        }
        magnitude = std::sqrt(magnitude) + 1e-4;
        const double step = 1e-7 * (largest(at.*member) + 1e-3);
        TwinInputs up = at, down = at;
        for (size_t k = 0; k < direction.size(); ++k) (up.*member)[k] += step * direction[k], (down.*member)[k] -= step * direction[k];
        const double numeric = (twin_loss(c, up) - twin_loss(c, down)) / (2 * step), error = std::fabs(numeric - analytic);
        CHECK(std::isfinite(analytic), "%s: gradient of %s is not finite", c.name().c_str(), what);
        // I = 1: the mean is the vote itself, and the gradient by its weight the difference of the two over a_i: rounding.
        agree += error <= (c.em() ? 1e-2 : 2e-3) * magnitude + (c.inputs == 1 ? 5e-4 : 2e-5);
        if (error / magnitude > worst) worst = error / magnitude, scale = magnitude;
    }
    CHECK(agree >= tries - 1, "%s: gradient of %s agrees in %d of %d directions, worst %g of %g", c.name().c_str(), what, agree, tries, worst, scale);
}

// The poses, transformed; the activation is that of the poses as they were found.
void check_affine_outputs(Case& c, const Outputs& plain, const Outputs& o) {
    Doubles expected(plain.pose.size());
    for (size_t n = 0; n < expected.size(); ++n) {
        const size_t channel = n % size_t(16 * c.outputs);
        expected[n] = double(c.scale_out[channel]) * double(plain.pose[n]) + double(c.shift_out[channel]);
    }
    const double off = largest_difference(o.pose, expected);
    CHECK(off <= 5e-7 * (largest(expected) + 1.0), "%s: transformed pose off by %g", c.name().c_str(), off);
    CHECK(o.activation == plain.activation, "%s: the affine changed the activation", c.name().c_str());
}

void check_case(Case& c, int threads, bool gradients, std::mt19937& generator) {
    c.prepare();
    const Outputs o = c.forward(threads);
    check_outputs(c, o);
    check_affine_outputs(c, o, c.forward(threads, true));
    if (!gradients) return;
    const Gradients g = c.backward(o, threads);
    check_gradient(c, "pose", &TwinInputs::pose, g.pose, generator);
    check_gradient(c, "activation", &TwinInputs::activation, g.activation, generator);
    check_gradient(c, "weight", &TwinInputs::weight, g.weight, generator);
    check_gradient(c, "first", &TwinInputs::first, g.first, generator);
    check_gradient(c, "second", &TwinInputs::second, g.second, generator);
    check_gradient(c, "bandwidth", &TwinInputs::bandwidth, g.bandwidth, generator);
}

std::vector<Case> geometries() {
    std::vector<Case> result;
    const auto add = [&](int64_t h, int64_t w, int64_t capsules, int64_t outputs, Pair kernel, Pair stride, Pair padding) {
        Case c;
        c.height = h, c.width = w, c.capsules = capsules, c.outputs = outputs;
        c.values.kernel_size = kernel, c.values.stride = stride, c.values.padding = padding;
        result.push_back(c);
    };
    add(4, 4, 3, 5, {2, 2}, {2, 2}, {0, 0});     // neither I nor J a multiple of the width
    add(2, 2, 4, 8, {2, 2}, {2, 2}, {0, 0});     // both are
    add(1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0});     // I = J = 1
    add(1, 2, 1, 9, {1, 1}, {1, 1}, {0, 0});     // I = 1
    add(3, 3, 2, 1, {2, 2}, {1, 1}, {0, 0});     // J = 1, overlap
    add(3, 4, 2, 3, {3, 3}, {1, 1}, {1, 1});     // padding and overlap
    add(5, 4, 1, 18, {2, 3}, {3, 2}, {1, 0});    // gaps in one direction, overlap in the other
    add(3, 3, 5, 4, {3, 3}, {3, 3}, {0, 0});     // a class layer
    add(2, 2, 1, 2, {2, 2}, {2, 2}, {2, 2});     // fields of nothing but padding
    return result;
}

}  // namespace

void test_values() {
    std::mt19937 generator(7);
    unsigned seed = 0;
    for (const std::string& path : usable_paths()) {
        set_vector_path(path);
        for_each_method([&](const OptionValues& method) {
            for (Case c : geometries()) {
                const OptionValues geometry = c.values;
                c.values = method;
                c.values.kernel_size = geometry.kernel_size, c.values.stride = geometry.stride, c.values.padding = geometry.padding;
                c.seed = ++seed;
                c.batch = 1 + seed % 3;
                c.strided = seed % 2, c.shifted = seed % 3 == 1;
                c.values.iterations = 1 + seed % 4;
                // Distances are about 16 (l1) or 30 (l2): about half of them are inside the clip.
                c.values.bandwidth = method.distance == "l1" ? 20.0 : 40.0;
                const char* kernels[] = {"epanechnikov", "epanechnikov-clipped", "gaussian"};
                c.values.activation_kernel = kernels[seed % 3];
                c.values.activation_bandwidth = 0.8 * c.values.bandwidth;
                c.values.step = 0.7;
                c.values.vote_budget = seed % 3 ? 1 << 20 : 0;
                check_case(c, 1 + int(seed % 4), c.batch == 1 || seed % 5 == 0, generator);
            }
        });
    }
    // Many iterations, a large field, and more output capsules than any special case has.
    for_each_method([&](const OptionValues& method) {
        Case c;
        c.values = method;
        c.values.kernel_size = {4, 4}, c.values.iterations = method.method == "em" ? 3 : 10;
        c.values.bandwidth = c.values.activation_bandwidth = 60.0;
        c.capsules = 2, c.outputs = 37, c.batch = 1, c.seed = ++seed;
        check_case(c, 2, false, generator);
    });
    set_vector_path("auto");
}

}}  // namespace
