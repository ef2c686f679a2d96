/* What a delta sends in a call: changes of each message, piece by piece.
 *
 * A piece is gathered from the input into memory that the cache has, compared with the one that was
 * sent last, and takes its place. Where the caller keeps what it gave, the last piece is gathered
 * from there, and a hash of each message tells whether it is what was sent: a caller that gives
 * something else sends a message whole, and no receiver gets a mixture. */
#include "plan/redistribute/changes.h"
#include "plan/redistribute/delta_plans.h"
#include "runtime/memory/host.h"

#include <string.h>

/* Whether a message of so many bytes says that nothing changed: a byte for each piece, which is
 * longer where something did. */
static bool says_nothing(size_t bytes, size_t elements, size_t size) {
    return bytes == (elements * size + LIERNE_CHANGE_BYTES - 1) / LIERNE_CHANGE_BYTES;
}

/* A message at work. */
typedef struct message {
    lierne_delta *d;
    lierne_walk now, before; /* in the input, and in what the caller kept */
    char *kept;              /* the next piece that was sent last; NULL: the caller has it */
    uint64_t hash;           /* of what was gathered until now */
    uint64_t hash_before;
} message;

/* Where the last version of the next n elements is; NULL: nowhere. */
static const char *piece_before(message *m, int64_t n, size_t size) {
    char *before = m->d->piece + LIERNE_CHANGE_BYTES;
    if (m->kept || !m->d->previous) {
        return m->kept;
    }
    lierne_walk_gather(size, before, m->d->previous, &m->before, n);
    m->hash_before = lierne_hash(m->hash_before, before, (size_t)n * size);
    return before;
}

/* Encodes the next n elements; returns where the next ones go. */
static unsigned char *encode_piece(unsigned char *to, message *m, const void *in, int64_t n,
                                   bool changes) {
    lierne_delta *d = m->d;
    size_t size = d->element * d->per, bytes = (size_t)n * size;
    const char *before = piece_before(m, n, size);
    lierne_walk_gather(size, d->piece, in, &m->now, n);
    to += lierne_changes_encode(to, d->piece, changes ? before : NULL, (size_t)n * d->per,
                                d->element);
    if (m->kept) {
        memcpy(m->kept, d->piece, bytes);
        m->kept += bytes;
    } else {
        m->hash = lierne_hash(m->hash, d->piece, bytes);
    }
    return to;
}

/* The bytes of a message, of its changes or whole. *changes becomes false where what the caller
 * kept is not what was sent: the bytes then mean nothing. */
static size_t encode_elements(lierne_delta *d, size_t number, const void *in, bool *changes) {
    lierne_delta_half *h = &d->sends;
    size_t size = d->element * d->per;
    int64_t n = h->first[number + 1] - h->first[number];
    int64_t most = (int64_t)(LIERNE_CHANGE_BYTES / size);
    const lierne_block *blocks = lierne_delta_stage(d->of)->sends.at[number].blocks.at;
    message m = {.d = d, .now.blocks = blocks, .before.blocks = blocks};
    unsigned char *start = (unsigned char *)h->bytes + h->at[number], *to = start;
    m.kept = h->packed ? h->packed + (size_t)h->first[number] * size : NULL;
    for (int64_t i = 0; i < n; i += most) {
        to = encode_piece(to, &m, in, n - i < most ? n - i : most, *changes);
    }
    *changes = *changes && (m.kept || m.hash_before == d->hashes[number]);
    d->hashes[number] = m.hash;
    return (size_t)(to - start);
}

/* *piece: the first of the message's, on a device. */
static void encode(lierne_delta *d, size_t m, const void *in, size_t *piece) {
    lierne_delta_half *h = &d->sends;
    int64_t n = (h->first[m + 1] - h->first[m]) * (int64_t)d->per;
    bool last = lierne_delta_has_last(d, h->peers[m]), changes = last;
    size_t bytes = d->control.change ? lierne_delta_put_changes(d, m, piece)
                                     : encode_elements(d, m, in, &changes);
    if (last && !changes) {
        bytes = encode_elements(d, m, in, &changes);
    }
    if (changes && says_nothing(bytes, (size_t)n, d->element)) {
        bytes = 0;
    }
    int64_t *header = &h->headers[LIERNE_DELTA_HEADER * m];
    header[LIERNE_DELTA_VERSION] = d->version;
    header[LIERNE_DELTA_BASE] = changes ? d->kept : LIERNE_DELTA_UNKNOWN;
    header[LIERNE_DELTA_BYTES] = (int64_t)bytes;
    header[LIERNE_DELTA_ELEMENTS] = n;
    d->report.sent_bytes += (int64_t)bytes + LIERNE_DELTA_HEADER * (int64_t)sizeof *header;
    d->report.messages += bytes > 0;
    d->report.whole_messages += !changes;
}

void lierne_delta_encode(lierne_delta *d, const void *in) {
    size_t piece = 0;
    for (size_t m = 0; m < d->sends.n; m++) {
        encode(d, m, in, &piece);
    }
    if (d->control.change) {
        lierne_delta_keep_changes(d);
    }
    d->kept = d->version;
    d->previous = NULL;
}
