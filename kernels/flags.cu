/* A thread per flag of a step. The block is one warp or two, so that it leaves the processors to
 * what it waits for. */
#include "backend/cuda/launch_flags.h"

static __global__ void __launch_bounds__(LIERNE_IPC_FLAGS)
    run_step(const __grid_constant__ lierne_ipc_step step) {
    lierne_ipc_run(&step, (int32_t)threadIdx.x);
}
static_assert(sizeof(lierne_ipc_step) <= 4096, "a step fits into the arguments of a kernel");

extern "C" cudaError_t lierne_kernel_flags(const lierne_ipc_step *step, cudaStream_t stream) {
    run_step<<<1, (unsigned)step->n, 0, stream>>>(*step);
    return cudaGetLastError();
}

extern "C" cudaError_t lierne_kernel_flags_load(void) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, run_step);
}
