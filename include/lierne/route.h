/* The route of a plan: what one rank does to move data, as data. Anybody can print it, count it, or
 * execute it over a transport of their own; lierne's engine reads the same structs.
 *
 * A route works on three kinds of buffers: in (read only), out, and scratch (memory of whoever
 * executes the route, elements[LIERNE_BUFFER_SCRATCH] elements; its contents at the beginning do
 * not matter). All offsets, counts and strides are in elements of the route's dtype.
 *
 * How to execute a route. Stages run one after another. In each stage:
 *   1. Post all receives and all sends, in any order. They may all be in flight at once; no
 *      receive overlaps a block that the stage sends or copies from. The k-th message to a peer is
 *      the k-th message that the peer receives from this rank in the stage with the same index.
 *      Both ends list the same number of elements. A message is the elements of its blocks, block
 *      after block, each with the last loop running fastest.
 *   2. Do the copies, in any order. They read nothing that the stage writes.
 *   3. When everything has arrived and the copies are done, do the sums, in their order.
 * The stage ends when its sends have completed, too. in and out are different memory; where the
 * plan allows out == in, one buffer may serve as both if sends complete before the sums (step 3)
 * begin. A rank without stages does nothing. Ranks may have different numbers of stages; stage i of
 * one rank only communicates with stage i of others.
 *
 * Sums: `to` becomes the sum of the sources, added in their order; where the operation says so,
 * their product, maximum or minimum, taken in the same order. f16 and bf16 are added in float32 and
 * rounded once at the end (to nearest, ties to even); f32 and f64 are added in their own type;
 * integers wrap around. Each element's sum begins with its first source. A divisor divides the
 * result before it is rounded. A maximum or minimum with a NaN is NaN; whatever is computed and is
 * NaN is the canonical NaN (lierne/plan.h). One source that nothing divides is copied.
 *
 * All structs are read-only and belong to the plan. They stay valid until the plan is destroyed or
 * updated (the functions lierne_plan_update_). The structs are part of the ABI.
 * A list of structs is at[0] to at[count - 1]; at is NULL where count is 0.
 * Functions here are pure: not collective, and callable from many threads at once. */
#ifndef LIERNE_ROUTE_H
#define LIERNE_ROUTE_H

#include "lierne/layout.h"
#include "lierne/plan.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of buffers. */
typedef enum lierne_buffer {
    LIERNE_BUFFER_IN = 0,
    LIERNE_BUFFER_OUT = 1,
    LIERNE_BUFFER_SCRATCH = 2
} lierne_buffer;
#define LIERNE_BUFFER_COUNT 3

/* Elements of a buffer: ndims nested loops, the first one outermost. Iteration (i, j, ...) is the
 * element offset + i * stride[0] + j * stride[1] + ... ; ndims 1 with stride 1 is contiguous. Where
 * rows is not NULL, the block has two loops and the first one follows an index list: iteration
 * (i, j) is the element offset + rows[i] * stride[0] + j * stride[1]. Only an index list may name
 * an element twice: an operation then works on it once per mention, in the order of the list. */
typedef struct lierne_block {
    int64_t offset;
    int ndims;
    int64_t count[LIERNE_MAX_AXES];
    int64_t stride[LIERNE_MAX_AXES];
    const int64_t *rows; /* count[0] indices, or NULL */
} lierne_block;

typedef struct lierne_blocks {
    lierne_block *at;
    size_t count;
} lierne_blocks;

/* A block of a buffer. index: which buffer of its kind (0 as long as a plan moves one tensor). */
typedef struct lierne_place {
    lierne_buffer buffer;
    int index;
    lierne_block block;
} lierne_place;

typedef struct lierne_places {
    lierne_place *at;
    size_t count;
} lierne_places;

/* A message to or from one peer: blocks of one buffer, one after the other. Its size in bytes is
 * elements * lierne_dtype_size(dtype of the route). */
typedef struct lierne_message {
    int peer; /* rank in the context */
    lierne_buffer buffer;
    int index;
    int64_t elements; /* of all blocks together */
    lierne_blocks blocks;
} lierne_message;

typedef struct lierne_messages {
    lierne_message *at;
    size_t count;
} lierne_messages;

/* to = the sum of from, added in this order. One source is a copy; none sets `to` to zero. All
 * blocks of an operation have the same counts. accumulate: where the route accumulates too, the
 * value that `to` held before is the first source. Copies neither reduce nor divide. */
typedef struct lierne_op {
    lierne_place to;
    bool accumulate;
    lierne_reduction reduction; /* SUM, PROD, MAX or MIN; an average is a sum with a divisor */
    int64_t divisor;            /* of the result, if above 1; only of floating-point types */
    lierne_places from;
} lierne_op;

typedef struct lierne_ops {
    lierne_op *at;
    size_t count;
} lierne_ops;

typedef struct lierne_stage {
    int group; /* index of the plan's group whose all-gather the messages are, or -1 */
    lierne_messages sends;
    lierne_messages recvs;
    lierne_ops copies;
    lierne_ops sums;
} lierne_stage;

typedef struct lierne_stages {
    lierne_stage *at;
    size_t count;
} lierne_stages;

typedef struct lierne_route {
    int rank;
    lierne_dtype dtype;
    bool accumulates; /* a plan created with accumulate, and this is its adjoint */
    int64_t elements[LIERNE_BUFFER_COUNT]; /* of each kind of buffer on this rank */
    lierne_stages stages;
} lierne_route;

/* The route of this rank for one direction. *route belongs to the plan. Every plan has one.
 * Errors: INVALID (NULL, a direction that does not exist or that the plan does not have). */
LIERNE_API lierne_status lierne_plan_get_route(const lierne_route **route, const lierne_plan *plan,
                                               lierne_direction direction);

/* Frees a route that a function of the form lierne_route_create_ made. NULL is allowed. A route of
 * a plan is not the caller's to free. */
LIERNE_API void lierne_route_destroy(lierne_route *route);

#ifdef __cplusplus
}
#endif
#endif
