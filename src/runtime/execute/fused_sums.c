/* Sums that read their contributions where the sender exposes them.
 *
 * A contribution of another rank is received into scratch and summed from there. Where a transport
 * exposes it, the copy into scratch can go: the sum reads the sender's blocks, and the message is
 * released after it. The order of contributions is that of the route, so the bits are the same, and
 * contributions that other transports bring still come from scratch.
 *
 * What is decided when the execution is prepared: whether a message into scratch is read by sums of
 * its own phase alone, and from which messages each row of a sum comes; sums over rows of several
 * messages are divided where the message changes. What is decided in a call, because blocks are the
 * sender's and its data may have been delivered instead: as which block a source lies there. If it
 * is none, the message is copied after all.
 *
 * Where sums wait for a send of their phase that is exposed, no message is held back: that peer may
 * wait for this rank in the same way. */
#include "runtime/execute/fused_sums.h"

#include <stdlib.h>

static lierne_range extent(const lierne_block *block) {
    lierne_range r = {0, 0};
    lierne_range_extend(&r, block);
    return r;
}

static bool overlap(const lierne_range *a, const lierne_range *b) {
    return a->first < b->end && b->first < a->end;
}

static void exclude(lierne_fused_sums *f, const lierne_fused_stage *s, const lierne_range *r) {
    for (size_t i = s->first_landing; i < s->first_landing + s->nlandings; i++) {
        f->landings.at[i].direct &= !overlap(&f->landings.at[i].range, r);
    }
}

static void exclude_place(lierne_fused_sums *f, const lierne_fused_stage *s,
                          const lierne_place *place) {
    if (place->buffer == LIERNE_BUFFER_SCRATCH) {
        lierne_range r = extent(&place->block);
        exclude(f, s, &r);
    }
}

static void exclude_ops(lierne_fused_sums *f, const lierne_fused_stage *s, const lierne_ops *ops,
                        bool sources) {
    for (size_t o = 0; o < ops->count; o++) {
        exclude_place(f, s, &ops->at[o].to);
        for (size_t i = 0; sources && i < ops->at[o].from.count; i++) {
            exclude_place(f, s, &ops->at[o].from.at[i]);
        }
    }
}

/* Everything that touches a landing, but the sums that read it. */
static void exclude_uses(lierne_fused_sums *f, const lierne_fused_stage *s,
                         const lierne_route *route, size_t stage) {
    exclude_ops(f, s, &route->stages.at[stage].copies, true);
    exclude_ops(f, s, &route->stages.at[stage].sums, false);
    for (size_t i = stage + 1; i < route->stages.count; i++) {
        const lierne_stage *later = &route->stages.at[i];
        exclude_ops(f, s, &later->copies, true);
        exclude_ops(f, s, &later->sums, true);
        for (size_t m = 0; m < later->sends.count; m++) {
            const lierne_message *message = &later->sends.at[m];
            for (size_t b = 0; b < message->blocks.count; b++) {
                lierne_place place = lierne_place_at(message->buffer, message->blocks.at[b]);
                exclude_place(f, s, &place);
            }
        }
    }
}

/* Index of the direct landing that a range is in; -1 if it is in none. A range that is partly in
 * one excludes it. */
static int64_t find_landing(lierne_fused_sums *f, const lierne_fused_stage *s,
                            const lierne_range *r) {
    size_t low = s->first_landing, high = low + s->nlandings;
    while (low < high) { /* the first that ends after the range begins */
        size_t middle = low + (high - low) / 2;
        if (f->landings.at[middle].range.end <= r->first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == s->first_landing + s->nlandings || !overlap(&f->landings.at[low].range, r)) {
        return -1;
    }
    const lierne_landing *l = &f->landings.at[low];
    if (r->first < l->range.first || r->end > l->range.end) {
        exclude(f, s, r);
        return -1;
    }
    return l->direct ? (int64_t)low : -1;
}

static int64_t landing_at(lierne_fused_sums *f, const lierne_fused_stage *s,
                          const lierne_place *from, int64_t first, int64_t count) {
    if (from->buffer != LIERNE_BUFFER_SCRATCH) {
        return -1;
    }
    lierne_block rows = lierne_block_part(&from->block, first, count);
    lierne_range r = extent(&rows);
    return find_landing(f, s, &r);
}

static bool has_list(const lierne_op *op) {
    bool list = op->to.block.rows != NULL;
    for (size_t i = 0; i < op->from.count; i++) {
        list |= op->from.at[i].block.rows != NULL;
    }
    return list;
}

/* Whether row k of a source is in a landing, or, where that is -1, in none. */
static bool is_in(lierne_fused_sums *f, const lierne_fused_stage *s, const lierne_place *from,
                  int64_t k, int64_t landing) {
    const lierne_block *b = &from->block;
    if (landing < 0) {
        return landing_at(f, s, from, k, 1) < 0;
    }
    const lierne_range *in = &f->landings.at[landing].range;
    int64_t first = b->offset + (b->rows ? b->rows[k] : k) * b->stride[0];
    return first >= in->first && first + (b->count[1] - 1) * b->stride[1] < in->end;
}

/* Adds the rows of a sum from first on whose sources are each in one landing; *count: how many. */
static lierne_status add_run(lierne_fused_sums *f, const lierne_fused_stage *s, const lierne_op *op,
                             int64_t first, int64_t *count) {
    bool list = has_list(op), same = list;
    lierne_fused_op fused = {op, first, list ? 1 : -1, f->op_landings.count};
    for (size_t i = 0; i < op->from.count; i++) {
        int64_t landing = landing_at(f, s, &op->from.at[i], first, fused.count);
        LIERNE_TRY(LIERNE_VEC_PUSH(&f->op_landings, landing));
    }
    const int64_t *landings = f->op_landings.at + fused.landings;
    for (*count = 1; list && first + *count < op->to.block.count[0]; ++*count) {
        for (size_t i = 0; same && i < op->from.count; i++) {
            same = is_in(f, s, &op->from.at[i], first + *count, landings[i]);
        }
        if (!same) {
            break;
        }
    }
    fused.count = list ? *count : -1;
    return LIERNE_VEC_PUSH(&f->ops, fused);
}

static lierne_status add_sum(lierne_fused_sums *f, const lierne_fused_stage *s,
                             const lierne_op *op) {
    int64_t n = has_list(op) ? op->to.block.count[0] : 1;
    for (int64_t k = 0, count; k < n; k += count) {
        LIERNE_TRY(add_run(f, s, op, k, &count));
    }
    return LIERNE_OK;
}

/* Adds a sum of a stage without direct landings. */
static lierne_status add_whole(lierne_fused_sums *f, const lierne_op *op) {
    lierne_fused_op whole = {op, 0, -1, f->op_landings.count};
    for (size_t i = 0; i < op->from.count; i++) {
        int64_t none = -1;
        LIERNE_TRY(LIERNE_VEC_PUSH(&f->op_landings, none));
    }
    return LIERNE_VEC_PUSH(&f->ops, whole);
}

/* Adds a sum on trial. One whose rows change messages so often is not worth dividing: it reads
 * scratch. */
static lierne_status check_sum(lierne_fused_sums *f, const lierne_fused_stage *s,
                               const lierne_op *op) {
    size_t nops = f->ops.count, nlandings = f->op_landings.count;
    LIERNE_TRY(add_sum(f, s, op));
    bool worthwhile = f->ops.count - nops <= 2 * s->nlandings + 1;
    f->ops.count = nops;
    f->op_landings.count = nlandings;
    for (size_t i = 0; !worthwhile && i < op->from.count; i++) {
        exclude_place(f, s, &op->from.at[i]);
    }
    return LIERNE_OK;
}

static int by_range(const void *a, const void *b) {
    int64_t x = ((const lierne_landing *)a)->range.first;
    int64_t y = ((const lierne_landing *)b)->range.first;
    return (x > y) - (x < y);
}

/* What the subroute receives into scratch in a phase over transports that expose. */
static lierne_status list_landings(lierne_fused_sums *f, const lierne_execution *e,
                                   const lierne_phase *phase, const lierne_subroute *subroute,
                                   lierne_fused_stage *s) {
    s->first_landing = f->landings.count;
    for (size_t i = phase->first; i < phase->first + phase->nrecvs; i++) {
        const lierne_coalesced_message *m = &e->messages.at[i];
        for (size_t k = m->first; lierne_execution_exposes(e, m) && k < m->first + m->count; k++) {
            const lierne_message *message = e->segments.at[k].message;
            if (e->segments.at[k].subroute == subroute &&
                message->buffer == LIERNE_BUFFER_SCRATCH && message->blocks.count == 1) {
                lierne_landing l = {.range = extent(&message->blocks.at[0]), .segment = k};
                l.direct = l.range.end - l.range.first == message->elements;
                LIERNE_TRY(LIERNE_VEC_PUSH(&f->landings, l));
            }
        }
    }
    s->nlandings = f->landings.count - s->first_landing;
    return LIERNE_OK;
}

/* Two messages into one place: neither is direct. */
static void sort_landings(lierne_fused_sums *f, const lierne_fused_stage *s) {
    lierne_landing *at = f->landings.at + s->first_landing;
    if (s->nlandings > 0) {
        qsort(at, s->nlandings, sizeof *at, by_range);
    }
    for (size_t i = 1; i < s->nlandings; i++) {
        bool apart = at[i - 1].range.end <= at[i].range.first;
        at[i - 1].direct &= apart;
        at[i].direct &= apart;
    }
}

static bool any_direct(const lierne_fused_sums *f, const lierne_fused_stage *s) {
    bool any = false;
    for (size_t i = s->first_landing; i < s->first_landing + s->nlandings; i++) {
        any |= f->landings.at[i].direct;
    }
    return any;
}

static lierne_status prepare_stage(lierne_fused_sums *f, const lierne_execution *e, size_t i,
                                   const lierne_subroute *subroute, lierne_fused_stage *s) {
    if (i >= subroute->route->stages.count) {
        return LIERNE_OK;
    }
    const lierne_ops *sums = &subroute->route->stages.at[i].sums;
    LIERNE_TRY(list_landings(f, e, &e->phases.at[i], subroute, s));
    sort_landings(f, s);
    exclude_uses(f, s, subroute->route, i);
    for (size_t o = 0; any_direct(f, s) && o < sums->count; o++) {
        LIERNE_TRY(check_sum(f, s, &sums->at[o]));
    }
    s->first_op = f->ops.count;
    s->direct = any_direct(f, s);
    for (size_t o = 0; o < sums->count; o++) {
        LIERNE_TRY(s->direct ? add_sum(f, s, &sums->at[o]) : add_whole(f, &sums->at[o]));
    }
    s->nops = f->ops.count - s->first_op;
    return LIERNE_OK;
}

static lierne_status prepare_sums(lierne_fused_sums *f, const lierne_execution *e) {
    size_t n = e->phases.count * e->nsubroutes;
    LIERNE_TRY(lierne_alloc(&f->stages, n, sizeof *f->stages));
    LIERNE_TRY(lierne_alloc(&f->landing_of, e->segments.count, sizeof *f->landing_of));
    LIERNE_TRY(lierne_alloc(&f->held, e->messages.count, sizeof *f->held));
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(prepare_stage(f, e, i / e->nsubroutes, &e->subroutes[i % e->nsubroutes],
                                 &f->stages[i]));
    }
    for (size_t i = 0; i < e->segments.count; i++) {
        f->landing_of[i] = -1;
    }
    for (size_t i = 0; i < f->landings.count; i++) {
        if (f->landings.at[i].direct) {
            f->landing_of[f->landings.at[i].segment] = (int64_t)i;
        }
    }
    size_t most = 0;
    for (size_t i = 0; i < f->ops.count; i++) {
        size_t sources = f->ops.at[i].op->from.count;
        most = sources > most ? sources : most;
    }
    LIERNE_TRY(lierne_alloc(&f->blocks, most + 1, sizeof *f->blocks));
    return lierne_alloc(&f->bases, most, sizeof *f->bases);
}

static bool any_exposes(const lierne_execution *e) {
    bool any = false;
    for (int b = 0; b < e->context->ncarriers; b++) {
        any |= e->batches[b].batch && e->batches[b].transport->exposes != NULL;
    }
    return any;
}

lierne_status lierne_fused_sums_create(lierne_execution *e) {
    if (!any_exposes(e)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&e->fused, 1, sizeof *e->fused));
    LIERNE_TRY(prepare_sums(e->fused, e));
    bool direct = false;
    for (size_t i = 0; i < e->phases.count * e->nsubroutes; i++) {
        direct |= e->fused->stages[i].direct;
    }
    if (!direct) {
        lierne_fused_sums_destroy(e->fused);
        e->fused = NULL;
    }
    return LIERNE_OK;
}

void lierne_fused_sums_destroy(lierne_fused_sums *f) {
    if (f) {
        lierne_mem_free(f->landings.at);
        lierne_mem_free(f->ops.at);
        lierne_mem_free(f->op_landings.at);
        lierne_mem_free(f->stages);
        lierne_mem_free(f->landing_of);
        lierne_mem_free(f->blocks);
        lierne_mem_free(f->bases);
        lierne_mem_free(f->held);
        lierne_mem_free(f);
    }
}

bool lierne_fused_sums_hold(const lierne_execution *e, const lierne_coalesced_message *m,
                            size_t segment, const lierne_part *part) {
    lierne_fused_sums *f = e->fused;
    int64_t landing = f->landing_of[segment];
    size_t p = (size_t)(e->segments.at[segment].subroute - e->subroutes);
    if (landing < 0 || !e->cursor.holds || lierne_early_sums_count(e, p) == 0) {
        return false;
    }
    lierne_landing *l = &f->landings.at[landing];
    l->part = part;
    l->cursor = (lierne_part_cursor){0};
    if (f->nheld == 0 || f->held[f->nheld - 1] != m) {
        f->held[f->nheld++] = m;
    }
    return true;
}
