/* Halo plans against a serial model of the swaps, on random swaps of 1 to 8 ranks. */
#include <criterion/criterion.h>

#include "base/base.h"
#include "numbers.h"
#include "unit/halo_trial.h"
#include "unit/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { HALO_VALUES = HALO_WORLD * HALO_ROWS * HALO_WIDTH };

static void compare(lierne_context *context, void *shared) {
    halo_trial_check(shared, context);
}

static void overlap(lierne_context *context, void *shared) {
    halo_trial_overlap(shared, context);
}

static halo_trial *trial_new(void) {
    halo_trial *t = calloc(1, sizeof *t);
    cr_assert(t);
    return t;
}

static void check_trial(halo_trial *t, uint64_t seed) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    halo_trial_work_out(t);
    ranks_run(t->swaps.world, &spec, compare, t);
    for (int r = 0; r < t->swaps.world; r++) {
        cr_assert(!t->bad[r], "seed %llu, rank %d of %d: %s", (unsigned long long)seed, r,
                  t->swaps.world, t->why[r]);
    }
}

Test(halo, random_swaps_do_what_the_model_does) {
    halo_trial *t = trial_new();
    for (uint64_t seed = 0; seed < 64; seed++) {
        halo_case_random(&t->swaps, 1 + (int)(seed % HALO_WORLD), seed);
        t->dtype = LIERNE_DTYPE_I64;
        t->stride = seed % 3 ? HALO_WIDTH + (int64_t)(seed % 3) : 0;
        t->keep = seed % 5 == 4;
        halo_trial_fill(t, seed, 1000);
        check_trial(t, seed);
    }
    free(t);
}

Test(halo, every_dtype) {
    halo_trial *t = trial_new();
    for (int dtype = LIERNE_DTYPE_F64; dtype <= LIERNE_DTYPE_U8; dtype++) {
        for (uint64_t seed = 100; seed < 104; seed++) {
            halo_case_random(&t->swaps, 1 + (int)(seed % 4), seed);
            t->dtype = (lierne_dtype)dtype;
            t->stride = HALO_WIDTH + 1;
            halo_trial_fill(t, seed, 1);
            check_trial(t, seed);
        }
    }
    free(t);
}

/* Float sums have the bits of the model's order, and bf16 is rounded at each addition. */
Test(halo, bits_of_sums_are_those_of_the_order_of_swaps) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F64, LIERNE_DTYPE_F32, LIERNE_DTYPE_BF16};
    halo_trial *t = trial_new();
    for (uint64_t seed = 200; seed < 224; seed++) {
        halo_case_random(&t->swaps, 1 + (int)(seed % HALO_WORLD), seed);
        t->dtype = dtypes[seed % 3];
        t->stride = 0;
        halo_trial_fill(t, seed, t->dtype == LIERNE_DTYPE_BF16 ? 127 : 1 << 20);
        double *values = &t->input[LIERNE_DIRECTION_ADJOINT][0][0][0];
        for (int64_t i = 0; i < HALO_VALUES && t->dtype != LIERNE_DTYPE_BF16; i++) {
            values[i] =
                t->dtype == LIERNE_DTYPE_F32 ? (double)(float)(values[i] / 3) : values[i] / 3;
        }
        check_trial(t, seed);
    }
    free(t);
}

Test(halo, flattened_plans_give_the_same) {
    halo_trial *t = trial_new();
    t->flat = true;
    for (uint64_t seed = 300; seed < 332; seed++) {
        halo_case_random(&t->swaps, 1 + (int)(seed % HALO_WORLD), seed);
        t->dtype = LIERNE_DTYPE_I64;
        t->stride = seed % 2 ? HALO_WIDTH + 2 : 0;
        halo_trial_fill(t, seed, 1000);
        check_trial(t, seed);
    }
    free(t);
}

/* Known answers: two ranks with a row each. Each sends its own row to the other, then twice the
 * ghost to itself. */
static void by_hand(lierne_context *context, void *shared) {
    int *bad = shared, rank = lierne_context_get_rank(context), other = 1 - rank;
    const int procs[2] = {other, rank};
    const int64_t nums[2] = {1, 2}, first[1] = {0}, second[2] = {1, 1};
    const int64_t *const lists[2] = {first, second};
    lierne_halo_spec spec = {.size = sizeof spec,
                             .nlocal = 1,
                             .nghost = 3,
                             .nswap = 2,
                             .sendproc = procs,
                             .recvproc = procs,
                             .sendnum = nums,
                             .recvnum = nums,
                             .sendlist = lists,
                             .dtype = LIERNE_DTYPE_F64,
                             .width = 1};
    lierne_plan *plan;
    lierne_report report = {.size = sizeof report};
    double in[4] = {10.0 + rank, -1, -1, -1}, out[4], back[4];
    if (lierne_plan_create_halo(&plan, context, &spec) != LIERNE_OK) {
        bad[rank] = 1;
        return;
    }
    bad[rank] |= lierne_plan_forward(plan, out, in, NULL) != LIERNE_OK;
    bad[rank] |=
        out[0] != 10 + rank || out[1] != 10 + other || out[2] != out[1] || out[3] != out[1];
    const double gradient[4] = {1 + rank, 10 + rank, 100 + rank, 1000 + rank};
    bad[rank] |= lierne_plan_adjoint(plan, back, gradient, NULL) != LIERNE_OK;
    bad[rank] |=
        back[0] != 1 + rank + 1110 + 3 * other || back[1] != 0 || back[2] != 0 || back[3] != 0;
    for (int d = 0; d < 2; d++) {
        bad[rank] |= lierne_plan_get_report(&report, plan, (lierne_direction)d) != LIERNE_OK ||
                     report.stages != 2 || report.sent_messages != 1 ||
                     report.received_bytes != 8 || report.min_bytes != 8 ||
                     strcmp(report.algorithm, "swaps") != 0;
    }
    lierne_plan_destroy(plan);
}

Test(halo, two_ranks_by_hand) {
    int bad[2] = {0};
    ranks_run(2, NULL, by_hand, bad);
    cr_assert(!bad[0] && !bad[1]);
}

/* A chain of three ranks: rank 1 owns nothing and passes rank 0's row on to rank 2. */
static void relay(lierne_context *context, void *shared) {
    int *bad = shared, rank = lierne_context_get_rank(context), next = (rank + 1) % 3,
        last = (rank + 2) % 3;
    const int to[2] = {next, next}, from[2] = {last, last};
    const int64_t sent[2] = {rank == 0, rank == 1}, received[2] = {rank == 1, rank == 2};
    const int64_t row[1] = {0};
    const int64_t *const lists[2] = {rank == 0 ? row : NULL, rank == 1 ? row : NULL};
    lierne_halo_spec spec = {.size = sizeof spec,
                             .nlocal = rank != 1,
                             .nghost = rank > 0,
                             .nswap = 2,
                             .sendproc = to,
                             .recvproc = from,
                             .sendnum = sent,
                             .recvnum = received,
                             .sendlist = lists,
                             .dtype = LIERNE_DTYPE_F32,
                             .width = 1};
    lierne_plan *plan;
    int32_t owner[1] = {-1};
    int64_t home[1] = {-1};
    float in[2] = {5.0f + (float)rank, 3}, out[2] = {0}, back[2] = {0};
    if (lierne_plan_create_halo(&plan, context, &spec) != LIERNE_OK) {
        bad[rank] = 1;
        return;
    }
    bad[rank] |= lierne_plan_forward(plan, out, in, NULL) != LIERNE_OK;
    bad[rank] |= out[0] != (rank == 2 ? 7.0f : 5.0f) || (rank == 2 && out[1] != 5);
    bad[rank] |= lierne_plan_adjoint(plan, back, in, NULL) != LIERNE_OK;
    bad[rank] |= back[0] != (rank == 0 ? 5 + 6 + 3.0f : rank == 1 ? 0.0f : 7.0f) || back[1] != 0;
    bad[rank] |= lierne_plan_get_halo_roots(owner, home, plan) != LIERNE_OK;
    bad[rank] |= rank > 0 && (owner[0] != 0 || home[0] != 0);
    lierne_plan_destroy(plan);
}

Test(halo, a_rank_without_rows_passes_ghosts_on) {
    int bad[3] = {0};
    ranks_run(3, NULL, relay, bad);
    cr_assert(!bad[0] && !bad[1] && !bad[2]);
}

/* Without swaps all rows are copied, any number of ghosts included. */
static void stay(lierne_context *context, void *shared) {
    int *bad = shared, rank = lierne_context_get_rank(context);
    lierne_halo_spec spec = {.size = sizeof spec,
                             .nlocal = 1,
                             .nghost = rank,
                             .dtype = LIERNE_DTYPE_F64,
                             .width = 2,
                             .stride = 3};
    const double in[6] = {1, 2, -7, 3, 4, -7};
    double out[6] = {9, 9, 9, 9, 9, 9}, *last = rank ? &out[3] : &out[0];
    int32_t owner[1];
    int64_t home[1];
    lierne_plan *plan, *plans[2];
    if (lierne_plan_create_halo(&plan, context, &spec) != LIERNE_OK) {
        bad[rank] = 1;
        return;
    }
    bad[rank] |= lierne_plan_create_flattened(&plans[0], plan, 1) != LIERNE_ERR_INVALID;
    bad[rank] |= lierne_plan_create_flattened(&plans[1], plan, 0) != LIERNE_OK;
    bad[rank] |=
        lierne_plan_get_halo_roots(owner, home, plan) != (rank ? LIERNE_ERR_INVALID : LIERNE_OK);
    plans[0] = plan;
    for (int p = 0; p < 2; p++) {
        for (int d = 0; d < 2; d++) {
            out[0] = out[1] = last[0] = last[1] = 9;
            bad[rank] |= halo_trial_run(plans[p], d, out, in) != LIERNE_OK;
            bad[rank] |= out[0] != 1 || out[1] != 2 || out[2] != 9 || out[5] != 9;
            bad[rank] |= last[0] != (rank ? 3 : 1) || last[1] != (rank ? 4 : 2);
        }
        lierne_plan_destroy(plans[p]);
    }
}

Test(halo, no_swaps_are_the_identity) {
    int bad[2] = {0};
    ranks_run(2, NULL, stay, bad);
    cr_assert(!bad[0] && !bad[1]);
}

static double dot(double a[][HALO_WIDTH], double b[][HALO_WIDTH], int64_t rows) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        for (int e = 0; e < HALO_WIDTH; e++) {
            sum += a[i][e] * b[i][e];
        }
    }
    return sum;
}

/* <F x, y> == <x, F* y> over all ranks: the forward reads owned rows and writes all rows. */
Test(halo, adjoint_is_the_transpose) {
    halo_trial *t = trial_new();
    for (uint64_t seed = 400; seed < 416; seed++) {
        double left = 0, right = 0;
        halo_case_random(&t->swaps, 1 + (int)(seed % HALO_WORLD), seed);
        t->dtype = LIERNE_DTYPE_I64;
        halo_trial_fill(t, seed, 1000);
        check_trial(t, seed); /* the expected values are what the library computes */
        for (int r = 0; r < t->swaps.world; r++) {
            int64_t rows = halo_case_rows(&t->swaps, r), owned = t->swaps.spec[r].nlocal;
            left += dot(t->expected[LIERNE_DIRECTION_FORWARD][r],
                        t->input[LIERNE_DIRECTION_ADJOINT][r], rows);
            right += dot(t->input[LIERNE_DIRECTION_FORWARD][r],
                         t->expected[LIERNE_DIRECTION_ADJOINT][r], owned);
        }
        cr_assert_eq(left, right, "seed %llu: %g and %g", (unsigned long long)seed, left, right);
    }
    free(t);
}

Test(halo, requests_overlap) {
    halo_trial *t = trial_new();
    for (uint64_t seed = 500; seed < 508; seed++) {
        halo_case_random(&t->swaps, 1 + (int)(seed % HALO_WORLD), seed);
        t->dtype = LIERNE_DTYPE_I64;
        halo_trial_fill(t, seed, 1000);
        halo_trial_work_out(t);
        ranks_run(t->swaps.world, NULL, overlap, t);
        for (int r = 0; r < t->swaps.world; r++) {
            cr_assert(!t->bad[r], "rank %d: %s", r, t->why[r]);
        }
    }
    free(t);
}
