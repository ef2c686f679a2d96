/* noncolocated.json: leaders, groups and peers of disjoint grids. Every pair must also move a
 * tensor exactly: with DIRECT whatever the reference says, with LEADER where it is defined. */
#include "simulate.h"

#include <string.h>

static void expect_side(golden_case *c, const lierne_megatron_leaders *leaders,
                        lierne_megatron_side side, const char *leaders_key,
                        const char *groups_key) {
    const cJSON *expect = golden_get(c->item, "expect");
    const int *ranks = NULL;
    int n = 0, size = 0;
    lierne_status status = lierne_megatron_leaders_get_ranks(&ranks, &n, leaders, side);
    golden_expect_status(c, "lierne_megatron_leaders_get_ranks", status, LIERNE_OK);
    golden_expect(c, golden_same_ranks(golden_get(expect, leaders_key), ranks, n), "other %s",
                  leaders_key);
    status = lierne_megatron_leaders_get_groups(&ranks, &n, &size, leaders, side);
    golden_expect_status(c, "lierne_megatron_leaders_get_groups", status, LIERNE_OK);
    golden_expect(c, golden_same_groups(golden_get(expect, groups_key), ranks, n, size), "other %s",
                  groups_key);
}

/* [rank, "sender" | "receiver" | "member", [send_to], [recv_from]] */
static void expect_row(golden_case *c, const lierne_megatron_leaders *leaders, const cJSON *row,
                       int rank) {
    const int *to = NULL, *from = NULL;
    int nto = -1, nfrom = -1;
    lierne_status status =
        lierne_megatron_leaders_get_peers(&to, &nto, &from, &nfrom, leaders, rank);
    golden_expect_status(c, "lierne_megatron_leaders_get_peers", status, LIERNE_OK);
    const cJSON *at = cJSON_GetArrayItem(row, 0);
    const char *role = cJSON_GetStringValue(cJSON_GetArrayItem(row, 1));
    const char *mine = nto ? "sender" : nfrom ? "receiver" : "member";
    golden_expect(c, cJSON_IsNumber(at) && at->valueint == rank, "comm_map has no rank %d", rank);
    golden_expect(c, role && strcmp(role, mine) == 0, "rank %d is a %s", rank, mine);
    golden_expect(c, golden_same_ranks(cJSON_GetArrayItem(row, 2), to, nto),
                  "rank %d sends to others", rank);
    golden_expect(c, golden_same_ranks(cJSON_GetArrayItem(row, 3), from, nfrom),
                  "rank %d receives from others", rank);
}

static bool in_grid(const lierne_grid *grid, int rank) {
    int first = lierne_grid_get_rank_offset(grid);
    return rank >= first && rank < first + lierne_grid_get_size(grid);
}

static void expect_map(golden_case *c, const lierne_megatron_leaders *leaders,
                       const lierne_grid *src, const lierne_grid *dst) {
    const cJSON *expect = golden_get(c->item, "expect"), *map = golden_get(expect, "comm_map");
    const cJSON *row = map ? map->child : NULL;
    const int *ranks = NULL;
    int n = 0;
    lierne_status status = lierne_megatron_leaders_get_p2p_ranks(&ranks, &n, leaders);
    golden_expect_status(c, "lierne_megatron_leaders_get_p2p_ranks", status, LIERNE_OK);
    golden_expect(c, golden_same_ranks(golden_get(expect, "p2p_group"), ranks, n),
                  "other p2p_group");
    for (int rank = 0; rank < lierne_grid_get_world_size(src); rank++) {
        if (in_grid(src, rank) || in_grid(dst, rank)) {
            expect_row(c, leaders, row, rank);
            row = row ? row->next : NULL;
        }
    }
    golden_expect(c, map && !row, "comm_map has ranks too many");
}

static bool overlap(const lierne_grid *src, const lierne_grid *dst) {
    bool found = false;
    for (int rank = 0; rank < lierne_grid_get_world_size(src); rank++) {
        found = found || (in_grid(src, rank) && in_grid(dst, rank));
    }
    return found;
}

/* The status of LEADER: it rejects what the reference rejects, overlapping spans, and dp ranks that
 * a bridge plan does not count. */
static lierne_status leader_status(const golden_case *c, const lierne_grid *src,
                                   const lierne_grid *dst) {
    bool remat = lierne_grid_find_dim_size(src, NULL, "gtp_remat") > 1 ||
                 lierne_grid_find_dim_size(dst, NULL, "gtp_remat") > 1;
    const cJSON *error = golden_get(c->item, "error");
    return error                        ? golden_condition(error)
           : remat || overlap(src, dst) ? LIERNE_ERR_UNSUPPORTED
                                        : LIERNE_OK;
}

static void try_tensors(golden_case *c, const lierne_grid *src, const lierne_grid *dst) {
    static const char *const orders[] = {"bsh", "sbh", "shb"};
    bool src_cp = lierne_grid_find_dim_size(src, NULL, "cp") > 1;
    lierne_status direct = src_cp ? LIERNE_ERR_UNSUPPORTED : LIERNE_OK;
    lierne_status leader = leader_status(c, src, dst);
    for (int i = 0; i < 3; i++) {
        golden_bridge bridge = golden_small_tensor(src, dst);
        bridge.width = 3;
        memcpy(bridge.order, orders[i], sizeof bridge.order);
        golden_try(c, "direct", &bridge, direct, direct);
        bridge.algorithm = TEST_LEADER;
        golden_try(c, "leader", &bridge, leader, leader);
    }
}

static void check_pair(golden_case *c, const lierne_grid *src, const lierne_grid *dst) {
    lierne_megatron_leaders *leaders;
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    const cJSON *error = golden_get(c->item, "error");
    lierne_status status = lierne_megatron_leaders_create(&leaders, &spec);
    lierne_status wanted = error ? golden_condition(error) : LIERNE_OK;
    golden_expect(c, (wanted == LIERNE_OK) == (error == NULL),
                  "the runner does not know the error '%s'", golden_string(error, "message"));
    if (golden_expect_status(c, "lierne_megatron_leaders_create", status, wanted) && !error) {
        expect_side(c, leaders, LIERNE_MEGATRON_SIDE_SRC, "src_leaders", "src_broadcast_groups");
        expect_side(c, leaders, LIERNE_MEGATRON_SIDE_DST, "dst_leaders", "dst_broadcast_groups");
        expect_map(c, leaders, src, dst);
    }
    lierne_megatron_leaders_destroy(leaders);
    try_tensors(c, src, dst);
}

void golden_noncolocated(golden_case *c) {
    int64_t world = golden_int(c->item, "world_size", 0);
    lierne_grid *src = NULL, *dst = NULL;
    lierne_status status = golden_grid(&src, golden_get(c->item, "src"), world);
    golden_expect_status(c, "source grid", status, LIERNE_OK);
    status = golden_grid(&dst, golden_get(c->item, "dst"), world);
    golden_expect_status(c, "destination grid", status, LIERNE_OK);
    golden_expect(c, golden_get(c->item, "expect") || golden_get(c->item, "error"),
                  "the runner does not know this kind of case");
    if (!c->failed) {
        check_pair(c, src, dst);
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}
