/* Bridges that no reference does: random pairs of grids with lanes that do not divide, counts,
 * empty lanes, pipeline stages, unknown dims, spans that differ, overlap or are disjoint, several
 * nodes. Each must be right, and receive no byte too many. */
#include "bridge_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 3000, MAX_WORLD = 40 };

static uint64_t state;
static int64_t draw(int64_t n) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int64_t)((state * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

static void shuffle(case_grid *g) {
    for (int d = g->ndims - 1; d > 0; d--) {
        int64_t e = draw(d + 1), size = g->sizes[d];
        const char *name = g->names[d];
        g->names[d] = g->names[e];
        g->sizes[d] = g->sizes[e];
        g->names[e] = name;
        g->sizes[e] = size;
    }
}

static case_grid random_grid(int world, int with_cp) {
    static const char *const names[5] = {"tp", "dp", "pp", "cp", "ep"};
    static const int64_t most[5] = {4, 5, 3, 4, 2};
    case_grid g = {.ndims = with_cp ? 5 : 3};
    int64_t size = 1;
    for (int d = 0; d < g.ndims; d++) {
        int64_t n = 1 + draw(most[d]);
        g.names[d] = names[d];
        g.sizes[d] = size * n <= world ? n : 1;
        size *= g.sizes[d];
    }
    g.offset = (int)draw(world - size + 1);
    shuffle(&g);
    return g;
}

static const int64_t *random_counts(int64_t lanes, int64_t batch, int64_t *counts) {
    if (draw(3)) {
        return NULL;
    }
    memset(counts, 0, (size_t)lanes * sizeof *counts);
    for (int64_t i = 0; i < batch; i++) {
        counts[draw(lanes)]++; /* some lanes stay empty */
    }
    return counts;
}

static void random_owner(bridge_case *c, int32_t *rows) {
    int64_t cp = case_size(&c->dst, "cp");
    c->owner = (lierne_gradient_owner)draw(4);
    c->storage = c->owner == LIERNE_GRADIENT_PARTIAL ? LIERNE_FULL : (lierne_storage)draw(2);
    if (c->owner == LIERNE_GRADIENT_ZIGZAG) {
        c->sequence = 2 * cp * (1 + draw(2));
    }
    if (c->owner == LIERNE_GRADIENT_ROWS) {
        if (abs(c->axis_b - c->axis_s) != 1) {
            c->storage = LIERNE_FULL;
        }
        for (int64_t i = 0; i < c->batch * c->sequence; i++) {
            rows[i] = (int32_t)draw(cp);
        }
        c->rows = rows;
    }
}

static void random_axes(bridge_case *c) {
    int axes[3] = {0, 1, 2};
    for (int a = 2; a > 0; a--) {
        int64_t e = draw(a + 1);
        int keep = axes[a];
        axes[a] = axes[e];
        axes[e] = keep;
    }
    c->axis_b = axes[0];
    c->axis_s = axes[1];
    c->axis_h = axes[2];
}

static void run_random(uint64_t seed) {
    int64_t src_counts[8], dst_counts[8];
    int32_t rows[1024];
    int nodes[MAX_WORLD];
    case_result result;
    state = seed * 0x9e3779b97f4a7c15u + 1;
    bridge_case c = {.world = (int)(1 + draw(MAX_WORLD)), .hidden = 1 + draw(3),
                     .batch = draw(13), .sequence = 1 + draw(7)};
    c.src = random_grid(c.world, 0);
    c.dst = random_grid(c.world, 1);
    c.dtype = (lierne_dtype)draw(8);
    random_axes(&c);
    random_owner(&c, rows);
    c.src_counts = random_counts(case_size(&c.src, "dp"), c.batch, src_counts);
    c.dst_counts = random_counts(case_size(&c.dst, "dp"), c.batch, dst_counts);
    for (int r = 0; r < c.world; r++) {
        nodes[r] = r / 3;
    }
    c.nodes = draw(2) ? nodes : NULL;
    const char *wrong = run_case(&c, &result);
    cr_assert(!wrong, "seed %llu: %s", (unsigned long long)seed, wrong);
    cr_assert_eq(result.status, LIERNE_OK, "seed %llu: %s", (unsigned long long)seed,
                 result.message);
    cr_assert_eq(result.received, result.minimum, "seed %llu: forward receives %lld, minimum %lld",
                 (unsigned long long)seed, (long long)result.received, (long long)result.minimum);
    cr_assert_eq(result.adjoint_received, result.adjoint_minimum,
                 "seed %llu: adjoint receives %lld, minimum %lld", (unsigned long long)seed,
                 (long long)result.adjoint_received, (long long)result.adjoint_minimum);
    free_result(&result);
}

/* LIERNE_SEED=n runs the pair of that seed alone. */
Test(bridge_general, random_pairs) {
    const char *seed = getenv("LIERNE_SEED");
    if (seed) {
        run_random(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 0; i < PAIRS; i++) {
        run_random(i);
    }
    printf("random pairs: seeds 0 to %d\n", PAIRS - 1);
}

/* 4,096 ranks: tp8 dp512 -> tp8 cp4 dp128, and a full check that messages pair up. */
Test(bridge_general, four_thousand_ranks) {
    bridge_case c = {.world = 4096, .batch = 512, .sequence = 8, .hidden = 2, .axis_b = 1,
                     .axis_h = 2, .dtype = LIERNE_BF16, .owner = LIERNE_GRADIENT_PARTIAL};
    c.src = (case_grid){.ndims = 2, .names = {"tp", "dp"}, .sizes = {8, 512}};
    c.dst = (case_grid){.ndims = 3, .names = {"tp", "cp", "dp"}, .sizes = {8, 4, 128}};
    for (int a = 0; a < 2; a++) {
        case_result result;
        c.algorithm = (lierne_bridge_algorithm)a;
        const char *wrong = run_case(&c, &result);
        cr_assert(!wrong && result.status == LIERNE_OK, "%s %s", wrong ? wrong : "",
                  result.message);
        free_result(&result);
    }
}
