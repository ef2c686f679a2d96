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
 *
 * What one rank sends to another is one message, unless it consists of long pieces. A piece that is
 * contiguous at one end need not be packed there, and packing costs more than a message. Sender and
 * receiver cut alike, because each knows the other's buffer. */
#include "route/route.h"
#include "layout/layout.h"
#include "lierne/redistribute.h"
#include "plan/fields.h"
#include "plan/redistribute/check.h"
#include "plan/redistribute/chunk.h"

/* Bytes of a piece that is worth a message of its own, and that the cache keeps until unpacked. */
enum { LEAST_PIECE = 256 << 10 };

typedef struct planner {
    lierne_route *route;
    const lierne_layout *from;
    const lierne_layout *to;
    const int *nodes; /* of each member, or NULL */
    lierne_members members;
    int rank;
    int64_t in_shape[LIERNE_MAX_AXES];
    int64_t out_shape[LIERNE_MAX_AXES];
    int64_t min_elements;
} planner;

typedef struct overlap {
    lierne_cell from;
    lierne_cell to;
    lierne_overlaps boxes;
    int64_t elements;
    lierne_ranks receivers; /* ascending */
    lierne_ranks reducers;  /* ascending; receivers or some of them */
    bool divided;           /* reducer k sums part k and sends it on */
    bool none_holds;        /* no receiver holds a contribution */
    bool all_hold;          /* every receiver holds one */
    int seed;               /* starts the rotation over replicas */
    lierne_ranks senders;   /* of one contribution, per reducer */
    lierne_overlaps part;   /* of the reducer at work */
    int64_t part_elements;
} overlap;

static lierne_stage *stage_of(const planner *p, size_t i) {
    return &p->route->stages.at[i];
}

static bool contains(const lierne_ranks *ranks, int rank) {
    size_t low = 0, high = ranks->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranks->at[middle] < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < ranks->count && ranks->at[low] == rank;
}

static bool same_cell(const lierne_layout *layout, const lierne_cell *a, const lierne_cell *b) {
    for (int i = 0; i < layout->ncuts; i++) {
        if (a->coords[layout->cuts[i]] != b->coords[layout->cuts[i]]) {
            return false;
        }
    }
    return true;
}

static bool in_cell(const lierne_layout *layout, int rank, const lierne_cell *cell) {
    lierne_cell own;
    return lierne_layout_cell(layout, rank, &own) && same_cell(layout, &own, cell);
}

static int node_of(const planner *p, int rank) {
    return p->nodes[lierne_members_index(&p->members, rank)];
}

/* The holder that sends to a receiver which is no holder: one on the receiver's node if there is
 * one. Holders take turns, so that replicas share the load. */
static int pick(const planner *p, const lierne_ranks *holders, int receiver, int turn) {
    int near = 0, node = p->nodes ? node_of(p, receiver) : 0;
    if (p->nodes) {
        for (size_t i = 0; i < holders->count; i++) {
            near += node_of(p, holders->at[i]) == node;
        }
    }
    if (near == 0) {
        return holders->at[(size_t)turn % holders->count];
    }
    near = turn % near;
    for (size_t i = 0;; i++) {
        if (node_of(p, holders->at[i]) == node && near-- == 0) {
            return holders->at[i];
        }
    }
}

/* Who sends one contribution to each reducer. */
static lierne_status assign(const planner *p, overlap *x, int partial) {
    lierne_ranks holders = {0};
    lierne_status status = lierne_layout_members(p->from, &x->from, partial, &holders);
    int turn = x->seed;
    x->senders.count = 0;
    for (size_t k = 0; k < x->reducers.count && status == LIERNE_OK; k++) {
        int reducer = x->reducers.at[k];
        bool own = contains(&holders, reducer);
        int sender = own ? reducer : pick(p, &holders, reducer, turn);
        turn += !own;
        status = LIERNE_VEC_PUSH(&x->senders, sender);
    }
    lierne_mem_free(holders.at);
    return status;
}

static int cell_index(const lierne_layout *layout, const lierne_cell *cell) {
    int64_t index = 0;
    for (int i = 0; i < layout->ncuts; i++) {
        int d = layout->cuts[i];
        index = (index * layout->sizes[d] + cell->coords[d]) & 0xffff;
    }
    return (int)index;
}

/* Chooses the reducers by the elements that are moved. */
static lierne_status choose_reducers(const planner *p, overlap *x) {
    int64_t holding = 0, n = (int64_t)x->receivers.count, partials = p->from->partials;
    for (size_t i = 0; i < x->receivers.count; i++) {
        holding += in_cell(p->from, x->receivers.at[i], &x->from);
    }
    x->none_holds = holding == 0;
    x->all_hold = holding == n;
    x->divided = n * partials - holding > partials - 1 + n - 1 + x->none_holds;
    for (size_t i = 0; i < x->receivers.count; i++) {
        bool reduces =
            !x->divided || x->none_holds || in_cell(p->from, x->receivers.at[i], &x->from);
        if (reduces) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&x->reducers, x->receivers.at[i]));
        }
    }
    x->seed = cell_index(p->to, &x->to) * (int)(x->reducers.count & 0xff);
    return LIERNE_OK;
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
static lierne_status take_part(const planner *p, overlap *x, size_t k) {
    int64_t n = x->divided ? (int64_t)x->reducers.count : 1, i = x->divided ? (int64_t)k : 0;
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

static lierne_place in_place(const planner *p, const lierne_overlap *o) {
    return lierne_place_at(LIERNE_IN,
                           lierne_block_box(p->from->naxes, p->in_shape, o->local_a, o->size));
}

static lierne_place out_place(const planner *p, const lierne_overlap *o) {
    return lierne_place_at(LIERNE_OUT,
                           lierne_block_box(p->from->naxes, p->out_shape, o->local_b, o->size));
}

static lierne_place place_of(const planner *p, const lierne_overlap *o, lierne_buffer buffer) {
    return buffer == LIERNE_IN ? in_place(p, o) : out_place(p, o);
}

static int64_t least_piece(const planner *p) {
    return LEAST_PIECE / (int64_t)lierne_dtype_size(p->from->dtype);
}

static lierne_chunking cut_of(const planner *p, const lierne_overlap *box, const int64_t *mine,
                              const int64_t *theirs) {
    return lierne_chunking_of(p->from->naxes, box->size, mine, theirs, least_piece(p));
}

/* Whether all pieces of the part at work are long. */
static bool is_worth_cutting(const planner *p, const overlap *x, const int64_t *mine,
                             const int64_t *theirs) {
    for (size_t b = 0; b < x->part.count; b++) {
        if (cut_of(p, &x->part.at[b], mine, theirs).elements < least_piece(p)) {
            return false;
        }
    }
    return true;
}

static lierne_status add_whole(const planner *p, const overlap *x, lierne_messages *messages,
                               int peer, lierne_buffer buffer) {
    lierne_message *message;
    LIERNE_TRY(lierne_messages_add(messages, peer, buffer, &message));
    for (size_t b = 0; b < x->part.count; b++) {
        LIERNE_TRY(lierne_message_add(message, place_of(p, &x->part.at[b], buffer).block));
    }
    return LIERNE_OK;
}

static lierne_status add_pieces(const planner *p, const lierne_overlap *box,
                                const lierne_chunking *cut, lierne_messages *messages, int peer,
                                lierne_buffer buffer) {
    lierne_overlap piece = lierne_chunking_first(box, cut);
    do {
        lierne_message *message;
        LIERNE_TRY(lierne_messages_add(messages, peer, buffer, &message));
        LIERNE_TRY(lierne_message_add(message, place_of(p, &piece, buffer).block));
    } while (lierne_chunking_next(&piece, box, cut));
    return LIERNE_OK;
}

/* The messages of the part at work, of the rank's in or out; at_peer: the buffer at the other end,
 * where contributions land whole. */
static lierne_status add_messages(const planner *p, const overlap *x, lierne_messages *messages,
                                  int peer, lierne_buffer buffer, lierne_buffer at_peer) {
    const int64_t *mine = buffer == LIERNE_IN ? p->in_shape : p->out_shape;
    int64_t theirs[LIERNE_MAX_AXES];
    if (x->part_elements == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_layout_get_shape(theirs, at_peer == LIERNE_IN ? p->from : p->to, peer));
    if (at_peer == LIERNE_SCRATCH || !is_worth_cutting(p, x, mine, theirs)) {
        return add_whole(p, x, messages, peer, buffer);
    }
    for (size_t b = 0; b < x->part.count; b++) {
        const lierne_overlap *box = &x->part.at[b];
        const lierne_chunking cut = cut_of(p, box, mine, theirs);
        LIERNE_TRY(add_pieces(p, box, &cut, messages, peer, buffer));
    }
    return LIERNE_OK;
}

static lierne_status add_sends(const planner *p, overlap *x) {
    /* Replicas that all hold the value send nothing; there may be many of them. */
    if (!in_cell(p->from, p->rank, &x->from) || (p->from->partials == 1 && x->all_hold)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(assign(p, x, lierne_layout_partial(p->from, p->rank)));
    for (size_t k = 0; k < x->reducers.count; k++) {
        if (x->senders.at[k] == p->rank && x->reducers.at[k] != p->rank) {
            LIERNE_TRY(take_part(p, x, k));
            LIERNE_TRY(add_messages(p, x, &stage_of(p, 0)->sends, x->reducers.at[k], LIERNE_IN,
                                    p->from->partials > 1 ? LIERNE_SCRATCH : LIERNE_OUT));
        }
    }
    return LIERNE_OK;
}

/* One contribution, held or received where it belongs. */
static lierne_status take_single(const planner *p, overlap *x, int sender) {
    lierne_stage *stage = stage_of(p, 0);
    if (sender != p->rank) {
        return add_messages(p, x, &stage->recvs, sender, LIERNE_OUT, LIERNE_IN);
    }
    for (size_t b = 0; b < x->part.count; b++) {
        lierne_place to = out_place(p, &x->part.at[b]), from = in_place(p, &x->part.at[b]);
        LIERNE_TRY(lierne_ops_put(&stage->copies, to, false, &from, 1));
    }
    return LIERNE_OK;
}

/* The operations of the part at work, a source each for one more contribution. */
static lierne_status add_sources(const planner *p, const overlap *x, size_t first_op,
                                 int64_t landing, bool own) {
    lierne_stage *stage = stage_of(p, 0);
    for (size_t b = 0; b < x->part.count; b++) {
        lierne_place from = in_place(p, &x->part.at[b]);
        if (!own) {
            from = lierne_place_at(LIERNE_SCRATCH, lierne_block_packed(&from.block, landing));
            landing += lierne_block_elements(&from.block);
        }
        LIERNE_TRY(lierne_op_add(&stage->sums.at[first_op + b], from));
    }
    return LIERNE_OK;
}

static lierne_status take_contribution(const planner *p, overlap *x, size_t k, int partial,
                                       size_t first_op) {
    int64_t landing = 0;
    LIERNE_TRY(assign(p, x, partial));
    int sender = x->senders.at[k];
    if (sender != p->rank) {
        lierne_message *message;
        LIERNE_TRY(lierne_route_scratch(p->route, x->part_elements, &landing));
        LIERNE_TRY(lierne_messages_add(&stage_of(p, 0)->recvs, sender, LIERNE_SCRATCH, &message));
        LIERNE_TRY(lierne_message_add(message, lierne_block_range(landing, x->part_elements)));
    }
    return add_sources(p, x, first_op, landing, sender == p->rank);
}

static lierne_status take_sum(const planner *p, overlap *x, size_t k) {
    lierne_stage *stage = stage_of(p, 0);
    size_t first_op = stage->sums.count;
    if (x->part_elements == 0) {
        return LIERNE_OK;
    }
    for (size_t b = 0; b < x->part.count; b++) {
        lierne_op *op;
        LIERNE_TRY(lierne_ops_add(&stage->sums, out_place(p, &x->part.at[b]), &op));
    }
    for (int partial = 0; partial < p->from->partials; partial++) {
        LIERNE_TRY(take_contribution(p, x, k, partial, first_op));
    }
    for (size_t b = 0; b < x->part.count; b++) {
        LIERNE_TRY(lierne_op_join(&stage->sums.at[first_op + b]));
    }
    return LIERNE_OK;
}

static lierne_status add_receives(const planner *p, overlap *x) {
    for (size_t k = 0; k < x->reducers.count; k++) {
        if (x->reducers.at[k] != p->rank) {
            continue;
        }
        LIERNE_TRY(take_part(p, x, k));
        if (p->from->partials > 1) {
            return take_sum(p, x, k);
        }
        LIERNE_TRY(assign(p, x, 0));
        return take_single(p, x, x->senders.at[k]);
    }
    return LIERNE_OK;
}

/* Second stage: reducers send their parts to the other receivers. */
static lierne_status redistribute_sums(const planner *p, overlap *x) {
    lierne_stage *stage = stage_of(p, 1);
    if (!x->divided || !contains(&x->receivers, p->rank)) {
        return LIERNE_OK;
    }
    for (size_t k = 0; k < x->reducers.count; k++) {
        int reducer = x->reducers.at[k];
        LIERNE_TRY(take_part(p, x, k));
        if (reducer != p->rank) {
            LIERNE_TRY(add_messages(p, x, &stage->recvs, reducer, LIERNE_OUT, LIERNE_OUT));
            continue;
        }
        for (size_t i = 0; i < x->receivers.count; i++) {
            if (x->receivers.at[i] != reducer) {
                LIERNE_TRY(
                    add_messages(p, x, &stage->sends, x->receivers.at[i], LIERNE_OUT, LIERNE_OUT));
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status intersect_cells(const planner *p, overlap *x) {
    lierne_boxes from = {0}, to = {0};
    lierne_status status = lierne_layout_cell_boxes(p->from, &x->from, &from, NULL);
    if (status == LIERNE_OK) {
        status = lierne_layout_cell_boxes(p->to, &x->to, &to, NULL);
    }
    if (status == LIERNE_OK) {
        status = lierne_boxes_intersect(p->from->naxes, &from, &to, &x->boxes);
    }
    lierne_mem_free(from.at);
    lierne_mem_free(to.at);
    for (size_t b = 0; b < x->boxes.count; b++) {
        x->elements += lierne_overlap_elements(p->from->naxes, &x->boxes.at[b]);
    }
    return status;
}

/* The bound of a sum: the lowest receiver accounts for it. Of a copy: every receiver for its own.
 */
static int64_t bound(const planner *p, const overlap *x) {
    int64_t n = (int64_t)x->receivers.count, partials = p->from->partials;
    if (partials == 1) {
        bool lacks = contains(&x->receivers, p->rank) && !in_cell(p->from, p->rank, &x->from);
        return lacks ? x->elements : 0;
    }
    return x->receivers.at[0] == p->rank ? x->elements * (partials - 1 + n - 1 + x->none_holds) : 0;
}

static lierne_status plan_overlap(planner *p, overlap *x) {
    LIERNE_TRY(intersect_cells(p, x));
    if (x->elements == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_layout_members(p->to, &x->to, -1, &x->receivers));
    LIERNE_TRY(choose_reducers(p, x));
    p->min_elements += bound(p, x);
    LIERNE_TRY(add_receives(p, x));
    LIERNE_TRY(add_sends(p, x));
    return redistribute_sums(p, x);
}

static lierne_status plan_cells(planner *p, const lierne_cell *from, const lierne_cell *to) {
    overlap x = {.from = *from, .to = *to};
    lierne_status status = plan_overlap(p, &x);
    lierne_mem_free(x.boxes.at);
    lierne_mem_free(x.receivers.at);
    lierne_mem_free(x.reducers.at);
    lierne_mem_free(x.senders.at);
    lierne_mem_free(x.part.at);
    return status;
}

/* Plans all overlaps of the rank's own cell of one layout with cells of the other layout. */
static lierne_status plan_overlaps(planner *p, const lierne_cell *own_from,
                                   const lierne_cell *own_to, bool as_receiver) {
    lierne_cells cells = {0};
    const lierne_cell *own = as_receiver ? own_to : own_from;
    if (!own) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_overlapping(&cells, as_receiver ? p->from : p->to,
                                                     as_receiver ? p->to : p->from, own);
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        const lierne_cell *other = &cells.at[i];
        if (as_receiver) {
            status = plan_cells(p, other, own);
        } else if (!own_to || !same_cell(p->to, other, own_to)) { /* planned as a receiver */
            status = plan_cells(p, own, other);
        }
    }
    lierne_mem_free(cells.at);
    return status;
}

static lierne_status fill(planner *p) {
    lierne_cell own_from, own_to;
    lierne_stage *stage;
    bool holds = lierne_layout_cell(p->from, p->rank, &own_from);
    bool receives = lierne_layout_cell(p->to, p->rank, &own_to);
    const lierne_cell *from = holds ? &own_from : NULL, *to = receives ? &own_to : NULL;
    LIERNE_TRY(lierne_layout_get_shape(p->in_shape, p->from, p->rank));
    LIERNE_TRY(lierne_layout_get_shape(p->out_shape, p->to, p->rank));
    LIERNE_TRY(lierne_route_add_stage(p->route, &stage));
    LIERNE_TRY(lierne_route_add_stage(p->route, &stage));
    LIERNE_TRY(plan_overlaps(p, from, to, true));
    LIERNE_TRY(plan_overlaps(p, from, to, false));
    /* Only sums need the second stage. */
    stage = stage_of(p, 1);
    if (stage->sends.count == 0 && stage->recvs.count == 0) {
        p->route->stages.count--;
    }
    return LIERNE_OK;
}

static lierne_status check(const lierne_layout *src, const lierne_layout *dst, int rank) {
    if (!src || !dst) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s is NULL", src ? "dst" : "src");
    }
    LIERNE_TRY(lierne_redistribute_check_pair(src, "src", dst, "dst"));
    if (rank < 0 || rank >= src->world) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank is %d, must be in 0 to %d", rank, src->world - 1);
    }
    return LIERNE_OK;
}

/* Makes the route of a planner whose layouts were checked. */
static lierne_status create_route(planner *p) {
    int64_t in, out;
    LIERNE_TRY(lierne_layout_get_elements(&in, NULL, p->from, p->rank));
    LIERNE_TRY(lierne_layout_get_elements(&out, NULL, p->to, p->rank));
    LIERNE_TRY(lierne_route_create(&p->route, p->rank, in, out));
    lierne_status status = fill(p);
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
    planner p = {.from = src, .to = dst, .nodes = nodes, .rank = rank};
    LIERNE_TRY(lierne_check_set(out, "route"));
    *out = NULL;
    LIERNE_TRY(check(src, dst, rank));
    p.members = (lierne_members){.world = src->world, .count = src->world};
    LIERNE_TRY(create_route(&p));
    if (min_elements) {
        *min_elements = p.min_elements;
    }
    *out = p.route;
    return LIERNE_OK;
}

lierne_status lierne_plan_side_redistribute(lierne_plan_side *side, const lierne_context *context,
                                            const lierne_layout *from, const lierne_layout *to) {
    planner p = {.from = from,
                 .to = to,
                 .nodes = context->nodes,
                 .members = context->members,
                 .rank = context->rank};
    LIERNE_TRY(lierne_plan_side_fill(side, p.rank, from, to));
    LIERNE_TRY(create_route(&p));
    side->route = p.route;
    side->min_elements = p.min_elements;
    return LIERNE_OK;
}
