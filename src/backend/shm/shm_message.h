/* The messages of a batch, and the lines by which their two ends meet. */
#ifndef LIERNE_SHM_MESSAGE_H
#define LIERNE_SHM_MESSAGE_H

#include "backend/shm/shm_cursor.h"
#include "backend/shm/shm_transport.h"

#define LIERNE_SLOT_BYTES (8 << 10) /* a message up to this is packed */
/* A message up to this is packed also from a window: its send is then complete at once, and not
 * when the receiver has read it. */
#define LIERNE_SHORT_BYTES (1 << 10)
#define LIERNE_LEAST_RUN   64 /* bytes: shorter runs are packed in any message */
/* Shorter runs that begin so far from each other, on average, are packed in messages up to so many
 * bytes: hardware, which prefetches within a page, hardly fetches them from another core. Where the
 * sender overwrites them in this call, and would wait for its receiver, longer ones are, too. */
#define LIERNE_FAR_RUN   (1 << 10)
#define LIERNE_LONG_RUN  (2 << 10)
#define LIERNE_FAR_APART (2 << 10)
#define LIERNE_FAR_BYTES (128 << 10)
/* Bytes: the system looks up the page of every run that is pulled, so shorter ones go in pieces. */
#define LIERNE_LEAST_PULL  (1 << 10)
#define LIERNE_PIECE_BYTES (64 << 10) /* the slot has two */

/* A cache line or more in the sender's segment. The sender writes it while it is not ready, the
 * receiver only `taken`. Its values in the order in which they change: ready, filled, taken; then
 * the sender clears them, ready first. */
typedef struct lierne_line {
    atomic_uint ready;  /* the call's match id plus 1; 0: no message */
    atomic_uint filled; /* pieces that the sender has packed */
    atomic_uint taken;  /* pieces that the receiver has read; 1 where there are no pieces */
    uint32_t way;
    uint64_t bytes;
    struct lierne_line *next; /* of the batch, for the sender alone */
    uint64_t bases[]; /* of each part: an address of the sender's; in a window, the offset of the
                         first byte of the blocks in its segment */
} lierne_line;

/* A line that may hold a message, and its slot. */
typedef struct lierne_line_view {
    lierne_line *line;
    char *slot;
} lierne_line_view;

/* A line of this rank's, and where it and its slot are in the segment. */
typedef struct lierne_own_line {
    lierne_line_view at;
    uint64_t line_offset, slot_offset;
    size_t slot_bytes;
} lierne_own_line;

/* A message has two lines. A send that is packed is complete at once: the next call may pack into
 * the other slot, and only the one after it may have to wait for the receiver. Other sends are
 * complete when they are taken, so both lines have one slot. Lines of short messages take turns; a
 * longer one is in the first line if that is free, whose slot may still be in the cache. */
#define LIERNE_LINES 2

/* The bytes that the blocks of a part span, from its base on. */
typedef struct lierne_span {
    int64_t low;
    int64_t high;
} lierne_span;

typedef struct lierne_shm_message {
    lierne_shm_peer *peer;
    bool receives;
    unsigned key; /* of the call */
    size_t bytes;
    size_t nparts;
    const lierne_part *own; /* of the call: this rank's parts */
    lierne_span *spans;     /* of the sender's parts */
    size_t *at;             /* of each part in a slot */
    lierne_part *packed;    /* own parts as they lie in a slot; NULL: a send that is never packed */
    lierne_cursor cursor;   /* over own parts, where there are pieces */
    unsigned pieces;        /* done */
    unsigned nlines;
    unsigned turn; /* of them: the same at both ends, where there is one execution */
    /* Of a send. */
    lierne_own_line mine[LIERNE_LINES];
    bool answered; /* the batch has a receive from this peer, whose calls are those of this batch */
    size_t slot_bytes; /* that are needed */
    bool scattered;    /* has runs that are packed in any case */
    bool apart;        /* has runs that are packed if they are overwritten */
    bool overwritten;  /* in this call */
    bool pulled;       /* from ordinary memory; else it goes in pieces */
    bool started;      /* the line was free */
    lierne_way sent_by;
    /* Of a receive. */
    lierne_line_view *views; /* of the lines of each of the peer's executions */
    size_t nviews;
    const lierne_line_view *found;
    lierne_way way; /* of what was found: the line is the sender's again once it was taken */
    const lierne_part *theirs;
    lierne_part *shown;
    /* Of one that varies: the sender's part as the receiver knows it. */
    bool varies;
    lierne_part frame;
    lierne_block frame_block;
} lierne_shm_message;

/* Memory of the segment for the lines and slots of a batch. */
typedef struct lierne_shm_areas {
    lierne_shm_area *first;
    lierne_line *lines; /* in them */
    char *free;         /* what is left of the first */
    uint64_t free_offset;
    size_t left;
} lierne_shm_areas;

/* shm_areas.c. Takes bytes at the start of a cache line; *offset: where they are in the segment.
 * Errors: NO_MEMORY. */
lierne_status lierne_shm_take_area(lierne_shm *shm, lierne_shm_areas *areas, size_t bytes,
                                   char **out, uint64_t *offset);
/* Gives back what a destroyed batch took, once receivers have taken all of its messages. */
void lierne_shm_drop_areas(lierne_shm *shm, const lierne_shm_areas *areas);
/* Frees what was given back and no receiver reads any more. At the end the segment takes the rest
 * with it. */
void lierne_shm_sweep_areas(lierne_shm *shm);

/* shm_send.c. Whether the message is to be packed whatever memory it is in, its lines, and the
 * bytes of a slot. */
void lierne_shm_size_slot(const lierne_shm *shm, lierne_shm_message *m, const lierne_part *parts);
/* Says in the line where the data of a message is; packs it if need be. Returns false if the
 * receiver has not yet taken what is in the line: to be tried again. */
bool lierne_shm_send(lierne_shm *shm, lierne_shm_message *m);
/* Whether the line of the next send is free.
 *
 * Where the peer answers, it is, and nothing is read: the last call ended with a message that the
 * peer sent after it had ended the call before that one, in which it took what was in this line.
 * A look would wait for the other core, which wrote `taken` last. */
bool lierne_shm_may_send(const lierne_shm_message *m);
/* lierne_shm_send of a message that is always packed, from one contiguous block, into a free line.
 */
void lierne_shm_send_short(lierne_shm *shm, lierne_shm_message *m);
/* Whether the data may change; packs the next piece if there is one. *moved becomes true if
 * something was packed. */
bool lierne_shm_sent(lierne_shm_message *m, bool *moved);
/* Whether a line has something that its receiver has not taken. */
bool lierne_shm_pending(const lierne_line *line);

/* shm_receive.c. Takes a message if it is there; *done: all of it. */
lierne_status lierne_shm_receive(const lierne_shm *shm, lierne_shm_message *m, bool *done,
                                 bool *moved);
/* Takes a message if it is there and packed. Whatever else it is, lierne_shm_receive tells. */
bool lierne_shm_receive_short(lierne_shm_message *m);
/* The parts to read; NULL: everything is in place already. */
const lierne_part *lierne_shm_shown(const lierne_shm_message *m);
/* Tells the sender that the message has been read. mark alone wakes nobody. */
void lierne_shm_release(lierne_shm_message *m);
void lierne_shm_mark_taken(const lierne_shm_message *m);

static inline unsigned lierne_pieces_of(size_t bytes) {
    return (unsigned)((bytes + LIERNE_PIECE_BYTES - 1) / LIERNE_PIECE_BYTES);
}

#endif
