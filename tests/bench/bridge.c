/* The benchmark of the bridge.
 *
 *   mpirun -n 2|4|8 bridge [quick] [text...]
 *
 * Prints a table per workload, those only whose title contains every text, and at the end the
 * ratios of all of them; quick compares the outputs of all methods on small tensors and times
 * nothing. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    {"large f32", LIERNE_F32, 4, 1024, 1024, ROUNDS_LARGE},
    {"large bf16", LIERNE_BF16, 4, 1024, 1024, ROUNDS_LARGE},
    {"small f32", LIERNE_F32, 2, 64, 256, ROUNDS_SMALL},
};
static const load quick_loads[] = {
    {"quick f32", LIERNE_F32, 2, 16, 8, 0},
    {"quick bf16", LIERNE_BF16, 3, 8, 16, 0},
    {"quick pieces", LIERNE_F32, 2, 16, 32768, 0},
};

typedef struct line {
    char title[128];
    double naive, leader, optimal, bound; /* how often lierne DIRECT fits into each; 0: not run */
} line;

typedef struct run {
    bool quick;
    char **texts;
    int ntexts;
    line lines[128];
    int nlines;
} run;

static double time_of(const outcome *results, int n, const method_kind *kind) {
    for (int i = 0; i < n; i++) {
        if (results[i].kind == kind && results[i].agrees) {
            return results[i].t[BOTH].median;
        }
    }
    return 0;
}

static void print_row(const outcome *r, double direct) {
    if (!r->agrees) {
        printf("%-24s   wrong: not timed\n", r->kind->name);
        return;
    }
    printf("%-24s %9.3f %9.3f %9.3f (%.3f - %.3f) %7.2f\n", r->kind->name,
           1e3 * r->t[FORWARD].median, 1e3 * r->t[ADJOINT].median, 1e3 * r->t[BOTH].median,
           1e3 * r->t[BOTH].low, 1e3 * r->t[BOTH].high, r->t[BOTH].median / direct);
}

static void print_table(const char *title, const outcome *results, int n, int rounds) {
    double direct = time_of(results, n, &lierne_direct);
    printf("\n%s; %d rounds\n%-24s %9s %9s %9s %-17s %7s\n", title, rounds, "milliseconds",
           "forward", "adjoint", "both", "(quartiles)", "/DIRECT");
    for (int i = 0; i < n; i++) {
        print_row(&results[i], direct);
    }
    fflush(stdout);
}

static void add_line(run *b, const char *title, const outcome *results, int n) {
    double direct = time_of(results, n, &lierne_direct);
    double copy = time_of(results, n, &copy_bound), stream = time_of(results, n, &stream_bound);
    line *l = &b->lines[b->nlines++];
    snprintf(l->title, sizeof l->title, "%s", title);
    l->naive = time_of(results, n, &naive_mpi) / direct;
    l->leader = time_of(results, n, &lierne_leader) / direct;
    l->optimal = time_of(results, n, &optimal_mpi) / direct;
    l->bound = direct / (copy < stream ? copy : stream);
}

static bool wanted(const run *b, const char *title) {
    for (int i = 0; i < b->ntexts; i++) {
        if (!strstr(title, b->texts[i])) {
            return false;
        }
    }
    return true;
}

static void run_one(run *b, const shape *s, const load *l, int axis, bool dirty) {
    outcome results[METHODS];
    char title[128];
    workload w = {.kind = s->kind,
                  .load = l->name,
                  .dtype = l->dtype,
                  .axis = axis,
                  .lane = l->b,
                  .s = l->s,
                  .h = l->h};
    w.src = mesh_of("tcd", s->src[0], 1, s->src[1]);
    w.dst = mesh_of("tcd", s->dst[0], s->dst[1], s->dst[2]);
    w.dst.offset = s->offset;
    snprintf(title, sizeof title, "%d ranks, %s, %s, batch axis %d, %s", test_world, s->kind,
             l->name, axis, dirty ? "dirty" : "hot");
    if (!wanted(b, title)) {
        return;
    }
    workload_open(&w);
    int n = measure(&w, dirty, l->rounds, results);
    workload_close(&w);
    if (test_rank == 0 && l->rounds > 0) {
        print_table(title, results, n, l->rounds);
        add_line(b, title, results, n);
    }
}

static void run_shape(run *b, const shape *s) {
    const load *list = b->quick ? quick_loads : loads;
    size_t n = b->quick ? sizeof quick_loads / sizeof *list : sizeof loads / sizeof *list;
    for (size_t l = 0; l < n && s->world == test_world; l++) {
        for (int axis = 0; axis < 2; axis++) {
            run_one(b, s, &list[l], axis, false);
            if (!b->quick) {
                run_one(b, s, &list[l], axis, true);
            }
        }
    }
}

static void print_ratios(const run *b) {
    printf("\n%-56s %6s %6s %8s %6s\n", "how many times faster lierne DIRECT is (0: not compared)",
           "naive", "LEADER", "optimal", "bound");
    for (int i = 0; i < b->nlines; i++) {
        const line *l = &b->lines[i];
        printf("%-56s %6.2f %6.2f %8.2f %6.2f\n", l->title, l->naive, l->leader, l->optimal,
               1 / l->bound);
    }
}

int main(int argc, char **argv) {
    static run b;
    test_start(&argc, &argv, 3600);
    b.quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    b.texts = argv + 1 + b.quick;
    b.ntexts = argc - 1 - b.quick;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        run_shape(&b, &shapes[i]);
    }
    if (test_rank == 0 && !b.quick) {
        print_ratios(&b);
    }
    return test_finish();
}
