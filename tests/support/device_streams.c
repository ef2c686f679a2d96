/* What a CUDA stream does: everything that is enqueued has its arguments by value, and its order.
 */
#include "device_streams.h"

#include "tasks.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    lierne_stream_work work; /* first */
    void (*run)(void *data);
    _Alignas(16) char data[];
} work;

static void run_work(lierne_stream_work *self) {
    work *w = (work *)self;
    w->run(w->data);
    free(w);
}

void test_device_stream_add(void *stream, void (*run)(void *data), const void *data, size_t bytes) {
    work *w = malloc(sizeof *w + bytes);
    if (!w) {
        fprintf(stderr, "no memory for %zu bytes of work\n", bytes);
        exit(2);
    }
    w->work.run = run_work;
    w->run = run;
    memcpy(w->data, data, bytes);
    lierne_host_stream_driver.enqueue(stream, &w->work);
}

typedef struct launched {
    const lierne_program *program;
    size_t number;
    lierne_task_call call;
} launched;

static void run_launch(void *data) {
    const launched *l = data;
    test_task_memory.launch(l->program, l->number, &l->call, NULL);
}

static lierne_status launch(const lierne_program *program, size_t number,
                            const lierne_task_call *call, void *stream) {
    const launched l = {program, number, *call};
    test_device_stream_add(stream, run_launch, &l, sizeof l);
    return LIERNE_OK;
}

lierne_memory test_device_stream_memory(void) {
    lierne_memory memory = test_untouched_memory("device");
    memory.launch = launch;
    return memory;
}

/* How often it was recorded, and the last of these that a stream has passed. */
typedef struct event {
    atomic_long recorded, passed;
} event;

typedef struct mark {
    event *event;
    long number;
} mark;

static lierne_status event_create(void **out) {
    event *e = NULL;
    lierne_status status = lierne_alloc(&e, 1, sizeof *e);
    *out = e;
    return status;
}

static void run_mark(void *data) {
    const mark *m = data;
    atomic_store(&m->event->passed, m->number);
}

static lierne_status event_record(void *stream, void *self) {
    event *e = self;
    const mark m = {e, atomic_fetch_add(&e->recorded, 1) + 1};
    test_device_stream_add(stream, run_mark, &m, sizeof m);
    return LIERNE_OK;
}

static lierne_status event_query(void *self, bool *passed) {
    event *e = self;
    *passed = atomic_load(&e->passed) == atomic_load(&e->recorded);
    return LIERNE_OK;
}

/* A stream that waits for another one has what that one waits for enqueued before. */
static void run_wait(void *data) {
    const mark *m = data;
    while (atomic_load(&m->event->passed) < m->number) {
        sched_yield();
    }
}

static lierne_status begin(void *stream, void *fence) {
    event *e = fence;
    const mark m = {e, atomic_load(&e->recorded)};
    test_device_stream_add(stream, run_wait, &m, sizeof m);
    return LIERNE_OK;
}

static void run_advance(void *data) {
    test_advance(NULL, *(uint64_t **)data);
}

static lierne_status advance(void *stream, uint64_t *epoch) {
    test_device_stream_add(stream, run_advance, &epoch, sizeof(uint64_t *));
    return LIERNE_OK;
}

const lierne_stream_driver test_device_stream_driver = {
    .name = "device",
    .required = true,
    .detached = true,
    .fence_create = event_create,
    .fence_destroy = lierne_mem_free,
    .begin = begin,
    .finish = event_record,
    .event_create = event_create,
    .event_destroy = lierne_mem_free,
    .event_record = event_record,
    .event_query = event_query,
    .epochs_create = test_epochs_create,
    .epochs_destroy = test_epochs_destroy,
    .advance = advance,
};
