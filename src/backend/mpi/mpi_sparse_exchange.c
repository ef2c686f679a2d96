/* The sparse exchange of MPI: messages to ranks that do not expect them, by nonblocking consensus
 * (the NBX algorithm: Hoefler, Siebert, Lumsdaine 2010). A synchronous send completes once its
 * message was matched. So a rank enters a nonblocking barrier when all its sends are complete,
 * receives messages from any rank meanwhile, and knows that there are no more when the barrier
 * completes. No rank counts the messages of all ranks.
 *
 * An exchange ends with a barrier, so a rank is at most one exchange ahead of another, and two
 * alternating tags keep exchanges apart.
 *
 * A long message is sent in pieces and ends with the exchange. No piece is longer than the state's
 * sink, so that a rank without memory can receive what it cannot keep: the sender waits for that.
 * It cannot use a receive that is too short, because Open MPI 4.1 then writes past its end. While a
 * full piece, or a message for the sink, is being received, no other message is received: the next
 * piece may move the memory of the first, and there is one sink.
 *
 * Requests in flight are few and have fixed slots, because sending must not allocate either.
 *
 * An exchange that agrees ends with the reduction of an agreement in place of the barrier. So every
 * agreement receives what arrives, and drops it where it exchanges nothing: a rank that exchanges
 * while others do something else could not end otherwise, and would not learn what they do. */
#include "backend/mpi/mpi_state.h"

#define WINDOW  32 /* sends in flight, and receives */
#define NOWHERE ((size_t)-1)

typedef struct queue {
    MPI_Request requests[WINDOW];
    size_t messages[WINDOW]; /* of receives: index of the message, or NOWHERE */
    int active;
} queue;

typedef struct exchange {
    lierne_mpi_state *state;
    const lierne_mpi_exchange_spec *spec; /* without words of a reduction it ends with a barrier */
    size_t next;                          /* message to send */
    size_t started;                       /* words of it that were sent */
    bool in_pieces;                       /* some message may continue in another piece */
    bool exclusive;       /* the receive in flight must complete before another one starts */
    lierne_status memory; /* OK, or NO_MEMORY: all further messages go to the sink */
    queue sends;
    queue receives;
    MPI_Request barrier;
    bool in_barrier;
    bool all_sent; /* the barrier is complete */
} exchange;

static int free_slot(const queue *q) {
    int i = 0;
    while (q->requests[i] != MPI_REQUEST_NULL) {
        i++;
    }
    return i;
}

/* Completes requests. */
static lierne_status test_requests(const exchange *x, queue *q, bool *moved) {
    int n, indices[WINDOW];
    MPI_Status statuses[WINDOW];
    if (q->active == 0) {
        return LIERNE_OK;
    }
    int code = MPI_Testsome(WINDOW, q->requests, &n, indices, statuses);
    if (code != MPI_SUCCESS) {
        return lierne_mpi_failed(x->state, code, "MPI_Testsome");
    }
    q->active -= n;
    *moved |= n > 0;
    return LIERNE_OK;
}

static lierne_status send_piece(exchange *x) {
    const lierne_control_message *message = &x->spec->messages[x->next];
    size_t left = message->count - x->started;
    size_t words = left < x->spec->piece ? left : x->spec->piece;
    int code = MPI_Issend(message->words ? message->words + x->started : NULL, (int)words,
                          MPI_INT64_T, message->peer, x->spec->tag, x->state->comm,
                          &x->sends.requests[free_slot(&x->sends)]);
    if (code != MPI_SUCCESS) {
        return lierne_mpi_failed(x->state, code, "MPI_Issend");
    }
    x->sends.active++;
    x->started += words;
    if (x->started == message->count) {
        x->next++;
        x->started = 0;
    }
    return LIERNE_OK;
}

/* The index of the message of a peer, or of a new one. */
static size_t find_message(const exchange *x, int peer) {
    size_t i = x->in_pieces ? 0 : x->spec->received->count;
    while (i < x->spec->received->count && x->spec->received->at[i].peer != peer) {
        i++;
    }
    return i;
}

/* Reserves memory for words of a peer; returns the index of their message, or NOWHERE. */
static size_t reserve_message(exchange *x, int peer, size_t words) {
    if (!x->spec->received) {
        return NOWHERE;
    }
    size_t i = find_message(x, peer);
    if (x->memory == LIERNE_OK && i == x->spec->received->count) {
        x->memory = lierne_control_messages_add(x->spec->received, peer, words);
    } else if (x->memory == LIERNE_OK) {
        lierne_control_message *message = &x->spec->received->at[i];
        x->memory = lierne_realloc(&message->words, message->count + words, sizeof *message->words);
        message->count += x->memory == LIERNE_OK ? words : 0;
    }
    x->in_pieces |= words == x->spec->piece;
    return x->memory == LIERNE_OK ? i : NOWHERE;
}

static lierne_status receive(exchange *x, MPI_Message *matched, const MPI_Status *status) {
    int words, slot = free_slot(&x->receives);
    MPI_Get_count(status, MPI_INT64_T, &words);
    size_t i = reserve_message(x, status->MPI_SOURCE, (size_t)words);
    const lierne_control_message *message = i == NOWHERE ? NULL : &x->spec->received->at[i];
    int code = MPI_Imrecv(message ? message->words + message->count - words : x->state->sink, words,
                          MPI_INT64_T, matched, &x->receives.requests[slot]);
    if (code != MPI_SUCCESS) {
        return lierne_mpi_failed(x->state, code, "MPI_Imrecv");
    }
    x->receives.messages[slot] = i;
    x->receives.active++;
    x->exclusive = !message || (size_t)words == x->spec->piece;
    return LIERNE_OK;
}

static lierne_status receive_arrivals(exchange *x, bool *moved) {
    for (int found = 1; found && !x->exclusive && x->receives.active < WINDOW;) {
        MPI_Message matched;
        MPI_Status status;
        int code =
            MPI_Improbe(MPI_ANY_SOURCE, x->spec->tag, x->state->comm, &found, &matched, &status);
        if (code != MPI_SUCCESS) {
            return lierne_mpi_failed(x->state, code, "MPI_Improbe");
        }
        if (found) {
            LIERNE_TRY(receive(x, &matched, &status));
            *moved = true;
        }
    }
    return LIERNE_OK;
}

static const char *what_of(const exchange *x) {
    return x->spec->words > 0 ? "agreeing" : "planning";
}

static lierne_status move_barrier(exchange *x, bool *moved) {
    int code = MPI_SUCCESS, done = 0;
    if (x->in_barrier && !x->all_sent) {
        code = MPI_Test(&x->barrier, &done, MPI_STATUS_IGNORE);
        *moved |= x->all_sent = done;
    } else if (!x->in_barrier && x->next == x->spec->nmessages && x->sends.active == 0) {
        lierne_mpi_state *m = x->state;
        code = x->spec->words > 0 ? MPI_Iallreduce(m->reduce_in, m->reduce_out, x->spec->words,
                                                   MPI_INT64_T, MPI_MIN, m->comm, &x->barrier)
                                  : MPI_Ibarrier(m->comm, &x->barrier);
        *moved = x->in_barrier = true;
    }
    return code == MPI_SUCCESS ? LIERNE_OK : lierne_mpi_failed(x->state, code, what_of(x));
}

static lierne_status run_exchange(exchange *x) {
    while (!x->all_sent || x->receives.active > 0) {
        bool moved = false;
        while (x->next < x->spec->nmessages && x->sends.active < WINDOW) {
            LIERNE_TRY(send_piece(x));
        }
        LIERNE_TRY(receive_arrivals(x, &moved));
        LIERNE_TRY(test_requests(x, &x->receives, &moved));
        x->exclusive &= x->receives.active > 0;
        LIERNE_TRY(test_requests(x, &x->sends, &moved));
        LIERNE_TRY(move_barrier(x, &moved));
        if (!moved) {
            LIERNE_TRY(lierne_mpi_pause(x->state, what_of(x)));
        }
    }
    return lierne_mpi_check_given_up(x->state);
}

/* MPI may still read pending sends and write pending receives, so their buffers are never freed: a
 * late rank that reads freed memory ends the program of both ranks. */
static void abandon(exchange *x) {
    x->state->pending_buffers |= x->sends.active > 0;
    for (int i = 0; i < WINDOW; i++) {
        if (x->receives.requests[i] != MPI_REQUEST_NULL && x->receives.messages[i] != NOWHERE) {
            x->spec->received->at[x->receives.messages[i]].words = NULL;
        }
    }
}

static lierne_status exchange_sparsely(lierne_mpi_state *m, const lierne_mpi_exchange_spec *spec,
                                       lierne_status *memory) {
    exchange x = {.state = m, .spec = spec};
    for (int i = 0; i < WINDOW; i++) {
        x.sends.requests[i] = x.receives.requests[i] = MPI_REQUEST_NULL;
    }
    lierne_status status = run_exchange(&x);
    if (status != LIERNE_OK) {
        abandon(&x);
    }
    *memory = x.memory;
    return status;
}

lierne_status lierne_mpi_exchange(lierne_mpi_state *m, int words,
                                  const lierne_control_message *messages, size_t n,
                                  lierne_control_messages *received, lierne_status *memory) {
    size_t word = sizeof m->sink[0];
    size_t bytes = m->piece_bytes < sizeof m->sink ? m->piece_bytes : sizeof m->sink;
    const lierne_mpi_exchange_spec spec = {
        .number = m->exchanges,
        .tag = m->tags + (int)(m->exchanges % LIERNE_MPI_CONTROL_TAGS),
        .piece = bytes < word ? 1 : bytes / word,
        .words = words,
        .messages = messages,
        .nmessages = n,
        .received = received,
    };
    m->exchanges++;
    lierne_mpi_start_deadline(m);
    lierne_status status =
        (m->world <= m->few ? lierne_mpi_dense_exchange : exchange_sparsely)(m, &spec, memory);
    if (received && (status != LIERNE_OK || *memory != LIERNE_OK)) {
        lierne_control_messages_destroy(received);
    } else if (received) {
        lierne_control_messages_sort(received);
    }
    return status;
}

lierne_status lierne_mpi_sparse_exchange(void *self, const lierne_control_message *messages,
                                         size_t n, lierne_control_messages *received) {
    lierne_status memory, status = lierne_mpi_exchange(self, 0, messages, n, received, &memory);
    return status == LIERNE_OK ? memory : status;
}
