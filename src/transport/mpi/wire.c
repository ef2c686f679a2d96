/* The mpi wire: messages as nonblocking sends and receives on the link's communicator.
 *
 * Counts of MPI are int, so a long message goes in pieces, all started at once to keep the order
 * of messages. The last piece is always shorter than a full one, if need be empty: then no message
 * can be taken for another of a different length, whatever the two lengths. A piece that is too
 * long for its place is MPI's error; one that is too short is found by its count. Requests of the
 * pieces stand side by side, without gaps, because MPI looks at all of them at each poll. */
#include "transport/mpi/link.h"

#include <limits.h>
#include <sched.h>

#define POLLS_PER_YIELD 64

typedef struct slot {
    bool receives;
    int peer;
    int tag;
    size_t pending; /* pieces in flight */
} slot;

typedef struct piece {
    size_t slot;
    int bytes;
} piece;

typedef struct batch {
    lierne_link *link;
    size_t count; /* requests in flight */
    size_t room;  /* of the four arrays */
    MPI_Request *requests;
    piece *pieces;
    int *indices;
    MPI_Status *statuses;
    slot slots[];
} batch;

/* Executing allocates nothing but here, once, for messages of more than one piece. */
static lierne_status reserve(batch *b, size_t room) {
    if (room <= b->room) {
        return LIERNE_OK;
    }
    if (room > INT_MAX) {
        return LIERNE_FAIL(LIERNE_OVERFLOW, "%zu pieces of messages at once, at most %d", room,
                           INT_MAX);
    }
    LIERNE_TRY(lierne_realloc(&b->requests, room, sizeof *b->requests));
    LIERNE_TRY(lierne_realloc(&b->pieces, room, sizeof *b->pieces));
    LIERNE_TRY(lierne_realloc(&b->indices, room, sizeof *b->indices));
    LIERNE_TRY(lierne_realloc(&b->statuses, room, sizeof *b->statuses));
    b->room = room;
    return LIERNE_OK;
}

/* Gives up a request; returns whether it has ended. A receive that was matched, or a send, cannot be
 * cancelled: MPI ends it whenever the peer comes and this process calls MPI again. */
static bool give_up_request(MPI_Request *request, bool receives) {
    int ended = 0;
    if (receives) {
        MPI_Cancel(request);
    }
    if (MPI_Test(request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || ended) {
        return ended;
    }
    MPI_Request_free(request);
    return false;
}

/* Requests are in flight in a dead context only. Nothing waits. */
static bool batch_free(void *self) {
    batch *b = self;
    bool quiet = true;
    int finalized = 0;
    MPI_Finalized(&finalized);
    for (size_t i = 0; i < b->count && !finalized; i++) {
        if (b->requests[i] != MPI_REQUEST_NULL) {
            quiet &= give_up_request(&b->requests[i], b->slots[b->pieces[i].slot].receives);
        }
    }
    lierne_mem_free(b->requests);
    lierne_mem_free(b->pieces);
    lierne_mem_free(b->indices);
    lierne_mem_free(b->statuses);
    lierne_mem_free(b);
    return quiet;
}

static lierne_status batch_new(void *self, size_t capacity, void **out) {
    batch *b;
    LIERNE_TRY(lierne_alloc(&b, 1, sizeof *b + capacity * sizeof b->slots[0]));
    b->link = self;
    lierne_status status = reserve(b, capacity);
    if (status != LIERNE_OK) {
        batch_free(b);
        return status;
    }
    *out = b;
    return LIERNE_OK;
}

static lierne_status fail(const batch *b, const slot *s, int code) {
    char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return LIERNE_FAIL(LIERNE_TRANSPORT, "rank %d: %s rank %d with tag %d: %s", b->link->rank,
                       s->receives ? "receiving from" : "sending to", s->peer, s->tag, text);
}

static lierne_status start_piece(batch *b, size_t at, const char *data, int bytes) {
    slot *s = &b->slots[at];
    MPI_Request *request = &b->requests[b->count];
    MPI_Comm comm = b->link->comm;
    int code = s->receives
                   ? MPI_Irecv((void *)data, bytes, MPI_BYTE, s->peer, s->tag, comm, request)
                   : MPI_Isend(data, bytes, MPI_BYTE, s->peer, s->tag, comm, request);
    if (code != MPI_SUCCESS) {
        return fail(b, s, code);
    }
    b->pieces[b->count++] = (piece){.slot = at, .bytes = bytes};
    s->pending++;
    return LIERNE_OK;
}

static lierne_status start(batch *b, size_t at, slot s, const char *data, size_t bytes) {
    size_t chunk = b->link->chunk;
    s.tag = s.tag < b->link->tags ? s.tag : s.tag % b->link->tags;
    b->slots[at] = s;
    b->link->met[s.peer] = true;
    if (bytes < chunk && b->count < b->room) {
        return start_piece(b, at, data, (int)bytes);
    }
    LIERNE_TRY(reserve(b, b->count + bytes / chunk + 1));
    for (; bytes >= chunk; bytes -= chunk, data += chunk) {
        LIERNE_TRY(start_piece(b, at, data, (int)chunk));
    }
    return start_piece(b, at, data, (int)bytes);
}

static lierne_status wire_send(void *self, size_t at, int peer, int tag, const void *data,
                               size_t bytes) {
    return start(self, at, (slot){.peer = peer, .tag = tag}, data, bytes);
}

static lierne_status wire_recv(void *self, size_t at, int peer, int tag, void *data, size_t bytes) {
    return start(self, at, (slot){.receives = true, .peer = peer, .tag = tag}, data, bytes);
}

static lierne_status check_piece(const batch *b, const piece *p, int code,
                                 const MPI_Status *status) {
    const slot *s = &b->slots[p->slot];
    int got;
    if (code != MPI_SUCCESS && status->MPI_ERROR != MPI_SUCCESS) {
        return fail(b, s, status->MPI_ERROR);
    }
    if (!s->receives) {
        return LIERNE_OK;
    }
    MPI_Get_count(status, MPI_BYTE, &got);
    if (got != p->bytes) {
        return LIERNE_FAIL(LIERNE_TRANSPORT,
                           "rank %d expects %d bytes from rank %d with tag %d and got %d",
                           b->link->rank, p->bytes, s->peer, s->tag, got);
    }
    return LIERNE_OK;
}

static void close_gaps(batch *b) {
    size_t kept = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (b->requests[i] != MPI_REQUEST_NULL) {
            b->requests[kept] = b->requests[i];
            b->pieces[kept++] = b->pieces[i];
        }
    }
    b->count = kept;
}

static lierne_status wire_poll(void *self, size_t *done, size_t *ndone) {
    batch *b = self;
    int n = 0, kind = MPI_SUCCESS;
    *ndone = 0;
    if (b->count == 0) {
        return LIERNE_OK;
    }
    int code = MPI_Testsome((int)b->count, b->requests, &n, b->indices, b->statuses);
    if (code != MPI_SUCCESS) {
        MPI_Error_class(code, &kind);
    }
    if (kind != MPI_SUCCESS && kind != MPI_ERR_IN_STATUS) {
        return lierne_link_failed(b->link, code, "MPI_Testsome");
    }
    for (int i = 0; i < n; i++) {
        const piece *p = &b->pieces[b->indices[i]];
        LIERNE_TRY(check_piece(b, p, code, &b->statuses[i]));
        if (--b->slots[p->slot].pending == 0) {
            done[(*ndone)++] = p->slot;
        }
    }
    if (n > 0) {
        close_gaps(b);
    }
    return LIERNE_OK;
}

/* A rank that is waited for may need the core; where each has its own, giving it up costs more than
 * the message. Open MPI gives it up by itself, in every poll, when it knows of more ranks than
 * cores: doing so again after each made small messages a fifth slower, so it is done after a few. */
static void idle(void *self) {
    lierne_link *l = self;
    if (l->crowded && ++l->idle_polls % POLLS_PER_YIELD == 0) {
        sched_yield();
    }
}

static lierne_status agree(void *self, lierne_status mine, const lierne_field *fields, size_t n,
                           int *id) {
    lierne_link *l = self;
    lierne_status decision = LIERNE_OK;
    LIERNE_TRY(lierne_context_alive(l->context));
    lierne_status status = lierne_link_agree(l, mine, fields, n, &decision);
    if (status != LIERNE_OK) {
        return lierne_context_kill(l->context, status);
    }
    *id = l->decisions++;
    return decision;
}

static void close_wire(void *self, bool dead) {
    lierne_link_close(self, dead);
}

void lierne_link_set_chunk(lierne_context *context, size_t bytes) {
    ((lierne_link *)context->self)->chunk = bytes;
}

const lierne_wire lierne_mpi_wire = {
    .name = "mpi",
    .batch_new = batch_new,
    .batch_free = batch_free,
    .send = wire_send,
    .recv = wire_recv,
    .poll = wire_poll,
    .idle = idle,
    .alive = lierne_link_alive,
    .give_up = lierne_link_give_up,
    .any_gave_up = lierne_link_any_gave_up,
    .gave_up = lierne_link_gave_up,
    .agree = agree,
    .post = lierne_link_post,
    .largest = lierne_link_largest,
    .close = close_wire,
};
