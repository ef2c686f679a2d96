/* What both executors do on the stream of a device, and which of them serves a call there.
 *
 * Where the host must poll messages, as those of MPI, the polled executor runs the call. The
 * messages of a phase are posted when the stream has passed what was launched for it: then what
 * they send is there, and where they receive nothing reads any more. */
#include "runtime/execute/execution.h"

#include <stdio.h>

static bool can_poll(const lierne_execution *e) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    return e->polled_only && e->recorded && driver->event_query && !driver->enqueue;
}

bool lierne_execution_can_stream(const lierne_execution *e) {
    return !e->polled_only || can_poll(e);
}

bool lierne_execution_polls_stream(const lierne_execution *e) {
    return e->on_stream && can_poll(e);
}

void lierne_execution_set_stream(lierne_execution *e, void *stream) {
    e->stream = stream;
    for (int b = 0; b < e->context->ncarriers; b++) {
        const lierne_execution_batch *batch = &e->batches[b];
        if (batch->batch && batch->transport->streams) {
            batch->transport->streams->set(batch->batch, stream);
        }
    }
}

lierne_status lierne_execution_enter_stream(lierne_execution *e) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    LIERNE_TRY(driver->begin ? driver->begin(e->stream, e->fence) : LIERNE_OK);
    lierne_status status = lierne_execution_open_watched(e, e->stream);
    return status == LIERNE_OK ? LIERNE_OK : lierne_execution_leave_stream(e, status);
}

lierne_status lierne_execution_leave_stream(lierne_execution *e, lierne_status status) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    char message[LIERNE_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", lierne_error_text());
    lierne_status closed = lierne_execution_close_watched(e, e->stream);
    lierne_status finished = driver->finish ? driver->finish(e->stream, e->fence) : LIERNE_OK;
    if (status != LIERNE_OK) {
        lierne_set_error(message);
        return status;
    }
    return closed != LIERNE_OK ? closed : finished;
}

lierne_status lierne_execution_check_launched(lierne_execution *e, bool *passed) {
    const lierne_phase *phase = &e->phases.at[e->phase];
    *passed = true;
    if (e->launched && phase->nrecvs + phase->nsends > 0) {
        LIERNE_TRY(e->context->stream_driver->event_query(e->fence, passed));
        e->launched = !*passed;
    }
    return LIERNE_OK;
}
