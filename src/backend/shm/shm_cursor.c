#include "backend/shm/shm_cursor.h"

/* The elements of the innermost loops of a block that are contiguous together; *loops is how many
 * loops are left outside. */
static int64_t stretch_of(const lierne_block *b, int *loops) {
    int64_t n = 1;
    int d = b->ndims;
    while (d > 0 && (b->stride[d - 1] == n || b->count[d - 1] == 1) && !(d == 1 && b->rows)) {
        n *= b->count[--d];
    }
    *loops = d;
    return n;
}

static int64_t offset_of(const lierne_block *b, int loops, int64_t outer) {
    int64_t at = b->offset;
    for (int d = loops - 1; d >= 0; d--) {
        int64_t index = outer % b->count[d];
        at += (d == 0 && b->rows ? b->rows[index] : index) * b->stride[d];
        outer /= b->count[d];
    }
    return at;
}

lierne_cursor lierne_cursor_at(const lierne_part *parts, size_t nparts) {
    return (lierne_cursor){.parts = parts, .nparts = nparts};
}

/* Goes to the next block, and to the next part behind the last one. */
static void leave_block(lierne_cursor *c) {
    c->outer = 0;
    c->inner = 0;
    if (++c->block >= c->parts->nblocks) {
        c->block = 0;
        c->parts++;
        c->nparts--;
    }
}

size_t lierne_cursor_next(lierne_cursor *c, char **at, size_t most) {
    while (c->nparts > 0) {
        const lierne_part *part = c->parts;
        const lierne_block *b = &part->blocks[c->block];
        int64_t elements = part->nblocks ? lierne_block_elements(b) : 0;
        if (elements == 0) {
            leave_block(c);
            continue;
        }
        int loops;
        int64_t stretch = stretch_of(b, &loops);
        size_t bytes = (size_t)stretch * part->size - c->inner;
        bytes = bytes < most ? bytes : most;
        *at = (char *)(uintptr_t)part->base + offset_of(b, loops, c->outer) * (int64_t)part->size +
              c->inner;
        c->inner += bytes;
        if (c->inner == (size_t)stretch * part->size) {
            c->inner = 0;
            c->outer++;
        }
        if (c->outer * stretch == elements) {
            leave_block(c);
        }
        return bytes;
    }
    return 0;
}

size_t lierne_parts_bytes(const lierne_part *parts, size_t nparts) {
    size_t bytes = 0;
    for (size_t i = 0; i < nparts; i++) {
        for (size_t b = 0; b < parts[i].nblocks; b++) {
            bytes += (size_t)lierne_block_elements(&parts[i].blocks[b]) * parts[i].size;
        }
    }
    return bytes;
}

size_t lierne_parts_stretch(const lierne_part *parts, size_t nparts) {
    size_t least = 0;
    for (size_t i = 0; i < nparts; i++) {
        for (size_t b = 0; b < parts[i].nblocks; b++) {
            int loops;
            size_t bytes = (size_t)stretch_of(&parts[i].blocks[b], &loops) * parts[i].size;
            if (lierne_block_elements(&parts[i].blocks[b]) > 0 && (!least || bytes < least)) {
                least = bytes;
            }
        }
    }
    return least;
}
