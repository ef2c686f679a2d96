/* The parts of a tensor that digests are of: boxes of a rank's buffer, walked in runs that are
 * contiguous in the buffer and in the tensor. */
#include "diagnose/digest.h"

#include <string.h>

/* A buffer and the tensor that it is a part of. */
typedef struct walk {
    const lierne_digest_factors *factors;
    const unsigned char *data;
    int naxes;
    const int64_t *shape; /* of the tensor */
    int64_t local[LIERNE_MAX_AXES];
    size_t size; /* of an element */
} walk;

static int64_t index_of(int naxes, const int64_t *shape, const int64_t *at) {
    int64_t index = 0;
    for (int a = 0; a < naxes; a++) {
        index = index * shape[a] + at[a];
    }
    return index;
}

/* The first axis of runs: all axes behind it are whole on both sides. */
static int first_axis(const walk *w, const int64_t *size) {
    int a = w->naxes - 1;
    while (a > 0 && size[a] == w->shape[a] && size[a] == w->local[a]) {
        a--;
    }
    return a;
}

static uint64_t add_box(const walk *w, const lierne_box *box) {
    lierne_box at = *box;
    int axis = first_axis(w, box->size), a;
    size_t bytes = w->size;
    uint64_t sum = 0;
    for (a = axis; a < w->naxes; a++) {
        bytes *= (size_t)box->size[a];
    }
    do {
        uint64_t start = (uint64_t)index_of(w->naxes, w->shape, at.start) * w->size;
        const unsigned char *from =
            w->data + (size_t)index_of(w->naxes, w->local, at.local) * w->size;
        sum += lierne_digest_bytes(w->factors, from, start, bytes);
        for (a = axis - 1; a >= 0; a--) {
            at.local[a]++;
            if (++at.start[a] < box->start[a] + box->size[a]) {
                break;
            }
            at.start[a] = box->start[a];
            at.local[a] = box->local[a];
        }
    } while (a >= 0);
    return sum;
}

bool lierne_digest_counts(const lierne_layout *layout, int rank) {
    lierne_cell cell;
    bool lowest = lierne_layout_cell(layout, rank, &cell);
    for (int d = 0; d < layout->ndims && lowest; d++) {
        bool free = cell.coords[d] < 0 && layout->placements[d].kind != LIERNE_PLACEMENT_AT;
        int coord = (rank - layout->offset) / layout->strides[d] % layout->sizes[d];
        lowest = !free || coord == 0;
    }
    return lowest;
}

lierne_status lierne_digest_check_layout(const lierne_layout *layout, const char *name) {
    LIERNE_TRY(lierne_check_set(layout, name));
    if (layout->place_of) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s is a layout of survivors: it can only be src of a redistribution",
                           name);
    }
    if (layout->partials > 1) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "%s has a PARTIAL dim: contributions have no digest, their sum has one",
                           name);
    }
    return layout->halos
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "%s has a halo: take the digest before margins are filled, with a "
                             "layout without halos",
                             name)
               : LIERNE_OK;
}

lierne_status lierne_digest_check_pair(const lierne_layout *a, const lierne_layout *b) {
    bool same = a->naxes == b->naxes && a->dtype == b->dtype && a->world == b->world &&
                memcmp(a->shape, b->shape, (size_t)a->naxes * sizeof *a->shape) == 0;
    return same ? LIERNE_OK
                : LIERNE_FAIL(LIERNE_ERR_INVALID,
                              "the two layouts are not of one tensor: shape, dtype and the size of "
                              "the world must be the same");
}

/* The boxes of a part, in the rank's buffer. */
static lierne_status list_boxes(lierne_boxes *boxes, const lierne_digest_part *part,
                                const lierne_cell *own, const lierne_cell *peers) {
    lierne_boxes mine = {0}, theirs = {0};
    lierne_overlaps common = {0};
    if (!part->peer_layout) {
        return lierne_layout_cell_boxes(part->layout, own, boxes, NULL);
    }
    lierne_status status = lierne_layout_cell_boxes(part->layout, own, &mine, NULL);
    if (status == LIERNE_OK) {
        status = lierne_layout_cell_boxes(part->peer_layout, peers, &theirs, NULL);
    }
    if (status == LIERNE_OK) {
        status = lierne_boxes_intersect(part->layout->naxes, &mine, &theirs, &common);
    }
    for (size_t i = 0; i < common.count && status == LIERNE_OK; i++) {
        lierne_box box;
        memcpy(box.start, common.at[i].start, sizeof box.start);
        memcpy(box.size, common.at[i].size, sizeof box.size);
        memcpy(box.local, common.at[i].local_a, sizeof box.local);
        status = LIERNE_VEC_PUSH(boxes, box);
    }
    lierne_mem_free(mine.at);
    lierne_mem_free(theirs.at);
    lierne_mem_free(common.at);
    return status;
}

lierne_status lierne_digest_check_data(const void *data, int64_t elements, const char *name) {
    return data || elements == 0
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "%s is NULL, must be a buffer: the digest is of %lld elements of it",
                             name, (long long)elements);
}

static lierne_status add_boxes(uint64_t *digest, int64_t *elements, const walk *w,
                               const lierne_boxes *boxes, const char *name) {
    int64_t all = 0;
    for (size_t i = 0; i < boxes->count; i++) {
        int64_t n = 1;
        for (int a = 0; a < w->naxes; a++) {
            n *= boxes->at[i].size[a];
        }
        all += n;
        *digest += w->data && n > 0 ? add_box(w, &boxes->at[i]) : 0;
    }
    *elements += all;
    return lierne_digest_check_data(w->data, all, name);
}

lierne_status lierne_digest_add(uint64_t *digest, int64_t *elements, const lierne_digest_part *part,
                                const lierne_digest_factors *factors, const void *data) {
    const lierne_layout *layout = part->layout;
    lierne_boxes boxes = {0};
    lierne_cell own, peers;
    walk w = {.factors = factors,
              .data = data,
              .naxes = layout->naxes,
              .shape = layout->shape,
              .size = lierne_dtype_size(layout->dtype)};
    if (!lierne_layout_cell(layout, part->rank, &own) ||
        (part->peer_layout && !lierne_layout_cell(part->peer_layout, part->peer, &peers))) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_cell_boxes(layout, &own, NULL, w.local);
    if (status == LIERNE_OK) {
        status = list_boxes(&boxes, part, &own, &peers);
    }
    if (status == LIERNE_OK) {
        status = add_boxes(digest, elements, &w, &boxes, part->name);
    }
    lierne_mem_free(boxes.at);
    return status;
}

static lierne_status check_rank(const char *name, int rank, const lierne_layout *layout) {
    return rank >= 0 && rank < layout->world
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is %d, must be 0 to %d", name, rank,
                             layout->world - 1);
}

lierne_status lierne_digest_compute(uint64_t *digest, int64_t *elements,
                                    const lierne_digest_spec *given, const void *data) {
    LIERNE_PUBLIC_CALL();
    lierne_digest_spec spec;
    lierne_digest_factors factors;
    int64_t n = 0;
    LIERNE_TRY(lierne_check_set(digest, "digest"));
    *digest = 0;
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given, "spec"));
    LIERNE_TRY(lierne_digest_check_layout(spec.layout, "layout"));
    LIERNE_TRY(check_rank("rank", spec.rank, spec.layout));
    if (spec.peer_layout) {
        LIERNE_TRY(lierne_digest_check_layout(spec.peer_layout, "peer_layout"));
        LIERNE_TRY(lierne_digest_check_pair(spec.layout, spec.peer_layout));
        LIERNE_TRY(check_rank("peer", spec.peer, spec.layout));
    }
    const lierne_digest_part part = {spec.layout, spec.rank, spec.peer_layout, spec.peer, "data"};
    if (spec.peer_layout || lierne_digest_counts(spec.layout, spec.rank)) {
        lierne_digest_factors_set(&factors, spec.key, spec.tensor);
        LIERNE_TRY(lierne_digest_add(digest, &n, &part, &factors, data));
    }
    if (elements) {
        *elements = n;
    }
    return LIERNE_OK;
}
