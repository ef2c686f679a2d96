/* Which plans a run executes, over transports that match messages in the order of calls (nccl,
 * ipc). There two queues are concurrent only if their messages have domains of their own.
 *
 * The plans that a caller recorded stay in their domains, where other calls may use them. For the
 * operations of a group that a pass made the run has plans of its own, copies in the domain of this
 * group. Copying is collective over the context, so the first rank, which has all schedules, tells
 * everybody what to copy, also the ranks that are no members. */
#include "step/schedule_run.h"

#include <stdlib.h>
#include <string.h>

bool lierne_run_is_ordered(const lierne_context *context) {
    bool ordered = false;
    for (int i = 0; i < context->ncarriers; i++) {
        ordered |= context->carriers[i].transport->ordered;
    }
    return ordered;
}

static lierne_status check_transports(const lierne_context *context) {
    for (int i = 0; i < context->ncarriers; i++) {
        const lierne_transport *t = context->carriers[i].transport;
        if (t->ordered && !t->groups) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                               "rank %d: transport %s matches messages in the order of all calls, "
                               "so queues cannot run concurrently over it",
                               context->rank, t->name);
        }
    }
    return LIERNE_OK;
}

static bool has_messages(const lierne_recorded_operation *o) {
    const lierne_route *route = o->plan ? lierne_plan_route(o->plan, o->direction) : NULL;
    bool has = false;
    for (size_t i = 0; route && i < route->stages.count; i++) {
        has |= route->stages.at[i].sends.count + route->stages.at[i].recvs.count > 0;
    }
    return has;
}

/* An operation whose messages are in a domain that other queues could use. */
typedef struct member {
    uintptr_t domain; /* the group of its plan; 0: the context's own */
    int queue;
    int operation;
} member;

static int compare_members(const void *a, const void *b) {
    const member *x = a, *y = b;
    int order = (x->domain > y->domain) - (x->domain < y->domain);
    return order ? order : (x->operation > y->operation) - (x->operation < y->operation);
}

static lierne_status check_pair(const lierne_run *run, const member *a, const member *b) {
    const lierne_schedule *s = run->schedule;
    const lierne_group *group = lierne_plan_group(s->operations.at[a->operation].plan);
    if (a->domain != b->domain || a->queue == b->queue) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_INVALID,
                       "rank %d: the plans of operations %d (group '%s') and %d (group '%s') have "
                       "one order of messages, that of %s: isolate one of them, or create its plan "
                       "with a group of its own",
                       s->rank, a->operation,
                       s->groups.at[s->operations.at[a->operation].group].name, b->operation,
                       s->groups.at[s->operations.at[b->operation].group].name,
                       group ? group->purpose : "the context");
}

lierne_status lierne_run_check_domains(const lierne_run *run) {
    const lierne_schedule *s = run->schedule;
    member *members;
    size_t n = 0;
    lierne_status status = LIERNE_OK;
    if (run->external || !lierne_run_is_ordered(run->context)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(check_transports(run->context));
    LIERNE_TRY(lierne_alloc(&members, s->operations.count, sizeof *members));
    for (size_t i = 0; i < s->operations.count; i++) {
        const lierne_recorded_operation *o = &s->operations.at[i];
        if (o->group >= 0 && !s->groups.at[o->group].source && has_messages(o)) {
            members[n++] = (member){(uintptr_t)lierne_plan_group(o->plan),
                                    lierne_run_queue(run, (int)i), (int)i};
        }
    }
    if (n > 0) {
        qsort(members, n, sizeof *members, compare_members);
    }
    for (size_t i = 1; i < n && status == LIERNE_OK; i++) {
        status = check_pair(run, &members[i - 1], &members[i]);
    }
    lierne_mem_free(members);
    return status;
}

static int compare_copies(const void *a, const void *b) {
    return memcmp(a, b, sizeof(lierne_run_copy));
}

lierne_status lierne_run_list_copies(lierne_run_copies *copies, lierne_schedule *const *schedules,
                                     int n) {
    size_t kept = 0;
    for (int i = 0; i < n; i++) {
        const lierne_schedule *s = schedules[i];
        for (size_t k = 0; k < s->operations.count; k++) {
            const lierne_recorded_operation *o = &s->operations.at[k];
            const lierne_recorded_group *g = o->group < 0 ? NULL : &s->groups.at[o->group];
            if (g && g->source && o->number >= 0) {
                lierne_run_copy copy = {.source = g->source, .number = o->number};
                memcpy(copy.purpose, g->purpose, strlen(g->purpose));
                LIERNE_TRY(LIERNE_VEC_PUSH(copies, copy));
            }
        }
    }
    if (copies->count > 0) {
        qsort(copies->at, copies->count, sizeof *copies->at, compare_copies);
    }
    for (size_t i = 0; i < copies->count; i++) {
        if (i == 0 || compare_copies(&copies->at[i - 1], &copies->at[i]) != 0) {
            copies->at[kept++] = copies->at[i];
        }
    }
    copies->count = kept;
    return LIERNE_OK;
}

/* Whether an operation executes what is to be copied. */
static bool executes(const lierne_run *run, int operation, const lierne_run_copy *copy) {
    const lierne_recorded_operation *o = &run->schedule->operations.at[operation];
    const lierne_recorded_group *g = o->group < 0 ? NULL : &run->schedule->groups.at[o->group];
    return g && o->plan && g->source == copy->source && o->number == copy->number &&
           strncmp(g->purpose, (const char *)copy->purpose, sizeof g->purpose) == 0;
}

static lierne_status copy_plan(lierne_run *run, const lierne_run_copy *copy) {
    const lierne_schedule *s = run->schedule;
    int n = (int)s->operations.count, first = 0;
    lierne_plan *made;
    while (first < n && !executes(run, first, copy)) {
        first++;
    }
    const lierne_recorded_operation *o = first < n ? &s->operations.at[first] : NULL;
    LIERNE_TRY(lierne_plan_copy(&made, run->context, o ? o->plan : NULL,
                                o ? run->groups[o->group] : NULL, (int)copy->number));
    run->copies[run->ncopies++] = made;
    for (int i = first; i < n; i++) {
        run->plans[i] = executes(run, i, copy) ? made : run->plans[i];
    }
    return LIERNE_OK;
}

lierne_status lierne_run_copy_plans(lierne_run *run, const lierne_run_copy *copies, size_t n) {
    const lierne_field field = {.name = "plans of a run", .value = (int64_t)n};
    lierne_status status = lierne_alloc(&run->copies, n, sizeof *run->copies);
    LIERNE_TRY(lierne_context_agree_all(run->context, status, &field, 1, NULL));
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(copy_plan(run, &copies[i]));
    }
    return LIERNE_OK;
}

void lierne_run_destroy_copies(lierne_run *run) {
    while (run->ncopies > 0) {
        lierne_plan_destroy(run->copies[--run->ncopies]);
    }
    lierne_mem_free(run->copies);
    run->copies = NULL;
}
