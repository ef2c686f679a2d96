/* Labels sent through the swaps while planning.
 *
 * Swaps copy labels as they copy rows: labels that identify the owned rows arrive as each ghost's
 * root, a mask arrives as what the sender keeps. Each swap is a sparse exchange instead of an
 * execution, because a rank that runs out of memory, or has other counts than its peers, can still
 * take part, and no rank waits for it. */
#include "plan/halo/halo.h"

#include <stdio.h>
#include <string.h>

/* Copies the labels of a swap's ghosts out of the received messages. */
static lierne_status take_swap(const lierne_context *context, const lierne_halo_spec *spec, int s,
                               const lierne_control_messages *received, int64_t *labels, size_t n) {
    int64_t rows = 0;
    for (size_t i = 0; i < received->count; i++) {
        const lierne_control_message *message = &received->at[i];
        if (message->peer != spec->recvproc[s]) {
            return LIERNE_FAIL(LIERNE_ERR_PEER_COUNT,
                               "swap %d: rank %d sends %zu rows to rank %d, which expects 0 of it "
                               "and %lld of rank %d",
                               s, message->peer, message->count / n, context->rank,
                               (long long)spec->recvnum[s], spec->recvproc[s]);
        }
        rows = (int64_t)(message->count / n);
        if (rows == spec->recvnum[s]) {
            memcpy(labels, message->words, message->count * sizeof *labels);
        }
    }
    if (rows != spec->recvnum[s]) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_COUNT,
                           "swap %d: rank %d sends %lld rows to rank %d, which expects %lld", s,
                           spec->recvproc[s], (long long)rows, context->rank,
                           (long long)spec->recvnum[s]);
    }
    return LIERNE_OK;
}

/* Copies the label of a row into its place in the message. */
static void pack(int64_t *packed, const lierne_halo_labels *w, int64_t row, int64_t nlocal,
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

/* ghosts: the number that earlier swaps brought. */
static lierne_status run_swap(lierne_context *context, const lierne_halo_spec *spec, int s,
                              const lierne_halo_labels *w, int64_t ghosts) {
    lierne_control_messages received = {0};
    lierne_control_message message = {spec->sendproc[s], (size_t)spec->sendnum[s] * w->n,
                                      w->buffer};
    for (int64_t i = 0; i < spec->sendnum[s]; i++) {
        pack(w->buffer + (size_t)i * w->n, w, spec->sendlist[s][i], spec->nlocal, context->rank);
    }
    LIERNE_TRY(lierne_context_sparse_exchange(context, &message, message.count > 0, &received));
    lierne_status status =
        take_swap(context, spec, s, &received, w->ghosts + (size_t)ghosts * w->n, w->n);
    lierne_control_messages_destroy(&received);
    return status;
}

lierne_status lierne_halo_reserve_labels(int64_t **buffer, const lierne_halo_spec *spec, size_t n) {
    int64_t most = 0;
    for (int s = 0; s < spec->nswap; s++) {
        most = spec->sendnum[s] > most ? spec->sendnum[s] : most;
    }
    return lierne_alloc(buffer, (size_t)most, n * sizeof **buffer);
}

lierne_status lierne_halo_propagate(lierne_context *context, const lierne_halo_spec *spec,
                                    const lierne_halo_labels *labels) {
    char message[LIERNE_MESSAGE_SIZE];
    int64_t ghosts = 0;
    lierne_status status = LIERNE_OK;
    for (int s = 0; s < spec->nswap && context->dead == LIERNE_OK; s++) {
        lierne_status one = run_swap(context, spec, s, labels, ghosts);
        if (one != LIERNE_OK && status == LIERNE_OK) {
            status = one;
            snprintf(message, sizeof message, "%s", lierne_error_text());
        }
        ghosts += spec->recvnum[s];
    }
    if (status != LIERNE_OK) {
        lierne_set_error(message);
    }
    return context->dead == LIERNE_OK ? status : lierne_context_alive(context);
}
