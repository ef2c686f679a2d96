/* Routes of swaps.
 *
 * A stage is a swap, so that ghosts travel on and additions come in the order of the reference.
 * Owned rows are copied (adjoint: all rows) while the first swap's messages, which read the input,
 * are in flight; where input and output are the same array there is nothing to copy. One piece of
 * scratch serves all swaps of the adjoint, since a swap's sums have read it before the next one's
 * messages are posted. */
#include "plan/halo/halo.h"

typedef struct swapper {
    const lierne_halo_saved_spec *recipe;
    const lierne_halo_spec *spec;
    lierne_route *route;
    lierne_stage *stage;  /* of the swap at work */
    lierne_buffer source; /* that it reads: in for the first one, then out */
    int swap;
    lierne_block list; /* its rows */
    int64_t landing;   /* scratch of the adjoint */
} swapper;

static lierne_block rows_of(const swapper *w, int64_t first, int64_t n) {
    return lierne_block_rows(first, n, w->spec->width, w->spec->stride);
}

/* The swap's ghosts, as a message has them; then with the loops of the list. */
static lierne_block ghosts(const swapper *w) {
    return rows_of(w, w->recipe->first[w->swap], w->spec->recvnum[w->swap]);
}

static lierne_block ghosts_like_list(const swapper *w) {
    lierne_block block = w->list;
    if (!block.rows) {
        return ghosts(w);
    }
    block.rows = NULL;
    block.offset = w->recipe->first[w->swap] * w->spec->stride;
    return block;
}

static lierne_status add_copy(const swapper *w, lierne_place to, lierne_place from) {
    return lierne_ops_put(&w->stage->copies, to, false, &from, 1);
}

/* The first n rows, from in to out. */
static lierne_status copy_rows(const swapper *w, int64_t n) {
    lierne_block rows = rows_of(w, 0, n);
    if (n == 0) {
        return LIERNE_OK;
    }
    return add_copy(w, lierne_place_at(LIERNE_OUT, rows), lierne_place_at(LIERNE_IN, rows));
}

/* The stage of swap s. */
static lierne_status start(swapper *w, int s, int first, int64_t copied) {
    w->swap = s;
    w->source = s == first ? LIERNE_IN : LIERNE_OUT;
    LIERNE_TRY(lierne_route_add_stage(w->route, &w->stage));
    LIERNE_TRY(lierne_route_rows(w->route, &w->list, w->spec->sendlist[s], w->spec->sendnum[s],
                                 w->spec->width, w->spec->stride));
    return s == first ? copy_rows(w, copied) : LIERNE_OK;
}

static lierne_status forward_swap(swapper *w) {
    const lierne_halo_spec *spec = w->spec;
    int to = spec->sendproc[w->swap], from = spec->recvproc[w->swap];
    if (to == w->route->rank) {
        return spec->sendnum[w->swap] == 0
                   ? LIERNE_OK
                   : add_copy(w, lierne_place_at(LIERNE_OUT, ghosts_like_list(w)),
                              lierne_place_at(w->source, w->list));
    }
    if (spec->sendnum[w->swap] > 0) {
        LIERNE_TRY(lierne_messages_put(&w->stage->sends, to, w->source, w->list));
    }
    if (spec->recvnum[w->swap] > 0) {
        LIERNE_TRY(lierne_messages_put(&w->stage->recvs, from, LIERNE_OUT, ghosts(w)));
    }
    return LIERNE_OK;
}

/* list += from, row by row. */
static lierne_status add_sum(const swapper *w, lierne_place from) {
    const lierne_place both[] = {lierne_place_at(LIERNE_OUT, w->list), from};
    return lierne_ops_put(&w->stage->sums, both[0], false, both, 2);
}

static lierne_status adjoint_swap(swapper *w) {
    const lierne_halo_spec *spec = w->spec;
    int to = spec->sendproc[w->swap], from = spec->recvproc[w->swap];
    int64_t n = spec->sendnum[w->swap];
    if (to == w->route->rank) {
        return n == 0 ? LIERNE_OK : add_sum(w, lierne_place_at(LIERNE_OUT, ghosts_like_list(w)));
    }
    if (spec->recvnum[w->swap] > 0) {
        LIERNE_TRY(lierne_messages_put(&w->stage->sends, from, w->source, ghosts(w)));
    }
    if (n == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_messages_put(&w->stage->recvs, to, LIERNE_SCRATCH,
                                   lierne_block_range(w->landing, n * spec->width)));
    return add_sum(w, lierne_place_at(LIERNE_SCRATCH, lierne_block_packed(&w->list, w->landing)));
}

/* Room for the rows of any swap that come from another rank. */
static lierne_status reserve_landing(swapper *w) {
    int64_t most = 0;
    for (int s = 0; s < w->spec->nswap; s++) {
        if (w->spec->sendproc[s] != w->route->rank && w->spec->sendnum[s] > most) {
            most = w->spec->sendnum[s];
        }
    }
    return lierne_route_scratch(w->route, most * w->spec->width, &w->landing);
}

static lierne_status zero_ghosts(const swapper *w) {
    if (w->spec->nghost == 0 || w->spec->keep_ghosts) {
        return LIERNE_OK;
    }
    lierne_place to = lierne_place_at(LIERNE_OUT, rows_of(w, w->spec->nlocal, w->spec->nghost));
    return lierne_ops_put(&w->stage->sums, to, false, NULL, 0);
}

static lierne_status forward(swapper *w) {
    for (int s = 0; s < w->spec->nswap; s++) {
        LIERNE_TRY(start(w, s, 0, w->spec->nlocal));
        LIERNE_TRY(forward_swap(w));
    }
    return LIERNE_OK;
}

static lierne_status adjoint(swapper *w) {
    int last = w->spec->nswap - 1;
    LIERNE_TRY(reserve_landing(w));
    for (int s = last; s >= 0; s--) {
        LIERNE_TRY(start(w, s, last, w->spec->nlocal + w->spec->nghost));
        LIERNE_TRY(adjoint_swap(w));
    }
    return zero_ghosts(w);
}

static lierne_status identity(swapper *w) {
    LIERNE_TRY(lierne_route_add_stage(w->route, &w->stage));
    return copy_rows(w, w->spec->nlocal + w->spec->nghost);
}

lierne_status lierne_halo_routes(const lierne_halo_saved_spec *recipe, int rank,
                                 lierne_plan_parts *parts) {
    const lierne_halo_spec *spec = &recipe->spec;
    int64_t rows = spec->nlocal + spec->nghost;
    int64_t elements = rows > 0 ? (rows - 1) * spec->stride + spec->width : 0;
    for (int d = 0; d < 2; d++) {
        lierne_plan_side *side = &parts->side[d];
        swapper w = {.recipe = recipe, .spec = spec};
        side->naxes = 2;
        side->in[0] = side->out[0] = rows;
        side->in[1] = side->out[1] = spec->width;
        LIERNE_TRY(lierne_route_create(&side->route, rank, elements, elements));
        LIERNE_TRY(LIERNE_VEC_PUSH(&side->owned, rows_of(&w, 0, rows)));
        w.route = side->route;
        LIERNE_TRY(spec->nswap == 0      ? identity(&w)
                   : d == LIERNE_FORWARD ? forward(&w)
                                         : adjoint(&w));
    }
    return LIERNE_OK;
}
