/* Halo exchanges: ghost rows around a box, in swaps, as LAMMPS' brick communicator does them.
 *
 * A rank holds one combined buffer of nlocal + nghost rows: its owned rows, then its ghosts in the
 * order in which the swaps bring them. Swap s sends the rows sendlist[s] (owned rows, and ghosts
 * that earlier swaps brought) to rank sendproc[s] and receives recvnum[s] rows from rank
 * recvproc[s]. Swaps run one after another and pass ghosts on: a row across a corner takes one swap
 * per axis, and a cutoff longer than a box takes several swaps per side.
 *
 * Forward: out = in with its ghosts filled; ghosts of in are not read. Adjoint: the swaps in
 * reverse order; each sends the gradients of its ghosts back and adds them to the rows that were
 * sent, in the order of the list, so that results have the bits of deepmd-kit's border op. A row
 * that a list names twice is added to twice. Then ghost rows of out are set to zero, unless
 * keep_ghosts. Without swaps (nswap 0) both directions copy all rows. out == in works in place; any
 * other overlap is INVALID. f16 and bf16 are added in float32 and rounded at each addition, because
 * a swap sends what the one before it stored.
 *
 * A row has `width` elements and begins `stride` elements after the row before it; elements in
 * between are neither read nor written. Thread safety is that of the context. */
#ifndef LIERNE_HALO_H
#define LIERNE_HALO_H

#include "lierne/sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begin with LIERNE_HALO_SPEC_INIT, or set size to sizeof(lierne_halo_spec), width to 1 and the
 * rest to zero. */
typedef struct lierne_halo_spec {
    size_t size;
    int64_t nlocal; /* owned rows; may be 0 even on a rank that passes ghosts on */
    int64_t nghost;
    int nswap;           /* the same on every rank */
    const int *sendproc; /* nswap entries in each of these five */
    const int *recvproc;
    const int64_t *sendnum;
    const int64_t *recvnum;
    const int64_t *const *sendlist; /* sendnum[s] local rows; may be NULL if sendnum[s] is 0 */
    lierne_dtype dtype;
    int64_t width;       /* elements of a row, at least 1 */
    int64_t stride;      /* elements from a row to the next, at least width; 0: width */
    int keep_ghosts;     /* nonzero: the adjoint leaves ghost rows as the swaps left them */
    int max_inflight;    /* requests in flight per direction, 1 to 64; 0: 1 */
    lierne_group *group; /* see lierne/group.h (Domains); NULL: the context's own domain */
    const char *name;    /* see lierne/plan.h (Names); NULL: none */
} lierne_halo_spec;
#define LIERNE_HALO_SPEC_INIT                                                                      \
    { .size = sizeof(lierne_halo_spec), .width = 1 }

/* Creates a plan of swaps. Collective; waits for all ranks (in a simulated world: a thread per
 * rank). Free it with lierne_plan_destroy; the lists are copied. If any rank fails, every rank gets
 * the same error, which names rank, swap and row, and *out is NULL.
 * dtype, width, keep_ghosts and max_inflight must be the same on every rank (MISMATCH). Errors:
 * INVALID (NULL, size, width, stride, dtype, max_inflight), COUNT_RANGE, PEER_RANGE, GHOST_COUNT,
 * SELF_COUNT, SELF_ASYM, INDEX_RANGE, ROW_NOT_YET_FILLED, PLAN_DEPTH, PEER_COUNT, MISMATCH,
 * NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_halo(lierne_plan **out, lierne_context *context,
                                                 const lierne_halo_spec *spec);

/* Fills *spec with the swaps of a plan of lierne_plan_create_halo. The caller sets spec->size;
 * pointers lead into the plan and are valid until it is destroyed. Not collective. Errors: INVALID
 * (NULL, spec->size, a plan of another kind). */
LIERNE_API lierne_status lierne_plan_get_halo_spec(lierne_halo_spec *spec, const lierne_plan *plan);

/* Creates the same exchange without some rows (such as atoms of types that a model does not know).
 * keep has nlocal + nghost entries, nonzero for rows of this rank that stay; NULL is allowed if
 * there are none. Rows that stay keep their order; lists and counts shrink accordingly. The new
 * plan is the caller's and independent of the old one. Collective. Errors: INVALID (NULL, a plan of
 * another kind), MISMATCH (a rank keeps a ghost that its sender drops, or the reverse; the message
 * names rank, swap and row), and those of lierne_plan_create_halo; *out is NULL then. */
LIERNE_API lierne_status lierne_plan_create_restricted(lierne_plan **out, const lierne_plan *plan,
                                                       const uint8_t *keep);

/* Creates the same exchange in one round: a plan of references (lierne/sparse.h) whose ghosts come
 * straight from their owners, each row once per rank that has ghosts of it. Buffers and results are
 * the same except for the order of additions, which is that of references. It often moves fewer
 * bytes (lierne_plan_get_report). With keep_ghosts the ghost rows of the adjoint's out are those of
 * its in. separate nonzero, the same on every rank: owned rows and ghosts have a buffer each. A
 * plan without swaps stays one of swaps. The new plan is the caller's and independent of the old
 * one. Collective. Errors: INVALID (NULL, a plan of another kind, separate with a plan without
 * swaps), and those of lierne_plan_create_references; *out is NULL then. */
LIERNE_API lierne_status lierne_plan_create_flattened(lierne_plan **out, const lierne_plan *plan,
                                                      int separate);

/* The owner of each ghost and the local row there: ghost k is row[k] of rank[k]. Both have space
 * for nghost entries and may be NULL if nghost is 0. Not collective. Errors: INVALID (NULL, a plan
 * of another kind, ghosts without swaps that fill them). */
LIERNE_API lierne_status lierne_plan_get_halo_roots(int32_t *rank, int64_t *row,
                                                    const lierne_plan *plan);

/* Bricks: swaps for programs that have no halo exchange of their own. Space is a box from 0 to
 * box[d], cut into grid[0] x grid[1] x grid[2] bricks. Brick (i, j, k) belongs to rank (i * grid[1]
 * + j) * grid[2] + k (of a context with members: to member number that), which owns the points
 * inside (lower border included, upper border not). Each rank gets ghosts of all points within
 * cutoff of its brick, images across periodic borders included. Swaps follow LAMMPS: x, y, z; to
 * the lower side, then to the upper one; as many times as the cutoff needs. Set size to
 * sizeof(lierne_brick_spec) and the rest to zero first. */
typedef struct lierne_brick_spec {
    size_t size;
    int grid[3];
    double box[3];
    int periodic[3];
    double cutoff;           /* in the unit of box */
    int dims;                /* 2: one brick along z, and no swaps there; 3 or 0: all axes */
    const double *splits[3]; /* borders as fractions of the box: grid[d] + 1 numbers that ascend
                                from 0 to 1; NULL: equal bricks */
    int64_t nlocal;          /* points of this rank, all in its brick */
    const double *positions; /* 3 coordinates of each; may be NULL if nlocal is 0 */
} lierne_brick_spec;

typedef struct lierne_brick lierne_brick;
/* Computes the swaps. Collective; waits for all ranks. The brick is the caller's and copies all
 * that it needs. If any rank fails, every rank gets the same error, and *out is NULL. All but
 * nlocal and positions must be the same on every rank (MISMATCH). Errors: INVALID (NULL, size, a
 * grid whose number of bricks is not that of the ranks, a box or cutoff that is not positive and
 * finite, splits, dims), INDEX_RANGE (a point outside its brick, which the message names),
 * COUNT_RANGE (nlocal; a cutoff of 65536 bricks or more along an axis), MISMATCH, NO_MEMORY,
 * TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_brick_create(lierne_brick **out, lierne_context *context,
                                             const lierne_brick_spec *spec);
/* Frees a brick; plans made from its swaps stay. Not collective. NULL is allowed. */
LIERNE_API void lierne_brick_destroy(lierne_brick *brick);
/* Fills nlocal, nghost, nswap, sendproc, recvproc, sendnum, recvnum and sendlist of a spec for
 * lierne_plan_create_halo. The caller sets spec->size; other fields keep their values. Pointers
 * lead into the brick. Not collective. Errors: INVALID (NULL, spec->size). */
LIERNE_API lierne_status lierne_brick_get_swaps(lierne_halo_spec *spec, const lierne_brick *brick);
/* Positions of the ghosts, 3 coordinates each, shifted by the box where they are images. Owned by
 * the brick; NULL if brick is NULL or has no ghosts. Not collective. */
LIERNE_API const double *lierne_brick_get_ghosts(const lierne_brick *brick);

#ifdef __cplusplus
}
#endif
#endif
