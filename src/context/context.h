/* A context from inside: one control, a transport, what is in flight, and how it died.
 *
 * Executions (execute/) are in flight as activities: the context moves all of them on while this
 * rank waits for anything, and shows them in its dump, without knowing what they are. */
#ifndef LIERNE_CONTEXT_INTERNAL_H
#define LIERNE_CONTEXT_INTERNAL_H

#include "control/control.h"
#include "lierne/context.h"
#include "transport/transport.h"

/* Something in flight. The first member of what embeds it. */
typedef struct lierne_activity {
    struct lierne_activity *next;
    /* One look; returns whether anything happened. */
    bool (*progress)(struct lierne_activity *activity);
    /* Appends a line on what it waits for to text of size bytes, `used` of them taken. */
    size_t (*dump)(const struct lierne_activity *activity, char *text, size_t size, size_t used);
    /* Frees it; called when the context is destroyed, for those that were abandoned. */
    void (*destroy)(struct lierne_activity *activity);
} lierne_activity;

/* A call as the dump shows it. Of calls in flight the activity knows more. */
#define LIERNE_CALLS             8
#define LIERNE_CONTEXT_DUMP_SIZE 4096
typedef struct lierne_call {
    const char *name; /* "forward" */
    int plan;
    double start;
    double end; /* 0: in flight */
    lierne_status status;
} lierne_call;

struct lierne_group;

struct lierne_context {
    const lierne_control *control;
    void *control_self;
    const lierne_transport *transport;
    void *transport_self;
    int rank;
    int world;
    double timeout;
    int *nodes; /* node of every rank, or NULL: one node */
    bool owned_by_sim;
    bool check;         /* compare every call with the other ranks' */
    lierne_status dead; /* OK, or why every further call fails */
    char dead_message[LIERNE_MESSAGE_SIZE];
    char *dead_dump;                 /* or NULL, where there was no memory for it */
    lierne_call calls[LIERNE_CALLS]; /* the last ones, call i at i % LIERNE_CALLS */
    int64_t ncalls;
    size_t nplans; /* alive */
    lierne_activity *in_flight;
    lierne_activity *abandoned; /* destroyed while their messages were under way: kept to the end */
    LIERNE_VEC(struct lierne_group *) groups; /* alive; see group/group.h */
};

/* Reads timeout, LIERNE_TIMEOUT_MS and nodes (world of them are copied) into a context whose world
 * is set. For those that create contexts. */
LIERNE_PRIVATE lierne_status lierne_context_fill(lierne_context *context,
                                                 const lierne_context_spec *spec);
/* The timeout that a context of this spec has, in seconds; the default where the spec or the
 * environment is the error. */
LIERNE_PRIVATE double lierne_context_timeout(const lierne_context_spec *spec);
/* LIERNE_NODE: *node is unchanged if it is not set. Errors: INVALID (not a whole number). */
LIERNE_PRIVATE lierne_status lierne_context_own_node(int *node);
/* Frees what a context points to; drop frees the context too. */
void lierne_context_clear(lierne_context *context);
LIERNE_PRIVATE void lierne_context_drop(lierne_context *context);

/* OK, or the error that killed the context, with its message. */
lierne_status lierne_context_alive(const lierne_context *context);
/* Makes the last failure of this thread, status, the context's end, and tells the other ranks;
 * returns status. */
lierne_status lierne_context_kill(lierne_context *context, lierne_status status);

/* Takes and gives back the control's lock, where it has one: under it activities of all ranks move
 * on. */
void lierne_context_enter(const lierne_context *context);
void lierne_context_leave(const lierne_context *context);
/* Moves on all that is in flight; returns whether anything happened. */
LIERNE_PRIVATE bool lierne_context_progress(const lierne_context *context);
/* Puts an activity in flight and takes it out again, with the lock held. */
void lierne_context_add_activity(lierne_context *context, lierne_activity *activity);
void lierne_context_remove_activity(lierne_context *context, const lierne_activity *activity);
/* Destroys those that were abandoned. */
void lierne_context_destroy_abandoned(lierne_context *context);

/* Notes a call; returns its number. */
int64_t lierne_context_begin_call(lierne_context *context, const char *name, int plan);
/* Notes that it ended. */
void lierne_context_end_call(lierne_context *context, int64_t call, lierne_status status);

/* Collective: the decision of all ranks, see agree in control/control.h. An error of the control
 * kills the context. *id may be asked for later; id may be NULL. */
lierne_status lierne_context_agree(lierne_context *context, lierne_status mine,
                                   const lierne_field *fields, size_t n, int *id);
/* The same, and waits until all ranks have taken part, in a simulated world too. */
lierne_status lierne_context_agree_all(lierne_context *context, lierne_status mine,
                                       const lierne_field *fields, size_t n, int *id);
/* Whether an agreement still holds: in a simulated world a rank that came later may have failed. */
lierne_status lierne_context_agreement_status(const lierne_context *context, int id);
/* Waits until all ranks have taken part in an agreement, and returns it. */
lierne_status lierne_context_await_agreement(lierne_context *context, int id);

/* As in control/control.h; an error other than NO_MEMORY kills the context. */
lierne_status lierne_context_sparse_exchange(lierne_context *context,
                                             const lierne_control_message *messages, size_t n,
                                             lierne_control_messages *received);
lierne_status lierne_context_allreduce_max(lierne_context *context, int64_t *values, size_t n);
/* Frees memory that control messages lay in. Where a peer may still read it, it is left behind. */
void lierne_context_free_message_memory(const lierne_context *context, void *memory);

#endif
