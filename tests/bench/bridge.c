/* The benchmark of the bridge.
 *
 *   mpirun -n 2|4|8 bridge [quick|--csv] [text...]
 *
 * Prints a table for each workload whose title contains every text, and at the end the ratios of
 * all of them, or with --csv a row per method; quick compares the outputs of all methods on small
 * tensors and times nothing. */
#include "bench/bridge.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_LARGE 15
#define ROUNDS_SMALL 101

typedef struct shape {
    const char *kind;
    int world;
    int src[2]; /* tp, dp */
    int dst[3]; /* tp, cp, dp */
    int offset; /* first rank of the destination */
} shape;

/* Those of 8 ranks, their halves and quarters. */
static const shape shapes[] = {
    {"a fan-in", 2, {1, 2}, {2, 1, 1}, 0},          {"b fan-out", 2, {2, 1}, {1, 1, 2}, 0},
    {"c fan-in cp2", 2, {1, 2}, {1, 2, 1}, 0},      {"a fan-in", 4, {1, 4}, {2, 1, 2}, 0},
    {"b fan-out", 4, {2, 2}, {1, 1, 4}, 0},         {"c fan-in cp2", 4, {1, 4}, {1, 2, 2}, 0},
    {"d fan-out cp2", 4, {4, 1}, {1, 2, 2}, 0},     {"a fan-in", 8, {2, 4}, {4, 1, 2}, 0},
    {"b fan-out", 8, {4, 2}, {2, 1, 4}, 0},         {"c fan-in cp2", 8, {2, 4}, {2, 2, 2}, 0},
    {"d fan-out cp2", 8, {4, 2}, {1, 2, 4}, 0},     {"e disjoint equal", 8, {2, 2}, {2, 1, 2}, 4},
    {"f disjoint fan-in", 8, {1, 4}, {4, 1, 1}, 4}, {"g disjoint fan-out", 8, {4, 1}, {1, 1, 4}, 4},
};

typedef struct load {
    const char *name;
    lierne_dtype dtype;
    int64_t b, s, h;
    int rounds;
} load;

static const load loads[] = {
    {"large f32", LIERNE_DTYPE_F32, 4, 1024, 1024, ROUNDS_LARGE},
    {"large bf16", LIERNE_DTYPE_BF16, 4, 1024, 1024, ROUNDS_LARGE},
    {"small f32", LIERNE_DTYPE_F32, 2, 64, 256, ROUNDS_SMALL},
};
static const load quick_loads[] = {
    {"quick f32", LIERNE_DTYPE_F32, 2, 16, 8, 0},
    {"quick bf16", LIERNE_DTYPE_BF16, 3, 8, 16, 0},
    {"quick pieces", LIERNE_DTYPE_F32, 2, 16, 32768, 0},
};

static const method_kind *const kinds[] = {&lierne_direct,     &lierne_shm,
                                           &lierne_windows,    &lierne_shared,
                                           &lierne_partial,    &lierne_window_partial,
                                           &lierne_collective, &lierne_leader,
                                           &optimal_mpi,       &naive_mpi,
                                           &copy_bound,        &stream_bound};
static const char *const headings[] = {"forward", "adjoint", "both"};

static void run_one(tables *t, const shape *s, const load *l, int axis, bool dirty) {
    outcome results[METHODS];
    char title[128];
    workload w = {.kind = s->kind,
                  .load = l->name,
                  .dtype = l->dtype,
                  .axis = axis,
                  .narrow = l->b,
                  .s = l->s,
                  .h = l->h};
    bench b = {.workload = &w,
               .kinds = kinds,
               .nkinds = sizeof kinds / sizeof kinds[0],
               .reset = workload_reset,
               .right = workload_right,
               .rewrite = workload_rewrite,
               .text = workload_text};
    w.src = mesh_of("tcd", s->src[0], 1, s->src[1]);
    w.dst = mesh_of("tcd", s->dst[0], s->dst[1], s->dst[2]);
    w.dst.offset = s->offset;
    snprintf(title, sizeof title, "%d ranks, %s, %s, batch axis %d, %s", test_world, s->kind,
             l->name, axis, dirty ? "dirty" : "hot");
    if (!tables_want(t, title)) {
        return;
    }
    workload_open(&w);
    int n = measure(&b, dirty, l->rounds, results);
    workload_close(&w);
    if (l->rounds > 0) {
        tables_print(t, title, results, n, l->rounds);
        tables_keep(t, title, results, n, BOTH);
    }
}

static void run_shape(tables *t, const shape *s) {
    const load *list = t->quick ? quick_loads : loads;
    size_t n = t->quick ? sizeof quick_loads / sizeof *list : sizeof loads / sizeof *list;
    for (size_t l = 0; l < n && s->world == test_world; l++) {
        for (int axis = 0; axis < 2; axis++) {
            run_one(t, s, &list[l], axis, false);
            if (!t->quick) {
                run_one(t, s, &list[l], axis, true);
            }
        }
    }
}

int main(int argc, char **argv) {
    static tables t = {.unit = "milliseconds",
                       .per_second = 1e3,
                       .headings = headings,
                       .ratios = "how many times faster lierne DIRECT is (0: not compared)",
                       .reference = &lierne_direct,
                       .over = "/DIRECT",
                       .columns = {{"naive", {&naive_mpi}},
                                   {"LEADER", {&lierne_leader}},
                                   {"optimal", {&optimal_mpi}},
                                   {"bound", {&copy_bound, &stream_bound}}}};
    test_start(&argc, &argv);
    setenv("LIERNE_TRANSPORTS", "mpi", 0); /* but for the rows that say shm or window */
    tables_ask(&t, argc, argv);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        run_shape(&t, &shapes[i]);
    }
    tables_print_ratios(&t);
    return test_finish();
}
