/* The halo planner: from swaps to a plan.
 *
 * Collective steps are in the same order whatever a rank finds: agree on what each rank can check
 * alone, compare the number of swaps, send labels through all swaps, count, agree again. So no rank
 * waits for one with a bad list or without memory. The label of a row is its owner and its number
 * there: labels of ghosts are their roots, which flattening and the lower bound of the report need.
 * Lists of both ends match if every swap brings as many labels as expected. */
#include "plan/halo/halo.h"
#include "lierne/grid.h"

#include <limits.h>
#include <string.h>

/* PLAN_DEPTH, with the same message on every rank: each extreme carries the lowest of its ranks. */
static lierne_status compare_depth(lierne_context *context, int nswap) {
    const int64_t shift = (int64_t)LIERNE_MAX_RANKS;
    int64_t extremes[2] = {nswap * shift + shift - 1 - context->rank,
                           (INT_MAX - nswap) * shift + shift - 1 - context->rank};
    LIERNE_TRY(lierne_context_allreduce_max(context, extremes, 2));
    int most = (int)(extremes[0] / shift), least = INT_MAX - (int)(extremes[1] / shift);
    if (most != least) {
        return LIERNE_FAIL(LIERNE_ERR_PLAN_DEPTH, "rank %d has %d swaps, but rank %d has %d",
                           (int)(shift - 1 - extremes[1] % shift), least,
                           (int)(shift - 1 - extremes[0] % shift), most);
    }
    return LIERNE_OK;
}

static void free_labels(const lierne_context *context, lierne_halo_labels *l) {
    lierne_mem_free(l->ghosts);
    lierne_context_free_message_memory(context, l->buffer); /* messages point into it */
}

static lierne_status find_roots(lierne_context *context, lierne_halo_saved_spec *r,
                                const lierne_halo_labels *l) {
    LIERNE_TRY(lierne_halo_propagate(context, &r->spec, l));
    for (int64_t i = 0; i < r->spec.nghost && r->spec.nswap > 0; i++) {
        r->root_rank[i] = (int32_t)l->ghosts[2 * i];
        r->root_row[i] = l->ghosts[2 * i + 1];
    }
    return LIERNE_OK;
}

static lierne_status fill_parts(lierne_plan_parts *parts, lierne_halo_saved_spec *r, int rank,
                                const int64_t *rows) {
    parts->kind = "halo";
    parts->dtype = r->spec.dtype;
    parts->max_inflight = r->spec.max_inflight;
    parts->group = r->spec.group;
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        "swaps";
    parts->in_place = true;
    parts->row = (lierne_plan_rows){r->spec.width, r->spec.stride, r->spec.stride};
    parts->rows = true;
    parts->waits = true;
    for (int d = 0; d < 2; d++) {
        parts->side[d].min_elements = rows[d] * r->spec.width;
    }
    return lierne_halo_routes(r, rank, parts);
}

static lierne_status prepare_parts(lierne_plan_parts *parts, lierne_halo_labels *l,
                                   const lierne_context *context, const lierne_halo_spec *spec) {
    lierne_halo_saved_spec *r;
    LIERNE_TRY(lierne_halo_check(spec, context));
    LIERNE_TRY(lierne_halo_saved_spec_create(&r, spec));
    parts->saved_spec = &r->base;
    size_t nghost = spec->nswap > 0 ? (size_t)spec->nghost : 0;
    LIERNE_TRY(lierne_alloc(&l->ghosts, nghost, l->n * sizeof *l->ghosts));
    return lierne_halo_reserve_labels(&l->buffer, &r->spec, l->n);
}

/* Compares what must be the same on every rank. An error or a difference is every rank's error. */
static lierne_status agree_on_halo(lierne_context *context, lierne_status status,
                                   const lierne_plan_parts *parts) {
    const lierne_halo_saved_spec *r = (const lierne_halo_saved_spec *)parts->saved_spec;
    lierne_plan_fields fields = {0};
    lierne_plan_fields_add(&fields, "planning of swaps", 0);
    if (status == LIERNE_OK) {
        lierne_spec_table_compare(&lierne_halo_table, &r->spec, &fields);
    }
    LIERNE_TRY(lierne_context_agree_all(context, status, fields.at, fields.count, NULL));
    return compare_depth(context, r->spec.nswap);
}

/* The collective steps, and then the routes. Returns this rank's own outcome. */
static lierne_status fill_together(lierne_context *context, lierne_plan_parts *parts,
                                   const lierne_halo_labels *l) {
    lierne_halo_saved_spec *r = (lierne_halo_saved_spec *)parts->saved_spec;
    int64_t rows[2] = {0};
    lierne_status status = find_roots(context, r, l);
    if (r->spec.nswap > 0 && context->dead == LIERNE_OK) {
        status = lierne_halo_count_rows(context, r, status, rows);
    }
    return status == LIERNE_OK ? fill_parts(parts, r, context->rank, rows) : status;
}

lierne_status lierne_halo_plan(lierne_plan **out, lierne_context *context, lierne_status status,
                               const lierne_halo_spec *spec) {
    const lierne_field field = {.name = "a new plan of swaps"};
    lierne_plan_parts parts = {0};
    lierne_halo_labels l = {.n = 2};
    if (status == LIERNE_OK) {
        status = prepare_parts(&parts, &l, context, spec);
    }
    status = agree_on_halo(context, status, &parts);
    bool together = status == LIERNE_OK;
    if (together) {
        status = fill_together(context, &parts, &l);
    }
    free_labels(context, &l);
    if (!together || context->dead != LIERNE_OK) {
        lierne_plan_parts_free(context, &parts);
        return status;
    }
    parts.name = spec->name;
    return lierne_plan_new(out, context, status, &parts, &field, 1);
}

lierne_status lierne_plan_create_halo(lierne_plan **out, lierne_context *context,
                                      const lierne_halo_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_halo_spec spec = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? lierne_spec_take_at(&spec, sizeof spec, given, context->rank)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    return lierne_halo_plan(out, context, status, &spec);
}

const lierne_halo_saved_spec *lierne_halo_saved_spec_of(const lierne_plan *plan) {
    return plan ? (const lierne_halo_saved_spec *)
                      lierne_plan_saved_spec(plan, lierne_halo_saved_spec_destroy)
                : NULL;
}

lierne_status lierne_plan_get_halo_spec(lierne_halo_spec *spec, const lierne_plan *plan) {
    LIERNE_PUBLIC_CALL();
    const lierne_halo_saved_spec *r = lierne_halo_saved_spec_of(plan);
    if (!r) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "plan is %s", plan ? "not one of swaps" : "NULL");
    }
    lierne_halo_spec own = r->spec;
    own.name = lierne_plan_get_name(plan);
    return lierne_spec_give(spec, &own, sizeof own, "spec");
}

lierne_status lierne_plan_get_halo_roots(int32_t *rank, int64_t *row, const lierne_plan *plan) {
    LIERNE_PUBLIC_CALL();
    const lierne_halo_saved_spec *r = lierne_halo_saved_spec_of(plan);
    if (!r) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "plan is %s", plan ? "not one of swaps" : "NULL");
    }
    if (r->spec.nghost > 0) {
        LIERNE_TRY(lierne_check_set(rank, "rank"));
        LIERNE_TRY(lierne_check_set(row, "row"));
    }
    if (r->spec.nghost > 0 && r->spec.nswap == 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the plan has %lld ghosts but no swaps that fill them",
                           (long long)r->spec.nghost);
    }
    if (r->spec.nghost > 0) {
        memcpy(rank, r->root_rank, (size_t)r->spec.nghost * sizeof *rank);
        memcpy(row, r->root_row, (size_t)r->spec.nghost * sizeof *row);
    }
    return LIERNE_OK;
}
