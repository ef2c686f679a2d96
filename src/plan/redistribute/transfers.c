/* From what each rank sends of a delivery to who sends which elements to whom; see balance.c. */
#include "plan/redistribute/balance.h"

/* A walk over all that holders send, in one line: the part of each receiver that passes on, then
 * what is not passed on, once for each receiver. Holders follow each other along it. */
typedef struct walk {
    lierne_transfers *transfers;
    const lierne_balance *b;
    const lierne_delivery *d;
    int rank;
    size_t holder;
    int64_t left; /* that the holder still has to send */
} walk;

static int holder_of(const walk *w) {
    return w->b->ranks.at[w->d->holders + w->holder];
}

static int receiver_of(const walk *w, size_t i) {
    return w->b->ranks.at[w->d->holders + w->d->nholders + i];
}

static lierne_status add_transfer(walk *w, const lierne_transfer *t) {
    bool mine = (t->from == w->rank || t->to == w->rank) && t->size > 0;
    return mine ? LIERNE_VEC_PUSH(w->transfers, *t) : LIERNE_OK;
}

/* Where what receivers pass on ends, of those that send `sent` elements together: each of its
 * elements is sent to the others. Less than a grain that would be left is passed on, too. */
static int64_t end_passed_on(const lierne_delivery *d, int64_t sent) {
    if (d->nreceivers < 2) {
        return 0;
    }
    int64_t size = sent / ((int64_t)d->nreceivers - 1);
    return size > d->size - d->grain ? d->size : size / d->grain * d->grain;
}

/* The next holders send a segment to one receiver. */
static lierne_status send_segment(walk *w, int to, int64_t segment, int64_t size) {
    int64_t done = 0;
    while (done < size) {
        bool last = w->holder + 1 == w->d->nholders;
        int64_t n = last || w->left > size - done ? size - done : w->left;
        if (n < size - done) {
            n = (done + n) / w->d->grain * w->d->grain - done;
            n = n > 0 ? n : 0;
        }
        const lierne_transfer t = {.from = holder_of(w),
                                   .to = to,
                                   .start = segment + done,
                                   .size = n,
                                   .segment = segment,
                                   .segment_size = size};
        LIERNE_TRY(add_transfer(w, &t));
        done += n;
        w->left -= n;
        if (done < size) { /* what cutting at multiples left to a holder is the next one's */
            w->left += w->b->sends[w->d->sends + ++w->holder];
        }
    }
    return LIERNE_OK;
}

/* A receiver sends its segment to all others. */
static lierne_status pass_on(walk *w, size_t i, int64_t segment, int64_t size) {
    for (size_t k = 0; k < w->d->nreceivers; k++) {
        const lierne_transfer t = {.from = receiver_of(w, i),
                                   .to = receiver_of(w, k),
                                   .passed_on = true,
                                   .start = segment,
                                   .size = k == i ? 0 : size,
                                   .segment = segment,
                                   .segment_size = size};
        LIERNE_TRY(add_transfer(w, &t));
    }
    return LIERNE_OK;
}

lierne_status lierne_balance_transfers(lierne_transfers *transfers, const lierne_balance *b,
                                       const lierne_delivery *d, int rank) {
    walk w = {.transfers = transfers, .b = b, .d = d, .rank = rank, .left = b->sends[d->sends]};
    int64_t at = d->start, sent = 0;
    transfers->count = 0;
    for (size_t i = 0; i < d->nreceivers; i++) {
        sent += b->sends[d->sends + d->nholders + i];
        int64_t end = d->start + end_passed_on(d, sent);
        LIERNE_TRY(send_segment(&w, receiver_of(&w, i), at, end - at));
        LIERNE_TRY(pass_on(&w, i, at, end - at));
        at = end;
    }
    for (size_t i = 0; i < d->nreceivers; i++) {
        LIERNE_TRY(send_segment(&w, receiver_of(&w, i), at, d->start + d->size - at));
    }
    return LIERNE_OK;
}
