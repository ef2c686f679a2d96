/* Building, checking and counting routes; lierne/route.h has the structs. */
#ifndef LIERNE_ROUTE_INTERNAL_H
#define LIERNE_ROUTE_INTERNAL_H

#include "base/base.h"
#include "lierne/route.h"

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
static inline bool lierne_block_contiguous(const lierne_block *block) {
    return block->ndims == 1 && block->stride[0] == 1 && !block->rows;
}
/* Extends the elements *first to *end - 1, none if these are equal, to those of a block. */
void lierne_block_extend(const lierne_block *block, int64_t *first, int64_t *end);
lierne_place lierne_place_at(lierne_buffer buffer, lierne_block block);
/* Whether two places are the same elements in the same order. */
bool lierne_place_same(const lierne_place *a, const lierne_place *b);

/* Building. Everything that was added is freed by lierne_route_destroy, also after a failure. */
lierne_status lierne_route_create(lierne_route **out, int rank, int64_t in, int64_t out_elements);
lierne_status lierne_route_add_stage(lierne_route *route, lierne_stage **stage);
/* Blocks of its messages, operations and their sources are in memory that is not the route's. */
void lierne_route_lend(lierne_route *route);
/* Reserves scratch; returns its first element. */
lierne_status lierne_route_scratch(lierne_route *route, int64_t elements, int64_t *offset);
lierne_status lierne_messages_add(lierne_messages *messages, int peer, lierne_buffer buffer,
                                  lierne_message **message);
/* A message of one block. */
lierne_status lierne_messages_put(lierne_messages *messages, int peer, lierne_buffer buffer,
                                  lierne_block block);
/* Adds a block at the end; one that continues the last block extends it. extend: counts its
 * elements; false: it is joined, and to be added. */
bool lierne_message_extend(lierne_message *message, lierne_block *block);
lierne_status lierne_message_add(lierne_message *message, lierne_block block);
lierne_status lierne_ops_add(lierne_ops *ops, lierne_place to, lierne_op **op);
lierne_status lierne_op_add(lierne_op *op, lierne_place from);
/* Joins the loops of an operation that run together in all its blocks. */
lierne_status lierne_op_join(lierne_op *op);
/* An operation of n sources, joined. */
lierne_status lierne_ops_put(lierne_ops *ops, lierne_place to, bool accumulate,
                             const lierne_place *from, int n);
/* Adds copies of operations at the end. Lists stay the others'. */
lierne_status lierne_ops_append(lierne_ops *to, const lierne_ops *from);
/* The same with buffer b shifted by offset[b] elements. */
lierne_status lierne_ops_append_at(lierne_ops *to, const lierne_ops *from, const int64_t *offset);
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

/* A route that moves the same rows as elements of another dtype, width of them a row and stride
 * apart in each kind of buffer, where those of `from` were `was`. It shares the lists of `from`,
 * which live as long as one of the two. Errors: INVALID if a block of `from` cuts a row, OVERFLOW.
 * The same for a block. */
typedef struct lierne_row_shape {
    int64_t width;
    int64_t stride;
} lierne_row_shape;
lierne_status lierne_route_retype(lierne_route **out, const lierne_route *from, lierne_dtype dtype,
                                  const lierne_row_shape *was, const lierne_row_shape *now);
lierne_status lierne_block_retype(lierne_block *block, int rank, const lierne_row_shape *was,
                                  const lierne_row_shape *now);
/* For a route that has no list yet. */
void lierne_route_share_lists(lierne_route *route, const lierne_route *from);

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
/* Ranks to which a route sends elements, or from which it receives some. */
int64_t lierne_route_count_peers(const lierne_route *route, bool sends);

void lierne_route_print(const lierne_route *route, lierne_text *text);

/* Where the whole of out lies inside in, unchanged: first element, or -1. untouched: elements of
 * out that nothing writes and whose values mean nothing. */
int64_t lierne_route_alias(const lierne_route *route, int64_t untouched);

#endif
