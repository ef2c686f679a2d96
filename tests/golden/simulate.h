/* A bridge on a simulated world, compared with the golden files' formula (closed_form.c). */
#ifndef LIERNE_TESTS_GOLDEN_SIMULATE_H
#define LIERNE_TESTS_GOLDEN_SIMULATE_H

#include "algorithm.h"
#include "golden.h"
#include "lierne/sim.h"

/* Which cp rank fills which rows of the gradient; DENSE: all of them fill every row. */
typedef enum golden_mode {
    GOLDEN_ZIGZAG,
    GOLDEN_CONTIGUOUS,
    GOLDEN_ROWMAP,
    GOLDEN_DENSE
} golden_mode;

/* A tensor to move, and how. */
typedef struct golden_bridge {
    const lierne_grid *src;
    const lierne_grid *dst;
    int64_t samples; /* of all dp ranks */
    int64_t length;  /* of a sequence */
    int64_t width;
    char order[4]; /* the axes, slowest first, a character each: "bsh", "sbh", ... */
    bool flat;     /* tell lierne of one axis of rows in place of b and s, which are neighbours */
    golden_mode mode;
    test_algorithm algorithm;
    lierne_gradient_owner owner;
    lierne_storage storage;
    lierne_dtype dtype;
    bool divisible; /* spec.require_divisible */
} golden_bridge;

/* The four buffers of a rank. */
typedef enum golden_buffer {
    GOLDEN_INPUT,
    GOLDEN_OUTPUT,
    GOLDEN_OUTPUT_GRADIENT,
    GOLDEN_INPUT_GRADIENT
} golden_buffer;

/* The values of a rank's buffer, row-major, *n of them, to be freed; shape has three sizes, those
 * of the axes in `order` (of a compact gradient with row ownership: the rows in one axis, and 1).
 */
int64_t *golden_values(const golden_bridge *bridge, golden_buffer buffer, int rank, int64_t *n,
                       int64_t *shape);

/* The row map of GOLDEN_ROWMAP, to be freed. */
int32_t *golden_row_owners(const golden_bridge *bridge);

/* Plans the bridge on every rank of a simulated world, runs forward and adjoint, and compares every
 * element that is owned. Returns the outcome of planning, which must be the same on all ranks; what
 * is wrong beyond that fails the case. */
lierne_status golden_simulate(golden_case *c, const golden_bridge *bridge);

/* A small tensor whose batch both dp sizes divide; every cp rank contributes to every row. */
golden_bridge golden_small_tensor(const lierne_grid *src, const lierne_grid *dst);
/* Runs a bridge; its outcome must be one of two. what: for messages. */
void golden_try(golden_case *c, const char *what, const golden_bridge *bridge, lierne_status wanted,
                lierne_status or_else);

#endif
