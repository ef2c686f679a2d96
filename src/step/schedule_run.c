/* Running a schedule.
 *
 * A queue is a place in the list of operations: the one whose turn it is. An operation begins when
 * its queue has come to it and its dependencies are complete, and only its end moves the queue on.
 * So the order of a queue lies here and not in the transport, which would move everything at once.
 * All queues are looked at in turn; a poll of any request progresses all of them. */
#include "step/schedule_run.h"
#include "plan/object.h"

#include <stdio.h>
#include <string.h>

static const lierne_recorded_operation *recorded(const lierne_run *run, int i) {
    return &run->schedule->operations.at[i];
}

static int count(const lierne_run *run) {
    return (int)run->schedule->operations.count;
}

/* The first operation of a queue from `from` on; count(run): none. */
static int find_next(const lierne_run *run, int queue, int from) {
    while (from < count(run) && lierne_run_queue(run, from) != queue) {
        from++;
    }
    return from;
}

static bool ready(const lierne_run *run, int i) {
    const lierne_recorded_operation *o = recorded(run, i);
    for (int k = 0; k < o->nafter; k++) {
        if (run->operations[o->after[k]].ended == 0) {
            return false;
        }
    }
    return true;
}

static void record(const lierne_run *run, int i, lierne_record_kind kind) {
    const lierne_recorded_operation *o = recorded(run, i);
    int64_t uid = o->group < 0 ? 0 : run->schedule->groups.at[o->group].uid;
    lierne_recorder_add(&run->context->recorder, &(lierne_entry){.kind = (int)kind,
                                                                 .what = (int)o->kind,
                                                                 .plan = i,
                                                                 .number = run->executions - 1,
                                                                 .peer = o->peer,
                                                                 .bytes = uid});
}

static void complete_operation(lierne_run *run, int queue, int i) {
    run->operations[i].ended = lierne_recorder_nanoseconds();
    record(run, i, LIERNE_RECORD_OPERATED);
    run->operations[i].request = NULL;
    run->next[queue] = find_next(run, queue, i + 1);
}

/* Does the part of an operation that is free. */
static lierne_status post(lierne_run *run, int queue, int i) {
    const lierne_recorded_operation *o = recorded(run, i);
    run->operations[i].resumed = lierne_recorder_nanoseconds();
    if (o->kind == LIERNE_OPERATION_LOCAL) {
        complete_operation(run, queue, i);
        return LIERNE_OK;
    }
    lierne_request **request = &run->operations[i].request;
    LIERNE_TRY(lierne_plan_begin_agreed(request, o->plan, o->direction, run->out[i], run->in[i]));
    run->operations[i].number = (int64_t)(*request)->number;
    return LIERNE_OK;
}

static lierne_status poll(lierne_run *run, int queue, int i, bool *moved) {
    int done = 0;
    LIERNE_TRY(lierne_request_test(&done, run->operations[i].request));
    if (done) {
        lierne_request *request = run->operations[i].request;
        *moved = true;
        complete_operation(run, queue, i);
        return lierne_request_end(request);
    }
    return LIERNE_OK;
}

static lierne_status advance_queue(lierne_run *run, int queue, bool *moved) {
    int i = run->next[queue];
    if (i == count(run)) {
        return LIERNE_OK;
    }
    lierne_run_operation *o = &run->operations[i];
    if (o->begun == 0 && ready(run, i)) {
        o->begun = lierne_recorder_nanoseconds();
        record(run, i, LIERNE_RECORD_OPERATION);
        *moved = true;
    }
    if (o->request) {
        return poll(run, queue, i, moved);
    }
    if (o->begun > 0 && o->free) {
        *moved = true;
        return post(run, queue, i);
    }
    return LIERNE_OK;
}

static bool finished(const lierne_run *run) {
    for (int q = 0; q < run->nqueues; q++) {
        if (run->next[q] < count(run)) {
            return false;
        }
    }
    return true;
}

bool lierne_run_is_open(const lierne_run *run) {
    return run->running && run->status == LIERNE_OK && !finished(run);
}

/* Only the operation whose turn it is can be posted. */
static bool any_posted(const lierne_run *run) {
    for (int q = 0; q < run->nqueues; q++) {
        if (run->next[q] < count(run) && run->operations[run->next[q]].request) {
            return true;
        }
    }
    return false;
}

/* "operation 0 (all_reduce of group 'g') is held" for each queue that is not at its end. */
static void list_waiting(const lierne_run *run, char *text, size_t size) {
    size_t used = 0;
    for (int q = 0; q < run->nqueues && used < size; q++) {
        int i = run->next[q];
        if (i == count(run)) {
            continue;
        }
        const lierne_recorded_operation *o = recorded(run, i);
        int behind = find_next(run, q, i + 1);
        char name[LIERNE_MAX_OPERATION_NAME + 4];
        lierne_recorded_operation_print_name(name, o);
        used += (size_t)snprintf(text + used, size - used, "%soperation %d%s (%s of group '%s') %s",
                                 used ? "; " : "", i, name, lierne_operation_name(o->kind),
                                 o->group < 0 ? "" : run->schedule->groups.at[o->group].name,
                                 run->operations[i].begun > 0 ? "is held: lierne_run_resume"
                                                              : "waits for others");
        if (behind < count(run) && used < size) {
            used += (size_t)snprintf(text + used, size - used,
                                     "; operation %d waits behind it in the same queue", behind);
        }
    }
}

/* A request that is in flight has a deadline of its own. */
static lierne_status check_deadline(lierne_run *run, bool moved) {
    char text[512] = "";
    double now = lierne_now();
    if (moved || any_posted(run) || run->deadline.timeout == 0) {
        lierne_deadline_start(&run->deadline, run->context->timeout, now);
        return LIERNE_OK;
    }
    if (!lierne_deadline_passed(&run->deadline, now)) {
        return LIERNE_OK;
    }
    list_waiting(run, text, sizeof text);
    return lierne_context_kill(run->context,
                               LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                                           "rank %d: the run has not progressed for %g s: %s",
                                           run->context->rank, run->context->timeout, text));
}

lierne_status lierne_run_advance(lierne_run *run, bool *moved) {
    *moved = false;
    LIERNE_TRY(run->status);
    lierne_status status = lierne_context_alive(run->context);
    for (int q = 0; q < run->nqueues && status == LIERNE_OK; q++) {
        status = advance_queue(run, q, moved);
    }
    if (status == LIERNE_OK && !finished(run)) {
        status = check_deadline(run, *moved);
    }
    if (status != LIERNE_OK) {
        run->status = status;
        snprintf(run->message, sizeof run->message, "%s", lierne_error_text());
    }
    return status;
}

static lierne_status check_running(const lierne_run *run) {
    if (!run || !run->running) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s",
                           run ? "the run was not begun: call lierne_run_begin" : "run is NULL");
    }
    return LIERNE_OK;
}

/* All buffers, before anything starts. */
static lierne_status check_buffers(const lierne_run *run, void *const *out, const void *const *in) {
    for (int i = 0; i < count(run); i++) {
        const lierne_recorded_operation *o = recorded(run, i);
        if (o->plan && lierne_plan_check_buffers(o->plan, (int)o->direction, out ? out[i] : NULL,
                                                 in ? in[i] : NULL, NULL) != LIERNE_OK) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: operation %d: %s", run->context->rank,
                               i, lierne_error_text());
        }
    }
    return LIERNE_OK;
}

static void reset(lierne_run *run, void *const *out, const void *const *in) {
    run->running = true;
    run->status = LIERNE_OK;
    run->deadline = (lierne_deadline){0};
    run->issued = lierne_recorder_nanoseconds();
    run->executions++;
    for (int i = 0; i < count(run); i++) {
        run->operations[i] = (lierne_run_operation){.free = !recorded(run, i)->held};
        run->out[i] = out ? out[i] : NULL;
        run->in[i] = in ? in[i] : NULL;
    }
    for (int q = 0; q < run->nqueues; q++) {
        run->next[q] = find_next(run, q, 0);
    }
}

static lierne_status begin_run(lierne_run *run, void *const *out, const void *const *in) {
    bool moved;
    LIERNE_TRY(lierne_context_alive(run->context));
    if (run->external) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the run is external: its operations are executed by others",
                           run->context->rank);
    }
    if (run->running) {
        return LIERNE_FAIL(LIERNE_ERR_BUSY, "rank %d: the run was begun: call lierne_run_end first",
                           run->context->rank);
    }
    LIERNE_TRY(check_buffers(run, out, in));
    reset(run, out, in);
    run->context->guard = lierne_run_guard(run);
    lierne_run_advance(run, &moved); /* its error is that of lierne_run_end */
    if (run->thread) {
        pthread_cond_broadcast(&run->thread->guard.changed);
    }
    return LIERNE_OK;
}

lierne_status lierne_run_begin(lierne_run *run, void *const *out, const void *const *in) {
    LIERNE_PUBLIC_CALL();
    if (!run) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "run is NULL");
    }
    lierne_guard_enter(lierne_run_guard(run));
    lierne_status status = begin_run(run, out, in);
    lierne_guard_leave(lierne_run_guard(run));
    return status;
}

static lierne_status resume(lierne_run *run, int operation) {
    LIERNE_TRY(check_running(run));
    if (operation < 0 || operation >= count(run) || !recorded(run, operation)->held) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: operation is %d, must be one that is held, "
                           "below %d",
                           run->context->rank, operation, count(run));
    }
    run->operations[operation].free = true;
    return LIERNE_OK;
}

lierne_status lierne_run_resume(lierne_run *run, int operation) {
    LIERNE_PUBLIC_CALL();
    lierne_guard_enter(lierne_run_guard(run));
    lierne_status status = resume(run, operation);
    lierne_guard_leave(lierne_run_guard(run));
    return status;
}

/* The error of the execution, again. */
static lierne_status report(const lierne_run *run) {
    if (run->status != LIERNE_OK) {
        lierne_set_error(run->message);
    }
    return run->status;
}

static lierne_status test(int *done, lierne_run *run) {
    bool moved;
    LIERNE_TRY(check_running(run));
    if (!run->thread) {
        lierne_run_advance(run, &moved);
    }
    *done = run->status == LIERNE_OK && finished(run);
    return report(run);
}

lierne_status lierne_run_test(int *done, lierne_run *run) {
    LIERNE_PUBLIC_CALL();
    if (!done) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "done is NULL");
    }
    *done = 0;
    lierne_guard_enter(lierne_run_guard(run));
    lierne_status status = test(done, run);
    lierne_guard_leave(lierne_run_guard(run));
    return status;
}

static void let_others_run(const lierne_run *run) {
    lierne_context_enter(run->context);
    lierne_context_idle(run->context);
    lierne_context_leave(run->context);
}

/* Ends the requests of an execution that failed; their errors are its own. */
static void end_requests(lierne_run *run) {
    for (int i = 0; i < count(run); i++) {
        if (run->operations[i].request) {
            lierne_request_end(run->operations[i].request);
            run->operations[i].request = NULL;
        }
    }
}

static void wait(lierne_run *run) {
    bool moved;
    while (lierne_run_is_open(run)) {
        if (run->thread) {
            lierne_guard_wait(lierne_run_guard(run));
        } else if (lierne_run_advance(run, &moved) == LIERNE_OK && !moved && !finished(run)) {
            let_others_run(run);
        }
    }
}

static lierne_status end_run(lierne_run *run) {
    LIERNE_TRY(check_running(run));
    wait(run);
    end_requests(run);
    run->running = false;
    run->context->guard = NULL;
    return report(run);
}

lierne_status lierne_run_end(lierne_run *run) {
    LIERNE_PUBLIC_CALL();
    lierne_guard_enter(lierne_run_guard(run));
    lierne_status status = end_run(run);
    lierne_guard_leave(lierne_run_guard(run));
    return status == LIERNE_OK ? lierne_run_append_trace(run) : status;
}
