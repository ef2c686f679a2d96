/* What the ranks do together: every operation of a schedule is a part of an event.
 *
 * Parts are sorted by group, ends and sequence number. Those of one event then lie side by side,
 * and one pass compares them: with the lowest rank of the event, and with the ranks that must take
 * part. Ranks whose schedules are not given are not missed, so a file may hold some ranks only. */
#include "step/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const lierne_recorded_operation *operation_of(const lierne_event_part *p) {
    return &p->schedule->operations.at[p->operation];
}

static int compare_groups(const lierne_recorded_group *a, const lierne_recorded_group *b) {
    if (!a || !b) {
        return (a != NULL) - (b != NULL);
    }
    int64_t x = lierne_recorded_group_key(a), y = lierne_recorded_group_key(b);
    return x != y ? (x > y) - (x < y) : strcmp(a->purpose, b->purpose);
}

static int compare_ints(int a, int b) {
    return (a > b) - (a < b);
}

/* By what numbers operations: their group, and the ends of a message. Local operations are those of
 * their rank alone. */
static int compare_lines(const lierne_event_part *a, const lierne_event_part *b) {
    int order = compare_groups(a->group, b->group);
    order = order ? order : compare_ints(a->from, b->from);
    return order ? order : compare_ints(a->to, b->to);
}

/* Of one schedule. */
static int compare_operations(const void *a, const void *b) {
    const lierne_event_part *x = a, *y = b;
    int order = compare_lines(x, y);
    return order ? order : compare_ints(x->operation, y->operation);
}

static int compare_events(const lierne_event_part *a, const lierne_event_part *b) {
    int order = compare_lines(a, b);
    return order ? order : compare_ints(a->sequence, b->sequence);
}

static int compare_parts(const void *a, const void *b) {
    const lierne_event_part *x = a, *y = b;
    int order = compare_events(x, y);
    order = order ? order : compare_ints(x->schedule->rank, y->schedule->rank);
    return order ? order : compare_ints(x->operation, y->operation);
}

/* Numbers the operations of a schedule. Sorting does it: a schedule may have many thousands. */
static void number_operations(lierne_event_part *parts, size_t n) {
    if (n > 0) {
        qsort(parts, n, sizeof *parts, compare_operations);
    }
    for (size_t i = 1; i < n; i++) {
        bool same = compare_lines(&parts[i - 1], &parts[i]) == 0;
        parts[i].sequence = same ? parts[i - 1].sequence + 1 : 0;
    }
}

static lierne_status collect_events(lierne_events *e, const lierne_schedule *s) {
    size_t first = e->parts.count;
    for (size_t i = 0; i < s->operations.count; i++) {
        const lierne_recorded_operation *o = &s->operations.at[i];
        lierne_event_part p = {
            .schedule = s, .operation = (int)i, .from = -1, .to = -1, .place = first + i};
        bool sends = o->kind == LIERNE_OPERATION_SEND;
        if (sends || o->kind == LIERNE_OPERATION_RECV) {
            p.from = sends ? s->rank : o->peer;
            p.to = sends ? o->peer : s->rank;
        }
        if (o->kind == LIERNE_OPERATION_LOCAL) {
            p.from = p.to = s->rank;
        } else {
            p.group = &s->groups.at[s->groups.at[o->group].queue];
        }
        LIERNE_TRY(LIERNE_VEC_PUSH(&e->parts, p));
    }
    if (s->operations.count > 0) {
        number_operations(&e->parts.at[first], s->operations.count);
    }
    return LIERNE_OK;
}

static void number_events(lierne_events *e) {
    for (size_t i = 0; i < e->parts.count; i++) {
        bool another = i == 0 || compare_events(&e->parts.at[i - 1], &e->parts.at[i]) != 0;
        e->count += another;
        e->parts.at[i].event = e->count - 1;
    }
}

#define PART_TEXT 320

/* Writes "operation 3 'tokens' (all_to_all 2 of group 'ep', uid 4)". */
static void name_part(char text[PART_TEXT], const lierne_event_part *p) {
    char name[LIERNE_MAX_OPERATION_NAME + 4], group[LIERNE_RECORDED_GROUP_TEXT];
    lierne_recorded_operation_print_name(name, operation_of(p));
    lierne_recorded_group_print(group, p->schedule, p->group);
    snprintf(text, PART_TEXT, "operation %d%s (%s %d of group '%s', uid %lld)", p->operation, name,
             lierne_operation_name(operation_of(p)->kind), p->sequence, group,
             (long long)lierne_recorded_group_key(p->group));
}

static lierne_status mismatch(const lierne_event_part *first, const lierne_event_part *p,
                              const char *field, const char *expected, const char *got) {
    char name[PART_TEXT];
    name_part(name, p);
    return LIERNE_FAIL(LIERNE_ERR_MISMATCH, "rank %d: %s: %s is %s, expected %s as on rank %d",
                       p->schedule->rank, name, field, got, expected, first->schedule->rank);
}

static lierne_status compare_numbers(const lierne_event_part *first, const lierne_event_part *p,
                                     const char *field, int64_t expected, int64_t got) {
    char a[24], b[24];
    snprintf(a, sizeof a, "%lld", (long long)expected);
    snprintf(b, sizeof b, "%lld", (long long)got);
    return expected == got ? LIERNE_OK : mismatch(first, p, field, a, b);
}

static lierne_status compare_texts(const lierne_event_part *first, const lierne_event_part *p,
                                   const char *field, const char *expected, const char *got) {
    char a[24], b[24];
    snprintf(a, sizeof a, "'%s'", expected);
    snprintf(b, sizeof b, "'%s'", got);
    return strcmp(expected, got) == 0 ? LIERNE_OK : mismatch(first, p, field, a, b);
}

static const char *dtype_name(const lierne_recorded_operation *o) {
    return o->dtype == LIERNE_DTYPE_NONE ? "none" : lierne_dtype_name(o->dtype);
}

static lierne_status compare_fields(const lierne_event_part *first, const lierne_event_part *p) {
    const lierne_recorded_operation *a = operation_of(first), *b = operation_of(p);
    if (p->from < 0) { /* the two ends of a message are two kinds */
        LIERNE_TRY(compare_texts(first, p, "kind", lierne_operation_name(a->kind),
                                 lierne_operation_name(b->kind)));
    }
    LIERNE_TRY(compare_texts(first, p, "tag", a->tag, b->tag));
    LIERNE_TRY(compare_texts(first, p, "dtype", dtype_name(a), dtype_name(b)));
    LIERNE_TRY(compare_numbers(first, p, "count", a->count, b->count));
    LIERNE_TRY(compare_numbers(first, p, "root", a->root, b->root));
    LIERNE_TRY(compare_numbers(first, p, "plan", a->number, b->number));
    return compare_numbers(first, p, "direction", a->direction, b->direction);
}

static const lierne_schedule *find_schedule(const lierne_schedule *const *schedules, int n,
                                            int rank) {
    for (int i = 0; i < n; i++) {
        if (schedules[i]->rank == rank) {
            return schedules[i];
        }
    }
    return NULL;
}

static lierne_status missing(const lierne_event_part *first, int rank) {
    char name[PART_TEXT], group[LIERNE_RECORDED_GROUP_TEXT];
    name_part(name, first);
    lierne_recorded_group_print(group, first->schedule, first->group);
    return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                       "rank %d: sequence of group '%s' (uid %lld)%s%s: expected %s as on rank %d, "
                       "got none: it has %d operations there",
                       rank, group, (long long)lierne_recorded_group_key(first->group),
                       *first->group->purpose ? ", isolated as " : "", first->group->purpose, name,
                       first->schedule->rank, first->sequence);
}

/* parts[0 .. n-1] are one event: equal, and all that take part are there. */
static lierne_status compare_event(const lierne_event_part *parts, size_t n,
                                   const lierne_schedule *const *schedules, int nschedules) {
    const lierne_recorded_group *g = parts[0].group;
    for (size_t i = 1; i < n; i++) {
        LIERNE_TRY(compare_fields(&parts[0], &parts[i]));
    }
    if (!g || n == (parts[0].from < 0 ? (size_t)g->n : 2)) {
        return LIERNE_OK; /* the usual case: no need to look for each rank */
    }
    for (int i = 0; i < g->n; i++) {
        int rank = g->ranks[i];
        bool takes_part = parts[0].from < 0 || rank == parts[0].from || rank == parts[0].to;
        bool there = !takes_part;
        for (size_t k = 0; k < n; k++) {
            there |= parts[k].schedule->rank == rank;
        }
        if (!there && find_schedule(schedules, nschedules, rank)) {
            return missing(&parts[0], rank);
        }
    }
    return LIERNE_OK;
}

typedef struct owned_group {
    const lierne_schedule *schedule;
    const lierne_recorded_group *group;
} owned_group;

static int compare_owned(const void *a, const void *b) {
    const owned_group *x = a, *y = b;
    int order = compare_groups(x->group, y->group);
    return order ? order : compare_ints(x->schedule->rank, y->schedule->rank);
}

static lierne_status compare_owners(const owned_group *first, const owned_group *other) {
    const lierne_recorded_group *a = first->group, *b = other->group;
    if (lierne_recorded_group_same(a, b) &&
        (a->n != b->n || memcmp(a->ranks, b->ranks, (size_t)a->n * sizeof *a->ranks) != 0)) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "rank %d: group '%s' (uid %lld) has other ranks, or another order of "
                           "them, than on rank %d: one uid is one group",
                           other->schedule->rank, b->name, (long long)lierne_recorded_group_key(b),
                           first->schedule->rank);
    }
    return LIERNE_OK;
}

/* One uid has one ordered list of ranks, also on different ranks. */
static lierne_status compare_identities(const lierne_schedule *const *schedules, int n) {
    LIERNE_VEC(owned_group) all = {0};
    lierne_status status = LIERNE_OK;
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < schedules[i]->groups.count && status == LIERNE_OK; k++) {
            const owned_group own = {schedules[i], &schedules[i]->groups.at[k]};
            status = LIERNE_VEC_PUSH(&all, own);
        }
    }
    if (all.count > 0) {
        qsort(all.at, all.count, sizeof *all.at, compare_owned);
    }
    for (size_t i = 1; i < all.count && status == LIERNE_OK; i++) {
        status = compare_owners(&all.at[i - 1], &all.at[i]);
    }
    lierne_mem_free(all.at);
    return status;
}

static lierne_status compare_all(const lierne_events *e, const lierne_schedule *const *schedules,
                                 int n) {
    for (size_t first = 0, next; first < e->parts.count; first = next) {
        next = first + 1;
        while (next < e->parts.count && e->parts.at[next].event == e->parts.at[first].event) {
            next++;
        }
        LIERNE_TRY(compare_event(&e->parts.at[first], next - first, schedules, n));
    }
    return LIERNE_OK;
}

lierne_status lierne_events_collect(lierne_events *events, const lierne_schedule *const *schedules,
                                    int n) {
    LIERNE_TRY(compare_identities(schedules, n));
    for (int i = 0; i < n; i++) {
        LIERNE_TRY(collect_events(events, schedules[i]));
    }
    if (events->parts.count > 0) {
        qsort(events->parts.at, events->parts.count, sizeof *events->parts.at, compare_parts);
    }
    number_events(events);
    return compare_all(events, schedules, n);
}

void lierne_events_clear(lierne_events *events) {
    lierne_mem_free(events->parts.at);
    *events = (lierne_events){0};
}
