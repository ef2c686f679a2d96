/* What the benchmarks of a GPU share (make bench-gpu). Times are of the device, between two events,
 * unless a line says otherwise; every figure is the best of a few rounds. */
#ifndef LIERNE_BENCH_GPU_H
#define LIERNE_BENCH_GPU_H

#include "lierne.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ends the program, and says what did not work and why, unless ok. */
void gpu_must(bool ok, const char *what);
/* Memory of the current device, filled with bytes that are no zeros and no NaN of any dtype. */
void *gpu_memory(size_t bytes);
cudaStream_t gpu_stream(void);
double gpu_now(void);

/* The best seconds of one call of work, which enqueues on the stream. */
typedef void gpu_work(void *argument, cudaStream_t stream);
double gpu_time(gpu_work *work, void *argument, cudaStream_t stream);

/* Bytes per second that a device-to-device copy of so many bytes reads and writes together. */
double gpu_copy_rate(size_t bytes);

/* product.cu. c = a * b of n x n floats; n is a multiple of 32. */
cudaError_t gpu_product(float *c, const float *a, const float *b, int n, cudaStream_t stream);

/* plans.c. Plans of a world of GPU_RANKS, which end the program if they cannot be made, and what
 * their calls need: input and output of forward, then of adjoint. */
#define GPU_RANKS  8
#define GPU_BRIDGE "bridge of 256 MiB bf16"
#define GPU_ROWS   "20,000 rows of 256 B per rank"
typedef lierne_plan *gpu_make_plan(lierne_context *context);
gpu_make_plan gpu_make_bridge, gpu_make_rows;
void gpu_make_buffers(void *buffers[4], const lierne_plan *plan);
void gpu_call_both(lierne_plan *plan, void *const *buffers, cudaStream_t stream);
/* Bytes of this rank in both directions, as its reports count them. */
typedef struct gpu_bytes {
    int64_t sent, host, window;
} gpu_bytes;
gpu_bytes gpu_count_bytes(const lierne_plan *plan);

/* ranks.c. Virtual ranks: threads with a stream each on the current device. Prints bridges and
 * exchanges of rows; runs a bridge until *stop. */
void gpu_bench_ranks(void);
void gpu_run_bridge_until(const volatile bool *stop, void (*started)(void));

/* peers.c. NCCL's all-gather and all-to-all beside lierne's over NCCL, a rank per device. */
void gpu_bench_peers(void);

#ifdef __cplusplus
}
#endif
#endif
