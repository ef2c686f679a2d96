/* What is computed and is NaN has the same bits wherever it is computed: by every loop over every
 * form of blocks, and on every rank by every algorithm. What is copied keeps its bits. */
#include "lierne.h"
#include "lierne/sim.h"
#include "runtime/memory/host.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

#define SOURCES 17 /* one more than a kernel gets */
enum { ROWS = 3, WIDTH = 300, MOST_ELEMENTS = 2 * ROWS * WIDTH };

/* Of each dtype: the NaN that results have; then others, both infinities, 0 and 1. */
enum { NANS = 5, VALUES = 9 };
static const uint64_t values[][VALUES] = {
    [LIERNE_DTYPE_F64] = {0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001,
                          0xfffabcdef0123456, 0x7fffffffffffffff, 0x7ff0000000000000,
                          0xfff0000000000000, 0, 0x3ff0000000000000},
    [LIERNE_DTYPE_F32] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xffabcdef, 0x7fffffff, 0x7f800000,
                          0xff800000, 0, 0x3f800000},
    [LIERNE_DTYPE_BF16] = {0x7fc0, 0xffc2, 0x7f81, 0xffab, 0x7fff, 0x7f80, 0xff80, 0, 0x3f80},
    [LIERNE_DTYPE_F16] = {0x7e00, 0xfe07, 0x7c01, 0xfdab, 0x7fff, 0x7c00, 0xfc00, 0, 0x3c00},
};

static void put(lierne_dtype dtype, void *buffer, int64_t at, uint64_t bits) {
    size_t size = lierne_dtype_size(dtype);
    memcpy((char *)buffer + (size_t)at * size, &bits, size);
}

static uint64_t get(lierne_dtype dtype, const void *buffer, int64_t at) {
    uint64_t bits = 0;
    memcpy(&bits, (const char *)buffer + (size_t)at * lierne_dtype_size(dtype),
           lierne_dtype_size(dtype));
    return bits;
}

/* Numbers of the table whose sum, product and extremes are all NaN. */
typedef struct pair {
    int first, second;
} pair;
static const pair both[] = {{1, 2}, {2, 1}, {3, 4}, {8, 1}, {1, 8}, {3, 0}, {4, 7}};
#define PAIRS (sizeof both / sizeof *both)

/* Every element of the block must be the first NaN of the table. */
static void check(lierne_dtype dtype, const void *out, const lierne_block *b, const char *what) {
    for (int64_t i = 0; i < b->count[0]; i++) {
        for (int64_t k = 0; k < b->count[1]; k++) {
            int64_t row = b->rows ? b->rows[i] : i;
            uint64_t bits = get(dtype, out, row * b->stride[0] + k * b->stride[1]);
            cr_assert_eq(bits, values[dtype][0], "%s, %s: element %lld of row %lld is %llx",
                         lierne_dtype_name(dtype), what, (long long)k, (long long)i,
                         (unsigned long long)bits);
        }
    }
}

/* One reduction of n sources, of which the first is the target where `onto`. */
static void reduce(bool simd, lierne_dtype dtype, lierne_reduction reduction, int64_t divisor,
                   const lierne_block *b, size_t n, pair of, bool onto) {
    static uint64_t sources[2][MOST_ELEMENTS], out[MOST_ELEMENTS];
    lierne_contribution from[SOURCES];
    for (int64_t i = 0; i < MOST_ELEMENTS; i++) {
        put(dtype, sources[0], i, values[dtype][of.first]);
        put(dtype, sources[1], i, values[dtype][of.second]);
    }
    memcpy(out, onto ? sources[0] : sources[1], sizeof out);
    for (size_t k = 0; k < n; k++) {
        from[k] = (lierne_contribution){k ? sources[1] : onto ? out : sources[0], b};
    }
    lierne_host_reduce_by(simd, dtype, reduction, divisor, out, b, from, n);
    check(dtype, out, b, simd ? "by kernels" : "by loops in C");
}

static void reduce_every_way(lierne_dtype dtype, const lierne_block *b) {
    static const size_t counts[] = {2, 3, SOURCES};
    for (size_t p = 0; p < PAIRS; p++) {
        for (int r = 0; r < 4; r++) {
            for (int way = 0; way < 12; way++) {
                reduce(way % 2, dtype, (lierne_reduction)r, way / 2 % 2 * 3, b, counts[way / 4],
                       both[p], p % 2);
            }
        }
    }
}

Test(nan, every_loop_gives_the_canonical_one) {
    static const int64_t widths[] = {1, 7, 8, 9, 17, 33, 100, WIDTH}, rows[ROWS] = {2, 0, 1};
    for (int dtype = LIERNE_DTYPE_F64; dtype <= LIERNE_DTYPE_F16; dtype++) {
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            lierne_block in_order = lierne_block_rows(0, ROWS, widths[w], WIDTH), listed = in_order;
            lierne_block strided = {.ndims = 2,
                                    .count = {ROWS, widths[w]},
                                    .stride = {2 * WIDTH, 2}};
            listed.rows = rows;
            reduce_every_way((lierne_dtype)dtype, &in_order);
            reduce_every_way((lierne_dtype)dtype, &listed);
            reduce_every_way((lierne_dtype)dtype, &strided);
        }
    }
}

/* Infinities of both signs, and infinity times 0: processors give them other signs. */
Test(nan, that_of_no_operand_is_the_same) {
    lierne_block b = lierne_block_rows(0, ROWS, 100, WIDTH);
    for (int dtype = LIERNE_DTYPE_F64; dtype <= LIERNE_DTYPE_F16; dtype++) {
        for (int simd = 0; simd < 2; simd++) {
            reduce(simd, (lierne_dtype)dtype, LIERNE_REDUCTION_SUM, 0, &b, 2, (pair){5, 6}, false);
            reduce(simd, (lierne_dtype)dtype, LIERNE_REDUCTION_SUM, 2, &b, 2, (pair){6, 5}, false);
            reduce(simd, (lierne_dtype)dtype, LIERNE_REDUCTION_PROD, 0, &b, 2, (pair){5, 7}, false);
        }
    }
}

/* One all-reduce on two ranks; what both get in each element is `expected`. */
static void all_reduce(const lierne_all_reduce_spec *spec, int ranks, pair of, uint64_t expected) {
    static uint64_t in[2][128], out[2][128];
    lierne_sim *sim;
    lierne_plan *plans[2];
    lierne_request *requests[2];
    assert_ok(lierne_sim_create(&sim, ranks, NULL));
    for (int r = 0; r < ranks; r++) {
        assert_ok(lierne_plan_create_all_reduce(&plans[r], lierne_sim_get_context(sim, r), spec));
        for (int64_t i = 0; i < spec->count; i++) {
            put(spec->dtype, in[r], i, values[spec->dtype][r ? of.second : of.first]);
        }
    }
    for (int r = 0; r < ranks; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < ranks; r++) {
        assert_ok(lierne_request_end(requests[r]));
        for (int64_t i = 0; i < spec->count; i++) {
            uint64_t bits = get(spec->dtype, out[r], i);
            cr_assert_eq(bits, expected, "%s, reduction %d, algorithm %d: element %lld is %llx",
                         lierne_dtype_name(spec->dtype), (int)spec->reduction, (int)spec->algorithm,
                         (long long)i, (unsigned long long)bits);
        }
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(nan, every_rank_and_algorithm_gives_the_canonical_one) {
    lierne_all_reduce_spec spec = {.size = sizeof spec, .count = 100};
    for (int dtype = LIERNE_DTYPE_F64; dtype <= LIERNE_DTYPE_F16; dtype++) {
        for (int r = LIERNE_REDUCTION_SUM; r <= LIERNE_REDUCTION_AVG; r++) {
            for (int a = LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT;
                 a <= LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT; a++) {
                spec.dtype = (lierne_dtype)dtype;
                spec.reduction = (lierne_reduction)r;
                spec.algorithm = (lierne_collective_algorithm)a;
                all_reduce(&spec, 2, (pair){1, 3}, values[dtype][0]);
                all_reduce(&spec, 2, (pair){8, 2}, values[dtype][0]);
            }
        }
    }
}

/* A single contribution is a copy. */
Test(nan, a_copy_keeps_its_bits) {
    lierne_all_reduce_spec spec = {.size = sizeof spec, .count = 9};
    for (int dtype = LIERNE_DTYPE_F64; dtype <= LIERNE_DTYPE_F16; dtype++) {
        for (int r = LIERNE_REDUCTION_SUM; r <= LIERNE_REDUCTION_AVG; r++) {
            spec.dtype = (lierne_dtype)dtype;
            spec.reduction = (lierne_reduction)r;
            for (int v = 0; v < NANS; v++) {
                all_reduce(&spec, 1, (pair){v, v}, values[dtype][v]);
            }
        }
    }
}
