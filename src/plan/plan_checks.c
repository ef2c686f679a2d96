/* Whether a plan may be coalesced, changed or destroyed now. Apart from the plan itself, because
 * planners that change plans ask, and plan.c does before it destroys one. */
#include "plan/object.h"

const char *const lierne_direction_names[2] = {"forward", "adjoint"};

lierne_status lierne_plan_check_coalescible(const lierne_plan *plan, const char *which) {
    if (plan->grows) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: %s is of samples without a capacity (max_local_items in their "
                           "spec): it can only be executed by itself",
                           plan->context->rank, which);
    }
    return plan->outputs[LIERNE_DIRECTION_FORWARD] || plan->outputs[LIERNE_DIRECTION_ADJOINT]
               ? LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "rank %d: %s has a shared output (shared_output in its spec): it can "
                             "only be executed by itself",
                             plan->context->rank, which)
               : LIERNE_OK;
}

lierne_status lierne_plan_check_not_shared(const lierne_plan *plan, const char *which) {
    if (plan->parts.side[LIERNE_DIRECTION_FORWARD].varying) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the segments of %s may change (max_segments in its spec): it "
                           "can only be executed by itself or coalesced",
                           plan->context->rank, which);
    }
    return lierne_plan_check_coalescible(plan, which);
}

static lierne_status check_idle(const lierne_plan *plan, int held) {
    if (held > 0) {
        return LIERNE_FAIL(LIERNE_ERR_BUSY,
                           "rank %d: coalesced plans, deltas or runs (%d of them) hold the plan, "
                           "destroy them first",
                           plan->context->rank, held);
    }
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < plan->parts.max_inflight; i++) {
            if (lierne_execution_running(plan->requests[d][i].execution)) {
                return LIERNE_FAIL(LIERNE_ERR_BUSY,
                                   "rank %d: %s request %d of the plan is in flight",
                                   plan->context->rank, lierne_direction_names[d], i);
            }
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_check_idle(const lierne_plan *plan) {
    return check_idle(plan, plan->held);
}

static lierne_status check_changeable(const lierne_plan *plan, int held) {
    LIERNE_TRY(check_idle(plan, held));
    for (int d = 0; d < 2; d++) {
        if (lierne_execution_was_captured(plan->requests[d][0].execution)) {
            return LIERNE_FAIL(LIERNE_ERR_BUSY,
                               "rank %d: a %s call of the plan was captured into a graph, whose "
                               "replays keep its sizes: make another plan",
                               plan->context->rank, lierne_direction_names[d]);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_check_changeable(const lierne_plan *plan) {
    return check_changeable(plan, plan->held - plan->kept);
}

lierne_status lierne_plan_check_changeable_held(const lierne_plan *plan) {
    return check_changeable(plan, plan->held - 1);
}
