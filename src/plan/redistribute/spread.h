/* Divides work among ranks so that the busiest of them has as little as possible. */
#ifndef LIERNE_SPREAD_H
#define LIERNE_SPREAD_H

#include "base/base.h"

/* An amount that any of some ranks may take, in any parts. */
typedef struct lierne_spread_job {
    int64_t amount;
    size_t first; /* its ranks: entries [first, first + count) */
    size_t count;
    int64_t left; /* of the amount, not given to a rank yet */
    int level;    /* in the search: steps from a job with something left, or -1 */
    size_t next;  /* the entry that the search is at */
} lierne_spread_job;

/* A job's rank, how much of the job it should take, and how much it takes. */
typedef struct lierne_spread_entry {
    int rank; /* 0 to nranks - 1 */
    size_t job;
    int64_t wish;
    int64_t given;
} lierne_spread_entry;

typedef struct lierne_spread {
    int nranks;
    int64_t *base; /* of each rank: what it has to do in any case */
    int64_t slack; /* LIERNE_SPREAD_SLACK, if the caller does not change it */
    LIERNE_VEC(lierne_spread_job) jobs;
    LIERNE_VEC(lierne_spread_entry) entries;
    int64_t *load; /* of each rank: base and what was given */
    int *level;    /* of each rank in the search, or -1 */
    size_t *of;    /* entries by rank: those of rank r are at [start[r], start[r + 1]) */
    size_t *start;
    size_t *next;  /* of each rank: the entry that the search is at */
    size_t *queue; /* of the search: ranks, and jobs behind them */
} lierne_spread;

/* Begins with no jobs; base is zero and the caller's to fill. To be destroyed also on failure. */
lierne_status lierne_spread_create(lierne_spread *spread, int nranks);
void lierne_spread_destroy(lierne_spread *spread);

/* Adds a job; its ranks follow, each at most once. A wish is kept where the limit allows it. */
lierne_status lierne_spread_add_job(lierne_spread *spread, int64_t amount);
lierne_status lierne_spread_add_rank(lierne_spread *spread, int rank, int64_t wish);

/* Gives all jobs away. *most: the least possible load of the busiest rank. The loads are at most
 * that and one part in slack more, so that wishes are kept where they do no harm. */
#define LIERNE_SPREAD_SLACK 64
lierne_status lierne_spread_solve(lierne_spread *spread, int64_t *most);

#endif
