/* Creating and destroying runs.
 *
 * Everything that can fail on one rank alone comes before the ranks agree (exchange.c). A group
 * that a pass made is created once per context and source; runs count their references to it. */
#include "step/run_streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lierne_status check_groups(const lierne_context *context, const lierne_schedule *s) {
    for (size_t i = 0; i < s->groups.count; i++) {
        const lierne_recorded_group *g = &s->groups.at[i];
        for (int k = 0; k < g->n; k++) {
            if (lierne_context_index(context, g->ranks[k]) < 0) {
                char members[LIERNE_MEMBERS_TEXT];
                lierne_members_print(members, sizeof members, &context->members);
                return LIERNE_FAIL(LIERNE_ERR_INVALID,
                                   "rank %d: ranks[%d] of group '%s' is %d, must be "
                                   "%s",
                                   context->rank, k, g->name, g->ranks[k], members);
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status check_plan(const lierne_run *run, const lierne_context *context, int i) {
    const lierne_recorded_operation *o = &run->schedule->operations.at[i];
    if (!o->plan != (o->kind == LIERNE_OPERATION_LOCAL) && !run->external) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: operation %d (%s) has no plan to run",
                           context->rank, i, lierne_operation_name(o->kind));
    }
    if (o->plan && lierne_plan_context(o->plan) != context) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the plan of operation %d is of another "
                           "context",
                           context->rank, i);
    }
    return LIERNE_OK;
}

static lierne_status check_peers(const lierne_run *run, int operation,
                                 const lierne_messages *messages) {
    const lierne_schedule *s = run->schedule;
    const lierne_recorded_group *g = &s->groups.at[s->operations.at[operation].group];
    for (size_t i = 0; i < messages->count; i++) {
        if (!lierne_recorded_group_has(g, messages->at[i].peer)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: operation %d: its plan has messages with rank %d, which "
                               "is not in group '%s'",
                               s->rank, operation, messages->at[i].peer, g->name);
        }
    }
    return LIERNE_OK;
}

/* Ranks outside of the group do not begin the operation, and messages with them would never come.
 */
static lierne_status check_members(const lierne_run *run, int operation) {
    const lierne_recorded_operation *o = &run->schedule->operations.at[operation];
    const lierne_route *route = lierne_plan_route(o->plan, o->direction);
    for (size_t i = 0; route && i < route->stages.count; i++) {
        LIERNE_TRY(check_peers(run, operation, &route->stages.at[i].sends));
        LIERNE_TRY(check_peers(run, operation, &route->stages.at[i].recvs));
    }
    return LIERNE_OK;
}

/* What an operation executes. */
typedef struct use {
    uintptr_t plan;
    int direction;
    int operation;
} use;

static int compare_uses(const void *a, const void *b) {
    const use *x = a, *y = b;
    int order = (x->plan > y->plan) - (x->plan < y->plan);
    order = order ? order : x->direction - y->direction;
    return order ? order : (x->operation > y->operation) - (x->operation < y->operation);
}

/* uses: sorted, so that those of one plan and direction lie side by side. */
static lierne_status check_uses(const lierne_run *run, const use *uses, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int own = uses[i].operation, before = i > 0 ? uses[i - 1].operation : -1;
        if (i == 0 || uses[i].plan != uses[i - 1].plan ||
            uses[i].direction != uses[i - 1].direction) {
            LIERNE_TRY(check_members(run, own));
        } else if (lierne_run_queue(run, before) != lierne_run_queue(run, own)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: operations %d and %d execute one plan in one direction, "
                               "in two queues: make a plan for each",
                               run->schedule->rank, before, own);
        }
    }
    return LIERNE_OK;
}

/* A plan's calls in one direction are matched by their number, so they need one order. */
static lierne_status check_plans(const lierne_run *run, const lierne_context *context) {
    const lierne_schedule *s = run->schedule;
    size_t n = 0;
    use *uses;
    for (size_t i = 0; i < s->operations.count; i++) {
        LIERNE_TRY(check_plan(run, context, (int)i));
    }
    LIERNE_TRY(lierne_alloc(&uses, s->operations.count, sizeof *uses));
    for (size_t i = 0; i < s->operations.count; i++) {
        const lierne_recorded_operation *o = &s->operations.at[i];
        if (o->plan) {
            uses[n++] = (use){(uintptr_t)o->plan, (int)o->direction, (int)i};
        }
    }
    if (n > 0) {
        qsort(uses, n, sizeof *uses, compare_uses);
    }
    lierne_status status = check_uses(run, uses, n);
    lierne_mem_free(uses);
    return status;
}

static lierne_status allocate_run(lierne_run *run, const lierne_schedule *schedule) {
    size_t n = schedule->operations.count, ngroups = schedule->groups.count;
    LIERNE_TRY(lierne_schedule_copy(&run->schedule, schedule));
    run->nqueues = (int)ngroups + 1;
    LIERNE_TRY(lierne_alloc(&run->groups, ngroups, sizeof *run->groups));
    LIERNE_TRY(lierne_alloc(&run->operations, n, sizeof *run->operations));
    LIERNE_TRY(lierne_alloc(&run->next, ngroups + 1, sizeof *run->next));
    LIERNE_TRY(lierne_alloc(&run->out, n, sizeof *run->out));
    LIERNE_TRY(lierne_alloc(&run->in, n, sizeof *run->in));
    LIERNE_TRY(lierne_alloc(&run->plans, n, sizeof *run->plans));
    for (size_t i = 0; i < n; i++) {
        run->plans[i] = run->schedule->operations.at[i].plan;
    }
    return LIERNE_OK;
}

/* Everything that can fail on this rank alone. */
static lierne_status prepare_run(lierne_run *run, lierne_context *context,
                                 const lierne_schedule *schedule, const lierne_run_spec *given,
                                 bool *concurrent) {
    static const lierne_run_spec none = {.size = sizeof none};
    lierne_run_spec spec;
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given ? given : &none, "spec"));
    *concurrent = spec.concurrent != 0;
    run->external = spec.external != 0;
    LIERNE_TRY(lierne_schedule_check_frozen(schedule));
    if (schedule->rank != context->rank) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: the schedule is of rank %d", context->rank,
                           schedule->rank);
    }
    if (run->external && spec.progress_thread) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: progress_thread is set, but an external run has nothing to "
                           "progress",
                           context->rank);
    }
    LIERNE_TRY(allocate_run(run, schedule));
    LIERNE_TRY(check_groups(context, run->schedule));
    LIERNE_TRY(check_plans(run, context));
    LIERNE_TRY(lierne_run_check_domains(run));
    LIERNE_TRY(lierne_run_streams_create(run, spec.stream));
    for (size_t i = 0; i < run->schedule->groups.count; i++) {
        lierne_recorded_group *g = &run->schedule->groups.at[i];
        const lierne_group *existing = lierne_run_find_group(context, g);
        if (g->source) {
            g->uid = existing ? existing->uid : 0;
        }
    }
    return spec.progress_thread ? lierne_run_thread_create(run) : LIERNE_OK;
}

/* By `by`: the plans may not be destroyed while a run has them. */
static void hold_plans(const lierne_run *run, int by) {
    for (size_t i = 0; i < run->schedule->operations.count; i++) {
        if (run->schedule->operations.at[i].plan) {
            lierne_plan_hold(run->schedule->operations.at[i].plan, by);
        }
    }
}

static void drop_run(lierne_run *run) {
    if (run) {
        lierne_run_thread_destroy(run);
        lierne_run_destroy_copies(run);
        lierne_run_streams_destroy(run);
        lierne_schedule_destroy(run->schedule);
        for (size_t i = 0; i < run->created.count; i++) {
            lierne_mem_free(run->created.at[i].ranks);
        }
        lierne_mem_free(run->created.at);
        lierne_mem_free(run->groups);
        lierne_mem_free(run->operations);
        lierne_mem_free(run->next);
        lierne_mem_free(run->plans);
        lierne_mem_free(run->out);
        lierne_mem_free(run->in);
        lierne_mem_free(run);
    }
}

/* The place of the newest group that the run still has, NULL: it has none. */
static lierne_group **find_newest(const lierne_run *run) {
    lierne_group **newest = NULL;
    for (size_t i = 0; run->groups && i < run->schedule->groups.count; i++) {
        lierne_group **at = &run->groups[i];
        newest = *at && (!newest || (*at)->uid > (*newest)->uid) ? at : newest;
    }
    return newest;
}

/* The newest first, by uid: ranks may have recorded them in different orders. Plans of the run are
 * in them, and are destroyed before. */
static lierne_status release_groups(lierne_run *run) {
    lierne_status status = LIERNE_OK;
    lierne_run_destroy_copies(run);
    for (lierne_group **at = find_newest(run); at; at = find_newest(run)) {
        lierne_group *own = *at;
        *at = NULL;
        if (--own->references == 0) {
            lierne_status destroyed = lierne_group_destroy(own);
            status = status == LIERNE_OK ? destroyed : status;
        }
    }
    return status;
}

/* After an error, which its groups must not hide. */
static void discard_run(lierne_run *run) {
    char message[LIERNE_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", lierne_error_text());
    if (run) {
        release_groups(run);
        drop_run(run);
    }
    lierne_set_error(message);
}

static bool dependent_busy(const lierne_dependent *dependent) {
    return ((const lierne_run *)dependent)->running;
}

static lierne_status destroy_dependent(lierne_dependent *dependent) {
    lierne_run *run = (lierne_run *)dependent;
    lierne_run_thread_destroy(run);
    run->context->guard = run->running ? NULL : run->context->guard;
    run->context->nplans -= lierne_context_remove_dependent(run->context, dependent);
    hold_plans(run, -1);
    lierne_status status = release_groups(run);
    drop_run(run);
    return status;
}

static lierne_status create_run(lierne_run **out, lierne_context *context,
                                const lierne_schedule *schedule, const lierne_run_spec *spec) {
    lierne_run *run = NULL;
    bool concurrent = false;
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? lierne_alloc(&run, 1, sizeof *run) : LIERNE_FAIL(LIERNE_ERR_INVALID, "out is NULL");
    if (status == LIERNE_OK) {
        run->context = context;
        status = prepare_run(run, context, schedule, spec, &concurrent);
    }
    int64_t call = lierne_context_begin_call(context, "committing", -1, -1);
    status = lierne_run_agree(run, context, status, concurrent);
    lierne_context_end_call(context, call, status);
    if (status != LIERNE_OK) {
        discard_run(run);
        return status;
    }
    run->dependent = (lierne_dependent){.busy = dependent_busy, .destroy = destroy_dependent};
    lierne_context_add_dependent(context, &run->dependent);
    context->nplans++;
    hold_plans(run, 1);
    *out = run;
    return LIERNE_OK;
}

lierne_status lierne_run_create(lierne_run **out, lierne_context *context,
                                const lierne_schedule *schedule, const lierne_run_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    return context ? create_run(out, context, schedule, spec)
                   : LIERNE_FAIL(LIERNE_ERR_INVALID, "context is NULL");
}

int lierne_run_get_ncreated(const lierne_run *run) {
    return run ? (int)run->created.count : -1;
}

lierne_status lierne_run_get_created(lierne_schedule_group *group, const lierne_run *run,
                                     int index) {
    LIERNE_PUBLIC_CALL();
    if (!run || index < 0 || (size_t)index >= run->created.count) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "run is NULL, or index %d is not of one of its %d groups", index,
                           lierne_run_get_ncreated(run));
    }
    return lierne_recorded_group_give(group, &run->created.at[index]);
}

lierne_status lierne_run_destroy(lierne_run *run) {
    LIERNE_PUBLIC_CALL();
    if (!run) {
        return LIERNE_OK;
    }
    if (run->running && run->context->dead == LIERNE_OK) {
        return LIERNE_FAIL(LIERNE_ERR_BUSY, "rank %d: the run was begun: call lierne_run_end first",
                           run->context->rank);
    }
    return destroy_dependent(&run->dependent);
}
