/* Two stencils with an exchange each against both after one exchange whose margins are as wide as
 * theirs together, where each rank computes the first one on its margins as well. What the interior
 * reads is there before other ranks have begun. */
#include "lierne.h"
#include "lierne/sim.h"

#include "numbers.h"
#include "seeds.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { SEEDS = 500, WORLD = 5, WIDTH = 4, SIZE = 12, MOST = SIZE + 4 * WIDTH };

typedef struct steps {
    uint64_t seed;
    uint64_t drawn;
    int world;
    int64_t n;
    int64_t counts[WORLD]; /* the shares of the ranks */
    lierne_boundary boundary;
    int64_t lo[2], hi[2]; /* of the two stencils */
    int64_t weights[2][2 * WIDTH + 1];
    lierne_grid *grid;
    lierne_sim *sim;
} steps;

static int64_t interior_seen; /* positions, in all cases */

static int64_t draw(steps *s, int64_t n) {
    return (int64_t)(mix(s->seed * 64 + s->drawn++) % (uint64_t)n);
}

static void open_steps(steps *s, uint64_t seed) {
    static const char *const name = "x";
    *s = (steps){.seed = seed};
    s->world = 1 + (int)draw(s, WORLD);
    s->n = 1 + draw(s, SIZE);
    s->boundary = draw(s, 2) ? LIERNE_BOUNDARY_PERIODIC : LIERNE_BOUNDARY_ZERO;
    for (int64_t i = 0; i < s->n; i++) {
        s->counts[draw(s, s->world)]++;
    }
    for (int k = 0; k < 2; k++) {
        s->lo[k] = draw(s, WIDTH + 1);
        s->hi[k] = draw(s, WIDTH + 1);
        for (int i = 0; i < 2 * WIDTH + 1; i++) {
            s->weights[k][i] = draw(s, 9) - 4;
        }
    }
    const int64_t size = s->world;
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = &name, .sizes = &size, .world_size = s->world};
    assert_ok(lierne_grid_create(&s->grid, &spec));
    assert_ok(lierne_sim_create(&s->sim, s->world, NULL));
}

static void close_steps(steps *s) {
    assert_ok(lierne_sim_destroy(s->sim));
    lierne_grid_destroy(s->grid);
}

static int64_t element_at(const steps *s, int64_t (*in)[MOST], int64_t position) {
    int64_t i = (position + 8 * s->n * WIDTH) % s->n, r = 0;
    if (s->boundary == LIERNE_BOUNDARY_ZERO && (position < 0 || position >= s->n)) {
        return 0;
    }
    for (; i >= s->counts[r]; r++) {
        i -= s->counts[r];
    }
    return in[r][i];
}

/* What outputs of the interior read is there once a rank has begun: ranks after it have not. */
static int64_t expect_interior(const steps *s, const lierne_layout *part,
                               const lierne_layout *extended, int rank, const int64_t *out,
                               int64_t (*in)[MOST]) {
    lierne_halo_window window = {0};
    lierne_split_box boxes[4];
    size_t n = 0, count;
    int64_t seen = 0;
    assert_ok(lierne_layout_get_windows(&window, 1, &count, extended, rank, 0));
    assert_ok(lierne_halo_get_split(boxes, 4, &n, part, extended, rank));
    for (size_t b = 0; b < n && boxes[b].interior; b++) {
        int64_t end = boxes[b].start[0] + boxes[b].size[0] + window.size - window.core_size;
        for (int64_t i = boxes[b].start[0]; i < end; i++, seen++) {
            cr_assert_eq(out[i], element_at(s, in, window.start + i),
                         "seed %d, rank %d, position %d", (int)s->seed, rank, (int)i);
        }
    }
    return seen;
}

/* Fills every rank's part with margins. */
static void exchange(const steps *s, int64_t lo, int64_t hi, int64_t (*out)[MOST],
                     int64_t (*in)[MOST]) {
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD, .counts = s->counts};
    const lierne_dense_halo halo = {.boundary = s->boundary, .lo = lo, .hi = hi};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = s->grid,
                               .naxes = 1,
                               .shape = &s->n,
                               .dtype = LIERNE_DTYPE_I64,
                               .placements = &cut};
    lierne_plan *plans[WORLD];
    lierne_request *requests[WORLD];
    lierne_layout *part, *extended;
    assert_ok(lierne_layout_create(&part, &spec));
    spec.nhalos = 1;
    spec.halos = &halo;
    assert_ok(lierne_layout_create(&extended, &spec));
    const lierne_redistribute_spec moves = {.size = sizeof moves, .src = part, .dst = extended};
    for (int r = 0; r < s->world; r++) {
        assert_ok(
            lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(s->sim, r), &moves));
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
        interior_seen += expect_interior(s, part, extended, r, out[r], in);
    }
    for (int r = 0; r < s->world; r++) {
        assert_ok(lierne_request_end(requests[r]));
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    lierne_layout_destroy(part);
    lierne_layout_destroy(extended);
}

/* n outputs of stencil k; output i reads in[i] to in[i + lo + hi]. */
static void apply(const steps *s, int k, int64_t *out, const int64_t *in, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int64_t j = 0; j <= s->lo[k] + s->hi[k]; j++) {
            out[i] += s->weights[k][j] * in[i + j];
        }
    }
}

static void apply_after_each(const steps *s, int64_t (*x)[MOST]) {
    int64_t extended[WORLD][MOST];
    for (int k = 0; k < 2; k++) {
        exchange(s, s->lo[k], s->hi[k], extended, x);
        for (int r = 0; r < s->world; r++) {
            apply(s, k, x[r], extended[r], s->counts[r]);
        }
    }
}

/* Beyond a border that is zero the first stencil has no outputs. */
static void apply_after_one(const steps *s, int64_t (*x)[MOST]) {
    int64_t extended[WORLD][MOST], between[MOST], start = 0;
    exchange(s, s->lo[0] + s->lo[1], s->hi[0] + s->hi[1], extended, x);
    for (int r = 0; r < s->world; start += s->counts[r++]) {
        int64_t n = s->counts[r] ? s->counts[r] + s->lo[1] + s->hi[1] : 0;
        apply(s, 0, between, extended[r], n);
        for (int64_t i = 0; i < n && s->boundary == LIERNE_BOUNDARY_ZERO; i++) {
            int64_t position = start - s->lo[1] + i;
            between[i] = position < 0 || position >= s->n ? 0 : between[i];
        }
        apply(s, 1, x[r], between, s->counts[r]);
    }
}

Test(dense_halo_steps, one_wide_exchange_does_what_two_do) {
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        int64_t each[WORLD][MOST] = {{0}}, one[WORLD][MOST] = {{0}};
        steps s;
        open_steps(&s, seed);
        for (int r = 0; r < s.world; r++) {
            for (int64_t i = 0; i < s.counts[r]; i++) {
                each[r][i] = one[r][i] = draw(&s, 1000);
            }
        }
        apply_after_each(&s, each);
        apply_after_one(&s, one);
        for (int r = 0; r < s.world; r++) {
            for (int64_t i = 0; i < s.counts[r]; i++) {
                cr_assert_eq(each[r][i], one[r][i], "seed %d, rank %d, element %d", (int)seed, r,
                             (int)i);
            }
        }
        close_steps(&s);
    }
    cr_assert_gt(interior_seen, 0);
}

/* Each rank has one of 4 elements and asks for the next one; behind the last one is the mirror
 * image of the third. */
Test(dense_halo_steps, windows_beyond_the_axis_show_its_mirror) {
    static const char *const name = "x";
    static const int64_t n = 4;
    const lierne_grid_spec dims = {
        .size = sizeof dims, .ndims = 1, .names = &name, .sizes = &n, .world_size = 4};
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD};
    const lierne_dense_halo next = {.boundary = LIERNE_BOUNDARY_MIRROR, .lo = -1, .hi = 1};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .naxes = 1,
                               .shape = &n,
                               .dtype = LIERNE_DTYPE_I64,
                               .placements = &cut};
    const int64_t in[] = {10, 11, 12, 13}, wanted[] = {11, 12, 13, 12};
    int64_t out[4];
    lierne_request *requests[4];
    lierne_plan *plans[4];
    lierne_layout *src, *dst;
    lierne_grid *grid;
    lierne_sim *sim;
    assert_ok(lierne_grid_create(&grid, &dims));
    spec.grid = grid;
    assert_ok(lierne_layout_create(&src, &spec));
    spec.nhalos = 1, spec.halos = &next;
    assert_ok(lierne_layout_create(&dst, &spec));
    assert_ok(lierne_sim_create(&sim, 4, NULL));
    const lierne_redistribute_spec moves = {.size = sizeof moves, .src = src, .dst = dst};
    for (int r = 0; r < 4; r++) {
        assert_ok(
            lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(sim, r), &moves));
    }
    assert_ok(lierne_plan_check((const lierne_plan *const *)plans, 4));
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], &out[r], &in[r], NULL));
    }
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_request_end(requests[r]));
        cr_expect_eq(out[r], wanted[r], "rank %d: %d", r, (int)out[r]);
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
}
