// The Python module torchcaps._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "runtime/checks.h"
#include "runtime/dispatch.h"
#include "runtime/engine.h"
#include "runtime/options.h"
#include "runtime/primary.h"
#include "runtime/residual.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace torchcaps;

namespace {

using Tensor = nb::ndarray<float, nb::device::cpu>;
using Constant = nb::ndarray<const float, nb::device::cpu>;   // also accepts read-only arrays

struct Spec {
    OptionValues values;
    Options options;
};

template <class T>
Array array_of(const T& t, const char* name) {
    Array a = {};
    if (t.ndim() > 4)
        throw std::invalid_argument(std::string(name) + ": got " + std::to_string(t.ndim()) + " dimensions, expected at most 4");
    a.data = const_cast<float*>(t.data());
    a.dimensions = int64_t(t.ndim());
    for (size_t k = 0; k < t.ndim(); ++k) a.shape[k] = int64_t(t.shape(k)), a.stride[k] = t.stride(k);
    return a;
}

// scale and shift: both or neither.
void forward(const Constant& pose, const Constant& activation, const Constant& weight, const Constant& first,
             const Constant& second, const Tensor& out_pose, const Tensor& out_activation, const Spec& spec, int64_t threads,
             const std::optional<Constant>& offset, const std::optional<Constant>& scale, const std::optional<Constant>& shift) {
    check_threads(threads);
    Problem problem = check_forward(
        spec.options, {array_of(pose, "pose"), array_of(activation, "activation"), array_of(weight, "weight"),
                       array_of(first, "first"), array_of(second, "second"), array_of(out_pose, "out_pose"),
                       array_of(out_activation, "out_activation")});
    if (offset) check_offset(problem, array_of(*offset, "offset"));
    if (scale.has_value() != shift.has_value()) throw std::invalid_argument("scale and shift: got one, expected both or neither");
    if (scale) check_affine(problem, array_of(*scale, "scale"), array_of(*shift, "shift"));
    nb::gil_scoped_release release;
    run_forward(problem, int(threads));
}

void backward(const Constant& pose, const Constant& activation, const Constant& weight, const Constant& first,
              const Constant& second, const Constant& out_pose, const Constant& out_activation, const Constant& grad_out_pose,
              const Constant& grad_out_activation, const Tensor& grad_pose, const Tensor& grad_activation,
              const Tensor& grad_weight, const Tensor& grad_first, const Tensor& grad_second,
              const Tensor& grad_bandwidth, const Spec& spec, int64_t threads, const std::optional<Constant>& offset) {
    check_threads(threads);
    Problem problem = check_backward(
        spec.options,
        {array_of(pose, "pose"), array_of(activation, "activation"), array_of(weight, "weight"), array_of(first, "first"),
         array_of(second, "second"), array_of(out_pose, "out_pose"), array_of(out_activation, "out_activation")},
        {array_of(grad_out_pose, "grad_out_pose"), array_of(grad_out_activation, "grad_out_activation"),
         array_of(grad_pose, "grad_pose"), array_of(grad_activation, "grad_activation"), array_of(grad_weight, "grad_weight"),
         array_of(grad_first, "grad_first"), array_of(grad_second, "grad_second"), array_of(grad_bandwidth, "grad_bandwidth")});
    if (offset) check_offset(problem, array_of(*offset, "offset"));
    nb::gil_scoped_release release;
    run_backward(problem, grad_weight.data(), grad_first.data(), grad_second.data(), grad_bandwidth.data(), int(threads));
}

void primary_forward(const Constant& map, const Constant& weight, const Constant& bias, const Tensor& pose,
                     const Tensor& activation, int64_t threads) {
    check_threads(threads);
    const Primary primary = check_primary({array_of(map, "map"), array_of(weight, "weight"), array_of(bias, "bias"),
                                           array_of(pose, "pose"), array_of(activation, "activation")});
    nb::gil_scoped_release release;
    run_primary_forward(primary, int(threads));
}

void primary_backward(const Constant& pose, const Constant& activation, const Constant& weight, const Constant& grad_pose,
                      const Constant& grad_activation, const Tensor& grad_map, const Tensor& grad_weight,
                      const Tensor& grad_bias, int64_t threads) {
    check_threads(threads);
    const Primary primary = check_primary_gradient(
        {array_of(pose, "pose"), array_of(activation, "activation"), array_of(weight, "weight"), array_of(grad_pose, "grad_pose"),
         array_of(grad_activation, "grad_activation"), array_of(grad_map, "grad_map"), array_of(grad_weight, "grad_weight"),
         array_of(grad_bias, "grad_bias")});
    nb::gil_scoped_release release;
    run_primary_backward(primary, grad_weight.data(), grad_bias.data(), int(threads));
}

void residual_forward(const Constant& input, const Constant& weight, const Constant& bias, const Tensor& output, bool reversed,
                      bool skip, int64_t threads) {
    check_threads(threads);
    const Residual residual = check_residual({array_of(input, "input"), array_of(weight, "weight"), array_of(bias, "bias"),
                                              array_of(output, "output")}, reversed, skip);
    nb::gil_scoped_release release;
    run_residual_forward(residual, int(threads));
}

void residual_backward(const Constant& pose, const Constant& grad, const Tensor& grad_weight, int64_t threads) {
    check_threads(threads);
    const Residual residual = check_residual_gradient(
        {array_of(pose, "pose"), array_of(grad, "grad"), array_of(grad_weight, "grad_weight")});
    nb::gil_scoped_release release;
    run_residual_backward(residual, grad_weight.data(), int(threads));
}

nb::dict capabilities() {
    nb::dict result;
    result["vector_paths"] = compiled_paths();
    result["usable_vector_paths"] = usable_paths();
    result["vector_path"] = kernels_in_use().name;
    result["vector_width"] = kernels_in_use().width;
    return result;
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Fused capsule routing: votes, iterations and activation of every field in one call, votes never stored.";
    const OptionValues d;
    nb::class_<Spec>(m, "Spec", "Geometry and options of one routing layer.")
        .def(
            "__init__",
            [](Spec* self, Pair kernel_size, Pair stride, Pair padding, std::string method, int64_t iterations, std::string kernel,
               std::string activation_kernel, std::string distance, std::string normalize, double bandwidth,
               double activation_bandwidth, double step, double final_lambda, double lambda_decay, double variance_floor,
               int64_t vote_budget) {
                const OptionValues v{kernel_size, stride, padding, method, iterations, kernel, activation_kernel, distance, normalize,
                                     bandwidth, activation_bandwidth, step, final_lambda, lambda_decay, variance_floor, vote_budget};
                new (self) Spec{v, make_options(v)};
            },
            nb::kw_only(), "kernel_size"_a, "stride"_a, "padding"_a = d.padding, "method"_a = d.method,
            "iterations"_a = d.iterations, "kernel"_a = d.kernel, "activation_kernel"_a = d.activation_kernel,
            "distance"_a = d.distance, "normalize"_a = d.normalize, "bandwidth"_a = d.bandwidth,
            "activation_bandwidth"_a = d.activation_bandwidth, "step"_a = d.step, "final_lambda"_a = d.final_lambda,
            "lambda_decay"_a = d.lambda_decay, "variance_floor"_a = d.variance_floor, "vote_budget"_a = d.vote_budget)
        .def_prop_ro("kernel_size", [](const Spec& s) { return s.values.kernel_size; })
        .def_prop_ro("stride", [](const Spec& s) { return s.values.stride; })
        .def_prop_ro("padding", [](const Spec& s) { return s.values.padding; })
        .def_prop_ro("method", [](const Spec& s) { return s.values.method; })
        .def_prop_ro("iterations", [](const Spec& s) { return s.values.iterations; });

    // A conversion would copy, and an output written into a copy is lost.
    const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
    m.def("forward", &forward, array("pose"), array("activation"), array("weight"), array("first"), array("second"), array("out_pose"), array("out_activation"),
          "spec"_a, "threads"_a, array("offset") = nb::none(), array("scale") = nb::none(), array("shift") = nb::none(),
          "Routes every field of a map, offset added to its votes; writes out_activation, and to out_pose the poses, or scale pose + shift.");
    m.def("backward", &backward, array("pose"), array("activation"), array("weight"), array("first"), array("second"), array("out_pose"), array("out_activation"),
          array("grad_out_pose"), array("grad_out_activation"), array("grad_pose"), array("grad_activation"), array("grad_weight"), array("grad_first"),
          array("grad_second"), array("grad_bandwidth"), "spec"_a, "threads"_a, array("offset") = nb::none(), "Gradients of forward; recomputes the votes, overwrites the grad_ arrays.");
    m.def("primary_forward", &primary_forward, array("map"), array("weight"), array("bias"), array("pose"), array("activation"),
          "threads"_a, "The head of the primary capsules: writes pose = relu(map) and activation = sigmoid(weight pose + bias).");
    m.def("primary_backward", &primary_backward, array("pose"), array("activation"), array("weight"), array("grad_pose"),
          array("grad_activation"), array("grad_map"), array("grad_weight"), array("grad_bias"), "threads"_a,
          "Gradients of primary_forward; overwrites grad_map, grad_weight and grad_bias.");
    m.def("residual_forward", &residual_forward, array("input"), array("weight"), array("bias"), array("output"), "reversed"_a, "skip"_a, "threads"_a,
          "Writes output = input + bias + convolution, 3x3 or 5x5, of the map's size; reversed: with the weight of its gradient; "
          "without skip the input is not added.");
    m.def("residual_backward", &residual_backward, array("pose"), array("grad"), array("grad_weight"), "threads"_a,
          "The weight gradient of such a convolution; overwrites grad_weight.");
    m.def("capabilities", &capabilities, "Vector paths compiled in, those this CPU can run, and the one in use.");
    m.def("set_vector_path", &set_vector_path, "name"_a, "'avx2', 'baseline', or 'auto' for the best this CPU has.");
}
