/* Random steps of a world whose rows move between ranks, are born and end, and a serial model of
 * them. Every rank follows the rows of all ranks by their numbers, from one seed, and computes by
 * itself what it must get. */
#ifndef MIGRATION_CASE_H
#define MIGRATION_CASE_H

#include "lierne/context.h"

enum { MIGRATION_RANKS = 8, MIGRATION_ROWS = 4096 };

/* Steps of one rank, through one migration that is updated, in three fields: one of the plan's own
 * type, two by retyped plans, by turns
 * one by one and coalesced. Of odd seeds the coalesced plans stay, and are updated together. */
typedef struct migration_steps {
    uint64_t seed;
    int steps;
    /* What a rank finds. */
    int64_t moved; /* rows that it sent */
    int wrong;     /* line of an expectation that did not hold */
    int step;      /* and the step */
    char what[400];
} migration_steps;
void migration_steps_run(migration_steps *m, lierne_context *context);

#endif
