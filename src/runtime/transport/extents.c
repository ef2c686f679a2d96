/* First fit. Plans are few and live long, so a sorted list is enough; and ranks that plan and
 * destroy in the same order have equal places. */
#include "runtime/transport/extents.h"

#include <string.h>

lierne_status lierne_extents_reserve(lierne_extents *taken) {
    return lierne_vec_grow(&taken->at, taken->count, &taken->capacity, sizeof *taken->at);
}

/* The first extent that ends behind an offset, as an index. */
static size_t find_behind(const lierne_extents *taken, uint64_t offset) {
    size_t i = 0;
    while (i < taken->count && taken->at[i].offset + taken->at[i].bytes <= offset) {
        i++;
    }
    return i;
}

bool lierne_extents_take(lierne_extents *taken, lierne_extent chunk, uint64_t bytes,
                         uint64_t *offset) {
    uint64_t low = chunk.offset, end = chunk.offset + chunk.bytes;
    size_t i = find_behind(taken, low);
    for (; i < taken->count && taken->at[i].offset < end; i++) {
        if (taken->at[i].offset - low >= bytes) {
            break;
        }
        low = taken->at[i].offset + taken->at[i].bytes;
    }
    if (low > end || end - low < bytes) {
        return false;
    }
    lierne_extent *to = taken->at + i;
    memmove(to + 1, to, (taken->count++ - i) * sizeof *to);
    *to = (lierne_extent){low, bytes};
    *offset = low;
    return true;
}

bool lierne_extents_give(lierne_extents *taken, uint64_t offset, lierne_extent *given) {
    size_t i = find_behind(taken, offset);
    if (i == taken->count || taken->at[i].offset != offset) {
        return false;
    }
    lierne_extent *at = taken->at + i;
    if (given) {
        *given = *at;
    }
    memmove(at, at + 1, (--taken->count - i) * sizeof *at);
    return true;
}

bool lierne_extents_use(const lierne_extents *taken, lierne_extent chunk) {
    size_t i = find_behind(taken, chunk.offset);
    return i < taken->count && taken->at[i].offset < chunk.offset + chunk.bytes;
}
