/* What ranks must send so that overlaps are summed.
 *
 * All contributions but one are sent, and each by those that hold it; the sum is sent once by those
 * that may add it up, and the other times by any receiver. That a reducer need not send what it
 * adds up itself is left out, so the result is a bound, and not always reached. How much of the
 * first copy each reducer sends is how much it should add up, for the senders.
 *
 * Where receivers may as well add up for themselves, they do, because that is one stage less. Those
 * that hold the contributions send all of it then; if others should send a part, it is divided. */
#include "plan/redistribute/redistribute_sums.h"

#include "plan/redistribute/reducers.h"
#include "plan/redistribute/spread.h"

#include <stdlib.h>

/* Receivers add up for themselves if of what they need at most one part in TIE is better sent by
 * others. */
enum { TIE = 32 };

/* The i-th of n ranks that have equal parts of an amount, where nothing is against it. */
static lierne_status add_rank(lierne_spread *spread, const lierne_balance *b, int rank,
                              int64_t amount, size_t i, size_t n) {
    int64_t of = (int64_t)n, before = lierne_share(amount, of, (int64_t)i);
    int64_t wish = lierne_share(amount, of, (int64_t)i + 1) - before;
    return lierne_spread_add_rank(spread, lierne_balance_index(b, rank), wish);
}

static lierne_status add_job(lierne_spread *spread, const lierne_balance *b, int64_t amount,
                             size_t first, size_t n) {
    LIERNE_TRY(lierne_spread_add_job(spread, amount));
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(add_rank(spread, b, b->ranks.at[first + i], amount, i, n));
    }
    return LIERNE_OK;
}

/* The first copy of a sum. */
static lierne_status add_sum(lierne_spread *spread, const lierne_balance *b,
                             const lierne_shared *s) {
    int64_t each = s->pair.elements;
    LIERNE_TRY(lierne_spread_add_job(spread, each));
    for (size_t k = 0; k < s->nreducers; k++) {
        int rank = b->reducers.at[s->reducers + k].rank;
        LIERNE_TRY(add_rank(spread, b, rank, each, k, s->nreducers));
    }
    return LIERNE_OK;
}

/* Elements of a contribution that are sent where each receiver adds up for itself. */
static int64_t sent_undivided(const lierne_balance *b, const lierne_planner *p,
                              const lierne_shared *s, int partial) {
    int64_t n = 0;
    for (size_t i = s->receivers; i < s->receivers + s->nreceivers; i++) {
        int rank = b->ranks.at[i];
        n += !lierne_shared_holds(p, s, rank) || lierne_layout_partial(p->from, rank) != partial;
    }
    return n * s->pair.elements;
}

/* Where each receiver adds up for itself, or may as well: as many elements, of any holders. */
static lierne_status add_undivided(lierne_spread *spread, const lierne_balance *b,
                                   const lierne_planner *p, const lierne_shared *s) {
    LIERNE_TRY(lierne_spread_add_job(spread, (int64_t)s->nreceivers * s->pair.elements));
    for (int partial = 0; partial < p->from->partials; partial++) {
        int64_t amount = sent_undivided(b, p, s, partial);
        const int *holders = b->ranks.at + s->holders + (size_t)partial * s->nholders;
        for (size_t i = 0; i < s->nholders; i++) {
            LIERNE_TRY(add_rank(spread, b, holders[i], amount, i, s->nholders));
        }
    }
    return LIERNE_OK;
}

/* Of each overlap with several receivers one job, in their order. */
static lierne_status add_first(lierne_spread *spread, const lierne_balance *b,
                               const lierne_planner *p) {
    for (size_t i = 0; i < b->shared.count; i++) {
        const lierne_shared *s = &b->shared.at[i];
        if (s->nreceivers > 1) {
            LIERNE_TRY(s->divided ? add_sum(spread, b, s) : add_undivided(spread, b, p, s));
        }
    }
    return LIERNE_OK;
}

/* Marks the contributions that receivers hold; returns how many. */
static size_t mark_held(const lierne_balance *b, const lierne_planner *p, const lierne_shared *s,
                        bool *held) {
    size_t n = 0;
    for (size_t i = s->receivers; i < s->receivers + s->nreceivers; i++) {
        if (lierne_shared_holds(p, s, b->ranks.at[i])) {
            bool *of = &held[lierne_layout_partial(p->from, b->ranks.at[i])];
            n += !*of;
            *of = true;
        }
    }
    return n;
}

/* Contributions that no receiver holds are all sent; of the others all but one. */
static lierne_status add_contributions(lierne_spread *spread, const lierne_balance *b,
                                       const lierne_planner *p, const lierne_shared *s,
                                       bool *held) {
    size_t nheld = mark_held(b, p, s, held), at = 0;
    for (int partial = 0; partial < p->from->partials; partial++) {
        size_t first = s->holders + (size_t)partial * s->nholders;
        LIERNE_TRY(held[partial] ? LIERNE_OK
                                 : add_job(spread, b, s->pair.elements, first, s->nholders));
    }
    if (nheld < 2) {
        return LIERNE_OK;
    }
    int64_t amount = (int64_t)(nheld - 1) * s->pair.elements;
    LIERNE_TRY(lierne_spread_add_job(spread, amount));
    for (size_t i = 0; i < s->nholders * (size_t)p->from->partials; i++) {
        if (held[i / s->nholders]) {
            int rank = b->ranks.at[s->holders + i];
            LIERNE_TRY(add_rank(spread, b, rank, amount, at++, nheld * s->nholders));
        }
    }
    return LIERNE_OK;
}

/* What an overlap needs besides: contributions, and all but the first copy of the sum. */
static lierne_status add_rest(lierne_spread *spread, const lierne_balance *b,
                              const lierne_planner *p, const lierne_shared *s) {
    bool *held;
    if (!s->divided && s->nreceivers > 1) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&held, (size_t)p->from->partials, sizeof *held));
    lierne_status status = add_contributions(spread, b, p, s, held);
    lierne_mem_free(held);
    if (status == LIERNE_OK && s->nreceivers > 2) {
        int64_t amount = (int64_t)(s->nreceivers - 2) * s->pair.elements;
        status = add_job(spread, b, amount, s->receivers, s->nreceivers);
    }
    return status;
}

static lierne_status add_all(lierne_spread *spread, const lierne_balance *b,
                             const lierne_planner *p) {
    LIERNE_TRY(add_first(spread, b, p));
    for (size_t i = 0; i < b->shared.count; i++) {
        LIERNE_TRY(add_rest(spread, b, p, &b->shared.at[i]));
    }
    return LIERNE_OK;
}

/* Whether others than the holders of a contribution should send much of what was undivided. */
static bool should_divide(const lierne_balance *b, const lierne_planner *p, const lierne_shared *s,
                          const lierne_spread_entry *given) {
    int64_t moved = 0, all = (int64_t)s->nreceivers * s->pair.elements;
    for (int partial = 0; partial < p->from->partials; partial++) {
        int64_t left = sent_undivided(b, p, s, partial);
        for (size_t i = 0; i < s->nholders; i++) {
            left -= given++->given;
        }
        moved += left > 0 ? left : 0;
    }
    return moved > all / TIE;
}

static int compare_sends(const void *a, const void *b) {
    const lierne_reducer *x = a, *y = b;
    int order = (x->sends > y->sends) - (x->sends < y->sends);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Takes what add_first added; divides what should be and sets *divide, if divide is not NULL. */
static void take_first(lierne_balance *b, const lierne_planner *p, const lierne_spread *spread,
                       bool *divide) {
    size_t job = 0;
    for (size_t i = 0; i < b->shared.count; i++) {
        lierne_shared *s = &b->shared.at[i];
        if (s->nreceivers < 2) {
            continue;
        }
        const lierne_spread_entry *given = &spread->entries.at[spread->jobs.at[job++].first];
        for (size_t k = 0; s->divided && k < s->nreducers; k++) {
            b->reducers.at[s->reducers + k].size = given[k].given;
            b->reducers.at[s->reducers + k].sends = spread->load[given[k].rank];
        }
        if (s->divided) {
            qsort(&b->reducers.at[s->reducers], s->nreducers, sizeof(lierne_reducer),
                  compare_sends);
        }
        if (!s->divided && divide && should_divide(b, p, s, given)) {
            s->divided = *divide = true;
        }
    }
}

static lierne_status solve(lierne_balance *b, const lierne_planner *p, int64_t *sent,
                           bool *divide) {
    lierne_spread spread;
    lierne_status status = lierne_spread_create(&spread, (int)b->members.count);
    if (status == LIERNE_OK) {
        status = add_all(&spread, b, p);
    }
    if (status == LIERNE_OK) {
        status = lierne_spread_solve(&spread, sent);
    }
    if (status == LIERNE_OK) {
        take_first(b, p, &spread, divide);
    }
    lierne_spread_destroy(&spread);
    return status;
}

lierne_status lierne_sums_bound(lierne_balance *b, const lierne_planner *p, bool loose) {
    bool divided = false;
    int64_t sent;
    LIERNE_TRY(solve(b, p, &b->sent, loose ? &divided : NULL));
    return divided ? solve(b, p, &sent, NULL) : LIERNE_OK;
}
