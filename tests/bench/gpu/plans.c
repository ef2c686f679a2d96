/* Plans that are measured between ranks, however these are made: a bridge of an encoder at tp2 x
 * dp4 to an LLM at tp2 x cp2 x dp2, and rows that every rank gets from all others. */
#include "gpu.h"

#include <stdlib.h>

lierne_plan *gpu_make_bridge(lierne_context *context) {
    static const char *const names[] = {"tp", "cp", "dp"};
    static const int64_t encoder_sizes[] = {2, 1, 4}, llm_sizes[] = {2, 2, 2};
    static const int64_t shape[] = {8, 4096, 4096};
    lierne_grid_spec encoder = {.size = sizeof encoder,
                                .ndims = 3,
                                .names = names,
                                .sizes = encoder_sizes,
                                .world_size = GPU_RANKS};
    lierne_grid_spec llm = encoder;
    lierne_grid *grids[2] = {NULL, NULL};
    lierne_bridge_spec spec = LIERNE_BRIDGE_SPEC_INIT;
    lierne_plan *plan = NULL;
    llm.sizes = llm_sizes;
    gpu_must(lierne_grid_create(&grids[0], &encoder) == LIERNE_OK, "a grid");
    gpu_must(lierne_grid_create(&grids[1], &llm) == LIERNE_OK, "a grid");
    spec.src = grids[0];
    spec.dst = grids[1];
    spec.naxes = 3;
    spec.shape = shape;
    spec.dtype = LIERNE_DTYPE_BF16;
    spec.sequence_axis = 1;
    gpu_must(lierne_plan_create_bridge(&plan, context, &spec) == LIERNE_OK, "planning a bridge");
    lierne_grid_destroy(grids[0]);
    lierne_grid_destroy(grids[1]);
    return plan;
}

lierne_plan *gpu_make_rows(lierne_context *context) {
    enum { OWNED = 50000, GHOSTS = 20000 };
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_plan *plan = NULL;
    int32_t *rank = malloc(GHOSTS * sizeof *rank);
    int64_t *row = malloc(GHOSTS * sizeof *row);
    int me = lierne_context_get_rank(context);
    for (int i = 0; i < GHOSTS; i++) {
        rank[i] = (me + 1 + i % (GPU_RANKS - 1)) % GPU_RANKS;
        row[i] = (int64_t)i * 7919 % OWNED;
    }
    spec.nowned = OWNED;
    spec.nghosts = GHOSTS;
    spec.rank = rank;
    spec.row = row;
    spec.width = 64;
    spec.dtype = LIERNE_DTYPE_F32;
    gpu_must(lierne_plan_create_references(&plan, context, &spec) == LIERNE_OK, "planning rows");
    free(rank);
    free(row);
    return plan;
}

void gpu_make_buffers(void *buffers[4], const lierne_plan *plan) {
    lierne_dtype dtype;
    gpu_must(lierne_plan_get_dtype(&dtype, plan) == LIERNE_OK, "a dtype");
    for (int d = 0; d < 2; d++) {
        int64_t in, out;
        gpu_must(lierne_plan_get_elements(&in, &out, plan, (lierne_direction)d) == LIERNE_OK,
                 "sizes");
        buffers[2 * d] = gpu_memory((size_t)in * lierne_dtype_size(dtype) + 1);
        buffers[2 * d + 1] = gpu_memory((size_t)out * lierne_dtype_size(dtype) + 1);
    }
}

gpu_bytes gpu_count_bytes(const lierne_plan *plan) {
    gpu_bytes bytes = {0};
    for (int d = 0; d < 2; d++) {
        lierne_report report = {.size = sizeof report};
        gpu_must(lierne_plan_get_report(&report, plan, (lierne_direction)d) == LIERNE_OK,
                 "a report");
        bytes.sent += report.sent_bytes;
        bytes.host += report.host_bytes;
        bytes.window += report.window_bytes;
    }
    return bytes;
}

void gpu_call_both(lierne_plan *plan, void *const *buffers, cudaStream_t stream) {
    gpu_must(lierne_plan_forward(plan, buffers[1], buffers[0], stream) == LIERNE_OK, "a forward");
    gpu_must(lierne_plan_adjoint(plan, buffers[3], buffers[2], stream) == LIERNE_OK, "an adjoint");
}
