/* Plans made of plans with halos: transposed, composed to the identity, and coalesced; what is
 * written in place; windows and routes of tensors beyond 2^31 elements, without their memory. */
#include "unit/dense_halo_case.h"
#include "unit/expect.h"

#include "layouts.h"
#include "lierne/sim.h"
#include "seeds.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 400, DIRECTIONS = 2 };

/* The buffers of a case: of the source and of the destination, of each rank. */
typedef struct derived_world {
    halo_case c;
    int seed;
    lierne_layout *layouts[2];
    halo_buffer buffers[2][HALO_WORLD];
    lierne_sim *sim;
} derived_world;

/* Integers, whose sums do not depend on how a plan was made. */
static void open_world(derived_world *w, uint64_t seed) {
    *w = (derived_world){.seed = (int)seed};
    halo_random(&w->c, seed);
    w->c.dtype = LIERNE_DTYPE_I64;
    for (int s = 0; s < 2; s++) {
        assert_ok(halo_layout(&w->layouts[s], &w->c, s));
        for (int r = 0; r < w->c.world; r++) {
            halo_fill(&w->buffers[s][r], &w->c, s, r);
        }
    }
    assert_ok(lierne_sim_create(&w->sim, w->c.world, NULL));
}

static void close_world(derived_world *w) {
    assert_ok(lierne_sim_destroy(w->sim));
    for (int s = 0; s < 2; s++) {
        lierne_layout_destroy(w->layouts[s]);
        for (int r = 0; r < w->c.world; r++) {
            halo_free(&w->buffers[s][r]);
        }
    }
}

/* Plans from one side to the other one. */
static void create_plans(const derived_world *w, lierne_plan **plans, int from) {
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = w->layouts[from],
                                           .dst = w->layouts[!from]};
    for (int r = 0; r < w->c.world; r++) {
        cr_assert_eq(lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(w->sim, r),
                                                     &spec),
                     LIERNE_OK, "seed %d: %s", w->seed, lierne_last_error());
    }
}

static void destroy_plans(const derived_world *w, lierne_plan **plans) {
    for (int r = 0; r < w->c.world; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
}

/* Buffers of a side: an element has its number, replicas too, and everything else a mark. */
static void create_buffers(const derived_world *w, int side, int64_t salt, int64_t **buffers) {
    for (int r = 0; r < w->c.world; r++) {
        const halo_buffer *b = &w->buffers[side][r];
        buffers[r] = calloc((size_t)b->n + 1, sizeof **buffers);
        for (int64_t i = 0; i < b->n; i++) {
            uint64_t key = (uint64_t)(side ? 1000 * b->first + i : b->at[i]) + (uint64_t)salt;
            buffers[r][i] = side || (b->at[i] >= 0 && b->core[i]) ? (int64_t)(mix(key) % 99) : -7;
        }
    }
}

static void destroy_buffers(const derived_world *w, int64_t **buffers) {
    for (int r = 0; r < w->c.world; r++) {
        free(buffers[r]);
    }
}

/* Ranks begin in one order and end in another one, so messages arrive in any. */
static void execute(const derived_world *w, lierne_plan **plans, int direction, int64_t **out,
                    int64_t **in) {
    lierne_request *requests[HALO_WORLD];
    int n = w->c.world;
    for (int i = 0; i < n; i++) {
        int r = (i * (n - 1) + w->seed) % n;
        assert_ok((direction
                       ? lierne_plan_adjoint_begin
                       : lierne_plan_forward_begin)(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < n; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}

static void expect_same(const derived_world *w, int side, int64_t **is, int64_t **must) {
    for (int r = 0; r < w->c.world; r++) {
        cr_assert_arr_eq(is[r], must[r], (size_t)w->buffers[side][r].n * sizeof **is,
                         "seed %d, side %d, rank %d\n%s", w->seed, side, r, halo_text(&w->c));
    }
}

/* What one direction is, the transposed plan has as the other one; so its adjoint is the second
 * derivative. */
static void transpose_case(uint64_t seed) {
    derived_world w;
    lierne_plan *plans[HALO_WORLD], *transposed[HALO_WORLD];
    open_world(&w, seed);
    create_plans(&w, plans, 0);
    for (int r = 0; r < w.c.world; r++) {
        assert_ok(lierne_plan_create_transposed(&transposed[r], plans[r]));
    }
    for (int d = 0; d < DIRECTIONS; d++) {
        int64_t *in[HALO_WORLD], *out[HALO_WORLD], *other[HALO_WORLD];
        create_buffers(&w, d, 1, in);
        create_buffers(&w, !d, 2, out);
        create_buffers(&w, !d, 2, other);
        execute(&w, plans, d, out, in);
        execute(&w, transposed, !d, other, in);
        expect_same(&w, !d, other, out);
        destroy_buffers(&w, in), destroy_buffers(&w, out), destroy_buffers(&w, other);
    }
    destroy_plans(&w, plans);
    destroy_plans(&w, transposed);
    close_world(&w);
}

Test(dense_halo_derived, transposed_plans_swap_directions) {
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        transpose_case(seed);
    }
}

static bool has_partial(const halo_side *side) {
    for (int d = 0; d < side->ndims; d++) {
        if (side->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            return true;
        }
    }
    return false;
}

static bool keeps(const halo_side *side) {
    for (int i = 0; i < side->nhalos; i++) {
        if (side->halos[i].boundary == LIERNE_BOUNDARY_KEEP) {
            return true;
        }
    }
    return false;
}

/* Into a layout with halos and back. */
static void return_case(uint64_t seed, int *run) {
    derived_world w;
    lierne_plan *there[HALO_WORLD], *back[HALO_WORLD], *both[HALO_WORLD];
    int64_t *in[HALO_WORLD], *out[HALO_WORLD];
    open_world(&w, seed);
    if (has_partial(&w.c.sides[0]) || keeps(&w.c.sides[1]) || !halo_has_cores(&w.c.sides[1])) {
        close_world(&w);
        return;
    }
    create_plans(&w, there, 0);
    create_plans(&w, back, 1);
    for (int r = 0; r < w.c.world; r++) {
        cr_assert_eq(lierne_plan_create_composed(&both[r], there[r], back[r]), LIERNE_OK,
                     "seed %d: %s\n%s", w.seed, lierne_last_error(), halo_text(&w.c));
    }
    create_buffers(&w, 0, 1, in);
    create_buffers(&w, 0, 2, out);
    execute(&w, both, 0, out, in);
    for (int r = 0; r < w.c.world; r++) {
        for (int64_t i = 0; i < w.buffers[0][r].n; i++) {
            bool held = w.buffers[0][r].at[i] >= 0 && w.buffers[0][r].core[i];
            cr_assert(!held || out[r][i] == in[r][i], "seed %d, rank %d, place %d\n%s", w.seed, r,
                      (int)i, halo_text(&w.c));
        }
    }
    ++*run;
    destroy_buffers(&w, in), destroy_buffers(&w, out);
    destroy_plans(&w, there), destroy_plans(&w, back), destroy_plans(&w, both);
    close_world(&w);
}

Test(dense_halo_derived, there_and_back_is_the_identity) {
    seed_range seeds = test_seeds(SEEDS);
    int run = 0;
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        return_case(seed, &run);
    }
    cr_assert(run > 0 || seeds.end - seeds.first < 20);
}

static void execute_coalesced(const derived_world *w, lierne_coalesced **coalesced, int direction,
                              int64_t **out[2], int64_t **in[2]) {
    for (int r = 0; r < w->c.world; r++) {
        void *outs[2] = {out[0][r], out[1][r]};
        const void *ins[2] = {in[0][r], in[1][r]};
        assert_ok(
            lierne_coalesced_begin(coalesced[r], (lierne_direction)direction, outs, ins, NULL));
    }
    for (int r = 0; r < w->c.world; r++) {
        assert_ok(lierne_coalesced_end(coalesced[r], (lierne_direction)direction));
    }
}

/* Two tensors of the same layouts at once. */
static void coalesce_case(uint64_t seed) {
    derived_world w;
    lierne_plan *plans[2][HALO_WORLD];
    lierne_coalesced *coalesced[HALO_WORLD];
    open_world(&w, seed);
    for (int k = 0; k < 2; k++) {
        create_plans(&w, plans[k], 0);
    }
    for (int r = 0; r < w.c.world; r++) {
        lierne_plan *both[2] = {plans[0][r], plans[1][r]};
        assert_ok(lierne_coalesced_create(&coalesced[r], both, 2));
    }
    for (int d = 0; d < DIRECTIONS; d++) {
        int64_t *in[2][HALO_WORLD], *out[2][HALO_WORLD], *must[2][HALO_WORLD];
        for (int k = 0; k < 2; k++) {
            create_buffers(&w, d, 10 + k, in[k]);
            create_buffers(&w, !d, 2, out[k]);
            create_buffers(&w, !d, 2, must[k]);
            execute(&w, plans[k], d, must[k], in[k]);
        }
        execute_coalesced(&w, coalesced, d, (int64_t * *[2]){out[0], out[1]},
                          (int64_t * *[2]){in[0], in[1]});
        for (int k = 0; k < 2; k++) {
            expect_same(&w, !d, out[k], must[k]);
            destroy_buffers(&w, in[k]), destroy_buffers(&w, out[k]), destroy_buffers(&w, must[k]);
        }
    }
    for (int r = 0; r < w.c.world; r++) {
        assert_ok(lierne_coalesced_destroy(coalesced[r]));
    }
    destroy_plans(&w, plans[0]);
    destroy_plans(&w, plans[1]);
    close_world(&w);
}

Test(dense_halo_derived, coalesced_plans_do_what_each_does) {
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        coalesce_case(seed);
    }
}

static bool same_block(const lierne_block *a, const lierne_block *b) {
    bool same = a->offset == b->offset && a->ndims == b->ndims;
    for (int d = 0; same && d < a->ndims; d++) {
        same = a->count[d] == b->count[d] && a->stride[d] == b->stride[d];
    }
    return same;
}

/* Elements of a block that are in the part of the rank. */
static int64_t count_cores(const halo_buffer *b, const lierne_block *block) {
    int64_t elements = 1, n = 0;
    for (int d = 0; d < block->ndims; d++) {
        elements *= block->count[d];
    }
    for (int64_t i = 0; i < elements; i++) {
        int64_t at = block->offset, left = i;
        for (int d = block->ndims - 1; d >= 0; d--) {
            at += left % block->count[d] * block->stride[d];
            left /= block->count[d];
        }
        n += b->core[at];
    }
    return n;
}

/* What a stage writes to the part: nothing but what is there already, in place. */
static int64_t count_written(const halo_buffer *b, const lierne_stage *stage) {
    int64_t n = 0;
    for (size_t m = 0; m < stage->recvs.count; m++) {
        const lierne_message *message = &stage->recvs.at[m];
        for (size_t i = 0; i < message->blocks.count; i++) {
            n += count_cores(b, &message->blocks.at[i]);
        }
    }
    for (size_t o = 0; o < stage->copies.count; o++) {
        const lierne_op *op = &stage->copies.at[o];
        bool stays = op->from.count == 1 && op->from.at[0].buffer == LIERNE_BUFFER_IN &&
                     same_block(&op->to.block, &op->from.at[0].block);
        n += stays ? 0 : count_cores(b, &op->to.block);
    }
    for (size_t o = 0; o < stage->sums.count; o++) {
        n += count_cores(b, &stage->sums.at[o].to.block);
    }
    return n;
}

Test(dense_halo_derived, in_place_forward_writes_margins_only) {
    seed_range seeds = test_seeds(10 * SEEDS);
    int run = 0;
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        derived_world w;
        open_world(&w, seed);
        for (int r = 0; r < w.c.world && w.c.equal && w.c.sides[0].nhalos > 0; r++) {
            lierne_route *route;
            assert_ok(lierne_route_create_redistribute(&route, NULL, w.layouts[0], w.layouts[1], r,
                                                       NULL));
            for (size_t i = 0; i < route->stages.count; i++) {
                cr_assert_eq(count_written(&w.buffers[1][r], &route->stages.at[i]), 0,
                             "seed %d, rank %d\n%s", w.seed, r, halo_text(&w.c));
            }
            lierne_route_destroy(route);
            run++;
        }
        close_world(&w);
    }
    cr_assert(run > 0 || seeds.end - seeds.first < 100);
}

/* Rank 9 has a tensor of 9 x 9, which 3 x 3 ranks need, with a star of width 1. What it sends to
 * the one in the middle: a row above, the three rows with a column at either end, a row below. */
Test(dense_halo_derived, a_star_is_sent_in_three_boxes_in_the_order_of_elements) {
    static const lierne_block boxes[3] = {{.offset = 21, .ndims = 1, .count = {3}, .stride = {1}},
                                          {29, 2, {3, 5}, {9, 1}, NULL},
                                          {.offset = 57, .ndims = 1, .count = {3}, .stride = {1}}};
    static const int64_t shape[2] = {9, 9};
    const mesh one = {.ndims = 1, .names = {"x"}, .sizes = {1}, .offset = 9},
               all = {.ndims = 2, .names = {"x", "y"}, .sizes = {3, 3}};
    const lierne_placement cuts[2] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1},
                                      {.kind = LIERNE_PLACEMENT_SHARD}};
    const lierne_dense_halo halos[2] = {{.boundary = LIERNE_BOUNDARY_ZERO, .lo = 1, .hi = 1},
                                        {.axis = 1, .lo = 1, .hi = 1}};
    lierne_grid *grid = mesh_grid(&all, 10);
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_I64,
                                     .placements = cuts,
                                     .nhalos = 2,
                                     .halos = halos,
                                     .stencil = LIERNE_STENCIL_STAR};
    lierne_layout *src = layout_over(&one, 10, LIERNE_DTYPE_I64, 2, shape, cuts), *dst;
    lierne_route *route;
    assert_ok(lierne_layout_create(&dst, &spec));
    assert_ok(lierne_route_create_redistribute(&route, NULL, src, dst, 9, NULL));
    const lierne_message *middle = &route->stages.at[0].sends.at[4];
    cr_assert_eq(middle->peer, 4);
    cr_assert_eq(middle->blocks.count, 3);
    for (int i = 0; i < 3; i++) {
        cr_expect(same_block(&middle->blocks.at[i], &boxes[i]), "box %d", i);
    }
    lierne_route_destroy(route);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
}

/* A bf16 tensor of 2^40 rows over three ranks, with margins of 2^33 rows: nothing is allocated. */
Test(dense_halo_derived, numbers_beyond_two_billion) {
    static const char *const name = "x";
    static const int64_t size = 3, rows = (int64_t)1 << 40, width = (int64_t)1 << 33;
    const lierne_grid_spec grid_spec = {
        .size = sizeof grid_spec, .ndims = 1, .names = &name, .sizes = &size, .world_size = 3};
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD};
    const lierne_dense_halo halo = {.boundary = LIERNE_BOUNDARY_PERIODIC, .lo = width, .hi = 1};
    lierne_grid *grid;
    lierne_layout *src, *dst;
    lierne_halo_window window;
    lierne_route *route;
    size_t count;
    const int64_t shape[] = {rows, 2};
    int64_t stored, received = 0;
    assert_ok(lierne_grid_create(&grid, &grid_spec));
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = grid,
                               .naxes = 2,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_BF16,
                               .placements = &cut};
    assert_ok(lierne_layout_create(&src, &spec));
    spec.nhalos = 1;
    spec.halos = &halo;
    assert_ok(lierne_layout_create(&dst, &spec));
    int64_t share = rows / 3, first = rows - 2 * share; /* balanced: the first is one longer */
    assert_ok(lierne_layout_get_windows(&window, 1, &count, dst, 0, 0));
    cr_assert(window.start == -width && window.size == width + first + 1);
    assert_ok(lierne_layout_get_elements(&stored, NULL, dst, 2));
    cr_assert_eq(stored, 2 * (width + share + 1));
    assert_ok(lierne_route_create_redistribute(&route, NULL, src, dst, 1, NULL));
    for (size_t i = 0; i < route->stages.at[0].recvs.count; i++) {
        received += route->stages.at[0].recvs.at[i].elements;
    }
    cr_assert_eq(received, 2 * (width + 1));
    lierne_route_destroy(route);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
}
