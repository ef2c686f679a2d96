/* Plans on memory of CUDA devices. Library liblierne_cuda; needs no header of CUDA. The library
 * loads, and every function here can be called, on machines without a GPU or a driver.
 * docs/gpu.md describes how it works and what was tested.
 *
 * Buffers and streams. A context is for one kind of memory. After lierne_context_use_cuda all its
 * plans take buffers in device memory (also managed memory, and host memory of cudaHostAlloc),
 * aligned to their elements, and every executing call takes a cudaStream_t in place of the void
 * pointer. NULL is an error: pass cudaStreamLegacy or cudaStreamPerThread for a default stream. A
 * call enqueues its work on the stream and returns; lierne_request_end returns at once. The buffers
 * are borrowed until the stream has passed that work. Results have the bits of host memory.
 *
 * Messages. Over NCCL (lierne/nccl.h) and between ranks of one node over windows (transport ipc)
 * the host takes no part in a call. All other messages are polled by the host: such a request
 * progresses in lierne_request_end, lierne_request_test and lierne_context_progress, and
 * lierne_request_end returns when all messages have been sent and received. The shared memory of
 * the host is not used. docs/transports.md says which messages take which way.
 *
 * Errors after a call has returned. A thread of the context, the watchdog, finds errors of the
 * device and of NCCL, and calls that the stream has reached and not passed within the timeout. It
 * aborts hung operations that lierne started. The next call in the context returns the error, and
 * lierne_context_get_status reports it; the context is then dead (lierne/context.h). If the host
 * polls the messages of a call, the timeout also counts the time that the stream takes to reach the
 * call. Beyond about 1,000 queued launches CUDA blocks the caller, and a call over NCCL that is
 * blocked this way cannot be aborted: do not queue that many. Destroying or updating a plan waits
 * until the streams have passed its calls, at most the timeout, or one second if the context is
 * dead; memory that a stream may still use after that is not freed.
 *
 * CUDA graphs. A call on a stream that is being captured becomes part of the graph, with the
 * addresses of its buffers, and is not executed. Each launch of the graph is one more call, without
 * the host. All ranks of the context must capture the same calls, and launch as often and in the
 * same order among their other calls. Launches may be on any stream: they run one after another,
 * and in order with the plan's other calls. The watchdog finds a launch that does not pass within
 * the timeout. In a context that checks, a call that only some ranks capture is MISMATCH; launches
 * are not compared. After a capture the plan cannot be updated (BUSY). Destroy the graphs, and wait
 * for their launches, before you destroy the plan. If the ranks are threads of one process, NCCL
 * needs cudaStreamCaptureModeThreadLocal. A capture is UNSUPPORTED, and nothing is captured, for
 *   messages that the host polls,
 *   a plan with max_inflight above 1,
 *   the first call of a direction with an all-gather of NCCL, in which NCCL connects ranks,
 *   a capture that continues with calls of a plan after another capture has had such calls (the
 *   context is dead then).
 *
 * Ranks that are threads of one process. Over windows and over NCCL the call of a rank waits on the
 * device until the other ranks call, and some functions of CUDA wait for all that runs on the
 * device: cudaFree, cudaFreeHost, cudaDeviceSynchronize, the first use of a kernel (load kernels
 * early: CUDA_MODULE_LOADING=EAGER). A rank that is in such a function, while another rank's call
 * waits for a call which it has yet to make, waits until the timeout. Do not call them then; lierne
 * does so only while a context is created or destroyed. It frees memory of plans in the order of a
 * stream; pinned memory, and scratch which NCCL or MPI may have registered, is used again by later
 * plans and freed with the context.
 *
 * Streams share the hardware queues of a device: CUDA_DEVICE_MAX_CONNECTIONS of them, 8 by default,
 * at most 32. What is behind a waiting call in a queue waits with it, also if it is the call of
 * another rank that would end the wait. So ranks of one process have windows only if their device
 * has two queues for each of them; else lierne_context_dump says "ipc is not used", and why. If a
 * rank calls on several streams, set the variable to the number of all streams of the process. */
#ifndef LIERNE_CUDA_H
#define LIERNE_CUDA_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the context one for memory of the current device (cudaGetDevice). The same device must be
 * current when plans and runs are created and plans are updated; executing calls switch to it and
 * back. Collective over the context, before its first plan and group; waits for all ranks. Calling
 * it again changes nothing. Not thread-safe with other calls on the context. Errors that all ranks
 * get alike: INVALID (plans are alive, groups were created), UNSUPPORTED (no driver or no device:
 * the message has CUDA's reason), MISMATCH (a rank calls something else), NO_MEMORY, TIMEOUT,
 * PEER_FAILED, TRANSPORT. Of this rank alone: INVALID (context is NULL). On error the context is
 * unchanged. */
LIERNE_API lierne_status lierne_context_use_cuda(lierne_context *context);

/* Writes one line to text of size bytes: versions of CUDA's runtime and driver, whether ranges for
 * profilers (NVTX) are missing, and the devices ("ipc": their memory can be a window), or why there
 * are none. Truncates what does not fit. Not collective; thread-safe. Errors: INVALID (text is
 * NULL, size is 0). */
LIERNE_API lierne_status lierne_cuda_get_summary(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
