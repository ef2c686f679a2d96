/* Bad input of halo plans on one rank alone: every rank gets the same error, and nothing leaks. */
#include <criterion/criterion.h>

#include "base/base.h"
#include "rank_threads.h"
#include "unit/expect.h"
#include "unit/halo_case.h"
#include "unit/ranks.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD = 3 };

/* Two swaps of three ranks: each sends its two rows to the next one, then a ghost to itself. */
typedef struct swaps {
    int sendproc[2], recvproc[2];
    int64_t sendnum[2], recvnum[2], first[2], second[1];
    const int64_t *lists[2];
    lierne_halo_spec spec;
} swaps;

static void fill(swaps *s, int rank) {
    *s = (swaps){.sendproc = {(rank + 1) % WORLD, rank},
                 .recvproc = {(rank + 2) % WORLD, rank},
                 .sendnum = {2, 1},
                 .recvnum = {2, 1},
                 .first = {0, 1},
                 .second = {3}};
    s->lists[0] = s->first;
    s->lists[1] = s->second;
    s->spec = (lierne_halo_spec){.size = sizeof s->spec,
                                 .nlocal = 2,
                                 .nghost = 3,
                                 .nswap = 2,
                                 .sendproc = s->sendproc,
                                 .recvproc = s->recvproc,
                                 .sendnum = s->sendnum,
                                 .recvnum = s->recvnum,
                                 .sendlist = s->lists,
                                 .dtype = LIERNE_DTYPE_F32,
                                 .width = 2};
}

typedef struct fault {
    const char *name;
    lierne_status expected;
    void (*break_it)(swaps *s);
    const char *says; /* part of the message, or NULL */
    bool anonymous;   /* the message need not name the rank */
} fault;

#define FAULT(name, ...)                                                                           \
    static void name(swaps *s) {                                                                   \
        __VA_ARGS__;                                                                               \
    }
FAULT(bad_size, s->spec.size = 1)
FAULT(no_sendproc, s->spec.sendproc = NULL)
FAULT(no_recvproc, s->spec.recvproc = NULL)
FAULT(no_sendnum, s->spec.sendnum = NULL)
FAULT(no_recvnum, s->spec.recvnum = NULL)
FAULT(no_sendlist, s->spec.sendlist = NULL)
FAULT(no_list, s->lists[1] = NULL)
FAULT(no_width, s->spec.width = 0)
FAULT(short_stride, s->spec.stride = 1)
FAULT(bad_dtype, s->spec.dtype = (lierne_dtype)99)
FAULT(many_inflight, s->spec.max_inflight = 65)
FAULT(negative_local, s->spec.nlocal = -1)
FAULT(negative_ghost, s->spec.nghost = -1)
FAULT(negative_swaps, s->spec.nswap = -1)
FAULT(negative_send, s->sendnum[1] = -1)
FAULT(negative_receive, s->recvnum[0] = -1)
FAULT(too_many_rows, s->spec.nlocal = INT64_MAX)
FAULT(too_many_bytes, s->spec.stride = INT64_MAX / 16)
FAULT(too_many_sent, s->sendnum[0] = INT64_MAX / 4)
FAULT(peer_high, s->sendproc[0] = WORLD)
FAULT(peer_low, s->recvproc[0] = -1)
FAULT(half_self, s->recvproc[1] = (s->recvproc[1] + 1) % WORLD)
FAULT(self_short, s->sendnum[1] = 0)
FAULT(ghosts_high, s->spec.nghost = 4)
FAULT(ghosts_low, s->spec.nghost = 2)
FAULT(row_low, s->first[1] = -1)
FAULT(row_high, s->second[0] = 5)
FAULT(row_next, s->first[0] = 2)
FAULT(row_own, s->second[0] = 4)
FAULT(sends_fewer, s->sendnum[0] = 1)
FAULT(sends_none, s->sendnum[0] = 0)
FAULT(receives_fewer, s->recvnum[0] = 1; s->spec.nghost = 2; s->second[0] = 2)
FAULT(sends_elsewhere, s->sendproc[0] = (s->sendproc[0] + 1) % WORLD)
FAULT(receives_elsewhere, s->recvproc[0] = (s->recvproc[0] + 2) % WORLD)
FAULT(fewer_swaps, s->spec.nswap = 1; s->spec.nghost = 2)
FAULT(no_swaps, s->spec.nswap = 0)
FAULT(other_dtype, s->spec.dtype = LIERNE_DTYPE_I32)
FAULT(other_width, s->spec.width = 1)
FAULT(other_keep, s->spec.keep_ghosts = 1)
FAULT(other_inflight, s->spec.max_inflight = 2)

static const fault faults[] = {
    {"size", LIERNE_ERR_INVALID, bad_size, "size", false},
    {"sendproc NULL", LIERNE_ERR_INVALID, no_sendproc, "NULL", false},
    {"recvproc NULL", LIERNE_ERR_INVALID, no_recvproc, "NULL", false},
    {"sendnum NULL", LIERNE_ERR_INVALID, no_sendnum, "NULL", false},
    {"recvnum NULL", LIERNE_ERR_INVALID, no_recvnum, "NULL", false},
    {"sendlist NULL", LIERNE_ERR_INVALID, no_sendlist, "NULL", false},
    {"a list NULL", LIERNE_ERR_INVALID, no_list, "swap 1", false},
    {"width", LIERNE_ERR_INVALID, no_width, "width is 0", false},
    {"stride", LIERNE_ERR_INVALID, short_stride, "stride 1", false},
    {"dtype", LIERNE_ERR_INVALID, bad_dtype, "99", false},
    {"max_inflight", LIERNE_ERR_INVALID, many_inflight, "65", false},
    {"nlocal < 0", LIERNE_ERR_COUNT_RANGE, negative_local, "-1", false},
    {"nghost < 0", LIERNE_ERR_COUNT_RANGE, negative_ghost, "-1", false},
    {"nswap < 0", LIERNE_ERR_COUNT_RANGE, negative_swaps, "-1", false},
    {"sendnum < 0", LIERNE_ERR_COUNT_RANGE, negative_send, "swap 1", false},
    {"recvnum < 0", LIERNE_ERR_COUNT_RANGE, negative_receive, "swap 0", false},
    {"rows", LIERNE_ERR_COUNT_RANGE, too_many_rows, "9223372036854775807", false},
    {"bytes", LIERNE_ERR_COUNT_RANGE, too_many_bytes, "stride", false},
    {"bytes of a swap", LIERNE_ERR_COUNT_RANGE, too_many_sent, "swap 0", false},
    {"sendproc high", LIERNE_ERR_PEER_RANGE, peer_high, "swap 0: sendproc is 3", false},
    {"recvproc low", LIERNE_ERR_PEER_RANGE, peer_low, "recvproc -1", false},
    {"half self", LIERNE_ERR_SELF_ASYM, half_self, "swap 1", false},
    {"self short", LIERNE_ERR_SELF_COUNT, self_short, "swap 1: sends 0", false},
    {"nghost high", LIERNE_ERR_GHOST_COUNT, ghosts_high, "receive 3 rows, but nghost is 4", false},
    {"nghost low", LIERNE_ERR_GHOST_COUNT, ghosts_low, "swap 1", false},
    {"row low", LIERNE_ERR_INDEX_RANGE, row_low, "swap 0: entry 1 of sendlist is row -1", false},
    {"row high", LIERNE_ERR_INDEX_RANGE, row_high, "swap 1: entry 0 of sendlist is row 5", false},
    {"row of this swap", LIERNE_ERR_ROW_NOT_YET_FILLED, row_next, "swap 0: entry 0", false},
    {"row that it fills", LIERNE_ERR_ROW_NOT_YET_FILLED, row_own, "row 4", false},
    {"sends fewer", LIERNE_ERR_PEER_COUNT, sends_fewer, "swap 0", false},
    {"sends none", LIERNE_ERR_PEER_COUNT, sends_none, "swap 0", false},
    {"receives fewer", LIERNE_ERR_PEER_COUNT, receives_fewer, "sends 2 rows", false},
    {"sends elsewhere", LIERNE_ERR_PEER_COUNT, sends_elsewhere, "swap 0", false},
    {"receives elsewhere", LIERNE_ERR_PEER_COUNT, receives_elsewhere, "swap 0", false},
    {"swaps", LIERNE_ERR_PLAN_DEPTH, fewer_swaps, "1", false},
    {"no swaps", LIERNE_ERR_PLAN_DEPTH, no_swaps, "has 0", false},
    {"dtypes", LIERNE_ERR_MISMATCH, other_dtype, "dtype", true},
    {"widths", LIERNE_ERR_MISMATCH, other_width, "width", true},
    {"keep_ghosts", LIERNE_ERR_MISMATCH, other_keep, "keep_ghosts", true},
    {"max_inflights", LIERNE_ERR_MISMATCH, other_inflight, "max_inflight", true},
};

typedef struct rejection {
    const fault *fault;
    int culprit;
    lierne_status got[WORLD];
    char message[WORLD][LIERNE_MESSAGE_SIZE];
    bool left[WORLD];
} rejection;

static void plan_broken(lierne_context *context, void *shared) {
    rejection *f = shared;
    int rank = lierne_context_get_rank(context);
    lierne_plan *plan = (lierne_plan *)&plan;
    swaps s;
    fill(&s, rank);
    if (rank == f->culprit) {
        f->fault->break_it(&s);
    }
    f->got[rank] = lierne_plan_create_halo(&plan, context, &s.spec);
    snprintf(f->message[rank], sizeof f->message[rank], "%s", lierne_last_error());
    f->left[rank] = plan != NULL;
    if (f->got[rank] == LIERNE_OK) {
        lierne_plan_destroy(plan);
    }
    fill(&s, rank); /* the context is alive */
    if (lierne_plan_create_halo(&plan, context, &s.spec) == LIERNE_OK) {
        lierne_plan_destroy(plan);
    } else {
        f->got[rank] = LIERNE_ERR_TRANSPORT;
    }
}

Test(halo_reject, a_fault_on_one_rank_is_the_error_of_all) {
    static rejection f;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 120};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        for (int culprit = 0; culprit < WORLD; culprit++) {
            char name[24], other[32];
            f = (rejection){.fault = &faults[i], .culprit = culprit};
            snprintf(name, sizeof name, "rank %d", culprit);
            snprintf(other, sizeof other, "but rank %d has", culprit == 0);
            ranks_run(WORLD, &spec, plan_broken, &f);
            for (int r = 0; r < WORLD; r++) {
                cr_assert_eq(f.got[r], faults[i].expected, "%s of rank %d: rank %d got %s: %s",
                             faults[i].name, culprit, r, lierne_status_name(f.got[r]),
                             f.message[r]);
                cr_assert(!f.left[r], "%s: rank %d has a plan", faults[i].name, r);
                cr_assert(strstr(f.message[r], faults[i].says) &&
                              (faults[i].anonymous || strstr(f.message[r], name)) &&
                              (f.got[r] != LIERNE_ERR_PLAN_DEPTH || strstr(f.message[r], other)),
                          "%s of rank %d: %s", faults[i].name, culprit, f.message[r]);
            }
        }
    }
}

/* NULL in place of everything, on one rank of two or without a context. */
static void plan_nothing(lierne_context *context, void *shared) {
    int *bad = shared, rank = lierne_context_get_rank(context);
    lierne_halo_spec none = {.size = sizeof none, .dtype = LIERNE_DTYPE_F32, .width = 1}, got = {0};
    lierne_plan *plan = NULL, *other = NULL;
    bad[rank] |= lierne_plan_create_halo(rank ? &plan : NULL, context, &none) != LIERNE_ERR_INVALID;
    bad[rank] |= lierne_plan_create_halo(&plan, context, rank ? NULL : &none) != LIERNE_ERR_INVALID;
    bad[rank] |= lierne_plan_create_halo(&plan, context, &none) != LIERNE_OK;
    bad[rank] |=
        lierne_plan_create_restricted(rank ? &other : NULL, plan, NULL) != LIERNE_ERR_INVALID;
    bad[rank] |= lierne_plan_create_flattened(rank ? &other : NULL, plan, 0) != LIERNE_ERR_INVALID;
    bad[rank] |= lierne_plan_get_halo_spec(&got, plan) != LIERNE_ERR_INVALID;
    bad[rank] |= lierne_plan_get_halo_spec(NULL, plan) != LIERNE_ERR_INVALID;
    bad[rank] |= lierne_plan_get_halo_roots(NULL, NULL, plan) != LIERNE_OK;
    lierne_plan_destroy(plan);
}

static void reject_no_mask_of_one_row(void) {
    const lierne_halo_spec spec = {.size = sizeof spec,
                                   .nlocal = 1,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .width = 1};
    lierne_context *self;
    lierne_plan *plan, *part;
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_ok(lierne_plan_create_halo(&plan, self, &spec));
    assert_error(lierne_plan_create_restricted(&part, plan, NULL), LIERNE_ERR_INVALID,
                 "keep is NULL, must have 1 entries");
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(self));
}

/* A rank sends its row to itself. */
static void reject_no_root_of_one_ghost(void) {
    static const int own[] = {0};
    static const int64_t one[] = {1}, row[] = {0}, *const list[] = {row};
    const lierne_halo_spec spec = {.size = sizeof spec,
                                   .nlocal = 1,
                                   .nghost = 1,
                                   .nswap = 1,
                                   .sendproc = own,
                                   .recvproc = own,
                                   .sendnum = one,
                                   .recvnum = one,
                                   .sendlist = list,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .width = 1};
    int32_t rank;
    int64_t root;
    lierne_context *self;
    lierne_plan *plan;
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_ok(lierne_plan_create_halo(&plan, self, &spec));
    assert_error(lierne_plan_get_halo_roots(NULL, &root, plan), LIERNE_ERR_INVALID, "rank is NULL");
    assert_error(lierne_plan_get_halo_roots(&rank, NULL, plan), LIERNE_ERR_INVALID, "row is NULL");
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(self));
}

Test(halo_reject, null_arguments) {
    int bad[2] = {0};
    lierne_halo_spec spec = {.size = sizeof spec};
    lierne_plan *plan;
    ranks_run(2, NULL, plan_nothing, bad);
    cr_assert(!bad[0] && !bad[1]);
    cr_assert_eq(lierne_plan_create_halo(&plan, NULL, &spec), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_get_halo_spec(&spec, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_create_restricted(&plan, NULL, NULL), LIERNE_ERR_INVALID);
    reject_no_mask_of_one_row();
    reject_no_root_of_one_ghost();
    cr_assert_eq(lierne_plan_create_flattened(&plan, NULL, 0), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_get_halo_roots(NULL, NULL, NULL), LIERNE_ERR_INVALID);
}

typedef struct restriction {
    halo_case swaps;
    uint8_t keep[HALO_WORLD][HALO_ROWS];
    halo_values input, expected;
    int liar, lie; /* a rank, or -1, with a wrong entry in its mask; lie -1: its mask is NULL */
    lierne_status got[HALO_WORLD];
    char message[HALO_WORLD][LIERNE_MESSAGE_SIZE];
    const char *why[HALO_WORLD];
} restriction;

/* A mask of the owned rows, and of their ghosts as the model copies it. */
static void fill_masks(restriction *t, uint64_t seed) {
    halo_values mask = {0};
    for (int r = 0; r < t->swaps.world; r++) {
        for (int64_t i = 0; i < t->swaps.spec[r].nlocal; i++) {
            mask[r][i][0] = (double)(halo_case_pick(seed, 7, (uint64_t)(r * 100 + i), 3) > 0);
        }
    }
    halo_model_forward(&t->swaps, mask);
    for (int r = 0; r < t->swaps.world; r++) {
        for (int64_t i = 0; i < halo_case_rows(&t->swaps, r); i++) {
            t->keep[r][i] = mask[r][i][0] > 0;
            for (int e = 0; e < HALO_WIDTH; e++) { /* rows that are dropped have no gradient */
                t->input[r][i][e] = t->keep[r][i] ? (double)(17 * r + 5 * i + e + 1) : 0;
            }
        }
    }
}

static bool adjoint_fits(const restriction *t, int rank, lierne_plan *plan) {
    int64_t in[HALO_ROWS * HALO_WIDTH], out[HALO_ROWS * HALO_WIDTH], n = 0;
    for (int64_t i = 0; i < halo_case_rows(&t->swaps, rank); i++) {
        for (int e = 0; e < HALO_WIDTH && t->keep[rank][i]; e++) {
            in[n++] = (int64_t)t->input[rank][i][e];
        }
    }
    bool good = lierne_plan_adjoint(plan, out, in, NULL) == LIERNE_OK;
    for (int64_t i = 0, at = 0; i < halo_case_rows(&t->swaps, rank); i++) {
        for (int e = 0; e < HALO_WIDTH && t->keep[rank][i]; e++) {
            good &= out[at++] == (int64_t)t->expected[rank][i][e];
        }
    }
    return good;
}

static void restrict_one(lierne_context *context, void *shared) {
    restriction *t = shared;
    int rank = lierne_context_get_rank(context);
    lierne_plan *whole, *part = NULL;
    uint8_t keep[HALO_ROWS];
    const bool none = rank == t->liar && t->lie < 0;
    memcpy(keep, t->keep[rank], sizeof keep);
    if (rank == t->liar && !none) {
        keep[t->lie] = !keep[t->lie];
    }
    if (lierne_plan_create_halo(&whole, context, &t->swaps.spec[rank]) != LIERNE_OK) {
        t->why[rank] = "no plan";
        return;
    }
    t->got[rank] = lierne_plan_create_restricted(&part, whole, none ? NULL : keep);
    snprintf(t->message[rank], sizeof t->message[rank], "%s", lierne_last_error());
    lierne_plan_destroy(whole);
    if (t->got[rank] == LIERNE_OK) {
        t->why[rank] = adjoint_fits(t, rank, part) ? NULL : "adjoint";
        lierne_plan_destroy(part);
    }
}

static void run_restriction(restriction *t, lierne_status expected) {
    ranks_run(t->swaps.world, NULL, restrict_one, t);
    for (int r = 0; r < t->swaps.world; r++) {
        cr_assert_eq(t->got[r], expected, "rank %d: %s", r, t->message[r]);
        cr_assert(!t->why[r], "rank %d: %s", r, t->why[r]);
    }
}

Test(halo_reject, a_mask_removes_rows_and_must_agree) {
    restriction *t = calloc(1, sizeof *t);
    int lies = 0;
    cr_assert(t);
    for (uint64_t seed = 0; seed < 24; seed++) {
        halo_case_random(&t->swaps, 1 + (int)(seed % HALO_WORLD), seed);
        fill_masks(t, seed);
        memcpy(t->expected, t->input, sizeof t->expected);
        halo_model_adjoint(&t->swaps, t->expected, LIERNE_DTYPE_I64, false);
        t->liar = -1;
        run_restriction(t, LIERNE_OK);
        t->liar = (int)(seed % (uint64_t)t->swaps.world);
        t->lie = (int)t->swaps.spec[t->liar].nlocal; /* its first ghost */
        if (t->swaps.spec[t->liar].nghost > 0) {
            run_restriction(t, LIERNE_ERR_MISMATCH);
            cr_assert(strstr(t->message[0], "swap ") && strstr(t->message[0], "row "), "%s",
                      t->message[0]);
            lies++;
        }
        t->lie = -1;
        if (halo_case_rows(&t->swaps, t->liar) > 0) {
            run_restriction(t, LIERNE_ERR_INVALID);
            cr_assert(strstr(t->message[0], "keep is NULL"), "%s", t->message[0]);
        }
    }
    cr_assert_gt(lies, 10);
    free(t);
}

/* A brick, its swaps, these restricted and flattened, until an allocation fails. */
static lierne_status plan_all(lierne_context *context, lierne_brick **brick, lierne_plan **plans) {
    const double at[3] = {4.0 * lierne_context_get_rank(context) + 1, 1, 1};
    const uint8_t keep[64] = {0};
    lierne_brick_spec box = {.size = sizeof box,
                             .grid = {WORLD, 1, 1},
                             .box = {12, 4, 4},
                             .periodic = {1, 1, 0},
                             .cutoff = 5,
                             .nlocal = 1,
                             .positions = at};
    lierne_halo_spec spec = {.size = sizeof spec, .dtype = LIERNE_DTYPE_F32, .width = 2};
    LIERNE_TRY(lierne_brick_create(brick, context, &box));
    LIERNE_TRY(lierne_brick_get_swaps(&spec, *brick));
    LIERNE_TRY(lierne_plan_create_halo(&plans[0], context, &spec));
    LIERNE_TRY(lierne_plan_create_restricted(&plans[1], plans[0], keep));
    return lierne_plan_create_flattened(&plans[2], plans[0], 0);
}

/* One rank runs out of memory at some allocation: all ranks return it, or none. */
static void plan_short_of_memory(lierne_context *context, void *shared) {
    rejection *f = shared;
    lierne_brick *brick = NULL;
    lierne_plan *plans[3] = {0};
    f->got[lierne_context_get_rank(context)] = plan_all(context, &brick, plans);
    for (int i = 0; i < 3; i++) {
        lierne_plan_destroy(plans[i]);
    }
    lierne_brick_destroy(brick);
}

Test(halo_reject, running_out_of_memory_leaves_nothing) {
    static rejection f;
    bool rejected = true;
    for (size_t k = 1; rejected && k < 2000; k++) {
        lierne_sim *sim;
        size_t live = lierne_mem_live();
        assert_ok(lierne_sim_create(&sim, WORLD, NULL));
        f = (rejection){0};
        lierne_mem_fail_at(k);
        rank_threads(sim, WORLD, plan_short_of_memory, &f);
        lierne_mem_fail_at(0);
        rejected = f.got[0] != LIERNE_OK || f.got[1] != LIERNE_OK || f.got[2] != LIERNE_OK;
        for (int r = 0; r < WORLD; r++) {
            cr_assert(f.got[r] == LIERNE_OK || f.got[r] == LIERNE_ERR_NO_MEMORY,
                      "allocation %zu: %s", k, lierne_status_name(f.got[r]));
            cr_assert_eq(f.got[r], f.got[0], "allocation %zu: rank %d %s, rank 0 %s", k, r,
                         lierne_status_name(f.got[r]), lierne_status_name(f.got[0]));
        }
        assert_ok(lierne_sim_destroy(sim));
        cr_assert_eq(lierne_mem_live(), live);
    }
    cr_assert(!rejected, "every allocation fails");
}
