/* The exchange of few ranks: every rank gives every other one a head, which says how many words
 * follow for it and has its part of the reduction. So every rank knows what to receive from whom,
 * and the exchange ends for it when that has arrived and what it sends has left.
 *
 * Where the abort flags reach all ranks, heads and short messages are not sent: each rank has a
 * board beside its flag, writes them there, and reads those of the others. Where ranks outnumber
 * cores, most of the time of an exchange is that of turns, and a message takes three: it is
 * offered, fetched, and taken back. A board has two sides that take turns, so that one can be read
 * while the next one is written: a rank writes the second next one when it has read the next one
 * of every other rank, and these have read this one by then (tests/model/barrier.pml).
 *
 * The sparse exchange takes a message and its answer, and then a reduction in several rounds. Where
 * ranks outnumber cores each of these waits until other ranks had their turn, here one does. A rank
 * takes as many heads as there are ranks, which is why many ranks exchange otherwise.
 *
 * A rank is at most one exchange ahead of another, because it has a head of every rank. Words
 * follow in pieces, as in the sparse exchange, one at a time in each direction between two ranks.
 */
#include "backend/mpi/mpi_state.h"

#include <stdatomic.h>
#include <string.h>

enum { HEAD_IN, HEAD_OUT, WORDS_IN, WORDS_OUT, KINDS };
#define REQUESTS (KINDS * LIERNE_MPI_FEW)
#define NOWHERE  ((size_t)-1)

/* What passes between this rank and another one. */
typedef struct partner {
    const lierne_control_message *message; /* to it, or NULL */
    size_t sent;                           /* words of it, or on their way */
    size_t received;                       /* likewise, of those that it sends */
    size_t expected;
    size_t index; /* of what it sends among the received messages, or NOWHERE */
    bool read;    /* its board */
} partner;

typedef struct exchange {
    lierne_mpi_state *state;
    const lierne_mpi_exchange_spec *spec;
    lierne_status memory; /* OK, or NO_MEMORY: all further messages go to the sink */
    int sink;             /* the rank whose words it receives, or -1 */
    int active;
    int unread; /* boards */
    partner partners[LIERNE_MPI_FEW];
    MPI_Request requests[REQUESTS]; /* of each kind one per rank of the world */
} exchange;

static MPI_Request *request_of(exchange *x, int kind, int peer) {
    return &x->requests[kind * x->state->world + peer];
}

static lierne_status check_started(exchange *x, int code, const char *what) {
    if (code != MPI_SUCCESS) {
        return lierne_mpi_failed(x->state, code, what);
    }
    x->active++;
    return LIERNE_OK;
}

static int next_piece(const exchange *x, size_t all, size_t done) {
    return (int)(all - done < x->spec->piece ? all - done : x->spec->piece);
}

static lierne_status send_words(exchange *x, int peer) {
    partner *p = &x->partners[peer];
    const lierne_control_message *m = p->message;
    if (!m || p->sent == m->count) {
        return LIERNE_OK;
    }
    int words = next_piece(x, m->count, p->sent);
    LIERNE_TRY(check_started(x,
                             MPI_Isend(m->words + p->sent, words, MPI_INT64_T, peer, x->spec->tag,
                                       x->state->comm, request_of(x, WORDS_OUT, peer)),
                             "MPI_Isend"));
    p->sent += (size_t)words;
    return LIERNE_OK;
}

/* Words for a rank, or -1: it gets no message. */
static int64_t count_words(const exchange *x, int peer) {
    const lierne_control_message *message = x->partners[peer].message;
    return message ? (int64_t)message->count : -1;
}

static lierne_mpi_board *board_of(const exchange *x, int peer) {
    return lierne_abort_flags_board(x->state->flags, x->state->flag[peer]);
}

/* Where on a side the words for a rank begin, or -1: they are sent. Both ranks find the same. */
static int64_t place_of(const exchange *x, const int64_t *counts, int peer) {
    int64_t at = 0, next = 0; /* next: behind the last that fit */
    for (int r = 0; r <= peer; r++) {
        bool fits = counts[r] <= LIERNE_MPI_SHORT - next && counts[r] <= (int64_t)x->spec->piece;
        at = fits ? next : -1;
        next += fits && counts[r] > 0 ? counts[r] : 0;
    }
    return at;
}

/* Short messages to others, and the heads of all. */
static void write_board(exchange *x) {
    lierne_mpi_state *m = x->state;
    lierne_mpi_board *own = board_of(x, m->rank);
    lierne_mpi_side *s = &own->sides[x->spec->number % 2];
    for (int r = 0; r < m->world; r++) {
        s->counts[r] = r == m->rank ? -1 : count_words(x, r);
    }
    for (int r = 0; r < m->world; r++) {
        int64_t at = place_of(x, s->counts, r);
        if (s->counts[r] > 0 && at >= 0) {
            partner *p = &x->partners[r];
            memcpy(s->words + at, p->message->words, p->message->count * sizeof *s->words);
            p->sent = p->message->count;
        }
    }
    memcpy(s->values, m->reduce_in, (size_t)x->spec->words * sizeof *s->values);
    atomic_store_explicit(&own->turn, x->spec->number + 1, memory_order_release);
    x->unread = m->world - 1;
}

static lierne_status send_head(exchange *x, int peer) {
    lierne_mpi_state *m = x->state;
    int64_t *head = m->heads_out[peer];
    int words = 1 + x->spec->words;
    head[0] = count_words(x, peer);
    memcpy(head + 1, m->reduce_in, (size_t)x->spec->words * sizeof *head);
    LIERNE_TRY(check_started(x,
                             MPI_Irecv(m->heads_in[peer], words, MPI_INT64_T, peer, x->spec->tag,
                                       m->comm, request_of(x, HEAD_IN, peer)),
                             "MPI_Irecv"));
    return check_started(x,
                         MPI_Isend(head, words, MPI_INT64_T, peer, x->spec->tag, m->comm,
                                   request_of(x, HEAD_OUT, peer)),
                         "MPI_Isend");
}

/* One rank at a time receives into the sink. */
static lierne_status receive_words(exchange *x, int peer) {
    partner *p = &x->partners[peer];
    MPI_Request *request = request_of(x, WORDS_IN, peer);
    bool drops = p->index == NOWHERE;
    if (p->received == p->expected || *request != MPI_REQUEST_NULL || (drops && x->sink >= 0)) {
        return LIERNE_OK;
    }
    int words = next_piece(x, p->expected, p->received);
    int64_t *to = drops ? x->state->sink : x->spec->received->at[p->index].words + p->received;
    LIERNE_TRY(check_started(x,
                             MPI_Irecv(to, words, MPI_INT64_T, peer, x->spec->tag, x->state->comm,
                                       request),
                             "MPI_Irecv"));
    x->sink = drops ? peer : x->sink;
    p->received += (size_t)words;
    return LIERNE_OK;
}

static void take_head(exchange *x, int peer, int64_t count, const int64_t *values) {
    lierne_mpi_state *m = x->state;
    partner *p = &x->partners[peer];
    for (int i = 0; i < x->spec->words; i++) {
        m->reduce_out[i] = values[i] < m->reduce_out[i] ? values[i] : m->reduce_out[i];
    }
    p->expected = count < 0 ? 0 : (size_t)count;
    if (count >= 0 && x->spec->received && x->memory == LIERNE_OK) {
        x->memory = lierne_control_messages_add(x->spec->received, peer, p->expected);
        p->index = x->memory == LIERNE_OK ? x->spec->received->count - 1 : NOWHERE;
    }
}

static lierne_status complete(exchange *x, int request) {
    int kind = request / x->state->world, peer = request % x->state->world;
    x->active--;
    if (kind == WORDS_OUT) {
        return send_words(x, peer);
    }
    if (kind == HEAD_IN) {
        take_head(x, peer, x->state->heads_in[peer][0], x->state->heads_in[peer] + 1);
    }
    x->sink = kind == WORDS_IN && x->sink == peer ? -1 : x->sink;
    return LIERNE_OK;
}

static void take_side(exchange *x, int peer, const lierne_mpi_side *s) {
    partner *p = &x->partners[peer];
    int64_t at = place_of(x, s->counts, x->state->rank);
    take_head(x, peer, s->counts[x->state->rank], s->values);
    if (at >= 0) {
        p->received = p->expected;
    }
    if (at >= 0 && p->index != NOWHERE && p->expected > 0) {
        memcpy(x->spec->received->at[p->index].words, s->words + at,
               p->expected * sizeof *s->words);
    }
}

/* Returns how many boards are new. */
static int read_boards(exchange *x) {
    int n = 0;
    for (int r = 0; x->unread > n && r < x->state->world; r++) {
        partner *p = &x->partners[r];
        if (r != x->state->rank && !p->read) {
            const lierne_mpi_board *b = board_of(x, r);
            uint32_t turn = atomic_load_explicit(&b->turn, memory_order_acquire);
            p->read = (int32_t)(turn - x->spec->number) > 0;
            if (p->read) {
                take_side(x, r, &b->sides[x->spec->number % 2]);
                n++;
            }
        }
    }
    x->unread -= n;
    return n;
}

/* Without a request MPI progresses, too: another rank may need that before it calls. */
static lierne_status test_requests(exchange *x, int *n) {
    lierne_mpi_state *m = x->state;
    int done[REQUESTS], arrived;
    if (x->active == 0) {
        MPI_Iprobe(MPI_ANY_SOURCE, x->spec->tag, m->comm, &arrived, MPI_STATUS_IGNORE);
        return LIERNE_OK;
    }
    int code = MPI_Testsome(KINDS * m->world, x->requests, n, done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) {
        return lierne_mpi_failed(m, code, "MPI_Testsome");
    }
    for (int i = 0; i < *n; i++) {
        LIERNE_TRY(complete(x, done[i]));
    }
    return LIERNE_OK;
}

static lierne_status step(exchange *x, bool *moved) {
    int n = read_boards(x), completed = 0;
    if (x->active > 0 || x->unread > 0) {
        LIERNE_TRY(test_requests(x, &completed));
    }
    *moved = n + completed > 0;
    for (int r = 0; *moved && r < x->state->world; r++) {
        LIERNE_TRY(receive_words(x, r));
    }
    return LIERNE_OK;
}

/* A message to itself is copied. */
static void take_own(exchange *x) {
    lierne_mpi_state *m = x->state;
    const lierne_control_message *own = x->partners[m->rank].message;
    lierne_control_messages *received = x->spec->received;
    memcpy(m->reduce_out, m->reduce_in, (size_t)x->spec->words * sizeof *m->reduce_in);
    if (own && received) {
        x->memory = lierne_control_messages_add(received, m->rank, own->count);
    }
    if (own && received && x->memory == LIERNE_OK && own->count > 0) {
        memcpy(received->at[received->count - 1].words, own->words,
               own->count * sizeof *own->words);
    }
}

static lierne_status run_exchange(exchange *x) {
    const char *what = x->spec->words > 0 ? "agreeing" : "planning";
    take_own(x);
    if (x->state->boards) {
        write_board(x);
    }
    for (int r = 0; r < x->state->world; r++) {
        if (r != x->state->rank) {
            LIERNE_TRY(x->state->boards ? LIERNE_OK : send_head(x, r));
            LIERNE_TRY(send_words(x, r));
        }
    }
    while (x->active > 0 || x->unread > 0) {
        bool moved;
        LIERNE_TRY(step(x, &moved));
        if (!moved) {
            LIERNE_TRY(lierne_mpi_pause(x->state, what));
        }
    }
    return lierne_mpi_check_given_up(x->state);
}

/* MPI may still read what is being sent and write what is being received. */
static void abandon(exchange *x) {
    x->state->pending_buffers |= x->spec->nmessages > 0;
    for (int r = 0; r < x->state->world; r++) {
        const partner *p = &x->partners[r];
        if (*request_of(x, WORDS_IN, r) != MPI_REQUEST_NULL && p->index != NOWHERE) {
            x->spec->received->at[p->index].words = NULL;
        }
    }
}

lierne_status lierne_mpi_dense_exchange(lierne_mpi_state *m, const lierne_mpi_exchange_spec *spec,
                                        lierne_status *memory) {
    exchange x = {.state = m, .spec = spec, .sink = -1};
    for (int i = 0; i < REQUESTS; i++) {
        x.requests[i] = MPI_REQUEST_NULL;
    }
    for (int r = 0; r < LIERNE_MPI_FEW; r++) {
        x.partners[r].index = NOWHERE;
    }
    for (size_t i = 0; i < spec->nmessages; i++) {
        x.partners[spec->messages[i].peer].message = &spec->messages[i];
    }
    lierne_status status = run_exchange(&x);
    if (status != LIERNE_OK) {
        abandon(&x);
    }
    *memory = x.memory;
    return status;
}
