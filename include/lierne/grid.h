/* A grid: a process mesh. It has named dims with sizes, the first dim varying fastest, over the
 * consecutive ranks [rank_offset, rank_offset + size), and any number of views, other
 * factorisations of the same ranks (for example ep x expt_dp for experts where the dense layers
 * have tp x cp x dp). Rank order, enumeration and group order are those of Megatron-LM's
 * HyperCommGrid (NVIDIA/Megatron-LM#4368, views: #5148).
 *
 * A grid is pure data: no function here communicates, none is collective, and equal arguments give
 * equal results on every rank. Names are UTF-8; the name of a dim or view is not empty and has no
 * '-', ',' or ':' (they separate the parts of keys) and no control character.
 *
 * Ownership: a grid copies its arguments. Thread safety: functions that take a const grid may run
 * at once on the same grid; the others need exclusive access. */
#ifndef LIERNE_GRID_H
#define LIERNE_GRID_H

#include "lierne/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIERNE_MAX_DIMS  16        /* dims of a view */
#define LIERNE_MAX_VIEWS 32        /* views of a grid beside "base" */
#define LIERNE_MAX_RANKS (1 << 24) /* ranks of a world */

typedef struct lierne_grid lierne_grid;

/* How to create a grid. Set size to sizeof(lierne_grid_spec) and the rest to zero first. */
typedef struct lierne_grid_spec {
    size_t size;
    int ndims;                /* 0 to LIERNE_MAX_DIMS; 0 is a grid of one rank */
    const char *const *names; /* ndims names, fastest first; distinct */
    const int64_t *sizes;     /* ndims sizes, each at least 1 */
    int64_t rank_offset;      /* first rank of the grid, at least 0 */
    int64_t world_size;       /* ranks of the world, 1 to LIERNE_MAX_RANKS */
    const char *name; /* of the grid, for messages; NULL: none. See LIERNE_MAX_NAME. Copied */
} lierne_grid_spec;

/* How to add a view to a grid. Set size to sizeof(lierne_view_spec) and the rest to zero first. */
typedef struct lierne_view_spec {
    size_t size;
    const char *name; /* not "base", not a view that exists */
    int ndims;
    const char *const *names; /* fastest first; distinct */
    const int64_t *sizes;     /* their product is the grid's size */
    int nshared;
    const char *const *shared; /* nshared dims that name the same groups as in view `with` */
    const char *with;          /* the view to share with; NULL means "base" */
} lierne_view_spec;

/* Creates a grid. Destroy it with lierne_grid_destroy; *out is NULL on failure.
 * Errors, one status per fault, checked in this order: INVALID (out or spec NULL, spec->size, ndims
 * out of range, NULL arrays or names); WORLD_SIZE (out of range); RANK_OFFSET (negative); NAME
 * (empty, not UTF-8 or with a reserved character); DIM_SIZE (below 1); DUPLICATE (a name twice);
 * OVERFLOW (the product of the sizes); OVERSIZED (rank_offset + size > world_size); NO_MEMORY. */
LIERNE_API lierne_status lierne_grid_create(lierne_grid **out, const lierne_grid_spec *spec);

/* Destroys a grid. NULL is allowed. */
LIERNE_API void lierne_grid_destroy(lierne_grid *grid);

/* Adds a view. A dim named in shared must exist in this view and in the view `with` and form the
 * same groups in both (dims that do so one by one also do so combined); both then have one group
 * key (lierne_grid_get_key). Dims with equal names that are not shared have different keys.
 * Errors, in this order: INVALID (NULL, spec->size); NAME; DUPLICATE (the view exists, "base"
 * included); INVALID (LIERNE_MAX_VIEWS exist); UNKNOWN_VIEW (with); INVALID (ndims, NULL arrays or
 * names); DUPLICATE (a dim twice); NAME, DIM_SIZE (of a dim); OVERFLOW; SIZE (not the grid's size);
 * INVALID (nshared, NULL in shared); DUPLICATE (a shared dim twice); then per shared dim
 * UNKNOWN_DIM (not in `with`, then not in the view) and MEMBERSHIP; NO_MEMORY. The grid is
 * unchanged on failure. */
LIERNE_API lierne_status lierne_grid_add_view(lierne_grid *grid, const lierne_view_spec *spec);

/* The name that the spec gave the grid, which owns it; NULL without one, and for NULL. */
LIERNE_API const char *lierne_grid_get_name(const lierne_grid *grid);

/* Number of ranks, first rank, number of ranks of the world; -1 for a NULL grid. */
LIERNE_API int lierne_grid_get_size(const lierne_grid *grid);
LIERNE_API int lierne_grid_get_rank_offset(const lierne_grid *grid);
LIERNE_API int lierne_grid_get_world_size(const lierne_grid *grid);

/* The ranks of n grids of one world, together, ascending and each once: the members of a context
 * over them (lierne/context.h). Writes up to capacity of them to ranks, which may be NULL if
 * capacity is 0, and their number to *count, which may be larger.
 * Errors: INVALID (NULL, n below 1, capacity negative, grids of worlds that differ). */
LIERNE_API lierne_status lierne_grid_get_members(int *ranks, int capacity, int *count,
                                                 const lierne_grid *const *grids, int n);

/* Number of views, "base" included, -1 for a NULL grid. Name of view i (0 is "base"), NULL if there
 * is none; the grid owns it. */
LIERNE_API int lierne_grid_get_nviews(const lierne_grid *grid);
LIERNE_API const char *lierne_grid_get_view_name(const lierne_grid *grid, int i);

/* The dims of a view (NULL means "base"). Their number, -1 if there is no such view. Name and size
 * of dim i, NULL and -1 if there is no such view or dim; the grid owns the name. Size of a dim by
 * name, 1 if the view has no such dim, -1 if there is no such view. */
LIERNE_API int lierne_grid_get_ndims(const lierne_grid *grid, const char *view);
LIERNE_API const char *lierne_grid_get_dim_name(const lierne_grid *grid, const char *view, int i);
LIERNE_API int lierne_grid_get_dim_size(const lierne_grid *grid, const char *view, int i);
LIERNE_API int lierne_grid_find_dim_size(const lierne_grid *grid, const char *view,
                                         const char *name);

/* Coordinates of a rank in a view, one per dim, in the order of the dims. coords has space for
 * lierne_grid_get_ndims ints. Errors: INVALID (NULL; rank outside of the grid), UNKNOWN_VIEW. */
LIERNE_API lierne_status lierne_grid_get_coords(int *coords, const lierne_grid *grid,
                                                const char *view, int rank);

/* The rank at coordinates, one per dim of the view. Errors: INVALID (NULL; a coordinate out of
 * range), UNKNOWN_VIEW. */
LIERNE_API lierne_status lierne_grid_get_rank(int *rank, const lierne_grid *grid, const char *view,
                                              const int *coords);

/* The groups of a set of dims: the ranks that differ in those dims only. Ranks ascend inside a
 * group, groups ascend by first rank, and each rank of the grid is in one group. The order in which
 * dims are named does not matter. ndims 0 gives one group per rank.
 * Writes ngroups and group_size (either may be NULL) and, unless ranks is NULL, the
 * lierne_grid_get_size ranks of all groups, group after group.
 * Errors: INVALID (NULL), UNKNOWN_VIEW, UNKNOWN_DIM (the first that is missing), DUPLICATE. */
LIERNE_API lierne_status lierne_grid_get_groups(int *ranks, int *ngroups, int *group_size,
                                                const lierne_grid *grid, const char *view,
                                                const char *const *dims, int ndims);

/* As lierne_grid_get_groups, but inside a group the first dim named varies slowest and the last one
 * fastest (the order of Megatron's disjoint bridge). */
LIERNE_API lierne_status lierne_grid_get_groups_ordered(int *ranks, int *ngroups, int *group_size,
                                                        const lierne_grid *grid, const char *view,
                                                        const char *const *dims, int ndims);

/* The key of a set of dims: the identity of its groups. In the base view it is the dims, slowest
 * first, joined with '-' ("dp-tp"). In another view it is "view:NAME:dim,dim", unless all dims are
 * shared: then it is the key of the view that they are shared with. ndims 0 in base gives "".
 * Writes at most size bytes with the terminating zero and, unless needed is NULL, the bytes that
 * the key needs with it. With size 0 the call only writes needed, and text may be NULL.
 * Errors: as lierne_grid_get_groups; INVALID (the key does not fit; needed is still written);
 * NO_MEMORY. */
LIERNE_API lierne_status lierne_grid_get_key(char *text, size_t size, size_t *needed,
                                             const lierne_grid *grid, const char *view,
                                             const char *const *dims, int ndims);

#ifdef __cplusplus
}
#endif
#endif
