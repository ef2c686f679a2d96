/* Deltas of device memory, step after step, against the plan's own forward on the host: the same
 * bits, for any share of changes, and for a rank whose output was overwritten; few bytes where
 * little changed; no call within a capture. */
#include "common.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 12 };

typedef struct buffers {
    size_t in_bytes, out_bytes;
    unsigned char *in, *want, *got;
    void *device_in, *device_out;
    cudaStream_t stream;
} buffers;

static void open_buffers(buffers *b, const lierne_plan *plan) {
    b->in_bytes = ranks_bytes(plan, 0, 0);
    b->out_bytes = ranks_bytes(plan, 0, 1);
    b->in = calloc(b->in_bytes + 1, 1);
    b->want = calloc(b->out_bytes + 1, 1);
    b->got = calloc(b->out_bytes + 1, 1);
    must(cudaMalloc(&b->device_in, b->in_bytes + 1) == cudaSuccess, "cudaMalloc");
    must(cudaMalloc(&b->device_out, b->out_bytes + 1) == cudaSuccess, "cudaMalloc");
    must(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    must(cudaMemsetAsync(b->device_out, 0xa5, b->out_bytes, b->stream) == cudaSuccess, "memset");
}

static void close_buffers(buffers *b) {
    cudaStreamSynchronize(b->stream);
    cudaStreamDestroy(b->stream);
    cudaFree(b->device_in);
    cudaFree(b->device_out);
    free(b->in);
    free(b->want);
    free(b->got);
}

/* Every n-th byte, none where n is 0. */
static void change(buffers *b, int step) {
    static const size_t every[] = {1, 0, 97, 7};
    size_t n = every[step % 4];
    for (size_t i = 0; n > 0 && i < b->in_bytes; i += n) {
        b->in[i] = (unsigned char)(i * 31 + (size_t)(step * 7 + rank * 13));
    }
}

static lierne_delta_report report_of(const lierne_delta *delta) {
    lierne_delta_report report = {.size = sizeof report};
    check(lierne_delta_get_report(&report, delta) == LIERNE_OK, "report");
    return report;
}

static void reject_capture(lierne_delta *delta, const buffers *b) {
    cudaGraph_t graph = NULL;
    must(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeRelaxed) == cudaSuccess, "begin");
    check(lierne_delta_forward(delta, b->device_out, b->device_in) == LIERNE_ERR_UNSUPPORTED,
          "a captured call");
    cudaStreamEndCapture(b->stream, &graph);
    cudaGraphDestroy(graph);
}

static void run_step(lierne_delta *delta, lierne_plan *host, buffers *b, int step) {
    change(b, step);
    check(lierne_plan_forward(host, b->want, b->in, NULL) == LIERNE_OK, "on host memory");
    cudaMemcpyAsync(b->device_in, b->in, b->in_bytes, cudaMemcpyHostToDevice, b->stream);
    if (step % 5 == 3 && rank == 1) {
        cudaMemsetAsync(b->device_out, 0x5a, b->out_bytes, b->stream);
        check(lierne_delta_invalidate(delta) == LIERNE_OK, "invalidate");
    }
    if (step % 2 == 0) {
        check(lierne_delta_forward(delta, b->device_out, b->device_in) == LIERNE_OK, "forward");
    } else {
        check(lierne_delta_forward_begin(delta, b->device_out, b->device_in) == LIERNE_OK, "begin");
        cudaMemsetAsync(b->device_in, 0x77, b->in_bytes, b->stream); /* is read no more */
        check(lierne_delta_forward_begin(delta, b->device_out, b->device_in) == LIERNE_ERR_BUSY,
              "two calls");
        check(lierne_delta_forward_end(delta) == LIERNE_OK, "end");
    }
    cudaMemcpyAsync(b->got, b->device_out, b->out_bytes, cudaMemcpyDeviceToHost, b->stream);
    check(cudaStreamSynchronize(b->stream) == cudaSuccess, "the stream");
    check(memcmp(b->got, b->want, b->out_bytes) == 0, "the bits of the plan on the host");
    lierne_delta_report report = report_of(delta);
    check(step % 4 != 1 || report.messages == 0, "nothing changed, and nothing is sent");
    check(report.version == step + 1, "version");
}

/* Weights of which each rank trains some rows, and serves some columns; of some all of them. */
static lierne_plan *plan_weights(lierne_context *context) {
    enum { TENSORS = 3 };
    const char *names[] = {"rank"};
    const int64_t sizes[] = {world}, shapes[TENSORS][2] = {{37, 50}, {6, 5}, {0, 4}};
    const lierne_grid_spec grid_spec = {
        .size = sizeof grid_spec, .ndims = 1, .names = names, .sizes = sizes, .world_size = world};
    lierne_grid *grid = NULL;
    lierne_layout *layouts[2][TENSORS] = {{NULL}};
    lierne_plan *plan = NULL;
    must(lierne_grid_create(&grid, &grid_spec) == LIERNE_OK, "a grid");
    for (int side = 0; side < 2; side++) {
        for (int t = 0; t < TENSORS; t++) {
            const lierne_placement cut = {.kind = side && t == 1 ? LIERNE_PLACEMENT_REPLICATE
                                                                 : LIERNE_PLACEMENT_SHARD,
                                          .axis = side};
            const lierne_layout_spec spec = {.size = sizeof spec,
                                             .grid = grid,
                                             .naxes = 2,
                                             .shape = shapes[t],
                                             .dtype = LIERNE_DTYPE_BF16,
                                             .placements = &cut};
            must(lierne_layout_create(&layouts[side][t], &spec) == LIERNE_OK, "a layout");
        }
    }
    const lierne_set_spec set = {.size = sizeof set,
                                 .ntensors = TENSORS,
                                 .src = (const lierne_layout *const *)layouts[0],
                                 .dst = (const lierne_layout *const *)layouts[1]};
    must(lierne_plan_create_set(&plan, context, &set) == LIERNE_OK, "a set");
    for (int i = 0; i < 2 * TENSORS; i++) {
        lierne_layout_destroy(layouts[i / TENSORS][i % TENSORS]);
    }
    lierne_grid_destroy(grid);
    return plan;
}

static void run(lierne_context *host, lierne_context *device, bool weights) {
    lierne_plan *expected = weights ? plan_weights(host) : ranks_plan(host, 1);
    lierne_plan *plan = weights ? plan_weights(device) : ranks_plan(device, 1);
    lierne_delta *delta = NULL;
    buffers b;
    open_buffers(&b, plan);
    must(lierne_delta_create(&delta, plan) == LIERNE_OK, "a delta");
    check(lierne_delta_forward(delta, b.device_out, b.device_in) == LIERNE_ERR_UNSUPPORTED,
          "without a stream");
    check(lierne_delta_set_stream(delta, b.stream) == LIERNE_OK, "a stream");
    check(lierne_delta_set_previous(delta, b.device_in) == LIERNE_ERR_UNSUPPORTED, "previous");
    reject_capture(delta, &b);
    for (int step = 0; step < STEPS; step++) {
        run_step(delta, expected, &b, step);
    }
    check(lierne_delta_destroy(delta) == LIERNE_OK, "destroy");
    check(lierne_plan_destroy(plan) == LIERNE_OK, "plan");
    check(lierne_plan_destroy(expected) == LIERNE_OK, "plan");
    close_buffers(&b);
}

int main(void) {
    lierne_context *host = NULL, *device = NULL;
    ranks_open(&host, &device, 60);
    run(host, device, false);
    run(host, device, true);
    check(lierne_context_destroy(device) == LIERNE_OK, "context");
    check(lierne_context_destroy(host) == LIERNE_OK, "context");
    return ranks_end();
}
