/* Random steps of samples on the ranks of a context, against an oracle that knows the items of all
 * ranks: every element, list and status is known. Assignments are those of the pure function, which
 * other tests check. */
#ifndef SAMPLE_STEPS_H
#define SAMPLE_STEPS_H

#include "lierne.h"

typedef struct sample_steps {
    uint64_t seed; /* the same on all ranks */
    int steps;
    int nmembers; /* of a context with members: they are these; 0: all ranks of the world */
    int members[9];
    void *stream;            /* of all calls */
    int64_t moved, rejected; /* steps that moved rows, that had an error */
    int64_t wrong;
    char what[256]; /* the first that is wrong */
} sample_steps;

enum { SAMPLE_STEPS_RANKS = 9 }; /* at most */

/* Collective over the context. */
void sample_steps_run(sample_steps *steps, lierne_context *context);

#endif
