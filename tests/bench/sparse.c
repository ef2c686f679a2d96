/* The benchmark of sparse exchanges: rows of a lattice's neighbours, plans for them, halos, and
 * atoms that change their rank.
 *
 *   mpirun -n 2|4|8 sparse [quick|--csv] [text...]
 *
 * As the benchmark of the bridge: tables whose title contains every text, ratios at the end; quick
 * compares the outputs of all methods on few rows and times nothing. */
#include "bench/sparse.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS       41
#define LENGTH       47 /* of the lattice */
#define QUICK_LENGTH 9
#define LONG_LENGTH  100 /* a million rows */
#define DEGREE       32
#define POINTS       8000 /* of a rank's box */
#define QUICK_POINTS 60
#define ATOMS        20000 /* of a rank */
#define EVICTED      ((size_t)64 << 20)

typedef struct load {
    const char *name;
    lierne_dtype dtype;
    int64_t width;
} load;

static const load loads[] = {{"f64 x 32", LIERNE_DTYPE_F64, 32},
                             {"f64 x 1", LIERNE_DTYPE_F64, 1},
                             {"f32 x 64", LIERNE_DTYPE_F32, 64}};
#define LOADS ((int)(sizeof loads / sizeof loads[0]))

/* A slab's rows for its neighbours lie together; those of bricks do not. */
typedef struct cut {
    int world;
    int slab[3], brick[3], box[3]; /* box: of the halo */
} cut;

static const cut cuts[] = {{2, {2, 1, 1}, {1, 1, 2}, {2, 1, 1}},
                           {4, {4, 1, 1}, {1, 2, 2}, {2, 2, 1}},
                           {8, {8, 1, 1}, {2, 2, 2}, {2, 2, 2}}};

#define BENCH(list, resets, judges, rewrites)                                                      \
    {                                                                                              \
        .kinds = list, .nkinds = sizeof list / sizeof list[0], .reset = resets, .right = judges,   \
        .rewrite = rewrites, .text = sparse_text                                                   \
    }

static const method_kind *const graphs[] = {&lierne_graph,        &lierne_graph_shm,
                                            &lierne_graph_window, &petsc_graph,
                                            &neighbor_mpi,        &direct_mpi,
                                            &persistent_mpi,      &gather_mpi,
                                            &copies_hand,         &rows_bound};
static const method_kind *const halos[] = {&lierne_swaps, &lierne_flat, &swaps_mpi, &petsc_halo,
                                           &rows_bound};
static const method_kind *const plans[] = {&plan_edges,      &plan_retyped, &plan_petsc_edges,
                                           &plan_hand_edges, &plan_pairs,   &plan_petsc_pairs,
                                           &plan_hand_pairs};
static const method_kind *const long_plans[] = {&plan_edges, &plan_retyped};

/* A plan is judged by its forward, whichever way it came to be. */
static void reset_plan(const void *of, int direction) {
    (void)direction;
    sparse_reset(of, FORWARD);
}

static bool right_plan(const method *m, int direction) {
    (void)direction;
    return sparse_right(m, FORWARD);
}

/* Evicts what the last plan left in the caches. Otherwise a method that writes the same memory each
 * time, or memory that another one writes too, finds it there. */
static void evict(const void *of, int direction) {
    static char *memory;
    memory = memory ? memory : take(EVICTED);
    (void)of, (void)direction;
    rewrite(memory, EVICTED);
}

static const method_kind *const movers[] = {&migration_lierne, &migration_lammps};

/* Atoms have positions, and are where these are. */
static void keep_atoms(const void *of, int direction) {
    (void)of, (void)direction;
}

static const bench graph_bench = BENCH(graphs, sparse_reset, sparse_right, sparse_rewrite);
static const bench halo_bench = BENCH(halos, sparse_reset, sparse_right, sparse_rewrite);
static const bench plan_bench = BENCH(plans, reset_plan, right_plan, evict);
static const bench long_bench = BENCH(long_plans, reset_plan, right_plan, evict);
static const bench move_bench = BENCH(movers, keep_atoms, migration_right, sparse_rewrite);

static const char *const headings[] = {"forward", "adjoint", "both"};
static const char *const plan_headings[] = {"first", "again", "both"};
static const char *const move_headings[] = {"forth", "back", "both"};

static tables graph_tables = {.unit = "microseconds",
                              .per_second = 1e6,
                              .headings = headings,
                              .ratios = "how many times faster lierne is, both directions",
                              .reference = &lierne_graph,
                              .over = "/lierne",
                              .columns = {{"PetscSF", {&petsc_graph}},
                                          {"neighbor", {&neighbor_mpi}},
                                          {"by hand", {&direct_mpi}},
                                          {"gather", {&gather_mpi}},
                                          {"bound", {&rows_bound}}}};
static tables halo_tables = {.unit = "microseconds",
                             .per_second = 1e6,
                             .headings = headings,
                             .ratios = "how many times faster lierne's swaps are",
                             .reference = &lierne_swaps,
                             .over = "/swaps",
                             .columns = {{"flattened", {&lierne_flat}},
                                         {"by hand", {&swaps_mpi}},
                                         {"PetscSF", {&petsc_halo}},
                                         {"bound", {&rows_bound}}}};
static tables plan_tables = {.unit = "microseconds",
                             .per_second = 1e6,
                             .headings = plan_headings,
                             .ratios = "how many times faster lierne plans from edges",
                             .reference = &plan_edges,
                             .over = "/edges",
                             .columns = {{"PetscSF", {&plan_petsc_edges}},
                                         {"by hand", {&plan_hand_edges}},
                                         {"pairs", {&plan_pairs}},
                                         {"SF pairs", {&plan_petsc_pairs}},
                                         {"by hand", {&plan_hand_pairs}}}};

static tables move_tables = {.unit = "microseconds",
                             .per_second = 1e6,
                             .headings = move_headings,
                             .ratios = "how many times faster lierne moves atoms",
                             .reference = &migration_lierne,
                             .over = "/lierne",
                             .columns = {{"LAMMPS", {&migration_lammps}}}};

/* What is aimed at: the time of `over` in that of lierne's method `of`, in the same run, or NONE.
 */
enum { NONE = 0, FIGURES = 6, LINES = 64 };
typedef struct figure {
    const char *name;
    const method_kind *over, *of;
    int direction;
    double least[2]; /* of rows of 256 bytes, and of 8 */
} figure;
static const figure graph_figures[FIGURES] = {
    {"neighbor f", &neighbor_mpi, &lierne_graph, FORWARD, {0.97, 0.9}},
    {"neighbor a", &neighbor_mpi, &lierne_graph, ADJOINT, {0.97, 0.9}},
    {"by hand f", &direct_mpi, &lierne_graph, FORWARD, {NONE, NONE}},
    {"by hand a", &direct_mpi, &lierne_graph, ADJOINT, {NONE, NONE}},
    {"/window", &neighbor_mpi, &lierne_graph_window, BOTH, {2, 1.4}},
    {"by hand", &copies_hand, &lierne_graph_window, BOTH, {NONE, NONE}}};
static const figure halo_figures[FIGURES] = {
    {"PetscSF f", &petsc_halo, &lierne_swaps, FORWARD, {1.7, NONE}},
    {"PetscSF a", &petsc_halo, &lierne_swaps, ADJOINT, {1.7, NONE}},
    {"by hand f", &swaps_mpi, &lierne_swaps, FORWARD, {NONE, NONE}},
    {"by hand a", &swaps_mpi, &lierne_swaps, ADJOINT, {NONE, NONE}}};
static const figure plan_figures[FIGURES] = {
    {"SF edges", &plan_petsc_edges, &plan_edges, BOTH, {1, 1}},
    {"by hand", &plan_hand_edges, &plan_edges, BOTH, {NONE, NONE}},
    {"SF pairs", &plan_petsc_pairs, &plan_pairs, BOTH, {1 / 1.2, 1 / 1.2}},
    {"by hand", &plan_hand_pairs, &plan_pairs, BOTH, {NONE, NONE}},
    {"/retyped", &plan_edges, &plan_retyped, FORWARD, {50, 50}}};

typedef struct aim {
    const figure *figures;
    char title[96];
    double values[FIGURES];
    bool short_rows;
} aim;
static aim aims[LINES];
static int naims;

static void keep_aim(const sparse *w, const figure *figures, const char *title, const outcome *r,
                     int n) {
    aim *a = &aims[naims++];
    a->figures = figures;
    a->short_rows = w->row == 8;
    snprintf(a->title, sizeof a->title, "%s", title);
    for (int k = 0; k < FIGURES && figures[k].name; k++) {
        double of = tables_time(r, n, figures[k].of, figures[k].direction);
        a->values[k] = of > 0 ? tables_time(r, n, figures[k].over, figures[k].direction) / of : 0;
    }
}

/* A figure that misses its aim has a star. */
static void print_figures(const aim *a) {
    printf("\n%-56s", a->title);
    for (int k = 0; k < FIGURES && a->figures[k].name; k++) {
        if (a->values[k] > 0) {
            bool misses = a->values[k] < a->figures[k].least[a->short_rows];
            printf(" %10.2f%c", a->values[k], misses ? '*' : ' ');
        } else {
            printf(" %10s ", "-");
        }
    }
}

/* The lines of one table. */
static void print_aims(const tables *t, const figure *figures) {
    bool any = false;
    for (const aim *a = aims; a < aims + naims && test_rank == 0 && !t->csv; a++) {
        if (a->figures == figures && !any) {
            printf("\n%-56s", "their time over lierne's (* misses its aim)");
            for (int k = 0; k < FIGURES && figures[k].name; k++) {
                printf(" %10s ", figures[k].name);
            }
            any = true;
        }
        if (a->figures == figures) {
            print_figures(a);
        }
    }
    printf(any ? "\n" : "");
}

/* Halo swaps may move a row several times. */
static void count_swaps(const sparse *w, int64_t *rows, int64_t *messages) {
    int64_t mine[2] = {0, 0}, all[2];
    for (int i = 0; i < w->swaps.nswap; i++) {
        bool sends = w->swaps.sendproc[i] != test_rank && w->swaps.sendnum[i] > 0;
        mine[0] += sends ? w->swaps.sendnum[i] : 0;
        mine[1] += sends;
    }
    MPI_Allreduce(mine, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    *rows = all[0];
    *messages = all[1];
}

static void print_needs(const sparse *w) {
    int64_t rows, messages, local, swapped, sent;
    sparse_bound(w, &rows, &messages, &local);
    count_swaps(w, &swapped, &sent);
    if (test_rank == 0) {
        printf(
            "needed: %lld rows of %zu bytes from other ranks in %lld messages; %lld ghosts of own"
            " rows\n",
            (long long)rows, w->row, (long long)messages, (long long)local);
    }
    if (test_rank == 0 && w->halo) {
        printf("swaps: %lld rows in %lld messages\n", (long long)swapped, (long long)sent);
    }
}

static void show(tables *t, const sparse *w, const char *title, const outcome *results, int n) {
    tables_print(t, title, results, n, ROUNDS);
    if (!t->csv) {
        print_needs(w);
    }
    for (int d = FORWARD; d <= ADJOINT && t->reference == &lierne_swaps; d++) {
        char text[128];
        snprintf(text, sizeof text, "%s, %s", title, headings[d]);
        tables_keep(t, text, results, n, d);
    }
    if (t->reference != &lierne_swaps) {
        tables_keep(t, title, results, n, BOTH);
    }
}

/* A workload of a kind and load, with the methods of a bench. */
static void run_one(tables *t, const figure *figures, bench b, sparse w, const int *grid,
                    bool dirty) {
    outcome results[METHODS];
    char title[96];
    snprintf(title, sizeof title, "%d ranks, %s, %s", test_world, sparse_text(&w),
             dirty ? "dirty" : "hot");
    if (!tables_want(t, title)) {
        return;
    }
    if (w.halo) {
        sparse_open_halo(&w, t->quick ? QUICK_POINTS : POINTS, grid);
    } else {
        w.length = t->quick ? QUICK_LENGTH : w.length;
        sparse_open_graph(&w, grid);
    }
    b.workload = &w;
    int n = measure(&b, dirty, t->quick ? 0 : ROUNDS, results);
    if (!t->quick) {
        show(t, &w, title, results, n);
        keep_aim(&w, figures, title, results, n);
    }
    sparse_close(&w);
}

static void run_load(const cut *c, const load *l, bool dirty) {
    sparse w = {.load = l->name, .dtype = l->dtype, .width = l->width, .length = LENGTH};
    w.kind = "graph slab";
    run_one(&graph_tables, graph_figures, graph_bench, w, c->slab, dirty);
    w.kind = "graph brick";
    run_one(&graph_tables, graph_figures, graph_bench, w, c->brick, dirty);
    w.kind = "halo box";
    w.halo = true;
    run_one(&halo_tables, halo_figures, halo_bench, w, c->box, dirty);
}

/* What is sent later matters little to planning. */
static void run_plans(const cut *c, bool dirty) {
    sparse w = {.load = loads[0].name,
                .dtype = loads[0].dtype,
                .width = loads[0].width,
                .length = LENGTH};
    w.kind = "planning slab";
    run_one(&plan_tables, plan_figures, plan_bench, w, c->slab, dirty);
    w.kind = "planning brick";
    run_one(&plan_tables, plan_figures, plan_bench, w, c->brick, dirty);
    w.kind = "planning random";
    w.degree = DEGREE;
    run_one(&plan_tables, plan_figures, plan_bench, w, c->slab, dirty);
}

/* A million rows, one number each. */
static void run_long_plans(const cut *c) {
    const sparse w = {.kind = "planning of a million rows",
                      .load = loads[1].name,
                      .dtype = loads[1].dtype,
                      .width = loads[1].width,
                      .length = LONG_LENGTH};
    run_one(&plan_tables, plan_figures, long_bench, w, c->slab, false);
}

/* A hundredth of the atoms leaves in each step. */
static void run_atoms(const cut *c) {
    tables *t = &move_tables;
    const sparse w = {.kind = "migration of 20,000 atoms a rank",
                      .load = "60 bytes each",
                      .nowned = t->quick ? QUICK_POINTS : ATOMS,
                      .grid = c->box};
    outcome results[METHODS];
    char title[96];
    bench b = move_bench;
    b.workload = &w;
    snprintf(title, sizeof title, "%d ranks, %s", test_world, sparse_text(&w));
    if (tables_want(t, title)) {
        int n = measure(&b, false, t->quick ? 0 : ROUNDS, results);
        if (!t->quick) {
            tables_print(t, title, results, n, ROUNDS);
            tables_keep(t, title, results, n, BOTH);
        }
    }
}

int main(int argc, char **argv) {
    tables *const all[] = {&graph_tables, &halo_tables, &plan_tables, &move_tables};
    test_start(&argc, &argv);
    setenv("LIERNE_TRANSPORTS", "mpi", 0); /* but for the rows that say shm or window */
    petsc_start();
    for (int i = 0; i < 4; i++) {
        tables_ask(all[i], argc, argv);
    }
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        for (int l = 0; l < LOADS && cuts[i].world == test_world; l++) {
            run_load(&cuts[i], &loads[l], false);
            if (!graph_tables.quick) {
                run_load(&cuts[i], &loads[l], true);
            }
        }
        if (cuts[i].world == test_world) {
            run_plans(&cuts[i], false);
            if (!plan_tables.quick) {
                run_plans(&cuts[i], true);
                run_long_plans(&cuts[i]);
            }
            run_atoms(&cuts[i]);
        }
    }
    for (int i = 0; i < 4; i++) {
        tables_print_ratios(all[i]);
    }
    print_aims(&graph_tables, graph_figures);
    print_aims(&halo_tables, halo_figures);
    print_aims(&plan_tables, plan_figures);
    petsc_stop();
    return test_finish();
}
