/* The summary of all ranks: the lowest one merges the rows of all, and sends the result to all. */
#include "lierne/summary.h"
#include "runtime/context/summary.h"

#include <string.h>

enum { ROW_WORDS = sizeof(lierne_summary_row) / sizeof(int64_t) };

static lierne_control_message message_of(const lierne_summary *summary, int peer) {
    return (lierne_control_message){.peer = peer,
                                    .count = summary->count * ROW_WORDS,
                                    .words = (int64_t *)(void *)summary->at};
}

static lierne_status merge_all(lierne_summary *summary, const lierne_control_messages *received) {
    for (size_t i = 0; i < received->count; i++) {
        const lierne_control_message *m = &received->at[i];
        LIERNE_TRY(lierne_summary_merge(summary, (const void *)m->words, m->count / ROW_WORDS));
    }
    return LIERNE_OK;
}

/* Sends to the lowest rank, which gets all, with status of what it did with them. */
static lierne_status gather(lierne_summary *all, lierne_context *context,
                            const lierne_summary *own) {
    lierne_control_messages received = {0};
    lierne_control_message to = message_of(own, lierne_members_rank(&context->members, 0));
    lierne_status status = lierne_context_sparse_exchange(context, &to, own->count > 0, &received);
    status = status == LIERNE_OK ? merge_all(all, &received) : status;
    lierne_control_messages_destroy(&received);
    return status;
}

static lierne_status spread(lierne_summary *all, lierne_context *context) {
    lierne_control_messages received = {0};
    lierne_control_message *list = NULL;
    size_t n = context->index == 0 && all->count > 0 ? (size_t)context->members.count - 1 : 0;
    LIERNE_TRY(lierne_alloc(&list, n, sizeof *list));
    for (size_t i = 0; i < n; i++) {
        list[i] = message_of(all, lierne_members_rank(&context->members, (int)i + 1));
    }
    lierne_status status = lierne_context_sparse_exchange(context, list, n, &received);
    status = status == LIERNE_OK ? merge_all(all, &received) : status;
    lierne_control_messages_destroy(&received);
    lierne_mem_free(list);
    return status;
}

static lierne_status reduce(lierne_summary *all, lierne_context *context, lierne_status status) {
    const lierne_field field = {.name = "lierne_context_reduce_summary"};
    lierne_summary own = {0};
    if (status == LIERNE_OK) {
        status = lierne_summary_fill(&own, context);
    }
    status = lierne_context_agree_all(context, status, &field, 1, NULL);
    if (status == LIERNE_OK) {
        status = gather(all, context, &own);
        status = context->dead == LIERNE_OK
                     ? lierne_context_agree_all(context, status, &field, 1, NULL)
                     : status;
    }
    lierne_mem_free(own.at);
    return status == LIERNE_OK ? spread(all, context) : status;
}

lierne_status lierne_context_reduce_summary(char **text, lierne_context *context) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(text);
    lierne_summary all = {0};
    lierne_text table = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status = reduce(&all, context, lierne_check_set(text, "text"));
    if (status == LIERNE_OK) {
        lierne_summary_write(&table, &all, context, context->members.count);
        status = lierne_text_take(&table, text);
    }
    lierne_mem_free(all.at);
    return status;
}

/* What the ranks cannot reduce together, each writes for itself; a dead context has done so. */
void lierne_summary_end(lierne_context *context) {
    lierne_summary all = {0};
    lierne_text table = {0};
    if (!context->summary || context->dead != LIERNE_OK) {
        return;
    }
    if (context->members.count == 1 || context->owner) {
        lierne_summary_end_own(context);
    } else if (reduce(&all, context, LIERNE_OK) == LIERNE_OK && context->index == 0) {
        lierne_summary_write(&table, &all, context, context->members.count);
        lierne_log_text(context, &table);
    }
    lierne_text_clear(&table);
    lierne_mem_free(all.at);
}
