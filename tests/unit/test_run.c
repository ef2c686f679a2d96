/* Runs of schedules on simulated worlds, a thread per rank: isolated traffic overlaps, data and
 * adjoints are exact, groups are shared and freed, errors are the same on every rank. */
#include "base/base.h"
#include "collectives.h"
#include "lierne/collective.h"
#include "lierne/schedule.h"
#include "lierne/summary.h"
#include "rank_threads.h"
#include "unit/ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, COUNT = 6, OPS = 5 };

typedef struct state {
    rank_faults faults;
    lierne_status wanted;
    const char *message;
    int which;
    bool threaded; /* runs have progress threads */
} state;

static void run_ranks(void (*work)(lierne_context *, void *), state *s, double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    ranks_run(RANKS, &spec, work, s);
    cr_assert_eq(s->faults.wrong, 0, "%s", s->faults.message);
}

/* One layer: parameters are gathered while tokens go to the experts and back. Operation 2 is the
 * experts' computation. */
typedef struct layer {
    lierne_plan *plans[OPS];
    lierne_schedule *schedule, *isolated;
    int32_t shard[COUNT], parameters[COUNT * RANKS], tokens[COUNT * RANKS], atexpert[COUNT * RANKS];
    int32_t computed[COUNT * RANKS], back[COUNT * RANKS], sums[COUNT];
    void *out[OPS];
    const void *in[OPS];
} layer;

static void make_plans(layer *l, lierne_context *context, state *s) {
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    const lierne_all_to_all_spec exchange = all_to_all_of(COUNT, LIERNE_DTYPE_I32);
    const lierne_reduce_scatter_spec scatter = reduce_scatter_of(COUNT, LIERNE_DTYPE_I32);
    NOTE(s, lierne_plan_create_all_gather(&l->plans[0], context, &gather) == LIERNE_OK);
    NOTE(s, lierne_plan_create_all_to_all(&l->plans[1], context, &exchange) == LIERNE_OK);
    NOTE(s, lierne_plan_create_all_to_all(&l->plans[3], context, &exchange) == LIERNE_OK);
    NOTE(s, lierne_plan_create_reduce_scatter(&l->plans[4], context, &scatter) == LIERNE_OK);
}

static int32_t token(int from, int to, int k) {
    return 1000 * from + 100 * to + k + 1;
}

static void record(layer *l, int rank, state *s) {
    static const int all[RANKS] = {0, 1, 2, 3};
    static const lierne_operation_kind kinds[OPS] = {LIERNE_OPERATION_ALL_GATHER,
                                                     LIERNE_OPERATION_ALL_TO_ALL,
                                                     LIERNE_OPERATION_LOCAL,
                                                     LIERNE_OPERATION_ALL_TO_ALL,
                                                     LIERNE_OPERATION_REDUCE_SCATTER};
    const lierne_schedule_group_spec g = {
        .size = sizeof g, .name = "world", .uid = 9, .ranks = all, .nranks = RANKS};
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    int group, index;
    NOTE(s, lierne_schedule_create(&l->schedule, rank) == LIERNE_OK);
    NOTE(s, lierne_schedule_add_group(&group, l->schedule, &g) == LIERNE_OK);
    for (int i = 0; i < OPS; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        const int after[1] = {i - 1};
        o.kind = kinds[i];
        o.group = i == 2 ? -1 : group;
        o.tag = i == 1 || i == 3 ? "ep" : "fsdp";
        o.plan = l->plans[i];
        o.held = i == 2 || (i == 0 && rank == 1); /* rank 1 withholds the all-gather */
        o.after = after;
        o.nafter = i == 2 || i == 3;
        NOTE(s, lierne_schedule_add_operation(&index, l->schedule, &o) == LIERNE_OK);
    }
    NOTE(s, lierne_schedule_freeze(l->schedule) == LIERNE_OK);
    NOTE(s, lierne_schedule_isolate(&l->isolated, l->schedule, &ep) == LIERNE_OK);
}

static void fill(layer *l, int rank) {
    for (int i = 0; i < COUNT * RANKS; i++) {
        l->tokens[i] = token(rank, i / COUNT, i % COUNT);
        l->parameters[i] = l->atexpert[i] = l->computed[i] = l->back[i] = -7;
    }
    for (int k = 0; k < COUNT; k++) {
        l->shard[k] = 10 * rank + k + 1;
        l->sums[k] = -7;
    }
    void *const out[OPS] = {l->parameters, l->atexpert, NULL, l->back, l->sums};
    const void *const in[OPS] = {l->shard, l->tokens, NULL, l->computed, l->tokens};
    memcpy(l->out, out, sizeof out);
    memcpy(l->in, in, sizeof in);
}

static bool exact(const layer *l, int rank) {
    bool ok = true;
    for (int i = 0; i < COUNT * RANKS; i++) {
        int from = i / COUNT, k = i % COUNT;
        ok &= l->parameters[i] == 10 * from + k + 1;
        ok &= l->back[i] == 3 * token(rank, from, k);
    }
    for (int k = 0; k < COUNT; k++) {
        int32_t sum = 0;
        for (int r = 0; r < RANKS; r++) {
            sum += token(r, rank, k);
        }
        ok &= l->sums[k] == sum;
    }
    return ok;
}

static lierne_run_event event_of(const lierne_run *run, int i) {
    lierne_run_event e = {.size = sizeof e};
    lierne_run_get_event(&e, run, i);
    return e;
}

/* The experts compute; rank 1 gathers only after it has its tokens back. */
static lierne_status carry_on(layer *l, lierne_run *run, int rank) {
    lierne_status status = LIERNE_OK;
    bool computed = false;
    for (int done = 0; status == LIERNE_OK && !done;) {
        status = lierne_run_test(&done, run);
        if (!computed && event_of(run, 2).begun > 0) {
            for (int i = 0; i < COUNT * RANKS; i++) {
                l->computed[i] = 3 * l->atexpert[i];
            }
            lierne_run_resume(run, 2);
            computed = true;
        }
        if (rank == 1 && event_of(run, 3).ended > 0 && !done && status == LIERNE_OK) {
            lierne_run_resume(run, 0);
        }
    }
    lierne_status ended = lierne_run_end(run);
    return status == LIERNE_OK ? ended : status;
}

static lierne_status step(layer *l, lierne_run *run, int rank) {
    LIERNE_TRY(lierne_run_begin(run, l->out, l->in));
    return carry_on(l, run, rank);
}

static void destroy_layer(layer *l, state *s) {
    for (int i = 0; i < OPS; i++) {
        NOTE(s, lierne_plan_destroy(l->plans[i]) == LIERNE_OK);
    }
    lierne_schedule_destroy(l->schedule);
    lierne_schedule_destroy(l->isolated);
}

static lierne_run *commit(lierne_context *context, const lierne_schedule *schedule, state *s) {
    const lierne_run_spec spec = {.size = sizeof spec, .progress_thread = s->threaded};
    lierne_run *run = NULL;
    NOTE(s, lierne_run_create(&run, context, schedule, &spec) == LIERNE_OK && run);
    return run;
}

/* A run that cannot end before this rank computes is open. */
static void call_beside(const layer *l, lierne_run *run, lierne_context *context, state *s) {
    char dump[256], *summary;
    NOTE(s, lierne_plan_forward(l->plans[0], l->out[0], l->in[0], NULL) == LIERNE_ERR_BUSY);
    NOTE(s, strstr(lierne_last_error(), "call lierne_run_end first"));
    NOTE(s, lierne_run_begin(run, l->out, l->in) == LIERNE_ERR_BUSY);
    NOTE(s, lierne_run_destroy(run) == LIERNE_ERR_BUSY);
    NOTE(s, lierne_context_progress(context) == LIERNE_OK);
    NOTE(s, lierne_context_get_status(context) == LIERNE_OK);
    NOTE(s, lierne_context_get_summary_json(&summary, context) == LIERNE_OK);
    lierne_text_destroy(summary);
    NOTE(s, lierne_context_dump(dump, sizeof dump, context) == LIERNE_OK);
}

static void beside(lierne_context *context, void *shared) {
    state *s = shared;
    int rank = lierne_context_get_rank(context);
    layer l = {0};
    make_plans(&l, context, s);
    record(&l, rank, s);
    lierne_run *run = commit(context, l.isolated, s);
    for (int i = 0; i < 3; i++) {
        fill(&l, rank);
        NOTE(s, lierne_run_begin(run, l.out, l.in) == LIERNE_OK);
        call_beside(&l, run, context, s);
        NOTE(s, carry_on(&l, run, rank) == LIERNE_OK && exact(&l, rank));
        NOTE(s, lierne_plan_forward(l.plans[0], l.out[0], l.in[0], NULL) == LIERNE_OK);
    }
    NOTE(s, lierne_run_destroy(run) == LIERNE_OK);
    destroy_layer(&l, s);
}

Test(run, beside_a_thread_other_calls_are_busy) {
    state s = {.threaded = true};
    run_ranks(beside, &s, 60);
}

/* Rank 0 gives up while its thread waits: all ranks get its reason, and a run of a dead context can
 * be destroyed as it is. */
static void gives_up(lierne_context *context, void *shared) {
    state *s = shared;
    int rank = lierne_context_get_rank(context);
    layer l = {0};
    make_plans(&l, context, s);
    record(&l, rank, s);
    lierne_run *run = commit(context, l.isolated, s);
    fill(&l, rank);
    NOTE(s, lierne_run_begin(run, l.out, l.in) == LIERNE_OK);
    if (rank == 0) {
        NOTE(s, lierne_context_abort(context, LIERNE_ERR_NO_MEMORY, "no crystal") == LIERNE_OK);
    } else {
        NOTE(s, carry_on(&l, run, rank) == LIERNE_ERR_NO_MEMORY);
        NOTE(s, strstr(lierne_last_error(), "rank 0 gave up: "));
        NOTE(s, strstr(lierne_last_error(), "no crystal"));
    }
    NOTE(s, lierne_run_destroy(run) == LIERNE_OK);
    destroy_layer(&l, s);
}

Test(run, a_rank_gives_up_beside_its_thread) {
    state s = {.threaded = true};
    run_ranks(gives_up, &s, 60);
}

static void check_order(const lierne_run *run, int rank, state *s) {
    lierne_run_event gather = event_of(run, 0), back = event_of(run, 3), scatter = event_of(run, 4);
    NOTE(s, gather.queue == 0 && gather.uid == 9 && back.queue == 1 && back.uid > 0 &&
                back.uid != 9 && event_of(run, 2).queue == 2 && event_of(run, 2).uid == 0);
    NOTE(s, gather.begun <= back.begun && back.begun < back.ended);
    NOTE(s, rank != 1 || (gather.resumed >= back.ended && gather.begun < back.begun));
    NOTE(s, scatter.begun >= gather.ended && scatter.bytes == COUNT * (RANKS - 1) * 4);
    NOTE(s,
         event_of(run, 1).ended <= event_of(run, 2).begun && event_of(run, 2).ended <= back.begun);
}

static void overlaps(lierne_context *context, void *shared) {
    state *s = shared;
    int rank = lierne_context_get_rank(context);
    layer l = {0};
    char *trace;
    make_plans(&l, context, s);
    record(&l, rank, s);
    lierne_run *run = commit(context, l.isolated, s);
    NOTE(s, lierne_context_get_ngroups(context) == 1);
    NOTE(s, lierne_plan_destroy(l.plans[0]) == LIERNE_ERR_BUSY);
    for (int i = 0; i < 3 && run; i++) {
        fill(&l, rank);
        NOTE(s, step(&l, run, rank) == LIERNE_OK && exact(&l, rank));
        check_order(run, rank, s);
    }
    /* A second schedule shares the group, which goes with the last. */
    lierne_run *second = commit(context, l.isolated, s);
    NOTE(s, lierne_context_get_ngroups(context) == 1);
    NOTE(s, lierne_run_get_trace(&trace, run) == LIERNE_OK && strstr(trace, "all_to_all ep"));
    lierne_text_destroy(trace);
    NOTE(s, lierne_run_destroy(run) == LIERNE_OK && lierne_context_get_ngroups(context) == 1);
    fill(&l, rank);
    NOTE(s, step(&l, second, rank) == LIERNE_OK && exact(&l, rank));
    NOTE(s, lierne_run_destroy(second) == LIERNE_OK && lierne_context_get_ngroups(context) == 0);
    destroy_layer(&l, s);
}

Test(run, isolated_traffic_overlaps_and_is_exact) {
    for (int threaded = 0; threaded < 2; threaded++) {
        state s = {.threaded = threaded};
        run_ranks(overlaps, &s, 60);
    }
}

/* The same without isolation: rank 1 waits for what is behind the operation that it withholds. */
static void cannot_complete(lierne_context *context, void *shared) {
    state *s = shared;
    int rank = lierne_context_get_rank(context);
    layer l = {0};
    make_plans(&l, context, s);
    record(&l, rank, s);
    lierne_run *run = commit(context, l.schedule, s);
    fill(&l, rank);
    NOTE(s, run && step(&l, run, rank) == LIERNE_ERR_TIMEOUT);
    if (rank == 1) {
        NOTE(s, strstr(lierne_last_error(), "operation 0 (all_gather of group 'world') is held"));
        NOTE(s, strstr(lierne_last_error(), "operation 1 waits behind it in the same queue"));
    }
    NOTE(s, event_of(run, 1).begun == 0 && event_of(run, 0).begun > 0);
    lierne_run_destroy(run);
    destroy_layer(&l, s);
}

Test(run, without_isolation_it_cannot_complete) {
    for (int threaded = 0; threaded < 2; threaded++) {
        state s = {.threaded = threaded};
        run_ranks(cannot_complete, &s, 0.3);
    }
}

/* All but rank 1 have begun the first operation when the run fails. */
Test(run, calls_of_a_run_that_failed_have_ended) {
    static char log[1 << 16];
    char path[] = "/tmp/lierne-run-XXXXXX";
    state s = {.threaded = false};
    int ended = 0, file = mkstemp(path);
    setenv("LIERNE_LOG", "warn", 1);
    setenv("LIERNE_LOG_FILE", path, 1);
    run_ranks(cannot_complete, &s, 0.3);
    ssize_t n = read(file, log, sizeof log - 1);
    for (const char *at = log; n > 0 && (at = strstr(at, "forward 0 of plan 0: ")); at++) {
        ended += strncmp(at, "forward 0 of plan 0: LIERNE_ERR_TIMEOUT after ", 46) == 0;
    }
    cr_assert_eq(ended, RANKS - 1, "%s", log);
    close(file);
    unlink(path);
}

/* Rank 2 deviates. */
static void reject(lierne_context *context, void *shared) {
    state *s = shared;
    int rank = lierne_context_get_rank(context);
    bool wrong = rank == 2;
    layer l = {0};
    lierne_run *run = NULL;
    make_plans(&l, context, s);
    record(&l, wrong && s->which == 0 ? 0 : rank, s);
    const lierne_run_spec spec = {.size = sizeof spec, .concurrent = wrong && s->which == 2};
    const lierne_schedule *given = wrong && s->which == 1 ? l.schedule : l.isolated;
    lierne_status status =
        lierne_run_create(&run, context, wrong && s->which == 3 ? NULL : given, &spec);
    NOTE(s, status == s->wanted && !run && strstr(lierne_last_error(), s->message));
    NOTE(s, lierne_context_get_ngroups(context) == 0);
    if (wrong && s->which == 0) { /* the context is alive */
        lierne_schedule_destroy(l.schedule);
        lierne_schedule_destroy(l.isolated);
        record(&l, rank, s);
    }
    NOTE(s, lierne_run_create(&run, context, l.isolated, NULL) == LIERNE_OK);
    lierne_run_destroy(run);
    destroy_layer(&l, s);
}

Test(run, one_rank_that_deviates_is_every_ranks_error) {
    const state cases[] = {
        {.wanted = LIERNE_ERR_INVALID, .message = "rank 2: the schedule is of rank 0"},
        {.wanted = LIERNE_ERR_MISMATCH, .message = "rank 2: ", .which = 1},
        {.wanted = LIERNE_ERR_MISMATCH, .message = "concurrent", .which = 2},
        {.wanted = LIERNE_ERR_INVALID, .message = "schedule is NULL", .which = 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        state s = cases[i];
        run_ranks(reject, &s, 60);
    }
}

/* Four gathers; `plans` has the digit of the plan of each, 2 for the adjoint of plan 0, `groups`
 * that of its group. */
static lierne_schedule *record_gathers(lierne_plan *const *plan, int rank, const char *plans,
                                       const char *groups, state *s) {
    static const int all[RANKS] = {0, 1, 2, 3};
    static const char *const names[] = {"first", "second"};
    lierne_schedule *schedule = NULL;
    int group[2], index;
    NOTE(s, lierne_schedule_create(&schedule, rank) == LIERNE_OK);
    for (int g = 0; g < 2; g++) {
        const lierne_schedule_group_spec spec = {
            .size = sizeof spec, .name = names[g], .uid = g + 1, .ranks = all, .nranks = RANKS};
        NOTE(s, lierne_schedule_add_group(&group[g], schedule, &spec) == LIERNE_OK);
    }
    for (int i = 0; i < 4; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        o.kind = LIERNE_OPERATION_ALL_GATHER;
        o.group = group[groups[i] - '0'];
        o.plan = plan[plans[i] == '1'];
        o.direction = plans[i] == '2' ? LIERNE_DIRECTION_ADJOINT : LIERNE_DIRECTION_FORWARD;
        NOTE(s, lierne_schedule_add_operation(&index, schedule, &o) == LIERNE_OK);
    }
    NOTE(s, lierne_schedule_freeze(schedule) == LIERNE_OK);
    return schedule;
}

static void execute_in_two_queues(lierne_context *context, void *shared) {
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    state *s = shared;
    lierne_plan *plans[2] = {NULL};
    lierne_run *run = NULL;
    for (int i = 0; i < 2; i++) {
        NOTE(s, lierne_plan_create_all_gather(&plans[i], context, &gather) == LIERNE_OK);
    }
    for (int shared_plan = 0; shared_plan < 2; shared_plan++) {
        lierne_schedule *schedule =
            record_gathers(plans, lierne_context_get_rank(context), shared_plan ? "0120" : "0110",
                           shared_plan ? "0001" : "0110", s);
        lierne_status status = lierne_run_create(&run, context, schedule, NULL);
        NOTE(s, status == (shared_plan ? LIERNE_ERR_INVALID : LIERNE_OK));
        NOTE(s, !shared_plan || strstr(lierne_last_error(), "operations 0 and 3 execute one plan"));
        lierne_run_destroy(run);
        lierne_schedule_destroy(schedule);
    }
    for (int i = 0; i < 2; i++) {
        NOTE(s, lierne_plan_destroy(plans[i]) == LIERNE_OK);
    }
}

Test(run, a_plan_has_one_queue) {
    run_ranks(execute_in_two_queues, &(state){0}, 60);
}
