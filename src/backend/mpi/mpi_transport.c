/* The transport of MPI: nonblocking sends and receives on the communicator of MPI's control, whose
 * state it shares.
 *
 * MPI counts with int, so a long message is sent in pieces, all started at once to keep the order
 * of messages. The last piece is always shorter than a full one, possibly empty, so that messages
 * of different lengths never match without an error: MPI reports a piece that is too long for its
 * receive, and the count of a piece shows that it is too short. The requests of all pieces are one
 * array without gaps, because each poll tests all of them. */
#include "backend/mpi/mpi_transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

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
    lierne_mpi_state *state;
    size_t count;    /* requests in flight */
    size_t capacity; /* of the four arrays */
    MPI_Request *requests;
    piece *pieces;
    int *indices;
    MPI_Status *statuses;
    slot slots[];
} batch;

/* The only allocation while executing, and only for messages of more than one piece, once. */
static lierne_status reserve_requests(batch *b, size_t capacity) {
    if (capacity <= b->capacity) {
        return LIERNE_OK;
    }
    if (capacity > INT_MAX) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                           "%zu pieces of messages in flight, must be at most %d", capacity,
                           INT_MAX);
    }
    LIERNE_TRY(lierne_realloc(&b->requests, capacity, sizeof *b->requests));
    LIERNE_TRY(lierne_realloc(&b->pieces, capacity, sizeof *b->pieces));
    LIERNE_TRY(lierne_realloc(&b->indices, capacity, sizeof *b->indices));
    LIERNE_TRY(lierne_realloc(&b->statuses, capacity, sizeof *b->statuses));
    b->capacity = capacity;
    return LIERNE_OK;
}

/* Abandons a request; returns whether it has completed. A send, or a receive that was matched,
 * cannot be cancelled: MPI completes it whenever the peer acts and this process calls MPI again. */
static bool abandon_request(MPI_Request *request, bool receives) {
    int completed = 0;
    if (receives) {
        MPI_Cancel(request);
    }
    if (MPI_Test(request, &completed, MPI_STATUS_IGNORE) != MPI_SUCCESS || completed) {
        return completed;
    }
    MPI_Request_free(request);
    return false;
}

/* Does not wait. */
static bool withdraw_mpi(void *self) {
    batch *b = self;
    bool quiet = true;
    int finalized = 0;
    MPI_Finalized(&finalized);
    for (size_t i = 0; i < b->count && !finalized; i++) {
        if (b->requests[i] != MPI_REQUEST_NULL) {
            quiet &= abandon_request(&b->requests[i], b->slots[b->pieces[i].slot].receives);
        }
    }
    b->count = 0;
    return quiet;
}

static void batch_destroy(void *self) {
    batch *b = self;
    lierne_mem_free(b->requests);
    lierne_mem_free(b->pieces);
    lierne_mem_free(b->indices);
    lierne_mem_free(b->statuses);
    lierne_mem_free(b);
}

static lierne_status batch_create(void *self, size_t capacity, void **out) {
    batch *b;
    LIERNE_TRY(lierne_alloc(&b, 1, sizeof *b + capacity * sizeof b->slots[0]));
    b->state = self;
    lierne_status status = reserve_requests(b, capacity);
    if (status != LIERNE_OK) {
        batch_destroy(b);
        return status;
    }
    *out = b;
    return LIERNE_OK;
}

static lierne_status fail_slot(const batch *b, const slot *s, int code) {
    char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
    int length, kind = MPI_SUCCESS;
    MPI_Error_string(code, text, &length);
    MPI_Error_class(code, &kind);
    return LIERNE_FAIL(kind == MPI_ERR_TRUNCATE ? LIERNE_ERR_MISMATCH : LIERNE_ERR_TRANSPORT,
                       "rank %d: %s rank %d with tag %d: %s",
                       lierne_mpi_name(b->state, b->state->rank),
                       s->receives ? "receiving from" : "sending to",
                       lierne_mpi_name(b->state, s->peer), s->tag, text);
}

static lierne_status start_piece(batch *b, size_t at, const char *data, int bytes) {
    slot *s = &b->slots[at];
    MPI_Request *request = &b->requests[b->count];
    MPI_Comm comm = b->state->comm;
    int code = s->receives
                   ? MPI_Irecv((void *)data, bytes, MPI_BYTE, s->peer, s->tag, comm, request)
                   : MPI_Isend(data, bytes, MPI_BYTE, s->peer, s->tag, comm, request);
    if (code != MPI_SUCCESS) {
        return fail_slot(b, s, code);
    }
    b->pieces[b->count++] = (piece){.slot = at, .bytes = bytes};
    s->pending++;
    return LIERNE_OK;
}

/* A tag stands for a series of match ids: their calls follow each other, and MPI keeps the order of
 * messages. */
static lierne_status start_message(batch *b, int match, const lierne_posting *p) {
    size_t chunk = b->state->piece_bytes, bytes = p->bytes;
    const char *data = p->data;
    b->slots[p->slot] =
        (slot){.receives = p->receives, .peer = p->peer, .tag = match / LIERNE_CALL_IDS};
    b->state->contacted[p->peer] = true;
    if (bytes < chunk && b->count < b->capacity) {
        return start_piece(b, p->slot, data, (int)bytes);
    }
    LIERNE_TRY(reserve_requests(b, b->count + bytes / chunk + 1));
    for (; bytes >= chunk; bytes -= chunk, data += chunk) {
        LIERNE_TRY(start_piece(b, p->slot, data, (int)chunk));
    }
    return start_piece(b, p->slot, data, (int)bytes);
}

static lierne_status post_mpi(void *self, int match, const lierne_posting *postings, size_t n) {
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(start_message(self, match, &postings[i]));
    }
    return LIERNE_OK;
}

static lierne_status check_piece(const batch *b, const piece *p, int code,
                                 const MPI_Status *status) {
    const slot *s = &b->slots[p->slot];
    int got;
    if (code != MPI_SUCCESS && status->MPI_ERROR != MPI_SUCCESS) {
        return fail_slot(b, s, status->MPI_ERROR);
    }
    if (!s->receives) {
        return LIERNE_OK;
    }
    MPI_Get_count(status, MPI_BYTE, &got);
    if (got != p->bytes) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "rank %d expects %d bytes from rank %d with tag %d and received %d",
                           lierne_mpi_name(b->state, b->state->rank), p->bytes,
                           lierne_mpi_name(b->state, s->peer), s->tag, got);
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

static lierne_status poll_messages(void *self, size_t *done, size_t *ndone) {
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
        return lierne_mpi_failed(b->state, code, "MPI_Testsome");
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

/* Open MPI and MPICH have a function for it, which standard MPI has not. Without one, or with an
 * MPI that says no, messages go through host memory. */
const char *lierne_mpi_takes(void) {
    int (*query)(void) = NULL;
    *(void **)&query = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    return query && query() == 1 ? "cuda" : NULL;
}

const lierne_transport lierne_mpi_transport = {
    .name = "mpi",
    .close = lierne_transport_close_nothing,
    .print = lierne_transport_print_nothing,
    .reaches = lierne_transport_reaches_all,
    .batch_create = batch_create,
    .withdraw = withdraw_mpi,
    .batch_destroy = batch_destroy,
    .post = post_mpi,
    .poll = poll_messages,
};
