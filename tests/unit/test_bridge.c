/* Bridges on the sim transport. */
#include "base/base.h"
#include "unit/bridge_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static const int orders3[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* tp x cp x dp in the order-th order, pp 1 put in somewhere. */
static mesh mesh_in(int64_t tp, int64_t cp, int64_t dp, int order, int pp_at) {
    static const char *const names[3] = {"tp", "cp", "dp"};
    int64_t sizes[3] = {tp, cp, dp};
    mesh g = {.ndims = 4};
    for (int d = 0, i = 0; d < 4; d++) {
        if (d == pp_at) {
            g.names[d] = "pp";
            g.sizes[d] = 1;
        } else {
            g.names[d] = names[orders3[order][i]];
            g.sizes[d] = sizes[orders3[order][i++]];
        }
    }
    return g;
}

/* Runs a case that must work; its result may be kept. */
static void must_work(const bridge_case *c, case_result *kept) {
    case_result result;
    const char *wrong = run_case(c, &result);
    const char *text = case_text(c);
    cr_assert(!wrong, "%s: %s", text, wrong);
    cr_assert_eq(result.status, LIERNE_OK, "%s: %s", text, result.message);
    if (c->algorithm == TEST_DIRECT) {
        cr_assert_eq(result.received, result.minimum, "%s: forward receives %lld, minimum %lld",
                     text, (long long)result.received, (long long)result.minimum);
        cr_assert_eq(result.adjoint_received, result.adjoint_minimum,
                     "%s: adjoint receives %lld, minimum %lld", text,
                     (long long)result.adjoint_received, (long long)result.adjoint_minimum);
    }
    if (kept) {
        *kept = result;
    } else {
        free_result(&result);
    }
}

static void same_on_random(bridge_case c, lierne_dtype dtype) {
    case_result direct, collective;
    c.data = FRACTIONS;
    c.dtype = dtype;
    c.algorithm = TEST_DIRECT;
    must_work(&c, &direct);
    c.algorithm = TEST_COLLECTIVE;
    must_work(&c, &collective);
    cr_assert(same_bits(dtype, direct.forward, collective.forward, direct.forward_bytes));
    cr_assert(same_bits(dtype, direct.adjoint, collective.adjoint, direct.adjoint_bytes));
    free_result(&direct);
    free_result(&collective);
}

static int check_collective(bridge_case c) {
    c.algorithm = TEST_COLLECTIVE;
    if (case_aligned(&c)) {
        must_work(&c, NULL);
        same_on_random(c, LIERNE_DTYPE_F32);
        same_on_random(c, LIERNE_DTYPE_BF16);
        return 1;
    }
    case_result result;
    run_case(&c, &result);
    const char *text = case_text(&c);
    cr_assert_eq(result.status, LIERNE_ERR_MISALIGNED, "%s: %s", text, result.message);
    return 0;
}

static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F32, LIERNE_DTYPE_BF16, LIERNE_DTYPE_I8,
                                      LIERNE_DTYPE_F64, LIERNE_DTYPE_F16,  LIERNE_DTYPE_I64,
                                      LIERNE_DTYPE_I32, LIERNE_DTYPE_U8};

static void set_axes(bridge_case *c, int i) {
    static const int axes[6][3] = {{0, 1, 2}, {1, 0, 2}, {2, 1, 0},
                                   {0, 2, 1}, {1, 2, 0}, {2, 0, 1}};
    c->axis_b = axes[i % 6][0];
    c->axis_s = axes[i % 6][1];
    c->axis_h = axes[i % 6][2];
}

static void check_owned(bridge_case c) {
    int32_t rows[512];
    int64_t cp = mesh_size(&c.dst, "cp");
    for (int64_t i = 0; i < c.batch * c.sequence; i++) {
        rows[i] = (int32_t)((3 * (i / c.sequence) + 5 * (i % c.sequence) + i / 3) % cp);
    }
    for (int storage = 0; storage < 2; storage++) {
        c.storage = (lierne_storage)storage;
        c.owner = LIERNE_GRADIENT_OWNER_ZIGZAG;
        must_work(&c, NULL);
        c.owner = LIERNE_GRADIENT_OWNER_CONTIGUOUS;
        must_work(&c, NULL);
        if (storage == LIERNE_STORAGE_COMPACT && abs(c.axis_b - c.axis_s) != 1) {
            continue;
        }
        c.owner = LIERNE_GRADIENT_OWNER_ROWS;
        c.rows = rows;
        must_work(&c, NULL);
        c.rows = NULL;
    }
}

/* Every pair of factorisations, source cp 1, dp divisible. Dims of size 1 do not move a rank, so
 * the orders of tp and dp, and of tp, cp and dp, are all orders there are. */
static void all_pairs(int world) {
    int pairs = 0, collective = 0;
    for (int dp = 1; dp <= world; dp++) {
        for (int cp = 1; cp <= world; cp++) {
            for (int src_dp = 1; src_dp <= world; src_dp++) {
                if (world % dp || world / dp % cp || world % src_dp ||
                    (dp % src_dp && src_dp % dp)) {
                    continue;
                }
                for (int o = 0; o < 12; o++, pairs++) {
                    int64_t wide = dp > src_dp ? dp : src_dp;
                    bridge_case c = {.world = world,
                                     .batch = 2 * wide,
                                     .sequence = 2 * cp,
                                     .hidden = 3};
                    c.src = mesh_in(world / src_dp, 1, src_dp, o % 2 ? 5 : 0, pairs % 4);
                    c.dst = mesh_in(world / dp / cp, cp, dp, o / 2, pairs / 4 % 4);
                    c.dtype = dtypes[pairs % 8];
                    set_axes(&c, pairs);
                    must_work(&c, NULL);
                    collective += check_collective(c);
                    check_owned(c);
                }
            }
        }
    }
    printf("world %d: %d pairs, COLLECTIVE defined for %d\n", world, pairs, collective);
}

Test(bridge, all_pairs_1_to_4) {
    for (int world = 1; world <= 4; world++) {
        all_pairs(world);
    }
}
Test(bridge, all_pairs_5_to_6) {
    all_pairs(5);
    all_pairs(6);
}
Test(bridge, all_pairs_7_to_8) {
    all_pairs(7);
    all_pairs(8);
}
