/* A bad argument of one rank, in every collective call, in a context that checks calls: the same
 * INVALID on every rank, with a message that names the rank and the error; no rank waits, no data
 * moves, and the next call works. Calls that create something behave so in every context; executing
 * calls only where the context checks. In each case the call is right on all ranks but one. */
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
    MADE(lierne_context_create_mpi(&context, MPI_COMM_WORLD, &spec));
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

/* The cases: each makes one call, which is wrong where bad is true. What a right call would make is
 * freed: it must not exist. */
static lierne_status forward_without_request(bool bad) {
    lierne_request *q = NULL;
    return lierne_plan_forward_begin(bad ? NULL : &q, first, out, in, NULL);
}
static lierne_status adjoint_without_request(bool bad) {
    lierne_request *q = NULL;
    return lierne_plan_adjoint_begin(bad ? NULL : &q, back, out, in, NULL);
}
static lierne_status forward_without_in(bool bad) {
    return lierne_plan_forward(first, out, bad ? NULL : in, NULL);
}
static lierne_status forward_without_out(bool bad) {
    return lierne_plan_forward(first, bad && test_world > 1 ? NULL : out, bad ? NULL : in, NULL);
}
static lierne_status forward_on_a_stream(bool bad) {
    return lierne_plan_forward(first, out, in, bad ? in : NULL);
}
static lierne_status forward_onto_itself(bool bad) {
    return lierne_plan_forward(first, out, bad ? out + 1 : in, NULL);
}
static lierne_status reduce_by(bool bad, lierne_reduction wrong) {
    return lierne_plan_reduce(pairs, bad ? wrong : LIERNE_REDUCTION_MAX, owned, ghosts, NULL);
}
static lierne_status reduce_by_seven(bool bad) {
    return reduce_by(bad, (lierne_reduction)7);
}
static lierne_status reduce_by_sum(bool bad) {
    return reduce_by(bad, LIERNE_REDUCTION_SUM);
}
static lierne_status reduce_a_bridge(bool bad) {
    return bad ? lierne_plan_reduce(first, LIERNE_REDUCTION_MAX, in, out, NULL)
               : reduce_by(false, LIERNE_REDUCTION_MAX);
}

static lierne_status exchange(lierne_direction d, void *out1, const void *in1, int given) {
    void *outs[] = {out, out1};
    const void *ins[] = {in, in1};
    return lierne_coalesced_begin(both, d, given & 1 ? outs : NULL, given & 2 ? ins : NULL, NULL);
}
static lierne_status exchange_in_direction_seven(bool bad) {
    return exchange(bad ? (lierne_direction)7 : LIERNE_DIRECTION_FORWARD, more, in, 3);
}
static lierne_status exchange_backwards_by_one(bool bad) {
    return exchange(bad ? (lierne_direction)-1 : LIERNE_DIRECTION_FORWARD, more, in, 3);
}
static lierne_status exchange_without_outs(bool bad) {
    return exchange(LIERNE_DIRECTION_FORWARD, more, in, bad ? 2 : 3);
}
static lierne_status exchange_without_ins(bool bad) {
    return exchange(LIERNE_DIRECTION_FORWARD, more, in, bad ? 1 : 3);
}
static lierne_status exchange_without_one_in(bool bad) {
    return exchange(LIERNE_DIRECTION_FORWARD, more, bad ? NULL : in, 3);
}

static lierne_status coalesce(lierne_coalesced **made, lierne_plan *a, lierne_plan *b, int n) {
    lierne_plan *plans[] = {a, b};
    lierne_status status = lierne_coalesced_create(made, plans, n);
    lierne_coalesced_destroy(made ? *made : NULL);
    return status;
}
static lierne_status coalesce_into_nothing(bool bad) {
    lierne_coalesced *x = NULL;
    return coalesce(bad ? NULL : &x, first, second, 2);
}
static lierne_status coalesce_without_the_first(bool bad) {
    lierne_coalesced *x = NULL;
    return coalesce(&x, bad ? NULL : first, second, 2);
}
static lierne_status coalesce_without_the_second(bool bad) {
    lierne_coalesced *x = NULL;
    return coalesce(&x, first, bad ? NULL : second, 2);
}
static lierne_status coalesce_none(bool bad) {
    lierne_coalesced *x = NULL;
    return coalesce(&x, first, second, bad ? 0 : 2);
}
static lierne_status coalesce_too_many(bool bad) {
    lierne_coalesced *x = NULL;
    return coalesce(&x, first, second, bad ? LIERNE_MAX_COALESCED + 1 : 2);
}
static lierne_status coalesce_a_foreign_one(bool bad) {
    lierne_coalesced *x = NULL;
    return coalesce(&x, first, bad ? foreign : second, 2);
}

static lierne_status drop(lierne_status status, lierne_plan *made) {
    lierne_plan_destroy(made);
    return status;
}
static lierne_status transpose_into_nothing(bool bad) {
    lierne_plan *plan = NULL;
    return drop(lierne_plan_create_transposed(bad ? NULL : &plan, first), plan);
}
static lierne_status transpose_what_accumulates(bool bad) {
    lierne_plan *plan = NULL;
    return drop(lierne_plan_create_transposed(&plan, bad ? adding : first), plan);
}
static lierne_status compose(lierne_plan *a, lierne_plan *b) {
    lierne_plan *plan = NULL;
    return drop(lierne_plan_create_composed(&plan, a, b), plan);
}
static lierne_status compose_into_nothing(bool bad) {
    return bad ? lierne_plan_create_composed(NULL, first, back) : compose(first, back);
}
static lierne_status compose_without_the_first(bool bad) {
    return compose(bad ? NULL : first, back);
}
static lierne_status compose_without_the_second(bool bad) {
    return compose(first, bad ? NULL : back);
}
static lierne_status compose_with_a_foreign_one(bool bad) {
    return compose(first, bad ? foreign : back);
}
static lierne_status compose_what_accumulates(bool bad) {
    return compose(bad ? adding : first, back);
}
static lierne_status compose_what_does_not_fit(bool bad) {
    return compose(first, bad ? pairs : back);
}

static lierne_status restrict_into_nothing(bool bad) {
    lierne_plan *plan = NULL;
    return drop(lierne_plan_create_restricted(bad ? NULL : &plan, halo, keep), plan);
}
static lierne_status restrict_a_bridge(bool bad) {
    lierne_plan *plan = NULL;
    return drop(lierne_plan_create_restricted(&plan, bad ? first : halo, keep), plan);
}
static lierne_status restrict_by_nothing(bool bad) {
    lierne_plan *plan = NULL;
    return drop(lierne_plan_create_restricted(&plan, halo, bad ? NULL : keep), plan);
}
static lierne_status flatten_into_nothing(bool bad) {
    lierne_plan *plan = NULL;
    return drop(lierne_plan_create_flattened(bad ? NULL : &plan, halo, 0), plan);
}
static lierne_status flatten_pairs(bool bad) {
    lierne_plan *plan = NULL;
    return drop(lierne_plan_create_flattened(&plan, bad ? pairs : halo, 0), plan);
}

static lierne_status map_a_bridge_without_one(bool bad) {
    return lierne_plan_update_rows(bad ? first : mapped, map);
}
static lierne_status map_variable_rows(bool bad) {
    return lierne_plan_update_rows(bad ? variable : mapped, map);
}
static lierne_status map_by_nothing(bool bad) {
    return lierne_plan_update_rows(mapped, bad ? NULL : map);
}
static lierne_status count_a_bridge_without(bool bad) {
    return lierne_plan_update_counts(bad ? first : variable, counts);
}
static lierne_status count_by_nothing(bool bad) {
    return lierne_plan_update_counts(variable, bad ? NULL : counts);
}
static lierne_status update_the_graph_of_a_bridge(bool bad) {
    lierne_graph_spec spec = graph_spec();
    return lierne_plan_update_graph(bad ? first : graph, &spec);
}
static lierne_status update_the_graph_by_nothing(bool bad) {
    lierne_graph_spec spec = graph_spec();
    return lierne_plan_update_graph(graph, bad ? NULL : &spec);
}

static lierne_status bridge_into_nothing(bool bad) {
    int64_t shape[3];
    lierne_plan *plan = NULL;
    lierne_bridge_spec spec = bridge_spec(shape);
    return drop(lierne_plan_create_bridge(bad ? NULL : &plan, context, &spec), plan);
}
static lierne_status bridge_without_a_size(bool bad) {
    int64_t shape[3];
    lierne_plan *plan = NULL;
    lierne_bridge_spec spec = bridge_spec(shape);
    spec.size = bad ? 0 : spec.size;
    return drop(lierne_plan_create_bridge(&plan, context, &spec), plan);
}
static lierne_status megatron(bool bad, bool out_given) {
    int64_t shape[3];
    lierne_plan *plan = NULL;
    lierne_bridge_spec bridge = bridge_spec(shape);
    const lierne_megatron_spec spec = {sizeof spec, LIERNE_MEGATRON_ALGORITHM_COLLECTIVE, &bridge};
    lierne_status status = lierne_plan_create_megatron(bad && !out_given ? NULL : &plan, context,
                                                       bad && out_given ? NULL : &spec);
    return drop(status, plan);
}
static lierne_status megatron_into_nothing(bool bad) {
    return megatron(bad, false);
}
static lierne_status megatron_of_nothing(bool bad) {
    return megatron(bad, true);
}
static lierne_status redistribute(bool bad, bool out_given) {
    int64_t shape[3];
    lierne_bridge_spec bridge = bridge_spec(shape);
    lierne_layout *from, *to, *gradient;
    lierne_plan *plan = NULL;
    MADE(lierne_layout_create_bridge(&from, &to, &gradient, &bridge));
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = from, .dst = to};
    lierne_status status =
        drop(lierne_plan_create_redistribute(bad && !out_given ? NULL : &plan, context,
                                             bad && out_given ? NULL : &spec),
             plan);
    lierne_layout_destroy(from), lierne_layout_destroy(to), lierne_layout_destroy(gradient);
    return status;
}
static lierne_status redistribute_into_nothing(bool bad) {
    return redistribute(bad, false);
}
static lierne_status redistribute_nothing(bool bad) {
    return redistribute(bad, true);
}
static lierne_status shape_by_nothing(bool bad) {
    const int64_t shape[3] = {SAMPLES * test_world, MOST, WIDTH};
    return lierne_plan_update_shape(reshaped, bad ? NULL : shape);
}
static lierne_status shape_of_rows(bool bad) {
    const int64_t shape[3] = {SAMPLES * test_world, MOST, WIDTH};
    return lierne_plan_update_shape(bad ? pairs : reshaped, shape);
}
static lierne_status shape_with_a_map(bool bad) {
    const int64_t shape[3] = {SAMPLES * test_world, MOST + bad, WIDTH};
    return lierne_plan_update_shape(bad ? mapped : reshaped, shape);
}
static lierne_status graph_into_nothing(bool bad) {
    lierne_plan *plan = NULL;
    lierne_graph_spec spec = graph_spec();
    return drop(lierne_plan_create_graph(bad ? NULL : &plan, context, &spec), plan);
}
static lierne_status pairs_into_nothing(bool bad) {
    lierne_plan *plan = NULL;
    lierne_references_spec spec = pairs_spec();
    return drop(lierne_plan_create_references(bad ? NULL : &plan, context, &spec), plan);
}
static lierne_status halo_into_nothing(bool bad) {
    lierne_plan *plan = NULL;
    lierne_halo_spec spec = halo_spec();
    return drop(lierne_plan_create_halo(bad ? NULL : &plan, context, &spec), plan);
}
static lierne_status bricks_into_nothing(bool bad) {
    lierne_brick *brick = NULL;
    const double point[3] = {test_rank + 0.25, 0.5, 0.75};
    lierne_brick_spec spec = {.size = sizeof spec,
                              .grid = {test_world, 1, 1},
                              .box = {test_world, 1, 1},
                              .cutoff = 0.125,
                              .nlocal = 1,
                              .positions = point};
    lierne_status status = lierne_brick_create(bad ? NULL : &brick, context, &spec);
    lierne_brick_destroy(brick);
    return status;
}
static lierne_status read(bool bad, bool has_out, bool has_text) {
    lierne_plan *plan = NULL;
    char *text;
    MADE(lierne_plan_serialize(&text, pairs));
    lierne_status status = lierne_plan_deserialize(bad && !has_out ? NULL : &plan, context,
                                                   bad && !has_text ? NULL : text, strlen(text));
    lierne_text_destroy(text);
    return drop(status, plan);
}
static lierne_status read_into_nothing(bool bad) {
    return read(bad, false, true);
}
static lierne_status read_from_nothing(bool bad) {
    return read(bad, true, false);
}

#define CASE(name, words)                                                                          \
    { #name, name, words }
static const struct {
    const char *name;
    lierne_status (*call)(bool bad);
    const char *words;
} cases[] = {
    CASE(forward_without_request, "forward: request is NULL"),
    CASE(adjoint_without_request, "adjoint: request is NULL"),
    CASE(forward_without_in, "forward: in is NULL"),
    CASE(forward_without_out, "is NULL, must hold"),
    CASE(forward_on_a_stream, "stream is not NULL"),
    CASE(forward_onto_itself, "overlap"),
    CASE(reduce_by_seven, "reduction is 7, must be 1 (max) or 2 (min)"),
    CASE(reduce_by_sum, "reduction is 0"),
    CASE(reduce_a_bridge, "does not exchange rows"),
    CASE(exchange_in_direction_seven, "direction is 7, must be 0"),
    CASE(exchange_backwards_by_one, "direction is -1"),
    CASE(exchange_without_outs, "out is NULL"),
    CASE(exchange_without_ins, "in is NULL"),
    CASE(exchange_without_one_in, "in is NULL, must hold"),
    CASE(coalesce_into_nothing, "out is NULL"),
    CASE(coalesce_without_the_first, "plan 0 is NULL"),
    CASE(coalesce_without_the_second, "plan 1 is NULL"),
    CASE(coalesce_none, "n is 0, must be in 1 to 64"),
    CASE(coalesce_too_many, "n is 65"),
    CASE(coalesce_a_foreign_one, "plan 1 is of another context"),
    CASE(transpose_into_nothing, "out is NULL"),
    CASE(transpose_what_accumulates, "accumulates"),
    CASE(compose_into_nothing, "out is NULL"),
    CASE(compose_without_the_first, "first is NULL"),
    CASE(compose_without_the_second, "second is NULL"),
    CASE(compose_with_a_foreign_one, "different contexts"),
    CASE(compose_what_accumulates, "first accumulates"),
    CASE(compose_what_does_not_fit, "elements"),
    CASE(restrict_into_nothing, "out is NULL"),
    CASE(restrict_a_bridge, "not one of swaps"),
    CASE(restrict_by_nothing, "keep is NULL"),
    CASE(flatten_into_nothing, "out is NULL"),
    CASE(flatten_pairs, "not one of swaps"),
    CASE(map_a_bridge_without_one, "has no row map"),
    CASE(map_variable_rows, "has no row map"),
    CASE(map_by_nothing, "row_owner is NULL"),
    CASE(count_a_bridge_without, "has no variable rows"),
    CASE(count_by_nothing, "rows of sample 0 are -1"),
    CASE(update_the_graph_of_a_bridge, "not one of a graph"),
    CASE(update_the_graph_by_nothing, "spec is NULL"),
    CASE(bridge_into_nothing, "out is NULL"),
    CASE(bridge_without_a_size, "spec->size is 0"),
    CASE(megatron_into_nothing, "out is NULL"),
    CASE(megatron_of_nothing, "spec is NULL"),
    CASE(redistribute_into_nothing, "out is NULL"),
    CASE(redistribute_nothing, "spec is NULL"),
    CASE(shape_by_nothing, "shape is NULL"),
    CASE(shape_of_rows, "must be bridge or redistribute"),
    CASE(shape_with_a_map, "the row map has"),
    CASE(graph_into_nothing, "out is NULL"),
    CASE(pairs_into_nothing, "out is NULL"),
    CASE(halo_into_nothing, "out is NULL"),
    CASE(bricks_into_nothing, "out is NULL"),
    CASE(read_into_nothing, "out is NULL"),
    CASE(read_from_nothing, "text is NULL"),
};

static bool all_bytes(const float *x, unsigned char byte) {
    bool same = true;
    for (size_t i = 0; i < all * sizeof *x; i++) {
        same &= ((const unsigned char *)x)[i] == byte;
    }
    return same;
}

/* Every rank has the values of all ranks. */
static void works(void) {
    int wrong = 0;
    memset(out, 0xa5, all * sizeof *out);
    MADE(lierne_plan_forward(first, out, in, NULL));
    for (size_t i = 0; i < all; i++) {
        wrong += out[i] != (float)(i + 1);
    }
    CHECK(wrong == 0, "%d wrong elements", wrong);
}

static void try_case(size_t i, int who) {
    char name[16];
    size_t before = lierne_mem_live();
    memset(out, 0x5a, all * sizeof *out);
    memset(more, 0x5a, all * sizeof *more);
    snprintf(name, sizeof name, "rank %d:", who);
    lierne_status wanted =
        cases[i].call == forward_on_a_stream ? LIERNE_ERR_UNSUPPORTED : LIERNE_ERR_INVALID;
    test_same_error(cases[i].call(test_rank == who), wanted, cases[i].name);
    CHECK(strstr(lierne_last_error(), cases[i].words), "%s: '%s' is not in '%s'", cases[i].name,
          cases[i].words, lierne_last_error());
    CHECK(test_world == 1 || strstr(lierne_last_error(), name), "%s: '%s' is not in '%s'",
          cases[i].name, name, lierne_last_error());
    CHECK(all_bytes(out, 0x5a) && all_bytes(more, 0x5a), "%s: data moved", cases[i].name);
    CHECK(lierne_mem_live() == before, "%s: %zu allocations, then %zu", cases[i].name, before,
          lierne_mem_live());
    works();
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    set_up();
    works();
    MADE(megatron(false, true)); /* the context keeps its list of groups */
    int some[] = {0, test_world / 2, test_world - 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int k = 0; k < 3; k++) {
            if (k == 0 || some[k] != some[k - 1]) {
                try_case(i, some[k]);
            }
        }
    }
    tear_down();
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
