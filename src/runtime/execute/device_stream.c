/* The stream of a call: which calls one serves, and what is done around the work on it.
 *
 * Where the host must poll messages, as those of MPI, the caller's waits do so (phases.c). The
 * messages of a phase are posted when the stream has passed what was launched for it: then what
 * they send is there, and where they receive nothing reads any more. */
#include "runtime/execute/execution.h"

#include <stdio.h>

/* Whether the host may poll messages of a call on a stream. */
static bool can_poll(const lierne_execution *e) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    return e->stream.recorded && driver && driver->event_query;
}

static bool can_stream(const lierne_execution *e) {
    return !e->stream.polled_only || can_poll(e);
}

static lierne_status reject_stream(const lierne_execution *e) {
    const lierne_context *context = e->context;
    if (!context->stream_driver) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: %s: stream is not NULL, and no library of this process serves "
                           "streams: pass NULL for %s memory",
                           context->rank, e->name, context->memory->name);
    }
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                       "rank %d: %s: transport %s must be polled, which a %s stream cannot do: %s",
                       context->rank, e->name, e->stream.polled_only->name,
                       context->stream_driver->name,
                       e->stream.stream_only
                           ? "leave it out of LIERNE_TRANSPORTS"
                           : "pass NULL in place of the stream, or leave it out of "
                             "LIERNE_TRANSPORTS");
}

bool lierne_execution_needs_stream(const lierne_execution *e) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    return e->stream.stream_only || (driver && driver->required);
}

/* A stream that waited for a host, which may wait for the stream, could wait forever. */
lierne_status lierne_execution_check_stream(const lierne_execution *e, const void *stream) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    bool captures;
    if (stream) {
        LIERNE_TRY(driver && can_stream(e) ? LIERNE_OK : reject_stream(e));
        return driver->check ? driver->check(stream, e->context->device, &captures) : LIERNE_OK;
    }
    if (driver && driver->required) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: %s: stream is NULL, and calls on %s memory need one: for the "
                           "default stream pass cudaStreamLegacy or cudaStreamPerThread",
                           e->context->rank, e->name, e->context->memory->name);
    }
    return !e->stream.stream_only
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "rank %d: %s: transport %s serves calls on a stream only, and stream "
                             "is NULL: %s",
                             e->context->rank, e->name, e->stream.stream_only->name,
                             e->stream.polled_only ? "leave it out of LIERNE_TRANSPORTS"
                                                   : "pass a stream, or leave it out of "
                                                     "LIERNE_TRANSPORTS");
}

lierne_status lierne_execution_create_stream_state(lierne_execution *e) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    LIERNE_TRY(driver->fence_create ? driver->fence_create(&e->stream.fence) : LIERNE_OK);
    return lierne_execution_create_watch(e);
}

void lierne_execution_destroy_stream_state(lierne_execution *e) {
    lierne_execution_destroy_watch(e);
    if (e->stream.fence) {
        e->context->stream_driver->fence_destroy(e->stream.fence);
    }
}

void lierne_execution_set_stream(lierne_execution *e, void *stream) {
    e->stream.at = stream;
    e->activity.stream = stream;
    for (int b = 0; b < e->context->ncarriers; b++) {
        const lierne_execution_batch *batch = &e->batches[b];
        if (batch->batch && batch->transport->streams) {
            batch->transport->streams->set(batch->batch, stream);
        }
    }
}

lierne_status lierne_execution_enter_stream(lierne_execution *e) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    LIERNE_TRY(driver->begin ? driver->begin(e->stream.at, e->stream.fence) : LIERNE_OK);
    lierne_status status = lierne_execution_open_watched(e, e->stream.at);
    return status == LIERNE_OK ? LIERNE_OK : lierne_execution_leave_stream(e, status);
}

lierne_status lierne_execution_leave_stream(lierne_execution *e, lierne_status status) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    char message[LIERNE_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", lierne_error_text());
    lierne_status closed = lierne_execution_close_watched(e, e->stream.at);
    lierne_status finished =
        driver->finish ? driver->finish(e->stream.at, e->stream.fence) : LIERNE_OK;
    if (status != LIERNE_OK) {
        lierne_set_error(message);
        return status;
    }
    return closed != LIERNE_OK ? closed : finished;
}

lierne_status lierne_execution_check_launched(lierne_execution *e, bool *passed) {
    const lierne_phase *phase = &e->phases.at[e->cursor.phase];
    *passed = true;
    if (e->stream.launched && phase->nrecvs + phase->nsends > 0) {
        LIERNE_TRY(e->context->stream_driver->event_query(e->stream.fence, passed));
        e->stream.launched = !*passed;
    }
    return LIERNE_OK;
}
