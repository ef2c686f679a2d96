/* What the calls of plans cost, for summaries and metrics: a row per name and kind of plans. */
#ifndef LIERNE_COUNTERS_H
#define LIERNE_COUNTERS_H

#include "base/base.h"

/* Calls that have ended, of one direction. */
typedef struct lierne_counter {
    int64_t calls;
    int64_t bytes;   /* of their messages, sent and received */
    int64_t ticks;   /* from begin to end */
    int64_t longest; /* of them, of one call */
    int64_t waiting; /* of them, while this rank polled and nothing progressed */
} lierne_counter;

/* Plans that have no name share the row of their kind. */
typedef struct lierne_counters {
    struct lierne_counters *next; /* newer */
    const char *kind;             /* of lierne_plan_get_kind; static storage */
    int64_t plans;                /* made so far */
    lierne_counter sides[2];      /* forward, adjoint */
    char name[LIERNE_MAX_NAME + 1];
} lierne_counters;

struct lierne_context;
/* Memory for the first rows, so that plans leave nothing behind in a context. Errors: NO_MEMORY. */
lierne_status lierne_counters_reserve(struct lierne_context *context);
/* The row of plans of a name, which lierne_check_name allows and may be NULL, and a kind; it lives
 * as long as the context. Errors: NO_MEMORY. */
lierne_status lierne_counters_find(lierne_counters **out, struct lierne_context *context,
                                   const char *name, const char *kind);
/* Forgets a row of which no plan was made; row may be NULL. */
void lierne_counters_release(struct lierne_context *context, lierne_counters *row);
void lierne_counters_drop(struct lierne_context *context);

static inline void lierne_counter_add(lierne_counter *counter, int64_t bytes, int64_t ticks,
                                      int64_t waiting) {
    counter->calls++;
    counter->bytes += bytes;
    counter->ticks += ticks;
    counter->longest = ticks > counter->longest ? ticks : counter->longest;
    counter->waiting += waiting;
}

#endif
