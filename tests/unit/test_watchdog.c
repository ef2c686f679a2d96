/* Calls that go on after lierne_request_end: on a device that is played, whose events pass when the
 * test says so. What fails then is found by the watchdog, kills the context, and is told by a query
 * and by the next call. */
#include "collectives.h"
#include "plan/object.h"
#include "runtime/context/context.h"
#include "runtime/execute/execution.h"
#include "tasks.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { COUNT = 5 };
#define TIMEOUT 0.3

static void sleep_for(double seconds) {
    const struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

/* The status that a query finds within some seconds; OK: none. */
static lierne_status await_status(lierne_context *context, double seconds) {
    lierne_status status = LIERNE_OK;
    for (double start = lierne_now(); status == LIERNE_OK && lierne_now() - start < seconds;) {
        sleep_for(0.005);
        status = lierne_context_get_status(context);
    }
    return status;
}

/* The device: its stream has passed the first `passed` events and steps that advance epochs. Its
 * queue has space for `space` of them that it has not passed; who enqueues more waits. */
enum { MOST = 1000 };
static atomic_int recorded, passed, broken, aborted, space;
static atomic_bool slow;          /* the host, after the next step that advances an epoch */
static uint64_t *advancing[MOST]; /* epochs, by number */
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
typedef struct mark {
    atomic_int number;
} mark;

/* The watchdog's thread aborts, which the status does not wait for. */
static int await_aborts(void) {
    for (double start = lierne_now(); aborted == 0 && lierne_now() - start < 20;) {
        sleep_for(0.001);
    }
    return aborted;
}

static void await_space(void) {
    for (double start = lierne_now(); recorded - passed >= space && lierne_now() - start < 20;) {
        sleep_for(0.001);
    }
}

/* Until the stream has passed the first n. */
static void pass(int n) {
    pthread_mutex_lock(&queue);
    for (int i = passed; i < n && i < recorded; i++) {
        if (advancing[i]) {
            test_advance(NULL, advancing[i]);
        }
    }
    passed = n;
    pthread_mutex_unlock(&queue);
}

static lierne_status advance(void *stream, uint64_t *epoch) {
    (void)stream;
    await_space();
    pthread_mutex_lock(&queue);
    if (recorded < passed) {
        test_advance(NULL, epoch);
    } else {
        advancing[recorded] = epoch;
    }
    recorded++;
    pthread_mutex_unlock(&queue);
    if (atomic_exchange(&slow, false)) {
        pass(recorded);
        sleep_for(3 * TIMEOUT);
    }
    return LIERNE_OK;
}

static lierne_status event_create(void **event) {
    mark *m = NULL;
    lierne_status status = lierne_alloc(&m, 1, sizeof *m);
    *event = m;
    return status;
}

static lierne_status event_record(void *stream, void *event) {
    (void)stream;
    await_space();
    ((mark *)event)->number = ++recorded;
    return LIERNE_OK;
}

static lierne_status event_query(void *event, bool *has) {
    *has = ((mark *)event)->number <= passed;
    return broken && !*has ? LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "the device is broken") : LIERNE_OK;
}

static atomic_int entered;

static void enter_thread(int number) {
    entered += number;
}

static const lierne_stream_driver device = {.name = "played",
                                            .enter_thread = enter_thread,
                                            .required = true,
                                            .detached = true,
                                            .event_create = event_create,
                                            .event_destroy = lierne_mem_free,
                                            .event_record = event_record,
                                            .event_query = event_query,
                                            .epochs_create = test_epochs_create,
                                            .epochs_destroy = test_epochs_destroy,
                                            .advance = advance};
static lierne_transport transport;

static void abort_device(void *self) {
    (void)self;
    aborted++;
    pass(1000000);
}

static atomic_bool faulty; /* the transport */

static lierne_status check_transport(void *self) {
    (void)self;
    return faulty ? LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "the network is broken") : LIERNE_OK;
}

static int ended_by_none(void *self) {
    (void)self;
    return -1;
}

static const lierne_transport_watched watched = {.check = check_transport,
                                                 .abort = abort_device,
                                                 .ended_by = ended_by_none};

static lierne_context *open_device(lierne_plan **plan, double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    lierne_context *context;
    recorded = passed = broken = aborted = entered = 0;
    memset(advancing, 0, sizeof advancing);
    space = MOST;
    assert_ok(lierne_context_create_self(&context, &spec));
    transport = *context->carriers[0].transport;
    transport.watched = &watched;
    context->carriers[0].transport = &transport;
    context->memory = &test_task_memory;
    context->stream_driver = &device;
    context->device = 5;
    assert_ok(lierne_plan_create_all_gather(plan, context, &gather));
    return context;
}

static char stream;
static int32_t in[COUNT] = {3, 1, 4, 1, 5}, out[COUNT];

static void call_device(lierne_plan *plan) {
    assert_ok(lierne_plan_forward(plan, out, in, &stream));
}

static void close_device(lierne_context *context, lierne_plan *plan) {
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
}

/* The deadline counts from when the stream reaches a call: what is before it may take longer. */
Test(watchdog, the_deadline_counts_from_the_begin_on_the_stream) {
    size_t live = lierne_mem_live();
    lierne_plan *plan;
    lierne_context *context = open_device(&plan, TIMEOUT);
    call_device(plan);
    cr_assert_eq(await_status(context, 2 * TIMEOUT), LIERNE_OK, "%s", lierne_last_error());
    passed = 1; /* its begin */
    cr_assert_eq(await_status(context, 20), LIERNE_ERR_TIMEOUT);
    assert_says("rank 0: forward 0 of plan 0: the stream reached it");
    cr_assert_eq(await_aborts(), 1);
    cr_assert_eq(entered, 5, "the thread is not on the context's device");
    cr_assert_eq(lierne_plan_forward(plan, out, in, &stream), LIERNE_ERR_TIMEOUT);
    assert_error(lierne_plan_adjoint(plan, out, in, &stream), LIERNE_ERR_TIMEOUT,
                 "lierne_plan_adjoint: the context is dead, destroy it; "
                 "lierne_plan_forward failed: rank 0: forward 0 of plan "
                 "0: the stream reached it");
    close_device(context, plan);
    cr_assert_eq(lierne_mem_live(), live);
}

/* Calls in the order of the stream: that of number i, from 0, is between marks 2 i + 1 and 2 i + 2.
 * n of them are enqueued, `full` are passed, and the stream stands in the next one. */
static lierne_context *hang_in(lierne_plan **plan, int n, int full) {
    lierne_context *context = open_device(plan, TIMEOUT);
    for (int i = 0; i < n; i++) {
        call_device(*plan);
    }
    for (int i = 1; i <= 2 * full + 1; i++) {
        pass(i);
        sleep_for(0.002);
    }
    assert_ok(lierne_context_get_status(context));
    return context;
}

static void found_hanging(int n, int full, const char *says) {
    lierne_plan *plan;
    lierne_context *context = hang_in(&plan, n, full);
    cr_assert_eq(await_status(context, 20), LIERNE_ERR_TIMEOUT, "call %d of %d", full, n);
    assert_says(says);
    cr_assert_eq(await_aborts(), 1);
    close_device(context, plan);
}

/* More calls than the watchdog has places for: one that hangs is found, wherever it is. */
Test(watchdog, a_call_that_hangs_among_many_is_found) {
    const char *far = "a call that the host was far ahead of";
    int places = LIERNE_WATCHED_CALLS;
    found_hanging(3 * places, places - 1, "forward 7 of plan 0: the stream reached it");
    found_hanging(3 * places, places, far);
    found_hanging(3 * places, 2 * places, far);
    found_hanging(3 * places, 3 * places - 1, far);
}

/* A stream that is always busy, with calls that each take less than the deadline, and a caller who
 * is always far ahead of it. */
Test(watchdog, a_caller_who_is_far_ahead_is_no_hang) {
    size_t live = lierne_mem_live();
    lierne_plan *plan;
    lierne_context *context = open_device(&plan, TIMEOUT);
    int ahead = 10 * LIERNE_WATCHED_CALLS;
    double start = lierne_now();
    for (int i = 0; i < ahead || lierne_now() - start < 4 * TIMEOUT; i++) {
        call_device(plan);
        if (i >= ahead) {
            pass(2 * (i - ahead) + 1); /* always in the middle of one */
            sleep_for(TIMEOUT / 30);
        }
    }
    assert_ok(lierne_context_get_status(context));
    pass(recorded);
    assert_ok(lierne_execution_drain(plan->requests[0][0].execution));
    assert_ok(lierne_context_get_status(context));
    close_device(context, plan);
    cr_assert_eq(lierne_mem_live(), live);
}

/* The stream has reached a call, and the host takes long to enqueue the rest of it. */
Test(watchdog, a_host_that_is_slow_within_a_call_is_no_hang) {
    lierne_plan *plan;
    lierne_context *context = open_device(&plan, TIMEOUT);
    for (int i = 0; i < 2 * LIERNE_WATCHED_CALLS; i++) {
        slow = i == LIERNE_WATCHED_CALLS + 2;
        call_device(plan);
    }
    cr_assert_eq(slow, false, "no call was counted");
    assert_ok(lierne_context_get_status(context));
    pass(recorded);
    close_device(context, plan);
}

/* The caller waits within a call, because the queue of the device is full. That call is not the one
 * that hangs, and the watchdog is not kept from finding that. */
Test(watchdog, a_full_queue_does_not_hide_a_hang) {
    for (int ahead = 3; ahead < 5 * LIERNE_WATCHED_CALLS; ahead += 4) {
        lierne_plan *plan;
        lierne_context *context = open_device(&plan, TIMEOUT);
        space = 2 * ahead + ahead / 4 % 2; /* waits where a call begins, or ends */
        pass(0);
        call_device(plan);
        pass(1); /* stands in the first call */
        double start = lierne_now();
        while (aborted == 0 && lierne_now() - start < 10) {
            lierne_plan_forward(plan, out, in, &stream);
        }
        cr_assert_eq(aborted, 1, "%d calls ahead", ahead);
        cr_assert_eq(await_status(context, 20), LIERNE_ERR_TIMEOUT);
        pass(1000000);
        close_device(context, plan);
    }
}

Test(watchdog, an_error_of_the_device_is_told) {
    lierne_plan *plan;
    lierne_context *context = open_device(&plan, 30);
    call_device(plan);
    passed = recorded;
    call_device(plan);
    broken = 1;
    cr_assert_eq(await_status(context, 20), LIERNE_ERR_TRANSPORT);
    assert_says("lierne_plan_forward failed: rank 0: forward 1 of plan 0, after it "
                "was begun: the device is broken");
    broken = 0;
    close_device(context, plan);
}

static void *pass_later(void *argument) {
    (void)argument;
    sleep_for(0.2);
    passed = 1000000;
    return NULL;
}

/* The memory of a plan is freed when the stream has passed its last call, and not before. */
Test(watchdog, destroying_waits_for_the_stream) {
    pthread_t thread;
    lierne_plan *plan;
    lierne_context *context = open_device(&plan, 30);
    call_device(plan);
    pthread_create(&thread, NULL, pass_later, NULL);
    assert_ok(lierne_plan_destroy(plan));
    cr_assert_eq(passed, 1000000, "freed while the stream worked on it");
    pthread_join(thread, NULL);
    assert_ok(lierne_context_destroy(context));
}

/* A transport may have ended the last call, so that the stream has passed it. */
Test(watchdog, an_error_of_the_last_call_is_found_though_the_plan_is_destroyed) {
    lierne_plan *plan;
    lierne_context *context = open_device(&plan, 30);
    call_device(plan);
    assert_ok(lierne_context_get_status(context));
    sleep_for(0.01); /* the watchdog has seen the call */
    faulty = true;
    pass(recorded);
    assert_ok(lierne_plan_destroy(plan));
    assert_error(lierne_context_get_status(context), LIERNE_ERR_TRANSPORT, "the network is broken");
    assert_ok(lierne_context_destroy(context));
}
