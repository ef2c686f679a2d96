/* Plans on the memory of one GPU, against the same plans on host memory, bit by bit: references
 * (rows, with gradients of one row summed) of every dtype that is summed, on two streams, also with
 * a last tile that is nearly full or nearly empty, and what must be rejected. Without a device it
 * says why, and checks that this is an error like any other. Last line: N passed, N failed. */
#include "lierne.h"
#include "lierne/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWNED = 3000, GHOSTS = 5000, WIDTH = 24, MOST = 40000 };

/* Rows of a plan, and how many elements they have. */
typedef struct shape {
    int owned, ghosts, width;
} shape;

static int passed, failed;

static void check(int good, const char *what) {
    passed += good;
    failed += !good;
    if (!good) {
        printf("FAIL %s: %s\n", what, lierne_last_error());
    }
}

static unsigned state = 1;
static unsigned draw(unsigned n) {
    state = state * 1103515245u + 12345u;
    return (state >> 16) % n;
}

/* One ghost more than rows are all rows in another order, and the first one again; else some are
 * there several times, and some not. */
static lierne_plan *make_plan(lierne_context *context, lierne_dtype dtype, shape of) {
    static int32_t rank[MOST];
    static int64_t row[MOST];
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_plan *plan = NULL;
    state = 7;
    for (int i = 0; i < of.ghosts; i++) {
        row[i] =
            of.ghosts == of.owned + 1 ? (int64_t)i * 7919 % of.owned : draw((unsigned)of.owned);
    }
    spec.nowned = of.owned;
    spec.nghosts = of.ghosts;
    spec.rank = rank;
    spec.row = row;
    spec.width = of.width;
    spec.dtype = dtype;
    check(lierne_plan_create_references(&plan, context, &spec) == LIERNE_OK, "planning");
    return plan;
}

/* One direction on the host and on the device, from the same bytes. */
static void compare(lierne_plan *host, lierne_plan *device, lierne_direction direction,
                    cudaStream_t stream) {
    int64_t n_in = 0, n_out = 0;
    lierne_dtype dtype = LIERNE_DTYPE_F32;
    lierne_plan_get_dtype(&dtype, host);
    lierne_plan_get_elements(&n_in, &n_out, host, direction);
    size_t in_bytes = (size_t)n_in * lierne_dtype_size(dtype);
    size_t out_bytes = (size_t)n_out * lierne_dtype_size(dtype);
    unsigned char *in = malloc(in_bytes), *expected = malloc(out_bytes), *got = malloc(out_bytes);
    void *d_in = NULL, *d_out = NULL;
    for (size_t i = 0; i < in_bytes; i++) {
        in[i] = (unsigned char)(draw(60)); /* no NaN and no infinity in any dtype */
    }
    memset(expected, 0xa5, out_bytes);
    check(cudaMalloc(&d_in, in_bytes) == cudaSuccess, "cudaMalloc");
    check(cudaMalloc(&d_out, out_bytes) == cudaSuccess, "cudaMalloc");
    cudaMemcpyAsync(d_in, in, in_bytes, cudaMemcpyHostToDevice, stream);
    cudaMemsetAsync(d_out, 0x5a, out_bytes, stream);
    lierne_status (*run)(lierne_plan *, void *, const void *, void *) =
        direction == LIERNE_DIRECTION_FORWARD ? lierne_plan_forward : lierne_plan_adjoint;
    check(run(host, expected, in, NULL) == LIERNE_OK, "host");
    check(run(device, d_out, d_in, stream) == LIERNE_OK, "device");
    cudaMemcpyAsync(got, d_out, out_bytes, cudaMemcpyDeviceToHost, stream);
    check(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
    check(memcmp(expected, got, out_bytes) == 0, lierne_dtype_name(dtype));
    check(run(device, d_out, in, stream) == LIERNE_ERR_UNSUPPORTED, "host memory is rejected");
    check(run(device, d_out, d_in, NULL) == LIERNE_ERR_UNSUPPORTED, "no stream is rejected");
    check(run(host, expected, d_in, NULL) == LIERNE_ERR_UNSUPPORTED, "device memory is rejected");
    cudaFree(d_in);
    cudaFree(d_out);
    free(in);
    free(expected);
    free(got);
}

static void compare_plans(lierne_context *host, lierne_context *device, lierne_dtype dtype,
                          shape of, const cudaStream_t streams[2]) {
    lierne_plan *a = make_plan(host, dtype, of);
    lierne_plan *b = make_plan(device, dtype, of);
    for (int i = 0; a && b && i < 4; i++) {
        compare(a, b, (lierne_direction)(i % 2), streams[i / 2]);
    }
    lierne_plan_destroy(a);
    lierne_plan_destroy(b);
}

/* A tile of a kernel is 16,384 bytes: of the last ones, one lacks 64 bytes, and one has 8. */
static void run_all(lierne_context *host, lierne_context *device) {
    cudaStream_t streams[2];
    for (int i = 0; i < 2; i++) {
        check(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) == cudaSuccess,
              "cudaStreamCreate");
    }
    for (lierne_dtype dtype = LIERNE_DTYPE_F64; dtype <= LIERNE_DTYPE_U8; dtype++) {
        int full = (2 * 16384 - 64) / (int)lierne_dtype_size(dtype);
        int empty = (2 * 16384 + 8) / (int)lierne_dtype_size(dtype);
        compare_plans(host, device, dtype, (shape){OWNED, GHOSTS, WIDTH}, streams);
        compare_plans(host, device, dtype, (shape){full, full + 1, 1}, streams);
        compare_plans(host, device, dtype, (shape){empty, empty + 1, 1}, streams);
    }
    cudaStreamDestroy(streams[0]);
    cudaStreamDestroy(streams[1]);
}

/* Where there is another device, whose memory this one has not been allowed to access. */
static void reject_other_device(lierne_context *context) {
    cudaStream_t stream = NULL;
    void *other = NULL, *own = NULL;
    lierne_plan *plan = make_plan(context, LIERNE_DTYPE_F32, (shape){OWNED, GHOSTS, WIDTH});
    check(cudaSetDevice(1) == cudaSuccess && cudaMalloc(&other, 1 << 20) == cudaSuccess &&
              cudaSetDevice(0) == cudaSuccess && cudaMalloc(&own, 1 << 20) == cudaSuccess &&
              cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess,
          "memory of two devices");
    check(lierne_plan_forward(plan, own, other, stream) == LIERNE_ERR_UNSUPPORTED &&
              strstr(lierne_last_error(), "memory of a device that this one cannot access"),
          "memory of another device is rejected");
    lierne_plan_destroy(plan);
    cudaStreamDestroy(stream);
    cudaFree(other);
    cudaFree(own);
}

int main(void) {
    int devices = 0;
    char summary[1024] = "";
    lierne_context *host = NULL, *device = NULL;
    check(lierne_cuda_get_summary(summary, sizeof summary) == LIERNE_OK, "summary");
    printf("%s\n", summary);
    check(lierne_context_create_self(&device, NULL) == LIERNE_OK, "context");
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        check(lierne_context_use_cuda(device) == LIERNE_ERR_UNSUPPORTED,
              "an error without a device");
        printf("skipped: there is no CUDA device\n");
    } else {
        check(lierne_context_use_cuda(device) == LIERNE_OK, "lierne_context_use_cuda");
        check(lierne_context_create_self(&host, NULL) == LIERNE_OK, "context"); /* CUDA is loaded */
        run_all(host, device);
        if (devices > 1) {
            reject_other_device(device);
        }
    }
    check(lierne_context_destroy(device) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(host) == LIERNE_OK, "destroy");
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
