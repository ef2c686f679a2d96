/* Messages between GPUs over NCCL. Library liblierne_nccl; needs no header of NCCL or CUDA. The
 * library loads without NCCL and looks libnccl.so.2 up at run time: the one that the process has
 * loaded, else the one that the loader finds.
 *
 * Messages of plans without a group travel on one communicator, those of each group on one of its
 * own (lierne/group.h, Domains). They have no ids, so all ranks must begin all calls of one
 * communicator in the same order, across plans and directions (lierne/plan.h), and in the same
 * order among the calls that plan. A context that checks needs one order of all calls, and reports
 * ranks that have another. Sums are lierne's own, with the bits that it promises. docs/gpu.md
 * describes how it works. */
#ifndef LIERNE_NCCL_H
#define LIERNE_NCCL_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ncclComm; /* ncclComm_t is a pointer to it */

/* Makes a context for CUDA memory (call lierne_context_use_cuda first) send its messages over NCCL,
 * whatever LIERNE_TRANSPORTS says. comm: an ncclComm_t with the ranks of the context, in their
 * order, on the current device. It stays the caller's, must live as long as the context, and may
 * not be used for anything else while a call of the context is enqueued. NULL: lierne creates a
 * nonblocking communicator and destroys it with the context. Collective over the context, before
 * its first plan and group; waits for all ranks, at most the timeout. Not thread-safe with other
 * calls on the context.
 *
 * Connections. Planning sends a few bytes between ranks that will exchange messages and have
 * exchanged none yet, because NCCL connects two ranks in their first message. It waits until these
 * messages, and the work enqueued before them, have passed. All-gathers connect ranks when they are
 * first called, which may take long.
 *
 * Deadlines. An executing call waits until NCCL has enqueued it, at most the timeout (TIMEOUT). The
 * watchdog (lierne/cuda.h) finds operations that wait on the device for a missing rank, and later
 * errors of NCCL. It aborts a communicator of lierne's. A blocking communicator of the caller's has
 * no deadline while NCCL enqueues or connects, and lierne never aborts it: abort it after an error,
 * or the device hangs. Another thread may call ncclCommGetAsyncError on it while calls run.
 *
 * Groups. lierne_group_create splits the communicator of each group from that of the context, which
 * all ranks of the context call, one spec after another; they wait at most the timeout, but with a
 * blocking communicator of the caller's for as long as NCCL does. Before NCCL 2.18, and if
 * NCCL_COMM_SPLIT_SHARE_RESOURCES is set on any rank, because communicators that share resources
 * wait for each other, the ranks of a group make a communicator from an id of their own, which
 * takes longer. A comm of the caller's must not have been made with splitShare. NCCL takes hundreds
 * of megabytes of the device for each; max_groups limits them. An error on one communicator aborts
 * all of the context. To overlap, calls of different groups must be on different streams.
 *
 * Windows. With NCCL 2.28 or later and a communicator of lierne's, scratch memory is registered as
 * symmetric memory: here, and later while planning. If the first registration fails on any rank,
 * all ranks do without. If a later one fails, or does not end within half of the timeout, planning
 * returns the error and the context is dead. Buffers in a symmetric window of the caller's own
 * communicator must be at the same place on all ranks, as NCCL requires.
 *
 * Errors that all ranks get alike: INVALID (no CUDA memory, plans are alive, groups were created,
 * NCCL in use already, comm has other ranks or another device than the context, or no comm is given
 * and another device is current), UNSUPPORTED (no NCCL, or one older than 2.14), MISMATCH (only
 * some ranks give comm), NO_MEMORY, TRANSPORT (NCCL's own), TIMEOUT, PEER_FAILED. Of this rank
 * alone: INVALID (context is NULL). On error the context is unchanged, unless it is dead. */
LIERNE_API lierne_status lierne_context_use_nccl(lierne_context *context, struct ncclComm *comm);

/* Creates a context from a communicator alone. Its ranks are those of comm, in their order; its
 * memory is that of comm's device, which must be current (lierne_context_use_cuda); messages and
 * planning travel over comm (lierne_context_use_nccl). spec: as lierne_context_create_oob; may be
 * NULL. comm stays the caller's and must live until lierne_context_destroy, which is collective,
 * has returned. It may not be used for anything else while a call on the context runs or work that
 * it enqueued is in flight. Collective over the ranks of comm; waits for all of them.
 *
 * All ranks must make all calls of the context in one order: those that execute, plan, update,
 * create groups and destroy. A call that plans waits until earlier operations on comm have passed.
 *
 * Deadlines. With a nonblocking comm, the other ranks get TIMEOUT if a rank does not call. With a
 * blocking comm NCCL itself may wait for another rank, in the first calls to connect, and no
 * deadline of lierne can end that. The death of a process is found on the same node.
 *
 * Errors that all ranks get alike: as lierne_context_create_oob, lierne_context_use_cuda and
 * lierne_context_use_nccl. Of this rank alone, which the others see as TIMEOUT: INVALID (comm is
 * NULL), UNSUPPORTED (no NCCL), NO_MEMORY of the first allocations, TRANSPORT. *out is NULL then.
 * Thread safety: as any context. */
LIERNE_API lierne_status lierne_context_create_nccl(lierne_context **out, struct ncclComm *comm,
                                                    const lierne_context_spec *spec);

/* Writes one line to text of size bytes: NCCL's version and whether it has windows, split
 * communicators (of groups), profiler tags, and put/signal (which lierne does not use), or why
 * there is no NCCL. Truncates what does not fit. Not collective; thread-safe. Errors: INVALID (text
 * is NULL, size is 0). */
LIERNE_API lierne_status lierne_nccl_get_summary(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
