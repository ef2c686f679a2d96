/* Windows over a device that is played (ipc.h), 4 ranks of a node: threads of one process, with
 * streams that carry out their work at once, and with threads as streams; and processes. Every
 * result against the same plan over sockets, bit by bit, repeated, with requests in flight; two
 * nodes; a rank that cannot map a window; a rank that never comes, one that fails, one whose
 * process ends. Last line: N passed, N failed. */
#include "device_streams.h"
#include "ipc.h"
#include "layouts.h"
#include "lierne.h"
#include "node_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 3001, BYTES = RANKS * COUNT * 8, OWNED = 50, REQUESTS = 3, KINDS = 6 };

static lierne_context *open_on(const int *nodes, int rank, int world, const char *name,
                               double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout, .nodes = nodes};
    return open_rank(name, rank, world, &spec);
}

/* Long and contiguous, sums in both ways, rows, and a byte; with 3 requests where the plan allows
 * it. */
static lierne_status make_plan(lierne_plan **plan, lierne_context *context, int kind) {
    const lierne_all_to_all_spec all = {.size = sizeof all,
                                        .count = COUNT,
                                        .dtype = LIERNE_DTYPE_F64,
                                        .max_inflight = REQUESTS};
    const lierne_all_gather_spec gather = {.size = sizeof gather,
                                           .count = kind == 5 ? 1 : COUNT,
                                           .dtype = kind == 5 ? LIERNE_DTYPE_U8 : LIERNE_DTYPE_I32,
                                           .max_inflight = REQUESTS};
    const lierne_all_reduce_spec sum = {.size = sizeof sum,
                                        .count = COUNT,
                                        .dtype = LIERNE_DTYPE_BF16,
                                        .max_inflight = REQUESTS,
                                        .algorithm = kind == 2
                                                         ? LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT
                                                         : LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    return kind == 0                ? lierne_plan_create_all_to_all(plan, context, &all)
           : kind == 1 || kind == 5 ? lierne_plan_create_all_gather(plan, context, &gather)
           : kind < 4               ? lierne_plan_create_all_reduce(plan, context, &sum)
                                    : plan_rows(plan, context, OWNED, COUNT / 3);
}

/* No NaN in any dtype. */
static void fill(unsigned char *data, int rank, int call) {
    for (int i = 0; i < BYTES; i++) {
        data[i] = (unsigned char)((i * 31 + rank * 17 + call * 7) % 59);
    }
}

typedef struct buffers {
    unsigned char in[REQUESTS][BYTES], expected[REQUESTS][BYTES], got[REQUESTS][BYTES];
} buffers;

/* Several calls in flight, ended in another order on odd ranks. */
static void compare(lierne_plan *host, lierne_plan *device, int d, int rank, int requests,
                    void *stream) {
    buffers *b = malloc(sizeof *b);
    lierne_request *request[REQUESTS];
    lierne_status (*run)(lierne_plan *, void *, const void *, void *) =
        d ? lierne_plan_adjoint : lierne_plan_forward;
    lierne_status (*begin)(lierne_request **, lierne_plan *, void *, const void *, void *) =
        d ? lierne_plan_adjoint_begin : lierne_plan_forward_begin;
    for (int i = 0; i < requests; i++) {
        fill(b->in[i], rank, i);
        memset(b->expected[i], 0xa5, BYTES);
        memset(b->got[i], 0xa5, BYTES);
        check(run(host, b->expected[i], b->in[i], NULL) == LIERNE_OK, "sockets");
    }
    for (int i = 0; i < requests; i++) {
        check(begin(&request[i], device, b->got[i], b->in[i], stream) == LIERNE_OK, "begin");
    }
    for (int i = 0; i < requests; i++) {
        check(lierne_request_end(request[rank % 2 ? requests - 1 - i : i]) == LIERNE_OK, "end");
    }
    for (int i = 0; i < requests; i++) {
        check(memcmp(b->got[i], b->expected[i], BYTES) == 0, d ? "adjoint" : "forward");
    }
    free(b);
}

static void check_report(const lierne_plan *plan, const char *transport) {
    lierne_report report = {.size = sizeof report};
    check(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD) == LIERNE_OK, "report");
    check(strcmp(report.transports, transport) == 0, "the report names the transport");
    check(report.window_bytes == (strcmp(transport, "ipc") == 0 ? report.sent_bytes : 0) &&
              report.sent_bytes > 0,
          "bytes that are copied into a window are counted");
}

static void run_plans(lierne_context *host, lierne_context *device, const char *transport, int rank,
                      void *stream) {
    for (int kind = 0; kind < KINDS; kind++) {
        lierne_plan *a = NULL, *b = NULL;
        check(make_plan(&a, host, kind) == LIERNE_OK, "planning over sockets");
        check(make_plan(&b, device, kind) == LIERNE_OK, "planning over windows");
        check_report(b, transport);
        for (int round = 0; round < 6; round++) { /* calls 0 to 17 in turn, and not by threes */
            int requests = kind == 4 ? 1 : 1 + round % REQUESTS;
            compare(a, b, 0, rank, requests, stream);
            compare(a, b, 1, rank, requests, stream);
        }
        check(lierne_plan_destroy(a) == LIERNE_OK && lierne_plan_destroy(b) == LIERNE_OK, "plans");
    }
}

/* Twice: the second call packs into what the first one has emptied, in both phases. */
static void run_coalesced(lierne_context *host, lierne_context *device, int rank, void *stream) {
    static const int kinds[] = {3, 3, 4};
    buffers *b = malloc(sizeof *b);
    lierne_coalesced *all[2] = {NULL, NULL};
    lierne_plan *plans[2][3];
    lierne_context *contexts[2] = {host, device};
    const void *in[3] = {b->in[0], b->in[1], b->in[2]};
    void *out[2][3] = {{b->expected[0], b->expected[1], b->expected[2]},
                       {b->got[0], b->got[1], b->got[2]}};
    memset(b, 0x5a, sizeof *b);
    for (int c = 0; c < 2; c++) {
        for (int i = 0; i < 3; i++) {
            check(make_plan(&plans[c][i], contexts[c], kinds[i]) == LIERNE_OK, "planning");
        }
        check(lierne_coalesced_create(&all[c], plans[c], 3) == LIERNE_OK, "coalescing");
        for (int call = 0; call < 2; call++) {
            for (int i = 0; i < 3; i++) {
                fill(b->in[i], rank, 3 * call + i);
            }
            check(lierne_coalesced_begin(all[c], LIERNE_DIRECTION_FORWARD, out[c], in,
                                         c ? stream : NULL) == LIERNE_OK &&
                      lierne_coalesced_end(all[c], LIERNE_DIRECTION_FORWARD) == LIERNE_OK,
                  "coalesced plans");
        }
    }
    check(memcmp(b->expected, b->got, sizeof b->got) == 0, "coalesced plans have the same bits");
    for (int c = 0; c < 2; c++) {
        check(lierne_coalesced_destroy(all[c]) == LIERNE_OK, "coalesced plans");
        for (int i = 0; i < 3; i++) {
            check(lierne_plan_destroy(plans[c][i]) == LIERNE_OK, "plan");
        }
    }
    free(b);
}

/* More messages in a phase than a step has flags: each tensor of a set is one to every rank. */
static void run_set(lierne_context *device, int rank, void *stream) {
    enum { TENSORS = LIERNE_IPC_FLAGS / (RANKS - 1) + 1, SHARD = 256 << 10 };
    const mesh dims = {.ndims = 1, .names = {"dp"}, .sizes = {RANKS}};
    const int64_t shape[] = {RANKS * SHARD};
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD};
    const lierne_placement whole = {.kind = LIERNE_PLACEMENT_REPLICATE};
    lierne_layout *src = layout_over(&dims, RANKS, LIERNE_DTYPE_U8, 1, shape, &cut);
    lierne_layout *dst = layout_over(&dims, RANKS, LIERNE_DTYPE_U8, 1, shape, &whole);
    const lierne_layout *from[TENSORS], *to[TENSORS];
    const lierne_set_spec spec = {.size = sizeof spec, .ntensors = TENSORS, .src = from, .dst = to};
    unsigned char *in = malloc(TENSORS * SHARD), *out = malloc(TENSORS * RANKS * SHARD);
    lierne_plan *plan = NULL;
    int wrong = 0;
    for (int i = 0; i < TENSORS; i++) {
        from[i] = src;
        to[i] = dst;
        memset(in + i * SHARD, RANKS * i + rank, SHARD);
    }
    check(lierne_plan_create_set(&plan, device, &spec) == LIERNE_OK, "planning");
    check(lierne_plan_forward(plan, out, in, stream) == LIERNE_OK, lierne_last_error());
    for (int i = 0; i < TENSORS * RANKS; i++) {
        wrong += out[i * SHARD] != i || out[(i + 1) * SHARD - 1] != i;
    }
    check(wrong == 0, "tensors of a set");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    free(in);
    free(out);
}

/* As many rows of samples as the mailboxes were made for. */
static void update_counts(lierne_context *device) {
    static const int64_t shape[] = {RANKS, 50, 8}, rows[] = {50};
    lierne_grid *src = grid_of(1, 1, RANKS, RANKS), *dst = grid_of(RANKS, 1, 1, RANKS);
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    lierne_plan *plan = NULL;
    spec.src = src;
    spec.dst = dst;
    spec.naxes = 3;
    spec.shape = shape;
    spec.dtype = LIERNE_DTYPE_F64;
    spec.sequence_axis = 1;
    spec.variable_rows = 1;
    check(lierne_plan_create_bridge(&plan, device, &spec) == LIERNE_OK, "planning");
    int before = test_ipc_writes();
    check(lierne_plan_update_counts(plan, rows) == LIERNE_OK, "an update");
    check(test_ipc_writes() == before, "no new mailbox");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

static void *works(void *argument) {
    int rank = (int)(intptr_t)argument;
    static char any;
    char dump[4096];
    lierne_context *host = open_timed("host", rank, RANKS, 20);
    lierne_context *device = open_timed("device", rank, RANKS, 20);
    check(test_ipc_use(device) == LIERNE_OK, "windows");
    run_plans(host, device, "ipc", rank, &any);
    run_coalesced(host, device, rank, &any);
    run_set(device, rank, &any);
    update_counts(device);
    check(lierne_context_dump(dump, sizeof dump, device) == LIERNE_OK &&
              strstr(dump, "ipc: 3 peers; sent ") &&
              strstr(dump, "bytes copied into the window, shared by memfds"),
          "the dump counts messages");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

/* One rank cannot map a window: none uses them, and the dump says why. */
static void *refuses(void *argument) {
    int rank = (int)(intptr_t)argument;
    static char any;
    char dump[4096];
    lierne_context *host = open_timed("host", rank, RANKS, 20);
    lierne_context *device = open_timed("refused", rank, RANKS, 20);
    check(test_ipc_use(device) == LIERNE_OK, "windows");
    check(lierne_context_dump(dump, sizeof dump, device) == LIERNE_OK &&
              strstr(dump, "ipc is not used: ") && strstr(dump, "does not map what others share"),
          "the dump says why windows are not used");
    run_plans(host, device, "socket", rank, &any);
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

/* Each rank gets what the other one of its node has: no message leaves a node. */
static lierne_status plan_inside(lierne_plan **plan, lierne_context *context) {
    const mesh dims = {.ndims = 2, .names = {"node", "rank"}, .sizes = {2, 2}};
    const int64_t shape[] = {2 * COUNT, 2};
    const lierne_placement from[] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1},
                                     {.kind = LIERNE_PLACEMENT_SHARD, .axis = 0}};
    const lierne_placement to[] = {from[0], {.kind = LIERNE_PLACEMENT_REPLICATE}};
    return plan_between(plan, context, &dims, LIERNE_DTYPE_I32, 2, shape, from, to, 0);
}

/* A call whose messages all are in windows begins while one that the host polls, too, has still to
 * post its own there: its begin lets that one go on. */
static void begin_both(lierne_context *device, int rank, void *stream) {
    lierne_plan *all = NULL, *inside = NULL;
    lierne_request *requests[2];
    int32_t in[COUNT], out[2 * COUNT];
    buffers *b = malloc(sizeof *b);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        in[i] = 1000000 * rank + i;
    }
    fill(b->in[0], rank, 0);
    check(make_plan(&all, device, 0) == LIERNE_OK, "planning");
    check(plan_inside(&inside, device) == LIERNE_OK, "planning");
    check_report(inside, "ipc");
    check(lierne_plan_forward_begin(&requests[0], all, b->got[0], b->in[0], stream) == LIERNE_OK,
          "begin");
    check(lierne_plan_forward_begin(&requests[1], inside, out, in, stream) == LIERNE_OK,
          lierne_last_error());
    check(lierne_request_end(requests[0]) == LIERNE_OK, "end");
    check(lierne_request_end(requests[1]) == LIERNE_OK, "end");
    for (int i = 0; i < 2 * COUNT; i++) {
        wrong += out[i] != 1000000 * (rank % 2 + i / COUNT * 2) + i % COUNT;
    }
    check(wrong == 0, "what the other rank of the node has");
    check(lierne_plan_destroy(all) == LIERNE_OK, "plan");
    check(lierne_plan_destroy(inside) == LIERNE_OK, "plan");
    free(b);
}

/* Two nodes: windows inside a node, sockets between them, in one stage. */
static void *on_two_nodes(void *argument) {
    int rank = (int)(intptr_t)argument;
    static const int nodes[RANKS] = {0, 1, 0, 1};
    static char any;
    lierne_report report = {.size = sizeof report};
    lierne_context *host = open_on(nodes, rank, RANKS, "host", 20);
    lierne_context *device = open_on(nodes, rank, RANKS, "nodes", 20);
    check(test_ipc_use(device) == LIERNE_OK, "windows");
    for (int kind = 0; kind < KINDS; kind++) {
        lierne_plan *a = NULL, *b = NULL;
        check(make_plan(&a, host, kind) == LIERNE_OK, "planning over sockets");
        check(make_plan(&b, device, kind) == LIERNE_OK, "planning over windows");
        check(lierne_plan_get_report(&report, b, LIERNE_DIRECTION_FORWARD) == LIERNE_OK &&
                  strcmp(report.transports, "ipc, socket") == 0,
              "both transports");
        check(kind != 0 || 3 * report.window_bytes == report.sent_bytes, "one peer of three");
        for (int round = 0; round < 4; round++) {
            compare(a, b, round % 2, rank, 1, &any);
        }
        check(lierne_plan_destroy(a) == LIERNE_OK && lierne_plan_destroy(b) == LIERNE_OK, "plans");
    }
    begin_both(device, rank, &any);
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

/* The variable names others only, or ipc after sockets. */
static void *is_left_out(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    lierne_context *device = open_timed("left", rank, RANKS, 20);
    check(test_ipc_use(device) == LIERNE_OK, "windows");
    check(make_plan(&plan, device, 0) == LIERNE_OK, "planning");
    check_report(plan, "socket");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    return NULL;
}

static void nap(void *data) {
    (void)data;
    usleep(300000);
}

/* Ranks 0 to 2 send rows to rank 3, whose stream is late, destroy the plan and send others by a
 * plan that has space for the same: rank 3 still gets what was sent. */
static void *reads_late(void *argument) {
    int rank = (int)(intptr_t)argument;
    buffers *b = malloc(sizeof *b);
    test_device_stream *stream = test_device_stream_create();
    lierne_plan *rows[2] = {NULL, NULL}, *others = NULL;
    lierne_context *host = open_timed("host", rank, RANKS, 20);
    lierne_context *context = open_timed("late", rank, RANKS, 20);
    memset(b, 0x5a, sizeof *b);
    fill(b->in[0], rank, 1);
    fill(b->in[1], rank, 2);
    check(test_ipc_use_streams(context) == LIERNE_OK, "windows");
    check(plan_rows(&rows[0], host, OWNED, rank == 3 ? COUNT : 0) == LIERNE_OK, "planning");
    check(plan_rows(&rows[1], context, OWNED, rank == 3 ? COUNT : 0) == LIERNE_OK, "planning");
    for (int i = 0; i < 2; i++) {
        check(lierne_plan_forward(rows[0], b->expected[i], b->in[i], NULL) == LIERNE_OK, "rows");
    }
    if (rank == 3) {
        test_device_stream_add(stream, nap, NULL, 0);
    }
    check(lierne_plan_forward(rows[1], b->got[0], b->in[0], stream) == LIERNE_OK, "rows, late");
    if (rank != 3) {
        check(lierne_plan_destroy(rows[1]) == LIERNE_OK, "plan");
    }
    check(plan_rows(&others, context, OWNED, rank == 3 ? COUNT : 0) == LIERNE_OK, "planning");
    check(lierne_plan_forward(others, b->got[1], b->in[1], stream) == LIERNE_OK, "other rows");
    check(lierne_plan_destroy(others) == LIERNE_OK, "plan"); /* waits for the stream */
    check(memcmp(b->got, b->expected, sizeof b->got) == 0, "rows that were read late");
    check(rank != 3 || lierne_plan_destroy(rows[1]) == LIERNE_OK, "plan");
    check(lierne_plan_destroy(rows[0]) == LIERNE_OK, "plan");
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    test_device_stream_destroy(stream);
    free(b);
    return NULL;
}

/* A rank that never calls: an error in time on the others, which names it, or the one that gave up
 * because of it. */
static void *stays_away(void *argument) {
    int rank = (int)(intptr_t)argument;
    static char any;
    buffers *b = malloc(sizeof *b);
    lierne_plan *plan = NULL;
    lierne_context *device = open_timed("away", rank, RANKS, 1);
    check(test_ipc_use(device) == LIERNE_OK, "windows");
    check(make_plan(&plan, device, 0) == LIERNE_OK, "planning");
    fill(b->in[0], rank, 0);
    if (rank != 3) {
        double start = lierne_now();
        lierne_status status = lierne_plan_forward(plan, b->got[0], b->in[0], &any);
        const char *text = lierne_last_error();
        check((status == LIERNE_ERR_TIMEOUT &&
               strstr(text, "ipc: rank 3 did not send, or take, a message within 1 s")) ||
                  (status == LIERNE_ERR_PEER_FAILED && strstr(text, "gave up after an error")),
              "a rank that never comes is an error");
        check(lierne_now() - start < 20, "in time");
        check(lierne_plan_forward(plan, b->got[0], b->in[0], &any) == status,
              "the context is dead");
    }
    meet_ranks();
    lierne_plan_destroy(plan);
    lierne_context_destroy(device);
    free(b);
    return NULL;
}

/* Two ranks, of which one gives up and says why before its window breaks: the other one says so. */
static void *says_why(void *argument) {
    int rank = (int)(intptr_t)argument;
    static char any;
    buffers *b = malloc(sizeof *b);
    lierne_plan *plan = NULL;
    lierne_context *context = NULL;
    if (rank < 2) {
        context = open_timed("why", rank, 2, 20);
        check(test_ipc_use(context) == LIERNE_OK, "windows");
        check(make_plan(&plan, context, 0) == LIERNE_OK, "planning");
        fill(b->in[0], rank, 0);
    }
    meet_ranks();
    if (rank == 1) {
        const lierne_ipc *ipc = context->carriers[0].self;
        check(lierne_context_abort(context, LIERNE_ERR_NO_MEMORY, "the disk is full") == LIERNE_OK,
              "abort");
        lierne_ipc_store((uint32_t *)(void *)ipc->chunks[0].at, 1);
    } else if (rank == 0) {
        check(lierne_plan_forward(plan, b->got[0], b->in[0], &any) == LIERNE_ERR_NO_MEMORY &&
                  strcmp(lierne_last_error(),
                         "lierne_plan_forward: rank 1 gave up: lierne_context_abort: the disk is "
                         "full") == 0,
              "the first cause");
    }
    meet_ranks();
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
    free(b);
    return NULL;
}

/* On a stream that outlives its calls: the watchdog finds what a step found, after the end. */
static void *is_found_later(void *argument) {
    int rank = (int)(intptr_t)argument;
    buffers *b = malloc(sizeof *b);
    test_device_stream *stream = test_device_stream_create();
    lierne_plan *plan = NULL;
    lierne_context *context = open_timed("later", rank, RANKS, 1);
    check(test_ipc_use_streams(context) == LIERNE_OK, "windows");
    check(make_plan(&plan, context, 0) == LIERNE_OK, "planning");
    fill(b->in[0], rank, 0);
    if (rank != 3) {
        check(lierne_plan_forward(plan, b->got[0], b->in[0], stream) == LIERNE_OK, "the call ends");
        lierne_status status = await_failure(context);
        check(status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED,
              "it is found later");
    }
    meet_ranks();
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
    test_device_stream_destroy(stream);
    free(b);
    return NULL;
}

/* Two processes; the second one ends without a word when the first one waits for it. */
static int run_process(int rank) {
    buffers *b = malloc(sizeof *b);
    test_device_stream *stream = test_device_stream_create();
    lierne_plan *plan = NULL;
    lierne_status status;
    lierne_context *context = open_timed("dies", rank, 2, 30);
    check(test_ipc_use_streams(context) == LIERNE_OK, "windows");
    check(make_plan(&plan, context, 0) == LIERNE_OK, "planning");
    fill(b->in[0], rank, 0);
    check(lierne_plan_forward(plan, b->got[0], b->in[0], stream) == LIERNE_OK, "between processes");
    if (rank == 1) {
        usleep(300000);
        _exit(0);
    }
    double start = lierne_now();
    status = lierne_plan_forward(plan, b->got[1], b->in[0],
                                 stream); /* on a busy machine it knows already */
    status = status == LIERNE_OK ? await_failure(context) : status;
    check(status == LIERNE_ERR_PEER_FAILED &&
              strstr(lierne_last_error(), "process of rank 1 has ended"),
          "a process that ended");
    check(lierne_now() - start < 10, "is found long before the deadline");
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
    test_device_stream_destroy(stream);
    free(b);
    return failed_checks() > 0;
}

int main(void) {
    run_processes(2, run_process);
    run_ranks(works);
    check(lierne_mem_live() == 0 && test_ipc_live() == 0, "nothing leaks");
    check(test_ipc_unquiet() == 0, "a window was freed that a peer had mapped");
    run_ranks(on_two_nodes);
    test_ipc_fail_open(7);
    run_ranks(refuses);
    test_ipc_fail_open(0);
    check(lierne_mem_live() == 0 && test_ipc_live() == 0, "nothing leaks after a refusal");
    setenv("LIERNE_TRANSPORTS", "shm,socket", 1);
    run_ranks(is_left_out);
    setenv("LIERNE_TRANSPORTS", "socket,ipc", 1);
    run_ranks(is_left_out);
    unsetenv("LIERNE_TRANSPORTS");
    run_ranks(reads_late);
    run_ranks(stays_away);
    run_ranks(is_found_later);
    run_ranks(says_why);
    check(lierne_mem_live() == 0 && test_ipc_live() == 0, "nothing leaks after errors");
    return print_checks();
}
