/* Segments that change on a device (backend/cuda/cuda_memory.c): updates and calls that the host
 * makes without waiting, from a thread whose device is another one, with more copies than the copy
 * engine gets. Every call has the rows of its own update. Last line: N passed, N failed. */
#include "layouts.h"
#include "node_ranks.h"

#include "lierne/cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { OWN, CALLERS };
enum { SEGMENTS = 40, MOST_ROWS = 8 * SEGMENTS, ROUNDS = 24, BYTES = MOST_ROWS * 8 };

static int64_t cu[SEGMENTS + 1];
static const int32_t owner[SEGMENTS];
static const lierne_packing padded = {.size = sizeof padded, .align = 8, .owner = owner};
static const lierne_packing unpadded = {.size = sizeof unpadded,
                                        .owner = owner,
                                        .store = LIERNE_PACKING_STORE_UNPADDED};

static lierne_segments describe(int round) {
    for (int i = 0; i < SEGMENTS; i++) {
        cu[i + 1] = cu[i] + 1 + (round * 3 + i * 5) % 7;
    }
    return (lierne_segments){sizeof(lierne_segments), SEGMENTS, cu};
}

static lierne_plan *plan_of(lierne_context *context) {
    const mesh one = {.ndims = 1, .names = {"dp"}, .sizes = {1}};
    lierne_grid *grid = mesh_grid(&one, 1);
    const lierne_segments segments = describe(0);
    const lierne_placement_kind kind = LIERNE_PLACEMENT_SHARD_SEGMENTS;
    lierne_layout *src = layout_packed(grid, &segments, &padded, kind, 1),
                  *dst = layout_packed(grid, &segments, &unpadded, kind, 1);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = src,
                                           .dst = dst,
                                           .max_segments = SEGMENTS,
                                           .max_rows = MOST_ROWS};
    lierne_plan *plan = NULL;
    check(lierne_plan_create_redistribute(&plan, context, &spec) == LIERNE_OK, "planning");
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
    return plan;
}

/* Row k of the padded buffer is k. */
static void check_rows(const int64_t *rows) {
    bool right = true;
    int64_t at = 0, first = 0;
    for (int i = 0; i < SEGMENTS; i++) {
        for (int64_t k = 0; k < cu[i + 1] - cu[i]; k++) {
            right &= rows[at++] == first + k;
        }
        first += (cu[i + 1] - cu[i] + 7) / 8 * 8;
    }
    check(right, "the rows of its own update");
}

int main(void) {
    lierne_context *context = NULL;
    cudaStream_t stream;
    int64_t rows[MOST_ROWS], *in, *out[ROUNDS];
    cudaSetDevice(OWN);
    check(lierne_context_create_self(&context, NULL) == LIERNE_OK, "a context");
    check(lierne_context_use_cuda(context) == LIERNE_OK, "of a device");
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (int64_t k = 0; k < MOST_ROWS; k++) {
        rows[k] = k;
    }
    check(cudaMalloc((void **)&in, BYTES) == cudaSuccess, "memory");
    check(cudaMemcpy(in, rows, BYTES, cudaMemcpyDefault) == cudaSuccess, "input");
    for (int i = 0; i < ROUNDS; i++) {
        check(cudaMalloc((void **)&out[i], BYTES) == cudaSuccess, "memory");
    }
    lierne_plan *plan = plan_of(context);
    cudaSetDevice(CALLERS);
    for (int i = 0; i < ROUNDS; i++) {
        const lierne_segments segments = describe(i);
        const lierne_segments_update update = {.size = sizeof update,
                                               .segments = &segments,
                                               .src = &padded,
                                               .dst = &unpadded};
        check(lierne_plan_update_segments(plan, &update) == LIERNE_OK, lierne_last_error());
        check(lierne_plan_forward(plan, out[i], in, stream) == LIERNE_OK, lierne_last_error());
    }
    cudaSetDevice(OWN);
    check(cudaStreamSynchronize(stream) == cudaSuccess, "the stream");
    for (int i = 0; i < ROUNDS; i++) {
        describe(i);
        check(cudaMemcpy(rows, out[i], (size_t)cu[SEGMENTS] * 8, cudaMemcpyDefault) == cudaSuccess,
              "output");
        check_rows(rows);
        cudaFree(out[i]);
    }
    cudaFree(in);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    cudaStreamDestroy(stream);
    return print_checks();
}
