/* The receiving end. */
#include "backend/shm/pull.h"
#include "backend/shm/shm_message.h"

#include <errno.h>
#include <string.h>

/* `taken` is read first: the sender clears it last, so a line of an earlier call that had this key
 * is not taken twice. */
static bool find_sender(lierne_shm_message *m) {
    for (size_t k = 0; k < m->nviews; k++) {
        lierne_line *line = m->views[k].line;
        if (atomic_load_explicit(&line->taken, memory_order_acquire) == 0 &&
            atomic_load_explicit(&line->ready, memory_order_acquire) == m->key) {
            m->found = &m->views[k];
            return true;
        }
    }
    return false;
}

static lierne_status show_window(lierne_shm_message *m) {
    for (size_t i = 0; i < m->nparts; i++) {
        const lierne_span *s = &m->spans[i];
        const char *first = NULL;
        if (s->high > s->low) {
            first = lierne_segment_address(&m->peer->segment, m->found->line->bases[i],
                                           (size_t)(s->high - s->low));
            if (!first) {
                return LIERNE_ERR_TRANSPORT;
            }
            first -= s->low;
        }
        m->shown[i] = m->theirs[i];
        m->shown[i].base = first;
    }
    return LIERNE_OK;
}

static void show_packed(const lierne_shm_message *m) {
    for (size_t i = 0; i < m->nparts; i++) {
        m->shown[i] = m->packed[i];
        m->shown[i].base = m->found->slot + m->at[i];
    }
}

/* A process that ended, or freed the memory after it gave up, is found by the execution, which asks
 * the control: the message counts as not yet there. */
static lierne_status cannot_pull(const lierne_shm *shm, lierne_shm_message *m, int code) {
    const lierne_control *control = shm->control;
    const lierne_control_failures *failures = control ? control->failures : NULL;
    bool gave_up = failures && failures->any_gave_up(shm->control_self) &&
                   failures->gave_up(shm->control_self, m->peer->index) != LIERNE_OK;
    if (code == ESRCH || gave_up) {
        m->found = NULL;
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "reading %zu bytes of the memory of rank %d: %s",
                       m->bytes, lierne_members_rank(&shm->members, m->peer->index),
                       strerror(code));
}

static lierne_status pull(const lierne_shm *shm, lierne_shm_message *m) {
    for (size_t i = 0; i < m->nparts; i++) {
        m->shown[i] = m->theirs[i];
        m->shown[i].base = (const void *)(uintptr_t)m->found->line->bases[i];
    }
    int code =
        lierne_pull((pid_t)m->peer->segment.name.process, m->own, m->nparts, m->shown, m->nparts);
    if (code != 0) {
        return cannot_pull(shm, m, code);
    }
    lierne_shm_release(m);
    return LIERNE_OK;
}

/* Unpacks the pieces that are there; whether they were the last ones. */
static bool take_pieces(lierne_shm_message *m, bool *moved) {
    lierne_line *line = m->found->line;
    unsigned filled = atomic_load_explicit(&line->filled, memory_order_acquire);
    while (m->pieces < filled) {
        const char *from = m->found->slot + m->pieces % 2 * LIERNE_PIECE_BYTES;
        char *to;
        size_t left = LIERNE_PIECE_BYTES, bytes;
        while (left > 0 && (bytes = lierne_cursor_next(&m->cursor, &to, left)) > 0) {
            memcpy(to, from, bytes);
            from += bytes;
            left -= bytes;
        }
        atomic_store_explicit(&line->taken, ++m->pieces, memory_order_release);
        lierne_bell_fence();
        lierne_bell_wake(m->peer->segment.head);
        *moved = true;
    }
    return m->pieces == lierne_pieces_of(m->bytes);
}

static lierne_status begin_receive(const lierne_shm *shm, lierne_shm_message *m) {
    const lierne_line *line = m->found->line;
    m->way = (lierne_way)line->way;
    if (line->bytes != m->bytes) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "%zu bytes are expected of rank %d, which sends %llu", m->bytes,
                           lierne_members_rank(&shm->members, m->peer->index),
                           (unsigned long long)line->bytes);
    }
    switch (m->way) {
    case LIERNE_IN_WINDOW:
        return show_window(m);
    case LIERNE_PACKED:
        show_packed(m);
        return LIERNE_OK;
    case LIERNE_PRIVATE_MEMORY:
        return pull(shm, m);
    default:
        m->pieces = 0;
        m->cursor = lierne_cursor_at(m->own, m->nparts);
        return LIERNE_OK;
    }
}

lierne_status lierne_shm_receive(const lierne_shm *shm, lierne_shm_message *m, bool *done,
                                 bool *moved) {
    *done = false;
    if (!m->found) {
        if (!find_sender(m)) {
            return LIERNE_OK;
        }
        LIERNE_TRY(begin_receive(shm, m));
        if (!m->found) {
            return LIERNE_OK;
        }
        *moved = true;
    }
    *done = m->way != LIERNE_IN_PIECES || take_pieces(m, moved);
    return LIERNE_OK;
}

/* Where the peer has one execution, its message is in the line whose turn it is. */
static bool find_short(lierne_shm_message *m) {
    if (m->nviews != m->nlines) {
        return find_sender(m);
    }
    const lierne_line_view *view = &m->views[m->turn];
    bool ready = atomic_load_explicit(&view->line->ready, memory_order_acquire) == m->key &&
                 atomic_load_explicit(&view->line->taken, memory_order_relaxed) == 0;
    m->found = ready ? view : NULL;
    return ready;
}

bool lierne_shm_receive_short(lierne_shm_message *m) {
    if (!find_short(m)) {
        return false;
    }
    if (m->found->line->way != LIERNE_PACKED || m->found->line->bytes != m->bytes) {
        m->found = NULL;
        return false;
    }
    m->way = LIERNE_PACKED;
    show_packed(m);
    return true;
}

const lierne_part *lierne_shm_shown(const lierne_shm_message *m) {
    return m->way == LIERNE_IN_WINDOW || m->way == LIERNE_PACKED ? m->shown : NULL;
}

void lierne_shm_mark_taken(const lierne_shm_message *m) {
    atomic_store_explicit(&m->found->line->taken, 1, memory_order_release);
}

void lierne_shm_release(lierne_shm_message *m) {
    lierne_shm_mark_taken(m);
    lierne_bell_fence();
    lierne_bell_wake(m->peer->segment.head);
}
