// Winograd's minimal filtering (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016): filter and
// input as polynomials, multiplied by their values at six points. A tile of 6 x 6 inputs and a filter of size K give
// 7 - K outputs a side, by 36 products instead of K^2 an output: 2.25 instead of 9 with K = 3, 9 instead of 25 with K = 5.
//
// The points are 0, +-a, +-b and infinity: with these two, whose powers are exact, roundings are smaller than with the usual
// 1 and 2 (tests/test_residual.cpp has a limit between them). N: number of coefficients of a polynomial, 2 to 5.
#pragma once
#include "../problem.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

constexpr int kSide = 6, kPoints = kSide * kSide;
constexpr float kA = 0.625f, kB = 1.5f, kA2 = kA * kA, kB2 = kB * kB;

// What a tile of inputs contributes at each point: the transpose of interpolation, B^T in the paper.
struct Interpolate {
    static constexpr int from = kSide, to = kSide;
    static TC_INLINE_MEMBER void apply(const Vec* d, Vec* t) {
        const Vec even_a = fnma(all(kB2), d[2], d[4]), odd_a = all(kA) * fnma(all(kB2), d[1], d[3]);
        const Vec even_b = fnma(all(kA2), d[2], d[4]), odd_b = all(kB) * fnma(all(kA2), d[1], d[3]);
        t[0] = fma(all(kA2 * kB2), d[0], fnma(all(kA2 + kB2), d[2], d[4]));
        t[1] = even_a + odd_a, t[2] = even_a - odd_a;
        t[3] = even_b + odd_b, t[4] = even_b - odd_b;
        t[5] = fma(all(kA2 * kB2), d[1], fnma(all(kA2 + kB2), d[3], d[5]));
    }
};

// The values at the points of the polynomial with these coefficients: A.
template <int N>
struct Evaluate {
    static constexpr int from = N, to = kSide;
    static TC_INLINE_MEMBER void apply(const Vec* c, Vec* t) {
        Vec even_a = c[0], even_b = c[0], odd_a = c[1], odd_b = c[1];
        if (N > 4) even_a = fma(all(kA2 * kA2), c[N > 4 ? 4 : 0], even_a), even_b = fma(all(kB2 * kB2), c[N > 4 ? 4 : 0], even_b);
        if (N > 3) odd_a = fma(all(kA2), c[N > 3 ? 3 : 0], odd_a), odd_b = fma(all(kB2), c[N > 3 ? 3 : 0], odd_b);
        if (N > 2) even_a = fma(all(kA2), c[N > 2 ? 2 : 0], even_a), even_b = fma(all(kB2), c[N > 2 ? 2 : 0], even_b);
        t[0] = c[0];
        t[1] = fma(all(kA), odd_a, even_a), t[2] = fnma(all(kA), odd_a, even_a);
        t[3] = fma(all(kB), odd_b, even_b), t[4] = fnma(all(kB), odd_b, even_b);
        t[5] = c[N - 1];
    }
};

// Its transpose, A^T: sums over the points, each value times the powers of its point.
template <int N>
struct Collect {
    static constexpr int from = kSide, to = N;
    static TC_INLINE_MEMBER void apply(const Vec* t, Vec* c) {
        const Vec sum_a = t[1] + t[2], sum_b = t[3] + t[4];
        const Vec odd_a = all(kA) * (t[1] - t[2]), odd_b = all(kB) * (t[3] - t[4]);
        c[0] = t[0] + (sum_a + sum_b);
        c[1] = odd_a + odd_b;
        if (N > 2) c[N > 2 ? 2 : 0] = fma(all(kA2), sum_a, all(kB2) * sum_b);
        if (N > 3) c[N > 3 ? 3 : 0] = fma(all(kA2), odd_a, all(kB2) * odd_b);
        if (N > 4) c[N > 4 ? 4 : 0] = fma(all(kA2 * kA2), sum_a, all(kB2 * kB2) * sum_b);
        c[N - 1] = c[N - 1] + t[5];
    }
};

// Filters have, besides, the denominators of interpolation: 1 / product over the other points of their distances.
TC_INLINE void divide(Vec* t) {
    constexpr float at_zero = 1.0f / (kA2 * kB2), at_a = 0.5f / (kA2 * (kA2 - kB2)), at_b = 0.5f / (kB2 * (kB2 - kA2));
    t[0] = all(at_zero) * t[0];
    t[1] = all(at_a) * t[1], t[2] = all(at_a) * t[2];
    t[3] = all(at_b) * t[3], t[4] = all(at_b) * t[4];
}
template <int N>
struct EvaluateFilter {   // G
    static constexpr int from = N, to = kSide;
    static TC_INLINE_MEMBER void apply(const Vec* c, Vec* t) { Evaluate<N>::apply(c, t), divide(t); }
};
template <int N>
struct CollectFilter {   // G^T
    static constexpr int from = kSide, to = N;
    static TC_INLINE_MEMBER void apply(const Vec* t, Vec* c) {
        Vec divided[kSide];
        for (int k = 0; k < kSide; ++k) divided[k] = t[k];
        divide(divided), Collect<N>::apply(divided, c);
    }
};

// A transform along both axes of a square: take(k) reads element k, give(k, value) gets the result.
template <class T, class Take, class Give>
TC_INLINE void transform(Take take, Give give) {
    Vec between[T::to][T::from];
#pragma GCC unroll 6
    for (int x = 0; x < T::from; ++x) {
        Vec column[T::from], done[T::to];
#pragma GCC unroll 6
        for (int y = 0; y < T::from; ++y) column[y] = take(y * T::from + x);
        T::apply(column, done);
#pragma GCC unroll 6
        for (int y = 0; y < T::to; ++y) between[y][x] = done[y];
    }
#pragma GCC unroll 6
    for (int y = 0; y < T::to; ++y) {
        Vec row[T::to];
        T::apply(between[y], row);
#pragma GCC unroll 6
        for (int x = 0; x < T::to; ++x) give(y * T::to + x, row[x]);
    }
}

}}  // namespace
