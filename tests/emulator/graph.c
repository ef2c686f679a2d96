/* Captures and graphs. A capture takes what is enqueued on its streams as nodes, and edges from the
 * order of the streams and of the events between them. A launch carries the nodes out in an order
 * that is drawn at random among those that the edges allow. What CUDA does not allow while a
 * capture goes on spoils it here, too. */
#include "internal.h"

#include <stdlib.h>

typedef struct node {
    emulator_work *work;
    emulator_nodes before;
} node;

struct CUgraph_st {
    node *nodes;
    int n, capacity;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
};

struct emulator_capture {
    struct CUgraph_st *graph;
    unsigned long long id;
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    bool invalid, ended;
    cudaStream_t origin, *streams;
    int nstreams;
    emulator_capture *next;
};

static emulator_capture *captures; /* all, as events refer to those that have ended */
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

static void lock(void) {
    pthread_mutex_lock(&emulator_lock);
}

static void unlock(void) {
    pthread_mutex_unlock(&emulator_lock);
}

void emulator_nodes_add(emulator_nodes *nodes, const int *at, int n) {
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < nodes->n && nodes->at[k] != at[i]) {
            k++;
        }
        if (k == nodes->n) {
            nodes->at = realloc(nodes->at, (size_t)(nodes->n + 1) * sizeof *nodes->at);
            nodes->at[nodes->n++] = at[i];
        }
    }
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

bool emulator_capture_forbids(void) {
    bool forbids = false;
    lock();
    for (emulator_capture *c = captures; c && thread_mode == cudaStreamCaptureModeGlobal;
         c = c->next) {
        if (!c->ended && c->mode == cudaStreamCaptureModeGlobal) {
            c->invalid = forbids = true;
        }
    }
    unlock();
    return forbids;
}

bool emulator_capture_implicit(int device, bool spoil) {
    bool implicit = false;
    lock();
    for (emulator_capture *c = captures; c; c = c->next) {
        if (!c->ended && c->origin->blocking && c->origin->device == device) {
            implicit = true;
            c->invalid |= spoil;
        }
    }
    unlock();
    return implicit;
}

void emulator_capture_spoil(emulator_capture *capture) {
    capture->invalid = true;
}

cudaError_t emulator_capture_add(cudaStream_t stream, emulator_work *work) {
    struct CUgraph_st *g = stream->capture->graph;
    if (stream->capture->invalid) {
        emulator_work_destroy(work);
        return cudaErrorStreamCaptureInvalidated;
    }
    lock();
    if (g->n == g->capacity) {
        g->capacity = 2 * g->capacity + 16;
        g->nodes = realloc(g->nodes, (size_t)g->capacity * sizeof *g->nodes);
    }
    g->nodes[g->n] = (node){.work = work};
    emulator_nodes_add(&g->nodes[g->n].before, stream->last.at, stream->last.n);
    stream->last.n = 0;
    emulator_nodes_add(&stream->last, &g->n, 1);
    g->n++;
    unlock();
    return cudaSuccess;
}

cudaError_t emulator_capture_record(cudaEvent_t event, cudaStream_t stream) {
    if (stream->capture->invalid) {
        return cudaErrorStreamCaptureInvalidated;
    }
    event->capture = stream->capture;
    event->last.n = 0;
    emulator_nodes_add(&event->last, stream->last.at, stream->last.n);
    return cudaSuccess;
}

static cudaError_t spoil(emulator_capture *capture, cudaError_t error) {
    if (capture) {
        capture->invalid = true;
    }
    return error;
}

static void join(cudaStream_t stream, emulator_capture *capture) {
    if (!stream->capture) {
        stream->capture = capture;
        stream->last.n = 0;
        capture->streams =
            realloc(capture->streams, ((size_t)capture->nstreams + 1) * sizeof stream);
        capture->streams[capture->nstreams++] = stream;
    }
}

/* At least one of the stream and the event is in a capture. */
cudaError_t emulator_capture_wait(cudaStream_t stream, cudaEvent_t event) {
    if (!event->capture) {
        return spoil(stream->capture, cudaErrorStreamCaptureIsolation);
    }
    if (event->capture->ended) {
        return spoil(stream->capture,
                     stream->capture ? cudaErrorStreamCaptureIsolation : cudaErrorCapturedEvent);
    }
    if (stream->capture && stream->capture != event->capture) {
        return spoil(stream->capture, cudaErrorStreamCaptureMerge);
    }
    join(stream, event->capture);
    emulator_nodes_add(&stream->last, event->last.at, event->last.n);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t given, enum cudaStreamCaptureMode mode) {
    static unsigned long long next; /* the first capture has the number 0 */
    cudaStream_t stream = emulator_stream(given);
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(stream->legacy ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    EMULATOR_TRY(stream->capture ? cudaErrorIllegalState : cudaSuccess);
    emulator_capture *capture = calloc(1, sizeof *capture);
    capture->graph = calloc(1, sizeof *capture->graph);
    capture->mode = mode;
    capture->thread = pthread_self();
    capture->origin = stream;
    lock();
    capture->id = next++;
    capture->next = captures;
    captures = capture;
    join(stream, capture);
    unlock();
    return cudaSuccess;
}

/* Whether all nodes come before those that the origin's next work would come after. */
static bool is_joined(const emulator_capture *c) {
    const struct CUgraph_st *g = c->graph;
    char *reached = calloc((size_t)g->n + 1, 1);
    bool all = true;
    for (int i = 0; i < c->origin->last.n; i++) {
        reached[c->origin->last.at[i]] = 1;
    }
    for (int i = g->n - 1; i >= 0; i--) {
        for (int k = 0; reached[i] && k < g->nodes[i].before.n; k++) {
            reached[g->nodes[i].before.at[k]] = 1;
        }
        all = all && reached[i];
    }
    free(reached);
    return all;
}

cudaError_t cudaStreamEndCapture(cudaStream_t given, cudaGraph_t *graph) {
    cudaStream_t stream = emulator_stream(given);
    emulator_capture *c = stream->capture;
    *graph = NULL;
    EMULATOR_TRY(c && c->origin == stream ? cudaSuccess : cudaErrorIllegalState);
    bool other_thread =
        c->mode == cudaStreamCaptureModeGlobal && !pthread_equal(c->thread, pthread_self());
    lock();
    cudaError_t error = c->invalid      ? cudaErrorStreamCaptureInvalidated
                        : other_thread  ? cudaErrorStreamCaptureWrongThread
                        : !is_joined(c) ? cudaErrorStreamCaptureUnjoined
                                        : cudaSuccess;
    for (int i = 0; i < c->nstreams; i++) {
        c->streams[i]->capture = NULL;
        c->streams[i]->last.n = 0;
    }
    free(c->streams);
    c->streams = NULL;
    c->ended = true;
    unlock();
    if (error == cudaSuccess) {
        *graph = c->graph;
    } else {
        cudaGraphDestroy(c->graph);
    }
    c->graph = NULL;
    return emulator_result(error);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t given, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *n) {
    cudaStream_t stream = emulator_stream(given);
    (void)graph, (void)nodes, (void)edges, (void)n;
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(stream->legacy && emulator_capture_implicit(stream->device, false)
                     ? cudaErrorStreamCaptureImplicit
                     : cudaSuccess);
    *status = !stream->capture           ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    *id = stream->capture ? stream->capture->id : 0;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
    (void)flags;
    EMULATOR_TRY(emulator_ready());
    EMULATOR_TRY(graph ? cudaSuccess : cudaErrorInvalidValue);
    cudaGraphExec_t exec = calloc(1, sizeof *exec);
    exec->graph.nodes = calloc((size_t)graph->n + 1, sizeof *exec->graph.nodes);
    exec->graph.n = graph->n;
    for (int i = 0; i < graph->n; i++) {
        const emulator_nodes *before = &graph->nodes[i].before;
        exec->graph.nodes[i].work = emulator_work_copy(graph->nodes[i].work);
        emulator_nodes_add(&exec->graph.nodes[i].before, before->at, before->n);
    }
    *out = exec;
    return cudaSuccess;
}

static void destroy_nodes(struct CUgraph_st *graph) {
    for (int i = 0; i < graph->n; i++) {
        emulator_work_destroy(graph->nodes[i].work);
        free(graph->nodes[i].before.at);
    }
    free(graph->nodes);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (graph) {
        destroy_nodes(graph);
        free(graph);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    destroy_nodes(&exec->graph);
    free(exec);
    return cudaSuccess;
}

/* Events of a graph are those of this launch: a wait is for the last record before it. */
static void renew_events(emulator_work **works, int n) {
    lock();
    for (int i = 0; i < n; i++) {
        if (works[i]->event && works[i]->kind == EMULATOR_WAIT) {
            works[i]->token = emulator_event_token(works[i]->event);
        }
    }
    for (int i = 0; i < n; i++) {
        if (works[i]->event && works[i]->kind == EMULATOR_RECORD) {
            works[i]->token = emulator_event_renew(works[i]->event);
        }
    }
    unlock();
}

/* One of the nodes that have none left before them. */
static int draw_ready(const struct CUgraph_st *g, const char *launched) {
    int ready = 0, drawn = -1;
    for (int i = 0; i < g->n; i++) {
        bool now = !launched[i];
        for (int k = 0; now && k < g->nodes[i].before.n; k++) {
            now = launched[g->nodes[i].before.at[k]];
        }
        if (now && emulator_draw((unsigned)++ready) == 0) {
            drawn = i;
        }
    }
    return drawn;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t given) {
    cudaStream_t stream = emulator_stream(given);
    const struct CUgraph_st *g = &exec->graph;
    EMULATOR_TRY(emulator_ready());
    emulator_work **works = malloc(((size_t)g->n + 1) * sizeof *works);
    char *launched = calloc((size_t)g->n + 1, 1);
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < g->n; i++) {
        works[i] = emulator_work_copy(g->nodes[i].work);
    }
    renew_events(works, g->n);
    for (int left = g->n; left > 0; left--) {
        int i = draw_ready(g, launched);
        launched[i] = 1;
        cudaError_t taken = emulator_enqueue(stream, works[i]);
        error = error == cudaSuccess ? taken : error;
    }
    free(works);
    free(launched);
    return emulator_result(error);
}
