/* bridge_tensors.json: whole tensors. The file's values must equal the closed form, and so must the
 * bridge's, with every dtype, algorithm, owner and storage that the case allows. */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

/* The name of an axis in {"b": 0, "s": 1, "h": 2}; 0 unless there is exactly one, of one character.
 */
static char axis_name(const cJSON *mapping, int axis) {
    const cJSON *one;
    char name = 0;
    int found = 0;
    cJSON_ArrayForEach(one, mapping) {
        if (cJSON_IsNumber(one) && one->valueint == axis) {
            name = strlen(one->string) == 1 ? one->string[0] : 0;
            found++;
        }
    }
    return found == 1 ? name : 0;
}

/* The axes, a character each. Without "s" the batch axis holds rows of (sample, position): the same
 * memory as with both axes. */
static bool read_order(golden_bridge *bridge, const cJSON *mapping) {
    int n = cJSON_GetArraySize(mapping), at = 0;
    bridge->flat = !golden_get(mapping, "s");
    for (int a = 0; a < n && at < 3; a++) {
        char name = axis_name(mapping, a);
        bridge->order[at++] = name;
        if (bridge->flat && name == 'b' && at < 3) {
            bridge->order[at++] = 's';
        }
    }
    return n == (bridge->flat ? 2 : 3) && strlen(bridge->order) == 3 &&
           strchr(bridge->order, 'b') && strchr(bridge->order, 's') && strchr(bridge->order, 'h');
}

static bool read_mode(golden_mode *mode, const char *name) {
    static const char *const names[] = {"zigzag", "contiguous", "rowmap", "dense"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(names[i], name) == 0) {
            *mode = (golden_mode)i;
            return true;
        }
    }
    return false;
}

static bool read_bridge(golden_case *c, golden_bridge *bridge) {
    const cJSON *item = c->item;
    int src_dp = lierne_grid_find_dim_size(bridge->src, NULL, "dp");
    int dst_dp = lierne_grid_find_dim_size(bridge->dst, NULL, "dp");
    bridge->samples = src_dp * golden_int(item, "b_src", 0);
    bridge->length = golden_int(item, "S", 0);
    bridge->width = golden_int(item, "H", 0);
    golden_expect(c, bridge->samples == dst_dp * golden_int(item, "b_dst", 0),
                  "b_src and b_dst differ in their number of samples");
    golden_expect(c, read_mode(&bridge->mode, golden_string(item, "grad_mode")),
                  "the runner does not know the grad_mode '%s'", golden_string(item, "grad_mode"));
    golden_expect(c, read_order(bridge, golden_get(item, "dim_mapping")),
                  "the runner does not know this dim_mapping");
    return !c->failed;
}

/* The file's tensors against the closed form. */
static void expect_tensors(golden_case *c, const golden_bridge *bridge, const char *key,
                           golden_buffer buffer) {
    const cJSON *one, *tensors = golden_get(c->item, key);
    int world = lierne_grid_get_world_size(bridge->src), found = 0, holders = 0;
    for (int r = 0; r < world; r++) {
        int64_t n, shape[3];
        free(golden_values(bridge, buffer, r, &n, shape));
        holders += n > 0;
    }
    cJSON_ArrayForEach(one, tensors) {
        int64_t n = 0, shape[3];
        int rank = atoi(one->string);
        int64_t *values = golden_values(bridge, buffer, rank, &n, shape);
        golden_expect(c, values && golden_same_ints(one, values, n),
                      "%s of rank %d is not the closed form", key, rank);
        free(values);
        found++;
    }
    golden_expect(c, found == holders, "%s of %d ranks, but %d have one", key, found, holders);
}

/* in_shape and out_shape, with b and s in one where the file has no s. */
static void expect_shape(golden_case *c, const golden_bridge *bridge, const char *key,
                         golden_buffer buffer, int rank) {
    int64_t n, shape[3];
    free(golden_values(bridge, buffer, rank, &n, shape));
    if (bridge->flat) {
        int b = bridge->order[0] == 'b' ? 0 : 1;
        shape[b] *= shape[b + 1];
        shape[1] = shape[b == 0 ? 2 : 1];
    }
    golden_expect(c, golden_same_ints(golden_get(c->item, key), shape, bridge->flat ? 2 : 3),
                  "%s is not the closed form", key);
}

static void expect_map(golden_case *c, const golden_bridge *bridge) {
    lierne_megatron_map *map = NULL;
    lierne_bridge_spec spec = {.size = sizeof spec, .src = bridge->src, .dst = bridge->dst};
    lierne_status status = lierne_megatron_map_create(&map, &spec);
    if (golden_expect_status(c, "lierne_megatron_map_create", status, LIERNE_OK)) {
        const char *kind = lierne_megatron_kind_name(lierne_megatron_map_get_kind(map));
        golden_expect(c, strcmp(kind, golden_string(c->item, "direction")) == 0, "direction is %s",
                      kind);
        golden_expect(c, lierne_megatron_map_get_dp_ratio(map) == golden_int(c->item, "scale", -1),
                      "the dp ratio is %d", lierne_megatron_map_get_dp_ratio(map));
    }
    lierne_megatron_map_destroy(map);
}

/* Runs one bridge and says in a failure which it was. */
static void try_bridge(golden_case *c, const golden_bridge *bridge, lierne_status wanted) {
    golden_case one = {.item = c->item};
    lierne_status status = golden_simulate(&one, bridge);
    golden_expect_status(&one, "lierne_plan_create_bridge", status, wanted);
    golden_expect(c, !one.failed, "%s %s, owner %d, %s%s: %s", lierne_dtype_name(bridge->dtype),
                  bridge->algorithm == TEST_DIRECT ? "direct" : "collective", (int)bridge->owner,
                  bridge->storage == LIERNE_STORAGE_FULL ? "full" : "compact",
                  bridge->flat ? ", rows" : "", one.why);
}

/* Both algorithms. The collective one must be rejected where the reference gives wrong data, and
 * where the gradient has owners: the reference sums. */
static void try_algorithms(golden_case *c, golden_bridge bridge) {
    bool right = !cJSON_IsFalse(golden_get(c->item, "reference_is_correct"));
    bool owned = bridge.owner != LIERNE_GRADIENT_OWNER_PARTIAL;
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_F64, LIERNE_DTYPE_F32, LIERNE_DTYPE_I64,
                                          LIERNE_DTYPE_I32};
    for (int i = 0; i < 4; i++) {
        bridge.dtype = dtypes[i];
        bridge.algorithm = TEST_DIRECT;
        try_bridge(c, &bridge, LIERNE_OK);
        bridge.algorithm = TEST_COLLECTIVE;
        try_bridge(c, &bridge,
                   owned   ? LIERNE_ERR_UNSUPPORTED
                   : right ? LIERNE_OK
                           : LIERNE_ERR_MISALIGNED);
    }
}

/* The ownership that the mask amounts to; false if it is none. */
static bool owner_of(const golden_bridge *bridge, lierne_gradient_owner *owner) {
    int64_t n = lierne_grid_find_dim_size(bridge->dst, NULL, "cp");
    switch (bridge->mode) {
    case GOLDEN_ZIGZAG:
        *owner = LIERNE_GRADIENT_OWNER_ZIGZAG;
        return bridge->length % (2 * n) == 0;
    case GOLDEN_CONTIGUOUS:
        *owner = LIERNE_GRADIENT_OWNER_CONTIGUOUS;
        return bridge->length % n == 0;
    case GOLDEN_ROWMAP:
        *owner = LIERNE_GRADIENT_OWNER_ROWS;
        return true;
    default:
        return false;
    }
}

static void try_all(golden_case *c, golden_bridge bridge) {
    try_algorithms(c, bridge);
    if (bridge.flat) {
        bridge.flat = false;
        try_algorithms(c, bridge);
    }
    if (!owner_of(&bridge, &bridge.owner)) {
        return;
    }
    try_algorithms(c, bridge);
    bridge.storage = LIERNE_STORAGE_COMPACT;
    /* Compact rows make one axis of two, which must be neighbours. */
    if (bridge.owner != LIERNE_GRADIENT_OWNER_ROWS || bridge.order[1] != 'h') {
        try_algorithms(c, bridge);
    }
}

static void check_bridge(golden_case *c, golden_bridge *bridge) {
    if (!read_bridge(c, bridge)) {
        return;
    }
    expect_map(c, bridge);
    expect_shape(c, bridge, "in_shape", GOLDEN_INPUT, lierne_grid_get_rank_offset(bridge->src));
    expect_shape(c, bridge, "out_shape", GOLDEN_OUTPUT, lierne_grid_get_rank_offset(bridge->dst));
    expect_tensors(c, bridge, "forward", GOLDEN_OUTPUT);
    expect_tensors(c, bridge, "input_grad", GOLDEN_INPUT_GRADIENT);
    if (!c->failed) {
        try_all(c, *bridge);
    }
}

void golden_bridge_tensors(golden_case *c) {
    int64_t world = golden_int(c->item, "world_size", 0);
    lierne_grid *src = NULL, *dst = NULL;
    lierne_status status = golden_grid(&src, golden_get(c->item, "src"), world);
    golden_expect_status(c, "source grid", status, LIERNE_OK);
    status = golden_grid(&dst, golden_get(c->item, "dst"), world);
    golden_expect_status(c, "destination grid", status, LIERNE_OK);
    if (!c->failed) {
        golden_bridge bridge = {.src = src, .dst = dst};
        check_bridge(c, &bridge);
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}
