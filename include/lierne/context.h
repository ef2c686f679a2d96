/* A context: this rank's place in a world of ranks, and the transport that moves its messages.
 *
 * Ways in: lierne_context_create_self (a world of one rank), lierne_context_create_mpi
 * (lierne/mpi.h, library liblierne_mpi), lierne_context_create_node (lierne/node.h: the processes
 * of one node), lierne_context_create_oob (lierne/oob.h: functions of the caller) and
 * lierne_sim_create (lierne/sim.h: all ranks of a world in this process).
 *
 * Members. A context has all ranks of the world, or those that its spec lists; several contexts
 * over parts of one world, disjoint or not, may be used at once, and no call needs a rank that is
 * no member. Ranks are those of the world everywhere: in grids, rows, routes, reports and messages.
 * A call that is collective is so over the members.
 *
 * Deadlines. Every wait has one. When it passes, the call returns TIMEOUT and the context is dead:
 * each further call that communicates returns the same error at once.
 *
 * Death. TIMEOUT, PEER_FAILED and TRANSPORT kill the context of the rank that gets them, and so
 * does lierne_context_abort with the status that it is given. Before its call returns, this rank
 * tells the other ranks that it gave up. A rank that waits for it, or that received from it in a
 * call that has not ended, gets the same status and a message that says "rank R gave up": the data
 * may have changed before it was read. Ranks of one node always learn it in time. Between nodes the
 * notice may come too late.
 *
 * Buffers of a dead context. MPI cannot take back a message that is under way: a rank that is late
 * may still read `in` and write `out` of a call that failed or was in flight. So these buffers stay
 * borrowed until MPI_Finalize has returned, even after the plan and the context were destroyed: do
 * not write or free them, and do not read `out`. With a self or sim context they are the caller's
 * again when the call, or lierne_request_end, has returned. lierne keeps its own memory of such
 * messages for as long: at most scratch_bytes (lierne_plan_get_report) per request in flight, and
 * the memory that lierne_context_create_mpi names.
 *
 * Thread safety: a context and everything made from it is used by one thread at a time, which need
 * not always be the same one: the forward pass may call from one thread and the backward pass from
 * another, if the program orders their calls (over MPI: lierne/mpi.h has the thread level that this
 * needs). Different contexts may be used by different threads at once. */
#ifndef LIERNE_CONTEXT_H
#define LIERNE_CONTEXT_H

#include "lierne/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_context lierne_context;

/* What a link costs. Messages of a stage are under way at the same time: a stage takes the latency
 * once, and what its busiest rank sends or receives over the link divided by the bandwidth. Where
 * the ranks of a node share its links, what the busiest node sends to other nodes or receives from
 * them, divided by the bandwidth of a node, if that takes longer. */
typedef struct lierne_link {
    int64_t latency_ns;           /* 0 to 1e9 */
    int64_t megabytes_per_second; /* of each rank, in each direction, 1e6 bytes each; 0 to 1e9. 0:
                                     no limit */
} lierne_link;

/* The links of a machine, as LIERNE_ROUTING_AUTO (lierne/plan.h) compares them. What a rank copies
 * from itself costs the same in every routing, and is not compared. */
typedef struct lierne_links {
    lierne_link same_node;             /* between two ranks of one node */
    lierne_link other_node;            /* between ranks of two nodes */
    int64_t node_megabytes_per_second; /* of all ranks of a node together to and from other nodes,
                                          in each direction, 1e6 bytes each; 0 to 1e9. 0: no limit,
                                          each rank has a link of its own */
} lierne_links;

/* How to create a context. Set size to sizeof(lierne_context_spec) and the rest to zero first; NULL
 * in place of a spec is the same as all zeros. */
typedef struct lierne_context_spec {
    size_t size;
    double timeout;   /* seconds that any wait may take, 0 to 1e6; 0: the environment variable
                         LIERNE_TIMEOUT_MS, else 60 s */
    const int *nodes; /* node of each rank, of each member where members is set: equal numbers are
                         one node, and replicas on the same node are preferred. NULL: what the
                         transport finds (sim and self: one node). Over MPI, LIERNE_NODE, where set,
                         is this process's node and wins. Copied. */
    int check; /* nonzero, unless LIERNE_CHECK=0, or LIERNE_CHECK=1: before any data moves, every
                  call is compared with those of all other ranks. A plan or direction that differs
                  is MISMATCH on every rank, and an argument that one rank rejects is every rank's
                  error (except a NULL plan, which names no context: an error of that rank alone).
                  All ranks must then make all executing calls in the same order. For debugging: 1
                  costs a collective agreement per call, 0 costs nothing. The same on every rank. */
    int max_groups; /* most groups alive on this rank (lierne/group.h), at least 1; 0: 64, which is
                       about twice what Megatron-LM creates. May differ between ranks */
    const int *members; /* ranks of a larger world that the context has, ascending; NULL: all. The
                           same on every member. Copied. lierne_grid_get_members makes the list. */
    int nmembers;       /* 0 without members */
    int world_size;     /* ranks of the larger world, 1 to LIERNE_MAX_RANKS (lierne/grid.h). 0 where
                           it follows: without members, and for lierne_sim_create. */
    const lierne_links *links; /* NULL: links inside a node cost nothing, those to other nodes 20 us
                                  and 50 GB/s. The same on every rank. Copied */
} lierne_context_spec;

/* Creates a context of a world of one rank, or with one member of a larger world. Not collective.
 * spec may be NULL. Destroy it with lierne_context_destroy; *out is NULL on failure.
 * Errors: INVALID (out NULL, spec->size, timeout, max_groups, links, LIERNE_TIMEOUT_MS or
 * LIERNE_CHECK not a number, members), IO (no file can be made in LIERNE_DUMP_DIR), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_create_self(lierne_context **out,
                                                    const lierne_context_spec *spec);

/* Memory for buffers of calls: bytes of it (0 is allowed), zeroed, from the start of a page on.
 * Ranks of the same node read it in place (transport shm, docs/transports.md): in, out and a
 * gradient that lie in it are not copied on their way. In a context without shm it is ordinary
 * memory. Any part of it may be a buffer of any call, also of other contexts, and ranks need not
 * agree on what they allocate. It belongs to the caller, who frees it with lierne_context_dealloc
 * (or lierne_context_destroy_all). Not collective. *out is NULL on failure. Errors: INVALID (out or
 * context NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_alloc(void **out, lierne_context *context, size_t bytes);
/* Frees it; no call that it is a buffer of may be in flight. NULL is allowed. Not collective.
 * Errors: INVALID (context NULL, not memory of this context, freed already). */
LIERNE_API lierne_status lierne_context_dealloc(lierne_context *context, void *memory);

/* Destroys a context. Collective over an MPI context, unless it is dead. Buffers that were borrowed
 * when it died stay borrowed (above). NULL is allowed. Errors: INVALID (plans, groups or memory
 * made from it are alive: lierne_context_destroy_all takes them along; or it belongs to a simulated
 * world; nothing is destroyed). */
LIERNE_API lierne_status lierne_context_destroy(lierne_context *context);

/* Destroys a context with everything that was made from it and is alive: runs, coalesced plans,
 * plans, groups and memory, the newest first. All their handles are invalid afterwards; grids,
 * layouts and bricks stay. Collective as lierne_context_destroy, and, where groups have
 * communicators, as lierne_group_destroy. NULL is allowed. Errors: INVALID (it belongs to a
 * simulated world: lierne_sim_destroy_all), BUSY (a request is in flight and the context is not
 * dead): nothing is destroyed; TIMEOUT, PEER_FAILED, TRANSPORT of lierne_group_destroy: all is
 * destroyed. */
LIERNE_API lierne_status lierne_context_destroy_all(lierne_context *context);

/* Kills a context and tells the other ranks why, for a rank that cannot make the calls that they
 * wait for: after an error of its own program, or one that lierne returned to it alone. Every
 * further call that communicates returns status with the text reason. A rank that waits for this
 * one gets status too, and "rank R gave up: " with reason, at once and not at its deadline (above,
 * Death). status: an error, of lierne_status or below. reason: one line, often lierne_last_error();
 * copied. Does nothing to a context that is dead already. Not collective. Errors: INVALID (NULL,
 * status not negative). */
LIERNE_API lierne_status lierne_context_abort(lierne_context *context, lierne_status status,
                                              const char *reason);

/* Progresses everything in flight in the context, without waiting: call it now and then from a
 * computation that overlaps with communication. Not collective. A call in flight that fails
 * meanwhile gives its error to lierne_request_end or lierne_request_test. Errors: INVALID (NULL),
 * or the error that killed the context. */
LIERNE_API lierne_status lierne_context_progress(lierne_context *context);

/* Whether the context is alive: OK, or the error that killed it, with its message. Also learns of
 * calls that failed on the device after they were ended (lierne/cuda.h), and then tells the other
 * ranks as every call does. Waits for nothing. Not collective. Errors: INVALID (NULL), or the error
 * that killed the context. */
LIERNE_API lierne_status lierne_context_get_status(lierne_context *context);

/* A buffer of the caller's that another rank may still read or write. */
typedef struct lierne_borrowed {
    const void *data;
    size_t bytes;
    int written; /* nonzero: may still be written (an out); zero: may still be read (an in) */
} lierne_borrowed;

/* The buffers of failed calls that stay borrowed until MPI_Finalize has returned: gives up all
 * messages that were in flight, and lists the buffers of calls with messages that could not be
 * taken back. All other buffers are the caller's again. For a dead context whose plans were
 * destroyed, and before lierne_context_destroy; of a context that is not dead there are none.
 * Writes up to capacity entries to list, which may be NULL if capacity is 0, and their number to
 * *count, which may be larger. Not collective. Errors: INVALID (NULL, plans alive). */
LIERNE_API lierne_status lierne_context_get_borrowed(lierne_borrowed *list, size_t capacity,
                                                     size_t *count, lierne_context *context);

/* This rank and the number of ranks, both of the larger world where the context has members; -1 for
 * NULL. Not collective. */
LIERNE_API int lierne_context_get_rank(const lierne_context *context);
LIERNE_API int lierne_context_get_world_size(const lierne_context *context);

/* The members of a context: their number (-1 for NULL), the rank of member i (-1 if there is none),
 * and the place of a rank in their order (-1 if it is no member, or for NULL). Without a list in
 * the spec they are all ranks of the world. Not collective. */
LIERNE_API int lierne_context_get_nmembers(const lierne_context *context);
LIERNE_API int lierne_context_get_member(const lierne_context *context, int i);
LIERNE_API int lierne_context_find_member(const lierne_context *context, int rank);

/* Writes what this rank was doing, as lines of text: the calls in flight, with stage, time and the
 * ranks waited for, then the last calls that ended. Of a dead context: as it was when it died.
 * Writes at most size bytes with the terminating zero; what does not fit is cut off. Not
 * collective. Errors: INVALID (context or text NULL, size 0). */
LIERNE_API lierne_status lierne_context_dump(char *text, size_t size,
                                             const lierne_context *context);

/* Number of groups alive on this rank, those that were created (lierne/group.h) and those that
 * plans share, and the most that there may be; -1 for NULL. Not collective. */
LIERNE_API int lierne_context_get_ngroups(const lierne_context *context);
LIERNE_API int lierne_context_get_max_groups(const lierne_context *context);

/* The seconds that any wait may take; -1 for NULL. Not collective. */
LIERNE_API double lierne_context_get_timeout(const lierne_context *context);

#ifdef __cplusplus
}
#endif
#endif
