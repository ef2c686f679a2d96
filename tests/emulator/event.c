/* Events, and what is enqueued. A record gives the event a new token, which waits keep: an event
 * that is recorded again does not move a wait that was enqueued before. Nodes of graphs keep the
 * event, whose token is that of the launch. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static void lock(void) {
    pthread_mutex_lock(&emulator_lock);
}

static void unlock(void) {
    pthread_mutex_unlock(&emulator_lock);
}

/* The lock is held in functions of tokens. */
static void token_release(emulator_token *token) {
    if (token && --token->users == 0) {
        free(token);
    }
}

emulator_token *emulator_event_token(cudaEvent_t event) {
    if (event->token) {
        event->token->users++;
    }
    return event->token;
}

emulator_token *emulator_event_renew(cudaEvent_t event) {
    token_release(event->token);
    event->token = calloc(1, sizeof *event->token);
    event->token->users = 2;
    event->capture = NULL;
    return event->token;
}

static void event_hold(cudaEvent_t event) {
    lock();
    event->users++;
    unlock();
}

static void event_release(cudaEvent_t event) {
    lock();
    bool last = --event->users == 0;
    if (last) {
        token_release(event->token);
    }
    unlock();
    if (last) {
        free(event->last.at);
        free(event);
    }
}

emulator_work *emulator_work_create(emulator_kind kind) {
    emulator_work *work = calloc(1, sizeof *work);
    work->kind = kind;
    return work;
}

emulator_work *emulator_work_copy(const emulator_work *node) {
    emulator_work *work = emulator_work_create(node->kind);
    *work = *node;
    if (node->parameters) {
        work->parameters = malloc(node->entry->parameter_bytes);
        memcpy(work->parameters, node->parameters, node->entry->parameter_bytes);
    }
    if (work->event) {
        event_hold(work->event);
    }
    return work;
}

void emulator_work_destroy(emulator_work *work) {
    if (work->event) {
        event_release(work->event);
    }
    lock();
    token_release(work->token);
    unlock();
    free(work->parameters);
    free(work->staged);
    free(work);
}

void emulator_run_wait(const emulator_work *w) {
    lock();
    while (w->token && !w->token->passed) {
        pthread_cond_wait(&emulator_ended, &emulator_lock);
    }
    if (w->token) {
        emulator_clock_join(&w->stream->clock, &w->token->clock);
    }
    unlock();
}

void emulator_run_record(const emulator_work *w) {
    lock();
    w->token->clock = w->stream->clock;
    w->token->passed = true;
    pthread_cond_broadcast(&emulator_ended);
    unlock();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t event, unsigned flags) {
    cudaStream_t stream = emulator_stream(given);
    EMULATOR_TRY(emulator_ready());
    if (flags != cudaEventWaitExternal && (stream->capture || event->capture)) {
        return emulator_result(emulator_capture_wait(stream, event));
    }
    EMULATOR_TRY(flags != cudaEventWaitExternal || stream->capture ? cudaSuccess
                                                                   : cudaErrorInvalidValue);
    emulator_work *work = emulator_work_create(EMULATOR_WAIT);
    lock();
    if (flags == cudaEventWaitExternal) {
        work->event = event;
        event->users++;
    } else {
        work->token = emulator_event_token(event);
    }
    unlock();
    return emulator_result(emulator_enqueue(stream, work));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(flags == cudaEventDisableTiming ? cudaSuccess : cudaErrorInvalidValue);
    cudaEvent_t event = calloc(1, sizeof *event);
    event->device = emulator_device();
    event->users = 1;
    *out = event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    event_release(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t given) {
    cudaStream_t stream = emulator_stream(given);
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(event->device == stream->device ? cudaSuccess : cudaErrorInvalidResourceHandle);
    if (stream->capture) {
        return emulator_result(emulator_capture_record(event, stream));
    }
    emulator_work *work = emulator_work_create(EMULATOR_RECORD);
    lock();
    work->token = emulator_event_renew(event);
    unlock();
    return emulator_result(emulator_enqueue(stream, work));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t given, unsigned flags) {
    cudaStream_t stream = emulator_stream(given);
    if (flags != cudaEventRecordExternal) {
        return cudaEventRecord(event, stream);
    }
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(stream->capture ? cudaSuccess : cudaErrorInvalidValue);
    emulator_work *work = emulator_work_create(EMULATOR_RECORD);
    work->event = event;
    event_hold(event);
    return emulator_result(emulator_enqueue(stream, work));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    EMULATOR_TRY(emulator_ready_outside_captures());
    EMULATOR_TRY(event->capture ? cudaErrorCapturedEvent : cudaSuccess);
    lock();
    bool passed = !event->token || event->token->passed;
    if (event->token && passed) {
        emulator_host_sees(&event->token->clock);
    }
    unlock();
    return emulator_result(passed ? cudaSuccess : cudaErrorNotReady);
}
