/* Every public function that can fail is called badly: its message begins with its own name,
 * whatever inside it failed. The headers say which functions there are. */
#include "base/base.h"
#include "lierne.h"
#include "lierne/node.h"
#include "lierne/oob.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

/* Called badly where there is MPI (tests/mpi/arguments.c, rounds.c, packed_bridge.c), a transport
 * with communicators (test_group_communicators.c), CUDA (tests/cli/test_cuda.sh) or PyTorch
 * (tests/torch/deepmd.cpp).
 */
static const char *const elsewhere[] = {"lierne_context_create_mpi",
                                        "lierne_context_create_mpi_fortran",
                                        "lierne_group_destroy",
                                        "lierne_context_use_cuda",
                                        "lierne_window_destroy",
                                        "lierne_cuda_get_summary",
                                        "lierne_context_use_nccl",
                                        "lierne_context_create_nccl",
                                        "lierne_nccl_get_summary",
                                        "lierne_torch_bind",
                                        "lierne_segments_exchange_destroy",
                                        "lierne_delta_destroy"};

static char called[16384]; /* names, with a space before and after each */

static void check(const char *name, lierne_status status) {
    size_t length = strlen(name);
    const char *message = lierne_last_error();
    cr_expect_neq(status, LIERNE_OK, "%s succeeded", name);
    cr_expect(strncmp(message, name, length) == 0 && strncmp(message + length, ": ", 2) == 0,
              "%s says '%s'", name, message);
    size_t used = strlen(called);
    snprintf(called + used, sizeof called - used, " %s ", name);
}

#define BAD(name, ...) check(#name, name(__VA_ARGS__))

static bool was_called(const char *name) {
    char spaced[160];
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        if (strcmp(name, elsewhere[i]) == 0) {
            return true;
        }
    }
    snprintf(spaced, sizeof spaced, " %s ", name);
    return strstr(called, spaced) != NULL;
}

/* Checks the functions that a header declares; returns how many there are. */
static int check_header(const char *path) {
    static const char begin[] = "LIERNE_API lierne_status lierne_";
    char line[512], name[128];
    int n = 0;
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, begin, sizeof begin - 1) == 0 &&
            sscanf(line, "LIERNE_API lierne_status %127[a-z0-9_](", name) == 1) {
            cr_expect(was_called(name), "%s of %s is not called badly", name, path);
            n++;
        }
    }
    fclose(file);
    return n;
}

typedef struct world {
    lierne_grid *grid;
    lierne_sim *sim;
    lierne_context *context;
    lierne_bridge_spec bridge;
    lierne_plan *plan;
    lierne_coalesced *coalesced;
    float in[6], out[6];
} world;

static void open_world(world *w) {
    static const int64_t shape[] = {2, 3};
    w->grid = grid_of(1, 1, 1, 1);
    assert_ok(lierne_sim_create(&w->sim, 1, NULL));
    w->context = lierne_sim_get_context(w->sim, 0);
    w->bridge = (lierne_bridge_spec){.size = sizeof w->bridge,
                                     .src = w->grid,
                                     .dst = w->grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .sequence_axis = -1};
    assert_ok(lierne_plan_create_bridge(&w->plan, w->context, &w->bridge));
}

static void close_world(world *w) {
    assert_ok(lierne_coalesced_destroy(w->coalesced));
    assert_ok(lierne_plan_destroy(w->plan));
    assert_ok(lierne_sim_destroy(w->sim));
    lierne_grid_destroy(w->grid);
    cr_assert_eq(lierne_mem_live(), 0);
}

static void describe_badly(const world *w) {
    lierne_config *config = NULL;
    lierne_grid_spec grid = {.size = 1};
    lierne_bridge_spec bridge = w->bridge;
    bridge.naxes = 7;
    BAD(lierne_config_parse, &config, "{", 1);
    lierne_config_destroy(config);
    BAD(lierne_config_read, &config, "/nonexistent/x.json");
    BAD(lierne_grid_create, &(lierne_grid *){NULL}, &grid);
    BAD(lierne_grid_add_view, w->grid, NULL);
    BAD(lierne_grid_get_members, NULL, 0, NULL, NULL, 0);
    BAD(lierne_grid_get_coords, NULL, w->grid, "no such view", 0);
    BAD(lierne_grid_get_rank, NULL, w->grid, "no such view", NULL);
    BAD(lierne_grid_get_groups, NULL, NULL, NULL, w->grid, "base", NULL, 3);
    BAD(lierne_grid_get_groups_ordered, NULL, NULL, NULL, NULL, "base", NULL, 3);
    BAD(lierne_grid_get_key, NULL, 0, NULL, w->grid, "base", &(const char *){"no"}, 1);
    BAD(lierne_dtype_parse, &(lierne_dtype){LIERNE_DTYPE_F32}, "f31");
    BAD(lierne_layout_create, &(lierne_layout *){NULL}, NULL);
    BAD(lierne_layout_get_shape, NULL, NULL, 0);
    BAD(lierne_layout_get_elements, NULL, NULL, NULL, 0);
    BAD(lierne_layout_get_boxes, NULL, 0, NULL, NULL, 0);
    BAD(lierne_layout_create_surviving, &(lierne_layout *){NULL}, NULL, NULL, 0);
    BAD(lierne_layout_find_lost, NULL, 0, NULL, NULL, NULL, 0);
    BAD(lierne_redistribute_find_lost, NULL, 0, NULL, NULL, NULL, 0);
    BAD(lierne_layout_get_windows, NULL, 0, NULL, NULL, 0, 0);
    BAD(lierne_halo_from_convolution, NULL, NULL);
    BAD(lierne_layout_get_margins, NULL, 0, NULL, NULL, 0);
    BAD(lierne_halo_get_split, NULL, 0, NULL, NULL, NULL, 0);
    BAD(lierne_bridge_check, &bridge);
    BAD(lierne_bridge_check_grids, NULL);
    BAD(lierne_packed_bridge_check, NULL);
    BAD(lierne_set_check, NULL);
    BAD(lierne_delta_create, &(lierne_delta *){NULL}, NULL);
    BAD(lierne_delta_forward, NULL, NULL, NULL);
    BAD(lierne_delta_forward_begin, NULL, NULL, NULL);
    BAD(lierne_delta_forward_end, NULL);
    BAD(lierne_delta_invalidate, NULL);
    BAD(lierne_delta_set_previous, NULL, NULL);
    BAD(lierne_delta_set_stream, NULL, NULL);
    BAD(lierne_delta_get_report, NULL, NULL);
    BAD(lierne_layout_create_bridge, &(lierne_layout *){NULL}, &(lierne_layout *){NULL},
        &(lierne_layout *){NULL}, &bridge);
    BAD(lierne_route_create_redistribute, &(lierne_route *){NULL}, NULL, NULL, NULL, 0, NULL);
    BAD(lierne_route_create_set, &(lierne_route *){NULL}, NULL, NULL, 0);
    BAD(lierne_redistribute_get_bound, NULL, NULL, NULL, NULL);
    BAD(lierne_redistribute_get_node_bound, NULL, NULL, NULL, NULL);
    BAD(lierne_digest_compute, NULL, NULL, NULL, NULL);
    BAD(lierne_digest_check, NULL, NULL, NULL, NULL);
    BAD(lierne_partition_split, NULL, 3, 1);
    BAD(lierne_partition_morton, NULL, NULL, LIERNE_DTYPE_F32, 0, 0);
    BAD(lierne_partition_bisect, NULL, NULL, LIERNE_DTYPE_F32, NULL, 0, 0);
    BAD(lierne_partition_morton_codes, NULL, NULL, LIERNE_DTYPE_BF16, 0);
}

static void map_badly(const world *w) {
    lierne_bridge_spec bridge = w->bridge;
    const lierne_megatron_spec megatron = {.size = sizeof megatron,
                                           .bridge = &bridge,
                                           .algorithm = (lierne_megatron_algorithm)9};
    bridge.src_view = "no such view";
    BAD(lierne_megatron_check, &megatron);
    BAD(lierne_plan_create_megatron, &(lierne_plan *){NULL}, w->context, &megatron);
    BAD(lierne_megatron_map_create, &(lierne_megatron_map *){NULL}, &bridge);
    BAD(lierne_megatron_map_get_gather_groups, NULL, NULL, NULL, NULL);
    BAD(lierne_megatron_map_get_cp_groups, NULL, NULL, NULL, NULL);
    BAD(lierne_megatron_map_get_slice, NULL, NULL, NULL, 0, 0);
    BAD(lierne_megatron_map_get_misaligned, NULL, NULL, NULL);
    BAD(lierne_megatron_leaders_create, &(lierne_megatron_leaders *){NULL}, &bridge);
    BAD(lierne_megatron_leaders_get_ranks, NULL, NULL, NULL, 0);
    BAD(lierne_megatron_leaders_get_groups, NULL, NULL, NULL, NULL, 0);
    BAD(lierne_megatron_leaders_get_p2p_ranks, NULL, NULL, NULL);
    BAD(lierne_megatron_leaders_get_peers, NULL, NULL, NULL, NULL, NULL, 0);
}

static void use_contexts_badly(const world *w) {
    const lierne_context_spec context = {.size = sizeof context, .timeout = -1};
    const lierne_group_spec group = {.size = sizeof group, .purpose = "a space is wrong"};
    const lierne_group_spec *groups[] = {&group};
    lierne_group *created;
    lierne_context *smaller = w->context;
    BAD(lierne_context_create_self, &(lierne_context *){NULL}, &context);
    BAD(lierne_context_create_oob, &(lierne_context *){NULL}, NULL);
    BAD(lierne_context_create_node, &(lierne_context *){NULL}, &(lierne_node_spec){0});
    BAD(lierne_sim_create, &(lierne_sim *){NULL}, 1, &context);
    BAD(lierne_context_destroy, w->context);
    BAD(lierne_sim_destroy, w->sim);
    BAD(lierne_context_destroy_all, w->context);
    BAD(lierne_context_abort, w->context, LIERNE_OK, "no error");
    BAD(lierne_context_shrink, &smaller, w->context, NULL);
    cr_expect_null(smaller);
    BAD(lierne_context_get_status, NULL);
    BAD(lierne_context_progress, NULL);
    BAD(lierne_context_get_borrowed, NULL, 0, NULL, NULL);
    BAD(lierne_context_dump, NULL, 0, w->context);
    BAD(lierne_context_alloc, NULL, w->context, 1);
    BAD(lierne_context_dealloc, w->context, w->context);
    BAD(lierne_group_create, &created, w->context, &group);
    BAD(lierne_group_create_all, &created, w->context, groups, 1);
    BAD(lierne_assignment_create, &(lierne_assignment *){NULL}, NULL, NULL, 1, NULL);
    BAD(lierne_assignment_get_report, NULL, NULL);
    BAD(lierne_window_create, &(lierne_window *){NULL}, NULL, NULL);
    BAD(lierne_window_notify, NULL, NULL);
    BAD(lierne_window_wait, NULL, NULL);
}

static void move_samples_badly(const world *w) {
    const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_F32, 1};
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = 1,
                                      .ncosts = 1,
                                      .max_rows = 1,
                                      .ntensors = 1,
                                      .tensors = &tensor};
    lierne_samples *samples;
    lierne_request *request;
    lierne_plan *plan;
    BAD(lierne_samples_create, &samples, w->context, NULL);
    BAD(lierne_samples_update, NULL, NULL, NULL, NULL);
    BAD(lierne_samples_get_lists, NULL, NULL, LIERNE_SAMPLES_HOME);
    BAD(lierne_samples_get_cu_seqlens_i32, &(const int32_t *){NULL}, NULL, LIERNE_SAMPLES_HOME);
    BAD(lierne_samples_get_report, NULL, NULL);
    assert_ok(lierne_samples_create(&samples, w->context, &spec));
    BAD(lierne_samples_get_plan, &plan, samples, 1);
    assert_ok(lierne_samples_get_plan(&plan, samples, 0));
    assert_ok(lierne_plan_forward_begin(&request, plan, NULL, NULL, NULL));
    BAD(lierne_samples_destroy, samples);
    assert_ok(lierne_request_end(request));
    assert_ok(lierne_samples_destroy(samples));
}

static void plan_badly(const world *w) {
    lierne_plan *out;
    lierne_bridge_spec bridge = w->bridge;
    const lierne_brick_spec brick = {.size = sizeof brick};
    const lierne_graph_spec graph = {.size = sizeof graph, .nrows = -1};
    const lierne_references_spec references = {.size = sizeof references, .nowned = -1};
    const lierne_halo_spec halo = {.size = sizeof halo, .nlocal = -1};
    bridge.batch_axis = 5;
    BAD(lierne_plan_create_bridge, &out, w->context, &bridge);
    BAD(lierne_plan_create_redistribute, &out, w->context, NULL);
    BAD(lierne_plan_create_set, &out, w->context, NULL);
    BAD(lierne_plan_create_graph, &out, w->context, &graph);
    BAD(lierne_plan_create_references, &out, w->context, &references);
    BAD(lierne_plan_create_halo, &out, w->context, &halo);
    BAD(lierne_plan_create_restricted, &out, w->plan, NULL);
    BAD(lierne_plan_create_flattened, &out, w->plan, 0);
    BAD(lierne_plan_create_transposed, &out, NULL);
    BAD(lierne_plan_create_composed, &out, w->plan, NULL);
    BAD(lierne_plan_create_retyped, &out, w->plan, NULL);
    BAD(lierne_plan_create_fetch_and_add, &out, w->plan, NULL);
    BAD(lierne_plan_update_retyped, w->plan, w->plan);
    BAD(lierne_plan_create_migration, &out, w->context, NULL);
    BAD(lierne_plan_update_migration, w->plan, NULL);
    BAD(lierne_plan_deserialize, &out, w->context, "[]", 2);
    BAD(lierne_plan_create_all_gather, &out, w->context, NULL);
    BAD(lierne_plan_create_reduce_scatter, &out, w->context, NULL);
    BAD(lierne_plan_create_all_reduce, &out, w->context, NULL);
    BAD(lierne_plan_create_broadcast, &out, w->context, NULL);
    BAD(lierne_plan_create_all_to_all, &out, w->context, NULL);
    BAD(lierne_plan_create_barrier, &out, w->context, NULL);
    BAD(lierne_plan_serialize, &(char *){NULL}, w->plan);
    BAD(lierne_brick_create, &(lierne_brick *){NULL}, w->context, &brick);
    BAD(lierne_brick_get_swaps, NULL, NULL);
    BAD(lierne_plan_update_rows, w->plan, NULL);
    BAD(lierne_plan_update_counts, w->plan, NULL);
    BAD(lierne_plan_update_graph, w->plan, &graph);
    BAD(lierne_plan_update_shape, w->plan, NULL);
    BAD(lierne_plan_recreate, &out, w->context, NULL, NULL);
    BAD(lierne_plan_create_packed_bridge, &out, w->context, NULL);
    BAD(lierne_image_runs_find, NULL, 0, NULL, NULL, NULL, NULL, 0);
    BAD(lierne_segments_exchange_create, &(lierne_segments_exchange *){NULL}, w->context, NULL);
    BAD(lierne_segments_gather, NULL, NULL, NULL);
    BAD(lierne_plan_update_segments, w->plan, NULL);
    BAD(lierne_plan_update_documents, w->plan, 0, 1, NULL);
}

static void ask_plans_badly(const world *w) {
    const lierne_direction none = (lierne_direction)2;
    BAD(lierne_plan_get_dtype, NULL, w->plan);
    BAD(lierne_plan_get_elements, NULL, NULL, w->plan, none);
    BAD(lierne_plan_get_shape, NULL, NULL, NULL, w->plan, none);
    BAD(lierne_plan_get_alias, NULL, w->plan, LIERNE_DIRECTION_FORWARD);
    BAD(lierne_plan_get_shared_output, NULL, w->plan, LIERNE_DIRECTION_FORWARD);
    BAD(lierne_plan_get_report, NULL, w->plan, LIERNE_DIRECTION_FORWARD);
    BAD(lierne_plan_get_route, NULL, w->plan, LIERNE_DIRECTION_FORWARD);
    BAD(lierne_plan_get_graph_lists, NULL, w->plan);
    BAD(lierne_plan_get_halo_spec, NULL, w->plan);
    BAD(lierne_plan_get_halo_roots, NULL, NULL, w->plan);
    BAD(lierne_plan_print, NULL, w->plan, LIERNE_DIRECTION_FORWARD);
    BAD(lierne_plan_check, NULL, 1);
}

static void execute_badly(world *w) {
    lierne_request *request;
    const void *in = w->in;
    void *out = w->out;
    BAD(lierne_plan_forward, w->plan, w->out, NULL, NULL);
    BAD(lierne_plan_adjoint, w->plan, w->out, NULL, NULL);
    BAD(lierne_plan_reduce, w->plan, LIERNE_REDUCTION_MAX, w->out, w->in, NULL);
    BAD(lierne_plan_forward_begin, NULL, w->plan, w->out, w->in, NULL);
    BAD(lierne_plan_adjoint_begin, &request, w->plan, w->out, NULL, NULL);
    assert_ok(lierne_plan_forward_begin(&request, w->plan, w->out, w->in, NULL));
    BAD(lierne_plan_destroy, w->plan);
    BAD(lierne_sim_destroy_all, w->sim);
    BAD(lierne_request_test, NULL, request);
    assert_ok(lierne_request_end(request));
    BAD(lierne_request_end, request);
    BAD(lierne_coalesced_create, &w->coalesced, &w->plan, -1);
    assert_ok(lierne_coalesced_create(&w->coalesced, &w->plan, 1));
    BAD(lierne_coalesced_update_migration, w->coalesced, NULL);
    BAD(lierne_coalesced_get_messages, NULL, NULL, NULL, LIERNE_DIRECTION_FORWARD);
    BAD(lierne_coalesced_begin, w->coalesced, LIERNE_DIRECTION_FORWARD, NULL, &in, NULL);
    BAD(lierne_coalesced_end, w->coalesced, LIERNE_DIRECTION_ADJOINT);
    assert_ok(lierne_coalesced_begin(w->coalesced, LIERNE_DIRECTION_FORWARD, &out, &in, NULL));
    BAD(lierne_coalesced_destroy, w->coalesced);
    assert_ok(lierne_coalesced_end(w->coalesced, LIERNE_DIRECTION_FORWARD));
}

/* A run of one operation that is held. */
static lierne_run *begin_run(const world *w) {
    lierne_operation_spec local = LIERNE_OPERATION_SPEC_INIT;
    lierne_schedule *s;
    lierne_run *run;
    int index;
    local.kind = LIERNE_OPERATION_LOCAL;
    local.held = 1;
    assert_ok(lierne_schedule_create(&s, 0));
    BAD(lierne_schedule_add_group, &index, s, NULL);
    assert_ok(lierne_schedule_add_operation(&index, s, &local));
    BAD(lierne_schedule_isolate, &(lierne_schedule *){NULL}, s, NULL);
    assert_ok(lierne_schedule_freeze(s));
    BAD(lierne_schedule_add_operation, &index, s, &local);
    BAD(lierne_schedule_get_operation, NULL, s, 1);
    BAD(lierne_run_create, &run, w->context, NULL, NULL);
    assert_ok(lierne_run_create(&run, w->context, s, NULL));
    lierne_schedule_destroy(s);
    BAD(lierne_run_end, run);
    BAD(lierne_run_resume, run, 0);
    assert_ok(lierne_run_begin(run, NULL, NULL));
    return run;
}

static void hang_badly(const world *w) {
    lierne_hang hang = {.size = sizeof hang};
    char *text;
    BAD(lierne_context_get_status_json, NULL, w->context);
    BAD(lierne_context_get_summary, NULL, w->context);
    BAD(lierne_context_get_summary_json, NULL, w->context);
    BAD(lierne_context_reduce_summary, NULL, w->context);
    BAD(lierne_context_get_recorder_json, &text, NULL);
    BAD(lierne_context_get_trace, &text, NULL);
    BAD(lierne_recorder_file_get_json, &text, "no such file");
    BAD(lierne_hang_find, &hang, &text, "no such folder");
}

static void schedule_badly(const world *w) {
    lierne_run *run = begin_run(w);
    int n;
    BAD(lierne_schedule_create, NULL, 0);
    BAD(lierne_schedule_freeze, NULL);
    BAD(lierne_schedule_get_group, NULL, NULL, 0);
    BAD(lierne_schedule_check, NULL, NULL, 0, NULL, 0);
    BAD(lierne_schedule_serialize, &(char *){NULL}, NULL);
    BAD(lierne_schedule_deserialize, &(lierne_schedule **){NULL}, &n, "[]", 2);
    BAD(lierne_run_begin, run, NULL, NULL);
    BAD(lierne_run_destroy, run);
    BAD(lierne_run_test, NULL, run);
    BAD(lierne_run_get_event, NULL, run, 0);
    BAD(lierne_run_get_created, &(lierne_schedule_group){.size = sizeof(lierne_schedule_group)},
        run, 0);
    BAD(lierne_run_get_trace, &(char *){NULL}, run);
    assert_ok(lierne_run_resume(run, 0));
    assert_ok(lierne_run_end(run));
    assert_ok(lierne_run_destroy(run));
}

Test(call_names, every_message_begins_with_the_function_called) {
    world w = {.in = {1, 2, 3, 4, 5, 6}};
    glob_t headers;
    int n = 0;
    open_world(&w);
    describe_badly(&w);
    map_badly(&w);
    use_contexts_badly(&w);
    move_samples_badly(&w);
    plan_badly(&w);
    ask_plans_badly(&w);
    execute_badly(&w);
    schedule_badly(&w);
    hang_badly(&w);
    close_world(&w);
    cr_assert_eq(glob("include/lierne/*.h", 0, NULL, &headers), 0);
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        n += check_header(headers.gl_pathv[i]);
    }
    globfree(&headers);
    cr_expect_geq(n, 92, "%d functions in the headers", n);
}
