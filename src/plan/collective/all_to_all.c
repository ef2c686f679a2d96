/* The all-to-all: with one count for all pairs of ranks, or with counts that only the sender knows.
 *
 * With counts of its own a rank tells every other one how many elements it will send; ranks that
 * get none are told nothing. A rank may then find, alone, that it expects another number, or run
 * out of memory. It keeps the error until the agreement that makes the plan. */
#include "plan/collective/collective.h"

typedef struct planning {
    lierne_all_to_all_spec spec;
    lierne_team team;
    lierne_plan_fields fields;
    int64_t *received; /* from each rank, with counts */
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
    lierne_collective_compare(&p->fields, &p->team, &common);
    return LIERNE_OK;
}

/* messages: space for one to each rank; words: for what they contain. Returns their number. */
static size_t list_messages(const planning *p, lierne_control_message *messages, int64_t *words) {
    size_t n = 0;
    for (int i = 0; i < p->team.n; i++) {
        if (i != p->team.me && p->spec.send_counts[i] > 0) {
            words[n] = p->spec.send_counts[i];
            messages[n] = (lierne_control_message){lierne_team_rank(&p->team, i), 1, &words[n]};
            n++;
        }
    }
    return n;
}

static void take_messages(planning *p, const lierne_control_messages *messages) {
    p->received[p->team.me] = p->spec.send_counts[p->team.me];
    for (size_t m = 0; m < messages->count; m++) {
        int i = lierne_team_find(&p->team, messages->at[m].peer);
        p->received[i] = messages->at[m].words[0];
    }
}

/* Tells the others what they will receive. A rank without memory takes part without messages. */
static lierne_status exchange(planning *p, lierne_context *context) {
    size_t n = p->team.me >= 0 ? (size_t)p->team.n : 0, sent = 0;
    lierne_control_message *messages = NULL;
    lierne_control_messages arrived = {0};
    int64_t *words = NULL;
    lierne_status status = lierne_alloc(&p->received, n, sizeof *p->received);
    status = status == LIERNE_OK ? lierne_alloc(&messages, n, sizeof *messages) : status;
    status = status == LIERNE_OK ? lierne_alloc(&words, n, sizeof *words) : status;
    if (status == LIERNE_OK && n > 0) {
        sent = list_messages(p, messages, words);
    }
    lierne_status exchanged = lierne_context_sparse_exchange(context, messages, sent, &arrived);
    status = status == LIERNE_OK ? exchanged : status;
    if (status == LIERNE_OK && n > 0) {
        take_messages(p, &arrived);
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

static lierne_status fill_parts(lierne_plan_parts *parts, const planning *p, int rank) {
    parts->kind = "all_to_all";
    parts->dtype = p->spec.dtype;
    parts->max_inflight = p->spec.max_inflight ? p->spec.max_inflight : 1;
    parts->group = p->spec.group;
    parts->algorithm[LIERNE_DIRECTION_FORWARD] = parts->algorithm[LIERNE_DIRECTION_ADJOINT] =
        "direct";
    return p->team.me >= 0 ? fill_sides(parts, p) : lierne_collective_absent(parts->side, rank);
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
    return lierne_plan_new(out, context, status, &parts, &field, 1);
}

static lierne_status plan_alone(lierne_plan **out, lierne_context *context, lierne_status status,
                                const planning *p) {
    lierne_plan_parts parts = {0};
    if (status == LIERNE_OK) {
        status = fill_parts(&parts, p, context->rank);
    }
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
    status = status == LIERNE_OK && p.spec.send_counts ? plan_together(out, context, &p)
                                                       : plan_alone(out, context, status, &p);
    lierne_mem_free(p.received);
    return status;
}
