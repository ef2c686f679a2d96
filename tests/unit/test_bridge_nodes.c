/* Which replica supplies whom: one of the own node where there is one, otherwise each in turn. */
#include "base/base.h"
#include "layouts.h"
#include "lierne/redistribute.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

enum { WORLD = 8 };

/* [b, h] = [8, 3] sharded over dp, replicas over tp. */
static lierne_layout *layout(int64_t tp, int64_t dp) {
    const mesh dims = {.ndims = 2, .names = {"tp", "dp"}, .sizes = {tp, dp}};
    const int64_t shape[2] = {8, 3};
    const lierne_placement placements[2] = {{.kind = LIERNE_PLACEMENT_REPLICATE},
                                            {.kind = LIERNE_PLACEMENT_SHARD}};
    return layout_over(&dims, WORLD, LIERNE_DTYPE_F32, 2, shape, placements);
}

typedef void visit(int rank, const lierne_messages *recvs, const int *nodes);

/* Shows what every rank receives on the way from tp x dp to tp x dp. */
static void plan_all(int64_t from_tp, int64_t to_tp, const int *nodes, visit *look) {
    lierne_layout *from = layout(from_tp, WORLD / from_tp), *to = layout(to_tp, WORLD / to_tp);
    for (int r = 0; r < WORLD; r++) {
        lierne_route *route;
        assert_ok(lierne_route_create_redistribute(&route, NULL, from, to, r, nodes));
        look(r, &route->stages.at[0].recvs, nodes);
        lierne_route_destroy(route);
    }
    lierne_layout_destroy(from);
    lierne_layout_destroy(to);
}

/* From tp2 dp4 to tp4 dp2: a rank needs the two samples that it holds and two more of another dp
 * rank, which ranks 2 * dp and 2 * dp + 1 hold. */
static void from_own_node(int rank, const lierne_messages *recvs, const int *nodes) {
    int dp = (rank / 2) ^ 1, first = 2 * dp, second = first + 1;
    cr_assert_eq(recvs->count, 1, "rank %d receives %zu messages", rank, recvs->count);
    int peer = recvs->at[0].peer;
    cr_assert(peer == first || peer == second, "rank %d receives from %d", rank, peer);
    if (nodes[first] == nodes[rank] || nodes[second] == nodes[rank]) {
        cr_assert_eq(nodes[peer], nodes[rank], "rank %d receives from %d, which is not its node",
                     rank, peer);
    }
}

Test(bridge_nodes, bytes_stay_in_the_node) {
    static const int nodes[][WORLD] = {
        {0, 1, 0, 1, 0, 1, 0, 1}, {0, 1, 1, 0, 5, 6, 6, 5}, {0, 0, 0, 0, 1, 1, 1, 1},
        {0, 1, 2, 0, 3, 3, 3, 4}, {7, 6, 5, 4, 3, 2, 1, 0},
    };
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        plan_all(2, 4, nodes[i], from_own_node);
    }
}

static int served[WORLD];

static void count(int rank, const lierne_messages *recvs, const int *nodes) {
    (void)rank, (void)nodes;
    for (size_t m = 0; m < recvs->count; m++) {
        served[recvs->at[m].peer]++;
    }
}

/* From tp4 dp2 to tp8: the samples of a dp rank are held by four ranks and needed by the four
 * others. */
Test(bridge_nodes, replicas_share_the_load) {
    static const int apart[WORLD] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int *nodes[2] = {NULL, apart};
    for (int i = 0; i < 2; i++) {
        plan_all(4, 8, nodes[i], count);
        for (int r = 0; r < WORLD; r++) {
            cr_assert_eq(served[r], i + 1, "rank %d serves %d after %d plans", r, served[r], i + 1);
        }
    }
}
