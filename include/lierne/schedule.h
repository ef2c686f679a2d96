/* Schedules: the operations of a step as data, isolated by purpose, checked, and run.
 *
 * Operations of one group run one after the other, as NCCL runs those of one communicator on any
 * streams. An all-to-all that shares its group with other collectives therefore waits for them,
 * even if the step was designed to overlap them. Isolation gives the traffic of one purpose a group
 * of its own over the same ranks.
 *
 * A schedule belongs to one rank: groups, and operations in the order in which the rank launches
 * them. It is pure data: recording, passes, checks and texts need no context. A run executes it:
 *
 *   record                      freeze   pass       pass        commit             every step
 *   add_group, add_operation --------> isolate -> isolate -> lierne_run_create -> begin, test, end
 *
 * Queues. Every group is a queue. Operations of one queue run in the order in which they were
 * recorded: each begins when the one before it and its dependencies are complete. Different queues
 * run concurrently. Operations of kind LOCAL without a group have a queue of their own.
 *
 * Identity. A group is known by its uid (that of lierne/group.h, or any number that the caller
 * assigns), not by its ranks or name: two groups of equal ranks are two queues, and two names of
 * one uid are one queue. One uid with two lists of ranks, or with one list in two orders, is an
 * error.
 *
 * Thread safety: a schedule may be read by any number of threads once it is frozen. A run is used
 * by one thread at a time, as its context. */
#ifndef LIERNE_SCHEDULE_H
#define LIERNE_SCHEDULE_H

#include "lierne/group.h"
#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_schedule lierne_schedule;
typedef struct lierne_run lierne_run;

#define LIERNE_MAX_GROUP_NAME     63 /* characters of the name of a group in a schedule */
#define LIERNE_MAX_OPERATION_NAME 63 /* characters of the name of an operation */

/* What an operation is. SEND and RECV are the two ends of a message between two ranks of the group.
 * PLAN is any plan. LOCAL communicates nothing: a place for the caller's own computation. */
typedef enum lierne_operation_kind {
    LIERNE_OPERATION_ALL_GATHER = 0,
    LIERNE_OPERATION_REDUCE_SCATTER = 1,
    LIERNE_OPERATION_ALL_REDUCE = 2,
    LIERNE_OPERATION_ALL_TO_ALL = 3,
    LIERNE_OPERATION_BROADCAST = 4,
    LIERNE_OPERATION_BARRIER = 5,
    LIERNE_OPERATION_SEND = 6,
    LIERNE_OPERATION_RECV = 7,
    LIERNE_OPERATION_PLAN = 8,
    LIERNE_OPERATION_LOCAL = 9
} lierne_operation_kind;

/* A group of a schedule. Set size to its sizeof and the rest to zero first. */
typedef struct lierne_schedule_group_spec {
    size_t size;
    const char *name; /* 1 to LIERNE_MAX_GROUP_NAME characters, not that of another group */
    int64_t uid;      /* at least 1 */
    const int *ranks; /* of the world, each once, in the group's order; copied */
    int nranks;       /* at least 1 */
    lierne_priority priority;
} lierne_schedule_group_spec;

/* An operation. Begin with LIERNE_OPERATION_SPEC_INIT. */
typedef struct lierne_operation_spec {
    size_t size;
    lierne_operation_kind kind;
    int group;        /* index from lierne_schedule_add_group; -1: none, of LOCAL only */
    const char *tag;  /* the purpose of its traffic, "ep": at most LIERNE_MAX_PURPOSE characters of
                         a-z A-Z 0-9 _ - . NULL: "" */
    const int *after; /* indices of nafter earlier operations, of any queue, that must be complete
                         before this one begins */
    int nafter;
    lierne_dtype dtype; /* dtype and count are compared between ranks; not read with a plan. NONE
                           only where count is 0 */
    int64_t count;      /* elements, at least 0 */
    int root;           /* of a broadcast: a rank of the group; else 0 */
    int peer;           /* of SEND and RECV: another rank of the group; else 0 */
    lierne_plan *plan;  /* the plan that a run executes: of the same kind as the operation, or any
                           plan for SEND, RECV and PLAN. NULL for LOCAL and for schedules that are
                           only checked. The caller's, not copied */
    lierne_direction direction; /* of the plan */
    int held; /* nonzero: it begins in its turn, but moves data only after lierne_run_resume on this
                 rank. For LOCAL: the caller computes between begin and resume */
    const char *name; /* a name for messages, such as that of a graph's node: at most
                         LIERNE_MAX_OPERATION_NAME characters. Not compared between ranks.
                         NULL: "" */
} lierne_operation_spec;
#define LIERNE_OPERATION_SPEC_INIT                                                                 \
    { .size = sizeof(lierne_operation_spec), .group = -1 }

/* Creates an empty schedule of a rank of the world. Free it with lierne_schedule_destroy, which
 * takes NULL. Not collective. Errors: INVALID (NULL, a negative rank), NO_MEMORY. */
LIERNE_API lierne_status lierne_schedule_create(lierne_schedule **out, int rank);
LIERNE_API void lierne_schedule_destroy(lierne_schedule *schedule);

/* Adds a group. *index is its number, from 0 on. spec is copied. Not collective. Errors: INVALID
 * (NULL, a frozen schedule, name, uid, priority, no ranks, a negative rank or one twice, a uid that
 * has other ranks already or the same in another order), DUPLICATE (name), NO_MEMORY. */
LIERNE_API lierne_status lierne_schedule_add_group(int *index, lierne_schedule *schedule,
                                                   const lierne_schedule_group_spec *spec);

/* Adds an operation behind the others. *index is its number, from 0 on. spec is copied, the plan is
 * not. Not collective. Errors: INVALID (NULL, a frozen schedule, a kind, a group that was not
 * added or that the rank is not in, a tag, an index in after that is not of an earlier operation,
 * dtype, count, a root or peer that is not in the group, a plan of another kind, a direction, a
 * name that is too long), NO_MEMORY. */
LIERNE_API lierne_status lierne_schedule_add_operation(int *index, lierne_schedule *schedule,
                                                       const lierne_operation_spec *spec);

/* Ends recording. Passes, checks and runs need a frozen schedule, to which nothing can be added.
 * Not collective. Errors: INVALID (NULL). */
LIERNE_API lierne_status lierne_schedule_freeze(lierne_schedule *schedule);

/* How to isolate traffic. Begin with LIERNE_ISOLATION_SPEC_INIT, the case of expert parallelism:
 * all-to-alls tagged "ep" get a group of high priority. */
typedef struct lierne_isolation_spec {
    size_t size;
    const char *purpose;      /* tag of the operations, purpose of the new groups: 1 to
                                 LIERNE_MAX_PURPOSE characters as in lierne/group.h */
    uint32_t kinds;           /* of the operations: bits, 1u << LIERNE_OPERATION_... */
    lierne_priority priority; /* of the new groups */
    int any_tag;              /* nonzero: the kind alone selects, whatever the tag */
    int singletons;           /* nonzero: groups of one rank, too */
    int also_alone;           /* nonzero: also where a group carries no other operation */
} lierne_isolation_spec;
#define LIERNE_ISOLATION_SPEC_INIT                                                                 \
    {                                                                                              \
        .size = sizeof(lierne_isolation_spec), .purpose = "ep",                                    \
        .kinds = 1u << LIERNE_OPERATION_ALL_TO_ALL, .priority = LIERNE_PRIORITY_HIGH               \
    }
/* All-gathers of sharded parameters on a group of their own, apart from the reduce-scatters. */
#define LIERNE_ISOLATION_SPEC_SPLIT_ALL_GATHER                                                     \
    {                                                                                              \
        .size = sizeof(lierne_isolation_spec), .purpose = "fsdp_ag",                               \
        .kinds = 1u << LIERNE_OPERATION_ALL_GATHER, .any_tag = 1, .also_alone = 1                  \
    }

/* Creates a schedule in which the targets, operations with a kind in kinds and the tag purpose,
 * have groups of their own. A group is isolated if it carries at least one target and at least one
 * other operation of any kind: its targets then move to a new group of the same ranks, purpose@uid.
 * The number and order of operations stay. If nothing is isolated the result equals the input; a
 * second call with the same spec changes nothing. Pure: lierne_run_create creates the groups. The
 * result is frozen and the caller's. Passes may be applied in any order, but their result may
 * depend on it, because a group that the first pass leaves with targets alone is not isolated. Not
 * collective. Errors: INVALID (NULL, a schedule that is not frozen, purpose, kinds, priority),
 * NO_MEMORY; *out is NULL then. */
LIERNE_API lierne_status lierne_schedule_isolate(lierne_schedule **out,
                                                 const lierne_schedule *schedule,
                                                 const lierne_isolation_spec *spec);

/* The rank of a schedule, and its numbers of groups and operations; -1 for NULL. Not collective. */
LIERNE_API int lierne_schedule_get_rank(const lierne_schedule *schedule);
LIERNE_API int lierne_schedule_get_ngroups(const lierne_schedule *schedule);
LIERNE_API int lierne_schedule_get_noperations(const lierne_schedule *schedule);

/* A group of a schedule. Texts and ranks are the schedule's. */
typedef struct lierne_schedule_group {
    size_t size; /* sizeof(lierne_schedule_group), set by the caller; filled as far as it goes */
    const char *name;
    int64_t uid; /* 0: made by a pass, and not created yet */
    const int *ranks;
    int nranks;
    lierne_priority priority;
    const char *purpose; /* of a group that a pass made, else "" */
    int64_t source;      /* uid of the group that it was isolated from, else 0 */
} lierne_schedule_group;
/* Fills *group with group `index`. Not collective. Errors: INVALID (NULL, index, size). */
LIERNE_API lierne_status lierne_schedule_get_group(lierne_schedule_group *group,
                                                   const lierne_schedule *schedule, int index);

/* Fills *operation with operation `index`, as it was added, with the group that passes gave it.
 * size is set by the caller; tag, after and name are the schedule's. Not collective. Errors:
 * INVALID (NULL, index, size). */
LIERNE_API lierne_status lierne_schedule_get_operation(lierne_operation_spec *operation,
                                                       const lierne_schedule *schedule, int index);

/* The result of checking the schedules of all ranks. */
typedef struct lierne_schedule_order {
    size_t size; /* sizeof(lierne_schedule_order), set by the caller; filled as far as it goes */
    int safe_serialised; /* nonzero: no deadlock even if each rank launches one operation after the
                            other and waits for it */
    int safe_concurrent; /* nonzero: no deadlock if queues are independent, so that only the order
                            within a queue and dependencies count */
    int ngroups;         /* that carry operations, over all ranks */
    int ncreated;        /* of them, made by passes: communicators that a run must create */
} lierne_schedule_order;

/* Compares the schedules of several ranks, in any order; those of some ranks may be absent.
 *
 * First the ranks must agree: one list of ranks per uid; the same groups isolated; per group the
 * same operations in the same sequence, with equal kind, tag, dtype, count, root, plan and
 * direction; for each send its receive. A difference is MISMATCH, and the message names rank,
 * operation (with its name), group, sequence number, field, the value expected and the one found.
 *
 * Then the launch orders must not deadlock. An operation of all ranks of a group is one event. If
 * the launch orders close a cycle of events, ranks wait for each other for ever; schedules that
 * agree pair by pair may still close one. cycle gets the shortest cycle with ranks, operations and
 * groups (of concurrent queues if these have one), or "": at most size bytes with the terminating
 * zero. It may be NULL if size is 0. Not collective. Errors: INVALID (NULL, a size, a schedule that
 * is not frozen, two of one rank), MISMATCH, NO_MEMORY. */
LIERNE_API lierne_status lierne_schedule_check(lierne_schedule_order *order, char *cycle,
                                               size_t size, const lierne_schedule *const *schedules,
                                               int n);

/* Writes a schedule as a JSON object (docs/schedules.md). Plans are written as numbers. *text is
 * the caller's, to be freed with lierne_text_destroy. Not collective. Errors: INVALID (NULL, not
 * frozen), NO_MEMORY. */
LIERNE_API lierne_status lierne_schedule_serialize(char **text, const lierne_schedule *schedule);

/* Reads the schedules of a text: {"schedules": [...]}, as many objects as were written, or one
 * object alone. *out has *n schedules, frozen and without plans: to be freed with
 * lierne_schedule_destroy_all, which takes NULL. Not collective. Errors: INVALID (NULL; a member
 * that is missing, unknown or of another type: the message has line and column; what add_group and
 * add_operation say), SYNTAX, NO_MEMORY; *out is NULL then. */
LIERNE_API lierne_status lierne_schedule_deserialize(lierne_schedule ***out, int *n,
                                                     const char *text, size_t length);
LIERNE_API void lierne_schedule_destroy_all(lierne_schedule **schedules, int n);

/* How a run is created. Set size to its sizeof and the rest to zero first; NULL is all zeros. */
typedef struct lierne_run_spec {
    size_t size;
    int concurrent;      /* zero: the order must be safe_serialised (lierne_schedule_order), which
                            transports that launch in host order need; nonzero: safe_concurrent is
                            enough. The same on every rank */
    int progress_thread; /* nonzero: a thread of the run progresses it after lierne_run_begin while
                            the caller computes (Threads, below). May differ between ranks. The
                            thread sleeps while no run is begun, and for 50 us after each poll that
                            finds nothing */
    int external; /* nonzero: the caller executes the operations itself, over communicators of its
                     own such as a framework's process groups. The run compares schedules and keeps
                     groups. Operations need no plans, any transport serves, and lierne_run_begin is
                     INVALID. The same on every rank; not with progress_thread */
    void *stream; /* on the memory of a device (Streams, below): the caller's stream, or NULL. May
                     differ between ranks */
} lierne_run_spec;

/* Threads. Between lierne_run_begin and lierne_run_end of a run with a progress thread, only these
 * calls are allowed: lierne_run_resume, lierne_run_test, lierne_run_get_event and lierne_run_end of
 * the run; lierne_context_progress, lierne_context_get_status, lierne_context_dump,
 * lierne_context_abort, lierne_context_get_recorder_json, lierne_context_get_trace and
 * lierne_context_get_status_json of its context. Other calls that communicate are BUSY, also
 * lierne_run_begin of another run of the context. Destroy nothing of the context. Other contexts
 * are not affected. MPI must provide MPI_THREAD_MULTIPLE; functions of the caller
 * (lierne/oob.h) are called from the thread; signals are blocked in it. If the thread fails,
 * lierne_run_test and lierne_run_end return its error. */

/* Streams. In a context with memory of a device every queue that has operations is a stream of the
 * run's own; that of a group of priority HIGH has the greatest priority of the device.
 * lierne_run_begin enqueues all operations that wait for none that is held, in the order of the
 * schedule, and lierne_run_resume what waited for it; events make streams wait for operations of
 * other queues, and the device needs the host no more. (Messages of a transport that must be polled
 * move in lierne_run_test and lierne_run_end, or by the progress thread.) A LOCAL operation that is
 * held begins when what comes before it is complete; every other operation is enqueued without
 * waiting for that. If spec->stream is not NULL, the run's streams wait for what is enqueued there
 * when lierne_run_begin is called, and a held operation for what is there when lierne_run_resume
 * is called. Otherwise the input must be complete by then. spec->stream must live as long as the
 * run; while it is captured into a CUDA graph, lierne_run_create, lierne_run_begin and
 * lierne_run_resume are UNSUPPORTED. After lierne_run_end all output is complete. Devices with few
 * hardware queues may run streams one after another (CUDA_DEVICE_MAX_CONNECTIONS, lierne/cuda.h).
 *
 * Domains. A transport that matches messages in the order of calls (nccl, ipc) orders those of one
 * domain (lierne/group.h), so the messages of two queues must be in different ones. For operations
 * of groups that passes made the run has plans of its own, which do the same in the group's domain
 * and need memory like the recorded ones. Of the other queues at most one may have plans of the
 * context's own domain; create plans of further ones with a group of lierne_group_create. The
 * recorded plans may be called while no run is begun; calls between lierne_run_begin and
 * lierne_run_end need the same order on all ranks as the operations of their domain. Runs that are
 * begun at the same time and share a group must begin in one order on all ranks. */

/* Creates a run: compares the schedules of all ranks (lierne_schedule_check), then creates the
 * groups that passes made and that no earlier run has. Collective over the context: all ranks must
 * call, each with its own schedule, even ranks whose schedule is empty, and wait for each other (in
 * a simulated world: a thread per rank). The first rank receives all schedules. The run copies the
 * schedule; the plans stay the caller's and can be neither destroyed nor updated while the run
 * holds them. If any
 * rank fails, every rank gets the same error, nothing is created, and *out is NULL. Errors:
 * INVALID (NULL, spec, a schedule that is not frozen or of another rank, a rank outside of the
 * context, an operation without plan that is not LOCAL, unless external, a plan of another context
 * or with messages to or from a rank outside of the operation's group, one plan and direction in
 * two queues, messages of two queues in one domain (Domains, above), a plan with a shared output in
 * a group that a pass made over nccl or ipc, a stream in a context without memory of a device; a
 * cycle, which the message has), MISMATCH (lierne_schedule_check; ranks hold different groups of
 * earlier runs), UNSUPPORTED (a transport orders all messages and has no domains; a stream that is
 * captured; a progress thread where MPI provides less than MPI_THREAD_MULTIPLE), NO_RESOURCE
 * (max_groups; no thread), NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_run_create(lierne_run **out, lierne_context *context,
                                           const lierne_schedule *schedule,
                                           const lierne_run_spec *spec);

/* The groups that lierne_run_create created for this run, on any ranks. Number and order are the
 * same on every rank, so an external executor can create its communicators in this order.
 * get_ncreated: -1 for NULL, 0 if earlier runs had all groups. get_created fills *group with group
 * `index`, as lierne_schedule_get_group does; texts and ranks are the run's. Not collective.
 * Errors: INVALID (NULL, index, size). */
LIERNE_API int lierne_run_get_ncreated(const lierne_run *run);
LIERNE_API lierne_status lierne_run_get_created(lierne_schedule_group *group, const lierne_run *run,
                                                int index);

/* Destroys a run, and the groups that no other run of the context uses, the newest first.
 * Collective as lierne_group_destroy. NULL is allowed. Errors: BUSY (it was begun and not ended,
 * and the context is not dead; nothing is destroyed); those of lierne_group_destroy (the run is
 * destroyed). */
LIERNE_API lierne_status lierne_run_destroy(lierne_run *run);

/* Starts all operations. out and in have an entry per operation, under the rules of
 * lierne_plan_forward; entries of LOCAL are not read. All buffers are borrowed until lierne_run_end
 * has returned; the two arrays are copied. An array whose entries are all NULL may be NULL.
 * Collective over the context. A context that checks does not compare these calls again. Errors:
 * INVALID (NULL, an external run, a buffer that its plan rejects: nothing was started), BUSY (begun
 * and not ended), UNSUPPORTED (spec->stream is captured: nothing was started), or the error that
 * killed the context. */
LIERNE_API lierne_status lierne_run_begin(lierne_run *run, void *const *out, const void *const *in);

/* Lets a held operation move its data, or marks the caller's computation of a LOCAL one as
 * complete. May be called before the operation begins. Not collective. Errors: INVALID (NULL, no
 * such operation, one that is not held, a run that was not begun), UNSUPPORTED (spec->stream is
 * captured: the operation is still held). */
LIERNE_API lierne_status lierne_run_resume(lierne_run *run, int operation);

/* Progresses the run without waiting; call it now and then from a computation. *done becomes 1 if
 * lierne_run_end would return at once, else 0. Not collective. Errors: INVALID (NULL, a run that
 * was not begun), and those of lierne_run_end. */
LIERNE_API lierne_status lierne_run_test(int *done, lierne_run *run);

/* Waits until all operations of this rank are complete, and ends the execution, also on failure.
 * Every rank that began the run must end it, because its operations wait for those of the others.
 * Errors: INVALID (NULL, a run that was not begun); those of lierne_request_end; TIMEOUT also if
 * nothing has progressed for the context's timeout: the message names the operation that is held or
 * waits, and the one behind it in its queue. The context is dead then. IO: the execution is
 * complete, but its events could not be written to the file of LIERNE_TRACE (lierne_run_get_trace).
 */
LIERNE_API lierne_status lierne_run_end(lierne_run *run);

/* An operation of the last execution. Times are seconds of a monotonic clock; 0: not yet. On
 * streams they are those of the look (in lierne_run_test, lierne_run_end or the progress thread)
 * that found that the stream had passed it: an operation begun before another one ended did begin
 * before, and with few looks some overlap is not seen. */
typedef struct lierne_run_event {
    size_t size;    /* sizeof(lierne_run_event), set by the caller; filled as far as it goes */
    int queue;      /* number of its queue: the first group of its uid; ngroups: the local one */
    int64_t uid;    /* of its group; 0: none */
    int64_t bytes;  /* that this rank sends to others */
    double issued;  /* when lierne_run_begin was called */
    double begun;   /* when it began in its queue */
    double resumed; /* when it started to move data: at begun, unless it is held */
    double ended;
} lierne_run_event;
/* Fills *event for an operation. Not collective. Errors: INVALID (NULL, size, operation). */
LIERNE_API lierne_status lierne_run_get_event(lierne_run_event *event, const lierne_run *run,
                                              int operation);

/* Writes the last execution as events of the Chrome trace format: one JSON object per line,
 * separated by commas. Join the texts of all ranks with commas and put them in [ ] to open them in
 * Perfetto. The process is the rank, the thread the queue; arrows lead from sends to receives.
 * Times are those of lierne_context_get_trace; an operation with a plan has the number of its call.
 * If the environment variable LIERNE_TRACE names a file (with an ending, such as .json, or one that
 * exists), every lierne_run_end appends its events to it; if it names a folder, to runs-<host>.json
 * there; ranks of one host may share the file, which Perfetto opens as it is. Times in the file
 * count from the creation of the context that wrote to it first. Free *text with
 * lierne_text_destroy. Not collective. Errors: INVALID (NULL), BUSY (not ended), NO_MEMORY. */
LIERNE_API lierne_status lierne_run_get_trace(char **text, const lierne_run *run);

#ifdef __cplusplus
}
#endif
#endif
