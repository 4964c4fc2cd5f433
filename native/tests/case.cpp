#include "case.h"

#include <cmath>

namespace torchcaps { namespace testing {

Array dense_array(Floats& data, const std::vector<int64_t>& shape) {
    Array a = {};
    a.data = data.data();
    a.dimensions = int64_t(shape.size());
    int64_t stride = 1;
    for (int64_t k = a.dimensions - 1; k >= 0; --k) {
        a.shape[k] = shape[size_t(k)], a.stride[k] = stride;
        stride *= shape[size_t(k)];
    }
    return a;
}

void Case::prepare() {
    const auto size = [&](int64_t n, int64_t pad, int64_t kernel, int64_t stride) { return (n + 2 * pad - kernel) / stride + 1; };
    out_height = size(height, values.padding.first, values.kernel_size.first, values.stride.first);
    out_width = size(width, values.padding.second, values.kernel_size.second, values.stride.second);
    inputs = values.kernel_size.first * values.kernel_size.second * capsules;
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    const auto fill = [&](Floats& data, int64_t count, float mean, float deviation) {
        data.resize(size_t(count));
        for (float& x : data) x = mean + deviation * normal(generator);
    };
    fill(pose, batch * height * width * 16 * capsules, 0.0f, scale);
    activation.resize(size_t(batch * height * width * capsules));
    for (float& x : activation) x = uniform(generator);
    fill(weight, inputs * outputs * 16, 0.0f, 0.5f);
    fill(first, em() ? outputs : outputs * 16, em() ? 0.0f : 1.0f, 0.3f);
    fill(second, outputs, 0.0f, 0.3f);
    fill(grad_out_pose, batch * out_height * out_width * 16 * outputs, 0.0f, 1.0f);
    fill(grad_out_activation, batch * out_height * out_width * outputs, 0.0f, 1.0f);
    fill(scale_out, 16 * outputs, 1.0f, 0.5f);
    fill(shift_out, 16 * outputs, 0.0f, 1.0f);
    fill(offset, inputs * 16, 0.0f, shifted ? 0.5f : 0.0f);
}

std::string Case::name() const {
    char text[400];
    std::snprintf(text, sizeof text,
                  "%s %s (%s) %s %s T=%d h=%g (%g) map %dx%dx%dx%d -> %d, kernel %dx%d stride %dx%d padding %dx%d scale %g budget %d shifted %d seed %u (%s)",
                  values.method.c_str(), values.kernel.c_str(), values.activation_kernel.c_str(), values.distance.c_str(),
                  values.normalize.c_str(), int(values.iterations), values.bandwidth, values.activation_bandwidth, int(batch), int(height), int(width), int(capsules), int(outputs),
                  int(values.kernel_size.first), int(values.kernel_size.second), int(values.stride.first), int(values.stride.second),
                  int(values.padding.first), int(values.padding.second), double(scale), int(values.vote_budget), int(shifted), seed,
                  kernels_in_use().name);
    return text;
}

// Strided: every position has three more channels than asked for, and rows are two positions longer.
Array Case::input(Floats& dense, Floats& wide, int64_t channels) {
    if (!strided) return dense_array(dense, {batch, height, width, channels});
    const int64_t position = channels + 3, row = (width + 2) * position, image = height * row;
    wide.assign(size_t(batch * image), NAN);
    for (int64_t b = 0, k = 0; b < batch; ++b)
        for (int64_t y = 0; y < height; ++y)
            for (int64_t x = 0; x < width; ++x)
                for (int64_t c = 0; c < channels; ++c, ++k) wide[size_t(b * image + y * row + x * position + c)] = dense[size_t(k)];
    Array a = {wide.data(), 4, {batch, height, width, channels}, {image, row, position, 1}};
    return a;
}

ForwardArrays Case::arrays(Outputs& o) {
    o.pose.assign(size_t(batch * out_height * out_width * 16 * outputs), NAN);
    o.activation.assign(size_t(batch * out_height * out_width * outputs), NAN);
    const std::vector<int64_t> first_shape = em() ? std::vector<int64_t>{outputs} : std::vector<int64_t>{outputs, 16};
    return {dense_array(pose, {batch, height, width, 16 * capsules}),
            dense_array(activation, {batch, height, width, capsules}),
            dense_array(weight, {inputs, outputs, 4, 4}),
            dense_array(first, first_shape),
            dense_array(second, {outputs}),
            dense_array(o.pose, {batch, out_height, out_width, 16 * outputs}),
            dense_array(o.activation, {batch, out_height, out_width, outputs})};
}

Outputs Case::forward(int threads, bool affine) {
    Outputs o;
    ForwardArrays a = arrays(o);
    a.pose = input(pose, wide_pose, 16 * capsules);
    a.activation = input(activation, wide_activation, capsules);
    Problem p = check_forward(make_options(values), a);
    if (shifted) check_offset(p, dense_array(offset, {inputs, 16}));
    if (affine) check_affine(p, dense_array(scale_out, {16 * outputs}), dense_array(shift_out, {16 * outputs}));
    run_forward(p, threads);
    return o;
}

Gradients Case::backward(const Outputs& outputs_of_forward, int threads) {
    Outputs o;
    ForwardArrays a = arrays(o);
    o = outputs_of_forward;
    a.out_pose.data = o.pose.data(), a.out_activation.data = o.activation.data();
    a.pose = input(pose, wide_pose, 16 * capsules);
    a.activation = input(activation, wide_activation, capsules);
    Gradients g = {Floats(pose.size(), NAN), Floats(activation.size(), NAN), Floats(weight.size(), NAN),
                   Floats(first.size(), NAN), Floats(second.size(), NAN), Floats(1, NAN)};
    const auto like = [](const Array& of, Floats& data) {
        return dense_array(data, std::vector<int64_t>(of.shape, of.shape + of.dimensions));
    };
    const BackwardArrays b = {like(a.out_pose, grad_out_pose), like(a.out_activation, grad_out_activation), like(a.pose, g.pose),
                              like(a.activation, g.activation), like(a.weight, g.weight), like(a.first, g.first),
                              like(a.second, g.second), dense_array(g.bandwidth, {})};
    Problem p = check_backward(make_options(values), a, b);
    if (shifted) check_offset(p, dense_array(offset, {inputs, 16}));
    run_backward(p, g.weight.data(), g.first.data(), g.second.data(),
                 g.bandwidth.data(), threads);
    return g;
}

bool all_finite(const Floats& values) {
    for (float x : values)
        if (!std::isfinite(x)) return false;
    return true;
}
bool all_finite(const Outputs& o) { return all_finite(o.pose) && all_finite(o.activation); }
bool all_finite(const Gradients& g) {
    return all_finite(g.pose) && all_finite(g.activation) && all_finite(g.weight) && all_finite(g.first) && all_finite(g.second) &&
           all_finite(g.bandwidth);
}

}}  // namespace
