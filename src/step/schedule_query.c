/* What a schedule says about itself. */
#include "step/schedule.h"

int lierne_schedule_get_rank(const lierne_schedule *schedule) {
    return schedule ? schedule->rank : -1;
}

int lierne_schedule_get_ngroups(const lierne_schedule *schedule) {
    return schedule ? (int)schedule->groups.count : -1;
}

int lierne_schedule_get_noperations(const lierne_schedule *schedule) {
    return schedule ? (int)schedule->operations.count : -1;
}

static lierne_status check_index(const lierne_schedule *s, int index, size_t count) {
    if (!s) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "schedule is NULL");
    }
    return index >= 0 && (size_t)index < count
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "index is %d, must be at least 0 and below %zu",
                             index, count);
}

lierne_status lierne_recorded_group_give(lierne_schedule_group *out,
                                         const lierne_recorded_group *g) {
    const lierne_schedule_group full = {.size = sizeof full,
                                        .name = g->name,
                                        .uid = g->uid,
                                        .ranks = g->ranks,
                                        .nranks = g->n,
                                        .priority = g->priority,
                                        .purpose = g->purpose,
                                        .source = g->source};
    return lierne_spec_give(out, &full, sizeof full, "group");
}

lierne_status lierne_schedule_get_group(lierne_schedule_group *group,
                                        const lierne_schedule *schedule, int index) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(check_index(schedule, index, schedule ? schedule->groups.count : 0));
    return lierne_recorded_group_give(group, &schedule->groups.at[index]);
}

lierne_status lierne_schedule_get_operation(lierne_operation_spec *operation,
                                            const lierne_schedule *schedule, int index) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(check_index(schedule, index, schedule ? schedule->operations.count : 0));
    const lierne_recorded_operation *o = &schedule->operations.at[index];
    const lierne_operation_spec full = {.size = sizeof full,
                                        .kind = o->kind,
                                        .group = o->group,
                                        .tag = o->tag,
                                        .after = o->after,
                                        .nafter = o->nafter,
                                        .dtype = o->dtype,
                                        .count = o->count,
                                        .root = o->root,
                                        .peer = o->peer,
                                        .plan = o->plan,
                                        .direction = o->direction,
                                        .held = o->held,
                                        .name = o->name};
    return lierne_spec_give(operation, &full, sizeof full, "operation");
}
