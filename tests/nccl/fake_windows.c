/* A registration is complete when all ranks have made it, and only then is its window written. */
#include "fake_windows.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What all ranks of a communicator do: the k-th of its kind. */
typedef struct meeting {
    struct meeting *next;
    bool gathers;
    int world_id, number, arrived;
    int64_t value; /* of the first rank: bytes, or a place in a window */
    bool differs;
} meeting;

struct ncclWindow_vidmem {
    struct ncclWindow_vidmem *next;
    struct ncclComm *comm;
    char *at;
    size_t bytes;
    int number; /* of the registration */
    bool refused;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static meeting *meetings;
static struct ncclWindow_vidmem *windows;
static fake_window_counts counts;
static _Thread_local fake_window_fault fault;
static _Thread_local int fault_after;

void fake_nccl_fail_window(fake_window_fault kind, int after) {
    fault = kind;
    fault_after = after;
}

fake_window_counts fake_nccl_count_windows(void) {
    pthread_mutex_lock(&lock);
    fake_window_counts now = counts;
    pthread_mutex_unlock(&lock);
    return now;
}

/* Whether a call of this thread has the fault: the first one after `after` of them. */
static bool fails(fake_window_fault kind) {
    return fault == kind && fault_after-- <= 0;
}

ncclResult_t fake_mem_alloc(void **memory, size_t bytes) {
    if (fails(FAKE_NO_MEMORY)) {
        return ncclUnhandledCudaError;
    }
    *memory = aligned_alloc(4096, bytes);
    memset(*memory, 0xa5, bytes);
    pthread_mutex_lock(&lock);
    counts.allocated++;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t fake_mem_free(void *memory) {
    pthread_mutex_lock(&lock);
    for (const struct ncclWindow_vidmem *w = windows; w; w = w->next) {
        counts.wrong += w->at == memory;
    }
    counts.freed++;
    pthread_mutex_unlock(&lock);
    free(memory);
    return ncclSuccess;
}

/* With the lock. */
static meeting *find(bool gathers, int world_id, int number) {
    meeting *m = meetings;
    while (m && (m->gathers != gathers || m->world_id != world_id || m->number != number)) {
        m = m->next;
    }
    if (!m) {
        m = calloc(1, sizeof *m);
        *m = (meeting){meetings, gathers, world_id, number, 0, 0, false};
        meetings = m;
    }
    return m;
}

static meeting *arrive(bool gathers, int world_id, int number, int64_t value) {
    meeting *m = find(gathers, world_id, number);
    m->differs |= m->arrived > 0 && m->value != value;
    m->value = value;
    m->arrived++;
    return m;
}

ncclResult_t fake_window_register(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window,
                                  int flags) {
    bool refused = fails(FAKE_NULL_WINDOW);
    if (fails(FAKE_NO_WINDOW) || comm->out || flags != NCCL_WIN_COLL_SYMMETRIC) {
        return ncclSystemError; /* and the others wait */
    }
    struct ncclWindow_vidmem *w = malloc(sizeof *w);
    pthread_mutex_lock(&lock);
    *w = (struct ncclWindow_vidmem){windows, comm, memory, bytes, comm->registrations++, refused};
    windows = w;
    arrive(false, comm->world_id, w->number, (int64_t)bytes);
    counts.registered++;
    pthread_mutex_unlock(&lock);
    comm->made = w;
    comm->out = window;
    return ncclInProgress;
}

/* With the lock. */
static void forget(struct ncclWindow_vidmem *window) {
    struct ncclWindow_vidmem **at = &windows;
    while (*at != window) {
        at = &(*at)->next;
    }
    *at = window->next;
    free(window);
}

ncclResult_t fake_window_state(ncclComm_t comm) {
    if (!comm->out) {
        return ncclSuccess;
    }
    struct ncclWindow_vidmem *w = comm->made;
    pthread_mutex_lock(&lock);
    const meeting *m = find(false, comm->world_id, w->number);
    bool complete = m->arrived == comm->world, differs = m->differs;
    if (complete) {
        *comm->out = w->refused ? NULL : w;
        comm->out = NULL;
    }
    if (complete && w->refused) {
        forget(w);
        counts.deregistered++;
    }
    pthread_mutex_unlock(&lock);
    return !complete ? ncclInProgress : differs ? ncclInvalidUsage : ncclSuccess;
}

ncclResult_t fake_window_deregister(ncclComm_t comm, ncclWindow_t window) {
    pthread_mutex_lock(&lock);
    counts.wrong += window->comm != comm;
    counts.deregistered++;
    forget(window);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

void fake_windows_end(ncclComm_t comm) {
    pthread_mutex_lock(&lock);
    for (struct ncclWindow_vidmem *w = windows, *next; w; w = next) {
        next = w->next;
        if (w->comm == comm) {
            forget(w);
            counts.ended++;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* With the lock. Where memory lies in the windows of a communicator, -1: in none. */
static int64_t place_of(ncclComm_t comm, const void *data) {
    uintptr_t address = (uintptr_t)data;
    for (const struct ncclWindow_vidmem *w = windows; w; w = w->next) {
        uintptr_t begin = (uintptr_t)w->at;
        if (w->comm == comm && address >= begin && address - begin < w->bytes) {
            return ((int64_t)w->number << 40) + (int64_t)(address - begin);
        }
    }
    return -1;
}

void fake_windows_see_message(ncclComm_t comm, const void *data) {
    pthread_mutex_lock(&lock);
    counts.messages += place_of(comm, data) >= 0;
    pthread_mutex_unlock(&lock);
}

void fake_windows_see_gather(ncclComm_t comm, const void *all) {
    pthread_mutex_lock(&lock);
    int64_t place = place_of(comm, all);
    const meeting *m = arrive(true, comm->world_id, comm->gathers++, place);
    counts.gathers += place >= 0;
    counts.wrong += m->differs;
    pthread_mutex_unlock(&lock);
}
