/* Forward and adjoint of a plan in one graph, launched again and again. */
#include "replay_case.h"
#include "bridge_plan.h"

#include "capture.h"
#include "lierne.h"
#include "node_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { INPUTS = 5 };

/* Nothing is sent forward, as all ranks have all; gradients are summed. */
static lierne_status make_bridge(lierne_plan **plan, lierne_context *context) {
    static const int64_t shape[3] = {1, 17, 3};
    lierne_grid *src = grid_of(RANKS, 1, 1, RANKS), *dst = grid_of(1, RANKS, 1, RANKS);
    const lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
    lierne_status status = lierne_plan_create_bridge(plan, context, &spec);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    return status;
}

lierne_status replay_plan(lierne_plan **plan, lierne_context *context, int kind, int inflight) {
    const lierne_all_to_all_spec all = {.size = sizeof all,
                                        .count = REPLAY_COUNT,
                                        .dtype = LIERNE_DTYPE_F32,
                                        .max_inflight = inflight};
    const lierne_all_reduce_spec sum = {.size = sizeof sum,
                                        .count = REPLAY_COUNT,
                                        .dtype = LIERNE_DTYPE_BF16,
                                        .reduction = LIERNE_REDUCTION_SUM,
                                        .max_inflight = inflight,
                                        .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    return kind == 0   ? lierne_plan_create_all_reduce(plan, context, &sum)
           : kind == 1 ? lierne_plan_create_all_to_all(plan, context, &all)
           : kind == 2 ? plan_rows(plan, context, 20, REPLAY_COUNT)
                       : make_bridge(plan, context);
}

typedef lierne_status run_plan(lierne_plan *, void *, const void *, void *);
static run_plan *const run[2] = {lierne_plan_forward, lierne_plan_adjoint};

/* Inputs without NaN in any dtype, and the outputs that sockets give. */
typedef struct values {
    unsigned char in[INPUTS][REPLAY_BYTES], out[2][INPUTS][REPLAY_BYTES];
} values;

static values *make_values(lierne_plan *host, int rank) {
    values *v = malloc(sizeof *v);
    memset(v->out, 0xa5, sizeof v->out);
    for (int k = 0; k < INPUTS; k++) {
        for (int i = 0; i < REPLAY_BYTES; i++) {
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
static void replay(lierne_plan *plan, const values *v, void *stream, int times) {
    static char other;
    unsigned char in[REPLAY_BYTES], out[2][REPLAY_BYTES], aside[REPLAY_BYTES];
    int wrong = 0;
    test_capture_begin(stream);
    for (int d = 0; d < 2; d++) {
        memset(out[d], 0x5a, REPLAY_BYTES);
        check(run[d](plan, out[d], in, stream) == LIERNE_OK, "a call is captured");
        check(out[d][0] == 0x5a, "and not executed");
    }
    test_graph *graph = test_capture_end();
    for (int i = 0; i < times; i++) {
        int k = i * 3 % INPUTS, d = i / 10 % 2;
        memcpy(in, v->in[k], REPLAY_BYTES);
        memset(out, 0xa5, sizeof out);
        wrong += test_graph_launch(graph) != LIERNE_OK;
        wrong += memcmp(out[0], v->out[0][k], REPLAY_BYTES) != 0;
        wrong += memcmp(out[1], v->out[1][k], REPLAY_BYTES) != 0;
        if (i % 10 == 0) {
            k = (k + 1) % INPUTS;
            memset(aside, 0xa5, REPLAY_BYTES);
            wrong += run[d](plan, aside, v->in[k], i % 20 ? stream : &other) != LIERNE_OK;
            wrong += memcmp(aside, v->out[d][k], REPLAY_BYTES) != 0;
        }
    }
    check(wrong == 0, "replays have the bits of sockets");
    test_graph_destroy(graph);
}

void replay_calls(lierne_plan *host, lierne_plan *device, int rank, void *stream, int times) {
    values *v = make_values(host, rank);
    replay(device, v, stream, times);
    free(v);
}
