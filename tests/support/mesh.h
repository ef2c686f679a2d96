/* A grid in plain numbers, its ranks by mixed radix: nothing of the library. */
#ifndef LIERNE_TESTS_MESH_H
#define LIERNE_TESTS_MESH_H

#include "lierne/grid.h"

#include <stdbool.h>

#define MESH_DIMS LIERNE_MAX_DIMS
typedef struct mesh {
    int ndims;
    const char *names[MESH_DIMS]; /* fastest dim first */
    int64_t sizes[MESH_DIMS];
    int offset; /* its first rank */
} mesh;

/* A mesh of tp, cp and dp in the order of `order`, three letters of "tcd". */
mesh mesh_of(const char *order, int tp, int cp, int dp);
/* Size of a dim, 1 if there is none; a rank's coordinate in it, 0 if there is none. */
int mesh_size(const mesh *m, const char *dim);
int mesh_coord(const mesh *m, int rank, const char *dim);
bool mesh_has_dim(const mesh *m, const char *dim);
int mesh_ranks(const mesh *m);
/* Whether a rank is in the mesh. The coordinates of other ranks are meaningless. */
bool mesh_has(const mesh *m, int rank);

/* The mesh as a grid of the library in a world of this many ranks; NULL: lierne_last_error. */
lierne_grid *mesh_grid(const mesh *m, int world);
/* The same of tp, cp and dp, the fastest first; and of dims, whose names end with NULL, from rank
 * offset on. */
lierne_grid *grid_of(int64_t tp, int64_t cp, int64_t dp, int world);
lierne_grid *grid_named(const char *const *names, const int64_t *sizes, int offset, int world);
/* A grid of the library as a mesh, by its base view; at most MESH_DIMS dims. */
mesh mesh_from_grid(const lierne_grid *grid);

#endif
