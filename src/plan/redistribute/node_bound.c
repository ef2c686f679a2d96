/* What must cross between nodes at least, and be received and sent by the busiest node and rank.
 *
 * A node counts as one rank of redistribute_bound.c: it holds what one of its ranks holds, needs
 * what one of them needs, and what it needs and does not hold must enter it once. What enters may
 * be taken by any of its ranks that need it, which bounds the busiest of them. Of PARTIAL
 * contributions all that are not on it enter the node that adds them up, and the sum, or a
 * contribution, each other one: a bound that cannot always be reached. */
#include "lierne/redistribute.h"

#include "plan/redistribute/redistribute_check.h"
#include "plan/redistribute/reducers.h"
#include "plan/redistribute/spread.h"

#include <stdlib.h>

/* Where there are more jobs or ranks of jobs than this, the least maximum is bounded by averages
 * only. */
enum { MOST_JOBS = 1024, MOST_ENTRIES = 16384 };

/* A rank that needs something, and its node. */
typedef struct node_rank {
    int node;
    int rank;
} node_rank;

typedef struct work {
    lierne_planner p;
    int nnodes;
    int *node;                        /* of each rank, 0 to nnodes - 1 */
    bool *seen;                       /* of each rank: its cell of the destination was looked at */
    LIERNE_VEC(node_rank) node_ranks; /* of the cell of the destination at work, by node */
    lierne_ranks receivers;           /* their ranks, in that order */
    lierne_ranks needing;             /* their nodes, each once */
    LIERNE_VEC(size_t) first;         /* of each of these: its first receiver; and the end */
    lierne_ranks holders;
    lierne_ranks holding; /* their nodes, ascending, each once */
    lierne_ranks any;     /* nodes that may send */
    lierne_cell from;     /* the cell that holding is of, without PARTIAL */
    bool known;
    int64_t elements; /* of the overlap at work */
    int64_t crossing;
    int64_t *received; /* of each node */
    int64_t *ranks;    /* of each node: how many it has */
    lierne_spread sends;
    lierne_spread enters;
} work;

static int compare_ints(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Sorts a list and keeps each number once. */
static void make_set(lierne_ranks *list) {
    size_t n = 0;
    if (list->count > 0) {
        qsort(list->at, list->count, sizeof *list->at, compare_ints);
    }
    for (size_t i = 0; i < list->count; i++) {
        if (n == 0 || list->at[n - 1] != list->at[i]) {
            list->at[n++] = list->at[i];
        }
    }
    list->count = n;
}

static lierne_status list_nodes(lierne_ranks *nodes, const work *w, const lierne_ranks *ranks) {
    nodes->count = 0;
    for (size_t i = 0; i < ranks->count; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(nodes, w->node[ranks->at[i]]));
    }
    make_set(nodes);
    return LIERNE_OK;
}

static bool has(const lierne_ranks *list, int number) {
    return lierne_ranks_have(list->at, list->count, number);
}

static bool is_full(const lierne_spread *spread) {
    return spread->jobs.count > MOST_JOBS || spread->entries.count > MOST_ENTRIES;
}

/* An amount that any of n nodes or ranks takes, in equal parts where that is left open. */
static lierne_status add_job(lierne_spread *spread, int64_t amount, const int *list, size_t n) {
    if (is_full(spread)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_spread_add_job(spread, amount));
    for (size_t i = 0; i < n && !is_full(spread); i++) {
        int64_t wish = lierne_share(amount, (int64_t)n, (int64_t)i + 1) -
                       lierne_share(amount, (int64_t)n, (int64_t)i);
        LIERNE_TRY(lierne_spread_add_rank(spread, list[i], wish));
    }
    return LIERNE_OK;
}

/* The overlap enters the i-th node that needs it once. */
static lierne_status enter(work *w, size_t i) {
    size_t first = w->first.at[i];
    w->crossing += w->elements;
    w->received[w->needing.at[i]] += w->elements;
    return add_job(&w->enters, w->elements, w->receivers.at + first, w->first.at[i + 1] - first);
}

static lierne_status list_holding(work *w, const lierne_pair *pair, int partial) {
    w->holders.count = 0;
    LIERNE_TRY(lierne_layout_members(w->p.from, &pair->from, partial, &w->holders));
    return list_nodes(&w->holding, w, &w->holders);
}

/* Once from the nodes that hold it; further times also from those that got it. */
static lierne_status add_copies(work *w, const lierne_pair *pair) {
    int64_t entered = 0;
    if (!w->known || !lierne_same_cell(w->p.from, &w->from, &pair->from)) {
        LIERNE_TRY(list_holding(w, pair, 0));
        w->from = pair->from;
        w->known = true;
    }
    w->any.count = 0;
    for (size_t i = 0; i < w->holding.count; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&w->any, w->holding.at[i]));
    }
    for (size_t i = 0; i < w->needing.count; i++) {
        if (!has(&w->holding, w->needing.at[i])) {
            entered++;
            LIERNE_TRY(LIERNE_VEC_PUSH(&w->any, w->needing.at[i]));
            LIERNE_TRY(enter(w, i));
        }
    }
    if (entered > 0) {
        LIERNE_TRY(add_job(&w->sends, w->elements, w->holding.at, w->holding.count));
    }
    return entered > 1 ? add_job(&w->sends, (entered - 1) * w->elements, w->any.at, w->any.count)
                       : LIERNE_OK;
}

/* missing: of each node that needs the sum, how many contributions are not on it. */
static lierne_status count_missing(work *w, const lierne_pair *pair, int64_t *missing) {
    for (int partial = 0; partial < w->p.from->partials; partial++) {
        bool local = false;
        LIERNE_TRY(list_holding(w, pair, partial));
        for (size_t i = 0; i < w->needing.count; i++) {
            bool here = has(&w->holding, w->needing.at[i]);
            missing[i] += !here;
            local |= here;
        }
        if (!local) {
            LIERNE_TRY(add_job(&w->sends, w->elements, w->holding.at, w->holding.count));
        }
    }
    return LIERNE_OK;
}

static lierne_status add_sums(work *w, const lierne_pair *pair) {
    int64_t *missing, least = w->p.from->partials;
    LIERNE_TRY(lierne_alloc(&missing, w->needing.count, sizeof *missing));
    lierne_status status = count_missing(w, pair, missing);
    for (size_t i = 0; i < w->needing.count && status == LIERNE_OK; i++) {
        int64_t more = missing[i] > 0 ? missing[i] - 1 : 0;
        least = more < least ? more : least;
        status = missing[i] > 0 ? enter(w, i) : LIERNE_OK;
    }
    w->crossing += least * w->elements;
    lierne_mem_free(missing);
    return status;
}

static int compare_node_ranks(const void *a, const void *b) {
    const node_rank *x = a, *y = b;
    int node = (x->node > y->node) - (x->node < y->node);
    return node ? node : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Puts the receivers of a cell in the order of their nodes, and lists these. */
static lierne_status sort_receivers(work *w) {
    w->node_ranks.count = w->needing.count = w->first.count = 0;
    for (size_t i = 0; i < w->receivers.count; i++) {
        const node_rank s = {w->node[w->receivers.at[i]], w->receivers.at[i]};
        LIERNE_TRY(LIERNE_VEC_PUSH(&w->node_ranks, s));
        w->seen[s.rank] = true;
    }
    qsort(w->node_ranks.at, w->node_ranks.count, sizeof *w->node_ranks.at, compare_node_ranks);
    for (size_t i = 0; i < w->node_ranks.count; i++) {
        w->receivers.at[i] = w->node_ranks.at[i].rank;
        if (i == 0 || w->node_ranks.at[i].node != w->node_ranks.at[i - 1].node) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&w->needing, w->node_ranks.at[i].node));
            LIERNE_TRY(LIERNE_VEC_PUSH(&w->first, i));
        }
    }
    return LIERNE_VEC_PUSH(&w->first, w->node_ranks.count);
}

/* All overlaps of a cell of the destination, by one of the ranks that need it. */
static lierne_status add_cell(work *w, const lierne_cell *cell) {
    lierne_pairs pairs = {0};
    bool all = false;
    LIERNE_TRY(sort_receivers(w));
    lierne_status status = lierne_pairs_find(&pairs, &all, &w->p);
    for (size_t i = 0; i < pairs.count && status == LIERNE_OK; i++) {
        if (lierne_same_cell(w->p.to, &pairs.at[i].to, cell)) {
            w->elements = pairs.at[i].elements;
            status =
                w->p.from->partials > 1 ? add_sums(w, &pairs.at[i]) : add_copies(w, &pairs.at[i]);
        }
    }
    lierne_mem_free(pairs.at);
    return status;
}

static lierne_status add_all(work *w) {
    lierne_cell cell;
    for (int rank = 0; rank < w->p.to->world; rank++) {
        w->p.rank = rank;
        w->receivers.count = 0;
        if (!w->seen[rank] && lierne_layout_cell(w->p.to, rank, &cell)) {
            LIERNE_TRY(lierne_layout_members(w->p.to, &cell, -1, &w->receivers));
            LIERNE_TRY(add_cell(w, &cell));
        }
    }
    return LIERNE_OK;
}

/* Numbers the nodes 0 to nnodes - 1. */
static lierne_status number_nodes(work *w, const int *nodes) {
    lierne_ranks *names = &w->any;
    int world = w->p.from->world;
    for (int r = 0; r < world; r++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(names, nodes[r]));
    }
    make_set(names);
    w->nnodes = (int)names->count;
    LIERNE_TRY(lierne_alloc(&w->node, (size_t)world, sizeof *w->node));
    LIERNE_TRY(lierne_alloc(&w->seen, (size_t)world, sizeof *w->seen));
    LIERNE_TRY(lierne_alloc(&w->received, names->count, sizeof *w->received));
    LIERNE_TRY(lierne_alloc(&w->ranks, names->count, sizeof *w->ranks));
    for (int r = 0; r < world; r++) {
        const int *at = bsearch(&nodes[r], names->at, names->count, sizeof *at, compare_ints);
        w->node[r] = (int)(at - names->at);
        w->ranks[w->node[r]]++;
    }
    LIERNE_TRY(lierne_spread_create(&w->sends, w->nnodes));
    return lierne_spread_create(&w->enters, world);
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* In elements. */
static lierne_status solve(work *w, lierne_node_bound *bound) {
    bound->between_bytes = w->crossing;
    bound->sent_bytes = w->nnodes > 0 ? (w->crossing + w->nnodes - 1) / w->nnodes : 0;
    for (int n = 0; n < w->nnodes; n++) {
        int64_t each = (w->received[n] + w->ranks[n] - 1) / w->ranks[n];
        bound->received_bytes = larger(bound->received_bytes, w->received[n]);
        bound->rank_received_bytes = larger(bound->rank_received_bytes, each);
    }
    if (!is_full(&w->sends) && !is_full(&w->enters)) {
        int64_t sent, received;
        LIERNE_TRY(lierne_spread_solve(&w->sends, &sent));
        LIERNE_TRY(lierne_spread_solve(&w->enters, &received));
        bound->sent_bytes = larger(bound->sent_bytes, sent);
        bound->rank_received_bytes = larger(bound->rank_received_bytes, received);
    }
    return LIERNE_OK;
}

static void close_work(work *w) {
    lierne_spread_destroy(&w->sends);
    lierne_spread_destroy(&w->enters);
    lierne_mem_free(w->node_ranks.at);
    lierne_mem_free(w->receivers.at);
    lierne_mem_free(w->first.at);
    lierne_mem_free(w->needing.at);
    lierne_mem_free(w->holders.at);
    lierne_mem_free(w->holding.at);
    lierne_mem_free(w->any.at);
    lierne_mem_free(w->node);
    lierne_mem_free(w->seen);
    lierne_mem_free(w->received);
    lierne_mem_free(w->ranks);
}

lierne_status lierne_redistribute_get_node_bound(lierne_node_bound *bound, const lierne_layout *src,
                                                 const lierne_layout *dst, const int *nodes) {
    LIERNE_PUBLIC_CALL();
    lierne_node_bound found = {.size = sizeof found};
    work w = {.p = {.from = src, .to = dst}};
    LIERNE_TRY(lierne_check_set(bound, "bound"));
    LIERNE_TRY(lierne_check_set(src, "src"));
    LIERNE_TRY(lierne_check_set(dst, "dst"));
    LIERNE_TRY(lierne_check_set(nodes, "nodes"));
    LIERNE_TRY(lierne_redistribute_check_pair(src, "src", dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_plain(src, "src"));
    LIERNE_TRY(lierne_redistribute_check_plain(dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_complete(src, "src"));
    LIERNE_TRY(lierne_redistribute_check_complete(dst, "dst"));
    lierne_status status = number_nodes(&w, nodes);
    status = status == LIERNE_OK ? add_all(&w) : status;
    status = status == LIERNE_OK ? solve(&w, &found) : status;
    close_work(&w);
    if (status == LIERNE_OK) {
        int64_t bytes = (int64_t)lierne_dtype_size(src->dtype);
        found.between_bytes *= bytes, found.received_bytes *= bytes;
        found.sent_bytes *= bytes, found.rank_received_bytes *= bytes;
        status = lierne_spec_give(bound, &found, sizeof found, "bound");
    }
    return status;
}
