// One receptive field while it is routed: its input capsules, its votes, and what each iteration leaves behind.
// All memory comes from one block a thread gets at the start of a call; nothing is allocated while fields run.
#pragma once
#include "blocks.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

// Hands out aligned pieces of a block; without a block it only counts.
struct Arena {
    float* base;
    size_t used;
    float* take(size_t count) {
        float* piece = base ? base + used : nullptr;
        used += (count + 15) / 16 * 16;
        return piece;
    }
};

// What iteration t leaves for the ones after it, and for the backward pass.
// "pairs" are [rows][lanes] (input by output capsule), "lanes" one value an output capsule,
// centres [vectors][16][W].
struct Iteration {
    float* distance;        // pairs: to the centre of t - 1. The backward pass puts the gradient by it here: the pull
    float* state;           // pairs: what normalise() makes the coupling of
    float* coupling;        // pairs: r'. The backward pass puts the normalised weights of the mean here: the shares
    float* factor_store;    // pairs, for methods and cases where factor is not the coupling
    float* factor;          // pairs: the weight of a vote in the mean, but for the capsule's activation (and a scale per j)
    float* weight_sum;      // lanes: S_j, in the scale of factor
    float* inverse_sum;     // lanes: 1 / S_j, or 0 where the centre was kept
    float* coupling_sum;    // lanes: sum over i of r'
    Centre centre;
    float *variance, *logit, *bias, *mass;   // EM
    float* log_share;       // FREM, plain normalisation: log pi_j
    bool share_underflows;  // FREM, plain normalisation: some coupling_sum had to be computed in log space
};

struct Field {
    const Problem* problem;
    DensityKernel kernel, activation_kernel;
    float inverse_bandwidth, inverse_activation_bandwidth;
    long inputs, rows, outputs, vectors, lanes, iterations;
    long row_pitch;                                // votes of one vector of output capsules to those of the next
    bool keep, resident, fresh;
    bool tied;                                     // backward: some vote lies on a kink of its distance to a centre
    const float *weight, *first, *second;          // packed parameters

    float *pose, *activation, *present;            // [rows][16], [rows], [rows]: 1 for a capsule, 0 for a filled-up row
    float* share;                                  // [rows]: activation / activation_sum, the weights of the first mean
    float *lane_bias, *lane_mask;                  // [W] of the last vector: 0 or -inf beyond the last output capsule; and
                                                   // the mask of the lanes that are output capsules
    float activation_sum;
    bool single;                                   // one input capsule is on: its votes are the centres
    float* votes;
    float *sums, *scaled_centre;                   // centres
    float* drift;                                  // centres, EM: sum of weight (u - centre)
    float *block_weights, *block_gradient, *block_mean_part;   // [kRows][lanes]
    float* raw;                                    // pairs, FRMS: r, then the gradient by it
    float *top, *lane_scratch;                     // lanes
    float *pairs_scratch;                          // one row of pairs

    // backward only
    float *vote_gradient;                          // [vectors][kRows][16][W]
    float *pose_gradient, *activation_gradient;    // [rows][16], [rows][W]: lanes are summed at the end
    float *activation_pull, *activation_part;      // pairs: gradients that come from the output activations
    float *score_gradient, *logit_gradient, *share_gradient, *mean_offset, *scaled_centre_gradient;
    ParameterGradients sinks;

    Iteration* records;

    Iteration& at(long t) { return records[keep ? t : t & 1]; }
    float* pairs(float* matrix, long row) const { return matrix + row * lanes; }
    bool is_last(long t) const { return t == iterations - 1; }
    Vec lane_bias_of(long n) const { return n == vectors - 1 ? load(lane_bias) : all(0.0f); }
};

TC_INLINE Centre vector_of(const Centre& c, long n) {
    const long offset = n * kRowFloats;
    return {c.value + offset, c.precision + offset, c.residual + offset, c.gradient + offset, c.spread_gradient + offset};
}
TC_INLINE void fill(float* p, long count, float value) {
    for (long k = 0; k < count; ++k) p[k] = value;
}
// The same for whole vectors: lanes, pairs, centres.
TC_INLINE void fill_lanes(float* p, long count, float value) {
    const Vec v = all(value);
    for (long k = 0; k < count; k += Vec::W) store(p + k, v);
}
TC_INLINE void copy(float* to, const float* from, long count) {
    for (long k = 0; k < count; ++k) to[k] = from[k];
}

static Field make_field(const Problem& p, Arena& arena, bool backward) {
    Field f = {};
    f.problem = &p;
    f.kernel.kind = p.options.kernel;
    f.activation_kernel.kind = p.options.activation_kernel;
    f.inverse_bandwidth = 1.0f / p.options.bandwidth;
    f.inverse_activation_bandwidth = 1.0f / p.options.activation_bandwidth;
    f.inputs = p.inputs;
    f.outputs = p.outputs;
    f.rows = (p.inputs + kRows - 1) / kRows * kRows;
    f.vectors = (p.outputs + Vec::W - 1) / Vec::W;
    f.lanes = f.vectors * Vec::W;
    f.iterations = p.options.iterations;
    f.keep = backward;
    f.resident = size_t(f.rows) * f.lanes * kPoseSize * sizeof(float) <= size_t(p.options.vote_budget);
    f.row_pitch = (f.resident ? f.rows : kRows) * kRowFloats;

    const bool em = p.options.method == Method::em;
    const size_t pairs = size_t(f.rows) * f.lanes, centre = size_t(f.vectors) * kRowFloats;
    const size_t block = size_t(kRows) * f.lanes;
    f.votes = arena.take(size_t(f.vectors) * f.row_pitch);
    f.pose = arena.take(size_t(f.rows) * kPoseSize);
    f.activation = arena.take(f.rows);
    f.present = arena.take(f.rows);
    f.share = arena.take(f.rows);
    f.lane_bias = arena.take(Vec::W);
    f.lane_mask = arena.take(Vec::W);
    f.sums = arena.take(centre);
    f.scaled_centre = arena.take(centre);
    f.drift = em ? arena.take(centre) : nullptr;
    f.block_weights = arena.take(block);
    f.block_gradient = arena.take(block);
    f.block_mean_part = arena.take(block);
    f.raw = p.options.method == Method::frms ? arena.take(pairs) : nullptr;
    f.top = arena.take(f.lanes);
    f.lane_scratch = arena.take(f.lanes);
    f.pairs_scratch = arena.take(f.lanes);
    if (backward) {
        f.vote_gradient = arena.take(f.vectors * kRows * kRowFloats);
        f.pose_gradient = arena.take(size_t(f.rows) * kPoseSize);
        f.activation_gradient = arena.take(size_t(f.rows) * Vec::W);
        f.activation_pull = arena.take(pairs);
        f.activation_part = arena.take(pairs);
        f.score_gradient = arena.take(f.lanes);
        f.logit_gradient = arena.take(f.lanes);
        f.share_gradient = arena.take(f.lanes);
        f.mean_offset = arena.take(f.lanes);
        f.scaled_centre_gradient = arena.take(centre);
    }
    // Forward, two records take turns, and share the pairs: nothing looks back further than one centre.
    const size_t kept = backward ? size_t(f.iterations) : 2;
    Iteration* records = reinterpret_cast<Iteration*>(arena.take((kept * sizeof(Iteration) + 3) / 4));
    for (size_t t = 0; t < kept; ++t) {
        Iteration r = {};
        if (backward || t == 0) {
            r.distance = arena.take(pairs);
            r.state = arena.take(pairs);
            r.coupling = arena.take(pairs);
            r.factor_store = arena.take(pairs);
        } else if (records && arena.base) {
            r = records[0];
        }
        r.factor = r.coupling;
        r.weight_sum = arena.take(f.lanes);
        r.inverse_sum = arena.take(f.lanes);
        r.coupling_sum = arena.take(f.lanes);
        r.log_share = arena.take(f.lanes);
        r.centre = {};
        r.centre.value = arena.take(centre);
        if (backward) r.centre.gradient = arena.take(centre);
        if (em) {
            r.centre.precision = arena.take(centre);
            r.centre.residual = arena.take(centre);
            r.variance = arena.take(centre);
            r.logit = arena.take(f.lanes);
            r.bias = arena.take(f.lanes);
            r.mass = arena.take(f.lanes);
            if (backward) r.centre.spread_gradient = arena.take(centre);
        }
        if (arena.base) records[t] = r;
    }
    f.records = records;
    if (!arena.base) return f;

    fill(f.pose, f.rows * kPoseSize, 0.0f);
    fill(f.activation, f.rows, 0.0f);
    for (long i = 0; i < f.rows; ++i) f.present[i] = i < f.inputs ? 1.0f : 0.0f;
    for (long k = 0; k < Vec::W; ++k)
        f.lane_bias[k] = (f.vectors - 1) * Vec::W + k < f.outputs ? 0.0f : kMinusInfinity;
    store(f.lane_mask, less(all(kMinusInfinity), load(f.lane_bias)));
    if (backward) fill(f.activation_pull, long(pairs), 0.0f);   // stays 0 for methods without a distance at the end
    return f;
}

// Of the distances to one vector of centres; lanes beyond the last output capsule are 0 and do not count.
TC_INLINE void note_ties(Field& f, long n, Vec nearest) {
    f.tied |= any(less(nearest, all(kSmallestNormal) + f.lane_bias_of(n)));
}
// fn(D{}), or where no vote lies on a kink the cheaper fn(D::Untied{}).
template <class D, class Fn>
TC_INLINE void with_slope(const Field& f, Fn fn) {
    if (D::has_kink && !f.tied)
        fn(typename D::Untied{});
    else
        fn(D{});
}

// Runs fn(first row, votes of the block) over all blocks of input capsules. Where the votes fit the budget they are
// computed in the first sweep over a field, block by block just before they are used; else in every sweep.
template <class Fn>
TC_INLINE void sweep(Field& f, Fn fn) {
    for (long i = 0; i < f.rows; i += kRows) {
        float* votes = f.resident ? f.votes + i * kRowFloats : f.votes;
        if (!f.fresh)
            for (long n = 0; n < f.vectors; ++n)
                block_votes(f.pose + i * kPoseSize, f.weight + (n * f.rows + i) * kRowFloats, votes + n * f.row_pitch);
        if (!f.fresh && f.problem->offset)
            for (long n = 0; n < f.vectors; ++n)
                block_offset(f.problem->offset + i * kPoseSize, f.inputs - i < kRows ? f.inputs - i : kRows, votes + n * f.row_pitch);
        fn(i, votes);
    }
    f.fresh = f.resident;
}

}}  // namespace
