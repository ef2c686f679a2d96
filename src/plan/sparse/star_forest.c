/* Sorting references by the rank and row that they refer to.
 *
 * References of a graph are sorted and distinct already. Others are sorted by rank, row and ghost:
 * ghosts of one root are then adjacent, the first one in front. The first ghosts are sorted once
 * more by rank and ghost, which is the order of the roots. */
#include "plan/sparse/star_forest.h"

#include <string.h>

static bool sorted(const int32_t *rank, const int64_t *row, int64_t n) {
    for (int64_t k = 1; k < n; k++) {
        if (rank[k] < rank[k - 1] || (rank[k] == rank[k - 1] && row[k] <= row[k - 1])) {
            return false;
        }
    }
    return true;
}

const lierne_peer_rows *lierne_star_forest_own(const lierne_star_forest *f) {
    for (size_t s = 0; s < f->senders.count; s++) {
        if (f->senders.at[s].rank == f->rank) {
            return &f->senders.at[s];
        }
    }
    return NULL;
}

static int64_t first_of(const lierne_star_forest *f, int64_t root) {
    return f->first ? f->first[root] : root;
}

int64_t lierne_star_forest_root(const lierne_star_forest *f, int64_t ghost) {
    return f->root ? f->root[ghost] : ghost;
}

/* A sender for each run of roots of one rank. */
static lierne_status add_senders(lierne_star_forest *f, const int32_t *rank) {
    for (int64_t i = 0, end; i < f->nroots; i = end) {
        int32_t owner = rank[first_of(f, i)];
        for (end = i + 1; end < f->nroots && rank[first_of(f, end)] == owner; end++) {
        }
        lierne_peer_rows sender = {owner, i, end - i};
        LIERNE_TRY(LIERNE_VEC_PUSH(&f->senders, sender));
    }
    return LIERNE_OK;
}

static uint64_t largest(const lierne_keyed *items, size_t n) {
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        most = items[i].key > most ? items[i].key : most;
    }
    return most;
}

static void sort(lierne_keyed *items, lierne_keyed *spare, size_t n) {
    lierne_sort_keyed(items, spare, n, largest(items, n));
}

static void sort_by_rank(lierne_keyed *ghosts, lierne_keyed *spare, size_t n, const int32_t *rank) {
    for (size_t i = 0; i < n; i++) {
        ghosts[i].key = (uint64_t)rank[ghosts[i].value];
    }
    sort(ghosts, spare, n);
}

/* Moves the first ghost of each root to the front; the others refer to it in f->root. */
static size_t find_first(lierne_star_forest *f, lierne_keyed *ghosts, const int32_t *rank,
                         const int64_t *row) {
    size_t n = 0;
    for (int64_t i = 0; i < f->nghosts; i++) {
        int64_t ghost = ghosts[i].value, first = n ? ghosts[n - 1].value : -1;
        if (first >= 0 && rank[first] == rank[ghost] && row[first] == row[ghost]) {
            f->root[ghost] = -1 - first;
        } else {
            ghosts[n] = (lierne_keyed){(uint64_t)ghost, ghost};
            n++;
        }
    }
    return n;
}

/* Negative rows may be anywhere in the order: their owner rejects them later. */
static void sort_references(lierne_star_forest *f, const int32_t *rank, const int64_t *row,
                            lierne_keyed *ghosts, lierne_keyed *spare) {
    for (int64_t k = 0; k < f->nghosts; k++) {
        ghosts[k] = (lierne_keyed){(uint64_t)row[k], k};
    }
    sort(ghosts, spare, (size_t)f->nghosts);
    sort_by_rank(ghosts, spare, (size_t)f->nghosts, rank);
    size_t n = find_first(f, ghosts, rank, row);
    sort(ghosts, spare, n);
    sort_by_rank(ghosts, spare, n, rank);
    for (size_t i = 0; i < n; i++) {
        f->first[i] = ghosts[i].value;
        f->row[i] = row[ghosts[i].value];
        f->root[ghosts[i].value] = (int64_t)i;
    }
    for (int64_t k = 0; k < f->nghosts; k++) {
        f->root[k] = f->root[k] < 0 ? f->root[-1 - f->root[k]] : f->root[k];
    }
    f->nroots = (int64_t)n;
}

static lierne_status sort_unordered(lierne_star_forest *f, const int32_t *rank,
                                    const int64_t *row) {
    lierne_keyed *ghosts = NULL, *spare = NULL;
    size_t n = (size_t)f->nghosts;
    lierne_status status = lierne_alloc_unset(&ghosts, n, sizeof *ghosts);
    status = status == LIERNE_OK ? lierne_alloc_unset(&spare, n, sizeof *spare) : status;
    if (status == LIERNE_OK) {
        sort_references(f, rank, row, ghosts, spare);
    }
    lierne_mem_free(ghosts);
    lierne_mem_free(spare);
    return status;
}

lierne_status lierne_star_forest_sort(lierne_star_forest *f, const int32_t *rank,
                                      const int64_t *row) {
    size_t n = (size_t)f->nghosts;
    LIERNE_TRY(lierne_alloc_unset(&f->row, n, sizeof *f->row));
    if (sorted(rank, row, f->nghosts)) {
        f->nroots = f->nghosts;
        if (n > 0) {
            memcpy(f->row, row, n * sizeof *row);
        }
    } else {
        LIERNE_TRY(lierne_alloc_unset(&f->first, n, sizeof *f->first));
        LIERNE_TRY(lierne_alloc_unset(&f->root, n, sizeof *f->root));
        LIERNE_TRY(sort_unordered(f, rank, row));
    }
    return add_senders(f, rank);
}

void lierne_star_forest_destroy(lierne_star_forest *f) {
    lierne_mem_free(f->senders.at);
    lierne_mem_free(f->row);
    lierne_mem_free(f->first);
    lierne_mem_free(f->root);
    lierne_mem_free(f->receivers.at);
    lierne_mem_free(f->sent);
}

int64_t lierne_star_forest_elements(const lierne_star_forest *f, int64_t n) {
    return n > 0 ? (n - 1) * f->stride + f->width : 0;
}

int64_t lierne_star_forest_ghosts_at(const lierne_star_forest *f) {
    return f->combined ? f->nowned : 0;
}
