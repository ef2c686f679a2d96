/* The groups of a set of dims.
 *
 * Both functions walk the ranks in ascending order, increment their coordinates like an odometer,
 * and write each rank at a weighted sum of its coordinates. The dims outside of the query number
 * the group, the first one fastest. The dims of the query number the position inside the group: the
 * first one fastest, so that a group ascends, or in the caller's order. Nothing is sorted and
 * nothing is allocated. */
#include "grid/grid.h"

static lierne_status unknown_dim(const lierne_view *view, const char *name) {
    char list[LIERNE_LIST_SIZE];
    lierne_names_list(list, sizeof list, view->ndims, (const char *const *)view->names);
    return LIERNE_FAIL(LIERNE_ERR_UNKNOWN_DIM, "dim '%s' is not in view '%s', which has: %s", name,
                       view->name, list);
}

/* Unknown dims are reported before repeated ones, as in the reference implementation. */
static lierne_status check_known(const lierne_view *view, const char *const *dims, int ndims) {
    for (int i = 0; i < ndims; i++) {
        if (!dims[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "dim %d of %d is NULL", i, ndims);
        }
        if (lierne_view_dim(view, dims[i]) < 0) {
            return unknown_dim(view, dims[i]);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_query_read(lierne_query *out, const lierne_grid *grid, const char *view,
                                const char *const *dims, int ndims) {
    *out = (lierne_query){0};
    if (!grid || ndims < 0 || (ndims > 0 && !dims)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "grid is %s, ndims is %d, dims are %s",
                           grid ? "given" : "NULL", ndims, dims ? "given" : "NULL");
    }
    LIERNE_TRY(lierne_view_get(&out->view, grid, view));
    LIERNE_TRY(check_known(out->view, dims, ndims));
    for (int i = 0; i < ndims; i++) {
        int dim = lierne_view_dim(out->view, dims[i]);
        if (out->mask >> dim & 1) {
            return LIERNE_FAIL(LIERNE_ERR_DUPLICATE, "dim '%s' appears twice in the query",
                               dims[i]);
        }
        out->mask |= (uint32_t)1 << dim;
        out->dims[out->count++] = dim;
    }
    return LIERNE_OK;
}

/* Gives the listed dims weights from start on, the first dim being the fastest. Returns the weight
 * after the last. */
static int weigh(const lierne_view *view, const int *dims, int count, int start, int *weights) {
    for (int i = 0; i < count; i++) {
        weights[dims[i]] = start;
        start *= view->sizes[dims[i]];
    }
    return start;
}

/* Lists the dims that are in mask, fastest first. */
static int list_dims(const lierne_view *view, uint32_t mask, int *dims) {
    int count = 0;
    for (int d = 0; d < view->ndims; d++) {
        if (mask >> d & 1) {
            dims[count++] = d;
        }
    }
    return count;
}

static void walk(const lierne_grid *grid, const lierne_view *view, const int *weights, int *ranks) {
    int coords[LIERNE_MAX_DIMS] = {0};
    int place = 0;
    for (int l = 0; l < grid->size; l++) {
        ranks[place] = grid->offset + l;
        for (int d = 0; d < view->ndims; d++) {
            place += weights[d];
            if (++coords[d] < view->sizes[d]) {
                break;
            }
            place -= coords[d] * weights[d];
            coords[d] = 0;
        }
    }
}

/* inner: the dims of the query, the fastest inside the group first. */
static void enumerate(const lierne_grid *grid, const lierne_query *query, const int *inner,
                      int *ranks, int *ngroups, int *group_size) {
    int weights[LIERNE_MAX_DIMS], outer[LIERNE_MAX_DIMS];
    int count = list_dims(query->view, ~query->mask, outer);
    int members = weigh(query->view, inner, query->count, 1, weights);
    weigh(query->view, outer, count, members, weights);
    if (ngroups) {
        *ngroups = grid->size / members;
    }
    if (group_size) {
        *group_size = members;
    }
    if (ranks) {
        walk(grid, query->view, weights, ranks);
    }
}

lierne_status lierne_grid_get_groups(int *ranks, int *ngroups, int *group_size,
                                     const lierne_grid *grid, const char *view,
                                     const char *const *dims, int ndims) {
    LIERNE_PUBLIC_CALL();
    lierne_query query;
    int inner[LIERNE_MAX_DIMS];
    LIERNE_TRY(lierne_query_read(&query, grid, view, dims, ndims));
    list_dims(query.view, query.mask, inner);
    enumerate(grid, &query, inner, ranks, ngroups, group_size);
    return LIERNE_OK;
}

lierne_status lierne_grid_get_groups_ordered(int *ranks, int *ngroups, int *group_size,
                                             const lierne_grid *grid, const char *view,
                                             const char *const *dims, int ndims) {
    LIERNE_PUBLIC_CALL();
    lierne_query query;
    int inner[LIERNE_MAX_DIMS];
    LIERNE_TRY(lierne_query_read(&query, grid, view, dims, ndims));
    for (int i = 0; i < query.count; i++) {
        inner[i] = query.dims[query.count - 1 - i];
    }
    enumerate(grid, &query, inner, ranks, ngroups, group_size);
    return LIERNE_OK;
}
