/* Messages that were sent to a rank of a simulated world and not received yet. */
#ifndef LIERNE_SIM_MAILBOX_H
#define LIERNE_SIM_MAILBOX_H

#include "base/base.h"

typedef struct lierne_sim_message {
    struct lierne_sim_message *next;
    int from;
    int match;
    size_t bytes;
    char data[];
} lierne_sim_message;

typedef struct lierne_sim_bucket {
    lierne_sim_message *first;
    lierne_sim_message *last;
} lierne_sim_bucket;

/* All zero at first. */
typedef struct lierne_sim_mailbox {
    lierne_sim_bucket *buckets;
    size_t nbuckets; /* a power of two, or 0 */
    size_t count;    /* messages */
} lierne_sim_mailbox;

/* Takes the message over, unless it fails: NO_MEMORY, for the first message only. */
lierne_status lierne_sim_mailbox_put(lierne_sim_mailbox *box, lierne_sim_message *m);
/* The first message that was put in of those with this sender and match id; NULL: none. The
 * caller frees it. */
lierne_sim_message *lierne_sim_mailbox_take(lierne_sim_mailbox *box, int from, int match);
/* Frees it with all messages. */
void lierne_sim_mailbox_destroy(lierne_sim_mailbox *box);

#endif
