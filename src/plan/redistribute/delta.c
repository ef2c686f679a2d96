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
    return ((const lierne_delta *)dependent)->busy;
}

static lierne_status check_idle(const lierne_delta *d) {
    return d->busy ? LIERNE_FAIL(LIERNE_ERR_BUSY, "rank %d: a call is in flight, must be ended",
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
    d->control.used = !lierne_execution_stamps(context);
    d->control.change = d->control.used ? context->memory->change : NULL;
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
    if (delta->control.change) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: the context has memory of a device, whose kernels compare "
                           "with a packed copy",
                           delta->context->rank);
    }
    lierne_delta_keep_nothing(delta);
    delta->previous = previous;
    return LIERNE_OK;
}

lierne_status lierne_delta_set_stream(lierne_delta *delta, void *stream) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(delta, "delta"));
    LIERNE_TRY(check_idle(delta));
    delta->control.stream = stream;
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
    LIERNE_TRY(d->control.used
                   ? lierne_delta_tell_all(d, mine)
                   : lierne_plan_forward(d->plans[LIERNE_DELTA_VERSIONS], d->said, mine, NULL));
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

/* Ranks wait for messages of the lengths that they were told: a header that cannot be is the end.
 */
static lierne_status begin_exchange(lierne_delta *d) {
    lierne_route *route =
        lierne_plan_side_of(d->plans[LIERNE_DELTA_PAYLOAD], LIERNE_DIRECTION_FORWARD)->route;
    lierne_stage *stage = &route->stages.at[0];
    LIERNE_TRY(lierne_plan_forward(d->plans[LIERNE_DELTA_HEADERS], d->recvs.headers,
                                   d->sends.headers, NULL));
    for (size_t m = 0; m < d->recvs.n; m++) {
        lierne_status status = lierne_delta_check_header(d, m);
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

static lierne_status unpack(lierne_delta *d) {
    const void *packed = d->control.change ? d->control.received.now : d->recvs.packed;
    LIERNE_TRY(
        lierne_plan_forward(d->plans[LIERNE_DELTA_UNPACKING], d->out, packed, d->control.stream));
    return lierne_delta_wait_stream(d);
}

/* The packed elements, from those of the version before. */
static lierne_status decode_messages(lierne_delta *d) {
    const lierne_delta_half *h = &d->recvs;
    size_t size = d->element * d->per;
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
    return LIERNE_OK;
}

/* What a failure leaves has no version. */
static lierne_status decode(lierne_delta *d) {
    d->held = LIERNE_DELTA_UNKNOWN;
    LIERNE_TRY(d->control.change ? lierne_delta_make_changes(d) : decode_messages(d));
    LIERNE_TRY(unpack(d));
    d->held = d->version;
    return LIERNE_OK;
}

/* The host reads the input when the stream has passed what came before; a device reads it in the
 * stream's order, and the host what it has found. */
static lierne_status begin_control(lierne_delta *d, void *out, const void *in) {
    void *stream = d->control.stream;
    if (d->control.change) {
        LIERNE_TRY(
            lierne_plan_forward(d->plans[LIERNE_DELTA_PACKING], d->control.sent.now, in, stream));
        LIERNE_TRY(lierne_delta_find_changes(d));
    } else {
        LIERNE_TRY(lierne_delta_wait_stream(d));
        lierne_delta_encode(d, in);
    }
    LIERNE_TRY(lierne_plan_forward(d->plans[LIERNE_DELTA_COPIES], out, in, stream));
    LIERNE_TRY(lierne_delta_wait_stream(d));
    if (d->control.change) {
        lierne_delta_encode(d, in);
    }
    return lierne_delta_exchange_control(d);
}

static lierne_status send_changes(lierne_delta *d, void *out, const void *in) {
    d->version = d->version < INT64_MAX ? d->version + 1 : 1;
    d->report = (lierne_delta_report){.version = d->version,
                                      .dense_bytes = d->report.dense_bytes,
                                      .memory_bytes = d->report.memory_bytes};
    d->out = out;
    if (d->control.used) {
        return begin_control(d, out, in);
    }
    lierne_delta_encode(d, in);
    LIERNE_TRY(lierne_plan_forward(d->plans[LIERNE_DELTA_COPIES], out, in, NULL));
    return begin_exchange(d);
}

/* An output is needed also where the plan's would be an alias of the input. */
static lierne_status check_buffers(const lierne_delta *d, const void *out, const void *in) {
    size_t bytes = lierne_plan_bytes(d->of, LIERNE_DIRECTION_FORWARD, LIERNE_BUFFER_OUT);
    LIERNE_TRY(lierne_delta_check_stream(d));
    LIERNE_TRY(
        lierne_plan_check_buffers(d->of, LIERNE_DIRECTION_FORWARD, out, in, d->control.stream));
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
    LIERNE_TRY(send_changes(d, out, in));
    d->busy = true;
    return LIERNE_OK;
}

static lierne_status end(lierne_delta *d) {
    lierne_request *request = d->request;
    d->request = NULL;
    d->busy = false;
    LIERNE_TRY(request ? lierne_request_end(request) : LIERNE_OK);
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
    return delta->busy ? end(delta)
                       : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: no call is in flight",
                                     delta->context->rank);
}
