/* NVIDIA's resharding (ncclReshard of the wheel nccl-extensions, with NCCL 2.30.5 or later) beside
 * lierne's redistribution over NCCL, a process per device:
 *
 *   launch N reshard
 *
 * A matrix whose rows are divided among the first half of the ranks goes to the other half, which
 * divides its columns. Without the library, or the devices, it says so. Its header needs that of
 * NCCL 2.30.5, which is rarely the one that is installed: its two structures are declared here, in
 * their version 2. */
#include "gpu.h"

#include "lierne/cuda.h"
#include "lierne/nccl.h"
#include "lierne/node.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>

enum { ROWS = 8192, COLUMNS = 4096 }; /* floats: 128 MiB */

typedef struct mesh {
    size_t size;
    unsigned version;
    int ndims;
    int *sizes;
    int first_rank;
} mesh;

typedef struct tensor {
    size_t size;
    unsigned version;
    void *data;
    size_t *shape; /* of a rank's part */
    int naxes;
    ncclDataType_t dtype;
    const mesh *mesh;
    int *axes; /* that each dim of the mesh divides */
} tensor;

static struct {
    __typeof__(&ncclGetVersion) version;
    __typeof__(&ncclGetUniqueId) get_id;
    __typeof__(&ncclCommInitRank) init;
    __typeof__(&ncclCommDestroy) destroy;
    ncclResult_t (*reshard)(void *handle, ncclComm_t comm, const tensor *src, const tensor *dst,
                            cudaStream_t stream);
} nccl;

/* A rank: its part of the matrix in the first half is in, in the other one out. */
typedef struct job {
    int rank, half;
    void *in, *out;
    ncclComm_t comm;
    lierne_plan *plan;
} job;

static void *find(const char *name, const char *library) {
    void *found = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    return found ? dlsym(found, name) : NULL;
}

/* NULL, or why nothing can be measured. */
static const char *load(int world, int devices) {
    int version = 0;
    if (world < 2 || world % 2 || world > devices || ROWS % world || COLUMNS % world) {
        return "it needs a device for each of 2, 4, 8 or 16 processes";
    }
    *(void **)&nccl.version = find("ncclGetVersion", "libnccl.so.2");
    *(void **)&nccl.get_id = find("ncclGetUniqueId", "libnccl.so.2");
    *(void **)&nccl.init = find("ncclCommInitRank", "libnccl.so.2");
    *(void **)&nccl.destroy = find("ncclCommDestroy", "libnccl.so.2");
    if (!nccl.version || !nccl.get_id || !nccl.init || !nccl.destroy) {
        return "libnccl.so.2 is not found";
    }
    nccl.version(&version);
    if (version < 23005) {
        return "it needs NCCL 2.30.5";
    }
    *(void **)&nccl.reshard = find("ncclReshard", "libnccl_m2n.so");
    return nccl.reshard ? NULL : "libnccl_m2n.so, of the wheel nccl-extensions, is not found";
}

static void run_reshard(void *argument, cudaStream_t stream) {
    job *j = argument;
    int row_axis = 0, column_axis = 1;
    bool sends = j->rank < j->half;
    size_t rows[2] = {(size_t)(ROWS / j->half), COLUMNS};
    size_t columns[2] = {ROWS, (size_t)(COLUMNS / j->half)};
    const mesh meshes[2] = {{sizeof(mesh), 2, 1, &j->half, 0},
                            {sizeof(mesh), 2, 1, &j->half, j->half}};
    const tensor src = {sizeof src, 2,         sends ? j->in : NULL, rows,
                        2,          ncclFloat, &meshes[0],           &row_axis};
    const tensor dst = {sizeof dst, 2,          sends ? NULL : j->out, columns, 2,
                        ncclFloat,  &meshes[1], &column_axis};
    gpu_must(nccl.reshard(NULL, j->comm, &src, &dst, stream) == ncclSuccess, "ncclReshard");
}

static void run_plan(void *argument, cudaStream_t stream) {
    const job *j = argument;
    gpu_must(lierne_plan_forward(j->plan, j->out, j->in, stream) == LIERNE_OK,
             "a forward over NCCL");
}

/* The matrix on half of the ranks, from rank first on. */
static lierne_layout *make_layout(int half, int first, int axis) {
    static const char *const names[] = {"dp"};
    static const int64_t shape[] = {ROWS, COLUMNS};
    const int64_t size = half;
    const lierne_placement placement = {.kind = LIERNE_PLACEMENT_SHARD, .axis = axis};
    const lierne_grid_spec g = {.size = sizeof g,
                                .ndims = 1,
                                .names = names,
                                .sizes = &size,
                                .rank_offset = first,
                                .world_size = 2 * size};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .naxes = 2,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_F32,
                               .placements = &placement};
    lierne_grid *grid = NULL;
    lierne_layout *layout = NULL;
    gpu_must(lierne_grid_create(&grid, &g) == LIERNE_OK, "a grid");
    spec.grid = grid;
    gpu_must(lierne_layout_create(&layout, &spec) == LIERNE_OK, "a layout");
    lierne_grid_destroy(grid);
    return layout;
}

static lierne_plan *make_plan(lierne_context *context, int half) {
    lierne_layout *src = make_layout(half, 0, 0), *dst = make_layout(half, half, 1);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    lierne_plan *plan = NULL;
    gpu_must(lierne_plan_create_redistribute(&plan, context, &spec) == LIERNE_OK,
             "planning a redistribution");
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return plan;
}

/* All ranks get the id of the first one. */
static ncclUniqueId share_id(lierne_context *node, int rank) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = sizeof(ncclUniqueId),
                                         .dtype = LIERNE_DTYPE_I8};
    static ncclUniqueId ids[16], mine;
    lierne_plan *plan = NULL;
    gpu_must(rank > 0 || nccl.get_id(&mine) == ncclSuccess, "ncclGetUniqueId");
    gpu_must(lierne_plan_create_all_gather(&plan, node, &spec) == LIERNE_OK, "planning");
    gpu_must(lierne_plan_forward(plan, ids, &mine, NULL) == LIERNE_OK, "an all-gather");
    gpu_must(lierne_plan_destroy(plan) == LIERNE_OK, "destroying a plan");
    return ids[0];
}

static void bench(lierne_context *node, int rank, int world) {
    lierne_context *context = NULL;
    size_t bytes = (size_t)ROWS * COLUMNS * sizeof(float) / (size_t)(world / 2);
    job j = {.rank = rank, .half = world / 2};
    gpu_must(cudaSetDevice(rank) == cudaSuccess, "cudaSetDevice");
    gpu_must(nccl.init(&j.comm, world, share_id(node, rank), rank) == ncclSuccess,
             "ncclCommInitRank");
    gpu_must(lierne_context_create_nccl(&context, j.comm, NULL) == LIERNE_OK,
             "lierne_context_create_nccl");
    cudaStream_t stream = gpu_stream();
    j.plan = make_plan(context, j.half);
    j.in = gpu_memory(bytes);
    j.out = gpu_memory(bytes);
    double theirs = gpu_time(run_reshard, &j, stream), ours = gpu_time(run_plan, &j, stream);
    if (rank == 0) {
        printf("\n%d processes, a matrix of %d MiB from rows to columns on other devices\n"
               "  ncclReshard %.3f ms, lierne over NCCL %.3f ms\n",
               world, ROWS * COLUMNS / (1 << 18), theirs * 1e3, ours * 1e3);
    }
    gpu_must(lierne_plan_destroy(j.plan) == LIERNE_OK, "destroying a plan");
    gpu_must(lierne_context_destroy(context) == LIERNE_OK, "destroying a context");
    nccl.destroy(j.comm);
}

int main(void) {
    lierne_context *node = NULL;
    int devices = 0;
    devices = cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
    gpu_must(lierne_context_create_node(&node, NULL) == LIERNE_OK, "a context of a node");
    int rank = lierne_context_get_rank(node), world = lierne_context_get_world_size(node);
    const char *reason = load(world, devices);
    if (!reason) {
        bench(node, rank, world);
    } else if (rank == 0) {
        printf("NVIDIA's resharding was not measured on %d processes: %s\n", world, reason);
    }
    return lierne_context_destroy(node) != LIERNE_OK;
}
