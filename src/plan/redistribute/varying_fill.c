/* Filling a plan whose segments changed: linear in the segments and in the pieces of this rank, and
 * without memory of its own.
 *
 * The tokens of this rank on a side are walked once, for the receives of one direction and the
 * sends of the other. A piece belongs to one part of the other side, which says who has it there.
 * Both ends of a message find its pieces in the order of tokens. */
#include "plan/redistribute/varying_plan.h"

#include <string.h>

/* What an ordinary axis leaves to the cell. */
static void list_pieces(lierne_span_list *list, const lierne_layout *layout, int axis,
                        const lierne_cell *cell) {
    lierne_pieces pieces;
    int64_t local = 0;
    lierne_tokens_shares(&pieces, layout, axis, cell);
    for (int i = 0; i < pieces.count; i++) {
        list->at[list->count] = pieces.at[i];
        list->at[list->count++].local = layout->full_axes >> axis & 1 ? pieces.at[i].start : local;
        local += pieces.at[i].size;
    }
}

/* What an output does with the rows that nothing is moved to. */
static void list_zeros(lierne_varying_plan *v, int side, const lierne_layout *layout) {
    lierne_varying_side *own = &v->sides[side];
    if (v->joined && side == 1) {
        own->zeros.count = 0;
        return;
    }
    if (layout->packed->padding == LIERNE_PADDING_KEEP) {
        for (size_t i = 0; i < own->zeros.count; i++) {
            own->kept += own->zeros.at[i].size;
        }
        own->zeros.count = 0;
    }
    if (v->joined) {
        (void)lierne_joints_left(&own->zeros, layout->joints, &own->own);
    }
}

/* Spans have space for all that fits the capacity, so that lists do not grow. */
static void list_spans(lierne_varying_plan *v, int side) {
    const lierne_layout *layout = v->states[v->current].layouts[side];
    lierne_varying_side *own = &v->sides[side];
    own->own.count = own->tokens.count = own->zeros.count = 0;
    own->kept = 0;
    if (!own->holds) {
        return;
    }
    if (lierne_is_packed(layout, v->axis)) {
        (void)lierne_packed_spans(v->joined ? &own->own : &own->tokens, &own->zeros, layout,
                                  &own->cell);
        list_zeros(v, side, layout);
    } else {
        list_pieces(&own->tokens, layout, v->axis, &own->cell);
    }
    if (v->joined) {
        (void)lierne_joints_spans(&own->tokens, layout->joints, side, &own->own);
    }
    own->shape[v->axis] = lierne_tokens_rows(layout, v->axis, &own->cell);
}

/* The list has space for all pieces that fit the capacity. */
static void find_pieces(lierne_varying_plan *v, int side) {
    const lierne_varying_side *other = &v->sides[!side];
    const lierne_span_list *own = &v->sides[side].tokens, *mine = &other->tokens;
    v->sides[side].pieces.count = 0;
    (void)lierne_tokens_cut(&v->sides[side].pieces, v->states[v->current].locators, side,
                            !v->joined, &(lierne_spans){.at = own->at, .count = own->count},
                            other->holds ? &other->cell : NULL,
                            &(lierne_spans){.at = mine->at, .count = mine->count});
}

/* The most blocks that each message may have: those of the pieces of its parts. */
static void count_blocks(const lierne_varying_plan *v, const lierne_varying_half *h, int side,
                         lierne_messages *messages) {
    for (size_t m = 0; m < messages->count; m++) {
        messages->at[m].blocks.count = 0;
    }
    for (size_t part = 0; part < v->states[0].locators[!side].nparts; part++) {
        for (size_t k = h->first[part]; k < h->first[part + 1]; k++) {
            const lierne_varying_link *link = &h->links.at[k];
            if (link->peer != v->rank) {
                messages->at[link->message].blocks.count +=
                    v->sides[side].pieces.counts[part] * link->ncolumns;
            }
        }
    }
}

/* Gives every message the place of its blocks. */
static void deal_blocks(const lierne_varying_plan *v, lierne_varying_half *h, int side,
                        lierne_messages *messages) {
    lierne_block *next = h->blocks;
    count_blocks(v, h, side, messages);
    for (size_t m = 0; m < messages->count; m++) {
        size_t most = messages->at[m].blocks.count;
        messages->at[m].blocks = (lierne_blocks){.at = next};
        messages->at[m].elements = 0;
        h->cursors[m] = (lierne_varying_cursor){.next = next, .end = -1};
        next += most;
    }
}

/* Takes away what a rank of the part was sent before. */
static lierne_token_piece take_new(lierne_varying_half *h, const lierne_cut_piece *found) {
    lierne_token_piece piece = found->piece;
    int64_t row = found->index[0], end = row + piece.size;
    if (h->covered) {
        int64_t *covered = &h->covered[found->part];
        int64_t skip = *covered <= row ? 0 : *covered < end ? *covered - row : piece.size;
        piece.local[0] += skip;
        piece.size -= skip;
        *covered = end > *covered ? end : *covered;
    }
    return piece;
}

static void forget_covered(const lierne_varying_plan *v, lierne_varying_half *h, int side) {
    if (h->covered) {
        memset(h->covered, 0, v->states[0].locators[!side].nparts * sizeof *h->covered);
    }
}

/* A half at work. copies: of receives, else NULL. */
typedef struct filler {
    lierne_varying_plan *v;
    int d;
    int side;
    lierne_varying_half *half;
    lierne_messages *messages;
    lierne_ops *copies;
} filler;

/* A piece for all links of its part, in any columns. */
static void fill_piece(const filler *f, const lierne_cut_piece *found) {
    const lierne_varying_half *h = f->half;
    const lierne_token_piece piece = take_new(f->half, found);
    int from = f->d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    for (size_t k = h->first[found->part]; k < h->first[found->part + 1]; k++) {
        const lierne_varying_link *link = &h->links.at[k];
        for (size_t c = link->first_column;
             piece.size > 0 && c < link->first_column + link->ncolumns; c++) {
            if (link->peer == f->v->rank) {
                lierne_varying_add_copy(f->v, f->d, f->copies, &piece, &h->columns.at[c]);
            } else {
                lierne_varying_add_piece(f->v, f->side, from, &f->messages->at[link->message],
                                         &h->cursors[link->message], &piece, &h->columns.at[c]);
            }
        }
    }
}

/* The messages of a half, of this rank's buffer on a side. */
static void fill_half(lierne_varying_plan *v, int d, bool receives, lierne_messages *messages,
                      lierne_ops *copies) {
    int side = receives == (d == LIERNE_DIRECTION_FORWARD);
    const filler f = {v, d, side, &v->ways[d].halves[receives], messages, copies};
    const lierne_cut_pieces *pieces = &v->sides[side].pieces;
    const lierne_cut_piece *end = pieces->at + pieces->count;
    const int *of = f.half->message;
    lierne_varying_cursor *cursors = f.half->cursors;
    int64_t width = v->sides[side].width;
    forget_covered(v, f.half, side);
    for (const lierne_cut_piece *found = pieces->at; found < end; found++) {
        int message = of[found->part];
        if (message >= 0) {
            lierne_varying_add_run(&cursors[message], found->piece.local[side] * width,
                                   found->piece.size * width);
        } else {
            fill_piece(&f, found);
        }
    }
    for (size_t m = 0; m < messages->count; m++) {
        messages->at[m].blocks.count += (size_t)(cursors[m].next - messages->at[m].blocks.at);
        messages->at[m].elements += cursors[m].elements;
    }
}

/* Blocks that the forward's other half has. Copies are the receives' own. */
static void take_half(lierne_varying_plan *v, bool receives, lierne_messages *messages,
                      const lierne_messages *same, lierne_ops *copies) {
    const lierne_varying_half *h = &v->ways[1].halves[receives];
    const lierne_cut_pieces *pieces = &v->sides[!receives].pieces;
    for (size_t m = 0; m < messages->count; m++) {
        messages->at[m].blocks = same->at[m].blocks;
        messages->at[m].elements = same->at[m].elements;
    }
    const lierne_cut_piece *end = pieces->at + (receives ? pieces->count : 0);
    const int *of = h->message;
    for (const lierne_cut_piece *found = pieces->at; found < end; found++) {
        if (of[found->part] >= 0) {
            continue;
        }
        for (size_t k = h->first[found->part]; k < h->first[found->part + 1]; k++) {
            const lierne_varying_link *link = &h->links.at[k];
            for (size_t c = link->first_column;
                 link->peer == v->rank && c < link->first_column + link->ncolumns; c++) {
                lierne_varying_add_copy(v, 1, copies, &found->piece, &h->columns.at[c]);
            }
        }
    }
}

/* The rows of an output that nothing is moved to. */
static void fill_output(lierne_varying_plan *v, int side, lierne_ops *copies,
                        lierne_plan_side *plan_side) {
    const lierne_varying_side *own = &v->sides[side];
    plan_side->untouched = 0;
    for (size_t c = 0; c < own->columns.count; c++) {
        const lierne_box *box = &own->columns.at[c];
        bool run = lierne_varying_is_run(v, side, box->size);
        for (size_t i = 0; i < own->zeros.count; i++) {
            const lierne_span *rows = &own->zeros.at[i];
            lierne_op *op = &copies->at[copies->count++];
            lierne_varying_set_op(op, NULL);
            if (run) {
                lierne_varying_set_run(&op->to.block, rows->local * own->width,
                                       rows->size * own->width);
            } else {
                lierne_varying_rows(&op->to.block, v, side, rows->local, rows->size, box);
            }
        }
        const lierne_block kept =
            lierne_varying_block(v, side, 0, own->kept, box->local, box->size);
        plan_side->untouched += lierne_block_elements(&kept);
    }
}

static int64_t count_elements(const lierne_varying_plan *v, int side) {
    int64_t n = 1;
    for (int a = 0; a < v->states[0].layouts[0]->naxes; a++) {
        n *= v->sides[side].shape[a];
    }
    return v->sides[side].holds ? n : 0;
}

static void fill_way(lierne_varying_plan *v, int d, lierne_plan_side *plan_side,
                     const lierne_stage *forward) {
    int from = d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    lierne_route *route = plan_side->route;
    lierne_stage *stage = lierne_varying_stage(v, d, plan_side);
    route->elements[LIERNE_BUFFER_IN] = count_elements(v, from);
    route->elements[LIERNE_BUFFER_OUT] = count_elements(v, !from);
    for (int a = 0; a < plan_side->naxes; a++) {
        plan_side->in[a] = v->sides[from].shape[a];
        plan_side->out[a] = v->sides[!from].shape[a];
    }
    stage->copies.count = stage->sums.count = 0;
    if (v->ways[d].halves[0].same) {
        take_half(v, false, &stage->sends, &forward->recvs, NULL);
    } else {
        deal_blocks(v, &v->ways[d].halves[0], from, &stage->sends);
        fill_half(v, d, false, &stage->sends, NULL);
    }
    if (v->ways[d].halves[1].same) {
        take_half(v, true, &stage->recvs, &forward->sends, &stage->copies);
    } else {
        deal_blocks(v, &v->ways[d].halves[1], !from, &stage->recvs);
        if (v->ways[d].lands) {
            lierne_varying_land(v, d, stage);
        } else {
            fill_half(v, d, true, &stage->recvs, &stage->copies);
        }
    }
    fill_output(v, !from, &stage->copies, plan_side);
    plan_side->min_elements = 0;
    for (size_t m = 0; m < stage->recvs.count; m++) {
        plan_side->min_elements += stage->recvs.at[m].elements;
    }
    if (v->relayed) {
        lierne_varying_relay_fill(v, d, plan_side);
    }
}

/* A hash of what the ranks must have in common, and what tells a reader where they differ: of a
 * bridge the segments, not the images. */
static void stamp(lierne_varying_plan *v) {
    const lierne_varying_state *state = &v->states[v->current];
    const lierne_packed *p = state->layouts[state->layouts[1]->packed ? 1 : 0]->packed;
    uint64_t hash = lierne_layout_hash(state->layouts[0]);
    const uint64_t other = lierne_layout_hash(state->layouts[1]);
    hash = lierne_hash(hash, &other, sizeof other);
    hash = lierne_hash(hash, state->joints.at, (size_t)state->joints.n * sizeof *state->joints.at);
    for (int d = 0; d < 2; d++) {
        int64_t *words = v->ways[d].engine.stamp;
        words[LIERNE_STAMP_UPDATE] = v->update;
        words[LIERNE_STAMP_HASH] = (int64_t)hash;
        words[LIERNE_STAMP_SEGMENTS] = p->n;
        words[LIERNE_STAMP_TOKENS] = p->cu[p->n];
    }
}

/* What this rank has on both sides, and how the other side cuts it. */
static void find_all_pieces(lierne_varying_plan *v) {
    for (int s = 0; s < 2; s++) {
        list_spans(v, s);
    }
    for (int s = 0; s < 2; s++) {
        find_pieces(v, s);
        if (v->rules.repeat) {
            lierne_varying_sort_pieces(v, s);
        }
    }
}

/* The elements of what a neighbour sends, in one direction. */
static void count_sends(lierne_varying_plan *n, int d) {
    lierne_varying_half *h = &n->ways[d].halves[0];
    int side = d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    const lierne_cut_pieces *pieces = &n->sides[side].pieces;
    lierne_messages *messages = &n->ways[d].counted;
    forget_covered(n, h, side);
    for (size_t m = 0; m < messages->count; m++) {
        messages->at[m].elements = 0;
    }
    for (size_t i = 0; i < pieces->count; i++) {
        const lierne_cut_piece *found = &pieces->at[i];
        const lierne_token_piece piece = take_new(h, found);
        for (size_t k = h->first[found->part]; k < h->first[found->part + 1]; k++) {
            const lierne_varying_link *link = &h->links.at[k];
            if (link->peer != n->rank) {
                messages->at[link->message].elements += piece.size * link->width;
            }
        }
    }
}

/* Neighbours come first: their lists are in the memory of this rank's. */
static void count_neighbours(lierne_varying_plan *v) {
    for (size_t i = 0; i < v->neighbours.count; i++) {
        lierne_varying_plan *n = v->neighbours.at[i];
        n->current = v->current;
        find_all_pieces(n);
        count_sends(n, 0);
        count_sends(n, 1);
    }
}

void lierne_varying_fill(lierne_varying_plan *v, lierne_plan_side *const sides[2]) {
    for (int s = 0; s < 2; s++) {
        lierne_locator_fill(&v->states[v->current].locators[s]);
    }
    count_neighbours(v);
    find_all_pieces(v);
    for (int d = 0; d < 2; d++) {
        fill_way(v, d, sides[d], lierne_varying_stage(v, 0, sides[0]));
    }
    stamp(v);
}
