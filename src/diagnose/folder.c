/* lierne_hang_find: reads the dumps of a folder, sorts them by context, and judges each context. */
#include "diagnose/hang_view.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".lierne"

static bool is_dump(const char *name) {
    size_t length = strlen(name), suffix = sizeof SUFFIX - 1;
    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static lierne_status read_one(lierne_hang_views *views, lierne_hang *hang, const char *path) {
    lierne_hang_view view = {0};
    lierne_status status = lierne_dump_read(&view.dump, path);
    if (status == LIERNE_OK) {
        status = lierne_hang_view_fill(&view);
    }
    if (status == LIERNE_OK) {
        status = LIERNE_VEC_PUSH(views, view);
    }
    if (status != LIERNE_OK) {
        lierne_dump_clear(&view.dump);
        lierne_mem_free(view.operations.at);
        hang->ndamaged += status != LIERNE_ERR_NO_MEMORY;
        return status == LIERNE_ERR_NO_MEMORY ? status : LIERNE_OK;
    }
    hang->ndumps++;
    return LIERNE_OK;
}

static lierne_status read_folder(lierne_hang_views *views, lierne_hang *hang, const char *folder) {
    char path[4096];
    DIR *directory = opendir(folder);
    lierne_status status = LIERNE_OK;
    if (!directory) {
        return LIERNE_FAIL(LIERNE_ERR_IO, "%s: %s", folder, strerror(errno));
    }
    for (struct dirent *entry; status == LIERNE_OK && (entry = readdir(directory));) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (is_dump(entry->d_name) && n > 0 && (size_t)n < sizeof path) {
            status = read_one(views, hang, path);
        }
    }
    closedir(directory);
    if (status == LIERNE_OK && hang->ndumps == 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s has no dumps (%d damaged files): set LIERNE_DUMP_DIR to it", folder,
                           hang->ndamaged);
    }
    return status;
}

/* By context, then rank; of one rank the latest last. */
static int by_context(const void *a, const void *b) {
    const lierne_dump *x = &((const lierne_hang_view *)a)->dump;
    const lierne_dump *y = &((const lierne_hang_view *)b)->dump;
    if (x->context != y->context) {
        return x->context < y->context ? -1 : 1;
    }
    if (x->members != y->members) {
        return x->members < y->members ? -1 : 1;
    }
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return (x->created > y->created) - (x->created < y->created);
}

static bool one_context(const lierne_hang_view *a, const lierne_hang_view *b) {
    size_t bytes = (size_t)a->dump.members * sizeof *a->dump.ranks;
    return a->dump.context == b->dump.context && a->dump.members == b->dump.members &&
           a->dump.world == b->dump.world && !a->dump.ranks == !b->dump.ranks &&
           (!a->dump.ranks || memcmp(a->dump.ranks, b->dump.ranks, bytes) == 0);
}

static void find_time(lierne_hang_context *c) {
    double last = 0, first = INFINITY;
    for (int i = 0; i < c->n; i++) {
        last = c->at[i]->dump.alive > last ? c->at[i]->dump.alive : last;
        first = c->at[i]->gave_up < first ? c->at[i]->gave_up : first;
    }
    c->gave_up = !isinf(first);
    c->at_time = c->gave_up ? first : last;
}

/* Judges the context of n views, and adds a report if a rank is to blame. */
static lierne_status judge(lierne_hang *hang, double *waits, lierne_text *text,
                           const lierne_hang_view *views, size_t n) {
    lierne_hang_context c = {0};
    LIERNE_TRY(lierne_alloc(&c.at, n, sizeof *c.at));
    for (size_t i = 0; i < n; i++) {
        bool again = c.n > 0 && c.at[c.n - 1]->dump.rank == views[i].dump.rank;
        c.at[again ? c.n - 1 : c.n++] = &views[i];
    }
    find_time(&c);
    lierne_status status = lierne_hang_judge(hang, waits, &c);
    if (status == LIERNE_OK && hang->kind != LIERNE_HANG_NONE) {
        lierne_hang_report(text, hang, &c);
    }
    lierne_mem_free(c.at);
    return status;
}

/* The dumps of the context that is reported, and how many others have a culprit. */
typedef struct reported {
    const lierne_hang_view *views;
    size_t n;
    int others;
} reported;

/* The context whose wait began first counts: others wait because of it. */
static lierne_status judge_all(lierne_hang *hang, lierne_text *text, reported *best,
                               const lierne_hang_views *views) {
    double earliest = INFINITY;
    const lierne_hang none = *hang;
    lierne_status status = LIERNE_OK;
    for (size_t i = 0, n; i < views->count && status == LIERNE_OK; i += n) {
        lierne_hang found = none;
        lierne_text own = {0};
        double waits;
        for (n = 1; i + n < views->count && one_context(&views->at[i], &views->at[i + n]); n++) {
        }
        status = judge(&found, &waits, &own, &views->at[i], n);
        best->others += found.kind != LIERNE_HANG_NONE && hang->kind != LIERNE_HANG_NONE;
        if (found.kind != LIERNE_HANG_NONE && (!best->views || waits < earliest)) {
            lierne_text keep = *text;
            *text = own;
            own = keep;
            *hang = found;
            earliest = waits;
            best->views = &views->at[i];
            best->n = n;
        }
        lierne_text_clear(&own);
    }
    return status;
}

static bool has_process(const reported *r, const lierne_dump *dump) {
    for (size_t i = 0; i < r->n; i++) {
        const lierne_dump *own = &r->views[i].dump;
        if (own->process == dump->process && own->process_start == dump->process_start &&
            own->space == dump->space) {
            return true;
        }
    }
    return false;
}

/* Whether other processes made a context after all signs of life of the reported one. */
static bool has_later_job(const reported *r, const lierne_hang_views *views) {
    double last = 0;
    bool later = false;
    for (size_t i = 0; i < r->n; i++) {
        last = r->views[i].dump.alive > last ? r->views[i].dump.alive : last;
    }
    for (size_t i = 0; i < views->count && !later; i++) {
        later = views->at[i].dump.created > last && !has_process(r, &views->at[i].dump);
    }
    return later;
}

/* What else lies in the folder, so that no job's dumps are taken for those of another. */
static void add_others(lierne_text *text, const reported *r, const lierne_hang_views *views) {
    if (r->others > 0) {
        lierne_text_add(text, "%d other %s, since later\n", r->others,
                        r->others > 1 ? "contexts hang" : "context hangs");
    }
    if (r->views && has_later_job(r, views)) {
        lierne_text_add(text, "the folder also has dumps of a later job, or of processes that "
                              "began later: give each job a folder of its own\n");
    }
}

lierne_status lierne_hang_find(lierne_hang *hang, char **text, const char *folder) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(text);
    lierne_hang found = {.size = sizeof found,
                         .rank = -1,
                         .waiting = -1,
                         .plan = -1,
                         .number = -1,
                         .stage = -1,
                         .place = -1};
    lierne_hang_views views = {0};
    reported best = {0};
    lierne_text own = {0};
    LIERNE_TRY(lierne_check_set(text, "text"));
    LIERNE_TRY(lierne_check_set(folder, "folder"));
    LIERNE_TRY(lierne_spec_give(hang, &found, sizeof found, "hang"));
    lierne_status status = read_folder(&views, &found, folder);
    if (status == LIERNE_OK) {
        qsort(views.at, views.count, sizeof *views.at, by_context);
        status = judge_all(&found, &own, &best, &views);
        add_others(&own, &best, &views);
    }
    lierne_hang_views_clear(&views);
    if (status == LIERNE_OK && found.kind == LIERNE_HANG_NONE) {
        lierne_text_add(&own, "no rank hangs: %d dumps\n", found.ndumps);
    }
    if (status != LIERNE_OK) {
        lierne_text_clear(&own);
        return status;
    }
    LIERNE_TRY(lierne_text_take(&own, text));
    return lierne_spec_give(hang, &found, sizeof found, "hang");
}
