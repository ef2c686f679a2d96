/* A spec whose dtype was forgotten is zero there. It is INVALID in every function that takes one:
 * as a type of elements, it would be read past the end of the caller's buffers. */
#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <string.h>

static lierne_context *context;
static lierne_grid *grid;

static void set_up(void) {
    const mesh m = mesh_of("tcd", 1, 1, 1);
    grid = mesh_grid(&m, 1);
    assert_ok(lierne_context_create_self(&context, NULL));
}

static void tear_down(void) {
    assert_ok(lierne_context_destroy_all(context));
    lierne_grid_destroy(grid);
}

TestSuite(dtype, .init = set_up, .fini = tear_down);

static void expect_unset(lierne_status status, const void *out, const char *what) {
    const char *message = lierne_last_error();
    cr_expect_eq(status, LIERNE_ERR_INVALID, "%s: %s", what, message);
    cr_expect(strstr(message, "dtype") && strstr(message, " is 0"), "%s: %s", what, message);
    cr_expect_null(out, "%s", what);
}

#define UNSET(function, spec)                                                                      \
    {                                                                                              \
        lierne_plan *plan = (lierne_plan *)&context;                                               \
        lierne_status status = function(&plan, context, spec);                                     \
        expect_unset(status, plan, #function);                                                     \
    }

static const int64_t shape[2] = {2, 3};

static lierne_bridge_spec bridge_of(lierne_dtype dtype) {
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    spec.src = spec.dst = grid, spec.naxes = 2, spec.shape = shape, spec.dtype = dtype;
    return spec;
}

Test(dtype, a_layout_or_bridge_without_one_is_invalid) {
    const lierne_bridge_spec bridge = bridge_of(LIERNE_DTYPE_NONE);
    const lierne_megatron_spec megatron = {.size = sizeof megatron,
                                           .algorithm = LIERNE_MEGATRON_ALGORITHM_COLLECTIVE,
                                           .bridge = &bridge};
    const lierne_placement placements[3] = {0};
    const lierne_layout_spec spec = {
        .size = sizeof spec, .grid = grid, .naxes = 2, .shape = shape, .placements = placements};
    lierne_layout *layout[3] = {0};
    expect_unset(lierne_layout_create(layout, &spec), layout[0], "layout");
    expect_unset(lierne_layout_create_bridge(layout, layout + 1, layout + 2, &bridge), layout[0],
                 "layouts of a bridge");
    expect_unset(lierne_bridge_check(&bridge), NULL, "bridge_check");
    expect_unset(lierne_megatron_check(&megatron), NULL, "megatron_check");
    UNSET(lierne_plan_create_bridge, &bridge)
    UNSET(lierne_plan_create_megatron, &megatron)
}

Test(dtype, a_plan_of_rows_without_one_is_invalid) {
    const int32_t owner[2] = {0};
    const double positions[3] = {0};
    const lierne_graph_spec graph = {.size = sizeof graph, .nrows = 2, .owner = owner, .width = 1};
    const lierne_references_spec references = {.size = sizeof references, .nowned = 1, .width = 1};
    const lierne_halo_spec halo = LIERNE_HALO_SPEC_INIT;
    int32_t out;
    uint32_t code;
    UNSET(lierne_plan_create_graph, &graph)
    UNSET(lierne_plan_create_references, &references)
    UNSET(lierne_plan_create_halo, &halo)
    expect_unset(lierne_partition_morton(&out, positions, LIERNE_DTYPE_NONE, 1, 1), NULL,
                 "partition_morton");
    expect_unset(lierne_partition_morton_codes(&code, positions, LIERNE_DTYPE_NONE, 1), NULL,
                 "partition_morton_codes");
}

Test(dtype, a_collective_without_one_is_invalid) {
    const int64_t counts[1] = {1};
    const lierne_all_gather_spec gather = {.size = sizeof gather, .counts = counts};
    const lierne_reduce_scatter_spec scatter = {.size = sizeof scatter, .counts = counts};
    const lierne_all_reduce_spec reduce = {.size = sizeof reduce, .count = 1};
    const lierne_broadcast_spec broadcast = {.size = sizeof broadcast, .count = 1};
    const lierne_all_to_all_spec exchange = {.size = sizeof exchange, .count = 1};
    UNSET(lierne_plan_create_all_gather, &gather)
    UNSET(lierne_plan_create_reduce_scatter, &scatter)
    UNSET(lierne_plan_create_all_reduce, &reduce)
    UNSET(lierne_plan_create_broadcast, &broadcast)
    UNSET(lierne_plan_create_all_to_all, &exchange)
}

/* What moves nothing, or moves what a plan does, needs none. */
Test(dtype, an_operation_with_elements_needs_one) {
    const int ranks[1] = {0};
    const lierne_schedule_group_spec group = {
        .size = sizeof group, .name = "g", .uid = 1, .ranks = ranks, .nranks = 1};
    lierne_schedule *s;
    int index;
    assert_ok(lierne_schedule_create(&s, 0));
    lierne_operation_spec spec = LIERNE_OPERATION_SPEC_INIT;
    assert_ok(lierne_schedule_add_group(&spec.group, s, &group));
    spec.kind = LIERNE_OPERATION_ALL_GATHER, spec.count = 1;
    expect_unset(lierne_schedule_add_operation(&index, s, &spec), NULL, "operation");
    spec.kind = LIERNE_OPERATION_BARRIER, spec.count = 0;
    expect_ok(lierne_schedule_add_operation(&index, s, &spec));
    char *text;
    lierne_schedule_freeze(s);
    assert_ok(lierne_schedule_serialize(&text, s));
    cr_expect(!strstr(text, "dtype"), "%s", text);
    lierne_text_destroy(text);
    lierne_schedule_destroy(s);
}

Test(dtype, none_has_no_name_and_no_size) {
    lierne_dtype dtype;
    cr_expect_eq(lierne_dtype_size(LIERNE_DTYPE_NONE), 0);
    cr_expect_null(lierne_dtype_name(LIERNE_DTYPE_NONE));
    cr_expect_eq(lierne_dtype_parse(&dtype, ""), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_dtype_parse(&dtype, "none"), LIERNE_ERR_INVALID);
}
