/* NCCL's own all-gather, and its all-to-all made of sends and receives, beside lierne's plans over
 * NCCL: a thread and a rank per device. One device is not measured: NCCL with one rank only copies.
 */
#include "gpu.h"

#include "lierne.h"
#include "lierne/cuda.h"
#include "lierne/nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>

enum { MOST_DEVICES = 16, COUNT = 4 << 20 }; /* floats that each rank gives each other one */

static struct {
    __typeof__(&ncclCommInitAll) init_all;
    __typeof__(&ncclCommDestroy) destroy;
    __typeof__(&ncclAllGather) all_gather;
    __typeof__(&ncclSend) send;
    __typeof__(&ncclRecv) receive;
    __typeof__(&ncclGroupStart) start;
    __typeof__(&ncclGroupEnd) end;
} nccl;

static int ndevices;
static ncclComm_t comms[MOST_DEVICES];
static pthread_barrier_t barrier;
static double times[4]; /* of rank 0 */

typedef struct job {
    int rank;
    lierne_plan *plan;
    float *in, *out;
} job;

static void run_all_gather(void *argument, cudaStream_t stream) {
    const job *j = argument;
    gpu_must(nccl.all_gather(j->in, j->out, COUNT, ncclFloat, comms[j->rank], stream) ==
                 ncclSuccess,
             "ncclAllGather");
}

static void run_all_to_all(void *argument, cudaStream_t stream) {
    const job *j = argument;
    bool ok = nccl.start() == ncclSuccess;
    for (int p = 0; p < ndevices; p++) {
        size_t at = (size_t)p * COUNT;
        ok &= nccl.send(j->in + at, COUNT, ncclFloat, p, comms[j->rank], stream) == ncclSuccess;
        ok &= nccl.receive(j->out + at, COUNT, ncclFloat, p, comms[j->rank], stream) == ncclSuccess;
    }
    gpu_must(nccl.end() == ncclSuccess && ok, "ncclSend and ncclRecv");
}

static void run_plan(void *argument, cudaStream_t stream) {
    const job *j = argument;
    gpu_must(lierne_plan_forward(j->plan, j->out, j->in, stream) == LIERNE_OK,
             "a forward over NCCL");
}

static void *run_rank(void *argument) {
    job *j = argument;
    const lierne_all_gather_spec gather = {.size = sizeof gather,
                                           .count = COUNT,
                                           .dtype = LIERNE_DTYPE_F32};
    const lierne_all_to_all_spec all = {.size = sizeof all,
                                        .count = COUNT,
                                        .dtype = LIERNE_DTYPE_F32};
    lierne_context *context = NULL;
    lierne_plan *plans[2] = {NULL, NULL};
    gpu_work *const work[4] = {run_all_gather, run_plan, run_all_to_all, run_plan};
    gpu_must(cudaSetDevice(j->rank) == cudaSuccess, "cudaSetDevice");
    gpu_must(lierne_context_create_nccl(&context, comms[j->rank], NULL) == LIERNE_OK,
             "lierne_context_create_nccl");
    gpu_must(lierne_plan_create_all_gather(&plans[0], context, &gather) == LIERNE_OK, "planning");
    gpu_must(lierne_plan_create_all_to_all(&plans[1], context, &all) == LIERNE_OK, "planning");
    cudaStream_t stream = gpu_stream();
    j->in = gpu_memory((size_t)ndevices * COUNT * sizeof(float));
    j->out = gpu_memory((size_t)ndevices * COUNT * sizeof(float));
    for (int i = 0; i < 4; i++) {
        j->plan = plans[i / 2];
        pthread_barrier_wait(&barrier);
        double seconds = gpu_time(work[i], j, stream);
        times[i] = j->rank == 0 ? seconds : times[i];
    }
    gpu_must(lierne_plan_destroy(plans[0]) == LIERNE_OK, "destroying a plan");
    gpu_must(lierne_plan_destroy(plans[1]) == LIERNE_OK, "destroying a plan");
    gpu_must(lierne_context_destroy(context) == LIERNE_OK, "destroying a context");
    cudaFree(j->in);
    cudaFree(j->out);
    cudaStreamDestroy(stream);
    return NULL;
}

static bool load(void) {
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return false;
    }
    *(void **)&nccl.init_all = dlsym(library, "ncclCommInitAll");
    *(void **)&nccl.destroy = dlsym(library, "ncclCommDestroy");
    *(void **)&nccl.all_gather = dlsym(library, "ncclAllGather");
    *(void **)&nccl.send = dlsym(library, "ncclSend");
    *(void **)&nccl.receive = dlsym(library, "ncclRecv");
    *(void **)&nccl.start = dlsym(library, "ncclGroupStart");
    *(void **)&nccl.end = dlsym(library, "ncclGroupEnd");
    return nccl.init_all && nccl.destroy && nccl.all_gather && nccl.send && nccl.receive &&
           nccl.start && nccl.end;
}

void gpu_bench_peers(void) {
    pthread_t threads[MOST_DEVICES];
    job jobs[MOST_DEVICES];
    cudaGetDeviceCount(&ndevices);
    ndevices = ndevices < MOST_DEVICES ? ndevices : MOST_DEVICES;
    if (ndevices < 2 || !load()) {
        printf("\nNCCL's collectives were not measured: %s\n",
               ndevices < 2 ? "there is one device, and NCCL with one rank only copies"
                            : "libnccl.so.2 is not found");
        return;
    }
    gpu_must(nccl.init_all(comms, ndevices, NULL) == ncclSuccess, "ncclCommInitAll");
    pthread_barrier_init(&barrier, NULL, (unsigned)ndevices);
    for (int r = 0; r < ndevices; r++) {
        jobs[r] = (job){.rank = r};
        pthread_create(&threads[r], NULL, run_rank, &jobs[r]);
    }
    for (int r = 0; r < ndevices; r++) {
        pthread_join(threads[r], NULL);
        nccl.destroy(comms[r]);
    }
    printf("\n%d devices, %zu MiB per pair of ranks\n", ndevices, COUNT * sizeof(float) >> 20);
    printf("  all-gather: NCCL %.3f ms, lierne over NCCL %.3f ms\n", times[0] * 1e3,
           times[1] * 1e3);
    printf("  all-to-all: NCCL %.3f ms, lierne over NCCL %.3f ms\n", times[2] * 1e3,
           times[3] * 1e3);
}
