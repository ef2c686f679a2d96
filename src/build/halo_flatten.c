/* Swaps as one round: the roots, which planning the swaps found, are pairs already. Without swaps
 * there are none, and the identity is what it was. */
#include "build/forest.h"
#include "build/halo.h"

static lierne_forest_spec forest_of(const lierne_halo_spec *halo, const int32_t *rank,
                                    const int64_t *row, bool whole) {
    lierne_forest_spec spec = {.whole = whole, .keep_ghosts = halo->keep_ghosts};
    spec.pairs = (lierne_pairs_spec){.size = sizeof spec.pairs,
                                     .nowned = halo->nlocal,
                                     .nghosts = halo->nghost,
                                     .rank = rank,
                                     .row = row,
                                     .dtype = halo->dtype,
                                     .width = halo->width,
                                     .stride = halo->stride,
                                     .algorithm = LIERNE_GRAPH_DIRECT,
                                     .max_inflight = halo->max_inflight};
    return spec;
}

static lierne_status flatten(lierne_plan **out, const lierne_plan *plan,
                             const lierne_halo_spec *halo, lierne_status status, bool whole) {
    size_t ghosts = (size_t)halo->nghost;
    int32_t *rank = NULL;
    int64_t *row = NULL;
    if (status == LIERNE_OK) {
        status = lierne_alloc(&rank, ghosts, sizeof *rank);
    }
    if (status == LIERNE_OK) {
        status = lierne_alloc(&row, ghosts, sizeof *row);
    }
    if (status == LIERNE_OK) {
        status = lierne_plan_halo_roots(plan, rank, row);
    }
    lierne_forest_spec spec = forest_of(halo, rank, row, whole);
    status = lierne_plan_forest(out, lierne_plan_context(plan), status, &spec);
    lierne_mem_free(rank);
    lierne_mem_free(row);
    return status;
}

lierne_status lierne_plan_flatten(lierne_plan **out, const lierne_plan *plan, int separate) {
    const lierne_halo_recipe *r = lierne_halo_recipe_of(plan);
    lierne_status status = LIERNE_OK;
    if (out) {
        *out = NULL;
    }
    if (!r) {
        return LIERNE_FAIL(LIERNE_INVALID, "plan is NULL or not one of swaps");
    }
    lierne_context *context = lierne_plan_context(plan);
    LIERNE_TRY(lierne_context_alive(context));
    if (!out || (separate && r->spec.nswap == 0)) {
        status = LIERNE_FAIL(LIERNE_INVALID, out ? "the plan has no swaps: its ghosts cannot be "
                                                   "separate, having no owner"
                                                 : "out is NULL");
    }
    return r->spec.nswap > 0 ? flatten(out, plan, &r->spec, status, !separate)
                             : lierne_halo_plan(out, context, status, &r->spec);
}
