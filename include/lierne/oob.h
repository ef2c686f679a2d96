/* Contexts over the caller's own communication ("out of band"), without MPI.
 *
 * The caller gives lierne a function that gathers a few bytes from all ranks (over a TCP store, a
 * launcher's key-value store, UCC's out-of-band table, another library). A context over it can
 * create every plan. Between ranks of one node plans execute over shared memory, between nodes over
 * functions that send and receive, if the caller gives them. lierne/node.h needs no functions, but
 * serves one node only.
 *
 * lierne calls the functions only from its own calls, in the thread that called. They must not wait
 * for other ranks: they start an operation, and `test` asks whether it has ended. They return 0 for
 * success; `test` returns 1 for an operation that has not ended, as UCC's req_test does. Any other
 * number is an error: the call returns TRANSPORT with that number in the message, and the context
 * is dead. The functions must not call lierne with the same context.
 *
 * Costs. An agreement (lierne_plan_create_*, groups, destroy) is one all-gather of 96 bytes per
 * rank, several after an error: time and memory grow with the number of ranks. Planning graphs,
 * references and halos also gathers the list of ranks that each rank sends to, padded to the
 * longest one; without send and receive it gathers the messages too. The memory for gathering is at
 * most 64 KiB per rank of the world, and about 4 MiB in total for large worlds, at least 1 KiB per
 * rank. */
#ifndef LIERNE_OOB_H
#define LIERNE_OOB_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The caller's functions. user is passed to each of them. A function that starts an operation
 * writes any pointer to *request (NULL before the call), or NULL if the operation has already
 * ended. */
typedef struct lierne_oob_calls {
    void *user;
    /* Starts gathering `bytes` bytes of `mine` from all ranks: those of rank r go to all + r *
     * bytes. All ranks call it in the same order with the same number of bytes, at least 1, and a
     * rank has at most one in progress. Both buffers stay borrowed until the request has ended. */
    int (*allgather)(void **request, const void *mine, void *all, size_t bytes, void *user);
    /* Start sending and receiving a message. Messages between two ranks with the same tag match in
     * the order in which they were started; messages with different tags never match. Any number
     * may be in flight. bytes may be 0. The receiver asks for as many bytes as are sent; if it does
     * not, a function must return an error, or a wait ends at its deadline. Tags are 0 to 2^31 - 1.
     * If both are NULL, plans with messages between ranks that share no memory are UNSUPPORTED. */
    int (*send)(void **request, const void *data, size_t bytes, int to, int tag, void *user);
    int (*receive)(void **request, void *data, size_t bytes, int from, int tag, void *user);
    /* Returns 0 if the request has ended, 1 if not, and progresses everything in flight. */
    int (*test)(void *request, void *user);
    /* lierne calls it once for every request: when it has ended, or, after an error, to cancel it.
     * Returns 0 if the buffers are not read or written any more. Returns any other number if the
     * request cannot be cancelled: then its buffers stay borrowed for ever, and lierne keeps its
     * own. NULL: requests need not be freed and cannot be cancelled. */
    int (*free_request)(void *request, void *user);
} lierne_oob_calls;

typedef struct lierne_oob_spec {
    size_t size; /* sizeof(lierne_oob_spec) */
    int rank;    /* of this process among those that call: 0 to nranks - 1 */
    int nranks;  /* 1 to LIERNE_MAX_RANKS (lierne/grid.h) */
    lierne_oob_calls calls;
    const lierne_context_spec *context; /* may be NULL. If context->members is set, the ranks of the
                                           functions are exactly the members, in their order. */
} lierne_oob_spec;

/* Creates a context over the functions of spec->calls. Collective over the nranks processes. The
 * functions must work until lierne_context_destroy has returned; spec itself is copied. Which ranks
 * are on one node follows from context->nodes, LIERNE_NODE or the host's name, as over MPI. Destroy
 * the context with lierne_context_destroy, which waits for all ranks at most the timeout, unless it
 * is dead. *out is NULL on failure.
 *
 * If a process dies, ranks of its node get PEER_FAILED (if the system has pidfds); other ranks get
 * TIMEOUT. A rank that gives up tells the ranks of its node (lierne/context.h); other nodes get
 * TIMEOUT. Buffers of a dead context stay borrowed as long as free_request says.
 *
 * Errors that all ranks get alike: INVALID (out NULL, spec->context, LIERNE_TIMEOUT_MS,
 * LIERNE_CHECK, LIERNE_SUMMARY, LIERNE_NODE, LIERNE_ADDRESS, LIERNE_LOG or LIERNE_TRANSPORTS),
 * TRANSPORT (no port at LIERNE_ADDRESS: lierne_context_shrink, lierne/node.h), MISMATCH (nodes,
 * members, world_size, check, name or LIERNE_SUMMARY), IO (no file can be made in LIERNE_DUMP_DIR
 * or LIERNE_METRICS, or for LIERNE_LOG_FILE), NO_MEMORY. Errors of one rank, which the others see
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
