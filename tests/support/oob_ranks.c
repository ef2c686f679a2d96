#include "oob_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An all-gather that some ranks have begun and not all have ended. */
typedef struct gather {
    struct gather *next;
    long number;
    int arrived, read;
    size_t bytes;
    char *parts;
} gather;

typedef struct message {
    struct message *next;
    int from, to, tag;
    size_t bytes;
    char data[];
} message;

typedef struct caller {
    oob_world *world;
    int rank;
    long gathers;
    int until_failure; /* calls; 0: none fails */
    int code;
} caller;

struct oob_world {
    pthread_mutex_t lock;
    int n;
    int requests; /* alive */
    bool keeps;
    gather *gathers;
    message *messages;
    caller callers[];
};

typedef struct request {
    bool gathers, receives;
    long number;
    void *data;
    size_t bytes;
    int from, tag;
    bool ended;
} request;

static void *memory(size_t bytes) {
    void *m = calloc(1, bytes + 1);
    if (!m) {
        fprintf(stderr, "no memory for the functions of a test\n");
        exit(2);
    }
    return m;
}

oob_world *oob_world_create(int n) {
    oob_world *w = memory(sizeof *w + (size_t)n * sizeof w->callers[0]);
    pthread_mutex_init(&w->lock, NULL);
    w->n = n;
    for (int r = 0; r < n; r++) {
        w->callers[r] = (caller){.world = w, .rank = r};
    }
    return w;
}

static int enter(caller *c) {
    pthread_mutex_lock(&c->world->lock);
    if (c->until_failure > 0 && --c->until_failure == 0) {
        c->until_failure = 1; /* and all after it */
        pthread_mutex_unlock(&c->world->lock);
        return c->code;
    }
    return 0;
}

static request *begin(oob_world *w, void **out) {
    request *r = memory(sizeof *r);
    w->requests++;
    *out = r;
    return r;
}

static gather *find_gather(oob_world *w, long number, size_t bytes) {
    gather **at = &w->gathers;
    while (*at && (*at)->number != number) {
        at = &(*at)->next;
    }
    if (!*at) {
        *at = memory(sizeof **at);
        (*at)->number = number;
        (*at)->bytes = bytes;
        (*at)->parts = memory(bytes * (size_t)w->n);
    }
    return *at;
}

static int allgather(void **out, const void *mine, void *all, size_t bytes, void *user) {
    caller *c = user;
    int code = enter(c);
    if (code != 0) {
        return code;
    }
    request *r = begin(c->world, out);
    *r = (request){.gathers = true, .number = c->gathers++, .data = all, .bytes = bytes};
    gather *g = find_gather(c->world, r->number, bytes);
    code = g->bytes == bytes ? 0 : 99;
    memcpy(g->parts + (size_t)c->rank * bytes, mine, code ? 0 : bytes);
    g->arrived++;
    pthread_mutex_unlock(&c->world->lock);
    return code;
}

static int send_message(void **out, const void *data, size_t bytes, int to, int tag, void *user) {
    caller *c = user;
    int code = enter(c);
    if (code != 0) {
        return code;
    }
    message *m = memory(sizeof *m + bytes), **at = &c->world->messages;
    *m = (message){.from = c->rank, .to = to, .tag = tag, .bytes = bytes};
    if (bytes > 0) {
        memcpy(m->data, data, bytes);
    }
    while (*at) {
        at = &(*at)->next;
    }
    *at = m;
    if (tag % 2) { /* a request that has ended already */
        *out = NULL;
    } else {
        begin(c->world, out)->ended = true;
    }
    pthread_mutex_unlock(&c->world->lock);
    return 0;
}

static int receive(void **out, void *data, size_t bytes, int from, int tag, void *user) {
    caller *c = user;
    int code = enter(c);
    if (code == 0) {
        request *r = begin(c->world, out);
        *r = (request){.receives = true, .data = data, .bytes = bytes, .from = from, .tag = tag};
        pthread_mutex_unlock(&c->world->lock);
    }
    return code;
}

static void test_gather(oob_world *w, request *r) {
    gather **at = &w->gathers;
    while ((*at)->number != r->number) {
        at = &(*at)->next;
    }
    gather *g = *at;
    if (g->arrived < w->n) {
        return;
    }
    memcpy(r->data, g->parts, g->bytes * (size_t)w->n);
    r->ended = true;
    if (++g->read == w->n) {
        *at = g->next;
        free(g->parts);
        free(g);
    }
}

static int test_receive(caller *c, request *r) {
    message **at = &c->world->messages;
    while (*at && ((*at)->to != c->rank || (*at)->from != r->from || (*at)->tag != r->tag)) {
        at = &(*at)->next;
    }
    message *m = *at;
    if (!m) {
        return 0;
    }
    if (m->bytes != r->bytes) {
        return 98;
    }
    if (r->bytes > 0) {
        memcpy(r->data, m->data, r->bytes);
    }
    r->ended = true;
    *at = m->next;
    free(m);
    return 0;
}

static int test(void *of, void *user) {
    caller *c = user;
    request *r = of;
    int code = enter(c);
    if (code != 0) {
        return code;
    }
    if (!r->ended && r->gathers) {
        test_gather(c->world, r);
    } else if (!r->ended && r->receives) {
        code = test_receive(c, r);
    }
    pthread_mutex_unlock(&c->world->lock);
    return code ? code : !r->ended;
}

static int free_request(void *of, void *user) {
    caller *c = user;
    request *r = of;
    pthread_mutex_lock(&c->world->lock);
    int borrowed = !r->ended && c->world->keeps;
    c->world->requests--;
    pthread_mutex_unlock(&c->world->lock);
    free(r);
    return borrowed;
}

lierne_oob_calls oob_world_calls(oob_world *world, int rank, bool messages) {
    return (lierne_oob_calls){.user = &world->callers[rank],
                              .allgather = allgather,
                              .send = messages ? send_message : NULL,
                              .receive = messages ? receive : NULL,
                              .test = test,
                              .free_request = free_request};
}

void oob_world_fail(oob_world *world, int rank, int k, int code) {
    world->callers[rank].until_failure = k;
    world->callers[rank].code = code;
}

long oob_world_gathers(const oob_world *world, int rank) {
    return world->callers[rank].gathers;
}

void oob_world_take_back(oob_world *world, bool can) {
    world->keeps = !can;
}

int oob_world_destroy(oob_world *world) {
    int left = world->requests;
    for (gather *g = world->gathers, *next; g; g = next) {
        next = g->next;
        left++;
        free(g->parts);
        free(g);
    }
    for (message *m = world->messages, *next; m; m = next) {
        next = m->next;
        left++;
        free(m);
    }
    pthread_mutex_destroy(&world->lock);
    free(world);
    return left;
}

lierne_status oob_context(lierne_context **out, oob_way way, oob_world *world, const char *name,
                          int rank, int n, const lierne_context_spec *spec) {
    if (way == OOB_NODE) {
        lierne_node_spec node = {
            .size = sizeof node, .rank = rank, .world = n, .name = name, .context = spec};
        return lierne_context_create_node(out, &node);
    }
    lierne_oob_spec oob = {.size = sizeof oob,
                           .rank = rank,
                           .nranks = n,
                           .calls = oob_world_calls(world, rank, way == OOB_CALLS),
                           .context = spec};
    return lierne_context_create_oob(out, &oob);
}

typedef struct worker {
    pthread_t thread;
    oob_way way;
    oob_world *world;
    char name[64];
    int rank, n;
    const lierne_context_spec *spec;
    void (*work)(lierne_context *context, void *shared);
    void *shared;
} worker;

static void must(const worker *w, lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "rank %d of %d: %s: %s\n", w->rank, w->n, lierne_status_name(status),
                lierne_last_error());
        exit(2);
    }
}

static void *run(void *argument) {
    const worker *w = argument;
    lierne_context *context;
    must(w, oob_context(&context, w->way, w->world, w->name, w->rank, w->n, w->spec));
    w->work(context, w->shared);
    must(w, lierne_context_destroy(context));
    return NULL;
}

void oob_ranks_run(oob_way way, int n, const lierne_context_spec *spec,
                   void (*work)(lierne_context *context, void *shared), void *shared) {
    worker *workers = memory((size_t)n * sizeof *workers);
    oob_world *world = oob_world_create(n);
    for (int r = 0; r < n; r++) {
        workers[r] = (worker){.way = way,
                              .world = world,
                              .rank = r,
                              .n = n,
                              .spec = spec,
                              .work = work,
                              .shared = shared};
        snprintf(workers[r].name, sizeof workers[r].name, "test-%d-%p", (int)getpid(),
                 (void *)workers);
        if (pthread_create(&workers[r].thread, NULL, run, &workers[r]) != 0) {
            fprintf(stderr, "no thread for rank %d\n", r);
            exit(2);
        }
    }
    for (int r = 0; r < n; r++) {
        pthread_join(workers[r].thread, NULL);
    }
    oob_world_destroy(world);
    free(workers);
}
