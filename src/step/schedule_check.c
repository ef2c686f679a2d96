/* lierne_schedule_check: whether the schedules of all ranks agree, and complete. */
#include "step/schedule.h"

#include <stdio.h>

#define CYCLE_TEXT 1024

static lierne_status check_arguments(const lierne_schedule_order *order, const char *cycle,
                                     size_t size, const lierne_schedule *const *schedules, int n) {
    if (!order || !schedules || n < 1 || (!cycle && size > 0)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s",
                           !order       ? "order is NULL"
                           : !schedules ? "schedules is NULL"
                           : n < 1      ? "n is below 1"
                                        : "cycle is NULL");
    }
    for (int i = 0; i < n; i++) {
        LIERNE_TRY(lierne_schedule_check_frozen(schedules[i]));
        for (int k = 0; k < i; k++) {
            if (schedules[k]->rank == schedules[i]->rank) {
                return LIERNE_FAIL(LIERNE_ERR_INVALID, "schedules %d and %d are both of rank %d", k,
                                   i, schedules[i]->rank);
            }
        }
    }
    return LIERNE_OK;
}

/* Parts of one group lie side by side. */
static void count_groups(lierne_schedule_order *order, const lierne_events *events) {
    const lierne_recorded_group *last = NULL;
    for (size_t i = 0; i < events->parts.count; i++) {
        const lierne_recorded_group *g = events->parts.at[i].group;
        if (g && (!last || !lierne_recorded_group_same(g, last))) {
            order->ngroups++;
            order->ncreated += g->source != 0 && g->uid == 0;
            last = g;
        }
    }
}

static lierne_status check_schedules(lierne_schedule_order *order, char *cycle, size_t size,
                                     lierne_events *events, const lierne_schedule *const *schedules,
                                     int n) {
    bool serialised = false, concurrent = false;
    LIERNE_TRY(lierne_events_collect(events, schedules, n));
    count_groups(order, events);
    LIERNE_TRY(lierne_events_order(&serialised, cycle, size, events, false));
    LIERNE_TRY(lierne_events_order(&concurrent, cycle, size, events, true));
    order->safe_serialised = serialised;
    order->safe_concurrent = concurrent;
    return LIERNE_OK;
}

lierne_status lierne_schedule_check(lierne_schedule_order *order, char *cycle, size_t size,
                                    const lierne_schedule *const *schedules, int n) {
    LIERNE_PUBLIC_CALL();
    lierne_events events = {0};
    lierne_schedule_order found = {.size = sizeof found};
    char text[CYCLE_TEXT] = "";
    LIERNE_TRY(check_arguments(order, cycle, size, schedules, n));
    lierne_status status = check_schedules(&found, text, sizeof text, &events, schedules, n);
    lierne_events_clear(&events);
    snprintf(cycle, size, "%s", text);
    return status == LIERNE_OK ? lierne_spec_give(order, &found, sizeof found, "order") : status;
}
