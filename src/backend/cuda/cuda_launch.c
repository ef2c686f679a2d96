/* Launches by the address of a kernel, which the runtime looks up. Where nvcc writes a launch it
 * keeps a handle in a static variable of the function, which two threads may fill at once: the
 * library is built without guards of such variables. */
#include "backend/cuda/launch_changes.h"
#include "backend/cuda/launch_tasks.h"

#define BLOCKS 4096 /* most of a launch: a few waves on every device so far */

cudaError_t lierne_kernel_launch(const lierne_task_table *table, const lierne_task_call *call,
                                 const lierne_kernel_tasks *tasks, cudaStream_t stream) {
    int number =
        tasks->dtype == LIERNE_NO_SUMS ? LIERNE_TASK_KERNELS - 1 : tasks->dtype - LIERNE_DTYPE_F64;
    const dim3 blocks = {tasks->tiles < BLOCKS ? (unsigned)tasks->tiles : BLOCKS, 1, 1};
    const dim3 threads = {LIERNE_KERNEL_THREADS, 1, 1};
    void *arguments[] = {(void *)table, (void *)call, (void *)&tasks->first, (void *)&tasks->end,
                         (void *)&tasks->tiles};
    return cudaLaunchKernel(lierne_task_kernels[number], blocks, threads, arguments, 0, stream);
}

cudaError_t lierne_kernel_advance(uint64_t *epoch, cudaStream_t stream) {
    const dim3 one = {1, 1, 1};
    void *arguments[] = {&epoch};
    return cudaLaunchKernel(lierne_advance_kernel, one, one, arguments, 0, stream);
}

cudaError_t lierne_kernel_change(const void *kernel, const lierne_change_call *call,
                                 cudaStream_t stream) {
    const dim3 blocks = {call->npieces < BLOCKS ? (unsigned)call->npieces : BLOCKS, 1, 1};
    const dim3 threads = {LIERNE_CHANGE_THREADS, 1, 1};
    void *arguments[] = {(void *)call};
    return cudaLaunchKernel(kernel, blocks, threads, arguments, 0, stream);
}

cudaError_t lierne_kernel_load(void) {
    const void *const others[] = {lierne_advance_kernel, lierne_find_changes_kernel,
                                  lierne_make_changes_kernel};
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 3 && error == cudaSuccess; i++) {
        error = cudaFuncGetAttributes(&attributes, others[i]);
    }
    for (int i = 0; i < LIERNE_TASK_KERNELS && error == cudaSuccess; i++) {
        error = cudaFuncGetAttributes(&attributes, lierne_task_kernels[i]);
    }
    return error;
}
