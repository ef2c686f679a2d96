/* What the counters of one rank, or of all ranks together, say. */
#ifndef LIERNE_SUMMARY_INTERNAL_H
#define LIERNE_SUMMARY_INTERNAL_H

#include "runtime/context/context.h"

/* Times are nanoseconds: ranks count in ticks of their own. */
typedef struct lierne_summary_side {
    int64_t calls;   /* of the rank with the most */
    int64_t bytes;   /* of the rank with the most */
    int64_t longest; /* of one call */
    int64_t least;   /* of a rank */
    int64_t most;    /* of a rank */
    int64_t total;   /* of all ranks, as waiting */
    int64_t waiting;
} lierne_summary_side;

/* Without pointers: ranks send it as it is. */
typedef struct lierne_summary_row {
    char name[LIERNE_MAX_NAME + 8];
    char kind[40];
    int64_t plans;
    int64_t ranks; /* that have it */
    lierne_summary_side sides[2];
} lierne_summary_row;

typedef LIERNE_VEC(lierne_summary_row) lierne_summary;

/* Adds this rank's rows. Errors: NO_MEMORY. */
lierne_status lierne_summary_fill(lierne_summary *summary, const lierne_context *context);
/* Adds the rows of another rank to those of the same name and kind. Errors: NO_MEMORY. */
lierne_status lierne_summary_merge(lierne_summary *summary, const lierne_summary_row *rows,
                                   size_t n);
/* Adds the table; ranks: of how many. */
void lierne_summary_write(lierne_text *text, const lierne_summary *summary,
                          const lierne_context *context, int ranks);
/* Seconds since the context was created. */
double lierne_summary_age(const lierne_context *context);

/* LIERNE_SUMMARY. end_own: this rank's table, of a context that died. end: that of all ranks,
 * before a context ends; collective where it is alive. Neither does anything where nobody asks. */
void lierne_summary_end_own(const lierne_context *context);
void lierne_summary_end(lierne_context *context);

#endif
