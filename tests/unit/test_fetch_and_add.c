/* Fetch-and-add against a serial model: the ranks one after another, the ghosts of each in their
 * order, every bit and every gap between rows. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rank_threads.h"
#include "ranks.h"
#include "seeds.h"
#include "unit/halo_case.h"

enum { SEEDS = 400, WORLD = 8, OWNED = 6, GHOSTS = 24, WIDTH = 3, GAP = 0x5a };

/* Whom the ghosts of all ranks refer to, and rows of a type. */
typedef struct world {
    uint64_t seed;
    int n;
    lierne_dtype dtype;
    int64_t width, stride;
    int64_t nowned[WORLD], nghosts[WORLD];
    int32_t rank[WORLD][GHOSTS];
    int64_t row[WORLD][GHOSTS];
    /* What out must have: owned rows, then ghosts. */
    double want[WORLD][OWNED + GHOSTS][WIDTH];
    int wrong[WORLD]; /* line of an expectation that did not hold */
    char message[WORLD][400];
} world;

#define EXPECT(w, r, condition)                                                                    \
    if (!(condition) && !(w)->wrong[r]) {                                                          \
        (w)->wrong[r] = __LINE__;                                                                  \
        snprintf((w)->message[r], sizeof(w)->message[r], "%s", lierne_last_error());               \
    }

static uint64_t pick(const world *w, uint64_t a, uint64_t b, uint64_t n) {
    return halo_case_pick(w->seed, a, b, n);
}

/* Few rows and many ghosts, also the reverse; ranks without rows, and without ghosts. */
static void draw_world(world *w, uint64_t seed) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_I64, LIERNE_DTYPE_F64, LIERNE_DTYPE_I32,
                                          LIERNE_DTYPE_F32, LIERNE_DTYPE_BF16};
    memset(w, 0, sizeof *w);
    w->seed = seed;
    w->n = 1 + (int)(seed % WORLD);
    w->dtype = dtypes[pick(w, 1, 2, 5)];
    w->width = 1 + (int64_t)pick(w, 1, 3, WIDTH);
    w->stride = pick(w, 1, 4, 2) ? 0 : w->width + (int64_t)pick(w, 1, 5, 3);
    int64_t all = 0;
    for (int r = 0; r < w->n; r++) {
        w->nowned[r] = pick(w, 10, (uint64_t)r, 3) ? (int64_t)pick(w, 11, (uint64_t)r, OWNED) : 0;
        all += w->nowned[r];
    }
    for (int r = 0; r < w->n && all; r++) {
        uint64_t most = pick(w, 12, 0, 3) ? GHOSTS : 3;
        int64_t n = pick(w, 13, (uint64_t)r, 5) ? (int64_t)pick(w, 14, (uint64_t)r, most) : 0;
        for (uint64_t try = 0; w->nghosts[r] < n; try++) {
            int q = (int)pick(w, 100 + (uint64_t)r, try, (uint64_t)w->n);
            int64_t k = w->nghosts[r];
            if (w->nowned[q]) {
                w->rank[r][k] = q;
                w->row[r][k] = (int64_t)pick(w, 200 + (uint64_t)r, try, (uint64_t)w->nowned[q]);
                w->nghosts[r]++;
            }
        }
    }
}

/* The nearest value of a type; of bf16 from a float. */
static double rounded(lierne_dtype dtype, double v) {
    float f = (float)v;
    uint32_t bits;
    if (dtype == LIERNE_DTYPE_F32) {
        return f;
    }
    if (dtype != LIERNE_DTYPE_BF16) {
        return v;
    }
    memcpy(&bits, &f, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &bits, 4);
    return f;
}

static double add(lierne_dtype dtype, double a, double b) {
    return rounded(dtype, a + b);
}

/* A sum that is not rounded yet, of a type whose sums are in float32. */
static double add_on(lierne_dtype dtype, double a, double b) {
    return add(dtype == LIERNE_DTYPE_BF16 ? LIERNE_DTYPE_F32 : dtype, a, b);
}

/* Element c of row i of in: values of owned rows, then additions. */
static double cell(const world *w, int r, int64_t i, int64_t c) {
    double v = (double)pick(w, 1000 + (uint64_t)(r * 100 + i), (uint64_t)c, 4001) - 1500;
    bool whole = w->dtype == LIERNE_DTYPE_I32 || w->dtype == LIERNE_DTYPE_I64;
    return rounded(w->dtype, whole ? v : v * 0.37);
}

static bool is_of(const world *w, int r, int64_t k, int q, int64_t row) {
    return w->rank[r][k] == q && w->row[r][k] == row;
}

/* Every ghost of a row, rank by rank; c: an element. */
static void model_row(world *w, int q, int64_t row, int64_t c) {
    double base = cell(w, q, row, c), sum = base;
    for (int r = 0; r < w->n; r++) {
        double before = 0, total = 0;
        int seen = 0;
        for (int64_t k = 0; k < w->nghosts[r]; k++) {
            if (is_of(w, r, k, q, row)) {
                double v = cell(w, r, w->nowned[r] + k, c);
                w->want[r][w->nowned[r] + k][c] = seen ? add(w->dtype, base, before) : base;
                before = seen ? add(w->dtype, before, v) : v;
                total = seen++ ? add_on(w->dtype, total, v) : v;
            }
        }
        if (seen) {
            total = rounded(w->dtype, total);
            base = add(w->dtype, base, total);
            sum = add_on(w->dtype, sum, total);
        }
    }
    w->want[q][row][c] = rounded(w->dtype, sum);
}

static void run_model(world *w) {
    for (int q = 0; q < w->n; q++) {
        for (int64_t row = 0; row < w->nowned[q]; row++) {
            for (int64_t c = 0; c < w->width; c++) {
                model_row(w, q, row, c);
            }
        }
    }
}

static void store(char *at, lierne_dtype dtype, double v) {
    float f = (float)v;
    uint32_t bits;
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        memcpy(at, &v, 8);
        break;
    case LIERNE_DTYPE_F32:
        memcpy(at, &f, 4);
        break;
    case LIERNE_DTYPE_I64:
        memcpy(at, &(int64_t){(int64_t)v}, 8);
        break;
    case LIERNE_DTYPE_I32:
        memcpy(at, &(int32_t){(int32_t)v}, 4);
        break;
    default:
        memcpy(&bits, &f, 4);
        memcpy(at, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
    }
}

/* A buffer of rank r: the model's, or what it is computed from; gaps have a byte of their own. */
typedef struct rows {
    size_t bytes;
    char *at;
} rows;

static rows make_rows(const world *w, int r, bool wanted, bool filled) {
    size_t size = lierne_dtype_size(w->dtype);
    int64_t stride = w->stride ? w->stride : w->width, n = w->nowned[r] + w->nghosts[r];
    rows b = {.bytes = (size_t)(n * stride + 1) * size};
    b.at = malloc(b.bytes);
    memset(b.at, GAP, b.bytes);
    for (int64_t i = 0; i < n && filled; i++) {
        for (int64_t c = 0; c < w->width; c++) {
            store(b.at + (size_t)(i * stride + c) * size, w->dtype,
                  wanted ? w->want[r][i][c] : cell(w, r, i, c));
        }
    }
    return b;
}

static lierne_status make_like(lierne_plan **like, lierne_context *context, const world *w) {
    int r = lierne_context_get_rank(context);
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    spec.nowned = w->nowned[r];
    spec.nghosts = w->nghosts[r];
    spec.rank = w->rank[r];
    spec.row = w->row[r];
    spec.dtype = LIERNE_DTYPE_F32;
    spec.width = 5;
    spec.combined = w->seed % 3 == 0;
    spec.accumulate = w->seed % 3 == 1;
    spec.algorithm = w->seed % 3 && w->seed % 2 ? LIERNE_GRAPH_ALGORITHM_ALL_GATHER
                                                : LIERNE_GRAPH_ALGORITHM_DIRECT;
    return lierne_plan_create_references(like, context, &spec);
}

/* Into another buffer, begun, and in place. */
static void check_calls(world *w, int r, lierne_plan *plan) {
    rows in = make_rows(w, r, false, true), want = make_rows(w, r, true, true);
    rows same = make_rows(w, r, false, true);
    lierne_request *request;
    for (int how = 0; how < 2; how++) {
        rows out = make_rows(w, r, false, false);
        lierne_status status = how ? lierne_plan_forward_begin(&request, plan, out.at, in.at, NULL)
                                   : lierne_plan_forward(plan, out.at, in.at, NULL);
        status = how && status == LIERNE_OK ? lierne_request_end(request) : status;
        EXPECT(w, r, status == LIERNE_OK);
        EXPECT(w, r, memcmp(out.at, want.at, want.bytes) == 0);
        EXPECT(w, r, memcmp(in.at, same.at, in.bytes) == 0);
        free(out.at);
    }
    EXPECT(w, r, lierne_plan_forward(plan, in.at, in.at, NULL) == LIERNE_OK);
    EXPECT(w, r, memcmp(in.at, want.at, want.bytes) == 0);
    free(in.at), free(want.at), free(same.at);
}

static void run_trial(lierne_context *context, void *shared) {
    world *w = shared;
    int r = lierne_context_get_rank(context);
    lierne_plan *like = NULL, *plan = NULL, *retyped = NULL;
    lierne_fetch_and_add_spec spec = LIERNE_FETCH_AND_ADD_SPEC_INIT;
    lierne_retyped_spec other = {.size = sizeof other,
                                 .dtype = w->dtype,
                                 .width = w->width,
                                 .in_stride = w->stride,
                                 .out_stride = w->stride};
    bool retypes = w->seed % 4 == 0;
    spec.dtype = retypes ? LIERNE_DTYPE_I8 : w->dtype;
    spec.width = retypes ? 7 : w->width;
    spec.stride = retypes ? 0 : w->stride;
    EXPECT(w, r, make_like(&like, context, w) == LIERNE_OK);
    EXPECT(w, r, lierne_plan_create_fetch_and_add(&plan, like, &spec) == LIERNE_OK);
    if (retypes) {
        EXPECT(w, r, lierne_plan_create_retyped(&retyped, plan, &other) == LIERNE_OK);
    }
    lierne_plan_destroy(like);
    lierne_plan *used = retypes ? retyped : plan;
    if (used) {
        EXPECT(w, r, lierne_plan_check((const lierne_plan *const *)&used, 1) == LIERNE_OK);
        check_calls(w, r, used);
    }
    lierne_plan_destroy(retyped);
    lierne_plan_destroy(plan);
}

Test(fetch_and_add, equals_a_serial_model) {
    static world w;
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        draw_world(&w, seed);
        run_model(&w);
        ranks_run(w.n, NULL, run_trial, &w);
        for (int r = 0; r < w.n; r++) {
            cr_assert_eq(w.wrong[r], 0, "seed %d: rank %d: line %d: %s", (int)seed, r, w.wrong[r],
                         w.message[r]);
        }
    }
}

/* What rank 0 can add up of its own two ghosts does not wait for messages: their sum, and what
 * comes before the second. */
static bool adds_first(const lierne_plan *plan, int rank) {
    const lierne_route *route;
    return lierne_plan_get_route(&route, plan, LIERNE_DIRECTION_FORWARD) == LIERNE_OK &&
           (rank > 0 || route->stages.at[0].sums.count == 2);
}

/* By hand: rank 1 owns a list with 5 places taken. Rank 0 asks for 2 and 4, rank 1 for 1, rank 2
 * for 3. */
static void run_places(lierne_context *context, void *shared) {
    bool *right = shared;
    int r = lierne_context_get_rank(context);
    static const int64_t in[3][2] = {{2, 4}, {5, 1}, {3, 0}},
                         out[3][2] = {{5, 7}, {15, 11}, {12, 0}};
    const int32_t ranks[] = {1, 1};
    const int64_t first[] = {0, 0};
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_fetch_and_add_spec fetch = LIERNE_FETCH_AND_ADD_SPEC_INIT;
    lierne_plan *like = NULL, *plan = NULL;
    lierne_report report = {.size = sizeof report};
    int64_t got[2] = {0};
    spec.nowned = r == 1;
    spec.nghosts = r == 0 ? 2 : 1;
    spec.rank = ranks;
    spec.row = first;
    fetch.dtype = spec.dtype = LIERNE_DTYPE_I64;
    right[r] = lierne_plan_create_references(&like, context, &spec) == LIERNE_OK &&
               lierne_plan_create_fetch_and_add(&plan, like, &fetch) == LIERNE_OK &&
               lierne_plan_forward(plan, got, in[r], NULL) == LIERNE_OK &&
               memcmp(got, out[r], sizeof got) == 0 && adds_first(plan, r) &&
               strcmp(lierne_plan_get_kind(plan), "fetch_and_add") == 0 &&
               lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD) == LIERNE_OK &&
               report.sent_messages == (r == 1 ? 2 : 1) &&
               report.received_bytes == (r == 1 ? 16 : 8) &&
               report.min_bytes == report.received_bytes && strcmp(report.algorithm, "direct") == 0;
    lierne_plan_destroy(like);
    lierne_plan_destroy(plan);
}

Test(fetch_and_add, places_in_a_list_by_hand) {
    bool right[3] = {0};
    ranks_run(3, NULL, run_places, right);
    cr_assert(right[0] && right[1] && right[2], "%d %d %d", right[0], right[1], right[2]);
}

/* A bad spec of rank 1, or a plan that has no ghosts to fetch by, and what both ranks get. */
typedef enum like_kind { REFERENCES, RETYPED, SWAPS } like_kind;
typedef struct fault {
    like_kind like;
    lierne_fetch_and_add_spec spec;
    lierne_status status;
    const char *text;
} fault;
typedef struct got {
    const fault *of;
    lierne_status status[2];
    char message[2][400];
} got;

#define SPEC(dtype, width, stride, inflight)                                                       \
    { sizeof(lierne_fetch_and_add_spec), (lierne_dtype)(dtype), width, stride, inflight, NULL }

static lierne_status plan_like(lierne_plan **like, lierne_context *context, like_kind kind) {
    lierne_plan *plan;
    world w;
    draw_world(&w, 1);
    if (kind == SWAPS) {
        const lierne_halo_spec halo = {.size = sizeof halo, .dtype = LIERNE_DTYPE_I32, .width = 1};
        return lierne_plan_create_halo(like, context, &halo);
    }
    LIERNE_TRY(make_like(kind == RETYPED ? &plan : like, context, &w));
    if (kind == RETYPED) {
        const lierne_retyped_spec spec = {sizeof spec, LIERNE_DTYPE_I32, 1, 0, 0, 0, NULL};
        lierne_status status = lierne_plan_create_retyped(like, plan, &spec);
        lierne_plan_destroy(plan);
        return status;
    }
    return LIERNE_OK;
}

static void run_fault(lierne_context *context, void *shared) {
    got *g = shared;
    int r = lierne_context_get_rank(context);
    const lierne_fetch_and_add_spec good = SPEC(LIERNE_DTYPE_I32, 1, 0, 0);
    lierne_plan *like = NULL, *plan = NULL;
    if (plan_like(&like, context, g->of->like) == LIERNE_OK) {
        plan = (lierne_plan *)&like;
        g->status[r] = lierne_plan_create_fetch_and_add(&plan, like, r ? &g->of->spec : &good);
        snprintf(g->message[r], sizeof g->message[r], "%s", lierne_last_error());
        g->status[r] = plan ? LIERNE_OK : g->status[r];
    }
    lierne_plan_destroy(plan);
    lierne_plan_destroy(like);
}

Test(fetch_and_add, bad_specs_are_the_same_error_on_every_rank) {
    enum { I32 = LIERNE_DTYPE_I32, I64 = LIERNE_DTYPE_I64, BITS32 = LIERNE_DTYPE_BITS32 };
    static const fault all[] = {
        {REFERENCES, {3, LIERNE_DTYPE_I32, 1, 0, 0, NULL}, LIERNE_ERR_INVALID, "spec->size is 3"},
        {REFERENCES, SPEC(I32, 0, 0, 0), LIERNE_ERR_INVALID, "rank 1: width is 0 and stride 0"},
        {REFERENCES, SPEC(I32, 4, 3, 0), LIERNE_ERR_INVALID, "rank 1: width is 4 and stride 3"},
        {REFERENCES, SPEC(99, 1, 0, 0), LIERNE_ERR_INVALID, "rank 1: dtype is 99"},
        {REFERENCES, SPEC(I32, 1, 0, 65), LIERNE_ERR_INVALID, "max_inflight is 65"},
        {REFERENCES, SPEC(I32, 2, 0, 0), LIERNE_ERR_MISMATCH, "width"},
        {REFERENCES, SPEC(I64, 1, 0, 0), LIERNE_ERR_MISMATCH, "dtype"},
        {REFERENCES, SPEC(I32, 1, INT64_MAX / 8, 0), LIERNE_ERR_COUNT_RANGE, "rank 1: bytes of"},
        {REFERENCES, SPEC(BITS32, 1, 0, 0), LIERNE_ERR_INVALID, "dtype bits32 can only be copied"},
        {RETYPED, SPEC(I32, 1, 0, 0), LIERNE_ERR_INVALID, "like is a plan of kind retyped"},
        {SWAPS, SPEC(I32, 1, 0, 0), LIERNE_ERR_INVALID, "like is a plan of kind halo"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        got g = {.of = &all[i]};
        ranks_run(2, NULL, run_fault, &g);
        for (int r = 0; r < 2; r++) {
            cr_expect(g.status[r] == all[i].status && strstr(g.message[r], all[i].text),
                      "case %zu, rank %d: %s: %s, wanted %s", i, r, lierne_status_name(g.status[r]),
                      g.message[r], all[i].text);
        }
    }
}

/* One rank: what a plan of the kind does not have. */
Test(fetch_and_add, moves_forward_only) {
    lierne_context *self;
    lierne_plan *like, *plan = NULL;
    const lierne_fetch_and_add_spec spec = SPEC(LIERNE_DTYPE_I32, 1, 0, 0);
    const lierne_references_spec none = {sizeof none, .dtype = LIERNE_DTYPE_I32, .width = 1};
    cr_assert_eq(lierne_context_create_self(&self, NULL), LIERNE_OK);
    cr_assert_eq(lierne_plan_create_references(&like, self, &none), LIERNE_OK);
    cr_expect_eq(lierne_plan_create_fetch_and_add(&plan, NULL, &spec), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_plan_create_fetch_and_add(NULL, like, &spec), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_plan_create_fetch_and_add(&plan, like, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_create_fetch_and_add(&plan, like, &spec), LIERNE_OK);
    cr_expect_eq(lierne_plan_adjoint(plan, NULL, NULL, NULL), LIERNE_ERR_INVALID);
    cr_expect(strstr(lierne_last_error(), "a fetch-and-add moves forward only"), "%s",
              lierne_last_error());
    cr_expect_eq(lierne_plan_reduce(plan, LIERNE_REDUCTION_MAX, NULL, NULL, NULL),
                 LIERNE_ERR_INVALID);
    lierne_plan_destroy(plan);
    lierne_plan_destroy(like);
    lierne_context_destroy(self);
}

/* One rank runs out of memory at some allocation: all ranks return it, or none. */
typedef struct shortage {
    size_t at;
    lierne_status status[3];
} shortage;

static void run_shortage(lierne_context *context, void *shared) {
    shortage *s = shared;
    static const lierne_fetch_and_add_spec spec = SPEC(LIERNE_DTYPE_I32, 1, 0, 0);
    int r = lierne_context_get_rank(context);
    world w;
    lierne_plan *like = NULL, *plan = NULL;
    draw_world(&w, 10);
    s->status[r] = make_like(&like, context, &w);
    if (r == 1) {
        lierne_mem_fail_at(s->at);
    }
    if (like) {
        s->status[r] = lierne_plan_create_fetch_and_add(&plan, like, &spec);
    }
    lierne_mem_fail_at(0);
    lierne_plan_destroy(plan);
    lierne_plan_destroy(like);
}

Test(fetch_and_add, memory_that_one_rank_lacks_is_every_ranks_error) {
    bool failed = true;
    for (size_t k = 1; failed && k < 400; k++) {
        shortage s = {.at = k};
        ranks_run(3, NULL, run_shortage, &s);
        failed = s.status[1] != LIERNE_OK;
        cr_assert(!failed || s.status[1] == LIERNE_ERR_NO_MEMORY, "allocation %zu: %s", k,
                  lierne_status_name(s.status[1]));
        cr_assert(s.status[0] == s.status[1] && s.status[2] == s.status[1], "allocation %zu", k);
    }
    cr_assert(!failed, "every allocation fails");
}
