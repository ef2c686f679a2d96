/* What builders ask of all ranks while they plan.
 *
 * A decision that is an error leaves everything as it was, and so does a rank without memory for
 * its letters: it must still be able to tell the others. After anything else ranks may be at
 * different places of the planning, and the context is dead. */
#include "transport/transport.h"

#include <string.h>

lierne_status lierne_context_settle(lierne_context *context, lierne_status mine,
                                    const lierne_field *fields, size_t n) {
    const lierne_wire *wire = context->wire;
    int id;
    LIERNE_TRY(lierne_context_alive(context));
    LIERNE_TRY(wire->agree(context->self, mine, fields, n, &id));
    return wire->settled ? wire->settled(context->self, id) : LIERNE_OK;
}

static lierne_status judge(lierne_context *context, lierne_status status) {
    return status == LIERNE_OK || status == LIERNE_NO_MEMORY ? status
                                                             : lierne_context_kill(context, status);
}

lierne_status lierne_context_post(lierne_context *context, const lierne_letter *letters, size_t n,
                                  lierne_letters *received) {
    LIERNE_TRY(lierne_context_alive(context));
    return judge(context, context->wire->post(context->self, letters, n, received));
}

void lierne_context_reclaim(const lierne_context *context, void *memory) {
    if (!context->lends) {
        lierne_mem_free(memory);
    }
}

lierne_status lierne_context_largest(lierne_context *context, int64_t *values, size_t n) {
    LIERNE_TRY(lierne_context_alive(context));
    return judge(context, context->wire->largest(context->self, values, n));
}

lierne_status lierne_letters_add(lierne_letters *letters, int from, size_t count) {
    lierne_letter letter = {.peer = from, .count = count};
    LIERNE_TRY(lierne_realloc(&letter.words, count, sizeof *letter.words));
    lierne_status status = LIERNE_VEC_PUSH(letters, letter);
    if (status != LIERNE_OK) {
        lierne_mem_free(letter.words);
    }
    return status;
}

lierne_status lierne_letters_copy(lierne_letters *letters, int from, const lierne_letter *letter) {
    LIERNE_TRY(lierne_letters_add(letters, from, letter->count));
    if (letter->count > 0) {
        memcpy(letters->at[letters->count - 1].words, letter->words,
               letter->count * sizeof *letter->words);
    }
    return LIERNE_OK;
}

void lierne_letters_free(lierne_letters *letters) {
    for (size_t i = 0; i < letters->count; i++) {
        lierne_mem_free(letters->at[i].words);
    }
    lierne_mem_free(letters->at);
    *letters = (lierne_letters){0};
}
