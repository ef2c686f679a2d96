/* What the flight recorder has of executing calls, for trace viewers.
 *
 * The recorder knows stages, and the routes of plans know what each stage sends and receives. So
 * arrows cost the recorder nothing: they lead from the begin of a stage at its sender to the end of
 * the same stage at its receiver, and both ends compute the same number for them. */
#include "lierne/hang.h"
#include "plan/object.h"
#include "runtime/context/context.h"
#include "runtime/recorder/dump.h"

/* A stage of a call. */
typedef struct bar {
    const lierne_plan *plan; /* NULL: it is no longer there, or coalesced */
    const lierne_entry *entry;
    double begin; /* seconds of the calendar */
    double end;
} bar;

typedef struct trace {
    lierne_text *text;
    const lierne_dump *dump;
    const lierne_context *context;
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

/* The entry of the same call that ends a stage: the next stage, or the end of the call. */
static const lierne_entry *find_end(const lierne_dump *dump, size_t from, bool whole) {
    const lierne_entry *a = &dump->records.at[from];
    for (size_t i = from + 1; i < dump->records.count; i++) {
        const lierne_entry *b = &dump->records.at[i];
        bool ends = b->kind == LIERNE_RECORD_END || (!whole && b->kind == LIERNE_RECORD_STAGE);
        if (ends && b->what == a->what && b->plan == a->plan && b->number == a->number) {
            return b;
        }
    }
    return NULL;
}

static void add_bar(const trace *t, const bar *b, const char *name) {
    const lierne_entry *e = b->entry;
    bool stage = e->kind == LIERNE_RECORD_STAGE;
    next_event(t);
    lierne_text_add(t->text,
                    "{\"name\":\"%s %lld\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,"
                    "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"what\":\"%s\",\"number\":%lld,"
                    "\"bytes\":%lld}}",
                    name, (long long)(stage ? e->stage : e->number), stage ? "stage" : "call",
                    t->dump->rank, e->plan, b->begin * 1e6, (b->end - b->begin) * 1e6,
                    lierne_record_name(e), (long long)e->number, (long long)e->bytes);
}

/* Message k of those with a peer in a stage. */
static void add_arrow(const trace *t, const bar *b, int from, int to, int k) {
    const lierne_entry *e = b->entry;
    const int64_t key[8] = {
        (int64_t)t->dump->context, e->plan, e->what, e->number, e->stage, from, to, k};
    bool sends = from == t->dump->rank;
    next_event(t);
    lierne_text_add(t->text,
                    "{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":%llu,"
                    "\"pid\":%d,\"tid\":%d,\"ts\":%.3f}",
                    sends ? "s" : "f\",\"bp\":\"e",
                    (unsigned long long)(lierne_hash(0, key, sizeof key) >> 12), t->dump->rank,
                    e->plan, (sends ? b->begin : b->end) * 1e6);
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
    add_bar(t, b, "stage");
    if (b->plan && e->what <= LIERNE_RECORD_ADJOINT) {
        const lierne_route *route = b->plan->parts.side[e->what].route;
        if ((size_t)e->stage < route->stages.count) {
            add_arrows(t, b, &route->stages.at[e->stage].sends, true);
            add_arrows(t, b, &route->stages.at[e->stage].recvs, false);
        }
    }
}

static void add_entry(const trace *t, size_t i) {
    const lierne_entry *e = &t->dump->records.at[i];
    bool stage = e->kind == LIERNE_RECORD_STAGE;
    const lierne_entry *end = stage || e->kind == LIERNE_RECORD_CALL
                                  ? find_end(t->dump, i, e->kind == LIERNE_RECORD_CALL)
                                  : NULL;
    if (!end) {
        return; /* another kind, or not ended */
    }
    const bar b = {find_plan(t->context, e->plan), e, lierne_dump_time(t->dump, e),
                   lierne_dump_time(t->dump, end)};
    if (stage) {
        add_stage(t, &b);
    } else {
        add_bar(t, &b, lierne_record_name(e));
    }
}

/* "plan 3: bridge", for each plan that is there. */
static void add_names(const trace *t) {
    for (lierne_dependent *d = t->context->dependents; d; d = d->next) {
        const lierne_plan *plan = lierne_plan_of(d);
        if (plan) {
            next_event(t);
            lierne_text_add(t->text,
                            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                            "\"args\":{\"name\":\"plan %d: %s\"}}",
                            t->dump->rank, plan->decision, plan->decision, plan->parts.kind);
        }
    }
}

static lierne_status write_trace(lierne_text *text, const lierne_dump *dump,
                                 const lierne_context *context) {
    const trace t = {text, dump, context};
    add_names(&t);
    for (size_t i = 0; i < dump->records.count; i++) {
        add_entry(&t, i);
    }
    return LIERNE_OK;
}

lierne_status lierne_context_get_trace(char **text, const lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    return lierne_context_write(text, context, write_trace);
}
