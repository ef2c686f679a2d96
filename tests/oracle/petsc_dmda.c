/* Dense halos by PETSc's DMDA: random fields of one to three axes, their cuts, widths, boundaries
 * and stencils; forward against DMGlobalToLocal, adjoint against DMLocalToGlobal with ADD_VALUES,
 * in place too. On integers in doubles, so that all must be equal. Built and run by
 * tests/cli/test_petsc.sh.
 *
 * What DMDA does not have is left out: a width that differs by axis or side, parts thinner than the
 * width, mirrors in a box of two axes or in three. It leaves the corners of a star as they are,
 * which are zero in lierne. */
#include "lierne/redistribute.h"
#include "mpi/common.h"
#include "numbers.h"

#include <petscdmda.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 60, UNTOUCHED = -9999, SPACE = 3, PARTS = 8 };

/* Calls of PETSc fail a check each. */
#define PETSC(call) CHECK((call) == 0, "PETSc: %s", #call)

/* Axes of space, the slowest first, then one of `dof` elements that nothing cuts. */
typedef struct field {
    int axes;
    int ranks[SPACE];
    int64_t size[SPACE], counts[SPACE][PARTS];
    int64_t width, dof;
    lierne_boundary boundaries[SPACE];
    lierne_stencil stencil;
} field;

static int below(uint64_t *seed, int n) {
    *seed = mix(*seed);
    return (int)(*seed % (uint64_t)n);
}

/* Divides the ranks among the axes. */
static void draw_ranks(field *f, uint64_t *seed) {
    int left = test_world;
    for (int a = 0; a < f->axes; a++) {
        int most = left;
        do {
            f->ranks[a] = a + 1 < f->axes ? 1 + below(seed, most) : left;
        } while (left % f->ranks[a] != 0);
        left /= f->ranks[a];
    }
}

static field draw(uint64_t seed) {
    static const lierne_boundary all[] = {LIERNE_BOUNDARY_NONE, LIERNE_BOUNDARY_KEEP,
                                          LIERNE_BOUNDARY_PERIODIC, LIERNE_BOUNDARY_MIRROR};
    field f = {.axes = 1 + below(&seed, SPACE), .width = below(&seed, 4)};
    f.dof = 1 + below(&seed, 3);
    f.stencil = below(&seed, 2) ? LIERNE_STENCIL_STAR : LIERNE_STENCIL_BOX;
    draw_ranks(&f, &seed);
    bool mirrors = f.axes == 1 || (f.axes == 2 && f.stencil == LIERNE_STENCIL_STAR);
    for (int a = 0; a < f.axes; a++) {
        f.boundaries[a] = all[below(&seed, mirrors ? 4 : 3)];
        for (int c = 0; c < f.ranks[a]; c++) {
            f.counts[a][c] = f.width + 1 + below(&seed, 3);
            f.size[a] += f.counts[a][c];
        }
    }
    return f;
}

static lierne_layout *layout_of(const field *f, bool halo) {
    const char *names[] = {"x", "y", "z"};
    int64_t sizes[SPACE], shape[SPACE + 1];
    lierne_placement placements[SPACE];
    lierne_dense_halo halos[SPACE];
    lierne_grid *grid;
    lierne_layout *layout;
    for (int a = 0; a < f->axes; a++) {
        int dim = f->axes - 1 - a;
        sizes[dim] = f->ranks[a];
        shape[a] = f->size[a];
        placements[dim] =
            (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD, .axis = a, .counts = f->counts[a]};
        halos[a] = (lierne_dense_halo){.axis = a,
                                       .boundary = f->boundaries[a],
                                       .lo = f->width,
                                       .hi = f->width};
    }
    shape[f->axes] = f->dof;
    const lierne_grid_spec of_grid = {.size = sizeof of_grid,
                                      .ndims = f->axes,
                                      .names = names,
                                      .sizes = sizes,
                                      .world_size = test_world};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .naxes = f->axes + 1,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_F64,
                               .placements = placements,
                               .nhalos = halo ? f->axes : 0,
                               .halos = halos,
                               .stencil = halo ? f->stencil : LIERNE_STENCIL_BOX};
    CHECK_OK(lierne_grid_create(&grid, &of_grid));
    spec.grid = grid;
    CHECK_OK(lierne_layout_create(&layout, &spec));
    lierne_grid_destroy(grid);
    return layout;
}

static DM dmda_of(const field *f) {
    DMBoundaryType b[SPACE];
    PetscInt parts[SPACE][PARTS], n[SPACE], m[SPACE], dof = (PetscInt)f->dof;
    PetscInt width = (PetscInt)f->width;
    DMDAStencilType star = f->stencil == LIERNE_STENCIL_STAR ? DMDA_STENCIL_STAR : DMDA_STENCIL_BOX;
    DM dm;
    for (int a = 0; a < f->axes; a++) {
        int x = f->axes - 1 - a; /* PETSc's x varies fastest */
        b[x] = f->boundaries[a] == LIERNE_BOUNDARY_NONE       ? DM_BOUNDARY_NONE
               : f->boundaries[a] == LIERNE_BOUNDARY_KEEP     ? DM_BOUNDARY_GHOSTED
               : f->boundaries[a] == LIERNE_BOUNDARY_PERIODIC ? DM_BOUNDARY_PERIODIC
                                                              : DM_BOUNDARY_MIRROR;
        n[x] = (PetscInt)f->size[a];
        m[x] = f->ranks[a];
        for (int c = 0; c < m[x]; c++) {
            parts[x][c] = (PetscInt)f->counts[a][c];
        }
    }
    if (f->axes == 1) {
        PETSC(DMDACreate1d(PETSC_COMM_WORLD, b[0], n[0], dof, width, parts[0], &dm));
    } else if (f->axes == 2) {
        PETSC(DMDACreate2d(PETSC_COMM_WORLD, b[0], b[1], star, n[0], n[1], m[0], m[1], dof, width,
                           parts[0], parts[1], &dm));
    } else {
        PETSC(DMDACreate3d(PETSC_COMM_WORLD, b[0], b[1], b[2], star, n[0], n[1], n[2], m[0], m[1],
                           m[2], dof, width, parts[0], parts[1], parts[2], &dm));
    }
    PETSC(DMSetUp(dm));
    return dm;
}

/* Positions of the padded buffer in the margins of how many axes. */
static int *margins_of(const field *f, const lierne_layout *halo, int64_t count) {
    int *margins = calloc((size_t)count + 1, sizeof *margins);
    lierne_halo_window windows[SPACE];
    for (int a = 0; a < f->axes; a++) {
        size_t n;
        CHECK_OK(lierne_layout_get_windows(&windows[a], 1, &n, halo, test_rank, a));
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t left = i / f->dof;
        for (int a = f->axes - 1; a >= 0; a--) {
            const lierne_halo_window *w = &windows[a];
            int64_t at = w->start + left % w->size - w->core_start;
            margins[i] += at < 0 || at >= w->core_size;
            left /= w->size;
        }
    }
    return margins;
}

typedef struct buffers {
    int64_t part, padded;
    double *x, *y;     /* values of the part, gradients of the padded buffer */
    double *out[2];    /* lierne's results, by direction */
    Vec global, local; /* PETSc's */
    const int *margins;
} buffers;

static void fill(buffers *b, uint64_t seed) {
    for (int64_t i = 0; i < b->part; i++) {
        b->x[i] = 1 + (double)(mix(seed + (uint64_t)(i * test_world + test_rank)) % 1000);
    }
    for (int64_t i = 0; i < b->padded; i++) {
        b->y[i] = (double)(mix(seed + 7 + (uint64_t)(i * test_world + test_rank)) % 127) - 63;
        b->out[0][i] = UNTOUCHED;
    }
}

static void check_forward(const field *f, const buffers *b, const char *what) {
    const double *wanted;
    bool right = true;
    PETSC(VecGetArrayRead(b->local, &wanted));
    for (int64_t i = 0; i < b->padded; i++) {
        bool corner = f->stencil == LIERNE_STENCIL_STAR && b->margins[i] > 1;
        right = right && (b->out[0][i] == wanted[i] ||
                          (corner && (b->out[0][i] == 0 || b->out[0][i] == UNTOUCHED)));
    }
    PETSC(VecRestoreArrayRead(b->local, &wanted));
    CHECK(right, "%s differs from PETSc's", what);
}

/* PETSc's forward; then its adjoint into the global vector. */
static void run_petsc(DM dm, const buffers *b, bool adjoint) {
    double *at;
    PETSC(VecGetArray(adjoint ? b->local : b->global, &at));
    memcpy(at, adjoint ? b->y : b->x, (size_t)(adjoint ? b->padded : b->part) * sizeof *at);
    PETSC(VecRestoreArray(adjoint ? b->local : b->global, &at));
    if (adjoint) {
        PETSC(VecSet(b->global, 0));
        PETSC(DMLocalToGlobal(dm, b->local, ADD_VALUES, b->global));
    } else {
        PETSC(VecSet(b->local, UNTOUCHED));
        PETSC(DMGlobalToLocal(dm, b->global, INSERT_VALUES, b->local));
    }
}

static void check_adjoint(const buffers *b, const double *got, const char *what) {
    const double *wanted;
    PETSC(VecGetArrayRead(b->global, &wanted));
    CHECK(memcmp(got, wanted, (size_t)b->part * sizeof *got) == 0, "%s differs from PETSc's", what);
    PETSC(VecRestoreArrayRead(b->global, &wanted));
}

static lierne_plan *plan_of(lierne_context *context, const lierne_layout *src,
                            const lierne_layout *dst) {
    lierne_plan *plan;
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    CHECK_OK(lierne_plan_create_redistribute(&plan, context, &spec));
    return plan;
}

/* The cores of a buffer with margins, one after the other. */
static void pick_cores(const buffers *b, double *to, const double *from) {
    for (int64_t i = 0; i < b->padded; i++) {
        if (b->margins[i] == 0) {
            *to++ = from[i];
        }
    }
}

static void run_in_place(const field *f, lierne_plan *plan, buffers *b) {
    int64_t core = 0;
    for (int64_t i = 0; i < b->padded; i++) {
        b->out[0][i] = b->margins[i] == 0 ? b->x[core++] : UNTOUCHED;
    }
    CHECK_OK(lierne_plan_forward(plan, b->out[0], b->out[0], NULL));
    check_forward(f, b, "in place");
    memcpy(b->out[0], b->y, (size_t)b->padded * sizeof *b->y);
    CHECK_OK(lierne_plan_adjoint(plan, b->out[0], b->out[0], NULL));
    pick_cores(b, b->out[1], b->out[0]);
}

static void run_case(lierne_context *context, uint64_t seed) {
    field f = draw(seed);
    lierne_layout *plain = layout_of(&f, false), *halo = layout_of(&f, true);
    lierne_plan *plan = plan_of(context, plain, halo), *place = plan_of(context, halo, halo);
    DM dm = dmda_of(&f);
    buffers b = {0};
    CHECK_OK(lierne_plan_get_elements(&b.part, &b.padded, plan, LIERNE_DIRECTION_FORWARD));
    b.x = calloc((size_t)b.part + 1, sizeof *b.x);
    b.y = calloc((size_t)b.padded + 1, sizeof *b.y);
    b.out[0] = calloc((size_t)b.padded + 1, sizeof *b.y);
    b.out[1] = calloc((size_t)b.part + 1, sizeof *b.y);
    int *margins = margins_of(&f, halo, b.padded);
    b.margins = margins;
    PETSC(DMCreateGlobalVector(dm, &b.global));
    PETSC(DMCreateLocalVector(dm, &b.local));
    PetscInt n;
    PETSC(VecGetLocalSize(b.local, &n));
    CHECK(n == b.padded, "a padded buffer has %lld elements, PETSc's %lld", (long long)b.padded,
          (long long)n);
    fill(&b, seed);
    run_petsc(dm, &b, false);
    CHECK_OK(lierne_plan_forward(plan, b.out[0], b.x, NULL));
    check_forward(&f, &b, "forward");
    run_in_place(&f, place, &b);
    run_petsc(dm, &b, true);
    check_adjoint(&b, b.out[1], "adjoint in place");
    CHECK_OK(lierne_plan_adjoint(plan, b.out[1], b.y, NULL));
    check_adjoint(&b, b.out[1], "adjoint");
    PETSC(VecDestroy(&b.global));
    PETSC(VecDestroy(&b.local));
    PETSC(DMDestroy(&dm));
    free(b.x), free(b.y), free(b.out[0]), free(b.out[1]), free(margins);
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK_OK(lierne_plan_destroy(place));
    lierne_layout_destroy(plain);
    lierne_layout_destroy(halo);
}

int main(int argc, char **argv) {
    lierne_context *context;
    test_start(&argc, &argv);
    PETSC(PetscInitialize(&argc, &argv, NULL, NULL));
    CHECK_OK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    for (uint64_t i = 0; i < CASES; i++) {
        run_case(context, mix(i * 10 + (uint64_t)test_world));
    }
    CHECK_OK(lierne_context_destroy(context));
    PETSC(PetscFinalize());
    return test_finish();
}
