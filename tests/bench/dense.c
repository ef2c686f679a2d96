/* The benchmark of dense halos: lierne in place, padded and with margins alone, over shared memory
 * from memory of lierne_context_alloc, beside MPI_Neighbor_alltoallw in place, PETSc's DMDA, and
 * copies and sums of the same boxes by hand, from the peers' memory or in each rank's own. PETSc
 * works in doubles, so there are workloads in f64 of as many bytes as those in f32. Of the periodic
 * cube in f32 also a stencil, all of it after the exchange or its interior in between.
 *
 *   mpirun -n 2|4 dense [quick|--csv] [text...] */
#include "bench/dense.h"
#include "bench/sparse.h"

#include <stdio.h>

enum { ROUNDS = 41 };

static const method_kind *const kinds[] = {&dense_place,          &dense_margin_storage,
                                           &dense_padded,         &dense_over_mpi,
                                           &dense_neighbor,       &dense_petsc,
                                           &dense_bound,          &dense_copy_bound,
                                           &dense_by_hand,        &dense_by_hand_alone,
                                           &dense_by_hand_padded, &dense_after,
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
                                 {"by hand", {&dense_by_hand}},
                                 {"bound", {&dense_bound}},
                                 {"+ part", {&dense_copy_bound}}}};

/* What is aimed at, of one line: a time of lierne's over another one of the same run. */
enum { NONE = 0, LINES = 2 * sizeof workloads / sizeof *workloads };
typedef struct aim {
    double ratio[2][BOTH]; /* in place and padded, per direction: its time over its bound's */
    double faster[2];      /* in place and margins: the faster peer's time over lierne's */
    double by_hand[3];     /* and padded, over copies by hand from the peers' memory */
    double most;           /* of the first; NONE: no aim */
    char title[96];
} aim;
static aim aims[LINES];
static int naims;

static double over(double time, double reference) {
    return reference > 0 ? time / reference : 0;
}

static void keep_aim(const dense *w, const char *title, const outcome *r, int n) {
    aim *a = &aims[naims++];
    double alltoallw = tables_time(r, n, &dense_neighbor, BOTH);
    double petsc = tables_time(r, n, &dense_petsc, BOTH);
    double peer = petsc > 0 && petsc < alltoallw ? petsc : alltoallw;
    const method_kind *own[] = {&dense_place, &dense_padded};
    const method_kind *bounds[] = {&dense_bound, &dense_copy_bound};
    for (int k = 0; k < 2; k++) {
        for (int d = FORWARD; d < BOTH; d++) {
            a->ratio[k][d] = over(tables_time(r, n, own[k], d), tables_time(r, n, bounds[k], d));
        }
    }
    a->faster[0] = over(peer, tables_time(r, n, &dense_place, BOTH));
    a->faster[1] = over(peer, tables_time(r, n, &dense_margin_storage, BOTH));
    a->by_hand[0] =
        over(tables_time(r, n, &dense_place, BOTH), tables_time(r, n, &dense_by_hand, BOTH));
    a->by_hand[1] = over(tables_time(r, n, &dense_margin_storage, BOTH),
                         tables_time(r, n, &dense_by_hand_alone, BOTH));
    a->by_hand[2] = over(tables_time(r, n, &dense_padded, BOTH),
                         tables_time(r, n, &dense_by_hand_padded, BOTH));
    a->most = test_world > 2 ? NONE : dense_margins(w) < 1 << 20 ? 2 : 1.25;
    snprintf(a->title, sizeof a->title, "%s", title);
}

/* A figure, starred where it misses its aim. */
static void print_figure(double figure, bool holds) {
    printf(" %8.2f%c", figure, holds ? ' ' : '*');
}

static void print_aims(void) {
    if (test_rank != 0 || all.csv || naims == 0) {
        return;
    }
    printf("\n%-36s %-19s %-19s %-19s %s\n", "aims (* missed)", "the faster peer's",
           "in place over", "padded over memcpy", "over copies by hand");
    printf("%-36s %-19s %-19s %-19s %s\n", "", "time over lierne's", "memcpy of margins",
           "of margins and part", "from the peers");
    printf("%-36s %-19s %-19s %-19s %s\n", "", "at least 1.5", "2; from 1 MiB 1.25", "1.25",
           "none");
    printf("%-36s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "", "in place", "margins", "forward",
           "adjoint", "forward", "adjoint", "in place", "margins", "padded");
    for (const aim *a = aims; a < aims + naims; a++) {
        printf("%-36s", a->title);
        print_figure(a->faster[0], a->faster[0] >= 1.5);
        print_figure(a->faster[1], a->faster[1] >= 1.5);
        for (int d = FORWARD; d < BOTH; d++) {
            print_figure(a->ratio[0][d], a->most == NONE || a->ratio[0][d] <= a->most);
        }
        for (int d = FORWARD; d < BOTH; d++) {
            print_figure(a->ratio[1][d], a->ratio[1][d] <= 1.25);
        }
        for (int k = 0; k < 3; k++) {
            print_figure(a->by_hand[k], true);
        }
        printf("\n");
    }
}

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
        keep_aim(&w, title, results, n);
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
    print_aims();
    petsc_stop();
    return test_finish();
}
