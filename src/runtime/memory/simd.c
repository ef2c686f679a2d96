/* Sums by AVX2 and F16C, where the processor has both: it is asked when the program runs, so that
 * the library itself is built for any processor. The bits are those of the loops in host_sums.c.
 *
 * A few vectors of the sum stay in registers while all contributions are added to them. So every
 * contribution is read once, the sum is written once, and nothing lies between. */
#include "runtime/memory/simd.h"
#include "runtime/memory/half.h"

/* Older compilers cannot ask whether there is F16C: with them the loops in C serve. */
#if defined __x86_64__ && (__clang_major__ >= 18 || (!defined __clang__ && __GNUC__ >= 11))
#include <immintrin.h>

#define SIMD static inline __attribute__((target("avx2,f16c")))

/* 16 elements as float32, in any order that the same type's store2 knows. */
typedef struct pair {
    __m256 a, b;
} pair;

SIMD pair add2(pair x, pair y) {
    return (pair){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}

/* As lierne_f32_canonical, eight at once. */
SIMD __m256 canonical(__m256 sum) {
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(sum, nan, _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
}

/* Two numbers are unordered if either is NaN: one comparison serves both vectors. */
SIMD pair canonical2(pair sum) {
    if (_mm256_movemask_ps(_mm256_cmp_ps(sum.a, sum.b, _CMP_UNORD_Q))) {
        return (pair){canonical(sum.a), canonical(sum.b)};
    }
    return sum;
}

SIMD __m256 load_f32(const float *from) {
    return _mm256_loadu_ps(from);
}

SIMD void store_f32(float *to, __m256 sum) {
    _mm256_storeu_ps(to, sum);
}

SIMD __m256 load_f16(const uint16_t *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

SIMD void store_f16(uint16_t *to, __m256 sum) {
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT));
}

#define IN_ORDER(name, type)                                                                       \
    SIMD pair load2_##name(const type *from) {                                                     \
        return (pair){load_##name(from), load_##name(from + 8)};                                   \
    }                                                                                              \
    SIMD void store2_##name(type *to, pair sum) {                                                  \
        store_##name(to, sum.a);                                                                   \
        store_##name(to + 8, sum.b);                                                               \
    }
IN_ORDER(f32, float)
IN_ORDER(f16, uint16_t)

SIMD __m256 load_bf16(const uint16_t *from) {
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)from);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* As lierne_bf16_from_float, eight at once, in the high halves of the words. The canonical NaN has
 * zeros in its low half, from where rounding carries nothing. */
SIMD __m256i round_bf16(__m256 sum) {
    __m256i bits = _mm256_castps_si256(sum);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

SIMD void store_bf16(uint16_t *to, __m256 sum) {
    __m256i words = _mm256_srli_epi32(round_bf16(sum), 16);
    __m256i packed = _mm256_packus_epi32(words, words); /* per half of the vector */
    packed = _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(packed));
}

/* The even elements and the odd ones: the low and the high halves of words, without shuffling. */
SIMD pair load2_bf16(const uint16_t *from) {
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)from);
    __m256i odd = _mm256_and_si256(bits, _mm256_set1_epi32((int)0xffff0000));
    return (pair){_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)), _mm256_castsi256_ps(odd)};
}

SIMD void store2_bf16(uint16_t *to, pair sum) {
    __m256i even = _mm256_srli_epi32(round_bf16(sum.a), 16);
    __m256i both = _mm256_blend_epi16(even, round_bf16(sum.b), 0xaa);
    _mm256_storeu_si256((__m256i *)(void *)to, both);
}

/* Four vectors at once hide the latency of the additions; then one, then what is left. */
#define SUM(name, type, WIDEN, NARROW)                                                             \
    __attribute__((target("avx2,f16c"))) static void sum_##name(void *to, const void *const *from, \
                                                                size_t n, size_t count) {          \
        type *t = to;                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 32 <= count; i += 32) {                                                         \
            const type *x = (const type *)from[0] + i;                                             \
            pair sum = load2_##name(x), next = load2_##name(x + 16);                               \
            for (size_t k = 1; k < n; k++) {                                                       \
                x = (const type *)from[k] + i;                                                     \
                sum = add2(sum, load2_##name(x));                                                  \
                next = add2(next, load2_##name(x + 16));                                           \
            }                                                                                      \
            store2_##name(t + i, canonical2(sum));                                                 \
            store2_##name(t + i + 16, canonical2(next));                                           \
        }                                                                                          \
        for (; i + 8 <= count; i += 8) {                                                           \
            __m256 sum = load_##name((const type *)from[0] + i);                                   \
            for (size_t k = 1; k < n; k++) {                                                       \
                sum = _mm256_add_ps(sum, load_##name((const type *)from[k] + i));                  \
            }                                                                                      \
            store_##name(t + i, canonical(sum));                                                   \
        }                                                                                          \
        for (; i < count; i++) {                                                                   \
            float sum = WIDEN(((const type *)from[0])[i]);                                         \
            for (size_t k = 1; k < n; k++) {                                                       \
                sum += WIDEN(((const type *)from[k])[i]);                                          \
            }                                                                                      \
            t[i] = NARROW(sum);                                                                    \
        }                                                                                          \
    }

SUM(f32, float, , lierne_f32_canonical)
SUM(f16, uint16_t, lierne_f16_to_float, lierne_f16_from_float)
SUM(bf16, uint16_t, lierne_bf16_to_float, lierne_bf16_from_float)

lierne_sum_kernel *lierne_simd_sum(lierne_dtype dtype) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) {
        return NULL;
    }
    switch (dtype) {
    case LIERNE_DTYPE_F32:
        return sum_f32;
    case LIERNE_DTYPE_F16:
        return sum_f16;
    case LIERNE_DTYPE_BF16:
        return sum_bf16;
    default:
        return NULL;
    }
}
#else
lierne_sum_kernel *lierne_simd_sum(lierne_dtype dtype) {
    (void)dtype;
    return NULL;
}
#endif
