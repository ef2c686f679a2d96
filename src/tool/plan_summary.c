/* Which part of a plan is printed: everything, or one rank's part. */
#include "plan.h"

bool plan_summary_slice(const plan_summary *summary, int rank, int64_t *start, int64_t *size) {
    return lierne_megatron_map_get_slice(start, size, summary->map, rank,
                                         summary->wide[rank - summary->first]) == LIERNE_OK;
}

bool plan_summary_shows(const plan_summary *summary, const int *ranks, int size) {
    bool shown = summary->only < 0;
    for (int i = 0; !shown && i < size; i++) {
        shown = ranks[i] == summary->only;
    }
    return shown;
}
