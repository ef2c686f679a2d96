/* A context as JSON: its recorder, and one line for monitors. What is in flight is read from the
 * recorder as a dump of another process would be, so that both say the same. */
#include "diagnose/hang_view.h"
#include "runtime/context/context.h"

#include <math.h>

/* Threads that progress the context write entries with its lock. */
static lierne_status read_recorder(lierne_dump *dump, const lierne_context *context) {
    const lierne_recorder *r = &context->recorder;
    *dump = (lierne_dump){0};
    if (!r->header) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "rank %d: there was no memory for the recorder",
                           context->rank);
    }
    lierne_recorder_set_clock(r);
    lierne_context_enter(context);
    lierne_status status = lierne_dump_parse(dump, r->header, r->bytes, "the recorder");
    lierne_context_leave(context);
    return status;
}

lierne_status lierne_context_write(char **text, const lierne_context *context,
                                   lierne_context_writer *write) {
    lierne_dump dump;
    lierne_text own = {0};
    LIERNE_NULL_OUTPUT(text);
    LIERNE_TRY(lierne_check_set(text, "text"));
    LIERNE_TRY(lierne_check_set(context, "context"));
    lierne_guard *guard = context->guard;
    lierne_guard_enter(guard);
    lierne_status status = read_recorder(&dump, context);
    status = status == LIERNE_OK ? write(&own, &dump, context) : status;
    lierne_guard_leave(guard);
    if (status == LIERNE_OK) {
        status = lierne_text_take(&own, text);
    }
    lierne_text_clear(&own);
    lierne_dump_clear(&dump);
    return status;
}

static lierne_status write_recorder(lierne_text *text, const lierne_dump *dump,
                                    const lierne_context *context) {
    (void)context;
    lierne_dump_write(text, dump);
    return LIERNE_OK;
}

lierne_status lierne_context_get_recorder_json(char **text, const lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    return lierne_context_write(text, context, write_recorder);
}

static void add_in_flight(lierne_text *text, const lierne_hang_view *view, double now) {
    bool first = true;
    for (size_t i = 0; i < view->operations.count; i++) {
        const lierne_hang_operation *o = &view->operations.at[i];
        const lierne_entry entry = {.kind = LIERNE_RECORD_CALL, .what = o->what};
        if (o->control || !isinf(o->ended)) {
            continue;
        }
        const char *name = lierne_dump_find_name(&view->dump, o->plan);
        lierne_text_add(text, "%s{\"what\":\"%s\",\"plan\":%d,\"name\":", first ? "" : ",",
                        lierne_record_name(&entry), o->plan);
        lierne_dump_string(text, name ? name : "");
        lierne_text_add(text,
                        ",\"number\":%lld,\"stage\":%d,\"stages\":%d,\"seconds\":%.6f,"
                        "\"waits_for\":[",
                        (long long)o->number, o->stage, o->stages, now - o->begun);
        for (int k = 0; k < o->npeers; k++) {
            lierne_text_add(text, k ? ",%d" : "%d", o->peers[k]);
        }
        lierne_text_add(text, "]}");
        first = false;
    }
}

static void add_status(lierne_text *text, const lierne_context *context,
                       const lierne_hang_view *view) {
    char names[160];
    const lierne_recorder *r = &context->recorder;
    const lierne_entry present = {.time = lierne_recorder_now(r)};
    double now = lierne_dump_time(&view->dump, &present);
    bool dead = context->dead != LIERNE_OK;
    lierne_context_list_transports(names, sizeof names, context);
    lierne_text_add(text,
                    "{\"rank\":%d,\"world\":%d,\"members\":%d,\"state\":\"%s\",\"status\":\"%s\","
                    "\"message\":",
                    context->rank, context->members.world, context->members.count,
                    dead ? "dead" : "open", lierne_status_name(context->dead));
    lierne_dump_string(text, dead ? context->dead_message : "");
    lierne_text_add(text, ",\"name\":");
    lierne_dump_string(text, context->name ? context->name : "");
    lierne_text_add(text, ",\"transports\":\"%s\",\"timeout\":%.3f,\"calls\":%lld,\"plans\":%zu,",
                    names, context->timeout, (long long)r->calls, context->nplans);
    lierne_text_add(text, "\"groups\":%zu,\"silent\":%.6f,\"in_flight\":[", context->groups.count,
                    now > view->dump.alive ? now - view->dump.alive : 0);
    add_in_flight(text, view, now);
    lierne_text_add(text, "]}");
}

static lierne_status write_status(lierne_text *text, const lierne_dump *dump,
                                  const lierne_context *context) {
    lierne_hang_view view = {.dump = *dump};
    lierne_status status = lierne_hang_view_fill(&view);
    if (status == LIERNE_OK) {
        add_status(text, context, &view);
    }
    lierne_mem_free(view.operations.at);
    return status;
}

lierne_status lierne_context_get_status_json(char **text, const lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    return lierne_context_write(text, context, write_status);
}
