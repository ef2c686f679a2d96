/* A schedule as JSON. Groups are named, so that a file can be read and written by hand. */
#include "step/schedule.h"

static void add_ints(lierne_text *text, const int *values, int n) {
    for (int i = 0; i < n; i++) {
        lierne_text_add(text, "%s%d", i ? "," : "[", values[i]);
    }
    lierne_text_add(text, n > 0 ? "]" : "[]");
}

/* Names of groups are any characters; a JSON string escapes some. */
static void add_string(lierne_text *text, const char *string) {
    lierne_text_add(text, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\' || *c < 0x20) {
            lierne_text_add(text, "\\u%04x", *c);
        } else {
            lierne_text_add(text, "%c", *c);
        }
    }
    lierne_text_add(text, "\"");
}

static void add_group(lierne_text *text, const lierne_recorded_group *g) {
    lierne_text_add(text, "{\"name\":");
    add_string(text, g->name);
    lierne_text_add(text, ",\"uid\":%lld,\"priority\":\"%s\",\"ranks\":", (long long)g->uid,
                    g->priority == LIERNE_PRIORITY_HIGH ? "high" : "normal");
    add_ints(text, g->ranks, g->n);
    if (g->source) {
        lierne_text_add(text, ",\"source\":%lld,\"purpose\":\"%s\"", (long long)g->source,
                        g->purpose);
    }
    lierne_text_add(text, "}");
}

static void add_operation(lierne_text *text, const lierne_schedule *s,
                          const lierne_recorded_operation *o) {
    lierne_text_add(text, "{\"kind\":\"%s\",\"tag\":\"%s\"", lierne_operation_name(o->kind),
                    o->tag);
    if (o->dtype != LIERNE_DTYPE_NONE) {
        lierne_text_add(text, ",\"dtype\":\"%s\"", lierne_dtype_name(o->dtype));
    }
    lierne_text_add(text, ",\"count\":%lld", (long long)o->count);
    if (o->group >= 0) {
        lierne_text_add(text, ",\"group\":");
        add_string(text, s->groups.at[o->group].name);
    }
    if (*o->name) {
        lierne_text_add(text, ",\"name\":");
        add_string(text, o->name);
    }
    if (o->nafter > 0) {
        lierne_text_add(text, ",\"after\":");
        add_ints(text, o->after, o->nafter);
    }
    if (o->kind == LIERNE_OPERATION_BROADCAST) {
        lierne_text_add(text, ",\"root\":%d", o->root);
    }
    if (o->kind == LIERNE_OPERATION_SEND || o->kind == LIERNE_OPERATION_RECV) {
        lierne_text_add(text, ",\"peer\":%d", o->peer);
    }
    if (o->number >= 0) {
        lierne_text_add(text, ",\"plan\":%d,\"direction\":%d", o->number, (int)o->direction);
    }
    lierne_text_add(text, "%s}", o->held ? ",\"held\":true" : "");
}

static void add_schedule(lierne_text *text, const lierne_schedule *s) {
    lierne_text_add(text, "{\"rank\":%d,\"groups\":[", s->rank);
    for (size_t i = 0; i < s->groups.count; i++) {
        lierne_text_add(text, i ? ",\n " : "\n ");
        add_group(text, &s->groups.at[i]);
    }
    lierne_text_add(text, "],\n\"operations\":[");
    for (size_t i = 0; i < s->operations.count; i++) {
        lierne_text_add(text, i ? ",\n " : "\n ");
        add_operation(text, s, &s->operations.at[i]);
    }
    lierne_text_add(text, "]}");
}

lierne_status lierne_schedule_serialize(char **text, const lierne_schedule *schedule) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(text);
    lierne_text own = {0};
    if (!text) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "text is NULL");
    }
    LIERNE_TRY(lierne_schedule_check_frozen(schedule));
    add_schedule(&own, schedule);
    return lierne_text_take(&own, text);
}
