/* Isolation: operations of one purpose leave the groups that they share with others.
 *
 * A group is isolated by its identity and by what it carries, never by its ranks. New groups are
 * known by their source's uid and their purpose, so that two schedules, and two passes, that
 * isolate the same traffic name the same group. */
#include "step/schedule.h"

#include <stdio.h>
#include <string.h>

static lierne_status check_spec(const lierne_isolation_spec *spec) {
    unsigned all = (1u << (LIERNE_OPERATION_LOCAL + 1)) - 1;
    if (!spec->purpose || !lierne_purpose_valid(spec->purpose, false)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "purpose is '%.40s', must be 1 to %d characters of a-z A-Z 0-9 _ - .",
                           spec->purpose ? spec->purpose : "(NULL)", LIERNE_MAX_PURPOSE);
    }
    if (spec->kinds == 0 || (spec->kinds & ~all)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "kinds is %#x, must have at least one bit of %#x",
                           spec->kinds, all);
    }
    if (spec->priority != LIERNE_PRIORITY_NORMAL && spec->priority != LIERNE_PRIORITY_HIGH) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "priority is %d, must be %d or %d",
                           (int)spec->priority, LIERNE_PRIORITY_NORMAL, LIERNE_PRIORITY_HIGH);
    }
    return LIERNE_OK;
}

static bool is_target(const lierne_isolation_spec *spec, const lierne_recorded_operation *o) {
    return (spec->kinds >> o->kind & 1) && (spec->any_tag || strcmp(o->tag, spec->purpose) == 0);
}

/* Whether the targets of a queue leave it. */
static bool must_leave(const lierne_schedule *s, const lierne_isolation_spec *spec, int queue) {
    size_t targets = 0, others = 0;
    const lierne_recorded_group *g = &s->groups.at[queue];
    for (size_t i = 0; i < s->operations.count; i++) {
        const lierne_recorded_operation *o = &s->operations.at[i];
        if (o->group >= 0 && s->groups.at[o->group].queue == queue) {
            bool target = is_target(spec, o);
            targets += target;
            others += !target;
        }
    }
    return targets > 0 && (others > 0 || spec->also_alone) && (g->n > 1 || spec->singletons) &&
           strcmp(g->purpose, spec->purpose) != 0;
}

/* *index: the group for the traffic that leaves a queue, which is added where there is none. */
static lierne_status find_group(lierne_schedule *s, const lierne_isolation_spec *spec, int queue,
                                int *index) {
    lierne_recorded_group g = s->groups.at[queue];
    g.source = lierne_recorded_group_key(&g);
    g.uid = 0;
    g.priority = spec->priority;
    snprintf(g.purpose, sizeof g.purpose, "%s", spec->purpose);
    lierne_recorded_group_name(&g);
    for (*index = 0; *index < (int)s->groups.count; ++*index) {
        if (lierne_recorded_group_same(&s->groups.at[*index], &g)) {
            return LIERNE_OK;
        }
    }
    return lierne_schedule_append_group(s, &g);
}

static lierne_status isolate(lierne_schedule *s, const lierne_schedule *before,
                             const lierne_isolation_spec *spec) {
    for (int q = 0; q < (int)before->groups.count; q++) {
        int group;
        if (before->groups.at[q].queue != q || !must_leave(before, spec, q)) {
            continue;
        }
        LIERNE_TRY(find_group(s, spec, q, &group));
        for (size_t i = 0; i < s->operations.count; i++) {
            const lierne_recorded_operation *o = &before->operations.at[i];
            if (o->group >= 0 && before->groups.at[o->group].queue == q && is_target(spec, o)) {
                s->operations.at[i].group = group;
            }
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_schedule_isolate(lierne_schedule **out, const lierne_schedule *schedule,
                                      const lierne_isolation_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_isolation_spec spec;
    if (!out) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "out is NULL");
    }
    LIERNE_TRY(lierne_schedule_check_frozen(schedule));
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given, "spec"));
    LIERNE_TRY(check_spec(&spec));
    LIERNE_TRY(lierne_schedule_copy(out, schedule));
    lierne_status status = isolate(*out, schedule, &spec);
    if (status != LIERNE_OK) {
        lierne_schedule_destroy(*out);
        *out = NULL;
    }
    return status;
}
