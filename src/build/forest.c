/* Sorting ghosts by where their rows live.
 *
 * A graph's ghosts come sorted and distinct, which one look confirms. Any others are sorted as keys of
 * (rank, row, ghost): equal roots then stand together, their first ghost in front. */
#include "build/forest.h"

#include <stdlib.h>
#include <string.h>

typedef struct key {
    int32_t rank;
    int64_t row;
    int64_t ghost;
} key;

static int by_root(const void *left, const void *right) {
    const key *a = left, *b = right;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    if (a->row != b->row) {
        return a->row < b->row ? -1 : 1;
    }
    return a->ghost < b->ghost ? -1 : a->ghost > b->ghost;
}

/* Distinct roots, by rank and then in the order of their first ghosts. */
static int by_first(const void *left, const void *right) {
    const key *a = left, *b = right;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    return a->ghost < b->ghost ? -1 : a->ghost > b->ghost;
}

static bool sorted(const int32_t *rank, const int64_t *row, int64_t n) {
    for (int64_t k = 1; k < n; k++) {
        if (rank[k] < rank[k - 1] || (rank[k] == rank[k - 1] && row[k] <= row[k - 1])) {
            return false;
        }
    }
    return true;
}

static lierne_status add_root(lierne_forest *f, int rank, int64_t row, int64_t ghost) {
    size_t n = f->sources.count;
    if (n == 0 || f->sources.at[n - 1].rank != rank) {
        lierne_peer_rows source = {.rank = rank, .first = f->nroots};
        LIERNE_TRY(LIERNE_VEC_PUSH(&f->sources, source));
        n++;
    }
    f->sources.at[n - 1].count++;
    f->row[f->nroots] = row;
    f->first[f->nroots] = ghost;
    f->root[ghost] = f->nroots++;
    return LIERNE_OK;
}

static lierne_status take_sorted(lierne_forest *f, const int32_t *rank, const int64_t *row) {
    for (int64_t k = 0; k < f->nghosts; k++) {
        LIERNE_TRY(add_root(f, rank[k], row[k], k));
    }
    return LIERNE_OK;
}

/* The first of each run of equal roots, moved to the front; later ghosts of a root note its first. */
static int64_t leaders(lierne_forest *f, key *keys) {
    int64_t n = 0;
    for (int64_t k = 0; k < f->nghosts; k++) {
        if (n > 0 && keys[n - 1].rank == keys[k].rank && keys[n - 1].row == keys[k].row) {
            f->root[keys[k].ghost] = -1 - keys[n - 1].ghost;
        } else {
            keys[n++] = keys[k];
        }
    }
    return n;
}

static lierne_status take_any(lierne_forest *f, const int32_t *rank, const int64_t *row) {
    key *keys;
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(lierne_alloc(&keys, (size_t)f->nghosts, sizeof *keys));
    for (int64_t k = 0; k < f->nghosts; k++) {
        keys[k] = (key){rank[k], row[k], k};
    }
    qsort(keys, (size_t)f->nghosts, sizeof *keys, by_root);
    int64_t n = leaders(f, keys);
    qsort(keys, (size_t)n, sizeof *keys, by_first);
    for (int64_t i = 0; i < n && status == LIERNE_OK; i++) {
        status = add_root(f, keys[i].rank, keys[i].row, keys[i].ghost);
    }
    for (int64_t k = 0; k < f->nghosts && status == LIERNE_OK; k++) {
        f->root[k] = f->root[k] < 0 ? f->root[-1 - f->root[k]] : f->root[k];
    }
    lierne_mem_free(keys);
    return status;
}

lierne_status lierne_forest_sort(lierne_forest *f, const int32_t *rank, const int64_t *row) {
    size_t n = (size_t)f->nghosts;
    LIERNE_TRY(lierne_alloc(&f->row, n, sizeof *f->row));
    LIERNE_TRY(lierne_alloc(&f->first, n, sizeof *f->first));
    LIERNE_TRY(lierne_alloc(&f->root, n, sizeof *f->root));
    return sorted(rank, row, f->nghosts) ? take_sorted(f, rank, row) : take_any(f, rank, row);
}

void lierne_forest_free(lierne_forest *f) {
    lierne_mem_free(f->sources.at);
    lierne_mem_free(f->row);
    lierne_mem_free(f->first);
    lierne_mem_free(f->root);
    lierne_mem_free(f->targets.at);
    lierne_mem_free(f->wanted);
}

int64_t lierne_forest_elements(const lierne_forest *f, int64_t n) {
    return n > 0 ? (n - 1) * f->stride + f->width : 0;
}

int64_t lierne_forest_ghosts_at(const lierne_forest *f) {
    return f->whole ? f->nowned : 0;
}
