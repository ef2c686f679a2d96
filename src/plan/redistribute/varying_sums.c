/* Messages that land in scratch, because their rows go to several places, or are added up.
 *
 * Forward, a row that goes to several tokens of a rank is sent to it once. The rows of all messages
 * land in their order, each once, so any piece is a range of them, and is copied from there.
 *
 * Each contribution to a sum (of gradients, or of a PARTIAL source) lands by itself, and all those
 * of a row are added at once, in the order of tokens: so a sum is rounded once, and has the same
 * bits on every run. A walk over the rows stops wherever a contribution begins or ends; what lies
 * between is one operation. */
#include "plan/redistribute/varying_plan.h"

#include <string.h>

lierne_status lierne_varying_spare_create(lierne_varying_plan *v) {
    lierne_varying_spare *spare = &v->spare;
    size_t most = v->sides[0].most_pieces, all = most, terms[2];
    all = v->sides[1].most_pieces > all ? v->sides[1].most_pieces : all;
    terms[0] = (size_t)v->partials[0];
    terms[1] = (v->rules.repeat ? most : 1) * (size_t)v->partials[1];
    if (v->rules.repeat) {
        LIERNE_TRY(lierne_alloc(&spare->keys[0], all, sizeof *spare->keys[0]));
        LIERNE_TRY(lierne_alloc(&spare->keys[1], all, sizeof *spare->keys[1]));
        LIERNE_TRY(lierne_alloc(&spare->pieces, all, sizeof *spare->pieces));
    }
    if (v->rules.repeat || v->partials[0] > 1 || v->partials[1] > 1) {
        size_t blocks = (terms[0] > terms[1] ? terms[0] : terms[1]) + 1;
        LIERNE_TRY(lierne_alloc(&spare->landing, all, sizeof *spare->landing));
        LIERNE_TRY(lierne_alloc(&spare->active, all, sizeof *spare->active));
        LIERNE_TRY(lierne_alloc(&spare->blocks, blocks, sizeof *spare->blocks));
        v->ways[0].engine.most_sources = terms[0];
        v->ways[1].engine.most_sources = terms[1];
    }
    return LIERNE_OK;
}

void lierne_varying_spare_destroy(lierne_varying_plan *v) {
    lierne_mem_free(v->spare.keys[0]);
    lierne_mem_free(v->spare.keys[1]);
    lierne_mem_free(v->spare.pieces);
    lierne_mem_free(v->spare.landing);
    lierne_mem_free(v->spare.active);
    lierne_mem_free(v->spare.blocks);
    lierne_mem_free(v->spare.counts);
}

static int64_t row_elements(const lierne_varying_plan *v, const int64_t *size) {
    int64_t n = 1;
    for (int a = 0; a < v->states[0].layouts[0]->naxes; a++) {
        n *= a == v->axis ? 1 : size[a];
    }
    return n;
}

static lierne_status find_widths(lierne_varying_plan *v, lierne_varying_half *h, size_t nparts) {
    LIERNE_TRY(lierne_alloc(&h->before, h->columns.count, sizeof *h->before));
    for (size_t part = 0; part < nparts; part++) {
        int64_t width = 0;
        for (size_t k = h->first[part]; k < h->first[part + 1]; k++) {
            const lierne_varying_link *link = &h->links.at[k];
            for (size_t c = link->first_column; c < link->first_column + link->ncolumns; c++) {
                h->before[c] = width;
                width += row_elements(v, h->columns.at[c].size);
            }
        }
        h->width = width > h->width ? width : h->width;
    }
    return LIERNE_OK;
}

/* Whether what lands is added up; else it is copied to its tokens. */
static bool adds(const lierne_varying_plan *v, int d) {
    return d == LIERNE_DIRECTION_ADJOINT || v->partials[d] > 1;
}

lierne_status lierne_varying_sums_create(lierne_varying_plan *v, int d) {
    lierne_varying_way *way = &v->ways[d];
    lierne_varying_half *h = &way->halves[1];
    int to = d == LIERNE_DIRECTION_FORWARD;
    const lierne_varying_side *own = &v->sides[to];
    size_t n = own->most_pieces * h->most;
    if (!own->holds) {
        return LIERNE_OK;
    }
    LIERNE_TRY(find_widths(v, h, v->states[0].locators[!to].nparts));
    LIERNE_TRY(lierne_varying_count(&way->engine.scratch, v,
                                    adds(v, d) ? h->width : row_elements(v, own->shape)));
    LIERNE_TRY(lierne_alloc_unset(&way->sums, n, sizeof *way->sums));
    return lierne_alloc_unset(&way->terms, n, sizeof *way->terms);
}

/* Stable, so that pieces of equal rows keep the order of the joined axis. */
void lierne_varying_sort_pieces(lierne_varying_plan *v, int side) {
    lierne_cut_pieces *pieces = &v->sides[side].pieces;
    lierne_varying_spare *spare = &v->spare;
    uint64_t most = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        uint64_t key = (uint64_t)pieces->at[i].index[0];
        spare->keys[0][i] = (lierne_keyed){.key = key, .value = (int64_t)i};
        most = key > most ? key : most;
    }
    lierne_sort_keyed(spare->keys[0], spare->keys[1], pieces->count, most);
    for (size_t i = 0; i < pieces->count; i++) {
        spare->pieces[i] = pieces->at[spare->keys[0][i].value];
    }
    if (pieces->count > 0) {
        memcpy(pieces->at, spare->pieces, pieces->count * sizeof *pieces->at);
    }
}

/* ---- forward: rows that are copied to their tokens ---- */

/* Rows of what landed, in a buffer like the output but of max_rows. */
static lierne_block landed_block(const lierne_varying_plan *v, int64_t row, int64_t rows,
                                 const lierne_overlap *column) {
    return lierne_varying_box(v, v->sides[1].shape, v->max_rows, row, rows, column->local_b,
                              column->size);
}

static void add_landed_copy(lierne_varying_plan *v, lierne_ops *sums,
                            const lierne_token_piece *piece, int64_t row,
                            const lierne_overlap *column) {
    lierne_varying_way *way = &v->ways[0];
    lierne_block from = landed_block(v, row, piece->size, column),
                 to = lierne_varying_block(v, 1, piece->local[1], piece->size, column->local_b,
                                           column->size);
    lierne_blocks_join((lierne_block *const[]){&to, &from}, 2);
    way->terms[sums->count] = lierne_place_at(LIERNE_BUFFER_SCRATCH, from);
    sums->at[sums->count] = (lierne_op){.to = lierne_place_at(LIERNE_BUFFER_OUT, to),
                                        .from = {.at = &way->terms[sums->count], .count = 1}};
    sums->count++;
}

/* A piece whose first row is row `at` of what landed, and whose first `skip` rows were there. */
static void land_rows(lierne_varying_plan *v, lierne_stage *stage, const lierne_cut_piece *found,
                      int64_t at, int64_t skip) {
    lierne_varying_half *h = &v->ways[0].halves[1];
    const lierne_token_piece *piece = &found->piece;
    for (size_t k = h->first[found->part]; k < h->first[found->part + 1]; k++) {
        const lierne_varying_link *link = &h->links.at[k];
        for (size_t c = link->first_column; c < link->first_column + link->ncolumns; c++) {
            const lierne_overlap *column = &h->columns.at[c];
            if (link->peer == v->rank) {
                lierne_varying_add_copy(v, 0, &stage->copies, piece, column);
                continue;
            }
            if (skip < piece->size) {
                lierne_varying_add_block(&stage->recvs.at[link->message],
                                         landed_block(v, at + skip, piece->size - skip, column));
            }
            add_landed_copy(v, &stage->sums, piece, at, column);
        }
    }
}

/* Pieces ascend by row, so of a piece that begins before `covered` those rows are the last ones
 * that landed: the piece which reached farthest has them all. */
static void land_forward(lierne_varying_plan *v, lierne_stage *stage) {
    const lierne_cut_pieces *pieces = &v->sides[1].pieces;
    int64_t covered = 0, used = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const lierne_cut_piece *found = &pieces->at[i];
        int64_t row = found->index[0], size = found->piece.size;
        int64_t known = covered > row ? covered - row : 0, skip = known < size ? known : size;
        land_rows(v, stage, found, used - known, skip);
        used += size - skip;
        covered = row + size > covered ? row + size : covered;
    }
}

/* ---- contributions that are added up ---- */

/* The side that a direction delivers to. */
static int target(int d) {
    return d == LIERNE_DIRECTION_FORWARD;
}

static void land_contributions(lierne_varying_plan *v, int d, lierne_messages *messages) {
    lierne_varying_half *h = &v->ways[d].halves[1];
    const lierne_cut_pieces *pieces = &v->sides[target(d)].pieces;
    int64_t used = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        size_t part = pieces->at[i].part;
        int64_t size = pieces->at[i].piece.size;
        v->spare.landing[i] = used;
        used += size * h->width;
        for (size_t k = h->first[part]; k < h->first[part + 1]; k++) {
            const lierne_varying_link *link = &h->links.at[k];
            for (size_t c = link->first_column; c < link->first_column + link->ncolumns; c++) {
                if (link->peer != v->rank) {
                    lierne_varying_add_block(
                        &messages->at[link->message],
                        lierne_block_range(v->spare.landing[i] + size * h->before[c],
                                           size * row_elements(v, h->columns.at[c].size)));
                }
            }
        }
    }
}

/* Rows of a contribution: of a piece, through a link, of a column. */
static lierne_place term_of(const lierne_varying_plan *v, int d, size_t i,
                            const lierne_varying_link *link, size_t c, int64_t row, int64_t rows) {
    const lierne_varying_half *h = &v->ways[d].halves[1];
    int to = target(d);
    const lierne_cut_piece *found = &v->sides[to].pieces.at[i];
    const lierne_overlap *column = &h->columns.at[c];
    int64_t into = row - found->index[to];
    if (link->peer == v->rank) {
        return lierne_place_at(LIERNE_BUFFER_IN,
                               lierne_varying_block(v, !to, found->piece.local[!to] + into, rows,
                                                    column->local_a, column->size));
    }
    lierne_block block = lierne_varying_box(v, column->size, found->piece.size, into, rows,
                                            (const int64_t[LIERNE_MAX_AXES]){0}, column->size);
    block.offset += v->spare.landing[i] + found->piece.size * h->before[c];
    return lierne_place_at(LIERNE_BUFFER_SCRATCH, block);
}

/* A sum over the active pieces, whose links from `group` on within their part contribute to column
 * c of the group. */
static void add_sum(lierne_varying_plan *v, int d, lierne_ops *sums, size_t *nterms, size_t nactive,
                    size_t group, size_t c, int64_t row, int64_t rows) {
    lierne_varying_way *way = &v->ways[d];
    int to = target(d);
    const lierne_varying_half *h = &way->halves[1];
    const lierne_cut_piece *one = &v->sides[to].pieces.at[v->spare.active[0]];
    const lierne_overlap *column =
        &h->columns.at[h->links.at[h->first[one->part] + group].first_column + c];
    lierne_op *op = &sums->at[sums->count++];
    lierne_place *terms = way->terms + *nterms;
    size_t n = 0;
    *op = (lierne_op){.to = lierne_place_at(
                          LIERNE_BUFFER_OUT,
                          lierne_varying_block(v, to, one->piece.local[to] + row - one->index[to],
                                               rows, column->local_b, column->size)),
                      .from = {.at = terms}};
    v->spare.blocks[0] = &op->to.block;
    for (size_t i = 0; i < nactive; i++) {
        size_t piece = v->spare.active[i];
        const lierne_varying_link *link =
            &h->links.at[h->first[v->sides[to].pieces.at[piece].part] + group];
        for (int p = 0; p < v->partials[d]; p++, link++, n++) {
            terms[n] = term_of(v, d, piece, link, link->first_column + c, row, rows);
            v->spare.blocks[n + 1] = &terms[n].block;
        }
    }
    op->from.count = n;
    *nterms += n;
    lierne_blocks_join(v->spare.blocks, (int)n + 1);
}

/* Parts have the same links in the same order, each to ranks of its own. */
static void add_sums(lierne_varying_plan *v, int d, lierne_ops *sums, size_t *nterms,
                     size_t nactive, int64_t row, int64_t rows) {
    const lierne_varying_half *h = &v->ways[d].halves[1];
    size_t part = v->sides[target(d)].pieces.at[v->spare.active[0]].part;
    size_t nlinks = h->first[part + 1] - h->first[part];
    for (size_t group = 0; group < nlinks; group += (size_t)v->partials[d]) {
        for (size_t c = 0; c < h->links.at[h->first[part] + group].ncolumns; c++) {
            add_sum(v, d, sums, nterms, nactive, group, c, row, rows);
        }
    }
}

/* Inserts a piece into the active ones, which ascend by token. */
static void activate(lierne_varying_plan *v, int d, size_t *nactive, size_t i) {
    const lierne_cut_piece *pieces = v->sides[target(d)].pieces.at;
    int from = !target(d);
    size_t *active = v->spare.active, at = (*nactive)++;
    for (; at > 0 && pieces[active[at - 1]].index[from] > pieces[i].index[from]; at--) {
        active[at] = active[at - 1];
    }
    active[at] = i;
}

static int64_t end_of(const lierne_cut_piece *found, int to) {
    return found->index[to] + found->piece.size;
}

/* Where the rows that the active pieces have together end; drops those that end at `row`. */
static int64_t next_end(lierne_varying_plan *v, int d, size_t *nactive, int64_t row) {
    const lierne_cut_piece *pieces = v->sides[target(d)].pieces.at;
    size_t *active = v->spare.active, n = 0;
    int64_t end = INT64_MAX;
    for (size_t k = 0; k < *nactive; k++) {
        int64_t last = end_of(&pieces[active[k]], target(d));
        if (last > row) {
            active[n++] = active[k];
            end = last < end ? last : end;
        }
    }
    *nactive = n;
    return end;
}

static void land_sums(lierne_varying_plan *v, int d, lierne_stage *stage) {
    int to = target(d);
    const lierne_cut_pieces *pieces = &v->sides[to].pieces;
    size_t next = 0, nactive = 0, nterms = 0;
    int64_t row = 0;
    land_contributions(v, d, &stage->recvs);
    while (next < pieces->count || nactive > 0) {
        if (nactive == 0) {
            row = pieces->at[next].index[to];
        }
        while (next < pieces->count && pieces->at[next].index[to] == row) {
            activate(v, d, &nactive, next++);
        }
        int64_t end = next_end(v, d, &nactive, row);
        if (next < pieces->count && pieces->at[next].index[to] < end) {
            end = pieces->at[next].index[to];
        }
        add_sums(v, d, &stage->sums, &nterms, nactive, row, end - row);
        row = end;
        (void)next_end(v, d, &nactive, row);
    }
}

void lierne_varying_land(lierne_varying_plan *v, int d, lierne_stage *stage) {
    if (v->sides[target(d)].holds) {
        if (adds(v, d)) {
            land_sums(v, d, stage);
        } else {
            land_forward(v, stage);
        }
    }
}
