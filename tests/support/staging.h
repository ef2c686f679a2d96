/* Tests have their buffers in host memory. In a context for a device every call gets copies of them
 * there, and what it wrote is copied back when it has ended: so programs that know nothing of
 * devices run on one. The wrappers of streams.c do it. */
#ifndef LIERNE_TESTS_STAGING_H
#define LIERNE_TESTS_STAGING_H

#include "lierne/plan.h"

#include <stdbool.h>

/* A device. What fails in it ends the program. */
typedef struct test_stager {
    lierne_status (*use)(lierne_context *context); /* makes a context one for it; collective */
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory);
    void (*copy)(void *to, const void *from,
                 size_t bytes); /* either way; returns when it is done */
    void *(*stream)(void);      /* of all calls */
    void (*wait)(void);         /* until the stream has passed all */
} test_stager;

/* Of programs that are linked with it (tests/gpu/launched/cuda.c). */
extern const test_stager test_cuda_stager __attribute__((weak));

/* Makes a context one for a device where the environment variable LIERNE_TEST_EXECUTOR is "ipc"
 * (one that is played, with windows: ipc.h; its calls get the buffers of the test), "staged" (the
 * same with copies), "cuda", or "nccl" (a real one, and NCCL's messages). Collective. */
lierne_status test_staging_use_asked(lierne_context *context);

/* A call with copies. */
typedef struct test_staged test_staged;
/* Replaces what a call is given; NULL, and nothing is replaced, where it needs no copies. */
test_staged *test_stage(const lierne_plan *plan, lierne_direction direction, void **out,
                        const void **in, void **stream);
/* Until the request has ended. NULL is allowed. */
void test_staged_keep(test_staged *s, lierne_request *request);
test_staged *test_staged_take(const lierne_request *request);
/* After the call. done: it was right, so its output is copied back. NULL is allowed. */
void test_unstage(test_staged *s, bool done);

#endif
