/* What is written where it is sent from.
 *
 * Coalesced plans of which some run in place, over transports whose receivers read the sender's
 * buffers: the adjoint clears ghosts that it has sent, and adds to rows, in the buffer that it
 * sends from. So it must wait for the readers, whatever its place among the plans. */
#include "base/base.h"
#include "numbers.h"
#include "rank_threads.h"
#include "runtime/execute/execution.h"
#include "transports.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, OWNED = 4, GHOSTS = 4, WIDTH = 3, ROUNDS = 40, PLANS = 3 };
enum { ELEMENTS = (OWNED + GHOSTS) * WIDTH };

static const int owner_after[GHOSTS] = {1, 1, 1, 2}, row_of[GHOSTS] = {0, 1, 2, 3};

typedef struct shared {
    char fault[RANKS][200];
} shared;

static lierne_status plan_rows(lierne_plan **plan, lierne_context *context) {
    int rank = lierne_context_get_rank(context);
    int32_t ranks[GHOSTS];
    int64_t rows[GHOSTS];
    for (int k = 0; k < GHOSTS; k++) {
        ranks[k] = (rank + owner_after[k]) % RANKS;
        rows[k] = row_of[k];
    }
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = OWNED,
                                         .nghosts = GHOSTS,
                                         .rank = ranks,
                                         .row = rows,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .width = WIDTH,
                                         .combined = 1};
    return lierne_plan_create_references(plan, context, &spec);
}

/* Whole numbers, so that every order of additions has the same bits. */
static float value(int round, int plan, int rank, int element) {
    return (float)(1 + (round * 31 + plan * 57 + rank * 13 + element * 7) % 97);
}

static void expect(float *y, lierne_direction d, int round, int plan, int rank) {
    for (int i = 0; i < ELEMENTS; i++) {
        int ghost = i / WIDTH - OWNED;
        y[i] = value(round, plan, rank, i);
        if (ghost >= 0) {
            int owner = (rank + owner_after[ghost]) % RANKS;
            y[i] = d == LIERNE_DIRECTION_ADJOINT
                       ? 0
                       : value(round, plan, owner, row_of[ghost] * WIDTH + i % WIDTH);
        }
    }
    for (int k = 0; d == LIERNE_DIRECTION_ADJOINT && k < GHOSTS; k++) {
        int from = (rank + RANKS - owner_after[k]) % RANKS;
        for (int w = 0; w < WIDTH; w++) {
            y[row_of[k] * WIDTH + w] += value(round, plan, from, (OWNED + k) * WIDTH + w);
        }
    }
}

/* The plans in `mask` run in place. */
static lierne_status call(lierne_coalesced *x, lierne_direction d, int round, int rank,
                          unsigned mask, bool *right) {
    float in[PLANS][ELEMENTS], apart[PLANS][ELEMENTS], wanted[ELEMENTS];
    void *out[PLANS];
    const void *from[PLANS];
    for (int p = 0; p < PLANS; p++) {
        for (int i = 0; i < ELEMENTS; i++) {
            in[p][i] = value(round, p, rank, i);
        }
        memset(apart[p], 0xa5, sizeof apart[p]);
        from[p] = in[p];
        out[p] = mask >> p & 1 ? in[p] : apart[p];
    }
    LIERNE_TRY(lierne_coalesced_begin(x, d, out, from, NULL));
    LIERNE_TRY(lierne_coalesced_end(x, d));
    for (int p = 0; p < PLANS; p++) {
        expect(wanted, d, round, p, rank);
        *right &= memcmp(out[p], wanted, sizeof wanted) == 0;
    }
    return LIERNE_OK;
}

static lierne_status run_calls(lierne_context *context, int rank, bool *right) {
    lierne_plan *plans[PLANS];
    lierne_coalesced *x;
    for (int p = 0; p < PLANS; p++) {
        LIERNE_TRY(plan_rows(&plans[p], context));
    }
    LIERNE_TRY(lierne_coalesced_create(&x, plans, PLANS));
    for (int round = 0; round < ROUNDS; round++) {
        for (int d = 0; d < 2; d++) {
            unsigned mask = (unsigned)(round + (round % 3 == 0 ? rank : 0)) % 8;
            LIERNE_TRY(call(x, (lierne_direction)d, round, rank, mask, right));
        }
    }
    LIERNE_TRY(lierne_coalesced_destroy(x));
    for (int p = 0; p < PLANS; p++) {
        LIERNE_TRY(lierne_plan_destroy(plans[p]));
    }
    return LIERNE_OK;
}

static void run_rank(lierne_context *context, void *arg) {
    shared *s = arg;
    int rank = lierne_context_get_rank(context);
    bool right = true;
    lierne_status status = run_calls(context, rank, &right);
    snprintf(s->fault[rank], sizeof s->fault[rank], "%s",
             status != LIERNE_OK ? lierne_last_error()
             : right             ? ""
                                 : "wrong values");
}

static void run_over(bool exposing, unsigned pairs) {
    lierne_sim *sim;
    shared s;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    assert_ok(lierne_sim_create(&sim, RANKS, &spec));
    const test_pairs of = {.exposed = exposing ? pairs : 0, .connected = exposing ? 0 : pairs};
    test_transports *t = test_transports_attach(sim, RANKS, of);
    rank_threads(sim, RANKS, run_rank, &s);
    for (int r = 0; r < RANKS; r++) {
        cr_assert_str_empty(s.fault[r], "pairs %x, rank %d: %s", pairs, r, s.fault[r]);
    }
    assert_ok(lierne_sim_destroy(sim));
    cr_assert(test_transports_destroy(t));
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(in_place, coalesced_plans_over_exposed_memory) {
    for (unsigned pairs = 0; pairs < 8; pairs++) {
        run_over(true, pairs);
        run_over(false, pairs);
    }
}

/* --- whether blocks have an element in common --- */

enum { SPACE = 4096, BLOCKS = 20000 };

static void mark(bool *has, const lierne_block *b) {
    memset(has, 0, SPACE);
    for (int64_t i = 0; i < lierne_block_elements(b); i++) {
        int64_t at = b->offset, left = i;
        for (int d = b->ndims - 1; d >= 0; left /= b->count[d--]) {
            at += left % b->count[d] * b->stride[d];
        }
        has[at] = true;
    }
}

/* A box of a tensor, or loops with any strides. */
static lierne_block draw_block(uint64_t seed, const int64_t *shape, bool box) {
    int64_t start[3], size[3];
    lierne_block b = {.offset = (int64_t)(mix(seed) % 40), .ndims = 3};
    for (int d = 0; d < 3; d++) {
        start[d] = (int64_t)(mix(seed + 10 + (uint64_t)d) % (uint64_t)shape[d]);
        size[d] = 1 + (int64_t)(mix(seed + 20 + (uint64_t)d) % (uint64_t)(shape[d] - start[d]));
        b.count[d] = size[d];
        b.stride[d] = 1 + (int64_t)(mix(seed + 30 + (uint64_t)d) % 60);
    }
    if (box) {
        b = lierne_block_box(3, shape, start, size);
        lierne_blocks_join((lierne_block *const[]){&b}, 1);
    }
    return b;
}

Test(in_place, blocks_are_apart_where_no_element_is_in_both) {
    static bool has[2][SPACE];
    int exact = 0;
    for (uint64_t seed = 0; seed < BLOCKS; seed++) {
        const int64_t shape[3] = {1 + (int64_t)(mix(seed * 3) % 5),
                                  1 + (int64_t)(mix(seed * 3 + 1) % 6),
                                  1 + (int64_t)(mix(seed * 3 + 2) % 7)};
        bool boxes = seed % 4 != 0, common = false;
        lierne_block a = draw_block(seed * 100, shape, true);
        lierne_block b = draw_block(seed * 100 + 50, shape, boxes);
        mark(has[0], &a);
        mark(has[1], &b);
        for (int i = 0; i < SPACE; i++) {
            common |= has[0][i] && has[1][i];
        }
        bool apart = lierne_blocks_apart(&a, &b);
        cr_assert(!apart || !common, "seed %d: a common element", (int)seed);
        cr_assert(apart || common || !boxes, "seed %d: boxes that have none", (int)seed);
        exact += apart && boxes;
    }
    cr_assert_gt(exact, BLOCKS / 10);
}

/* No plan has one, but a route that is broken is prepared before it is checked. */
Test(in_place, a_block_that_repeats_an_element_is_not_called_apart) {
    const lierne_block plain = {.offset = 2, .ndims = 1, .count = {5}, .stride = {1}};
    const lierne_block again = {.offset = 6, .ndims = 1, .count = {3}, .stride = {0}};
    const lierne_block far = {.offset = 7, .ndims = 1, .count = {3}, .stride = {0}};
    cr_expect(!lierne_blocks_apart(&plain, &again));
    cr_expect(!lierne_blocks_apart(&again, &plain));
    cr_expect(lierne_blocks_apart(&plain, &far));
    cr_expect(lierne_blocks_apart(&far, &plain));
}
