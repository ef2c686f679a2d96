/* A value has no natural division into contributions, so nothing is moved into a PARTIAL layout. */
#include "plan/redistribute/redistribute_check.h"

#include "layout/dense_halo.h"
#include "layout/packed.h"

/* Two microbatches may have as many tokens. A layout without a packing fits any segments. */
static lierne_status check_segments(const lierne_layout *a, const char *a_name,
                                    const lierne_layout *b, const char *b_name) {
    const lierne_packed *p = a->packed, *q = b->packed;
    if (!p || !q) {
        return LIERNE_OK;
    }
    if (p->axis != q->axis || p->n != q->n) {
        bool axis = p->axis != q->axis;
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s is %lld in %s and %lld in %s: both sides must have the same "
                           "segments",
                           axis ? "packed_axis" : "nsegments", (long long)(axis ? p->axis : p->n),
                           a_name, (long long)(axis ? q->axis : q->n), b_name);
    }
    for (int64_t i = 0; i <= p->n; i++) {
        if (p->cu[i] != q->cu[i]) {
            return LIERNE_FAIL(
                LIERNE_ERR_INVALID,
                "cu_seqlens[%lld] is %lld in %s and %lld in %s: both sides must have "
                "the same segments",
                (long long)i, (long long)p->cu[i], a_name, (long long)q->cu[i], b_name);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_redistribute_check_tensor(const lierne_layout *a, const char *a_name,
                                               const lierne_layout *b, const char *b_name) {
    if (a->naxes != b->naxes) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s has %d axes, %s has %d: they must be of one shape", a_name, a->naxes,
                           b_name, b->naxes);
    }
    for (int axis = 0; axis < a->naxes; axis++) {
        if (a->shape[axis] != b->shape[axis]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "axis %d has size %lld in %s and %lld in %s: they must be of one "
                               "shape",
                               axis, (long long)a->shape[axis], a_name, (long long)b->shape[axis],
                               b_name);
        }
    }
    if (a->dtype != b->dtype) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s has dtype %s, %s has %s: they must be the same",
                           a_name, lierne_dtype_name(a->dtype), b_name,
                           lierne_dtype_name(b->dtype));
    }
    if (a->world != b->world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the grid of %s has a world of %d ranks, that of %s one of %d: they "
                           "must be the same",
                           a_name, a->world, b_name, b->world);
    }
    return check_segments(a, a_name, b, b_name);
}

lierne_status lierne_redistribute_check_pair(const lierne_layout *src, const char *src_name,
                                             const lierne_layout *dst, const char *dst_name) {
    LIERNE_TRY(lierne_redistribute_check_tensor(src, src_name, dst, dst_name));
    for (int d = 0; d < dst->ndims; d++) {
        if (dst->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                               "dim %d of %s is PARTIAL: a destination must be REPLICATE, a shard "
                               "or AT",
                               d, dst_name);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_redistribute_check_source(const lierne_layout *src, const char *src_name,
                                               const lierne_layout *dst, const char *dst_name) {
    bool halos = src->halos || dst->halos;
    LIERNE_TRY(lierne_halos_check_source(src, src_name));
    if (halos && (src->packed || dst->packed)) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "axis %d of %s is packed and %s has a halo: a packed axis has none",
                           src->packed ? src->packed->axis : dst->packed->axis,
                           src->packed ? src_name : dst_name, src->halos ? src_name : dst_name);
    }
    return LIERNE_OK;
}

lierne_status lierne_redistribute_check_plain(const lierne_layout *layout, const char *name) {
    return layout->halos
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "%s has a halo: it must have none here", name)
               : LIERNE_OK;
}

lierne_status lierne_redistribute_check_halos(const lierne_redistribute_spec *spec) {
    bool halos = spec->src->halos || spec->dst->halos;
    if (spec->accumulate && !lierne_stores_margins(spec->dst)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "accumulate is %d, must be 0 unless dst has margin storage",
                           spec->accumulate);
    }
    if (spec->adjoint_src) {
        LIERNE_TRY(lierne_redistribute_check_plain(spec->adjoint_src, "adjoint_src"));
        LIERNE_TRY(lierne_redistribute_check_plain(spec->adjoint_dst, "adjoint_dst"));
    }
    const char *what = spec->adjoint_src ? "adjoint_src and adjoint_dst must be NULL"
                       : spec->routing == LIERNE_ROUTING_BALANCED ? "routing may not be BALANCED"
                       : spec->shared_output                      ? "shared_output must be 0"
                       : spec->max_segments                       ? "max_segments must be 0"
                                                                  : NULL;
    return halos && what ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "%s has a halo: %s",
                                       spec->dst->halos ? "dst" : "src", what)
                         : LIERNE_OK;
}

lierne_status lierne_redistribute_check_complete(const lierne_layout *layout, const char *name) {
    return layout->place_of
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "%s is a layout of survivors: it can only be src of a redistribution",
                             name)
               : LIERNE_OK;
}

lierne_status lierne_redistribute_check_survivors(const lierne_redistribute_spec *spec) {
    const char *what = spec->adjoint_src ? "adjoint_src and adjoint_dst must be NULL"
                       : spec->routing == LIERNE_ROUTING_BALANCED ? "routing may not be BALANCED"
                       : spec->shared_output                      ? "shared_output must be 0"
                       : spec->max_segments                       ? "max_segments must be 0"
                       : spec->max_peers                          ? "max_peers must be 0"
                       : spec->dst->halos                         ? "dst may not have a halo"
                                                                  : NULL;
    LIERNE_TRY(lierne_redistribute_check_complete(spec->dst, "dst"));
    if (spec->adjoint_src) {
        LIERNE_TRY(lierne_redistribute_check_complete(spec->adjoint_src, "adjoint_src"));
        LIERNE_TRY(lierne_redistribute_check_complete(spec->adjoint_dst, "adjoint_dst"));
    }
    return spec->src->place_of && what
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "src is a layout of survivors: %s", what)
               : LIERNE_OK;
}
