/* NCCL is looked up at run time, not linked. It is hundreds of megabytes that most processes of
 * lierne do not need. And a communicator of the caller's must be used by the library that made it:
 * where PyTorch has loaded the one of its wheel, that one is found by its name. */
#include "backend/nccl/nccl_transport.h"

#include <dlfcn.h>
#include <sched.h>

#define LIBRARY "libnccl.so.2"
#define OLDEST  NCCL_VERSION(2, 14, 0)

/* The library stays loaded: NCCL has threads of its own. */
lierne_status lierne_nccl_load(lierne_nccl_functions *nccl) {
    int version = 0;
    void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "NCCL is not found (%s): put its folder into LD_LIBRARY_PATH",
                           dlerror());
    }
#define LOOK_UP(name) *(void **)&nccl->name = dlsym(library, #name);
#define FIND(name)                                                                                 \
    LOOK_UP(name)                                                                                  \
    if (!nccl->name) {                                                                             \
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,                                                 \
                           LIBRARY " has no function " #name ": it is too old");                   \
    }
    LIERNE_NCCL_FUNCTIONS(FIND)
    LIERNE_NCCL_WINDOW_FUNCTIONS(LOOK_UP)
    LIERNE_NCCL_GROUP_FUNCTIONS(LOOK_UP)
    LIERNE_NCCL_TAG_FUNCTIONS(LOOK_UP)
#undef FIND
#undef LOOK_UP
    nccl->ncclGetVersion(&version);
    return version >= OLDEST
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, LIBRARY " has version %d, must be at least %d",
                             version, OLDEST);
}

lierne_status lierne_nccl_check(const lierne_nccl *n, ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress) {
        return LIERNE_OK;
    }
    const char *detail = n->comm ? n->call.ncclGetLastError(n->comm) : NULL;
    return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d: %s: %s%s%s", n->rank, what,
                       n->call.ncclGetErrorString(result), detail && *detail ? ": " : "",
                       detail ? detail : "");
}

/* The configuration of 2.14, which had `blocking` and nothing after it: every later NCCL takes it,
 * whatever version this file was compiled with. */
ncclConfig_t lierne_nccl_configuration(void) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct {
        size_t size;
        unsigned magic, version;
        int blocking;
    } first;
    config.size = sizeof first;
    config.version = NCCL_VERSION(2, 14, 0);
    config.blocking = 0;
    return config;
}

lierne_status lierne_nccl_enter(lierne_nccl *n) {
    pthread_mutex_lock(&n->lock);
    if (n->comm) {
        return LIERNE_OK;
    }
    pthread_mutex_unlock(&n->lock);
    return LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                       "rank %d: the communicator was aborted: a call failed after it was ended",
                       n->rank);
}

void lierne_nccl_leave(lierne_nccl *n) {
    pthread_mutex_unlock(&n->lock);
}

/* With the lock. *state: ncclInProgress, or ncclSuccess. */
static lierne_status get_state(const lierne_nccl *n, const char *what, ncclResult_t *state) {
    LIERNE_TRY(lierne_nccl_check(n, n->call.ncclCommGetAsyncError(n->comm, state), what));
    return lierne_nccl_check(n, *state, what);
}

lierne_status lierne_nccl_is_ready(lierne_nccl *n, const char *what, bool *ready) {
    ncclResult_t state = ncclInProgress;
    LIERNE_TRY(lierne_nccl_enter(n));
    lierne_status status = get_state(n, what, &state);
    lierne_nccl_leave(n);
    *ready = state == ncclSuccess;
    return status;
}

lierne_status lierne_nccl_wait_within(lierne_nccl *n, const char *what, double timeout) {
    lierne_deadline deadline;
    lierne_deadline_start(&deadline, timeout, lierne_now());
    for (;;) {
        bool ready;
        lierne_status status = lierne_nccl_is_ready(n, what, &ready);
        if (status != LIERNE_OK || ready) {
            return status;
        }
        if (lierne_deadline_passed(&deadline, lierne_now())) {
            return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                               "rank %d: %s: NCCL is not ready within %g s: a rank is missing or "
                               "late",
                               n->rank, what, timeout);
        }
        sched_yield();
    }
}

lierne_status lierne_nccl_wait(lierne_nccl *n, const char *what) {
    return lierne_nccl_wait_within(n, what, n->timeout);
}

lierne_status lierne_nccl_init(lierne_nccl *n, ncclUniqueId id, int rank, int world,
                               double timeout) {
    static const char *const what = "ncclCommInitRankConfig";
    ncclConfig_t config = lierne_nccl_configuration();
    n->owned = true;
    n->broken = true; /* until it is complete */
    pthread_mutex_lock(&n->lock);
    ncclResult_t result = n->call.ncclCommInitRankConfig(&n->comm, world, id, rank, &config);
    lierne_status status = lierne_nccl_check(n, result, what);
    pthread_mutex_unlock(&n->lock);
    LIERNE_TRY(status);
    LIERNE_TRY(lierne_nccl_wait_within(n, what, timeout));
    n->broken = false;
    return LIERNE_OK;
}

/* The configuration of 2.31, which every later NCCL takes: nothing but a tag is set. */
static ncclResult_t gather_tagged(const lierne_nccl *n, const void *mine, void *all, size_t bytes,
                                  void *stream, uint64_t tag) {
    const ncclCollConfig_t config = {.size = offsetof(ncclCollConfig_t, userProfilerTag) +
                                             sizeof config.userProfilerTag,
                                     .magic = 0xcafebeef,
                                     .version = NCCL_VERSION(2, 31, 0),
                                     .minCTAs = NCCL_CONFIG_UNDEF_INT,
                                     .maxCTAs = NCCL_CONFIG_UNDEF_INT,
                                     .nvlsCTAs = NCCL_CONFIG_UNDEF_INT,
                                     .cgaClusterSize = NCCL_CONFIG_UNDEF_INT,
                                     .forceAlgSelection = 1,
                                     .CTAPolicy = NCCL_CONFIG_UNDEF_INT,
                                     .userProfilerTag = tag};
    return n->call.ncclAllGatherConfig(mine, all, bytes, ncclInt8, n->comm, stream, &config);
}

lierne_status lierne_nccl_all_gather(lierne_nccl *n, const void *mine, void *all, size_t bytes,
                                     void *stream, uint64_t tag) {
    LIERNE_TRY(lierne_nccl_enter(n));
    ncclResult_t result = tag && n->call.ncclAllGatherConfig
                              ? gather_tagged(n, mine, all, bytes, stream, tag)
                              : n->call.ncclAllGather(mine, all, bytes, ncclInt8, n->comm, stream);
    lierne_status status = lierne_nccl_check(n, result, "ncclAllGather");
    lierne_nccl_leave(n);
    return status;
}

lierne_status lierne_nccl_check_async(void *self) {
    lierne_nccl *n = self;
    ncclResult_t state;
    if (pthread_mutex_trylock(&n->lock) != 0) {
        return LIERNE_OK;
    }
    lierne_status status = n->comm ? get_state(n, "NCCL", &state) : LIERNE_OK;
    for (lierne_nccl *g = n->groups; g && status == LIERNE_OK; g = g->next) {
        status = lierne_nccl_check_async(g);
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

void lierne_nccl_abort(void *self) {
    lierne_nccl *n = self;
    pthread_mutex_lock(&n->lock);
    for (lierne_nccl *g = n->groups; g; g = g->next) {
        lierne_nccl_abort(g);
    }
    if (n->comm && n->owned) {
        n->call.ncclCommAbort(n->comm);
        n->comm = NULL;
    }
    n->broken = true;
    pthread_mutex_unlock(&n->lock);
}
