/* Layout to layout, by intersection.
 *
 * A cell of the old layout and a cell of the new one that have elements in common are a meeting.
 * Every meeting is settled alike on all ranks that know of it, from coordinates only: its adders
 * (the needers that put the elements together), who supplies each of them, and what the adders hand
 * on to the other needers. A rank walks the meetings that it is part of and keeps its own lines.
 *
 * Without partial sums every needer is an adder of one summand, and nothing is handed on. With P
 * summands and N needers, each needer adding for itself moves N(P-1) and more elements; where that
 * exceeds (P-1)+(N-1), the elements are divided among the needers that hold a summand, each adds
 * its part and hands it on in a second stage. Fan-in, fan-out, uneven lanes, pipeline stages and
 * disjoint grids are not told apart.
 *
 * What passes between two ranks is one message, unless it is made of long pieces: one that lies in
 * one piece at an end of the wire need not be packed there, and packing costs more than a message
 * does. Both ends cut alike, as each knows how the tensor lies at the other. */
#include "plan/redistribute/redistribute.h"

#include "plan/redistribute/chunk.h"

#define LEAST_PIECE                                                                                \
    (256 << 10) /* bytes of a piece that is worth a message of its own, and that stays             \
                   in the cache until it is unpacked */

typedef struct planner {
    lierne_route *route;
    const lierne_layout *from;
    const lierne_layout *to;
    const int *nodes;
    int rank;
    int64_t in_shape[LIERNE_MAX_AXES];
    int64_t out_shape[LIERNE_MAX_AXES];
    size_t first_stage;
    int64_t min_elements;
} planner;

typedef struct meeting {
    lierne_cell from;
    lierne_cell to;
    lierne_overlaps overlaps;
    int64_t elements;
    lierne_ranks needers;   /* ascending */
    lierne_ranks adders;    /* ascending; needers or some of them */
    bool divided;           /* adder k adds part k and hands it on */
    bool none_holds;        /* no needer holds a summand */
    int seed;               /* starts the rotation over replicas */
    lierne_ranks suppliers; /* of one summand, per adder */
    lierne_overlaps part;   /* of the adder at work */
    int64_t part_elements;
} meeting;

static lierne_stage *stage_of(const planner *p, size_t i) {
    return &p->route->stages.at[p->first_stage + i];
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

/* The holder that supplies a rank which holds nothing itself: one of the same node if there is one,
 * and in turn, so that replicas share the load. */
static int pick(const planner *p, const lierne_ranks *holders, int needer, int turn) {
    int near = 0;
    if (p->nodes) {
        for (size_t i = 0; i < holders->count; i++) {
            near += p->nodes[holders->at[i]] == p->nodes[needer];
        }
    }
    if (near == 0) {
        return holders->at[(size_t)turn % holders->count];
    }
    near = turn % near;
    for (size_t i = 0;; i++) {
        if (p->nodes[holders->at[i]] == p->nodes[needer] && near-- == 0) {
            return holders->at[i];
        }
    }
}

/* Who supplies each adder with one summand, that the holders hold. */
static lierne_status assign(const planner *p, meeting *m, int partial) {
    lierne_ranks holders = {0};
    lierne_status status = lierne_layout_members(p->from, &m->from, partial, &holders);
    int turn = m->seed;
    m->suppliers.count = 0;
    for (size_t k = 0; k < m->adders.count && status == LIERNE_OK; k++) {
        int adder = m->adders.at[k];
        bool own = contains(&holders, adder);
        int supplier = own ? adder : pick(p, &holders, adder, turn);
        turn += !own;
        status = LIERNE_VEC_PUSH(&m->suppliers, supplier);
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

/* Decides who adds, by what it costs. */
static lierne_status choose_adders(const planner *p, meeting *m) {
    int64_t holding = 0, n = (int64_t)m->needers.count, partials = p->from->partials;
    for (size_t i = 0; i < m->needers.count; i++) {
        holding += in_cell(p->from, m->needers.at[i], &m->from);
    }
    m->none_holds = holding == 0;
    m->divided = n * partials - holding > partials - 1 + n - 1 + m->none_holds;
    for (size_t i = 0; i < m->needers.count; i++) {
        bool adds = !m->divided || m->none_holds || in_cell(p->from, m->needers.at[i], &m->from);
        if (adds) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&m->adders, m->needers.at[i]));
        }
    }
    m->seed = cell_index(p->to, &m->to) * (int)(m->adders.count & 0xff);
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

/* Sets m->part to what adder k adds. */
static lierne_status take_part(const planner *p, meeting *m, size_t k) {
    int64_t n = m->divided ? (int64_t)m->adders.count : 1, i = m->divided ? (int64_t)k : 0;
    m->part.count = 0;
    m->part_elements = 0;
    for (size_t b = 0; b < m->overlaps.count; b++) {
        lierne_overlap o = m->overlaps.at[b];
        int a = dividing_axis(p->from->naxes, &o, n);
        int64_t from = lierne_share(o.size[a], n, i);
        int64_t to = lierne_share(o.size[a], n, i + 1);
        o.start[a] += from;
        o.local_a[a] += from;
        o.local_b[a] += from;
        o.size[a] = to - from;
        if (to > from) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&m->part, o));
            m->part_elements += lierne_overlap_elements(p->from->naxes, &o);
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
static bool is_worth_cutting(const planner *p, const meeting *m, const int64_t *mine,
                             const int64_t *theirs) {
    for (size_t b = 0; b < m->part.count; b++) {
        if (cut_of(p, &m->part.at[b], mine, theirs).elements < least_piece(p)) {
            return false;
        }
    }
    return true;
}

static lierne_status add_whole(const planner *p, const meeting *m, lierne_messages *messages,
                               int peer, lierne_buffer buffer) {
    lierne_message *message;
    LIERNE_TRY(lierne_messages_add(messages, peer, buffer, &message));
    for (size_t b = 0; b < m->part.count; b++) {
        LIERNE_TRY(lierne_message_add(message, place_of(p, &m->part.at[b], buffer).block));
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
 * where summands land whole. */
static lierne_status add_messages(const planner *p, const meeting *m, lierne_messages *messages,
                                  int peer, lierne_buffer buffer, lierne_buffer at_peer) {
    const int64_t *mine = buffer == LIERNE_IN ? p->in_shape : p->out_shape;
    int64_t theirs[LIERNE_MAX_AXES];
    if (m->part_elements == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_layout_get_shape(theirs, at_peer == LIERNE_IN ? p->from : p->to, peer));
    if (at_peer == LIERNE_SCRATCH || !is_worth_cutting(p, m, mine, theirs)) {
        return add_whole(p, m, messages, peer, buffer);
    }
    for (size_t b = 0; b < m->part.count; b++) {
        const lierne_overlap *box = &m->part.at[b];
        const lierne_chunking cut = cut_of(p, box, mine, theirs);
        LIERNE_TRY(add_pieces(p, box, &cut, messages, peer, buffer));
    }
    return LIERNE_OK;
}

static lierne_status supply(const planner *p, meeting *m) {
    if (!in_cell(p->from, p->rank, &m->from)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(assign(p, m, lierne_layout_partial(p->from, p->rank)));
    for (size_t k = 0; k < m->adders.count; k++) {
        if (m->suppliers.at[k] == p->rank && m->adders.at[k] != p->rank) {
            LIERNE_TRY(take_part(p, m, k));
            LIERNE_TRY(add_messages(p, m, &stage_of(p, 0)->sends, m->adders.at[k], LIERNE_IN,
                                    p->from->partials > 1 ? LIERNE_SCRATCH : LIERNE_OUT));
        }
    }
    return LIERNE_OK;
}

/* One summand, held or received where it belongs. */
static lierne_status take_single(const planner *p, meeting *m, int supplier) {
    lierne_stage *stage = stage_of(p, 0);
    if (supplier != p->rank) {
        return add_messages(p, m, &stage->recvs, supplier, LIERNE_OUT, LIERNE_IN);
    }
    for (size_t b = 0; b < m->part.count; b++) {
        lierne_op *op;
        lierne_place to = out_place(p, &m->part.at[b]), from = in_place(p, &m->part.at[b]);
        lierne_blocks_join((lierne_block *const[]){&to.block, &from.block}, 2);
        LIERNE_TRY(lierne_ops_add(&stage->copies, to, &op));
        LIERNE_TRY(lierne_op_add(op, from));
    }
    return LIERNE_OK;
}

/* The operations of the part at work, a source each for one more summand. */
static lierne_status add_sources(const planner *p, const meeting *m, size_t first_op,
                                 int64_t landing, bool own) {
    lierne_stage *stage = stage_of(p, 0);
    for (size_t b = 0; b < m->part.count; b++) {
        lierne_place from = in_place(p, &m->part.at[b]);
        if (!own) {
            from = lierne_place_at(LIERNE_SCRATCH, lierne_block_packed(&from.block, landing));
            landing += lierne_block_elements(&from.block);
        }
        LIERNE_TRY(lierne_op_add(&stage->sums.at[first_op + b], from));
    }
    return LIERNE_OK;
}

static lierne_status take_summand(const planner *p, meeting *m, size_t k, int partial,
                                  size_t first_op) {
    int64_t landing = 0;
    LIERNE_TRY(assign(p, m, partial));
    int supplier = m->suppliers.at[k];
    if (supplier != p->rank) {
        lierne_message *message;
        LIERNE_TRY(lierne_route_scratch(p->route, m->part_elements, &landing));
        LIERNE_TRY(lierne_messages_add(&stage_of(p, 0)->recvs, supplier, LIERNE_SCRATCH, &message));
        LIERNE_TRY(lierne_message_add(message, lierne_block_range(landing, m->part_elements)));
    }
    return add_sources(p, m, first_op, landing, supplier == p->rank);
}

/* Loops that all places of an operation have in common become one. */
static lierne_status join_op(lierne_op *op) {
    lierne_block **blocks;
    LIERNE_TRY(lierne_alloc(&blocks, op->from.count + 1, sizeof(lierne_block *)));
    blocks[0] = &op->to.block;
    for (size_t s = 0; s < op->from.count; s++) {
        blocks[s + 1] = &op->from.at[s].block;
    }
    lierne_blocks_join(blocks, (int)op->from.count + 1);
    lierne_mem_free(blocks);
    return LIERNE_OK;
}

static lierne_status take_sum(const planner *p, meeting *m, size_t k) {
    lierne_stage *stage = stage_of(p, 0);
    size_t first_op = stage->sums.count;
    if (m->part_elements == 0) {
        return LIERNE_OK;
    }
    for (size_t b = 0; b < m->part.count; b++) {
        lierne_op *op;
        LIERNE_TRY(lierne_ops_add(&stage->sums, out_place(p, &m->part.at[b]), &op));
    }
    for (int partial = 0; partial < p->from->partials; partial++) {
        LIERNE_TRY(take_summand(p, m, k, partial, first_op));
    }
    for (size_t b = 0; b < m->part.count; b++) {
        LIERNE_TRY(join_op(&stage->sums.at[first_op + b]));
    }
    return LIERNE_OK;
}

static lierne_status add(const planner *p, meeting *m) {
    for (size_t k = 0; k < m->adders.count; k++) {
        if (m->adders.at[k] != p->rank) {
            continue;
        }
        LIERNE_TRY(take_part(p, m, k));
        if (p->from->partials > 1) {
            return take_sum(p, m, k);
        }
        LIERNE_TRY(assign(p, m, 0));
        return take_single(p, m, m->suppliers.at[k]);
    }
    return LIERNE_OK;
}

/* Second stage: adders hand their parts on. */
static lierne_status hand_on(const planner *p, meeting *m) {
    lierne_stage *stage = stage_of(p, 1);
    if (!m->divided || !contains(&m->needers, p->rank)) {
        return LIERNE_OK;
    }
    for (size_t k = 0; k < m->adders.count; k++) {
        int adder = m->adders.at[k];
        LIERNE_TRY(take_part(p, m, k));
        if (adder != p->rank) {
            LIERNE_TRY(add_messages(p, m, &stage->recvs, adder, LIERNE_OUT, LIERNE_OUT));
            continue;
        }
        for (size_t i = 0; i < m->needers.count; i++) {
            if (m->needers.at[i] != adder) {
                LIERNE_TRY(
                    add_messages(p, m, &stage->sends, m->needers.at[i], LIERNE_OUT, LIERNE_OUT));
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status intersect_cells(const planner *p, meeting *m) {
    lierne_boxes from = {0}, to = {0};
    lierne_status status = lierne_layout_cell_boxes(p->from, &m->from, &from, NULL);
    if (status == LIERNE_OK) {
        status = lierne_layout_cell_boxes(p->to, &m->to, &to, NULL);
    }
    if (status == LIERNE_OK) {
        status = lierne_boxes_intersect(p->from->naxes, &from, &to, &m->overlaps);
    }
    lierne_mem_free(from.at);
    lierne_mem_free(to.at);
    for (size_t b = 0; b < m->overlaps.count; b++) {
        m->elements += lierne_overlap_elements(p->from->naxes, &m->overlaps.at[b]);
    }
    return status;
}

/* The bound of a sum: the lowest needer accounts for it. Of a copy: every needer for its own. */
static int64_t bound(const planner *p, const meeting *m) {
    int64_t n = (int64_t)m->needers.count, partials = p->from->partials;
    if (partials == 1) {
        bool lacks = contains(&m->needers, p->rank) && !in_cell(p->from, p->rank, &m->from);
        return lacks ? m->elements : 0;
    }
    return m->needers.at[0] == p->rank ? m->elements * (partials - 1 + n - 1 + m->none_holds) : 0;
}

static lierne_status settle(planner *p, meeting *m) {
    LIERNE_TRY(intersect_cells(p, m));
    if (m->elements == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_layout_members(p->to, &m->to, -1, &m->needers));
    LIERNE_TRY(choose_adders(p, m));
    p->min_elements += bound(p, m);
    LIERNE_TRY(add(p, m));
    LIERNE_TRY(supply(p, m));
    return hand_on(p, m);
}

static lierne_status meet(planner *p, const lierne_cell *from, const lierne_cell *to) {
    meeting m = {.from = *from, .to = *to};
    lierne_status status = settle(p, &m);
    lierne_mem_free(m.overlaps.at);
    lierne_mem_free(m.needers.at);
    lierne_mem_free(m.adders.at);
    lierne_mem_free(m.suppliers.at);
    lierne_mem_free(m.part.at);
    return status;
}

/* Meets every cell of `other` that has data in common with the rank's own cell. */
static lierne_status meet_all(planner *p, const lierne_cell *own_from, const lierne_cell *own_to,
                              bool as_needer) {
    lierne_spans spans[LIERNE_MAX_AXES] = {0};
    lierne_cells cells = {0};
    const lierne_cell *own = as_needer ? own_to : own_from;
    if (!own) {
        return LIERNE_OK;
    }
    lierne_layout_spans(as_needer ? p->to : p->from, own, spans);
    lierne_status status = lierne_layout_cells(as_needer ? p->from : p->to, spans, &cells);
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        const lierne_cell *other = &cells.at[i];
        if (as_needer) {
            status = meet(p, other, own);
        } else if (!own_to || !same_cell(p->to, other, own_to)) { /* met as a needer already */
            status = meet(p, own, other);
        }
    }
    lierne_mem_free(cells.at);
    return status;
}

lierne_status lierne_redistribute(lierne_route *route, const lierne_layout *from,
                                  const lierne_layout *to, const int *nodes,
                                  int64_t *min_elements) {
    planner p = {.route = route,
                 .from = from,
                 .to = to,
                 .nodes = nodes,
                 .rank = route->rank,
                 .first_stage = route->stages.count};
    lierne_cell own_from, own_to;
    lierne_stage *stage;
    bool holds = lierne_layout_cell(from, route->rank, &own_from);
    bool needs = lierne_layout_cell(to, route->rank, &own_to);
    LIERNE_TRY(lierne_layout_get_shape(p.in_shape, from, route->rank));
    LIERNE_TRY(lierne_layout_get_shape(p.out_shape, to, route->rank));
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(meet_all(&p, holds ? &own_from : NULL, needs ? &own_to : NULL, true));
    LIERNE_TRY(meet_all(&p, holds ? &own_from : NULL, needs ? &own_to : NULL, false));
    /* Only sums need the second stage. */
    stage = stage_of(&p, 1);
    if (stage->sends.count == 0 && stage->recvs.count == 0) {
        route->stages.count--;
    }
    *min_elements = p.min_elements;
    return LIERNE_OK;
}
