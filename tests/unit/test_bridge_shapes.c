/* Every way in which the destination's dims cut the sequence, by every owner, storage and output,
 * in every order of the dims: the gradient has the output's shape, unless it is compact, and the
 * values are right; or the bridge is rejected with the reason. */
#include "unit/bridge_case.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, SEQUENCE = 16, HIDDEN = 4, CUTS = 4 };

static const char *const names[4] = {"tp", "cp", "ep", "dp"};

/* How a dim that has no meaning of its own lies: not, cutting s, cutting s in zigzag, cutting h. */
static lierne_placement cut_of(int cut) {
    static const lierne_placement_kind kinds[CUTS] = {LIERNE_PLACEMENT_REPLICATE,
                                                      LIERNE_PLACEMENT_SHARD,
                                                      LIERNE_PLACEMENT_SHARD_ZIGZAG,
                                                      LIERNE_PLACEMENT_SHARD};
    return (lierne_placement){.kind = kinds[cut], .axis = cut == 3 ? 2 : cut != 0};
}

static bool cuts_sequence(int cut) {
    return cut == 1 || cut == 2;
}

/* The destination's dims in an order (0 to 23), placed. */
static void set_destination(bridge_case *c, int order, const int64_t *sizes, int tp, int ep) {
    int left[4] = {0, 1, 2, 3};
    c->dst = (mesh){.ndims = 4};
    for (int d = 0, n = 24; d < 4; d++) {
        n /= 4 - d;
        int pick = order / n;
        order %= n;
        int dim = left[pick];
        memmove(left + pick, left + pick + 1, (size_t)(3 - pick) * sizeof *left);
        c->dst.names[d] = names[dim];
        c->dst.sizes[d] = sizes[dim];
        c->dst_placed[d] = dim == 0 ? cut_of(tp) : dim == 2 ? cut_of(ep) : cut_of(0);
    }
}

/* Why a case must be rejected, a part of the message; NULL if it must not. */
static const char *rejection(const bridge_case *c, bool cut) {
    bool partial = c->owner == LIERNE_GRADIENT_OWNER_PARTIAL,
         rows = c->owner == LIERNE_GRADIENT_OWNER_ROWS;
    if (partial && c->output == LIERNE_BRIDGE_OUTPUT_SHARDED) {
        return "gradient_owner other than partial";
    }
    if (partial && c->storage == LIERNE_STORAGE_COMPACT) {
        return "storage cannot be compact";
    }
    if (!partial && !rows && cut && c->output == LIERNE_BRIDGE_OUTPUT_WHOLE) {
        return "output must be 1 (sharded)";
    }
    if (rows && c->storage == LIERNE_STORAGE_COMPACT && abs(c->axis_b - c->axis_s) != 1) {
        return "neighbouring";
    }
    return NULL;
}

static int judge(const bridge_case *c, const char *reason, const char *text) {
    case_result result;
    const char *wrong = run_case(c, &result);
    if (reason) {
        cr_assert_eq(result.status, LIERNE_ERR_INVALID, "%s: %s", text, result.message);
        cr_assert(strstr(result.message, reason), "%s: '%s' is not in '%s'", text, reason,
                  result.message);
    } else {
        cr_assert(!wrong, "%s: %s", text, wrong);
        cr_assert_eq(result.status, LIERNE_OK, "%s: %s", text, result.message);
        cr_assert_eq(result.received, result.minimum, "%s", text);
        cr_assert_eq(result.adjoint_received, result.adjoint_minimum, "%s", text);
    }
    free_result(&result);
    return reason == NULL;
}

/* All owners, storages and deliveries of a destination; returns how many were planned. */
static int try_destination(bridge_case *c, bool cut, bool zigzag, const char *where) {
    int planned = 0;
    for (int i = 0; i < 16; i++) {
        char text[160];
        c->owner = (lierne_gradient_owner)(i / 4);
        c->storage = (lierne_storage)(i % 2);
        c->output = (lierne_bridge_output)(i / 2 % 2);
        if (zigzag && c->owner == LIERNE_GRADIENT_OWNER_ZIGZAG) {
            continue; /* an axis may be cut so once: another rule's test */
        }
        int32_t map[BATCH * SEQUENCE];
        for (int k = 0; k < BATCH * SEQUENCE; k++) {
            map[k] = (int32_t)((k * 7 + k / 5) % 3 % mesh_size(&c->dst, "cp"));
        }
        c->rows = c->owner == LIERNE_GRADIENT_OWNER_ROWS ? map : NULL;
        snprintf(text, sizeof text, "%s, owner %d storage %d output %d axes %d%d%d", where,
                 (int)c->owner, (int)c->storage, (int)c->output, c->axis_b, c->axis_s, c->axis_h);
        planned += judge(c, rejection(c, cut), text);
    }
    return planned;
}

static void all_destinations(int64_t cp) {
    static const int axes[6][3] = {{0, 1, 2}, {1, 0, 2}, {2, 1, 0},
                                   {0, 2, 1}, {1, 2, 0}, {2, 0, 1}};
    const int64_t sizes[4] = {2, cp, 2, 2};
    int planned = 0, n = 0;
    for (int order = 0; order < 24; order++) {
        for (int cuts = 0; cuts < CUTS * CUTS; cuts++, n++) {
            int tp = cuts % CUTS, ep = cuts / CUTS;
            bridge_case c = {.world = (int)(8 * cp),
                             .batch = BATCH,
                             .sequence = SEQUENCE,
                             .hidden = HIDDEN,
                             .axis_b = axes[n % 6][0],
                             .axis_s = axes[n % 6][1],
                             .axis_h = axes[n % 6][2],
                             .dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + n % 8),
                             .placed = 1};
            char where[96];
            if (tp == 2 && ep == 2) {
                continue;
            }
            c.src = (mesh){.ndims = 2, .names = {"tp", "dp"}, .sizes = {2 * cp, 4}};
            set_destination(&c, order, sizes, tp, ep);
            snprintf(where, sizeof where, "order %d cp %d cuts tp %d ep %d", order, (int)cp, tp,
                     ep);
            planned += try_destination(&c, cuts_sequence(tp) || cuts_sequence(ep),
                                       tp == 2 || ep == 2, where);
        }
    }
    cr_assert_gt(planned, 2000);
    printf("cp %d: %d bridges planned\n", (int)cp, planned);
}

Test(bridge_shapes, gradient_and_output_over_cp_1) {
    all_destinations(1);
}
Test(bridge_shapes, gradient_and_output_over_cp_2) {
    all_destinations(2);
}

/* The case that had 12 elements in the output and 24 in its gradient, with rows counted by hand: tp
 * 2 cuts a sequence of 4 rows of 3 elements, 2 samples; a dp rank has one sample, cp 2 owns by
 * turns.
 */
Test(bridge_shapes, rows_of_a_sequence_that_tp_shards) {
    const int64_t shape[3] = {2, 4, 3};
    const int32_t map[8] = {0, 1, 0, 1, 1, 0, 1, 0};
    const lierne_placement placed[3] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1}};
    lierne_grid *src = grid_of(4, 1, 1, 4), *dst = grid_of(2, 2, 1, 4);
    lierne_sim *sim;
    lierne_plan *plan;
    lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
    spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    spec.row_owner = map;
    spec.dst_placements = placed;
    assert_ok(lierne_sim_create(&sim, 4, NULL));
    for (int output = 0; output < 2; output++) {
        spec.output = (lierne_bridge_output)output;
        for (int r = 0; r < 4; r++) {
            int64_t out, gradient, at[4], lies[4];
            assert_ok(lierne_plan_create_bridge(&plan, lierne_sim_get_context(sim, r), &spec));
            lierne_plan_get_elements(NULL, &out, plan, LIERNE_DIRECTION_FORWARD);
            lierne_plan_get_elements(&gradient, NULL, plan, LIERNE_DIRECTION_ADJOINT);
            cr_assert(out == 12 && gradient == 12, "%d and %d elements", (int)out, (int)gradient);
            lierne_plan_get_shape(NULL, NULL, at, plan, LIERNE_DIRECTION_FORWARD);
            lierne_plan_get_shape(NULL, lies, NULL, plan, LIERNE_DIRECTION_ADJOINT);
            cr_assert(at[0] == 2 && at[1] == 2 && at[2] == 3);
            cr_assert(lies[0] == 2 && lies[1] == 2 && lies[2] == 3);
            lierne_plan_destroy(plan);
        }
    }
    assert_ok(lierne_sim_destroy(sim));
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}
