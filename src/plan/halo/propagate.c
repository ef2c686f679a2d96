/* Words sent through the swaps while planning.
 *
 * What swaps do to rows they do to any words that go with them: labels come out as each ghost's
 * root, a mask as what the sender keeps. It costs a post per swap rather than a job, because a rank
 * that runs out of memory, or was given other counts than its peers, can go on posting: nobody
 * waits for it. */
#include "plan/halo/halo.h"

#include <stdio.h>
#include <string.h>

/* Takes the words of a swap's ghosts out of what came. */
static lierne_status take(const lierne_context *context, const lierne_halo_spec *spec, int s,
                          const lierne_control_messages *received, int64_t *words, size_t n) {
    int64_t rows = 0;
    for (size_t i = 0; i < received->count; i++) {
        const lierne_control_message *message = &received->at[i];
        if (message->peer != spec->recvproc[s]) {
            return LIERNE_FAIL(LIERNE_PEER_COUNT,
                               "swap %d: rank %d sends %zu rows to rank %d, which expects 0 of it "
                               "and %lld of rank %d",
                               s, message->peer, message->count / n, context->rank,
                               (long long)spec->recvnum[s], spec->recvproc[s]);
        }
        rows = (int64_t)(message->count / n);
        if (rows == spec->recvnum[s]) {
            memcpy(words, message->words, message->count * sizeof *words);
        }
    }
    if (rows != spec->recvnum[s]) {
        return LIERNE_FAIL(LIERNE_PEER_COUNT,
                           "swap %d: rank %d sends %lld rows to rank %d, which expects %lld", s,
                           spec->recvproc[s], (long long)rows, context->rank,
                           (long long)spec->recvnum[s]);
    }
    return LIERNE_OK;
}

/* The words of a row into their place in the message. */
static void pack(int64_t *packed, const lierne_halo_words *w, int64_t row, int64_t nlocal,
                 int rank) {
    if (row < nlocal && !w->owned) {
        packed[0] = rank;
        packed[1] = row;
    } else {
        const int64_t *from = row < nlocal ? w->owned + (size_t)row * w->n
                                           : w->ghosts + (size_t)(row - nlocal) * w->n;
        memcpy(packed, from, w->n * sizeof *packed);
    }
}

/* ghosts: how many earlier swaps brought. */
static lierne_status push_swap(lierne_context *context, const lierne_halo_spec *spec, int s,
                               const lierne_halo_words *w, int64_t ghosts) {
    lierne_control_messages received = {0};
    lierne_control_message message = {spec->sendproc[s], (size_t)spec->sendnum[s] * w->n, w->room};
    for (int64_t i = 0; i < spec->sendnum[s]; i++) {
        pack(w->room + (size_t)i * w->n, w, spec->sendlist[s][i], spec->nlocal, context->rank);
    }
    LIERNE_TRY(lierne_context_sparse_exchange(context, &message, message.count > 0, &received));
    lierne_status status =
        take(context, spec, s, &received, w->ghosts + (size_t)ghosts * w->n, w->n);
    lierne_control_messages_destroy(&received);
    return status;
}

lierne_status lierne_halo_propagate_memory(int64_t **room, const lierne_halo_spec *spec, size_t n) {
    int64_t most = 0;
    for (int s = 0; s < spec->nswap; s++) {
        most = spec->sendnum[s] > most ? spec->sendnum[s] : most;
    }
    return lierne_alloc(room, (size_t)most, n * sizeof **room);
}

lierne_status lierne_halo_propagate(lierne_context *context, const lierne_halo_spec *spec,
                                    const lierne_halo_words *words) {
    char message[LIERNE_MESSAGE_SIZE];
    int64_t ghosts = 0;
    lierne_status status = LIERNE_OK;
    for (int s = 0; s < spec->nswap && context->dead == LIERNE_OK; s++) {
        lierne_status one = push_swap(context, spec, s, words, ghosts);
        if (one != LIERNE_OK && status == LIERNE_OK) {
            status = one;
            snprintf(message, sizeof message, "%s", lierne_last_error());
        }
        ghosts += spec->recvnum[s];
    }
    if (status != LIERNE_OK) {
        lierne_set_error(message);
    }
    return context->dead == LIERNE_OK ? status : lierne_context_alive(context);
}
