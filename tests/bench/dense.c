/* The benchmark of dense halos: lierne in place, padded and with margins alone, over shared memory
 * from memory of lierne_context_alloc, beside MPI_Neighbor_alltoallw in place, PETSc's DMDA, and
 * copies and sums of the same boxes in each rank's own memory. PETSc works in doubles, so there are
 * workloads in f64 of as many bytes as those in f32. Of the periodic cube in f32 also a stencil,
 * all of it after the exchange or its interior in between.
 *
 *   mpirun -n 2|4 dense [quick|--csv] [text...] */
#include "bench/dense.h"
#include "bench/sparse.h"

#include <stdio.h>

enum { ROUNDS = 41 };

static const method_kind *const kinds[] = {&dense_place,    &dense_margin_storage, &dense_padded,
                                           &dense_over_mpi, &dense_neighbor,       &dense_petsc,
                                           &dense_bound,    &dense_copy_bound,     &dense_after,
                                           &dense_between};

static const dense workloads[] = {
    {.name = "field f32 box",
     .dtype = LIERNE_DTYPE_F32,
     .naxes = 3,
     .axes = {{512, 2, 1, 1, false, false}, {512, 2, 1, 1, false, false}, {.size = 64}}},
    {.name = "field f32 star",
     .dtype = LIERNE_DTYPE_F32,
     .naxes = 3,
     .axes = {{512, 2, 1, 1, false, false}, {512, 2, 1, 1, false, false}, {.size = 64}},
     .stencil = LIERNE_STENCIL_STAR},
    {.name = "field f64 box",
     .dtype = LIERNE_DTYPE_F64,
     .naxes = 3,
     .axes = {{512, 2, 1, 1, false, false}, {512, 2, 1, 1, false, false}, {.size = 32}}},
    {.name = "cube f32 periodic",
     .dtype = LIERNE_DTYPE_F32,
     .naxes = 3,
     .axes = {{64, 2, 2, 2, true, false}, {64, 2, 2, 2, true, false}, {64, 1, 2, 2, true, false}}},
    {.name = "cube f64 periodic",
     .dtype = LIERNE_DTYPE_F64,
     .naxes = 3,
     .axes = {{64, 2, 2, 2, true, false}, {64, 2, 2, 2, true, false}, {64, 1, 2, 2, true, false}}},
    {.name = "sequence bf16 zigzag",
     .dtype = LIERNE_DTYPE_BF16,
     .naxes = 2,
     .axes = {{131072, 4, 1023, 0, false, true}, {.size = 128}}},
    {.name = "image bf16 height",
     .dtype = LIERNE_DTYPE_BF16,
     .naxes = 4,
     .axes = {{.size = 1}, {.size = 128}, {512, 4, 1, 1, false, false}, {.size = 512}}}};

static const char *const headings[] = {"forward", "adjoint", "both"};
static tables all = {.unit = "microseconds",
                     .per_second = 1e6,
                     .headings = headings,
                     .ratios = "how many times faster lierne in place is, both directions",
                     .reference = &dense_place,
                     .over = "/place",
                     .columns = {{"margins", {&dense_margin_storage}},
                                 {"padded", {&dense_padded}},
                                 {"alltoallw", {&dense_neighbor}},
                                 {"PETSc", {&dense_petsc}},
                                 {"bound", {&dense_bound}},
                                 {"+ part", {&dense_copy_bound}}}};

/* Cuts the first axes in two until every rank has a part; one axis by all ranks where only one is
 * cut. Small sizes compare everything and time nothing. */
static void fit(dense *w, bool quick) {
    int left = test_world;
    for (int k = 0; k < w->naxes; k++) {
        dense_axis *a = &w->axes[k];
        a->ranks = a->ranks > 2 ? left : a->ranks == 2 && left > 1 ? 2 : 1;
        left /= a->ranks;
        if (quick) {
            a->lo = a->lo > 64 ? 63 : a->lo;
            a->size = a->size > 512 ? 1024 : a->size >= 64 ? a->size / 16 + 4 * a->lo : a->size;
        }
    }
}

static void run_one(const dense *which, bool dirty) {
    outcome results[METHODS];
    dense w = *which;
    bench b = {.workload = &w,
               .kinds = kinds,
               .nkinds = sizeof kinds / sizeof *kinds,
               .reset = dense_reset,
               .right = dense_right,
               .text = dense_text};
    char title[96];
    snprintf(title, sizeof title, "%d ranks, %s, %s", test_world, w.name, dirty ? "dirty" : "hot");
    if (!tables_want(&all, title)) {
        return;
    }
    fit(&w, all.quick);
    dense_open(&w);
    int n = measure(&b, dirty, all.quick ? 0 : ROUNDS, results);
    if (!all.quick) {
        tables_print(&all, title, results, n, ROUNDS);
        tables_keep(&all, title, results, n, BOTH);
        if (test_rank == 0 && !all.csv) {
            printf("margins of all ranks: %lld bytes\n", (long long)dense_margins(&w));
        }
    }
    dense_close(&w);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    petsc_start();
    tables_ask(&all, argc, argv);
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads && test_world <= 4; i++) {
        run_one(&workloads[i], false);
        if (!all.quick) {
            run_one(&workloads[i], true);
        }
    }
    tables_print_ratios(&all);
    petsc_stop();
    return test_finish();
}
