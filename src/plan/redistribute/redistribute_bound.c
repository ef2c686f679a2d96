/* What the busiest receiver and the busiest sender must move at least.
 *
 * All schedules are meant that move the fewest bytes in total. Copies: of every overlap one copy
 * must come from those that hold it, and each other one from these or from receivers, which makes
 * the least maximum a matter of spread.c. What sums make ranks send is in redistribute_sums.c.
 * Where the overlaps of a group of ranks are too many to look at together, the bound follows from
 * each holder alone, and from the average. */
#include "lierne/redistribute.h"

#include "plan/redistribute/balance.h"
#include "plan/redistribute/redistribute_check.h"

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

static lierne_status bound_group(bounds *o, const lierne_pairs *pairs) {
    lierne_balance b;
    lierne_status status = lierne_balance_create(&b, &o->p, pairs->at, pairs->count);
    if (status == LIERNE_OK) {
        raise_to(&o->received, b.received);
        raise_to(&o->sent, b.sent);
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
    LIERNE_TRY(lierne_redistribute_check_plain(src, "src"));
    LIERNE_TRY(lierne_redistribute_check_plain(dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_complete(src, "src"));
    LIERNE_TRY(lierne_redistribute_check_complete(dst, "dst"));
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
