/* Runs a bridge on a simulated world: plans rank by rank, begins on all ranks, ends on all, and
 * compares. Outputs are filled with a pattern before, inputs are compared after. */
#include "simulate.h"

#include "route_executor.h"
#include "routing.h"
#include "streams.h"
#include "transports.h"

#include <stdlib.h>
#include <string.h>

/* A buffer of a rank: the values it has or must have, and the memory that lierne sees. */
typedef struct buffer {
    int64_t n;
    int64_t shape[3];
    int64_t *values;
    void *memory;
} buffer;

typedef struct rank_state {
    lierne_plan *plan;
    lierne_request *request;
    buffer in;
    buffer out;
} rank_state;

static bool make_buffer(buffer *b, const golden_bridge *bridge, golden_buffer which, int rank) {
    b->values = golden_values(bridge, which, rank, &b->n, b->shape);
    b->memory = malloc((size_t)(b->n + 1) * 8);
    return b->values && b->memory;
}

static void free_buffer(buffer *b) {
    free(b->values);
    free(b->memory);
    *b = (buffer){0};
}

static void expect_values(golden_case *c, const golden_bridge *bridge, const char *what, int rank,
                          const buffer *expected, const void *memory) {
    for (int64_t i = 0; i < expected->n; i++) {
        double got = number_get(bridge->dtype, memory, i);
        if (got < (double)expected->values[i] || got > (double)expected->values[i] || got != got) {
            golden_expect(c, false, "%s on rank %d: element %lld is %.17g, expected %lld", what,
                          rank, (long long)i, got, (long long)expected->values[i]);
            return;
        }
    }
}

/* What lierne calls the shape of a buffer: two axes where it was told of two. */
static void expect_shape(golden_case *c, const golden_bridge *bridge, const char *what, int rank,
                         const buffer *expected, const int64_t *got) {
    int64_t shape[3];
    memcpy(shape, expected->shape, sizeof shape);
    if (bridge->flat && bridge->order[0] == 'h') {
        shape[1] *= shape[2];
    } else if (bridge->flat) {
        shape[0] *= shape[1];
        shape[1] = shape[2];
    }
    golden_expect(c, memcmp(shape, got, (bridge->flat ? 2 : 3) * sizeof *shape) == 0,
                  "%s on rank %d: shape %lld,%lld,..., expected %lld,%lld,...", what, rank,
                  (long long)got[0], (long long)got[1], (long long)shape[0], (long long)shape[1]);
}

static bool expect_sizes(golden_case *c, const golden_bridge *bridge, const rank_state *state,
                         lierne_direction direction, int rank) {
    int64_t in = -1, out = -1, in_shape[LIERNE_MAX_AXES] = {0}, out_shape[LIERNE_MAX_AXES] = {0};
    int naxes = 0;
    lierne_status status = lierne_plan_get_elements(&in, &out, state->plan, direction);
    golden_expect_status(c, "lierne_plan_get_elements", status, LIERNE_OK);
    status = lierne_plan_get_shape(&naxes, in_shape, out_shape, state->plan, direction);
    golden_expect_status(c, "lierne_plan_get_shape", status, LIERNE_OK);
    golden_expect(c, naxes == (bridge->flat ? 2 : 3), "%d axes", naxes);
    expect_shape(c, bridge, direction ? "adjoint in" : "forward in", rank, &state->in, in_shape);
    expect_shape(c, bridge, direction ? "adjoint out" : "forward out", rank, &state->out,
                 out_shape);
    return golden_expect(c, in == state->in.n && out == state->out.n,
                         "%s on rank %d: %lld elements in, %lld out, expected %lld and %lld",
                         direction ? "adjoint" : "forward", rank, (long long)in, (long long)out,
                         (long long)state->in.n, (long long)state->out.n);
}

/* A result that lies in the input already must lie there truly. */
static void expect_view(golden_case *c, const golden_bridge *bridge, const rank_state *state,
                        lierne_direction direction, int rank) {
    int64_t offset;
    size_t bytes = lierne_dtype_size(bridge->dtype);
    lierne_status status = lierne_plan_get_alias(&offset, state->plan, direction);
    golden_expect_status(c, "lierne_plan_get_alias", status, LIERNE_OK);
    if (offset >= 0 &&
        golden_expect(c, offset + state->out.n <= state->in.n, "view at %lld of %lld",
                      (long long)offset, (long long)state->in.n)) {
        expect_values(c, bridge, "view", rank, &state->out,
                      (const char *)state->in.memory + (size_t)offset * bytes);
    }
}

static bool begin(golden_case *c, const golden_bridge *bridge, rank_state *state,
                  lierne_direction direction, int rank) {
    golden_buffer in = direction ? GOLDEN_OUTPUT_GRADIENT : GOLDEN_INPUT;
    golden_buffer out = direction ? GOLDEN_INPUT_GRADIENT : GOLDEN_OUTPUT;
    if (!golden_expect(c,
                       make_buffer(&state->in, bridge, in, rank) &&
                           make_buffer(&state->out, bridge, out, rank),
                       "no memory") ||
        !expect_sizes(c, bridge, state, direction, rank)) {
        return false;
    }
    for (int64_t i = 0; i < state->in.n; i++) {
        number_put(bridge->dtype, state->in.memory, i, (double)state->in.values[i]);
    }
    memset(state->out.memory, 0xa5, (size_t)(state->out.n + 1) * 8);
    lierne_status (*start)(lierne_request **, lierne_plan *, void *, const void *, void *) =
        direction ? lierne_plan_adjoint_begin : lierne_plan_forward_begin;
    lierne_status status =
        start(&state->request, state->plan, state->out.memory, state->in.memory, NULL);
    return golden_expect_status(c,
                                direction ? "lierne_plan_adjoint_begin"
                                          : "lierne_plan_forward_begin",
                                status, LIERNE_OK);
}

static void run(golden_case *c, const golden_bridge *bridge, rank_state *ranks, int world,
                lierne_direction direction) {
    bool begun = true;
    for (int r = 0; r < world && begun; r++) {
        begun = begin(c, bridge, &ranks[r], direction, r);
    }
    for (int r = 0; r < world && begun; r++) {
        lierne_status status = lierne_request_end(ranks[r].request);
        golden_expect_status(c, "lierne_request_end", status, LIERNE_OK);
    }
    for (int r = 0; r < world; r++) {
        if (begun) {
            expect_values(c, bridge, direction ? "input gradient" : "forward", r, &ranks[r].out,
                          ranks[r].out.memory);
            expect_values(c, bridge, "input afterwards", r, &ranks[r].in, ranks[r].in.memory);
            expect_view(c, bridge, &ranks[r], direction, r);
        }
        free_buffer(&ranks[r].in);
        free_buffer(&ranks[r].out);
    }
}

static void fill_tensor(lierne_bridge_spec *spec, const golden_bridge *bridge, int64_t *shape) {
    int b = (int)(strchr(bridge->order, 'b') - bridge->order);
    int s = (int)(strchr(bridge->order, 's') - bridge->order);
    for (int a = 0; a < 3; a++) {
        shape[a] = a == b ? bridge->samples : a == s ? bridge->length : bridge->width;
    }
    spec->naxes = 3;
    spec->shape = shape;
    spec->batch_axis = b;
    spec->sequence_axis = s;
    if (bridge->flat) {
        shape[b] *= bridge->length;
        shape[1] = shape[b == 0 ? 2 : 1];
        spec->naxes = 2;
        spec->sequence_axis = -1;
    }
}

/* Plans on every rank; the outcome must be the same everywhere. */
static lierne_status plan_all(golden_case *c, lierne_sim *sim, const golden_bridge *bridge,
                              rank_state *ranks, int world) {
    int64_t shape[3];
    int32_t *rows = bridge->owner == LIERNE_GRADIENT_OWNER_ROWS ? golden_row_owners(bridge) : NULL;
    lierne_status first = LIERNE_OK;
    lierne_bridge_spec spec = {.size = sizeof spec,
                               .src = bridge->src,
                               .dst = bridge->dst,
                               .dtype = bridge->dtype,
                               .gradient_owner = bridge->owner,
                               .gradient_storage = bridge->storage,
                               .row_owner = rows,
                               .require_divisible = bridge->divisible,
                               .routing = test_routing(),
                               .max_peers =
                                   bridge->algorithm == TEST_DIRECT ? test_max_peers(world) : 0};
    fill_tensor(&spec, bridge, shape);
    for (int r = 0; r < world; r++) {
        lierne_status status = test_plan_bridge(&ranks[r].plan, lierne_sim_get_context(sim, r),
                                                &spec, bridge->algorithm);
        first = r == 0 ? status : first;
        golden_expect(c, status == first, "planning gives %s on rank 0, %s on rank %d",
                      lierne_status_name(first), lierne_status_name(status), r);
    }
    free(rows);
    return first;
}

/* With lierne and from the routes alone. */
static const char *compare_routes(const rank_state *ranks, int world) {
    lierne_plan **plans = golden_alloc(world, sizeof *plans);
    for (int r = 0; r < world; r++) {
        plans[r] = ranks[r].plan;
    }
    const char *fault = route_compare(plans, world);
    free(plans);
    return fault;
}

static void check_and_run(golden_case *c, const golden_bridge *bridge, rank_state *ranks,
                          int world) {
    const lierne_plan **plans = malloc((size_t)world * sizeof *plans);
    for (int r = 0; plans && r < world; r++) {
        plans[r] = ranks[r].plan;
    }
    lierne_status status = plans ? lierne_plan_check(plans, world) : LIERNE_ERR_NO_MEMORY;
    golden_expect_status(c, "lierne_plan_check", status, LIERNE_OK);
    free(plans);
    run(c, bridge, ranks, world, LIERNE_DIRECTION_FORWARD);
    run(c, bridge, ranks, world, LIERNE_DIRECTION_ADJOINT);
    const char *fault = status == LIERNE_OK ? compare_routes(ranks, world) : NULL;
    golden_expect(c, !fault, "%s", fault);
}

lierne_status golden_simulate(golden_case *c, const golden_bridge *bridge) {
    int world = lierne_grid_get_world_size(bridge->src);
    rank_state *ranks = calloc((size_t)world, sizeof *ranks);
    lierne_sim *sim = NULL;
    test_transports *transports = NULL;
    test_streams *streams = NULL;
    lierne_status status = ranks ? lierne_sim_create(&sim, world, NULL) : LIERNE_ERR_NO_MEMORY;
    if (status == LIERNE_OK) {
        transports = test_transports_attach_asked(sim, world);
        streams = test_streams_attach_asked(sim, world);
        status = plan_all(c, sim, bridge, ranks, world);
    }
    if (status == LIERNE_OK && !c->failed) {
        check_and_run(c, bridge, ranks, world);
    }
    for (int r = 0; ranks && r < world; r++) {
        lierne_status freed = lierne_plan_destroy(ranks[r].plan);
        golden_expect_status(c, "lierne_plan_destroy", freed, LIERNE_OK);
    }
    free(ranks);
    golden_expect_status(c, "lierne_sim_destroy", lierne_sim_destroy(sim), LIERNE_OK);
    golden_expect(c, test_transports_destroy(transports), "messages are left");
    test_streams_destroy(streams);
    return status;
}

static int64_t common_multiple(int64_t a, int64_t b) {
    int64_t m = a;
    while (m % b != 0) {
        m += a;
    }
    return m;
}

golden_bridge golden_small_tensor(const lierne_grid *src, const lierne_grid *dst) {
    return (golden_bridge){.src = src,
                           .dst = dst,
                           .samples = common_multiple(lierne_grid_find_dim_size(src, NULL, "dp"),
                                                      lierne_grid_find_dim_size(dst, NULL, "dp")),
                           .length = 2 * lierne_grid_find_dim_size(dst, NULL, "cp"),
                           .width = 1,
                           .order = "bsh",
                           .mode = GOLDEN_DENSE,
                           .dtype = LIERNE_DTYPE_I32};
}

void golden_try(golden_case *c, const char *what, const golden_bridge *bridge, lierne_status wanted,
                lierne_status or_else) {
    golden_case one = {.item = c->item};
    lierne_status status = golden_simulate(&one, bridge);
    if (status != or_else) {
        golden_expect_status(&one, "lierne_plan_create_bridge", status, wanted);
    }
    golden_expect(c, !one.failed, "%s: %s", what, one.why);
}
