/* Group calls: cut alike at both ends, bounded, and free of cycles with no buffering at all, on
 * 20,000 random stages; and the check finds a cut by each rank's own order. */
#include "backend/nccl/group_calls.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define MOST_RANKS    24
#define MOST_MESSAGES 6 /* between two ranks */

typedef struct rank_calls {
    lierne_group_cutter cutter;
    lierne_posting *postings;
    size_t n;
    size_t done; /* of cutter.order */
    size_t end;  /* of the current group call */
    size_t own;  /* messages per group call where a rank cuts by its own order; 0: not */
} rank_calls;

static unsigned state;
static unsigned draw(unsigned n) {
    state = state * 1103515245u + 12345u;
    return (state >> 16) % n;
}

static void add(rank_calls *r, int peer, bool receives) {
    r->postings[r->n] = (lierne_posting){.slot = r->n, .peer = peer, .receives = receives};
    r->n++;
}

/* Postings of every rank: peers in a random order, receives and sends mixed. */
static void fill(rank_calls *ranks, int world, unsigned density) {
    static unsigned char messages[MOST_RANKS][MOST_RANKS];
    for (int a = 0; a < world; a++) {
        for (int b = 0; b < world; b++) {
            messages[a][b] = draw(100) < density ? (unsigned char)(1 + draw(MOST_MESSAGES)) : 0;
        }
    }
    for (int r = 0; r < world; r++) {
        int first = (int)draw((unsigned)world), step = draw(2) ? 1 : world - 1;
        for (int i = 0, peer = first; i < world; i++, peer = (peer + step) % world) {
            for (int k = 0; k < messages[peer][r]; k++) {
                add(&ranks[r], peer, true);
            }
            for (int k = 0; k < messages[r][peer]; k++) {
                add(&ranks[r], peer, false);
            }
        }
    }
}

static void enter_call(rank_calls *r) {
    const lierne_keyed *order = r->cutter.order;
    for (r->end = r->done; r->end < r->n; r->end++) {
        bool same = r->own ? r->end - r->done < r->own : order[r->end].key == order[r->done].key;
        if (!same) {
            return;
        }
    }
}

/* The position in its order of the index-th message of a direction with a peer. */
static size_t find(const rank_calls *r, int peer, bool receives, size_t index) {
    for (size_t i = 0; i < r->n; i++) {
        const lierne_posting *p = &r->postings[r->cutter.order[i].value];
        if (p->peer == peer && p->receives == receives && index-- == 0) {
            return i;
        }
    }
    return r->n;
}

/* Whether the peers of all messages of a rank's current call have them in their own current one, or
 * behind them. */
static bool can_complete(const rank_calls *ranks, int rank) {
    const rank_calls *r = &ranks[rank];
    for (size_t i = r->done; i < r->end; i++) {
        const lierne_posting *p = &r->postings[r->cutter.order[i].value];
        size_t index = 0;
        for (size_t k = 0; k < i; k++) {
            const lierne_posting *q = &r->postings[r->cutter.order[k].value];
            index += q->peer == p->peer && q->receives == p->receives;
        }
        const rank_calls *other = &ranks[p->peer];
        size_t at = find(other, rank, !p->receives, index);
        cr_assert_lt(at, other->n, "the counterpart is missing");
        if (at >= other->end) {
            return false;
        }
    }
    return true;
}

/* Runs all ranks with no buffering; whether they come to the end. */
static bool runs(rank_calls *ranks, int world, size_t most) {
    bool moved = true;
    for (int r = 0; r < world; r++) {
        enter_call(&ranks[r]);
    }
    while (moved) {
        moved = false;
        for (int r = 0; r < world; r++) {
            if (ranks[r].done < ranks[r].n && can_complete(ranks, r)) {
                cr_assert_leq(ranks[r].end - ranks[r].done, most);
                ranks[r].done = ranks[r].end;
                enter_call(&ranks[r]);
                moved = true;
            }
        }
    }
    bool end = true;
    for (int r = 0; r < world; r++) {
        end &= ranks[r].done == ranks[r].n;
    }
    return end;
}

/* One random stage; own: the cut that must be found out. Adds the group calls beyond a rank's first
 * one. */
static bool stage(unsigned seed, bool own, size_t *cuts) {
    rank_calls ranks[MOST_RANKS] = {0};
    state = seed * 2654435761u + 1;
    int world = 1 + (int)draw(seed % 16 ? 8 : MOST_RANKS), most = 2 << draw(4);
    size_t capacity = 2 * MOST_MESSAGES * (size_t)world;
    for (int r = 0; r < world; r++) {
        ranks[r].postings = calloc(capacity, sizeof *ranks[r].postings);
        ranks[r].own = own ? (size_t)most : 0;
        assert_ok(lierne_group_cutter_create(&ranks[r].cutter, r, world, capacity));
    }
    fill(ranks, world, 10 + draw(90));
    for (int r = 0; r < world; r++) {
        lierne_group_cut(&ranks[r].cutter, ranks[r].postings, ranks[r].n, most);
        for (size_t i = 0; own && i < ranks[r].n; i++) {
            ranks[r].cutter.order[i].value = (int64_t)i;
        }
        for (size_t i = 1; i < ranks[r].n; i++) {
            *cuts += ranks[r].cutter.order[i].key != ranks[r].cutter.order[i - 1].key;
        }
    }
    bool end = runs(ranks, world, (size_t)most);
    for (int r = 0; r < world; r++) {
        free(ranks[r].postings);
        lierne_group_cutter_destroy(&ranks[r].cutter);
    }
    return end;
}

Test(group_calls, random_stages_are_matched_and_acyclic) {
    size_t cuts = 0, live = lierne_mem_live();
    for (unsigned seed = 0; seed < 20000; seed++) {
        cr_assert(stage(seed, false, &cuts), "stage %u does not come to an end", seed);
    }
    cr_assert_gt(cuts, 100000u);
    cr_assert_eq(lierne_mem_live(), live);
}

Test(group_calls, a_cut_by_each_ranks_own_order_is_found) {
    size_t cuts = 0, stuck = 0;
    for (unsigned seed = 0; seed < 500; seed++) {
        stuck += !stage(seed, true, &cuts);
    }
    cr_assert_gt(stuck, 50u);
}

/* All-to-all of 1,000 ranks with two messages per pair: as NCCL would see it. */
Test(group_calls, no_call_has_more_than_256_operations) {
    int world = 1000;
    size_t n = 4 * (size_t)world, longest = 0, calls = 0;
    lierne_posting *postings = calloc(n, sizeof *postings);
    lierne_group_cutter cutter = {0};
    assert_ok(lierne_group_cutter_create(&cutter, 123, world, n));
    for (size_t i = 0; i < n; i++) {
        postings[i] =
            (lierne_posting){.slot = i, .peer = (int)(i % (size_t)world), .receives = i * 2 < n};
    }
    lierne_group_cut(&cutter, postings, n, LIERNE_GROUP_CALL_OPERATIONS);
    for (size_t i = 0, first = 0; i < n; i++) {
        bool begins = i == 0 || cutter.order[i].key != cutter.order[i - 1].key;
        calls += begins;
        first = begins ? i : first;
        longest = i - first + 1 > longest ? i - first + 1 : longest;
    }
    cr_assert_eq(longest, (size_t)LIERNE_GROUP_CALL_OPERATIONS);
    cr_assert_eq(calls, (n + longest - 1) / longest);
    lierne_group_cutter_destroy(&cutter);
    free(postings);
}

/* Both ends of a message compute the number alike; a pair per index and distance. */
Test(group_calls, the_number_is_known) {
    cr_assert_eq(lierne_group_call_of(0, 1, 0, 8, 256), 0);
    cr_assert_eq(lierne_group_call_of(7, 0, 16, 8, 256), (16 * 8 + 1) / 128);
    cr_assert_eq(lierne_group_call_of(3, 2, 0, 300, 256), 299 / 128);
    cr_assert_eq(lierne_group_call_of(2, 3, 0, 300, 256), 0);
    cr_assert_eq(lierne_group_call_of(5, 5, 1, 10, 4), 10 / 2);
}
