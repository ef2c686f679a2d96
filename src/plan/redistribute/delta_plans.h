/* A delta from inside: delta_plans.c makes what it executes, delta.c executes it. */
#ifndef LIERNE_DELTA_PLANS_H
#define LIERNE_DELTA_PLANS_H

#include "lierne/delta.h"
#include "plan/object.h"
#include "runtime/context/context.h"
#include "runtime/control/control.h"

/* A header: the version that the message makes, the one that it begins with (-1: none), its bytes,
 * and the elements that it describes. */
enum {
    LIERNE_DELTA_VERSION,
    LIERNE_DELTA_BASE,
    LIERNE_DELTA_BYTES,
    LIERNE_DELTA_ELEMENTS,
    LIERNE_DELTA_HEADER
};
/* What a rank says of what it keeps: a version, or this; and which error keeps it away, or OK. */
enum { LIERNE_DELTA_UNKNOWN = -1 };
enum { LIERNE_DELTA_SAID, LIERNE_DELTA_STATUS, LIERNE_DELTA_WORDS };

/* The sends or the receives. Of message m, the elements begin at first[m] of the packed ones, and
 * its bytes at at[m] of the encoded ones; both have an entry more. packed: what was sent or arrived
 * last; NULL for sends where the caller keeps it. */
typedef struct lierne_delta_half {
    size_t n;
    int *peers;
    int64_t *first;
    int64_t *at;
    int64_t *headers;
    lierne_block *blocks; /* of the payload's messages */
    char *packed;
    char *bytes;
} lierne_delta_half;

/* The pieces of one half on a device (delta_device.c). now: the packed elements of this version, or
 * of the last one that came; last: of the version before, of sends only. */
typedef struct lierne_delta_pieces {
    int64_t n;
    size_t slot_bytes;
    void *pieces, *slots, *now, *last;
} lierne_delta_pieces;

/* Where plans cannot carry a delta (delta_control.c). */
typedef struct lierne_delta_control {
    bool used;
    void *stream; /* of the next call */
    void *event;
    lierne_status (*change)(const lierne_change_call *call, bool make,
                            void *stream); /* NULL where the host finds and makes changes */
    lierne_delta_pieces sent, received;
    lierne_control_message *messages;
    int64_t *own; /* that is sent, at most so many words */
    size_t words;
} lierne_delta_control;

struct lierne_delta {
    lierne_dependent dependent; /* the first member */
    lierne_context *context;
    lierne_plan *of;
    lierne_plan *plans[5];
    size_t nplans;
    lierne_delta_half sends, recvs;
    char *piece;               /* of LIERNE_CHANGE_BYTES bytes twice: to be sent, and before */
    uint64_t *hashes;          /* of what each message had last, where the caller keeps it */
    const void *previous;      /* what the caller kept, for the next call; NULL: nothing */
    lierne_varying engines[2]; /* of the payload's directions; nothing goes back */
    int64_t *said;             /* of each member */
    size_t element;            /* bytes that are compared, and how many an element has of them */
    size_t per;
    int64_t version; /* of the last call; of what was sent, and of what arrived: -1 unknown */
    int64_t kept;
    int64_t held;
    bool busy;               /* a call is in flight */
    lierne_request *request; /* the payload's; NULL where control messages carry it */
    lierne_delta_control control;
    void *out; /* of that call */
    lierne_delta_report report;
};
enum {
    LIERNE_DELTA_VERSIONS,
    LIERNE_DELTA_COPIES,
    LIERNE_DELTA_UNPACKING,
    LIERNE_DELTA_HEADERS,
    LIERNE_DELTA_PAYLOAD,
    LIERNE_DELTA_PACKING = LIERNE_DELTA_HEADERS /* of a device */
};

/* Memory, for a plan that is idle. Errors: INVALID, UNSUPPORTED, NO_MEMORY; what was made is to be
 * closed in any case. */
lierne_status lierne_delta_open(lierne_delta *delta);
void lierne_delta_close(lierne_delta *delta);
/* The only stage of a plan's forward; NULL: it has none. */
const lierne_stage *lierne_delta_stage(const lierne_plan *plan);
/* From now on the caller keeps what it gave: frees the copy of what was sent. */
void lierne_delta_keep_nothing(lierne_delta *delta);
/* Begins version d->version: encodes what each message has of `in`, and writes its header. */
void lierne_delta_encode(lierne_delta *delta, const void *in);
/* Collective: the plans. status: that of what comes before. */
lierne_status lierne_delta_create_plans(lierne_delta *delta, lierne_status status);
/* Gives a message of the payload its bytes in this call. */
void lierne_delta_set_length(lierne_message *message, const lierne_delta_half *h, size_t m,
                             int64_t bytes);

/* delta_control.c. Opens what it needs, of a delta that is open; to be closed in any case. */
lierne_status lierne_delta_open_control(lierne_delta *delta);
void lierne_delta_close_control(lierne_delta *delta);
/* UNSUPPORTED within a capture. */
lierne_status lierne_delta_check_stream(const lierne_delta *delta);
/* Until the stream of the call has passed what was enqueued. Errors, which kill the context: those
 * of the device, TIMEOUT. */
lierne_status lierne_delta_wait_stream(const lierne_delta *delta);
/* Collective: what each rank says; headers and bytes of all messages. Errors kill the context. */
lierne_status lierne_delta_tell_all(lierne_delta *delta, const int64_t *mine);
lierne_status lierne_delta_exchange_control(lierne_delta *delta);
/* delta_device.c. Whether a rank has what was sent last, so that it needs changes only. */
bool lierne_delta_has_last(const lierne_delta *delta, int peer);
/* Where the plan's memory kind finds and makes changes: opens its pieces; to be
 * closed in any case. */
lierne_status lierne_delta_open_device(lierne_delta *delta);
void lierne_delta_close_device(lierne_delta *delta);
/* Enqueues finding what changed in the packed elements; when the stream has passed it, put writes
 * the message whose pieces begin at *piece, which it moves behind them, and returns its bytes. */
lierne_status lierne_delta_find_changes(lierne_delta *delta);
size_t lierne_delta_put_changes(lierne_delta *delta, size_t m, size_t *piece);
/* From now on what was packed is what was sent last. */
void lierne_delta_keep_changes(lierne_delta *delta);
/* Enqueues making what came. Errors: MISMATCH (it is no encoding), those of the device. */
lierne_status lierne_delta_make_changes(lierne_delta *delta);

/* Whether a header fits what is to come; MISMATCH if not. */
lierne_status lierne_delta_check_header(const lierne_delta *delta, size_t m);

#endif
