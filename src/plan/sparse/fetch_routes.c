/* The route of a fetch-and-add: that of the adjoint, which sums the additions, and a way back.
 *
 * What a ghost fetches is the value of its row before its rank added to it (the base, which only
 * the owner knows), and what ghosts before it on its rank added (the prefix, which only its rank
 * knows). So the owner answers each sum with a base, and a rank gets one row for each that it sent.
 * Both are chains: each link adds a contribution to the link before it. Links that are as far along
 * their chains are one operation. */
#include "plan/sparse/star_forest.h"

/* Of each of n contributions to some rows, in their order: the one before it to the same row, or
 * -1. */
typedef struct chains {
    int64_t n;
    int64_t *before;
    lierne_keyed *links; /* contributions by their number in the chain */
    lierne_keyed *spare;
    int64_t *last; /* of each row, while chains are found */
    int64_t *list; /* of an operation */
} chains;

static void chains_free(chains *c) {
    lierne_mem_free(c->before);
    lierne_mem_free(c->links);
    lierne_mem_free(c->spare);
    lierne_mem_free(c->last);
    lierne_mem_free(c->list);
}

static lierne_status chains_reserve(chains *c, int64_t n, int64_t nrows) {
    c->n = n;
    LIERNE_TRY(lierne_alloc_unset(&c->before, (size_t)n, sizeof *c->before));
    LIERNE_TRY(lierne_alloc_unset(&c->links, (size_t)n, sizeof *c->links));
    LIERNE_TRY(lierne_alloc_unset(&c->spare, (size_t)n, sizeof *c->spare));
    LIERNE_TRY(lierne_alloc_unset(&c->list, (size_t)n, sizeof *c->list));
    LIERNE_TRY(lierne_alloc_unset(&c->last, (size_t)nrows, sizeof *c->last));
    for (int64_t r = 0; r < nrows; r++) {
        c->last[r] = -1;
    }
    return LIERNE_OK;
}

/* row: of each contribution; NULL: of ghosts, the root. */
static lierne_status chains_find(chains *c, const lierne_star_forest *f, const int64_t *row,
                                 int64_t n, int64_t nrows) {
    LIERNE_TRY(chains_reserve(c, n, nrows));
    uint64_t longest = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t *last = &c->last[row ? row[i] : lierne_star_forest_root(f, i)];
        uint64_t number = *last < 0 ? 0 : (uint64_t)c->spare[*last].key + 1;
        c->before[i] = *last;
        c->spare[i].key = number;
        c->links[i] = (lierne_keyed){number, i};
        *last = i;
        longest = number > longest ? number : longest;
    }
    lierne_sort_keyed(c->links, c->spare, (size_t)n, longest);
    return LIERNE_OK;
}

/* Rows of an operation: of[i] of each link, or i itself; of the contribution before it if `before`.
 */
typedef struct column {
    lierne_row_place place;
    const int64_t *of;
    bool before;
} column;

static lierne_status place_links(const chains *c, lierne_route *route, lierne_place *place,
                                 const column *rows, int64_t first, int64_t n, int64_t width) {
    lierne_block block;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = c->links[first + k].value;
        i = rows->before ? c->before[i] : i;
        c->list[k] = rows->of ? rows->of[i] : i;
    }
    LIERNE_TRY(lierne_route_rows(route, &block, c->list, n, width, rows->place.stride));
    block.offset += rows->place.offset;
    *place = lierne_place_at(rows->place.buffer, block);
    return LIERNE_OK;
}

/* Adds an operation for links first to first + n - 1: to = the sum of nfrom columns. */
static lierne_status put_links(const chains *c, lierne_route *route, lierne_ops *ops,
                               const column *to, const column *from, int nfrom, int64_t first,
                               int64_t n, int64_t width) {
    lierne_place places[3];
    LIERNE_TRY(place_links(c, route, &places[2], to, first, n, width));
    for (int k = 0; k < nfrom; k++) {
        LIERNE_TRY(place_links(c, route, &places[k], &from[k], first, n, width));
    }
    return lierne_ops_put(ops, places[2], false, places, nfrom);
}

/* The links from number `number` on, an operation each: to = before + added. */
static lierne_status put_chains(const chains *c, lierne_route *route, lierne_ops *ops,
                                const column *to, const column *added, uint64_t number,
                                int64_t width) {
    column from[2] = {*to, *added};
    from[0].before = from[1].before = true;
    for (int64_t i = 0, end; i < c->n; i = end) {
        uint64_t key = c->links[i].key;
        for (end = i + 1; end < c->n && c->links[end].key == key; end++) {
        }
        if (key >= number) {
            LIERNE_TRY(put_links(c, route, ops, to, from, 2, i, end - i, width));
        }
    }
    return LIERNE_OK;
}

static int64_t count_firsts(const chains *c) {
    int64_t n = 0;
    while (n < c->n && c->links[n].key == 0) {
        n++;
    }
    return n;
}

static lierne_row_place rows_at(lierne_buffer buffer, int64_t row, int64_t stride) {
    return (lierne_row_place){buffer, row * stride, stride};
}

/* In the stage before messages: the prefixes of ghosts that are not the first of their root. The
 * one after a first ghost is what that adds. */
static lierne_status put_prefixes(const lierne_star_forest *f, const chains *c, lierne_route *route,
                                  int64_t prefix) {
    const column to = {rows_at(LIERNE_BUFFER_SCRATCH, prefix, f->width), NULL, false};
    const column added = {rows_at(LIERNE_BUFFER_IN, f->nowned, f->stride), NULL, true};
    lierne_ops *ops = &route->stages.at[0].sums;
    int64_t first = count_firsts(c), n = first;
    while (n < c->n && c->links[n].key == 1) {
        n++;
    }
    if (n > first) {
        LIERNE_TRY(put_links(c, route, ops, &to, &added, 1, first, n - first, f->width));
    }
    return put_chains(c, route, ops, &to, &added, 2, f->width);
}

/* The bases of received sums: the first one of a row is its value, copied before anything is
 * written to out, which may be in. */
static lierne_status put_bases(const lierne_star_forest *f, const chains *c, lierne_route *route,
                               const lierne_star_forest_scratch *d, int64_t base,
                               const int64_t *row) {
    const column to = {rows_at(LIERNE_BUFFER_SCRATCH, base, f->width), NULL, false};
    const column value = {rows_at(LIERNE_BUFFER_IN, 0, f->stride), row, false};
    const column added = {rows_at(LIERNE_BUFFER_SCRATCH, d->received, f->width), NULL, false};
    int64_t firsts = count_firsts(c);
    if (firsts > 0) {
        LIERNE_TRY(
            put_links(c, route, &route->stages.at[0].sums, &to, &value, 1, 0, firsts, f->width));
    }
    return put_chains(c, route, &route->stages.at[1].sums, &to, &added, 1, f->width);
}

/* A base for each sum received, to its rank, and one for each root, into its first ghost. */
static lierne_status answer(const lierne_star_forest *f, lierne_route *route, lierne_stage *stage,
                            const lierne_star_forest_scratch *d, int64_t base) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    lierne_block block;
    for (size_t t = 0; t < f->receivers.count; t++) {
        const lierne_peer_rows *r = &f->receivers.at[t];
        int64_t at = r->first + (own && r->rank > f->rank ? own->count : 0);
        block = lierne_block_rows(base + at, r->count, f->width, f->width);
        LIERNE_TRY(lierne_messages_put(&stage->sends, r->rank, LIERNE_BUFFER_SCRATCH, block));
    }
    for (size_t s = 0; s < f->senders.count; s++) {
        const lierne_peer_rows *sender = &f->senders.at[s];
        LIERNE_TRY(lierne_star_forest_first_ghosts(f, route, sender, &block));
        if (sender->rank != f->rank) {
            LIERNE_TRY(lierne_messages_put(&stage->recvs, sender->rank, LIERNE_BUFFER_OUT, block));
            continue;
        }
        const lierne_place from =
            lierne_place_at(LIERNE_BUFFER_SCRATCH,
                            lierne_block_rows(base + d->own - d->received, sender->count, f->width,
                                              f->width));
        LIERNE_TRY(lierne_ops_put(&stage->copies, lierne_place_at(LIERNE_BUFFER_OUT, block), false,
                                  &from, 1));
    }
    return LIERNE_OK;
}

/* The base of each further ghost, which is that of the first one, and its prefix. */
static lierne_status add_prefixes(const lierne_star_forest *f, const chains *c, lierne_route *route,
                                  lierne_stage *stage, const int64_t *first, int64_t prefix) {
    const column to = {rows_at(LIERNE_BUFFER_OUT, f->nowned, f->stride), NULL, false};
    const column from[2] = {{to.place, first, false},
                            {rows_at(LIERNE_BUFFER_SCRATCH, prefix, f->width), NULL, false}};
    int64_t firsts = count_firsts(c);
    return c->n > firsts
               ? put_links(c, route, &stage->sums, &to, from, 2, firsts, c->n - firsts, f->width)
               : LIERNE_OK;
}

/* The first ghost of the root of each ghost, in the memory that chains no longer need. */
static const int64_t *first_ghosts(const lierne_star_forest *f, chains *c) {
    for (int64_t k = 0; k < f->nghosts; k++) {
        c->before[k] = f->first[f->root[k]];
    }
    return c->before;
}

static lierne_status fetch_ghosts(const lierne_star_forest *f, lierne_route *route, chains *c,
                                  const lierne_star_forest_scratch *d, int64_t base) {
    lierne_stage *stage;
    int64_t prefix = base + d->nreceived;
    bool several = f->nghosts > f->nroots;
    if (several) {
        LIERNE_TRY(chains_find(c, f, NULL, f->nghosts, f->nroots));
        LIERNE_TRY(put_prefixes(f, c, route, prefix));
    }
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(answer(f, route, stage, d, base));
    return several ? add_prefixes(f, c, route, stage, first_ghosts(f, c), prefix) : LIERNE_OK;
}

lierne_status lierne_star_forest_fetch(const lierne_star_forest *f, lierne_route *route) {
    lierne_star_forest_scratch d = {0};
    chains ghosts = {0}, received = {0};
    int64_t *row = NULL, offset;
    lierne_status status = lierne_star_forest_reduce(f, route, &d, &row);
    int64_t base = d.received + d.nreceived;
    int64_t prefixes = f->nghosts > f->nroots ? f->nghosts : 0;
    if (status == LIERNE_OK) {
        status = lierne_route_scratch(route, (d.nreceived + prefixes) * f->width, &offset);
    }
    if (status == LIERNE_OK) {
        status = chains_find(&received, f, row, d.nreceived, f->nowned);
    }
    if (status == LIERNE_OK) {
        status = put_bases(f, &received, route, &d, base, row);
    }
    if (status == LIERNE_OK) {
        status = fetch_ghosts(f, route, &ghosts, &d, base);
    }
    lierne_mem_free(row);
    chains_free(&ghosts);
    chains_free(&received);
    return status;
}
