/* Plans that connect both ends of their messages, over a transport that knows the other end only so
 * (tests/support/transports.h): the same bits as over sim for overlapping calls, coalesced plans,
 * counts that change and plans that are updated; and no plan anywhere where a rank cannot connect.
 */
#include "base/base.h"
#include "bridge_plan.h"
#include "layouts.h"
#include "mesh.h"
#include "rank_threads.h"
#include "runtime/context/context.h"
#include "runtime/execute/execution.h"
#include "transports.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, PLANS = 3, INFLIGHT = 3, ELEMENTS = 8 * 6 * 4, ROUNDS = 4, GHOSTS = 9 };

/* What all ranks leave, of one program: compared between transports. */
typedef struct outputs {
    float bridge[RANKS][ROUNDS][2 * INFLIGHT][ELEMENTS];
    float coalesced[RANKS][ROUNDS][2 * PLANS][ELEMENTS];
    float counts[RANKS][ROUNDS][2][ELEMENTS];
    float graph[RANKS][ROUNDS][2][4 * (RANKS + GHOSTS)];
    float corners[RANKS][2 * 2 * 2 * 2];
    char fault[RANKS][256];
} outputs;

/* Two stages with sums in the adjoint; the batch is axis 0 or 1, so that blocks are strided. */
static lierne_status plan_bridge(lierne_plan **plan, lierne_context *context, int kind) {
    static const int64_t shape[3] = {8, 6, 4};
    lierne_grid *src = kind == 2 ? grid_of(1, 1, 8, RANKS) : grid_of(8, 1, 1, RANKS);
    lierne_grid *dst = kind == 2 ? grid_of(2, 2, 2, RANKS) : grid_of(1, 4, 2, RANKS);
    lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
    spec.batch_axis = kind == 1;
    spec.sequence_axis = kind != 1;
    spec.max_inflight = INFLIGHT;
    spec.variable_rows = kind == 2;
    lierne_status status = lierne_plan_create_bridge(plan, context, &spec);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    return status;
}

static void fill(float *x, int n, int rank, int salt) {
    for (int i = 0; i < n; i++) {
        x[i] = (float)(1 + (rank * 131 + salt * 17 + i * 7) % 101) / 3;
    }
}

typedef float inputs[2 * INFLIGHT][ELEMENTS];

/* All calls that may be in flight, ended in another order on each rank, so that ranks take
 * different requests for one call. */
static lierne_status overlap(lierne_plan *plan, int rank, int round, inputs in,
                             float (*out)[ELEMENTS]) {
    lierne_request *requests[2 * INFLIGHT];
    for (int c = 0; c < 2 * INFLIGHT; c++) {
        fill(in[c], ELEMENTS, rank, round * 10 + c);
        LIERNE_TRY((c % 2 ? lierne_plan_adjoint_begin
                          : lierne_plan_forward_begin)(&requests[c], plan, out[c], in[c], NULL));
        if (c == 2 * (rank % 2)) { /* its request is free again for the next call */
            LIERNE_TRY(lierne_request_end(requests[c]));
        }
    }
    for (int i = 0; i < 2 * INFLIGHT; i++) {
        int c = (i * 5 + rank) % (2 * INFLIGHT);
        LIERNE_TRY(c == 2 * (rank % 2) ? LIERNE_OK : lierne_request_end(requests[c]));
    }
    return LIERNE_OK;
}

static lierne_status run_bridges(lierne_context *context, int rank, outputs *o) {
    lierne_plan *plan;
    inputs in;
    LIERNE_TRY(plan_bridge(&plan, context, 0));
    for (int round = 0; round < ROUNDS; round++) {
        LIERNE_TRY(overlap(plan, rank, round, in, o->bridge[rank][round]));
    }
    return lierne_plan_destroy(plan);
}

static lierne_status run_coalesced(lierne_context *context, int rank, outputs *o) {
    lierne_plan *plans[PLANS];
    lierne_coalesced *x;
    float in[2 * PLANS][ELEMENTS];
    for (int p = 0; p < PLANS; p++) {
        LIERNE_TRY(plan_bridge(&plans[p], context, p % 2));
    }
    LIERNE_TRY(lierne_coalesced_create(&x, plans, PLANS));
    for (int round = 0; round < ROUNDS; round++) {
        for (int d = 0; d < 2; d++) {
            void *to[PLANS];
            const void *from[PLANS];
            for (int p = 0; p < PLANS; p++) {
                fill(in[d * PLANS + p], ELEMENTS, rank, 100 * round + d * PLANS + p);
                from[p] = in[d * PLANS + p];
                to[p] = o->coalesced[rank][round][d * PLANS + p];
            }
            LIERNE_TRY(lierne_coalesced_begin(x, (lierne_direction)d, to, from, NULL));
        }
        LIERNE_TRY(lierne_coalesced_end(x, (lierne_direction)(rank % 2)));
        LIERNE_TRY(lierne_coalesced_end(x, (lierne_direction)(1 - rank % 2)));
    }
    LIERNE_TRY(lierne_coalesced_destroy(x));
    for (int p = 0; p < PLANS; p++) {
        LIERNE_TRY(lierne_plan_destroy(plans[p]));
    }
    return LIERNE_OK;
}

/* One sample per rank, with another number of rows in every round. */
static lierne_status run_counts(lierne_context *context, int rank, outputs *o) {
    lierne_plan *plan;
    float in[2][ELEMENTS];
    LIERNE_TRY(plan_bridge(&plan, context, 2));
    for (int round = 0; round < ROUNDS; round++) {
        int64_t rows[1] = {(rank * 3 + round * 2 + rank / 2) % 7};
        LIERNE_TRY(lierne_plan_update_counts(plan, rows));
        for (int d = 0; d < 2; d++) {
            fill(in[d], ELEMENTS, rank, 50 * round + d);
            LIERNE_TRY((d ? lierne_plan_adjoint
                          : lierne_plan_forward)(plan, o->counts[rank][round][d], in[d], NULL));
        }
    }
    return lierne_plan_destroy(plan);
}

enum { ROWS = 4 * RANKS, WIDTH = 2 };

/* Row i of the graph is that of rank i / 4; every rank has edges from rows all over, some twice. */
static lierne_status run_graph(lierne_context *context, int rank, outputs *o) {
    lierne_plan *plan = NULL;
    int32_t owner[ROWS];
    int64_t source[GHOSTS], target[GHOSTS];
    float in[WIDTH * ROWS];
    for (int i = 0; i < ROWS; i++) {
        owner[i] = i / 4;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < GHOSTS; k++) {
            source[k] = (rank * 11 + k * (round + 3) + round * k) % ROWS;
            target[k] = 4 * rank + k % 4;
        }
        const lierne_graph_spec spec = {.size = sizeof spec,
                                        .nrows = ROWS,
                                        .owner = owner,
                                        .nedges = GHOSTS,
                                        .source = source,
                                        .target = target,
                                        .dtype = LIERNE_DTYPE_F32,
                                        .width = WIDTH,
                                        .algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT};
        LIERNE_TRY(plan ? lierne_plan_update_graph(plan, &spec)
                        : lierne_plan_create_graph(&plan, context, &spec));
        for (int d = 0; d < 2; d++) {
            fill(in, WIDTH * ROWS, rank, 70 * round + d);
            LIERNE_TRY((d ? lierne_plan_adjoint
                          : lierne_plan_forward)(plan, o->graph[rank][round][d], in, NULL));
        }
    }
    return lierne_plan_destroy(plan);
}

/* Rank 0 sends every rank a corner of its tensor: a block of as many loops as there may be. */
static lierne_status run_corners(lierne_context *context, int rank, outputs *o) {
    static const int64_t shape[LIERNE_MAX_AXES] = {2, 4, 4, 4};
    const mesh dims = {.ndims = 3, .names = {"a", "b", "c"}, .sizes = {2, 2, 2}};
    lierne_placement from[3], to[3];
    lierne_plan *plan;
    float in[2 * 4 * 4 * 4];
    for (int d = 0; d < 3; d++) {
        from[d] = (lierne_placement){.kind = LIERNE_PLACEMENT_AT};
        to[d] = (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD, .axis = d + 1};
    }
    LIERNE_TRY(
        plan_between(&plan, context, &dims, LIERNE_DTYPE_F32, LIERNE_MAX_AXES, shape, from, to, 1));
    fill(in, 2 * 4 * 4 * 4, rank, 3);
    LIERNE_TRY(lierne_plan_forward(plan, o->corners[rank], in, NULL));
    return lierne_plan_destroy(plan);
}

static void run_program(lierne_context *context, void *shared) {
    outputs *o = shared;
    int rank = lierne_context_get_rank(context);
    lierne_status status = run_bridges(context, rank, o);
    status = status == LIERNE_OK ? run_coalesced(context, rank, o) : status;
    status = status == LIERNE_OK ? run_counts(context, rank, o) : status;
    status = status == LIERNE_OK ? run_graph(context, rank, o) : status;
    status = status == LIERNE_OK ? run_corners(context, rank, o) : status;
    snprintf(o->fault[rank], sizeof o->fault[rank], "%s",
             status == LIERNE_OK ? "" : lierne_last_error());
}

/* pairs 0: over sim alone. */
static outputs *outputs_over(unsigned pairs) {
    lierne_sim *sim;
    size_t live = lierne_mem_live(), ways[3] = {0};
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    outputs *o = malloc(sizeof *o);
    memset(o, 0xa5, sizeof *o);
    assert_ok(lierne_sim_create(&sim, RANKS, &spec));
    test_transports *t =
        pairs ? test_transports_attach(sim, RANKS, (test_pairs){.connected = pairs}) : NULL;
    rank_threads(sim, RANKS, run_program, o);
    for (int r = 0; r < RANKS; r++) {
        cr_assert_str_empty(o->fault[r], "pairs %x, rank %d: %s", pairs, r, o->fault[r]);
    }
    if (t) {
        test_transports_count(t, ways);
        cr_assert(ways[0] > 100 && ways[1] > 100 && ways[2] > 100,
                  "%zu shown, %zu packed, %zu moved", ways[0], ways[1], ways[2]);
    }
    assert_ok(lierne_sim_destroy(sim));
    cr_assert(test_transports_destroy(t), "messages are left");
    cr_assert_eq(lierne_mem_live(), live);
    return o;
}

Test(connect, the_bits_are_those_of_sim) {
    outputs *plain = outputs_over(0);
    for (unsigned pairs = 1; pairs < 8; pairs++) {
        outputs *o = outputs_over(pairs);
        cr_assert_eq(memcmp(o->bridge, plain->bridge, sizeof o->bridge), 0, "pairs %x", pairs);
        cr_assert_eq(memcmp(o->coalesced, plain->coalesced, sizeof o->coalesced), 0, "pairs %x",
                     pairs);
        cr_assert_eq(memcmp(o->counts, plain->counts, sizeof o->counts), 0, "pairs %x", pairs);
        cr_assert_eq(memcmp(o->graph, plain->graph, sizeof o->graph), 0, "pairs %x", pairs);
        cr_assert_eq(memcmp(o->corners, plain->corners, sizeof o->corners), 0, "pairs %x", pairs);
        free(o);
    }
    free(plain);
}

/* What a rank that cannot connect does to all of them. */
typedef struct refusal {
    test_transports *transport;
    int odd; /* the rank that cannot */
    char fault[RANKS][256];
} refusal;

static const char *expect_no_memory(lierne_status status, int odd) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "rank %d cannot connect", odd);
    if (status != LIERNE_ERR_NO_MEMORY) {
        return status == LIERNE_OK ? "no error" : lierne_last_error();
    }
    return strstr(lierne_last_error(), wanted) ? NULL : lierne_last_error();
}

static lierne_status barrier(lierne_context *context) {
    return lierne_context_agree_all(context, LIERNE_OK, NULL, 0, NULL);
}

/* A plan, coalesced plans: none anywhere, and both can be made afterwards. Counts: the context
 * ends.
 */
static const char *refuse(lierne_context *context, int rank, const refusal *c) {
    lierne_plan *plan, *variable;
    lierne_coalesced *x;
    const char *wrong;
    float in[ELEMENTS], out[ELEMENTS];
    const int64_t rows[1] = {3};
    if (rank == c->odd) {
        test_transports_fail_connect(c->transport, rank, 2);
    }
    if ((wrong = expect_no_memory(plan_bridge(&plan, context, 0), c->odd)) || plan) {
        return wrong ? wrong : "a plan was made";
    }
    if (plan_bridge(&plan, context, 0) != LIERNE_OK ||
        plan_bridge(&variable, context, 2) != LIERNE_OK) {
        return lierne_last_error();
    }
    if (rank == c->odd) {
        test_transports_fail_connect(c->transport, rank, 1);
    }
    if ((wrong = expect_no_memory(lierne_coalesced_create(&x, &plan, 1), c->odd)) || x) {
        return wrong ? wrong : "coalesced plans were made";
    }
    fill(in, ELEMENTS, rank, 1);
    if (lierne_coalesced_create(&x, &plan, 1) != LIERNE_OK ||
        lierne_coalesced_destroy(x) != LIERNE_OK ||
        lierne_plan_forward(plan, out, in, NULL) != LIERNE_OK || barrier(context) != LIERNE_OK) {
        return lierne_last_error();
    }
    if (rank == c->odd) {
        test_transports_fail_connect(c->transport, rank, 1);
    }
    if ((wrong = expect_no_memory(lierne_plan_update_counts(variable, rows), c->odd))) {
        return wrong;
    }
    if ((wrong = expect_no_memory(lierne_plan_forward(plan, out, in, NULL), c->odd))) {
        return wrong;
    }
    return lierne_plan_destroy(plan) == LIERNE_OK && lierne_plan_destroy(variable) == LIERNE_OK
               ? NULL
               : lierne_last_error();
}

static void run_refusal(lierne_context *context, void *shared) {
    refusal *c = shared;
    int rank = lierne_context_get_rank(context);
    const char *wrong = refuse(context, rank, c);
    snprintf(c->fault[rank], sizeof c->fault[rank], "%s", wrong ? wrong : "");
}

Test(connect, a_rank_that_cannot_connect_fails_the_plan_on_all) {
    for (int odd = 0; odd < RANKS; odd += 3) {
        lierne_sim *sim;
        const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
        refusal c = {.odd = odd};
        assert_ok(lierne_sim_create(&sim, RANKS, &spec));
        c.transport = test_transports_attach(sim, RANKS, (test_pairs){.connected = 7});
        rank_threads(sim, RANKS, run_refusal, &c);
        for (int r = 0; r < RANKS; r++) {
            cr_expect_str_empty(c.fault[r], "rank %d cannot, rank %d: %s", odd, r, c.fault[r]);
        }
        assert_ok(lierne_sim_destroy(sim));
        test_transports_destroy(c.transport);
        cr_assert_eq(lierne_mem_live(), 0);
    }
}

/* Both directions of two ranks. */
typedef struct ends {
    lierne_route *routes[2];
    lierne_execution *executions[2];
} ends;

/* Rank 0 sends two messages, of which rank 1 expects one. */
static void open_ends(ends *x, lierne_context *context) {
    int rank = lierne_context_get_rank(context);
    lierne_stage *stage;
    for (int d = 0; d < 2; d++) {
        lierne_route_create(&x->routes[d], rank, 8, 8);
        lierne_route_add_stage(x->routes[d], &stage);
        x->routes[d]->dtype = LIERNE_DTYPE_F32;
        for (int i = 0; d == 0 && i < 2 - rank; i++) {
            lierne_messages_put(rank ? &stage->recvs : &stage->sends, 1 - rank,
                                rank ? LIERNE_BUFFER_OUT : LIERNE_BUFFER_IN,
                                lierne_block_range(4 * i, 4));
        }
        const lierne_route *route = x->routes[d];
        lierne_execution_create(&x->executions[d], context, NULL, &route, 1, 1, "messages", NULL,
                                NULL);
    }
}

static void close_ends(ends *x) {
    for (int d = 0; d < 2; d++) {
        lierne_execution_destroy(x->executions[d]);
        lierne_route_destroy(x->routes[d]);
    }
}

static void connect_ends(lierne_context *context, void *shared) {
    bool *found = shared;
    lierne_connection *connection = NULL;
    ends x;
    open_ends(&x, context);
    found[lierne_context_get_rank(context)] =
        lierne_connection_create(&connection, context, x.executions, 1) == LIERNE_OK &&
        lierne_connection_establish(connection) == LIERNE_ERR_TRANSPORT &&
        strstr(lierne_error_text(), "describes other messages");
    close_ends(&x);
    lierne_connection_destroy(connection);
}

Test(connect, a_message_more_than_the_other_end_has_is_an_error) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    bool found[2];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 2, &spec));
    test_transports *t = test_transports_attach(sim, 2, (test_pairs){.connected = 7});
    rank_threads(sim, 2, connect_ends, found);
    cr_expect(found[0] && found[1]);
    assert_ok(lierne_sim_destroy(sim));
    test_transports_destroy(t);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* What is described is one control message to a peer. */
Test(connect, running_out_of_memory_while_describing_leaves_nothing) {
    char said[64];
    bool found = false;
    lierne_connection *connection = NULL;
    lierne_sim *sim;
    ends x;
    snprintf(said, sizeof said, "no memory for 1 items of %zu bytes",
             sizeof(lierne_control_message));
    assert_ok(lierne_sim_create(&sim, 2, NULL));
    test_transports *t = test_transports_attach(sim, 2, (test_pairs){.connected = 7});
    open_ends(&x, lierne_sim_get_context(sim, 0));
    size_t live = lierne_mem_live();
    for (size_t k = 1; !connection; k++) {
        lierne_mem_fail_at(k);
        lierne_status status =
            lierne_connection_create(&connection, lierne_sim_get_context(sim, 0), x.executions, 1);
        lierne_mem_fail_at(0);
        cr_assert(connection || (status == LIERNE_ERR_NO_MEMORY && lierne_mem_live() == live));
        found |= !connection && strcmp(lierne_error_text(), said) == 0;
    }
    cr_expect(found);
    close_ends(&x);
    lierne_connection_destroy(connection);
    assert_ok(lierne_sim_destroy(sim));
    test_transports_destroy(t);
    cr_assert_eq(lierne_mem_live(), 0);
}
