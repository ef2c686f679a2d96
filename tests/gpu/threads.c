/* Ranks of one process on one GPU over windows: threads, each with streams of its own. Every result
 * has the bits of the same plan on host memory, with data that changes from call to call, and with
 * calls of one plan on two streams; calls whose host runs ahead of the streams, with one request
 * and with three, move what they were given; every round of a window of lierne/window.h has what
 * its ranks wrote. On the emulated device, which knows what each stream comes after, this also
 * shows a flag that orders nothing. Ranks wait for each other before memory is freed, because that
 * waits for every stream of the device. Without a device it says so. Last line: N passed, N failed.
 */
#include "collectives.h"
#include "layouts.h"
#include "lierne/cuda.h"
#include "node_ranks.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 601, OWNED = 50, CALLS = 8, KINDS = 4, ROUNDS = 40, BYTES = RANKS * COUNT * 8 };
/* Of a tensor of DEEP, WIDE and WIDE elements, of which each rank has a part. */
enum { DEEP = 2, WIDE = 8, AHEAD = 4 * DEEP * WIDE * WIDE / RANKS, AHEAD_CALLS = 50 };
_Static_assert(AHEAD *AHEAD_CALLS <= BYTES, "the buffers are as large");

static lierne_status make_plan(lierne_plan **plan, lierne_context *context, int kind) {
    const lierne_all_to_all_spec all = all_to_all_of(COUNT, LIERNE_DTYPE_F64);
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    const lierne_all_reduce_spec sum =
        all_reduce_of(COUNT, LIERNE_DTYPE_BF16, LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
    return kind == 0   ? lierne_plan_create_all_to_all(plan, context, &all)
           : kind == 1 ? lierne_plan_create_all_gather(plan, context, &gather)
           : kind == 2 ? lierne_plan_create_all_reduce(plan, context, &sum)
                       : plan_rows(plan, context, OWNED, COUNT / 3);
}

typedef struct thread_rank {
    int rank;
    lierne_context *host, *device;
    cudaStream_t streams[2];
    unsigned char *in, *out; /* on the device */
    unsigned char from[BYTES], expected[BYTES], got[BYTES];
} thread_rank;

static thread_rank *open_threads(int rank, double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    thread_rank *r = calloc(1, sizeof *r);
    r->rank = rank;
    r->host = open_rank("host", rank, RANKS, &spec);
    r->device = open_rank("device", rank, RANKS, &spec);
    check(lierne_context_use_cuda(r->device) == LIERNE_OK, "lierne_context_use_cuda");
    check(cudaMalloc((void **)&r->in, BYTES) == cudaSuccess, "cudaMalloc");
    check(cudaMalloc((void **)&r->out, BYTES) == cudaSuccess, "cudaMalloc");
    for (int i = 0; i < 2; i++) {
        check(cudaStreamCreateWithFlags(&r->streams[i], cudaStreamNonBlocking) == cudaSuccess,
              "cudaStreamCreate");
    }
    return r;
}

static void close_threads(thread_rank *r) {
    meet_ranks();
    check(lierne_context_destroy(r->device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(r->host) == LIERNE_OK, "destroy");
    meet_ranks();
    for (int i = 0; i < 2; i++) {
        cudaStreamDestroy(r->streams[i]);
    }
    cudaFree(r->in);
    cudaFree(r->out);
    free(r);
}

static void call(thread_rank *r, lierne_plan *host, lierne_plan *device, int number) {
    cudaStream_t stream = r->streams[number / 2 % 2];
    lierne_status (*run)(lierne_plan *, void *, const void *, void *) =
        number % 2 ? lierne_plan_adjoint : lierne_plan_forward;
    for (int i = 0; i < BYTES; i++) { /* no NaN in any dtype */
        r->from[i] = (unsigned char)((i * 31 + r->rank * 17 + number * 7) % 59);
    }
    memset(r->expected, 0xa5, BYTES);
    check(run(host, r->expected, r->from, NULL) == LIERNE_OK, "on host memory");
    cudaMemcpyAsync(r->in, r->from, BYTES, cudaMemcpyHostToDevice, stream);
    cudaMemsetAsync(r->out, 0xa5, BYTES, stream);
    check(run(device, r->out, r->in, stream) == LIERNE_OK, "on the device");
    cudaMemcpyAsync(r->got, r->out, BYTES, cudaMemcpyDeviceToHost, stream);
    check(cudaStreamSynchronize(stream) == cudaSuccess, "a stream");
    check(memcmp(r->got, r->expected, BYTES) == 0, "bits of host memory");
}

static void *compare(void *rank) {
    thread_rank *r = open_threads((int)(intptr_t)rank, 20);
    for (int kind = 0; kind < KINDS; kind++) {
        lierne_plan *host = NULL, *device = NULL;
        check(make_plan(&host, r->host, kind) == LIERNE_OK, "planning on host memory");
        check(make_plan(&device, r->device, kind) == LIERNE_OK, "planning on the device");
        meet_ranks();
        for (int i = 0; i < CALLS && failed_checks() == 0; i++) {
            call(r, host, device, i);
        }
        meet_ranks();
        if (failed_checks() > 0) { /* its rank is dead, and the others would wait for it */
            return NULL;
        }
        check(lierne_plan_destroy(host) == LIERNE_OK, "plan");
        check(lierne_plan_destroy(device) == LIERNE_OK, "plan");
    }
    close_threads(r);
    return NULL;
}

/* From shards of axis 1 to shards of axis 2: scattered at both ends. */
static lierne_status plan_scattered(lierne_plan **plan, lierne_context *context, int requests) {
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {RANKS}};
    const int64_t lengths[] = {DEEP, WIDE, WIDE};
    const lierne_placement from = {.kind = LIERNE_PLACEMENT_SHARD, .axis = 1},
                           to = {.kind = LIERNE_PLACEMENT_SHARD, .axis = 2};
    return plan_between(plan, context, &dp, LIERNE_DTYPE_I32, 3, lengths, &from, &to, requests);
}

/* A message in one phase, in two, and packed; all of an input's bytes are one number. */
static lierne_status make_ahead(lierne_plan **plan, lierne_context *context, int kind,
                                int requests) {
    const lierne_all_to_all_spec all = {.size = sizeof all,
                                        .count = AHEAD / 4 / RANKS,
                                        .dtype = LIERNE_DTYPE_I32,
                                        .max_inflight = requests};
    const lierne_all_reduce_spec sum = {.size = sizeof sum,
                                        .count = AHEAD / 4,
                                        .dtype = LIERNE_DTYPE_I32,
                                        .max_inflight = requests,
                                        .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    return kind == 0   ? lierne_plan_create_all_to_all(plan, context, &all)
           : kind == 1 ? lierne_plan_create_all_reduce(plan, context, &sum)
                       : plan_scattered(plan, context, requests);
}

static int number_of(int rank, int call) {
    return (rank * 17 + call * 7) % 59;
}

static int expected_ahead(int kind, int call, int i) {
    int sum = 0;
    for (int p = 0; p < RANKS; p++) {
        sum += number_of(p, call);
    }
    return kind == 1 ? sum
                     : number_of(kind == 0 ? i * RANKS / AHEAD
                                           : i / (4 * WIDE / RANKS) % WIDE * RANKS / WIDE,
                                 call);
}

/* Ends of calls are delayed as far as the requests allow it. */
static void call_ahead(const thread_rank *r, lierne_plan *plan, int requests, int nstreams) {
    lierne_request *open[AHEAD_CALLS] = {NULL};
    for (int i = 0; i < AHEAD_CALLS + requests - 1; i++) {
        unsigned char *in = r->in + i * AHEAD;
        cudaStream_t stream = r->streams[i % nstreams];
        if (i < AHEAD_CALLS) {
            cudaMemsetAsync(in, number_of(r->rank, i), AHEAD, stream);
            check(lierne_plan_forward_begin(&open[i], plan, r->out + i * AHEAD, in, stream) ==
                      LIERNE_OK,
                  "begin");
        }
        check(i < requests - 1 || lierne_request_end(open[i - requests + 1]) == LIERNE_OK, "end");
    }
    for (int i = 0; i < nstreams; i++) {
        check(cudaStreamSynchronize(r->streams[i]) == cudaSuccess, "a stream");
    }
}

static void *run_ahead(void *rank) {
    thread_rank *r = open_threads((int)(intptr_t)rank, 20);
    for (int i = 0; i < 3 * 3 && failed_checks() == 0; i++) {
        int kind = i / 3, requests = i % 3 == 1 ? 3 : 1;
        lierne_plan *plan = NULL;
        check(make_ahead(&plan, r->device, kind, requests) == LIERNE_OK, "planning");
        meet_ranks();
        call_ahead(r, plan, requests, i % 3 == 2 ? 2 : 1);
        cudaMemcpy(r->got, r->out, AHEAD * AHEAD_CALLS, cudaMemcpyDeviceToHost);
        int wrong = 0;
        for (int k = 0; k < AHEAD * AHEAD_CALLS; k++) {
            wrong += r->got[k] != expected_ahead(kind, k / AHEAD, k % AHEAD);
        }
        check(wrong == 0, "a host that runs ahead");
        meet_ranks();
        check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    }
    if (failed_checks() == 0) {
        close_threads(r);
    }
    return NULL;
}

/* A window of lierne/window.h: kernels are copies here. The host runs ahead of the streams, and the
 * last rounds are compared with those of all ranks. */
static void *run_rounds(void *rank) {
    thread_rank *r = open_threads((int)(intptr_t)rank, 20);
    const lierne_window_spec spec = {.size = sizeof spec, .bytes = 4096};
    lierne_window *w = NULL;
    cudaStream_t stream = r->streams[0];
    check(lierne_window_create(&w, r->device, &spec) == LIERNE_OK, "a window");
    check(lierne_window_notify(w, NULL) == LIERNE_ERR_UNSUPPORTED, "a window without a stream");
    for (int round = 0; round < ROUNDS && failed_checks() == 0; round++) {
        void *own = lierne_window_get_writable(w, r->rank);
        cudaMemsetAsync(own, 16 * r->rank + round % 16, 4096, stream);
        check(lierne_window_notify(w, stream) == LIERNE_OK, "notify");
        check(lierne_window_wait(w, stream) == LIERNE_OK, "wait");
        for (int p = 0; p < RANKS; p++) {
            cudaMemcpyAsync(r->got + (round * RANKS + p) * 16,
                            (const char *)lierne_window_get_readable(w, p) + 4080, 16,
                            cudaMemcpyDeviceToHost, stream);
        }
    }
    check(cudaStreamSynchronize(stream) == cudaSuccess, "a stream");
    for (int i = 0; i < ROUNDS * RANKS * 16; i++) {
        check(r->got[i] == 16 * (i / 16 % RANKS) + i / 16 / RANKS % 16, "bytes of a round");
    }
    check(lierne_window_destroy(w) == LIERNE_OK, "a window");
    close_threads(r);
    return NULL;
}

/* A rank that does not call: the step of the others ends, their streams pass, and the status says
 * so at once, before anything else has looked. */
static void *miss(void *rank) {
    thread_rank *r = open_threads((int)(intptr_t)rank, 2);
    lierne_plan *plan = NULL;
    check(make_plan(&plan, r->device, 0) == LIERNE_OK, "planning on the device");
    meet_ranks();
    if (r->rank > 0) {
        cudaMemsetAsync(r->in, 0x11, BYTES, r->streams[0]);
        check(lierne_plan_forward(plan, r->out, r->in, r->streams[0]) == LIERNE_OK, "a call");
        check(cudaStreamSynchronize(r->streams[0]) == cudaSuccess, "a stream");
        check(lierne_context_get_status(r->device) != LIERNE_OK, "a status after a failure");
    }
    meet_ranks();
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    meet_ranks();
    lierne_context_destroy(r->device);
    r->device = NULL;
    close_threads(r);
    return NULL;
}

int main(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* each rank has three streams */
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: there is no CUDA device\n");
        return print_checks();
    }
    run_ranks(compare);
    run_ranks(run_ahead);
    run_ranks(run_rounds);
    if (failed_checks() == 0) {
        run_ranks(miss);
    }
    return print_checks();
}
