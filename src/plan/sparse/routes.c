/* The routes of a forest.
 *
 * Forward: every target gets each row that it asked for once, straight into its place among the
 * ghosts; further ghosts of the same row are copied from the first one when all has arrived.
 * Adjoint: ghosts of one row are added on their rank first, so that one row goes home; what arrives
 * is laid out by rank, this rank's own ghosts at its own place, and added in that order. */
#include "plan/sparse/star_forest.h"

static lierne_place place_of(lierne_buffer buffer, lierne_block block) {
    return lierne_place_at(buffer, block);
}

/* n rows from row first on, in an array of the caller's. */
static lierne_block span(const lierne_star_forest *f, int64_t first, int64_t n) {
    return lierne_block_rows(first, n, f->width, f->stride);
}

static lierne_status copy_span(const lierne_star_forest *f, lierne_ops *ops, int64_t first,
                               int64_t n) {
    lierne_place from = place_of(LIERNE_IN, span(f, first, n));
    return n > 0 ? lierne_ops_put(ops, place_of(LIERNE_OUT, from.block), false, &from, 1)
                 : LIERNE_OK;
}

/* The places of the first ghosts of a source's roots. */
static lierne_status ghosts_of(const lierne_star_forest *f, lierne_route *route,
                               const lierne_peer_rows *source, lierne_block *block) {
    if (f->first) {
        LIERNE_TRY(lierne_route_rows(route, block, f->first + source->first, source->count,
                                     f->width, f->stride));
    } else {
        *block = span(f, source->first, source->count);
    }
    block->offset += lierne_star_forest_ghosts_at(f) * f->stride;
    return LIERNE_OK;
}

static lierne_status receive(const lierne_star_forest *f, lierne_route *route, lierne_stage *stage,
                             const lierne_peer_rows *source) {
    lierne_block ghosts, rows;
    LIERNE_TRY(ghosts_of(f, route, source, &ghosts));
    if (source->rank != f->rank) {
        return lierne_messages_put(&stage->recvs, source->rank, LIERNE_OUT, ghosts);
    }
    LIERNE_TRY(lierne_route_rows(route, &rows, f->row + source->first, source->count, f->width,
                                 f->stride));
    lierne_place from = place_of(LIERNE_IN, rows);
    return lierne_ops_put(&stage->copies, place_of(LIERNE_OUT, ghosts), false, &from, 1);
}

static lierne_status send_wanted(const lierne_star_forest *f, lierne_route *route,
                                 lierne_stage *stage) {
    for (size_t t = 0; t < f->targets.count; t++) {
        const lierne_peer_rows *target = &f->targets.at[t];
        lierne_block rows;
        LIERNE_TRY(lierne_route_rows(route, &rows, f->wanted + target->first, target->count,
                                     f->width, f->stride));
        LIERNE_TRY(lierne_messages_put(&stage->sends, target->rank, LIERNE_IN, rows));
    }
    return LIERNE_OK;
}

/* Ghosts beyond the first of their roots, and the first ones. */
static void list_further(const lierne_star_forest *f, int64_t *further, int64_t *first) {
    for (int64_t k = 0, n = 0; k < f->nghosts; k++) {
        if (f->first[f->root[k]] != k) {
            further[n] = k;
            first[n++] = f->first[f->root[k]];
        }
    }
}

static lierne_status fan_out(const lierne_star_forest *f, lierne_route *route,
                             lierne_stage *stage) {
    const int64_t offset = lierne_star_forest_ghosts_at(f) * f->stride, n = f->nghosts - f->nroots;
    const lierne_row_sums copies = {.to = {LIERNE_OUT, offset, f->stride},
                                    .nrows = f->nghosts,
                                    .from = {LIERNE_OUT, offset, f->stride},
                                    .width = f->width};
    int64_t *lists;
    if (n == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc_unset(&lists, 2 * (size_t)n, sizeof *lists));
    list_further(f, lists, lists + n);
    lierne_status status =
        lierne_star_forest_sums(route, &stage->sums, &copies, lists, lists + n, n);
    lierne_mem_free(lists);
    return status;
}

lierne_status lierne_star_forest_forward(const lierne_star_forest *f, lierne_route *route) {
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    if (f->whole) {
        LIERNE_TRY(copy_span(f, &stage->copies, 0, f->nowned));
    }
    for (size_t s = 0; s < f->sources.count; s++) {
        LIERNE_TRY(receive(f, route, stage, &f->sources.at[s]));
    }
    LIERNE_TRY(send_wanted(f, route, stage));
    return fan_out(f, route, stage);
}

/* Scratch of the adjoint, rows of width elements: sums of ghosts that go to other ranks, where a
 * root has several, then what is added at home: arrivals and own sums, by rank. */
typedef struct desk {
    bool sums; /* whether there are such sums */
    int64_t arrivals;
    int64_t own; /* of own sums among the arrivals */
    int64_t narrivals;
} desk;

static lierne_status set_desk(const lierne_star_forest *f, lierne_route *route, desk *d) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    int64_t nown = own ? own->count : 0, offset;
    d->sums = f->nghosts > f->nroots;
    d->arrivals = d->sums ? f->nroots - nown : 0;
    d->narrivals = f->ntargets + nown;
    d->own = d->arrivals;
    for (size_t t = 0; t < f->targets.count && f->targets.at[t].rank < f->rank; t++) {
        d->own += f->targets.at[t].count;
    }
    return lierne_route_scratch(route, (d->arrivals + d->narrivals) * f->width, &offset);
}

/* Where a root's sum lies in scratch: those of this rank's own rows at home already. */
static int64_t sum_of(const desk *d, const lierne_peer_rows *own, int64_t root) {
    if (!own || root < own->first) {
        return root;
    }
    int64_t at = root - own->first;
    return at < own->count ? d->own + at : root - own->count;
}

/* Adds the ghosts of each root together. Without further ghosts only own ones are copied home. */
static lierne_status add_ghosts(const lierne_star_forest *f, lierne_route *route, const desk *d) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    const lierne_row_sums sums = {.to = {LIERNE_SCRATCH, 0, f->width},
                                  .nrows = d->arrivals + d->narrivals,
                                  .from = {LIERNE_IN, lierne_star_forest_ghosts_at(f) * f->stride,
                                           f->stride},
                                  .width = f->width};
    int64_t *to, *from, n = 0;
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(lierne_alloc_unset(&to, 2 * (size_t)f->nghosts, sizeof *to));
    from = to + f->nghosts;
    for (int64_t k = 0; k < f->nghosts; k++) {
        int64_t root = lierne_star_forest_root(f, k);
        bool mine = own && root >= own->first && root < own->first + own->count;
        if (d->sums || mine) {
            to[n] = sum_of(d, own, root);
            from[n++] = k;
        }
    }
    lierne_status status = lierne_star_forest_sums(route, &stage->sums, &sums, to, from, n);
    lierne_mem_free(to);
    return status;
}

static lierne_status send_home(const lierne_star_forest *f, lierne_route *route,
                               lierne_stage *stage, const desk *d) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    for (size_t s = 0; s < f->sources.count; s++) {
        const lierne_peer_rows *source = &f->sources.at[s];
        lierne_block block;
        if (source->rank == f->rank) {
            continue;
        }
        if (!d->sums) {
            LIERNE_TRY(ghosts_of(f, route, source, &block));
        } else {
            block =
                lierne_block_rows(sum_of(d, own, source->first), source->count, f->width, f->width);
        }
        LIERNE_TRY(lierne_messages_put(&stage->sends, source->rank,
                                       d->sums ? LIERNE_SCRATCH : LIERNE_IN, block));
    }
    return LIERNE_OK;
}

/* Receives from every target into its place; notes of each arrival the row that it belongs to. */
static lierne_status take_home(const lierne_star_forest *f, lierne_stage *stage, const desk *d,
                               int64_t *row) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    for (int64_t i = 0; own && i < own->count; i++) {
        row[d->own - d->arrivals + i] = f->row[own->first + i];
    }
    for (size_t t = 0; t < f->targets.count; t++) {
        const lierne_peer_rows *target = &f->targets.at[t];
        int64_t at = target->first + (own && target->rank > f->rank ? own->count : 0);
        lierne_block block = lierne_block_rows(d->arrivals + at, target->count, f->width, f->width);
        LIERNE_TRY(lierne_messages_put(&stage->recvs, target->rank, LIERNE_SCRATCH, block));
        for (int64_t i = 0; i < target->count; i++) {
            row[at + i] = f->wanted[target->first + i];
        }
    }
    return LIERNE_OK;
}

static lierne_status add_arrivals(const lierne_star_forest *f, lierne_route *route,
                                  lierne_stage *stage, const desk *d, const int64_t *row,
                                  int64_t *at) {
    const lierne_row_place base = {LIERNE_IN, 0, f->stride};
    const lierne_row_sums sums = {.to = {LIERNE_OUT, 0, f->stride},
                                  .nrows = f->nowned,
                                  .from = {LIERNE_SCRATCH, d->arrivals * f->width, f->width},
                                  .onto = !f->whole,
                                  .base = f->whole ? &base : NULL,
                                  .rest = f->whole        ? LIERNE_REST_COPY
                                          : f->accumulate ? LIERNE_REST_NONE
                                                          : LIERNE_REST_ZERO,
                                  .width = f->width};
    for (int64_t i = 0; i < d->narrivals; i++) {
        at[i] = i;
    }
    return lierne_star_forest_sums(route, &stage->sums, &sums, row, at, d->narrivals);
}

static lierne_status end_ghosts(const lierne_star_forest *f, lierne_stage *stage) {
    if (!f->whole || f->nghosts == 0) {
        return LIERNE_OK;
    }
    if (f->keep_ghosts) {
        return copy_span(f, &stage->copies, f->nowned, f->nghosts);
    }
    return lierne_ops_put(&stage->sums, place_of(LIERNE_OUT, span(f, f->nowned, f->nghosts)), false,
                          NULL, 0);
}

lierne_status lierne_star_forest_adjoint(const lierne_star_forest *f, lierne_route *route) {
    desk d = {0};
    lierne_stage *stage;
    int64_t *row;
    LIERNE_TRY(set_desk(f, route, &d));
    LIERNE_TRY(add_ghosts(f, route, &d));
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(send_home(f, route, stage, &d));
    LIERNE_TRY(lierne_alloc_unset(&row, 2 * (size_t)d.narrivals, sizeof *row));
    lierne_status status = take_home(f, stage, &d, row);
    if (status == LIERNE_OK) {
        status = add_arrivals(f, route, stage, &d, row, row + d.narrivals);
    }
    lierne_mem_free(row);
    LIERNE_TRY(status);
    return end_ghosts(f, stage);
}
