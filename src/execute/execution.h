/* Executions from inside: what prepare.c makes, run.c runs and progress.c waits for. */
#ifndef LIERNE_EXECUTION_H
#define LIERNE_EXECUTION_H

#include "execute/execute.h"
#include "memory/host.h"

/* One route of the execution, and the buffers of the running call. */
typedef struct lierne_subroute {
    const lierne_route *route;
    lierne_dtype dtype;
    size_t size;     /* of an element */
    int64_t scratch; /* where its scratch is in the execution's memory */
    char *base[LIERNE_BUFFERS];
    const char *in;
    bool no_out;      /* the result is taken as an alias: no copies */
    bool accumulates; /* this call */
    bool adds_to_out; /* every call */
} lierne_subroute;

/* A message of a subroute. */
typedef struct lierne_segment {
    lierne_subroute *subroute;
    const lierne_message *message;
} lierne_segment;

/* What travels as one message of the transport: the segments of all subroutes with the same peer. A
 * lone segment that lies in one piece needs no staging. Messages are numbered within their phase.
 */
typedef struct lierne_coalesced_message {
    int peer;
    size_t first; /* of its segments */
    size_t count;
    int64_t bytes;
    int64_t staging;     /* where it is staged, in the execution's memory; -1: it is not */
    int64_t predecessor; /* message whose staging slot it takes, once free; -1: a slot of its own */
    int64_t pipeline;    /* number of its pipeline; -1: it is posted with the phase */
    int64_t successor;   /* the next message of the pipeline; -1: none */
} lierne_coalesced_message;

/* Long staged messages with one peer take turns in a few staging slots, which stay in the cache.
 * Those that wait for a slot, and what comes after them, are a pipeline: posted later, in the order
 * of the messages. */
typedef struct lierne_staging_pipeline {
    size_t first;
    int64_t next; /* to be posted; -1: none */
} lierne_staging_pipeline;

/* Messages of a stage of all subroutes: receives, then sends. */
typedef struct lierne_phase {
    size_t first;
    size_t nrecvs;
    size_t nsends;
    size_t first_pipeline;
    size_t npipelines;
} lierne_phase;

struct lierne_execution {
    lierne_activity activity; /* first */
    lierne_context *context;
    const char *name;
    int plan;
    int tag;
    lierne_subroute *subroutes;
    size_t nsubroutes;
    LIERNE_VEC(lierne_segment) segments;
    LIERNE_VEC(lierne_coalesced_message) messages;
    LIERNE_VEC(lierne_phase) phases;
    LIERNE_VEC(lierne_staging_pipeline) pipelines;
    void *batch;
    char *memory;     /* scratch of the subroutes, then staging */
    int64_t reserved; /* bytes of memory */
    size_t *done;     /* for poll */
    bool *waiting;    /* whether a message of the phase is under way */
    lierne_contribution *contributions;
    lierne_reduction reduction; /* of the running call */
    bool running;
    bool abandoned; /* a run failed: messages may still be under way */
    bool finished;
    lierne_status status; /* of a run that failed */
    char message[LIERNE_MESSAGE_SIZE];
    size_t phase;   /* that runs */
    size_t pending; /* messages of it under way */
    int64_t call;   /* number of the running call */
    double started;
};

/* Rounds bytes up to a whole number of cache lines. */
int64_t lierne_execution_align(int64_t bytes);
/* Gives messages that need it a place in the execution's memory, behind *bytes of it, and adds what
 * they need. */
lierne_status lierne_execution_assign_staging(lierne_execution *e, int64_t *bytes);

/* Posts the phase that runs; ends phases that wait for nothing. */
lierne_status lierne_execution_start(lierne_execution *e);
/* Unpacks what arrived and goes on to the next phase; returns whether anything happened. */
bool lierne_execution_progress(lierne_execution *e);

#endif
