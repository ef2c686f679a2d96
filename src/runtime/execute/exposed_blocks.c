/* Blocks of the sender's in place of a block of scratch.
 *
 * A message lands in scratch one element after the other, in the order of the sender's blocks. So a
 * block of scratch stands for elements of the message, and these lie at the sender's as a block too
 * if they are in one block there, and either that is contiguous, or they are whole rows of it. */
#include "runtime/execute/execution.h"

#include <string.h>

lierne_block lierne_block_part(const lierne_block *block, int64_t first, int64_t count) {
    lierne_block rows = *block;
    if (count < 0) {
        return rows;
    }
    rows.count[0] = count;
    if (rows.rows) {
        rows.rows += first;
    } else {
        rows.offset += first * rows.stride[0];
    }
    return rows;
}

/* Whether the elements of a block follow one another, in the order of its loops. */
static bool is_dense(const lierne_block *b) {
    int64_t stride = 1;
    bool dense = b->rows == NULL;
    for (int d = b->ndims - 1; d >= 0; d--) {
        dense &= b->count[d] == 1 || b->stride[d] == stride;
        stride *= b->count[d];
    }
    return dense;
}

/* *out becomes the n elements of a block from `first` on; false if they are not whole rows of it.
 */
static bool slice(const lierne_block *b, int64_t first, int64_t n, lierne_block *out) {
    int64_t inner = lierne_block_elements(b) / b->count[0];
    if (first % inner != 0 || n % inner != 0) {
        return false;
    }
    *out = lierne_block_part(b, first / inner, n / inner);
    return true;
}

/* Rows of a list, in a message of equally long rows that lie apart at the sender's. first: where it
 * lands. */
static bool map_rows(const lierne_block *sent, int64_t first, const lierne_block *source,
                     lierne_block *out) {
    int64_t width = sent->ndims == 2 ? sent->count[1] : 0;
    if (width == 0 || sent->rows || sent->stride[1] != 1 || source->ndims != 2 ||
        source->stride[0] != width || source->count[1] != width || source->stride[1] != 1 ||
        (source->offset - first) % width != 0) {
        return false;
    }
    *out = *source;
    out->offset = sent->offset + (source->offset - first) / width * sent->stride[0];
    out->stride[0] = sent->stride[0];
    return true;
}

/* Moves the cursor to the block that an element of the message is in; NULL: beyond the end. */
static const lierne_block *block_at(const lierne_part *part, lierne_part_cursor *c,
                                    int64_t element) {
    if (element < c->first) {
        *c = (lierne_part_cursor){0};
    }
    while (c->block < part->nblocks) {
        int64_t n = lierne_block_elements(&part->blocks[c->block]);
        if (element < c->first + n) {
            return &part->blocks[c->block];
        }
        c->first += n;
        c->block++;
    }
    return NULL;
}

bool lierne_part_find(lierne_block *out, const lierne_part *part, lierne_part_cursor *cursor,
                      int64_t landing, const lierne_block *source) {
    bool dense = is_dense(source);
    if (part->nblocks != 1 && !dense) {
        return false;
    }
    int64_t element = dense ? source->offset - landing : 0, n = lierne_block_elements(source);
    const lierne_block *sent = block_at(part, cursor, element);
    if (!sent || (dense && element + n > cursor->first + lierne_block_elements(sent))) {
        return false;
    }
    if (is_dense(sent)) {
        *out = *source;
        out->offset += sent->offset - landing - cursor->first;
        return true;
    }
    return dense ? slice(sent, element - cursor->first, n, out)
                 : map_rows(sent, landing, source, out);
}

static bool same_counts(const lierne_block *a, const lierne_block *b) {
    return a->ndims == b->ndims &&
           memcmp(a->count, b->count, (size_t)a->ndims * sizeof *a->count) == 0;
}

static int skip_ones(const lierne_block *b, int d) {
    while (d >= 0 && b->count[d] == 1) {
        d--;
    }
    return d;
}

bool lierne_block_refine(lierne_block *loops, const lierne_block *b) {
    int64_t reversed[LIERNE_MAX_AXES];
    if (same_counts(loops, b)) {
        return true;
    }
    int i = skip_ones(loops, loops->ndims - 1), j = skip_ones(b, b->ndims - 1), n = 0;
    int64_t x = i >= 0 ? loops->count[i] : 1, y = j >= 0 ? b->count[j] : 1;
    while (i >= 0 && j >= 0) {
        int64_t less = x < y ? x : y;
        if (n == LIERNE_MAX_AXES || x % less != 0 || y % less != 0) {
            return false;
        }
        reversed[n++] = less;
        x /= less;
        y /= less;
        if (x == 1) {
            i = skip_ones(loops, i - 1);
            x = i >= 0 ? loops->count[i] : 1;
        }
        if (y == 1) {
            j = skip_ones(b, j - 1);
            y = j >= 0 ? b->count[j] : 1;
        }
    }
    loops->ndims = n;
    for (int d = 0; d < n; d++) {
        loops->count[d] = reversed[n - 1 - d];
    }
    return true;
}

bool lierne_block_divide(lierne_block *b, const lierne_block *loops) {
    lierne_block divided = {.offset = b->offset, .ndims = loops->ndims};
    int j = skip_ones(b, b->ndims - 1);
    int64_t left = j >= 0 ? b->count[j] : 1, stride = j >= 0 ? b->stride[j] : 1;
    if (same_counts(b, loops)) {
        return true;
    }
    if (b->rows) {
        return false;
    }
    for (int d = loops->ndims - 1; d >= 0; d--) {
        divided.count[d] = loops->count[d];
        divided.stride[d] = stride;
        stride *= loops->count[d];
        left /= loops->count[d];
        if (left == 1) {
            j = skip_ones(b, j - 1);
            left = j >= 0 ? b->count[j] : 1;
            stride = j >= 0 ? b->stride[j] : 1;
        }
    }
    *b = divided;
    return true;
}
