/* Plans whose segments change, over few peers (route/relay.h).
 *
 * Each direction is filled in as one direct stage; what goes by way of others is then put together
 * to messages of two stages. A rank at which messages stop over works out what its neighbours send
 * from the description that all ranks have, so that an update stays local and no message says how
 * long it is. That costs each update as often as there are neighbours, and the lists of these are
 * in the memory of the rank's own. */
#include "plan/redistribute/varying_plan.h"

#include <string.h>

enum { FIRST_SENDS, FIRST_RECVS, SECOND_SENDS, SECOND_RECVS, LISTS };

static lierne_messages *list_of(lierne_route *route, int list) {
    lierne_stage *stage = &route->stages.at[list >= SECOND_SENDS];
    return list == FIRST_SENDS || list == SECOND_SENDS ? &stage->sends : &stage->recvs;
}

static int place_of(const lierne_varying_plan *v, int rank) {
    return lierne_square_place(&v->square, rank);
}

/* ---- planning ---- */

static lierne_status add_neighbours(lierne_varying_plan *v, const lierne_planner *planner) {
    int own = place_of(v, v->rank);
    for (int place = 0; place < v->square.n; place++) {
        if (place != own && lierne_square_adjacent(&v->square, own, place)) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&v->neighbours, NULL));
            LIERNE_TRY(lierne_varying_neighbour_create(&v->neighbours.at[v->neighbours.count - 1],
                                                       v, planner, v->square.ranks[place]));
        }
    }
    return LIERNE_OK;
}

static bool passes_here(const lierne_varying_plan *v, int from, int to) {
    return lierne_square_stopover(&v->square, place_of(v, from), place_of(v, to)) ==
           place_of(v, v->rank);
}

/* The most elements of a row that a part of a neighbour has for ranks to which they pass here. */
static int64_t find_width(const lierne_varying_plan *v, const lierne_varying_plan *n, int d) {
    const lierne_varying_half *h = &n->ways[d].halves[0];
    size_t nparts = v->states[0].locators[d == LIERNE_DIRECTION_FORWARD].nparts;
    int64_t most = 0;
    for (size_t part = 0; h->first && part < nparts; part++) {
        int64_t width = 0;
        for (size_t k = h->first[part]; k < h->first[part + 1]; k++) {
            const lierne_varying_link *link = &h->links.at[k];
            bool passes = link->peer != n->rank && passes_here(v, n->rank, link->peer);
            width += passes ? link->width : 0;
        }
        most = width > most ? width : most;
    }
    return most;
}

static lierne_status list_passing(lierne_varying_plan *v, int d, int64_t *elements) {
    lierne_varying_relay *relay = v->ways[d].relay;
    int64_t width = 0;
    for (size_t i = 0; i < v->neighbours.count; i++) {
        const lierne_varying_plan *n = v->neighbours.at[i];
        const lierne_messages *counted = &n->ways[d].counted;
        for (size_t m = 0; m < counted->count; m++) {
            const lierne_varying_passing passing = {.counted = &counted->at[m],
                                                    .from = n->rank,
                                                    .to = counted->at[m].peer};
            if (passes_here(v, n->rank, passing.to)) {
                LIERNE_TRY(LIERNE_VEC_PUSH(&relay->passing, passing));
            }
        }
        width += find_width(v, n, d);
    }
    return lierne_varying_count(elements, v, width);
}

/* A message of a list for each hop, unless it continues the message before. */
static lierne_status add_hop(lierne_varying_relay *relay, lierne_messages *messages, int list,
                             int peer, lierne_buffer buffer, lierne_varying_hop hop, bool first) {
    lierne_message *message;
    if (first) {
        LIERNE_TRY(lierne_messages_add(messages, peer, buffer, &message));
    }
    hop.message = (int)messages->count - 1;
    return LIERNE_VEC_PUSH(&relay->hops[list], hop);
}

/* This rank's own messages: those to or from ranks in its row and column are as they were; the
 * others are put together by stopover. */
static lierne_status add_own(const lierne_varying_plan *v, lierne_varying_relay *relay,
                             const lierne_messages *direct, lierne_messages *messages, int list,
                             int over) {
    bool sends = list == FIRST_SENDS, first = true;
    int own = place_of(v, v->rank);
    for (size_t m = 0; m < direct->count; m++) {
        int peer = direct->at[m].peer, other = place_of(v, peer);
        if (lierne_square_stopover(&v->square, sends ? own : other, sends ? other : own) != over) {
            continue;
        }
        const lierne_varying_hop hop = {.direct = over < 0, .from = m};
        LIERNE_TRY(add_hop(relay, messages, list, over < 0 ? peer : v->square.ranks[over],
                           direct->at[m].buffer, hop, over < 0 || first));
        first = false;
    }
    return LIERNE_OK;
}

static lierne_status add_all_own(const lierne_varying_plan *v, lierne_varying_relay *relay,
                                 const lierne_messages *direct, lierne_messages *messages,
                                 int list) {
    for (int over = 0; over < v->square.n; over++) {
        LIERNE_TRY(add_own(v, relay, direct, messages, list, over));
    }
    return LIERNE_OK;
}

/* What passes: it arrives by sender, and leaves by receiver. */
static lierne_status add_passing(const lierne_varying_plan *v, lierne_varying_relay *relay,
                                 lierne_messages *messages, int list) {
    for (int place = 0; place < v->square.n; place++) {
        int peer = v->square.ranks[place];
        bool first = true;
        for (size_t k = 0; k < relay->passing.count; k++) {
            const lierne_varying_passing *p = &relay->passing.at[k];
            if ((list == FIRST_RECVS ? p->from : p->to) == peer) {
                LIERNE_TRY(add_hop(relay, messages, list, peer, LIERNE_BUFFER_SCRATCH,
                                   (lierne_varying_hop){.passes = true, .from = k}, first));
                first = false;
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status alloc_blocks(const lierne_varying_plan *v, int d) {
    const lierne_varying_way *way = &v->ways[d];
    int from = d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    const size_t n[LISTS] = {v->sides[from].most_pieces * way->halves[0].most,
                             way->relay->passing.count, way->relay->passing.count,
                             v->sides[!from].most_pieces * way->halves[1].most};
    for (int list = 0; list < LISTS; list++) {
        LIERNE_TRY(lierne_alloc_unset(&way->relay->blocks[list], n[list],
                                      sizeof *way->relay->blocks[list]));
    }
    return LIERNE_OK;
}

static lierne_status add_lists(lierne_varying_plan *v, int d, lierne_route *route) {
    lierne_varying_relay *relay = v->ways[d].relay;
    const lierne_stage *direct = &relay->direct;
    LIERNE_TRY(add_own(v, relay, &direct->sends, list_of(route, FIRST_SENDS), FIRST_SENDS, -1));
    LIERNE_TRY(add_all_own(v, relay, &direct->sends, list_of(route, FIRST_SENDS), FIRST_SENDS));
    LIERNE_TRY(add_own(v, relay, &direct->recvs, list_of(route, FIRST_RECVS), FIRST_RECVS, -1));
    LIERNE_TRY(add_passing(v, relay, list_of(route, FIRST_RECVS), FIRST_RECVS));
    LIERNE_TRY(add_passing(v, relay, list_of(route, SECOND_SENDS), SECOND_SENDS));
    LIERNE_TRY(add_all_own(v, relay, &direct->recvs, list_of(route, SECOND_RECVS), SECOND_RECVS));
    return alloc_blocks(v, d);
}

lierne_status lierne_varying_relay_create(lierne_varying_plan *v, lierne_plan_parts *parts,
                                          const lierne_planner *planner) {
    LIERNE_TRY(add_neighbours(v, planner));
    for (int d = 0; d < 2; d++) {
        lierne_varying *engine = &v->ways[d].engine;
        lierne_route *route = parts->side[d].route;
        int64_t passing;
        LIERNE_TRY(list_passing(v, d, &passing));
        LIERNE_TRY(add_lists(v, d, route));
        v->ways[d].relay->scratch = engine->scratch;
        engine->sent += passing;
        engine->received += passing;
        engine->scratch += passing;
        route->elements[LIERNE_BUFFER_SCRATCH] = engine->scratch;
        parts->side[d].relayed.relayed = true;
    }
    return LIERNE_OK;
}

void lierne_varying_relay_destroy(lierne_varying_plan *v) {
    for (size_t i = 0; i < v->neighbours.count; i++) {
        lierne_varying_neighbour_destroy(v->neighbours.at[i]);
    }
    lierne_mem_free(v->neighbours.at);
    for (int d = 0; d < 2; d++) {
        lierne_varying_relay *relay = v->ways[d].relay;
        for (int list = 0; relay && list < LISTS; list++) {
            lierne_mem_free(relay->hops[list].at);
            lierne_mem_free(relay->blocks[list]);
        }
        if (relay) {
            lierne_mem_free(relay->direct.sends.at);
            lierne_mem_free(relay->direct.recvs.at);
            lierne_mem_free(relay->passing.at);
        }
        lierne_mem_free(relay);
    }
}

/* ---- an update ---- */

static int64_t place_passing(lierne_varying_relay *relay) {
    int64_t used = 0;
    for (size_t k = 0; k < relay->passing.count; k++) {
        lierne_varying_passing *p = &relay->passing.at[k];
        p->elements = p->counted->elements;
        p->at = relay->scratch + used;
        used += p->elements;
    }
    return used;
}

static void add_to_message(lierne_message *message, const lierne_message *part) {
    if (part->blocks.count > 0) {
        memcpy(message->blocks.at + message->blocks.count, part->blocks.at,
               part->blocks.count * sizeof *part->blocks.at);
    }
    message->blocks.count += part->blocks.count;
    message->elements += part->elements;
}

/* direct: the messages of this rank that a list is made of, or NULL. */
static void fill_list(const lierne_varying_relay *relay, int list, const lierne_messages *direct,
                      lierne_messages *messages) {
    lierne_block *next = relay->blocks[list];
    for (size_t h = 0; h < relay->hops[list].count; h++) {
        const lierne_varying_hop *hop = &relay->hops[list].at[h];
        lierne_message *message = &messages->at[hop->message];
        if (hop->direct) {
            message->blocks = direct->at[hop->from].blocks;
            message->elements = direct->at[hop->from].elements;
            continue;
        }
        if (h == 0 || hop[-1].message != hop->message) {
            message->blocks = (lierne_blocks){.at = next};
            message->elements = 0;
        }
        if (!hop->passes) {
            add_to_message(message, &direct->at[hop->from]);
        } else if (relay->passing.at[hop->from].elements > 0) {
            const lierne_varying_passing *p = &relay->passing.at[hop->from];
            lierne_varying_add_block(message, lierne_block_range(p->at, p->elements));
        }
        next = message->blocks.at + message->blocks.count;
    }
}

void lierne_varying_relay_fill(lierne_varying_plan *v, int d, lierne_plan_side *side) {
    lierne_varying_relay *relay = v->ways[d].relay;
    lierne_stage *stages = side->route->stages.at;
    side->relayed.forwarded = place_passing(relay);
    for (int list = 0; list < LISTS; list++) {
        bool sends = list == FIRST_SENDS || list == SECOND_SENDS;
        fill_list(relay, list, sends ? &relay->direct.sends : &relay->direct.recvs,
                  list_of(side->route, list));
    }
    stages[0].copies = relay->direct.copies;
    stages[1].sums = relay->direct.sums;
}
