/* What the flight recorder has of executing calls, for trace viewers.
 *
 * The recorder knows stages, and the routes of plans know what each stage sends and receives. So
 * arrows cost the recorder nothing: they lead from the begin of a stage at its sender to the end of
 * the same stage at its receiver, and both ends compute the same number for them.
 *
 * Viewers take the bars of a track for a stack: each must lie in the one before it or after its
 * end. So times are whole nanoseconds, of which no two bars get different roundings, and calls of
 * one plan that are in flight together have tracks of their own. */
#include "lierne/hang.h"
#include "plan/object.h"
#include "runtime/context/context.h"
#include "runtime/recorder/dump.h"
#include "runtime/recorder/trace_file.h"

#include <stdio.h>

#define FIRST_EXTRA 1000000000 /* no plan has such a number */
#define MOST_PLANS  10000000   /* that have further tracks */
#define TRACKS      64         /* of a plan: requests in flight */

/* Where the calls of a plan are drawn. */
typedef struct track {
    int plan;
    int id;
    int64_t free; /* the end of its last call */
} track;

/* A call or a stage, from begin to end in nanoseconds since the job began. */
typedef struct bar {
    const lierne_plan *plan; /* for arrows; NULL: it is no longer there, or coalesced */
    const lierne_entry *entry;
    int track;
    int64_t begin;
    int64_t end;
} bar;

typedef struct trace {
    lierne_text *text;
    const lierne_dump *dump;
    const lierne_context *context;
    int64_t begin; /* time 0, on the monotonic clock */
    LIERNE_VEC(track) tracks;
} trace;

static void next_event(const trace *t) {
    lierne_text_add(t->text, "%s", t->text->length ? ",\n" : "");
}

static const lierne_plan *find_plan(const lierne_context *context, int number) {
    for (lierne_dependent *d = context->dependents; d; d = d->next) {
        const lierne_plan *plan = lierne_plan_of(d);
        if (plan && plan->decision == number) {
            return plan;
        }
    }
    return NULL;
}

static bool same_call(const lierne_entry *a, const lierne_entry *b) {
    return a->what == b->what && a->plan == b->plan && a->number == b->number;
}

/* The entry of the same call that ends a stage: the next stage, or the end of the call. */
static const lierne_entry *find_end(const lierne_dump *dump, size_t from, bool whole) {
    const lierne_entry *a = &dump->records.at[from];
    for (size_t i = from + 1; i < dump->records.count; i++) {
        const lierne_entry *b = &dump->records.at[i];
        bool ends = b->kind == LIERNE_RECORD_END || (!whole && b->kind == LIERNE_RECORD_STAGE);
        if (ends && same_call(a, b)) {
            return b;
        }
    }
    return NULL;
}

static int64_t time_of(const trace *t, const lierne_entry *e) {
    return lierne_dump_nanoseconds(t->dump, e) - t->begin;
}

/* "plan 3 'vision': bridge"; "plan 3 'vision': bridge (2)" where the plan has other tracks. */
static void add_track_name(const trace *t, int plan, const char *kind, int nth) {
    char name[LIERNE_MAX_NAME + 96], of[LIERNE_MAX_NAME + 4] = "", count[16] = "";
    const char *label = lierne_dump_find_name(t->dump, plan);
    if (label) {
        snprintf(of, sizeof of, " '%s'", label);
    }
    if (nth > 1) {
        snprintf(count, sizeof count, " (%d)", nth);
    }
    snprintf(name, sizeof name, "plan %d%s%s%s%s", plan, of, kind ? ": " : "", kind ? kind : "",
             count);
    lierne_dump_string(t->text, name);
}

static void name_track(const trace *t, const track *named, int nth) {
    const lierne_plan *plan = find_plan(t->context, named->plan);
    next_event(t);
    lierne_text_add(t->text,
                    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                    "\"args\":{\"name\":",
                    t->dump->rank, named->id);
    add_track_name(t, named->plan, plan ? plan->parts.kind : NULL, nth);
    lierne_text_add(t->text, "}}");
}

/* The first track of the plan that is free, or a new one. Errors: NO_MEMORY. */
static lierne_status find_track(track **found, trace *t, int plan, int64_t begin) {
    int nth = 1;
    for (size_t i = 0; i < t->tracks.count; i++) {
        *found = &t->tracks.at[i];
        if ((*found)->plan == plan && (*found)->free <= begin) {
            return LIERNE_OK;
        }
        nth += (*found)->plan == plan;
    }
    const track added = {plan, nth == 1 ? plan : FIRST_EXTRA + plan % MOST_PLANS * TRACKS + nth,
                         begin};
    LIERNE_TRY(LIERNE_VEC_PUSH(&t->tracks, added));
    *found = &t->tracks.at[t->tracks.count - 1];
    name_track(t, *found, nth);
    return LIERNE_OK;
}

static void add_time(const trace *t, const char *name, int64_t nanoseconds) {
    lierne_text_add(t->text, ",\"%s\":", name);
    lierne_text_microseconds(t->text, nanoseconds);
}

static void print_name(char name[LIERNE_CALL_TEXT], const lierne_dump *dump,
                       const lierne_entry *e) {
    if (e->kind == LIERNE_RECORD_STAGE) {
        snprintf(name, LIERNE_CALL_TEXT, "stage %d", e->stage);
    } else {
        lierne_record_print(name, dump, e);
    }
}

static void add_bar(const trace *t, const bar *b) {
    const lierne_entry *e = b->entry;
    char name[LIERNE_CALL_TEXT];
    print_name(name, t->dump, e);
    next_event(t);
    lierne_text_add(t->text, "{\"name\":");
    lierne_dump_string(t->text, name);
    lierne_text_add(t->text, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d",
                    lierne_record_kind_name(e->kind), t->dump->rank, b->track);
    add_time(t, "ts", b->begin);
    add_time(t, "dur", b->end - b->begin);
    lierne_text_add(t->text,
                    ",\"args\":{\"plan\":%d,\"what\":\"%s\",\"number\":%lld,\"bytes\":%lld}}",
                    e->plan, lierne_record_name(e), (long long)e->number, (long long)e->bytes);
}

/* Message k of those with a peer in a stage. A viewer does not count the end of a bar as part of
 * it. */
static void add_arrow(const trace *t, const bar *b, int from, int to, int k) {
    const lierne_entry *e = b->entry;
    const int64_t key[8] = {
        (int64_t)t->dump->context, e->plan, e->what, e->number, e->stage, from, to, k};
    bool sends = from == t->dump->rank;
    next_event(t);
    lierne_text_add(t->text,
                    "{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":%llu,"
                    "\"pid\":%d,\"tid\":%d",
                    sends ? "s" : "f\",\"bp\":\"e",
                    (unsigned long long)(lierne_hash(0, key, sizeof key) >> 12), t->dump->rank,
                    b->track);
    add_time(t, "ts", sends || b->end == b->begin ? b->begin : b->end - 1);
    lierne_text_add(t->text, "}");
}

static void add_arrows(const trace *t, const bar *b, const lierne_messages *messages, bool sends) {
    int own = t->dump->rank, k = 0;
    for (size_t i = 0; i < messages->count; i++) {
        int peer = messages->at[i].peer;
        k = i > 0 && messages->at[i - 1].peer == peer ? k + 1 : 0;
        add_arrow(t, b, sends ? own : peer, sends ? peer : own, k);
    }
}

static void add_stage(const trace *t, const bar *b) {
    const lierne_entry *e = b->entry;
    add_bar(t, b);
    if (b->plan && e->what <= LIERNE_RECORD_ADJOINT) {
        const lierne_route *route = b->plan->parts.side[e->what].route;
        if ((size_t)e->stage < route->stages.count) {
            add_arrows(t, b, &route->stages.at[e->stage].sends, true);
            add_arrows(t, b, &route->stages.at[e->stage].recvs, false);
        }
    }
}

/* The stages that have ended, of the call that an entry begins. */
static void add_stages(const trace *t, size_t from, int on) {
    const lierne_dump *dump = t->dump;
    const lierne_entry *call = &dump->records.at[from], *end = find_end(dump, from, true);
    const lierne_plan *plan = find_plan(t->context, call->plan);
    for (size_t i = from + 1; i < dump->records.count && &dump->records.at[i] != end; i++) {
        const lierne_entry *e = &dump->records.at[i];
        bool stage = e->kind == LIERNE_RECORD_STAGE && same_call(e, call);
        const lierne_entry *next = stage ? find_end(dump, i, false) : NULL;
        if (next) {
            add_stage(t, &(bar){plan, e, on, time_of(t, e), time_of(t, next)});
        }
    }
}

static lierne_status add_call(trace *t, size_t from) {
    const lierne_entry *e = &t->dump->records.at[from], *end = find_end(t->dump, from, true);
    int64_t begin = time_of(t, e);
    track *at;
    LIERNE_TRY(find_track(&at, t, e->plan, begin));
    at->free = end ? time_of(t, end) : INT64_MAX;
    if (end) {
        add_bar(t, &(bar){NULL, e, at->id, begin, at->free});
    }
    add_stages(t, from, at->id);
    return LIERNE_OK;
}

static lierne_status write_trace(lierne_text *text, const lierne_dump *dump,
                                 const lierne_context *context) {
    trace t = {.text = text, .dump = dump, .context = context, .begin = context->recorder.begin};
    lierne_status status = LIERNE_OK;
    for (size_t i = 0; i < dump->records.count && status == LIERNE_OK; i++) {
        if (dump->records.at[i].kind == LIERNE_RECORD_CALL) {
            status = add_call(&t, i);
        }
    }
    lierne_mem_free(t.tracks.at);
    return status;
}

lierne_status lierne_context_get_trace(char **text, const lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    return lierne_context_write(text, context, write_trace);
}

/* Calls that have ended since calls were appended last. */
static lierne_status append_calls(lierne_text *text, const void *self, int64_t begin) {
    const lierne_context *context = self;
    const lierne_recorder *r = &context->recorder;
    lierne_dump dump;
    lierne_recorder_set_clock(r);
    lierne_status status = lierne_dump_parse(&dump, r->header, r->bytes, "the recorder");
    trace t = {.text = text,
               .dump = &dump,
               .context = context,
               .begin = r->begin + (begin - r->created)};
    for (size_t i = 0; i < dump.records.count && status == LIERNE_OK; i++) {
        const lierne_entry *end =
            dump.records.at[i].kind == LIERNE_RECORD_CALL ? find_end(&dump, i, true) : NULL;
        status = end && end->index >= context->traced ? add_call(&t, i) : LIERNE_OK;
    }
    lierne_mem_free(t.tracks.at);
    lierne_dump_clear(&dump);
    return status;
}

/* A trace that cannot be written must not keep a plan from being freed. */
void lierne_context_trace_calls(lierne_context *context) {
    const lierne_recorder *r = &context->recorder;
    if (!context->traces || !r->header || context->dead != LIERNE_OK) {
        return;
    }
    if (lierne_trace_append(append_calls, context, "calls", context->rank, r->created) !=
        LIERNE_OK) {
        LIERNE_LOG(context, LIERNE_LOG_LEVEL_WARN, "%s", lierne_error_text());
    }
    context->traced = (int64_t)atomic_load(&r->header->written);
}
