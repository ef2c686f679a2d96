/* Groups with a transport that needs a communicator for each: the order of their creation, faults
 * of one member, and what is left. */
#include "base/base.h"
#include "lierne/schedule.h"
#include "rank_threads.h"
#include "unit/expect.h"
#include "unit/group_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 10000

/* Specs in an order that is not the canonical one. */
typedef struct example {
    lierne_group_spec all, pairs, others;
    const lierne_group_spec *list[3];
} example;

static void fill_example(example *e) {
    static const int all[4] = {0, 1, 2, 3}, pairs[4] = {1, 3, 0, 2}, others[4] = {3, 2, 1, 0};
    e->all = group_spec_of("all", 1, 4, all);          /* uid 1 */
    e->pairs = group_spec_of("pairs", 2, 2, pairs);    /* 2, 3 */
    e->others = group_spec_of("others", 2, 2, others); /* 4, 5 */
    e->list[0] = &e->all;
    e->list[1] = &e->pairs;
    e->list[2] = &e->others;
}

static void canonical_order(lierne_context *context, void *shared) {
    static const int64_t wanted[4][3] = {{3, 5, 1}, {5, 1, 2}, {3, 1, 4}, {1, 2, 4}};
    group_state *s = shared;
    example e;
    lierne_group *groups[3];
    int rank = lierne_context_get_rank(context);
    fill_example(&e);
    group_attach(s, context);
    group_keep(s, context, lierne_group_create_all(groups, context, e.list, 3));
    const group_rank *r = &s->ranks[rank];
    NOTE(s, s->kept[rank] == LIERNE_OK && r->ncreated == 3);
    NOTE(s, memcmp(r->created, wanted[rank], sizeof wanted[rank]) == 0);
    for (int i = 2; i >= 0; i--) {
        NOTE(s, lierne_group_destroy(groups[i]) == LIERNE_OK);
    }
}

Test(group_communicators, communicators_are_created_in_one_order) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    group_state s = {0};
    group_run(4, &spec, canonical_order, &s);
}

/* The groups that a pass makes of two groups, which each rank has recorded in an order of its own.
 */
static lierne_schedule *record_two(int rank, group_state *s) {
    static const int ranks[2] = {0, 1};
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    lierne_schedule *recorded, *isolated = NULL;
    int index;
    NOTE(s, lierne_schedule_create(&recorded, rank) == LIERNE_OK);
    for (int i = 0; i < 2; i++) {
        int uid = 1 + (i + rank) % 2;
        const lierne_schedule_group_spec g = {.size = sizeof g,
                                              .name = uid == 1 ? "one" : "two",
                                              .uid = uid,
                                              .ranks = ranks,
                                              .nranks = 2};
        NOTE(s, lierne_schedule_add_group(&index, recorded, &g) == LIERNE_OK);
    }
    for (int uid = 1; uid <= 2; uid++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        o.kind = LIERNE_OPERATION_ALL_TO_ALL;
        o.group = (uid - 1 + rank) % 2;
        o.tag = "ep";
        NOTE(s, lierne_schedule_add_operation(&index, recorded, &o) == LIERNE_OK);
        o.kind = LIERNE_OPERATION_ALL_GATHER;
        o.tag = "";
        NOTE(s, lierne_schedule_add_operation(&index, recorded, &o) == LIERNE_OK);
    }
    NOTE(s, lierne_schedule_freeze(recorded) == LIERNE_OK);
    NOTE(s, lierne_schedule_isolate(&isolated, recorded, &ep) == LIERNE_OK);
    lierne_schedule_destroy(recorded);
    return isolated;
}

static void run_of_two(lierne_context *context, void *shared) {
    const lierne_run_spec external = {.size = sizeof external, .external = 1};
    group_state *s = shared;
    lierne_run *run = NULL;
    group_attach(s, context);
    lierne_schedule *schedule = record_two(lierne_context_get_rank(context), s);
    NOTE(s, lierne_run_create(&run, context, schedule, &external) == LIERNE_OK);
    NOTE(s, lierne_context_get_ngroups(context) == 2);
    NOTE(s, lierne_run_destroy(run) == LIERNE_OK);
    NOTE(s, lierne_context_get_ngroups(context) == 0);
    lierne_schedule_destroy(schedule);
}

Test(group_communicators, those_of_a_run_are_destroyed_in_one_order) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 5};
    group_state s = {0};
    group_run(2, &spec, run_of_two, &s);
}

static void one_member_fails(lierne_context *context, void *shared) {
    group_state *s = shared;
    example e;
    lierne_group *groups[3];
    int rank = lierne_context_get_rank(context);
    fill_example(&e);
    group_attach(s, context);
    group_keep(s, context, lierne_group_create_all(groups, context, e.list, 3));
    NOTE(s, !groups[0] && !groups[1] && !groups[2]);
    NOTE(s, lierne_context_get_ngroups(context) == 0);
    NOTE(s, s->ranks[rank].ncreated == 3); /* nobody waits for the one that failed */
    if (rank == s->fault_rank) {
        s->fault = NO_FAULT;
    }
    NOTE(s, lierne_group_create_all(groups, context, e.list, 3) == LIERNE_OK);
    NOTE(s, lierne_group_get_uid(groups[0]) == 6);
    for (int i = 0; i < 3; i++) {
        NOTE(s, lierne_group_destroy(groups[i]) == LIERNE_OK);
    }
}

Test(group_communicators, a_member_that_fails_fails_all_and_leaves_nothing) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    group_state s = {.fault = FAILS, .fault_rank = 2};
    group_run(4, &spec, one_member_fails, &s);
    group_check_alike(&s, 4, LIERNE_ERR_NO_MEMORY, "rank 2 has no communicator left");
}

/* The group that was created before is destroyed without waiting for anybody. */
static void one_member_stays_away(lierne_context *context, void *shared) {
    group_state *s = shared;
    example e;
    lierne_group *groups[3], *before;
    int rank = lierne_context_get_rank(context);
    fill_example(&e);
    NOTE(s, lierne_group_create(&before, context, &e.pairs) == LIERNE_OK);
    group_attach(s, context);
    group_keep(s, context, lierne_group_create_all(groups, context, e.list, 3));
    NOTE(s, s->kept[rank] == LIERNE_ERR_TIMEOUT);
    NOTE(s, !groups[0] && !groups[1] && !groups[2]);
    NOTE(s, lierne_group_create(&groups[0], context, &e.all) == LIERNE_ERR_TIMEOUT);
    double start = lierne_now();
    NOTE(s, lierne_group_destroy(before) == LIERNE_OK);
    NOTE(s, lierne_now() - start < 10 && lierne_context_get_ngroups(context) == 0);
}

Test(group_communicators, a_member_that_does_not_come_is_a_timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 0.3};
    group_state s = {.fault = STAYS_AWAY, .fault_rank = 2};
    group_run(4, &spec, one_member_stays_away, &s);
}

/* Rank 3 does not call; what was created is destroyed by each rank of the dead context alone. */
static void one_rank_does_not_call(lierne_context *context, void *shared) {
    group_state *s = shared;
    example e;
    lierne_group *all, *group = NULL;
    fill_example(&e);
    group_attach(s, context);
    NOTE(s, lierne_group_create(&all, context, &e.all) == LIERNE_OK);
    if (lierne_context_get_rank(context) != 3) {
        NOTE(s, lierne_group_create(&group, context, &e.pairs) == LIERNE_ERR_TIMEOUT);
        NOTE(s, !group && lierne_group_destroy(all) == LIERNE_OK);
        return;
    }
    /* The others destroyed theirs alone, so this wait has no end but the deadline. */
    NOTE(s, lierne_group_destroy(all) == LIERNE_ERR_TIMEOUT);
    NOTE(s, strncmp(lierne_last_error(), "lierne_group_destroy: ", 22) == 0);
    NOTE(s, lierne_group_create(&group, context, &e.pairs) == LIERNE_ERR_TIMEOUT);
}

Test(group_communicators, a_rank_that_does_not_call_is_a_timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 0.3};
    group_state s = {0};
    group_run(4, &spec, one_rank_does_not_call, &s);
    cr_assert_eq(s.alone, 3);
}

static void many_rounds(lierne_context *context, void *shared) {
    group_state *s = shared;
    example e;
    lierne_group *groups[3];
    fill_example(&e);
    group_attach(s, context);
    for (int round = 0; round < ROUNDS; round++) {
        if (lierne_group_create_all(groups, context, e.list, 3) != LIERNE_OK) {
            group_keep(s, context, LIERNE_ERR_INVALID);
            NOTE(s, false);
            return;
        }
        for (int i = 2; i >= 0; i--) {
            NOTE(s, lierne_group_destroy(groups[i]) == LIERNE_OK);
        }
        if (round == 10 && lierne_context_get_rank(context) == 0) {
            s->live = lierne_mem_live();
        }
    }
    NOTE(s, lierne_context_get_ngroups(context) == 0);
    NOTE(s, lierne_group_create_all(groups, context, e.list, 3) == LIERNE_OK);
    NOTE(s, lierne_group_get_uid(groups[0]) == 5 * ROUNDS + 1);
    for (int i = 2; i >= 0; i--) {
        NOTE(s, lierne_group_destroy(groups[i]) == LIERNE_OK);
    }
    /* Other ranks may be at other points of a round. */
    NOTE(s, lierne_mem_live() < s->live + 100);
}

Test(group_communicators, ten_thousand_rounds_leave_nothing) {
    group_state *s = calloc(1, sizeof *s);
    group_run(4, NULL, many_rounds, s);
    free(s);
}

static void without_memory(lierne_context *context, void *shared) {
    group_state *s = shared;
    example e;
    lierne_group *groups[3];
    fill_example(&e);
    group_attach(s, context);
    group_keep(s, context, lierne_group_create_all(groups, context, e.list, 3));
    for (int i = 2; i >= 0; i--) {
        NOTE(s, lierne_group_destroy(groups[i]) == LIERNE_OK);
    }
    NOTE(s, lierne_context_get_ngroups(context) == 0);
}

Test(group_communicators, running_out_of_memory_leaves_nothing) {
    for (size_t k = 1, failed = 1; failed; k++) {
        group_state s = {0};
        lierne_sim *sim;
        pthread_mutex_init(&s.lock, NULL);
        pthread_cond_init(&s.changed, NULL);
        assert_ok(lierne_sim_create(&sim, 4, NULL));
        lierne_mem_fail_at(k);
        rank_threads(sim, 4, without_memory, &s);
        lierne_mem_fail_at(0);
        assert_ok(lierne_sim_destroy(sim));
        cr_assert_eq(lierne_mem_live(), 0, "allocation %zu", k);
        pthread_mutex_destroy(&s.lock);
        pthread_cond_destroy(&s.changed);
        failed = s.kept[0] != LIERNE_OK;
        cr_assert(k < 500 && s.faults.wrong == 0, "allocation %zu: %s", k, s.faults.message);
        cr_assert_eq(s.communicators, 0);
        for (int r = 0; r < 4; r++) {
            cr_assert_eq(s.kept[r], failed ? LIERNE_ERR_NO_MEMORY : LIERNE_OK, "allocation %zu: %s",
                         k, s.message[r]);
        }
    }
}
