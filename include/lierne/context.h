/* A context: this rank's place among the ranks of a world, and the transports that move messages
 * between them. A context may have several transports; the first one that reaches a peer serves it
 * (docs/transports.md).
 *
 * Create one with lierne_context_create_self (a world of one rank), lierne_context_create_mpi
 * (lierne/mpi.h, library liblierne_mpi), lierne_context_create_node (lierne/node.h: the processes
 * of one node), lierne_context_create_oob (lierne/oob.h: functions of the caller),
 * lierne_context_create_nccl (lierne/nccl.h) or lierne_sim_create (lierne/sim.h: all ranks of a
 * world in this process).
 *
 * Members. A context has all ranks of the world, or those that its spec lists. Several contexts
 * over parts of one world, disjoint or not, may be used at once. Only members take part in calls,
 * and collective calls involve all members. Ranks are those of the world everywhere: in grids,
 * rows, routes, reports and messages.
 *
 * Deadlines. Every wait has a deadline. A call that reaches it returns TIMEOUT, and the context is
 * dead: each further call that communicates returns the same error at once.
 *
 * Death. TIMEOUT, PEER_FAILED and TRANSPORT kill the context of the rank that gets them.
 * lierne_context_abort kills it with the status that it is given. Before the failed call returns,
 * this rank tells the other ranks that it gave up. A rank that waits for it, or that received from
 * it in a call that has not ended, gets the same status and the message "rank R gave up: ...",
 * because the data may have changed before it was read. Ranks of the same node always learn it in
 * time. Between nodes the notice may come too late.
 *
 * lierne_context_shrink (lierne/node.h) makes a context of the ranks that are left.
 *
 * Buffers of a dead context. MPI cannot cancel a message that is in flight: a late rank may still
 * read `in` and write `out` of a call that failed or was in flight. These buffers stay borrowed
 * until MPI_Finalize has returned, even after the plan and the context were destroyed: do not write
 * or free them, and do not read `out`. lierne keeps its own memory of such messages as long: at
 * most scratch_bytes (lierne_plan_get_report) per request in flight, and the memory that
 * lierne_context_create_mpi names. In a self or sim context buffers belong to the caller again when
 * the call, or lierne_request_end, has returned; lierne/node.h and lierne/oob.h state their rules.
 *
 * Thread safety. One thread at a time uses a context and everything made from it. It need not
 * always be the same thread: the forward pass may call from one thread and the backward pass from
 * another if the program orders their calls (lierne/mpi.h has the thread level that MPI needs for
 * this). Different threads may use different contexts at once. */
#ifndef LIERNE_CONTEXT_H
#define LIERNE_CONTEXT_H

#include "lierne/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_context lierne_context;

/* What a link costs. All messages of a stage are in flight at the same time, so
 *   time of a stage = latency + bytes that the busiest rank sends or receives / bandwidth.
 * If the ranks of a node share its links, the bytes that the busiest node sends or receives divided
 * by the bandwidth of a node count instead where that takes longer. */
typedef struct lierne_link {
    int64_t latency_ns;           /* 0 to 1e9 */
    int64_t megabytes_per_second; /* of each rank, in each direction, 1e6 bytes each; 0 to 1e9. 0:
                                     no limit */
} lierne_link;

/* The links of a machine, for LIERNE_ROUTING_AUTO (lierne/plan.h). Copies within a rank cost the
 * same in every routing and are not compared. */
typedef struct lierne_links {
    lierne_link same_node;             /* between two ranks of one node */
    lierne_link other_node;            /* between ranks of two nodes */
    int64_t node_megabytes_per_second; /* of all ranks of a node together to and from other nodes,
                                          in each direction, 1e6 bytes each; 0 to 1e9. 0: no limit,
                                          each rank has a link of its own */
} lierne_links;

/* Levels of lines of the log, each with those before it (docs/watching.md). */
typedef enum lierne_log_level {
    LIERNE_LOG_LEVEL_OFF = 0,
    LIERNE_LOG_LEVEL_ERROR = 1, /* why a context died */
    LIERNE_LOG_LEVEL_WARN = 2,  /* calls that took more than a tenth of the timeout */
    LIERNE_LOG_LEVEL_INFO = 3,  /* contexts and their transports; plans */
    LIERNE_LOG_LEVEL_DEBUG = 4  /* every call */
} lierne_log_level;

/* How to create a context. First set size to sizeof(lierne_context_spec) and the rest to zero. NULL
 * in place of a spec means all zeros. */
typedef struct lierne_context_spec {
    size_t size;
    double timeout;   /* seconds that any wait may take, 0 to 1e6; 0: the environment variable
                         LIERNE_TIMEOUT_MS, else 60 s */
    const int *nodes; /* node of each rank (of each member if members is set): ranks with equal
                         numbers are on one node, and replicas on the same node are preferred. NULL:
                         what the transport finds (sim and self: one node). Over MPI the environment
                         variable LIERNE_NODE, if set, is the node of this process and overrides
                         this. Copied. */
    int check; /* nonzero: every executing call is compared with those of all other ranks before
                  data moves. If a plan or direction differs, every rank gets MISMATCH; if one rank
                  rejects an argument, every rank gets its error (except for a NULL plan, which
                  names no context: an error of that rank alone). All ranks must then make all
                  executing calls in the same order. Costs a collective agreement per call: for
                  debugging. LIERNE_CHECK=1 or 0 in the environment overrides it. The same on every
                  rank. */
    int max_groups; /* the most groups alive on this rank (lierne/group.h), at least 1; 0: 64, about
                       twice what Megatron-LM creates. May differ between ranks */
    const int *members; /* the ranks of a larger world that belong to the context, ascending; NULL:
                           all. The same on every member. Copied. lierne_grid_get_members writes
                           such a list. */
    int nmembers;       /* 0 without members */
    int world_size;     /* ranks of the larger world, 1 to LIERNE_MAX_RANKS (lierne/grid.h); 0
                           without members and for lierne_sim_create, where it is known. */
    const lierne_links *links; /* NULL: links inside a node cost nothing, those to other nodes 20 us
                                  and 50 GB/s. The same on every rank. Copied */
    const char *name;          /* of the context, for messages, logs and metrics; NULL: none. See
                                  LIERNE_MAX_NAME (lierne/status.h). The same on every rank. Copied */
    /* Gets every line of the log up to log_level, whatever LIERNE_LOG says: one line of text
     * without a line feed, which begins with "rank R" and the context's name and is valid during
     * the call. lierne calls it from its own calls, in the thread that called, until
     * lierne_context_destroy has returned; contexts of different threads, also of one simulated
     * world, call it at the same time. It must not call lierne. NULL: none. May differ between
     * ranks. */
    void (*log)(lierne_log_level level, const char *line, void *user);
    void *log_user;             /* passed to log */
    lierne_log_level log_level; /* the last level that log gets; OFF without log */
} lierne_context_spec;

/* Creates a context of a world of one rank, or with one member of a larger world. Not collective.
 * spec may be NULL. Destroy it with lierne_context_destroy; *out is NULL on failure.
 * Errors: INVALID (out NULL, spec->size, timeout, max_groups, links, name, log or log_level,
 * LIERNE_TIMEOUT_MS not a number, LIERNE_CHECK or LIERNE_SUMMARY not 0 or 1, LIERNE_LOG or
 * LIERNE_LOG_FILE, members), IO (no file can be made in LIERNE_DUMP_DIR or LIERNE_METRICS, or for
 * LIERNE_LOG_FILE; LIERNE_TRACE names a folder that is not there), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_create_self(lierne_context **out,
                                                    const lierne_context_spec *spec);

/* Allocates `bytes` bytes (0 is allowed) for buffers of calls, zeroed and aligned to a page. Ranks
 * of the same node read it in place (transport shm, docs/transports.md), so that buffers in it are
 * not copied to be sent. In a context without shm it is ordinary memory. Any part of it may be a
 * buffer of any call, also in other contexts, and ranks may allocate different amounts. The caller
 * frees it with lierne_context_dealloc or lierne_context_destroy_all. Not collective. *out is NULL
 * on failure. Errors: INVALID (out or context NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_alloc(void **out, lierne_context *context, size_t bytes);
/* Frees it. No call that uses it may be in flight. NULL is allowed. Not collective.
 * Errors: INVALID (context NULL, not memory of this context, freed already). */
LIERNE_API lierne_status lierne_context_dealloc(lierne_context *context, void *memory);

/* Destroys a context. Collective over its members unless it is dead or of a world of one rank: it
 * waits for the others until the timeout, and then destroys the context alone and returns OK. A
 * rank of the same node that waits for this one afterwards gets PEER_FAILED at once; messages that
 * were sent to it before still arrive. Buffers that were borrowed when it died stay borrowed
 * (above). NULL is allowed. Errors: INVALID (plans, samples, exchanges of segments, groups, windows
 * or memory made from it are alive: see lierne_context_destroy_all; or it belongs to a simulated
 * world); nothing is destroyed then. */
LIERNE_API lierne_status lierne_context_destroy(lierne_context *context);

/* Destroys a context and everything alive that was made from it: runs, coalesced plans, plans,
 * samples, exchanges of segments, groups, windows and memory, the newest first. Their handles are
 * invalid afterwards; grids, layouts and bricks stay. Memory of a dead context with borrowed
 * buffers stays until the process ends. Collective as lierne_context_destroy, lierne_group_destroy
 * and lierne_window_destroy. NULL is allowed. Errors: INVALID (it belongs to a simulated world: use
 * lierne_sim_destroy_all) and BUSY (a request is in flight and the context is not dead): nothing is
 * destroyed. TIMEOUT, PEER_FAILED and TRANSPORT of lierne_group_destroy and lierne_window_destroy:
 * everything is destroyed. */
LIERNE_API lierne_status lierne_context_destroy_all(lierne_context *context);

/* Kills a context and tells the other ranks why. Call it on a rank that cannot make the calls that
 * the others wait for: after an error of the program, or one that lierne returned to this rank
 * alone. Every further call that communicates returns status with the text reason. A rank that
 * waits for this one gets status and "rank R gave up: " with reason at once, not at its deadline
 * (above, Death). status: an error of lierne_status, or a lower number. reason: one line, often
 * lierne_last_error(); copied. Does nothing if the context is dead already. Not collective. Errors:
 * INVALID (NULL, status not negative). */
LIERNE_API lierne_status lierne_context_abort(lierne_context *context, lierne_status status,
                                              const char *reason);

/* Progresses everything in flight in the context without waiting. Call it now and then from a
 * computation that overlaps with communication. If a call in flight fails, lierne_request_end or
 * lierne_request_test returns its error. Not collective. Errors: INVALID (NULL), or the error that
 * killed the context. */
LIERNE_API lierne_status lierne_context_progress(lierne_context *context);

/* Returns OK if the context is alive, otherwise the error that killed it, with its message. Also
 * finds calls that failed on a device after lierne_request_end (lierne/cuda.h): every failure of a
 * call that its stream has passed when this is called. It then tells the other ranks as every call
 * does. Does not wait. Not collective. Errors: INVALID (NULL), or the error that killed the
 * context. */
LIERNE_API lierne_status lierne_context_get_status(lierne_context *context);

/* A buffer of the caller's that another rank may still read or write. */
typedef struct lierne_borrowed {
    const void *data;
    size_t bytes;
    int written; /* nonzero: may still be written (an out); zero: may still be read (an in) */
} lierne_borrowed;

/* Gives up all messages in flight and lists the buffers that stay borrowed until MPI_Finalize has
 * returned: those of failed calls with messages that could not be cancelled. All other buffers
 * belong to the caller again. Call it on a dead context after destroying its plans and before
 * lierne_context_destroy; a context that is not dead has none. Writes up to capacity entries to
 * list, which may be NULL if capacity is 0, and their number, which may be larger, to *count. Not
 * collective. Errors: INVALID (NULL, plans alive). */
LIERNE_API lierne_status lierne_context_get_borrowed(lierne_borrowed *list, size_t capacity,
                                                     size_t *count, lierne_context *context);

/* This rank and the number of ranks of the world (if the context has members: of the larger world);
 * -1 for NULL. Not collective. */
LIERNE_API int lierne_context_get_rank(const lierne_context *context);
LIERNE_API int lierne_context_get_world_size(const lierne_context *context);

/* The name that the spec gave the context, which owns it; NULL without one, and for NULL. Not
 * collective. */
LIERNE_API const char *lierne_context_get_name(const lierne_context *context);

/* The members of a context: their number (-1 for NULL), the rank of member i (-1 if there is none),
 * and the place of a rank in their order (-1 if it is no member, or for NULL). Without a list in
 * the spec they are all ranks of the world. Not collective. */
LIERNE_API int lierne_context_get_nmembers(const lierne_context *context);
LIERNE_API int lierne_context_get_member(const lierne_context *context, int i);
LIERNE_API int lierne_context_find_member(const lierne_context *context, int rank);

/* The rank that a rank of a context had in the context that it was shrunk from
 * (lierne_context_shrink, lierne/node.h); -1 if it was not, if there is no such rank, or for NULL.
 * Not collective. */
LIERNE_API int lierne_context_get_former_rank(const lierne_context *context, int rank);

/* Writes lines of text for people: the transports, the calls in flight with stage, time and the
 * ranks that they wait for, then the last calls that ended; of a dead context its state when it
 * died. Writes at most size bytes with the terminating zero and truncates the rest. Not
 * collective. Errors: INVALID (context or text NULL, size 0). */
LIERNE_API lierne_status lierne_context_dump(char *text, size_t size,
                                             const lierne_context *context);

/* The number of groups alive on this rank, created ones (lierne/group.h) and those that plans share
 * together, and the most that there may be; -1 for NULL. Not collective. */
LIERNE_API int lierne_context_get_ngroups(const lierne_context *context);
LIERNE_API int lierne_context_get_max_groups(const lierne_context *context);

/* The deadline of every wait, in seconds; -1 for NULL. Not collective. */
LIERNE_API double lierne_context_get_timeout(const lierne_context *context);

#ifdef __cplusplus
}
#endif
#endif
