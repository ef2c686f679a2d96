/* The oracle: ghosts are copies, and the adjoint sums copies. It has no messages, swaps or orders,
 * so it cannot share the errors of a plan. */
#include "row_case.h"

#include <stdlib.h>

double golden_f(int64_t row, int64_t column) {
    return (double)((37 * row + 11 * column) % 257 - 128);
}

double golden_h(int rank, int64_t row, int64_t column) {
    return (double)((53 * rank + 29 * row + 13 * column) % 127 - 63);
}

double golden_q(int rank, int64_t row, int64_t column) {
    return 1 / (double)(3 + 7 * rank + 5 * row + column);
}

double golden_tiny(int rank, int64_t row, int64_t column) {
    return (double)((rank + 2 * row + column) % 3 - 1);
}

golden_forest golden_forest_new(int world) {
    return (golden_forest){.world = world,
                           .nowned = golden_alloc(world, sizeof(int64_t)),
                           .nghosts = golden_alloc(world, sizeof(int64_t)),
                           .rank = golden_alloc(world, sizeof(int32_t *)),
                           .row = golden_alloc(world, sizeof(int64_t *))};
}

void golden_forest_roots(golden_forest *forest) {
    for (int r = 0; r < forest->world; r++) {
        forest->rank[r] = golden_alloc(forest->nghosts[r], sizeof(int32_t));
        forest->row[r] = golden_alloc(forest->nghosts[r], sizeof(int64_t));
    }
}

void golden_forest_free(golden_forest *forest) {
    for (int r = 0; r < forest->world; r++) {
        free(forest->rank[r]);
        free(forest->row[r]);
    }
    free(forest->nowned);
    free(forest->nghosts);
    free(forest->rank);
    free(forest->row);
}

/* sign 0: sum. */
static double combine(double a, double b, int sign) {
    if (sign == 0) {
        return a + b;
    }
    return (a < b) == (sign > 0) ? b : a;
}

static void combine_all(const golden_forest *forest, int rank, bool whole, int64_t width,
                        golden_value *value, int sign, double *rows) {
    for (int r = 0; r < forest->world; r++) {
        int64_t first = whole ? forest->nowned[r] : 0;
        for (int64_t k = 0; k < forest->nghosts[r]; k++) {
            int64_t at = forest->row[r][k] * width;
            for (int64_t c = 0; c < width && forest->rank[r][k] == rank; c++) {
                rows[at + c] = combine(rows[at + c], value(r, first + k, c), sign);
            }
        }
    }
}

void golden_forest_sum(const golden_forest *forest, int rank, bool whole, int64_t width,
                       golden_value *value, double *sums) {
    combine_all(forest, rank, whole, width, value, 0, sums);
}

void golden_forest_extreme(const golden_forest *forest, int rank, bool whole, int64_t width,
                           golden_value *value, int sign, double *rows) {
    combine_all(forest, rank, whole, width, value, sign, rows);
}

int64_t golden_forest_copies(const golden_forest *forest, int rank, int64_t row) {
    int64_t n = 0;
    for (int r = 0; r < forest->world; r++) {
        for (int64_t k = 0; k < forest->nghosts[r]; k++) {
            n += forest->rank[r][k] == rank && forest->row[r][k] == row;
        }
    }
    return n;
}

int64_t golden_forest_distinct(const golden_forest *forest, int rank, int64_t *nranks) {
    const int32_t *ranks = forest->rank[rank];
    const int64_t *rows = forest->row[rank];
    int64_t n = 0;
    *nranks = 0;
    for (int64_t k = 0; k < forest->nghosts[rank]; k++) {
        bool seen = rows[k] < 0 || ranks[k] == rank, known = seen;
        for (int64_t before = 0; before < k; before++) {
            seen = seen || (ranks[before] == ranks[k] && rows[before] == rows[k]);
            known = known || ranks[before] == ranks[k];
        }
        n += !seen;
        *nranks += !known;
    }
    return n;
}
