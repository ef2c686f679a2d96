/* Summaries of counters, and their tables.
 *
 * Rows of ranks are matched by name and kind, not by place: a rank that has nothing to do in a plan
 * of a schedule has another row for it than the others. */
#include "runtime/context/summary.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_WIDTH 25

static int64_t nanoseconds(const lierne_context *context, int64_t ticks) {
    return (int64_t)(1e9 * lierne_recorder_seconds(&context->recorder, ticks));
}

static lierne_summary_side side_of(const lierne_context *context, const lierne_counter *c) {
    int64_t time = nanoseconds(context, c->ticks);
    return (lierne_summary_side){.calls = c->calls,
                                 .bytes = c->bytes,
                                 .longest = nanoseconds(context, c->longest),
                                 .least = time,
                                 .most = time,
                                 .total = time,
                                 .waiting = nanoseconds(context, c->waiting)};
}

lierne_status lierne_summary_fill(lierne_summary *summary, const lierne_context *context) {
    for (const lierne_counters *c = context->counters; c; c = c->next) {
        lierne_summary_row row = {.plans = c->plans, .ranks = 1};
        snprintf(row.name, sizeof row.name, "%s", c->name);
        snprintf(row.kind, sizeof row.kind, "%s", c->kind);
        for (int d = 0; d < 2; d++) {
            row.sides[d] = side_of(context, &c->sides[d]);
        }
        LIERNE_TRY(LIERNE_VEC_PUSH(summary, row));
    }
    return LIERNE_OK;
}

static int64_t greater(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void merge_side(lierne_summary_side *to, const lierne_summary_side *from) {
    to->calls = greater(to->calls, from->calls);
    to->bytes = greater(to->bytes, from->bytes);
    to->longest = greater(to->longest, from->longest);
    to->least = from->least < to->least ? from->least : to->least;
    to->most = greater(to->most, from->most);
    to->total += from->total;
    to->waiting += from->waiting;
}

static lierne_summary_row *find_row(const lierne_summary *summary, const lierne_summary_row *row) {
    for (size_t i = 0; i < summary->count; i++) {
        lierne_summary_row *own = &summary->at[i];
        if (strcmp(own->name, row->name) == 0 && strcmp(own->kind, row->kind) == 0) {
            return own;
        }
    }
    return NULL;
}

lierne_status lierne_summary_merge(lierne_summary *summary, const lierne_summary_row *rows,
                                   size_t n) {
    for (size_t i = 0; i < n; i++) {
        lierne_summary_row *own = find_row(summary, &rows[i]);
        if (!own) {
            LIERNE_TRY(LIERNE_VEC_PUSH(summary, rows[i]));
            continue;
        }
        own->plans = greater(own->plans, rows[i].plans);
        own->ranks += rows[i].ranks;
        merge_side(&own->sides[0], &rows[i].sides[0]);
        merge_side(&own->sides[1], &rows[i].sides[1]);
    }
    return LIERNE_OK;
}

double lierne_summary_age(const lierne_context *context) {
    return 1e-9 * (double)(lierne_recorder_nanoseconds() - context->recorder.begin);
}

/* A rank without a row spent no time in it. */
static void add_side(lierne_text *text, const char *name, const char *direction,
                     const lierne_summary_side *side, bool everywhere) {
    double least = everywhere ? 1e-9 * (double)side->least : 0, most = 1e-9 * (double)side->most;
    double share = side->total > 0 ? (double)side->waiting / (double)side->total : 0;
    char ratio[16] = "-";
    if (least > 0) {
        snprintf(ratio, sizeof ratio, "%.2f", most / least);
    }
    lierne_text_add(text, "%-*s %-7s %7lld %8.4g %8.3g %8.3g %5.5s %4.0f%%\n", NAME_WIDTH, name,
                    direction, (long long)side->calls, (double)side->bytes / (1 << 20), least, most,
                    ratio, 100 * share);
}

static void add_row(lierne_text *text, const lierne_summary_row *row, int ranks) {
    char name[sizeof row->name + sizeof row->kind + 4];
    snprintf(name, sizeof name, "%s%s(%s)", row->name, *row->name ? " " : "", row->kind);
    if (strlen(name) > NAME_WIDTH) {
        lierne_text_add(text, "%s\n", name);
        *name = '\0';
    }
    for (int d = 0; d < 2; d++) {
        if (row->sides[d].calls > 0) {
            add_side(text, name, d ? "adjoint" : "forward", &row->sides[d], row->ranks >= ranks);
            *name = '\0';
        }
    }
}

void lierne_summary_write(lierne_text *text, const lierne_summary *summary,
                          const lierne_context *context, int ranks) {
    const char *name = context->name;
    lierne_text_add(text, "lierne %s: ", lierne_version());
    if (ranks > 1) {
        lierne_text_add(text, "%d ranks", ranks);
    } else {
        lierne_text_add(text, "rank %d of %d", context->rank, context->members.world);
    }
    lierne_text_add(text, "%s%s%s, %.3f s%s%s\n", name ? " of '" : "", name ? name : "",
                    name ? "'" : "", lierne_summary_age(context), context->dead ? ", dead: " : "",
                    context->dead ? lierne_status_name(context->dead) : "");
    lierne_text_add(text, "%-*s %-7s %7s %8s %8s %8s %5s %5s\n", NAME_WIDTH, "plan", "", "calls",
                    "MiB", "min s", "max s", "ratio", "wait");
    for (size_t i = 0; i < summary->count; i++) {
        if (summary->at[i].sides[0].calls + summary->at[i].sides[1].calls > 0) {
            add_row(text, &summary->at[i], ranks);
        }
    }
}

void lierne_summary_end_own(const lierne_context *context) {
    lierne_summary summary = {0};
    lierne_text text = {0};
    if (context->summary && lierne_summary_fill(&summary, context) == LIERNE_OK) {
        lierne_summary_write(&text, &summary, context, 1);
        lierne_log_text(context, &text);
    }
    lierne_text_clear(&text);
    lierne_mem_free(summary.at);
}
