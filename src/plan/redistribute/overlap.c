/* The overlap of a cell of the source and one of the destination: its elements, who needs them, who
 * puts them together, and who sends to whom where nothing is divided among senders. */
#include "plan/redistribute/merge.h"
#include "plan/redistribute/planner.h"
#include "plan/redistribute/tokens.h"

bool lierne_ranks_have(const int *ranks, size_t n, int rank) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranks[middle] < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && ranks[low] == rank;
}

bool lierne_same_cell(const lierne_layout *layout, const lierne_cell *a, const lierne_cell *b) {
    for (int i = 0; i < layout->ncuts; i++) {
        if (a->coords[layout->cuts[i]] != b->coords[layout->cuts[i]]) {
            return false;
        }
    }
    return true;
}

bool lierne_in_cell(const lierne_layout *layout, int rank, const lierne_cell *cell) {
    lierne_cell own;
    return lierne_layout_cell(layout, rank, &own) && lierne_same_cell(layout, &own, cell);
}

int lierne_planner_node(const lierne_planner *p, int rank) {
    return p->nodes[lierne_members_index(&p->members, rank)];
}

/* The holder that sends to a receiver which is no holder: one on the receiver's node if there is
 * one. Holders take turns, so that replicas share the load. */
static int pick(const lierne_planner *p, const lierne_ranks *holders, int receiver, int turn) {
    int near = 0, node = p->nodes ? lierne_planner_node(p, receiver) : 0;
    if (p->nodes) {
        for (size_t i = 0; i < holders->count; i++) {
            near += lierne_planner_node(p, holders->at[i]) == node;
        }
    }
    if (near == 0) {
        return holders->at[(size_t)turn % holders->count];
    }
    near = turn % near;
    for (size_t i = 0;; i++) {
        if (lierne_planner_node(p, holders->at[i]) == node && near-- == 0) {
            return holders->at[i];
        }
    }
}

/* Who sends one contribution to each reducer. */
lierne_status lierne_cell_overlap_assign(const lierne_planner *p, lierne_cell_overlap *x,
                                         int partial) {
    lierne_ranks holders = {0};
    lierne_status status = lierne_layout_members(p->from, &x->from, partial, &holders);
    int turn = x->seed;
    x->senders.count = 0;
    for (size_t k = 0; k < x->reducers.count && status == LIERNE_OK; k++) {
        int reducer = x->reducers.at[k];
        bool own = lierne_ranks_have(holders.at, holders.count, reducer);
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
lierne_status lierne_cell_overlap_choose(const lierne_planner *p, lierne_cell_overlap *x) {
    LIERNE_TRY(lierne_layout_members(p->to, &x->to, -1, &x->receivers));
    int64_t holding = 0, n = (int64_t)x->receivers.count, partials = p->from->partials;
    for (size_t i = 0; i < x->receivers.count; i++) {
        holding += lierne_in_cell(p->from, x->receivers.at[i], &x->from);
    }
    x->none_holds = holding == 0;
    x->all_hold = holding == n;
    x->divided =
        !p->shared && !p->alone && n * partials - holding > partials - 1 + n - 1 + x->none_holds;
    for (size_t i = 0; i < x->receivers.count; i++) {
        bool reduces =
            !x->divided || x->none_holds || lierne_in_cell(p->from, x->receivers.at[i], &x->from);
        if (reduces) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&x->reducers, x->receivers.at[i]));
        }
    }
    x->seed = cell_index(p->to, &x->to) * (int)(x->reducers.count & 0xff);
    return LIERNE_OK;
}

void lierne_cell_overlap_share(const lierne_planner *p, const lierne_cell_overlap *x, size_t k,
                               int64_t *n, int64_t *i) {
    *n = *i = 0;
    for (size_t r = 0; r < x->receivers.count; r++) {
        bool near = !p->nodes || lierne_planner_node(p, x->receivers.at[r]) ==
                                     lierne_planner_node(p, x->receivers.at[k]);
        *n += near;
        *i += near && r < k;
    }
}

/* The boxes that are moved: those that are shown, as they lie at their primary places. */
static lierne_status merge_shown(const lierne_planner *p, lierne_cell_overlap *x) {
    lierne_moves moves = {0};
    lierne_status status = LIERNE_OK;
    for (size_t b = 0; b < x->shown.count && status == LIERNE_OK; b++) {
        const lierne_overlap *o = &x->shown.at[b];
        const lierne_need *need = &x->needs.at.at[o->index_b];
        const lierne_patch to =
            lierne_need_patch(&x->needs, need, need->primary, p->to->naxes, o->start, o->size);
        const lierne_move move = {.box = *o, .to = to, .from = to};
        status = LIERNE_VEC_PUSH(&moves, move);
    }
    lierne_moves_merge(&moves, p->to->naxes);
    for (size_t i = 0; i < moves.count && status == LIERNE_OK; i++) {
        status = LIERNE_VEC_PUSH(&x->boxes, moves.at[i].box);
    }
    lierne_mem_free(moves.at);
    return status;
}

static lierne_status intersect(const lierne_planner *p, lierne_cell_overlap *x) {
    lierne_boxes from = {0}, to = {0};
    bool halo = lierne_has_margins(p->to);
    lierne_status status = lierne_layout_cell_boxes(p->from, &x->from, &from, NULL);
    if (status == LIERNE_OK) {
        status = halo ? lierne_needs_create(&x->needs, p->to, &x->to)
                      : lierne_layout_cell_boxes(p->to, &x->to, &to, NULL);
    }
    if (p->frame) {
        lierne_frame_clip(&from, p->frame, 0);
        lierne_frame_clip(&to, p->frame, 1);
    }
    if (status == LIERNE_OK) {
        status = lierne_boxes_intersect(lierne_planner_axes(p), &from, halo ? &x->needs.boxes : &to,
                                        halo ? &x->shown : &x->boxes);
    }
    status = status == LIERNE_OK && halo ? merge_shown(p, x) : status;
    lierne_mem_free(from.at);
    lierne_mem_free(to.at);
    return status;
}

lierne_status lierne_cell_overlap_fill(const lierne_planner *p, lierne_cell_overlap *x) {
    lierne_status status =
        p->tokens ? lierne_tokens_boxes(&x->boxes, p->tokens, &x->from, &x->to) : intersect(p, x);
    for (size_t b = 0; b < x->boxes.count; b++) {
        x->elements += lierne_overlap_elements(lierne_planner_axes(p), &x->boxes.at[b]);
    }
    return status;
}

/* The bound of a sum: the lowest receiver accounts for it. Of a copy: every receiver for its own.
 * There is none for an output that several ranks write. */
int64_t lierne_cell_overlap_bound(const lierne_planner *p, const lierne_cell_overlap *x) {
    int64_t n = (int64_t)x->receivers.count, partials = p->from->partials;
    if (p->shared) {
        return 0;
    }
    if (partials == 1) {
        bool lacks = lierne_ranks_have(x->receivers.at, x->receivers.count, p->rank) &&
                     !lierne_in_cell(p->from, p->rank, &x->from);
        return lacks ? x->elements : 0;
    }
    return x->receivers.at[0] == p->rank ? x->elements * (partials - 1 + n - 1 + x->none_holds) : 0;
}

void lierne_cell_overlap_clear(lierne_cell_overlap *x) {
    lierne_mem_free(x->boxes.at);
    lierne_mem_free(x->shown.at);
    lierne_needs_destroy(&x->needs);
    lierne_mem_free(x->receivers.at);
    lierne_mem_free(x->reducers.at);
    lierne_mem_free(x->senders.at);
    lierne_mem_free(x->part.at);
}
