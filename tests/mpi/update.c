/* New neighbour lists: one plan is updated with twenty graphs, most of them with other owners,
 * sizes and kinds, and must give the same as a new plan of each. Between them one rank gives a bad
 * graph: all ranks get the same error and keep the old graph. No memory and no edges may be left
 * over. */
#include "mpi/graphs.h"

enum { LISTS = 20 };

/* What this rank's bad graph has. */
typedef enum fault { TARGET, SOURCE, OWNER, COUNT, WIDTH, DTYPE, SPEC, FAULTS } fault;

static lierne_status wanted_of(fault k) {
    static const lierne_status wanted[] = {LIERNE_ERR_INDEX_RANGE, LIERNE_ERR_INDEX_RANGE,
                                           LIERNE_ERR_OWNER_RANGE, LIERNE_ERR_COUNT_RANGE,
                                           LIERNE_ERR_INVALID,     LIERNE_ERR_INVALID,
                                           LIERNE_ERR_INVALID};
    return wanted[k];
}

/* One row and one edge, wrong on one rank. */
static void bring_bad(lierne_plan *plan, const shape *s, fault k, int culprit) {
    bool bad = test_rank == culprit;
    int32_t owner = bad && k == OWNER ? -1 : 0;
    int64_t source = bad && k == SOURCE ? 1 : 0, target = bad && k == TARGET ? -1 : 0;
    lierne_graph_spec spec = {.size = bad && k == SPEC ? 1 : sizeof spec,
                              .nrows = 1,
                              .owner = &owner,
                              .nedges = test_rank == 0 || bad ? 1 : 0,
                              .source = &source,
                              .target = &target,
                              .dtype = s->dtype,
                              .width = s->width,
                              .stride = s->stride};
    if (test_rank != 0 && k != SOURCE && k != TARGET) {
        spec.nedges = 0;
    }
    spec.nedges = bad && k == COUNT ? -1 : spec.nedges;
    spec.width += bad && k == WIDTH;
    spec.stride += bad && k == WIDTH;
    if (bad && k == DTYPE) {
        spec.dtype = s->dtype == LIERNE_DTYPE_F64 ? LIERNE_DTYPE_I64 : LIERNE_DTYPE_F64;
    }
    test_same_error(lierne_plan_update_graph(plan, &spec), wanted_of(k), "a bad graph on one rank");
}

static const int64_t *lists_at(lierne_plan *plan, const lierne_graph_spec *spec) {
    lierne_graph_lists lists = {.size = sizeof lists};
    CHECK_OK(lierne_plan_update_graph(plan, spec));
    CHECK_OK(lierne_plan_get_graph_lists(&lists, plan));
    return lists.edge_source;
}

/* The same graph again and again takes no more memory: lists lie where those before the last did.
 */
static size_t use_memory_again(lierne_plan *plan, const lierne_graph_spec *spec) {
    const int64_t *odd = lists_at(plan, spec), *even = lists_at(plan, spec);
    size_t live = lierne_mem_live();
    for (int i = 0; i < 2; i++) {
        CHECK(lists_at(plan, spec) == odd, "lists have moved");
        CHECK(lists_at(plan, spec) == even, "lists have moved");
        CHECK(lierne_mem_live() == live, "%zu allocations, not %zu", lierne_mem_live(), live);
    }
    return live;
}

static void follow(lierne_context *context, const shape *s) {
    graph g;
    forest f;
    own_edges own;
    lierne_plan *plan = NULL;
    size_t settled = 0;
    for (int i = 0; i < LISTS; i++) {
        graph_random(&g, i ? (kind)(i % KINDS) : DENSE, (uint64_t)(i * 100 + test_world));
        graph_forest(&g, &f);
        lierne_graph_spec spec = graph_spec(&g, s, &own);
        lierne_status status = i ? lierne_plan_update_graph(plan, &spec)
                                 : lierne_plan_create_graph(&plan, context, &spec);
        if (!CHECK(status == LIERNE_OK, "list %d: %s", i, lierne_last_error())) {
            break;
        }
        graph_lists_check(plan, &g, &f, &own);
        forest_check(plan, &f, s, false, false, g.kind);
        bring_bad(plan, s, (fault)(i % FAULTS), i % test_world);
        graph_lists_check(plan, &g, &f, &own);
        forest_check(plan, &f, s, false, false, "the old graph");
        size_t live = use_memory_again(plan, &spec);
        settled = live > settled ? live : settled;
        forest_free(&f);
    }
    CHECK(settled < 1000, "%zu allocations", settled);
    CHECK_OK(lierne_plan_destroy(plan));
}

/* While a request is in flight the graph stays. */
static void stays(lierne_context *context, const shape *s) {
    graph g;
    forest f;
    own_edges own;
    lierne_plan *plan = NULL;
    lierne_request *request;
    graph_random(&g, ROW_EACH, 7);
    graph_forest(&g, &f);
    lierne_graph_spec spec = graph_spec(&g, s, &own);
    CHECK_OK(lierne_plan_create_graph(&plan, context, &spec));
    buffer x = buffer_new(s, f.nowned[test_rank]), y = buffer_new(s, f.nghosts[test_rank]);
    lierne_status status = lierne_plan_forward_begin(&request, plan, y.at, x.at, NULL);
    CHECK_OK(status);
    test_same_error(lierne_plan_update_graph(plan, &spec), LIERNE_ERR_BUSY, "a request in flight");
    CHECK_OK(lierne_request_end(request));
    CHECK_OK(lierne_plan_update_graph(plan, &spec));
    CHECK_OK(lierne_plan_destroy(plan));
    buffer_free(&x), buffer_free(&y);
    forest_free(&f);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t start = lierne_mem_live();
    lierne_context *context;
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    for (uint64_t seed = 1; seed < 4; seed++) {
        shape s = shape_random(seed, false);
        size_t before = lierne_mem_live();
        follow(context, &s);
        stays(context, &s);
        CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    }
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == start, "leaked");
    return test_finish();
}
