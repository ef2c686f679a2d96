/* Reading the layouts of dense_halo.json. */
#include "dense_halo.h"

#include <stdlib.h>
#include <string.h>

static const char *const boundaries[] = {"none",   "zero",      "keep",     "periodic",
                                         "mirror", "symmetric", "replicate"};

static lierne_boundary read_boundary(const cJSON *item) {
    for (size_t i = 0; i < sizeof boundaries / sizeof boundaries[0]; i++) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, boundaries[i]) == 0) {
            return (lierne_boundary)i;
        }
    }
    return (lierne_boundary)golden_to_int(item, -1);
}

static void read_halo(lierne_dense_halo *halo, const cJSON *item) {
    int64_t n;
    *halo = (lierne_dense_halo){.axis = (int)golden_int(item, "axis", 0),
                                .boundary = read_boundary(golden_get(item, "boundary")),
                                .lo = golden_int(item, "lo", 0),
                                .hi = golden_int(item, "hi", 0),
                                .stride = golden_int(item, "stride", 0),
                                .outputs = golden_int(item, "outputs", 0)};
    if (golden_get(item, "segments")) {
        halo->segments = golden_read_ints(golden_get(item, "segments"), &halo->nsegments);
        halo->nsegments--;
    }
    if (golden_get(item, "starts")) {
        halo->starts = golden_read_ints(golden_get(item, "starts"), &n);
    }
    if (golden_get(item, "ends")) {
        halo->ends = golden_read_ints(golden_get(item, "ends"), &n);
    }
}

static int32_t *read_owners(const cJSON *list) {
    int64_t n;
    int64_t *wide = golden_read_ints(list, &n);
    int32_t *owners = golden_alloc(n, sizeof *owners);
    for (int64_t i = 0; i < n; i++) {
        owners[i] = (int32_t)wide[i];
    }
    free(wide);
    return owners;
}

static bool is_word(const cJSON *item, const char *word) {
    return cJSON_IsString(item) && strcmp(item->valuestring, word) == 0;
}

static void read_placement(golden_case *c, golden_side *side, int d, const cJSON *item) {
    lierne_placement *p = &side->placements[d];
    int64_t n;
    *p = (lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE,
                            .axis2 = (int)golden_int(item, "axis2", -1),
                            .cut_order = (int)golden_int(item, "cut_order", 0)};
    if (is_word(item, "partial")) {
        p->kind = LIERNE_PLACEMENT_PARTIAL;
    } else if (golden_get(item, "at")) {
        p->kind = LIERNE_PLACEMENT_AT;
        p->at = (int)golden_int(item, "at", 0);
    } else if (golden_get(item, "zigzag")) {
        p->kind = LIERNE_PLACEMENT_SHARD_ZIGZAG;
        p->axis = (int)golden_int(item, "zigzag", 0);
    } else if (golden_get(item, "rows")) {
        p->kind = LIERNE_PLACEMENT_SHARD_ROWS;
        p->axis = (int)golden_int(item, "rows", 0);
        p->rows = side->rows[d] = read_owners(golden_get(item, "owner"));
    } else if (golden_get(item, "shard")) {
        p->kind = LIERNE_PLACEMENT_SHARD;
        p->axis = (int)golden_int(item, "shard", 0);
        p->share = is_word(golden_get(item, "share"), "chunk") ? LIERNE_SHARE_RULE_CHUNK
                                                               : LIERNE_SHARE_RULE_BALANCED;
        if (golden_get(item, "counts")) {
            p->counts = side->counts[d] = golden_read_ints(golden_get(item, "counts"), &n);
        }
    } else {
        golden_expect(c, is_word(item, "replicate"), "dim %d: an unknown placement", d);
    }
}

static lierne_status create_grid(golden_side *side, int64_t world) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = side->ndims,
                                   .names = names,
                                   .sizes = side->sizes,
                                   .rank_offset = side->offset,
                                   .world_size = world};
    return lierne_grid_create(&side->grid, &spec);
}

bool golden_side_read(golden_case *c, golden_side *side, const char *name, lierne_dtype dtype) {
    const cJSON *item = golden_get(c->item, name), *halos = golden_get(item, "halo"), *one,
                *grid = golden_get(item, "grid"), *sizes = golden_get(grid, "sizes"),
                *shape = golden_get(c->item, "shape");
    *side = (golden_side){.ndims = cJSON_GetArraySize(sizes),
                          .offset = (int)golden_int(grid, "offset", 0)};
    for (int d = 0; d < side->ndims; d++) {
        side->sizes[d] = golden_to_int(cJSON_GetArrayItem(sizes, d), 0);
        read_placement(c, side, d, cJSON_GetArrayItem(golden_get(item, "placements"), d));
    }
    for (int a = 0; a < cJSON_GetArraySize(shape); a++) {
        side->shape[a] = golden_to_int(cJSON_GetArrayItem(shape, a), 0);
    }
    golden_expect_status(c, "lierne_grid_create",
                         create_grid(side, golden_int(c->item, "world", 0)), LIERNE_OK);
    side->spec =
        (lierne_layout_spec){.size = sizeof side->spec,
                             .grid = side->grid,
                             .naxes = cJSON_GetArraySize(shape),
                             .shape = side->shape,
                             .dtype = dtype,
                             .placements = side->placements,
                             .halos = side->halos,
                             .stencil = is_word(golden_get(item, "stencil"), "star")
                                            ? LIERNE_STENCIL_STAR
                                            : LIERNE_STENCIL_BOX,
                             .halo_storage = is_word(golden_get(item, "storage"), "margins")
                                                 ? LIERNE_HALO_STORAGE_MARGINS
                                                 : LIERNE_HALO_STORAGE_PADDED};
    cJSON_ArrayForEach(one, halos) {
        read_halo(&side->halos[side->spec.nhalos++], one);
    }
    for (const cJSON *axis = golden_get(item, "full_axes"), *a = axis ? axis->child : NULL; a;
         a = a->next) {
        side->spec.full_axes |= 1u << golden_to_int(a, 0);
    }
    return !c->failed;
}

void golden_side_free(golden_side *side) {
    lierne_grid_destroy(side->grid);
    for (int d = 0; d < LIERNE_MAX_DIMS; d++) {
        free(side->counts[d]);
        free(side->rows[d]);
        free((void *)side->halos[d].segments);
        free((void *)side->halos[d].starts);
        free((void *)side->halos[d].ends);
    }
}

int golden_side_coord(const golden_side *side, int rank, int d) {
    int64_t index = rank - side->offset;
    for (int e = 0; e < d; e++) {
        index /= side->sizes[e];
    }
    return (int)(index % side->sizes[d]);
}

bool golden_side_holds(const golden_side *side, int rank) {
    int64_t n = 1;
    for (int d = 0; d < side->ndims; d++) {
        n *= side->sizes[d];
    }
    bool holds = rank >= side->offset && rank < side->offset + n;
    for (int d = 0; d < side->ndims && holds; d++) {
        const lierne_placement *p = &side->placements[d];
        holds = p->kind != LIERNE_PLACEMENT_AT || golden_side_coord(side, rank, d) == p->at;
    }
    return holds;
}

int golden_side_first(const golden_side *side, int rank) {
    int64_t first = rank, stride = 1;
    for (int d = 0; d < side->ndims; d++) {
        if (side->placements[d].kind == LIERNE_PLACEMENT_REPLICATE) {
            first -= golden_side_coord(side, rank, d) * stride;
        }
        stride *= side->sizes[d];
    }
    return (int)first;
}

int64_t golden_side_partial(const golden_side *side, int rank, int64_t *n) {
    int64_t index = 0;
    *n = 1;
    for (int d = 0; d < side->ndims; d++) {
        if (side->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            index += golden_side_coord(side, rank, d) * *n;
            *n *= side->sizes[d];
        }
    }
    return index;
}
