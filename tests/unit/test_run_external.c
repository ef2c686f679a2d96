/* External runs, over simulated worlds with a thread per rank: operations without plans are
 * compared, the groups to create are the same list on every rank, members or not, and stay with the
 * context. */
#include "base/base.h"
#include "lierne/schedule.h"
#include "rank_threads.h"
#include "unit/ranks.h"

#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 4 };

typedef struct state {
    rank_faults faults;
    int which;
} state;

static void run_ranks(void (*work)(lierne_context *, void *), state *s, int max_groups) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20, .max_groups = max_groups};
    ranks_run(RANKS, &spec, work, s);
    cr_assert_eq(s->faults.wrong, 0, "%s", s->faults.message);
}

static void add(lierne_schedule *s, lierne_operation_kind kind, int group, int64_t count,
                state *shared) {
    static const char *const names[] = {"gather", "scatter", "reduce", "exchange"};
    lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
    int index;
    o.kind = kind;
    o.group = group;
    o.count = count, o.dtype = LIERNE_DTYPE_F32;
    o.tag = kind == LIERNE_OPERATION_ALL_TO_ALL ? "ep" : "";
    o.name = names[kind];
    NOTE(shared, lierne_schedule_add_operation(&index, s, &o) == LIERNE_OK);
}

/* Two groups that share no rank, each with an all-gather and an all-to-all; isolated. */
static lierne_schedule *record(int rank, int64_t count, state *shared) {
    static const int ranks[2][2] = {{3, 0}, {1, 2}};
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    int mine = rank == 1 || rank == 2, group;
    lierne_schedule *s, *isolated = NULL;
    const lierne_schedule_group_spec g = {.size = sizeof g,
                                          .name = mine ? "inner" : "outer",
                                          .uid = 7 + mine,
                                          .ranks = ranks[mine],
                                          .nranks = 2};
    NOTE(shared, lierne_schedule_create(&s, rank) == LIERNE_OK);
    NOTE(shared, lierne_schedule_add_group(&group, s, &g) == LIERNE_OK);
    add(s, LIERNE_OPERATION_ALL_GATHER, group, 5, shared);
    add(s, LIERNE_OPERATION_ALL_TO_ALL, group, count, shared);
    NOTE(shared, lierne_schedule_freeze(s) == LIERNE_OK);
    NOTE(shared, lierne_schedule_isolate(&isolated, s, &ep) == LIERNE_OK);
    lierne_schedule_destroy(s);
    return isolated;
}

static lierne_schedule *record_nothing(int rank, state *shared) {
    lierne_schedule *s;
    NOTE(shared, lierne_schedule_create(&s, rank) == LIERNE_OK);
    NOTE(shared, lierne_schedule_freeze(s) == LIERNE_OK);
    return s;
}

static const lierne_run_spec external = {.size = sizeof external, .external = 1};

static void created_groups(lierne_context *context, void *shared) {
    /* By smallest rank: that of ranks 3 and 0 comes first. */
    static const int64_t sources[2] = {7, 8};
    static const int ranks[2][2] = {{3, 0}, {1, 2}};
    state *s = shared;
    lierne_schedule *schedule = record(lierne_context_get_rank(context), 6, s);
    lierne_run *first, *second;
    lierne_schedule_group g = {.size = sizeof g};
    NOTE(s, lierne_run_create(&first, context, schedule, &external) == LIERNE_OK);
    NOTE(s, lierne_run_get_ncreated(first) == 2 && lierne_run_get_ncreated(NULL) == -1);
    for (int i = 0; i < 2; i++) {
        NOTE(s, lierne_run_get_created(&g, first, i) == LIERNE_OK);
        NOTE(s, g.uid == i + 1 && g.source == sources[i] && strcmp(g.purpose, "ep") == 0);
        NOTE(s, strcmp(g.name, i ? "ep@8" : "ep@7") == 0 && g.priority == LIERNE_PRIORITY_HIGH);
        NOTE(s, g.nranks == 2 && memcmp(g.ranks, ranks[i], sizeof ranks[i]) == 0);
    }
    NOTE(s, lierne_run_get_created(&g, first, 2) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_run_get_created(&g, first, -1) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_run_get_created(&g, NULL, 0) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_run_begin(first, NULL, NULL) == LIERNE_ERR_INVALID &&
                strstr(lierne_last_error(), "external"));
    NOTE(s, lierne_run_create(&second, context, schedule, &external) == LIERNE_OK);
    NOTE(s, lierne_run_get_ncreated(second) == 0 && lierne_context_get_ngroups(context) == 1);
    NOTE(s, lierne_run_destroy(first) == LIERNE_OK && lierne_context_get_ngroups(context) == 1);
    NOTE(s, lierne_run_destroy(second) == LIERNE_OK && lierne_context_get_ngroups(context) == 0);
    lierne_schedule_destroy(schedule);
}

Test(run_external, creates_the_same_groups_in_the_same_order_on_every_rank) {
    state s = {.which = 0};
    run_ranks(created_groups, &s, 0);
}

/* A group that only the first rank is in. */
static void singleton(lierne_context *context, void *shared) {
    const lierne_isolation_spec ep = {.size = sizeof ep,
                                      .purpose = "ep",
                                      .kinds = 1u << LIERNE_OPERATION_ALL_TO_ALL,
                                      .singletons = 1};
    const lierne_schedule_group_spec g = {
        .size = sizeof g, .name = "alone", .uid = 7, .ranks = (const int[]){0}, .nranks = 1};
    state *s = shared;
    int rank = lierne_context_get_rank(context), group;
    lierne_schedule *schedule, *isolated;
    lierne_run *run;
    NOTE(s, lierne_schedule_create(&schedule, rank) == LIERNE_OK);
    if (rank == 0) {
        NOTE(s, lierne_schedule_add_group(&group, schedule, &g) == LIERNE_OK);
        add(schedule, LIERNE_OPERATION_ALL_GATHER, group, 5, s);
        add(schedule, LIERNE_OPERATION_ALL_TO_ALL, group, 5, s);
    }
    NOTE(s, lierne_schedule_freeze(schedule) == LIERNE_OK);
    NOTE(s, lierne_schedule_isolate(&isolated, schedule, &ep) == LIERNE_OK);
    NOTE(s, lierne_run_create(&run, context, isolated, &external) == LIERNE_OK);
    NOTE(s, lierne_run_get_ncreated(run) == 1);
    NOTE(s, lierne_context_get_ngroups(context) == (rank == 0));
    NOTE(s, lierne_run_destroy(run) == LIERNE_OK);
    lierne_schedule_destroy(schedule);
    lierne_schedule_destroy(isolated);
}

Test(run_external, creates_a_group_of_the_first_rank_alone) {
    state s = {.which = 0};
    run_ranks(singleton, &s, 0);
}

/* Isolates the all-gathers, too. */
static lierne_schedule *isolate_gathers(const lierne_schedule *one, state *s) {
    const lierne_isolation_spec gathers = {.size = sizeof gathers,
                                           .purpose = "ag",
                                           .kinds = 1u << LIERNE_OPERATION_ALL_GATHER,
                                           .any_tag = 1,
                                           .also_alone = 1};
    lierne_schedule *both;
    NOTE(s, lierne_schedule_isolate(&both, one, &gathers) == LIERNE_OK);
    return both;
}

/* A schedule has ep before ag. */
static void created_by_purpose(lierne_context *context, void *shared) {
    static const char *const names[4] = {"ag@7", "ep@7", "ag@8", "ep@8"};
    state *s = shared;
    lierne_schedule *one = record(lierne_context_get_rank(context), 6, s);
    lierne_schedule *both = isolate_gathers(one, s);
    lierne_run *run;
    NOTE(s, lierne_run_create(&run, context, both, &external) == LIERNE_OK);
    NOTE(s, lierne_run_get_ncreated(run) == 4);
    for (int i = 0; i < 4; i++) {
        lierne_schedule_group g = {.size = sizeof g};
        NOTE(s, lierne_run_get_created(&g, run, i) == LIERNE_OK);
        NOTE(s, g.uid == i + 1 && strcmp(g.name, names[i]) == 0);
    }
    lierne_run_destroy(run);
    lierne_schedule_destroy(one);
    lierne_schedule_destroy(both);
}

Test(run_external, groups_of_the_same_ranks_are_created_by_purpose) {
    state s = {.which = 0};
    run_ranks(created_by_purpose, &s, 0);
}

/* Rank 2 deviates; every rank gets the error, nothing is created, and the context goes on. */
static void reject(lierne_context *context, void *shared) {
    static const struct {
        lierne_status status;
        const char *text;
    } wanted[] = {
        {LIERNE_ERR_MISMATCH,
         "rank 2: operation 1 'exchange' (all_to_all 0 of group 'ep@8 (inner)', uid 8): "
         "count is 7, expected 6 as on rank 1"},
        {LIERNE_ERR_INVALID, "rank 2: operation 0 (all_gather) has no plan to run"},
        {LIERNE_ERR_INVALID, "rank 2: progress_thread is set"},
        {LIERNE_ERR_MISMATCH, "external"},
        {LIERNE_ERR_INVALID, "out is NULL"},
    };
    state *s = shared;
    int rank = lierne_context_get_rank(context);
    bool wrong = rank == 2;
    lierne_schedule *schedule =
        s->which == 3 ? record_nothing(rank, s) : record(rank, wrong && s->which == 0 ? 7 : 6, s);
    lierne_run_spec spec = external;
    lierne_run *run = (lierne_run *)schedule;
    spec.external = !(wrong && (s->which == 1 || s->which == 3));
    spec.progress_thread = wrong && s->which == 2;
    bool no_output = wrong && s->which == 4;
    NOTE(s, lierne_run_create(no_output ? NULL : &run, context, schedule, &spec) ==
                    wanted[s->which].status &&
                (no_output || !run));
    NOTE(s, strstr(lierne_last_error(), wanted[s->which].text));
    NOTE(s, lierne_context_get_ngroups(context) == 0);
    lierne_schedule_destroy(schedule);
    schedule = record(rank, 6, s);
    NOTE(s, lierne_run_create(&run, context, schedule, &external) == LIERNE_OK);
    lierne_run_destroy(run);
    lierne_schedule_destroy(schedule);
}

Test(run_external, one_rank_that_deviates_is_every_ranks_error) {
    for (int which = 0; which < 5; which++) {
        state s = {.which = which};
        run_ranks(reject, &s, 0);
    }
}

/* Every rank may have one group; the run needs one per rank, and then a second. */
static void exceed(lierne_context *context, void *shared) {
    state *s = shared;
    lierne_schedule *one = record(lierne_context_get_rank(context), 6, s);
    lierne_schedule *both = isolate_gathers(one, s);
    lierne_run *first, *second;
    NOTE(s, lierne_run_create(&first, context, one, &external) == LIERNE_OK);
    NOTE(s,
         lierne_run_create(&second, context, both, &external) == LIERNE_ERR_NO_RESOURCE && !second);
    NOTE(s, strstr(lierne_last_error(), "no group left for 'ag' with 2 ranks: max_groups is 1"));
    NOTE(s, lierne_context_get_ngroups(context) == 1);
    lierne_run_destroy(first);
    lierne_schedule_destroy(one);
    lierne_schedule_destroy(both);
}

Test(run_external, the_budget_names_the_groups) {
    state s = {.which = 0};
    run_ranks(exceed, &s, 1);
}
