/* Few peers: ranks stand in a square, row by row, and exchange only with those in their own row and
 * column. A message between two that share neither stops over at the rank in the sender's row and
 * the receiver's column; where the last row is too short for it, at the one in the receiver's row
 * and the sender's column. So n ranks have fewer than 2 sqrt(n) peers each, and no byte travels
 * more than twice. */
#ifndef LIERNE_RELAY_H
#define LIERNE_RELAY_H

#include "route/route.h"

typedef struct lierne_square {
    const int *ranks; /* ascending; a rank's place is its index */
    int n;
    int columns;
    int rows;
} lierne_square;

lierne_square lierne_square_of(const int *ranks, int n);
/* The most that any rank has. */
int lierne_square_peers(const lierne_square *s);
/* The place of a rank; -1: it is not in the square. */
int lierne_square_place(const lierne_square *s, int rank);
/* The place between two places; -1: they exchange directly. */
int lierne_square_stopover(const lierne_square *s, int from, int to);
/* Whether two places share a row or a column. */
bool lierne_square_adjacent(const lierne_square *s, int a, int b);
/* The place after this one in a tour of all places, each of which shares a row or a column with the
 * one before. Not for three places, which have none. */
int lierne_square_next(const lierne_square *s, int place);

/* The direct route of any rank of the square, which the caller destroys. */
typedef struct lierne_relay {
    lierne_square square;
    lierne_status (*get)(const void *user, int rank, lierne_route **route);
    const void *user;
    bool any_peers; /* ranks may have any peers: none is asked how many it has */
} lierne_relay;

/* What became of a route whose peers are limited. */
typedef struct lierne_relayed {
    bool relayed;
    int most_peers;    /* of any rank */
    int64_t forwarded; /* elements that stop over at this rank */
} lierne_relayed;

/* Replaces a direct route of a rank by one with at most max_peers peers on any rank, each stage by
 * two, unless no rank has more anyway. On every rank of the square alike; a rank that is not in it
 * keeps its route. Pure. Errors: UNSUPPORTED (names the fewest peers that there can be);
 * NO_MEMORY, OVERFLOW, and those of get; the route is then the direct one. */
lierne_status lierne_route_limit_peers(lierne_route **route, lierne_relayed *result,
                                       const lierne_relay *relay, int max_peers);

#endif
