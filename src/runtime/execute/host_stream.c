/* A stream on the host: one thread and a queue without an end. Enqueueing allocates nothing,
 * because work brings its own place in the queue. */
#include "runtime/execute/stream.h"

struct lierne_host_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    lierne_stream_work *first;
    lierne_stream_work **last;
    bool closing;
};

/* The next work, or NULL when the stream closes. */
static lierne_stream_work *take(lierne_host_stream *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->first && !s->closing) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    lierne_stream_work *work = s->first;
    if (work) {
        s->first = work->next;
        s->last = s->first ? s->last : &s->first;
    }
    pthread_mutex_unlock(&s->lock);
    return work;
}

static void *run(void *stream) {
    for (lierne_stream_work *work = take(stream); work; work = take(stream)) {
        work->run(work);
    }
    return NULL;
}

lierne_status lierne_host_stream_create(lierne_host_stream **out) {
    lierne_host_stream *s;
    LIERNE_TRY(lierne_alloc(&s, 1, sizeof *s));
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, run, s) != 0) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        lierne_mem_free(s);
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "there is no thread for a stream");
    }
    *out = s;
    return LIERNE_OK;
}

void lierne_host_stream_destroy(lierne_host_stream *s) {
    if (!s) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    lierne_mem_free(s);
}

static lierne_status enqueue(void *stream, lierne_stream_work *work) {
    lierne_host_stream *s = stream;
    pthread_mutex_lock(&s->lock);
    work->next = NULL;
    *s->last = work;
    s->last = &work->next;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return LIERNE_OK;
}

const lierne_stream_driver lierne_host_stream_driver = {
    .name = "host",
    .polls = true,
    .enqueue = enqueue,
};

const lierne_stream_driver lierne_host_detached_driver = {
    .name = "host",
    .polls = true,
    .detached = true,
    .enqueue = enqueue,
};
