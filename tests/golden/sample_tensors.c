/* samples.json, tensors: the rows of items move to the ranks of an assignment, and what is computed
 * of them moves on, both with the gradients back. An item is a segment, and an assignment the owner
 * of a packing, so moving is a redistribution between two packings. Then the same by samples, where
 * each rank knows its own items only, with their lists. Row i of item j has
 * (7919 j + 31 i + 3 column) mod 8191 - 4095, its gradient (6007 j + 17 i + 5 column) mod 4093 -
 * 2046. */
#include "row_case.h"

#include <stdlib.h>
#include <string.h>

/* The rows of all items, before or after they were computed. */
typedef struct phase {
    int64_t n;
    int64_t *boundaries; /* of the items, n + 1 */
    int32_t *owner[2];   /* of each item: where it is, and where it goes */
    lierne_layout *layouts[2];
    const char *forward, *adjoint; /* names of what is expected */
} phase;

typedef struct tensor {
    phase phases[2]; /* dispatch, return */
    int64_t width;
    const cJSON *expect;
    golden_world *world;
} tensor;

static int64_t sum_of(const cJSON *list) {
    const cJSON *one;
    int64_t sum = 0;
    cJSON_ArrayForEach(one, list) {
        sum += golden_to_int(one, 0);
    }
    return sum;
}

static int64_t *read_boundaries(const cJSON *segments) {
    int64_t *at = golden_alloc(cJSON_GetArraySize(segments) + 1, sizeof *at), i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, segments) {
        at[i + 1] = at[i] + sum_of(item);
        i++;
    }
    return at;
}

static int32_t *read_owners(const cJSON *list) {
    int32_t *owner = golden_alloc(cJSON_GetArraySize(list), sizeof *owner), i = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, list) {
        owner[i++] = (int32_t)golden_to_int(one, -1);
    }
    return owner;
}

static int32_t *read_homes(const cJSON *counts, int64_t n) {
    int32_t *home = golden_alloc(n, sizeof *home), rank = 0;
    int64_t i = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, counts) {
        for (int64_t end = i + golden_to_int(one, 0); i < end; i++) {
            home[i] = rank;
        }
        rank++;
    }
    return home;
}

static void create_layouts(golden_case *c, phase *p, const lierne_grid *grid, int64_t width) {
    const lierne_placement whole = {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS, .axis = 0};
    const int64_t shape[] = {p->boundaries[p->n], width};
    const lierne_segments segments = {sizeof segments, p->n, p->boundaries};
    for (int side = 0; side < 2; side++) {
        const lierne_packing packing = {.size = sizeof packing, .owner = p->owner[side]};
        const lierne_layout_spec spec = {.size = sizeof spec,
                                         .grid = grid,
                                         .naxes = 2,
                                         .shape = shape,
                                         .dtype = LIERNE_DTYPE_I64,
                                         .placements = &whole,
                                         .segments = &segments,
                                         .packing = &packing};
        golden_expect_status(c, "lierne_layout_create",
                             lierne_layout_create(&p->layouts[side], &spec), LIERNE_OK);
    }
}

/* What a rank holds on a side, *n values, to be freed; gradients: of the adjoint. */
static int64_t *create_input(const phase *p, int side, int rank, int64_t width, bool gradients,
                             int64_t *n) {
    int64_t *values = golden_alloc(p->boundaries[p->n] * width, sizeof *values);
    *n = 0;
    for (int64_t j = 0; j < p->n; j++) {
        int64_t rows = p->owner[side][j] == rank ? p->boundaries[j + 1] - p->boundaries[j] : 0;
        for (int64_t i = 0; i < rows * width; i++) {
            int64_t row = i / width, w = i % width;
            values[(*n)++] = gradients ? (6007 * j + 17 * row + 5 * w) % 4093 - 2046
                                       : (7919 * j + 31 * row + 3 * w) % 8191 - 4095;
        }
    }
    return values;
}

static void execute(golden_case *c, const tensor *t, const phase *p, lierne_plan *plan, int rank,
                    bool adjoint) {
    int64_t nin, nout;
    const char *name = adjoint ? p->adjoint : p->forward;
    int64_t *x = create_input(p, adjoint, rank, t->width, adjoint, &nin);
    int64_t *y = create_input(p, !adjoint, rank, t->width, !adjoint, &nout); /* other numbers */
    golden_expect_status(c, name,
                         (adjoint ? lierne_plan_adjoint : lierne_plan_forward)(plan, y, x, NULL),
                         LIERNE_OK);
    golden_expect_ints(c, name, golden_get(cJSON_GetArrayItem(t->expect, rank), name), y, nout);
    free(x);
    free(y);
}

/* The items of a rank, as it gives them to an update. */
typedef struct own_items {
    int64_t n;
    int64_t *cost, *rows, *returned;
    int32_t *segments, *given[2];
} own_items;

static int64_t flatten(int64_t *rows, int32_t *counts, const cJSON *segments, int64_t first,
                       int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        const cJSON *item = cJSON_GetArrayItem(segments, (int)(first + i)), *one;
        counts[i] = cJSON_GetArraySize(item);
        cJSON_ArrayForEach(one, item) {
            rows[count++] = golden_to_int(one, 0);
        }
    }
    return count;
}

static own_items read_items(const golden_case *c, const tensor *t, int rank) {
    const cJSON *homes = golden_get(c->item, "home_items"), *cost = golden_get(c->item, "cost");
    int64_t first = 0, most = t->phases[0].boundaries[t->phases[0].n] + 64;
    for (int p = 0; p < rank; p++) {
        first += golden_to_int(cJSON_GetArrayItem(homes, p), 0);
    }
    own_items own = {.n = golden_to_int(cJSON_GetArrayItem(homes, rank), 0)};
    own.cost = golden_alloc(own.n, sizeof *own.cost);
    own.segments = golden_alloc(own.n, sizeof *own.segments);
    own.rows = golden_alloc(most, sizeof *own.rows);
    own.returned = golden_alloc(most, sizeof *own.returned);
    flatten(own.rows, own.segments, golden_get(c->item, "segments"), first, own.n);
    flatten(own.returned, own.segments, golden_get(c->item, "returned"), first, own.n);
    for (int k = 0; k < 2; k++) {
        own.given[k] = golden_alloc(own.n, sizeof *own.given[k]);
        for (int64_t i = 0; i < own.n; i++) {
            own.given[k][i] = t->phases[k].owner[1][first + i];
        }
    }
    for (int64_t i = 0; i < own.n; i++) {
        own.cost[i] = golden_to_int(cJSON_GetArrayItem(cost, (int)(first + i)), 0);
    }
    return own;
}

static void free_items(own_items *own) {
    free(own->cost);
    free(own->segments);
    free(own->rows);
    free(own->returned);
    free(own->given[0]);
    free(own->given[1]);
}

static void update(golden_case *c, const tensor *t, lierne_samples *samples, int rank) {
    static const char *const modes[] = {"shed", "lpt", "kk", "contiguous", "caller"};
    const char *mode = golden_string(c->item, "mode");
    own_items own = read_items(c, t, rank);
    const lierne_items items = {.size = sizeof items,
                                .nitems = own.n,
                                .ncosts = 1,
                                .cost = own.cost,
                                .rows = own.rows,
                                .segments = own.segments,
                                .returned_rows = own.returned};
    lierne_balance_spec balance = LIERNE_BALANCE_SPEC_INIT, to = LIERNE_BALANCE_SPEC_INIT;
    for (int m = 0; m < 5; m++) {
        balance.mode = strcmp(mode, modes[m]) == 0 ? (lierne_balance_mode)m : balance.mode;
    }
    balance.assignment = balance.mode == LIERNE_BALANCE_CALLER ? own.given[0] : NULL;
    to.mode = LIERNE_BALANCE_CALLER;
    to.assignment = own.given[1];
    golden_expect_status(c, "lierne_samples_update",
                         lierne_samples_update(samples, &items, &balance,
                                               golden_get(c->item, "destination") ? &to : NULL),
                         LIERNE_OK);
    free_items(&own);
}

static void expect_lists(golden_case *c, const tensor *t, const lierne_samples *samples, int rank) {
    const cJSON *expect = cJSON_GetArrayItem(t->expect, rank);
    lierne_samples_lists l = {.size = sizeof l};
    golden_expect_status(c, "lierne_samples_get_lists",
                         lierne_samples_get_lists(&l, samples, LIERNE_SAMPLES_DISPATCHED),
                         LIERNE_OK);
    golden_expect_ints(c, "items", golden_get(expect, "items"), l.items, l.nitems);
    golden_expect_ints(c, "cu_seqlens", golden_get(expect, "cu_seqlens"), l.cu_seqlens,
                       l.nsegments + 1);
    golden_expect_status(c, "lierne_samples_get_lists",
                         lierne_samples_get_lists(&l, samples, LIERNE_SAMPLES_RETURNED), LIERNE_OK);
    golden_expect_ints(c, "returned_cu_seqlens", golden_get(expect, "returned_cu_seqlens"),
                       l.cu_seqlens, l.nsegments + 1);
}

static void work_by_samples(golden_case *c, const tensor *t, lierne_context *context) {
    int rank = lierne_context_get_rank(context);
    const phase *p = t->phases;
    const lierne_samples_tensor tensors[] = {{LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, t->width},
                                             {LIERNE_SAMPLES_RETURN, LIERNE_DTYPE_I64, t->width}};
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = p->n + 1,
                                      .max_local_segments = 4 * p->n + 64,
                                      .ncosts = 1,
                                      .caller = 1,
                                      .max_rows = p[0].boundaries[p->n] + 1,
                                      .max_returned_rows = p[1].boundaries[p->n] + 1,
                                      .ntensors = 2,
                                      .tensors = tensors};
    lierne_samples *samples;
    lierne_plan *plan;
    if (!golden_expect_status(c, "lierne_samples_create",
                              lierne_samples_create(&samples, context, &spec), LIERNE_OK)) {
        return;
    }
    update(c, t, samples, rank);
    expect_lists(c, t, samples, rank);
    for (int i = 0; i < 2 && !c->failed; i++) {
        lierne_samples_get_plan(&plan, samples, i);
        execute(c, t, &p[i], plan, rank, false);
        execute(c, t, &p[i], plan, rank, true);
    }
    golden_expect_status(c, "lierne_samples_destroy", lierne_samples_destroy(samples), LIERNE_OK);
}

static void work(lierne_context *context, void *shared) {
    const tensor *t = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &t->world->cases[rank];
    for (int i = 0; i < 2; i++) {
        const phase *p = &t->phases[i];
        const lierne_redistribute_spec spec = {.size = sizeof spec,
                                               .src = p->layouts[0],
                                               .dst = p->layouts[1]};
        lierne_plan **plan = &t->world->plans[rank]; /* the last one is checked as a whole */
        lierne_plan_destroy(*plan);
        if (golden_expect_status(c, "lierne_plan_create_redistribute",
                                 lierne_plan_create_redistribute(plan, context, &spec),
                                 LIERNE_OK)) {
            execute(c, t, p, *plan, rank, false);
            execute(c, t, p, *plan, rank, true);
        }
    }
    work_by_samples(c, t, context);
}

static void read_phases(golden_case *c, tensor *t, int n) {
    static const char *const rows[] = {"segments", "returned"}, *const dims[] = {"dp"};
    const int64_t size = n;
    const cJSON *to = golden_get(c->item, "destination");
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = dims, .sizes = &size, .world_size = n};
    lierne_grid *grid = NULL;
    golden_expect_status(c, "lierne_grid_create", lierne_grid_create(&grid, &spec), LIERNE_OK);
    for (int i = 0; i < 2; i++) {
        phase *p = &t->phases[i];
        const cJSON *segments = golden_get(c->item, rows[i]);
        p->n = cJSON_GetArraySize(segments);
        p->boundaries = read_boundaries(segments);
        p->owner[!i] = read_owners(golden_get(c->item, "assignment"));
        p->owner[i] =
            to && i ? read_owners(to) : read_homes(golden_get(c->item, "home_items"), p->n);
        create_layouts(c, p, grid, t->width);
    }
    lierne_grid_destroy(grid);
}

void golden_sample_tensor(golden_case *c) {
    int n = (int)golden_int(c->item, "ranks", 0);
    tensor t = {.phases = {{.forward = "dispatch", .adjoint = "dispatch_adjoint"},
                           {.forward = "return", .adjoint = "return_adjoint"}},
                .width = golden_int(c->item, "width", 0),
                .expect = golden_get(c->item, "expect")};
    read_phases(c, &t, n);
    golden_world world = golden_world_new(c, n);
    t.world = &world;
    if (!c->failed && golden_world_run(&world, work, &t)) {
        golden_world_check(c, &world);
    }
    golden_world_end(c, &world, "samples");
    for (int i = 0; i < 2; i++) {
        phase *p = &t.phases[i];
        for (int side = 0; side < 2; side++) {
            lierne_layout_destroy(p->layouts[side]);
            free(p->owner[side]);
        }
        free(p->boundaries);
    }
}
