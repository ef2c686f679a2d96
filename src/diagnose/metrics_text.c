/* Metrics in the text format of Prometheus, labelled as NCCL's inspector labels its own: which
 * communicator (here a context), host, rank and process, and what was called.
 *
 * A series is a plan's name and a direction: numbers of calls are values and no labels, because
 * each label value is a series that is kept. */
#include "diagnose/hang_view.h"
#include "runtime/context/metrics.h"
#include "runtime/context/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* All that samples are made of. */
typedef struct metrics {
    lierne_text *text;
    const lierne_context *context;
    lierne_summary summary;
    lierne_hang_view view;
    double now;
    char host[64];
} metrics;

static void begin_family(const metrics *m, const char *name, const char *type, const char *help) {
    lierne_text_add(m->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_label(const metrics *m, const char *name, const char *value) {
    lierne_text_add(m->text, "%s=\"", name);
    for (const char *c = value; *c; c++) {
        lierne_text_add(m->text, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    lierne_text_add(m->text, "\"");
}

static void begin_sample(const metrics *m, const char *name) {
    const lierne_context *context = m->context;
    lierne_text_add(m->text, "%s{comm_id=\"0x%016llx\",", name,
                    (unsigned long long)m->view.dump.context);
    add_label(m, "comm_name", context->name ? context->name : "");
    lierne_text_add(m->text, ",");
    add_label(m, "hostname", m->host);
    lierne_text_add(m->text, ",rank=\"%d\",n_ranks=\"%d\",pid=\"%ld\"", context->rank,
                    context->members.count, (long)getpid());
}

static void end_sample(const metrics *m, double value) {
    lierne_text_add(m->text, "} %.17g\n", value);
}

static void add_plan(const metrics *m, const char *name, const char *direction) {
    lierne_text_add(m->text, ",");
    add_label(m, "plan", name);
    lierne_text_add(m->text, ",");
    add_label(m, "collective", direction);
}

/* A number of each row and direction, that is at an offset of lierne_summary_side. */
static void add_rows(const metrics *m, const char *name, size_t offset, double unit) {
    for (size_t i = 0; i < m->summary.count; i++) {
        const lierne_summary_row *row = &m->summary.at[i];
        for (int d = 0; d < 2; d++) {
            int64_t value;
            memcpy(&value, (const char *)&row->sides[d] + offset, sizeof value);
            begin_sample(m, name);
            add_plan(m, row->name, d ? "adjoint" : "forward");
            lierne_text_add(m->text, ",");
            add_label(m, "kind", row->kind);
            end_sample(m, unit * (double)value);
        }
    }
}

static void add_counters(const metrics *m) {
    static const struct {
        const char *name, *type, *help;
        size_t offset;
        double unit;
    } families[] = {{"lierne_calls_total", "counter", "Calls of plans that ended.",
                     offsetof(lierne_summary_side, calls), 1},
                    {"lierne_message_bytes_total", "counter",
                     "Bytes sent and received by these calls.",
                     offsetof(lierne_summary_side, bytes), 1},
                    {"lierne_call_seconds_total", "counter",
                     "Time from the begin of these calls to their end.",
                     offsetof(lierne_summary_side, total), 1e-9},
                    {"lierne_wait_seconds_total", "counter",
                     "Time of these calls in which the rank polled and nothing progressed.",
                     offsetof(lierne_summary_side, waiting), 1e-9},
                    {"lierne_longest_call_seconds", "gauge", "Time of the longest of these calls.",
                     offsetof(lierne_summary_side, longest), 1e-9}};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        begin_family(m, families[i].name, families[i].type, families[i].help);
        add_rows(m, families[i].name, families[i].offset, families[i].unit);
    }
}

static bool is_open(const lierne_hang_operation *o) {
    return !o->control && isinf(o->ended);
}

static const char *name_of(const metrics *m, const lierne_hang_operation *o) {
    const char *name = lierne_dump_find_name(&m->view.dump, o->plan);
    return name ? name : "";
}

/* The oldest of a plan's name and direction: the later ones are no series of their own. */
static bool is_oldest(const metrics *m, size_t index) {
    const lierne_hang_operation *o = &m->view.operations.at[index];
    for (size_t i = 0; i < index; i++) {
        const lierne_hang_operation *older = &m->view.operations.at[i];
        if (is_open(older) && older->what == o->what &&
            strcmp(name_of(m, older), name_of(m, o)) == 0) {
            return false;
        }
    }
    return true;
}

static void add_in_flight(const metrics *m) {
    const char *name = "lierne_in_flight_seconds";
    begin_family(m, name, "gauge", "Since when the oldest call that has not ended is in flight.");
    for (size_t i = 0; i < m->view.operations.count; i++) {
        const lierne_hang_operation *o = &m->view.operations.at[i];
        const lierne_entry entry = {.kind = LIERNE_RECORD_CALL, .what = o->what};
        if (is_open(o) && is_oldest(m, i)) {
            begin_sample(m, name);
            add_plan(m, name_of(m, o), lierne_record_name(&entry));
            end_sample(m, m->now - o->begun);
        }
    }
}

static bool waits_for(const lierne_hang_operation *o, int peer) {
    for (int k = 0; k < o->npeers && is_open(o); k++) {
        if (o->peers[k] == peer) {
            return true;
        }
    }
    return false;
}

static void add_peer(const metrics *m, size_t index, int peer) {
    const lierne_hang_operation *o = &m->view.operations.at[index];
    for (size_t i = 0; i < index; i++) {
        if (waits_for(&m->view.operations.at[i], peer)) {
            return;
        }
    }
    begin_sample(m, "lierne_waits_for_seconds");
    lierne_text_add(m->text, ",peer=\"%d\"", peer);
    end_sample(m, m->now - o->begun);
}

static void add_waits(const metrics *m) {
    begin_family(m, "lierne_waits_for_seconds", "gauge",
                 "Since when the oldest call is in flight that waits for messages of a peer.");
    for (size_t i = 0; i < m->view.operations.count; i++) {
        const lierne_hang_operation *o = &m->view.operations.at[i];
        for (int k = 0; k < o->npeers && is_open(o); k++) {
            add_peer(m, i, o->peers[k]);
        }
    }
}

static void add_state(const metrics *m) {
    begin_family(m, "lierne_context_dead", "gauge", "1: the context is dead, with this status.");
    begin_sample(m, "lierne_context_dead");
    lierne_text_add(m->text, ",");
    add_label(m, "status", lierne_status_name(m->context->dead));
    end_sample(m, m->context->dead != LIERNE_OK);
}

/* Without the lock of the control, which a wait that writes may hold: entries that threads of other
 * ranks are writing are left out. */
static lierne_status metrics_fill(metrics *m) {
    const lierne_recorder *r = &m->context->recorder;
    const lierne_entry present = {.time = lierne_recorder_now(r)};
    LIERNE_TRY(lierne_summary_fill(&m->summary, m->context));
    if (r->header) {
        lierne_recorder_set_clock(r);
        LIERNE_TRY(lierne_dump_parse(&m->view.dump, r->header, r->bytes, "the recorder"));
    }
    m->now = lierne_dump_time(&m->view.dump, &present);
    return lierne_hang_view_fill(&m->view);
}

void lierne_metrics_text(lierne_text *text, const lierne_context *context) {
    metrics m = {.text = text, .context = context};
    gethostname(m.host, sizeof m.host - 1);
    text->failed |= metrics_fill(&m) != LIERNE_OK;
    add_counters(&m);
    add_in_flight(&m);
    add_waits(&m);
    add_state(&m);
    lierne_mem_free(m.summary.at);
    lierne_mem_free(m.view.operations.at);
    lierne_dump_clear(&m.view.dump);
}
