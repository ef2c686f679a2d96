/* NCCL for a context that has a control of its own.
 *
 * Everything that can fail on one rank alone comes before the ranks agree. Then all of them create
 * the communicator, under a deadline, and agree again: it exists on all ranks or on none. A first
 * window is registered at once, because a registration that fails leaves the communicator in doubt:
 * now another one can still take its place, which then has no windows. */
#include "backend/nccl/nccl_transport.h"
#include "lierne/nccl.h"
#include "runtime/context/context.h"

#include <stdio.h>
#include <string.h>

#define ID_WORDS (sizeof(ncclUniqueId) / sizeof(int64_t))

/* A communicator and the memory that it moves are of one device. */
static lierne_status check_device(const lierne_nccl *n, const lierne_context *context) {
    int device = -1;
    LIERNE_TRY(
        lierne_nccl_check(n, n->call.ncclCommCuDevice(n->comm, &device), "ncclCommCuDevice"));
    return device == context->device
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "rank %d: the communicator is on device %d, must be on %d, the one "
                             "that was current in lierne_context_use_cuda: call cudaSetDevice",
                             context->rank, device, context->device);
}

static lierne_status check_given(const lierne_nccl *n) {
    int rank = -1, count = -1;
    LIERNE_TRY(lierne_nccl_check(n, n->call.ncclCommUserRank(n->comm, &rank), "ncclCommUserRank"));
    LIERNE_TRY(lierne_nccl_check(n, n->call.ncclCommCount(n->comm, &count), "ncclCommCount"));
    return rank == n->rank && count == n->world
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "comm has rank %d of %d, must have rank %d of %d: the ranks of the "
                             "context, in their order",
                             rank, count, n->rank, n->world);
}

static lierne_status check_context(const lierne_context *context) {
    for (int i = 0; i < context->ncarriers; i++) {
        if (context->carriers[i].transport == &lierne_nccl_transport) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: the context uses NCCL already",
                               context->rank);
        }
    }
    if (strcmp(context->memory->name, "cuda") != 0 || context->nplans > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the context has %s memory and %zu plans: call "
                           "lierne_context_use_cuda first, and both before the first plan",
                           context->rank, context->memory->name, context->nplans);
    }
    if (context->last_group_uid > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: groups were created before: call it before "
                           "lierne_group_create, which makes their communicators",
                           context->rank);
    }
    return context->ncarriers < LIERNE_MAX_TRANSPORTS
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "rank %d: the context has %d transports already", context->rank,
                             context->ncarriers);
}

static lierne_status get_id(const lierne_nccl *n, ncclUniqueId *id) {
    return n->rank == 0 ? lierne_nccl_check(n, n->call.ncclGetUniqueId(id), "ncclGetUniqueId")
                        : LIERNE_OK;
}

/* Everything that can fail on this rank alone. id: of the communicator to make, on one rank. */
static lierne_status prepare_nccl(lierne_nccl **out, lierne_context *context, ncclComm_t comm,
                                  ncclUniqueId *id) {
    lierne_nccl *n;
    LIERNE_TRY(check_context(context));
    LIERNE_TRY(lierne_alloc(&n, 1, sizeof *n));
    *out = n;
    *n = (lierne_nccl){.comm = comm,
                       .rank = context->index,
                       .world = context->members.count,
                       .timeout = context->timeout,
                       .context = context};
    pthread_mutex_init(&n->lock, NULL);
    LIERNE_TRY(lierne_alloc(&n->met, (size_t)n->world, sizeof *n->met));
    LIERNE_TRY(lierne_nccl_load(&n->call));
    if (comm) {
        LIERNE_TRY(check_given(n));
        return check_device(n, context);
    }
    return get_id(n, id);
}

/* Gives all ranks the id of the first one: its words are the greatest. */
static lierne_status share_id(lierne_context *context, ncclUniqueId *id) {
    int64_t words[ID_WORDS];
    memcpy(words, id, sizeof words);
    for (size_t i = 0; i < ID_WORDS && context->index != 0; i++) {
        words[i] = INT64_MIN;
    }
    for (size_t i = 0; i < ID_WORDS; i += LIERNE_MAX_REDUCED) {
        LIERNE_TRY(lierne_context_allreduce_max(context, words + i, LIERNE_MAX_REDUCED));
    }
    memcpy(id, words, sizeof words);
    return LIERNE_OK;
}

static lierne_status make_comm(lierne_context *context, lierne_nccl *n, ncclUniqueId *id,
                               const lierne_field *fields) {
    LIERNE_TRY(share_id(context, id));
    lierne_status mine = lierne_nccl_init(n, *id, n->rank, n->world, n->timeout);
    mine = mine == LIERNE_OK ? check_device(n, context) : mine;
    lierne_status status = lierne_context_agree_all(context, mine, fields, 1, NULL);
    n->broken |= status != LIERNE_OK;
    return status;
}

/* The smallest window that there is: whether NCCL has them. */
static lierne_status open_windows(lierne_context *context, lierne_nccl *n, ncclUniqueId *id,
                                  const lierne_field *fields) {
    const lierne_carrier carrier = {.transport = &lierne_nccl_transport, .self = n};
    n->heap.grows = true;
    lierne_status status = lierne_context_grow_heap(context, &carrier, 1);
    if (status == LIERNE_OK || context->dead != LIERNE_OK) {
        n->broken |= status != LIERNE_OK;
        return status;
    }
    status = get_id(n, id);
    LIERNE_TRY(lierne_context_agree_all(context, status, fields, 1, NULL));
    return make_comm(context, n, id, fields);
}

lierne_status lierne_context_use_nccl(lierne_context *context, struct ncclComm *comm) {
    LIERNE_PUBLIC_CALL();
    const lierne_field fields[2] = {{.name = "lierne_context_use_nccl"},
                                    {.name = "comm is given", .value = comm != NULL}};
    lierne_nccl *n = NULL;
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    if (!context) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "context is NULL");
    }
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status = prepare_nccl(&n, context, comm, &id);
    status = lierne_context_agree_all(context, status, fields, 2, NULL);
    if (status == LIERNE_OK && !comm) {
        status = make_comm(context, n, &id, fields);
        status = status == LIERNE_OK ? open_windows(context, n, &id, fields) : status;
    }
    if (status == LIERNE_OK) {
        status = lierne_context_add_transport(context, &lierne_nccl_transport, n, NULL);
    }
    if (status != LIERNE_OK && n) {
        lierne_nccl_end(n);
        lierne_mem_free(n);
    }
    return status;
}

lierne_status lierne_nccl_get_summary(char *text, size_t size) {
    LIERNE_PUBLIC_CALL();
    lierne_nccl_functions nccl;
    int version = 0;
    if (!text || size == 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "text is NULL or size is 0");
    }
    if (lierne_nccl_load(&nccl) != LIERNE_OK) {
        snprintf(text, size, "%s", lierne_error_text());
        return LIERNE_OK;
    }
    nccl.ncclGetVersion(&version);
    snprintf(text, size, "NCCL %d.%d.%d%s%s%s%s", version / 10000, version / 100 % 100,
             version % 100, lierne_nccl_has_windows(&nccl) ? ", windows" : "",
             nccl.ncclCommSplit ? ", split communicators" : "",
             nccl.ncclAllGatherConfig ? ", profiler tags" : "",
             version >= NCCL_VERSION(2, 29, 0) ? ", put/signal (not used)" : "");
    return LIERNE_OK;
}
