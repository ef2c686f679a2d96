/* Agreements that wait, sparse exchanges and allreduce with max, with a thread per rank of a
 * simulated world and in a world of one rank. */
#include "control_messages.h"
#include "rank_threads.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

#include "unit/ranks.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 8 };

/* What the threads of a test share. */
typedef struct shared_state {
    pattern pattern;
    int rounds;
    int absent; /* rank */
    size_t fail_at;
    atomic_int arrived;
    rank_faults faults;
    atomic_int without_memory;
    char errors[MOST_RANKS][256];
} shared_state;

/* Exchanges messages, checks those that arrived and returns the outcome. */
static lierne_status exchange_round(shared_state *b, lierne_context *context, pattern p,
                                    int round) {
    lierne_control_message messages[MOST_RANKS];
    lierne_control_messages received = {0};
    int rank = lierne_context_get_rank(context), world = lierne_context_get_world_size(context);
    size_t n = messages_create(messages, p, round, rank, world, 40);
    lierne_status status = lierne_context_sparse_exchange(context, messages, n, &received);
    if (status == LIERNE_OK) {
        NOTE(b, messages_wrong(&received, p, round, rank, world, 40) == 0);
    } else {
        NOTE(b, received.count == 0 && !received.at);
    }
    lierne_control_messages_destroy(&received);
    messages_destroy(messages, n);
    return status;
}

static void run(int world, double timeout, shared_state *b,
                void (*work)(lierne_context *, void *)) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    ranks_run(world, &spec, work, b);
    cr_assert_eq(b->faults.wrong, 0, "%d ranks: %d wrong, first %s", world, b->faults.wrong,
                 b->faults.message);
}

static void exchange_patterns(lierne_context *context, void *shared) {
    shared_state *b = shared;
    for (int p = 0; p < PATTERNS; p++) {
        for (int round = 0; round < 5; round++) {
            NOTE(b, exchange_round(b, context, (pattern)p, round) == LIERNE_OK);
        }
    }
}

Test(sparse_exchange, messages_arrive_by_sender) {
    const int worlds[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        shared_state b = {0};
        run(worlds[i], 120, &b, exchange_patterns);
    }
}

Test(sparse_exchange, world_of_one) {
    shared_state b = {0};
    lierne_context *context;
    int64_t values[LIERNE_MAX_REDUCED] = {-5, 3};
    assert_ok(lierne_context_create_self(&context, NULL));
    exchange_patterns(context, &b);
    assert_ok(lierne_context_allreduce_max(context, values, 2));
    cr_assert(values[0] == -5 && values[1] == 3);
    assert_ok(lierne_context_agree_all(context, LIERNE_OK, NULL, 0, NULL));
    for (size_t k = 1; k <= 2; k++) {
        lierne_mem_fail_at(k);
        cr_assert_eq(exchange_round(&b, context, ALL_TO_ALL, 0), LIERNE_ERR_NO_MEMORY);
    }
    cr_assert_eq(b.faults.wrong, 0, "%s", b.faults.message);
    assert_ok(lierne_context_destroy(context));
    cr_assert_eq(lierne_mem_live(), 0);
}

/* Ranks synchronise only in the calls, so fast ones run ahead. */
static void mix_rounds(lierne_context *context, void *shared) {
    shared_state *b = shared;
    int rank = lierne_context_get_rank(context), world = lierne_context_get_world_size(context);
    for (int round = 0; round < b->rounds; round++) {
        NOTE(b, exchange_round(b, context, SPARSE, round) == LIERNE_OK);
        int64_t values[2] = {rank * (round % 3 - 1) - 7, round};
        if (round % 4 == rank % 4) {
            sched_yield();
        }
        NOTE(b, lierne_context_allreduce_max(context, values, 2) == LIERNE_OK);
        NOTE(b, values[0] == (round % 3 == 2 ? world - 1 : 0) - 7 && values[1] == round);
        if (round % 8 == 0) {
            lierne_field field = {.name = "round", .value = round};
            NOTE(b, lierne_context_agree_all(context, LIERNE_OK, &field, 1, NULL) == LIERNE_OK);
        }
    }
}

Test(sparse_exchange, ranks_run_ahead) {
    shared_state b = {.rounds = 200};
    run(5, 120, &b, mix_rounds);
}

static void agree_late(lierne_context *context, void *shared) {
    shared_state *b = shared;
    double start = lierne_now();
    while (lierne_context_get_rank(context) == b->absent && lierne_now() < start + 0.05) {
        sched_yield();
    }
    atomic_fetch_add(&b->arrived, 1);
    NOTE(b, lierne_context_agree_all(context, LIERNE_OK, NULL, 0, NULL) == LIERNE_OK);
    NOTE(b, b->arrived == lierne_context_get_world_size(context));
}

Test(sparse_exchange, agreeing_waits_for_all) {
    for (int absent = 0; absent < 3; absent++) {
        shared_state b = {.absent = absent};
        run(3, 120, &b, agree_late);
    }
}

static void agree_with_an_error(lierne_context *context, void *shared) {
    shared_state *b = shared;
    int rank = lierne_context_get_rank(context);
    lierne_status mine = LIERNE_OK;
    if (rank == b->absent) {
        mine = LIERNE_FAIL(LIERNE_ERR_INDEX_RANGE, "row 7 of rank %d", rank);
    }
    NOTE(b, lierne_context_agree_all(context, mine, NULL, 0, NULL) == LIERNE_ERR_INDEX_RANGE);
    NOTE(b, strstr(lierne_last_error(), "row 7 of rank") != NULL);
    lierne_field field = {.name = "width", .value = rank == b->absent ? 3 : 4};
    NOTE(b, lierne_context_agree_all(context, LIERNE_OK, &field, 1, NULL) == LIERNE_ERR_MISMATCH);
    NOTE(b, exchange_round(b, context, ALL_TO_ALL, 0) == LIERNE_OK);
}

Test(sparse_exchange, an_error_that_all_agree_on_kills_nothing) {
    for (int bad = 0; bad < 4; bad++) {
        shared_state b = {.absent = bad};
        run(4, 120, &b, agree_with_an_error);
    }
}

static lierne_status call_agree(shared_state *b, lierne_context *context) {
    (void)b;
    return lierne_context_agree_all(context, LIERNE_OK, NULL, 0, NULL);
}

static lierne_status call_exchange(shared_state *b, lierne_context *context) {
    return exchange_round(b, context, ALL_TO_ALL, 1);
}

static lierne_status call_allreduce_max(shared_state *b, lierne_context *context) {
    int64_t value = 1;
    (void)b;
    return lierne_context_allreduce_max(context, &value, 1);
}

static lierne_status (*const waiting_calls[])(shared_state *b,
                                              lierne_context *context) = {call_agree, call_exchange,
                                                                          call_allreduce_max};

/* b->rounds is the number of the call. Ranks that called get TIMEOUT, all of them when the first
 * one times out, and their contexts stay dead. The absent rank calls later and gets TIMEOUT at
 * once. */
static void one_rank_stays_away(lierne_context *context, void *shared) {
    shared_state *b = shared;
    int rank = lierne_context_get_rank(context),
        others = lierne_context_get_world_size(context) - 1;
    double start = lierne_now();
    if (rank == b->absent) {
        while (b->arrived < others && lierne_now() < start + 60) {
            sched_yield();
        }
        start = lierne_now();
        NOTE(b, call_exchange(b, context) == LIERNE_ERR_TIMEOUT);
        NOTE(b, lierne_now() - start < 5);
        return;
    }
    NOTE(b, waiting_calls[b->rounds](b, context) == LIERNE_ERR_TIMEOUT);
    snprintf(b->errors[rank], sizeof b->errors[rank], "%s", lierne_last_error());
    NOTE(b, lierne_now() - start < 10);
    NOTE(b, call_exchange(b, context) == LIERNE_ERR_TIMEOUT);
    NOTE(b, strcmp(b->errors[rank], lierne_last_error()) == 0);
    atomic_fetch_add(&b->arrived, 1);
}

Test(sparse_exchange, a_rank_that_stays_away_is_a_timeout) {
    for (int call = 0; call < 3; call++) {
        for (int absent = 0; absent < 3; absent += 2) {
            shared_state b = {.absent = absent, .rounds = call};
            bool named = false;
            run(3, 0.4, &b, one_rank_stays_away);
            for (int r = 0; r < 3; r++) {
                named |= strstr(b.errors[r], "did not call within 0.4 s") != NULL;
            }
            cr_assert(named, "'%s'", b.errors[1]);
        }
    }
}

/* Between the arrival of the last rank and the end of the barrier, all allocations are for
 * messages.
 */
static void exchange_without_memory(lierne_context *context, void *shared) {
    shared_state *b = shared;
    if (lierne_context_get_rank(context) == 0) {
        lierne_mem_fail_at(b->fail_at);
    }
    lierne_status status = exchange_round(b, context, ALL_TO_ALL, 3);
    NOTE(b, status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY);
    atomic_fetch_add(&b->without_memory, status == LIERNE_ERR_NO_MEMORY);
    NOTE(b, call_allreduce_max(b, context) == LIERNE_OK);
    lierne_mem_fail_at(0);
    NOTE(b, exchange_round(b, context, ALL_TO_ALL, 4) == LIERNE_OK);
}

Test(sparse_exchange, a_rank_without_memory_does_not_disturb_others) {
    int failed = 1;
    size_t k = 0;
    while (failed > 0 && ++k < 1000) {
        shared_state b = {.fail_at = k};
        run(5, 120, &b, exchange_without_memory);
        failed = b.without_memory;
        cr_assert_leq(failed, 1, "allocation %zu fails on %d ranks", k, failed);
    }
    /* Five messages and their list, which grows once, on each of five ranks. */
    cr_assert_eq(k, 5 * 7 + 1, "the exchange works from allocation %zu on", k);
}
