/* A window: where the flags and buffers of every rank of the node are in this process, the round,
 * and what waits for the others, on the host or on a stream. */
#ifndef LIERNE_WINDOW_INTERNAL_H
#define LIERNE_WINDOW_INTERNAL_H

#include "lierne/window.h"
#include "runtime/context/watchdog.h"
#include "runtime/execute/shared_output.h"
#include "runtime/execute/stream.h"

#define LIERNE_WINDOW_LINE 128 /* bytes: a flag has lines of a cache of its own */

/* The memory of a rank: flags of even rounds, flags of odd ones, and a buffer for each. */
typedef struct lierne_window_layout {
    size_t flags;  /* bytes of the flags of one turn, a line for every rank; whole pages */
    size_t buffer; /* bytes of a buffer, in whole pages */
} lierne_window_layout;

struct lierne_window_memory;

struct lierne_window {
    lierne_dependent dependent;
    lierne_context *context;
    int *ranks;
    int n;
    int place; /* of this rank among them */
    int64_t bytes;
    lierne_window_layout layout;
    char **at;      /* the memory of each rank */
    int number;     /* of the agreement that created it */
    uint32_t round; /* that was notified last; wraps */
    bool any;       /* round was waited for once */
    bool notified;  /* round was not waited for yet */
    const struct lierne_window_memory *memory;
    /* Of the host. */
    lierne_shared_output *shared;
    /* Of a device. */
    const lierne_carrier *carrier; /* NULL: a rank on its own */
    lierne_record name;            /* of this rank's memory, for the others */
    lierne_epochs *epochs;         /* rounds that the stream has passed; NULL: it needs no watch */
    uint64_t enqueued;
    lierne_watched watched;
};

/* How ranks meet in one kind of memory. */
typedef struct lierne_window_memory {
    /* Reserves what this rank owns. Errors: NO_MEMORY, UNSUPPORTED. */
    lierne_status (*reserve)(lierne_window *w);
    /* Fills at. Collective; the same error on all ranks. */
    lierne_status (*connect)(lierne_window *w);
    /* Errors: UNSUPPORTED (a stream that cannot be used). */
    lierne_status (*check_stream)(const lierne_window *w, const void *stream);
    lierne_status (*notify)(lierne_window *w, void *stream);
    lierne_status (*wait)(lierne_window *w, void *stream);
    /* No stream uses the window any more. Errors: TIMEOUT. */
    lierne_status (*drain)(lierne_window *w);
    /* quiet: drained. */
    void (*destroy)(lierne_window *w, bool quiet);
} lierne_window_memory;

/* Records an entry about the round that was notified last. Inline, because both the life of a
 * window and its memory do so. */
static inline void lierne_window_record(const lierne_window *w, lierne_entry entry) {
    entry.what = LIERNE_RECORD_ROUND;
    entry.plan = w->number;
    entry.number = w->round;
    lierne_recorder_add(&w->context->recorder, &entry);
}

extern const lierne_window_memory lierne_window_on_host;
extern const lierne_window_memory lierne_window_on_device;

/* Bytes of the memory of a rank. */
static inline size_t lierne_window_part(const lierne_window_layout *layout) {
    return 2 * (layout->flags + layout->buffer);
}

/* The flag of the rank at a place that the rank at another one sets in a round. */
static inline uint32_t *lierne_window_flag(const lierne_window *w, int of, uint32_t round, int by) {
    return (uint32_t *)(void *)(w->at[of] + round % 2 * w->layout.flags +
                                (size_t)by * LIERNE_WINDOW_LINE);
}

/* The buffer of a rank in a round. */
static inline char *lierne_window_buffer(const lierne_window *w, int of, uint32_t round) {
    return w->at[of] + 2 * w->layout.flags + round % 2 * w->layout.buffer;
}

#endif
