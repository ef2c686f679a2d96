/* Streams: each has a worker that carries out its operations in their order, or shares one with
 * others, as streams share the queues of a device's hardware. What is enqueued has its arguments by
 * value. The legacy stream waits for all blocking streams, and they for it. */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct emulator_queue {
    emulator_work *first, *last;
    bool closed;
    pthread_cond_t filled;
} emulator_queue;

static cudaStream_t streams;
static struct CUstream_st legacy[EMULATOR_MOST_DEVICES];
static emulator_clock host; /* what the host has seen */

static void lock(void) {
    pthread_mutex_lock(&emulator_lock);
}

static void unlock(void) {
    pthread_mutex_unlock(&emulator_lock);
}

/* After an error only events go on, so that nobody waits forever. */
static void run(const emulator_work *w) {
    emulator_clock_join(&w->stream->clock, &w->clock);
    w->stream->operation = emulator_clock_advance(&w->stream->clock, w->stream->agent);
    if (emulator.delay && emulator_draw(4) == 0) {
        usleep(emulator_draw((unsigned)emulator.delay) + 1);
    }
    if (w->kind == EMULATOR_WAIT) {
        emulator_run_wait(w);
    } else if (w->kind == EMULATOR_RECORD) {
        emulator_run_record(w);
    } else if (emulator_broken() != cudaSuccess) {
        return;
    } else if (w->kind == EMULATOR_KERNEL) {
        emulator_run_kernel(w);
    } else if (w->kind == EMULATOR_ALLOC || w->kind == EMULATOR_FREE) {
        emulator_run_alloc(w);
    } else {
        emulator_run_copy(w);
    }
}

static void remove_stream(cudaStream_t stream) {
    cudaStream_t *at = &streams;
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    free(stream->last.at);
    free(stream);
}

/* The lock is held. */
static void end_work(cudaStream_t stream) {
    stream->pending--;
    if (stream->destroyed && stream->pending == 0) {
        remove_stream(stream);
    }
    pthread_cond_broadcast(&emulator_ended);
}

static emulator_work *take(emulator_queue *queue) {
    lock();
    while (!queue->first && !queue->closed) {
        pthread_cond_wait(&queue->filled, &emulator_lock);
    }
    emulator_work *work = queue->first;
    queue->first = work ? work->next : NULL;
    unlock();
    return work;
}

static void *carry_out(void *argument) {
    emulator_queue *queue = argument;
    for (emulator_work *work = take(queue); work; work = take(queue)) {
        cudaStream_t stream = work->stream;
        run(work);
        emulator_work_destroy(work);
        lock();
        end_work(stream);
        unlock();
    }
    pthread_cond_destroy(&queue->filled);
    free(queue);
    return NULL;
}

static emulator_queue *queue_create(void) {
    emulator_queue *queue = calloc(1, sizeof *queue);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_cond_init(&queue->filled, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, carry_out, queue);
    if (error != 0) {
        emulator_say("no thread for a stream: %s", strerror(error));
        abort();
    }
    pthread_attr_destroy(&attributes);
    return queue;
}

/* That of a stream's own, or of one of few connections. The lock is held. */
static emulator_queue *queue_of_next(void) {
    static emulator_queue *connections[64];
    static unsigned next;
    if (emulator.connections == 0) {
        return queue_create();
    }
    emulator_queue **queue = &connections[next++ % (unsigned)emulator.connections % 64];
    *queue = *queue ? *queue : queue_create();
    return *queue;
}

/* An agent that no stream is, where there is one. The lock is held. */
static int next_agent(void) {
    static int last;
    bool taken[EMULATOR_AGENTS] = {true};
    for (cudaStream_t s = streams; s; s = s->next) {
        taken[s->agent] = true;
    }
    for (int i = 0; i < EMULATOR_AGENTS - 1; i++) {
        last = last % (EMULATOR_AGENTS - 1) + 1;
        if (!taken[last]) {
            break;
        }
    }
    return last;
}

static void add_stream(cudaStream_t stream, int device) {
    stream->device = device;
    stream->agent = next_agent();
    stream->queue = queue_of_next();
    stream->next = streams;
    streams = stream;
}

cudaStream_t emulator_stream(cudaStream_t stream) {
    if (stream && stream != cudaStreamLegacy) {
        return stream;
    }
    cudaStream_t own = &legacy[emulator_device()];
    lock();
    if (!own->queue) {
        own->legacy = true;
        add_stream(own, emulator_device());
    }
    unlock();
    return own;
}

void emulator_host_sees(const emulator_clock *clock) {
    emulator_clock_join(&host, clock);
}

/* The streams that a wait is for. */
typedef struct group {
    cudaStream_t one; /* NULL: those of a device */
    int device;       /* negative: all */
    bool blocking;    /* only these */
} group;

static bool has(const group *g, const struct CUstream_st *s) {
    return g->one ? s == g->one
                  : (g->device < 0 || s->device == g->device) && (s->blocking || !g->blocking);
}

static cudaStream_t find_busy(const group *g) {
    cudaStream_t s = streams;
    while (s && !(s->pending > 0 && has(g, s))) {
        s = s->next;
    }
    return s;
}

/* As the host does. The lock is held. */
static void wait_for(group g) {
    while (find_busy(&g)) {
        pthread_cond_wait(&emulator_ended, &emulator_lock);
    }
    for (cudaStream_t s = streams; s; s = s->next) {
        if (has(&g, s)) {
            emulator_host_sees(&s->clock);
        }
    }
}

void emulator_wait_stream(cudaStream_t stream) {
    lock();
    wait_for((group){.one = stream});
    unlock();
}

void emulator_wait_device(int device) {
    lock();
    wait_for((group){.device = device});
    unlock();
}

/* What the legacy stream and the blocking ones wait for before they take work. The lock is held. */
static void wait_for_others(cudaStream_t stream) {
    if (stream->legacy) {
        wait_for((group){.device = stream->device, .blocking = true});
    } else if (stream->blocking && legacy[stream->device].queue) {
        wait_for((group){.one = &legacy[stream->device]});
    }
}

static cudaError_t reject(emulator_work *work, cudaError_t error) {
    emulator_work_destroy(work);
    return error;
}

cudaError_t emulator_enqueue(cudaStream_t stream, emulator_work *work) {
    work->stream = stream;
    if (stream->capture) {
        return emulator_capture_add(stream, work);
    }
    if (stream->legacy && emulator_capture_implicit(stream->device, true)) {
        return reject(work, cudaErrorStreamCaptureImplicit);
    }
    lock();
    wait_for_others(stream);
    work->clock = host;
    work->next = NULL;
    if (stream->queue->first) {
        stream->queue->last->next = work;
    } else {
        stream->queue->first = work;
    }
    stream->queue->last = work;
    stream->pending++;
    pthread_cond_signal(&stream->queue->filled);
    unlock();
    return cudaSuccess;
}

static atomic_ullong created;

uint64_t emulator_take_streams(void) {
    return atomic_exchange(&created, 0);
}

#define GREATEST_PRIORITY (-5)

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

/* A priority orders blocks that wait for a processor: here none does. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    EMULATOR_TRY(emulator_ready());
    atomic_fetch_add(&created, 1);
    cudaStream_t stream = calloc(1, sizeof *stream);
    stream->blocking = flags != cudaStreamNonBlocking;
    stream->priority = priority > 0                   ? 0
                       : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY
                                                      : priority;
    lock();
    add_stream(stream, emulator_device());
    unlock();
    *out = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    *priority = emulator_stream(stream)->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
    return cudaStreamCreateWithFlags(out, 0);
}

/* What it has taken is carried out. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    EMULATOR_TRY(stream && stream != cudaStreamLegacy ? cudaSuccess
                                                      : cudaErrorInvalidResourceHandle);
    lock();
    stream->destroyed = true;
    if (emulator.connections == 0) {
        stream->queue->closed = true;
        pthread_cond_signal(&stream->queue->filled);
    }
    if (stream->pending == 0) {
        remove_stream(stream);
    }
    unlock();
    return cudaSuccess;
}

/* A call that asks what a stream has done spoils a capture that the stream is in. */
static cudaError_t ask(cudaStream_t stream) {
    cudaError_t error = emulator_ready();
    if (error == cudaSuccess && stream->capture) {
        emulator_capture_spoil(stream->capture);
        return cudaErrorStreamCaptureUnsupported;
    }
    return error == cudaSuccess ? emulator_ready_outside_captures() : error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t given) {
    cudaStream_t stream = emulator_stream(given);
    EMULATOR_TRY(ask(stream));
    emulator_wait_stream(stream);
    return emulator_result(emulator_broken());
}

cudaError_t cudaStreamQuery(cudaStream_t given) {
    cudaStream_t stream = emulator_stream(given);
    EMULATOR_TRY(ask(stream));
    lock();
    bool idle = stream->pending == 0;
    if (idle) {
        emulator_host_sees(&stream->clock);
    }
    unlock();
    return emulator_result(idle ? cudaSuccess : cudaErrorNotReady);
}
