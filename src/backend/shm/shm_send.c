/* The sending end: which way a message takes. */
#include "backend/shm/shm_message.h"
#include "runtime/memory/host.h"

#include <string.h>

/* Whether runs of so many bytes lie far apart. */
static bool lies_apart(const lierne_part *parts, size_t nparts, size_t run, size_t bytes) {
    size_t spanned = 0;
    for (size_t i = 0; i < nparts; i++) {
        for (size_t b = 0; b < parts[i].nblocks; b++) {
            int64_t first = 0, end = 0;
            lierne_block_extend(&parts[i].blocks[b], &first, &end);
            spanned += (size_t)(end - first) * parts[i].size;
        }
    }
    return run < LIERNE_LONG_RUN && bytes <= LIERNE_FAR_BYTES &&
           spanned / LIERNE_FAR_APART >= bytes / run;
}

void lierne_shm_size_slot(const lierne_shm *shm, lierne_shm_message *m, const lierne_part *parts) {
    size_t bytes = 0, run = lierne_parts_stretch(parts, m->nparts);
    for (size_t i = 0; i < m->nparts; i++) {
        m->at[i] = bytes;
        bytes += (lierne_parts_bytes(&parts[i], 1) + LIERNE_CACHE_LINE - 1) / LIERNE_CACHE_LINE *
                 LIERNE_CACHE_LINE;
    }
    m->apart = run < m->bytes && lies_apart(parts, m->nparts, run, m->bytes);
    m->scattered = run < m->bytes && (run < LIERNE_LEAST_RUN || (m->apart && run < LIERNE_FAR_RUN));
    m->pulled = shm->pulls && run >= LIERNE_LEAST_PULL;
    m->nlines = m->varies ? 1 : LIERNE_LINES;
    m->slot_bytes = m->varies ? (shm->pulls ? LIERNE_SLOT_BYTES : 2 * LIERNE_PIECE_BYTES)
                    : m->scattered || m->apart || m->bytes <= LIERNE_SLOT_BYTES ? bytes
                    : m->pulled                                                 ? 0
                                : 2 * LIERNE_PIECE_BYTES;
}

/* Writes where the parts are in the segment; false if one of them is elsewhere. */
static bool find_in_window(const lierne_shm *shm, const lierne_shm_message *m,
                           const lierne_part *parts) {
    for (size_t i = 0; i < m->nparts; i++) {
        const lierne_span *s = &m->spans[i];
        const char *first = (const char *)parts[i].base + s->low;
        if (s->high > s->low && !lierne_segment_find(&shm->own, first, (size_t)(s->high - s->low),
                                                     &m->mine[m->turn].at.line->bases[i])) {
            return false;
        }
    }
    return true;
}

static lierne_way choose_way(const lierne_shm *shm, const lierne_shm_message *m,
                             const lierne_part *parts) {
    if (m->scattered || (m->apart && m->overwritten) || m->bytes <= LIERNE_SHORT_BYTES) {
        return LIERNE_PACKED;
    }
    if (find_in_window(shm, m, parts)) {
        return LIERNE_IN_WINDOW;
    }
    return m->apart || m->bytes <= LIERNE_SLOT_BYTES ? LIERNE_PACKED
           : m->pulled                               ? LIERNE_PRIVATE_MEMORY
                                                     : LIERNE_IN_PIECES;
}

static void pack(const lierne_shm_message *m, const lierne_part *parts) {
    char *slot = m->mine[m->turn].at.slot;
    for (size_t i = 0; i < m->nparts; i++) {
        const lierne_part *p = &parts[i];
        for (size_t b = 0; b < p->nblocks; b++) {
            lierne_host_copy(p->size, slot + m->at[i], &m->packed[i].blocks[b], p->base,
                             &p->blocks[b]);
        }
    }
}

static void pack_piece(lierne_shm_message *m) {
    const lierne_line_view *at = &m->mine[m->turn].at;
    char *to = at->slot + m->pieces % 2 * LIERNE_PIECE_BYTES, *from;
    size_t left = LIERNE_PIECE_BYTES, bytes;
    while (left > 0 && (bytes = lierne_cursor_next(&m->cursor, &from, left)) > 0) {
        memcpy(to, from, bytes);
        to += bytes;
        left -= bytes;
    }
    atomic_store_explicit(&at->line->filled, ++m->pieces, memory_order_release);
}

static void clear(lierne_line *line) {
    atomic_store_explicit(&line->ready, 0, memory_order_relaxed);
    atomic_store_explicit(&line->filled, 0, memory_order_relaxed);
    atomic_store_explicit(&line->taken, 0, memory_order_release);
}

/* Frees the line of a message that was complete before it was taken. */
static bool is_free(lierne_line *line) {
    if (atomic_load_explicit(&line->ready, memory_order_relaxed) == 0) {
        return true;
    }
    if (atomic_load_explicit(&line->taken, memory_order_acquire) == 0) {
        return false;
    }
    clear(line);
    return true;
}

bool lierne_shm_send(lierne_shm *shm, lierne_shm_message *m) {
    if (m->bytes > LIERNE_SHORT_BYTES && m->nlines > 1) {
        m->turn = !is_free(m->mine[0].at.line);
    }
    lierne_line *line = m->mine[m->turn].at.line;
    m->started = is_free(line);
    if (!m->started) {
        return false;
    }
    m->pieces = 0;
    m->sent_by = choose_way(shm, m, m->own);
    shm->sent[m->sent_by]++;
    line->way = m->sent_by;
    line->bytes = m->bytes;
    if (m->sent_by == LIERNE_PACKED) {
        pack(m, m->own);
    } else if (m->sent_by == LIERNE_PRIVATE_MEMORY) {
        for (size_t i = 0; i < m->nparts; i++) {
            line->bases[i] = (uint64_t)(uintptr_t)m->own[i].base;
        }
    } else if (m->sent_by == LIERNE_IN_PIECES) {
        m->cursor = lierne_cursor_at(m->own, m->nparts);
        pack_piece(m);
    }
    atomic_store_explicit(&line->ready, m->key, memory_order_release);
    return true;
}

bool lierne_shm_may_send(const lierne_shm_message *m) {
    return m->answered || is_free(m->mine[(m->turn + 1) % m->nlines].at.line);
}

void lierne_shm_send_short(lierne_shm *shm, lierne_shm_message *m) {
    const lierne_line_view *at = &m->mine[m->turn].at;
    const lierne_part *part = m->own;
    m->started = true;
    m->sent_by = LIERNE_PACKED;
    shm->sent[LIERNE_PACKED]++;
    atomic_store_explicit(&at->line->taken, 0, memory_order_relaxed);
    at->line->way = LIERNE_PACKED;
    at->line->bytes = m->bytes;
    memcpy(at->slot, (const char *)part->base + (size_t)part->blocks->offset * part->size,
           m->bytes);
    atomic_store_explicit(&at->line->ready, m->key, memory_order_release);
}

bool lierne_shm_sent(lierne_shm_message *m, bool *moved) {
    lierne_line *line = m->mine[m->turn].at.line;
    if (m->sent_by == LIERNE_PACKED && m->nlines > 1) {
        return true;
    }
    unsigned taken = atomic_load_explicit(&line->taken, memory_order_acquire);
    unsigned all = m->sent_by == LIERNE_IN_PIECES ? lierne_pieces_of(m->bytes) : 1;
    if (taken == all) {
        clear(line);
        return true;
    }
    bool packed = false;
    while (m->sent_by == LIERNE_IN_PIECES && m->pieces < all && m->pieces - taken < 2) {
        pack_piece(m);
        packed = true;
    }
    if (packed) {
        lierne_bell_fence();
        lierne_bell_wake(m->peer->segment.head);
        *moved = true;
    }
    return false;
}

bool lierne_shm_pending(const lierne_line *line) {
    return atomic_load_explicit(&line->ready, memory_order_relaxed) != 0 &&
           atomic_load_explicit(&line->taken, memory_order_acquire) == 0;
}
