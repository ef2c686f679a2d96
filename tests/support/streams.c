/* Any pointer is a stream of the device that is played. */
#include "streams.h"

#include "plan/plan.h"
#include "runtime/context/context.h"
#include "staging.h"
#include "tasks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct test_streams {
    int n;
    lierne_context **contexts;
};

/* Worlds follow one another; of two at once only the last has streams. */
static _Atomic(test_streams *) current;

test_streams *test_streams_attach_asked(lierne_sim *sim, int n) {
    const char *asked = getenv("LIERNE_TEST_EXECUTOR");
    if (!asked || strcmp(asked, "device") != 0) {
        return NULL;
    }
    test_streams *s = malloc(sizeof *s);
    *s = (test_streams){n, calloc((size_t)n, sizeof *s->contexts)};
    for (int r = 0; r < n; r++) {
        s->contexts[r] = lierne_sim_get_context(sim, r);
        if (!s->contexts[r]) {
            continue; /* no member */
        }
        s->contexts[r]->memory = &test_device_memory;
        s->contexts[r]->stream_driver = &test_device_driver;
    }
    atomic_store(&current, s);
    return s;
}

void test_streams_destroy(test_streams *s) {
    if (!s) {
        return;
    }
    atomic_store(&current, NULL);
    free(s->contexts);
    free(s);
}

/* What a call gets in place of its stream. */
static void *stream_of(const lierne_context *context, void *stream) {
    const test_streams *s = atomic_load(&current);
    static char any;
    if (!stream && context->stream_driver &&
        strcmp(context->stream_driver->name, "ipc test") == 0) {
        return &any; /* ipc.c */
    }
    for (int r = 0; s && !stream && r < s->n; r++) {
        if (s->contexts[r] == context) {
            return &s->contexts[r];
        }
    }
    return stream;
}

static void *stream_of_plan(const lierne_plan *plan, void *stream) {
    return plan ? stream_of(lierne_plan_context(plan), stream) : stream;
}

#define WRAP(name, direction)                                                                      \
    lierne_status __real_##name(lierne_plan *plan, void *out, const void *in, void *stream);       \
    lierne_status __wrap_##name(lierne_plan *plan, void *out, const void *in, void *stream);       \
    lierne_status __wrap_##name(lierne_plan *plan, void *out, const void *in, void *stream) {      \
        stream = stream_of_plan(plan, stream);                                                     \
        test_staged *s = test_stage(plan, direction, &out, &in, &stream);                          \
        lierne_status status = __real_##name(plan, out, in, stream);                               \
        test_unstage(s, status == LIERNE_OK);                                                      \
        return status;                                                                             \
    }
WRAP(lierne_plan_forward, LIERNE_DIRECTION_FORWARD)
WRAP(lierne_plan_adjoint, LIERNE_DIRECTION_ADJOINT)

#define WRAP_BEGIN(name, direction)                                                                \
    lierne_status __real_##name(lierne_request **request, lierne_plan *plan, void *out,            \
                                const void *in, void *stream);                                     \
    lierne_status __wrap_##name(lierne_request **request, lierne_plan *plan, void *out,            \
                                const void *in, void *stream);                                     \
    lierne_status __wrap_##name(lierne_request **request, lierne_plan *plan, void *out,            \
                                const void *in, void *stream) {                                    \
        stream = stream_of_plan(plan, stream);                                                     \
        test_staged *s = test_stage(plan, direction, &out, &in, &stream);                          \
        lierne_status status = __real_##name(request, plan, out, in, stream);                      \
        if (status == LIERNE_OK) {                                                                 \
            test_staged_keep(s, *request);                                                         \
        } else {                                                                                   \
            test_unstage(s, false);                                                                \
        }                                                                                          \
        return status;                                                                             \
    }
WRAP_BEGIN(lierne_plan_forward_begin, LIERNE_DIRECTION_FORWARD)
WRAP_BEGIN(lierne_plan_adjoint_begin, LIERNE_DIRECTION_ADJOINT)

lierne_status __real_lierne_request_end(lierne_request *request);
lierne_status __wrap_lierne_request_end(lierne_request *request);
lierne_status __wrap_lierne_request_end(lierne_request *request) {
    test_staged *s = test_staged_take(request);
    lierne_status status = __real_lierne_request_end(request);
    test_unstage(s, status == LIERNE_OK);
    return status;
}

lierne_status __real_lierne_plan_reduce(lierne_plan *plan, lierne_reduction reduction, void *out,
                                        const void *in, void *stream);
lierne_status __wrap_lierne_plan_reduce(lierne_plan *plan, lierne_reduction reduction, void *out,
                                        const void *in, void *stream);
lierne_status __wrap_lierne_plan_reduce(lierne_plan *plan, lierne_reduction reduction, void *out,
                                        const void *in, void *stream) {
    stream = stream_of_plan(plan, stream);
    test_staged *s = test_stage(plan, LIERNE_DIRECTION_ADJOINT, &out, &in, &stream);
    lierne_status status = __real_lierne_plan_reduce(plan, reduction, out, in, stream);
    test_unstage(s, status == LIERNE_OK);
    return status;
}
