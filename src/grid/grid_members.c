/* The ranks of several grids together. Grids are few, so that each run of ranks is found by looking
 * at all of them. */
#include "grid/grid.h"

static lierne_status check_list(const int *ranks, int capacity, const int *count,
                                const lierne_grid *const *grids, int n) {
    if (!count || !grids || (!ranks && capacity > 0)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL",
                           !count   ? "count"
                           : !grids ? "grids"
                                    : "ranks");
    }
    if (n < 1 || capacity < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "n is %d, must be at least 1, and capacity %d, must be at least 0", n,
                           capacity);
    }
    for (int i = 0; i < n; i++) {
        if (!grids[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "grids[%d] is NULL", i);
        }
        if (grids[i]->world != grids[0]->world) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "grids[%d] has a world of %d ranks, grids[0] one of %d: they must "
                               "be the same",
                               i, grids[i]->world, grids[0]->world);
        }
    }
    return LIERNE_OK;
}

/* The first rank from `rank` on that is in a grid; *end is behind the last rank of that grid. */
static int next_run(const lierne_grid *const *grids, int n, int rank, int *end) {
    int first = grids[0]->world;
    *end = first;
    for (int i = 0; i < n; i++) {
        int last = grids[i]->offset + grids[i]->size;
        int begin = grids[i]->offset > rank ? grids[i]->offset : rank;
        if (begin < last && begin < first) {
            first = begin;
            *end = last;
        }
    }
    return first;
}

lierne_status lierne_grid_get_members(int *ranks, int capacity, int *count,
                                      const lierne_grid *const *grids, int n) {
    LIERNE_PUBLIC_CALL();
    int total = 0, end = 0;
    LIERNE_TRY(check_list(ranks, capacity, count, grids, n));
    for (int rank = 0; rank < grids[0]->world; rank = end) {
        for (rank = next_run(grids, n, rank, &end); rank < end; rank++) {
            if (total < capacity) {
                ranks[total] = rank;
            }
            total++;
        }
    }
    *count = total;
    return LIERNE_OK;
}
