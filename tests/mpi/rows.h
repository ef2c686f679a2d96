/* Exchanges of rows in plain numbers: what every rank of a world must get, which each rank works
 * out for itself from the definitions, one addition after the other. Of the library only names of
 * types are used. Numbers are doubles that hold a value of the dtype exactly. */
#ifndef TESTS_MPI_ROWS_H
#define TESTS_MPI_ROWS_H

#include "mpi/common.h"

#define ROWS_WORLD 8 /* most ranks */

/* A random number below `below`; moves the seed on. */
uint64_t draw(uint64_t *seed, uint64_t below);

/* Rows as buffers hold them, and the values in them. */
typedef struct shape {
    lierne_dtype dtype;
    int64_t width, stride;
    bool exact; /* small integers, exact in every sum; else anything that the dtype holds */
    uint64_t seed;
} shape;
/* A random shape; exact: f64 or i64. */
shape shape_random(uint64_t seed, bool exact);
/* The arrays whose values are given; ghosts and owned rows, and what out held before. */
typedef enum array { VALUES = 1, GRADIENTS = 2, BEFORE = 3, NOTHING = 0 } array;
/* The value of an element of an array of a rank. */
double shape_cell(const shape *s, array a, int rank, int64_t row, int64_t col);

/* A buffer of rows with poison between and behind them. */
typedef struct buffer {
    int64_t nrows;
    size_t bytes; /* of rows; GUARD more are poison */
    unsigned char *at;
} buffer;
buffer buffer_new(const shape *s, int64_t nrows);
void buffer_put(const shape *s, const buffer *b, int64_t row, int64_t col, double value);
double buffer_get(const shape *s, const buffer *b, int64_t row, int64_t col);
/* Rows first to first + n of it become rows 0 to n of an array of a rank. */
void buffer_fill(const shape *s, const buffer *b, int64_t first, int64_t n, array a, int rank);
/* From row first on, the numbers of nrows rows. */
void buffer_set(const shape *s, const buffer *b, int64_t first, int64_t nrows, const double *cells);
void buffer_free(buffer *b);
/* Executes a direction, blocking, then begun and ended, then again, each into a copy of `before`:
 * all bits must be those of `wanted`, and the input must stay. Collective. */
void buffer_check(lierne_plan *plan, lierne_direction direction, const buffer *in,
                  const buffer *before, const buffer *wanted, const char *what);

/* Whose copies the ghosts of all ranks are. */
typedef struct root {
    int rank;
    int64_t row;
} root;
typedef struct forest {
    int world;
    int64_t nowned[ROWS_WORLD];
    int64_t nghosts[ROWS_WORLD];
    root *ghosts[ROWS_WORLD];
} forest;
/* Ghosts of any rank, the own one too, in any order and several of one row. nowned NULL: random,
 * too. */
void forest_random(forest *f, uint64_t seed, const int64_t *nowned);
void forest_free(forest *f);
/* A plan of its pairs. Collective. */
lierne_status forest_plan(lierne_plan **plan, lierne_context *context, const forest *f,
                          const shape *s, lierne_graph_algorithm algorithm, bool accumulate);
/* What a rank's ghosts become. */
void forest_forward(const forest *f, const shape *s, int rank, double *ghosts);
/* What a rank's owned rows become of the GRADIENTS of ghosts: the value in `before` first, unless
 * that is NOTHING, then ascending rank, the ghosts of a rank added there first. In a whole array a
 * rank's ghosts stand behind its owned rows (ghosts_at[rank] rows further on), else ghosts_at is
 * NULL. */
void forest_reduce(const forest *f, const shape *s, lierne_reduction op, array before,
                   const int64_t *ghosts_at, int rank, double *owned);
/* What a rank's owned rows, with the values in BEFORE, and then its ghosts become where each ghost
 * fetches and adds its GRADIENTS. */
void forest_fetch(const forest *f, const shape *s, int rank, double *cells);

/* Executes both directions of a plan, or of its transpose, with owned rows and ghosts in arrays of
 * their own. Collective. */
void forest_check(lierne_plan *plan, const forest *f, const shape *s, bool accumulate,
                  bool transposed, const char *what);

#endif
