/* What planning cannot do without, by hand: from edges the lists of ghosts and local rows, and from
 * references three rounds of messages. A rank learns how many of its rows each other rank needs,
 * which ones, and whether planning succeeded everywhere. Nothing is made to move rows with. */
#include "bench/sparse.h"

#include <stdlib.h>
#include <string.h>

typedef struct asked {
    method base;
    int *counts; /* rows that this rank needs of each, then rows that each needs of this one */
    MPI_Request *requests;
    int64_t *rows;
} asked;

static bool ask(const asked *a, const sparse *w, const int64_t *roots) {
    int *taken = a->counts, *given = a->counts + test_world, n = 0, ok = 1, all = 0;
    int64_t at = 0;
    memset(taken, 0, (size_t)test_world * sizeof *taken);
    for (int i = 0; i < w->ntakes; i++) {
        taken[w->takes[i].rank] = (int)w->takes[i].n;
    }
    MPI_Alltoall(taken, 1, MPI_INT, given, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < test_world; at += given[r++]) {
        if (given[r] > 0) {
            MPI_Irecv(a->rows + at, given[r], MPI_INT64_T, r, 2, MPI_COMM_WORLD, &a->requests[n++]);
        }
    }
    for (int i = 0; i < w->ntakes; i++) {
        const lot *l = &w->takes[i];
        MPI_Isend(roots + l->first, (int)l->n, MPI_INT64_T, l->rank, 2, MPI_COMM_WORLD,
                  &a->requests[n++]);
    }
    MPI_Waitall(n, a->requests, MPI_STATUSES_IGNORE);
    MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

static bool run_pairs(method *m, int direction) {
    const sparse *w = m->workload;
    (void)direction;
    return ask((const asked *)m, w, w->root);
}

static bool run_edges(method *m, int direction) {
    lists g = {0};
    (void)direction;
    sparse_find_ghosts(m->workload, &g);
    sparse_find_edges(m->workload, &g);
    bool ok = ask((const asked *)m, m->workload, g.root);
    lists_free(&g);
    return ok;
}

static void compare_rows(method *m, int direction) {
    const sparse *w = m->workload;
    (void)direction;
    CHECK(memcmp(((const asked *)m)->rows, w->given_rows, (size_t)w->ngiven * 8) == 0,
          "%s: other rows were asked for", m->kind->name);
}

static method *open_asked(const sparse *w, bool (*run)(method *, int)) {
    asked *a = (asked *)take(sizeof *a);
    a->base = (method){.workload = w, .run = run, .after = compare_rows};
    a->counts = (int *)take(2 * (size_t)test_world * sizeof *a->counts);
    a->requests = (MPI_Request *)take(2 * (size_t)test_world * sizeof *a->requests);
    a->rows = (int64_t *)take((size_t)w->ngiven * sizeof *a->rows);
    return &a->base;
}

static method *open_edges(const void *of) {
    return open_asked(of, run_edges);
}

static method *open_pairs(const void *of) {
    return open_asked(of, run_pairs);
}

static void close_asked(method *m) {
    asked *a = (asked *)m;
    free(a->counts);
    free(a->requests);
    free(a->rows);
    free(a);
}

const method_kind plan_hand_edges = {"lists, messages by hand", open_edges, close_asked};
const method_kind plan_hand_pairs = {"messages by hand", open_pairs, close_asked};
