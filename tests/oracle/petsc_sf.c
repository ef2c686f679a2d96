/* The same exchanges by PETSc's star forests: random references and random swaps, forward against
 * PetscSFBcast, adjoint against PetscSFReduce with MPI_SUM, reductions against MPI_MAX and MPI_MIN,
 * fetch-and-add against PetscSFFetchAndOp.
 * On integers in doubles, so that all must be equal. Built and run by tests/cli/test_petsc.sh. */
#include "mpi/rows.h"
#include "unit/halo_case.h"

#include <petscsf.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 40, FETCHES = 200 }; /* of each number of ranks */

/* Calls of PETSc fail a check each. */
#define PETSC(call) CHECK((call) == 0, "PETSc: %s", #call)

static PetscSF star_new(const forest *f) {
    PetscSF star;
    PetscInt nroots = (PetscInt)f->nowned[test_rank], nleaves = (PetscInt)f->nghosts[test_rank];
    PetscSFNode *remote = calloc((size_t)nleaves + 1, sizeof *remote);
    for (PetscInt k = 0; k < nleaves; k++) {
        remote[k].rank = f->ghosts[test_rank][k].rank;
        remote[k].index = (PetscInt)f->ghosts[test_rank][k].row;
    }
    PETSC(PetscSFCreate(PETSC_COMM_WORLD, &star));
    PETSC(
        PetscSFSetGraph(star, nroots, nleaves, NULL, PETSC_COPY_VALUES, remote, PETSC_COPY_VALUES));
    free(remote);
    return star;
}

static void star_forward(PetscSF star, MPI_Datatype row, const buffer *roots,
                         const buffer *leaves) {
    PETSC(PetscSFBcastBegin(star, row, roots->at, leaves->at, MPI_REPLACE));
    PETSC(PetscSFBcastEnd(star, row, roots->at, leaves->at, MPI_REPLACE));
}

static void star_reduce(PetscSF star, MPI_Datatype row, const buffer *leaves, const buffer *roots,
                        MPI_Op op) {
    PETSC(PetscSFReduceBegin(star, row, leaves->at, roots->at, op));
    PETSC(PetscSFReduceEnd(star, row, leaves->at, roots->at, op));
}

static void check_equal(const buffer *a, const buffer *b, const char *what) {
    CHECK(memcmp(a->at, b->at, a->bytes) == 0, "%s differs from PETSc's", what);
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* What all ranks fetched of each row, ascending; the row is part of the number. */
static int64_t *fetched_of_all(const forest *f, const double *fetched, int *n) {
    int counts[ROWS_WORLD], first[ROWS_WORLD], own = (int)f->nghosts[test_rank];
    int64_t *mine = malloc(((size_t)own + 1) * sizeof *mine), *all;
    *n = 0;
    for (int r = 0; r < test_world; r++) {
        counts[r] = (int)f->nghosts[r];
        first[r] = *n;
        *n += counts[r];
    }
    all = malloc(((size_t)*n + 1) * sizeof *all);
    for (int k = 0; k < own; k++) {
        const root *g = &f->ghosts[test_rank][k];
        mine[k] = ((int64_t)g->rank * 1000 + g->row) * 1000000 + (int64_t)fetched[k];
    }
    PETSC(MPI_Allgatherv(mine, own, MPI_INT64_T, all, counts, first, MPI_INT64_T, MPI_COMM_WORLD));
    qsort(all, (size_t)*n, sizeof *all, by_value);
    free(mine);
    return all;
}

/* Places in lists: every ghost adds one, so that the values fetched of a row do not depend on the
 * order, which PETSc does not state; only which ghost gets which does. And owned rows, where ghosts
 * add different numbers. */
static void run_fetch(lierne_context *context, uint64_t seed, bool ones) {
    forest f;
    lierne_plan *like = NULL, *plan = NULL;
    shape s = {.dtype = LIERNE_DTYPE_F64, .width = 1, .stride = 1, .exact = true, .seed = seed};
    const lierne_fetch_and_add_spec spec = {.size = sizeof spec, .dtype = s.dtype, .width = 1};
    int n;
    forest_random(&f, seed, NULL);
    int64_t nowned = f.nowned[test_rank], nghosts = f.nghosts[test_rank];
    double *ours = calloc((size_t)(nowned + nghosts) + 1, sizeof *ours);
    double *theirs = calloc((size_t)(nowned + nghosts) + 1, sizeof *theirs);
    double *got = calloc((size_t)nghosts + 1, sizeof *got);
    for (int64_t i = 0; i < nowned + nghosts; i++) {
        bool one = ones && i >= nowned;
        ours[i] = theirs[i] = one ? 1 : 100 + shape_cell(&s, VALUES, test_rank, i, i >= nowned);
    }
    PetscSF star = star_new(&f);
    CHECK(forest_plan(&like, context, &f, &s, LIERNE_GRAPH_ALGORITHM_AUTO, false) == LIERNE_OK &&
              lierne_plan_create_fetch_and_add(&plan, like, &spec) == LIERNE_OK &&
              lierne_plan_forward(plan, ours, ours, NULL) == LIERNE_OK,
          "%s", lierne_last_error());
    PETSC(PetscSFFetchAndOpBegin(star, MPI_DOUBLE, theirs, theirs + nowned, got, MPI_SUM));
    PETSC(PetscSFFetchAndOpEnd(star, MPI_DOUBLE, theirs, theirs + nowned, got, MPI_SUM));
    CHECK(memcmp(ours, theirs, (size_t)nowned * sizeof *ours) == 0,
          "seed %d: rows after fetch-and-add differ from PETSc's", (int)seed);
    int64_t *all[2] = {fetched_of_all(&f, ours + nowned, &n), fetched_of_all(&f, got, &n)};
    CHECK(!ones || memcmp(all[0], all[1], (size_t)n * sizeof *ours) == 0,
          "seed %d: the values fetched differ from PETSc's", (int)seed);
    free(ours), free(theirs), free(got), free(all[0]), free(all[1]);
    PETSC(PetscSFDestroy(&star));
    lierne_plan_destroy(plan), lierne_plan_destroy(like);
    forest_free(&f);
}

/* Pairs: ghosts in an array of their own. Rows of one number are left to the swaps: PETSc 3.18
 * cannot reduce a contiguous type of one element. */
static void run_pairs(lierne_context *context, uint64_t seed) {
    forest f;
    lierne_plan *plan = NULL;
    MPI_Datatype row;
    shape s = {.dtype = LIERNE_DTYPE_F64,
               .width = 2 + (int64_t)seed % 3,
               .exact = true,
               .seed = seed};
    s.stride = s.width;
    forest_random(&f, seed, NULL);
    int64_t nowned = f.nowned[test_rank], nghosts = f.nghosts[test_rank];
    PetscSF star = star_new(&f);
    MPI_Type_contiguous((int)s.width, MPI_DOUBLE, &row);
    MPI_Type_commit(&row);
    buffer x = buffer_new(&s, nowned), y = buffer_new(&s, nghosts);
    buffer ours[2] = {buffer_new(&s, nghosts), buffer_new(&s, nowned)};
    buffer theirs[2] = {buffer_new(&s, nghosts), buffer_new(&s, nowned)};
    buffer_fill(&s, &x, 0, nowned, VALUES, test_rank);
    buffer_fill(&s, &y, 0, nghosts, GRADIENTS, test_rank);
    CHECK(forest_plan(&plan, context, &f, &s, LIERNE_GRAPH_ALGORITHM_AUTO, false) == LIERNE_OK,
          "%s", lierne_last_error());
    CHECK(lierne_plan_forward(plan, ours[0].at, x.at, NULL) == LIERNE_OK, "%s",
          lierne_last_error());
    star_forward(star, row, &x, &theirs[0]);
    check_equal(&ours[0], &theirs[0], "forward");
    CHECK(lierne_plan_adjoint(plan, ours[1].at, y.at, NULL) == LIERNE_OK, "%s",
          lierne_last_error());
    memset(theirs[1].at, 0, theirs[1].bytes);
    star_reduce(star, row, &y, &theirs[1], MPI_SUM);
    check_equal(&ours[1], &theirs[1], "adjoint");
    for (int op = LIERNE_REDUCTION_MAX; op <= LIERNE_REDUCTION_MIN; op++) {
        buffer_fill(&s, &ours[1], 0, nowned, BEFORE, test_rank);
        buffer_fill(&s, &theirs[1], 0, nowned, BEFORE, test_rank);
        CHECK(lierne_plan_reduce(plan, (lierne_reduction)op, ours[1].at, y.at, NULL) == LIERNE_OK,
              "%s", lierne_last_error());
        star_reduce(star, row, &y, &theirs[1], op == LIERNE_REDUCTION_MAX ? MPI_MAX : MPI_MIN);
        check_equal(&ours[1], &theirs[1], op == LIERNE_REDUCTION_MAX ? "max" : "min");
    }
    buffer_free(&x), buffer_free(&y);
    for (int i = 0; i < 2; i++) {
        buffer_free(&ours[i]), buffer_free(&theirs[i]);
    }
    MPI_Type_free(&row);
    PETSC(PetscSFDestroy(&star));
    lierne_plan_destroy(plan);
    forest_free(&f);
}

/* Rows of the array behind the owned ones, as a buffer of their own. */
static buffer ghosts_of(const buffer *whole, int64_t nlocal, size_t row) {
    return (buffer){.bytes = whole->bytes - (size_t)nlocal * row,
                    .at = whole->at + (size_t)nlocal * row};
}

/* The roots of ghosts: labels that the model sends through the swaps. */
static void find_roots(const halo_case *c, forest *out) {
    static halo_values label;
    *out = (forest){.world = c->world};
    for (int r = 0; r < c->world; r++) {
        for (int64_t i = 0; i < c->spec[r].nlocal; i++) {
            label[r][i][0] = r, label[r][i][1] = (double)i;
        }
    }
    halo_model_forward(c, label);
    for (int r = 0; r < c->world; r++) {
        out->nowned[r] = c->spec[r].nlocal;
        out->nghosts[r] = c->spec[r].nghost;
        out->ghosts[r] = malloc(((size_t)out->nghosts[r] + 1) * sizeof(root));
        for (int64_t k = 0; k < out->nghosts[r]; k++) {
            const double *at = label[r][out->nowned[r] + k];
            out->ghosts[r][k] = (root){(int)at[0], (int64_t)at[1]};
        }
    }
}

/* Swaps, hop by hop, against a star in which every ghost comes from its root. */
static void run_swaps(lierne_context *context, uint64_t seed) {
    static halo_case all;
    forest f;
    lierne_plan *plan = NULL;
    shape s = {.dtype = LIERNE_DTYPE_F64, .width = 1, .stride = 1, .exact = true, .seed = seed};
    halo_case_random(&all, test_world, seed);
    find_roots(&all, &f);
    lierne_halo_spec spec = all.spec[test_rank];
    spec.dtype = s.dtype, spec.width = s.width;
    int64_t nlocal = spec.nlocal, nrows = spec.nlocal + spec.nghost;
    PetscSF star = star_new(&f);
    buffer x = buffer_new(&s, nrows), y = buffer_new(&s, nrows), ours = buffer_new(&s, nrows);
    buffer theirs = buffer_new(&s, nrows);
    buffer_fill(&s, &x, 0, nlocal, VALUES, test_rank);
    buffer_fill(&s, &y, 0, nrows, GRADIENTS, test_rank);
    CHECK(lierne_plan_create_halo(&plan, context, &spec) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_plan_forward(plan, ours.at, x.at, NULL) == LIERNE_OK, "%s", lierne_last_error());
    memcpy(theirs.at, x.at, x.bytes);
    buffer leaves = ghosts_of(&theirs, nlocal, sizeof(double));
    star_forward(star, MPI_DOUBLE, &x, &leaves);
    check_equal(&ours, &theirs, "swaps forward");
    CHECK(lierne_plan_adjoint(plan, ours.at, y.at, NULL) == LIERNE_OK, "%s", lierne_last_error());
    memcpy(theirs.at, y.at, y.bytes);
    leaves = ghosts_of(&y, nlocal, sizeof(double));
    star_reduce(star, MPI_DOUBLE, &leaves, &theirs, MPI_SUM);
    leaves = ghosts_of(&theirs, nlocal, sizeof(double));
    memset(leaves.at, 0, leaves.bytes);
    check_equal(&ours, &theirs, "swaps adjoint");
    buffer_free(&x), buffer_free(&y), buffer_free(&ours), buffer_free(&theirs);
    PETSC(PetscSFDestroy(&star));
    lierne_plan_destroy(plan);
    forest_free(&f);
}

int main(int argc, char **argv) {
    lierne_context *context;
    test_start(&argc, &argv);
    PETSC(PetscInitialize(&argc, &argv, NULL, NULL));
    CHECK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL) == LIERNE_OK, "%s",
          lierne_last_error());
    for (uint64_t i = 0; i < CASES; i++) {
        run_pairs(context, i * 10 + (uint64_t)test_world);
        run_swaps(context, i * 10 + (uint64_t)test_world);
    }
    for (uint64_t i = 0; i < FETCHES; i++) {
        run_fetch(context, i * 20 + (uint64_t)test_world, true);
        run_fetch(context, i * 20 + 10 + (uint64_t)test_world, false);
    }
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    PETSC(PetscFinalize());
    return test_finish();
}
