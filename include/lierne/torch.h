/* deepmd-kit's operators for programs without Python, such as LAMMPS with an exported model.
 * Library liblierne_torch (`make torch`), which needs PyTorch's libraries and liblierne. Loading it
 * (dlopen; torch.ops.load_library in Python) registers deepmd::border_op and border_op_backward,
 * and deepmd_export::border_op, border_op_backward and allreduce_min_int, in place of deepmd-kit's
 * own: load only one of the two. docs/start-particles.md describes the operators.
 *
 * Their communicator is an int64 tensor. Its first element is a number that this function has bound
 * to a context; 0, or no element, means this rank alone. A context for host memory takes tensors on
 * the CPU, one for CUDA memory (lierne/cuda.h) those of its device; this rank alone takes both, and
 * moves those of a device through the host. Each call plans where any rank has new lists, and tells
 * the others so in one integer. */
#ifndef LIERNE_TORCH_H
#define LIERNE_TORCH_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Binds a number to a context, for the operators of this process: a number of the caller's, such as
 * the bits of the MPI_Comm that LAMMPS passes. Not 0. The context stays the caller's. NULL releases
 * the number, and frees the plans that the operators have made: call it before the context is
 * destroyed, and then use lierne_context_destroy_all, because graphs of autograd may hold further
 * plans. Their backward is an error from then on. Binding again to the same context changes
 * nothing. Not collective; thread-safe. Errors: INVALID (number is 0; it is bound to another
 * context). */
LIERNE_API lierne_status lierne_torch_bind(int64_t number, lierne_context *context);

#ifdef __cplusplus
}
#endif
#endif
