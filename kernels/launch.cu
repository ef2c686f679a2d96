/* One launch per stage, for all its tasks and peers.
 *
 * A block of threads takes tile after tile; a tile is 16 KiB, four pieces of 16 bytes per thread,
 * so that a large copy has enough reads in flight. Nothing is shared between threads and nothing is
 * atomic: runtime/memory/task.h gives every piece one writer, which is what makes the bits those of the
 * host. */
#include "backend/cuda/launch_tasks.h"

#define THREADS 256
#define BLOCKS  4096 /* most of a launch: a few waves on every device so far */

typedef void kernel(lierne_task_table, lierne_task_call, int64_t, int64_t, int64_t);

template <int dtype>
static __global__ void __launch_bounds__(THREADS)
    run_tasks(const lierne_task_table table, const __grid_constant__ lierne_task_call call,
              int64_t first, int64_t end, int64_t tiles) {
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        lierne_task_tile(&table, &call, first, end, tile, (int)threadIdx.x, THREADS, dtype);
    }
}

static kernel *const sums[] = {
    run_tasks<LIERNE_F64>, run_tasks<LIERNE_F32>, run_tasks<LIERNE_BF16>, run_tasks<LIERNE_F16>,
    run_tasks<LIERNE_I64>, run_tasks<LIERNE_I32>, run_tasks<LIERNE_I8>,   run_tasks<LIERNE_U8>,
};
static_assert(LIERNE_F64 == 0 && LIERNE_U8 == 7, "sums is in the order of lierne_dtype");

extern "C" cudaError_t lierne_kernel_launch(const lierne_task_table *table,
                                            const lierne_task_call *call,
                                            const lierne_kernel_tasks *tasks,
                                            cudaStream_t stream) {
    unsigned blocks = tasks->tiles < BLOCKS ? (unsigned)tasks->tiles : BLOCKS;
    kernel *run = tasks->dtype == LIERNE_NO_SUMS ? run_tasks<LIERNE_NO_SUMS> : sums[tasks->dtype];
    run<<<blocks, THREADS, 0, stream>>>(*table, *call, tasks->first, tasks->end, tasks->tiles);
    return cudaGetLastError();
}

/* One thread, and one stream at a time: no atomic is needed. */
static __global__ void advance(volatile uint64_t *epoch) {
    *epoch = *epoch + 1;
    __threadfence_system();
}

extern "C" cudaError_t lierne_kernel_advance(uint64_t *epoch, cudaStream_t stream) {
    advance<<<1, 1, 0, stream>>>(epoch);
    return cudaGetLastError();
}

extern "C" cudaError_t lierne_kernel_load(void) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, run_tasks<LIERNE_NO_SUMS>);
    error = error == cudaSuccess ? cudaFuncGetAttributes(&attributes, advance) : error;
    for (size_t i = 0; i < sizeof sums / sizeof *sums && error == cudaSuccess; i++) {
        error = cudaFuncGetAttributes(&attributes, sums[i]);
    }
    return error;
}
