/* Contexts over the caller's own communication ("out of band"), without MPI.
 *
 * A program that can already gather a few bytes from all ranks (a TCP store, a launcher's key-value
 * store, UCC's out-of-band table, another library) gives lierne that function, and gets a context
 * in which everything can be planned. Between ranks of one node plans execute over shared memory,
 * between others over functions that send and receive, if the program gives them too.
 * lierne/node.h needs no functions, but has the ranks of one node only.
 *
 * The functions are called from the calls of lierne only, by the thread that called, and must not
 * wait for other ranks: they start something, and `test` asks whether it has ended. They return 0
 * for success. Any other number is an error, which becomes TRANSPORT with that number in the
 * message, and the context is dead; `test` returns 1 for what has not ended yet, as UCC's req_test
 * does. They must not call lierne with the same context.
 *
 * Costs. An agreement (lierne_plan_create_*, groups, destroy) is one all-gather of 96 bytes per
 * rank, several after an error: time and memory grow with the number of ranks. A sparse exchange
 * (graphs, references, halos) gathers from each rank a list of the ranks that it sends to, padded
 * to the longest one; without send and receive, the messages themselves too, so that each rank
 * receives those of all ranks. The memory for gathering is at most 64 KiB per rank of the world,
 * and about 4 MiB in total for large ones, at least 1 KiB per rank. */
#ifndef LIERNE_OOB_H
#define LIERNE_OOB_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The caller's functions. user is passed to each of them. A request is what a function that starts
 * something writes to *request (NULL before the call): any pointer; NULL if it has already ended.
 */
typedef struct lierne_oob_calls {
    void *user;
    /* Begins to gather `bytes` bytes of `mine` from all ranks: rank r's go to all + r * bytes. All
     * ranks call it in the same order with the same number of bytes, at least 1, and at most one is
     * in progress on a rank. Both buffers stay borrowed until the request has ended. */
    int (*allgather)(void **request, const void *mine, void *all, size_t bytes, void *user);
    /* Begin to send and to receive a message. Messages between two ranks with the same tag match in
     * the order in which they were started; those with different tags never do. Any number is in
     * flight, bytes may be 0, and the receiver asks for as many bytes as are sent; if not, a
     * function must return an error, or a wait ends at its deadline. Tags are 0 to 2^31 - 1. Both
     * NULL: plans with messages between ranks that share no memory are UNSUPPORTED. */
    int (*send)(void **request, const void *data, size_t bytes, int to, int tag, void *user);
    int (*receive)(void **request, void *data, size_t bytes, int from, int tag, void *user);
    /* 0 if the request has ended, 1 if not yet. Also has to progress everything in flight. */
    int (*test)(void *request, void *user);
    /* Called once for every request, when it has ended, or, after an error, when lierne gives it
     * up. Returns 0 if its buffers are not read or written any more. If a request that has not
     * ended cannot be taken back, any other number: its buffers then stay borrowed for ever, and
     * lierne keeps its own. NULL: requests need not be freed, and cannot be taken back. */
    int (*free_request)(void *request, void *user);
} lierne_oob_calls;

typedef struct lierne_oob_spec {
    size_t size; /* sizeof(lierne_oob_spec) */
    int rank;    /* of this process among those that call: 0 to nranks - 1 */
    int nranks;  /* 1 to LIERNE_MAX_RANKS (lierne/grid.h) */
    lierne_oob_calls calls;
    const lierne_context_spec *context; /* may be NULL. Where context->members is set, the ranks of
                                           the functions are exactly the members, in their order. */
} lierne_oob_spec;

/* Creates a context over the functions of spec->calls. Collective over the nranks processes. The
 * functions must work until lierne_context_destroy has returned; spec itself is copied. Ranks are
 * on one node as over MPI: by context->nodes, LIERNE_NODE, or the host's name. Destroy the context
 * with lierne_context_destroy, which waits for all ranks, at most the timeout, unless it is dead;
 * *out is NULL on failure.
 *
 * The death of a process is found on the same node (by its pidfd, where the system has one), and
 * elsewhere as TIMEOUT. A rank that gives up tells the ranks of its node (lierne/context.h); other
 * nodes see TIMEOUT. Buffers of a dead context stay borrowed as long as free_request says.
 *
 * Errors that all ranks get alike: INVALID (out NULL, spec->context, LIERNE_TIMEOUT_MS,
 * LIERNE_CHECK, LIERNE_NODE or LIERNE_TRANSPORTS), MISMATCH (nodes, members, world_size or check),
 * IO (no file can be made in LIERNE_DUMP_DIR), NO_MEMORY. Errors of one rank, which the others see
 * as TIMEOUT: INVALID (spec NULL or its size, rank or nranks out of range, allgather or test NULL,
 * only one of send and receive), NO_MEMORY of the first allocations, TRANSPORT (a function returned
 * an error), TIMEOUT, PEER_FAILED.
 *
 * Thread safety: as any context; ranks may be threads of one process. */
LIERNE_API lierne_status lierne_context_create_oob(lierne_context **out,
                                                   const lierne_oob_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
