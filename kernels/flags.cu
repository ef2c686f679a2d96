/* A thread per flag of a step. The block is one warp or two, so that it leaves the processors to
 * what it waits for. */
#include "backend/cuda/launch_flags.h"

extern "C" __global__ void __launch_bounds__(LIERNE_IPC_FLAGS)
    lierne_run_step(const __grid_constant__ lierne_ipc_step step) {
    lierne_ipc_run(&step, (int32_t)threadIdx.x);
}
static_assert(sizeof(lierne_ipc_step) <= 4096, "a step fits into the arguments of a kernel");

const void *const lierne_step_kernel = (const void *)lierne_run_step;
