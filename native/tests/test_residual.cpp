// The residual block's weight gradient: against plain loops in double precision, odd sizes, bad arrays.
#include <cmath>
#include <stdexcept>

#include "case.h"
#include "runtime/residual.h"

namespace torchcaps { namespace testing {
namespace {

struct Convolution {
    int64_t batch, height, width, channels, kernel;
    Floats pose, grad, grad_weight, grad_bias;

    Convolution(int64_t b, int64_t h, int64_t w, int64_t n, int64_t k)
        : batch(b), height(h), width(w), channels(16 * n), kernel(k) {
        std::mt19937 generator(unsigned(b + 10 * h + 100 * w + 1000 * n + 10000 * k));
        std::normal_distribution<float> normal;
        for (Floats* data : {&pose, &grad}) {
            data->resize(size_t(b * h * w * channels));
            for (float& x : *data) x = normal(generator);
        }
    }
    Array maps(Floats& data) { return dense_array(data, {batch, height, width, channels}); }
    ResidualArrays arrays() {
        grad_weight.assign(size_t(channels * kernel * kernel * channels), NAN), grad_bias.assign(size_t(channels), NAN);
        return {maps(pose), maps(grad), dense_array(grad_weight, {channels, kernel, kernel, channels}),
                dense_array(grad_bias, {channels})};
    }
    void run(int threads) {
        const Residual residual = check_residual(arrays());
        run_residual_backward(residual, grad_weight.data(), grad_bias.data(), threads);
    }

    struct Sum {
        double value = 0, size = 0;   // size: that of the terms, without their signs
        void add(double term) { value += term, size += std::fabs(term); }
    };
    // [output][dy][dx][input], and the bias behind it
    std::vector<Sum> wanted() const {
        const size_t c = size_t(channels);
        std::vector<Sum> sums(c * c * size_t(kernel * kernel) + c);
        for (int64_t k = 0; k < batch * height * width; ++k)
            for (size_t o = 0; o < c; ++o) {
                const double g = grad[size_t(k) * c + o];
                sums[sums.size() - c + o].add(g);
                for (int64_t dy = 0; dy < kernel; ++dy)
                    for (int64_t dx = 0; dx < kernel; ++dx) {
                        const int64_t y = k / width % height + dy - kernel / 2, x = k % width + dx - kernel / 2;
                        if (y < 0 || y >= height || x < 0 || x >= width) continue;
                        const float* from = &pose[size_t((k / (width * height) * height + y) * width + x) * c];
                        Sum* to = &sums[((o * size_t(kernel) + size_t(dy)) * size_t(kernel) + size_t(dx)) * c];
                        for (size_t i = 0; i < c; ++i) to[i].add(g * from[i]);
                    }
            }
        return sums;
    }
    // A rounding is at most 6e-8 of a product or of a partial sum, which is at most the sum's size. Some ten of those are
    // allowed: roundings are many, but of either sign, and few partial sums come near the size.
    void check(const std::vector<Sum>& sums) const {
        for (size_t k = 0; k < sums.size(); ++k) {
            const bool weight = k < grad_weight.size();
            const float found = weight ? grad_weight[k] : grad_bias[k - grad_weight.size()];
            CHECK(std::fabs(double(found) - sums[k].value) <= 6e-7 * sums[k].size,
                  "%s of %dx%dx%dx%d, kernel %d (%s), at %zu: %.9g, wanted %.9g", weight ? "weight" : "bias", int(batch), int(height),
                  int(width), int(channels), int(kernel), kernels_in_use().name, k, double(found), sums[k].value);
        }
    }
};

void test_gradient_values() {
    // one position; lower or narrower than the kernel; blocks of many images, of one row, and with a rest; no image at all
    for (Convolution c :
         {Convolution(1, 1, 1, 1, 1), Convolution(1, 1, 1, 2, 5), Convolution(3, 1, 2, 1, 3), Convolution(2, 4, 1, 3, 5),
          Convolution(2, 3, 7, 2, 9), Convolution(3, 5, 4, 1, 1), Convolution(2, 5, 3, 5, 3), Convolution(70, 2, 3, 1, 3),
          Convolution(1, 3, 300, 1, 3), Convolution(2, 20, 23, 1, 5), Convolution(0, 2, 2, 1, 3)}) {
        const auto sums = c.wanted();
        for (const std::string& path : usable_paths()) {
            set_vector_path(path);
            for (int threads : {1, 2, 3, 16}) {
                c.run(threads);
                c.check(sums);
                const Floats weight = c.grad_weight, bias = c.grad_bias;
                c.run(threads);
                CHECK(weight == c.grad_weight && bias == c.grad_bias, "%d threads: other bits", threads);
            }
        }
    }
    set_vector_path("auto");
}

void test_gradient_arrays() {
    Convolution c(2, 3, 4, 2, 3);
    const auto refused = [&](const char* word, auto change) {
        ResidualArrays a = c.arrays();
        change(a);
        try {
            check_residual(a);
        } catch (const std::invalid_argument& error) {
            CHECK(std::string(error.what()).find(word) != std::string::npos, "the message is '%s'", error.what());
            return;
        }
        CHECK(false, "%s was not refused", word);
    };
    check_residual(c.arrays());   // as they are, they are fine
    refused("multiple of 16", [](ResidualArrays& a) { a.pose.shape[3] -= 1; });
    refused("multiple of 16", [](ResidualArrays& a) { a.pose.shape[3] = 0; });
    refused("dimensions", [](ResidualArrays& a) { a.pose.dimensions = 3; });
    refused("dimensions", [](ResidualArrays& a) { a.grad_weight.dimensions = 2; });
    refused("only the batch", [](ResidualArrays& a) { a.pose.shape[2] = 0; });
    refused("odd", [](ResidualArrays& a) { a.grad_weight.shape[1] = 2; });
    refused("grad:", [](ResidualArrays& a) { a.grad.shape[0] += 1; });
    refused("grad_weight", [](ResidualArrays& a) { a.grad_weight.shape[2] = 5; });
    refused("grad_weight", [](ResidualArrays& a) { a.grad_weight.shape[0] = 16; });
    refused("grad_bias", [](ResidualArrays& a) { a.grad_bias.shape[0] = 31; });
    refused("contiguous", [](ResidualArrays& a) { a.pose.stride[2] += 1; });
    refused("memory", [](ResidualArrays& a) { a.grad.data = nullptr; });
    refused("too large", [](ResidualArrays& a) { a.pose.shape[0] = a.pose.shape[1] = int64_t(1) << 40; });
    refused("too large", [](ResidualArrays& a) { a.pose.shape[2] = a.grad.shape[2] = int64_t(1) << 60; });
}

}  // namespace

void test_residual() {
    test_gradient_values();
    test_gradient_arrays();
}

}}  // namespace
