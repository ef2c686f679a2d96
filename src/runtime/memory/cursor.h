/* Walks the runs of a block: the innermost loop is the run, the others are counted here. */
#ifndef LIERNE_CURSOR_H
#define LIERNE_CURSOR_H

#include "runtime/memory/host.h"

/* Position in the loops outside the run. */
typedef struct cursor {
    int64_t at[LIERNE_MAX_AXES];
} cursor;

static inline int64_t offset_of(const lierne_block *block, const cursor *c) {
    int64_t offset = block->offset;
    if (block->rows) {
        return offset + block->rows[c->at[0]] * block->stride[0];
    }
    for (int d = 0; d < block->ndims - 1; d++) {
        offset += c->at[d] * block->stride[d];
    }
    return offset;
}

/* The next position in loops 0 to `innermost`; false after the last one. */
static inline bool next(const lierne_block *block, cursor *c, int innermost) {
    for (int d = innermost; d >= 0; d--) {
        if (++c->at[d] < block->count[d]) {
            return true;
        }
        c->at[d] = 0;
    }
    return false;
}

static inline bool next_run(const lierne_block *block, cursor *c) {
    return next(block, c, block->ndims - 2);
}

static inline bool block_empty(const lierne_block *block) {
    return lierne_block_elements(block) == 0;
}

static inline int64_t run_count(const lierne_block *block) {
    return block->ndims ? block->count[block->ndims - 1] : 1;
}

static inline int64_t run_stride(const lierne_block *block) {
    return block->ndims ? block->stride[block->ndims - 1] : 1;
}

/* Rows are worked on together: where there are few of them, those of the next outer loop are. What
 * is done with each does not depend on the others. Blocks with a list have two loops. */
#define FEW_ROWS 4

static inline bool has_few_rows(const lierne_block *block) {
    int rows = block->ndims - 2;
    return rows > 0 && block->count[rows] < FEW_ROWS && block->count[rows - 1] > block->count[rows];
}

static inline lierne_block with_more_rows(const lierne_block *block) {
    lierne_block b = *block;
    int rows = block->ndims - 2;
    b.count[rows] = block->count[rows - 1];
    b.count[rows - 1] = block->count[rows];
    b.stride[rows] = block->stride[rows - 1];
    b.stride[rows - 1] = block->stride[rows];
    return b;
}

/* The runs of the two innermost loops, from the cursor on. */
static inline lierne_rows runs_at(const void *base, const lierne_block *block, const cursor *c,
                                  size_t size) {
    int64_t offset = block->rows ? block->offset : offset_of(block, c);
    int64_t step = block->ndims > 1 ? block->stride[block->ndims - 2] : 0;
    return (lierne_rows){.base = (char *)base + (size_t)offset * size,
                         .list = block->rows,
                         .step = step * (int64_t)size};
}

#endif
