/* From a direct route to one over few peers.
 *
 * Nothing is asked of other ranks: a rank at which messages stop over makes the direct routes of
 * those in its row and column again, and reads from them what passes. So a route of few peers is as
 * pure as the direct one, for about 2 sqrt(n) times its planning. Every stage becomes two: direct
 * messages and those to a stopover, with the copies; then those from a stopover, with the sums. All
 * that passes between two ranks in a stage is one message, for each buffer that it begins or ends
 * in. */
#include "route/relay.h"

#include <stdlib.h>

/* A message's way between a stopover and one of its ends. */
typedef struct leg {
    size_t stage;
    int peer;   /* the other end of the way */
    int buffer; /* at the sender or receiver: messages of one leave it together */
    int far;    /* the rank beyond the peer, or beyond this rank */
    size_t order;
    int64_t elements;
    int64_t at;                    /* in this rank's scratch */
    const lierne_message *message; /* of this rank; NULL: it passes */
} leg;
typedef LIERNE_VEC(leg) legs;

typedef struct builder {
    const lierne_relay *relay;
    const lierne_route *direct;
    lierne_route *route;
    int place;
    legs to, from;       /* this rank's own messages to and from stopovers */
    legs arrive, depart; /* what stops over here */
} builder;

static int compare_i64(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int compare_legs(const void *a, const void *b) {
    const leg *x = a, *y = b;
    const int64_t keys[5][2] = {{(int64_t)x->stage, (int64_t)y->stage},
                                {x->peer, y->peer},
                                {x->buffer, y->buffer},
                                {x->far, y->far},
                                {(int64_t)x->order, (int64_t)y->order}};
    int c = 0;
    for (int i = 0; i < 5 && c == 0; i++) {
        c = compare_i64(keys[i][0], keys[i][1]);
    }
    return c;
}

/* Orders what arrives like what departs: by stage, receiver, sender and order. */
static int compare_ends(const leg *arrives, const leg *departs) {
    const int64_t keys[3][2] = {{(int64_t)arrives->stage, (int64_t)departs->stage},
                                {arrives->far, departs->peer},
                                {arrives->peer, departs->far}};
    int c = 0;
    for (int i = 0; i < 3 && c == 0; i++) {
        c = compare_i64(keys[i][0], keys[i][1]);
    }
    return c;
}

static int compare_arrivals(const void *a, const void *b) {
    const leg *x = a, *y = b;
    const leg ends = {.stage = y->stage, .peer = y->far, .far = y->peer};
    int c = compare_ends(x, &ends);
    return c != 0 ? c : compare_i64((int64_t)x->order, (int64_t)y->order);
}

static int compare_departures(const void *a, const void *b) {
    const leg *x = a, *y = b;
    const leg ends = {.stage = x->stage, .peer = x->far, .far = x->peer};
    int c = compare_ends(&ends, y);
    return c != 0 ? c : compare_i64((int64_t)x->order, (int64_t)y->order);
}

static void sort_legs(legs *l, int (*compare)(const void *, const void *)) {
    if (l->count > 1) {
        qsort(l->at, l->count, sizeof *l->at, compare);
    }
}

/* The messages that the rank at `place` sends or receives and that stop over: here, or, of this
 * rank's own, anywhere. */
static lierne_status list_legs(builder *b, legs *out, size_t stage, int place, bool sends,
                               const lierne_messages *messages) {
    const lierne_square *s = &b->relay->square;
    bool own = place == b->place;
    for (size_t m = 0; m < messages->count; m++) {
        const lierne_message *message = &messages->at[m];
        int other = lierne_square_place(s, message->peer);
        int over = lierne_square_stopover(s, sends ? place : other, sends ? other : place);
        leg l = {.stage = stage,
                 .peer = own ? (over >= 0 ? s->ranks[over] : -1) : s->ranks[place],
                 .buffer = (int)message->buffer,
                 .far = message->peer,
                 .order = m,
                 .elements = message->elements,
                 .message = own ? message : NULL};
        if (over >= 0 && (own || over == b->place)) {
            LIERNE_TRY(LIERNE_VEC_PUSH(out, l));
        }
    }
    return LIERNE_OK;
}

static lierne_status list_route(builder *b, const lierne_route *route, int place) {
    bool own = place == b->place;
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_stage *stage = &route->stages.at[i];
        LIERNE_TRY(list_legs(b, own ? &b->to : &b->arrive, i, place, true, &stage->sends));
        LIERNE_TRY(list_legs(b, own ? &b->from : &b->depart, i, place, false, &stage->recvs));
    }
    return LIERNE_OK;
}

static lierne_status list_all(builder *b) {
    const lierne_square *s = &b->relay->square;
    LIERNE_TRY(list_route(b, b->direct, b->place));
    for (int place = 0; place < s->n; place++) {
        lierne_route *route;
        if (place != b->place && lierne_square_adjacent(s, b->place, place)) {
            LIERNE_TRY(b->relay->get(b->relay->user, s->ranks[place], &route));
            lierne_status status = list_route(b, route, place);
            lierne_route_destroy(route);
            LIERNE_TRY(status);
        }
    }
    return LIERNE_OK;
}

/* What arrives gets places in scratch, which stages use again, and is found again where it departs.
 */
static lierne_status place_passing(builder *b, int64_t *forwarded) {
    int64_t used = 0, most = 0, first;
    *forwarded = 0;
    sort_legs(&b->arrive, compare_legs);
    for (size_t i = 0; i < b->arrive.count; i++) {
        leg *l = &b->arrive.at[i];
        used = i > 0 && l->stage == l[-1].stage ? used : 0;
        l->at = b->direct->elements[LIERNE_BUFFER_SCRATCH] + used;
        used += l->elements;
        most = used > most ? used : most;
        *forwarded += l->elements;
    }
    sort_legs(&b->arrive, compare_arrivals);
    sort_legs(&b->depart, compare_departures);
    for (size_t i = 0; i < b->depart.count; i++) {
        b->depart.at[i].at = b->arrive.at[i].at;
    }
    return lierne_route_scratch(b->route, most, &first);
}

static lierne_status add_blocks(lierne_message *to, const lierne_message *from) {
    for (size_t i = 0; i < from->blocks.count; i++) {
        LIERNE_TRY(lierne_message_add(to, from->blocks.at[i]));
    }
    return LIERNE_OK;
}

/* Legs of one peer and buffer become one message of the first or second half of their stage. */
static lierne_status add_legs(builder *b, legs *l, bool second, bool sends) {
    lierne_message *message = NULL;
    sort_legs(l, compare_legs);
    for (size_t i = 0; i < l->count; i++) {
        const leg *at = &l->at[i];
        lierne_stage *stage = &b->route->stages.at[2 * at->stage + second];
        if (i == 0 || at[-1].stage != at->stage || at[-1].peer != at->peer ||
            at[-1].buffer != at->buffer) {
            lierne_buffer buffer = at->message ? at->message->buffer : LIERNE_BUFFER_SCRATCH;
            LIERNE_TRY(lierne_messages_add(sends ? &stage->sends : &stage->recvs, at->peer, buffer,
                                           &message));
        }
        LIERNE_TRY(at->message
                       ? add_blocks(message, at->message)
                       : lierne_message_add(message, lierne_block_range(at->at, at->elements)));
    }
    return LIERNE_OK;
}

static lierne_status copy_direct(const builder *b, lierne_messages *to,
                                 const lierne_messages *from) {
    const lierne_square *s = &b->relay->square;
    for (size_t m = 0; m < from->count; m++) {
        lierne_message *message;
        if (lierne_square_adjacent(s, b->place, lierne_square_place(s, from->at[m].peer))) {
            LIERNE_TRY(lierne_messages_add(to, from->at[m].peer, from->at[m].buffer, &message));
            LIERNE_TRY(add_blocks(message, &from->at[m]));
        }
    }
    return LIERNE_OK;
}

static lierne_status copy_stages(const builder *b) {
    for (size_t i = 0; i < b->direct->stages.count; i++) {
        const lierne_stage *from = &b->direct->stages.at[i];
        lierne_stage *first = &b->route->stages.at[2 * i];
        LIERNE_TRY(copy_direct(b, &first->sends, &from->sends));
        LIERNE_TRY(copy_direct(b, &first->recvs, &from->recvs));
        LIERNE_TRY(lierne_ops_append(&first->copies, &from->copies));
        LIERNE_TRY(lierne_ops_append(&first[1].sums, &from->sums));
    }
    return LIERNE_OK;
}

/* As many stages as this rank's own messages and those that pass need. */
static lierne_status add_stages(builder *b) {
    size_t stages = b->direct->stages.count;
    lierne_stage *stage;
    for (size_t i = 0; i < b->arrive.count; i++) {
        stages = b->arrive.at[i].stage >= stages ? b->arrive.at[i].stage + 1 : stages;
    }
    for (size_t i = 0; i < 2 * stages; i++) {
        LIERNE_TRY(lierne_route_add_stage(b->route, &stage));
    }
    return LIERNE_OK;
}

static lierne_status build(builder *b, int64_t *forwarded) {
    const lierne_route *direct = b->direct;
    LIERNE_TRY(list_all(b));
    LIERNE_TRY(lierne_route_create(&b->route, direct->rank, direct->elements[LIERNE_BUFFER_IN],
                                   direct->elements[LIERNE_BUFFER_OUT]));
    lierne_route_share_lists(b->route, direct);
    b->route->dtype = direct->dtype;
    b->route->elements[LIERNE_BUFFER_SCRATCH] = direct->elements[LIERNE_BUFFER_SCRATCH];
    LIERNE_TRY(add_stages(b));
    LIERNE_TRY(place_passing(b, forwarded));
    LIERNE_TRY(copy_stages(b));
    LIERNE_TRY(add_legs(b, &b->to, false, true));
    LIERNE_TRY(add_legs(b, &b->arrive, false, false));
    LIERNE_TRY(add_legs(b, &b->depart, true, true));
    return add_legs(b, &b->from, true, false);
}

static lierne_status relay_route(lierne_route **route, int64_t *forwarded,
                                 const lierne_relay *relay) {
    builder b = {.relay = relay,
                 .direct = *route,
                 .place = lierne_square_place(&relay->square, (*route)->rank)};
    if (b.place < 0) {
        return LIERNE_OK;
    }
    lierne_status status = build(&b, forwarded);
    lierne_mem_free(b.to.at);
    lierne_mem_free(b.from.at);
    lierne_mem_free(b.arrive.at);
    lierne_mem_free(b.depart.at);
    lierne_route_destroy(status == LIERNE_OK ? *route : b.route);
    if (status == LIERNE_OK) {
        *route = b.route;
    }
    return status;
}

static void mark_peers(bool *marks, const lierne_square *s, const lierne_messages *messages) {
    for (size_t m = 0; m < messages->count; m++) {
        marks[lierne_square_place(s, messages->at[m].peer)] = true;
    }
}

/* marks: of each place, all false before and after. */
static int count_peers(bool *marks, const lierne_square *s, const lierne_route *route) {
    int n = 0;
    for (size_t i = 0; i < route->stages.count; i++) {
        mark_peers(marks, s, &route->stages.at[i].sends);
        mark_peers(marks, s, &route->stages.at[i].recvs);
    }
    for (int place = 0; place < s->n; place++) {
        n += marks[place];
        marks[place] = false;
    }
    return n;
}

/* The most peers that any rank has under direct routes; once above `enough`, any number above it.
 */
static lierne_status find_busiest(int *busiest, const lierne_relay *relay, int enough) {
    const lierne_square *s = &relay->square;
    lierne_status status = LIERNE_OK;
    lierne_route *route;
    bool *marks;
    *busiest = 0;
    LIERNE_TRY(lierne_alloc(&marks, (size_t)s->n, sizeof *marks));
    for (int i = 0; i < s->n && status == LIERNE_OK && *busiest <= enough; i++) {
        status = relay->get(relay->user, s->ranks[i], &route);
        if (status == LIERNE_OK) {
            int n = count_peers(marks, s, route);
            *busiest = n > *busiest ? n : *busiest;
            lierne_route_destroy(route);
        }
    }
    lierne_mem_free(marks);
    return status;
}

lierne_status lierne_route_limit_peers(lierne_route **route, lierne_relayed *result,
                                       const lierne_relay *relay, int max_peers) {
    const lierne_square *s = &relay->square;
    int peers = lierne_square_peers(s);
    *result = (lierne_relayed){.most_peers = s->n > 0 ? s->n - 1 : 0};
    if (s->n - 1 <= max_peers) {
        return LIERNE_OK;
    }
    bool fits = peers <= max_peers;
    LIERNE_TRY(relay->any_peers
                   ? LIERNE_OK
                   : find_busiest(&result->most_peers, relay, fits ? max_peers : s->n));
    if (result->most_peers <= max_peers) {
        return LIERNE_OK;
    }
    if (!fits) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "max_peers is %d, must be at least %d for these %d ranks", max_peers,
                           peers < result->most_peers ? peers : result->most_peers, s->n);
    }
    result->relayed = true;
    result->most_peers = peers;
    return relay_route(route, &result->forwarded, relay);
}
