/* Jobs from inside: what prepare.c makes, engine.c runs and wait.c waits for. */
#ifndef LIERNE_JOB_H
#define LIERNE_JOB_H

#include "pack/pack.h"
#include "transport/transport.h"

/* One route of the job, and the buffers of the running call. */
typedef struct lierne_part {
    const lierne_route *route;
    lierne_dtype dtype;
    size_t size;     /* of an element */
    int64_t scratch; /* where its scratch is in the job's memory */
    char *base[LIERNE_BUFFERS];
    const char *in;
    bool no_out; /* the result is taken as a view: no copies */
    bool accumulates; /* this call */
    bool adds_to_out; /* every call */
} lierne_part;

/* A message of a part. */
typedef struct lierne_item {
    lierne_part *part;
    const lierne_message *message;
} lierne_item;

/* What travels as one message of the wire: the items of all parts with the same peer. A lone item
 * that lies in one piece needs no staging. Numbers of parcels are slots of the leg. */
typedef struct lierne_parcel {
    int peer;
    size_t first; /* of its items */
    size_t count;
    int64_t bytes;
    int64_t staging;    /* where it is staged, in the job's memory; -1: it is not */
    int64_t after;      /* parcel whose place it takes, once that has left it; -1: a place of its own */
    int64_t stream;     /* number of its stream; -1: it is posted with the leg */
    int64_t successor;  /* the next parcel of the stream; -1: none */
} lierne_parcel;

/* Long staged parcels with one peer take turns in a few places, which stay in the cache. Those that wait
 * for a place, and what comes after them, are a stream: posted later, in the order of the messages. */
typedef struct lierne_stream {
    size_t first;
    int64_t next; /* to be posted; -1: none */
} lierne_stream;

/* Parcels of a stage of all parts: receives, then sends. A parcel's slot is its place here. */
typedef struct lierne_leg {
    size_t first;
    size_t nrecvs;
    size_t nsends;
    size_t first_stream;
    size_t nstreams;
} lierne_leg;

struct lierne_job {
    lierne_context *context;
    const char *name;
    int plan;
    int tag;
    lierne_part *parts;
    size_t nparts;
    LIERNE_VEC(lierne_item) items;
    LIERNE_VEC(lierne_parcel) parcels;
    LIERNE_VEC(lierne_leg) legs;
    LIERNE_VEC(lierne_stream) streams;
    void *batch;
    char *memory;     /* scratch of the parts, then staging */
    int64_t reserved; /* bytes of memory */
    size_t *done;     /* for poll */
    bool *waiting;    /* whether the parcel in a slot is under way */
    lierne_summand *summands;
    lierne_reduction reduction; /* of the running call */
    bool running;
    bool abandoned; /* a run failed: messages may still be under way */
    bool finished;
    lierne_status status; /* of a run that failed */
    char message[LIERNE_MESSAGE_SIZE];
    size_t leg;     /* that runs */
    size_t pending; /* parcels of it under way */
    int64_t call;   /* number of the running call */
    double started;
    lierne_job *next;
};

/* Rounds bytes up to a whole number of cache lines. */
int64_t lierne_job_align(int64_t bytes);
/* Gives parcels of a job that need it a place in its memory, behind *bytes of it, and adds what they
 * need. */
lierne_status lierne_job_stage(lierne_job *job, int64_t *bytes);

/* Posts the leg that runs; ends legs that wait for nothing. */
lierne_status lierne_job_start(lierne_job *job);
/* Takes a job out of the list of those in flight. */
void lierne_job_unlink(lierne_job *job);

#endif
