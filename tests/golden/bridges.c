/* bridges.json: pairs of grids. Mappings are compared where the reference's are right. For all
 * pairs, also where the reference rejects the pair or is wrong, a simulated tensor must arrive
 * exactly, or be rejected with the reference's condition. */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

typedef struct pair {
    const lierne_grid *src;
    const lierne_grid *dst;
    lierne_megatron_map *map;
    bool wrong_src; /* the reference's map of the source, of the destination is corrupt */
    bool wrong_dst;
    bool wrong_gather;
    bool misaligned;
} pair;

static int coordinate(const lierne_grid *grid, int rank, const char *name) {
    int coords[LIERNE_MAX_DIMS] = {0}, found = 0;
    lierne_grid_get_coords(coords, grid, NULL, rank);
    for (int d = 0; d < lierne_grid_get_ndims(grid, NULL); d++) {
        if (strcmp(lierne_grid_get_dim_name(grid, NULL, d), name) == 0) {
            found = coords[d];
        }
    }
    return found;
}

/* [[rank, a, b, ...]] for all ranks of a grid, or those with cp 0. */
static void expect_positions(golden_case *c, const lierne_grid *grid, const char *key,
                             const char *const *names, int n, bool cp0) {
    const cJSON *list = golden_get(golden_get(c->item, "expect"), key);
    const cJSON *row = list ? list->child : NULL;
    int first = lierne_grid_get_rank_offset(grid);
    for (int rank = first; rank < first + lierne_grid_get_size(grid); rank++) {
        int64_t values[4] = {rank};
        if (cp0 && coordinate(grid, rank, "cp") != 0) {
            continue;
        }
        for (int i = 0; i < n; i++) {
            values[i + 1] = coordinate(grid, rank, names[i]);
        }
        golden_expect(c, row && golden_same_ints(row, values, n + 1), "%s of rank %d differs", key,
                      rank);
        row = row ? row->next : NULL;
    }
    golden_expect(c, list && !row, "%s has ranks too many", key);
}

static void expect_sizes(golden_case *c, const pair *p) {
    const cJSON *expect = golden_get(c->item, "expect");
    static const char *const keys[] = {"src_tp", "src_dp", "dst_tp", "dst_dp", "dst_cp"};
    const char *kind = lierne_megatron_kind_name(lierne_megatron_map_get_kind(p->map));
    golden_expect(c, lierne_megatron_map_get_rejection(p->map)[0] == '\0', "rejected: %s",
                  lierne_megatron_map_get_rejection(p->map));
    golden_expect(c, strcmp(kind, golden_string(expect, "direction")) == 0, "direction is %s",
                  kind);
    golden_expect(c, lierne_megatron_map_get_dp_ratio(p->map) == golden_int(expect, "scale", -1),
                  "the dp ratio is %d", lierne_megatron_map_get_dp_ratio(p->map));
    for (int i = 0; i < 5; i++) {
        int size = lierne_grid_find_dim_size(i < 2 ? p->src : p->dst, NULL, keys[i] + 4);
        golden_expect(c, size == golden_int(expect, keys[i], -1), "%s is %d", keys[i], size);
    }
}

/* Gather groups must hold every rank once, whatever the reference does. */
static void expect_coverage(golden_case *c, const pair *p, const int *ranks, int n) {
    int size = lierne_grid_get_size(p->src), first = lierne_grid_get_rank_offset(p->src), *seen;
    if (!golden_expect(c, n == size, "gather groups have %d ranks of %d", n, size)) {
        return;
    }
    seen = calloc((size_t)size, sizeof *seen);
    for (int i = 0; seen && i < n; i++) {
        bool inside = ranks[i] >= first && ranks[i] - first < size;
        golden_expect(c, inside && seen[ranks[i] - first]++ == 0, "rank %d is gathered twice",
                      ranks[i]);
    }
    free(seen);
}

static void expect_groups(golden_case *c, const pair *p) {
    const cJSON *expect = golden_get(c->item, "expect");
    const cJSON *covers = golden_get(expect, "gather_covers_all_ranks_once");
    bool equal = lierne_megatron_map_get_kind(p->map) == LIERNE_MEGATRON_EQUAL;
    const int *ranks = NULL;
    int n = 0, size = 0;
    lierne_status status = lierne_megatron_map_get_gather_groups(&ranks, &n, &size, p->map);
    golden_expect_status(c, "gather groups", status, LIERNE_OK);
    if (!equal) {
        expect_coverage(c, p, ranks, n * size);
    }
    if (!p->wrong_gather) {
        golden_expect(c, golden_same_groups(golden_get(expect, "gather_groups"), ranks, n, size),
                      "other gather groups");
        golden_expect(c, equal ? cJSON_IsNull(covers) : cJSON_IsTrue(covers),
                      "gather_covers_all_ranks_once differs");
    }
    golden_expect(c, golden_int(expect, "gather_groups_created", -1) == (n > 0),
                  "gather_groups_created differs");
    status = lierne_megatron_map_get_cp_groups(&ranks, &n, &size, p->map);
    golden_expect_status(c, "cp groups", status, LIERNE_OK);
    golden_expect(c, golden_same_groups(golden_get(expect, "cp_groups"), ranks, n, size),
                  "other cp groups");
}

static void expect_slice(golden_case *c, const pair *p, int64_t batch, int rank, const cJSON *row) {
    int64_t values[3] = {rank, -1, -1};
    lierne_status status =
        lierne_megatron_map_get_slice(&values[1], &values[2], p->map, rank, batch);
    golden_expect_status(c, "lierne_megatron_map_get_slice", status, LIERNE_OK);
    golden_expect(c, golden_same_ints(row, values, 3), "slice of rank %d of %lld: %lld + %lld",
                  rank, (long long)batch, (long long)values[1], (long long)values[2]);
}

static void expect_slices(golden_case *c, const pair *p) {
    const cJSON *list, *row;
    int first = lierne_grid_get_rank_offset(p->src);
    cJSON_ArrayForEach(list, golden_get(golden_get(c->item, "expect"), "slices")) {
        int64_t batch = strtoll(list->string, NULL, 10), start, size;
        int n = 0;
        if (cJSON_IsArray(list)) {
            golden_expect(c, cJSON_GetArraySize(list) == lierne_grid_get_size(p->src),
                          "slices of %d ranks", cJSON_GetArraySize(list));
            cJSON_ArrayForEach(row, list) {
                expect_slice(c, p, batch, first + n++, row);
            }
        } else {
            lierne_status status =
                lierne_megatron_map_get_slice(&start, &size, p->map, first, batch);
            golden_expect(c, golden_get(list, "error") != NULL, "slices of another kind");
            golden_expect_status(c, "lierne_megatron_map_get_slice", status,
                                 LIERNE_ERR_INDIVISIBLE);
        }
    }
}

static void expect_alignment(golden_case *c, const pair *p) {
    const cJSON *expect = golden_get(c->item, "expect");
    const cJSON *list = golden_get(expect, "misaligned_ranks"), *one = list ? list->child : NULL;
    const int *ranks = NULL;
    int n = -1;
    lierne_status status = lierne_megatron_map_get_misaligned(&ranks, &n, p->map);
    golden_expect_status(c, "misaligned ranks", status, LIERNE_OK);
    golden_expect(c, cJSON_IsTrue(golden_get(expect, "slot_aligned")) == (n == 0),
                  "%d misaligned ranks, slot_aligned differs", n);
    golden_expect(c, p->misaligned == (n > 0), "%d misaligned ranks, the defects differ", n);
    for (int i = 0; i < n; i++) {
        golden_expect(c, one && one->valueint == ranks[i], "misaligned rank %d differs", ranks[i]);
        one = one ? one->next : NULL;
    }
    golden_expect(c, !one, "misaligned_ranks has more");
}

static bool read_defects(golden_case *c, pair *p) {
    const cJSON *one;
    cJSON_ArrayForEach(one, golden_get(golden_get(c->item, "expect"), "reference_defects")) {
        const char *name = cJSON_IsString(one) ? one->valuestring : "";
        bool src = strcmp(name, "src_pos_differs_from_true_coords") == 0;
        bool dst = strcmp(name, "dst_coords_differ_from_true_coords") == 0;
        bool gather = strcmp(name, "gather_groups_do_not_cover_all_ranks") == 0;
        bool misaligned = strcmp(name, "misaligned_slots") == 0;
        p->wrong_src = p->wrong_src || src;
        p->wrong_dst = p->wrong_dst || dst;
        p->wrong_gather = p->wrong_gather || src || dst || gather;
        p->misaligned = p->misaligned || misaligned;
        golden_expect(c, src || dst || gather || misaligned,
                      "the runner does not know the defect '%s'", name);
    }
    return !c->failed;
}

static void expect_map(golden_case *c, const pair *p) {
    static const char *const names[] = {"dp", "tp", "cp"};
    lierne_megatron_kind kind = lierne_megatron_map_get_kind(p->map);
    expect_sizes(c, p);
    expect_groups(c, p);
    if (!p->wrong_src) {
        expect_positions(c, p->src, "src_pos", names, 2, false);
    }
    if (!p->wrong_dst) {
        expect_positions(c, p->dst, "dst_pos_cp0", names, 2, true);
        expect_positions(c, p->dst, "dst_coords", names, 3, false);
    }
    if (!(kind == LIERNE_MEGATRON_FAN_IN && p->wrong_src) &&
        !(kind == LIERNE_MEGATRON_FAN_OUT && p->wrong_dst)) {
        expect_slices(c, p);
    }
    if (!p->wrong_src && !p->wrong_dst) {
        expect_alignment(c, p);
    }
}

/* Where COLLECTIVE is not defined it must be rejected, and never give wrong data. */
static void try_undefined(golden_case *c, const pair *p) {
    golden_bridge bridge = golden_small_tensor(p->src, p->dst);
    golden_case one = {.item = c->item};
    bridge.algorithm = TEST_COLLECTIVE;
    lierne_status status = golden_simulate(&one, &bridge);
    golden_expect(c,
                  status == LIERNE_OK || status == LIERNE_ERR_UNSUPPORTED ||
                      status == LIERNE_ERR_INDIVISIBLE || status == LIERNE_ERR_MISALIGNED,
                  "collective: %s", lierne_status_name(status));
    golden_expect(c, !one.failed, "collective: %s", one.why);
}

/* DIRECT takes any pair; also uneven dp sizes, and gradients with owned rows. */
static void try_direct(golden_case *c, const pair *p, lierne_status or_else) {
    golden_bridge bridge = golden_small_tensor(p->src, p->dst);
    golden_try(c, "direct", &bridge, LIERNE_OK, or_else);
    bridge.samples++;
    bridge.mode = GOLDEN_ZIGZAG;
    bridge.owner = LIERNE_GRADIENT_OWNER_ZIGZAG;
    bridge.storage = LIERNE_STORAGE_COMPACT;
    golden_try(c, "direct, uneven dp sizes, zigzag", &bridge, LIERNE_OK, or_else);
    bridge.mode = GOLDEN_ROWMAP;
    bridge.owner = LIERNE_GRADIENT_OWNER_ROWS;
    memcpy(bridge.order, "sbh", sizeof bridge.order);
    golden_try(c, "direct, uneven dp sizes, rows", &bridge, LIERNE_OK, or_else);
}

static void try_collective(golden_case *c, const pair *p, lierne_status wanted) {
    golden_bridge bridge = golden_small_tensor(p->src, p->dst);
    bridge.algorithm = TEST_COLLECTIVE;
    golden_try(c, "collective", &bridge, wanted, wanted);
}

static void check_expect(golden_case *c, pair *p) {
    if (!read_defects(c, p)) {
        return;
    }
    expect_map(c, p);
    try_direct(c, p, LIERNE_OK);
    if (p->wrong_src || p->wrong_dst) {
        try_undefined(c, p);
    } else {
        try_collective(c, p, p->misaligned ? LIERNE_ERR_MISALIGNED : LIERNE_OK);
    }
}

/* The reference's errors, and a part of lierne's message for each. */
typedef struct rejection {
    const char *text;
    const char *words; /* NULL: no map can be made; "": lierne accepts the pair */
} rejection;

static const rejection *find_rejection(const char *message) {
    static const rejection rejections[] = {
        {"must have 'tp'", NULL},
        {"must have 'dp'", NULL},
        {"span same number", "ranks, the destination grid"},
        {"same rank offset", "begins at rank"},
        {"src PP must", "pp of the source"},
        {"dest PP must", "pp of the destination"},
        {"Source CP must", "cp of the source"},
        {"'cp' before 'dp'", "cp stands after dp"},
        {"evenly divisible", "neither divides"},
        {"hasn't been created", ""}, /* lierne needs no groups created before */
    };
    for (size_t i = 0; i < sizeof rejections / sizeof rejections[0]; i++) {
        if (strstr(message, rejections[i].text)) {
            return &rejections[i];
        }
    }
    return NULL;
}

static void check_rejected(golden_case *c, const pair *p, const rejection *r) {
    const char *words = lierne_megatron_map_get_rejection(p->map);
    lierne_megatron_kind kind = lierne_megatron_map_get_kind(p->map);
    bool accepted = r->words[0] == '\0';
    golden_expect(c, accepted ? words[0] == '\0' : strstr(words, r->words) != NULL,
                  "the rejection is '%s'", words);
    golden_expect(c, accepted == (kind != LIERNE_MEGATRON_GENERAL), "kind is %s",
                  lierne_megatron_kind_name(kind));
    bool src_cp = lierne_grid_find_dim_size(p->src, NULL, "cp") > 1;
    try_direct(c, p, src_cp ? LIERNE_ERR_UNSUPPORTED : LIERNE_OK);
    try_undefined(c, p);
    if (strcmp(r->text, "evenly divisible") == 0) {
        golden_bridge bridge = golden_small_tensor(p->src, p->dst);
        bridge.divisible = true;
        golden_try(c, "require_divisible", &bridge, LIERNE_ERR_INDIVISIBLE, LIERNE_ERR_INDIVISIBLE);
    }
}

static void check_error(golden_case *c, const pair *p, lierne_status map_status) {
    const char *message = golden_string(golden_get(c->item, "error"), "message");
    const rejection *r = find_rejection(message);
    if (!golden_expect(c, r != NULL, "the runner does not know the error '%s'", message)) {
        return;
    }
    if (!r->words) {
        golden_expect_status(c, "lierne_megatron_map_create", map_status, LIERNE_ERR_INVALID);
        golden_bridge bridge = golden_small_tensor(p->src, p->dst);
        golden_try(c, "direct", &bridge, LIERNE_ERR_INVALID, LIERNE_ERR_INVALID);
    } else if (golden_expect_status(c, "lierne_megatron_map_create", map_status, LIERNE_OK)) {
        check_rejected(c, p, r);
    }
}

static void check_pair(golden_case *c, const lierne_grid *src, const lierne_grid *dst) {
    pair p = {.src = src, .dst = dst};
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    lierne_status status = lierne_megatron_map_create(&p.map, &spec);
    if (golden_get(c->item, "error")) {
        check_error(c, &p, status);
    } else if (golden_expect(c, golden_get(c->item, "expect") != NULL,
                             "the runner does not know this kind of case") &&
               golden_expect_status(c, "lierne_megatron_map_create", status, LIERNE_OK)) {
        check_expect(c, &p);
    }
    lierne_megatron_map_destroy(p.map);
}

void golden_bridges(golden_case *c) {
    int64_t world = golden_int(c->item, "world_size", 0);
    const cJSON *grid_error = golden_get(c->item, "grid_error");
    lierne_grid *src = NULL, *dst = NULL;
    lierne_status status = golden_grid(&src, golden_get(c->item, "src"), world);
    status = status ? status : golden_grid(&dst, golden_get(c->item, "dst"), world);
    if (grid_error) {
        golden_expect_status(c, "grids", status, golden_condition(grid_error));
    } else if (golden_expect_status(c, "grids", status, LIERNE_OK)) {
        check_pair(c, src, dst);
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}
