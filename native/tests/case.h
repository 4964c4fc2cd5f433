// A routing problem with random data, and ways to run it.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "runtime/checks.h"
#include "runtime/dispatch.h"
#include "runtime/engine.h"
#include "runtime/options.h"

namespace torchcaps { namespace testing {

using Floats = std::vector<float>;

#define CHECK(condition, ...)                                                                  \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            std::fprintf(stderr, "%s:%d: %s failed: ", __FILE__, __LINE__, #condition);        \
            std::fprintf(stderr, __VA_ARGS__);                                                 \
            std::fprintf(stderr, "\n");                                                        \
            std::exit(1);                                                                      \
        }                                                                                      \
    } while (0)

struct Outputs {
    Floats pose, activation;
};
struct Gradients {
    Floats pose, activation, weight, first, second, bandwidth;
};

struct Case {
    OptionValues values;
    int64_t batch = 2, height = 4, width = 4, capsules = 3, outputs = 5;
    float scale = 1.0f;                    // of the poses
    bool strided = false;                  // the inputs are views of larger maps
    bool shifted = false;                  // the votes, by offset
    unsigned seed = 1;

    // filled by prepare()
    int64_t out_height, out_width, inputs;
    Floats pose, activation, weight, first, second;          // dense
    Floats grad_out_pose, grad_out_activation;
    Floats scale_out, shift_out;                             // [16 outputs]
    Floats offset;                                           // [inputs][16]; zero unless shifted

    void prepare();
    bool em() const { return values.method == "em"; }
    std::string name() const;
    Outputs forward(int threads = 1, bool affine = false);   // affine: of the poses, with scale_out and shift_out
    Gradients backward(const Outputs& outputs, int threads = 1);
    ForwardArrays arrays(Outputs& outputs);                  // dense ones

private:
    Floats wide_pose, wide_activation;
    Array input(Floats& dense, Floats& wide, int64_t channels);
};

Array dense_array(Floats& data, const std::vector<int64_t>& shape);
bool all_finite(const Floats& values);
bool all_finite(const Outputs& o);
bool all_finite(const Gradients& g);

// Calls fn for every combination of method, kernel, distance and normalisation.
template <class Fn>
void for_each_method(Fn fn) {
    for (const char* method : {"frms", "frem"})
        for (const char* kernel : {"epanechnikov-unclipped", "epanechnikov-clipped", "gaussian"})
            for (const char* distance : {"l1", "l2"})
                for (const char* normalize : {"softmax", "sum"}) {
                    OptionValues v;
                    v.method = method, v.kernel = v.activation_kernel = kernel, v.distance = distance, v.normalize = normalize;
                    fn(v);
                }
    OptionValues em;
    em.method = "em";
    fn(em);
}

void test_values();
void test_limits();
void test_runtime();
void test_primary();
void test_residual();

}}  // namespace
