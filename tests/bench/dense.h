/* The benchmark of dense halos: margins of a field that is cut over a grid of ranks, forward and
 * adjoint. Elements are small integers, so that sums are exact in every order and type.
 *
 * A workload has the buffers of all methods, in memory of one context: `part` without margins,
 * `padded` with them, `place` of the methods that work in place, `margins` alone. */
#ifndef TESTS_BENCH_DENSE_H
#define TESTS_BENCH_DENSE_H

#include "bench/bench.h"
#include "lierne/redistribute.h"

enum { AXES = LIERNE_MAX_AXES };

typedef struct dense_axis {
    int64_t size;
    int ranks; /* that cut it */
    int64_t lo, hi;
    bool periodic; /* else windows end at the border */
    bool zigzag;
} dense_axis;

/* Consecutive positions of a rank's buffer on one axis that show consecutive elements of one
 * owner: `here` in the buffer, `there` in the owner's. */
typedef struct piece {
    int64_t here, there, element, count;
    int64_t part; /* where the owner's part without margins has it */
    int owner;    /* coordinate */
    bool core;
} piece;

/* What this rank has of an axis. Tables have an entry per position of the buffer. */
typedef struct dense_line {
    int64_t length;                        /* positions */
    int64_t owned;                         /* of these in cores */
    int64_t *core;                         /* their positions */
    int32_t *value, *gradient, *own, *sum; /* factors of what dense_right compares */
    bool *margin;
} dense_line;

/* A box of margins: at `here` in the buffer of the rank that shows it, `there` in its owner's. */
typedef struct dense_box {
    int from, to; /* owner, rank that shows it */
    int64_t size[AXES], here[AXES], there[AXES];
    int64_t part[AXES]; /* in its owner's part without margins */
    int64_t packed;     /* elements of the boxes before it that the rank shows */
} dense_box;

typedef struct dense {
    const char *name;
    lierne_dtype dtype;
    int naxes;
    dense_axis axes[AXES];
    lierne_stencil stencil;

    size_t element;                            /* bytes */
    int64_t shapes[64][AXES], parts[64][AXES]; /* of ranks, with margins and without */
    dense_line lines[AXES];
    dense_box *boxes; /* all ranks' */
    size_t nboxes;
    dense_box *cores; /* of this rank, in its padded buffer and in its part */
    size_t ncores;
    lierne_context *context;
    lierne_layout *plain, *halo, *alone; /* without halo, padded, margins */
    lierne_margin *rims;                 /* of margin storage */
    size_t nrims;
    int64_t *count_up; /* 0, 1, ... */
    size_t bytes[4];
    char *part, *padded, *place, *margins;
} dense;

/* The caller has set name to stencil. Collective. */
void dense_open(dense *w);
void dense_close(dense *w);
int dense_coordinate(const dense *w, int rank, int axis);
/* Margins that ranks get from other ranks, in bytes over all ranks. */
int64_t dense_margins(const dense *w);

/* As struct bench has them. */
void dense_reset(const void *workload, int direction);
bool dense_right(const method *m, int direction);
const char *dense_text(const void *workload);
/* For method.before: rewrites this method's input, if it is dirty. */
void dense_rewrite(method *m, int direction);

/* Calls `row` for every contiguous row of a box in a buffer of this shape, with its byte offset
 * there and in the packed box. */
typedef void dense_row(void *with, size_t at, size_t packed, size_t bytes);
void dense_rows(const dense *w, const int64_t *shape, const int64_t *start, const int64_t *size,
                dense_row *row, void *with);
/* The same for a box that two buffers have, with the row's offset in each of them. */
void dense_row_pairs(const dense *w, const int64_t *shape, const int64_t *start,
                     const int64_t *other_shape, const int64_t *other_start, const int64_t *size,
                     dense_row *row, void *with);
/* to[i] += from[i] */
void dense_add(const dense *w, char *to, const char *from, size_t bytes);

/* A dense_row with dense_sides: adds a row of `from`, the second offset, to `to`. */
typedef struct dense_sides {
    const dense *w;
    char *to;
    const char *from;
} dense_sides;
void dense_add_row(void *with, size_t at, size_t packed, size_t bytes);
/* As the adjoint in place leaves them. */
void dense_clear_margins(const dense *w, char *buffer);

extern const method_kind dense_place, dense_over_mpi, dense_padded, dense_margin_storage;
extern const method_kind dense_neighbor, dense_petsc;
extern const method_kind dense_bound, dense_copy_bound;
extern const method_kind dense_by_hand, dense_by_hand_alone, dense_by_hand_padded;
extern const method_kind dense_after, dense_between; /* forward only: with a stencil */

#endif
