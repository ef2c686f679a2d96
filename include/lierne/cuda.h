/* Plans on memory of CUDA devices. Library liblierne_cuda; needs no header of CUDA. The library
 * loads, and everything here can be called, on machines without a GPU or a driver.
 *
 * A context is for one kind of memory. After lierne_context_use_cuda all plans made in it take
 * buffers in device memory (also managed memory, and host memory of cudaHostAlloc), aligned to
 * their elements, and every call that executes takes a stream: a cudaStream_t in place of the void
 * pointer. NULL is an error; the default streams are cudaStreamLegacy and cudaStreamPerThread. A
 * program that has tensors in both kinds of memory has two contexts.
 *
 * A call enqueues its work on the stream and returns. What was enqueued before it is done first,
 * what is enqueued afterwards comes after it; the host waits for nothing, and lierne_request_end
 * returns at once. The buffers are borrowed until the stream has passed that work. Results have the
 * bits of host memory; any NaN counts as any other.
 *
 * What fails after a call has returned is found by a watchdog, a thread of the context: an error of
 * the device or of NCCL, or a call that the stream has reached and not passed within the context's
 * timeout. It ends what hangs on the device, as far as that is lierne's, and the next call in the
 * context returns the error; lierne_context_get_status asks for it. The context is dead then
 * (lierne/context.h). A stream has space for about a thousand launches: who is further ahead waits
 * within CUDA, and where that is a call over NCCL, its communicator cannot be aborted meanwhile. So
 * do not run that far ahead over NCCL. Destroying or updating a plan waits until the streams have
 * passed its calls, at most the timeout, and if the context is dead a second; memory that a stream
 * may still use after that is not freed.
 *
 * A call whose stream is being captured into a CUDA graph becomes part of the graph, with the
 * addresses of its buffers, and is not executed; every launch of the graph is one more call,
 * without the host. All ranks of the context must capture the same calls, and launch as often and
 * in the same order among their other calls. UNSUPPORTED, and nothing is captured: messages that
 * the host polls or stages (every transport but NCCL and windows), a plan with max_inflight above
 * 1, a direction with an all-gather of NCCL that was not called before, because ranks connect in
 * it; a capture that goes on with calls of a plan after another one has had such calls (the context
 * is dead then). From a capture on the plan cannot be updated (BUSY). Launches of a plan's graphs
 * may be on any stream; they follow each other and the plan's other calls. They have no deadline of
 * their own: the watchdog finds one that does not pass within the timeout, as above. In a context
 * that checks, a call that only some ranks capture is MISMATCH; launches are not compared. Where
 * the ranks are threads of one process, NCCL needs cudaStreamCaptureModeThreadLocal. Destroy the
 * graphs, and wait for their launches, before you destroy the plan.
 *
 * Messages between ranks go over NCCL where the context uses it (lierne/nccl.h). Without it, those
 * between ranks of one node go over windows (transport "ipc"), memory of the devices that the
 * processes of the node map, where CUDA can share it between all of them: lierne_context_use_cuda
 * finds out. What is sent is copied, or packed, into the sender's window and read there
 * (lierne_report.window_bytes), so buffers may come from any allocator; the host takes no part in a
 * call. Processes share windows by file descriptors, where the devices and the system allow that to
 * all of them, otherwise by handles of CUDA IPC; lierne_context_dump says which. A device of
 * another process is accessed as cuMemSetAccess, or cudaIpcOpenMemHandle, allows, and one of
 * another thread's as cuMemSetAccess, or cudaDeviceEnablePeerAccess. LIERNE_TRANSPORTS
 * leaves windows out where it does not name ipc. With more than 8 such ranks in one process, set
 * CUDA_DEVICE_MAX_CONNECTIONS to their number: their streams wait for each other. Every other
 * transport of the context but shared memory serves device memory, too: MPI reads and writes it
 * where MPIX_Query_cuda_support() is 1; otherwise only the rows that travel are packed into pinned
 * host memory, which lierne_report.host_bytes counts. The host polls these messages, so such a
 * request progresses in lierne_request_end, lierne_request_test and lierne_context_progress, and
 * lierne_request_end returns when all messages have been sent and received; the result is there
 * when the stream has passed what was enqueued by then. The timeout counts what the stream had to
 * do before the call, too. */
#ifndef LIERNE_CUDA_H
#define LIERNE_CUDA_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the context one for memory of the device that is current (cudaGetDevice). That device must
 * also be current where plans are made or updated; executing switches to it, and back. Collective
 * over the context, before its first plan; waits for all ranks. Calling it again changes nothing.
 * Not thread-safe with other calls on the context. Errors that all ranks get alike: INVALID (plans
 * are alive), UNSUPPORTED (no driver or no device: the message has CUDA's reason), MISMATCH (a rank
 * calls something else), NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. Of this rank alone: INVALID
 * (context is NULL). After an error the context is what it was. */
LIERNE_API lierne_status lierne_context_use_cuda(lierne_context *context);

/* Writes one line to text of size bytes: versions of CUDA's runtime and driver, and the devices
 * ("ipc": their memory can be a window), or why there are none. What does not fit is cut off. Not
 * collective; thread-safe. Errors: INVALID (text is NULL, size is 0). */
LIERNE_API lierne_status lierne_cuda_get_summary(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
