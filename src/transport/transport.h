/* Contexts, wires and jobs.
 *
 * A wire moves bytes between ranks and knows nothing else: it is a table of a few functions. A job
 * is one route made ready to run over a context's wire: memory reserved, one execution at a time.
 * The engine (engine.c) runs jobs over any wire; self, sim and mpi are wires. */
#ifndef LIERNE_TRANSPORT_H
#define LIERNE_TRANSPORT_H

#include "lierne/plan.h"
#include "route/route.h"

/* A value on which all ranks must agree, with its name for the message. */
typedef struct lierne_field {
    char name[32];
    int64_t value;
} lierne_field;

/* What builders tell each other while they plan. */
typedef struct lierne_letter {
    int peer;
    size_t count;
    int64_t *words;
} lierne_letter;
typedef LIERNE_VEC(lierne_letter) lierne_letters;

typedef struct lierne_wire {
    const char *name;

    /* A batch holds up to capacity messages in flight, each in a slot of its own. A slot is free
     * again when poll has named it. batch_free gives up what is in flight, and returns whether the
     * memory of the messages is quiet; otherwise peers may still read and write it. */
    lierne_status (*batch_new)(void *self, size_t capacity, void **batch);
    bool (*batch_free)(void *batch);

    /* Start a message; data stays borrowed until poll names the slot. Messages between the same
     * two ranks with the same tag arrive in the order in which they were started; sizes of both
     * ends must be equal (TRANSPORT otherwise, from here or from poll). */
    lierne_status (*send)(void *batch, size_t slot, int peer, int tag, const void *data,
                          size_t bytes);
    lierne_status (*recv)(void *batch, size_t slot, int peer, int tag, void *data, size_t bytes);

    /* Writes the slots that finished since the last poll into done (room for capacity). */
    lierne_status (*poll)(void *batch, size_t *done, size_t *ndone);

    /* Nothing finished: lets others work. */
    void (*idle)(void *self);

    /* PEER_FAILED if the process of a rank is known to have ended; NULL where nobody can tell. */
    lierne_status (*alive)(void *self, int peer);

    /* Tells the other ranks that this one gave up, with status and the thread's message, before it
     * returns. Called once. NULL where there are no others. */
    void (*give_up)(void *self, lierne_status status);
    /* Whether any rank is known to have given up; costs next to nothing. */
    bool (*any_gave_up)(void *self);
    /* The error of a peer that is known to have given up. */
    lierne_status (*gave_up)(void *self, int peer);

    /* Around everything that runs jobs; NULL where a context needs no lock. */
    void (*enter)(void *self);
    void (*leave)(void *self);

    /* Collective: the same decision on every rank. If mine is an error on some rank, every rank
     * gets that of the lowest such rank, with its message. Else, if a field differs, MISMATCH with
     * a message that names the lowest rank that differs from rank 0, the field and both values.
     * *id numbers the decision, the same on every rank. */
    lierne_status (*agree)(void *self, lierne_status mine, const lierne_field *fields, size_t n,
                           int *id);
    /* Whether a decision still holds; NULL where agree waits for all ranks. */
    lierne_status (*agreed)(void *self, int id);

    /* Waits until every rank took part in a decision, and returns it; NULL where agree waits. */
    lierne_status (*settled)(void *self, int id);

    /* Collective, waits for all ranks. Sends letters, at most one to a rank, itself allowed, to ranks
     * that do not expect them, and adds those that came to received (empty before), by ascending
     * sender; words are then the caller's (lierne_letters_free). Costs messages for letters only, and
     * memory in proportion to them. Errors: NO_MEMORY (received is empty; the other ranks are not
     * disturbed), TIMEOUT, PEER_FAILED, TRANSPORT: then context->lends may be set. */
    lierne_status (*post)(void *self, const lierne_letter *letters, size_t n,
                          lierne_letters *received);

    /* Collective, waits for all ranks: values, at most LIERNE_LARGEST of them, become their maxima
     * over the ranks. Errors: TIMEOUT, PEER_FAILED, TRANSPORT. */
    lierne_status (*largest)(void *self, int64_t *values, size_t n);

    /* Ends the wire. dead: do not communicate. */
    void (*close)(void *self, bool dead);
} lierne_wire;

typedef struct lierne_job lierne_job;
struct lierne_group;

/* A call as the dump shows it. Of calls in flight the job knows more. */
#define LIERNE_CALLS     8
#define LIERNE_DUMP_SIZE 4096
typedef struct lierne_call {
    const char *name; /* "forward" */
    int plan;
    double start;
    double end; /* 0: in flight */
    lierne_status status;
} lierne_call;

struct lierne_context {
    const lierne_wire *wire;
    void *self;
    int rank;
    int world;
    double timeout;
    int *nodes; /* node of every rank, or NULL: one node */
    bool owned_by_sim;
    bool check; /* compare every call with the other ranks' */
    lierne_status dead; /* OK, or why every further call fails */
    char dead_message[LIERNE_MESSAGE_SIZE];
    char *dead_dump; /* or NULL, where there was no memory for it */
    bool lends;      /* letters were under way: their memory may still be read */
    lierne_call calls[LIERNE_CALLS]; /* the last ones, call i at i % LIERNE_CALLS */
    int64_t ncalls;
    size_t nplans; /* alive */
    lierne_job *jobs;    /* in flight */
    lierne_job *orphans; /* freed while their messages were under way: memory kept to the end */
    LIERNE_VEC(struct lierne_group *) groups; /* alive; see group/group.h */
};

/* Reads timeout, LIERNE_TIMEOUT_MS and nodes (world of them are copied) into a context whose world
 * is set. For lierne_init and its like. */
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
LIERNE_PRIVATE lierne_status lierne_context_alive(const lierne_context *context);
/* Takes and gives back the wire's lock, where it has one: under it jobs of all ranks move on. */
void lierne_context_enter(const lierne_context *context);
void lierne_context_leave(const lierne_context *context);
/* Notes a call; returns its number. */
int64_t lierne_context_call(lierne_context *context, const char *name, int plan);
/* Notes that it ended. */
void lierne_context_ended(lierne_context *context, int64_t call, lierne_status status);
/* Makes the last failure of this thread, status, the context's end; returns status. */
LIERNE_PRIVATE lierne_status lierne_context_kill(lierne_context *context, lierne_status status);

/* For builders whose planning takes messages. settle: agree, and wait for all ranks. The others are
 * those of the wire; where they fail but for NO_MEMORY, the context is dead. */
lierne_status lierne_context_settle(lierne_context *context, lierne_status mine,
                                    const lierne_field *fields, size_t n);
lierne_status lierne_context_post(lierne_context *context, const lierne_letter *letters, size_t n,
                                  lierne_letters *received);
lierne_status lierne_context_largest(lierne_context *context, int64_t *values, size_t n);
/* Frees memory that letters lay in when they were posted. Where it may still be read, it is left
 * behind. */
void lierne_context_reclaim(const lierne_context *context, void *memory);
LIERNE_PRIVATE void lierne_letters_free(lierne_letters *letters);
/* Adds a letter from a rank, with room for count words that are still to be written. */
LIERNE_PRIVATE lierne_status lierne_letters_add(lierne_letters *letters, int from, size_t count);
/* Adds a copy of a letter that a rank sent. */
lierne_status lierne_letters_copy(lierne_letters *letters, int from, const lierne_letter *letter);
#define LIERNE_LARGEST 8

/* A route to run, and the type of its elements. */
typedef struct lierne_cargo {
    const lierne_route *route;
    lierne_dtype dtype;
    bool accumulates; /* operations with `onto` add to what out holds */
} lierne_cargo;

/* A job of n routes that run together, messages with the same peer as one. It keeps pointers to the
 * routes. name stands in messages ("forward"). */
lierne_status lierne_job_new(lierne_job **out, lierne_context *context, const lierne_cargo *cargo,
                             size_t n, const char *name);
void lierne_job_free(lierne_job *job);
/* Frees the jobs that were freed in flight. */
void lierne_jobs_drop_orphans(lierne_context *context);
/* The number of its plan, and the tag of its messages: the same on every rank, and the tag not that
 * of another job in flight. */
void lierne_job_identify(lierne_job *job, int plan, int tag);
/* Appends a line on what a running job waits for, to text of size bytes, `used` of them taken. */
size_t lierne_job_dump(const lierne_job *job, char *text, size_t size, size_t used);
bool lierne_job_running(const lierne_job *job);
int64_t lierne_job_scratch_bytes(const lierne_job *job);
/* Follows routes whose blocks, all contiguous, became other ones, none longer than when the job was
 * made. */
void lierne_job_resize(lierne_job *job);
void lierne_job_messages(const lierne_job *job, int64_t *sent, int64_t *received);
/* Starts the job with the buffers of each route, which stay borrowed until lierne_job_wait returns.
 * reduction takes the place of every sum; all but LIERNE_SUM accumulate. Where out is NULL, the route's copies are left out: its result is taken as a view. */
lierne_status lierne_job_begin(lierne_job *job, lierne_reduction reduction, void *const *out,
                               const void *const *in);
lierne_status lierne_job_wait(lierne_job *job);
/* One look at the job: unpacks what arrived and goes on to the next stage. Returns whether
 * anything happened. */
bool lierne_job_progress(lierne_job *job);
/* The same for all jobs in flight of a context. Whatever waits calls it again and again. */
LIERNE_PRIVATE bool lierne_jobs_progress(const lierne_context *context);
lierne_job *lierne_job_next(const lierne_job *job);

#endif
