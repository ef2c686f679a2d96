/* Who is waited for.
 *
 * A rank that waits names the ranks whose messages are missing. The search begins at the rank that
 * gave up first, or that has waited longest, and goes from a rank to one that it waits for, until
 * it comes to a rank that does not wait itself: it has no dump, was never there, is silent, or
 * ended. If it comes to a rank for the second time, the ranks wait for each other in different
 * operations, and the first call in which one differs from the others tells which rank it was. */
#include "diagnose/hang_view.h"
#include "runtime/control/processes.h"

#include <math.h>

#define MOST_SECONDS 1e12 /* what a damaged file may say is cut off there */
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

/* A rank that left a dump, and the operation in which it waits. */
typedef struct position {
    int index;
    const lierne_hang_operation *operation;
} position;

static bool is_wait_in_vain(int status) {
    return status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED ||
           status == LIERNE_ERR_TRANSPORT;
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

/* Why a rank may not have sent what an operation waits for. */
static cause find_cause(const lierne_hang_context *c, int rank, const lierne_hang_operation *o) {
    int index = lierne_hang_index(c, rank);
    if (index < 0) {
        return ABSENT;
    }
    const lierne_hang_view *view = c->at[index];
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

/* The surest cause so far, and the rank that it is about; -1: none. */
typedef struct awaited {
    int rank;
    cause why;
} awaited;

static void consider(awaited *best, const lierne_hang_context *c, int rank, position from) {
    cause own = find_cause(c, rank, from.operation);
    if (best->rank < 0 || own < best->why) {
        *best = (awaited){rank, own};
    }
}

/* The first member without a dump, or -1. */
static int find_absent(const lierne_hang_context *c) {
    const lierne_dump *dump = &c->at[0]->dump;
    for (int i = 0; i < dump->members; i++) {
        int rank = lierne_dump_member(dump, i);
        if (i >= c->n || lierne_hang_rank(c, i) != rank) {
            return rank;
        }
    }
    return -1;
}

/* A call of the control waits for those that have not begun it, or are silent in it. */
static awaited find_awaited_by_control(const lierne_hang_context *c, position from) {
    const lierne_hang_operation *o = from.operation;
    awaited best = {find_absent(c), ABSENT};
    if (best.rank >= 0) {
        return best;
    }
    for (int i = 0; i < c->n; i++) {
        const lierne_hang_operation *same = lierne_hang_view_find(c->at[i], o);
        bool missing = !same || same->begun > c->at_time;
        if (i != from.index && (missing || is_silent(c, c->at[i], waited(c, o)))) {
            consider(&best, c, lierne_hang_rank(c, i), from);
        }
    }
    return best;
}

/* The rank with the surest cause among those that a position waits for. */
static awaited find_awaited(const lierne_hang_context *c, position from) {
    const lierne_hang_operation *o = from.operation;
    awaited best = {-1, DONE};
    if (o->control) {
        return find_awaited_by_control(c, from);
    }
    for (int i = 0; i < o->npeers; i++) {
        if (lierne_dump_find(&c->at[0]->dump, o->peers[i]) >= 0 &&
            o->peers[i] != lierne_hang_rank(c, from.index)) {
            consider(&best, c, o->peers[i], from);
        }
    }
    return best;
}

/* The rank that gave up first, else the one that has waited longest. */
static position find_start(const lierne_hang_context *c) {
    position start = {-1, NULL};
    double first = INFINITY;
    for (int i = 0; i < c->n; i++) {
        const lierne_hang_operation *o = lierne_hang_view_waits(c->at[i], c->at_time, false);
        double since = c->gave_up ? c->at[i]->gave_up : o ? o->begun : INFINITY;
        if (since < first) {
            first = since;
            start = (position){i, o};
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
    hang->waiting = lierne_hang_rank(c, from.index);
    hang->what = (lierne_hang_what)(o->control ? (int)LIERNE_HANG_WHAT_CONTROL : o->what);
    hang->plan = o->control ? -1 : o->plan;
    hang->number = o->number;
    hang->stage = o->control ? -1 : o->stage;
    hang->seconds = waited(c, o) < MOST_SECONDS ? waited(c, o) : 0;
}

/* The ranks wait for each other. If they all do so in the same operation, the one that has been
 * silent for longest does not really wait. */
static void name_circle(lierne_hang *hang, const lierne_hang_context *c, position from) {
    int rank, silent = from.index;
    int64_t place;
    if (lierne_hang_first_difference(&place, &rank, c)) {
        name(hang, c, from, LIERNE_HANG_MISMATCH, rank);
        hang->place = place;
        return;
    }
    for (int i = 0; i < c->n; i++) {
        silent = silence(c, c->at[i]) > silence(c, c->at[silent]) ? i : silent;
    }
    name(hang, c, from, LIERNE_HANG_SILENT, lierne_hang_rank(c, silent));
}

static void follow(lierne_hang *hang, const lierne_hang_context *c, position from, bool *seen) {
    for (;;) {
        awaited next = find_awaited(c, from);
        seen[from.index] = true;
        if (next.rank >= 0 && next.why < ELSEWHERE) {
            name(hang, c, from, kind_of(next.why), next.rank);
            return;
        }
        int index = next.rank < 0 || next.why == DONE ? -1 : lierne_hang_index(c, next.rank);
        if (index < 0 || seen[index]) {
            name_circle(hang, c, from);
            return;
        }
        from = (position){index, lierne_hang_view_waits(c->at[index], c->at_time, false)};
    }
}

/* A rank that gave up for a reason of its own, or in no call: its message says why. */
static void name_failed(lierne_hang *hang, const lierne_hang_context *c, int index) {
    hang->kind = LIERNE_HANG_FAILED;
    hang->rank = lierne_hang_rank(c, index);
}

/* While a context is created there are no calls yet: only who is not there can be said. */
static void judge_creation(lierne_hang *hang, double *waits, const lierne_hang_context *c) {
    int absent = find_absent(c);
    if (absent >= 0) {
        hang->kind = LIERNE_HANG_ABSENT;
        hang->rank = absent;
        hang->waiting = lierne_hang_rank(c, 0);
        hang->what = LIERNE_HANG_WHAT_CONTROL;
        *waits = c->at[0]->dump.created;
        hang->seconds = c->at_time - *waits < MOST_SECONDS ? c->at_time - *waits : 0;
    }
}

lierne_status lierne_hang_judge(lierne_hang *hang, double *waits, const lierne_hang_context *c) {
    bool *seen;
    position start = find_start(c);
    *waits = INFINITY;
    if (c->at[0]->dump.context == 0) {
        judge_creation(hang, waits, c);
        return LIERNE_OK;
    }
    if (start.index < 0) {
        return LIERNE_OK;
    }
    const lierne_hang_view *view = c->at[start.index];
    *waits = start.operation ? start.operation->begun : c->at_time;
    int ended = lierne_dump_find(&view->dump, view->ended_peer);
    if (c->gave_up && (!is_wait_in_vain(view->dump.status) || !start.operation)) {
        name_failed(hang, c, start.index);
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
