/* The transport over an NCCL communicator, for device memory and streams. */
#ifndef LIERNE_NCCL_TRANSPORT_H
#define LIERNE_NCCL_TRANSPORT_H

#include "runtime/transport/heap.h"
#include "runtime/transport/transport.h"

#include <nccl.h>
#include <pthread.h>

/* What the header of an older NCCL lacks: the library that is found may be a newer one. */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 1)
ncclResult_t ncclMemAlloc(void **memory, size_t size);
ncclResult_t ncclMemFree(void *memory);
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 3)
typedef struct ncclWindow_vidmem *ncclWindow_t;
#define NCCL_WIN_COLL_SYMMETRIC 0x01
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t size,
                                    ncclWindow_t *window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 1)
#define NCCL_SPLIT_NOCOLOR -1
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 0)
typedef struct ncclCollConfig_v23100 {
    size_t size;
    unsigned magic, version;
    struct ncclConfigExt *ext;
    int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
    const char *algSelection;
    int forceAlgSelection, CTAPolicy;
    uint64_t userProfilerTag;
} ncclCollConfig_t;
ncclResult_t ncclAllGatherConfig(const void *mine, void *all, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t *config);
#endif

/* The functions of NCCL that lierne calls; of the library that the process has or finds. */
#define LIERNE_NCCL_FUNCTIONS(DO)                                                                  \
    DO(ncclGetVersion)                                                                             \
    DO(ncclGetUniqueId)                                                                            \
    DO(ncclCommInitRankConfig)                                                                     \
    DO(ncclCommGetAsyncError)                                                                      \
    DO(ncclCommFinalize)                                                                           \
    DO(ncclCommDestroy)                                                                            \
    DO(ncclCommAbort)                                                                              \
    DO(ncclCommCount)                                                                              \
    DO(ncclCommUserRank)                                                                           \
    DO(ncclCommCuDevice)                                                                           \
    DO(ncclGetErrorString)                                                                         \
    DO(ncclGetLastError)                                                                           \
    DO(ncclAllGather)                                                                              \
    DO(ncclGroupStart)                                                                             \
    DO(ncclGroupEnd)                                                                               \
    DO(ncclSend)                                                                                   \
    DO(ncclRecv)
/* Those that an older one lacks; NULL then. */
#define LIERNE_NCCL_WINDOW_FUNCTIONS(DO)                                                           \
    DO(ncclMemAlloc)                                                                               \
    DO(ncclMemFree)                                                                                \
    DO(ncclCommWindowRegister)                                                                     \
    DO(ncclCommWindowDeregister)
#define LIERNE_NCCL_GROUP_FUNCTIONS(DO) DO(ncclCommSplit)
#define LIERNE_NCCL_TAG_FUNCTIONS(DO)   DO(ncclAllGatherConfig)
typedef struct lierne_nccl_functions {
#define DECLARE(name) __typeof__(&(name)) name;
    LIERNE_NCCL_FUNCTIONS(DECLARE)
    LIERNE_NCCL_WINDOW_FUNCTIONS(DECLARE)
    LIERNE_NCCL_GROUP_FUNCTIONS(DECLARE)
    LIERNE_NCCL_TAG_FUNCTIONS(DECLARE)
#undef DECLARE
} lierne_nccl_functions;
/* Errors: UNSUPPORTED (there is no NCCL, or an older one than 2.14, which lacks nonblocking
 * communicators). */
lierne_status lierne_nccl_load(lierne_nccl_functions *nccl);
/* Whether it has windows for symmetric memory: those of 2.28 or later. */
bool lierne_nccl_has_windows(const lierne_nccl_functions *nccl);

/* The transport's state: a communicator whose ranks are those of a context, or of a group of it. */
typedef struct lierne_nccl {
    lierne_nccl_functions call;
    ncclComm_t comm; /* NULL once it is destroyed */
    bool owned;      /* lierne made it */
    bool broken;     /* of no further use */
    bool splits;     /* a split has not ended: NCCL may still write what it makes */
    pthread_mutex_t
        lock; /* one thread at a time may use a communicator: the caller's, the watchdog */
    int rank;
    int world;
    double timeout;
    int batches;                       /* that are on it */
    bool *met;                         /* per rank; NULL: it has no messages but all-gathers */
    lierne_heap heap;                  /* of windows */
    ncclWindow_t window;               /* of the chunk that is added, once NCCL has made it */
    bool adds_chunk;                   /* the last chunk of the heap is not decided on */
    struct lierne_nccl *groups, *next; /* what was made for groups of the context, with the lock */
    struct lierne_nccl *parent;        /* of a group's: the context's; else NULL */
    struct lierne_context *context;    /* of the context's: to agree in; else NULL */
    int *places;     /* of a group's: its rank of each member of the context; else NULL */
    ncclComm_t none; /* what a split makes where this rank is in no group: NULL */
} lierne_nccl;
extern const lierne_transport lierne_nccl_transport;

/* Takes the lock. Errors: TRANSPORT (without the lock: the watchdog has aborted the communicator).
 */
lierne_status lierne_nccl_enter(lierne_nccl *n);
void lierne_nccl_leave(lierne_nccl *n);
/* TRANSPORT with NCCL's words, unless result is ncclSuccess or ncclInProgress. what: the call. */
lierne_status lierne_nccl_check(const lierne_nccl *n, ncclResult_t result, const char *what);
/* Whether what was begun on a nonblocking communicator has been enqueued. Errors: TRANSPORT. */
lierne_status lierne_nccl_is_ready(lierne_nccl *n, const char *what, bool *ready);
/* Waits until what was begun on a nonblocking communicator has been enqueued. Errors: TIMEOUT,
 * TRANSPORT. */
lierne_status lierne_nccl_wait(lierne_nccl *n, const char *what);
lierne_status lierne_nccl_wait_within(lierne_nccl *n, const char *what, double timeout);
/* Begins to gather bytes bytes of mine from all ranks; rank r's go to all + r * bytes. mine may be
 * that place. Both lie in memory that the communicator's device can access. tag: what profiler
 * plugins of NCCL get, or 0; NCCL before 2.31 has no tags. */
lierne_status lierne_nccl_all_gather(lierne_nccl *n, const void *mine, void *all, size_t bytes,
                                     void *stream, uint64_t tag);
/* Both for the watchdog. check: an error that NCCL has noticed since; none while another thread
 * uses the communicator. abort: ends what hangs, on a communicator that lierne made. */
lierne_status lierne_nccl_check_async(void *self);
void lierne_nccl_abort(void *self);
/* nccl_windows.c. The functions of the transport; leave deregisters all windows, print says how
 * large they are. close: frees their memory, after the communicator has ended. */
lierne_heap *lierne_nccl_heap(void *self);
lierne_status lierne_nccl_heap_reserve(void *self, int64_t bytes);
lierne_status lierne_nccl_heap_enlist(void *self);
void lierne_nccl_heap_decide(void *self, bool kept);
void lierne_nccl_heap_leave(void *self);
void lierne_nccl_print(const void *self, char *text, size_t size);
void lierne_nccl_heap_close(lierne_nccl *n);
/* Ends a communicator that lierne made, and those of groups: together with the other ranks, at most
 * until the timeout; after an error at once. While n still splits, neither it nor its groups may be
 * freed. Errors: TIMEOUT, TRANSPORT (it has ended, too). */
lierne_status lierne_nccl_end(lierne_nccl *n);
/* The same of the communicator alone. */
lierne_status lierne_nccl_end_comm(lierne_nccl *n);
/* The configuration of a communicator that does not block. */
ncclConfig_t lierne_nccl_configuration(void);
/* Makes n->comm, which is n's own, together with the other ranks that have the id. */
lierne_status lierne_nccl_init(lierne_nccl *n, ncclUniqueId id, int rank, int world,
                               double timeout);
/* nccl_groups.c. What the transport does for groups (lierne_transport_groups). */
lierne_status lierne_nccl_group_create(void *self, const lierne_transport_group *group,
                                       double timeout, void **out);
lierne_status lierne_nccl_group_destroy(void *self, double timeout, bool alone);

#endif
