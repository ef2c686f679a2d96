/* Outputs that the ranks of a node share: one memory for all that need the same, written once, and
 * still there when other ranks have gone on to the next call; rules and errors; nothing left. That
 * results are right over every kind of layout is for redistribute.c.
 *
 *   shared_output [ROUNDS | pairs]     pairs: two ranks to a node */
#include "mpi/common.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static lierne_context *context;

/* dp to dp1, so that all ranks need the whole tensor; with a hidden size that all of them divide
 * unevenly. */
static bridge_case fan_in(int64_t samples, lierne_sharing sharing) {
    bridge_case c = case_of_samples(test_world, 3, mesh_of("tcd", test_world, 1, 1));
    c.batch = samples, c.sequence = 5, c.sharing = sharing;
    return c;
}

static lierne_plan *make(const bridge_case *c) {
    lierne_plan *plan = NULL;
    CHECK_OK(case_plan(&plan, context, c));
    return plan;
}

static int64_t elements_of(const lierne_plan *plan, lierne_direction d, bool out) {
    int64_t n[2];
    CHECK_OK(lierne_plan_get_elements(&n[0], &n[1], plan, d));
    return n[out];
}

static float value(int rank, int64_t i, int round) {
    return (float)(1 + mix((uint64_t)(((int64_t)rank * 1000 + round) * 10000 + i)) % 997);
}

static void fill(float *in, int64_t n, int round) {
    for (int64_t i = 0; i < n; i++) {
        in[i] = value(test_rank, i, round);
    }
}

static int64_t count_wrong(const float *out, int64_t each, int round) {
    int64_t wrong = 0;
    for (int r = 0; r < test_world; r++) {
        for (int64_t i = 0; i < each; i++) {
            wrong += out[r * each + i] != value(r, i, round);
        }
    }
    return wrong;
}

static const float *result_of(const lierne_plan *plan, lierne_direction d) {
    const void *out = NULL;
    CHECK_OK(lierne_plan_get_shared_output(&out, plan, d));
    return out;
}

static void pause_at_random(uint64_t seed) {
    uint64_t draw = mix(seed * 64 + (uint64_t)test_rank) % 4;
    if (draw == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    } else if (draw == 1) {
        sched_yield();
    }
}

/* A rank reads a result late, when faster ranks have begun the next call, which writes. */
static void results_stay(int rounds, bool window) {
    const bridge_case c = fan_in(7 * test_world, LIERNE_SHARING_FORWARD);
    lierne_plan *plan = make(&c);
    int64_t n = elements_of(plan, LIERNE_DIRECTION_FORWARD, false), wrong = 0;
    void *in = malloc((size_t)n * sizeof(float));
    if (window) {
        free(in);
        CHECK_OK(lierne_context_alloc(&in, context, (size_t)n * sizeof(float)));
    }
    for (int round = 0; round < rounds; round++) {
        lierne_request *request;
        fill(in, n, round);
        pause_at_random((uint64_t)(3 * round));
        lierne_status status = lierne_plan_forward_begin(&request, plan, NULL, in, NULL);
        const float *begun = result_of(plan, LIERNE_DIRECTION_FORWARD);
        pause_at_random((uint64_t)(3 * round + 1));
        status = status == LIERNE_OK ? lierne_request_end(request) : status;
        pause_at_random((uint64_t)(3 * round + 2));
        const float *out = result_of(plan, LIERNE_DIRECTION_FORWARD);
        if (status != LIERNE_OK || !out || out != begun) {
            CHECK(false, "round %d: %p, %p: %s", round, (const void *)out, (const void *)begun,
                  lierne_last_error());
            break;
        }
        wrong += count_wrong(out, n, round);
    }
    CHECK(wrong == 0, "%lld values of %d rounds are wrong", (long long)wrong, rounds);
    CHECK_OK(lierne_plan_destroy(plan));
    if (window) {
        CHECK_OK(lierne_context_dealloc(context, in));
    } else {
        free(in);
    }
}

/* Ranks that share memory, on every node. */
static int node_ranks(void) {
    const char *text = getenv("LIERNE_TEST_NODE_RANKS");
    return !test_over_shm() ? 1 : text ? atoi(text) : test_world;
}

/* What the ranks write together is the output once per node, of which each writes its share, and
 * one element by which each tells each other one that it has written. */
static void written_once(void) {
    const bridge_case c = fan_in(2 * test_world, LIERNE_SHARING_FORWARD);
    lierne_plan *plan = make(&c);
    lierne_report report = {.size = sizeof report};
    const lierne_route *route;
    CHECK_OK(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
    int64_t all = elements_of(plan, LIERNE_DIRECTION_FORWARD, true) * (int64_t)sizeof(float);
    int64_t mine = report.received_bytes + report.local_bytes, sum = 0, near = node_ranks();
    int64_t wanted =
        near > 1 ? test_world / near * all + test_world * (near - 1) * (int64_t)sizeof(float)
                 : test_world * all;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == wanted, "%lld bytes are written, must be %lld for an output of %lld",
          (long long)sum, (long long)wanted, (long long)all);
    CHECK(near == 1 || (mine < all && report.min_bytes == 0), "%lld bytes, min_bytes %lld",
          (long long)mine, (long long)report.min_bytes);
    CHECK_OK(lierne_plan_get_route(&route, plan, LIERNE_DIRECTION_FORWARD));
    CHECK(route->elements[LIERNE_BUFFER_SCRATCH] == (near > 1 ? near : 0),
          "%lld elements of scratch", (long long)route->elements[LIERNE_BUFFER_SCRATCH]);
    CHECK_OK(lierne_plan_destroy(plan));
}

/* The output outlives the plan of the rank that created its memory. */
static void outlives_the_creator(void) {
    const bridge_case c = fan_in(test_world, LIERNE_SHARING_BOTH);
    lierne_plan *plan = make(&c);
    int64_t n = elements_of(plan, LIERNE_DIRECTION_FORWARD, false);
    float *in = malloc((size_t)n * sizeof *in);
    fill(in, n, 1);
    CHECK_OK(lierne_plan_forward(plan, NULL, in, NULL));
    const float *out = result_of(plan, LIERNE_DIRECTION_FORWARD);
    if (test_rank == 0) {
        CHECK(out && count_wrong(out, n, 1) == 0, "wrong before");
        CHECK_OK(lierne_plan_destroy(plan));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank != 0) {
        CHECK(out && count_wrong(out, n, 1) == 0, "wrong after its creator destroyed the plan");
        CHECK_OK(lierne_plan_destroy(plan));
    }
    free(in);
}

static void updated(void) {
    const bridge_case c = fan_in(test_world, LIERNE_SHARING_FORWARD);
    lierne_plan *plan = make(&c);
    for (int k = 2; k < 5; k++) {
        const int64_t shape[] = {k * test_world, 5, 3};
        CHECK_OK(lierne_plan_update_shape(plan, shape));
        CHECK(!result_of(plan, LIERNE_DIRECTION_FORWARD), "a result before the first call");
        int64_t n = elements_of(plan, LIERNE_DIRECTION_FORWARD, false);
        float *in = malloc((size_t)n * sizeof *in);
        for (int round = 0; round < 3; round++) {
            fill(in, n, round);
            CHECK_OK(lierne_plan_forward(plan, NULL, in, NULL));
            const float *out = result_of(plan, LIERNE_DIRECTION_FORWARD);
            CHECK(out && count_wrong(out, n, round) == 0, "wrong with %d samples", k);
        }
        free(in);
    }
    CHECK_OK(lierne_plan_destroy(plan));
}

static void expect(lierne_status status, lierne_status wanted, const char *words) {
    CHECK(status == wanted && strstr(lierne_last_error(), words), "%s (%s), not %s with '%s'",
          lierne_status_name(status), lierne_last_error(), lierne_status_name(wanted), words);
}

static void rejected_calls(void) {
    const bridge_case c = fan_in(test_world, LIERNE_SHARING_FORWARD);
    lierne_plan *plan = make(&c), *other;
    lierne_coalesced *coalesced;
    const void *out = plan;
    int64_t n = elements_of(plan, LIERNE_DIRECTION_FORWARD, false);
    float *in = malloc((size_t)n * sizeof *in);
    fill(in, n, 0);
    expect(lierne_plan_forward(plan, in, in, NULL), LIERNE_ERR_INVALID, "must be NULL");
    expect(lierne_plan_get_shared_output(&out, plan, LIERNE_DIRECTION_ADJOINT), LIERNE_ERR_INVALID,
           "shared_output of the plan's spec does not include it");
    CHECK(!out, "*out is not NULL after an error");
    expect(lierne_plan_get_shared_output(NULL, plan, LIERNE_DIRECTION_FORWARD), LIERNE_ERR_INVALID,
           "out is NULL");
    expect(lierne_plan_get_shared_output(&out, NULL, LIERNE_DIRECTION_FORWARD), LIERNE_ERR_INVALID,
           "plan is NULL");
    CHECK(!result_of(plan, LIERNE_DIRECTION_FORWARD), "a result before the first call");
    CHECK_OK(lierne_plan_forward(plan, NULL, in, NULL));
    expect(lierne_plan_forward(plan, NULL, result_of(plan, LIERNE_DIRECTION_FORWARD), NULL),
           LIERNE_ERR_INVALID, "overlaps with the plan's own output");
    test_same_error(lierne_coalesced_create(&coalesced, &plan, 1), LIERNE_ERR_INVALID, "coalesced");
    test_same_error(lierne_plan_create_transposed(&other, plan), LIERNE_ERR_INVALID, "transposed");
    test_same_error(lierne_plan_create_composed(&other, plan, plan), LIERNE_ERR_INVALID,
                    "composed");
    MPI_Barrier(MPI_COMM_WORLD); /* the output was another rank's, too */
    CHECK_OK(lierne_plan_destroy(plan));
    free(in);
}

/* Specs that ranks disagree on, and specs that are wrong. */
static void rejected_specs(void) {
    lierne_plan *plan;
    bool last = test_rank == test_world - 1;
    bridge_case c = fan_in(test_world, LIERNE_SHARING_FORWARD);
    if (test_world > 1) {
        c.sharing = last ? LIERNE_SHARING_NONE : LIERNE_SHARING_FORWARD;
        test_same_error(case_plan(&plan, context, &c), LIERNE_ERR_MISMATCH, "sharing differs");
        CHECK(!plan && strstr(lierne_last_error(), "shared_output differs between ranks"), "%s",
              lierne_last_error());
    }
    c.sharing = (lierne_sharing)4;
    test_same_error(case_plan(&plan, context, &c), LIERNE_ERR_INVALID, "sharing of 4");
    CHECK(strstr(lierne_last_error(), "shared_output is 4, must be in 0 to 3"), "%s",
          lierne_last_error());
    lierne_grid *src = mesh_grid(&c.src, test_world), *dst = mesh_grid(&c.dst, test_world);
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    spec.src = src, spec.dst = dst, spec.naxes = 3, spec.dtype = LIERNE_DTYPE_F32;
    spec.shape = (int64_t[]){test_world, 5, 3};
    spec.shared_output = LIERNE_SHARING_BOTH;
    spec.max_inflight = 2;
    test_same_error(lierne_plan_create_bridge(&plan, context, &spec), LIERNE_ERR_INVALID,
                    "inflight");
    spec.max_inflight = 1, spec.routing = LIERNE_ROUTING_BALANCED;
    test_same_error(lierne_plan_create_bridge(&plan, context, &spec), LIERNE_ERR_INVALID,
                    "balanced");
    spec.routing = LIERNE_ROUTING_AUTO, spec.variable_rows = 1, spec.sequence_axis = 1;
    test_same_error(lierne_plan_create_bridge(&plan, context, &spec), LIERNE_ERR_UNSUPPORTED,
                    "variable rows");
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

/* The rank that creates the memory gets none; every rank learns it, and the next plan is made. */
static void no_memory(void) {
    const bridge_case large = fan_in(40000 * test_world, LIERNE_SHARING_FORWARD);
    struct rlimit before, small;
    lierne_plan *plan;
    if (!test_over_shm() || test_world == 1) {
        return;
    }
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    small = before;
    small.rlim_cur = 2 << 20;
    if (test_rank == 0) {
        setrlimit(RLIMIT_FSIZE, &small);
    }
    lierne_status status = case_plan(&plan, context, &large);
    setrlimit(RLIMIT_FSIZE, &before);
    test_same_error(status, LIERNE_ERR_NO_MEMORY, "no memory for the output");
    CHECK(!plan, "a plan beside an error");
    CHECK_OK(lierne_plan_destroy(make(&large)));
}

static int count_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        n += strstr(line, "memfd:lierne") != NULL;
    }
    if (maps) {
        fclose(maps);
    }
    return n;
}

/* Rank 0 does not call. What MPI still sends to it, from the other node, may come from the output
 * of the plan: that stays mapped, also when all is destroyed. */
static void stays_after_an_error(void) {
    const bridge_case large = fan_in(8000 * test_world, LIERNE_SHARING_FORWARD);
    int before = count_mappings();
    context = test_context(PATIENT);
    lierne_plan *plan = make(&large);
    int64_t n = elements_of(plan, LIERNE_DIRECTION_FORWARD, false);
    float *in = test_buffer((size_t)n * sizeof *in);
    fill(in, n, 0);
    test_hurry(context, 0.3);
    lierne_request *request = NULL;
    CHECK(test_rank == 0 || lierne_plan_forward_begin(&request, plan, NULL, in, NULL) == LIERNE_OK,
          "%s", lierne_last_error());
    MPI_Barrier(MPI_COMM_WORLD); /* nobody fails before all have posted */
    if (test_rank > 0) {
        lierne_status status = lierne_request_end(request);
        CHECK(status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED, "%s",
              lierne_last_error());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK_OK(lierne_context_destroy(context));
    CHECK(test_rank < node_ranks() || count_mappings() > before, "%d mappings, %d before",
          count_mappings(), before);
}

int main(int argc, char **argv) {
    bool pairs = argc > 1 && strcmp(argv[1], "pairs") == 0;
    if (pairs) {
        setenv("LIERNE_TEST_NODE_RANKS", "2", 1);
    }
    test_start(&argc, &argv);
    int rounds = argc > 1 && !pairs ? atoi(argv[1]) : 300;
    size_t before = lierne_mem_live();
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    updated(); /* maps what the context keeps */
    results_stay(rounds, false);
    results_stay(rounds, true);
    int mapped = count_mappings();
    results_stay(3, true);
    written_once();
    outlives_the_creator();
    rejected_calls();
    rejected_specs();
    no_memory();
    CHECK(count_mappings() == mapped, "%d mappings, %d before", count_mappings(), mapped);
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    if (pairs) {
        stays_after_an_error();
    }
    return test_finish();
}
