/* Descriptions of halos that are rejected, with the field at fault; specs and functions that a halo
 * does not fit; what callers ask about windows. */
#include "layout/layout.h"
#include "lierne/sim.h"
#include "unit/dense_halo_case.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

/* A tensor of 8 x 6, axis 0 cut over two ranks. */
typedef struct reject_case {
    lierne_grid *grid;
    int64_t shape[2];
    lierne_placement placement;
    lierne_dense_halo halos[3];
    lierne_layout_spec spec;
} reject_case;

static void open_case(reject_case *t) {
    static const char *const name = "x";
    static const int64_t size = 2;
    const lierne_grid_spec grid = {
        .size = sizeof grid, .ndims = 1, .names = &name, .sizes = &size, .world_size = 2};
    *t = (reject_case){.shape = {8, 6},
                       .placement = {.kind = LIERNE_PLACEMENT_SHARD},
                       .halos = {{.boundary = LIERNE_BOUNDARY_ZERO, .lo = 1, .hi = 1},
                                 {.axis = 1, .boundary = LIERNE_BOUNDARY_ZERO, .lo = 1, .hi = 1}}};
    assert_ok(lierne_grid_create(&t->grid, &grid));
    t->spec = (lierne_layout_spec){.size = sizeof t->spec,
                                   .grid = t->grid,
                                   .naxes = 2,
                                   .shape = t->shape,
                                   .dtype = LIERNE_DTYPE_I64,
                                   .placements = &t->placement,
                                   .nhalos = 1,
                                   .halos = t->halos};
}

static lierne_layout *make(const reject_case *t) {
    lierne_layout *layout = NULL;
    assert_ok(lierne_layout_create(&layout, &t->spec));
    return layout;
}

/* Windows of outputs with stride 2 and boundary NONE. */
static void bound(reject_case *t, int64_t lo, int64_t hi, int64_t outputs) {
    t->halos[0] = (lierne_dense_halo){.lo = lo, .hi = hi, .stride = 2, .outputs = outputs};
}

/* Documents of axis 0. */
static void divide(reject_case *t, int64_t n, const int64_t *segments) {
    t->halos[0].nsegments = n;
    t->halos[0].segments = segments;
}

#define REJECTED(change, status, words)                                                            \
    do {                                                                                           \
        reject_case t;                                                                             \
        lierne_layout *layout;                                                                     \
        open_case(&t);                                                                             \
        change;                                                                                    \
        cr_expect_eq(lierne_layout_create(&layout, &t.spec), status, "%s: %s", words,              \
                     lierne_last_error());                                                         \
        expect_says(words);                                                                        \
        cr_expect_null(layout);                                                                    \
        lierne_grid_destroy(t.grid);                                                               \
    } while (0)

Test(dense_halo, bad_descriptions_are_rejected) {
    const lierne_status invalid = LIERNE_ERR_INVALID;
    REJECTED(t.spec.nhalos = -1, invalid, "nhalos is -1, must be in 0 to 2");
    REJECTED(t.spec.nhalos = 3, invalid, "nhalos is 3, must be in 0 to 2");
    REJECTED(t.spec.halos = NULL, invalid, "spec->halos is NULL");
    REJECTED(t.halos[0].axis = 2, invalid, "halo[0].axis is 2, must be in 0 to 1");
    REJECTED(t.halos[0].axis = -1, invalid, "halo[0].axis is -1");
    REJECTED((t.spec.nhalos = 2, t.halos[1].axis = 0), invalid, "halo[1].axis is 0, as that of");
    REJECTED(t.halos[0].boundary = (lierne_boundary)7, invalid, "halo[0].boundary is 7");
    REJECTED(t.halos[0].boundary = (lierne_boundary)-1, invalid, "halo[0].boundary is -1");
    REJECTED(t.spec.stencil = (lierne_stencil)2, invalid, "stencil is 2, must be in 0 to 1");
    REJECTED(t.spec.halo_storage = (lierne_halo_storage)2, invalid, "halo_storage is 2");
    REJECTED((t.spec.nhalos = 0, t.spec.halo_storage = LIERNE_HALO_STORAGE_MARGINS), invalid,
             "halo_storage is 1, must be 0 without halos");
    REJECTED(t.spec.full_axes = 1, invalid, "halo[0].axis is 0, which full_axes 0x1 stores FULL");
    REJECTED(t.halos[0].lo = -2, invalid, "halo[0].lo is -2 and hi 1");
    REJECTED((t.halos[0].lo = -1, t.spec.stencil = LIERNE_STENCIL_STAR), invalid,
             "halo[0].lo is -1, must be at least 0 with a star");
    REJECTED((t.halos[0].hi = -1, t.spec.halo_storage = LIERNE_HALO_STORAGE_MARGINS), invalid,
             "halo[0].hi is -1, must be at least 0 with margin storage");
    REJECTED((t.halos[0].hi = -1, t.halos[0].boundary = LIERNE_BOUNDARY_NONE), invalid,
             "halo[0].hi is -1, must be at least 0 with boundary NONE");
    REJECTED(t.halos[0].stride = -1, invalid, "halo[0].stride is -1 and outputs 0");
    REJECTED(t.halos[0].outputs = 4, invalid, "halo[0].stride is 0 and outputs 4");
    REJECTED((t.halos[0].stride = 2, t.halos[0].outputs = -1), invalid, "and outputs -1");
    REJECTED((t.halos[0].stride = 2, t.spec.stencil = LIERNE_STENCIL_STAR), invalid,
             "halo[0].stride is 2, must be 0 with a star");
    REJECTED((t.halos[0].stride = 2, t.spec.halo_storage = LIERNE_HALO_STORAGE_MARGINS), invalid,
             "halo[0].stride is 2, must be 0 with margin storage");
    REJECTED((t.halos[0].stride = 1, t.halos[0].outputs = INT64_MAX), LIERNE_ERR_OVERFLOW,
             "their product must be at most");
    REJECTED(bound(&t, 0, 2, 4), invalid, "windows reach from 0 to 8, must be in 0 to 7");
    REJECTED(bound(&t, 1, 1, 4), invalid, "windows reach from -1 to 7, must be in 0 to 7");
    REJECTED((t.shape[0] = 0, bound(&t, 0, 1, 1), t.halos[0].boundary = LIERNE_BOUNDARY_PERIODIC),
             invalid, "must be ZERO or KEEP on an axis without elements");
    REJECTED(t.halos[0].lo = INT64_MAX, LIERNE_ERR_OVERFLOW, "halo[0].lo is 9223372036854775807");
    REJECTED(t.halos[0].hi = INT64_MIN, LIERNE_ERR_OVERFLOW, "halo[0].hi is -92233720368547");
    REJECTED(t.halos[0].lo = (int64_t)1 << 58, LIERNE_ERR_OVERFLOW, "at axis 0 of size 8");
}

Test(dense_halo, bad_documents_are_rejected) {
    const lierne_status invalid = LIERNE_ERR_INVALID;
    static const int64_t late[] = {1, 4, 8}, short_of[] = {0, 4, 7}, falls[] = {0, 5, 4, 8},
                         good[] = {0, 4, 4, 8}, eight = 8;
    REJECTED(divide(&t, -1, good), invalid, "halo[0].nsegments is -1, must be at least 0");
    REJECTED(divide(&t, 3, NULL), invalid, "halo[0].nsegments is 3, but segments is NULL");
    REJECTED(divide(&t, 0, &eight), invalid, "halo[0].nsegments is 0, but segments is given");
    REJECTED(divide(&t, 2, late), invalid, "halo[0].segments[0] is 1, must be 0");
    REJECTED(divide(&t, 2, short_of), invalid, "halo[0].segments[2] is 7, must be 8");
    REJECTED(divide(&t, 3, falls), invalid, "halo[0].segments[2] is 4, must be at least 5");
    REJECTED((divide(&t, 3, good), t.halos[0].lo = -1), invalid,
             "halo[0].lo is -1, must be at least 0 with documents");
    REJECTED((bound(&t, 0, 0, 4), divide(&t, 3, good)), invalid,
             "halo[0].stride is 2, must be 0 with documents");
}

/* Windows of coordinates of axis 0. */
static void set_windows(reject_case *t, const int64_t *starts, const int64_t *ends) {
    t->halos[0] =
        (lierne_dense_halo){.boundary = LIERNE_BOUNDARY_ZERO, .starts = starts, .ends = ends};
}

Test(dense_halo, bad_windows_are_rejected) {
    const lierne_status invalid = LIERNE_ERR_INVALID;
    static const int64_t starts[] = {-1, 3}, ends[] = {2, 9}, less[] = {2, 2}, zeros[] = {0, 0},
                         documents[] = {0, 8}, counts[] = {3, 4},
                         far[] = {-((int64_t)1 << 60) - 1, 0}, big[] = {(int64_t)1 << 58, 3};
    REJECTED(set_windows(&t, starts, NULL), invalid, "halo[0].ends is NULL");
    REJECTED(set_windows(&t, NULL, ends), invalid, "halo[0].starts is NULL");
    REJECTED(set_windows(&t, starts, less), invalid,
             "halo[0].ends[1] is 2, must be at least starts[1], which is 3");
    REJECTED((set_windows(&t, starts, ends), t.halos[0].lo = 1), invalid,
             "halo[0].starts must be NULL with lo or hi");
    REJECTED((set_windows(&t, starts, ends), t.halos[0].hi = 1), invalid, "with lo or hi");
    REJECTED((set_windows(&t, starts, ends), t.halos[0].stride = 1), invalid, "with a stride");
    REJECTED((set_windows(&t, starts, ends), t.halos[0].outputs = 1), invalid, "and outputs 1");
    REJECTED((set_windows(&t, starts, ends), t.spec.stencil = LIERNE_STENCIL_STAR), invalid,
             "halo[0].starts must be NULL with a star");
    REJECTED((set_windows(&t, starts, ends), t.spec.halo_storage = LIERNE_HALO_STORAGE_MARGINS),
             invalid, "halo[0].starts must be NULL with margin storage");
    REJECTED((set_windows(&t, starts, ends), t.halos[0].nsegments = 1,
              t.halos[0].segments = documents),
             invalid, "halo[0].starts must be NULL with documents");
    REJECTED((set_windows(&t, starts, ends), t.placement.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG),
             invalid, "dim 0 cuts axis 0 otherwise");
    REJECTED((set_windows(&t, starts, ends), t.placement.kind = LIERNE_PLACEMENT_SHARD_ROWS),
             invalid, "dim 0 cuts axis 0 otherwise");
    REJECTED((set_windows(&t, starts, ends), t.halos[0].boundary = LIERNE_BOUNDARY_NONE), invalid,
             "halo[0]: windows reach from -1 to 1, must be in 0 to 7");
    REJECTED((set_windows(&t, zeros, ends), t.halos[0].boundary = LIERNE_BOUNDARY_NONE), invalid,
             "halo[0]: windows reach from 0 to 8, must be in 0 to 7");
    REJECTED((t.shape[0] = 0, set_windows(&t, zeros, ends),
              t.halos[0].boundary = LIERNE_BOUNDARY_MIRROR),
             invalid, "must be ZERO or KEEP on an axis without elements");
    REJECTED((set_windows(&t, starts, ends), t.placement.counts = counts), invalid,
             "counts of dim 0 add up to 7, but axis 0 has 8");
    REJECTED(set_windows(&t, far, ends), LIERNE_ERR_OVERFLOW, "halo[0].starts[0] is -11529215046");
    REJECTED(set_windows(&t, zeros, big), LIERNE_ERR_OVERFLOW, "at axis 0 of size 8");
}

/* A coordinate has its window whatever its share is; where no dim cuts the axis, there is one. */
Test(dense_halo, windows_do_not_depend_on_shares) {
    static const int64_t starts[] = {-1, 3}, ends[] = {2, 3}, counts[] = {8, 0};
    size_t count;
    lierne_halo_window window;
    reject_case t;
    open_case(&t);
    set_windows(&t, starts, ends);
    t.placement.counts = counts;
    lierne_layout *layout = make(&t);
    assert_ok(lierne_layout_get_windows(&window, 1, &count, layout, 0, 0));
    cr_assert(count == 1 && window.start == -1 && window.size == 3 && window.core_size == 0);
    assert_ok(lierne_layout_get_windows(&window, 1, &count, layout, 1, 0));
    cr_assert_eq(count, 0);
    lierne_layout_destroy(layout);
    t.placement.kind = LIERNE_PLACEMENT_REPLICATE;
    layout = make(&t);
    assert_ok(lierne_layout_get_windows(&window, 1, &count, layout, 1, 0));
    cr_assert(count == 1 && window.start == -1);
    lierne_layout_destroy(layout);
    lierne_grid_destroy(t.grid);
}

/* Two ranks that update a plan of two documents on axis 0. */
typedef struct update_case {
    reject_case t;
    lierne_layout *layouts[2]; /* plain, with a halo */
    lierne_sim *sim;
    lierne_plan *plans[2];
} update_case;

static void open_update(update_case *u) {
    static const int64_t documents[] = {0, 4, 8};
    open_case(&u->t);
    divide(&u->t, 2, documents);
    u->layouts[1] = make(&u->t);
    u->t.spec.nhalos = 0;
    u->layouts[0] = make(&u->t);
    assert_ok(lierne_sim_create(&u->sim, 2, NULL));
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = u->layouts[0],
                                           .dst = u->layouts[1]};
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_plan_create_redistribute(&u->plans[r], lierne_sim_get_context(u->sim, r),
                                                  &spec));
    }
}

static void close_update(update_case *u) {
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_plan_destroy(u->plans[r]));
        lierne_layout_destroy(u->layouts[r]);
    }
    assert_ok(lierne_sim_destroy(u->sim));
    lierne_grid_destroy(u->t.grid);
}

#define UNDIVIDED(axis, n, segments, words)                                                        \
    do {                                                                                           \
        update_case u;                                                                             \
        open_update(&u);                                                                           \
        assert_error(lierne_plan_update_documents(u.plans[0], axis, n, segments),                  \
                     LIERNE_ERR_INVALID, words);                                                   \
        close_update(&u);                                                                          \
    } while (0)

Test(dense_halo, bad_updates_of_documents_are_rejected) {
    static const int64_t falls[] = {0, 5, 4, 8}, short_of[] = {0, 7}, good[] = {0, 8};
    assert_error(lierne_plan_update_documents(NULL, 0, 1, good), LIERNE_ERR_INVALID,
                 "plan is NULL");
    UNDIVIDED(0, 0, good, "nsegments is 0, must be at least 1");
    UNDIVIDED(0, 1, NULL, "nsegments is 1, but segments is NULL");
    UNDIVIDED(1, 1, good, "axis is 1, must be one whose halo has segments");
    UNDIVIDED(-1, 1, good, "axis is -1, must be");
    UNDIVIDED(7, 1, good, "axis is 7, must be");
    UNDIVIDED(0, 3, falls, "halo[0].segments[2] is 4, must be at least 5");
    UNDIVIDED(0, 1, short_of, "halo[0].segments[1] is 7, must be 8");
}

Test(dense_halo, updates_that_differ_are_found) {
    static const int64_t documents[] = {0, 2, 8}, others[] = {0, 3, 8};
    update_case u;
    open_update(&u);
    assert_ok(lierne_plan_update_documents(u.plans[0], 0, 2, documents));
    assert_error(lierne_plan_update_documents(u.plans[1], 0, 2, others), LIERNE_ERR_MISMATCH,
                 "segments[1]");
    close_update(&u);
}

static void differ(const int64_t *starts, const int64_t *ends, const char *field) {
    static const int64_t own_starts[] = {-1, 3}, own_ends[] = {2, 9};
    lierne_layout *layouts[3];
    lierne_sim *sim;
    lierne_plan *plans[2];
    reject_case t;
    open_case(&t);
    for (int k = 0; k < 2; k++) {
        set_windows(&t, k ? starts : own_starts, k ? ends : own_ends);
        layouts[k] = make(&t);
    }
    cr_assert_neq(lierne_layout_hash(layouts[0]), lierne_layout_hash(layouts[1]), "%s", field);
    t.spec.nhalos = 0;
    layouts[2] = make(&t);
    assert_ok(lierne_sim_create(&sim, 2, NULL));
    for (int r = 0; r < 2; r++) {
        const lierne_redistribute_spec spec = {.size = sizeof spec,
                                               .src = layouts[2],
                                               .dst = layouts[r]};
        lierne_status status =
            lierne_plan_create_redistribute(&plans[r], lierne_sim_get_context(sim, r), &spec);
        cr_assert_eq(status, r ? LIERNE_ERR_MISMATCH : LIERNE_OK);
    }
    expect_says(field);
    assert_ok(lierne_plan_destroy(plans[0]));
    assert_ok(lierne_sim_destroy(sim));
    for (int k = 0; k < 3; k++) {
        lierne_layout_destroy(layouts[k]);
    }
    lierne_grid_destroy(t.grid);
}

Test(dense_halo, windows_that_differ_are_found) {
    static const int64_t starts[] = {-1, 3}, ends[] = {2, 9}, early[] = {-1, 2},
                         short_ends[] = {2, 8};
    differ(starts, short_ends, "dst.halo[0].ends[1]");
    differ(early, ends, "dst.halo[0].starts[1]");
}

/* A plan gets another shape; documents, outputs and windows would no longer fit. */
Test(dense_halo, documents_outputs_and_windows_keep_their_axis) {
    static const int64_t documents[] = {0, 4, 8}, starts[] = {0}, ends[] = {8};
    for (int k = 0; k < 3; k++) {
        reject_case t;
        lierne_sim *sim;
        lierne_plan *plan;
        int64_t shape[2] = {8, 3};
        open_case(&t);
        assert_ok(lierne_sim_create(&sim, 1, NULL));
        lierne_grid_destroy(t.grid);
        const lierne_grid_spec one = {.size = sizeof one, .world_size = 1};
        assert_ok(lierne_grid_create(&t.grid, &one));
        t.spec.grid = t.grid;
        if (k == 2) {
            set_windows(&t, starts, ends);
        } else if (k == 1) {
            bound(&t, 0, 1, 4);
        } else {
            divide(&t, 2, documents);
        }
        lierne_layout *halo = make(&t);
        t.spec.nhalos = 0;
        lierne_layout *plain = make(&t);
        const lierne_redistribute_spec spec = {.size = sizeof spec, .src = plain, .dst = halo};
        assert_ok(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 0), &spec));
        assert_ok(lierne_plan_update_shape(plan, shape));
        shape[0] = 6;
        assert_error(lierne_plan_update_shape(plan, shape), LIERNE_ERR_INVALID,
                     k == 2   ? "its halo has a list of windows"
                     : k == 1 ? "its halo has a stride"
                              : "its halo has a list of documents");
        assert_ok(lierne_plan_destroy(plan));
        lierne_layout_destroy(halo);
        lierne_layout_destroy(plain);
        assert_ok(lierne_sim_destroy(sim));
        lierne_grid_destroy(t.grid);
    }
}

Test(dense_halo, bad_convolutions_are_rejected) {
    lierne_convolution_spec spec = LIERNE_CONVOLUTION_SPEC_INIT;
    lierne_dense_halo halo = {.axis = 1};
    const lierne_status invalid = LIERNE_ERR_INVALID;
    spec.elements = 5;
    assert_ok(lierne_halo_from_convolution(&halo, &spec));
    cr_assert(halo.axis == 1 && halo.lo == 0 && halo.hi == 0 && halo.outputs == 5);
    assert_error(lierne_halo_from_convolution(NULL, &spec), invalid, "halo is NULL");
    assert_error(lierne_halo_from_convolution(&halo, NULL), invalid, "spec is NULL");
    spec.kernel = 0;
    assert_error(lierne_halo_from_convolution(&halo, &spec), invalid, "kernel is 0");
    spec.kernel = 6;
    assert_error(lierne_halo_from_convolution(&halo, &spec), invalid, "only 5 with padding");
    spec.kernel = INT64_MAX;
    assert_error(lierne_halo_from_convolution(&halo, &spec), LIERNE_ERR_OVERFLOW, "kernel is");
    spec.kernel = 2, spec.dilation = (int64_t)1 << 60; /* it reaches as far as it may */
    assert_error(lierne_halo_from_convolution(&halo, &spec), invalid, "only 5 with padding");
    spec.kernel = spec.dilation = (int64_t)1 << 40;
    assert_error(lierne_halo_from_convolution(&halo, &spec), LIERNE_ERR_OVERFLOW, "dilation");
    spec.kernel = 1, spec.dilation = 0;
    assert_error(lierne_halo_from_convolution(&halo, &spec), invalid, "dilation is 0");
    spec.dilation = 1, spec.stride = 0;
    assert_error(lierne_halo_from_convolution(&halo, &spec), invalid, "stride is 0");
    spec.stride = 1, spec.pad_lo = -1;
    assert_error(lierne_halo_from_convolution(&halo, &spec), invalid, "pad_lo is -1");
    spec.pad_lo = 0, spec.pad_hi = -1;
    assert_error(lierne_halo_from_convolution(&halo, &spec), invalid, "pad_hi is -1");
    spec.pad_hi = 0, spec.elements = -1;
    assert_error(lierne_halo_from_convolution(&halo, &spec), invalid, "elements is -1");
}

Test(dense_halo, maps_of_two_axes_and_packings_are_rejected) {
    static const int32_t rows[48];
    static const int64_t cu[2] = {0, 8};
    static const lierne_segments segments = {.size = sizeof segments,
                                             .nsegments = 1,
                                             .cu_seqlens = cu};
    static const lierne_packing packing = {.size = sizeof packing};
    const lierne_placement map = {.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = 1, .rows = rows};
    REJECTED(t.placement = map, LIERNE_ERR_UNSUPPORTED, "a SHARD_ROWS of axes 0 and 1 (dim 0)");
    REJECTED((t.spec.segments = &segments, t.spec.packing = &packing), LIERNE_ERR_UNSUPPORTED,
             "axis 0 is packed");
}

/* What does not fit a halo on one of its sides, in a world of its own. */
#define UNPLANNED(change, status, words)                                                           \
    do {                                                                                           \
        lierne_redistribute_spec spec = {.size = sizeof spec, .src = plain, .dst = halo};          \
        lierne_sim *sim;                                                                           \
        lierne_plan *plan;                                                                         \
        assert_ok(lierne_sim_create(&sim, 2, NULL));                                               \
        change;                                                                                    \
        cr_expect_eq(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 0),        \
                                                     &spec),                                       \
                     status, "%s: %s", words, lierne_last_error());                                \
        expect_says(words);                                                                        \
        cr_expect_null(plan);                                                                      \
        assert_ok(lierne_sim_destroy(sim));                                                        \
    } while (0)

Test(dense_halo, specs_that_do_not_fit_are_rejected) {
    const lierne_status unsupported = LIERNE_ERR_UNSUPPORTED;
    reject_case t;
    open_case(&t);
    lierne_layout *halo = make(&t);
    t.spec.halo_storage = LIERNE_HALO_STORAGE_MARGINS;
    lierne_layout *margins = make(&t);
    t.spec.halo_storage = LIERNE_HALO_STORAGE_PADDED;
    t.halos[0].hi = -1;
    lierne_layout *roll = make(&t);
    t.spec.nhalos = 0;
    lierne_layout *plain = make(&t);
    UNPLANNED((spec.src = margins, spec.dst = plain), unsupported, "src has margin storage");
    UNPLANNED((spec.src = roll, spec.dst = plain), unsupported, "src has windows without cores");
    UNPLANNED((spec.adjoint_src = halo, spec.adjoint_dst = plain), unsupported,
              "adjoint_src has a halo");
    UNPLANNED((spec.adjoint_src = plain, spec.adjoint_dst = plain), unsupported,
              "dst has a halo: adjoint_src and adjoint_dst must be NULL");
    UNPLANNED(spec.routing = LIERNE_ROUTING_BALANCED, unsupported, "routing may not be BALANCED");
    UNPLANNED(spec.shared_output = LIERNE_SHARING_FORWARD, unsupported, "shared_output must be 0");
    UNPLANNED(spec.accumulate = 1, LIERNE_ERR_INVALID, "accumulate is 1, must be 0 unless dst has");
    lierne_layout_destroy(halo);
    lierne_layout_destroy(margins);
    lierne_layout_destroy(roll);
    lierne_layout_destroy(plain);
    lierne_grid_destroy(t.grid);
}

Test(dense_halo, functions_that_know_no_halo_say_so) {
    reject_case t;
    int64_t received, sent;
    const int nodes[2] = {0, 1};
    lierne_node_bound bound = {.size = sizeof bound};
    lierne_route *route;
    open_case(&t);
    lierne_layout *halo = make(&t);
    t.spec.nhalos = 0;
    lierne_layout *plain = make(&t);
    const lierne_layout *from = plain, *to = halo;
    const lierne_set_box box = {.sizes = {1}};
    const lierne_set_spec set = {.size = sizeof set,
                                 .ntensors = 1,
                                 .src = &from,
                                 .dst = &to,
                                 .boxes = &box,
                                 .nboxes = 1,
                                 .ndst = 1};
    assert_error(lierne_redistribute_get_bound(&received, &sent, plain, halo),
                 LIERNE_ERR_UNSUPPORTED, "dst has a halo");
    assert_error(lierne_redistribute_get_node_bound(&bound, halo, plain, nodes),
                 LIERNE_ERR_UNSUPPORTED, "src has a halo");
    assert_error(lierne_route_create_set(&route, NULL, &set, 0), LIERNE_ERR_UNSUPPORTED,
                 "dst[0] has a halo on axis 0: tensors of a set with boxes have none");
    lierne_layout_destroy(halo);
    lierne_layout_destroy(plain);
    lierne_grid_destroy(t.grid);
}

Test(dense_halo, questions_about_windows_are_checked) {
    reject_case t;
    size_t count = 7;
    lierne_halo_window window;
    lierne_margin margin[8];
    open_case(&t);
    lierne_layout *padded = make(&t);
    t.spec.halo_storage = LIERNE_HALO_STORAGE_MARGINS;
    lierne_layout *margins = make(&t);
    const lierne_status invalid = LIERNE_ERR_INVALID;
    assert_error(lierne_layout_get_windows(NULL, 0, &count, NULL, 0, 0), invalid, "layout is NULL");
    assert_error(lierne_layout_get_windows(NULL, 0, NULL, padded, 0, 0), invalid, "count is NULL");
    assert_error(lierne_layout_get_windows(NULL, 0, &count, padded, 0, 1), invalid, "axis is 1");
    assert_error(lierne_layout_get_windows(NULL, 0, &count, padded, 0, -1), invalid, "axis is -1");
    assert_error(lierne_layout_get_margins(NULL, 0, &count, NULL, 0), invalid, "layout is NULL");
    assert_error(lierne_layout_get_margins(NULL, 0, NULL, margins, 0), invalid, "count is NULL");
    assert_error(lierne_layout_get_margins(NULL, 0, &count, padded, 0), invalid, "margin storage");
    assert_ok(lierne_layout_get_windows(&window, 1, &count, padded, 1, 0));
    cr_assert(count == 1 && window.start == 3 && window.size == 6 && window.local == 0 &&
              window.core_start == 4 && window.core_size == 4);
    assert_ok(lierne_layout_get_margins(margin, 8, &count, margins, 1));
    cr_assert(count == 2 && margin[0].start[0] == 3 && margin[0].size[0] == 1 &&
              margin[0].size[1] == 6 && margin[0].offset == 0 && margin[1].start[0] == 8 &&
              margin[1].start[1] == 0 && margin[1].offset == 6);
    lierne_layout_destroy(padded);
    lierne_layout_destroy(margins);
    lierne_grid_destroy(t.grid);
}

Test(dense_halo, questions_about_splits_are_checked) {
    reject_case t;
    size_t count = 7;
    lierne_split_box box;
    open_case(&t);
    lierne_layout *halo = make(&t);
    bound(&t, 0, 1, 4);
    lierne_layout *strided = make(&t);
    t.spec.nhalos = 0;
    lierne_layout *plain = make(&t);
    t.shape[0] += 2;
    lierne_layout *longer = make(&t);
    t.spec.naxes = 1;
    lierne_layout *line = make(&t);
    const lierne_status invalid = LIERNE_ERR_INVALID;
    assert_error(lierne_halo_get_split(NULL, 0, NULL, plain, halo, 0), invalid, "count is NULL");
    assert_error(lierne_halo_get_split(NULL, 0, &count, NULL, halo, 0), invalid, "src is NULL");
    assert_error(lierne_halo_get_split(NULL, 0, &count, plain, NULL, 0), invalid, "dst is NULL");
    assert_error(lierne_halo_get_split(NULL, 0, &count, halo, plain, 0), invalid, "no halos");
    assert_error(lierne_halo_get_split(NULL, 0, &count, longer, halo, 0), invalid, "axis 0 of src");
    assert_error(lierne_halo_get_split(NULL, 0, &count, line, halo, 0), invalid, "src has 1 axes");
    assert_error(lierne_halo_get_split(NULL, 0, &count, strided, halo, 0), LIERNE_ERR_UNSUPPORTED,
                 "src has windows without cores");
    assert_ok(lierne_halo_get_split(&box, 1, &count, plain, halo, 1));
    cr_assert(count == 2 && box.interior);
    assert_ok(lierne_halo_get_split(&box, 1, &count, plain, halo, 99));
    cr_assert_eq(count, 0);
    lierne_layout_destroy(halo);
    lierne_layout_destroy(strided);
    lierne_layout_destroy(plain);
    lierne_layout_destroy(longer);
    lierne_layout_destroy(line);
    lierne_grid_destroy(t.grid);
}
