/* Streams of a device that is played (tasks.h): threads, so that a caller runs ahead of them as far
 * as it likes. */
#ifndef LIERNE_TESTS_DEVICE_STREAMS_H
#define LIERNE_TESTS_DEVICE_STREAMS_H

#include "runtime/execute/stream.h"
#include "runtime/memory/memory.h"

/* One thread and a queue without an end. Destroying it runs what is left first; NULL is allowed. */
typedef struct test_device_stream test_device_stream;
test_device_stream *test_device_stream_create(void);
void test_device_stream_destroy(test_device_stream *stream);
/* Calls run on a stream with a copy of data. */
void test_device_stream_add(void *stream, void (*run)(void *data), const void *data, size_t bytes);

/* Streams that its driver has made so far with the device's greatest priority. */
int test_device_urgent_streams(void);

/* As those of a device: required, detached, enqueued by the caller's thread; fences order the calls
 * of an execution that are on several streams. */
extern const lierne_stream_driver test_device_stream_driver;
/* Memory that the host does not touch, whose launches run on such a stream. */
lierne_memory test_device_stream_memory(void);

#endif
