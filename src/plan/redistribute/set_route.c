/* The route of a tensor set.
 *
 * What is sent of a class is planned per cell of the source: its holders all have the same elements
 * of each tensor of the class. The elements that each receiver needs of these tensors are laid in a
 * line, receiver after receiver, and the line is cut into as many parts as there are holders. So
 * holders send equally much, a receiver has as few senders as possible, and nobody needs to know
 * anything about other classes or cells. Which holder has the first part changes with the class, so
 * that what is left of small classes is not always the same holder's. Both ends of a delivery
 * compute the same line, and list what they exchange in the order of classes and tensors.
 *
 * A cut inside of a small tensor is moved to its nearest end: two messages cost more than they
 * balance. In larger ones it is moved to the beginning of a row. */
#include "plan/redistribute/planner.h"
#include "plan/redistribute/set_messages.h"

/* In bytes: tensors, and rows of tensors, that are not cut. */
enum { LEAST_CUT = 64 << 10 };

typedef struct builder {
    lierne_planner p; /* of the class at work */
    const lierne_set *set;
    const lierne_set_class *members;
    int64_t class_number;
    int from; /* the side of the set that is `in` */
    lierne_set_open open;
} builder;

/* What a cell's holders send of the class at work. */
typedef struct line {
    lierne_ranks holders;
    LIERNE_VEC(lierne_cell_overlap) overlaps;
    int64_t length;
} line;

static lierne_stage *stage_of(const builder *u) {
    return &u->p.route->stages.at[0];
}

/* The place in `in` or `out` of the tensor that a move takes from or to. */
static int64_t offset_of(const builder *u, int64_t move, lierne_buffer buffer) {
    int side = buffer == LIERNE_BUFFER_OUT ? !u->from : u->from;
    return u->set->offsets[side][lierne_set_tensor(u->set, move, side)];
}

/* A small part of a tensor shares a message. */
static lierne_status add_small(builder *u, const lierne_cell_overlap *x, bool sends, int peer,
                               int64_t offset) {
    lierne_messages *messages = sends ? &stage_of(u)->sends : &stage_of(u)->recvs;
    lierne_buffer buffer = sends ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT;
    int64_t full = LIERNE_SET_FULL_MESSAGE / (int64_t)lierne_dtype_size(u->p.from->dtype);
    size_t index;
    LIERNE_TRY(lierne_set_open_for(&u->open.at[LIERNE_SET_VALUES][!sends], messages, peer, full,
                                   buffer, &index));
    for (size_t b = 0; b < x->part.count; b++) {
        lierne_block block = lierne_place_box(&u->p, &x->part.at[b], buffer).block;
        block.offset += offset;
        LIERNE_TRY(lierne_message_add(&messages->at[index], block));
    }
    return LIERNE_OK;
}

/* A large part has messages of its own. */
static lierne_status add_large(builder *u, const lierne_cell_overlap *x, bool sends, int peer,
                               int64_t offset) {
    lierne_messages *messages = sends ? &stage_of(u)->sends : &stage_of(u)->recvs;
    size_t first = messages->count;
    LIERNE_TRY(lierne_add_part(&u->p, x, messages, peer,
                               sends ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT,
                               sends ? LIERNE_BUFFER_OUT : LIERNE_BUFFER_IN));
    for (size_t m = first; m < messages->count; m++) {
        for (size_t b = 0; b < messages->at[m].blocks.count; b++) {
            messages->at[m].blocks.at[b].offset += offset;
        }
    }
    return LIERNE_OK;
}

/* Elements [start, start + size) of what a move has of an overlap. */
static lierne_status add_piece(builder *u, lierne_cell_overlap *x, int64_t move, bool sends,
                               int peer, int64_t start, int64_t size) {
    int64_t offset = offset_of(u, move, sends ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT);
    bool large = size * (int64_t)lierne_dtype_size(u->p.from->dtype) >= LIERNE_SET_LEAST_PIECE;
    LIERNE_TRY(lierne_cell_overlap_take(&u->p, x, start, size));
    return (large ? add_large : add_small)(u, x, sends, peer, offset);
}

/* Elements [start, end) of an overlap's line to one receiver: all moves of the class, one after the
 * other. */
static lierne_status add_range(builder *u, lierne_cell_overlap *x, bool sends, int peer,
                               int64_t start, int64_t end) {
    while (start < end) {
        int64_t move = u->set->members[u->members->first + start / x->elements];
        int64_t within = start % x->elements, size = x->elements - within;
        size = size < end - start ? size : end - start;
        LIERNE_TRY(add_piece(u, x, move, sends, peer, within, size));
        start += size;
    }
    return LIERNE_OK;
}

/* Elements of a row of the overlap that is not cut. */
static int64_t row_of(const builder *u, const lierne_cell_overlap *x) {
    int64_t row = lierne_overlap_elements(lierne_planner_axes(&u->p), &x->boxes.at[0]);
    int64_t most = LEAST_CUT / (int64_t)lierne_dtype_size(u->p.from->dtype);
    for (int a = 0; a < lierne_planner_axes(&u->p) && row > most; a++) {
        row /= x->boxes.at[0].size[a];
    }
    return row;
}

/* Where a cut of a receiver's part of the line is moved to. */
static int64_t move_cut(const builder *u, const lierne_cell_overlap *x, int64_t cut) {
    int64_t within = cut % x->elements, before = cut - within, row = row_of(u, x);
    if (x->elements * (int64_t)lierne_dtype_size(u->p.from->dtype) <= LEAST_CUT) {
        return 2 * within < x->elements ? before : before + x->elements;
    }
    return before + within - within % row;
}

/* The part of n balanced ones that element `at` is in. */
static int64_t part_with(int64_t length, int64_t n, int64_t at) {
    int64_t size = length / n, rest = length % n;
    return at < rest * (size + 1) ? at / (size + 1) : (at - rest) / size;
}

static int64_t within(int64_t at, int64_t length) {
    return at < 0 ? 0 : at < length ? at : length;
}

/* What one receiver gets of an overlap; its part of the line begins at `start`. */
static lierne_status add_deliveries(builder *u, const line *l, lierne_cell_overlap *x,
                                    int64_t start, int receiver) {
    int64_t length = u->members->count * x->elements, n = (int64_t)l->holders.count;
    int64_t last = part_with(l->length, n, start + length - 1);
    for (int64_t k = part_with(l->length, n, start); k <= last; k++) {
        int holder = l->holders.at[(k + u->class_number) % n];
        int64_t from = within(lierne_share(l->length, n, k) - start, length);
        int64_t end = within(lierne_share(l->length, n, k + 1) - start, length);
        if (holder == u->p.rank || receiver == u->p.rank) {
            LIERNE_TRY(add_range(u, x, holder == u->p.rank, holder == u->p.rank ? receiver : holder,
                                 move_cut(u, x, from), move_cut(u, x, end)));
        }
    }
    return LIERNE_OK;
}

/* What this rank holds itself of what it needs. */
static lierne_status add_copies(builder *u, const lierne_cell_overlap *x) {
    for (int64_t i = 0; i < u->members->count; i++) {
        int64_t move = u->set->members[u->members->first + i];
        for (size_t b = 0; b < x->boxes.count; b++) {
            lierne_place to = lierne_place_box(&u->p, &x->boxes.at[b], LIERNE_BUFFER_OUT),
                         from = lierne_place_box(&u->p, &x->boxes.at[b], LIERNE_BUFFER_IN);
            to.block.offset += offset_of(u, move, LIERNE_BUFFER_OUT);
            from.block.offset += offset_of(u, move, LIERNE_BUFFER_IN);
            LIERNE_TRY(lierne_ops_put(&stage_of(u)->copies, to, false, &from, 1));
        }
    }
    return LIERNE_OK;
}

/* Adds a cell that needs something of the line's cell, if it does. */
static lierne_status extend_line(builder *u, line *l, const lierne_cell *from,
                                 const lierne_cell *to) {
    lierne_cell_overlap x = {.from = *from, .to = *to};
    int64_t lack = 0;
    lierne_status status = lierne_cell_overlap_fill(&u->p, &x);
    if (status == LIERNE_OK && x.elements > 0) {
        status = lierne_layout_members(u->p.to, to, -1, &x.receivers);
    }
    if (status == LIERNE_OK && x.elements > 0) {
        status = LIERNE_VEC_PUSH(&l->overlaps, x);
    }
    if (status != LIERNE_OK || x.elements == 0) {
        lierne_cell_overlap_clear(&x);
        return status;
    }
    for (size_t r = 0; r < x.receivers.count; r++) {
        lack += !lierne_in_cell(u->p.from, x.receivers.at[r], from);
    }
    l->length += lack * x.elements * u->members->count;
    return LIERNE_OK;
}

/* The cells of the source (side 0) or of the destination that have something of a cell of the other
 * side. */
static lierne_status find_cells(const builder *u, lierne_cells *cells, int side,
                                const lierne_cell *cell) {
    const lierne_layout *layout = side ? u->p.to : u->p.from, *other = side ? u->p.from : u->p.to;
    return u->p.frame ? lierne_frame_overlapping(cells, u->p.frame, side, layout, other, cell)
                      : lierne_layout_overlapping(cells, layout, other, cell);
}

static lierne_status fill_line(builder *u, line *l, const lierne_cell *from) {
    lierne_cells cells = {0};
    lierne_status status = lierne_layout_members(u->p.from, from, -1, &l->holders);
    if (status == LIERNE_OK) {
        status = find_cells(u, &cells, 1, from);
    }
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        status = extend_line(u, l, from, &cells.at[i]);
    }
    lierne_mem_free(cells.at);
    return status;
}

static lierne_status add_line(builder *u, line *l) {
    int64_t start = 0;
    for (size_t i = 0; i < l->overlaps.count; i++) {
        lierne_cell_overlap *x = &l->overlaps.at[i];
        for (size_t r = 0; r < x->receivers.count; r++) {
            int receiver = x->receivers.at[r];
            bool holds = lierne_in_cell(u->p.from, receiver, &x->from);
            if (holds && receiver == u->p.rank) {
                LIERNE_TRY(add_copies(u, x));
            }
            if (!holds) {
                LIERNE_TRY(add_deliveries(u, l, x, start, receiver));
                start += x->elements * u->members->count;
                u->p.min_elements += receiver == u->p.rank ? x->elements * u->members->count : 0;
            }
        }
    }
    return LIERNE_OK;
}

/* All that leaves a cell of the source, as far as this rank sends or receives it. */
static lierne_status plan_cell(builder *u, const lierne_cell *from) {
    line l = {0};
    lierne_status status = fill_line(u, &l, from);
    if (status == LIERNE_OK) {
        status = add_line(u, &l);
    }
    for (size_t i = 0; i < l.overlaps.count; i++) {
        lierne_cell_overlap_clear(&l.overlaps.at[i]);
    }
    lierne_mem_free(l.overlaps.at);
    lierne_mem_free(l.holders.at);
    return status;
}

/* What this rank has of a gap. */
static lierne_status add_zero(builder *u, const lierne_layout *layout, const lierne_set_gap *gap) {
    const lierne_boxes missing = {.at = (lierne_box *)&gap->box, .count = 1};
    int64_t shape[LIERNE_MAX_AXES];
    lierne_boxes own = {0};
    lierne_overlaps parts = {0};
    lierne_cell cell;
    if (!lierne_layout_cell(layout, u->p.rank, &cell)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_cell_boxes(layout, &cell, &own, shape);
    if (status == LIERNE_OK) {
        status = lierne_boxes_intersect(layout->naxes, &own, &missing, &parts);
    }
    for (size_t b = 0; b < parts.count && status == LIERNE_OK; b++) {
        const lierne_overlap *o = &parts.at[b];
        lierne_place to = lierne_place_at(LIERNE_BUFFER_OUT, lierne_block_box(layout->naxes, shape,
                                                                              o->local_a, o->size));
        to.block.offset += u->set->offsets[LIERNE_SET_SRC][gap->tensor];
        status = lierne_ops_put(&stage_of(u)->copies, to, false, NULL, 0);
    }
    lierne_mem_free(own.at);
    lierne_mem_free(parts.at);
    return status;
}

/* The cells that this rank receives from, and then its own, unless it is one of them. */
static lierne_status plan_class(builder *u) {
    lierne_cell own_from, own_to;
    lierne_cells cells = {0};
    lierne_status status = LIERNE_OK;
    bool holds = lierne_layout_cell(u->p.from, u->p.rank, &own_from);
    bool receives = lierne_layout_cell(u->p.to, u->p.rank, &own_to);
    LIERNE_TRY(lierne_layout_get_shape(u->p.in_shape, u->p.from, u->p.rank));
    LIERNE_TRY(lierne_layout_get_shape(u->p.out_shape, u->p.to, u->p.rank));
    if (receives) {
        status = find_cells(u, &cells, 0, &own_to);
    }
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        holds = holds && !lierne_same_cell(u->p.from, &cells.at[i], &own_from);
        status = plan_cell(u, &cells.at[i]);
    }
    if (holds && status == LIERNE_OK) {
        status = plan_cell(u, &own_from);
    }
    lierne_mem_free(cells.at);
    return status;
}

static lierne_status plan_classes(builder *u) {
    const lierne_set *set = u->set;
    for (size_t c = 0; c < set->classes.count; c++) {
        lierne_frame frame;
        u->members = &set->classes.at[c];
        u->class_number = (int64_t)c;
        u->p.from = set->layouts.at[u->members->layouts[u->from]].layout;
        u->p.to = set->layouts.at[u->members->layouts[!u->from]].layout;
        if (u->p.from->halos || u->p.to->halos) {
            LIERNE_TRY(lierne_set_add_halos(u->p.route, &u->p.min_elements, &u->open, set,
                                            u->members, u->from));
            continue;
        }
        if (set->boxes) {
            lierne_frame_create(&frame, &set->boxes[set->members[u->members->first]],
                                (u->from ? u->p.to : u->p.from)->naxes,
                                (u->from ? u->p.from : u->p.to)->naxes, u->from);
            u->p.frame = &frame;
        }
        LIERNE_TRY(plan_class(u));
    }
    return LIERNE_OK;
}

/* Elements of a source that no destination has: their gradient is zero. */
static lierne_status add_zeros(builder *u) {
    for (size_t g = 0; g < u->set->gaps.count; g++) {
        const lierne_set_gap *gap = &u->set->gaps.at[g];
        const lierne_layout *layout =
            u->set->layouts.at[u->set->layout_of[LIERNE_SET_SRC][gap->tensor]].layout;
        LIERNE_TRY(add_zero(u, layout, gap));
    }
    return LIERNE_OK;
}

lierne_status lierne_set_route(lierne_route **out, int64_t *min_elements, const lierne_set *set,
                               int from) {
    lierne_stage *stage;
    builder u = {.set = set, .from = from};
    u.p.rank = set->rank;
    LIERNE_TRY(
        lierne_route_create(&u.p.route, set->rank, set->elements[from], set->elements[!from]));
    lierne_status status = lierne_route_add_stage(u.p.route, &stage);
    if (status == LIERNE_OK) {
        status = plan_classes(&u);
    }
    if (status == LIERNE_OK && from == LIERNE_SET_DST) {
        status = add_zeros(&u);
    }
    lierne_set_open_clear(&u.open);
    if (status != LIERNE_OK) {
        lierne_route_destroy(u.p.route);
        return status;
    }
    u.p.route->dtype = set->layouts.at[0].layout->dtype;
    *min_elements = u.p.min_elements;
    *out = u.p.route;
    return LIERNE_OK;
}
