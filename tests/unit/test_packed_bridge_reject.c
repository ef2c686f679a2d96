/* Packed bridges that are rejected, with status, field and value, on every rank; updates that are,
 * after which a plan is what it was; runs of token ids that are no runs. */
#include "base/base.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WORLD = 2 };

/* Images of 3 and 2 rows on dp 2, to three segments of 6, 3 and 7 tokens on cp 2. */
typedef struct bridge_spec {
    int64_t rows[3];
    int64_t cu[4];
    int32_t owner[2];
    lierne_image_run runs[3];
    lierne_segments images, segments;
    lierne_packing src, dst;
    lierne_placement placements[2];
    lierne_dtype dtype;
    int64_t width;
    int plain; /* a side without packing, from 1 on */
    lierne_packed_bridge_spec spec;
} bridge_spec;

static void open_spec(bridge_spec *b) {
    *b = (bridge_spec){.rows = {0, 3, 5},
                       .cu = {0, 6, 9, 16},
                       .owner = {0, 1},
                       .runs = {{0, 0, 0, 1, 3}, {1, 0, 2, 3, 2}, {0, 1, 1, 0, 2}},
                       .placements = {{.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS},
                                      {.kind = LIERNE_PLACEMENT_SEGMENT_ZIGZAG}},
                       .dtype = LIERNE_DTYPE_I64,
                       .width = 2};
    b->images = (lierne_segments){.size = sizeof b->images, .nsegments = 2, .cu_seqlens = b->rows};
    b->segments =
        (lierne_segments){.size = sizeof b->segments, .nsegments = 3, .cu_seqlens = b->cu};
    b->src = (lierne_packing){.size = sizeof b->src, .owner = b->owner};
    b->dst = (lierne_packing){.size = sizeof b->dst, .align = 4};
    b->spec = (lierne_packed_bridge_spec){.size = sizeof b->spec, .runs = b->runs, .nruns = 2};
}

static lierne_layout *layout_of(const bridge_spec *b, int side, const lierne_grid *grid) {
    const lierne_segments *segments = side ? &b->segments : &b->images;
    const int64_t shape[2] = {segments->cu_seqlens[segments->nsegments], side ? b->width : 2};
    const lierne_placement replicate = {0};
    bool plain = b->plain == side + 1;
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = side ? b->dtype : LIERNE_DTYPE_I64,
                                     .placements = plain ? &replicate : &b->placements[side],
                                     .segments = plain ? NULL : segments,
                                     .packing = plain  ? NULL
                                                : side ? &b->dst
                                                       : &b->src};
    lierne_layout *layout = NULL;
    assert_ok(lierne_layout_create(&layout, &spec));
    return layout;
}

static lierne_grid *create_grid(void) {
    static const char *const names[] = {"ranks"};
    static const int64_t sizes[] = {WORLD};
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = names, .sizes = sizes, .world_size = WORLD};
    lierne_grid *grid = NULL;
    assert_ok(lierne_grid_create(&grid, &spec));
    return grid;
}

/* Plans on every rank; plans: NULL where all must fail, with words in the message. */
static void plan_all(bridge_spec *b, lierne_sim *sim, lierne_plan **plans, lierne_status wanted,
                     const char *words) {
    lierne_grid *grid = create_grid();
    lierne_layout *src = layout_of(b, 0, grid), *dst = layout_of(b, 1, grid);
    b->spec.src = src;
    b->spec.dst = dst;
    for (int r = 0; r < WORLD; r++) {
        lierne_plan *plan;
        cr_assert_eq(lierne_plan_create_packed_bridge(&plan, lierne_sim_get_context(sim, r),
                                                      &b->spec),
                     wanted, "%s, rank %d: %s", words, r, lierne_last_error());
        cr_assert_eq(plan != NULL, wanted == LIERNE_OK);
        if (wanted != LIERNE_OK) {
            assert_says(words);
        } else {
            plans[r] = plan;
        }
    }
    /* Without a context the same, unless capacities are what is wrong. */
    if (b->spec.max_rows == 0 || wanted == LIERNE_OK) {
        cr_expect_eq(lierne_packed_bridge_check(&b->spec), wanted, "%s: %s", words,
                     lierne_last_error());
        cr_expect(wanted == LIERNE_OK || strstr(lierne_last_error(), words));
    }
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
}

static void reject(bridge_spec *b, lierne_status wanted, const char *words) {
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    plan_all(b, sim, NULL, wanted, words);
    assert_ok(lierne_sim_destroy(sim));
    open_spec(b);
}

/* Rows of which no memory could have the bytes, of a caller that means "no limit". */
Test(packed_bridge, capacities_beyond_all_memory_are_rejected) {
    static const int64_t most[] = {INT64_MAX, (int64_t)1 << 61, (int64_t)1 << 58};
    bridge_spec b;
    open_spec(&b);
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        for (int repeat = 0; repeat < 2; repeat++) {
            b.spec.max_segments = 4;
            b.spec.max_runs = 4;
            b.spec.max_rows = most[i];
            b.spec.allow_repeat = repeat;
            reject(&b, LIERNE_ERR_NO_MEMORY, "");
        }
    }
}

/* A plan that reads text rows cannot follow: no call of the bridge writes them. */
Test(packed_bridge, nothing_reads_what_it_leaves_as_it_was) {
    bridge_spec b;
    lierne_sim *sim;
    lierne_plan *bridges[WORLD], *composed;
    lierne_grid *grid = create_grid();
    open_spec(&b);
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    plan_all(&b, sim, bridges, LIERNE_OK, "");
    b.plain = 2;
    lierne_layout *from = layout_of(&b, 1, grid);
    b.plain = 0;
    lierne_layout *packed = layout_of(&b, 1, grid);
    for (int r = 0; r < WORLD; r++) {
        const lierne_redistribute_spec spec = {.size = sizeof spec, .src = packed, .dst = from};
        lierne_plan *moves;
        assert_ok(lierne_plan_create_redistribute(&moves, lierne_sim_get_context(sim, r), &spec));
        assert_error(lierne_plan_create_composed(&composed, bridges[r], moves), LIERNE_ERR_INVALID,
                     "leaves elements of its output as they are");
        cr_assert_null(composed);
    }
    lierne_layout_destroy(from);
    lierne_layout_destroy(packed);
    lierne_grid_destroy(grid);
    assert_ok(lierne_sim_destroy_all(sim));
}

Test(packed_bridge, specs_that_are_rejected) {
    const lierne_status invalid = LIERNE_ERR_INVALID;
    size_t live = lierne_mem_live();
    bridge_spec b;
    open_spec(&b);
    b.spec.size = 0, reject(&b, invalid, "spec");
    b.spec.nruns = -1, reject(&b, invalid, "nruns is -1");
    b.spec.runs = NULL, reject(&b, invalid, "runs is NULL, and nruns is 2");
    b.spec.partial_dims = 1, reject(&b, invalid, "partial_dims has dim 0, which dst does not repl");
    b.spec.partial_dims = 2, reject(&b, invalid, "partial_dims has dim 1, which dst does not have");
    b.spec.max_inflight = -1, reject(&b, invalid, "max_inflight");
    b.spec.routing = 17, reject(&b, invalid, "routing");
    b.spec.max_segments = 4, reject(&b, invalid, "max_runs 0");
    b.spec.max_segments = b.spec.max_rows = 1, reject(&b, invalid, "max_runs 0");
    b.spec.max_rows = -1, reject(&b, invalid, "max_rows -1");
    b.plain = 1, reject(&b, invalid, "src has no packing");
    b.plain = 2, reject(&b, invalid, "dst has no packing");
    b.width = 3, reject(&b, invalid, "axis 1 has size 2 in src and 3 in dst");
    b.dtype = LIERNE_DTYPE_F32, reject(&b, invalid, "dtype");
    b.spec.max_segments = b.spec.max_rows = b.spec.max_runs = 64,
    b.spec.routing = LIERNE_ROUTING_BALANCED, reject(&b, LIERNE_ERR_UNSUPPORTED, "BALANCED");
    cr_assert_eq(lierne_mem_live(), live);
}

Test(packed_bridge, runs_that_are_rejected) {
    const lierne_status range = LIERNE_ERR_INDEX_RANGE;
    bridge_spec b;
    open_spec(&b);
    b.runs[1].image = 2, reject(&b, range, "runs[1].image is 2, must be in 0 to 1");
    b.runs[1].image = -1, reject(&b, range, "runs[1].image is -1");
    b.runs[0].segment = 3, reject(&b, range, "runs[0].segment is 3, must be in 0 to 2");
    b.runs[0].row = -1, reject(&b, range, "runs[0].row is -1");
    b.runs[0].position = -1, reject(&b, range, "runs[0].position is -1");
    b.runs[0].length = 0, reject(&b, range, "runs[0].length is 0, must be in 1 to 3");
    b.runs[0].length = 4, reject(&b, range, "runs[0].length is 4, must be in 1 to 3");
    b.runs[1].position = 6, reject(&b, range, "runs[1].length is 2, must be in 1 to 1");
    b.runs[0].segment = -1, reject(&b, range, "runs[0].segment is -1");
    b.runs[0].length = -1, reject(&b, range, "runs[0].length is -1");
    b.runs[0].length = INT64_MAX, b.runs[0].row = 1, b.runs[0].position = 1;
    reject(&b, range, "runs[0].length is 9223372036854775807, must be in 1 to 2");
    b.runs[1].position = INT64_MAX, reject(&b, range, "runs[1].position is 9223372036854775807");
    b.runs[0].row = INT64_MAX,
    reject(&b, range, "runs[0].row is 9223372036854775807, must be in 0 to 2");
    b.spec.nruns = 3, reject(&b, LIERNE_ERR_COUNT, "runs[2]: of its 2 rows of image 0");
    b.spec.nruns = 3, b.runs[1] = b.runs[2], b.runs[2] = (lierne_image_run){1, 0, 2, 3, 2};
    reject(&b, LIERNE_ERR_COUNT, "runs[1]: of its 2 rows of image 0");
    b.spec.nruns = 1, reject(&b, LIERNE_ERR_COUNT, "runs deliver 3 of 5 image rows");
    b.runs[1] = (lierne_image_run){1, 0, 0, 3, 2};
    reject(&b, LIERNE_ERR_OVERLAP, "runs[1]: of its 2 tokens from token 3 on");
    b.runs[1] = (lierne_image_run){1, 0, 0, 3, 2}, b.spec.nruns = 3;
    reject(&b, LIERNE_ERR_OVERLAP, "runs[1]: of its 2 tokens from token 3 on");
    b.spec.nruns = 3, b.runs[2] = (lierne_image_run){0, 0, 0, 3, 1}, b.runs[1].length = 1;
    reject(&b, LIERNE_ERR_OVERLAP, "runs[2]"); /* before rows that are left over */
    b.spec.nruns = 3, b.spec.allow_repeat = 1, b.spec.routing = LIERNE_ROUTING_BALANCED;
    reject(&b, LIERNE_ERR_UNSUPPORTED, "BALANCED");
}

Test(packed_bridge, capacities_that_are_exceeded) {
    const lierne_status capacity = LIERNE_ERR_CAPACITY;
    const int64_t enough[3] = {3, 10, 3};
    static const char *const words[] = {"nsegments is 3, must be at most 2 (max_segments)",
                                        "dst: the buffer of a rank has 10 rows, must be at most 9",
                                        "nruns is 3, must be at most 2 (max_runs)"};
    bridge_spec b;
    open_spec(&b);
    for (int k = 0; k < 3; k++) {
        b.spec.max_segments = enough[0] - (k == 0);
        b.spec.max_rows = enough[1] - (k == 1);
        b.spec.max_runs = enough[2] - (k == 2);
        b.spec.nruns = 3;
        b.spec.allow_repeat = 1;
        reject(&b, capacity, words[k]);
    }
    b.spec.max_segments = b.spec.max_rows = b.spec.max_runs = 1;
    reject(&b, capacity, "nsegments of images is 2, must be at most 1 (max_segments)");
    /* Rows of rank 0 go to more tokens than a buffer has rows. */
    b.dst.align = 4;
    b.spec.allow_repeat = 1;
    b.runs[0] = (lierne_image_run){0, 0, 0, 0, 3};
    b.runs[1] = (lierne_image_run){1, 0, 2, 0, 2};
    b.runs[2] = (lierne_image_run){0, 0, 0, 3, 3};
    b.spec.nruns = 3;
    b.spec.max_segments = b.spec.max_runs = 8;
    b.spec.max_rows = 5;
    b.cu[1] = 6, b.cu[2] = 6, b.cu[3] = 8;
    b.dst.store = LIERNE_PACKING_STORE_UNPADDED; /* 5 and 3 rows */
    reject(&b, capacity, "the rows of a rank go to 6 tokens, must be at most 5 (max_rows)");
}

static lierne_segments_update update_of(const bridge_spec *b) {
    return (lierne_segments_update){.size = sizeof(lierne_segments_update),
                                    .segments = &b->segments,
                                    .src = &b->src,
                                    .dst = &b->dst,
                                    .images = &b->images,
                                    .runs = b->runs,
                                    .nruns = 2};
}

static void reject_update(lierne_plan **plans, const lierne_segments_update *update,
                          lierne_status wanted, const char *words) {
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(lierne_plan_update_segments(plans[r], update), wanted, "%s: %s", words,
                     lierne_last_error());
        assert_says(words);
    }
}

/* What rank 1 has of both images, in its buffer of the worked example. */
static void expect_rows(lierne_plan **plans) {
    int64_t in[WORLD][6] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10}}, out[WORLD][20];
    lierne_request *requests[WORLD];
    memset(out, 0, sizeof out);
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
    cr_expect(out[0][2] == 1 && out[0][3] == 2 && out[0][4] == 0);
    cr_expect(out[1][0] == 3 && out[1][2] == 5 && out[1][14] == 7 && out[1][17] == 10);
}

Test(packed_bridge, updates_that_are_rejected) {
    lierne_sim *sim;
    lierne_plan *plans[WORLD];
    bridge_spec b;
    open_spec(&b);
    b.spec.max_segments = b.spec.max_runs = 3;
    b.spec.max_rows = 10;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    plan_all(&b, sim, plans, LIERNE_OK, "");
    lierne_segments_update u = update_of(&b);
    u.images = NULL, reject_update(plans, &u, LIERNE_ERR_INVALID, "images");
    u = update_of(&b), u.runs = NULL, reject_update(plans, &u, LIERNE_ERR_INVALID, "runs is NULL");
    u = update_of(&b), u.nruns = -1, reject_update(plans, &u, LIERNE_ERR_INVALID, "nruns is -1");
    u = update_of(&b), u.nruns = 4, reject_update(plans, &u, LIERNE_ERR_CAPACITY, "nruns is 4");
    u = update_of(&b), u.nruns = 1, reject_update(plans, &u, LIERNE_ERR_COUNT, "3 of 5");
    u = update_of(&b), u.src = NULL, reject_update(plans, &u, LIERNE_ERR_INVALID, "src is NULL");
    b.runs[0].length = 4, u = update_of(&b);
    reject_update(plans, &u, LIERNE_ERR_INDEX_RANGE, "runs[0].length is 4");
    expect_rows(plans);
    /* What one rank rejected alone leaves nothing behind that the next update has. */
    b.runs[0].length = 3, u = update_of(&b), u.nruns = 1;
    assert_error(lierne_plan_update_segments(plans[1], &u), LIERNE_ERR_COUNT, "3 of 5");
    for (int r = 0; r < WORLD; r++) {
        u = update_of(&b);
        assert_ok(lierne_plan_update_segments(plans[r], &u));
    }
    expect_rows(plans);
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
}

/* Nothing moves between the ranks, of which rank 1 has another run: both say how many segments and
 * tokens they have. */
Test(packed_bridge, another_run_is_found_without_data) {
    static int32_t owner[] = {0, 0, 1};
    int64_t in[WORLD][6] = {{0}}, out[WORLD][32];
    lierne_request *requests[WORLD];
    lierne_plan *plans[WORLD];
    lierne_sim *sim;
    bridge_spec b;
    open_spec(&b);
    b.spec.max_segments = b.spec.max_runs = 3;
    b.spec.max_rows = 16;
    b.placements[1].kind = LIERNE_PLACEMENT_SHARD_SEGMENTS;
    b.dst.owner = owner;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    plan_all(&b, sim, plans, LIERNE_OK, "");
    for (int r = 0; r < WORLD; r++) {
        b.runs[1].position = 3 + r;
        const lierne_segments_update u = update_of(&b);
        assert_ok(lierne_plan_update_segments(plans[r], &u));
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < WORLD; r++) {
        assert_error(lierne_request_end(requests[r]), LIERNE_ERR_MISMATCH,
                     "rank 1 (update 1: 3 of 16 tokens)");
        assert_says("rank 0 (update 1: 3 of 16 tokens)");
    }
    for (int r = 0; r < WORLD; r++) {
        (void)lierne_plan_destroy(plans[r]);
    }
    assert_ok(lierne_sim_destroy(sim));
}

/* Rows that repeat, on two ranks: one peer is the fewest. */
Test(packed_bridge, a_limit_of_one_peer) {
    lierne_report report = {.size = sizeof report};
    lierne_plan *plans[WORLD];
    lierne_sim *sim;
    bridge_spec b;
    open_spec(&b);
    b.spec.nruns = 3, b.spec.allow_repeat = 1, b.spec.max_peers = 1;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    plan_all(&b, sim, plans, LIERNE_OK, "");
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_get_report(&report, plans[r], LIERNE_DIRECTION_FORWARD));
        cr_expect_eq(report.most_peers, 1);
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
}

/* Rank 1 plans with another run. */
Test(packed_bridge, other_runs_are_a_mismatch) {
    lierne_grid *grid = create_grid();
    lierne_plan *plans[WORLD];
    lierne_sim *sim;
    bridge_spec b;
    open_spec(&b);
    lierne_layout *src = layout_of(&b, 0, grid), *dst = layout_of(&b, 1, grid);
    b.spec.src = src, b.spec.dst = dst;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    for (int r = 0; r < WORLD; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        b.runs[1].position = 3 + r;
        lierne_status status = lierne_plan_create_packed_bridge(&plans[r], context, &b.spec);
        cr_assert_eq(status, r ? LIERNE_ERR_MISMATCH : LIERNE_OK, "%s", lierne_last_error());
    }
    assert_says("runs[");
    assert_ok(lierne_plan_destroy(plans[0]));
    assert_ok(lierne_sim_destroy(sim));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
}

Test(packed_bridge, token_ids_that_are_rejected) {
    const int64_t cu[] = {0, 4}, rows[] = {0, 2}, bad[] = {0, 3, 2}, ids[] = {9, 1, 9, 9};
    lierne_segments segments = {.size = sizeof segments, .nsegments = 1, .cu_seqlens = cu};
    lierne_segments images = {.size = sizeof images, .nsegments = 1, .cu_seqlens = rows};
    const lierne_segments wrong = {.size = sizeof wrong, .nsegments = 2, .cu_seqlens = bad};
    lierne_image_run runs[4] = {{0}};
    size_t count = 77;
    assert_error(lierne_image_runs_find(runs, 4, &count, &segments, &images, ids, 9),
                 LIERNE_ERR_COUNT, "3 tokens have the id 9, and the images have 2 rows");
    assert_error(lierne_image_runs_find(runs, 4, NULL, &segments, &images, ids, 9),
                 LIERNE_ERR_INVALID, "count");
    assert_error(lierne_image_runs_find(runs, 4, &count, &segments, &images, NULL, 9),
                 LIERNE_ERR_INVALID, "ids");
    assert_error(lierne_image_runs_find(runs, 4, &count, &wrong, &images, ids, 9),
                 LIERNE_ERR_INVALID, "cu_seqlens[2] is 2");
    images.nsegments = -1;
    assert_error(lierne_image_runs_find(runs, 4, &count, &segments, &images, ids, 9),
                 LIERNE_ERR_INVALID, "nsegments is -1");
    images.nsegments = 1;
    cr_assert_eq(count, 77);
    /* One run fits; the second is counted. */
    images.cu_seqlens = bad;
    assert_ok(lierne_image_runs_find(runs, 1, &count, &segments, &images, ids, 9));
    cr_assert(count == 2 && runs[0].length == 1 && runs[1].length == 0);
}

/* What lands of a gradient is a contribution of each row, and as long as one. */
Test(packed_bridge, contributions_take_the_memory_of_their_rows) {
    bridge_spec b;
    lierne_sim *sim;
    lierne_plan *plans[WORLD];
    const lierne_route *route;
    open_spec(&b);
    b.spec.allow_repeat = 1;
    b.spec.max_segments = 4, b.spec.max_rows = 16, b.spec.max_runs = 4;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    plan_all(&b, sim, plans, LIERNE_OK, "");
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_get_route(&route, plans[r], LIERNE_DIRECTION_ADJOINT));
        cr_expect_eq(route->elements[LIERNE_BUFFER_SCRATCH], b.spec.max_rows * b.width);
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
}
