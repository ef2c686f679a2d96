/* Messages between GPUs over NCCL. Library liblierne_nccl; needs no header of NCCL or CUDA. NCCL
 * itself is looked up at run time (libnccl.so.2: the one that the process has loaded, else the one
 * that the loader finds); the library loads without it.
 *
 * Every stage of a plan is one or more group calls of sends and receives, each of at most 256
 * operations, on one communicator per context; a stage in which every rank sends one block to all
 * others, and has theirs in the order of the ranks, is NCCL's all-gather. With NCCL 2.28 or later
 * and a communicator of lierne's, scratch lies in windows for symmetric memory, in chunks of 2 MiB
 * and more that are registered while planning and live as long as the context. NCCL's messages have
 * no ids, so all ranks must begin all calls of the context in the same order, across plans and
 * directions (lierne/plan.h), and in the same order among the calls that plan; a context that
 * checks finds ranks that do not. Sums are lierne's own, with the bits that it promises. */
#ifndef LIERNE_NCCL_H
#define LIERNE_NCCL_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ncclComm; /* ncclComm_t is a pointer to it */

/* Lets a context for CUDA memory (lierne_context_use_cuda, first) send its messages over NCCL.
 * comm: an ncclComm_t whose ranks are those of the context, in their order, on the device that is
 * current; it stays the caller's, must live as long as the context, and serves nothing else while a
 * call of the context is enqueued. NULL: lierne makes one, nonblocking, and the context's control
 * brings its id to all ranks; it is destroyed with the context. LIERNE_TRANSPORTS does not concern
 * NCCL. Collective over the context, before its first plan; waits for all ranks, at most the
 * timeout. Not thread-safe with other calls on the context.
 *
 * Connections. NCCL connects two ranks in their first message. A call that plans lets the ranks
 * that will have messages, and had none, send each other a few bytes, and waits until they have
 * passed, and with them what was begun before: at most the timeout, after which the context is
 * dead. An all-gather connects ranks when it is first called, which may take long.
 *
 * Deadlines. A call that executes waits until NCCL has enqueued it, at most the timeout (TIMEOUT);
 * with a blocking communicator of the caller's there is no such deadline, nor for the connections
 * of a plan. What waits on the device for a rank that never comes, and errors that NCCL has later,
 * are found by the watchdog (lierne/cuda.h), which aborts a communicator of lierne's. One of the
 * caller's is only asked for its error (ncclCommGetAsyncError), by another thread and while calls
 * are under way: abort it after an error, or the device hangs. After an error the context is dead;
 * a communicator of lierne's is aborted at the latest when the context is destroyed.
 *
 * Windows. A first one is registered here; where that fails on any rank, all ranks do without, with
 * another communicator if need be. A later registration, while planning, that fails or does not end
 * within half of the timeout is the error of the call that plans, and the context is dead. A comm
 * of the caller's gets no windows, because it may wait without a deadline; buffers of a call that
 * lie in one of its own for symmetric memory need the same place there on all ranks, as NCCL says.
 *
 * Errors that all ranks get alike: INVALID (no CUDA memory, plans are alive, NCCL in use already,
 * comm has other ranks or another device than the context, or no comm is given and another device
 * is current), UNSUPPORTED (no NCCL, or one older than 2.14), MISMATCH (only some ranks give comm),
 * NO_MEMORY, TRANSPORT (NCCL's own), TIMEOUT, PEER_FAILED. Of this rank alone: INVALID (context is
 * NULL). After an error the context is what it was, unless it is dead. */
LIERNE_API lierne_status lierne_context_use_nccl(lierne_context *context, struct ncclComm *comm);

/* Creates a context from nothing but a communicator: its ranks are those of comm, in their order,
 * its memory is that of comm's device, which must be current (lierne_context_use_cuda), and its
 * messages travel over comm (lierne_context_use_nccl). What ranks tell each other to plan travels
 * over comm too, as all-gathers of a few bytes to some KiB, on a stream of lierne's own. spec: as
 * lierne_context_create_oob; may be NULL. Collective over the ranks of comm, waits for all of them.
 * comm stays the caller's, must live until lierne_context_destroy has returned, which is
 * collective, and serves nothing else while a call on the context runs or what it enqueued is under
 * way.
 *
 * NCCL's operations have no ids: all ranks must make all calls of the context in one order, those
 * that plan, update, create groups and destroy among those that execute. A call that plans waits
 * until the operations before it on comm have passed.
 *
 * Deadlines. Where comm is nonblocking, a rank that does not call is TIMEOUT. With a blocking comm
 * NCCL itself may wait in a call for another rank, in the first ones to connect, and no deadline of
 * lierne's can end that. The death of a process is found on the same node.
 *
 * Errors that all ranks get alike: as lierne_context_create_oob, lierne_context_use_cuda and
 * lierne_context_use_nccl. Of this rank alone, which the others see as TIMEOUT: INVALID (comm is
 * NULL), UNSUPPORTED (no NCCL), NO_MEMORY of the first allocations, TRANSPORT. *out is NULL then.
 * Thread safety: as any context. */
LIERNE_API lierne_status lierne_context_create_nccl(lierne_context **out, struct ncclComm *comm,
                                                    const lierne_context_spec *spec);

/* Writes one line to text of size bytes: NCCL's version and whether it has windows and put/signal
 * (which lierne does not use), or why there is no NCCL. What does not fit is cut off. Not
 * collective; thread-safe. Errors: INVALID (text is NULL, size is 0). */
LIERNE_API lierne_status lierne_nccl_get_summary(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
