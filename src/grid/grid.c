/* Grids: creation and queries of ranks and coordinates.
 *
 * Creation rejects every invalid grid: afterwards sizes are positive and their product is at most
 * LIERNE_MAX_RANKS, so that ranks, strides and coordinates are ints and queries need no check of
 * them. The reference implementation accepts zero and negative sizes and repeated names and fails
 * later, far from the cause. */
#include "grid/grid.h"

static lierne_status check_spec(const lierne_grid_spec *spec) {
    LIERNE_TRY(lierne_dims_given(spec->ndims, spec->names, spec->sizes));
    if (spec->world_size < 1 || spec->world_size > LIERNE_MAX_RANKS) {
        return LIERNE_FAIL(LIERNE_ERR_WORLD_SIZE, "world_size is %lld, must be 1 to %d",
                           (long long)spec->world_size, LIERNE_MAX_RANKS);
    }
    if (spec->rank_offset < 0) {
        return LIERNE_FAIL(LIERNE_ERR_RANK_OFFSET, "rank_offset is %lld, must be at least 0",
                           (long long)spec->rank_offset);
    }
    return LIERNE_OK;
}

static lierne_status check_dims(const lierne_grid_spec *spec, int64_t *ranks) {
    LIERNE_TRY(lierne_dims_valid(spec->ndims, spec->names, spec->sizes));
    LIERNE_TRY(lierne_names_distinct(spec->ndims, spec->names));
    LIERNE_TRY(lierne_sizes_product(spec->ndims, spec->sizes, ranks));
    if (*ranks > spec->world_size - spec->rank_offset) {
        return LIERNE_FAIL(LIERNE_ERR_OVERSIZED,
                           "a grid of %lld ranks from rank %lld does not fit into a world of %lld",
                           (long long)*ranks, (long long)spec->rank_offset,
                           (long long)spec->world_size);
    }
    return LIERNE_OK;
}

static lierne_status check_all(const lierne_grid_spec *spec, int64_t *ranks) {
    LIERNE_TRY(check_spec(spec));
    return check_dims(spec, ranks);
}

const char *lierne_grid_get_name(const lierne_grid *grid) {
    return grid ? grid->name : NULL;
}

lierne_status lierne_grid_create(lierne_grid **out, const lierne_grid_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    int64_t ranks = 0;
    lierne_grid_spec own, *spec = &own;
    lierne_grid *grid;
    LIERNE_TRY(lierne_check_set(out, "out"));
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    LIERNE_TRY(lierne_check_name(spec->name));
    LIERNE_TRY(lierne_name_grid_error(check_all(spec, &ranks), spec->name));
    LIERNE_TRY(lierne_alloc(&grid, 1, sizeof *grid));
    lierne_status status = spec->name ? lierne_strdup(&grid->name, spec->name) : LIERNE_OK;
    status = status == LIERNE_OK ? lierne_view_create(&grid->views[0], "base", spec->ndims,
                                                      spec->names, spec->sizes)
                                 : status;
    if (status != LIERNE_OK) {
        lierne_grid_destroy(grid);
        return status;
    }
    grid->nviews = 1;
    grid->size = (int)ranks;
    grid->offset = (int)spec->rank_offset;
    grid->world = (int)spec->world_size;
    *out = grid;
    return LIERNE_OK;
}

void lierne_grid_destroy(lierne_grid *grid) {
    if (!grid) {
        return;
    }
    for (int i = 0; i < grid->nviews; i++) {
        lierne_view_destroy(grid->views[i]);
    }
    lierne_mem_free(grid->name);
    lierne_mem_free(grid);
}

int lierne_grid_get_size(const lierne_grid *grid) {
    return grid ? grid->size : -1;
}

int lierne_grid_get_rank_offset(const lierne_grid *grid) {
    return grid ? grid->offset : -1;
}

int lierne_grid_get_world_size(const lierne_grid *grid) {
    return grid ? grid->world : -1;
}

int lierne_grid_get_nviews(const lierne_grid *grid) {
    return grid ? grid->nviews : -1;
}

const char *lierne_grid_get_view_name(const lierne_grid *grid, int i) {
    return grid && i >= 0 && i < grid->nviews ? grid->views[i]->name : NULL;
}

int lierne_grid_get_ndims(const lierne_grid *grid, const char *view) {
    const lierne_view *v = lierne_view_find(grid, view);
    return v ? v->ndims : -1;
}

const char *lierne_grid_get_dim_name(const lierne_grid *grid, const char *view, int i) {
    const lierne_view *v = lierne_view_find(grid, view);
    return v && i >= 0 && i < v->ndims ? v->names[i] : NULL;
}

int lierne_grid_get_dim_size(const lierne_grid *grid, const char *view, int i) {
    const lierne_view *v = lierne_view_find(grid, view);
    return v && i >= 0 && i < v->ndims ? v->sizes[i] : -1;
}

int lierne_grid_find_dim_size(const lierne_grid *grid, const char *view, const char *name) {
    const lierne_view *v = lierne_view_find(grid, view);
    if (!v) {
        return -1;
    }
    int dim = lierne_view_dim(v, name);
    return dim < 0 ? 1 : v->sizes[dim];
}

int lierne_grid_find_dim(const lierne_grid *grid, const char *name) {
    return lierne_view_dim(grid->views[0], name);
}

lierne_status lierne_grid_get_coords(int *coords, const lierne_grid *grid, const char *view,
                                     int rank) {
    LIERNE_PUBLIC_CALL();
    const lierne_view *v;
    if (!grid || !coords) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", grid ? "coords" : "grid");
    }
    LIERNE_TRY(lierne_view_get(&v, grid, view));
    if (rank < grid->offset || rank - grid->offset >= grid->size) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d is outside the grid, which has ranks %d to %d", rank,
                           grid->offset, grid->offset + grid->size - 1);
    }
    for (int d = 0; d < v->ndims; d++) {
        coords[d] = (rank - grid->offset) / v->strides[d] % v->sizes[d];
    }
    return LIERNE_OK;
}

lierne_status lierne_grid_get_rank(int *rank, const lierne_grid *grid, const char *view,
                                   const int *coords) {
    LIERNE_PUBLIC_CALL();
    const lierne_view *v;
    if (!grid || !coords || !rank) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL",
                           !grid     ? "grid"
                           : !coords ? "coords"
                                     : "rank");
    }
    LIERNE_TRY(lierne_view_get(&v, grid, view));
    int local = 0;
    for (int d = 0; d < v->ndims; d++) {
        if (coords[d] < 0 || coords[d] >= v->sizes[d]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "coordinate of dim '%s' is %d, must be 0 to %d",
                               v->names[d], coords[d], v->sizes[d] - 1);
        }
        local += coords[d] * v->strides[d];
    }
    *rank = grid->offset + local;
    return LIERNE_OK;
}
