// The output activation of FRMS and FREM (eq. 8): a_j = softmax_j of sum_i r'_ij a_i k((d(u_ij, beta_j v_j) + beta0_j) / h).
#pragma once
#include "routing.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

template <class Distance_>
struct DensityActivation : MethodDefaults {
    using D = Distance_;
    DensityActivation(Field& field) : MethodDefaults{field} {}

    void scale_centre() {
        const float* centre = f.at(f.iterations - 1).centre.value;
        for (long k = 0; k < f.vectors * kRowFloats; k += Vec::W)
            store(f.scaled_centre + k, load(centre + k) * load(f.first + k));
    }

    // take(row, (d + beta0) / h) for the rows of a block and one vector of output capsules.
    template <class Take>
    TC_INLINE_MEMBER void arguments(const float* votes, long n, Vec* nearest, Take take) const {
        const Vec offset = load(f.second + n * Vec::W), scale = all(f.inverse_activation_bandwidth);
        block_distance<D>(votes + n * f.row_pitch, f.scaled_centre + n * kRowFloats, nullptr, nearest,
                          [&](int row, Vec d) { take(row, (d + offset) * scale); });
    }

    // Leaves the output activations in lane_scratch.
    TC_STEP_MEMBER void finish_forward() {
        scale_centre();
        const Iteration& last = f.at(f.iterations - 1);
        float* scores = f.lane_scratch;
        fill_lanes(scores, f.lanes, 0.0f);
        sweep(f, [&](long i, float* votes) {
            for (long n = 0; n < f.vectors; ++n) {
                Vec sum = load(scores + n * Vec::W);
                arguments(votes, n, nullptr, [&](int row, Vec y) {
                    const Vec r = load(f.pairs(last.coupling, i + row) + n * Vec::W);
                    sum = fma(r * broadcast(f.activation + i + row), f.activation_kernel.value(y), sum);
                });
                store(scores + n * Vec::W, sum);
            }
        });
        softmax_row(f, scores);
    }

    // Of the softmax, which needs no more than its output: ds = a (da - sum a da).
    TC_STEP_MEMBER void begin(bool backward) {
        if (!backward) return;
        scale_centre();
        float dot = 0.0f;
        for (long j = 0; j < f.outputs; ++j) dot += f.lane_scratch[j] * f.score_gradient[j];
        for (long n = 0; n < f.vectors; ++n) {
            float* g = f.score_gradient + n * Vec::W;
            store(g, load(f.lane_scratch + n * Vec::W) * (load(g) - all(dot)));
        }
        fill_lanes(f.scaled_centre_gradient, f.vectors * kRowFloats, 0.0f);
    }

    TC_STEP_MEMBER void last_block(long i, float* votes) {
        const Iteration& last = f.at(f.iterations - 1);
        for (long n = 0; n < f.vectors; ++n) {
            const Vec score = load(f.score_gradient + n * Vec::W);
            Vec by_offset = load(f.sinks.second + n * Vec::W);
            Vec nearest;
            arguments(votes, n, &nearest, [&](int row, Vec y) {
                const long at = (i + row) * f.lanes + n * Vec::W;
                const Vec k = f.activation_kernel.value(y), a = broadcast(f.activation + i + row), coupled = load(last.coupling + at) * score;
                const Vec pull = coupled * a * f.activation_kernel.derivative(y, k) * all(f.inverse_activation_bandwidth);
                float* lanes = f.activation_gradient + (i + row) * Vec::W;
                store(lanes, fma(coupled, k, load(lanes)));
                store(f.activation_part + at, coupled * k * a);
                store(f.activation_pull + at, pull);
                by_offset = by_offset + pull;
            });
            store(f.sinks.second + n * Vec::W, by_offset);
            note_ties(f, n, nearest);
            with_slope<D>(f, [&](auto slope) {
                block_centre_gradient<decltype(slope)>(votes + n * f.row_pitch, f.pairs(f.activation_pull, i) + n * Vec::W,
                                                       f.lanes, f.scaled_centre + n * kRowFloats, nullptr,
                                                       f.scaled_centre_gradient + n * kRowFloats, nullptr);
            });
        }
    }

    void before_gradients() {
        const Centre& centre = f.at(f.iterations - 1).centre;
        for (long k = 0; k < f.vectors * kRowFloats; k += Vec::W) {
            const Vec g = load(f.scaled_centre_gradient + k);
            store(f.sinks.first + k, fma(g, load(centre.value + k), load(f.sinks.first + k)));
            store(centre.gradient + k, fma(g, load(f.first + k), load(centre.gradient + k)));
        }
    }

    TC_STEP_MEMBER void coupling_gradient(long t, long i) {
        if (!f.is_last(t)) return;
        const float* part = f.pairs(f.activation_part, i);
        for (long k = 0; k < kRows * f.lanes; k += Vec::W)
            store(f.block_gradient + k, load(f.block_gradient + k) + load(part + k));
    }
};

}}  // namespace
