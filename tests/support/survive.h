/* What ranks that are left after a death do with the tensor of job_plan (node_jobs.h): plan anew,
 * and move what survives of it. */
#ifndef LIERNE_TESTS_SURVIVE_H
#define LIERNE_TESTS_SURVIVE_H

#include "lierne.h"

/* Makes the plan of a tensor of n elements again in a smaller context and moves it. plan: the old
 * one, which is destroyed, or NULL, as that of a rank that has none; then the new one, or NULL.
 * Errors: of the calls; IO: wrong data, which no call returns. */
lierne_status survive_plan(lierne_plan **plan, lierne_context *smaller, int64_t n);
/* Moves what the ranks that are left held in the dead context, in equal shares, to all of them. The
 * same errors. */
lierne_status survive_move(const lierne_context *dead, lierne_context *smaller);

#endif
