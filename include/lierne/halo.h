/* Halo exchanges: ghost rows around a box, swap by swap (as LAMMPS' brick communicator has it).
 *
 * A rank holds one array of rows: its own, nlocal of them, then its ghosts in the order in which
 * swaps bring them. Swap s sends the rows sendlist[s] (owned ones and ghosts of earlier swaps) to
 * sendproc[s] and receives recvnum[s] rows from recvproc[s]. Swaps run one after the other, so that
 * ghosts travel on: corners need a hop per axis, a cutoff larger than a box several per side.
 *
 * Forward: out = in with its ghosts filled; ghosts of in are not read. Adjoint: swaps from last to
 * first, each adding the gradients of its ghosts to the rows that they are copies of, in list
 * order, so that the bits are those of deepmd-kit's border op; a row that is listed twice is added
 * to twice. Ghost rows of out are zero then, unless keep_ghosts. With nswap 0 both directions are
 * the identity on all rows. in is never written; in == out works in place, any other overlap is
 * refused. f16 and bf16 are added in float32 and rounded at each addition: a swap hands on what a
 * rank can store.
 *
 * A row has `width` elements and starts `stride` elements after the one before it; what lies
 * between is neither read nor written. */
#ifndef LIERNE_HALO_H
#define LIERNE_HALO_H

#include "lierne/sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Set size to sizeof(lierne_halo_spec) and the rest to zero first. */
typedef struct lierne_halo_spec {
    size_t size;
    int64_t nlocal; /* owned rows; 0 is allowed, also where ghosts are handed on */
    int64_t nghost;
    int nswap;           /* the same on every rank */
    const int *sendproc; /* nswap of each of these five */
    const int *recvproc;
    const int64_t *sendnum;
    const int64_t *recvnum;
    const int64_t *const
        *sendlist; /* sendnum[s] rows of this rank; may be NULL where sendnum[s] is 0 */
    lierne_dtype dtype;
    int64_t width;    /* elements of a row, at least 1 */
    int64_t stride;   /* from a row to the next, at least width; 0: width */
    int keep_ghosts;  /* nonzero: the adjoint leaves ghost rows as swaps left them, not zero */
    int max_inflight; /* 0 means 1 */
} lierne_halo_spec;

/* Plans a halo exchange. Collective; waits for all ranks (in a simulated world: a thread per rank).
 * On any rank's failure every rank gets the same error, which names rank, swap and row, and nothing
 * exists. The lists are copied. dtype, width, keep_ghosts and max_inflight must be the same on
 * every rank (MISMATCH). Errors: INVALID (NULL, sizes, width, stride, dtype, max_inflight),
 * COUNT_RANGE, PEER_RANGE, GHOST_COUNT, SELF_COUNT, SELF_ASYM, INDEX_RANGE, ROW_NOT_YET_FILLED,
 * PLAN_DEPTH, PEER_COUNT, MISMATCH, NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_plan_create_halo(lierne_plan **out, lierne_context *context,
                                                 const lierne_halo_spec *spec);

/* The swaps of a plan of lierne_plan_create_halo; pointers are into the plan. Errors: INVALID
 * (NULL, spec->size, a plan of another kind). */
LIERNE_API lierne_status lierne_plan_get_halo_spec(lierne_halo_spec *spec, const lierne_plan *plan);

/* The same exchange without some rows (atoms of types that a model does not know): keep[i] is
 * nonzero for the rows of this rank that stay, nlocal + nghost of them. Rows that stay keep their
 * order; lists and counts are cut. The new plan is independent of the old. Collective. Errors:
 * INVALID (NULL, not a plan of swaps), MISMATCH (a rank keeps a ghost whose row its sender drops,
 * or the reverse: names rank, swap and row), and those of lierne_plan_create_halo. */
LIERNE_API lierne_status lierne_plan_create_restricted(lierne_plan **out, const lierne_plan *plan,
                                                       const uint8_t *keep);

/* The same exchange in one round: every ghost comes straight from its owner, each row once per rank
 * that has ghosts of it. The same arrays and results, but for the order of additions: the owned
 * value, then ascending rank, ghosts of a rank added there first, in their order. Often the fewer
 * bytes, always the fewer rounds (lierne_plan_get_report). With keep_ghosts ghost rows stay what
 * they are in in. separate nonzero: ghosts in an array of their own, as a graph plan has them.
 * Collective. Errors: INVALID (NULL, not a plan of swaps, separate without a swap), and those of
 * lierne_plan_create_references. */
LIERNE_API lierne_status lierne_plan_create_flattened(lierne_plan **out, const lierne_plan *plan,
                                                      int separate);

/* Where a ghost's row lives: rank and local row of ghost k, at rank[k], row[k] (room for nghost
 * each). Found while planning. Not collective. Errors: INVALID (NULL, not a plan of swaps, ghosts
 * but no swaps that fill them). */
LIERNE_API lierne_status lierne_plan_get_halo_roots(int32_t *rank, int64_t *row,
                                                    const lierne_plan *plan);

/* Bricks: swaps for programs that have no halo of their own. Space is a box from 0 to box[d], cut
 * into grid[0] x grid[1] x grid[2] bricks; brick (i, j, k) is rank (i * grid[1] + j) * grid[2] + k,
 * which owns the points within it (lower border in, upper border out). Each rank gets copies of all
 * points within cutoff of its brick, images across periodic borders too. Rule of the swaps: LAMMPS'
 * (x, y, z; to the low side, then to the high side; as many hops as the cutoff needs). */
typedef struct lierne_brick_spec {
    size_t size;
    int grid[3];
    double box[3];
    int periodic[3];
    double cutoff;
    int dims;                /* 2: one brick along z, and no swaps; 3, or 0: all */
    const double *splits[3]; /* borders as fractions of the box, grid[d] + 1 ascending ones from 0
                                to 1; NULL: equal bricks */
    int64_t nlocal;          /* points of this rank, which must lie in its brick */
    const double *positions; /* 3 coordinates each */
} lierne_brick_spec;

typedef struct lierne_brick lierne_brick;
/* Makes the swaps; collective, waits for all ranks. On any rank's failure every rank gets the same
 * error. Errors: INVALID (NULL, sizes, a grid that does not have as many bricks as the world ranks,
 * box or cutoff not positive and finite, splits, dims), INDEX_RANGE (a point outside its brick;
 * names it), COUNT_RANGE (nlocal; a cutoff of 65536 bricks or more along an axis), MISMATCH,
 * NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT. */
LIERNE_API lierne_status lierne_brick_create(lierne_brick **out, lierne_context *context,
                                             const lierne_brick_spec *spec);
LIERNE_API void lierne_brick_destroy(lierne_brick *brick);
/* Fills nlocal to sendlist of a spec for lierne_plan_create_halo, whose size is set; pointers are
 * into the brick. Errors: INVALID. */
LIERNE_API lierne_status lierne_brick_get_swaps(lierne_halo_spec *spec, const lierne_brick *brick);
/* Positions of the ghosts, 3 coordinates each, shifted by the box where they are images; NULL for
 * NULL or no ghost. Owned by the brick. */
LIERNE_API const double *lierne_brick_get_ghosts(const lierne_brick *brick);

#ifdef __cplusplus
}
#endif
#endif
