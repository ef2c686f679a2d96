/* What a delta executes: plans made from the route of its plan. Blocks keep the lists of rows of
 * that route, which the delta holds. */
#include "plan/redistribute/delta_plans.h"

#include "lierne/collective.h"
#include "plan/redistribute/changes.h"

static const char no_adjoint[] = "a part of a delta moves forward only";

/* --- what it is made of ------------------------------------------------------------------- */

static lierne_status check_route(const lierne_plan *plan, const lierne_route *route) {
    const lierne_stage *stage = route->stages.count > 0 ? &route->stages.at[0] : NULL;
    bool direct =
        route->stages.count <= 1 && (!stage || (stage->sums.count == 0 && stage->group < 0));
    for (size_t m = 0; direct && stage && m < stage->sends.count; m++) {
        direct = stage->sends.at[m].buffer == LIERNE_BUFFER_IN;
    }
    for (size_t m = 0; direct && stage && m < stage->recvs.count; m++) {
        direct = stage->recvs.at[m].buffer == LIERNE_BUFFER_OUT;
    }
    if (plan->parts.side[LIERNE_DIRECTION_FORWARD].varying) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: the segments of the plan change: it has no last version",
                           plan->context->rank);
    }
    if (plan->parts.side[LIERNE_DIRECTION_FORWARD].shared) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: the plan owns its output, which ranks of a node share",
                           plan->context->rank);
    }
    return direct ? LIERNE_OK
                  : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                                "rank %d: the plan's forward (%s) sums or takes several stages: "
                                "its messages are not parts of its input",
                                plan->context->rank, plan->parts.kind);
}

/* A device keeps its elements itself. */
static lierne_status open_half(lierne_delta *d, lierne_delta_half *h,
                               const lierne_messages *messages) {
    size_t n = messages ? messages->count : 0;
    h->n = n;
    LIERNE_TRY(lierne_alloc(&h->peers, n + 1, sizeof *h->peers));
    LIERNE_TRY(lierne_alloc(&h->first, n + 1, sizeof *h->first));
    LIERNE_TRY(lierne_alloc(&h->at, n + 1, sizeof *h->at));
    LIERNE_TRY(lierne_alloc(&h->headers, LIERNE_DELTA_HEADER * n + 1, sizeof *h->headers));
    LIERNE_TRY(lierne_alloc(&h->blocks, n + 1, sizeof *h->blocks));
    for (size_t m = 0; m < n; m++) {
        int64_t elements = messages->at[m].elements;
        h->peers[m] = messages->at[m].peer;
        h->first[m + 1] = h->first[m] + elements;
        h->at[m + 1] =
            h->at[m] + (int64_t)lierne_changes_bound((size_t)elements * d->per, d->element);
    }
    if (!d->control.change) {
        LIERNE_TRY(lierne_alloc(&h->packed, (size_t)h->first[n] * d->per + 1, d->element));
    }
    return lierne_alloc(&h->bytes, (size_t)h->at[n] + 1, 1);
}

static void close_half(lierne_delta_half *h) {
    lierne_mem_free(h->peers);
    lierne_mem_free(h->first);
    lierne_mem_free(h->at);
    lierne_mem_free(h->headers);
    lierne_mem_free(h->blocks);
    lierne_mem_free(h->packed);
    lierne_mem_free(h->bytes);
}

/* Codes compare elements of at most 8 bytes. */
lierne_status lierne_delta_open(lierne_delta *d) {
    const lierne_route *route = lierne_plan_route(d->of, LIERNE_DIRECTION_FORWARD);
    const lierne_stage *stage = route->stages.count > 0 ? &route->stages.at[0] : NULL;
    size_t size = lierne_dtype_size(d->of->parts.dtype);
    LIERNE_TRY(check_route(d->of, route));
    d->element = size < 8 ? size : 8;
    d->per = size / d->element;
    LIERNE_TRY(open_half(d, &d->sends, stage ? &stage->sends : NULL));
    LIERNE_TRY(open_half(d, &d->recvs, stage ? &stage->recvs : NULL));
    LIERNE_TRY(lierne_alloc(&d->piece, 2, LIERNE_CHANGE_BYTES));
    LIERNE_TRY(lierne_alloc(&d->hashes, d->sends.n + 1, sizeof *d->hashes));
    LIERNE_TRY(lierne_alloc(&d->said, LIERNE_DELTA_WORDS * (size_t)d->context->members.count,
                            sizeof *d->said));
    d->report.dense_bytes = d->sends.first[d->sends.n] * (int64_t)size;
    d->report.memory_bytes = d->report.dense_bytes + d->recvs.first[d->recvs.n] * (int64_t)size +
                             2 * (d->sends.at[d->sends.n] + d->recvs.at[d->recvs.n]);
    d->kept = d->held = LIERNE_DELTA_UNKNOWN;
    return d->control.used ? lierne_delta_open_control(d) : LIERNE_OK;
}

void lierne_delta_close(lierne_delta *d) {
    lierne_delta_close_control(d);
    close_half(&d->sends);
    close_half(&d->recvs);
    lierne_mem_free(d->piece);
    lierne_mem_free(d->hashes);
    lierne_mem_free(d->said);
}

/* The hash of n bytes that were sent, a piece at a time as lierne_delta_encode has it. */
static uint64_t hash_sent(const char *at, size_t n) {
    uint64_t hash = 0;
    for (size_t i = 0; i < n; i += LIERNE_CHANGE_BYTES) {
        size_t left = n - i;
        hash = lierne_hash(hash, at + i, left < LIERNE_CHANGE_BYTES ? left : LIERNE_CHANGE_BYTES);
    }
    return hash;
}

void lierne_delta_keep_nothing(lierne_delta *d) {
    size_t size = d->element * d->per;
    for (size_t m = 0; d->sends.packed && m < d->sends.n; m++) {
        size_t first = (size_t)d->sends.first[m] * size, end = (size_t)d->sends.first[m + 1] * size;
        d->hashes[m] = hash_sent(d->sends.packed + first, end - first);
    }
    d->report.memory_bytes -= d->sends.packed ? d->report.dense_bytes : 0;
    lierne_mem_free(d->sends.packed);
    d->sends.packed = NULL;
}

/* --- plans -------------------------------------------------------------------------------- */

/* A route between buffers of so many elements, with a stage. */
static lierne_status begin_side(lierne_plan_side *side, lierne_stage **stage, int rank, int64_t in,
                                int64_t out) {
    side->naxes = 1;
    side->in[0] = in;
    side->out[0] = out;
    LIERNE_TRY(lierne_route_create(&side->route, rank, in, out));
    return lierne_route_add_stage(side->route, stage);
}

typedef struct part {
    int64_t in, out;
    lierne_dtype dtype;
    lierne_status (*fill)(const lierne_delta *d, lierne_stage *stage);
    const lierne_varying *varying; /* of both directions, or NULL */
    bool in_place;
} part;

static lierne_status fill_parts(lierne_plan_parts *parts, const lierne_delta *d, const part *p) {
    lierne_stage *stages[2];
    parts->kind = "delta";
    parts->dtype = p->dtype;
    parts->max_inflight = 1;
    parts->algorithm[0] = parts->algorithm[1] = "direct";
    parts->no_adjoint = no_adjoint;
    parts->in_place = p->in_place;
    LIERNE_TRY(begin_side(&parts->side[0], &stages[0], d->context->rank, p->in, p->out));
    LIERNE_TRY(begin_side(&parts->side[1], &stages[1], d->context->rank, p->out, p->in));
    parts->side[0].varying = p->varying;
    parts->side[1].varying = p->varying ? p->varying + 1 : NULL;
    parts->side[0].route->dtype = parts->side[1].route->dtype = p->dtype;
    return p->fill(d, stages[0]);
}

/* The blocks of what varies are the delta's: its routes must not free them. */
static lierne_status create_plan(lierne_delta *d, lierne_status status, const part *p) {
    const lierne_field field = {.name = "lierne_delta_create", .value = d->control.used};
    lierne_plan_parts parts = {0};
    if (status == LIERNE_OK) {
        status = fill_parts(&parts, d, p);
    }
    for (int k = 0; p->varying && k < 2 && parts.side[k].route; k++) {
        lierne_route_lend(parts.side[k].route);
    }
    parts.name = lierne_plan_get_name(d->of);
    LIERNE_TRY(lierne_plan_new(&d->plans[d->nplans], d->context, status, &parts, &field, 1));
    lierne_plan_own(d->plans[d->nplans++]);
    return LIERNE_OK;
}

const lierne_stage *lierne_delta_stage(const lierne_plan *plan) {
    const lierne_route *route = lierne_plan_route(plan, LIERNE_DIRECTION_FORWARD);
    return route->stages.count > 0 ? &route->stages.at[0] : NULL;
}

static lierne_status fill_copies(const lierne_delta *d, lierne_stage *stage) {
    const lierne_stage *from = lierne_delta_stage(d->of);
    return from ? lierne_ops_append(&stage->copies, &from->copies) : LIERNE_OK;
}

/* Between the blocks of messages and the packed elements. */
static lierne_status copy_messages(lierne_ops *ops, const lierne_messages *messages, bool packs) {
    int64_t at = 0;
    for (size_t m = 0; m < messages->count; m++) {
        const lierne_blocks *blocks = &messages->at[m].blocks;
        for (size_t b = 0; b < blocks->count; b++) {
            lierne_block packed = lierne_block_packed(&blocks->at[b], at);
            const lierne_place from =
                lierne_place_at(LIERNE_BUFFER_IN, packs ? blocks->at[b] : packed);
            LIERNE_TRY(
                lierne_ops_put(ops,
                               lierne_place_at(LIERNE_BUFFER_OUT, packs ? packed : blocks->at[b]),
                               false, &from, 1));
            at += lierne_block_elements(&blocks->at[b]);
        }
    }
    return LIERNE_OK;
}

static lierne_status fill_packing(const lierne_delta *d, lierne_stage *stage) {
    const lierne_stage *from = lierne_delta_stage(d->of);
    return from ? copy_messages(&stage->copies, &from->sends, true) : LIERNE_OK;
}

static lierne_status fill_unpacking(const lierne_delta *d, lierne_stage *stage) {
    const lierne_stage *from = lierne_delta_stage(d->of);
    return from ? copy_messages(&stage->copies, &from->recvs, false) : LIERNE_OK;
}

static lierne_status put_headers(lierne_messages *messages, const lierne_delta_half *h,
                                 lierne_buffer buffer) {
    for (size_t m = 0; m < h->n; m++) {
        LIERNE_TRY(lierne_messages_put(messages, h->peers[m], buffer,
                                       lierne_block_range((int64_t)m * LIERNE_DELTA_HEADER,
                                                          LIERNE_DELTA_HEADER)));
    }
    return LIERNE_OK;
}

static lierne_status fill_headers(const lierne_delta *d, lierne_stage *stage) {
    LIERNE_TRY(put_headers(&stage->sends, &d->sends, LIERNE_BUFFER_IN));
    return put_headers(&stage->recvs, &d->recvs, LIERNE_BUFFER_OUT);
}

void lierne_delta_set_length(lierne_message *message, const lierne_delta_half *h, size_t m,
                             int64_t bytes) {
    h->blocks[m] = lierne_block_range(h->at[m], bytes);
    message->blocks = (lierne_blocks){.at = &h->blocks[m], .count = bytes > 0};
    message->elements = bytes;
}

static lierne_status put_payload(lierne_messages *messages, const lierne_delta_half *h,
                                 lierne_buffer buffer) {
    for (size_t m = 0; m < h->n; m++) {
        lierne_message *message;
        LIERNE_TRY(lierne_messages_add(messages, h->peers[m], buffer, &message));
        lierne_delta_set_length(message, h, m, 0);
    }
    return LIERNE_OK;
}

static lierne_status fill_payload(const lierne_delta *d, lierne_stage *stage) {
    LIERNE_TRY(put_payload(&stage->sends, &d->sends, LIERNE_BUFFER_IN));
    return put_payload(&stage->recvs, &d->recvs, LIERNE_BUFFER_OUT);
}

static void open_engines(lierne_delta *d, int64_t sent, int64_t received) {
    for (int k = 0; k < 2; k++) {
        d->engines[k] = (lierne_varying){.predecessor = -1, .successor = -1};
    }
    d->engines[0].sent = sent;
    d->engines[0].received = received;
}

static lierne_status create_versions(lierne_delta *d) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = LIERNE_DELTA_WORDS,
                                         .dtype = LIERNE_DTYPE_I64};
    LIERNE_TRY(lierne_plan_create_all_gather(&d->plans[LIERNE_DELTA_VERSIONS], d->context, &spec));
    lierne_plan_own(d->plans[d->nplans++]);
    return LIERNE_OK;
}

lierne_status lierne_delta_create_plans(lierne_delta *d, lierne_status status) {
    const lierne_route *route = lierne_plan_route(d->of, LIERNE_DIRECTION_FORWARD);
    lierne_dtype dtype = d->of->parts.dtype;
    int64_t in = route->elements[LIERNE_BUFFER_IN], out = route->elements[LIERNE_BUFFER_OUT];
    bool opened = status == LIERNE_OK;
    int64_t sent = opened ? d->sends.first[d->sends.n] : 0;
    int64_t received = opened ? d->recvs.first[d->recvs.n] : 0;
    open_engines(d, opened ? d->sends.at[d->sends.n] : 0, opened ? d->recvs.at[d->recvs.n] : 0);
    const part packing = {in, sent, dtype, fill_packing, NULL, false};
    const part parts[] = {
        {in, out, dtype, fill_copies, NULL, d->of->parts.in_place},
        {received, out, dtype, fill_unpacking, NULL, false},
        {(int64_t)d->sends.n * LIERNE_DELTA_HEADER, (int64_t)d->recvs.n * LIERNE_DELTA_HEADER,
         LIERNE_DTYPE_I64, fill_headers, NULL, false},
        {d->engines[0].sent, d->engines[0].received, LIERNE_DTYPE_U8, fill_payload, d->engines,
         false},
    };
    LIERNE_TRY(create_versions(d));
    LIERNE_TRY(create_plan(d, status, &parts[0]));
    LIERNE_TRY(create_plan(d, status, &parts[1]));
    if (d->control.used) {
        return d->control.change ? create_plan(d, status, &packing) : LIERNE_OK;
    }
    LIERNE_TRY(create_plan(d, status, &parts[2]));
    return create_plan(d, status, &parts[3]);
}
