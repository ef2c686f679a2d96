/* A list of messages per bucket, each in the order of arrival. There are at least as many buckets
 * as messages, so taking one does not look at those of other senders: a rank of a large world has
 * thousands at once. A mailbox that cannot grow goes on with longer lists. */
#include "backend/sim/sim_mailbox.h"

enum { LEAST = 16 };

static lierne_sim_bucket *bucket_of(const lierne_sim_mailbox *box, int from, int match) {
    uint64_t z = ((uint64_t)(uint32_t)from << 32 | (uint32_t)match) * 0x9e3779b97f4a7c15u;
    return &box->buckets[(z ^ z >> 32) & (box->nbuckets - 1)];
}

static void append_message(const lierne_sim_mailbox *box, lierne_sim_message *m) {
    lierne_sim_bucket *b = bucket_of(box, m->from, m->match);
    m->next = NULL;
    if (b->last) {
        b->last->next = m;
    } else {
        b->first = m;
    }
    b->last = m;
}

static lierne_status grow(lierne_sim_mailbox *box) {
    lierne_sim_mailbox old = *box;
    size_t n = old.nbuckets ? 4 * old.nbuckets : LEAST;
    LIERNE_TRY(lierne_alloc(&box->buckets, n, sizeof *box->buckets));
    box->nbuckets = n;
    for (size_t i = 0; i < old.nbuckets; i++) {
        for (lierne_sim_message *m = old.buckets[i].first, *next; m; m = next) {
            next = m->next;
            append_message(box, m);
        }
    }
    lierne_mem_free(old.buckets);
    return LIERNE_OK;
}

lierne_status lierne_sim_mailbox_put(lierne_sim_mailbox *box, lierne_sim_message *m) {
    if (box->count >= box->nbuckets) {
        lierne_sim_bucket *before = box->buckets;
        lierne_status status = grow(box);
        if (status != LIERNE_OK) {
            box->buckets = before;
            LIERNE_TRY(before ? LIERNE_OK : status);
        }
    }
    append_message(box, m);
    box->count++;
    return LIERNE_OK;
}

lierne_sim_message *lierne_sim_mailbox_take(lierne_sim_mailbox *box, int from, int match) {
    lierne_sim_bucket *b = box->nbuckets ? bucket_of(box, from, match) : NULL;
    lierne_sim_message *before = NULL;
    for (lierne_sim_message *m = b ? b->first : NULL; m; before = m, m = m->next) {
        if (m->from == from && m->match == match) {
            *(before ? &before->next : &b->first) = m->next;
            b->last = m->next ? b->last : before;
            box->count--;
            return m;
        }
    }
    return NULL;
}

void lierne_sim_mailbox_destroy(lierne_sim_mailbox *box) {
    for (size_t i = 0; i < box->nbuckets; i++) {
        for (lierne_sim_message *m = box->buckets[i].first, *next; m; m = next) {
            next = m->next;
            lierne_mem_free(m);
        }
    }
    lierne_mem_free(box->buckets);
}
