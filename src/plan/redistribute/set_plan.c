/* From the spec of a tensor set to a route, or to a plan: one route per direction. */
#include "layout/dense_halo.h"
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

lierne_status lierne_set_check(const lierne_set_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_set_spec spec;
    lierne_set set;
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given, "spec"));
    lierne_status status = lierne_set_describe(&set, &spec, 0);
    lierne_set_destroy(&set);
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

/* The blocks of the output that must be written: a tensor. like: those of a tensor of each layout,
 * as far as they are known. */
static lierne_status own_tensor(lierne_plan_side *side, lierne_plan_side *like,
                                const lierne_set *set, int64_t tensor, int to) {
    const lierne_layout *given = lierne_set_layout_of(set, tensor, to)->layout;
    const lierne_layout source = lierne_layout_as_source(given),
                        *layout = to == LIERNE_SET_SRC ? &source : given;
    lierne_plan_side *one = &like[set->layout_of[to][tensor]];
    LIERNE_TRY(one->naxes ? LIERNE_OK : lierne_plan_side_fill(one, set->rank, layout, layout));
    for (size_t b = 0; b < one->owned.count; b++) {
        lierne_block block = one->owned.at[b];
        block.offset += set->offsets[to][tensor];
        LIERNE_TRY(LIERNE_VEC_PUSH(&side->owned, block));
    }
    return LIERNE_OK;
}

static lierne_status own_tensors(lierne_plan_side *side, const lierne_set *set, int to) {
    lierne_plan_side *like;
    LIERNE_TRY(lierne_alloc(&like, set->layouts.count, sizeof *like));
    lierne_status status = LIERNE_OK;
    for (int64_t i = 0; i < set->n[to] && status == LIERNE_OK; i++) {
        status = own_tensor(side, like, set, i, to);
    }
    for (size_t l = 0; l < set->layouts.count; l++) {
        lierne_mem_free(like[l].owned.at);
    }
    lierne_mem_free(like);
    return status;
}

/* Whether a tensor has a halo and margins of an opaque dtype, which have no gradient. */
static bool sums_opaque(const lierne_set *set) {
    for (int64_t i = 0; i < set->n[LIERNE_SET_DST]; i++) {
        const lierne_layout *dst = lierne_set_layout_of(set, i, LIERNE_SET_DST)->layout;
        if (dst->halos && lierne_dtype_is_opaque(dst->dtype)) {
            return true;
        }
    }
    return false;
}

/* Whether every tensor is where it was, so that out may be in and halos alone are written. */
static bool stays_in_place(const lierne_set *set) {
    bool halos = false;
    for (int64_t i = 0; i < set->nmoves; i++) {
        const lierne_set_layout *src = lierne_set_layout_of(set, i, LIERNE_SET_SRC);
        if (set->layout_of[LIERNE_SET_SRC][i] != set->layout_of[LIERNE_SET_DST][i] ||
            set->offsets[LIERNE_SET_SRC][i] != set->offsets[LIERNE_SET_DST][i]) {
            return false;
        }
        halos = halos || src->layout->halos;
    }
    return halos;
}

static lierne_status fill_side(lierne_plan_side *side, const lierne_set *set, int from,
                               bool no_adjoint) {
    side->naxes = 1;
    side->in[0] = set->elements[from];
    side->out[0] = set->elements[!from];
    if (from == LIERNE_SET_DST && no_adjoint) {
        return lierne_route_create(&side->route, set->rank, side->in[0], side->out[0]);
    }
    LIERNE_TRY(own_tensors(side, set, !from));
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
    parts->no_adjoint = set->repeats       ? "an element of a source is in several boxes"
                        : sums_opaque(set) ? "margins of an opaque dtype cannot be summed"
                                           : NULL;
    parts->in_place = !set->boxes && stays_in_place(set);
    for (int from = 0; from < 2; from++) {
        LIERNE_TRY(fill_side(&parts->side[from], set, from, parts->no_adjoint != NULL));
    }
    return LIERNE_OK;
}

/* The lists that ranks compare: a hash of each layout and box. */
enum { LISTS = 3 };

static lierne_status add_hashes(lierne_plan_fields *fields, const lierne_set *set, int side,
                                int64_t **hashes) {
    int64_t n = set->n[side];
    LIERNE_TRY(lierne_alloc_unset(hashes, (size_t)n, sizeof(int64_t)));
    for (int64_t i = 0; i < n; i++) {
        (*hashes)[i] = (int64_t)lierne_set_layout_of(set, i, side)->hash;
    }
    lierne_plan_fields_add_list(fields, side ? "hash of dst" : "hash of src", LIERNE_ITEM_I64,
                                *hashes, (size_t)n);
    return LIERNE_OK;
}

static lierne_status add_boxes(lierne_plan_fields *fields, const lierne_set_spec *spec,
                               int64_t **hashes) {
    LIERNE_TRY(lierne_alloc_unset(hashes, (size_t)spec->nboxes, sizeof(int64_t)));
    for (int64_t i = 0; i < spec->nboxes; i++) {
        const int64_t tensors[2] = {spec->boxes[i].src, spec->boxes[i].dst};
        (*hashes)[i] =
            (int64_t)lierne_set_hash_box(lierne_hash(0, tensors, sizeof tensors), spec, i);
    }
    lierne_plan_fields_add_list(fields, "hash of boxes", LIERNE_ITEM_I64, *hashes,
                                (size_t)spec->nboxes);
    return LIERNE_OK;
}

/* What ranks must give alike; the lists are to be freed when they have agreed. */
static lierne_status add_fields(lierne_plan_fields *fields, const lierne_set *set,
                                const lierne_set_spec *spec, int max_inflight,
                                int64_t *hashes[LISTS]) {
    lierne_plan_fields_add(fields, "lierne_plan_create_set", 0);
    lierne_plan_fields_add(fields, "max_inflight", max_inflight);
    lierne_plan_fields_add(fields, "ntensors", set->n[LIERNE_SET_SRC]);
    lierne_plan_fields_add(fields, "nboxes", spec->boxes ? spec->nboxes : 0);
    lierne_plan_fields_add(fields, "ndst", set->n[LIERNE_SET_DST]);
    lierne_plan_fields_add_dtype(fields, set->layouts.at[0].layout->dtype);
    LIERNE_TRY(add_hashes(fields, set, LIERNE_SET_SRC, &hashes[0]));
    LIERNE_TRY(add_hashes(fields, set, LIERNE_SET_DST, &hashes[1]));
    return spec->boxes ? add_boxes(fields, spec, &hashes[2]) : LIERNE_OK;
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
    int64_t *hashes[LISTS] = {NULL};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? take_set_spec(&spec, given, &set, context->rank)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    if (status == LIERNE_OK) {
        status = fill_set_parts(&parts, &set, context, &spec);
    }
    if (status == LIERNE_OK) {
        status = add_fields(&fields, &set, &spec, parts.max_inflight, hashes);
    }
    parts.name = spec.name;
    status = lierne_plan_new(out, context, status, &parts, fields.at, fields.count);
    lierne_set_destroy(&set);
    for (int i = 0; i < LISTS; i++) {
        lierne_mem_free(hashes[i]);
    }
    return status;
}
