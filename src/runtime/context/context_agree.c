/* Collective operations of a context.
 *
 * The context survives a decision that is an error, and a rank that has no memory for its messages,
 * because that rank must still tell the others. After any other error ranks may be at different
 * points of a call, so the error kills the context. */
#include "runtime/context/context.h"

#include <stdio.h>
#include <string.h>

/* The error of one rank is that of all, so its message must say whose it is. */
static void name_rank(const lierne_context *context, lierne_status mine) {
    static const char named[] = "rank ";
    if (mine != LIERNE_OK && context->members.count > 1 &&
        strncmp(lierne_error_text(), named, sizeof named - 1) != 0) {
        (void)LIERNE_FAIL(mine, "rank %d: %s", context->rank, lierne_error_text());
    }
}

/* Records the begin of a call of the control. All ranks make these in one order. */
static int64_t begin_control(lierne_context *context, lierne_record_control what) {
    lierne_recorder *r = &context->recorder;
    int64_t number = r->controls++;
    if (r->header) {
        snprintf(r->header->doing, sizeof r->header->doing, "%s",
                 lierne_call_name ? lierne_call_name : "");
        lierne_recorder_beat(r);
    }
    lierne_recorder_add(r, &(lierne_entry){.kind = LIERNE_RECORD_CONTROL,
                                           .what = (int)what,
                                           .plan = -1,
                                           .number = number,
                                           .peer = -1});
    return number;
}

static lierne_status end_control(const lierne_context *context, lierne_record_control what,
                                 int64_t number, lierne_status status) {
    lierne_recorder_add(&context->recorder, &(lierne_entry){.kind = LIERNE_RECORD_CONTROLLED,
                                                            .what = (int)what,
                                                            .plan = -1,
                                                            .number = number,
                                                            .peer = -1,
                                                            .bytes = status});
    return status;
}

lierne_status lierne_context_agree(lierne_context *context, lierne_status mine,
                                   const lierne_field *fields, size_t n, int *id) {
    lierne_status decision = LIERNE_OK;
    int number;
    LIERNE_TRY(lierne_context_alive(context));
    name_rank(context, mine);
    int64_t call = begin_control(context, LIERNE_RECORD_AGREE);
    lierne_status status =
        context->control->agree(context->control_self, mine, fields, n, &number, &decision);
    end_control(context, LIERNE_RECORD_AGREE, call, status);
    if (status != LIERNE_OK) {
        return lierne_context_kill(context, status);
    }
    if (id) {
        *id = number;
    }
    return decision;
}

lierne_status lierne_context_agree_all(lierne_context *context, lierne_status mine,
                                       const lierne_field *fields, size_t n, int *id) {
    int number;
    LIERNE_TRY(lierne_context_agree(context, mine, fields, n, &number));
    if (id) {
        *id = number;
    }
    return lierne_context_await_agreement(context, number);
}

lierne_status lierne_context_agreement_status(const lierne_context *context, int id) {
    return context->control->pending ? context->control->pending->status(context->control_self, id)
                                     : LIERNE_OK;
}

lierne_status lierne_context_await_agreement(lierne_context *context, int id) {
    lierne_status decision = LIERNE_OK;
    if (!context->control->pending) {
        return LIERNE_OK;
    }
    int64_t call = begin_control(context, LIERNE_RECORD_AGREE);
    lierne_status status = context->control->pending->await(context->control_self, id, &decision);
    end_control(context, LIERNE_RECORD_AGREE, call, status);
    return status == LIERNE_OK ? decision : lierne_context_kill(context, status);
}

/* Peers are members of the context outside of the control. */
static void name_peers(const lierne_members *members, lierne_control_message *messages, size_t n,
                       int (*name)(const lierne_members *, int)) {
    for (size_t i = 0; i < n; i++) {
        messages[i].peer = name(members, messages[i].peer);
    }
}

lierne_status lierne_context_sparse_exchange(lierne_context *context,
                                             lierne_control_message *messages, size_t n,
                                             lierne_control_messages *received) {
    LIERNE_TRY(lierne_context_alive(context));
    name_peers(&context->members, messages, n, lierne_members_index);
    int64_t call = begin_control(context, LIERNE_RECORD_EXCHANGE);
    lierne_status status =
        context->control->sparse_exchange(context->control_self, messages, n, received);
    end_control(context, LIERNE_RECORD_EXCHANGE, call, status);
    name_peers(&context->members, received->at, received->count, lierne_members_rank);
    return status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY
               ? status
               : lierne_context_kill(context, status);
}

lierne_status lierne_context_agree_exchange(lierne_context *context,
                                            const lierne_control_agreement *agreement,
                                            lierne_control_message *messages, size_t n,
                                            lierne_control_messages *received,
                                            lierne_status *memory) {
    const lierne_control *control = context->control;
    lierne_status decision = LIERNE_OK;
    *memory = LIERNE_OK;
    LIERNE_TRY(lierne_context_alive(context));
    if (!control->agree_exchange) {
        LIERNE_TRY(lierne_context_agree_all(context, agreement->mine, agreement->fields,
                                            agreement->n, NULL));
        *memory = lierne_context_sparse_exchange(context, messages, n, received);
        return context->dead;
    }
    name_rank(context, agreement->mine);
    name_peers(&context->members, messages, n, lierne_members_index);
    int64_t call = begin_control(context, LIERNE_RECORD_EXCHANGE);
    lierne_status status = control->agree_exchange(context->control_self, agreement, messages, n,
                                                   received, memory, &decision);
    end_control(context, LIERNE_RECORD_EXCHANGE, call, status);
    name_peers(&context->members, received->at, received->count, lierne_members_rank);
    return status == LIERNE_OK ? decision : lierne_context_kill(context, status);
}

lierne_status lierne_context_allreduce_max(lierne_context *context, int64_t *values, size_t n) {
    LIERNE_TRY(lierne_context_alive(context));
    int64_t call = begin_control(context, LIERNE_RECORD_MAXIMUM);
    lierne_status status = context->control->allreduce_max(context->control_self, values, n);
    end_control(context, LIERNE_RECORD_MAXIMUM, call, status);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(context, status);
}

void lierne_context_free_message_memory(const lierne_context *context, void *memory) {
    const lierne_control_processes *p = context->control->processes;
    bool quiet = !p || !p->has_pending_buffers(context->control_self);
    if (lierne_lifetime_find(NULL, quiet) == LIERNE_LIFETIME_USE) {
        lierne_mem_free(memory);
    }
}
