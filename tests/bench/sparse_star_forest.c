/* Values of a rank's rows and the expected results, from the star forest alone: every rank receives
 * the ghosts of all others once, so that it can compute the sums of its rows' gradients. Nothing
 * here depends on how a method moves rows. */
#include "bench/sparse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which array a number stands in. */
enum { OWNED, OWN_GRADIENT, GHOST_GRADIENT };

static int number(int array, int rank, int64_t row, int64_t c) {
    return (int)((53 * rank + 29 * row + 13 * c + 41 * array) % 127) - 63;
}

static void put_rows(const sparse *w, char *to, int64_t n, int array) {
    for (int64_t i = 0; i < n; i++, to += w->row) {
        for (int64_t c = 0; c < w->width; c++) {
            number_put(w->dtype, to, c, number(array, test_rank, i, c));
        }
    }
}

void sparse_reset(const void *of, int direction) {
    const sparse *w = of;
    put_rows(w, w->owned[direction], w->nowned, direction == FORWARD ? OWNED : OWN_GRADIENT);
    if (direction == FORWARD) {
        memset(w->ghosts[FORWARD], 0xee, w->ghost_bytes);
    } else {
        put_rows(w, w->ghosts[ADJOINT], w->nghosts, GHOST_GRADIENT);
    }
}

void sparse_rewrite(const void *of, int direction) {
    const sparse *w = of;
    if (direction == FORWARD || w->halo) {
        rewrite(w->owned[direction], w->owned_bytes);
    }
    if (direction == ADJOINT) {
        rewrite(w->ghosts[ADJOINT], w->ghost_bytes);
    }
}

const char *sparse_text(const void *of) {
    static char text[80];
    const sparse *w = of;
    snprintf(text, sizeof text, "%s, %s", w->kind, w->load);
    return text;
}

/* Whether n rows are what `wanted` says of row i, column c. */
static bool right_rows(const sparse *w, const char *rows, int64_t n, const double *wanted) {
    for (int64_t i = 0; i < n; i++, rows += w->row) {
        for (int64_t c = 0; c < w->width; c++) {
            if (number_get(w->dtype, rows, c) != wanted[i * w->width + c]) {
                return false;
            }
        }
    }
    return true;
}

static void expect_own(const sparse *w, int direction, double *wanted) {
    for (int64_t i = 0; i < w->nowned * w->width; i++) {
        int array = direction == FORWARD ? OWNED : OWN_GRADIENT;
        wanted[i] = number(array, test_rank, i / w->width, i % w->width);
    }
    for (int l = 0; direction == ADJOINT && l < w->ngives; l++) {
        for (int64_t i = w->gives[l].first; i < w->gives[l].first + w->gives[l].n; i++) {
            for (int64_t c = 0; c < w->width; c++) {
                wanted[w->given_rows[i] * w->width + c] +=
                    number(GHOST_GRADIENT, w->gives[l].rank, w->given_ghosts[i], c);
            }
        }
    }
}

static void expect_ghosts(const sparse *w, int direction, double *wanted) {
    for (int64_t i = 0; i < w->nghosts * w->width; i++) {
        int64_t k = i / w->width, c = i % w->width;
        wanted[i] = direction == FORWARD ? number(OWNED, w->rank[k], w->root[k], c)
                    : w->halo            ? 0
                                         : number(GHOST_GRADIENT, test_rank, k, c);
    }
}

bool sparse_right(const method *m, int direction) {
    const sparse *w = m->workload;
    int64_t rows = w->nowned > w->nghosts ? w->nowned : w->nghosts;
    double *wanted = (double *)take((size_t)(rows * w->width) * sizeof *wanted);
    expect_own(w, direction, wanted);
    bool right = right_rows(w, w->owned[direction], w->nowned, wanted);
    expect_ghosts(w, direction, wanted);
    right = right_rows(w, w->ghosts[direction], w->nghosts, wanted) && right;
    free(wanted);
    return right;
}

/* Values of all ranks one after the other; lists[r] is where those of rank r begin. */
static int64_t *gather(const int64_t *mine, int64_t n, int64_t *starts) {
    int *counts = (int *)take(2 * (size_t)test_world * sizeof *counts);
    int *places = counts + test_world, count = (int)n;
    MPI_Allgather(&count, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
    starts[0] = 0;
    for (int r = 0; r < test_world; r++) {
        places[r] = (int)starts[r];
        starts[r + 1] = starts[r] + counts[r];
    }
    int64_t *all = (int64_t *)take((size_t)starts[test_world] * sizeof *all);
    MPI_Allgatherv(mine, count, MPI_INT64_T, all, counts, places, MPI_INT64_T, MPI_COMM_WORLD);
    free(counts);
    return all;
}

static void find_takes(sparse *w) {
    w->takes = (lot *)take((size_t)test_world * sizeof *w->takes);
    for (int64_t k = 0; k < w->nghosts; k++) {
        if (w->ntakes == 0 || w->takes[w->ntakes - 1].rank != w->rank[k]) {
            w->takes[w->ntakes++] = (lot){.rank = w->rank[k], .first = k};
        }
        w->takes[w->ntakes - 1].n++;
    }
}

/* keys: owner and row of every rank's ghosts, as sparse_complete has them. */
static void find_gives(sparse *w, const int64_t *keys, const int64_t *starts) {
    w->gives = (lot *)take((size_t)test_world * sizeof *w->gives);
    w->given_rows = (int64_t *)take((size_t)starts[test_world] * sizeof *w->given_rows);
    w->given_ghosts = (int64_t *)take((size_t)starts[test_world] * sizeof *w->given_ghosts);
    for (int r = 0; r < test_world; r++) {
        lot l = {.rank = r, .first = w->ngiven};
        for (int64_t i = starts[r]; i < starts[r + 1]; i++) {
            if (keys[i] >> 32 == test_rank) {
                w->given_rows[w->ngiven] = keys[i] & 0xffffffff;
                w->given_ghosts[w->ngiven++] = i - starts[r];
            }
        }
        l.n = w->ngiven - l.first;
        if (l.n > 0) {
            w->gives[w->ngives++] = l;
        }
    }
}

static void take_buffers(sparse *w) {
    w->row = (size_t)w->width * lierne_dtype_size(w->dtype);
    w->owned_bytes = (size_t)w->nowned * w->row;
    w->ghost_bytes = (size_t)w->nghosts * w->row;
    for (int d = FORWARD; d <= ADJOINT; d++) {
        w->owned[d] = take(w->owned_bytes + (w->halo ? w->ghost_bytes : 0));
        w->ghosts[d] = w->halo ? w->owned[d] + w->owned_bytes : take(w->ghost_bytes);
    }
}

void sparse_complete(sparse *w) {
    int64_t *keys = (int64_t *)take((size_t)w->nghosts * sizeof *keys);
    int64_t *starts = (int64_t *)take(((size_t)test_world + 1) * sizeof *starts);
    for (int64_t k = 0; k < w->nghosts; k++) {
        keys[k] = (int64_t)w->rank[k] << 32 | w->root[k];
    }
    int64_t *all = gather(keys, w->nghosts, starts);
    find_gives(w, all, starts);
    if (!w->halo) {
        find_takes(w);
    }
    w->owned_by = (int64_t *)take((size_t)test_world * sizeof *w->owned_by);
    MPI_Allgather(&w->nowned, 1, MPI_INT64_T, w->owned_by, 1, MPI_INT64_T, MPI_COMM_WORLD);
    take_buffers(w);
    free(all);
    free(starts);
    free(keys);
}

void sparse_bound(const sparse *w, int64_t *rows, int64_t *messages, int64_t *local) {
    int64_t mine[3] = {0, 0, 0}, all[3];
    for (int r = 0; r < test_world; r++) {
        char *seen = take((size_t)w->owned_by[r]);
        int64_t n = 0;
        for (int64_t k = 0; k < w->nghosts; k++) {
            if (w->rank[k] == r) {
                mine[2] += r == test_rank;
                n += r != test_rank && !seen[w->root[k]];
                seen[w->root[k]] = 1;
            }
        }
        mine[0] += n;
        mine[1] += n > 0;
        free(seen);
    }
    MPI_Allreduce(mine, all, 3, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    *rows = all[0];
    *messages = all[1];
    *local = all[2];
}

void sparse_close(sparse *w) {
    for (int d = FORWARD; d <= ADJOINT; d++) {
        free(w->owned[d]);
        free(w->halo ? NULL : w->ghosts[d]);
    }
    free(w->rank);
    free(w->root);
    free(w->owned_by);
    free(w->takes);
    free(w->gives);
    free(w->given_rows);
    free(w->given_ghosts);
    free(w->owner);
    free(w->source);
    free(w->target);
    lierne_brick_destroy(w->brick);
    CHECK(lierne_context_destroy(w->context) == LIERNE_OK, "%s", lierne_last_error());
}
