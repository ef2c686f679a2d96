/* Calls that are captured into a graph (of CUDA) instead of being executed, and their replays.
 *
 * What a begin enqueues decides nothing that depends on data or on the call, so a replay is the
 * call again, without the host: addresses and sizes are those of the capture. Two things follow.
 * What the host would do in a call must not be needed, and nothing that a replay uses may change.
 * Nobody tells the host that a replay runs: the device counts replays (lierne_epochs), and the
 * watchdog looks at that. */
#include "runtime/execute/execution.h"

bool lierne_execution_captures(const lierne_execution *e, const void *stream) {
    const lierne_stream_driver *driver = e->context->stream_driver;
    bool captures = false;
    return stream && driver && driver->check &&
           driver->check(stream, e->context->device, &captures) == LIERNE_OK && captures;
}

bool lierne_execution_was_captured(const lierne_execution *e) {
    return e->stream.was_captured;
}

/* Whether messages connect ranks in the first call: those of all-gathers may. */
static bool connects_late(const lierne_execution *e) {
    for (size_t i = 0; i < e->messages.count; i++) {
        const lierne_coalesced_message *m = &e->messages.at[i];
        const lierne_execution_batch *batch = &e->batches[m->batch];
        if (batch->postings[m->slot].all_gathers) {
            return true;
        }
    }
    return false;
}

/* The same on every rank of a call, also on one that has no messages in it. */
lierne_status lierne_execution_check_capture(const lierne_execution *e, const void *stream,
                                             int inflight) {
    int rank = e->context->rank;
    if (!lierne_execution_captures(e, stream)) {
        return LIERNE_OK;
    }
    if (e->stream.polled_only) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: %s: the stream is being captured, and the host must poll "
                           "messages of transport %s, which a replay does not do: use transports "
                           "that work on streams, or end the capture",
                           rank, e->name, e->stream.polled_only->name);
    }
    if (inflight > 1) {
        return LIERNE_FAIL(
            LIERNE_ERR_UNSUPPORTED,
            "rank %d: %s: the stream is being captured, and the plan has %d requests "
            "(max_inflight), must have 1: replays cannot take another one in turn",
            rank, e->name, inflight);
    }
    return e->stream.was_called || !connects_late(e)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "rank %d: %s: the stream is being captured in the first call, and an "
                             "all-gather of its transport connects ranks in its first one: call it "
                             "once without a "
                             "capture before",
                             rank, e->name);
}
