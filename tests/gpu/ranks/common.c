/* Plans are small, so that thousands of calls take seconds. */
#include "common.h"
#include "collectives.h"

#include "lierne/cuda.h"
#include "lierne/nccl.h"
#include "lierne/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not there where lierne is built without NCCL. */
extern __typeof__(lierne_context_use_nccl) lierne_context_use_nccl __attribute__((weak));

int rank, world;
static int passed, failed;

void check(bool good, const char *what) {
    passed += good;
    failed += !good;
    if (!good) {
        printf("FAIL rank %d, %s: %s; %s\n", rank, what, lierne_last_error(),
               cudaGetErrorString(cudaGetLastError()));
    }
}

void must(bool good, const char *what) {
    check(good, what);
    if (!good) {
        exit(ranks_end());
    }
}

int ranks_end(void) {
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}

static lierne_context *open_one(const char *name, double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    const lierne_node_spec node = {.size = sizeof node, .name = name, .context = &spec};
    lierne_context *context = NULL;
    must(lierne_context_create_node(&context, &node) == LIERNE_OK, "a context of the node");
    return context;
}

void ranks_open(lierne_context **host, lierne_context **device, double timeout) {
    const char *executor = getenv("LIERNE_TEST_EXECUTOR");
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: there is no CUDA device\n");
        exit(ranks_end());
    }
    *host = open_one("host", 60);
    *device = open_one("device", timeout);
    rank = lierne_context_get_rank(*host);
    world = lierne_context_get_world_size(*host);
    must(cudaSetDevice(rank % devices) == cudaSuccess, "cudaSetDevice");
    must(lierne_context_use_cuda(*device) == LIERNE_OK, "lierne_context_use_cuda");
    if (executor && strcmp(executor, "nccl") == 0) {
        must(lierne_context_use_nccl != NULL, "lierne is built with NCCL");
        must(lierne_context_use_nccl(*device, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    }
}

static lierne_plan *plan_rows(lierne_context *context) {
    enum { OWNED = 20 };
    int32_t owner[RANKS_COUNT];
    int64_t row[RANKS_COUNT];
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_plan *plan = NULL;
    for (int i = 0; i < RANKS_COUNT; i++) { /* the same on every rank */
        owner[i] = i * 7 % world;
        row[i] = i * 13 % OWNED;
    }
    spec.nowned = OWNED;
    spec.nghosts = RANKS_COUNT;
    spec.rank = owner;
    spec.row = row;
    spec.width = 3;
    spec.dtype = LIERNE_DTYPE_F16;
    must(lierne_plan_create_references(&plan, context, &spec) == LIERNE_OK, "planning rows");
    return plan;
}

lierne_plan *ranks_plan(lierne_context *context, int kind) {
    const lierne_all_reduce_spec sum =
        all_reduce_of(RANKS_COUNT, LIERNE_DTYPE_BF16, LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
    const lierne_all_to_all_spec all = all_to_all_of(RANKS_COUNT, LIERNE_DTYPE_F32);
    lierne_plan *plan = NULL;
    if (kind == 2) {
        return plan_rows(context);
    }
    must((kind == 0 ? lierne_plan_create_all_reduce(&plan, context, &sum)
                    : lierne_plan_create_all_to_all(&plan, context, &all)) == LIERNE_OK,
         "planning");
    return plan;
}

size_t ranks_bytes(const lierne_plan *plan, int direction, int output) {
    int64_t elements[2];
    lierne_dtype dtype = LIERNE_DTYPE_F64;
    must(lierne_plan_get_elements(&elements[0], &elements[1], plan, (lierne_direction)direction) ==
                 LIERNE_OK &&
             lierne_plan_get_dtype(&dtype, plan) == LIERNE_OK,
         "sizes");
    return (size_t)elements[output] * lierne_dtype_size(dtype);
}
