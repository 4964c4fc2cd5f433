// Four floats in plain C++ with the compiler's portable vector type (GCC, Clang): SSE2 on x86-64, NEON on ARM,
// scalar code elsewhere. Same interface as vec_avx2.h.
#pragma once
#include "inlining.h"
#include <cstdint>
#include <cstring>

namespace torchcaps { namespace TORCHCAPS_ISA {

typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));

struct Vec {
    static constexpr int W = 4;
    Floats v;
};

TC_INLINE Vec loadu(const float* p) { Vec a; std::memcpy(&a.v, p, sizeof a.v); return a; }
TC_INLINE void storeu(float* p, Vec a) { std::memcpy(p, &a.v, sizeof a.v); }
TC_INLINE Vec load(const float* p) { return {*reinterpret_cast<const Floats*>(__builtin_assume_aligned(p, 16))}; }
TC_INLINE void store(float* p, Vec a) { *reinterpret_cast<Floats*>(__builtin_assume_aligned(p, 16)) = a.v; }
// Past the caches where the machine can, for results that are not read again soon; p aligned.
TC_INLINE void stream(float* p, Vec a) { store(p, a); }
TC_INLINE void end_of_streams() {}
TC_INLINE Vec all(float x) { return {Floats{x, x, x, x}}; }
TC_INLINE Vec broadcast(const float* p) { return all(*p); }

TC_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
TC_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
TC_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
TC_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
TC_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }     // a b + c
TC_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {c.v - a.v * b.v}; }    // c - a b

TC_INLINE Vec difference(Vec a, Vec b) { return a - b; }   // where a machine could do better than a subtraction

TC_INLINE Vec from_bits(Ints bits) { return {reinterpret_cast<Floats>(bits)}; }
TC_INLINE Ints bits_of(Vec a) { return reinterpret_cast<Ints>(a.v); }
TC_INLINE Ints ints(int32_t x) { return Ints{x, x, x, x}; }

// Masks are Vecs whose lanes are all ones or all zeros.
TC_INLINE Vec less(Vec a, Vec b) { return from_bits(a.v < b.v); }
TC_INLINE Vec differs(Vec a, Vec b) { return from_bits(a.v != b.v); }
TC_INLINE Vec only(Vec mask, Vec a) { return from_bits(bits_of(mask) & bits_of(a)); }      // a where mask, else 0
TC_INLINE Vec select(Vec mask, Vec a, Vec b) {
    return from_bits((bits_of(mask) & bits_of(a)) | (~bits_of(mask) & bits_of(b)));
}
TC_INLINE bool any(Vec mask) {
    const Ints m = bits_of(mask);
    return (m[0] | m[1] | m[2] | m[3]) != 0;
}
TC_INLINE Vec max(Vec a, Vec b) { return select(less(b, a), a, b); }
TC_INLINE Vec min(Vec a, Vec b) { return select(less(a, b), a, b); }
TC_INLINE Vec abs(Vec a) { return from_bits(bits_of(a) & ints(0x7fffffff)); }

// c, negated where z is negative.
TC_INLINE Vec flip(Vec c, Vec z) { return from_bits(bits_of(c) ^ (bits_of(z) & ints(INT32_MIN))); }

// 2^n for the whole number n held in the low bits of t = n + 1.5 * 2^23 (-126 <= n <= 127).
TC_INLINE Vec power_of_two(Vec t) {
    typedef uint32_t Unsigned __attribute__((vector_size(16)));   // a shift that may pass the sign bit
    const Unsigned n = reinterpret_cast<Unsigned>(bits_of(t)) + Unsigned{127, 127, 127, 127};
    return from_bits(reinterpret_cast<Ints>(n << 23));
}
// a = m 2^e with m in [0.5, 1), for positive normal a.
TC_INLINE Vec exponent(Vec a) { return {__builtin_convertvector((bits_of(a) >> 23) - ints(126), Floats)}; }
TC_INLINE Vec mantissa(Vec a) { return from_bits((bits_of(a) & ints(0x007fffff)) | ints(0x3f000000)); }

// Horizontal results of four vectors at once: out[r] belongs to the r-th argument.
TC_INLINE float sum_of(Vec a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }
TC_INLINE float larger(float a, float b) { return a > b ? a : b; }
TC_INLINE float max_of(Vec a) { return larger(larger(a.v[0], a.v[1]), larger(a.v[2], a.v[3])); }
TC_INLINE void sum_lanes4(Vec a, Vec b, Vec c, Vec d, float* out) {
    out[0] = sum_of(a); out[1] = sum_of(b); out[2] = sum_of(c); out[3] = sum_of(d);
}
TC_INLINE void sum_lanes8(const Vec* v, float* out) {
    for (int k = 0; k < 8; ++k) out[k] = sum_of(v[k]);
}
TC_INLINE void max_lanes4(Vec a, Vec b, Vec c, Vec d, float* out) {
    out[0] = max_of(a); out[1] = max_of(b); out[2] = max_of(c); out[3] = max_of(d);
}

// Rows become columns of a W x W matrix.
TC_INLINE void transpose(Vec* m) {
    for (int r = 0; r < Vec::W; ++r)
        for (int c = r + 1; c < Vec::W; ++c) {
            const float upper = m[r].v[c];
            m[r].v[c] = m[c].v[r];
            m[c].v[r] = upper;
        }
}

}}  // namespace
