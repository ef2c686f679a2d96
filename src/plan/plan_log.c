/* What LIERNE_LOG=info says of a new plan: what it was made of, then what each direction moves. */
#include "plan/object.h"

#include <stdio.h>

/* The values that ranks compared, which have the layouts: the first field names the call. */
static void log_fields(const lierne_plan *plan, const char *name, const lierne_field *fields,
                       size_t nfields) {
    lierne_text text = {0};
    lierne_fields_print(&text, fields + 1, nfields - 1);
    if (!text.failed) {
        lierne_log_write(plan->context, LIERNE_LOG_LEVEL_INFO, "plan %d%s: %s: %s", plan->decision,
                         name, fields[0].name, text.data ? text.data : "");
    }
    lierne_text_clear(&text);
}

static void log_direction(const lierne_plan *plan, const char *name, lierne_direction d,
                          double seconds) {
    const lierne_plan_side *side = &plan->parts.side[d];
    lierne_route_counts counts = lierne_route_count(side->route);
    int64_t bytes = (int64_t)lierne_dtype_size(plan->parts.dtype);
    lierne_log_write(
        plan->context, LIERNE_LOG_LEVEL_INFO,
        "plan %d%s: %s of %s, %s: %lld bytes sent in %lld messages, %lld received in %lld, %zu "
        "stages, over %s; agreed after %.6f s",
        plan->decision, name, d ? "adjoint" : "forward", plan->parts.kind,
        side->balanced ? "balanced" : plan->parts.algorithm[d], (long long)(counts.sent * bytes),
        (long long)counts.sent_messages, (long long)(counts.received * bytes),
        (long long)counts.received_messages, (size_t)side->route->stages.count,
        plan->transports[d][0] ? plan->transports[d] : "none", seconds);
}

void lierne_plan_log(const lierne_plan *plan, const lierne_field *fields, size_t nfields,
                     const lierne_call *call) {
    const lierne_context *context = plan->context;
    double seconds = lierne_recorder_seconds(&context->recorder, call->end - call->start);
    char name[LIERNE_MAX_NAME + 4] = "";
    if (context->log.level < LIERNE_LOG_LEVEL_INFO) {
        return;
    }
    if (plan->parts.name) {
        snprintf(name, sizeof name, " '%s'", plan->parts.name);
    }
    log_fields(plan, name, fields, nfields);
    log_direction(plan, name, LIERNE_DIRECTION_FORWARD, seconds);
    log_direction(plan, name, LIERNE_DIRECTION_ADJOINT, seconds);
}
