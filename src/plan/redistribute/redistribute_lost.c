/* What a redistribution from survivors leaves to the caller: the elements of a rank's output that
 * nobody holds. */
#include "plan/redistribute/redistribute_check.h"

lierne_status lierne_redistribute_find_lost(lierne_box *boxes, size_t capacity, size_t *count,
                                            const lierne_layout *src, const lierne_layout *dst,
                                            int rank) {
    LIERNE_PUBLIC_CALL();
    lierne_boxes lost = {0};
    lierne_cell cell;
    LIERNE_TRY(lierne_check_set(count, "count"));
    *count = 0;
    LIERNE_TRY(lierne_check_set(src, "src"));
    LIERNE_TRY(lierne_check_set(dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_pair(src, "src", dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_plain(src, "src"));
    LIERNE_TRY(lierne_redistribute_check_plain(dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_complete(dst, "dst"));
    if (!src->place_of || !lierne_layout_cell(dst, rank, &cell)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_common(&lost, dst, &cell, src, false);
    status = status == LIERNE_OK ? lierne_boxes_join(&lost, dst->naxes) : status;
    *count = status == LIERNE_OK ? lost.count : 0;
    for (size_t i = 0; boxes && i < *count && i < capacity; i++) {
        boxes[i] = lost.at[i];
    }
    lierne_mem_free(lost.at);
    return status;
}
