/* Grids: names, sizes and strides of their views, so that planners convert ranks and coordinates
 * without a name lookup per rank. */
#ifndef LIERNE_GRID_INTERNAL_H
#define LIERNE_GRID_INTERNAL_H

#include "base/base.h"
#include "lierne/grid.h"

/* One factorisation of a grid's ranks. Coordinate d of local rank l (the rank minus the grid's
 * offset) is l / strides[d] % sizes[d]. */
typedef struct lierne_view {
    char *name;
    int ndims;
    char *names[LIERNE_MAX_DIMS];
    int sizes[LIERNE_MAX_DIMS];
    int strides[LIERNE_MAX_DIMS];
    uint32_t shared; /* bit d set: dim d means the groups of the same dim in view `with` */
    int with;        /* index of a view that was added before this one */
} lierne_view;

struct lierne_grid {
    char *name; /* or NULL */
    int size;
    int offset;
    int world;
    int nviews;
    lierne_view *views[LIERNE_MAX_VIEWS + 1]; /* 0 is "base" */
};

/* After an error: the thread's message says of which grid it is, where that has a name. Returns
 * status. */
lierne_status lierne_name_grid_error(lierne_status status, const char *name);

/* A view by name (NULL is "base"), or NULL. */
const lierne_view *lierne_view_find(const lierne_grid *grid, const char *name);

/* The same; if there is none, fails with UNKNOWN_VIEW and the names of the views. */
lierne_status lierne_view_get(const lierne_view **out, const lierne_grid *grid, const char *name);

/* Index of a dim, or -1. */
int lierne_view_dim(const lierne_view *view, const char *name);
/* The same of a grid's base view. */
int lierne_grid_find_dim(const lierne_grid *grid, const char *name);

/* A grid of the same ranks whose base view has the dims of a view (NULL is "base"). Errors:
 * UNKNOWN_VIEW, NO_MEMORY. */
lierne_status lierne_grid_copy_view(lierne_grid **out, const lierne_grid *grid, const char *view);

/* A view with its own copies of all names. The caller has checked the dims. */
lierne_status lierne_view_create(lierne_view **out, const char *name, int ndims,
                                 const char *const *names, const int64_t *sizes);
void lierne_view_destroy(lierne_view *view);

/* Checks that grids and views share. */
lierne_status lierne_dims_given(int ndims, const char *const *names, const int64_t *sizes);
lierne_status lierne_dims_valid(int ndims, const char *const *names, const int64_t *sizes);
lierne_status lierne_names_distinct(int count, const char *const *names);
lierne_status lierne_sizes_product(int ndims, const int64_t *sizes, int64_t *product);

/* Whether a name may be part of a key: not empty, UTF-8, no reserved character. */
lierne_status lierne_name_valid(const char *name);

/* The dims of a query: a bit per dim, and their indices in the order given. */
typedef struct lierne_query {
    const lierne_view *view;
    uint32_t mask;
    int count;
    int dims[LIERNE_MAX_DIMS];
} lierne_query;
lierne_status lierne_query_read(lierne_query *out, const lierne_grid *grid, const char *view,
                                const char *const *dims, int ndims);

/* Writes "a, b, c" into text; ends with "..." if not all names fit. */
void lierne_names_list(char *text, size_t size, int count, const char *const *names);
#define LIERNE_LIST_SIZE 400

#endif
