/* The streams of a run, on the memory of a device; elsewhere it has none, and all functions do
 * nothing. */
#ifndef LIERNE_RUN_STREAMS_H
#define LIERNE_RUN_STREAMS_H

#include "step/schedule_run.h"

/* Makes a stream per queue that has operations, and two events per operation. caller: the stream of
 * the run's spec. What there is after an error is to be destroyed. Errors: INVALID, UNSUPPORTED
 * (caller), NO_MEMORY, TRANSPORT. */
lierne_status lierne_run_streams_create(lierne_run *run, void *caller);
void lierne_run_streams_destroy(lierne_run *run);
/* The stream of an operation, or NULL. */
void *lierne_run_stream(const lierne_run *run, int operation);
/* What follows waits for what the caller's stream has now: on all streams, on that of an operation.
 */
lierne_status lierne_run_streams_begin(const lierne_run *run);
lierne_status lierne_run_streams_resume(const lierne_run *run, int operation);
/* Around an operation: enter waits for those that it comes after, whose leave was called. */
lierne_status lierne_run_streams_enter(const lierne_run *run, int operation);
lierne_status lierne_run_streams_leave(const lierne_run *run, int operation);
/* Whether its stream has passed the begin, or end, of an operation that was entered, or left. */
lierne_status lierne_run_streams_look(bool *passed, const lierne_run *run, int operation, bool end);

#endif
