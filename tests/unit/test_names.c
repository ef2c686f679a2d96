/* Names of contexts, grids and plans: which planners take them, where they appear, and what is no
 * name. */
#include "base/base.h"
#include "bridge_plan.h"
#include "collectives.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "unit/expect.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "vision \"to\" llm"

static void expect_name(const char *planner, lierne_status status, lierne_plan *plan) {
    cr_expect(status == LIERNE_OK && lierne_plan_get_name(plan) &&
                  strcmp(lierne_plan_get_name(plan), NAME) == 0,
              "%s: %s", planner, lierne_last_error());
    assert_ok(lierne_plan_destroy(plan));
}
#define NAMED(planner, ...)                                                                        \
    do {                                                                                           \
        lierne_plan *named_ = NULL;                                                                \
        lierne_status status_ = lierne_plan_create_##planner(&named_, __VA_ARGS__);                \
        expect_name(#planner, status_, named_);                                                    \
    } while (0)

/* A name of the caller's that does not outlive the planning. */
static char *own_name(void) {
    char *name = malloc(sizeof NAME);
    memcpy(name, NAME, sizeof NAME);
    return name;
}

static void name_collectives(lierne_context *context, const char *name) {
    const int64_t one[] = {1};
    lierne_all_gather_spec gather = all_gather_of(1, LIERNE_DTYPE_F32);
    lierne_reduce_scatter_spec scatter = reduce_scatter_of(1, LIERNE_DTYPE_F32);
    lierne_all_reduce_spec reduce = all_reduce_of(1, LIERNE_DTYPE_F32, 0);
    lierne_broadcast_spec broadcast = broadcast_of(1, LIERNE_DTYPE_F32);
    lierne_all_to_all_spec all = all_to_all_of(1, LIERNE_DTYPE_F32);
    lierne_barrier_spec barrier = {.size = sizeof barrier, .name = name};
    gather.name = scatter.name = reduce.name = broadcast.name = all.name = name;
    NAMED(all_gather, context, &gather);
    NAMED(reduce_scatter, context, &scatter);
    NAMED(all_reduce, context, &reduce);
    NAMED(broadcast, context, &broadcast);
    NAMED(all_to_all, context, &all);
    all.send_counts = one, all.count = 0;
    NAMED(all_to_all, context, &all);
    NAMED(barrier, context, &barrier);
}

static void name_rows(lierne_context *context, char *name) {
    const int32_t owner[] = {0, 0}, zero[] = {0};
    const int64_t edge[] = {1};
    lierne_graph_spec graph = {.size = sizeof graph,
                               .nrows = 2,
                               .owner = owner,
                               .nedges = 1,
                               .source = edge,
                               .target = edge,
                               .dtype = LIERNE_DTYPE_F32,
                               .width = 1,
                               .name = name};
    const lierne_references_spec references = {.size = sizeof references,
                                               .nowned = 2,
                                               .nghosts = 1,
                                               .rank = zero,
                                               .row = edge,
                                               .dtype = LIERNE_DTYPE_F32,
                                               .width = 1,
                                               .name = name};
    lierne_halo_spec halo = {
        .size = sizeof halo, .nlocal = 2, .dtype = LIERNE_DTYPE_F32, .width = 1, .name = name};
    const uint8_t keep[] = {1, 0};
    lierne_plan *plan, *halo_plan;
    NAMED(references, context, &references);
    assert_ok(lierne_plan_create_graph(&plan, context, &graph));
    assert_ok(lierne_plan_create_halo(&halo_plan, context, &halo));
    const lierne_retyped_spec retyped = {.size = sizeof retyped,
                                         .dtype = LIERNE_DTYPE_I64,
                                         .width = 2,
                                         .name = name};
    NAMED(retyped, plan, &retyped);
    const lierne_fetch_and_add_spec fetch = {.size = sizeof fetch,
                                             .dtype = LIERNE_DTYPE_I64,
                                             .width = 2,
                                             .name = name};
    NAMED(fetch_and_add, plan, &fetch);
    const lierne_migration_spec migration = {.size = sizeof migration,
                                             .dtype = LIERNE_DTYPE_I64,
                                             .width = 2,
                                             .name = name};
    NAMED(migration, context, &migration);
    free(name);
    graph.name = NULL;
    assert_ok(lierne_plan_update_graph(plan, &graph));
    NAMED(transposed, plan);
    expect_name("an updated graph", LIERNE_OK, plan);
    NAMED(restricted, halo_plan, keep);
    NAMED(flattened, halo_plan, 0);
    assert_ok(lierne_plan_get_halo_spec(&halo, halo_plan));
    cr_expect_str_eq(halo.name, NAME);
    assert_ok(lierne_plan_destroy(halo_plan));
}

static void name_layouts(lierne_context *context, const char *name) {
    static const int64_t shape[3] = {1, 2, 2};
    lierne_grid *grid = grid_of(1, 1, 1, 1);
    lierne_bridge_spec bridge = bridge_spec_of(grid, grid, shape);
    bridge.name = name;
    const lierne_megatron_spec megatron = {.size = sizeof megatron,
                                           .algorithm = LIERNE_MEGATRON_ALGORITHM_COLLECTIVE,
                                           .bridge = &bridge};
    lierne_layout *layouts[3] = {NULL, NULL, NULL};
    assert_ok(lierne_layout_create_bridge(&layouts[0], &layouts[1], &layouts[2], &bridge));
    const lierne_layout *const list[] = {layouts[0]};
    const lierne_redistribute_spec move = {.size = sizeof move,
                                           .src = layouts[0],
                                           .dst = layouts[0],
                                           .name = name};
    const lierne_set_spec set = {
        .size = sizeof set, .ntensors = 1, .src = list, .dst = list, .name = name};
    NAMED(bridge, context, &bridge);
    NAMED(megatron, context, &megatron);
    NAMED(redistribute, context, &move);
    NAMED(set, context, &set);
    for (int i = 0; i < 3; i++) {
        lierne_layout_destroy(layouts[i]);
    }
    lierne_grid_destroy(grid);
}

/* One image of one row, which is the only token. */
static void name_packed(lierne_context *context, const char *name) {
    static const int64_t ends[] = {0, 1}, shape[] = {1, 1};
    const lierne_placement placements[LIERNE_MAX_DIMS] = {{0}};
    const lierne_segments segments = {.size = sizeof segments, .nsegments = 1, .cu_seqlens = ends};
    const lierne_packing packing = {.size = sizeof packing};
    const lierne_image_run run = {.length = 1};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = grid_of(1, 1, 1, 1),
                               .naxes = 2,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_F32,
                               .placements = placements,
                               .segments = &segments,
                               .packing = &packing};
    lierne_layout *layout;
    assert_ok(lierne_layout_create(&layout, &spec));
    const lierne_packed_bridge_spec bridge = {.size = sizeof bridge,
                                              .src = layout,
                                              .dst = layout,
                                              .runs = &run,
                                              .nruns = 1,
                                              .name = name};
    NAMED(packed_bridge, context, &bridge);
    lierne_layout_destroy(layout);
    lierne_grid_destroy((lierne_grid *)spec.grid);
}

Test(names, every_planner_takes_one) {
    lierne_context *context;
    const lierne_context_spec spec = {.size = sizeof spec, .name = "training"};
    assert_ok(lierne_context_create_self(&context, &spec));
    cr_expect_str_eq(lierne_context_get_name(context), "training");
    char *name = own_name();
    name_collectives(context, name);
    name_layouts(context, name);
    name_packed(context, name);
    name_rows(context, name);
    cr_expect_null(lierne_plan_get_name(NULL));
    cr_expect_null(lierne_context_get_name(NULL));
    cr_expect_null(lierne_grid_get_name(NULL));
    assert_ok(lierne_context_destroy(context));
    cr_expect_eq(lierne_mem_live(), 0);
}

enum { RANKS = 2 };
typedef struct world {
    lierne_sim *sim;
    lierne_context *contexts[RANKS];
    lierne_plan *plans[RANKS];
    lierne_request *requests[RANKS];
    int32_t in[RANKS], out[RANKS][RANKS];
} world;

static void open_world(world *w) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 0.2, .name = "training"};
    lierne_all_gather_spec gather = all_gather_of(1, LIERNE_DTYPE_I32);
    char *name = own_name();
    gather.name = name;
    assert_ok(lierne_sim_create(&w->sim, RANKS, &spec));
    for (int r = 0; r < RANKS; r++) {
        w->contexts[r] = lierne_sim_get_context(w->sim, r);
        assert_ok(lierne_plan_create_all_gather(&w->plans[r], w->contexts[r], &gather));
    }
    free(name);
}

static void gather(world *w, int ranks) {
    for (int r = 0; r < ranks; r++) {
        assert_ok(
            lierne_plan_forward_begin(&w->requests[r], w->plans[r], w->out[r], &w->in[r], NULL));
    }
    for (int r = 0; r < ranks && ranks == RANKS; r++) {
        assert_ok(lierne_request_end(w->requests[r]));
    }
}

static void expect_text(const char *where, const char *text, const char *words) {
    cr_expect(strstr(text, words), "%s: '%s' is not in '%s'", where, words, text);
}

static void expect_json(lierne_status (*write)(char **, const lierne_context *), const char *where,
                        const lierne_context *context, const char *words, const char *list) {
    char *text;
    assert_ok(write(&text, context));
    size_t size = strlen(text) + 3;
    char *whole = malloc(size);
    snprintf(whole, size, list ? "[%s]" : "%s", text);
    cJSON *json = cJSON_Parse(whole);
    cr_expect(json, "%s: %s", where, text);
    expect_text(where, text, words);
    cJSON_Delete(json);
    free(whole);
    lierne_text_destroy(text);
}

Test(names, calls_are_named_in_dumps_traces_and_errors) {
    static char text[8192];
    world w = {0};
    open_world(&w);
    gather(&w, RANKS);
    assert_ok(lierne_context_dump(text, sizeof text, w.contexts[1]));
    expect_text("dump", text, "forward 0 of plan 0 '" NAME "', LIERNE_OK");
    expect_text("dump", text, "context 'training'");
    expect_json(lierne_context_get_recorder_json, "recorder", w.contexts[1],
                "\"name\":\"training\",\"plans\":{\"0\":\"vision \\u0022to\\u0022 llm\"}", NULL);
    expect_json(lierne_context_get_trace, "trace", w.contexts[1],
                "\"forward 0 of plan 0 'vision \\u0022to\\u0022 llm'\"", "");
    expect_json(lierne_context_get_trace, "trace", w.contexts[1],
                "\"plan 0 'vision \\u0022to\\u0022 llm': all_gather\"", "");
    assert_error(lierne_plan_forward(w.plans[0], NULL, w.in, NULL), LIERNE_ERR_INVALID,
                 "lierne_plan_forward: plan '" NAME "': rank 0: forward: out is NULL");
    gather(&w, 1);
    expect_json(lierne_context_get_status_json, "status", w.contexts[0],
                "\"plan\":0,\"name\":\"vision \\u0022to\\u0022 llm\",\"number\":1", NULL);
    assert_error(lierne_request_end(w.requests[0]), LIERNE_ERR_TIMEOUT,
                 "forward 1 of plan 0 '" NAME "', stage 0 of 1");
    assert_ok(lierne_sim_destroy_all(w.sim));
    cr_expect_eq(lierne_mem_live(), 0);
}

Test(names, calls_of_one_rank_have_their_plans_names) {
    static char text[8192];
    lierne_all_gather_spec specs[2] = {all_gather_of(1, LIERNE_DTYPE_I32),
                                       all_gather_of(1, LIERNE_DTYPE_I32)};
    lierne_context *context;
    lierne_plan *plans[2];
    int32_t in = 1, out;
    specs[0].name = "first", specs[1].name = "second";
    assert_ok(lierne_context_create_self(&context, NULL));
    for (int i = 0; i < 2; i++) {
        assert_ok(lierne_plan_create_all_gather(&plans[i], context, &specs[i]));
    }
    assert_ok(lierne_plan_forward(plans[1], &out, &in, NULL));
    assert_ok(lierne_context_dump(text, sizeof text, context));
    expect_text("dump", text, "forward 0 of plan 1 'second', LIERNE_OK");
    assert_ok(lierne_context_destroy_all(context));
}

static void forget(const char *folder) {
    char path[256];
    for (int r = 0; r < RANKS; r++) {
        snprintf(path, sizeof path, "%s/rank%d-%ld-0.lierne", folder, r, (long)getpid());
        cr_expect_eq(remove(path), 0, "%s", path);
    }
    cr_expect_eq(rmdir(folder), 0);
}

Test(names, the_report_of_a_hang_names_the_call) {
    char folder[] = "/tmp/lierne-names-XXXXXX", *text;
    lierne_hang hang = {.size = sizeof hang};
    world w = {0};
    cr_assert(mkdtemp(folder));
    setenv("LIERNE_DUMP_DIR", folder, 1);
    open_world(&w);
    gather(&w, RANKS);
    gather(&w, 1);
    cr_assert_eq(lierne_request_end(w.requests[0]), LIERNE_ERR_TIMEOUT);
    assert_ok(lierne_hang_find(&hang, &text, folder));
    expect_text("hang", text, "rank 1 did not begin forward 1 of plan 0 '" NAME "'\n");
    expect_text("hang", text, "rank 0: in forward 1 of plan 0 '" NAME "', stage 0 of 1");
    expect_text("hang", text, "in context 'training'\n");
    lierne_text_destroy(text);
    assert_ok(lierne_sim_destroy_all(w.sim));
    forget(folder);
}

/* Plans of ranks that have the same specs, and another order: the names differ. */
Test(names, ranks_must_agree_on_them) {
    lierne_all_gather_spec specs[2] = {all_gather_of(1, LIERNE_DTYPE_I32),
                                       all_gather_of(1, LIERNE_DTYPE_I32)};
    lierne_sim *sim;
    lierne_plan *plan;
    specs[0].name = "weights", specs[1].name = "gradients";
    assert_ok(lierne_sim_create(&sim, RANKS, NULL));
    assert_ok(lierne_plan_create_all_gather(&plan, lierne_sim_get_context(sim, 0), &specs[0]));
    assert_error(lierne_plan_create_all_gather(&plan, lierne_sim_get_context(sim, 1), &specs[1]),
                 LIERNE_ERR_MISMATCH, "plan 'gradients': ");
    assert_says("name");
    assert_ok(lierne_sim_destroy_all(sim));
}

Test(names, what_is_no_name) {
    char longest[LIERNE_MAX_NAME + 2];
    const char *const wrong[] = {"", "a\nb", "\x7f", "\xc3", longest};
    lierne_context *context, *other = NULL;
    lierne_grid *grid = NULL;
    lierne_all_gather_spec gather = all_gather_of(1, LIERNE_DTYPE_I32);
    lierne_context_spec spec = {.size = sizeof spec};
    lierne_grid_spec g = {.size = sizeof g, .world_size = 1};
    lierne_plan *plan;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_ok(lierne_context_create_self(&context, NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gather.name = spec.name = g.name = wrong[i];
        assert_error(lierne_plan_create_all_gather(&plan, context, &gather), LIERNE_ERR_INVALID,
                     "lierne_plan_create_all_gather: rank 0: name is '");
        assert_error(lierne_context_create_self(&other, &spec), LIERNE_ERR_INVALID, "name is '");
        assert_error(lierne_grid_create(&grid, &g), LIERNE_ERR_INVALID, "name is '");
    }
    longest[sizeof longest - 2] = '\0';
    gather.name = longest;
    assert_ok(lierne_plan_create_all_gather(&plan, context, &gather));
    cr_expect_str_eq(lierne_plan_get_name(plan), longest);
    assert_ok(lierne_context_destroy_all(context));
}

Test(names, errors_name_the_grid_and_the_plan) {
    static const char *const dims[] = {"tp"};
    static const int64_t sizes[] = {0}, two[] = {1}, shape[3] = {1, 2, 2};
    lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = dims, .sizes = sizes, .world_size = 1};
    lierne_grid *grid = NULL;
    lierne_context *context;
    lierne_plan *plan;
    int coords[1];
    spec.name = "vision";
    assert_error(lierne_grid_create(&grid, &spec), LIERNE_ERR_DIM_SIZE, "grid 'vision': ");
    spec.sizes = two;
    assert_ok(lierne_grid_create(&grid, &spec));
    cr_expect_str_eq(lierne_grid_get_name(grid), "vision");
    assert_error(lierne_grid_get_coords(coords, grid, "expert", 0), LIERNE_ERR_UNKNOWN_VIEW,
                 "grid 'vision': view 'expert'");
    assert_ok(lierne_context_create_self(&context, NULL));
    lierne_bridge_spec bridge = bridge_spec_of(grid, grid, shape);
    bridge.name = NAME;
    cr_expect_neq(lierne_plan_create_bridge(&plan, context, &bridge), LIERNE_OK);
    expect_says("lierne_plan_create_bridge: plan '" NAME "': ");
    assert_ok(lierne_context_destroy(context));
    lierne_grid_destroy(grid);
    cr_expect_eq(lierne_mem_live(), 0);
}
