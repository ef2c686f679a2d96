/* Rows added to rows by AVX2, with the bits of the loops in host_rows.c.
 *
 * A NaN among the sums of a row is found once, after the row: only then is the row read again to
 * make its NaNs canonical. A test per sum took as long as the additions. */
#include "runtime/memory/half.h"
#include "runtime/memory/rows.h"

#ifdef __x86_64__
#include <immintrin.h>

/* Two numbers are unordered if either is NaN: one comparison serves two vectors. */
#define ADD_ROWS(name, type, suffix, vector, CANONICAL)                                            \
    __attribute__((target("avx2"))) static void add_##name(const lierne_rows *to,                  \
                                                           const lierne_rows *from, int64_t n,     \
                                                           int64_t width) {                        \
        const int64_t lanes = (int64_t)(sizeof(vector) / sizeof(type));                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type *t = (type *)(void *)lierne_rows_at(to, i);                                       \
            const type *f = (const type *)(const void *)lierne_rows_at(from, i);                   \
            vector nan = _mm256_setzero_##suffix();                                                \
            int64_t k = 0;                                                                         \
            lierne_rows_prefetch(to, i, n, (size_t)width * sizeof *t);                             \
            for (; k + 2 * lanes <= width; k += 2 * lanes) {                                       \
                vector a = _mm256_add_##suffix(_mm256_loadu_##suffix(t + k),                       \
                                               _mm256_loadu_##suffix(f + k));                      \
                vector b = _mm256_add_##suffix(_mm256_loadu_##suffix(t + k + lanes),               \
                                               _mm256_loadu_##suffix(f + k + lanes));              \
                _mm256_storeu_##suffix(t + k, a);                                                  \
                _mm256_storeu_##suffix(t + k + lanes, b);                                          \
                nan = _mm256_or_##suffix(nan, _mm256_cmp_##suffix(a, b, _CMP_UNORD_Q));            \
            }                                                                                      \
            for (int64_t j = _mm256_movemask_##suffix(nan) ? 0 : k; j < k; j++) {                  \
                t[j] = CANONICAL(t[j]);                                                            \
            }                                                                                      \
            for (; k < width; k++) {                                                               \
                t[k] = CANONICAL(t[k] + f[k]);                                                     \
            }                                                                                      \
        }                                                                                          \
    }

ADD_ROWS(f64, double, pd, __m256d, lierne_f64_canonical)
ADD_ROWS(f32, float, ps, __m256, lierne_f32_canonical)

lierne_rows_kernel *lierne_simd_add_rows(lierne_dtype dtype, int64_t width) {
    bool pays = width * (int64_t)lierne_dtype_size(dtype) >= 2 * (int64_t)sizeof(__m256);
    if (!pays || !__builtin_cpu_supports("avx2")) {
        return NULL;
    }
    return dtype == LIERNE_DTYPE_F64 ? add_f64 : dtype == LIERNE_DTYPE_F32 ? add_f32 : NULL;
}
#else
lierne_rows_kernel *lierne_simd_add_rows(lierne_dtype dtype, int64_t width) {
    (void)dtype, (void)width;
    return NULL;
}
#endif
