/* Calls that are captured, and replayed: 4 threads are the ranks of a node, on a device that is
 * played (capture.h) and over a NCCL that is played (fake.h). A two-stage sum 10,000 times, all-to-
 * alls and rows 1,000 times, with inputs that change, and calls between that are not captured: all
 * against sockets, bit by bit. What cannot be captured; a replay that hangs. Last line: N passed, N
 * failed. */
#include "capture.h"
#include "context/context.h"
#include "fake.h"
#include "node_ranks.h"
#include "tasks.h"

#include "lierne.h"
#include "lierne/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 53, BYTES = RANKS * COUNT * 4, INPUTS = 5, KINDS = 3 };

static lierne_memory memory;
static char stream, other;

static lierne_context *open_context(int rank, const char *name, bool device, double timeout,
                                    bool checks) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout, .check = checks};
    lierne_context *context = open_rank(name, rank, RANKS, &spec);
    if (device) {
        context->memory = &memory;
        context->stream_driver = &test_capture_driver;
    }
    return context;
}

static lierne_status make_plan(lierne_plan **plan, lierne_context *context, int kind,
                               int inflight) {
    const lierne_all_to_all_spec all = {.size = sizeof all,
                                        .count = COUNT,
                                        .dtype = LIERNE_F32,
                                        .max_inflight = inflight};
    const lierne_all_reduce_spec sum = {.size = sizeof sum,
                                        .count = COUNT,
                                        .dtype = LIERNE_BF16,
                                        .reduction = LIERNE_SUM,
                                        .max_inflight = inflight,
                                        .algorithm = LIERNE_COLLECTIVE_TWO_SHOT};
    return kind == 0   ? lierne_plan_create_all_reduce(plan, context, &sum)
           : kind == 1 ? lierne_plan_create_all_to_all(plan, context, &all)
                       : plan_rows(plan, context, 20, COUNT);
}

typedef lierne_status run_plan(lierne_plan *, void *, const void *, void *);
static run_plan *const run[2] = {lierne_forward, lierne_adjoint};

/* Inputs without NaN in any dtype, and the outputs that sockets give. */
typedef struct values {
    unsigned char in[INPUTS][BYTES], out[2][INPUTS][BYTES];
} values;

static values *make_values(lierne_plan *host, int rank) {
    values *v = malloc(sizeof *v);
    memset(v->out, 0xa5, sizeof v->out);
    for (int k = 0; k < INPUTS; k++) {
        for (int i = 0; i < BYTES; i++) {
            v->in[k][i] = (unsigned char)((i * 31 + rank * 17 + k * 7) % 59);
        }
        for (int d = 0; d < 2; d++) {
            check(run[d](host, v->out[d][k], v->in[k], NULL) == LIERNE_OK, "sockets");
        }
    }
    return v;
}

/* Forward and adjoint of one plan in one graph; every tenth time, calls between on other buffers.
 */
static void replay(lierne_plan *plan, const values *v, int times) {
    unsigned char in[BYTES], out[2][BYTES], aside[BYTES];
    int wrong = 0;
    test_capture_begin(&stream);
    for (int d = 0; d < 2; d++) {
        memset(out[d], 0x5a, BYTES);
        check(run[d](plan, out[d], in, &stream) == LIERNE_OK, "a call is captured");
        check(out[d][0] == 0x5a, "and not executed");
    }
    test_graph *graph = test_capture_end();
    for (int i = 0; i < times; i++) {
        int k = i * 3 % INPUTS, d = i / 10 % 2;
        memcpy(in, v->in[k], BYTES);
        memset(out, 0xa5, sizeof out);
        wrong += test_graph_launch(graph) != LIERNE_OK;
        wrong += memcmp(out[0], v->out[0][k], BYTES) != 0;
        wrong += memcmp(out[1], v->out[1][k], BYTES) != 0;
        if (i % 10 == 0) {
            k = (k + 1) % INPUTS;
            memset(aside, 0xa5, BYTES);
            wrong += run[d](plan, aside, v->in[k], i % 20 ? &stream : &other) != LIERNE_OK;
            wrong += memcmp(aside, v->out[d][k], BYTES) != 0;
        }
    }
    check(wrong == 0, "replays have the bits of sockets");
    test_graph_destroy(graph);
}

static void *replays(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *host = open_context(rank, "host", false, 30, false);
    lierne_context *device =
        open_context(rank, "device", true, 3, false); /* of each replay, not of all */
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    for (int kind = 0; kind < KINDS; kind++) {
        lierne_plan *a = NULL, *b = NULL;
        check(make_plan(&a, host, kind, 1) == LIERNE_OK, "planning over sockets");
        check(make_plan(&b, device, kind, 1) == LIERNE_OK, "planning over nccl");
        values *v = make_values(a, rank);
        unsigned char out[BYTES];
        for (int d = 0; d < 2; d++) {
            check(run[d](b, out, v->in[0], &stream) == LIERNE_OK, "a first call");
        }
        replay(b, v, kind == 0 ? 10000 : 1000);
        check(lierne_plan_destroy(a) == LIERNE_OK, "destroy");
        check(lierne_plan_destroy(b) == LIERNE_OK, "destroy");
        free(v);
    }
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    return NULL;
}

/* A capture in which a call must fail with these words, and what was begun is nothing. */
static void rejects(lierne_plan *plan, const char *words) {
    static unsigned char in[BYTES], out[RANKS][BYTES];
    test_capture_begin(&stream);
    check(lierne_forward(plan, out[0], in, &stream) == LIERNE_UNSUPPORTED &&
              strstr(lierne_last_error(), words),
          words);
    test_graph *graph = test_capture_end();
    check(test_graph_launch(graph) == LIERNE_OK, "nothing was captured");
    test_graph_destroy(graph);
}

static void *rejections(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    unsigned char in[BYTES] = {0}, out[BYTES];
    lierne_context *device = open_context(rank, "rejections", true, 30, false);
    check(make_plan(&plan, device, 0, 1) == LIERNE_OK, "planning over sockets");
    check(lierne_forward(plan, out, in, &stream) == LIERNE_OK, "over sockets");
    rejects(plan, "the host must poll messages of transport socket");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(make_plan(&plan, device, 0, 2) == LIERNE_OK, "planning");
    check(lierne_forward(plan, out, in, &stream) == LIERNE_OK, "a first call");
    rejects(plan, "the plan has 2 requests (max_inflight), must have 1");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(make_plan(&plan, device, 0, 1) == LIERNE_OK, "planning");
    rejects(plan, "call it once without a capture before");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    return NULL;
}

/* In a context that checks, one rank executes what the others capture. */
static void *mismatches(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    unsigned char in[BYTES] = {0}, out[BYTES];
    lierne_context *device = open_context(rank, "mismatches", true, 30, true);
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(make_plan(&plan, device, 0, 1) == LIERNE_OK, "planning");
    check(lierne_forward(plan, out, in, &stream) == LIERNE_OK, "a first call");
    test_capture_begin(rank == 2 ? &other : &stream);
    check(lierne_forward(plan, out, in, &stream) == LIERNE_MISMATCH &&
              strstr(lierne_last_error(), "captured into a graph"),
          "captures on some ranks are every rank's error");
    test_graph_destroy(test_capture_end());
    check(lierne_forward(plan, out, in, &stream) == LIERNE_OK, "and nothing else");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    return NULL;
}

/* The stream reaches a replay and does not pass it. Only the watchdog can find that. */
static void *hangs(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plan = NULL;
    unsigned char in[BYTES] = {0}, out[BYTES];
    lierne_context *device = open_context(rank, "hangs", true, 1, false);
    check(lierne_context_use_nccl(device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(make_plan(&plan, device, 0, 1) == LIERNE_OK, "planning");
    check(lierne_forward(plan, out, in, &stream) == LIERNE_OK, "a first call");
    test_capture_begin(&stream);
    check(lierne_forward(plan, out, in, &stream) == LIERNE_OK, "a call is captured");
    test_graph *graph = test_capture_end();
    for (int i = 0; i < 3; i++) {
        check(test_graph_launch(graph) == LIERNE_OK, "a replay");
    }
    usleep(1500000); /* longer than the timeout: nothing is under way */
    check(lierne_context_get_status(device) == LIERNE_OK, "replays that passed are no failure");
    meet_ranks();
    test_capture_hang(true);
    check(test_graph_launch(graph) == LIERNE_OK, "a replay that hangs");
    lierne_status status = LIERNE_OK;
    for (double start = lierne_now(); status == LIERNE_OK && lierne_now() - start < 20;) {
        usleep(1000);
        status = lierne_context_get_status(device);
    }
    check(status == LIERNE_TIMEOUT && strstr(lierne_last_error(), "a replay of a captured call"),
          "a replay that hangs is TIMEOUT");
    test_graph_destroy(graph);
    meet_ranks();
    test_capture_hang(false);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    lierne_context_destroy(device);
    return NULL;
}

int main(void) {
    memory = test_untouched_memory("cuda");
    run_ranks(replays);
    run_ranks(rejections);
    run_ranks(mismatches);
    check(lierne_mem_live() == 0, "nothing leaks");
    run_ranks(hangs);
    return print_checks();
}
