/* Groups over MPI, with a transport that makes an MPI communicator of each: ten thousand rounds
 * leave nothing, errors are the same on all ranks, a rank that does not call is a TIMEOUT. */
#include "lierne/group.h"
#include "mpi/common.h"
#include "mpi/state.h"
#include "runtime/context/context.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS  10000
#define WARM_UP 500 /* rounds: MPI and malloc grow to their size first */
#define TIMEOUT 0.5 /* seconds, of the ranks that wait in vain */

static MPI_Group world_group;

/* The agreement before has brought all members here, so that a call without a deadline will do. */
static lierne_status group_create(void *self, const lierne_transport_group *group, double timeout,
                                  void **out) {
    MPI_Group members;
    MPI_Comm *comm = malloc(sizeof *comm);
    int place;
    (void)self, (void)timeout;
    MPI_Group_incl(world_group, group->n, group->ranks, &members);
    MPI_Comm_create_group(MPI_COMM_WORLD, members, (int)(group->uid % 1000), comm);
    MPI_Group_free(&members);
    MPI_Comm_rank(*comm, &place);
    CHECK(place == group->rank, "rank %d in the communicator, %d in the group", place, group->rank);
    *out = comm;
    return LIERNE_OK;
}

static lierne_status group_destroy(void *communicator, double timeout, bool alone) {
    (void)timeout;
    CHECK(!alone, "no context died while a communicator was alive");
    MPI_Comm_free(communicator);
    free(communicator);
    return LIERNE_OK;
}

static bool reaches_none(void *self, int peer) {
    (void)self, (void)peer;
    return false;
}

static const lierne_transport_groups with_groups = {.create = group_create,
                                                    .destroy = group_destroy};
static const lierne_transport communicators = {.name = "communicators",
                                               .close = lierne_transport_close_nothing,
                                               .print = lierne_transport_print_nothing,
                                               .reaches = reaches_none,
                                               .groups = &with_groups};

static lierne_context *context_new(int max_groups) {
    lierne_context *context;
    lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT, .max_groups = max_groups};
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, &spec));
    return context;
}

/* All ranks, descending; the pairs (0, 1), (2, 3) ...; all but the last in one group, if any. */
#define SPECS 3
typedef struct specs {
    int descending[64], ascending[64];
    lierne_group_spec at[SPECS];
    const lierne_group_spec *list[SPECS];
    int n;
} specs;

static void fill(specs *s) {
    for (int i = 0; i < test_world; i++) {
        s->ascending[i] = i;
        s->descending[i] = test_world - 1 - i;
    }
    const int n[SPECS] = {1, test_world / 2, 1}, size[SPECS] = {test_world, 2, test_world - 1};
    const char *const purpose[SPECS] = {"fsdp", "ep", "pp"};
    s->n = test_world > 1 ? SPECS : 1;
    for (int i = 0; i < s->n; i++) {
        s->at[i] = (lierne_group_spec){.size = sizeof s->at[i],
                                       .purpose = purpose[i],
                                       .ngroups = n[i],
                                       .group_size = size[i],
                                       .ranks = i == 0 ? s->descending : s->ascending};
        s->list[i] = &s->at[i];
    }
}

static void round_trip(lierne_context *context, const specs *s, int64_t *uid) {
    lierne_group *groups[SPECS] = {NULL};
    CHECK_OK(lierne_group_create_all(groups, context, s->list, s->n));
    CHECK(lierne_group_get_rank(groups[0]) == test_world - 1 - test_rank, "place %d",
          lierne_group_get_rank(groups[0]));
    CHECK(lierne_group_get_uid(groups[0]) > *uid, "uid %lld after %lld",
          (long long)lierne_group_get_uid(groups[0]), (long long)*uid);
    *uid = lierne_group_get_uid(groups[0]);
    for (int i = s->n - 1; i >= 0; i--) {
        CHECK_OK(lierne_group_destroy(groups[i]));
    }
}

static void many_rounds(const specs *s) {
    lierne_context *context = context_new(0);
    int64_t uid = 0, least, most;
    state before = {0};
    const int rounds =
        test_world < 4 ? ROUNDS : ROUNDS / 10; /* MPI spins: half a minute on 2 cores */
    lierne_context_add_transport(context, &communicators, NULL, NULL);
    for (int i = 0; i < WARM_UP + rounds; i++) {
        if (i == WARM_UP) {
            before = state_now();
        }
        round_trip(context, s, &uid);
    }
    state_check(&before, "groups");
    CHECK(lierne_context_get_ngroups(context) == 0, "%d groups",
          lierne_context_get_ngroups(context));
    MPI_Allreduce(&uid, &least, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&uid, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    CHECK(least == most, "uids %lld and %lld", (long long)least, (long long)most);
    CHECK_OK(lierne_context_destroy(context));
}

/* The last rank gives something else; nothing is created then, and the context goes on. */
static void fails_alike(lierne_context *context, const lierne_group_spec *spec,
                        lierne_status wanted, const char *text) {
    lierne_group *group = NULL;
    int communicators_before = state_now().communicators;
    int before = lierne_context_get_ngroups(context);
    lierne_status status = lierne_group_create(&group, context, spec);
    test_same_error(status, wanted, text);
    CHECK(strstr(lierne_last_error(), text), "'%s' has no '%s'", lierne_last_error(), text);
    CHECK(!group && lierne_context_get_ngroups(context) == before, "%d groups",
          lierne_context_get_ngroups(context));
    CHECK(state_now().communicators == communicators_before, "%d communicators, before %d",
          state_now().communicators, communicators_before);
}

static void errors(const specs *s) {
    lierne_context *context = context_new(1);
    lierne_group *group = NULL;
    lierne_group_spec spec;
    bool last = test_rank == test_world - 1;
    int64_t uid = 0;
    lierne_context_add_transport(context, &communicators, NULL, NULL);
    spec = s->at[0];
    spec.purpose = last ? "e p" : "ep";
    fails_alike(context, &spec, LIERNE_ERR_INVALID, "is 'e p', must be");
    if (test_world > 1) {
        spec = s->at[0];
        spec.purpose = last ? "ep" : "fsdp";
        fails_alike(context, &spec, LIERNE_ERR_MISMATCH, "purpose differs between ranks");
        spec = s->at[0];
        spec.priority = last ? LIERNE_PRIORITY_HIGH : LIERNE_PRIORITY_NORMAL;
        fails_alike(context, &spec, LIERNE_ERR_MISMATCH,
                    "priority differs between ranks: 0 on rank 0");
        spec = s->at[0];
        spec.ranks = last ? s->ascending : s->descending;
        fails_alike(context, &spec, LIERNE_ERR_MISMATCH, "ranks[0] differs between ranks");
    }
    CHECK_OK(lierne_group_create(&group, context, &s->at[0]));
    fails_alike(context, &s->at[0], LIERNE_ERR_NO_RESOURCE, "max_groups is 1 (1 of 'fsdp' with");
    uid = lierne_group_get_uid(group);
    CHECK(uid == 1, "uid %lld", (long long)uid);
    CHECK_OK(lierne_group_destroy(group));
    CHECK_OK(lierne_context_destroy(context));
}

/* Rank 0 calls when the others have given up. */
static void a_late_rank(const specs *s) {
    lierne_context *context = context_new(0);
    lierne_group *before, *group = NULL;
    CHECK_OK(lierne_group_create(&before, context, &s->at[0]));
    test_hurry(context, TIMEOUT);
    if (test_rank == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    lierne_status status = lierne_group_create(&group, context, &s->at[1]);
    CHECK(status == LIERNE_ERR_TIMEOUT && !group, "%s (%s)", lierne_status_name(status),
          lierne_last_error());
    if (test_rank != 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    status = lierne_group_create(&group, context, &s->at[1]);
    CHECK(status == LIERNE_ERR_TIMEOUT, "%s", lierne_status_name(status));
    CHECK_OK(lierne_group_destroy(before));
    CHECK(lierne_context_get_ngroups(context) == 0, "%d groups",
          lierne_context_get_ngroups(context));
    CHECK_OK(lierne_context_destroy(context));
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    specs s = {.n = 0};
    test_start(&argc, &argv);
    MPI_Comm_group(MPI_COMM_WORLD, &world_group);
    fill(&s);
    many_rounds(&s);
    errors(&s);
    if (test_world > 1) {
        a_late_rank(&s);
    }
    MPI_Group_free(&world_group);
    return test_finish();
}
