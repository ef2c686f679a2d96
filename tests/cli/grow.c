/* Every public struct with a size, of a program whose headers have larger or smaller ones than the
 * library. test_grow.sh makes these headers, as all.h: LARGER has a field `grown` at the end of
 * each struct, SMALLER lacks the last fields. A world of one rank. */
#include "grow.h"
#define PREPARE(box) (memset(&(box), 0xa5, sizeof(box)), (box).value.size = sizeof((box).value))
#define AFTER(name, box)                                                                           \
    do {                                                                                           \
        UNTOUCHED(name, box);                                                                      \
        expect_true(name " keeps its size", (box).value.size == sizeof((box).value));              \
        for (size_t i_ = 0; i_ < sizeof((box).after); i_++) {                                      \
            if ((box).after[i_] != 0xa5) {                                                         \
                expect_true(name " was written behind its end", false);                            \
                break;                                                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#ifdef SMALLER
#define SHORT(text) text
#else
#define SHORT(text) NULL
#endif

static lierne_context *context;
static lierne_grid *grid;
static const char *const names[] = {"tp", "dp"};
static const int64_t ones[] = {1, 1}, shape[] = {2, 3};
static const int zero = 0;

/* From a grid that is always complete: a smaller program cannot make one. */
static void grids(const lierne_grid *complete) {
    BOX(lierne_grid_spec) box;
    PREPARE(box); /* what lies behind the struct is not zero */
    box.value =
        (lierne_grid_spec){.size = sizeof box.value, .ndims = 2, .names = names, .sizes = ones};
#ifndef SMALLER
    box.value.world_size = 1;
#endif
    lierne_grid *made = NULL;
    TRY("grid", box.value, SHORT("world_size is 0,"),
        (lierne_grid_destroy(made), lierne_grid_create(&made, &box.value)));
    lierne_grid_destroy(made);
    lierne_view_spec v = {
        .size = sizeof v, .name = "other", .ndims = 2, .names = names, .sizes = ones};
    static char views[3][8] = {"one", "two", "three"};
    int i = 0;
    TRY("view", v, NULL, (v.name = views[i++], lierne_grid_add_view((lierne_grid *)complete, &v)));
}

static void contexts(void) {
    lierne_context_spec c = {.size = sizeof c, .timeout = 5};
    lierne_context *made = NULL;
    lierne_sim *sim = NULL;
    TRY("context", c, NULL, (lierne_context_destroy(made), lierne_context_create_self(&made, &c)));
    lierne_context_destroy(made);
    TRY("sim", c, NULL, (lierne_sim_destroy(sim), lierne_sim_create(&sim, 1, &c)));
    lierne_sim_destroy(sim);
    lierne_group_spec g = {.size = sizeof g, .purpose = "grow", .ngroups = 1, .group_size = 1};
#ifndef SMALLER
    g.ranks = &zero;
#endif
    lierne_group *group = NULL;
    TRY("group", g, SHORT("ranks of spec 0 is NULL"),
        (lierne_group_destroy(group), lierne_group_create(&group, context, &g)));
    lierne_group_destroy(group);
    lierne_window_spec w = {.size = sizeof w};
#ifndef SMALLER
    w.bytes = 64;
#endif
    lierne_window *window = NULL;
    TRY("window", w, SHORT("bytes is 0"),
        (lierne_window_destroy(window), lierne_window_create(&window, context, &w)));
    lierne_window_destroy(window);
}

static lierne_layout *layout(void) {
    const lierne_placement placements[2] = {0};
    lierne_layout_spec l = {.size = sizeof l,
                            .grid = grid,
                            .naxes = 2,
                            .shape = shape,
                            .dtype = LIERNE_DTYPE_F32,
                            .placements = placements};
    lierne_layout *made = NULL;
    TRY("layout", l, NULL, (lierne_layout_destroy(made), lierne_layout_create(&made, &l)));
    return made ? made : (lierne_layout_create(&made, &l), made);
}

/* New segments for a plan from a packed layout to one that is not. */
static void update(const lierne_layout *src, const lierne_layout_spec *plain,
                   const lierne_segments *segments, const lierne_packing *packing) {
    lierne_layout *dst = NULL;
    lierne_plan *plan = NULL;
    expect("plain", lierne_layout_create(&dst, plain), LIERNE_OK, NULL);
    struct {
        lierne_redistribute_spec spec;
        int64_t last;
    } r = {.spec = {.size = sizeof r.spec, .src = src, .dst = dst, .max_segments = 1}};
    lierne_segments_update u = {.size = sizeof u, .segments = segments, .src = packing};
#ifdef SMALLER
    r.last = 8;
    r.spec.size = sizeof r;
#else
    r.spec.max_rows = 8;
#endif
    expect("changing", lierne_plan_create_redistribute(&plan, context, &r.spec), LIERNE_OK, NULL);
    TRY("segments update", u, NULL, lierne_plan_update_segments(plan, &u));
    lierne_plan_destroy(plan);
    lierne_layout_destroy(dst);
}

/* A bridge from a packed layout to itself, and its segments gathered. */
static void joined(const lierne_layout *tokens) {
    const lierne_image_run run = {.length = 4};
    const int64_t four[] = {4};
    BOX(lierne_gathered_segments) all;
    lierne_packed_bridge_spec b = {
        .size = sizeof b, .src = tokens, .dst = tokens, .runs = &run, .nruns = 1};
    lierne_segments_exchange_spec e = {.size = sizeof e, .max_segments = 1};
    const lierne_own_segments own = {.size = sizeof own, .nsegments = 1, .lengths = four};
    lierne_segments_exchange *exchange = NULL;
    lierne_plan *plan = NULL;
    TRY("packed bridge", b, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_packed_bridge(&plan, context, &b)));
    TRY("packed bridge check", b, NULL, lierne_packed_bridge_check(&b));
    lierne_plan_destroy(plan);
    TRY("segments exchange", e, NULL,
        (lierne_segments_exchange_destroy(exchange),
         lierne_segments_exchange_create(&exchange, context, &e)));
    lierne_segments_exchange_destroy(exchange);
    expect("exchange", lierne_segments_exchange_create(&exchange, context, &e), LIERNE_OK, NULL);
    PREPARE(all);
    expect("gather", lierne_segments_gather(&all.value, exchange, &own), LIERNE_OK, NULL);
    expect_true("segments are gathered", all.value.cu_seqlens[1] == 4);
    AFTER("gathered segments", all);
    lierne_segments_exchange_destroy(exchange);
}

/* A layout of one segment of 4 tokens. Of the smaller structs only the one that is looked at lacks
 * its last field; the others have it behind them. */
static void packed(void) {
    const int64_t boundaries[] = {0, 4}, tokens[] = {4};
    const lierne_placement placements[2] = {0};
    struct {
        lierne_segments spec;
        const int64_t *last;
    } s = {.spec = {.size = sizeof s.spec, .nsegments = 1}};
    lierne_packing p = {.size = sizeof p, .align = 8};
    lierne_layout_spec l = {.size = sizeof l,
                            .grid = grid,
                            .naxes = 1,
                            .shape = tokens,
                            .dtype = LIERNE_DTYPE_F32,
                            .placements = placements,
                            .segments = &s.spec,
                            .packing = &p};
#ifndef SMALLER
    s.spec.cu_seqlens = boundaries;
#endif
    lierne_layout *made = NULL;
    TRY("segments", s.spec, SHORT("cu_seqlens is NULL"),
        (lierne_layout_destroy(made), lierne_layout_create(&made, &l)));
#ifdef SMALLER
    s.last = boundaries;
    s.spec.size = sizeof s;
#endif
    TRY("packing", p, NULL, (lierne_layout_destroy(made), lierne_layout_create(&made, &l)));
    expect("packing again", (lierne_layout_destroy(made), lierne_layout_create(&made, &l)),
           LIERNE_OK, NULL);
    joined(made);
    l.segments = NULL;
    l.packing = NULL;
    update(made, &l, &s.spec, &p);
    lierne_layout_destroy(made);
}

/* The same items, on the ranks of a context. */
static void routed(const lierne_items *items, const lierne_balance_spec *balance) {
    const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_F32, 1};
    lierne_samples_spec spec = {.size = sizeof spec,
                                .max_local_items = 1,
                                .ncosts = 1,
                                .max_rows = 3,
                                .ntensors = 1,
                                .tensors = &tensor};
    BOX(lierne_samples_lists) lists;
    lierne_samples *made = NULL;
    TRY("samples", spec, NULL,
        (lierne_samples_destroy(made), lierne_samples_create(&made, context, &spec)));
    lierne_samples_destroy(made);
    expect("samples", lierne_samples_create(&made, context, &spec), LIERNE_OK, NULL);
    expect("update", lierne_samples_update(made, items, balance, NULL), LIERNE_OK, NULL);
    PREPARE(lists);
    expect("lists", lierne_samples_get_lists(&lists.value, made, LIERNE_SAMPLES_DISPATCHED),
           LIERNE_OK, NULL);
    expect_true("lists are filled", lists.value.cu_seqlens[1] == 3);
    AFTER("lists", lists);
    expect("destroy", lierne_samples_destroy(made), LIERNE_OK, NULL);
}

static void samples(void) {
    const int64_t cost[] = {3}, counts[] = {1};
    BOX(lierne_assignment_report) report;
    lierne_items i = {.size = sizeof i, .nitems = 1, .ncosts = 1, .cost = cost};
    lierne_balance_spec b = {.size = sizeof b};
    lierne_assignment *made = NULL;
    TRY("items", i, NULL,
        (lierne_assignment_destroy(made), lierne_assignment_create(&made, &i, counts, 1, &b)));
    TRY("balance", b, NULL,
        (lierne_assignment_destroy(made), lierne_assignment_create(&made, &i, counts, 1, &b)));
    expect("assignment", lierne_assignment_create(&made, &i, counts, 1, &b), LIERNE_OK, NULL);
    PREPARE(report);
    expect("assignment report", lierne_assignment_get_report(&report.value, made), LIERNE_OK, NULL);
    expect_true("assignment report is filled", report.value.max_load == 3);
    AFTER("assignment report", report);
    lierne_assignment_destroy(made);
    routed(&i, &b);
}

static void dense(void) {
    BOX(lierne_report) report;
    lierne_layout *l = layout();
    lierne_redistribute_spec r = {.size = sizeof r, .src = l, .dst = l};
    lierne_bridge_spec b = {.size = sizeof b,
                            .src = grid,
                            .dst = grid,
                            .naxes = 2,
                            .shape = shape,
                            .dtype = LIERNE_DTYPE_F32,
                            .sequence_axis = -1};
    BOX(lierne_node_bound) crossing;
    PREPARE(crossing);
    expect("node bound", lierne_redistribute_get_node_bound(&crossing.value, l, l, &zero),
           LIERNE_OK, NULL);
    expect_true("node bound is filled", crossing.value.between_bytes == 0);
    AFTER("node bound", crossing);
    lierne_plan *plan = NULL;
    TRY("redistribute", r, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_redistribute(&plan, context, &r)));
    lierne_plan_destroy(plan), plan = NULL;
    BOX(lierne_delta_report) changes;
    lierne_delta *delta = NULL;
    PREPARE(changes);
    expect("a plan", lierne_plan_create_redistribute(&plan, context, &r), LIERNE_OK, NULL);
    expect("delta", lierne_delta_create(&delta, plan), LIERNE_OK, NULL);
    expect("delta report", lierne_delta_get_report(&changes.value, delta), LIERNE_OK, NULL);
    expect_true("delta report is filled", changes.value.version == 0);
    AFTER("delta report", changes);
    lierne_delta_destroy(delta);
    lierne_recreate_spec grids = {.size = sizeof grids, .src = grid, .dst = grid};
    lierne_plan *again = NULL;
    TRY("recreate", grids, NULL,
        (lierne_plan_destroy(again), lierne_plan_recreate(&again, context, plan, &grids)));
    lierne_plan_destroy(again);
    lierne_plan_destroy(plan), plan = NULL;
    TRY("bridge check", b, NULL, lierne_bridge_check(&b));
    TRY("bridge grids", b, NULL, lierne_bridge_check_grids(&b));
    TRY("bridge", b, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_bridge(&plan, context, &b)));
    lierne_plan_destroy(plan), plan = NULL;
    lierne_megatron_spec m = {.size = sizeof m, .algorithm = LIERNE_MEGATRON_ALGORITHM_COLLECTIVE};
#ifndef SMALLER
    m.bridge = &b;
#endif
    TRY("megatron check", m, SHORT("spec->bridge is NULL"), lierne_megatron_check(&m));
    TRY("megatron", m, SHORT("spec->bridge is NULL"),
        (lierne_plan_destroy(plan), lierne_plan_create_megatron(&plan, context, &m)));
    lierne_plan_destroy(plan), plan = NULL;
    lierne_megatron_map *map = NULL;
    lierne_megatron_leaders *leaders = NULL;
    TRY("map", b, NULL, (lierne_megatron_map_destroy(map), lierne_megatron_map_create(&map, &b)));
    TRY("leaders", b, NULL,
        (lierne_megatron_leaders_destroy(leaders), lierne_megatron_leaders_create(&leaders, &b)));
    lierne_megatron_map_destroy(map), lierne_megatron_leaders_destroy(leaders);
    uint64_t digest;
    const float data[16] = {1};
    const void *buffers[1] = {data};
    const lierne_layout *layouts[1] = {l};
    lierne_digest_spec d = {.size = sizeof d, .layout = l};
    TRY("digest", d, NULL, lierne_digest_compute(&digest, NULL, &d, data));
    lierne_digest_check_spec k = {.size = sizeof k, .ntensors = 1, .src = layouts, .dst = layouts};
    TRY("digest check", k, NULL, lierne_digest_check(context, &k, buffers, buffers));
    lierne_set_spec t = {.size = sizeof t, .ntensors = 1, .src = layouts, .dst = layouts};
    lierne_route *route = NULL;
    TRY("set", t, NULL, (lierne_plan_destroy(plan), lierne_plan_create_set(&plan, context, &t)));
    TRY("set's route", t, NULL,
        (lierne_route_destroy(route), lierne_route_create_set(&route, NULL, &t, 0)));
    lierne_route_destroy(route), lierne_plan_destroy(plan), plan = NULL;
    expect("bridge", lierne_plan_create_bridge(&plan, context, &b), LIERNE_OK, NULL);
    PREPARE(report);
    expect("report", lierne_plan_get_report(&report.value, plan, LIERNE_DIRECTION_FORWARD),
           LIERNE_OK, NULL);
    expect_true("report is filled",
                strcmp(report.value.algorithm, "direct") == 0 && report.value.min_bytes == 0);
    AFTER("report", report);
    report.value.size = 0;
    expect("report without a size",
           lierne_plan_get_report(&report.value, plan, LIERNE_DIRECTION_FORWARD),
           LIERNE_ERR_INVALID, "report->size is 0");
    lierne_plan_destroy(plan);
    lierne_layout_destroy(l);
}

static void rows(void) {
    BOX(lierne_graph_lists) lists;
    const int32_t owner[] = {0, 0, 0}, rank[] = {0};
    const int64_t source[] = {2}, target[] = {1};
    lierne_graph_spec g = {.size = sizeof g,
                           .nrows = 3,
                           .owner = owner,
                           .nedges = 1,
                           .source = source,
                           .target = target,
                           .dtype = LIERNE_DTYPE_F32,
                           .width = 1};
    lierne_references_spec r = {.size = sizeof r,
                                .nowned = 3,
                                .nghosts = 1,
                                .rank = rank,
                                .row = target,
                                .dtype = LIERNE_DTYPE_F32,
                                .width = 1};
    lierne_plan *plan = NULL;
    TRY("references", r, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_references(&plan, context, &r)));
    lierne_plan_destroy(plan), plan = NULL;
    TRY("graph", g, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_graph(&plan, context, &g)));
    lierne_plan_destroy(plan), plan = NULL;
    expect("graph", lierne_plan_create_graph(&plan, context, &g), LIERNE_OK, NULL);
    TRY("update", g, NULL, lierne_plan_update_graph(plan, &g));
    lierne_retyped_spec other = {.size = sizeof other, .dtype = LIERNE_DTYPE_I64, .width = 2};
    lierne_plan *retyped = NULL;
    TRY("retyped", other, NULL,
        (lierne_plan_destroy(retyped), lierne_plan_create_retyped(&retyped, plan, &other)));
    lierne_plan_destroy(retyped);
    lierne_fetch_and_add_spec places = {.size = sizeof places,
                                        .dtype = LIERNE_DTYPE_I64,
                                        .width = 1};
    lierne_plan *fetch = NULL;
    TRY("fetch_and_add", places, NULL,
        (lierne_plan_destroy(fetch), lierne_plan_create_fetch_and_add(&fetch, plan, &places)));
    lierne_plan_destroy(fetch);
    lierne_migration_spec moves = {.size = sizeof moves, .dtype = LIERNE_DTYPE_I64, .width = 1};
    lierne_plan *move = NULL;
    TRY("migration", moves, NULL,
        (lierne_plan_destroy(move), lierne_plan_create_migration(&move, context, &moves)));
    lierne_plan_destroy(move), move = NULL;
    expect("migration", lierne_plan_create_migration(&move, context, &moves), LIERNE_OK, NULL);
    TRY("migration update", moves, NULL, lierne_plan_update_migration(move, &moves));
    lierne_plan_destroy(move);
    PREPARE(lists);
    expect("lists", lierne_plan_get_graph_lists(&lists.value, plan), LIERNE_OK, NULL);
    expect_true("lists are filled", lists.value.nowned == 3 && lists.value.edge_source[0] == 2);
    AFTER("lists", lists);
    lierne_plan_destroy(plan);
}

static void space(void) {
    lierne_dense_halo halo;
    lierne_convolution_spec convolution = LIERNE_CONVOLUTION_SPEC_INIT;
    convolution.elements = 8;
    TRY("convolution", convolution, NULL, lierne_halo_from_convolution(&halo, &convolution));
    const double point[] = {0.5, 0.5, 0.5};
    lierne_brick_spec b = {.size = sizeof b,
                           .grid = {1, 1, 1},
                           .box = {1, 1, 1},
                           .periodic = {1, 1, 1},
                           .cutoff = 0.25};
#ifndef SMALLER
    b.nlocal = 1;
    b.positions = point;
#endif
    lierne_brick *brick = NULL;
    TRY("brick", b, NULL, (lierne_brick_destroy(brick), lierne_brick_create(&brick, context, &b)));
    lierne_brick_destroy(brick), brick = NULL;
    expect("brick", lierne_brick_create(&brick, context, &b), LIERNE_OK, NULL);
    BOX(lierne_halo_spec) h, back;
    PREPARE(h), PREPARE(back);
    memset(&h.value, 0, sizeof h.value);
    h.value.size = sizeof h.value;
    TRY("swaps", h.value, NULL, lierne_brick_get_swaps(&h.value, brick));
    expect("swaps", lierne_brick_get_swaps(&h.value, brick), LIERNE_OK, NULL);
    expect_true("swaps are filled", h.value.nswap == 6);
    AFTER("swaps", h);
    h.value.dtype = LIERNE_DTYPE_F64;
    h.value.width = 3;
    lierne_plan *plan = NULL;
    TRY("halo", h.value, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_halo(&plan, context, &h.value)));
    lierne_plan_destroy(plan), plan = NULL;
    expect("halo", lierne_plan_create_halo(&plan, context, &h.value), LIERNE_OK, NULL);
    expect("halo spec", lierne_plan_get_halo_spec(&back.value, plan), LIERNE_OK, NULL);
    expect_true("the halo spec is filled", back.value.nswap == 6 && back.value.width == 3);
    AFTER("halo spec", back);
    lierne_plan_destroy(plan);
    lierne_brick_destroy(brick);
    (void)point;
}

static void collectives(void) {
    lierne_plan *plan = NULL;
    lierne_all_gather_spec a = {.size = sizeof a, .count = 3};
    lierne_reduce_scatter_spec s = {.size = sizeof s, .count = 3, .dtype = LIERNE_DTYPE_F32};
    lierne_all_reduce_spec r = {.size = sizeof r, .count = 3, .dtype = LIERNE_DTYPE_F32};
    lierne_broadcast_spec b = {.size = sizeof b, .count = 3, .dtype = LIERNE_DTYPE_F32};
    lierne_all_to_all_spec t = {.size = sizeof t, .count = 3};
    lierne_barrier_spec w = {.size = sizeof w};
#ifndef SMALLER
    a.dtype = t.dtype = LIERNE_DTYPE_F32;
#endif
    TRY("all-gather", a, SHORT("dtype is 0"),
        (lierne_plan_destroy(plan), lierne_plan_create_all_gather(&plan, context, &a)));
    TRY("reduce-scatter", s, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_reduce_scatter(&plan, context, &s)));
    TRY("all-reduce", r, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_all_reduce(&plan, context, &r)));
    TRY("broadcast", b, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_broadcast(&plan, context, &b)));
    TRY("all-to-all", t, SHORT("dtype is 0"),
        (lierne_plan_destroy(plan), lierne_plan_create_all_to_all(&plan, context, &t)));
    TRY("barrier", w, NULL,
        (lierne_plan_destroy(plan), lierne_plan_create_barrier(&plan, context, &w)));
    lierne_plan_destroy(plan);
}

static void schedules(void) {
    static const char text[] = "{\"rank\":0,\"operations\":[{\"kind\":\"local\"}],"
                               "\"groups\":[{\"name\":\"g\",\"uid\":1,\"ranks\":[0]}]}";
    static char group_names[3][2] = {"a", "b", "c"};
    lierne_schedule *s, **read, *out = NULL;
    lierne_run *run = NULL;
    int index, n, i = 0;
    lierne_schedule_group_spec g = {.size = sizeof g, .uid = 1, .ranks = &zero};
#ifndef SMALLER
    g.nranks = 1;
#endif
    expect("schedule", lierne_schedule_create(&s, 0), LIERNE_OK, NULL);
    TRY("schedule group", g, SHORT("nranks below 1"),
        (g.name = group_names[i++], lierne_schedule_add_group(&index, s, &g)));
    lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
    o.kind = LIERNE_OPERATION_LOCAL;
    TRY("operation", o, NULL, lierne_schedule_add_operation(&index, s, &o));
    expect("schedules", lierne_schedule_deserialize(&read, &n, text, sizeof text - 1), LIERNE_OK,
           NULL);
    lierne_isolation_spec p = LIERNE_ISOLATION_SPEC_INIT;
    TRY("isolation", p, NULL,
        (lierne_schedule_destroy(out), lierne_schedule_isolate(&out, read[0], &p)));
    lierne_run_spec r = {.size = sizeof r};
    TRY("run", r, NULL, (lierne_run_destroy(run), lierne_run_create(&run, context, read[0], &r)));
    lierne_run_destroy(run);
    expect("run", lierne_run_create(&run, context, read[0], NULL), LIERNE_OK, NULL);
    BOX(lierne_schedule_group) group;
    BOX(lierne_schedule_order) order;
    BOX(lierne_run_event) event;
    PREPARE(group);
    expect("group", lierne_schedule_get_group(&group.value, read[0], 0), LIERNE_OK, NULL);
    AFTER("group", group);
    PREPARE(order);
    expect("order",
           lierne_schedule_check(&order.value, NULL, 0, (const lierne_schedule *const *)read, n),
           LIERNE_OK, NULL);
    AFTER("order", order);
    PREPARE(event);
    expect("event", lierne_run_get_event(&event.value, run, 0), LIERNE_OK, NULL);
    AFTER("event", event);
    BOX(lierne_hang) hang;
    char *said;
    PREPARE(hang);
    expect("hang", lierne_hang_find(&hang.value, &said, "no such folder"), LIERNE_ERR_IO, NULL);
    AFTER("hang", hang);
    lierne_run_destroy(run);
    lierne_schedule_destroy(s);
    lierne_schedule_destroy(out);
    lierne_schedule_destroy_all(read, n);
}

/* Functions of a world of one rank. */
static int allgather(void **request, const void *mine, void *all, size_t bytes, void *user) {
    (void)user;
    *request = NULL;
    memcpy(all, mine, bytes);
    return 0;
}

static int test(void *request, void *user) {
    (void)request, (void)user;
    return 0;
}

static void other_contexts(void) {
    lierne_context *made = NULL;
    lierne_node_spec n = {.size = sizeof n, .world = 1, .name = "grow"};
    lierne_oob_spec o = {.size = sizeof o,
                         .nranks = 1,
                         .calls = {.allgather = allgather, .test = test}};
    TRY("node", n, NULL, (lierne_context_destroy(made), lierne_context_create_node(&made, &n)));
    lierne_context_destroy(made), made = NULL;
    TRY("oob", o, NULL, (lierne_context_destroy(made), lierne_context_create_oob(&made, &o)));
    lierne_context_destroy(made);
}

int main(void) {
    lierne_config *config;
    const char *text = "{\"world_size\": 1, \"grids\": {\"g\": {\"order\": [\"tp\", \"dp\"], "
                       "\"shape\": {\"tp\": 1, \"dp\": 1}}}}";
    expect("config", lierne_config_parse(&config, text, strlen(text)), LIERNE_OK, NULL);
    grid = (lierne_grid *)lierne_config_get_grid(config, "g");
    expect("context", lierne_context_create_self(&context, NULL), LIERNE_OK, NULL);
    grids(grid);
    contexts();
    packed();
    samples();
    dense();
    rows();
    space();
    collectives();
    schedules();
    other_contexts();
    expect("destroy", lierne_context_destroy(context), LIERNE_OK, NULL);
    lierne_config_destroy(config);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
