/* Planning that fails: on an error of one rank, all ranks get the same error with the same message,
 * no rank keeps memory, and the next plan works. */
#include "mpi/common.h"

#include <stdio.h>
#include <string.h>

/* A bridge that every rank can plan: dp ranks of one rank each to dp ranks of cp ranks each. */
typedef struct setup {
    lierne_grid *src, *dst;
    int64_t shape[3];
    int64_t counts[64];
    int32_t rows[1024];
    lierne_bridge_spec spec;
    test_algorithm algorithm;
} setup;

static void open_setup(setup *s, const char *src_order, int cp) {
    mesh src = mesh_of(src_order, 1, 1, test_world), dst = mesh_of("tcd", 1, cp, test_world / cp);
    memset(s, 0, sizeof *s);
    s->src = mesh_grid(&src, test_world);
    s->dst = mesh_grid(&dst, test_world);
    s->shape[0] = 2 * test_world;
    s->shape[1] = 4;
    s->shape[2] = 3;
    for (int i = 0; i < test_world && i < 64; i++) {
        s->counts[i] = 2;
    }
    s->spec = bridge_spec_of(s->src, s->dst, s->shape);
}

static void close_setup(setup *s) {
    lierne_grid_destroy(s->src);
    lierne_grid_destroy(s->dst);
}

static lierne_status plan(lierne_context *context, const setup *s) {
    lierne_plan *p = NULL;
    lierne_status status =
        test_plan_bridge(&p, context, s ? &s->spec : NULL, s ? s->algorithm : TEST_DIRECT);
    CHECK((status == LIERNE_OK) == (p != NULL), "a plan beside %s", lierne_status_name(status));
    lierne_plan_destroy(p);
    return status;
}

static void still_works(lierne_context *context) {
    setup s;
    open_setup(&s, "tcd", 1);
    CHECK_OK(plan(context, &s));
    close_setup(&s);
}

/* A change of one field of a spec, and the name that the message must contain. */
typedef struct deviation {
    const char *name;
    void (*make)(setup *s);
} deviation;

static void other_batch(setup *s) {
    s->shape[0] += 1;
}
static void other_hidden(setup *s) {
    s->shape[2] += 1;
}
static void other_dtype(setup *s) {
    s->spec.dtype = LIERNE_DTYPE_I32;
}
static void other_batch_axis(setup *s) {
    s->spec.batch_axis = 2;
}
static void other_sequence_axis(setup *s) {
    s->spec.sequence_axis = 2;
}
static void other_owner(setup *s) {
    s->spec.gradient_owner = LIERNE_GRADIENT_OWNER_CONTIGUOUS;
}
static void other_counts(setup *s) {
    s->spec.src_counts = s->counts;
}
static void other_inflight(setup *s) {
    s->spec.max_inflight = 2;
}
static void other_divisible(setup *s) {
    s->spec.require_divisible = 1;
}
static void other_algorithm(setup *s) {
    s->algorithm = TEST_COLLECTIVE;
}
static void other_order(setup *s) {
    lierne_grid_destroy(s->src);
    mesh m = mesh_of("dct", 1, 1, test_world);
    s->src = mesh_grid(&m, test_world);
    s->spec.src = s->src;
}
static void other_sizes(setup *s) {
    lierne_grid_destroy(s->dst);
    mesh m = mesh_of("tcd", test_world, 1, 1);
    s->dst = mesh_grid(&m, test_world);
    s->spec.dst = s->dst;
}

static const deviation deviations[] = {
    {"shape[0]", other_batch},
    {"shape[2]", other_hidden},
    {"dtype", other_dtype},
    {"batch_axis", other_batch_axis},
    {"sequence_axis", other_sequence_axis},
    {"gradient_owner", other_owner},
    {"src_counts", other_counts},
    {"max_inflight", other_inflight},
    {"require_divisible", other_divisible},
    {"different calls", other_algorithm},
    {"src.dim[0].name", other_order},
    {"dst.dim[0].size", other_sizes},
};

/* Where rank 0 deviates, the lowest rank that differs from it is rank 1. */
static void specs_that_differ(lierne_context *context, int odd) {
    char rank[32];
    snprintf(rank, sizeof rank, "on rank %d", odd == 0 ? 1 : odd);
    for (size_t d = 0; d < sizeof deviations / sizeof *deviations; d++) {
        setup s;
        size_t before = lierne_mem_live();
        open_setup(&s, "tcd", 1);
        if (test_rank == odd) {
            deviations[d].make(&s);
        }
        lierne_status status = plan(context, &s);
        test_same_error(status, LIERNE_ERR_MISMATCH, deviations[d].name);
        CHECK(strstr(lierne_last_error(), deviations[d].name) && strstr(lierne_last_error(), rank),
              "'%s', wanted '%s' and '%s'", lierne_last_error(), deviations[d].name, rank);
        close_setup(&s);
        CHECK(lierne_mem_live() == before, "%s: a leak", deviations[d].name);
    }
    still_works(context);
}

static void rows_that_differ(lierne_context *context, int odd) {
    setup s;
    open_setup(&s, "tcd", test_world);
    s.spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    s.spec.row_owner = s.rows;
    CHECK_OK(plan(context, &s));
    s.rows[5] = test_rank == odd;
    test_same_error(plan(context, &s), LIERNE_ERR_MISMATCH, "row_owner");
    s.rows[5] = test_rank == odd ? -1 : 0;
    test_same_error(plan(context, &s), LIERNE_ERR_INVALID, "row_owner out of range on one rank");
    close_setup(&s);
}

static void specs_wrong_on_one_rank(lierne_context *context, int bad) {
    setup s;
    open_setup(&s, "tcd", 1);
    test_same_error(plan(context, test_rank == bad ? NULL : &s), LIERNE_ERR_INVALID, "spec NULL");
    s.spec.naxes = test_rank == bad ? 9 : 3;
    test_same_error(plan(context, &s), LIERNE_ERR_INVALID, "naxes");
    s.spec.naxes = 3;
    s.spec.size = test_rank == bad ? 3 : sizeof s.spec;
    test_same_error(plan(context, &s), LIERNE_ERR_INVALID, "size");
    close_setup(&s);
    still_works(context);
}

/* Allocation k of one rank fails, for every k until planning works. */
static void planning_without_memory(lierne_context *context, int bad, test_algorithm algorithm,
                                    int cp) {
    setup s;
    int last = LIERNE_ERR_NO_MEMORY, k = 0;
    open_setup(&s, "tcd", cp);
    s.algorithm = algorithm;
    CHECK_OK(plan(context, &s));
    while (last != LIERNE_OK && ++k < 2000) {
        size_t before = lierne_mem_live();
        lierne_mem_fail_at(test_rank == bad ? (size_t)k : 0);
        lierne_status status = plan(context, &s);
        lierne_mem_fail_at(0);
        last = (int)status;
        MPI_Bcast(&last, 1, MPI_INT, bad, MPI_COMM_WORLD);
        if (last != LIERNE_OK) {
            test_same_error(status, LIERNE_ERR_NO_MEMORY, "planning without memory");
        } else {
            CHECK_OK(status);
        }
        CHECK(lierne_mem_live() == before, "allocation %d: %zu alive, %zu before", k,
              lierne_mem_live(), before);
        CHECK(lierne_context_get_ngroups(context) == 0, "%d groups alive",
              lierne_context_get_ngroups(context));
    }
    CHECK(k > 10 && k < 2000, "planning works from allocation %d on", k);
    close_setup(&s);
}

/* A rank without memory for its context waits for the others no longer than its spec says. */
static void creating_a_context_without_memory(int bad) {
    MPI_Comm comm;
    lierne_context *context;
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 0.2};
    MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* serves no further lierne_context_create_mpi */
    if (test_rank == bad) {
        double start = lierne_now();
        lierne_mem_fail_at(1);
        lierne_status status = test_context_create(&context, comm, &spec);
        lierne_mem_fail_at(0);
        CHECK(status == LIERNE_ERR_TIMEOUT && !context, "%s", lierne_status_name(status));
        CHECK(lierne_now() - start < 0.2 + SLACK, "it took %g s", lierne_now() - start);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    lierne_context *context;
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    for (int i = 0; i < 2; i++) {
        int rank = i == 0 ? test_world - 1 : 0;
        specs_that_differ(context, rank);
        rows_that_differ(context, rank);
        specs_wrong_on_one_rank(context, rank);
        planning_without_memory(context, rank, TEST_DIRECT, 1);
        planning_without_memory(context, rank, TEST_DIRECT, test_world);
        planning_without_memory(context, rank, TEST_COLLECTIVE, 1);
        planning_without_memory(context, rank, TEST_COLLECTIVE, test_world);
    }
    still_works(context);
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    creating_a_context_without_memory(test_world - 1);
    return test_finish();
}
