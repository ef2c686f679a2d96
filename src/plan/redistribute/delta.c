/* A plan's forward that moves what changed.
 *
 * Both ends know from the plan which elements a message has and in which order, so a message needs
 * no indices of tensors: it is a run of elements, of which each side keeps the last version. So the
 * output is written whole in every call, whatever it holds. Unpacking and copies are plans of their
 * own, made from the route; so are the three exchanges of a call: who has which version,
 * how long each message is, and the messages, whose lengths change from call to call as those of
 * packed sequences do (runtime/execute/varying.h). */
#include "plan/redistribute/delta_plans.h"

#include "plan/redistribute/changes.h"

#include <stdio.h>
#include <string.h>

/* --- the object --------------------------------------------------------------------------- */

static bool is_busy(const lierne_dependent *dependent) {
    return ((const lierne_delta *)dependent)->request;
}

static lierne_status check_idle(const lierne_delta *d) {
    return d->request ? LIERNE_FAIL(LIERNE_ERR_BUSY, "rank %d: a call is in flight, must be ended",
                                    d->context->rank)
                      : LIERNE_OK;
}

static lierne_status free_delta(lierne_delta *d) {
    lierne_status status = LIERNE_OK;
    for (size_t i = 0; i < d->nplans; i++) {
        lierne_status one = lierne_plan_destroy(d->plans[i]);
        status = status == LIERNE_OK ? one : status;
    }
    lierne_delta_close(d);
    lierne_mem_free(d);
    return status;
}

static lierne_status destroy_dependent(lierne_dependent *dependent) {
    lierne_delta *d = (lierne_delta *)dependent;
    d->context->nplans -= lierne_context_remove_dependent(d->context, dependent);
    lierne_plan_hold(d->of, -1);
    return free_delta(d);
}

lierne_status lierne_delta_create(lierne_delta **out, lierne_plan *plan) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_delta *d = NULL;
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    lierne_context *context = lierne_plan_context(plan);
    const lierne_field field = {.name = "plan", .value = lierne_plan_get_number(plan)};
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? lierne_alloc(&d, 1, sizeof *d)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    status = lierne_context_agree_all(context, status, &field, 1, NULL);
    if (status != LIERNE_OK) {
        lierne_mem_free(d);
        return status;
    }
    d->context = context;
    d->of = plan;
    status = lierne_plan_check_idle(plan);
    status = lierne_delta_create_plans(d, status == LIERNE_OK ? lierne_delta_open(d) : status);
    if (status != LIERNE_OK) {
        (void)free_delta(d);
        return status;
    }
    d->dependent = (lierne_dependent){.busy = is_busy, .destroy = destroy_dependent};
    lierne_context_add_dependent(context, &d->dependent);
    context->nplans++;
    lierne_plan_hold(plan, 1);
    *out = d;
    return LIERNE_OK;
}

lierne_status lierne_delta_destroy(lierne_delta *delta) {
    LIERNE_PUBLIC_CALL();
    if (!delta) {
        return LIERNE_OK;
    }
    LIERNE_TRY(delta->context->dead == LIERNE_OK ? check_idle(delta) : LIERNE_OK);
    return destroy_dependent(&delta->dependent);
}

lierne_status lierne_delta_invalidate(lierne_delta *delta) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(delta, "delta"));
    LIERNE_TRY(check_idle(delta));
    delta->held = LIERNE_DELTA_UNKNOWN;
    return LIERNE_OK;
}

lierne_status lierne_delta_set_previous(lierne_delta *delta, const void *previous) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(delta, "delta"));
    LIERNE_TRY(check_idle(delta));
    lierne_delta_keep_nothing(delta);
    delta->previous = previous;
    return LIERNE_OK;
}

lierne_status lierne_delta_get_report(lierne_delta_report *report, const lierne_delta *delta) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(delta, "delta"));
    return lierne_spec_give(report, &delta->report, sizeof *report, "report");
}

/* --- a call ------------------------------------------------------------------------------- */

/* Tells all ranks which version this one keeps, or that it cannot take part. */
static lierne_status tell_versions(lierne_delta *d, lierne_status status) {
    const int64_t mine[LIERNE_DELTA_WORDS] = {d->held, (int64_t)status};
    char text[LIERNE_MESSAGE_SIZE];
    snprintf(text, sizeof text, "%s", lierne_error_text());
    LIERNE_TRY(lierne_plan_forward(d->plans[LIERNE_DELTA_VERSIONS], d->said, mine, NULL));
    for (int i = 0; i < d->context->members.count; i++) {
        const int64_t *said = &d->said[LIERNE_DELTA_WORDS * i];
        lierne_status theirs = (lierne_status)said[LIERNE_DELTA_STATUS];
        int rank = lierne_members_rank(&d->context->members, i);
        if (theirs != LIERNE_OK && rank == d->context->rank) {
            lierne_set_error(text);
            return status;
        }
        if (theirs != LIERNE_OK) {
            return LIERNE_FAIL(theirs, "rank %d takes no part: %s", rank,
                               lierne_status_name((int)theirs));
        }
    }
    return LIERNE_OK;
}

static lierne_status check_header(const lierne_delta *d, size_t m) {
    const lierne_delta_half *h = &d->recvs;
    const int64_t *header = &h->headers[LIERNE_DELTA_HEADER * m];
    int64_t n = (h->first[m + 1] - h->first[m]) * (int64_t)d->per;
    bool base =
        header[LIERNE_DELTA_BASE] == LIERNE_DELTA_UNKNOWN || header[LIERNE_DELTA_BASE] == d->held;
    if (header[LIERNE_DELTA_VERSION] == d->version && base && header[LIERNE_DELTA_ELEMENTS] == n &&
        header[LIERNE_DELTA_BYTES] >= 0 && header[LIERNE_DELTA_BYTES] <= h->at[m + 1] - h->at[m]) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                       "rank %d: rank %d sends version %lld of %lld elements from version %lld on, "
                       "in %lld bytes; version %lld of %lld from version %lld on was to come",
                       d->context->rank, h->peers[m], (long long)header[LIERNE_DELTA_VERSION],
                       (long long)header[LIERNE_DELTA_ELEMENTS],
                       (long long)header[LIERNE_DELTA_BASE], (long long)header[LIERNE_DELTA_BYTES],
                       (long long)d->version, (long long)n, (long long)d->held);
}

/* Ranks wait for messages of the lengths that they were told: a header that cannot be is the end.
 */
static lierne_status begin_exchange(lierne_delta *d) {
    lierne_route *route =
        lierne_plan_side_of(d->plans[LIERNE_DELTA_PAYLOAD], LIERNE_DIRECTION_FORWARD)->route;
    lierne_stage *stage = &route->stages.at[0];
    LIERNE_TRY(lierne_plan_forward(d->plans[LIERNE_DELTA_HEADERS], d->recvs.headers,
                                   d->sends.headers, NULL));
    for (size_t m = 0; m < d->recvs.n; m++) {
        lierne_status status = check_header(d, m);
        if (status != LIERNE_OK) {
            return lierne_context_kill(d->context, status);
        }
        lierne_delta_set_length(&stage->recvs.at[m], &d->recvs, m,
                                d->recvs.headers[LIERNE_DELTA_HEADER * m + LIERNE_DELTA_BYTES]);
    }
    for (size_t m = 0; m < d->sends.n; m++) {
        lierne_delta_set_length(&stage->sends.at[m], &d->sends, m,
                                d->sends.headers[LIERNE_DELTA_HEADER * m + LIERNE_DELTA_BYTES]);
    }
    d->engines[0].stamp[LIERNE_STAMP_UPDATE] = d->version;
    d->engines[0].stamp[LIERNE_STAMP_HASH] = d->version;
    LIERNE_TRY(lierne_plan_vary(d->plans[LIERNE_DELTA_PAYLOAD], true));
    return lierne_plan_forward_begin(&d->request, d->plans[LIERNE_DELTA_PAYLOAD], d->recvs.bytes,
                                     d->sends.bytes, NULL);
}

/* The packed elements, from those of the version before. What a failure leaves has no version. */
static lierne_status decode(lierne_delta *d) {
    const lierne_delta_half *h = &d->recvs;
    size_t size = d->element * d->per;
    d->held = LIERNE_DELTA_UNKNOWN;
    for (size_t m = 0; m < h->n; m++) {
        const int64_t *header = &h->headers[LIERNE_DELTA_HEADER * m];
        if (header[LIERNE_DELTA_BYTES] == 0) {
            continue;
        }
        LIERNE_TRY(lierne_changes_decode(h->packed + (size_t)h->first[m] * size,
                                         (size_t)header[LIERNE_DELTA_ELEMENTS], d->element,
                                         (unsigned char *)h->bytes + h->at[m],
                                         (size_t)header[LIERNE_DELTA_BYTES]));
    }
    LIERNE_TRY(lierne_plan_forward(d->plans[LIERNE_DELTA_UNPACKING], d->out, h->packed, NULL));
    d->held = d->version;
    return LIERNE_OK;
}

static lierne_status send_changes(lierne_delta *d, void *out, const void *in) {
    d->version++;
    d->report = (lierne_delta_report){.version = d->version,
                                      .dense_bytes = d->report.dense_bytes,
                                      .memory_bytes = d->report.memory_bytes};
    lierne_delta_encode(d, in);
    d->out = out;
    LIERNE_TRY(lierne_plan_forward(d->plans[LIERNE_DELTA_COPIES], out, in, NULL));
    return begin_exchange(d);
}

/* An output is needed also where the plan's would be an alias of the input. */
static lierne_status check_buffers(const lierne_delta *d, const void *out, const void *in) {
    size_t bytes = lierne_plan_bytes(d->of, LIERNE_DIRECTION_FORWARD, LIERNE_BUFFER_OUT);
    LIERNE_TRY(lierne_plan_check_buffers(d->of, LIERNE_DIRECTION_FORWARD, out, in, NULL));
    return out || bytes == 0
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL, must hold %zu bytes",
                             d->context->rank, bytes);
}

static lierne_status begin(lierne_delta *d, void *out, const void *in) {
    LIERNE_TRY(lierne_check_set(d, "delta"));
    LIERNE_TRY(lierne_context_alive(d->context));
    LIERNE_TRY(check_idle(d));
    LIERNE_TRY(tell_versions(d, check_buffers(d, out, in)));
    return send_changes(d, out, in);
}

static lierne_status end(lierne_delta *d) {
    lierne_request *request = d->request;
    d->request = NULL;
    LIERNE_TRY(lierne_request_end(request));
    return decode(d);
}

lierne_status lierne_delta_forward(lierne_delta *delta, void *out, const void *in) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(begin(delta, out, in));
    return end(delta);
}

lierne_status lierne_delta_forward_begin(lierne_delta *delta, void *out, const void *in) {
    LIERNE_PUBLIC_CALL();
    return begin(delta, out, in);
}

lierne_status lierne_delta_forward_end(lierne_delta *delta) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(delta, "delta"));
    return delta->request ? end(delta)
                          : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: no call is in flight",
                                        delta->context->rank);
}
