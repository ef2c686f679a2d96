/* New counts for a plan with variable rows: they travel by the plan of one number per sample, and
 * every rank measures its routes anew. */
#include "plan/bridge/bridge.h"

#include <string.h>

static lierne_status check_rows(const lierne_plan *plan, const lierne_bridge_counts *c,
                                const int64_t *rows) {
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    for (int64_t k = 0; k < c->samples[0]; k++) {
        if (!rows || rows[k] < 0 || rows[k] > c->most) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d: rows of sample %lld are %lld, must be in 0 "
                               "to %lld",
                               lierne_plan_context(plan)->rank, (long long)k,
                               rows ? (long long)rows[k] : -1LL, (long long)c->most);
        }
    }
    return LIERNE_OK;
}

/* Gets the counts of the samples that this rank has at the destination. */
static lierne_status exchange(const lierne_context *context, const lierne_bridge_counts *c) {
    LIERNE_TRY(lierne_plan_forward(c->exchange, c->rows[1], c->rows[0], context->own_stream));
    return lierne_plan_drain(c->exchange);
}

lierne_status lierne_plan_update_counts(lierne_plan *plan, const int64_t *rows) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    lierne_context *context = lierne_plan_context(plan);
    lierne_saved_spec *saved = lierne_plan_saved_spec(plan, lierne_bridge_saved_spec_destroy);
    lierne_bridge_counts *c = saved ? ((lierne_bridge_saved_spec *)saved)->variable : NULL;
    LIERNE_TRY(lierne_context_alive(context));
    const lierne_field fields[] = {{.name = "lierne_plan_update_counts"},
                                   {.name = "plan", .value = lierne_plan_get_number(plan)}};
    lierne_status status = c ? check_rows(plan, c, rows)
                             : LIERNE_FAIL(LIERNE_ERR_INVALID,
                                           "rank %d: the plan has no variable rows", context->rank);
    LIERNE_TRY(lierne_context_agree(context, status, fields, 2, NULL));
    if (rows) {
        memcpy(c->rows[0], rows, (size_t)c->samples[0] * sizeof *rows);
    }
    LIERNE_TRY(exchange(context, c));
    lierne_bridge_counts_measure(c, lierne_plan_side_of(plan, LIERNE_DIRECTION_FORWARD),
                                 lierne_plan_side_of(plan, LIERNE_DIRECTION_ADJOINT));
    return lierne_plan_refresh(plan);
}
