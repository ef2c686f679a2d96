/* What ranks compare: the message has the first item that differs, never a hash of it. */
#include "base/base.h"
#include "bridge_plan.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "runtime/control/field.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 2, BATCH = 4, LENGTH = 6 };

/* Two ranks plan; *spec is rank 1's. Returns what rank 1 gets. */
static lierne_status plan_both(const lierne_bridge_spec *first, const lierne_bridge_spec *second) {
    lierne_sim *sim;
    lierne_plan *plans[RANKS] = {0};
    assert_ok(lierne_sim_create(&sim, RANKS, NULL));
    assert_ok(lierne_plan_create_bridge(&plans[0], lierne_sim_get_context(sim, 0), first));
    lierne_status status =
        lierne_plan_create_bridge(&plans[1], lierne_sim_get_context(sim, 1), second);
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
    return status;
}

static void expect_mismatch(const lierne_bridge_spec *first, const lierne_bridge_spec *second,
                            const char *text) {
    cr_assert_eq(plan_both(first, second), LIERNE_ERR_MISMATCH, "%s", text);
    cr_assert_eq(strncmp(lierne_last_error(), "lierne_plan_create_bridge: ", 27), 0, "%s",
                 lierne_last_error());
    cr_assert_str_eq(lierne_last_error() + 27, text);
}

static lierne_grid *grid(const char *cp, int64_t dp) {
    const mesh m = {.ndims = 3, .names = {"tp", cp, "dp"}, .sizes = {1, RANKS / dp, dp}};
    return mesh_grid(&m, RANKS);
}

Test(field, the_first_item_that_differs_is_named) {
    static const int64_t shape[] = {BATCH, LENGTH, 3}, counts[] = {1, 3}, others[] = {2, 2};
    int32_t rows[BATCH * LENGTH], other_rows[BATCH * LENGTH];
    lierne_grid *src = grid("cp", RANKS), *dst = grid("cp", 1), *renamed = grid("ep", RANKS);
    for (int i = 0; i < BATCH * LENGTH; i++) {
        rows[i] = other_rows[i] = i % 5 % 2;
    }
    other_rows[17] = 1 - other_rows[17];
    lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
    spec.src_counts = counts;
    spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    spec.row_owner = rows;
    lierne_bridge_spec other = spec;
    other.max_inflight = 1;
    cr_assert_eq(plan_both(&spec, &other), LIERNE_OK, "0 and 1 mean the same");
    other.max_inflight = 2;
    expect_mismatch(&spec, &other, "max_inflight differs between ranks: 1 on rank 0, 2 on rank 1");
    other = spec, other.row_owner = other_rows;
    expect_mismatch(&spec, &other, "row_owner[17] differs between ranks: 0 on rank 0, 1 on rank 1");
    other = spec, other.src_counts = others;
    expect_mismatch(&spec, &other, "src_counts[0] differs between ranks: 1 on rank 0, 2 on rank 1");
    other = spec, other.src_counts = NULL;
    expect_mismatch(&spec, &other,
                    "src_counts differs between ranks: 2 entries on rank 0, NULL on rank 1");
    other = spec, other.dtype = LIERNE_DTYPE_BF16;
    expect_mismatch(&spec, &other,
                    "dtype differs between ranks: 'f32' on rank 0, 'bf16' on rank 1");
    other = spec, other.src = renamed;
    expect_mismatch(&spec, &other,
                    "src.dim[1].name differs between ranks: 'cp' on rank 0, 'ep' on rank 1");
    lierne_grid_destroy(src), lierne_grid_destroy(dst), lierne_grid_destroy(renamed);
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(field, as_many_are_printed_as_there_are) {
    const lierne_field fields[2] = {{.name = "count", .value = 3}, {.name = "another", .value = 4}};
    lierne_text text = {0};
    lierne_fields_print(&text, fields, 1);
    cr_assert_str_eq(text.data, "count 3");
    lierne_text_clear(&text);
}
