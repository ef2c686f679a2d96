/* What a GPU needs for lierne's work, in one run:
 *
 *   gpu
 *
 * a device-to-device copy by size; gathered rows and their sums by size, against it; bridges and
 * rows between virtual ranks; how much a matrix product slows down beside a bridge; NCCL's
 * collectives, where there are several devices. Without a device it says why nothing was measured.
 * Figures are printed and not judged. */
#include "gpu.h"

#include "lierne.h"
#include "lierne/cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)

static void bench_copies(void) {
    printf("\ndevice-to-device copies, bytes read and written\n");
    for (size_t bytes = MIB; bytes <= 256 * MIB; bytes *= 4) {
        printf("  %4zu MiB  %8.1f GB/s\n", bytes / MIB, gpu_copy_rate(bytes) / 1e9);
    }
}

typedef struct call {
    lierne_plan *plan;
    void *in, *out;
    bool adjoint;
} call;

static void run_call(void *argument, cudaStream_t stream) {
    const call *c = argument;
    gpu_must((c->adjoint ? lierne_plan_adjoint : lierne_plan_forward)(c->plan, c->out, c->in,
                                                                      stream) == LIERNE_OK,
             "a call");
}

/* Rows of one rank that the rank itself refers to, in a scattered order: a list kernel, and sums of
 * about two gradients per row. */
static lierne_plan *scattered_rows(lierne_context *context, int64_t rows, int64_t width) {
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_plan *plan = NULL;
    int32_t *rank = calloc((size_t)rows, sizeof *rank);
    int64_t *row = malloc((size_t)rows * sizeof *row);
    for (int64_t i = 0; i < rows; i++) {
        row[i] = i * 7919 % (rows / 2);
    }
    spec.nowned = rows / 2;
    spec.nghosts = rows;
    spec.rank = rank;
    spec.row = row;
    spec.width = width;
    spec.dtype = LIERNE_DTYPE_F32;
    gpu_must(lierne_plan_create_references(&plan, context, &spec) == LIERNE_OK, "planning rows");
    free(rank);
    free(row);
    return plan;
}

static void bench_rows(lierne_context *context, size_t bytes, size_t row_bytes) {
    cudaStream_t stream = gpu_stream();
    call c = {.in = gpu_memory(bytes), .out = gpu_memory(bytes)};
    c.plan = scattered_rows(context, (int64_t)(bytes / row_bytes), (int64_t)(row_bytes / 4));
    double copied = gpu_copy_rate(bytes);
    double forward = 2 * (double)bytes / gpu_time(run_call, &c, stream);
    c.adjoint = true;
    double adjoint = 1.5 * (double)bytes / gpu_time(run_call, &c, stream);
    printf("  %4zu MiB, rows of %5zu B:  gathered %8.1f GB/s (%.2f of a copy), summed %8.1f GB/s "
           "(%.2f)\n",
           bytes / MIB, row_bytes, forward / 1e9, forward / copied, adjoint / 1e9,
           adjoint / copied);
    gpu_must(lierne_plan_destroy(c.plan) == LIERNE_OK, "destroying a plan");
    cudaFree(c.in);
    cudaFree(c.out);
    cudaStreamDestroy(stream);
}

/* The best milliseconds of planning scattered rows and destroying the plan, without a call. */
static double time_planning(lierne_context *context, int64_t rows) {
    double best = 1e30;
    for (int i = 0; i < 10; i++) {
        double start = gpu_now();
        lierne_plan *plan = scattered_rows(context, rows, 64);
        gpu_must(lierne_plan_destroy(plan) == LIERNE_OK, "destroying a plan");
        double seconds = gpu_now() - start;
        best = seconds < best ? seconds : best;
    }
    return best * 1e3;
}

/* Microseconds of the host for a call of few rows, which the device has long done by the next one.
 */
static double time_call(lierne_context *context) {
    enum { CALLS = 1000 };
    cudaStream_t stream = gpu_stream();
    call c = {.in = gpu_memory(MIB),
              .out = gpu_memory(MIB),
              .plan = scattered_rows(context, 64, 4)};
    double seconds = 0;
    for (int i = -10; i < CALLS; i++) { /* below 0: not counted */
        double start = gpu_now();
        run_call(&c, stream);
        seconds += i < 0 ? 0 : gpu_now() - start;
        gpu_must(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
    }
    gpu_must(lierne_plan_destroy(c.plan) == LIERNE_OK, "destroying a plan");
    cudaFree(c.in);
    cudaFree(c.out);
    cudaStreamDestroy(stream);
    return seconds / CALLS * 1e6;
}

static void bench_planning(lierne_context *context) {
    lierne_context *host = NULL;
    gpu_must(lierne_context_create_self(&host, NULL) == LIERNE_OK, "a context");
    printf("\nplanning scattered rows of one rank, and destroying the plan, time of the host\n");
    for (int64_t rows = 100; rows <= 100000; rows *= 1000) {
        printf("  %6lld rows: %.3f ms for a device, %.3f ms for host memory\n", (long long)rows,
               time_planning(context, rows), time_planning(host, rows));
    }
    printf("  a call enqueues in %.1f us\n", time_call(context));
    lierne_context_destroy(host);
}

static void bench_kernels(void) {
    static const size_t row_bytes[] = {64, 128, 256, 1024, 8192};
    lierne_context *context = NULL;
    gpu_must(lierne_context_create_self(&context, NULL) == LIERNE_OK, "a context");
    gpu_must(lierne_context_use_cuda(context) == LIERNE_OK, "lierne_context_use_cuda");
    printf("\nscattered rows of one rank, bytes read and written, of f32\n");
    for (size_t bytes = MIB; bytes <= 64 * MIB; bytes *= 4) {
        for (size_t i = 0; i < sizeof row_bytes / sizeof *row_bytes; i++) {
            bench_rows(context, bytes, row_bytes[i]);
        }
    }
    bench_planning(context);
    lierne_context_destroy(context);
}

enum { PRODUCT = 4096 };

static void run_product(void *argument, cudaStream_t stream) {
    float *const *m = argument;
    gpu_must(gpu_product(m[0], m[1], m[2], PRODUCT, stream) == cudaSuccess, "a product");
}

static pthread_barrier_t bridging;
static volatile bool stop;

static void tell_started(void) {
    pthread_barrier_wait(&bridging);
}

static void *run_bridge(void *unused) {
    gpu_run_bridge_until(&stop, tell_started);
    return unused;
}

static void bench_product(void) {
    float *m[3];
    pthread_t thread;
    cudaStream_t stream = gpu_stream();
    for (int i = 0; i < 3; i++) {
        m[i] = gpu_memory(sizeof(float) * PRODUCT * PRODUCT);
    }
    double alone = gpu_time(run_product, m, stream);
    pthread_barrier_init(&bridging, NULL, 2);
    pthread_create(&thread, NULL, run_bridge, NULL);
    pthread_barrier_wait(&bridging);
    double beside = gpu_time(run_product, m, stream);
    stop = true;
    pthread_join(thread, NULL);
    printf(
        "\na product of %d x %d floats: %.2f ms alone, %.2f ms beside a bridge between 8 virtual "
        "ranks (%.2f times)\n",
        PRODUCT, PRODUCT, alone * 1e3, beside * 1e3, beside / alone);
    for (int i = 0; i < 3; i++) {
        cudaFree(m[i]);
    }
    cudaStreamDestroy(stream);
}

int main(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* or 8 virtual ranks have no windows */
    char summary[1024] = "";
    int devices = 0;
    lierne_cuda_get_summary(summary, sizeof summary);
    printf("%s\n", summary);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("nothing was measured: there is no CUDA device that can be used (%s)\n",
               cudaGetErrorString(cudaGetLastError()));
        return 0;
    }
    bench_copies();
    bench_kernels();
    gpu_bench_ranks();
    bench_product();
    gpu_bench_peers();
    return 0;
}
