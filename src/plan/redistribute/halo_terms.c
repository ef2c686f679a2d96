/* The gradients of margins, added at the owners of their elements.
 *
 * The gradient of an element is that of its core position, which the redistribution of cores has
 * already written, and one term from every rank that shows it in its margins, in ascending order of
 * ranks. A term with several positions is summed where they are, before it is sent, so that it
 * costs one element: the messages of such a pair of cells wait for the second stage. Terms land in
 * scratch and are added in one operation per set of terms, because then nothing depends on who
 * holds the source or on what arrives first.
 *
 * Which terms an element has changes from box to box. So a box of the owner's part is cut where one
 * of its terms begins or ends, axis by axis; what is between has the same terms. A mirrored margin
 * has a term per element: what a cut leaves behind is not looked at again. */
#include "plan/redistribute/halo_terms.h"

#include <stdlib.h>

/* What one cell gives to a box of the owner's part. */
typedef struct contribution {
    size_t box;
    int rank;   /* the first that has it; -1: a core, which is already there */
    bool lacks; /* it was received */
    int64_t start[LIERNE_MAX_AXES];
    int64_t size[LIERNE_MAX_AXES];
    lierne_buffer buffer;
    lierne_patch patch;
} contribution;

typedef struct terms {
    lierne_planner *p;
    const lierne_layout *from; /* with its margins */
    lierne_boxes own;          /* of the owner's part */
    LIERNE_VEC(contribution) list;
    bool single; /* the owner has no replicas */
} terms;

/* A cell with margins and one of the gradient. */
typedef struct pair {
    lierne_cell_overlap x; /* its boxes are those with a term */
    lierne_needs needs;
    bool several;   /* some element has several positions in the margins of a rank */
    int64_t summed; /* scratch of all terms, -1: none */
} pair;

static lierne_stage *stage_of(const terms *t, size_t i) {
    return &t->p->route->stages.at[i];
}

static const lierne_need *need_of(const pair *u, const lierne_overlap *o) {
    return &u->needs.at.at[o->index_a];
}

static bool has_core(const pair *u, const lierne_need *need) {
    return u->needs.patches.at[need->first + need->primary].core;
}

static size_t count_terms(const pair *u, const lierne_need *need) {
    return need->count - has_core(u, need);
}

/* Place i of a box of a pair in the buffer with margins. */
static lierne_place place_of(const terms *t, const pair *u, const lierne_overlap *o, size_t i) {
    const lierne_patch patch =
        lierne_need_patch(&u->needs, need_of(u, o), i, t->from->naxes, o->start, o->size);
    return lierne_place_patch(t->from, &patch, LIERNE_BUFFER_IN);
}

/* The only term of a box. */
static size_t only_term(const pair *u, const lierne_need *need) {
    return has_core(u, need) && need->primary == 0;
}

static lierne_status add_contribution(terms *t, const lierne_overlap *o, int rank, bool lacks,
                                      lierne_buffer buffer, const lierne_patch *patch) {
    contribution c = {
        .box = o->index_b, .rank = rank, .lacks = lacks, .buffer = buffer, .patch = *patch};
    for (int a = 0; a < t->from->naxes; a++) {
        c.start[a] = o->start[a];
        c.size[a] = o->size[a];
    }
    return LIERNE_VEC_PUSH(&t->list, c);
}

/* A box whose elements follow one another from an offset of scratch on. */
static lierne_patch packed_at(const terms *t, const lierne_overlap *o, int64_t offset) {
    lierne_patch patch = {.offset = offset};
    int64_t stride = 1;
    for (int a = t->from->naxes - 1; a >= 0; a--) {
        patch.size[a] = o->size[a];
        patch.stride[a] = stride;
        stride *= o->size[a];
    }
    return patch;
}

static lierne_status sum_box(const terms *t, const pair *u, const lierne_overlap *o,
                             int64_t offset) {
    const lierne_need *need = need_of(u, o);
    const lierne_patch patch = packed_at(t, o, offset);
    lierne_ops *sums = &stage_of(t, 0)->sums;
    lierne_op *op;
    LIERNE_TRY(
        lierne_ops_add(sums, lierne_place_patch(t->from, &patch, LIERNE_BUFFER_SCRATCH), &op));
    for (size_t i = 0; i < need->count; i++) {
        if (!u->needs.patches.at[need->first + i].core) {
            LIERNE_TRY(lierne_op_add(op, place_of(t, u, o, i)));
        }
    }
    return lierne_op_join(op);
}

/* All terms of a pair, one after the other in scratch. */
static lierne_status sum_terms(const terms *t, pair *u) {
    int64_t offset;
    if (u->summed >= 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_route_scratch(t->p->route, u->x.elements, &u->summed));
    offset = u->summed;
    for (size_t b = 0; b < u->x.boxes.count; b++) {
        LIERNE_TRY(sum_box(t, u, &u->x.boxes.at[b], offset));
        offset += lierne_overlap_elements(t->from->naxes, &u->x.boxes.at[b]);
    }
    return LIERNE_OK;
}

/* A term of one position is added from where it is; of several, they are summed first. */
static lierne_status take_own(terms *t, const pair *u, int rank) {
    for (size_t b = 0; b < u->x.boxes.count; b++) {
        const lierne_overlap *o = &u->x.boxes.at[b];
        const lierne_need *need = need_of(u, o);
        bool several = count_terms(u, need) > 1;
        int64_t offset = 0, elements = lierne_overlap_elements(t->from->naxes, o);
        if (several) {
            LIERNE_TRY(lierne_route_scratch(t->p->route, elements, &offset));
            LIERNE_TRY(sum_box(t, u, o, offset));
        }
        const lierne_patch patch = several ? packed_at(t, o, offset)
                                           : lierne_need_patch(&u->needs, need, only_term(u, need),
                                                               t->from->naxes, o->start, o->size);
        LIERNE_TRY(add_contribution(t, o, rank, false,
                                    several ? LIERNE_BUFFER_SCRATCH : LIERNE_BUFFER_IN, &patch));
    }
    return LIERNE_OK;
}

static lierne_status receive(terms *t, const pair *u, int rank, int sender) {
    int64_t landing;
    LIERNE_TRY(lierne_route_scratch(t->p->route, u->x.elements, &landing));
    LIERNE_TRY(lierne_messages_put(&stage_of(t, u->several)->recvs, sender, LIERNE_BUFFER_SCRATCH,
                                   lierne_block_range(landing, u->x.elements)));
    for (size_t b = 0; b < u->x.boxes.count; b++) {
        const lierne_overlap *o = &u->x.boxes.at[b];
        const lierne_patch patch = packed_at(t, o, landing);
        LIERNE_TRY(add_contribution(t, o, rank, true, LIERNE_BUFFER_SCRATCH, &patch));
        landing += lierne_overlap_elements(t->from->naxes, o);
    }
    return LIERNE_OK;
}

static lierne_status send(const terms *t, pair *u, int receiver) {
    lierne_message *message;
    if (u->several) {
        LIERNE_TRY(sum_terms(t, u));
        return lierne_messages_put(&stage_of(t, 1)->sends, receiver, LIERNE_BUFFER_SCRATCH,
                                   lierne_block_range(u->summed, u->x.elements));
    }
    LIERNE_TRY(lierne_messages_add(&stage_of(t, 0)->sends, receiver, LIERNE_BUFFER_IN, &message));
    for (size_t b = 0; b < u->x.boxes.count; b++) {
        const lierne_overlap *o = &u->x.boxes.at[b];
        const lierne_place from = place_of(t, u, o, only_term(u, need_of(u, o)));
        LIERNE_TRY(lierne_message_add(message, from.block));
    }
    return LIERNE_OK;
}

/* Cores are there, but count in what a rank must receive. */
static lierne_status note_cores(terms *t, const pair *u, const lierne_overlaps *all, bool lacks) {
    for (size_t b = 0; b < all->count; b++) {
        if (has_core(u, need_of(u, &all->at[b]))) {
            LIERNE_TRY(add_contribution(t, &all->at[b], -1, lacks, LIERNE_BUFFER_OUT,
                                        &(lierne_patch){.offset = 0}));
        }
    }
    return LIERNE_OK;
}

/* What a pair has in common: all of it, and in u->x what has a term. */
static lierne_status find_terms(const terms *t, pair *u, lierne_overlaps *all) {
    lierne_boxes to = {0};
    LIERNE_TRY(lierne_needs_create(&u->needs, t->from, &u->x.from));
    lierne_status status = lierne_layout_cell_boxes(t->p->to, &u->x.to, &to, NULL);
    if (status == LIERNE_OK) {
        status = lierne_boxes_intersect(t->from->naxes, &u->needs.boxes, &to, all);
    }
    for (size_t b = 0; b < all->count && status == LIERNE_OK; b++) {
        size_t n = count_terms(u, need_of(u, &all->at[b]));
        if (n > 0) {
            status = LIERNE_VEC_PUSH(&u->x.boxes, all->at[b]);
            u->x.elements += lierne_overlap_elements(t->from->naxes, &all->at[b]);
            u->several = u->several || n > 1;
        }
    }
    lierne_mem_free(to.at);
    return status;
}

static lierne_status plan_pair(terms *t, pair *u, const lierne_overlaps *all) {
    const lierne_planner *p = t->p;
    lierne_ranks holders = {0};
    LIERNE_TRY(lierne_cell_overlap_choose(p, &u->x));
    LIERNE_TRY(lierne_cell_overlap_assign(p, &u->x, 0));
    lierne_status status = lierne_layout_members(t->from, &u->x.from, -1, &holders);
    for (size_t k = 0; k < u->x.reducers.count && status == LIERNE_OK; k++) {
        int receiver = u->x.reducers.at[k], sender = u->x.senders.at[k];
        bool own = receiver == p->rank;
        if (own) {
            status = note_cores(t, u, all, sender != p->rank);
            t->single = u->x.reducers.count == 1;
        }
        if (u->x.elements > 0 && own && status == LIERNE_OK) {
            status = sender == p->rank ? take_own(t, u, holders.at[0])
                                       : receive(t, u, holders.at[0], sender);
        } else if (u->x.elements > 0 && sender == p->rank && status == LIERNE_OK) {
            status = send(t, u, receiver);
        }
    }
    lierne_mem_free(holders.at);
    return status;
}

static lierne_status plan_cells(terms *t, const lierne_cell *from, const lierne_cell *to) {
    pair u = {.x = {.from = *from, .to = *to}, .summed = -1};
    lierne_overlaps all = {0};
    lierne_status status = find_terms(t, &u, &all);
    if (status == LIERNE_OK && all.count > 0) {
        status = plan_pair(t, &u, &all);
    }
    lierne_mem_free(all.at);
    lierne_needs_destroy(&u.needs);
    lierne_cell_overlap_clear(&u.x);
    return status;
}

/* The pairs of the rank's part of the gradient, then those of its margins with other parts. */
static lierne_status plan_pairs(terms *t, const lierne_cell *from, const lierne_cell *to) {
    const lierne_layout *gradient = t->p->to;
    lierne_cells cells = {0};
    lierne_status status =
        to ? lierne_layout_overlapping(&cells, t->from, gradient, to) : LIERNE_OK;
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        status = plan_cells(t, &cells.at[i], to);
    }
    cells.count = 0;
    if (from && status == LIERNE_OK) {
        status = lierne_layout_overlapping(&cells, gradient, t->from, from);
    }
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        if (!to || !lierne_same_cell(gradient, &cells.at[i], to)) {
            status = plan_cells(t, from, &cells.at[i]);
        }
    }
    lierne_mem_free(cells.at);
    return status;
}

static int compare_contributions(const void *a, const void *b) {
    const contribution *x = a, *y = b;
    int box = (x->box > y->box) - (x->box < y->box);
    return box ? box : (x->rank > y->rank) - (x->rank < y->rank);
}

static int compare_numbers(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* What one axis of a box of the owner's part is cut by: where contributions begin and end. */
typedef struct interval {
    int64_t start;
    int64_t end;
    const contribution *c;
} interval;
typedef struct axis_sweep {
    interval *at;              /* ascending by start */
    int64_t *cuts;             /* ascending, with both ends of the box */
    const contribution **have; /* those that have what is between two cuts */
    size_t n, ncuts, nhave, next;
} axis_sweep;

static int compare_starts(const void *a, const void *b) {
    const interval *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* In the order of the list of contributions, which is that of ranks. */
static int compare_listed(const void *a, const void *b) {
    const contribution *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y);
}

static lierne_status begin_sweep(axis_sweep *s, const lierne_box *box, int axis,
                                 const contribution *const *have, size_t n) {
    size_t ncuts = 0;
    *s = (axis_sweep){.n = n, .ncuts = 1};
    LIERNE_TRY(lierne_alloc(&s->at, n + 1, sizeof *s->at));
    LIERNE_TRY(lierne_alloc(&s->cuts, 2 * n + 2, sizeof *s->cuts));
    LIERNE_TRY(lierne_alloc(&s->have, n + 1, sizeof(contribution *)));
    s->cuts[ncuts++] = box->start[axis];
    s->cuts[ncuts++] = box->start[axis] + box->size[axis];
    for (size_t i = 0; i < n; i++) {
        int64_t start = have[i]->start[axis], end = start + have[i]->size[axis];
        s->at[i] = (interval){start, end, have[i]};
        s->cuts[ncuts++] = start;
        s->cuts[ncuts++] = end;
    }
    qsort(s->at, n, sizeof *s->at, compare_starts);
    qsort(s->cuts, ncuts, sizeof *s->cuts, compare_numbers);
    for (size_t i = 1; i < ncuts; i++) {
        if (s->cuts[i] > s->cuts[s->ncuts - 1]) {
            s->cuts[s->ncuts++] = s->cuts[i];
        }
    }
    return LIERNE_OK;
}

static void end_sweep(axis_sweep *s) {
    lierne_mem_free(s->at);
    lierne_mem_free(s->cuts);
    lierne_mem_free(s->have);
}

/* Finds the contributions that have what begins at a cut. */
static void move_to(axis_sweep *s, int64_t cut, int axis) {
    size_t kept = 0;
    for (size_t i = 0; i < s->nhave; i++) {
        s->have[kept] = s->have[i];
        kept += s->have[i]->start[axis] + s->have[i]->size[axis] > cut;
    }
    for (; s->next < s->n && s->at[s->next].start == cut; s->next++) {
        s->have[kept++] = s->at[s->next].c;
    }
    s->nhave = kept;
}

static lierne_place place_contribution(const terms *t, const contribution *c,
                                       const lierne_overlap *part) {
    lierne_patch patch = c->patch;
    for (int a = 0; a < t->from->naxes; a++) {
        patch.offset += (part->start[a] - c->start[a]) * patch.stride[a];
        patch.size[a] = part->size[a];
    }
    return lierne_place_patch(t->from, &patch, c->buffer);
}

/* Adds what a part gets. Each holder that lacks something of it receives something; a holder
 * without replicas all that it lacks. */
static lierne_status sum_part(terms *t, const contribution *const *have, size_t count,
                              const lierne_overlap *part) {
    const lierne_place to =
        lierne_place_at(LIERNE_BUFFER_OUT, lierne_block_box(t->from->naxes, t->p->out_shape,
                                                            part->local_b, part->size));
    bool core = false;
    int64_t lacks = 0;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        core = core || have[i]->rank < 0;
        n += have[i]->rank >= 0;
        lacks += have[i]->lacks;
    }
    lacks = !t->single && lacks > 1 ? 1 : lacks;
    t->p->min_elements += lacks * lierne_overlap_elements(t->from->naxes, part);
    if (core && n == 0) {
        return LIERNE_OK;
    }
    lierne_op *op;
    LIERNE_TRY(lierne_ops_add(&stage_of(t, t->p->route->stages.count - 1)->sums, to, &op));
    op->accumulate = lierne_stores_margins(t->from);
    LIERNE_TRY(core ? lierne_op_add(op, to) : LIERNE_OK);
    for (size_t i = 0; i < count; i++) {
        if (have[i]->rank >= 0) {
            LIERNE_TRY(lierne_op_add(op, place_contribution(t, have[i], part)));
        }
    }
    return lierne_op_join(op);
}

/* Cuts an axis of a box, and what is between two cuts along the next axis. */
static lierne_status sum_axis(terms *t, const lierne_box *box, int axis, const contribution **have,
                              size_t n, lierne_overlap *part) {
    axis_sweep s;
    if (axis == t->from->naxes) {
        qsort(have, n, sizeof *have, compare_listed);
        return sum_part(t, have, n, part);
    }
    lierne_status status = begin_sweep(&s, box, axis, have, n);
    for (size_t i = 0; i + 1 < s.ncuts && status == LIERNE_OK; i++) {
        move_to(&s, s.cuts[i], axis);
        part->start[axis] = s.cuts[i];
        part->size[axis] = s.cuts[i + 1] - s.cuts[i];
        part->local_b[axis] = box->local[axis] + s.cuts[i] - box->start[axis];
        status = sum_axis(t, box, axis + 1, s.have, s.nhave, part);
    }
    end_sweep(&s);
    return status;
}

static lierne_status sum_box_parts(terms *t, size_t box, size_t first, size_t end) {
    const contribution **have;
    lierne_overlap part = {.index_a = 0};
    LIERNE_TRY(lierne_alloc(&have, end - first + 1, sizeof(contribution *)));
    for (size_t i = first; i < end; i++) {
        have[i - first] = &t->list.at[i];
    }
    lierne_status status = sum_axis(t, &t->own.at[box], 0, have, end - first, &part);
    lierne_mem_free(have);
    return status;
}

static lierne_status add_sums(terms *t) {
    if (t->list.count > 0) {
        qsort(t->list.at, t->list.count, sizeof *t->list.at, compare_contributions);
    }
    for (size_t box = 0, first = 0, end; box < t->own.count; box++, first = end) {
        for (end = first; end < t->list.count && t->list.at[end].box == box;) {
            end++;
        }
        LIERNE_TRY(sum_box_parts(t, box, first, end));
    }
    return LIERNE_OK;
}

lierne_status lierne_add_terms(lierne_planner *p, const lierne_cell *from, const lierne_cell *to) {
    terms t = {.p = p, .from = p->margins};
    lierne_stage *stage;
    lierne_status status = to ? lierne_layout_cell_boxes(p->to, to, &t.own, NULL) : LIERNE_OK;
    p->min_elements = 0;
    if (status == LIERNE_OK && p->route->stages.count < 2) {
        status = lierne_route_add_stage(p->route, &stage);
    }
    status = status == LIERNE_OK ? plan_pairs(&t, from, to) : status;
    stage = stage_of(&t, 1);
    if (status == LIERNE_OK && stage->sends.count == 0 && stage->recvs.count == 0) {
        p->route->stages.count--;
    }
    status = status == LIERNE_OK ? add_sums(&t) : status;
    lierne_mem_free(t.own.at);
    lierne_mem_free(t.list.at);
    return status;
}
