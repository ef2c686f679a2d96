/* Cuts that follow one another: in which order, and what each needs of those before it.
 *
 * Cuts of segments come first, because shares are of the rows that they leave. Maps take nothing
 * from shares: a map of two axes follows, and maps of one axis are last, because then only owners
 * of what is left need be looked at. */
#include "layout/packed.h"

static bool cuts(lierne_placement_kind kind) {
    return lierne_cuts_in_shares(kind) || kind == LIERNE_PLACEMENT_SHARD_ROWS ||
           kind == LIERNE_PLACEMENT_SHARD_SEGMENTS || kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG ||
           kind == LIERNE_PLACEMENT_SEGMENT_SHARD;
}

enum { SEGMENTS, SEGMENT_CUTS, SHARES, MAPS_OF_TWO, MAPS };

static int cut_class(const lierne_placement *p) {
    if (p->kind == LIERNE_PLACEMENT_SHARD_ROWS) {
        return lierne_is_axis_map(p) ? MAPS : MAPS_OF_TWO;
    }
    return lierne_cuts_in_shares(p->kind)               ? SHARES
           : p->kind == LIERNE_PLACEMENT_SHARD_SEGMENTS ? SEGMENTS
                                                        : SEGMENT_CUTS;
}

/* Whether dim a cuts before dim b. */
static bool cuts_before(const lierne_layout *layout, int a, int b) {
    const lierne_placement *p = &layout->placements[a], *q = &layout->placements[b];
    int class = cut_class(p);
    if (class != cut_class(q)) {
        return class < cut_class(q);
    }
    if (class == SHARES && p->cut_order != q->cut_order) {
        return p->cut_order < q->cut_order;
    }
    return a > b;
}

/* Zigzag finds equal chunks in what the cuts before it left, and leaves two pieces. */
static lierne_status check_zigzag(const lierne_layout *layout, int cut) {
    int dim = layout->cuts[cut];
    const lierne_placement *p = &layout->placements[dim];
    int64_t chunks = 2 * (int64_t)layout->sizes[dim];
    for (int i = 0; i < layout->ncuts; i++) {
        int d = layout->cuts[i];
        const lierne_placement *q = &layout->placements[d];
        if (i == cut || q->axis != p->axis || !lierne_cuts_in_shares(q->kind)) {
            continue;
        }
        if (q->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG || (i < cut && q->counts)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "dims %d and %d both cut axis %d, one in zigzag, the "
                               "other in zigzag too or with counts",
                               dim, d, p->axis);
        }
        chunks *= i < cut ? layout->sizes[d] : 1;
    }
    bool by_size = !lierne_is_packed(layout, p->axis);
    if (by_size && layout->sizes[dim] > 1 && lierne_extent(layout, p->axis) % chunks != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                           "zigzag over %d needs axis %d divisible by %lld, "
                           "it has %lld",
                           layout->sizes[dim], p->axis, (long long)chunks,
                           (long long)lierne_extent(layout, p->axis));
    }
    return LIERNE_OK;
}

/* Counts speak of the whole axis, so only the first cut of an axis can have them. */
static lierne_status check_counts(const lierne_layout *layout, int cut) {
    const lierne_placement *p = &layout->placements[layout->cuts[cut]];
    for (int i = 0; i < cut && p->counts; i++) {
        const lierne_placement *q = &layout->placements[layout->cuts[i]];
        if (p->axis == q->axis && lierne_cuts_in_shares(q->kind)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "dim %d has counts, but dim %d cuts axis %d before it",
                               layout->cuts[cut], layout->cuts[i], p->axis);
        }
    }
    return LIERNE_OK;
}

/* The same of rows of a packed axis that the cuts before cut i of the layout leave. */
static lierne_status check_rows(const lierne_layout *layout, int i, int64_t rows) {
    while (i < layout->ncuts &&
           !(lierne_is_packed(layout, layout->placements[layout->cuts[i]].axis) &&
             lierne_cuts_in_shares(layout->placements[layout->cuts[i]].kind))) {
        i++;
    }
    if (i == layout->ncuts) {
        return LIERNE_OK;
    }
    int d = layout->cuts[i], n = layout->sizes[d];
    const lierne_placement *p = &layout->placements[d];
    if (p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) {
        return n > 1 && rows % (2 * (int64_t)n) != 0
                   ? LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                                 "zigzag over %d (dim %d) needs rows divisible by %lld, a rank's "
                                 "part of cu_seqlens_padded leaves it %lld",
                                 n, d, 2 * (long long)n, (long long)rows)
                   : check_rows(layout, i + 1, rows / n);
    }
    int64_t last = -1;
    for (int c = 0; c < n; c++) {
        int64_t share = lierne_share_start(p, rows, n, c + 1) - lierne_share_start(p, rows, n, c);
        LIERNE_TRY(share != last ? check_rows(layout, i + 1, share) : LIERNE_OK);
        last = share;
    }
    return LIERNE_OK;
}

static lierne_status check_packed(const lierne_layout *layout) {
    const lierne_packed *packed = layout->packed;
    for (int o = 0; packed && o < packed->nowners; o++) {
        for (int c = 0; c < packed->ncuts; c++) {
            LIERNE_TRY(check_rows(layout, 0, packed->rows[o * (packed->ncuts + 1) + c]));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_layout_check_nesting(const lierne_layout *layout) {
    for (int i = 0; i < layout->ncuts; i++) {
        LIERNE_TRY(check_counts(layout, i));
        if (layout->placements[layout->cuts[i]].kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) {
            LIERNE_TRY(check_zigzag(layout, i));
        }
    }
    return check_packed(layout);
}

static lierne_status order_cuts(lierne_layout *layout) {
    for (int d = layout->ndims - 1; d >= 0; d--) {
        const lierne_placement *p = &layout->placements[d];
        if (!cuts(p->kind)) {
            continue;
        }
        if (lierne_cuts_in_shares(p->kind) &&
            (p->cut_order < 0 || p->cut_order >= LIERNE_MAX_DIMS)) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "placement of dim %d has cut_order %d, must be in 0 to %d", d,
                               p->cut_order, LIERNE_MAX_DIMS - 1);
        }
        layout->nmaps += lierne_is_axis_map(p);
        int i = layout->ncuts++;
        for (; i > 0 && cuts_before(layout, d, layout->cuts[i - 1]); i--) {
            layout->cuts[i] = layout->cuts[i - 1];
        }
        layout->cuts[i] = d;
    }
    return LIERNE_OK;
}

lierne_status lierne_layout_nest(lierne_layout *layout) {
    LIERNE_TRY(order_cuts(layout));
    return lierne_layout_check_nesting(layout);
}
