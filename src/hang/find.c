/* Who is waited for.
 *
 * A rank that waits names the ranks whose messages are missing. The search begins at the rank that
 * gave up first, or that has waited longest, and goes from a rank to one that it waits for, until
 * it comes to a rank that does not wait itself: it has no dump, was never there, is silent, or
 * ended. If it comes to a rank for the second time, the ranks wait for each other in different
 * operations, and the first call in which one differs from the others tells which rank it was. */
#include "control/processes.h"
#include "hang/view.h"

#include <math.h>

#define LEAST_WAIT   0.1  /* seconds; shorter ones are no hang, where no rank has given up */
#define LEAST_SILENT 0.1  /* a rank that waits gives a sign every 20 ms, on a busy machine fewer */
#define SILENT_PART  0.25 /* of the wait for it */

/* What a rank that is waited for does, the surest cause first. */
typedef enum cause {
    ABSENT,
    ENDED,
    LATE,
    MISSING,
    SILENT,
    ELSEWHERE, /* it waits in another operation */
    WAITS,     /* it waits in the same one */
    DONE
} cause;

/* A rank, and the operation in which it waits. */
typedef struct position {
    int member;
    const lierne_hang_operation *operation;
} position;

static bool is_wait_in_vain(int status) {
    return status == LIERNE_TIMEOUT || status == LIERNE_PEER_FAILED || status == LIERNE_TRANSPORT;
}

static double waited(const lierne_hang_context *c, const lierne_hang_operation *o) {
    return c->at_time - o->begun;
}

/* Seconds in which a rank gave no sign of life: until the hang, or after it, where it noticed late
 * that the others had given up. */
static double silence(const lierne_hang_context *c, const lierne_hang_view *view) {
    if (view->dump.alive <= c->at_time) {
        return c->at_time - view->dump.alive;
    }
    return isinf(view->gave_up) ? 0 : view->gave_up - c->at_time;
}

static bool is_silent(const lierne_hang_context *c, const lierne_hang_view *view, double wait) {
    double least = wait * SILENT_PART > LEAST_SILENT ? wait * SILENT_PART : LEAST_SILENT;
    return silence(c, view) > least;
}

static bool has_ended(const lierne_hang_context *c, const lierne_hang_view *view) {
    const lierne_dump *d = &view->dump;
    if (d->state == LIERNE_RECORDER_DESTROYED) {
        return d->alive <= c->at_time;
    }
    return !c->gave_up && d->state != LIERNE_RECORDER_DEAD &&
           lierne_process_find(d->space, d->process, d->process_start) == LIERNE_PROCESS_ENDED;
}

/* Why a member may not have sent what an operation waits for. */
static cause find_cause(const lierne_hang_context *c, int member, const lierne_hang_operation *o) {
    const lierne_hang_view *view = c->at[member];
    if (!view) {
        return ABSENT;
    }
    const lierne_hang_operation *same = lierne_hang_view_find(view, o);
    const lierne_hang_operation *under_way = lierne_hang_view_waits(view, c->at_time, true);
    const lierne_hang_operation *waits = lierne_hang_view_waits(view, c->at_time, false);
    if (has_ended(c, view)) {
        return ENDED;
    }
    if (same && same->ended <= c->at_time) {
        return DONE;
    }
    if (under_way && (under_way == same || waits) && is_silent(c, view, waited(c, o))) {
        return SILENT;
    }
    if (same && same->begun <= c->at_time) {
        return waits ? WAITS : SILENT;
    }
    if (waits) {
        return ELSEWHERE;
    }
    return same ? LATE : MISSING;
}

/* Whether a member is one that an operation waits for. */
static bool is_awaited(const lierne_hang_context *c, int member, const lierne_hang_operation *o) {
    if (o->control) {
        const lierne_hang_view *view = c->at[member];
        const lierne_hang_operation *same = view ? lierne_hang_view_find(view, o) : NULL;
        return !same || same->begun > c->at_time || is_silent(c, view, waited(c, o));
    }
    int rank = lierne_dump_member(&c->some->dump, member);
    bool found = false;
    for (int i = 0; i < o->npeers; i++) {
        found |= o->peers[i] == rank;
    }
    return found;
}

/* The member with the surest cause among those that a position waits for; -1: it waits for none. */
static int find_awaited(const lierne_hang_context *c, position from, cause *why) {
    int best = -1;
    for (int m = 0; m < c->n; m++) {
        if (m != from.member && is_awaited(c, m, from.operation)) {
            cause own = find_cause(c, m, from.operation);
            if (best < 0 || own < *why) {
                best = m;
                *why = own;
            }
        }
    }
    return best;
}

/* The rank that gave up first, else the one that has waited longest. */
static position find_start(const lierne_hang_context *c) {
    position start = {-1, NULL};
    double first = INFINITY;
    for (int m = 0; m < c->n; m++) {
        const lierne_hang_view *view = c->at[m];
        const lierne_hang_operation *o =
            view ? lierne_hang_view_waits(view, c->at_time, false) : NULL;
        double since = !view ? INFINITY : c->gave_up ? view->gave_up : o ? o->begun : INFINITY;
        if (since < first) {
            first = since;
            start = (position){m, o};
        }
    }
    bool shortly = start.operation && waited(c, start.operation) < LEAST_WAIT;
    return c->gave_up || !shortly ? start : (position){-1, NULL};
}

static lierne_hang_kind kind_of(cause why) {
    static const lierne_hang_kind kinds[] = {
        [ABSENT] = LIERNE_HANG_ABSENT, [ENDED] = LIERNE_HANG_ENDED,
        [LATE] = LIERNE_HANG_LATE,     [MISSING] = LIERNE_HANG_MISSING,
        [SILENT] = LIERNE_HANG_SILENT, [ELSEWHERE] = LIERNE_HANG_MISMATCH,
        [WAITS] = LIERNE_HANG_SILENT,  [DONE] = LIERNE_HANG_SILENT};
    return kinds[why];
}

static void name(lierne_hang *hang, const lierne_hang_context *c, position from,
                 lierne_hang_kind kind, int rank) {
    const lierne_hang_operation *o = from.operation;
    hang->kind = kind;
    hang->rank = rank;
    hang->waiting = lierne_dump_member(&c->some->dump, from.member);
    hang->what = (lierne_hang_what)(o->control ? (int)LIERNE_HANG_CONTROL : o->what);
    hang->plan = o->control ? -1 : o->plan;
    hang->number = o->number;
    hang->stage = o->control ? -1 : o->stage;
    hang->seconds = waited(c, o);
}

/* The ranks wait for each other. If they all do so in the same operation, the one that has been
 * silent for longest does not really wait. */
static void name_circle(lierne_hang *hang, const lierne_hang_context *c, position from) {
    int rank, silent = from.member;
    int64_t call;
    if (lierne_hang_first_difference(&call, &rank, c)) {
        name(hang, c, from, LIERNE_HANG_MISMATCH, rank);
        hang->call = call;
        return;
    }
    for (int m = 0; m < c->n; m++) {
        if (c->at[m] && silence(c, c->at[m]) > silence(c, c->at[silent])) {
            silent = m;
        }
    }
    name(hang, c, from, LIERNE_HANG_SILENT, lierne_dump_member(&c->some->dump, silent));
}

static void follow(lierne_hang *hang, const lierne_hang_context *c, position from, bool *seen) {
    for (;;) {
        cause why = DONE;
        int next = find_awaited(c, from, &why);
        seen[from.member] = true;
        if (next < 0 || why == DONE || (why >= ELSEWHERE && seen[next])) {
            name_circle(hang, c, from);
            return;
        }
        if (why < ELSEWHERE) {
            name(hang, c, from, kind_of(why), lierne_dump_member(&c->some->dump, next));
            return;
        }
        from = (position){next, lierne_hang_view_waits(c->at[next], c->at_time, false)};
    }
}

/* A rank that gave up for a reason of its own, or in no call: its message says why. */
static void name_failed(lierne_hang *hang, const lierne_hang_context *c, int member) {
    hang->kind = LIERNE_HANG_FAILED;
    hang->rank = lierne_dump_member(&c->some->dump, member);
}

lierne_status lierne_hang_judge(lierne_hang *hang, double *waits, const lierne_hang_context *c) {
    bool *seen;
    position start = find_start(c);
    *waits = INFINITY;
    if (start.member < 0) {
        return LIERNE_OK;
    }
    const lierne_hang_view *view = c->at[start.member];
    *waits = start.operation ? start.operation->begun : c->at_time;
    int ended = lierne_dump_find(&c->some->dump, view->ended_peer);
    if (c->gave_up && (!is_wait_in_vain(view->dump.status) || !start.operation)) {
        name_failed(hang, c, start.member);
        return LIERNE_OK;
    }
    if (ended >= 0) {
        name(hang, c, start, LIERNE_HANG_ENDED, view->ended_peer);
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&seen, (size_t)c->n, sizeof *seen));
    follow(hang, c, start, seen);
    lierne_mem_free(seen);
    return LIERNE_OK;
}
