/* Prepares an execution: coalesces messages, assigns staging slots and allocates all memory, so
 * that executing allocates nothing.
 *
 * Coalesced plans are one execution of several routes: in every stage the messages with the same
 * peer become one. If a route has several messages with a peer in a stage, its k-th is coalesced
 * with the k-th of the other routes, in the same way at both ends. */
#include "runtime/execute/execution.h"

#include <stdlib.h>

/* Bytes of a message from which on peers read scratch in a window. Shorter ones are complete at
 * once because they are packed. */
#define LEAST_SHOWN (8 << 10)

static const lierne_messages *messages_of(const lierne_subroute *subroute, size_t stage,
                                          bool sends) {
    static const lierne_messages none = {0};
    if (stage >= subroute->route->stages.count) {
        return &none;
    }
    const lierne_stage *s = &subroute->route->stages.at[stage];
    return sends ? &s->sends : &s->recvs;
}

/* A message and its place in a stage; sorted by peer, and those of a peer by place. */
typedef struct place {
    int peer;
    size_t index;
} place;

/* The messages of all subroutes in one direction of a stage, sorted: those of subroute p are
 * sorted[start[p]] to sorted[start[p + 1] - 1]. */
typedef struct catalogue {
    place *sorted;
    size_t *start;
} catalogue;

static int compare_places(const void *a, const void *b) {
    const place *x = a, *y = b;
    int peer = (x->peer > y->peer) - (x->peer < y->peer);
    return peer ? peer : (x->index > y->index) - (x->index < y->index);
}

/* The first of a subroute's messages that is not before a place. */
static size_t search(const catalogue *c, size_t p, place wanted) {
    size_t low = c->start[p], high = c->start[p + 1];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare_places(&c->sorted[middle], &wanted) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The number of subroute p's messages before message i with its peer. */
static size_t index_with_peer(const catalogue *c, size_t p, place i) {
    return search(c, p, i) - search(c, p, (place){.peer = i.peer});
}

/* The index-th message of subroute p with a peer, or NULL. */
static const lierne_message *find_message(const catalogue *c, size_t p,
                                          const lierne_messages *messages, int peer, size_t index) {
    size_t at = search(c, p, (place){.peer = peer}) + index;
    return at < c->start[p + 1] && c->sorted[at].peer == peer ? &messages->at[c->sorted[at].index]
                                                              : NULL;
}

static void close_catalogue(catalogue *c) {
    lierne_mem_free(c->sorted);
    lierne_mem_free(c->start);
}

/* To be closed also on failure. */
static lierne_status open_catalogue(catalogue *c, const lierne_execution *e, size_t stage,
                                    bool sends) {
    size_t n = 0;
    *c = (catalogue){0};
    LIERNE_TRY(lierne_alloc(&c->start, e->nsubroutes + 1, sizeof *c->start));
    for (size_t p = 0; p < e->nsubroutes; p++) {
        n += messages_of(&e->subroutes[p], stage, sends)->count;
        c->start[p + 1] = n;
    }
    LIERNE_TRY(lierne_alloc(&c->sorted, n, sizeof *c->sorted));
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_messages *messages = messages_of(&e->subroutes[p], stage, sends);
        place *sorted = c->sorted + c->start[p];
        for (size_t m = 0; m < messages->count; m++) {
            sorted[m] = (place){messages->at[m].peer, m};
        }
        if (messages->count > 1) {
            qsort(sorted, messages->count, sizeof *sorted, compare_places);
        }
    }
    return LIERNE_OK;
}

static lierne_status add_segment(lierne_execution *e, lierne_coalesced_message *m,
                                 lierne_subroute *subroute, const lierne_message *message) {
    lierne_segment segment = {subroute, message};
    int64_t bytes = lierne_segment_bytes(&segment);
    m->bytes += bytes;
    e->record.bytes += bytes;
    m->count++;
    return LIERNE_VEC_PUSH(&e->segments, segment);
}

/* The message that begins with message i of subroute p and includes those of later subroutes. */
static lierne_status add_message(lierne_execution *e, const catalogue *c, size_t p, size_t stage,
                                 bool sends, size_t i) {
    const lierne_messages *messages = messages_of(&e->subroutes[p], stage, sends);
    int peer = messages->at[i].peer;
    lierne_coalesced_message m = {.peer = peer,
                                  .first = e->segments.count,
                                  .staging = -1,
                                  .predecessor = -1,
                                  .pipeline = -1,
                                  .successor = -1};
    LIERNE_TRY(add_segment(e, &m, &e->subroutes[p], &messages->at[i]));
    if (e->nsubroutes > 1) {
        size_t index = index_with_peer(c, p, (place){peer, i});
        for (size_t q = 0; q < e->nsubroutes; q++) {
            const lierne_message *other =
                find_message(c, q, messages_of(&e->subroutes[q], stage, sends), peer, index);
            if (other && q < p) {
                e->segments.count = m.first; /* it is part of that subroute's message */
                return LIERNE_OK;
            }
            if (other && q > p) {
                LIERNE_TRY(add_segment(e, &m, &e->subroutes[q], other));
            }
        }
    }
    return LIERNE_VEC_PUSH(&e->messages, m);
}

static lierne_status add_all(lierne_execution *e, const catalogue *c, size_t stage, bool sends) {
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_messages *messages = messages_of(&e->subroutes[p], stage, sends);
        for (size_t m = 0; m < messages->count; m++) {
            LIERNE_TRY(add_message(e, c, p, stage, sends, m));
        }
    }
    return LIERNE_OK;
}

static lierne_status add_messages(lierne_execution *e, size_t stage, bool sends) {
    catalogue c = {0};
    lierne_status status = e->nsubroutes > 1 ? open_catalogue(&c, e, stage, sends) : LIERNE_OK;
    status = status == LIERNE_OK ? add_all(e, &c, stage, sends) : status;
    close_catalogue(&c);
    return status;
}

static lierne_status add_phases(lierne_execution *e) {
    size_t stages = 0;
    for (size_t p = 0; p < e->nsubroutes; p++) {
        size_t n = e->subroutes[p].route->stages.count;
        stages = n > stages ? n : stages;
    }
    for (size_t i = 0; i < stages; i++) {
        lierne_phase phase = {.first = e->messages.count};
        LIERNE_TRY(add_messages(e, i, false));
        LIERNE_TRY(e->varying && i == 0 ? lierne_varying_add_ring(e, false) : LIERNE_OK);
        phase.nrecvs = e->messages.count - phase.first;
        LIERNE_TRY(add_messages(e, i, true));
        LIERNE_TRY(e->varying && i == 0 ? lierne_varying_add_ring(e, true) : LIERNE_OK);
        phase.nsends = e->messages.count - phase.first - phase.nrecvs;
        LIERNE_TRY(LIERNE_VEC_PUSH(&e->phases, phase));
    }
    return LIERNE_OK;
}

/* Whether a send is long, partly from scratch, and over a transport whose peers read windows. */
static bool shows_scratch(const lierne_execution *e, const lierne_coalesced_message *m) {
    const lierne_transport *t = e->batches[m->batch].transport;
    bool scratch = false;
    for (size_t i = m->first; i < m->first + m->count; i++) {
        scratch |= e->segments.at[i].message->buffer == LIERNE_BUFFER_SCRATCH;
    }
    return scratch && t->memory && t->exposes && m->bytes > LEAST_SHOWN;
}

/* Whether peers read scratch of this execution where it is, if they can. */
static bool has_shown_scratch(const lierne_execution *e) {
    bool shown = false;
    for (size_t i = 0; i < e->phases.count && e->context->memory == &lierne_host_memory; i++) {
        const lierne_phase *phase = &e->phases.at[i];
        size_t first = phase->first + phase->nrecvs;
        for (size_t k = first; k < first + phase->nsends && !shown; k++) {
            shown = shows_scratch(e, &e->messages.at[k]);
        }
    }
    return shown;
}

/* Memory that another execution had, if that is enough; else of its own. */
static lierne_status take_memory(lierne_execution *e, lierne_spare *spare) {
    void *memory = spare->memory;
    if (memory && spare->bytes >= e->memory.reserved) {
        e->memory.capacity = spare->bytes;
        e->memory.window = spare->window;
        spare->memory = NULL;
    } else if (has_shown_scratch(e)) {
        LIERNE_TRY(
            lierne_context_alloc_shown(&memory, &e->memory.window, e->context, e->memory.reserved));
    } else {
        LIERNE_TRY(lierne_context_alloc_scratch(&memory, e->context, e->memory.reserved));
    }
    e->memory.at = memory;
    return LIERNE_OK;
}

static lierne_status take_host_memory(lierne_execution *e, lierne_spare *spare) {
    void *memory = spare->host_memory;
    if (e->host.reserved == 0) {
        return LIERNE_OK;
    }
    if (memory && spare->host_bytes >= e->host.reserved) {
        e->host.capacity = spare->host_bytes;
        spare->host_memory = NULL;
    } else {
        LIERNE_TRY(lierne_context_alloc_kept(&memory, e->context, (size_t)e->host.reserved, true));
    }
    e->host.at = memory;
    return LIERNE_OK;
}

/* Scratch of the subroutes, then staging slots. */
static lierne_status reserve_memory(lierne_execution *e, lierne_spare *spare) {
    e->memory.reserved = 0;
    for (size_t p = 0; p < e->nsubroutes; p++) {
        lierne_subroute *subroute = &e->subroutes[p];
        subroute->scratch = e->memory.reserved;
        e->memory.reserved += lierne_execution_align(
            subroute->route->elements[LIERNE_BUFFER_SCRATCH] * (int64_t)subroute->size);
    }
    int64_t bytes[2] = {e->memory.reserved, 0};
    LIERNE_TRY(lierne_execution_assign_staging(e, bytes));
    e->memory.reserved = e->memory.capacity = bytes[0];
    e->host.reserved = e->host.capacity = bytes[1];
    LIERNE_TRY(take_memory(e, spare));
    return take_host_memory(e, spare);
}

static size_t most_contributions(const lierne_execution *e) {
    size_t most = lierne_varying_most_sources(e);
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_route *route = e->subroutes[p].route;
        for (size_t i = 0; i < route->stages.count; i++) {
            const lierne_ops *sums = &route->stages.at[i].sums;
            for (size_t o = 0; o < sums->count; o++) {
                most = sums->at[o].from.count > most ? sums->at[o].from.count : most;
            }
        }
    }
    return most;
}

/* Where messages lie in windows is known when they are connected. */
static lierne_status record(lierne_execution *e) {
    return e->uses_windows ? LIERNE_OK : lierne_execution_record(e);
}

static lierne_status reserve_execution(lierne_execution *e, lierne_spare *spare) {
    LIERNE_TRY(lierne_execution_choose_transports(e));
    if (e->varying) {
        LIERNE_TRY(lierne_varying_reserve(e));
    } else {
        LIERNE_TRY(reserve_memory(e, spare));
    }
    lierne_execution_mark_lingering(e);
    LIERNE_TRY(lierne_execution_create_batches(e));
    LIERNE_TRY(lierne_alloc(&e->early, e->phases.count * e->nsubroutes, sizeof *e->early));
    lierne_early_sums_find(e);
    if (e->varying) {
        lierne_varying_deal(e);
    } else {
        LIERNE_TRY(lierne_fused_sums_create(e));
        LIERNE_TRY(lierne_short_call_create(e));
    }
    LIERNE_TRY(lierne_alloc(&e->flight.waiting, e->messages.count, sizeof *e->flight.waiting));
    if (e->context->stream_driver) {
        LIERNE_TRY(lierne_execution_create_stream_state(e));
        LIERNE_TRY(record(e));
    }
    return lierne_alloc(&e->contributions, most_contributions(e) + 1, sizeof *e->contributions);
}

static lierne_status prepare_execution(lierne_execution *e, const lierne_route *const *routes,
                                       const lierne_varying *const *varying, size_t n,
                                       lierne_spare *spare) {
    LIERNE_TRY(lierne_alloc(&e->subroutes, n, sizeof *e->subroutes));
    e->nsubroutes = n;
    for (size_t p = 0; p < n; p++) {
        e->subroutes[p] = (lierne_subroute){.route = routes[p],
                                            .varying = varying ? varying[p] : NULL,
                                            .size = lierne_dtype_size(routes[p]->dtype)};
    }
    LIERNE_TRY(add_phases(e));
    return reserve_execution(e, spare);
}

/* The caller's buffers of a failed call that a peer may still read or write: adds as many as fit to
 * list, and returns how many there are. */
static size_t withdraw_execution(lierne_activity *activity, lierne_borrowed *list,
                                 size_t capacity) {
    lierne_execution *e = (lierne_execution *)activity;
    size_t n = 0;
    if (lierne_execution_withdraw(e)) {
        return 0;
    }
    for (size_t p = 0; p < e->nsubroutes; p++) {
        const lierne_subroute *s = &e->subroutes[p];
        size_t out = e->output ? 0 : (size_t)s->route->elements[LIERNE_BUFFER_OUT];
        const lierne_borrowed buffers[2] = {{s->in,
                                             (size_t)s->route->elements[LIERNE_BUFFER_IN] * s->size,
                                             0},
                                            {s->base[LIERNE_BUFFER_OUT], out * s->size, 1}};
        for (int i = 0; i < 2; i++) {
            if (buffers[i].bytes > 0 && n++ < capacity) {
                list[n - 1] = buffers[i];
            }
        }
    }
    return n;
}

static void drop_execution(lierne_activity *activity) {
    lierne_execution *e = (lierne_execution *)activity;
    if (lierne_execution_drain(e) != LIERNE_OK) {
        e->context->borrows = true;
        return; /* a stream may still use all of it */
    }
    bool quiet = lierne_execution_withdraw(e);
    e->context->borrows |= !quiet;
    lierne_execution_destroy_batches(e);
    lierne_execution_destroy_stream_state(e);
    lierne_execution_destroy_recorded(e);
    lierne_mem_free(e->subroutes);
    lierne_mem_free(e->segments.at);
    lierne_mem_free(e->messages.at);
    lierne_mem_free(e->phases.at);
    lierne_mem_free(e->pipelines.at);
    lierne_context_free_shown(e->context, e->memory.at, e->memory.window,
                              quiet || e->memory.reserved == 0);
    if (e->host.at) {
        lierne_context_free_kept(e->context, e->host.at, true, quiet);
    }
    lierne_shared_output_destroy(e->output, quiet);
    lierne_mem_free(e->frames);
    lierne_mem_free(e->flight.waiting);
    lierne_mem_free(e->contributions);
    lierne_mem_free(e->early);
    lierne_fused_sums_destroy(e->fused);
    lierne_short_call_destroy(e);
    lierne_mem_free(e);
}

void lierne_execution_destroy(lierne_execution *e) {
    if (!e) {
        return;
    }
    lierne_execution_drain(e);
    lierne_context_enter(e->context);
    lierne_context_remove_activity(e->context, &e->activity);
    lierne_context_leave(e->context);
    if (e->running || e->abandoned) {
        /* The transport may still write to its memory. */
        e->activity.next = e->context->abandoned;
        e->context->abandoned = &e->activity;
        return;
    }
    drop_execution(&e->activity);
}

void lierne_execution_own_output(lierne_execution *e, lierne_shared_output *output) {
    e->output = output;
}

lierne_spare lierne_execution_take_spare(lierne_execution *e) {
    lierne_spare spare = {0};
    if (!e->running && !e->abandoned && lierne_execution_drain(e) == LIERNE_OK) {
        spare = (lierne_spare){.memory = e->memory.at,
                               .bytes = e->memory.capacity,
                               .window = e->memory.window,
                               .host_memory = e->host.at,
                               .host_bytes = e->host.capacity};
        e->memory.at = e->host.at = NULL;
    }
    return spare;
}

void lierne_spare_free(lierne_context *context, lierne_spare *spare) {
    if (spare->memory) {
        lierne_context_free_shown(context, spare->memory, spare->window, true);
    }
    if (spare->host_memory) {
        lierne_context_free_kept(context, spare->host_memory, true, true);
    }
    *spare = (lierne_spare){0};
}

lierne_status lierne_execution_create(lierne_execution **out, lierne_context *context,
                                      const lierne_domain *domain,
                                      const lierne_route *const *routes, size_t n, size_t each,
                                      const char *name, lierne_spare *spare,
                                      const lierne_varying *const *varying) {
    lierne_execution *e;
    *out = NULL;
    LIERNE_TRY(lierne_alloc(&e, 1, sizeof *e));
    e->activity.destroy = drop_execution;
    e->activity.withdraw = withdraw_execution;
    e->activity.turn = e->activity.carrier = -1;
    e->domain = e->activity.domain = domain;
    e->context = context;
    e->name = name;
    e->is_only = each == 1;
    e->varying = varying ? varying[0] : NULL;
    e->stamps = varying && lierne_execution_stamps(context);
    lierne_spare none = {0};
    lierne_status status = prepare_execution(e, routes, varying, n, spare ? spare : &none);
    if (status != LIERNE_OK) {
        lierne_execution_destroy(e);
        return status;
    }
    *out = e;
    return LIERNE_OK;
}

int64_t lierne_execution_scratch_bytes(const lierne_execution *e) {
    return e->memory.reserved;
}

int64_t lierne_execution_host_bytes(const lierne_execution *e) {
    int64_t bytes = 0;
    for (size_t i = 0; i < e->messages.count; i++) {
        bytes += e->messages.at[i].on_host ? e->messages.at[i].bytes : 0;
    }
    return bytes;
}

int64_t lierne_execution_window_bytes(const lierne_execution *e) {
    int64_t bytes = 0;
    for (int b = 0; b < e->context->ncarriers; b++) {
        const lierne_execution_batch *batch = &e->batches[b];
        for (size_t i = 0; batch->transport->windows && i < batch->messages.count; i++) {
            bytes += batch->postings[i].receives ? 0 : (int64_t)batch->postings[i].bytes;
        }
    }
    return bytes;
}

void lierne_execution_count_messages(const lierne_execution *e, int64_t *sent, int64_t *received) {
    *sent = *received = 0;
    for (size_t i = 0; i < e->phases.count; i++) {
        *sent += (int64_t)e->phases.at[i].nsends;
        *received += (int64_t)e->phases.at[i].nrecvs;
    }
}

lierne_status lierne_execution_resize(lierne_execution *e) {
    LIERNE_TRY(lierne_execution_drain(e));
    lierne_execution_forget_all_gathers(e);
    lierne_short_call_destroy(e); /* its blocks are those of before */
    lierne_early_sums_find(e);
    e->record.bytes = 0;
    for (size_t i = 0; i < e->messages.count; i++) {
        lierne_coalesced_message *m = &e->messages.at[i];
        m->bytes = 0;
        for (size_t k = 0; k < m->count; k++) {
            m->bytes += lierne_segment_bytes(&e->segments.at[m->first + k]);
        }
        e->batches[m->batch].postings[m->slot].bytes = (size_t)m->bytes;
        e->record.bytes += m->bytes;
    }
    return record(e);
}
