// Between the maps in memory and one field: gathering input capsules where they lie, and scattering results.
#pragma once
#include "field.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

struct Place {
    int64_t image, row, column;   // of the output position
};

TC_INLINE Place place_of(const Problem& p, int64_t index) {
    const int64_t per_image = p.out_height * p.out_width, inside = index % per_image;
    return {index / per_image, inside / p.out_width, inside % p.out_width};
}
TC_INLINE float* position(const Map& m, int64_t image, int64_t row, int64_t column) {
    return m.data + image * m.stride[0] + row * m.stride[1] + column * m.stride[2];
}

// Calls fn(first capsule of the field at this position, image, row, column, inside the map?) in the field's order.
template <class Fn>
TC_INLINE void for_each_position(const Problem& p, Place at, Fn fn) {
    const Options& o = p.options;
    long first = 0;
    for (int64_t r = 0; r < o.kernel_size[0]; ++r)
        for (int64_t c = 0; c < o.kernel_size[1]; ++c, first += p.capsules) {
            const int64_t row = at.row * o.stride[0] - o.padding[0] + r, column = at.column * o.stride[1] - o.padding[1] + c;
            fn(first, at.image, row, column, row >= 0 && row < p.height && column >= 0 && column < p.width);
        }
}

TC_STEP void gather(Field& f, Place at) {
    const Problem& p = *f.problem;
    const long capsules = p.capsules;
    for_each_position(p, at, [&](long first, int64_t image, int64_t row, int64_t column, bool inside) {
        float *pose = f.pose + first * kPoseSize, *activation = f.activation + first;
        if (!inside) {
            fill(pose, capsules * kPoseSize, 0.0f);
            fill(activation, capsules, 0.0f);
            return;
        }
        const float* from = position(p.pose, image, row, column);
        // The field to the right comes next: ask for its poses while this one is routed. (An address past the end is
        // harmless: a prefetch does not fault.)
        const uintptr_t next = reinterpret_cast<uintptr_t>(from) + size_t(p.options.stride[1] * p.pose.stride[2]) * sizeof(float);
        for (long k = 0; k < capsules * kPoseSize; k += kPoseSize) {
            __builtin_prefetch(reinterpret_cast<const void*>(next + size_t(k) * sizeof(float)));
            for (long d = 0; d < kPoseSize; d += Vec::W) storeu(pose + k + d, loadu(from + k + d));
        }
        copy(activation, position(p.activation, image, row, column), capsules);
    });
    Vec sum = all(0.0f), count = all(0.0f);   // rows beyond the last input capsule are 0
    for (long i = 0; i < f.rows; i += Vec::W) {
        const Vec a = load(f.activation + i), off = less(a, all(kSmallestActivation));
        const Vec on = select(off, all(0.0f), a);
        store(f.activation + i, on);
        sum = sum + on;
        count = count + select(off, all(0.0f), all(1.0f));
    }
    float total[4];
    sum_lanes4(sum, count, sum, count, total);
    f.activation_sum = total[0];
    f.single = total[1] == 1.0f;
    const Vec divisor = all(f.activation_sum > 0.0f ? f.activation_sum : 1.0f);
    for (long i = 0; i < f.rows; i += Vec::W) store(f.share + i, load(f.activation + i) / divisor);
    f.fresh = f.tied = false;
}

TC_INLINE void put(float* to, const float* from, long count, bool add) {
    for (long k = 0; k < count; ++k) to[k] = add ? to[k] + from[k] : from[k];
}

TC_STEP void scatter_gradients(Field& f, Place at) {
    const Problem& p = *f.problem;
    // Lanes of the activation's gradient are output capsules: sum them, four capsules at a time.
    for (long i = 0; i < f.rows; i += 4) {
        const float* lanes = f.activation_gradient + i * Vec::W;
        sum_lanes4(load(lanes), load(lanes + Vec::W), load(lanes + 2 * Vec::W), load(lanes + 3 * Vec::W),
                   f.activation + i);   // the activations themselves are no longer needed
    }
    const bool add = !p.every_position_once;
    for_each_position(p, at, [&](long first, int64_t image, int64_t row, int64_t column, bool inside) {
        if (!inside) return;
        float* to = position(p.grad_pose, image, row, column);
        const float* from = f.pose_gradient + first * kPoseSize;
        if (add || reinterpret_cast<uintptr_t>(to) % (Vec::W * sizeof(float)) != 0)
            put(to, from, p.capsules * kPoseSize, add);
        else
            for (long k = 0; k < p.capsules * kPoseSize; k += Vec::W) stream(to + k, load(from + k));
        put(position(p.grad_activation, image, row, column), f.activation + first, p.capsules, add);
    });
    fill(f.activation + f.inputs, f.rows - f.inputs, 0.0f);
}

// [outputs][16] in a map <-> [vectors][16][W] of the kernels. Lanes beyond the last output capsule become 0.
TC_STEP void load_centres(const Field& f, const float* from, float* centre) {
    for (long k = f.outputs; k < 2 * f.outputs; ++k)   // the next field's
        __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + size_t(k) * kPoseSize * sizeof(float)));
    for (long n = 0; n < f.vectors; ++n)
        for (long half = 0; half < kPoseSize; half += Vec::W) {
            Vec m[Vec::W];
            for (int k = 0; k < Vec::W; ++k) {
                const long j = n * Vec::W + k;
                m[k] = j < f.outputs ? loadu(from + j * kPoseSize + half) : all(0.0f);
            }
            transpose(m);
            for (int k = 0; k < Vec::W; ++k) store(centre + n * kRowFloats + (half + k) * Vec::W, m[k]);
        }
}
// With the affine of the poses, if the problem has one.
TC_STEP void store_centres(const Field& f, const float* centre, float* to) {
    const float *scale = f.problem->scale, *shift = f.problem->shift;
    for (long n = 0; n < f.vectors; ++n)
        for (long half = 0; half < kPoseSize; half += Vec::W) {
            Vec m[Vec::W];
            for (int k = 0; k < Vec::W; ++k) m[k] = load(centre + n * kRowFloats + (half + k) * Vec::W);
            transpose(m);
            for (int k = 0; k < Vec::W; ++k) {
                const long j = n * Vec::W + k;
                const long at = j * kPoseSize + half;
                if (j < f.outputs) storeu(to + at, scale ? fma(loadu(scale + at), m[k], loadu(shift + at)) : m[k]);
            }
        }
}
TC_INLINE void load_lanes(const Field& f, const float* from, float* lanes) {
    copy(lanes, from, f.outputs);
    fill(lanes + f.outputs, f.lanes - f.outputs, 0.0f);
}

}}  // namespace
