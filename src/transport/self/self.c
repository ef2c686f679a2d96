/* The transport of a world of one rank, whose routes have no messages. */
#include "transport/transport.h"

static lierne_status batch_create(void *self, size_t capacity, void **batch) {
    (void)self, (void)capacity;
    *batch = NULL;
    return LIERNE_OK;
}

static bool batch_destroy(void *batch) {
    (void)batch;
    return true;
}

static lierne_status reject_send(void *batch, size_t slot, int peer, int tag, const void *data,
                                 size_t bytes) {
    (void)batch, (void)slot, (void)tag, (void)data, (void)bytes;
    return LIERNE_FAIL(LIERNE_TRANSPORT, "no rank %d in a world of one rank", peer);
}

static lierne_status reject_recv(void *batch, size_t slot, int peer, int tag, void *data,
                                 size_t bytes) {
    return reject_send(batch, slot, peer, tag, data, bytes);
}

static lierne_status poll_nothing(void *batch, size_t *done, size_t *ndone) {
    (void)batch, (void)done;
    *ndone = 0;
    return LIERNE_OK;
}

const lierne_transport lierne_self_transport = {
    .name = "self",
    .batch_create = batch_create,
    .batch_destroy = batch_destroy,
    .send = reject_send,
    .recv = reject_recv,
    .poll = poll_nothing,
};
