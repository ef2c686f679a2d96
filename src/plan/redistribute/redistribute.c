/* From a spec of layouts to a plan: two routes, which each rank plans on its own. */
#include "plan/redistribute/redistribute.h"

#include "layout/dense_halo.h"
#include "plan/plan.h"
#include "plan/redistribute/redistribute_check.h"
#include "plan/redistribute/varying_plan.h"
#include "plan/spec_table.h"

static const lierne_spec_entry numbers[] = {
    LIERNE_SPEC_NUMBER(lierne_redistribute_spec, max_inflight, INFLIGHT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_redistribute_spec, routing, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_redistribute_spec, shared_output, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_redistribute_spec, max_segments, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_redistribute_spec, max_rows, I64, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_redistribute_spec, max_peers, INT, COMPARED),
    LIERNE_SPEC_NUMBER(lierne_redistribute_spec, accumulate, INT, COMPARED),
};
static const lierne_spec_table table = LIERNE_SPEC_TABLE(numbers);

/* The layouts of both directions. */
typedef struct layouts {
    const lierne_layout *src;
    const lierne_layout *dst;
    const lierne_layout *adjoint_src;
    const lierne_layout *adjoint_dst;
    lierne_layout derived;        /* adjoint_dst where none was given; borrows from src */
    lierne_layout source;         /* src, of which only cores are read; borrows from src */
    lierne_layout cores;          /* adjoint_src where dst has a halo; borrows from dst */
    const lierne_layout *margins; /* dst where it has a halo, or NULL */
} layouts;

/* What a plan keeps to plan again: its layouts, those of the adjoint NULL where they follow. */
typedef struct saved_layouts {
    lierne_saved_spec base;
    lierne_redistribute_spec spec;
    lierne_layout *own[4];
    lierne_varying_plan *varying; /* where segments change */
} saved_layouts;

static lierne_layout without_partial(const lierne_layout *layout) {
    lierne_layout other = lierne_layout_as_source(layout);
    for (int d = 0; d < other.ndims; d++) {
        if (other.placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            other.placements[d].kind = LIERNE_PLACEMENT_REPLICATE;
        }
    }
    other.partials = 1;
    return other;
}

static lierne_status take_spec(lierne_redistribute_spec *spec,
                               const lierne_redistribute_spec *given) {
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    if (!spec->src || !spec->dst) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", spec->src ? "dst" : "src");
    }
    if (!spec->adjoint_src != !spec->adjoint_dst) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s is NULL: give both layouts of the adjoint, or neither",
                           spec->adjoint_src ? "adjoint_dst" : "adjoint_src");
    }
    if (spec->max_segments < 0 || spec->max_rows < 0 ||
        (spec->max_segments > 0) != (spec->max_rows > 0)) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "max_segments is %lld and max_rows %lld: both must be above 0, or both 0",
            (long long)spec->max_segments, (long long)spec->max_rows);
    }
    LIERNE_TRY(lierne_plan_check_routing(spec->routing));
    LIERNE_TRY(lierne_plan_check_peers(spec->max_peers, spec->shared_output));
    LIERNE_TRY(lierne_redistribute_check_halos(spec));
    LIERNE_TRY(lierne_redistribute_check_survivors(spec));
    return lierne_plan_check_inflight(spec->max_inflight);
}

static void take_layouts(layouts *l, const lierne_redistribute_spec *spec) {
    l->source = lierne_layout_as_source(spec->src);
    l->src = &l->source;
    l->dst = spec->dst;
    l->adjoint_src = spec->adjoint_src;
    l->adjoint_dst = spec->adjoint_dst;
    if (!spec->adjoint_src) {
        l->derived = without_partial(spec->src);
        l->adjoint_src = spec->dst;
        l->adjoint_dst = &l->derived;
    }
    l->margins = spec->dst->halos ? spec->dst : NULL;
    if (l->margins) {
        l->cores = lierne_layout_as_source(spec->dst);
        l->adjoint_src = &l->cores;
    }
}

static lierne_status check_grid(const lierne_context *context, const char *name,
                                const lierne_layout *layout) {
    for (int r = 0; layout->place_of && r < layout->world; r++) {
        if (layout->place_of[r] >= 0) {
            LIERNE_TRY(lierne_context_check_ranks(context, name, r, 1));
        }
    }
    return layout->ranks || layout->place_of /* the context's own */
               ? LIERNE_OK
               : lierne_context_check_ranks(context, name, layout->offset, layout->nranks);
}

static lierne_status check_layouts(const layouts *l, const lierne_context *context) {
    LIERNE_TRY(lierne_redistribute_check_pair(l->src, "src", l->dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_source(l->src, "src", l->dst, "dst"));
    LIERNE_TRY(lierne_redistribute_check_tensor(l->src, "src", l->adjoint_src, "adjoint_src"));
    LIERNE_TRY(lierne_redistribute_check_pair(l->src, "src", l->adjoint_dst, "adjoint_dst"));
    if (l->src->world != context->members.world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the grid of src has a world of %d ranks, the context one of %d: they "
                           "must be the same",
                           l->src->world, context->members.world);
    }
    LIERNE_TRY(check_grid(context, "the grid of src", l->src));
    LIERNE_TRY(check_grid(context, "the grid of dst", l->dst));
    LIERNE_TRY(check_grid(context, "the grid of adjoint_src", l->adjoint_src));
    return check_grid(context, "the grid of adjoint_dst", l->adjoint_dst);
}

static lierne_status describe(lierne_plan_parts *parts, layouts *l, const lierne_context *context,
                              const lierne_redistribute_spec *spec) {
    take_layouts(l, spec);
    LIERNE_TRY(check_layouts(l, context));
    LIERNE_TRY(
        lierne_plan_check_sharing(context, spec->shared_output, spec->routing, spec->max_inflight));
    parts->kind = "redistribute";
    parts->dtype = l->src->dtype;
    parts->max_inflight = spec->max_inflight ? spec->max_inflight : 1;
    parts->group = spec->group;
    parts->accumulate = spec->accumulate != 0;
    parts->in_place = l->margins && lierne_has_cores(l->src) &&
                      lierne_layout_hash(l->src) == lierne_layout_hash(l->dst);
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        "direct";
    lierne_plan_find_rows(parts,
                          (const lierne_layout *[]){l->src, l->dst, l->adjoint_src, l->adjoint_dst},
                          4);
    return LIERNE_OK;
}

/* The side of an adjoint that does not exist. */
static lierne_status fill_without_route(lierne_plan_side *side, int rank, const layouts *l) {
    int64_t in, out;
    LIERNE_TRY(lierne_plan_side_fill(side, rank, l->adjoint_src, l->adjoint_dst));
    LIERNE_TRY(lierne_layout_get_elements(&in, NULL, l->adjoint_src, rank));
    LIERNE_TRY(lierne_layout_get_elements(&out, NULL, l->adjoint_dst, rank));
    side->owned.count = 0;
    return lierne_route_create(&side->route, rank, in, out);
}

static lierne_status plan_sides(lierne_plan_parts *parts, layouts *l, const lierne_context *context,
                                const lierne_redistribute_spec *spec) {
    LIERNE_TRY(describe(parts, l, context, spec));
    bool direct = l->margins || l->src->halos || l->src->place_of;
    lierne_side_rules rules = {.routing = direct ? LIERNE_ROUTING_DIRECT : spec->routing,
                               .shared = (spec->shared_output & LIERNE_SHARING_FORWARD) != 0,
                               .max_peers = spec->max_peers};
    LIERNE_TRY(lierne_plan_side_redistribute(&parts->side[LIERNE_DIRECTION_FORWARD], context,
                                             l->src, l->dst, &rules));
    rules.shared = (spec->shared_output & LIERNE_SHARING_ADJOINT) != 0;
    rules.margins = l->margins;
    if (l->margins && lierne_dtype_is_opaque(parts->dtype)) {
        parts->no_adjoint = "margins of an opaque dtype cannot be summed";
        return fill_without_route(&parts->side[LIERNE_DIRECTION_ADJOINT], context->rank, l);
    }
    return lierne_plan_side_redistribute(&parts->side[LIERNE_DIRECTION_ADJOINT], context,
                                         l->adjoint_src, l->adjoint_dst, &rules);
}

static void destroy_saved(lierne_saved_spec *base) {
    saved_layouts *saved = (saved_layouts *)base;
    for (int i = 0; i < 4; i++) {
        lierne_layout_destroy(saved->own[i]);
    }
    lierne_varying_plan_destroy(saved->varying);
    lierne_mem_free(saved);
}

static lierne_status reshape(const lierne_saved_spec *base, lierne_context *context,
                             const int64_t *shape, lierne_plan_parts *parts);
static lierne_status divide_axis(const lierne_saved_spec *base, lierne_context *context,
                                 const lierne_documents *documents, lierne_plan_parts *parts);
static lierne_status recreate(const lierne_saved_spec *base, lierne_plan **out,
                              lierne_context *context, const lierne_recreate_spec *grids,
                              const char *name);

/* Saves copies of a spec's layouts with this shape; NULL: their own. */
static lierne_status save(saved_layouts **out, const lierne_redistribute_spec *spec,
                          const int64_t *shape) {
    const lierne_layout *given[4] = {spec->src, spec->dst, spec->adjoint_src, spec->adjoint_dst};
    saved_layouts *saved;
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(lierne_alloc(&saved, 1, sizeof *saved));
    for (int i = 0; i < 4 && status == LIERNE_OK; i++) {
        if (given[i]) {
            status =
                lierne_layout_reshape(&saved->own[i], given[i], shape ? shape : given[i]->shape);
        }
    }
    if (status != LIERNE_OK) {
        destroy_saved(&saved->base);
        return status;
    }
    saved->base = (lierne_saved_spec){.free = destroy_saved,
                                      .reshape = reshape,
                                      .divide = divide_axis,
                                      .recreate = recreate};
    saved->spec = (lierne_redistribute_spec){.size = sizeof saved->spec,
                                             .src = saved->own[0],
                                             .dst = saved->own[1],
                                             .adjoint_src = saved->own[2],
                                             .adjoint_dst = saved->own[3],
                                             .max_inflight = spec->max_inflight,
                                             .routing = spec->routing,
                                             .shared_output = spec->shared_output,
                                             .max_peers = spec->max_peers,
                                             .accumulate = spec->accumulate};
    *out = saved;
    return LIERNE_OK;
}

static lierne_status reshape(const lierne_saved_spec *base, lierne_context *context,
                             const int64_t *shape, lierne_plan_parts *parts) {
    saved_layouts *next;
    layouts l;
    if (((const saved_layouts *)base)->varying) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "the plan has max_segments: only its segments can be updated");
    }
    LIERNE_TRY(save(&next, &((const saved_layouts *)base)->spec, shape));
    parts->saved_spec = &next->base;
    return plan_sides(parts, &l, context, &next->spec);
}

static bool has_documents(const lierne_layout *layout, int axis) {
    const lierne_dense_halo *h =
        axis >= 0 && axis < layout->naxes ? lierne_halo_of(layout, axis) : NULL;
    return h && h->nsegments > 0;
}

static lierne_status divide_axis(const lierne_saved_spec *base, lierne_context *context,
                                 const lierne_documents *documents, lierne_plan_parts *parts) {
    const lierne_redistribute_spec *spec = &((const saved_layouts *)base)->spec;
    int axis = documents->axis;
    saved_layouts *next;
    layouts l;
    if (!has_documents(spec->src, axis) && !has_documents(spec->dst, axis)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: axis is %d, must be one whose halo has segments",
                           context->rank, axis);
    }
    LIERNE_TRY(save(&next, spec, NULL));
    parts->saved_spec = &next->base;
    for (int i = 0; i < 4; i++) {
        if (next->own[i] && has_documents(next->own[i], axis)) {
            LIERNE_TRY(
                lierne_halo_set_documents(next->own[i], axis, documents->n, documents->segments));
        }
    }
    return plan_sides(parts, &l, context, &next->spec);
}

static lierne_status reject_varying(const char *what) {
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "max_segments is above 0: %s", what);
}

static lierne_status check_varying(const lierne_redistribute_spec *spec) {
    if (!spec->src->packed && !spec->dst->packed) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "max_segments is %lld, but neither src nor dst has a packing",
                           (long long)spec->max_segments);
    }
    return spec->adjoint_src ? reject_varying("adjoint_src and adjoint_dst must be NULL")
           : spec->routing == LIERNE_ROUTING_BALANCED
               ? reject_varying("routing may not be BALANCED")
           : spec->shared_output ? reject_varying("shared_output must be 0")
                                 : LIERNE_OK;
}

static lierne_status plan_varying(lierne_plan_parts *parts, layouts *l,
                                  const lierne_context *context,
                                  const lierne_redistribute_spec *spec) {
    const lierne_varying_spec varying = {.rank = context->rank,
                                         .layouts = {spec->src, spec->dst},
                                         .max_segments = spec->max_segments,
                                         .max_rows = spec->max_rows,
                                         .max_peers = spec->max_peers};
    LIERNE_TRY(describe(parts, l, context, spec));
    LIERNE_TRY(check_varying(spec));
    return lierne_varying_plan_create(&((saved_layouts *)parts->saved_spec)->varying, parts,
                                      context, &varying);
}

static lierne_status plan_and_save(lierne_plan_parts *parts, layouts *l,
                                   const lierne_context *context,
                                   const lierne_redistribute_spec *spec) {
    saved_layouts *saved;
    LIERNE_TRY(save(&saved, spec, NULL));
    parts->saved_spec = &saved->base;
    return spec->max_segments > 0 ? plan_varying(parts, l, context, spec)
                                  : plan_sides(parts, l, context, spec);
}

/* Collective. status: whether this rank has a spec. */
static lierne_status create(lierne_plan **out, lierne_context *context, lierne_status status,
                            const lierne_redistribute_spec *spec) {
    layouts l;
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    if (status == LIERNE_OK) {
        status = plan_and_save(&parts, &l, context, spec);
    }
    if (status == LIERNE_OK) {
        lierne_plan_fields_add(&fields, "lierne_plan_create_redistribute", 0);
        lierne_spec_table_compare(&table, spec, &fields);
        lierne_plan_fields_add_tensor(&fields, l.src);
        lierne_plan_fields_add_layout(&fields, "src", l.src);
        lierne_plan_fields_add_list(&fields, "src.survivors", LIERNE_ITEM_I32, l.src->place_of,
                                    (size_t)l.src->world);
        lierne_plan_fields_add_layout(&fields, "dst", l.dst);
        lierne_plan_fields_add_layout(&fields, "adjoint_src", l.adjoint_src);
        lierne_plan_fields_add_layout(&fields, "adjoint_dst", l.adjoint_dst);
    }
    parts.name = spec->name;
    return lierne_plan_new(out, context, status, &parts, fields.at, fields.count);
}

lierne_status lierne_plan_create_redistribute(lierne_plan **out, lierne_context *context,
                                              const lierne_redistribute_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_redistribute_spec spec = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? take_spec(&spec, given)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    return create(out, context, status, &spec);
}

/* The saved layouts on other grids; those of the adjoint lie on the grids of dst and src. */
static lierne_status regrid(lierne_layout *own[4], const saved_layouts *saved,
                            const lierne_recreate_spec *grids) {
    static const char *const names[4] = {"src", "dst", "adjoint_src", "adjoint_dst"};
    if (saved->varying) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "the plan has max_segments, and its packings divide segments among its "
                           "ranks: make a new plan");
    }
    for (int i = 0; i < 4; i++) {
        bool at_src = i == 0 || i == 3;
        if (saved->own[i]) {
            LIERNE_TRY(lierne_layout_regrid(&own[i], saved->own[i],
                                            at_src ? grids->src : grids->dst,
                                            at_src ? grids->src_view : grids->dst_view, names[i]));
        }
    }
    return LIERNE_OK;
}

static lierne_status recreate(const lierne_saved_spec *base, lierne_plan **out,
                              lierne_context *context, const lierne_recreate_spec *grids,
                              const char *name) {
    const saved_layouts *saved = (const saved_layouts *)base;
    lierne_layout *own[4] = {NULL};
    lierne_redistribute_spec spec = saved->spec;
    lierne_status status = regrid(own, saved, grids);
    spec.src = own[0];
    spec.dst = own[1];
    spec.adjoint_src = own[2];
    spec.adjoint_dst = own[3];
    spec.group = grids->group;
    spec.name = name;
    status = create(out, context, status, &spec);
    for (int i = 0; i < 4; i++) {
        lierne_layout_destroy(own[i]);
    }
    return status;
}
