/* Executes plans from their public routes alone, without lierne's engine. All ranks of a world are
 * in this process. */
#ifndef LIERNE_TESTS_ROUTE_EXECUTOR_H
#define LIERNE_TESTS_ROUTE_EXECUTOR_H

#include "lierne/route.h"

/* The elements of a block, and where the i-th one is, in the order in which it travels: by their
 * definition, which what lierne does with blocks is compared with. */
int64_t route_block_elements(const lierne_block *block);
int64_t route_block_element(const lierne_block *block, int64_t i);

/* Executes the routes of ranks 0 to n - 1. Buffers have the element counts of the routes. Returns
 * NULL, or what is wrong with the routes (static storage). */
const char *route_execute(const lierne_route *const *routes, int n, unsigned char *const *out,
                          const unsigned char *const *in);

/* Executes the plans of ranks 0 to n - 1 with lierne and from their routes, both directions, on
 * random numbers whose sums depend on their order. Returns NULL where all bits are the same, or
 * what is wrong (static storage). No request of the plans may be in flight. */
const char *route_compare(lierne_plan *const *plans, int n);
/* The same for plans that have no adjoint. */
const char *route_compare_forward(lierne_plan *const *plans, int n);

#endif
