/* The context: one control, a transport, the activities in flight, and the error that killed it.
 *
 * Running executions (execute/) are activities: while this rank waits, the context progresses all
 * of them and lists them in its dump, without knowing what they are. */
#ifndef LIERNE_CONTEXT_INTERNAL_H
#define LIERNE_CONTEXT_INTERNAL_H

#include "lierne/context.h"
#include "runtime/context/back_end.h"
#include "runtime/context/counters.h"
#include "runtime/context/log.h"
#include "runtime/context/metrics.h"
#include "runtime/control/control.h"
#include "runtime/control/members.h"
#include "runtime/control/processes.h"
#include "runtime/memory/memory.h"
#include "runtime/recorder/recorder.h"
#include "runtime/transport/transport.h"

#include <stdatomic.h>

/* Messages that are ordered among each other on transports that are ordered: those of a group, with
 * the state that transports have for it; the context's own is NULL. */
#define LIERNE_MAX_TRANSPORTS 4
typedef struct lierne_domain {
    void *states[LIERNE_MAX_TRANSPORTS]; /* as the carriers; NULL: that of the context serves */
} lierne_domain;

/* Something in flight. The first member of the struct that embeds it. */
typedef struct lierne_activity {
    struct lierne_activity *next;
    /* Polls once; returns whether anything progressed. */
    bool (*progress)(struct lierne_activity *activity);
    /* Appends a line about what it waits for to text of size bytes, `used` of them used. Returns
     * the bytes used then. */
    size_t (*dump)(const struct lierne_activity *activity, char *text, size_t size, size_t used);
    /* Gives up what is under way, of a dead context. Writes up to capacity of the caller's buffers
     * that stay borrowed to list; returns how many there are. */
    size_t (*withdraw)(struct lierne_activity *activity, lierne_borrowed *list, size_t capacity);
    /* Frees an abandoned activity, when the context is destroyed. */
    void (*destroy)(struct lierne_activity *activity);
    /* The number of its call while it has messages to post on a transport that is ordered, else -1:
     * later calls of its domain wait until it has posted them. */
    int64_t turn;
    const lierne_domain *domain; /* of the order of its messages */
    const void *stream;          /* of the running call, which has one order for all domains */
    bool awaits_stream; /* nothing wakes a rank that sleeps when a stream has done its work */
    /* Index of the transport that serves all its messages; -1: none, or several. */
    int carrier;
} lierne_activity;

/* What was made from a context and must be destroyed before it: a plan, coalesced plans, a group.
 * A member of the struct that embeds it. */
typedef struct lierne_dependent {
    struct lierne_dependent *next; /* older */
    /* Whether an execution of it is in flight. */
    bool (*busy)(const struct lierne_dependent *dependent);
    /* Destroys it, and takes it from the list. */
    lierne_status (*destroy)(struct lierne_dependent *dependent);
    bool is_plan;
} lierne_dependent;

/* A transport of the context, and its state. */
typedef struct lierne_carrier {
    const lierne_transport *transport;
    void *self;
    /* The memory kind, by name, that it reads and writes although the host cannot; or NULL. Of
     * transports that are polled; need not be the same on all ranks. */
    const char *takes;
} lierne_carrier;

/* Series of match ids that a plan has (plan/match_ids.c). */
typedef struct lierne_series {
    int first;
    int count;
} lierne_series;

/* A transport that the context does not use although it could, and why, for the dump. */
typedef struct lierne_unused {
    const char *transport;
    char why[200];
} lierne_unused;

/* What destroys a context that is not the caller's, for messages. */
typedef struct lierne_context_owner {
    const char *name;        /* "a simulated world" */
    const char *destroy;     /* the public function */
    const char *destroy_all; /* the same, with plans and groups */
} lierne_context_owner;

/* A call as the dump shows it; for calls in flight the activity adds details. */
#define LIERNE_CALLS             8
#define LIERNE_CONTEXT_DUMP_SIZE 4096
typedef struct lierne_call {
    const char *name; /* "forward" */
    int64_t number;   /* of its plan and direction; -1: it executes nothing */
    int plan;         /* -1: of none */
    int64_t start;    /* by the recorder's clock */
    int64_t end;      /* 0: in flight */
    lierne_status status;
} lierne_call;

/* What lierne_context_alloc returned. */
typedef struct lierne_context_memory {
    void *data;
    void *block; /* that it is part of, where it is ordinary memory; NULL: a transport's */
} lierne_context_memory;

/* Memory of a device that is freed with the context. */
typedef struct lierne_kept {
    void *memory;
    size_t bytes;
    bool host;  /* of alloc_host */
    bool taken; /* else it can be used again */
} lierne_kept;

struct lierne_group;
typedef struct lierne_watchdog lierne_watchdog;

/* Whose turn it is, of the caller and a thread of the library that progresses the context. */
typedef struct lierne_guard {
    pthread_mutex_t lock;
    pthread_cond_t changed;
} lierne_guard;

struct lierne_context {
    const lierne_control *control;
    void *control_self;
    lierne_carrier carriers[LIERNE_MAX_TRANSPORTS]; /* the best first */
    int ncarriers;
    int match_ids;                    /* 0 to one less, on all of them; the same on every rank */
    LIERNE_VEC(lierne_series) series; /* of plans that are alive, in ascending order */
    lierne_unused unused[LIERNE_MAX_TRANSPORTS];      /* without a name: free */
    const lierne_memory *memory;                      /* the kind of all buffers */
    const struct lierne_stream_driver *stream_driver; /* or NULL: no calls on streams */
    const struct lierne_ranges *ranges;               /* or NULL: no profiler is attached */
    void *own_stream; /* for what lierne enqueues by itself; NULL: it needs none */
    void (*destroy_own_stream)(void *stream); /* or NULL */
    LIERNE_VEC(lierne_kept) kept;
    lierne_watchdog *watchdog;                 /* or NULL: nothing outlives its end on a stream */
    const lierne_device_memory *device_memory; /* that is rejected here, or NULL: none was loaded */
    void *device_driver;                       /* of it */
    _Atomic(lierne_guard *) guard;             /* or NULL: no thread progresses it now */
    char one_thread[64];    /* why only the caller's threads may progress it, or "" */
    lierne_members members; /* the world, and the ranks of it that the context has */
    int rank;               /* in the world */
    int index;              /* among the members */
    double timeout;
    int *nodes;  /* node of every member, or NULL: one node */
    bool shrunk; /* the ranks that are left have tried to agree */
    int *former; /* of a context that was shrunk: the rank that each one had before; or NULL */
    int device;  /* whose memory this is, as the memory kind counts them; 0 for the host's */
    lierne_links links;
    const lierne_context_owner *owner; /* or NULL: the caller's */
    struct lierne_context *next_used;  /* in a simulated world: the one first used after this one */
    bool check;                        /* compare every call with the other ranks' */
    bool summary;                      /* written at the end */
    bool traces;                       /* calls are appended to a file */
    int64_t traced;                    /* entries of the recorder that it has got */
    lierne_status dead;                /* OK, or why every further call fails */
    const char *killer;                /* the public function that failed then */
    char dead_message[LIERNE_MESSAGE_SIZE];
    char *dead_dump;                 /* NULL if there was no memory for it */
    lierne_call calls[LIERNE_CALLS]; /* the last ones: call i is at i % LIERNE_CALLS */
    int64_t ncalls;
    lierne_recorder recorder;
    lierne_log log;
    lierne_metrics metrics;
    char *name;                         /* or NULL */
    lierne_counters *counters;          /* the oldest first */
    lierne_counters *reserved_counters; /* memory of the first ones, or NULL */
    size_t nplans;                      /* alive; those that other plans own are not counted */
    lierne_dependent *dependents;       /* the newest first */
    LIERNE_VEC(lierne_context_memory) memories; /* alive */
    size_t nwindows;                            /* alive */
    lierne_activity *in_flight;
    lierne_activity *abandoned; /* destroyed with messages in flight: freed with the context */
    bool borrows; /* a peer or a stream may still use a buffer of one that was freed */
    LIERNE_VEC(struct lierne_group *) groups; /* alive; see runtime/group/group.h */
    int max_groups;
    int64_t last_group_uid; /* the same on every rank */
};

/* Reads the spec of a function that creates contexts (lierne_spec_take); NULL is all zeros. */
LIERNE_PRIVATE lierne_status lierne_context_take_spec(lierne_context_spec *spec,
                                                      const lierne_context_spec *given);
/* Reads timeout, LIERNE_TIMEOUT_MS, check, LIERNE_CHECK, members and nodes (copied) into a context.
 * index is set before, and members.count or members.world where the creating function knows it: the
 * spec must not say otherwise. For the functions that create contexts. */
LIERNE_PRIVATE lierne_status lierne_context_fill(lierne_context *context,
                                                 const lierne_context_spec *spec);
/* The timeout of a context with this spec, in seconds; the default if the spec or the environment
 * is invalid. */
LIERNE_PRIVATE double lierne_context_timeout(const lierne_context_spec *spec);
/* nodes.c. An id of the node of this rank, which is at an index of spec->nodes: LIERNE_NODE, else
 * spec->nodes, else a hash of host. Errors: INVALID (LIERNE_NODE). */
LIERNE_PRIVATE lierne_status lierne_context_node_id(uint64_t *id, const lierne_context_spec *spec,
                                                    int index, const char *host);
/* Numbers the nodes that infos name, in context->nodes, which has space for all: a node by its
 * lowest rank. Frees the numbers if there is one node. Sorts infos. */
LIERNE_PRIVATE void lierne_context_number_nodes(lierne_context *context, lierne_rank_info *infos,
                                                int world);
/* What the ranks of a new context compare in a call: fields, which are zero before, have space for
 * LIERNE_CONTEXT_FIELDS. Selects the transports (below) and has its errors. */
#define LIERNE_CONTEXT_FIELDS 9
LIERNE_PRIVATE lierne_status lierne_context_list_fields(lierne_field *fields,
                                                        lierne_context *context,
                                                        const lierne_context_spec *spec,
                                                        const char *call);
/* Opens the flight recorder of a context, whose members and timeout are known; capacity: entries.
 * Errors: as lierne_recorder_open. Part of lierne_context_fill, except for simulated worlds, which
 * call it with the entries that these have. */
lierne_status lierne_context_open_recorder(lierne_context *context, unsigned capacity);
#define LIERNE_RECORDER_ENTRIES     1024
#define LIERNE_RECORDER_TRACED      (1 << 16) /* where calls are appended to a file */
#define LIERNE_RECORDER_FEW_ENTRIES 64        /* without a file: there may be thousands of ranks */
/* Sets *text to what write adds, given what the recorder has; the body of public calls, so it
 * checks their arguments. Errors: INVALID, NO_MEMORY, those of write. */
struct lierne_dump;
typedef lierne_status lierne_context_writer(lierne_text *text, const struct lierne_dump *dump,
                                            const lierne_context *context);
lierne_status lierne_context_write(char **text, const lierne_context *context,
                                   lierne_context_writer *write);
/* diagnose/call_trace.c. Appends calls that have ended to a file, where LIERNE_TRACE names a folder
 * and the context is alive. To be called before a plan ends or gets another number, because its
 * route knows the arrows, and before the context ends. */
void lierne_context_trace_calls(lierne_context *context);
/* A sign of life of a rank that waits, at most every few milliseconds. */
LIERNE_PRIVATE void lierne_context_beat(lierne_context *context);

/* Adds a transport, at the place that its priority gives it. takes: of its carrier. Errors:
 * UNSUPPORTED (the context has LIERNE_MAX_TRANSPORTS of them). */
LIERNE_PRIVATE lierne_status lierne_context_add_transport(lierne_context *context,
                                                          const lierne_transport *transport,
                                                          void *self, const char *takes);
/* The same for a context that has no plans, at the place that LIERNE_TRANSPORTS, which allows it,
 * gives it; by its priority where that is not set. */
lierne_status lierne_context_place_transport(lierne_context *context,
                                             const lierne_transport *transport, void *self);
/* Notes why the context does not use a transport, until it is added; the last reason stays. */
void lierne_context_note_unused(lierne_context *context, const lierne_transport *transport,
                                const char *why);
/* Whether a reason was noted. */
bool lierne_context_is_unused(lierne_context *context, const lierne_transport *transport);
/* context_heap.c. The heap of a transport that has one, or NULL. */
struct lierne_heap;
struct lierne_heap *lierne_context_heap(const lierne_context *context);
/* Memory for scratch and staging slots, of the heap where it has space; freed here. Neither waits
 * for a device. quiet, here and below: as of lierne_lifetime_find. */
lierne_status lierne_context_alloc_scratch(void **out, lierne_context *context, int64_t bytes);
void lierne_context_free_scratch(lierne_context *context, void *memory, bool quiet);
/* The same in a window whose peers can read it, where a transport has one with space: *window. */
lierne_status lierne_context_alloc_shown(void **out, bool *window, lierne_context *context,
                                         int64_t bytes);
void lierne_context_free_shown(lierne_context *context, void *memory, bool window, bool quiet);
/* context_kept.c. Memory of the kind of buffers, or of its alloc_host. Where it lives as long as
 * the context, the context uses again what is freed, and frees it at its end (drop_kept).
 * reserve_kept: with the context, so that plans leave nothing on the heap. */
LIERNE_PRIVATE lierne_status lierne_context_alloc_kept(void **out, lierne_context *context,
                                                       size_t bytes, bool host);
LIERNE_PRIVATE void lierne_context_free_kept(lierne_context *context, void *memory, bool host,
                                             bool quiet);
LIERNE_PRIVATE lierne_status lierne_context_reserve_kept(lierne_context *context);
void lierne_context_drop_kept(lierne_context *context);
/* Adds a chunk to the heap of a transport, which need not be one of the context yet: of the
 * greatest bytes of any rank; where that is 0, or the heap does not grow, none. What the ranks
 * cannot add together is no error. Collective, waits for all ranks. Errors, of all ranks: those of
 * the transport, which is aborted then; of the control, and the context is dead. add_to_heap: the
 * same for the context's; does nothing where it has none. Any error kills the context. */
LIERNE_PRIVATE lierne_status lierne_context_grow_heap(lierne_context *context,
                                                      const lierne_carrier *carrier, int64_t bytes);
lierne_status lierne_context_add_to_heap(lierne_context *context, int64_t bytes);

/* Whether LIERNE_TRANSPORTS allows a transport of this name. */
bool lierne_context_allows_transport(const char *name);
/* Keeps the transports that LIERNE_TRANSPORTS names, in its order; all of them if it is not set. To
 * be called once, after the last was added. Errors: INVALID (an unknown name, a name twice, none
 * that the context has). */
lierne_status lierne_context_select_transports(lierne_context *context);
/* Their names, separated by commas, as far as they fit. */
void lierne_context_list_transports(char *text, size_t size, const lierne_context *context);
/* Whether one of them connects the two ends of each message when a plan is made: the same on every
 * rank. */
bool lierne_context_connects(const lierne_context *context);
/* The state of a transport for a domain. */
static inline void *lierne_context_state(const lierne_context *context, int carrier,
                                         const lierne_domain *domain) {
    return domain && domain->states[carrier] ? domain->states[carrier]
                                             : context->carriers[carrier].self;
}
/* The first transport that reaches a peer, as an index of carriers. resizes: messages change their
 * length between calls. Errors: UNSUPPORTED (none). */
lierne_status lierne_context_find_carrier(int *carrier, const lierne_context *context, int peer,
                                          bool resizes);

/* Frees what a context points to. lierne_context_drop also frees the context. */
void lierne_context_clear(lierne_context *context);
LIERNE_PRIVATE void lierne_context_drop(lierne_context *context);

/* INVALID while memory of lierne_context_alloc, or a window, is alive. */
lierne_status lierne_context_check_memory(const lierne_context *context);
/* Frees all of it that is no transport's. */
void lierne_context_drop_memory(lierne_context *context);

/* OK, or the error that killed the context, with its message; kills it with what the watchdog
 * found.
 */
LIERNE_PRIVATE lierne_status lierne_context_alive(lierne_context *context);
/* The same, after a look at what the watchdog watches. */
lierne_status lierne_context_look(lierne_context *context);
/* guard.c. Take turns with the thread of a run; nothing for NULL. wait gives the turn away until
 * the guard's condition was signalled. */
void lierne_guard_enter(lierne_guard *guard);
void lierne_guard_leave(lierne_guard *guard);
void lierne_guard_wait(lierne_guard *guard);
/* BUSY while there is a guard that this thread has not entered. */
lierne_status lierne_context_check_guard(const lierne_context *context);
/* Kills the context with status and the thread's message, and tells the other ranks that this one
 * gave up. Returns status. Does nothing else if the context is dead already. */
lierne_status lierne_context_kill(lierne_context *context, lierne_status status);

/* Acquires and releases the control's lock, if it has one. Activities of all ranks progress under
 * it. */
static inline void lierne_context_enter(const lierne_context *context) {
    if (context->control->lock) {
        context->control->lock->enter(context->control_self);
    }
}
static inline void lierne_context_leave(const lierne_context *context) {
    if (context->control->lock) {
        context->control->lock->leave(context->control_self);
    }
}
/* Progresses everything in flight; returns whether anything progressed. */
LIERNE_PRIVATE bool lierne_context_poll(const lierne_context *context);
/* Whether something in flight waits for a stream. */
bool lierne_context_awaits_stream(const lierne_context *context);
/* After a poll of everything that found nothing: lets other ranks run. Returns whether it slept. */
bool lierne_context_idle(const lierne_context *context);
/* Adds an activity to those in flight; removes it. Called with the lock. */
void lierne_context_add_activity(lierne_context *context, lierne_activity *activity);
void lierne_context_remove_activity(lierne_context *context, const lierne_activity *activity);
/* Adds what was just made to the dependents; removes it, if it is there. Returns whether it was. */
void lierne_context_add_dependent(lierne_context *context, lierne_dependent *dependent);
bool lierne_context_remove_dependent(lierne_context *context, const lierne_dependent *dependent);
/* BUSY if an execution of a dependent is in flight and the context is not dead. */
lierne_status lierne_context_check_dependents(const lierne_context *context);
/* Destroys all dependents, the newest first, also after an error: the first one is returned. */
lierne_status lierne_context_destroy_dependents(lierne_context *context);

/* Records the begin of a call for the dump, named as by lierne_call_print; returns its place in the
 * context's order of calls. */
int64_t lierne_context_begin_call(lierne_context *context, const char *name, int64_t number,
                                  int plan);
void lierne_context_print_call(char text[LIERNE_CALL_TEXT], const lierne_context *context,
                               const lierne_call *call);
/* Records its end. */
void lierne_context_end_call(lierne_context *context, int64_t call, lierne_status status);

/* Collective. Returns the decision of all ranks (agree in runtime/control/control.h). An error of
 * the control kills the context. *id is the number of the agreement; id may be NULL. */
lierne_status lierne_context_agree(lierne_context *context, lierne_status mine,
                                   const lierne_field *fields, size_t n, int *id);
/* The same, but waits until all ranks have taken part, in a simulated world too. */
LIERNE_PRIVATE lierne_status lierne_context_agree_all(lierne_context *context, lierne_status mine,
                                                      const lierne_field *fields, size_t n,
                                                      int *id);
/* The decision of an agreement so far: in a simulated world a rank may fail it later. */
lierne_status lierne_context_agreement_status(const lierne_context *context, int id);
/* Waits until all ranks have taken part in an agreement and returns the decision. */
lierne_status lierne_context_await_agreement(lierne_context *context, int id);

/* As in runtime/control/control.h, with ranks: those of messages must be members, and are
 * overwritten. An error other than NO_MEMORY kills the context. */
/* An agreement that waits for all ranks, and a sparse exchange, which costs nothing more over MPI.
 * Returns the decision, or an error that kills the context; where that is OK, *memory is
 * NO_MEMORY if this rank had none for what arrived, and received is empty then. */
lierne_status lierne_context_agree_exchange(lierne_context *context,
                                            const lierne_control_agreement *agreement,
                                            lierne_control_message *messages, size_t n,
                                            lierne_control_messages *received,
                                            lierne_status *memory);
LIERNE_PRIVATE lierne_status lierne_context_sparse_exchange(lierne_context *context,
                                                            lierne_control_message *messages,
                                                            size_t n,
                                                            lierne_control_messages *received);
/* context_members.c: what knows ranks of the world calls these, controls and transports know
 * indices. */
/* Part of lierne_context_fill. */
lierne_status lierne_context_take_members(lierne_context *context, const lierne_context_spec *spec);
/* The index of a rank among the members; -1 for one that is no member. */
int lierne_context_index(const lierne_context *context, int rank);
/* INVALID unless the n ranks from first on, those of a grid called name, are members. */
lierne_status lierne_context_check_ranks(const lierne_context *context, const char *name, int first,
                                         int n);
#define LIERNE_MEMBERS_TEXT 160 /* space for lierne_members_print in a message */
/* gave_up and alive of runtime/control/control.h; OK where the control has not the capability. */
lierne_status lierne_context_gave_up(const lierne_context *context, int rank);
lierne_status lierne_context_peer_alive(const lierne_context *context, int rank);
LIERNE_PRIVATE lierne_status lierne_context_allreduce_max(lierne_context *context, int64_t *values,
                                                          size_t n);
/* Frees a buffer that control messages were sent from; never if a peer may still read it. */
LIERNE_PRIVATE void lierne_context_free_message_memory(const lierne_context *context, void *memory);

#endif
