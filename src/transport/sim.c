/* A whole world of ranks in one process.
 *
 * Sending copies the payload into a mailbox of the receiver; receiving copies it out. Whoever waits
 * runs everybody's jobs, so that one thread can begin on all ranks and then end on all of them;
 * a lock around that lets threads wait at the same time. Agreement cannot wait for ranks that the
 * same thread has yet to call: a rank is compared with the ranks that came before it, and those get
 * the failure of a later one when they begin. */
#include "transport/transport.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

typedef struct letter {
    struct letter *next;
    int from;
    int tag;
    size_t bytes;
    char data[];
} letter;

/* A decision, as far as ranks have taken part. */
typedef struct decision {
    lierne_status status;
    char message[LIERNE_MESSAGE_SIZE];
    size_t nfields;
    lierne_field *fields; /* of the first rank */
    int first;
} decision;

typedef struct seat {
    lierne_sim *sim;
    lierne_context *context;
    letter *first;
    letter **last;
    int decisions; /* that this rank took part in */
} seat;

struct lierne_sim {
    int nranks;
    seat *seats;
    pthread_mutex_t lock;
    LIERNE_VEC(decision) decisions;
    bool full; /* one could not be noted: neither can those after it, or ranks would disagree */
};

typedef struct slot {
    bool used;
    bool receives;
    int peer;
    int tag;
    void *data;
    size_t bytes;
} slot;

typedef struct batch {
    seat *seat;
    size_t capacity;
    slot slots[];
} batch;

static lierne_status batch_new(void *self, size_t capacity, void **out) {
    batch *b;
    LIERNE_TRY(lierne_alloc(&b, 1, sizeof *b + capacity * sizeof b->slots[0]));
    b->seat = self;
    b->capacity = capacity;
    *out = b;
    return LIERNE_OK;
}

static lierne_status sim_send(void *self, size_t at, int peer, int tag, const void *data,
                              size_t bytes) {
    batch *b = self;
    letter *l;
    LIERNE_TRY(lierne_alloc(&l, 1, sizeof *l + bytes));
    l->from = b->seat->context->rank;
    l->tag = tag;
    l->bytes = bytes;
    if (bytes) {
        memcpy(l->data, data, bytes);
    }
    seat *to = &b->seat->sim->seats[peer];
    *to->last = l;
    to->last = &l->next;
    b->slots[at] = (slot){.used = true, .peer = peer, .tag = tag};
    return LIERNE_OK;
}

static lierne_status sim_recv(void *self, size_t at, int peer, int tag, void *data, size_t bytes) {
    batch *b = self;
    b->slots[at] = (slot){.used = true, .receives = true, .peer = peer, .tag = tag, .data = data,
                          .bytes = bytes};
    return LIERNE_OK;
}

/* Takes the first letter for a slot out of the mailbox; NULL if there is none. */
static letter *take(seat *s, const slot *wanted) {
    for (letter **at = &s->first; *at; at = &(*at)->next) {
        letter *l = *at;
        if (l->from == wanted->peer && l->tag == wanted->tag) {
            *at = l->next;
            if (s->last == &l->next) {
                s->last = at;
            }
            return l;
        }
    }
    return NULL;
}

static lierne_status deliver(const batch *b, const slot *s, letter *l) {
    lierne_status status = LIERNE_OK;
    if (l->bytes != s->bytes) {
        status = LIERNE_FAIL(LIERNE_TRANSPORT, "rank %d expects %zu bytes from rank %d and got %zu",
                             b->seat->context->rank, s->bytes, s->peer, l->bytes);
    } else if (l->bytes) {
        memcpy(s->data, l->data, l->bytes);
    }
    lierne_mem_free(l);
    return status;
}

static lierne_status sim_poll(void *self, size_t *done, size_t *ndone) {
    batch *b = self;
    *ndone = 0;
    for (size_t i = 0; i < b->capacity; i++) {
        slot *s = &b->slots[i];
        if (!s->used) {
            continue;
        }
        if (s->receives) {
            letter *l = take(b->seat, s);
            if (!l) {
                continue;
            }
            LIERNE_TRY(deliver(b, s, l));
        }
        s->used = false;
        done[(*ndone)++] = i;
    }
    return LIERNE_OK;
}

static void idle(void *self) {
    const lierne_sim *sim = ((seat *)self)->sim;
    bool moved = false;
    for (int r = 0; r < sim->nranks; r++) {
        moved |= lierne_jobs_progress(sim->seats[r].context);
    }
    if (!moved) {
        sched_yield();
    }
}

static void enter(void *self) {
    pthread_mutex_lock(&((seat *)self)->sim->lock);
}

static void leave(void *self) {
    pthread_mutex_unlock(&((seat *)self)->sim->lock);
}

static lierne_status compare(const decision *d, int rank, const lierne_field *fields, size_t n) {
    for (size_t i = 0; i < n || i < d->nfields; i++) {
        bool both = i < n && i < d->nfields;
        if (!both || strcmp(fields[i].name, d->fields[i].name) != 0 ||
            fields[i].value != d->fields[i].value) {
            return LIERNE_FAIL(LIERNE_MISMATCH, "%s differs between ranks: %lld on rank %d, %lld "
                               "on rank %d", i < n ? fields[i].name : d->fields[i].name,
                               (long long)(i < d->nfields ? d->fields[i].value : 0), d->first,
                               (long long)(i < n ? fields[i].value : 0), rank);
        }
    }
    return LIERNE_OK;
}

/* Notes the first rank of a decision. */
static lierne_status open_decision(lierne_sim *sim, int rank, const lierne_field *fields,
                                   size_t n) {
    decision first = {.first = rank, .nfields = n};
    LIERNE_TRY(lierne_alloc(&first.fields, n, sizeof *fields));
    if (n) {
        memcpy(first.fields, fields, n * sizeof *fields);
    }
    lierne_status status = LIERNE_VEC_PUSH(&sim->decisions, first);
    if (status != LIERNE_OK) {
        lierne_mem_free(first.fields);
    }
    return status;
}

static lierne_status decide(seat *s, lierne_status mine, const lierne_field *fields, size_t n,
                            int id) {
    lierne_sim *sim = s->sim;
    if ((size_t)id == sim->decisions.count && !sim->full) {
        sim->full = open_decision(sim, s->context->rank, fields, n) != LIERNE_OK;
    }
    if ((size_t)id >= sim->decisions.count) {
        return LIERNE_FAIL(LIERNE_NO_MEMORY, "there was no memory to note decision %d of the world",
                           id);
    }
    decision *d = &sim->decisions.at[id];
    if (d->status != LIERNE_OK) {
        lierne_set_error(d->message);
        return d->status;
    }
    d->status = mine != LIERNE_OK ? mine : compare(d, s->context->rank, fields, n);
    if (d->status != LIERNE_OK) {
        memcpy(d->message, lierne_last_error(), sizeof d->message);
    }
    return d->status;
}

static lierne_status agree(void *self, lierne_status mine, const lierne_field *fields, size_t n,
                           int *id) {
    seat *s = self;
    *id = s->decisions++;
    enter(s);
    lierne_status status = decide(s, mine, fields, n, *id);
    leave(s);
    return status;
}

static lierne_status agreed(void *self, int id) {
    seat *s = self;
    enter(s);
    const decision *d = &s->sim->decisions.at[id];
    lierne_status status = d->status;
    if (status != LIERNE_OK) {
        lierne_set_error(d->message);
    }
    leave(s);
    return status;
}

static void close_seat(void *self, bool dead) {
    (void)self, (void)dead;
}

static const lierne_wire sim_wire = {
    .name = "sim",
    .batch_new = batch_new,
    .batch_free = lierne_mem_free,
    .send = sim_send,
    .recv = sim_recv,
    .poll = sim_poll,
    .idle = idle,
    .enter = enter,
    .leave = leave,
    .agree = agree,
    .agreed = agreed,
    .close = close_seat,
};

static lierne_status fill_seat(lierne_sim *sim, int rank, const lierne_context_spec *spec) {
    seat *s = &sim->seats[rank];
    s->sim = sim;
    s->last = &s->first;
    LIERNE_TRY(lierne_alloc(&s->context, 1, sizeof *s->context));
    s->context->wire = &sim_wire;
    s->context->self = s;
    s->context->rank = rank;
    s->context->world = sim->nranks;
    s->context->owned_by_sim = true;
    return lierne_context_fill(s->context, spec);
}

static void drop(lierne_sim *sim) {
    for (int r = 0; sim->seats && r < sim->nranks; r++) {
        for (letter *l = sim->seats[r].first, *next; l; l = next) {
            next = l->next;
            lierne_mem_free(l);
        }
        lierne_context_drop(sim->seats[r].context);
    }
    for (size_t i = 0; i < sim->decisions.count; i++) {
        lierne_mem_free(sim->decisions.at[i].fields);
    }
    lierne_mem_free(sim->decisions.at);
    lierne_mem_free(sim->seats);
    pthread_mutex_destroy(&sim->lock);
    lierne_mem_free(sim);
}

lierne_status lierne_sim_create(lierne_sim **out, int nranks, const lierne_context_spec *spec) {
    lierne_sim *sim;
    if (!out || nranks < 1 || nranks > LIERNE_MAX_RANKS) {
        return LIERNE_FAIL(LIERNE_INVALID, "out is NULL, or nranks is %d, must be in 1 to %d",
                           nranks, LIERNE_MAX_RANKS);
    }
    *out = NULL;
    LIERNE_TRY(lierne_alloc(&sim, 1, sizeof *sim));
    sim->nranks = nranks;
    pthread_mutex_init(&sim->lock, NULL);
    lierne_status status = lierne_alloc(&sim->seats, (size_t)nranks, sizeof *sim->seats);
    for (int r = 0; r < nranks && status == LIERNE_OK; r++) {
        status = fill_seat(sim, r, spec);
    }
    if (status != LIERNE_OK) {
        drop(sim);
        return status;
    }
    *out = sim;
    return LIERNE_OK;
}

lierne_context *lierne_sim_context(lierne_sim *sim, int rank) {
    return sim && rank >= 0 && rank < sim->nranks ? sim->seats[rank].context : NULL;
}

lierne_status lierne_sim_free(lierne_sim *sim) {
    for (int r = 0; sim && r < sim->nranks; r++) {
        if (sim->seats[r].context->nplans > 0) {
            return LIERNE_FAIL(LIERNE_INVALID, "%zu plans of rank %d are alive",
                               sim->seats[r].context->nplans, r);
        }
    }
    if (sim) {
        drop(sim);
    }
    return LIERNE_OK;
}
