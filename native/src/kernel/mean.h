// Step 2 of every method: each output capsule's weighted mean of the votes.
#pragma once
#include "rows.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

// Below this, and below this part of the largest possible sum, the weights are computed anew, shifted in log space.
// exp(-40) = 4.2e-18: above it, the specification would not cut the factor of a capsule that is off (of 2e5 inputs).
static constexpr float kTinySum = 1e-12f, kMostAboveTop = 40.0f;

TC_INLINE bool some_sum_below(const Field& f, const float* lanes, float threshold) {
    for (long n = 0; n < f.vectors; ++n) {
        const Vec beyond_last = f.lane_bias_of(n);   // -inf there
        if (any(less(load(lanes + n * Vec::W), all(threshold) + beyond_last))) return true;
    }
    return false;
}

// The weights factor * activation of one block and one vector of output capsules, to block_weights; their sum is added
// to weight_sum and that of the couplings to coupling_sum.
struct BlockWeigher {
    Field& f;
    Iteration& now;
    long i, n;
    Vec sum, couplings;
    BlockWeigher(Field& field, Iteration& iteration, long first, long vector)
        : f(field), now(iteration), i(first), n(vector), sum(load(now.weight_sum + n * Vec::W)),
          couplings(load(now.coupling_sum + n * Vec::W)) {}
    TC_INLINE_MEMBER void pair(int row, Vec coupling, Vec factor) {
        const Vec w = factor * broadcast(f.activation + i + row);
        store(f.block_weights + row * f.lanes + n * Vec::W, w);
        sum = sum + w;
        couplings = fma(coupling, broadcast(f.present + i + row), couplings);
    }
    TC_INLINE_MEMBER void end() {
        store(now.weight_sum + n * Vec::W, sum);
        store(now.coupling_sum + n * Vec::W, couplings);
    }
};
TC_INLINE void add_block(Field& f, const float* votes) {
    for (long n = 0; n < f.vectors; ++n)
        block_weighted_sum(votes + n * f.row_pitch, f.block_weights + n * Vec::W, f.lanes, f.sums + n * kRowFloats);
}

// 1 / S_j, or 0 where there is no weight.
TC_INLINE void invert_sums(Field& f, Iteration& now) {
    for (long n = 0; n < f.vectors; ++n) {
        const Vec sum = load(now.weight_sum + n * Vec::W), usable = less(all(kSmallestNormal), sum);
        store(now.inverse_sum + n * Vec::W, only(usable, all(1.0f) / select(usable, sum, all(1.0f))));
    }
}
TC_INLINE Vec was_kept(const Iteration& now, long n) { return less(load(now.inverse_sum + n * Vec::W), all(kSmallestNormal)); }

// centre = sums / S; where there is no weight, the centre of the iteration before. So it is for a single vote, too, whose
// mean is the vote: rounded otherwise, it would lie beside the kink of an l1 distance.
TC_STEP void divide_sums(Field& f, Iteration& now, const Iteration& before) {
    if (f.single) return copy(now.centre.value, before.centre.value, f.vectors * kRowFloats);
    for (long n = 0; n < f.vectors; ++n) {
        const Vec inverse = load(now.inverse_sum + n * Vec::W), kept = was_kept(now, n);
        const bool keeps = any(kept);
        for (int d = 0; d < kPoseSize; ++d) {
            const long at = n * kRowFloats + d * Vec::W;
            Vec v = load(f.sums + at) * inverse;
            if (keeps) v = select(kept, load(before.centre.value + at), v);
            store(now.centre.value + at, v);
        }
    }
}

// The weights of iteration t once more, relative to the largest one of each output capsule: exp(log(w a) - top_j),
// top_j the largest log(w a), which is the specification's exp(log w - top_j) a. Only ratios of weights count, so the result is the same,
// without underflow. The largest weight is exactly 1: where it has all of it, the centre is that vote, not one beside it,
// which matters where votes are large and their kernel is narrow. A capsule that is off has no part in top; its factor
// is cut, for the gradient by its activation.
template <class M>
static void shift_weights(Field& f, M& method, long t, bool with_sums) {
    Iteration& now = f.at(t);
    const auto log_weights = [&](long i) {
        log_coupling_row(f, f.pairs(now.state, i), f.pairs_scratch);
        const Vec log_activation = all(f.activation[i] > 0.0f ? __builtin_logf(f.activation[i]) : 0.0f);
        for (long n = 0; n < f.vectors; ++n) {
            float* at = f.pairs_scratch + n * Vec::W;
            store(at, load(at) + method.log_weight(now, i, n) + log_activation);
        }
    };
    fill_lanes(f.top, f.lanes, kMinusInfinity);
    for (long i = 0; i < f.inputs; ++i) {
        if (!(f.activation[i] > 0.0f)) continue;
        log_weights(i);
        for (long n = 0; n < f.vectors; ++n) {
            float* top = f.top + n * Vec::W;
            store(top, max(load(top), load(f.pairs_scratch + n * Vec::W)));
        }
    }
    for (long k = 0; k < f.lanes; ++k) f.top[k] = f.top[k] == kMinusInfinity ? 0.0f : f.top[k];

    now.factor = now.factor_store;
    fill_lanes(now.weight_sum, f.lanes, 0.0f);
    fill_lanes(now.coupling_sum, f.lanes, 0.0f);
    const auto weigh_row = [&](long i, float* weights) {
        log_weights(i);
        const float activation = f.activation[i];
        const bool on = activation > 0.0f;
        const Vec share = all(on ? 1.0f : 0.0f), per_activation = all(on ? 1.0f / activation : 1.0f);
        for (long n = 0; n < f.vectors; ++n) {
            const long at = n * Vec::W;
            const Vec w = exp(min(load(f.pairs_scratch + at) - load(f.top + at), all(on ? 0.0f : kMostAboveTop)));
            store(f.pairs(now.factor, i) + at, w * per_activation);
            store(weights + at, w * share);
            store(now.weight_sum + at, fma(w, share, load(now.weight_sum + at)));
            store(now.coupling_sum + at,
                  fma(load(f.pairs(now.coupling, i) + at), broadcast(f.present + i), load(now.coupling_sum + at)));
        }
    };
    const auto weigh_block = [&](long i) {
        for (int row = 0; row < kRows; ++row) weigh_row(i + row, f.block_weights + row * f.lanes);
    };
    if (with_sums) {
        fill_lanes(f.sums, f.vectors * kRowFloats, 0.0f);
        sweep(f, [&](long i, float* votes) {
            weigh_block(i);
            add_block(f, votes);
        });
    } else {
        for (long i = 0; i < f.rows; i += kRows) weigh_block(i);
    }
}

}}  // namespace
