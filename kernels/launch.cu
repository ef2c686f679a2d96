/* One launch per stage, for all its tasks and peers.
 *
 * A block of threads takes tile after tile; a tile is 16 KiB, four pieces of 16 bytes per thread,
 * so that a large copy has enough reads in flight. Nothing is shared between threads and nothing is
 * atomic: runtime/memory/task.h gives every piece one writer, which is what makes the bits those of
 * the host. */
#include "backend/cuda/launch_tasks.h"

/* One kernel for the sums of each dtype, and one without sums. */
#define RUN_TASKS(name, dtype)                                                                     \
    extern "C" __global__ void __launch_bounds__(LIERNE_KERNEL_THREADS)                            \
        lierne_run_##name(const lierne_task_table table,                                           \
                          const __grid_constant__ lierne_task_call call, int64_t first,            \
                          int64_t end, int64_t tiles) {                                            \
        for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {                         \
            lierne_task_tile(&table, &call, first, end, tile, (int)threadIdx.x,                    \
                             LIERNE_KERNEL_THREADS, dtype);                                        \
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
