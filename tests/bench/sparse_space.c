/* The workloads: a lattice with its neighbours or others, whose star forest follows by counting;
 * and points in a periodic box, whose swaps lierne makes. There the star forest comes from sending
 * each point's rank and row through the swaps once, by MPI_Sendrecv. */
#include "bench/sparse.h"

#include <stdlib.h>
#include <string.h>

/* The part of n along which i lies, of `parts` whose first ones are one longer. */
static int part_of(int64_t i, int64_t n, int parts) {
    int64_t small = n / parts, large = n % parts;
    return (int)(i < large * (small + 1) ? i / (small + 1)
                                         : large + (i - large * (small + 1)) / small);
}

static void find_owners(sparse *w, int64_t length, const int *grid) {
    w->owner = (int32_t *)take((size_t)w->nrows * sizeof *w->owner);
    for (int64_t i = 0; i < w->nrows; i++) {
        int x = part_of(i / length / length, length, grid[0]);
        int y = part_of(i / length % length, length, grid[1]);
        w->owner[i] = (x * grid[1] + y) * grid[2] + part_of(i % length, length, grid[2]);
        w->nowned += w->owner[i] == test_rank;
    }
}

static void add_edge(sparse *w, int64_t source, int64_t target) {
    w->source[w->nedges] = source;
    w->target[w->nedges++] = target;
}

/* A row of the lattice, beside itself and its neighbours. */
static void add_neighbours(sparse *w, int64_t length, int64_t i) {
    const int64_t steps[] = {length * length, length, 1};
    add_edge(w, i, i);
    for (int d = 0; d < 3; d++) {
        int64_t at = i / steps[d] % length;
        if (at > 0) {
            add_edge(w, i - steps[d], i);
        }
        if (at < length - 1) {
            add_edge(w, i + steps[d], i);
        }
    }
}

static void find_edges(sparse *w, int64_t length) {
    size_t most = (size_t)(w->degree ? w->degree : 7) * (size_t)w->nowned;
    w->source = (int64_t *)take(most * sizeof *w->source);
    w->target = (int64_t *)take(most * sizeof *w->target);
    for (int64_t i = 0; i < w->nrows; i++) {
        if (w->owner[i] == test_rank && w->degree == 0) {
            add_neighbours(w, length, i);
        }
        for (int k = 0; k < w->degree && w->owner[i] == test_rank; k++) {
            uint64_t random = mix(mix((uint64_t)i) + (uint64_t)k);
            add_edge(w, (int64_t)(random % (uint64_t)w->nrows), i);
        }
    }
}

/* Where each rank's ghosts begin, from how many there are. */
static void add_up(int64_t *counts) {
    int64_t n = 0;
    for (int r = 0; r < test_world; r++) {
        int64_t count = counts[r];
        counts[r] = n;
        n += count;
    }
}

void sparse_find_ghosts(const sparse *w, lists *g) {
    int64_t *passed = (int64_t *)take(2 * (size_t)test_world * sizeof *passed);
    int64_t *next = passed + test_world;
    g->place = (int64_t *)take((size_t)w->nrows * sizeof *g->place);
    for (int64_t e = 0; e < w->nedges; e++) {
        int64_t i = w->source[e], fresh = w->owner[i] != test_rank && g->place[i] == 0;
        next[w->owner[i]] += fresh;
        g->n += fresh;
        g->place[i] = 1;
    }
    add_up(next);
    g->rank = (int32_t *)take((size_t)g->n * sizeof *g->rank);
    g->root = (int64_t *)take((size_t)g->n * sizeof *g->root);
    for (int64_t i = 0; i < w->nrows; i++) {
        int32_t owner = w->owner[i];
        int64_t row = passed[owner]++;
        if (owner != test_rank && g->place[i]) {
            g->rank[next[owner]] = owner;
            g->root[next[owner]] = row;
            row = w->nowned + next[owner]++;
        }
        g->place[i] = row;
    }
    free(passed);
}

void sparse_find_edges(const sparse *w, lists *g) {
    int64_t nlocal = 0, nremote = 0;
    g->edges = (int64_t *)malloc(3 * (size_t)w->nedges * sizeof *g->edges); /* need not be zero */
    int64_t *sources = g->edges, *targets = sources + w->nedges, *split = targets + w->nedges;
    for (int64_t e = 0; e < w->nedges; e++) {
        sources[e] = g->place[w->source[e]];
        targets[e] = g->place[w->target[e]];
        bool local = sources[e] < w->nowned;
        split[local ? nlocal++ : w->nedges - ++nremote] = e;
    }
}

void lists_free(lists *g) {
    free(g->rank);
    free(g->root);
    free(g->place);
    free(g->edges);
}

void sparse_open_graph(sparse *w, const int *grid) {
    w->nrows = w->length * w->length * w->length;
    find_owners(w, w->length, grid);
    find_edges(w, w->length);
    lists g = {0};
    sparse_find_ghosts(w, &g);
    w->nghosts = g.n;
    w->rank = g.rank;
    w->root = g.root;
    g.rank = NULL;
    g.root = NULL;
    lists_free(&g);
    sparse_complete(w);
}

#define BOX    20.0
#define CUTOFF 1.447 /* about 4,000 ghosts of 8,000 points */

static void make_swaps(sparse *w, int64_t npoints, const int *grid) {
    double *at = (double *)take(3 * (size_t)npoints * sizeof *at);
    lierne_brick_spec spec = {.size = sizeof spec,
                              .cutoff = CUTOFF,
                              .nlocal = npoints,
                              .positions = at};
    const int place[3] = {test_rank / grid[2] / grid[1], test_rank / grid[2] % grid[1],
                          test_rank % grid[2]};
    for (int d = 0; d < 3; d++) {
        spec.grid[d] = grid[d];
        spec.box[d] = grid[d] * BOX;
        spec.periodic[d] = 1;
    }
    for (int64_t i = 0; i < 3 * npoints; i++) {
        uint64_t random = mix(mix((uint64_t)(i + 1)) + (uint64_t)test_rank);
        at[i] = BOX * (place[i % 3] + (double)(random >> 8 & 0xffffff) / 0x1000000);
    }
    CHECK(lierne_context_create_mpi(&w->context, MPI_COMM_WORLD, NULL) == LIERNE_OK &&
              lierne_brick_create(&w->brick, w->context, &spec) == LIERNE_OK &&
              lierne_brick_get_swaps(&w->swaps, w->brick) == LIERNE_OK,
          "%s", lierne_last_error());
    free(at);
}

/* labels: rank and row of every row, of which those of the ghosts are found. */
static void send_labels(const lierne_halo_spec *s, int64_t *labels) {
    int64_t most = 1, at = s->nlocal;
    for (int i = 0; i < s->nswap; i++) {
        most = s->sendnum[i] > most ? s->sendnum[i] : most;
    }
    int64_t *packed = (int64_t *)take(2 * (size_t)most * sizeof *packed);
    for (int i = 0; i < s->nswap; i++) {
        for (int64_t k = 0; k < s->sendnum[i]; k++) {
            memcpy(packed + 2 * k, labels + 2 * s->sendlist[i][k], 2 * sizeof *packed);
        }
        MPI_Sendrecv(packed, 2 * (int)s->sendnum[i], MPI_INT64_T, s->sendproc[i], i,
                     labels + 2 * at, 2 * (int)s->recvnum[i], MPI_INT64_T, s->recvproc[i], i,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        at += s->recvnum[i];
    }
    free(packed);
}

void sparse_open_halo(sparse *w, int64_t npoints, const int *grid) {
    w->halo = true;
    w->swaps = (lierne_halo_spec){.size = sizeof w->swaps, .dtype = w->dtype, .width = w->width};
    make_swaps(w, npoints, grid);
    w->nowned = w->swaps.nlocal;
    w->nghosts = w->swaps.nghost;
    int64_t *labels = (int64_t *)take(2 * (size_t)(w->nowned + w->nghosts) * sizeof *labels);
    for (int64_t i = 0; i < w->nowned; i++) {
        labels[2 * i] = test_rank;
        labels[2 * i + 1] = i;
    }
    send_labels(&w->swaps, labels);
    w->rank = (int32_t *)take((size_t)w->nghosts * sizeof *w->rank);
    w->root = (int64_t *)take((size_t)w->nghosts * sizeof *w->root);
    for (int64_t k = 0; k < w->nghosts; k++) {
        w->rank[k] = (int32_t)labels[2 * (w->nowned + k)];
        w->root[k] = labels[2 * (w->nowned + k) + 1];
    }
    sparse_complete(w);
    free(labels);
}
