/* Runs whose operations are messages, over simulated worlds with a thread per rank: data go round a
 * ring, and the trace has an arrow from each send to its receive; a plan that leaves the group of
 * its operation is rejected on every rank, before anything moves. */
#include "base/base.h"
#include "collectives.h"
#include "lierne/collective.h"
#include "lierne/schedule.h"
#include "rank_threads.h"
#include "unit/expect.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 3, COUNT = 4, ROUNDS = 2, OPS = 2 * ROUNDS };

typedef struct state {
    rank_faults faults;
    char *traces[RANKS];
    char errors[RANKS][LIERNE_MESSAGE_SIZE];
} state;

static size_t live_texts(const state *s) {
    size_t n = 0;
    for (int r = 0; r < RANKS; r++) {
        n += s->traces[r] != NULL;
    }
    return n;
}

static void run_ranks(void (*work)(lierne_context *, void *), state *s) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    size_t before = lierne_mem_live();
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, RANKS, &spec));
    rank_threads(sim, RANKS, work, s);
    cr_assert_eq(s->faults.wrong, 0, "%s", s->faults.message);
    assert_ok(lierne_sim_destroy_all(sim));
    cr_assert_eq(lierne_mem_live(), before + live_texts(s));
}

/* From one rank to the next: every other pair of an all-to-all is empty. */
static lierne_plan *plan_message(lierne_context *context, int from, state *s) {
    int rank = lierne_context_get_rank(context), to = (from + 1) % RANKS;
    int64_t sends[RANKS] = {0}, recvs[RANKS] = {0};
    const lierne_all_to_all_spec spec = {.size = sizeof spec,
                                         .dtype = LIERNE_DTYPE_I32,
                                         .send_counts = sends,
                                         .recv_counts = recvs};
    lierne_plan *plan = NULL;
    sends[to] = rank == from ? COUNT : 0;
    recvs[from] = rank == to ? COUNT : 0;
    NOTE(s, lierne_plan_create_all_to_all(&plan, context, &spec) == LIERNE_OK);
    return plan;
}

static lierne_schedule *start(int rank, const int *ranks, int n, state *s) {
    const lierne_schedule_group_spec spec = {
        .size = sizeof spec, .name = "pp", .uid = 4, .ranks = ranks, .nranks = n};
    lierne_schedule *schedule;
    int group;
    NOTE(s, lierne_schedule_create(&schedule, rank) == LIERNE_OK);
    NOTE(s, lierne_schedule_add_group(&group, schedule, &spec) == LIERNE_OK);
    return schedule;
}

static void add(lierne_schedule *schedule, lierne_operation_kind kind, int peer, lierne_plan *plan,
                state *s) {
    lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
    int index;
    o.kind = kind, o.group = 0, o.tag = "pp", o.peer = peer, o.plan = plan;
    NOTE(s, lierne_schedule_add_operation(&index, schedule, &o) == LIERNE_OK);
}

/* ROUNDS times round the ring. Rank 0 sends first, the others receive first. */
static void ring(lierne_context *context, void *shared) {
    static const int all[RANKS] = {0, 1, 2};
    state *s = shared;
    int rank = lierne_context_get_rank(context), before = (rank + RANKS - 1) % RANKS;
    int32_t mine[COUNT] = {7, 8, 9, 10}, got[COUNT] = {-1, -1, -1, -1};
    lierne_plan *plans[RANKS];
    lierne_schedule *schedule = start(rank, all, RANKS, s);
    void *out[OPS] = {0};
    const void *in[OPS] = {0};
    lierne_run *run;
    for (int r = 0; r < RANKS; r++) {
        plans[r] = plan_message(context, r, s);
    }
    for (int i = 0; i < OPS; i++) {
        bool sends = i % 2 == (rank > 0);
        add(schedule, sends ? LIERNE_OPERATION_SEND : LIERNE_OPERATION_RECV,
            sends ? (rank + 1) % RANKS : before, plans[sends ? rank : before], s);
        in[i] = sends ? (rank > 0 ? got : mine) : NULL;
        out[i] = sends ? NULL : got;
    }
    lierne_schedule_freeze(schedule);
    NOTE(s, lierne_run_create(&run, context, schedule, NULL) == LIERNE_OK);
    NOTE(s, lierne_run_begin(run, out, in) == LIERNE_OK);
    NOTE(s, lierne_run_end(run) == LIERNE_OK);
    NOTE(s, memcmp(got, mine, sizeof got) == 0);
    NOTE(s, lierne_run_get_trace(&s->traces[rank], run) == LIERNE_OK);
    NOTE(s, lierne_run_destroy(run) == LIERNE_OK);
    lierne_schedule_destroy(schedule);
}

/* The beginning or end of an arrow. */
typedef struct arrow_end {
    double id, time;
    int rank, bars; /* of its rank and queue that are there at that time */
    bool begins;
} arrow_end;

static double number(const cJSON *event, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(event, name);
    cr_assert(cJSON_IsNumber(item), "%s of %s", name, cJSON_PrintUnformatted(event));
    return item->valuedouble;
}

/* An arrow is drawn only where a bar is at both of its ends. */
static int count_bars(const cJSON *events, const cJSON *end) {
    int n = 0;
    for (const cJSON *e = events->child; e; e = e->next) {
        if (*cJSON_GetObjectItem(e, "ph")->valuestring == 'X' &&
            number(e, "pid") == number(end, "pid") && number(e, "tid") == number(end, "tid")) {
            double from = number(e, "ts"), at = number(end, "ts");
            n += from <= at && at < from + number(e, "dur");
        }
    }
    return n;
}

static int list_ends(arrow_end *ends, const char *text) {
    int n = 0;
    char *whole;
    cr_assert(asprintf(&whole, "[%s]", text) > 0);
    cJSON *events = cJSON_Parse(whole);
    cr_assert(events, "%s", whole);
    for (const cJSON *e = events->child; e; e = e->next) {
        const char *ph = cJSON_GetObjectItem(e, "ph")->valuestring;
        if (*ph == 's' || *ph == 'f') {
            ends[n++] = (arrow_end){number(e, "id"), number(e, "ts"), (int)number(e, "pid"),
                                    count_bars(events, e), *ph == 's'};
        }
    }
    cJSON_Delete(events);
    free(whole);
    return n;
}

Test(run_messages, arrows_lead_from_each_send_to_its_receive) {
    static state s;
    arrow_end ends[RANKS * OPS];
    int n = 0, pairs = 0;
    run_ranks(ring, &s);
    for (int r = 0; r < RANKS; r++) {
        n += list_ends(&ends[n], s.traces[r]);
        lierne_text_destroy(s.traces[r]);
    }
    cr_assert_eq(n, RANKS * OPS);
    for (int i = 0; i < n; i++) {
        cr_assert(ends[i].bars > 0, "no bar on rank %d", ends[i].rank);
        for (int k = 0; k < n; k++) {
            if (i != k && ends[i].id == ends[k].id) {
                cr_assert_neq(ends[i].begins, ends[k].begins);
                pairs += ends[i].begins;
                cr_assert(!ends[i].begins || (ends[k].rank == (ends[i].rank + 1) % RANKS &&
                                              ends[i].time < ends[k].time));
            }
        }
    }
    cr_assert_eq(pairs, RANKS * ROUNDS, "every id is that of two ends");
}

/* Rank 2 is in no group, and the plan of the operation needs it. */
static void leaves(lierne_context *context, void *shared) {
    static const int two[2] = {0, 1};
    const lierne_all_reduce_spec spec =
        all_reduce_of(COUNT, LIERNE_DTYPE_I32, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
    state *s = shared;
    int rank = lierne_context_get_rank(context);
    lierne_plan *plan;
    lierne_run *run;
    NOTE(s, lierne_plan_create_all_reduce(&plan, context, &spec) == LIERNE_OK);
    lierne_schedule *schedule = start(rank, two, 2, s);
    if (rank < 2) {
        add(schedule, LIERNE_OPERATION_ALL_REDUCE, 0, plan, s);
    }
    lierne_schedule_freeze(schedule);
    NOTE(s, lierne_run_create(&run, context, schedule, NULL) == LIERNE_ERR_INVALID && !run);
    snprintf(s->errors[rank], sizeof s->errors[rank], "%s", lierne_last_error());
    NOTE(s, lierne_context_get_status(context) == LIERNE_OK);
    lierne_schedule_destroy(schedule);
}

Test(run_messages, a_plan_that_leaves_the_group_is_rejected) {
    static state s;
    run_ranks(leaves, &s);
    for (int r = 0; r < RANKS; r++) {
        cr_assert(strstr(s.errors[r],
                         "operation 0: its plan has messages with rank 2, which is not "
                         "in group 'pp'"),
                  "%s", s.errors[r]);
    }
}
