/* The simplest method and the bound. The simplest method all-gathers the rows, and each rank picks
 * its ghosts; for the adjoint each rank writes its ghosts' gradients into zeros of the whole graph,
 * which are summed and scattered. The bound only copies and adds the required rows. */
#include "bench/sparse.h"

#include <stdlib.h>
#include <string.h>

typedef struct whole {
    method base;
    MPI_Datatype type;
    int *counts, *places; /* in elements, of each rank */
    int64_t *rows;        /* of the whole graph: where each ghost stands */
    char *all, *mine;
} whole;

static bool run_whole(method *m, int direction) {
    whole *g = (whole *)m;
    const sparse *w = m->workload;
    int64_t n = w->nowned * w->width;
    if (direction == FORWARD) {
        MPI_Allgatherv(w->owned[FORWARD], (int)n, g->type, g->all, g->counts, g->places, g->type,
                       MPI_COMM_WORLD);
        rows_pack(w, w->ghosts[FORWARD], g->all, g->rows, w->nghosts);
        return true;
    }
    memset(g->all, 0, (size_t)w->nrows * w->row);
    rows_add(w, g->all, w->ghosts[ADJOINT], g->rows, w->nghosts);
    MPI_Reduce_scatter(g->all, g->mine, g->counts, g->type, MPI_SUM, MPI_COMM_WORLD);
    rows_add(w, w->owned[ADJOINT], g->mine, g->rows + w->nghosts, w->nowned);
    return true;
}

static void close_whole(method *m) {
    whole *g = (whole *)m;
    free(g->counts);
    free(g->rows);
    free(g->all);
    free(g->mine);
    free(g);
}

static method *open_whole(const void *of) {
    const sparse *w = of;
    whole *g = (whole *)take(sizeof *g);
    g->base = (method){.workload = w, .run = run_whole, .checked = true};
    g->type = w->dtype == LIERNE_DTYPE_F64 ? MPI_DOUBLE : MPI_FLOAT;
    g->counts = (int *)take(2 * (size_t)test_world * sizeof *g->counts);
    g->places = g->counts + test_world;
    for (int r = 0, at = 0; r < test_world; at += g->counts[r++]) {
        g->places[r] = at;
        g->counts[r] = (int)(w->owned_by[r] * w->width);
    }
    g->rows = (int64_t *)take((size_t)(w->nghosts + w->nowned) * sizeof *g->rows);
    for (int64_t k = 0; k < w->nghosts; k++) {
        g->rows[k] = g->places[w->rank[k]] / w->width + w->root[k];
    }
    for (int64_t i = 0; i < w->nowned; i++) {
        g->rows[w->nghosts + i] = i;
    }
    g->all = take((size_t)w->nrows * w->row);
    g->mine = take(w->owned_bytes);
    return &g->base;
}

const method_kind gather_mpi = {"all-gather by hand", open_whole, close_whole};

typedef struct copier {
    method base;
    int64_t *rows; /* of memory: what each ghost is copied from */
    char *memory;
} copier;

static bool run_copier(method *m, int direction) {
    copier *c = (copier *)m;
    const sparse *w = m->workload;
    if (direction == FORWARD) {
        rows_pack(w, w->ghosts[FORWARD], c->memory, c->rows, w->nghosts);
        return true;
    }
    rows_add(w, w->owned[ADJOINT], c->memory, w->given_rows, w->ngiven);
    if (w->halo) {
        memset(w->ghosts[ADJOINT], 0, w->ghost_bytes);
    }
    return true;
}

static void close_copier(method *m) {
    copier *c = (copier *)m;
    free(c->rows);
    free(c->memory);
    free(c);
}

/* The rows of each rank that ghosts come from get a place of their own, as they have. */
static method *open_copier(const void *of) {
    const sparse *w = of;
    copier *c = (copier *)take(sizeof *c);
    int64_t rows = 0, *first = (int64_t *)take((size_t)test_world * sizeof *first);
    c->base = (method){.workload = w, .run = run_copier};
    c->rows = (int64_t *)take((size_t)w->nghosts * sizeof *c->rows);
    memset(first, 0xff, (size_t)test_world * sizeof *first);
    for (int64_t k = 0; k < w->nghosts; k++) {
        int r = w->rank[k];
        if (first[r] < 0) {
            first[r] = rows;
            rows += w->owned_by[r];
        }
        c->rows[k] = first[r] + w->root[k];
    }
    free(first);
    rows = rows > w->ngiven ? rows : w->ngiven;
    c->memory = take((size_t)rows * w->row);
    return &c->base;
}

const method_kind rows_bound = {"bound: copy, add", open_copier, close_copier};
