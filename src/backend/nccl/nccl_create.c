/* A context from nothing but a communicator: its control is the one over functions that gather
 * (backend/oob/oob_context.h), and gathers with NCCL, on a stream of its own.
 *
 * What is gathered lies in pinned host memory, which NCCL reads and writes like the device's: so no
 * copy is needed, and a gather that is given up leaves nothing of the caller's in NCCL's hands. */
#include "backend/cuda/cuda_memory.h"
#include "backend/nccl/nccl_transport.h"
#include "backend/oob/oob_context.h"
#include "lierne/cuda.h"
#include "lierne/nccl.h"

#include <stdio.h>
#include <string.h>

typedef struct gatherer {
    lierne_nccl nccl; /* the caller's communicator */
    void *stream;
    char *memory; /* what this rank gives, then what all do */
    size_t capacity;
    void *all; /* where the running gather ends; NULL: none runs */
    size_t bytes;
} gatherer;

static lierne_status reserve_gatherer(gatherer *g, size_t bytes) {
    void *memory;
    if (bytes <= g->capacity) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_cuda_memory.alloc_host(&memory, bytes));
    if (g->memory) {
        lierne_cuda_memory.free_host(g->memory);
    }
    g->memory = memory;
    g->capacity = bytes;
    return LIERNE_OK;
}

static int gather_ids(void **request, const void *mine, void *all, size_t bytes, void *user) {
    gatherer *g = user;
    LIERNE_TRY(reserve_gatherer(g, bytes * ((size_t)g->nccl.world + 1)));
    memcpy(g->memory, mine, bytes);
    LIERNE_TRY(lierne_nccl_all_gather(&g->nccl, g->memory, g->memory + bytes, bytes, g->stream, 0));
    g->all = all;
    g->bytes = bytes;
    *request = g;
    return LIERNE_OK;
}

/* Enqueued, where the communicator does not block, and then passed by the stream. */
static int test(void *request, void *user) {
    gatherer *g = request;
    bool ready, idle = false;
    (void)user;
    LIERNE_TRY(lierne_nccl_is_ready(&g->nccl, "ncclAllGather", &ready));
    LIERNE_TRY(ready ? lierne_cuda_stream_idle(&idle, g->stream) : LIERNE_OK);
    if (!idle) {
        return 1;
    }
    memcpy(g->all, g->memory + g->bytes, g->bytes * (size_t)g->nccl.world);
    g->all = NULL;
    return LIERNE_OK;
}

/* The caller's buffers were copied. */
static int free_request(void *request, void *user) {
    (void)request, (void)user;
    return 0;
}

static void progress_nothing(void *user) {
    (void)user; /* NCCL does by itself */
}

/* NCCL may still write what a gather that never ended left. */
static void close_gatherer(void *user) {
    gatherer *g = user;
    bool idle = !g->all;
    if (g->stream && (idle || lierne_cuda_stream_idle(&idle, g->stream) == LIERNE_OK) && idle) {
        lierne_cuda_stream_destroy(g->stream);
        if (g->memory) {
            lierne_cuda_memory.free_host(g->memory);
        }
    }
    lierne_nccl_end(&g->nccl);
    lierne_mem_free(g);
}

static const lierne_oob_hooks hooks = {.progress = progress_nothing, .close = close_gatherer};

/* Rank and world, and a stream on the communicator's device. */
static lierne_status fill_gatherer(gatherer *g) {
    lierne_nccl *n = &g->nccl;
    int device;
    LIERNE_TRY(lierne_nccl_load(&n->call));
    LIERNE_TRY(
        lierne_nccl_check(n, n->call.ncclCommUserRank(n->comm, &n->rank), "ncclCommUserRank"));
    LIERNE_TRY(lierne_nccl_check(n, n->call.ncclCommCount(n->comm, &n->world), "ncclCommCount"));
    LIERNE_TRY(
        lierne_nccl_check(n, n->call.ncclCommCuDevice(n->comm, &device), "ncclCommCuDevice"));
    return lierne_cuda_stream_create(&g->stream, device, false);
}

static lierne_status open_state(lierne_oob_state **out, ncclComm_t comm, lierne_status *mine) {
    gatherer *g;
    LIERNE_TRY(lierne_alloc(&g, 1, sizeof *g));
    g->nccl.comm = comm;
    pthread_mutex_init(&g->nccl.lock, NULL);
    lierne_status status = fill_gatherer(g);
    status = status == LIERNE_OK ? lierne_oob_open(out, g->nccl.rank, g->nccl.world, mine) : status;
    if (status != LIERNE_OK) {
        close_gatherer(g);
        return status;
    }
    (*out)->calls = (lierne_oob_calls){.user = g,
                                       .allgather = gather_ids,
                                       .test = test,
                                       .free_request = free_request};
    (*out)->hooks = &hooks;
    return LIERNE_OK;
}

lierne_status lierne_context_create_nccl(lierne_context **out, struct ncclComm *comm,
                                         const lierne_context_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    char message[LIERNE_MESSAGE_SIZE];
    lierne_context_spec spec;
    lierne_context *context = NULL;
    lierne_oob_state *s;
    if (!comm) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "comm is NULL, must be an ncclComm_t");
    }
    lierne_status mine = lierne_context_take_spec(&spec, given);
    LIERNE_TRY(open_state(&s, comm, &mine));
    LIERNE_TRY(
        lierne_context_open_oob(out ? &context : NULL, s, &lierne_oob_transport, &spec, mine));
    lierne_status status = lierne_context_use_cuda(context);
    status = status == LIERNE_OK ? lierne_context_use_nccl(context, comm) : status;
    if (status != LIERNE_OK) {
        snprintf(message, sizeof message, "%s", lierne_error_text());
        lierne_context_destroy(context);
        lierne_set_error(message);
        return status;
    }
    *out = context;
    return LIERNE_OK;
}
