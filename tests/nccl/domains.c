/* A communicator per group, over the NCCL that is played: splits that all ranks call, also those in
 * no group, or, from an NCCL that has none or that would share resources, communicators from an id;
 * plans in a group have the bits of the same plans without, and their messages are on its
 * communicator; it is destroyed with its group. A rank that cannot take part, a communicator that
 * never is complete, and an error of NCCL, after which the context's communicator and the group's
 * are aborted. Last line: N passed, N failed. */
#include "fake.h"
#include "node_ranks.h"
#include "runtime/context/context.h"
#include "runtime/execute/stream.h"
#include "tasks.h"

#include "lierne.h"
#include "lierne/nccl.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000 };

static bool joins; /* communicators are made from ids */
static char stream;
static fake_nccl_counts count_calls(void) {
    meet_ranks();
    fake_nccl_counts counts = fake_nccl_count();
    meet_ranks();
    return counts;
}

static const int three_ranks[3] = {3, 0, 2}, all_ranks[RANKS] = {2, 3, 0, 1};
static const lierne_group_spec three = {.size = sizeof three,
                                        .purpose = "ep",
                                        .priority = LIERNE_PRIORITY_HIGH,
                                        .ngroups = 1,
                                        .group_size = 3,
                                        .ranks = three_ranks};
static const lierne_group_spec pairs = {
    .size = sizeof pairs, .purpose = "pairs", .ngroups = 2, .group_size = 2, .ranks = all_ranks};
static const lierne_group_spec whole = {
    .size = sizeof whole, .purpose = "all", .ngroups = 1, .group_size = RANKS, .ranks = all_ranks};

/* Runs the plan with and without its group, and compares; messages: whether it has any. */
static void compare(lierne_plan *alone, lierne_plan *grouped, int rank, bool gathers) {
    static float in[RANKS][RANKS * COUNT], out[RANKS][2][RANKS * COUNT];
    for (int i = 0; i < RANKS * COUNT; i++) {
        in[rank][i] = (float)(rank * 1000003 + i);
    }
    memset(out[rank], 0, sizeof out[rank]);
    fake_nccl_counts before = count_calls();
    check(lierne_plan_forward(alone, out[rank][0], in[rank], &stream) == LIERNE_OK, "no group");
    fake_nccl_counts between = count_calls();
    check(lierne_plan_forward(grouped, out[rank][1], in[rank], &stream) == LIERNE_OK, "a group");
    fake_nccl_counts after = count_calls();
    check(memcmp(out[rank][0], out[rank][1], sizeof out[rank][0]) == 0, "the same bits");
    check(between.group_messages == before.group_messages && between.messages > before.messages,
          "without a group, messages are on the context's communicator");
    check(after.group_messages - between.group_messages == after.messages - between.messages &&
              after.messages > between.messages,
          "messages of a group are on its communicator");
    check((after.all_gathers > between.all_gathers) == gathers, "all-gathers of NCCL's");
}

static void run_all_to_all(lierne_context *context, lierne_group *group, const int *ranks, int n) {
    lierne_plan *plans[2];
    lierne_all_to_all_spec spec = {.size = sizeof spec,
                                   .ranks = ranks,
                                   .nranks = n,
                                   .count = COUNT,
                                   .dtype = LIERNE_DTYPE_F32};
    check(lierne_plan_create_all_to_all(&plans[0], context, &spec) == LIERNE_OK, "planning");
    spec.group = group;
    check(lierne_plan_create_all_to_all(&plans[1], context, &spec) == LIERNE_OK, "in a group");
    compare(plans[0], plans[1], lierne_context_get_rank(context), false);
    check(!group || lierne_group_destroy(group) == LIERNE_ERR_BUSY, "plans are in the group");
    check(lierne_plan_destroy(plans[0]) == LIERNE_OK, "destroy");
    check(lierne_plan_destroy(plans[1]) == LIERNE_OK, "destroy");
}

static void run_gather(lierne_context *context, lierne_group *group) {
    lierne_plan *plans[2];
    lierne_all_gather_spec spec = {.size = sizeof spec, .count = COUNT, .dtype = LIERNE_DTYPE_F32};
    check(lierne_plan_create_all_gather(&plans[0], context, &spec) == LIERNE_OK, "planning");
    spec.group = group;
    check(lierne_plan_create_all_gather(&plans[1], context, &spec) == LIERNE_OK, "in a group");
    compare(plans[0], plans[1], lierne_context_get_rank(context), true);
    check(lierne_plan_destroy(plans[0]) == LIERNE_OK, "destroy");
    check(lierne_plan_destroy(plans[1]) == LIERNE_OK, "destroy");
}

static void *works(void *argument) {
    int rank = (int)(intptr_t)argument;
    const lierne_group_spec *specs[3] = {&three, &pairs, &whole};
    lierne_group *groups[3], *late = NULL;
    lierne_context *context = open_nccl("works", rank, 30);
    meet_ranks();
    fake_nccl_join_groups(true);
    fake_nccl_counts before = count_calls();
    check(lierne_group_create_all(groups, context, specs, 3) == LIERNE_OK, "groups");
    check(!groups[0] == (rank == 1) && groups[1] && groups[2], "whose groups they are");
    fake_nccl_counts after = count_calls();
    check((joins ? after.joined - before.joined : after.split - before.split) ==
                  3 + 2 * 2 + RANKS &&
              after.split + after.joined - before.split - before.joined == 3 + 2 * 2 + RANKS,
          "a communicator per group");
    run_all_to_all(context, groups[0], three_ranks, 3);
    run_all_to_all(context, groups[2], NULL, 0);
    run_gather(context, groups[2]);
    check(lierne_group_create(&late, context, &three) == LIERNE_OK, "another one");
    before = count_calls();
    check(lierne_group_destroy(late) == LIERNE_OK, "destroy");
    check(count_calls().destroyed - before.destroyed == 3, "its communicator is destroyed");
    for (int i = 2; i >= 0; i--) {
        check(lierne_group_destroy(groups[i]) == LIERNE_OK, "destroy");
    }
    before = count_calls();
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    check(count_calls().destroyed - before.destroyed == RANKS, "only the context's is left");
    fake_nccl_join_groups(false);
    return NULL;
}

/* Any of the first allocations fails, on some rank: all ranks get one error, and none waits. */
static void fail_allocations(lierne_context *context, int rank) {
    static lierne_status got[RANKS];
    size_t failed = 0;
    for (size_t k = 1; k <= 40; k++) {
        lierne_group *group = NULL;
        meet_ranks();
        lierne_mem_fail_at(k);
        meet_ranks();
        got[rank] = lierne_group_create(&group, context, &three);
        meet_ranks();
        lierne_mem_fail_at(0);
        failed += got[rank] == LIERNE_ERR_NO_MEMORY;
        check((got[rank] == LIERNE_OK || got[rank] == LIERNE_ERR_NO_MEMORY) && got[rank] == got[0],
              "an allocation that fails");
        check(lierne_group_destroy(group) == LIERNE_OK, "destroy");
    }
    check(failed > 2, "allocations fail");
}

/* Resources that would be shared; a rank that cannot take part; a call that never ends. */
static void *fails(void *argument) {
    int rank = (int)(intptr_t)argument;
    const char *late = joins ? "ncclCommInitRankConfig: NCCL is not ready within"
                             : "ncclCommSplit: NCCL is not ready within";
    lierne_group *group = NULL;
    lierne_context *context = open_nccl("fails", rank, 2);
    fake_nccl_counts before = count_calls();
    setenv("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1", 1);
    meet_ranks();
    check(lierne_group_create(&group, context, &three) == LIERNE_OK, "one that would share");
    check(count_calls().split == before.split, "is not split");
    unsetenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    check(lierne_group_destroy(group) == LIERNE_OK, "destroy");
    fail_allocations(context, rank);
    meet_ranks();
    fake_nccl_stall(true);
    meet_ranks();
    check(lierne_group_create(&group, context, &three) != LIERNE_OK && !group &&
              (strstr(lierne_last_error(), late) || (joins && rank == 1 /* waits for them */)),
          "a call that does not end is late");
    meet_ranks();
    fake_nccl_stall(false);
    before = count_calls();
    lierne_context_destroy(context);
    fake_nccl_counts after = count_calls();
    check(after.destroyed + after.aborted - before.destroyed - before.aborted == RANKS + 3,
          "what the call has made until then is ended");
    return NULL;
}

/* An error of NCCL is that of all communicators. */
static void *aborts(void *argument) {
    int rank = (int)(intptr_t)argument;
    static float in[RANKS][RANKS], out[RANKS][RANKS];
    lierne_group *group = NULL;
    lierne_plan *plan = NULL;
    lierne_context *context = open_nccl("aborts", rank, 30);
    check(lierne_group_create(&group, context, &whole) == LIERNE_OK, "a group");
    const lierne_all_to_all_spec spec = {.size = sizeof spec,
                                         .count = 1,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .group = group};
    check(lierne_plan_create_all_to_all(&plan, context, &spec) == LIERNE_OK, "planning");
    fake_nccl_counts before = count_calls();
    fake_nccl_set_error(ncclRemoteError);
    meet_ranks();
    check(lierne_plan_forward(plan, out[rank], in[rank], &stream) == LIERNE_ERR_TRANSPORT, "error");
    const lierne_carrier *nccl = &context->carriers[0];
    nccl->transport->watched->abort(nccl->self); /* as the watchdog does */
    check(count_calls().aborted - before.aborted == 2 * RANKS, "both are aborted");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_group_destroy(group) == LIERNE_OK, "destroy");
    check(((const lierne_nccl *)nccl->self)->groups != NULL, "the call that failed outlives it");
    meet_ranks();
    lierne_context_destroy(context);
    fake_nccl_set_error(ncclSuccess);
    return NULL;
}

/* In a dead context no rank waits for the others: each communicator is aborted. */
static void *goes_alone(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_group *group = NULL;
    lierne_context *context = open_nccl("alone", rank, 30);
    check(lierne_group_create(&group, context, &whole) == LIERNE_OK, "a group");
    meet_ranks();
    check(lierne_context_abort(context, LIERNE_ERR_NO_MEMORY, "full") == LIERNE_OK, "abort");
    fake_nccl_counts before = count_calls();
    check(lierne_group_destroy(group) == LIERNE_OK, "destroy");
    fake_nccl_counts after = count_calls();
    check(after.destroyed == before.destroyed && after.aborted == before.aborted + RANKS,
          "it is aborted");
    lierne_context_destroy(context);
    return NULL;
}

int main(void) {
    for (int old = 0; old < 2; old++) {
        joins = old;
        fake_nccl_set_version(joins ? NCCL_VERSION(2, 17, 1) : NCCL_VERSION(2, 28, 9));
        run_ranks(works);
        run_ranks(fails);
        check(lierne_mem_live() == 0, "nothing leaks");
    }
    run_ranks(goes_alone);
    run_ranks(aborts);
    check(lierne_mem_live() == 0, "nothing leaks after an error");
    return print_checks();
}
