/* Swaps as one round: the owners of all ghosts, which planning the swaps found, are references.
 * Without swaps there are none, and the plan stays the identity. */
#include "plan/halo/halo.h"

static lierne_references_spec references_of(const lierne_halo_saved_spec *saved, bool separate,
                                            const char *name) {
    const lierne_halo_spec *halo = &saved->spec;
    return (lierne_references_spec){.size = sizeof(lierne_references_spec),
                                    .nowned = halo->nlocal,
                                    .nghosts = halo->nghost,
                                    .rank = saved->root_rank,
                                    .row = saved->root_row,
                                    .dtype = halo->dtype,
                                    .width = halo->width,
                                    .stride = halo->stride,
                                    .algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT,
                                    .combined = !separate,
                                    .keep_ghosts = !separate && halo->keep_ghosts,
                                    .max_inflight = halo->max_inflight,
                                    .group = halo->group,
                                    .name = name};
}

static lierne_status check_outputs(const lierne_halo_saved_spec *saved, const void *out,
                                   int separate, int rank) {
    if (!saved || !out) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s", rank,
                           saved ? "out is NULL" : "the plan is not one of swaps");
    }
    if (separate && saved->spec.nswap == 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the plan has no swaps: its ghosts have no owner, and cannot "
                           "have a buffer of their own",
                           rank);
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_create_flattened(lierne_plan **out, const lierne_plan *plan,
                                           int separate) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    const lierne_halo_saved_spec *saved = lierne_halo_saved_spec_of(plan);
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    lierne_context *context = lierne_plan_context(plan);
    LIERNE_TRY(lierne_context_alive(context));
    const lierne_field fields[] = {{.name = "lierne_plan_create_flattened"},
                                   {.name = "plan", .value = lierne_plan_get_number(plan)},
                                   {.name = "separate", .value = separate != 0}};
    lierne_status status = check_outputs(saved, out, separate, context->rank);
    LIERNE_TRY(lierne_context_agree_all(context, status, fields, 3, NULL));
    if (saved->spec.nswap == 0) {
        lierne_halo_spec same = saved->spec;
        same.name = lierne_plan_get_name(plan);
        return lierne_plan_create_halo(out, context, &same);
    }
    const lierne_references_spec spec = references_of(saved, separate, lierne_plan_get_name(plan));
    return lierne_plan_create_references(out, context, &spec);
}
