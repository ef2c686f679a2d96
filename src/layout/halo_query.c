/* What callers ask about the windows and margins of a rank. */
#include "layout/dense_halo.h"

static lierne_status give_windows(lierne_halo_window *windows, size_t capacity, size_t *count,
                                  const lierne_layout *layout, const lierne_cell *cell, int axis) {
    lierne_spans spans[LIERNE_MAX_AXES];
    lierne_halo_windows list = {0};
    lierne_status status = lierne_spans_create(spans, layout, cell);
    if (status == LIERNE_OK) {
        status = lierne_windows_list(&list, layout, axis, &spans[axis]);
    }
    if (status == LIERNE_OK) {
        *count = list.count;
        for (size_t i = 0; windows && i < list.count && i < capacity; i++) {
            windows[i] = list.at[i];
        }
    }
    lierne_mem_free(list.at);
    lierne_spans_destroy(spans, layout->naxes);
    return status;
}

lierne_status lierne_layout_get_windows(lierne_halo_window *windows, size_t capacity, size_t *count,
                                        const lierne_layout *layout, int rank, int axis) {
    LIERNE_PUBLIC_CALL();
    lierne_cell cell;
    LIERNE_TRY(lierne_check_set(layout, "layout"));
    LIERNE_TRY(lierne_check_set(count, "count"));
    *count = 0;
    if (axis < 0 || axis >= layout->naxes || !lierne_halo_of(layout, axis)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "axis is %d, must be one with a halo", axis);
    }
    return lierne_layout_cell(layout, rank, &cell)
               ? give_windows(windows, capacity, count, layout, &cell, axis)
               : LIERNE_OK;
}

lierne_status lierne_layout_get_margins(lierne_margin *margins, size_t capacity, size_t *count,
                                        const lierne_layout *layout, int rank) {
    LIERNE_PUBLIC_CALL();
    lierne_cell cell;
    lierne_margins list = {0};
    LIERNE_TRY(lierne_check_set(layout, "layout"));
    LIERNE_TRY(lierne_check_set(count, "count"));
    *count = 0;
    if (!lierne_stores_margins(layout)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "layout has no margin storage: give it halos and halo_storage 1");
    }
    if (!lierne_layout_cell(layout, rank, &cell)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_margins_list(&list, layout, &cell);
    if (status == LIERNE_OK) {
        *count = list.count;
        for (size_t i = 0; margins && i < list.count && i < capacity; i++) {
            margins[i] = list.at[i];
        }
    }
    lierne_mem_free(list.at);
    return status;
}
