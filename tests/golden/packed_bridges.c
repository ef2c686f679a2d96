/* packed.json, bridges, runs and the faults of bridges: rows of images move to the tokens that runs
 * name, and their gradients back. Image row t has 100 (t + 1) + column, the gradient of token t
 * 7 (t + 1) + 1000 column + 3, times c + 1 on coordinate c of a partial dim. What must not be read
 * is another number; an output is -(1000 (rank + 1) + 10 row + column) before a call. */
#include "packed.h"
#include "routing.h"
#include "row_case.h"

#include <stdlib.h>
#include <string.h>

enum { GARBAGE = 999999, MOST_SEGMENTS = 64, MOST_ROWS = 512, MOST_RUNS = 64 };

typedef struct bridge {
    golden_packed sides[2];
    lierne_layout *layouts[2];
    int64_t nruns;
    lierne_image_run *runs;
    lierne_packed_bridge_spec spec;
    const cJSON *expect;
    golden_world *world;
} bridge;

static lierne_image_run *read_runs(const cJSON *list, int64_t *n) {
    int64_t words, *at = golden_read_ints(list, &words);
    lierne_image_run *runs = golden_alloc(words / 5, sizeof *runs);
    for (int64_t i = 0; i < words / 5; i++) {
        const int64_t *w = at + 5 * i;
        runs[i] = (lierne_image_run){w[0], w[1], w[2], w[3], w[4]};
    }
    free(at);
    *n = words / 5;
    return runs;
}

static bool read_bridge(golden_case *c, bridge *b, int64_t width, int64_t world) {
    static const char *const names[] = {"src", "dst"}, *const boundaries[] = {"images",
                                                                              "cu_seqlens"};
    uint32_t partial = 0;
    for (int side = 0; side < 2; side++) {
        if (golden_packed_read(c, &b->sides[side], golden_get(c->item, names[side]),
                               golden_get(c->item, boundaries[side]), width, world)) {
            golden_expect_status(c, "lierne_layout_create",
                                 lierne_layout_create(&b->layouts[side], &b->sides[side].spec),
                                 LIERNE_OK);
        }
    }
    const cJSON *placements = golden_get(golden_get(c->item, "dst"), "placements");
    for (int d = 0; d < cJSON_GetArraySize(placements); d++) {
        const cJSON *one = cJSON_GetArrayItem(placements, d);
        partial |= strcmp(golden_string(one, "gradient"), "partial") == 0 ? 1u << d : 0;
    }
    b->runs = read_runs(golden_get(c->item, "runs"), &b->nruns);
    b->spec = (lierne_packed_bridge_spec){.size = sizeof b->spec,
                                          .src = b->layouts[0],
                                          .dst = b->layouts[1],
                                          .runs = b->runs,
                                          .nruns = b->nruns,
                                          .allow_unused =
                                              cJSON_IsTrue(golden_get(c->item, "allow_unused")),
                                          .allow_repeat =
                                              cJSON_IsTrue(golden_get(c->item, "allow_repeat")),
                                          .partial_dims = partial,
                                          .routing = test_routing(),
                                          .max_peers = test_max_peers((int)world)};
    return !c->failed;
}

static void free_bridge(bridge *b) {
    for (int side = 0; side < 2; side++) {
        lierne_layout_destroy(b->layouts[side]);
        golden_packed_free(&b->sides[side]);
    }
    free(b->runs);
}

static int64_t rows_of(const bridge *b, int side, int rank) {
    int64_t shape[2] = {0};
    lierne_layout_get_shape(shape, b->layouts[side], rank);
    return shape[0];
}

/* Whether a run names a row of the images (side 0) or a token. */
static bool is_named(const bridge *b, int side, int64_t t) {
    for (int64_t i = 0; i < b->nruns; i++) {
        const lierne_image_run *run = &b->runs[i];
        int64_t first = side ? b->sides[1].arrays[0][run->segment] + run->position
                             : b->sides[0].arrays[0][run->image] + run->row;
        if (t >= first && t < first + run->length) {
            return true;
        }
    }
    return false;
}

/* The factor of a rank's contribution to gradients. */
static int64_t factor_of(const bridge *b, int side, int rank) {
    int coords[GOLDEN_MAX_DIMS];
    const lierne_grid *grid = b->sides[1].grid;
    int64_t factor = 1;
    if (side == 0 || lierne_grid_get_coords(coords, grid, NULL, rank) != LIERNE_OK) {
        return 1;
    }
    for (int d = 0; d < lierne_grid_get_ndims(grid, NULL); d++) {
        factor *= b->spec.partial_dims >> d & 1 ? coords[d] + 1 : 1;
    }
    return factor;
}

static int64_t *create_input(golden_case *c, const bridge *b, int side, int rank) {
    int64_t width = b->sides[0].shape[1], n = rows_of(b, side, rank) * width;
    int64_t *buffer = golden_alloc(n, sizeof *buffer), factor = factor_of(b, side, rank);
    size_t count = 0;
    lierne_layout_get_boxes(NULL, 0, &count, b->layouts[side], rank);
    lierne_box *boxes = golden_alloc((int64_t)count, sizeof *boxes);
    golden_expect_status(c, "lierne_layout_get_boxes",
                         lierne_layout_get_boxes(boxes, count, &count, b->layouts[side], rank),
                         LIERNE_OK);
    for (int64_t i = 0; i < n; i++) {
        buffer[i] = GARBAGE;
    }
    for (size_t k = 0; k < count; k++) {
        for (int64_t i = 0; i < boxes[k].size[0] * width; i++) {
            int64_t h = i % width, t = boxes[k].start[0] + i / width;
            if (is_named(b, side, t)) {
                buffer[boxes[k].local[0] * width + i] =
                    side == 0 ? 100 * (t + 1) + h : factor * (7 * (t + 1) + 1000 * h + 3);
            }
        }
    }
    free(boxes);
    return buffer;
}

static void execute(golden_case *c, const bridge *b, lierne_plan *plan, int rank,
                    lierne_direction direction) {
    int in = direction == LIERNE_DIRECTION_ADJOINT;
    const char *what = in ? "adjoint" : "forward";
    int64_t width = b->sides[0].shape[1], n = rows_of(b, !in, rank) * width;
    int64_t *x = create_input(c, b, in, rank), *y = golden_alloc(n, sizeof *y);
    for (int64_t i = 0; i < n; i++) {
        y[i] = -(1000 * (rank + 1) + 10 * (i / width) + i % width);
    }
    golden_expect_status(c, what,
                         (in ? lierne_plan_adjoint : lierne_plan_forward)(plan, y, x, NULL),
                         LIERNE_OK);
    golden_expect_ints(c, what, cJSON_GetArrayItem(golden_get(b->expect, what), rank), y, n);
    free(x);
    free(y);
}

static void run_plan(golden_case *c, const bridge *b, lierne_plan *plan, int rank) {
    lierne_report report = {.size = sizeof report};
    const cJSON *rows = cJSON_GetArrayItem(golden_get(b->expect, "receive_rows"), rank);
    int64_t wanted = golden_to_int(rows, -1) * b->sides[0].shape[1] * 8;
    golden_expect_status(c, "lierne_plan_get_report",
                         lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD),
                         LIERNE_OK);
    golden_expect(c,
                  report.received_bytes - report.forwarded_bytes == wanted &&
                      report.min_bytes == wanted,
                  "it receives %lld bytes, of which %lld for others, at least %lld, expected %lld",
                  (long long)report.received_bytes, (long long)report.forwarded_bytes,
                  (long long)report.min_bytes, (long long)wanted);
    execute(c, b, plan, rank, LIERNE_DIRECTION_FORWARD);
    execute(c, b, plan, rank, LIERNE_DIRECTION_ADJOINT);
}

static lierne_status update(const bridge *b, lierne_plan *plan, bool tokens) {
    const int64_t no_cu[1] = {0};
    const lierne_segments none = {.size = sizeof none, .cu_seqlens = no_cu};
    lierne_packing packings[2] = {b->sides[0].packing, b->sides[1].packing};
    const lierne_segments_update u = {.size = sizeof u,
                                      .segments = tokens ? &b->sides[1].segments : &none,
                                      .images = tokens ? &b->sides[0].segments : &none,
                                      .src = &packings[0],
                                      .dst = &packings[1],
                                      .runs = b->runs,
                                      .nruns = tokens ? b->nruns : 0};
    for (int side = 0; side < 2; side++) {
        packings[side].cu_seqlens_padded = tokens ? packings[side].cu_seqlens_padded : NULL;
        packings[side].lead = tokens ? packings[side].lead : NULL;
        packings[side].order = tokens ? packings[side].order : NULL;
    }
    return lierne_plan_update_segments(plan, &u);
}

/* Cases of one family have one plan: its rows go, and come again. */
static void run_updates(golden_case *c, const bridge *b, lierne_plan *plan, int rank) {
    run_plan(c, b, plan, rank);
    for (int i = 0; i < 2; i++) {
        golden_expect_status(c, "update", update(b, plan, false), LIERNE_OK);
        golden_expect_status(c, "update", update(b, plan, true), LIERNE_OK);
        golden_expect_status(c, "lierne_plan_check",
                             lierne_plan_check((const lierne_plan *const *)&plan, 1), LIERNE_OK);
        run_plan(c, b, plan, rank);
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(plan), LIERNE_OK);
}

static void work(lierne_context *context, void *shared) {
    const bridge *b = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &b->world->cases[rank];
    lierne_packed_bridge_spec spec = b->spec;
    lierne_plan **plan = &b->world->plans[rank], *changing;
    if (spec.allow_repeat && spec.routing == LIERNE_ROUTING_BALANCED) {
        golden_expect_status(c, "BALANCED where rows repeat",
                             lierne_plan_create_packed_bridge(plan, context, &spec),
                             LIERNE_ERR_UNSUPPORTED);
        spec.routing = LIERNE_ROUTING_AUTO;
    }
    if (!golden_expect_status(c, "lierne_plan_create_packed_bridge",
                              lierne_plan_create_packed_bridge(plan, context, &spec), LIERNE_OK)) {
        return;
    }
    run_plan(c, b, *plan, rank);
    if (spec.routing == LIERNE_ROUTING_BALANCED) {
        return;
    }
    spec.max_segments = MOST_SEGMENTS;
    spec.max_rows = MOST_ROWS;
    spec.max_runs = MOST_RUNS;
    if (golden_expect_status(c, "lierne_plan_create_packed_bridge",
                             lierne_plan_create_packed_bridge(&changing, context, &spec),
                             LIERNE_OK)) {
        run_updates(c, b, changing, rank);
    }
}

void golden_packed_bridge(golden_case *c) {
    int n = (int)golden_int(c->item, "world_size", 0);
    bridge b = {.expect = golden_get(c->item, "expect")};
    if (read_bridge(c, &b, golden_int(c->item, "width", 0), n)) {
        golden_world world = golden_world_new(c, n);
        b.world = &world;
        if (!c->failed && golden_world_run(&world, work, &b)) {
            golden_world_check(c, &world);
        }
        golden_world_end(c, &world, "packed");
    }
    free_bridge(&b);
}

/* Every rank gets the same status and message. */
void golden_packed_bridge_invalid(golden_case *c, lierne_status wanted) {
    enum { WORLD = 64 };
    const char *field = golden_string(golden_get(c->item, "expect"), "field");
    lierne_sim *sim = NULL;
    bridge b = {0};
    golden_expect_status(c, "world", lierne_sim_create(&sim, WORLD, NULL), LIERNE_OK);
    if (read_bridge(c, &b, 1, WORLD)) {
        for (int r = 0; r < WORLD; r++) {
            lierne_plan *plan;
            lierne_context *context = lierne_sim_get_context(sim, r);
            golden_expect_status(c, "lierne_plan_create_packed_bridge",
                                 lierne_plan_create_packed_bridge(&plan, context, &b.spec), wanted);
            golden_expect(c, !plan, "a plan in spite of the error");
            golden_expect(c, strstr(lierne_last_error(), field) != NULL, "'%s' does not name %s",
                          lierne_last_error(), field);
        }
    }
    lierne_sim_destroy(sim);
    free_bridge(&b);
}

void golden_packed_runs(golden_case *c) {
    static const char *const keys[] = {"cu_seqlens", "images", "ids"};
    const cJSON *expect = golden_get(c->item, "expect");
    int64_t *at[3], n[3], nwanted;
    for (int k = 0; k < 3; k++) {
        at[k] = golden_read_ints(golden_get(c->item, keys[k]), &n[k]);
    }
    const lierne_segments segments = {.size = sizeof segments,
                                      .nsegments = n[0] - 1,
                                      .cu_seqlens = at[0]},
                          images = {.size = sizeof images,
                                    .nsegments = n[1] - 1,
                                    .cu_seqlens = at[1]};
    lierne_image_run *runs = golden_alloc(n[2], sizeof *runs),
                     *wanted = read_runs(golden_get(expect, "runs"), &nwanted);
    size_t count = 0;
    bool fails = golden_get(expect, "error") != NULL;
    if (fails) {
        golden_expect(c, strcmp(golden_string(expect, "error"), "COUNT") == 0, "another class");
    }
    lierne_status status = lierne_image_runs_find(runs, (size_t)n[2], &count, &segments, &images,
                                                  at[2], golden_int(c->item, "image_id", 0));
    golden_expect_status(c, "lierne_image_runs_find", status, fails ? LIERNE_ERR_COUNT : LIERNE_OK);
    golden_expect(c,
                  fails || ((int64_t)count == nwanted &&
                            memcmp(runs, wanted, count * sizeof *runs) == 0),
                  "%zu runs, expected others, %lld", count, (long long)nwanted);
    for (int k = 0; k < 3; k++) {
        free(at[k]);
    }
    free(runs);
    free(wanted);
}
