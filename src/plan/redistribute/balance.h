/* Who sends what so that no rank sends much more than it must. */
#ifndef LIERNE_BALANCE_H
#define LIERNE_BALANCE_H

#include "plan/redistribute/planner.h"

/* An overlap of two cells by itself: what is needed to compare it with others. */
typedef struct lierne_pair {
    lierne_cell from;
    lierne_cell to;
    int64_t key[2]; /* of the cells, in the order of their coordinates */
    int64_t elements;
    int64_t size[LIERNE_MAX_AXES]; /* of its first box */
} lierne_pair;
typedef LIERNE_VEC(lierne_pair) lierne_pairs;

/* Finds the overlaps that share ranks with the rank's own, directly or over others, ascending by
 * key; the same for each of these ranks. *all: whether that was possible within limits; otherwise,
 * or if it is false before, pairs are the rank's own alone. */
lierne_status lierne_pairs_find(lierne_pairs *pairs, bool *all, const lierne_planner *p);

/* One value that some ranks hold and others need. */
typedef struct lierne_delivery {
    int partial;   /* the contribution; -1: what its one holder has in its output by then */
    int depth;     /* its stage, where there are no chunks */
    bool relays;   /* receivers may pass on what they got */
    int64_t start; /* elements of the overlap, see lierne_cell_overlap_take */
    int64_t size;
    int64_t
        segment; /* chunks are those of these elements; of none: of what is passed on together */
    int64_t segment_size;
    int64_t grain;  /* cuts are at multiples of it */
    size_t holders; /* in ranks: holders, and behind them receivers, ascending */
    size_t nholders;
    size_t nreceivers;
    size_t sends; /* in sends: elements that each of them sends */
} lierne_delivery;

/* A rank that sums elements of an overlap. */
typedef struct lierne_reducer {
    int rank;
    int64_t start;
    int64_t size;
    int64_t sends; /* elements, all in all, where the sums suit the senders */
} lierne_reducer;

/* An overlap with its ranks, and what they do. */
typedef struct lierne_shared {
    lierne_pair pair;
    size_t receivers; /* in ranks */
    size_t nreceivers;
    size_t holders; /* in ranks: of each contribution, one list after the other */
    size_t nholders;
    bool divided;    /* see lierne_cell_overlap */
    size_t reducers; /* in reducers; none without PARTIAL */
    size_t nreducers;
    size_t deliveries; /* in deliveries */
    size_t ndeliveries;
} lierne_shared;

typedef struct lierne_balance {
    LIERNE_VEC(lierne_shared) shared;
    LIERNE_VEC(lierne_reducer) reducers;
    LIERNE_VEC(lierne_delivery) deliveries;
    lierne_ranks ranks;
    lierne_ranks members; /* all of them, ascending, each once */
    int64_t *sends;
    size_t nsends;
    int64_t received; /* elements that the busiest rank receives, at least */
    int64_t sent;     /* that the busiest rank sends, at least, however the sums are divided */
    int64_t least;    /* the same, if they are divided like this */
    bool relays;      /* receivers pass on what they got */
} lierne_balance;

/* Balances n overlaps. To be destroyed also on failure. */
lierne_status lierne_balance_create(lierne_balance *b, const lierne_planner *p,
                                    const lierne_pair *pairs, size_t n);
void lierne_balance_destroy(lierne_balance *b);

/* In how many chunks an overlap moves. Chunks serve to do two things at once: where there is one
 * stage, there is one chunk. */
#define LIERNE_BALANCE_CHUNKS 8
int64_t lierne_balance_chunks(const lierne_balance *b, const lierne_planner *p,
                              const lierne_shared *s);

/* Elements that move from one rank to another: of a delivery, at its stage or, passed on, one
 * later. segment: what is passed on together; equal at both of its stages. */
typedef struct lierne_transfer {
    int from;
    int to;
    bool passed_on;
    int64_t start;
    int64_t size;
    int64_t segment;
    int64_t segment_size;
} lierne_transfer;
typedef LIERNE_VEC(lierne_transfer) lierne_transfers;

/* The transfers of a delivery that a rank sends or receives, in an order that is the same for all
 * ranks. Replaces what the list has. */
lierne_status lierne_balance_transfers(lierne_transfers *transfers, const lierne_balance *b,
                                       const lierne_delivery *d, int rank);

#endif
