/* The graphs, halos, packed sequences, sets with boxes and collectives of the golden files on real
 * ranks: the checks of tests/golden, with a process per rank. Of the cases in a file, those whose
 * world has this size are run, and bad swaps of one rank in a world of any size. The processes
 * agree on what failed before they continue, because the next calls are collective. */
#include "golden/row_case.h"
#include "mpi/common.h"

#include <stdio.h>

static lierne_context *context; /* one for all cases */

lierne_status golden_ranks_start(golden_world *world) {
    world->first = test_rank;
    world->here = 1;
    return world->n == test_world ? LIERNE_OK : LIERNE_ERR_INVALID;
}

lierne_status golden_ranks_end(golden_world *world) {
    world->here = 0;
    return LIERNE_OK;
}

void golden_ranks_run(const golden_world *world,
                      void (*work)(lierne_context *context, void *shared), void *shared) {
    (void)world;
    work(context, shared);
}

void golden_ranks_sum(double *values, int n) {
    MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

double golden_ranks_most(double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

void golden_ranks_agree(golden_case *c) {
    int lowest = c->failed ? test_rank : test_world;
    MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (lowest < test_world) {
        c->failed = true;
        MPI_Bcast(c->why, sizeof c->why, MPI_CHAR, lowest, MPI_COMM_WORLD);
    }
}

static void reject_swaps(golden_case *c) {
    golden_halo_reject(c, test_world);
}

/* Counts a case once, on rank 0, but what it leaked on any rank. */
static void run_case(const char *file, const cJSON *one, golden_check *check) {
    golden_case c = {.item = one};
    size_t before = lierne_mem_live();
    check(&c);
    golden_expect(&c, lierne_mem_live() == before, "rank %d: leaked", test_rank);
    golden_ranks_agree(&c);
    if (test_rank == 0) {
        CHECK(!c.failed, "%s %s: %s", file, golden_string(one, "id"), c.why);
    }
}

/* anywhere: cases of one rank stand for those of any world. */
static void run_list(const char *file, const cJSON *root, const char *list, golden_check *check,
                     bool anywhere) {
    const cJSON *one, *cases = golden_get(root, list);
    CHECK(cJSON_GetArraySize(cases) > 0, "%s has no %s", file, list);
    cJSON_ArrayForEach(one, cases) {
        int64_t world = golden_int(one, "world", golden_int(one, "n", 0));
        world = golden_int(one, "world_size", golden_int(one, "ranks", world));
        if (world == test_world || (anywhere && world == 1)) {
            run_case(file, one, check);
        }
    }
}

static cJSON *read_file(const char *dir, const char *file) {
    char path[4096];
    const char *why = "";
    snprintf(path, sizeof path, "%s/%s", dir, file);
    cJSON *root = golden_read(path, &why);
    CHECK(root, "%s: %s", path, why);
    return root;
}

static void run_file(const char *dir, const char *file, golden_check *valid, golden_check *invalid,
                     bool anywhere) {
    cJSON *root = read_file(dir, file);
    run_list(file, root, "cases", valid, false);
    run_list(file, root, "invalid", invalid, anywhere);
    cJSON_Delete(root);
}

static void run_dense_halo(const char *dir) {
    cJSON *root = read_file(dir, "dense_halo.json");
    run_list("dense_halo.json", root, "cases", golden_dense_halo, false);
    run_list("dense_halo.json", root, "order", golden_dense_halo_order, false);
    run_list("dense_halo.json", root, "invalid", golden_dense_halo_invalid, false);
    cJSON_Delete(root);
}

static void run_packed(const char *dir) {
    cJSON *root = read_file(dir, "packed.json");
    run_list("packed.json", root, "redistribute", golden_packed_move, false);
    run_list("packed.json", root, "bridges", golden_packed_bridge, false);
    cJSON_Delete(root);
    root = read_file(dir, "samples.json");
    run_list("samples.json", root, "tensors", golden_sample_tensor, false);
    cJSON_Delete(root);
}

static void run_boxes(const char *dir) {
    cJSON *root = read_file(dir, "set_boxes.json");
    run_list("set_boxes.json", root, "cases", golden_set_boxes, false);
    cJSON_Delete(root);
}

static void run_collectives(const char *dir) {
    cJSON *root = read_file(dir, "windows.json");
    run_list("windows.json", root, "allgather", golden_all_gather, false);
    run_list("windows.json", root, "reduce_scatter", golden_reduce_scatter, false);
    run_list("windows.json", root, "allreduce", golden_all_reduce, false);
    run_list("windows.json", root, "order_sensitive", golden_order_sensitive, false);
    cJSON_Delete(root);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    const char *dir = argc > 1 ? argv[1] : "tests/golden";
    size_t before = lierne_mem_live();
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    run_file(dir, "graph_a2a.json", golden_graph, golden_graph_invalid, false);
    run_file(dir, "halo.json", golden_halo, reject_swaps, true);
    run_packed(dir);
    run_dense_halo(dir);
    run_boxes(dir);
    run_collectives(dir);
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
