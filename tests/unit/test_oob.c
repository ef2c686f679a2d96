/* Contexts over the caller's functions and over sockets, with a thread per rank: control, plans,
 * and functions that fail. Processes are in tests/node. */
#include "control_messages.h"
#include "oob_ranks.h"
#include "rank_threads.h"
#include "redistribute_case.h"
#include "unit/expect.h"

#include "backend/oob/oob_context.h"
#include "backend/shm/shm_transport.h"
#include "lierne/window.h"

#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 8, CASES = 40 };

typedef struct shared_state {
    pattern pattern;
    const redistribute_case *cases;
    size_t words;
    int odd; /* a rank that differs */
    bool gather_only;
    pthread_barrier_t barrier;
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

/* Rank 1 says that it sleeps; rank 0 begins a call, and rings before it waits itself. */
static void wake_a_receiver(lierne_context *context, void *shared) {
    shared_state *b = shared;
    lierne_plan *plan;
    lierne_request *request;
    int64_t n_in = 0, n_out = 0;
    int rank = lierne_context_get_rank(context);
    NOTE(b, context->carriers[0].transport == &lierne_shm_transport);
    const lierne_shm *shm = context->carriers[0].self;
    NOTE(b, plan_of(&plan, context) == LIERNE_OK);
    lierne_plan_get_elements(&n_in, &n_out, plan, LIERNE_DIRECTION_FORWARD);
    int64_t *in = calloc((size_t)n_in + 1, 8), *out = calloc((size_t)n_out + 1, 8);
    pthread_barrier_wait(&b->barrier);
    if (rank == 0) {
        lierne_segment_head *head = shm->peers[0].segment.head;
        atomic_store(&head->asleep, 1);
        unsigned before = atomic_load(&head->bell);
        NOTE(b, lierne_plan_forward_begin(&request, plan, out, in, NULL) == LIERNE_OK);
        NOTE(b, atomic_load(&head->bell) == before + 1);
    }
    pthread_barrier_wait(&b->barrier);
    if (rank == 1) {
        NOTE(b, lierne_plan_forward_begin(&request, plan, out, in, NULL) == LIERNE_OK);
    }
    NOTE(b, lierne_request_end(request) == LIERNE_OK);
    NOTE(b, lierne_plan_destroy(plan) == LIERNE_OK);
    free(in), free(out);
}

Test(oob, a_message_over_shared_memory_wakes_its_receiver) {
    shared_state b = {0};
    pthread_barrier_init(&b.barrier, NULL, 2);
    run(OOB_CALLS, 2, 120, &b, wake_a_receiver);
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

/* A window has the ranks of a node. */
static void look_at_node(lierne_context *context, void *shared) {
    shared_state *b = shared;
    const lierne_window_spec spec = {.size = sizeof spec, .bytes = 8};
    int first = lierne_context_get_rank(context) / 2 * 2;
    lierne_window *window = NULL;
    NOTE(b, lierne_window_create(&window, context, &spec) == LIERNE_OK);
    const int *ranks = lierne_window_get_ranks(window);
    NOTE(b, lierne_window_get_size(window) == 2 && ranks[0] == first && ranks[1] == first + 1);
    NOTE(b, lierne_window_destroy(window) == LIERNE_OK);
}

Test(oob, nodes_have_any_numbers) {
    const int nodes[] = {8, 8, 3, 3, 5, 5};
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 120, .nodes = nodes};
    for (int way = 0; way < OOB_WAYS; way++) {
        shared_state b = {0};
        oob_ranks_run((oob_way)way, 6, &spec, look_at_node, &b);
        cr_assert_eq(b.faults.wrong, 0, "way %d: %s", way, b.faults.message);
    }
}

Test(oob, without_send_and_receive_ranks_of_a_node_share_memory) {
    shared_state b = {0};
    run(OOB_GATHER_ONLY, 4, 120, &b, begin_in_another_order);
}
