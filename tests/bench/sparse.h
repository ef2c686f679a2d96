/* The sparse benchmark: remote rows are copied to ghosts, and gradients of ghosts are added to the
 * rows. A workload is a star forest with its buffers on this rank. Elements are integers from -63
 * to 63, so that sums are exact in every order.
 *
 * graph: owned rows and ghosts are two buffers; the adjoint accumulates from run to run.
 * halo: they are one combined buffer, in place; the adjoint sets ghosts to zero. */
#ifndef TESTS_BENCH_SPARSE_H
#define TESTS_BENCH_SPARSE_H

#include "bench/bench.h"
#include "lierne/halo.h"
#include "lierne/sparse.h"

/* The rows that go to, or the ghosts that come from, one rank. */
typedef struct lot {
    int rank;
    int64_t first; /* in given_rows, or of the ghosts */
    int64_t n;
} lot;

typedef struct sparse {
    const char *kind; /* "graph slab", ... */
    const char *load; /* "f64 x 32", ... */
    lierne_dtype dtype;
    int64_t width;
    size_t row; /* bytes */
    bool halo;
    int64_t length;  /* of the lattice's edge */
    int degree;      /* of a graph at random; 0: the lattice */
    const int *grid; /* of bricks whose atoms migrate */

    /* Ghost k is a copy of row root[k] of rank[k]. Of a graph: by rank, then by row. */
    int64_t nowned, nghosts;
    int32_t *rank;
    int64_t *root;
    int64_t *owned_by; /* rows of each rank */
    lot *takes;        /* of a graph: where ghosts come from, ascending */
    int ntakes;
    lot *gives; /* who has ghosts of this rank's rows, itself maybe among them, ascending */
    int ngives;
    int64_t ngiven;
    int64_t *given_rows;   /* row by row, in the order of the ghosts */
    int64_t *given_ghosts; /* and the number of the ghost on its rank */

    int32_t *owner; /* of a graph: what it is planned from */
    int64_t nrows, nedges;
    int64_t *source, *target;
    lierne_context *context; /* of a halo, likewise */
    lierne_brick *brick;
    lierne_halo_spec swaps;

    size_t owned_bytes, ghost_bytes;
    char *owned[2], *ghosts[2]; /* per direction */
} sparse;

/* A lattice of w->length^3 rows, each beside itself and its neighbours along the axes, or beside
 * `degree` rows at random, cut into grid[0] x grid[1] x grid[2] boxes; rank (i * grid[1] + j) *
 * grid[2] + k has box (i, j, k). The caller has set kind to degree. Collective. */
void sparse_open_graph(sparse *w, const int *grid);
/* The lists of a graph, as anybody makes them who has no lierne. */
typedef struct lists {
    int64_t n;
    int32_t *rank;
    int64_t *root;
    int64_t *place; /* local row of each row of the graph that is owned or needed */
    int64_t *edges; /* local rows of sources, of targets; then local edges and remote ones */
} lists;
void sparse_find_ghosts(const sparse *w, lists *g);
void sparse_find_edges(const sparse *w, lists *g);
void lists_free(lists *g);
/* npoints points at random in each of such boxes of a periodic space, and their images around it.
 */
void sparse_open_halo(sparse *w, int64_t npoints, const int *grid);
void sparse_close(sparse *w);
/* Forest, lots and buffers, from nowned, nghosts, rank and root. Collective. */
void sparse_complete(sparse *w);
/* Rows that the ranks must get from others at the least, messages if each comes from its owner, and
 * ghosts of own rows; of all ranks together. Collective. */
void sparse_bound(const sparse *w, int64_t *rows, int64_t *messages, int64_t *local);

/* As struct bench has them. */
void sparse_reset(const void *workload, int direction);
bool sparse_right(const method *m, int direction);
void sparse_rewrite(const void *workload, int direction);
const char *sparse_text(const void *workload);

/* to[i] = from[rows[i]], and to[rows[i]] += from[i], for n rows. */
void rows_pack(const sparse *w, char *to, const char *from, const int64_t *rows, int64_t n);
void rows_add(const sparse *w, char *to, const char *from, const int64_t *rows, int64_t n);

/* Of a graph. */
extern const method_kind lierne_graph, petsc_graph, neighbor_mpi, direct_mpi, persistent_mpi,
    gather_mpi;
extern const method_kind lierne_graph_shm, lierne_graph_window;
extern const method_kind copies_hand; /* what bounds rows over windows */
/* Of a halo. */
extern const method_kind lierne_swaps, lierne_flat, petsc_halo, swaps_mpi;
/* Of both: each rank copies and adds as many rows, at the same places, from memory of its own and
 * without waiting for anybody. */
extern const method_kind rows_bound;
/* Planning a graph: FORWARD from nothing, ADJOINT again where there is a plan. */
extern const method_kind plan_edges, plan_retyped, plan_pairs, plan_petsc_edges, plan_petsc_pairs;
extern const method_kind plan_hand_edges, plan_hand_pairs; /* what bounds them */

/* Steps of atoms that leave their bricks; there the workload has nowned and grid only. */
extern const method_kind migration_lierne, migration_lammps;
bool migration_right(const method *m, int direction);

/* PETSc, where it was found, between MPI's beginning and end. */
void petsc_start(void);
void petsc_stop(void);

#endif
