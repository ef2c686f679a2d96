/* The overlaps that must be balanced together.
 *
 * A rank's load comes from its own overlaps, and those of the ranks that it shares one with depend
 * on theirs: so balance is a matter of all overlaps that are connected over ranks. On most pairs of
 * grids these are few (a dp rank of the one side and those of the other that it meets), and every
 * rank can find them from coordinates. Where they are many, each overlap is balanced by itself,
 * from nothing but its own ranks. Whether they are too many does not depend on where the search
 * begins, so all of their ranks decide alike. */
#include "plan/redistribute/balance.h"

#include <stdlib.h>
#include <string.h>

/* Limits of what is balanced together: they bound time and memory of a rank's plan. */
enum { MOST_PAIRS = 1024, MOST_RANKS = 16384 };

/* Cells that were found, ascending by key. */
typedef struct found_cell {
    int64_t key;
    lierne_cell cell;
} found_cell;
typedef LIERNE_VEC(found_cell) found_cells;

typedef struct finder {
    const lierne_planner *p;
    lierne_pairs *pairs;
    found_cells seen[2]; /* of the source and of the destination */
    found_cells pending[2];
    size_t ranks;
    lierne_boxes own; /* of the cell at work */
    lierne_boxes other;
    lierne_overlaps common;
} finder;

static const lierne_layout *side(const finder *f, int s) {
    return s ? f->p->to : f->p->from;
}

static int64_t key_of(const lierne_layout *layout, const lierne_cell *cell) {
    int64_t key = 0;
    for (int i = 0; i < layout->ncuts; i++) {
        key = key * layout->sizes[layout->cuts[i]] + cell->coords[layout->cuts[i]];
    }
    return key;
}

/* Where a cell is among those that were seen, or would be; *is_seen: whether it is. */
static size_t find_seen(const finder *f, int s, int64_t key, bool *is_seen) {
    const found_cells *seen = &f->seen[s];
    size_t low = 0, high = seen->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (seen->at[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *is_seen = low < seen->count && seen->at[low].key == key;
    return low;
}

static bool was_seen(const finder *f, int s, const lierne_cell *cell) {
    bool is_seen;
    (void)find_seen(f, s, key_of(side(f, s), cell), &is_seen);
    return is_seen;
}

/* Adds a cell that was not seen before to what is to be looked at. */
static lierne_status see(finder *f, int s, const lierne_cell *cell) {
    const found_cell found = {.key = key_of(side(f, s), cell), .cell = *cell};
    found_cells *seen = &f->seen[s];
    bool is_seen;
    size_t at = find_seen(f, s, found.key, &is_seen);
    if (is_seen) {
        return LIERNE_OK;
    }
    LIERNE_TRY(LIERNE_VEC_PUSH(seen, found));
    memmove(&seen->at[at + 1], &seen->at[at], (seen->count - 1 - at) * sizeof *seen->at);
    seen->at[at] = found;
    return LIERNE_VEC_PUSH(&f->pending[s], found);
}

/* The cells on the other side of the ranks that hold a cell. */
static lierne_status see_members(finder *f, int s, const lierne_cell *cell) {
    lierne_ranks ranks = {0};
    lierne_cell other, last;
    bool any = false;
    lierne_status status = lierne_layout_members(side(f, s), cell, -1, &ranks);
    f->ranks += ranks.count;
    for (size_t i = 0; i < ranks.count && status == LIERNE_OK && f->ranks <= MOST_RANKS; i++) {
        if (!lierne_layout_cell(side(f, !s), ranks.at[i], &other) ||
            (any && lierne_same_cell(side(f, !s), &other, &last))) {
            continue;
        }
        status = see(f, !s, &other);
        last = other;
        any = true;
    }
    lierne_mem_free(ranks.at);
    return status;
}

/* Begins with the pairs of a cell. */
static lierne_status open_cell(finder *f, int s, const lierne_cell *cell) {
    f->own.count = 0;
    return lierne_layout_cell_boxes(side(f, s), cell, &f->own, NULL);
}

/* Fills the pair of the cell that was opened and another one; it may have no elements. */
static lierne_status intersect(finder *f, int s, const lierne_cell *cell, const lierne_cell *other,
                               lierne_pair *pair) {
    const lierne_cell *from = s ? other : cell, *to = s ? cell : other;
    int naxes = f->p->from->naxes;
    *pair = (lierne_pair){.from = *from,
                          .to = *to,
                          .key = {key_of(f->p->from, from), key_of(f->p->to, to)}};
    f->other.count = f->common.count = 0;
    LIERNE_TRY(lierne_layout_cell_boxes(side(f, !s), other, &f->other, NULL));
    LIERNE_TRY(lierne_boxes_intersect(naxes, s ? &f->other : &f->own, s ? &f->own : &f->other,
                                      &f->common));
    for (size_t b = 0; b < f->common.count; b++) {
        pair->elements += lierne_overlap_elements(naxes, &f->common.at[b]);
    }
    if (f->common.count > 0) {
        memcpy(pair->size, f->common.at[0].size, sizeof pair->size);
    }
    return LIERNE_OK;
}

static lierne_status find_others(finder *f, int s, const lierne_cell *cell) {
    lierne_cells cells = {0};
    lierne_pair pair;
    lierne_status status = lierne_layout_overlapping(&cells, side(f, !s), side(f, s), cell);
    status = status == LIERNE_OK ? open_cell(f, s, cell) : status;
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        const lierne_cell *other = &cells.at[i];
        /* Each pair once: from its source. */
        if (s == 1 && was_seen(f, 0, other)) {
            continue;
        }
        status = intersect(f, s, cell, other, &pair);
        if (status == LIERNE_OK && pair.elements > 0) {
            status = see(f, !s, other);
            if (status == LIERNE_OK && s == 0) {
                status = LIERNE_VEC_PUSH(f->pairs, pair);
            }
        }
        if (f->pairs->count > MOST_PAIRS) {
            break;
        }
    }
    lierne_mem_free(cells.at);
    return status;
}

static bool too_many(const finder *f) {
    return f->pairs->count > MOST_PAIRS || f->ranks > MOST_RANKS;
}

static lierne_status look(finder *f) {
    for (int s = 0; f->pending[0].count + f->pending[1].count > 0 && !too_many(f); s = !s) {
        while (f->pending[s].count > 0 && !too_many(f)) {
            const lierne_cell cell = f->pending[s].at[--f->pending[s].count].cell;
            LIERNE_TRY(see_members(f, s, &cell));
            LIERNE_TRY(find_others(f, s, &cell));
        }
    }
    return LIERNE_OK;
}

/* The overlaps of a rank's cells, where all would be too many. */
static lierne_status find_own(finder *f, const lierne_cell *from, const lierne_cell *to) {
    lierne_cells cells = {0};
    lierne_pair pair;
    lierne_status status = LIERNE_OK;
    for (int s = 0; s < 2 && status == LIERNE_OK; s++) {
        const lierne_cell *own = s ? to : from;
        cells.count = 0;
        if (!own) {
            continue;
        }
        status = lierne_layout_overlapping(&cells, side(f, !s), side(f, s), own);
        status = status == LIERNE_OK ? open_cell(f, s, own) : status;
        for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
            const lierne_cell *other = &cells.at[i];
            if (s == 1 && from && lierne_same_cell(f->p->from, other, from)) {
                continue;
            }
            status = intersect(f, s, own, other, &pair);
            if (status == LIERNE_OK && pair.elements > 0) {
                status = LIERNE_VEC_PUSH(f->pairs, pair);
            }
        }
    }
    lierne_mem_free(cells.at);
    return status;
}

static int compare_pairs(const void *a, const void *b) {
    const lierne_pair *x = a, *y = b;
    int first = (x->key[0] > y->key[0]) - (x->key[0] < y->key[0]);
    return first ? first : (x->key[1] > y->key[1]) - (x->key[1] < y->key[1]);
}

static lierne_status find_pairs(finder *f, bool *all) {
    lierne_cell from, to;
    bool holds = lierne_layout_cell(f->p->from, f->p->rank, &from);
    bool receives = lierne_layout_cell(f->p->to, f->p->rank, &to);
    LIERNE_TRY(holds ? see(f, 0, &from) : LIERNE_OK);
    LIERNE_TRY(receives ? see(f, 1, &to) : LIERNE_OK);
    LIERNE_TRY(*all ? look(f) : LIERNE_OK);
    *all = *all && !too_many(f);
    if (!*all) {
        f->pairs->count = 0;
        LIERNE_TRY(find_own(f, holds ? &from : NULL, receives ? &to : NULL));
    }
    if (f->pairs->count > 0) {
        qsort(f->pairs->at, f->pairs->count, sizeof *f->pairs->at, compare_pairs);
    }
    return LIERNE_OK;
}

lierne_status lierne_pairs_find(lierne_pairs *pairs, bool *all, const lierne_planner *p) {
    finder f = {.p = p, .pairs = pairs};
    lierne_status status = find_pairs(&f, all);
    for (int s = 0; s < 2; s++) {
        lierne_mem_free(f.seen[s].at);
        lierne_mem_free(f.pending[s].at);
    }
    lierne_mem_free(f.own.at);
    lierne_mem_free(f.other.at);
    lierne_mem_free(f.common.at);
    return status;
}
