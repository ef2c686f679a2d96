/* Some transports connect two ranks when they exchange their first message. That takes long, may
 * wait for the other rank on the host, and must not happen while a stream is being captured. So it
 * happens while planning: ranks that will exchange messages and have exchanged none yet send each
 * other a few bytes.
 *
 * Both ends of a message know that it exists and whether they are connected, so no rank needs to
 * ask. No other message can match these: no rank executes before all ranks have planned. */
#include "runtime/execute/execution.h"

#include <string.h>
#include <time.h>

#define FEW 16 /* bytes of a message */

typedef struct first_messages {
    lierne_context *context;
    const lierne_carrier *carrier;
    void *state;           /* of the carrier's transport, for the domain of the plan */
    LIERNE_VEC(int) peers; /* by index among the members */
    lierne_posting *postings;
    size_t *done;
    void *batch;
    char *memory; /* what is sent, then what each peer sends */
    void *passed; /* an event, where the stream driver has them */
} first_messages;

static lierne_status list_peers(first_messages *m, const lierne_execution *e, bool *listed) {
    for (size_t i = 0; i < e->messages.count; i++) {
        const lierne_coalesced_message *message = &e->messages.at[i];
        if (&e->context->carriers[message->batch] == m->carrier && !listed[message->index]) {
            listed[message->index] = true;
            LIERNE_TRY(LIERNE_VEC_PUSH(&m->peers, message->index));
        }
    }
    return LIERNE_OK;
}

static void list_postings(first_messages *m) {
    size_t n = m->peers.count;
    for (size_t i = 0; i < 2 * n; i++) {
        bool receives = i < n;
        m->postings[i] = (lierne_posting){.slot = i,
                                          .peer = m->peers.at[i % n],
                                          .receives = receives,
                                          .bytes = FEW,
                                          .data = m->memory + (receives ? i + 1 : 0) * FEW};
    }
}

/* Everything that can fail on this rank alone. */
static lierne_status prepare_messages(first_messages *m, const lierne_execution *forward,
                                      const lierne_execution *adjoint, const bool *met) {
    lierne_context *context = m->context;
    const lierne_stream_driver *driver = context->stream_driver;
    bool *listed;
    void *memory = NULL;
    size_t world = (size_t)context->members.count;
    LIERNE_TRY(lierne_alloc(&listed, world, sizeof *listed));
    memcpy(listed, met, world * sizeof *listed);
    lierne_status status = list_peers(m, forward, listed);
    status = status == LIERNE_OK ? list_peers(m, adjoint, listed) : status;
    lierne_mem_free(listed);
    size_t n = m->peers.count;
    if (status != LIERNE_OK || n == 0) {
        return status;
    }
    LIERNE_TRY(lierne_alloc(&m->postings, 2 * n, sizeof *m->postings));
    LIERNE_TRY(lierne_alloc(&m->done, 2 * n, sizeof *m->done));
    LIERNE_TRY(m->carrier->transport->batch_create(m->state, 2 * n, &m->batch));
    LIERNE_TRY(lierne_context_alloc_scratch(&memory, context, (int64_t)(n + 1) * FEW));
    m->memory = memory;
    list_postings(m);
    return driver->event_create ? driver->event_create(&m->passed) : LIERNE_OK;
}

/* What the transport has noticed; the error of a peer that gave up, or whose process has ended. */
static lierne_status check_others(const first_messages *m) {
    const lierne_context *context = m->context;
    const lierne_transport_watched *watched = m->carrier->transport->watched;
    LIERNE_TRY(watched ? watched->check(m->carrier->self) : LIERNE_OK);
    const lierne_control *control = context->control;
    bool any = control->failures && control->failures->any_gave_up(context->control_self);
    for (size_t i = 0; i < m->peers.count; i++) {
        int peer = lierne_members_rank(&context->members, m->peers.at[i]);
        LIERNE_TRY(any ? lierne_context_gave_up(context, peer) : LIERNE_OK);
        LIERNE_TRY(lierne_context_peer_alive(context, peer));
    }
    return LIERNE_OK;
}

/* Until the stream has passed the messages. */
static lierne_status await(const first_messages *m) {
    const lierne_context *context = m->context;
    const lierne_stream_driver *driver = context->stream_driver;
    lierne_deadline deadline;
    const struct timespec nap = {.tv_nsec = 100000};
    bool passed = m->passed == NULL;
    lierne_deadline_start(&deadline, context->timeout, lierne_now());
    while (!passed) {
        LIERNE_TRY(driver->event_query(m->passed, &passed));
        if (!passed && lierne_deadline_passed(&deadline, lierne_now())) {
            return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                               "rank %d: the first messages with %zu ranks (rank %d among them) "
                               "have not passed within %g s: a rank, or a call that was begun "
                               "before, is late",
                               context->rank, m->peers.count,
                               lierne_members_rank(&context->members, m->peers.at[0]),
                               context->timeout);
        }
        LIERNE_TRY(passed ? LIERNE_OK : check_others(m));
        nanosleep(&nap, NULL);
    }
    return LIERNE_OK;
}

static lierne_status exchange_messages(first_messages *m) {
    const lierne_transport *t = m->carrier->transport;
    const lierne_stream_driver *driver = m->context->stream_driver;
    size_t n = 0;
    void *stream = m->context->own_stream;
    t->streams->set(m->batch, stream);
    LIERNE_TRY(t->post(m->batch, 0, m->postings, 2 * m->peers.count));
    LIERNE_TRY(t->poll(m->batch, m->done, &n));
    LIERNE_TRY(m->passed ? driver->event_record(stream, m->passed) : LIERNE_OK);
    return await(m);
}

static void close_first_messages(first_messages *m, bool quiet) {
    if (m->passed) {
        m->context->stream_driver->event_destroy(m->passed);
    }
    if (m->batch) {
        m->carrier->transport->batch_destroy(m->batch);
    }
    if (m->memory) {
        lierne_context_free_scratch(m->context, m->memory, quiet);
    }
    lierne_mem_free(m->postings);
    lierne_mem_free(m->done);
    lierne_mem_free(m->peers.at);
}

static void give_up(const first_messages *m) {
    const lierne_transport *t = m->carrier->transport;
    t->withdraw(m->batch);
    if (t->watched) {
        t->watched->abort(m->carrier->self);
    }
}

static lierne_status connect_ranks(first_messages *m, const lierne_execution *forward,
                                   const lierne_execution *adjoint, bool *met) {
    lierne_status status = prepare_messages(m, forward, adjoint, met);
    status = lierne_context_agree_all(m->context, status, NULL, 0, NULL);
    bool quiet = true;
    if (status == LIERNE_OK && m->peers.count > 0) {
        status = exchange_messages(m);
        quiet = status == LIERNE_OK;
        status = quiet ? LIERNE_OK : lierne_context_kill(m->context, status);
    }
    if (!quiet) {
        give_up(m);
    }
    for (size_t i = 0; status == LIERNE_OK && i < m->peers.count; i++) {
        met[m->peers.at[i]] = true;
    }
    close_first_messages(m, quiet);
    return status;
}

lierne_status lierne_execution_send_first_messages(lierne_context *context,
                                                   const lierne_execution *forward,
                                                   const lierne_execution *adjoint) {
    for (int i = 0; i < context->ncarriers; i++) {
        const lierne_carrier *carrier = &context->carriers[i];
        void *state = lierne_context_state(context, i, forward->domain);
        first_messages m = {.context = context, .carrier = carrier, .state = state};
        const lierne_transport_streams *streams = carrier->transport->streams;
        bool *met = streams ? streams->met(state) : NULL;
        LIERNE_TRY(met ? connect_ranks(&m, forward, adjoint, met) : LIERNE_OK);
    }
    return LIERNE_OK;
}
