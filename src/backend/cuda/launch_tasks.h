/* The kernels of tasks, and their launches. Functions return a cudaError_t. */
#ifndef LIERNE_LAUNCH_H
#define LIERNE_LAUNCH_H

#include "runtime/memory/task.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In kernels/: what cudaLaunchKernel takes. Those of tasks by lierne_dtype from F64 on, then the
 * one for launches without sums. */
#define LIERNE_KERNEL_THREADS 256 /* of a block */
#define LIERNE_KERNEL_BLOCKS  4   /* that a processor has space for at least: half of its threads */
#define LIERNE_TASK_KERNELS   9
extern const void *const lierne_task_kernels[LIERNE_TASK_KERNELS];
extern const void *const lierne_advance_kernel;

/* A launch of a program: the tasks first to end - 1 of a table. */
typedef struct lierne_kernel_tasks {
    int64_t first;
    int64_t end;
    int64_t tiles;
    int dtype; /* of the sums among them, or LIERNE_NO_SUMS */
} lierne_kernel_tasks;

/* Runs them on a stream; the table is in device memory. */
cudaError_t lierne_kernel_launch(const lierne_task_table *table, const lierne_task_call *call,
                                 const lierne_kernel_tasks *tasks, cudaStream_t stream);

/* Adds 1 to an epoch, which the host can read, after all that was enqueued before. */
cudaError_t lierne_kernel_advance(uint64_t *epoch, cudaStream_t stream);

/* Loads the kernels of the current device, which would otherwise happen in the first launch. */
cudaError_t lierne_kernel_load(void);

#ifdef __cplusplus
}
#endif
#endif
