/* Contexts over some ranks of a larger world: lists of members, and what ranks are told where a
 * rank is no member or fails. Results are in test_members_plans.c. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "bridge_plan.h"
#include "layouts.h"
#include "rank_threads.h"
#include "runtime/context/context.h"
#include "unit/expect.h"

enum { WORLD = 16, N = 6 };
static const int members[N] = {2, 3, 4, 5, 9, 12};

static lierne_context_spec spec_of(void) {
    return (lierne_context_spec){.size = sizeof(lierne_context_spec),
                                 .members = members,
                                 .nmembers = N,
                                 .timeout = 20};
}

static lierne_sim *open_world(void) {
    const lierne_context_spec spec = spec_of();
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, WORLD, &spec));
    return sim;
}

static void close_world(lierne_sim *sim) {
    assert_ok(lierne_sim_destroy(sim));
    cr_assert_eq(lierne_mem_live(), 0);
}

/* --- lists --- */

Test(members, a_context_knows_its_members) {
    lierne_sim *sim = open_world();
    char dump[512];
    for (int r = -1, n = 0; r <= WORLD; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        bool member = n < N && r == members[n];
        cr_assert_eq(context != NULL, member, "rank %d", r);
        n += member;
    }
    lierne_context *context = lierne_sim_get_context(sim, 9);
    cr_assert_eq(context, lierne_sim_get_context(sim, 9));
    cr_assert_eq(lierne_context_get_rank(context), 9);
    cr_assert_eq(lierne_context_get_world_size(context), WORLD);
    cr_assert_eq(lierne_context_get_nmembers(context), N);
    for (int i = -1; i <= N; i++) {
        cr_assert_eq(lierne_context_get_member(context, i), i < 0 || i == N ? -1 : members[i]);
    }
    for (int r = -1, n = 0; r <= WORLD; r++) {
        bool member = n < N && r == members[n];
        cr_assert_eq(lierne_context_find_member(context, r), member ? n : -1, "rank %d", r);
        n += member;
    }
    assert_ok(lierne_context_dump(dump, sizeof dump, context));
    cr_assert(strstr(dump, "rank 9 of 16, one of 6 members, over sim: 0 calls\n"), "%s", dump);
    cr_assert_eq(lierne_context_get_nmembers(NULL), -1);
    cr_assert_eq(lierne_context_get_member(NULL, 0), -1);
    cr_assert_eq(lierne_context_find_member(NULL, 0), -1);
    close_world(sim);
}

Test(members, without_a_list_they_are_all_ranks) {
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 3, NULL));
    const lierne_context *context = lierne_sim_get_context(sim, 1);
    cr_assert_eq(lierne_context_get_nmembers(context), 3);
    cr_assert_eq(lierne_context_get_member(context, 2), 2);
    cr_assert_eq(lierne_context_get_member(context, 3), -1);
    cr_assert_eq(lierne_context_find_member(context, 2), 2);
    cr_assert_eq(lierne_context_find_member(context, 3), -1);
    close_world(sim);
}

Test(members, one_rank_of_a_larger_world_by_itself) {
    const int own = 5;
    lierne_context_spec spec = {.size = sizeof spec,
                                .members = &own,
                                .nmembers = 1,
                                .world_size = WORLD};
    lierne_context *context;
    lierne_plan *plan;
    const int32_t rank[2] = {5, 5};
    const int64_t row[2] = {1, 0};
    double in[2] = {3, 4}, out[2];
    lierne_references_spec references = {.size = sizeof references,
                                         .nowned = 2,
                                         .nghosts = 2,
                                         .rank = rank,
                                         .row = row,
                                         .dtype = LIERNE_DTYPE_F64,
                                         .width = 1};
    assert_ok(lierne_context_create_self(&context, &spec));
    cr_assert_eq(lierne_context_get_rank(context), 5);
    cr_assert_eq(lierne_context_get_world_size(context), WORLD);
    assert_ok(lierne_plan_create_references(&plan, context, &references));
    assert_ok(lierne_plan_forward(plan, out, in, NULL));
    cr_assert(out[0] == 4 && out[1] == 3);
    assert_ok(lierne_plan_check((const lierne_plan *const *)&plan, 1));
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
    spec.nmembers = 2;
    assert_error(lierne_context_create_self(&context, &spec), LIERNE_ERR_INVALID,
                 "spec->nmembers is 2, must be 1: a member for each rank");
    cr_assert_eq(lierne_mem_live(), 0);
}

static void rejected(lierne_context_spec spec, const char *words) {
    lierne_sim *sim;
    cr_assert_eq(lierne_sim_create(&sim, WORLD, &spec), LIERNE_ERR_INVALID, "%s", words);
    cr_assert_null(sim);
    assert_says(words);
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(members, lists_that_are_none) {
    static const int twice[3] = {1, 4, 4}, descends[3] = {1, 4, 3}, negative[2] = {-1, 4};
    static const int beyond[2] = {1, WORLD};
    lierne_context_spec s = spec_of();
    s.nmembers = 3;
    s.members = twice;
    rejected(s, "spec->members[2] is 4, must be in 5 to 15: members ascend and are ranks of a "
                "world of 16");
    s.members = descends;
    rejected(s, "spec->members[2] is 3, must be in 5 to 15");
    s.nmembers = 2;
    s.members = negative;
    rejected(s, "spec->members[0] is -1, must be in 0 to 15");
    s.members = beyond;
    rejected(s, "spec->members[1] is 16, must be in 2 to 15");
    s.members = members;
    s.nmembers = 0;
    rejected(s, "spec->nmembers is 0, must be 1 to the world's 16 ranks");
    s.nmembers = WORLD + 1;
    rejected(s, "spec->nmembers is 17, must be 1 to the world's 16 ranks");
    s.nmembers = N;
    s.world_size = WORLD + 1;
    rejected(s, "spec->world_size is 17, must be 0 or nranks, 16");
    s.members = NULL;
    s.nmembers = 0;
    rejected(s, "spec->world_size is 17, must be 0 or 16");
    s.nmembers = 1;
    rejected(s, "spec->nmembers is 1, but spec->members NULL");
    lierne_context *context;
    s = spec_of();
    s.nmembers = 1;
    for (int world = 0; world <= LIERNE_MAX_RANKS + 1; world += LIERNE_MAX_RANKS + 1) {
        s.world_size = world;
        assert_error(lierne_context_create_self(&context, &s), LIERNE_ERR_INVALID,
                     "must be 1 to 16777216 where spec->members is set");
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(members, every_allocation_may_fail) {
    const lierne_context_spec spec = spec_of();
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    size_t k = 0;
    while (status != LIERNE_OK) {
        lierne_sim *sim;
        lierne_mem_fail_at(++k);
        status = lierne_sim_create(&sim, WORLD, &spec);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || (status == LIERNE_ERR_NO_MEMORY && !sim));
        assert_ok(lierne_sim_destroy(sim));
        cr_assert_eq(lierne_mem_live(), 0);
    }
    cr_assert_gt(k, 3);
}

/* --- grids with a rank that is no member --- */

static lierne_grid *grid_at(int offset, int tp, int dp, int world) {
    const mesh m = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {tp, dp}, .offset = offset};
    return mesh_grid(&m, world);
}

static lierne_status plan_bridge(lierne_plan **plan, lierne_context *context, int src, int dst,
                                 int world, bool megatron) {
    static const int64_t shape[3] = {4, 2, 2};
    lierne_grid *grids[2] = {grid_at(src, 2, 2, world), grid_at(dst, 1, 2, world)};
    lierne_bridge_spec spec = bridge_spec_of(grids[0], grids[1], shape);
    spec.sequence_axis = -1;
    const lierne_megatron_spec reference = {.size = sizeof reference,
                                            .algorithm = LIERNE_MEGATRON_ALGORITHM_LEADER,
                                            .bridge = &spec};
    lierne_status status = megatron ? lierne_plan_create_megatron(plan, context, &reference)
                                    : lierne_plan_create_bridge(plan, context, &spec);
    lierne_grid_destroy(grids[0]);
    lierne_grid_destroy(grids[1]);
    return status;
}

static void bridge_rejected(int src, int dst, int world, bool megatron, const char *words) {
    lierne_sim *sim = open_world();
    lierne_plan *plan;
    cr_assert_eq(plan_bridge(&plan, lierne_sim_get_context(sim, 4), src, dst, world, megatron),
                 LIERNE_ERR_INVALID, "%s: %s", words, lierne_last_error());
    cr_assert_null(plan);
    assert_says(words);
    close_world(sim);
}

Test(members, a_grid_with_a_rank_that_is_no_member) {
    for (int megatron = 0; megatron < 2; megatron++) {
        bridge_rejected(3, 9, WORLD, megatron,
                        "rank 6 of the source grid (ranks 3 to 6) must be a member of the context "
                        "(2 to 5, 9, 12)");
        bridge_rejected(0, 4, WORLD, megatron, "rank 0 of the source grid (ranks 0 to 3)");
        bridge_rejected(2, 8, WORLD, megatron, "rank 8 of the destination grid (ranks 8 to 9)");
        bridge_rejected(2, 9, WORLD, megatron, "rank 10 of the destination grid (ranks 9 to 10)");
        bridge_rejected(9, 2, WORLD, megatron, "rank 10 of the source grid (ranks 9 to 12)");
        bridge_rejected(0, 4, N, megatron,
                        "the grids have a world of 6 ranks, the context one of 16");
    }
}

static lierne_layout *layout_at(int offset, int n) {
    static const lierne_placement shard = {.kind = LIERNE_PLACEMENT_SHARD};
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {n}, .offset = offset};
    const int64_t shape[1] = {12};
    return layout_over(&dp, WORLD, LIERNE_DTYPE_F32, 1, shape, &shard);
}

Test(members, a_layout_with_a_rank_that_is_no_member) {
    static const char *const words[4] = {
        "rank 6 of the grid of src (ranks 5 to 6) must be a member of the context",
        "rank 6 of the grid of dst (ranks 5 to 6)", "rank 6 of the grid of adjoint_src",
        "rank 6 of the grid of adjoint_dst"};
    lierne_layout *good = layout_at(2, 4), *bad = layout_at(5, 2);
    for (int which = 0; which < 4; which++) {
        lierne_sim *sim = open_world();
        lierne_plan *plan;
        const lierne_redistribute_spec spec = {.size = sizeof spec,
                                               .src = which == 0 ? bad : good,
                                               .dst = which == 1 ? bad : good,
                                               .adjoint_src = which == 2 ? bad : good,
                                               .adjoint_dst = which == 3 ? bad : good};
        assert_error(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 2), &spec),
                     LIERNE_ERR_INVALID, words[which]);
        assert_ok(lierne_sim_destroy(sim));
    }
    lierne_layout_destroy(good);
    lierne_layout_destroy(bad);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* After deaths: what the first member had is now of rank 0, which is none. */
Test(members, a_layout_of_survivors_with_a_rank_that_is_no_member) {
    int former[WORLD];
    lierne_layout *before = layout_at(2, 4), *left;
    lierne_sim *sim = open_world();
    lierne_plan *plan;
    for (int r = 0; r < WORLD; r++) {
        former[r] = r == 0 ? 2 : r >= 3 && r < 6 ? r : -1;
    }
    assert_ok(lierne_layout_create_surviving(&left, before, former, WORLD));
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = left, .dst = before};
    assert_error(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 2), &spec),
                 LIERNE_ERR_INVALID, "rank 0 of the grid of src (ranks 0 to 0) must be a member");
    assert_ok(lierne_sim_destroy(sim));
    lierne_layout_destroy(before);
    lierne_layout_destroy(left);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* --- rows of a rank that is no member, on one rank; the error is every rank's --- */

typedef enum mistake { REFERENCE, OWNER, SEND, RECEIVE, BRICK, DIFFERS } mistake;
typedef struct mistakes {
    mistake which;
    lierne_status status[N];
    char message[N][256];
} mistakes;

static lierne_status plan_references(lierne_plan **plan, lierne_context *context, int32_t owner,
                                     int64_t width) {
    const int64_t row = 0;
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = 1,
                                         .nghosts = 1,
                                         .rank = &owner,
                                         .row = &row,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .width = width};
    return lierne_plan_create_references(plan, context, &spec);
}

static lierne_status plan_graph(lierne_plan **plan, lierne_context *context, int32_t owner) {
    const int32_t owners[3] = {2, 12, owner};
    const lierne_graph_spec spec = {
        .size = sizeof spec, .nrows = 3, .owner = owners, .dtype = LIERNE_DTYPE_F32, .width = 1};
    return lierne_plan_create_graph(plan, context, &spec);
}

static lierne_status plan_swap(lierne_plan **plan, lierne_context *context, int to, int from) {
    const int64_t one = 1, row = 0, *list = &row;
    const lierne_halo_spec spec = {.size = sizeof spec,
                                   .nlocal = 1,
                                   .nghost = 1,
                                   .nswap = 1,
                                   .sendproc = &to,
                                   .recvproc = &from,
                                   .sendnum = &one,
                                   .recvnum = &one,
                                   .sendlist = &list,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .width = 1};
    return lierne_plan_create_halo(plan, context, &spec);
}

static lierne_status plan_brick(lierne_context *context) {
    lierne_brick *brick;
    const lierne_brick_spec spec = {.size = sizeof spec,
                                    .grid = {WORLD, 1, 1},
                                    .box = {1, 1, 1},
                                    .cutoff = 0.01};
    return lierne_brick_create(&brick, context, &spec);
}

static void make_mistake(lierne_context *context, void *shared) {
    mistakes *m = shared;
    int rank = lierne_context_get_rank(context), i = lierne_context_find_member(context, rank);
    lierne_plan *plan = NULL;
    int wrong = rank == 9 ? 7 : rank;
    switch (m->which) {
    case REFERENCE:
        m->status[i] = plan_references(&plan, context, wrong, 1);
        break;
    case OWNER:
        m->status[i] = plan_graph(&plan, context, wrong == 7 ? 7 : 2);
        break;
    case SEND:
        m->status[i] = plan_swap(&plan, context, wrong, rank);
        break;
    case RECEIVE:
        m->status[i] = plan_swap(&plan, context, rank, wrong);
        break;
    case BRICK:
        m->status[i] = plan_brick(context);
        break;
    case DIFFERS:
        m->status[i] = plan_references(&plan, context, 2, rank == 9 ? 2 : 1);
        break;
    }
    snprintf(m->message[i], sizeof m->message[i], "%s", lierne_last_error());
    lierne_plan_destroy(plan);
}

static void everybody_gets(mistake which, lierne_status wanted, const char *words) {
    mistakes m = {.which = which};
    lierne_sim *sim = open_world();
    rank_threads(sim, WORLD, make_mistake, &m);
    for (int i = 0; i < N; i++) {
        cr_assert_eq(m.status[i], wanted, "%s: %s", words, m.message[i]);
        cr_assert(strstr(m.message[i], words), "'%s' has no '%s'", m.message[i], words);
        cr_assert_str_eq(m.message[i], m.message[which == DIFFERS ? i : 0]);
    }
    close_world(sim);
}

Test(members, rows_of_a_rank_that_is_no_member) {
    everybody_gets(REFERENCE, LIERNE_ERR_PEER_RANGE,
                   "rank 9: ghost 0 is of rank 7, which must be a member of the context (2 to 5, "
                   "9, 12)");
    everybody_gets(OWNER, LIERNE_ERR_OWNER_RANGE,
                   "rank 9: row 2 has owner 7, must be a member of the context (2 to 5, 9, 12)");
    everybody_gets(SEND, LIERNE_ERR_PEER_RANGE,
                   "rank 9 swap 0: sendproc is 7 and recvproc 9, must be a member of the context");
    everybody_gets(RECEIVE, LIERNE_ERR_PEER_RANGE,
                   "sendproc is 9 and recvproc 7, must be a member");
    everybody_gets(BRICK, LIERNE_ERR_INVALID,
                   "has 16 bricks, the context 6 ranks: there must be a brick for each");
    everybody_gets(DIFFERS, LIERNE_ERR_MISMATCH, "on rank 9");
}

/* A list of members that does not fit into the message is cut off. */
Test(members, a_long_list_in_a_message) {
    int odd[200];
    char text[LIERNE_MEMBERS_TEXT];
    for (int i = 0; i < 200; i++) {
        odd[i] = 2 * i + 1;
    }
    lierne_members_print(text, sizeof text, &(lierne_members){400, 200, odd});
    cr_assert(strstr(text, "(1, 3, 5, 7, 9, ") && strstr(text, ", ...)"), "%s", text);
    cr_assert_lt(strlen(text), sizeof text);
}

/* --- ranks that give up, and plans that are checked --- */

Test(members, a_rank_that_never_calls_is_named_as_in_the_world) {
    lierne_context_spec spec = spec_of();
    lierne_sim *sim;
    lierne_plan *plans[N];
    lierne_request *requests[2];
    float in[16] = {0}, out[2][16];
    char dump[1024];
    spec.timeout = 0.2;
    assert_ok(lierne_sim_create(&sim, WORLD, &spec));
    for (int i = 0; i < N; i++) {
        lierne_context *context = lierne_sim_get_context(sim, members[i]);
        cr_assert_eq(plan_bridge(&plans[i], context, 2, 4, WORLD, false), LIERNE_OK, "%s",
                     lierne_last_error());
    }
    /* 4 receives from 2 or 3, which do not begin; 5 has what it needs. */
    for (int i = 0; i < 2; i++) {
        assert_ok(lierne_plan_forward_begin(&requests[i], plans[2 + i], out[i], in, NULL));
    }
    assert_ok(lierne_context_dump(dump, sizeof dump, lierne_sim_get_context(sim, 4)));
    cr_assert(strstr(dump, "waits for rank 2 (sim)") || strstr(dump, "waits for rank 3 (sim)"),
              "%s", dump);
    assert_error(lierne_request_end(requests[0]), LIERNE_ERR_TIMEOUT, "rank 4: forward");
    cr_assert(strstr(lierne_last_error(), "with rank 2 (sim)") ||
                  strstr(lierne_last_error(), "with rank 3 (sim)"),
              "%s", lierne_last_error());
    assert_ok(lierne_request_end(requests[1]));
    lierne_status status = lierne_plan_check((const lierne_plan *const *)plans, N);
    cr_assert_eq(status, LIERNE_OK, "%s", lierne_last_error());
    const lierne_plan *swapped[N] = {plans[1], plans[0], plans[2], plans[3], plans[4], plans[5]};
    cr_assert_eq(lierne_plan_check(swapped, N), LIERNE_ERR_INVALID);
    assert_error(lierne_plan_check((const lierne_plan *const *)plans, N - 1), LIERNE_ERR_INVALID,
                 "5 plans of a world of 6 ranks");
    assert_ok(lierne_plan_check((const lierne_plan *const *)&plans[3], 1));
    for (int i = 0; i < N; i++) {
        lierne_plan_destroy(plans[i]);
    }
    close_world(sim);
}

static void wait_in_vain(lierne_context *context, void *shared) {
    mistakes *m = shared;
    int rank = lierne_context_get_rank(context), i = lierne_context_find_member(context, rank);
    lierne_plan *plan = NULL;
    if (rank != 12) {
        m->status[i] = plan_references(&plan, context, rank, 1);
    }
    snprintf(m->message[i], sizeof m->message[i], "%s", lierne_last_error());
}

Test(members, a_wait_in_planning_names_ranks_of_the_world) {
    lierne_context_spec spec = spec_of();
    mistakes m = {0};
    lierne_sim *sim;
    spec.timeout = 0.2;
    assert_ok(lierne_sim_create(&sim, WORLD, &spec));
    rank_threads(sim, WORLD, wait_in_vain, &m);
    for (int i = 0; i < N - 1; i++) {
        char own[32];
        snprintf(own, sizeof own, "rank %d of 16: planning", members[i]);
        cr_assert_eq(m.status[i], LIERNE_ERR_TIMEOUT);
        cr_assert(strstr(m.message[i], own) || strstr(m.message[i], " gave up: "), "%s",
                  m.message[i]);
        for (int other = 0; other < WORLD; other++) {
            char name[32];
            snprintf(name, sizeof name, "rank %d ", other);
            bool member = other == 2 || other == 3 || other == 4 || other == 5 || other == 9;
            cr_assert(member || !strstr(m.message[i], name), "%s", m.message[i]);
        }
    }
    close_world(sim);
}

/* --- memory --- */

/* A few ranks of the largest world: nothing is as long as the world. */
Test(members, a_small_part_of_a_large_world_takes_little_memory) {
    static const int few[3] = {7, 131071, LIERNE_MAX_RANKS - 1};
    const lierne_context_spec spec = {.size = sizeof spec, .members = few, .nmembers = 3};
    lierne_sim *sim;
    struct mallinfo2 before = mallinfo2();
    assert_ok(lierne_sim_create(&sim, LIERNE_MAX_RANKS, &spec));
    for (int i = 0; i < 3; i++) {
        cr_assert_not_null(lierne_sim_get_context(sim, few[i]));
    }
    struct mallinfo2 after = mallinfo2();
    cr_assert_lt(after.uordblks + after.hblkhd, before.uordblks + before.hblkhd + 65536);
    close_world(sim);
}
