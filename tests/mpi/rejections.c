/* An error of one rank in planning rows is every rank's error: the same status with the same
 * message, no plan anywhere, nothing kept, no rank waiting. Every class of bad graph, references,
 * halo, brick and text, from the first rank, the last one and one between. */
#include "mpi/rows.h"

#include <stdio.h>
#include <string.h>

static int next(void) {
    return (test_rank + 1) % test_world;
}

static int last(void) {
    return (test_rank + test_world - 1) % test_world;
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

/* Each function plans something that is in order, but for one fault where bad is set. */

/* A graph of two rows per rank; each needs the next rank's. */
static lierne_status plan_graph(lierne_plan **plan, lierne_context *context, const char *fault,
                                bool bad) {
    int32_t owner[2 * ROWS_WORLD + 1];
    int64_t n = 2 * test_world, source[2] = {2 * next(), 2 * test_rank};
    int64_t target[2] = {2 * test_rank, 2 * test_rank + 1};
    const char *what = bad ? fault : "";
    for (int64_t i = 0; i < n; i++) {
        owner[i] = (int32_t)(i / 2);
    }
    lierne_graph_spec spec = {.size = sizeof spec,
                              .nrows = n,
                              .owner = owner,
                              .nedges = 2,
                              .source = source,
                              .target = target,
                              .width = 2,
                              .stride = 3};
    spec.size -= is(what, "size");
    spec.owner = is(what, "owner NULL") ? NULL : owner;
    spec.source = is(what, "source NULL") ? NULL : source;
    spec.width = is(what, "width 0") ? 0 : is(what, "other width") ? 3 : 2;
    spec.stride = is(what, "short stride") ? 1 : 3;
    spec.algorithm = (lierne_graph_algorithm)(is(what, "algorithm") ? 9 : 0);
    spec.max_inflight = is(what, "in flight") ? -1 : is(what, "more in flight");
    spec.max_inflight *= is(what, "more in flight") ? 2 : 1;
    spec.accumulate = is(what, "accumulates");
    spec.nedges = is(what, "edges -1") ? -1 : 2;
    spec.nrows = is(what, "too many rows") ? (int64_t)INT32_MAX + 1 : is(what, "rows -1") ? -1 : n;
    spec.dtype = is(what, "dtype") ? (lierne_dtype)99 : LIERNE_DTYPE_F64;
    spec.dtype = is(what, "other dtype") ? LIERNE_DTYPE_I64 : spec.dtype;
    if (is(what, "wide")) {
        spec.width = spec.stride = (int64_t)1 << 61;
    }
    source[0] = is(what, "source") ? n : source[0];
    source[1] = is(what, "source -1") ? -1 : source[1];
    target[1] = is(what, "target") ? n : target[1];
    target[0] = is(what, "foreign target") ? 2 * next() : target[0];
    owner[1] = is(what, "owner") ? test_world : owner[1];
    owner[2] = is(what, "owner -1") ? -1 : owner[2];
    if (is(what, "other owners")) { /* of a row that is no edge's on this rank */
        owner[2 * next() + 1] = test_rank;
    }
    return lierne_plan_create_graph(plan, context, &spec);
}

/* Three rows a rank; ghosts of the next rank and of its own. */
static lierne_status plan_pairs(lierne_plan **plan, lierne_context *context, const char *fault,
                                bool bad) {
    int32_t rank[2] = {next(), test_rank};
    int64_t row[2] = {2, 1};
    const char *what = bad ? fault : "";
    const lierne_barrier_spec nothing = {.size = sizeof nothing};
    if (is(what, "another call")) { /* while the others send it what they need */
        return lierne_plan_create_barrier(plan, context, &nothing);
    }
    lierne_references_spec spec = {
        .size = sizeof spec, .nowned = 3, .nghosts = 2, .rank = rank, .row = row, .width = 1};
    spec.size = is(what, "size") ? 0 : spec.size;
    spec.rank = is(what, "rank NULL") ? NULL : rank;
    spec.nowned = is(what, "owned -1") ? -1 : 3;
    spec.nghosts = is(what, "ghosts -1") ? -1 : 2;
    spec.dtype = is(what, "other dtype") ? LIERNE_DTYPE_U8 : LIERNE_DTYPE_F64;
    rank[0] = is(what, "rank") ? test_world : rank[0];
    rank[1] = is(what, "rank -1") ? -1 : rank[1];
    row[0] = is(what, "row") ? 3 : row[0];
    row[1] = is(what, "row -1") ? -1 : row[1];
    return lierne_plan_create_references(plan, context, &spec);
}

/* Two rows to the next rank, then back one of them and one that came. test_halo_reject.c has every
 * fault; here is one of a rank's own, one that its peer finds, and one of two that differ. */
static lierne_status plan_halo(lierne_plan **plan, lierne_context *context, const char *fault,
                               bool bad) {
    int to[2] = {next(), last()}, from[2] = {last(), next()};
    int64_t sent[2] = {2, 2}, got[2] = {2, 2}, first[3] = {1, 0, 1}, second[2] = {0, 2};
    const int64_t *lists[2] = {first, second};
    const char *what = bad ? fault : "";
    lierne_halo_spec spec = {.size = sizeof spec,
                             .nlocal = 2,
                             .nghost = 4,
                             .nswap = 2,
                             .sendproc = to,
                             .recvproc = from,
                             .sendnum = sent,
                             .recvnum = got,
                             .sendlist = lists,
                             .dtype = LIERNE_DTYPE_F64,
                             .width = is(what, "other width") ? 1 : 2};
    second[1] = is(what, "row -1") ? -1 : 2;
    sent[0] = is(what, "more") ? 3 : 2;
    return lierne_plan_create_halo(plan, context, &spec);
}

/* A row of bricks with one point each. */
static lierne_status make_brick(lierne_plan **plan, lierne_context *context, const char *fault,
                                bool bad) {
    const char *what = bad ? fault : "";
    double point[3] = {test_rank + 0.5, 0.5, 0.5};
    lierne_brick *brick = NULL;
    lierne_brick_spec spec = {.size = sizeof spec,
                              .grid = {test_world, 1, 1},
                              .box = {test_world, 1, 1},
                              .periodic = {1, 0, 0},
                              .cutoff = 0.6,
                              .nlocal = 1,
                              .positions = point};
    spec.size = is(what, "size") ? 0 : spec.size;
    spec.grid[1] = is(what, "grid") ? 2 : 1;
    spec.cutoff = is(what, "cutoff") ? 0 : is(what, "other cutoff") ? 0.7 : 0.6;
    spec.box[2] = is(what, "box") ? -1 : is(what, "other box") ? 2 : 1;
    spec.positions = is(what, "NULL") ? NULL : point;
    spec.nlocal = is(what, "local -1") ? -1 : 1;
    point[0] += is(what, "outside") ? test_world : 0;
    lierne_status status = lierne_brick_create(&brick, context, &spec);
    *plan = NULL;
    if (status == LIERNE_OK) {
        lierne_brick_destroy(brick);
    }
    return status;
}

/* A plan's text, read with a fault. */
static lierne_status read_text(lierne_plan **plan, lierne_context *context, const char *fault,
                               bool bad) {
    lierne_plan *written = NULL;
    char *text = NULL;
    lierne_status status = plan_pairs(&written, context, "", false);
    status = status ? status : lierne_plan_serialize(&text, written);
    if (CHECK_OK(status)) {
        size_t length = strlen(text);
        length -= bad && is(fault, "cut off") ? length / 2 : 0;
        const char *from = bad && is(fault, "keys") ? "{}" : text;
        from = bad && is(fault, "NULL") ? NULL : from;
        status = lierne_plan_deserialize(plan, context, from, from && from != text ? 2 : length);
    }
    lierne_text_destroy(text);
    lierne_plan_destroy(written);
    return status;
}

typedef lierne_status planner(lierne_plan **plan, lierne_context *context, const char *fault,
                              bool bad);
typedef struct deed {
    planner *plan;
    const char *fault;
    lierne_status wanted;
    int least; /* ranks that it takes */
} deed;

static const deed deeds[] = {
    {plan_graph, "size", LIERNE_ERR_INVALID, 1},
    {plan_graph, "owner NULL", LIERNE_ERR_INVALID, 1},
    {plan_graph, "source NULL", LIERNE_ERR_INVALID, 1},
    {plan_graph, "width 0", LIERNE_ERR_INVALID, 1},
    {plan_graph, "short stride", LIERNE_ERR_INVALID, 1},
    {plan_graph, "algorithm", LIERNE_ERR_INVALID, 1},
    {plan_graph, "in flight", LIERNE_ERR_INVALID, 1},
    {plan_graph, "dtype", LIERNE_ERR_INVALID, 1},
    {plan_graph, "edges -1", LIERNE_ERR_COUNT_RANGE, 1},
    {plan_graph, "rows -1", LIERNE_ERR_COUNT_RANGE, 1},
    {plan_graph, "too many rows", LIERNE_ERR_COUNT_RANGE, 1},
    {plan_graph, "wide", LIERNE_ERR_COUNT_RANGE, 1},
    {plan_graph, "source", LIERNE_ERR_INDEX_RANGE, 1},
    {plan_graph, "source -1", LIERNE_ERR_INDEX_RANGE, 1},
    {plan_graph, "target", LIERNE_ERR_INDEX_RANGE, 1},
    {plan_graph, "owner", LIERNE_ERR_OWNER_RANGE, 1},
    {plan_graph, "owner -1", LIERNE_ERR_OWNER_RANGE, 2},
    {plan_graph, "foreign target", LIERNE_ERR_EDGE_TARGET_NOT_OWNED, 2},
    {plan_graph, "other width", LIERNE_ERR_MISMATCH, 2},
    {plan_graph, "other dtype", LIERNE_ERR_MISMATCH, 2},
    {plan_graph, "accumulates", LIERNE_ERR_MISMATCH, 2},
    {plan_graph, "more in flight", LIERNE_ERR_MISMATCH, 2},
    {plan_graph, "other owners", LIERNE_ERR_MISMATCH, 2},
    {plan_pairs, "size", LIERNE_ERR_INVALID, 1},
    {plan_pairs, "rank NULL", LIERNE_ERR_INVALID, 1},
    {plan_pairs, "owned -1", LIERNE_ERR_COUNT_RANGE, 1},
    {plan_pairs, "ghosts -1", LIERNE_ERR_COUNT_RANGE, 1},
    {plan_pairs, "rank", LIERNE_ERR_PEER_RANGE, 1},
    {plan_pairs, "rank -1", LIERNE_ERR_PEER_RANGE, 1},
    {plan_pairs, "row", LIERNE_ERR_INDEX_RANGE, 1},
    {plan_pairs, "row -1", LIERNE_ERR_INDEX_RANGE, 1},
    {plan_pairs, "other dtype", LIERNE_ERR_MISMATCH, 2},
    {plan_pairs, "another call", LIERNE_ERR_MISMATCH, 2},
    {plan_halo, "row -1", LIERNE_ERR_INDEX_RANGE, 1},
    {plan_halo, "more", LIERNE_ERR_PEER_COUNT, 2},
    {plan_halo, "other width", LIERNE_ERR_MISMATCH, 2},
    {make_brick, "size", LIERNE_ERR_INVALID, 1},
    {make_brick, "grid", LIERNE_ERR_INVALID, 1},
    {make_brick, "cutoff", LIERNE_ERR_INVALID, 1},
    {make_brick, "box", LIERNE_ERR_INVALID, 1},
    {make_brick, "NULL", LIERNE_ERR_INVALID, 1},
    {make_brick, "local -1", LIERNE_ERR_COUNT_RANGE, 1},
    {make_brick, "outside", LIERNE_ERR_INDEX_RANGE, 1},
    {make_brick, "other cutoff", LIERNE_ERR_MISMATCH, 2},
    {make_brick, "other box", LIERNE_ERR_MISMATCH, 2},
    {read_text, "cut off", LIERNE_ERR_SYNTAX, 1},
    {read_text, "keys", LIERNE_ERR_INVALID, 1},
    {read_text, "NULL", LIERNE_ERR_INVALID, 1},
};

/* Whether the words must name the rank: not where two ranks differ, of which either may be named,
 * and of a text the place is. */
static bool names_rank(const deed *d) {
    return d->wanted != LIERNE_ERR_MISMATCH && d->wanted != LIERNE_ERR_PEER_COUNT &&
           d->plan != read_text;
}

static void check_rejected(lierne_context *context, const deed *d, int culprit) {
    lierne_plan *plan = NULL;
    char name[32];
    size_t before = lierne_mem_live();
    lierne_status status = d->plan(&plan, context, d->fault, test_rank == culprit);
    test_same_error(status, d->wanted, d->fault);
    CHECK(plan == NULL, "%s: a plan beside an error", d->fault);
    CHECK(lierne_mem_live() == before, "%s: leaked", d->fault);
    snprintf(name, sizeof name, "rank %d", culprit);
    CHECK(!names_rank(d) || strstr(lierne_last_error(), name), "%s: no '%s' in: %s", d->fault, name,
          lierne_last_error());
}

/* What the faults are made of is in order without them. */
static void accept(lierne_context *context) {
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) {
        lierne_plan *plan = NULL;
        if (i == 0 || deeds[i].plan != deeds[i - 1].plan) {
            CHECK_OK(deeds[i].plan(&plan, context, "", false));
            CHECK_OK(lierne_plan_destroy(plan));
        }
    }
}

static void run_all(lierne_context *context) {
    accept(context);
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) {
        for (int third = 0; third < 3 && deeds[i].least <= test_world; third++) {
            check_rejected(context, &deeds[i], third * (test_world - 1) / 2);
        }
    }
    accept(context);
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run_all);
}
