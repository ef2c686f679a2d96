/* Linear assignment: which column each row gets, each column once, so that the sum is greatest. */
#ifndef LIERNE_TOOL_ASSIGN_H
#define LIERNE_TOOL_ASSIGN_H

#include <stdbool.h>
#include <stdint.h>

/* gain: n rows of n values, none below 0. column: n ints, the column of each row. Returns false
 * where there is no memory. */
bool tool_assign(int *column, const int64_t *gain, int n);

#endif
