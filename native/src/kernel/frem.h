// FREM: state = pi_j k(d), pi_j the mean coupling of iteration before.
#pragma once
#include "activation.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

template <class Distance_>
struct Frem : DensityActivation<Distance_> {
    using Base = DensityActivation<Distance_>;
    using Base::f;
    Frem(Field& field) : Base(field) {}

    bool plain() const { return f.problem->options.normalize == Normalize::sum; }
    Vec share(Iteration& before, long n) const { return load(before.coupling_sum + n * Vec::W) * all(1.0f / float(f.inputs)); }

    TC_INLINE_MEMBER Vec score(long, Iteration& before, long, long n, Vec distance) const {
        const Vec x = distance * all(f.inverse_bandwidth);
        if (plain()) return load(before.log_share + n * Vec::W) + f.kernel.log_value(x);
        return share(before, n) * f.kernel.value(x);
    }

    // log pi_j; where the couplings may have underflowed, as a log-sum-exp over the rows.
    void after_mean(long t) {
        Iteration& now = f.at(t);
        if (!plain() || f.is_last(t)) return;
        const Vec log_inputs = log(all(float(f.inputs)));
        now.share_underflows = t > 0 && some_sum_below(f, now.coupling_sum, kTinySum * float(f.inputs));
        if (!now.share_underflows) {
            for (long n = 0; n < f.vectors; ++n)
                store(now.log_share + n * Vec::W, log(load(now.coupling_sum + n * Vec::W)) - log_inputs);
            return;
        }
        fill_lanes(f.top, f.lanes, kMinusInfinity);
        for (long i = 0; i < f.inputs; ++i) {
            log_coupling_row(f, f.pairs(now.state, i), f.pairs_scratch);
            for (long k = 0; k < f.lanes; ++k) f.top[k] = f.pairs_scratch[k] > f.top[k] ? f.pairs_scratch[k] : f.top[k];
        }
        for (long k = 0; k < f.lanes; ++k) f.top[k] = f.top[k] == kMinusInfinity ? 0.0f : f.top[k];
        fill_lanes(now.log_share, f.lanes, 0.0f);
        for (long i = 0; i < f.inputs; ++i) {
            log_coupling_row(f, f.pairs(now.state, i), f.pairs_scratch);
            for (long n = 0; n < f.vectors; ++n) {
                float* sum = now.log_share + n * Vec::W;
                store(sum, load(sum) + exp(load(f.pairs_scratch + n * Vec::W) - load(f.top + n * Vec::W)));
            }
        }
        for (long n = 0; n < f.vectors; ++n) {
            float* sum = now.log_share + n * Vec::W;
            store(sum, log(load(sum)) + load(f.top + n * Vec::W) - log_inputs);
        }
    }

    void before_gradients() {
        Base::before_gradients();
        fill_lanes(f.share_gradient, f.lanes, 0.0f);
    }
    // share_gradient belongs to pi of t, gathered in iteration t + 1: make it the gradient by one r', then start anew.
    void before_gradient(long t) {
        Iteration& now = f.at(t);
        for (long n = 0; n < f.vectors; ++n) {
            float* g = f.share_gradient + n * Vec::W;
            const Vec sum = load(now.coupling_sum + n * Vec::W), usable = less(all(kSmallestNormal), sum);
            const Vec per_row = plain() ? (now.share_underflows ? all(1.0f) : only(usable, all(1.0f) / sum))
                                        : all(1.0f / float(f.inputs));
            store(f.lane_scratch + n * Vec::W, load(g) * per_row);
            store(g, all(0.0f));
        }
    }
    TC_STEP_MEMBER void coupling_gradient(long t, long i) {
        Base::coupling_gradient(t, i);
        if (f.is_last(t)) return;   // nothing reads the last pi
        Iteration& now = f.at(t);
        for (int row = 0; row < kRows && i + row < f.inputs; ++row) {
            const bool in_log_space = plain() && now.share_underflows;
            if (in_log_space) log_coupling_row(f, f.pairs(now.state, i + row), f.pairs_scratch);
            for (long n = 0; n < f.vectors; ++n) {
                float* g = f.block_gradient + row * f.lanes + n * Vec::W;
                Vec r = load(f.pairs(now.coupling, i + row) + n * Vec::W);
                if (in_log_space) {
                    const Vec log_sum = load(now.log_share + n * Vec::W) + log(all(float(f.inputs)));
                    const Vec finite = less(all(kMinusInfinity), log_sum);
                    r = only(finite, exp(load(f.pairs_scratch + n * Vec::W) - select(finite, log_sum, all(0.0f))));
                }
                store(g, fma(r, load(f.lane_scratch + n * Vec::W), load(g)));
            }
        }
    }
    TC_STEP_MEMBER void score_gradient(long t, long i) {
        Iteration &now = f.at(t), &before = f.at(t - 1);
        const Vec h = all(f.inverse_bandwidth);
        Vec by_bandwidth = all(0.0f);
        for (long n = 0; n < f.vectors; ++n) {
            const Vec pi = plain() ? all(1.0f) : share(before, n);
            Vec by_share = load(f.share_gradient + n * Vec::W);
#pragma GCC unroll 8
            for (int row = 0; row < kRows; ++row) {
                float* distance = f.pairs(now.distance, i + row) + n * Vec::W;
                const Vec d = load(distance), x = d * h, g = load(f.block_gradient + row * f.lanes + n * Vec::W);
                Vec pull;
                if (plain()) {
                    by_share = by_share + g;
                    pull = g * f.kernel.log_derivative(x) * h;
                } else {
                    const Vec k = f.kernel.value(x);
                    by_share = fma(g, k, by_share);
                    pull = g * pi * f.kernel.derivative(x, k) * h;
                }
                store(distance, pull);
                by_bandwidth = fma(pull, d, by_bandwidth);
            }
            store(f.share_gradient + n * Vec::W, by_share);
        }
        store(f.sinks.bandwidth, load(f.sinks.bandwidth) + by_bandwidth);
    }
};

}}  // namespace
