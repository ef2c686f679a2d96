/* Packed bridges: random images, segments and runs against an oracle by token, updates of one plan,
 * and descriptions that are rejected on every rank. */
#include "unit/expect.h"
#include "unit/packed_case.h"

#include "base/base.h"
#include "layout/joints.h"
#include "lierne/sim.h"
#include "routing.h"
#include "seeds.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 400, UPDATES = 10, MOST_RUNS = 24, MOST_TOKENS = 80, GARBAGE = 999999 };

typedef struct bridge_case {
    int world;
    packed_tokens tokens[2]; /* image rows; tokens */
    packed_side sides[2];
    packed_side gradient; /* side 1 with its PARTIAL dims */
    packed_buffer buffers[2][PACKED_WORLD];
    lierne_image_run runs[MOST_RUNS];
    int64_t nruns;
    int64_t row[MOST_TOKENS]; /* the image row of each token, or -1 */
    bool unused;
    bool repeat;
    bool repeats; /* rows do repeat */
    uint32_t partial_dims;
} bridge_case;

/* ---- runs ---- */

/* Runs of tokens; their rows are not known yet. */
static void draw_tokens(packed_random *random, bridge_case *c) {
    const packed_tokens *tokens = &c->tokens[1];
    c->nruns = 0;
    for (int64_t i = 0; i < tokens->n; i++) {
        int64_t length = tokens->cu[i + 1] - tokens->cu[i];
        for (int64_t at = packed_draw(random, 3); at < length && c->nruns < MOST_RUNS;) {
            int64_t n = 1 + packed_draw(random, length - at);
            c->runs[c->nruns++] = (lierne_image_run){.segment = i, .position = at, .length = n};
            at += n + packed_draw(random, 3);
        }
    }
    for (int64_t i = c->nruns - 1; i > 0; i--) { /* in any order */
        int64_t j = packed_draw(random, i + 1);
        lierne_image_run swap = c->runs[i];
        c->runs[i] = c->runs[j];
        c->runs[j] = swap;
    }
}

static void end_image(packed_tokens *images, int64_t rows) {
    if (images->n < PACKED_SEGMENTS) {
        images->cu[++images->n] = rows;
    }
}

/* Rows one after another, which images divide; a run that repeats takes some of an earlier one. */
static void draw_rows(packed_random *random, bridge_case *c) {
    packed_tokens *images = &c->tokens[0];
    int64_t rows = 0, width = c->tokens[1].width;
    *images = (packed_tokens){.width = width};
    for (int64_t i = 0; i < c->nruns; i++) {
        lierne_image_run *run = &c->runs[i], *old = i ? &c->runs[packed_draw(random, i)] : NULL;
        if (c->repeat && old && packed_draw(random, 2)) {
            int64_t shift = packed_draw(random, old->length);
            run->row = old->row + shift; /* of all images */
            run->length = run->length < old->length - shift ? run->length : old->length - shift;
            c->repeats = true;
            continue;
        }
        rows += c->unused ? packed_draw(random, 3) : 0;
        run->row = rows;
        rows += run->length;
        if (packed_draw(random, 2) && images->n < PACKED_SEGMENTS - 1) {
            rows += c->unused ? packed_draw(random, 2) : 0;
            end_image(images, rows);
        }
    }
    end_image(images, rows);
    for (int64_t i = 0; i < c->nruns; i++) {
        lierne_image_run *run = &c->runs[i];
        while (images->cu[run->image + 1] <= run->row) {
            run->image++;
        }
        run->row -= images->cu[run->image];
    }
}

static void find_rows(bridge_case *c) {
    memset(c->row, -1, sizeof c->row);
    for (int64_t i = 0; i < c->nruns; i++) {
        const lierne_image_run *run = &c->runs[i];
        for (int64_t k = 0; k < run->length; k++) {
            c->row[c->tokens[1].cu[run->segment] + run->position + k] =
                c->tokens[0].cu[run->image] + run->row + k;
        }
    }
}

static void draw_runs(packed_random *random, bridge_case *c) {
    int64_t width = c->tokens[1].width;
    c->tokens[1] = (packed_tokens){0};
    packed_random_tokens(random, &c->tokens[1]);
    c->tokens[1].width = width ? width : c->tokens[1].width;
    c->repeats = false;
    draw_tokens(random, c);
    draw_rows(random, c);
    find_rows(c);
}

/* The dims of the destination that have contributions, of those that replicate. */
static void draw_partial(packed_random *random, bridge_case *c) {
    c->partial_dims = 0;
    c->gradient = c->sides[1];
    for (int d = 0; d < c->gradient.ndims; d++) {
        if (c->gradient.placements[d].kind == LIERNE_PLACEMENT_REPLICATE &&
            packed_draw(random, 3) == 0) {
            c->gradient.placements[d].kind = LIERNE_PLACEMENT_PARTIAL;
            c->partial_dims |= 1u << d;
        }
    }
}

static packed_random draw_case(bridge_case *c, uint64_t seed) {
    packed_random random = {.state = mix(seed + 77)};
    *c = (bridge_case){.world = 1 + (int)packed_draw(&random, PACKED_WORLD)};
    c->unused = packed_draw(&random, 3) == 0;
    c->repeat = packed_draw(&random, 3) == 0;
    draw_runs(&random, c);
    for (int s = 0; s < 2; s++) {
        packed_random_side(&random, &c->sides[s], c->world, true);
        c->sides[s].plain = false;
        packed_random_packing(&random, &c->sides[s], &c->tokens[s]);
    }
    draw_partial(&random, c);
    return random;
}

/* ---- what ranks read and must have written ---- */

static int64_t value(int64_t row, int64_t h) {
    return 100 * (row + 1) + h;
}

static int64_t gradient(int64_t token, int64_t h) {
    return 7 * (token + 1) * (token + 2) + 1000 * h + 3;
}

/* Whether a row of side 0 or a token is named. */
static bool is_named(const bridge_case *c, int side, int64_t t) {
    bool named = side == 1 && t >= 0 && c->row[t] >= 0;
    for (int64_t token = 0; side == 0 && token < MOST_TOKENS; token++) {
        named = named || (t >= 0 && c->row[token] == t);
    }
    return named;
}

static int64_t input(const bridge_case *c, int side, const packed_buffer *b, int64_t i) {
    int64_t t = b->rows[i / b->ncolumns], h = b->first_column + i % b->ncolumns;
    return !is_named(c, side, t) ? GARBAGE
           : side == 0           ? value(t, h)
                                 : gradient(t, h) * (b->contribution + 1);
}

static int64_t expected(const bridge_case *c, int side, int rank, int64_t i) {
    const packed_buffer *b = &c->buffers[side][rank];
    int64_t t = b->rows[i / b->ncolumns], h = b->first_column + i % b->ncolumns, sum = 0;
    int64_t n = c->buffers[1][c->sides[1].offset].contributions;
    if (side == 1) {
        return is_named(c, 1, t) ? value(c->row[t], h) : packed_before(rank, i);
    }
    if (t < 0) {
        bool zero = t == PACKED_PADDING && c->sides[0].padding == LIERNE_PADDING_ZERO;
        return zero ? 0 : packed_before(rank, i);
    }
    for (int64_t token = 0; token < MOST_TOKENS; token++) {
        sum += c->row[token] == t ? gradient(token, h) * (n * (n + 1) / 2) : 0;
    }
    return sum;
}

static void execute(const bridge_case *c, lierne_plan **plans, lierne_direction d, uint64_t seed) {
    int64_t *in[PACKED_WORLD], *out[PACKED_WORLD];
    int from = d == LIERNE_DIRECTION_ADJOINT, to = !from;
    for (int r = 0; r < c->world; r++) {
        in[r] = calloc((size_t)packed_elements(&c->buffers[from][r]) + 1, sizeof *in[r]);
        out[r] = calloc((size_t)packed_elements(&c->buffers[to][r]) + 1, sizeof *out[r]);
        for (int64_t i = 0; i < packed_elements(&c->buffers[from][r]); i++) {
            in[r][i] = input(c, from, &c->buffers[from][r], i);
        }
        for (int64_t i = 0; i < packed_elements(&c->buffers[to][r]); i++) {
            out[r][i] = packed_before(r, i);
        }
    }
    packed_execute(plans, d, out, in, c->world, seed);
    for (int r = 0; r < c->world; r++) {
        for (int64_t i = 0; i < packed_elements(&c->buffers[to][r]); i++) {
            int64_t wanted = expected(c, to, r, i);
            cr_assert_eq(out[r][i], wanted,
                         "seed %d, rank %d, direction %d: element %d is %lld, must be %lld",
                         (int)seed, r, (int)d, (int)i, (long long)out[r][i], (long long)wanted);
        }
        free(in[r]);
        free(out[r]);
    }
}

static bool has(const packed_buffer *b, int64_t t, int64_t h) {
    bool found = false;
    for (int64_t k = 0; k < b->nrows; k++) {
        found = found || b->rows[k] == t;
    }
    return found && h >= b->first_column && h < b->first_column + b->ncolumns;
}

/* A rank receives each row once that it needs and does not hold. */
static void expect_bytes(const bridge_case *c, lierne_plan **plans, uint64_t seed) {
    for (int r = 0; r < c->world; r++) {
        const packed_buffer *b = &c->buffers[1][r];
        lierne_report report = {.size = sizeof report};
        int64_t wanted = 0;
        for (int64_t row = 0; row < MOST_TOKENS; row++) {
            bool needed = false;
            for (int64_t k = 0; k < b->nrows; k++) {
                needed = needed || (b->rows[k] >= 0 && c->row[b->rows[k]] == row);
            }
            for (int64_t h = b->first_column; needed && h < b->first_column + b->ncolumns; h++) {
                wanted += !has(&c->buffers[0][r], row, h);
            }
        }
        assert_ok(lierne_plan_get_report(&report, plans[r], LIERNE_DIRECTION_FORWARD));
        int64_t received = report.received_bytes - report.forwarded_bytes;
        cr_assert_eq(received, wanted * 8, "seed %d, rank %d: %d bytes, must be %d", (int)seed, r,
                     (int)received, (int)wanted * 8);
        cr_assert_eq(report.min_bytes, wanted * 8, "seed %d, rank %d", (int)seed, r);
        cr_assert(report.most_peers == 0 || report.received_peers <= report.most_peers,
                  "seed %d, rank %d receives from %d ranks", (int)seed, r,
                  (int)report.received_peers);
    }
}

static void run_plans(bridge_case *c, lierne_plan **plans, uint64_t seed) {
    for (int r = 0; r < c->world; r++) {
        packed_fill_buffer(&c->buffers[0][r], &c->sides[0], &c->tokens[0], r);
        packed_fill_buffer(&c->buffers[1][r], &c->gradient, &c->tokens[1], r);
    }
    cr_assert_eq(lierne_plan_check((const lierne_plan *const *)plans, c->world), LIERNE_OK,
                 "seed %d: %s", (int)seed, lierne_last_error());
    expect_bytes(c, plans, seed);
    execute(c, plans, LIERNE_DIRECTION_FORWARD, seed);
    execute(c, plans, LIERNE_DIRECTION_ADJOINT, seed);
}

/* ---- plans ---- */

static bool make_layouts(const bridge_case *c, lierne_layout **layouts, uint64_t seed) {
    bool all = true;
    for (int s = 0; s < 2; s++) {
        bool divides = packed_divides(&c->sides[s], &c->tokens[s]);
        lierne_status status = packed_layout(&layouts[s], &c->sides[s], &c->tokens[s], c->world);
        cr_assert_eq(status, divides ? LIERNE_OK : LIERNE_ERR_INDIVISIBLE, "seed %d, side %d: %s",
                     (int)seed, s, lierne_last_error());
        all = all && divides;
    }
    return all;
}

/* A third of the seeds go over few peers. */
static lierne_packed_bridge_spec spec_of(const bridge_case *c, lierne_layout *const *layouts,
                                         uint64_t seed) {
    return (lierne_packed_bridge_spec){.size = sizeof(lierne_packed_bridge_spec),
                                       .src = layouts[0],
                                       .dst = layouts[1],
                                       .runs = c->runs,
                                       .nruns = c->nruns,
                                       .allow_unused = c->unused,
                                       .allow_repeat = c->repeat,
                                       .partial_dims = c->partial_dims,
                                       .max_peers = seed % 3 ? 0 : fewest_peers(c->world)};
}

static lierne_sim *create_plans(const bridge_case *c, const lierne_packed_bridge_spec *spec,
                                lierne_plan **plans, uint64_t seed) {
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, c->world, NULL));
    for (int r = 0; r < c->world; r++) {
        cr_assert_eq(lierne_plan_create_packed_bridge(&plans[r], lierne_sim_get_context(sim, r),
                                                      spec),
                     LIERNE_OK, "seed %d: %s", (int)seed, lierne_last_error());
    }
    return sim;
}

static void destroy_plans(const bridge_case *c, lierne_sim *sim, lierne_plan **plans) {
    for (int r = 0; r < c->world; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
}

static void run_seed(uint64_t seed) {
    static bridge_case c;
    lierne_layout *layouts[2] = {NULL, NULL};
    lierne_plan *plans[PACKED_WORLD];
    draw_case(&c, seed);
    if (make_layouts(&c, layouts, seed)) {
        lierne_packed_bridge_spec spec = spec_of(&c, layouts, seed);
        spec.routing = c.repeats  ? LIERNE_ROUTING_AUTO
                       : seed % 2 ? test_routing()
                                  : LIERNE_ROUTING_BALANCED;
        lierne_sim *sim = create_plans(&c, &spec, plans, seed);
        run_plans(&c, plans, seed);
        destroy_plans(&c, sim, plans);
    }
    lierne_layout_destroy(layouts[0]);
    lierne_layout_destroy(layouts[1]);
}

Test(packed_bridge, random_runs) {
    seed_range seeds = test_seeds(SEEDS);
    size_t live = lierne_mem_live();
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_seed(seed);
    }
    cr_assert_eq(lierne_mem_live(), live);
}

static lierne_status update_rank(const bridge_case *c, lierne_plan *plan) {
    const lierne_segments images = packed_segments(&c->tokens[0]),
                          segments = packed_segments(&c->tokens[1]);
    const lierne_packing src = packed_packing(&c->sides[0]), dst = packed_packing(&c->sides[1]);
    const lierne_segments_update update = {.size = sizeof update,
                                           .segments = &segments,
                                           .src = &src,
                                           .dst = &dst,
                                           .images = &images,
                                           .runs = c->runs,
                                           .nruns = c->nruns};
    void *memory;
    lierne_mem_fail_at(1);
    lierne_status status = lierne_plan_update_segments(plan, &update);
    cr_assert_eq(lierne_alloc(&memory, 1, 1), LIERNE_ERR_NO_MEMORY, "an update allocates");
    lierne_mem_fail_at(0);
    return status;
}

/* Other runs, or a description that is rejected on every rank and changes nothing. */
static void update_case(bridge_case *c, lierne_plan **plans, packed_random *random, uint64_t seed) {
    static bridge_case old;
    bool divides = true;
    old = *c;
    draw_runs(random, c);
    for (int s = 0; s < 2; s++) {
        packed_random_lengths(random, &c->sides[s], &c->tokens[s]);
        divides = divides && packed_divides(&c->sides[s], &c->tokens[s]);
    }
    uint32_t partial = c->partial_dims;
    c->gradient = c->sides[1];
    for (int d = 0; d < c->gradient.ndims; d++) {
        c->gradient.placements[d].kind =
            partial >> d & 1 ? LIERNE_PLACEMENT_PARTIAL : c->gradient.placements[d].kind;
    }
    for (int r = 0; r < c->world; r++) {
        lierne_status status = update_rank(c, plans[r]);
        cr_assert_eq(status, divides ? LIERNE_OK : LIERNE_ERR_INDIVISIBLE, "seed %d, rank %d: %s",
                     (int)seed, r, divides ? lierne_last_error() : "not rejected");
    }
    if (!divides) {
        *c = old;
    }
    run_plans(c, plans, seed);
}

static void run_updates(uint64_t seed) {
    static bridge_case c;
    lierne_layout *layouts[2] = {NULL, NULL};
    lierne_plan *plans[PACKED_WORLD];
    packed_random random = draw_case(&c, seed);
    if (make_layouts(&c, layouts, seed)) {
        lierne_packed_bridge_spec spec = spec_of(&c, layouts, seed);
        spec.max_segments = PACKED_SEGMENTS;
        spec.max_rows = PACKED_ROWS;
        spec.max_runs = MOST_RUNS;
        lierne_sim *sim = create_plans(&c, &spec, plans, seed);
        for (int i = 0; i < UPDATES; i++) {
            update_case(&c, plans, &random, seed);
        }
        destroy_plans(&c, sim, plans);
    }
    lierne_layout_destroy(layouts[0]);
    lierne_layout_destroy(layouts[1]);
}

Test(packed_bridge, random_updates) {
    seed_range seeds = test_seeds(SEEDS / 4);
    size_t live = lierne_mem_live();
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_updates(seed);
    }
    cr_assert_eq(lierne_mem_live(), live);
}

/* A run begins where the rank's first part of the axis ends, and the run before it, too. */
Test(packed_bridge, a_run_has_no_rows_of_a_part_that_ends_before_it) {
    lierne_span parts[] = {{.start = 0, .size = 2}, {.start = 2, .size = 2, .local = 10}};
    lierne_joint runs[] = {{.start = 0, .size = 2}, {.start = 5, .size = 2, .index = {2, 0}}};
    const lierne_span_list own = {.at = parts, .count = 2};
    const lierne_joints joints = {.n = 2, .at = runs};
    lierne_span_list spans = {0};
    assert_ok(lierne_joints_spans(&spans, &joints, 0, &own));
    cr_expect_eq(spans.count, 2);
    cr_expect(spans.at[1].start == 5 && spans.at[1].size == 2 && spans.at[1].local == 10);
    lierne_mem_free(spans.at);
}
