/* The context of a world of one rank. */
#include "backend/self/self.h"
#include "runtime/context/context.h"

lierne_status lierne_context_create_self(lierne_context **out, const lierne_context_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_context_spec own, *spec = &own;
    lierne_context *context;
    int *agreements;
    LIERNE_TRY(lierne_check_set(out, "out"));
    LIERNE_TRY(lierne_context_take_spec(spec, given));
    LIERNE_TRY(lierne_alloc(&agreements, 1, sizeof *agreements));
    lierne_status status = lierne_alloc(&context, 1, sizeof *context);
    if (status != LIERNE_OK) {
        lierne_mem_free(agreements);
        return status;
    }
    context->control_self = agreements;
    context->control = &lierne_self_control;
    lierne_context_add_transport(context, &lierne_self_transport, NULL, NULL);
    context->members.count = 1;
    status = lierne_context_fill(context, spec);
    if (status == LIERNE_OK) {
        status = lierne_context_select_transports(context);
        const int64_t unique[2] = {(int64_t)(intptr_t)context, lierne_recorder_nanoseconds()};
        lierne_recorder_meet(&context->recorder, lierne_hash(0, unique, sizeof unique),
                             lierne_recorder_calendar());
    }
    if (status != LIERNE_OK) {
        lierne_mem_free(agreements);
        lierne_context_drop(context);
        return status;
    }
    lierne_log_context(context);
    *out = context;
    return LIERNE_OK;
}
