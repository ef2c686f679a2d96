/* Executions: routes prepared to run over a context's transport, with all memory allocated. An
 * execution runs once at a time. Plans hold executions. */
#ifndef LIERNE_EXECUTE_H
#define LIERNE_EXECUTE_H

#include "context/context.h"
#include "lierne/plan.h"
#include "route/route.h"

typedef struct lierne_execution lierne_execution;

/* Creates an execution of n routes that run together, with one message per peer where each route
 * has one. It keeps pointers to the routes. name appears in messages ("forward"). */
lierne_status lierne_execution_create(lierne_execution **out, lierne_context *context,
                                      const lierne_route *const *routes, size_t n,
                                      const char *name);
void lierne_execution_destroy(lierne_execution *e);
/* Sets the number of its plan and the match id of its messages. Both are the same on every rank; no
 * other execution in flight has the same match id. */
void lierne_execution_identify(lierne_execution *e, int plan, int match);
bool lierne_execution_running(const lierne_execution *e);
int64_t lierne_execution_scratch_bytes(const lierne_execution *e);
/* Updates sizes after the blocks of its routes changed. The blocks are contiguous, and no message
 * is longer than when the execution was created. */
void lierne_execution_resize(lierne_execution *e);
void lierne_execution_count_messages(const lierne_execution *e, int64_t *sent, int64_t *received);

/* Starts the execution with the buffers of each route, which stay borrowed until
 * lierne_execution_wait returns. reduction replaces every sum; all but LIERNE_SUM accumulate. If
 * the out of a route is NULL, its copies are skipped: the caller uses its result as an alias. */
lierne_status lierne_execution_begin(lierne_execution *e, lierne_reduction reduction,
                                     void *const *out, const void *const *in, void *stream);
lierne_status lierne_execution_wait(lierne_execution *e);
/* Progresses everything in flight without waiting. *finished: lierne_execution_wait returns at
 * once. Deadlines and failed peers count as in a wait: the context is dead after an error. */
lierne_status lierne_execution_test(lierne_execution *e, bool *finished);
/* The names of the transports that serve its messages, separated by commas, as far as they fit. */
void lierne_execution_list_transports(char *text, size_t size, const lierne_execution *e);

#endif
