/* Loads and stores of global memory by the kernels of tasks, counted by the emulated device, for
 * each kind of work; the results are those of the host's functions. A copy loads a piece for each
 * that it stores, a sum one per source; what is above that is the table, which a tile's threads
 * read together. Instructions bound kernels on a device: there are bounds of them, too. Last line:
 * N passed, N failed. */
#include "check.h"

#include "backend/cuda/cuda_memory.h"
#include "emulator.h"
#include "runtime/memory/host.h"
#include "runtime/memory/memory.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20, MOST = 20, ROWS = 64 };

/* A kind of work: the blocks of the target and of all sources, in elements. */
typedef struct kind {
    const char *name;
    lierne_dtype dtype;
    lierne_block to, from;
    size_t nfrom;
    double most;      /* loads per store */
    int instructions; /* most per store */
} kind;

static const int64_t rows[ROWS] = {5, 3, 60, 12};

static const kind kinds[] = {
    {"copy, contiguous",
     LIERNE_DTYPE_F32,
     {.ndims = 1, .count = {200000}, .stride = {1}},
     {.ndims = 1, .count = {200000}, .stride = {1}},
     1,
     1.5,
     140},
    {"copy, runs of 192 bytes",
     LIERNE_DTYPE_F32,
     {.ndims = 3, .count = {64, 32, 48}, .stride = {1536, 48, 1}},
     {.ndims = 3, .count = {64, 32, 48}, .stride = {2048, 64, 1}},
     1,
     1.5,
     230},
    {"copy, transposed",
     LIERNE_DTYPE_F32,
     {.ndims = 2, .count = {256, 96}, .stride = {96, 1}},
     {.ndims = 2, .count = {256, 96}, .stride = {1, 256}},
     1,
     1.5,
     190},
    {"copy, rows of a list",
     LIERNE_DTYPE_F64,
     {.ndims = 2, .count = {ROWS, 128}, .stride = {128, 1}},
     {.ndims = 2, .count = {ROWS, 128}, .stride = {256, 1}, .rows = rows},
     1,
     2.5,
     195},
    {"zeros",
     LIERNE_DTYPE_F32,
     {.ndims = 1, .count = {100000}, .stride = {1}},
     {.ndims = 1, .count = {100000}, .stride = {1}},
     0,
     0.5,
     100},
    {"sum of 2, contiguous",
     LIERNE_DTYPE_F32,
     {.ndims = 1, .count = {100000}, .stride = {1}},
     {.ndims = 1, .count = {100000}, .stride = {1}},
     2,
     2.5,
     280},
    {"sum of 2, runs of 96 bytes",
     LIERNE_DTYPE_BF16,
     {.ndims = 2, .count = {512, 48}, .stride = {48, 1}},
     {.ndims = 2, .count = {512, 48}, .stride = {64, 1}},
     2,
     3,
     470},
    {"sum of 8, contiguous",
     LIERNE_DTYPE_I32,
     {.ndims = 1, .count = {30000}, .stride = {1}},
     {.ndims = 1, .count = {30000}, .stride = {1}},
     8,
     9,
     590},
    {"sum of 20, contiguous",
     LIERNE_DTYPE_I64,
     {.ndims = 1, .count = {4096}, .stride = {1}},
     {.ndims = 1, .count = {4096}, .stride = {1}},
     MOST,
     50,
     1400},
};

static unsigned char *from[MOST], expected[BYTES], got[BYTES];
static char *to_device, *from_device[MOST];

static void run_on_host(const kind *k) {
    lierne_contribution c[MOST];
    for (size_t i = 0; i < k->nfrom; i++) {
        c[i] = (lierne_contribution){from[i], &k->from};
    }
    memset(expected, 0x5a, BYTES);
    if (k->nfrom > 1) {
        lierne_host_reduce(k->dtype, LIERNE_REDUCTION_SUM, 1, expected, &k->to, c, k->nfrom);
    } else if (k->nfrom == 1) {
        lierne_host_copy(lierne_dtype_size(k->dtype), expected, &k->to, from[0], &k->from);
    } else {
        lierne_host_zero(lierne_dtype_size(k->dtype), expected, &k->to);
    }
}

/* Every list, and every launch of contiguous copies, by the kernel: not by the copy engine. */
static void record(lierne_program *p, const kind *k, lierne_task_call *call) {
    lierne_operand operands[MOST];
    call->bases[0] = to_device;
    for (size_t i = 0; i < k->nfrom; i++) {
        operands[i] = (lierne_operand){(int)i + 1, (int)i + 1, 0, &k->from};
        call->bases[i + 1] = from_device[i];
    }
    const lierne_work work = {.kind = k->nfrom > 1    ? LIERNE_TASK_REDUCE
                                      : k->nfrom == 1 ? LIERNE_TASK_COPY
                                                      : LIERNE_TASK_ZERO,
                              .size = lierne_dtype_size(k->dtype),
                              .dtype = k->dtype,
                              .divisor = 1,
                              .to = {0, 0, 0, &k->to},
                              .from = operands,
                              .nfrom = k->nfrom};
    check(lierne_program_open(p) == LIERNE_OK && lierne_program_add(p, &work, true) == LIERNE_OK,
          "recording");
    p->launches.at[0].contiguous = false;
    lierne_task_call_align(call, k->nfrom + 1);
}

static void count(const kind *k, cudaStream_t stream) {
    lierne_program p = {0};
    lierne_task_call call = {.reduction = LIERNE_REDUCTION_SUM};
    record(&p, k, &call);
    cudaMemsetAsync(to_device, 0x5a, BYTES, stream);
    check(lierne_cuda_memory.prepare(&p, stream) == LIERNE_OK, "preparing");
    emulator_take_counts();
    check(lierne_cuda_memory.launch(&p, 0, &call, stream) == LIERNE_OK, "a launch");
    cudaStreamSynchronize(stream);
    const emulator_counts counts = emulator_take_counts();
    cudaMemcpyAsync(got, to_device, BYTES, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    run_on_host(k);
    double each = (double)counts.loads / (double)counts.stores;
    double executed = (double)counts.instructions / (double)counts.stores;
    printf("%-28s %-5s %8llu loads %8llu stores %6.2f loads per store, %4.0f instructions\n",
           k->name, k->nfrom > 1 ? lierne_dtype_name(k->dtype) : "-",
           (unsigned long long)counts.loads, (unsigned long long)counts.stores, each, executed);
    check(memcmp(expected, got, BYTES) == 0, "values of the host");
    check(each <= k->most && executed <= k->instructions, k->name);
    lierne_cuda_memory.discard(&p, stream);
    lierne_program_destroy(&p);
}

int main(void) {
    cudaStream_t stream = NULL;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc((void **)&to_device, BYTES);
    for (int i = 0; i < MOST; i++) {
        from[i] = malloc(BYTES);
        for (int at = 0; at < BYTES; at++) {
            from[i][at] = (unsigned char)((at * 31 + i * 17) % 59);
        }
        cudaMalloc((void **)&from_device[i], BYTES);
        cudaMemcpyAsync(from_device[i], from[i], BYTES, cudaMemcpyHostToDevice, stream);
    }
    cudaStreamSynchronize(stream);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        count(&kinds[i], stream);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
