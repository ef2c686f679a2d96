/* f16 and bf16 to float and back, in integer arithmetic, so that results do not depend on the
 * compiler or the processor. Rounding is to nearest, ties to even; every NaN becomes the canonical
 * one: which of two NaNs an addition passes on, and which sign an invalid one gives, differs
 * between processors, and between the loops of one compiler.
 * Inline and without branches, so that compilers vectorise loops over them: sums of 16-bit types
 * spend their time here. */
#ifndef LIERNE_HALF_H
#define LIERNE_HALF_H

#include <stdint.h>
#include <string.h>

/* Functions that CUDA kernels call, too. */
#ifdef __CUDACC__
#define LIERNE_INLINE static __forceinline__ __host__ __device__
#else
#define LIERNE_INLINE static inline
#endif

LIERNE_INLINE float lierne_bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

LIERNE_INLINE uint32_t lierne_float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The value, or the canonical NaN in place of any other. */
LIERNE_INLINE float lierne_f32_canonical(float value) {
    return value == value ? value : lierne_bits_to_float(0x7fc00000u);
}

LIERNE_INLINE double lierne_f64_canonical(double value) {
    const uint64_t bits = (uint64_t)0x7ff8 << 48;
    double nan;
    memcpy(&nan, &bits, sizeof nan);
    return value == value ? value : nan;
}

LIERNE_INLINE float lierne_bf16_to_float(uint16_t bits) {
    return lierne_bits_to_float((uint32_t)bits << 16);
}

LIERNE_INLINE uint16_t lierne_bf16_from_float(float value) {
    uint32_t bits = lierne_float_to_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : rounded);
}

/* Shifting exponent and fraction into place leaves the exponent 112 too small. A subnormal becomes
 * the fraction of 2^-14 instead, which is then subtracted: no intermediate value is a subnormal
 * float, which a process that flushes those to zero would lose. Infinities and NaNs get the largest
 * exponent. */
LIERNE_INLINE float lierne_f16_to_float(uint16_t bits) {
    uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, sign = (uint32_t)(bits & 0x8000) << 16;
    float fraction = lierne_bits_to_float(magnitude + 0x38800000u) - 0x1p-14f;
    uint32_t finite = magnitude + 0x38000000u, special = magnitude | 0x7f800000u;
    finite = magnitude < 0x00800000u ? lierne_float_to_bits(fraction) : finite;
    return lierne_bits_to_float(sign | (magnitude >= 0x0f800000u ? special : finite));
}

LIERNE_INLINE uint16_t lierne_f16_from_float(float value) {
    uint32_t bits = lierne_float_to_bits(value), sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffffu;
    /* Below 2^-14, adding 0.5 rounds at the bit 2^-24. */
    uint32_t tiny = lierne_float_to_bits(lierne_bits_to_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
    uint32_t result = magnitude < 0x38800000u ? tiny : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00 : result; /* 65520 and up rounds to infinity */
    return (uint16_t)(magnitude > 0x7f800000u ? 0x7e00 : sign | result);
}

#endif
