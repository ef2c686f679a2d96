/* Reading a side of packed.json into the structs of lierne. */
#include "packed.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    lierne_placement_kind kind;
} kinds[] = {
    {"replicate", LIERNE_PLACEMENT_REPLICATE},
    {"shard", LIERNE_PLACEMENT_SHARD},
    {"shard_zigzag", LIERNE_PLACEMENT_SHARD_ZIGZAG},
    {"shard_segments", LIERNE_PLACEMENT_SHARD_SEGMENTS},
    {"segment_zigzag", LIERNE_PLACEMENT_SEGMENT_ZIGZAG},
    {"segment_shard", LIERNE_PLACEMENT_SEGMENT_SHARD},
};

static bool read_placement(golden_case *c, lierne_placement *p, const cJSON *item) {
    const char *name = golden_string(item, "kind");
    *p = (lierne_placement){.cut_order = (int)golden_int(item, "cut_order", 0)};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (strcmp(kinds[k].name, name) == 0) {
            p->kind = kinds[k].kind;
            p->share = strcmp(golden_string(item, "share"), "chunk") == 0
                           ? LIERNE_SHARE_RULE_CHUNK
                           : LIERNE_SHARE_RULE_BALANCED;
            return true;
        }
    }
    return golden_expect(c, false, "the runner does not know the placement '%s'", name);
}

/* A word at key: 1 if it is `one`. */
static int word(const cJSON *item, const char *key, const char *one) {
    return strcmp(golden_string(item, key), one) == 0;
}

static void read_packing(golden_packed *side, const cJSON *item) {
    lierne_packing *p = &side->packing;
    static const char *const keys[] = {"cu_seqlens_padded", "lead", "order"};
    int64_t n;
    for (int k = 0; k < 3; k++) {
        const cJSON *list = golden_get(item, keys[k]);
        side->arrays[k + 1] = list ? golden_read_ints(list, &n) : NULL;
    }
    if (golden_get(item, "owner")) {
        int64_t *owner = golden_read_ints(golden_get(item, "owner"), &n);
        side->owner = golden_alloc(n, sizeof *side->owner);
        for (int64_t i = 0; i < n; i++) {
            side->owner[i] = (int32_t)owner[i];
        }
        free(owner);
    }
    *p = (lierne_packing){.size = sizeof *p,
                          .cu_seqlens_padded = side->arrays[1],
                          .align = golden_int(item, "align", 0),
                          .lead = side->arrays[2],
                          .owner = side->owner,
                          .order = side->arrays[3],
                          .store = (lierne_packing_store)word(item, "store", "unpadded"),
                          .padding = (lierne_padding)word(item, "padding", "keep"),
                          .row_order = (lierne_row_order)word(item, "row_order", "sequence_major")};
}

bool golden_packed_read(golden_case *c, golden_packed *side, const cJSON *item,
                        const cJSON *cu_seqlens, int64_t width, int64_t world) {
    const cJSON *placements = golden_get(item, "placements"),
                *packing = golden_get(item, "packing");
    *side = (golden_packed){.shape = {0, width}};
    golden_expect_status(c, "lierne_grid_create",
                         golden_grid(&side->grid, golden_get(item, "grid"), world), LIERNE_OK);
    for (int d = 0; d < cJSON_GetArraySize(placements); d++) {
        if (!read_placement(c, &side->placements[d], cJSON_GetArrayItem(placements, d))) {
            return false;
        }
    }
    if (cu_seqlens) {
        int64_t n;
        side->arrays[0] = golden_read_ints(cu_seqlens, &n);
        side->shape[0] = n > 0 ? side->arrays[0][n - 1] : 0;
        side->segments = (lierne_segments){.size = sizeof side->segments,
                                           .nsegments = n - 1,
                                           .cu_seqlens = side->arrays[0]};
    }
    side->has_packing = cJSON_IsObject(packing);
    if (side->has_packing) {
        read_packing(side, packing);
    }
    side->spec = (lierne_layout_spec){.size = sizeof side->spec,
                                      .grid = side->grid,
                                      .naxes = 2,
                                      .shape = side->shape,
                                      .dtype = LIERNE_DTYPE_I64,
                                      .placements = side->placements,
                                      .full_axes = cJSON_IsTrue(golden_get(item, "full")) ? 1 : 0,
                                      .segments = side->has_packing ? &side->segments : NULL,
                                      .packing = side->has_packing ? &side->packing : NULL};
    return !c->failed;
}

void golden_packed_free(golden_packed *side) {
    lierne_grid_destroy(side->grid);
    for (int k = 0; k < 4; k++) {
        free(side->arrays[k]);
    }
    free(side->owner);
}
