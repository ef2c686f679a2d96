/* NCCL is looked up at run time, not linked. It is hundreds of megabytes that most processes of
 * lierne do not need. And a communicator of the caller's must be used by the library that made it:
 * where PyTorch has loaded the one of its wheel, that one is found by its name. */
#include "transport/nccl/nccl.h"

#include <dlfcn.h>
#include <sched.h>

#define LIBRARY "libnccl.so.2"
#define OLDEST  NCCL_VERSION(2, 14, 0)

/* The library stays loaded: NCCL has threads of its own. */
lierne_status lierne_nccl_load(lierne_nccl_functions *nccl) {
    int version = 0;
    void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        return LIERNE_FAIL(LIERNE_UNSUPPORTED,
                           "NCCL is not found (%s): put its folder into LD_LIBRARY_PATH",
                           dlerror());
    }
#define FIND(name)                                                                                 \
    *(void **)&nccl->name = dlsym(library, #name);                                                 \
    if (!nccl->name) {                                                                             \
        return LIERNE_FAIL(LIERNE_UNSUPPORTED,                                                     \
                           LIBRARY " has no function " #name ": it is too old");                   \
    }
    LIERNE_NCCL_FUNCTIONS(FIND)
#undef FIND
    nccl->ncclGetVersion(&version);
    return version >= OLDEST
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_UNSUPPORTED, LIBRARY " has version %d, must be at least %d",
                             version, OLDEST);
}

lierne_status lierne_nccl_check(const lierne_nccl *n, ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress) {
        return LIERNE_OK;
    }
    const char *detail = n->comm ? n->call.ncclGetLastError(n->comm) : NULL;
    return LIERNE_FAIL(LIERNE_TRANSPORT, "rank %d: %s: %s%s%s", n->rank, what,
                       n->call.ncclGetErrorString(result), detail && *detail ? ": " : "",
                       detail ? detail : "");
}

lierne_status lierne_nccl_wait(const lierne_nccl *n, const char *what) {
    lierne_deadline deadline;
    ncclResult_t state = ncclInProgress;
    lierne_deadline_start(&deadline, n->timeout, lierne_now());
    for (;;) {
        LIERNE_TRY(lierne_nccl_check(n, n->call.ncclCommGetAsyncError(n->comm, &state), what));
        LIERNE_TRY(lierne_nccl_check(n, state, what));
        if (state == ncclSuccess) {
            return LIERNE_OK;
        }
        if (lierne_deadline_passed(&deadline, lierne_now())) {
            return LIERNE_FAIL(LIERNE_TIMEOUT,
                               "rank %d: %s: NCCL is not ready within %g s: a rank is missing or "
                               "late",
                               n->rank, what, n->timeout);
        }
        sched_yield();
    }
}

/* Destroying waits for the other ranks without a deadline; finalising first does not. */
static bool is_finalised(const lierne_nccl *n) {
    return !n->broken &&
           lierne_nccl_check(n, n->call.ncclCommFinalize(n->comm), "ncclCommFinalize") ==
               LIERNE_OK &&
           lierne_nccl_wait(n, "ncclCommFinalize") == LIERNE_OK;
}

void lierne_nccl_end(lierne_nccl *n) {
    if (n->comm && n->owned && is_finalised(n)) {
        n->call.ncclCommDestroy(n->comm);
    } else if (n->comm && n->owned) {
        n->call.ncclCommAbort(n->comm);
    }
    n->comm = NULL;
}
