/* Random redistributions, compared with a model that lists for each rank which element of the
 * tensor stands at which place of its buffer. It cuts lists of indices and knows nothing of cells,
 * boxes or routes. */
#ifndef REDISTRIBUTE_CASE_H
#define REDISTRIBUTE_CASE_H

#include "lierne.h"

enum { CASE_DIMS = 4, CASE_SIZE = 8, CASE_LAYOUTS = 4 };

typedef struct case_layout {
    int ndims;
    int64_t sizes[CASE_DIMS];
    int offset;
    int in_view; /* the dims are those of a view, beside a base view of one dim */
    lierne_placement placements[CASE_DIMS];
    int64_t counts[CASE_DIMS][CASE_SIZE];
    int32_t rows[CASE_SIZE * CASE_SIZE];
    uint32_t full_axes;
} case_layout;

enum { CASE_SRC, CASE_DST, CASE_ADJOINT_SRC, CASE_ADJOINT_DST };

typedef struct redistribute_case {
    int world;
    int naxes;
    int64_t shape[LIERNE_MAX_AXES];
    lierne_dtype dtype; /* I64: small integers; F32: values whose sum depends on the order */
    int stated_adjoint;
    lierne_routing routing; /* AUTO: that of the environment, routing.h */
    lierne_sharing sharing; /* NONE, unless a test sets it */
    int max_peers;          /* 0, unless a test sets it */
    case_layout layouts[CASE_LAYOUTS];
} redistribute_case;

void random_redistribute(redistribute_case *c, uint64_t seed, int world);
/* A tensor of this shape, of at most CASE_SIZE indices per axis, under a random layout without
 * contributions, CASE_SRC. */
void random_tensor(redistribute_case *c, uint64_t seed, int world, int naxes, const int64_t *shape);
/* The case in one line per layout, for messages; in static storage. */
const char *redistribute_text(const redistribute_case *c);

/* A layout of the case, and its grid; a rank's plan. The layouts of the plan are freed before it is
 * used. */
lierne_layout *redistribute_layout(const redistribute_case *c, int which);
lierne_grid *redistribute_grid(const redistribute_case *c, int which);
lierne_status redistribute_plan(lierne_plan **plan, const redistribute_case *c,
                                lierne_context *context);

/* Fills a rank's input of a direction; what is wrong with its output, NULL if nothing is (static
 * storage). An output has the byte 0xa5 before. */
void redistribute_fill(const redistribute_case *c, int rank, lierne_direction d, void *in);
const char *redistribute_check(const redistribute_case *c, int rank, lierne_direction d,
                               const void *out);
/* Executes a direction of a rank's plan, blocking, then begun and ended, then again: what is wrong,
 * NULL if nothing is. dot: as redistribute_dot, 0 if another dtype; may be NULL. Collective. */
const char *redistribute_run(const redistribute_case *c, lierne_plan *plan, int rank,
                             lierne_direction d, int64_t *dot);
/* Copies the places of an output that an element belongs to. */
void redistribute_copy_owned(const redistribute_case *c, int rank, lierne_direction d, void *out,
                             const void *from);
/* The rank's share of <Fx, y> (of forward's output) or <x, F*y> (of the adjoint's), each logical
 * item once; of I64. */
int64_t redistribute_dot(const redistribute_case *c, int rank, lierne_direction d, const void *out);

#endif
