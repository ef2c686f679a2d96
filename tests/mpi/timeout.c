/* Rank 0 does not come. Whoever waits for it gets TIMEOUT within the deadline and a second, the
 * same error at once from then on, and can still free everything. MPI itself stays healthy: the
 * ranks meet again outside of lierne after each case. */
#include "mpi/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT 0.5 /* seconds */

static lierne_context *context_new(void) {
    lierne_context *context;
    lierne_context_spec spec = {.size = sizeof spec, .timeout = TIMEOUT};
    CHECK(lierne_init_mpi(&context, MPI_COMM_WORLD, &spec) == LIERNE_OK, "%s", lierne_last_error());
    return context;
}

/* Everything into one lane, so that every rank waits for every other. */
static lierne_status plan_all(lierne_plan **plan, lierne_context *context, int64_t seq) {
    bridge_case c = {.src = mesh_of("tcd", 1, 1, test_world),
                     .dst = mesh_of("tcd", test_world, 1, 1),
                     .size = {test_world, seq, 4},
                     .axis = {0, 1, 2},
                     .dtype = LIERNE_F32};
    return case_plan(plan, context, &c);
}

static void check_timeout(lierne_status status, double start, const char *what) {
    double took = lierne_now() - start;
    CHECK(status == LIERNE_TIMEOUT, "%s: %s", what, lierne_status_name(status));
    CHECK(took > TIMEOUT * 0.9 && took < TIMEOUT + 1, "%s took %g s", what, took);
}

/* The error that killed a context comes again, at once. */
static void check_dead(lierne_context *context, lierne_plan *plan, void *out, const void *in) {
    char first[1024];
    lierne_plan *other;
    double start = lierne_now();
    snprintf(first, sizeof first, "%s", lierne_last_error());
    CHECK(strlen(first) > 10, "no message: '%s'", first);
    CHECK(plan_all(&other, context, 8) == LIERNE_TIMEOUT, "planning on a dead context");
    CHECK(strcmp(first, lierne_last_error()) == 0, "'%s', then '%s'", first, lierne_last_error());
    if (plan) {
        CHECK(lierne_adjoint(plan, out, in, NULL) == LIERNE_TIMEOUT, "adjoint on a dead context");
        CHECK(strcmp(first, lierne_last_error()) == 0, "'%s', then '%s'", first,
              lierne_last_error());
    }
    CHECK(lierne_now() - start < 0.2, "a dead context took %g s", lierne_now() - start);
}

/* Rank 0 comes late and alone to free, which may take one more deadline. */
static void free_context(lierne_context *context) {
    double start = lierne_now();
    CHECK(lierne_free(context) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_now() - start < (test_rank == 0 ? TIMEOUT + 1 : 0.2), "freeing took %g s",
          lierne_now() - start);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* seq sets the size of messages: small ones leave MPI at once, large ones wait for the receiver. */
static void moving(int64_t seq) {
    size_t before = lierne_mem_live(), bytes = (size_t)seq * 16;
    lierne_context *context = context_new();
    lierne_plan *plan;
    char *in = calloc(bytes, 1), *out = calloc(bytes, (size_t)test_world);
    CHECK(plan_all(&plan, context, seq) == LIERNE_OK, "%s", lierne_last_error());
    if (test_rank != 0) {
        double start = lierne_now();
        check_timeout(lierne_forward(plan, out, in, NULL), start, "forward");
        check_dead(context, plan, in, out);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(lierne_plan_free(plan) == LIERNE_OK, "%s", lierne_last_error());
    free_context(context);
    CHECK(lierne_mem_live() == before + (test_rank == 0), "%zu allocations leaked",
          lierne_mem_live() - before);
    free(in);
    free(out);
}

/* What a collective call of MPI may still write stays: one allocation, see lierne/mpi.h. */
static void planning(void) {
    size_t before = lierne_mem_live();
    lierne_context *context = context_new();
    if (test_rank != 0) {
        lierne_plan *plan;
        double start = lierne_now();
        check_timeout(plan_all(&plan, context, 8), start, "planning");
        check_dead(context, NULL, NULL, NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free_context(context);
    CHECK(lierne_mem_live() <= before + 1, "%zu allocations leaked", lierne_mem_live() - before);
}

/* No timeout at all: those who plan learn at once that rank 0 is about to leave. */
static void freeing_while_others_plan(void) {
    lierne_context *context = context_new();
    double start = lierne_now();
    if (test_rank != 0) {
        lierne_plan *plan;
        lierne_status status = plan_all(&plan, context, 8);
        CHECK(status == LIERNE_MISMATCH && !plan, "%s", lierne_status_name(status));
        CHECK(strstr(lierne_last_error(), "rank 0 frees") != NULL, "'%s'", lierne_last_error());
        CHECK(plan_all(&plan, context, 8) == LIERNE_MISMATCH, "planning on a dead context");
    }
    CHECK(lierne_free(context) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_now() - start < 0.4, "it took %g s", lierne_now() - start);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void making_a_context(void) {
    size_t before = lierne_mem_live();
    lierne_context_spec spec = {.size = sizeof spec, .timeout = TIMEOUT};
    if (test_rank != 0) {
        lierne_context *context;
        double start = lierne_now();
        check_timeout(lierne_init_mpi(&context, MPI_COMM_WORLD, &spec), start, "init");
        CHECK(context == NULL, "a context beside the error");
        CHECK(lierne_mem_live() <= before + 2, "%zu allocations leaked",
              lierne_mem_live() - before);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    moving(8);
    moving(100000);
    planning();
    freeing_while_others_plan();
    making_a_context();
    return test_finish();
}
