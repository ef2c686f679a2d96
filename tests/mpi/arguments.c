/* A bad argument of one rank, in every collective call, in a context that checks calls: the same
 * INVALID on every rank, with a message that names the rank and the error; no rank waits, no data
 * moves, and the next call works. Calls that create something behave so in every context; executing
 * calls only where the context checks. In each case the call is right on all ranks but one. A rank
 * that calls another plan, another direction, or plans, is MISMATCH on all, with the field and both
 * values; plans of different shapes and dtypes cannot be created: see failure.c. */
#include "mpi/common.h"

#include "lierne.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2, MOST = 4, WIDTH = 6, ROWS = 3 };

static lierne_context *context, *alone;
static lierne_grid *src, *dst, *one;
static lierne_plan *first, *second, *back, *mapped, *reshaped,
    *variable;               /* bridges; back is first transposed */
static lierne_plan *foreign; /* of the context `alone` */
static lierne_plan *pairs, *adding, *graph, *halo;
static lierne_coalesced *both;
static float *in, *out, *more;
static size_t own, all; /* elements of a source and of a destination rank */
static int32_t *map, *owners;
static int64_t counts[SAMPLES], edge_source, edge_target;
static float owned[ROWS], ghosts[1];
static const uint8_t keep[ROWS + 1] = {1, 1, 1, 1};

static lierne_bridge_spec bridge_spec(int64_t *shape) {
    shape[0] = SAMPLES * test_world, shape[1] = MOST, shape[2] = WIDTH;
    return bridge_spec_of(src, dst, shape);
}

static lierne_graph_spec graph_spec(void) {
    edge_target = (int64_t)ROWS * test_rank;
    edge_source = (int64_t)ROWS * ((test_rank + 1) % test_world) + 1;
    return (lierne_graph_spec){.size = sizeof(lierne_graph_spec),
                               .nrows = ROWS * test_world,
                               .owner = owners,
                               .nedges = 1,
                               .source = &edge_source,
                               .target = &edge_target,
                               .dtype = LIERNE_DTYPE_F32,
                               .width = 1};
}

#define MADE(call) CHECK((call) == LIERNE_OK, #call ": %s", lierne_last_error())

static void make_bridges(void) {
    int64_t shape[3];
    lierne_bridge_spec spec = bridge_spec(shape);
    MADE(lierne_plan_create_bridge(&first, context, &spec));
    MADE(lierne_plan_create_bridge(&second, context, &spec));
    MADE(lierne_plan_create_bridge(&reshaped, context, &spec));
    MADE(lierne_plan_create_transposed(&back, first));
    spec.variable_rows = 1;
    MADE(lierne_plan_create_bridge(&variable, context, &spec));
    spec.variable_rows = 0;
    spec.gradient_owner = LIERNE_GRADIENT_OWNER_ROWS;
    spec.row_owner = map;
    MADE(lierne_plan_create_bridge(&mapped, context, &spec));
    spec = bridge_spec(shape);
    spec.src = spec.dst = one;
    MADE(lierne_plan_create_bridge(&foreign, alone, &spec));
    MADE(lierne_coalesced_create(&both, (lierne_plan *[]){first, second}, 2));
}

static lierne_halo_spec halo_spec(void) {
    static const int64_t row[1] = {2}, num = 1;
    static const int64_t *const lists[1] = {row};
    static int to, from;
    to = (test_rank + 1) % test_world, from = (test_rank + test_world - 1) % test_world;
    return (lierne_halo_spec){.size = sizeof(lierne_halo_spec),
                              .nlocal = ROWS,
                              .nghost = 1,
                              .nswap = 1,
                              .sendproc = &to,
                              .recvproc = &from,
                              .sendnum = &num,
                              .recvnum = &num,
                              .sendlist = lists,
                              .dtype = LIERNE_DTYPE_F32,
                              .width = 1};
}

/* Each rank has one ghost, a row of the next rank. */
static lierne_references_spec pairs_spec(void) {
    static int32_t rank;
    static const int64_t row = 1;
    rank = (test_rank + 1) % test_world;
    return (lierne_references_spec){.size = sizeof(lierne_references_spec),
                                    .nowned = ROWS,
                                    .nghosts = 1,
                                    .rank = &rank,
                                    .row = &row,
                                    .dtype = LIERNE_DTYPE_F32,
                                    .width = 1};
}

static void make_rows(void) {
    lierne_references_spec spec = pairs_spec();
    lierne_graph_spec g = graph_spec();
    lierne_halo_spec h = halo_spec();
    MADE(lierne_plan_create_references(&pairs, context, &spec));
    spec.accumulate = 1;
    MADE(lierne_plan_create_references(&adding, context, &spec));
    MADE(lierne_plan_create_graph(&graph, context, &g));
    MADE(lierne_plan_create_halo(&halo, context, &h));
}

static void set_up(void) {
    mesh from = mesh_of("tcd", 1, 1, test_world), to = mesh_of("tcd", 1, test_world, 1);
    const char *names[] = {"tp", "dp"};
    const int64_t ones[] = {1, 1};
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 120, .check = 1};
    lierne_grid_spec grid = {
        .size = sizeof grid, .ndims = 2, .names = names, .sizes = ones, .world_size = 1};
    MADE(test_context_create(&context, MPI_COMM_WORLD, &spec));
    MADE(lierne_context_create_self(&alone, &spec));
    MADE(lierne_grid_create(&one, &grid));
    src = mesh_grid(&from, test_world), dst = mesh_grid(&to, test_world);
    own = SAMPLES * MOST * WIDTH, all = own * (size_t)test_world;
    in = malloc(own * sizeof *in);
    out = malloc(all * sizeof *out), more = malloc(all * sizeof *more);
    map = malloc((size_t)(SAMPLES * MOST * test_world) * sizeof *map);
    owners = malloc((size_t)(ROWS * test_world) * sizeof *owners);
    for (size_t i = 0; i < own; i++) {
        in[i] = (float)(own * (size_t)test_rank + i + 1);
    }
    for (int i = 0; i < SAMPLES * MOST * test_world; i++) {
        map[i] = i % test_world;
    }
    for (int i = 0; i < ROWS * test_world; i++) {
        owners[i] = i / ROWS;
    }
    counts[0] = 3, counts[1] = 1;
    make_bridges();
    make_rows();
}

static void tear_down(void) {
    lierne_plan *plans[] = {first, second, back,  mapped, reshaped, variable,
                            pairs, adding, graph, halo,   foreign};
    MADE(lierne_coalesced_destroy(both));
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        MADE(lierne_plan_destroy(plans[i]));
    }
    MADE(lierne_context_destroy(alone));
    MADE(lierne_context_destroy(context));
    lierne_grid_destroy(src), lierne_grid_destroy(dst), lierne_grid_destroy(one);
    free(in), free(out), free(more), free(map), free(owners);
}

/* The cases: each makes one call, with a fault where it is not NULL; what a right call would make
 * is freed: it must not exist. */
static bool is(const char *a, const char *b) {
    return a && strcmp(a, b) == 0;
}

static lierne_status forward(const char *fault) {
    bool neither = is(fault, "without out") && test_world > 1;
    const float *from = is(fault, "without in") || is(fault, "without out") ? NULL : in;
    from = is(fault, "onto itself") ? out + 1 : from;
    lierne_plan *plan = is(fault, "by another plan") ? second : first;
    return lierne_plan_forward(plan, neither ? NULL : out, from,
                               is(fault, "on a stream") ? in : NULL);
}

/* Ranks that deviate make another call than the others. */
static lierne_status deviate(const char *fault) {
    lierne_plan *plan = NULL;
    int64_t shape[3];
    const lierne_bridge_spec spec = bridge_spec(shape);
    return is(fault, "by its adjoint") ? lierne_plan_adjoint(first, more, out, NULL)
           : is(fault, "by planning")  ? lierne_plan_create_bridge(&plan, context, &spec)
                                       : forward(NULL);
}

static lierne_status begin(const char *fault) {
    lierne_request *q = NULL;
    bool adjoint = is(fault, "adjoint");
    return (adjoint ? lierne_plan_adjoint_begin : lierne_plan_forward_begin)(fault ? NULL : &q,
                                                                             adjoint ? back : first,
                                                                             out, in, NULL);
}

static lierne_status reduce(const char *fault) {
    lierne_reduction by = is(fault, "by seven") ? (lierne_reduction)7
                          : is(fault, "by sum") ? LIERNE_REDUCTION_SUM
                                                : LIERNE_REDUCTION_MAX;
    return is(fault, "a bridge") ? lierne_plan_reduce(first, by, in, out, NULL)
                                 : lierne_plan_reduce(pairs, by, owned, ghosts, NULL);
}

static lierne_status exchange(const char *fault) {
    void *outs[] = {out, more};
    const void *ins[] = {in, is(fault, "without one in") ? NULL : in};
    int direction = is(fault, "in direction 7") ? 7 : is(fault, "in direction -1") ? -1 : 0;
    return lierne_coalesced_begin(both, (lierne_direction)direction,
                                  is(fault, "without outs") ? NULL : outs,
                                  is(fault, "without ins") ? NULL : ins, NULL);
}

static lierne_status coalesce(const char *fault) {
    lierne_coalesced *made = NULL;
    lierne_plan *plans[] = {is(fault, "without the first") ? NULL : first,
                            is(fault, "without the second") ? NULL
                            : is(fault, "a foreign one")    ? foreign
                                                            : second};
    int n = is(fault, "none") ? 0 : is(fault, "too many") ? LIERNE_MAX_COALESCED + 1 : 2;
    lierne_status status =
        lierne_coalesced_create(is(fault, "into nothing") ? NULL : &made, plans, n);
    lierne_coalesced_destroy(made);
    return status;
}

/* Of planning calls: where the plan goes, and what is freed again. */
static lierne_plan *made;
static lierne_plan **place(const char *fault) {
    return is(fault, "into nothing") ? NULL : &made;
}

static lierne_status transpose(const char *fault) {
    return lierne_plan_create_transposed(place(fault),
                                         is(fault, "what accumulates") ? adding : first);
}

static lierne_status compose(const char *fault) {
    lierne_plan *a = is(fault, "without the first")  ? NULL
                     : is(fault, "what accumulates") ? adding
                                                     : first;
    lierne_plan *b = is(fault, "without the second")   ? NULL
                     : is(fault, "with a foreign one") ? foreign
                     : is(fault, "what does not fit")  ? pairs
                                                       : back;
    return lierne_plan_create_composed(place(fault), a, b);
}

static lierne_status restricted(const char *fault) {
    return lierne_plan_create_restricted(place(fault), is(fault, "a bridge") ? first : halo,
                                         is(fault, "by nothing") ? NULL : keep);
}

static lierne_status flatten(const char *fault) {
    return lierne_plan_create_flattened(place(fault), is(fault, "pairs") ? pairs : halo, 0);
}

static lierne_status map_rows(const char *fault) {
    lierne_plan *plan = is(fault, "of a bridge without") ? first
                        : is(fault, "of variable rows")  ? variable
                                                         : mapped;
    return lierne_plan_update_rows(plan, is(fault, "by nothing") ? NULL : map);
}

static lierne_status count_rows(const char *fault) {
    return lierne_plan_update_counts(is(fault, "of a bridge without") ? first : variable,
                                     is(fault, "by nothing") ? NULL : counts);
}

static lierne_status update_graph(const char *fault) {
    const lierne_graph_spec spec = graph_spec();
    return lierne_plan_update_graph(is(fault, "of a bridge") ? first : graph,
                                    is(fault, "by nothing") ? NULL : &spec);
}

static lierne_status update_shape(const char *fault) {
    const int64_t shape[3] = {SAMPLES * test_world, MOST + is(fault, "with a map"), WIDTH};
    lierne_plan *plan = is(fault, "of rows") ? pairs : is(fault, "with a map") ? mapped : reshaped;
    return lierne_plan_update_shape(plan, is(fault, "by nothing") ? NULL : shape);
}

static lierne_status bridge(const char *fault) {
    int64_t shape[3];
    lierne_bridge_spec spec = bridge_spec(shape);
    spec.size = is(fault, "without a size") ? 0 : spec.size;
    return lierne_plan_create_bridge(place(fault), context, &spec);
}

static lierne_status megatron(const char *fault) {
    int64_t shape[3];
    const lierne_bridge_spec of = bridge_spec(shape);
    const lierne_megatron_spec spec = {sizeof spec, LIERNE_MEGATRON_ALGORITHM_COLLECTIVE, &of};
    return lierne_plan_create_megatron(place(fault), context,
                                       is(fault, "of nothing") ? NULL : &spec);
}

static lierne_status redistribute(const char *fault) {
    int64_t shape[3];
    const lierne_bridge_spec of = bridge_spec(shape);
    lierne_layout *from, *to, *gradient;
    MADE(lierne_layout_create_bridge(&from, &to, &gradient, &of));
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = from, .dst = to};
    lierne_status status = lierne_plan_create_redistribute(place(fault), context,
                                                           is(fault, "of nothing") ? NULL : &spec);
    lierne_layout_destroy(from), lierne_layout_destroy(to), lierne_layout_destroy(gradient);
    return status;
}

static lierne_status plan_graph(const char *fault) {
    const lierne_graph_spec spec = graph_spec();
    return lierne_plan_create_graph(place(fault), context, &spec);
}

static lierne_status plan_pairs(const char *fault) {
    const lierne_references_spec spec = pairs_spec();
    return lierne_plan_create_references(place(fault), context, &spec);
}

static lierne_status plan_halo(const char *fault) {
    const lierne_halo_spec spec = halo_spec();
    return lierne_plan_create_halo(place(fault), context, &spec);
}

static lierne_status bricks(const char *fault) {
    lierne_brick *brick = NULL;
    const double point[3] = {test_rank + 0.25, 0.5, 0.75};
    const lierne_brick_spec spec = {.size = sizeof spec,
                                    .grid = {test_world, 1, 1},
                                    .box = {test_world, 1, 1},
                                    .cutoff = 0.125,
                                    .nlocal = 1,
                                    .positions = point};
    lierne_status status = lierne_brick_create(fault ? NULL : &brick, context, &spec);
    lierne_brick_destroy(brick);
    return status;
}

static lierne_status read_plan(const char *fault) {
    char *text;
    MADE(lierne_plan_serialize(&text, pairs));
    lierne_status status =
        lierne_plan_deserialize(place(fault), context, is(fault, "from nothing") ? NULL : text,
                                strlen(text));
    lierne_text_destroy(text);
    return status;
}

static const struct {
    lierne_status (*call)(const char *fault);
    const char *fault, *words;
} cases[] = {
    {begin, "forward", "forward: request is NULL"},
    {begin, "adjoint", "adjoint: request is NULL"},
    {forward, "without in", "forward: in is NULL"},
    {forward, "without out", "is NULL, must hold"},
    {forward, "on a stream", "stream is not NULL"},
    {forward, "onto itself", "overlap"},
    {forward, "by another plan", "plan differs between ranks"},
    {deviate, "by its adjoint", "different calls: "},
    {deviate, "by planning", "different calls: "},
    {reduce, "by seven", "reduction is 7, must be 1 (max) or 2 (min)"},
    {reduce, "by sum", "reduction is 0"},
    {reduce, "a bridge", "does not exchange rows"},
    {exchange, "in direction 7", "direction is 7, must be 0"},
    {exchange, "in direction -1", "direction is -1"},
    {exchange, "without outs", "out is NULL"},
    {exchange, "without ins", "in is NULL"},
    {exchange, "without one in", "in is NULL, must hold"},
    {coalesce, "into nothing", "out is NULL"},
    {coalesce, "without the first", "plan 0 is NULL"},
    {coalesce, "without the second", "plan 1 is NULL"},
    {coalesce, "none", "n is 0, must be in 1 to 64"},
    {coalesce, "too many", "n is 65"},
    {coalesce, "a foreign one", "plan 1 is of another context"},
    {transpose, "into nothing", "out is NULL"},
    {transpose, "what accumulates", "accumulates"},
    {compose, "into nothing", "out is NULL"},
    {compose, "without the first", "first is NULL"},
    {compose, "without the second", "second is NULL"},
    {compose, "with a foreign one", "different contexts"},
    {compose, "what accumulates", "first accumulates"},
    {compose, "what does not fit", "elements"},
    {restricted, "into nothing", "out is NULL"},
    {restricted, "a bridge", "not one of swaps"},
    {restricted, "by nothing", "keep is NULL"},
    {flatten, "into nothing", "out is NULL"},
    {flatten, "pairs", "not one of swaps"},
    {map_rows, "of a bridge without", "has no row map"},
    {map_rows, "of variable rows", "has no row map"},
    {map_rows, "by nothing", "row_owner is NULL"},
    {count_rows, "of a bridge without", "has no variable rows"},
    {count_rows, "by nothing", "rows of sample 0 are -1"},
    {update_graph, "of a bridge", "not one of a graph"},
    {update_graph, "by nothing", "spec is NULL"},
    {bridge, "into nothing", "out is NULL"},
    {bridge, "without a size", "spec->size is 0"},
    {megatron, "into nothing", "out is NULL"},
    {megatron, "of nothing", "spec is NULL"},
    {redistribute, "into nothing", "out is NULL"},
    {redistribute, "of nothing", "spec is NULL"},
    {update_shape, "by nothing", "shape is NULL"},
    {update_shape, "of rows", "must be bridge or redistribute"},
    {update_shape, "with a map", "the row map has"},
    {plan_graph, "into nothing", "out is NULL"},
    {plan_pairs, "into nothing", "out is NULL"},
    {plan_halo, "into nothing", "out is NULL"},
    {bricks, "into nothing", "out is NULL"},
    {read_plan, "into nothing", "out is NULL"},
    {read_plan, "from nothing", "text is NULL"},
};

static bool all_bytes(const float *x, unsigned char byte) {
    bool same = true;
    for (size_t i = 0; i < all * sizeof *x; i++) {
        same &= ((const unsigned char *)x)[i] == byte;
    }
    return same;
}

/* Every rank has the values of all ranks, and gets the sum of as many equal contributions. */
static void works(void) {
    int wrong = 0;
    memset(out, 0xa5, all * sizeof *out);
    MADE(lierne_plan_forward(first, out, in, NULL));
    for (size_t i = 0; i < all; i++) {
        wrong += out[i] != (float)(i + 1);
    }
    MADE(lierne_plan_adjoint(second, more, out, NULL));
    CHECK(wrong == 0 && more[3] == (float)test_world * in[3], "%d wrong elements", wrong);
}

static lierne_status status_of(size_t i) {
    bool deviates = cases[i].call == deviate || is(cases[i].fault, "by another plan");
    return deviates                            ? LIERNE_ERR_MISMATCH
           : is(cases[i].fault, "on a stream") ? LIERNE_ERR_UNSUPPORTED
                                               : LIERNE_ERR_INVALID;
}

static void try_case(size_t i, int who) {
    char name[24];
    const char *fault = cases[i].fault;
    lierne_status wanted = status_of(i);
    size_t before = lierne_mem_live();
    memset(out, 0x5a, all * sizeof *out);
    memset(more, 0x5a, all * sizeof *more);
    /* Rank 0 is what others are compared with: if it deviates, the lowest other is named. */
    snprintf(name, sizeof name, wanted == LIERNE_ERR_MISMATCH ? "on rank %d" : "rank %d:",
             wanted == LIERNE_ERR_MISMATCH && who == 0 ? 1 : who);
    made = NULL;
    lierne_status status = cases[i].call(test_rank == who ? fault : NULL);
    test_same_error(status, wanted, fault);
    CHECK(strstr(lierne_last_error(), cases[i].words), "%s: '%s' is not in '%s'", fault,
          cases[i].words, lierne_last_error());
    CHECK(test_world == 1 || strstr(lierne_last_error(), name), "%s: '%s' is not in '%s'", fault,
          name, lierne_last_error());
    CHECK(all_bytes(out, 0x5a) && all_bytes(more, 0x5a), "%s: data moved", fault);
    CHECK(!made && lierne_mem_live() == before, "%s: %zu allocations, then %zu", fault, before,
          lierne_mem_live());
    works();
}

/* A context that checks on some ranks only is rejected. */
static void half_checked(void) {
    lierne_context *half = NULL;
    const lierne_context_spec spec = {.size = sizeof spec,
                                      .timeout = PATIENT,
                                      .check = test_rank == test_world - 1};
    test_same_error(test_context_create(&half, MPI_COMM_WORLD, &spec), LIERNE_ERR_MISMATCH,
                    "check on one rank only");
    CHECK(strncmp(lierne_last_error(), "lierne_context_create_mpi: ", 27) == 0, "'%s'",
          lierne_last_error());
    CHECK(!half, "a context beside an error");
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    set_up();
    works();
    MADE(megatron(NULL)); /* the context keeps its list of groups */
    MADE(lierne_plan_destroy(made));
    int some[] = {0, test_world / 2, test_world - 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool agrees = test_world == 1 && status_of(i) == LIERNE_ERR_MISMATCH;
        for (int k = 0; k < 3 && !agrees; k++) {
            if (k == 0 || some[k] != some[k - 1]) {
                try_case(i, some[k]);
            }
        }
    }
    if (test_world > 1) {
        half_checked();
    }
    tear_down();
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
