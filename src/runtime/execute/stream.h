/* Streams of a device: queues whose work runs in the order in which it was enqueued, while the
 * caller goes on. A context that has a driver executes on a stream where the caller names one. */
#ifndef LIERNE_STREAM_H
#define LIERNE_STREAM_H

#include "base/base.h"

struct lierne_context;

/* How many calls of an execution streams have reached and passed, in memory that a device writes
 * and the host reads: of replays, which have no host that could tell, and of calls that the host is
 * far ahead of. */
typedef struct lierne_epochs {
    uint64_t begun;
    uint64_t ended;
} lierne_epochs;

typedef struct lierne_stream_driver {
    const char *name; /* of the memory kind whose streams these are */
    bool required;    /* every call needs a stream: the host cannot work on the memory */
    bool detached;    /* lierne_request_end returns before the stream has passed the call, which the
                         watchdog looks at: the driver has events and epochs */
    /* NULL, or UNSUPPORTED for a stream on which nothing can be enqueued now. *captures: it is
     * being captured, so what is enqueued is recorded, and may be replayed any number of times
     * without the host. device: the context's, which a default stream belongs to. */
    lierne_status (*check)(const void *stream, int device, bool *captures);
    /* All NULL, or what orders the calls of one execution, which may be on different streams: they
     * use the same memory. begin: what follows on the stream waits for the last finish; a finish
     * ends what a begin began. fence_create is called while planning. */
    lierne_status (*fence_create)(void **fence);
    void (*fence_destroy)(void *fence);
    lierne_status (*begin)(void *stream, void *fence);
    lierne_status (*finish)(void *stream, void *fence);
    /* All NULL, or events: marks on a stream that the host asks about. record replaces where it was
     * recorded before; an event that never was has passed. query: TRANSPORT after an error of the
     * device; takes fences too. Created while planning. */
    lierne_status (*event_create)(void **event);
    void (*event_destroy)(void *event);
    lierne_status (*event_record)(void *stream, void *event);
    lierne_status (*event_query)(void *event, bool *passed);
    /* All NULL where there are no events, or n epochs of an execution: zeros, created while
     * planning. advance: a stream adds 1 to a word of them when it gets there. */
    lierne_status (*epochs_create)(lierne_epochs **epochs, struct lierne_context *context,
                                   size_t n);
    void (*epochs_destroy)(lierne_epochs *epochs, struct lierne_context *context);
    lierne_status (*advance)(void *stream, uint64_t *epoch);
    /* All NULL, or streams of lierne's own on a device, which wait for no other; urgent: with the
     * greatest priority that the device has. wait: what follows on a stream waits for where an
     * event was recorded last. Created while planning. */
    lierne_status (*stream_create)(void **stream, int device, bool urgent);
    void (*stream_destroy)(void *stream);
    lierne_status (*stream_wait)(void *stream, void *event);
    /* NULL, or prepares a thread of lierne's own for the device of a context. */
    void (*enter_thread)(int device);
} lierne_stream_driver;

/* Ranges of the host's time in a profiler. Any thread may end one. */
typedef struct lierne_ranges {
    uint64_t (*begin)(const char *name); /* 0: not shown */
    void (*end)(uint64_t range);
} lierne_ranges;

#endif
