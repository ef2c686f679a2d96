/* Plans on memory that MPI cannot read, over MPI: a device that is played (tasks.h), whose calls on
 * streams launch what was recorded; then the same over windows of that device (ipc.h). What travels
 * goes through host memory and is counted; results have the bits of host memory, forward and
 * adjoint, with requests in flight at once. */
#include "collectives.h"
#include "ipc.h"
#include "lierne.h"
#include "mpi/common.h"
#include "runtime/context/context.h"
#include "tasks.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 1500, OWNED = 40 };

static lierne_status make_plan(lierne_plan **plan, lierne_context *context, int kind) {
    static int32_t rank[COUNT];
    static int64_t row[COUNT];
    const lierne_all_reduce_spec sum =
        all_reduce_of(COUNT, LIERNE_DTYPE_BF16, LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
    const lierne_all_to_all_spec all = {.size = sizeof all,
                                        .count = 20000,
                                        .dtype = LIERNE_DTYPE_F64,
                                        .max_inflight = 2};
    lierne_references_spec rows = LIERNE_REFERENCES_SPEC_INIT;
    for (int i = 0; i < COUNT; i++) { /* the same on every rank */
        rank[i] = i * 7 % test_world;
        row[i] = i * 13 % OWNED;
    }
    rows.nowned = OWNED;
    rows.nghosts = COUNT;
    rows.rank = rank;
    rows.row = row;
    rows.width = 3;
    rows.dtype = LIERNE_DTYPE_F16;
    return kind == 0   ? lierne_plan_create_all_reduce(plan, context, &sum)
           : kind == 1 ? lierne_plan_create_all_to_all(plan, context, &all)
                       : lierne_plan_create_references(plan, context, &rows);
}

static unsigned char *fill(size_t bytes, int salt) {
    unsigned char *data = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)((i * 31 + (size_t)(test_rank * 17 + salt)) % 59);
    }
    return data;
}

/* One direction on both, twice at once on the device. */
static void compare(lierne_plan *host, lierne_plan *device, int d, int requests) {
    static char stream;
    int64_t in_elements, out_elements;
    lierne_dtype dtype;
    lierne_request *request[2] = {NULL, NULL};
    unsigned char *in[2], *expected[2], *out[2];
    lierne_plan_get_dtype(&dtype, host);
    lierne_plan_get_elements(&in_elements, &out_elements, host, (lierne_direction)d);
    size_t bytes = (size_t)out_elements * lierne_dtype_size(dtype);
    lierne_status (*begin)(lierne_request **, lierne_plan *, void *, const void *, void *) =
        d ? lierne_plan_adjoint_begin : lierne_plan_forward_begin;
    for (int i = 0; i < requests; i++) {
        in[i] = fill((size_t)in_elements * lierne_dtype_size(dtype), i);
        expected[i] = fill(bytes, 5);
        out[i] = fill(bytes, 9);
        CHECK((d ? lierne_plan_adjoint : lierne_plan_forward)(host, expected[i], in[i], NULL) ==
                  LIERNE_OK,
              "%s", lierne_last_error());
    }
    for (int i = 0; i < requests; i++) {
        CHECK_OK(begin(&request[i], device, out[i], in[i], &stream));
    }
    for (int i = requests; i-- > 0;) {
        CHECK_OK(lierne_request_end(request[i]));
        CHECK(memcmp(out[i], expected[i], bytes) == 0, "%s: other bits", d ? "adjoint" : "forward");
        free(in[i]);
        free(expected[i]);
        free(out[i]);
    }
}

static void check_report(const lierne_plan *plan, bool window) {
    lierne_report report = {.size = sizeof report};
    CHECK_OK(lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD));
    CHECK(strcmp(report.transports, window ? "ipc" : "mpi") == 0, "over %s", report.transports);
    CHECK(report.host_bytes == (window ? 0 : report.sent_bytes + report.received_bytes),
          "host_bytes");
    CHECK(report.window_bytes == (window ? report.sent_bytes : 0), "window_bytes");
}

static void run_all(lierne_context *host, lierne_context *device, bool window) {
    for (int kind = 0; kind < 3; kind++) {
        lierne_plan *a = NULL, *b = NULL;
        lierne_report report = {.size = sizeof report};
        CHECK_OK(make_plan(&a, host, kind));
        CHECK_OK(make_plan(&b, device, kind));
        for (int round = 0; round < 4; round++) {
            compare(a, b, round % 2, kind == 1 ? 2 : 1);
        }
        check_report(b, window);
        CHECK_OK(lierne_plan_get_report(&report, a, LIERNE_DIRECTION_FORWARD));
        CHECK(report.host_bytes == 0, "host_bytes of host memory");
        CHECK_OK(lierne_plan_destroy(a));
        CHECK_OK(lierne_plan_destroy(b));
    }
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    lierne_context *host = test_context(PATIENT), *device = test_context(PATIENT);
    lierne_context *window = test_context(PATIENT);
    lierne_stream_driver driver = test_device_driver;
    driver.required = true;
    device->memory = &test_device_memory;
    device->stream_driver = &driver;
    run_all(host, device, false);
    CHECK_OK(test_ipc_use(window));
    run_all(host, window, true);
    CHECK_OK(lierne_context_destroy(window));
    CHECK_OK(lierne_context_destroy(device));
    CHECK_OK(lierne_context_destroy(host));
    return test_finish();
}
