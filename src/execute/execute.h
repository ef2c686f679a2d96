/* Executions: routes made ready to run over a context's transport, memory reserved, one run of each
 * at a time. Plans hold them; nothing above knows how they run. */
#ifndef LIERNE_EXECUTE_H
#define LIERNE_EXECUTE_H

#include "context/context.h"
#include "lierne/plan.h"
#include "route/route.h"

typedef struct lierne_execution lierne_execution;

/* A route to run, and the type of its elements. */
typedef struct lierne_execution_input {
    const lierne_route *route;
    lierne_dtype dtype;
    bool accumulates; /* operations with `accumulate` add to what out holds */
} lierne_execution_input;

/* An execution of n routes that run together, messages with the same peer as one. It keeps pointers
 * to the routes. name stands in messages ("forward"). */
lierne_status lierne_execution_create(lierne_execution **out, lierne_context *context,
                                      const lierne_execution_input *input, size_t n,
                                      const char *name);
void lierne_execution_destroy(lierne_execution *e);
/* The number of its plan, and the tag of its messages: the same on every rank, and the tag not that
 * of another execution in flight. */
void lierne_execution_identify(lierne_execution *e, int plan, int tag);
bool lierne_execution_running(const lierne_execution *e);
int64_t lierne_execution_scratch_bytes(const lierne_execution *e);
/* Follows routes whose blocks, all contiguous, became other ones, none longer than when the
 * execution was created. */
void lierne_execution_resize(lierne_execution *e);
void lierne_execution_count_messages(const lierne_execution *e, int64_t *sent, int64_t *received);

/* Starts the execution with the buffers of each route, which stay borrowed until
 * lierne_execution_wait returns. reduction takes the place of every sum; all but LIERNE_SUM
 * accumulate. Where out is NULL, the route's copies are left out: its result is taken as an alias.
 */
lierne_status lierne_execution_begin(lierne_execution *e, lierne_reduction reduction,
                                     void *const *out, const void *const *in);
lierne_status lierne_execution_wait(lierne_execution *e);

#endif
