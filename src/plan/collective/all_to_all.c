/* The all-to-all: with one count for all pairs of ranks, or with counts that only the sender knows.
 *
 * With counts of its own a rank tells every other one how many elements it will send; ranks that
 * get none are told nothing. A rank may then find, alone, that it expects another number, or run
 * out of memory. It keeps the error until the agreement that makes the plan. */
#include "plan/collective/collective.h"
#include "plan/fields.h"

#include <stdlib.h>

/* What one rank sends to another, and this one passes on in one direction or both: places. */
typedef struct passing {
    int from;
    int to;
    int64_t count;
} passing;

typedef struct planning {
    lierne_all_to_all_spec spec;
    lierne_team team;
    lierne_plan_fields fields;
    int64_t *received; /* from each rank, with counts */
    /* Where messages stop over. */
    int *ranks; /* of the team, ascending */
    lierne_square square;
    LIERNE_VEC(passing) passing; /* with counts */
    int direction;               /* of the side at work */
} planning;

static lierne_status check_lists(const planning *p, int rank) {
    const lierne_all_to_all_spec *s = &p->spec;
    if (s->recv_counts && !s->send_counts) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: recv_counts is set, but send_counts is NULL: set both, or "
                           "send_counts alone",
                           rank);
    }
    if (s->send_counts && p->team.me >= 0) {
        LIERNE_TRY(lierne_collective_check_counts(&p->team, rank, "send_counts", 0, s->send_counts,
                                                  s->dtype));
    }
    return s->recv_counts && p->team.me >= 0
               ? lierne_collective_check_counts(&p->team, rank, "recv_counts", 0, s->recv_counts,
                                                s->dtype)
               : LIERNE_OK;
}

static lierne_status check_counts(planning *p, const lierne_context *context) {
    const lierne_all_to_all_spec *s = &p->spec;
    const lierne_collective common = {.kind = LIERNE_ALL_TO_ALL,
                                      .ranks = s->ranks,
                                      .nranks = s->nranks,
                                      .count = s->send_counts ? 0 : s->count,
                                      .dtype = s->dtype,
                                      .own_counts = s->send_counts != NULL,
                                      .max_inflight = s->max_inflight};
    LIERNE_TRY(lierne_collective_check(&p->team, context, &common));
    LIERNE_TRY(check_lists(p, context->rank));
    LIERNE_TRY(lierne_plan_check_peers(s->max_peers, LIERNE_SHARING_NONE));
    lierne_collective_compare(&p->fields, &p->team, &common);
    lierne_plan_fields_add(&p->fields, "max_peers", s->max_peers);
    return LIERNE_OK;
}

static bool has_relays(const planning *p) {
    return p->spec.max_peers > 0 && p->team.n - 1 > p->spec.max_peers;
}

static int place_of(const planning *p, int i) {
    return lierne_square_place(&p->square, lierne_team_rank(&p->team, i));
}

/* Whether what rank i of the team sends to rank j stops over at k, in either direction. */
static bool passes(const planning *p, int i, int j, int k) {
    int from = place_of(p, i), to = place_of(p, j), over = place_of(p, k);
    return lierne_square_stopover(&p->square, from, to) == over ||
           lierne_square_stopover(&p->square, to, from) == over;
}

/* What rank i is told: how much it gets, and how much of what it passes on goes where. */
static size_t write_words(const planning *p, int i, int64_t *words) {
    size_t n = 0;
    words[n++] = p->spec.send_counts[i];
    bool near = has_relays(p) &&
                lierne_square_adjacent(&p->square, place_of(p, p->team.me), place_of(p, i));
    for (int j = 0; j < p->team.n && near; j++) {
        if (p->spec.send_counts[j] > 0 && passes(p, p->team.me, j, i)) {
            words[n++] = j;
            words[n++] = p->spec.send_counts[j];
        }
    }
    return n;
}

/* messages: space for one to each rank; words: for what they contain. Returns their number. */
static size_t list_messages(const planning *p, lierne_control_message *messages, int64_t *words) {
    size_t n = 0;
    for (int i = 0; i < p->team.n; i++) {
        size_t count = i != p->team.me ? write_words(p, i, words) : 0;
        if (count > 1 || (count == 1 && words[0] > 0)) {
            messages[n++] = (lierne_control_message){lierne_team_rank(&p->team, i), count, words};
            words += count;
        }
    }
    return n;
}

static lierne_status take_messages(planning *p, const lierne_control_messages *messages) {
    p->received[p->team.me] = p->spec.send_counts[p->team.me];
    for (size_t m = 0; m < messages->count; m++) {
        const lierne_control_message *message = &messages->at[m];
        int i = lierne_team_find(&p->team, message->peer);
        p->received[i] = message->words[0];
        for (size_t w = 1; w + 1 < message->count; w += 2) {
            const passing passed = {i, (int)message->words[w], message->words[w + 1]};
            LIERNE_TRY(LIERNE_VEC_PUSH(&p->passing, passed));
        }
    }
    return LIERNE_OK;
}

/* Tells the others what they will receive. A rank without memory takes part without messages. */
static lierne_status exchange(planning *p, lierne_context *context) {
    size_t n = p->team.me >= 0 ? (size_t)p->team.n : 0, sent = 0;
    lierne_control_message *messages = NULL;
    lierne_control_messages arrived = {0};
    int64_t *words = NULL;
    lierne_status status = lierne_alloc(&p->received, n, sizeof *p->received);
    status = status == LIERNE_OK ? lierne_alloc(&messages, n, sizeof *messages) : status;
    /* Each count is told to its receiver, and to at most two ranks that pass it on. */
    status = status == LIERNE_OK ? lierne_alloc(&words, 5 * n, sizeof *words) : status;
    if (status == LIERNE_OK && n > 0) {
        sent = list_messages(p, messages, words);
    }
    lierne_status exchanged = lierne_context_sparse_exchange(context, messages, sent, &arrived);
    status = status == LIERNE_OK ? exchanged : status;
    if (status == LIERNE_OK && n > 0) {
        status = take_messages(p, &arrived);
    }
    lierne_control_messages_destroy(&arrived);
    lierne_mem_free(messages);
    lierne_context_free_message_memory(context, words);
    return status;
}

static lierne_status compare_counts(const planning *p, int rank) {
    const int64_t *expected = p->spec.recv_counts;
    for (int i = 0; i < p->team.n && expected && p->team.me >= 0; i++) {
        if (expected[i] != p->received[i]) {
            return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                               "rank %d: recv_counts[%d] is %lld, but rank %d sends %lld elements "
                               "to this one: they must be the same",
                               rank, i, (long long)expected[i], lierne_team_rank(&p->team, i),
                               (long long)p->received[i]);
        }
    }
    return LIERNE_OK;
}

static lierne_status fill_side(lierne_plan_side *side, const lierne_team *team, const int64_t *sent,
                               const int64_t *received) {
    int64_t own = received[team->me + 1] - received[team->me];
    LIERNE_TRY(lierne_collective_side(side, lierne_team_rank(team, team->me), sent[team->n],
                                      received[team->n], received[team->n] - own));
    return lierne_route_all_to_all(side->route, team, sent, received);
}

/* The direct route of another rank, where all counts are equal. */
static lierne_status equal_route(const planning *p, int i, lierne_route **route) {
    lierne_team team = p->team;
    int64_t *parts;
    team.me = i;
    LIERNE_TRY(lierne_parts_by_count(&parts, team.n, p->spec.count, NULL));
    lierne_status status =
        lierne_route_create(route, lierne_team_rank(&team, i), parts[team.n], parts[team.n]);
    status = status == LIERNE_OK ? lierne_route_all_to_all(*route, &team, parts, parts) : status;
    lierne_mem_free(parts);
    return status;
}

/* As much of another rank's route as this one passes on. */
static lierne_status passing_route(const planning *p, int i, lierne_route **route) {
    bool back = p->direction == LIERNE_DIRECTION_ADJOINT;
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_create(route, lierne_team_rank(&p->team, i), 0, 0));
    LIERNE_TRY(lierne_route_add_stage(*route, &stage));
    for (size_t k = 0; k < p->passing.count; k++) {
        const passing *at = &p->passing.at[k];
        const lierne_block block = lierne_block_range(0, at->count);
        int from = back ? at->to : at->from, to = back ? at->from : at->to;
        if (from == i) {
            LIERNE_TRY(lierne_messages_put(&stage->sends, lierne_team_rank(&p->team, to),
                                           LIERNE_BUFFER_IN, block));
        } else if (to == i) {
            LIERNE_TRY(lierne_messages_put(&stage->recvs, lierne_team_rank(&p->team, from),
                                           LIERNE_BUFFER_OUT, block));
        }
    }
    return LIERNE_OK;
}

static lierne_status route_of(const void *user, int rank, lierne_route **out) {
    const planning *p = user;
    int i = lierne_team_find(&p->team, rank);
    lierne_route *route = NULL;
    lierne_status status =
        p->spec.send_counts ? passing_route(p, i, &route) : equal_route(p, i, &route);
    if (status != LIERNE_OK) {
        lierne_route_destroy(route);
        return status;
    }
    *out = route;
    return LIERNE_OK;
}

static lierne_status limit_peers(lierne_plan_parts *parts, planning *p) {
    const lierne_relay relay = {.square = p->square,
                                .get = route_of,
                                .user = p,
                                .any_peers = p->spec.send_counts || p->spec.count > 0};
    for (int d = 0; d < 2 && p->spec.max_peers > 0; d++) {
        lierne_plan_side *side = &parts->side[d];
        p->direction = d;
        LIERNE_TRY(
            lierne_route_limit_peers(&side->route, &side->relayed, &relay, p->spec.max_peers));
    }
    return LIERNE_OK;
}

static int compare_ranks(const void *a, const void *b) {
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static lierne_status make_square(planning *p) {
    int n = p->spec.max_peers > 0 ? p->team.n : 0;
    LIERNE_TRY(lierne_alloc(&p->ranks, (size_t)n, sizeof *p->ranks));
    for (int i = 0; i < n; i++) {
        p->ranks[i] = lierne_team_rank(&p->team, i);
    }
    qsort(p->ranks, (size_t)n, sizeof *p->ranks, compare_ranks);
    p->square = lierne_square_of(p->ranks, n);
    return LIERNE_OK;
}

static lierne_status fill_sides(lierne_plan_parts *parts, const planning *p) {
    const int64_t *received = p->spec.send_counts ? p->received : NULL;
    int64_t *in, *out = NULL;
    int n = p->team.n;
    LIERNE_TRY(lierne_parts_by_count(&in, n, p->spec.count, p->spec.send_counts));
    lierne_status status = lierne_parts_by_count(&out, n, p->spec.count, received);
    if (status == LIERNE_OK) {
        status = fill_side(&parts->side[LIERNE_DIRECTION_FORWARD], &p->team, in, out);
    }
    if (status == LIERNE_OK) {
        status = fill_side(&parts->side[LIERNE_DIRECTION_ADJOINT], &p->team, out, in);
    }
    lierne_mem_free(in);
    lierne_mem_free(out);
    return status;
}

static lierne_status fill_parts(lierne_plan_parts *parts, planning *p, int rank) {
    parts->kind = "all_to_all";
    parts->dtype = p->spec.dtype;
    parts->max_inflight = p->spec.max_inflight ? p->spec.max_inflight : 1;
    parts->group = p->spec.group;
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        "direct";
    LIERNE_TRY(p->team.me >= 0 ? fill_sides(parts, p)
                               : lierne_collective_absent(parts->side, rank));
    return limit_peers(parts, p);
}

/* The rest of planning with counts of each rank's own. */
static lierne_status plan_together(lierne_plan **out, lierne_context *context, planning *p) {
    const lierne_field field = {.name = "a new plan of an all-to-all"};
    lierne_plan_parts parts = {.waits = true};
    LIERNE_TRY(lierne_context_agree_all(context, LIERNE_OK, p->fields.at, p->fields.count, NULL));
    lierne_status status = exchange(p, context);
    if (context->dead != LIERNE_OK) {
        return status;
    }
    if (status == LIERNE_OK) {
        status = compare_counts(p, context->rank);
    }
    if (status == LIERNE_OK) {
        status = fill_parts(&parts, p, context->rank);
    }
    parts.name = p->spec.name;
    return lierne_plan_new(out, context, status, &parts, &field, 1);
}

static lierne_status plan_alone(lierne_plan **out, lierne_context *context, lierne_status status,
                                planning *p) {
    lierne_plan_parts parts = {0};
    if (status == LIERNE_OK) {
        status = fill_parts(&parts, p, context->rank);
    }
    parts.name = p->spec.name;
    return lierne_plan_new(out, context, status, &parts, p->fields.at, p->fields.count);
}

lierne_status lierne_plan_create_all_to_all(lierne_plan **out, lierne_context *context,
                                            const lierne_all_to_all_spec *given) {
    LIERNE_PUBLIC_CALL();
    planning p = {0};
    LIERNE_TRY(lierne_collective_begin(out, context));
    lierne_status status = lierne_spec_take_at(&p.spec, sizeof p.spec, given, context->rank);
    if (status == LIERNE_OK && !out) {
        status = LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    }
    if (status == LIERNE_OK) {
        status = check_counts(&p, context);
    }
    if (status == LIERNE_OK) {
        status = make_square(&p);
    }
    status = status == LIERNE_OK && p.spec.send_counts ? plan_together(out, context, &p)
                                                       : plan_alone(out, context, status, &p);
    lierne_mem_free(p.received);
    lierne_mem_free(p.ranks);
    lierne_mem_free(p.passing.at);
    return status;
}
