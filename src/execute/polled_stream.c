/* Calls on the stream of a device whose messages the host must poll, as those of MPI. The polled
 * executor runs them; its copies and sums are launched on the stream.
 *
 * What a phase delivers and sums, and what the next one packs, is launched together. The messages
 * of a phase are posted when the stream has passed that: then what they send is there, and where
 * they receive nothing reads any more. After the last phase nothing is waited for: the result is
 * the stream's. */
#include "execute/execution.h"

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

static lierne_status launch_all(lierne_execution *e, bool first) {
    if (!first) {
        LIERNE_TRY(lierne_execution_launch(e, LIERNE_RECORDED_DELIVER));
        LIERNE_TRY(lierne_execution_sum(e));
        e->phase++;
    }
    return e->phase < e->phases.count ? lierne_execution_launch(e, LIERNE_RECORDED_SEND)
                                      : LIERNE_OK;
}

lierne_status lierne_execution_launch_phase(lierne_execution *e, bool first) {
    LIERNE_TRY(lierne_execution_enter_stream(e));
    lierne_status status = launch_all(e, first);
    e->launched = true;
    return lierne_execution_leave_stream(e, status);
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
