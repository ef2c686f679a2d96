/* Dense halos: random layouts against an oracle by position, bytes and messages, the order of sums,
 * and execution in place; most over transports whose receivers read what the sender has. */
#include "unit/dense_halo_case.h"
#include "unit/expect.h"

#include "lierne/sim.h"
#include "plan/redistribute/merge.h"
#include "seeds.h"
#include "transports.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { SEEDS = 10000, GARBAGE = 777777, BEFORE = -31415 };

typedef struct halo_world {
    halo_case c;
    uint64_t seed;
    halo_buffer buffers[2][HALO_WORLD];
    lierne_plan *plans[HALO_WORLD];
    int64_t elements; /* of the tensor */
    bool accumulate;
} halo_world;

/* The dtype that copies of an opaque one are looked at as. */
static lierne_dtype dtype_of(const halo_world *w) {
    return w->c.dtype == LIERNE_DTYPE_BITS8    ? LIERNE_DTYPE_U8
           : w->c.dtype == LIERNE_DTYPE_BITS32 ? LIERNE_DTYPE_I32
           : w->c.dtype == LIERNE_DTYPE_BITS64 ? LIERNE_DTYPE_I64
                                               : w->c.dtype;
}

static bool is_float(const halo_world *w) {
    return w->c.dtype >= LIERNE_DTYPE_F64 && w->c.dtype <= LIERNE_DTYPE_F16;
}

static double get(const halo_world *w, const void *buffer, int64_t i) {
    return number_get(dtype_of(w), buffer, i);
}

static void set(const halo_world *w, void *buffer, int64_t i, double x) {
    number_put(dtype_of(w), buffer, i, x);
}

/* What the dtype keeps of a number: of 16-bit floats the nearest, ties to even. */
static double rounded(const halo_world *w, double x) {
    int exponent, digits = w->c.dtype == LIERNE_DTYPE_BF16 ? 8 : 11;
    double buffer;
    if (is_float(w) && lierne_dtype_size(w->c.dtype) == 2) {
        frexp(x, &exponent);
        return ldexp(nearbyint(ldexp(x, digits - exponent)), exponent - digits);
    }
    set(w, &buffer, 0, x);
    return get(w, &buffer, 0);
}

/* In double, or in float where the dtype has fewer bits. */
static double plus(const halo_world *w, double a, double b) {
    return is_float(w) && w->c.dtype != LIERNE_DTYPE_F64 ? (double)((float)a + (float)b) : a + b;
}

/* Whose sums depend on their order, in floats. */
static double value(const halo_world *w, int64_t key) {
    uint64_t x = mix((uint64_t)key + 5);
    bool half = lierne_dtype_size(w->c.dtype) == 2;
    double scale = half ? 1e-3 * (x & 1 ? 1 : -30) : 1e-9 * (x & 1 ? 1 : -1e4);
    return !is_float(w) ? rounded(w, (double)(x % 201) - 100)
           : half       ? rounded(w, (double)(x >> 20 & 0xffff) * scale)
                        : rounded(w, (double)(x >> 20) * scale);
}

static double source_value(const halo_world *w, int64_t element, int partial) {
    return value(w, element * 64 + partial);
}

static double gradient_value(const halo_world *w, int first, int64_t place) {
    return value(w, 1000000 + (int64_t)first * 4096 + place);
}

/* What a rank reads in a direction. Margins of a source are not read, nor are places kept. */
static void *create_input(const halo_world *w, int rank, bool adjoint) {
    const halo_buffer *b = &w->buffers[adjoint][rank];
    void *in = calloc((size_t)b->n + 1, 8);
    for (int64_t i = 0; i < b->n; i++) {
        bool held = b->at[i] >= 0 && (adjoint || b->core[i]);
        set(w, in, i,
            !held     ? GARBAGE
            : adjoint ? gradient_value(w, b->first, i)
                      : source_value(w, b->at[i], b->partial));
    }
    return in;
}

static double forward_value(const halo_world *w, int64_t element) {
    int partials = w->buffers[0][w->c.sides[0].offset].partials;
    for (int r = 0; r < w->c.world; r++) {
        partials = w->buffers[0][r].holds ? w->buffers[0][r].partials : partials;
    }
    double sum = source_value(w, element, 0);
    for (int k = 1; k < partials; k++) {
        sum = plus(w, sum, source_value(w, element, k));
    }
    return rounded(w, sum);
}

/* The gradient of an element: its core, or what was there, then a term of each rank. */
static double adjoint_value(const halo_world *w, int64_t element, double before) {
    double sum = w->accumulate ? before : 0;
    bool any = w->accumulate;
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < w->c.world; r++) {
            const halo_buffer *b = &w->buffers[1][r];
            double term = 0;
            bool some = false;
            for (int64_t i = 0; b->holds && b->first == r && i < b->n; i++) {
                if (b->at[i] == element && b->core[i] == (pass == 0)) {
                    double y = gradient_value(w, r, i);
                    term = some ? plus(w, term, y) : y;
                    some = true;
                }
            }
            if (some) {
                term = rounded(w, term);
                sum = any ? plus(w, sum, term) : term;
                any = true;
            }
        }
    }
    return rounded(w, sum);
}

/* What an output must hold at a place. */
static double expected(const halo_world *w, int rank, bool adjoint, int64_t i, double before) {
    const halo_buffer *b = &w->buffers[!adjoint][rank];
    if (b->at[i] == HALO_KEEP || b->at[i] == HALO_FOREIGN) {
        return before;
    }
    if (b->at[i] == HALO_ZERO || (adjoint && !b->core[i])) {
        return 0;
    }
    return adjoint ? adjoint_value(w, b->at[i], before) : forward_value(w, b->at[i]);
}

static bool same(const halo_world *w, double a, double b) {
    double is = 0, must = 0;
    set(w, &is, 0, a);
    set(w, &must, 0, b);
    return memcmp(&is, &must, sizeof is) == 0;
}

static void execute(halo_world *w, bool adjoint, bool in_place) {
    lierne_request *requests[HALO_WORLD];
    void *in[HALO_WORLD], *out[HALO_WORLD], *before[HALO_WORLD];
    for (int r = 0; r < w->c.world; r++) {
        int64_t n = w->buffers[!adjoint][r].n;
        in[r] = create_input(w, r, adjoint);
        out[r] = in_place ? in[r] : calloc((size_t)n + 1, 8);
        before[r] = calloc((size_t)n + 1, 8);
        for (int64_t i = 0; i < n && !in_place; i++) {
            set(w, out[r], i, BEFORE);
        }
        memcpy(before[r], out[r], (size_t)n * lierne_dtype_size(w->c.dtype));
        cr_assert_eq((adjoint ? lierne_plan_adjoint_begin
                              : lierne_plan_forward_begin)(&requests[r], w->plans[r], out[r], in[r],
                                                           NULL),
                     LIERNE_OK, "seed %d: %s", (int)w->seed, lierne_last_error());
    }
    for (int r = 0; r < w->c.world; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
    for (int r = 0; r < w->c.world; r++) {
        for (int64_t i = 0; i < w->buffers[!adjoint][r].n; i++) {
            double is = get(w, out[r], i), must = expected(w, r, adjoint, i, get(w, before[r], i));
            cr_assert(same(w, is, must),
                      "seed %d, rank %d, %s%s: place %d is %.17g, must be %.17g\n%s", (int)w->seed,
                      r, adjoint ? "adjoint" : "forward", in_place ? " in place" : "", (int)i, is,
                      must, halo_text(&w->c));
        }
        free(in_place ? NULL : in[r]), free(out[r]), free(before[r]);
    }
}

static bool has(const halo_buffer *b, int64_t element, bool core) {
    for (int64_t i = 0; i < b->n; i++) {
        if (b->at[i] == element && b->core[i] == core) {
            return true;
        }
    }
    return false;
}

static int holders(const halo_world *w, int64_t element) {
    int n = 0;
    for (int r = 0; r < w->c.world; r++) {
        n += has(&w->buffers[0][r], element, true);
    }
    return n;
}

/* Whether a rank is one of the replicas whose first is this one. */
static bool replicates(const halo_world *w, int rank, int first) {
    return w->buffers[1][rank].holds && w->buffers[1][rank].first == first;
}

/* Elements that a rank must receive: forward each that it needs and does not hold; in the adjoint,
 * of elements that it alone holds, cores and terms of others. */
static int64_t least(const halo_world *w, int rank, bool adjoint) {
    int64_t n = 0;
    for (int64_t e = 0; e < w->elements; e++) {
        bool held = has(&w->buffers[0][rank], e, true);
        if (!adjoint) {
            n += !held &&
                 (has(&w->buffers[1][rank], e, true) || has(&w->buffers[1][rank], e, false));
        }
        for (int r = 0; r < w->c.world && adjoint && held; r++) {
            if (w->buffers[1][r].holds && w->buffers[1][r].first == r && !replicates(w, rank, r)) {
                n += has(&w->buffers[1][r], e, true) + has(&w->buffers[1][r], e, false);
            }
        }
    }
    return n;
}

/* Margins of an opaque dtype cannot be summed. */
static bool has_adjoint(const halo_world *w) {
    return w->c.dtype < LIERNE_DTYPE_BITS8 || w->c.sides[1].nhalos == 0;
}

static void expect_bytes(const halo_world *w) {
    bool single = true, partial = false;
    int64_t slack[2] = {0};
    for (int64_t e = 0; e < w->elements; e++) {
        single = single && holders(w, e) == 1;
    }
    for (int r = 0; r < w->c.world; r++) {
        partial = partial || w->buffers[0][r].partials > 1;
    }
    for (int r = 0; r < w->c.world; r++) {
        for (int d = 0; d <= has_adjoint(w); d++) {
            lierne_report report = {.size = sizeof report};
            assert_ok(lierne_plan_get_report(&report, w->plans[r], (lierne_direction)d));
            int64_t size = (int64_t)lierne_dtype_size(w->c.dtype), n = least(w, r, d);
            slack[d] += report.received_bytes - report.min_bytes;
            if (d ? single : !partial) {
                cr_assert_eq(report.received_bytes, n * size, "seed %d, rank %d, direction %d\n%s",
                             (int)w->seed, r, d, halo_text(&w->c));
                cr_assert_eq(report.min_bytes, n * size, "seed %d, rank %d, direction %d",
                             (int)w->seed, r, d);
            }
            if (!d && !partial) {
                cr_assert_eq(report.received_messages, report.received_peers, "seed %d",
                             (int)w->seed);
                cr_assert_eq(report.stages, 1, "seed %d", (int)w->seed);
            }
        }
    }
    cr_assert(slack[0] >= 0 && slack[1] >= 0, "seed %d", (int)w->seed);
}

static void expect_shapes(const halo_world *w, lierne_layout *const *layouts) {
    for (int s = 0; s < 2; s++) {
        for (int r = 0; r < w->c.world; r++) {
            const halo_buffer *b = &w->buffers[s][r];
            int64_t shape[LIERNE_MAX_AXES], stored, owned, cores = 0;
            assert_ok(lierne_layout_get_shape(shape, layouts[s], r));
            assert_ok(lierne_layout_get_elements(&stored, &owned, layouts[s], r));
            for (int64_t i = 0; i < b->n; i++) {
                cores += b->core[i];
            }
            cr_assert_eq(stored, b->n, "seed %d, side %d, rank %d\n%s", (int)w->seed, s, r,
                         halo_text(&w->c));
            cr_assert(!b->holds || w->c.sides[s].full_axes || owned == cores, "seed %d",
                      (int)w->seed);
            for (int a = 0; a < w->c.naxes && !w->c.sides[s].storage; a++) {
                cr_assert_eq(shape[a], b->shape[a], "seed %d, side %d", (int)w->seed, s);
            }
        }
    }
}

/* Counts the boxes that have a combination of outputs; -1: one says the wrong thing of it. */
static int count_boxes(const halo_world *w, const lierne_split_box *boxes, size_t n,
                       const int64_t *at, bool interior) {
    int found = 0;
    for (size_t b = 0; b < n; b++) {
        bool in = true;
        for (int a = 0; a < w->c.naxes; a++) {
            in = in && boxes[b].start[a] <= at[a] && at[a] < boxes[b].start[a] + boxes[b].size[a];
        }
        if (in && boxes[b].interior != interior) {
            return -1;
        }
        found += in;
    }
    return found;
}

/* Every combination of outputs of a rank is in one box, of the right kind. */
static void expect_split(const halo_world *w, lierne_layout *const *layouts, int rank) {
    lierne_split_box boxes[4096];
    halo_outputs axes[LIERNE_MAX_AXES];
    size_t n;
    int64_t all = 1, at[LIERNE_MAX_AXES];
    assert_ok(lierne_halo_get_split(boxes, 4096, &n, layouts[0], layouts[1], rank));
    cr_assert_leq(n, 4096);
    for (int a = 0; a < w->c.naxes; a++) {
        halo_list_outputs(&axes[a], &w->c, rank, a);
        all *= axes[a].n;
    }
    for (int64_t i = 0; i < all; i++) {
        bool interior = true;
        int64_t left = i;
        for (int a = w->c.naxes - 1; a >= 0; a--) {
            at[a] = left % axes[a].n;
            left /= axes[a].n;
            interior = interior && axes[a].ready[at[a]];
        }
        cr_assert_eq(count_boxes(w, boxes, n, at, interior), 1, "seed %d, rank %d, output %d\n%s",
                     (int)w->seed, rank, (int)i, halo_text(&w->c));
    }
    cr_assert(all > 0 || n == 0, "seed %d, rank %d", (int)w->seed, rank);
}

static void expect_splits(const halo_world *w, lierne_layout *const *layouts) {
    size_t n;
    if (w->c.sides[1].nhalos == 0) {
        assert_error(lierne_halo_get_split(NULL, 0, &n, layouts[0], layouts[1], 0),
                     LIERNE_ERR_INVALID, "dst has no halos");
        return;
    }
    for (int i = 0; i < w->c.sides[1].nhalos; i++) {
        if (w->c.sides[1].halos[i].starts) {
            assert_error(lierne_halo_get_split(NULL, 0, &n, layouts[0], layouts[1], 0),
                         LIERNE_ERR_UNSUPPORTED, "of dst has starts");
            return;
        }
    }
    for (int r = 0; r < w->c.world; r++) {
        expect_split(w, layouts, r);
    }
}

static void open_layouts(halo_world *w, lierne_layout **layouts) {
    for (int s = 0; s < 2; s++) {
        assert_ok(halo_layout(&layouts[s], &w->c, s));
        for (int r = 0; r < w->c.world; r++) {
            halo_fill(&w->buffers[s][r], &w->c, s, r);
        }
    }
    expect_shapes(w, layouts);
    expect_splits(w, layouts);
}

static void close_layouts(halo_world *w, lierne_layout *const *layouts) {
    for (int s = 0; s < 2; s++) {
        lierne_layout_destroy(layouts[s]);
        for (int r = 0; r < w->c.world; r++) {
            halo_free(&w->buffers[s][r]);
        }
    }
}

static void create_plans(const halo_world *w, lierne_plan **plans, lierne_sim *sim,
                         lierne_layout *const *layouts) {
    for (int r = 0; r < w->c.world; r++) {
        const lierne_redistribute_spec spec = {.size = sizeof spec,
                                               .src = layouts[0],
                                               .dst = layouts[1],
                                               .accumulate = w->accumulate};
        cr_assert_eq(lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(sim, r),
                                                     &spec),
                     LIERNE_OK, "seed %d: %s\n%s", (int)w->seed, lierne_last_error(),
                     halo_text(&w->c));
    }
}

static void destroy_plans(const halo_world *w, lierne_plan **plans) {
    for (int r = 0; r < w->c.world; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
}

static void run_plans(halo_world *w) {
    cr_assert_eq(lierne_plan_check((const lierne_plan *const *)w->plans, w->c.world), LIERNE_OK,
                 "seed %d: %s\n%s", (int)w->seed, lierne_last_error(), halo_text(&w->c));
    expect_bytes(w);
    for (int i = 0; i < (w->c.equal && w->c.sides[0].nhalos ? 4 : 2); i++) {
        if (i % 2 && !has_adjoint(w)) {
            assert_error(lierne_plan_adjoint(w->plans[0], NULL, NULL, NULL), LIERNE_ERR_INVALID,
                         "opaque");
        } else {
            execute(w, i % 2, i >= 2);
        }
    }
}

/* A plan that was updated is that which would be planned now. */
static void expect_as_fresh(const halo_world *w, lierne_sim *sim, lierne_layout *const *layouts) {
    lierne_plan *fresh[HALO_WORLD];
    create_plans(w, fresh, sim, layouts);
    for (int i = 0; i < 2 * w->c.world; i++) {
        lierne_report is = {.size = sizeof is}, must = is;
        if (i % 2 && !has_adjoint(w)) {
            continue;
        }
        assert_ok(lierne_plan_get_report(&is, w->plans[i / 2], (lierne_direction)(i % 2)));
        assert_ok(lierne_plan_get_report(&must, fresh[i / 2], (lierne_direction)(i % 2)));
        cr_assert(is.received_bytes == must.received_bytes && is.sent_bytes == must.sent_bytes &&
                      is.sent_messages == must.sent_messages && is.stages == must.stages,
                  "seed %d, rank %d", (int)w->seed, i / 2);
    }
    destroy_plans(w, fresh);
}

/* Other documents for the plans, where they have some. */
static void update_documents(halo_world *w, lierne_sim *sim, lierne_layout **layouts, int step) {
    int axis = halo_redivide(&w->c, 3 * w->seed + (uint64_t)step);
    if (axis < 0) {
        return;
    }
    const lierne_dense_halo *h = w->c.sides[1].halos;
    while (h->axis != axis) {
        h++;
    }
    close_layouts(w, layouts);
    open_layouts(w, layouts);
    for (int r = 0; r < w->c.world; r++) {
        assert_ok(lierne_plan_update_documents(w->plans[r], axis, h->nsegments, h->segments));
    }
    run_plans(w);
    expect_as_fresh(w, sim, layouts);
}

static void run_case(uint64_t seed) {
    halo_world w = {.seed = seed, .elements = 1};
    lierne_layout *layouts[2];
    lierne_sim *sim;
    halo_random(&w.c, seed);
    w.accumulate = w.c.sides[1].storage && seed % 2;
    for (int a = 0; a < w.c.naxes; a++) {
        w.elements *= w.c.shape[a];
    }
    open_layouts(&w, layouts);
    assert_ok(lierne_sim_create(&sim, w.c.world, NULL));
    test_transports *transports =
        test_transports_attach(sim, w.c.world, (test_pairs){.exposed = (unsigned)seed % 8});
    create_plans(&w, w.plans, sim, layouts);
    run_plans(&w);
    for (int step = 0; step < 2; step++) {
        update_documents(&w, sim, layouts, step);
    }
    destroy_plans(&w, w.plans);
    close_layouts(&w, layouts);
    assert_ok(lierne_sim_destroy(sim));
    cr_assert(test_transports_destroy(transports));
}

Test(dense_halo, random_layouts_move_as_the_oracle_says, .timeout = 3600) {
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_case(seed);
    }
}

/* A box of a row, and its place in a buffer whose columns are `stride` apart. */
static lierne_move move_of(int64_t row, int64_t column, int64_t to, int64_t stride) {
    const lierne_patch place = {.offset = to, .size = {1, 2}, .stride = {1000, stride}};
    return (
        lierne_move){.box = {.start = {row, column}, .size = {1, 2}}, .to = place, .from = place};
}

/* In margins, columns may be farther apart: then rows begin at one place, if columns are counted
 * from 0. */
Test(dense_halo, boxes_of_a_row_merge_whatever_other_rows_have) {
    lierne_move at[] = {move_of(0, 0, 0, 1), move_of(1, 1, 100, 100), move_of(0, 2, 2, 1)};
    lierne_moves moves = {.at = at, .count = 3};
    lierne_moves_merge(&moves, 2);
    cr_assert_eq(moves.count, 2);
    cr_expect(at[0].box.size[1] == 4 && at[0].to.size[1] == 4 && at[1].box.size[1] == 2);
}
