/* The hash of a layout. Fields that the kind of a placement does not read are left out, so that
 * layouts that say the same have the same hash, whatever is in them. */
#include "layout/dense_halo.h"
#include "layout/packed.h"

static uint64_t hash_number(uint64_t hash, int64_t number) {
    return lierne_hash(hash, &number, sizeof number);
}

static uint64_t add_placement(uint64_t hash, const lierne_layout *layout, int dim) {
    const lierne_placement *p = &layout->placements[dim];
    bool shard = p->kind == LIERNE_PLACEMENT_SHARD, rows = p->kind == LIERNE_PLACEMENT_SHARD_ROWS;
    bool cuts = lierne_cuts_in_shares(p->kind);
    bool shares = shard || p->kind == LIERNE_PLACEMENT_SEGMENT_SHARD;
    const int64_t numbers[] = {layout->sizes[dim],
                               layout->strides[dim],
                               (int64_t)p->kind,
                               cuts || rows ? p->axis : 0,
                               p->kind == LIERNE_PLACEMENT_AT ? p->at : 0,
                               cuts ? p->cut_order : 0,
                               shares ? (int64_t)p->share : 0,
                               rows ? p->axis2 : 0,
                               shard && p->counts};
    hash = lierne_hash(hash, numbers, sizeof numbers);
    if (shard && p->counts) {
        hash = lierne_hash(hash, p->counts, ((size_t)layout->sizes[dim] + 1) * sizeof *p->counts);
    }
    if (rows) {
        int64_t columns = lierne_is_axis_map(p) ? 1 : layout->shape[p->axis2];
        size_t n = (size_t)(lierne_extent(layout, p->axis) * columns);
        hash = lierne_hash(hash, p->rows, n * sizeof *p->rows);
    }
    return hash;
}

/* Lists that say nothing are left out: they would be most of what is read. */
static uint64_t add_packing(uint64_t hash, const lierne_packed *p) {
    const int64_t numbers[] = {
        p->axis,  p->n,        (int64_t)p->store, (int64_t)p->padding, (int64_t)p->row_order,
        p->leads, p->ascending};
    size_t n = (size_t)p->n;
    hash = lierne_hash(hash, numbers, sizeof numbers);
    hash = lierne_hash(hash, p->cu, (n + 1) * sizeof *p->cu);
    hash = lierne_hash(hash, p->padded, n * sizeof *p->padded);
    hash = p->leads ? lierne_hash(hash, p->lead, n * sizeof *p->lead) : hash;
    hash = p->ascending ? hash : lierne_hash(hash, p->order, n * sizeof *p->order);
    return p->owner_dim < 0 ? hash : lierne_hash(hash, p->owner, n * sizeof *p->owner);
}

static uint64_t add_halos(uint64_t hash, const lierne_halos *halos) {
    hash = hash_number(hash, (int64_t)halos->stencil);
    hash = hash_number(hash, (int64_t)halos->storage);
    for (int i = 0; i < halos->n; i++) {
        const lierne_dense_halo *h = &halos->at[i];
        const int64_t numbers[] = {h->axis,      (int64_t)h->boundary,
                                   h->lo,        h->hi,
                                   h->stride,    h->outputs,
                                   h->nsegments, h->starts != NULL};
        hash = lierne_hash(hash, numbers, sizeof numbers);
        if (h->nsegments > 0) {
            hash = lierne_hash(hash, h->segments, ((size_t)h->nsegments + 1) * sizeof *h->segments);
        }
        if (h->starts) {
            hash = lierne_hash(hash, h->starts, (size_t)h->outputs * sizeof *h->starts);
            hash = lierne_hash(hash, h->ends, (size_t)h->outputs * sizeof *h->ends);
        }
    }
    return hash;
}

uint64_t lierne_layout_hash(const lierne_layout *layout) {
    const int64_t numbers[] = {layout->offset,   layout->nranks, layout->world,
                               layout->ndims,    layout->naxes,  (int64_t)layout->dtype,
                               layout->full_axes};
    uint64_t hash = lierne_hash(0, numbers, sizeof numbers);
    if (layout->ranks) {
        hash = lierne_hash(hash, layout->ranks, (size_t)layout->nranks * sizeof *layout->ranks);
    }
    if (layout->place_of) {
        hash = lierne_hash(hash, layout->place_of, (size_t)layout->world * sizeof(int));
    }
    for (int a = 0; a < layout->naxes; a++) {
        hash = hash_number(hash, layout->shape[a]);
    }
    for (int d = 0; d < layout->ndims; d++) {
        hash = add_placement(hash, layout, d);
    }
    hash = layout->halos ? add_halos(hash, layout->halos) : hash;
    return layout->packed ? add_packing(hash, layout->packed) : hash;
}
