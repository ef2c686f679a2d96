/* The packing of a layout: which dims cut its segments, and its memory. */
#include "layout/dense_halo.h"
#include "layout/packed.h"

#include <string.h>

#define MAX_BYTES ((int64_t)1 << 60)

static bool cuts_segments(lierne_placement_kind kind) {
    return kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG || kind == LIERNE_PLACEMENT_SEGMENT_SHARD;
}

bool lierne_is_packed(const lierne_layout *layout, int axis) {
    return layout->packed && layout->packed->axis == axis;
}

bool lierne_layout_divides(const lierne_layout *layout, int axis) {
    bool divided = lierne_is_packed(layout, axis) || lierne_halo_of(layout, axis) ||
                   (layout->rows_dim >= 0 && layout->placements[layout->rows_dim].axis2 == axis);
    for (int i = 0; i < layout->ncuts; i++) {
        divided |= layout->placements[layout->cuts[i]].axis == axis;
    }
    return divided;
}

/* Segments are cut where there are some. */
static lierne_status check_needed(const lierne_layout *layout, const lierne_layout_spec *spec) {
    for (int d = 0; d < layout->ndims; d++) {
        const lierne_placement *p = &spec->placements[d];
        if ((cuts_segments(p->kind) || p->kind == LIERNE_PLACEMENT_SHARD_SEGMENTS) &&
            (!spec->packing || p->axis != spec->packed_axis)) {
            return LIERNE_FAIL(
                LIERNE_ERR_INVALID,
                "placement of dim %d cuts segments of axis %d, which has no %s: give "
                "the spec's segments, packing and packed_axis",
                d, p->axis, spec->packing ? "segments" : "packing");
        }
    }
    return LIERNE_OK;
}

static lierne_status take_specs(const lierne_layout_spec *spec, lierne_segments *segments,
                                lierne_packing *packing) {
    if (!spec->segments || !spec->packing) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL, and %s is not: give both, or neither",
                           spec->segments ? "packing" : "segments",
                           spec->segments ? "segments" : "packing");
    }
    LIERNE_TRY(lierne_spec_take(segments, sizeof *segments, spec->segments, "segments"));
    LIERNE_TRY(lierne_spec_take(packing, sizeof *packing, spec->packing, "packing"));
    if (segments->nsegments < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nsegments is %lld, must be at least 0",
                           (long long)segments->nsegments);
    }
    LIERNE_TRY(lierne_check_set(segments->cu_seqlens, "cu_seqlens"));
    if (spec->packed_axis < 0 || spec->packed_axis >= spec->naxes) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "packed_axis is %d, must be in 0 to %d",
                           spec->packed_axis, spec->naxes - 1);
    }
    return LIERNE_OK;
}

/* Notes the dims that cut segments, the first of each kind. */
static void take_dims(lierne_packed *p, const lierne_layout *layout,
                      const lierne_placement *placements) {
    p->owner_dim = p->segment_dim = -1;
    p->nowners = p->ncuts = 1;
    for (int d = 0; d < layout->ndims; d++) {
        const lierne_placement *given = &placements[d];
        if (given->kind == LIERNE_PLACEMENT_SHARD_SEGMENTS && p->owner_dim < 0) {
            p->owner_dim = d;
            p->nowners = layout->sizes[d];
        } else if (cuts_segments(given->kind) && p->segment_dim < 0) {
            p->segment_dim = d;
            p->ncuts = layout->sizes[d];
            p->zigzag = given->kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG;
            p->share = p->zigzag ? LIERNE_SHARE_RULE_BALANCED : given->share;
        }
    }
}

/* What a packed axis excludes. */
static lierne_status check_dims(const lierne_packed *p, const lierne_layout *layout,
                                const lierne_placement *placements) {
    for (int d = 0; d < layout->ndims; d++) {
        const lierne_placement *given = &placements[d];
        bool rows = given->kind == LIERNE_PLACEMENT_SHARD_ROWS;
        bool counts = given->kind == LIERNE_PLACEMENT_SHARD && given->counts;
        if ((counts && given->axis == p->axis) ||
            (rows && (given->axis == p->axis || given->axis2 == p->axis))) {
            return LIERNE_FAIL(
                LIERNE_ERR_INVALID,
                "placements[%d].%s divides axis %d, which is packed: its cuts follow "
                "from the packing",
                d, rows ? "rows" : "counts", p->axis);
        }
        int other = given->kind == LIERNE_PLACEMENT_SHARD_SEGMENTS ? p->owner_dim
                    : cuts_segments(given->kind)                   ? p->segment_dim
                                                                   : d;
        if (other != d) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "placements[%d].kind cuts segments as placements[%d] does: of "
                               "SHARD_SEGMENTS there is one dim at most, and of SEGMENT_ZIGZAG and "
                               "SEGMENT_SHARD together, too",
                               d, other);
        }
    }
    return LIERNE_OK;
}

/* Memory for n segments, of which an array of none has space, too. */
static lierne_status alloc_arrays(lierne_packed *p, int64_t n) {
    size_t count = (size_t)n + 1;
    p->capacity = n;
    p->numbered = 0;
    LIERNE_TRY(lierne_alloc(&p->cu, count, sizeof *p->cu));
    LIERNE_TRY(lierne_alloc(&p->padded, count, sizeof *p->padded));
    LIERNE_TRY(lierne_alloc(&p->lead, count, sizeof *p->lead));
    LIERNE_TRY(lierne_alloc(&p->order, count, sizeof *p->order));
    LIERNE_TRY(lierne_alloc(&p->spare, count, sizeof *p->spare));
    LIERNE_TRY(lierne_alloc(&p->owner, count, sizeof *p->owner));
    return lierne_alloc(&p->rows, (size_t)p->nowners * ((size_t)p->ncuts + 1), sizeof *p->rows);
}

/* Buffers are as large as padded rows make them. */
static lierne_status check_bytes(const lierne_packed *p, const lierne_layout_spec *spec) {
    int64_t bytes = (int64_t)lierne_dtype_size(spec->dtype), rows = p->total + 1;
    for (int a = 0; a < spec->naxes; a++) {
        int64_t size = a == p->axis ? rows : spec->shape[a] > 0 ? spec->shape[a] : 1;
        if (!lierne_mul_i64(bytes, size, &bytes) || bytes > MAX_BYTES) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                               "the tensor with its %lld padded rows has more than %lld bytes",
                               (long long)rows - 1, (long long)MAX_BYTES);
        }
    }
    return LIERNE_OK;
}

static lierne_status fill(lierne_packed *p, const lierne_layout *layout,
                          const lierne_layout_spec *spec, const lierne_segments *segments,
                          const lierne_packing *packing) {
    p->axis = spec->packed_axis;
    take_dims(p, layout, spec->placements);
    LIERNE_TRY(alloc_arrays(p, segments->nsegments));
    LIERNE_TRY(lierne_packed_take(p, segments, packing));
    if (p->cu[p->n] != spec->shape[p->axis]) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "cu_seqlens[%lld] is %lld, must be %lld, the size of axis %d",
                           (long long)p->n, (long long)p->cu[p->n], (long long)spec->shape[p->axis],
                           p->axis);
    }
    LIERNE_TRY(check_dims(p, layout, spec->placements));
    LIERNE_TRY(lierne_packed_cut(p, packing));
    return check_bytes(p, spec);
}

lierne_status lierne_packing_create(lierne_layout *layout, const lierne_layout_spec *spec) {
    lierne_segments segments;
    lierne_packing packing;
    LIERNE_TRY(check_needed(layout, spec));
    if (!spec->segments && !spec->packing) {
        return LIERNE_OK;
    }
    LIERNE_TRY(take_specs(spec, &segments, &packing));
    LIERNE_TRY(lierne_alloc(&layout->packed, 1, sizeof *layout->packed));
    return fill(layout->packed, layout, spec, &segments, &packing);
}

static void copy_arrays(lierne_packed *p, const lierne_packed *old) {
    size_t n = (size_t)old->n;
    memcpy(p->cu, old->cu, (n + 1) * sizeof *p->cu);
    memcpy(p->padded, old->padded, n * sizeof *p->padded);
    memcpy(p->lead, old->lead, n * sizeof *p->lead);
    memcpy(p->order, old->order, n * sizeof *p->order);
    memcpy(p->owner, old->owner, n * sizeof *p->owner);
    memcpy(p->rows, old->rows, (size_t)p->nowners * ((size_t)p->ncuts + 1) * sizeof *p->rows);
}

static void forget_arrays(lierne_packed *p) {
    p->cu = p->padded = p->lead = p->order = p->spare = p->rows = NULL;
    p->owner = NULL;
}

lierne_status lierne_packing_copy(lierne_layout *layout, const lierne_layout *old,
                                  const int64_t *shape) {
    const lierne_packed *from = old->packed;
    if (!from) {
        return LIERNE_OK;
    }
    if (shape[from->axis] != old->shape[from->axis]) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "axis %d would have %lld instead of %lld tokens, but it is packed: make "
                           "a new plan",
                           from->axis, (long long)shape[from->axis],
                           (long long)old->shape[from->axis]);
    }
    LIERNE_TRY(lierne_alloc(&layout->packed, 1, sizeof *layout->packed));
    lierne_packed *p = layout->packed;
    *p = *from;
    forget_arrays(p);
    LIERNE_TRY(alloc_arrays(p, from->capacity));
    copy_arrays(p, from);
    return LIERNE_OK;
}

static void free_arrays(lierne_packed *p) {
    lierne_mem_free(p->cu);
    lierne_mem_free(p->padded);
    lierne_mem_free(p->lead);
    lierne_mem_free(p->order);
    lierne_mem_free(p->spare);
    lierne_mem_free(p->owner);
    lierne_mem_free(p->rows);
}

lierne_status lierne_packing_reserve(lierne_packed *p, int64_t capacity) {
    lierne_packed old = *p;
    forget_arrays(p);
    lierne_status status = alloc_arrays(p, capacity);
    if (status == LIERNE_OK) {
        copy_arrays(p, &old);
    }
    free_arrays(&old);
    return status;
}

void lierne_packing_destroy(lierne_packed *p) {
    if (p) {
        free_arrays(p);
        lierne_mem_free(p);
    }
}
