/* Windows of NCCL, without NCCL and without a GPU: 4 threads are the ranks of a node, on a device
 * and over a NCCL that are played (tasks.h, fake.h). Sums, rows and a plan that gathers into
 * scratch, bit by bit against sockets, with a NCCL that has no windows, one that has, and a newer
 * one; with windows that fail on one rank, at once and when a plan needs more; where ranks have
 * other places; a communicator that is aborted. Nothing is registered in a call, and nothing is
 * left. Last line: N passed, N failed. */
#include "capture.h"
#include "collectives.h"
#include "fake.h"
#include "layouts.h"
#include "node_ranks.h"
#include "runtime/context/context.h"
#include "tasks.h"

#include "lierne.h"
#include "lierne/nccl.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 1001, LARGE = 1000000, KINDS = 3 };

static char stream;

static lierne_status make_sum(lierne_plan **plan, lierne_context *context, int64_t count) {
    const lierne_all_reduce_spec sum =
        all_reduce_of(count, LIERNE_DTYPE_I32, LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
    return lierne_plan_create_all_reduce(plan, context, &sum);
}

/* An all-gather into scratch, and an all-to-all from there. */
static lierne_status make_composed(lierne_plan **plan, lierne_context *context) {
    const lierne_all_gather_spec first = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    const lierne_all_to_all_spec second = all_to_all_of(COUNT, LIERNE_DTYPE_I32);
    lierne_plan *a = NULL, *b = NULL;
    lierne_status status = lierne_plan_create_all_gather(&a, context, &first);
    status = status == LIERNE_OK ? lierne_plan_create_all_to_all(&b, context, &second) : status;
    status = status == LIERNE_OK ? lierne_plan_create_composed(plan, a, b) : status;
    lierne_plan_destroy(a);
    lierne_plan_destroy(b);
    return status;
}

static lierne_status make_plan(lierne_plan **plan, lierne_context *context, int kind) {
    return kind == 0   ? make_sum(plan, context, COUNT)
           : kind == 1 ? plan_rows(plan, context, 50, COUNT)
           : kind == 2 ? make_composed(plan, context)
                       : plan_rows(plan, context, LARGE / 6, LARGE / 6);
}

/* Both directions of a plan twice, against the same one over sockets. Nothing is registered. */
static void compare(lierne_plan *device, lierne_plan *host, int rank) {
    int64_t elements[2];
    lierne_plan_get_elements(&elements[0], &elements[1], host, LIERNE_DIRECTION_FORWARD);
    size_t bytes = (size_t)(elements[0] > elements[1] ? elements[0] : elements[1]) * 4;
    unsigned char *in = malloc(bytes), *expected = malloc(bytes), *got = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        in[i] = (unsigned char)((i * 31 + (size_t)rank * 17) % 59);
    }
    meet_ranks();
    int before = fake_nccl_count_windows().registered;
    meet_ranks();
    for (int d = 0; d < 2; d++) {
        lierne_status (*run)(lierne_plan *, void *, const void *, void *) =
            d ? lierne_plan_adjoint : lierne_plan_forward;
        memset(expected, 0x5a, bytes);
        check(run(host, expected, in, NULL) == LIERNE_OK, "sockets");
        for (int again = 0; again < 2; again++) {
            memset(got, 0x5a, bytes);
            check(run(device, got, in, &stream) == LIERNE_OK, "nccl");
            check(memcmp(got, expected, bytes) == 0, "the bits of sockets");
        }
    }
    meet_ranks();
    check(fake_nccl_count_windows().registered == before, "no call registers");
    meet_ranks();
    free(in);
    free(expected);
    free(got);
}

/* Plans of all kinds; the last one needs a further chunk, for rows that are packed. */
static void run_plans(lierne_context *host, lierne_context *device, int rank) {
    for (int kind = 0; kind <= KINDS; kind++) {
        lierne_plan *a = NULL, *b = NULL;
        check(make_plan(&a, host, kind) == LIERNE_OK, "planning over sockets");
        check(make_plan(&b, device, kind) == LIERNE_OK, "planning over nccl");
        if (a && b) {
            compare(b, a, rank);
        }
        check(lierne_plan_destroy(a) == LIERNE_OK, "destroy");
        check(lierne_plan_destroy(b) == LIERNE_OK, "destroy");
    }
}

static fake_window_counts begin_count(void) {
    meet_ranks();
    fake_window_counts now = fake_nccl_count_windows();
    meet_ranks();
    return now;
}

/* With a NCCL of some version; comm: of the caller. */
static void run_version(lierne_context *host, int rank, int version, bool given) {
    ncclComm_t comm = given ? fake_nccl_comm(version, rank, RANKS) : NULL;
    fake_nccl_set_version(version);
    fake_window_counts before = begin_count();
    lierne_context *device = open_device("version", rank, 30);
    check(lierne_context_use_nccl(device, comm) == LIERNE_OK, "lierne_context_use_nccl");
    run_plans(host, device, rank);
    fake_window_counts now = begin_count();
    bool has = version >= NCCL_VERSION(2, 28, 0) && !given;
    check(now.registered - before.registered == (has ? 2 * RANKS : 0), "two windows, or none");
    check((now.messages > before.messages) == has, "messages are in windows");
    check((now.gathers > before.gathers) == has, "all-gathers are in windows");
    char dump[4096];
    check(lierne_context_dump(dump, sizeof dump, device) == LIERNE_OK &&
              !strstr(dump, "nccl: 0 bytes of windows") == has,
          "the dump says how large they are");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    now = begin_count();
    check(now.deregistered - before.deregistered == (has ? 2 * RANKS : 0), "all deregistered");
    free(comm);
}

/* Plans that come and go find space in the windows that are there. */
static void run_many(lierne_context *device) {
    lierne_plan *kept = NULL;
    check(make_plan(&kept, device, 0) == LIERNE_OK, "planning");
    int before = begin_count().registered;
    for (int i = 0; i < 300; i++) {
        lierne_plan *plan = NULL;
        check(make_sum(&plan, device, 40000 + 500 * (i % 7)) == LIERNE_OK, "planning");
        lierne_plan_destroy(i % 2 ? plan : kept);
        kept = i % 2 ? kept : plan;
    }
    check(begin_count().registered == before, "a plan's space is used again");
    lierne_plan_destroy(kept);
}

static lierne_plan *make_shards(lierne_context *context) {
    const mesh tp = {.ndims = 1, .names = {"tp"}, .sizes = {RANKS}};
    const int64_t shape[2] = {8, 64};
    const lierne_placement from = {.kind = LIERNE_PLACEMENT_SHARD, .axis = 0},
                           to = {.kind = LIERNE_PLACEMENT_SHARD, .axis = 1};
    lierne_plan *plan = NULL;
    check(plan_between(&plan, context, &tp, LIERNE_DTYPE_I32, 2, shape, &from, &to, 0) == LIERNE_OK,
          "planning");
    return plan;
}

/* A plan whose shape changes: memory in windows goes from one shape to the next. */
static void run_updates(lierne_context *host, lierne_context *device, int rank) {
    lierne_plan *a = make_shards(host), *b = make_shards(device);
    fake_window_counts before = begin_count();
    for (int i = 0; i < 40; i++) {
        const int64_t shape[2] = {4 * (1 + i * 5 % 17), 64};
        check(lierne_plan_update_shape(a, shape) == LIERNE_OK, "another shape over sockets");
        check(lierne_plan_update_shape(b, shape) == LIERNE_OK, "another shape over nccl");
        compare(b, a, rank);
    }
    fake_window_counts now = begin_count();
    check(now.registered == before.registered, "updates find space in the windows");
    check(now.messages > before.messages, "messages are in windows");
    lierne_plan_destroy(a);
    lierne_plan_destroy(b);
}

/* The heap has other places on rank 1: no all-gather of NCCL's reads or writes there. */
static void run_places(lierne_context *host, lierne_context *device, int rank) {
    lierne_plan *first = NULL, *a = NULL, *b = NULL;
    check(make_sum(&first, device, COUNT) == LIERNE_OK, "planning");
    if (rank == 1) {
        lierne_plan_destroy(first);
    }
    check(make_plan(&a, host, 2) == LIERNE_OK, "planning over sockets");
    check(make_plan(&b, device, 2) == LIERNE_OK, "planning over nccl");
    fake_window_counts before = begin_count();
    compare(b, a, rank);
    fake_window_counts now = begin_count();
    check(now.gathers == before.gathers, "other places: no all-gather");
    check(now.messages > before.messages, "but messages");
    lierne_plan_destroy(a);
    lierne_plan_destroy(b);
    if (rank != 1) {
        lierne_plan_destroy(first);
    }
}

/* Only rank 0 needs memory for contributions, and all ranks register as much. */
static void run_uneven(int rank) {
    static const int32_t first[1] = {0};
    static const int64_t row[1] = {0};
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = rank == 0,
                                         .nghosts = rank > 0,
                                         .rank = first,
                                         .row = row,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .width = LARGE,
                                         .algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT};
    lierne_plan *plan = NULL;
    lierne_context *device = open_nccl("uneven", rank, 10);
    fake_window_counts before = begin_count();
    check(lierne_plan_create_references(&plan, device, &spec) == LIERNE_OK, "planning");
    check(begin_count().registered - before.registered == RANKS, "all ranks register");
    check(lierne_context_destroy_all(device) == LIERNE_OK, "destroy");
}

static void *works(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *host = open_timed("host", rank, RANKS, 30);
    run_version(host, rank, NCCL_VERSION(2, 27, 5), false);
    run_version(host, rank, NCCL_VERSION(2, 29, 2), false);
    run_version(host, rank, NCCL_VERSION(2, 28, 9), true);
    run_version(host, rank, NCCL_VERSION(2, 28, 9), false);
    lierne_context *device = open_nccl("device", rank, 30);
    run_many(device);
    run_updates(host, device, rank);
    run_places(host, device, rank);
    run_uneven(rank);
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

/* What fails on rank 2, in its first window or the next one, leaves all ranks without: the plans
 * work as before. A registration that the other ranks wait for in vain costs the communicator. */
static void run_fault(lierne_context *host, int rank, fake_window_fault fault, int after) {
    int created = fake_nccl_count().created;
    fake_window_counts before = begin_count();
    fake_nccl_fail_window(rank == 2 ? fault : FAKE_NO_FAULT, after);
    lierne_context *device = open_nccl("fault", rank, fault == FAKE_NO_WINDOW ? 2 : 30);
    run_plans(host, device, rank);
    fake_window_counts now = begin_count();
    check((now.messages > before.messages) == (after > 0), "the first window is used, if any");
    check(fake_nccl_count().created - created == (fault == FAKE_NO_WINDOW ? 2 : 1) * RANKS,
          "another communicator");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    fake_nccl_fail_window(FAKE_NO_FAULT, 0);
    meet_ranks();
}

/* The same for a plan that needs another window: nobody can tell what became of the communicator.
 */
static void run_lost(int rank) {
    lierne_plan *small = NULL, *plan = NULL;
    fake_nccl_fail_window(rank == 2 ? FAKE_NO_WINDOW : FAKE_NO_FAULT, 1);
    lierne_context *device = open_nccl("lost", rank, 2);
    check(make_plan(&small, device, 0) == LIERNE_OK, "planning");
    lierne_status status = make_sum(&plan, device, LARGE);
    check((status == LIERNE_ERR_TRANSPORT || status == LIERNE_ERR_TIMEOUT) && !plan &&
              strstr(lierne_last_error(), "ncclCommWindowRegister: "),
          "a registration that fails is every rank's error");
    check(make_plan(&plan, device, 0) == status, "the context is dead");
    check(lierne_plan_destroy(small) == LIERNE_OK, "destroy");
    lierne_context_destroy(device);
    fake_nccl_fail_window(FAKE_NO_FAULT, 0);
    meet_ranks();
}

static void *faults(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *host = open_timed("host", rank, RANKS, 30);
    for (int after = 0; after < 2; after++) {
        run_fault(host, rank, FAKE_NO_MEMORY, after);
        run_fault(host, rank, FAKE_NULL_WINDOW, after);
    }
    run_fault(host, rank, FAKE_NO_WINDOW, 0);
    run_lost(rank);
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

/* An error of NCCL: the communicator is aborted, and its windows end with it. */
static void *aborts(void *argument) {
    int rank = (int)(intptr_t)argument;
    static int in[RANKS][COUNT], out[RANKS][COUNT];
    const lierne_all_to_all_spec all = all_to_all_of(COUNT / RANKS, LIERNE_DTYPE_I32);
    lierne_plan *plan = NULL;
    lierne_context *device = open_device("aborts", rank, 30);
    fake_window_counts before = begin_count();
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(lierne_plan_create_all_to_all(&plan, device, &all) == LIERNE_OK, "planning");
    meet_ranks();
    fake_nccl_set_error(ncclRemoteError);
    meet_ranks();
    check(lierne_plan_forward(plan, out[rank], in[rank], &stream) == LIERNE_ERR_TRANSPORT,
          "an error");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    lierne_context_destroy(device);
    fake_window_counts now = begin_count();
    check(now.ended - before.ended == RANKS && now.deregistered == before.deregistered,
          "an abort ends the windows");
    fake_nccl_set_error(ncclSuccess);
    return NULL;
}

int main(void) {
    run_ranks(works);
    run_ranks(faults);
    check(lierne_mem_live() == 0, "nothing leaks");
    run_ranks(aborts);
    fake_window_counts counts = fake_nccl_count_windows();
    check(counts.allocated > 0 && counts.allocated == counts.freed, "all memory is freed");
    check(counts.registered == counts.deregistered + counts.ended, "every window has ended");
    check(counts.wrong == 0, "nothing that NCCL forbids");
    return print_checks();
}
