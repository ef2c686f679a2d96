/* What a binding asks of its handles: a plan's context, dtype, kind and memory, opaque elements, a
 * rank that gives up, and a world destroyed with all that was made from it. */
#include "base/base.h"
#include "layouts.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "ranks.h"
#include "runtime/control/control.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { WORLD = 4, SAMPLES = 8, WIDTH = 3 };

static const int64_t shape[2] = {SAMPLES, WIDTH};
static lierne_bridge_spec bridge_of(const lierne_grid *src, const lierne_grid *dst,
                                    lierne_dtype dtype) {
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    spec.src = src;
    spec.dst = dst;
    spec.naxes = 2;
    spec.shape = shape;
    spec.dtype = dtype;
    return spec;
}

static lierne_sim *world(void) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 20};
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, WORLD, &spec));
    return sim;
}

/* What rank 0 of a world of one gets. */
static void expect_kind(lierne_context *context, lierne_plan *plan, const char *kind,
                        lierne_dtype dtype) {
    lierne_dtype got = LIERNE_DTYPE_U8;
    cr_assert_eq(lierne_plan_get_context(plan), context);
    assert_ok(lierne_plan_get_dtype(&got, plan));
    cr_assert_eq(got, dtype);
    cr_assert_str_eq(lierne_plan_get_kind(plan), kind);
    cr_assert_str_eq(lierne_plan_get_memory_kind(plan), "host");
}

Test(handles, a_plan_says_what_it_is) {
    const lierne_placement placements[3] = {{.kind = LIERNE_PLACEMENT_REPLICATE}};
    const int32_t owner[2] = {0};
    lierne_context *context;
    lierne_grid *g = grid_of(1, 1, 1, 1);
    lierne_layout *l = layout_on(g, LIERNE_DTYPE_I8, 2, shape, placements);
    lierne_plan *plans[8];
    assert_ok(lierne_context_create_self(&context, NULL));
    const lierne_redistribute_spec r = {.size = sizeof r, .src = l, .dst = l};
    const lierne_bridge_spec b = bridge_of(g, g, LIERNE_DTYPE_BF16);
    const lierne_megatron_spec m = {sizeof m, LIERNE_MEGATRON_ALGORITHM_COLLECTIVE, &b};
    lierne_graph_spec graph = LIERNE_GRAPH_SPEC_INIT;
    lierne_references_spec references = LIERNE_REFERENCES_SPEC_INIT;
    lierne_halo_spec halo = LIERNE_HALO_SPEC_INIT;
    graph.nrows = references.nowned = halo.nlocal = 2;
    graph.owner = owner;
    graph.dtype = references.dtype = halo.dtype = LIERNE_DTYPE_F64;
    assert_ok(lierne_plan_create_redistribute(&plans[0], context, &r));
    assert_ok(lierne_plan_create_bridge(&plans[1], context, &b));
    assert_ok(lierne_plan_create_megatron(&plans[2], context, &m));
    assert_ok(lierne_plan_create_graph(&plans[3], context, &graph));
    assert_ok(lierne_plan_create_references(&plans[4], context, &references));
    assert_ok(lierne_plan_create_halo(&plans[5], context, &halo));
    assert_ok(lierne_plan_create_transposed(&plans[6], plans[1]));
    assert_ok(lierne_plan_create_composed(&plans[7], plans[6], plans[1]));
    expect_kind(context, plans[0], "redistribute", LIERNE_DTYPE_I8);
    expect_kind(context, plans[1], "bridge", LIERNE_DTYPE_BF16);
    expect_kind(context, plans[2], "megatron", LIERNE_DTYPE_BF16);
    expect_kind(context, plans[3], "graph", LIERNE_DTYPE_F64);
    expect_kind(context, plans[4], "references", LIERNE_DTYPE_F64);
    expect_kind(context, plans[5], "halo", LIERNE_DTYPE_F64);
    expect_kind(context, plans[6], "transposed", LIERNE_DTYPE_BF16);
    expect_kind(context, plans[7], "composed", LIERNE_DTYPE_BF16);
    lierne_dtype dtype;
    cr_assert_eq(lierne_plan_get_dtype(NULL, plans[0]), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_plan_get_dtype(&dtype, NULL), LIERNE_ERR_INVALID);
    cr_assert(!lierne_plan_get_context(NULL) && !lierne_plan_get_kind(NULL) &&
              !lierne_plan_get_memory_kind(NULL) && lierne_plan_get_number(NULL) == -1);
    assert_ok(lierne_context_destroy_all(context));
    lierne_layout_destroy(l);
    lierne_grid_destroy(g);
}

Test(handles, a_world_is_destroyed_with_what_was_made_from_it) {
    size_t live = lierne_mem_live();
    lierne_grid *src = grid_of(1, 1, 4, WORLD), *dst = grid_of(4, 1, 1, WORLD);
    lierne_sim *sim = world();
    lierne_request *requests[WORLD];
    float in[SAMPLES / 4 * WIDTH], out[WORLD][SAMPLES * WIDTH];
    lierne_bridge_spec spec = bridge_of(src, dst, LIERNE_DTYPE_F32);
    for (int i = 0; i < SAMPLES / 4 * WIDTH; i++) {
        in[i] = (float)(i + 1);
    }
    for (int r = 0; r < WORLD; r++) {
        lierne_plan *plan, *other;
        lierne_coalesced *both;
        lierne_context *context = lierne_sim_get_context(sim, r);
        assert_ok(lierne_plan_create_bridge(&plan, context, &spec));
        assert_ok(lierne_plan_create_bridge(&other, context, &spec));
        assert_ok(lierne_coalesced_create(&both, (lierne_plan *[]){plan, other}, 2));
        assert_ok(lierne_plan_forward_begin(&requests[r], plan, out[r], in, NULL));
    }
    assert_error(lierne_context_destroy_all(lierne_sim_get_context(sim, 0)), LIERNE_ERR_INVALID,
                 "lierne_sim_destroy_all");
    cr_assert_eq(lierne_sim_destroy_all(sim), LIERNE_ERR_BUSY);
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
    assert_error(lierne_sim_destroy(sim), LIERNE_ERR_INVALID, "3 plans and 0 groups of rank 0");
    assert_ok(lierne_sim_destroy_all(sim));
    assert_ok(lierne_sim_destroy_all(NULL));
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
    cr_assert_eq(lierne_mem_live(), live);
}

Test(handles, a_context_is_destroyed_with_its_groups) {
    size_t live = lierne_mem_live();
    const int rank = 0;
    const lierne_group_spec spec = {
        .size = sizeof spec, .purpose = "ep", .ngroups = 1, .group_size = 1, .ranks = &rank};
    lierne_context *context;
    lierne_group *group;
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_group_create(&group, context, &spec));
    assert_error(lierne_context_destroy(context), LIERNE_ERR_INVALID,
                 "1 groups of the context are alive");
    assert_ok(lierne_context_destroy_all(context));
    cr_assert_eq(lierne_mem_live(), live);
}

typedef struct shared {
    const lierne_grid *src, *dst;
    lierne_status status[WORLD];
    char text[WORLD][512];
} shared;

/* Rank 1 gives up; the others wait for it in an execution. */
static void give_up(lierne_context *context, void *arg) {
    shared *s = arg;
    int rank = lierne_context_get_rank(context);
    lierne_bridge_spec spec = bridge_of(s->src, s->dst, LIERNE_DTYPE_F32);
    lierne_plan *plan;
    float in[SAMPLES / 4 * WIDTH] = {1}, out[SAMPLES * WIDTH];
    if (lierne_plan_create_bridge(&plan, context, &spec) == LIERNE_OK) {
        if (rank == 1) {
            lierne_context_abort(context, LIERNE_ERR_IO, "the disk is full");
        }
        s->status[rank] = lierne_plan_forward(plan, out, in, NULL);
        snprintf(s->text[rank], sizeof s->text[rank], "%s", lierne_last_error());
        lierne_plan_destroy(plan);
    }
}

Test(handles, ranks_that_wait_learn_why_another_gave_up) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    lierne_grid *src = grid_of(1, 1, 4, WORLD), *dst = grid_of(4, 1, 1, WORLD);
    shared s = {.src = src, .dst = dst};
    double start = lierne_now();
    ranks_run(WORLD, &spec, give_up, &s);
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(s.status[r], LIERNE_ERR_IO, "rank %d: %s", r, s.text[r]);
        cr_assert(strstr(s.text[r], "the disk is full"), "%s", s.text[r]);
        cr_assert((r == 1) == !strstr(s.text[r], "gave up"), "%s", s.text[r]);
    }
    cr_assert_lt(lierne_now() - start, 30, "not at the deadline");
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

/* Both directions of a bridge of opaque elements, gathered forward and taken from one of the equal
 * gradients backward. The hidden axis is cut among tp, so that rows are strided. */
static void copies(lierne_dtype dtype, size_t size) {
    enum { OWN = SAMPLES / 4 * WIDTH, ALL = SAMPLES * WIDTH };
    static const lierne_placement hidden[3] = {{.kind = LIERNE_PLACEMENT_SHARD, .axis = 1}};
    lierne_grid *src = grid_of(1, 1, 4, WORLD), *dst = grid_of(2, 1, 2, WORLD);
    lierne_sim *sim = world();
    lierne_bridge_spec spec = bridge_of(src, dst, dtype);
    lierne_plan *plans[WORLD];
    lierne_request *requests[WORLD];
    unsigned char in[WORLD][OWN * 16], out[WORLD][ALL * 16], back[WORLD][OWN * 16];
    spec.dst_placements = hidden;
    for (int r = 0; r < WORLD; r++) {
        for (size_t i = 0; i < OWN * size; i++) {
            in[r][i] = (unsigned char)(7 * i + 13 * (size_t)r + 1);
        }
        memset(out[r], 0xa5, sizeof out[r]), memset(back[r], 0xa5, sizeof back[r]);
        assert_ok(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    for (int r = 0; r < WORLD; r++) {
        lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL);
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
    for (int r = 0; r < WORLD; r++) { /* tp rank r % 2 has 2 or 1 of the 3 columns */
        int columns = r % 2 ? 1 : 2, first = r % 2 ? 2 : 0;
        for (int b = 0; b < SAMPLES / 2; b++) {
            int sample = r / 2 * (SAMPLES / 2) + b;
            const unsigned char *row = in[sample / 2] + (size_t)(sample % 2 * WIDTH + first) * size;
            cr_assert_eq(memcmp(out[r] + (size_t)(b * columns) * size, row, (size_t)columns * size),
                         0, "rank %d sample %d", r, b);
        }
    }
    for (int r = 0; r < WORLD; r++) {
        lierne_plan_adjoint_begin(&requests[r], plans[r], back[r], out[r], NULL);
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_request_end(requests[r]));
        cr_assert_eq(memcmp(back[r], in[r], OWN * size), 0, "the adjoint, rank %d", r);
    }
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

Test(handles, opaque_elements_are_copied_bit_for_bit) {
    static const char *const names[] = {"bits8", "bits16", "bits32", "bits64", "bits128"};
    for (int i = 0; i < 5; i++) {
        lierne_dtype dtype = (lierne_dtype)(LIERNE_DTYPE_BITS8 + i), parsed;
        cr_assert_eq(lierne_dtype_size(dtype), (size_t)1 << i);
        cr_assert_str_eq(lierne_dtype_name(dtype), names[i]);
        assert_ok(lierne_dtype_parse(&parsed, names[i]));
        cr_assert_eq(parsed, dtype);
        copies(dtype, (size_t)1 << i);
    }
    cr_assert_eq(lierne_dtype_size((lierne_dtype)(LIERNE_DTYPE_BITS128 + 1)), 0);
}

Test(handles, opaque_elements_cannot_be_summed) {
    lierne_grid *src = grid_of(1, 1, 4, WORLD), *dst = grid_of(1, 2, 2, WORLD);
    lierne_sim *sim = world();
    lierne_bridge_spec spec = bridge_of(src, dst, LIERNE_DTYPE_BITS16);
    lierne_plan *plan;
    cr_assert_eq(lierne_plan_create_bridge(&plan, lierne_sim_get_context(sim, 0), &spec),
                 LIERNE_ERR_INVALID);
    cr_assert_null(plan);
    assert_says("the adjoint sums contributions, but dtype bits16");
    lierne_sim_destroy_all(sim);
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

Test(handles, opaque_rows_are_copied_or_rejected) {
    const int32_t rank[3] = {0, 0, 0};
    const int64_t once[2] = {2, 0}, twice[3] = {2, 0, 2};
    unsigned char in[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, out[6], back[9];
    lierne_context *context;
    lierne_plan *plan;
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    spec.nowned = 3, spec.nghosts = 2, spec.rank = rank, spec.row = once;
    spec.dtype = LIERNE_DTYPE_BITS8, spec.width = 3;
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_plan_create_references(&plan, context, &spec));
    assert_ok(lierne_plan_forward(plan, out, in, NULL));
    cr_assert_eq(memcmp(out, "\7\10\11\1\2\3", 6), 0);
    assert_ok(lierne_plan_adjoint(plan, back, out, NULL));
    cr_assert_eq(memcmp(back, "\1\2\3\0\0\0\7\10\11", 9), 0);
    assert_error(lierne_plan_reduce(plan, LIERNE_REDUCTION_MAX, back, out, NULL),
                 LIERNE_ERR_INVALID, "dtype bits8 can only be copied");
    spec.nghosts = 3, spec.row = twice;
    lierne_plan *sums;
    assert_error(lierne_plan_create_references(&sums, context, &spec), LIERNE_ERR_INVALID,
                 "the adjoint sums");
    spec.nghosts = 2, spec.row = once, spec.combined = 1;
    cr_assert_eq(lierne_plan_create_references(&sums, context, &spec), LIERNE_ERR_INVALID);
    assert_ok(lierne_context_destroy_all(context));
}

static void passes_on(int rank, const char *message, const char *text) {
    cr_assert_eq(lierne_control_gave_up(LIERNE_ERR_TIMEOUT, rank, message), LIERNE_ERR_TIMEOUT);
    cr_assert_str_eq(lierne_error_text(), text);
}

/* An error that ranks pass on keeps the message of the first one. */
Test(handles, an_error_that_is_passed_on_names_its_first_rank) {
    passes_on(7, "X", "rank 7 gave up: X");
    passes_on(2, "rank 7 gave up: X", "rank 7 gave up: X (reported by rank 2)");
    passes_on(0, "rank 7 gave up: X (reported by rank 2)",
              "rank 7 gave up: X (reported by ranks 2 and 0)");
    passes_on(5, "rank 7 gave up: X (reported by ranks 2 and 0)",
              "rank 7 gave up: X (reported by ranks 2 and 0)");
    passes_on(3, "rank 7: X", "rank 3 gave up: rank 7: X");
    passes_on(2, "lierne_plan_adjoint: rank 7 gave up: lierne_plan_forward: X",
              "rank 7 gave up: lierne_plan_forward: X (reported by rank 2)");
    passes_on(2, "lierne_context_abort: lierne_plan_adjoint: rank 7 gave up: X",
              "rank 7 gave up: X (reported by rank 2)");
    passes_on(3, "lierne_plan_forward: X", "rank 3 gave up: lierne_plan_forward: X");
}

/* Rank r waits for rank r + 1 only, and the last one for none: it gives up. */
Test(handles, an_error_that_travels_along_ranks_is_told_once) {
    enum { N = 4 };
    lierne_sim *sim;
    lierne_plan *plans[N - 1];
    float in[2] = {1, 2}, out[2];
    assert_ok(lierne_sim_create(&sim, N, NULL));
    for (int pair = 0; pair < N - 1; pair++) {
        int ranks[2] = {pair, pair + 1};
        lierne_all_reduce_spec spec = {.size = sizeof spec,
                                       .count = 2,
                                       .dtype = LIERNE_DTYPE_F32,
                                       .ranks = ranks,
                                       .nranks = 2};
        for (int r = 0; r < N; r++) {
            lierne_plan *plan;
            assert_ok(lierne_plan_create_all_reduce(&plan, lierne_sim_get_context(sim, r), &spec));
            plans[pair] = r == pair ? plan : plans[pair];
        }
    }
    lierne_context_abort(lierne_sim_get_context(sim, N - 1), LIERNE_ERR_IO, "the disk is full");
    for (int r = N - 2; r >= 0; r--) {
        cr_assert_eq(lierne_plan_forward(plans[r], out, in, NULL), LIERNE_ERR_IO);
    }
    cr_assert_str_eq(lierne_last_error(),
                     "lierne_plan_forward: rank 3 gave up: lierne_context_abort: the disk is full "
                     "(reported by ranks 2 and 1)");
    assert_ok(lierne_sim_destroy_all(sim));
}
