/* The routes of a star forest.
 *
 * Forward: every receiver gets each row that it needs once, written to the first ghost of the row;
 * further ghosts of the row are copied from the first one when everything has arrived. Adjoint: a
 * rank sums the ghosts of one row and sends one row to its owner. The owner receives these sums in
 * order of rank, its own at its own place, and adds them in that order. */
#include "plan/sparse/star_forest.h"

static lierne_place place_of(lierne_buffer buffer, lierne_block block) {
    return lierne_place_at(buffer, block);
}

/* n rows from row first on, in a buffer of the caller. */
static lierne_block span(const lierne_star_forest *f, int64_t first, int64_t n) {
    return lierne_block_rows(first, n, f->width, f->stride);
}

static lierne_status copy_span(const lierne_star_forest *f, lierne_ops *ops, int64_t first,
                               int64_t n) {
    lierne_place from = place_of(LIERNE_BUFFER_IN, span(f, first, n));
    return n > 0 ? lierne_ops_put(ops, place_of(LIERNE_BUFFER_OUT, from.block), false, &from, 1)
                 : LIERNE_OK;
}

/* The first ghosts of a sender's roots. */
lierne_status lierne_star_forest_first_ghosts(const lierne_star_forest *f, lierne_route *route,
                                              const lierne_peer_rows *sender, lierne_block *block) {
    if (f->first) {
        LIERNE_TRY(lierne_route_rows(route, block, f->first + sender->first, sender->count,
                                     f->width, f->stride));
    } else {
        *block = span(f, sender->first, sender->count);
    }
    block->offset += lierne_star_forest_ghosts_at(f) * f->stride;
    return LIERNE_OK;
}

static lierne_status receive(const lierne_star_forest *f, lierne_route *route, lierne_stage *stage,
                             const lierne_peer_rows *sender) {
    lierne_block ghosts, rows;
    LIERNE_TRY(lierne_star_forest_first_ghosts(f, route, sender, &ghosts));
    if (sender->rank != f->rank) {
        return lierne_messages_put(&stage->recvs, sender->rank, LIERNE_BUFFER_OUT, ghosts);
    }
    LIERNE_TRY(lierne_route_rows(route, &rows, f->row + sender->first, sender->count, f->width,
                                 f->stride));
    lierne_place from = place_of(LIERNE_BUFFER_IN, rows);
    return lierne_ops_put(&stage->copies, place_of(LIERNE_BUFFER_OUT, ghosts), false, &from, 1);
}

static lierne_status send_rows(const lierne_star_forest *f, lierne_route *route,
                               lierne_stage *stage) {
    for (size_t t = 0; t < f->receivers.count; t++) {
        const lierne_peer_rows *receiver = &f->receivers.at[t];
        lierne_block rows;
        LIERNE_TRY(lierne_route_rows(route, &rows, f->sent + receiver->first, receiver->count,
                                     f->width, f->stride));
        LIERNE_TRY(lierne_messages_put(&stage->sends, receiver->rank, LIERNE_BUFFER_IN, rows));
    }
    return LIERNE_OK;
}

/* Ghosts that are not the first of their root, and the first one for each. */
static void list_further(const lierne_star_forest *f, int64_t *further, int64_t *first) {
    for (int64_t k = 0, n = 0; k < f->nghosts; k++) {
        if (f->first[f->root[k]] != k) {
            further[n] = k;
            first[n++] = f->first[f->root[k]];
        }
    }
}

static lierne_status copy_further(const lierne_star_forest *f, lierne_route *route,
                                  lierne_stage *stage) {
    const int64_t offset = lierne_star_forest_ghosts_at(f) * f->stride, n = f->nghosts - f->nroots;
    const lierne_row_sums copies = {.to = {LIERNE_BUFFER_OUT, offset, f->stride},
                                    .nrows = f->nghosts,
                                    .from = {LIERNE_BUFFER_OUT, offset, f->stride},
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
    if (f->combined) {
        LIERNE_TRY(copy_span(f, &stage->copies, 0, f->nowned));
    }
    for (size_t s = 0; s < f->senders.count; s++) {
        LIERNE_TRY(receive(f, route, stage, &f->senders.at[s]));
    }
    LIERNE_TRY(send_rows(f, route, stage));
    return copy_further(f, route, stage);
}

static lierne_status lay_out_scratch(const lierne_star_forest *f, lierne_route *route,
                                     lierne_star_forest_scratch *d) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    int64_t nown = own ? own->count : 0, offset;
    d->sums = f->nghosts > f->nroots;
    d->received = d->sums ? f->nroots - nown : 0;
    d->nreceived = f->nsent + nown;
    d->own = d->received;
    for (size_t t = 0; t < f->receivers.count && f->receivers.at[t].rank < f->rank; t++) {
        d->own += f->receivers.at[t].count;
    }
    return lierne_route_scratch(route, (d->received + d->nreceived) * f->width, &offset);
}

/* The scratch row of a root's sum; sums for this rank's own rows are where received ones are. */
static int64_t sum_of(const lierne_star_forest_scratch *d, const lierne_peer_rows *own,
                      int64_t root) {
    if (!own || root < own->first) {
        return root;
    }
    int64_t at = root - own->first;
    return at < own->count ? d->own + at : root - own->count;
}

/* Sums the ghosts of each root. If no root has several, only this rank's own ones are copied. */
static lierne_status add_ghosts(const lierne_star_forest *f, lierne_route *route,
                                const lierne_star_forest_scratch *d) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    const lierne_row_sums sums = {.to = {LIERNE_BUFFER_SCRATCH, 0, f->width},
                                  .nrows = d->received + d->nreceived,
                                  .from = {LIERNE_BUFFER_IN,
                                           lierne_star_forest_ghosts_at(f) * f->stride, f->stride},
                                  .width = f->width};
    int64_t *to, *from, n = 0;
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    if (!d->sums && !own) {
        return LIERNE_OK;
    }
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

static lierne_status send_sums(const lierne_star_forest *f, lierne_route *route,
                               lierne_stage *stage, const lierne_star_forest_scratch *d) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    for (size_t s = 0; s < f->senders.count; s++) {
        const lierne_peer_rows *sender = &f->senders.at[s];
        lierne_block block;
        if (sender->rank == f->rank) {
            continue;
        }
        if (!d->sums) {
            LIERNE_TRY(lierne_star_forest_first_ghosts(f, route, sender, &block));
        } else {
            block =
                lierne_block_rows(sum_of(d, own, sender->first), sender->count, f->width, f->width);
        }
        LIERNE_TRY(lierne_messages_put(&stage->sends, sender->rank,
                                       d->sums ? LIERNE_BUFFER_SCRATCH : LIERNE_BUFFER_IN, block));
    }
    return LIERNE_OK;
}

/* Receives from every receiver of the forward; row[i]: the owned row that received row i belongs
 * to.
 */
static lierne_status receive_sums(const lierne_star_forest *f, lierne_stage *stage,
                                  const lierne_star_forest_scratch *d, int64_t *row) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    for (int64_t i = 0; own && i < own->count; i++) {
        row[d->own - d->received + i] = f->row[own->first + i];
    }
    for (size_t t = 0; t < f->receivers.count; t++) {
        const lierne_peer_rows *receiver = &f->receivers.at[t];
        int64_t at = receiver->first + (own && receiver->rank > f->rank ? own->count : 0);
        lierne_block block =
            lierne_block_rows(d->received + at, receiver->count, f->width, f->width);
        LIERNE_TRY(
            lierne_messages_put(&stage->recvs, receiver->rank, LIERNE_BUFFER_SCRATCH, block));
        for (int64_t i = 0; i < receiver->count; i++) {
            row[at + i] = f->sent[receiver->first + i];
        }
    }
    return LIERNE_OK;
}

static lierne_status add_received(const lierne_star_forest *f, lierne_route *route,
                                  lierne_stage *stage, const lierne_star_forest_scratch *d,
                                  const int64_t *row, int64_t *at) {
    const lierne_row_place base = {LIERNE_BUFFER_IN, 0, f->stride};
    const lierne_row_sums sums = {.to = {LIERNE_BUFFER_OUT, 0, f->stride},
                                  .nrows = f->nowned,
                                  .from = {LIERNE_BUFFER_SCRATCH, d->received * f->width, f->width},
                                  .accumulate = !f->combined,
                                  .base = f->combined ? &base : NULL,
                                  .rest = f->combined     ? LIERNE_REST_COPY
                                          : f->accumulate ? LIERNE_REST_NONE
                                                          : LIERNE_REST_ZERO,
                                  .width = f->width};
    for (int64_t i = 0; i < d->nreceived; i++) {
        at[i] = i;
    }
    return lierne_star_forest_sums(route, &stage->sums, &sums, row, at, d->nreceived);
}

static lierne_status write_ghosts(const lierne_star_forest *f, lierne_stage *stage) {
    if (!f->combined || f->nghosts == 0) {
        return LIERNE_OK;
    }
    if (f->keep_ghosts) {
        return copy_span(f, &stage->copies, f->nowned, f->nghosts);
    }
    return lierne_ops_put(&stage->sums, place_of(LIERNE_BUFFER_OUT, span(f, f->nowned, f->nghosts)),
                          false, NULL, 0);
}

lierne_status lierne_star_forest_reduce(const lierne_star_forest *f, lierne_route *route,
                                        lierne_star_forest_scratch *d, int64_t **row) {
    lierne_stage *stage;
    LIERNE_TRY(lay_out_scratch(f, route, d));
    LIERNE_TRY(add_ghosts(f, route, d));
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(send_sums(f, route, stage, d));
    LIERNE_TRY(lierne_alloc_unset(row, 2 * (size_t)d->nreceived, sizeof **row));
    LIERNE_TRY(receive_sums(f, stage, d, *row));
    return add_received(f, route, stage, d, *row, *row + d->nreceived);
}

lierne_status lierne_star_forest_adjoint(const lierne_star_forest *f, lierne_route *route) {
    lierne_star_forest_scratch d = {0};
    int64_t *row = NULL;
    lierne_status status = lierne_star_forest_reduce(f, route, &d, &row);
    lierne_mem_free(row);
    LIERNE_TRY(status);
    return write_ghosts(f, &route->stages.at[route->stages.count - 1]);
}

/* Each row comes back from where it went; a row that ended becomes zero. */
lierne_status lierne_star_forest_way_back(const lierne_star_forest *f, lierne_route *route) {
    int64_t gone = f->nsent + f->nstay;
    lierne_stage *stage;
    lierne_block rows;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    for (size_t s = 0; s < f->senders.count; s++) {
        const lierne_peer_rows *sender = &f->senders.at[s];
        const lierne_place from = place_of(LIERNE_BUFFER_IN, span(f, sender->first, sender->count));
        if (sender->rank != f->rank) {
            LIERNE_TRY(
                lierne_messages_put(&stage->sends, sender->rank, LIERNE_BUFFER_IN, from.block));
            continue;
        }
        LIERNE_TRY(lierne_route_rows(route, &rows, f->row + sender->first, sender->count, f->width,
                                     f->stride));
        LIERNE_TRY(
            lierne_ops_put(&stage->copies, place_of(LIERNE_BUFFER_OUT, rows), false, &from, 1));
    }
    for (size_t t = 0; t < f->receivers.count; t++) {
        const lierne_peer_rows *receiver = &f->receivers.at[t];
        LIERNE_TRY(lierne_route_rows(route, &rows, f->sent + receiver->first, receiver->count,
                                     f->width, f->stride));
        LIERNE_TRY(lierne_messages_put(&stage->recvs, receiver->rank, LIERNE_BUFFER_OUT, rows));
    }
    if (f->nowned == gone) {
        return LIERNE_OK;
    }
    LIERNE_TRY(
        lierne_route_rows(route, &rows, f->sent + gone, f->nowned - gone, f->width, f->stride));
    return lierne_ops_put(&stage->sums, place_of(LIERNE_BUFFER_OUT, rows), false, NULL, 0);
}
