/* What bounds dense halos: the copies and sums alone. Of as many bytes in a rank's own memory,
 * where nobody waits; and of the peers' memory, by hand in loops of C: a rank says that its buffer
 * is ready, reads the boxes where their owner has them, and waits until the others have read its
 * own. As in lierne, an adjoint clears the margins then. */
#include "bench/dense.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* --- in memory of its own --- */

typedef struct bound {
    method base;
    bool part; /* moves the part as well */
    char *other;
} bound;

static void copy_row(void *with, size_t at, size_t packed, size_t bytes) {
    const dense_sides *a = with;
    (void)packed;
    memcpy(a->to + at, a->from + at, bytes);
}

static void add_in_place(void *with, size_t at, size_t packed, size_t bytes) {
    const dense_sides *a = with;
    (void)packed;
    dense_add(a->w, a->to + at, a->from + at, bytes);
}

static void pad_row(void *with, size_t at, size_t packed, size_t bytes) {
    const dense_sides *a = with;
    memcpy(a->to + at, a->from + packed, bytes);
}

static void move_part(const dense *w, char *part, char *padded, int direction) {
    const int64_t *shape = w->shapes[test_rank], *small = w->parts[test_rank];
    bool forward = direction == FORWARD;
    dense_sides a = {w, forward ? padded : part, forward ? part : padded};
    for (size_t i = 0; i < w->ncores; i++) {
        const dense_box *b = &w->cores[i];
        dense_row_pairs(w, forward ? shape : small, forward ? b->here : b->part,
                        forward ? small : shape, forward ? b->part : b->here, b->size, pad_row, &a);
    }
}

static bool run_bound(method *m, int direction) {
    const bound *b = (bound *)m;
    const dense *w = m->workload;
    dense_sides a = {w, b->part ? w->padded : w->place, b->other};
    if (b->part) {
        move_part(w, w->part, w->padded, direction);
    }
    for (size_t i = 0; i < w->nboxes; i++) {
        const dense_box *box = &w->boxes[i];
        if (direction == FORWARD && box->to == test_rank) {
            dense_rows(w, w->shapes[test_rank], box->here, box->size, copy_row, &a);
        } else if (direction == ADJOINT && box->from == test_rank) {
            dense_rows(w, w->shapes[test_rank], box->there, box->size, add_in_place, &a);
        }
    }
    if (direction == ADJOINT && !b->part) {
        dense_clear_margins(w, w->place);
    }
    return true;
}

static void close_bound(method *m) {
    free(((bound *)m)->other);
    free(m);
}

static method *open_bound_of(const dense *w, bool part) {
    bound *b = (bound *)(void *)take(sizeof *b);
    b->part = part;
    b->other = take(w->bytes[1]);
    memset(b->other, 0, w->bytes[1]);
    b->base = (method){.workload = w,
                       .run = run_bound,
                       .before = dense_rewrite,
                       .owns_inputs = true,
                       .result = {part ? w->padded : w->place, part ? w->part : w->place}};
    return &b->base;
}

static method *open_bound(const void *w) {
    return open_bound_of(w, false);
}

static method *open_copy_bound(const void *w) {
    return open_bound_of(w, true);
}

const method_kind dense_bound = {"bound: margins", open_bound, close_bound};
const method_kind dense_copy_bound = {"bound: part and margins", open_copy_bound, close_bound};

/* --- from the peers' memory --- */

enum { LOOKS = 200, LINE = 64 }; /* before the processor is given to another rank */

typedef enum storage { PLACE, ALONE, PADDED } storage;

/* What ranks share: each one's buffer, behind it what shows margins where that is another one, and
 * two lines with the number of calls in which it was ready and had read. */
typedef struct by_hand {
    method base;
    storage storage;
    MPI_Win window;
    size_t bytes[64];
    char *memory[64];
    bool peers[64]; /* ranks with a box of this one, or the other way round */
    int judged;     /* calls */
    unsigned calls;
} by_hand;

static atomic_uint *count_of(const by_hand *h, int rank, bool read) {
    return (atomic_uint *)(void *)(h->memory[rank] + h->bytes[rank] - (read ? 2 : 1) * LINE);
}

static void await_count(const by_hand *h, int rank, bool read) {
    atomic_uint *count = count_of(h, rank, read);
    for (int i = 0; (int)(atomic_load_explicit(count, memory_order_acquire) - h->calls) < 0; i++) {
        if (i >= LOOKS) {
            sched_yield();
        }
    }
}

static void await_peers(const by_hand *h) {
    for (int r = 0; r < test_world; r++) {
        if (h->peers[r]) {
            await_count(h, r, true);
        }
    }
}

/* A box in a buffer. */
typedef struct side {
    char *base;
    const int64_t *shape, *start;
} side;

static const int64_t origin[AXES];

static size_t part_bytes(const dense *w, int rank) {
    size_t bytes = w->element;
    for (int k = 0; k < w->naxes; k++) {
        bytes *= (size_t)w->parts[rank][k];
    }
    return bytes;
}

static side owned_side(const by_hand *h, const dense_box *b) {
    const dense *w = h->base.workload;
    return h->storage == PLACE ? (side){h->memory[b->from], w->shapes[b->from], b->there}
                               : (side){h->memory[b->from], w->parts[b->from], b->part};
}

static side shown_side(const by_hand *h, const dense_box *b) {
    const dense *w = h->base.workload;
    char *shown = h->memory[b->to] + (h->storage == PLACE ? 0 : part_bytes(w, b->to));
    return h->storage == ALONE ? (side){shown + (size_t)b->packed * w->element, b->size, origin}
                               : (side){shown, w->shapes[b->to], b->here};
}

static void move_box(const by_hand *h, const dense_box *b, int direction) {
    side to = direction == FORWARD ? shown_side(h, b) : owned_side(h, b);
    side from = direction == FORWARD ? owned_side(h, b) : shown_side(h, b);
    dense_sides a = {h->base.workload, to.base, from.base};
    dense_row_pairs(a.w, to.shape, to.start, from.shape, from.start, b->size,
                    direction == FORWARD ? pad_row : dense_add_row, &a);
}

static bool run_by_hand(method *m, int direction) {
    by_hand *h = (by_hand *)m;
    const dense *w = m->workload;
    char *mine = h->memory[test_rank];
    h->calls++;
    atomic_store_explicit(count_of(h, test_rank, false), h->calls, memory_order_release);
    if (h->storage == PADDED) {
        move_part(w, mine, mine + w->bytes[0], direction);
    }
    for (size_t i = 0; i < w->nboxes; i++) {
        const dense_box *b = &w->boxes[i];
        if ((direction == FORWARD ? b->to : b->from) == test_rank) {
            await_count(h, direction == FORWARD ? b->from : b->to, false);
            move_box(h, b, direction);
        }
    }
    atomic_store_explicit(count_of(h, test_rank, true), h->calls, memory_order_release);
    await_peers(h);
    if (direction == ADJOINT && h->storage == PLACE) {
        dense_clear_margins(w, mine);
    }
    return true;
}

/* The two calls that are judged have their input in the workload's buffers, and leave their output
 * there. Margins alone are in an order of their own, and are not judged. */
static void begin_by_hand(method *m, int direction) {
    by_hand *h = (by_hand *)m;
    const dense *w = m->workload;
    char *mine = h->memory[test_rank];
    bool judged = h->storage != ALONE && h->judged++ < 2, forward = direction == FORWARD;
    if (judged && h->storage == PLACE) {
        memcpy(mine, w->place, w->bytes[2]);
    } else if (judged) {
        memcpy(mine + (forward ? 0 : w->bytes[0]), forward ? w->part : w->padded,
               w->bytes[forward ? 0 : 1]);
    } else if (m->dirty && h->storage == PADDED) {
        rewrite(mine + (forward ? 0 : w->bytes[0]), w->bytes[forward ? 0 : 1]);
    } else if (m->dirty && h->storage == ALONE) {
        rewrite(mine, w->bytes[0] + (forward ? 0 : w->bytes[3]));
    } else if (m->dirty) {
        rewrite(mine, w->bytes[2]);
    }
}

static void end_by_hand(method *m, int direction) {
    const by_hand *h = (const by_hand *)m;
    const dense *w = m->workload;
    char *mine = h->memory[test_rank];
    if (h->storage == PLACE) {
        memcpy(w->place, mine, w->bytes[2]);
    } else if (h->storage == PADDED && direction == FORWARD) {
        memcpy(w->padded, mine + w->bytes[0], w->bytes[1]);
    } else if (h->storage == PADDED) {
        memcpy(w->part, mine, w->bytes[0]);
    }
}

static void close_by_hand(method *m) {
    MPI_Win_free(&((by_hand *)m)->window);
    free(m);
}

static method *open_by_hand_of(const dense *w, storage kind) {
    by_hand *h = (by_hand *)(void *)take(sizeof *h);
    size_t bytes = kind == PLACE ? w->bytes[2] : w->bytes[0] + w->bytes[kind == ALONE ? 3 : 1];
    char *mine;
    bytes = (bytes + LINE - 1) / LINE * LINE + 2 * LINE;
    MPI_Win_allocate_shared((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &h->window);
    memset(mine, 0, bytes);
    for (int r = 0; r < test_world; r++) {
        MPI_Aint size;
        int unit;
        MPI_Win_shared_query(h->window, r, &size, &unit, (void *)&h->memory[r]);
        h->bytes[r] = (size_t)size;
    }
    for (size_t i = 0; i < w->nboxes; i++) {
        const dense_box *b = &w->boxes[i];
        h->peers[b->from] |= b->to == test_rank;
        h->peers[b->to] |= b->from == test_rank;
    }
    h->storage = kind;
    h->base = (method){.workload = w,
                       .run = run_by_hand,
                       .before = begin_by_hand,
                       .after = end_by_hand,
                       .owns_inputs = true,
                       .checked = kind != ALONE,
                       .result = {kind == PADDED ? w->padded : w->place,
                                  kind == PADDED ? w->part : w->place}};
    MPI_Barrier(MPI_COMM_WORLD);
    return &h->base;
}

static method *open_by_hand(const void *w) {
    return open_by_hand_of(w, PLACE);
}

static method *open_by_hand_alone(const void *w) {
    return open_by_hand_of(w, ALONE);
}

static method *open_by_hand_padded(const void *w) {
    return open_by_hand_of(w, PADDED);
}

const method_kind dense_by_hand = {"by hand, in place", open_by_hand, close_by_hand};
const method_kind dense_by_hand_alone = {"by hand, margins", open_by_hand_alone, close_by_hand};
const method_kind dense_by_hand_padded = {"by hand, padded", open_by_hand_padded, close_by_hand};
