/* A graph is an array of functions with their data. What is not captured runs at once. */
#include "capture.h"

#include "tasks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 256 };

typedef struct node {
    test_node_run *run;
    void *data;
} node;

struct test_graph {
    const void *stream;
    int n;
    node nodes[MOST_NODES];
};

static _Thread_local test_graph *current;
static atomic_bool hangs;

void test_capture_begin(const void *stream) {
    current = calloc(1, sizeof *current);
    current->stream = stream;
}

test_graph *test_capture_end(void) {
    test_graph *graph = current;
    current = NULL;
    return graph;
}

lierne_status test_graph_launch(const test_graph *graph) {
    for (int i = 0; i < graph->n; i++) {
        LIERNE_TRY(graph->nodes[i].run(graph->nodes[i].data));
    }
    return LIERNE_OK;
}

void test_graph_destroy(test_graph *graph) {
    for (int i = 0; i < graph->n; i++) {
        free(graph->nodes[i].data);
    }
    free(graph);
}

bool test_capture_add(const void *stream, test_node_run *run, const void *data, size_t bytes) {
    if (!current || current->stream != stream || current->n == MOST_NODES) {
        return false;
    }
    node *n = &current->nodes[current->n++];
    *n = (node){run, malloc(bytes)};
    memcpy(n->data, data, bytes);
    return true;
}

void test_capture_hang(bool hang) {
    atomic_store(&hangs, hang);
}

static lierne_status check(const void *stream, int device, bool *captures) {
    (void)device;
    *captures = current && current->stream == stream;
    return LIERNE_OK;
}

char test_capture_own_stream;

/* An event that is the end of a call passes unless streams hang. */
typedef struct event {
    bool ends;
} event;

static lierne_status event_create(void **out) {
    event *e;
    LIERNE_TRY(lierne_alloc(&e, 1, sizeof *e));
    *out = e;
    return LIERNE_OK;
}

/* Begins and ends of a thread's calls take turns. */
static lierne_status event_record(void *stream, void *self) {
    static _Thread_local bool ends;
    event *e = self;
    bool of_call = stream != &test_capture_own_stream;
    e->ends = of_call && ends;
    ends ^= of_call;
    return LIERNE_OK;
}

static lierne_status event_query(void *self, bool *passed) {
    const event *e = self;
    *passed = !e || !e->ends || !atomic_load(&hangs); /* NULL: a fence */
    return LIERNE_OK;
}

/* The second one, of the replays that were passed, stands still while streams hang. */
typedef struct advancing {
    uint64_t *epoch;
    bool ended;
} advancing;

static lierne_status run_advance(void *data) {
    const advancing *a = data;
    __atomic_fetch_add(a->epoch, a->ended && atomic_load(&hangs) ? 0 : 1, __ATOMIC_RELEASE);
    return LIERNE_OK;
}

static lierne_status advance(void *stream, uint64_t *epoch) {
    static _Thread_local bool ended;
    const advancing a = {epoch, ended};
    ended = !ended;
    return test_capture_add(stream, run_advance, &a, sizeof a)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "epochs are of captured calls only");
}

const lierne_stream_driver test_capture_driver = {
    .name = "cuda",
    .required = true,
    .detached = true,
    .check = check,
    .event_create = event_create,
    .event_destroy = lierne_mem_free,
    .event_record = event_record,
    .event_query = event_query,
    .epochs_create = test_epochs_create,
    .epochs_destroy = test_epochs_destroy,
    .advance = advance,
};
