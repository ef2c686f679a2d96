/* Routes of swaps.
 *
 * Each swap is a stage, so that ghosts are passed on and additions are in the order of the
 * reference. Owned rows (adjoint: all rows) are copied while the messages of the first swap, which
 * read the input, are in flight; in place there is nothing to copy. All swaps of the adjoint
 * receive into the same scratch, because the sums of a swap have read it before the messages of the
 * next one are posted. */
#include "plan/halo/halo.h"

typedef struct writer {
    const lierne_halo_saved_spec *saved;
    const lierne_halo_spec *spec;
    lierne_route *route;
    lierne_stage *stage;  /* of the current swap */
    lierne_buffer source; /* what it sends from: in for the first swap, then out */
    int swap;
    lierne_block list; /* its rows */
    int64_t received;  /* scratch of the adjoint */
} writer;

static lierne_block rows_of(const writer *w, int64_t first, int64_t n) {
    return lierne_block_rows(first, n, w->spec->width, w->spec->stride);
}

/* The swap's ghosts as a message has them, and with the loops of the list. */
static lierne_block ghosts(const writer *w) {
    return rows_of(w, w->saved->first[w->swap], w->spec->recvnum[w->swap]);
}

static lierne_block ghosts_like_list(const writer *w) {
    lierne_block block = w->list;
    if (!block.rows) {
        return ghosts(w);
    }
    block.rows = NULL;
    block.offset = w->saved->first[w->swap] * w->spec->stride;
    return block;
}

static lierne_status add_copy(const writer *w, lierne_place to, lierne_place from) {
    return lierne_ops_put(&w->stage->copies, to, false, &from, 1);
}

/* The first n rows, from in to out. */
static lierne_status copy_rows(const writer *w, int64_t n) {
    lierne_block rows = rows_of(w, 0, n);
    if (n == 0) {
        return LIERNE_OK;
    }
    return add_copy(w, lierne_place_at(LIERNE_BUFFER_OUT, rows),
                    lierne_place_at(LIERNE_BUFFER_IN, rows));
}

/* Adds the stage of swap s. */
static lierne_status start_stage(writer *w, int s, int first, int64_t copied) {
    w->swap = s;
    w->source = s == first ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT;
    LIERNE_TRY(lierne_route_add_stage(w->route, &w->stage));
    LIERNE_TRY(lierne_route_rows(w->route, &w->list, w->spec->sendlist[s], w->spec->sendnum[s],
                                 w->spec->width, w->spec->stride));
    return s == first ? copy_rows(w, copied) : LIERNE_OK;
}

static lierne_status forward_swap(writer *w) {
    const lierne_halo_spec *spec = w->spec;
    int to = spec->sendproc[w->swap], from = spec->recvproc[w->swap];
    if (to == w->route->rank) {
        return spec->sendnum[w->swap] == 0
                   ? LIERNE_OK
                   : add_copy(w, lierne_place_at(LIERNE_BUFFER_OUT, ghosts_like_list(w)),
                              lierne_place_at(w->source, w->list));
    }
    if (spec->sendnum[w->swap] > 0) {
        LIERNE_TRY(lierne_messages_put(&w->stage->sends, to, w->source, w->list));
    }
    if (spec->recvnum[w->swap] > 0) {
        LIERNE_TRY(lierne_messages_put(&w->stage->recvs, from, LIERNE_BUFFER_OUT, ghosts(w)));
    }
    return LIERNE_OK;
}

/* list += from, row by row. */
static lierne_status add_sum(const writer *w, lierne_place from) {
    const lierne_place both[] = {lierne_place_at(LIERNE_BUFFER_OUT, w->list), from};
    return lierne_ops_put(&w->stage->sums, both[0], false, both, 2);
}

static lierne_status adjoint_swap(writer *w) {
    const lierne_halo_spec *spec = w->spec;
    int to = spec->sendproc[w->swap], from = spec->recvproc[w->swap];
    int64_t n = spec->sendnum[w->swap];
    if (to == w->route->rank) {
        return n == 0 ? LIERNE_OK
                      : add_sum(w, lierne_place_at(LIERNE_BUFFER_OUT, ghosts_like_list(w)));
    }
    if (spec->recvnum[w->swap] > 0) {
        LIERNE_TRY(lierne_messages_put(&w->stage->sends, from, w->source, ghosts(w)));
    }
    if (n == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_messages_put(&w->stage->recvs, to, LIERNE_BUFFER_SCRATCH,
                                   lierne_block_range(w->received, n * spec->width)));
    return add_sum(w, lierne_place_at(LIERNE_BUFFER_SCRATCH,
                                      lierne_block_packed(&w->list, w->received)));
}

/* Scratch for the most rows that a swap of the adjoint receives from another rank. */
static lierne_status reserve_received(writer *w) {
    int64_t most = 0;
    for (int s = 0; s < w->spec->nswap; s++) {
        if (w->spec->sendproc[s] != w->route->rank && w->spec->sendnum[s] > most) {
            most = w->spec->sendnum[s];
        }
    }
    return lierne_route_scratch(w->route, most * w->spec->width, &w->received);
}

static lierne_status zero_ghosts(const writer *w) {
    if (w->spec->nghost == 0 || w->spec->keep_ghosts) {
        return LIERNE_OK;
    }
    lierne_place to =
        lierne_place_at(LIERNE_BUFFER_OUT, rows_of(w, w->spec->nlocal, w->spec->nghost));
    return lierne_ops_put(&w->stage->sums, to, false, NULL, 0);
}

static lierne_status forward(writer *w) {
    for (int s = 0; s < w->spec->nswap; s++) {
        LIERNE_TRY(start_stage(w, s, 0, w->spec->nlocal));
        LIERNE_TRY(forward_swap(w));
    }
    return LIERNE_OK;
}

static lierne_status adjoint(writer *w) {
    int last = w->spec->nswap - 1;
    LIERNE_TRY(reserve_received(w));
    for (int s = last; s >= 0; s--) {
        LIERNE_TRY(start_stage(w, s, last, w->spec->nlocal + w->spec->nghost));
        LIERNE_TRY(adjoint_swap(w));
    }
    return zero_ghosts(w);
}

static lierne_status identity(writer *w) {
    LIERNE_TRY(lierne_route_add_stage(w->route, &w->stage));
    return copy_rows(w, w->spec->nlocal + w->spec->nghost);
}

lierne_status lierne_halo_routes(const lierne_halo_saved_spec *saved, int rank,
                                 lierne_plan_parts *parts) {
    const lierne_halo_spec *spec = &saved->spec;
    int64_t rows = spec->nlocal + spec->nghost;
    int64_t elements = rows > 0 ? (rows - 1) * spec->stride + spec->width : 0;
    for (int d = 0; d < 2; d++) {
        lierne_plan_side *side = &parts->side[d];
        writer w = {.saved = saved, .spec = spec};
        side->naxes = 2;
        side->in[0] = side->out[0] = rows;
        side->in[1] = side->out[1] = spec->width;
        LIERNE_TRY(lierne_route_create(&side->route, rank, elements, elements));
        LIERNE_TRY(LIERNE_VEC_PUSH(&side->owned, rows_of(&w, 0, rows)));
        w.route = side->route;
        LIERNE_TRY(spec->nswap == 0                ? identity(&w)
                   : d == LIERNE_DIRECTION_FORWARD ? forward(&w)
                                                   : adjoint(&w));
    }
    return LIERNE_OK;
}
