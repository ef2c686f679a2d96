/* Contexts over the caller's functions and over sockets, with a thread per rank: control, plans,
 * and functions that fail. Processes are in tests/node. */
#include "control_messages.h"
#include "oob_ranks.h"
#include "rank_threads.h"
#include "redistribute_case.h"
#include "unit/expect.h"

#include "backend/oob/oob_context.h"

#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 8, CASES = 40 };

typedef struct shared_state {
    pattern pattern;
    const redistribute_case *cases;
    size_t words;
    int odd; /* a rank that differs */
    bool gather_only;
    rank_faults faults;
} shared_state;

static void run(oob_way way, int n, double timeout, shared_state *b,
                void (*work)(lierne_context *, void *)) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    size_t live = lierne_mem_live();
    b->gather_only = way == OOB_GATHER_ONLY;
    oob_ranks_run(way, n, &spec, work, b);
    cr_assert_eq(b->faults.wrong, 0, "way %d, %d ranks: %d wrong, first %s", way, n,
                 b->faults.wrong, b->faults.message);
    cr_assert_eq(lierne_mem_live(), live, "%zu allocations are left", lierne_mem_live() - live);
}

static lierne_status exchange(shared_state *b, lierne_context *context, pattern p, int round) {
    lierne_control_message messages[MOST_RANKS];
    lierne_control_messages received = {0};
    int rank = lierne_context_get_rank(context), world = lierne_context_get_world_size(context);
    size_t n = messages_create(messages, p, round, rank, world, b->words);
    lierne_status status = lierne_context_sparse_exchange(context, messages, n, &received);
    if (status == LIERNE_OK) {
        NOTE(b, messages_wrong(&received, p, round, rank, world, b->words) == 0);
    } else {
        NOTE(b, received.count == 0 && !received.at);
    }
    lierne_control_messages_destroy(&received);
    messages_destroy(messages, n);
    return status;
}

/* Small pages, so that streams, messages and fields need several. */
static void exchange_and_agree(lierne_context *context, void *shared) {
    shared_state *b = shared;
    int rank = lierne_context_get_rank(context), world = lierne_context_get_world_size(context);
    ((lierne_oob_state *)context->control_self)->page_bytes = 64;
    for (int p = 0; p < PATTERNS; p++) {
        for (int round = 0; round < 3; round++) {
            NOTE(b, exchange(b, context, (pattern)p, round) == LIERNE_OK);
        }
    }
    int64_t values[2] = {rank * 3 - 7, -rank};
    NOTE(b, lierne_context_allreduce_max(context, values, 2) == LIERNE_OK);
    NOTE(b, values[0] == (world - 1) * 3 - 7 && values[1] == 0);
}

Test(oob, messages_arrive_by_sender) {
    const int worlds[] = {1, 2, 3, 5, 8};
    for (int way = 0; way < OOB_WAYS; way++) {
        for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
            shared_state b = {.words = 40};
            run((oob_way)way, worlds[i], 120, &b, exchange_and_agree);
        }
    }
}

static void exchange_much(lierne_context *context, void *shared) {
    shared_state *b = shared;
    for (int round = 0; round < 3; round++) {
        NOTE(b, exchange(b, context, ALL_TO_ALL, round) == LIERNE_OK);
    }
}

/* Longer than a page, and than a socket holds. */
Test(oob, long_messages) {
    for (int way = 0; way < OOB_WAYS; way++) {
        shared_state b = {.words = 200000};
        run((oob_way)way, 4, 120, &b, exchange_much);
    }
}

static void agree_with_an_error(lierne_context *context, void *shared) {
    shared_state *b = shared;
    int rank = lierne_context_get_rank(context), world = lierne_context_get_world_size(context);
    lierne_status mine = LIERNE_OK;
    char text[100];
    ((lierne_oob_state *)context->control_self)->page_bytes = 128;
    if (rank == b->odd) {
        mine = LIERNE_FAIL(LIERNE_ERR_INDEX_RANGE, "row 7 of rank %d%200s", rank, "the end");
    }
    NOTE(b, lierne_context_agree_all(context, mine, NULL, 0, NULL) == LIERNE_ERR_INDEX_RANGE);
    NOTE(b, strstr(lierne_last_error(), "row 7 of rank") != NULL);
    NOTE(b, strstr(lierne_last_error(), "the end") != NULL);
    lierne_field fields[9] = {0};
    for (int i = 0; i < 9; i++) {
        fields[i].value = rank == b->odd && i == 7 ? 3 : 4;
        snprintf(fields[i].name, sizeof fields[i].name, "width %d", i);
    }
    snprintf(text, sizeof text, "width 7 differs between ranks: %d on rank 0, %d on rank %d",
             b->odd == 0 ? 3 : 4, b->odd == 0 ? 4 : 3, b->odd == 0 ? 1 : b->odd);
    NOTE(b, lierne_context_agree_all(context, LIERNE_OK, fields, 9, NULL) == LIERNE_ERR_MISMATCH);
    NOTE(b, strstr(lierne_last_error(), text) != NULL);
    /* Some fields more. */
    size_t n = rank == b->odd ? 9 : 5;
    fields[7].value = 4;
    NOTE(b, world == 1 || lierne_context_agree_all(context, LIERNE_OK, fields, n, NULL) ==
                              LIERNE_ERR_MISMATCH);
    NOTE(b, strstr(lierne_last_error(), "width 5 differs") != NULL);
    NOTE(b, exchange(b, context, ALL_TO_ALL, 0) == LIERNE_OK);
}

Test(oob, an_error_that_all_agree_on_kills_nothing) {
    for (int way = 0; way < OOB_WAYS; way++) {
        for (int odd = 0; odd < 4; odd++) {
            shared_state b = {.odd = odd, .words = 9};
            run((oob_way)way, 4, 120, &b, agree_with_an_error);
        }
    }
}

static void redistribute_all(lierne_context *context, void *shared) {
    shared_state *b = shared;
    int rank = lierne_context_get_rank(context);
    for (int i = 0; i < CASES; i++) {
        const redistribute_case *c = &b->cases[i];
        lierne_plan *plan = NULL;
        NOTE(b, redistribute_plan(&plan, c, context) == LIERNE_OK);
        if (plan) {
            NOTE(b, !redistribute_run(c, plan, rank, LIERNE_DIRECTION_FORWARD, NULL));
            NOTE(b, !redistribute_run(c, plan, rank, LIERNE_DIRECTION_ADJOINT, NULL));
            NOTE(b, lierne_plan_destroy(plan) == LIERNE_OK);
        }
    }
}

Test(oob, redistributions) {
    static redistribute_case cases[CASES];
    for (int n = 1; n <= 8; n++) {
        for (int i = 0; i < CASES; i++) {
            random_redistribute(&cases[i], (uint64_t)(n * 1000 + i), n);
        }
        for (int way = 0; way < OOB_WAYS; way++) {
            shared_state b = {.cases = cases};
            if (way != OOB_GATHER_ONLY) {
                run((oob_way)way, n, 120, &b, redistribute_all);
            }
        }
    }
}

/* Rank r sends everything to all others. */
static lierne_status plan_of(lierne_plan **plan, lierne_context *context) {
    redistribute_case c;
    int world = lierne_context_get_world_size(context);
    random_redistribute(&c, 1, world);
    c.stated_adjoint = 0;
    c.dtype = LIERNE_DTYPE_I64;
    for (int which = CASE_SRC; which <= CASE_DST; which++) {
        c.layouts[which] = (case_layout){.ndims = 1, .sizes = {world}};
        c.layouts[which].placements[0].kind =
            which == CASE_SRC ? LIERNE_PLACEMENT_SHARD : LIERNE_PLACEMENT_REPLICATE;
    }
    return redistribute_plan(plan, &c, context);
}

/* Two plans whose messages have the same ends and sizes, begun in another order on odd ranks. */
static void begin_in_another_order(lierne_context *context, void *shared) {
    shared_state *b = shared;
    int odd = lierne_context_get_rank(context) % 2;
    lierne_plan *plans[2] = {NULL};
    int64_t *in[2], *out[2], n_in = 0, n_out = 0;
    for (int p = 0; p < 2; p++) {
        NOTE(b, plan_of(&plans[p], context) == LIERNE_OK);
        lierne_plan_get_elements(&n_in, &n_out, plans[p], LIERNE_DIRECTION_FORWARD);
        in[p] = calloc((size_t)n_in + 1, 8);
        out[p] = calloc((size_t)n_out + 1, 8);
        for (int64_t i = 0; i < n_in; i++) {
            in[p][i] = p + 1;
        }
    }
    for (int round = 0; round < 20; round++) {
        lierne_request *requests[2];
        for (int i = 0; i < 2; i++) {
            int p = i ^ odd;
            memset(out[p], 0xa5, (size_t)n_out * 8);
            NOTE(b, lierne_plan_forward_begin(&requests[p], plans[p], out[p], in[p], NULL) ==
                        LIERNE_OK);
        }
        for (int p = 0; p < 2; p++) {
            NOTE(b, lierne_request_end(requests[p]) == LIERNE_OK);
            for (int64_t i = 0; i < n_out; i++) {
                NOTE(b, out[p][i] == p + 1);
            }
        }
    }
    for (int p = 0; p < 2; p++) {
        NOTE(b, lierne_plan_destroy(plans[p]) == LIERNE_OK);
        free(in[p]), free(out[p]);
    }
}

/* Over shared memory, then over functions and sockets. */
Test(oob, messages_of_two_plans_are_not_mixed_up) {
    for (int i = 0; i < 2; i++) {
        shared_state calls = {0}, node = {0};
        run(OOB_CALLS, 4, 120, &calls, begin_in_another_order);
        run(OOB_NODE, 4, 120, &node, begin_in_another_order);
        setenv("LIERNE_TRANSPORTS", "oob,socket", 1);
    }
}

static void plan_without_messages(lierne_context *context, void *shared) {
    shared_state *b = shared;
    lierne_plan *plan;
    NOTE(b, plan_of(&plan, context) == LIERNE_ERR_UNSUPPORTED);
    NOTE(b, !plan && strstr(lierne_last_error(), "reaches rank") != NULL);
    NOTE(b, exchange(b, context, RING, 1) == LIERNE_OK);
}

Test(oob, without_send_and_receive_nothing_moves_between_nodes) {
    shared_state b = {.words = 5};
    setenv("LIERNE_TRANSPORTS", "oob", 1);
    run(OOB_GATHER_ONLY, 3, 120, &b, plan_without_messages);
}

Test(oob, without_send_and_receive_ranks_of_a_node_share_memory) {
    shared_state b = {0};
    run(OOB_GATHER_ONLY, 4, 120, &b, begin_in_another_order);
}

/* --- threads that each do their own --- */

typedef struct actor {
    pthread_t thread;
    int rank, n;
    oob_way way;
    oob_world *world;
    const char *name;
    shared_state *shared;
    double timeout;
    int fail_at; /* call of a function of this rank; 0: none */
    lierne_status status, destroyed;
    long gathers;
    double seconds;
    char message[1024];
    lierne_context *context;
} actor;

static void finish(actor *a, lierne_status status, double start) {
    a->status = status;
    a->seconds = lierne_now() - start;
    a->gathers = oob_world_gathers(a->world, a->rank);
    snprintf(a->message, sizeof a->message, "%s", lierne_last_error());
}

static lierne_status create(actor *a) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = a->timeout};
    return oob_context(&a->context, a->way, a->world, a->name, a->rank, a->n, &spec);
}

/* Waits for the other ranks, which therefore do the same at once. */
static void *destroy(void *argument) {
    actor *a = argument;
    a->destroyed = lierne_context_destroy(a->context);
    return NULL;
}

static void start_all(actor *actors, int n, void *(*act)(void *)) {
    for (int r = 0; r < n; r++) {
        cr_assert_eq(pthread_create(&actors[r].thread, NULL, act, &actors[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(actors[r].thread, NULL);
    }
}

static void act_all(actor *actors, int n, oob_way way, double timeout, void *(*act)(void *)) {
    static int number;
    char name[64];
    shared_state shared = {.words = 20};
    oob_world *world = actors[0].world ? actors[0].world : oob_world_create(n);
    snprintf(name, sizeof name, "actors-%d-%d", (int)getpid(), number++);
    for (int r = 0; r < n; r++) {
        actors[r].rank = r;
        actors[r].n = n;
        actors[r].way = way;
        actors[r].world = world;
        actors[r].name = name;
        actors[r].shared = &shared;
        actors[r].timeout = timeout;
    }
    start_all(actors, n, act);
    start_all(actors, n, destroy);
    for (int r = 0; r < n; r++) {
        cr_assert_eq(actors[r].destroyed, LIERNE_OK);
    }
    oob_world_destroy(world);
    cr_assert_eq(shared.faults.wrong, 0, "%s", shared.faults.message);
}

static void *stay_away(void *argument) {
    actor *a = argument;
    double start = lierne_now();
    lierne_status status = create(a);
    if (status == LIERNE_OK && a->rank != 1) {
        int64_t value = 1;
        start = lierne_now();
        status = lierne_context_allreduce_max(a->context, &value, 1);
    }
    finish(a, status, start);
    return NULL;
}

/* The second to notice may learn it from the first. */
Test(oob, a_rank_that_stays_away_is_a_timeout) {
    for (int way = 0; way < OOB_WAYS; way++) {
        actor actors[3] = {0};
        act_all(actors, 3, (oob_way)way, 2, stay_away);
        for (int r = 0; r < 3; r += 2) {
            cr_assert_eq(actors[r].status, LIERNE_ERR_TIMEOUT, "%s", actors[r].message);
            cr_assert(strstr(actors[r].message, "not all ranks called within 2 s"), "%s",
                      actors[r].message);
            cr_assert_lt(actors[r].seconds, 20);
        }
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

static void *never_come(void *argument) {
    actor *a = argument;
    double start = lierne_now();
    finish(a, a->rank == 1 ? LIERNE_OK : create(a), start);
    return NULL;
}

Test(oob, a_rank_that_never_comes_is_named) {
    actor actors[3] = {0};
    act_all(actors, 3, OOB_NODE, 0.5, never_come);
    for (int r = 0; r < 3; r += 2) {
        bool says = actors[r].status == LIERNE_ERR_TIMEOUT &&
                    strstr(actors[r].message, "no connection to rank 1 of job 'actors-");
        /* The first that gives up ends its connection to the other one. */
        cr_assert(says || actors[r].status == LIERNE_ERR_PEER_FAILED, "%s", actors[r].message);
        cr_assert(!actors[r].context);
    }
    cr_assert(actors[0].status == LIERNE_ERR_TIMEOUT || actors[2].status == LIERNE_ERR_TIMEOUT);
    cr_assert_eq(lierne_mem_live(), 0);
}

static void *destroy_while_others_plan(void *argument) {
    actor *a = argument;
    int64_t value = 1;
    double start = lierne_now();
    lierne_status status = create(a);
    if (status == LIERNE_OK && a->rank == 2) {
        status = lierne_context_destroy(a->context);
        a->context = NULL;
    } else if (status == LIERNE_OK) {
        status = lierne_context_allreduce_max(a->context, &value, 1);
    }
    finish(a, status, start);
    return NULL;
}

Test(oob, destroying_while_others_plan) {
    for (int way = 0; way < OOB_WAYS; way++) {
        actor actors[3] = {0};
        act_all(actors, 3, (oob_way)way, 30, destroy_while_others_plan);
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(actors[r].status, LIERNE_ERR_MISMATCH, "%s", actors[r].message);
            cr_assert(strstr(actors[r].message, "rank 2 destroys its context while rank 0"), "%s",
                      actors[r].message);
        }
        cr_assert_eq(actors[2].status, LIERNE_OK);
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

static void *only_create(void *argument) {
    actor *a = argument;
    double start = lierne_now();
    finish(a, create(a), start);
    return NULL;
}

/* Plans and executes; a function of rank 1 fails, after the context was created. */
static void *do_everything(void *argument) {
    actor *a = argument;
    double start = lierne_now();
    lierne_plan *plan = NULL;
    lierne_status status = create(a);
    if (a->rank == 1) {
        oob_world_fail(a->world, 1, a->fail_at, 77);
    }
    if (status == LIERNE_OK) {
        status = exchange(a->shared, a->context, ALL_TO_ALL, 0);
    }
    if (status == LIERNE_OK) {
        status = plan_of(&plan, a->context);
    }
    if (status == LIERNE_OK) {
        int64_t n_in, n_out;
        lierne_plan_get_elements(&n_in, &n_out, plan, LIERNE_DIRECTION_FORWARD);
        int64_t *in = calloc((size_t)n_in + 1, 8), *out = calloc((size_t)n_out + 1, 8);
        status = lierne_plan_forward(plan, out, in, NULL);
        free(in), free(out);
    }
    finish(a, status, start);
    lierne_plan_destroy(plan);
    return NULL;
}

/* That rank gets its code. The others learn it; nobody waits for the deadline. */
Test(oob, a_function_that_fails) {
    int failures = 0;
    setenv("LIERNE_TRANSPORTS", "oob", 1);
    for (int k = 1; k < 300; k += k < 40 ? 1 : 29) {
        actor actors[3] = {{0}, {.fail_at = k}};
        act_all(actors, 3, OOB_CALLS, 5, do_everything);
        if (actors[1].status == LIERNE_OK) {
            continue;
        }
        failures++;
        cr_assert_eq(actors[1].status, LIERNE_ERR_TRANSPORT, "call %d: %s", k, actors[1].message);
        cr_assert(strstr(actors[1].message, "function returned 77"), "%s", actors[1].message);
        for (int r = 0; r < 3; r += 2) {
            cr_assert(actors[r].status == LIERNE_OK || strstr(actors[r].message, "gave up"),
                      "call %d: %s", k, actors[r].message);
        }
    }
    cr_assert_gt(failures, 10);
    cr_assert_eq(lierne_mem_live(), 0, "%zu", lierne_mem_live());
}

/* Before the ranks have met, the others can only miss it; they have met where it failed after all
 * that it had to give them. How many calls a rank makes depends on how long it waits. */
Test(oob, a_function_that_fails_while_creating) {
    int failures = 0;
    for (int k = 1; k < 12; k++) {
        actor actors[3] = {{.world = oob_world_create(3)}};
        oob_world_fail(actors[0].world, 1, k, -5);
        act_all(actors, 3, OOB_CALLS, 0.3, only_create);
        if (actors[1].status == LIERNE_OK) {
            continue;
        }
        failures++;
        cr_assert_eq(actors[1].status, LIERNE_ERR_TRANSPORT, "call %d: %s", k, actors[1].message);
        cr_assert(strstr(actors[1].message, "function returned -5"), "%s", actors[1].message);
        bool met = actors[0].gathers == actors[1].gathers;
        cr_assert(actors[0].status == LIERNE_ERR_TIMEOUT ||
                      actors[0].status == LIERNE_ERR_TRANSPORT ||
                      (met && actors[0].status == LIERNE_OK),
                  "call %d: %d, %s", k, actors[0].status, actors[0].message);
    }
    cr_assert_gt(failures, 4);
    cr_assert_eq(lierne_mem_live(), 0, "%zu", lierne_mem_live());
}

/* The process that a rank had may have ended, and another one have its id. */
Test(oob, a_process_id_that_was_given_away) {
    lierne_rank_info infos[3] = {0};
    int watches[3] = {LIERNE_NO_WATCH, LIERNE_NO_WATCH, LIERNE_NO_WATCH};
    for (int r = 0; r < 3; r++) {
        lierne_rank_info_fill(&infos[r], r, -1);
    }
    cr_assert(infos[0].start != 0 && infos[0].space != 0);
    infos[1].start++;
    lierne_processes_watch(watches, infos, 3, 0);
    cr_assert_eq(watches[0], LIERNE_NO_WATCH);
    cr_assert(lierne_process_ended(watches[1]));
    cr_assert(watches[2] >= 0 && !lierne_process_ended(watches[2]));
    lierne_processes_unwatch(watches, 3);
}

/* What cannot be taken back is never freed. */
Test(oob, requests_that_cannot_be_taken_back) {
    actor actors[3] = {{.world = oob_world_create(3)}};
    oob_world_take_back(actors[0].world, false);
    act_all(actors, 3, OOB_CALLS, 0.5, stay_away);
    cr_assert_eq(actors[0].status, LIERNE_ERR_TIMEOUT);
    cr_assert_gt(lierne_mem_live(), 0);
}

static lierne_status create_with(lierne_oob_spec spec) {
    lierne_context *context;
    lierne_status status = lierne_context_create_oob(&context, &spec);
    cr_assert(!context);
    return status;
}

Test(oob, invalid_specs) {
    oob_world *world = oob_world_create(1);
    const lierne_oob_spec good = {.size = sizeof good,
                                  .nranks = 1,
                                  .calls = oob_world_calls(world, 0, true)};
    lierne_context *context = (lierne_context *)world;
    lierne_oob_spec bad = good;
    cr_assert_eq(lierne_context_create_oob(&context, NULL), LIERNE_ERR_INVALID);
    cr_assert(!context);
    assert_error(lierne_context_create_oob(NULL, &good), LIERNE_ERR_INVALID, "out is NULL");
    bad.size = 3;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    bad = good, bad.nranks = 0;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    bad = good, bad.rank = 1;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    assert_says("rank is 1, must be 0 to 0");
    bad = good, bad.calls.test = NULL;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    bad = good, bad.calls.allgather = NULL;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    bad = good, bad.calls.send = NULL;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    assert_says("calls.send is NULL");
    lierne_context_spec spec = {.size = sizeof spec, .timeout = -1};
    bad = good, bad.context = &spec;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    assert_says("timeout is -1");
    oob_world_destroy(world);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* Every allocation of creating fails once, on some rank: all ranks get an error. Over sockets the
 * rank may be missed. */
Test(oob, creating_without_memory) {
    for (int way = 0; way < OOB_WAYS; way++) {
        int failed = 1;
        for (size_t k = 1; failed > 0; k++) {
            actor actors[3] = {0};
            lierne_mem_fail_at(k);
            act_all(actors, 3, (oob_way)way, way == OOB_NODE ? 0.2 : 20, only_create);
            lierne_mem_fail_at(0);
            failed = 0;
            for (int r = 0; r < 3; r++) {
                failed += actors[r].status != LIERNE_OK;
                cr_assert_lt(actors[r].seconds, 15, "allocation %zu: %s", k, actors[r].message);
            }
            cr_assert(failed == 0 || failed == 3, "way %d, allocation %zu: %d ranks failed: %s",
                      way, k, failed, actors[0].message);
            cr_assert_eq(lierne_mem_live(), 0);
        }
    }
}
