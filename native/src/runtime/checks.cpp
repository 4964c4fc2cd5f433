#include "checks.h"

#include <stdexcept>
namespace torchcaps {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

int64_t product(int64_t a, int64_t b) {
    int64_t result;
    if (__builtin_mul_overflow(a, b, &result)) refuse("the sizes are too large: their product does not fit 64 bits");
    return result;
}

namespace {

std::string text_of(const int64_t* sizes, int64_t count) {
    std::string text = "[";
    for (int64_t k = 0; k < count; ++k) text += (k ? ", " : "") + std::to_string(sizes[k]);
    return text + "]";
}

int64_t sum(int64_t a, int64_t b) {
    int64_t result;
    if (__builtin_add_overflow(a, b, &result)) refuse("the sizes are too large: their sum does not fit 64 bits");
    return result;
}

void check_shape(const Array& a, const Shape& wanted, const char* name) {
    bool same = a.dimensions == int64_t(wanted.size());
    int64_t count = 1;
    for (size_t k = 0; same && k < wanted.size(); ++k) same = a.shape[k] == wanted[k];
    if (!same)
        refuse(std::string(name) + ": got shape " + text_of(a.shape, a.dimensions) + ", expected " +
               text_of(wanted.data(), int64_t(wanted.size())));
    for (int64_t size : wanted) count = product(count, size);
    product(count, sizeof(float));
    if (count > 0 && !a.data) refuse(std::string(name) + ": has no memory");
}

// Strides of dimensions of size 1 (or of an empty array) mean nothing.
bool is_empty(const Array& a) {
    for (int64_t k = 0; k < a.dimensions; ++k)
        if (a.shape[k] == 0) return true;
    return false;
}
void check_contiguous(const Array& a, const char* name) {
    int64_t wanted = 1;
    for (int64_t k = a.dimensions - 1; k >= 0 && !is_empty(a); --k) {
        if (a.shape[k] > 1 && a.stride[k] != wanted)
            refuse(std::string(name) + ": got strides " + text_of(a.stride, a.dimensions) + ", expected a contiguous array");
        wanted = product(wanted, a.shape[k]);
    }
}
void check_strides(const Array& a, const char* name) {
    if (is_empty(a)) return;
    int64_t last = 0;
    for (int64_t k = 0; k < a.dimensions; ++k) {
        if (a.stride[k] < 0 && a.shape[k] > 1) refuse(std::string(name) + ": negative strides are not supported");
        if (a.shape[k] > 1) last = sum(last, product(a.shape[k] - 1, a.stride[k]));
    }
    product(last, sizeof(float));
    const int64_t k = a.dimensions - 1;
    if (a.shape[k] > 1 && a.stride[k] != 1)
        refuse(std::string(name) + ": got stride " + std::to_string(a.stride[k]) + " in the last dimension, expected 1 (channels last)");
}

Map map_of(const Array& a) {
    Map m = {a.data, {0, 0, 0}};
    for (int k = 0; k < 3; ++k) m.stride[k] = a.shape[k] > 1 ? a.stride[k] : 0;
    return m;
}

int64_t out_size(int64_t size, const Options& o, int k) {
    const int64_t room = sum(size, 2 * o.padding[k]) - o.kernel_size[k];
    if (room < 0)
        refuse("the map has " + std::to_string(size) + (k ? " columns" : " rows") + ", fewer (with padding) than kernel_size " +
               std::to_string(o.kernel_size[k]));
    return room / o.stride[k] + 1;
}

}  // namespace

void check_dimensions(const Array& a, int64_t wanted, const char* name) {
    if (a.dimensions != wanted)
        refuse(std::string(name) + ": got " + std::to_string(a.dimensions) + " dimensions, expected " + std::to_string(wanted));
}
void check_dense(const Array& a, const Shape& wanted, const char* name) {
    check_shape(a, wanted, name);
    check_contiguous(a, name);
}

Problem check_forward(const Options& o, const ForwardArrays& a) {
    Problem p = {};
    p.options = o;
    if (a.pose.dimensions != 4 || a.activation.dimensions != 4)
        refuse("pose and activation: got " + std::to_string(a.pose.dimensions) + " and " + std::to_string(a.activation.dimensions) +
               " dimensions, expected [batch, height, width, channels]");
    if (a.weight.dimensions != 4) refuse("weight: got " + std::to_string(a.weight.dimensions) + " dimensions, expected 4");
    p.batch = a.pose.shape[0], p.height = a.pose.shape[1], p.width = a.pose.shape[2], p.capsules = a.activation.shape[3];
    p.outputs = a.weight.shape[1];
    for (int64_t size : {p.batch, p.height, p.width, p.capsules, p.outputs})
        if (size < 0) refuse("a negative size");
    for (int64_t size : {p.height, p.width, p.capsules, p.outputs})
        if (size == 0) refuse("pose " + text_of(a.pose.shape, 4) + ", weight " + text_of(a.weight.shape, 4) + ": only the batch may be empty");
    p.inputs = product(product(o.kernel_size[0], o.kernel_size[1]), p.capsules);
    p.out_height = out_size(p.height, o, 0);
    p.out_width = out_size(p.width, o, 1);

    check_shape(a.pose, {p.batch, p.height, p.width, product(kPoseSize, p.capsules)}, "pose");
    check_shape(a.activation, {p.batch, p.height, p.width, p.capsules}, "activation");
    check_shape(a.weight, {p.inputs, p.outputs, 4, 4}, "weight");
    if (o.method == Method::em) check_shape(a.first, {p.outputs}, "first (beta_u)");
    else check_shape(a.first, {p.outputs, kPoseSize}, "first (beta)");
    check_shape(a.second, {p.outputs}, "second (beta0 or beta_a)");
    check_shape(a.out_pose, {p.batch, p.out_height, p.out_width, product(kPoseSize, p.outputs)}, "out_pose");
    check_shape(a.out_activation, {p.batch, p.out_height, p.out_width, p.outputs}, "out_activation");
    check_strides(a.pose, "pose");
    check_strides(a.activation, "activation");
    check_contiguous(a.weight, "weight");
    check_contiguous(a.first, "first");
    check_contiguous(a.second, "second");
    check_contiguous(a.out_pose, "out_pose");
    check_contiguous(a.out_activation, "out_activation");

    // The scratch holds a few values a pair and iteration (see kernel/field.h); 64 is more than padding can add.
    product(product(product(sum(p.inputs, 16), sum(p.outputs, 16)), sum(o.iterations, 2)), 64 * sizeof(float));

    p.pose = map_of(a.pose), p.activation = map_of(a.activation);
    p.weight = a.weight.data, p.first = a.first.data, p.second = a.second.data;
    p.out_pose = map_of(a.out_pose), p.out_activation = map_of(a.out_activation);

    p.every_position_once = true;
    const int64_t sizes[2] = {p.height, p.width}, out_sizes[2] = {p.out_height, p.out_width};
    for (int k = 0; k < 2; ++k) {
        const bool tiles = o.kernel_size[k] == o.stride[k] || out_sizes[k] == 1;
        const int64_t covered = (out_sizes[k] - 1) * o.stride[k] + o.kernel_size[k];   // from -padding on
        if (!tiles || covered - o.padding[k] < sizes[k]) p.every_position_once = false;
    }
    return p;
}

Problem check_backward(const Options& o, const ForwardArrays& a, const BackwardArrays& g) {
    Problem p = check_forward(o, a);
    const auto like = [](const Array& gradient, const Array& of, const char* name) {
        check_shape(gradient, Shape(of.shape, of.shape + of.dimensions), name);
    };
    like(g.grad_out_pose, a.out_pose, "grad_out_pose");
    like(g.grad_out_activation, a.out_activation, "grad_out_activation");
    check_strides(g.grad_out_pose, "grad_out_pose");
    check_strides(g.grad_out_activation, "grad_out_activation");
    like(g.grad_pose, a.pose, "grad_pose");
    like(g.grad_activation, a.activation, "grad_activation");
    like(g.grad_weight, a.weight, "grad_weight");
    like(g.grad_first, a.first, "grad_first");
    like(g.grad_second, a.second, "grad_second");
    check_shape(g.grad_bandwidth, Shape(), "grad_bandwidth");
    check_contiguous(g.grad_pose, "grad_pose");
    check_contiguous(g.grad_activation, "grad_activation");
    check_contiguous(g.grad_weight, "grad_weight");
    check_contiguous(g.grad_first, "grad_first");
    check_contiguous(g.grad_second, "grad_second");
    p.grad_out_pose = map_of(g.grad_out_pose), p.grad_out_activation = map_of(g.grad_out_activation);
    p.grad_pose = map_of(g.grad_pose), p.grad_activation = map_of(g.grad_activation);
    return p;
}

void check_offset(Problem& p, const Array& offset) {
    check_dense(offset, {p.inputs, kPoseSize}, "offset");
    p.offset = offset.data;
}

void check_affine(Problem& p, const Array& scale, const Array& shift) {
    check_dense(scale, {kPoseSize * p.outputs}, "scale");
    check_dense(shift, {kPoseSize * p.outputs}, "shift");
    p.scale = scale.data, p.shift = shift.data;
}

void check_threads(int64_t threads) {
    if (threads < 1 || threads > 1024) refuse("threads: got " + std::to_string(threads) + ", expected 1 to 1024");
}

}  // namespace torchcaps
