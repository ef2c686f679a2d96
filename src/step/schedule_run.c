/* Running a schedule.
 *
 * A queue is a place in the list of operations: the one whose turn it is. An operation begins when
 * its queue has come to it and its dependencies are complete, and only its end moves the queue on.
 * So the order of a queue lies here and not in the transport, which would move everything at once.
 * Queues are looked at in the order of their operations; a poll of any request progresses all of
 * them.
 *
 * On the memory of a device a queue is a stream (run_streams.c), which keeps its order by itself:
 * the queue goes on when an operation is enqueued. What streams have passed is looked at. One look
 * asks for all begins and then for all ends, and all that it finds gets one time: so an operation
 * is said to begin before the end of another one only if it did. */
#include "step/schedule_run.h"
#include "plan/object.h"
#include "step/run_streams.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* Whether the caller computes in it, and so must have what comes before. */
static bool is_computed(const lierne_run *run, int i) {
    return recorded(run, i)->kind == LIERNE_OPERATION_LOCAL && recorded(run, i)->held;
}

static bool follows(const lierne_run *run, int i, int earlier) {
    const lierne_run_operation *o = &run->operations[earlier];
    return is_computed(run, i) ? o->ended > 0 : o->queued;
}

/* The queue has come to it. */
static bool ready(const lierne_run *run, int i) {
    const lierne_recorded_operation *o = recorded(run, i);
    bool follows_all = true;
    for (int k = 0; k < o->nafter; k++) {
        follows_all &= follows(run, i, o->after[k]);
    }
    for (int k = 0; run->streams && is_computed(run, i) && k < i; k++) {
        follows_all &= lierne_run_queue(run, k) != lierne_run_queue(run, i) || follows(run, i, k);
    }
    return follows_all;
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

static void complete_operation(lierne_run *run, int i, int64_t now) {
    lierne_run_operation *o = &run->operations[i];
    o->begun = o->begun > 0 ? o->begun : now;
    o->resumed = o->resumed > o->begun ? o->resumed : o->begun;
    o->ended = now;
    record(run, i, LIERNE_RECORD_OPERATED);
}

/* The queue goes on behind an operation. */
static lierne_status pass_on(lierne_run *run, int i) {
    int queue = lierne_run_queue(run, i);
    run->operations[i].request = NULL;
    run->operations[i].queued = true;
    run->next[queue] = find_next(run, queue, i + 1);
    if (run->streams) {
        run->unpassed++;
        return lierne_run_streams_leave(run, i);
    }
    complete_operation(run, i, lierne_recorder_nanoseconds());
    return LIERNE_OK;
}

/* Does the part of an operation that is free. */
static lierne_status post_operation(lierne_run *run, int i) {
    const lierne_recorded_operation *o = recorded(run, i);
    run->operations[i].resumed = lierne_recorder_nanoseconds();
    if (o->kind == LIERNE_OPERATION_LOCAL) {
        return pass_on(run, i);
    }
    lierne_request **request = &run->operations[i].request;
    LIERNE_TRY(lierne_plan_begin_agreed(request, run->plans[i], o->direction, run->out[i],
                                        run->in[i], lierne_run_stream(run, i)));
    run->operations[i].number = (int64_t)(*request)->number;
    return LIERNE_OK;
}

static lierne_status poll(lierne_run *run, int i, bool *moved) {
    int done = 0;
    lierne_request *request = run->operations[i].request;
    LIERNE_TRY(lierne_request_test(&done, request));
    if (done) {
        *moved = true;
        lierne_status status = pass_on(run, i);
        lierne_status ended = lierne_request_end(request);
        return status == LIERNE_OK ? ended : status;
    }
    return LIERNE_OK;
}

static lierne_status enter(lierne_run *run, int i) {
    run->operations[i].turn = true;
    run->operations[i].begun = run->streams ? 0 : lierne_recorder_nanoseconds();
    record(run, i, LIERNE_RECORD_OPERATION);
    return lierne_run_streams_enter(run, i);
}

/* Does what can be done now of an operation whose turn it is. */
static lierne_status advance_operation(lierne_run *run, int i, bool *moved) {
    lierne_run_operation *o = &run->operations[i];
    if (!o->turn && ready(run, i)) {
        *moved = true;
        LIERNE_TRY(enter(run, i));
    }
    if (o->turn && o->free && !o->request) {
        *moved = true;
        LIERNE_TRY(post_operation(run, i));
    }
    return o->request ? poll(run, i, moved) : LIERNE_OK;
}

/* The first operation from `from` on whose turn it is; count(run): none. */
static int find_turn(const lierne_run *run, int from) {
    int first = count(run);
    for (int q = 0; q < run->nqueues; q++) {
        first = run->next[q] >= from && run->next[q] < first ? run->next[q] : first;
    }
    return first;
}

static lierne_status advance_all(lierne_run *run, bool *moved) {
    for (int i = find_turn(run, 0); i < count(run); i = find_turn(run, i + 1)) {
        LIERNE_TRY(advance_operation(run, i, moved));
    }
    return LIERNE_OK;
}

/* Completes what streams have passed. The last operations are asked first: an operation that a
 * stream passes meanwhile must not end before one that it comes after. */
static lierne_status complete_passed(lierne_run *run, int64_t now, bool *moved) {
    for (int i = count(run) - 1; run->unpassed > 0 && i >= 0; i--) {
        lierne_run_operation *o = &run->operations[i];
        if (o->queued && o->ended == 0) {
            LIERNE_TRY(lierne_run_streams_look(&o->passed, run, i, true));
        }
    }
    for (int i = 0; run->unpassed > 0 && i < count(run); i++) {
        lierne_run_operation *o = &run->operations[i];
        if (o->queued && o->ended == 0 && o->passed) {
            /* A stream also passes what a transport gave up there. */
            LIERNE_TRY(lierne_context_look(run->context));
            *moved = true;
            run->unpassed--;
            complete_operation(run, i, now);
        }
    }
    return LIERNE_OK;
}

/* What streams have passed since the last look. */
static lierne_status look(lierne_run *run, bool *moved) {
    int64_t now = lierne_recorder_nanoseconds();
    bool passed = false;
    for (int i = 0; run->streams && i < count(run); i++) {
        lierne_run_operation *o = &run->operations[i];
        if (o->turn && o->begun == 0) {
            LIERNE_TRY(lierne_run_streams_look(&passed, run, i, false));
            o->begun = passed ? now : 0;
            *moved |= passed;
        }
    }
    return complete_passed(run, now, moved);
}

static bool finished(const lierne_run *run) {
    return find_turn(run, 0) == count(run) && run->unpassed == 0;
}

bool lierne_run_is_open(const lierne_run *run) {
    return run->running && run->status == LIERNE_OK && !finished(run);
}

/* Whether some operation has begun that has a deadline of its own, as all that communicate. */
static bool any_posted(const lierne_run *run) {
    bool any = false;
    for (int q = 0; q < run->nqueues; q++) {
        any |= run->next[q] < count(run) && run->operations[run->next[q]].request;
    }
    for (int i = 0; run->unpassed > 0 && i < count(run); i++) {
        const lierne_run_operation *o = &run->operations[i];
        any |= o->queued && o->begun > 0 && o->ended == 0;
    }
    return any;
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
                                 run->operations[i].turn ? "is held: lierne_run_resume"
                                                         : "waits for others");
        if (behind < count(run) && used < size) {
            used += (size_t)snprintf(text + used, size - used,
                                     "; operation %d waits behind it in the same queue", behind);
        }
    }
}

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
                                           "rank %d: the run has not progressed for %g s: %s%s",
                                           run->context->rank, run->context->timeout, text,
                                           run->unpassed > 0 ? "; its streams wait for spec->stream"
                                                             : ""));
}

lierne_status lierne_run_advance(lierne_run *run, bool *moved) {
    *moved = false;
    LIERNE_TRY(run->status);
    lierne_status status = lierne_context_alive(run->context);
    status = status == LIERNE_OK ? advance_all(run, moved) : status;
    status = status == LIERNE_OK ? look(run, moved) : status;
    if (status == LIERNE_OK && !finished(run)) {
        status = check_deadline(run, *moved);
    }
    if (status != LIERNE_OK) {
        run->status = status;
        snprintf(run->message, sizeof run->message, "%s", lierne_error_text());
    }
    return status;
}

/* Enqueues all that is not held, on streams; elsewhere looks once. Its error is that of
 * lierne_run_end. */
static void advance_far(lierne_run *run) {
    bool moved = true;
    while (moved && lierne_run_advance(run, &moved) == LIERNE_OK) {
        moved &= run->streams != NULL;
    }
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
        if (o->plan &&
            lierne_plan_check_buffers(run->plans[i], (int)o->direction, out ? out[i] : NULL,
                                      in ? in[i] : NULL, lierne_run_stream(run, i)) != LIERNE_OK) {
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
    run->unpassed = 0;
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
    LIERNE_TRY(lierne_run_streams_begin(run));
    reset(run, out, in);
    run->context->guard = lierne_run_guard(run);
    advance_far(run);
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
    LIERNE_TRY(lierne_run_streams_resume(run, operation));
    run->operations[operation].free = true;
    if (run->streams) {
        advance_far(run);
    }
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
    const struct timespec nap = {.tv_nsec = 20000};
    if (run->streams) {
        nanosleep(&nap, NULL); /* nothing wakes this rank when a stream is there */
        return;
    }
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
