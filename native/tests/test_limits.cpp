// Extreme values stay finite; bad arguments are refused before memory is touched.
#include <stdexcept>

#include "case.h"

namespace torchcaps { namespace testing {
namespace {

void check_finite(Case& c) {
    for (const std::string& path : usable_paths()) {
        set_vector_path(path);
        const Outputs o = c.forward(2);
        CHECK(all_finite(o), "%s: output", c.name().c_str());
        CHECK(all_finite(c.backward(o, 2)), "%s: gradient", c.name().c_str());
    }
}

void test_extreme_values() {
    unsigned seed = 100;
    for_each_method([&](const OptionValues& method) {
        for (float scale : {1e-6f, 1e-3f, 1.0f, 1e3f, 1e6f})
            for (int64_t iterations : {1, 2, 3, 10}) {
                Case c;
                c.values = method;
                c.values.iterations = iterations;
                c.values.kernel_size = c.values.stride = {2, 2};
                c.batch = 1, c.scale = scale, c.seed = ++seed;
                c.prepare();
                check_finite(c);
                for (size_t n = 0; n < c.activation.size(); n += 2) c.activation[n] = 0.0f;   // some switched off
                check_finite(c);
                if (scale != 1.0f) continue;
                for (float& x : c.activation) x = 0.0f;
                check_finite(c);
                for (float& x : c.pose) x = 0.0f;
                check_finite(c);
                for (float& x : c.activation) x = 0.5f;
                check_finite(c);
                if (iterations > 2) continue;   // identical votes: above 2 iterations the true gradient may leave float32
                c.prepare();
                for (size_t n = 0; n < c.pose.size(); ++n) c.pose[n] = c.pose[n % 16];
                for (size_t n = 0; n < c.weight.size(); ++n) c.weight[n] = c.weight[n % 16];
                check_finite(c);
            }
    });
    set_vector_path("auto");
}

// A capsule that is switched off does not move the poses (with 1 or 2 iterations of FREM, and any of FRMS).
void test_switched_off() {
    for (const char* method : {"frem", "frms"}) {
        Case c;
        c.values.method = method;
        c.values.kernel_size = c.values.stride = {2, 2};
        c.prepare();
        for (size_t n = 0; n < c.activation.size(); n += 3) c.activation[n] = 0.0f;
        const Outputs before = c.forward();
        for (size_t n = 0; n < c.activation.size(); n += 3)
            for (size_t d = 0; d < 16; ++d) c.pose[n * 16 + d] += 3.0f;
        CHECK(before.pose == c.forward().pose, "%s", c.name().c_str());
    }
}

// Votes that equal their centre have no l1 slope: all poses 0, so nothing of the activations reaches their gradient.
void test_ties() {
    for (const char* method : {"frem", "frms"})
        for (const std::string& path : usable_paths()) {
            set_vector_path(path);
            Case c;
            c.values.method = method, c.values.distance = "l1";
            c.values.kernel_size = c.values.stride = {2, 2};
            c.prepare();
            for (float& x : c.pose) x = 0.0f;
            const Outputs o = c.forward();
            const Floats before = c.backward(o).pose;
            for (float& x : c.grad_out_activation) x = 0.0f;
            CHECK(before == c.backward(o).pose, "%s", c.name().c_str());
        }
    set_vector_path("auto");
}

template <class Fn>
void check_refused(const char* what, const char* word, Fn fn) {
    try {
        fn();
    } catch (const std::invalid_argument& error) {
        CHECK(std::string(error.what()).find(word) != std::string::npos, "%s: the message is '%s'", what, error.what());
        return;
    }
    CHECK(false, "%s was not refused", what);
}

void test_bad_options() {
    const auto option = [](auto change) {
        return [change] {
            OptionValues v;
            change(v);
            make_options(v);
        };
    };
    check_refused("method", "frobnicate", option([](OptionValues& v) { v.method = "frobnicate"; }));
    check_refused("kernel", "kernel", option([](OptionValues& v) { v.kernel = ""; }));
    check_refused("activation_kernel", "activation_kernel", option([](OptionValues& v) { v.activation_kernel = "box"; }));
    check_refused("activation_bandwidth", "activation_bandwidth", option([](OptionValues& v) { v.activation_bandwidth = 0.0; }));
    check_refused("distance", "l3", option([](OptionValues& v) { v.distance = "l3"; }));
    check_refused("normalize", "normalize", option([](OptionValues& v) { v.normalize = "max"; }));
    check_refused("iterations", "iterations", option([](OptionValues& v) { v.iterations = 0; }));
    check_refused("bandwidth", "bandwidth", option([](OptionValues& v) { v.bandwidth = 0.0; }));
    check_refused("bandwidth", "bandwidth", option([](OptionValues& v) { v.bandwidth = 1e300; }));
    check_refused("floor", "variance_floor", option([](OptionValues& v) { v.variance_floor = -1.0; }));
    check_refused("stride", "stride", option([](OptionValues& v) { v.stride = {0, 1}; }));
    check_refused("padding", "padding", option([](OptionValues& v) { v.padding = {-1, 0}; }));
    check_refused("kernel_size", "kernel_size", option([](OptionValues& v) { v.kernel_size = {int64_t(1) << 40, 1}; }));
    check_refused("path", "avx9000", [] { set_vector_path("avx9000"); });
    check_refused("threads", "threads", [] { check_threads(0); });
}

void test_bad_arrays() {
    Case c;
    c.values.kernel_size = c.values.stride = {2, 2};
    c.prepare();
    const auto with = [&](auto change) {
        return [&c, change] {
            Outputs o;
            ForwardArrays a = c.arrays(o);
            Options options = make_options(c.values);
            change(a, options);
            check_forward(options, a);
        };
    };
    with([](ForwardArrays&, Options&) {})();   // the case itself is fine
    check_refused("channels", "pose", with([](ForwardArrays& a, Options&) { a.pose.shape[3] -= 1; }));
    check_refused("batch", "activation", with([](ForwardArrays& a, Options&) { a.activation.shape[0] += 1; }));
    check_refused("dimensions", "dimensions", with([](ForwardArrays& a, Options&) { a.pose.dimensions = 3; }));
    check_refused("inputs", "weight", with([](ForwardArrays& a, Options&) { a.weight.shape[0] -= 1; }));
    check_refused("4x4", "weight", with([](ForwardArrays& a, Options&) { a.weight.shape[3] = 5; }));
    check_refused("beta", "first", with([](ForwardArrays& a, Options&) { a.first.shape[1] = 15; }));
    check_refused("em beta", "first", with([](ForwardArrays&, Options& o) { o.method = Method::em; }));
    check_refused("beta0", "second", with([](ForwardArrays& a, Options&) { a.second.shape[0] = 4; }));
    check_refused("output", "out_pose", with([](ForwardArrays& a, Options&) { a.out_pose.shape[1] += 1; }));
    check_refused("channels last", "channels last", with([](ForwardArrays& a, Options&) { a.pose.stride[3] = 16; }));
    check_refused("negative", "negative", with([](ForwardArrays& a, Options&) { a.activation.stride[1] = -4; }));
    check_refused("contiguous", "contiguous", with([](ForwardArrays& a, Options&) { a.out_activation.stride[0] += 1; }));
    check_refused("contiguous", "contiguous", with([](ForwardArrays& a, Options&) { a.weight.stride[0] += 16; }));
    check_refused("empty", "empty", with([](ForwardArrays& a, Options&) { a.pose.shape[1] = a.activation.shape[1] = 0; }));
    check_refused("no memory", "memory", with([](ForwardArrays& a, Options&) { a.weight.data = nullptr; }));
    check_refused("small map", "kernel_size", with([](ForwardArrays&, Options& o) { o.kernel_size[0] = 9; }));
    check_refused("overflow", "too large", with([](ForwardArrays& a, Options&) {
                      a.pose.stride[0] = a.activation.stride[0] = int64_t(1) << 62;
                      a.pose.shape[0] = a.activation.shape[0] = a.out_pose.shape[0] = a.out_activation.shape[0] = 16;
                  }));
    check_refused("overflow", "too large", with([](ForwardArrays& a, Options&) {
                      a.pose.shape[0] = a.activation.shape[0] = a.out_pose.shape[0] = a.out_activation.shape[0] = int64_t(1) << 60;
                  }));
    Outputs o;
    Problem p = check_forward(make_options(c.values), c.arrays(o));
    const Array good = dense_array(c.scale_out, {16 * c.outputs}), small = dense_array(c.scale_out, {16 * c.outputs - 1});
    check_refused("offset", "offset", [&] { check_offset(p, dense_array(c.offset, {c.inputs - 1, 16})); });
    check_refused("scale", "scale", [&] { check_affine(p, small, good); });
    check_refused("shift", "shift", [&] { check_affine(p, good, small); });
}

}  // namespace

void test_limits() {
    test_bad_options();
    test_bad_arrays();
    test_switched_off();
    test_ties();
    test_extreme_values();
}

}}  // namespace
