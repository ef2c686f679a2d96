/* The execution: prepare.c and staging.c create it, run.c runs it, progress.c waits for it. */
#ifndef LIERNE_EXECUTION_H
#define LIERNE_EXECUTION_H

#include "execute/execute.h"
#include "memory/host.h"

/* One route of the execution, with the buffers of the running call. */
typedef struct lierne_subroute {
    const lierne_route *route;
    lierne_dtype dtype;
    size_t size;     /* of an element */
    int64_t scratch; /* offset of its scratch in the execution's memory */
    char *base[LIERNE_BUFFERS];
    const char *in;
    bool no_out;      /* out is NULL: the result is an alias, copies are skipped */
    bool accumulates; /* this call */
    bool adds_to_out; /* every call */
} lierne_subroute;

/* A message of a subroute. */
typedef struct lierne_segment {
    lierne_subroute *subroute;
    const lierne_message *message;
} lierne_segment;

/* One message of the transport: the segments of all subroutes with the same peer. A single
 * contiguous segment needs no staging. Messages are numbered within their phase. */
typedef struct lierne_coalesced_message {
    int peer;
    size_t first; /* of its segments */
    size_t count;
    int64_t bytes;
    int64_t staging;     /* offset of its staging slot in the execution's memory; -1: not staged */
    int64_t predecessor; /* message whose staging slot it reuses; -1: a slot of its own */
    int64_t pipeline;    /* number of its pipeline; -1: posted when the phase begins */
    int64_t successor;   /* the next message of the pipeline; -1: none */
} lierne_coalesced_message;

/* Long staged messages with one peer share a few staging slots, which stay in the cache. The first
 * message that waits for a slot, and all later ones with that peer, are a pipeline: they are posted
 * later, in the order of the messages. */
typedef struct lierne_staging_pipeline {
    size_t first; /* message of the pipeline */
    int64_t next; /* message to post; -1: none */
} lierne_staging_pipeline;

/* The messages of one stage of all subroutes: receives, then sends. */
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
    char *memory;     /* scratch of the subroutes, then staging slots */
    int64_t reserved; /* bytes of memory */
    size_t *done;     /* slots that poll returned */
    bool *waiting;    /* per message of the phase: not complete yet */
    lierne_contribution *contributions;
    lierne_reduction reduction; /* of the running call */
    bool running;
    bool abandoned; /* a run failed: messages may still be in flight */
    bool finished;
    lierne_status status; /* of a run that failed */
    char message[LIERNE_MESSAGE_SIZE];
    size_t phase;   /* the current one */
    size_t pending; /* messages of it that are not complete */
    int64_t call;   /* number of the running call */
    double started;
};

/* Rounds bytes up to a whole number of cache lines. */
int64_t lierne_execution_align(int64_t bytes);
/* Assigns staging slots, from offset *bytes of the execution's memory on, and adds their size to
 * *bytes. */
lierne_status lierne_execution_assign_staging(lierne_execution *e, int64_t *bytes);

/* Posts the current phase, and further ones while they complete at once. */
lierne_status lierne_execution_start(lierne_execution *e);
/* Unpacks messages that arrived and begins the next phase if the current one is complete; returns
 * whether anything progressed. */
bool lierne_execution_progress(lierne_execution *e);

#endif
