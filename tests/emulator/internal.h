/* The emulated device: its memory, its streams, what is checked. One lock guards all of it but the
 * contents of memory and what only one stream's worker uses. */
#ifndef LIERNE_TESTS_EMULATOR_INTERNAL_H
#define LIERNE_TESTS_EMULATOR_INTERNAL_H

#include "emulator.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

enum { EMULATOR_MOST_DEVICES = 8 };

/* From the environment, whose variables are EMULATOR_ and these names. */
typedef struct emulator_settings {
    int devices;     /* 1 */
    int connections; /* hardware queues that streams share; 0: each stream has its own */
    int check;       /* 1: accesses of kernels and copies are checked */
    int seed;        /* of every order that is drawn */
    int delay;       /* most microseconds before an operation, at random */
    int descriptors; /* 1: memory can be shared by descriptors, else by handles of CUDA IPC only */
    int pools;       /* 1: the device has pools, for cudaMallocAsync */
    int sm;          /* 100: what the device says it is */
} emulator_settings;
extern emulator_settings emulator;

/* Below n. */
unsigned emulator_draw(unsigned n);
/* Leaves an error of a call for cudaGetLastError, and returns it. */
cudaError_t emulator_result(cudaError_t error);
#define EMULATOR_TRY(call)                                                                         \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            return emulator_result(error_);                                                        \
        }                                                                                          \
    } while (0)
/* At the begin of a call: whether there is a device, and none of its work has failed. */
cudaError_t emulator_ready(void);
/* The same for a call that may not be made while a graph is captured, as it may wait. */
cudaError_t emulator_ready_outside_captures(void);
/* The device's first error stays, and everything fails from then on. */
void emulator_break(cudaError_t error);
cudaError_t emulator_broken(void);
int emulator_device(void); /* of this thread */
bool emulator_accesses(int device, int other);
/* Prints what a program did that CUDA does not allow. */
void emulator_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Guards everything; signalled when an operation has ended. */
extern pthread_mutex_t emulator_lock;
extern pthread_cond_t emulator_ended;

/* What an operation comes after: of each agent, the number of its last operation. An agent is a
 * stream, or several of them where there are many. */
enum { EMULATOR_AGENTS = 64 };
typedef struct emulator_clock {
    uint32_t at[EMULATOR_AGENTS];
} emulator_clock;
void emulator_clock_join(emulator_clock *clock, const emulator_clock *other);
/* The next number of an agent. */
uint32_t emulator_clock_advance(emulator_clock *clock, int agent);

typedef struct emulator_shadow emulator_shadow;

typedef struct emulator_memory {
    uint64_t address; /* on the device; the host has device memory elsewhere */
    size_t bytes, room;
    int descriptor, device;
    bool host, imported, reserved, mapped; /* reserved: by cuMemAddressReserve */
    bool ordered, freed;                   /* of cudaMallocAsync */
    unsigned access;                       /* of devices, as bits */
    emulator_shadow *shadow;               /* NULL: it is not checked */
} emulator_memory;

/* The allocation that has an address; NULL: none. */
emulator_memory *emulator_memory_find(uint64_t address);
/* The same for one of addresses only, which need not be mapped. */
emulator_memory *emulator_memory_reserved(uint64_t address);
/* Whether a range that is not the host's own lies within one allocation. */
bool emulator_memory_has(uint64_t address, size_t bytes);
/* Whether kernels on a device may access an allocation. */
bool emulator_memory_reached(const emulator_memory *memory, int device);
/* The host's address of a byte of an allocation, or of the host's own memory (memory is NULL). */
unsigned char *emulator_memory_at(const emulator_memory *memory, uint64_t address);
/* Addresses on the current device, skew bytes behind the begin of a block. */
emulator_memory *emulator_memory_reserve(size_t bytes, size_t skew);
void emulator_memory_map(emulator_memory *memory, int descriptor);
void emulator_memory_unmap(emulator_memory *memory);
void emulator_memory_release(emulator_memory *memory);
#define EMULATOR_BLOCK ((size_t)2 << 20)

emulator_shadow *emulator_shadow_create(size_t bytes);
void emulator_shadow_destroy(emulator_shadow *shadow);
/* A copy, or a memset (from: 0), of an operation on a stream; false: the accesses are not ordered.
 */
bool emulator_check_copy(const struct CUstream_st *stream, uint64_t to, uint64_t from,
                         size_t bytes);

/* Memory of a block of threads: poison and without marks after clear; pass: at a barrier. */
typedef struct emulator_shared emulator_shared;
emulator_shared *emulator_shared_create(size_t bytes);
void emulator_shared_destroy(emulator_shared *shared);
void emulator_shared_clear(emulator_shared *shared);
void emulator_shared_pass(emulator_shared *shared);

/* That an event was recorded, for those who wait for that. */
typedef struct emulator_token {
    int users;
    bool passed;
    emulator_clock clock;
} emulator_token;

typedef enum emulator_kind {
    EMULATOR_KERNEL,
    EMULATOR_COPY,
    EMULATOR_SET,
    EMULATOR_ALLOC,
    EMULATOR_FREE,
    EMULATOR_RECORD,
    EMULATOR_WAIT
} emulator_kind;

/* What is enqueued. Of a graph: a node, which is copied in a launch. */
typedef struct emulator_work {
    emulator_kind kind;
    const emulator_entry *entry; /* of a kernel */
    unsigned char *parameters;
    uint32_t blocks, threads;
    uint64_t to, from; /* of copies and sets */
    size_t bytes;
    int value;
    unsigned char *staged; /* the source, where it was pageable */
    emulator_token *token; /* of records and waits */
    cudaEvent_t event;     /* of those of graphs: the token is the event's in a launch */
    emulator_clock clock;  /* what the host had seen */
    cudaStream_t stream;
    struct emulator_work *next;
} emulator_work;
emulator_work *emulator_work_create(emulator_kind kind);
emulator_work *emulator_work_copy(const emulator_work *node);
void emulator_work_destroy(emulator_work *work);
void emulator_run_kernel(const emulator_work *work);
void emulator_run_copy(const emulator_work *work);  /* or a set */
void emulator_run_alloc(const emulator_work *work); /* or a free */
void emulator_run_record(const emulator_work *work);
void emulator_run_wait(const emulator_work *work);

typedef struct emulator_capture emulator_capture;

/* The last nodes of a capture that a stream, or an event, comes after. */
typedef struct emulator_nodes {
    int *at;
    int n;
} emulator_nodes;
void emulator_nodes_add(emulator_nodes *nodes, const int *at, int n);

struct CUstream_st {
    int device, agent, priority;
    bool blocking, legacy, destroyed;
    struct emulator_queue *queue;
    long pending; /* operations */
    emulator_capture *capture;
    emulator_nodes last;
    /* Of the worker: what has happened before the running operation, before its last fence, and
     * what it has seen without order. */
    emulator_clock clock, fenced, seen;
    uint32_t operation;
    struct CUstream_st *next;
};

struct CUevent_st {
    int device, users;
    emulator_token *token; /* NULL: not recorded */
    emulator_capture *capture;
    emulator_nodes last;
};
/* A token for a record of the event from now on; and its last one. The lock is held. */
emulator_token *emulator_event_renew(cudaEvent_t event);
emulator_token *emulator_event_token(cudaEvent_t event);

/* Streams that were created since the last call. */
uint64_t emulator_take_streams(void);
/* NULL and cudaStreamLegacy are a stream of the current device, too. */
cudaStream_t emulator_stream(cudaStream_t stream);
/* Takes the work, into the stream or into the graph that it is captured for. */
cudaError_t emulator_enqueue(cudaStream_t stream, emulator_work *work);
/* Waits for the stream, or for all of a device (negative: of all), as the host does. */
void emulator_wait_stream(cudaStream_t stream);
void emulator_wait_device(int device);
/* The host has seen what happened before. */
void emulator_host_sees(const emulator_clock *clock);

/* Whether a call that may wait is not allowed now; a capture that goes on is spoilt by it. */
bool emulator_capture_forbids(void);
/* Spoils a capture that the work of the legacy stream would have to wait for. */
bool emulator_capture_implicit(int device, bool spoil);
void emulator_capture_spoil(emulator_capture *capture);
cudaError_t emulator_capture_add(cudaStream_t stream, emulator_work *work);
cudaError_t emulator_capture_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t emulator_capture_wait(cudaStream_t stream, cudaEvent_t event);

#endif
