/* The route from one layout to another, by intersection of their cells.
 *
 * A cell of the source and a cell of the destination that have elements in common are an overlap.
 * Each rank plans every overlap that it is part of, from coordinates alone and with the same result
 * on all of these ranks: the reducers (the receivers that put the elements together), the sender of
 * each contribution, and what reducers send to the other receivers.
 *
 * Without PARTIAL every receiver is the reducer of one contribution. With P contributions and N
 * receivers, every receiver as its own reducer would move N(P-1) elements or more; where this
 * exceeds (P-1)+(N-1), the elements are divided among the receivers that hold a contribution. Each
 * of them reduces its part and sends it to the other receivers in a second stage. Fan-in, fan-out,
 * uneven shares, pipeline stages and disjoint grids need no case of their own.
 */
#include "layout/layout.h"
#include "plan/redistribute/balanced.h"
#include "plan/redistribute/halo_terms.h"
#include "plan/redistribute/planner.h"
#include "plan/redistribute/redistribute.h"
#include "plan/redistribute/redistribute_check.h"
#include "plan/redistribute/redistribute_shared.h"
#include "plan/redistribute/tokens.h"
#include "route/relay.h"

static lierne_stage *stage_of(const lierne_planner *p, size_t i) {
    return &p->route->stages.at[i];
}

/* Cuts a box along its outermost axis that is long enough, so that parts stay contiguous. */
static int dividing_axis(int naxes, const lierne_overlap *o, int64_t n) {
    int longest = 0;
    for (int a = 0; a < naxes; a++) {
        if (o->size[a] >= n) {
            return a;
        }
        longest = o->size[a] > o->size[longest] ? a : longest;
    }
    return longest;
}

/* Sets x->part to what reducer k puts together. */
static lierne_status take_part(const lierne_planner *p, lierne_cell_overlap *x, size_t k) {
    int64_t n = x->divided ? (int64_t)x->reducers.count : 1, i = x->divided ? (int64_t)k : 0;
    if (p->shared) {
        lierne_cell_overlap_share(p, x, k, &n, &i);
    }
    x->part.count = 0;
    x->part_elements = 0;
    for (size_t b = 0; b < x->boxes.count; b++) {
        lierne_overlap o = x->boxes.at[b];
        int a = dividing_axis(p->from->naxes, &o, n);
        int64_t from = lierne_share(o.size[a], n, i);
        int64_t to = lierne_share(o.size[a], n, i + 1);
        o.start[a] += from;
        o.local_a[a] += from;
        o.local_b[a] += from;
        o.size[a] = to - from;
        if (to > from) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&x->part, o));
            x->part_elements += lierne_overlap_elements(p->from->naxes, &o);
        }
    }
    return LIERNE_OK;
}

static lierne_status add_sends(const lierne_planner *p, lierne_cell_overlap *x) {
    /* Replicas that all hold the value send nothing; there may be many of them. */
    if (!lierne_in_cell(p->from, p->rank, &x->from) || (p->from->partials == 1 && x->all_hold)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_cell_overlap_assign(p, x, lierne_layout_partial(p->from, p->rank)));
    for (size_t k = 0; k < x->reducers.count; k++) {
        if (x->senders.at[k] == p->rank && x->reducers.at[k] != p->rank) {
            LIERNE_TRY(take_part(p, x, k));
            LIERNE_TRY(
                lierne_add_part(p, x, &stage_of(p, 0)->sends, x->reducers.at[k], LIERNE_BUFFER_IN,
                                p->from->partials > 1 ? LIERNE_BUFFER_SCRATCH : LIERNE_BUFFER_OUT));
        }
    }
    return LIERNE_OK;
}

/* One contribution, held or received where it belongs. */
static lierne_status take_single(const lierne_planner *p, lierne_cell_overlap *x, int sender) {
    lierne_stage *stage = stage_of(p, 0);
    if (sender != p->rank) {
        return lierne_add_part(p, x, &stage->recvs, sender, LIERNE_BUFFER_OUT, LIERNE_BUFFER_IN);
    }
    for (size_t b = 0; b < x->part.count; b++) {
        lierne_place to = lierne_place_box(p, &x->part.at[b], LIERNE_BUFFER_OUT),
                     from = lierne_place_box(p, &x->part.at[b], LIERNE_BUFFER_IN);
        LIERNE_TRY(lierne_ops_put(&stage->copies, to, false, &from, 1));
    }
    return lierne_add_images(p, &x->shown, stage, true);
}

/* The operations of the part at work, a source each for one more contribution. */
static lierne_status add_sources(const lierne_planner *p, const lierne_cell_overlap *x,
                                 size_t first_op, int64_t landing, bool own) {
    lierne_stage *stage = stage_of(p, 0);
    for (size_t b = 0; b < x->part.count; b++) {
        lierne_place from = lierne_place_box(p, &x->part.at[b], LIERNE_BUFFER_IN);
        if (!own) {
            from =
                lierne_place_at(LIERNE_BUFFER_SCRATCH, lierne_block_packed(&from.block, landing));
            landing += lierne_block_elements(&from.block);
        }
        LIERNE_TRY(lierne_op_add(&stage->sums.at[first_op + b], from));
    }
    return LIERNE_OK;
}

static lierne_status take_contribution(const lierne_planner *p, lierne_cell_overlap *x, size_t k,
                                       int partial, size_t first_op) {
    int64_t landing = 0;
    LIERNE_TRY(lierne_cell_overlap_assign(p, x, partial));
    int sender = x->senders.at[k];
    if (sender != p->rank) {
        lierne_message *message;
        LIERNE_TRY(lierne_route_scratch(p->route, x->part_elements, &landing));
        LIERNE_TRY(
            lierne_messages_add(&stage_of(p, 0)->recvs, sender, LIERNE_BUFFER_SCRATCH, &message));
        LIERNE_TRY(lierne_message_add(message, lierne_block_range(landing, x->part_elements)));
    }
    return add_sources(p, x, first_op, landing, sender == p->rank);
}

static lierne_status take_sum(const lierne_planner *p, lierne_cell_overlap *x, size_t k) {
    lierne_stage *stage = stage_of(p, 0);
    size_t first_op = stage->sums.count;
    if (x->part_elements == 0) {
        return LIERNE_OK;
    }
    for (size_t b = 0; b < x->part.count; b++) {
        lierne_op *op;
        LIERNE_TRY(lierne_ops_add(&stage->sums,
                                  lierne_place_box(p, &x->part.at[b], LIERNE_BUFFER_OUT), &op));
    }
    for (int partial = 0; partial < p->from->partials; partial++) {
        LIERNE_TRY(take_contribution(p, x, k, partial, first_op));
    }
    for (size_t b = 0; b < x->part.count; b++) {
        LIERNE_TRY(lierne_op_join(&stage->sums.at[first_op + b]));
    }
    return LIERNE_OK;
}

static lierne_status add_receives(const lierne_planner *p, lierne_cell_overlap *x) {
    for (size_t k = 0; k < x->reducers.count; k++) {
        if (x->reducers.at[k] != p->rank) {
            continue;
        }
        LIERNE_TRY(take_part(p, x, k));
        LIERNE_TRY(p->shared ? lierne_shared_add_part(p, x) : LIERNE_OK);
        if (p->from->partials > 1) {
            return take_sum(p, x, k);
        }
        LIERNE_TRY(lierne_cell_overlap_assign(p, x, 0));
        return take_single(p, x, x->senders.at[k]);
    }
    return LIERNE_OK;
}

/* Copies of what has arrived or was summed; those of what the rank holds are made before. */
static lierne_status add_images(const lierne_planner *p, const lierne_cell_overlap *x) {
    bool receives = lierne_ranks_have(x->receivers.at, x->receivers.count, p->rank);
    bool own = p->from->partials == 1 && lierne_in_cell(p->from, p->rank, &x->from);
    if (!receives || own) {
        return LIERNE_OK;
    }
    return lierne_add_images(p, &x->shown, stage_of(p, x->divided), false);
}

/* Second stage: reducers send their parts to the other receivers. */
static lierne_status redistribute_sums(const lierne_planner *p, lierne_cell_overlap *x) {
    lierne_stage *stage = stage_of(p, 1);
    if (!x->divided || !lierne_ranks_have(x->receivers.at, x->receivers.count, p->rank)) {
        return LIERNE_OK;
    }
    for (size_t k = 0; k < x->reducers.count; k++) {
        int reducer = x->reducers.at[k];
        LIERNE_TRY(take_part(p, x, k));
        if (reducer != p->rank) {
            LIERNE_TRY(lierne_add_part(p, x, &stage->recvs, reducer, LIERNE_BUFFER_OUT,
                                       LIERNE_BUFFER_OUT));
            continue;
        }
        for (size_t i = 0; i < x->receivers.count; i++) {
            if (x->receivers.at[i] != reducer) {
                LIERNE_TRY(lierne_add_part(p, x, &stage->sends, x->receivers.at[i],
                                           LIERNE_BUFFER_OUT, LIERNE_BUFFER_OUT));
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status plan_overlap(lierne_planner *p, lierne_cell_overlap *x) {
    bool survives;
    LIERNE_TRY(lierne_cell_overlap_fill(p, x));
    p->needs = lierne_has_margins(p->to) ? &x->needs : NULL;
    LIERNE_TRY(lierne_layout_survives(&survives, p->from, &x->from));
    if (x->elements == 0 || !survives) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_cell_overlap_choose(p, x));
    if (x->receivers.count == 0) { /* gradients of ranks that did not survive */
        return LIERNE_OK;
    }
    p->min_elements += lierne_cell_overlap_bound(p, x);
    LIERNE_TRY(add_receives(p, x));
    LIERNE_TRY(add_sends(p, x));
    LIERNE_TRY(redistribute_sums(p, x));
    return add_images(p, x);
}

static lierne_status plan_cells(lierne_planner *p, const lierne_cell *from, const lierne_cell *to) {
    lierne_cell_overlap x = {.from = *from, .to = *to};
    lierne_status status = plan_overlap(p, &x);
    p->needs = NULL;
    lierne_cell_overlap_clear(&x);
    return status;
}

/* Plans all overlaps of the rank's own cell of one layout with cells of the other layout. */
static lierne_status plan_cells_of(lierne_planner *p, const lierne_cell *own_from,
                                   const lierne_cell *own_to, bool as_receiver) {
    lierne_cells cells = {0};
    const lierne_cell *own = as_receiver ? own_to : own_from;
    lierne_status status = lierne_layout_overlapping(&cells, as_receiver ? p->from : p->to,
                                                     as_receiver ? p->to : p->from, own);
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        const lierne_cell *other = &cells.at[i];
        if (as_receiver) {
            status = plan_cells(p, other, own);
        } else if (!own_to || !lierne_same_cell(p->to, other, own_to)) { /* planned as a receiver */
            status = plan_cells(p, own, other);
        }
    }
    lierne_mem_free(cells.at);
    return status;
}

static lierne_status plan_overlaps(lierne_planner *p, const lierne_cell *own_from,
                                   const lierne_cell *own_to, bool as_receiver) {
    const lierne_layout *const layouts[2] = {p->from, p->to};
    const lierne_cell *own = as_receiver ? own_to : own_from;
    lierne_tokens tokens;
    if (!own) {
        return LIERNE_OK;
    }
    if (lierne_tokens_axis(p->from, p->to) < 0) {
        return plan_cells_of(p, own_from, own_to, as_receiver);
    }
    lierne_status status =
        lierne_tokens_create(&tokens, layouts, as_receiver, own, as_receiver ? own_from : own_to);
    if (status == LIERNE_OK) {
        p->tokens = &tokens;
        status = plan_cells_of(p, own_from, own_to, as_receiver);
        p->tokens = NULL;
    }
    lierne_tokens_destroy(&tokens);
    return status;
}

static lierne_status fill_route(lierne_planner *p) {
    lierne_cell own_from, own_to;
    lierne_stage *stage;
    bool holds = lierne_layout_cell(p->from, p->rank, &own_from);
    bool receives = lierne_layout_cell(p->to, p->rank, &own_to);
    const lierne_cell *from = holds ? &own_from : NULL, *to = receives ? &own_to : NULL;
    LIERNE_TRY(lierne_layout_get_shape(p->in_shape, p->from, p->rank));
    LIERNE_TRY(lierne_layout_get_shape(p->out_shape, p->to, p->rank));
    LIERNE_TRY(p->shared ? lierne_shared_begin(p, to) : lierne_balanced_fill(p));
    if (p->balanced) {
        return lierne_add_padding(p, to);
    }
    LIERNE_TRY(lierne_route_add_stage(p->route, &stage));
    LIERNE_TRY(lierne_route_add_stage(p->route, &stage));
    LIERNE_TRY(plan_overlaps(p, from, to, true));
    LIERNE_TRY(plan_overlaps(p, from, to, false));
    p->core_sends = stage_of(p, 0)->sends.count;
    LIERNE_TRY(p->margins ? lierne_add_terms(p, from, to) : LIERNE_OK);
    /* Only sums need the second stage. */
    stage = stage_of(p, p->route->stages.count - 1);
    if (p->route->stages.count > 1 && stage->sends.count == 0 && stage->recvs.count == 0) {
        p->route->stages.count--;
    }
    LIERNE_TRY(lierne_add_padding(p, to));
    return p->shared ? lierne_shared_end(p) : LIERNE_OK;
}

static lierne_status check_layouts(const lierne_layout *src, const lierne_layout *dst, int rank) {
    if (!src || !dst) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", src ? "dst" : "src");
    }
    LIERNE_TRY(lierne_redistribute_check_pair(src, "src", dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_source(src, "src", dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_complete(dst, "dst"));
    if (rank < 0 || rank >= src->world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank is %d, must be in 0 to %d", rank,
                           src->world - 1);
    }
    return LIERNE_OK;
}

/* Makes the route of a planner whose layouts were checked. */
static lierne_status create_route(lierne_planner *p) {
    int64_t in, out;
    LIERNE_TRY(lierne_layout_get_elements(&in, NULL, p->from, p->rank));
    LIERNE_TRY(lierne_layout_get_elements(&out, NULL, p->to, p->rank));
    LIERNE_TRY(lierne_route_create(&p->route, p->rank, in, out));
    lierne_status status = fill_route(p);
    if (status != LIERNE_OK) {
        lierne_route_destroy(p->route);
        return status;
    }
    p->route->dtype = p->from->dtype;
    return LIERNE_OK;
}

lierne_status lierne_route_create_redistribute(lierne_route **out, int64_t *min_elements,
                                               const lierne_layout *src, const lierne_layout *dst,
                                               int rank, const int *nodes) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_layout source;
    lierne_planner p = {
        .from = &source, .to = dst, .nodes = nodes, .rank = rank, .routing = LIERNE_ROUTING_DIRECT};
    LIERNE_TRY(lierne_check_set(out, "route"));
    LIERNE_TRY(check_layouts(src, dst, rank));
    source = lierne_layout_as_source(src);
    p.members = (lierne_members){.world = src->world, .count = src->world};
    LIERNE_TRY(create_route(&p));
    if (min_elements) {
        *min_elements = p.min_elements;
    }
    *out = p.route;
    return LIERNE_OK;
}

lierne_status lierne_tensor_route_create(lierne_tensor_route *out, const lierne_layout *src,
                                         const lierne_layout *dst, int rank, bool adjoint) {
    const lierne_layout source = lierne_layout_as_source(src), cores = lierne_layout_as_source(dst);
    lierne_planner p = {.from = adjoint ? &cores : &source,
                        .to = adjoint ? &source : dst,
                        .margins = adjoint && dst->halos ? dst : NULL,
                        .members = {.world = src->world, .count = src->world},
                        .rank = rank,
                        .routing = LIERNE_ROUTING_DIRECT};
    LIERNE_TRY(create_route(&p));
    *out = (lierne_tensor_route){p.route, p.min_elements, p.core_sends};
    return LIERNE_OK;
}

/* The direct route of another rank. */
static lierne_status route_of(const void *user, int rank, lierne_route **route) {
    lierne_planner p = *(const lierne_planner *)user;
    p.rank = rank;
    p.min_elements = 0;
    LIERNE_TRY(create_route(&p));
    *route = p.route;
    return LIERNE_OK;
}

int lierne_redistribute_ranks(int *ranks, const lierne_layout *from, const lierne_layout *to) {
    int n = 0;
    for (int rank = 0; rank < from->world; rank++) {
        bool has = lierne_layout_index(from, rank) >= 0 || lierne_layout_index(to, rank) >= 0;
        ranks[n] = rank;
        n += has;
    }
    return n;
}

static lierne_status limit_peers(lierne_plan_side *side, const lierne_planner *p, int max_peers) {
    int *ranks;
    if (max_peers == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&ranks, (size_t)p->from->world + 1, sizeof *ranks));
    int n = lierne_redistribute_ranks(ranks, p->from, p->to);
    const lierne_relay relay = {.square = lierne_square_of(ranks, n), .get = route_of, .user = p};
    lierne_status status =
        lierne_route_limit_peers(&side->route, &side->relayed, &relay, max_peers);
    lierne_mem_free(ranks);
    return status;
}

lierne_status lierne_plan_side_redistribute(lierne_plan_side *side, const lierne_context *context,
                                            const lierne_layout *from, const lierne_layout *to,
                                            const lierne_side_rules *rules) {
    const lierne_planner start = {.from = from,
                                  .to = to,
                                  .nodes = context->nodes,
                                  .members = context->members,
                                  .rank = context->rank,
                                  .routing = rules->routing,
                                  .links = context->links,
                                  .margins = rules->margins,
                                  .shared = rules->shared && lierne_context_shares(context),
                                  .side = side};
    lierne_planner p = start;
    side->shared = rules->shared;
    LIERNE_TRY(lierne_plan_side_fill(side, p.rank, from, to));
    LIERNE_TRY(create_route(&p));
    side->route = p.route;
    LIERNE_TRY(limit_peers(side, &start, rules->max_peers));
    side->min_elements = p.min_elements;
    side->balanced = p.balanced;
    side->direct_ns = p.direct_ns;
    side->balanced_ns = p.balanced_ns;
    return LIERNE_OK;
}
