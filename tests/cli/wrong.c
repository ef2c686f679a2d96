/* For test_wrong.sh: linked into the command, this stands between it and the library and makes
 * faults. LIERNE_TEST_WRONG has them, as "forward:3:out:5 adjoint:0:fail:0": at the end of rank 3's
 * forward a bit of element 5 of the output changes, which may lie behind the last one, and rank 0's
 * adjoint ends with an error. "in" changes the input, and "zero" sets an element of the output to
 * zero. */
#include "base/base.h"

#include "lierne/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lierne_status __real_lierne_plan_forward_begin(lierne_request **request, lierne_plan *plan,
                                               void *out, const void *in, void *stream);
lierne_status __real_lierne_plan_adjoint_begin(lierne_request **request, lierne_plan *plan,
                                               void *out, const void *in, void *stream);
lierne_status __real_lierne_request_end(lierne_request *request);

enum { MOST_CALLS = 64 };
static struct call {
    const lierne_request *request;
    const char *direction;
    int rank;
    char *out, *in;
    size_t size; /* of an element */
} calls[MOST_CALLS];

/* What an uninitialised variable of the command has. */
__attribute__((constructor)) static void fill_stack(void) {
    volatile char stack[1 << 16];
    for (size_t i = 0; i < sizeof stack; i++) {
        stack[i] = '/';
    }
}

static void note(lierne_request *request, const lierne_plan *plan, const char *direction, void *out,
                 const void *in) {
    int i = 0;
    lierne_dtype dtype;
    while (i < MOST_CALLS - 1 && calls[i].request) {
        i++;
    }
    lierne_plan_get_dtype(&dtype, plan);
    calls[i] = (struct call){.request = request,
                             .direction = direction,
                             .rank = lierne_context_get_rank(lierne_plan_get_context(plan)),
                             .out = out,
                             .in = (char *)in,
                             .size = lierne_dtype_size(dtype)};
}

lierne_status __wrap_lierne_plan_forward_begin(lierne_request **request, lierne_plan *plan,
                                               void *out, const void *in, void *stream) {
    lierne_status status = __real_lierne_plan_forward_begin(request, plan, out, in, stream);
    note(*request, plan, "forward", out, in);
    return status;
}

lierne_status __wrap_lierne_plan_adjoint_begin(lierne_request **request, lierne_plan *plan,
                                               void *out, const void *in, void *stream) {
    lierne_status status = __real_lierne_plan_adjoint_begin(request, plan, out, in, stream);
    note(*request, plan, "adjoint", out, in);
    return status;
}

static lierne_status make_faults(const struct call *call) {
    const char *faults = getenv("LIERNE_TEST_WRONG");
    char direction[8], what[8];
    int rank, used;
    size_t at;
    while (faults &&
           sscanf(faults, " %7[a-z]:%d:%7[a-z]:%zu%n", direction, &rank, what, &at, &used) == 4) {
        faults += used;
        if (rank != call->rank || strcmp(direction, call->direction) != 0) {
            continue;
        }
        if (strcmp(what, "fail") == 0) {
            return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "lierne_request_end: rank %d fails", rank);
        }
        char *element = (strcmp(what, "in") == 0 ? call->in : call->out) + at * call->size;
        element[0] ^= 1;
        memset(element, 0, strcmp(what, "zero") == 0 ? call->size : 0);
    }
    return LIERNE_OK;
}

lierne_status __wrap_lierne_request_end(lierne_request *request) {
    lierne_status status = __real_lierne_request_end(request);
    for (int i = 0; i < MOST_CALLS && request; i++) {
        if (calls[i].request == request) {
            struct call call = calls[i];
            calls[i].request = NULL;
            return status == LIERNE_OK ? make_faults(&call) : status;
        }
    }
    return status;
}
