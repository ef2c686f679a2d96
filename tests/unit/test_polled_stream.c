/* Calls on a device's stream whose messages the host polls: the device is played by pages that the
 * host cannot touch except in a launch, and by events that pass when they have been asked about a
 * few times. A transport that is not made for such memory gets only what travels, in host memory;
 * one that is gets the buffers. */
#include "backend/sim/sim_transport.h"
#include "backend/sim/sim_world.h"
#include "collectives.h"
#include "layouts.h"
#include "runtime/context/context.h"
#include "tasks.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 3, COUNT = 700, ARENA = 1 << 21 };

static char *arena;
static size_t used;
static int launches;
static bool touchable; /* by the host: calls need no stream then */

static void protect(bool hidden) {
    int allowed = hidden && !touchable ? PROT_NONE : PROT_READ | PROT_WRITE;
    cr_assert_eq(mprotect(arena, ARENA, allowed), 0);
}

static lierne_status alloc(void **out, size_t bytes) {
    *out = arena + used;
    used += (bytes + 63) / 64 * 64;
    cr_assert_leq(used, ARENA);
    return LIERNE_OK;
}

static void release(void *memory) {
    (void)memory;
}

static lierne_status launch(const lierne_program *program, size_t number,
                            const lierne_task_call *call, void *stream) {
    launches++;
    protect(false);
    lierne_status status = test_task_memory.launch(program, number, call, stream);
    protect(true);
    return status;
}

static lierne_memory memory;
static lierne_stream_driver driver;
static lierne_transport transport;

/* The simulated network reads and writes device memory. */
static lierne_status post_device(void *batch, int match, const lierne_posting *postings, size_t n) {
    for (size_t i = 0; i < n; i++) {
        cr_assert_geq((char *)postings[i].data, arena);
        cr_assert_lt((char *)postings[i].data, arena + ARENA);
    }
    protect(false);
    lierne_status status = lierne_sim_transport.post(batch, match, postings, n);
    protect(true);
    return status;
}

static lierne_status poll_device(void *batch, size_t *done, size_t *ndone) {
    protect(false);
    lierne_status status = lierne_sim_transport.poll(batch, done, ndone);
    protect(true);
    return status;
}

typedef struct world {
    lierne_sim *sim;
    lierne_context *contexts[RANKS];
    lierne_plan *plans[RANKS];
    float *in[RANKS], *out[RANKS];
} world;

static void open_world(world *w, bool aware, bool two_shot) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 2};
    const lierne_all_reduce_spec reduce =
        all_reduce_of(COUNT, LIERNE_DTYPE_F32,
                      two_shot ? LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT
                               : LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT);
    arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    used = 0;
    memory = test_device_memory;
    memory.alloc = alloc;
    memory.free = release;
    memory.launch = launch;
    memory.alloc_host = touchable ? NULL : memory.alloc_host;
    driver = test_device_driver;
    driver.required = !touchable;
    transport = lierne_sim_transport;
    if (aware) {
        transport.post = post_device;
        transport.poll = poll_device;
    }
    assert_ok(lierne_sim_create(&w->sim, RANKS, &spec));
    for (int r = 0; r < RANKS; r++) {
        w->contexts[r] = lierne_sim_get_context(w->sim, r);
        w->contexts[r]->carriers[0].transport = &transport;
        w->contexts[r]->carriers[0].takes = aware ? "device" : NULL;
        w->contexts[r]->memory = &memory;
        w->contexts[r]->stream_driver = &driver;
        assert_ok(lierne_plan_create_all_reduce(&w->plans[r], w->contexts[r], &reduce));
        alloc((void **)&w->in[r], COUNT * sizeof(float));
        alloc((void **)&w->out[r], COUNT * sizeof(float));
        for (int i = 0; i < COUNT; i++) {
            w->in[r][i] = (float)(i % 97 + 1000 * r);
            w->out[r][i] = -1;
        }
    }
    protect(true);
}

static void close_world(world *w) {
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_destroy(w->plans[r]));
    }
    assert_ok(lierne_sim_destroy(w->sim));
    munmap(arena, ARENA);
}

static void run(world *w, bool adjoint, bool on_stream) {
    static char streams[RANKS];
    lierne_request *requests[RANKS];
    for (int r = 0; r < RANKS; r++) {
        lierne_status (*begin)(lierne_request **, lierne_plan *, void *, const void *, void *) =
            adjoint ? lierne_plan_adjoint_begin : lierne_plan_forward_begin;
        cr_assert_eq(begin(&requests[r], w->plans[r], w->out[r], w->in[r],
                           on_stream ? &streams[r] : NULL),
                     LIERNE_OK, "%s", lierne_last_error());
    }
    for (int r = RANKS; r-- > 0;) {
        assert_ok(lierne_request_end(requests[r]));
    }
    protect(false);
    for (int i = 0; i < RANKS * COUNT; i++) {
        int k = i % COUNT;
        cr_assert_eq(w->out[i / COUNT][k], (float)(3 * (k % 97) + 3000), "element %d", i);
        w->out[i / COUNT][k] = -1;
    }
    protect(true);
}

static void expect_host_bytes(const world *w, bool staged) {
    lierne_report report = {.size = sizeof report};
    assert_ok(lierne_plan_get_report(&report, w->plans[0], LIERNE_DIRECTION_FORWARD));
    cr_assert_eq(report.host_bytes, staged ? report.sent_bytes + report.received_bytes : 0);
    cr_assert_gt(report.sent_bytes, 0);
}

static void run_all(bool aware, bool two_shot) {
    size_t live = lierne_mem_live();
    world w;
    open_world(&w, aware, two_shot);
    expect_host_bytes(&w, !aware);
    launches = 0;
    for (int call = 0; call < 5; call++) {
        run(&w, call % 2 == 1, true);
    }
    cr_assert_gt(launches, 5 * RANKS - 1);
    close_world(&w);
    cr_assert_eq(lierne_mem_live(), live);
}

Test(polled_stream, messages_go_through_host_memory) {
    run_all(false, false);
    run_all(false, true);
}

Test(polled_stream, a_transport_for_the_device_gets_its_memory) {
    run_all(true, false);
    run_all(true, true);
}

static lierne_status never(void *event, bool *passed) {
    (void)event;
    *passed = false;
    return LIERNE_OK;
}

static lierne_status fails(void *event, bool *passed) {
    (void)event;
    *passed = false;
    return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "the device is gone");
}

/* Nothing is posted before the stream has done its part; then the wait has a deadline. */
Test(polled_stream, a_stream_that_hangs_or_fails_is_an_error) {
    for (int i = 0; i < 2; i++) {
        world w;
        lierne_request *request;
        open_world(&w, false, false);
        driver.event_query = i ? fails : never;
        lierne_status begun =
            lierne_plan_forward_begin(&request, w.plans[0], w.out[0], w.in[0], &w);
        cr_assert_eq(i ? begun : lierne_request_end(request),
                     i ? LIERNE_ERR_TRANSPORT : LIERNE_ERR_TIMEOUT);
        assert_says(i ? "the device is gone"
                      : "the stream has not done the work before its "
                        "messages within 2 s");
        close_world(&w);
    }
}

/* Whatever the call before it has launched. */
Test(polled_stream, a_call_without_a_stream_waits_for_none) {
    world w;
    touchable = true;
    open_world(&w, false, false);
    run(&w, false, true);
    driver.event_query = never;
    run(&w, false, false);
    close_world(&w);
}

enum { NODES = 4, SEGMENT = 8, TOKENS = NODES * SEGMENT };

static bool reaches_neighbour(void *self, int peer) {
    return peer == (((const lierne_sim_rank *)self)->rank ^ 1);
}

/* A part of each segment on every rank, or a segment on each. */
static lierne_layout *layout_of_segments(bool whole) {
    static const int64_t cu[NODES + 1] = {0, SEGMENT, 2 * SEGMENT, 3 * SEGMENT, TOKENS};
    static const int32_t owner[NODES] = {0, 1, 2, 3};
    const lierne_segments segments = {.size = sizeof segments,
                                      .nsegments = NODES,
                                      .cu_seqlens = cu};
    const lierne_packing packing = {.size = sizeof packing, .owner = whole ? owner : NULL};
    const mesh dims = {.ndims = 1, .names = {"r"}, .sizes = {NODES}};
    lierne_grid *grid = mesh_grid(&dims, NODES);
    lierne_layout *layout =
        layout_packed(grid, &segments, &packing,
                      whole ? LIERNE_PLACEMENT_SHARD_SEGMENTS : LIERNE_PLACEMENT_SEGMENT_SHARD, 1);
    lierne_grid_destroy(grid);
    return layout;
}

static void move_segments(lierne_plan *const *plans) {
    enum { PART = SEGMENT / NODES };
    static char streams[NODES];
    int64_t in[NODES][SEGMENT], out[NODES][SEGMENT];
    lierne_request *requests[NODES];
    for (int r = 0; r < NODES; r++) {
        for (int i = 0; i < SEGMENT; i++) {
            in[r][i] = i / PART * SEGMENT + r * PART + i % PART;
        }
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], &streams[r]));
    }
    for (int r = 0; r < NODES; r++) {
        assert_ok(lierne_request_end(requests[r]));
        for (int i = 0; i < SEGMENT; i++) {
            cr_expect_eq(out[r][i], r * SEGMENT + i);
        }
    }
}

/* Slots of messages of other lengths in every call are in either memory. */
Test(polled_stream, segments_over_a_transport_for_the_device_and_another) {
    lierne_layout *src = layout_of_segments(false), *dst = layout_of_segments(true);
    const lierne_redistribute_spec spec = {
        .size = sizeof spec, .src = src, .dst = dst, .max_segments = NODES, .max_rows = SEGMENT};
    lierne_transport near = lierne_sim_transport;
    lierne_plan *plans[NODES];
    lierne_sim *sim;
    near.reaches = reaches_neighbour;
    assert_ok(lierne_sim_create(&sim, NODES, NULL));
    for (int r = 0; r < NODES; r++) {
        lierne_context *c = lierne_sim_get_context(sim, r);
        c->memory = &test_device_memory;
        c->stream_driver = &test_device_driver;
        c->carriers[0].transport = &near;
        c->carriers[0].takes = "device";
        lierne_context_add_transport(c, &lierne_sim_transport, c->carriers[0].self, NULL);
        assert_ok(lierne_plan_create_redistribute(&plans[r], c, &spec));
    }
    move_segments(plans);
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
}
