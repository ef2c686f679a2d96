/* The same plans between processes of a node, over windows, or with the argument "nccl" over NCCL:
 *
 *   launch 8 processes [nccl]
 *
 * Processes share the devices in turn. Times are of rank 0's device, several calls after each
 * other; the ranks keep each other's pace. Without a device it says so. */
#include "gpu.h"

#include "lierne/cuda.h"
#include "lierne/nccl.h"
#include "lierne/node.h"

#include <stdio.h>
#include <string.h>

typedef struct calls {
    lierne_plan *plan;
    void *buffers[4];
} calls;

static void run_calls(void *argument, cudaStream_t stream) {
    const calls *c = argument;
    gpu_call_both(c->plan, c->buffers, stream);
}

/* Of all ranks. */
static gpu_bytes add_bytes(lierne_context *context, gpu_bytes mine, cudaStream_t stream) {
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .count = 3,
                                         .dtype = LIERNE_DTYPE_I64};
    lierne_plan *plan = NULL;
    int64_t *memory = gpu_memory(2 * sizeof mine), numbers[3] = {mine.sent, mine.host, mine.window};
    gpu_must(lierne_plan_create_all_reduce(&plan, context, &spec) == LIERNE_OK, "planning a sum");
    cudaMemcpyAsync(memory, numbers, sizeof numbers, cudaMemcpyHostToDevice, stream);
    gpu_must(lierne_plan_forward(plan, memory + 3, memory, stream) == LIERNE_OK, "a sum");
    cudaMemcpyAsync(numbers, memory + 3, sizeof numbers, cudaMemcpyDeviceToHost, stream);
    gpu_must(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
    gpu_must(lierne_plan_destroy(plan) == LIERNE_OK, "destroying a plan");
    cudaFree(memory);
    return (gpu_bytes){numbers[0], numbers[1], numbers[2]};
}

/* The bound: what ranks send is read and written once, by as many devices as there are. */
static void bench(lierne_context *context, gpu_make_plan *make, const char *title, int devices) {
    cudaStream_t stream = gpu_stream();
    gpu_must(lierne_plan_destroy(make(context)) == LIERNE_OK, "destroying a plan");
    double start = gpu_now();
    calls c = {.plan = make(context)};
    double planned = gpu_now() - start;
    gpu_make_buffers(c.buffers, c.plan);
    gpu_bytes bytes = add_bytes(context, gpu_count_bytes(c.plan), stream);
    double seconds = gpu_time(run_calls, &c, stream);
    if (lierne_context_get_rank(context) == 0) {
        int used = devices < GPU_RANKS ? devices : GPU_RANKS;
        double bound = 2 * (double)bytes.sent / used / gpu_copy_rate((size_t)256 << 20);
        printf("  %s, forward and adjoint: %.3f ms; %.1f MB between ranks, %.2f times the copy "
               "bound; %.1f MB copied into windows; planned in %.2f ms\n",
               title, seconds * 1e3, (double)bytes.sent / 1e6, seconds / bound,
               (double)bytes.window / 1e6, planned * 1e3);
    }
    gpu_must(lierne_plan_destroy(c.plan) == LIERNE_OK, "destroying a plan");
    for (int i = 0; i < 4; i++) {
        cudaFree(c.buffers[i]);
    }
    cudaStreamDestroy(stream);
}

int main(int argc, char **argv) {
    lierne_context *context = NULL;
    bool nccl = argc > 1 && strcmp(argv[1], "nccl") == 0;
    int devices = 0;
    bool any = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    gpu_must(lierne_context_create_node(&context, NULL) == LIERNE_OK, "a context of a node");
    int rank = lierne_context_get_rank(context), world = lierne_context_get_world_size(context);
    if (any && world == GPU_RANKS) {
        gpu_must(cudaSetDevice(rank % devices) == cudaSuccess, "cudaSetDevice");
        gpu_must(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
        gpu_must(!nccl || lierne_context_use_nccl(context, NULL) == LIERNE_OK,
                 "lierne_context_use_nccl");
        if (rank == 0) {
            printf("\n%d processes on %d devices, over %s\n", world, devices,
                   nccl ? "NCCL" : "windows");
        }
        bench(context, gpu_make_bridge, GPU_BRIDGE, devices);
        bench(context, gpu_make_rows, GPU_ROWS, devices);
    } else if (rank == 0) {
        printf("nothing was measured between processes: there are %d devices and %d processes, "
               "must be %d\n",
               devices, world, GPU_RANKS);
    }
    return lierne_context_destroy(context) != LIERNE_OK;
}
