/* The gate on streams: two all-gathers, x and y, where one rank withholds x until it has seen
 * y complete. On two streams both complete; on one, y is behind x and cannot. Nothing is timed: the
 * order of causes decides, and the wait of the negative case is bounded. */
#include "base/base.h"
#include "collectives.h"
#include "device_streams.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "runtime/context/context.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOST = 8, QUEUES = 2, COUNT = 3, WITHHOLDS = 1, X = 0, Y = 1 };
#define PATIENT 60.0 /* seconds, of the contexts: a busy machine must not end the test */
#define BOUND   0.3  /* of the wait that cannot end */

typedef struct gate {
    atomic_bool open; /* keeps the stream of a rank until then */
    int world;
    lierne_sim *sim;
    test_device_stream *streams[MOST][QUEUES];
    lierne_plan *plans[MOST][QUEUES];
    lierne_request *requests[MOST][QUEUES];
    int32_t in[MOST][QUEUES][COUNT];
    int32_t out[MOST][QUEUES][COUNT * MOST];
} gate;

static void nap(void) {
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static lierne_memory memory;

static void keep_shut(void *data) {
    const gate *g = *(const gate **)data;
    while (!atomic_load(&g->open)) {
        nap();
    }
}

static void create(gate *g, int world) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT};
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    memory = test_device_stream_memory();
    memset(g, 0, sizeof *g);
    g->world = world;
    assert_ok(lierne_sim_create(&g->sim, world, &spec));
    for (int r = 0; r < world; r++) {
        lierne_context *context = lierne_sim_get_context(g->sim, r);
        context->memory = &memory;
        context->stream_driver = &test_device_stream_driver;
        for (int q = 0; q < QUEUES; q++) {
            g->streams[r][q] = test_device_stream_create();
            assert_ok(lierne_plan_create_all_gather(&g->plans[r][q], context, &gather));
            for (int i = 0; i < COUNT; i++) {
                g->in[r][q][i] = 1000 * q + 10 * r + i + 1;
            }
        }
    }
}

static void destroy(gate *g) {
    assert_ok(lierne_sim_destroy_all(g->sim)); /* waits for the streams */
    for (int r = 0; r < g->world; r++) {
        for (int q = 0; q < QUEUES; q++) {
            test_device_stream_destroy(g->streams[r][q]);
            for (int i = 0; i < g->world * COUNT; i++) {
                cr_assert_eq(g->out[r][q][i], 1000 * q + 10 * (i / COUNT) + i % COUNT + 1);
            }
        }
    }
}

/* x, then y, on every rank; y on the stream of queue y. */
static void begin(gate *g, int y) {
    const int queues[] = {X, y};
    test_device_stream_add(g->streams[WITHHOLDS][X], keep_shut, &g, sizeof(gate *));
    for (int r = 0; r < g->world; r++) {
        for (int q = 0; q < QUEUES; q++) {
            memset(g->out[r][q], 0xA5, sizeof g->out[r][q]);
            assert_ok(lierne_plan_forward_begin(&g->requests[r][q], g->plans[r][q], g->out[r][q],
                                                g->in[r][q], g->streams[r][queues[q]]));
        }
    }
}

static bool is_done(const gate *g, int r, int q) {
    int done;
    assert_ok(lierne_request_test(&done, g->requests[r][q]));
    return done;
}

/* Lets every rank go on with its calls; returns whether y is complete where x is withheld. */
static bool y_is_done(const gate *g) {
    for (int r = 0; r < g->world; r++) {
        is_done(g, r, Y);
    }
    return is_done(g, WITHHOLDS, Y);
}

static void end(gate *g) {
    for (int r = 0; r < g->world; r++) {
        for (int q = 0; q < QUEUES; q++) {
            assert_ok(lierne_request_end(g->requests[r][q]));
        }
    }
}

static void opens(int world) {
    gate g;
    create(&g, world);
    begin(&g, Y);
    while (!y_is_done(&g)) {
        nap();
    }
    for (int r = 0; r < world; r++) {
        cr_assert_not(is_done(&g, r, X), "rank %d has what rank %d withholds", r, WITHHOLDS);
    }
    atomic_store(&g.open, true);
    end(&g);
    destroy(&g);
}

static void stays_shut(int world) {
    gate g;
    create(&g, world);
    begin(&g, X);
    for (double until = lierne_now() + BOUND; lierne_now() < until; nap()) {
        cr_assert_not(y_is_done(&g), "y is complete although it is behind x");
    }
    atomic_store(&g.open, true);
    end(&g);
    destroy(&g);
}

Test(gate, opens_on_two_streams, .timeout = 120) {
    size_t before = lierne_mem_live();
    for (int world = 2; world <= MOST; world *= 2) {
        opens(world);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

Test(gate, stays_shut_on_one_stream, .timeout = 120) {
    for (int world = 2; world <= MOST; world *= 2) {
        stays_shut(world);
    }
}

/* Streams that pass everything between two questions of one look. */
static int questions;
static lierne_status answer_late(void *event, bool *passed) {
    (void)event;
    *passed = questions-- <= 0;
    return LIERNE_OK;
}

enum { STEPS = 5, LOOKS = 3 };

static void run_steps(lierne_context *context, int late) {
    lierne_schedule *schedule;
    lierne_run *run;
    const lierne_run_spec spec = {.size = sizeof spec};
    void *out[STEPS] = {NULL};
    int done = 0;
    assert_ok(lierne_schedule_create(&schedule, 0));
    for (int i = 0; i < STEPS; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        int index;
        o.kind = LIERNE_OPERATION_LOCAL;
        o.group = -1;
        assert_ok(lierne_schedule_add_operation(&index, schedule, &o));
    }
    assert_ok(lierne_schedule_freeze(schedule));
    assert_ok(lierne_run_create(&run, context, schedule, &spec));
    questions = late;
    assert_ok(lierne_run_begin(run, out, (const void *const *)out));
    while (!done) {
        assert_ok(lierne_run_test(&done, run));
    }
    for (int i = 1; i < STEPS; i++) {
        lierne_run_event before = {.size = sizeof before}, after = {.size = sizeof after};
        assert_ok(lierne_run_get_event(&before, run, i - 1));
        assert_ok(lierne_run_get_event(&after, run, i));
        cr_assert(0 < before.ended && before.ended <= after.begun,
                  "after %d questions: operation %d ends at %.9g, the next begins at %.9g", late,
                  i - 1, (double)before.ended, (double)after.begun);
    }
    assert_ok(lierne_run_end(run));
    assert_ok(lierne_run_destroy(run));
    lierne_schedule_destroy(schedule);
}

Test(gate, a_queue_keeps_its_order_whenever_the_host_looks) {
    static lierne_stream_driver late;
    lierne_sim *sim;
    memory = test_device_stream_memory();
    late = test_device_stream_driver;
    late.event_query = answer_late;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    lierne_context *context = lierne_sim_get_context(sim, 0);
    context->memory = &memory;
    context->stream_driver = &late;
    for (int i = 0; i < 2 * STEPS * LOOKS; i++) {
        run_steps(context, i);
    }
    assert_ok(lierne_sim_destroy(sim));
}
