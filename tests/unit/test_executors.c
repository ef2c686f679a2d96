/* How a call is served: transports that must be polled, one that serves streams only, and streams
 * that the host can ask about, or cannot. What cannot be served is UNSUPPORTED when it begins, on
 * every rank, and never a wait without an end. */
#include "backend/sim/sim_transport.h"
#include "backend/sim/sim_world.h"
#include "base/base.h"
#include "bridge_plan.h"
#include "mesh.h"
#include "runtime/context/context.h"
#include "tasks.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <string.h>

enum { RANKS = 2, ROWS = 4 };

typedef struct world {
    lierne_sim *sim;
    lierne_plan *plans[RANKS];
    lierne_coalesced *coalesced[RANKS];
    float in[RANKS][2 * ROWS], out[RANKS][2 * ROWS];
} world;

static lierne_transport ordered_by_stream;
static lierne_stream_driver device;

static void set_none(void *batch, void *stream) {
    (void)batch, (void)stream;
}

static bool *met_none(void *self) {
    (void)self;
    return NULL;
}

static const lierne_transport_streams streams = {.set = set_none, .met = met_none};

/* One sample on each rank; the output is both, or this rank's own where the plan has no messages.
 */
static lierne_status plan_bridge(lierne_plan **plan, lierne_context *context, int n,
                                 bool messages) {
    const int64_t shape[3] = {n, ROWS, 1};
    lierne_grid *src = grid_of(1, 1, n, n);
    lierne_grid *dst = messages ? grid_of(1, n, 1, n) : grid_of(1, 1, n, n);
    const lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
    lierne_status status = lierne_plan_create_bridge(plan, context, &spec);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    return status;
}

static void open_world(world *w, const lierne_transport *transport,
                       const lierne_stream_driver *driver, bool messages) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 5};
    *w = (world){0};
    assert_ok(lierne_sim_create(&w->sim, RANKS, &spec));
    for (int r = 0; r < RANKS; r++) {
        lierne_context *context = lierne_sim_get_context(w->sim, r);
        context->carriers[0].transport = transport;
        context->memory = driver ? &test_task_memory : context->memory;
        context->stream_driver = driver;
        cr_assert_eq(plan_bridge(&w->plans[r], context, RANKS, messages), LIERNE_OK, "%s",
                     lierne_last_error());
        assert_ok(lierne_coalesced_create(&w->coalesced[r], &w->plans[r], 1));
        for (int i = 0; i < 2 * ROWS; i++) {
            w->in[r][i] = (float)(100 * r + i + 1);
        }
        memset(w->out[r], 0xa5, sizeof w->out[r]);
    }
}

static void close_world(world *w) {
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_coalesced_destroy(w->coalesced[r]));
        assert_ok(lierne_plan_destroy(w->plans[r]));
    }
    assert_ok(lierne_sim_destroy(w->sim));
    cr_assert_eq(lierne_mem_live(), 0);
}

/* Of the plan, and of coalesced plans; the ranks call one after the other, so both must say so when
 * they begin. */
static void expect_rejected(world *w, bool on_stream, const char *says) {
    for (int r = 0; r < RANKS; r++) {
        lierne_request *request;
        void *stream = on_stream ? w : NULL, *out = w->out[r];
        const void *in = w->in[r];
        assert_error(lierne_plan_forward_begin(&request, w->plans[r], out, in, stream),
                     LIERNE_ERR_UNSUPPORTED, says);
        cr_assert_null(request);
        assert_error(lierne_coalesced_begin(w->coalesced[r], LIERNE_DIRECTION_ADJOINT, &out, &in,
                                            stream),
                     LIERNE_ERR_UNSUPPORTED, says);
    }
}

static void expect_served(world *w, bool on_stream, bool messages) {
    lierne_request *requests[RANKS];
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], w->plans[r], w->out[r], w->in[r],
                                            on_stream ? w : NULL));
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
    for (int i = 0; i < (messages ? 2 * ROWS : ROWS); i++) {
        cr_assert_eq(w->out[1][i], w->in[messages ? i / ROWS : 1][i % ROWS], "element %d", i);
    }
}

static void run(const lierne_transport *transport, const lierne_stream_driver *driver,
                bool on_stream, bool messages, const char *says) {
    world w;
    open_world(&w, transport, driver, messages);
    if (says) {
        expect_rejected(&w, on_stream, says);
    } else {
        expect_served(&w, on_stream, messages);
    }
    close_world(&w);
}

Test(executors, serve_what_they_can_and_reject_the_rest) {
    const lierne_stream_driver *asked = &test_device_driver;
    device = (lierne_stream_driver){.name = "device"};
    ordered_by_stream = lierne_sim_transport;
    ordered_by_stream.name = "by_stream";
    ordered_by_stream.streams = &streams;
    run(&lierne_sim_transport, asked, false, true, NULL);
    run(&lierne_sim_transport, asked, true, true, NULL);
    run(&ordered_by_stream, asked, false, true,
        "transport by_stream serves calls on a stream only, and stream is NULL: pass a stream");
    run(&lierne_sim_transport, &device, false, true, NULL);
    run(&lierne_sim_transport, &device, true, true,
        "transport sim must be polled, which a device stream cannot do: pass NULL");
    run(&lierne_sim_transport, NULL, true, true, "no library of this process serves streams");
    run(&ordered_by_stream, &device, false, false, NULL); /* no messages: nothing to serve */
}

static bool reaches_the_other_of_two(void *self, int peer) {
    const lierne_sim_rank *r = self;
    return r->rank + peer == 1;
}

/* Messages of both kinds in one direction: no call serves them where a stream cannot poll. */
Test(executors, one_direction_that_needs_both) {
    lierne_sim *sim;
    lierne_plan *plans[3];
    lierne_request *request;
    float in[ROWS] = {1}, out[3 * ROWS];
    int stream;
    ordered_by_stream = lierne_sim_transport;
    ordered_by_stream.name = "by_stream";
    ordered_by_stream.streams = &streams;
    ordered_by_stream.reaches = reaches_the_other_of_two;
    device = (lierne_stream_driver){.name = "device"};
    assert_ok(lierne_sim_create(&sim, 3, NULL));
    for (int r = 0; r < 3; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        lierne_carrier polled = context->carriers[0];
        context->ncarriers = 0;
        lierne_context_add_transport(context, &ordered_by_stream, polled.self, NULL);
        lierne_context_add_transport(context, polled.transport, polled.self, NULL);
        context->memory = &test_task_memory;
        context->stream_driver = &device;
        cr_assert_eq(plan_bridge(&plans[r], context, 3, true), LIERNE_OK, "%s",
                     lierne_last_error());
    }
    for (int r = 0; r < 2; r++) {
        assert_error(lierne_plan_forward_begin(&request, plans[r], out, in, &stream),
                     LIERNE_ERR_UNSUPPORTED,
                     "transport sim must be polled, which a device stream "
                     "cannot do: leave it out of LIERNE_TRANSPORTS");
        assert_error(lierne_plan_forward_begin(&request, plans[r], out, in, NULL),
                     LIERNE_ERR_UNSUPPORTED,
                     "transport by_stream serves calls on a stream only, "
                     "and stream is NULL: leave it out");
    }
    for (int r = 0; r < 3; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
    cr_assert_eq(lierne_mem_live(), 0);
}
