/* The transport of a world of one rank, whose routes have no messages. */
#include "backend/self/self.h"

static lierne_status batch_create(void *self, size_t capacity, void **batch) {
    (void)self, (void)capacity;
    *batch = NULL;
    return LIERNE_OK;
}

static bool withdraw_self(void *batch) {
    (void)batch;
    return true;
}

static void batch_destroy(void *batch) {
    (void)batch;
}

static lierne_status reject_messages(void *batch, int match, const lierne_posting *postings,
                                     size_t n) {
    (void)batch, (void)match;
    return n == 0 ? LIERNE_OK
                  : LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "no rank %d in a world of one rank",
                                postings[0].peer);
}

static lierne_status poll_nothing(void *batch, size_t *done, size_t *ndone) {
    (void)batch, (void)done;
    *ndone = 0;
    return LIERNE_OK;
}

const lierne_transport lierne_self_transport = {
    .name = "self",
    .close = lierne_transport_close_nothing,
    .print = lierne_transport_print_nothing,
    .reaches = lierne_transport_reaches_all,
    .batch_create = batch_create,
    .withdraw = withdraw_self,
    .batch_destroy = batch_destroy,
    .post = reject_messages,
    .poll = poll_nothing,
};
