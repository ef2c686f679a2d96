/* A context: this rank's place in a world of ranks, and the transport that moves its messages.
 *
 * Ways in: lierne_context_create_self (one rank by itself), lierne_sim_create (all ranks of a world
 * in this process) and lierne_context_create_mpi (lierne/mpi.h, library liblierne_mpi).
 *
 * Deadlines: every wait has one. When it passes, the call returns TIMEOUT and the context is dead:
 * each further call that communicates returns the same error at once.
 *
 * Death. TIMEOUT, PEER_FAILED and TRANSPORT kill the context of the rank that gets them. Before the
 * call returns, this rank tells the others that it gave up; a rank that waits for it, or has
 * received from it in a call that has not ended, gets the same status and a message that says "rank
 * R gave up", instead of data that may have changed before it was read. Ranks of one node learn it
 * for certain. On another node the message may come too late.
 *
 * Buffers of a dead context. MPI cannot take back a message that is under way: a peer that comes
 * late may still read `in` and write `out` of a call that failed or was in flight. So these buffers
 * stay borrowed until MPI_Finalize has returned, also after the plan and the context have been
 * freed: do not write or free them, and do not read `out`. With a self or sim context they are the
 * caller's again when the call, or lierne_end, has returned. lierne keeps its own memory of such
 * messages for as long, at most scratch_bytes (lierne_report) per request in flight and the memory
 * that lierne_context_create_mpi names.
 *
 * Thread safety: a context and everything made from it is used by one thread at a time; contexts
 * of one sim world may be used by one thread each. */
#ifndef LIERNE_CONTEXT_H
#define LIERNE_CONTEXT_H

#include "lierne/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_context lierne_context;

/* How to make a context. Set size to sizeof(lierne_context_spec) and the rest to zero first; NULL
 * in place of a spec is the same as all zeros. */
typedef struct lierne_context_spec {
    size_t size;
    double timeout;   /* seconds of every wait; 0: the environment variable LIERNE_TIMEOUT_MS, else
                         60 s; must not be negative or NaN */
    const int *nodes; /* node of each rank of the world: equal numbers are one node, which bytes
                         prefer to stay in. NULL: what the transport finds (sim and self: one
                         node). Over MPI, LIERNE_NODE, where set, is this process's node and wins.
                         Copied. */
    int check; /* nonzero, or LIERNE_CHECK=1: before any data moves, every call is compared with
                  those of all other ranks: a plan or direction that differs is MISMATCH on every
                  rank, and an argument that one rank refuses is every rank's error (but for a NULL
                  plan or exchange, which gives no context: that rank's alone). All executing
                  calls must then come in one order. For debugging: a collective decision per call;
                  0 costs nothing. The same on every rank. */
} lierne_context_spec;

/* A context of a world of one rank. Not collective.
 * Errors: INVALID (out NULL, spec->size, timeout, LIERNE_TIMEOUT_MS or LIERNE_CHECK not a
 * number), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_create_self(lierne_context **out,
                                                    const lierne_context_spec *spec);

/* Frees a context: collective over an MPI context, unless it is dead. Buffers that were borrowed
 * when it died stay borrowed (above). Every plan made from it must have been freed: INVALID
 * otherwise, and nothing is freed. NULL is allowed. Not for contexts of a sim world (INVALID). */
LIERNE_API lierne_status lierne_context_destroy(lierne_context *context);

/* This rank and the number of ranks; -1 for NULL. */
LIERNE_API int lierne_context_get_rank(const lierne_context *context);
LIERNE_API int lierne_context_get_world_size(const lierne_context *context);

/* What this rank was doing, as lines of text: the calls in flight, with stage, time and the ranks
 * waited for, then the last calls that ended; of a dead context, as it was when it died. Writes at
 * most size bytes with the terminating zero. Not collective. Errors: INVALID (NULL, size 0). */
LIERNE_API lierne_status lierne_context_dump(char *text, size_t size,
                                             const lierne_context *context);

/* Groups that plans of this context made and share: communicators alive beside the context's own.
 */
LIERNE_API int lierne_context_get_ngroups(const lierne_context *context);

/* A simulated world: nranks contexts in this process, messages moved by memory copies. Plans are
 * made rank by rank, from one thread or from several; begin is called on all ranks, then end on
 * all; blocking calls need a thread per rank. Same bits as any other transport.
 *
 * Planning on a rank cannot wait for ranks that the same thread has yet to call. So a rank's spec
 * is compared with those of the ranks that planned before it; where it fails or differs, it and all
 * later ranks get the error at once, and the earlier ranks get it when they execute. Where a call
 * that executes is compared (check), the earlier ranks have begun: they get the error from
 * lierne_end or lierne_coalesced_end, which wait until all ranks have called, and their context is
 * dead. Planning that takes messages (graphs, halos, bricks) waits for all ranks, as it does
 * everywhere. Here it needs a thread per rank: called rank by rank from one thread it ends in
 * TIMEOUT. */
typedef struct lierne_sim lierne_sim;
/* Errors: INVALID (NULL, nranks not in 1 to LIERNE_MAX_RANKS, the spec), NO_MEMORY. */
LIERNE_API lierne_status lierne_sim_create(lierne_sim **out, int nranks,
                                           const lierne_context_spec *spec);
/* The context of a rank, owned by the sim; NULL if there is no such rank. Any thread may ask. */
LIERNE_API lierne_context *lierne_sim_get_context(lierne_sim *sim, int rank);
/* Frees the world and its contexts; plans must have been freed: INVALID otherwise. NULL is
 * allowed. */
LIERNE_API lierne_status lierne_sim_destroy(lierne_sim *sim);

#ifdef __cplusplus
}
#endif
#endif
