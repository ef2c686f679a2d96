/* The balanced route of a rank: the transfers of balance.c as messages and sums.
 *
 * Copies and contributions move in the first stage, sums and what is passed on in the next ones.
 * Long deliveries move in chunks, a stage later each: while a receiver passes on one chunk, it gets
 * the next. A chunk of a sum is added up where its contributions arrived, in one operation with
 * all of its sources, so the order of additions does not depend on chunks. */
#include "plan/redistribute/balanced.h"

#include "plan/redistribute/cost.h"
#include "plan/redistribute/reducers.h"

/* Stages of a chunk. */
enum { DEPTH = 4 };

typedef struct builder {
    lierne_planner *p;
    const lierne_balance *b;
    const lierne_shared *s;
    const lierne_reducer *sums; /* what this rank sums of the overlap, or NULL */
    int64_t chunks;
    lierne_cell_overlap x;
    LIERNE_VEC(int64_t) landings; /* in scratch, of each contribution; -1: this rank's own */
    lierne_transfers transfers;
} builder;

static lierne_stage *stage_of(const builder *u, int64_t i) {
    return &u->p->route->stages.at[i];
}

static int64_t first_of(int64_t size, int64_t chunks, int64_t c) {
    return lierne_share(size, chunks, c);
}

/* Elements [*start, *start + *size) of a transfer's chunk c; false if it has none of it. */
static bool cut_chunk(const builder *u, const lierne_transfer *t, int64_t c, int64_t *start,
                      int64_t *size) {
    int64_t from = t->segment + first_of(t->segment_size, u->chunks, c);
    int64_t end = t->segment + first_of(t->segment_size, u->chunks, c + 1);
    from = from > t->start ? from : t->start;
    end = end < t->start + t->size ? end : t->start + t->size;
    *start = from;
    *size = end - from;
    return end > from;
}

/* A contribution that this rank sums lands in scratch, in the order of its elements. */
static lierne_status add_landing(builder *u, lierne_stage *stage, int partial, int from,
                                 int64_t start, int64_t size) {
    lierne_block block = lierne_block_range(u->landings.at[partial] + start - u->sums->start, size);
    return lierne_messages_put(&stage->recvs, from, LIERNE_BUFFER_SCRATCH, block);
}

/* This rank's end of a chunk of a transfer. */
static lierne_status add_message(builder *u, const lierne_delivery *d, const lierne_transfer *t,
                                 lierne_stage *stage, int64_t start, int64_t size) {
    bool sends = t->from == u->p->rank, contribution = d->partial >= 0 && u->p->from->partials > 1;
    if (contribution && !sends) {
        return add_landing(u, stage, d->partial, t->from, start, size);
    }
    LIERNE_TRY(lierne_cell_overlap_take(u->p, &u->x, start, size));
    lierne_buffer at_sender =
        d->partial >= 0 && !t->passed_on ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT;
    lierne_buffer at_receiver = contribution ? LIERNE_BUFFER_SCRATCH : LIERNE_BUFFER_OUT;
    return sends ? lierne_add_part(u->p, &u->x, &stage->sends, t->to, at_sender, at_receiver)
                 : lierne_add_part(u->p, &u->x, &stage->recvs, t->from, at_receiver, at_sender);
}

static lierne_status add_delivery(builder *u, const lierne_delivery *d) {
    int64_t start, size;
    LIERNE_TRY(lierne_balance_transfers(&u->transfers, u->b, d, u->p->rank));
    for (size_t i = 0; i < u->transfers.count; i++) {
        lierne_transfer t = u->transfers.at[i];
        int64_t depth = d->depth + t.passed_on;
        if (d->segment_size > 0) {
            t.segment = d->segment;
            t.segment_size = d->segment_size;
        }
        for (int64_t c = 0; c < u->chunks; c++) {
            if (cut_chunk(u, &t, c, &start, &size)) {
                LIERNE_TRY(add_message(u, d, &t, stage_of(u, depth + c), start, size));
            }
        }
    }
    return LIERNE_OK;
}

/* Finds what this rank sums of the overlap, and where contributions to it land. */
static lierne_status open_sums(builder *u) {
    const lierne_planner *p = u->p;
    u->sums = NULL;
    u->landings.count = 0;
    for (size_t k = 0; k < u->s->nreducers; k++) {
        const lierne_reducer *r = &u->b->reducers.at[u->s->reducers + k];
        u->sums = r->rank == p->rank && r->size > 0 ? r : u->sums;
    }
    bool held = lierne_in_cell(p->from, p->rank, &u->s->pair.from);
    for (int partial = 0; u->sums && partial < p->from->partials; partial++) {
        int64_t landing = -1;
        if (!held || partial != lierne_layout_partial(p->from, p->rank)) {
            LIERNE_TRY(lierne_route_scratch(p->route, u->sums->size, &landing));
        }
        LIERNE_TRY(LIERNE_VEC_PUSH(&u->landings, landing));
    }
    return LIERNE_OK;
}

/* The sum of one box of a chunk that begins `offset` elements into what this rank sums. */
static lierne_status add_sum(builder *u, lierne_stage *stage, const lierne_overlap *box,
                             int64_t offset) {
    lierne_op *op;
    LIERNE_TRY(lierne_ops_add(&stage->sums, lierne_place_box(u->p, box, LIERNE_BUFFER_OUT), &op));
    for (int partial = 0; partial < u->p->from->partials; partial++) {
        lierne_place from = lierne_place_box(u->p, box, LIERNE_BUFFER_IN);
        int64_t landing = u->landings.at[partial];
        if (landing >= 0) {
            from = lierne_place_at(LIERNE_BUFFER_SCRATCH,
                                   lierne_block_packed(&from.block, landing + offset));
        }
        LIERNE_TRY(lierne_op_add(op, from));
    }
    return lierne_op_join(op);
}

static lierne_status add_sums(builder *u) {
    int64_t size = u->sums ? u->sums->size : 0;
    for (int64_t c = 0; c < u->chunks && size > 0; c++) {
        int64_t at = first_of(size, u->chunks, c), end = first_of(size, u->chunks, c + 1);
        LIERNE_TRY(lierne_cell_overlap_take(u->p, &u->x, u->sums->start + at, end - at));
        for (size_t i = 0; i < u->x.part.count; i++) {
            const lierne_overlap *box = &u->x.part.at[i];
            LIERNE_TRY(add_sum(u, stage_of(u, c), box, at));
            at += lierne_overlap_elements(u->p->from->naxes, box);
        }
    }
    return LIERNE_OK;
}

/* Without contributions, what the rank itself holds of what it needs. */
static lierne_status add_copies(builder *u) {
    for (size_t i = 0; i < u->x.boxes.count; i++) {
        const lierne_overlap *box = &u->x.boxes.at[i];
        lierne_place from = lierne_place_box(u->p, box, LIERNE_BUFFER_IN);
        LIERNE_TRY(lierne_ops_put(&stage_of(u, 0)->copies,
                                  lierne_place_box(u->p, box, LIERNE_BUFFER_OUT), false, &from, 1));
    }
    return LIERNE_OK;
}

static lierne_status add_overlap(builder *u, bool holds, bool needs) {
    lierne_planner *p = u->p;
    u->chunks = lierne_balance_chunks(u->b, p, u->s);
    LIERNE_TRY(lierne_cell_overlap_fill(p, &u->x));
    LIERNE_TRY(lierne_cell_overlap_choose(p, &u->x));
    p->min_elements += lierne_cell_overlap_bound(p, &u->x);
    LIERNE_TRY(open_sums(u));
    for (size_t i = 0; i < u->s->ndeliveries; i++) {
        LIERNE_TRY(add_delivery(u, &u->b->deliveries.at[u->s->deliveries + i]));
    }
    LIERNE_TRY(add_sums(u));
    return p->from->partials == 1 && holds && needs ? add_copies(u) : LIERNE_OK;
}

/* Adds what this rank does of balanced overlaps. */
static lierne_status add_overlaps(lierne_planner *p, const lierne_balance *b) {
    lierne_status status = LIERNE_OK;
    for (size_t i = 0; i < b->shared.count && status == LIERNE_OK; i++) {
        const lierne_pair *pair = &b->shared.at[i].pair;
        builder u = {.p = p,
                     .b = b,
                     .s = &b->shared.at[i],
                     .x = {.from = pair->from, .to = pair->to}};
        bool holds = lierne_in_cell(p->from, p->rank, &pair->from);
        bool needs = lierne_in_cell(p->to, p->rank, &pair->to);
        status = holds || needs ? add_overlap(&u, holds, needs) : LIERNE_OK;
        lierne_cell_overlap_clear(&u.x);
        lierne_mem_free(u.landings.at);
        lierne_mem_free(u.transfers.at);
    }
    return status;
}

/* Whether AUTO balances: where that takes less time by the links of the context. */
static lierne_status is_worth_it(lierne_planner *p, const lierne_balance *b) {
    p->balanced = p->routing == LIERNE_ROUTING_BALANCED;
    if (p->balanced) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_cost_compare(&p->direct_ns, &p->balanced_ns, p, b));
    p->balanced = p->balanced_ns < p->direct_ns;
    return LIERNE_OK;
}

static lierne_status balance_all(lierne_planner *p, const lierne_pairs *pairs) {
    lierne_balance b;
    lierne_status status = lierne_balance_create(&b, p, pairs->at, pairs->count);
    if (status == LIERNE_OK) {
        status = is_worth_it(p, &b);
    }
    if (status == LIERNE_OK && p->balanced) {
        status = add_overlaps(p, &b);
    }
    lierne_balance_destroy(&b);
    return status;
}

/* Balances overlap by overlap: where all together would be too many. */
static lierne_status balance_each(lierne_planner *p, const lierne_pairs *pairs) {
    lierne_status status = LIERNE_OK;
    p->balanced = p->routing == LIERNE_ROUTING_BALANCED;
    for (size_t i = 0; i < pairs->count && p->balanced && status == LIERNE_OK; i++) {
        lierne_balance b;
        status = lierne_balance_create(&b, p, &pairs->at[i], 1);
        if (status == LIERNE_OK) {
            status = add_overlaps(p, &b);
        }
        lierne_balance_destroy(&b);
    }
    return status;
}

static lierne_status add_stages(lierne_planner *p) {
    lierne_stage *stage;
    for (int i = 0; i < DEPTH + LIERNE_BALANCE_CHUNKS - 1; i++) {
        LIERNE_TRY(lierne_route_add_stage(p->route, &stage));
    }
    return LIERNE_OK;
}

static bool is_empty(const lierne_stage *stage) {
    return stage->sends.count + stage->recvs.count + stage->copies.count + stage->sums.count == 0;
}

/* On one node whose links cost nothing, AUTO need not compare. */
static bool is_free_inside(const lierne_planner *p) {
    const lierne_link *link = &p->links.same_node;
    return p->routing == LIERNE_ROUTING_AUTO && !p->nodes && link->latency_ns == 0 &&
           link->megabytes_per_second == 0;
}

lierne_status lierne_balanced_fill(lierne_planner *p) {
    lierne_pairs pairs = {0};
    bool all = true;
    if (p->routing == LIERNE_ROUTING_DIRECT || is_free_inside(p)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_pairs_find(&pairs, &all, p);
    if (status == LIERNE_OK) {
        status = add_stages(p);
    }
    if (status == LIERNE_OK) {
        status = all ? balance_all(p, &pairs) : balance_each(p, &pairs);
    }
    lierne_mem_free(pairs.at);
    size_t *count = &p->route->stages.count;
    while (*count > (p->balanced ? 1 : 0) && is_empty(&p->route->stages.at[*count - 1])) {
        --*count;
    }
    return status;
}
