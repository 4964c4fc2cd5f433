// Eight floats in an AVX2 register. Everything the kernels need of an instruction set is in this interface;
// vec_baseline.h has the same one. Included only by isa_avx2.cpp, the one file compiled with AVX2 flags.
#pragma once
#include "inlining.h"
#include <immintrin.h>

namespace torchcaps { namespace TORCHCAPS_ISA {

struct Vec {
    static constexpr int W = 8;
    __m256 v;
};

// Not _mm256_load_ps and _mm256_store_ps: their type may alias anything, and the compiler would have to read every pointer
// and size of the field again after each store.
typedef float Lanes __attribute__((vector_size(32)));
TC_INLINE Vec load(const float* p) { return {*reinterpret_cast<const Lanes*>(p)}; }
TC_INLINE Vec loadu(const float* p) { return {_mm256_loadu_ps(p)}; }
TC_INLINE void store(float* p, Vec a) { *reinterpret_cast<Lanes*>(p) = a.v; }
TC_INLINE void storeu(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
// Past the caches, for results that are not read again soon; p aligned. end_of_streams() before another thread reads them.
TC_INLINE void stream(float* p, Vec a) { _mm256_stream_ps(p, a.v); }
TC_INLINE void end_of_streams() { _mm_sfence(); }
TC_INLINE Vec all(float x) { return {_mm256_set1_ps(x)}; }
TC_INLINE Vec broadcast(const float* p) { return {_mm256_broadcast_ss(p)}; }

TC_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
TC_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
TC_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
TC_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
TC_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }     // a b + c
TC_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }   // c - a b
TC_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
TC_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
TC_INLINE Vec abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }

// a - b as a multiply-add: where a loop is full of additions, this keeps the multipliers busy instead.
TC_INLINE Vec difference(Vec a, Vec b) { return {_mm256_fmsub_ps(a.v, _mm256_set1_ps(1.0f), b.v)}; }

// Masks are Vecs whose lanes are all ones or all zeros.
TC_INLINE Vec less(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
TC_INLINE Vec differs(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_NEQ_OQ)}; }
TC_INLINE Vec only(Vec mask, Vec a) { return {_mm256_and_ps(mask.v, a.v)}; }              // a where mask, else 0
TC_INLINE Vec select(Vec mask, Vec a, Vec b) { return {_mm256_blendv_ps(b.v, a.v, mask.v)}; }
TC_INLINE bool any(Vec mask) { return _mm256_movemask_ps(mask.v) != 0; }

// c, negated where z is negative.
TC_INLINE Vec flip(Vec c, Vec z) { return {_mm256_xor_ps(c.v, _mm256_and_ps(z.v, _mm256_set1_ps(-0.0f)))}; }

// 2^n for the whole number n held in the low bits of t = n + 1.5 * 2^23 (-126 <= n <= 127).
TC_INLINE Vec power_of_two(Vec t) {
    const __m256i n = _mm256_add_epi32(_mm256_castps_si256(t.v), _mm256_set1_epi32(127));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(n, 23))};
}
// a = m 2^e with m in [0.5, 1), for positive normal a.
TC_INLINE Vec exponent(Vec a) {
    const __m256i e = _mm256_srli_epi32(_mm256_castps_si256(a.v), 23);
    return {_mm256_cvtepi32_ps(_mm256_sub_epi32(e, _mm256_set1_epi32(126)))};
}
TC_INLINE Vec mantissa(Vec a) {
    const __m256 bits = _mm256_and_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(0x007fffff)));
    return {_mm256_or_ps(bits, _mm256_castsi256_ps(_mm256_set1_epi32(0x3f000000)))};
}

// Horizontal results of four vectors at once: out[r] belongs to the r-th argument.
TC_INLINE void sum_lanes4(Vec a, Vec b, Vec c, Vec d, float* out) {
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a.v, b.v), _mm256_hadd_ps(c.v, d.v));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}
// Of eight, with as few shuffles as it takes: they are the bottleneck.
TC_INLINE void sum_lanes8(const Vec* v, float* out) {
    __m256 t[4];
    for (int k = 0; k < 4; ++k)   // lower half: both halves of v[k] added; upper half: those of v[k + 4]
        t[k] = _mm256_add_ps(_mm256_blend_ps(v[k].v, v[k + 4].v, 0xf0), _mm256_permute2f128_ps(v[k].v, v[k + 4].v, 0x21));
    const __m256 s = _mm256_add_ps(_mm256_blend_ps(t[0], t[1], 0xcc), _mm256_shuffle_ps(t[0], t[1], 0x4e));
    const __m256 r = _mm256_add_ps(_mm256_blend_ps(t[2], t[3], 0xcc), _mm256_shuffle_ps(t[2], t[3], 0x4e));
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_shuffle_ps(s, r, 0x88), _mm256_shuffle_ps(s, r, 0xdd)));
}
TC_INLINE __m256 max_pairs(__m256 a, __m256 b) {
    return _mm256_max_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
TC_INLINE void max_lanes4(Vec a, Vec b, Vec c, Vec d, float* out) {
    const __m256 m = max_pairs(max_pairs(a.v, b.v), max_pairs(c.v, d.v));
    _mm_storeu_ps(out, _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1)));
}

// Rows become columns of a W x W matrix.
TC_INLINE void transpose(Vec* m) {
    __m256 t[8], s[8];
    for (int k = 0; k < 4; ++k) {
        t[2 * k] = _mm256_unpacklo_ps(m[2 * k].v, m[2 * k + 1].v);
        t[2 * k + 1] = _mm256_unpackhi_ps(m[2 * k].v, m[2 * k + 1].v);
    }
    for (int k = 0; k < 2; ++k) {
        s[4 * k] = _mm256_shuffle_ps(t[4 * k], t[4 * k + 2], 0x44);
        s[4 * k + 1] = _mm256_shuffle_ps(t[4 * k], t[4 * k + 2], 0xee);
        s[4 * k + 2] = _mm256_shuffle_ps(t[4 * k + 1], t[4 * k + 3], 0x44);
        s[4 * k + 3] = _mm256_shuffle_ps(t[4 * k + 1], t[4 * k + 3], 0xee);
    }
    for (int k = 0; k < 4; ++k) {
        m[k].v = _mm256_permute2f128_ps(s[k], s[k + 4], 0x20);
        m[k + 4].v = _mm256_permute2f128_ps(s[k], s[k + 4], 0x31);
    }
}

}}  // namespace
