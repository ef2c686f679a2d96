/* Who is left of the ranks of a dead context.
 *
 * The ranks that are left take part in attempts, each of which lists them, lets every one of them
 * try something with that list, and has one outcome. The list and the outcome are the same on all
 * of them, whoever dies meanwhile. */
#ifndef LIERNE_SURVIVORS_H
#define LIERNE_SURVIVORS_H

#include "runtime/control/abort_flags.h"
#include "runtime/control/members.h"
#include "runtime/control/ports.h"

struct lierne_remote;

/* A rank's part. What is before attempt is the control's and the
 * caller's; begin sets the rest. */
typedef struct lierne_survivors {
    const lierne_abort_flags *flags; /* of all ranks; NULL: they agree over ports */
    const int *flag;                 /* per rank: index of its flag */
    const int *watches;              /* per rank, of runtime/control/processes.h */
    const lierne_ports *ports;
    const lierne_members *members; /* names of ranks in messages */
    int rank;
    int world;
    int attempt; /* from 1 on */
    lierne_deadline deadline;
    int *list; /* of the attempt: ranks that are left, ascending */
    int count;
    struct lierne_remote *remote; /* remote.h */
    int seen; /* ranks, or places in the list, that the attempt need not wait for any more */
} lierne_survivors;

/* Begins to take part, with a deadline for all attempts together. Errors: NO_MEMORY. */
lierne_status lierne_survivors_begin(lierne_survivors *s, double timeout);
void lierne_survivors_end(lierne_survivors *s);
/* A number that is the same on all ranks, and that no other context has. */
uint64_t lierne_survivors_key(const lierne_survivors *s);
/* The next attempt: waits until every rank takes part or its process has ended, and lists those
 * that take part. Errors, of all ranks: TIMEOUT. */
lierne_status lierne_survivors_list(lierne_survivors *s);
/* Whether a rank of the list has ended, or has failed in this attempt. */
bool lierne_survivors_lost(const lierne_survivors *s, int index);
/* Seconds until the deadline, more than 0. */
double lierne_survivors_left(const lierne_survivors *s);
/* Says how this rank's try went, waits until all of the list have, and returns the outcome: OK if
 * it went well on all; PEER_FAILED if a rank of the list ended, or lost another one: then there is
 * a next attempt; else the error of the lowest rank that has one, or TIMEOUT: then there is none.
 */
lierne_status lierne_survivors_decide(lierne_survivors *s, lierne_status mine);

/* The outcome that all results have together; begins as zeros. */
typedef struct lierne_verdict {
    bool ended;
    bool peer_failed;
    lierne_status first; /* error of another kind */
} lierne_verdict;
/* Adds a rank of the list, in their order. code: what it said, OK of one that has said nothing. */
static inline void lierne_verdict_add(lierne_verdict *verdict, bool ended, lierne_status code) {
    verdict->ended |= ended;
    verdict->peer_failed |= code == LIERNE_ERR_PEER_FAILED;
    if (verdict->first == LIERNE_OK && code != LIERNE_ERR_PEER_FAILED) {
        verdict->first = code;
    }
}
/* OK, an error, or PEER_FAILED: there is a next attempt. A rank that failed is lost to the others,
 * whose error is then PEER_FAILED, so an error of another kind is the reason. */
static inline lierne_status lierne_verdict_get(const lierne_verdict *verdict) {
    bool again = verdict->ended || (verdict->peer_failed && verdict->first == LIERNE_OK);
    return again ? LIERNE_ERR_PEER_FAILED : verdict->first;
}

#endif
