/* A bad argument on one rank, in a call that executes, where the context checks: every rank of the
 * simulated world gets the same INVALID. Ranks that called earlier have begun: they get it when
 * they end, not at their deadline. */
#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <stdio.h>
#include <string.h>

#include "ranks.h"

enum { WORLD = 3, SAMPLES = 6, WIDTH = 4, MINE = SAMPLES / WORLD * WIDTH, ALL = SAMPLES * WIDTH };

typedef enum fault {
    FORWARD_WITHOUT_REQUEST,
    ADJOINT_WITHOUT_REQUEST,
    FORWARD_WITHOUT_IN,
    REDUCE_BY_SEVEN,
    REDUCE_BY_SUM,
    REDUCE_A_BRIDGE,
    EXCHANGE_IN_DIRECTION_SEVEN,
    EXCHANGE_WITHOUT_OUT,
    FAULTS
} fault;

typedef struct world {
    fault fault;
    int who;
    lierne_grid *src, *dst;
    lierne_status status[WORLD];
    char message[WORLD][1024];
    int broken[WORLD]; /* line of an expectation that did not hold */
} world;

#define EXPECT(condition)                                                                          \
    if (!(condition)) {                                                                            \
        w->broken[r] = __LINE__;                                                                   \
    }

typedef struct plans {
    lierne_plan *bridge, *pairs;
    lierne_coalesced *exchange;
    float in[ALL], out[ALL], owned[2], ghost[1];
} plans;

static void make_plans(world *w, lierne_context *context, int r, plans *p) {
    const int64_t shape[2] = {SAMPLES, WIDTH}, row = 1;
    int32_t next = (r + 1) % WORLD;
    lierne_bridge_spec bridge = {.size = sizeof bridge,
                                 .src = w->src,
                                 .dst = w->dst,
                                 .naxes = 2,
                                 .shape = shape,
                                 .dtype = LIERNE_DTYPE_F32,
                                 .sequence_axis = -1};
    lierne_references_spec pairs = {.size = sizeof pairs,
                                    .nowned = 2,
                                    .nghosts = 1,
                                    .rank = &next,
                                    .row = &row,
                                    .dtype = LIERNE_DTYPE_F32,
                                    .width = 1};
    EXPECT(lierne_plan_create_bridge(&p->bridge, context, &bridge) == LIERNE_OK)
    EXPECT(lierne_plan_create_references(&p->pairs, context, &pairs) == LIERNE_OK)
    EXPECT(lierne_coalesced_create(&p->exchange, &p->bridge, 1) == LIERNE_OK)
    for (int i = 0; i < ALL; i++) {
        p->in[i] = (float)(100 * r + i + 1);
    }
    p->owned[0] = 3, p->owned[1] = 4, p->ghost[0] = 5;
}

static lierne_status exchange(plans *p, lierne_direction d, void *out) {
    const void *in = p->in;
    lierne_status status = lierne_coalesced_begin(p->exchange, d, &out, &in, NULL);
    return status == LIERNE_OK ? lierne_coalesced_end(p->exchange, d) : status;
}

static lierne_status begin_and_end(plans *p, lierne_direction d, bool bad) {
    lierne_request *q = NULL;
    lierne_status status =
        (d == LIERNE_DIRECTION_FORWARD
             ? lierne_plan_forward_begin
             : lierne_plan_adjoint_begin)(bad ? NULL : &q, p->bridge, p->out, p->in, NULL);
    return status == LIERNE_OK ? lierne_request_end(q) : status;
}

static lierne_status reduce(plans *p, lierne_reduction reduction) {
    return lierne_plan_reduce(p->pairs, reduction, p->owned, p->ghost, NULL);
}

static lierne_status commit(fault f, plans *p, bool bad) {
    switch (f) {
    case FORWARD_WITHOUT_REQUEST:
        return begin_and_end(p, LIERNE_DIRECTION_FORWARD, bad);
    case ADJOINT_WITHOUT_REQUEST:
        return begin_and_end(p, LIERNE_DIRECTION_ADJOINT, bad);
    case FORWARD_WITHOUT_IN:
        return lierne_plan_forward(p->bridge, p->out, bad ? NULL : p->in, NULL);
    case REDUCE_BY_SEVEN:
        return reduce(p, bad ? (lierne_reduction)7 : LIERNE_REDUCTION_MAX);
    case REDUCE_BY_SUM:
        return reduce(p, bad ? LIERNE_REDUCTION_SUM : LIERNE_REDUCTION_MIN);
    case REDUCE_A_BRIDGE:
        return bad ? lierne_plan_reduce(p->bridge, LIERNE_REDUCTION_MAX, p->out, p->in, NULL)
                   : reduce(p, LIERNE_REDUCTION_MAX);
    case EXCHANGE_IN_DIRECTION_SEVEN:
        return exchange(p, bad ? (lierne_direction)7 : LIERNE_DIRECTION_ADJOINT, p->out);
    default:
        return exchange(p, LIERNE_DIRECTION_FORWARD, bad ? NULL : p->out);
    }
}

static void run_rank(lierne_context *context, void *shared) {
    world *w = shared;
    int r = lierne_context_get_rank(context);
    plans p = {0};
    make_plans(w, context, r, &p);
    if (!w->broken[r]) {
        w->status[r] = commit(w->fault, &p, r == w->who);
        snprintf(w->message[r], sizeof w->message[r], "%s", lierne_last_error());
    }
    EXPECT(lierne_coalesced_destroy(p.exchange) == LIERNE_OK)
    EXPECT(lierne_plan_destroy(p.bridge) == LIERNE_OK)
    EXPECT(lierne_plan_destroy(p.pairs) == LIERNE_OK)
}

static void judge(const world *w, const char *words) {
    char name[16];
    snprintf(name, sizeof name, "rank %d: ", w->who);
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(w->broken[r], 0, "fault %d of rank %d: line %d on rank %d", (int)w->fault,
                     w->who, w->broken[r], r);
        cr_assert_eq(w->status[r], LIERNE_ERR_INVALID, "fault %d of rank %d: %s on rank %d: %s",
                     (int)w->fault, w->who, lierne_status_name(w->status[r]), r, w->message[r]);
        cr_assert_eq(strncmp(w->message[r], "lierne_", 7), 0, "'%s'", w->message[r]);
        cr_assert_str_eq(strchr(w->message[r], ':'), strchr(w->message[0], ':'));
        cr_assert(strstr(w->message[r], words) && strstr(w->message[r], name),
                  "'%s' and '%s' are not in '%s'", words, name, w->message[r]);
    }
}

Test(arguments, of_one_rank_are_the_error_of_all_where_the_context_checks) {
    static const char *const words[FAULTS] = {
        "forward: request is NULL",  "adjoint: request is NULL",
        "forward: in is NULL",       "reduction is 7, must be 1 (max) or 2 (min)",
        "reduction is 0, must be 1", "the plan does not exchange rows",
        "direction is 7, must be 0", "forward: out is NULL"};
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 120, .check = 1};
    for (int f = 0; f < FAULTS; f++) {
        for (int who = 0; who < WORLD; who++) {
            world w = {.fault = (fault)f,
                       .who = who,
                       .src = grid_of(1, 1, WORLD, WORLD),
                       .dst = grid_of(1, WORLD, 1, WORLD)};
            ranks_run(WORLD, &spec, run_rank, &w);
            judge(&w, words[f]);
            lierne_grid_destroy(w.src), lierne_grid_destroy(w.dst);
        }
    }
}

/* From one thread: ranks that began before the fault get the error from lierne_request_end. */
Test(arguments, earlier_ranks_get_the_error_at_the_end) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 120, .check = 1};
    const int64_t shape[2] = {SAMPLES, WIDTH};
    lierne_grid *src = grid_of(1, 1, WORLD, WORLD), *dst = grid_of(1, WORLD, 1, WORLD);
    lierne_bridge_spec bridge = {.size = sizeof bridge,
                                 .src = src,
                                 .dst = dst,
                                 .naxes = 2,
                                 .shape = shape,
                                 .dtype = LIERNE_DTYPE_F32,
                                 .sequence_axis = -1};
    for (int coalesced = 0; coalesced < 2; coalesced++) {
        lierne_sim *sim;
        plans p[WORLD] = {0};
        lierne_request *q[WORLD] = {0};
        assert_ok(lierne_sim_create(&sim, WORLD, &spec));
        for (int r = 0; r < WORLD; r++) {
            lierne_context *context = lierne_sim_get_context(sim, r);
            assert_ok(lierne_plan_create_bridge(&p[r].bridge, context, &bridge));
            assert_ok(lierne_coalesced_create(&p[r].exchange, &p[r].bridge, 1));
        }
        for (int r = 0; r < WORLD; r++) {
            const void *in = p[r].in;
            void *out = p[r].out;
            lierne_direction d = r == WORLD - 1 ? (lierne_direction)2 : LIERNE_DIRECTION_FORWARD;
            lierne_status status = coalesced
                                       ? lierne_coalesced_begin(p[r].exchange, d, &out, &in, NULL)
                                       : lierne_plan_forward_begin(r == WORLD - 1 ? NULL : &q[r],
                                                                   p[r].bridge, out, in, NULL);
            cr_assert_eq(status, r == WORLD - 1 ? LIERNE_ERR_INVALID : LIERNE_OK);
        }
        for (int r = 0; r < WORLD - 1; r++) {
            cr_assert_eq(coalesced ? lierne_coalesced_end(p[r].exchange, LIERNE_DIRECTION_FORWARD)
                                   : lierne_request_end(q[r]),
                         LIERNE_ERR_INVALID, "%s", lierne_last_error());
            const char *begin =
                coalesced ? "lierne_coalesced_end: rank 2: " : "lierne_request_end: rank 2: ";
            cr_assert_eq(strncmp(lierne_last_error(), begin, strlen(begin)), 0, "%s",
                         lierne_last_error());
        }
        for (int r = 0; r < WORLD; r++) {
            assert_ok(lierne_coalesced_destroy(p[r].exchange));
            assert_ok(lierne_plan_destroy(p[r].bridge));
        }
        assert_ok(lierne_sim_destroy(sim));
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}
