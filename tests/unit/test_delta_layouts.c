/* Deltas from every layout of a list to every other one and to itself: steps of delta_steps.h, by
 * plans, by control messages, and with what kernels do. */
#include "unit/delta_steps.h"
#include "unit/ranks.h"

#include "lierne/collective.h"
#include "runtime/context/context.h"

#include "mesh.h"

#include <criterion/criterion.h>
#include <malloc.h>

enum { WORLD = 4, ROWS = 6, COLUMNS = 5 };
#define SHARD(a)                                                                                   \
    { .kind = LIERNE_PLACEMENT_SHARD, .axis = (a) }
#define REPLICATE                                                                                  \
    { .kind = LIERNE_PLACEMENT_REPLICATE }

static const case_layout layouts[] = {
    {.ndims = 0, .offset = 3}, /* one rank has all of it */
    {.ndims = 1, .sizes = {WORLD}, .placements = {REPLICATE}},
    {.ndims = 1, .sizes = {WORLD}, .placements = {SHARD(0)}},
    {.ndims = 1, .sizes = {WORLD}, .placements = {SHARD(1)}},
    {.ndims = 1, .sizes = {WORLD}, .placements = {SHARD(1)}, .full_axes = 2},
    {.ndims = 1, .sizes = {WORLD}, .placements = {{.kind = LIERNE_PLACEMENT_AT, .at = 2}}},
    {.ndims = 1, .sizes = {2}, .offset = 2, .placements = {SHARD(0)}},
    {.ndims = 2, .sizes = {2, 2}, .placements = {SHARD(0), SHARD(1)}},
    {.ndims = 2, .sizes = {2, 2}, .placements = {SHARD(0), SHARD(0)}},
    {.ndims = 2, .sizes = {2, 2}, .in_view = 1, .placements = {SHARD(1), REPLICATE}},
    {.ndims = 1,
     .sizes = {3},
     .offset = 1,
     .placements = {{.kind = LIERNE_PLACEMENT_SHARD, .counts = (const int64_t[]){0, 5, 1}}},
     .counts = {{0, 5, 1}}},
    {.ndims = 1,
     .sizes = {WORLD},
     .placements = {{.kind = LIERNE_PLACEMENT_SHARD_ROWS,
                     .axis = 1,
                     .axis2 = 0,
                     .rows = (const int32_t[]){0}}},
     .rows = {3, 1, 1, 0, 2, 2, 1, 3, 0, 0, 2, 3, 1, 1, 2,
              0, 3, 3, 2, 1, 0, 0, 1, 2, 3, 1, 1, 1, 0}},
    {.ndims = 1,
     .sizes = {3},
     .offset = 1,
     .placements = {{.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, .axis = 0}}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct trial {
    set_case set;
    delta_steps ranks[WORLD];
} trial;

static void work(lierne_context *context, void *shared) {
    trial *t = shared;
    delta_steps_run(&t->ranks[lierne_context_get_rank(context)], &t->set, context);
}

static void run_pair(int src, int dst) {
    static trial t;
    t = (trial){.set = {.world = WORLD, .ntensors = 2, .scattered = (src + dst) % 2}};
    t.set.kinds[0] = (redistribute_case){.world = WORLD,
                                         .naxes = 2,
                                         .shape = {ROWS, COLUMNS},
                                         .dtype = LIERNE_DTYPE_I64};
    t.set.kinds[0].layouts[CASE_SRC] = layouts[src];
    t.set.kinds[0].layouts[CASE_DST] = layouts[dst];
    for (int r = 0; r < WORLD; r++) {
        t.ranks[r].seed = (uint64_t)(src * LAYOUTS + dst);
    }
    ranks_run(WORLD, NULL, work, &t);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(t.ranks[r].wrong, 0, "layouts %d and %d, rank %d: %s", src, dst, r,
                     t.ranks[r].what);
    }
}

Test(delta_layouts, every_two, .timeout = 600) {
    for (int pair = 0; pair < LAYOUTS * LAYOUTS; pair++) {
        run_pair(pair / LAYOUTS, pair % LAYOUTS);
    }
}

/* Windows of 5 elements beyond each end of 4, on a ring of 8: an element that arrives is in two
 * places of them, one of which is copied from the other. */
static void create_delta(lierne_context *context, void *shared) {
    static const int64_t shape = 8;
    const mesh ring = {.ndims = 1, .names = {"x"}, .sizes = {2}};
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD};
    const lierne_dense_halo halo = {.boundary = LIERNE_BOUNDARY_PERIODIC, .lo = 5, .hi = 5};
    lierne_grid *grid = mesh_grid(&ring, 2);
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = grid,
                               .naxes = 1,
                               .shape = &shape,
                               .dtype = LIERNE_DTYPE_I64,
                               .placements = &cut};
    lierne_layout *src = NULL, *dst = NULL;
    lierne_plan *plan = NULL;
    lierne_delta *delta = NULL;
    (void)lierne_layout_create(&src, &spec);
    spec.nhalos = 1, spec.halos = &halo;
    (void)lierne_layout_create(&dst, &spec);
    const lierne_redistribute_spec margins = {.size = sizeof margins, .src = src, .dst = dst};
    bool planned = lierne_plan_create_redistribute(&plan, context, &margins) == LIERNE_OK;
    ((bool *)shared)[lierne_context_get_rank(context)] =
        planned && lierne_delta_create(&delta, plan) == LIERNE_ERR_UNSUPPORTED;
    lierne_delta_destroy(delta);
    lierne_plan_destroy(plan);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
}

Test(delta_layouts, copies_of_what_arrives_are_rejected) {
    bool rejected[2] = {false, false};
    ranks_run(2, NULL, create_delta, rejected);
    cr_expect(rejected[0] && rejected[1]);
}

/* Bytes of the process when both ranks have a plan, and when they have a delta, too. */
typedef struct memory {
    size_t bytes[2];
    int64_t reported[2];
} memory;

static void note_memory(lierne_context *context, size_t *bytes) {
    const lierne_field field = {.name = "test"};
    lierne_context_agree_all(context, LIERNE_OK, &field, 1, NULL);
    if (lierne_context_get_rank(context) == 0) {
        struct mallinfo2 info = mallinfo2();
        *bytes = info.uordblks + info.hblkhd;
    }
    lierne_context_agree_all(context, LIERNE_OK, &field, 1, NULL);
}

static void measure(lierne_context *context, void *shared) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = 500000,
                                         .dtype = LIERNE_DTYPE_F32};
    lierne_delta_report report = {.size = sizeof report};
    memory *m = shared;
    lierne_plan *plan = NULL;
    lierne_delta *delta = NULL;
    lierne_plan_create_all_gather(&plan, context, &spec);
    note_memory(context, &m->bytes[0]);
    lierne_delta_create(&delta, plan);
    note_memory(context, &m->bytes[1]);
    lierne_delta_get_report(&report, delta);
    m->reported[lierne_context_get_rank(context)] = report.memory_bytes;
    lierne_delta_destroy(delta);
    lierne_plan_destroy(plan);
}

Test(delta_layouts, the_report_has_the_memory_of_a_delta) {
    memory m = {.reported = {0}};
    ranks_run(2, NULL, measure, &m);
    int64_t reported = m.reported[0] + m.reported[1], more = (int64_t)(m.bytes[1] - m.bytes[0]);
    cr_expect(more <= reported + reported / 20, "%lld, %lld", (long long)more, (long long)reported);
}
