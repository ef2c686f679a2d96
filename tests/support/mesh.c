/* Coordinates are computed here and not by the library, so that a wrong order of dims there is
 * seen. */
#include "mesh.h"

#include <string.h>

mesh mesh_of(const char *order, int tp, int cp, int dp) {
    mesh m = {.ndims = 3};
    for (int i = 0; i < 3; i++) {
        m.names[i] = order[i] == 't' ? "tp" : order[i] == 'c' ? "cp" : "dp";
        m.sizes[i] = order[i] == 't' ? tp : order[i] == 'c' ? cp : dp;
    }
    return m;
}

static int find(const mesh *m, const char *dim) {
    int d = 0;
    while (d < m->ndims && strcmp(m->names[d], dim) != 0) {
        d++;
    }
    return d;
}

bool mesh_has_dim(const mesh *m, const char *dim) {
    return find(m, dim) < m->ndims;
}

int mesh_size(const mesh *m, const char *dim) {
    int d = find(m, dim);
    return d < m->ndims ? (int)m->sizes[d] : 1;
}

int mesh_coord(const mesh *m, int rank, const char *dim) {
    int64_t rest = rank - m->offset;
    int d = find(m, dim);
    for (int faster = 0; faster < d; faster++) {
        rest /= m->sizes[faster];
    }
    return d < m->ndims ? (int)(rest % m->sizes[d]) : 0;
}

int mesh_ranks(const mesh *m) {
    int64_t n = 1;
    for (int d = 0; d < m->ndims; d++) {
        n *= m->sizes[d];
    }
    return (int)n;
}

bool mesh_has(const mesh *m, int rank) {
    return rank >= m->offset && rank < m->offset + mesh_ranks(m);
}

static lierne_grid *make(const char *const *names, const int64_t *sizes, int n, int offset,
                         int world) {
    lierne_grid *grid = NULL;
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = n,
                             .names = names,
                             .sizes = sizes,
                             .rank_offset = offset,
                             .world_size = world};
    lierne_grid_create(&grid, &spec);
    return grid;
}

lierne_grid *mesh_grid(const mesh *m, int world) {
    return make(m->names, m->sizes, m->ndims, m->offset, world);
}

lierne_grid *grid_of(int64_t tp, int64_t cp, int64_t dp, int world) {
    return make((const char *const[]){"tp", "cp", "dp"}, (const int64_t[]){tp, cp, dp}, 3, 0,
                world);
}

lierne_grid *grid_named(const char *const *names, const int64_t *sizes, int offset, int world) {
    int n = 0;
    while (names[n]) {
        n++;
    }
    return make(names, sizes, n, offset, world);
}

mesh mesh_from_grid(const lierne_grid *grid) {
    mesh m = {.ndims = lierne_grid_get_ndims(grid, NULL),
              .offset = lierne_grid_get_rank_offset(grid)};
    for (int d = 0; d < m.ndims; d++) {
        m.names[d] = lierne_grid_get_dim_name(grid, NULL, d);
        m.sizes[d] = lierne_grid_get_dim_size(grid, NULL, d);
    }
    return m;
}
