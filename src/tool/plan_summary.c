/* Which part of a plan is printed: everything, or one rank's part; and the numbers of its ranks
 * added up. */
#include "plan.h"

#include <string.h>

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

static int64_t max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Keeps the most, and the first rank that has it. */
static void raise(int64_t *most, int *who, int64_t bytes, int rank) {
    if (bytes > *most) {
        *most = bytes;
        *who = rank;
    }
}

lierne_status plan_add_cost(plan_summary *summary, const lierne_plan *plan, int rank,
                            lierne_direction direction) {
    lierne_report report = {.size = sizeof report};
    plan_cost *cost = &summary->cost[direction];
    lierne_status status = lierne_plan_get_report(&report, plan, direction);
    cost->received_bytes += report.received_bytes;
    cost->min_bytes += report.min_bytes;
    cost->messages += report.received_messages;
    raise(&cost->max_rank_bytes, &cost->receiver, report.received_bytes, rank);
    raise(&cost->max_rank_sent, &cost->sender, report.sent_bytes, rank);
    cost->stages = max(cost->stages, report.stages);
    cost->most_peers = max(cost->most_peers, report.most_peers);
    cost->forwarded_bytes += report.forwarded_bytes;
    cost->direct_ns = max(cost->direct_ns, report.direct_ns);
    cost->balanced_ns = max(cost->balanced_ns, report.balanced_ns);
    summary->groups = max(summary->groups, report.groups);
    summary->balanced |= status == LIERNE_OK && strcmp(report.algorithm, "balanced") == 0;
    return status;
}
