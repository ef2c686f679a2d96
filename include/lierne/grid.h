/* A grid: a process mesh. Named dims with sizes, the first dim varying fastest, laid over the
 * consecutive ranks [rank_offset, rank_offset + size); and any number of views, other
 * factorisations of the same ranks (experts are laid out as ep x expt_dp where the dense layers
 * have tp x cp x dp). Rank order, enumeration and group order are those of Megatron-LM's
 * HyperCommGrid (NVIDIA/Megatron-LM#4368, views: #5148).
 *
 * A grid is pure data: no function here communicates, none is collective, and equal arguments give
 * equal results on every rank. Names are UTF-8; a dim or view name is not empty and holds no '-',
 * ',' or ':' (keys are made with them) and no control character.
 *
 * Ownership: a grid copies all that it is given. Thread safety: functions that take a const grid
 * may run at once on the same grid; the others need it to themselves. */
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

/* A grid to create. Set size to sizeof(lierne_grid_spec) and the rest to zero first. */
typedef struct lierne_grid_spec {
    size_t size;
    int ndims;                /* 0 to LIERNE_MAX_DIMS; 0 is a grid of one rank */
    const char *const *names; /* ndims names, fastest first; distinct */
    const int64_t *sizes;     /* ndims sizes, each at least 1 */
    int64_t rank_offset;      /* first rank of the grid, at least 0 */
    int64_t world_size;       /* ranks of the world, 1 to LIERNE_MAX_RANKS */
} lierne_grid_spec;

/* A view to add to a grid. Set size to sizeof(lierne_view_spec) and the rest to zero first. */
typedef struct lierne_view_spec {
    size_t size;
    const char *name; /* not "base", not a view that exists */
    int ndims;
    const char *const *names; /* fastest first; distinct */
    const int64_t *sizes;     /* their product is the grid's size */
    int nshared;
    const char *const *shared; /* dims that mean the same groups as in another view; see below */
    const char *with;          /* the view to share with; NULL means "base" */
} lierne_view_spec;

/* Creates a grid. *out is NULL on failure; free it with lierne_grid_destroy.
 * Errors, checked in this order: INVALID (out or spec NULL, spec->size, ndims out of range, NULL
 * arrays or names; world_size out of range); INVALID (rank_offset negative); INVALID (a name that
 * is empty, not UTF-8 or has a reserved character, a size below 1); DUPLICATE (a name twice);
 * OVERFLOW (the product of the sizes); OVERSIZED (rank_offset + size > world_size); NO_MEMORY. */
LIERNE_API lierne_status lierne_grid_create(lierne_grid **out, const lierne_grid_spec *spec);

/* Frees a grid. NULL is allowed. */
LIERNE_API void lierne_grid_destroy(lierne_grid *grid);

/* Adds a view. A dim named in shared must exist in this view and in the view `with`, and the two
 * must put the same ranks together (dims that do so one by one also do combined); then both names
 * mean one group key (lierne_grid_get_key). A dim that merely has the same name as one elsewhere is
 * private to its view.
 * Errors, in this order: INVALID (NULL, spec->size, name); DUPLICATE (the view exists, "base"
 * included); INVALID (LIERNE_MAX_VIEWS exist); UNKNOWN_VIEW (with); INVALID (ndims, NULL arrays or
 * names); DUPLICATE (a dim twice); INVALID (a dim's name, a size below 1); OVERFLOW; SIZE (not the
 * grid's size); INVALID (nshared, NULL in shared); DUPLICATE (a shared dim twice); then per shared
 * dim UNKNOWN_DIM (not in `with`, then not in the view) and MEMBERSHIP; NO_MEMORY. The grid is
 * unchanged on failure. */
LIERNE_API lierne_status lierne_grid_add_view(lierne_grid *grid, const lierne_view_spec *spec);

/* Number of ranks, first rank, ranks of the world; -1 for a NULL grid. */
LIERNE_API int lierne_grid_get_size(const lierne_grid *grid);
LIERNE_API int lierne_grid_get_offset(const lierne_grid *grid);
LIERNE_API int lierne_grid_get_world_size(const lierne_grid *grid);

/* Number of views, "base" included, -1 for NULL; name of view i (0 is "base"), NULL if there is
 * none. */
LIERNE_API int lierne_grid_get_nviews(const lierne_grid *grid);
LIERNE_API const char *lierne_grid_get_view_name(const lierne_grid *grid, int i);

/* Dims of a view (view NULL means "base"): their number, or -1 when there is no such view; name
 * (NULL if out of range) and size (-1) of dim i; size of a dim by name, 1 if the view has no such
 * dim, -1 if there is no such view. */
LIERNE_API int lierne_grid_get_ndims(const lierne_grid *grid, const char *view);
LIERNE_API const char *lierne_grid_get_dim_name(const lierne_grid *grid, const char *view, int i);
LIERNE_API int lierne_grid_get_dim_size(const lierne_grid *grid, const char *view, int i);
LIERNE_API int lierne_grid_find_dim_size(const lierne_grid *grid, const char *view,
                                         const char *name);

/* Coordinates of a rank in a view, one per dim, in the order of the dims. coords has room for
 * lierne_grid_get_ndims() ints. Errors: INVALID (NULL; rank outside the grid), UNKNOWN_VIEW. */
LIERNE_API lierne_status lierne_grid_get_coords(int *coords, const lierne_grid *grid,
                                                const char *view, int rank);

/* The rank at coordinates. Errors: INVALID (NULL; a coordinate out of range), UNKNOWN_VIEW. */
LIERNE_API lierne_status lierne_grid_get_rank(int *rank, const lierne_grid *grid, const char *view,
                                              const int *coords);

/* The groups of a set of dims: the ranks that differ in those dims only. Each group ascends in
 * rank, groups ascend by first rank, and together they hold every rank of the grid once. The order
 * in which dims are named does not matter. ndims 0 gives one group per rank.
 * Writes ngroups and group_size (either may be NULL), and into ranks, unless it is NULL,
 * lierne_grid_get_size() ints, group after group.
 * Errors: INVALID (NULL), UNKNOWN_VIEW, UNKNOWN_DIM (the first that is missing), DUPLICATE. */
LIERNE_API lierne_status lierne_grid_get_groups(int *ranks, int *ngroups, int *group_size,
                                                const lierne_grid *grid, const char *view,
                                                const char *const *dims, int ndims);

/* As lierne_grid_get_groups, but inside a group the ranks run through the dims in the order given,
 * the first being the slowest (the order that Megatron's disjoint bridge uses inside). */
LIERNE_API lierne_status lierne_grid_get_groups_ordered(int *ranks, int *ngroups, int *group_size,
                                                        const lierne_grid *grid, const char *view,
                                                        const char *const *dims, int ndims);

/* The key of a set of dims: the identity of its groups. In the base view it is the dims, slowest
 * first, joined with '-' ("dp-tp"); in a view "view:NAME:dim,dim", unless all dims are shared, in
 * which case it is the key of the view that they are shared with. ndims 0 in base gives "".
 * Writes at most size bytes with the terminating zero and, unless needed is NULL, the bytes that
 * the key takes. With size 0 the call only asks for needed, and text may be NULL.
 * Errors: as lierne_grid_get_groups; INVALID (the key does not fit; needed is still written);
 * NO_MEMORY. */
LIERNE_API lierne_status lierne_grid_get_key(char *text, size_t size, size_t *needed,
                                             const lierne_grid *grid, const char *view,
                                             const char *const *dims, int ndims);

/* The keys that are alive: which sets of dims have groups made for them. This is the pure part of
 * a group's life: a query never creates, creating twice is an error, after clearing a key can be
 * created again. The table belongs to the grid that it was made from and must not outlive it. */
typedef struct lierne_group_keys lierne_group_keys;
/* Errors: INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_group_keys_create(lierne_group_keys **out, const lierne_grid *grid);
LIERNE_API void lierne_group_keys_destroy(lierne_group_keys *keys);

/* Marks the key of these dims as created. Errors: as lierne_grid_get_groups; DUPLICATE (it is);
 * NO_MEMORY. */
LIERNE_API lierne_status lierne_group_keys_add(lierne_group_keys *keys, const char *view,
                                               const char *const *dims, int ndims);

/* OK if the key of these dims is created, else NOT_CREATED; never creates. Other errors: as
 * lierne_grid_get_groups, NO_MEMORY. */
LIERNE_API lierne_status lierne_group_keys_find(const lierne_group_keys *keys, const char *view,
                                                const char *const *dims, int ndims);

/* Number of keys, -1 for NULL; key i in ascending order (strcmp), valid until the table changes, or
 * NULL. */
LIERNE_API int lierne_group_keys_get_count(const lierne_group_keys *keys);
LIERNE_API const char *lierne_group_keys_get_key(const lierne_group_keys *keys, int i);

/* Forgets all keys; NULL is allowed; calling it twice is the same as once. */
LIERNE_API void lierne_group_keys_clear(lierne_group_keys *keys);

#ifdef __cplusplus
}
#endif
#endif
