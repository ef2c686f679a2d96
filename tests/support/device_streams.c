/* What a CUDA stream does: everything that is enqueued has its arguments by value, and its order.
 */
#include "device_streams.h"

#include "tasks.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    struct work *next;
    void (*run)(void *data);
    _Alignas(16) char data[];
} work;

struct test_device_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    work *first;
    work **last;
    bool closing;
};

/* The next work, or NULL when the stream closes. */
static work *take(test_device_stream *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->first && !s->closing) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    work *w = s->first;
    if (w) {
        s->first = w->next;
        s->last = s->first ? s->last : &s->first;
    }
    pthread_mutex_unlock(&s->lock);
    return w;
}

static void *run_all(void *stream) {
    for (work *w = take(stream); w; w = take(stream)) {
        w->run(w->data);
        free(w);
    }
    return NULL;
}

static void *require(void *memory) {
    if (!memory) {
        fprintf(stderr, "no memory for a stream\n");
        exit(2);
    }
    return memory;
}

test_device_stream *test_device_stream_create(void) {
    test_device_stream *s = require(calloc(1, sizeof *s));
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, run_all, s) != 0) {
        fprintf(stderr, "no thread for a stream\n");
        exit(2);
    }
    return s;
}

void test_device_stream_destroy(test_device_stream *s) {
    if (s) {
        pthread_mutex_lock(&s->lock);
        s->closing = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        free(s);
    }
}

void test_device_stream_add(void *stream, void (*run)(void *data), const void *data, size_t bytes) {
    test_device_stream *s = stream;
    work *w = require(calloc(1, sizeof *w + bytes));
    w->run = run;
    memcpy(w->data, data, bytes);
    pthread_mutex_lock(&s->lock);
    *s->last = w;
    s->last = &w->next;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* The tables that a program has on the device. */
typedef struct tables {
    lierne_task_table now;
    void *at[3];
} tables;

/* Copies of a program's tables, and whose they become. */
typedef struct renewal {
    tables *of;
    tables next;
} renewal;

static void *copy_of(const void *from, size_t n, size_t size) {
    void *memory = require(calloc(n + 1, size));
    if (n > 0) {
        memcpy(memory, from, n * size);
    }
    return memory;
}

static void free_tables(tables *t) {
    for (int i = 0; i < 3; i++) {
        free(t->at[i]);
    }
}

static void run_renewal(void *data) {
    const renewal *r = data;
    free_tables(r->of);
    *r->of = r->next;
}

static tables copy_tables(const lierne_program *p) {
    tables t = {.at = {copy_of(p->tasks.at, p->tasks.count, sizeof *p->tasks.at),
                       copy_of(p->blocks.at, p->blocks.count, sizeof *p->blocks.at),
                       copy_of(p->lists.at, p->lists.count, sizeof *p->lists.at)}};
    t.now = (lierne_task_table){t.at[0], t.at[1], t.at[2]};
    return t;
}

static lierne_status renew(lierne_program *p, void *stream) {
    if (lierne_program_bytes(p) > p->reserved) {
        return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "the tables have %zu bytes, of %zu",
                           lierne_program_bytes(p), p->reserved);
    }
    const renewal r = {p->device, copy_tables(p)};
    test_device_stream_add(stream, run_renewal, &r, sizeof r);
    return LIERNE_OK;
}

/* Nothing reads the last tables any more. */
static lierne_status prepare(lierne_program *p, void *stream) {
    (void)stream;
    p->device = p->device ? p->device : require(calloc(1, sizeof(tables)));
    free_tables(p->device);
    *(tables *)p->device = copy_tables(p);
    return LIERNE_OK;
}

static void discard(lierne_program *p, void *stream) {
    (void)stream;
    if (p->device) {
        free_tables(p->device);
        free(p->device);
        p->device = NULL;
    }
}

typedef struct launched {
    const tables *tables;
    lierne_task_launch launch;
    lierne_task_call call;
} launched;

static void run_launch(void *data) {
    const launched *l = data;
    test_task_run(&l->tables->now, &l->launch, &l->call);
}

static lierne_status launch(const lierne_program *program, size_t number,
                            const lierne_task_call *call, void *stream) {
    const launched l = {program->device, program->launches.at[number], *call};
    test_device_stream_add(stream, run_launch, &l, sizeof l);
    return LIERNE_OK;
}

lierne_memory test_device_stream_memory(void) {
    lierne_memory memory = test_untouched_memory("device");
    memory.prepare = prepare;
    memory.renew = renew;
    memory.discard = discard;
    memory.launch = launch;
    return memory;
}

static atomic_int urgent_streams;
int test_device_urgent_streams(void) {
    return atomic_load(&urgent_streams);
}

/* How often it was recorded, and the last of these that a stream has passed. As in CUDA, an event
 * may be destroyed before streams have passed it: what is enqueued keeps it. */
typedef struct event {
    atomic_long recorded, passed;
    atomic_int users;
} event;
typedef struct handle { /* counted as the library's memory */
    event *event;
} handle;

typedef struct mark {
    event *event;
    long number;
} mark;

static void drop(event *e) {
    if (atomic_fetch_sub(&e->users, 1) == 1) {
        free(e);
    }
}

static lierne_status event_create(void **out) {
    handle *h = NULL;
    lierne_status status = lierne_alloc(&h, 1, sizeof *h);
    if (h) {
        h->event = require(calloc(1, sizeof *h->event));
        h->event->users = 1;
    }
    *out = h;
    return status;
}

static void event_destroy(void *self) {
    drop(((handle *)self)->event);
    lierne_mem_free(self);
}

static void add_mark(void *stream, void (*run)(void *data), event *e, long number) {
    const mark m = {e, number};
    atomic_fetch_add(&e->users, 1);
    test_device_stream_add(stream, run, &m, sizeof m);
}

static void run_mark(void *data) {
    const mark *m = data;
    atomic_store(&m->event->passed, m->number);
    drop(m->event);
}

static lierne_status event_record(void *stream, void *self) {
    event *e = ((handle *)self)->event;
    add_mark(stream, run_mark, e, atomic_fetch_add(&e->recorded, 1) + 1);
    return LIERNE_OK;
}

static lierne_status event_query(void *self, bool *passed) {
    event *e = ((handle *)self)->event;
    *passed = atomic_load(&e->passed) == atomic_load(&e->recorded);
    return LIERNE_OK;
}

/* A stream that waits for another one has what that one waits for enqueued before. */
static void run_wait(void *data) {
    const mark *m = data;
    while (atomic_load(&m->event->passed) < m->number) {
        sched_yield();
    }
    drop(m->event);
}

static lierne_status stream_wait(void *stream, void *self) {
    event *e = ((handle *)self)->event;
    add_mark(stream, run_wait, e, atomic_load(&e->recorded));
    return LIERNE_OK;
}

static lierne_status begin(void *stream, void *fence) {
    return stream_wait(stream, fence);
}

static lierne_status stream_create(void **stream, int device, bool urgent) {
    (void)device;
    atomic_fetch_add(&urgent_streams, urgent);
    *stream = test_device_stream_create();
    return LIERNE_OK;
}

static void stream_destroy(void *stream) {
    test_device_stream_destroy(stream);
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
    .fence_destroy = event_destroy,
    .begin = begin,
    .finish = event_record,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .epochs_create = test_epochs_create,
    .epochs_destroy = test_epochs_destroy,
    .advance = advance,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
};
