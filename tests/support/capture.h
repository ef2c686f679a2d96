/* Captures of streams of the device that is played (tasks.h), and their replays: what is enqueued
 * on a stream that is being captured is kept, with the values that its arguments have then, and
 * runs when the graph is launched. */
#ifndef LIERNE_TESTS_CAPTURE_H
#define LIERNE_TESTS_CAPTURE_H

#include "runtime/execute/stream.h"

/* A graph may be launched by one thread at a time. */
typedef struct test_graph test_graph;
/* Between them, what this thread enqueues on the stream is captured. */
void test_capture_begin(const void *stream);
test_graph *test_capture_end(void);
/* Runs what was captured, in its order, and returns when it is done. */
lierne_status test_graph_launch(const test_graph *graph);
void test_graph_destroy(test_graph *graph);

/* For what is played. If this thread captures the stream: keeps a copy of the data, with which
 * launches call run, and returns true. */
typedef lierne_status test_node_run(void *data);
bool test_capture_add(const void *stream, test_node_run *run, const void *data, size_t bytes);

/* Streams of a device whose calls are detached and may be captured; any pointer is a stream. */
extern const lierne_stream_driver test_capture_driver;
/* The one for what lierne enqueues by itself. */
extern char test_capture_own_stream;
/* Makes streams reach calls and replays, and pass none. */
void test_capture_hang(bool hang);

#endif
