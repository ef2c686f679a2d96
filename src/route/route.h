/* A route: what one rank does to move data, as data. Stages run one after another; inside a stage
 * all messages and copies may be in flight at once, and sums run when everything has arrived.
 * Three buffers, counted in elements: in (read only), out, and scratch (the request's own). */
#ifndef LIERNE_ROUTE_H
#define LIERNE_ROUTE_H

#include "base/base.h"
#include "lierne/layout.h"

typedef enum lierne_buffer { LIERNE_IN = 0, LIERNE_OUT = 1, LIERNE_SCRATCH = 2 } lierne_buffer;
#define LIERNE_BUFFERS 3

/* Elements of a buffer: nested loops, outermost first, counts and strides in elements. ndims 1 with
 * stride 1 is contiguous. Where rows is not NULL, the outermost loop is an index list: its i-th
 * iteration is at rows[i] * stride[0] instead of i * stride[0]; such a block has 2 loops. Only an
 * index list may touch an element twice: it is worked on in its order, so that a row which is
 * listed twice is added to twice. */
typedef struct lierne_block {
    int64_t offset;
    int ndims;
    int64_t count[LIERNE_MAX_AXES];
    int64_t stride[LIERNE_MAX_AXES];
    const int64_t *rows; /* belongs to the route */
} lierne_block;

typedef struct lierne_place {
    lierne_buffer buffer;
    lierne_block block;
} lierne_place;

/* To or from one peer: blocks of one buffer, one after the other. */
typedef struct lierne_message {
    int peer;
    lierne_buffer buffer;
    int64_t elements;
    LIERNE_VEC(lierne_block) blocks;
} lierne_message;
typedef LIERNE_VEC(lierne_message) lierne_messages;

/* to = the sum of from, taken in this order. One source is a copy, none is zero. All blocks of an
 * operation have the same counts. onto: in a call that accumulates, what to holds is the first
 * summand. */
typedef struct lierne_op {
    lierne_place to;
    bool onto;
    LIERNE_VEC(lierne_place) from;
} lierne_op;
typedef LIERNE_VEC(lierne_op) lierne_ops;

typedef struct lierne_stage {
    int group; /* the plan's group whose all-gather the messages are, or -1 */
    lierne_messages sends;
    lierne_messages recvs;
    lierne_ops copies; /* in flight with the messages: read nothing that the stage writes */
    lierne_ops sums;   /* after all arrivals of the stage, in this order */
} lierne_stage;

typedef struct lierne_route {
    int rank;
    int64_t elements[LIERNE_BUFFERS];
    LIERNE_VEC(lierne_stage) stages;
    LIERNE_VEC(int64_t *) lists; /* index lists of blocks */
} lierne_route;

/* Blocks. From a box of a buffer with this shape, every axis a loop (lierne_block_box); then loops
 * that run together in all n blocks at once are joined (lierne_blocks_join). */
lierne_block lierne_block_box(int naxes, const int64_t *shape, const int64_t *local,
                              const int64_t *size);
lierne_block lierne_block_range(int64_t offset, int64_t count);
/* n rows of an array, one after the other, from row first on; like a list, it has 2 loops. */
lierne_block lierne_block_rows(int64_t first, int64_t n, int64_t width, int64_t stride);
/* The same loops over contiguous elements from offset on. */
lierne_block lierne_block_packed(const lierne_block *block, int64_t offset);
void lierne_blocks_join(lierne_block *const *blocks, int n);
int64_t lierne_block_elements(const lierne_block *block);
bool lierne_block_contiguous(const lierne_block *block);
/* Whether two places are the same elements in the same order. */
bool lierne_place_same(const lierne_place *a, const lierne_place *b);

/* Building. Everything that was added is freed by lierne_route_destroy, also after a failure. */
lierne_status lierne_route_create(lierne_route **out, int rank, int64_t in, int64_t out_elements);
void lierne_route_destroy(lierne_route *route);
lierne_status lierne_route_add_stage(lierne_route *route, lierne_stage **stage);
/* Reserves scratch; returns its first element. */
lierne_status lierne_route_scratch(lierne_route *route, int64_t elements, int64_t *offset);
lierne_status lierne_messages_add(lierne_messages *messages, int peer, lierne_buffer buffer,
                                  lierne_message **message);
/* A message of one block. */
lierne_status lierne_messages_put(lierne_messages *messages, int peer, lierne_buffer buffer,
                                  lierne_block block);
/* Adds a block at the end; one that continues the last block extends it. */
lierne_status lierne_message_add(lierne_message *message, lierne_block block);
lierne_status lierne_ops_add(lierne_ops *ops, lierne_place to, lierne_op **op);
lierne_status lierne_op_add(lierne_op *op, lierne_place from);
/* Joins the loops of an operation that run together in all its blocks. */
lierne_status lierne_op_join(lierne_op *op);
/* An operation of n sources, joined. */
lierne_status lierne_ops_put(lierne_ops *ops, lierne_place to, bool onto, const lierne_place *from,
                             int n);
/* The rows of a list, width elements each, in an array whose rows start stride elements apart: a
 * block without a list where they follow one another, else one with a copy of the list. */
lierne_status lierne_route_rows(lierne_route *route, lierne_block *block, const int64_t *rows,
                                int64_t n, int64_t width, int64_t stride);

/* *rows becomes a copy of n rows that belongs to the route. */
lierne_status lierne_route_list(lierne_route *route, const int64_t **rows, int64_t n);
/* Gives a route copies of the lists of its blocks, which are another route's. Once, at the end. */
lierne_status lierne_route_keep_lists(lierne_route *route);
/* Adds the stages of another route at the end, its buffer b read and written as buffers[b],
 * offset[b] elements further on. Lists stay the other's: see lierne_route_keep_lists. */
lierne_status lierne_route_append(lierne_route *route, const lierne_route *other,
                                  const lierne_buffer *buffers, const int64_t *offset);

/* The adjoint under the convention of distinct copies (every rank's entry is a variable of its
 * own): stages in reverse order, ends swapped, copies become additions. in of the new route is the
 * gradient of the old out, out the gradient of the old in. */
lierne_status lierne_route_reverse(lierne_route **out, const lierne_route *route);

/* Checks one rank's route: see lierne_plan_check. owned: blocks of out that must be written. */
lierne_status lierne_route_check(const lierne_route *route, const lierne_block *owned,
                                 size_t nowned);
/* Checks that the messages of the routes of ranks 0 to n-1 pair up. */
lierne_status lierne_routes_pair(const lierne_route *const *routes, int n);

/* Counts, in elements. */
typedef struct lierne_route_counts {
    int64_t sent, received, local;
    int64_t sent_messages, received_messages;
} lierne_route_counts;
lierne_route_counts lierne_route_count(const lierne_route *route);

void lierne_route_print(const lierne_route *route, lierne_text *text);

/* Where the whole of out lies inside in, unchanged: first element, or -1. */
int64_t lierne_route_alias(const lierne_route *route);

#endif
