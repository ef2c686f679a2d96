/* Steps of a delta of a random tensor set on the ranks of a context, against the plan's own
 * forward: the same bits, whatever share of the elements changes, and whoever's output was
 * overwritten. */
#ifndef DELTA_STEPS_H
#define DELTA_STEPS_H

#include "unit/set_case.h"

#include <stdbool.h>

enum { DELTA_STEPS_RANKS = 8 }; /* at most */

/* Of one rank. */
typedef struct delta_steps {
    uint64_t seed;              /* the same on all ranks, as the set is */
    int64_t sent, dense, whole; /* bytes and messages of the steps after the first */
    int wrong;
    char what[1200]; /* the first that is wrong */
} delta_steps;

/* Collective over the context. */
void delta_steps_run(delta_steps *t, const set_case *set, lierne_context *context);

/* lierne_delta_create. CONTROL: control messages carry it, as in a context with streams; DEVICE:
 * and what kernels do (runtime/memory/change.h), finds and makes the changes. */
typedef enum delta_path { DELTA_DIRECT, DELTA_CONTROL, DELTA_DEVICE, DELTA_PATHS } delta_path;
lierne_status delta_create(lierne_delta **delta, lierne_plan *plan, lierne_context *context,
                           delta_path path);

#endif
