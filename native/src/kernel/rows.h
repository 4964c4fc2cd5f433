// normalise() of the specification: a softmax over the output capsules of each row, its logarithm, its gradient.
#pragma once
#include "field.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

// States this close to zero need no shift by the largest: exp neither overflows nor underflows, nor does the sum.
static constexpr float kNoShift = 60.0f;

// A row that is -inf everywhere (or NaN): equal couplings.
static void make_uniform(const Field& f, float* row) {
    for (long k = 0; k < f.lanes; ++k) row[k] = k < f.outputs ? 1.0f / float(f.outputs) : 0.0f;
}

// exp(state - largest of the row) to `coupling`, its sums to `total`.
static void exponentials_shifted(const Field& f, const float* state, float* coupling, float* total) {
    for (int row = 0; row < kRows; row += 4) {
        float top[4];
        Vec best[4], sum[4];
        for (int r = 0; r < 4; ++r) {
            best[r] = all(kMinusInfinity);
            for (long n = 0; n < f.vectors; ++n)
                best[r] = max(best[r], load(state + (row + r) * f.lanes + n * Vec::W) + f.lane_bias_of(n));
        }
        max_lanes4(best[0], best[1], best[2], best[3], top);
        for (int r = 0; r < 4; ++r) {
            const Vec shift = max(broadcast(top + r), all(-3.0e38f));   // not -inf: its difference to -inf would be NaN
            sum[r] = all(0.0f);
            for (long n = 0; n < f.vectors; ++n) {
                const long at = (row + r) * f.lanes + n * Vec::W;
                const Vec p = exp(load(state + at) + f.lane_bias_of(n) - shift);
                store(coupling + at, p);
                sum[r] = sum[r] + p;
            }
        }
        sum_lanes4(sum[0], sum[1], sum[2], sum[3], total + row);
    }
}

// coupling = softmax over j of state, for one block; a row that is -inf everywhere becomes uniform. Hands each vector
// of results on while it is in a register: taker(n) at each vector of output capsules gives an object with
// pair(row, coupling), and end().   N: number of vectors where it is known when compiling, 0: f.vectors.
template <int N, class Taker>
TC_INLINE void normalise_block_of(const Field& f, const float* state, float* coupling, Taker taker) {
    const long vectors = N ? N : f.vectors, lanes = vectors * Vec::W;
    alignas(64) float total[kRows];
    Vec farthest = all(0.0f);
    for (long k = 0; k < kRows * lanes; k += Vec::W) farthest = max(abs(load(state + k)), farthest);
    if (__builtin_expect(!any(less(all(kNoShift), farthest)), 1)) {
        const Vec last_mask = load(f.lane_mask);
        Vec sum[kRows];
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
            const float* s = state + row * lanes;
            float* out = coupling + row * lanes;
            Vec p = only(last_mask, exp_inside(load(s + (vectors - 1) * Vec::W)));
            store(out + (vectors - 1) * Vec::W, p);
            sum[row] = p;
            for (long n = 0; n < vectors - 1; ++n) {
                p = exp_inside(load(s + n * Vec::W));
                store(out + n * Vec::W, p);
                sum[row] = sum[row] + p;
            }
        }
#pragma GCC unroll 2
        for (int row = 0; row < kRows; row += 4) sum_lanes4(sum[row], sum[row + 1], sum[row + 2], sum[row + 3], total + row);
    } else {
        exponentials_shifted(f, state, coupling, total);
    }
    for (int row = 0; row < kRows; row += Vec::W) {
        const Vec t = load(total + row), usable = less(all(0.0f), t);
        store(total + row, only(usable, all(1.0f) / select(usable, t, all(1.0f))));
        if (__builtin_expect(any(less(t, all(kSmallestNormal))), 0))
            for (int r = row; r < row + Vec::W; ++r)
                if (total[r] == 0.0f) make_uniform(f, coupling + r * lanes), total[r] = 1.0f;
    }
    for (long n = 0; n < vectors; ++n) {
        auto take = taker(n);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
            float* at = coupling + row * lanes + n * Vec::W;
            const Vec r = load(at) * broadcast(total + row);
            store(at, r);
            take.pair(row, r);
        }
        take.end();
    }
}

template <class Taker>
TC_STEP void normalise_block(const Field& f, const float* state, float* coupling, Taker taker) {
    switch (f.vectors) {
        case 1: return normalise_block_of<1>(f, state, coupling, taker);
        case 2: return normalise_block_of<2>(f, state, coupling, taker);
        case 4: return normalise_block_of<4>(f, state, coupling, taker);
        default: return normalise_block_of<0>(f, state, coupling, taker);
    }
}

// log r' of one row: the slow path, taken where r' itself may underflow.
static void log_coupling_row(const Field& f, const float* state, float* out) {
    Vec best = all(kMinusInfinity), sum = all(0.0f);
    for (long n = 0; n < f.vectors; ++n) best = max(best, load(state + n * Vec::W) + f.lane_bias_of(n));
    float value[4];
    max_lanes4(best, best, best, best, value);
    const Vec shift = all(value[0]);
    const bool uniform = value[0] == kMinusInfinity;
    if (!uniform) {
        for (long n = 0; n < f.vectors; ++n) sum = sum + exp(load(state + n * Vec::W) + f.lane_bias_of(n) - shift);
        sum_lanes4(sum, sum, sum, sum, value);
    }
    const Vec log_total = log(all(uniform ? float(f.outputs) : value[0]));
    for (long n = 0; n < f.vectors; ++n) {
        const Vec relative = uniform ? all(0.0f) : load(state + n * Vec::W) - shift;
        store(out + n * Vec::W, relative - log_total + f.lane_bias_of(n));
    }
}

// softmax over the output capsules of one row of finite values, in place.
TC_STEP void softmax_row(const Field& f, float* row) {
    Vec best = all(kMinusInfinity), sum = all(0.0f);
    for (long n = 0; n < f.vectors; ++n) best = max(best, load(row + n * Vec::W) + f.lane_bias_of(n));
    float value[4];
    max_lanes4(best, best, best, best, value);
    for (long n = 0; n < f.vectors; ++n) {
        const Vec p = exp(load(row + n * Vec::W) + f.lane_bias_of(n) - all(value[0]));
        store(row + n * Vec::W, p);
        sum = sum + p;
    }
    sum_lanes4(sum, sum, sum, sum, value);
    const Vec scale = all(1.0f / value[0]);
    for (long n = 0; n < f.vectors; ++n) store(row + n * Vec::W, load(row + n * Vec::W) * scale);
}

// Gradient by log r' becomes gradient by the state, in place: g - r' sum_j g, and 0 where the state is -inf.
TC_STEP void normalise_gradient(const Field& f, const float* state, const float* coupling, float* gradient) {
    float total[kRows];
    Vec sum[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
        sum[row] = load(gradient + row * f.lanes);
        for (long n = 1; n < f.vectors; ++n) sum[row] = sum[row] + load(gradient + row * f.lanes + n * Vec::W);
    }
#pragma GCC unroll 2
    for (int row = 0; row < kRows; row += 4) sum_lanes4(sum[row], sum[row + 1], sum[row + 2], sum[row + 3], total + row);
    for (int row = 0; row < kRows; ++row)
        for (long n = 0; n < f.vectors; ++n) {
            const long at = row * f.lanes + n * Vec::W;
            const Vec g = fnma(load(coupling + at), broadcast(total + row), load(gradient + at));
            store(gradient + at, only(less(all(kMinusInfinity), load(state + at)), g));
        }
}

}}  // namespace
