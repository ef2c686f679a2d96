/* How much an order of ranks can save at most. A rank receives what it needs less what it holds, so
 * what stays on a rank depends on the two parts that it has, and the best of all orders is a linear
 * assignment. Where C contributions of an element are summed for R ranks, at least C + R - 1 less
 * those ranks that hold a contribution are received: this keeps the bound valid there, but an order
 * that reaches it may not exist. */
#include "advise.h"
#include "assign.h"

#include <stdlib.h>
#include <string.h>

/* What each rank of the world owns under a layout. */
typedef struct owned {
    lierne_box **boxes;
    size_t *count;
    int64_t elements; /* of all ranks */
} owned;

static void close_owned(owned *o, int world) {
    for (int rank = 0; o->boxes && rank < world; rank++) {
        free(o->boxes[rank]);
    }
    free(o->boxes);
    free(o->count);
}

static lierne_status read_rank(owned *o, const lierne_layout *layout, int rank) {
    int64_t elements = 0;
    size_t *count = &o->count[rank];
    lierne_status status = lierne_layout_get_boxes(NULL, 0, count, layout, rank);
    if (status == LIERNE_OK && *count > 0) {
        o->boxes[rank] = calloc(*count, sizeof **o->boxes);
        status = o->boxes[rank]
                     ? lierne_layout_get_boxes(o->boxes[rank], *count, count, layout, rank)
                     : LIERNE_ERR_NO_MEMORY;
    }
    if (status == LIERNE_OK) {
        status = lierne_layout_get_elements(NULL, &elements, layout, rank);
    }
    o->elements += elements;
    return status;
}

static lierne_status open_owned(owned *o, const lierne_layout *layout, int world) {
    lierne_status status = LIERNE_OK;
    *o = (owned){.boxes = calloc((size_t)world, sizeof *o->boxes),
                 .count = calloc((size_t)world, sizeof *o->count)};
    if (!o->boxes || !o->count) {
        return LIERNE_ERR_NO_MEMORY;
    }
    for (int rank = 0; status == LIERNE_OK && rank < world; rank++) {
        status = read_rank(o, layout, rank);
    }
    return status;
}

static int64_t overlap_boxes(const lierne_box *a, const lierne_box *b, int naxes) {
    int64_t elements = 1;
    for (int x = 0; x < naxes; x++) {
        int64_t start = a->start[x] > b->start[x] ? a->start[x] : b->start[x];
        int64_t end_a = a->start[x] + a->size[x], end_b = b->start[x] + b->size[x];
        int64_t size = (end_a < end_b ? end_a : end_b) - start;
        elements *= size > 0 ? size : 0;
    }
    return elements;
}

/* Elements that rank i owns of one layout and rank j of the other. */
static int64_t overlap(const owned *one, int i, const owned *other, int j, int naxes) {
    int64_t elements = 0;
    for (size_t a = 0; a < one->count[i]; a++) {
        for (size_t b = 0; b < other->count[j]; b++) {
            elements += overlap_boxes(&one->boxes[i][a], &other->boxes[j][b], naxes);
        }
    }
    return elements;
}

/* What would stay on each rank of the grid at the place of each other one, in both directions. */
static void fill_gains(int64_t *gain, const advice *a, const owned parts[3]) {
    int n = lierne_grid_get_size(a->grid), first = lierne_grid_get_rank_offset(a->grid);
    int naxes = a->bridge->spec.naxes + (a->bridge->spec.rows_per_sample > 0);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            int src = first + (a->dst ? i : j), dst = first + (a->dst ? j : i);
            gain[(int64_t)i * n + j] = overlap(&parts[0], src, &parts[1], dst, naxes) +
                                       overlap(&parts[0], src, &parts[2], dst, naxes);
        }
    }
}

/* What all ranks receive, in elements, where nothing stays on its rank. */
static int64_t most_received(const lierne_bridge_spec *spec, const owned parts[3]) {
    bool partial = spec->gradient_owner == LIERNE_GRADIENT_OWNER_PARTIAL;
    int64_t elements = partial ? lierne_grid_find_dim_size(spec->dst, spec->dst_view, "cp") - 1 : 0;
    for (int x = 0; x < spec->naxes; x++) {
        elements *= spec->shape[x];
    }
    return elements + parts[1].elements + parts[0].elements;
}

static lierne_status assign(advice *a, const owned parts[3]) {
    int n = lierne_grid_get_size(a->grid);
    int64_t *gain = calloc((size_t)n * (size_t)n, sizeof *gain);
    int64_t bytes = (int64_t)lierne_dtype_size(a->bridge->spec.dtype);
    int64_t least = most_received(&a->bridge->spec, parts);
    a->position = calloc((size_t)n, sizeof *a->position);
    bool good = gain && a->position;
    if (good) {
        fill_gains(gain, a, parts);
        good = tool_assign(a->position, gain, n);
    }
    for (int i = 0; good && i < n; i++) {
        least -= gain[(int64_t)i * n + a->position[i]];
    }
    a->bound = advise_bytes(&a->today) - bytes * least;
    free(gain);
    return good ? LIERNE_OK : LIERNE_ERR_NO_MEMORY;
}

lierne_status advise_bound(advice *a) {
    lierne_layout *layouts[3];
    owned parts[3] = {{0}};
    lierne_status status =
        lierne_layout_create_bridge(&layouts[0], &layouts[1], &layouts[2], &a->bridge->spec);
    for (int i = 0; status == LIERNE_OK && i < 3; i++) {
        status = open_owned(&parts[i], layouts[i], a->bridge->world);
    }
    status = status == LIERNE_OK ? assign(a, parts) : status;
    for (int i = 0; i < 3; i++) {
        close_owned(&parts[i], a->bridge->world);
        lierne_layout_destroy(layouts[i]);
    }
    return status;
}
