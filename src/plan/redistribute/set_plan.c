/* From the spec of a tensor set to a route, or to a plan: one route per direction. */
#include "plan/fields.h"
#include "plan/redistribute/set.h"

lierne_status lierne_route_create_set(lierne_route **out, int64_t *min_elements,
                                      const lierne_set_spec *given, int rank) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_set_spec spec;
    lierne_set set;
    int64_t least;
    LIERNE_TRY(lierne_check_set(out, "route"));
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given, "spec"));
    lierne_status status = lierne_set_create(&set, &spec, rank);
    if (status == LIERNE_OK && (rank < 0 || rank >= spec.src[0]->world)) {
        status = LIERNE_FAIL(LIERNE_ERR_INVALID, "rank is %d, must be in 0 to %d", rank,
                             spec.src[0]->world - 1);
    }
    if (status == LIERNE_OK) {
        status = lierne_set_route(out, &least, &set, LIERNE_SET_SRC);
    }
    lierne_set_destroy(&set);
    if (status == LIERNE_OK && min_elements) {
        *min_elements = least;
    }
    return status;
}

static lierne_status check_context(const lierne_set *set, const lierne_context *context) {
    int world = set->layouts.at[0].layout->world;
    if (world != context->members.world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the grid of src[0] has a world of %d ranks, the context one of %d: "
                           "they must be the same",
                           world, context->members.world);
    }
    for (size_t i = 0; i < set->layouts.count; i++) {
        const lierne_layout *l = set->layouts.at[i].layout;
        LIERNE_TRY(lierne_context_check_ranks(context, "a grid of the set", l->offset, l->nranks));
    }
    return LIERNE_OK;
}

/* The blocks of the output that must be written: the tensors of a class. */
static lierne_status own_class(lierne_plan_side *side, const lierne_set *set, size_t c, int to) {
    const lierne_set_class *members = &set->classes.at[c];
    const lierne_layout *layout = lierne_set_layout_of(set, (int64_t)c, to)->layout;
    lierne_plan_side one = {0};
    lierne_status status = lierne_plan_side_fill(&one, set->rank, layout, layout);
    for (size_t b = 0; b < one.owned.count && status == LIERNE_OK; b++) {
        for (int64_t i = 0; i < members->count && status == LIERNE_OK; i++) {
            lierne_block block = one.owned.at[b];
            block.offset += set->offsets[to][set->members[members->first + i]];
            status = LIERNE_VEC_PUSH(&side->owned, block);
        }
    }
    lierne_mem_free(one.owned.at);
    return status;
}

static lierne_status fill_side(lierne_plan_side *side, const lierne_set *set, int from) {
    side->naxes = 1;
    side->in[0] = set->elements[from];
    side->out[0] = set->elements[!from];
    for (size_t c = 0; c < set->classes.count; c++) {
        LIERNE_TRY(own_class(side, set, c, !from));
    }
    return lierne_set_route(&side->route, &side->min_elements, set, from);
}

static lierne_status fill_set_parts(lierne_plan_parts *parts, const lierne_set *set,
                                    const lierne_context *context, const lierne_set_spec *spec) {
    LIERNE_TRY(check_context(set, context));
    parts->kind = "set";
    parts->dtype = set->layouts.at[0].layout->dtype;
    parts->max_inflight = spec->max_inflight ? spec->max_inflight : 1;
    parts->group = spec->group;
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        "balanced";
    LIERNE_TRY(fill_side(&parts->side[LIERNE_DIRECTION_FORWARD], set, LIERNE_SET_SRC));
    return fill_side(&parts->side[LIERNE_DIRECTION_ADJOINT], set, LIERNE_SET_DST);
}

/* What ranks must give alike; the lists are to be freed when they have agreed. */
static lierne_status add_fields(lierne_plan_fields *fields, const lierne_set *set, int max_inflight,
                                int64_t *hashes[2]) {
    static const char *const names[] = {"hash of src", "hash of dst"};
    lierne_plan_fields_add(fields, "lierne_plan_create_set", 0);
    lierne_plan_fields_add(fields, "max_inflight", max_inflight);
    lierne_plan_fields_add(fields, "ntensors", set->n);
    lierne_plan_fields_add_dtype(fields, set->layouts.at[0].layout->dtype);
    for (int side = 0; side < 2; side++) {
        LIERNE_TRY(lierne_alloc_unset(&hashes[side], (size_t)set->n, sizeof(int64_t)));
        for (int64_t i = 0; i < set->n; i++) {
            hashes[side][i] = (int64_t)lierne_set_layout_of(set, set->class_of[i], side)->hash;
        }
        lierne_plan_fields_add_list(fields, names[side], LIERNE_ITEM_I64, hashes[side],
                                    (size_t)set->n);
    }
    return LIERNE_OK;
}

static lierne_status take_set_spec(lierne_set_spec *spec, const lierne_set_spec *given,
                                   lierne_set *set, int rank) {
    LIERNE_TRY(lierne_spec_take_at(spec, sizeof *spec, given, rank));
    LIERNE_TRY(lierne_plan_check_inflight(spec->max_inflight));
    return lierne_set_create(set, spec, rank);
}

lierne_status lierne_plan_create_set(lierne_plan **out, lierne_context *context,
                                     const lierne_set_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_set_spec spec = {0};
    lierne_set set = {0};
    lierne_plan_parts parts = {0};
    lierne_plan_fields fields = {0};
    int64_t *hashes[2] = {NULL, NULL};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? take_set_spec(&spec, given, &set, context->rank)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    if (status == LIERNE_OK) {
        status = fill_set_parts(&parts, &set, context, &spec);
    }
    if (status == LIERNE_OK) {
        status = add_fields(&fields, &set, parts.max_inflight, hashes);
    }
    parts.name = spec.name;
    status = lierne_plan_new(out, context, status, &parts, fields.at, fields.count);
    lierne_set_destroy(&set);
    lierne_mem_free(hashes[0]);
    lierne_mem_free(hashes[1]);
    return status;
}
