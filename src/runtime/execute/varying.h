/* Executions whose blocks change between calls, on each rank alone: no rank tells another what its
 * blocks are, so every message says from which description they come.
 *
 * All messages are packed into staging slots, which are dealt anew after a change. A message begins
 * with the stamp of the sender's description, and is accepted only where the receiver has the same
 * one. Those without elements are not sent, so a rank may believe that it exchanges nothing with
 * the one that differs: in every call each rank also sends its stamp to its successor in a ring. If
 * not all ranks agree, two neighbours differ, and the one that sees it fails with MISMATCH.
 *
 * The host cannot read stamps in a device's memory, and a transport without match ids would take a
 * message of another length for this one. There messages have no stamps: the plan compares them on
 * the control before its first call after a change (plan/call.c). */
#ifndef LIERNE_VARYING_H
#define LIERNE_VARYING_H

#include "base/base.h"

/* What ranks must have in common. */
enum { LIERNE_STAMP_UPDATE, LIERNE_STAMP_HASH, LIERNE_STAMP_SEGMENTS, LIERNE_STAMP_TOKENS };
#define LIERNE_STAMP_WORDS 4

typedef struct lierne_varying {
    int64_t sent; /* the most elements of all sends together, of all receives */
    int64_t received;
    int64_t scratch;     /* the most elements of scratch */
    size_t most_sources; /* the most that any sum has */
    /* The most copies and sums of a call, with those that pack and unpack. */
    size_t most_tasks;
    void *owner;     /* what changes it */
    int predecessor; /* in the ring; -1: this rank is alone, or has no part */
    int successor;
    int first[2]; /* ranks that have a part: members of the context in two ranges */
    int count[2];
    int64_t stamp[LIERNE_STAMP_WORDS];
} lierne_varying;

#endif
