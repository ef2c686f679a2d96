/* Results that go straight to another assignment L: M(E, L) gives the bytes of a return home that
 * a dispatch to L follows, both ways, and sends fewer rows. Composed with a redistribution inside
 * the dp ranks it is one plan. */
#include "expect.h"
#include "lierne.h"
#include "mesh.h"
#include "ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { WORLD = 4, LOCAL = 5, STEPS = 12, WIDTH = 3, COSTS = 2 };
enum { MOST_ROWS = WORLD * LOCAL * 8, VALUES = MOST_ROWS * WIDTH };

typedef struct route_sums {
    int wrong;
    char what[400];
    int64_t direct, by_home; /* bytes that this rank sent, in all steps */
} route_sums;

/* To L at once; home; and from home to L. */
typedef struct ways {
    route_sums *o;
    lierne_samples *samples[3];
    lierne_plan *plans[3];
} ways;

static void note(route_sums *o, bool ok, int step, const char *what) {
    if (!ok && o->wrong++ == 0) {
        snprintf(o->what, sizeof o->what, "step %d: %s: %s", step, what, lierne_last_error());
    }
}

static void create(ways *w, lierne_context *context) {
    const lierne_samples_tensor results = {LIERNE_SAMPLES_RETURN, LIERNE_DTYPE_I64, WIDTH},
                                rows = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, WIDTH};
    lierne_samples_spec spec = {.size = sizeof spec,
                                .max_local_items = LOCAL,
                                .ncosts = COSTS,
                                .max_rows = MOST_ROWS,
                                .ntensors = 1};
    for (int i = 0; i < 3; i++) {
        spec.tensors = i < 2 ? &results : &rows;
        note(w->o, lierne_samples_create(&w->samples[i], context, &spec) == LIERNE_OK, -1,
             "create");
        note(w->o, lierne_samples_get_plan(&w->plans[i], w->samples[i], 0) == LIERNE_OK, -1,
             "get_plan");
    }
}

/* Rank 3 is empty in every third step. Images merge 2:1, so results have half the rows. */
static void update(ways *w, int rank, int step) {
    int64_t cost[LOCAL * COSTS], rows[LOCAL], returned[LOCAL];
    lierne_balance_spec encoder = LIERNE_BALANCE_SPEC_INIT, llm = encoder;
    for (int j = 0; j < LOCAL; j++) {
        rows[j] = 2 * ((5 * rank + 3 * j + step) % 5 + (rank == step % WORLD));
        returned[j] = rows[j] / 2;
        cost[COSTS * j] = 1 + rows[j] * rows[j];
        cost[COSTS * j + 1] = (7 * rank + 11 * j + 2 * step) % 40;
    }
    lierne_items items = {.size = sizeof items,
                          .nitems = rank == 3 && step % 3 == 0 ? 0 : LOCAL - (rank + step) % 2,
                          .ncosts = COSTS,
                          .cost = cost,
                          .rows = rows,
                          .returned_rows = returned};
    encoder.mode = step % 2 ? LIERNE_BALANCE_LPT : LIERNE_BALANCE_SHED;
    llm.mode = LIERNE_BALANCE_LPT;
    llm.cost = 1;
    note(w->o, lierne_samples_update(w->samples[0], &items, &encoder, &llm) == LIERNE_OK, step,
         "update");
    note(w->o, lierne_samples_update(w->samples[1], &items, &encoder, NULL) == LIERNE_OK, step,
         "update");
    items.rows = returned;
    note(w->o, lierne_samples_update(w->samples[2], &items, &llm, NULL) == LIERNE_OK, step,
         "update");
}

static int64_t sent_by(ways *w, int plan, int step) {
    lierne_report r = {.size = sizeof r};
    note(w->o, lierne_plan_get_report(&r, w->plans[plan], LIERNE_DIRECTION_FORWARD) == LIERNE_OK,
         step, "report");
    return r.sent_bytes;
}

/* Results of the encoder, of which each element is another one on every rank. */
static void move(ways *w, int rank, int step) {
    int64_t in[VALUES], out[VALUES], home[VALUES], onward[VALUES];
    for (int i = 0; i < VALUES; i++) {
        in[i] = (int64_t)rank * VALUES + i;
        out[i] = home[i] = onward[i] = -7;
    }
    note(w->o, lierne_plan_forward(w->plans[0], out, in, NULL) == LIERNE_OK, step, "to L");
    note(w->o, lierne_plan_forward(w->plans[1], home, in, NULL) == LIERNE_OK, step, "home");
    note(w->o, lierne_plan_forward(w->plans[2], onward, home, NULL) == LIERNE_OK, step, "onward");
    note(w->o, memcmp(out, onward, sizeof out) == 0, step, "M(E, L)");
    for (int i = 0; i < VALUES; i++) {
        onward[i] = home[i] = in[i] = -7;
    }
    note(w->o, lierne_plan_adjoint(w->plans[0], in, out, NULL) == LIERNE_OK, step, "from L");
    note(w->o, lierne_plan_adjoint(w->plans[2], home, out, NULL) == LIERNE_OK, step, "home");
    note(w->o, lierne_plan_adjoint(w->plans[1], onward, home, NULL) == LIERNE_OK, step, "back");
    note(w->o, memcmp(in, onward, sizeof in) == 0, step, "M(L, E)");
    w->o->direct += sent_by(w, 0, step);
    w->o->by_home += sent_by(w, 1, step) + sent_by(w, 2, step);
}

static void run(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context);
    ways w = {.o = &((route_sums *)shared)[rank]};
    create(&w, context);
    for (int step = 0; step < STEPS && !w.o->wrong; step++) {
        update(&w, rank, step);
        move(&w, rank, step);
    }
    for (int i = 0; i < 3; i++) {
        note(w.o, lierne_samples_destroy(w.samples[i]) == LIERNE_OK, STEPS, "destroy");
    }
}

Test(samples, results_go_to_another_assignment_at_once) {
    route_sums all[WORLD] = {{0}};
    int64_t direct = 0, by_home = 0;
    ranks_run(WORLD, NULL, run, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
        direct += all[r].direct;
        by_home += all[r].by_home;
    }
    cr_expect(direct > 0 && direct * 4 < by_home * 3, "%lld bytes, and %lld by home",
              (long long)direct, (long long)by_home);
}

enum { ITEMS = 7, TP = 2 };

/* Rows of items whose owners are ranks of the last dim. */
static lierne_layout *layout_of(const lierne_grid *grid, int ndims, const int32_t *owner) {
    static const int64_t boundaries[ITEMS + 1] = {0, 3, 4, 4, 9, 10, 14, 16};
    const lierne_placement placements[2] = {{.kind = LIERNE_PLACEMENT_REPLICATE},
                                            {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS}};
    const lierne_segments segments = {sizeof segments, ITEMS, boundaries};
    const lierne_packing packing = {.size = sizeof packing, .owner = owner};
    const int64_t shape[2] = {boundaries[ITEMS], WIDTH};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_I64,
                                     .placements = placements + 2 - ndims,
                                     .segments = &segments,
                                     .packing = &packing};
    lierne_layout *layout = NULL;
    (void)lierne_layout_create(&layout, &spec);
    return layout;
}

static lierne_plan *redistribute(route_sums *o, lierne_context *context, lierne_layout *src,
                                 lierne_layout *dst) {
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    lierne_plan *plan = NULL;
    note(o, lierne_plan_create_redistribute(&plan, context, &spec) == LIERNE_OK, 0, "plan");
    return plan;
}

/* Both plans move the same, both ways; replicas have the same gradient. */
static void expect_same(route_sums *o, const lierne_plan *expected, lierne_plan *const plans[2],
                        int rank) {
    int64_t in[VALUES], gradient[VALUES], out[2][VALUES], back[2][VALUES], rows[2];
    note(o,
         lierne_plan_get_elements(&rows[0], &rows[1], expected, LIERNE_DIRECTION_FORWARD) ==
             LIERNE_OK,
         0, "elements");
    for (int i = 0; i < VALUES; i++) {
        in[i] = (int64_t)rank * VALUES + i;
        gradient[i] = (int64_t)(rank / TP) * VALUES + i;
        out[0][i] = out[1][i] = back[0][i] = back[1][i] = -7;
    }
    for (int k = 0; k < 2; k++) {
        note(o, lierne_plan_forward(plans[k], out[k], in, NULL) == LIERNE_OK, k, "forward");
        note(o, lierne_plan_adjoint(plans[k], back[k], gradient, NULL) == LIERNE_OK, k, "adjoint");
    }
    note(o, memcmp(out[0], out[1], sizeof out[0]) == 0, 0, "rows of a replica");
    note(o, memcmp(back[0], back[1], sizeof back[0]) == 0, 0, "gradients of a replica");
    note(o, (out[0][0] != -7) == (rows[1] > 0), 0, "rows");
}

static void compose(lierne_context *context, void *shared) {
    static const char *const names[] = {"tp", "dp", NULL};
    static const int64_t sizes[] = {TP, WORLD / TP}, all = WORLD;
    static const int32_t encoder[ITEMS] = {0, 3, 1, 2, 0, 1, 2}, llm[ITEMS] = {1, 0, 0, 1, 1, 0, 1};
    int32_t first_of_dp[ITEMS];
    route_sums *o = &((route_sums *)shared)[lierne_context_get_rank(context)];
    for (int i = 0; i < ITEMS; i++) {
        first_of_dp[i] = llm[i] * TP;
    }
    lierne_grid *flat = grid_named(&names[1], &all, 0, WORLD),
                *grid = grid_named(names, sizes, 0, WORLD);
    lierne_layout *at[3] = {layout_of(flat, 1, encoder), layout_of(flat, 1, first_of_dp),
                            layout_of(grid, 2, llm)};
    lierne_plan *moved = redistribute(o, context, at[0], at[1]),
                *spread = redistribute(o, context, at[1], at[2]),
                *plans[2] = {redistribute(o, context, at[0], at[2]), NULL};
    note(o, lierne_plan_create_composed(&plans[1], moved, spread) == LIERNE_OK, 0, "composed");
    if (!o->wrong) {
        expect_same(o, plans[0], plans, lierne_context_get_rank(context));
    }
    lierne_plan *const made[] = {plans[0], plans[1], moved, spread};
    for (int i = 0; i < 4; i++) {
        note(o, lierne_plan_destroy(made[i]) == LIERNE_OK, i, "destroy");
    }
    for (int i = 0; i < 3; i++) {
        lierne_layout_destroy(at[i]);
    }
    lierne_grid_destroy(flat);
    lierne_grid_destroy(grid);
}

Test(samples, results_reach_all_ranks_of_a_dp_rank_in_one_plan) {
    route_sums all[WORLD] = {{0}};
    ranks_run(WORLD, NULL, compose, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}
