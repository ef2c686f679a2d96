/* The benchmark of collectives: lierne's, in memory of lierne_context_alloc and in ordinary memory,
 * beside those of MPI. All-gather and reduce-scatter are the two directions of one plan; an
 * all-reduce and an all-to-all are their own adjoints, so the two directions do the same there. Of
 * an all-reduce there is a row per algorithm of lierne: where they cross is the threshold of
 * LIERNE_COLLECTIVE_ALGORITHM_AUTO.
 *
 *   mpirun -n 2|4|8 collective [quick|--csv] [text...]
 *
 * Run again with OMPI_MCA_coll_sm_priority=100, Open MPI uses its component for shared memory where
 * that has the collective. */
#include "bench/collective.h"

#include <stdio.h>

static const method_kind *const gather_kinds[] = {&window_collective, &shm_collective,
                                                  &mpi_collective, &by_mpi, &collective_bound};
static const method_kind *const reduce_kinds[] = {&window_collective, &window_one_shot,
                                                  &window_two_shot,   &shm_collective,
                                                  &mpi_collective,    &by_mpi,
                                                  &collective_bound};

typedef struct collective {
    const char *name;
    const char *directions[2];
    const method_kind *const *kinds;
    int nkinds;
} collective;

static const collective collectives[OPERATIONS] = {
    [GATHER] = {"all-gather, reduce-scatter", {"all-gather", "reduce-scatter"}, gather_kinds, 5},
    [REDUCE] = {"all-reduce", {"all-reduce", "all-reduce again"}, reduce_kinds, 7},
    [EXCHANGE] = {"all-to-all", {"all-to-all", "all-to-all back"}, gather_kinds, 5},
};

typedef struct block {
    size_t bytes;
    const char *name;
} block;

static const block blocks[] = {{256, "256 B"},       {1 << 10, "1 KiB"},   {4 << 10, "4 KiB"},
                               {16 << 10, "16 KiB"}, {64 << 10, "64 KiB"}, {256 << 10, "256 KiB"},
                               {1 << 20, "1 MiB"},   {4 << 20, "4 MiB"}};

static void keep(tables *t, const char *title, const char *name, const outcome *results, int n,
                 int direction) {
    char text[160];
    snprintf(text, sizeof text, "%s: %s", title, name);
    tables_keep(t, text, results, n, direction);
}

static void run_one(tables *t, operation kind, const block *size, bool dirty) {
    const collective *c = &collectives[kind];
    outcome results[METHODS];
    char title[128];
    collective_work w = {.kind = kind,
                         .bytes = size->bytes,
                         .calls = dirty || t->quick ? 1 : CALLS(size->bytes)};
    bench b = {.workload = &w,
               .kinds = c->kinds,
               .nkinds = c->nkinds,
               .reset = collective_reset,
               .right = collective_right,
               .rewrite = collective_rewrite,
               .text = collective_text};
    snprintf(title, sizeof title, "%d ranks, %s, %s, %s", test_world, c->name, size->name,
             dirty ? "dirty" : "hot");
    if (!tables_want(t, title)) {
        return;
    }
    t->per_second = 1e6 / w.calls;
    collective_open(&w);
    int rounds = t->quick ? 0 : size->bytes < 1 << 20 ? 51 : 21;
    int n = measure(&b, dirty, rounds, results);
    collective_close(&w);
    if (rounds > 0) {
        const char *headings[] = {c->directions[0], c->directions[1], "both"};
        t->headings = headings;
        tables_print(t, title, results, n, rounds);
        snprintf(title, sizeof title, "%d ranks, %s, %s", test_world, size->name,
                 dirty ? "dirty" : "hot");
        keep(t, title, c->directions[0], results, n, FORWARD);
        if (kind == GATHER) {
            keep(t, title, c->directions[1], results, n, ADJOINT);
        }
    }
}

int main(int argc, char **argv) {
    static tables t = {.unit = "microseconds",
                       .ratios = "how many times faster lierne in windows is",
                       .reference = &window_collective,
                       .over = "/window",
                       .columns = {{"MPI", {&by_mpi}},
                                   {"1-shot", {&window_one_shot}},
                                   {"2-shot", {&window_two_shot}},
                                   {"memory", {&shm_collective}},
                                   {"mpi", {&mpi_collective}},
                                   {"bound", {&collective_bound}}}};
    test_start(&argc, &argv);
    tables_ask(&t, argc, argv);
    for (int kind = 0; kind < OPERATIONS; kind++) {
        /* An all-to-all has a block for every rank, so its largest ones are left out. */
        size_t n = sizeof blocks / sizeof *blocks - (kind == EXCHANGE ? 2 : 0);
        for (size_t i = 0; i < (t.quick ? 1 : n); i++) {
            run_one(&t, (operation)kind, &blocks[i], false);
            if (!t.quick) {
                run_one(&t, (operation)kind, &blocks[i], true);
            }
        }
    }
    tables_print_ratios(&t);
    return test_finish();
}
