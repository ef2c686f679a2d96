/* Layouts of survivors and plans that are made again, against models: of what is lost, a list of
 * who holds each element; of a plan that is made again, the model of redistribute_case.h on the new
 * grids. */
#include "base/base.h"
#include "layout/layout.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "seeds.h"
#include "unit/expect.h"
#include "unit/redistribute_case.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MOST = 8, ELEMENTS = 8 * 8 * 8 * 8, BOXES = 4096, SEEDS = 1200, KEPT = 0x5a };

/* A tensor that ranks held, and the ranks that are left of them. */
typedef struct trial {
    uint64_t seed;
    redistribute_case old, now; /* CASE_SRC of each: the layout before, the destination */
    int former[MOST];
    int partials;
    lierne_layout *before, *left, *dst;
    int64_t n; /* elements of the tensor */
    bool lost[ELEMENTS];
    bool held[MOST][ELEMENTS]; /* by a rank that is left, whatever contribution */
} trial;

static uint64_t state;
static int draw(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

/* Survivors in their order, with ranks in between that were not there. */
static int draw_former(trial *t) {
    int n = 0;
    for (int r = 0; r < t->old.world; r++) {
        bool joins = n < MOST && draw(5) == 0;
        if (joins) {
            t->former[n++] = -1;
        }
        if (n < MOST && draw(3) > 0) {
            t->former[n++] = r;
        }
    }
    if (n == 0) {
        t->former[n++] = draw(t->old.world);
    }
    return n;
}

/* The contribution of a rank, from its coordinates. */
static int contribution_of(const case_layout *l, int rank, int *count) {
    int left = rank - l->offset, contribution = 0;
    *count = 1;
    for (int d = 0; d < l->ndims; d++) {
        if (l->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            contribution += left % (int)l->sizes[d] * *count;
            *count *= (int)l->sizes[d];
        }
        left /= (int)l->sizes[d];
    }
    return contribution;
}

/* The element of index i of a box, and its place in a buffer of this shape. */
static int64_t element_of(const trial *t, const lierne_box *box, int64_t i, const int64_t *shape,
                          int64_t *place) {
    int64_t element = 0, at[LIERNE_MAX_AXES];
    for (int a = t->old.naxes - 1; a >= 0; a--) {
        at[a] = i % box->size[a];
        i /= box->size[a];
    }
    *place = 0;
    for (int a = 0; a < t->old.naxes; a++) {
        element = element * t->old.shape[a] + box->start[a] + at[a];
        *place = shape ? *place * shape[a] + box->local[a] + at[a] : 0;
    }
    return element;
}

static int64_t count_of(const trial *t, const lierne_box *box) {
    int64_t n = 1;
    for (int a = 0; a < t->old.naxes; a++) {
        n *= box->size[a];
    }
    return n;
}

/* The element at each place of a rank's buffer, -1 where there is none; the places. */
static int64_t list_buffer(const trial *t, const lierne_layout *layout, int rank,
                           int64_t *elements) {
    static lierne_box boxes[BOXES];
    int64_t shape[LIERNE_MAX_AXES], stored, place;
    size_t count;
    assert_ok(lierne_layout_get_boxes(boxes, BOXES, &count, layout, rank));
    assert_ok(lierne_layout_get_shape(shape, layout, rank));
    assert_ok(lierne_layout_get_elements(&stored, NULL, layout, rank));
    cr_assert(count <= BOXES && stored <= ELEMENTS);
    memset(elements, -1, ELEMENTS * sizeof *elements);
    for (size_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < count_of(t, &boxes[b]); i++) {
            int64_t element = element_of(t, &boxes[b], i, shape, &place);
            elements[place] = element;
        }
    }
    return stored;
}

/* Who holds what, from the layout before. */
static void find_lost(trial *t) {
    static bool has[ELEMENTS][MOST]; /* a contribution */
    static int64_t elements[ELEMENTS];
    memset(has, 0, sizeof has);
    memset(t->held, 0, sizeof t->held);
    contribution_of(&t->old.layouts[CASE_SRC], t->old.layouts[CASE_SRC].offset, &t->partials);
    for (int r = 0; r < t->now.world; r++) {
        int count, rank = t->former[r];
        int64_t stored = rank < 0 ? 0 : list_buffer(t, t->before, rank, elements);
        for (int64_t i = 0; i < stored; i++) {
            if (elements[i] >= 0) {
                t->held[r][elements[i]] = true;
                has[elements[i]][contribution_of(&t->old.layouts[CASE_SRC], rank, &count)] = true;
            }
        }
    }
    for (int64_t e = 0; e < t->n; e++) {
        t->lost[e] = false;
        for (int p = 0; p < t->partials; p++) {
            t->lost[e] = t->lost[e] || !has[e][p];
        }
    }
}

static void open_trial(trial *t, uint64_t seed) {
    t->seed = seed;
    state = seed + 77;
    random_redistribute(&t->old, seed, 1 + (int)(seed % MOST));
    t->old.dtype = LIERNE_DTYPE_I64;
    int n = draw_former(t);
    random_tensor(&t->now, seed + 1000000, n, t->old.naxes, t->old.shape);
    t->n = 1;
    for (int a = 0; a < t->old.naxes; a++) {
        t->n *= t->old.shape[a];
    }
    t->before = redistribute_layout(&t->old, CASE_SRC);
    t->dst = redistribute_layout(&t->now, CASE_SRC);
    assert_ok(lierne_layout_create_surviving(&t->left, t->before, t->former, n));
    find_lost(t);
}

static void close_trial(trial *t) {
    lierne_layout_destroy(t->before);
    lierne_layout_destroy(t->left);
    lierne_layout_destroy(t->dst);
}

static bool continues(const trial *t, const lierne_box *a, const lierne_box *b, int axis) {
    bool same = true;
    for (int k = 0; k < t->old.naxes; k++) {
        same = same && (k == axis ? b->start[k] == a->start[k] + a->size[k]
                                  : b->start[k] == a->start[k] && b->size[k] == a->size[k]);
    }
    return same;
}

static bool ascends(const lierne_box *a, const lierne_box *b, int naxes) {
    for (int k = 0; k < naxes; k++) {
        if (a->start[k] != b->start[k]) {
            return a->start[k] < b->start[k];
        }
    }
    return false;
}

/* Each element that is to be in a box is in one, in their order; along the axis that is joined last
 * no box continues another. */
static void check_boxes(const trial *t, const lierne_box *boxes, size_t count, const bool *wanted) {
    static bool seen[ELEMENTS];
    int64_t place;
    memset(seen, 0, sizeof seen);
    for (size_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < count_of(t, &boxes[b]); i++) {
            int64_t e = element_of(t, &boxes[b], i, NULL, &place);
            cr_assert(wanted[e] && !seen[e], "seed %d: box %d has element %d", (int)t->seed, (int)b,
                      (int)e);
            seen[e] = true;
        }
        cr_assert(b == 0 || ascends(&boxes[b - 1], &boxes[b], t->old.naxes), "seed %d: box %d",
                  (int)t->seed, (int)b);
        for (size_t k = 0; k < count; k++) {
            cr_assert(!continues(t, &boxes[b], &boxes[k], 0), "seed %d: boxes %d and %d",
                      (int)t->seed, (int)b, (int)k);
        }
    }
    cr_assert(memcmp(seen, wanted, (size_t)t->n * sizeof *seen) == 0, "seed %d", (int)t->seed);
}

static void check_lost(const trial *t) {
    static lierne_box boxes[BOXES];
    size_t count;
    assert_ok(lierne_layout_find_lost(boxes, BOXES, &count, t->before, t->former, t->now.world));
    check_boxes(t, boxes, count, t->lost);
}

/* What each rank must load, and where. */
static void check_loads(const trial *t) {
    static lierne_box boxes[BOXES];
    static int64_t elements[ELEMENTS];
    for (int r = 0; r < t->now.world; r++) {
        static bool wanted[ELEMENTS];
        int64_t shape[LIERNE_MAX_AXES], place, stored = list_buffer(t, t->dst, r, elements);
        size_t count, again;
        memset(wanted, 0, sizeof wanted);
        for (int64_t i = 0; i < stored; i++) {
            if (elements[i] >= 0) {
                wanted[elements[i]] = t->lost[elements[i]];
            }
        }
        assert_ok(lierne_redistribute_find_lost(boxes, BOXES, &count, t->left, t->dst, r));
        assert_ok(lierne_layout_get_shape(shape, t->dst, r));
        for (size_t b = 0; b < count; b++) {
            for (int64_t i = 0; i < count_of(t, &boxes[b]); i++) {
                int64_t e = element_of(t, &boxes[b], i, shape, &place);
                cr_assert(wanted[e] && elements[place] == e, "seed %d: rank %d", (int)t->seed, r);
                wanted[e] = false;
            }
        }
        for (int64_t e = 0; e < t->n; e++) {
            cr_assert(!wanted[e], "seed %d: rank %d: element %d", (int)t->seed, r, (int)e);
        }
        assert_ok(lierne_redistribute_find_lost(NULL, 0, &again, t->left, t->dst, r));
        cr_assert_eq(again, count);
    }
}

static int64_t value_of(int64_t element, int contribution) {
    return 1000 * (element + 1) + contribution;
}

static lierne_status plan_rank(lierne_plan **plan, const trial *t, lierne_context *context) {
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = t->left, .dst = t->dst};
    return lierne_plan_create_redistribute(plan, context, &spec);
}

/* Executes a direction on all ranks; outputs begin with bytes KEPT. */
static void execute(const trial *t, lierne_plan **plans, lierne_direction d,
                    int64_t (*in)[ELEMENTS], int64_t (*out)[ELEMENTS]) {
    lierne_request *requests[MOST];
    for (int r = 0; r < t->now.world; r++) {
        memset(out[r], KEPT, sizeof out[r]);
        assert_ok((d ? lierne_plan_adjoint_begin
                     : lierne_plan_forward_begin)(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < t->now.world; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}

static int64_t in[MOST][ELEMENTS], out[MOST][ELEMENTS], elements[ELEMENTS];

static void check_forward(const trial *t, lierne_plan **plans) {
    int64_t kept, least = 0, received = 0, size = (int64_t)lierne_dtype_size(LIERNE_DTYPE_I64);
    memset(&kept, KEPT, sizeof kept);
    for (int r = 0; r < t->now.world; r++) {
        int count, rank = t->former[r];
        int64_t stored = rank < 0 ? 0 : list_buffer(t, t->before, rank, elements);
        for (int64_t i = 0; i < stored; i++) {
            int contribution = contribution_of(&t->old.layouts[CASE_SRC], rank, &count);
            in[r][i] = elements[i] < 0 ? -1 : value_of(elements[i], contribution);
        }
    }
    execute(t, plans, LIERNE_DIRECTION_FORWARD, in, out);
    for (int r = 0; r < t->now.world; r++) {
        lierne_report report = {.size = sizeof report};
        int64_t stored = list_buffer(t, t->dst, r, elements);
        for (int64_t i = 0; i < stored; i++) {
            int64_t e = elements[i], wanted = kept;
            if (e >= 0 && !t->lost[e]) {
                wanted = 0;
                for (int p = 0; p < t->partials; p++) {
                    wanted += value_of(e, p);
                }
                least += t->held[r][e] ? 0 : size;
            }
            cr_assert_eq(out[r][i], wanted, "seed %d: rank %d: place %d has %lld, not %lld\n%s",
                         (int)t->seed, r, (int)i, (long long)out[r][i], (long long)wanted,
                         redistribute_text(&t->old));
        }
        assert_ok(lierne_plan_get_report(&report, plans[r], LIERNE_DIRECTION_FORWARD));
        received += report.received_bytes;
    }
    cr_assert(t->partials > 1 || received == least, "seed %d: %lld bytes, at least %lld",
              (int)t->seed, (long long)received, (long long)least);
}

/* The gradient of what a rank holds, lost or not, is that of its element. */
static void check_adjoint(const trial *t, lierne_plan **plans) {
    for (int r = 0; r < t->now.world; r++) {
        int64_t stored = list_buffer(t, t->dst, r, elements);
        for (int64_t i = 0; i < stored; i++) {
            in[r][i] = elements[i] < 0 ? -1 : value_of(elements[i], 7);
        }
    }
    execute(t, plans, LIERNE_DIRECTION_ADJOINT, in, out);
    for (int r = 0; r < t->now.world; r++) {
        int rank = t->former[r];
        int64_t stored = rank < 0 ? 0 : list_buffer(t, t->before, rank, elements);
        for (int64_t i = 0; i < stored; i++) {
            if (elements[i] >= 0) {
                cr_assert_eq(out[r][i], value_of(elements[i], 7), "seed %d: rank %d: place %d\n%s",
                             (int)t->seed, r, (int)i, redistribute_text(&t->old));
            }
        }
    }
}

static void run_trial(uint64_t seed) {
    static trial t;
    lierne_plan *plans[MOST] = {NULL};
    lierne_sim *sim;
    open_trial(&t, seed);
    check_lost(&t);
    check_loads(&t);
    assert_ok(lierne_sim_create(&sim, t.now.world, NULL));
    for (int r = 0; r < t.now.world; r++) {
        assert_ok(plan_rank(&plans[r], &t, lierne_sim_get_context(sim, r)));
    }
    assert_ok(lierne_plan_check((const lierne_plan *const *)plans, t.now.world));
    check_forward(&t, plans);
    check_adjoint(&t, plans);
    assert_ok(lierne_sim_destroy_all(sim));
    close_trial(&t);
}

Test(survivors, move_what_is_left) {
    size_t before = lierne_mem_live();
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_trial(seed);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

/* Deaths one after the other leave what all at once leave. */
Test(survivors, again) {
    static trial t;
    for (uint64_t seed = 0; seed < 200; seed++) {
        lierne_layout *twice, *once;
        int second[MOST], both[MOST], n = 0;
        open_trial(&t, seed);
        for (int r = 0; r < t.now.world; r++) {
            if (draw(3) > 0 || r == 0) {
                both[n] = t.former[r];
                second[n++] = r;
            }
        }
        assert_ok(lierne_layout_create_surviving(&twice, t.left, second, n));
        assert_ok(lierne_layout_create_surviving(&once, t.before, both, n));
        cr_assert_eq(lierne_layout_hash(twice), lierne_layout_hash(once));
        cr_assert_neq(lierne_layout_hash(once), lierne_layout_hash(t.before));
        lierne_layout_destroy(twice);
        lierne_layout_destroy(once);
        close_trial(&t);
    }
}

/* Up to 4 ranks, each its share of 8 elements, or its contribution to them. */
static lierne_layout *quarters(int world, lierne_placement_kind kind) {
    const int64_t shape[1] = {8};
    lierne_grid *grid = grid_of(world, 1, 1, world);
    lierne_layout *layout;
    const lierne_placement placements[3] = {{.kind = kind}, {0}, {0}};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 1,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_I32,
                                     .placements = placements};
    assert_ok(lierne_layout_create(&layout, &spec));
    lierne_grid_destroy(grid);
    return layout;
}

Test(survivors, what_is_rejected) {
    lierne_layout *four = quarters(4, LIERNE_PLACEMENT_SHARD), *none = NULL, *left, *sum;
    lierne_box box;
    size_t count;
    int64_t bytes;
    lierne_redistribute_spec spec = {.size = sizeof spec};
    lierne_context *self;
    lierne_plan *plan;
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_error(lierne_layout_create_surviving(NULL, four, (int[]){0}, 1), LIERNE_ERR_INVALID,
                 "out is NULL");
    assert_error(lierne_layout_create_surviving(&none, NULL, (int[]){0}, 1), LIERNE_ERR_INVALID,
                 "layout is NULL");
    assert_error(lierne_layout_create_surviving(&none, four, NULL, 1), LIERNE_ERR_INVALID,
                 "former is NULL");
    assert_error(lierne_layout_create_surviving(&none, four, (int[]){0}, 0), LIERNE_ERR_INVALID,
                 "nranks is 0, must be 1 to");
    assert_error(lierne_layout_create_surviving(&none, four, (int[]){4}, 1), LIERNE_ERR_INVALID,
                 "former[0] is 4, must be -1, or above the ones before (-1) and below 4");
    assert_error(lierne_layout_create_surviving(&none, four, (int[]){1, -1, 1}, 3),
                 LIERNE_ERR_INVALID, "former[2] is 1");
    assert_error(lierne_layout_create_surviving(&none, four, (int[]){-2}, 1), LIERNE_ERR_INVALID,
                 "former[0] is -2");
    assert_error(lierne_layout_find_lost(&box, 1, NULL, four, (int[]){0}, 1), LIERNE_ERR_INVALID,
                 "count is NULL");
    cr_assert_null(none);
    assert_ok(lierne_layout_create_surviving(&left, four, (int[]){2}, 1));
    assert_ok(lierne_layout_find_lost(&box, 1, &count, four, (int[]){2}, 1));
    cr_assert(count == 2 && box.start[0] == 0 && box.size[0] == 4 && box.local[0] == 0);
    sum = quarters(4, LIERNE_PLACEMENT_PARTIAL);
    assert_ok(lierne_layout_find_lost(&box, 1, &count, sum, (int[]){0, 1, 2, -1}, 4));
    cr_assert(count == 1 && box.start[0] == 0 && box.size[0] == 8);
    assert_error(lierne_redistribute_get_bound(&bytes, &bytes, left, left), LIERNE_ERR_UNSUPPORTED,
                 "src is a layout of survivors: it can only be src of a redistribution");
    assert_error(lierne_redistribute_find_lost(&box, 1, &count, left, left, 0),
                 LIERNE_ERR_UNSUPPORTED, "dst is a layout of survivors");
    spec.src = spec.dst = left;
    assert_error(lierne_plan_create_redistribute(&plan, self, &spec), LIERNE_ERR_UNSUPPORTED,
                 "dst is a layout of survivors");
    lierne_layout_destroy(four);
    lierne_layout_destroy(left);
    lierne_layout_destroy(sum);
    lierne_context_destroy(self);
}

/* Of a source of survivors a plan can do less. */
Test(survivors, what_plans_of_them_reject) {
    static trial t;
    lierne_sim *sim;
    lierne_plan *plan;
    open_trial(&t, 9);
    const lierne_redistribute_spec plain = {.size = sizeof plain, .src = t.left, .dst = t.dst};
    lierne_redistribute_spec specs[4] = {plain, plain, plain, plain};
    const char *said[4] = {"src is a layout of survivors: adjoint_src and adjoint_dst must be NULL",
                           "src is a layout of survivors: routing may not be BALANCED",
                           "src is a layout of survivors: shared_output must be 0",
                           "src is a layout of survivors: max_peers must be 0"};
    specs[0].adjoint_src = specs[0].adjoint_dst = t.dst;
    specs[1].routing = LIERNE_ROUTING_BALANCED;
    specs[2].shared_output = LIERNE_SHARING_FORWARD;
    specs[3].max_peers = 3;
    for (int i = 0; i < 4; i++) {
        assert_ok(lierne_sim_create(&sim, t.now.world, NULL));
        assert_error(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 0),
                                                     &specs[i]),
                     LIERNE_ERR_UNSUPPORTED, said[i]);
        assert_ok(lierne_sim_destroy_all(sim));
    }
    close_trial(&t);
}

/* A plan of survivors stays one with another shape, and no plan may read what it leaves as it is.
 */
Test(survivors, another_shape_and_composed) {
    lierne_layout *four = quarters(4, LIERNE_PLACEMENT_SHARD), *left, *shards, *all;
    const int64_t twice[1] = {16};
    int32_t from[16] = {1, 2, 3, 4}, to[16];
    lierne_context *self;
    lierne_plan *plan, *next, *composed;
    assert_ok(lierne_context_create_self(&self, NULL));
    assert_ok(lierne_layout_create_surviving(&left, four, (int[]){2}, 1));
    shards = quarters(1, LIERNE_PLACEMENT_SHARD);
    all = quarters(1, LIERNE_PLACEMENT_REPLICATE);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = left, .dst = all};
    const lierne_redistribute_spec behind = {.size = sizeof behind, .src = all, .dst = shards};
    assert_ok(lierne_plan_create_redistribute(&plan, self, &spec));
    assert_ok(lierne_plan_create_redistribute(&next, self, &behind));
    assert_error(lierne_plan_create_composed(&composed, plan, next), LIERNE_ERR_INVALID,
                 "leaves elements of its output as they are");
    assert_ok(lierne_plan_update_shape(plan, twice));
    memset(to, 0, sizeof to);
    assert_ok(lierne_plan_forward(plan, to, from, NULL));
    for (int i = 0; i < 16; i++) {
        cr_assert_eq(to[i], i / 4 == 2 ? from[i % 4] : 0);
    }
    assert_ok(lierne_context_destroy_all(self));
    lierne_layout_destroy(four);
    lierne_layout_destroy(left);
    lierne_layout_destroy(shards);
    lierne_layout_destroy(all);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* The k-th allocation fails, for all k. */
Test(survivors, without_memory) {
    static trial t;
    open_trial(&t, 21);
    size_t before = lierne_mem_live();
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    for (size_t k = 1; status != LIERNE_OK; k++) {
        lierne_layout *left = NULL;
        size_t count;
        lierne_mem_fail_at(k);
        status = lierne_layout_create_surviving(&left, t.before, t.former, t.now.world);
        status = status == LIERNE_OK
                     ? lierne_layout_find_lost(NULL, 0, &count, t.before, t.former, t.now.world)
                     : status;
        status = status == LIERNE_OK
                     ? lierne_redistribute_find_lost(NULL, 0, &count, left, t.dst, 0)
                     : status;
        lierne_mem_fail_at(0);
        lierne_layout_destroy(left);
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY);
        cr_assert_eq(lierne_mem_live(), before);
    }
    close_trial(&t);
}
