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

/* Adds a cell that was not seen before to what is to be looked at. */
static lierne_status see(finder *f, int s, const lierne_cell *cell) {
    const found_cell found = {.key = key_of(side(f, s), cell), .cell = *cell};
    found_cells *seen = &f->seen[s];
    size_t low = 0, high = seen->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (seen->at[middle].key < found.key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < seen->count && seen->at[low].key == found.key) {
        return LIERNE_OK;
    }
    LIERNE_TRY(LIERNE_VEC_PUSH(seen, found));
    memmove(&seen->at[low + 1], &seen->at[low], (seen->count - 1 - low) * sizeof *seen->at);
    seen->at[low] = found;
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

/* Whether the cells have elements in common; fills a pair. */
static lierne_status intersect(const finder *f, const lierne_cell *from, const lierne_cell *to,
                               lierne_pair *pair) {
    lierne_cell_overlap x = {.from = *from, .to = *to};
    lierne_status status = lierne_cell_overlap_fill(f->p, &x);
    *pair = (lierne_pair){.from = *from,
                          .to = *to,
                          .key = {key_of(f->p->from, from), key_of(f->p->to, to)},
                          .elements = x.elements};
    if (status == LIERNE_OK && x.boxes.count > 0) {
        memcpy(pair->size, x.boxes.at[0].size, sizeof pair->size);
    }
    lierne_cell_overlap_clear(&x);
    return status;
}

static lierne_status find_others(finder *f, int s, const lierne_cell *cell) {
    lierne_cells cells = {0};
    lierne_pair pair;
    lierne_status status = lierne_layout_overlapping(&cells, side(f, !s), side(f, s), cell);
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        const lierne_cell *other = &cells.at[i];
        status = intersect(f, s ? other : cell, s ? cell : other, &pair);
        if (status == LIERNE_OK && pair.elements > 0) {
            status = see(f, !s, other);
            /* Each pair once: from its source. */
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
        status = own ? lierne_layout_overlapping(&cells, side(f, !s), side(f, s), own) : LIERNE_OK;
        for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
            const lierne_cell *other = &cells.at[i];
            if (s == 1 && from && lierne_same_cell(f->p->from, other, from)) {
                continue;
            }
            status = intersect(f, s ? other : own, s ? own : other, &pair);
            if (status == LIERNE_OK && pair.elements > 0) {
                status = LIERNE_VEC_PUSH(f->pairs, pair);
            }
        }
    }
    lierne_mem_free(cells.at);
    return status;
}

static int compare(const void *a, const void *b) {
    const lierne_pair *x = a, *y = b;
    int first = (x->key[0] > y->key[0]) - (x->key[0] < y->key[0]);
    return first ? first : (x->key[1] > y->key[1]) - (x->key[1] < y->key[1]);
}

static lierne_status find(finder *f, bool *all) {
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
        qsort(f->pairs->at, f->pairs->count, sizeof *f->pairs->at, compare);
    }
    return LIERNE_OK;
}

lierne_status lierne_pairs_find(lierne_pairs *pairs, bool *all, const lierne_planner *p) {
    finder f = {.p = p, .pairs = pairs};
    lierne_status status = find(&f, all);
    for (int s = 0; s < 2; s++) {
        lierne_mem_free(f.seen[s].at);
        lierne_mem_free(f.pending[s].at);
    }
    return status;
}
