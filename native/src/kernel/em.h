// EM routing (Hinton et al. 2018): a Gaussian with one variance a dimension for each output capsule.
#pragma once
#include "routing.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

struct Em : MethodDefaults {
    using D = Diagonal;
    Em(Field& field) : MethodDefaults{field} {}

    float lambda(long t) const {
        const Options& o = f.problem->options;
        double power = 1.0;
        for (long k = 0; k <= t; ++k) power *= double(o.lambda_decay);
        return float(double(o.final_lambda) * (1.0 - power));
    }

    // log r = bias_j - d / 2, with d the precision-weighted squared distance.
    TC_INLINE_MEMBER Vec score(long, Iteration& before, long, long n, Vec distance) const {
        return fma(all(-0.5f), distance, load(before.bias + n * Vec::W));
    }

    // Variances and the output activation's logit, once the centre is known.
    void after_mean(long t) {
        Iteration& now = f.at(t);
        const Iteration* before = t > 0 ? &f.at(t - 1) : nullptr;
        fill_lanes(f.sums, f.vectors * kRowFloats, 0.0f);
        fill_lanes(f.drift, f.vectors * kRowFloats, 0.0f);
        fill_lanes(now.mass, f.lanes, t == 0 ? f.activation_sum / float(f.outputs) : 0.0f);
        sweep(f, [&](long i, float* votes) {
            for (long n = 0; n < f.vectors; ++n) {
                Vec mass = load(now.mass + n * Vec::W);
                for (int row = 0; row < kRows; ++row) {
                    const Vec a = broadcast(f.activation + i + row);
                    const long at = (i + row) * f.lanes + n * Vec::W;
                    store(f.block_weights + row * f.lanes + n * Vec::W, t == 0 ? a : load(now.factor + at) * a);
                    if (t > 0) mass = fma(load(now.coupling + at), a, mass);
                }
                store(now.mass + n * Vec::W, mass);
                block_weighted_spread(votes + n * f.row_pitch, f.block_weights + n * Vec::W, f.lanes,
                                      now.centre.value + n * kRowFloats, f.sums + n * kRowFloats,
                                      f.drift + n * kRowFloats);
            }
        });
        const Vec floor = all(f.problem->options.variance_floor);
        for (long n = 0; n < f.vectors; ++n) {
            const Vec inverse = load(now.inverse_sum + n * Vec::W), kept = was_kept(now, n);
            Vec log_variances = all(0.0f);
            for (int d = 0; d < kPoseSize; ++d) {
                const long at = n * kRowFloats + d * Vec::W;
                // Where one of many large votes has nearly all weight, their deviation is below the rounding of their mean:
                // the variance is about the mean itself, the centre as near to it as it gets.
                const Vec drift = load(f.drift + at) * inverse, rough = load(now.centre.value + at), centre = rough + drift;
                store(now.centre.value + at, centre);
                store(now.centre.residual + at, drift - (centre - rough));
                const Vec estimate = max(fnma(drift, drift, load(f.sums + at) * inverse), floor);
                const Vec variance = select(kept, before ? load(before->variance + at) : all(1.0f), estimate);
                store(now.variance + at, variance);
                store(now.centre.precision + at, all(1.0f) / variance);
                log_variances = log_variances + log(variance);
            }
            const Vec beta_u = load(f.first + n * Vec::W), beta_a = load(f.second + n * Vec::W);
            const Vec cost = cost_per_mass(beta_u, log_variances) * load(now.mass + n * Vec::W);
            const Vec logit = all(lambda(t)) * (beta_a - cost);
            store(now.logit + n * Vec::W, logit);
            const float log_two_pi = 1.8378770664093453f;
            store(now.bias + n * Vec::W, log_sigmoid(logit) - all(0.5f) * (log_variances + all(kPoseSize * log_two_pi)));
        }
    }
    TC_INLINE Vec cost_per_mass(Vec beta_u, Vec log_variances) { return fma(all(float(kPoseSize)), beta_u, all(0.5f) * log_variances); }

    void finish_forward() {
        const Iteration& last = f.at(f.iterations - 1);
        for (long n = 0; n < f.vectors; ++n) store(f.lane_scratch + n * Vec::W, sigmoid(load(last.logit + n * Vec::W)));
    }

    void begin(bool backward) {
        if (!backward) return;
        for (long n = 0; n < f.vectors; ++n) {
            const Vec a = load(f.lane_scratch + n * Vec::W);
            store(f.logit_gradient + n * Vec::W, load(f.score_gradient + n * Vec::W) * a * (all(1.0f) - a));
        }
        fill_lanes(f.at(f.iterations - 1).centre.spread_gradient, f.vectors * kRowFloats, 0.0f);
    }

    // From the logit's gradient to those of beta_u, beta_a, the variances and the mass (which goes to lane_scratch).
    void before_gradient(long t) {
        Iteration& now = f.at(t);
        for (long n = 0; n < f.vectors; ++n) {
            const long lane = n * Vec::W;
            const Vec by_logit = load(f.logit_gradient + lane) * all(lambda(t)), by_cost = all(0.0f) - by_logit;
            const Vec mass = load(now.mass + lane), kept = was_kept(now, n);
            store(f.sinks.second + lane, load(f.sinks.second + lane) + by_logit);
            store(f.sinks.first + lane, fma(by_cost * mass, all(float(kPoseSize)), load(f.sinks.first + lane)));
            Vec log_variances = all(0.0f), offset = all(0.0f);
            for (int d = 0; d < kPoseSize; ++d) {
                const long at = n * kRowFloats + d * Vec::W;
                const Vec variance = load(now.variance + at);
                log_variances = log_variances + log(variance);
                Vec g = fma(by_cost * mass * all(0.5f), load(now.centre.precision + at), load(now.centre.spread_gradient + at));
                g = only(less(all(f.problem->options.variance_floor), variance), g);
                store(now.centre.spread_gradient + at, g);
                // A variance that iteration t kept is the one of t - 1: its gradient goes there.
                if (t > 0) store(f.at(t - 1).centre.spread_gradient + at, only(kept, g));
                // The gradients read z = u - centre, and mean z - residual: what they lack is the same for all votes.
                const Vec residual = load(now.centre.residual + at), by_centre = load(now.centre.gradient + at);
                offset = fma(g, fnma(residual, residual, variance), fma(residual, by_centre, offset));
                store(now.centre.gradient + at, fnma(g + g, residual, by_centre));
            }
            store(f.mean_offset + lane, offset);
            store(f.lane_scratch + lane, by_cost * cost_per_mass(load(f.first + lane), log_variances));
        }
        fill_lanes(f.logit_gradient, f.lanes, 0.0f);
    }

    // The mass is a sum of r a: one more way to the couplings and the activations.
    TC_STEP_MEMBER void coupling_gradient(long t, long i) { mass_gradient(i, f.at(t).coupling); }
    TC_STEP_MEMBER void first_gradient(long i) { mass_gradient(i, nullptr); }
    TC_STEP_MEMBER void mass_gradient(long i, const float* coupling) {
        for (int row = 0; row < kRows; ++row) {
            float* lanes = f.activation_gradient + (i + row) * Vec::W;
            for (long n = 0; n < f.vectors; ++n) {
                const Vec r = coupling ? load(coupling + (i + row) * f.lanes + n * Vec::W) : all(1.0f / float(f.outputs));
                const Vec by_activation = r * load(f.lane_scratch + n * Vec::W);
                store(lanes, load(lanes) + by_activation);
                float* g = f.block_gradient + row * f.lanes + n * Vec::W;
                store(g, fma(by_activation, broadcast(f.activation + i + row), load(g)));
            }
        }
    }

    TC_STEP_MEMBER void score_gradient(long t, long i) {
        Iteration& now = f.at(t);
        for (long n = 0; n < f.vectors; ++n) {
            Vec sum = load(f.logit_gradient + n * Vec::W);
            for (int row = 0; row < kRows; ++row) {
                const Vec g = load(f.block_gradient + row * f.lanes + n * Vec::W);
                store(f.pairs(now.distance, i + row) + n * Vec::W, all(-0.5f) * g);
                sum = sum + g;
            }
            store(f.logit_gradient + n * Vec::W, sum);   // by the bias, so far
        }
    }
    void after_gradient(long t) {
        Iteration& before = f.at(t - 1);
        for (long n = 0; n < f.vectors; ++n) {
            float* by_logit = f.logit_gradient + n * Vec::W;
            const Vec by_bias = load(by_logit);
            for (int d = 0; d < kPoseSize; ++d) {
                const long at = n * kRowFloats + d * Vec::W;
                const Vec precision = load(before.centre.precision + at);
                // sums: pull (u - mu)^2, and d precision / d variance = -precision^2
                const Vec g = fma(load(f.sums + at), precision, all(0.5f) * by_bias) * precision;
                store(before.centre.spread_gradient + at, load(before.centre.spread_gradient + at) - g);
            }
            store(by_logit, by_bias * sigmoid(all(0.0f) - load(before.logit + n * Vec::W)));
        }
    }
};

}}  // namespace
