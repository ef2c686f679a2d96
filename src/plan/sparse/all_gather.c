/* The forward as an all-gather (Bruck, Ho, Kipnis, Upfal, Weathersby 1997): after ceil(log2 P)
 * messages every rank has the rows of all ranks in scratch, one block per rank in cyclic order from
 * its own. Ghosts are then copied from there. */
#include "plan/sparse/star_forest.h"

/* first[i]: rows before the block of rank (rank + i) mod P; first[P]: rows of all. */
static void lay_out(const lierne_star_forest *f, int world, const int64_t *nowned_of,
                    int64_t *first) {
    for (int i = 0; i < world; i++) {
        first[i + 1] = first[i] + nowned_of[(f->rank + i) % world];
    }
}

/* Before step k a rank has 2^k blocks, and sends them all or, in the last step, those that the
 * receiver lacks. */
static lierne_status add_step(const lierne_star_forest *f, lierne_route *route, int world, int have,
                              const int64_t *nowned_of, const int64_t *first) {
    int to = (f->rank - have + world) % world, from = (f->rank + have) % world;
    int blocks = have < world - have ? have : world - have;
    int64_t received = first[have + blocks] - first[have];
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    if (have == 1) {
        lierne_place in = lierne_place_at(LIERNE_IN, lierne_block_rows(0, nowned_of[f->rank],
                                                                       f->width, f->stride));
        lierne_place own = lierne_place_at(LIERNE_SCRATCH, lierne_block_rows(0, nowned_of[f->rank],
                                                                             f->width, f->width));
        LIERNE_TRY(lierne_ops_put(&stage->copies, own, false, &in, 1));
    }
    if (first[blocks] > 0) {
        bool own = have == 1; /* the copy to scratch is in flight */
        LIERNE_TRY(lierne_messages_put(&stage->sends, to, own ? LIERNE_IN : LIERNE_SCRATCH,
                                       lierne_block_rows(0, first[blocks], f->width,
                                                         own ? f->stride : f->width)));
    }
    if (received > 0) {
        LIERNE_TRY(
            lierne_messages_put(&stage->recvs, from, LIERNE_SCRATCH,
                                lierne_block_rows(first[have], received, f->width, f->width)));
    }
    return LIERNE_OK;
}

/* The row in scratch of each root; 0 for a row that does not exist, whose owner rejects the plan.
 */
static void find_rows(const lierne_star_forest *f, int world, const int64_t *nowned_of,
                      const int64_t *first, int64_t *at) {
    for (size_t s = 0; s < f->senders.count; s++) {
        const lierne_peer_rows *sender = &f->senders.at[s];
        int64_t block = first[(sender->rank - f->rank + world) % world];
        for (int64_t i = sender->first; i < sender->first + sender->count; i++) {
            bool exists = f->row[i] >= 0 && f->row[i] < nowned_of[sender->rank];
            at[i] = exists ? block + f->row[i] : 0;
        }
    }
}

static lierne_status copy_ghosts(const lierne_star_forest *f, lierne_route *route,
                                 lierne_stage *stage, const int64_t *root_at) {
    int64_t *at;
    lierne_place from = {.buffer = LIERNE_SCRATCH}, to = {.buffer = LIERNE_OUT};
    if (f->nghosts == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&at, (size_t)f->nghosts, sizeof *at));
    for (int64_t k = 0; k < f->nghosts; k++) {
        at[k] = root_at[lierne_star_forest_root(f, k)];
    }
    lierne_status status =
        lierne_route_rows(route, &from.block, at, f->nghosts, f->width, f->width);
    lierne_mem_free(at);
    LIERNE_TRY(status);
    to.block = lierne_block_rows(lierne_star_forest_ghosts_at(f), f->nghosts, f->width, f->stride);
    return lierne_ops_put(&stage->sums, to, false, &from, 1);
}

static lierne_status fill(const lierne_star_forest *f, lierne_route *route, int world,
                          const int64_t *nowned_of, int64_t *first, int64_t *root_at) {
    int64_t offset;
    lierne_stage *stage;
    lay_out(f, world, nowned_of, first);
    LIERNE_TRY(lierne_route_scratch(route, first[world] * f->width, &offset));
    for (int have = 1; have < world; have *= 2) {
        LIERNE_TRY(add_step(f, route, world, have, nowned_of, first));
    }
    find_rows(f, world, nowned_of, first, root_at);
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    return copy_ghosts(f, route, stage, root_at);
}

lierne_status lierne_star_forest_all_gather(const lierne_star_forest *f, lierne_route *route,
                                            int world, const int64_t *nowned_of) {
    int64_t *first, *root_at;
    LIERNE_TRY(lierne_alloc(&first, (size_t)world + 1, sizeof *first));
    lierne_status status = lierne_alloc(&root_at, (size_t)f->nroots, sizeof *root_at);
    if (status == LIERNE_OK) {
        status = fill(f, route, world, nowned_of, first, root_at);
        lierne_mem_free(root_at);
    }
    lierne_mem_free(first);
    return status;
}
