/* Packed sequences: random pairs of layouts against an oracle by token, aliases, padding, and
 * descriptions that are rejected. */
#include "unit/expect.h"
#include "unit/packed_case.h"
#include "unit/packed_spec.h"

#include "base/base.h"
#include "lierne/sim.h"
#include "routing.h"
#include "seeds.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 400, UPDATES = 20, GARBAGE = 999999 };

typedef struct packed_case {
    int world;
    packed_tokens tokens;
    packed_side sides[2];
    packed_buffer buffers[2][PACKED_WORLD];
} packed_case;

static int64_t value(int64_t t, int64_t h) {
    return 100 * (t + 1) + h;
}

static int64_t gradient(int64_t t, int64_t h) {
    return 7 * (t + 1) + 1000 * h + 3;
}

/* What a rank reads: forward, contribution c of n is c + 1 times the value. */
static void fill_input(const packed_buffer *b, bool forward, int64_t *in) {
    for (int64_t i = 0; i < packed_elements(b); i++) {
        int64_t t = b->rows[i / b->ncolumns], h = b->first_column + i % b->ncolumns;
        in[i] = t < 0 ? GARBAGE : forward ? value(t, h) * (b->contribution + 1) : gradient(t, h);
    }
}

/* What it must have written where there was packed_before(rank, i). sums: of the contributions'
 * factors.
 */
static int64_t expected(const packed_case *c, int side, int rank, int64_t i, int64_t sums) {
    const packed_buffer *b = &c->buffers[side][rank];
    int64_t t = b->rows[i / b->ncolumns], h = b->first_column + i % b->ncolumns;
    bool zero = t == PACKED_PADDING && c->sides[side].padding == LIERNE_PADDING_ZERO;
    return t >= 0 ? (side ? value(t, h) * sums : gradient(t, h))
           : zero ? 0
                  : packed_before(rank, i);
}

static void execute(const packed_case *c, lierne_plan **plans, lierne_direction d, uint64_t seed,
                    int64_t **out) {
    int64_t *in[PACKED_WORLD], n = c->buffers[0][c->sides[0].offset].contributions;
    int from = d == LIERNE_DIRECTION_ADJOINT, to = !from;
    for (int r = 0; r < c->world; r++) {
        size_t size = sizeof(int64_t);
        in[r] = calloc((size_t)packed_elements(&c->buffers[from][r]) + 1, size);
        out[r] = calloc((size_t)packed_elements(&c->buffers[to][r]) + 1, size);
        fill_input(&c->buffers[from][r], !from, in[r]);
        for (int64_t i = 0; i < packed_elements(&c->buffers[to][r]); i++) {
            out[r][i] = packed_before(r, i);
        }
    }
    packed_execute(plans, d, out, in, c->world, seed);
    for (int r = 0; r < c->world; r++) {
        for (int64_t i = 0; i < packed_elements(&c->buffers[to][r]); i++) {
            int64_t wanted = expected(c, to, r, i, n * (n + 1) / 2);
            cr_assert_eq(out[r][i], wanted,
                         "seed %d, rank %d, direction %d: element %d is %lld, must be %lld",
                         (int)seed, r, (int)d, (int)i, (long long)out[r][i], (long long)wanted);
        }
        free(in[r]);
    }
}

/* Every token has as many owners as replicas: those who have it are counted with their columns. */
static void expect_owners(const packed_case *c, int side, uint64_t seed) {
    int64_t tokens = c->tokens.cu[c->tokens.n], width = c->tokens.width, replicas = 1;
    int64_t *count = calloc((size_t)(tokens * width) + 1, sizeof *count);
    for (int d = 0; d < c->sides[side].ndims; d++) {
        lierne_placement_kind kind = c->sides[side].placements[d].kind;
        bool copies = kind == LIERNE_PLACEMENT_REPLICATE || kind == LIERNE_PLACEMENT_PARTIAL;
        replicas *= copies ? c->sides[side].sizes[d] : 1;
    }
    for (int r = 0; r < c->world; r++) {
        const packed_buffer *b = &c->buffers[side][r];
        for (int64_t i = 0; i < packed_elements(b); i++) {
            int64_t t = b->rows[i / b->ncolumns];
            count[t < 0 ? tokens * width : t * width + b->first_column + i % b->ncolumns]++;
        }
    }
    for (int64_t i = 0; i < tokens * width; i++) {
        cr_assert_eq(count[i], replicas, "seed %d, side %d: element %d", (int)seed, side, (int)i);
    }
    free(count);
}

static bool has(const packed_buffer *b, int64_t t, int64_t h) {
    for (int64_t k = 0; k < b->nrows; k++) {
        if (b->rows[k] == t) {
            return h >= b->first_column && h < b->first_column + b->ncolumns;
        }
    }
    return false;
}

/* Of a source without PARTIAL dims: a rank receives what it needs and does not hold. */
static void expect_bytes(const packed_case *c, lierne_plan **plans, uint64_t seed) {
    for (int r = 0; r < c->world && c->buffers[0][c->sides[0].offset].contributions == 1; r++) {
        const packed_buffer *b = &c->buffers[1][r];
        lierne_report report = {.size = sizeof report};
        int64_t wanted = 0;
        for (int64_t i = 0; i < packed_elements(b); i++) {
            int64_t t = b->rows[i / b->ncolumns], h = b->first_column + i % b->ncolumns;
            wanted += t >= 0 && !has(&c->buffers[0][r], t, h);
        }
        assert_ok(lierne_plan_get_report(&report, plans[r], LIERNE_DIRECTION_FORWARD));
        cr_assert_eq(report.received_bytes - report.forwarded_bytes, wanted * 8, "seed %d, rank %d",
                     (int)seed, r);
        cr_assert_eq(report.min_bytes, wanted * 8, "seed %d, rank %d", (int)seed, r);
        cr_assert(report.most_peers == 0 || report.received_peers <= report.most_peers,
                  "seed %d, rank %d receives from %d ranks", (int)seed, r,
                  (int)report.received_peers);
    }
}

/* <F x, y> of forward's output or <x, F* y> of the adjoint's, each token once; x and y are what
 * the ranks read, x the first contribution. */
static int64_t dot(const packed_case *c, int side, int64_t **out) {
    int64_t sum = 0, tokens = c->tokens.cu[c->tokens.n], width = c->tokens.width;
    bool *seen = calloc((size_t)(tokens * width) + 1, sizeof *seen);
    for (int r = 0; r < c->world; r++) {
        const packed_buffer *b = &c->buffers[side][r];
        for (int64_t i = 0; i < packed_elements(b); i++) {
            int64_t t = b->rows[i / b->ncolumns], h = b->first_column + i % b->ncolumns;
            if (t >= 0 && !seen[t * width + h]) {
                seen[t * width + h] = true;
                sum += out[r][i] * (side ? gradient(t, h) : value(t, h));
            }
        }
    }
    free(seen);
    return sum;
}

static void run_plans(const packed_case *c, lierne_plan **plans, uint64_t seed) {
    int64_t *forward[PACKED_WORLD], *adjoint[PACKED_WORLD];
    int64_t n = c->buffers[0][c->sides[0].offset].contributions;
    cr_assert_eq(lierne_plan_check((const lierne_plan *const *)plans, c->world), LIERNE_OK,
                 "seed %d: %s", (int)seed, lierne_last_error());
    expect_bytes(c, plans, seed);
    execute(c, plans, LIERNE_DIRECTION_FORWARD, seed, forward);
    execute(c, plans, LIERNE_DIRECTION_ADJOINT, seed, adjoint);
    cr_assert_eq(dot(c, 1, forward), dot(c, 0, adjoint) * (n * (n + 1) / 2), "seed %d", (int)seed);
    for (int r = 0; r < c->world; r++) {
        free(forward[r]);
        free(adjoint[r]);
    }
}

/* The layouts of a case; NULL where a zigzag does not divide, which lierne must see, too. */
static bool make_layouts(const packed_case *c, lierne_layout **layouts, uint64_t seed) {
    bool all = true;
    for (int s = 0; s < 2; s++) {
        bool divides = packed_divides(&c->sides[s], &c->tokens);
        lierne_status status = packed_layout(&layouts[s], &c->sides[s], &c->tokens, c->world);
        cr_assert_eq(status, divides ? LIERNE_OK : LIERNE_ERR_INDIVISIBLE, "seed %d, side %d: %s",
                     (int)seed, s, lierne_last_error());
        all = all && divides;
    }
    return all;
}

/* A world, its segments and both sides; a source may be PARTIAL. */
static packed_random draw_case(packed_case *c, uint64_t seed) {
    packed_random random = {.state = mix(seed + 1)};
    *c = (packed_case){.world = 1 + (int)packed_draw(&random, PACKED_WORLD)};
    packed_random_tokens(&random, &c->tokens);
    for (int s = 0; s < 2; s++) {
        packed_random_side(&random, &c->sides[s], c->world, s == 1);
        packed_random_packing(&random, &c->sides[s], &c->tokens);
    }
    return random;
}

/* A third of the seeds go over few peers. */
static int peers_of(const packed_case *c, uint64_t seed) {
    return seed / 10 % 3 == 0 ? fewest_peers(c->world) : 0;
}

static void run_seed(uint64_t seed) {
    static packed_case c;
    lierne_layout *layouts[2] = {NULL, NULL};
    lierne_plan *plans[PACKED_WORLD];
    lierne_sim *sim;
    draw_case(&c, seed);
    if (make_layouts(&c, layouts, seed)) {
        const lierne_redistribute_spec spec = {.size = sizeof spec,
                                               .src = layouts[0],
                                               .dst = layouts[1],
                                               .routing = seed % 2 ? test_routing()
                                                                   : LIERNE_ROUTING_BALANCED,
                                               .max_peers = peers_of(&c, seed)};
        assert_ok(lierne_sim_create(&sim, c.world, NULL));
        for (int r = 0; r < c.world; r++) {
            packed_fill_buffer(&c.buffers[0][r], &c.sides[0], &c.tokens, r);
            packed_fill_buffer(&c.buffers[1][r], &c.sides[1], &c.tokens, r);
            cr_assert_eq(lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(sim, r),
                                                         &spec),
                         LIERNE_OK, "seed %d: %s", (int)seed, lierne_last_error());
        }
        expect_owners(&c, 0, seed);
        expect_owners(&c, 1, seed);
        run_plans(&c, plans, seed);
        for (int r = 0; r < c.world; r++) {
            assert_ok(lierne_plan_destroy(plans[r]));
        }
        assert_ok(lierne_sim_destroy(sim));
    }
    lierne_layout_destroy(layouts[0]);
    lierne_layout_destroy(layouts[1]);
}

Test(packed, random_pairs_of_layouts) {
    seed_range seeds = test_seeds(SEEDS);
    size_t live = lierne_mem_live();
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_seed(seed);
    }
    cr_assert_eq(lierne_mem_live(), live);
}

/* What an update does without memory: the first allocation would fail, and be noticed here. */
static lierne_status update_rank(const packed_case *c, lierne_plan *plan) {
    const lierne_segments segments = packed_segments(&c->tokens);
    const lierne_packing src = packed_packing(&c->sides[0]), dst = packed_packing(&c->sides[1]);
    const lierne_segments_update update = {.size = sizeof update,
                                           .segments = &segments,
                                           .src = c->sides[0].plain ? NULL : &src,
                                           .dst = c->sides[1].plain ? NULL : &dst};
    void *memory;
    lierne_mem_fail_at(1);
    lierne_status status = lierne_plan_update_segments(plan, &update);
    cr_assert_eq(lierne_alloc(&memory, 1, 1), LIERNE_ERR_NO_MEMORY, "an update allocates");
    lierne_mem_fail_at(0);
    return status;
}

/* Draws other segments; false: a zigzag does not divide. */
static bool draw_update(packed_case *c, packed_random *random) {
    int64_t width = c->tokens.width;
    bool divides = true;
    c->tokens = (packed_tokens){0};
    packed_random_tokens(random, &c->tokens);
    c->tokens.width = width;
    for (int s = 0; s < 2; s++) {
        packed_random_lengths(random, &c->sides[s], &c->tokens);
        divides = divides && packed_divides(&c->sides[s], &c->tokens);
    }
    return divides;
}

/* Fills the buffers of all ranks, and returns the rows of the largest. */
static int64_t fill_buffers(packed_case *c) {
    int64_t most = 0;
    for (int i = 0; i < 2 * c->world; i++) {
        packed_buffer *b = &c->buffers[i % 2][i / 2];
        packed_fill_buffer(b, &c->sides[i % 2], &c->tokens, i / 2);
        most = b->nrows > most ? b->nrows : most;
    }
    return most;
}

/* The most segments and rows that a case and its updates have, or, for some seeds, a row less than
 * some update has. */
static lierne_redistribute_spec capacity_of(const packed_case *first, packed_random random,
                                            uint64_t seed) {
    static packed_case c;
    lierne_redistribute_spec spec = {.size = sizeof spec};
    c = *first;
    int64_t least = fill_buffers(&c);
    spec.max_rows = least = least > 1 ? least : 1;
    spec.max_segments = c.tokens.n > 1 ? c.tokens.n : 1;
    for (int i = 0; i < UPDATES; i++) {
        int64_t rows = draw_update(&c, &random) ? fill_buffers(&c) : 0;
        spec.max_rows = rows > spec.max_rows ? rows : spec.max_rows;
        spec.max_segments = c.tokens.n > spec.max_segments ? c.tokens.n : spec.max_segments;
    }
    spec.max_rows -= seed / 30 % 2 && spec.max_rows > least;
    return spec;
}

/* Other segments, or a description that is rejected on every rank and changes nothing. */
static void update_case(packed_case *c, lierne_plan **plans, packed_random *random,
                        int64_t max_rows, uint64_t seed) {
    static packed_case old;
    old = *c;
    bool divides = draw_update(c, random);
    lierne_status wanted = !divides                     ? LIERNE_ERR_INDIVISIBLE
                           : fill_buffers(c) > max_rows ? LIERNE_ERR_CAPACITY
                                                        : LIERNE_OK;
    for (int r = 0; r < c->world; r++) {
        lierne_status status = update_rank(c, plans[r]);
        cr_assert_eq(status, wanted, "seed %d, rank %d: %s: %s", (int)seed, r,
                     lierne_status_name(status), lierne_last_error());
    }
    if (wanted != LIERNE_OK) {
        *c = old;
    }
    (void)fill_buffers(c);
    run_plans(c, plans, seed);
}

static void run_updates(uint64_t seed) {
    static packed_case c;
    lierne_layout *layouts[2] = {NULL, NULL};
    lierne_plan *plans[PACKED_WORLD];
    lierne_sim *sim;
    packed_random random = draw_case(&c, seed);
    if (!(c.sides[0].plain && c.sides[1].plain) && make_layouts(&c, layouts, seed)) {
        lierne_redistribute_spec spec = capacity_of(&c, random, seed);
        spec.src = layouts[0];
        spec.dst = layouts[1];
        spec.max_peers = peers_of(&c, seed);
        cr_assert_eq(lierne_sim_create(&sim, c.world, NULL), LIERNE_OK);
        for (int r = 0; r < c.world; r++) {
            cr_assert_eq(lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(sim, r),
                                                         &spec),
                         LIERNE_OK, "seed %d: %s", (int)seed, lierne_last_error());
        }
        for (int i = 0; i < UPDATES; i++) {
            update_case(&c, plans, &random, spec.max_rows, seed);
        }
        for (int r = 0; r < c.world; r++) {
            cr_assert_eq(lierne_plan_destroy(plans[r]), LIERNE_OK);
        }
        cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
    }
    lierne_layout_destroy(layouts[0]);
    lierne_layout_destroy(layouts[1]);
}

/* Sequences of updates of one plan whose capacity is just what they need, or a row less: a tenth of
 * the seeds. */
Test(packed, random_updates) {
    seed_range seeds = test_seeds(SEEDS);
    size_t live = lierne_mem_live();
    for (uint64_t seed = seeds.first; seed < seeds.end; seed += 10) {
        run_updates(seed);
    }
    cr_assert_eq(lierne_mem_live(), live);
}

/* A seed where ranks send by the same blocks as they receive, but as other messages: peers are in
 * another order. */
Test(packed, updates_of_messages_in_another_order) {
    run_updates(1460);
}

enum { SUM_RANKS = 6, SUM_TOKENS = 40, SUM_WIDTH = 3 };

static void make_sum_plans(lierne_plan **plans, lierne_sim *sim, lierne_layout *const *layouts,
                           int64_t segments, int64_t rows) {
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = layouts[0],
                                           .dst = layouts[1],
                                           .routing = LIERNE_ROUTING_DIRECT,
                                           .max_segments = segments,
                                           .max_rows = rows};
    for (int r = 0; r < SUM_RANKS; r++) {
        assert_ok(
            lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
}

/* Floats of very different size on every rank. */
static void sum_forward(lierne_plan **plans, float out[SUM_RANKS][SUM_TOKENS * SUM_WIDTH]) {
    static float in[SUM_RANKS][SUM_TOKENS * SUM_WIDTH];
    lierne_request *requests[SUM_RANKS];
    for (int r = 0; r < SUM_RANKS; r++) {
        for (int i = 0; i < SUM_TOKENS * SUM_WIDTH; i++) {
            in[r][i] = (float)(mix((uint64_t)(r * 1000 + i)) % 1000003) / (float)(1 + r * r * r);
        }
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < SUM_RANKS; r++) {
        assert_ok(lierne_request_end(requests[r]));
        assert_ok(lierne_plan_destroy(plans[r]));
    }
}

static lierne_layout *sum_layout(const packed_side *side, int64_t second) {
    static const char *const names[] = {"cp", "p"};
    const lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                        .ndims = 2,
                                        .names = names,
                                        .sizes = (int64_t[]){2, 3},
                                        .world_size = SUM_RANKS};
    lierne_grid *grid;
    assert_ok(lierne_grid_create(&grid, &grid_spec));
    const int64_t cu[] = {0, second, SUM_TOKENS}, shape[] = {SUM_TOKENS, SUM_WIDTH};
    const lierne_segments segments = {.size = sizeof segments, .nsegments = 2, .cu_seqlens = cu};
    const lierne_packing packing = {.size = sizeof packing, .align = 4};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = side->placements,
                                     .segments = &segments,
                                     .packing = &packing};
    lierne_layout *layout;
    assert_ok(lierne_layout_create(&layout, &spec));
    lierne_grid_destroy(grid);
    return layout;
}

/* After an update, the contributions of a PARTIAL source are summed in the order of a plan that was
 * made for these segments. */
Test(packed, updates_sum_like_a_new_plan) {
    static float out[2][SUM_RANKS][SUM_TOKENS * SUM_WIDTH];
    const packed_side from = {.placements = {{.kind = LIERNE_PLACEMENT_SEGMENT_ZIGZAG},
                                             {.kind = LIERNE_PLACEMENT_PARTIAL}}},
                      to = {.placements = {{.kind = LIERNE_PLACEMENT_SHARD},
                                           {.kind = LIERNE_PLACEMENT_REPLICATE}}};
    lierne_layout *layouts[2][2] = {{sum_layout(&from, 8), sum_layout(&to, 8)},
                                    {sum_layout(&from, 27), sum_layout(&to, 27)}};
    const int64_t cu[] = {0, 27, SUM_TOKENS};
    const lierne_segments segments = {.size = sizeof segments, .nsegments = 2, .cu_seqlens = cu};
    const lierne_packing packing = {.size = sizeof packing, .align = 4};
    const lierne_segments_update update = {.size = sizeof update,
                                           .segments = &segments,
                                           .src = &packing,
                                           .dst = &packing};
    lierne_plan *plans[SUM_RANKS];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, SUM_RANKS, NULL));
    make_sum_plans(plans, sim, layouts[1], 0, 0);
    sum_forward(plans, out[0]);
    make_sum_plans(plans, sim, layouts[0], 2, SUM_TOKENS);
    for (int r = 0; r < SUM_RANKS; r++) {
        assert_ok(lierne_plan_update_segments(plans[r], &update));
    }
    sum_forward(plans, out[1]);
    cr_assert_eq(memcmp(out[0], out[1], sizeof out[0]), 0);
    assert_ok(lierne_sim_destroy(sim));
    for (int i = 0; i < 4; i++) {
        lierne_layout_destroy(layouts[i / 2][i % 2]);
    }
}

/* Tokens of a plain side that a map divides, which no formula finds. */
Test(packed, a_map_of_tokens) {
    static const int32_t owner[16] = {1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1};
    static const float parts[2][9] = {{0, 1, 2, 6, 7, 9, 10, 11, 12}, {3, 4, 5, 8, 13, 14, 15}};
    float out[4][16];
    lierne_request *requests[4];
    packed_world w;
    packed_spec s;
    packed_spec_open(&s);
    s.placements[0].kind = LIERNE_PLACEMENT_SEGMENT_SHARD;
    s.placements[1].kind = LIERNE_PLACEMENT_REPLICATE;
    s.packing.cu_seqlens_padded = NULL, s.packing.owner = NULL, s.shape[1] = 1;
    lierne_layout *src = packed_spec_layout(&s);
    s.placements[0] =
        (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = owner};
    s.spec.segments = NULL, s.spec.packing = NULL;
    lierne_layout *dst = packed_spec_layout(&s);
    assert_ok(packed_world_plan(&w, src, dst));
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], w.plans[r], out[r], parts[r % 2], NULL));
    }
    for (int r = 0; r < 4; r++) {
        assert_ok(lierne_request_end(requests[r]));
        for (int t = 0, n = 0; t < 16; t++) {
            cr_expect(owner[t] != r % 2 || out[r][n++] == (float)t, "rank %d, token %d", r, t);
        }
    }
    packed_world_close(&w);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(s.grid);
}
