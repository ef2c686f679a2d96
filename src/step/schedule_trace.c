/* The last execution of a run: its events one by one, and in the Chrome trace format.
 *
 * An operation is two bars of its queue: what it waited while it was held, and what it did. Arrows
 * need one number at both ends of a message: a hash of its group, ends and place among its like.
 * Times are whole nanoseconds, so that bars of a queue which follow each other do not overlap. */
#include "plan/object.h"
#include "runtime/recorder/trace_file.h"
#include "step/schedule_run.h"

#include <string.h>

/* Bytes that this rank sends to others in an operation. */
static int64_t sent_bytes(const lierne_recorded_operation *o) {
    lierne_report report = {.size = sizeof report};
    bool known = o->plan && lierne_plan_get_report(&report, o->plan, o->direction) == LIERNE_OK;
    return known ? report.sent_bytes : 0;
}

static int64_t uid_of(const lierne_run *run, const lierne_recorded_operation *o) {
    return o->group < 0 ? 0 : run->schedule->groups.at[o->group].uid;
}

lierne_status lierne_run_get_event(lierne_run_event *event, const lierne_run *run, int operation) {
    LIERNE_PUBLIC_CALL();
    if (!run || operation < 0 || (size_t)operation >= run->schedule->operations.count) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "run is NULL, or operation %d is not one of it",
                           operation);
    }
    const lierne_recorded_operation *o = &run->schedule->operations.at[operation];
    lierne_guard_enter(lierne_run_guard(run));
    const lierne_run_operation now = run->operations[operation], *r = &now;
    lierne_guard_leave(lierne_run_guard(run));
    const lierne_run_event full = {.size = sizeof full,
                                   .queue = lierne_run_queue(run, operation),
                                   .uid = uid_of(run, o),
                                   .bytes = sent_bytes(o),
                                   .issued = (double)run->issued * 1e-9,
                                   .begun = (double)r->begun * 1e-9,
                                   .resumed = (double)r->resumed * 1e-9,
                                   .ended = (double)r->ended * 1e-9};
    return lierne_spec_give(event, &full, sizeof full, "event");
}

/* The number of the message among those of its group and ends. */
static uint64_t message_id(const lierne_run *run, int operation) {
    const lierne_schedule *s = run->schedule;
    const lierne_recorded_operation *o = &s->operations.at[operation];
    bool sends = o->kind == LIERNE_OPERATION_SEND;
    int64_t key[4] = {uid_of(run, o), sends ? s->rank : o->peer, sends ? o->peer : s->rank, 0};
    for (int i = 0; i < operation; i++) {
        const lierne_recorded_operation *p = &s->operations.at[i];
        key[3] += p->kind == o->kind && p->peer == o->peer &&
                  lierne_run_queue(run, i) == lierne_run_queue(run, operation);
    }
    return lierne_hash(0, key, sizeof key) >> 12; /* JSON numbers have 53 bits */
}

/* Names may be any characters: only plain ones are shown. */
static void add_plain(lierne_text *text, const char *name) {
    for (; *name; name++) {
        bool plain = *name >= ' ' && *name < 0x7F && *name != '"' && *name != '\\';
        lierne_text_add(text, "%c", plain ? *name : '?');
    }
}

/* What is written, and time 0 on the monotonic clock. */
typedef struct trace {
    lierne_text *text;
    const lierne_run *run;
    int64_t begin;
} trace;

static void add_time(const trace *t, const char *name, int64_t nanoseconds) {
    lierne_text_add(t->text, ",\"%s\":", name);
    lierne_text_microseconds(t->text, nanoseconds);
}

/* Which call of its plan it is, as the flight recorder has it. */
static void add_call(const trace *t, int i) {
    const lierne_recorded_operation *o = &t->run->schedule->operations.at[i];
    if (o->plan) {
        lierne_text_add(t->text, "\"plan\":%d,\"what\":\"%s\",\"number\":%lld,",
                        lierne_plan_get_number(o->plan), lierne_direction_names[o->direction],
                        (long long)t->run->operations[i].number);
    }
}

static void add_bar(const trace *t, int i, const char *suffix, int64_t from, int64_t to) {
    const lierne_run *run = t->run;
    const lierne_recorded_operation *o = &run->schedule->operations.at[i];
    lierne_text_add(t->text,
                    "%s{\"name\":\"%s%s%s%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d",
                    t->text->length ? ",\n" : "", lierne_operation_name(o->kind),
                    *o->tag ? " " : "", o->tag, suffix, *o->tag ? o->tag : "none",
                    run->schedule->rank, lierne_run_queue(run, i));
    add_time(t, "ts", from - t->begin);
    add_time(t, "dur", to - from);
    lierne_text_add(t->text, ",\"args\":{\"operation\":%d,", i);
    add_call(t, i);
    lierne_text_add(t->text, "\"uid\":%lld,\"bytes\":%lld,\"name\":\"", (long long)uid_of(run, o),
                    (long long)sent_bytes(o));
    add_plain(t->text, o->name);
    lierne_text_add(t->text, "\"}}");
}

/* A viewer does not count the end of a bar as part of it. */
static void add_arrow(const trace *t, int i) {
    const lierne_run *run = t->run;
    const lierne_run_operation *r = &run->operations[i];
    bool sends = run->schedule->operations.at[i].kind == LIERNE_OPERATION_SEND;
    bool begins = sends || r->ended == r->resumed;
    lierne_text_add(t->text,
                    ",\n{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":%llu,"
                    "\"pid\":%d,\"tid\":%d",
                    sends ? "s" : "f\",\"bp\":\"e", (unsigned long long)message_id(run, i),
                    run->schedule->rank, lierne_run_queue(run, i));
    add_time(t, "ts", (begins ? r->resumed : r->ended - 1) - t->begin);
    lierne_text_add(t->text, "}");
}

/* Names the queues, as "1 ep@4". */
static void add_queue_name(const trace *t, int q) {
    const lierne_schedule *s = t->run->schedule;
    const char *name = q + 1 < t->run->nqueues ? s->groups.at[q].name : "local";
    lierne_text_add(t->text,
                    "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                    "\"args\":{\"name\":\"%d ",
                    t->text->length ? ",\n" : "", s->rank, q, q);
    add_plain(t->text, name);
    lierne_text_add(t->text, "\"}}");
}

static void add_operation(const trace *t, int i) {
    const lierne_run_operation *r = &t->run->operations[i];
    const lierne_recorded_operation *o = &t->run->schedule->operations.at[i];
    if (r->ended == 0) {
        return;
    }
    bool local = o->kind == LIERNE_OPERATION_LOCAL;
    if (o->held && !local) {
        add_bar(t, i, " (held)", r->begun, r->resumed);
    }
    add_bar(t, i, "", local ? r->begun : r->resumed, r->ended);
    if (o->kind == LIERNE_OPERATION_SEND || o->kind == LIERNE_OPERATION_RECV) {
        add_arrow(t, i);
    }
}

void lierne_run_write_trace(lierne_text *text, const lierne_run *run, int64_t begin) {
    const lierne_recorder *r = &run->context->recorder;
    const trace t = {text, run, r->begin + (begin - r->created)};
    for (int q = 0; q < run->nqueues; q++) {
        add_queue_name(&t, q);
    }
    for (int i = 0; i < (int)run->schedule->operations.count; i++) {
        add_operation(&t, i);
    }
}

static lierne_status write_run(lierne_text *text, const void *run, int64_t begin) {
    lierne_run_write_trace(text, run, begin);
    return LIERNE_OK;
}

lierne_status lierne_run_append_trace(const lierne_run *run) {
    return lierne_trace_append(write_run, run, "runs", run->context->rank,
                               run->context->recorder.created);
}

lierne_status lierne_run_get_trace(char **text, const lierne_run *run) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(text);
    lierne_text own = {0};
    if (!text || !run) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", text ? "run" : "text");
    }
    if (run->running) {
        return LIERNE_FAIL(LIERNE_ERR_BUSY, "rank %d: the run has not ended", run->context->rank);
    }
    lierne_run_write_trace(&own, run, run->context->recorder.created);
    return lierne_text_take(&own, text);
}
