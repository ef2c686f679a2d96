/* What the busiest receiver and the busiest sender must move at least.
 *
 * All schedules are meant that move the fewest bytes in total. Copies: of every overlap one copy
 * must come from those that hold it, and each other one from these or from receivers, which makes
 * the least maximum a matter of spread.c. Contributions: all but one are sent, and each by those
 * that hold it; the sum is sent once by those that may add it up, and the other times by any
 * receiver. Who adds up how much is left open there, so the result is a bound, and not always
 * reached. Where the overlaps of a group of ranks are too many to look at together, the bound
 * follows from each holder alone, and from the average. */
#include "lierne/redistribute.h"

#include "plan/redistribute/check.h"
#include "plan/redistribute/reducers.h"
#include "plan/redistribute/spread.h"

typedef struct bounds {
    lierne_planner p;
    bool *seen;       /* of each rank: its group was looked at */
    int64_t received; /* elements */
    int64_t sent;
    int64_t total;   /* of the groups that are too large: all that must be sent, */
    int64_t senders; /* and the ranks that can */
} bounds;

static void raise_to(int64_t *bound, int64_t value) {
    *bound = value > *bound ? value : *bound;
}

static lierne_status add_ranks(lierne_spread *spread, const lierne_balance *b, size_t first,
                               size_t n) {
    for (size_t i = first; i < first + n; i++) {
        LIERNE_TRY(lierne_spread_add_rank(spread, lierne_balance_index(b, b->ranks.at[i]), 0));
    }
    return LIERNE_OK;
}

/* The sum of an overlap with n receivers: once from those that add it up, n - 2 times from any. */
static lierne_status describe_sum(lierne_spread *spread, const lierne_balance *b,
                                  const lierne_shared *s) {
    int64_t n = (int64_t)s->nreceivers, each = s->pair.elements;
    if (n > 1) {
        LIERNE_TRY(lierne_spread_add_job(spread, each));
        for (size_t k = s->reducers; k < s->reducers + s->nreducers; k++) {
            int rank = lierne_balance_index(b, b->reducers.at[k].rank);
            LIERNE_TRY(lierne_spread_add_rank(spread, rank, 0));
        }
    }
    if (n > 2) {
        LIERNE_TRY(lierne_spread_add_job(spread, (n - 2) * each));
        LIERNE_TRY(add_ranks(spread, b, s->receivers, s->nreceivers));
    }
    return LIERNE_OK;
}

/* Contributions that no receiver holds are all sent; of the others all but one. */
static lierne_status describe_contributions(lierne_spread *spread, const lierne_balance *b,
                                            const lierne_planner *p, const lierne_shared *s,
                                            bool *held) {
    int64_t nheld = 0, each = s->pair.elements;
    for (size_t i = s->receivers; i < s->receivers + s->nreceivers; i++) {
        if (lierne_shared_holds(p, s, b->ranks.at[i])) {
            held[lierne_layout_partial(p->from, b->ranks.at[i])] = true;
        }
    }
    for (int partial = 0; partial < p->from->partials; partial++) {
        nheld += held[partial];
        if (!held[partial]) {
            LIERNE_TRY(lierne_spread_add_job(spread, each));
            LIERNE_TRY(
                add_ranks(spread, b, s->holders + (size_t)partial * s->nholders, s->nholders));
        }
    }
    if (nheld < 2) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_spread_add_job(spread, (nheld - 1) * each));
    for (int partial = 0; partial < p->from->partials; partial++) {
        if (held[partial]) {
            LIERNE_TRY(
                add_ranks(spread, b, s->holders + (size_t)partial * s->nholders, s->nholders));
        }
    }
    return LIERNE_OK;
}

static lierne_status describe(lierne_spread *spread, const lierne_balance *b,
                              const lierne_planner *p, const lierne_shared *s) {
    size_t holders = s->nholders * (size_t)p->from->partials;
    if (!s->divided && s->nreceivers > 1) { /* every receiver may also add up for itself */
        LIERNE_TRY(lierne_spread_add_job(spread, (int64_t)s->nreceivers * s->pair.elements));
        return add_ranks(spread, b, s->holders, holders);
    }
    bool *held;
    LIERNE_TRY(lierne_alloc(&held, (size_t)p->from->partials, sizeof *held));
    lierne_status status = describe_contributions(spread, b, p, s, held);
    lierne_mem_free(held);
    return status == LIERNE_OK ? describe_sum(spread, b, s) : status;
}

static lierne_status bound_sums(int64_t *sent, const lierne_balance *b, const lierne_planner *p) {
    lierne_spread spread;
    lierne_status status = lierne_spread_create(&spread, (int)b->members.count);
    for (size_t i = 0; i < b->shared.count && status == LIERNE_OK; i++) {
        status = describe(&spread, b, p, &b->shared.at[i]);
    }
    if (status == LIERNE_OK) {
        status = lierne_spread_solve(&spread, sent);
    }
    lierne_spread_destroy(&spread);
    return status;
}

static lierne_status bound_group(bounds *o, const lierne_pairs *pairs) {
    lierne_balance b;
    lierne_status status = lierne_balance_create(&b, &o->p, pairs->at, pairs->count);
    int64_t sent = b.least;
    if (status == LIERNE_OK && o->p.from->partials > 1) {
        status = bound_sums(&sent, &b, &o->p);
    }
    if (status == LIERNE_OK) {
        raise_to(&o->received, b.received);
        raise_to(&o->sent, sent);
    }
    for (size_t i = 0; i < b.members.count; i++) {
        o->seen[b.members.at[i]] = true;
    }
    lierne_balance_destroy(&b);
    return status;
}

/* What follows for one rank from one of its overlaps. */
static lierne_status bound_overlap(bounds *o, const lierne_pair *pair, int64_t *received,
                                   int64_t *sent) {
    lierne_cell_overlap x = {.from = pair->from, .to = pair->to, .elements = pair->elements};
    int64_t partials = o->p.from->partials;
    lierne_status status = lierne_cell_overlap_choose(&o->p, &x);
    if (status == LIERNE_OK) {
        bool holds = lierne_in_cell(o->p.from, o->p.rank, &pair->from);
        bool needs = lierne_in_cell(o->p.to, o->p.rank, &pair->to);
        bool all = partials == 1 && x.all_hold;
        *received += needs && (!holds || partials > 1) ? pair->elements : 0;
        *sent += holds && !all ? pair->elements * (partials - 1 + x.none_holds) : 0;
        *sent += holds && !all && partials == 1 ? pair->elements * !x.none_holds : 0;
        o->total += lierne_cell_overlap_bound(&o->p, &x);
    }
    lierne_cell_overlap_clear(&x);
    return status;
}

/* What follows from a rank's own overlaps alone. */
static lierne_status bound_rank(bounds *o, const lierne_pairs *pairs) {
    lierne_ranks holders = {0};
    lierne_cell own;
    int64_t received = 0, sent = 0;
    lierne_status status = LIERNE_OK;
    for (size_t i = 0; i < pairs->count && status == LIERNE_OK; i++) {
        status = bound_overlap(o, &pairs->at[i], &received, &sent);
    }
    if (status == LIERNE_OK && lierne_layout_cell(o->p.from, o->p.rank, &own)) {
        status = lierne_layout_members(o->p.from, &own, -1, &holders);
        int64_t n = (int64_t)holders.count;
        raise_to(&o->sent, status == LIERNE_OK ? (sent + n - 1) / n : 0);
    }
    raise_to(&o->received, received);
    o->senders++;
    o->seen[o->p.rank] = true;
    lierne_mem_free(holders.at);
    return status;
}

static lierne_status bound_all(bounds *o) {
    lierne_status status = LIERNE_OK;
    bool all = true; /* once a group is too large, all others count as such */
    for (int rank = 0; rank < o->p.from->world && status == LIERNE_OK; rank++) {
        lierne_pairs pairs = {0};
        if (o->seen[rank]) {
            continue;
        }
        o->p.rank = rank;
        status = lierne_pairs_find(&pairs, &all, &o->p);
        if (status == LIERNE_OK) {
            status = all ? bound_group(o, &pairs) : bound_rank(o, &pairs);
        }
        lierne_mem_free(pairs.at);
    }
    if (o->senders > 0) {
        raise_to(&o->sent, (o->total + o->senders - 1) / o->senders);
    }
    return status;
}

lierne_status lierne_redistribute_get_bound(int64_t *received, int64_t *sent,
                                            const lierne_layout *src, const lierne_layout *dst) {
    LIERNE_PUBLIC_CALL();
    bounds o = {.p = {.from = src, .to = dst}};
    LIERNE_TRY(lierne_check_set(received, "received"));
    LIERNE_TRY(lierne_check_set(sent, "sent"));
    *received = *sent = 0;
    LIERNE_TRY(lierne_check_set(src, "src"));
    LIERNE_TRY(lierne_check_set(dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_pair(src, "src", dst, "dst"));
    LIERNE_TRY(lierne_alloc(&o.seen, (size_t)src->world, sizeof *o.seen));
    lierne_status status = bound_all(&o);
    lierne_mem_free(o.seen);
    if (status == LIERNE_OK) {
        int64_t bytes = (int64_t)lierne_dtype_size(src->dtype);
        *received = o.received * bytes;
        *sent = o.sent * bytes;
    }
    return status;
}
