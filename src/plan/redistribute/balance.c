/* Balanced plans of overlaps.
 *
 * What moves is a set of deliveries: elements that some ranks hold and others need. A copy is one
 * delivery from all holders to all receivers that are not among them. Contributions are one
 * delivery each per rank that sums, and each sum one to the other receivers. At least one copy of a
 * delivery comes from its holders. The others may come from holders too, or from receivers that
 * pass on what they got; either way each receiver gets every element once, so the bytes in total
 * do not change. How much each rank sends is then a matter of spread.c, over all deliveries at
 * once.
 *
 * Any result of it can be done in two stages. A receiver that is to send z elements of a delivery
 * to N receivers gets a part of z / (N - 1) elements first, and sends it to all others. What is not
 * passed on in this way, holders send to every receiver. Holders divide all that they send among
 * themselves in the order of the parts. Contributions are never passed on, and sums are made in one
 * place in the documented order: the bits are those of any other way. */
#include "plan/redistribute/balance.h"

#include "plan/redistribute/deliveries.h"
#include "plan/redistribute/redistribute_sums.h"
#include "plan/redistribute/reducers.h"
#include "plan/redistribute/spread.h"

#include <stdlib.h>
#include <string.h>

/* Receivers pass on what they got where the busiest rank then sends less by one part in WORTH. */
enum { WORTH = 32 };

/* Sums are divided once more where the busiest rank sends more than one part in NEAR above its
 * bound; with nodes nothing can be said of that. */
enum { NEAR = 24 };

/* Bytes of an overlap that are worth a chunk. */
enum { CHUNK = 4 << 20 };

void lierne_balance_destroy(lierne_balance *b) {
    lierne_mem_free(b->shared.at);
    lierne_mem_free(b->reducers.at);
    lierne_mem_free(b->deliveries.at);
    lierne_mem_free(b->ranks.at);
    lierne_mem_free(b->members.at);
    lierne_mem_free(b->sends);
}

static int compare_ints(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* All ranks, each once. */
static lierne_status list_members(lierne_balance *b) {
    size_t n = 0;
    for (size_t i = 0; i < b->ranks.count; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&b->members, b->ranks.at[i]));
    }
    if (b->members.count > 0) {
        qsort(b->members.at, b->members.count, sizeof *b->members.at, compare_ints);
    }
    for (size_t i = 0; i < b->members.count; i++) {
        if (n == 0 || b->members.at[n - 1] != b->members.at[i]) {
            b->members.at[n++] = b->members.at[i];
        }
    }
    b->members.count = n;
    return LIERNE_OK;
}

/* The ranks of an overlap. */
static lierne_status share(lierne_balance *b, const lierne_planner *p, const lierne_pair *pair) {
    lierne_shared s = {.pair = *pair, .receivers = b->ranks.count};
    LIERNE_TRY(lierne_layout_members(p->to, &pair->to, -1, &b->ranks));
    s.nreceivers = b->ranks.count - s.receivers;
    s.holders = b->ranks.count;
    for (int partial = 0; partial < p->from->partials; partial++) {
        LIERNE_TRY(lierne_layout_members(p->from, &pair->from, partial, &b->ranks));
    }
    s.nholders = (b->ranks.count - s.holders) / (size_t)p->from->partials;
    return LIERNE_VEC_PUSH(&b->shared, s);
}

static int64_t at_least_0(int64_t n) {
    return n > 0 ? n : 0;
}

/* A delivery as work of its ranks: the copy that holders must send, and the others. */
static lierne_status describe_delivery(lierne_spread *spread, const lierne_balance *b,
                                       const lierne_delivery *d, bool relays) {
    int64_t h = (int64_t)d->nholders, n = (int64_t)d->nreceivers, more = (n - 1) * d->size;
    int64_t first = d->size / h, even = relays ? n * d->size / (h + n) : (n * d->size) / h;
    int64_t passed = even >= first ? even : more / n; /* by a receiver */
    LIERNE_TRY(lierne_spread_add_job(spread, d->size));
    for (int64_t i = 0; i < h; i++) {
        int64_t wish = lierne_share(d->size, h, i + 1) - lierne_share(d->size, h, i);
        int rank = lierne_balance_index(b, b->ranks.at[d->holders + (size_t)i]);
        LIERNE_TRY(lierne_spread_add_rank(spread, rank, wish));
    }
    if (n == 1) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_spread_add_job(spread, more));
    for (int64_t i = 0; i < h + (relays ? n : 0); i++) {
        int rank = lierne_balance_index(b, b->ranks.at[d->holders + (size_t)i]);
        LIERNE_TRY(lierne_spread_add_rank(spread, rank, i < h ? at_least_0(even - first) : passed));
    }
    return LIERNE_OK;
}

/* Adds up what each rank of a delivery was given of its jobs. */
static void take_shares(lierne_balance *b, const lierne_spread *spread) {
    size_t entry = 0;
    for (size_t i = 0; i < b->deliveries.count; i++) {
        const lierne_delivery *d = &b->deliveries.at[i];
        size_t relays = b->relays && d->relays ? d->nreceivers : 0;
        memset(b->sends + d->sends, 0, (d->nholders + d->nreceivers) * sizeof *b->sends);
        for (size_t k = 0; k < d->nholders; k++) {
            b->sends[d->sends + k] += spread->entries.at[entry++].given;
        }
        for (size_t k = 0; d->nreceivers > 1 && k < d->nholders + relays; k++) {
            b->sends[d->sends + k] += spread->entries.at[entry++].given;
        }
    }
}

/* Balances the deliveries, with receivers that pass on what they got or without. */
static lierne_status spread_deliveries(lierne_balance *b, bool relays, int64_t *most) {
    lierne_spread spread;
    lierne_status status = lierne_spread_create(&spread, (int)b->members.count);
    for (size_t i = 0; i < b->deliveries.count && status == LIERNE_OK; i++) {
        const lierne_delivery *d = &b->deliveries.at[i];
        status = describe_delivery(&spread, b, d, relays && d->relays);
    }
    if (status == LIERNE_OK) {
        status = lierne_spread_solve(&spread, most);
    }
    if (status == LIERNE_OK) {
        b->relays = relays;
        take_shares(b, &spread);
    }
    lierne_spread_destroy(&spread);
    return status;
}

/* Passing on costs a stage: receivers do so only where the busiest rank sends much less then. */
static lierne_status balance(lierne_balance *b, const lierne_planner *p) {
    LIERNE_TRY(lierne_alloc(&b->sends, b->nsends, sizeof *b->sends));
    int64_t flat;
    LIERNE_TRY(spread_deliveries(b, false, &flat));
    LIERNE_TRY(spread_deliveries(b, true, &b->least));
    b->sent = p->from->partials > 1 ? b->sent : b->least;
    return flat - b->least > b->least / WORTH ? LIERNE_OK : spread_deliveries(b, false, &flat);
}

static lierne_status share_all(lierne_balance *b, const lierne_planner *p, const lierne_pair *pairs,
                               size_t n) {
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(share(b, p, &pairs[i]));
        if (p->from->partials > 1) {
            LIERNE_TRY(lierne_reducers_list(b, p, &b->shared.at[i]));
        }
    }
    return list_members(b);
}

static lierne_status fill_balance(lierne_balance *b, const lierne_planner *p,
                                  const lierne_pair *pairs, size_t n, bool loose) {
    LIERNE_TRY(share_all(b, p, pairs, n));
    LIERNE_TRY(p->from->partials > 1 ? lierne_sums_bound(b, p, loose) : LIERNE_OK);
    LIERNE_TRY(lierne_reducers_divide(b, p, loose));
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(lierne_deliveries_add(b, p, &b->shared.at[i]));
    }
    return balance(b, p);
}

/* Divides the sums once more, for the senders; keeps what is better. */
static lierne_status loosen(lierne_balance *b, const lierne_planner *p, const lierne_pair *pairs,
                            size_t n) {
    lierne_balance other = {0};
    lierne_status status = fill_balance(&other, p, pairs, n, true);
    if (status == LIERNE_OK && other.least < b->least) {
        lierne_balance worse = *b;
        *b = other;
        other = worse;
    }
    lierne_balance_destroy(&other);
    return status;
}

lierne_status lierne_balance_create(lierne_balance *b, const lierne_planner *p,
                                    const lierne_pair *pairs, size_t n) {
    *b = (lierne_balance){0};
    LIERNE_TRY(fill_balance(b, p, pairs, n, false));
    bool near = p->from->partials == 1 || b->least <= b->sent + b->sent / NEAR;
    return near || p->nodes ? LIERNE_OK : loosen(b, p, pairs, n);
}

int64_t lierne_balance_chunks(const lierne_balance *b, const lierne_planner *p,
                              const lierne_shared *s) {
    int64_t n = s->pair.elements * (int64_t)lierne_dtype_size(p->from->dtype) / CHUNK;
    bool staged = b->relays || s->divided;
    for (size_t i = 0; i < s->ndeliveries && !staged; i++) {
        staged = b->deliveries.at[s->deliveries + i].depth > 0;
    }
    n = n < LIERNE_BALANCE_CHUNKS ? n : LIERNE_BALANCE_CHUNKS;
    return staged && n > 1 ? n : 1;
}
