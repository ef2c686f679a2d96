/* A dump as JSON: what people and converters read. Times are seconds of the calendar. */
#include "lierne/hang.h"
#include "runtime/recorder/dump.h"

#include <math.h>
#include <stdio.h>

static const char *const states[] = {"creating", "open", "dead", "destroyed"};

const char *lierne_record_kind_name(int kind) {
    static const char *const names[] = {
        "",          "call",          "stage",   "wait",      "end", "control", "control end",
        "operation", "operation end", "gave up", "peer ended"};
    return kind >= 1 && kind <= LIERNE_RECORD_KINDS ? names[kind] : names[0];
}

const char *lierne_record_name(const lierne_entry *record) {
    static const char *const calls[LIERNE_RECORD_CALLS] = {
        "forward", "adjoint", "coalesced forward", "coalesced adjoint", "", "round"};
    static const char *const controls[] = {"agreement", "sparse exchange", "maximum"};
    static const char *const operations[] = {"all_gather", "reduce_scatter", "all_reduce",
                                             "all_to_all", "broadcast",      "barrier",
                                             "send",       "recv",           "plan",
                                             "local"};
    int kind = record->kind, what = record->what;
    if (kind >= LIERNE_RECORD_CALL && kind <= LIERNE_RECORD_END) {
        return what < LIERNE_RECORD_CALLS ? calls[what] : "";
    }
    if (kind == LIERNE_RECORD_CONTROL || kind == LIERNE_RECORD_CONTROLLED) {
        return what < LIERNE_RECORD_CONTROLS ? controls[what] : "";
    }
    bool operation = kind == LIERNE_RECORD_OPERATION || kind == LIERNE_RECORD_OPERATED;
    return operation && what < (int)(sizeof operations / sizeof *operations) ? operations[what]
                                                                             : "";
}

void lierne_record_print(char text[LIERNE_CALL_TEXT], const lierne_dump *dump,
                         const lierne_entry *record) {
    bool call = record->kind <= LIERNE_RECORD_END;
    if (call && record->what == LIERNE_RECORD_ROUND) {
        snprintf(text, LIERNE_CALL_TEXT, "round %lld of window %d", (long long)record->number,
                 record->plan);
        return;
    }
    lierne_call_print(text, lierne_record_name(record), record->number, call ? record->plan : -1,
                      call ? lierne_dump_find_name(dump, record->plan) : NULL);
}

void lierne_dump_string(lierne_text *text, const char *string) {
    lierne_text_add(text, "\"");
    while (*string) {
        int n = lierne_utf8_length(string);
        unsigned char c = (unsigned char)*string;
        if (n == 0) {
            lierne_text_add(text, "\\ufffd");
        } else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7F) {
            lierne_text_add(text, "\\u%04x", c);
        } else {
            lierne_text_add(text, "%.*s", n, string);
        }
        string += n ? n : 1;
    }
    lierne_text_add(text, "\"");
}

static double sane(double seconds) {
    return isfinite(seconds) && fabs(seconds) < 1e15 ? seconds : 0;
}

/* Only what the kind has. */
static void write_record(lierne_text *text, const lierne_dump *dump, const lierne_entry *r) {
    int kind = r->kind;
    bool operation = kind == LIERNE_RECORD_OPERATION || kind == LIERNE_RECORD_OPERATED;
    bool ends = kind == LIERNE_RECORD_END || kind == LIERNE_RECORD_CONTROLLED ||
                kind == LIERNE_RECORD_GAVE_UP;
    lierne_text_add(text, "{\"event\":\"%s\",\"time\":%.9f", lierne_record_kind_name(kind),
                    sane(lierne_dump_time(dump, r)));
    if (kind <= LIERNE_RECORD_OPERATED) {
        lierne_text_add(text, ",\"what\":\"%s\",\"number\":%lld", lierne_record_name(r),
                        (long long)r->number);
    }
    if (kind <= LIERNE_RECORD_END || operation) {
        lierne_text_add(text, ",\"%s\":%d", operation ? "operation" : "plan", r->plan);
    }
    if (kind <= LIERNE_RECORD_WAIT) {
        lierne_text_add(text, ",\"%s\":%d,\"bytes\":%lld",
                        kind == LIERNE_RECORD_CALL ? "stages" : "stage", r->stage,
                        (long long)r->bytes);
    }
    if (kind == LIERNE_RECORD_CALL) {
        lierne_text_add(text, ",\"place\":%d", r->peer);
    }
    if (kind == LIERNE_RECORD_STAGE || kind == LIERNE_RECORD_WAIT || kind == LIERNE_RECORD_ENDED) {
        lierne_text_add(text, ",\"peer\":%d", r->peer);
    }
    if (ends) {
        lierne_text_add(text, ",\"status\":\"%s\"", lierne_status_name((int)r->bytes));
    }
    if (operation) {
        lierne_text_add(text, ",\"group\":%lld", (long long)r->bytes);
    }
    lierne_text_add(text, "}");
}

/* That of the context, where it has one, and those of plans by their numbers. */
static void write_names(lierne_text *text, const lierne_dump *dump) {
    const char *own = lierne_dump_find_name(dump, LIERNE_RECORDER_OWN_NAME), *between = "";
    lierne_text_add(text, ",\"name\":");
    lierne_dump_string(text, own ? own : "");
    lierne_text_add(text, ",\"plans\":{");
    for (size_t i = 0; i < dump->names.count; i++) {
        const lierne_recorded_name *name = &dump->names.at[i];
        if (name->plan != LIERNE_RECORDER_OWN_NAME) {
            lierne_text_add(text, "%s\"%d\":", between, name->plan);
            lierne_dump_string(text, name->name);
            between = ",";
        }
    }
    lierne_text_add(text, "}");
}

void lierne_dump_write(lierne_text *text, const lierne_dump *dump) {
    lierne_text_add(
        text, "{\"version\":%d,\"context\":\"%016llx\",\"rank\":%d,\"world\":%d,\"members\":[",
        LIERNE_RECORDER_VERSION, (unsigned long long)dump->context, dump->rank, dump->world);
    for (int i = 0; dump->ranks && i < dump->members; i++) {
        lierne_text_add(text, i ? ",%d" : "%d", dump->ranks[i]);
    }
    lierne_text_add(text, "],\"host\":");
    lierne_dump_string(text, dump->host);
    lierne_text_add(text, ",\"process\":%llu,\"timeout\":%.3f,\"created\":%.9f,\"alive\":%.9f",
                    (unsigned long long)dump->process, sane(dump->timeout), sane(dump->created),
                    sane(dump->alive));
    lierne_text_add(text, ",\"state\":\"%s\",\"status\":\"%s\",\"message\":", states[dump->state],
                    lierne_status_name(dump->status));
    lierne_dump_string(text, dump->message);
    write_names(text, dump);
    lierne_text_add(text, ",\"written\":%lld,\"entries\":[", (long long)dump->written);
    for (size_t i = 0; i < dump->records.count; i++) {
        lierne_text_add(text, i ? ",\n" : "\n");
        write_record(text, dump, &dump->records.at[i]);
    }
    lierne_text_add(text, "]}");
}

lierne_status lierne_recorder_file_get_json(char **text, const char *path) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(text);
    lierne_dump dump;
    lierne_text own = {0};
    LIERNE_TRY(lierne_check_set(text, "text"));
    LIERNE_TRY(lierne_check_set(path, "path"));
    lierne_status status = lierne_dump_read(&dump, path);
    if (status == LIERNE_OK) {
        lierne_dump_write(&own, &dump);
        status = lierne_text_take(&own, text);
    }
    lierne_dump_clear(&dump);
    return status;
}
