/* Sums by the processor's own instructions against the loops in C, bit by bit. Where the processor
 * has no kernel, the loops are compared with themselves. */
#include "runtime/memory/half.h"
#include "runtime/memory/host.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#define SOURCES 17 /* one more than a kernel gets */

static const lierne_dtype types[3] = {LIERNE_DTYPE_F32, LIERNE_DTYPE_BF16, LIERNE_DTYPE_F16};

static uint64_t random_bits(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 29;
}

static uint32_t bits_at(size_t size, const char *memory, size_t i) {
    uint32_t word = 0;
    memcpy(&word, memory + i * size, size);
    return word;
}

static void compare(lierne_dtype dtype, const char *simd, const char *plain, size_t n,
                    const char *what) {
    size_t size = lierne_dtype_size(dtype);
    for (size_t i = 0; i < n; i++) {
        uint32_t a = bits_at(size, simd, i), b = bits_at(size, plain, i);
        cr_assert_eq(a, b, "%s of type %d: element %zu is %x, in C %x", what, (int)dtype, i, a, b);
    }
}

static void sum_both(lierne_dtype dtype, char *simd, char *plain, const lierne_block *to,
                     const lierne_contribution *from, size_t n) {
    lierne_host_reduce_by(true, dtype, LIERNE_REDUCTION_SUM, 0, simd, to, from, n);
    lierne_host_reduce_by(false, dtype, LIERNE_REDUCTION_SUM, 0, plain, to, from, n);
}

/* Bits of zeros, subnormals, ties, the largest number, infinities and NaNs; then random ones, half
 * of them near each other, so that additions round. */
static uint32_t value(lierne_dtype dtype, uint64_t *state) {
    static const uint32_t f32[] = {0,          0x80000000, 1,          0x807fffff, 0x00800000,
                                   0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001,
                                   0xffc00000, 0x7fffffff, 0x3f800000, 0xbf800000, 0x33800000};
    static const uint32_t bf16[] = {0,      0x8000, 1,      0x807f, 0x0080, 0x7f7f, 0xff7f, 0x7f80,
                                    0xff80, 0x7f81, 0xffff, 0x3f80, 0xbf80, 0x3b80, 0x4380};
    static const uint32_t f16[] = {0,      0x8000, 1,      0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00,
                                   0xfc00, 0x7c01, 0xffff, 0x3c00, 0xbc00, 0x1000, 0x6800};
    static const uint32_t one[] = {
        [LIERNE_DTYPE_F32] = 0x3f800000, [LIERNE_DTYPE_BF16] = 0x3f80, [LIERNE_DTYPE_F16] = 0x3c00};
    uint32_t bits = (uint32_t)random_bits(state), kind = (uint32_t)(*state >> 56);
    const uint32_t *special = dtype == LIERNE_DTYPE_F32    ? f32
                              : dtype == LIERNE_DTYPE_BF16 ? bf16
                                                           : f16;
    if (kind % 8 == 0) {
        return special[bits % 15];
    }
    return kind % 2 ? bits
                    : one[dtype] ^ (bits & (dtype == LIERNE_DTYPE_F32 ? 0x80ffffffu : 0x81ffu));
}

static void fill(lierne_dtype dtype, char *memory, size_t n, uint64_t *state) {
    size_t size = lierne_dtype_size(dtype);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = value(dtype, state);
        memcpy(memory + i * size, &bits, size);
    }
}

/* Every pattern of a 16-bit type with 64 others, in sums of two, and of three, whose middle sum
 * has more bits than 16. */
static void every_pattern(lierne_dtype dtype) {
    enum { N = 65536 };
    uint16_t *x = malloc(5 * N * sizeof *x);
    char *simd = (char *)(x + 3 * N), *plain = (char *)(x + 4 * N);
    lierne_block all = lierne_block_range(0, N);
    lierne_contribution from[3] = {{x, &all}, {x + N, &all}, {x + 2 * N, &all}};
    uint64_t state = 7;
    cr_assert_not_null(x);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = (uint16_t)i;
    }
    for (int round = 0; round < 64; round++) {
        uint16_t other = (uint16_t)value(dtype, &state), third = (uint16_t)value(dtype, &state);
        for (uint32_t i = 0; i < N; i++) {
            x[N + i] = round % 2 ? other : (uint16_t)value(dtype, &state);
            x[2 * N + i] = third;
        }
        for (size_t n = 2; n <= 3; n++) {
            memset(simd, 0xa5, 4 * N);
            sum_both(dtype, simd, plain, &all, from, n);
            compare(dtype, simd, plain, N, "a sum");
        }
    }
    free(x);
}

Test(simd, every_pattern_of_16_bits_is_added_alike) {
    every_pattern(LIERNE_DTYPE_BF16);
    every_pattern(LIERNE_DTYPE_F16);
}

#ifdef __SSE2__
/* Under the setting that flushes subnormal floats to zero, f16 still has all its numbers. */
Test(simd, f16_is_added_alike_where_floats_are_flushed) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    every_pattern(LIERNE_DTYPE_F16);
    _mm_setcsr(before);
}
#endif

/* A sum of one pattern alone only converts there and back. */
Test(simd, one_contribution_is_copied) {
    for (int t = 0; t < 3; t++) {
        uint64_t state = 11;
        uint32_t x[301], simd[301], plain[301];
        lierne_block all = lierne_block_range(0, 301);
        fill(types[t], (char *)x, 301, &state);
        sum_both(types[t], (char *)simd, (char *)plain, &all, &(lierne_contribution){x, &all}, 1);
        compare(types[t], (char *)simd, (char *)plain, 301, "a copy");
    }
}

/* Sums of n contributions at a start and of a length, beside which nothing may be written. */
static void sum_at(lierne_dtype dtype, int64_t start, int64_t length, size_t n, uint64_t *state) {
    enum { ROOM = 256 };
    static char from[SOURCES][ROOM * 4], simd[ROOM * 4], plain[ROOM * 4];
    lierne_block in[SOURCES], out = lierne_block_range(start, length);
    lierne_contribution list[SOURCES];
    for (size_t k = 0; k < n; k++) {
        fill(dtype, from[k], ROOM, state);
        in[k] = lierne_block_range((start + 3 * (int64_t)k) % 16, length);
        list[k] = (lierne_contribution){from[k], &in[k]};
    }
    memset(simd, 0xa5, sizeof simd);
    memset(plain, 0xa5, sizeof plain);
    sum_both(dtype, simd, plain, &out, list, n);
    compare(dtype, simd, plain, ROOM, "a sum");
}

Test(simd, every_length_at_every_start) {
    uint64_t state = 3;
    for (int t = 0; t < 3; t++) {
        for (int64_t length = 0; length <= 200; length++) {
            for (int64_t start = 0; start < 17; start++) {
                sum_at(types[t], start, length, 1 + (size_t)(length + start) % 9, &state);
            }
        }
        for (size_t n = 1; n <= SOURCES; n++) {
            sum_at(types[t], 5, 171, n, &state);
        }
    }
}

/* Rows out of wider ones, in two and three loops, with lists, strided, and onto themselves. */
Test(simd, blocks_of_every_form) {
    enum { N = 20, M = 3, WIDE = 40, ALL = N * M * WIDE };
    static uint32_t first[ALL], second[ALL], simd[ALL], plain[ALL];
    static const int64_t rows[N] = {7, 3, 19, 0, 11, 2,  5,  17, 13, 1,
                                    4, 6, 8,  9, 10, 12, 14, 15, 16, 18};
    uint64_t state = 5;
    for (int t = 0; t < 3; t++) {
        for (int64_t width = 1; width < WIDE; width++) {
            lierne_block in_order = lierne_block_rows(0, N, width, WIDE), listed = in_order;
            lierne_block box = {.ndims = 3, .count = {M, N, width}, .stride = {N * WIDE, WIDE, 1}};
            lierne_block strided = {.ndims = 2, .count = {N, width}, .stride = {2 * WIDE, 2}};
            listed.rows = rows;
            const lierne_block *forms[][3] = {{&in_order, &listed, &strided},
                                              {&listed, &in_order, &listed},
                                              {&in_order, &listed, &in_order},
                                              {&strided, &in_order, &listed},
                                              {&box, &box, &box}};
            for (size_t f = 0; f < 5; f++) {
                for (int onto = 0; onto < 2; onto++) {
                    fill(types[t], (char *)first, ALL, &state);
                    fill(types[t], (char *)second, ALL, &state);
                    fill(types[t], (char *)simd, ALL, &state);
                    memcpy(plain, simd, sizeof plain);
                    lierne_contribution a[3] = {{onto ? (void *)simd : first,
                                                 forms[f][onto ? 0 : 1]},
                                                {second, forms[f][2]},
                                                {first, forms[f][1]}};
                    size_t n = 2 + (size_t)width % 2;
                    lierne_host_reduce_by(true, types[t], LIERNE_REDUCTION_SUM, 0, simd,
                                          forms[f][0], a, n);
                    a[0].base = onto ? plain : first;
                    lierne_host_reduce_by(false, types[t], LIERNE_REDUCTION_SUM, 0, plain,
                                          forms[f][0], a, n);
                    compare(types[t], (char *)simd, (char *)plain, ALL, "rows");
                }
            }
        }
    }
}

/* Random bits, and infinities and NaNs of both signs. */
static uint64_t wide_value(uint64_t *state) {
    static const uint64_t special[] = {0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
                                       0xfffabcdef0123456, 0x7ff0000000000001, 0,
                                       0x8000000000000000, 0x7fefffffffffffff};
    uint64_t bits = random_bits(state) << 32 ^ random_bits(state);
    return bits % 16 == 0 ? special[bits / 16 % 8] : bits;
}

Test(simd, rows_of_f64_are_added_alike) {
    enum { N = 20, WIDE = 40, ALL = N * WIDE };
    static uint64_t from[ALL], simd[ALL], plain[ALL];
    static const int64_t rows[N] = {7, 3, 19, 0, 11, 2,  5,  17, 13, 1,
                                    4, 6, 8,  9, 10, 12, 14, 15, 16, 18};
    uint64_t state = 19;
    for (int64_t width = 1; width < WIDE; width++) {
        lierne_block in_order = lierne_block_rows(0, N, width, WIDE), listed = in_order;
        listed.rows = rows;
        const lierne_block *to[] = {&in_order, &listed, &listed, &in_order};
        const lierne_block *sources[] = {&in_order, &in_order, &listed, &listed};
        for (int f = 0; f < 4; f++) {
            for (size_t i = 0; i < ALL; i++) {
                from[i] = wide_value(&state);
                simd[i] = plain[i] = wide_value(&state);
            }
            lierne_contribution a[2] = {{simd, to[f]}, {from, sources[f]}};
            lierne_host_reduce_by(true, LIERNE_DTYPE_F64, LIERNE_REDUCTION_SUM, 0, simd, to[f], a,
                                  2);
            a[0].base = plain;
            lierne_host_reduce_by(false, LIERNE_DTYPE_F64, LIERNE_REDUCTION_SUM, 0, plain, to[f], a,
                                  2);
            cr_assert_arr_eq(simd, plain, sizeof simd, "form %d, rows of %lld elements", f,
                             (long long)width);
        }
    }
}

/* Large enough to be stored past the cache, of an odd start and length. */
Test(simd, sums_past_the_cache) {
    enum { N = (4 << 20) / 2 + 4097 };
    for (int t = 0; t < 3; t++) {
        uint64_t state = 13;
        size_t size = lierne_dtype_size(types[t]);
        char *x = malloc(4 * (N + 8) * size);
        cr_assert_not_null(x);
        char *simd = x + 2 * (N + 8) * size, *plain = simd + (N + 8) * size;
        lierne_block a = lierne_block_range(1, N), b = lierne_block_range(5, N),
                     to = lierne_block_range(3, N);
        lierne_contribution from[2] = {{x, &a}, {x + N * size, &b}};
        fill(types[t], x, 2 * (N + 8), &state);
        memset(simd, 0xa5, 2 * (N + 8) * size);
        sum_both(types[t], simd, plain, &to, from, 2);
        compare(types[t], simd, plain, N + 8, "a large sum");
        free(x);
    }
}

/* Two vectors of 32 bytes are enough. */
Test(simd, rows_have_kernels_from_their_length_on) {
    bool has = lierne_simd_add_rows(LIERNE_DTYPE_F32, 1000) != NULL;
    cr_expect_eq(lierne_simd_add_rows(LIERNE_DTYPE_F32, 16) != NULL, has);
    cr_expect_eq(lierne_simd_add_rows(LIERNE_DTYPE_F64, 8) != NULL, has);
    cr_expect(!lierne_simd_add_rows(LIERNE_DTYPE_F32, 15));
    cr_expect(!lierne_simd_add_rows(LIERNE_DTYPE_F64, 7));
}

/* Maxima and minima have loops in C only, and a sum of another type has no kernel. */
Test(simd, only_sums_of_short_floats_have_kernels) {
    static const lierne_dtype others[] = {LIERNE_DTYPE_F64, LIERNE_DTYPE_I64, LIERNE_DTYPE_I32,
                                          LIERNE_DTYPE_I8, LIERNE_DTYPE_U8};
    for (size_t t = 0; t < sizeof others / sizeof *others; t++) {
        cr_assert(!lierne_simd_sum(others[t]));
    }
    for (int t = 0; t < 3; t++) {
        uint64_t state = 17;
        uint32_t x[2][64], simd[64] = {0xa5a5a5a5}, plain[64] = {0xa5a5a5a5};
        lierne_block all = lierne_block_range(0, 64);
        lierne_contribution from[2] = {{x[0], &all}, {x[1], &all}};
        fill(types[t], (char *)x[0], 64, &state);
        fill(types[t], (char *)x[1], 64, &state);
        for (int r = 1; r < 3; r++) {
            lierne_reduction reduction = r == 1 ? LIERNE_REDUCTION_MAX : LIERNE_REDUCTION_MIN;
            lierne_host_reduce_by(true, types[t], reduction, 0, simd, &all, from, 2);
            lierne_host_reduce_by(false, types[t], reduction, 0, plain, &all, from, 2);
            compare(types[t], (char *)simd, (char *)plain, 64, "an extreme");
            cr_assert_neq(memcmp(simd, x[0], 64), 0, "nothing was combined");
        }
    }
}
