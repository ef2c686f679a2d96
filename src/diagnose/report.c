/* What was found, in sentences. */
#include "diagnose/hang_view.h"
#include "runtime/control/processes.h"

#include <math.h>

#define MOST_RANKS 64 /* that are described one by one */
#define MOST_ENTRIES                                                                               \
    1024 /* of a rank that are searched for an operation: as many as a ring has                    \
          */

void lierne_hang_print_operation(lierne_text *text, const lierne_dump *dump,
                                 const lierne_hang_operation *o) {
    char name[LIERNE_CALL_TEXT];
    const lierne_entry entry = {.kind = o->control ? LIERNE_RECORD_CONTROL : LIERNE_RECORD_CALL,
                                .what = o->what,
                                .plan = o->plan,
                                .number = o->number};
    lierne_record_print(name, dump, &entry);
    lierne_text_add(text, "%s", name);
}

static const lierne_hang_view *view_of(const lierne_hang_context *c, int rank) {
    int index = lierne_hang_index(c, rank);
    return index < 0 ? NULL : c->at[index];
}

/* The dump may be any rank's: the plans of a context have the same names on all of them. */
static void add_awaited(lierne_text *text, const lierne_hang *hang, const lierne_dump *dump) {
    const lierne_hang_operation o = {.control = hang->what == LIERNE_HANG_WHAT_CONTROL,
                                     .what = hang->what == LIERNE_HANG_WHAT_CONTROL
                                                 ? 0
                                                 : (int)hang->what,
                                     .plan = hang->plan,
                                     .number = hang->number};
    if (hang->number < 0) {
        lierne_text_add(text, "the creation of the context");
    } else {
        lierne_hang_print_operation(text, dump, &o);
    }
}

static void add_culprit(lierne_text *text, const lierne_hang *hang, const lierne_dump *dump) {
    static const char *const said[] = {
        [LIERNE_HANG_ABSENT] = "left no dump: it did not begin to create the context; missing in ",
        [LIERNE_HANG_MISSING] = "did not begin ",
        [LIERNE_HANG_LATE] = "began after others had given up: ",
        [LIERNE_HANG_SILENT] = "is silent in or before ",
        [LIERNE_HANG_MISMATCH] = "is in another operation; others are in ",
        [LIERNE_HANG_ENDED] = "has ended, or destroyed the context, before the end of "};
    lierne_text_add(text, "rank %d ", hang->rank);
    if (hang->kind == LIERNE_HANG_FAILED) {
        lierne_text_add(text, "gave up by itself\n");
        return;
    }
    lierne_text_add(text, "%s", said[hang->kind]);
    add_awaited(text, hang, dump);
    lierne_text_add(text, "\nrank %d waited for %.3f s", hang->waiting, hang->seconds);
    if (hang->stage >= 0) {
        lierne_text_add(text, " in stage %d", hang->stage);
    }
    lierne_text_add(text, "\n");
}

/* The call at which it differs: its own, and another rank's. */
static void add_difference(lierne_text *text, const lierne_hang *hang,
                           const lierne_hang_context *c) {
    const int ranks[2] = {hang->rank, lierne_hang_other(c, hang->rank, hang->place)};
    lierne_text_add(text, "first difference:");
    for (int i = 0; i < 2; i++) {
        const lierne_hang_view *view = view_of(c, ranks[i]);
        const lierne_hang_operation *found = NULL;
        for (size_t k = 0; view && k < view->operations.count; k++) {
            const lierne_hang_operation *o = &view->operations.at[k];
            found = o->place == hang->place && o->begun <= c->at_time ? o : found;
        }
        lierne_text_add(text, i ? ", " : " ");
        if (found) {
            lierne_hang_print_operation(text, &view->dump, found);
        } else {
            lierne_text_add(text, "no call");
        }
        lierne_text_add(text, " on rank %d", ranks[i]);
    }
    lierne_text_add(text, "\n");
}

static void add_process(lierne_text *text, const lierne_hang_view *view) {
    static const char *const states[] = {
        [LIERNE_PROCESS_RUNS] = "runs",
        [LIERNE_PROCESS_STOPPED] = "is stopped",
        [LIERNE_PROCESS_ENDED] = "has ended",
    };
    const lierne_dump *d = &view->dump;
    lierne_process_state state = lierne_process_find(d->space, d->process, d->process_start);
    if (state != LIERNE_PROCESS_UNKNOWN) {
        lierne_text_add(text, "its process, %llu, %s now\n", (unsigned long long)d->process,
                        states[state]);
    }
    if (*d->message) {
        lierne_text_add(text, "it says %s: %s\n", lierne_status_name(d->status), d->message);
    }
}

static bool is_open(const lierne_hang_view *view, size_t index, double at) {
    const lierne_entry *r = &view->dump.records.at[index];
    bool open = r->kind == LIERNE_RECORD_OPERATION && lierne_dump_time(&view->dump, r) <= at;
    for (size_t i = index + 1; open && i < view->dump.records.count; i++) {
        const lierne_entry *end = &view->dump.records.at[i];
        open = end->kind != LIERNE_RECORD_OPERATED || end->plan != r->plan ||
               end->number != r->number || lierne_dump_time(&view->dump, end) > at;
    }
    return open;
}

/* The operation of a schedule that a rank is in since longest: it computes, or holds it. */
static void add_operation(lierne_text *text, const lierne_hang_view *view, double at) {
    size_t count = view->dump.records.count;
    for (size_t i = count > MOST_ENTRIES ? count - MOST_ENTRIES : 0; i < count; i++) {
        const lierne_entry *r = &view->dump.records.at[i];
        if (!is_open(view, i, at)) {
            continue;
        }
        lierne_text_add(text, "; in operation %d of a run, %s", r->plan, lierne_record_name(r));
        if (r->bytes > 0) {
            lierne_text_add(text, " of group %lld", (long long)r->bytes);
        }
        lierne_text_add(text, ", for %.3f s", at - lierne_dump_time(&view->dump, r));
        return;
    }
}

static void add_last(lierne_text *text, const lierne_hang_view *view,
                     const lierne_hang_context *c) {
    const lierne_hang_operation *last = NULL;
    for (size_t i = 0; i < view->operations.count; i++) {
        const lierne_hang_operation *o = &view->operations.at[i];
        last = o->ended <= c->at_time ? o : last;
    }
    lierne_text_add(text, "in no call");
    if (last) {
        lierne_text_add(text, "; ended %.3f s before: ", c->at_time - last->ended);
        lierne_hang_print_operation(text, &view->dump, last);
    }
    add_operation(text, view, c->at_time);
}

static void add_rank(lierne_text *text, const lierne_hang_context *c, int rank) {
    const lierne_hang_view *view = view_of(c, rank);
    lierne_text_add(text, "rank %d: ", rank);
    if (!view) {
        lierne_text_add(text, "no dump\n");
        return;
    }
    const lierne_hang_operation *o = lierne_hang_view_waits(view, c->at_time, true);
    if (!o) {
        add_last(text, view, c);
    } else {
        lierne_text_add(text, "in ");
        lierne_hang_print_operation(text, &view->dump, o);
        if (o->control && *view->dump.doing) {
            lierne_text_add(text, " of %s", view->dump.doing);
        } else if (!o->control) {
            lierne_text_add(text, ", stage %d of %d", o->stage, o->stages);
        }
        lierne_text_add(text, ", for %.3f s", c->at_time - o->begun);
    }
    for (int i = 0; o && i < o->npeers; i++) {
        lierne_text_add(text, i ? ", %d" : ", waits for rank %d", o->peers[i]);
    }
    lierne_text_add(text, "\n");
}

void lierne_hang_report(lierne_text *text, const lierne_hang *hang, const lierne_hang_context *c) {
    const lierne_hang_view *culprit = view_of(c, hang->rank);
    const lierne_dump *dump = &c->at[0]->dump;
    const char *own = lierne_dump_find_name(dump, LIERNE_RECORDER_OWN_NAME);
    add_culprit(text, hang, dump);
    if (own) {
        lierne_text_add(text, "in context '%s'\n", own);
    }
    if (hang->kind == LIERNE_HANG_MISMATCH && hang->place >= 0) {
        add_difference(text, hang, c);
    }
    if (culprit) {
        add_process(text, culprit);
    }
    lierne_text_add(text, c->gave_up ? "when the first rank gave up:\n" : "now:\n");
    for (int i = 0; i < dump->members && i < MOST_RANKS; i++) {
        add_rank(text, c, lierne_dump_member(dump, i));
    }
    if (dump->members > MOST_RANKS) {
        lierne_text_add(text, "and %d more ranks\n", dump->members - MOST_RANKS);
    }
}
