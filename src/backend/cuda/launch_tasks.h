/* The C interface of the kernels. Every function enqueues on a stream and returns a cudaError_t. */
#ifndef LIERNE_LAUNCH_H
#define LIERNE_LAUNCH_H

#include "runtime/memory/task.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A launch of a program: the tasks first to end - 1 of a table. */
typedef struct lierne_kernel_tasks {
    int64_t first;
    int64_t end;
    int64_t tiles;
    int dtype; /* of the sums among them, or LIERNE_NO_SUMS */
} lierne_kernel_tasks;

/* Runs them; the table is in device memory. */
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
