/* What the flight recorder costs: an entry with its clock, in memory and in a mapped file, and a
 * whole call with and without it.
 *
 *   recorder [quick]
 *
 * Times are the thread's own, the best of many rounds, so that a busy machine changes them little.
 * quick is one round. Times are printed and not judged: a busy machine is not a defect. */
#include "bench/checks.h"
#include "lierne.h"
#include "runtime/context/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS  31
#define ENTRIES 200000
#define CALLS   20000

static int rounds = ROUNDS;

static double now(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

static void add_entries(lierne_context *context, lierne_plan *plan, float *x) {
    (void)plan;
    (void)x;
    for (int i = 0; i < ENTRIES; i++) {
        lierne_recorder_add(&context->recorder, &(lierne_entry){.kind = LIERNE_RECORD_STAGE,
                                                                .plan = 3,
                                                                .number = i,
                                                                .peer = 7,
                                                                .bytes = 4096});
    }
}

static void execute(lierne_context *context, lierne_plan *plan, float *x) {
    (void)context;
    for (int i = 0; i < CALLS; i++) {
        lierne_plan_forward(plan, x + 1, x, NULL);
    }
}

/* The best nanoseconds of one of n. */
static double measure(void (*run)(lierne_context *, lierne_plan *, float *), int n,
                      lierne_context *context, lierne_plan *plan) {
    double best = 1e9;
    float x[2] = {3, 0};
    for (int i = 0; i < rounds; i++) {
        double start = now();
        run(context, plan, x);
        double seconds = (now() - start) / n;
        best = seconds < best ? seconds : best;
    }
    return best * 1e9;
}

static void measure_context(const char *where) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = 1,
                                         .dtype = LIERNE_DTYPE_F32};
    lierne_context *context = NULL;
    lierne_plan *plan = NULL;
    lierne_status status = lierne_context_create_self(&context, NULL);
    status = status ? status : lierne_plan_create_all_gather(&plan, context, &spec);
    check(status == LIERNE_OK, where);
    if (status == LIERNE_OK) {
        double entry = measure(add_entries, ENTRIES, context, plan);
        double call = measure(execute, CALLS, context, plan);
        lierne_recorder off = context->recorder;
        context->recorder.header = NULL;
        double without = measure(execute, CALLS, context, plan);
        context->recorder = off;
        check(atomic_load(&off.header->written) >= ENTRIES, "entries were written");
        printf("%-24s %8.1f %12.1f %12.1f\n", where, entry, call, without);
    }
    lierne_context_destroy_all(context);
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/lierne-bench-XXXXXX", command[64];
    if (argc > 1 && strcmp(argv[1], "quick") == 0) {
        rounds = 1;
    }
    printf("%-24s %8s %12s %12s\n", "flight recorder, ns", "entry", "a call", "without it");
    measure_context("in memory");
    if (mkdtemp(folder)) {
        setenv("LIERNE_DUMP_DIR", folder, 1);
        measure_context("in a file");
        snprintf(command, sizeof command, "rm -rf %s", folder);
        check(system(command) == 0, "the folder is removed");
    }
    return close_counts();
}
