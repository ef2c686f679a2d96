/* From references to a plan.
 *
 * A rank knows whose rows it needs, but not which ranks need its own. So it sends each owner a
 * message with the rows that it needs; the rows that a rank is asked for are the rows that it
 * sends. Between two collective steps a rank may fail alone (a row that it does not have, no
 * memory). It then keeps the failure and takes part in the remaining steps, so that no rank waits
 * for it; the last step returns the failure on every rank. */
#include "layout/layout.h"
#include "plan/sparse/sparse_saved_spec.h"

#include <math.h>
#include <stdio.h>

/* Rejects fields that exclude each other. */
static lierne_status check_buffers(const lierne_references_spec *p, int rank) {
    if (!p->combined && p->keep_ghosts) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: keep_ghosts is set, but combined is not: the adjoint's out "
                           "has no ghosts",
                           rank);
    }
    if (p->combined && p->accumulate) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: combined and accumulate are set: the adjoint of a combined "
                           "buffer adds to in, set one of them",
                           rank);
    }
    if (p->combined && p->algorithm == LIERNE_GRAPH_ALGORITHM_ALL_GATHER) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "rank %d: combined is set, and algorithm is LIERNE_GRAPH_ALGORITHM_ALL_GATHER: "
            "must be LIERNE_GRAPH_ALGORITHM_AUTO or _DIRECT",
            rank);
    }
    return LIERNE_OK;
}

static lierne_status check_layout(const lierne_star_forest_spec *spec, int rank) {
    const lierne_references_spec *p = &spec->references;
    int64_t stride = p->stride ? p->stride : p->width, rows, bytes;
    if (p->width < 1 || stride < p->width) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: width is %lld and stride %lld: width must be at least "
                           "1, stride 0 or at least width",
                           rank, (long long)p->width, (long long)p->stride);
    }
    LIERNE_TRY(lierne_check_dtype(p->dtype, rank));
    if (p->max_inflight < 0 || p->max_inflight > LIERNE_MAX_INFLIGHT) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: max_inflight is %d, must be in 0 to %d",
                           rank, p->max_inflight, LIERNE_MAX_INFLIGHT);
    }
    if (p->algorithm != LIERNE_GRAPH_ALGORITHM_AUTO &&
        p->algorithm != LIERNE_GRAPH_ALGORITHM_DIRECT &&
        p->algorithm != LIERNE_GRAPH_ALGORITHM_ALL_GATHER) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "rank %d: algorithm is %d, must be LIERNE_GRAPH_ALGORITHM_AUTO, _DIRECT or "
            "_ALL_GATHER",
            rank, (int)p->algorithm);
    }
    LIERNE_TRY(check_buffers(p, rank));
    if (p->nowned < 0 || p->nghosts < 0 || !lierne_add_i64(p->nowned, p->nghosts, &rows) ||
        !lierne_mul_i64(rows, stride, &rows) ||
        !lierne_mul_i64(rows, (int64_t)lierne_dtype_size(p->dtype), &bytes)) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "rank %d: %lld owned rows and %lld ghosts, %lld elements "
                           "apart, are negative or do not fit",
                           rank, (long long)p->nowned, (long long)p->nghosts, (long long)stride);
    }
    return LIERNE_OK;
}

static lierne_status check_references(const lierne_references_spec *p,
                                      const lierne_context *context) {
    if (p->nghosts > 0 && (!p->rank || !p->row)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s is NULL", context->rank,
                           p->rank ? "row" : "rank");
    }
    for (int64_t k = 0; k < p->nghosts; k++) {
        bool as_last = k > 0 && p->rank[k] == p->rank[k - 1];
        if (!as_last && lierne_context_index(context, p->rank[k]) < 0) {
            char members[LIERNE_MEMBERS_TEXT];
            lierne_members_print(members, sizeof members, &context->members);
            return LIERNE_FAIL(LIERNE_ERR_PEER_RANGE,
                               "rank %d: ghost %lld is of rank %d, which must be %s", context->rank,
                               (long long)k, (int)p->rank[k], members);
        }
    }
    return LIERNE_OK;
}

/* Planning on this rank. */
typedef struct planning {
    lierne_context *context;
    const lierne_star_forest_spec *spec;
    lierne_status status;
    char message[LIERNE_MESSAGE_SIZE];
    bool gathers;
    int64_t *nowned_of; /* of all members, for an all-gather */
    lierne_star_forest_saved_spec *saved;
    lierne_plan_parts parts;
} planning;

/* Only the first failure of this rank is reported. */
static void note(planning *p, lierne_status status) {
    if (p->status == LIERNE_OK && status != LIERNE_OK) {
        p->status = status;
        snprintf(p->message, sizeof p->message, "%s", lierne_error_text());
    }
}

/* A sparse exchange without memory for what arrived did not disturb the other ranks: the failure is
 * this rank's own. */
static lierne_status note_memory(planning *p, lierne_status status) {
    if (status != LIERNE_ERR_NO_MEMORY) {
        return status;
    }
    note(p, status);
    return LIERNE_OK;
}

static lierne_status prepare_sparse(planning *p) {
    const lierne_references_spec *references = &p->spec->references;
    lierne_star_forest_saved_spec *saved = NULL;
    lierne_status status = check_layout(p->spec, p->context->rank);
    if (status == LIERNE_OK && !p->spec->owner) { /* those of a graph were checked */
        status = check_references(references, p->context);
    }
    if (status == LIERNE_OK) {
        status = lierne_star_forest_saved_spec_create(&saved, p->spec, p->context);
    }
    LIERNE_TRY(status);
    p->saved = saved;
    p->parts.saved_spec = &saved->base;
    return p->spec->migrates
               ? lierne_star_forest_leave(&saved->forest, p->context, p->spec->to)
               : lierne_star_forest_sort(&saved->forest, references->rank, references->row);
}

/* The owners of a spec that was rejected may be fewer than it says, and are not read. */
static void list_fields(const planning *p, lierne_plan_fields *fields) {
    const lierne_star_forest_spec *s = p->spec;
    bool reads = s->owner && p->status == LIERNE_OK;
    lierne_plan_fields_add(fields, "planning of rows", 0);
    lierne_spec_table_compare(&lierne_references_table, &s->references, fields);
    lierne_plan_fields_add(fields, "migration", s->migrates);
    lierne_plan_fields_add(fields, "nrows", s->nrows);
    lierne_plan_fields_add_list(fields, "owner", LIERNE_ITEM_I32, s->owner,
                                reads ? (size_t)s->nrows : 0);
}

/* Messages with the rows needed of each owner, or with those that each receiver will get; they
 * point into the forest. */
static lierne_status write_messages(const lierne_star_forest *f,
                                    lierne_control_messages *messages) {
    const lierne_peers *peers = f->migrates ? &f->receivers : &f->senders;
    for (size_t s = 0; s < peers->count; s++) {
        const lierne_peer_rows *peer = &peers->at[s];
        lierne_control_message message = {peer->rank, (size_t)peer->count,
                                          (f->migrates ? f->sent : f->row) + peer->first};
        LIERNE_TRY(LIERNE_VEC_PUSH(messages, message));
    }
    return LIERNE_OK;
}

static lierne_status check_message(const lierne_star_forest *f,
                                   const lierne_control_message *message) {
    for (size_t i = 0; i < message->count; i++) {
        if (message->words[i] < 0 || message->words[i] >= f->nowned) {
            return LIERNE_FAIL(LIERNE_ERR_INDEX_RANGE,
                               "rank %d references row %lld of rank %d, must be in 0 to "
                               "%lld",
                               message->peer, (long long)message->words[i], f->rank,
                               (long long)f->nowned - 1);
        }
    }
    return LIERNE_OK;
}

/* Rows that other ranks ask for become the rows sent to them; own messages are only checked. */
static lierne_status take_requests(lierne_star_forest *f, const lierne_control_messages *messages) {
    int64_t n = 0;
    for (size_t i = 0; i < messages->count; i++) {
        n += (int64_t)messages->at[i].count;
    }
    LIERNE_TRY(lierne_alloc_unset(&f->sent, (size_t)n, sizeof *f->sent));
    for (size_t i = 0; i < messages->count; i++) {
        const lierne_control_message *message = &messages->at[i];
        LIERNE_TRY(check_message(f, message));
        if (message->peer != f->rank) {
            lierne_peer_rows receiver = {message->peer, f->nsent, (int64_t)message->count};
            LIERNE_TRY(LIERNE_VEC_PUSH(&f->receivers, receiver));
            memcpy(f->sent + f->nsent, message->words, message->count * sizeof *message->words);
            f->nsent += receiver.count;
        }
    }
    return LIERNE_OK;
}

static lierne_status take_messages(const planning *p, const lierne_control_messages *messages) {
    lierne_star_forest *f = &p->saved->forest;
    int64_t size = (int64_t)lierne_dtype_size(p->spec->references.dtype);
    return f->migrates ? lierne_star_forest_arrive(f, messages, size) : take_requests(f, messages);
}

/* Collective: whether the ranks plan the same and none has failed, and the rows that they exchange.
 * Returns what the ranks agreed on, or a failure of the control; what fails then is noted. */
static lierne_status exchange_rows(planning *p) {
    lierne_control_messages messages = {0}, received = {0};
    lierne_star_forest *f = p->saved ? &p->saved->forest : NULL;
    lierne_plan_fields fields = {0};
    lierne_status memory;
    list_fields(p, &fields);
    if (p->status == LIERNE_OK) {
        note(p, write_messages(f, &messages));
    }
    const lierne_control_agreement agreement = {p->status, fields.at, fields.count};
    lierne_status status =
        lierne_context_agree_exchange(p->context, &agreement, messages.at,
                                      p->status == LIERNE_OK ? messages.count : 0, &received,
                                      &memory);
    lierne_mem_free(messages.at);
    if (status == LIERNE_OK) {
        note(p, memory == LIERNE_OK ? take_messages(p, &received) : memory);
    }
    lierne_control_messages_destroy(&received);
    if (status != LIERNE_OK && f) {
        int64_t **rows = f->migrates ? &f->sent : &f->row; /* the memory of the messages */
        lierne_context_free_message_memory(p->context, *rows);
        *rows = NULL;
    }
    return status;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Cost of an execution on this rank in picoseconds: that of sending or of receiving, whichever is
 * more. */
static int64_t cost(int64_t messages, double rows, const lierne_references_spec *references) {
    double bytes = rows * (double)references->width * (double)lierne_dtype_size(references->dtype);
    double seconds = (double)messages * LIERNE_MESSAGE_SECONDS + bytes * LIERNE_BYTE_SECONDS;
    return (int64_t)fmin(seconds * 1e12, 9e18);
}

static int64_t own_roots(const lierne_star_forest *f) {
    const lierne_peer_rows *own = lierne_star_forest_own(f);
    return own ? own->count : 0;
}

static int64_t direct_cost(const lierne_star_forest *f, const lierne_references_spec *references) {
    int64_t received = f->nroots - own_roots(f);
    int64_t senders = (int64_t)f->senders.count - (own_roots(f) > 0);
    return cost(most(senders, (int64_t)f->receivers.count), (double)most(received, f->nsent),
                references);
}

static int64_t gather_steps(int nranks) {
    int64_t steps = 0;
    for (int64_t here = 1; here < nranks; here *= 2) {
        steps++;
    }
    return steps;
}

/* Collective if the choice is open: each algorithm costs what it costs on the rank where it costs
 * most. With two ranks an all-gather never has fewer messages or rows. */
static lierne_status choose_algorithm(planning *p) {
    const lierne_references_spec *references = &p->spec->references;
    int nranks = p->context->members.count;
    if (references->algorithm != LIERNE_GRAPH_ALGORITHM_AUTO || references->combined ||
        nranks <= 2) {
        p->gathers = references->algorithm == LIERNE_GRAPH_ALGORITHM_ALL_GATHER && nranks > 1;
        return LIERNE_OK;
    }
    bool ok = p->status == LIERNE_OK;
    int64_t values[2] = {ok ? direct_cost(&p->saved->forest, references) : 0,
                         ok ? references->nowned : 0};
    LIERNE_TRY(lierne_context_allreduce_max(p->context, values, 2));
    double rows = (double)values[1] * (nranks - 1);
    p->gathers = cost(gather_steps(nranks), rows, references) < values[0];
    return LIERNE_OK;
}

/* Collective: the number of rows of every rank, for an all-gather. */
static lierne_status exchange_sizes(planning *p) {
    lierne_control_message *messages = NULL;
    lierne_control_messages received = {0};
    int64_t *nowned = NULL;
    const lierne_members *members = &p->context->members;
    size_t n = (size_t)members->count;
    if (!p->gathers) {
        return LIERNE_OK;
    }
    note(p, lierne_alloc(&messages, n, sizeof *messages));
    note(p, lierne_alloc(&nowned, 1, sizeof *nowned));
    note(p, lierne_alloc(&p->nowned_of, n, sizeof *p->nowned_of));
    bool allocated = messages && nowned;
    for (size_t i = 0; allocated && i < n; i++) {
        *nowned = p->spec->references.nowned;
        messages[i] = (lierne_control_message){lierne_members_rank(members, (int)i), 1, nowned};
    }
    lierne_status status =
        lierne_context_sparse_exchange(p->context, messages, allocated ? n : 0, &received);
    for (size_t i = 0; p->nowned_of && i < received.count; i++) {
        p->nowned_of[lierne_members_index(members, received.at[i].peer)] = received.at[i].words[0];
    }
    lierne_control_messages_destroy(&received);
    lierne_mem_free(messages);
    lierne_context_free_message_memory(p->context, nowned);
    return note_memory(p, status);
}

lierne_status lierne_star_forest_start_side(const lierne_star_forest *f, lierne_plan_side *side,
                                            int64_t in, int64_t out, bool written) {
    side->naxes = 2;
    side->in[0] = in;
    side->out[0] = out;
    side->in[1] = side->out[1] = f->width;
    LIERNE_TRY(lierne_route_create(&side->route, f->rank, lierne_star_forest_elements(f, in),
                                   lierne_star_forest_elements(f, out)));
    lierne_block all = lierne_block_rows(0, out, f->width, f->stride);
    return out > 0 && written ? LIERNE_VEC_PUSH(&side->owned, all) : LIERNE_OK;
}

/* Whether the bytes of all that this rank sends, receives, stages and sums can be counted. */
static lierne_status check_volume(const planning *p) {
    const lierne_star_forest *f = &p->saved->forest;
    int64_t rows = f->nghosts, size = (int64_t)lierne_dtype_size(p->spec->references.dtype), bytes;
    bool fits = lierne_add_i64(rows, f->nsent, &rows);
    for (int i = 0; p->gathers && fits && i < p->context->members.count; i++) {
        fits = lierne_add_i64(rows, p->nowned_of[i], &rows);
    }
    if (!fits || !lierne_mul_i64(rows, f->width, &bytes) || bytes > INT64_MAX / 4 / size) {
        return LIERNE_FAIL(
            LIERNE_ERR_COUNT_RANGE,
            "rank %d: bytes of %lld rows of width %lld, which it and others need, do "
            "not fit",
            f->rank, (long long)rows, (long long)f->width);
    }
    return LIERNE_OK;
}

static lierne_status fill_routes(planning *p) {
    const lierne_star_forest *f = &p->saved->forest;
    lierne_plan_side *forward = &p->parts.side[LIERNE_DIRECTION_FORWARD];
    lierne_plan_side *adjoint = &p->parts.side[LIERNE_DIRECTION_ADJOINT];
    int64_t owned = f->nowned, ghosts = f->nghosts, all = owned + ghosts;
    LIERNE_TRY(check_volume(p));
    LIERNE_TRY(lierne_star_forest_start_side(f, forward, f->combined ? all : owned,
                                             f->combined ? all : ghosts, true));
    LIERNE_TRY(lierne_star_forest_start_side(f, adjoint, f->combined ? all : ghosts,
                                             f->combined ? all : owned, !f->accumulate));
    forward->min_elements = (f->nroots - own_roots(f)) * f->width;
    adjoint->min_elements = f->nsent * f->width;
    LIERNE_TRY(p->gathers ? lierne_star_forest_all_gather(f, forward->route, &p->context->members,
                                                          p->nowned_of)
                          : lierne_star_forest_forward(f, forward->route));
    return f->migrates ? lierne_star_forest_way_back(f, adjoint->route)
                       : lierne_star_forest_adjoint(f, adjoint->route);
}

static void fill_parts(planning *p) {
    const lierne_references_spec *references = &p->spec->references;
    const lierne_star_forest *f = &p->saved->forest;
    p->parts.kind = f->migrates ? "migration" : p->spec->nrows < 0 ? "references" : "graph";
    p->parts.dtype = references->dtype;
    p->parts.max_inflight = references->max_inflight;
    p->parts.group = references->group;
    p->parts.algorithm[LIERNE_DIRECTION_FORWARD] =
        lierne_graph_algorithm_names[p->gathers ? LIERNE_GRAPH_ALGORITHM_ALL_GATHER
                                                : LIERNE_GRAPH_ALGORITHM_DIRECT];
    p->parts.algorithm[LIERNE_DIRECTION_ADJOINT] =
        lierne_graph_algorithm_names[LIERNE_GRAPH_ALGORITHM_DIRECT];
    p->parts.in_place = f->combined;
    p->parts.rows = !f->migrates;
    p->parts.row = (lierne_plan_rows){f->width, f->stride, f->stride};
    p->parts.waits = true;
    p->parts.accumulate = references->accumulate != 0;
    note(p, lierne_star_forest_saved_spec_list(p->saved));
    note(p, p->status == LIERNE_OK ? fill_routes(p) : LIERNE_OK);
}

/* All steps but the last one, which makes the plan: p->status is this rank's contribution to it. */
static lierne_status plan_together(planning *p) {
    if (p->status == LIERNE_OK) {
        note(p, prepare_sparse(p));
    }
    LIERNE_TRY(exchange_rows(p));
    LIERNE_TRY(choose_algorithm(p));
    LIERNE_TRY(exchange_sizes(p));
    if (p->status == LIERNE_OK) {
        fill_parts(p);
    }
    if (p->status != LIERNE_OK) {
        lierne_set_error(p->message);
    }
    return LIERNE_OK;
}

static lierne_status plan_all(planning *p, lierne_context *context, lierne_status status,
                              const lierne_star_forest_spec *spec) {
    lierne_star_forest_spec plain = *spec;
    plain.references.max_inflight += plain.references.max_inflight == 0; /* 0 means 1 */
    p->context = context;
    p->spec = &plain;
    note(p, status);
    status = plan_together(p);
    lierne_mem_free(p->nowned_of);
    if (status != LIERNE_OK) {
        lierne_plan_parts_free(context, &p->parts);
    }
    return status;
}

lierne_status lierne_plan_star_forest(lierne_plan **out, lierne_context *context,
                                      lierne_status status, const lierne_star_forest_spec *spec) {
    const lierne_field field = {.name = "a new plan of rows"};
    planning p = {0};
    LIERNE_TRY(plan_all(&p, context, status, spec));
    p.parts.name = spec->references.name;
    return lierne_plan_new(out, context, p.status, &p.parts, &field, 1);
}

lierne_status lierne_plan_update_star_forest(lierne_plan *plan, lierne_status status,
                                             const lierne_star_forest_spec *spec) {
    const lierne_field fields[] = {{.name = "new rows of a plan"},
                                   {.name = "plan", .value = lierne_plan_get_number(plan)}};
    planning p = {0};
    LIERNE_TRY(plan_all(&p, lierne_plan_context(plan), status, spec));
    return lierne_plan_replace(plan, p.status, &p.parts, fields, 2);
}

lierne_status lierne_coalesced_update_star_forest(lierne_coalesced *coalesced,
                                                  const lierne_plan *plan, lierne_status status,
                                                  const lierne_star_forest_spec *spec) {
    const lierne_field fields[] = {{.name = "new rows of coalesced plans"},
                                   {.name = "plan",
                                    .value = plan ? lierne_plan_get_number(plan) : -1}};
    planning p = {0};
    LIERNE_TRY(plan_all(&p, lierne_coalesced_context(coalesced), status, spec));
    return lierne_coalesced_replace(coalesced, plan, p.status, &p.parts, fields, 2);
}
