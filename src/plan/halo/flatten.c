/* Swaps as one round: the roots, which planning the swaps found, are pairs already. Without swaps
 * there are none, and the identity is what it was. */
#include "plan/halo/halo.h"
#include "plan/sparse/star_forest.h"

static lierne_star_forest_spec forest_of(const lierne_halo_saved_spec *r, bool whole) {
    const lierne_halo_spec *halo = &r->spec;
    lierne_star_forest_spec spec = {.whole = whole, .keep_ghosts = halo->keep_ghosts};
    spec.pairs = (lierne_references_spec){.size = sizeof spec.pairs,
                                          .nowned = halo->nlocal,
                                          .nghosts = halo->nghost,
                                          .rank = r->root_rank,
                                          .row = r->root_row,
                                          .dtype = halo->dtype,
                                          .width = halo->width,
                                          .stride = halo->stride,
                                          .algorithm = LIERNE_GRAPH_DIRECT,
                                          .max_inflight = halo->max_inflight};
    return spec;
}

static lierne_status check(const lierne_halo_saved_spec *r, const void *out, int separate,
                           int rank) {
    if (!r || !out) {
        return LIERNE_FAIL(LIERNE_INVALID, "rank %d: %s", rank,
                           r ? "out is NULL" : "the plan is not one of swaps");
    }
    if (separate && r->spec.nswap == 0) {
        return LIERNE_FAIL(LIERNE_INVALID,
                           "rank %d: the plan has no swaps: its ghosts have no "
                           "owner, and cannot be separate",
                           rank);
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_create_flattened(lierne_plan **out, const lierne_plan *plan,
                                           int separate) {
    const lierne_halo_saved_spec *r = lierne_halo_saved_spec_of(plan);
    if (out) {
        *out = NULL;
    }
    if (!plan) {
        return LIERNE_FAIL(LIERNE_INVALID, "plan is NULL");
    }
    lierne_context *context = lierne_plan_context(plan);
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status = check(r, out, separate, context->rank);
    if (r && r->spec.nswap == 0) {
        return lierne_halo_plan(out, context, status, &r->spec);
    }
    /* A failure is told before anything of the spec is looked at. */
    const lierne_star_forest_spec spec =
        status == LIERNE_OK ? forest_of(r, !separate) : (lierne_star_forest_spec){0};
    return lierne_plan_star_forest(out, context, status, &spec);
}
