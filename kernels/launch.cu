/* One launch per stage, for all its tasks and peers.
 *
 * A block of threads takes tile after tile; a tile is 16 KiB, four pieces of 16 bytes per thread,
 * which are loaded before one is stored, so that a large copy has enough reads in flight. A warp
 * fetches what the tile's threads share. No results are shared between threads and nothing is
 * atomic: runtime/memory/task.h gives every piece one writer, which is what makes the bits those of
 * the host. */
#include "backend/cuda/launch_tasks.h"

#define WARP 32

/* One kernel for the sums of each dtype, and one without sums. */
#define RUN_TASKS(name, dtype)                                                                     \
    extern "C" __global__ void __launch_bounds__(LIERNE_KERNEL_THREADS, LIERNE_KERNEL_BLOCKS)      \
        lierne_run_##name(const lierne_task_table table,                                           \
                          const __grid_constant__ lierne_task_call call, int64_t first,            \
                          int64_t end, int64_t tiles) {                                            \
        __shared__ lierne_tile tile;                                                               \
        for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {                   \
            if (threadIdx.x < WARP) {                                                              \
                lierne_tile_fill(&tile, &table, &call, first, end, number, (int)threadIdx.x,       \
                                 WARP);                                                            \
            }                                                                                      \
            __syncthreads();                                                                       \
            lierne_tile_run(&tile, &table, &call, (int)threadIdx.x, LIERNE_KERNEL_THREADS, dtype); \
            __syncthreads();                                                                       \
        }                                                                                          \
    }
RUN_TASKS(f64, LIERNE_DTYPE_F64)
RUN_TASKS(f32, LIERNE_DTYPE_F32)
RUN_TASKS(bf16, LIERNE_DTYPE_BF16)
RUN_TASKS(f16, LIERNE_DTYPE_F16)
RUN_TASKS(i64, LIERNE_DTYPE_I64)
RUN_TASKS(i32, LIERNE_DTYPE_I32)
RUN_TASKS(i8, LIERNE_DTYPE_I8)
RUN_TASKS(u8, LIERNE_DTYPE_U8)
RUN_TASKS(copies, LIERNE_NO_SUMS)

const void *const lierne_task_kernels[LIERNE_TASK_KERNELS] = {
    (const void *)lierne_run_f64, (const void *)lierne_run_f32,   (const void *)lierne_run_bf16,
    (const void *)lierne_run_f16, (const void *)lierne_run_i64,   (const void *)lierne_run_i32,
    (const void *)lierne_run_i8,  (const void *)lierne_run_u8,    (const void *)lierne_run_copies,
};
static_assert(LIERNE_TASK_KERNELS == LIERNE_DTYPE_U8 - LIERNE_DTYPE_F64 + 2,
              "the sums are in the order of lierne_dtype, before the copies");

/* One thread, and one stream at a time: no atomic is needed. */
extern "C" __global__ void lierne_advance(volatile uint64_t *epoch) {
    *epoch = *epoch + 1;
    __threadfence_system();
}

const void *const lierne_advance_kernel = (const void *)lierne_advance;
