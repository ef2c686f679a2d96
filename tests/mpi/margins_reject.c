/* A bad dense halo of one rank is every rank's error, in planning one tensor or a set, in an update
 * of documents and, in a context that checks calls, in a call: the same status and message, which
 * names the field; no plan, nothing kept, no rank waits, and what follows works. From the first
 * rank, the last one and one between. */
#include "mpi/common.h"

#include "lierne/redistribute.h"

#include <string.h>

enum { ROWS = 8, COLUMNS = 3, ROOM = 4 * ROWS * COLUMNS };

static lierne_context *context;
static lierne_grid *grid;

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

/* The tensor cut by all ranks, with the halo that a fault has; "": without one. */
static lierne_layout *layout_of(const char *what) {
    const int64_t rows = (int64_t)ROWS * test_world, shape[] = {rows, COLUMNS};
    const int64_t documents[] = {0, 3, rows}, others[] = {0, 4, rows};
    const bool partial = is(what, "sums");
    const lierne_placement cut = {.kind =
                                      partial ? LIERNE_PLACEMENT_PARTIAL : LIERNE_PLACEMENT_SHARD};
    lierne_dense_halo halo = {.boundary = LIERNE_BOUNDARY_PERIODIC, .lo = 1, .hi = 1};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = grid,
                               .naxes = 2,
                               .shape = shape,
                               .dtype =
                                   strstr(what, "opaque") ? LIERNE_DTYPE_BITS8 : LIERNE_DTYPE_I64,
                               .placements = &cut,
                               .nhalos = strstr(what, "plain") ? 0 : 1,
                               .halos = &halo};
    halo.axis = is(what, "other axis") ? 1 : 0;
    halo.lo = is(what, "other lo") ? 2 : is(what, "roll") ? -1 : 1;
    halo.hi = is(what, "other hi") ? 2 : 1;
    halo.boundary = is(what, "other boundary") ? LIERNE_BOUNDARY_MIRROR : halo.boundary;
    halo.stride = is(what, "strided");
    halo.outputs = is(what, "strided") ? rows : 0;
    halo.nsegments = strstr(what, "documents") ? 2 : 0;
    halo.segments = is(what, "other documents") ? others : halo.nsegments ? documents : NULL;
    spec.stencil = is(what, "star") ? LIERNE_STENCIL_STAR : LIERNE_STENCIL_BOX;
    spec.halo_storage =
        is(what, "margins") ? LIERNE_HALO_STORAGE_MARGINS : LIERNE_HALO_STORAGE_PADDED;
    lierne_layout *layout = NULL;
    CHECK_OK(lierne_layout_create(&layout, &spec));
    return layout;
}

/* Up to FIELD of a redistribution, whose layouts SET has twice: the second dst may be the bad one.
 */
typedef enum kind { SRC, DST, FIELD, SET, UPDATE, CALL } kind;

typedef struct bad_case {
    kind kind;
    const char *name, *words;
    lierne_status wanted;
    const char *src, *dst; /* of the ranks that are right; NULL: plain, halo */
} bad_case;

static const bad_case faults[] = {
    {SRC, "margins", "src has margin storage", LIERNE_ERR_UNSUPPORTED, NULL, NULL},
    {SRC, "roll", "src has windows without cores", LIERNE_ERR_UNSUPPORTED, NULL, NULL},
    {SRC, "strided", "src has windows without cores", LIERNE_ERR_UNSUPPORTED, NULL, NULL},
    {SRC, "other lo", "src.halo[0].lo", LIERNE_ERR_MISMATCH, "halo", NULL},
    {DST, "other lo", "dst.halo[0].lo", LIERNE_ERR_MISMATCH, NULL, NULL},
    {DST, "other hi", "dst.halo[0].hi", LIERNE_ERR_MISMATCH, NULL, NULL},
    {DST, "other boundary", "dst.halo[0].boundary", LIERNE_ERR_MISMATCH, NULL, NULL},
    {DST, "other axis", "dst.halo[0].axis", LIERNE_ERR_MISMATCH, NULL, NULL},
    {DST, "strided", "dst.halo[0].stride", LIERNE_ERR_MISMATCH, NULL, NULL},
    {DST, "star", "dst.stencil", LIERNE_ERR_MISMATCH, NULL, NULL},
    {DST, "margins", "dst.halo_storage", LIERNE_ERR_MISMATCH, NULL, NULL},
    {DST, "plain", "dst.nhalos", LIERNE_ERR_MISMATCH, NULL, NULL},
    {DST, "other documents", "dst.halo[0].segments[1]", LIERNE_ERR_MISMATCH, NULL, "documents"},
    {DST, "sums", "PARTIAL", LIERNE_ERR_UNSUPPORTED, NULL, NULL},
    {FIELD, "no dst", "dst is NULL", LIERNE_ERR_INVALID, NULL, NULL},
    {FIELD, "gradients", "adjoint_src has a halo", LIERNE_ERR_UNSUPPORTED, NULL, NULL},
    {FIELD, "balanced", "routing may not be BALANCED", LIERNE_ERR_UNSUPPORTED, NULL, NULL},
    {FIELD, "shared", "shared_output must be 0", LIERNE_ERR_UNSUPPORTED, NULL, NULL},
    {FIELD, "accumulates", "accumulate is 1", LIERNE_ERR_INVALID, NULL, NULL},
    {SET, "other hi", "hash of dst[1]", LIERNE_ERR_MISMATCH, NULL, NULL},
    {SET, "other documents", "hash of dst[1]", LIERNE_ERR_MISMATCH, NULL, "documents"},
    {SET, "opaque", "dst[1]", LIERNE_ERR_INVALID, NULL, NULL},
    {SET, "no dst", "dst[1] is NULL", LIERNE_ERR_INVALID, NULL, NULL},
    {SET, "sums", "PARTIAL", LIERNE_ERR_UNSUPPORTED, NULL, NULL},
    {UPDATE, "axis", "axis is 1", LIERNE_ERR_INVALID, NULL, "documents"},
    {UPDATE, "falling", "halo[0].segments[2] is 4", LIERNE_ERR_INVALID, NULL, "documents"},
    {UPDATE, "short", "halo[0].segments[2]", LIERNE_ERR_INVALID, NULL, "documents"},
    {UPDATE, "none", "segments is NULL", LIERNE_ERR_INVALID, NULL, "documents"},
    {UPDATE, "other", "segments[1]", LIERNE_ERR_MISMATCH, NULL, "documents"},
    {CALL, "in place", "in and out overlap", LIERNE_ERR_INVALID, NULL, NULL},
    {CALL, "adjoint", "margins of an opaque dtype", LIERNE_ERR_INVALID, "opaque plain", "opaque"},
};

static lierne_status plan(lierne_plan **made, const lierne_layout *src, const lierne_layout *dst,
                          const char *fault) {
    lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    spec.dst = is(fault, "no dst") ? NULL : dst;
    spec.adjoint_src = is(fault, "gradients") ? dst : NULL;
    spec.adjoint_dst = is(fault, "gradients") ? src : NULL;
    spec.routing = is(fault, "balanced") ? LIERNE_ROUTING_BALANCED : LIERNE_ROUTING_AUTO;
    spec.shared_output = is(fault, "shared") ? LIERNE_SHARING_FORWARD : spec.shared_output;
    spec.accumulate = is(fault, "accumulates");
    return lierne_plan_create_redistribute(made, context, &spec);
}

/* The second tensor of a set is the one with the fault. */
static lierne_status plan_set(lierne_plan **made, const lierne_layout *src,
                              const lierne_layout *dst, const char *to, const char *fault) {
    lierne_layout *second = is(fault, "") ? layout_of(to) : layout_of(fault);
    const lierne_layout *from[] = {src, src}, *both[] = {dst, is(fault, "no dst") ? NULL : second};
    const lierne_set_spec spec = {.size = sizeof spec, .ntensors = 2, .src = from, .dst = both};
    lierne_status status = lierne_plan_create_set(made, context, &spec);
    lierne_layout_destroy(second);
    return status;
}

static lierne_status update(lierne_plan *of, const char *fault) {
    const int64_t rows = (int64_t)ROWS * test_world;
    const int64_t good[] = {0, 2, rows}, falls[] = {0, 5, 4, rows}, ends[] = {0, 2, rows - 1},
                  other[] = {0, 5, rows};
    bool falling = is(fault, "falling");
    return lierne_plan_update_documents(of, is(fault, "axis"), falling ? 3 : 2,
                                        falling              ? falls
                                        : is(fault, "short") ? ends
                                        : is(fault, "other") ? other
                                        : is(fault, "none")  ? NULL
                                                             : good);
}

/* An adjoint is called by all ranks: it is of the plan and not of one rank. */
static lierne_status call(lierne_plan *of, const char *fault, bool adjoint) {
    static int64_t in[ROOM], out[ROOM];
    return adjoint ? lierne_plan_adjoint(of, in, out, NULL)
                   : lierne_plan_forward(of, is(fault, "in place") ? in : out, in, NULL);
}

static void check(const bad_case *f, int culprit) {
    size_t before = lierne_mem_live();
    bool bad = test_rank == culprit, standing = f->kind >= UPDATE;
    const char *name = bad ? f->name : "", *from = f->src ? f->src : "plain",
               *to = f->dst ? f->dst : "halo";
    lierne_layout *src = layout_of(bad && f->kind == SRC ? name : from),
                  *dst = layout_of(bad && f->kind == DST ? name : to);
    lierne_plan *made = NULL;
    lierne_status status = f->kind == SET ? plan_set(&made, src, dst, to, name)
                                          : plan(&made, src, dst, f->kind == FIELD ? name : "");
    CHECK((made != NULL) == standing, "%s: a plan beside an error, or none", f->name);
    if (standing && made) {
        CHECK_OK(status);
        status = f->kind == UPDATE ? update(made, name) : call(made, name, is(f->name, "adjoint"));
    }
    test_same_error(status, f->wanted, f->name);
    CHECK(strstr(lierne_last_error(), f->words) != NULL, "%s: no '%s' in: %s", f->name, f->words,
          lierne_last_error());
    if (made && f->kind == UPDATE) {
        CHECK_OK(update(made, ""));
        CHECK_OK(call(made, "", false));
    }
    CHECK_OK(lierne_plan_destroy(made));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    CHECK(lierne_mem_live() == before, "%s: leaked", f->name);
}

static void run_all(void) {
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        for (int third = 0; third < 3; third++) {
            if (faults[i].wanted != LIERNE_ERR_MISMATCH || test_world > 1) {
                check(&faults[i], third * (test_world - 1) / 2);
            }
        }
    }
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    static const char *const names[] = {"x"};
    const int64_t size = test_world;
    const lierne_context_spec calls = {.size = sizeof calls, .timeout = 20, .check = 1};
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = names, .sizes = &size, .world_size = test_world};
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, &calls));
    CHECK_OK(lierne_grid_create(&grid, &spec));
    run_all();
    lierne_grid_destroy(grid);
    CHECK_OK(lierne_context_destroy(context));
    return test_finish();
}
