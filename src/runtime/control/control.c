/* Lists of control messages. */
#include "runtime/control/control.h"

#include <stdlib.h>
#include <string.h>

lierne_status lierne_control_messages_add(lierne_control_messages *messages, int from,
                                          size_t count) {
    lierne_control_message message = {.peer = from, .count = count};
    LIERNE_TRY(lierne_realloc(&message.words, count, sizeof *message.words));
    lierne_status status = LIERNE_VEC_PUSH(messages, message);
    if (status != LIERNE_OK) {
        lierne_mem_free(message.words);
    }
    return status;
}

lierne_status lierne_control_messages_copy(lierne_control_messages *messages, int from,
                                           const lierne_control_message *message) {
    LIERNE_TRY(lierne_control_messages_add(messages, from, message->count));
    if (message->count > 0) {
        memcpy(messages->at[messages->count - 1].words, message->words,
               message->count * sizeof *message->words);
    }
    return LIERNE_OK;
}

void lierne_control_messages_destroy(lierne_control_messages *messages) {
    for (size_t i = 0; i < messages->count; i++) {
        lierne_mem_free(messages->at[i].words);
    }
    lierne_mem_free(messages->at);
    *messages = (lierne_control_messages){0};
}

static int by_peer(const void *a, const void *b) {
    const lierne_control_message *x = a, *y = b;
    return (x->peer > y->peer) - (x->peer < y->peer);
}

void lierne_control_messages_sort(lierne_control_messages *messages) {
    if (messages->count > 0) {
        qsort(messages->at, messages->count, sizeof *messages->at, by_peer);
    }
}
