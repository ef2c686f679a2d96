/* Ranges of calls in a profiler: the begin, each stage, the end. Where none is attached they cost a
 * comparison. */
#include "runtime/execute/execution.h"
#include "runtime/execute/stream.h"

#include <stdio.h>

uint64_t lierne_execution_begin_range(const lierne_execution *e, const char *what) {
    const lierne_ranges *ranges = e->context->ranges;
    char call[LIERNE_CALL_TEXT], name[LIERNE_CALL_TEXT + 64];
    if (!ranges) {
        return 0;
    }
    lierne_execution_print_call(call, e, e->record.number);
    snprintf(name, sizeof name, "%s: %s", call, what);
    return ranges->begin(name);
}

void lierne_execution_end_range(const lierne_execution *e, uint64_t range) {
    if (range != 0) {
        e->context->ranges->end(range);
    }
}

void lierne_execution_enter_stage(lierne_execution *e) {
    char what[48];
    lierne_execution_leave_stage(e);
    if (e->context->ranges && e->cursor.phase < e->phases.count) {
        snprintf(what, sizeof what, "stage %zu of %zu", lierne_execution_stage(e), e->phases.count);
        e->record.stage = lierne_execution_begin_range(e, what);
    }
}

void lierne_execution_leave_stage(lierne_execution *e) {
    lierne_execution_end_range(e, e->record.stage);
    e->record.stage = 0;
}
