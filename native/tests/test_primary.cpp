// The head of the primary capsules: values and gradients against plain loops in double precision, odd sizes, bad arrays.
#include <cmath>
#include <stdexcept>

#include "case.h"
#include "runtime/primary.h"

namespace torchcaps { namespace testing {
namespace {

struct Head {
    int64_t batch, height, width, n;
    Floats map, weight, bias, grad_pose, grad_activation;
    Floats pose, activation, grad_map, grad_weight, grad_bias;

    Head(int64_t b, int64_t h, int64_t w, int64_t capsules) : batch(b), height(h), width(w), n(capsules) {
        std::mt19937 generator(unsigned(b + 10 * h + 100 * w + 1000 * n));
        std::normal_distribution<float> normal;
        const size_t positions = size_t(b * h * w), c = size_t(n);
        const auto fill = [&](Floats& data, size_t count) {
            data.resize(count);
            for (float& x : data) x = normal(generator);
        };
        fill(map, positions * 16 * c), fill(weight, c * 16 * c), fill(bias, c);
        fill(grad_pose, map.size()), fill(grad_activation, positions * c);
    }
    Array maps(Floats& data, int64_t channels) { return dense_array(data, {batch, height, width, channels}); }
    Array weights(Floats& data) { return dense_array(data, {n, 16 * n, 1, 1}); }
    PrimaryArrays arrays() {
        pose.assign(map.size(), NAN), activation.assign(grad_activation.size(), NAN);
        return {maps(map, 16 * n), weights(weight), dense_array(bias, {n}), maps(pose, 16 * n), maps(activation, n)};
    }
    void run(int threads) {
        run_primary_forward(check_primary(arrays()), threads);
        grad_map.assign(map.size(), NAN), grad_weight.assign(weight.size(), NAN), grad_bias.assign(bias.size(), NAN);
        run_primary_backward(check_primary_gradient({maps(pose, 16 * n), maps(activation, n), weights(weight),
                                                     maps(grad_pose, 16 * n), maps(grad_activation, n), maps(grad_map, 16 * n),
                                                     weights(grad_weight), dense_array(grad_bias, {n})}),
                             grad_weight.data(), grad_bias.data(), threads);
    }
    void check() const {
        const size_t c = size_t(n), channels = 16 * c;
        std::vector<double> by_weight(weight.size()), by_bias(c);
        for (size_t k = 0; k < activation.size() / c; ++k) {
            const float *x = &map[k * channels], *g = &grad_pose[k * channels];
            std::vector<double> by_pose(g, g + channels);
            for (size_t j = 0; j < c; ++j) {
                double logit = bias[j];
                for (size_t d = 0; d < channels; ++d) logit += double(weight[j * channels + d]) * std::max(x[d], 0.0f);
                const double a = 1 / (1 + std::exp(-logit)), by_logit = grad_activation[k * c + j] * a * (1 - a);
                near(activation[k * c + j], a, "activation");
                by_bias[j] += by_logit;
                for (size_t d = 0; d < channels; ++d) {
                    by_pose[d] += by_logit * weight[j * channels + d];
                    by_weight[j * channels + d] += by_logit * std::max(x[d], 0.0f);
                }
            }
            for (size_t d = 0; d < channels; ++d) {
                near(pose[k * channels + d], std::max(x[d], 0.0f), "pose");
                near(grad_map[k * channels + d], x[d] > 0 ? by_pose[d] : 0, "gradient of the map");
            }
        }
        for (size_t k = 0; k < weight.size(); ++k) near(grad_weight[k], by_weight[k], "gradient of the weight");
        for (size_t k = 0; k < c; ++k) near(grad_bias[k], by_bias[k], "gradient of the bias");
    }
    void near(float found, double wanted, const char* what) const {
        CHECK(std::fabs(double(found) - wanted) <= 2e-5 * (1 + std::fabs(wanted)), "%s of %dx%dx%dx%d (%s): %g, expected %g", what,
              int(batch), int(height), int(width), int(n), kernels_in_use().name, double(found), wanted);
    }
};

void test_head_values() {
    for (const std::string& path : usable_paths()) {
        set_vector_path(path);
        for (int64_t n : {1, 2, 4, 5, 9})
            for (Head h : {Head(1, 1, 1, n), Head(3, 1, 2, n), Head(2, 3, 5, n), Head(0, 2, 2, n)})
                for (int threads : {1, 2, 3, 16}) {
                    h.run(threads);
                    h.check();
                    const Floats weight = h.grad_weight, map = h.grad_map;
                    h.run(threads);
                    CHECK(weight == h.grad_weight && map == h.grad_map, "%d threads: other bits", threads);
                }
    }
    set_vector_path("auto");
}

void test_head_arrays() {
    Head h(2, 3, 3, 2);
    const auto refused = [&](const char* word, auto change) {
        PrimaryArrays a = h.arrays();
        change(a);
        try {
            check_primary(a);
        } catch (const std::invalid_argument& error) {
            CHECK(std::string(error.what()).find(word) != std::string::npos, "the message is '%s'", error.what());
            return;
        }
        CHECK(false, "%s was not refused", word);
    };
    check_primary(h.arrays());   // as they are, they are fine
    refused("map", [](PrimaryArrays& a) { a.map.shape[3] -= 1; });
    refused("weight", [](PrimaryArrays& a) { a.weight.shape[1] -= 1; });
    refused("dimensions", [](PrimaryArrays& a) { a.weight.dimensions = 2; });
    refused("at least 1", [](PrimaryArrays& a) { a.weight.shape[0] = 0; });
    refused("bias", [](PrimaryArrays& a) { a.bias.shape[0] = 3; });
    refused("contiguous", [](PrimaryArrays& a) { a.pose.stride[2] += 1; });
    refused("activation", [](PrimaryArrays& a) { a.activation.shape[0] += 1; });
    refused("memory", [](PrimaryArrays& a) { a.map.data = nullptr; });
    refused("too large", [](PrimaryArrays& a) { a.map.shape[0] = a.map.shape[1] = int64_t(1) << 40; });
}

}  // namespace

void test_primary() {
    test_head_values();
    test_head_arrays();
}

}}  // namespace
