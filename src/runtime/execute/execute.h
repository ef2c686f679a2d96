/* Executions: routes prepared to run over a context's transport, with all memory allocated. An
 * execution runs once at a time. Plans hold executions. */
#ifndef LIERNE_EXECUTE_H
#define LIERNE_EXECUTE_H

#include "lierne/plan.h"
#include "route/route.h"
#include "runtime/context/context.h"
#include "runtime/execute/shared_output.h"
#include "runtime/execute/varying.h"

typedef struct lierne_execution lierne_execution;

/* Memory of an execution that has ended, for another one. */
typedef struct lierne_spare {
    void *memory; /* or NULL */
    int64_t bytes;
    bool window;       /* it is in one that peers read */
    void *host_memory; /* or NULL: staging slots in host memory of an execution on a device's */
    int64_t host_bytes;
} lierne_spare;

/* Creates an execution of n routes that run together, with one message per peer where each route
 * has one. It keeps pointers to the routes. each: executions of these routes, of which this is one.
 * name appears in messages ("forward"). domain: of its messages; NULL: the context's own. spare,
 * which may be NULL, is used if it is large enough, and NULL then. varying: NULL, or of each route,
 * whose blocks change, from `in` to `out`, and whose ranks are the same; they outlive the
 * execution. */
lierne_status lierne_execution_create(lierne_execution **out, lierne_context *context,
                                      const lierne_domain *domain,
                                      const lierne_route *const *routes, size_t n, size_t each,
                                      const char *name, lierne_spare *spare,
                                      const lierne_varying *const *varying);
void lierne_execution_destroy(lierne_execution *e);
/* Makes an output part of an execution of one route: it is destroyed with it, and where a peer may
 * still write there, its memory stays. */
void lierne_execution_own_output(lierne_execution *e, lierne_shared_output *output);
/* Takes the memory of an execution, which can only be destroyed afterwards; none if a peer may
 * still use it. */
lierne_spare lierne_execution_take_spare(lierne_execution *e);
void lierne_spare_free(lierne_context *context, lierne_spare *spare);
/* Before a begin: sets the number of its plan, which call of the plan and direction it is, and the
 * match id of its messages. All are the same on every rank; no other execution in flight has the
 * same match id. */
typedef struct lierne_execution_id {
    int plan;
    lierne_record_call what;
    int64_t number;
    int match;
    lierne_counter *counter; /* of the calls of this plan and direction, or NULL */
} lierne_execution_id;
void lierne_execution_identify(lierne_execution *e, lierne_execution_id id);
bool lierne_execution_running(const lierne_execution *e);
int64_t lierne_execution_scratch_bytes(const lierne_execution *e);
/* Bytes of its messages that are staged in host memory. */
int64_t lierne_execution_host_bytes(const lierne_execution *execution);
/* Bytes that a call copies or packs into windows of its transports, from where peers read them. */
int64_t lierne_execution_window_bytes(const lierne_execution *execution);
/* Updates sizes after the blocks of its routes changed. The blocks are contiguous, and no message
 * is longer than when the execution was created. Errors, of a memory kind that records work:
 * NO_MEMORY, TRANSPORT; the execution must not run then. */
lierne_status lierne_execution_resize(lierne_execution *e);
/* The same for one that varies, after its blocks, their number and the stamp changed: the ranks do
 * not meet. Of a memory kind that records work it allocates where there is more work than ever
 * before, and only then waits for streams, and may fail. */
lierne_status lierne_execution_vary(lierne_execution *e);
/* Whether they changed since; and of what it has now, the stamp. */
bool lierne_execution_outdated(const lierne_execution *e);
const int64_t *lierne_execution_stamp(const lierne_execution *e);
/* Whether messages of such an execution say from which description they come; else the plan has to
 * compare that. The same on all ranks. */
bool lierne_execution_stamps(const lierne_context *context);
void lierne_execution_count_messages(const lierne_execution *e, int64_t *sent, int64_t *received);

/* Moves what n executions have allocated into the heap of the context, which all ranks grow as far
 * as they can; where no transport of the context has one, does nothing. To be called when all ranks
 * have created them, and none was called. Collective, waits for all ranks. Errors, of all ranks,
 * which kill the context: those of the transport. */
lierne_status lierne_execution_use_heap(lierne_context *context,
                                        lierne_execution *const *executions, size_t n);

/* Finds the stages that all ranks can leave to a transport's own all-gather; where no transport of
 * the context has one, does nothing. For `each` executions of either direction: forward's, then
 * adjoint's. Collective, waits for all ranks. */
lierne_status lierne_execution_find_all_gathers(lierne_context *context,
                                                lierne_execution *const *executions, size_t each);

/* Lets this rank and those that it will have messages with have a first one, where a transport
 * connects them in it; where none of the context's does, does nothing. Of any execution of either
 * direction. Collective, waits for all ranks, and until the stream has passed these messages.
 * Errors, of all ranks: NO_MEMORY; those of the transport and TIMEOUT, which kill the context. */
lierne_status lierne_execution_send_first_messages(lierne_context *context,
                                                   const lierne_execution *forward,
                                                   const lierne_execution *adjoint);

/* What the two ends of each message know of each other, for the transports that ask for it
 * (lierne_transport_connects). NULL where none of the context's does: every function here takes it,
 * and none then does anything. */
typedef struct lierne_connection lierne_connection;
/* Describes the messages of `each` executions of either direction: forward's, then adjoint's. To be
 * destroyed after them. */
lierne_status lierne_connection_create(lierne_connection **out, lierne_context *context,
                                       lierne_execution *const *executions, size_t each);
void lierne_connection_destroy(lierne_connection *c);
/* Collective, waits for all ranks. To be called when all of them have created it. On any rank's
 * failure every rank gets the same error. */
lierne_status lierne_connection_establish(lierne_connection *c);
/* The same, after the blocks of the routes changed. After an error the executions must not run. */
lierne_status lierne_connection_renew(lierne_connection *c);

/* Whether a transport, or the memory, serves streams only. check_stream: UNSUPPORTED where no call
 * can be on this stream, or on none: a transport must be polled, and the stream
 * cannot; a transport or the memory serves streams only; the stream takes no work now. */
bool lierne_execution_needs_stream(const lierne_execution *e);
lierne_status lierne_execution_check_stream(const lierne_execution *e, const void *stream);
/* Whether a call on the stream is captured into a graph instead of executed. NULL: no. */
bool lierne_execution_captures(const lierne_execution *e, const void *stream);
/* After check_stream. UNSUPPORTED if the stream is being captured into a graph, and a replay could
 * not do what a call does; inflight: how many calls may be in flight. was_captured: whether a call
 * was, so that replays may use the execution at any time. */
lierne_status lierne_execution_check_capture(const lierne_execution *e, const void *stream,
                                             int inflight);
bool lierne_execution_was_captured(const lierne_execution *e);

/* Starts the execution with the buffers of each route, which stay borrowed until
 * lierne_execution_wait returns. reduction replaces every sum; all but LIERNE_REDUCTION_SUM
 * accumulate. If the out of a route is NULL, its copies are skipped: the caller uses its result as
 * an alias. */
lierne_status lierne_execution_begin(lierne_execution *e, lierne_reduction reduction,
                                     void *const *out, const void *const *in, void *stream);
lierne_status lierne_execution_wait(lierne_execution *e);
/* Waits until the streams have passed all calls that were ended: at most the timeout, and if the
 * context is dead only a moment. Errors: TIMEOUT, and what the watchdog found. */
lierne_status lierne_execution_drain(lierne_execution *e);
/* begin and wait of one route, with its own reductions and without a stream. */
lierne_status lierne_execution_run(lierne_execution *e, void *out, const void *in);
/* Progresses everything in flight without waiting. *finished: lierne_execution_wait returns at
 * once. Deadlines and failed peers count as in a wait: the context is dead after an error. */
lierne_status lierne_execution_test(lierne_execution *e, bool *finished);
/* The names of the transports that serve its messages, separated by commas, as far as they fit. */
void lierne_execution_list_transports(char *text, size_t size, const lierne_execution *e);

#endif
