/* Several transports in one context: one that exposes, one without match ids, and sim, each for
 * some pairs of ranks. Every golden and random case runs over them too
 * (tests/cli/test_transports.sh); here are executions that overlap, the choice of transports, and a
 * peer that none reaches. */
#include "backend/cuda/ipc_transport.h"
#include "backend/oob/oob_transport.h"
#include "backend/self/self.h"
#include "backend/shm/shm_transport.h"
#include "backend/sim/sim_transport.h"
#include "base/base.h"
#include "bridge_plan.h"
#include "collectives.h"
#include "runtime/context/context.h"
#include "runtime/memory/host.h"
#include "transports.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, PLANS = 3, CALLS = 2 * PLANS, ELEMENTS = 8 * 6 * 4 };

/* Plans of one world with everything that their calls move. Call c is direction c % 2 of plan c
 * / 2.
 */
typedef struct world {
    lierne_sim *sim;
    test_transports *transports;
    lierne_plan *plans[PLANS][RANKS];
    lierne_request *requests[CALLS][RANKS];
    float in[CALLS][RANKS][ELEMENTS];
    float out[CALLS][RANKS][ELEMENTS];
} world;

/* Contributions to each row on four cp ranks, and eight ranks that need it: two stages with sums.
 */
static lierne_status plan_bridge(lierne_plan **plan, lierne_context *context) {
    static const int64_t shape[3] = {8, 6, 4};
    lierne_grid *src = grid_of(8, 1, 1, RANKS), *dst = grid_of(1, 4, 2, RANKS);
    const lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
    lierne_status status = lierne_plan_create_bridge(plan, context, &spec);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    return status;
}

static void open_world(world *w, test_pairs pairs, bool attach) {
    assert_ok(lierne_sim_create(&w->sim, RANKS, NULL));
    w->transports = attach ? test_transports_attach(w->sim, RANKS, pairs) : NULL;
    for (int p = 0; p < PLANS; p++) {
        for (int r = 0; r < RANKS; r++) {
            lierne_context *context = lierne_sim_get_context(w->sim, r);
            cr_assert_eq(plan_bridge(&w->plans[p][r], context), LIERNE_OK, "%s",
                         lierne_last_error());
        }
    }
}

static void close_world(world *w) {
    for (int i = 0; i < PLANS * RANKS; i++) {
        assert_ok(lierne_plan_destroy(w->plans[i / RANKS][i % RANKS]));
    }
    assert_ok(lierne_sim_destroy(w->sim));
    cr_assert(test_transports_destroy(w->transports), "messages are left");
}

static void begin(world *w, int c, int r) {
    for (int i = 0; i < ELEMENTS; i++) {
        w->in[c][r][i] = (float)(1 + (c * 131 + r * 17 + i * 7) % 101) / 3;
    }
    memset(w->out[c][r], 0xa5, sizeof w->out[c][r]);
    lierne_status status =
        (c % 2 ? lierne_plan_adjoint_begin
               : lierne_plan_forward_begin)(&w->requests[c][r], w->plans[c / 2][r], w->out[c][r],
                                            w->in[c][r], NULL);
    cr_assert_eq(status, LIERNE_OK, "%s", lierne_last_error());
}

/* All calls in flight at once, begun in one order on all ranks and ended in another on each. */
static void run_calls(world *w) {
    for (int r = 0; r < RANKS; r++) {
        for (int c = 0; c < CALLS; c++) {
            begin(w, c, r);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        for (int c = 0; c < CALLS; c++) {
            assert_ok(lierne_request_end(w->requests[(c * 5 + r) % CALLS][r]));
        }
    }
}

static void same_bits_as_sim(test_pairs pairs) {
    world *w = calloc(1, sizeof *w), *plain = calloc(1, sizeof *plain);
    cr_assert(w && plain);
    open_world(plain, pairs, false);
    open_world(w, pairs, true);
    run_calls(plain);
    run_calls(w);
    run_calls(w);
    for (int c = 0; c < CALLS; c++) {
        for (int r = 0; r < RANKS; r++) {
            cr_assert_eq(memcmp(w->out[c][r], plain->out[c][r], sizeof w->out[c][r]), 0,
                         "pairs %x and %x, call %d, rank %d", pairs.exposed, pairs.ordered, c, r);
        }
    }
    close_world(w);
    close_world(plain);
    free(w);
    free(plain);
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(transports, calls_that_overlap_have_the_same_bits_over_any_mix) {
    for (unsigned exposed = 0; exposed < 8; exposed++) {
        for (unsigned ordered = 0; ordered < 8; ordered++) {
            same_bits_as_sim((test_pairs){.exposed = exposed, .ordered = ordered & ~exposed});
        }
    }
}

Test(transports, the_dump_says_what_serves_whom) {
    char dump[2048];
    world *w = calloc(1, sizeof *w);
    open_world(w, (test_pairs){.exposed = 1, .ordered = 2}, true);
    begin(w, 1, 0);
    lierne_context *context = lierne_sim_get_context(w->sim, 0);
    assert_ok(lierne_context_dump(dump, sizeof dump, context));
    cr_assert(strstr(dump, "rank 0 of 8 over exposing, ordered, sim: "), "%s", dump);
    cr_assert(strstr(dump, "(exposing)") && strstr(dump, "(ordered)") && strstr(dump, "(sim)"),
              "%s", dump);
    for (int r = 1; r < RANKS; r++) {
        begin(w, 1, r);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_request_end(w->requests[1][r]));
    }
    close_world(w);
    free(w);
}

/* The root of a broadcast waits for nobody before its end. */
static void expect_stage(lierne_collective_algorithm algorithm, const char *text) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 0.05};
    lierne_broadcast_spec broadcast = broadcast_of(6, LIERNE_DTYPE_F32);
    float in[6] = {1, 2, 3, 4, 5, 6}, out[6];
    lierne_sim *sim;
    lierne_plan *plans[2];
    broadcast.algorithm = algorithm;
    assert_ok(lierne_sim_create(&sim, 2, &spec));
    test_transports *t = test_transports_attach(sim, 2, (test_pairs){.exposed = 7});
    for (int r = 0; r < 2; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        assert_ok(lierne_plan_create_broadcast(&plans[r], context, &broadcast));
    }
    assert_error(lierne_plan_forward(plans[0], out, in, NULL), LIERNE_ERR_TIMEOUT, text);
    assert_ok(lierne_sim_destroy_all(sim));
    test_transports_destroy(t);
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(transports, a_sender_whose_messages_nobody_reads_is_in_its_last_stage) {
    expect_stage(LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT, "stage 0 of 1: 1 of 1 messages missing");
    expect_stage(LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT, "stage 1 of 2: 2 of 2 messages missing");
}

static size_t announced;

static void note_bytes(size_t whole, size_t size, void *to, const lierne_block *to_blocks,
                       size_t nto, const void *from, const lierne_block *from_blocks,
                       size_t nfrom) {
    announced = whole;
    lierne_host_copy_blocks(whole, size, to, to_blocks, nto, from, from_blocks, nfrom);
}

/* Copies past the cache pay where much arrives. */
Test(transports, a_copy_is_told_what_arrives_in_its_stage) {
    const lierne_all_gather_spec spec = all_gather_of(5, LIERNE_DTYPE_F64);
    lierne_memory memory = lierne_host_memory;
    double in[5] = {1, 2, 3, 4, 5}, out[RANKS][5 * RANKS];
    lierne_request *requests[RANKS];
    lierne_plan *plans[RANKS];
    lierne_sim *sim;
    memory.copy_blocks = note_bytes;
    assert_ok(lierne_sim_create(&sim, RANKS, NULL));
    test_transports *t = test_transports_attach(sim, RANKS, (test_pairs){.exposed = 7});
    for (int r = 0; r < RANKS; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        context->memory = &memory;
        assert_ok(lierne_plan_create_all_gather(&plans[r], context, &spec));
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in, NULL));
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
    cr_assert_eq(announced, (RANKS - 1) * sizeof in);
    assert_ok(lierne_sim_destroy_all(sim));
    cr_assert(test_transports_destroy(t));
}

/* Only the transports of the tests, which do not serve every pair. */
Test(transports, a_peer_that_none_reaches_is_named) {
    lierne_sim *sim;
    lierne_plan *plan;
    assert_ok(lierne_sim_create(&sim, RANKS, NULL));
    test_transports *t =
        test_transports_attach(sim, RANKS, (test_pairs){.exposed = 1, .ordered = 1});
    for (int r = 0; r < RANKS; r++) {
        lierne_sim_get_context(sim, r)->ncarriers = 2;
    }
    cr_assert_eq(plan_bridge(&plan, lierne_sim_get_context(sim, 0)), LIERNE_ERR_UNSUPPORTED);
    assert_says("none of the transports of the context (exposing, "
                "ordered) reaches rank ");
    assert_ok(lierne_sim_destroy(sim));
    cr_assert(test_transports_destroy(t));
    cr_assert_eq(lierne_mem_live(), 0);
}

static void expect_list(const char *list, lierne_status wanted, const char *says) {
    lierne_sim *sim;
    cr_assert_eq(setenv("LIERNE_TRANSPORTS", list, 1), 0);
    lierne_status status = lierne_sim_create(&sim, 2, NULL);
    cr_assert_eq(status, wanted, "'%s': %s", list, lierne_status_name(status));
    cr_assert(status == LIERNE_OK || (!sim && strstr(lierne_last_error(), says)), "'%s': %s", list,
              lierne_last_error());
    assert_ok(lierne_sim_destroy(sim));
    unsetenv("LIERNE_TRANSPORTS");
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(transports, the_list_of_the_environment) {
    expect_list("", LIERNE_OK, "");
    expect_list("sim", LIERNE_OK, "");
    expect_list("mpi,sim,self", LIERNE_OK, "");
    expect_list("smi", LIERNE_ERR_INVALID, "LIERNE_TRANSPORTS names 'smi'");
    expect_list("sim,", LIERNE_ERR_INVALID, "LIERNE_TRANSPORTS names ''");
    expect_list("sim,sim", LIERNE_ERR_INVALID, "names 'sim' twice");
    expect_list("sim ", LIERNE_ERR_INVALID, "names 'sim '");
    expect_list("mpi,self", LIERNE_ERR_INVALID, "must name one that the context has (sim)");
}

static void expect_order(const char *const added[4], const char *wanted) {
    lierne_context context = {.rank = 0};
    lierne_transport transports[4];
    char names[80];
    for (int i = 0; i < 4; i++) {
        transports[i] = (lierne_transport){.name = added[i]};
        lierne_context_add_transport(&context, &transports[i], NULL, NULL);
    }
    lierne_context_list_transports(names, sizeof names, &context);
    cr_assert_str_eq(names, wanted);
}

/* In whatever order back ends add them, the best is first; equal ones stay in theirs. */
Test(transports, priorities_order) {
    expect_order((const char *[]){"mpi", "ipc", "shm", "nccl"}, "nccl, ipc, shm, mpi");
    expect_order((const char *[]){"shm", "tests", "ipc", "socket"}, "ipc, shm, tests, socket");
}

Test(transports, a_fifth_does_not_fit) {
    static const lierne_transport fifth = {.name = "fifth"};
    lierne_context context = {.ncarriers = LIERNE_MAX_TRANSPORTS};
    for (int i = 0; i < LIERNE_MAX_TRANSPORTS; i++) {
        context.carriers[i].transport = &fifth;
    }
    cr_assert_eq(lierne_context_add_transport(&context, &fifth, NULL, NULL),
                 LIERNE_ERR_UNSUPPORTED);
    cr_assert_neq(strstr(lierne_error_text(), "has 4 transports (fifth, fifth, fifth, fifth), and "
                                              "can have at most 4: fifth"),
                  NULL);
    cr_assert_eq(context.ncarriers, LIERNE_MAX_TRANSPORTS);
}

/* Whether all words of a struct are set; a capability has functions and sizes only. */
static void expect_whole(const char *name, const void *capability, size_t size) {
    for (size_t i = 0; capability && i < size / sizeof(uintptr_t); i++) {
        uintptr_t word;
        memcpy(&word, (const char *)capability + i * sizeof word, sizeof word);
        cr_assert_neq(word, 0, "%s: word %zu of a capability of %zu bytes", name, i, size);
    }
}

#define WHOLE(t, capability) expect_whole((t)->name, (t)->capability, sizeof *(t)->capability)

/* Nobody who calls a function of a table asks whether it is there. */
Test(transports, tables_are_whole) {
    const lierne_transport *const tables[] = {&lierne_self_transport,   &lierne_sim_transport,
                                              &lierne_shm_transport,    &lierne_oob_transport,
                                              &lierne_socket_transport, &lierne_ipc_transport};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const lierne_transport *t = tables[i];
        expect_whole(t->name, &t->close,
                     offsetof(lierne_transport, leave) - offsetof(lierne_transport, close));
        WHOLE(t, connects);
        WHOLE(t, exposes);
        WHOLE(t, windows);
        WHOLE(t, memory);
        WHOLE(t, registers);
        WHOLE(t, shares);
        WHOLE(t, short_calls);
        WHOLE(t, streams);
        WHOLE(t, watched);
        WHOLE(t, all_gathers);
        cr_assert(!t->groups || (t->groups->create && t->groups->destroy));
    }
}

/* The list orders what a context has. */
Test(transports, the_list_orders) {
    lierne_context context = {.rank = 0};
    static const lierne_transport a = {.name = "mpi"}, b = {.name = "sim"}, c = {.name = "self"};
    lierne_context_add_transport(&context, &a, NULL, NULL);
    lierne_context_add_transport(&context, &b, NULL, NULL);
    lierne_context_add_transport(&context, &c, NULL, NULL);
    setenv("LIERNE_TRANSPORTS", "self,mpi", 1);
    assert_ok(lierne_context_select_transports(&context));
    unsetenv("LIERNE_TRANSPORTS");
    cr_assert(context.ncarriers == 2 && context.carriers[0].transport == &c &&
              context.carriers[1].transport == &a);
}
