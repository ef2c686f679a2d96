/* Ends of messages that know each other only by what a plan connected: for transports.c. */
#ifndef LIERNE_TESTS_CONNECTED_H
#define LIERNE_TESTS_CONNECTED_H

#include "runtime/transport/transport.h"

/* What a plan connected a slot with. */
typedef struct test_end {
    bool receives;
    int peer;
    size_t bytes;
    lierne_remote remote;
    lierne_part *shown; /* what exposed returns, as many as remote.nparts */
} test_end;

/* The record of a rank's slot: the address of it, and between whom the message travels. */
void test_end_describe(test_end *e, const lierne_posting *p, int rank, const void *slot,
                       lierne_record *record);
/* Both ends must have described the same message. */
lierne_status test_end_connect(test_end *e, const lierne_remote *remote, int rank);
/* Whether a receive is connected with this slot of its sender. */
bool test_end_knows(const test_end *e, const void *slot);

size_t test_part_bytes(const lierne_part *part);
void test_part_copy(const lierne_part *to, const lierne_part *from);

#endif
