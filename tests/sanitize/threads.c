/* A thread per rank of one simulated world, for the thread sanitizer: a plain program, because
 * Criterion does not run under it. Planning, blocking calls, requests that overlap, a rank that
 * calls late, a rank that never calls, calls that differ, graphs that change, runs with threads of
 * their own, a watchdog. Values are checked against closed forms. */
#include "algorithm.h"
#include "base/base.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "runtime/context/watchdog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define RANKS  8
#define ROUNDS 50

static atomic_int counts[2]; /* failed, passed */
static atomic_int timeouts;

#define CHECK(ok) check((ok), __LINE__, #ok)
static void check(bool ok, int line, const char *text) {
    atomic_fetch_add(&counts[ok], 1);
    if (!ok) {
        fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, line, text, lierne_last_error());
    }
}

typedef struct worker {
    pthread_t thread;
    lierne_context *context;
    const lierne_bridge_spec *spec;
} worker;

/* Runs work in a thread per rank. A world with dead contexts can be destroyed like any other. */
static void run(const lierne_bridge_spec *spec, const lierne_context_spec *context,
                void *(*work)(void *)) {
    worker workers[RANKS];
    lierne_sim *sim;
    CHECK(lierne_sim_create(&sim, RANKS, context) == LIERNE_OK);
    for (int r = 0; r < RANKS; r++) {
        workers[r] = (worker){.context = lierne_sim_get_context(sim, r), .spec = spec};
        CHECK(pthread_create(&workers[r].thread, NULL, work, &workers[r]) == 0);
    }
    for (int r = 0; r < RANKS; r++) {
        CHECK(pthread_join(workers[r].thread, NULL) == 0);
    }
    CHECK(lierne_sim_destroy(sim) == LIERNE_OK);
}

static test_algorithm algorithm; /* of all bridges of a round */

static lierne_plan *plan_of(const worker *w) {
    lierne_plan *plan = NULL;
    CHECK(test_plan_bridge(&plan, w->context, w->spec, algorithm) == LIERNE_OK);
    return plan;
}

/* [b, s, h] = [8, 4, 2], tp2 dp4 -> tp2 cp2 dp2: 16 elements in, 32 out. */
enum { IN = 16, OUT = 32 };

static void fill(float *in, int rank, int round) {
    for (int k = 0; k < IN; k++) {
        in[k] = (float)(IN * (rank / 2) + k + round);
    }
}

static void check_forward(const float *out, int rank, int round) {
    bool right = true;
    for (int k = 0; k < OUT; k++) {
        right = right && out[k] == (float)(OUT * (rank / 4) + k + round);
    }
    CHECK(right);
}

/* Both cp ranks have the same gradient, and the adjoint is their sum. */
static void check_adjoint(const float *back, const float *in) {
    bool right = true;
    for (int k = 0; k < IN; k++) {
        right = right && back[k] == 2 * in[k];
    }
    CHECK(right);
}

static void pause_for(double seconds) {
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

static void *blocking(void *arg) {
    const worker *w = arg;
    lierne_plan *plan = plan_of(w);
    float in[IN], out[OUT], back[IN];
    int rank = lierne_context_get_rank(w->context);
    for (int i = 0; i < ROUNDS; i++) {
        fill(in, rank, i);
        if (i % RANKS == rank) {
            pause_for(0.001);
        }
        CHECK(lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK);
        check_forward(out, rank, i);
        CHECK(lierne_plan_adjoint(plan, back, out, NULL) == LIERNE_OK);
        check_adjoint(back, in);
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK);
    return NULL;
}

/* Two forwards and two adjoints in flight at once, ended in another order. */
static void *overlapping(void *arg) {
    const worker *w = arg;
    lierne_plan *plan = plan_of(w);
    float in[2][IN], out[2][OUT], back[2][IN];
    int rank = lierne_context_get_rank(w->context);
    for (int i = 0; i < ROUNDS; i++) {
        lierne_request *request[2];
        for (int k = 0; k < 2; k++) {
            fill(in[k], rank, i + k);
            CHECK(lierne_plan_forward_begin(&request[k], plan, out[k], in[k], NULL) == LIERNE_OK);
        }
        CHECK(lierne_request_end(request[1]) == LIERNE_OK &&
              lierne_request_end(request[0]) == LIERNE_OK);
        for (int k = 0; k < 2; k++) {
            check_forward(out[k], rank, i + k);
            CHECK(lierne_plan_adjoint_begin(&request[k], plan, back[k], out[k], NULL) == LIERNE_OK);
        }
        CHECK(lierne_request_end(request[0]) == LIERNE_OK &&
              lierne_request_end(request[1]) == LIERNE_OK);
        check_adjoint(back[0], in[0]);
        check_adjoint(back[1], in[1]);
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK);
    return NULL;
}

/* Rank 0 plans and does not execute: its group waits until the deadline, the others succeed. */
static void *deserted(void *arg) {
    const worker *w = arg;
    lierne_plan *plan = plan_of(w);
    float in[IN] = {0}, out[OUT];
    char dump[512];
    int rank = lierne_context_get_rank(w->context);
    if (rank != 0) {
        lierne_status status = lierne_plan_forward(plan, out, in, NULL);
        CHECK(status == LIERNE_OK || (status == LIERNE_ERR_TIMEOUT && rank < 4));
        atomic_fetch_add(&timeouts, status == LIERNE_ERR_TIMEOUT);
        CHECK(lierne_context_dump(dump, sizeof dump, w->context) == LIERNE_OK);
        CHECK((strstr(dump, "waits for rank 0") != NULL) == (status == LIERNE_ERR_TIMEOUT));
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK);
    return NULL;
}

/* A graph whose rows move to the next rank every round; everybody needs every second row. */
enum { NROWS = 3 * RANKS };
typedef struct ring {
    int32_t owner[NROWS];
    int64_t source[NROWS / 2];
    int64_t target[NROWS / 2];
} ring;

static lierne_graph_spec turn_ring(ring *g, int rank, int round) {
    for (int i = 0; i < NROWS; i++) {
        g->owner[i] = (i / 3 + round) % RANKS;
    }
    for (int e = 0; e < NROWS / 2; e++) {
        g->source[e] = 2 * e;
        g->target[e] = 3 * ((rank - round % RANKS + RANKS) % RANKS);
    }
    return (lierne_graph_spec){.size = sizeof(lierne_graph_spec),
                               .nrows = NROWS,
                               .owner = g->owner,
                               .nedges = NROWS / 2,
                               .source = g->source,
                               .target = g->target,
                               .dtype = LIERNE_DTYPE_I64,
                               .width = 1};
}

/* Each ghost gets its row number; each needed row gets a gradient from every other rank. */
static void check_ring(lierne_plan *plan) {
    int64_t ghosts[NROWS], gradient[3], ones[NROWS];
    lierne_graph_lists lists = {.size = sizeof lists};
    bool right = true;
    CHECK(lierne_plan_get_graph_lists(&lists, plan) == LIERNE_OK && lists.nowned == 3);
    CHECK(lierne_plan_forward(plan, ghosts, lists.owned, NULL) == LIERNE_OK);
    for (int64_t k = 0; k < lists.nghosts; k++) {
        right = right && ghosts[k] == lists.ghosts[k];
        ones[k] = 1;
    }
    CHECK(lierne_plan_adjoint(plan, gradient, ones, NULL) == LIERNE_OK);
    for (int i = 0; i < 3; i++) {
        right = right && gradient[i] == (lists.owned[i] % 2 == 0 ? RANKS - 1 : 0);
    }
    CHECK(right);
}

/* Planning exchanges messages at barriers; ranks plan anew while others still leave the last one.
 */
static void *rings(void *arg) {
    const worker *w = arg;
    int rank = lierne_context_get_rank(w->context);
    lierne_plan *plan = NULL;
    ring g;
    for (int a = LIERNE_GRAPH_ALGORITHM_AUTO; a <= LIERNE_GRAPH_ALGORITHM_ALL_GATHER; a++) {
        lierne_graph_spec spec = turn_ring(&g, rank, 0);
        spec.algorithm = (lierne_graph_algorithm)a;
        CHECK(lierne_plan_create_graph(&plan, w->context, &spec) == LIERNE_OK);
        check_ring(plan);
        for (int round = 1; round < ROUNDS / 2; round++) {
            spec = turn_ring(&g, rank, round);
            spec.algorithm = (lierne_graph_algorithm)a;
            if (round % RANKS == rank) {
                g.source[0] = round % 3 ? 0 : NROWS; /* in some rounds one rank's spec is invalid */
            }
            CHECK(lierne_plan_update_graph(plan, &spec) ==
                  (round % 3 ? LIERNE_OK : LIERNE_ERR_INDEX_RANGE));
            check_ring(plan);
        }
        CHECK(lierne_plan_destroy(plan) == LIERNE_OK);
    }
    return NULL;
}

/* Rank 0 does not plan. */
static void *lonely(void *arg) {
    const worker *w = arg;
    ring g;
    lierne_plan *plan;
    int rank = lierne_context_get_rank(w->context);
    const lierne_graph_spec spec = turn_ring(&g, rank, 0);
    if (rank != 0) {
        CHECK(lierne_plan_create_graph(&plan, w->context, &spec) == LIERNE_ERR_TIMEOUT && !plan);
        atomic_fetch_add(&timeouts, 1);
    }
    return NULL;
}

static lierne_run *commit(lierne_context *context, lierne_plan *plan) {
    static const int ranks[RANKS] = {0, 1, 2, 3, 4, 5, 6, 7}, first = 0;
    const lierne_schedule_group_spec all = {
        .size = sizeof all, .name = "all", .uid = 1, .ranks = ranks, .nranks = RANKS};
    const lierne_run_spec spec = {.size = sizeof spec, .progress_thread = 1};
    lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
    lierne_schedule *schedule;
    lierne_run *run_of = NULL;
    int index;
    CHECK(lierne_schedule_create(&schedule, lierne_context_get_rank(context)) == LIERNE_OK);
    CHECK(lierne_schedule_add_group(&o.group, schedule, &all) == LIERNE_OK);
    o.kind = LIERNE_OPERATION_PLAN;
    o.plan = plan;
    CHECK(lierne_schedule_add_operation(&index, schedule, &o) == LIERNE_OK);
    o.direction = LIERNE_DIRECTION_ADJOINT;
    o.after = &first, o.nafter = 1;
    CHECK(lierne_schedule_add_operation(&index, schedule, &o) == LIERNE_OK);
    CHECK(lierne_schedule_freeze(schedule) == LIERNE_OK);
    CHECK(lierne_run_create(&run_of, context, schedule, &spec) == LIERNE_OK);
    lierne_schedule_destroy(schedule);
    return run_of;
}

/* A progress thread per rank; its caller looks at the context now and then. */
static void *scheduled(void *arg) {
    const worker *w = arg;
    lierne_plan *plan = plan_of(w);
    lierne_run *run_of = commit(w->context, plan);
    float in[IN], out[OUT], back[IN];
    char dump[512];
    int rank = lierne_context_get_rank(w->context), done;
    for (int i = 0; i < ROUNDS; i++) {
        void *outs[2] = {out, back};
        const void *ins[2] = {in, out};
        fill(in, rank, i);
        CHECK(lierne_run_begin(run_of, outs, ins) == LIERNE_OK);
        if (i % RANKS == rank) {
            lierne_run_event event = {.size = sizeof event};
            CHECK(lierne_plan_forward(plan, out, in, NULL) == LIERNE_ERR_BUSY);
            CHECK(lierne_context_get_status(w->context) == LIERNE_OK);
            CHECK(lierne_context_dump(dump, sizeof dump, w->context) == LIERNE_OK);
            CHECK(lierne_run_get_event(&event, run_of, 1) == LIERNE_OK);
            CHECK(lierne_run_test(&done, run_of) == LIERNE_OK);
        }
        CHECK(lierne_run_end(run_of) == LIERNE_OK);
        check_forward(out, rank, i);
        check_adjoint(back, in);
    }
    CHECK(lierne_run_destroy(run_of) == LIERNE_OK);
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK);
    return NULL;
}

/* A context with a watchdog, whose thread sleeps until it is destroyed. */
static void watched(void) {
    lierne_context *context;
    CHECK(lierne_context_create_self(&context, NULL) == LIERNE_OK);
    CHECK(lierne_watchdog_create(context, NULL) == LIERNE_OK);
    CHECK(lierne_context_destroy(context) == LIERNE_OK);
}

int main(void) {
    static const char *const names[3] = {"tp", "cp", "dp"};
    const int64_t shape[3] = {8, 4, 2};
    lierne_grid_spec e = {.size = sizeof e, .ndims = 3, .names = names, .world_size = RANKS};
    lierne_grid_spec l = e;
    lierne_grid *src, *dst;
    e.sizes = (const int64_t[]){2, 1, 4};
    l.sizes = (const int64_t[]){2, 2, 2};
    CHECK(lierne_grid_create(&src, &e) == LIERNE_OK && lierne_grid_create(&dst, &l) == LIERNE_OK);
    lierne_bridge_spec spec = {.size = sizeof spec,
                               .src = src,
                               .dst = dst,
                               .naxes = 3,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_F32,
                               .sequence_axis = 1,
                               .max_inflight = 2};
    lierne_context_spec patient = {.size = sizeof patient, .timeout = 60, .check = 1};
    lierne_context_spec hasty = {.size = sizeof hasty, .timeout = 0.5};
    for (int a = 0; a < 2; a++) {
        algorithm = (test_algorithm)a;
        run(&spec, &patient, blocking);
        run(&spec, &patient, overlapping);
        run(&spec, &patient, scheduled);
        run(&spec, &hasty, deserted);
        CHECK(atomic_exchange(&timeouts, 0) > 0);
    }
    run(NULL, &patient, rings);
    run(NULL, &hasty, lonely);
    CHECK(timeouts == RANKS - 1);
    watched();
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    CHECK(lierne_mem_live() == 0);
    printf("%d passed, %d failed\n", counts[1], counts[0]);
    return counts[0] != 0;
}
