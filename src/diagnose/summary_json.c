/* This rank's summary, as a table and as JSON. */
#include "lierne/summary.h"
#include "runtime/context/summary.h"
#include "runtime/recorder/dump.h"

static void add_side(lierne_text *text, const char *name, const lierne_summary_side *side) {
    lierne_text_add(text,
                    ",\"%s\":{\"calls\":%lld,\"bytes\":%lld,\"seconds\":%.9f,\"longest\":%.9f,"
                    "\"waiting\":%.9f}",
                    name, (long long)side->calls, (long long)side->bytes,
                    1e-9 * (double)side->total, 1e-9 * (double)side->longest,
                    1e-9 * (double)side->waiting);
}

static void write_json(lierne_text *text, const lierne_summary *summary,
                       const lierne_context *context) {
    lierne_text_add(text, "{\"name\":");
    lierne_dump_string(text, context->name ? context->name : "");
    lierne_text_add(text, ",\"rank\":%d,\"world\":%d,\"seconds\":%.9f,\"plans\":[", context->rank,
                    context->members.world, lierne_summary_age(context));
    for (size_t i = 0; i < summary->count; i++) {
        const lierne_summary_row *row = &summary->at[i];
        lierne_text_add(text, "%s{\"name\":", i ? "," : "");
        lierne_dump_string(text, row->name);
        lierne_text_add(text, ",\"kind\":\"%s\",\"plans\":%lld", row->kind, (long long)row->plans);
        add_side(text, "forward", &row->sides[0]);
        add_side(text, "adjoint", &row->sides[1]);
        lierne_text_add(text, "}");
    }
    lierne_text_add(text, "]}");
}

static void write_table(lierne_text *text, const lierne_summary *summary,
                        const lierne_context *context) {
    lierne_summary_write(text, summary, context, 1);
}

static lierne_status get_summary(char **out, const lierne_context *context,
                                 void (*write)(lierne_text *, const lierne_summary *,
                                               const lierne_context *)) {
    lierne_summary summary = {0};
    lierne_text text = {0};
    LIERNE_NULL_OUTPUT(out);
    LIERNE_TRY(lierne_check_set(out, "text"));
    LIERNE_TRY(lierne_check_set(context, "context"));
    lierne_guard_enter(context->guard);
    lierne_status status = lierne_summary_fill(&summary, context);
    lierne_guard_leave(context->guard);
    if (status == LIERNE_OK) {
        write(&text, &summary, context);
        status = lierne_text_take(&text, out);
    }
    lierne_text_clear(&text);
    lierne_mem_free(summary.at);
    return status;
}

lierne_status lierne_context_get_summary(char **text, const lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    return get_summary(text, context, write_table);
}

lierne_status lierne_context_get_summary_json(char **text, const lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    return get_summary(text, context, write_json);
}
