/* Groups on simulated worlds, a thread per rank: members, identity, budget and agreement. */
#include "base/base.h"
#include "bridge_plan.h"
#include "lierne/grid.h"
#include "lierne/megatron.h"
#include "unit/expect.h"
#include "unit/group_case.h"

#include <criterion/criterion.h>
#include <string.h>

static void groups_of_a_grid(lierne_context *context, void *shared) {
    group_state *s = shared;
    const mesh m = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {2, 3}, .offset = 1};
    const char *dp = "dp";
    int ranks[6], ngroups, size, rank = lierne_context_get_rank(context);
    lierne_grid *grid = mesh_grid(&m, 8);
    lierne_group *group;
    NOTE(s, lierne_grid_get_groups(ranks, &ngroups, &size, grid, NULL, &dp, 1) == LIERNE_OK);
    lierne_group_spec spec = group_spec_of("dp", ngroups, size, ranks);
    spec.priority = LIERNE_PRIORITY_HIGH;
    NOTE(s, lierne_group_create(&group, context, &spec) == LIERNE_OK);
    bool member = rank >= 1 && rank < 7;
    int first = 1 + (rank - 1) % 2;
    NOTE(s, (group != NULL) == member);
    NOTE(s, lierne_context_get_ngroups(context) == member);
    if (member) {
        const int *got = lierne_group_get_ranks(group);
        NOTE(s, lierne_group_get_size(group) == 3);
        NOTE(s, lierne_group_get_rank(group) == (rank - 1) / 2);
        NOTE(s, got[0] == first && got[1] == first + 2 && got[2] == first + 4);
        NOTE(s, strcmp(lierne_group_get_purpose(group), "dp") == 0);
        NOTE(s, lierne_group_get_priority(group) == LIERNE_PRIORITY_HIGH);
        NOTE(s, lierne_group_get_uid(group) == first);
    }
    NOTE(s, lierne_group_destroy(group) == LIERNE_OK);
    lierne_grid_destroy(grid);
}

Test(group, groups_of_a_grid_have_their_members_in_order) {
    group_state s = {0};
    group_run(8, NULL, groups_of_a_grid, &s);
}

/* Groups of different sizes, one with descending ranks. */
static void lists(lierne_context *context, void *shared) {
    group_state *s = shared;
    const int ranks[4] = {3, 1, 2, 0}, sizes[2] = {3, 1}, places[5] = {0, 1, 2, 0, -1};
    lierne_group_spec spec = group_spec_of("lists", 2, 0, ranks);
    lierne_group *group;
    int rank = lierne_context_get_rank(context);
    spec.sizes = sizes;
    NOTE(s, lierne_group_create(&group, context, &spec) == LIERNE_OK);
    NOTE(s, lierne_group_get_size(group) == (rank == 0 ? 1 : rank == 4 ? -1 : 3));
    NOTE(s, lierne_group_get_rank(group) == places[rank]);
    NOTE(s,
         !group || rank == 0 || memcmp(lierne_group_get_ranks(group), ranks, 3 * sizeof(int)) == 0);
    NOTE(s, lierne_group_get_uid(group) == (rank == 0 ? 2 : rank == 4 ? -1 : 1));
    NOTE(s, lierne_group_destroy(group) == LIERNE_OK);
}

Test(group, lists_of_any_size_and_order) {
    group_state s = {0};
    group_run(5, NULL, lists, &s);
}

/* Rank 0 is in the second group of the second spec only, and still counts all uids. */
static void identities(lierne_context *context, void *shared) {
    group_state *s = shared;
    const int pair[2] = {1, 2}, singles[2] = {1, 0};
    const lierne_group_spec a = group_spec_of("ep", 1, 2, pair),
                            b = group_spec_of("ep", 2, 1, singles);
    const lierne_group_spec *const both[2] = {&a, &b};
    lierne_group *first[2], *second[2];
    int rank = lierne_context_get_rank(context);
    NOTE(s, lierne_group_create_all(first, context, both, 2) == LIERNE_OK);
    NOTE(s, lierne_group_create_all(second, context, both, 2) == LIERNE_OK);
    NOTE(s, lierne_group_get_uid(first[0]) == (rank == 0 ? -1 : 1));
    NOTE(s, lierne_group_get_uid(first[1]) == (rank == 0 ? 3 : rank == 1 ? 2 : -1));
    NOTE(s, lierne_group_get_uid(second[0]) == (rank == 0 ? -1 : 4));
    NOTE(s, lierne_context_get_ngroups(context) == 2 + 2 * (rank == 1));
    for (int i = 0; i < 2; i++) {
        NOTE(s, lierne_group_destroy(first[i]) == LIERNE_OK);
    }
    NOTE(s, lierne_context_get_ngroups(context) == 1 + (rank == 1));
    NOTE(s, lierne_group_create(first, context, &b) == LIERNE_OK);
    NOTE(s, lierne_group_get_uid(first[0]) == (rank == 0 ? 8 : rank == 1 ? 7 : -1));
    NOTE(s, lierne_group_destroy(first[0]) == LIERNE_OK);
    NOTE(s, lierne_group_destroy(second[1]) == LIERNE_OK);
    NOTE(s, lierne_group_destroy(second[0]) == LIERNE_OK);
    NOTE(s, lierne_group_destroy(NULL) == LIERNE_OK);
}

Test(group, equal_specs_make_two_groups_and_uids_are_never_used_again) {
    group_state s = {0};
    group_run(3, NULL, identities, &s);
}

static void budget(lierne_context *context, void *shared) {
    group_state *s = shared;
    const int all[3] = {0, 1, 2}, one[1] = {1};
    const lierne_group_spec wide = group_spec_of("fsdp", 1, 3, all),
                            narrow = group_spec_of("ep", 1, 1, one);
    lierne_group *a, *b, *c;
    NOTE(s, lierne_context_get_max_groups(context) == 2);
    NOTE(s, lierne_group_create(&a, context, &narrow) == LIERNE_OK);
    NOTE(s, lierne_group_create(&b, context, &wide) == LIERNE_OK);
    group_keep(s, context, lierne_group_create(&c, context, &wide)); /* too many on rank 1 only */
    NOTE(s, !c);
    NOTE(s, lierne_group_destroy(a) == LIERNE_OK);
    NOTE(s, lierne_group_create(&c, context, &wide) == LIERNE_OK);
    NOTE(s, lierne_group_destroy(b) == LIERNE_OK);
    NOTE(s, lierne_group_destroy(c) == LIERNE_OK);
    NOTE(s, lierne_context_get_ngroups(context) == 0);
}

Test(group, a_budget_is_kept_and_names_who_holds_it) {
    const lierne_context_spec spec = {.size = sizeof spec, .max_groups = 2};
    group_state s = {0};
    group_run(3, &spec, budget, &s);
    group_check_alike(
        &s, 3, LIERNE_ERR_NO_RESOURCE,
        "lierne_group_create: rank 1: no group left for 'fsdp' with 3 ranks: max_groups is "
        "2 (1 of 'ep' with 1 ranks, 1 of 'fsdp' with 3 ranks)");
}

/* The collective algorithm needs a gather group and a cp group. One that was created is not shared,
 * although it has the same ranks and purpose. */
static void shared_by_plans(lierne_context *context, void *shared) {
    group_state *s = shared;
    const int64_t shape[3] = {4, 4, 2};
    lierne_grid *src = grid_of(1, 1, 4, 4), *dst = grid_of(1, 2, 2, 4);
    const int all[4] = {0, 1, 2, 3};
    lierne_group_spec spec = group_spec_of("gather", 2, 2, all);
    lierne_group *group;
    lierne_plan *plan;
    const lierne_bridge_spec bridge = bridge_spec_of(src, dst, shape);
    const lierne_megatron_spec megatron = {sizeof megatron, LIERNE_MEGATRON_ALGORITHM_COLLECTIVE,
                                           &bridge};
    NOTE(s, lierne_group_create(&group, context, &spec) == LIERNE_OK);
    group_keep(s, context, lierne_plan_create_megatron(&plan, context, &megatron));
    NOTE(s, lierne_context_get_ngroups(context) == 1);
    NOTE(s, lierne_group_destroy(group) == LIERNE_OK);
    NOTE(s, lierne_plan_create_megatron(&plan, context, &megatron) == LIERNE_OK);
    NOTE(s, lierne_context_get_ngroups(context) == 2);
    lierne_plan_destroy(plan);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(group, groups_of_plans_count_too) {
    const lierne_context_spec spec = {.size = sizeof spec, .max_groups = 2};
    group_state s = {0};
    group_run(4, &spec, shared_by_plans, &s);
    group_check_alike(&s, 4, LIERNE_ERR_NO_RESOURCE, "2 of 'gather' with 2 ranks");
}

/* One way in which rank 2 gives something else, and what the message must say. */
typedef struct variant {
    const char *purpose;
    lierne_priority priority;
    int ngroups, sizes[2], ranks[3];
    lierne_status status;
    const char *text;
} variant;

static const variant variants[] = {
    {"cp", LIERNE_PRIORITY_NORMAL, 1, {3}, {0, 1, 2}, LIERNE_ERR_MISMATCH, "purpose differs"},
    {"ep",
     LIERNE_PRIORITY_HIGH,
     1,
     {3},
     {0, 1, 2},
     LIERNE_ERR_MISMATCH,
     "priority differs between ranks"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     2,
     {2, 1},
     {0, 1, 2},
     LIERNE_ERR_MISMATCH,
     "ngroups differs between ranks"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     1,
     {2},
     {0, 1},
     LIERNE_ERR_MISMATCH,
     "sizes[0] differs between ranks"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     1,
     {3},
     {0, 1, 3},
     LIERNE_ERR_MISMATCH,
     "ranks[2] differs between ranks"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     1,
     {3},
     {0, 2, 1},
     LIERNE_ERR_MISMATCH,
     "ranks[1] differs between ranks"},
    {NULL,
     LIERNE_PRIORITY_NORMAL,
     1,
     {3},
     {0, 1, 2},
     LIERNE_ERR_INVALID,
     "lierne_group_create: rank 2: purpose of spec 0 is NULL"},
    {"", LIERNE_PRIORITY_NORMAL, 1, {3}, {0, 1, 2}, LIERNE_ERR_INVALID, "purpose of spec 0 is ''"},
    {"a_purpose_of_16_",
     LIERNE_PRIORITY_NORMAL,
     1,
     {3},
     {0, 1, 2},
     LIERNE_ERR_INVALID,
     "must be 1 to 15 characters"},
    {"e p", LIERNE_PRIORITY_NORMAL, 1, {3}, {0, 1, 2}, LIERNE_ERR_INVALID, "is 'e p', must be"},
    {"ep", (lierne_priority)2, 1, {3}, {0, 1, 2}, LIERNE_ERR_INVALID, "priority of spec 0 is 2"},
    {"ep", LIERNE_PRIORITY_NORMAL, 0, {3}, {0, 1, 2}, LIERNE_ERR_INVALID, "is 0, must be 1 to 4"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     1,
     {0},
     {0, 1, 2},
     LIERNE_ERR_INVALID,
     "has 0 ranks, must be 1 to 4"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     2,
     {2, 3},
     {0, 1, 2},
     LIERNE_ERR_INVALID,
     "group 1 of spec 0 has 3 ranks, must be 1 to 2"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     1,
     {3},
     {0, 1, 4},
     LIERNE_ERR_INVALID,
     "ranks[2] of spec 0 is 4, must be in 0 to 3"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     1,
     {3},
     {0, -1, 2},
     LIERNE_ERR_INVALID,
     "ranks[1] of spec 0 is -1"},
    {"ep",
     LIERNE_PRIORITY_NORMAL,
     2,
     {2, 1},
     {0, 1, 0},
     LIERNE_ERR_INVALID,
     "ranks[2] of spec 0 is 0 again"},
};

static void disagreement(lierne_context *context, void *shared) {
    group_state *s = shared;
    static const variant good = {.purpose = "ep", .ngroups = 1, .sizes = {3}, .ranks = {0, 1, 2}};
    int rank = lierne_context_get_rank(context);
    const variant *v = rank == 2 ? &variants[s->variant] : &good;
    lierne_group_spec spec = group_spec_of(v->purpose, v->ngroups, 0, v->ranks);
    lierne_group *group = (lierne_group *)s;
    spec.sizes = v->sizes;
    spec.priority = v->priority;
    group_attach(s, context);
    group_keep(s, context, lierne_group_create(&group, context, &spec));
    NOTE(s, !group && lierne_context_get_ngroups(context) == 0);
    NOTE(s, s->ranks[rank].ncreated == 0);
}

Test(group, ranks_that_disagree_create_nothing) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        group_state s = {.variant = (int)i};
        group_run(4, &spec, disagreement, &s);
        group_check_alike(&s, 4, variants[i].status, variants[i].text);
    }
}

static void missing_arguments(lierne_context *context, void *shared) {
    group_state *s = shared;
    const int one[1] = {0};
    lierne_group_spec spec = group_spec_of("ep", 1, 1, one);
    const lierne_group_spec *const none[1] = {NULL}, *const some[1] = {&spec};
    lierne_group *group;
    NOTE(s, lierne_group_create(&group, NULL, &spec) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_group_create(NULL, context, &spec) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_group_create(&group, context, NULL) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_group_create_all(&group, NULL, some, 1) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_group_create_all(&group, context, NULL, 1) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_group_create_all(&group, context, none, 1) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_group_create_all(&group, context, some, 0) == LIERNE_ERR_INVALID);
    spec.ranks = NULL;
    NOTE(s, lierne_group_create(&group, context, &spec) == LIERNE_ERR_INVALID);
    spec = group_spec_of("ep", 1, 1, one);
    spec.size--;
    NOTE(s, lierne_group_create(&group, context, &spec) == LIERNE_ERR_INVALID);
    NOTE(s, lierne_group_get_size(NULL) == -1 && lierne_group_get_rank(NULL) == -1);
    NOTE(s, !lierne_group_get_ranks(NULL) && !lierne_group_get_purpose(NULL));
    NOTE(s, lierne_group_get_priority(NULL) == LIERNE_PRIORITY_NORMAL);
    NOTE(s, lierne_group_get_uid(NULL) == -1 && lierne_context_get_max_groups(NULL) == -1);
}

Test(group, missing_arguments_are_rejected) {
    group_state s = {0};
    group_run(1, NULL, missing_arguments, &s);
}

Test(group, a_context_outlives_its_groups) {
    const lierne_context_spec bad = {.size = sizeof bad, .max_groups = -1};
    const int one[1] = {0};
    const lierne_group_spec spec = group_spec_of("ep", 1, 1, one);
    lierne_context *context;
    lierne_group *group;
    lierne_sim *sim;
    assert_error(lierne_context_create_self(&context, &bad), LIERNE_ERR_INVALID,
                 "max_groups is -1");
    assert_ok(lierne_context_create_self(&context, NULL));
    cr_assert_eq(lierne_context_get_max_groups(context), 64);
    assert_ok(lierne_group_create(&group, context, &spec));
    assert_error(lierne_context_destroy(context), LIERNE_ERR_INVALID,
                 "1 groups of the context are alive");
    assert_ok(lierne_group_destroy(group));
    assert_ok(lierne_context_destroy(context));
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    assert_ok(lierne_group_create(&group, lierne_sim_get_context(sim, 0), &spec));
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_ERR_INVALID);
    assert_ok(lierne_group_destroy(group));
    assert_ok(lierne_sim_destroy(sim));
    cr_assert_eq(lierne_mem_live(), 0);
}
