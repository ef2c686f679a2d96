/* Recording.
 *
 * A schedule is checked entry by entry as it is recorded, so that an error names the entry and the
 * passes need no checks. Groups keep the names that were recorded; a queue is the first group of an
 * identity, so that two names of one uid are one queue. */
#include "step/schedule.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                         "broadcast",  "barrier",        "send",       "recv",
                                         "plan",       "local"};

const char *lierne_operation_name(lierne_operation_kind kind) {
    return kind_names[kind];
}

bool lierne_recorded_group_same(const lierne_recorded_group *a, const lierne_recorded_group *b) {
    return lierne_recorded_group_key(a) == lierne_recorded_group_key(b) &&
           strcmp(a->purpose, b->purpose) == 0;
}

bool lierne_recorded_group_has(const lierne_recorded_group *g, int rank) {
    bool has = false;
    for (int i = 0; i < g->n; i++) {
        has |= g->ranks[i] == rank;
    }
    return has;
}

void lierne_recorded_group_print(char text[LIERNE_RECORDED_GROUP_TEXT], const lierne_schedule *s,
                                 const lierne_recorded_group *g) {
    snprintf(text, LIERNE_RECORDED_GROUP_TEXT, "%s", g->name);
    for (size_t i = s->groups.count; i-- > 0;) {
        const lierne_recorded_group *from = &s->groups.at[i];
        if (g->source != 0 && !from->source && from->uid == g->source) {
            snprintf(text, LIERNE_RECORDED_GROUP_TEXT, "%s (%s)", g->name, from->name);
        }
    }
}

void lierne_recorded_group_name(lierne_recorded_group *g) {
    snprintf(g->name, sizeof g->name, "%s@%lld", g->purpose, (long long)g->source);
}

void lierne_recorded_operation_print_name(char text[LIERNE_MAX_OPERATION_NAME + 4],
                                          const lierne_recorded_operation *o) {
    snprintf(text, LIERNE_MAX_OPERATION_NAME + 4, *o->name ? " '%s'" : "%s", o->name);
}

bool lierne_purpose_valid(const char *purpose, bool may_be_empty) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t length = strlen(purpose);
    return length <= LIERNE_MAX_PURPOSE && (length > 0 || may_be_empty) &&
           purpose[strspn(purpose, allowed)] == '\0';
}

lierne_status lierne_schedule_create(lierne_schedule **out, int rank) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    if (!out) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "out is NULL");
    }
    if (rank < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank is %d, must be at least 0", rank);
    }
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    (*out)->rank = rank;
    return LIERNE_OK;
}

void lierne_schedule_destroy(lierne_schedule *s) {
    for (size_t i = 0; s && i < s->groups.count; i++) {
        lierne_mem_free(s->groups.at[i].ranks);
    }
    for (size_t i = 0; s && i < s->operations.count; i++) {
        lierne_mem_free(s->operations.at[i].after);
    }
    if (s) {
        lierne_mem_free(s->groups.at);
        lierne_mem_free(s->operations.at);
        lierne_mem_free(s);
    }
}

static lierne_status check_open(const lierne_schedule *s, const void *index) {
    if (!s || !index) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", s ? "index" : "schedule");
    }
    return s->frozen ? LIERNE_FAIL(LIERNE_ERR_INVALID, "the schedule is frozen: record before that")
                     : LIERNE_OK;
}

lierne_status lierne_schedule_check_frozen(const lierne_schedule *s) {
    if (!s || !s->frozen) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "schedule is %s",
                           s ? "not frozen: call lierne_schedule_freeze first" : "NULL");
    }
    return LIERNE_OK;
}

static lierne_status copy_ints(int **out, const int *from, int n) {
    LIERNE_TRY(lierne_alloc(out, (size_t)n, sizeof **out));
    if (n > 0) {
        memcpy(*out, from, (size_t)n * sizeof **out);
    }
    return LIERNE_OK;
}

lierne_status lierne_schedule_append_group(lierne_schedule *s, const lierne_recorded_group *group) {
    lierne_recorded_group g = *group;
    g.queue = (int)s->groups.count;
    for (int i = (int)s->groups.count - 1; i >= 0; i--) {
        g.queue = lierne_recorded_group_same(&s->groups.at[i], &g) ? i : g.queue;
    }
    LIERNE_TRY(copy_ints(&g.ranks, group->ranks, g.n));
    lierne_status status = LIERNE_VEC_PUSH(&s->groups, g);
    if (status != LIERNE_OK) {
        lierne_mem_free(g.ranks);
    }
    return status;
}

static lierne_status check_ranks(const lierne_schedule_group_spec *spec) {
    if (!spec->ranks || spec->nranks < 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "group '%s' has %s", spec->name,
                           spec->ranks ? "nranks below 1" : "no ranks: NULL");
    }
    for (int i = 0; i < spec->nranks; i++) {
        for (int k = 0; k < i; k++) {
            if (spec->ranks[k] == spec->ranks[i]) {
                return LIERNE_FAIL(LIERNE_ERR_INVALID, "ranks[%d] of group '%s' is %d again", i,
                                   spec->name, spec->ranks[i]);
            }
        }
        if (spec->ranks[i] < 0) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "ranks[%d] of group '%s' is %d, must be at least 0", i, spec->name,
                               spec->ranks[i]);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_group(const lierne_schedule_group_spec *spec) {
    size_t length = spec->name ? strlen(spec->name) : 0;
    if (length < 1 || length > LIERNE_MAX_GROUP_NAME) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "name of a group has %zu characters, must have 1 to %d", length,
                           LIERNE_MAX_GROUP_NAME);
    }
    if (spec->uid < 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "uid of group '%s' is %lld, must be at least 1",
                           spec->name, (long long)spec->uid);
    }
    if (spec->priority != LIERNE_PRIORITY_NORMAL && spec->priority != LIERNE_PRIORITY_HIGH) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "priority of group '%s' is %d, must be %d or %d",
                           spec->name, (int)spec->priority, LIERNE_PRIORITY_NORMAL,
                           LIERNE_PRIORITY_HIGH);
    }
    return check_ranks(spec);
}

/* Names are unique; one uid has one ordered list of ranks. */
static lierne_status check_others(const lierne_schedule *s, const lierne_recorded_group *g) {
    for (size_t i = 0; i < s->groups.count; i++) {
        const lierne_recorded_group *other = &s->groups.at[i];
        if (strcmp(other->name, g->name) == 0) {
            return LIERNE_FAIL(LIERNE_ERR_DUPLICATE, "there is a group '%s' already", g->name);
        }
        if (lierne_recorded_group_same(other, g) &&
            (other->n != g->n ||
             memcmp(other->ranks, g->ranks, (size_t)g->n * sizeof *g->ranks) != 0)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "group '%s' has uid %lld as group '%s', but not the same ranks in "
                               "the same order: one uid is one group",
                               g->name, (long long)g->uid, other->name);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_schedule_add_group(int *index, lierne_schedule *schedule,
                                        const lierne_schedule_group_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_schedule_group_spec spec;
    lierne_recorded_group g = {.queue = 0};
    LIERNE_TRY(check_open(schedule, index));
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given, "spec"));
    LIERNE_TRY(check_group(&spec));
    snprintf(g.name, sizeof g.name, "%s", spec.name);
    g.uid = spec.uid;
    g.n = spec.nranks;
    g.ranks = (int *)spec.ranks;
    g.priority = spec.priority;
    LIERNE_TRY(check_others(schedule, &g));
    LIERNE_TRY(lierne_schedule_append_group(schedule, &g));
    *index = (int)schedule->groups.count - 1;
    return LIERNE_OK;
}

static lierne_status reject_value(const lierne_schedule *s, const char *what, long long value,
                                  const char *must) {
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: operation %zu: %s is %lld, must be %s",
                       s->rank, s->operations.count, what, value, must);
}

static lierne_status check_group_of(const lierne_schedule *s, const lierne_operation_spec *spec) {
    if (spec->kind < LIERNE_OPERATION_ALL_GATHER || spec->kind > LIERNE_OPERATION_LOCAL) {
        return reject_value(s, "kind", (long long)spec->kind, "a lierne_operation_kind");
    }
    if (spec->group == -1 && spec->kind == LIERNE_OPERATION_LOCAL) {
        return LIERNE_OK;
    }
    if (spec->group < 0 || spec->group >= (int)s->groups.count) {
        return reject_value(s, "group", spec->group, "the index of a group of the schedule");
    }
    const lierne_recorded_group *g = &s->groups.at[spec->group];
    if (!lierne_recorded_group_has(g, s->rank)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: operation %zu: group '%s' does not have this rank", s->rank,
                           s->operations.count, g->name);
    }
    return LIERNE_OK;
}

static lierne_status check_ends(const lierne_schedule *s, const lierne_operation_spec *spec) {
    bool message = spec->kind == LIERNE_OPERATION_SEND || spec->kind == LIERNE_OPERATION_RECV;
    bool broadcast = spec->kind == LIERNE_OPERATION_BROADCAST;
    if (message && (spec->peer == s->rank ||
                    !lierne_recorded_group_has(&s->groups.at[spec->group], spec->peer))) {
        return reject_value(s, "peer", spec->peer, "another rank of the group");
    }
    if (broadcast && !lierne_recorded_group_has(&s->groups.at[spec->group], spec->root)) {
        return reject_value(s, "root", spec->root, "a rank of the group");
    }
    if (!message && spec->peer != 0) {
        return reject_value(s, "peer", spec->peer, "0: it is no send or receive");
    }
    return broadcast || spec->root == 0
               ? LIERNE_OK
               : reject_value(s, "root", spec->root, "0: it is no broadcast");
}

static lierne_status check_after(const lierne_schedule *s, const lierne_operation_spec *spec) {
    if (spec->nafter < 0 || (spec->nafter > 0 && !spec->after)) {
        return reject_value(s, "nafter", spec->nafter, "the number of entries of after");
    }
    for (int i = 0; i < spec->nafter; i++) {
        if (spec->after[i] < 0 || spec->after[i] >= (int)s->operations.count) {
            return reject_value(s, "an entry of after", spec->after[i], "an earlier operation");
        }
    }
    return LIERNE_OK;
}

/* A plan gives the dtype itself, and its kind must be the operation's. */
static lierne_status check_plan(const lierne_schedule *s, lierne_operation_spec *spec) {
    if (!spec->plan) {
        return LIERNE_OK;
    }
    const char *kind = lierne_plan_get_kind(spec->plan);
    if (spec->kind == LIERNE_OPERATION_LOCAL ||
        (spec->kind <= LIERNE_OPERATION_BARRIER && strcmp(kind, kind_names[spec->kind]) != 0)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: operation %zu is %s, but its plan is %s",
                           s->rank, s->operations.count, kind_names[spec->kind], kind);
    }
    spec->count = 0;
    return lierne_plan_get_dtype(&spec->dtype, spec->plan);
}

static bool has_dtype(const lierne_operation_spec *spec) {
    bool needless = spec->plan || (spec->count == 0 && spec->dtype == LIERNE_DTYPE_NONE);
    return needless || lierne_dtype_size(spec->dtype) > 0;
}

static lierne_status check_operation(const lierne_schedule *s, lierne_operation_spec *spec) {
    LIERNE_TRY(check_group_of(s, spec));
    if (spec->tag && !lierne_purpose_valid(spec->tag, true)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: operation %zu: tag is '%.40s', must be at most %d characters "
                           "of a-z A-Z 0-9 _ - .",
                           s->rank, s->operations.count, spec->tag, LIERNE_MAX_PURPOSE);
    }
    LIERNE_TRY(check_ends(s, spec));
    LIERNE_TRY(check_after(s, spec));
    if (!has_dtype(spec)) {
        return reject_value(
            s, "dtype", (long long)spec->dtype,
            "one of lierne_dtype, and not LIERNE_DTYPE_NONE where count is above 0");
    }
    if (spec->count < 0) {
        return reject_value(s, "count", (long long)spec->count, "at least 0");
    }
    if (spec->direction != LIERNE_DIRECTION_FORWARD &&
        spec->direction != LIERNE_DIRECTION_ADJOINT) {
        return reject_value(s, "direction", (long long)spec->direction,
                            "0 (forward) or 1 (adjoint)");
    }
    if (spec->name && strlen(spec->name) > LIERNE_MAX_OPERATION_NAME) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: operation %zu: name is '%.40s...', must have at most %d "
                           "characters",
                           s->rank, s->operations.count, spec->name, LIERNE_MAX_OPERATION_NAME);
    }
    return check_plan(s, spec);
}

static lierne_status append_operation(lierne_schedule *s, const lierne_recorded_operation *o) {
    lierne_recorded_operation own = *o;
    LIERNE_TRY(copy_ints(&own.after, o->after, o->nafter));
    lierne_status status = LIERNE_VEC_PUSH(&s->operations, own);
    if (status != LIERNE_OK) {
        lierne_mem_free(own.after);
    }
    return status;
}

lierne_status lierne_schedule_add_operation(int *index, lierne_schedule *schedule,
                                            const lierne_operation_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_operation_spec spec;
    LIERNE_TRY(check_open(schedule, index));
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given, "spec"));
    LIERNE_TRY(check_operation(schedule, &spec));
    lierne_recorded_operation o = {.kind = spec.kind,
                                   .group = spec.group,
                                   .after = (int *)spec.after,
                                   .nafter = spec.nafter,
                                   .dtype = spec.dtype,
                                   .count = spec.count,
                                   .root = spec.root,
                                   .peer = spec.peer,
                                   .plan = spec.plan,
                                   .number = spec.plan ? lierne_plan_get_number(spec.plan) : -1,
                                   .direction = spec.direction,
                                   .held = spec.held != 0};
    snprintf(o.tag, sizeof o.tag, "%s", spec.tag ? spec.tag : "");
    snprintf(o.name, sizeof o.name, "%s", spec.name ? spec.name : "");
    LIERNE_TRY(append_operation(schedule, &o));
    *index = (int)schedule->operations.count - 1;
    return LIERNE_OK;
}

lierne_status lierne_schedule_freeze(lierne_schedule *schedule) {
    LIERNE_PUBLIC_CALL();
    if (!schedule) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "schedule is NULL");
    }
    schedule->frozen = true;
    return LIERNE_OK;
}

lierne_status lierne_schedule_copy(lierne_schedule **out, const lierne_schedule *s) {
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    (*out)->rank = s->rank;
    (*out)->frozen = s->frozen;
    for (size_t i = 0; i < s->groups.count && status == LIERNE_OK; i++) {
        status = lierne_schedule_append_group(*out, &s->groups.at[i]);
    }
    for (size_t i = 0; i < s->operations.count && status == LIERNE_OK; i++) {
        status = append_operation(*out, &s->operations.at[i]);
    }
    if (status != LIERNE_OK) {
        lierne_schedule_destroy(*out);
        *out = NULL;
    }
    return status;
}
