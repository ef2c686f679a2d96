/* Calls that are captured, and replayed: 4 threads are the ranks of a node, on a device that is
 * played (capture.h) and over a NCCL that is played (fake.h), against sockets (replay_case.h).
 * The first call of each plan is captured: its ranks have connected before. What cannot be
 * captured; a replay that hangs. Last line: N passed, N failed. */
#include "capture.h"
#include "collectives.h"
#include "fake.h"
#include "lierne/cuda.h"
#include "node_ranks.h"
#include "replay_case.h"
#include "runtime/context/context.h"
#include "tasks.h"

#include "lierne/nccl.h"

#include <string.h>
#include <unistd.h>

static char stream, other;

static lierne_context *open_context(int rank, const char *name, bool device, double timeout,
                                    bool checks) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout, .check = checks};
    lierne_context *context = open_rank(name, rank, RANKS, &spec);
    if (device) {
        check(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
        context->stream_driver = &test_capture_driver;
        context->own_stream = &test_capture_own_stream;
    }
    return context;
}

static void *replays(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *host = open_context(rank, "host", false, 30, false);
    lierne_context *device =
        open_context(rank, "device", true, 3, false); /* of each replay, not of all */
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    for (int kind = REPLAY_KINDS;
         kind-- > 0;) { /* a bridge first: its ranks meet in the adjoint only */
        lierne_plan *a = NULL, *b = NULL;
        check(replay_plan(&a, host, kind, 1) == LIERNE_OK, "planning over sockets");
        check(replay_plan(&b, device, kind, 1) == LIERNE_OK, "planning over nccl");
        replay_calls(a, b, rank, &stream, kind == 0 ? 10000 : 1000);
        check(lierne_plan_destroy(a) == LIERNE_OK, "destroy");
        check(lierne_plan_destroy(b) == LIERNE_OK, "destroy");
    }
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

/* A capture in which a call must fail with these words, and what was begun is nothing. */
static void rejects(lierne_plan *plan, const char *words) {
    static unsigned char in[REPLAY_BYTES], out[RANKS][REPLAY_BYTES];
    test_capture_begin(&stream);
    check(lierne_plan_forward(plan, out[0], in, &stream) == LIERNE_ERR_UNSUPPORTED &&
              strstr(lierne_last_error(), words),
          words);
    test_graph *graph = test_capture_end();
    check(test_graph_launch(graph) == LIERNE_OK, "nothing was captured");
    test_graph_destroy(graph);
}

static void *rejections(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    unsigned char in[REPLAY_BYTES] = {0}, out[REPLAY_BYTES];
    const lierne_all_gather_spec gather = all_gather_of(REPLAY_COUNT, LIERNE_DTYPE_I8);
    lierne_context *device = open_context(rank, "rejections", true, 30, false);
    check(replay_plan(&plan, device, 0, 1) == LIERNE_OK, "planning over sockets");
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_OK, "over sockets");
    rejects(plan, "the host must poll messages of transport socket");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(replay_plan(&plan, device, 0, 2) == LIERNE_OK, "planning");
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_OK, "a first call");
    rejects(plan, "the plan has 2 requests (max_inflight), must have 1");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_plan_create_all_gather(&plan, device, &gather) == LIERNE_OK, "planning");
    rejects(plan, "an all-gather of its transport connects ranks in its first one");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    return NULL;
}

/* In a context that checks, one rank executes what the others capture. */
static void *mismatches(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    unsigned char in[REPLAY_BYTES] = {0}, out[REPLAY_BYTES];
    lierne_context *device = open_context(rank, "mismatches", true, 30, true);
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(replay_plan(&plan, device, 0, 1) == LIERNE_OK, "planning");
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_OK, "a first call");
    test_capture_begin(rank == 2 ? &other : &stream);
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_ERR_MISMATCH &&
              strstr(lierne_last_error(), "captured into a graph"),
          "captures on some ranks are every rank's error");
    test_graph_destroy(test_capture_end());
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_OK, "and nothing else");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    return NULL;
}

/* The stream reaches a replay and does not pass it. Only the watchdog can find that. */
static void *hangs(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    unsigned char in[REPLAY_BYTES] = {0}, out[REPLAY_BYTES];
    lierne_context *device = open_context(rank, "hangs", true, 1, false);
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(replay_plan(&plan, device, 0, 1) == LIERNE_OK, "planning");
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_OK, "a first call");
    test_capture_begin(&stream);
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_OK, "a call is captured");
    test_graph *graph = test_capture_end();
    for (int i = 0; i < 3; i++) {
        check(test_graph_launch(graph) == LIERNE_OK, "a replay");
    }
    usleep(1500000); /* longer than the timeout: nothing is under way */
    check(lierne_context_get_status(device) == LIERNE_OK, "replays that passed are no failure");
    meet_ranks();
    test_capture_hang(true);
    check(test_graph_launch(graph) == LIERNE_OK, "a replay that hangs");
    lierne_status status = await_failure(device);
    check(status == LIERNE_ERR_TIMEOUT &&
              strstr(lierne_last_error(), "a replay of a captured call"),
          "a replay that hangs is TIMEOUT");
    test_graph_destroy(graph);
    meet_ranks();
    test_capture_hang(false);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    lierne_context_destroy(device);
    return NULL;
}

int main(void) {
    run_ranks(replays);
    run_ranks(rejections);
    run_ranks(mismatches);
    check(lierne_mem_live() == 0, "nothing leaks");
    run_ranks(hangs);
    return print_checks();
}
