// The residual block and its gradients: against plain loops in double precision, odd sizes, bad arrays.
#include <cmath>
#include <stdexcept>

#include "case.h"
#include "runtime/residual.h"

namespace torchcaps { namespace testing {
namespace {

// A sum in double precision, and the size of its terms without their signs.
struct Sum {
    double value = 0, size = 0;
    void add(double term) { value += term, size += std::fabs(term); }
};

// Arrays begin behind one more float, so that none is aligned as vectors are.
const float* start(const Floats& data) { return data.data() + 1; }

struct Convolution {
    int64_t batch, height, width, channels, kernel;
    Floats input, grad, weight, bias, output, grad_weight;

    Convolution(int64_t b, int64_t h, int64_t w, int64_t n, int64_t k)
        : batch(b), height(h), width(w), channels(16 * n), kernel(k) {
        std::mt19937 generator(unsigned(b + 10 * h + 100 * w + 1000 * n + 10000 * k));
        std::normal_distribution<float> normal;
        const auto fill = [&](Floats& data, int64_t size) {
            data.resize(size_t(size) + 1);
            for (float& x : data) x = normal(generator);
        };
        fill(input, b * h * w * channels), fill(grad, b * h * w * channels);
        fill(weight, channels * k * k * channels), fill(bias, channels);
    }
    Array array(Floats& data, const std::vector<int64_t>& shape) {
        Array a = dense_array(data, shape);
        ++a.data;
        return a;
    }
    Array maps(Floats& data) { return array(data, {batch, height, width, channels}); }
    Array weights(Floats& data) { return array(data, {channels, channels, kernel, kernel}); }
    static void clear(Floats& data, size_t size) { data.assign(size, NAN), data[0] = 0; }
    ResidualArrays arrays() {
        clear(output, input.size());
        return {maps(input), weights(weight), array(bias, {channels}), maps(output)};
    }
    ResidualGradientArrays gradient_arrays() {
        clear(grad_weight, weight.size());
        return {maps(input), maps(grad), weights(grad_weight)};
    }
    void run(bool reversed, int threads, bool skip = true) {
        run_residual_forward(check_residual(arrays(), reversed, skip), threads);
    }
    void run_gradient(int threads) {
        const Residual residual = check_residual_gradient(gradient_arrays());
        run_residual_backward(residual, grad_weight.data() + 1, threads);
    }

    // visit(position, neighbour, tap) for all pairs of positions that a tap joins
    template <class Visit>
    void each_pair(Visit visit) const {
        for (int64_t k = 0; k < batch * height * width; ++k)
            for (int64_t dy = 0; dy < kernel; ++dy)
                for (int64_t dx = 0; dx < kernel; ++dx) {
                    const int64_t y = k / width % height + dy - kernel / 2, x = k % width + dx - kernel / 2;
                    if (y < 0 || y >= height || x < 0 || x >= width) continue;
                    visit(size_t(k), size_t((k / (width * height) * height + y) * width + x), size_t(dy * kernel + dx));
                }
    }
    size_t weight_at(size_t o, size_t tap, size_t i) const { return (o * size_t(channels) + i) * size_t(kernel * kernel) + tap; }

    std::vector<Sum> wanted(bool reversed, bool skip = true) const {
        const size_t c = size_t(channels);
        std::vector<Sum> sums(input.size() - 1);
        for (size_t k = 0; k < sums.size(); ++k) {
            if (skip) sums[k].add(start(input)[k]);
            sums[k].add(start(bias)[k % c]);
        }
        each_pair([&](size_t to, size_t from, size_t tap) {
            if (reversed) std::swap(to, from);   // the gradient goes the other way
            for (size_t o = 0; o < c; ++o)
                for (size_t i = 0; i < c; ++i) {
                    const double w = start(weight)[reversed ? weight_at(i, tap, o) : weight_at(o, tap, i)];
                    sums[to * c + o].add(w * start(input)[from * c + i]);
                }
        });
        return sums;
    }
    std::vector<Sum> wanted_gradient() const {
        const size_t c = size_t(channels);
        std::vector<Sum> sums(weight.size() - 1);
        each_pair([&](size_t at, size_t from, size_t tap) {
            for (size_t o = 0; o < c; ++o)
                for (size_t i = 0; i < c; ++i)
                    sums[weight_at(o, tap, i)].add(double(start(grad)[at * c + o]) * start(input)[from * c + i]);
        });
        return sums;
    }
    // A tile's values are rounded at the size of all its terms, not only of those in a sum: so the error is measured by the
    // largest sum's size. A rounding is 6e-8; a hundred are allowed, for what the transforms add up and take away again.
    void check(const Floats& found, const std::vector<Sum>& sums, const char* what) const {
        double size = 0;
        for (const Sum& sum : sums) size = std::max(size, sum.size);
        for (size_t k = 0; k < sums.size(); ++k)
            CHECK(std::fabs(double(start(found)[k]) - sums[k].value) <= 6e-6 * size,
                  "%s of %dx%dx%dx%d, kernel %d (%s), at %zu: %.9g, expected %.9g", what, int(batch), int(height), int(width),
                  int(channels), int(kernel), kernels_in_use().name, k, double(start(found)[k]), sums[k].value);
    }
    // The error relative to the values, both by their mean squares.
    double error(const Floats& found, const std::vector<Sum>& sums) const {
        double errors = 0, values = 0;
        for (size_t k = 0; k < sums.size(); ++k) {
            errors += std::pow(double(start(found)[k]) - sums[k].value, 2);
            values += std::pow(sums[k].value, 2);
        }
        return std::sqrt(errors / values);
    }
};

void test_convolution_values() {
    // one position; lower or narrower than the kernel or a tile; rests of tiles, rows and blocks; blocks that are full; no
    // image at all
    for (Convolution c :
         {Convolution(1, 1, 1, 2, 5), Convolution(3, 1, 2, 1, 3), Convolution(2, 4, 1, 3, 5), Convolution(2, 3, 7, 2, 3),
          Convolution(2, 5, 3, 5, 3), Convolution(70, 2, 3, 1, 3), Convolution(1, 3, 300, 1, 3), Convolution(2, 20, 23, 1, 5),
          Convolution(3, 4, 4, 2, 5), Convolution(192, 1, 1, 1, 3), Convolution(193, 1, 1, 1, 3), Convolution(48, 1, 1, 8, 3),
          Convolution(0, 2, 2, 1, 3)}) {
        const auto forward = c.wanted(false), reversed = c.wanted(true), gradient = c.wanted_gradient();
        const auto alone = c.wanted(false, false);
        for (const std::string& path : usable_paths()) {
            set_vector_path(path);
            c.run(false, 2, false);
            c.check(c.output, alone, "convolution alone");
            Floats bits[3];
            for (int threads : {1, 2, 3, 16}) {
                const Floats* results[] = {&c.output, &c.output, &c.grad_weight};
                for (int k = 0; k < 3; ++k) {
                    k < 2 ? c.run(k == 1, threads) : c.run_gradient(threads);
                    k == 0 ? c.check(c.output, forward, "output")
                           : k == 1 ? c.check(c.output, reversed, "input gradient") : c.check(c.grad_weight, gradient, "weight gradient");
                    if (threads == 1) bits[k] = *results[k];
                    CHECK(bits[k] == *results[k], "%d threads: other bits", threads);
                }
            }
        }
    }
    set_vector_path("auto");
}

void test_convolution_accuracy() {
    for (int64_t kernel : {3, 5}) {
        Convolution c(1, 16, 12, 4, kernel);
        const auto sums = c.wanted(false);
        for (const std::string& path : usable_paths()) {
            set_vector_path(path);
            c.run(false, 1);
            const double error = c.error(c.output, sums);   // with points 1 and 2 about twice as much
            CHECK(error < 1.3e-6, "kernel %d (%s): %.3g", int(kernel), path.c_str(), error);
        }
    }
    set_vector_path("auto");
}

template <class Arrays, class Check, class Change>
void refused(Arrays arrays, Check check, const char* word, Change change) {
    change(arrays);
    try {
        check(arrays);
    } catch (const std::invalid_argument& error) {
        CHECK(std::string(error.what()).find(word) != std::string::npos, "the message is '%s'", error.what());
        return;
    }
    CHECK(false, "%s was not refused", word);
}

void test_convolution_arrays() {
    Convolution c(2, 3, 4, 2, 3);
    const auto forward = [&](const char* word, auto change) {
        refused(c.arrays(), [](const ResidualArrays& a) { check_residual(a, false, true); }, word, change);
    };
    const auto gradient = [&](const char* word, auto change) {
        refused(c.gradient_arrays(), check_residual_gradient, word, change);
    };
    check_residual(c.arrays(), true, true), check_residual_gradient(c.gradient_arrays());   // as they are, they are fine
    forward("multiple of 16", [](auto& a) { a.input.shape[3] -= 1; });
    forward("multiple of 16", [](auto& a) { a.input.shape[3] = 0; });
    forward("dimensions", [](auto& a) { a.input.dimensions = 3; });
    forward("dimensions", [](auto& a) { a.weight.dimensions = 2; });
    forward("only the batch", [](auto& a) { a.input.shape[2] = 0; });
    forward("expected 3 or 5", [](auto& a) { a.weight.shape[2] = 7; });
    forward("weight", [](auto& a) { a.weight.shape[3] = 5; });
    forward("weight", [](auto& a) { a.weight.shape[0] = 16; });
    forward("bias", [](auto& a) { a.bias.shape[0] = 31; });
    forward("output", [](auto& a) { a.output.shape[0] += 1; });
    forward("contiguous", [](auto& a) { a.input.stride[2] += 1; });
    forward("memory", [](auto& a) { a.output.data = nullptr; });
    forward("too large", [](auto& a) { a.input.shape[0] = a.input.shape[1] = int64_t(1) << 40; });
    forward("too large", [](auto& a) { a.input.shape[3] = a.weight.shape[0] = a.weight.shape[1] = int64_t(1) << 60; });
    gradient("multiple of 16", [](auto& a) { a.pose.shape[3] -= 1; });
    gradient("expected 3 or 5", [](auto& a) { a.grad_weight.shape[2] = 1; });
    gradient("grad:", [](auto& a) { a.grad.shape[0] += 1; });
    gradient("grad_weight", [](auto& a) { a.grad_weight.shape[0] = 16; });
    gradient("memory", [](auto& a) { a.grad.data = nullptr; });
}

}  // namespace

void test_residual() {
    test_convolution_values();
    test_convolution_accuracy();
    test_convolution_arrays();
}

}}  // namespace
