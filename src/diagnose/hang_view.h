/* A rank's dump as operations, and the ranks of a context together. Times are seconds of the
 * calendar; clocks of several hosts may differ by what NTP leaves. */
#ifndef LIERNE_HANG_VIEW_H
#define LIERNE_HANG_VIEW_H

#include "lierne/hang.h"
#include "runtime/recorder/dump.h"

#define LIERNE_HANG_PEERS 8

/* A call that executes, or one of the control, as its rank recorded it. */
typedef struct lierne_hang_operation {
    bool control;
    int what; /* a lierne_record_call or lierne_record_control */
    int plan;
    int64_t number;
    int64_t place; /* in the order of the context's executing calls; -1: a control's */
    int stage;
    int stages;
    double begun;
    double ended;                 /* INFINITY: it has not ended, or failed */
    int peers[LIERNE_HANG_PEERS]; /* whose messages were missing when that was last recorded */
    int npeers;
    int64_t waited; /* ticks of that record */
} lierne_hang_operation;

/* What a rank did, from its dump. */
typedef struct lierne_hang_view {
    lierne_dump dump;
    LIERNE_VEC(lierne_hang_operation) operations; /* in the order in which they began */
    double gave_up;                               /* INFINITY: it did not */
    int ended_peer;                               /* whose process it found ended, or -1 */
} lierne_hang_view;

typedef LIERNE_VEC(lierne_hang_view) lierne_hang_views;

/* Finds the operations of view->dump. Errors: NO_MEMORY. */
lierne_status lierne_hang_view_fill(lierne_hang_view *view);
void lierne_hang_views_clear(lierne_hang_views *views);

bool lierne_hang_same(const lierne_hang_operation *a, const lierne_hang_operation *b);
/* The same operation in another rank's view, or NULL. */
const lierne_hang_operation *lierne_hang_view_find(const lierne_hang_view *view,
                                                   const lierne_hang_operation *operation);
/* The operation in which a rank waits at a time: the last one that is under way and of which a wait
 * was recorded, or, with any, the last one under way; or NULL. */
const lierne_hang_operation *lierne_hang_view_waits(const lierne_hang_view *view, double at,
                                                    bool any);

/* The views of one context, of the ranks that left dumps, in ascending order. A damaged dump may
 * claim any number of members, so nothing is as long as that. */
typedef struct lierne_hang_context {
    const lierne_hang_view **at;
    int n;
    double at_time; /* of the hang: when the first rank gave up, else the last sign of life */
    bool gave_up;   /* a rank has */
} lierne_hang_context;

/* The place of a rank's view, or -1. */
int lierne_hang_index(const lierne_hang_context *c, int rank);
static inline int lierne_hang_rank(const lierne_hang_context *c, int index) {
    return c->at[index]->dump.rank;
}

/* find.c. The culprit of a context; kind NONE without one. *waits: since when `waiting` waits.
 * Errors: NO_MEMORY. */
lierne_status lierne_hang_judge(lierne_hang *hang, double *waits, const lierne_hang_context *c);
/* differ.c. The first call in which a rank differs from most others: *place and *rank; false if
 * there is none. */
bool lierne_hang_first_difference(int64_t *place, int *rank, const lierne_hang_context *c);
/* The lowest rank that has another call there than `rank`. */
int lierne_hang_other(const lierne_hang_context *c, int rank, int64_t place);

/* report.c. Adds what was found. */
void lierne_hang_report(lierne_text *text, const lierne_hang *hang, const lierne_hang_context *c);
/* "forward 4 of plan 3", with the name that the dump has of the plan. */
void lierne_hang_print_operation(lierne_text *text, const lierne_dump *dump,
                                 const lierne_hang_operation *operation);

#endif
