/* A whole world of ranks in one process.
 *
 * The context of a rank is filled when it is first asked for, so that planning one rank of a large
 * world takes the memory of one context; all of them share one array of nodes.
 *
 * Sending copies the payload into a mailbox of the receiver; receiving copies it out. Whoever waits
 * runs everybody's jobs, so that one thread can begin on all ranks and then end on all of them;
 * a lock around that lets threads wait at the same time. How ranks decide and meet is in
 * sim_together.c. */
#include "transport/sim.h"

#include <sched.h>
#include <string.h>

typedef struct slot {
    bool used;
    bool receives;
    int peer;
    int tag;
    void *data;
    size_t bytes;
} slot;

typedef struct batch {
    lierne_sim_seat *seat;
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
    lierne_sim_letter *l;
    LIERNE_TRY(lierne_alloc(&l, 1, sizeof *l + bytes));
    l->from = b->seat->context->rank;
    l->tag = tag;
    l->bytes = bytes;
    if (bytes) {
        memcpy(l->data, data, bytes);
    }
    lierne_sim_seat *to = &b->seat->sim->seats[peer];
    to->last = to->last ? to->last : &to->first;
    *to->last = l;
    to->last = &l->next;
    b->slots[at] = (slot){.used = true, .peer = peer, .tag = tag};
    return LIERNE_OK;
}

static lierne_status sim_recv(void *self, size_t at, int peer, int tag, void *data, size_t bytes) {
    batch *b = self;
    b->slots[at] = (slot){
        .used = true, .receives = true, .peer = peer, .tag = tag, .data = data, .bytes = bytes};
    return LIERNE_OK;
}

/* Takes the first letter for a slot out of the mailbox; NULL if there is none. */
static lierne_sim_letter *take(lierne_sim_seat *s, const slot *wanted) {
    for (lierne_sim_letter **at = &s->first; *at; at = &(*at)->next) {
        lierne_sim_letter *l = *at;
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

static lierne_status deliver(const batch *b, const slot *s, lierne_sim_letter *l) {
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
            lierne_sim_letter *l = take(b->seat, s);
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

bool lierne_sim_move(const lierne_sim *sim) {
    bool moved = false;
    for (int r = 0; r < sim->nranks; r++) {
        moved |= sim->seats[r].context && lierne_jobs_progress(sim->seats[r].context);
    }
    return moved;
}

static void idle(void *self) {
    if (!lierne_sim_move(((lierne_sim_seat *)self)->sim)) {
        sched_yield();
    }
}

void lierne_sim_enter(void *self) {
    pthread_mutex_lock(&((lierne_sim_seat *)self)->sim->lock);
}

void lierne_sim_leave(void *self) {
    pthread_mutex_unlock(&((lierne_sim_seat *)self)->sim->lock);
}

static bool batch_free(void *self) {
    lierne_mem_free(self); /* messages are copies */
    return true;
}

static void give_up(void *self, lierne_status status) {
    lierne_sim_seat *s = self;
    atomic_store(&s->gave_up, (int)status);
    atomic_store(&s->sim->any_gave_up, true);
}

bool lierne_sim_any_gave_up(void *self) {
    return atomic_load(&((const lierne_sim_seat *)self)->sim->any_gave_up);
}

lierne_status lierne_sim_gave_up(void *self, int peer) {
    const lierne_sim_seat *s = &((const lierne_sim_seat *)self)->sim->seats[peer];
    lierne_status status = (lierne_status)atomic_load(&s->gave_up);
    return status == LIERNE_OK
               ? LIERNE_OK
               : LIERNE_FAIL(status, "rank %d gave up: %s", peer, s->context->dead_message);
}

static void close_seat(void *self, bool dead) {
    (void)self, (void)dead;
}

static const lierne_wire sim_wire = {
    .name = "sim",
    .batch_new = batch_new,
    .batch_free = batch_free,
    .send = sim_send,
    .recv = sim_recv,
    .poll = sim_poll,
    .idle = idle,
    .give_up = give_up,
    .any_gave_up = lierne_sim_any_gave_up,
    .gave_up = lierne_sim_gave_up,
    .enter = lierne_sim_enter,
    .leave = lierne_sim_leave,
    .agree = lierne_sim_agree,
    .agreed = lierne_sim_agreed,
    .settled = lierne_sim_settled,
    .post = lierne_sim_post,
    .largest = lierne_sim_largest,
    .close = close_seat,
};

/* The context of a rank, with the lock held: memory for all is there, and costs nothing until it is
 * written. */
static lierne_context *open_seat(lierne_sim *sim, int rank) {
    lierne_sim_seat *s = &sim->seats[rank];
    if (!s->context) {
        s->sim = sim;
        s->context = &sim->contexts[rank];
        *s->context = sim->common;
        s->context->self = s;
        s->context->rank = rank;
    }
    return s->context;
}

static void close_world(lierne_sim *sim) {
    for (int r = 0; sim->seats && r < sim->nranks; r++) {
        for (lierne_sim_letter *l = sim->seats[r].first, *next; l; l = next) {
            next = l->next;
            lierne_mem_free(l);
        }
        if (sim->seats[r].context) {
            sim->seats[r].context->nodes = NULL; /* the world's */
            lierne_context_clear(sim->seats[r].context);
        }
    }
    for (size_t i = 0; i < sim->decisions.count; i++) {
        lierne_mem_free(sim->decisions.at[i].fields);
    }
    lierne_mem_free(sim->decisions.at);
    lierne_mem_free(sim->seats);
    lierne_mem_free(sim->contexts);
    lierne_mem_free(sim->common.nodes);
    pthread_mutex_destroy(&sim->lock);
    lierne_mem_free(sim);
}

/* Fills what the contexts of all ranks have in common. */
static lierne_status fill_common(lierne_sim *sim, const lierne_context_spec *spec) {
    sim->common.wire = &sim_wire;
    sim->common.world = sim->nranks;
    sim->common.owned_by_sim = true;
    LIERNE_TRY(lierne_context_fill(&sim->common, spec));
    LIERNE_TRY(lierne_alloc(&sim->contexts, (size_t)sim->nranks, sizeof *sim->contexts));
    return lierne_alloc(&sim->seats, (size_t)sim->nranks, sizeof *sim->seats);
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
    sim->gone = -1;
    pthread_mutex_init(&sim->lock, NULL);
    lierne_status status = fill_common(sim, spec);
    if (status != LIERNE_OK) {
        close_world(sim);
        return status;
    }
    *out = sim;
    return LIERNE_OK;
}

lierne_context *lierne_sim_context(lierne_sim *sim, int rank) {
    if (!sim || rank < 0 || rank >= sim->nranks) {
        return NULL;
    }
    pthread_mutex_lock(&sim->lock);
    lierne_context *context = open_seat(sim, rank);
    pthread_mutex_unlock(&sim->lock);
    return context;
}

lierne_status lierne_sim_free(lierne_sim *sim) {
    for (int r = 0; sim && r < sim->nranks; r++) {
        const lierne_context *context = sim->seats[r].context;
        if (context && context->nplans > 0) {
            return LIERNE_FAIL(LIERNE_INVALID, "%zu plans of rank %d are alive", context->nplans,
                               r);
        }
    }
    if (sim) {
        close_world(sim);
    }
    return LIERNE_OK;
}
