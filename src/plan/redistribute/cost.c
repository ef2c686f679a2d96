/* What the routings of balanced overlaps take on the links of a context.
 *
 * A stage takes the latency of its slowest link, and what its busiest rank sends or receives, or
 * its busiest node where the ranks of a node share its links and that takes longer. Where C chunks
 * follow each other through the stages, all stages work at the same time, except while the first
 * chunk goes ahead and the last one is behind. So one part in C of the bytes takes what the stages
 * take one after the other, and the rest what the busiest rank or node of all stages together
 * takes. All numbers come from the overlaps alone, in one order: every rank gets the same estimate.
 */
#include "plan/redistribute/cost.h"

#include "plan/redistribute/reducers.h"

#include <stdlib.h>

enum { STAGES = 4, NEAR = 0, FAR = 1, LINKS };

/* Elements of a rank in a stage, by link. */
typedef struct load {
    int64_t sent[LINKS];
    int64_t received[LINKS];
} load;

/* A member and its node. */
typedef struct node_member {
    int node;
    size_t member;
} node_member;

typedef struct ledger {
    const lierne_planner *p;
    const lierne_balance *b;
    load *loads;               /* of stage s and member i at [s * members + i] */
    node_member *node_members; /* of all members, by node; NULL: nodes share nothing */
    bool used[STAGES][LINKS];
} ledger;

static int link_of(const ledger *l, int from, int to) {
    const lierne_planner *p = l->p;
    return p->nodes && lierne_planner_node(p, from) != lierne_planner_node(p, to) ? FAR : NEAR;
}

static load *load_of(ledger *l, int stage, int rank) {
    return &l->loads[(size_t)stage * l->b->members.count +
                     (size_t)lierne_balance_index(l->b, rank)];
}

static void add_sent(ledger *l, int stage, int rank, int link, int64_t elements) {
    load_of(l, stage, rank)->sent[link] += elements;
    l->used[stage][link] |= elements > 0;
}

static void add_received(ledger *l, int stage, int rank, int link, int64_t elements) {
    load_of(l, stage, rank)->received[link] += elements;
}

/* What a delivery's holders send, and then what its receivers pass on to each other. */
static void add_delivery(ledger *l, const lierne_delivery *d) {
    const int *ranks = l->b->ranks.at + d->holders, *receivers = ranks + d->nholders;
    const int64_t *sends = l->b->sends + d->sends, *passes = sends + d->nholders;
    int link = link_of(l, ranks[0], receivers[0]);
    int64_t passed = 0, others = (int64_t)d->nreceivers - 1;
    for (size_t i = 0; i < d->nholders; i++) {
        add_sent(l, d->depth, ranks[i], link, sends[i]);
    }
    for (size_t i = 0; i < d->nreceivers && passes[i] > 0; i++) {
        passed += passes[i];
        add_sent(l, d->depth + 1, receivers[i], link, passes[i]);
    }
    for (size_t i = 0; i < d->nreceivers; i++) {
        int64_t later = passed > 0 ? (passed - passes[i]) / others : 0;
        add_received(l, d->depth, receivers[i], link, d->size - later);
        if (later > 0) {
            add_received(l, d->depth + 1, receivers[i], link, later);
        }
    }
}

static void add_message(ledger *l, int stage, int from, int to, int64_t elements) {
    if (from != to) {
        int link = link_of(l, from, to);
        add_sent(l, stage, from, link, elements);
        add_received(l, stage, to, link, elements);
    }
}

/* What ranks send of an overlap where nothing is balanced: contributions, and sums to receivers. */
static lierne_status add_overlap(ledger *l, lierne_cell_overlap *x) {
    const lierne_planner *p = l->p;
    LIERNE_TRY(lierne_cell_overlap_choose(p, x));
    int64_t n = (int64_t)x->reducers.count, all = x->elements;
    for (int partial = 0; partial < p->from->partials; partial++) {
        LIERNE_TRY(lierne_cell_overlap_assign(p, x, partial));
        for (int64_t k = 0; k < n; k++) {
            int64_t part = x->divided ? lierne_share(all, n, k + 1) - lierne_share(all, n, k) : all;
            add_message(l, 0, x->senders.at[k], x->reducers.at[k], part);
            for (size_t i = 0; x->divided && partial == 0 && i < x->receivers.count; i++) {
                add_message(l, 1, x->reducers.at[k], x->receivers.at[i], part);
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status add_direct(ledger *l) {
    lierne_status status = LIERNE_OK;
    for (size_t i = 0; i < l->b->shared.count && status == LIERNE_OK; i++) {
        const lierne_pair *pair = &l->b->shared.at[i].pair;
        lierne_cell_overlap x = {.from = pair->from, .to = pair->to, .elements = pair->elements};
        status = add_overlap(l, &x);
        lierne_cell_overlap_clear(&x);
    }
    return status;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* Nanoseconds of elements, by link. */
static double time_of(const ledger *l, const int64_t *elements) {
    const lierne_link *links[LINKS] = {&l->p->links.same_node, &l->p->links.other_node};
    double bytes = (double)lierne_dtype_size(l->p->from->dtype), sum = 0;
    for (int i = 0; i < LINKS; i++) {
        double speed = (double)links[i]->megabytes_per_second;
        sum += speed > 0 ? (double)elements[i] * bytes * 1e3 / speed : 0;
    }
    return sum;
}

static double latency_of(const ledger *l, int stage) {
    double near = l->used[stage][NEAR] ? (double)l->p->links.same_node.latency_ns : 0;
    return larger(near, l->used[stage][FAR] ? (double)l->p->links.other_node.latency_ns : 0);
}

/* Nanoseconds of the busiest node's own links. */
static double busiest_node(const ledger *l, const load *loads) {
    int64_t sent = 0, received = 0, most = 0;
    for (size_t i = 0; l->node_members && i < l->b->members.count; i++) {
        const load *one = &loads[l->node_members[i].member];
        if (i == 0 || l->node_members[i].node != l->node_members[i - 1].node) {
            sent = received = 0;
        }
        sent += one->sent[FAR];
        received += one->received[FAR];
        most = sent > most ? sent : most;
        most = received > most ? received : most;
    }
    double bytes = (double)most * (double)lierne_dtype_size(l->p->from->dtype);
    return most > 0 ? bytes * 1e3 / (double)l->p->links.node_megabytes_per_second : 0;
}

static double busiest_of(const ledger *l, const load *loads) {
    double most = busiest_node(l, loads);
    for (size_t i = 0; i < l->b->members.count; i++) {
        most = larger(most, larger(time_of(l, loads[i].sent), time_of(l, loads[i].received)));
    }
    return most;
}

/* Adds the loads of all later stages to those of the first. */
static void join_stages(ledger *l) {
    size_t n = l->b->members.count;
    for (size_t i = n; i < STAGES * n; i++) {
        for (int link = 0; link < LINKS; link++) {
            l->loads[i % n].sent[link] += l->loads[i].sent[link];
            l->loads[i % n].received[link] += l->loads[i].received[link];
        }
    }
}

static int64_t estimate(ledger *l, int64_t chunks) {
    double latency = 0, slowest = 0, alone = 0, part = 1 / (double)chunks;
    for (int s = 0; s < STAGES; s++) {
        latency += latency_of(l, s);
        slowest = larger(slowest, latency_of(l, s));
        alone += busiest_of(l, l->loads + (size_t)s * l->b->members.count);
    }
    join_stages(l);
    double together = busiest_of(l, l->loads);
    double all = latency + (double)(chunks - 1) * slowest + part * alone + (1 - part) * together;
    return all < 1e18 ? (int64_t)all : (int64_t)1e18;
}

static int compare_node_members(const void *a, const void *b) {
    const node_member *x = a, *y = b;
    return (x->node > y->node) - (x->node < y->node);
}

static lierne_status list_node_members(ledger *l) {
    const lierne_ranks *members = &l->b->members;
    if (!l->p->nodes || l->p->links.node_megabytes_per_second == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&l->node_members, members->count, sizeof *l->node_members));
    for (size_t i = 0; i < members->count; i++) {
        l->node_members[i] = (node_member){lierne_planner_node(l->p, members->at[i]), i};
    }
    qsort(l->node_members, members->count, sizeof *l->node_members, compare_node_members);
    return LIERNE_OK;
}

static void close_ledger(ledger *l) {
    lierne_mem_free(l->loads);
    lierne_mem_free(l->node_members);
}

/* To be closed also on failure. */
static lierne_status open_ledger(ledger *l, const lierne_planner *p, const lierne_balance *b) {
    *l = (ledger){.p = p, .b = b};
    LIERNE_TRY(lierne_alloc(&l->loads, STAGES * b->members.count, sizeof *l->loads));
    return list_node_members(l);
}

static lierne_status cost_direct(int64_t *ns, const lierne_planner *p, const lierne_balance *b) {
    ledger l;
    lierne_status status = open_ledger(&l, p, b);
    if (status == LIERNE_OK) {
        status = add_direct(&l);
    }
    *ns = status == LIERNE_OK ? estimate(&l, 1) : 0;
    close_ledger(&l);
    return status;
}

static int64_t estimate_balanced(ledger *l) {
    const lierne_balance *b = l->b;
    int64_t chunks = 1;
    for (size_t i = 0; i < b->deliveries.count; i++) {
        add_delivery(l, &b->deliveries.at[i]);
    }
    for (size_t i = 0; i < b->shared.count; i++) {
        int64_t n = lierne_balance_chunks(b, l->p, &b->shared.at[i]);
        chunks = n > chunks ? n : chunks;
    }
    return estimate(l, chunks);
}

static lierne_status cost_balanced(int64_t *ns, const lierne_planner *p, const lierne_balance *b) {
    ledger l;
    lierne_status status = open_ledger(&l, p, b);
    *ns = status == LIERNE_OK ? estimate_balanced(&l) : 0;
    close_ledger(&l);
    return status;
}

lierne_status lierne_cost_compare(int64_t *direct, int64_t *balanced, const lierne_planner *p,
                                  const lierne_balance *b) {
    *direct = *balanced = 0;
    LIERNE_TRY(cost_direct(direct, p, b));
    return cost_balanced(balanced, p, b);
}
