/* Calls over windows that are captured, and replayed: 4 threads are the ranks of a node, on a
 * device that is played (capture.h), with its windows (ipc.h), against sockets (replay_case.h). A
 * rank that does not replay: the steps of the others end by themselves, and tell. Last line: N
 * passed, N failed. */
#include "capture.h"
#include "ipc.h"
#include "lierne.h"
#include "node_ranks.h"
#include "replay_case.h"
#include "runtime/context/context.h"
#include "tasks.h"

#include <string.h>
#include <unistd.h>

static lierne_memory memory;
static char stream;

static lierne_context *open_device(int rank, const char *name, double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    lierne_context *context = open_rank(name, rank, RANKS, &spec);
    context->memory = &memory;
    context->stream_driver = &test_capture_driver;
    check(lierne_context_open_ipc(context, &test_ipc_driver) == LIERNE_OK, "windows");
    return context;
}

static void *replays(void *argument) {
    int rank = (int)(intptr_t)argument;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 30};
    lierne_context *host = open_rank("host", rank, RANKS, &spec);
    lierne_context *device = open_device(rank, "device", 30);
    for (int kind = 0; kind < REPLAY_KINDS; kind++) {
        lierne_plan *a = NULL, *b = NULL;
        lierne_report report = {.size = sizeof report};
        check(replay_plan(&a, host, kind, 1) == LIERNE_OK, "planning over sockets");
        check(replay_plan(&b, device, kind, 1) == LIERNE_OK, "planning over windows");
        check(lierne_plan_get_report(&report, b, LIERNE_DIRECTION_ADJOINT) == LIERNE_OK &&
                  strcmp(report.transports, "ipc") == 0,
              "the report names the transport");
        replay_calls(a, b, rank, &stream, kind == 0 ? 10000 : 1000);
        check(lierne_plan_destroy(a) == LIERNE_OK, "destroy");
        check(lierne_plan_destroy(b) == LIERNE_OK, "destroy");
    }
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

/* No host is there to give up: the deadline is the steps' own. */
static void *hangs(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    unsigned char in[REPLAY_BYTES] = {0}, out[REPLAY_BYTES];
    lierne_context *device = open_device(rank, "hangs", 1);
    check(replay_plan(&plan, device, 1, 1) == LIERNE_OK, "planning");
    test_capture_begin(&stream);
    check(lierne_plan_forward(plan, out, in, &stream) == LIERNE_OK, "a call is captured");
    test_graph *graph = test_capture_end();
    check(test_graph_launch(graph) == LIERNE_OK, "a replay");
    check(lierne_context_get_status(device) == LIERNE_OK, "a replay that passed is no failure");
    meet_ranks();
    double start = lierne_now();
    if (rank != 1) {
        check(test_graph_launch(graph) == LIERNE_OK, "a replay without rank 1 ends");
        lierne_status status = LIERNE_OK;
        while (status == LIERNE_OK && lierne_now() - start < 20) {
            usleep(1000);
            status = lierne_context_get_status(device);
        }
        check(status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED, "and is an error");
        check(lierne_now() - start < 15, "in time");
        check(lierne_plan_forward(plan, out, in, &stream) == status, "the context is dead");
    }
    test_graph_destroy(graph);
    meet_ranks();
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    lierne_context_destroy(device);
    return NULL;
}

int main(void) {
    memory = test_untouched_memory("cuda");
    run_ranks(replays);
    check(lierne_mem_live() == 0 && test_ipc_live() == 0, "nothing leaks");
    run_ranks(hangs);
    return print_checks();
}
