/* What moves of an overlap: from whom, to whom, after what.
 *
 * Where the nodes of ranks are known, a receiver gets what it needs from holders on its node if
 * there are any. A node without holders is entered once: its receivers divide what crosses among
 * themselves, and send each other their parts afterwards. What crosses to the k-th receiver of one
 * node and to the k-th ones of others is one delivery again, so nodes pass on to each other what
 * ranks of a single node do, and ranks with one index on their nodes carry equal parts. */
#include "plan/redistribute/deliveries.h"

#include "plan/redistribute/reducers.h"

#include <stdlib.h>

/* Receivers pass on what they got where they are at most MOST_RELAYS, because each sends to all
 * others. Each reducer's sum has receivers of its own: of all of them together there are at most
 * MOST_SUM_RELAYS. */
enum { MOST_RELAYS = 512, MOST_SUM_RELAYS = 1024 };

/* A receiver and its node, and the group of those that are on one. */
typedef struct node_rank {
    int node;
    int rank;
} node_rank;
typedef struct group {
    size_t first;
    size_t count;
} group;

typedef struct work {
    lierne_balance *b;
    const lierne_planner *p;
    lierne_shared *s;
    lierne_ranks holders; /* of the delivery at work */
    LIERNE_VEC(node_rank) node_ranks;
    LIERNE_VEC(group) groups; /* on nodes without holders, by their size */
} work;

/* Begins a delivery; its holders and then its receivers are to be added. */
static lierne_delivery begin_delivery(const work *w, const lierne_delivery *like) {
    lierne_delivery d = *like;
    d.holders = w->b->ranks.count;
    d.nholders = d.nreceivers = 0;
    return d;
}

static lierne_status add_holder(work *w, lierne_delivery *d, int rank) {
    d->nholders++;
    return LIERNE_VEC_PUSH(&w->b->ranks, rank);
}

static lierne_status add_receiver(work *w, lierne_delivery *d, int rank) {
    d->nreceivers++;
    return LIERNE_VEC_PUSH(&w->b->ranks, rank);
}

static lierne_status end_delivery(work *w, lierne_delivery *d) {
    if (d->nreceivers == 0 || d->size == 0) {
        w->b->ranks.count = d->holders;
        return LIERNE_OK;
    }
    d->grain = lierne_shared_grain(w->p, w->s, d->size, d->nholders + d->nreceivers);
    d->sends = w->b->nsends;
    w->b->nsends += d->nholders + d->nreceivers;
    w->s->ndeliveries++;
    return LIERNE_VEC_PUSH(&w->b->deliveries, *d);
}

static int node_of(const work *w, int rank) {
    return w->p->nodes ? lierne_planner_node(w->p, rank) : 0;
}

/* To the receivers of a node, from its own holders; *done: whether it has any. */
static lierne_status deliver_inside(work *w, const lierne_delivery *like, const group *g,
                                    bool *done) {
    lierne_delivery d = begin_delivery(w, like);
    int node = w->node_ranks.at[g->first].node;
    for (size_t i = 0; i < w->holders.count; i++) {
        if (node_of(w, w->holders.at[i]) == node) {
            LIERNE_TRY(add_holder(w, &d, w->holders.at[i]));
        }
    }
    *done = d.nholders > 0;
    for (size_t i = 0; i < g->count && *done; i++) {
        LIERNE_TRY(add_receiver(w, &d, w->node_ranks.at[g->first + i].rank));
    }
    return end_delivery(w, &d);
}

/* Inside a node, what its k-th receiver got of what crossed to the node. */
static lierne_status share_inside(work *w, const lierne_delivery *part, const group *g, size_t k) {
    lierne_delivery d = begin_delivery(w, part);
    d.partial = -1;
    d.relays = false;
    d.depth += 2; /* the part may have been passed on between nodes */
    LIERNE_TRY(add_holder(w, &d, w->node_ranks.at[g->first + k].rank));
    for (size_t i = 0; i < g->count; i++) {
        if (i != k) {
            LIERNE_TRY(add_receiver(w, &d, w->node_ranks.at[g->first + i].rank));
        }
    }
    return end_delivery(w, &d);
}

/* The k-th part of what crosses to n nodes, whose groups are equally large. */
static lierne_status cross_part(work *w, const lierne_delivery *like, const group *g, size_t n,
                                size_t k) {
    lierne_delivery d = begin_delivery(w, like);
    int64_t of = (int64_t)g->count;
    d.start += lierne_share(like->size, of, (int64_t)k);
    d.size =
        lierne_share(like->size, of, (int64_t)k + 1) - lierne_share(like->size, of, (int64_t)k);
    if (d.segment_size == 0 && of > 1) { /* what is shared inside has chunks in the same places */
        d.segment = d.start;
        d.segment_size = d.size;
    }
    for (size_t i = 0; i < w->holders.count; i++) {
        LIERNE_TRY(add_holder(w, &d, w->holders.at[i]));
    }
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(add_receiver(w, &d, w->node_ranks.at[g[i].first + k].rank));
    }
    const lierne_delivery part = d;
    LIERNE_TRY(end_delivery(w, &d));
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(share_inside(w, &part, &g[i], k));
    }
    return LIERNE_OK;
}

static int compare_node_ranks(const void *a, const void *b) {
    const node_rank *x = a, *y = b;
    int node = (x->node > y->node) - (x->node < y->node);
    return node ? node : (x->rank > y->rank) - (x->rank < y->rank);
}

static int compare_groups(const void *a, const void *b) {
    const group *x = a, *y = b;
    int size = (x->count > y->count) - (x->count < y->count);
    return size ? size : (x->first > y->first) - (x->first < y->first);
}

/* Delivers inside the nodes that have holders, and lists the others. */
static lierne_status visit_nodes(work *w, const lierne_delivery *like) {
    bool done;
    w->groups.count = 0;
    for (size_t i = 0, next; i < w->node_ranks.count; i = next) {
        for (next = i; next < w->node_ranks.count &&
                       w->node_ranks.at[next].node == w->node_ranks.at[i].node;) {
            next++;
        }
        const group g = {.first = i, .count = next - i};
        LIERNE_TRY(deliver_inside(w, like, &g, &done));
        LIERNE_TRY(done ? LIERNE_OK : LIERNE_VEC_PUSH(&w->groups, g));
    }
    return LIERNE_OK;
}

/* From the holders to the receivers that were listed. */
static lierne_status deliver(work *w, const lierne_delivery *like) {
    if (w->node_ranks.count > 0) {
        qsort(w->node_ranks.at, w->node_ranks.count, sizeof *w->node_ranks.at, compare_node_ranks);
    }
    LIERNE_TRY(visit_nodes(w, like));
    if (w->groups.count > 0) {
        qsort(w->groups.at, w->groups.count, sizeof *w->groups.at, compare_groups);
    }
    for (size_t i = 0, next; i < w->groups.count; i = next) {
        const group *g = &w->groups.at[i];
        for (next = i; next < w->groups.count && w->groups.at[next].count == g->count;) {
            next++;
        }
        for (size_t k = 0; k < g->count; k++) {
            LIERNE_TRY(cross_part(w, like, g, next - i, k));
        }
    }
    return LIERNE_OK;
}

static lierne_status add_node_rank(work *w, int rank) {
    const node_rank at = {.node = node_of(w, rank), .rank = rank};
    return LIERNE_VEC_PUSH(&w->node_ranks, at);
}

static lierne_status list_holders(work *w, int partial) {
    size_t first = w->s->holders + (size_t)partial * w->s->nholders;
    w->holders.count = w->node_ranks.count = 0;
    for (size_t i = 0; i < w->s->nholders; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&w->holders, w->b->ranks.at[first + i]));
    }
    return LIERNE_OK;
}

/* Without PARTIAL: all elements, to all receivers that do not hold them. */
static lierne_status deliver_copies(work *w) {
    const lierne_delivery d = {.relays = w->s->nreceivers <= MOST_RELAYS,
                               .size = w->s->pair.elements};
    LIERNE_TRY(list_holders(w, 0));
    for (size_t i = 0; i < w->s->nreceivers; i++) {
        int rank = w->b->ranks.at[w->s->receivers + i];
        LIERNE_TRY(lierne_shared_holds(w->p, w->s, rank) ? LIERNE_OK : add_node_rank(w, rank));
    }
    return deliver(w, &d);
}

/* A contribution, to a rank that sums. */
static lierne_status deliver_contribution(work *w, int partial, const lierne_reducer *to) {
    const lierne_delivery d = {.partial = partial,
                               .start = to->start,
                               .size = to->size,
                               .segment = to->start,
                               .segment_size = to->size};
    LIERNE_TRY(list_holders(w, partial));
    LIERNE_TRY(add_node_rank(w, to->rank));
    return deliver(w, &d);
}

/* The sum that a reducer made, to the other receivers. */
static lierne_status deliver_sum(work *w, const lierne_reducer *from) {
    const lierne_delivery d = {.partial = -1,
                               .depth = 1,
                               .relays = w->s->nreducers * w->s->nreceivers <= MOST_SUM_RELAYS,
                               .start = from->start,
                               .size = from->size,
                               .segment = from->start,
                               .segment_size = from->size};
    w->holders.count = w->node_ranks.count = 0;
    LIERNE_TRY(LIERNE_VEC_PUSH(&w->holders, from->rank));
    for (size_t i = 0; i < w->s->nreceivers; i++) {
        int rank = w->b->ranks.at[w->s->receivers + i];
        LIERNE_TRY(rank == from->rank ? LIERNE_OK : add_node_rank(w, rank));
    }
    return deliver(w, &d);
}

static lierne_status deliver_sums(work *w) {
    for (size_t k = w->s->reducers; k < w->s->reducers + w->s->nreducers; k++) {
        const lierne_reducer r = w->b->reducers.at[k];
        bool held = lierne_shared_holds(w->p, w->s, r.rank);
        int own = held ? lierne_layout_partial(w->p->from, r.rank) : -1;
        for (int partial = 0; partial < w->p->from->partials; partial++) {
            LIERNE_TRY(partial == own ? LIERNE_OK : deliver_contribution(w, partial, &r));
        }
        LIERNE_TRY(w->s->divided ? deliver_sum(w, &r) : LIERNE_OK);
    }
    return LIERNE_OK;
}

lierne_status lierne_deliveries_add(lierne_balance *b, const lierne_planner *p, lierne_shared *s) {
    work w = {.b = b, .p = p, .s = s};
    s->deliveries = b->deliveries.count;
    lierne_status status = p->from->partials > 1 ? deliver_sums(&w) : deliver_copies(&w);
    lierne_mem_free(w.holders.at);
    lierne_mem_free(w.node_ranks.at);
    lierne_mem_free(w.groups.at);
    return status;
}
