/* The flight recorder of a context: opening it, and what waits without an execution record. */
#include "runtime/context/context.h"

/* A beat reads the system's clock, so it is not made in every poll: about 10 ms of a counter of
 * 3 GHz, 30 of one of nanoseconds. */
#define TICKS_PER_BEAT (1 << 25)

lierne_status lierne_context_open_recorder(lierne_context *context, unsigned capacity) {
    lierne_recorder_spec spec = {.rank = context->rank,
                                 .world = context->members.world,
                                 .members = context->members.count,
                                 .ranks = context->members.ranks,
                                 .timeout = context->timeout,
                                 .capacity = context->traces ? LIERNE_RECORDER_TRACED : capacity};
    if (lierne_recorder_folder()) {
        lierne_process_describe(&spec.space, &spec.process, &spec.process_start);
    }
    LIERNE_TRY(lierne_recorder_open(&context->recorder, &spec));
    lierne_recorder_set_name(&context->recorder, LIERNE_RECORDER_OWN_NAME, context->name);
    return LIERNE_OK;
}

void lierne_context_print_call(char text[LIERNE_CALL_TEXT], const lierne_context *context,
                               const lierne_call *c) {
    lierne_call_print(text, c->name, c->number, c->plan,
                      lierne_recorder_find_name(&context->recorder, c->plan));
}

void lierne_context_beat(lierne_context *context) {
    const lierne_recorder *r = &context->recorder;
    if (r->header &&
        lierne_recorder_now(r) - atomic_load_explicit(&r->header->alive, memory_order_relaxed) >
            TICKS_PER_BEAT) {
        lierne_recorder_beat(r);
        LIERNE_METRICS_UPDATE(context);
    }
}
