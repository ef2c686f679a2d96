/* A delta of memory whose kind finds and makes changes (runtime/memory/change.h), as kernels of a
 * device do. Both versions of what is sent, and what came last, stay in that memory. What the host
 * sees is slots: the values that changed, and where they are. It turns them into the bytes of
 * changes.h and back, because it is the host that sends these, and checks what came before a device
 * writes by it. */
#include "plan/redistribute/changes.h"
#include "plan/redistribute/delta_plans.h"

/* Memory that the host and the plan's memory kind read and write. */
static lierne_status alloc_host(void **out, const lierne_delta *d, size_t bytes) {
    return d->context->memory->alloc_host
               ? lierne_context_alloc_kept(out, d->context, bytes + 1, true)
               : lierne_alloc(out, bytes + 1, 1);
}

static void free_host(const lierne_delta *d, void *memory) {
    if (memory && d->context->memory->alloc_host) {
        lierne_context_free_kept(d->context, memory, true, d->context->dead == LIERNE_OK);
    } else {
        lierne_mem_free(memory);
    }
}

bool lierne_delta_has_last(const lierne_delta *d, int peer) {
    int64_t said = d->said[LIERNE_DELTA_WORDS * lierne_members_index(&d->context->members, peer) +
                           LIERNE_DELTA_SAID];
    bool keeps = d->sends.packed || d->previous || d->control.change;
    return said >= 0 && said == d->kept && keeps;
}

static size_t count_pieces(const lierne_delta *d, const lierne_delta_half *h, size_t m) {
    size_t n = (size_t)(h->first[m + 1] - h->first[m]) * d->per;
    size_t most = LIERNE_CHANGE_BYTES / d->element;
    return (n + most - 1) / most;
}

/* Cuts the messages of a half into pieces, or only counts these and their slots. */
static void cut(lierne_delta_pieces *p, const lierne_delta *d, const lierne_delta_half *h) {
    lierne_change_piece *to = p->pieces;
    int64_t most = LIERNE_CHANGE_BYTES / (int64_t)d->element;
    p->n = 0;
    p->slot_bytes = 0;
    for (size_t m = 0; m < h->n; m++) {
        int64_t end = h->first[m + 1] * (int64_t)d->per;
        for (int64_t i = h->first[m] * (int64_t)d->per; i < end; i += most) {
            int32_t n = (int32_t)(end - i < most ? end - i : most);
            if (to) {
                *to++ = (lierne_change_piece){.first = i * (int64_t)d->element,
                                              .slot = (int64_t)p->slot_bytes,
                                              .n = n};
            }
            p->slot_bytes += (size_t)lierne_change_slot(n, (int32_t)d->element);
            p->n++;
        }
    }
}

static lierne_status open_pieces(lierne_delta_pieces *p, lierne_delta *d,
                                 const lierne_delta_half *h, bool sends) {
    size_t bytes = (size_t)h->first[h->n] * d->element * d->per;
    cut(p, d, h);
    size_t table = (size_t)p->n * sizeof(lierne_change_piece);
    LIERNE_TRY(alloc_host(&p->pieces, d, table));
    LIERNE_TRY(alloc_host(&p->slots, d, p->slot_bytes));
    LIERNE_TRY(lierne_context_alloc_kept(&p->now, d->context, bytes + 1, false));
    if (sends) {
        LIERNE_TRY(lierne_context_alloc_kept(&p->last, d->context, bytes + 1, false));
    }
    cut(p, d, h);
    d->report.memory_bytes += (int64_t)(table + p->slot_bytes + (sends ? bytes : 0));
    return LIERNE_OK;
}

lierne_status lierne_delta_open_device(lierne_delta *d) {
    LIERNE_TRY(open_pieces(&d->control.sent, d, &d->sends, true));
    return open_pieces(&d->control.received, d, &d->recvs, false);
}

/* After an error a device may still be at work on them. */
static void close_pieces(lierne_delta_pieces *p, const lierne_delta *d) {
    bool quiet = d->context->dead == LIERNE_OK || !d->context->memory->free_waits;
    void *const kept[] = {p->now, p->last};
    free_host(d, p->pieces);
    free_host(d, p->slots);
    for (int i = 0; i < 2; i++) {
        if (kept[i]) {
            lierne_context_free_kept(d->context, kept[i], false, quiet);
        }
    }
}

void lierne_delta_close_device(lierne_delta *d) {
    close_pieces(&d->control.sent, d);
    close_pieces(&d->control.received, d);
}

static lierne_status enqueue(const lierne_delta *d, const lierne_delta_pieces *p, bool make) {
    const lierne_change_call call = {.pieces = p->pieces,
                                     .slots = p->slots,
                                     .now = p->now,
                                     .last = p->last,
                                     .npieces = p->n,
                                     .size = (int32_t)d->element};
    return p->n > 0 ? d->control.change(&call, make, d->control.stream) : LIERNE_OK;
}

lierne_status lierne_delta_find_changes(lierne_delta *d) {
    lierne_change_piece *piece = d->control.sent.pieces;
    for (size_t m = 0; m < d->sends.n; m++) {
        bool last = lierne_delta_has_last(d, d->sends.peers[m]);
        for (size_t i = 0; i < count_pieces(d, &d->sends, m); i++) {
            (piece++)->form = last ? LIERNE_CHANGE_GAPS : LIERNE_CHANGE_DENSE;
        }
    }
    return enqueue(d, &d->control.sent, false);
}

size_t lierne_delta_put_changes(lierne_delta *d, size_t m, size_t *piece) {
    unsigned char *start = (unsigned char *)d->sends.bytes + d->sends.at[m], *to = start;
    const lierne_change_piece *pieces = d->control.sent.pieces;
    for (size_t n = count_pieces(d, &d->sends, m); n > 0; n--) {
        to = lierne_changes_put(to, &pieces[(*piece)++], d->control.sent.slots, d->element);
    }
    return (size_t)(to - start);
}

void lierne_delta_keep_changes(lierne_delta *d) {
    void *now = d->control.sent.now;
    d->control.sent.now = d->control.sent.last;
    d->control.sent.last = now;
}

/* Of a message without bytes nothing changed. */
static lierne_status get_message(lierne_delta *d, size_t m, lierne_change_piece *pieces, size_t n) {
    const int64_t *header = &d->recvs.headers[LIERNE_DELTA_HEADER * m];
    if (header[LIERNE_DELTA_BYTES] > 0) {
        return lierne_changes_get(pieces, n, d->control.received.slots, d->element,
                                  (unsigned char *)d->recvs.bytes + d->recvs.at[m],
                                  (size_t)header[LIERNE_DELTA_BYTES]);
    }
    for (size_t i = 0; i < n; i++) {
        pieces[i].form = LIERNE_CHANGE_GAPS;
        pieces[i].count = 0;
    }
    return LIERNE_OK;
}

lierne_status lierne_delta_make_changes(lierne_delta *d) {
    lierne_change_piece *piece = d->control.received.pieces;
    for (size_t m = 0; m < d->recvs.n; m++) {
        size_t n = count_pieces(d, &d->recvs, m);
        LIERNE_TRY(get_message(d, m, piece, n));
        piece += n;
    }
    return enqueue(d, &d->control.received, true);
}
