// The skeleton every method shares: iterate distance -> state -> coupling -> weighted mean, and walk it backwards.
//
// A method M (frem.h, frms.h, em.h) names its distance, M::D, and fills in:
//   begin(backward), finish_forward()    before the first and after the last iteration
//   score(t, before, i, n, distance)     state of a pair from the distance to the centre of t - 1
//   weight_is_coupling                   or else weight(now, i, n), log_weight(now, i, n): the vote's other factor in the mean
//   after_mean(t)                        what the next score needs besides the centre
//   last_block(i, votes)                 backward: gradient of the output activation, while the votes are hot
//   before_gradients()                   backward: what the output activation sends to the last centre
//   before_gradient(t)                   backward: the centre's gradient is complete
//   coupling_gradient(t, i)              backward: adds to the gradient by log r' what does not pass through the mean
//   first_gradient(i)                    the same in iteration 0, where only the activation's gradient counts
//   score_gradient(t, i)                 backward: of the state, becomes the pull
//   after_gradient(t)                    backward: the sums over rows are complete
#pragma once
#include "maps.h"
#include "mean.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

// What a method need not write.
struct MethodDefaults {
    Field& f;
    void begin(bool) {}
    static constexpr bool weight_is_coupling = true;
    Vec weight(const Iteration&, long, long) const { return all(1.0f); }
    Vec log_weight(const Iteration&, long, long) const { return all(0.0f); }
    void after_mean(long) {}
    void last_block(long, float*) {}
    void before_gradients() {}
    void before_gradient(long) {}
    void coupling_gradient(long, long) {}
    void first_gradient(long) {}
    void after_gradient(long) {}
};

// The first iteration: equal couplings, so the weights are the activations and their sum is the same for all j.
template <class M>
TC_INLINE void first_iteration(Field& f, M& method, bool last_centre_known) {
    Iteration& now = f.at(0);
    const bool known = last_centre_known && f.is_last(0);
    fill_lanes(now.weight_sum, f.lanes, f.activation_sum);
    fill_lanes(now.coupling_sum, f.lanes, float(f.inputs) / float(f.outputs));
    if (f.is_last(0))   // the output activation reads the coupling
        for (long k = 0; k < f.rows * f.lanes; ++k) now.coupling[k] = 1.0f / float(f.outputs);
    if (!known) fill_lanes(now.centre.value, f.vectors * kRowFloats, 0.0f);
    sweep(f, [&](long i, float* votes) {
        if (known) {
            method.last_block(i, votes);
            return;
        }
        alignas(64) float weights[kRows * Vec::W];
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) store(weights + row * Vec::W, broadcast(f.share + i + row));
        for (long n = 0; n < f.vectors; ++n)
            block_weighted_sum(votes + n * f.row_pitch, weights, Vec::W, now.centre.value + n * kRowFloats);
    });
    invert_sums(f, now);
    method.after_mean(0);
}

// The weights of a block from its couplings, with the method's other factor if it has one.
template <class M>
struct FactorWeigher : BlockWeigher {
    M& method;
    FactorWeigher(BlockWeigher base, M& m) : BlockWeigher(base), method(m) {}
    TC_INLINE_MEMBER void pair(int row, Vec coupling) {
        if (M::weight_is_coupling) return BlockWeigher::pair(row, coupling, coupling);
        const Vec factor = coupling * method.weight(now, i + row, n);
        store(f.pairs(now.factor, i + row) + n * Vec::W, factor);
        BlockWeigher::pair(row, coupling, factor);
    }
};

template <bool Backward, class M>
TC_INLINE void next_iteration(Field& f, M& method, long t) {
    Iteration &now = f.at(t), &before = f.at(t - 1);
    const bool known = Backward && f.is_last(t);
    fill_lanes(now.weight_sum, f.lanes, 0.0f);
    fill_lanes(now.coupling_sum, f.lanes, 0.0f);
    if (!known) fill_lanes(f.sums, f.vectors * kRowFloats, 0.0f);
    sweep(f, [&](long i, float* votes) {
        for (long n = 0; n < f.vectors; ++n) {
            const Centre c = vector_of(before.centre, n);
            Vec nearest;
            block_distance<typename M::D>(votes + n * f.row_pitch, c.value, c.precision, Backward ? &nearest : nullptr,
                                          [&](int row, Vec distance) {
                const long at = (i + row) * f.lanes + n * Vec::W;
                store(now.distance + at, distance);
                store(now.state + at, method.score(t, before, i + row, n, distance));
            });
            if (Backward) note_ties(f, n, nearest);
        }
        now.factor = M::weight_is_coupling ? now.coupling : now.factor_store;
        normalise_block(f, f.pairs(now.state, i), f.pairs(now.coupling, i),
                        [&](long n) { return FactorWeigher<M>{{f, now, i, n}, method}; });
        if (known)
            method.last_block(i, votes);
        else
            add_block(f, votes);
    });
    const float largest_sum = f.activation_sum < 1.0f ? 1.0f : f.activation_sum;
    if (f.activation_sum > 0.0f && some_sum_below(f, now.weight_sum, kTinySum * largest_sum))
        shift_weights(f, method, t, !known);
    invert_sums(f, now);
    if (!known) divide_sums(f, now, before);
    method.after_mean(t);
}

template <class M>
TC_INLINE void forward_field(Field& f, M& method, Place at) {
    gather(f, at);
    method.begin(false);
    first_iteration(f, method, false);
    for (long t = 1; t < f.iterations; ++t) next_iteration<false>(f, method, t);
    const Problem& p = *f.problem;
    store_centres(f, f.at(f.iterations - 1).centre.value, position(p.out_pose, at.image, at.row, at.column));
    method.finish_forward();
    copy(position(p.out_activation, at.image, at.row, at.column), f.lane_scratch, f.outputs);
}

// Iteration t: from the gradient by its centre to the gradient by the centre before. Leaves the shares and the pull
// of each pair, which the votes' gradient is made of.
template <class M>
TC_INLINE void iteration_gradient(Field& f, M& method, long t) {
    using D = typename M::D;
    Iteration &now = f.at(t), &before = f.at(t - 1);
    method.before_gradient(t);
    // Where iteration t kept the centre it found, the gradient passes on.
    for (long n = 0; n < f.vectors; ++n) {
        const Vec kept = was_kept(now, n);
        const long at = n * kRowFloats;
        for (int k = 0; k < kRowFloats; k += Vec::W) {
            store(before.centre.gradient + at + k, only(kept, load(now.centre.gradient + at + k)));
            if (D::has_spread) store(f.sums + at + k, all(0.0f));
        }
    }
    sweep(f, [&](long i, float* votes) {
        for (long n = 0; n < f.vectors; ++n) {
            const Vec inverse = load(now.inverse_sum + n * Vec::W);
            const Vec offset = D::has_spread ? load(f.mean_offset + n * Vec::W) : all(0.0f);
            block_mean_gradient<D>(votes + n * f.row_pitch, vector_of(now.centre, n), [&](int row, Vec dot) {
                const long in_block = row * f.lanes + n * Vec::W;
                float* lanes = f.activation_gradient + (i + row) * Vec::W;
                const Vec by_activation = load(f.pairs(now.factor, i + row) + n * Vec::W) * inverse * (dot - offset);
                const Vec by_weight = by_activation * broadcast(f.activation + i + row);
                store(lanes, load(lanes) + by_activation);
                store(f.block_mean_part + in_block, by_weight);
                store(f.block_gradient + in_block, by_weight);
            });
        }
        method.coupling_gradient(t, i);
        normalise_gradient(f, f.pairs(now.state, i), f.pairs(now.coupling, i), f.block_gradient);
        method.score_gradient(t, i);
        for (long n = 0; n < f.vectors; ++n) {
            const Vec inverse = load(now.inverse_sum + n * Vec::W);
#pragma GCC unroll 8
            for (int row = 0; row < kRows; ++row)
                store(f.pairs(now.coupling, i + row) + n * Vec::W,
                      load(f.pairs(now.factor, i + row) + n * Vec::W) * broadcast(f.activation + i + row) * inverse);
            const Centre to = vector_of(before.centre, n);
            with_slope<D>(f, [&](auto slope) {
                block_centre_gradient<decltype(slope)>(votes + n * f.row_pitch, f.pairs(now.distance, i) + n * Vec::W, f.lanes,
                                                       to.value, to.precision, to.gradient, f.sums + n * kRowFloats);
            });
        }
    });
    method.after_gradient(t);
}

// Iteration 0 and all that waited for it: its mean's gradient, then the votes' gradient, handed at once to the
// poses and the weights, block by block.
template <class M>
TC_INLINE void last_gradients(Field& f, M& method) {
    using D = typename M::D;
    method.before_gradient(0);
    Iteration& now = f.at(0);
    const float inverse = now.inverse_sum[0];
    const float* last_centre = D::has_spread ? f.at(f.iterations - 1).centre.value : f.scaled_centre;
    sweep(f, [&](long i, float* votes) {
        method.first_gradient(i);
        for (long n = 0; n < f.vectors; ++n) {
            for (int row = 0; row < kRows; ++row)
                store(f.pairs(now.coupling, i + row) + n * Vec::W, broadcast(f.share + i + row));
            // Iteration t's mean, and the distances to its centre (the last one's: for the output activation).
            const auto term = [&](long t) {
                const float* pull = f.is_last(t) ? f.activation_pull : f.at(t + 1).distance;
                const float* to = f.is_last(t) ? last_centre : f.at(t).centre.value;
                const long at = i * f.lanes + n * Vec::W;
                return VoteTerm{f.at(t).coupling + at, pull + at, to + n * kRowFloats, vector_of(f.at(t).centre, n)};
            };
            float* gradient = f.vote_gradient + n * kRows * kRowFloats;
            const float* block = votes + n * f.row_pitch;
            const Vec offset = D::has_spread ? load(f.mean_offset + n * Vec::W) : all(0.0f);
            const auto first_mean = [&](int row, Vec dot) {
                float* lanes = f.activation_gradient + (i + row) * Vec::W;
                store(lanes, fma(all(inverse), dot - offset, load(lanes)));
            };
            with_slope<D>(f, [&](auto slope) {
                using S = decltype(slope);
                if (f.is_last(0))
                    block_vote_gradient<S, false, true>(block, f.lanes, term(0), term(0), gradient, first_mean);
                else
                    block_vote_gradient<S, true, true>(block, f.lanes, term(0), term(1), gradient, first_mean);
                for (long t = 2; t < f.iterations; t += 2)
                    if (f.is_last(t))
                        block_vote_gradient<S, false, false>(block, f.lanes, term(t), term(t), gradient, first_mean);
                    else
                        block_vote_gradient<S, true, false>(block, f.lanes, term(t), term(t + 1), gradient, first_mean);
            });
            block_weight_gradient(f.pose + i * kPoseSize, gradient, f.sinks.weight + (n * f.rows + i) * kRowFloats);
        }
        for (int row = 0; row < kRows; ++row)
            row_pose_gradient(f.vote_gradient + row * kRowFloats, kRows * kRowFloats, f.weight + (i + row) * kRowFloats,
                              f.rows * kRowFloats, f.vectors, f.pose_gradient + (i + row) * kPoseSize);
    });
}

template <class M>
TC_INLINE void backward_field(Field& f, M& method, Place at) {
    const Problem& p = *f.problem;
    gather(f, at);
    Iteration& last = f.at(f.iterations - 1);
    load_centres(f, position(p.out_pose, at.image, at.row, at.column), last.centre.value);
    load_centres(f, position(p.grad_out_pose, at.image, at.row, at.column), last.centre.gradient);
    load_lanes(f, position(p.out_activation, at.image, at.row, at.column), f.lane_scratch);
    load_lanes(f, position(p.grad_out_activation, at.image, at.row, at.column), f.score_gradient);
    fill_lanes(f.activation_gradient, f.rows * Vec::W, 0.0f);
    method.begin(true);
    first_iteration(f, method, true);
    for (long t = 1; t < f.iterations; ++t) next_iteration<true>(f, method, t);
    method.before_gradients();
    for (long t = f.iterations - 1; t > 0; --t) iteration_gradient(f, method, t);
    last_gradients(f, method);
    scatter_gradients(f, at);
}

}}  // namespace
