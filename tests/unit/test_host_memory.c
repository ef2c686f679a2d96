/* Copies and sums of every element type against plain loops; conversions of every 16-bit pattern.
 */
#include "base/base.h"
#include "runtime/memory/half.h"
#include "runtime/memory/host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

/* f16 by the definition: sign, exponent, fraction. */
static double f16(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static void convert_every_f16(void) {
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t bits = (uint16_t)i;
        float value = lierne_f16_to_float(bits);
        if ((bits & 0x7fff) > 0x7c00) {
            cr_assert(isnan(value));
            cr_assert((lierne_f16_from_float(value) & 0x7fff) > 0x7c00);
            continue;
        }
        if ((bits & 0x7fff) == 0x7c00) {
            cr_assert(isinf(value));
        } else {
            cr_assert((double)value == f16(bits), "%04x", bits);
        }
        cr_assert_eq(lierne_f16_from_float(value), bits, "%04x", bits);
    }
}

Test(host_memory, every_f16_pattern_converts_both_ways) {
    convert_every_f16();
}

#ifdef __SSE2__
/* What flushes subnormal floats to zero, as torch.set_flush_denormal and -ffast-math do, flushes no
 * number of 16 bits. */
Test(host_memory, f16_is_not_flushed_with_the_floats) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    convert_every_f16();
    _mm_setcsr(before);
}
#endif

Test(host_memory, every_bf16_pattern_converts_both_ways) {
    for (uint32_t i = 0; i < 0x10000; i++) {
        float value = lierne_bf16_to_float((uint16_t)i);
        uint32_t bits = i << 16;
        cr_assert_eq(memcmp(&value, &bits, 4), 0);
        if (!isnan(value)) {
            cr_assert_eq(lierne_bf16_from_float(value), i);
        } else {
            cr_assert(isnan(lierne_bf16_to_float(lierne_bf16_from_float(value))));
        }
    }
}

/* The nearest of both neighbours, ties to the even one: for values around every pattern. */
Test(host_memory, rounding_is_to_nearest_even) {
    for (uint32_t i = 0; i < 0x7bff; i++) {
        double low = f16((uint16_t)i), high = f16((uint16_t)(i + 1)), middle = (low + high) / 2;
        uint32_t even = i % 2 ? i + 1 : i;
        cr_assert_eq(lierne_f16_from_float((float)middle), even, "between %x and %x", i, i + 1);
        cr_assert_eq(lierne_f16_from_float(nextafterf((float)middle, 1e9f)), i + 1);
        cr_assert_eq(lierne_f16_from_float(nextafterf((float)middle, -1e9f)), i);
        cr_assert_eq(lierne_f16_from_float((float)-middle), even | 0x8000);
    }
    cr_assert_eq(lierne_f16_from_float(65519.996f), 0x7bff);
    cr_assert_eq(lierne_f16_from_float(65520.0f), 0x7c00);
    cr_assert_eq(lierne_bf16_from_float(1.00390625f), 0x3f80, "a tie goes to even");
    cr_assert_eq(lierne_bf16_from_float(1.01171875f), 0x3f82, "a tie goes to even");
}

static lierne_block block3(int64_t offset, int64_t a, int64_t sa, int64_t b, int64_t sb, int64_t n,
                           int64_t sn) {
    return (lierne_block){.offset = offset, .ndims = 3, .count = {a, b, n}, .stride = {sa, sb, sn}};
}

Test(host_memory, copies_of_every_size_touch_their_block_only) {
    static const size_t sizes[4] = {1, 2, 4, 8};
    for (int k = 0; k < 4; k++) {
        for (int64_t inner = 1; inner <= 2; inner++) { /* contiguous and strided runs */
            size_t size = sizes[k];
            unsigned char from[4096], to[4096], want[4096];
            for (int i = 0; i < 4096; i++) {
                from[i] = (unsigned char)(i * 7 + 1);
            }
            memset(to, 0xa5, sizeof to);
            memset(want, 0xa5, sizeof want);
            lierne_block a = block3(3, 2, 90, 3, 30, 5, inner), b = block3(7, 2, 100, 3, 20, 5, 2);
            lierne_host_copy(size, to, &b, from, &a);
            for (size_t i = 0; i < 2; i++) {
                for (size_t j = 0; j < 3; j++) {
                    for (size_t l = 0; l < 5; l++) {
                        memcpy(want + (7 + i * 100 + j * 20 + l * 2) * size,
                               from + (3 + i * 90 + j * 30 + l * (size_t)inner) * size, size);
                    }
                }
            }
            cr_assert_eq(memcmp(to, want, sizeof to), 0, "size %zu", size);
        }
    }
}

/* n runs of `run` elements from rows that are `gap` elements wider into packed ones or back, in
 * order or by a list: what lands where, and nothing beside it. */
static void copy_runs(size_t size, int64_t run, int64_t gap, int64_t n, bool listed, bool unpack) {
    enum { ROWS = 70, ROOM = ROWS * 1600 };
    static unsigned char from[ROOM], to[ROOM], want[ROOM];
    int64_t rows[ROWS];
    lierne_block wide = lierne_block_rows(0, n, run, run + gap), packed = wide;
    size_t bytes = (size_t)run * size, step = (size_t)(run + gap) * size;
    packed.stride[0] = run;
    for (int64_t i = 0; i < n; i++) {
        rows[i] = listed ? (i * 37 + 11) % n : i; /* n is no multiple of 37 */
    }
    wide.rows = listed ? rows : NULL;
    for (size_t i = 0; i < ROOM; i++) {
        from[i] = (unsigned char)(i * 31 + i / 251 + 1);
        to[i] = want[i] = 0xa5;
    }
    for (size_t i = 0; i < (size_t)n; i++) {
        size_t there = (size_t)rows[i] * step, here = i * bytes;
        memcpy(want + (unpack ? there : here), from + (unpack ? here : there), bytes);
    }
    lierne_host_copy(size, to, unpack ? &wide : &packed, from, unpack ? &packed : &wide);
    cr_assert_eq(memcmp(to, want, ROOM), 0, "%d runs of %zu bytes", (int)n, bytes);
}

Test(host_memory, short_runs_of_every_length) {
    static const size_t sizes[4] = {1, 2, 4, 8};
    static const int64_t counts[6] = {1, 2, 15, 32, 49, 70};
    for (int k = 0; k < 4; k++) {
        int64_t size = (int64_t)sizes[k];
        for (int64_t run = 1; run * size <= 80; run++) {
            for (int c = 0; c < 6; c++) {
                for (int form = 0; form < 4; form++) {
                    copy_runs(sizes[k], run, 3, counts[c], form & 1, form & 2);
                }
            }
        }
        copy_runs(sizes[k], 8 / size, 1500 / size, 70, true, false); /* a list that jumps */
        copy_runs(sizes[k], 8 / size, 1500 / size, 70, true, true);
    }
}

/* Rows of one element are added by loops of their own. */
Test(host_memory, single_elements_are_added_by_list) {
    enum { ROWS = 70, STEP = 200 };
    double to[ROWS * STEP], want[ROWS * STEP], from[ROWS];
    int64_t rows[ROWS];
    lierne_block listed = lierne_block_rows(0, ROWS, 1, STEP);
    lierne_block packed = lierne_block_rows(0, ROWS, 1, 1);
    listed.rows = rows;
    for (int i = 0; i < ROWS * STEP; i++) {
        to[i] = want[i] = i % 89 - 3;
    }
    for (int i = 0; i < ROWS; i++) {
        rows[i] = (i * 37 + 11) % ROWS;
        from[i] = 3 * i + 1;
        want[rows[i] * STEP] += from[i];
    }
    lierne_contribution s[2] = {{to, &listed}, {from, &packed}};
    lierne_host_reduce(LIERNE_DTYPE_F64, LIERNE_REDUCTION_SUM, 0, to, &listed, s, 2);
    cr_assert_eq(memcmp(to, want, sizeof to), 0);
}

/* Three contributions whose sum depends on the order and on how often it is rounded. */
Test(host_memory, sums_keep_the_order_and_round_once) {
    float a[1] = {1e8f}, b[1] = {-1e8f}, c[1] = {1}, out[1];
    lierne_block one = lierne_block_range(0, 1);
    lierne_contribution abc[3] = {{a, &one}, {b, &one}, {c, &one}};
    lierne_contribution acb[3] = {{a, &one}, {c, &one}, {b, &one}};
    lierne_host_reduce(LIERNE_DTYPE_F32, LIERNE_REDUCTION_SUM, 0, out, &one, abc, 3);
    cr_assert(out[0] == 1.0f);
    lierne_host_reduce(LIERNE_DTYPE_F32, LIERNE_REDUCTION_SUM, 0, out, &one, acb, 3);
    cr_assert(out[0] == 0.0f);
    /* bf16: 256 + 1 + 1 is 258 when rounded once and 256 when rounded after each addition. */
    uint16_t big[1] = {0x4380}, small[1] = {0x3f80}, sum[1];
    lierne_contribution bf[3] = {{big, &one}, {small, &one}, {small, &one}};
    lierne_host_reduce(LIERNE_DTYPE_BF16, LIERNE_REDUCTION_SUM, 0, sum, &one, bf, 3);
    cr_assert_eq(sum[0], 0x4381);
    uint16_t f16_big[1] = {0x6800}, f16_small[1] = {0x3c00}; /* 2048 + 1 + 1 */
    lierne_contribution f[3] = {{f16_big, &one}, {f16_small, &one}, {f16_small, &one}};
    lierne_host_reduce(LIERNE_DTYPE_F16, LIERNE_REDUCTION_SUM, 0, sum, &one, f, 3);
    cr_assert_eq(sum[0], 0x6801);
}

Test(host_memory, sums_of_every_type_over_long_strided_blocks) {
    enum { N = 1400 };
    static const lierne_dtype types[5] = {LIERNE_DTYPE_F64, LIERNE_DTYPE_F32, LIERNE_DTYPE_I64,
                                          LIERNE_DTYPE_I32, LIERNE_DTYPE_I8};
    for (int t = 0; t < 5; t++) {
        size_t size = lierne_dtype_size(types[t]);
        unsigned char *x = calloc(4 * N, size), *out = malloc(2 * N * size);
        for (int i = 0; i < 4 * N; i++) {
            double d = i % 31 - 15;
            float f = (float)d;
            int64_t l = i % 31 - 15;
            int32_t w = i % 31 - 15;
            int8_t c = (int8_t)(i % 31 - 15);
            const void *from[5] = {&d, &f, &l, &w, &c};
            memcpy(x + (size_t)i * size, from[t], size);
        }
        lierne_block a = lierne_block_range(0, N), b = a, to = a;
        b.offset = 1, b.stride[0] = 2;
        to.stride[0] = 2;
        lierne_contribution s[3] = {{x, &a}, {x, &b}, {x + (size_t)N * size, &a}};
        memset(out, 0xa5, 2 * N * size);
        lierne_host_reduce(types[t], LIERNE_REDUCTION_SUM, 0, out, &to, s, 3);
        for (int i = 0; i < N; i++) {
            int want = i % 31 - 15 + (2 * i + 1) % 31 - 15 + (i + N) % 31 - 15;
            double d = want;
            float f = (float)want;
            int64_t l = want;
            int32_t w = want;
            int8_t c = (int8_t)want;
            const void *expect[5] = {&d, &f, &l, &w, &c};
            cr_assert_eq(memcmp(out + 2 * (size_t)i * size, expect[t], size), 0, "type %d at %d", t,
                         i);
            cr_assert_eq(out[(2 * (size_t)i + 1) * size], 0xa5, "a gap was written");
        }
        free(x), free(out);
    }
}

Test(host_memory, integers_wrap) {
    int32_t a[1] = {INT32_MAX}, b[1] = {2}, out[1];
    uint8_t u[1] = {250}, v[1] = {10}, w[1];
    lierne_block one = lierne_block_range(0, 1);
    lierne_host_reduce(LIERNE_DTYPE_I32, LIERNE_REDUCTION_SUM, 0, out, &one,
                       (lierne_contribution[]){{a, &one}, {b, &one}}, 2);
    cr_assert_eq(out[0], INT32_MIN + 1);
    lierne_host_reduce(LIERNE_DTYPE_U8, LIERNE_REDUCTION_SUM, 0, w, &one,
                       (lierne_contribution[]){{u, &one}, {v, &one}}, 2);
    cr_assert_eq(w[0], 4);
}

static void multiply(lierne_dtype dtype, void *out, const void *a, const void *b, const void *c) {
    lierne_block one = lierne_block_range(0, 1);
    const lierne_contribution from[3] = {{a, &one}, {b, &one}, {c, &one}};
    memset(out, 0xa5, lierne_dtype_size(dtype));
    lierne_host_reduce(dtype, LIERNE_REDUCTION_PROD, 0, out, &one, from, 3);
}

/* 300 * 300 is infinite in f16, and 1e200 * 1e200 in f64: only in this order is a product finite.
 */
Test(host_memory, products_keep_the_order_and_round_once) {
    const double d[3] = {1e200, 1e-100, 1e200}, dd = 1e200 * 1e-100 * 1e200;
    const float f[3] = {0.1f, 0.7f, 3.3f}, ff = 0.1f * 0.7f * 3.3f;
    const uint16_t h[3] = {0x5cb0, 0x5cb0, 0x2c00}, hh = 0x6d7e; /* 300 * 300 / 16 */
    const uint16_t b[3] = {0x3f81, 0x3f81, 0x3f81}, bb = 0x3f83; /* (1 + 1/128)^3 */
    const int64_t l[3] = {INT64_MAX, 3, 1}, ll = INT64_MAX - 2;
    const int32_t w[3] = {INT32_MAX, -7, 2}, ww = 14;
    const int8_t s[3] = {100, 3, -1}, ss = -44;
    const uint8_t u[3] = {200, 2, 1}, uu = 144;
    const void *from[8] = {d, f, b, h, l, w, s, u};
    const void *wanted[8] = {&dd, &ff, &bb, &hh, &ll, &ww, &ss, &uu};
    for (int t = 0; t < 8; t++) {
        lierne_dtype dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + t);
        size_t size = lierne_dtype_size(dtype);
        const char *x = from[t];
        char out[8];
        multiply(dtype, out, x, x + size, x + 2 * size);
        cr_expect_eq(memcmp(out, wanted[t], size), 0, "%s", lierne_dtype_name(dtype));
    }
}

/* 2048 + 1 + 1 + 1 over 3 is 683.5 in f16 when it is rounded once, and 684 when the sum is rounded
 * first. One source is divided, too, and into its own place. */
Test(host_memory, a_divisor_divides_before_rounding) {
    lierne_block one = lierne_block_range(0, 1);
    uint16_t h[4] = {0x6800, 0x3c00, 0x3c00, 0x3c00}, b[1] = {0x4040}; /* bf16 3 */
    float f[2] = {1.0f, 6.0f}, out;
    double d[2] = {1.0, 6.0};
    lierne_contribution from[4];
    for (int i = 0; i < 4; i++) {
        from[i] = (lierne_contribution){h + i, &one};
    }
    lierne_host_reduce(LIERNE_DTYPE_F16, LIERNE_REDUCTION_SUM, 3, h, &one, from, 4);
    cr_expect_eq(h[0], 0x6157, "%04x", h[0]);
    lierne_host_reduce(LIERNE_DTYPE_BF16, LIERNE_REDUCTION_SUM, 2, b, &one,
                       &(lierne_contribution){b, &one}, 1);
    cr_expect_eq(b[0], 0x3fc0, "%04x", b[0]);
    lierne_host_reduce(LIERNE_DTYPE_F32, LIERNE_REDUCTION_SUM, 5, &out, &one,
                       (lierne_contribution[]){{f, &one}, {f + 1, &one}}, 2);
    cr_expect(out == 7.0f / 5.0f);
    lierne_host_reduce(LIERNE_DTYPE_F64, LIERNE_REDUCTION_SUM, 2, d, &one,
                       (lierne_contribution[]){{d, &one}, {d + 1, &one}}, 2);
    cr_expect(d[0] == 3.5);
}

/* Element i of the loops of a block, the last one fastest. */
static size_t element_of(const lierne_block *b, int64_t i) {
    int64_t at = b->offset;
    for (int d = b->ndims - 1; d >= 0; d--) {
        at += i % b->count[d] * b->stride[d];
        i /= b->count[d];
    }
    return (size_t)at;
}

/* A block of `ndims` loops whose runs have `run` elements, with gaps between them and between all
 * outer loops. */
static lierne_block boxed(int ndims, int64_t run, int64_t gap) {
    lierne_block b = {.offset = 3, .ndims = ndims};
    for (int64_t d = ndims - 1, stride = 1; d >= 0; d--) {
        b.count[d] = d == ndims - 1 ? run : d == 0 ? 5 : 3;
        b.stride[d] = stride;
        stride *= b.count[d] + gap;
    }
    return b;
}

enum { BOX = 6 * 4 * 4 * 320 + 3 };

enum { ADDED = 4 };

/* to = a sum of n boxes, of which those in `mask` are `to` itself, against loops over f32. */
static void add_boxes(int ndims, int64_t run, size_t n, unsigned mask) {
    static float to[BOX], want[BOX], from[ADDED][BOX];
    lierne_block t = boxed(ndims, run, 1), f = boxed(ndims, run, 0);
    lierne_contribution s[ADDED];
    for (int i = 0; i < BOX; i++) {
        to[i] = want[i] = (float)(i % 89) + 0.1f;
        for (int k = 0; k < ADDED; k++) {
            from[k][i] = (float)(i % (83 - k)) * 0.7f;
        }
    }
    for (size_t k = 0; k < n; k++) {
        bool itself = mask >> k & 1;
        s[k] = (lierne_contribution){itself ? to : from[k], itself ? &t : &f};
    }
    for (int64_t i = 0; i < lierne_block_elements(&t); i++) {
        float sum = 0;
        for (size_t k = 0; k < n; k++) {
            float x = ((const float *)s[k].base)[element_of(s[k].block, i)];
            sum = k == 0 ? x : sum + x;
        }
        want[element_of(&t, i)] = sum;
    }
    lierne_host_reduce(LIERNE_DTYPE_F32, LIERNE_REDUCTION_SUM, 0, to, &t, s, n);
    cr_expect_eq(memcmp(to, want, sizeof to), 0, "%d loops, runs of %d, %d contributions, mask %x",
                 ndims, (int)run, (int)n, mask);
}

Test(host_memory, boxes_are_added_in_place_and_apart) {
    static const int64_t runs[6] = {1, 2, 3, 64, 65, 300};
    for (int ndims = 1; ndims <= 4; ndims++) {
        for (int r = 0; r < 6; r++) {
            for (size_t n = 2; n <= ADDED; n++) {
                for (unsigned mask = 0; mask < 1u << n; mask++) {
                    add_boxes(ndims, runs[r], n, mask);
                }
            }
        }
    }
}

Test(host_memory, zeros_of_every_size_touch_their_block_only) {
    static unsigned char to[16 * BOX], want[16 * BOX];
    for (size_t size = 1; size <= 16; size *= 2) {
        for (int ndims = 0; ndims <= 4; ndims++) {
            for (int64_t run = 1; run <= 16; run *= 2) {
                for (int64_t step = 1; step <= 2; step++) {
                    lierne_block b = boxed(ndims, run * step, 1);
                    b.count[ndims ? ndims - 1 : 0] = run;
                    b.stride[ndims ? ndims - 1 : 0] = step;
                    memset(to, 0xa5, sizeof to);
                    memset(want, 0xa5, sizeof want);
                    for (int64_t i = 0; i < lierne_block_elements(&b); i++) {
                        memset(want + element_of(&b, i) * size, 0, size);
                    }
                    lierne_host_zero(size, to, &b);
                    cr_expect_eq(memcmp(to, want, sizeof to), 0, "%zu bytes, %d loops, runs of %d",
                                 size, ndims, (int)run);
                }
            }
        }
    }
}
