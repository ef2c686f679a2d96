/* The NCCL transport without NCCL and without a GPU: 4 threads are the ranks of a node, their
 * memory is recorded work on the host (tasks.h) under the name of CUDA's, and NCCL is played
 * (fake.h). All-to-alls, sums and rows against the same plans over sockets, bit by bit, on a
 * communicator of lierne's and on a caller's; errors of NCCL, of arguments, and a NCCL that never
 * gets ready; first messages, which are sent while planning; what hangs or fails after a call has
 * ended; a context that is shrunk. The same plans without NCCL, whose
 * messages go through host memory. Last line: N passed, N failed. */
#include "collectives.h"
#include "fake.h"
#include "node_ranks.h"
#include "runtime/context/context.h"
#include "runtime/execute/stream.h"
#include "tasks.h"

#include "lierne.h"
#include "lierne/cuda.h"
#include "lierne/nccl.h"
#include "lierne/node.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 7, COUNT = 3001, MOST = 4 * COUNT };

static char stream;

/* Rows of all ranks by messages that look like an all-gather to some rank. */
static lierne_status make_rows(lierne_plan **plan, lierne_context *context, const int32_t *rank,
                               const int64_t *row) {
    lierne_references_spec rows = LIERNE_REFERENCES_SPEC_INIT;
    rows.nowned = 2;
    rows.nghosts = RANKS;
    rows.rank = rank;
    rows.row = row;
    rows.algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT;
    rows.width = 5;
    rows.dtype = LIERNE_DTYPE_F32;
    return lierne_plan_create_references(plan, context, &rows);
}

/* Rank 0 sends row 0 to all and has row 0 of all: an all-gather, as far as it sees. The others want
 * row 1 of each other. */
static lierne_status make_half_gather(lierne_plan **plan, lierne_context *context) {
    static const int32_t rank[RANKS] = {0, 1, 2, 3};
    static const int64_t row[2][RANKS] = {{0, 0, 0, 0}, {0, 1, 1, 1}};
    return make_rows(plan, context, rank, row[lierne_context_get_rank(context) > 0]);
}

/* Every rank has a row of all, but two of them lie where an all-gather writes the other one: not
 * its own, nor that of the first rank that it receives from. */
static lierne_status make_other_places(lierne_plan **plan, lierne_context *context) {
    static const int32_t rank[RANKS][RANKS] = {{0, 1, 3, 2},
                                               {0, 1, 3, 2},
                                               {0, 3, 2, 1},
                                               {0, 2, 1, 3}};
    static const int64_t row[RANKS] = {0};
    return make_rows(plan, context, rank[lierne_context_get_rank(context)], row);
}

static lierne_status make_plan(lierne_plan **plan, lierne_context *context, int kind) {
    const lierne_all_to_all_spec all = all_to_all_of(COUNT, LIERNE_DTYPE_F32);
    const lierne_all_reduce_spec sum =
        all_reduce_of(COUNT, LIERNE_DTYPE_BF16, LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
    const lierne_all_gather_spec even = all_gather_of(COUNT, LIERNE_DTYPE_I8);
    const lierne_all_reduce_spec even_sum =
        all_reduce_of(2048, LIERNE_DTYPE_F32, LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
    if (kind >= 5) {
        return kind == 5 ? make_half_gather(plan, context) : make_other_places(plan, context);
    }
    return kind == 0   ? lierne_plan_create_all_to_all(plan, context, &all)
           : kind == 1 ? lierne_plan_create_all_reduce(plan, context, &sum)
           : kind == 2 ? plan_rows(plan, context, 50, COUNT / 3)
           : kind == 3 ? lierne_plan_create_all_gather(plan, context, &even)
                       : lierne_plan_create_all_reduce(plan, context, &even_sum);
}

/* All-gathers of NCCL's that a call of such a plan makes. The two-stage sum is its own adjoint. */
static int all_gathers_of(int kind, int direction) {
    return kind == 4 || (kind == 3 && direction == LIERNE_DIRECTION_FORWARD);
}

/* Both directions of a plan, over sockets and over NCCL. */
static void compare(lierne_plan *host, lierne_plan *device, int rank, int kind, bool nccl) {
    static const char *const names[2] = {"forward has the bits of sockets",
                                         "adjoint has the bits of sockets"};
    unsigned char *in = malloc(MOST * 4), *expected = malloc(MOST * 4), *got = malloc(MOST * 4);
    for (int i = 0; i < MOST * 4; i++) {
        in[i] = (unsigned char)((i * 31 + rank * 17) % 59); /* no NaN in any dtype */
    }
    for (int d = 0; d < 2; d++) {
        memset(expected, 0xa5, MOST * 4);
        memset(got, 0xa5, MOST * 4);
        lierne_status (*run)(lierne_plan *, void *, const void *, void *) =
            d ? lierne_plan_adjoint : lierne_plan_forward;
        check(run(host, expected, in, NULL) == LIERNE_OK, "sockets");
        meet_ranks();
        int before = fake_nccl_count().all_gathers;
        meet_ranks();
        for (int again = 0; again < 2; again++) {
            check(run(device, got, in, &stream) == LIERNE_OK, "nccl");
            check(memcmp(got, expected, MOST * 4) == 0, names[d]);
        }
        meet_ranks();
        check(fake_nccl_count().all_gathers - before ==
                  (nccl ? 2 * RANKS * all_gathers_of(kind, d) : 0),
              "all-gathers are NCCL's, and nothing else is");
        meet_ranks();
    }
    free(in);
    free(expected);
    free(got);
}

static void run_plans(lierne_context *host, lierne_context *device, const char *transport,
                      int rank) {
    for (int kind = 0; kind < KINDS; kind++) {
        lierne_plan *a = NULL, *b = NULL;
        lierne_report report = {.size = sizeof report};
        check(make_plan(&a, host, kind) == LIERNE_OK, "planning over sockets");
        check(make_plan(&b, device, kind) == LIERNE_OK, "planning over nccl");
        check(lierne_plan_get_report(&report, b, LIERNE_DIRECTION_FORWARD) == LIERNE_OK &&
                  strcmp(report.transports, transport) == 0,
              "the report names the transport");
        bool nccl = strcmp(transport, "nccl") == 0;
        check(report.host_bytes == (nccl ? 0 : report.sent_bytes + report.received_bytes),
              "bytes through host memory are counted");
        compare(a, b, rank, kind, nccl);
        lierne_plan_destroy(a);
        lierne_plan_destroy(b);
    }
}

/* Without NCCL: sockets bring the messages, through host memory. */
static void run_sockets(lierne_context *host, int rank) {
    lierne_context *device = open_device("sockets", rank, 30);
    device->stream_driver = &test_device_driver;
    run_plans(host, device, "socket", rank);
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
}

/* A context from nothing but a communicator. */
static void run_alone(lierne_context *host, int rank) {
    lierne_context *device = NULL;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 30}, bad = {.size = 3};
    ncclComm_t comm = fake_nccl_comm(3, rank, RANKS);
    check(lierne_context_create_nccl(&device, NULL, &spec) == LIERNE_ERR_INVALID && !device,
          "no communicator");
    check(lierne_context_create_nccl(&device, comm, rank == 2 ? &bad : &spec) ==
                  LIERNE_ERR_INVALID &&
              strstr(lierne_last_error(), "lierne_context_create_nccl: "),
          "a bad spec is every rank's error");
    check(lierne_context_create_nccl(&device, comm, &spec) == LIERNE_OK, "from a communicator");
    check(lierne_context_get_rank(device) == rank, "the rank is that of the communicator");
    run_plans(host, device, "nccl", rank);
    int before = fake_host_allocations();
    check(lierne_context_agree_all(device, LIERNE_OK, NULL, 0, NULL) == LIERNE_OK, "agreeing");
    check(fake_host_allocations() == before, "a gather uses the memory of the last one");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    free(comm);
}

static void *works(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *host = open_timed("host", rank, RANKS, 30);
    run_sockets(host, rank);
    for (int given = 0; given < 2; given++) {
        ncclComm_t comm = given ? fake_nccl_comm(1, rank, RANKS) : NULL;
        lierne_context *device = open_device(given ? "given" : "own", rank, 30);
        check(lierne_context_use_nccl(device, comm) == LIERNE_OK, "lierne_context_use_nccl");
        check(lierne_context_use_nccl(device, comm) == LIERNE_ERR_INVALID, "used twice");
        run_plans(host, device, "nccl", rank);
        check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
        free(comm);
    }
    run_alone(host, rank);
    lierne_context *none = open_timed("none", rank, RANKS, 30);
    check(lierne_context_use_nccl(none, NULL) == LIERNE_ERR_INVALID, "host memory is rejected");
    check(lierne_context_destroy(none) == LIERNE_OK, "destroy");
    lierne_context *wrong = open_device("wrong", rank, 30);
    ncclComm_t comm = fake_nccl_comm(2, rank == 1 ? 2 : rank, RANKS);
    check(lierne_context_use_nccl(wrong, comm) == LIERNE_ERR_INVALID &&
              strstr(lierne_last_error(), "comm has rank 2 of 4, must have rank 1"),
          "a communicator of other ranks is every rank's error");
    check(lierne_context_use_nccl(wrong, rank ? comm : NULL) != LIERNE_OK, "given on some ranks");
    fake_nccl_set_device(rank == 2);
    check(lierne_context_use_nccl(wrong, NULL) == LIERNE_ERR_INVALID &&
              strstr(lierne_last_error(), "rank 2: the communicator is on device 1, must be on 0"),
          "another device than the context's is every rank's error");
    fake_nccl_set_device(0);
    check(lierne_context_destroy(wrong) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    free(comm);
    return NULL;
}

/* NCCL's profilers see of each all-gather which plan and direction it belongs to. */
static void *tags(void *argument) {
    int rank = (int)(intptr_t)argument;
    const lierne_all_gather_spec spec = all_gather_of(100, LIERNE_DTYPE_I32);
    static int32_t in[RANKS][100], out[RANKS][RANKS * 100];
    lierne_plan *plans[2] = {NULL, NULL};
    lierne_context *device = open_nccl("tags", rank, 30);
    for (int i = 0; i < 2; i++) {
        check(lierne_plan_create_all_gather(&plans[i], device, &spec) == LIERNE_OK, "planning");
    }
    for (int i = 0; i < 2; i++) {
        int before = fake_nccl_count().tagged;
        meet_ranks();
        check(lierne_plan_forward(plans[i], out[rank], in[rank], &stream) == LIERNE_OK, "a call");
        meet_ranks();
        uint64_t tag = fake_nccl_count().tag;
        check(fake_nccl_count().tagged - before == RANKS && tag >> 32 == (uint64_t)'L' << 24 &&
                  (uint32_t)tag == (uint32_t)lierne_plan_get_number(plans[i]),
              "the tag of an all-gather");
        meet_ranks();
    }
    for (int i = 0; i < 2; i++) {
        check(lierne_plan_destroy(plans[i]) == LIERNE_OK, "a plan");
    }
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    return NULL;
}

static const int32_t next[RANKS] = {1, 2, 3, 0}, partner[RANKS] = {1, 0, 3, 2};

/* The row of one other rank. */
static lierne_status make_row(lierne_plan **plan, lierne_context *context, const int32_t *of) {
    static const int64_t row = 0;
    lierne_references_spec rows = LIERNE_REFERENCES_SPEC_INIT;
    rows.nowned = rows.nghosts = 1;
    rows.rank = &of[lierne_context_get_rank(context)];
    rows.row = &row;
    rows.width = 5;
    rows.dtype = LIERNE_DTYPE_F32;
    return lierne_plan_create_references(plan, context, &rows);
}

/* Sends and receives of all ranks while they plan. */
static int count_planning(lierne_plan **plan, lierne_context *context, bool ring) {
    meet_ranks();
    int before = fake_nccl_count().messages;
    meet_ranks();
    check((ring ? make_row(plan, context, next) : make_plan(plan, context, 0)) == LIERNE_OK,
          "planning");
    meet_ranks();
    int n = fake_nccl_count().messages - before;
    meet_ranks();
    return n;
}

/* Ranks that will have messages have one in either direction, once, and others have none. */
static void *first_messages(void *argument) {
    int rank = (int)(intptr_t)argument;
    static const int expected[4] = {4 * RANKS, 0, 2 * RANKS, 0};
    lierne_plan *plans[4] = {NULL};
    lierne_context *device = open_nccl("first", rank, 30);
    for (int i = 0; i < 4; i++) {
        check(count_planning(&plans[i], device, i < 2) == expected[i], "first messages");
    }
    for (int i = 0; i < 4; i++) {
        check(lierne_plan_destroy(plans[i]) == LIERNE_OK, "plan");
    }
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    return NULL;
}

/* One that fails on rank 0 is an error of every rank's, and there is no plan. */
static void *first_fails(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    lierne_context *device = open_nccl("first fails", rank, 30);
    if (rank == 0) {
        fake_nccl_fail_send();
    }
    meet_ranks();
    lierne_status status = make_plan(&plan, device, 0);
    check(status != LIERNE_OK && !plan && strstr(lierne_last_error(), ": the fake "),
          "a first message that fails is an error, with NCCL's words");
    check(make_plan(&plan, device, 0) != LIERNE_OK, "the context is dead");
    lierne_context_destroy(device);
    return NULL;
}

/* An event that knows where it was recorded. */
static lierne_status mark_create(void **event) {
    void **mark;
    LIERNE_TRY(lierne_alloc(&mark, 1, sizeof *mark));
    *event = mark;
    return LIERNE_OK;
}

static lierne_status mark_record(void *where, void *event) {
    *(void **)event = where;
    return LIERNE_OK;
}

static _Thread_local bool stands;

static lierne_status mark_query(void *event, bool *passed) {
    if (*(void **)event == &stream) {
        check(false, "first messages are on the stream of lierne's own");
    }
    *passed = !stands;
    return LIERNE_OK;
}

/* The streams of ranks 0 and 1 do not pass them. Rank 1 finds that in time, and rank 0, which has
 * much more of it, that rank 1 gave up: its only peer. */
static const lierne_stream_driver standing = {.name = "cuda",
                                              .required = true,
                                              .event_create = mark_create,
                                              .event_destroy = lierne_mem_free,
                                              .event_record = mark_record,
                                              .event_query = mark_query};

static void *first_hangs(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    lierne_context *device = open_device("first hangs", rank, rank == 1 ? 1 : 30);
    device->stream_driver = &standing;
    stands = rank <= 1;
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    int aborted = fake_nccl_count().aborted;
    double start = lierne_now();
    lierne_status status = make_row(&plan, device, partner);
    check(status != LIERNE_OK && !plan &&
              strstr(lierne_last_error(), "rank 1: the first messages with 1 ranks (rank 0 among"),
          "a first message that is late is every rank's error");
    check(rank != 1 || status == LIERNE_ERR_TIMEOUT, "TIMEOUT");
    check(lierne_now() - start < 10, "in time");
    meet_ranks();
    check(fake_nccl_count().aborted - aborted == 2, "messages that hang are aborted");
    meet_ranks();
    lierne_context_destroy(device);
    return NULL;
}

/* NCCL notices an error after all ranks have enqueued the first messages, and before they pass. */
static lierne_status query_failing(void *event, bool *passed) {
    static _Thread_local bool enqueued;
    (void)event;
    *passed = false;
    if (!enqueued) {
        enqueued = true;
        meet_ranks();
        fake_nccl_set_error(ncclRemoteError);
    }
    return LIERNE_OK;
}

static void *first_remote(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    lierne_stream_driver failing = standing;
    lierne_context *device = open_device("first remote", rank, 30);
    failing.event_query = query_failing;
    device->stream_driver = &failing;
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    int aborted = fake_nccl_count().aborted;
    double start = lierne_now();
    check(make_plan(&plan, device, 0) == LIERNE_ERR_TRANSPORT && !plan &&
              strstr(lierne_last_error(), ": the fake failed"),
          "an error that NCCL notices is every rank's");
    check(lierne_now() - start < 10, "at once");
    meet_ranks();
    check(fake_nccl_count().aborted - aborted == RANKS, "the communicators are aborted");
    fake_nccl_set_error(ncclSuccess);
    lierne_context_destroy(device);
    return NULL;
}

/* NCCL never gets ready: an error in time, on every rank, and the communicators are aborted. */
static void *stalls(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *device = open_device("stalls", rank, 2);
    double start = lierne_now();
    check(lierne_context_use_nccl(device, NULL) == LIERNE_ERR_TIMEOUT, "a stalled NCCL is TIMEOUT");
    check(lierne_now() - start < 10, "in time");
    lierne_context *alone = NULL;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 1};
    ncclComm_t comm = fake_nccl_comm(4, rank, RANKS);
    check(lierne_context_create_nccl(&alone, comm, &spec) == LIERNE_ERR_TIMEOUT,
          "a control over a stalled NCCL is TIMEOUT");
    free(comm);
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    return NULL;
}

/* A stream that reaches every call and passes none: a call records its begin, then its end. */
static lierne_status event_record(void *where, void *event) {
    static _Thread_local bool ends;
    *(void **)event = ends && where == &stream ? where : NULL;
    ends ^= where == &stream;
    return LIERNE_OK;
}

static atomic_bool released;

static lierne_status event_query(void *event, bool *has) {
    *has = !*(void **)event || released;
    return LIERNE_OK;
}

static const lierne_stream_driver hanging = {.name = "cuda",
                                             .required = true,
                                             .detached = true,
                                             .event_create = mark_create,
                                             .event_destroy = lierne_mem_free,
                                             .event_record = event_record,
                                             .event_query = event_query,
                                             .epochs_create = test_epochs_create,
                                             .epochs_destroy = test_epochs_destroy,
                                             .advance = test_advance};

/* What hangs on the device, and what NCCL notices there, is found after the call has ended; the
 * communicator is aborted. */
static void found_later(int rank, const char *name, lierne_status expected, const char *says) {
    float *in = calloc(MOST, sizeof *in), *out = calloc(MOST, sizeof *out);
    lierne_plan *plan = NULL;
    lierne_context *device = open_device(name, rank, expected == LIERNE_ERR_TIMEOUT ? 1 : 30);
    device->stream_driver = &hanging;
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(make_plan(&plan, device, 0) == LIERNE_OK, "planning");
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_OK, "the call ends");
    meet_ranks();
    fake_nccl_set_error(expected == LIERNE_ERR_TIMEOUT ? ncclSuccess : ncclRemoteError);
    lierne_status status = await_failure(device);
    check(status == expected && strstr(lierne_last_error(), says), says);
    check(lierne_plan_forward(plan, out, in, &stream) == expected, "the context is dead");
    meet_ranks();
    released = true;
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    lierne_context_destroy(device);
    meet_ranks();
    released = false;
    fake_nccl_set_error(ncclSuccess);
    free(in);
    free(out);
}

static void *hangs(void *argument) {
    int rank = (int)(intptr_t)argument;
    found_later(rank, "hangs", LIERNE_ERR_TIMEOUT, "the stream reached it and has not passed it");
    found_later(rank, "remote", LIERNE_ERR_TRANSPORT, "lierne_plan_forward failed: rank");
    return NULL;
}

/* One send fails: that rank's error at once, with NCCL's words; the others get it or their own. */
static void *fails(void *argument) {
    int rank = (int)(intptr_t)argument;
    static float in[MOST], out[RANKS][MOST];
    lierne_plan *plan = NULL;
    lierne_context *device = open_nccl("fails", rank, 30);
    check(make_plan(&plan, device, 0) == LIERNE_OK, "planning");
    meet_ranks();
    if (rank == 0) {
        fake_nccl_fail_send();
        check(lierne_plan_forward(plan, out[0], in, &stream) == LIERNE_ERR_TRANSPORT &&
                  strstr(lierne_last_error(), "ncclSend: the fake failed"),
              "an error of NCCL is TRANSPORT");
        check(lierne_plan_forward(plan, out[0], in, &stream) == LIERNE_ERR_TRANSPORT,
              "the context is dead");
    }
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    lierne_context_destroy(device);
    return NULL;
}

/* After an error the context is shrunk, and NCCL used again: by a communicator of lierne's, then by
 * one that the caller has made of the ranks that are left. */
static void *shrinks(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *host = open_timed("shrinks host", rank, RANKS, 30), *smaller = NULL;
    for (int given = 0; given < 2; given++) {
        const lierne_context_spec spec = {.size = sizeof spec, .timeout = 30};
        ncclComm_t comm = given ? fake_nccl_comm(5, rank, RANKS) : NULL;
        lierne_context *device = open_nccl(given ? "shrinks to comm" : "shrinks", rank, 30);
        lierne_plan *plan = NULL;
        meet_ranks();
        if (rank == 2) {
            lierne_context_abort(device, LIERNE_ERR_TRANSPORT, "rank 2 cannot go on");
        }
        check(make_plan(&plan, device, 0) == LIERNE_ERR_TRANSPORT, "the context is dead");
        check(lierne_context_shrink(&smaller, device, &spec) == LIERNE_OK, "shrink");
        lierne_context_destroy(device);
        check(lierne_context_use_cuda(smaller) == LIERNE_OK, "lierne_context_use_cuda");
        check(lierne_context_use_nccl(smaller, comm) == LIERNE_OK, "NCCL is used again");
        run_plans(host, smaller, "nccl", rank);
        check(lierne_context_destroy(smaller) == LIERNE_OK, "destroy");
        free(comm);
    }
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

int main(void) {
    run_ranks(works);
    fake_nccl_counts counts = fake_nccl_count();
    check(counts.created == 2 * RANKS && counts.destroyed == RANKS && counts.aborted == RANKS,
          "communicators of lierne's are destroyed, a caller's is not");
    check(counts.groups > 0 && counts.messages > 2 * counts.groups, "messages share group calls");
    check(lierne_mem_live() == 0, "nothing leaks");
    fake_nccl_stall(true);
    run_ranks(stalls);
    fake_nccl_stall(false);
    counts = fake_nccl_count();
    check(counts.aborted == 2 * RANKS, "stalled communicators are aborted");
    run_ranks(hangs);
    counts = fake_nccl_count();
    check(counts.aborted == 4 * RANKS, "communicators of calls that hang are aborted");
    run_ranks(first_messages);
    run_ranks(first_fails);
    run_ranks(first_hangs);
    run_ranks(first_remote);
    fake_nccl_set_version(NCCL_VERSION(2, 31, 2));
    run_ranks(tags);
    fake_nccl_set_version(NCCL_VERSION(2, 28, 9));
    run_ranks(fails);
    run_ranks(shrinks);
    counts = fake_nccl_count();
    check(counts.created == counts.destroyed + counts.aborted, "every communicator is ended");
    return print_checks();
}
