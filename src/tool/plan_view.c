/* What of a plan is printed: everything, or one rank's part. */
#include "plan.h"

bool plan_view_slice(const plan_view *view, int rank, int64_t *start, int64_t *size) {
    return lierne_megatron_map_get_slice(start, size, view->map, rank,
                                         view->wide[rank - view->first]) == LIERNE_OK;
}

bool plan_view_shows(const plan_view *view, const int *ranks, int size) {
    bool shown = view->only < 0;
    for (int i = 0; !shown && i < size; i++) {
        shown = ranks[i] == view->only;
    }
    return shown;
}
