// Vector exp, log, sigmoid, and the kernels k(x) of the density estimate.
#pragma once
#include "../problem.h"

namespace torchcaps { namespace TORCHCAPS_ISA {

static constexpr float kMinusInfinity = -__builtin_inff();
static constexpr float kSmallestNormal = 1.17549435e-38f;
static constexpr float kSmallestActivation = 0x1p-100f;   // a capsule below it is off: SMALLEST_ACTIVATION of the specification

// Within 2 ulp, for -87.33 <= x <= 88.
TC_INLINE Vec exp_inside(Vec x) {
    const Vec magic = all(12582912.0f);                                   // 1.5 * 2^23: adding it rounds to a whole number
    const Vec shifted = fma(x, all(1.44269504088896341f), magic);
    const Vec n = shifted - magic;
    Vec r = fnma(n, all(0.693359375f), x);
    r = fnma(n, all(-2.12194440e-4f), r);
    Vec p = fma(r, all(1.9875691500e-4f), all(1.3981999507e-3f));
    p = fma(p, r, all(8.3334519073e-3f));
    p = fma(p, r, all(4.1665795894e-2f));
    p = fma(p, r, all(1.6666665459e-1f));
    p = fma(p, r, all(5.0000001201e-1f));
    p = fma(p, r * r, r + all(1.0f));
    return p * power_of_two(shifted);
}
// For every x: 0 below (also for -inf), so no denormal is ever made; exp(88) above.
TC_INLINE Vec exp(Vec x) {
    return only(less(all(-87.33f), x), exp_inside(max(min(x, all(88.0f)), all(-87.33f))));
}

// -inf for everything below the smallest normal number.
TC_INLINE Vec log(Vec x) {
    const Vec positive = less(all(0.99999994f * kSmallestNormal), x);
    const Vec safe = select(positive, x, all(1.0f));
    Vec e = exponent(safe), m = mantissa(safe);
    const Vec low = less(m, all(0.707106781186547524f));
    e = e - only(low, all(1.0f));
    m = m - all(1.0f) + only(low, m);
    const Vec square = m * m;
    Vec p = fma(all(7.0376836292e-2f), m, all(-1.1514610310e-1f));
    p = fma(p, m, all(1.1676998740e-1f));
    p = fma(p, m, all(-1.2420140846e-1f));
    p = fma(p, m, all(1.4249322787e-1f));
    p = fma(p, m, all(-1.6668057665e-1f));
    p = fma(p, m, all(2.0000714765e-1f));
    p = fma(p, m, all(-2.4999993993e-1f));
    p = fma(p, m, all(3.3333331174e-1f));
    Vec y = p * m * square;
    y = fma(e, all(-2.12194440e-4f), y);
    y = fnma(all(0.5f), square, y);
    return select(positive, fma(e, all(0.693359375f), m + y), all(kMinusInfinity));
}

// In [0, 1] for every x, and 0 where e^x would be no normal number; NaN stays NaN.
TC_INLINE Vec sigmoid(Vec x) {
    const Vec s = all(1.0f) / (all(1.0f) + exp_inside(all(0.0f) - max(all(-87.0f), min(all(87.0f), x))));
    return s - only(less(x, all(-87.0f)), s);
}
TC_INLINE Vec log_sigmoid(Vec x) {
    return min(x, all(0.0f)) - log(all(1.0f) + exp(all(0.0f) - abs(x)));
}

// k(x) and what the methods need of it, for x a distance divided by the bandwidth.
struct DensityKernel {
    Kernel kind;

    TC_INLINE Vec inside(Vec x) { return less(x, all(1.0f)); }

    TC_INLINE_MEMBER Vec value(Vec x) const {
        if (kind == Kernel::gaussian) return exp(all(-0.5f) * x);
        const Vec k = all(1.0f) - x;
        return kind == Kernel::epanechnikov ? k : only(inside(x), k);
    }
    // k'(x), from x and k(x).
    TC_INLINE_MEMBER Vec derivative(Vec x, Vec k) const {
        if (kind == Kernel::gaussian) return all(-0.5f) * k;
        return kind == Kernel::epanechnikov ? all(-1.0f) : only(inside(x), all(-1.0f));
    }
    // log k(x), -inf where k is not positive.
    TC_INLINE_MEMBER Vec log_value(Vec x) const {
        return kind == Kernel::gaussian ? all(-0.5f) * x : log(all(1.0f) - x);
    }
    // d log k / dx, 0 where log k is -inf.
    TC_INLINE_MEMBER Vec log_derivative(Vec x) const {
        if (kind == Kernel::gaussian) return all(-0.5f);
        const Vec k = all(1.0f) - x, positive = less(all(0.0f), k);
        return only(positive, all(-1.0f) / select(positive, k, all(1.0f)));
    }
    // -k'(x) up to a constant factor (which cancels in a weighted mean), and its logarithm.
    TC_INLINE_MEMBER Vec weight(Vec x) const {
        if (kind == Kernel::gaussian) return exp(all(-0.5f) * x);
        return kind == Kernel::epanechnikov ? all(1.0f) : only(inside(x), all(1.0f));
    }
    TC_INLINE_MEMBER Vec log_weight(Vec x) const {
        if (kind == Kernel::gaussian) return all(-0.5f) * x;
        if (kind == Kernel::epanechnikov) return all(0.0f);
        return select(inside(x), all(0.0f), all(kMinusInfinity));
    }
};

}}  // namespace
