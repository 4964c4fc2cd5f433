// FRMS: r grows by step a_i k(d) in each iteration, and a vote's weight in the mean is r' times -k'(d).
#pragma once
#include "activation.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

template <class Distance_>
struct Frms : DensityActivation<Distance_> {
    using Base = DensityActivation<Distance_>;
    using Base::f;
    Frms(Field& field) : Base(field) {}

    bool plain() const { return f.problem->options.normalize == Normalize::sum; }

    TC_INLINE_MEMBER Vec score(long t, Iteration&, long i, long n, Vec distance) const {
        const Vec x = distance * all(f.inverse_bandwidth), gain = broadcast(f.activation + i) * all(f.problem->options.step);
        float* raw = f.pairs(f.raw, i) + n * Vec::W;
        const Vec r = fma(gain, f.kernel.value(x), t == 1 ? all(1.0f / float(f.outputs)) : load(raw));
        store(raw, r);
        return plain() ? log(r) : r;
    }
    static constexpr bool weight_is_coupling = false;
    TC_INLINE_MEMBER Vec weight(const Iteration& now, long i, long n) const {
        return f.kernel.weight(load(f.pairs(now.distance, i) + n * Vec::W) * all(f.inverse_bandwidth));
    }
    Vec log_weight(const Iteration& now, long i, long n) const {
        return f.kernel.log_weight(load(f.pairs(now.distance, i) + n * Vec::W) * all(f.inverse_bandwidth));
    }

    void before_gradients() {
        Base::before_gradients();
        fill_lanes(f.raw, f.rows * f.lanes, 0.0f);   // from here on: the gradient by r, summed over the iterations after
    }
    TC_STEP_MEMBER void score_gradient(long t, long i) {
        Iteration& now = f.at(t);
        const Vec h = all(f.inverse_bandwidth);
        Vec by_bandwidth = all(0.0f);
        for (int row = 0; row < kRows; ++row) {
            const Vec step = all(f.problem->options.step), a = broadcast(f.activation + i + row);
            Vec by_activation = load(f.activation_gradient + (i + row) * Vec::W);
            for (long n = 0; n < f.vectors; ++n) {
                const long at = (i + row) * f.lanes + n * Vec::W, in_block = row * f.lanes + n * Vec::W;
                Vec g = load(f.block_gradient + in_block);
                if (plain()) {   // state = log r; -inf has gradient 0 already
                    const Vec state = load(now.state + at), finite = less(all(kMinusInfinity), state);
                    g = g * only(finite, exp(all(0.0f) - select(finite, state, all(0.0f))));
                }
                const Vec by_raw = load(f.raw + at) + g;
                store(f.raw + at, by_raw);
                const Vec d = load(now.distance + at), x = d * h, k = f.kernel.value(x);
                Vec by_x = by_raw * step * a * f.kernel.derivative(x, k);
                // The Gaussian's slope is part of the weight: log w = log r' - x / 2. Epanechnikov's is flat.
                if (f.kernel.kind == Kernel::gaussian) by_x = fma(all(-0.5f), load(f.block_mean_part + in_block), by_x);
                store(now.distance + at, by_x * h);
                by_bandwidth = fma(by_x * h, d, by_bandwidth);
                by_activation = fma(by_raw * step, k, by_activation);
            }
            store(f.activation_gradient + (i + row) * Vec::W, by_activation);
        }
        store(f.sinks.bandwidth, load(f.sinks.bandwidth) + by_bandwidth);
    }
};

}}  // namespace
