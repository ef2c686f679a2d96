/* Retyped plans against plans that were made of their type to begin with: the same rows and the
 * same bits, on random references and swaps, and on redistributions and bridges whose rows are
 * whole. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ranks.h"
#include "seeds.h"
#include "unit/halo_case.h"

enum { SEEDS = 120, GAP = 0xa5, ROWS = 24 };

/* What a plan of rows is made of, and what it is retyped to. */
typedef struct shape {
    lierne_dtype dtype;
    int64_t width, in, out;
} shape;

typedef struct trial {
    uint64_t seed;
    int kind; /* of plans[] */
    shape from, to;
    int wrong[HALO_WORLD]; /* line of an expectation that did not hold */
    char message[HALO_WORLD][400];
} trial;

#define EXPECT(t, r, condition)                                                                    \
    if (!(condition) && !(t)->wrong[r]) {                                                          \
        (t)->wrong[r] = __LINE__;                                                                  \
        snprintf((t)->message[r], sizeof(t)->message[r], "%s", lierne_last_error());               \
    }

/* References: random ones, of which some repeat; by bits of the seed combined or accumulated, and
 * all-gathered or direct. */
static lierne_status references_plan(lierne_plan **plan, lierne_context *context, const trial *t,
                                     const shape *s) {
    int n = lierne_context_get_world_size(context), r = lierne_context_get_rank(context);
    int32_t rank[ROWS];
    int64_t row[ROWS];
    bool combined = t->seed % 3 == 0;
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    spec.nowned = 1 + (int64_t)halo_case_pick(t->seed, (uint64_t)r, 1, ROWS);
    spec.nghosts = (int64_t)halo_case_pick(t->seed, (uint64_t)r, 2, ROWS);
    for (int64_t k = 0; k < spec.nghosts; k++) {
        rank[k] = (int32_t)halo_case_pick(t->seed, (uint64_t)r, 100 + (uint64_t)k, (uint64_t)n);
        uint64_t owned = 1 + halo_case_pick(t->seed, (uint64_t)rank[k], 1, ROWS);
        row[k] = (int64_t)halo_case_pick(t->seed, (uint64_t)r, 200 + (uint64_t)k, owned);
    }
    spec.rank = rank;
    spec.row = row;
    spec.dtype = s->dtype;
    spec.width = s->width;
    spec.stride = s->in;
    spec.combined = combined;
    spec.keep_ghosts = combined && t->seed % 2;
    spec.accumulate = t->seed % 3 == 1;
    spec.algorithm = !combined && t->seed % 4 == 1 ? LIERNE_GRAPH_ALGORITHM_ALL_GATHER
                                                   : LIERNE_GRAPH_ALGORITHM_DIRECT;
    return lierne_plan_create_references(plan, context, &spec);
}

static lierne_status halo_plan(lierne_plan **plan, lierne_context *context, const trial *t,
                               const shape *s) {
    static _Thread_local halo_case c;
    halo_case_random(&c, lierne_context_get_world_size(context), t->seed);
    lierne_halo_spec spec = c.spec[lierne_context_get_rank(context)];
    spec.dtype = s->dtype;
    spec.width = s->width;
    spec.stride = s->in;
    spec.keep_ghosts = t->seed % 2;
    return lierne_plan_create_halo(plan, context, &spec);
}

/* [6, 10, width] from contributions cut along the batch to zigzag and back, or a bridge. */
static lierne_status between(lierne_plan **plan, lierne_context *context, const trial *t,
                             const shape *s, int axis) {
    int n = lierne_context_get_world_size(context);
    const int64_t sizes[] = {n}, of[] = {6, 2 * n, s->width};
    const lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                        .world_size = n,
                                        .ndims = 1,
                                        .names = (const char *const[]){"dp"},
                                        .sizes = sizes};
    lierne_grid *grid;
    lierne_layout *src, *dst;
    lierne_placement from = {.kind =
                                 t->seed % 2 ? LIERNE_PLACEMENT_SHARD : LIERNE_PLACEMENT_PARTIAL},
                     to = {.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG, .axis = axis};
    LIERNE_TRY(lierne_grid_create(&grid, &grid_spec));
    lierne_layout_spec layout = {.size = sizeof layout,
                                 .grid = grid,
                                 .naxes = 3,
                                 .shape = of,
                                 .dtype = s->dtype,
                                 .placements = &from};
    LIERNE_TRY(lierne_layout_create(&src, &layout));
    layout.placements = &to;
    LIERNE_TRY(lierne_layout_create(&dst, &layout));
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    lierne_status status = lierne_plan_create_redistribute(plan, context, &spec);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
    return status;
}

static lierne_status layouts_plan(lierne_plan **plan, lierne_context *context, const trial *t,
                                  const shape *s) {
    return between(plan, context, t, s, 1);
}
static lierne_status divided_plan(lierne_plan **plan, lierne_context *context, const trial *t,
                                  const shape *s) {
    return between(plan, context, t, s, 2);
}

static lierne_status (*const plans[])(lierne_plan **, lierne_context *, const trial *,
                                      const shape *) = {references_plan, halo_plan, layouts_plan};

static int64_t rows_of(const lierne_plan *plan, lierne_direction d, bool out) {
    int64_t in[LIERNE_MAX_AXES], to[LIERNE_MAX_AXES], n = 1;
    int naxes;
    lierne_plan_get_shape(&naxes, in, to, plan, d);
    for (int a = 0; a < naxes - 1; a++) {
        n *= out ? to[a] : in[a];
    }
    return n;
}

/* Element c of row i; sums of these are exact, and depend on the order only where they round. */
static void put(char *at, lierne_dtype dtype, int rank, int64_t i, int64_t c) {
    int64_t v = 1 + (rank * 1009 + i * 31 + c * 7) % 501 - 200;
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        memcpy(at, &(double){(double)v * 0.1}, 8);
        break;
    case LIERNE_DTYPE_F32:
        memcpy(at, &(float){(float)v * 0.1f}, 4);
        break;
    case LIERNE_DTYPE_I64:
        memcpy(at, &v, 8);
        break;
    default:
        memcpy(at, &v, lierne_dtype_size(dtype));
        break;
    }
}

/* A buffer of n rows, with gaps of poison; unset: rows of poison, too. */
static char *rows_new(int64_t n, const shape *s, int64_t stride, int rank, bool unset) {
    size_t size = lierne_dtype_size(s->dtype);
    char *at = malloc((size_t)(n * stride) * size + 1);
    memset(at, GAP, (size_t)(n * stride) * size + 1);
    for (int64_t i = 0; i < n && !unset; i++) {
        for (int64_t c = 0; c < s->width; c++) {
            put(at + (size_t)(i * stride + c) * size, s->dtype, rank, i, c);
        }
    }
    return at;
}

/* Whether rows of a are those of b, and the gaps of a poison. */
static bool same_rows(const char *a, int64_t stride_a, const char *b, int64_t stride_b, int64_t n,
                      const shape *s) {
    size_t size = lierne_dtype_size(s->dtype), row = (size_t)s->width * size;
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        const char *at = a + (size_t)(i * stride_a) * size;
        same &= memcmp(at, b + (size_t)(i * stride_b) * size, row) == 0;
        for (size_t g = row; g < (size_t)stride_a * size; g++) {
            same &= (unsigned char)at[g] == GAP;
        }
    }
    return same;
}

static lierne_status run(lierne_plan *plan, lierne_direction d, void *out, const void *in,
                         bool begun) {
    lierne_request *request;
    if (!begun) {
        return (d ? lierne_plan_adjoint : lierne_plan_forward)(plan, out, in, NULL);
    }
    LIERNE_TRY(
        (d ? lierne_plan_adjoint_begin : lierne_plan_forward_begin)(&request, plan, out, in, NULL));
    return lierne_request_end(request);
}

/* A direction of the retyped plan and of the one that was made of its type. */
static void compare(trial *t, int rank, lierne_plan *retyped, lierne_plan *direct,
                    lierne_direction d) {
    const shape *s = &t->to;
    int64_t in_stride = d ? s->out : s->in, out_stride = d ? s->in : s->out, elements[2];
    int64_t nin = rows_of(retyped, d, false), nout = rows_of(retyped, d, true);
    bool layouts = plans[t->kind] == layouts_plan;
    int64_t plain = layouts ? s->width : s->in; /* the stride of the direct plan */
    EXPECT(t, rank, nin == rows_of(direct, d, false) && nout == rows_of(direct, d, true))
    EXPECT(t, rank,
           lierne_plan_get_elements(&elements[0], &elements[1], retyped, d) == LIERNE_OK &&
               elements[0] == (nin ? (nin - 1) * in_stride + s->width : 0) &&
               elements[1] == (nout ? (nout - 1) * out_stride + s->width : 0))
    bool accumulates = d && plans[t->kind] == references_plan && t->seed % 3 == 1;
    char *x = rows_new(nin, s, in_stride, rank, false), *y = rows_new(nin, s, plain, rank, false);
    char *want = rows_new(nout, s, plain, rank + 1, !accumulates);
    EXPECT(t, rank, run(direct, d, want, y, false) == LIERNE_OK)
    for (int begun = 0; begun < 2; begun++) {
        char *got = rows_new(nout, s, out_stride, rank + 1, !accumulates);
        EXPECT(t, rank, run(retyped, d, got, x, begun) == LIERNE_OK)
        EXPECT(t, rank, same_rows(got, out_stride, want, plain, nout, s))
        free(got);
    }
    free(x);
    free(y);
    free(want);
}

static lierne_retyped_spec spec_of(const shape *s) {
    return (lierne_retyped_spec){.size = sizeof(lierne_retyped_spec),
                                 .dtype = s->dtype,
                                 .width = s->width,
                                 .in_stride = s->in,
                                 .out_stride = s->out};
}

static void run_trial(lierne_context *context, void *shared) {
    trial *t = shared;
    int rank = lierne_context_get_rank(context);
    lierne_plan *like, *retyped, *again, *direct;
    const shape middle = {LIERNE_DTYPE_I32, 2, 3, 5};
    const lierne_retyped_spec first = spec_of(&middle), second = spec_of(&t->to);
    EXPECT(t, rank, plans[t->kind](&like, context, t, &t->from) == LIERNE_OK)
    EXPECT(t, rank, plans[t->kind](&direct, context, t, &t->to) == LIERNE_OK)
    EXPECT(t, rank, lierne_plan_create_retyped(&again, like, &first) == LIERNE_OK)
    EXPECT(t, rank,
           lierne_plan_create_retyped(&retyped, t->seed % 5 ? like : again, &second) == LIERNE_OK)
    if (!t->wrong[rank]) {
        EXPECT(t, rank, lierne_plan_check((const lierne_plan *const *)&retyped, 1) == LIERNE_OK)
        lierne_plan_destroy(like); /* the lists are shared, not lent */
        lierne_plan_destroy(again);
        compare(t, rank, retyped, direct, LIERNE_DIRECTION_FORWARD);
        compare(t, rank, retyped, direct, LIERNE_DIRECTION_ADJOINT);
        lierne_plan_destroy(retyped);
        lierne_plan_destroy(direct);
    }
}

/* In strides of a direct plan are those of both its buffers: a combined buffer needs equal ones. */
static shape draw_shape(uint64_t seed, uint64_t which) {
    static const lierne_dtype dtypes[] = {LIERNE_DTYPE_I32, LIERNE_DTYPE_F64, LIERNE_DTYPE_I64,
                                          LIERNE_DTYPE_F32, LIERNE_DTYPE_BF16};
    int64_t width = 1 + (int64_t)halo_case_pick(seed, which, 1, 4);
    return (shape){.dtype = dtypes[halo_case_pick(seed, which, 2, 5)],
                   .width = width,
                   .in = width + (int64_t)halo_case_pick(seed, which, 3, 3),
                   .out = width + (int64_t)halo_case_pick(seed, which, 4, 3)};
}

static void run_kind(int kind) {
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        trial t = {.seed = seed, .kind = kind};
        t.from = draw_shape(seed, 10);
        t.to = draw_shape(seed, 20);
        int world = 1 + (int)(seed % HALO_WORLD);
        ranks_run(world, NULL, run_trial, &t);
        for (int r = 0; r < world; r++) {
            cr_assert_eq(t.wrong[r], 0, "kind %d, seed %d: rank %d: line %d: %s", kind, (int)seed,
                         r, t.wrong[r], t.message[r]);
        }
    }
}

Test(retyped, references) {
    run_kind(0);
}
Test(retyped, swaps) {
    run_kind(1);
}
Test(retyped, layouts) {
    run_kind(2);
}

/* Positions, species and charges: one neighbor list, one message per peer. */
typedef struct fields {
    int n;
    int64_t messages[HALO_WORLD][2], alone[HALO_WORLD];
    bool right[HALO_WORLD];
} fields;

static void run_fields(lierne_context *context, void *shared) {
    fields *f = shared;
    int n = lierne_context_get_world_size(context), r = lierne_context_get_rank(context);
    const int32_t next[] = {(r + 1) % n, (r + 1) % n};
    const int64_t rows[] = {2, 0};
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    spec.nowned = 3;
    spec.nghosts = 2;
    spec.rank = next;
    spec.row = rows;
    spec.dtype = LIERNE_DTYPE_F64;
    spec.width = 3;
    const lierne_retyped_spec species = {.size = sizeof species,
                                         .dtype = LIERNE_DTYPE_I32,
                                         .width = 1,
                                         .in_stride = 2};
    const lierne_retyped_spec charge = {.size = sizeof charge,
                                        .dtype = LIERNE_DTYPE_F32,
                                        .width = 1};
    lierne_plan *made[3] = {0};
    lierne_coalesced *all = NULL;
    lierne_report report = {.size = sizeof report};
    double x[9], ghosts[6] = {0};
    int32_t kind[5], kinds[2] = {0};
    float q[3], qs[2] = {0};
    for (int i = 0; i < 9; i++) {
        x[i] = r * 100 + i;
        kind[i % 5] = (i % 5) % 2 ? -1 : r * 10 + (i % 5) / 2;
        q[i % 3] = (float)(r + 1) / (float)(i % 3 + 1);
    }
    bool ok = lierne_plan_create_references(&made[0], context, &spec) == LIERNE_OK &&
              lierne_plan_create_retyped(&made[1], made[0], &species) == LIERNE_OK &&
              lierne_plan_create_retyped(&made[2], made[0], &charge) == LIERNE_OK &&
              lierne_coalesced_create(&all, made, 3) == LIERNE_OK &&
              lierne_coalesced_begin(all, LIERNE_DIRECTION_FORWARD, (void *[]){ghosts, kinds, qs},
                                     (const void *[]){x, kind, q}, NULL) == LIERNE_OK &&
              lierne_coalesced_end(all, LIERNE_DIRECTION_FORWARD) == LIERNE_OK;
    int p = next[0];
    f->right[r] = ok && ghosts[0] == p * 100 + 6 && ghosts[5] == p * 100 + 2 &&
                  kinds[0] == p * 10 + 2 && kinds[1] == p * 10 && qs[0] == (float)(p + 1) / 3.0f &&
                  qs[1] == (float)(p + 1) && strcmp(lierne_plan_get_kind(made[2]), "retyped") == 0;
    lierne_coalesced_get_messages(&f->messages[r][0], &f->messages[r][1], all,
                                  LIERNE_DIRECTION_FORWARD);
    lierne_plan_get_report(&report, made[0], LIERNE_DIRECTION_FORWARD);
    f->alone[r] = report.received_messages;
    lierne_coalesced_destroy(all);
    for (int i = 0; i < 3; i++) {
        lierne_plan_destroy(made[i]);
    }
}

Test(retyped, three_fields_travel_in_one_message) {
    fields f = {0};
    ranks_run(4, NULL, run_fields, &f);
    for (int r = 0; r < 4; r++) {
        cr_assert(f.right[r], "rank %d", r);
        cr_assert(f.alone[r] == 1 && f.messages[r][0] == 1 && f.messages[r][1] == 1,
                  "rank %d: %d messages sent, %d received", r, (int)f.messages[r][0],
                  (int)f.messages[r][1]);
    }
}

/* A graph of two rows; the update turns the edges round. */
static lierne_graph_spec chain(const int32_t *owner, const int64_t *edges, int64_t n) {
    lierne_graph_spec spec = LIERNE_GRAPH_SPEC_INIT;
    spec.nrows = 4;
    spec.owner = owner;
    spec.nedges = n;
    spec.source = edges;
    spec.target = edges + 2;
    spec.dtype = LIERNE_DTYPE_I32;
    return spec;
}

static void run_updated(lierne_context *context, void *shared) {
    fields *f = shared;
    int r = lierne_context_get_rank(context);
    const int32_t owner[] = {0, 0, 1, 1};
    const int64_t before[2][4] = {{2, 3, 0, 1}, {0, 1, 2, 3}},
                  after[2][4] = {{3, 3, 0, 1}, {1, 1, 2, 3}};
    lierne_graph_spec spec = chain(owner, before[r], 2), next = chain(owner, after[r], 2);
    lierne_retyped_spec wide = LIERNE_RETYPED_SPEC_INIT;
    wide.dtype = LIERNE_DTYPE_I64;
    lierne_plan *plan = NULL, *retyped = NULL;
    const int64_t x[] = {r * 10 + 1, r * 10 + 2};
    int64_t ghosts[2] = {0};
    int p = 1 - r;
    f->right[r] = lierne_plan_create_graph(&plan, context, &spec) == LIERNE_OK &&
                  lierne_plan_create_retyped(&retyped, plan, &wide) == LIERNE_OK &&
                  lierne_plan_update_graph(plan, &next) == LIERNE_OK &&
                  lierne_plan_forward(retyped, ghosts, x, NULL) == LIERNE_OK &&
                  ghosts[0] == p * 10 + 1 && ghosts[1] == p * 10 + 2 &&
                  lierne_plan_update_graph(retyped, &next) == LIERNE_ERR_INVALID;
    lierne_plan_destroy(plan);
    lierne_plan_destroy(retyped);
}

Test(retyped, keeps_its_rows_when_like_is_updated) {
    fields f = {0};
    ranks_run(2, NULL, run_updated, &f);
    cr_assert(f.right[0] && f.right[1], "%d, %d", f.right[0], f.right[1]);
}

/* A bad spec of rank 1, and what both ranks get. */
typedef struct refusal {
    lierne_retyped_spec spec;
    lierne_status status;
    const char *text;
} refusal;
typedef struct refused {
    const refusal *of;
    lierne_status got[2];
    char message[2][400];
} refused;

#define SPEC(dtype, width, in, out, inflight)                                                      \
    { sizeof(lierne_retyped_spec), (lierne_dtype)(dtype), width, in, out, inflight, NULL }

static void run_refusal(lierne_context *context, void *shared) {
    refused *f = shared;
    int r = lierne_context_get_rank(context);
    static const shape rows = {LIERNE_DTYPE_I32, 2, 3, 3};
    const lierne_retyped_spec good = SPEC(LIERNE_DTYPE_I32, 1, 0, 0, 0);
    const trial t = {.seed = 4};
    lierne_plan *like, *retyped = (lierne_plan *)&like;
    if (halo_plan(&like, context, &t, &rows) != LIERNE_OK) {
        return;
    }
    f->got[r] = lierne_plan_create_retyped(&retyped, like, r == 1 ? &f->of->spec : &good);
    snprintf(f->message[r], sizeof f->message[r], "%s", lierne_last_error());
    f->got[r] = retyped ? LIERNE_OK : f->got[r];
    lierne_plan_destroy(retyped);
    lierne_plan_destroy(like);
}

Test(retyped, bad_specs_are_the_same_error_on_every_rank) {
    enum { I32 = LIERNE_DTYPE_I32, I64 = LIERNE_DTYPE_I64, BITS32 = LIERNE_DTYPE_BITS32 };
    static const refusal all[] = {
        {{3, LIERNE_DTYPE_I32, 1, 0, 0, 0, NULL}, LIERNE_ERR_INVALID, "rank 1: spec->size is 3"},
        {SPEC(I32, 0, 0, 0, 0), LIERNE_ERR_INVALID, "rank 1: width is 0, must be at least 1"},
        {SPEC(I32, 4, 3, 0, 0), LIERNE_ERR_INVALID, "rank 1: in_stride is 3, must be 0"},
        {SPEC(I32, 4, 0, -1, 0), LIERNE_ERR_INVALID, "rank 1: out_stride is -1"},
        {SPEC(99, 1, 0, 0, 0), LIERNE_ERR_INVALID, "rank 1: dtype is 99"},
        {SPEC(I32, 1, 0, 0, 65), LIERNE_ERR_INVALID, "max_inflight is 65"},
        {SPEC(I32, 2, 0, 0, 0), LIERNE_ERR_MISMATCH, "width"},
        {SPEC(I64, 1, 0, 0, 0), LIERNE_ERR_MISMATCH, "dtype"},
        {SPEC(I32, 1, INT64_MAX / 2, 0, 0), LIERNE_ERR_OVERFLOW, "rank 1: bytes of"},
        {SPEC(BITS32, 1, 0, 0, 0), LIERNE_ERR_INVALID, "dtype bits32 can only be copied"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        refused f = {.of = &all[i]};
        ranks_run(2, NULL, run_refusal, &f);
        for (int r = 0; r < 2; r++) {
            cr_expect(f.got[r] == all[i].status && strstr(f.message[r], all[i].text),
                      "case %zu, rank %d: %s: %s, wanted %s", i, r, lierne_status_name(f.got[r]),
                      f.message[r], all[i].text);
        }
    }
}

/* One rank: NULL, and kinds without rows. */
Test(retyped, what_has_no_rows_of_its_own) {
    lierne_context *self;
    lierne_plan *plan, *retyped = NULL;
    const lierne_retyped_spec spec = SPEC(LIERNE_DTYPE_I32, 1, 0, 0, 0);
    const lierne_barrier_spec barrier = {.size = sizeof barrier};
    cr_assert_eq(lierne_context_create_self(&self, NULL), LIERNE_OK);
    cr_assert_eq(lierne_plan_create_retyped(&retyped, NULL, &spec), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_create_barrier(&plan, self, &barrier), LIERNE_OK);
    cr_expect_eq(lierne_plan_create_retyped(&retyped, plan, &spec), LIERNE_ERR_INVALID);
    cr_expect(strstr(lierne_last_error(), "like is a plan of kind barrier that has no rows"), "%s",
              lierne_last_error());
    cr_expect_eq(lierne_plan_create_retyped(NULL, plan, &spec), LIERNE_ERR_INVALID);
    lierne_plan_destroy(plan);
    lierne_context_destroy(self);
}

/* A layout that divides the last axis leaves no rows, whatever the ranks have of it. */
static void run_divided(lierne_context *context, void *shared) {
    fields *f = shared;
    int r = lierne_context_get_rank(context);
    lierne_plan *like = NULL, *retyped = NULL;
    const lierne_retyped_spec spec = SPEC(LIERNE_DTYPE_I32, 1, 0, 0, 0);
    const trial t = {.seed = 1 + 2 * (uint64_t)f->n};
    const shape s = {LIERNE_DTYPE_I32, 4, 4, 4};
    f->right[r] = divided_plan(&like, context, &t, &s) == LIERNE_OK &&
                  lierne_plan_create_retyped(&retyped, like, &spec) == LIERNE_ERR_INVALID &&
                  strstr(lierne_last_error(), "divides no index of the last axis");
    lierne_plan_destroy(like);
}

Test(retyped, not_where_the_last_axis_is_divided) {
    fields f = {0};
    ranks_run(2, NULL, run_divided, &f);
    cr_assert(f.right[0] && f.right[1]);
}
