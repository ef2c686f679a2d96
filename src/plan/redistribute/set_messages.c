#include "plan/redistribute/set_messages.h"

lierne_status lierne_set_open_for(lierne_open_messages *open, lierne_messages *messages, int peer,
                                  int64_t full, lierne_buffer buffer, size_t *index) {
    lierne_message *message;
    size_t i = open->count;
    while (i > 0 && open->at[i - 1].peer != peer) {
        i--;
    }
    if (i > 0 && messages->at[open->at[i - 1].index].elements < full) {
        *index = open->at[i - 1].index;
        return LIERNE_OK;
    }
    *index = messages->count;
    LIERNE_TRY(lierne_messages_add(messages, peer, buffer, &message));
    if (i > 0) {
        open->at[i - 1].index = *index;
        return LIERNE_OK;
    }
    return LIERNE_VEC_PUSH(open, ((lierne_open_message){peer, *index}));
}

void lierne_set_open_clear(lierne_set_open *open) {
    for (int t = 0; t < LIERNE_SET_TRAFFICS; t++) {
        lierne_mem_free(open->at[t][0].at);
        lierne_mem_free(open->at[t][1].at);
    }
}
