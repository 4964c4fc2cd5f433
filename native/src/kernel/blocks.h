// The heavy loops. Each handles one block (kRows input capsules) against one vector of output capsules, so that every
// offset is a constant and all lanes are output capsules: no horizontal work. Layouts, W = lanes of a vector:
//   votes, weights       [kRows][16][W]       poses [kRows][16]
//   centres, their sums  [16][W]
//   per-pair values      one vector a row, rows `pitch` floats apart
#pragma once
#include "elementary.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

static constexpr int kRows = 8;
static constexpr int kRowFloats = kPoseSize * Vec::W;

// u = P W, two rows of the 4x4 product at a time: eight accumulators hide the latency of the multiply-adds.
TC_STEP void block_votes(const float* pose, const float* weight, float* votes) {
    for (int row = 0; row < kRows; ++row, pose += kPoseSize, weight += kRowFloats, votes += kRowFloats)
#pragma GCC unroll 2
        for (int a = 0; a < 4; a += 2) {
            Vec upper[4], lower[4];
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) {
                const Vec w = load(weight + c * Vec::W);
                upper[c] = broadcast(pose + 4 * a) * w;
                lower[c] = broadcast(pose + 4 * a + 4) * w;
            }
#pragma GCC unroll 3
            for (int b = 1; b < 4; ++b) {
                const Vec p = broadcast(pose + 4 * a + b), q = broadcast(pose + 4 * a + 4 + b);
#pragma GCC unroll 4
                for (int c = 0; c < 4; ++c) {
                    const Vec w = load(weight + (4 * b + c) * Vec::W);
                    upper[c] = fma(p, w, upper[c]);
                    lower[c] = fma(q, w, lower[c]);
                }
            }
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) {
                store(votes + (4 * a + c) * Vec::W, upper[c]);
                store(votes + (4 * a + 4 + c) * Vec::W, lower[c]);
            }
        }
}

// votes += offset [rows][16], for every output capsule; filled-up rows have none.
TC_STEP void block_offset(const float* offset, long rows, float* votes) {
    for (long k = 0; k < rows * kPoseSize; ++k, votes += Vec::W) store(votes, load(votes) + broadcast(offset + k));
}

// sums += sum over rows of weight u.
TC_STEP void block_weighted_sum(const float* votes, const float* weights, long pitch, float* sums) {
    Vec w[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) w[row] = load(weights + row * pitch);
#pragma GCC unroll 4
    for (int d = 0; d < kPoseSize; ++d) {
        Vec s = load(sums + d * Vec::W);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) s = fma(w[row], load(votes + row * kRowFloats + d * Vec::W), s);
        store(sums + d * Vec::W, s);
    }
}

// sums += sum over rows of weight (u - centre)^2, and drift += that of weight (u - centre): 0 but for the centre's rounding.
TC_STEP void block_weighted_spread(const float* votes, const float* weights, long pitch, const float* centre,
                                     float* sums, float* drift) {
    Vec w[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) w[row] = load(weights + row * pitch);
#pragma GCC unroll 4
    for (int d = 0; d < kPoseSize; ++d) {
        const Vec c = load(centre + d * Vec::W);
        Vec s = load(sums + d * Vec::W), first = load(drift + d * Vec::W);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
            const Vec z = load(votes + row * kRowFloats + d * Vec::W) - c, weighted = w[row] * z;
            s = fma(weighted, z, s);
            first = first + weighted;
        }
        store(sums + d * Vec::W, s);
        store(drift + d * Vec::W, first);
    }
}

// What one iteration's centre is, and the gradients that reach it. `precision`, `spread_gradient` and `residual` (the mean
// minus the centre, which is the mean rounded) belong to methods that estimate a variance (Diagonal below) and are unused
// otherwise.
struct Centre {
    float *value, *precision, *residual;
    float *gradient, *spread_gradient;
};

// The distances. Each gives, for z = u - v: its term of d(u, v), and the term's gradient by u. Untied: the same where
// no z is 0, which is cheaper for a distance that has a kink there.
struct L1 {
    static constexpr bool has_spread = false, has_kink = true;
    TC_INLINE Vec add(Vec sum, Vec z, Vec) { return sum + abs(z); }
    TC_INLINE Vec slope(Vec c, Vec z, Vec) { return only(differs(z, all(0.0f)), flip(c, z)); }
    struct Untied {
        static constexpr bool has_spread = false;
        TC_INLINE Vec slope(Vec c, Vec z, Vec) { return flip(c, z); }
    };
};
struct L2 {
    using Untied = L2;
    static constexpr bool has_spread = false, has_kink = false;
    TC_INLINE Vec add(Vec sum, Vec z, Vec) { return fma(z, z, sum); }
    TC_INLINE Vec slope(Vec c, Vec z, Vec) { return c * (z + z); }
};
// Squared, each dimension with a precision of its own: EM's Gaussian.
struct Diagonal {
    using Untied = Diagonal;
    static constexpr bool has_spread = true, has_kink = false;
    TC_INLINE Vec add(Vec sum, Vec z, Vec precision) { return fma(z * z, precision, sum); }
    TC_INLINE Vec slope(Vec c, Vec z, Vec precision) { return c * (z + z) * precision; }
};

template <class D>
TC_INLINE Vec precision_of(const float* precision, int d) {
    if (D::has_spread) return load(precision + d * Vec::W);
    return all(1.0f);
}

// take(row, d(u, centre)) for each row. `nearest`, unless null, becomes the smallest |u - centre| of each lane, if only
// smaller than 1 and of a distance that has a kink.
template <class D, class Take>
TC_INLINE void block_distance(const float* votes, const float* centre, const float* precision, Vec* nearest, Take take) {
    Vec sum[kRows], least[4];   // four, as one would make every min wait for the one before
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) sum[row] = all(0.0f);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) least[k] = all(1.0f);
#pragma GCC unroll 4
    for (int d = 0; d < kPoseSize; ++d) {
        const Vec c = load(centre + d * Vec::W), w = precision_of<D>(precision, d);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
            const Vec z = difference(load(votes + row * kRowFloats + d * Vec::W), c);
            sum[row] = D::add(sum[row], z, w);
            if (D::has_kink && nearest) least[row % 4] = min(least[row % 4], abs(z));
        }
    }
    if (nearest) *nearest = min(min(least[0], least[1]), min(least[2], least[3]));
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) take(row, sum[row]);
}

// Gradient of a weighted mean by the logarithm of one weight, but for the normalised weight itself:
// take(row, (u - v) . dv)   (and with a spread: + dvar . ((u - v)^2), the caller subtracts dvar . var).
template <class D>
TC_INLINE Vec mean_term(const Centre& at, Vec u, int d, Vec sum) {
    const Vec z = u - load(at.value + d * Vec::W), g = load(at.gradient + d * Vec::W);
    return fma(z, D::has_spread ? fma(z, load(at.spread_gradient + d * Vec::W), g) : g, sum);
}
template <class D, class Take>
TC_INLINE void block_mean_gradient(const float* votes, const Centre& at, Take take) {
    Vec sum[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) sum[row] = all(0.0f);
#pragma GCC unroll 4
    for (int d = 0; d < kPoseSize; ++d)
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row)
            sum[row] = mean_term<D>(at, load(votes + row * kRowFloats + d * Vec::W), d, sum[row]);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) take(row, sum[row]);
}

// The centre's part of the gradient of sum_rows pull d(u, centre); with a spread also sum_rows pull (u - centre)^2.
template <class D>
TC_STEP void block_centre_gradient(const float* votes, const float* pull, long pitch, const float* centre,
                                     const float* precision, float* gradient, float* spread) {
    Vec c[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) c[row] = load(pull + row * pitch);
#pragma GCC unroll 4
    for (int d = 0; d < kPoseSize; ++d) {
        const Vec v = load(centre + d * Vec::W), w = precision_of<D>(precision, d);
        Vec g = load(gradient + d * Vec::W);
        Vec s = D::has_spread ? load(spread + d * Vec::W) : g;
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
            const Vec z = load(votes + row * kRowFloats + d * Vec::W) - v;
            g = g - D::slope(c[row], z, w);
            if (D::has_spread) s = fma(c[row] * z, z, s);
        }
        store(gradient + d * Vec::W, g);
        if (D::has_spread) store(spread + d * Vec::W, s);
    }
}

// One iteration's part of the gradient by the votes: through its weighted mean (normalised weights `share`), and
// through the distances to the centre `to` (coefficients `pull`). Per-pair pointers are at the block's first row.
struct VoteTerm {
    const float *share, *pull, *to;
    Centre mean;
};
template <class D>
TC_INLINE Vec vote_term(const VoteTerm& term, Vec share, Vec pull, Vec to, Vec u, int d) {
    const Vec z = u - to;
    Vec g = load(term.mean.gradient + d * Vec::W);
    if (D::has_spread) {
        const Vec s = load(term.mean.spread_gradient + d * Vec::W);
        g = fma(s + s, z, g);
    }
    return fma(share, g, D::slope(pull, z, precision_of<D>(term.mean.precision, d)));
}
// Two terms and two rows at a time: the fewest loads and stores that fit the registers. The first time, take(row, .) gets
// the gradient of the first mean by the logarithm of a weight, as from block_mean_gradient.
template <class D, bool Two, bool First, class Take>
TC_STEP void block_vote_gradient(const float* votes, long pitch, const VoteTerm a, const VoteTerm b, float* out, Take take) {
    for (int row = 0; row < kRows; row += 2, votes += 2 * kRowFloats, out += 2 * kRowFloats) {
        const Vec share_a0 = load(a.share + row * pitch), share_a1 = load(a.share + (row + 1) * pitch);
        const Vec pull_a0 = load(a.pull + row * pitch), pull_a1 = load(a.pull + (row + 1) * pitch);
        const Vec share_b0 = load(b.share + row * pitch), share_b1 = load(b.share + (row + 1) * pitch);
        const Vec pull_b0 = load(b.pull + row * pitch), pull_b1 = load(b.pull + (row + 1) * pitch);
        Vec dot0 = all(0.0f), dot1 = all(0.0f);
#pragma GCC unroll 4
        for (int d = 0; d < kPoseSize; ++d) {
            const int at = d * Vec::W;
            const Vec u0 = load(votes + at), u1 = load(votes + kRowFloats + at), to_a = load(a.to + at);
            Vec g0 = vote_term<D>(a, share_a0, pull_a0, to_a, u0, d);
            Vec g1 = vote_term<D>(a, share_a1, pull_a1, to_a, u1, d);
            if (Two) {
                const Vec to_b = load(b.to + at);
                g0 = g0 + vote_term<D>(b, share_b0, pull_b0, to_b, u0, d);
                g1 = g1 + vote_term<D>(b, share_b1, pull_b1, to_b, u1, d);
            }
            if (First) {
                dot0 = mean_term<D>(a.mean, u0, d, dot0);
                dot1 = mean_term<D>(a.mean, u1, d, dot1);
            } else {
                g0 = g0 + load(out + at);
                g1 = g1 + load(out + kRowFloats + at);
            }
            store(out + at, g0);
            store(out + kRowFloats + at, g1);
        }
        if (First) {
            take(row, dot0);
            take(row + 1, dot1);
        }
    }
}

// dW += P^T du for each row.
TC_STEP void block_weight_gradient(const float* pose, const float* vote_gradient, float* weight_gradient) {
    for (int row = 0; row < kRows; ++row, pose += kPoseSize, vote_gradient += kRowFloats, weight_gradient += kRowFloats)
#pragma GCC unroll 2
        for (int c = 0; c < 4; c += 2) {
            Vec left[4], right[4];
#pragma GCC unroll 4
            for (int b = 0; b < 4; ++b) {
                left[b] = load(weight_gradient + (4 * b + c) * Vec::W);
                right[b] = load(weight_gradient + (4 * b + c + 1) * Vec::W);
            }
#pragma GCC unroll 4
            for (int a = 0; a < 4; ++a) {
                const Vec l = load(vote_gradient + (4 * a + c) * Vec::W);
                const Vec r = load(vote_gradient + (4 * a + c + 1) * Vec::W);
#pragma GCC unroll 4
                for (int b = 0; b < 4; ++b) {
                    const Vec p = broadcast(pose + 4 * a + b);
                    left[b] = fma(p, l, left[b]);
                    right[b] = fma(p, r, right[b]);
                }
            }
#pragma GCC unroll 4
            for (int b = 0; b < 4; ++b) {
                store(weight_gradient + (4 * b + c) * Vec::W, left[b]);
                store(weight_gradient + (4 * b + c + 1) * Vec::W, right[b]);
            }
        }
}

// dP = sum over output capsules of du W^T, for one row; vectors of output capsules lie `*_step` floats apart.
TC_STEP void row_pose_gradient(const float* vote_gradient, long vote_step, const float* weight, long weight_step,
                                 long vectors, float* pose_gradient) {
#pragma GCC unroll 2
    for (int a = 0; a < 4; a += 2) {
        Vec sums[8];
        Vec *upper = sums, *lower = sums + 4;
#pragma GCC unroll 8
        for (int b = 0; b < 8; ++b) sums[b] = all(0.0f);
        const float *u = vote_gradient + 4 * a * Vec::W, *w = weight;
        for (long n = 0; n < vectors; ++n, u += vote_step, w += weight_step)
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) {
                const Vec p = load(u + c * Vec::W), q = load(u + (4 + c) * Vec::W);
#pragma GCC unroll 4
                for (int b = 0; b < 4; ++b) {
                    const Vec m = load(w + (4 * b + c) * Vec::W);
                    upper[b] = fma(p, m, upper[b]);
                    lower[b] = fma(q, m, lower[b]);
                }
            }
        sum_lanes8(sums, pose_gradient + 4 * a);
    }
}

}}  // namespace
