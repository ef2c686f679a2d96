/* Two ranks of one process on the emulated device, over windows: plans that come and go take no
 * stream each, for a device has few queues, and do not wait for calls that wait for their rank.
 * With an argument only what has too few queues for windows. Last line: N passed, N failed. */
#include "lierne/collective.h"
#include "lierne/cuda.h"
#include "node_ranks.h"

#include "emulator.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { PAIR = 2, COUNT = 5000, BYTES = PAIR * COUNT * 8, PLANS = 5, MANY = 12 };

typedef struct pair_rank {
    int rank;
    lierne_context *context;
    cudaStream_t stream;
    void *in, *out;
} pair_rank;

static pair_rank open_pair(int rank) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 3};
    pair_rank r = {.rank = rank, .context = open_rank("pair", rank, PAIR, &spec)};
    check(lierne_context_use_cuda(r.context) == LIERNE_OK, "lierne_context_use_cuda");
    check(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudaMalloc(&r.in, BYTES) == cudaSuccess && cudaMalloc(&r.out, BYTES) == cudaSuccess &&
              cudaMemsetAsync(r.in, rank, BYTES, r.stream) == cudaSuccess,
          "a stream and buffers");
    meet_ranks();
    return r;
}

static void close_pair(const pair_rank *r) {
    meet_ranks();
    lierne_context_destroy(r->context);
    meet_ranks();
    cudaStreamDestroy(r->stream);
    cudaFree(r->in);
    cudaFree(r->out);
}

static lierne_plan *make_exchange(const pair_rank *r) {
    const lierne_all_to_all_spec spec = {.size = sizeof spec,
                                         .count = COUNT,
                                         .dtype = LIERNE_DTYPE_F64};
    lierne_plan *plan = NULL;
    check(lierne_plan_create_all_to_all(&plan, r->context, &spec) == LIERNE_OK, "planning");
    return plan;
}

static void call(const pair_rank *r, lierne_plan *plan) {
    check(lierne_plan_forward(plan, r->out, r->in, r->stream) == LIERNE_OK, "a call");
}

static void check_passed(const pair_rank *r) {
    check(cudaStreamSynchronize(r->stream) == cudaSuccess &&
              lierne_context_get_status(r->context) == LIERNE_OK,
          "the calls of a stream");
}

static lierne_plan *make_sum(const pair_rank *r) {
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .count = COUNT,
                                         .dtype = LIERNE_DTYPE_BF16,
                                         .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    lierne_plan *plan = NULL;
    check(lierne_plan_create_all_reduce(&plan, r->context, &spec) == LIERNE_OK, "planning");
    return plan;
}

/* What rank 1 frees with a plan (tables, scratch, and counters of many calls in flight) it frees
 * while the call of rank 0 waits for its own, on the same device. */
static void *destroy_while_a_call_waits(void *rank) {
    pair_rank r = open_pair((int)(intptr_t)rank);
    lierne_plan *used = make_exchange(&r), *dropped = make_sum(&r);
    for (int i = 0; i < MANY; i++) {
        call(&r, dropped);
    }
    check_passed(&r);
    meet_ranks();
    if (r.rank == 0) {
        call(&r, used);
    }
    meet_ranks();
    if (r.rank == 1) {
        check(lierne_plan_destroy(dropped) == LIERNE_OK, "a plan");
        call(&r, used);
    }
    check_passed(&r);
    meet_ranks();
    if (r.rank == 0) {
        check(lierne_plan_destroy(dropped) == LIERNE_OK, "a plan");
    }
    check(lierne_plan_destroy(used) == LIERNE_OK, "a plan");
    close_pair(&r);
    return NULL;
}

static void *count_streams(void *rank) {
    pair_rank r = open_pair((int)(intptr_t)rank);
    emulator_take_counts();
    meet_ranks();
    for (int i = 0; i < PLANS; i++) {
        lierne_plan *plan = make_exchange(&r);
        call(&r, plan);
        check_passed(&r);
        check(lierne_plan_destroy(plan) == LIERNE_OK, "a plan");
    }
    meet_ranks();
    if (r.rank == 0) {
        check(emulator_take_counts().streams == 0, "plans use the stream of their context");
    }
    close_pair(&r);
    return NULL;
}

/* Windows need a queue for each stream that may wait for another rank; without them calls go over
 * sockets, and the dump names the variable. */
static void *share_a_queue(void *rank) {
    pair_rank r = open_pair((int)(intptr_t)rank);
    char dump[4096];
    check(lierne_context_dump(dump, sizeof dump, r.context) == LIERNE_OK &&
              strstr(dump, "ipc is not used: ") &&
              strstr(dump, "2 ranks of this process share device 0") &&
              strstr(dump, "CUDA_DEVICE_MAX_CONNECTIONS"),
          "why windows are not used");
    lierne_plan *plan = make_exchange(&r);
    for (int i = 0; i < MANY; i++) {
        call(&r, plan);
    }
    check_passed(&r);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "a plan");
    close_pair(&r);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc == 1) {
        run_n_ranks(PAIR, count_streams);
        run_n_ranks(PAIR, destroy_while_a_call_waits);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "3", 1);
    }
    run_n_ranks(PAIR, share_a_queue);
    return print_checks();
}
