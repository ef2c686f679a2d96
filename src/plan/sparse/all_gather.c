/* The forward as an all-gather (Bruck, Ho, Kipnis, Upfal, Weathersby 1997): after ceil(log2 P)
 * messages every rank has the rows of all members in scratch, one block per member in cyclic order
 * from its own. Ghosts are then copied from there. */
#include "plan/sparse/star_forest.h"

/* The gather of one rank. */
typedef struct gather {
    const lierne_star_forest *f;
    const lierne_members *members;
    const int64_t *nowned_of; /* of each member */
    int own;                  /* this rank's index */
    int64_t *first; /* first[i]: rows before the block of member (own + i) mod n; first[n]: all */
} gather;

static void lay_out(gather *g) {
    for (int i = 0; i < g->members->count; i++) {
        g->first[i + 1] = g->first[i] + g->nowned_of[(g->own + i) % g->members->count];
    }
}

/* Before step k a rank has 2^k blocks, and sends them all or, in the last step, those that the
 * receiver lacks. */
static lierne_status add_step(const gather *g, lierne_route *route, int have) {
    const lierne_star_forest *f = g->f;
    int n = g->members->count, blocks = have < n - have ? have : n - have;
    int to = lierne_members_rank(g->members, (g->own - have + n) % n);
    int from = lierne_members_rank(g->members, (g->own + have) % n);
    int64_t nowned = g->nowned_of[g->own], received = g->first[have + blocks] - g->first[have];
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    if (have == 1) {
        lierne_place in =
            lierne_place_at(LIERNE_BUFFER_IN, lierne_block_rows(0, nowned, f->width, f->stride));
        lierne_place own = lierne_place_at(LIERNE_BUFFER_SCRATCH,
                                           lierne_block_rows(0, nowned, f->width, f->width));
        LIERNE_TRY(lierne_ops_put(&stage->copies, own, false, &in, 1));
    }
    if (g->first[blocks] > 0) {
        bool own = have == 1; /* the copy to scratch is in flight */
        LIERNE_TRY(lierne_messages_put(&stage->sends, to,
                                       own ? LIERNE_BUFFER_IN : LIERNE_BUFFER_SCRATCH,
                                       lierne_block_rows(0, g->first[blocks], f->width,
                                                         own ? f->stride : f->width)));
    }
    if (received > 0) {
        LIERNE_TRY(
            lierne_messages_put(&stage->recvs, from, LIERNE_BUFFER_SCRATCH,
                                lierne_block_rows(g->first[have], received, f->width, f->width)));
    }
    return LIERNE_OK;
}

/* The row in scratch of each root; 0 for a row that does not exist, whose owner rejects the plan.
 */
static void find_rows(const gather *g, int64_t *at) {
    const lierne_star_forest *f = g->f;
    int n = g->members->count;
    for (size_t s = 0; s < f->senders.count; s++) {
        const lierne_peer_rows *sender = &f->senders.at[s];
        int index = lierne_members_index(g->members, sender->rank);
        int64_t block = g->first[(index - g->own + n) % n];
        for (int64_t i = sender->first; i < sender->first + sender->count; i++) {
            bool exists = f->row[i] >= 0 && f->row[i] < g->nowned_of[index];
            at[i] = exists ? block + f->row[i] : 0;
        }
    }
}

static lierne_status copy_ghosts(const lierne_star_forest *f, lierne_route *route,
                                 lierne_stage *stage, const int64_t *root_at) {
    int64_t *at;
    lierne_place from = {.buffer = LIERNE_BUFFER_SCRATCH}, to = {.buffer = LIERNE_BUFFER_OUT};
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

static lierne_status fill_gather(gather *g, lierne_route *route, int64_t *root_at) {
    int64_t offset;
    lierne_stage *stage;
    lay_out(g);
    LIERNE_TRY(lierne_route_scratch(route, g->first[g->members->count] * g->f->width, &offset));
    for (int have = 1; have < g->members->count; have *= 2) {
        LIERNE_TRY(add_step(g, route, have));
    }
    find_rows(g, root_at);
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    return copy_ghosts(g->f, route, stage, root_at);
}

lierne_status lierne_star_forest_all_gather(const lierne_star_forest *f, lierne_route *route,
                                            const lierne_members *members,
                                            const int64_t *nowned_of) {
    gather g = {.f = f,
                .members = members,
                .nowned_of = nowned_of,
                .own = lierne_members_index(members, f->rank)};
    int64_t *root_at;
    LIERNE_TRY(lierne_alloc(&g.first, (size_t)members->count + 1, sizeof *g.first));
    lierne_status status = lierne_alloc(&root_at, (size_t)f->nroots, sizeof *root_at);
    if (status == LIERNE_OK) {
        status = fill_gather(&g, route, root_at);
        lierne_mem_free(root_at);
    }
    lierne_mem_free(g.first);
    return status;
}
