/* Stands in for what nvcc makes of kernels/: the address of a kernel is its name. */
#include "backend/cuda/launch_changes.h"
#include "backend/cuda/launch_flags.h"
#include "backend/cuda/launch_tasks.h"

const void *const lierne_task_kernels[LIERNE_TASK_KERNELS] = {
    "lierne_run_f64", "lierne_run_f32", "lierne_run_bf16", "lierne_run_f16",    "lierne_run_i64",
    "lierne_run_i32", "lierne_run_i8",  "lierne_run_u8",   "lierne_run_copies",
};
const void *const lierne_advance_kernel = "lierne_advance";
const void *const lierne_find_changes_kernel = "lierne_run_find_changes";
const void *const lierne_make_changes_kernel = "lierne_run_make_changes";
const void *const lierne_step_kernel = "lierne_run_step";
