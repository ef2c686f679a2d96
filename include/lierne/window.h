/* Windows for kernels of one's own: scratch memory of every rank of a node that all of them read
 * and write directly, and a barrier that says when. What lierne/collective.h plans, a program can
 * write by itself here: stage data in a window, meet the others, read theirs.
 *
 * Rounds. The ranks use a window in rounds, each on its own thread or stream:
 *   1. write into buffers of lierne_window_get_writable: this rank's, or parts of other ranks'
 *      buffers that no other rank writes in the same round;
 *   2. lierne_window_notify: what this rank has written in the round is complete;
 *   3. lierne_window_wait: all ranks of the node have notified;
 *   4. read the buffers of lierne_window_get_readable, which have what all ranks wrote in 1.
 * Step 1 of the next round may come before or during step 4 of this one, and need not wait for any
 * rank: each rank has two buffers, which take turns. A buffer that is readable stays as it is until
 * this rank notifies the next round. All ranks make the same number of rounds.
 *
 * The barrier is reusable without an end: a rank stores the number of the round into a flag of
 * every other rank, one flag for odd and one for even rounds, and waits until its own flags have
 * it. tests/model/barrier.pml has the model in which all interleavings are checked.
 *
 * Memory. A context has memory of the host, which needs transport shm; after
 * lierne_context_use_cuda it has memory of the device, which needs transport ipc
 * (docs/transports.md). Each node of the context has a window of its own. Other ranks' memory has
 * other addresses in each process.
 *
 * Streams. On memory of a device notify and wait enqueue their work on a stream, a cudaStream_t,
 * and return: kernels of the program that write come before the notify on the stream, and those
 * that read after the wait. All calls of a window are on one stream, or ordered by the program. The
 * host knows the addresses of all buffers at once, so it may run ahead. A round cannot be captured
 * into a graph, because its number changes. On memory of the host the stream is NULL.
 *
 * Errors. A wait has the deadline of the context (lierne/context.h). TIMEOUT, PEER_FAILED and
 * TRANSPORT kill the context, and their message names a rank that did not come. On a stream they
 * are found as those of other calls (lierne/cuda.h): what was read after a wait that failed is not
 * valid, and lierne_context_get_status reports the failure once the stream has passed it.
 *
 * Thread safety: as the context (lierne/context.h). */
#ifndef LIERNE_WINDOW_H
#define LIERNE_WINDOW_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_window lierne_window;

/* How to create a window. First set size to sizeof(lierne_window_spec) and the rest to zero. */
typedef struct lierne_window_spec {
    size_t size;
    int64_t bytes; /* of each of the two buffers of a rank, 1 to LIERNE_MAX_WINDOW_BYTES. The same
                      on every rank */
} lierne_window_spec;

#define LIERNE_MAX_WINDOW_BYTES ((int64_t)1 << 40)

/* Creates a window of this node's ranks. Buffers begin at multiples of 256 bytes; before they are
 * written their contents are undefined. Collective over the context, waits for all ranks; not while
 * one thread calls for several ranks. Destroy it with lierne_window_destroy, or with
 * lierne_context_destroy_all; *out is NULL on failure. Errors, the same on all ranks: INVALID (out
 * or spec NULL, spec->size, bytes), MISMATCH (bytes differ), UNSUPPORTED (ranks of one node have no
 * memory that all of them reach: LIERNE_TRANSPORTS leaves out shm or ipc, the system refuses it, or
 * the context is simulated), NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. Of this rank alone:
 * INVALID (context NULL). */
LIERNE_API lierne_status lierne_window_create(lierne_window **out, lierne_context *context,
                                              const lierne_window_spec *spec);

/* Destroys a window. Streams must have passed its rounds. Its addresses are invalid afterwards.
 * Collective over the context: it waits for all ranks, so that none reads memory that is gone. If
 * the context is dead it waits for no rank. NULL is allowed. Errors: TIMEOUT (a stream does not
 * pass a round; or a rank does not come), PEER_FAILED, TRANSPORT, MISMATCH (another rank calls
 * something else); the window is destroyed in any case. */
LIERNE_API lierne_status lierne_window_destroy(lierne_window *window);

/* The ranks of the window: their number, this rank's place among them, and their list, ascending,
 * which the window owns; -1 or NULL for NULL. Not collective. */
LIERNE_API int lierne_window_get_size(const lierne_window *window);
LIERNE_API int lierne_window_get_rank(const lierne_window *window);
LIERNE_API const int *lierne_window_get_ranks(const lierne_window *window);
/* Bytes of a buffer; -1 for NULL. Not collective. */
LIERNE_API int64_t lierne_window_get_bytes(const lierne_window *window);

/* The buffer of the rank at a place, 0 to lierne_window_get_size - 1, in this process: the one that
 * may be written before the next notify; the one that may be read since the last wait. On memory of
 * a device "before" and "since" are those of the stream. Both are NULL between a notify and its
 * wait, for NULL and for no place of the window; readable also before the first wait. Not
 * collective. */
LIERNE_API void *lierne_window_get_writable(const lierne_window *window, int place);
LIERNE_API const void *lierne_window_get_readable(const lierne_window *window, int place);

/* Tells all ranks of the node that this one has written what it writes in this round, and reads no
 * more of the round before. Does not wait. stream: NULL on memory of the host, else a cudaStream_t
 * (cudaStreamLegacy or cudaStreamPerThread for a default stream). Errors: INVALID (window NULL; a
 * notify without a wait after the last one), UNSUPPORTED (stream is NULL, or not NULL, where the
 * memory needs the other; it is being captured), TRANSPORT, or the error that killed the context.
 */
LIERNE_API lierne_status lierne_window_notify(lierne_window *window, void *stream);

/* Waits until all ranks of the node have notified this round; on memory of a device, lets the
 * stream wait. Executions in flight progress meanwhile. Errors: INVALID (window NULL; no notify
 * before), UNSUPPORTED (as notify), TIMEOUT, PEER_FAILED (a rank gave up, or its process has
 * ended), TRANSPORT, or the error that killed the context. */
LIERNE_API lierne_status lierne_window_wait(lierne_window *window, void *stream);

#ifdef __cplusplus
}
#endif
#endif
